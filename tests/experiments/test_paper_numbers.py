"""Tests of the tables that compare our results with the paper's numbers."""

from pathlib import Path

import numpy as np
import pytest

from helpers.study_examples import render, write_synthetic_runs
from orac.experiments import paper_numbers
from orac.experiments.records import collect
from orac.experiments.run_study import STUDIES
from orac.experiments.study import with_settings
from orac.reports.run_reader import read_run


@pytest.fixture(scope="module")
def citylearn(tmp_path_factory):
    """Return Table 3 with 10,000 steps, and a folder with two seeds of every case."""
    out = tmp_path_factory.mktemp("citylearn")
    study = with_settings(STUDIES["table3"], 10_000)
    write_synthetic_runs(study, out, evaluations=2, episodes=8)
    return study, out


@pytest.mark.parametrize(
    "name", [n for n in STUDIES if not n.startswith("figure") and n != "limit"]
)
def test_tables_show_the_papers_numbers_and_ours(name, tmp_path):
    study = with_settings(STUDIES[name], 10_000)
    write_synthetic_runs(study, tmp_path, evaluations=2, episodes=8)
    text = render(study, tmp_path)
    tables = study.make_tables(collect(study, tmp_path))
    assert sum(len(table.rows) for table in tables) == len(study.cases)
    assert "[" in text, "two seeds have an interval"
    for case in study.cases if not name.startswith("table1") else ():
        for pair in paper_numbers.paper_entry(case.key):
            assert paper_numbers.spread_text(pair) in text
    latex = (tmp_path / name / "table.tex").read_text()
    assert latex.count(r"\begin{tabular}") == len(tables)
    lines = [line for line in latex.splitlines() if not line.startswith("%")]
    assert not any("%" in line.replace(r"\%", "") for line in lines), "else a comment"
    assert (tmp_path / name / "figure.png").stat().st_size > 5_000
    assert (tmp_path / name / "figure.pdf").stat().st_size > 1_000


def test_our_numbers_are_the_mean_of_the_last_evaluations(citylearn):
    study, out = citylearn
    results = collect(study, out)
    (table,) = study.make_tables(results)
    for row, result in zip(table.rows, results, strict=True):
        runs = [read_run(run.path) for run in result.runs]
        rewards = [run.evaluations["reward"][-8:].mean() for run in runs]
        assert float(row[1].split()[0]) == pytest.approx(np.mean(rewards), abs=0.06)
        assert row[-1] == "10,000"


def test_table_names_the_limit_of_its_runs(tmp_path):
    for settings, note in (([], "Limit 720."), (["constraints.0.limit=3"], "Limit 3.")):
        study = with_settings(STUDIES["table3"], 10_000, settings)
        (table,) = study.make_tables(collect(study, tmp_path))
        assert table.notes[1].startswith(note)


def test_interval_of_a_mean_cost_starts_at_0(citylearn, monkeypatch):
    study, out = citylearn
    far_apart = {"cost/mean": np.array([1.0, 31.0])}
    monkeypatch.setattr(paper_numbers, "seed_values", lambda *_: far_apart)
    (table,) = study.make_tables(collect(study, out))
    cells = {row[table.columns.index("mean cost")] for row in table.rows}
    # Student's interval of two seeds so far apart would start at -175.
    assert len(cells) == 1 and cells.pop().startswith("16 [0, ")


def test_paper_results_are_in_the_package():
    file = Path(paper_numbers.__file__).parent / "paper_results.json"
    assert (
        file.is_file()
        and paper_numbers.paper_entry(("table3_citylearn", "limit")) == 720
    )
    assert paper_numbers.paper_entry(("table3_citylearn", "nobody")) is None
