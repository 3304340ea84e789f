"""Every setting of a run, in frozen dataclasses that check themselves.

Each field is followed by the sentence that `orac train --help` prints, and its annotation
carries its valid range. A config is hashable and static under `jit`. Presets with the
paper's settings are in `presets.py`; YAML and `--set` are in `serialization.py`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from orac.config.validation import (
    Choice,
    Range,
    check_choice,
    check_fields,
    check_range,
    check_seed,
    check_value,
    freeze,
    is_number,
    shown,
)

Number = Annotated[float, Range()]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open_low=True)]
Fraction = Annotated[float, Range(0, 1, open_low=True)]
Count = Annotated[int, Range(1)]
CountFromZero = Annotated[int, Range(0)]
Steps = Annotated[int, Range(1, 2_000_000_000)]
"""Counted in 32 bits on the device."""

COST_NAME = re.compile(r"[\w.-]+( +[\w.-]+)*")


class RiskFamily(NamedTuple):
    """The parameters that a family of risk measures takes."""

    valid: Callable[[float], bool]
    expects: str
    coherent: bool = True
    """Whether it is a spectral measure, with weights that never decrease."""


RISK_FAMILIES: dict[str, RiskFamily] = {
    "mean": RiskFamily(lambda parameter: True, "no parameter"),
    "cvar": RiskFamily(
        lambda tail: 0 < tail <= 1,
        "a tail in (0, 1]; it is the worst-case mass: 0.05 means the worst 5%",
    ),
    "wang": RiskFamily(
        lambda shift: shift >= 0, "a shift of at least 0; 0 is the mean"
    ),
    "power": RiskFamily(
        lambda power: power >= 0, "a power of at least 0; 0 is the mean"
    ),
    "dual_power": RiskFamily(
        lambda power: power >= 0, "a power of at least 0; 0 is the mean"
    ),
    # Tversky and Kahneman's weighting overweights both ends: not a spectral measure.
    "cpw": RiskFamily(
        lambda power: 0.3 <= power <= 1,
        "a power in [0.3, 1]; 1 is the mean, 0.71 the usual choice",
        coherent=False,
    ),
}


@dataclass(frozen=True)
class RiskMeasure:
    """A risk measure by name and parameter. `core.risk` computes it.

    `RiskMeasure("cvar", 0.05)` is the mean of the worst 5 %.
    """

    name: str = "cvar"
    parameter: float = 1.0

    def __post_init__(self):
        check_choice("risk measure", str(self.name), RISK_FAMILIES)
        family = RISK_FAMILIES[self.name]
        if not is_number(self.parameter) or not family.valid(self.parameter):
            word = "tail" if self.name == "cvar" else "parameter"
            raise ValueError(
                f"{word} of risk measure {self.name!r} must be {family.expects}; "
                f"got {shown(self.parameter)}."
            )

    def __str__(self) -> str:
        if self.name == "mean":
            return "mean"
        name = "CVaR" if self.name == "cvar" else self.name
        return f"{name} at {self.parameter:g}"

    @property
    def coherent(self) -> bool:
        """Whether it is a spectral measure: monotone weights, sub-additive."""
        return RISK_FAMILIES[self.name].coherent

    @property
    def dual_tail(self) -> float:
        """The tail of a measure whose dual form has one pivot: CVaR or the mean."""
        if self.name == "mean":
            return 1.0
        if self.name == "cvar":
            return self.parameter
        if not self.coherent:
            raise ValueError(
                f"the dual form needs a spectral measure, got {self.name!r}, a distortion "
                "whose weights are not monotone, so that no dual form exists. "
                "Use risk_form='implicit', or the measure 'cvar'."
            )
        raise ValueError(
            f"the dual form supports only 'cvar' and 'mean', got {self.name!r}. "
            "Use risk_form='implicit', or the measure 'cvar'."
        )


@dataclass(frozen=True)
class Constraint:
    """One cost, the limit of its risk per episode, and how its risk is measured."""

    name: str = "cost"
    """Name of the cost: the environment's, or a label for what `cost_fn` returns."""
    limit: float = 25.0
    """Maximum risk of an episode's undiscounted cost."""
    tail: float = 1.0
    """Worst-case mass in (0, 1] for CVaR: 0.05 is the worst 5 %, 1 is risk-neutral."""
    risk: str = "cvar"
    """Risk measure: cvar, mean, wang, power, dual_power or cpw."""
    risk_parameter: float | None = None
    """Parameter of a risk measure other than cvar and mean."""
    cost_scale: float | None = None
    """Cost that counts as 1 when the multiplier follows episodes; by default the limit."""

    def __post_init__(self):
        freeze(self)
        if not isinstance(self.name, str) or not COST_NAME.fullmatch(self.name):
            raise ValueError(
                "the name of a constraint must be letters, digits, '_', '.', '-' or inner "
                f"spaces, got {shown(self.name)}. It is used in the names of columns."
            )
        check_range(
            f"limit of constraint {self.name!r}",
            self.limit,
            0,
            advice="It is the maximum cost of an episode; costs are at least 0.",
        )
        RiskMeasure("cvar", self.tail)
        check_choice("risk measure", str(self.risk), RISK_FAMILIES)
        if self.risk in ("cvar", "mean") and self.risk_parameter is not None:
            raise ValueError(
                f"risk_parameter must be None for risk measure {self.risk!r}, got "
                f"{shown(self.risk_parameter)}. Set tail, which CVaR uses."
            )
        if self.risk not in ("cvar", "mean") and self.risk_parameter is None:
            raise ValueError(
                f"risk_parameter must be {RISK_FAMILIES[self.risk].expects} for risk "
                f"measure {self.risk!r}, got None. Set risk_parameter."
            )
        _ = self.measure
        if self.cost_scale is not None:
            name = f"cost_scale of constraint {self.name!r}"
            check_range(name, self.cost_scale, 0, open_low=True)

    @property
    def unit(self) -> float:
        """The cost that counts as 1 in a learner whose multiplier follows episodes."""
        return self.cost_scale or self.limit

    @property
    def measure(self) -> RiskMeasure:
        """The risk measure that the fields describe."""
        if self.risk == "cvar":
            return RiskMeasure("cvar", self.tail)
        if self.risk_parameter is None:
            return RiskMeasure(self.risk)
        return RiskMeasure(self.risk, self.risk_parameter)


@dataclass(frozen=True)
class MultiplierConfig:
    """The Lagrange multiplier of each constraint."""

    follows: Annotated[str, Choice(("critics", "episodes"))] = "critics"
    """critics: the risk that the critics predict, as in the paper; episodes: the measured
    risk of whole episodes of the deployed policy."""
    initial: NonNegative = 0.0
    """Value at the start of a run."""
    learning_rate: NonNegative = 5e-4
    """Adam's step size."""
    cap: Positive | None = None
    """Upper bound; without one it keeps growing while the limit is violated."""
    pid: bool = False
    """Use a PID controller instead of Adam."""
    pid_gains: tuple[NonNegative, NonNegative, NonNegative] = (0.05, 5e-4, 0.1)
    """Proportional, integral and derivative gains, on (mean risk - limit) / limit."""
    states: Annotated[str, Choice(("replay", "starts"))] = "replay"
    """States over which risk is averaged: all in the replay, or only initial ones."""
    episodes_per_unit: Positive = 300.0
    """Episodes in which the log multiplier moves by 1 when the risk is twice its target."""
    proportional: NonNegative = 0.1
    """Proportional gain on the relative error, added to the log multiplier."""
    margin: Annotated[float, Range(0, 0.9)] = 0.05
    """Fraction of the limit by which the target of the measured risk is below the limit."""
    dead_zone: Annotated[float, Range(0, 1)] = 0.3
    """Relative error below the target down to which the multiplier does not change."""
    floor: Positive = 0.05
    """Lower bound of a multiplier that follows episodes."""
    remember_breaks: bool = True
    """If the limit is exceeded after the multiplier fell, stay above that multiplier."""

    def __post_init__(self):
        check_fields(self, "multiplier")
        if self.follows == "episodes" and self.initial <= 0:
            raise ValueError(
                "multiplier.initial must be above 0 when the multiplier follows episodes, "
                f"because its logarithm is moved, got {self.initial:g}. Start at 1."
            )
        if self.follows == "episodes" and self.initial < self.floor:
            raise ValueError(
                f"multiplier.initial must be at least multiplier.floor ({self.floor:g}), "
                f"got {self.initial:g}. Lower the floor or start higher."
            )
        if self.cap is not None and self.initial > self.cap:
            raise ValueError(
                f"multiplier.initial must be at most multiplier.cap ({self.cap:g}), "
                f"got {self.initial:g}. Raise the cap or start lower."
            )
        if len(self.pid_gains) != 3:
            raise ValueError(
                "multiplier.pid_gains must be three numbers (proportional, integral, "
                f"derivative), got {self.pid_gains}. A gain of 0 switches a term off."
            )


@dataclass(frozen=True)
class PivotConfig:
    """The pivot of the dual form, and the distribution that it is drawn from."""

    mode: Annotated[str, Choice(("stationary", "episodic"))] = "stationary"
    """stationary: pivot on the cost to go; episodic: on the cost of the whole episode."""
    std: Positive = 0.05
    """Standard deviation of the truncated normal on [0, 1] that pivots are drawn from."""
    learning_rate: NonNegative = 3e-4
    """Adam's step size for the mean of the pivot distribution."""
    every: Count = 1000
    """Environment steps between two outer steps."""
    penalty: NonNegative = 10.0
    """Weight of a violated limit in the outer objective."""
    max_gradient: Positive = 1.0
    """Bound on the outer step's gradient."""

    def __post_init__(self):
        check_fields(self, "pivot")


@dataclass(frozen=True)
class ExplorationConfig:
    """How optimistic the behaviour policy is."""

    reward_optimism: Number = 4.0
    """Standard deviations above the mean in the reward bound; negative is pessimistic."""
    cost_optimism: Number = 1.0
    """Standard deviations below the mean in the cost bound."""
    shift_radius: NonNegative = 4.0
    """Length of the mean's shift, in standard deviations of the actor."""
    radius_is_kl: bool = False
    """Read shift_radius as a KL divergence, as OAC does: the length is sqrt(2 radius)."""
    decay: bool = True
    """Decrease the radius linearly to 0 over the run."""
    decay_when_feasible: bool = False
    """Decrease the radius further while the measured risk stays within the limit."""

    def __post_init__(self):
        check_fields(self, "exploration")


@dataclass(frozen=True)
class Encoder:
    """A pair of functions in front of every network, and the name of the pair.

    `core.encoders` describes the functions. A file has only the name.
    """

    name: str
    init: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class AgentConfig:
    """The learner. Agents differ in `risk_form`, `behaviour` and number of cost critics."""

    risk_form: Annotated[str, Choice(("scalar", "quantile", "implicit", "dual"))] = (
        "implicit"
    )
    """scalar: mean cost; quantile: fixed quantiles; implicit: IQN; dual: with a pivot."""
    behaviour: Annotated[str, Choice(("actor", "optimistic"))] = "optimistic"
    """actor: sample the policy; optimistic: shift its mean first."""
    discount: Fraction = 0.99
    """Discount factor of rewards."""
    cost_discount: Fraction = 0.99
    """Discount factor of costs."""
    hidden_sizes: tuple[Annotated[int, Range(1, 100_000)], ...] = (256, 256)
    """Widths of the hidden layers of every network."""
    embedding_size: Annotated[int, Range(1, 100_000)] = 64
    """Number of cosines that embed a level in an implicit quantile network."""
    layer_norm: bool = False
    """Apply layer normalisation after each hidden linear map."""
    critic_layer_norm: bool | None = None
    """Layer normalisation in the critics; by default the same as layer_norm."""
    num_quantiles: Annotated[int, Range(1, 10_000)] = 32
    """Quantiles per cost critic in its loss."""
    num_policy_quantiles: Annotated[int, Range(1, 10_000)] = 32
    """Quantiles per cost critic in the actor's risk; only in the implicit form."""
    num_cost_critics: Annotated[
        int,
        Range(
            1, 1000, advice="1 is a critic without an ensemble; the paper has 2 or 5."
        ),
    ] = 5
    """Members of the cost ensemble, per constraint."""
    kappa: Positive = 1.0
    """Error at which the quantile Huber loss changes from quadratic to linear."""
    recentre_quantiles: bool = False
    """Shift the quantiles so that they have a learned mean; only in the quantile form."""
    shared_fractions: bool = True
    """Use one set of random fractions per batch instead of one per row: much faster."""
    bootstrap_on_truncation: bool = True
    """Bootstrap through time limits instead of treating them as terminal."""
    n_step: Annotated[int, Range(1, 100)] = 1
    """Steps of reward and cost in the critics' targets before they bootstrap."""
    centre: bool = False
    """Subtract the mean reward and cost of the warm-up; needs episodes of fixed length."""
    divide_by_multipliers: bool = False
    """Divide the actor's objective, without its entropy, by 1 plus the multipliers."""
    actor_every: Count = 1
    """Gradient steps of the critics per gradient step of the actor."""
    actor_average: Annotated[float, Range(0, 0.999999)] = 0.0
    """Decay per update of the averaged actor, which is deployed; 0: no average."""
    deployed_action: Annotated[str, Choice(("mean", "sample", "measured"))] = "mean"
    """Action of the deployed policy: the mean, a sample, or the better of the two."""
    actor_learning_rate: NonNegative = 3e-4
    """Adam's step size of the actor."""
    reward_critic_learning_rate: NonNegative = 3e-4
    """Adam's step size of the reward critics."""
    cost_critic_learning_rate: NonNegative = 3e-4
    """Adam's step size of the cost critics."""
    temperature_learning_rate: NonNegative = 5e-4
    """Adam's step size of the entropy temperature; 0 keeps it fixed."""
    initial_temperature: Positive = 1.0
    """Entropy temperature at the start."""
    target_entropy: Number | None = None
    """Entropy that the temperature aims at; by default minus the number of actions."""
    final_target_entropy: Number | None = None
    """Target entropy when the schedules have ended; by default target_entropy."""
    final_learning_rate: Fraction = 1.0
    """Factor on the networks' learning rates when the schedules have ended."""
    polyak: Fraction = 0.005
    """Polyak coefficient: fraction of the online weights mixed into the target."""
    target_every: Count = 2
    """Gradient steps between two updates of the target critics."""
    max_gradient_norm: Positive | None = None
    """Maximum norm of each network's gradient, per ensemble member; none: no clipping."""
    normalize_observations: bool = False
    """Scale observations by running statistics, which are part of the agent's state."""
    encoder: str | Encoder | None = None
    """Functions that turn observations into features, as module:name; only --encoder imports
    them."""
    reward_scale: Positive = 1.0
    """Factor on rewards in the learner; logged rewards and values are without it."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the episodes' returns."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    pivot: PivotConfig = field(default_factory=PivotConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)

    def __post_init__(self):
        check_fields(self, "agent")
        # Numerics: float32 has a significand of 24 bits.
        if self.multiplier.states == "starts" and self.cost_discount > 1 - 2**-24:
            raise ValueError(
                "multiplier.states 'starts' needs an agent.cost_discount below 1, because "
                "initial states are recognised by their accumulated discount, got "
                f"{self.cost_discount!r}. Set it to 0.9999, for example."
            )
        if self.centre and max(self.discount, self.cost_discount) == 1:
            raise ValueError(
                "agent.centre needs discounts below 1, because it takes the mean from every "
                f"step to come, got {self.discount!r} and {self.cost_discount!r}."
            )
        if self.recentre_quantiles and self.risk_form != "quantile":
            raise ValueError(
                "agent.recentre_quantiles needs agent.risk_form 'quantile', got "
                f"{self.risk_form!r}. Switch it off, or change the form."
            )
        if not isinstance(self.encoder, str | Encoder | None):
            raise ValueError(
                "agent.encoder must be the name of a pair of functions, as module:name, got "
                f"{self.encoder!r}. Pass the pair itself as encoder=(init, apply)."
            )
        needed = 2 if self.risk_form == "implicit" else 1
        if len(self.hidden_sizes) < needed:
            raise ValueError(
                f"agent.hidden_sizes must have at least {needed} entries for risk_form "
                f"{self.risk_form!r}, got {self.hidden_sizes}."
            )

    @property
    def norms_critics(self) -> bool:
        """Whether the critics have layer norms."""
        own = self.critic_layer_norm
        return self.layer_norm if own is None else own

    @property
    def follows_episodes(self) -> bool:
        """Whether the multiplier follows the measured risk of episodes."""
        return self.multiplier.follows == "episodes"

    def learned_measure(self, constraint: Constraint) -> RiskMeasure:
        """Return the measure that the critics estimate: a scalar critic has the mean."""
        return RiskMeasure("mean") if self.risk_form == "scalar" else constraint.measure


@dataclass(frozen=True)
class TrainingConfig:
    """The loop: how much experience, how many gradient steps, and how often to write."""

    total_steps: Steps = 500_000
    """Environment steps of the run, over all parallel environments."""
    num_envs: Annotated[int, Range(1, 1_000_000)] = 1
    """Number of environments stepped in parallel."""
    learning_starts: CountFromZero = 5_000
    """Environment steps with uniformly random actions before learning."""
    gradient_steps: Annotated[float, Range(0, 1000, open_low=True)] = 1.0
    """Gradient steps per environment step; 0.125 is one every 8 steps."""
    batch_size: Annotated[int, Range(1, 10_000_000)] = 256
    """Transitions per gradient step."""
    buffer_size: Steps = 1_000_000
    """Capacity of the replay, in transitions."""
    log_every: Annotated[int, Range(1, 10_000_000)] = 1_000
    """Environment steps between two rows of metrics.csv."""
    checkpoint_every: Count = 10_000
    """Environment steps between two checkpoints."""
    keep_replay: bool = True
    """Save the replay in checkpoints; without it a resumed run is not exact."""
    deployed_envs: CountFromZero | None = None
    """Environments on the host that act with the deployed policy when the multiplier
    follows episodes; by default half of them."""
    restarts: CountFromZero = 0
    """Maximum number of times that a stuck actor is replaced by a new one."""
    schedule_steps: Steps | None = None
    """Steps after which all schedules have ended; by default total_steps. A run that is
    trained further keeps its first total here."""
    updates_start: CountFromZero = 0
    """Step of the first update of an agent that was loaded without its replay; before it,
    its policy collects steps."""

    @property
    def horizon(self) -> int:
        """Number of steps over which the schedules run."""
        return self.schedule_steps or self.total_steps

    @property
    def first_update(self) -> int:
        """Number of steps before the first update."""
        return max(self.learning_starts, self.updates_start)

    def __post_init__(self):
        check_fields(self, "training")
        ratio = self.gradient_steps * self.num_envs
        if min(abs(x - round(x)) for x in (ratio, 1 / ratio)) > 1e-6:
            raise ValueError(
                "training.gradient_steps * training.num_envs must be a whole number or "
                f"one over a whole number, got {self.gradient_steps} * {self.num_envs} = "
                f"{ratio:g}. With {self.num_envs} environments, "
                f"{1 / self.num_envs:g} gives one gradient step per round."
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluations during training."""

    every: CountFromZero = 10_000
    """Environment steps between two evaluations; 0 evaluates only at the end."""
    episodes: Annotated[int, Range(1, 10_000_000)] = 100
    """Episodes per evaluation."""
    deterministic: bool = True
    """Act with the policy's mean; otherwise sample it."""
    num_envs: Annotated[int, Range(1, 10_000)] = 8
    """Environments on the host that play the episodes of an evaluation at the same time."""

    def __post_init__(self):
        check_fields(self, "evaluation")


@dataclass(frozen=True)
class EnvConfig:
    """The environment and its parameters."""

    id: str = "orac/GuardedMaze-v0"
    """A Gymnasium id; `orac envs` lists those that run on device."""
    params: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the environment, as name and value pairs."""
    episode_length: Steps | None = None
    """Maximum length of an episode, for environments that do not declare it."""
    cost_fn: str | None = None
    """Function that computes the cost, as module:function; only --cost-fn imports it."""

    def __post_init__(self):
        check_fields(self, "env")
        if not isinstance(self.id, str) or not self.id.strip():
            raise ValueError(
                f"env.id must be the id of an environment, got {self.id!r}. `orac envs` "
                "lists some."
            )
        try:
            hash(self.params)
        except TypeError:
            raise ValueError(
                "env.params must be numbers, text, bools or lists of them, got "
                f"{dict(self.params)}. Make the environment in Python and pass it instead."
            ) from None


SECTIONS = {
    "env": EnvConfig,
    "agent": AgentConfig,
    "training": TrainingConfig,
    "evaluation": EvaluationConfig,
}
"""Sections of a config that are configs themselves."""


@dataclass(frozen=True)
class Config:
    """One run: which agent, in which environment, under which constraints."""

    algo: str = "orac"
    """Name of the preset that the agent's settings came from."""
    seed: int = 0
    """Seed of all randomness."""
    env: EnvConfig = field(default_factory=EnvConfig)
    constraints: tuple[Constraint, ...] = (Constraint(),)
    agent: AgentConfig = field(default_factory=AgentConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        freeze(self)
        if not isinstance(self.algo, str):
            raise ValueError(f"algo must be a text, got {shown(self.algo)}.")
        check_seed("seed", self.seed)
        for name, kind in SECTIONS.items():
            check_value(name, getattr(self, name), kind)
        if not isinstance(self.constraints, tuple):
            raise ValueError(
                "constraints must be a list of constraints, got "
                f"{shown(self.constraints)}."
            )
        for constraint in self.constraints:
            check_value("an entry of constraints", constraint, Constraint)
        names = [constraint.name for constraint in self.constraints]
        if len(set(names)) < len(names):
            raise ValueError(
                f"constraints must have different names, got {names}. Rename one."
            )
        for constraint in self.constraints:
            if self.agent.risk_form == "dual":
                _ = constraint.measure.dual_tail
            if self.agent.risk_form == "scalar" and constraint.risk not in (
                "cvar",
                "mean",
            ):
                raise ValueError(
                    "the scalar form learns only the mean of a cost, got risk "
                    f"{constraint.risk!r}. Use risk_form='quantile'."
                )
            if self.agent.follows_episodes and constraint.unit <= 0:
                raise ValueError(
                    f"constraint {constraint.name!r} has a limit of 0, so its costs cannot "
                    "be divided by the limit. Set cost_scale to a cost that is clearly too "
                    "high; note that a limit of 0 can never be certified from samples."
                )
        deployed, num_envs = self.training.deployed_envs, self.training.num_envs
        if deployed is not None and deployed > max(num_envs - 1, 1):
            raise ValueError(
                "training.deployed_envs must leave at least one of the "
                f"{num_envs} environments to explore, got {deployed}. Use half of them, or "
                "more environments."
            )
        updates = max(round(self.training.gradient_steps * self.training.num_envs), 1)
        if updates % self.agent.actor_every:
            raise ValueError(
                "agent.actor_every must divide the gradient steps per round, which are "
                f"{updates}, got {self.agent.actor_every}. Use 1, or more environments."
            )
