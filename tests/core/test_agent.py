"""Tests of properties that the learner has with every preset."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agent_examples import (
    BATCH,
    SIZES,
    assert_close,
    assert_same_bits,
    compiled_act,
    compiled_update,
    episodic,
    learner_of,
    make_agent,
    make_batch,
    make_context,
    small_config,
)
from orac.config import presets
from orac.core import agent as agent_core

KEY = jax.random.key(7)
FORMS = ("sac-lag", "wcsac-iqn", "wcsac-lin")
"""One preset per risk form: an update does not know the behaviour policy."""


def one_quick_form(quick):
    """Every risk form, of which one is quick: each costs ten seconds and more."""
    marks = {algo: () if algo == quick else pytest.mark.slow for algo in FORMS}
    params = [pytest.param(algo, marks=mark) for algo, mark in marks.items()]
    return pytest.mark.parametrize("algo", params)


def configs(algos):
    """These presets with 0 to 2 constraints, the episodic dual and the quantile form."""
    found = {f"{algo}-{m}": small_config(algo, m) for algo in algos for m in (0, 1, 2)}
    found[f"{algos[-1]}-episodic-2"] = episodic(small_config(algos[-1], 2))
    found["wcsac-quantile-1"] = small_config("wcsac", risk_form="quantile")
    return [pytest.param(config, id=name) for name, config in found.items()]


def are_scalars(metrics):
    return all(m.shape == () and m.dtype == jnp.float32 for m in metrics.values())


@pytest.mark.parametrize("config", configs(FORMS))
def test_an_update_keeps_every_shape_and_type(config):
    learner, state = learner_of(config), make_agent(config)
    after, metrics = jax.eval_shape(
        lambda k, s, b: agent_core.update(k, s, b, learner),
        KEY,
        state,
        make_batch(config),
    )
    assert jax.tree.map(_type_of, after) == jax.tree.map(_type_of, state)
    assert are_scalars(metrics)


@pytest.mark.parametrize("config", configs(("wcsac-iqn", "orac-iqn", "orac-lin")))
def test_an_action_has_a_row_per_observation(config):
    learner, state = learner_of(config), make_agent(config)
    action, metrics = jax.eval_shape(
        lambda k, s, o, c, r: agent_core.act(k, s, o, c, r, learner),
        KEY,
        state,
        make_batch(config).observation,
        make_context(config, state),
        jnp.float32(1.0),
    )
    assert (action.shape, action.dtype) == ((BATCH, SIZES["action"]), jnp.float32)
    assert are_scalars(metrics)


def _type_of(leaf):
    return jnp.shape(leaf), jnp.result_type(leaf), jax.typeof(leaf).weak_type


@pytest.mark.parametrize("algo", FORMS)
def test_updates_in_a_row_are_traced_once_and_stay_finite(algo):
    config = small_config(algo)
    update, state = compiled_update(config), make_agent(config)
    for seed in range(3):
        state, _ = update(jax.random.key(seed), state, make_batch(config, seed))
    assert update.traces == 1
    assert int(state.gradient_steps) == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


def assert_compiled_equals_eager(config):
    state, batch = make_agent(config), make_batch(config)
    eager = agent_core.update(KEY, state, batch, learner_of(config))
    assert_close(compiled_update(config)(KEY, state, batch), eager)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("algo", FORMS)
def test_compiled_equals_eager(algo, count):
    assert_compiled_equals_eager(small_config(algo, count))


def test_compiled_equals_eager_in_the_episodic_form_with_two_constraints():
    # The quick one of its kind, since it has the most in it: eager takes half a minute.
    assert_compiled_equals_eager(episodic(small_config("wcsac-lin", 2)))


@pytest.mark.parametrize("form", ["iqn", "lin"])
def test_an_update_does_not_know_the_behaviour_policy(form):
    def program(algo):
        config = small_config(f"{algo}-{form}")
        update = jax.jit(agent_core.update, static_argnums=3)
        args = KEY, make_agent(config), make_batch(config), learner_of(config)
        return update.lower(*args).as_text()

    assert program("orac") == program("wcsac")


def test_a_scalar_critic_does_not_know_the_tail():
    def program(tail):
        config = small_config("sac-lag")
        constraint = replace(config.constraints[0], tail=tail)
        config = replace(config, constraints=(constraint,))
        update = jax.jit(agent_core.update, static_argnums=3)
        args = KEY, make_agent(config), make_batch(config), learner_of(config)
        return update.lower(*args).as_text()

    assert program(0.05) == program(1.0)


@one_quick_form("wcsac-iqn")
def test_seeds_side_by_side_equal_seeds_in_turn(algo):
    config = small_config(algo)
    learner, update = learner_of(config), compiled_update(config)
    seeds = range(3)
    states = [make_agent(config, seed) for seed in seeds]
    batches = [make_batch(config, seed) for seed in seeds]
    keys = jax.random.split(KEY, len(seeds))
    side_by_side = jax.jit(
        jax.vmap(lambda k, s, b: agent_core.update(k, s, b, learner))
    )
    together, _ = side_by_side(keys, *(_stack(x) for x in (states, batches)))
    for i in seeds:
        alone, _ = update(keys[i], states[i], batches[i])
        assert_close(jax.tree.map(lambda x, i=i: x[i], together), alone)


def _stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize("algo", ["orac-iqn", "orac-lin"])
def test_acting_is_compiled_once_and_a_radius_of_zero_is_the_plain_actor(algo):
    config = small_config(algo, 2)
    plain = small_config(algo.replace("orac", "wcsac"), 2)
    state = make_agent(config)
    observation, context = make_batch(config).observation, make_context(config, state)
    act = compiled_act(config)
    unshifted, metrics = act(KEY, state, observation, context, jnp.float32(0))
    assert_same_bits(
        unshifted,
        compiled_act(plain)(KEY, state, observation, context, jnp.float32(0))[0],
    )
    assert metrics["explore/shift_norm"] == 0
    shifted, metrics = act(KEY, state, observation, context, jnp.float32(2))
    assert (shifted != unshifted).any(axis=1).all()
    assert metrics["explore/shift_norm"] > 0
    assert act.traces == 1
    learner = learner_of(config)
    eager, _ = agent_core.act(KEY, state, observation, context, jnp.float32(2), learner)
    assert_close(shifted, eager)


@pytest.mark.parametrize(
    "algo", ["orac-iqn", pytest.param("orac-lin", marks=pytest.mark.slow)]
)
def test_agents_act_side_by_side_as_they_do_alone(algo):
    config = small_config(algo, 2)
    learner, act, radius = learner_of(config), compiled_act(config), jnp.float32(2)
    seeds = range(3)
    states = [make_agent(config, seed) for seed in seeds]
    contexts = [make_context(config, states[seed], seed) for seed in seeds]
    observations = [make_batch(config, seed).observation for seed in seeds]
    keys = jax.random.split(KEY, len(seeds))
    alone = [
        act(*each, radius)
        for each in zip(keys, states, observations, contexts, strict=True)
    ]
    side_by_side = jax.jit(
        jax.vmap(lambda k, s, o, c: agent_core.act(k, s, o, c, radius, learner))
    )
    together = side_by_side(keys, *map(_stack, (states, observations, contexts)))
    assert_close(together, _stack(alone))
    # Seeds of one agent at the same observation draw actions of their own.
    drawn = side_by_side(
        keys, *(_stack([x[0]] * len(seeds)) for x in (states, observations, contexts))
    )[0]
    assert_close(drawn[0], alone[0][0])
    assert (drawn[0] != drawn[1]).any(axis=1).all()
    assert (drawn[1] != drawn[2]).any(axis=1).all()


def test_a_broken_critic_cannot_reach_an_action_without_a_shift():
    config = small_config("orac-iqn", 2)
    state = make_agent(config)
    context = make_context(config, state)
    broken = state._replace(
        cost_critics=jax.tree.map(lambda x: x * jnp.nan, state.cost_critics)
    )
    act, observation = compiled_act(config), make_batch(config).observation
    action, _ = act(KEY, broken, observation, context, jnp.float32(0))
    assert_same_bits(action, act(KEY, state, observation, context, jnp.float32(0))[0])


@pytest.mark.parametrize("algo", ["orac-iqn", "orac-lin"])
def test_evaluation_never_shifts(algo):
    config = small_config(algo)
    plain = small_config(algo.replace("orac", "wcsac"))
    state = make_agent(config)
    observation = make_batch(config).observation
    action = agent_core.mean_action(
        agent_core.deployed_policy(state), observation, learner_of(config)
    )
    assert_same_bits(
        action,
        agent_core.mean_action(
            agent_core.deployed_policy(state), observation, learner_of(plain)
        ),
    )
    # Nothing that the shift is made of has a say.
    other = make_agent(config, seed=1)
    changed = state._replace(
        reward_critics=other.reward_critics,
        cost_critics=other.cost_critics,
        multiplier=other.multiplier._replace(value=other.multiplier.value + 5),
    )
    assert_same_bits(
        action,
        agent_core.mean_action(
            agent_core.deployed_policy(changed), observation, learner_of(config)
        ),
    )
    sampled = agent_core.sampled_action(
        KEY, agent_core.deployed_policy(state), observation, learner_of(config)
    )
    again = agent_core.sampled_action(
        KEY, agent_core.deployed_policy(changed), observation, learner_of(plain)
    )
    assert_same_bits(sampled, again)
    assert (sampled != action).any()


def test_the_six_agents_differ_in_form_and_behaviour_only():
    changed = {
        "sac": {"risk_form", "behaviour", "num_cost_critics"},
        "sac-lag": {"risk_form", "behaviour", "num_cost_critics"},
        "wcsac-iqn": {"behaviour"},
        "wcsac-lin": {"risk_form", "behaviour"},
        "orac-lin": {"risk_form"},
    }
    base = presets.preset("orac-iqn", "orac/GuardedMaze-v0")
    for algo, fields in changed.items():
        config = presets.preset(algo, "orac/GuardedMaze-v0")
        differs = {
            name
            for name, value in vars(base.agent).items()
            if getattr(config.agent, name) != value
        }
        assert differs == fields
        assert config.constraints == (() if algo == "sac" else base.constraints)
        assert config.training == base.training


def test_the_multiplier_compares_the_limit_with_whole_costs_not_centred_ones():
    """Costs that are higher by the centre give the same critics, but a higher risk."""
    config = small_config("wcsac", risk_form="quantile", centre=True, cost_discount=0.9)
    state, batch, centre = make_agent(config), make_batch(config), 5.0
    shifted = state._replace(centre=state.centre._replace(cost=jnp.full(1, centre)))
    higher = batch._replace(cost=batch.cost + centre)
    update = compiled_update(config)
    plain, plain_metrics = update(KEY, state, batch)
    after, metrics = update(KEY, shifted, higher)
    assert_close(after.cost_critics.params, plain.cost_critics.params)
    risk = float(metrics["constraint/risk/cost"])
    expected = float(plain_metrics["constraint/risk/cost"]) + centre / (1 - 0.9)
    assert risk == pytest.approx(expected, rel=1e-5)
    assert risk > metrics["constraint/limit/cost"]
    assert (after.multiplier.value > state.multiplier.value).all()
