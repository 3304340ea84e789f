"""How many Safety-Gymnasium steps a second the package makes, and ours, resets included.

    python benchmarks/safety_gym.py

Plays whole episodes of the paper's variants (400 steps) with the untouched package and
with the fast path in turn, so that a busy machine slows both; then several environments
side by side: one after another, in two threads, and in our vector environment. CPU
seconds are those of this process; on idle cores wall speed is what a user waits for.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from orac.envs.safety.adapter import SafetyEnv
from orac.envs.safety.package_backend import build
from orac.envs.safety.tasks import PAPER_STEPS, TIMESTEPS, parse
from orac.envs.safety.vector import SafetyVectorEnv

Speed = tuple[float, float]
"""Steps a second, and steps a second of CPU time."""


def settings(name: str) -> dict[str, Any]:
    """The paper's variant of a task."""
    timestep = TIMESTEPS[str(parse(name).agent)]
    return {"task": name, "timestep": timestep, "episode_length": PAPER_STEPS}


def timed(run: Callable[[], None], steps: int) -> Speed:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return steps / wall, steps / cpu


def package_episodes(name: str) -> Iterator[Speed]:
    """Episodes of the package as it is, but for the timestep."""
    env, actions = build(parse(name)), episode_actions()
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
    makers = {
        "the package": package_episodes(name),
        "the fast path": fast_episodes(name),
    }
    speeds: dict[str, list[Speed]] = {maker: [] for maker in makers}
    for _ in range(episodes):
        for maker, played in makers.items():
            speeds[maker].append(next(played))
    middle = [show(f"{name}, {maker}", found) for maker, found in speeds.items()]
    print(f"{'':<42} {middle[1] / middle[0]:>9.1f}x")


def compare_side_by_side(name: str, num_envs: int, repeats: int) -> None:
    """Without resets, which are the same work in each way of stepping."""
    chosen = {**settings(name), "episode_length": 10**9}
    envs = [SafetyEnv(**chosen) for _ in range(num_envs)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    vector = SafetyVectorEnv(num_envs, **chosen)
    vector.reset(seed=list(range(num_envs)))
    actions = np.random.default_rng(0).uniform(-1, 1, (50, num_envs, 2))

    def step_some(first: int, last: int, action: np.ndarray) -> None:
        for index in range(first, last):
            envs[index].step(action[index])

    def one_by_one() -> None:
        for action in actions:
            step_some(0, num_envs, action)

    with ThreadPoolExecutor(1) as pool:

        def threads() -> None:
            for action in actions:
                other = pool.submit(step_some, 0, num_envs // 2, action)
                step_some(num_envs // 2, num_envs, action)
                other.result()

        def processes() -> None:
            for action in actions:
                vector.step(action)

        ways = {"one by one": one_by_one, "threads": threads, "processes": processes}
        speeds: dict[str, list[Speed]] = {way: [] for way in ways}
        for _ in range(repeats):
            for way, run in ways.items():
                speeds[way].append(timed(run, actions.shape[0] * num_envs))
    vector.close()
    for way, found in speeds.items():
        show(f"{name}, {num_envs} {way}", found)


def show(name: str, speeds: list[Speed]) -> float:
    wall, cpu = ([speed[kind] for speed in speeds] for kind in (0, 1))
    median = statistics.median(wall)
    print(
        f"{name:<42} {median:>9,.0f} {max(wall):>9,.0f} {statistics.median(cpu):>9,.0f}",
        flush=True,
    )
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["PointGoal1", "PointButton1"])
    parser.add_argument("--episodes", type=int, default=7)
    parser.add_argument("--num-envs", type=int, nargs="*", default=[4, 8])
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    print(f"{'steps a second':<42} {'median':>9} {'best':>9} {'per CPU s':>9}")
    for task in chosen.tasks:
        compare_episodes(f"Safety{task}-v0", chosen.episodes)
    for task in chosen.tasks:
        for num_envs in chosen.num_envs:
            compare_side_by_side(f"Safety{task}-v0", num_envs, 15)


if __name__ == "__main__":
    main()
