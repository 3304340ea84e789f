"""Tests of the HTML report: its content, its escaping and its plotly charts."""

import html as html_escapes
import json
import re
import sys

import numpy as np
import pytest

from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.reports import charts, html, report
from orac.reports.seed_statistics import Curve, average_curves


@pytest.fixture(scope="module")
def own_text(html_report):
    """The page without plotly's source."""
    assert html_report.count(html.plotly_source()) == 1
    return html_report.replace(html.plotly_source(), "")


def test_page_has_tables_charts_pictures_configs_and_machines(own_text, study):
    for part in (
        "Results in orac/GuardedMaze-v0",
        "CVaR at 0.05 of cost",
        "Interquartile means in orac/GuardedMaze-v0",
        "Who wins where in orac/GuardedMaze-v0",
        "Differences between the configs",
        "agent.behaviour",
        "What was run where",
        "Linux-x86_64",
        str(study / "orac-GuardedMaze-v0" / "orac" / "default" / "seed-002"),
        f"Left out: {html_escapes.escape(ODD_LABEL)} (one seed).",
    ):
        assert part in own_text, part
    assert own_text.count('src="data:image/png') == 1


def test_page_makes_no_requests_and_is_small(own_text, html_report):
    assert "default-src 'none'" in own_text
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", own_text)
    assert len(own_text) < 1_000_000 and len(html_report) < 6_500_000


def test_names_from_runs_never_become_markup(own_text):
    assert "<img src=x" not in own_text and "&lt;img src=x" in own_text
    # The only scripts are the charts' data, plotly, and the loop that draws.
    assert own_text.count("</script>") == 3


def test_charts_are_valid_json_with_gaps_instead_of_nan(own_text, results):
    found = re.search(
        r'<script type="application/json" id="charts">(.*?)</script>', own_text
    )
    assert found is not None
    plots = json.loads(found[1], parse_constant=lambda word: pytest.fail(word))
    captions = re.findall("<figcaption>(.*?)</figcaption><div class=chart", own_text)
    titles = [chart.title for chart in charts.report_charts(results.groups)]
    assert len(plots) == len(titles)
    assert [html_escapes.unescape(caption) for caption in captions] == titles
    names = [trace.get("name") for trace in plots[0]["data"]]
    assert "orac (5 seeds)" in names


def test_plotly_shows_the_lines_and_limits_of_a_chart(results, groups):
    labels = [*groups]
    for chart in charts.profile_charts(results.groups):
        plot = html.to_plotly(chart, labels)
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
        points = np.arange(length)[html._thin(length)]
        assert len(points) <= 250 and points[-1] == length - 1


def band_traces(group, *values):
    steps = np.arange(4.0)
    curve = average_curves([(steps, np.array(v)) for v in values], group, "reward")
    return curve, html._band_traces(curve, {"line": {"color": "#000000"}})


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
    assert html._hover_texts(curve, ".4g") == [
        "0.5 (all 2 seeds equal)",
        "0.5 (one seed)",
        "0.5 [0.25, 1], 4 seeds",
    ]
    assert html._hover_texts(curve, ".0%")[2] == "50% [25%, 100%], 4 seeds"


def test_large_pictures_are_named_instead_of_shown(study, monkeypatch):
    monkeypatch.setattr(html, "_PICTURE_BYTES", 10)
    text = report.render([study])
    assert 'src="data:image/png' not in text
    assert "Left out for size" in text and "maze.png" in text


def test_report_on_a_single_unfinished_run_says_so(tmp_path):
    write_run(tmp_path, make_config(), until=1000)
    text = report.render([tmp_path])
    assert "is at step 1,000 of 10,000" in text
    assert "has no evaluation" in text
    assert "All runs have the same config." in text
    assert "step 1,000" in report.render([tmp_path], "markdown")


def test_missing_plotly_is_an_error_that_names_the_extra(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[report\]"'):
        report.render([study])
    assert report.render([study], "csv").startswith("env,agent")
