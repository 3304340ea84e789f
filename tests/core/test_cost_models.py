"""Tests of the risk forms: quantiles, risks and bounds with no, one and two constraints."""

import functools
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from orac.config.schema import AgentConfig, Constraint, PivotConfig
from orac.core import agent as agent_core
from orac.core import cost_models, critics, exploration, risk
from orac.core.cost_models import Context, Quantiles
from orac.core.risk_forms import dual, make_learner
from orac.core.risk_forms.fixed_quantiles import grid_quantiles
from orac.core.risk_forms.implicit import (
    apply_network,
    level_quantiles,
    tail_levels,
)
from orac.evaluation import episodes

FORMS = ("scalar", "quantile", "implicit", "dual")
CONSTRAINTS = (Constraint("a", limit=4.0, tail=0.25), Constraint("b", limit=8.0))
BATCH = 4
CASES = tuple(itertools.product(FORMS, (0, 1, 2)))


@functools.cache
def make_costs(problem, config):
    return make_learner(problem, config).costs


@functools.cache
def cost_critics(problem, config):
    return make_costs(problem, config).init(jax.random.key(0))


def risk_at(key, members, rows, problem, config):
    """Risk of the ensemble's average, as the actor's loss takes it."""
    costs = make_costs(problem, config)
    found = costs.policy_quantiles(key, members, *rows)
    context = make_context(problem.num_constraints)
    return costs.risk(found.values.mean(axis=1), found.fractions.widths, context)


def make_config(form, **changes):
    settings = dict(hidden_sizes=(8, 8), embedding_size=6, num_quantiles=8)
    settings |= dict(num_policy_quantiles=8, num_cost_critics=3)
    return AgentConfig(risk_form=form, **(settings | changes))


def make_problem(count):
    return cost_models.make_problem(3, 2, CONSTRAINTS[:count], 10, 0.9)


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


@pytest.mark.parametrize(
    "limit, discount, length, expected",
    [
        (10.0, 0.99, 400, 2.4551),  # Safety-Gymnasium
        (720.0, 0.99, 719, 100.07),  # CityLearn
        (5.0, 0.9999, 100, 4.9753),  # GuardedMaze
        (7.0, 1.0, 123, 7.0),
        (7.0, 0.5, 1, 7.0),
        (0.0, 0.99, 100, 0.0),
    ],
)
def test_an_episode_limit_becomes_a_critic_limit(limit, discount, length, expected):
    value = cost_models.cost_value_limit(limit, discount, length)
    assert value == pytest.approx(expected, rel=5e-5)
    # The discounted sum of an episode that pays its limit evenly.
    paid = sum(discount**t * limit / length for t in range(length))
    assert value == pytest.approx(paid, rel=1e-12)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((-1.0, 0.99, 10), "cost_limit must be at least 0, got -1"),
        ((float("nan"), 0.99, 10), "at least 0, got nan. It is the limit per"),
        ((float("inf"), 0.99, 10), "at least 0, got inf"),
        ((1.0, 0.0, 10), r"cost discount must be in \(0, 1\], got 0.0"),
        ((1.0, 1.5, 10), r"cost discount must be in \(0, 1\], got 1.5"),
        ((1.0, float("nan"), 10), "cost discount must be in .* got nan"),
        ((1.0, 0.99, 0), "episode_length must be at least 1, got 0. Pass"),
        (
            (1.0, 0.99, float("nan")),
            "episode_length must be at least 1, got",
        ),
        (
            (1.0, 0.99, "100"),
            "episode_length must be at least 1, got '100'",
        ),
    ],
)
def test_bad_limits_are_refused(arguments, text):
    # Unwrapped: the types that only tests check would refuse text before we do.
    with pytest.raises(ValueError, match=text):
        inspect.unwrap(cost_models.cost_value_limit)(*arguments)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_dual_form_shows_its_pivots_to_the_networks(form):
    config, problem, context = make_config(form), make_problem(2), make_context(2)
    observation = array(BATCH, 3)
    costs = make_costs(problem, config)
    inputs = costs.network_inputs(observation, context)
    assert inputs.shape[1] == costs.input_size
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

    costs, members = make_costs(problem, config), cost_critics(problem, config)
    assert len(members) == 3 * count
    inputs = costs.network_inputs(array(BATCH, 3), context)
    action, keys = array(BATCH, 2, seed=1), jax.random.split(jax.random.key(1), 3)

    @jax.jit
    def loss(members):
        found = costs.policy_quantiles(keys[0], members, inputs, action)
        assert found.values.shape == (count, 3, BATCH, size)
        average = found.values.mean(axis=1)
        risks = costs.risk(average, found.fractions.widths, context)
        assert risks.shape == (count, BATCH)
        metrics = costs.metrics(average, context)
        assert len(metrics) == (count if form == "dual" else 0)
        # The loss of the critics is defined for every number of constraints too.
        predicted = costs.critic_quantiles(keys[1], members, inputs, action)
        targets = costs.critic_quantiles(keys[2], members, inputs, action)
        targets = targets._replace(values=1 + 0.9 * targets.values)
        return costs.loss(predicted, targets, 1.0)

    value = float(loss(members))
    assert np.isfinite(value) and (value > 0) == (count > 0)


def test_members_belong_to_constraints_in_turn():
    config, problem = make_config("implicit"), make_problem(2)
    members = cost_critics(problem, config)
    inputs, action = array(BATCH, 3), array(BATCH, 2, seed=1)
    levels = jnp.stack([jnp.linspace(0.1, 0.9, 8), jnp.linspace(0.8, 0.99, 8)])
    together = level_quantiles(members, inputs, action, levels, problem, config)
    rows = jnp.concatenate([inputs, action], axis=-1)
    for c, e in itertools.product(range(2), range(3)):
        alone = apply_network(members[3 * c + e], rows, levels[c])
        np.testing.assert_allclose(together[c, e], alone, atol=1e-6)


def test_scalar_risk_is_the_mean_of_the_ensemble():
    problem, config = make_problem(2), make_config("scalar")
    members, rows = cost_critics(problem, config), (array(BATCH, 3), array(BATCH, 2))
    found = risk_at(jax.random.key(0), members, rows, problem, config)
    values = grid_quantiles(members, *rows, 1, problem, config)
    np.testing.assert_allclose(found, values[..., 0].mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize("tail", [1.0, 0.5, 0.25, 0.1, 0.05])
def test_quantile_risk_is_the_cvar_of_the_fitted_distribution(tail):
    # The midpoints of 32 equal atoms of an exponential distribution, whose CVaR is
    # 1 - log(tail); the grid's own CVaR is exact, and close to the distribution's.
    levels = (np.arange(32) + 0.5) / 32
    quantiles = jnp.asarray(-np.log1p(-levels), jnp.float32)
    constraints = (Constraint("a", limit=4.0, tail=tail),)
    problem = cost_models.make_problem(3, 2, constraints, 10, 0.9)
    config = make_config("quantile", num_quantiles=32)
    widths = jnp.full(32, 1 / 32)
    found = make_costs(problem, config).risk(
        quantiles[None, None], widths, make_context(1, batch=1)
    )
    upper = np.arange(1, 33) / 32
    covered = np.clip(upper - (1 - tail), 0, 1 / 32) / tail
    np.testing.assert_allclose(found[0, 0], (covered * quantiles).sum(), rtol=1e-5)
    assert float(found[0, 0]) == pytest.approx(1 - np.log(tail), rel=0.1)


def test_quantile_critics_learn_the_quantiles_of_their_targets():
    # One state and costs 2 with probability 0.85 and 20 with 0.15: CVaR at 0.05 is 20.
    constraints = (Constraint("a", limit=4.0, tail=0.05),)
    problem = cost_models.make_problem(1, 1, constraints, 10, 0.9)
    config = make_config("quantile", num_cost_critics=1, kappa=0.1)
    costs = make_costs(problem, config)
    members = costs.init(jax.random.key(0))
    optimizer = optax.adam(0.02)
    rows = jnp.ones((64, 1)), jnp.zeros((64, 1))

    def step(carry, key):
        members, state = carry
        cost = jnp.where(jax.random.uniform(key, (64,)) < 0.15, 20.0, 2.0)
        fractions = critics.uniform_fractions(1)
        targets = Quantiles(cost[None, None, :, None], fractions)

        def loss(members):
            predicted = costs.critic_quantiles(key, members, *rows)
            return costs.loss(predicted, targets, config.kappa)

        updates, state = optimizer.update(jax.grad(loss)(members), state)
        return (optax.apply_updates(members, updates), state), None

    start = (members, optimizer.init(members))
    keys = jax.random.split(jax.random.key(1), 3000)
    (members, _), _ = jax.jit(lambda s: jax.lax.scan(step, s, keys))(start)
    found = costs.policy_quantiles(None, members, *rows).values[0, 0, 0]
    # Levels 1/16 ... 13/16 are below 0.85 and 15/16 is above it.
    np.testing.assert_allclose(found[:6], 2.0, atol=0.5)
    np.testing.assert_allclose(found[7], 20.0, atol=1.0)
    risks = costs.risk(found[None, None], jnp.full(8, 1 / 8), make_context(1, batch=1))
    assert float(risks[0, 0]) == pytest.approx(20, abs=1.0)


def test_critics_and_the_tables_of_an_evaluation_have_one_risk_function(monkeypatch):
    problem, config = make_problem(1), make_config("implicit")
    members, rows = cost_critics(problem, config), (array(BATCH, 3), array(BATCH, 2))
    seven = jnp.full((1, BATCH), 7.0)
    monkeypatch.setattr(risk, "risk_of", lambda quantiles, weights: seven)
    assert (risk_at(jax.random.key(0), members, rows, problem, config) == 7).all()
    monkeypatch.setattr(risk, "risk_of", lambda quantiles, weights: seven[0, 0])
    assert episodes.risk_of_episodes(np.array([1.0, 2.0]), risk.cvar(0.5)) == 7


def test_implicit_risk_looks_into_each_constraints_own_tail():
    problem, even = make_problem(2), critics.uniform_fractions(8)
    levels = tail_levels(even, problem)
    # Tails 0.25 and 1: midpoints of eighths, and the same squeezed into [0.75, 1].
    wanted = (np.arange(8) + 0.5) / 8
    np.testing.assert_allclose(levels, [0.75 + 0.25 * wanted, wanted], rtol=1e-6)
    # For the quantile function of a uniform on [0, 1] the risks are 1 - tail / 2.
    value = risk.risk_of(levels, even.widths)
    np.testing.assert_allclose(value, [0.875, 0.5], rtol=1e-6)


@pytest.mark.parametrize("shape", [(8,), (BATCH, 8)])
def test_random_levels_lie_in_the_tail(shape):
    fractions = critics.sample_fractions(jax.random.key(0), shape)
    levels = tail_levels(fractions, make_problem(2))
    assert levels.shape == (2, *shape)
    assert ((levels[0] > 0.75) & (levels[0] < 1)).all()
    np.testing.assert_allclose(fractions.widths.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_implicit_risk_is_a_weighted_sum_at_random_levels_of_the_tail(shared):
    problem = make_problem(2)
    config = make_config("implicit", shared_fractions=shared)
    members, key = cost_critics(problem, config), jax.random.key(0)
    rows = array(BATCH, 3), array(BATCH, 2)
    found = risk_at(key, members, rows, problem, config)
    fractions = critics.sample_fractions(key, (8,) if shared else (BATCH, 8))
    levels = tail_levels(fractions, problem)
    quantiles = level_quantiles(members, *rows, levels, problem, config)
    wanted = (quantiles.mean(axis=1) * fractions.widths).sum(axis=-1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_dual_risk_uses_each_constraints_own_pivot_and_tail():
    problem, config, context = make_problem(2), make_config("dual"), make_context(2)
    quantiles = 4 * array(2, BATCH, 8)
    value = dual.risk_to_go(quantiles, context, problem, config)
    for c, tail in enumerate((0.25, 1.0)):
        pivot = problem.limits[c] * context.pivot[:, c]
        expected = risk.dual_risk(quantiles[c], pivot, tail)
        np.testing.assert_allclose(value[c], expected, rtol=1e-6)


def test_what_is_left_and_what_the_episode_costs_are_inverse():
    context, values = make_context(2), array(2, BATCH)
    there = dual.to_remaining_cost(values, context, EPISODIC)
    assert not np.allclose(there, values)
    back = dual.episode_risk(there, context, EPISODIC)
    np.testing.assert_allclose(back, values, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_outside_the_episodic_mode_nothing_is_converted(form):
    problem, context, values = make_problem(2), make_context(2), array(2, BATCH)
    costs = make_costs(problem, make_config(form))
    limits, unit = costs.remaining_limits(context)
    np.testing.assert_array_equal(limits, problem.limits[:, None])
    assert unit == 1
    np.testing.assert_array_equal(costs.episode_risk(values, context), values)


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
        total = dual.episode_risk(jnp.full((1, 1), left), context, EPISODIC)
        assert float(total[0, 0]) == pytest.approx(whole, rel=1e-5)
        # And the gate: the whole is above a pivot iff what is left is above it from here.
        for pivot in (whole - 0.1, whole + 0.1):
            here = dual.to_remaining_cost(jnp.full((1, 1), pivot), context, EPISODIC)
            assert (left >= float(here[0, 0])) == (whole >= pivot)
        paid, reached = paid + reached * costs[t], reached * discount


def test_the_episodic_dual_is_the_dual_of_the_whole_episodes_cost():
    problem, context = make_problem(2), make_context(2)
    quantiles = 4 * array(2, BATCH, 8)
    to_go = dual.risk_to_go(quantiles, context, problem, EPISODIC)
    value = dual.episode_risk(to_go, context, EPISODIC)
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
        problem = cost_models.make_problem(3, 2, (constraint,), 10, 0.9)
        return dual.risk_to_go(quantiles, context, problem, config)

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

    def episode(quantiles):
        to_go = dual.risk_to_go(quantiles, context, problem, EPISODIC)
        return dual.episode_risk(to_go, context, EPISODIC)

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
        dual.to_remaining_cost(values, context, EPISODIC), values
    )


def test_the_dead_zone_is_the_share_of_rows_wholly_below_the_pivot():
    problem, config = make_problem(1), make_config("dual")
    pivot = float(problem.limits[0]) * 0.5
    context = Context.start(BATCH, jnp.array([0.5]))
    below, astride = np.full(8, pivot - 1), np.r_[np.full(7, pivot - 1), pivot + 1]
    quantiles = jnp.asarray(np.stack([below, astride, below, below]), jnp.float32)[None]
    dead = dual.no_gradient_fraction(quantiles, context, problem, config)
    np.testing.assert_allclose(dead, [0.75])

    def total(q):
        return dual.risk_to_go(q, context, problem, config).sum()

    gradient = np.asarray(jax.grad(total)(quantiles))[0]
    assert [(row != 0).any() for row in gradient] == [False, True, False, False]


@pytest.mark.parametrize("form, count", CASES)
def test_bounds_are_the_optimistic_values_of_the_critics(form, count):
    config, problem, context = (
        make_config(form),
        make_problem(count),
        make_context(count),
    )
    learner = make_learner(problem, config)
    agent = agent_core.init(jax.random.key(1), learner)
    cost, costs = agent.cost_critics.params, learner.costs
    inputs = costs.network_inputs(array(BATCH, 3), context)
    action = jnp.tanh(array(BATCH, 2, seed=1))

    @jax.jit
    def bound(action):
        found = costs.policy_quantiles(None, cost, inputs, action)
        lower = exploration.optimistic_quantiles(found.values.swapaxes(0, 1), 1.0)
        return costs.risk(lower, found.fractions.widths, context)

    cost_bound = bound(action)
    assert cost_bound.shape == (count, BATCH)
    if not count:
        return
    if form == "implicit":
        even = critics.uniform_fractions(8)
        levels = tail_levels(even, problem)
        quantiles = level_quantiles(cost, inputs, action, levels, problem, config)
    else:
        even = critics.uniform_fractions(1 if form == "scalar" else 8)
        size = len(even.levels)
        quantiles = grid_quantiles(cost, inputs, action, size, problem, config)

    def risk_of(quantiles):
        rows = jnp.asarray(quantiles, jnp.float32)
        if form == "dual":
            return dual.risk_to_go(rows, context, problem, config)
        if form == "quantile":
            return jnp.stack(
                [
                    risk.risk_of(rows[m], risk.level_weights(c.measure, even.widths))
                    for m, c in enumerate(problem.constraints)
                ]
            )
        return risk.risk_of(rows, even.widths)

    quantiles = np.asarray(quantiles, np.float64)
    below = risk_of(quantiles.mean(axis=1) - quantiles.std(axis=1))
    np.testing.assert_allclose(cost_bound, below, rtol=1e-4, atol=1e-5)
    # Optimistic means below the risk of the ensemble's mean.
    plain = risk_of(quantiles.mean(axis=1))
    assert (np.asarray(cost_bound) <= np.asarray(plain) + 1e-6).all()
