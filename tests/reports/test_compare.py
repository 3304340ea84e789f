"""Tests of comparing two sets of runs."""

import pytest

from helpers.synthetic_runs import make_config, write_run
from orac.cli.main import main
from orac.evaluation.aggregates import probability_of_improvement
from orac.evaluation.intervals import difference_interval
from orac.reports.compare import compare, find_differences, match_groups
from orac.reports.run_reader import read_results
from orac.reports.seed_statistics import seed_values


@pytest.fixture
def root(study):
    return study / "orac-GuardedMaze-v0"


@pytest.fixture
def pair(groups):
    return groups["orac"], groups["wcsac"]


def test_differences_are_welchs_and_lower_cost_is_better(pair):
    ours, theirs = map(seed_values, pair)
    found = {x.metric.key: x for x in find_differences(pair)}
    reward, cost = found["reward/mean"], found["cost/cvar_0.05"]
    assert reward.difference == difference_interval(
        ours["reward/mean"], theirs["reward/mean"]
    )
    assert reward.improvement == probability_of_improvement(
        ours["reward/mean"], theirs["reward/mean"]
    )
    assert cost.difference.estimate < 0
    assert cost.improvement == probability_of_improvement(
        -ours["cost/cvar_0.05"], -theirs["cost/cvar_0.05"]
    )


def test_swapping_the_sides_mirrors_the_differences(pair):
    there = find_differences(pair)
    back = find_differences(pair[::-1])
    for one, other in zip(there, back, strict=True):
        assert one.difference.estimate == -other.difference.estimate
        if one.difference.low is not None:
            assert one.difference.low == pytest.approx(-other.difference.high)
        if one.improvement and other.improvement:
            mirrored = 1 - other.improvement.estimate
            assert one.improvement.estimate == pytest.approx(mirrored)


def test_command_prints_sides_seeds_verdicts_and_configs(root, capsys):
    assert main(["compare", str(root / "orac"), str(root / "wcsac")]) == 0
    printed = capsys.readouterr().out
    for part in (
        "A is orac (5 seeds), B is wcsac (5 seeds)",
        "CVaR at 0.05 of cost",
        "A better",
        "agent.behaviour",
    ):
        assert part in printed
    assert main(["compare", str(root / "wcsac"), str(root / "orac")]) == 0
    assert "B better" in capsys.readouterr().out
    arguments = [
        "compare",
        str(root / "orac"),
        str(root / "wcsac"),
        "--format=markdown",
    ]
    assert main(arguments) == 0
    assert "| last evaluation" in capsys.readouterr().out


def test_equal_seeds_and_one_seed_are_never_clear(tmp_path):
    for name, skill in (("a", 1.0), ("b", 0.3)):
        write_run(tmp_path / name, make_config(), skill=skill)
    (table,) = compare(tmp_path / "a", tmp_path / "b")
    assert {row[-1] for row in table.rows} == {"one seed: unclear"}
    for name in ("c", "d"):
        for seed in (1, 2):
            write_run(tmp_path / name, make_config(seed=seed))
    (table,) = compare(tmp_path / "c", tmp_path / "d")
    verdicts = {row[0]: row[-1] for row in table.rows}
    assert (
        verdicts["reward"] == "unclear"
        and verdicts["worst cost"] == "all seeds equal: unclear"
    )


def test_several_agents_are_paired_by_label_and_others_are_noted(tmp_path):
    for side, algos in (("a", ("orac", "wcsac")), ("b", ("orac", "sac-lag"))):
        for algo in algos:
            write_run(tmp_path / side, make_config(algo))
    pairs, notes = match_groups(*(read_results([tmp_path / side]) for side in "ab"))
    assert [(ours.label, theirs.label) for ours, theirs in pairs] == [("orac", "orac")]
    assert notes == [
        "wcsac in orac/GuardedMaze-v0 is only in A and is not compared.",
        "sac-lag in orac/GuardedMaze-v0 is only in B and is not compared.",
    ]


def test_sides_with_nothing_in_common_are_an_error_that_lists_both(tmp_path):
    write_run(tmp_path / "a", make_config("orac"))
    write_run(tmp_path / "a", make_config("wcsac"))
    write_run(tmp_path / "b", make_config("sac"))
    with pytest.raises(
        ValueError, match=r"A has orac in .*; B has sac in .*one config"
    ):
        compare(tmp_path / "a", tmp_path / "b")


def test_run_cannot_be_compared_with_itself(root):
    with pytest.raises(ValueError, match=r"both hold .*seed-000 and 4 more"):
        compare(root / "orac", root)


def test_runs_without_evaluations_are_an_error_that_says_what_to_do(root, tmp_path):
    path = write_run(tmp_path, make_config(), until=1000)
    with pytest.raises(ValueError, match=r"B must have runs with evaluations") as error:
        compare(root / "orac", tmp_path)
    assert f"orac evaluate {path} --out DIR" in str(error.value)


def test_five_equal_seeds_are_distinguished_by_ranks(tmp_path):
    pairs = []
    for seeds in (4, 5):
        for name, cost in (("a", "2.0"), ("b", "20.0")):
            for seed in range(seeds):
                path = write_run(tmp_path / f"{name}{seeds}", make_config(seed=seed))
                file = path / "evaluations.csv"
                text = file.read_text().replace(",2.0,", f",{cost},")
                file.write_text(text.replace(",20.0,", f",{cost},"))
        (table,) = compare(tmp_path / f"a{seeds}", tmp_path / f"b{seeds}")
        verdicts = {row[0]: row[-1] for row in table.rows}
        pairs.append(verdicts["CVaR at 0.05 of cost"])
    assert pairs == ["all seeds equal: unclear", "A better"]
