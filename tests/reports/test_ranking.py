"""Tests of the ranking: the best mean, and how clear it is."""

import numpy as np
import pytest

from helpers.synthetic_runs import make_config
from orac.reports.ranking import describe_wins, find_wins
from orac.reports.run_reader import Group, Run


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
def groups(tmp_path):
    return [
        make_group("orac", [-20.0, -21.0, -19.0], [4.0, 4.1, 4.2], tmp_path),
        make_group("wcsac", [-20.5, -21.5, -19.2], [4.0, 4.2, 4.3], tmp_path),
        make_group("sac-lag", [-10.0, -10.5, -9.5], [20.0, 20.0, 20.0], tmp_path),
    ]


def by_title(groups, level=0.95):
    return {win.title: win for win in find_wins(groups, level)}


def test_best_mean_wins_and_lower_costs_are_better(groups):
    found = by_title(groups)
    assert found["reward"].best == ("sac-lag",) and found["reward"].is_clear
    cost = found["mean cost"]
    assert cost.best == ("orac",)
    assert (cost.ahead_of, cost.unclear) == (("sac-lag",), ("wcsac",))
    assert not cost.is_clear


def test_reward_is_ranked_again_among_groups_within_their_limit(groups):
    found = by_title(groups)
    within = found["reward (of those within their limit)"]
    assert within.best == ("orac",) and within.unclear == ("wcsac",)
    assert "of those" not in " ".join(by_title(groups[:2]))


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


def test_one_seed_and_equal_seeds_are_never_clear(tmp_path):
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
