"""Runs are read whole, grouped by what was run, and averaged over seeds."""

import time

import numpy as np
import pytest

from helpers.synthetic_runs import make_config, write_run
from orac.core.risk import cvar
from orac.evaluation.intervals import mean_interval
from orac.evaluation.result import risk_of_episodes
from orac.reports import metrics as measures
from orac.reports import run_groups as results
from orac.reports import run_reader as reading
from orac.reports import seed_statistics as summaries


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for algo, skill in (("orac", 1.0), ("wcsac", 0.5)):
        for seed in range(3):
            write_run(root, make_config(algo, seed), skill=skill)
    return root


def test_runs_are_grouped_by_everything_but_the_seed(study):
    found = results.read_results([study])
    assert [group.label for group in found.groups] == ["orac", "wcsac"]
    assert [[run.config.seed for run in group.runs] for group in found.groups] == [
        [0, 1, 2],
        [0, 1, 2],
    ]
    assert found.notes == ()
    assert list(found.worlds()) == ["orac/GuardedMaze-v0"]


def test_a_run_is_found_once_however_often_it_is_named(study):
    one = next(study.rglob("seed-001"))
    assert len(reading.find_runs([study, one, one / ".." / "seed-001"])) == 6


def test_no_run_is_an_error_that_says_what_a_run_looks_like(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run found .*seed-000 and has"):
        reading.find_runs([tmp_path])


def test_labels_spell_out_what_differs(tmp_path):
    for radius in (1.0, 4.0):
        config = make_config(changes=[f"agent.exploration.shift_radius={radius}"])
        write_run(tmp_path, config, name=f"radius-{radius:g}")
    labels = [group.label for group in results.read_results([tmp_path]).groups]
    assert labels == ["orac (shift_radius=1.0)", "orac (shift_radius=4.0)"]


def test_labels_take_the_name_where_too_much_differs(tmp_path):
    changes = ["agent.kappa=0.5", "agent.polyak=0.01", "agent.discount=0.9"]
    write_run(tmp_path, make_config(), name="plain")
    write_run(tmp_path, make_config(changes=changes), name="other")
    labels = {group.label for group in results.read_results([tmp_path]).groups}
    assert labels == {"orac (plain)", "orac (other)"}


def test_a_repeated_seed_counts_once_and_is_told(tmp_path):
    write_run(tmp_path, make_config(), name="a", until=4000)
    whole = write_run(tmp_path, make_config(), name="b")
    found = results.read_results([tmp_path])
    assert [run.path for run in found.groups[0].runs] == [whole]
    assert "repeats seed 0" in found.notes[0] and "counted once" in found.notes[0]


def test_a_stopped_run_and_one_without_evaluations_are_told(tmp_path):
    write_run(tmp_path, make_config(seed=0), until=1000)
    found = results.read_results([tmp_path])
    assert "is at step 1,000 of 10,000" in found.notes[0]
    assert "has no evaluation" in found.notes[1]
    assert found.groups[0].evaluated == ()
    assert summaries.seed_values(found.groups[0]) == {}


def test_columns_survive_half_a_row_and_empty_cells(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text('env_steps,"a,b",c\n1,,\n,nan,3\n3,4,5\n4,5')
    columns = reading.read_columns(file)
    np.testing.assert_array_equal(columns["env_steps"], [1, np.nan, 3])
    np.testing.assert_array_equal(columns["a,b"], [np.nan, np.nan, 4])
    np.testing.assert_array_equal(columns["c"], [np.nan, 3, 5])
    assert reading.read_columns(tmp_path / "none.csv") == {}


def test_a_broken_log_is_an_error_that_names_it(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match=r"metrics\.csv must hold 2 numbers a row"):
        reading.read_columns(file)


def test_a_config_of_another_version_is_an_error_that_names_the_run(tmp_path):
    path = write_run(tmp_path, make_config())
    (path / "config.yaml").write_text("algo: orac\nflavour: sweet\n")
    with pytest.raises(ValueError, match=r"seed-000 cannot be used: .*flavour"):
        reading.read_run(path)


def test_forty_thousand_training_episodes_are_read_in_a_moment(tmp_path):
    path = write_run(tmp_path, make_config(), training_episodes=40_000)
    run = reading.read_run(path)
    started = time.perf_counter()
    episodes = reading.training_episodes(run)
    # About 0.1 s; the slack is for a busy machine.
    assert time.perf_counter() - started < 5
    assert len(episodes["cost"]) == 40_000
    assert set(np.unique(episodes["cost"])) == {2.0, 20.0}


def test_the_summary_is_the_last_evaluation_of_each_seed(study):
    group = results.read_results([study]).groups[1]
    values = summaries.seed_values(group)
    by_hand = []
    for run in group.runs:
        rows = np.genfromtxt(run.path / "evaluations.csv", delimiter=",", names=True)
        last = rows[rows["env_steps"] == 10_000]
        by_hand.append(risk_of_episodes(last["cost"], cvar(0.05)))
    np.testing.assert_allclose(values["cost/cvar_0.05"], by_hand)
    interval = summaries.interval(values["cost/cvar_0.05"])
    assert interval == mean_interval(by_hand)


def test_agents_without_a_tail_are_judged_by_the_others_tail(tmp_path):
    write_run(tmp_path, make_config("orac"))
    write_run(tmp_path, make_config("sac-lag"))
    groups = results.read_results([tmp_path]).groups
    titles = [measure.title for measure in measures.measures(groups)]
    assert titles == [
        "reward",
        "mean cost",
        "CVaR at 0.05 of cost",
        "P(cost > limit)",
        "worst cost",
    ]
    tails = measures.common_tails(groups)
    for group in groups:
        assert "cost/cvar_0.05" in summaries.seed_values(group, tails)


def test_a_curve_has_the_interval_of_the_seeds_that_got_there():
    steps = np.array([1.0, 2.0, 3.0])
    curves = [
        (steps, np.array([1.0, 2.0, 3.0])),
        (steps[:2], np.array([3.0, 4.0])),
        (steps[:1], np.array([8.0])),
    ]
    curve = summaries.average(curves)
    np.testing.assert_array_equal(curve.seeds, [3, 2, 1])
    np.testing.assert_allclose(curve.mean, [4, 3, 3])
    two = mean_interval([2.0, 4.0])
    assert (curve.low[1], curve.high[1]) == pytest.approx((two.low, two.high))
    assert np.isnan(curve.low[2]) and np.isnan(curve.high[2])


def test_a_curve_of_nothing_is_empty():
    assert len(summaries.average([]).steps) == 0


def test_risk_in_an_evaluation_curve_is_the_risk_of_its_episodes(study):
    run = results.read_results([study]).groups[1].runs[0]
    steps, risks = summaries.cvar_curve(run, "cost", 0.05)
    np.testing.assert_array_equal(steps, [2000, 4000, 6000, 8000, 10_000])
    first = run.evaluations["cost"][run.evaluations["env_steps"] == 2000]
    assert risks[0] == risk_of_episodes(first, cvar(0.05))


def test_metrics_start_where_learning_does(study):
    run = results.read_results([study]).groups[0].runs[0]
    steps, values = summaries.metric_curve(run, "constraint/multiplier/cost")
    assert steps[0] == 2000 and np.isfinite(values).all()
    assert len(summaries.metric_curve(run, "no such metric")[0]) == 0


def test_bins_are_whole_numbers_where_costs_are():
    edges = summaries.cost_bins([np.array([2.0, 4.0])])
    np.testing.assert_array_equal(edges, [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5])
    assert len(summaries.cost_bins([np.array([0.3, 700.0])])) == 41
    assert len(summaries.cost_bins([])) == 2
