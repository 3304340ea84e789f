"""Who wins where: the best mean, and no claim that the seeds do not carry."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.synthetic_runs import make_config
from orac.config.schema import EnvConfig
from orac.envs.maze.env import GuardedMaze
from orac.reports import metrics as measures
from orac.reports import ranking
from orac.reports import seed_statistics as summaries
from orac.reports.run_groups import Group
from orac.reports.run_reader import Run


def make_group(label, rewards, costs, path):
    """One run a seed with these rewards; each evaluated on 20 episodes of that cost."""
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
    return {win.title: win for win in ranking.wins(groups, level)}


def test_the_best_mean_wins_and_costs_are_better_low(groups):
    found = by_title(groups)
    assert found["reward"].best == ("sac-lag",) and found["reward"].is_clear
    cost = found["mean cost"]
    assert cost.best == ("orac",)
    assert (cost.ahead_of, cost.unclear) == (("sac-lag",), ("wcsac",))
    assert not cost.is_clear


def test_reward_counts_again_among_those_within_the_limit(groups):
    found = by_title(groups)
    within = found["reward (of those within their limit)"]
    assert within.best == ("orac",) and within.unclear == ("wcsac",)
    assert "of those" not in " ".join(by_title(groups[:2]))


def test_pairs_share_the_level(tmp_path):
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
    assert not any(win.ahead_of for win in ranking.wins(one))
    equal = [
        make_group("orac", [1.0] * 3, [4.0] * 3, tmp_path),
        make_group("wcsac", [0.0] * 3, [20.0] * 3, tmp_path),
    ]
    assert not any(win.ahead_of for win in ranking.wins(equal))
    assert "Nobody is clearly ahead" in ranking.in_words(ranking.wins(equal))


def test_ranks_decide_between_seeds_that_all_agree_from_five_on(tmp_path):
    def lead(seeds):
        groups = [
            make_group("orac", [1.0] * seeds, [4.0] * seeds, tmp_path),
            make_group("wcsac", [1.0] * seeds, [20.0] * seeds, tmp_path),
        ]
        found = by_title(groups)
        assert found["reward"].best == ("orac", "wcsac")
        return found["mean cost"].ahead_of

    assert lead(4) == () and lead(5) == ("wcsac",)


def test_a_shared_best_mean_names_all_who_share_it(tmp_path):
    tied = [
        make_group("orac", [1.0, 2.0], [4.0, 4.0], tmp_path),
        make_group("wcsac", [2.0, 1.0], [4.0, 4.0], tmp_path),
    ]
    win = by_title(tied)["reward"]
    assert win.best == ("orac", "wcsac") and not win.is_clear and not win.unclear
    assert "orac and wcsac in reward" in ranking.in_words([win])


def test_what_has_no_better_side_is_not_won():
    values = [{"env/guard_present": np.ones(2), "env/unserved_energy": np.ones(2)}]
    sides = {m.title: m.higher_is_better for m in measures.own_measures(values)}
    assert sides == {"guard present": None, "unserved energy": False}


def test_intervals_end_where_truth_does():
    some, below = np.array([0.5, 1.0]), np.array([-0.5, 1.0])
    for key, values, expected in (
        ("env/unserved_energy", some, (0, 1)),
        ("cost/violation_rate", some, (0, 1)),
        ("cost/heat/violation_rate", some, (0, 1)),
        ("cost/mean", some, (0, np.inf)),
        ("cost/mean", below, (-np.inf, np.inf)),
        ("reward/mean", some, (-np.inf, np.inf)),
        ("train/reward", some, (-np.inf, np.inf)),
        ("env/of_the_user", some, (-np.inf, np.inf)),
    ):
        assert measures.bounds_of(key, values) == expected
    assert summaries.interval(np.array([0.0, 1.0, 9.0]), key="cost/mean").low == 0


def test_lengths_and_costs_end_at_what_the_environment_declares(tmp_path):
    config = make_config(changes=["env.params.time_limit=70"])
    run = Run(tmp_path, config, {}, {}, {}, {})
    group = Group("orac", (run,))
    few = np.array([1.0, 2.0])
    assert measures.bounds_of("length/mean", few, group) == (0, 70)
    for key in ("cost", "cost/mean", "cost/cvar_0.05", "cost/worst"):
        low, high = measures.bounds_of(key, few, group)
        assert (low, high) == (0, GuardedMaze(time_limit=70).spec.cost_bounds[0])
    # What was exceeded was no bound, and of a reward nothing is known.
    assert measures.bounds_of("length/mean", 100 * few, group) == (0, np.inf)
    assert measures.bounds_of("reward/mean", few, group) == (-np.inf, np.inf)
    assert measures.bounds_of("train/cost", few, group) == (0, np.inf)


def test_on_the_host_the_config_may_know_the_longest_episode(tmp_path):
    config = make_config()
    env = EnvConfig("Pendulum-v1", episode_length=200)
    run = Run(tmp_path, replace(config, env=env), {}, {}, {}, {})
    few = np.array([1.0, 2.0])
    assert measures.bounds_of("length/mean", few, Group("a", (run,))) == (0, 200)
    assert measures.bounds_of("cost/mean", few, Group("a", (run,))) == (0, np.inf)
