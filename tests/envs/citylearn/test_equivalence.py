"""Compare the JAX version with CityLearn 2.1.2 hour by hour. Needs `make setup-citylearn`."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.citylearn_reference import make_reference, run_reference
from orac.envs.citylearn.env import CityLearn

pytestmark = pytest.mark.slow
pytest.importorskip("citylearn", reason="run `make setup-citylearn`")
pytest.importorskip("torch", reason="run `make setup-citylearn`")

HOURS = 719


@cache
def reference(buildings):
    return make_reference(buildings, saifi=183.0, caidi=331.2)


def draw_actions(seed: int, size: int) -> np.ndarray:
    """Return one of nine kinds of actions, from uniform noise to jumps between extremes."""
    rng = np.random.default_rng(seed)
    shape = (HOURS, size)
    noise = rng.uniform(-1, 1, shape)
    signs = rng.choice([-1.0, 1.0], shape)
    kinds = [
        noise,
        signs,
        rng.choice([-1.0, 0.0, 1.0], shape),
        np.repeat(signs[: HOURS // 30 + 1], 30, axis=0)[:HOURS],
        np.where(rng.random(shape) < 0.5, noise, signs),
        noise * 0.05,
        np.ones(shape),
        -np.ones(shape),
        np.where(np.arange(size) % 3 == 2, -0.5 + 0.2 * noise, signs),
    ]
    return kinds[seed % len(kinds)].astype(np.float32)


@partial(jax.jit, static_argnums=0)
def play(env: CityLearn, state, actions):
    unused = jax.random.key(0)
    return jax.lax.scan(lambda s, a: env.step(unused, s, a), state, actions)[1]


def compare(buildings: tuple[int, ...], seed: int) -> None:
    env = CityLearn(buildings=buildings)
    actions = draw_actions(seed, env.spec.action_size)
    in_their_box = np.stack(jax.vmap(env.scale)(jnp.asarray(actions)), axis=-1)
    theirs = run_reference(
        reference(buildings), in_their_box.reshape(actions.shape), seed
    )
    assert theirs.outage.any()

    state, first = env.reset(jax.random.key(0))
    state = state._replace(outage=jnp.asarray(theirs.outage, bool))
    ours = play(env, state, jnp.asarray(actions))
    observation = jnp.concatenate([first[None], ours.observation])

    def largest(name: str, expected: np.ndarray) -> float:
        return np.abs(np.asarray(env.read(observation, name)) - expected).max()

    assert largest("indoor_dry_bulb_temperature", theirs.temperature) < 1e-4
    assert largest("net_electricity_consumption", theirs.net) < 1e-4
    assert largest("dhw_storage_soc", theirs.tank_level) < 1e-5
    assert largest("electrical_storage_soc", theirs.battery_level) < 1e-5
    np.testing.assert_allclose(observation, theirs.observation, rtol=0, atol=1e-5)

    gap = np.abs(theirs.temperature - theirs.set_point)[1:].mean(axis=-1)
    drawn = np.maximum(theirs.net, 0)[1:].mean(axis=-1)
    np.testing.assert_allclose(ours.cost[:, 0], gap, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.reward, -drawn, rtol=0, atol=1e-4)
    for name in ("unserved_energy", "outage_violations"):
        assert abs(ours.metrics[name][-1] - getattr(theirs, name)) < 1e-5
    np.testing.assert_array_equal(ours.truncated, np.arange(HOURS) == HOURS - 1)


@pytest.mark.parametrize("building", [1, 2, 3])
@pytest.mark.parametrize("seed", range(9))
def test_building_has_the_same_numbers_as_in_citylearn(building, seed):
    compare((building,), seed)


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_three_buildings_have_the_same_numbers_as_in_citylearn(seed):
    compare((1, 2, 3), seed)


@pytest.mark.parametrize("buildings", [(1,), (2,), (3,), (1, 2, 3)])
def test_observations_and_actions_have_the_names_and_ranges_of_citylearn(buildings):
    theirs, env = reference(buildings), CityLearn(buildings=buildings)
    assert list(env.layout.names) == theirs.observation_names[0]
    space = theirs.observation_space[0]
    np.testing.assert_allclose(env.layout.low, space.low, rtol=1e-6)
    np.testing.assert_allclose(
        env.layout.low + env.layout.span, space.high, rtol=1e-6, atol=1e-6
    )
    size = env.spec.action_size
    for edge, limit in (
        (-1.0, theirs.action_space[0].low),
        (1.0, theirs.action_space[0].high),
    ):
        scaled = np.stack(env.scale(jnp.full(size, edge)), axis=-1).reshape(-1)
        np.testing.assert_allclose(scaled, limit, rtol=1e-6)
