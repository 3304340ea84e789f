"""Tests of the notes that a run prints at its start, at evaluations and at its end."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import orac
from helpers.toy_envs import Counter
from orac.api import Agent
from orac.config import presets
from orac.config.schema import Constraint, EvaluationConfig, MultiplierConfig
from orac.core.agent import AgentState
from orac.envs.base import EnvSpec
from orac.evaluation.episodes import Episodes
from orac.runs.progress import Progress
from orac.training import delivery, measurement, notes
from orac.training.device_loop import DeviceRunner
from orac.training.run_logger import MemoryLogger
from orac.training.run_loop import Counters, run_loop
from orac.training.train_step import StepReport, Totals

LIMIT = Constraint("cost", limit=5.0, tail=0.5)


def make_spec(bounds=(10.0,)):
    return EnvSpec("toy", 1, (-1.0,), (1.0,), 100, ("cost",), bounds)


def make_config(constraint=LIMIT, follows="episodes", **changes):
    config = presets.preset("orac", "my/Walk-v0")
    multiplier = MultiplierConfig(follows=follows, initial=1.0, cap=100.0)
    return replace(
        config,
        constraints=(constraint,),
        agent=replace(config.agent, hidden_sizes=(4, 4), multiplier=multiplier),
        training=replace(config.training, total_steps=100_000, num_envs=2, **changes),
        evaluation=replace(config.evaluation, every=5_000, episodes=20),
    )


def episodes_of(cost, count=20):
    costs = np.full((count, 1), float(cost))
    return Episodes(np.full(count, 3.0), costs, np.full(count, 10))


def runner_of(config, candidates=(), multiplier=1.0, measured=1000):
    """A runner at the end of its run."""
    agent = AgentState(*[()] * len(AgentState._fields))._replace(
        multiplier=SimpleNamespace(value=np.array([multiplier]))
    )
    state = SimpleNamespace(
        agent=agent,
        candidates=candidates,
        rounds=config.training.total_steps // config.training.num_envs,
        measured=measurement.add(
            measurement.init(config),
            np.zeros((measured, 1)),
            config.training.total_steps,
        ),
    )
    return SimpleNamespace(config=config, state=state)


def candidate_of(risk, feasible, step=40_000):
    """Candidates of which one has been evaluated."""
    count, place = (
        delivery.MAX_CANDIDATES + 1,
        0 if feasible else delivery.MAX_CANDIDATES,
    )
    there = np.arange(count) == place
    return delivery.Candidates(
        policies=(),  # type: ignore[arg-type]
        samples=np.zeros(count, bool),
        reward=np.full(count, 3.0),
        risk=np.full((count, 1), float(risk)),
        episodes=np.where(there, 120, 0),
        steps=np.where(there, step, 0),
        retested=there,
    )


def test_a_run_with_all_it_needs_has_no_notes():
    assert notes.start_notes(make_config(), make_spec(), on_host=True) == []
    assert notes.start_notes(make_config(), make_spec(), on_host=False) == []


def test_an_environment_without_a_bound_is_noted_with_the_line_that_declares_one():
    (note,) = notes.start_notes(make_config(), make_spec(None), on_host=True)
    assert "declares no bound on the 'cost'" in note
    assert "`cost_bound = ...`" in note and note.endswith(".")


def test_a_limit_of_zero_is_noted():
    config = make_config(Constraint("cost", limit=0.0, tail=0.5, cost_scale=1.0))
    (note,) = notes.start_notes(config, make_spec(), on_host=True)
    assert "is 0, which no number of episodes can certify" in note


def test_a_tail_with_too_few_episodes_for_the_window_is_noted():
    # A tail of 0.01 needs 1000 episodes. 10,000 steps hold three evaluations of 20
    # episodes, and 50 episodes of 100 steps of the environment that is measured.
    config = make_config(Constraint("cost", limit=5.0, tail=0.01))
    (note,) = notes.start_notes(config, make_spec(), on_host=True)
    assert "over a window of 1,000 episodes" in note and "Only about 110" in note
    assert "set evaluation.episodes to 334" in note
    assert "about 60" in notes.short_window(config, make_spec(), on_host=False)
    enough = replace(config, evaluation=replace(config.evaluation, episodes=334))
    assert not notes.short_window(enough, make_spec(), on_host=False)


def test_a_single_environment_is_measured_in_half_of_its_episodes_unless_turned_off():
    config = make_config(Constraint("cost", limit=5.0, tail=0.01))
    single = replace(config.training, num_envs=1, gradient_steps=1.0)
    for deployed, episodes in ((None, 110), (1, 110), (0, 60)):
        training = replace(single, deployed_envs=deployed)
        note = notes.short_window(replace(config, training=training), make_spec(), True)
        assert f"Only about {episodes} are measured" in note


def test_the_window_does_not_matter_if_the_multiplier_follows_the_critics():
    config = make_config(Constraint("cost", limit=5.0, tail=0.01), follows="critics")
    assert not notes.short_window(config, make_spec(), on_host=False)


def evaluate(counters, cost, step, previous, config):
    episodes = episodes_of(cost)
    notes.record_evaluation(counters, episodes, step, config)
    return notes.evaluation_notes(counters, episodes, step, previous, config)


def test_costs_that_are_all_zero_are_noted_at_the_first_evaluation_only():
    config, counters = make_config(), Counters(episodes=7, cumulative_cost=[0.0])
    (note,) = evaluate(counters, 0.0, 5_000, 0, config)
    assert "every cost so far was 0, in 7 training episodes and in the 20" in note
    assert evaluate(counters, 0.0, 10_000, 5_000, config) == []
    paid = Counters(episodes=7, cumulative_cost=[1.0])
    assert evaluate(paid, 0.0, 5_000, 0, config) == []


def test_a_limit_below_the_least_risk_is_noted_after_half_of_the_run():
    config, counters = make_config(), Counters(cumulative_cost=[1.0])
    assert evaluate(counters, 9.0, 45_000, 40_000, config) == []
    (note,) = evaluate(counters, 8.0, 50_000, 45_000, config)
    assert note == (
        "half of the run is over and no evaluation has been within the limits so far: the "
        "lowest risk was a CVaR of 8 at tail 0.5 (limit 5)."
    )
    assert evaluate(counters, 8.0, 55_000, 50_000, config) == []
    once = Counters(cumulative_cost=[1.0])
    evaluate(once, 4.0, 10_000, 5_000, config)
    assert evaluate(once, 9.0, 50_000, 45_000, config) == []


def test_a_run_within_its_limit_delivers_its_best_policy():
    config, counters = make_config(), Counters()
    evaluate(counters, 4.0, 100_000, 95_000, config)
    runner = runner_of(config, candidate_of(4.25, feasible=True))
    assert notes.delivery_lines(runner, counters) == [
        "Delivered: the best policy, from step 40,000, with reward 3 and a CVaR of 4.25 at "
        "tail 0.5 (limit 5), measured on 120 episodes."
    ]
    record = notes.delivery_record(runner, counters)
    assert record["within_limits"] and record["written_at_step"] == 100_000
    assert "policies that had a second test" in record["why"]
    candidates = runner.state.candidates
    untested = candidates._replace(retested=np.zeros_like(candidates.retested))
    runner.state.candidates = untested
    assert "had no second test" in notes.delivery_record(runner, counters)["why"]


def test_a_run_that_found_nothing_says_so_with_three_causes():
    config, counters = make_config(), Counters()
    evaluate(counters, 8.0, 100_000, 95_000, config)
    runner = runner_of(config, candidate_of(8.0, feasible=False), multiplier=100.0)
    first, heading, *causes = notes.delivery_lines(runner, counters)
    assert first == (
        "No evaluation has been within the limits so far: the lowest risk was a CVaR of 8 at "
        "tail 0.5 (limit 5). Delivered anyway: the policy with the lowest risk, from step 40,000, "
        "with reward 3 and a CVaR of 8 at tail 0.5 (limit 5), measured on 120 episodes."
    )
    assert heading.startswith("The most likely causes") and len(causes) == 3
    assert "reached its cap of 100: raise agent.multiplier.cap" in causes[0]
    assert "raise the limit (the lowest measured risk was 8)" in causes[1]
    assert "for 200,000 steps" in causes[2]
    assert "lowest risk is delivered" in notes.delivery_record(runner, counters)["why"]


@pytest.mark.parametrize(
    ("changes", "risk", "fragment"),
    [
        ({"measured": 3}, 8.0, "Too few episodes were measured for a window of 60"),
        ({}, 5.2, "a larger agent.multiplier.margin"),
        ({}, 8.0, "set training.restarts=2"),
    ],
)
def test_causes_follow_the_evidence(changes, risk, fragment):
    runner = runner_of(make_config(), candidate_of(risk, feasible=False), **changes)
    causes = notes.likely_causes(runner, [risk])
    assert len(causes) == 3 and fragment in " ".join(causes)


def test_a_run_that_follows_its_critics_delivers_its_last_policy():
    config, counters = make_config(follows="critics"), Counters()
    runner = runner_of(config)
    assert notes.delivery_lines(runner, counters) == [
        "Nothing was evaluated, so nothing is known about the policy yet."
    ]
    evaluate(counters, 8.0, 100_000, 95_000, config)
    first, _, cause, *_ = notes.delivery_lines(runner, counters)
    assert "the last policy, from step 100,000" in first
    assert "set agent.multiplier.follows=episodes" in cause
    evaluate(counters, 4.0, 100_000, 95_000, config)
    (only,) = notes.delivery_lines(runner, counters)
    assert only.startswith("Delivered: the last policy")


@pytest.mark.parametrize("samples", [False, True])
def test_the_record_of_the_last_policy_has_the_action_that_it_is_evaluated_with(
    samples,
):
    action = "sampled" if samples else "mean"
    runner = runner_of(make_config())
    steering = SimpleNamespace(samples=np.asarray(samples))
    runner.state.agent = runner.state.agent._replace(steering=steering)
    assert notes.delivery_record(runner, Counters())["action"] == action
    config = make_config(follows="critics")
    evaluation = replace(config.evaluation, deterministic=not samples)
    runner = runner_of(replace(config, evaluation=evaluation))
    assert notes.delivery_record(runner, Counters())["action"] == action


class StillRunner(DeviceRunner):
    """Takes steps in which nothing happens, and evaluates to episodes of a fixed cost."""

    def __init__(self, config, cost):
        super().__init__(Counter(), config)
        self.fixed_cost = cost

    def advance(self, rounds, capacity):
        self.state = self.state._replace(rounds=self.state.rounds + rounds)
        still = np.zeros((rounds, self.config.training.num_envs), bool)
        totals = Totals(still * 1.0, np.zeros((*still.shape, 1)), still * 1)
        fine = np.ones(rounds, bool)
        names = ("risk", "limit", "multiplier")
        metrics = {f"constraint/{name}/first": np.zeros(rounds) for name in names}
        paid = np.zeros((rounds, 1))
        return StepReport(metrics, ~fine, fine, fine, paid, still, totals, {})

    def evaluate(self, policy, episodes, *_, **__):
        return episodes_of(self.fixed_cost, episodes)


@pytest.mark.parametrize(
    ("cost", "fragment"), [(0.0, "every cost so far was 0"), (9.0, "half of the run")]
)
def test_notes_of_evaluations_are_shown_once(cost, fragment, caplog):
    config = make_config(Constraint("first", 5.0, 0.5), "critics", log_every=5_000)
    runner = StillRunner(config, cost)
    with Progress(100_000, quiet=True) as progress:
        values = []
        update = progress.update
        progress.update = lambda step, row: (values.append(row), update(step, row))
        run_loop(runner, MemoryLogger(), Counters(), progress=progress)
    (text,) = caplog.messages
    assert fragment in text
    # The measured risk comes first, with the number of episodes and the limit.
    assert [*values[-1].items()][:2] == [
        ("measured risk", f"{cost:g} (20 episodes)"),
        ("limit", 5.0),
    ]
    assert [*values[-1]][-3:] == ["critics' risk", "critics' limit", "multiplier"]


def test_a_note_is_shown_once_if_the_last_evaluation_is_early(caplog):
    # Evaluations are at steps 60,000 and 100,000, and 100,000 - 60,000 is below the half.
    config = make_config(Constraint("first", 5.0, 0.5), "critics", log_every=5_000)
    config = replace(config, evaluation=replace(config.evaluation, every=60_000))
    with Progress(100_000, quiet=True) as progress:
        run_loop(
            StillRunner(config, 9.0), MemoryLogger(), Counters(), progress=progress
        )
    (text,) = caplog.messages
    assert "half of the run" in text


def test_notes_at_the_start_are_shown_before_training(caplog, monkeypatch):
    monkeypatch.setattr(orac.api.agent, "run_loop", lambda *_, **__: None)
    config = replace(
        make_config(Constraint("first", limit=0.0, cost_scale=1.0)),
        evaluation=EvaluationConfig(every=5_000, episodes=100),
    )
    Agent(Counter(), config).learn(progress_bar=False)
    (text,) = caplog.messages
    assert text.startswith("the limit of 'first' is 0")
