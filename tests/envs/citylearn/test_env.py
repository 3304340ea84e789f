"""Tests of CityLearn: its contract, its parameters, its metrics and its outages."""

import importlib.util
import sys
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import orac.envs
from orac.envs.citylearn.data import load_month, load_shared
from orac.envs.citylearn.env import REWARDS, CityLearn, draw_outages

HOURS = 719
KEY = jax.random.key(0)
MONTHS = 3000
SAIFI, CAIDI = 183.0, 331.2


@partial(jax.jit, static_argnums=0)
def reset(env, key):
    return env.reset(key)


@partial(jax.jit, static_argnums=0)
def scan_steps(env, state, actions):
    return jax.lax.scan(lambda s, a: env.step(KEY, s, a), state, actions)[1]


def play(env, actions, outage=None):
    """Return the first observation and the steps of one episode.

    Actions are padded to a whole month, so that one compiled program serves all lengths.
    """
    state, first = reset(env, KEY)
    if outage is not None:
        state = state._replace(outage=jnp.asarray(outage))
    padded = np.zeros((HOURS, env.spec.action_size), np.float32)
    padded[: len(actions)] = actions
    steps = scan_steps(env, state, jnp.asarray(padded))
    return first, jax.tree.map(lambda values: values[: len(actions)], steps)


def noise(size, seed=0, hours=HOURS):
    return np.random.default_rng(seed).uniform(-1, 1, (hours, size)).astype(np.float32)


@pytest.fixture(scope="module")
def month():
    """Return a month of uniform actions in the first building."""
    first, steps = play(CityLearn(), noise(3))
    return jnp.concatenate([first[None], steps.observation]), steps


def test_spec_has_sizes_length_and_metrics():
    spec = CityLearn().spec
    assert (spec.observation_size, spec.action_size) == (30, 3)
    assert spec.episode_length == HOURS
    assert spec.metric_names == ("unserved_energy", "outage_violations")
    assert set(spec.action_low) == {-1.0} and set(spec.action_high) == {1.0}
    both = CityLearn(buildings=(3, 1)).spec
    assert (both.observation_size, both.action_size) == (30 + 11, 6)


def test_episode_is_truncated_after_719_hours(month):
    _, steps = month
    np.testing.assert_array_equal(steps.truncated, np.arange(HOURS) == HOURS - 1)
    assert not steps.terminated.any()


def test_steps_are_finite_and_in_single_precision(month):
    observation, steps = month
    for leaf in jax.tree.leaves((observation, steps.reward, steps.cost, steps.metrics)):
        assert leaf.dtype == jnp.float32
        assert np.isfinite(leaf).all()


def test_equal_keys_give_equal_outages_and_other_keys_others():
    env = CityLearn()
    one, again, other = (reset(env, jax.random.key(i))[0].outage for i in (5, 5, 6))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_compiled_batch_gives_the_same_step_as_one_environment_without_jit():
    env = CityLearn(buildings=(2,))
    keys = jax.random.split(KEY, 3)
    states, _ = jax.jit(jax.vmap(env.reset))(keys)
    actions = jnp.asarray(noise(3, hours=3))
    _, batch = jax.jit(jax.vmap(env.step))(keys, states, actions)
    _, single = env.step(keys[1], jax.tree.map(lambda x: x[1], states), actions[1])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b[1], rtol=1e-5, atol=1e-5),
        single,
        batch,
    )


def test_steps_stay_in_single_precision_with_x64_enabled():
    env = CityLearn()
    with jax.enable_x64(True):
        state, first = jax.jit(env.reset)(jax.random.key(0))
        after, step = jax.jit(env.step)(KEY, state, jnp.zeros(3, jnp.float32))
    assert first.dtype == step.observation.dtype == step.reward.dtype == jnp.float32
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [
        leaf.dtype for leaf in jax.tree.leaves(state)
    ]


def test_cooling_has_no_effect_in_the_first_thirteen_hours():
    env, idle = CityLearn(), np.zeros((20, 3), np.float32)
    full, none = idle.copy(), idle.copy()
    full[:, 2], none[:, 2] = 1.0, -1.0
    names = ("indoor_dry_bulb_temperature", "cooling_demand")
    difference = [
        np.abs(env.read(play(env, full)[1].observation, name)[:, 0])
        - np.abs(env.read(play(env, none)[1].observation, name)[:, 0])
        for name in names
    ]
    np.testing.assert_array_equal(difference[0][:13], 0.0)
    np.testing.assert_array_equal(difference[1][:13], 0.0)
    assert difference[0][13] < -1.0 and difference[1][13] > 1.0


def test_temperature_is_the_recorded_one_while_the_model_warms_up(month):
    observation, _ = month
    temperature = CityLearn().read(observation, "indoor_dry_bulb_temperature")[:, 0]
    recorded = load_month((1,)).ideal_temperature[:, 0]
    np.testing.assert_allclose(temperature[:13], recorded[:13], atol=1e-5)
    assert np.abs(temperature[13:] - recorded[13:]).max() > 1.0


def test_reward_and_cost_follow_from_the_observation(month):
    observation, steps = month
    env = CityLearn()
    net = env.read(observation, "net_electricity_consumption")[1:, 0]
    gap = (
        env.read(observation, "indoor_dry_bulb_temperature")
        - env.read(observation, "indoor_dry_bulb_temperature_set_point")
    )[1:, 0]
    np.testing.assert_allclose(steps.reward, -np.maximum(net, 0), atol=1e-5)
    np.testing.assert_allclose(steps.cost[:, 0], np.abs(gap), atol=1e-5)


def test_nothing_is_imported_from_the_grid_in_an_outage(month):
    observation, steps = month
    outage = np.asarray(CityLearn().read(observation, "power_outage")[1:, 0] > 0.5)
    assert outage.any() and not outage.all()
    np.testing.assert_array_equal(steps.reward[outage], 0.0)
    assert steps.reward[~outage].mean() < -1.0


def test_price_reward_is_the_imported_energy_times_its_price(month):
    _, steps = play(CityLearn(reward="price"), noise(3))
    expected = month[1].reward * load_shared("electricity_pricing", (1,))[1:, 0]
    np.testing.assert_allclose(steps.reward, expected, rtol=1e-5, atol=1e-6)


def test_rewards_differ_in_how_they_value_the_net_energy():
    hour = load_month((1,))._replace(price=jnp.array([2.0]), carbon=jnp.array([3.0]))
    imported, exported = jnp.array([0.5]), jnp.array([-0.5])
    found = {
        name: (float(f(imported, hour)[0]), float(f(exported, hour)[0]))
        for name, f in REWARDS.items()
    }
    assert found == {
        "import": (-0.5, 0.0),
        "net": (-0.5, 0.5),
        "price": (-1.0, 0.0),
        "carbon": (-1.5, 0.0),
    }


def test_without_outages_both_metrics_are_zero():
    _, steps = play(CityLearn(saifi=0.0), noise(3, hours=60))
    assert not any(values.any() for values in steps.metrics.values())


def test_unserved_energy_is_the_fraction_of_the_requests_in_outages():
    # One outage of an hour at night, when neither sun nor battery provides anything: all
    # requested energy is unserved. Later hours change nothing.
    outage = np.zeros(720, bool)
    outage[25] = True
    idle = np.tile(np.array([0.0, 0.0, 0.0], np.float32), (30, 1))
    _, steps = play(CityLearn(), idle, outage)
    unserved = steps.metrics["unserved_energy"]
    np.testing.assert_array_equal(unserved[:24], 0.0)
    np.testing.assert_allclose(unserved[24:], 1.0, rtol=1e-6)


def test_a_wider_comfort_band_has_fewer_violations(month):
    _, wide = play(CityLearn(comfort_band=3.0), noise(3))
    shares = [steps.metrics["outage_violations"][-1] for steps in (month[1], wide)]
    assert 1.0 > shares[0] > shares[1] > 0.0


def test_buildings_do_not_influence_each_other():
    together = CityLearn(buildings=(1, 2, 3))
    actions = noise(9)
    first, steps = play(together, actions)
    observation = jnp.concatenate([first[None], steps.observation])
    separate = [
        play(CityLearn(buildings=(number,)), actions[:, 3 * i : 3 * i + 3])
        for i, number in enumerate((1, 2, 3))
    ]
    for i, (start, own) in enumerate(separate):
        env = CityLearn(buildings=(i + 1,))
        seen = jnp.concatenate([start[None], own.observation])
        for name in ("indoor_dry_bulb_temperature", "electrical_storage_soc"):
            np.testing.assert_allclose(
                together.read(observation, name)[:, i],
                env.read(seen, name)[:, 0],
                atol=1e-4,
            )
    for ours, theirs in (
        (steps.reward, [own.reward for _, own in separate]),
        (steps.cost, [own.cost for _, own in separate]),
        (steps.metrics, [own.metrics for _, own in separate]),
    ):
        mean = jax.tree.map(lambda *values: np.mean(values, axis=0), *theirs)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), ours, mean
        )


@pytest.mark.parametrize("cooling", [-1.0, 1.0])
def test_cost_of_an_episode_is_below_its_bound(cooling):
    env = CityLearn(buildings=(2,))
    actions = np.zeros((HOURS, 3), np.float32)
    actions[:, 2] = cooling
    cost = play(env, actions)[1].cost.sum()
    assert env.spec.cost_bounds is not None
    assert 1000 < cost < env.spec.cost_bounds[0]


def test_cost_of_an_hour_stops_growing_at_the_maximum():
    actions = np.zeros((HOURS, 3), np.float32)
    actions[:, 2] = -1.0
    free, capped = (
        play(CityLearn(max_deviation=degrees), actions)[1].cost
        for degrees in (100.0, 5.0)
    )
    assert free.max() > 5.0
    np.testing.assert_allclose(capped, np.minimum(free, 5.0), atol=1e-4)
    assert CityLearn(max_deviation=5.0).spec.cost_bounds == pytest.approx(
        (3598.6,), rel=1e-4
    )


def test_actions_beyond_the_box_are_clipped():
    far, edge = (play(CityLearn(), np.full((20, 3), value))[1] for value in (7.0, 1.0))
    np.testing.assert_array_equal(far.observation, edge.observation)


def test_first_observation_has_the_first_row_of_the_data():
    env = CityLearn(buildings=(2, 3))
    _, first = reset(env, KEY)
    for name in ("hour", "carbon_intensity", "electricity_pricing_predicted_24h"):
        expected = load_shared(name, (2,))[0]
        np.testing.assert_allclose(env.read(first, name), expected, 1e-4)
    row = load_month((2, 3))
    np.testing.assert_allclose(
        env.read(first, "cooling_demand"), row.ideal_cooling[0], atol=1e-5
    )
    np.testing.assert_allclose(env.read(first, "electrical_storage_soc"), 0.2, 1e-5)
    np.testing.assert_array_equal(env.read(first, "power_outage"), 0.0)


def test_unknown_observation_raises_an_error_with_the_nearest_name():
    env = CityLearn()
    with pytest.raises(
        ValueError, match=r"got 'power_outge'\. Did you mean 'power_out"
    ):
        env.read(reset(env, KEY)[1], "power_outge")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"buildings": ()}, r"different whole numbers from 1 to 3, got \(\)"),
        ({"buildings": (0,)}, r"different whole numbers from 1 to 3, got \(0,\)"),
        ({"buildings": (1, 1)}, r"got \(1, 1\). Write \(1,\)"),
        ({"buildings": []}, r"different whole numbers from 1 to 3, got \[\]"),
        ({"buildings": 4}, "different whole numbers from 1 to 3, got 4"),
        ({"buildings": 1.0}, r"got 1\.0\. Write \(1,\) for only the first"),
        ({"buildings": (1.0,)}, r"got \(1\.0,\)\. Write \(1,\)"),
        ({"buildings": [2.5, 1]}, r"got \[2\.5, 1\]"),
        ({"buildings": True}, r"got True\. Write"),
        ({"buildings": "1"}, r"got '1'\. Write"),
        ({"saifi": 366.0}, r"saifi must be in \[0, 365\], got 366.0"),
        ({"saifi": -1.0}, "It is outages per year"),
        ({"saifi": np.nan}, r"saifi must be in \[0, 365\], got nan"),
        ({"caidi": -1.0}, r"caidi must be in \[0, 525600\], got -1.0"),
        ({"caidi": np.nan}, "got nan. It is in minutes"),
        ({"caidi": np.inf}, "got inf. It is in minutes"),
        ({"caidi": 1e12}, r"got 1000000000000.0\. It is in minutes"),
        ({"comfort_band": -2.0}, r"comfort_band must be .* \[0, 100\], got -2.0"),
        ({"max_deviation": 0.0}, r"max_deviation must be .* \[1, 100\], got 0.0"),
        ({"comfort_band": np.nan}, "got nan. It is in degrees C"),
        ({"comfort_band": np.inf}, "got inf. It is in degrees C"),
        ({"reward": "prize"}, "got 'prize'. Did you mean 'price'"),
    ],
)
def test_invalid_parameter_raises_an_error(parameters, message):
    with pytest.raises(ValueError, match=message):
        CityLearn(**parameters)


@pytest.mark.parametrize(
    ("given", "buildings"),
    [([3, 1], (3, 1)), (2, (2,)), (np.array([1, 2]), (1, 2)), (np.int64(3), (3,))],
)
def test_buildings_may_be_a_number_or_a_list(given, buildings):
    env = CityLearn(buildings=given)
    assert env == CityLearn(buildings=buildings)
    assert hash(env) == hash(CityLearn(buildings=buildings))
    assert {type(number) for number in env.buildings} == {int}


@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value")
def test_gymnasium_accepts_the_environment_without_a_render_mode():
    env = gymnasium.make("orac/CityLearn-v0").unwrapped
    assert env.metadata["render_modes"] == []
    check_env(env)


def test_every_named_reward_is_accepted():
    assert {CityLearn(reward=name).reward for name in REWARDS} == set(REWARDS)


def test_equal_environments_have_equal_hashes():
    assert hash(CityLearn(buildings=(1, 2))) == hash(CityLearn(buildings=(1, 2)))
    assert CityLearn() != CityLearn(saifi=1.0)


def test_gymnasium_makes_the_environment_by_its_id_with_parameters():
    env = gymnasium.make("orac/CityLearn-v0", buildings=[3], saifi=100.0)
    observation, _ = env.reset(seed=1)
    assert observation.shape == (30,)
    observation, reward, terminated, truncated, info = env.step(np.zeros(3, np.float32))
    assert not terminated and not truncated
    assert reward < 0 < info["cost"]
    assert orac.envs.make("orac/CityLearn-v0", buildings=[3]) == CityLearn((3,))


@pytest.fixture(scope="module")
def months():
    """Return the outages of 3000 resets."""
    keys = jax.random.split(jax.random.key(1), MONTHS)
    return np.asarray(
        jax.jit(jax.vmap(lambda key: CityLearn().reset(key)[0].outage))(keys)
    )


def draw_months(saifi, caidi):
    """Draw the outages of 500 months."""
    draw = jax.vmap(lambda key: draw_outages(key, saifi, caidi))
    return jax.jit(draw)(jax.random.split(jax.random.key(0), 500))


def expected_share() -> float:
    """Return the probability of an outage, averaged over the hours of the month.

    A day's outage covers hour t with probability saifi / 365 times the mean over its 24
    starts s <= t of P(length > t - s) = exp(-60 (t - s + 1) / caidi); days are
    independent.
    """
    t = np.arange(720)[:, None]
    free = np.ones(720)
    for day in range(1, 30):
        later = t - (24 * day + np.arange(24)) + 1
        covers = np.where(later > 0, np.exp(-60 * np.maximum(later, 1) / CAIDI), 0.0)
        free *= 1 - SAIFI / 365 * covers.mean(axis=1)
    return float((1 - free).mean())


def lengths_and_starts(months: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = np.diff(np.pad(months.astype(int), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.nonzero(edges == 1)[1], np.nonzero(edges == -1)[1]
    return ends - starts, starts


def test_a_tenth_of_all_hours_has_no_grid(months):
    assert expected_share() == pytest.approx(0.0995, abs=0.0005)
    assert months.mean() == pytest.approx(0.0995, abs=0.003)


def test_every_month_has_different_outages(months):
    assert len(np.unique(months, axis=0)) == MONTHS


def test_first_day_has_no_outages_and_all_others_have_some(months):
    by_day = months.reshape(MONTHS, 30, 24).mean(axis=(0, 2))
    assert by_day[0] == 0.0
    assert by_day[1:].min() > 0.03


def test_duration_of_outages_follows_its_mean():
    # With one outage a day and a mean of six minutes, none lasts an hour. With a mean of a
    # day, an outage lasts at least an hour with probability exp(-60 / 1440).
    assert draw_months(365.0, 6.0).mean() < 1e-4
    assert draw_months(365.0, 1440.0)[:, 72:].mean() > 0.5


def test_extremely_long_outages_last_to_the_end_of_the_month():
    assert draw_months(365.0, 1e15)[:, 48:].all()


def test_zero_outages_per_year_give_no_outage():
    assert not draw_outages(jax.random.key(0), 0.0, CAIDI).any()


def test_buildings_share_the_grid():
    env = CityLearn(buildings=(1, 2, 3))
    state, _ = reset(env, jax.random.key(2))
    hour = int(np.flatnonzero(state.outage)[0])
    state = state._replace(hour=jnp.int32(hour - 1))
    steps = scan_steps(env, state, jnp.zeros((HOURS, 9)))
    np.testing.assert_array_equal(env.read(steps.observation[0], "power_outage"), 1.0)


@pytest.mark.slow
def test_outages_are_distributed_as_in_citylearn(months):
    if importlib.util.find_spec("citylearn") is None:
        pytest.skip("run `make setup-citylearn`")
    sys.modules.setdefault("gym", gymnasium)
    from citylearn.power_outage import ReliabilityMetricsPowerOutage

    theirs = np.array(
        [
            ReliabilityMetricsPowerOutage(
                saifi=SAIFI, caidi=CAIDI, random_seed=seed
            ).get_signals(720, seconds_per_time_step=3600.0)
            for seed in range(MONTHS)
        ]
    )
    assert theirs.mean() == pytest.approx(months.mean(), abs=0.003)
    (length, start), (their_length, their_start) = (
        lengths_and_starts(months),
        lengths_and_starts(theirs),
    )
    assert stats.ks_2samp(length, their_length).pvalue > 0.001
    assert stats.ks_2samp(start, their_start).pvalue > 0.001
    assert stats.ks_2samp(months.sum(axis=1), theirs.sum(axis=1)).pvalue > 0.001
