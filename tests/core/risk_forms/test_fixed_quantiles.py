"""Tests of tabular quantile critics: bootstrapped to convergence, they give known answers.

A table has one row per state. It is solved from the last step of an episode to the first:
each step is fitted by gradient descent to targets that bootstrap from the step after it.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.agent_examples import make_batch, problem_for, small_config
from orac.core import critics, risk
from orac.core.cost_models import Quantiles
from orac.core.critics import Fractions
from orac.core.risk_forms.fixed_quantiles import (
    loss_with_mean,
    quantile_loss,
    quantile_model,
    recentred,
)

K = 32
GRID = critics.uniform_fractions(K)


@partial(jax.jit, static_argnames=("kappa", "gradient_steps"))
def solve(chance, cost, following, kappa, gradient_steps):
    """Quantiles and mean of the first step, (state, K + 1).

    `chance` and `cost` are (step, state, outcome), the last step first. Outcome o leads
    from state s to state `following[s, o]`.
    """
    num_states = chance.shape[1]
    rate = optax.polynomial_schedule(0.2, 0.0, 2, gradient_steps)
    optimizer = optax.adam(rate, b1=0.8, b2=0.9)

    def solve_step(table, now):
        chance, cost = now
        atoms = (cost[..., None] + table[following][..., :-1]).reshape(num_states, -1)
        mean = (chance * (cost + table[following][..., -1])).sum(axis=1)
        values = jnp.concatenate([atoms, mean[:, None]], axis=1)[None, None]
        widths = jnp.repeat(chance / K, K, axis=1)
        targets = Quantiles(values, Fractions(widths, widths))

        def loss(table):
            return loss_with_mean(Quantiles(table[None, None], GRID), targets, kappa)

        def descend(carry, _):
            table, state = carry
            updates, state = optimizer.update(jax.grad(loss)(table), state)
            return (optax.apply_updates(table, updates), state), None

        start = table, optimizer.init(table)
        (table, _), _ = jax.lax.scan(descend, start, None, gradient_steps)
        return table, None

    table = jnp.zeros((num_states, K + 1))
    return jax.lax.scan(solve_step, table, (chance, cost))[0]


def cvar(quantiles, tail):
    weights = risk.level_weights(risk.cvar(tail), GRID.widths)
    return float(risk.risk_of(jnp.sort(quantiles), weights))


def shifted(table):
    """The quantiles after recentring, (state, K)."""
    return recentred(Quantiles(table[None, None], GRID)).values[0, 0]


def chain(kappa, n_step=1):
    """30 steps; the last costs 10 with probability 0.3735. CVaR 0.5 is 7.47."""
    steps = 30 // n_step
    chance = np.tile(np.float32([0.6265, 0.3735]), (steps, 1, 1))
    cost = np.zeros((steps, 1, 2), np.float32)
    cost[0, 0, 1] = 10
    return solve(chance, cost, np.zeros((1, 2), int), kappa, 400)


def test_the_tail_of_a_chain_of_thirty_steps():
    table = chain(kappa=0.1)
    assert cvar(table[0, :-1], 0.5) == pytest.approx(7.47, rel=0.1)
    assert table[0, -1] == pytest.approx(3.735, rel=0.01)


def test_a_kappa_of_a_tenth_of_the_cost_erases_the_tail_of_a_chain():
    assert cvar(chain(kappa=1.0)[0, :-1], 0.5) < 5


def test_three_steps_at_once_read_the_tail_of_a_chain_more_closely():
    once, thrice = (cvar(chain(0.1, n)[0, :-1], 0.5) for n in (1, 3))
    assert thrice == pytest.approx(7.47, rel=0.05)
    assert abs(thrice - 7.47) < abs(once - 7.47)


def test_recentred_quantiles_of_a_chain_are_within_five_per_cent():
    table = shifted(chain(kappa=0.05))
    assert cvar(table[0], 0.5) == pytest.approx(7.47, rel=0.05)
    np.testing.assert_allclose(table[0].mean(), 3.735, rtol=0.01)


def simulated_hazard(episodes=1_000_000):
    """The mean cost of 400 steps in which bursts of ten steps start at 0.0026 a step.

    Waiting times between bursts are geometric, so few numbers are drawn.
    """
    generator = np.random.default_rng(0)
    free_from, total = np.zeros(episodes, int), np.zeros(episodes)
    while (free_from < 400).any():
        start = free_from + generator.geometric(0.0026, episodes) - 1
        total += np.clip(400 - start, 0, 10)
        free_from = start + 10
    return total.mean()


def test_rare_bursts_of_cost_are_kept_by_the_mean_and_lost_by_the_quantiles():
    # State r has r steps of a burst left; a step of state 0 may start one.
    chance, cost = np.zeros((10, 2), np.float32), np.ones((10, 2), np.float32)
    following = np.tile(np.arange(-1, 9)[:, None], 2)
    chance[:, 0], chance[0] = 1, (1 - 0.0026, 0.0026)
    cost[0, 0], following[0] = 0, (0, 9)
    steps = [np.tile(x, (400, 1, 1)) for x in (chance, cost)]
    table = solve(*steps, following, 0.2, 60)
    answer = simulated_hazard()
    assert answer == pytest.approx(10.05, abs=0.05)
    assert float(shifted(table)[0].mean()) == pytest.approx(answer, rel=0.05)
    # A burst is rarer at each step than a quantile is wide.
    assert table[0, :-1].mean() < 0.2 * answer


def test_a_recentred_model_shifts_its_quantiles_to_its_mean():
    config = small_config("wcsac", risk_form="quantile", recentre_quantiles=True)
    model = quantile_model(problem_for(config), config.agent)
    members = jax.jit(model.init)(jax.random.key(0))
    batch = make_batch(config)
    arguments = None, members, batch.observation, batch.action
    raw, policy = model.critic_quantiles(*arguments), model.policy_quantiles(*arguments)
    assert raw.values.shape[-1] == config.agent.num_quantiles + 1
    assert policy.values.shape[-1] == config.agent.num_quantiles
    np.testing.assert_allclose(
        policy.values.mean(axis=-1), raw.values[..., -1], atol=1e-6
    )
    # Its shape stays as it was.
    np.testing.assert_allclose(
        jnp.diff(policy.values), jnp.diff(raw.values[..., :-1]), atol=1e-6
    )


def test_the_loss_with_a_mean_is_the_quantile_loss_plus_a_squared_error():
    keys = jax.random.split(jax.random.key(1))
    predicted, targets = (
        Quantiles(jax.random.normal(key, (1, 2, 4, K + 1)), GRID) for key in keys
    )
    rows = critics.quantile_loss(
        predicted.values[..., :-1],
        GRID.levels,
        targets.values[..., :-1],
        GRID.widths,
        0.3,
    )
    error = predicted.values[..., -1] - targets.values[..., -1]
    expected = (rows + error**2).mean(axis=-1).sum()
    np.testing.assert_allclose(
        loss_with_mean(predicted, targets, 0.3), expected, rtol=1e-5
    )


def test_a_loss_without_members_is_zero():
    nothing = Quantiles(jnp.zeros((0, 2, 4, K)), GRID)
    assert float(quantile_loss(nothing, nothing, 1.0)) == 0


def test_only_the_quantile_form_can_be_recentred():
    with pytest.raises(ValueError, match=r"recentre_quantiles needs .* 'quantile'"):
        small_config("wcsac", risk_form="implicit", recentre_quantiles=True)
