"""Measure the risk of the deployed policy during training, and adjust the run to it.

A run is adjusted in this way if `agent.multiplier.follows` is `episodes`. The deployed policy
is the current policy without exploration, which evaluations play. Its episodes come from
evaluations and, in Gymnasium environments, also from training environments that act with it.
The costs of the newest episodes form a sliding window. At each log row with new episodes,
`steer` computes the window's risk, moves the multipliers, advances the clock of the
schedules (of target entropy, learning rates and shift radius), and may replace an actor that
is stuck.

The target of a measured risk is (1 - margin) times its limit, where the margin is
`agent.multiplier.margin`. The dead zone is the range just below the target, in which a
multiplier does not change. A risk is settled if it is at most the limit and not below the
dead zone. If the multiplier is at its floor, a risk below the dead zone is settled too.

The estimate of the risk has three known biases. The window mixes versions of the policy, so
the estimate lags and is too high after an improvement. The CVaR of a small sample is too low
on average. Parallel environments finish more short episodes than long ones.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import Config
from orac.core import agent as agent_core
from orac.core import lagrange
from orac.core.agent import AgentState, Learner
from orac.evaluation.episodes import Episodes, risk_and_error, risk_of_costs

OLDEST = 0.1
"""Episodes older than this fraction of the run are not used."""
SCHEDULE_SHARE = 0.4
"""Fraction of the run that the schedules take if the risk is always settled."""
FORCED_START = 0.6
"""Fraction of the run after which the schedules advance even if the risk is unsettled."""
CHECK_STUCK = (0.35, 0.7)
"""Fractions of the run between which a stuck actor may be replaced."""
COMPARE_ACTIONS = (0.2, 0.5)
"""Fractions of the run between which mean and sampled actions are compared."""
MAX_CROSSINGS = 4
"""Number of consecutive jumps over the dead zone after which an actor counts as stuck."""


class Measured(NamedTuple):
    """The window of measured episodes, and the rest of the state that `steer` updates."""

    costs: Float[np.ndarray, "window constraint"]
    steps: Int[np.ndarray, " window"]
    """Environment step at which each episode was measured."""
    added: Int[np.ndarray, ""]
    """Number of episodes added since the window was last emptied. 0 empties the window, which
    happens when the actor is replaced or when the deployed action changes."""
    moved_at: Int[np.ndarray, ""]
    """Environment step of the last call of `steer`, which moves the multipliers."""
    settled_at: Int[np.ndarray, ""]
    """The latest environment step at which all risks were settled or the actor was replaced.
    At first, it is the step at which learning or, if that is later, the measurement starts."""
    side: Int[np.ndarray, ""]
    """1 if the last risk was above its target, -1 if it was below the dead zone, else 0."""
    crossings: Int[np.ndarray, ""]
    """Number of consecutive jumps of the risk over the dead zone."""
    restarts: Int[np.ndarray, ""]
    """Number of times that the actor was replaced."""
    extra_steps: Int[np.ndarray, ""]
    """Environment steps of evaluations, which do not count as training steps."""
    switched: Bool[np.ndarray, ""]
    """Whether the deployed action was changed from the mean to a sample."""


def init(config: Config, step: int = 0) -> Measured:
    """Return the state with an empty window, for a run whose measurement starts at `step`."""
    zero = np.zeros((), np.int32)
    size = window_size(config)
    return Measured(
        costs=np.zeros((size, len(config.constraints)), np.float32),
        steps=np.zeros(size, np.int32),
        added=zero,
        moved_at=np.asarray(step, np.int32),
        settled_at=np.asarray(max(config.training.learning_starts, step), np.int32),
        side=zero,
        crossings=zero,
        restarts=zero,
        extra_steps=zero,
        switched=np.zeros((), bool),
    )


def window_size(config: Config) -> int:
    """Return the number of episodes that the window holds.

    It is at least 60, and enough that each constraint's tail contains at least 10 of them. A
    constraint on another measure than CVaR counts as having a tail of 0.1.
    """
    return max([60, *(math.ceil(10 / tail) for tail in config.limited_tails(0.1))])


def add(measured: Measured, costs: np.ndarray, step: int) -> Measured:
    """Add episodes that were measured at this step to the window.

    `costs` has one row per episode and one column per constraint.
    """
    size = len(measured.steps)
    count = int(measured.added)
    costs = costs[-size:]
    places = (count + np.arange(len(costs))) % size
    new_costs, new_steps = measured.costs.copy(), measured.steps.copy()
    new_costs[places], new_steps[places] = costs, step
    return measured._replace(
        costs=new_costs, steps=new_steps, added=np.asarray(count + len(costs), np.int32)
    )


def count_steps(measured: Measured, episodes: Episodes) -> Measured:
    """Add the steps of evaluation episodes to `extra_steps`."""
    total = measured.extra_steps + np.int32(episodes.length.sum())
    return measured._replace(extra_steps=np.asarray(total, np.int32))


def compares_actions(measured: Measured, step: int, config: Config) -> bool:
    """Return whether an evaluation at this step compares mean and sampled actions."""
    low, high = (share * config.training.horizon for share in COMPARE_ACTIONS)
    undecided = config.agent.deployed_action == "measured" and not measured.switched
    return undecided and low <= step <= high


def recent_costs(measured: Measured, step: int, config: Config) -> np.ndarray:
    """Return the costs in the window, oldest first, without episodes that are too old."""
    size, count = len(measured.steps), int(measured.added)
    order = np.arange(max(count - size, 0), count) % size
    oldest = step - OLDEST * config.training.horizon
    return measured.costs[order][measured.steps[order] >= oldest]


class WindowRisk(NamedTuple):
    """The measured risk of the window, per constraint."""

    risk: Float[np.ndarray, " constraint"]
    improving: Bool[np.ndarray, " constraint"]
    """Whether the newer half of the window has a lower risk than the older half, by more than
    the standard error of the difference."""
    episodes: int


def window_risk(measured: Measured, step: int, config: Config) -> WindowRisk | None:
    """Return the risk of the window, or None if the window has too few episodes.

    The window must be full, and at most half of its episodes may be too old.
    """
    costs = recent_costs(measured, step, config)
    size = len(measured.steps)
    if measured.added < size or 2 * len(costs) < size:
        return None
    middle = len(costs) // 2
    older, newer = costs[:middle], costs[middle:]
    values, improving = [], []
    for m, constraint in enumerate(config.constraints):
        measure = config.limited_measure(constraint)
        values.append(risk_of_costs(costs[:, m], measure))
        before, before_error = risk_and_error(older[:, m], measure)
        after, after_error = risk_and_error(newer[:, m], measure)
        improving.append(before - after > math.hypot(before_error, after_error))
    return WindowRisk(np.array(values, float), np.array(improving, bool), len(costs))


def steer(
    key: Key[Array, ""],
    agent: AgentState,
    measured: Measured,
    step: int,
    learner: Learner,
    config: Config,
    episode_length: int,
) -> tuple[AgentState, Measured, WindowRisk | None]:
    """Move the multipliers and the schedules' clock, and replace the actor if it is stuck.

    Returns the agent, the measurement, and the result of `window_risk`. Before the first
    update, nothing is moved and the risk is None.
    """
    if step < config.training.first_update:
        return agent, measured._replace(moved_at=np.asarray(step, np.int32)), None
    elapsed = step - int(measured.moved_at)
    measured = measured._replace(moved_at=np.asarray(step, np.int32))
    window = window_risk(measured, step, config)
    settled = False
    if window is not None:
        settings = config.agent.multiplier
        limits = np.array([c.limit for c in config.constraints])
        scale = np.array([c.limit or c.unit for c in config.constraints])
        error = (window.risk - (1 - settings.margin) * limits) / scale
        multiplier = lagrange.follow_episodes(
            agent.multiplier,
            error,
            window.improving,
            elapsed / episode_length,
            config.agent,
        )
        agent = agent._replace(multiplier=multiplier)
        at_floor = np.asarray(multiplier.integral) <= math.log(settings.floor) + 0.01
        inside = (error > -settings.dead_zone) | at_floor
        settled = bool((inside & (window.risk <= limits)).all())
        measured = count_crossings(measured, error, settings.dead_zone)
    if settled:
        measured = measured._replace(settled_at=np.asarray(step, np.int32))
    agent = advance_clock(agent, settled, step, elapsed, config)
    if is_stuck(measured, step, config):
        agent = agent_core.restart_actor(jax.random.fold_in(key, step), agent, learner)
        measured = measured._replace(
            added=np.zeros((), np.int32),
            settled_at=np.asarray(step, np.int32),
            side=np.zeros((), np.int32),
            crossings=np.zeros((), np.int32),
            restarts=measured.restarts + np.int32(1),
        )
    return agent, measured, window


def advance_clock(
    agent: AgentState, settled: bool, step: int, elapsed: int, config: Config
) -> AgentState:
    """Advance the schedules if the risk is settled, and late in the run in any case."""
    clock, total = float(agent.steering.clock), config.training.horizon
    gain = elapsed / (SCHEDULE_SHARE * total) if settled else 0.0
    if step > FORCED_START * total:
        # This is the smallest pace at which the schedules end together with the run.
        left = max(total - (step - elapsed), 1)
        gain = max(gain, (1 - clock) * elapsed / left)
    clock = jnp.float32(min(clock + gain, 1.0))
    return agent._replace(steering=agent.steering._replace(clock=clock))


def count_crossings(
    measured: Measured, error: np.ndarray, dead_zone: float
) -> Measured:
    """Count consecutive jumps from above the target to below the dead zone, and back.

    A risk in the dead zone sets the count to 0. If there are several constraints, only the
    largest of their errors is used.
    """
    worst = float(error.max(initial=-math.inf))
    side = 1 if worst > 0 else (-1 if worst < -dead_zone else 0)
    before = int(measured.side)
    crossings = int(measured.crossings)
    if side == 0:
        crossings = 0
    elif before == -side:
        crossings += 1
    return measured._replace(
        side=np.asarray(side, np.int32), crossings=np.asarray(crossings, np.int32)
    )


def is_stuck(measured: Measured, step: int, config: Config) -> bool:
    """Return whether the actor is stuck and may be replaced by a new one.

    An actor is stuck if its risk was not settled in the last third of the steps so far, or if
    the risk keeps jumping over the dead zone. Actors are replaced only in the middle of the
    run (`CHECK_STUCK`), and at most `training.restarts` times.
    """
    total, first, last = config.training.horizon, *CHECK_STUCK
    if int(measured.restarts) >= config.training.restarts:
        return False
    if not first * total <= step <= last * total:
        return False
    unsettled = step - int(measured.settled_at) > step / 3
    return unsettled or int(measured.crossings) >= MAX_CROSSINGS


def metrics(
    measured: Measured,
    window: WindowRisk | None,
    step: int,
    agent: AgentState,
    config: Config,
) -> dict[str, float]:
    """Return the metrics of the measurement; the risk is NaN if `window` is None."""
    costs = recent_costs(measured, step, config)
    row = {
        "measured/episodes": float(len(costs)),
        "measured/extra_steps": float(measured.extra_steps),
        "measured/clock": float(agent.steering.clock),
        "measured/restarts": float(measured.restarts),
    }
    for m, constraint in enumerate(config.constraints):
        value = math.nan if window is None else float(window.risk[m])
        row[f"measured/risk/{constraint.name}"] = value
        row[f"measured/limit/{constraint.name}"] = constraint.limit
    return row


def num_deployed_envs(config: Config) -> int | float:
    """Return how many Gymnasium environments act with the deployed policy during training.

    A single environment counts as 0.5, because it acts with this policy in half of its
    episodes. The result is 0 if the multiplier follows the critics.
    """
    num_envs, chosen = config.training.num_envs, config.training.deployed_envs
    if not config.agent.follows_episodes or chosen == 0:
        return 0
    if num_envs == 1:
        return 0.5
    return num_envs // 2 if chosen is None else chosen


def plays_deployed(
    key: Key[Array, ""], rounds: Array, lengths: Array, config: Config
) -> Array:
    """Return which training environments act with the deployed policy.

    No environment acts with it in an episode that started before `training.learning_starts`.
    In later episodes, if there are several environments, the first `num_deployed_envs` of
    them always act with it. A single environment acts with it in a random half of these
    episodes, or in none if `training.deployed_envs` is 0. Whether an episode is in this half
    depends only on the key and on the round in which the episode started.
    """
    num_envs = config.training.num_envs
    start = rounds - lengths
    learned = start * num_envs >= config.training.learning_starts
    if num_envs > 1 or config.training.deployed_envs == 0:
        return learned & (jnp.arange(num_envs) < num_deployed_envs(config))
    coin = jax.vmap(lambda s: jax.random.bernoulli(jax.random.fold_in(key, s)))(start)
    return learned & coin
