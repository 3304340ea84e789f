"""How values and risks are read off critics: three forms, no, one and two constraints."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.config.schema import AgentConfig, Constraint, PivotConfig
from orac.core import cost_models as valuation
from orac.core import critics, networks, risk
from orac.core.cost_models import Context
from orac.evaluation import result

FORMS = ("scalar", "implicit", "dual")
CONSTRAINTS = (Constraint("a", limit=4.0, tail=0.25), Constraint("b", limit=8.0))
BATCH = 4
CASES = tuple(itertools.product(FORMS, (0, 1, 2)))


@functools.cache
def cost_critics(problem, config):
    return valuation.init_cost_critics(jax.random.key(0), problem, config)


@functools.cache
def reward_critics(problem, config):
    return valuation.init_reward_critics(jax.random.key(1), problem, config)


def make_config(form, **changes):
    settings = dict(hidden_sizes=(8, 8), embedding_size=6, num_quantiles=8)
    settings |= dict(num_policy_quantiles=8, num_cost_critics=3)
    return AgentConfig(risk_form=form, **(settings | changes))


def make_problem(count):
    return valuation.make_problem(3, 2, CONSTRAINTS[:count], 10, 0.9)


def make_context(count, seed=0, batch=BATCH):
    numbers = np.random.default_rng(seed)
    return Context(
        jnp.asarray(numbers.uniform(0, 1, (batch, count)), jnp.float32),
        jnp.asarray(numbers.uniform(0, 3, (batch, count)), jnp.float32),
        jnp.asarray(numbers.uniform(0.2, 1, batch), jnp.float32),
    )


def array(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(rows, jnp.float32)


EPISODIC = make_config("dual", pivot=PivotConfig(mode="episodic"))


def test_limits_are_converted_to_the_units_of_the_critics():
    problem = make_problem(2)
    horizon = (1 - 0.9**10) / (1 - 0.9) / 10
    np.testing.assert_allclose(problem.cost_value_limits, [4 * horizon, 8 * horizon])
    assert problem.names == ("a", "b") and problem.num_constraints == 2
    assert hash(problem) == hash(make_problem(2))


@pytest.mark.parametrize("form", FORMS)
def test_only_the_dual_form_shows_its_pivots_to_the_networks(form):
    config, problem, context = make_config(form), make_problem(2), make_context(2)
    observation = array(BATCH, 3)
    inputs = valuation.condition(observation, context, config)
    assert inputs.shape[1] == valuation.input_size(problem, config)
    np.testing.assert_array_equal(inputs[:, :3], observation)
    np.testing.assert_array_equal(
        inputs[:, 3:], context.pivot[:, : inputs.shape[1] - 3]
    )
    assert inputs.shape[1] == (5 if form == "dual" else 3)


@pytest.mark.parametrize("form, count", CASES)
def test_quantiles_and_risks_have_one_entry_per_constraint(form, count):
    config, problem, context = (
        make_config(form),
        make_problem(count),
        make_context(count),
    )
    size = 1 if form == "scalar" else 8

    members = cost_critics(problem, config)
    assert len(members) == 3 * count

    @jax.jit
    def loss(members):
        inputs = valuation.condition(array(BATCH, 3), context, config)
        levels, weights = valuation.policy_levels(
            jax.random.key(1), BATCH, problem, config
        )
        quantiles = valuation.cost_quantiles(
            members, inputs, array(BATCH, 2, seed=1), levels, problem, config
        )
        assert quantiles.shape == (count, 3, BATCH, size)
        average = quantiles.mean(axis=1)
        value = valuation.risk_to_go(average, weights, context, problem, config)
        assert value.shape == (count, BATCH)
        dead = valuation.dead_zone(average, context, problem, config)
        assert dead.shape == (count,)
        # The loss of the critics is defined for every number of constraints too.
        fractions = valuation.critic_fractions(jax.random.key(2), BATCH, config)
        targets = critics.cost_targets(
            jnp.ones((count, BATCH)), jnp.zeros(BATCH, bool), quantiles, 0.9
        )
        return critics.cost_loss(quantiles, fractions, targets, fractions.widths, 1.0)

    value = float(loss(members))
    assert np.isfinite(value) and (value > 0) == (count > 0)


def test_members_belong_to_constraints_in_turn():
    config, problem = make_config("implicit"), make_problem(2)
    members = cost_critics(problem, config)
    inputs, action = array(BATCH, 3), array(BATCH, 2, seed=1)
    levels = jnp.stack([jnp.linspace(0.1, 0.9, 8), jnp.linspace(0.8, 0.99, 8)])
    together = valuation.cost_quantiles(
        members, inputs, action, levels, problem, config
    )
    rows = jnp.concatenate([inputs, action], axis=-1)
    for c, e in itertools.product(range(2), range(3)):
        alone = networks.apply_implicit(members[3 * c + e], rows, levels[c])
        np.testing.assert_allclose(together[c, e], alone, atol=1e-6)


def test_scalar_risk_is_the_value_itself():
    problem, config = make_problem(2), make_config("scalar")
    quantiles = array(2, BATCH, 1)
    _, weights = valuation.fixed_levels(problem, config)
    value = valuation.risk_to_go(quantiles, weights, make_context(2), problem, config)
    np.testing.assert_allclose(value, quantiles[..., 0])


def test_critics_and_the_tables_of_an_evaluation_have_one_risk_function(monkeypatch):
    quantiles, problem = jnp.ones((1, BATCH, 8)), make_problem(1)
    config, context = make_config("implicit"), make_context(1)
    _, weights = valuation.fixed_levels(problem, config)
    seven = jnp.full((1, BATCH), 7.0)
    monkeypatch.setattr(risk, "risk_of", lambda quantiles, weights: seven)
    value = valuation.risk_to_go(quantiles, weights, context, problem, config)
    assert (value == 7).all()
    monkeypatch.setattr(risk, "risk_of", lambda quantiles, weights: seven[0, 0])
    assert result.risk_of_episodes(np.array([1.0, 2.0]), risk.cvar(0.5)) == 7
    assert "the same function, `risk.risk_of`" in (result.__doc__ or "")


def test_implicit_risk_looks_into_each_constraints_own_tail():
    problem, config = make_problem(2), make_config("implicit")
    levels, weights = valuation.fixed_levels(problem, config)
    # Tails 0.25 and 1: midpoints of eighths, and the same squeezed into [0.75, 1].
    even = (np.arange(8) + 0.5) / 8
    np.testing.assert_allclose(levels, [0.75 + 0.25 * even, even], rtol=1e-6)
    # For the quantile function of a uniform on [0, 1] the risks are 1 - tail / 2.
    value = valuation.risk_to_go(
        jnp.broadcast_to(levels[:, None], (2, BATCH, 8)),
        weights,
        make_context(2),
        problem,
        config,
    )
    np.testing.assert_allclose(value[:, 0], [0.875, 0.5], rtol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_random_levels_lie_in_the_tail_and_weigh_one(shared):
    problem = make_problem(2)
    config = make_config("implicit", shared_fractions=shared)
    levels, weights = valuation.policy_levels(jax.random.key(0), BATCH, problem, config)
    assert levels.shape == ((2, 8) if shared else (2, BATCH, 8))
    assert ((levels[0] > 0.75) & (levels[0] < 1)).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    members = cost_critics(problem, config)
    quantiles = valuation.cost_quantiles(
        members, array(BATCH, 3), array(BATCH, 2), levels, problem, config
    )
    value = valuation.risk_to_go(
        quantiles.mean(axis=1), weights, make_context(2), problem, config
    )
    assert value.shape == (2, BATCH)


def test_dual_risk_uses_each_constraints_own_pivot_and_tail():
    problem, config, context = make_problem(2), make_config("dual"), make_context(2)
    quantiles = 4 * array(2, BATCH, 8)
    value = valuation.risk_to_go(
        quantiles, jnp.full(8, 1 / 8), context, problem, config
    )
    for c, tail in enumerate((0.25, 1.0)):
        pivot = problem.limits[c] * context.pivot[:, c]
        expected = risk.dual_risk(quantiles[c], pivot, tail)
        np.testing.assert_allclose(value[c], expected, rtol=1e-6)


def test_what_is_left_and_what_the_episode_costs_are_inverse():
    context, values = make_context(2), array(2, BATCH)
    there = valuation.from_here(values, context, EPISODIC)
    assert not np.allclose(there, values)
    back = valuation.episode_risk(there, context, EPISODIC)
    np.testing.assert_allclose(back, values, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_outside_the_episodic_mode_nothing_is_converted(form):
    context, values, config = make_context(2), array(2, BATCH), make_config(form)
    np.testing.assert_array_equal(valuation.from_here(values, context, config), values)
    np.testing.assert_array_equal(
        valuation.episode_risk(values, context, config), values
    )


def test_paid_plus_discounted_cost_to_go_is_constant_along_an_episode():
    # A deterministic stream of costs: e_t + b_t Z_t is the episode's discounted cost at
    # every step, if e and b are those before the step.
    discount, costs = 0.9, np.array([1.0, 0.0, 3.0, 2.0, 5.0])
    whole = (discount ** np.arange(5) * costs).sum()
    paid, reached = 0.0, 1.0
    for t in range(5):
        left = (discount ** np.arange(5 - t) * costs[t:]).sum()
        context = Context(
            jnp.zeros((1, 1)), jnp.full((1, 1), paid), jnp.full(1, reached)
        )
        total = valuation.episode_risk(jnp.full((1, 1), left), context, EPISODIC)
        assert float(total[0, 0]) == pytest.approx(whole, rel=1e-5)
        # And the gate: the whole is above a pivot iff what is left is above it from here.
        for pivot in (whole - 0.1, whole + 0.1):
            here = valuation.from_here(jnp.full((1, 1), pivot), context, EPISODIC)
            assert (left >= float(here[0, 0])) == (whole >= pivot)
        paid, reached = paid + reached * costs[t], reached * discount


def test_the_episodic_dual_is_the_dual_of_the_whole_episodes_cost():
    problem, context = make_problem(2), make_context(2)
    quantiles = 4 * array(2, BATCH, 8)
    to_go = valuation.risk_to_go(
        quantiles, jnp.full(8, 1 / 8), context, problem, EPISODIC
    )
    value = valuation.episode_risk(to_go, context, EPISODIC)
    for c, tail in enumerate((0.25, 1.0)):
        paid, reached = context.accumulated_cost[:, c], context.accumulated_discount
        whole = paid[:, None] + reached[:, None] * quantiles[c]
        pivot = problem.limits[c] * context.pivot[:, c]
        np.testing.assert_allclose(
            value[c], risk.dual_risk(whole, pivot, tail), rtol=1e-4, atol=1e-4
        )


def test_the_mean_in_the_dual_form_is_cvar_of_everything_whatever_the_tail_says():
    config, context, quantiles = make_config("dual"), make_context(1), array(1, 4, 8)

    def risk_with(**settings):
        constraint = Constraint("a", limit=4.0, **settings)
        problem = valuation.make_problem(3, 2, (constraint,), 10, 0.9)
        weights = jnp.full(8, 1 / 8)
        return valuation.risk_to_go(quantiles, weights, context, problem, config)

    found = risk_with(risk="mean", tail=0.25)
    np.testing.assert_array_equal(found, risk_with(risk="cvar", tail=1.0))
    # By hand: what lies above the pivot, and the pivot itself where nothing does.
    pivot = float(make_problem(1).limits[0]) * np.asarray(context.pivot[:, 0])
    by_hand = np.maximum(quantiles[0], pivot[:, None]).mean(axis=1)
    np.testing.assert_allclose(found[0], by_hand, rtol=1e-5)


def test_an_episode_so_long_that_its_discount_vanished_has_finite_risks():
    problem, quantiles = make_problem(1), 4 * jnp.abs(array(1, BATCH, 8))
    reached = jnp.float32(0.99) ** jnp.array([0.0, 400.0, 5_000.0, 20_000.0])
    assert float(reached[-1]) == 0
    context = Context(jnp.full((BATCH, 1), 0.5), jnp.full((BATCH, 1), 1.3), reached)
    weights = jnp.full(8, 1 / 8)

    def episode(quantiles):
        to_go = valuation.risk_to_go(quantiles, weights, context, problem, EPISODIC)
        return valuation.episode_risk(to_go, context, EPISODIC)

    assert np.isfinite(episode(quantiles)).all()
    assert np.isfinite(jax.grad(lambda q: episode(q).sum())(quantiles)).all()


def test_a_fresh_context_has_paid_nothing():
    context = Context.start(3, jnp.array([0.2, 0.7]))
    np.testing.assert_allclose(context.pivot, np.tile([0.2, 0.7], (3, 1)))
    np.testing.assert_array_equal(context.accumulated_cost, np.zeros((3, 2)))
    np.testing.assert_array_equal(context.accumulated_discount, np.ones(3))
    # At an episode's start the two modes agree.
    values = array(2, 3)
    np.testing.assert_array_equal(
        valuation.from_here(values, context, EPISODIC), values
    )


def test_the_dead_zone_is_the_share_of_rows_wholly_below_the_pivot():
    problem, config = make_problem(1), make_config("dual")
    pivot = float(problem.limits[0]) * 0.5
    context = Context.start(BATCH, jnp.array([0.5]))
    below, astride = np.full(8, pivot - 1), np.r_[np.full(7, pivot - 1), pivot + 1]
    quantiles = jnp.asarray(np.stack([below, astride, below, below]), jnp.float32)[None]
    dead = valuation.dead_zone(quantiles, context, problem, config)
    np.testing.assert_allclose(dead, [0.75])

    def total(q):
        weights = jnp.full(8, 1 / 8)
        return valuation.risk_to_go(q, weights, context, problem, config).sum()

    gradient = np.asarray(jax.grad(total)(quantiles))[0]
    assert [(row != 0).any() for row in gradient] == [False, True, False, False]
    # The other forms have none.
    for form in ("scalar", "implicit"):
        none = valuation.dead_zone(quantiles, context, problem, make_config(form))
        np.testing.assert_array_equal(none, 0)


@pytest.mark.parametrize("form, count", CASES)
def test_bounds_are_the_optimistic_values_of_the_critics(form, count):
    config, problem, context = (
        make_config(form),
        make_problem(count),
        make_context(count),
    )
    reward = reward_critics(problem, config)
    cost = cost_critics(problem, config)
    inputs = valuation.condition(array(BATCH, 3), context, config)
    action = jnp.tanh(array(BATCH, 2, seed=1))
    bounds = valuation.make_bounds(reward, cost, inputs, context, problem, config)
    reward_bound, cost_bound = jax.jit(bounds)(action)
    values = np.asarray(valuation.reward_values(reward, inputs, action), np.float64)
    # 4 and 1 are the default optimisms; the spread of two is half their difference.
    expected = values.mean(axis=0) + 4 * np.abs(values[0] - values[1]) / 2
    np.testing.assert_allclose(reward_bound, expected, rtol=1e-4, atol=1e-5)
    assert cost_bound.shape == (count, BATCH)
    if not count:
        return
    levels, weights = valuation.fixed_levels(problem, config)
    quantiles = np.asarray(
        valuation.cost_quantiles(cost, inputs, action, levels, problem, config),
        np.float64,
    )
    optimistic = quantiles.mean(axis=1) - quantiles.std(axis=1)
    below = valuation.risk_to_go(
        jnp.asarray(optimistic, jnp.float32), weights, context, problem, config
    )
    np.testing.assert_allclose(cost_bound, below, rtol=1e-4, atol=1e-5)
    # Optimistic means below the risk of the ensemble's mean.
    plain = valuation.risk_to_go(
        jnp.asarray(quantiles.mean(axis=1), jnp.float32),
        weights,
        context,
        problem,
        config,
    )
    assert (np.asarray(cost_bound) <= np.asarray(plain) + 1e-6).all()
