"""A whole run: agent, world, constraints, the loop and its evaluations."""

from dataclasses import dataclass, field
from typing import Any

from orac import risk
from orac.checks import (
    check_count,
    check_flags,
    check_range,
    check_seed,
    check_tuple,
    freeze,
)
from orac.config.agent import AgentConfig
from orac.config.constraint import Constraint


@dataclass(frozen=True)
class TrainingConfig:
    """The loop: how much experience, how many gradient steps, and how often to write."""

    total_steps: int = 500_000
    """Environment steps of the run, over all parallel environments."""
    num_envs: int = 1
    """Environments stepped side by side."""
    learning_starts: int = 5_000
    """Environment steps with uniformly random actions before learning."""
    gradient_steps: float = 1.0
    """Gradient steps per environment step; below 1, one every so many steps."""
    batch_size: int = 256
    """Transitions per gradient step."""
    buffer_size: int = 1_000_000
    """Transitions that the replay holds."""
    log_every: int = 1_000
    """Environment steps between two rows of metrics.csv."""
    checkpoint_every: int = 10_000
    """Environment steps between two checkpoints."""
    keep_replay: bool = True
    """Whether checkpoints hold the replay; without it a resumed run is not exact."""

    def __post_init__(self):
        freeze(self)
        for what in (
            "total_steps",
            "num_envs",
            "batch_size",
            "buffer_size",
            "log_every",
            "checkpoint_every",
        ):
            check_count(f"training.{what}", getattr(self, what))
        check_count("training.learning_starts", self.learning_starts, 0)
        check_flags("training", self, "keep_replay")
        check_range("training.gradient_steps", self.gradient_steps, 0, open_low=True)
        ratio = self.gradient_steps * self.num_envs
        if (
            abs(ratio - round(ratio)) > 1e-6
            and abs(1 / ratio - round(1 / ratio)) > 1e-6
        ):
            raise ValueError(
                "training.gradient_steps * training.num_envs must be a whole number or "
                f"one over a whole number, got {self.gradient_steps} * {self.num_envs} = "
                f"{ratio:g}. With {self.num_envs} environments, "
                f"{1 / self.num_envs:g} gives one gradient step per round."
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluations of the actor's mean action while training goes on."""

    every: int = 10_000
    """Environment steps between two evaluations; 0 evaluates at the end only."""
    episodes: int = 100
    """Episodes per evaluation."""
    deterministic: bool = True
    """Act with the policy's mean; otherwise sample it."""

    def __post_init__(self):
        freeze(self)
        check_count("evaluation.every", self.every, 0)
        check_count("evaluation.episodes", self.episodes)
        check_flags("evaluation", self, "deterministic")


@dataclass(frozen=True)
class EnvConfig:
    """The environment and what it is made with."""

    id: str = "orac/GuardedMaze-v0"
    """A Gymnasium id; `orac envs` lists those that run on device."""
    params: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the environment, as name and value pairs."""
    episode_length: int | None = None
    """Most steps an episode can have, for environments that do not say."""
    cost_fn: str | None = None
    """Function that computes the cost, as module:function; --cost-fn says to import it."""

    def __post_init__(self):
        freeze(self)
        if self.episode_length is not None:
            check_count("env.episode_length", self.episode_length)
        try:
            hash(self.params)
        except TypeError:
            raise ValueError(
                "env.params must be numbers, text, bools or lists of them, got "
                f"{dict(self.params)}. Make the environment in Python and pass it instead."
            ) from None


@dataclass(frozen=True)
class Config:
    """One run: which agent, in which world, under which constraints."""

    algo: str = "orac"
    """Name of the preset that the agent's settings came from."""
    seed: int = 0
    """Everything random derives from it."""
    env: EnvConfig = field(default_factory=EnvConfig)
    constraints: tuple[Constraint, ...] = (Constraint(),)
    agent: AgentConfig = field(default_factory=AgentConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        freeze(self)
        check_seed("seed", self.seed)
        check_tuple("constraints", self.constraints, "constraints")
        names = [constraint.name for constraint in self.constraints]
        if len(set(names)) < len(names):
            raise ValueError(
                f"constraints must have names of their own, got {names}. Rename one."
            )
        for constraint in self.constraints:
            if self.agent.risk_form == "dual":
                risk.dual_tail(constraint.measure)
            if self.agent.risk_form == "scalar" and constraint.risk not in (
                "cvar",
                "mean",
            ):
                raise ValueError(
                    "the scalar form learns the mean of a cost alone, got risk "
                    f"{constraint.risk!r}. Use risk_form='implicit'."
                )
