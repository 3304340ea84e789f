"""Tests of charts drawn with matplotlib."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.reports import charts
from orac.reports.matplotlib_figures import (
    BAND_NOTES,
    draw_histogram,
    draw_line_charts,
    save_figures,
)
from orac.reports.run_reader import read_results


@pytest.fixture(scope="module")
def learning(results):
    """Learning curves of all groups, and the figure of them."""
    drawn = charts.learning_charts(results.groups)
    return drawn, draw_line_charts([drawn], show_seeds=True)


def test_axes_have_the_titles_means_and_limits_of_the_charts(learning):
    drawn, figure = learning
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == [chart.title for chart in drawn]
    reward, cost, _ = figure.axes
    for shown, line in zip(reward.lines, drawn[0].lines, strict=True):
        np.testing.assert_array_equal(shown.get_ydata(), line.curve.mean)
    assert reward.lines[0].get_label() == "orac (5 seeds)"
    assert cost.lines[-1].get_label() == "limit 5"
    assert {*cost.lines[-1].get_ydata()} == {5.0}


def test_long_titles_of_neighbours_do_not_overlap(learning):
    long = replace(learning[0][0], title="Risk of a cost with a very long name " * 2)
    figure = draw_line_charts([[long, long]])
    figure.draw_without_rendering()
    left, right = (axes._left_title for axes in figure.axes)
    assert "\n" in left.get_text()
    assert left.get_window_extent().x1 < right.get_window_extent().x0


def test_bands_are_drawn_for_several_seeds_but_not_for_one(learning):
    drawn, figure = learning
    assert [line.label for line in drawn[0].lines] == ["orac", ODD_LABEL, "wcsac"]
    bands = figure.axes[0].collections
    assert [len(band.get_paths()) for band in bands] == [1, 0, 1]


def test_lines_differ_in_dashes_as_well_as_in_colour(learning):
    lines = learning[1].axes[0].lines
    assert len({line.get_linestyle() for line in lines}) == len(lines)
    assert len({line.get_color() for line in lines}) == len(lines)


def test_line_has_the_style_of_its_place_among_the_labels(groups, learning):
    drawn = charts.learning_charts([groups["wcsac"]])
    figure = draw_line_charts([drawn], labels=[*groups], note=BAND_NOTES["interval"])
    (line,) = figure.axes[0].lines
    assert line.get_label() == "wcsac"
    assert line.get_color() == learning[1].axes[0].lines[2].get_color()
    (legend,) = figure.legends
    assert "95 % intervals" in legend.get_title().get_text()


def test_lone_step_has_an_error_bar_and_a_marker(tmp_path):
    for seed in range(3):
        write_run(tmp_path, make_config(seed=seed), evaluations=1)
    drawn = charts.learning_charts(read_results([tmp_path]).groups)
    axes = draw_line_charts([drawn]).axes[0]
    (bars,) = [x for x in axes.collections if isinstance(x, LineCollection)]
    curve = drawn[0].lines[0].curve
    ends = [[10_000, curve.low[0]], [10_000, curve.high[0]]]
    np.testing.assert_allclose(bars.get_segments()[0], ends)
    assert axes.lines[0].get_marker() == "."


def test_stepped_shares_and_vertical_limits_are_drawn(results):
    profile = charts.profile_charts(results.groups)[1]
    axes = draw_line_charts([[profile]]).axes[0]
    assert axes.lines[0].get_drawstyle() == "steps-post"
    assert axes.get_ylim() == pytest.approx((-0.03, 1.03))
    assert {*axes.lines[-1].get_xdata()} == {5.0}


def test_histogram_has_bars_stems_and_limits(results):
    chart = charts.cost_histogram(results.groups, "cost")
    figure = draw_histogram(chart)
    axes = next(a for a in figure.axes if a.get_title("left") == "wcsac (5 seeds)")
    row = next(row for row in chart.rows if row.label == "wcsac")
    marked = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    assert marked == {stem[-1]: stem[1] for stem in row.stems} | {"limit 5": 5}
    assert sum(patch.get_height() for patch in axes.patches) == pytest.approx(1)


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_every_figure_of_an_environment_is_written(results, tmp_path, suffix):
    paths = save_figures(results, tmp_path / "figures", suffix)
    assert [path.name for path in paths] == [
        f"orac-GuardedMaze-v0-{name}{suffix}"
        for name in ("curves", "multipliers", "cost-distribution")
    ]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_runs_without_evaluations_still_have_figures(tmp_path):
    write_run(tmp_path / "runs", make_config(), until=1000)
    found = read_results([tmp_path / "runs"])
    assert len(save_figures(found, tmp_path)) == 2


def test_missing_matplotlib_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[plots\]"'):
        draw_line_charts([])
