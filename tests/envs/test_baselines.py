"""Tests of the hand-coded baselines: their actions, rewards and costs."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.envs.baselines import (
    BASELINES,
    BatteryReserve,
    NoCooling,
    Thermostat,
    UniformRandom,
    long_path,
    make_baseline,
    short_path,
)
from orac.envs.citylearn.env import CityLearn
from orac.envs.maze.env import GuardedMaze

CITYLEARN = "orac/CityLearn-v0"
ENV = CityLearn()
EPISODES = 20


@partial(jax.jit, static_argnums=(0, 1))
def roll_out(maze, num_episodes, baseline, key):
    """Return the length, return, cost and goal of whole maze episodes.

    `baseline` is 0 for the short and 1 for the long path, so that one compiled program
    serves both.
    """
    reset_key, step_key = jax.random.split(key)
    policies = [short_path(maze), long_path(maze)]
    state, observation = maze.reset_many(reset_key, num_episodes)

    def advance(carry, number):
        state, observation, running, total = carry
        action = jax.lax.switch(baseline, policies, observation)
        key = jax.random.fold_in(step_key, number)
        state, result = maze.step_many(key, state, action)
        new = (1.0, result.reward, result.cost[:, 0], result.terminated)
        total = jax.tree.map(lambda a, b: a + running * b, total, new)
        return (state, result.observation, running & ~result.done, total), None

    total = (jnp.zeros(num_episodes),) * 4
    running = jnp.ones(num_episodes, bool)
    carry = (state, observation, running, total)
    carry, _ = jax.lax.scan(advance, carry, jnp.arange(maze.episode_length))
    return carry[3]


@pytest.mark.parametrize(
    ("guard_probability", "mean_cost"),
    # 2 * 0.85 + 20 * 0.15 = 4.70 and 2 * 0.90 + 20 * 0.10 = 3.80.
    [(0.15, 4.70), (0.10, 3.80)],
)
def test_short_path_has_the_known_length_return_and_cost(guard_probability, mean_cost):
    maze = GuardedMaze(guard_probability)
    length, total, cost, goal = roll_out(maze, 20_000, 0, jax.random.key(11))
    assert float(length.mean()) == pytest.approx(4.5, rel=0.05)
    assert float(total.mean()) == pytest.approx(12.5, rel=0.05)
    assert goal.mean() > 0.995
    assert set(np.unique(cost).tolist()) == {2.0, 20.0}
    # Four standard errors: 4 * 18 * sqrt(p * (1 - p) / 20000), 0.18 and 0.15.
    assert float(cost.mean()) == pytest.approx(mean_cost, abs=0.18)
    worst = np.sort(np.asarray(cost))[-1000:]
    assert worst.mean() == 20.0


def test_long_path_has_the_known_length_return_and_cost():
    length, total, cost, goal = roll_out(
        GuardedMaze(0.15), 20_000, 1, jax.random.key(12)
    )
    assert float(length.mean()) == pytest.approx(11.0, rel=0.05)
    assert float(total.mean()) == pytest.approx(6.3, rel=0.05)
    assert goal.mean() > 0.995
    assert set(np.unique(cost[goal == 1]).tolist()) == {4.0}
    assert float(cost.mean()) == pytest.approx(4.0, rel=0.005)


def test_maze_baselines_reach_the_goal_in_the_large_maze():
    maze = GuardedMaze(map="16x16", time_limit=200)
    for baseline, expected in enumerate(({2.0, 20.0}, {0.0})):
        _, _, cost, goal = roll_out(maze, 2000, baseline, jax.random.key(0))
        assert goal.mean() > 0.995
        assert set(np.unique(cost).tolist()) == expected


@jax.jit
def play(number):
    """Return the reward and cost of twenty CityLearn episodes of a baseline.

    The baseline is given by its number, so that one compiled program serves all.
    """
    keys = jax.random.split(jax.random.key(0), EPISODES)
    baselines = [make(ENV) for make in BASELINES[CITYLEARN].values()]

    def advance(carry, _):
        state, observation = carry
        action = jax.lax.switch(number, baselines, observation)
        state, step = jax.vmap(ENV.step)(keys, state, action)
        return (state, step.observation), (step.reward, step.cost[:, 0])

    _, (reward, cost) = jax.lax.scan(advance, jax.vmap(ENV.reset)(keys), length=719)
    return reward.sum(axis=0), cost.sum(axis=0)


@cache
def first_observation(env):
    return jax.jit(env.reset)(jax.random.key(0))[1]


def observation_with(env=ENV, **values):
    """Return the first observation with some of its numbers replaced."""
    layout, observation = env.layout, np.array(first_observation(env))
    for name, value in values.items():
        for place in np.flatnonzero(np.array(layout.names) == name):
            scaled = (value - layout.low[place]) / layout.span[place]
            observation[place] = scaled
    return jnp.asarray(observation)


# CityLearn 2.1.2 itself gave the following rewards / costs over twenty seeds of its own
# outages: noise -1643 / 5650, no cooling -366 / 6928, the best of some thermostats with a
# mean cost of at most 775 -686 / 769, the best of some battery reserves without a month
# above 720 -755 / 613.
@pytest.mark.parametrize(
    ("name", "reward", "cost"),
    [
        ("uniform_random", (-1643, 40), (5650, 150)),
        ("no_cooling", (-366, 10), (6928, 1)),
        ("thermostat", (-695, 15), (770, 30)),
        ("battery_reserve", (-750, 15), (585, 30)),
    ],
)
def test_episode_has_the_calibrated_reward_and_cost(name, reward, cost):
    rewards, costs = play([*BASELINES[CITYLEARN]].index(name))
    assert rewards.mean() == pytest.approx(reward[0], abs=reward[1])
    assert costs.mean() == pytest.approx(cost[0], abs=cost[1])
    if name == "battery_reserve":
        assert costs.max() < 720


def test_no_cooling_turns_all_devices_off():
    np.testing.assert_array_equal(NoCooling(ENV)(observation_with()), [0.0, 0.0, -1.0])


def test_thermostat_adds_up_its_gains():
    # 0.05 + 0.08 * 2 + 0.013 * 10 = 0.34 of the power, which is -0.32 in the box.
    warm = observation_with(
        indoor_dry_bulb_temperature=26.0,
        indoor_dry_bulb_temperature_set_point=24.0,
        outdoor_dry_bulb_temperature=34.0,
    )
    np.testing.assert_allclose(Thermostat(ENV)(warm), [0.0, 0.0, -0.32], atol=1e-5)
    cold = observation_with(indoor_dry_bulb_temperature=15.0)
    assert Thermostat(ENV)(cold)[2] == -1.0


def test_battery_reserve_charges_with_the_grid_and_discharges_in_an_outage():
    baseline = BatteryReserve(ENV, charge=0.7, discharge=0.2)
    assert baseline(observation_with(power_outage=0.0))[1] == pytest.approx(0.7)
    assert baseline(observation_with(power_outage=1.0))[1] == pytest.approx(-0.2)


@pytest.fixture(scope="module")
def six_observations():
    env = CityLearn(buildings=(1, 2, 3))
    keys = jax.random.split(jax.random.key(1), 6)
    return jax.jit(jax.vmap(env.reset))(keys)[1]


@pytest.mark.parametrize("name", BASELINES[CITYLEARN])
def test_baseline_takes_one_observation_or_any_batch(name, six_observations):
    env = CityLearn(buildings=(1, 2, 3))
    baseline = make_baseline(CITYLEARN, name, env)
    observations = six_observations
    batch = baseline(observations)
    assert batch.shape == (6, 9)
    assert baseline(observations.reshape(2, 3, -1)).shape == (2, 3, 9)
    np.testing.assert_allclose(batch[0], baseline(observations[0]), atol=1e-6)
    assert jnp.abs(batch).max() <= 1.0


def test_thermostat_cools_a_building_by_its_own_temperature():
    env = CityLearn(buildings=(1, 2))
    layout, observation = env.layout, np.array(observation_with(env))
    second = np.flatnonzero(np.array(layout.names) == "indoor_dry_bulb_temperature")[1]
    before = Thermostat(env)(jnp.asarray(observation))
    observation[second] += 0.1
    moved = np.asarray(Thermostat(env)(jnp.asarray(observation)) - before) != 0.0
    np.testing.assert_array_equal(moved, [False] * 5 + [True])


def test_random_actions_are_uniform_and_differ_by_hour_place_and_seed():
    baseline = UniformRandom(ENV)
    same = jnp.tile(observation_with(hour=3.0), (2000, 1))
    actions = baseline(same)
    assert len(np.unique(actions[:, 0])) > 1990
    assert actions.mean() == pytest.approx(0.0, abs=0.03)
    assert actions.var() == pytest.approx(1 / 3, abs=0.02)
    assert (baseline(observation_with(hour=4.0)) != baseline(same[0])).all()
    assert (UniformRandom(ENV, seed=1)(same[0]) != baseline(same[0])).all()
    np.testing.assert_array_equal(baseline(same), actions)


def test_equal_baselines_have_equal_hashes():
    assert Thermostat(ENV) == make_baseline(CITYLEARN, "thermostat", CityLearn())
    assert hash(Thermostat(ENV)) == hash(Thermostat(CityLearn()))


@pytest.mark.parametrize(
    ("env_id", "name", "message"),
    [
        (CITYLEARN, "thermostats", "got 'thermostats'. Did you mean 'thermostat'"),
        ("orac/GuardedMaze-v0", "thermostat", "must be one of short_path, long_path"),
        ("orac/CityLean-v0", "thermostat", "Did you mean 'orac/CityLearn-v0'"),
    ],
)
def test_unknown_baseline_raises_an_error_with_the_nearest_name(env_id, name, message):
    with pytest.raises(ValueError, match=message):
        make_baseline(env_id, name, ENV)
