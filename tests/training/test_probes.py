"""Tests of every agent in tiny environments with known solutions (see `helpers/probes.py`).

The quick tests cover only some agents, because compiling each takes about ten seconds.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from helpers.probes import (
    HERE,
    ActionMatters,
    FixedReward,
    SeenReward,
    TwoAtoms,
    TwoCosts,
    TwoDoors,
    TwoSteps,
    choice_at,
    practise,
    probe_config,
    quantiles_at,
    values_at,
    with_agent,
)
from orac.core import critics
from orac.core.agent import deployed_policy
from orac.training.device_loop import DeviceRunner

SCALAR = ("sac-lag",)
IMPLICIT = ("wcsac-iqn", "orac-iqn")
DUAL = ("wcsac-lin", "orac-lin")
EVERY_AGENT = (*SCALAR, *IMPLICIT, *DUAL)


def agents_of(algos, quick=()):
    return pytest.mark.parametrize(
        "algo",
        [pytest.param(a, marks=() if a in quick else pytest.mark.slow) for a in algos],
    )


def costs_at(state, observation, env, config):
    """Every member's quantiles for three actions: (member and action, quantile)."""
    actions = (-0.6, 0.0, 0.6)
    found = [quantiles_at(state, observation, a, env, config)[0] for a in actions]
    return np.concatenate(found)


@agents_of(EVERY_AGENT)
def test_one_step_is_worth_its_reward_and_costs_its_cost(algo):
    env, config = FixedReward(), probe_config(algo)
    state, _ = practise(env, config, rounds=130)
    np.testing.assert_allclose(values_at(state, HERE, 0.3, env, config), 3.0, atol=0.06)
    np.testing.assert_allclose(costs_at(state, HERE, env, config), 1.0, atol=0.06)


@agents_of(EVERY_AGENT)
def test_critics_tell_observations_apart(algo):
    env, config = SeenReward(), probe_config(algo)
    state, _ = practise(env, config, rounds=140)
    for sign in (1.0, -1.0):
        seen = sign * HERE
        np.testing.assert_allclose(
            values_at(state, seen, 0.3, env, config), sign, atol=0.06
        )
        costs = costs_at(state, seen, env, config)
        np.testing.assert_allclose(costs, 3 + sign, atol=0.2)


@agents_of(EVERY_AGENT, quick=("orac-iqn", "orac-lin"))
def test_what_comes_a_step_later_is_discounted_once(algo):
    env, config = TwoSteps(), probe_config(algo)
    state, _ = practise(env, config, rounds=170)
    last = values_at(state, jnp.array(env.second), 0.3, env, config)
    np.testing.assert_allclose(last, 2.0, atol=0.06)
    # Reward 0.9 * 2 and cost 0.8 * 5: the two discounts are apart.
    first = values_at(state, HERE, 0.3, env, config)
    np.testing.assert_allclose(first, 1.8, atol=0.06)
    last_costs = costs_at(state, jnp.array(env.second), env, config)
    np.testing.assert_allclose(last_costs, 5.0, atol=0.3)
    first_costs = costs_at(state, HERE, env, config)
    np.testing.assert_allclose(first_costs, 4.0, atol=0.3)


@agents_of(EVERY_AGENT, quick=("orac-lin",))
def test_the_best_action_is_found_and_a_slack_limit_lets_the_multiplier_go(algo):
    env, config = ActionMatters(), probe_config(algo)
    state, history = practise(env, config, rounds=140, multiplier=1.0)
    assert choice_at(state, HERE, env, config) == pytest.approx(0.5, abs=0.08)
    assert choice_at(state, -HERE, env, config) == pytest.approx(-0.5, abs=0.08)
    multiplier = history["constraint/multiplier/cost"]
    assert multiplier[0] > 0.9
    assert (multiplier[-20:] == 0).all()


@agents_of(EVERY_AGENT, quick=("sac-lag", "orac-iqn", "orac-lin"))
def test_a_multiplier_stays_at_zero_while_risk_is_below_the_limit(algo):
    _, history = practise(ActionMatters(), probe_config(algo), rounds=110)
    # Fresh critics know nothing; even so their costs are far below 9.
    risk, limit = (history[f"constraint/{word}/cost"] for word in ("risk", "limit"))
    assert (risk < limit).all()
    assert (history["constraint/multiplier/cost"] == 0).all()


@agents_of((*IMPLICIT, *DUAL), quick=("orac-iqn",))
def test_learned_quantiles_are_the_two_atoms(algo):
    env, config = TwoAtoms(), probe_config(algo)
    state, history = practise(env, config, rounds=180)
    levels = np.asarray(critics.uniform_fractions(config.agent.num_quantiles).levels)
    found = costs_at(state, HERE, env, config).mean(axis=0)
    # The Huber loss is square within kappa = 1 of an atom, where its slope is the error:
    # below level 0.85, (1 - p)(1 - level)(q - 2) = p level; above it, by symmetry,
    # p level (20 - q) = (1 - p)(1 - level).
    odds, chance = levels / (1 - levels), 0.15 / 0.85
    low, high = 2 + chance * odds, 20 - 1 / (chance * odds)
    is_low, is_high = levels < 0.8, levels > 0.9
    np.testing.assert_allclose(found[is_low], low[is_low], atol=0.5)
    np.testing.assert_allclose(found[is_high], high[is_high], atol=1.5)
    # CVaR at 0.1 is 20, or in the dual form at a pivot of 4.5 an upper bound of it:
    # 2 of the 16 quantiles are high, (20 - 4.5) / 8 / 0.1 + 4.5 = 23.9.
    risk = history["constraint/risk/cost"][-30:].mean()
    assert risk == pytest.approx(23.9 if algo in DUAL else 20.0, abs=2.0)


@pytest.mark.slow
def test_a_scalar_cost_critic_learns_the_mean_of_the_two_atoms():
    env, config = TwoAtoms(), probe_config("sac-lag")
    _, history = practise(env, config, rounds=180)
    assert history["constraint/risk/cost"][-60:].mean() == pytest.approx(4.7, abs=0.5)


DOORS = {"rounds": 184, "temperature": 3.0}
"""Some entropy: without it a Lagrangian has no reason to settle between two doors."""


@agents_of((*IMPLICIT, *DUAL), quick=("orac-iqn", "orac-lin"))
def test_cvar_takes_the_safe_door(algo):
    _, history = practise(TwoDoors(), probe_config(algo), **DOORS)
    assert history["choice"][-40:].mean() < -0.3
    assert history["constraint/multiplier/cost"][-1] > 0.2
    # As much risk as the limit allows.
    assert history["constraint/risk/cost"][-40:].mean() == pytest.approx(9.0, abs=1.0)


@agents_of(SCALAR, quick=SCALAR)
def test_the_mean_takes_the_risky_door(algo):
    _, history = practise(TwoDoors(), probe_config(algo), **DOORS)
    assert history["choice"][-40:].mean() > 0.3
    assert history["constraint/multiplier/cost"][-1] == 0


@agents_of(("wcsac-iqn", "wcsac-lin"))
def test_cvar_of_nearly_everything_takes_the_risky_door(algo):
    # 4 / 0.9 = 4.4 is below 9, and so is the dual form at 4.5: 35.5 * 0.1 / 0.9 + 4.5.
    _, history = practise(TwoDoors(), probe_config(algo, tail=0.9), **DOORS)
    assert history["choice"][-40:].mean() > 0.3
    assert history["constraint/multiplier/cost"][-1] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("tail", "kept"), [(0.25, False), (0.6, True)])
def test_the_tail_decides_on_either_side_of_the_crossing(tail, kept):
    # The risky door's CVaR is 4 / 0.25 = 16 or 4 / 0.6 = 6.7, the limit 9.
    config = probe_config("wcsac-iqn", tail=tail)
    _, history = practise(TwoDoors(), config, **DOORS)
    multiplier = history["constraint/multiplier/cost"][-40:].mean()
    if kept:
        assert multiplier < 0.02
        assert history["choice"][-40:].mean() > 0.3
    else:
        assert multiplier > 0.05


@pytest.mark.slow
def test_plain_sac_values_steps_as_the_others_do():
    config, env = probe_config("sac"), FixedReward()
    state, _ = practise(env, config, rounds=130)
    np.testing.assert_allclose(values_at(state, HERE, 0.3, env, config), 3.0, atol=0.06)
    env = TwoSteps()
    state, _ = practise(env, config, rounds=170)
    np.testing.assert_allclose(values_at(state, HERE, 0.3, env, config), 1.8, atol=0.06)
    last = values_at(state, jnp.array(env.second), 0.3, env, config)
    np.testing.assert_allclose(last, 2.0, atol=0.06)


@agents_of(EVERY_AGENT)
def test_of_two_constraints_only_the_binding_one_weighs(algo):
    config = probe_config(algo, num_costs=2)
    _, history = practise(TwoCosts(), config, rounds=250)
    last = {name: values[-40:].mean() for name, values in history.items()}
    assert last["constraint/risk/cost"] == pytest.approx(9.0, abs=0.6)
    assert last["constraint/multiplier/other"] == 0
    if algo in DUAL:
        # The dual form is an upper bound until its pivot is the value at risk, so it
        # keeps some distance, and the outer step moves the pivot towards it from 4.5.
        pivot = last["constraint/pivot/cost"]
        assert pivot > 5.5
        allowed = pivot + 0.1 * (9 - pivot)
        assert 10 * (1 + last["choice"]) == pytest.approx(allowed, abs=0.6)
        assert last["constraint/multiplier/cost"] > 0.01
    else:
        assert last["choice"] == pytest.approx(-0.1, abs=0.05)
        assert last["constraint/multiplier/cost"] == pytest.approx(0.18, abs=0.02)


@pytest.mark.slow
def test_the_compiled_loop_finds_the_safe_door_too():
    config = with_agent(probe_config("orac-iqn"), initial_temperature=3.0)
    config = replace(config, training=replace(config.training, total_steps=2944))
    runner = DeviceRunner(TwoDoors(), config)
    runner.advance(184, 184)
    episodes = runner.evaluate(deployed_policy(runner.state.agent), 50)
    assert (episodes.reward == 0).all()
    np.testing.assert_allclose(episodes.cost[:, 0], 4.2, rtol=1e-6)
