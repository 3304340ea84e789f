"""States and rings that are functions of their step, so that any of them can be checked."""

from typing import Any, NamedTuple

import jax
import numpy as np


class Ring(NamedTuple):
    storage: Any
    inserted: Any


class Learned(NamedTuple):
    params: dict[str, np.ndarray]
    count: np.ndarray


def make_rows(first: int, last: int) -> dict[str, np.ndarray]:
    """Rows as they were inserted: row i is made of i alone."""
    numbers = np.arange(first, last)
    columns = np.arange(3)
    return {
        "observation": np.sin(numbers[:, None] + columns).astype(np.float32),
        "reward": (numbers * 0.1).astype(np.float32),
        "terminated": numbers % 7 == 0,
    }


def make_ring(inserted: int, capacity: int) -> Ring:
    """The ring after `inserted` rows, built without any of the code under test."""
    storage = {
        name: np.zeros((capacity, *rows.shape[1:]), rows.dtype)
        for name, rows in make_rows(0, 1).items()
    }
    for name, rows in make_rows(0, inserted).items():
        for number, row in enumerate(rows):
            storage[name][number % capacity] = row
    return Ring(storage, np.int32(inserted))


def make_state(step: int) -> Learned:
    generator = np.random.default_rng(step)
    weights = generator.normal(size=(40, 25)).astype(np.float32)
    return Learned({"w": weights, "b": weights[0]}, np.array(step, np.int32))


def assert_same_bits(actual: Any, expected: Any) -> None:
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
