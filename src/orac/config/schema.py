"""Every number a run depends on, in frozen dataclasses that check themselves.

Each field is followed by the sentence that `orac train --help` prints. A config is
hashable and static under `jit`. Presets with the paper's tables are in `presets.py`;
reading YAML and `--set` is in `serialization.py`.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from orac.config.validation import (
    check_choice,
    check_count,
    check_flags,
    check_range,
    check_seed,
    check_tuple,
    freeze,
)
from orac.core import risk
from orac.core.risk import RiskMeasure

RISK_FORMS = ("scalar", "implicit", "dual")
BEHAVIOURS = ("actor", "optimistic")
PIVOT_MODES = ("stationary", "episodic")
MULTIPLIER_STATES = ("replay", "starts")


@dataclass(frozen=True)
class MultiplierConfig:
    """The Lagrange multiplier of each constraint."""

    initial: float = 0.0
    """Value at the start of a run."""
    learning_rate: float = 5e-4
    """Adam's step size."""
    cap: float | None = None
    """Upper bound, or none: Adam adds about its step size at each violation, for ever."""
    pid: bool = False
    """Use a PID controller instead of Adam."""
    pid_gains: tuple[float, float, float] = (0.05, 5e-4, 0.1)
    """Proportional, integral and derivative gains, on (mean risk - limit) / limit."""
    states: str = "replay"
    """Whose mean risk is held to the limit: all states in the replay, or starts alone."""

    def __post_init__(self):
        freeze(self)
        check_choice("multiplier.states", self.states, MULTIPLIER_STATES)
        check_range("multiplier.initial", self.initial, 0)
        check_range("multiplier.learning_rate", self.learning_rate, 0)
        if self.cap is not None:
            check_range("multiplier.cap", self.cap, 0, open_low=True)
            if self.initial > self.cap:
                raise ValueError(
                    f"multiplier.initial must be at most multiplier.cap ({self.cap:g}), "
                    f"got {self.initial:g}. Raise the cap or start lower."
                )
        check_flags("multiplier", self, "pid")
        check_tuple("multiplier.pid_gains", self.pid_gains, "three numbers")
        if len(self.pid_gains) != 3:
            raise ValueError(
                "multiplier.pid_gains must be three numbers (proportional, integral, "
                f"derivative), got {self.pid_gains}. A gain of 0 switches a term off."
            )
        for gain in self.pid_gains:
            check_range("multiplier.pid_gains", gain, 0)


@dataclass(frozen=True)
class PivotConfig:
    """The dual form's pivot and the sampler that learns where it should be."""

    mode: str = "stationary"
    """stationary: on the cost to go; episodic: with the cost paid so far in the gate."""
    std: float = 0.05
    """Standard deviation of the truncated normal on [0, 1] that pivots are drawn from."""
    learning_rate: float = 3e-4
    """Adam's step size of the sampler's mean."""
    every: int = 1000
    """Environment steps between two outer steps."""
    penalty: float = 10.0
    """Weight of a violated limit in the outer objective."""
    max_gradient: float = 1.0
    """Bound on the outer step's gradient."""

    def __post_init__(self):
        freeze(self)
        check_choice("pivot.mode", self.mode, PIVOT_MODES)
        check_range("pivot.std", self.std, 0, open_low=True)
        check_range("pivot.learning_rate", self.learning_rate, 0)
        check_count("pivot.every", self.every)
        check_range("pivot.penalty", self.penalty, 0)
        check_range("pivot.max_gradient", self.max_gradient, 0, open_low=True)


@dataclass(frozen=True)
class ExplorationConfig:
    """How optimistic the behaviour policy is."""

    reward_optimism: float = 4.0
    """Standard deviations above the mean in the reward bound; negative looks down."""
    cost_optimism: float = 1.0
    """Standard deviations below the mean in the cost bound."""
    shift_radius: float = 4.0
    """Length of the mean's shift in the actor's own standard deviations."""
    radius_is_kl: bool = False
    """Read shift_radius as a KL divergence, as OAC does: the length is sqrt(2 radius)."""
    decay: bool = True
    """Let the radius fall linearly to 0 over the run."""

    def __post_init__(self):
        freeze(self)
        check_range("exploration.reward_optimism", self.reward_optimism)
        check_range("exploration.cost_optimism", self.cost_optimism)
        check_range("exploration.shift_radius", self.shift_radius, 0)
        check_flags("exploration", self, "radius_is_kl", "decay")


@dataclass(frozen=True)
class AgentConfig:
    """The learner. The six agents differ in `risk_form` and `behaviour`, and in their critics."""

    risk_form: str = "implicit"
    """scalar: mean cost; implicit: quantile network over levels; dual: with a pivot."""
    behaviour: str = "optimistic"
    """actor: sample the policy; optimistic: shift its mean first."""
    discount: float = 0.99
    """Discount of rewards."""
    cost_discount: float = 0.99
    """Discount of costs."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of every network."""
    embedding_size: int = 64
    """Number of cosines that embed a level in an implicit quantile network."""
    layer_norm: bool = False
    """Layer normalisation after each hidden linear map."""
    num_quantiles: int = 32
    """Quantiles per cost critic in its loss."""
    num_policy_quantiles: int = 32
    """Quantiles per cost critic in the actor's risk; of the implicit form only."""
    num_cost_critics: int = 5
    """Members of the cost ensemble, per constraint."""
    kappa: float = 1.0
    """Where the quantile Huber loss turns from square to straight."""
    shared_fractions: bool = True
    """One set of random fractions for a batch, rather than one per row: much faster."""
    bootstrap_on_truncation: bool = True
    """Whether a time limit is no end: targets go on past it."""
    actor_learning_rate: float = 3e-4
    """Adam's step size of the actor."""
    reward_critic_learning_rate: float = 3e-4
    """Adam's step size of the reward critics."""
    cost_critic_learning_rate: float = 3e-4
    """Adam's step size of the cost critics."""
    temperature_learning_rate: float = 5e-4
    """Adam's step size of the entropy temperature; 0 keeps it fixed."""
    initial_temperature: float = 1.0
    """Entropy temperature at the start."""
    target_entropy: float | None = None
    """Entropy the temperature aims at; by default minus the number of actions."""
    polyak: float = 0.005
    """Share of the online critics that enters their targets at an update of those."""
    target_every: int = 2
    """Gradient steps between two updates of the target critics."""
    max_gradient_norm: float | None = None
    """Clip each network's gradient to this norm, every member on its own, or do not."""
    normalize_observations: bool = False
    """Scale observations by running statistics, which are part of the agent's state."""
    reward_scale: float = 1.0
    """Factor on rewards in the learner; episodes and values are logged without it."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    pivot: PivotConfig = field(default_factory=PivotConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)

    def __post_init__(self):
        freeze(self)
        check_choice("agent.risk_form", self.risk_form, RISK_FORMS)
        check_choice("agent.behaviour", self.behaviour, BEHAVIOURS)
        check_flags(
            "agent",
            self,
            "layer_norm",
            "shared_fractions",
            "bootstrap_on_truncation",
            "normalize_observations",
        )
        self._check_discounts()
        self._check_networks()
        self._check_rates()

    def _check_discounts(self):
        check_range("agent.discount", self.discount, 0, 1, open_low=True)
        check_range("agent.cost_discount", self.cost_discount, 0, 1, open_low=True)
        # Numerics: the learner's numbers have 24 bits.
        if self.multiplier.states == "starts" and self.cost_discount > 1 - 2**-24:
            raise ValueError(
                "multiplier.states 'starts' needs an agent.cost_discount below 1, which "
                f"tells a start from later steps, got {self.cost_discount!r}. Set it to "
                "0.9999, say."
            )

    def _check_networks(self):
        check_tuple("agent.hidden_sizes", self.hidden_sizes, "whole numbers")
        needed = 2 if self.risk_form == "implicit" else 1
        if len(self.hidden_sizes) < needed:
            raise ValueError(
                f"agent.hidden_sizes must have at least {needed} entries for risk_form "
                f"{self.risk_form!r}, got {self.hidden_sizes}."
            )
        for size in self.hidden_sizes:
            check_count("agent.hidden_sizes", size)
        for what in ("embedding_size", "num_quantiles", "num_policy_quantiles"):
            check_count(f"agent.{what}", getattr(self, what))
        check_count(
            "agent.num_cost_critics",
            self.num_cost_critics,
            advice="1 is a critic without an ensemble; the paper has 2 or 5.",
        )

    def _check_rates(self):
        for name in ("actor", "reward_critic", "cost_critic", "temperature"):
            what = f"{name}_learning_rate"
            check_range(f"agent.{what}", getattr(self, what), 0)
        for what in ("kappa", "reward_scale", "initial_temperature"):
            check_range(f"agent.{what}", getattr(self, what), 0, open_low=True)
        check_range("agent.polyak", self.polyak, 0, 1, open_low=True)
        check_count("agent.target_every", self.target_every)
        if self.target_entropy is not None:
            check_range("agent.target_entropy", self.target_entropy)
        norm = self.max_gradient_norm
        if norm is not None:
            check_range("agent.max_gradient_norm", norm, 0, open_low=True)


COST_NAME = re.compile(r"[\w.-]+( +[\w.-]+)*")


def check_cost_name(name: str) -> None:
    """Refuse a name that cannot head a column or be part of a metric's name."""
    if not isinstance(name, str) or not COST_NAME.fullmatch(name):
        raise ValueError(
            "the name of a constraint must be letters, digits, '_', '.', '-' or inner "
            f"spaces, got {name!r}. It heads columns of the run's files."
        )


@dataclass(frozen=True)
class Constraint:
    """One cost, the limit of its risk per episode, and how its risk is measured."""

    name: str = "cost"
    """Name of the cost: the environment's, or a label for what `cost_fn` returns."""
    limit: float = 25.0
    """Most that the risk of an episode's undiscounted cost may be."""
    tail: float = 1.0
    """Worst-case mass in (0, 1] for CVaR: 0.05 is the worst 5 %, 1 is risk-neutral."""
    risk: str = "cvar"
    """Risk measure: cvar, mean, wang, power, dual_power or cpw."""
    risk_parameter: float | None = None
    """Parameter of a risk measure other than cvar and mean."""

    def __post_init__(self):
        freeze(self)
        check_cost_name(self.name)
        check_range(
            f"limit of constraint {self.name!r}",
            self.limit,
            0,
            advice="It is the most that an episode may cost; costs are at least 0.",
        )
        _ = self.measure
        RiskMeasure("cvar", self.tail)
        if self.risk in ("cvar", "mean") and self.risk_parameter is not None:
            raise ValueError(
                f"risk_parameter must be None for risk measure {self.risk!r}, got "
                f"{self.risk_parameter!r}. Set tail: it is what CVaR looks at."
            )

    @property
    def measure(self) -> RiskMeasure:
        """The risk measure that the fields describe."""
        if self.risk == "cvar":
            return RiskMeasure("cvar", self.tail)
        if self.risk == "mean":
            return RiskMeasure("mean")
        if self.risk_parameter is None and self.risk in risk.DISTORTIONS:
            raise ValueError(
                f"risk_parameter must be {risk.DISTORTIONS[self.risk].expects} for risk "
                f"measure {self.risk!r}, got None. Set risk_parameter."
            )
        return RiskMeasure(self.risk, self.risk_parameter or 0.0)


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
