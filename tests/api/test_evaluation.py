"""Tests of how agents and evaluations are printed and plotted."""

import re
from dataclasses import replace

import numpy as np

from orac.api import evaluate_baseline
from orac.evaluation.rollout import baseline_config


def test_an_agent_and_an_evaluation_are_shown_in_one_line(pendulum):
    assert repr(pendulum) == (
        "<wcsac in Pendulum-v1 after 400 steps: limit 10 on the CVaR of cost at tail 0.25>"
    )
    shown = repr(pendulum.evaluate(episodes=4))
    assert re.fullmatch(
        r"<Evaluation of 4 episodes: reward -[\d.e+]+, CVaR of cost [\d.]+ at tail 0.25 "
        r"\(limit 10\)>",
        shown,
    )


def test_an_agent_and_an_evaluation_are_tables_in_a_notebook(pendulum):
    page = pendulum._repr_html_()
    assert "<h3>wcsac in Pendulum-v1</h3>" in page and "400 of 400" in page
    assert "10 on the CVaR of cost at tail 0.25" in page
    best = pendulum.best
    assert f"step {best.step}, reward {best.reward:.4g}, a CVaR of" in page
    result = pendulum.evaluate(episodes=4)
    page = result._repr_html_()
    for name in result.summary:
        assert f"<th scope=row>{name}</th>" in page
    assert "<td>10</td>" in page
    strange = replace(result, summary={"<b>": 1.0})
    assert "<b>" not in strange._repr_html_()


def test_an_evaluation_prints_its_summary(pendulum):
    result = pendulum.evaluate(episodes=2)
    assert str(result).splitlines()[0].split() == ["episodes", "2"]
    assert len(str(result).splitlines()) == len(result.summary)


def titles(figure):
    return [axes.get_title("left") for axes in figure.axes]


def test_plots_show_the_learning_curves_and_the_costs(pendulum):
    figure = pendulum.plot()
    assert titles(figure)[:4] == [
        "Measured risk of cost (CVaR at 0.25)",
        "Multiplier of cost",
        "Reward per episode",
        "Mean cost per episode",
    ]
    steps = figure.axes[0].lines[0].get_xdata()
    np.testing.assert_array_equal(steps, [200, 400])
    assert {*figure.axes[0].lines[-1].get_ydata()} == {10}
    assert figure._repr_png_().startswith(b"\x89PNG")
    result = pendulum.evaluate(episodes=4)
    figure = result.plot()
    assert titles(figure) == ["Cost of 4 episodes"]
    (axes,) = figure.axes
    marked = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    assert marked == {
        f"VaR {result['cost/var_0.25']:.4g}": result["cost/var_0.25"],
        f"CVaR {result['cost/cvar_0.25']:.4g} at tail 0.25": result["cost/cvar_0.25"],
        "limit 10": 10,
    }


def test_a_baseline_is_played_like_an_agent():
    config = baseline_config(
        "orac/GuardedMaze-v0", "long_path", 3, ["constraints.0.tail=0.1"]
    )
    result, spec = evaluate_baseline(config, 40)
    episodes = result.episodes
    assert (config.algo, config.seed, spec.name) == ("long_path", 3, "GuardedMaze")
    assert len(episodes) == 40 and (episodes.metrics["path"] == 1).all()
    assert (episodes.cost == 4).all()
