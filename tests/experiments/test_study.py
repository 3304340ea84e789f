"""Tests of the studies' cases, their plans, settings and results on disk."""

import pytest

from helpers.study_examples import render
from helpers.synthetic_runs import write_run
from orac.cli.options import STUDY_NAMES
from orac.config import overrides
from orac.experiments import paper_numbers
from orac.experiments.records import collect
from orac.experiments.run_study import STUDIES
from orac.experiments.study import missing_notes, plan, with_settings


def test_command_line_lists_every_study():
    assert tuple(STUDIES) == STUDY_NAMES


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_every_case_has_its_own_directory_and_the_papers_numbers(name, tmp_path):
    study = STUDIES[name]
    runs = plan(study, range(2), tmp_path)
    assert len({run.path for run in runs}) == len(runs) == 2 * len(study.cases)
    assert len({case.label for case in study.cases}) == len(study.cases)
    if name not in ("table1", "table1-iqn", "figure1", "limit"):
        for case in study.cases:
            numbers = paper_numbers.paper_entry(case.key)
            assert numbers and all(len(pair) == 2 for pair in numbers), case.key


def test_default_number_of_seeds_is_the_papers(tmp_path):
    assert len(plan(STUDIES["table1"], None, tmp_path)) == 60
    # WCSAC and the main value have 10 seeds, the other two values 4.
    assert len(plan(STUDIES["ablation-cost-optimism"], None, tmp_path)) == 28


def test_first_seed_of_every_case_comes_first(tmp_path):
    runs = plan(STUDIES["table1"], None, tmp_path)
    assert {run.config.seed for run in runs[:6]} == {0}
    assert len({run.label for run in runs[:6]}) == 6


def test_studies_share_the_runs_that_they_have_in_common(tmp_path):
    paths = {
        name: {run.path for run in plan(STUDIES[name], range(1), tmp_path)}
        for name in STUDY_NAMES
    }
    assert paths["figure2"] == paths["table2"]
    assert paths["figure1"] < paths["table1"]
    assert len(paths["table1-iqn"] & paths["table1"]) == 2, "those of SAC-Lagrangian"
    for name in ("cost-optimism", "reward-optimism"):
        assert len(paths[f"ablation-{name}"] & paths["table2"]) == 2
    assert len(paths["ablation-ensemble"] & paths["table2"]) == 4


def test_table_1_has_the_risk_form_of_the_main_text_or_of_the_appendix():
    for name, form in (("table1", "quantile"), ("table1-iqn", "implicit")):
        forms = {
            (case.config.algo, case.config.agent.risk_form)
            for case in STUDIES[name].cases
        }
        assert forms == {("sac-lag", "scalar"), ("wcsac", form), ("orac", form)}


def test_configs_in_the_same_directory_are_equal(tmp_path):
    known = {}
    for study in STUDIES.values():
        for run in plan(with_settings(study, 1_000_000), range(1), tmp_path):
            assert known.setdefault(run.path, run.config) == run.config, run.path


def test_settings_change_every_case_and_evaluations_follow_the_steps():
    study = with_settings(STUDIES["table2"], 2_000_000, ["agent.kappa=0.5"])
    for case in study.cases:
        assert case.config.agent.kappa == 0.5
        assert case.config.training.total_steps == 2_000_000
        assert case.config.evaluation.every == 40_000
    small = with_settings(STUDIES["table1"], 2_000)
    assert {case.config.evaluation.every for case in small.cases} == {10_000}


def test_setting_the_varied_field_raises():
    with pytest.raises(ValueError, match="the field that the study varies"):
        with_settings(STUDIES["ablation-ensemble"], None, ["agent.num_cost_critics=5"])


def test_only_chooses_cases_and_suggests_the_nearest_name():
    chosen = with_settings(STUDIES["table1"], only=["sac-lag"])
    assert [case.label for case in chosen.cases] == [
        "SAC-Lag, guard 0.15",
        "SAC-Lag, guard 0.1",
    ]
    with pytest.raises(ValueError, match=r"--only must be .* Did you mean 'wcsac'"):
        with_settings(STUDIES["table1"], only=["wcsak"])


def test_requested_seeds_that_do_not_exist_are_reported(maze):
    study, out = maze
    assert "seeds 3-4 have not started" in render(study, out, seeds=tuple(range(5)))


def test_partial_study_renders_and_reports_what_is_missing(tmp_path):
    study = with_settings(STUDIES["table1"], 100_000)
    runs = plan(study, range(3), tmp_path)
    write_run(tmp_path, runs[0].config, name=runs[0].name)
    write_run(tmp_path, runs[1].config, name=runs[1].name, until=40_000)
    results = collect(study, tmp_path, runs)
    (note,) = missing_notes(results)
    assert note.startswith(
        "This study is not complete. SAC-Lag, guard 0.15: seeds 1-2 have not started. WCSAC, guard "
        "0.15: seed 0 is at step 40,000 of 100,000; seeds 1-2 have not started. ORAC"
    )
    (table,) = study.make_tables(results)
    assert [row[-1] for row in table.rows[:3]] == [
        "1 (paper 10)",
        "0 (paper 10)",
        "0 (paper 10)",
    ]
    assert table.rows[1][2] == "–", "a run that is not finished may still converge"
    assert note in table.notes


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_study_without_runs_renders(name, tmp_path):
    assert "These cases have no runs yet" in render(STUDIES[name], tmp_path)
    assert not (tmp_path / name / "figure.png").exists()


def test_runs_of_one_case_with_different_settings_raise(tmp_path):
    study = with_settings(STUDIES["table1"], 10_000)
    case = study.cases[0]
    write_run(tmp_path, case.config, name=case.name)
    other = overrides.override(case.config, ["seed=1", "agent.kappa=0.5"])
    write_run(tmp_path, other, name=case.name)
    with pytest.raises(ValueError, match=r"\(agent.kappa: 1.0 there, 0.5 here\)"):
        collect(study, tmp_path)
