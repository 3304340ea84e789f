"""Tests of the command-line options: values that argparse converts, and help texts."""

import pytest

from orac.cli.main import make_parser
from orac.cli.options import field_descriptions


def test_numbers_of_steps_can_be_written_in_three_ways():
    parser = make_parser()
    for text in ("100000", "100_000", "1e5"):
        options = parser.parse_args(["train", f"--total-steps={text}"])
        assert options.total_steps == 100_000
    for text in ("1.5", "many", "inf", "nan"):
        with pytest.raises(SystemExit):
            parser.parse_args(["train", f"--total-steps={text}"])


def test_help_of_train_describes_every_config_field(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["train", "--help"])
    printed = capsys.readouterr().out
    for name, description in field_descriptions().items():
        assert name in printed and description in printed
