"""A report holds what was asked for, escapes what it is given, and stays small."""

import csv
import io
import json
import re
import shutil
import sys

import numpy as np
import pytest

from helpers.command_examples import train_words
from helpers.synthetic_runs import make_config, write_run
from orac.cli.main import main
from orac.evaluation.aggregates import interquartile_mean
from orac.evaluation.intervals import Interval
from orac.reports import html as report
from orac.reports.html import charts, page, tables
from orac.reports.html.profiles import profile_charts
from orac.reports.run_groups import read_results
from orac.reports.seed_statistics import average, interval, seed_values

NASTY = "</script><img src=x onerror=alert(1)>|&_%"
PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\r"
    b"IDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\xa4\x81\x95\xde\0\0\0\0IEND\xaeB`\x82"
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for algo, skill in (("orac", 1.0), ("wcsac", 0.5)):
        for seed in range(3):
            write_run(root, make_config(algo, seed), skill=skill)
    write_run(root, make_config("sac-lag", 0, changes=[f"algo={json.dumps(NASTY)}"]))
    (root / "maze.png").write_bytes(PIXEL)
    (root / "no-picture.png").write_bytes(b"text")
    return root


@pytest.fixture(scope="module")
def text(study):
    return report.render([study])


def test_the_page_has_tables_charts_pictures_configs_and_machines(text, study):
    for words in (
        "Results in orac/GuardedMaze-v0",
        "CVaR at 0.05 of cost",
        "Cost in the last evaluation",
        "Multiplier of cost",
        "Share of seeds with a reward above x",
        "Share of seeds with a CVaR at 0.05 of cost above x",
        "Interquartile means in orac/GuardedMaze-v0",
        "Who wins where in orac/GuardedMaze-v0",
        "Differences between the configs",
        "agent.behaviour",
        "What was run where",
        "Linux-x86_64",
        str(study / "orac-GuardedMaze-v0" / "orac" / "default" / "seed-002"),
    ):
        assert words in text, words
    assert text.count('src="data:image/png') == 1


def test_the_table_prints_intervals_over_seeds_and_their_number(text, study):
    (group,) = [g for g in read_results([study]).groups if g.label == "wcsac"]
    risk = interval(seed_values(group)["cost/cvar_0.05"])
    assert risk is not None
    row = re.search(r"<th scope=row>wcsac</th>(.*?)</tr>", text)
    assert row is not None
    cells = re.findall("<td[^>]*>(.*?)</td>", row[1])
    assert cells[0] == "3"
    assert cells[4] == tables.cell(risk)


def test_the_page_asks_for_nothing_and_is_small(text):
    own = text.replace(page.plotly_source(), "")
    assert "default-src 'none'" in own
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", own)
    assert text.count(page.plotly_source()) == 1
    assert len(own) < 1_000_000 and len(text) < 6_500_000


def test_names_from_runs_never_become_markup(text):
    own = text.replace(page.plotly_source(), "")
    assert "<img src=x" not in own and "&lt;img src=x" in own
    # The only scripts are the charts' data, plotly, and the loop that draws.
    assert own.count("</script>") == 3


def test_the_charts_are_valid_json_with_gaps_instead_of_nan(text):
    found = re.search(
        r'<script type="application/json" id="charts">(.*?)</script>', text
    )
    assert found is not None
    charts = json.loads(found[1], parse_constant=lambda word: pytest.fail(word))
    assert len(charts) == 10
    names = [trace.get("name") for trace in charts[0]["data"]]
    assert "orac (3 seeds)" in names


def test_profiles_are_those_of_the_seeds_and_leave_one_seed_out(study):
    groups = read_results([study]).groups
    reward, risk = profile_charts(groups)
    lines = {t["name"]: t for t in reward.data if "name" in t}
    assert sorted(lines) == ["orac (3 seeds)", "wcsac (3 seeds)"]
    (group,) = [g for g in groups if g.label == "wcsac"]
    scores = seed_values(group)["reward/mean"]
    line = lines["wcsac (3 seeds)"]
    for x, y in zip(line["x"], line["y"], strict=True):
        assert y == pytest.approx((scores > x).mean(), abs=1e-3)
    assert [shape["x0"] for shape in risk.layout["shapes"]] == [5.0]
    assert reward.note == risk.note == f"Left out: {NASTY} (one seed)."
    assert "Left out: &lt;/script&gt;" in report.render([study])


def test_interquartile_means_stand_in_their_table(study):
    (group,) = [g for g in read_results([study]).groups if g.label == "wcsac"]
    middle = interquartile_mean(seed_values(group)["reward/mean"])
    text = report.render([study], "markdown").partition("## Interquartile")[2]
    (row,) = [x for x in text.partition("##")[0].splitlines() if "| wcsac" in x]
    assert tables.cell(middle) in row


def test_an_interquartile_mean_ends_where_a_cost_does(tmp_path):
    for seed, worst in enumerate((2, 2, 20)):
        path = write_run(tmp_path, make_config(seed=seed), evaluations=1)
        file = path / "evaluations.csv"
        file.write_text(re.sub(r",(20|2)\.0,", f",{worst}.0,", file.read_text()))
    text = report.render([tmp_path], "markdown")
    for title in ("## Results", "## Interquartile"):
        rows = text.partition(title)[2].partition("##")[0].splitlines()
        (row,) = [row for row in rows if "| orac" in row]
        # The maze declares that an episode costs at most 24.
        assert re.search(r"8\.0 \[0\.0, 24\.0\]", row), row


def test_seeds_that_agree_have_no_band_and_say_so_on_hover():
    steps = np.arange(4.0)
    curves = [
        (steps, np.array([1.0, 2.0, 5.0, 3.0])),
        (steps, np.array([1.5, 2, 5, 4])),
    ]
    curve = average(curves)
    (bars,) = charts._band_traces(curve, {"line": {"color": "#000000"}})
    # Steps 1 and 2, where both seeds agree, are left out; 0 and 3 stand alone.
    assert bars["x"] == [0, 3] and bars["mode"] == "markers"
    reach = bars["error_y"]["arrayminus"][1], bars["error_y"]["array"][1]
    assert reach == pytest.approx((3.5 - curve.low[3], curve.high[3] - 3.5), rel=1e-5)
    assert charts._hover(5.0, np.nan, np.nan, 2) == "5 (all 2 seeds equal)"
    assert charts._hover(5.0, np.nan, np.nan, 1) == "5 (one seed)"


def test_a_stretch_is_an_outline_and_a_step_alone_an_error_bar():
    steps = np.arange(4.0)
    curves = [(steps, np.array([1.0, 2, 5, 3])), (steps, np.array([2.0, 3, 5, 4]))]
    area, bars = charts._band_traces(average(curves), {"line": {"color": "#000000"}})
    assert area["x"] == [0, 1, 1, 0] and area["fill"] == "toself"
    assert bars["x"] == [3]


def test_markdown_rows_have_as_many_cells_as_the_head(study):
    blocks = report.render([study], "markdown").split("\n## ")
    assert len(blocks) == 7
    for block in blocks:
        rows = [line for line in block.splitlines() if line.startswith("|")]
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(counts) == 1 and len(rows) >= 3
    assert "<img" not in "".join(blocks)


def test_latex_escapes_and_balances(study):
    text = report.render([study], "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 7
    assert r"agent.risk\_form" in text and r"\textbar{}\&\_\%" in text
    body = re.sub(r"^%.*$", "", text, flags=re.M)
    assert not re.search(r"(?<!\\)[%#$]", body)


def test_csv_has_every_number_unrounded(study):
    rows = [*csv.DictReader(io.StringIO(report.render([study], "csv")))]
    (group,) = [g for g in read_results([study]).groups if g.label == "wcsac"]
    reward = interval(seed_values(group)["reward/mean"])
    assert reward is not None
    (row,) = [
        row
        for row in rows
        if (row["agent"], row["measure"]) == ("wcsac", "reward/mean")
    ]
    assert [float(row[x]) for x in ("mean", "low", "high")] == [
        reward.estimate,
        reward.low,
        reward.high,
    ]
    (alone,) = [
        r for r in rows if r["agent"] == NASTY and r["measure"] == "reward/mean"
    ]
    assert alone["seeds"] == "1" and alone["low"] == ""


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (3.1, 3.2, "3.14 [3.10, 3.20]"),
        (-11.0, 17.0, "3.1 [-11.0, 17.0]"),
        (-1500.0, 1500.0, "3 [-1,500, 1,500]"),
        (None, None, "3.142 [all seeds equal]"),
        (3.14159, 3.14159, "3.142 [all seeds equal]"),
    ],
)
def test_an_interval_is_printed_as_precisely_as_it_is_known(low, high, shown):
    assert tables.cell(Interval(3.14159, low, high, 0.95, "by hand", 5)) == shown
    assert tables.cell(Interval(3.14159, None, None, 0.95, "one run", 1)) == "3.142"
    assert tables.cell(None) == "–"


@pytest.mark.parametrize(
    ("risks", "verdict"),
    [
        ((2.0, 2.1, 2.2), "kept"),
        ((9.0, 9.1, 9.2), "broken"),
        ((2.0, 5.0, 8.0), "undecided"),
        ((2.0,), "below, one seed"),
        ((9.0,), "above, one seed"),
        ((4.0, 4.0, 4.0), "below, all 3 seeds equal"),
        ((9.0, 9.0, 9.0), "above, all 3 seeds equal"),
    ],
)
def test_a_limit_is_kept_only_if_the_whole_interval_is_below(risks, verdict):
    from orac.reports.html.contents import _verdict

    found = interval(np.array(risks))
    assert found is not None
    assert _verdict(found, 5.0) == verdict


def test_large_pictures_are_named_instead_of_shown(study, monkeypatch):
    monkeypatch.setattr(page, "_PICTURE_BUDGET", 10)
    text = report.render([study])
    assert 'src="data:image/png' not in text
    assert "Left out for size" in text and "maze.png" in text


def test_a_single_unfinished_run_makes_a_report_that_says_so(tmp_path):
    write_run(tmp_path, make_config(), until=1000)
    text = report.render([tmp_path])
    assert "is at step 1,000 of 10,000" in text
    assert "has no evaluation" in text
    assert "All runs have the same config." in text
    assert "step 1,000" in report.render([tmp_path], "markdown")


def test_an_unknown_format_is_an_error_with_the_nearest_one(study):
    with pytest.raises(ValueError, match="Did you mean 'markdown'"):
        report.render([study], "markdwn")


def test_without_plotly_the_error_names_the_extra(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[report\]"'):
        report.render([study])
    assert report.render([study], "csv").startswith("env,agent")


def test_the_command_writes_by_ending_prints_tables_and_draws(study, tmp_path, capsys):
    assert main(["report", str(study), "--out", str(tmp_path / "a/r.md")]) == 0
    assert (tmp_path / "a/r.md").read_text().startswith("## Results in")
    figures = str(tmp_path / "figures")
    words = ["report", str(study), "--format=csv", f"--figures={figures}"]
    assert main(words) == 0
    assert "\nFigure: " in capsys.readouterr().out
    assert len([*(tmp_path / "figures").glob("*.pdf")]) == 3


def test_the_command_says_when_there_is_nothing_to_report(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "no run found at or below" in capsys.readouterr().err


def test_a_run_is_reported_wherever_it_was_moved_to(study, tmp_path):
    shutil.copytree(next(study.rglob("seed-001")), tmp_path / "anywhere")
    assert "anywhere" in report.render([tmp_path / "anywhere"], "markdown")


TINY = train_words(3200, 1600)


@pytest.mark.slow
def test_what_training_writes_is_what_a_report_reads(tmp_path, capsys):
    assert main(["train", "--algo=orac", f"--out={tmp_path}", *TINY]) == 0
    assert main(["evaluate", *map(str, tmp_path.rglob("seed-000"))]) == 0
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path), f"--out={out}"]) == 0
    text = out.read_text()
    for words in (
        "Multiplier of cost",
        "Risk of cost that the critics see",
        "guard present",
        "Paths of each agent",
        "3,200 of 3,200",
        "one seed",
    ):
        assert words in text
    (group,) = read_results([tmp_path]).groups
    assert group.runs[0].finished and len(group.runs[0].evaluated_at) == 2
    again = ["evaluate", str(group.runs[0].path), "--episodes=30"]
    assert main([*again, f"--out={tmp_path / 'again'}"]) == 0
    found = read_results([tmp_path / "again"])
    (run,) = found.groups[0].runs
    assert run.kept and run.rule is None and run.finished and found.notes == ()
    assert run.steps == 3200 and len(run.evaluations["cost"]) == 30
    text = report.render([tmp_path / "again"])
    assert "Paths of each agent" in text, "the policy is found where it was trained"
    assert "Training in" not in text
