"""Tests of the compiled loop: stored steps, due updates, and equal results for equal seeds."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac import envs
from orac.config import presets
from orac.config.schema import Config, Constraint, PivotConfig, TrainingConfig
from orac.core import agent as agent_core
from orac.core import replay
from orac.envs.base import EnvSpec, Step
from orac.training import device_loop
from orac.training.state import empty_replay, learner_for
from orac.training.train_step import shift_radius_at, update_if_due

MAZE = "orac/GuardedMaze-v0"
SMALL = {
    "hidden_sizes": (16, 16),
    "embedding_size": 16,
    "num_quantiles": 8,
    "num_policy_quantiles": 8,
    "num_cost_critics": 2,
}


TRACES = []
"""An entry for each time that a step of `Count` was traced rather than run."""


@dataclass(frozen=True)
class Count:
    """Counts to three from a random start; costs the count, pays the first action.

    Odd starts are terminated at three, even ones truncated.
    """

    @property
    def spec(self):
        return EnvSpec(
            name="Count",
            observation_size=2,
            action_low=(-1.0,),
            action_high=(1.0,),
            episode_length=3,
        )

    def reset(self, key):
        start = jax.random.randint(key, (), 1, 100)
        return (start, jnp.int32(0)), self._observe(start, 0)

    def step(self, key, state, action):
        TRACES.append(self)
        start, count = state[0], state[1] + 1
        return (start, count), Step(
            observation=self._observe(start, count),
            reward=action[0],
            cost=count.astype(jnp.float32)[None],
            terminated=(count == 3) & (start % 2 == 1),
            truncated=(count == 3) & (start % 2 == 0),
            metrics={},
        )

    def _observe(self, start, count):
        return jnp.stack([jnp.float32(start) / 100, jnp.float32(count)])


COUNT = Count()
CAPACITY = 12


def count_config(seed=0):
    config = Config(
        seed=seed,
        constraints=(Constraint("cost", 6.0, 0.5),),
        agent=replace(
            presets.safety_gym().agent,
            **SMALL,
            cost_discount=0.5,
            pivot=PivotConfig(every=8, learning_rate=0.1),
        ),
        training=TrainingConfig(
            total_steps=24,
            num_envs=2,
            learning_starts=6,
            gradient_steps=1.0,
            batch_size=8,
            buffer_size=64,
        ),
    )
    return presets.with_algorithm(config, "orac-lin")


def start(env, config, seed=0):
    key = jax.random.key(seed)
    learner = learner_for(env.spec, config)
    state = device_loop.init(key, env, learner, config)
    state = state._replace(replay=empty_replay(learner.problem, config))
    return jax.random.fold_in(key, 1), state


def run(env, config, *stretches, seed=0, capacity=CAPACITY):
    """The last state, and the reports of all rounds."""
    key, state = start(env, config, seed)
    reports = []
    for rounds in stretches:
        state, report = device_loop.compiled_run()(
            key, state, rounds, env, config, capacity
        )
        reports.append(jax.tree.map(lambda x, n=rounds: np.asarray(x)[:n], report))
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *reports)


def assert_same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def differing(left, right):
    pairs = jax.tree_util.tree_flatten_with_path(left)[0]
    others = jax.tree.leaves(right)
    return {
        jax.tree_util.keystr(path)
        for (path, a), b in zip(pairs, others, strict=True)
        if (np.asarray(a) != np.asarray(b)).any()
    }


def test_rounds_may_be_cut_into_stretches_anyhow_and_are_traced_once():
    config = count_config()
    whole = run(COUNT, config, 10)
    traces = len(TRACES)
    assert_same_bits(run(COUNT, config, 4, 6), whole)
    assert_same_bits(run(COUNT, config, *[1] * 10), whole)
    assert traces > 0 and len(TRACES) == traces


def test_the_seed_decides_every_bit():
    config = count_config()
    state, report = run(COUNT, config, 10)
    again, same_report = run(COUNT, config, 10)
    assert_same_bits((again, same_report), (state, report))
    other, other_report = run(COUNT, config, 10, seed=1)
    assert {".observation", ".context.pivot"} <= differing(state, other)
    assert {".action", ".reward"} <= differing(
        state.replay.storage, other.replay.storage
    )
    assert differing(state.agent, other.agent)
    assert differing(report.metrics, other_report.metrics)


def test_learning_starts_when_it_should_with_as_many_gradient_steps_as_asked():
    state, report = run(COUNT, count_config(), 10)
    # Two environments: six steps are reached with the third round.
    assert report.updated.tolist() == [False] * 2 + [True] * 8
    assert int(state.agent.gradient_steps) == 8 * 2
    assert int(state.rounds) == 10 and int(state.replay.inserted) == 20
    for name, values in report.metrics.items():
        assert (values[:2] == 0).all(), name
    assert (report.metrics["critic/reward_loss"][2:] > 0).all()


def test_actions_are_uniform_before_learning_and_the_behaviour_policys_after():
    config = count_config()
    key, state = start(COUNT, config)
    agent = state.agent
    _, report = run(COUNT, config, 4)
    stored, _ = run(COUNT, config, 3)
    for round_number in range(3):
        act_key = jax.random.split(jax.random.fold_in(key, round_number), 4)[0]
        uniform = jax.random.uniform(act_key, (2, 1), minval=-1.0, maxval=1.0)
        rows = stored.replay.storage.action[2 * round_number : 2 * round_number + 2]
        np.testing.assert_array_equal(rows, uniform)
    # The fourth round is the first after six steps, and shifts the new agent's mean.
    assert (report.metrics["explore/shift_norm"] > 0).tolist() == [False] * 3 + [True]
    act_key = jax.random.split(jax.random.fold_in(key, 3), 4)[0]
    trained, _ = run(COUNT, config, 3)
    action, _ = jax.jit(agent_core.act, static_argnames="learner")(
        act_key,
        trained.agent,
        trained.observation,
        trained.context,
        shift_radius_at(jnp.int32(6), config),
        learner=learner_for(COUNT.spec, config),
    )
    later, _ = run(COUNT, config, 4)
    np.testing.assert_allclose(later.replay.storage.action[6:8], action, rtol=1e-5)
    assert differing(trained.agent, agent)


def test_the_replay_holds_what_happened_and_what_was_paid_before():
    state, report = run(COUNT, count_config(), 11)
    rows = jax.tree.map(lambda x: np.asarray(x)[:22], state.replay.storage)
    for env in range(2):
        mine = jax.tree.map(lambda x, env=env: x[env::2], rows)
        count = np.arange(11) % 3
        np.testing.assert_array_equal(mine.observation[:, 1], count)
        # The true next observation, also at an episode's end.
        np.testing.assert_array_equal(mine.next_observation[:, 1], count + 1)
        np.testing.assert_array_equal(
            mine.next_observation[:, 0], mine.observation[:, 0]
        )
        np.testing.assert_array_equal(mine.cost[:, 0], count + 1)
        np.testing.assert_array_equal(mine.reward, mine.action[:, 0])
        odd = np.round(100 * mine.observation[:, 0]) % 2 == 1
        np.testing.assert_array_equal(mine.terminated, (count == 2) & odd)
        np.testing.assert_array_equal(mine.truncated, (count == 2) & ~odd)
        # Cost discount 0.5: nothing, then 1, then 1 + 0.5 * 2 paid before the step.
        paid = np.array([0.0, 1.0, 2.0])[count]
        np.testing.assert_array_equal(mine.accumulated_cost[:, 0], paid)
        np.testing.assert_array_equal(mine.accumulated_discount, 0.5**count)
        ends = report.ended[:, env]
        np.testing.assert_array_equal(ends, count == 2)
        np.testing.assert_array_equal(report.totals.cost[ends, env, 0], 6.0)
        np.testing.assert_array_equal(report.totals.length[:, env], count + 1)
        whole = mine.reward[:9].reshape(3, 3).sum(axis=1)
        np.testing.assert_allclose(
            report.totals.reward[ends, env], whole, rtol=1e-6, atol=1e-7
        )


def test_a_pivot_lasts_an_episode_and_its_sampler_learns():
    key, state = start(COUNT, count_config())
    seen, params = [np.asarray(state.context.pivot)], []
    for _ in range(CAPACITY):
        state, _ = device_loop.compiled_run()(
            key, state, 1, COUNT, count_config(), CAPACITY
        )
        seen.append(np.asarray(state.context.pivot))
        params.append(float(state.agent.pivot.params[0]))
    episodes = np.stack(seen[:12]).reshape(4, 3, 2)
    assert (episodes == episodes[:, :1]).all()
    assert len(np.unique(episodes)) == 8
    # An outer step every 8 environment steps: after rounds 4, 8 and 12.
    moved = np.diff([0.0, *params]) != 0
    assert moved.tolist() == [False, False, False, True] * 3


@pytest.mark.parametrize(
    ("gradient_steps", "num_envs", "per_round", "every"),
    [(1, 1, 1, 1), (3, 1, 3, 1), (0.25, 1, 1, 4), (1 / 16, 16, 1, 1), (0.5, 8, 4, 1)],
)
def test_gradient_steps_keep_their_ratio_to_environment_steps(
    monkeypatch, gradient_steps, num_envs, per_round, every
):
    # No learner is needed to count when it would be called.
    def update(key, state, batch, learner, only_critics):
        return state._replace(gradient_steps=state.gradient_steps + 1), {}

    def update_pivot(key, state, batch, learner):
        return state._replace(pivot=state.pivot._replace(params=state.pivot.params + 1))

    monkeypatch.setattr(agent_core, "update", update)
    training = TrainingConfig(
        num_envs=num_envs, gradient_steps=gradient_steps, learning_starts=40
    )
    config = replace(count_config(), training=training)
    learner = learner_for(COUNT.spec, config)
    learner = learner._replace(costs=learner.costs._replace(outer_step=update_pivot))
    agent = agent_core.init(jax.random.key(0), learner)
    buffer = replay.init(8, replay.example_transition(2, 1, 1))
    one = jax.jit(
        lambda a, n: update_if_due(jax.random.key(n), a, buffer, n, learner, config)
    )
    steps, updates, outer = 0, 0, 0
    for rounds in range(1, 81):
        agent, _, updated = one(agent, rounds)
        begun = rounds * num_envs >= 40
        updates += per_round * (begun and rounds % every == 0)
        assert updated == (begun and rounds % every == 0)
        # Every 8 steps, or at every round that takes more of them.
        outer += begun and rounds * num_envs // 8 > steps // 8
        steps = rounds * num_envs
    assert int(agent.gradient_steps) == updates
    assert float(agent.pivot.params[0]) == outer


def test_the_shift_radius_falls_linearly_to_zero():
    config = count_config()

    def radius(steps, **changes):
        exploration = replace(config.agent.exploration, shift_radius=4.0, **changes)
        agent = replace(config.agent, exploration=exploration)
        return float(shift_radius_at(jnp.int32(steps), replace(config, agent=agent)))

    assert [radius(s) for s in (0, 6, 12, 24, 30)] == [4.0, 3.0, 2.0, 0.0, 0.0]
    assert radius(12, decay=False) == 4.0
    assert radius(0, radius_is_kl=True) == pytest.approx(8**0.5)


def maze_config(algo, shift_radius=None):
    config = presets.preset(algo, MAZE)
    agent = replace(config.agent, **SMALL)
    if shift_radius is not None:
        exploration = replace(agent.exploration, shift_radius=shift_radius)
        agent = replace(agent, exploration=exploration)
    training = TrainingConfig(
        total_steps=2000, learning_starts=200, batch_size=32, buffer_size=2000
    )
    return replace(config, agent=agent, training=training)


@pytest.mark.parametrize("form", ["iqn", pytest.param("lin", marks=pytest.mark.slow)])
def test_orac_without_a_shift_is_wcsac_to_the_last_bit(form):
    plain = maze_config(f"wcsac-{form}")
    env = envs.make(MAZE, **dict(plain.env.params))
    wcsac, report = run(env, plain, 2000, capacity=2000)
    unshifted = maze_config(f"orac-{form}", shift_radius=0.0)
    orac, other = run(env, unshifted, 2000, capacity=2000)
    assert int(orac.agent.gradient_steps) == 1801
    assert_same_bits(orac, wcsac)
    assert_same_bits(other.totals, report.totals)
    assert report.ended.any()
    for name, values in report.metrics.items():
        np.testing.assert_array_equal(other.metrics[name], values, err_msg=name)


@pytest.mark.slow
def test_orac_with_a_shift_is_not_wcsac():
    config = maze_config("orac-iqn")
    env = envs.make(MAZE, **dict(config.env.params))
    orac, _ = run(env, config, 2000, capacity=2000)
    wcsac, _ = run(env, maze_config("wcsac-iqn"), 2000, capacity=2000)
    actions = orac.replay.storage.action, wcsac.replay.storage.action
    same = (np.asarray(actions[0]) == np.asarray(actions[1])).all(axis=1)
    assert same[:200].all() and not same[200:].any()
