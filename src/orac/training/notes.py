"""Messages for the user: possible problems with a run, and which policy it delivers.

`start_notes` and `evaluation_notes` are shown while a run trains. `delivery_record` is
written to `delivered.json` at every checkpoint, and `orac train` prints `delivery_lines` at
the end of a run.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from orac.config.schema import Config
from orac.envs.base import EnvSpec
from orac.evaluation.certification import cannot_certify
from orac.evaluation.episodes import Episodes, declared_cost_bound, risk_phrase
from orac.training import delivery, measurement


def start_notes(config: Config, spec: EnvSpec, on_host: bool) -> list[str]:
    """Return a note for each property of the run that the user may not expect."""
    notes = [
        cannot_certify(c, declared_cost_bound(c, spec)) for c in config.constraints
    ]
    notes = [f"{note}." for note in notes if note]
    if spec.observation_structure and config.agent.encoder is None:
        notes.append(
            f"observations are flattened to {spec.observation_size:,} numbers: "
            f"{flat_parts(json.loads(spec.observation_structure))}."
        )
    more = [short_window(config, spec, on_host), ended_schedules(config)]
    return [*notes, *filter(None, more)]


def ended_schedules(config: Config) -> str:
    """Return a note if the run continues after the end of its schedules, else ""."""
    agent, training = config.agent, config.training
    if training.total_steps <= training.horizon:
        return ""
    explores = agent.exploration
    decays = explores.decay or (agent.follows_episodes and explores.decay_when_feasible)
    ends = ["the shift radius stays at 0"] * (
        agent.behaviour == "optimistic" and decays
    )
    if agent.follows_episodes:
        if agent.final_learning_rate != 1:
            share = f"{agent.final_learning_rate:g} times their initial values"
            ends.append(f"the learning rates stay at {share}")
        if agent.final_target_entropy is not None:
            ends.append(f"the target entropy stays at {agent.final_target_entropy:g}")
    if not ends:
        return ""
    return (
        f"the schedules of this run end at step {training.horizon:,}, but the run continues "
        f"to step {training.total_steps:,}. After step {training.horizon:,} "
        f"{' and '.join(ends)}."
    )


def flat_parts(structure: Any, name: str = "") -> str:
    """Describe the parts of a flattened observation in order, with their sizes."""
    kind, parts = structure["kind"], structure.get("parts")
    if kind in ("dict", "tuple"):
        items = parts.items() if kind == "dict" else enumerate(parts)
        start = f"{name}." if name else ""
        return ", ".join(flat_parts(part, f"{start}{key}") for key, part in items)
    size = math.prod(structure["shape"])
    if kind == "choices":
        size = f"{sum(structure['n'])}, one-hot encoded"
    return f"{name or 'the array'} ({size})"


def short_window(config: Config, spec: EnvSpec, on_host: bool) -> str:
    """Return a note if a run has too few episodes to measure their risk, else ""."""
    if not (config.agent.follows_episodes and config.constraints):
        return ""
    size, training = measurement.window_size(config), config.training
    span, every = measurement.OLDEST * training.horizon, config.evaluation.every
    evaluations = int(span / every) + 1 if every else 0
    episodes = evaluations * config.evaluation.episodes
    if on_host:
        share = measurement.num_deployed_envs(config) / training.num_envs
        length = config.env.episode_length or spec.episode_length or 1
        episodes += int(share * span / length)
    if 2 * episodes >= size:
        return ""
    wanted = math.ceil(size / max(evaluations, 1))
    return (
        f"with this tail, the risk is measured over a window of {size:,} episodes, and at "
        "least half of them must be from the most recent tenth of the run. Only about "
        f"{episodes:,} are measured in that time, so the multiplier would not move: "
        f"set evaluation.episodes to {wanted:,}, evaluate more often (evaluation.every), "
        "train longer, or choose a larger tail."
    )


def record_evaluation(
    counters: Any, episodes: Episodes, step: int, config: Config
) -> None:
    """Record an evaluation of the deployed policy in the counters of the run."""
    risk = delivery.measure_risk(episodes, config)
    counters.evaluated = {
        "step": step,
        "reward": float(episodes.reward.mean()),
        "risk": risk.tolist(),
        "episodes": len(episodes),
    }
    least = counters.least_risk
    if not config.constraints:
        return
    if not least or max(config.excesses(risk)) < max(config.excesses(least)):
        counters.least_risk = risk.tolist()


def evaluation_notes(
    counters: Any,
    episodes: Episodes,
    step: int,
    previous: int,
    config: Config,
) -> list[str]:
    """Return a note if the user should check the costs or the limits.

    There is one if all costs were 0 up to the first evaluation, and one if half of the run is
    over and no evaluation was within the limits. `previous` is the step of the previous
    evaluation, or 0 if there was none. It ensures that each note appears only once in a run,
    even if the run is resumed.
    """
    if not config.constraints:
        return []
    half = config.training.total_steps / 2
    if previous <= 0 and not episodes.cost.any() and not any(counters.cumulative_cost):
        return [
            f"every cost so far was 0, in {counters.episodes:,} training episodes and in "
            f"the {len(episodes):,} episodes of this evaluation, so there is nothing to limit "
            'yet: check that the environment reports its cost (cost_fn, or info["cost"]).'
        ]
    if previous < half <= step and max(config.excesses(counters.least_risk)) > 0:
        return [f"half of the run is over and {lowest_risk_sentence(counters, config)}"]
    return []


def lowest_risk_sentence(counters: Any, config: Config) -> str:
    """Say that no evaluation has been within the limits, and how low the lowest risk was."""
    return (
        "no evaluation has been within the limits so far: the lowest risk was "
        f"{risk_text(counters.least_risk, config)}."
    )


def risk_text(risk: Sequence[float] | np.ndarray, config: Config) -> str:
    """Describe every risk with its limit, such as "a CVaR of 4.1 at tail 0.05 (limit 5)"."""
    several = len(config.constraints) > 1
    return " and ".join(
        f"a {risk_phrase(config.limited_measure(c), f'{r:.4g}')}"
        f"{f' for {c.name!r}' if several else ''} (limit {c.limit:g})"
        for r, c in zip(risk, config.constraints, strict=True)
    )


def delivery_record(runner: Any, counters: Any) -> dict[str, Any]:
    """Return which policy the run delivers, why, and its measured reward and risk."""
    config, state = runner.config, runner.state
    best = delivery.delivered(state.candidates) if state.candidates else None
    step = int(state.rounds) * config.training.num_envs
    measured = counters.evaluated
    if best is not None:
        feasible, mean_action = best.feasible, not best.samples
        measured = {
            "step": best.step,
            "reward": best.reward,
            "risk": list(best.risk),
            "episodes": best.episodes,
        }
        retested = state.candidates.retested[delivery.ranked(state.candidates)[0]]
        why = reason_for(best, bool(retested))
    else:
        risk = measured.get("risk", [])
        mean_action = delivery.uses_mean(state.agent, config)
        feasible = bool(measured) and (not risk or max(config.excesses(risk)) <= 0)
        why = (
            "It is the last policy, because no policy has been stored for delivery yet."
            if config.agent.follows_episodes
            else "It is the last policy, because a run whose multiplier follows the "
            "critics stores no earlier policies."
        )
    names = [constraint.name for constraint in config.constraints]
    return {
        "checkpoint": "last" if best is None else "best",
        "step": measured.get("step", step) if best is not None else step,
        "action": "mean" if mean_action else "sampled",
        "within_limits": feasible,
        "reward": measured.get("reward"),
        "risk": dict(zip(names, measured.get("risk", []), strict=False)),
        "limit": {c.name: c.limit for c in config.constraints},
        "episodes": measured.get("episodes", 0),
        "why": why,
        "written_at_step": step,
    }


def reason_for(best: delivery.Delivered, retested: bool) -> str:
    """Say why a stored policy is delivered. `retested` is whether it had a second test."""
    if not best.feasible:
        return (
            "No policy had a measured risk of at most (1 - agent.multiplier.margin) times the "
            "limit, so the policy with the lowest risk is delivered."
        )
    tested = (
        "had a second test and whose" if retested else "had no second test but whose"
    )
    return (
        f"It has the highest reward of the policies that {tested} measured risk was at most "
        "(1 - agent.multiplier.margin) times the limit."
    )


def delivery_lines(runner: Any, counters: Any) -> list[str]:
    """Return sentences about the delivered policy.

    If the policy is not within the limits, they name likely causes.
    """
    config, record = runner.config, delivery_record(runner, counters)
    if not record["episodes"]:
        return ["Nothing was evaluated, so nothing is known about the policy yet."]
    risk = [*record["risk"].values()]
    measured = f"measured on {record['episodes']:,} episodes"
    numbers = f"reward {record['reward']:.4g}"
    numbers += f" and {risk_text(risk, config)}" if risk else ""
    policy = "the last policy"
    if record["checkpoint"] == "best":
        within = record["within_limits"]
        policy = "the best policy" if within else "the policy with the lowest risk"
    policy += f", from step {record['step']:,}"
    if record["within_limits"]:
        return [f"Delivered: {policy}, with {numbers}, {measured}."]
    least = risk if record["checkpoint"] == "best" else counters.least_risk
    if max(config.excesses(counters.least_risk)) > 0:
        found = lowest_risk_sentence(counters, config)
        found = f"{found[0].upper()}{found[1:]}"
    else:
        found = "No policy was reliably within the limits."
    causes = likely_causes(runner, least)
    return [
        f"{found} Delivered anyway: {policy}, with {numbers}, {measured}.",
        "The most likely causes, and what to change:",
        *(f"  {number}. {cause}" for number, cause in enumerate(causes, start=1)),
    ]


def likely_causes(runner: Any, least: Sequence[float]) -> list[str]:
    """Return the three most likely reasons why no policy is within the limits.

    `least` contains the risk per constraint of the policy that came closest to the limits.
    """
    config = runner.config
    agent, training = config.agent, config.training
    causes = []
    value = np.asarray(runner.state.agent.multiplier.value)
    cap = agent.multiplier.cap
    if agent.follows_episodes:
        size = measurement.window_size(config)
        step = int(runner.state.rounds) * training.num_envs
        if measurement.window_risk(runner.state.measured, step, config) is None:
            causes.append(
                f"Too few episodes were measured for a window of {size:,}, so the "
                "multiplier does not move: raise evaluation.episodes, or evaluate more often."
            )
    else:
        causes.append(
            "The multiplier is adjusted to the risk that the critics estimate, which differs "
            "from the risk of episodes: set agent.multiplier.follows=episodes, as the presets "
            "fast and general do."
        )
    if cap is not None and (value >= 0.99 * cap).any():
        causes.append(
            f"The multiplier reached its cap of {cap:g}: raise agent.multiplier.cap."
        )
    if max(config.excesses(least)) > 0.25:
        worst_risk, _ = max(
            zip(least, config.constraints, strict=True),
            key=lambda pair: pair[1].excess(pair[0]),
        )
        causes.append(
            "Perhaps no policy can be within the limit. Check with a policy that ignores the "
            "reward and only avoids the cost. If even that one exceeds the limit, raise the "
            f"limit (the lowest measured risk was {worst_risk:.3g})."
        )
    causes.append(
        "The run may be too short: train longer, for example for "
        f"{2 * training.total_steps:,} steps."
    )
    causes.append(
        "The risk is close to the limit: aim lower with a larger agent.multiplier.margin."
        if max(config.excesses(least)) <= 0.25 and agent.follows_episodes
        else "The actor may be stuck with a bad policy: try another seed"
        + ("." if training.restarts else ", or set training.restarts=2.")
    )
    causes.append(
        "The multiplier may change too slowly: lower agent.multiplier.episodes_per_unit."
        if agent.follows_episodes
        else "The multiplier may change too slowly: raise agent.multiplier.learning_rate."
    )
    return causes[:3]
