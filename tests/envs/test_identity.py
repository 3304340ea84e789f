"""Tests of the descriptions of environments and cost functions."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from orac.envs.identity import code_text, env_difference, stable_text
from orac.envs.maze.env import GuardedMaze

ENV = {**os.environ, "JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True)
class Pair:
    """Two values."""

    first: object
    second: object = 1


class Plain:
    """An object whose address must not be in a description."""


@pytest.mark.parametrize(
    "value",
    [Plain(), Plain, [Plain()], {"a": Plain().__init__}, len, lambda: 0, Pair(Plain())],
)
def test_no_text_contains_an_address(value):
    assert " at 0x" not in stable_text(value) and "0x7" not in stable_text(value)


def test_equal_values_have_equal_texts_and_others_do_not():
    equal = [
        (1, 1.0, np.float32(1)),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]
    for values in [*equal, (np.ones(2, np.float32), jnp.ones(2))]:
        assert len({stable_text(value) for value in values}) == 1
    different = [
        0.1,
        1,
        "1",
        True,
        None,
        (1,),
        Pair(1),
        Pair(2),
        np.ones(2),
        np.ones(3),
    ]
    assert len({*map(stable_text, different)}) == len(different)
    assert len(stable_text(range(10**6))) < 100 and len(stable_text("x" * 10**6)) < 100


def test_a_value_that_contains_itself_has_a_text():
    loop = []
    loop.append(loop)
    assert "builtins:list" in stable_text(loop)


def make(limit, values=()):
    """Return a function that uses two values from here."""
    return lambda o, a, n, info: float(info["x"] > limit) + len(values)


def nested(o, a, n, info):
    return sum(x for x in info["x"])


def nested_otherwise(o, a, n, info):
    return sum(-x for x in info["x"])


def documented(o, a, n, info):
    """Return the cost."""
    return info["x"]


class Cost:
    """An object that can be called."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, o, a, n, info):
        return float(info["x"] > self.limit)


def test_the_text_of_a_function_is_about_what_it_computes():
    same = [
        (make(1), make(1)),
        (Cost(1), Cost(1)),
        (partial(make, 1), partial(make, 1)),
    ]
    same += [
        (make(1, [1]), make(1, [2])),
        (documented, lambda o, a, n, info: info["x"]),
    ]
    other = [(make(1), make(2)), (Cost(1), Cost(2)), (nested, nested_otherwise)]
    other += [(partial(make, 1), partial(make, 2))]
    for first, second in same:
        assert code_text(first) == code_text(second) is not None
    for first, second in other:
        assert code_text(first) != code_text(second)
    assert code_text(len) is None


def test_a_function_has_the_same_text_in_every_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def cost(o, a, n, info):\n"
        "    return sum(x in {'a', 'b', 'c'} for x in info)\n"
        "if __name__ == '__main__':\n"
        "    from orac.envs.identity import code_record\n"
        "    print(code_record(cost)['digest'])\n"
    )
    command = [sys.executable, str(tmp_path / "mine.py")]
    texts = {
        subprocess.run(
            command, capture_output=True, check=True, env={**ENV, **seed}
        ).stdout
        for seed in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(texts) == 1 and b"" not in texts


def test_a_damaged_description_is_another_environment():
    assert env_difference(None, {}) == ""
    assert "damaged" in env_difference(["x"], {})
    found = env_difference({"class": ["\n"], "arguments": 3}, {"class": "a:B"})
    assert found.startswith("its class is a:B and was") and "\n" not in found


def test_a_class_of_a_notebook_is_known_by_its_name():
    for before, now in (("__main__:A", "mine:A"), ("mine:A", "__main__:A")):
        assert env_difference({"class": before}, {"class": now}) == ""
    assert env_difference({"class": "__main__:A"}, {"class": "mine:B"})


def test_every_way_to_make_an_environment_has_its_description():
    from orac.envs.gym_adapter.metadata import read_metadata

    one = read_metadata(gymnasium.make("Pendulum-v1", g=5.0)).description
    spawn = {"vector_kwargs": {"context": "spawn"}}
    for mode, options in (("sync", {}), ("async", spawn)):
        vector = gymnasium.make_vec(
            "Pendulum-v1", 2, vectorization_mode=mode, g=5, **options
        )
        assert env_difference(one, read_metadata(vector).description) == ""
        vector.close()
    vector = gymnasium.make_vec(
        "CartPole-v1", 2, vectorization_mode="vector_entry_point"
    )
    one = read_metadata(gymnasium.make("CartPole-v1")).description
    assert env_difference(one, read_metadata(vector).description) == ""
    assert GuardedMaze().map in stable_text(GuardedMaze())
