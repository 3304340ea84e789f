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


@pytest.mark.parametrize(
    "command",
    [
        *("train --out", "evaluate --out", "report RUN --figures", "demo --out"),
        *("sweep grid --out", "sweep grid --record", "tune --out"),
    ],
)
def test_a_folder_to_write_to_is_not_a_file_or_below_one(command, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "runs"):
        with pytest.raises(SystemExit) as end:
            make_parser().parse_args([*command.split(), str(path)])
        assert end.value.code == 2
        message = f"must be a folder to write to, got the file {file}\n"
        assert capsys.readouterr().err.endswith(message)


def test_help_of_train_describes_every_config_field(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["train", "--help"])
    printed = capsys.readouterr().out
    for name, description in field_descriptions().items():
        assert name in printed and description in printed
