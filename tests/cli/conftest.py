"""A short training run that the tests of several commands read."""

import pytest

from helpers.command_examples import ENV, train_arguments
from orac.cli.main import main
from orac.runs.directory import run_path


@pytest.fixture(scope="session")
def steered_run(tmp_path_factory):
    """The directory of a run of 1600 steps whose multiplier follows episodes."""
    out = tmp_path_factory.mktemp("steered")
    arguments = ["--preset=fast", f"--env-id={ENV}", f"--out={out}"]
    assert main(["train", *arguments, *train_arguments(1600, 400)]) == 0
    return run_path(out, ENV, "orac", 0, "default")


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory):
    """The directory of a run of 800 steps."""
    out = tmp_path_factory.mktemp("runs")
    arguments = ["--algo=wcsac", f"--env-id={ENV}", f"--out={out}"]
    assert main(["train", *arguments, *train_arguments(800, 400)]) == 0
    return run_path(out, ENV, "wcsac", 0, "default")
