"""Measure how many hours of CityLearn this machine simulates per second.

    python benchmarks/citylearn.py

This script times whole episodes of the package CityLearn 2.1.2 (if `make setup-citylearn`
was run) and of our environment, as training steps it: `step_batch` in one compiled scan,
with restarts. The scan returns the observations, rewards, costs, ends and metrics of every
step. If it returned only the energy, XLA would leave out the temperature model, and the
environment would look many times faster. CPU seconds, unlike wall seconds, hardly depend on
how busy the machine is.
"""

import argparse
import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from orac.envs.base import reset_batch, step_batch
from orac.envs.citylearn.env import CityLearn

HOURS = 719
REFERENCE = Path(__file__).parents[1] / "tests"


@functools.partial(jax.jit, static_argnums=0)
def play_month(env: CityLearn, keys: Any, state: Any, actions: Any) -> Any:
    """Step all environments for as many hours as an episode has."""

    def advance(state: Any, now: Any) -> Any:
        state, observation, step = step_batch(env, now[0], state, now[1])
        return state, (observation, step)

    return jax.lax.scan(advance, state, (keys, actions))


def time_ours(buildings: tuple[int, ...], num_envs: int) -> Callable[[], int]:
    env, key = CityLearn(buildings=buildings), jax.random.key(0)
    state, _ = reset_batch(env, key, num_envs)
    shape = (HOURS, num_envs, env.spec.action_size)
    actions = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
    keys = jax.random.split(key, HOURS)

    def run() -> int:
        jax.block_until_ready(play_month(env, keys, state, actions))
        return num_envs * HOURS

    return run


def time_theirs(buildings: tuple[int, ...]) -> Callable[[], int]:
    from helpers.citylearn_reference import make_reference, play_reference

    env = make_reference(buildings, saifi=183.0, caidi=331.2)
    space = env.action_space[0]
    actions = np.random.default_rng(0).uniform(
        space.low, space.high, (HOURS, *space.shape)
    )

    def run() -> int:
        play_reference(env, actions)
        return HOURS

    return run


def report(name: str, run: Callable[[], int], repeats: int) -> float:
    """Print a row, and return the median of the hours per CPU second."""
    began = time.process_time()
    run()
    first = time.process_time() - began
    wall, cpu = [], []
    for _ in range(repeats):
        began, began_cpu = time.perf_counter(), time.process_time()
        num_steps = run()
        wall.append(num_steps / (time.perf_counter() - began))
        cpu.append(num_steps / (time.process_time() - began_cpu))
    print(
        f"{name:<34} {statistics.median(wall):>11,.0f} {max(wall):>11,.0f} "
        f"{statistics.median(cpu):>15,.0f} {first:>10.1f}"
    )
    return statistics.median(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 8, 16, 64])
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    # Without this script's folder in the path, `import citylearn` finds the package instead of
    # this script.
    sys.path[0] = str(REFERENCE)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    print(
        f"{'hours per second':<34} {'median':>11} {'best':>11} {'per CPU second':>15} "
        f"{'first, s':>10}"
    )
    for buildings in ((1,), (1, 2, 3)):
        name = f"{len(buildings)} building" + "s" * (len(buildings) > 1)
        speeds = [
            report(
                f"ours, {name}, batch of {num_envs}",
                time_ours(buildings, num_envs),
                chosen.repeats,
            )
            for num_envs in chosen.num_envs
        ]
        if importlib.util.find_spec("citylearn") and importlib.util.find_spec("torch"):
            theirs = report(
                f"CityLearn, {name}",
                time_theirs(buildings),
                max(2, chosen.repeats // 3),
            )
            ratios = ", ".join(f"{speed / theirs:,.0f}" for speed in speeds)
            print(f"  times faster, per CPU second: {ratios}")


if __name__ == "__main__":
    main()
