"""Every command of the paper runs to its end, learns, and renders ours beside the paper's.

All share one folder, as a person's would: later studies reuse the runs of earlier ones.
"""

import csv

import pytest

from conftest import CACHE
from helpers.study_examples import SETTINGS, STEPS, WORDS
from orac.cli.main import main
from orac.cli.studies import NAMES
from orac.experiments import paper
from orac.experiments.studies import STUDIES
from orac.experiments.study import plan, with_settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(autouse=True)
def quick_compilation(monkeypatch):
    """Compiling is most of the work here, and the programs need not be fast."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE.parent / "xla-quick"))
    # A hundred runs each compile the same eighty small programs: two seconds a run.
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_to_its_end_and_renders(name, out, capsys):
    words = ["reproduce", name, f"--steps={STEPS}", "--seeds=2", f"--out={out}"]
    kept = out / "kept" / name
    assert main([*words, f"--record={kept}", *WORDS]) == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    settings = [word.removeprefix("--set=") for word in WORDS]
    study = with_settings(STUDIES[name], STEPS, settings)
    for run in plan(study, range(2), out):
        assert run.is_finished(), run
    rows = [*csv.DictReader((kept / "runs.csv").read_text().splitlines())]
    assert len(rows) == 2 * len(study.cases)
    starts, ratio = SETTINGS["training.learning_starts"], 1 / 8
    for row in rows:
        assert int(row["steps"]) == STEPS
        assert int(row["gradient_steps"]) >= (STEPS - starts) * ratio
    for case in study.cases:
        for pair in paper.look_up(case.key) if case.key else ():
            assert paper.spread_text(pair) in told
    if name.startswith("ablation"):
        runs = [run for run in plan(study, range(2), out) if run.config.seed == 0]
        logs = {(run.path / "metrics.csv").read_bytes() for run in runs}
        assert len(logs) == len(runs), "what an ablation varies must reach the learner"
    assert "paper" in (kept / "table.md").read_text()
    assert (kept / "figure.png").stat().st_size > 5_000
    assert "Partial study" not in told
