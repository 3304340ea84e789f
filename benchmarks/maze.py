"""Measure how many steps of GuardedMaze this machine makes per second.

    python benchmarks/maze.py

This script compares 4096 mazes in one compiled scan, as in training (with restarts, and one
random key per step for all mazes), with the same scan in which each maze has its own key, and
with the maze as a Gymnasium environment. All outputs of a step are returned. CPU seconds,
unlike wall seconds, hardly depend on how busy the machine is. XLA distributes one program
over the cores, so on idle cores the steps per second are those per CPU second times the
number of cores.
"""

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from orac.envs.base import Environment, EnvSpec, reset_batch, step_batch
from orac.envs.gym_wrappers import JaxEnv, JaxVectorEnv
from orac.envs.maze.env import GuardedMaze


@dataclass(frozen=True)
class KeyForEachMaze:
    """The maze without its batched methods, so that every maze gets its own key."""

    maze: GuardedMaze = field(default_factory=GuardedMaze)

    @property
    def spec(self) -> EnvSpec:
        return self.maze.spec

    def reset(self, key: Any) -> Any:
        return self.maze.reset(key)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return self.maze.step(key, state, action)


@functools.partial(jax.jit, static_argnums=(0, 4))
def scan_steps(
    env: Environment, key: Any, state: Any, actions: Any, num_steps: int
) -> Any:
    """Return observations, rewards, costs, both kinds of ends and metrics of every step."""

    def advance(state: Any, number: Any) -> Any:
        step_key = jax.random.fold_in(key, number)
        state, observation, step = step_batch(env, step_key, state, actions)
        return state, (observation, step)

    return jax.lax.scan(advance, state, jnp.arange(num_steps))


def time_scan(env: Environment, num_envs: int, num_steps: int) -> Callable[[], int]:
    key = jax.random.key(0)
    state, _ = reset_batch(env, key, num_envs)
    actions = jax.random.uniform(key, (num_envs, 2), minval=-1.0, maxval=1.0)

    def run() -> int:
        jax.block_until_ready(scan_steps(env, key, state, actions, num_steps))
        return num_envs * num_steps

    return run


def time_vector(num_envs: int, num_steps: int) -> Callable[[], int]:
    vector = JaxVectorEnv(GuardedMaze(), num_envs)
    vector.reset(seed=0)
    actions = vector.action_space.sample()

    def run() -> int:
        for _ in range(num_steps):
            vector.step(actions)
        return num_envs * num_steps

    return run


def time_single(num_steps: int) -> Callable[[], int]:
    env = JaxEnv(GuardedMaze())
    env.reset(seed=0)

    def run() -> int:
        for _ in range(num_steps):
            *_, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
            if terminated or truncated:
                env.reset()
        return num_steps

    return run


def report(name: str, run: Callable[[], int], repeats: int) -> None:
    run()
    wall, cpu = [], []
    for _ in range(repeats):
        began, began_cpu = time.perf_counter(), time.process_time()
        num_steps = run()
        wall.append(num_steps / (time.perf_counter() - began))
        cpu.append(num_steps / (time.process_time() - began_cpu))
    print(
        f"{name:<34} {statistics.median(wall):>13,.0f} {max(wall):>13,.0f} "
        f"{statistics.median(cpu):>15,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--num-steps", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    sizes = chosen.num_envs, chosen.num_steps
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    print(
        f"{'steps per second':<34} {'median':>13} {'best':>13} {'per CPU second':>15}"
    )
    runs = {
        "scan, one key per step": time_scan(GuardedMaze(), *sizes),
        "scan, a key for each maze": time_scan(KeyForEachMaze(), *sizes),
        "scan, 16x16": time_scan(GuardedMaze(map="16x16"), *sizes),
        "Gymnasium vector": time_vector(chosen.num_envs, 50),
        "Gymnasium single": time_single(500),
    }
    for name, run in runs.items():
        report(name, run, chosen.repeats)


if __name__ == "__main__":
    main()
