"""Tests of grid files: the runs that they describe, and the errors in them."""

import pytest

from helpers.study_examples import render
from helpers.synthetic_runs import write_run
from orac.cli.main import main
from orac.experiments.study import plan
from orac.experiments.sweep import parse_grid, read_grid

GRID = """
algos: [orac, wcsac]
seeds: 2
set: {training.total_steps: 10_000, env.params.guard_probability: 0.1}
vary:
  agent.exploration.shift_radius: [1, 4]
  agent.kappa: [1e-1, 1]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "radius.yaml"
    path.write_text(GRID)
    return path


def test_every_combination_of_values_is_a_run(grid, tmp_path):
    study, seeds = read_grid(grid)
    assert study.name == "radius" and seeds == (0, 1)
    runs = plan(study, seeds, tmp_path)
    assert len({run.path for run in runs}) == 2 * 2 * 2 * 2
    config = runs[0].config
    assert config.training.total_steps == 10_000
    assert dict(config.env.params)["guard_probability"] == 0.1
    found = {
        (r.config.algo, r.config.agent.exploration.shift_radius, r.config.agent.kappa)
        for r in runs
    }
    assert found == {
        (algo, radius, kappa)
        for algo in ("orac", "wcsac")
        for radius in (1, 4)
        for kappa in (0.1, 1)
    }
    place = "orac-GuardedMaze-v0/orac/shift_radius=1-kappa=0.1/seed-000"
    assert tmp_path / place in {run.path for run in runs}


def test_preset_of_a_grid_is_that_of_every_run():
    study, _ = parse_grid({"algos": ["orac", "wcsac"], "preset": "fast"})
    assert {case.config.agent.risk_form for case in study.cases} == {"quantile"}
    study, _ = parse_grid({})
    assert study.cases[0].config.agent.risk_form == "implicit"


def test_grid_is_rendered_with_the_tables_of_a_report(tmp_path):
    study, seeds = parse_grid(
        {"algos": ["orac", "wcsac"], "seeds": [3, 5], "set": {"agent.kappa": 0.5}}
    )
    for run in plan(study, seeds, tmp_path):
        write_run(tmp_path, run.config, name=run.name, evaluations=2, episodes=5)
    text = render(study, tmp_path)
    assert "Results in orac/GuardedMaze-v0" in text and "wcsac" in text
    assert str(tmp_path) not in (tmp_path / "sweep" / "table.md").read_text()
    assert (tmp_path / "sweep" / "figure.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([1], "a grid must be a mapping with keys such as envs, algos and seeds"),
        ({"algo": "orac"}, "a key of the grid must be .* Did you mean 'algos'"),
        ({"algos": ["orak"]}, "algo must be one of .* Did you mean 'orac'"),
        ({"preset": "fats"}, "preset must be one of .* Did you mean 'fast'"),
        ({"preset": [1]}, "preset must be one of"),
        ({"algos": []}, "algos must have at least one entry"),
        ({"vary": {1: [1]}}, "a field in vary must be the name of a config field"),
        ({"seeds": 10**9}, "seeds must be at most 100,000"),
        (
            {"seeds": 1000, "vary": {"agent.kappa": [*range(1000)]}},
            "the number of runs of a grid must be at most 100,000, got 1000000",
        ),
        ({"set": {"agent.kapa": 1}}, "a field of agent .* Did you mean 'kappa'"),
        ({"vary": {"agent.kappa": []}}, "vary.agent.kappa must have at least one"),
        ({"vary": {"agent.kappa": ["x"]}}, "agent.kappa must be a number, got 'x'"),
        ({"vary": [1]}, "vary must be a mapping of config fields"),
        ({"set": {"seed": 1}}, "seed cannot be under set or vary in a grid"),
        (
            {"seeds": 0},
            r"seeds must be a whole number of at least 1, .* Or give a list",
        ),
        ({"seeds": [1, 1]}, r"seeds must not repeat, got \[1, 1\]"),
        ({"seeds": [0, 0]}, r"seeds must not repeat"),
        (
            {"vary": {"agent.kappa": [0.1, 1, 0.1]}},
            r"vary.agent.kappa must not repeat, got \[0.1, 1, 0.1\]. Leave one out",
        ),
        ({"vary": {"agent.kappa": [1, 1.0]}}, "vary.agent.kappa must not repeat"),
        ({"vary": {"agent.hidden_sizes": [[8], [8]]}}, "must not repeat"),
        ({"algos": ["orac", "orac"]}, "algos must not repeat"),
        ({"name": "../../away"}, "must be letters, digits .* Try 'away'"),
        ({"seeds": [True]}, "an entry of seeds must be a whole number of at least 0"),
        ({"seeds": []}, "seeds must have at least one entry"),
    ],
)
def test_mistakes_in_a_grid_raise(grid, message):
    with pytest.raises(ValueError, match=message):
        parse_grid(grid)


def test_command_reports_an_unreadable_grid(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "none.yaml")]) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err
    (tmp_path / "bad.yaml").write_text("algos: [orac")
    assert main(["sweep", str(tmp_path / "bad.yaml")]) == 1
    assert "bad.yaml cannot be read as YAML:" in capsys.readouterr().err


def test_unknown_study_gets_a_suggestion(capsys):
    assert main(["reproduce", "tabel1"]) == 1
    assert "Did you mean 'table1'?" in capsys.readouterr().err
