"""Compare the package Safety-Gymnasium with our fast path.

Only two parts of the package are changed. The agent's XML is read from a copy with the
paper's timestep, and agents with joints are repaired, because the package cannot build them
with NumPy 2.4. Resets, steps, rewards, costs and observations are those of the package.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orac.envs.safety import import_compat
from orac.envs.safety.fast_path import FastSimulation
from orac.envs.safety.package_backend import build
from orac.envs.safety.tasks import TIMESTEPS, parse_id

STEPS = 400


def untouched(name, folder=None, timestep=None):
    """Return the package's environment, with `timestep` written into its XML if given."""
    env = build(parse_id(name))
    if timestep is not None:
        agent = env.task.agent
        source = Path(import_compat.module("world").BASE_DIR) / agent.base
        text, found = re.subn(
            r'(timestep=")[\d.]+', rf"\g<1>{timestep}", source.read_text()
        )
        assert found == 1
        copy = Path(folder) / source.name
        copy.write_text(text)
        # An absolute path replaces the package's folder where the two are joined.
        agent.base = str(copy)
    env.task.num_steps = STEPS
    return env


def paper_timestep(name):
    return TIMESTEPS[parse_id(name).agent]


def driver(name, noise=0.3):
    """Return a policy that steers roughly to the goal and so touches hazards and gremlins."""
    own = 12 if "Point" in name else 24
    start = own + (16 if "Button" in name else 0)
    random = np.random.default_rng(0)

    def act(observation):
        goal = observation[start : start + 16]
        angle = (int(np.argmax(goal)) + 0.5) * 2 * np.pi / 16
        if "Car" in name:
            # The car drives along its negative y axis.
            angle += np.pi / 2
        angle = (angle + np.pi) % (2 * np.pi) - np.pi
        if "Car" in name:
            action = np.cos(angle) + angle * np.array([1.0, -1.0])
        else:
            action = np.array([np.cos(angle), 1.5 * angle])
        return np.clip(action + random.normal(0.0, noise, 2), -1.0, 1.0)

    return act


@dataclass
class Comparison:
    """Largest differences, and counts of events that could have differed."""

    observation: float = 0.0
    reward: float = 0.0
    unequal: list = field(default_factory=list)
    steps: int = 0
    goals: int = 0
    terminations: int = 0
    costs: dict = field(default_factory=dict)

    def add(self, where, theirs, ours):
        observation, reward, cost, terminated, _, info = theirs
        our_observation, our_reward, our_terminated, our_info = ours
        gap = float(np.abs(observation - our_observation).max())
        self.observation = max(self.observation, gap)
        self.reward = max(self.reward, abs(float(reward) - our_reward))
        pairs = {
            "cost": (cost, our_info["cost_sum"]),
            "end": (terminated, our_terminated),
            "goal": (info.get("goal_met", False), our_info["goal_met"]),
            **{
                name: (info.get(name, 0.0), value)
                for name, value in our_info.items()
                if name.startswith("cost_")
            },
        }
        self.unequal += [(where, name) for name, (a, b) in pairs.items() if a != b]
        self.steps += 1
        self.goals += our_info["goal_met"]
        self.terminations += terminated
        for name, (value, _) in pairs.items():
            if name.startswith("cost"):
                self.costs[name] = self.costs.get(name, 0.0) + value


def differing_arrays(theirs, ours):
    """Return the names of arrays that differ between two models, except textures."""
    names = [name for name in dir(ours) if not name.startswith(("_", "tex_"))]
    arrays = [name for name in names if isinstance(getattr(ours, name), np.ndarray)]
    assert len(arrays) > 200
    return [
        name
        for name in arrays
        if name != "paths"
        and not np.array_equal(getattr(theirs, name), getattr(ours, name))
    ]


def compare(name, theirs, ours: FastSimulation, seeds, noise=0.3, steps=STEPS):
    """Step both with the same seeds and actions, and return their differences."""
    found, act = Comparison(), driver(name, noise)
    for seed in seeds:
        observation, _ = theirs.reset(seed=seed)
        ours.seed(seed)
        first = ours.reset()
        found.observation = max(found.observation, np.abs(observation - first).max())
        arrays = differing_arrays(theirs.task.model, ours.model)
        found.unequal += [(seed, "model", name) for name in arrays]
        for step in range(steps):
            action = act(observation)
            result = theirs.step(action)
            observation = result[0]
            found.add((seed, step), result, ours.step(action))
            if theirs.done:
                break
        same = np.array_equal(theirs.task.data.qpos, ours.data.qpos)
        found.unequal += [] if same else [(seed, "physics")]
    return found
