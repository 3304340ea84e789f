"""Measure the risk of the deployed policy during training, and adjust the run to it.

Used if `agent.multiplier.follows` is `episodes`. Episodes of the deployed policy come from
evaluations and, for environments on the host, from the environments that act with it. Their
costs form a sliding window. At each log row with new episodes the window's risk moves the
multipliers, advances the clock of the schedules, and may replace an actor that is stuck.

The estimate has known biases. The window mixes versions of the policy, so the estimate lags
and is too high after an improvement. The CVaR of a small sample is too low on average.
Parallel environments finish more of the short episodes than of the long ones.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from orac.config.schema import Config, Constraint, RiskMeasure
from orac.core import agent as agent_core
from orac.core import lagrange, risk
from orac.core.agent import AgentState, Learner
from orac.evaluation.result import Episodes

OLDEST = 0.1
"""Episodes older than this fraction of the run are not used."""
SCHEDULE_SHARE = 0.4
"""Fraction of the run that the schedules take, if the risk stays within the limit."""
FORCED_START = 0.6
"""Fraction of the run after which the schedules advance whatever the risk is."""
CHECK_STUCK = (0.35, 0.7)
"""Fractions of the run between which a stuck actor may be replaced."""
COMPARE_ACTIONS = (0.2, 0.5)
"""Fractions of the run between which mean and sampled actions are compared."""
MOST_CROSSINGS = 4
"""Number of consecutive jumps over the dead zone after which a run counts as cycling."""


class Measured(NamedTuple):
    """The window of measured episodes, and the state that `steer` needs."""

    costs: Float[np.ndarray, "window constraint"]
    steps: Int[np.ndarray, " window"]
    """Environment step at which each episode was measured."""
    added: Int[np.ndarray, ""]
    """Number of episodes that were ever added."""
    moved_at: Int[np.ndarray, ""]
    """Environment step at which the multipliers were last moved."""
    settled_at: Int[np.ndarray, ""]
    """Environment step at which the risk was last settled, or of the last restart. Settled
    means within the limit, and in the dead zone or with the multiplier at its floor."""
    side: Int[np.ndarray, ""]
    """1 if the risk was last above its target, -1 below the dead zone, 0 in between."""
    crossings: Int[np.ndarray, ""]
    restarts: Int[np.ndarray, ""]
    extra_steps: Int[np.ndarray, ""]
    """Environment steps of evaluations, which do not count as training steps."""
    switched: Bool[np.ndarray, ""]
    """Whether the deployed action was changed from mean to sampled; at most once."""


def init(config: Config, step: int = 0) -> Measured:
    """Return an empty window for a run that starts, or continues without one, at `step`."""
    zero = np.zeros((), np.int32)
    size = window_size(config.constraints)
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


def window_size(constraints: tuple[Constraint, ...]) -> int:
    """Return the number of episodes in the window: enough for ten in the tail."""
    tails = [c.measure.parameter if c.risk == "cvar" else 0.1 for c in constraints]
    return max([60, *(math.ceil(10 / tail) for tail in tails)])


def held_measure(constraint: Constraint, config: Config) -> RiskMeasure:
    """Return the measure that the limit applies to; for SAC-Lagrangian, the mean."""
    return RiskMeasure("mean") if config.algo == "sac-lag" else constraint.measure


def add(measured: Measured, costs: np.ndarray, step: int) -> Measured:
    """Add the costs of episodes, (episode, constraint), measured at this step."""
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


def emptied(measured: Measured) -> Measured:
    """Return an empty window, because the deployed policy has changed."""
    return measured._replace(added=np.zeros((), np.int32))


def compares_actions(measured: Measured, step: int, config: Config) -> bool:
    """Return whether an evaluation compares mean and sampled actions at this step."""
    low, high = (share * config.training.horizon for share in COMPARE_ACTIONS)
    unknown = config.agent.deployed_action == "measured" and not measured.switched
    return unknown and low <= step <= high


def recent_costs(measured: Measured, step: int, config: Config) -> np.ndarray:
    """Return the costs of the window, oldest first, without those that are too old."""
    size, count = len(measured.steps), int(measured.added)
    order = np.arange(max(count - size, 0), count) % size
    oldest = step - OLDEST * config.training.horizon
    return measured.costs[order][measured.steps[order] >= oldest]


class Reading(NamedTuple):
    """The risk of the window, per constraint."""

    risk: Float[np.ndarray, " constraint"]
    improving: Bool[np.ndarray, " constraint"]
    """Whether the newer half has a lower risk, by more than a standard error."""
    episodes: int


def read(measured: Measured, step: int, config: Config) -> Reading | None:
    """Return the risk of the window; None until it is full and half of it is recent."""
    costs = recent_costs(measured, step, config)
    size = len(measured.steps)
    if measured.added < size or 2 * len(costs) < size:
        return None
    middle = len(costs) // 2
    older, newer = costs[:middle], costs[middle:]
    values, improving = [], []
    for m, constraint in enumerate(config.constraints):
        measure = held_measure(constraint, config)
        values.append(sample_risk(costs[:, m], measure))
        before, before_error = risk_and_error(older[:, m], measure)
        after, after_error = risk_and_error(newer[:, m], measure)
        improving.append(before - after > math.hypot(before_error, after_error))
    return Reading(np.array(values, float), np.array(improving, bool), len(costs))


@lru_cache(maxsize=4096)
def sample_weights(measure: RiskMeasure, count: int) -> np.ndarray:
    """Return the weights of a sample of this size in rising order."""
    # Numerics: padded to multiples of 64, because JAX compiles for each new shape.
    size = 64 * math.ceil(count / 64)
    levels = np.minimum(np.arange(size + 1) / count, 1)
    weights = np.diff(np.asarray(risk.distort(measure, jnp.asarray(levels))))[:count]
    return weights.astype(np.float64) / weights.sum(dtype=np.float64)


def sample_risk(costs: np.ndarray, measure: RiskMeasure) -> float:
    """Return the risk of a sample of episode costs."""
    return float(np.sort(costs) @ sample_weights(measure, len(costs)))


def risk_and_error(costs: np.ndarray, measure: RiskMeasure) -> tuple[float, float]:
    """Return the risk of a sample and its standard error, by the jackknife."""
    ordered, count = np.sort(costs), len(costs)
    others = ~np.eye(count, dtype=bool)
    samples = np.broadcast_to(ordered, others.shape)[others].reshape(count, -1)
    left_out = samples @ sample_weights(measure, count - 1)
    error = math.sqrt(np.var(left_out, dtype=np.float64) * (count - 1))
    return sample_risk(costs, measure), error


def steer(
    key: Key[Array, ""],
    agent: AgentState,
    measured: Measured,
    step: int,
    learner: Learner,
    config: Config,
    episode_length: int,
) -> tuple[AgentState, Measured, Reading | None]:
    """Update the multipliers and the schedules' clock, and replace a stuck actor."""
    if step < config.training.first_update:
        return agent, measured._replace(moved_at=np.asarray(step, np.int32)), None
    elapsed = step - int(measured.moved_at)
    measured = measured._replace(moved_at=np.asarray(step, np.int32))
    reading = read(measured, step, config)
    settled = False
    if reading is not None:
        settings = config.agent.multiplier
        limits = np.array([c.limit for c in config.constraints])
        scale = np.array([c.limit or c.unit for c in config.constraints])
        error = (reading.risk - (1 - settings.margin) * limits) / scale
        multiplier = lagrange.follow_episodes(
            agent.multiplier,
            error,
            reading.improving,
            elapsed / episode_length,
            config.agent,
        )
        agent = agent._replace(multiplier=multiplier)
        at_floor = np.asarray(multiplier.integral) <= math.log(settings.floor) + 0.01
        inside = (error > -settings.dead_zone) | at_floor
        settled = bool((inside & (reading.risk <= limits)).all())
        measured = count_crossings(measured, error, settings.dead_zone)
    if settled:
        measured = measured._replace(settled_at=np.asarray(step, np.int32))
    agent = advance_clock(agent, settled, step, elapsed, config)
    if is_stuck(measured, step, config):
        agent = agent_core.restart_actor(jax.random.fold_in(key, step), agent, learner)
        measured = emptied(measured)._replace(
            settled_at=np.asarray(step, np.int32),
            side=np.zeros((), np.int32),
            crossings=np.zeros((), np.int32),
            restarts=measured.restarts + np.int32(1),
        )
    return agent, measured, reading


def advance_clock(
    agent: AgentState, settled: bool, step: int, elapsed: int, config: Config
) -> AgentState:
    """Advance the schedules while the risk is settled, and in any case late in the run."""
    clock, total = float(agent.steering.clock), config.training.horizon
    gain = elapsed / (SCHEDULE_SHARE * total) if settled else 0.0
    if step > FORCED_START * total:
        # At this pace the schedules end with the run.
        left = max(total - (step - elapsed), 1)
        gain = max(gain, (1 - clock) * elapsed / left)
    clock = jnp.float32(min(clock + gain, 1.0))
    return agent._replace(steering=agent.steering._replace(clock=clock))


def count_crossings(
    measured: Measured, error: np.ndarray, dead_zone: float
) -> Measured:
    """Count jumps from above the target to below the dead zone and back."""
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
    """Return whether the actor should be replaced by a new one.

    A run is stuck if it was not settled in the last third of its steps so far, or if its
    risk keeps jumping over the dead zone.
    """
    total, first, last = config.training.horizon, *CHECK_STUCK
    if int(measured.restarts) >= config.training.restarts:
        return False
    if not first * total <= step <= last * total:
        return False
    unsettled = step - int(measured.settled_at) > step / 3
    return unsettled or int(measured.crossings) >= MOST_CROSSINGS


def metrics(
    measured: Measured,
    reading: Reading | None,
    step: int,
    agent: AgentState,
    config: Config,
) -> dict[str, float]:
    """Return the metrics of the measurement; the risk is NaN until the window is full."""
    costs = recent_costs(measured, step, config)
    row = {
        "measured/episodes": float(len(costs)),
        "measured/extra_steps": float(measured.extra_steps),
        "measured/clock": float(agent.steering.clock),
        "measured/restarts": float(measured.restarts),
    }
    for m, constraint in enumerate(config.constraints):
        value = math.nan if reading is None else float(reading.risk[m])
        row[f"measured/risk/{constraint.name}"] = value
        row[f"measured/limit/{constraint.name}"] = constraint.limit
    return row


def deployed_rows(config: Config) -> int:
    """Return how many environments on the host act with the deployed policy."""
    num_envs, chosen = config.training.num_envs, config.training.deployed_envs
    if not config.agent.follows_episodes:
        return 0
    return num_envs // 2 if chosen is None else chosen


def plays_deployed(
    key: Key[Array, ""], rounds: Array, lengths: Array, config: Config
) -> Array:
    """Return which environments play an episode of the deployed policy.

    With several environments, the first ones always do. A single environment does in half
    of its episodes on average; the round in which an episode starts decides. Episodes that
    started in the warm-up do not count.
    """
    num_envs = config.training.num_envs
    start = rounds - lengths
    learned = start * num_envs >= config.training.learning_starts
    if num_envs > 1 or config.training.deployed_envs == 0:
        return learned & (jnp.arange(num_envs) < deployed_rows(config))
    coin = jax.vmap(lambda s: jax.random.bernoulli(jax.random.fold_in(key, s)))(start)
    return learned & coin
