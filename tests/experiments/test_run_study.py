"""Tests of running a study. The slow ones run every study to its end."""

import csv
import json

import pytest

from conftest import CACHE
from helpers.study_examples import SETTINGS, STEPS, WorkerPool, render
from orac.cli.main import main
from orac.cli.options import STUDY_NAMES, parse_seeds
from orac.experiments import paper_numbers, run_study
from orac.experiments.launcher.schedule import Backend, Outcome
from orac.experiments.run_study import STUDIES, StudyOptions
from orac.experiments.study import plan, with_settings


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", (0, 1, 2)),
        ("10:12", (10, 11)),
        ("0:1", (0,)),
        ("2-4", (2, 3, 4)),
        ("5,0", (5, 0)),
    ],
)
def test_seeds_are_a_number_or_a_range(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["0", "-1", "5:5", "a", "3:", ":3", "4-2", "1,1", "0,-1", "1-2-3"]
)
def test_invalid_seeds_raise(text):
    with pytest.raises(Exception, match="must be a number of seeds, such as 5"):
        parse_seeds(text)


@pytest.mark.parametrize(
    "option",
    [
        "--jobs=0",
        "--threads=0",
        "--backend=rai",
        "--budget=0",
        "--budget=nan",
        "--set=env.params.gard_probability=0.1",
    ],
)
def test_invalid_option_ends_the_command_before_anything_runs(option, tmp_path, capsys):
    assert main(["reproduce", "table1", f"--out={tmp_path}", option]) == 1
    message = capsys.readouterr().err
    assert "must be" in message or "Did you mean 'guard_probability'" in message
    assert not [*tmp_path.rglob("seed-*")]


def test_a_study_that_is_stopped_at_its_start_prints_no_table(tmp_path, monkeypatch):
    def stop(study, planned, options, log, signals):
        signals.append(2)
        return [Outcome(one, "stopped") for one in planned]

    monkeypatch.setattr(run_study, "train", stop)
    study, lines = with_settings(STUDIES["table1"], 10_000), []
    for record in (None, tmp_path / "record"):
        options = StudyOptions(tmp_path / "runs", (0,), record=record)
        assert run_study.run(study, options, lines.append) == 130
    runs = len(plan(study, (0,), tmp_path))
    assert (
        lines[2:]
        == lines[:2]
        == [
            "No run was evaluated yet, so there are no tables.",
            f"{runs} of {runs} runs are not finished. Run the same command again to continue.",
        ]
    )
    assert not [*tmp_path.iterdir()]


def test_unknown_band_gets_a_suggestion(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'half-std'"):
        render(STUDIES["figure2"], tmp_path, band="halfstd")


def test_address_without_ray_raises(tmp_path):
    options = StudyOptions(tmp_path, seeds=(0,), address="auto")
    with pytest.raises(ValueError, match="add --backend ray"):
        run_study.run(STUDIES["table1"], options)


def test_file_in_place_of_the_record_raises_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("mine")
    options = StudyOptions(tmp_path / "runs", seeds=(0,), record=tmp_path / "file")
    with pytest.raises(ValueError, match="--record must be a folder"):
        run_study.run(STUDIES["table1"], options)
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Return the folder that all studies share, so that later ones reuse earlier runs."""
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def pool():
    """Return the processes that train the runs, with quick compilation.

    Compiling is most of the work here, and the programs need not be fast. The cache also
    holds small programs, which take two seconds of a run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE.parent / "xla-quick"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        workers = WorkerPool()
        assert isinstance(workers, Backend)
        yield workers
        workers.shut_down()


@pytest.mark.slow
def test_study_of_the_limit_certifies_what_it_delivers(out, pool, monkeypatch):
    monkeypatch.setattr(run_study, "make_backend", lambda options: pool)
    only, folder = "GuardedMaze 0.15", out / "records" / "limit"
    assignments = ["agent.hidden_sizes=[8,8]", "training.learning_starts=800"]
    command = ["reproduce", "limit", f"--only={only}", "--steps=8000", "--seeds=1"]
    command += [f"--out={out}", f"--record={folder}"]
    command += [f"--set={text}" for text in assignments]
    assert main(command) == 0
    (row,) = csv.DictReader((folder / "runs.csv").read_text().splitlines())
    (run,) = plan(with_settings(STUDIES["limit"], 8000, assignments, [only]), [0], out)
    assert run.is_complete()
    record = json.loads((run.path / "certificate.json").read_text())
    assert row["certified"] == str(record["certified"]) and row["finished"] == "True"
    assert float(row["certificate_minutes"]) >= 0
    (run.path / "certificate.json").unlink()
    assert not run.is_complete()


TRAINED = [
    name for name in STUDY_NAMES if name not in ("limit", "table2-fast", "table3-fast")
]
"""The studies of the paper. `limit` has its own test, and the fast studies use the code of
Tables 2 and 3."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_study_trains_all_runs_and_renders(name, out, pool, monkeypatch, capsys):
    if name != "table3":
        # One study uses the processes that users get.
        monkeypatch.setattr(run_study, "make_backend", lambda options: pool)
    # One checkpoint, at the end: nobody interrupts these runs.
    settings = {**SETTINGS, "training.checkpoint_every": STEPS}
    assignments = [f"{field}={value}" for field, value in settings.items()]
    folder = out / "records" / name
    command = ["reproduce", name, f"--steps={STEPS}", "--seeds=2", f"--out={out}"]
    command += [f"--record={folder}", *(f"--set={text}" for text in assignments)]
    assert main(command) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    study = with_settings(STUDIES[name], STEPS, assignments)
    runs = plan(study, range(2), out)
    for run in runs:
        assert run.is_complete(), run
    rows = [*csv.DictReader((folder / "runs.csv").read_text().splitlines())]
    assert len(rows) == 2 * len(study.cases)
    updates = (STEPS - settings["training.learning_starts"]) / 8
    for row in rows:
        assert int(row["steps"]) == STEPS
        assert int(row["gradient_steps"]) >= updates
    for case in study.cases:
        for pair in paper_numbers.paper_entry(case.key) if case.key else ():
            assert paper_numbers.spread_text(pair) in printed
    if name.startswith("ablation"):
        logs = {
            (run.path / "metrics.csv").read_bytes()
            for run in runs
            if run.config.seed == 0
        }
        assert len(logs) == len(study.cases), "the varied field must reach the learner"
    assert "paper" in (folder / "table.md").read_text()
    assert (folder / "figure.png").stat().st_size > 5_000
    assert "This study is not complete" not in printed
