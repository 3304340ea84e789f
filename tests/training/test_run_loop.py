"""Tests of whole runs whose multiplier follows measured episodes."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

import orac
from helpers.gym_probes import Stateful
from helpers.run_examples import assert_same_bits
from helpers.toy_envs import TwoKindsOfStart
from orac.api import Agent
from orac.config import presets
from orac.config.schema import (
    AgentConfig,
    Config,
    Constraint,
    EnvConfig,
    EvaluationConfig,
    MultiplierConfig,
    TrainingConfig,
)
from orac.evaluation.certification import MAX_LOOKS
from orac.evaluation.episodes import Episodes
from orac.reports.run_reader import read_run
from orac.runs.checkpoint import Checkpoints
from orac.training import delivery
from orac.training.device_loop import DeviceRunner
from orac.training.run_loop import Counters, progress_values, steer_run
from orac.training.state import CERTIFY, COMPARE, MEASURE, REQUESTED, RETEST
from orac.training.train_step import StepReport

LOGS = ("metrics.csv", "episodes.csv", "evaluations.csv", "config.yaml")


def doors_config(limit=7.0):
    """A small run in the environment with two kinds of start."""
    agent = AgentConfig(
        risk_form="quantile",
        num_quantiles=8,
        num_cost_critics=2,
        hidden_sizes=(32, 32),
        kappa=0.1,
        discount=0.9,
        cost_discount=0.9,
        n_step=3,
        actor_average=0.95,
        normalize_observations=True,
        normalize_rewards=True,
        divide_by_multipliers=True,
        final_learning_rate=0.2,
        actor_learning_rate=3e-3,
        reward_critic_learning_rate=3e-3,
        cost_critic_learning_rate=3e-3,
        initial_temperature=0.1,
        target_entropy=-2.0,
        polyak=0.05,
        target_every=1,
        multiplier=MultiplierConfig(follows="episodes", initial=1.0, cap=100.0),
    )
    config = Config(
        env=EnvConfig("TwoKindsOfStart"),
        constraints=(Constraint("cost", limit, 0.5),),
        agent=agent,
        training=TrainingConfig(
            total_steps=8000,
            num_envs=16,
            learning_starts=320,
            gradient_steps=1 / 8,
            batch_size=64,
            buffer_size=2000,
            log_every=160,
            checkpoint_every=320,
            restarts=1,
        ),
        evaluation=EvaluationConfig(every=320, episodes=25),
    )
    return presets.with_algorithm(config, "wcsac")


def train(env, config, out, copy_at=(), **options):
    """A finished agent; its run directory is copied at some steps, as a kill leaves it."""
    copies = {}

    def copy(event):
        if event.step in copy_at:
            copies[event.step] = shutil.copytree(
                event.agent.run_path, out / f"killed-{event.step}"
            )

    agent = Agent(env, config, **options)
    agent.learn(out=out / "whole", callback=copy, progress_bar=False, trackers=())
    return agent, copies


def assert_same_run(one, other):
    """Assert that two agents and their run directories are the same, bit for bit."""
    assert_same_bits(one.runner.state, other.runner.state)
    for name in LOGS:
        ours, theirs = ((agent.run_path / name).read_bytes() for agent in (one, other))
        assert ours == theirs, name
    assert_same_bits(saved_state(one), saved_state(other))


def saved_state(agent):
    template = agent.runner.state._replace(replay=())
    return Checkpoints(agent.run_path / "checkpoints").load_latest(template).state


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """A finished run, and copies of it with an empty, a half-filled and a full window."""
    out = tmp_path_factory.mktemp("doors")
    return train(TwoKindsOfStart(), doors_config(), out, (160, 800, 2080))


def test_b_is_taken_from_the_first_kind_of_start_and_a_from_the_second(doors):
    agent, _ = doors
    best = agent.best
    assert best is not None and best.feasible
    assert best.reward == pytest.approx(0.5, abs=0.15) and best.risk == (0.0,)
    action, _ = agent.predict(np.eye(2, dtype=np.float32), deterministic=True)
    assert action[0] > 0 > action[1]
    # Taking B from both would have the CVaR 10 over all episodes.
    measured = agent.evaluate(400, seed=5)
    assert measured["cost/cvar_0.5"] <= 7


@pytest.mark.parametrize(("step", "episodes"), [(160, 0), (800, 50), (2080, 60)])
def test_a_killed_run_continues_exactly_with_any_window(doors, step, episodes):
    whole, copies = doors
    loaded = orac.load(copies[step], env=TwoKindsOfStart()) if step > 160 else None
    if loaded is not None:
        candidates = loaded.runner.state.candidates
        assert candidates.episodes.any() and isinstance(candidates.reward, np.ndarray)
    resumed = orac.resume(
        copies[step], env=TwoKindsOfStart(), progress_bar=False, trackers=(), log=str
    )
    assert_same_run(whole, resumed)
    metrics = np.genfromtxt(copies[step] / "metrics.csv", delimiter=",", names=True)
    row = metrics["env_steps"] == step
    assert metrics["measuredepisodes"][row] == episodes


def test_the_best_policy_survives_saving_and_loading(doors, tmp_path):
    agent, _ = doors
    agent.save(tmp_path / "agent.zip")
    for path in (tmp_path / "agent.zip", agent.run_path):
        loaded = orac.load(path, env=TwoKindsOfStart())
        assert_same_bits(
            jax.tree.map(np.asarray, loaded.best), jax.tree.map(np.asarray, agent.best)
        )
        assert loaded.best._replace(policy=None) == agent.best._replace(policy=None)
        observation = np.eye(2, dtype=np.float32)
        np.testing.assert_array_equal(
            loaded.predict(observation, seed=1)[0],
            agent.predict(observation, seed=1)[0],
        )


def test_a_run_is_plotted_from_its_logs_also_after_loading(doors):
    agent, _ = doors
    for one in (agent, orac.load(agent.run_path, env=TwoKindsOfStart())):
        figure = one.plot()
        line = figure.axes[0].lines[0]
        assert len(line.get_xdata()) == len(read_run(agent.run_path).evaluation_steps)
        labels = [x.get_label() for x in figure.axes[0].lines]
        assert {"limit 7", "delivered policy"} <= {*labels}


@pytest.mark.parametrize("samples", [False, True])
def test_an_exported_policy_carries_how_it_acts(doors, tmp_path, samples):
    agent, _ = doors
    state, path = agent.runner.state, tmp_path / "policy.npz"
    candidates = state.candidates
    flags = np.full_like(candidates.samples, samples)
    agent.runner.state = state._replace(candidates=candidates._replace(samples=flags))
    try:
        agent.export(path)
        with np.load(path) as arrays:
            assert bool(arrays["deterministic"]) == (not samples)
        policy = orac.policy.load(path)
        one = np.array([1.0, 0.0], np.float32)
        assert (len({float(policy(one)[0]) for _ in range(5)}) > 1) == samples
        mean = agent.predict(one, deterministic=True)[0]
        np.testing.assert_allclose(policy(one, np.zeros(1)), mean, atol=1e-5)
    finally:
        agent.runner.state = state


class FixedCosts(DeviceRunner):
    """A runner in which the mean and the sampled action have fixed costs."""

    def __init__(self, config, costs):
        super().__init__(TwoKindsOfStart(), config)
        self.costs, self.asked = costs, []

    def evaluate(self, policy, episodes, deterministic=True, seed=None, sample=0):
        self.asked.append((episodes, deterministic, sample))
        return episodes_of(self.costs[deterministic], episodes)


def episodes_of(cost, count):
    return Episodes(np.zeros(count), np.full((count, 1), cost), np.ones(count, int))


def steer(runner, step):
    """The metrics after an evaluation of 60 episodes at this step."""
    report = StepReport(*[()] * len(StepReport._fields))
    uses_mean = delivery.uses_mean(runner.state.agent, runner.config)
    episodes = episodes_of(runner.costs[uses_mean], 60)
    return steer_run(runner, report, episodes, step, Counters())


def test_every_kind_of_evaluation_has_its_own_sample_numbers():
    looks = range(CERTIFY, CERTIFY + 1 + MAX_LOOKS)
    numbers = [MEASURE, RETEST, COMPARE, REQUESTED, *looks]
    assert len({*numbers}) == len(numbers)


def test_the_costs_of_all_episodes_of_training_count():
    counters = Counters()
    for costs in ([[1.0, 8.0], [3.0, 2.0]], [[0.0, 0.0]]):
        counters.include_costs(np.array(costs, np.float32))
    assert counters.largest_cost == [3.0, 8.0]


def test_the_better_action_is_deployed_and_empties_the_window():
    config = doors_config()
    config = replace(config, agent=replace(config.agent, deployed_action="measured"))
    runner = FixedCosts(config, {True: 20.0, False: 5.0})
    # Nothing is compared in the first fifth of the run.
    row = steer(runner, 800)
    assert row["measured/risk/cost"] == 20 and runner.asked == []
    row = steer(runner, 1600)
    assert runner.asked == [(60, False, 2)]
    assert bool(runner.state.agent.steering.samples) and runner.state.measured.switched
    assert row["measured/episodes"] == 0 and np.isnan(row["measured/risk/cost"])
    # From now on the sampled policy is measured, and nothing is compared any more.
    row = steer(runner, 1920)
    assert row["measured/risk/cost"] == 5 and len(runner.asked) == 2
    assert runner.asked[-1] == (80, False, 1), "the second test of a new best"
    best = delivery.delivered(runner.state.candidates)
    assert best.samples and best.episodes == 140
    # Evaluations, comparison and second test: 60 + (60 + 60) + (60 + 80) steps.
    assert row["measured/extra_steps"] == 320


def test_steps_of_evaluations_in_the_warm_up_are_counted_and_not_measured():
    runner = FixedCosts(doors_config(), {True: 5.0})
    row = steer(runner, 160)
    assert row["measured/extra_steps"] == 60 and row["measured/episodes"] == 0
    assert delivery.delivered(runner.state.candidates) is None
    assert runner.state.measured.moved_at == 160


class RandomWalk(Stateful):
    """An environment on the host with costs that depend on the action and on chance.

    Episodes have six steps; its random generator is part of its state.
    """

    def __init__(self):
        super().__init__(length=6, truncates=True)

    def report(self, action):
        return {"cost": float(abs(action[0]) + self.np_random.random())}


def host_config(num_envs):
    config = doors_config(limit=4.0)
    return replace(
        config,
        env=EnvConfig("RandomWalk", episode_length=6),
        constraints=(Constraint("cost", 4.0, 0.5),),
        training=replace(
            config.training,
            total_steps=1200,
            num_envs=num_envs,
            learning_starts=60,
            gradient_steps=1 / num_envs,
            batch_size=16,
            buffer_size=400,
            log_every=60,
            checkpoint_every=120,
        ),
        evaluation=EvaluationConfig(every=300, episodes=3),
    )


def test_a_run_on_the_host_continues_exactly_with_a_half_filled_window(tmp_path):
    config = host_config(num_envs=2)
    whole, copies = train(RandomWalk, config, tmp_path, (300, 1020))
    measured = whole.runner.state.measured
    # Half of the environments play the deployed policy.
    assert int(measured.added) > 60
    for path in copies.values():
        resumed = orac.resume(
            path, env=RandomWalk, progress_bar=False, trackers=(), log=str
        )
        assert_same_run(whole, resumed)
    metrics = np.genfromtxt(whole.run_path / "metrics.csv", delimiter=",", names=True)
    steps = metrics["env_steps"].tolist()
    filled = dict(zip(steps, metrics["measuredepisodes"], strict=True))
    assert 0 < filled[300] < 60


@pytest.mark.slow
def test_the_unit_of_costs_does_not_matter():
    """A limit of 5 and one of 5,000,000 give the same run up to rounding."""
    histories = []
    for scale in (1.0, 1e6):
        config = doors_config(limit=5.0 * scale)
        training = replace(config.training, total_steps=1920)
        rows = []
        agent = Agent(TwoKindsOfStart(scale), replace(config, training=training))
        agent.learn(
            progress_bar=False, callback=lambda event, rows=rows: rows.append(event)
        )
        histories.append([row.metrics for row in rows])
    small, large = histories
    unitless = ("constraint/multiplier/cost", "measured/clock", "train/reward")
    for left, right in zip(small, large, strict=True):
        for name in (*unitless, "actor/entropy", "critic/cost_loss"):
            assert right[name] == pytest.approx(left[name], rel=0.02, nan_ok=True), name
        for name in ("measured/risk/cost", "constraint/risk/cost", "train/cost"):
            expected = 1e6 * left[name]
            assert right[name] == pytest.approx(expected, rel=0.02, nan_ok=True), name


@pytest.mark.parametrize(
    ("kind", "shown"), [("fast", "- (22 of 200 episodes)"), ("paper", "- (0 episodes)")]
)
def test_the_progress_names_the_episodes_of_the_measured_risk(kind, shown):
    config = presets.preset("orac", "orac/GuardedMaze-v0", kind)
    names = ("risk", "limit", "multiplier")
    metrics = {f"constraint/{name}/cost": 1.0 for name in names}
    metrics |= {"train/reward": 0.0, "train/cost": 0.0}
    metrics |= {"measured/risk/cost": np.nan, "measured/episodes": 22.0}
    values = progress_values(metrics, config, ("cost",), Counters())
    assert values["measured risk"] == shown and "episodes" not in values
