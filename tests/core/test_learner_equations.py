"""Tests of the learner's equations with small networks: losses, multiplier and outer step."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from orac.config.schema import (
    AgentConfig,
    Constraint,
    ExplorationConfig,
    MultiplierConfig,
    PivotConfig,
)
from orac.core import agent as agent_core
from orac.core import lagrange, networks
from orac.core.agent import PreparedBatch
from orac.core.cost_models import Context, make_problem, pivot_from_uniform
from orac.core.risk_forms import make_learner
from orac.core.risk_forms.dual import append_pivot, update_pivot
from orac.core.types import Transition

BATCH = 16
CONSTRAINTS = (
    Constraint("a", limit=2.0, tail=0.25),
    Constraint("b", limit=4.0, tail=0.5),
)
PROBLEM = make_problem(3, 2, CONSTRAINTS, 1, 1.0)
CONFIG = AgentConfig(
    risk_form="dual",
    discount=0.9,
    cost_discount=0.9,
    hidden_sizes=(8, 8),
    num_quantiles=6,
    num_cost_critics=2,
    multiplier=MultiplierConfig(initial=1.5),
    pivot=PivotConfig(std=0.2, penalty=3.0, max_gradient=1e6),
)
LEARNER = make_learner(PROBLEM, CONFIG)


def array(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(rows, jnp.float32)


@pytest.fixture(scope="module")
def state():
    state = agent_core.init(jax.random.key(0), LEARNER)
    # Cost critics around their limits, and reward critics that are steep and disagree.
    cost = jax.tree.map(lambda leaf: leaf + 0.2, state.cost_critics.params)
    reward = jax.tree.map(lambda leaf: 3 * leaf, state.reward_critics.params)
    return state._replace(
        cost_critics=state.cost_critics._replace(params=cost),
        reward_critics=state.reward_critics._replace(params=reward),
    )


@pytest.fixture(scope="module")
def batch():
    return Transition(
        observation=array(BATCH, 3),
        action=jnp.tanh(array(BATCH, 2, seed=1)),
        reward=array(BATCH, seed=2),
        cost=jnp.abs(array(BATCH, 2, seed=3)),
        next_observation=array(BATCH, 3, seed=4),
        terminated=jnp.arange(BATCH) % 4 == 0,
        truncated=jnp.arange(BATCH) % 5 == 0,
        accumulated_cost=jnp.zeros((BATCH, 2)),
        accumulated_discount=jnp.ones(BATCH),
    )


def critics_by_hand(state, inputs, action):
    """Smaller reward value, and quantiles averaged over each constraint's two members."""
    rows = jnp.concatenate([inputs, action], axis=-1)
    values = [networks.apply_mlp(c, rows)[:, 0] for c in state.reward_critics.params]
    members = [networks.apply_mlp(c, rows) for c in state.cost_critics.params]
    quantiles = [(members[2 * m] + members[2 * m + 1]) / 2 for m in range(2)]
    return np.minimum(*map(np.asarray, values)), [np.asarray(q) for q in quantiles]


def dual_by_hand(quantiles, pivot, tail):
    excess = np.maximum(quantiles - np.asarray(pivot)[:, None], 0)
    return excess.mean(axis=-1) / tail + np.asarray(pivot)


def test_the_actor_descends_on_the_lagrangian(state, batch):
    context = Context.start(BATCH, jnp.array([0.3, 0.6]))
    inputs = append_pivot(batch.observation, context)
    update = jax.jit(partial(agent_core.update_actor, learner=LEARNER))
    prepared = PreparedBatch(batch, context, inputs, inputs)
    critics = (state.reward_critics.params, state.cost_critics.params)
    key = jax.random.key(7)
    actor, log_prob, risk, metrics = update(key, state, critics, prepared)

    noise_key, _ = jax.random.split(key)
    mean, std = networks.apply_actor(state.actor.params, inputs)
    action, expected_log_prob = networks.sample_action(noise_key, mean, std)
    value, quantiles = critics_by_hand(state, inputs, action)
    risks = [
        dual_by_hand(quantiles[m], np.full(BATCH, share * limit), tail)
        for m, (share, limit, tail) in enumerate(((0.3, 2, 0.25), (0.6, 4, 0.5)))
    ]
    np.testing.assert_allclose(risk, risks, rtol=1e-4)
    np.testing.assert_allclose(log_prob, expected_log_prob, rtol=1e-4, atol=1e-4)
    # The temperature starts at 1 and the multipliers at 1.5.
    loss = (np.asarray(log_prob) - value + 1.5 * (risks[0] + risks[1])).mean()
    assert float(metrics["actor/loss"]) == pytest.approx(loss, rel=1e-4)

    moved = state._replace(actor=actor)
    *_, after = update(key, moved, critics, prepared)
    assert float(after["actor/loss"]) < float(metrics["actor/loss"])


def multiplier_after(risk, start=0.0, steps=1, config=CONFIG):
    learner = make_learner(PROBLEM, config)
    optimizer = learner.optimizers.multiplier
    multiplier = lagrange.init(2, config, optimizer)
    multiplier = multiplier._replace(value=jnp.full(2, start))
    rows = jnp.broadcast_to(jnp.asarray(risk, jnp.float32)[:, None], (2, BATCH))
    for _ in range(steps):
        multiplier = lagrange.update(
            multiplier, rows, PROBLEM.limits, config, optimizer
        )
    return np.asarray(multiplier.value)


def test_the_episodic_form_weighs_the_whole_episode_and_pays_from_here(state, batch):
    config = replace(CONFIG, pivot=replace(CONFIG.pivot, mode="episodic"))
    paid, reached = jnp.abs(array(BATCH, 2, seed=5)), jnp.linspace(0.2, 1.0, BATCH)
    pivot = jax.random.uniform(jax.random.key(7), (BATCH, 2))
    context = Context(pivot, paid, reached)
    inputs = jnp.concatenate([batch.observation, pivot], axis=-1)
    key = jax.random.key(1)
    critic_params = (state.reward_critics.params, state.cost_critics.params)
    _, log_prob, risk, metrics = agent_core.update_actor(
        key,
        state,
        critic_params,
        PreparedBatch(batch, context, inputs, inputs),
        make_learner(PROBLEM, config),
    )
    mean, std = networks.apply_actor(state.actor.params, inputs)
    action, _ = networks.sample_action(jax.random.split(key)[0], mean, std)
    value, quantiles = critics_by_hand(state, inputs, action)
    penalty = 0
    for m, constraint in enumerate(CONSTRAINTS):
        whole = paid[:, m, None] + reached[:, None] * quantiles[m]
        episode = dual_by_hand(
            np.asarray(whole),
            np.asarray(constraint.limit * pivot[:, m]),
            constraint.tail,
        )
        np.testing.assert_allclose(risk[m], episode, rtol=1e-4)
        penalty = penalty + 1.5 * (episode - paid[:, m]) / reached
    wanted = (np.asarray(log_prob) - value + penalty).mean()
    np.testing.assert_allclose(metrics["actor/loss"], wanted, rtol=1e-4)


@pytest.mark.parametrize("reached", [1.0, 0.3, 0.02])
def test_the_exploration_weight_of_the_episodic_form_is_in_an_episodes_units(
    state, reached
):
    config = replace(
        CONFIG,
        behaviour="optimistic",
        pivot=replace(CONFIG.pivot, mode="episodic"),
        exploration=ExplorationConfig(cost_optimism=0.0),
    )
    observation, pivot = array(1, 3), jnp.full((1, 2), 0.5)
    paid = jnp.array([[2.1, 3.0]])
    context = Context(pivot, paid, jnp.array([reached]))
    _, metrics = agent_core.act(
        jax.random.key(0),
        state,
        observation,
        context,
        1.0,
        make_learner(PROBLEM, config),
    )
    inputs = jnp.concatenate([observation, pivot], axis=-1)
    mean, _ = networks.apply_actor(state.actor.params, inputs)
    _, quantiles = critics_by_hand(state, inputs, jnp.tanh(mean))
    for m, constraint in enumerate(CONSTRAINTS):
        whole = np.asarray(paid[0, m] + reached * quantiles[m])
        bound = dual_by_hand(whole, np.array([0.5 * constraint.limit]), constraint.tail)
        wanted = max(0.0, 1.5 - (constraint.limit - bound[0]))
        found = metrics[f"explore/multiplier/{constraint.name}"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_one_step_from_rest_raises_the_multiplier_iff_risk_is_above_the_limit():
    # Limits 2 and 4. Adam's first step is its step size, whatever the violation.
    np.testing.assert_allclose(multiplier_after([2.1, 3.9]), [5e-4, 0], rtol=1e-4)
    np.testing.assert_allclose(multiplier_after([1.9, 400.0]), [0, 5e-4], rtol=1e-4)
    np.testing.assert_array_equal(multiplier_after([2.0, 4.0]), [0, 0])


def test_multipliers_fall_below_the_limit_but_never_below_zero():
    falls = multiplier_after([0.0, 9.0], start=1.0)
    np.testing.assert_allclose(falls, [1 - 5e-4, 1 + 5e-4], rtol=1e-5)
    np.testing.assert_array_equal(multiplier_after([0.0, 0.0], 1e-3, steps=5), 0)


def test_the_outer_step_follows_reward_minus_penalised_violation(state, batch):
    key = jax.random.key(3)
    update = jax.jit(partial(update_pivot, learner=LEARNER))
    pivot_key, action_key = jax.random.split(key)
    uniform = jax.random.uniform(pivot_key, (BATCH, 2))

    def draw(raw):
        return pivot_from_uniform(uniform, jnp.asarray(raw, jnp.float32), 0.2)

    def inputs_at(raw):
        context = Context.start(BATCH, draw(raw))
        return append_pivot(batch.observation, context)

    start = np.array([0.0, 0.0])
    # The action is drawn at the present pivots and then held fixed.
    mean, std = networks.apply_actor(state.actor.params, inputs_at(start))
    action, _ = networks.sample_action(action_key, mean, std)

    def loss(raw):
        value, quantiles = critics_by_hand(state, inputs_at(raw), action)
        total = -value.mean()
        for m, (limit, tail) in enumerate(((2, 0.25), (4, 0.5))):
            risk = dual_by_hand(quantiles[m], limit * draw(raw)[:, m], tail)
            # The relu of the mean, where (36) prints the mean of the relu.
            total += 3.0 * max(risk.mean() - limit, 0)
        return total

    slopes = []
    for m in range(2):
        step = 0.01 * np.eye(2)[m]
        slopes.append((loss(start + step) - loss(start - step)) / 0.02)
    assert np.abs(slopes).min() > 1e-3
    after = update(key, state, batch)
    # Adam's first step is its rate, against the sign of the gradient, and its first
    # moment is a tenth of the gradient.
    np.testing.assert_allclose(after.pivot.params, -3e-4 * np.sign(slopes), rtol=1e-3)
    moment = optax.tree_utils.tree_get(after.pivot.opt_state, "mu")
    np.testing.assert_allclose(10 * moment, slopes, rtol=0.02)
    np.testing.assert_array_equal(after.multiplier.value, state.multiplier.value)


def test_no_entropy_in_cost_targets_and_none_but_the_actor_feels_the_multiplier(
    state, batch
):
    update = jax.jit(partial(agent_core.update, learner=LEARNER))

    def changed(**fields):
        one, _ = update(jax.random.key(1), state, batch)
        other, _ = update(jax.random.key(1), state._replace(**fields), batch)
        names = ("actor", "reward_critics", "cost_critics")
        return {
            name
            for name in names
            if any(
                bool((a != b).any())
                for a, b in zip(
                    jax.tree.leaves(getattr(one, name).params),
                    jax.tree.leaves(getattr(other, name).params),
                    strict=True,
                )
            )
        }

    hotter = state.log_temperature._replace(params=jnp.float32(2.0))
    assert changed(log_temperature=hotter) == {"actor", "reward_critics"}
    heavier = state.multiplier._replace(value=jnp.array([9.0, 9.0]))
    assert changed(multiplier=heavier) == {"actor"}


def test_updates_find_the_constrained_optimum_and_its_multiplier():
    # One step an episode: reward a, cost 1 + a, limit 1. The best policy within the
    # limit is a = 0, and its multiplier is 1: there the two slopes cancel.
    problem = make_problem(1, 1, (Constraint(limit=1.0),), 1, 0.99)
    config = AgentConfig(
        risk_form="scalar",
        hidden_sizes=(16, 16),
        num_cost_critics=1,
        actor_learning_rate=3e-3,
        reward_critic_learning_rate=3e-3,
        cost_critic_learning_rate=3e-3,
        initial_temperature=0.01,
        temperature_learning_rate=0.0,
        multiplier=MultiplierConfig(learning_rate=2e-3),
    )
    learner = make_learner(problem, config)

    def step(agent, key):
        action_key, update_key = jax.random.split(key)
        action = jax.random.uniform(action_key, (32, 1), minval=-1.0, maxval=1.0)
        batch = Transition(
            observation=jnp.ones((32, 1)),
            action=action,
            reward=action[:, 0],
            cost=1 + action,
            next_observation=jnp.ones((32, 1)),
            terminated=jnp.ones(32, bool),
            truncated=jnp.zeros(32, bool),
            accumulated_cost=jnp.zeros((32, 1)),
            accumulated_discount=jnp.ones(32),
        )
        agent, metrics = agent_core.update(update_key, agent, batch, learner)
        return agent, (metrics["constraint/risk/cost"], agent.multiplier.value[0])

    @jax.jit
    def learn(agent):
        keys = jax.random.split(jax.random.key(1), 4000)
        return jax.lax.scan(step, agent, keys)

    agent, (risk, multiplier) = learn(agent_core.init(jax.random.key(0), learner))
    # It circles the saddle point, so look at the average of the last half.
    assert float(multiplier[2000:].mean()) == pytest.approx(1, abs=0.15)
    assert float(risk[2000:].mean()) == pytest.approx(1, abs=0.1)
    action = agent_core.mean_action(
        agent_core.deployed_policy(agent), jnp.ones((1, 1)), learner
    )
    assert abs(float(action[0, 0])) < 0.6
