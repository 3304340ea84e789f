"""An environment is tried before it is trained on: each failure is one clear sentence.

What needs no step (spaces, options, how episodes restart) is refused when a `HostEnv` is
made; here it takes a few random steps and must know how long an episode is. Every later
step is still checked as it is taken. Knows nothing of agents or training.
"""

import warnings

import numpy as np

from orac.envs.gym_adapter.vector import HostEnv

HUGE = 10_000
"""Numbers in an observation from which on a sentence warns: 58 x 58 pixels in colour."""


def check_environment(host: HostEnv, *, steps: int = 20, seed: int = 0) -> None:
    """Raise a `ValueError` that names the fix, if `host` cannot be trained on.

    Takes `steps` random steps from `reset(seed)`; the caller resets before its first own.
    """
    spec = host.spec
    if spec.episode_length is None:
        raise ValueError(
            f"{spec.name} does not say how long an episode can be, and limits and "
            "certificates need to know. Pass episode_length=, which also truncates there."
        )
    if spec.observation_size >= HUGE:
        gigabytes = spec.observation_size * 8e6 / 1e9
        warnings.warn(
            f"{spec.name}: an observation has {spec.observation_size:,} numbers. Networks "
            f"here are plain layers for vectors, and a million stored steps take about "
            f"{gigabytes:.0f} GB: observe features instead of pixels where you can.",
            stacklevel=2,
        )
    _check_seeding(host, seed)
    _random_steps(host, steps, seed)
    host.steps = 0


def _check_seeding(host: HostEnv, seed: int) -> None:
    if not np.array_equal(host.reset(seed), host.reset(seed)):
        warnings.warn(
            f"{host.spec.name} starts differently after each reset(seed={seed}): runs on it "
            "cannot be repeated. Call super().reset(seed=seed) and draw from "
            "self.np_random in its reset.",
            stacklevel=3,
        )


def _random_steps(host: HostEnv, steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = host.num_envs, host.spec.action_size
    for _ in range(steps):
        host.step(generator.uniform(host.spec.action_low, host.spec.action_high, shape))
