"""Tests of the policy that a run delivers: candidates, repeated tests, choice of the action."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agent_examples import make_agent, small_config
from helpers.certificates import write_certificate
from orac.config import serialization
from orac.config.schema import Constraint, EnvConfig, MultiplierConfig, TrainingConfig
from orac.core.agent import deployed_policy
from orac.evaluation.episodes import Episodes
from orac.training import delivery

MAZE = "orac/GuardedMaze-v0"


def config_of(*constraints, env_id=MAZE, margin=0.1, **training):
    config = small_config(
        "wcsac",
        len(constraints) or 1,
        risk_form="quantile",
        multiplier=MultiplierConfig(follows="episodes", initial=1.0, margin=margin),
    )
    return replace(
        config,
        env=EnvConfig(env_id),
        constraints=constraints or (Constraint("cost", 10.0, 0.5),),
        training=TrainingConfig(**training),
    )


CONFIG = config_of()
START = make_agent(replace(CONFIG, env=EnvConfig()))


def agent_of(number, samples=False):
    """An agent whose policy carries this number in its pivot."""
    pivot = START.pivot._replace(params=jnp.full_like(START.pivot.params, number))
    steering = START.steering._replace(samples=jnp.asarray(samples))
    return START._replace(pivot=pivot, steering=steering)


def episodes_of(reward, cost, count=100):
    costs = np.tile(np.atleast_1d(np.asarray(cost, float)), (count, 1))
    return Episodes(np.full(count, float(reward)), costs, np.full(count, 10))


class Player:
    """Plays second tests of a fixed reward and cost, and counts them."""

    def __init__(self, reward=None, cost=None):
        self.reward, self.cost, self.asked = reward, cost, []

    def __call__(self, count):
        self.asked.append(count)
        return episodes_of(self.reward, self.cost, count)


def consider(candidates, number, reward, cost, again=None, config=CONFIG):
    """The candidates after a policy was evaluated, and the second tests that it took."""
    player = Player(*(again or (reward, cost)))
    new = delivery.consider(
        candidates,
        agent_of(number),
        episodes_of(reward, cost),
        100 * number,
        config,
        10,
        player,
    )
    return new, player.asked


def considered(*policies, config=CONFIG):
    """The candidates after these policies, each (reward, cost) or with its second test."""
    candidates = delivery.init(START, config)
    for number, (reward, cost, *again) in enumerate(policies, 1):
        candidates, _ = consider(
            candidates, number, reward, cost, again[0] if again else None, config
        )
    return candidates


def number_of(delivered):
    return int(delivered.policy.pivot[0])


def test_without_an_evaluation_nothing_is_delivered():
    candidates = delivery.init(START, CONFIG)
    assert delivery.delivered(candidates) is None
    assert delivery.ranked(candidates) == [] and delivery.best_index(candidates) is None


def test_the_highest_reward_within_the_limit_less_the_margin_is_delivered():
    # The limit is 10 and the margin a tenth of it.
    best = delivery.delivered(considered((1, 5), (3, 8.9), (4, 9.1), (2, 2)))
    assert number_of(best) == 2 and best.feasible
    assert (best.reward, best.risk, best.step) == (3.0, pytest.approx((8.9,)), 200)
    assert best.policy.actor[0].weight.shape == START.actor.params[0].weight.shape


def test_a_new_best_is_tested_again_and_both_samples_are_pooled():
    candidates, asked = consider(delivery.init(START, CONFIG), 1, 3.0, 4.0, (1.0, 8.0))
    # 40 episodes divided by the tail of 0.5.
    assert asked == [80]
    best = delivery.delivered(candidates)
    assert best.episodes == 180
    assert best.reward == pytest.approx((100 * 3 + 80 * 1) / 180)
    # The worst half of 180: 80 episodes of cost 8 and 10 of cost 4.
    assert best.risk == pytest.approx(((80 * 8 + 10 * 4) / 90,))


def test_a_policy_that_is_not_a_new_best_is_not_tested_again():
    candidates = considered((3, 5))
    candidates, asked = consider(candidates, 2, 2.0, 5.0)
    assert asked == [] and delivery.ranked(candidates) == [0, 1]
    assert candidates.retested.tolist()[:2] == [True, False]
    _, asked = consider(candidates, 3, 9.0, 9.5)  # Not within the limit.
    assert asked == []


def test_a_lucky_policy_is_found_out_by_its_second_test():
    # It broke the limit in its second test, so the first one stays the best.
    candidates = considered((1, 5), (9, 0.0, (9, 30.0)))
    assert number_of(delivery.delivered(candidates)) == 1
    assert candidates.episodes.astype(bool).sum() == 1
    # One whose reward was lucky is kept with the reward of both samples.
    candidates = considered((2, 5), (3, 5, (0.0, 5)))
    assert number_of(delivery.delivered(candidates)) == 1
    assert delivery.ranked(candidates) == [0, 1]


def test_only_the_ten_of_highest_reward_are_kept():
    rewards = [20, *range(1, 13)]
    candidates = considered(*((reward, 5) for reward in rewards))
    held = sorted(candidates.reward[: delivery.MAX_CANDIDATES])
    assert held == [*range(4, 13), 20]
    assert candidates.episodes[delivery.MAX_CANDIDATES] == 0
    order = [candidates.reward[i] for i in delivery.ranked(candidates)]
    assert order == sorted(held, reverse=True)
    # One that is worse than all of them is not taken.
    after, _ = consider(candidates, 50, 3.0, 5.0)
    assert after is candidates


def test_the_best_survives_however_many_others_follow():
    candidates = considered((20, 5), *((reward, 5) for reward in range(30 - 19)))
    for number in range(100, 130):
        candidates, _ = consider(candidates, number, 19.0 - 1 / number, 5.0)
    assert number_of(delivery.delivered(candidates)) == 1


def test_candidates_that_were_tested_again_come_first():
    candidates = considered((5, 5), (6, 5, (2, 5)), (4, 5))
    # The second one has 6 and 2 in 100 and 80 episodes: 4.22, above the third's 4.
    assert candidates.retested.tolist()[:3] == [True, True, False]
    assert delivery.ranked(candidates) == [0, 1, 2]
    unsure = candidates._replace(retested=np.array([False, True, *[False] * 9]))
    assert delivery.ranked(unsure) == [1, 0, 2]


def test_the_least_risk_is_delivered_while_nothing_is_within_the_limit():
    candidates = considered((9, 30), (5, 12), (7, 20))
    best = delivery.delivered(candidates)
    assert number_of(best) == 2 and not best.feasible
    assert best.risk == pytest.approx((12.0,)) and best.episodes == 100
    candidates, _ = consider(candidates, 4, -3.0, 8.0)
    best = delivery.delivered(candidates)
    assert number_of(best) == 4 and best.feasible
    # From then on policies that break the limit are of no interest.
    after, _ = consider(candidates, 5, 30.0, 11.0)
    assert after is candidates


def test_every_constraint_counts():
    constraints = (Constraint("cost", 10.0, 0.5), Constraint("other", 1000.0, 0.5))
    config = config_of(*constraints)
    candidates = considered(
        (5, (5, 950)), (4, (9.5, 100)), (3, (5, 500)), config=config
    )
    best = delivery.delivered(candidates)
    assert number_of(best) == 3 and best.feasible
    assert best.risk == pytest.approx((5.0, 500.0))
    # Without any, the largest excess counts relative to the limits: 1.1 below 2.
    candidates = considered((5, (20, 500)), (4, (5, 1100)), config=config)
    assert number_of(delivery.delivered(candidates)) == 2


@pytest.mark.parametrize(("name", "parameter"), [("wang", 0.75), ("power", 2.0)])
def test_any_risk_measure_decides(name, parameter):
    constraint = Constraint("cost", 10.0, risk=name, risk_parameter=parameter)
    config = config_of(constraint)
    costs = np.random.default_rng(0).exponential(6.0, (400, 1))
    episodes = Episodes(np.zeros(400), costs, np.ones(400))
    assert costs.mean() < 9 < delivery.measure_risk(episodes, config)[0]
    assert not delivery.within_targets(delivery.measure_risk(episodes, config), config)


def test_a_second_test_is_as_long_as_the_tail_asks_and_the_host_allows():
    for tail, count in ((1.0, 40), (0.5, 80), (0.05, 800)):
        config = config_of(Constraint("cost", 10.0, tail))
        assert delivery.retest_episodes(config, 10) == count
    # On the host 2 % of the steps of the run: 2000 of 100,000, in episodes of 100.
    host = config_of(env_id="Pendulum-v1", total_steps=100_000)
    assert delivery.retest_episodes(host, 100) == 20
    assert delivery.retest_episodes(host, 10) == 80
    assert delivery.retest_episodes(host, 100_000) == 1


def test_a_candidate_remembers_how_it_acted():
    candidates = delivery.init(START, CONFIG)
    agent = agent_of(1, samples=True)
    candidates = delivery.consider(
        candidates, agent, episodes_of(1, 1), 100, CONFIG, 10, Player(1, 1)
    )
    best = delivery.delivered(candidates)
    assert best.samples
    jax.tree.map(np.testing.assert_array_equal, best.policy, deployed_policy(agent))


def test_the_better_action_is_the_one_of_higher_reward_within_the_limit():
    low, high = episodes_of(1, 5), episodes_of(2, 5)
    assert delivery.is_better(high, low, CONFIG)
    assert not delivery.is_better(low, high, CONFIG)
    # By more than two standard errors: sqrt(2) * 10 / sqrt(100) = 1.41 is one.
    noise = np.tile([-10.0, 10.0], 50)
    noisy = [replace(e, reward=e.reward + noise) for e in (high, low)]
    assert not delivery.is_better(*noisy, CONFIG)
    far = replace(noisy[0], reward=noisy[0].reward + 2.5)
    assert delivery.is_better(far, noisy[1], CONFIG)


def test_a_feasible_action_beats_an_infeasible_one_and_otherwise_the_risk_counts():
    safe, risky, reckless = (episodes_of(*x) for x in ((0, 5), (9, 20), (9, 40)))
    assert delivery.is_better(safe, risky, CONFIG)
    assert not delivery.is_better(risky, safe, CONFIG)
    assert delivery.is_better(risky, reckless, CONFIG)
    # A tenth less at least.
    assert not delivery.is_better(episodes_of(9, 19), risky, CONFIG)


def test_considering_does_not_change_what_was_given():
    before = considered((1, 5))
    copy = jax.tree.map(np.copy, before)
    consider(before, 2, 9.0, 5.0)
    jax.tree.map(np.testing.assert_array_equal, before, copy)


def test_the_candidate_of_a_certificate_is_found_by_its_step(tmp_path):
    candidates = considered((3, 5), (2, 5))
    (tmp_path / "config.yaml").write_text(serialization.dump(CONFIG))
    assert delivery.certified_index(tmp_path, candidates) is None
    for certified, step, place in (
        (True, 200, 1),
        (False, 200, None),
        (True, 300, None),
        (True, [200], None),
        (True, 0, None),
    ):
        write_certificate(tmp_path, certified=certified, step=step)
        assert delivery.certified_index(tmp_path, candidates) == place, step
    assert number_of(delivery.delivered(delivery.keep_only(candidates, 1))) == 2
