"""Tests of ranking groups and of comparing two sets of runs."""

import numpy as np
import pytest

from helpers.synthetic_runs import make_config, write_run
from orac.cli.main import main
from orac.evaluation.seed_intervals import (
    difference_interval,
    probability_of_improvement,
)
from orac.reports.compare import (
    compare,
    describe_wins,
    find_differences,
    find_wins,
    match_groups,
)
from orac.reports.report_metrics import seed_values
from orac.reports.run_reader import Group, Run, read_results


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
        "CVaR of cost at tail 0.05",
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
        and verdicts["worst cost"] == "same value for all seeds: unclear"
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
    with pytest.raises(ValueError, match=r"both contain .*seed-000 and 4 more"):
        compare(root / "orac", root)


def test_runs_without_evaluations_are_an_error_that_says_what_to_do(root, tmp_path):
    path = write_run(tmp_path, make_config(), until=1000)
    with pytest.raises(ValueError, match=r"B must have at least one run with") as error:
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
        pairs.append(verdicts["CVaR of cost at tail 0.05"])
    assert pairs == ["same value for all seeds: unclear", "A better"]


def make_group(label, rewards, costs, path):
    """Make a group with one run per reward and cost, each of 20 equal episodes."""
    runs = []
    for seed, (reward, cost) in enumerate(zip(rewards, costs, strict=True)):
        columns = {
            "env_steps": np.full(20, 100.0),
            "episode": np.arange(20.0),
            "reward": np.full(20, reward),
            "cost": np.full(20, cost),
            "length": np.full(20, 50.0),
        }
        runs.append(Run(path, make_config(label, seed), {}, {}, {}, columns))
    return Group(label, tuple(runs))


@pytest.fixture
def ranked(tmp_path):
    return [
        make_group("orac", [-20.0, -21.0, -19.0], [4.0, 4.1, 4.2], tmp_path),
        make_group("wcsac", [-20.5, -21.5, -19.2], [4.0, 4.2, 4.3], tmp_path),
        make_group("sac-lag", [-10.0, -10.5, -9.5], [20.0, 20.0, 20.0], tmp_path),
    ]


def by_title(groups):
    return {win.title: win for win in find_wins(groups)}


def test_best_mean_wins_and_lower_costs_are_better(ranked):
    found = by_title(ranked)
    assert found["reward"].best == ("sac-lag",) and found["reward"].is_clear
    cost = found["mean cost"]
    assert cost.best == ("orac",)
    assert (cost.ahead_of, cost.unclear) == (("sac-lag",), ("wcsac",))
    assert not cost.is_clear


def test_reward_is_ranked_again_among_groups_within_their_limit(ranked):
    found = by_title(ranked)
    within = found["reward (of those within their limit)"]
    assert within.best == ("orac",) and within.unclear == ("wcsac",)
    assert "of those" not in " ".join(by_title(ranked[:2]))


def test_pairs_share_the_error_level(tmp_path):
    # Standard error of the difference: sqrt(2 / 3) = 0.816, 4 degrees. One pair has
    # t = 2.78 and needs a lead of 2.27; three pairs at 98.3 % have t = 3.96 and need 3.23.
    rewards = np.array([[1.0, 2.0, 3.0], [-1.6, -0.6, 0.4], [-50.0, -51.0, -52.0]])
    groups = [
        make_group(label, numbers, [4.0, 4.1, 4.2], tmp_path)
        for label, numbers in zip(("orac", "wcsac", "sac-lag"), rewards, strict=True)
    ]
    assert by_title(groups[:2])["reward"].ahead_of == ("wcsac",)
    assert by_title(groups)["reward"].unclear == ("wcsac",)


def test_ranking_of_one_seed_or_equal_seeds_is_never_clear(tmp_path):
    one = [
        make_group("orac", [1.0], [4.0], tmp_path),
        make_group("wcsac", [0.0], [20.0], tmp_path),
    ]
    assert not any(win.ahead_of for win in find_wins(one))
    equal = [
        make_group("orac", [1.0] * 3, [4.0] * 3, tmp_path),
        make_group("wcsac", [0.0] * 3, [20.0] * 3, tmp_path),
    ]
    assert not any(win.ahead_of for win in find_wins(equal))
    assert "No group is clearly ahead" in describe_wins(find_wins(equal))


def test_ranks_decide_between_equal_seeds_from_five_seeds_on(tmp_path):
    def lead(seeds):
        groups = [
            make_group("orac", [1.0] * seeds, [4.0] * seeds, tmp_path),
            make_group("wcsac", [1.0] * seeds, [20.0] * seeds, tmp_path),
        ]
        found = by_title(groups)
        assert found["reward"].best == ("orac", "wcsac")
        return found["mean cost"].ahead_of

    assert lead(4) == () and lead(5) == ("wcsac",)


def test_shared_best_mean_names_all_groups_that_share_it(tmp_path):
    tied = [
        make_group("orac", [1.0, 2.0], [4.0, 4.0], tmp_path),
        make_group("wcsac", [2.0, 1.0], [4.0, 4.0], tmp_path),
    ]
    win = by_title(tied)["reward"]
    assert win.best == ("orac", "wcsac") and not win.is_clear and not win.unclear
    assert "orac and wcsac in reward" in describe_wins([win])


def test_metric_without_a_better_direction_is_not_ranked(results):
    titles = {win.title for win in find_wins(results.groups)}
    assert {"reward", "worst cost", "never arrived"} <= titles
    assert "took the long path" not in titles


def test_sides_of_different_tasks_or_sizes_have_notes(tmp_path):
    easy = ["env.params.guard_probability=0.05"]
    write_run(tmp_path / "a", make_config(changes=easy), episodes=20)
    write_run(tmp_path / "b", make_config(), episodes=50)
    notes = compare(tmp_path / "a", tmp_path / "b")[0].notes
    assert any("differ in env.params.guard_probability, so" in note for note in notes)
    assert any("have 20 to 50 episodes. With fewer episodes" in note for note in notes)
    assert len({*notes}) == len(notes)
