"""Tests of the data in each chart."""

import json

import numpy as np
import pytest

from helpers.certificates import write_certificate
from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.core.risk import cvar
from orac.evaluation.episodes import risk_of_episodes, value_at_risk
from orac.reports import charts, report
from orac.reports.matplotlib_figures import draw_line_charts
from orac.reports.plotly_figures import to_plotly
from orac.reports.report_metrics import (
    Curve,
    average_curves,
    bootstrap_interval,
    evaluation_curve,
    seed_values,
)
from orac.reports.run_reader import read_results


def test_report_has_every_chart_in_order(results):
    assert [chart.title for chart in charts.report_charts(results.groups)] == [
        "Measured risk of cost (CVaR at 0.05)",
        "Multiplier of cost",
        "Reward per episode",
        "Mean cost per episode",
        "Cost in the last evaluation, all seeds together",
        "Share of seeds with a reward above x (higher curves are better)",
        "Share of seeds with a CVaR of cost at tail 0.05 above x (lower curves are better)",
        "Reward while training",
        "Total cost paid while training",
        "Risk of cost in the critics' units",
    ]


def test_charts_without_data_are_left_out_of_the_report(tmp_path):
    write_run(tmp_path, make_config(), until=1000)
    titles = [c.title for c in charts.report_charts(read_results([tmp_path]).groups)]
    assert titles == ["Reward while training", "Total cost paid while training"]


def test_learning_curves_have_means_over_seeds_and_the_limit(groups):
    reward, cost, risk = charts.learning_charts([*groups.values()])
    expected = average_curves(
        [evaluation_curve(run, "reward") for run in groups["orac"].runs],
        groups["orac"],
        "reward",
    )
    (line,) = [line for line in reward.lines if line.label == "orac"]
    np.testing.assert_array_equal(line.curve.mean, expected.mean)
    np.testing.assert_array_equal(line.curve.low, expected.low)
    assert line.num_seeds == len(line.seed_curves) == 5
    assert reward.limits == () and cost.limits == risk.limits == (5.0,)


def test_one_seed_has_neither_band_nor_seed_curves(groups):
    (line,) = charts.learning_charts([groups[ODD_LABEL]])[0].lines
    assert np.isnan(line.curve.low).all() and line.seed_curves == ()


def test_heading_and_tails_of_learning_charts_can_be_chosen(groups):
    titles = [
        chart.title
        for chart in charts.learning_charts([groups["orac"]], "Maze", [0.5, 0.1])
    ]
    assert titles == [
        "Maze: reward",
        "Mean cost per episode",
        "CVaR of cost, worst 50 % of episodes",
        "CVaR of cost, worst 10 % of episodes",
    ]


def test_measured_risk_of_one_run_has_a_band_over_its_episodes(groups):
    group = groups[ODD_LABEL]
    measured, _ = charts.measured_charts([group])
    (line,) = measured.lines
    steps, risks = evaluation_curve(group.runs[0], "cost", cvar(0.05))
    np.testing.assert_array_equal(line.curve.x, steps)
    np.testing.assert_array_equal(line.curve.mean, risks)
    assert (line.curve.low <= risks).all() and (risks <= line.curve.high).all()
    assert line.curve.unit == "episode" and (line.curve.count == 20).all()
    assert measured.limits == (5.0,) and not measured.marks


def test_bootstrap_interval_covers_the_risk():
    random, hits = np.random.default_rng(1), 0
    for _ in range(100):
        low, high = bootstrap_interval(random.exponential(size=400), cvar(0.25))
        # CVaR of the exponential distribution is 1 - log(tail).
        hits += low <= 1 - np.log(0.25) <= high
    assert hits >= 88


def test_a_star_marks_the_delivered_policy(tmp_path):
    follows = ["agent.multiplier.follows=episodes", "agent.multiplier.initial=1"]
    config = make_config(changes=follows)
    path = write_run(tmp_path, config)
    record = {
        "step": 6000,
        "reward": 5.5,
        "risk": {"cost": 4.5},
        "episodes": 900,
        "within_limits": True,
    }
    (path / "delivered.json").write_text(json.dumps(record))
    groups = read_results([tmp_path]).groups
    (mark,) = charts.measured_charts(groups)[0].marks
    assert (mark.label, mark.x, mark.y) == ("orac", 6000, 4.5)
    assert mark.text == "delivered by seed 0: 4.5 on 900 episodes"
    text = report.render([tmp_path], "markdown")
    assert "| 4.5 (CVaR at 0.05, limit 5) | yes" in text and "| none " in text
    write_certificate(path, certified=False, looks=[])
    assert "| not certified " in report.render([tmp_path], "markdown")
    write_certificate(path, estimate=4.1, upper=4.631, reward=5.4, step=8000)
    groups = read_results([tmp_path]).groups
    (mark,) = charts.measured_charts(groups)[0].marks
    assert (mark.x, mark.y) == (8000, 4.1)
    assert mark.text == (
        "delivered by seed 0: 4.1 on 2,700 episodes, certified below 4.64"
    )
    text = report.render([tmp_path], "markdown")
    assert "below 4.64 with 95 %" in text
    page = report.render([tmp_path])
    assert '"symbol":"star"' in page and "certified below 4.64" in page
    figure = draw_line_charts([charts.measured_charts(groups)])
    assert "delivered policy" in [x.get_text() for x in figure.legends[0].get_texts()]


@pytest.mark.parametrize("text", ["[]", "{", '{"episodes": 3}', '{"episodes": "x"}'])
def test_a_damaged_record_of_the_delivery_leaves_the_run_out_with_a_note(
    tmp_path, text
):
    write_run(tmp_path, make_config(seed=1))
    path = write_run(tmp_path, make_config(seed=0))
    (path / "delivered.json").write_text(text)
    found = read_results([tmp_path])
    assert len(found.runs) == 1 and "delivered.json" in found.notes[0]


def test_a_chart_with_a_single_step_starts_at_zero(tmp_path):
    write_run(tmp_path, make_config(), evaluations=1)
    groups = read_results([tmp_path]).groups
    reward = charts.learning_charts(groups)[0]
    assert reward.x_range == pytest.approx((0, 10_100))
    assert to_plotly(reward, ["orac"])["layout"]["xaxis"]["range"][0] == 0
    assert draw_line_charts([[reward]]).axes[0].get_xlim()[0] == 0
    assert charts.training_charts(groups)[0].x_range is None


def test_multiplier_and_risk_have_the_limit_in_the_critics_units(groups):
    (risk,) = charts.constraint_charts([groups["orac"]])
    multiplier = charts.measured_charts([groups["orac"]])[1]
    assert multiplier.wide_until == 10_000
    assert multiplier.lines[0].curve.mean[-1] == pytest.approx(1.0)
    assert multiplier.limits == () and risk.limits == (4.97,)


def test_profiles_are_shares_of_seeds_and_leave_out_a_single_seed(groups):
    reward, risk = charts.profile_charts([*groups.values()])
    assert [line.label for line in reward.lines] == ["orac", "wcsac"]
    scores = seed_values(groups["wcsac"])["reward/mean"]
    curve = reward.lines[1].curve
    shares = [(scores > x).mean() for x in curve.x]
    np.testing.assert_allclose(curve.mean, shares)
    assert reward.is_share and reward.limits == ()
    assert risk.limit_axis == "x" and risk.limits == (5.0,)
    assert reward.note == risk.note == f"Left out: {ODD_LABEL} (one seed)."


def test_histogram_has_the_var_and_cvar_of_all_seeds_together(groups):
    chart = charts.cost_histogram([*groups.values()], "cost")
    row = next(row for row in chart.rows if row.label == "wcsac")
    costs = charts.pooled_costs(groups["wcsac"], "cost")
    assert row.counts.sum() == len(costs) == 100
    assert row.cvar == risk_of_episodes(costs, cvar(0.05))
    assert row.var == value_at_risk(costs, 0.05)
    labels = [label for _, _, _, label in row.stems]
    assert labels == [f"VaR {row.var:.4g}", f"CVaR {row.cvar:.4g} at tail 0.05"]
    assert row.limits == (5.0,)
    low, high = chart.x_range
    assert low < chart.edges[0] and high > max(chart.edges[-1], 5.0)


def test_bins_are_whole_numbers_if_costs_are():
    edges = charts.cost_bins([np.array([2.0, 4.0])])
    np.testing.assert_array_equal(edges, [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5])
    assert len(charts.cost_bins([np.array([0.3, 700.0])])) == 41
    assert len(charts.cost_bins([])) == 2


def test_the_axis_of_a_constant_shows_no_negative_numbers():
    def chart(values, **more):
        y = np.array(values, float)
        blank = np.full(len(y), np.nan)
        curve = Curve(np.arange(len(y)), y, blank, blank, np.ones(len(y)))
        return charts.LineChart("title", "steps", (charts.Line("a", 1, curve),), **more)

    assert chart([0.3, 0.3]).y_range == pytest.approx((-0.012, 0.6))
    assert chart([0, 0]).y_range == (-0.02, 1.0)
    assert chart([-1, -1]).y_range is None and chart([1, 2]).y_range is None
    assert chart([0, 0], limits=(5.0,)).y_range is None
    assert to_plotly(chart([0, 0]), ["a"])["layout"]["yaxis"]["range"] == [-0.02, 1.0]
