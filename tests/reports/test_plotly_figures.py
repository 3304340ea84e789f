"""Tests of charts that are drawn with plotly."""

import numpy as np
import pytest

from orac.reports import charts, plotly_figures
from orac.reports.report_metrics import Curve, average_curves


def test_plotly_shows_the_lines_and_limits_of_a_chart(results, groups):
    labels = [*groups]
    for chart in charts.profile_charts(results.groups):
        plot = plotly_figures.to_plotly(chart, labels)
        lines = [trace for trace in plot["data"] if "name" in trace]
        for trace, line in zip(lines, chart.lines, strict=True):
            np.testing.assert_allclose(trace["x"], line.curve.x)
            np.testing.assert_allclose(trace["y"], line.curve.mean, atol=1e-5)
            place = labels.index(line.label)
            assert trace["line"]["color"] == charts.COLOURS[place]
        shapes = plot["layout"]["shapes"]
        assert tuple(shape["x0"] for shape in shapes) == chart.limits


def test_long_curves_are_thinned_out_and_keep_the_last_point():
    for length in (1, 250, 251, 999):
        points = np.arange(length)[plotly_figures._thin(length)]
        assert len(points) <= 250 and points[-1] == length - 1


def band_traces(group, *values):
    steps = np.arange(4.0)
    curve = average_curves([(steps, np.array(v)) for v in values], group, "reward")
    return curve, plotly_figures._band_traces(curve, {"line": {"color": "#000000"}})


def test_equal_seeds_have_no_band_and_lone_points_an_error_bar(groups):
    curve, (bars,) = band_traces(groups["orac"], [1.0, 2, 5, 3], [1.5, 2, 5, 4])
    # Both seeds are equal at steps 1 and 2; steps 0 and 3 have no neighbour.
    assert bars["x"] == [0, 3] and bars["mode"] == "markers"
    reach = bars["error_y"]["arrayminus"][1], bars["error_y"]["array"][1]
    assert reach == pytest.approx((3.5 - curve.low[3], curve.high[3] - 3.5), rel=1e-5)


def test_neighbouring_points_share_an_outline(groups):
    _, (area, bars) = band_traces(groups["orac"], [1.0, 2, 5, 3], [2.0, 3, 5, 4])
    assert area["x"] == [0, 1, 1, 0] and area["fill"] == "toself"
    assert bars["x"] == [3]


def test_hover_text_explains_a_missing_interval():
    low, high = np.array([np.nan, np.nan, 0.25]), np.array([np.nan, np.nan, 1.0])
    curve = Curve(np.arange(3), np.full(3, 0.5), low, high, np.array([2, 1, 4]))
    assert plotly_figures._hover_texts(curve, ".4g") == [
        "0.5 (same value for all 2 seeds)",
        "0.5 (one seed)",
        "0.5 [0.25, 1], 4 seeds",
    ]
    assert plotly_figures._hover_texts(curve, ".0%")[2] == "50% [25%, 100%], 4 seeds"
