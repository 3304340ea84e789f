"""Frozen dataclasses that contain every setting of a run and check the values.

The text below a field is also its help text in `orac train --help`. Most annotations
contain the valid values of a field. `__post_init__` checks these, and rules that concern
several fields. A config is hashable, so that it can be a static argument of `jit`. An agent
starts from a preset (`presets.py`: paper, fast or general), which replaces many of the
defaults here. `serialization.py` reads and writes configs as YAML, and `overrides.py`
changes single fields, as `--set` does.
"""

import re
from collections.abc import Callable, Iterable
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
MAX_INT = 2_000_000_000
"""Maximum of a count, because the device counts with 32-bit integers."""
MAX_LAYERS = 16
"""Maximum number of hidden layers. Hundreds of them would take minutes to compile."""
Count = Annotated[int, Range(1, MAX_INT)]
CountFromZero = Annotated[int, Range(0, MAX_INT)]
SMALLEST_TAIL = 1e-5
"""Smallest tail of a constraint. With this tail, only 10 of a million episodes are in the
tail."""
SMALLEST_LIMIT = 1e-30
"""Smallest limit other than 0, and smallest cost scale. The learner may divide costs by
either."""

COST_NAME = re.compile(r"[\w.-]+( +[\w.-]+)*")


class RiskFamily(NamedTuple):
    """The valid parameters of a family of risk measures."""

    valid: Callable[[float], bool]
    """Function that returns whether a parameter is valid."""
    expects: str
    """Description of the valid parameters, for error messages."""
    coherent: bool = True
    """Whether the measures are spectral, which means that a higher quantile never has a lower
    weight."""


RISK_FAMILIES: dict[str, RiskFamily] = {
    "mean": RiskFamily(lambda parameter: True, "any finite number, which is ignored"),
    "cvar": RiskFamily(
        lambda tail: 0 < tail <= 1,
        "in (0, 1], as a fraction of worst cases: 0.05 means the worst 5 %",
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
    # Tversky and Kahneman's weighting is not spectral, because it overweights both ends.
    "cpw": RiskFamily(
        lambda power: 0.3 <= power <= 1,
        "a power in [0.3, 1]; 1 is the mean, and 0.71 is the usual choice",
        coherent=False,
    ),
}


@dataclass(frozen=True)
class RiskMeasure:
    """The name and the parameter of a risk measure, which `core.risk` computes.

    `RiskMeasure("cvar", 0.05)` is the mean of the worst 5 %.
    """

    name: str = "cvar"
    parameter: float = 1.0

    def __post_init__(self):
        check_choice("risk measure", str(self.name), RISK_FAMILIES)
        family = RISK_FAMILIES[self.name]
        if not is_number(self.parameter) or not family.valid(self.parameter):
            noun = "tail" if self.name == "cvar" else "parameter"
            raise ValueError(
                f"{noun} of risk measure {self.name!r} must be {family.expects}; "
                f"got {shown(self.parameter)}."
            )

    def __str__(self) -> str:
        if self.name == "mean":
            return "mean"
        name = "CVaR" if self.name == "cvar" else self.name
        return f"{name} at {self.parameter:g}"

    @property
    def coherent(self) -> bool:
        """Whether the measure is spectral, which makes it sub-additive."""
        return RISK_FAMILIES[self.name].coherent

    @property
    def dual_tail(self) -> float:
        """The tail of CVaR, or 1 for the mean. Other measures raise an error."""
        if self.name == "mean":
            return 1.0
        if self.name == "cvar":
            return self.parameter
        if not self.coherent:
            raise ValueError(
                f"the dual form needs a spectral measure, got {self.name!r}, whose weights "
                "are not monotone, so that no dual form exists. "
                "Use risk_form='implicit', or the measure 'cvar'."
            )
        raise ValueError(
            f"the dual form supports only 'cvar' and 'mean', got {self.name!r}. "
            "Use risk_form='implicit', or the measure 'cvar'."
        )


@dataclass(frozen=True)
class Constraint:
    """A limit on the risk of one kind of cost, summed over an episode."""

    name: str = "cost"
    """Name of the cost in the environment, or a label for the result of `cost_fn`."""
    limit: float = 25.0
    """Highest allowed risk of an episode's undiscounted cost."""
    tail: float = 1.0
    """CVaR is the mean cost of the worst episodes, and tail is their fraction: 0.05 means the
    worst 5 %, and 1 means all episodes."""
    risk: str = "cvar"
    """Risk measure: cvar, mean, wang, power, dual_power or cpw."""
    risk_parameter: float | None = None
    """Parameter of the measures wang, power, dual_power and cpw. The others take none."""
    cost_scale: float | None = None
    """Cost of an episode that the learner uses as the unit of this cost, if the multiplier
    follows episodes. The default is the limit."""

    def __post_init__(self):
        freeze(self)
        if not isinstance(self.name, str) or not COST_NAME.fullmatch(self.name):
            raise ValueError(
                "the name of a constraint must consist of letters, digits, '_', '.', '-' "
                f"and inner spaces, got {shown(self.name)}. It is used in the names of "
                "columns."
            )
        check_range(
            f"limit of constraint {self.name!r}",
            self.limit,
            0,
            advice="It is the highest allowed risk of a cost, and costs are at least 0.",
        )
        RiskMeasure("cvar", self.tail)
        check_range(
            f"tail of constraint {self.name!r}",
            self.tail,
            SMALLEST_TAIL,
            1,
            advice="A smaller tail takes too many episodes to measure.",
        )
        if 0 < self.limit < SMALLEST_LIMIT:
            raise ValueError(
                f"limit of constraint {self.name!r} must be 0 or at least "
                f"{SMALLEST_LIMIT:g}, got {self.limit!r}. Report costs in a smaller unit."
            )
        check_choice("risk measure", str(self.risk), RISK_FAMILIES)
        if self.risk in ("cvar", "mean") and self.risk_parameter is not None:
            raise ValueError(
                f"risk_parameter must be None for risk measure {self.risk!r}, got "
                f"{shown(self.risk_parameter)}. The parameter of CVaR is tail."
            )
        if self.risk not in ("cvar", "mean") and self.risk_parameter is None:
            raise ValueError(
                f"risk_parameter must be {RISK_FAMILIES[self.risk].expects} for risk "
                f"measure {self.risk!r}, got None. Set risk_parameter."
            )
        _ = self.measure
        if self.cost_scale is not None:
            name = f"cost_scale of constraint {self.name!r}"
            check_range(name, self.cost_scale, SMALLEST_LIMIT)

    @property
    def unit(self) -> float:
        """`cost_scale`, or the limit if `cost_scale` is not set."""
        return self.cost_scale or self.limit

    def excess(self, risk: float) -> float:
        """Return the risk minus the limit, divided by `unit` (or by 1 if `unit` is 0)."""
        return (risk - self.limit) / (self.unit or 1.0)

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
    """Settings of the Lagrange multipliers. Each constraint has one multiplier."""

    follows: Annotated[str, Choice(("critics", "episodes"))] = "critics"
    """Risk to which the multiplier is adjusted: critics (the risk that the critics predict, as
    in the paper) or episodes (the risk measured on whole episodes of the deployed policy)."""
    initial: NonNegative = 0.0
    """Value of the multiplier at the start of a run."""
    learning_rate: NonNegative = 5e-4
    """Adam's learning rate for a multiplier that follows the critics."""
    cap: Positive | None = None
    """Upper bound of the multiplier. Without a bound, the multiplier grows as long as the limit
    is exceeded."""
    pid: bool = False
    """Use a PID controller instead of Adam to update a multiplier that follows the critics."""
    pid_gains: tuple[NonNegative, NonNegative, NonNegative] = (0.05, 5e-4, 0.1)
    """Proportional, integral and derivative gain of the PID controller. Its error is
    (mean risk - limit) / limit."""
    states: Annotated[str, Choice(("replay", "starts"))] = "replay"
    """States over which the risk is averaged if the multiplier follows the critics: replay
    (all states sampled from the replay) or starts (only those that begin an episode)."""
    episodes_per_unit: Positive = 300.0
    """Inverse gain of the controller for a multiplier that follows episodes: while the error is
    e, the logarithm of the multiplier rises by e in this number of episodes. The error is
    (risk - target) / limit with target = (1 - margin) * limit. If the limit is 0, the error is
    risk / cost_scale."""
    proportional: NonNegative = 0.1
    """Proportional gain of the controller: this number times the current error is added to the
    logarithm of the multiplier."""
    margin: Annotated[float, Range(0, 0.9)] = 0.05
    """Distance between the limit and the target of the measured risk, as a fraction of the
    limit."""
    max_error: Annotated[float, Range(0, 1, open_low=True)] = 1.0
    """Largest error to which the controller reacts. Larger errors count as max_error, and errors
    below -min(0.5, max_error) count as this bound."""
    dead_zone: Annotated[float, Range(0, 1)] = 0.3
    """The multiplier does not change while the measured risk is below its target by less than
    this fraction of the limit."""
    floor: Positive = 0.05
    """Lower bound of a multiplier that follows episodes."""
    remember_breaks: bool = True
    """If the measured risk exceeds the limit after the multiplier has fallen, raise the lower
    bound of the multiplier above the multiplier's current value."""

    def __post_init__(self):
        check_fields(self, "multiplier")
        if self.follows == "episodes" and self.initial <= 0:
            raise ValueError(
                "multiplier.initial must be above 0 when the multiplier follows episodes, "
                f"because its logarithm is updated, got {self.initial:g}. Start at 1."
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
    """Settings of the pivot, which is the threshold in the dual form of CVaR.

    Pivots are drawn from a distribution whose location is learned.
    """

    mode: Annotated[str, Choice(("stationary", "episodic"))] = "stationary"
    """Cost that is compared with the pivot: stationary (the remaining cost of the episode) or
    episodic (the cost of the whole episode)."""
    std: Positive = 0.05
    """Standard deviation of the normal distribution from which pivots are drawn, before the
    distribution is truncated to [0, 1]."""
    learning_rate: NonNegative = 3e-4
    """Adam's learning rate for the location of the pivot distribution."""
    every: Count = 1000
    """Number of environment steps between two updates of the pivot distribution."""
    penalty: NonNegative = 10.0
    """Weight of the amount by which limits are exceeded, in the loss of the pivot
    distribution."""
    max_gradient: Positive = 1.0
    """Maximum absolute value of each entry of the gradient for the location of the pivot
    distribution. Larger entries are clipped."""

    def __post_init__(self):
        check_fields(self, "pivot")


@dataclass(frozen=True)
class ExplorationConfig:
    """How the behaviour policy explores optimistically."""

    reward_optimism: Number = 4.0
    """Number of standard deviations of the reward critics that are added to their mean. A
    negative number is pessimistic."""
    cost_optimism: Number = 1.0
    """Number of standard deviations of the cost critics that are subtracted from their
    mean."""
    shift_radius: NonNegative = 4.0
    """Length of the shift of the actor's mean, in standard deviations of the actor."""
    radius_is_kl: bool = False
    """Interpret shift_radius as a KL divergence, as OAC does. The length of the shift is then
    sqrt(2 * shift_radius)."""
    decay: bool = True
    """Decrease the radius linearly to 0 over the run."""
    decay_when_feasible: bool = False
    """If the multiplier follows episodes, also decrease the radius as the schedules advance.
    They advance while the measured risk is within the limit, and close to it unless the
    multiplier is at its floor. Late in the run they advance in any case."""

    def __post_init__(self):
        check_fields(self, "exploration")


@dataclass(frozen=True)
class Encoder:
    """An encoder: its name, and the functions that make its parameters and compute features.

    `core.encoders` describes the functions. A config file contains only the name.
    """

    name: str
    init: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class AgentConfig:
    """Settings of the learner. Agents differ in `risk_form`, `behaviour` and
    `num_cost_critics`.
    """

    risk_form: Annotated[str, Choice(("scalar", "quantile", "implicit", "dual"))] = (
        "implicit"
    )
    """Form of the cost critics: scalar (mean cost), quantile (fixed quantiles), implicit
    (IQN) or dual (CVaR with a pivot)."""
    behaviour: Annotated[str, Choice(("actor", "optimistic"))] = "optimistic"
    """How actions are chosen in training: actor (sampled from the actor) or optimistic (sampled
    after the actor's mean is shifted)."""
    discount: Fraction = 0.99
    """Discount factor of rewards."""
    cost_discount: Fraction = 0.99
    """Discount factor of costs."""
    hidden_sizes: tuple[Annotated[int, Range(1, 100_000)], ...] = (256, 256)
    """Widths of the hidden layers of every network."""
    embedding_size: Annotated[int, Range(1, 100_000)] = 64
    """Number of cosines in the embedding of a quantile level, in the implicit form."""
    layer_norm: bool = False
    """Apply layer normalisation after the linear map of each hidden layer."""
    critic_layer_norm: bool | None = None
    """Whether the critics have layer normalisation. The default is the value of layer_norm."""
    num_quantiles: Annotated[int, Range(1, 10_000)] = 32
    """Number of quantiles in the loss of each cost critic."""
    num_policy_quantiles: Annotated[int, Range(1, 10_000)] = 32
    """Number of quantiles of each cost critic from which the risk is computed, in the implicit
    form."""
    num_cost_critics: Annotated[
        int,
        Range(1, 1000, advice="1 means no ensemble; the paper uses 2 or 5."),
    ] = 5
    """Number of cost critics in the ensemble of each constraint."""
    kappa: Positive = 1.0
    """TD error at which the quantile Huber loss changes from quadratic to linear."""
    recentre_quantiles: bool = False
    """In the quantile form, learn the mean cost as a separate output and shift the quantiles so
    that they have this mean."""
    shared_fractions: bool = True
    """In the implicit form, draw one set of quantile levels for all rows of a batch. An update
    then takes about half the time that it takes with one set per row."""
    bootstrap_on_truncation: bool = True
    """Bootstrap through time limits instead of treating them as terminal."""
    n_step: Annotated[int, Range(1, 100)] = 1
    """Number of steps n in the critics' n-step targets."""
    centre: bool = False
    """Subtract the mean reward and the mean cost of the warm-up steps from all rewards and
    costs. Use this only if all episodes have the same length."""
    penalty_tail: Annotated[float, Range(SMALLEST_TAIL, 1)] | None = None
    """Use CVaR at this tail in the actor's loss and in the exploration, instead of the
    constraint's risk measure. This needs a multiplier that follows episodes. The risk of
    episodes is still measured with the constraint's own measure."""
    divide_by_multipliers: bool = False
    """Divide the actor's objective, except its entropy term, by 1 plus the sum of the
    multipliers."""
    actor_every: Count = 1
    """Number of gradient steps of the critics per gradient step of the actor."""
    actor_average: Annotated[float, Range(0, 0.999999)] = 0.0
    """The deployed policy, which is the policy that is evaluated during training, uses a running
    average of the actor with this decay per gradient step. With 0 it uses the actor itself."""
    deployed_action: Annotated[str, Choice(("mean", "sample", "measured"))] = "mean"
    """How the deployed policy acts if the multiplier follows episodes: mean (with its mean),
    sample (with samples), or measured (with the mean, or with samples if these are clearly
    better in evaluations)."""
    actor_learning_rate: NonNegative = 3e-4
    """Adam's learning rate for the actor."""
    reward_critic_learning_rate: NonNegative = 3e-4
    """Adam's learning rate for the reward critics."""
    cost_critic_learning_rate: NonNegative = 3e-4
    """Adam's learning rate for the cost critics."""
    temperature_learning_rate: NonNegative = 5e-4
    """Adam's learning rate for the entropy temperature; 0 leaves it constant."""
    initial_temperature: Positive = 1.0
    """Entropy temperature at the start of a run."""
    target_entropy: Number | None = None
    """Entropy towards which the temperature moves the policy. The default is minus the number
    of action dimensions."""
    final_target_entropy: Number | None = None
    """Target entropy at the end of its schedule, if the multiplier follows episodes. The
    default is target_entropy, so that there is no schedule."""
    final_learning_rate: Fraction = 1.0
    """Factor on the networks' learning rates at the end of their schedule, if the multiplier
    follows episodes."""
    polyak: Fraction = 0.005
    """Polyak coefficient: fraction of the online weights mixed into the target."""
    target_every: Count = 2
    """Number of gradient steps between two updates of the target critics."""
    max_gradient_norm: Positive | None = None
    """Maximum norm of the gradient of each network. The default is no maximum."""
    normalize_observations: bool = False
    """Scale observations by their running mean and variance, which are part of the agent's
    state."""
    encoder: str | Encoder | None = None
    """Name (module:name) of the pair of functions that turn observations into features. A name
    in a config file is not imported unless --encoder or --import is given too."""
    reward_scale: Positive = 1.0
    """The learner multiplies rewards by this number. Logged rewards and values are not
    multiplied."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of episode returns, converted to a
    discounted sum, as the critics predict it."""
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
                "agent.centre needs discounts below 1, because it changes the value of a "
                "state by the discounted sum of the mean over all future steps, got "
                f"{self.discount!r} and {self.cost_discount!r}."
            )
        if self.centre and self.is_dual:
            raise ValueError(
                "agent.centre does not work with agent.risk_form 'dual', whose pivot must "
                "be compared with costs that are not centred. Set agent.centre=false, or "
                "change the form."
            )
        if self.penalty_tail is not None and not self.follows_episodes:
            raise ValueError(
                "agent.penalty_tail needs agent.multiplier.follows 'episodes', got "
                f"{self.multiplier.follows!r}: a multiplier that follows the critics must "
                "use the risk measure of the constraint. Set agent.penalty_tail=null."
            )
        if self.recentre_quantiles and self.risk_form != "quantile":
            raise ValueError(
                "agent.recentre_quantiles needs agent.risk_form 'quantile', got "
                f"{self.risk_form!r}. Switch it off, or change the form."
            )
        if not isinstance(self.encoder, str | Encoder | None):
            raise ValueError(
                "agent.encoder must name a pair of functions as module:name, got "
                f"{self.encoder!r}. In Python you can pass the pair as encoder=(init, apply)."
            )
        needed = 2 if self.risk_form == "implicit" else 1
        if not needed <= len(self.hidden_sizes) <= MAX_LAYERS:
            raise ValueError(
                f"agent.hidden_sizes must have at least {needed} entries for risk_form "
                f"{self.risk_form!r} and at most {MAX_LAYERS}, got "
                f"{shown(self.hidden_sizes)}."
            )

    @property
    def critics_have_layer_norm(self) -> bool:
        """Whether the critics have layer norms."""
        own = self.critic_layer_norm
        return self.layer_norm if own is None else own

    @property
    def follows_episodes(self) -> bool:
        """Whether the multiplier follows the measured risk of episodes."""
        return self.multiplier.follows == "episodes"

    @property
    def encoder_name(self) -> str | None:
        """Name of the encoder, or None if there is none."""
        return self.encoder.name if isinstance(self.encoder, Encoder) else self.encoder

    @property
    def is_dual(self) -> bool:
        """Whether the critics have the dual form, with pivots."""
        return self.risk_form == "dual"

    def learned_measure(self, constraint: Constraint) -> RiskMeasure:
        """Return the measure that the critics estimate; for scalar critics, the mean."""
        return RiskMeasure("mean") if self.risk_form == "scalar" else constraint.measure


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop: environments, gradient steps, logs and checkpoints."""

    total_steps: Count = 500_000
    """Number of environment steps of the run, summed over all parallel environments."""
    num_envs: Annotated[int, Range(1, 1_000_000)] = 1
    """Number of environments stepped in parallel."""
    learning_starts: CountFromZero = 5_000
    """Number of environment steps with uniformly random actions before learning starts (the
    warm-up)."""
    gradient_steps: Annotated[float, Range(0, 1000, open_low=True)] = 1.0
    """Number of gradient steps per environment step; 0.125 means one every 8 steps."""
    batch_size: Annotated[int, Range(1, 10_000_000)] = 256
    """Number of transitions per gradient step."""
    buffer_size: Count = 1_000_000
    """Capacity of the replay buffer, in transitions."""
    log_every: Annotated[int, Range(1, 10_000_000)] = 1_000
    """Number of environment steps between two rows of metrics.csv."""
    checkpoint_every: Count = 10_000
    """Number of environment steps between two checkpoints."""
    keep_replay: bool = True
    """Save the replay in checkpoints. A run that is resumed without its replay differs from an
    uninterrupted one."""
    deployed_envs: CountFromZero | None = None
    """Number of parallel environments that act with the deployed policy if the multiplier
    follows episodes. The default is half of them. A single environment does so in a random half
    of its episodes, or in none if this is 0. JAX environments ignore this setting."""
    restarts: CountFromZero = 0
    """Maximum number of times that a stuck actor is replaced by a new one, if the multiplier
    follows episodes."""
    schedule_steps: Count | None = None
    """Number of environment steps after which all schedules have ended. The default is
    total_steps. If a run is trained further, its schedules still end at its original
    total_steps."""
    updates_start: CountFromZero = 0
    """Environment step of the first update of an agent that was loaded without its replay.
    Until then, the agent's policy collects steps for a new replay."""

    @property
    def horizon(self) -> int:
        """Number of environment steps over which the schedules run."""
        return self.schedule_steps or self.total_steps

    @property
    def first_update(self) -> int:
        """Number of environment steps before the first update."""
        return max(self.learning_starts, self.updates_start)

    def __post_init__(self):
        check_fields(self, "training")
        ratio = self.gradient_steps * self.num_envs
        if min(abs(x - round(x)) for x in (ratio, 1 / ratio)) > 1e-6:
            raise ValueError(
                "training.gradient_steps * training.num_envs must be a whole number or "
                f"one over a whole number, got {self.gradient_steps} * {self.num_envs} = "
                f"{ratio:g}. With {self.num_envs} environments, "
                f"{1 / self.num_envs:g} gives one gradient step per round (one step of "
                "every environment)."
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Settings of the evaluations during training."""

    every: CountFromZero = 10_000
    """Number of environment steps between two evaluations. With 0, the policy is evaluated only
    at the end."""
    episodes: Annotated[int, Range(1, 10_000_000)] = 100
    """Number of episodes per evaluation."""
    deterministic: bool = True
    """Evaluate the policy's mean action instead of samples. If the multiplier follows episodes,
    agent.deployed_action decides this."""
    num_envs: Annotated[int, Range(1, 10_000)] = 8
    """Number of environments that play an evaluation's episodes in parallel. JAX environments
    ignore this setting."""

    def __post_init__(self):
        check_fields(self, "evaluation")


@dataclass(frozen=True)
class EnvConfig:
    """The environment and its parameters."""

    id: str = "orac/GuardedMaze-v0"
    """Id of the environment: a Gymnasium id, or a name such as brax:halfcheetah. `orac envs`
    lists the environments of this package."""
    params: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the environment, as name and value pairs."""
    episode_length: Count | None = None
    """Number of steps after which an episode is truncated. The default is the environment's own
    time limit."""
    cost_fn: str | None = None
    """Name (module:function) of the function that computes the cost. A name in a config file is
    not imported unless --cost-fn or --import is given too."""

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
"""Fields of `Config` that are dataclasses."""


@dataclass(frozen=True)
class Config:
    """All settings of one run."""

    algo: str = "orac"
    """Name of the agent; `orac agents` lists all agents."""
    seed: int = 0
    """Seed of all random numbers of the run."""
    env: EnvConfig = field(default_factory=EnvConfig)
    constraints: tuple[Constraint, ...] = (Constraint(),)
    agent: AgentConfig = field(default_factory=AgentConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        freeze(self)
        if not isinstance(self.algo, str):
            raise ValueError(f"algo must be text, got {shown(self.algo)}.")
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
        for m, constraint in enumerate(self.constraints):
            if self.agent.is_dual:
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
                    f"be divided by the limit. Set constraints.{m}.cost_scale to a cost "
                    "of an episode that is clearly too high. A limit of 0 can never be "
                    "certified, however many episodes are played."
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
                "agent.actor_every must divide the number of gradient steps per round, "
                f"which is {updates}, got {self.agent.actor_every}. Use 1, or more "
                "environments."
            )

    def limited_measure(self, constraint: Constraint) -> RiskMeasure:
        """Return the risk measure that training limits; for SAC-Lagrangian, the mean."""
        return RiskMeasure("mean") if self.algo == "sac-lag" else constraint.measure

    def limited_tails(self, otherwise: float) -> list[float]:
        """Return the tail of each constraint's CVaR, or `otherwise` for another risk measure.

        SAC-Lagrangian limits the mean instead of CVaR, so there the tail of a CVaR is 1.
        """
        return [
            self.limited_measure(c).parameter if c.risk == "cvar" else otherwise
            for c in self.constraints
        ]

    def excesses(self, risks: Iterable[float]) -> list[float]:
        """Return how far each risk is above its limit (see `Constraint.excess`)."""
        return [c.excess(r) for r, c in zip(risks, self.constraints, strict=True)]
