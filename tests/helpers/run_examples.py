"""States and replays that can be computed from their step, so that tests can check them."""

from typing import Any, NamedTuple

import jax
import numpy as np


class Replay(NamedTuple):
    storage: Any
    inserted: Any


class ExampleState(NamedTuple):
    params: dict[str, np.ndarray]
    count: np.ndarray


def make_rows(first: int, last: int) -> dict[str, np.ndarray]:
    """Return rows in the order of insertion; row i depends only on i."""
    numbers = np.arange(first, last)
    columns = np.arange(3)
    return {
        "observation": np.sin(numbers[:, None] + columns).astype(np.float32),
        "reward": (numbers * 0.1).astype(np.float32),
        "terminated": numbers % 7 == 0,
    }


def make_replay(inserted: int, capacity: int) -> Replay:
    """Return the replay after `inserted` rows, built without the code under test."""
    storage = {
        name: np.zeros((capacity, *rows.shape[1:]), rows.dtype)
        for name, rows in make_rows(0, 1).items()
    }
    for name, rows in make_rows(0, inserted).items():
        for number, row in enumerate(rows):
            storage[name][number % capacity] = row
    return Replay(storage, np.int32(inserted))


def make_state(step: int) -> ExampleState:
    """Return a state with weights drawn from the seed `step`."""
    generator = np.random.default_rng(step)
    weights = generator.normal(size=(40, 25)).astype(np.float32)
    return ExampleState({"w": weights, "b": weights[0]}, np.array(step, np.int32))


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Assert that two pytrees have the same structure, types, shapes and bits."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        if isinstance(other, bool | int | float) and not isinstance(other, np.generic):
            assert type(one) is type(other)
        elif jax.numpy.issubdtype(other.dtype, jax.dtypes.prng_key):
            assert one.dtype == other.dtype
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
