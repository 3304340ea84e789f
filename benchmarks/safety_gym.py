"""Measure how many steps of Safety-Gymnasium this machine makes per second.

    python benchmarks/safety_gym.py

The unchanged package and our fast path (`orac.envs.safety.fast_path`) play whole episodes of
the paper's tasks, with 400 steps and a reset, in turn, so that other load slows both. Then
several environments are stepped one after another, directly and by our vector environment.
CPU seconds are measured for this process only.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orac.envs.safety.env import SafetyEnv, SafetyVectorEnv
from orac.envs.safety.package_backend import build
from orac.envs.safety.tasks import PAPER_STEPS, TIMESTEPS, parse_id

Speed = tuple[float, float]
"""Steps per second, and steps per second of CPU time."""


def settings(name: str) -> dict[str, Any]:
    """Return the settings that the paper uses for a task."""
    timestep = TIMESTEPS[str(parse_id(name).agent)]
    return {"task": name, "timestep": timestep, "episode_length": PAPER_STEPS}


def timed(run: Callable[[], None], steps: int) -> Speed:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return steps / wall, steps / cpu


def package_episodes(name: str) -> Iterator[Speed]:
    """Play episodes with the package's own code at the paper's timestep."""
    env, actions = build(parse_id(name)), episode_actions()
    env.task.num_steps = PAPER_STEPS

    def play() -> None:
        env.reset()
        env.task.model.opt.timestep = settings(name)["timestep"]
        for action in actions:
            env.step(action)

    env.reset(seed=0)
    while True:
        yield timed(play, PAPER_STEPS)


def fast_episodes(name: str) -> Iterator[Speed]:
    """Play episodes with the fast path."""
    env, actions = SafetyEnv(**settings(name), fast=True), episode_actions()

    def play() -> None:
        env.reset()
        for action in actions:
            if env.step(action)[2]:
                env.reset()

    env.reset(seed=0)
    while True:
        yield timed(play, PAPER_STEPS)


def episode_actions() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (PAPER_STEPS, 2))


def compare_episodes(name: str, episodes: int) -> None:
    players = {
        "the package": package_episodes(name),
        "the fast path": fast_episodes(name),
    }
    speeds: dict[str, list[Speed]] = {player: [] for player in players}
    for _ in range(episodes):
        for player, played in players.items():
            speeds[player].append(next(played))
    medians = [show(f"{name}, {player}", found) for player, found in speeds.items()]
    print(f"{'':<46} {medians[1] / medians[0]:>9.1f}x")


def compare_vector(name: str, num_envs: int, repeats: int) -> None:
    """Compare steps without resets, because resets take the same time in both cases."""
    chosen = {**settings(name), "episode_length": 10**9}
    envs = [SafetyEnv(**chosen) for _ in range(num_envs)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    vector = SafetyVectorEnv(num_envs, **chosen)
    vector.reset(seed=list(range(num_envs)))
    actions = np.random.default_rng(0).uniform(-1, 1, (50, num_envs, 2))

    def step_single_envs() -> None:
        for batch in actions:
            for env, action in zip(envs, batch, strict=True):
                env.step(action)

    def step_vector_env() -> None:
        for batch in actions:
            vector.step(batch)

    ways = {"single": step_single_envs, "vector": step_vector_env}
    speeds: dict[str, list[Speed]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            speeds[way].append(timed(run, actions.shape[0] * num_envs))
    for way, found in speeds.items():
        show(f"{name}, {num_envs} environments, {way}", found)


def show(name: str, speeds: list[Speed]) -> float:
    wall, cpu = ([speed[kind] for speed in speeds] for kind in (0, 1))
    median = statistics.median(wall)
    print(
        f"{name:<46} {median:>9,.0f} {max(wall):>9,.0f} {statistics.median(cpu):>9,.0f}",
        flush=True,
    )
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["PointGoal1", "PointButton1"])
    parser.add_argument("--episodes", type=int, default=7)
    parser.add_argument("--num-envs", type=int, nargs="*", default=[4, 8])
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the benchmark")
    print(f"{'steps per second':<46} {'median':>9} {'best':>9} {'per CPU s':>9}")
    for task in chosen.tasks:
        compare_episodes(f"Safety{task}-v0", chosen.episodes)
    for task in chosen.tasks:
        for num_envs in chosen.num_envs:
            compare_vector(f"Safety{task}-v0", num_envs, 15)


if __name__ == "__main__":
    main()
