"""Every study has its cases, its runs have places, and ours stand beside the paper's."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from helpers.synthetic_runs import write_run
from orac.cli.studies import NAMES, seeds_of
from orac.config import serialization as config_text
from orac.experiments import comparison, paper
from orac.experiments.curves import Panel, draw, half_deviation
from orac.experiments.run_study import Orders, carry_out
from orac.experiments.studies import STUDIES
from orac.experiments.study import collect, plan, shortcomings, with_settings
from orac.experiments.table1 import paper_row
from orac.reports.seed_statistics import average, evaluation_curve


def fill(study, out, seeds=2, **options):
    """Made-up runs of every case."""
    for run in plan(study, range(seeds), out):
        write_run(out, run.config, name=run.name, rows=4, **options)


def rendered(study, out, record=None, **options):
    told = []
    orders = Orders(out, render_only=True, record=record, **options)
    assert carry_out(study, orders, told.append) == 0
    return "\n".join(told)


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    """Table 1 on 100,000 steps, three seeds, ten evaluations each."""
    out = tmp_path_factory.mktemp("maze")
    study = with_settings(STUDIES["table1"], 100_000)
    fill(study, out, 3, evaluations=10, episodes=20)
    return study, out


def test_the_command_line_knows_every_study():
    assert tuple(STUDIES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_place_of_its_own_and_the_papers_numbers(name, tmp_path):
    study = STUDIES[name]
    runs = plan(study, range(2), tmp_path)
    assert len({run.path for run in runs}) == len(runs) == 2 * len(study.cases)
    assert len({case.label for case in study.cases}) == len(study.cases)
    if name not in ("table1", "figure1"):
        for case in study.cases:
            numbers = paper.look_up(case.key)
            assert numbers and all(len(pair) == 2 for pair in numbers), case.key


def test_the_papers_seeds_are_the_default(tmp_path):
    assert len(plan(STUDIES["table1"], None, tmp_path)) == 60
    # WCSAC and the main value have 10 seeds, the other two values 4.
    assert len(plan(STUDIES["ablation-cost-optimism"], None, tmp_path)) == 28


def test_a_study_that_ends_early_has_some_of_every_case(tmp_path):
    runs = plan(STUDIES["table1"], None, tmp_path)
    assert {run.config.seed for run in runs[:6]} == {0}
    assert len({run.label for run in runs[:6]}) == 6


def test_studies_share_the_runs_that_they_have_in_common(tmp_path):
    places = {
        name: {run.path for run in plan(STUDIES[name], range(1), tmp_path)}
        for name in NAMES
    }
    assert places["figure2"] == places["table2"]
    assert places["figure1"] < places["table1"]
    for name in ("cost-optimism", "reward-optimism"):
        assert len(places[f"ablation-{name}"] & places["table2"]) == 2
    assert len(places["ablation-ensemble"] & places["table2"]) == 4


def test_configs_that_share_a_place_are_the_same(tmp_path):
    known = {}
    for study in STUDIES.values():
        for run in plan(with_settings(study, 1_000_000), range(1), tmp_path):
            assert known.setdefault(run.path, run.config) == run.config, run.path


def test_settings_reach_every_case_and_evaluations_fit_the_steps():
    study = with_settings(STUDIES["table2"], 2_000_000, ["agent.kappa=0.5"])
    for case in study.cases:
        assert case.config.agent.kappa == 0.5
        assert case.config.training.total_steps == 2_000_000
        assert case.config.evaluation.every == 40_000
    small = with_settings(STUDIES["table1"], 2_000)
    assert {case.config.evaluation.every for case in small.cases} == {10_000}


def test_a_setting_that_undoes_what_is_varied_is_refused():
    with pytest.raises(ValueError, match="the field that the study varies"):
        with_settings(STUDIES["ablation-ensemble"], None, ["agent.num_cost_critics=5"])


def test_some_cases_can_be_chosen_and_unknown_ones_get_the_nearest():
    chosen = with_settings(STUDIES["table1"], only=["sac-lag"])
    assert [case.label for case in chosen.cases] == [
        "SAC-Lag, guard 0.15",
        "SAC-Lag, guard 0.1",
    ]
    with pytest.raises(ValueError, match=r"--only must be .* Did you mean 'wcsac'"):
        with_settings(STUDIES["table1"], only=["wcsak"])


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("10:12", (10, 11)), ("0:1", (0,))]
)
def test_seeds_are_a_number_or_a_range(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "5:5", "a", "3:", ":3"])
def test_seeds_that_mean_nothing_are_refused(text):
    with pytest.raises(Exception, match="must be a number of seeds, such as 5"):
        seeds_of(text)


def test_table_1_has_ours_beside_the_papers(maze):
    study, out = maze
    text = rendered(study, out)
    lines = [line.split() for line in text.splitlines() if " 0.15 " in line]
    assert [line[0] for line in lines] == ["SAC-Lag", "WCSAC", "ORAC"]
    orac = next(line for line in text.splitlines() if "ORAC" in line and "0.15" in line)
    assert "100%" in orac and "230,000" in orac and "3 (paper 10)" in orac
    assert "Ours: 100,000 steps, 1 environment, 1 gradient step per step, an" in text
    assert "Not the preset's" not in text and "can have converged" not in text
    assert "Partial" not in text


def test_table_1_counts_success_and_steps_over_seeds(maze):
    study, out = maze
    (found, *_) = collect(study.cases, out)
    (table,) = study.make_tables(collect(study.cases, out))
    # Made-up agents take the long path in ever more of 20 episodes; count by hand.
    steps = []
    for run in found.runs:
        at, path = run.evaluations["env_steps"], run.evaluations["path"]
        good = [(path[at == step] == 1).mean() >= 0.9 for step in np.unique(at)]
        first = [i for i in range(6) if all(good[i : i + 5])]
        steps.append(10_000 * (first[0] + 1) if first else 100_000)
    share = sum(step < 100_000 for step in steps) / 3
    assert table.rows[0][2].startswith(f"{share:.0%} [")
    assert float(table.rows[0][4].split()[0].replace(",", "")) == pytest.approx(
        np.mean(steps), rel=0.001
    )


def test_table_1_says_how_many_seeds_end_within_their_limit(maze):
    study, out = maze
    found = collect(study.cases, out)
    (table,) = study.make_tables(found)
    for case, row in zip(found, table.rows, strict=True):
        kept = 0
        for run in case.runs:
            at = run.evaluations["env_steps"]
            worst = run.evaluations["cost"][at == at.max()].max()
            # The worst 5 % of 20 episodes are one.
            kept += worst <= run.config.constraints[0].limit
        assert row[table.columns.index("within limit")] == f"{kept} of 3"


def test_a_table_names_every_setting_that_is_not_the_presets(tmp_path):
    words = ["agent.kappa=0.5", "evaluation.every=4000", "evaluation.episodes=7"]
    study = with_settings(STUDIES["table1"], 12_000, words)
    fill(study, tmp_path, 2, evaluations=3, episodes=7)
    text = rendered(study, tmp_path)
    assert "an evaluation of 7 episodes every 4,000 steps. Not the preset's: " in text
    assert "Not the preset's: agent.kappa 0.5 (1.0). The paper" in text
    assert "No run can have converged, which takes 5 evaluations: it has 3." in text


def test_what_is_shown_alone_says_what_is_missing_of_what_is_asked_for(maze):
    study, out = maze
    assert "seeds 3-4 are not begun" in rendered(study, out, seeds=tuple(range(5)))


def test_the_papers_rows_are_found():
    assert paper_row("wcsac", 0.1) == {
        "agent": "wcsac",
        "guard_probability": 0.1,
        "success": 0.3,
        "steps": 425000,
    }
    assert paper_row("sac-lag", 0.15)["steps"] is None


def test_a_partial_study_renders_and_says_what_is_missing(tmp_path):
    study = with_settings(STUDIES["table1"], 100_000)
    runs = plan(study, range(3), tmp_path)
    write_run(tmp_path, runs[0].config, name=runs[0].name)
    write_run(tmp_path, runs[1].config, name=runs[1].name, until=40_000)
    found = collect(study.cases, tmp_path, runs)
    (sentence,) = shortcomings(found)
    assert sentence.startswith(
        "Partial study. SAC-Lag, guard 0.15: seeds 1-2 are not begun. "
        "WCSAC, guard 0.15: seed 0 is at step 40,000 of 100,000; seeds 1-2 are not "
    )
    (table,) = study.make_tables(found)
    assert [row[-1] for row in table.rows[:3]] == [
        "1 (paper 10)",
        "0 (paper 10)",
        "0 (paper 10)",
    ]
    assert table.rows[1][2] == "–", "a run that is under way may yet converge"
    assert sentence in table.notes


def test_nothing_at_all_renders_too(tmp_path):
    for name in NAMES:
        text = rendered(STUDIES[name], tmp_path)
        assert "nothing is begun" in text, name
        assert not (tmp_path / name / "figure.png").exists()


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("figure")])
def test_tables_hold_the_papers_numbers_and_ours(name, tmp_path):
    study = with_settings(STUDIES[name], 10_000)
    fill(study, tmp_path, 2, evaluations=2, episodes=8)
    text = rendered(study, tmp_path)
    tables = study.make_tables(collect(study.cases, tmp_path))
    assert sum(len(table.rows) for table in tables) == len(study.cases)
    assert "[" in text, "two seeds have an interval"
    for case in study.cases if name != "table1" else ():
        for pair in paper.look_up(case.key):
            assert paper.spread_text(pair) in text
    latex = (tmp_path / name / "table.tex").read_text()
    assert latex.count(r"\begin{tabular}") == len(tables)
    told = [line for line in latex.splitlines() if not line.startswith("%")]
    assert not any("%" in line.replace(r"\%", "") for line in told), "else a comment"
    assert (tmp_path / name / "figure.png").stat().st_size > 5_000
    assert (tmp_path / name / "figure.pdf").stat().st_size > 1_000


def test_our_numbers_are_the_mean_of_the_last_evaluations(tmp_path):
    study = with_settings(STUDIES["table3"], 10_000)
    fill(study, tmp_path, 2, evaluations=2, episodes=8)
    found = collect(study.cases, tmp_path)
    (table,) = study.make_tables(found)
    for row, case in zip(table.rows, found, strict=True):
        rewards = [run.evaluations["reward"][-8:].mean() for run in case.runs]
        assert float(row[1].split()[0]) == pytest.approx(np.mean(rewards), abs=0.06)
        assert row[-1] == "10,000"


def test_a_table_names_the_limit_that_its_runs_had(tmp_path):
    for words, told in (([], "Limit 720."), (["constraints.0.limit=3"], "Limit 3.")):
        study = with_settings(STUDIES["table3"], 10_000, words)
        (table,) = study.make_tables(collect(study.cases, tmp_path))
        assert table.notes[1].startswith(told)


def test_half_a_standard_deviation_is_the_papers_band():
    curves = [
        (np.array([1, 2]), np.array([0.0, 5.0])),
        (np.array([1]), np.array([4.0])),
    ]
    # At step 1 the values are 0 and 4: deviation 2, half of it 1. At 2 one seed is alone.
    np.testing.assert_array_equal(half_deviation(curves, np.array([1, 2])), [1, np.nan])


@pytest.mark.parametrize(
    ("kind", "most"), [({"is_share": True}, 1), ({"limit": 0.5}, np.inf)]
)
def test_the_interval_of_a_share_ends_at_0_and_1_and_of_a_cost_at_0(maze, kind, most):
    study, out = maze
    found = collect(study.cases, out)[0]
    steps = np.array([1, 2])
    shares = iter([np.array([0.0, 0.1]), np.array([0.0, 1.0]), np.array([1.0, 1.0])])
    panel = Panel("", [("x", found)], lambda _: (steps, next(shares)), **kind)
    band = draw([[panel]]).axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == 0 and band.max() <= most
    assert band.max() > 1 or kind == {"is_share": True}


def test_the_interval_of_a_mean_cost_in_a_table_starts_at_0(tmp_path, monkeypatch):
    study = with_settings(STUDIES["table3"], 10_000)
    fill(study, tmp_path, 2, evaluations=2, episodes=3)
    far_apart = {"cost/mean": np.array([1.0, 31.0])}
    monkeypatch.setattr(comparison, "seed_values", lambda *_: far_apart)
    (table,) = study.make_tables(collect(study.cases, tmp_path))
    cells = {row[table.columns.index("mean cost")] for row in table.rows}
    # Student's interval of two seeds so far apart would start at -175.
    assert len(cells) == 1 and cells.pop().startswith("16 [0, ")


def test_the_band_is_an_interval_unless_the_papers_is_asked_for(tmp_path):
    study = with_settings(STUDIES["figure2"], 10_000)
    fill(study, tmp_path, 4, evaluations=2, episodes=8)
    found = collect(study.cases, tmp_path)
    runs = found[0].runs
    curves = [evaluation_curve(run, "reward") for run in runs]
    at_end = np.array([values[-1] for _, values in curves])
    for band, half in (
        ("interval", None),
        ("half-std", at_end.std() / 2),
    ):
        figure = study.make_figure(found, band)
        axes = figure.axes[0]
        assert axes.get_title("left") == "PointGoal1, tail 0.5: reward"
        top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
        curve = average(curves)
        expected = curve.high if half is None else curve.mean + half
        if half is not None:
            assert expected[-1] == pytest.approx(at_end.mean() + half)
            earlier = np.array([values[0] for _, values in curves])
            expected = [earlier.mean() + earlier.std() / 2, expected[-1]]
        assert top == pytest.approx(np.max(expected))
    assert len(figure.axes) == 12, "reward, cost and CVaR in two worlds at two tails"


def test_an_unknown_band_gets_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'half-std'"):
        rendered(STUDIES["figure2"], tmp_path, band="halfstd")


def test_an_address_without_ray_is_refused(tmp_path):
    orders = Orders(tmp_path, seeds=(0,), address="auto")
    with pytest.raises(ValueError, match="add --backend ray"):
        carry_out(STUDIES["table1"], orders)


def test_seeds_of_one_case_must_share_their_settings(tmp_path):
    case = with_settings(STUDIES["table1"], 10_000).cases[0]
    write_run(tmp_path, case.config, name=case.name)
    other = config_text.override(case.config, ["seed=1", "agent.kappa=0.5"])
    write_run(tmp_path, other, name=case.name)
    with pytest.raises(ValueError, match=r"has agent.kappa 0.5 and .* has 1.0. Move"):
        collect([case], tmp_path)


@pytest.fixture(scope="module")
def kept(maze, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "table1"
    rendered(*maze, record=folder)
    return folder


def test_a_record_of_nothing_is_refused_and_leaves_what_is_there(maze, kept, tmp_path):
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    with pytest.raises(ValueError, match=r"nothing to record .* Is --out the folder"):
        rendered(maze[0], tmp_path, record=kept)
    fewer = with_settings(STUDIES["table1"], 100_000, only=["orac"])
    with pytest.raises(ValueError, match="records 12 runs that are not among these"):
        rendered(fewer, maze[1], record=kept)
    assert before == {path.name: path.read_bytes() for path in kept.iterdir()}


def test_a_file_where_a_record_should_go_is_told_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("mine")
    orders = Orders(tmp_path / "runs", seeds=(0,), record=tmp_path / "file")
    with pytest.raises(ValueError, match="--record must be a folder"):
        carry_out(STUDIES["table1"], orders)
    assert not (tmp_path / "runs").exists()


def test_what_is_recorded_is_small_whole_and_free_of_paths(maze, kept):
    _, out = maze
    names = {path.name for path in kept.iterdir()}
    assert names == {
        "table.md",
        "table.tex",
        "runs.csv",
        "curves.csv",
        "config.yaml",
        "commit",
        "figure.png",
        "figure.pdf",
    }
    for name in names - {"figure.png", "figure.pdf"}:
        assert str(out) not in (kept / name).read_text(), name
    assert (kept / "commit").read_text() == "abc123  18 runs\n"
    runs = [*csv.DictReader((kept / "runs.csv").read_text().splitlines())]
    assert len(runs) == 18 and {"converged_at", "cost/cvar_0.05"} <= set(runs[0])
    curves = [*csv.DictReader((kept / "curves.csv").read_text().splitlines())]
    assert len(curves) == 18 * 10
    assert {"reward", "cost", "cost/cvar_0.05", "long_path"} <= set(curves[0])


def test_a_recorded_config_is_whole(maze, kept):
    study, _ = maze
    written = yaml.safe_load((kept / "config.yaml").read_text())
    case = study.cases[-1]
    flat = config_text.flatten(config_text.to_dict(replace(case.config, seed=0)))
    del flat["seed"]
    assert {**written["all"], **written["cases"][case.label]} == flat
    assert "env.params.guard_probability" in written["cases"][case.label]


def test_the_papers_numbers_are_in_the_package():
    file = Path(paper.__file__).parent / "paper_results.json"
    assert file.is_file() and paper.look_up(("table3_citylearn", "limit")) == 720
    assert paper.look_up(("table3_citylearn", "nobody")) is None
