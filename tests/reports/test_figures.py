"""Figures show every group, its interval and the limits, in one style."""

import sys

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from helpers.synthetic_runs import make_config, write_run
from orac.core.risk import cvar
from orac.evaluation.result import risk_of_episodes
from orac.reports import figures as plots
from orac.reports import run_groups as results
from orac.reports.seed_statistics import average, evaluation_curve, pooled_costs


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for algo, skill in (("orac", 1.0), ("wcsac", 0.5)):
        for seed in range(4):
            write_run(root, make_config(algo, seed), skill=skill)
    write_run(root, make_config("sac", 0), skill=1.5)
    return results.read_results([root])


def test_learning_curves_show_each_groups_mean_and_the_limit(found):
    figure = plots.plot_learning_curves(found.groups, "maze")
    assert [axes.get_title("left") for axes in figure.axes] == [
        "Reward per episode",
        "Mean cost per episode",
        "CVaR of cost, worst 5 %",
    ]
    reward, cost, _ = figure.axes
    group = found.groups[0]
    expected = average([evaluation_curve(run, "reward") for run in group.runs])
    np.testing.assert_allclose(reward.lines[0].get_ydata(), expected.mean)
    assert reward.lines[0].get_label() == "orac, 4 seeds"
    assert [line.get_label() for line in cost.lines][-1] == "limit 5"
    assert {*cost.lines[-1].get_ydata()} == {5.0}


def test_bands_are_drawn_for_several_seeds_and_not_for_one(found):
    several = plots.plot_learning_curves(found.groups[:1]).axes[0]
    (one,) = [group for group in found.groups if group.label == "sac"]
    alone = plots.plot_learning_curves([one]).axes[0]
    assert len(several.collections[0].get_paths()) == 1
    assert len(alone.collections[0].get_paths()) == 0


def test_a_step_alone_has_an_error_bar(tmp_path):
    for seed in range(3):
        write_run(tmp_path, make_config(seed=seed), evaluations=1)
    group = results.read_results([tmp_path]).groups[0]
    axes = plots.plot_learning_curves([group]).axes[0]
    (bars,) = [x for x in axes.collections if isinstance(x, LineCollection)]
    curve = average([evaluation_curve(run, "reward") for run in group.runs])
    ends = [[10_000, curve.low[0]], [10_000, curve.high[0]]]
    np.testing.assert_allclose(bars.get_segments()[0], ends)
    assert axes.lines[0].get_marker() == "."


def test_lines_differ_in_dashes_as_well_as_in_colour(found):
    lines = plots.plot_learning_curves(found.groups).axes[0].lines
    assert len({line.get_linestyle() for line in lines}) == len(lines)
    assert len({line.get_color() for line in lines}) == len(lines)


def test_distributions_mark_the_cvar_of_the_evaluation(found):
    figure = plots.plot_cost_distributions(found.groups)
    (wcsac,) = [group for group in found.groups if group.label == "wcsac"]
    axes = next(a for a in figure.axes if a.get_title("left") == "wcsac, 4 seeds")
    risk = risk_of_episodes(pooled_costs(wcsac, "cost"), cvar(0.05))
    marked = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    assert marked[f"CVaR {risk:.3g} at 0.05"] == risk
    assert marked["limit 5"] == 5
    assert sum(patch.get_height() for patch in axes.patches) == pytest.approx(1)


def test_multipliers_stand_beside_the_risk_and_its_limit(found):
    figure = plots.plot_multipliers(found.groups)
    multiplier, risk = figure.axes
    assert multiplier.get_title("left") == "Multiplier of cost"
    np.testing.assert_allclose(multiplier.lines[0].get_ydata()[-1], 1.0)
    assert {*risk.lines[-1].get_ydata()} == {4.97}


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_every_figure_of_an_environment_is_written(found, tmp_path, suffix):
    paths = plots.save_figures(found, tmp_path / "figures", suffix)
    assert [path.name for path in paths] == [
        f"orac-GuardedMaze-v0-{name}{suffix}"
        for name in ("curves", "multipliers", "cost-distribution")
    ]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_runs_without_evaluations_still_have_their_figures(tmp_path):
    write_run(tmp_path / "runs", make_config(), until=1000)
    found = results.read_results([tmp_path / "runs"])
    assert len(plots.save_figures(found, tmp_path)) == 2


def test_without_matplotlib_the_error_names_the_extra(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[plots\]"'):
        plots.plot_learning_curves(found.groups)
