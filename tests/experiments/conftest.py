"""Fixtures of the experiments' tests."""

import pytest

from helpers.study_examples import render, write_synthetic_runs
from orac.experiments.run_study import STUDIES
from orac.experiments.study import with_settings


@pytest.fixture(scope="session")
def maze(tmp_path_factory):
    """Return Table 1 with 100,000 steps, and a folder with three seeds of every case."""
    out = tmp_path_factory.mktemp("maze")
    study = with_settings(STUDIES["table1"], 100_000)
    write_synthetic_runs(study, out, 3, evaluations=10, episodes=20)
    return study, out


@pytest.fixture(scope="session")
def record(maze, tmp_path_factory):
    """Return the folder of a record of that study."""
    folder = tmp_path_factory.mktemp("results") / "table1"
    render(*maze, record=folder)
    return folder
