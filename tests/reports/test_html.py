"""Tests of the HTML report: its content, its escaping and its charts."""

import html as html_escapes
import json
import re
import sys

import pytest

from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.reports import charts, html, report


@pytest.fixture(scope="module")
def own_text(html_report):
    """The page without plotly's source."""
    assert html_report.count(html.plotly_source()) == 1
    return html_report.replace(html.plotly_source(), "")


def test_page_has_tables_charts_pictures_configs_and_machines(own_text, study):
    for part in (
        "Results in orac/GuardedMaze-v0",
        "CVaR of cost at tail 0.05",
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


def test_large_pictures_are_named_instead_of_shown(study, monkeypatch):
    monkeypatch.setattr(html, "_PICTURE_BYTES", 10)
    text = report.render([study])
    assert 'src="data:image/png' not in text
    assert "Left out, because they are too large" in text and "maze.png" in text


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
