"""Tests of what each part of an update changes, and what it must not change."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.agent_examples import (
    BATCH,
    Traced,
    assert_close,
    assert_same_bits,
    compiled_update,
    differ,
    learner_of,
    make_agent,
    make_batch,
    problem_for,
    small_config,
    with_costs_about,
    with_multiplier,
    with_temperature,
)
from orac.core import agent as agent_core
from orac.core import critics, networks, normalization, optimizers
from orac.core.risk_forms import make_learner
from orac.core.risk_forms.implicit import level_quantiles

KEY = jax.random.key(3)


def observe(agent, observation):
    """The agent with these observations in its running statistics."""
    stats = normalization.update(agent.observation_stats, observation)
    return agent._replace(observation_stats=stats)


@pytest.mark.parametrize("algo", ["sac-lag", "wcsac-iqn", "wcsac-lin"])
def test_the_multiplier_moves_the_actor_and_nothing_else(algo):
    config = small_config(algo)
    update, batch = compiled_update(config), make_batch(config)
    agent = with_costs_about(make_agent(config), 5.0)
    light, light_metrics = update(KEY, with_multiplier(agent, 0.0), batch)
    heavy, heavy_metrics = update(KEY, with_multiplier(agent, 5.0), batch)
    assert_same_bits(light.reward_critics, heavy.reward_critics)
    assert_same_bits(light.cost_critics, heavy.cost_critics)
    assert_same_bits(light.log_temperature, heavy.log_temperature)
    assert differ(light.actor, heavy.actor)
    # The multiplier's own step is the same from everywhere: risk does not depend on it.
    name = "constraint/risk/cost"
    assert light_metrics[name] == heavy_metrics[name]
    assert_same_bits(light.multiplier.opt_state, heavy.multiplier.opt_state)


def test_below_the_pivot_no_multiplier_moves_the_actor():
    config = small_config("wcsac-lin")
    update, batch = compiled_update(config), make_batch(config)
    agent = with_costs_about(make_agent(config), -5.0)
    light, metrics = update(KEY, with_multiplier(agent, 0.0), batch)
    heavy, _ = update(KEY, with_multiplier(agent, 5.0), batch)
    assert metrics["constraint/dead_zone/cost"] == 1
    assert_same_bits(light.actor, heavy.actor)


@pytest.mark.parametrize("algo", ["wcsac-iqn", "wcsac-lin"])
def test_a_multiplier_of_zero_hides_the_cost_from_the_actor(algo):
    config = small_config(algo)
    update, batch = compiled_update(config), make_batch(config)
    agent = with_multiplier(make_agent(config), 0.0)
    other = agent._replace(cost_critics=make_agent(config, seed=5).cost_critics)
    after, after_other = update(KEY, agent, batch)[0], update(KEY, other, batch)[0]
    assert_same_bits(after.actor, after_other.actor)
    assert_same_bits(after.reward_critics, after_other.reward_critics)


@pytest.mark.parametrize("algo", ["wcsac-iqn", "wcsac-lin"])
def test_entropy_is_in_the_reward_target_and_never_in_a_cost_target(algo):
    config = small_config(algo)
    update, batch = compiled_update(config), make_batch(config)
    agent = make_agent(config)
    cold, _ = update(KEY, with_temperature(agent, 0.01), batch)
    warm, _ = update(KEY, with_temperature(agent, 2.0), batch)
    assert_same_bits(cold.cost_critics, warm.cost_critics)
    assert differ(cold.reward_critics, warm.reward_critics)
    assert differ(cold.actor, warm.actor)


def test_what_learns_from_what_is_not_touched_by_an_update():
    config = small_config("wcsac-lin")
    agent = make_agent(config)
    after, _ = compiled_update(config)(KEY, agent, make_batch(config))
    assert_same_bits(after.pivot, agent.pivot)
    assert_same_bits(after.observation_stats, agent.observation_stats)
    for part in ("actor", "reward_critics", "cost_critics", "log_temperature"):
        assert differ(getattr(after, part).params, getattr(agent, part).params), part


def test_targets_start_as_copies_and_follow_every_second_step():
    config = small_config("wcsac-iqn")
    update, agent = compiled_update(config), make_agent(config)
    assert_same_bits(agent.target_reward_critics, agent.reward_critics.params)
    assert_same_bits(agent.target_cost_critics, agent.cost_critics.params)
    first, _ = update(KEY, agent, make_batch(config))
    assert_same_bits(first.target_reward_critics, agent.target_reward_critics)
    assert_same_bits(first.target_cost_critics, agent.target_cost_critics)
    second, _ = update(KEY, first, make_batch(config, 1))
    for target, online in (
        ("target_reward_critics", "reward_critics"),
        ("target_cost_critics", "cost_critics"),
    ):
        jax.tree.map(
            lambda new, old, live: np.testing.assert_allclose(
                new, 0.995 * old + 0.005 * live, rtol=1e-5, atol=1e-7
            ),
            getattr(second, target),
            getattr(first, target),
            getattr(second, online).params,
        )
        assert differ(getattr(second, target), getattr(first, target))


def test_options_of_a_batch_do_what_they_say():
    plain = small_config("sac-lag", reward_scale=1.0)
    options = small_config(
        "sac-lag",
        reward_scale=0.25,
        bootstrap_on_truncation=False,
        normalize_observations=True,
    )
    batch = make_batch(plain)
    agent = observe(make_agent(plain), 5 + 3 * batch.observation)
    mean, std = (
        5 + 3 * batch.observation.mean(axis=0),
        3 * batch.observation.std(axis=0),
    )
    by_hand = batch._replace(
        observation=(batch.observation - mean) / std,
        next_observation=(batch.next_observation - mean) / std,
        reward=0.25 * batch.reward,
        terminated=batch.terminated | batch.truncated,
    )
    assert (batch.truncated & ~batch.terminated).any()
    wanted, _ = compiled_update(plain)(KEY, agent, by_hand)
    found, _ = compiled_update(options)(KEY, agent, batch)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5),
        found,
        wanted,
    )


def test_fractions_of_each_rows_own_go_through_a_whole_update():
    shared = small_config("wcsac-iqn")
    per_row = small_config("wcsac-iqn", shared_fractions=False)
    agent, batch = make_agent(per_row), make_batch(per_row)
    after, metrics = compiled_update(per_row)(KEY, agent, batch)
    other, other_metrics = compiled_update(shared)(KEY, agent, batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    assert metrics.keys() == other_metrics.keys()
    # Costs are read at other levels; what knows nothing of cost stays as it was.
    for name in ("critic/cost_loss", "constraint/risk/cost"):
        assert metrics[name] != other_metrics[name]
        assert metrics[name] == pytest.approx(other_metrics[name], rel=0.5)
    assert differ(after.cost_critics, other.cost_critics)
    assert_close(after.reward_critics, other.reward_critics, 1e-4)
    wanted = cost_loss_row_by_row(agent, batch, per_row)
    assert float(metrics["critic/cost_loss"]) == pytest.approx(wanted, rel=1e-4)


def cost_loss_row_by_row(agent, batch, config):
    """The cost critics' loss of an update with KEY: every row alone, in NumPy's loops."""
    problem, settings = problem_for(config), config.agent
    _, critic_key, _ = jax.random.split(KEY, 3)
    action_key, target_key, prediction_key = jax.random.split(critic_key, 3)
    target_fractions, fractions = (
        critics.sample_fractions(key, (BATCH, settings.num_quantiles))
        for key in (target_key, prediction_key)
    )
    assert fractions.levels.shape == (BATCH, settings.num_quantiles)
    mean, std = networks.apply_actor(agent.actor.params, batch.next_observation)
    next_action, _ = networks.sample_action(action_key, mean, std)

    @jax.jit
    def quantiles(members, observation, action, levels):
        """Of one row, at levels that a batch of one shares."""
        found = level_quantiles(
            members, observation[None], action[None], levels[None], problem, settings
        )
        return found[0, :, 0]

    total = 0.0
    for i in range(BATCH):
        members = agent.cost_critics.params, agent.target_cost_critics
        predicted = quantiles(
            members[0], batch.observation[i], batch.action[i], fractions.levels[i]
        )
        onward = quantiles(
            members[1],
            batch.next_observation[i],
            next_action[i],
            target_fractions.levels[i],
        )
        going_on = settings.cost_discount * (1 - float(batch.terminated[i]))
        targets = float(batch.cost[i, 0]) + going_on * np.asarray(onward, np.float64)
        error = targets[:, None, :] - np.asarray(predicted, np.float64)[:, :, None]
        size = np.abs(error)
        huber = np.where(size <= 1, size**2 / 2, size - 0.5)
        level = np.asarray(fractions.levels[i])[None, :, None]
        loss = np.abs(level - (error < 0)) * huber
        width = np.asarray(target_fractions.widths[i])
        total += (loss * width).sum(axis=-1).mean(axis=-1).sum() / BATCH
    return total


def test_a_truncated_step_bootstraps_by_default():
    config = small_config("sac-lag", reward_scale=1.0)
    update, batch = compiled_update(config), make_batch(config)
    agent = make_agent(config)
    never = batch._replace(truncated=jnp.zeros(BATCH, bool))
    assert_same_bits(update(KEY, agent, batch), update(KEY, agent, never))
    ended = batch._replace(terminated=jnp.ones(BATCH, bool))
    assert differ(update(KEY, agent, batch)[0], update(KEY, agent, ended)[0])


def test_running_statistics_equal_numpys():
    rows = np.random.default_rng(0).normal(300.0, 2.0, (500, 3)).astype(np.float32)
    rows[:, 2] = 7.0
    config = small_config("sac-lag", normalize_observations=True)
    agent = make_agent(config)
    for part in np.split(rows, [1, 2, 40, 43, 200]):
        agent = observe(agent, jnp.asarray(part))
    stats = agent.observation_stats
    assert stats.seen == 500
    np.testing.assert_allclose(stats.mean, rows.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(stats.variance, rows.var(axis=0), rtol=1e-4, atol=1e-6)
    scaled = normalization.scale(stats, jnp.asarray(rows), config.agent)
    wanted = (rows[:, :2] - rows[:, :2].mean(axis=0)) / rows[:, :2].std(axis=0)
    np.testing.assert_allclose(scaled[:, :2], wanted, atol=2e-3)
    # A feature that never changed says nothing, and a stray value of it is bounded.
    np.testing.assert_allclose(scaled[:, 2], 0.0, atol=1e-2)
    stray = normalization.scale(stats, jnp.full((1, 3), 1e6), config.agent)
    assert (stray == 10).all()


def test_observing_is_traced_once_and_compiled_equals_eager():
    config = small_config("sac-lag", normalize_observations=True)
    compiled = Traced(observe)
    fast = slow = make_agent(config)
    for seed in range(4):
        observation = 3 + 2 * make_batch(config, seed).observation
        fast, slow = compiled(fast, observation), observe(slow, observation)
    assert_close(fast.observation_stats, slow.observation_stats)
    assert fast.observation_stats.seen == 4 * BATCH
    assert_same_bits(fast._replace(observation_stats=slow.observation_stats), slow)
    assert compiled.traces == 1


def test_statistics_stay_right_after_more_steps_than_float32_can_count():
    stats = normalization.init(1)._replace(
        seen=jnp.int32(2**25), mean=jnp.zeros(1), variance=jnp.ones(1)
    )
    for sign in (1.0, -1.0) * 50:
        stats = normalization.update(stats, jnp.full((1, 1), sign))
    assert stats.seen == 2**25 + 100
    np.testing.assert_allclose(stats.variance, 1.0, rtol=1e-5)


def test_an_observation_is_left_alone_before_a_spread_is_known():
    config = small_config("sac-lag", normalize_observations=True)
    scaled = normalization.scale(
        normalization.init(3), jnp.full((1, 3), 0.02), config.agent
    )
    np.testing.assert_allclose(scaled, 0.02, rtol=1e-5)


def test_members_are_clipped_apart():
    config = small_config("orac-iqn", max_gradient_norm=1.0).agent
    for part in ("reward_critics", "cost_critics"):
        optimizer = getattr(optimizers.make_optimizers(config), part)
        gradient = (jnp.array([0.5]), jnp.array([100.0]))
        _, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
        first, second = optax.tree.get(state, "mu")
        np.testing.assert_allclose([first[0], second[0]], [0.05, 0.1], rtol=1e-5)


def test_pivots_are_clipped_apart():
    config = small_config("orac-lin").agent
    gradient = jnp.array([0.5, -100.0])
    optimizer = optimizers.make_optimizers(config).pivot
    _, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
    np.testing.assert_allclose(optax.tree.get(state, "mu"), [0.05, -0.1], rtol=1e-5)


@pytest.mark.parametrize("part", ["actor", "reward_critics", "cost_critics"])
def test_a_gradients_norm_is_clipped_when_asked(part):
    gradient = {"a": jnp.array([30.0, 0.0]), "b": jnp.array([-40.0])}

    def first_moment(max_gradient_norm):
        config = small_config("sac-lag", max_gradient_norm=max_gradient_norm).agent
        optimizer = getattr(optimizers.make_optimizers(config), part)
        network = gradient if part == "actor" else (gradient,)
        _, state = optimizer.update(network, optimizer.init(network), network)
        moment = optax.tree.get(state, "mu")
        return moment if part == "actor" else moment[0]

    # The norm is 50. Adam's first moment is a tenth of the gradient it saw.
    np.testing.assert_allclose(first_moment(5.0)["a"], [0.3, 0.0], rtol=1e-5)
    np.testing.assert_allclose(first_moment(5.0)["b"], [-0.4], rtol=1e-5)
    np.testing.assert_allclose(first_moment(None)["b"], [-4.0], rtol=1e-5)
    np.testing.assert_allclose(first_moment(80.0)["b"], [-4.0], rtol=1e-5)


def test_the_temperature_rises_while_entropy_is_below_its_target():
    config = small_config("sac")
    learner, agent = learner_of(config), make_agent(config)
    # The default target is minus the number of actions, -2.

    def moved(entropy, **changes):
        changed = make_learner(learner.problem, replace(config.agent, **changes))
        log_prob = jnp.full(BATCH, -entropy)
        after = agent_core.update_temperature(agent, log_prob, changed)
        return float(after.params - agent.log_temperature.params)

    assert moved(-2.5) == pytest.approx(5e-4, rel=1e-3)
    assert moved(-1.5) == pytest.approx(-5e-4, rel=1e-3)
    assert moved(-2.5, target_entropy=-3.0) == pytest.approx(-5e-4, rel=1e-3)
    assert moved(-2.5, temperature_learning_rate=0.0) == 0
