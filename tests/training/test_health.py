"""Tests that a run with invalid numbers stops, reports them, and keeps its last good state."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.api import Agent
from orac.config import presets
from orac.config.schema import (
    AgentConfig,
    Config,
    EnvConfig,
    EvaluationConfig,
    TrainingConfig,
)
from orac.envs.base import EnvSpec, Step
from orac.runs.directory import RunDirectory
from orac.training.health import (
    NonFiniteError,
    check_parameters,
    check_report,
)
from orac.training.run_logger import RunLogger
from orac.training.run_loop import Counters
from orac.training.train_step import StepReport, Totals

LAST_GOOD = "The last good checkpoint is elsewhere."


def report(rounds=5, num_envs=2, **metrics):
    """A stretch in which nothing is wrong."""
    given = {
        "actor/entropy": np.ones(rounds),
        "critic/cost_loss": np.ones(rounds),
        "critic/reward_loss": np.ones(rounds),
    }
    return StepReport(
        metrics={**given, **metrics},
        updated=np.ones(rounds, bool),
        finite_action=np.ones(rounds, bool),
        finite_observation=np.ones(rounds, bool),
        cost=np.zeros((rounds, 1)),
        ended=np.zeros((rounds, num_envs), bool),
        totals=Totals(
            np.zeros((rounds, num_envs)),
            np.zeros((rounds, num_envs, 1)),
            np.ones((rounds, num_envs), int),
        ),
        env_metrics={},
    )


def bad_from(index, value=np.nan, rounds=5):
    values = np.ones(rounds)
    values[index:] = value
    return values


def test_a_sound_stretch_passes():
    check_report(report(), 0, 2, LAST_GOOD)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_metric_that_is_not_finite_is_named_with_its_step(value):
    wrong = report(**{"critic/reward_loss": bad_from(3, value)})
    # Rounds 100 to 104 of two environments: the fourth of them ends at step 208.
    with pytest.raises(NonFiniteError) as error:
        check_report(wrong, 100, 2, LAST_GOOD)
    assert str(error.value) == (
        "critic/reward_loss must be finite, but it was not at step 208. The last good "
        "checkpoint is elsewhere. Try smaller learning rates, "
        "agent.max_gradient_norm=10, or agent.reward_scale=0.1."
    )


def test_what_went_wrong_first_is_named_and_of_one_round_what_causes_the_rest():
    later = report(
        **{"actor/entropy": bad_from(2), "critic/cost_loss": bad_from(1, np.inf)}
    )
    with pytest.raises(NonFiniteError, match=r"^critic/cost_loss .* step 4\."):
        check_report(later, 0, 2, LAST_GOOD)
    together = report(
        **{"actor/entropy": bad_from(1), "critic/reward_loss": bad_from(1)}
    )
    with pytest.raises(NonFiniteError, match=r"^critic/reward_loss .* step 4\."):
        check_report(together, 0, 2, LAST_GOOD)


@pytest.mark.parametrize("name", ["reward", "cost"])
def test_a_number_of_the_environment_is_named_before_what_came_of_it(name):
    wrong = report(**{"critic/reward_loss": bad_from(2)})
    getattr(wrong.totals, name)[2:, 1] = np.nan
    with pytest.raises(NonFiniteError) as error:
        check_report(wrong, 0, 2, LAST_GOOD)
    assert str(error.value) == (
        f"the environment's {name} must be finite, but it was not at step 6. {LAST_GOOD} "
        "The environment's step returned this value: fix it there."
    )


@pytest.mark.parametrize(
    ("paid", "ended", "step"),
    [
        ([0.0, 2.0, 2.0, 1.5, 3.0], [], 8),
        ([0.0, -1.0, 0.0, 1.0, 2.0], [], 4),
        # Nothing is paid twice: what came before belongs to the episode that ended.
        ([1.0, 5.0, 0.0, 0.0, -0.1], [1], 10),
    ],
)
def test_a_negative_cost_stops_the_run_with_its_step(paid, ended, step):
    wrong = report()
    wrong.totals.cost[:, 1, 0] = paid
    wrong.ended[ended, 1] = True
    with pytest.raises(ValueError) as error:
        check_report(wrong, 0, 2, LAST_GOOD)
    assert str(error.value) == (
        "the environment's cost must be at least 0, but one was negative at step "
        f"{step}. {LAST_GOOD} The environment's step returned this value: fix it there."
    )


def test_a_negative_cost_in_the_first_round_of_a_stretch_is_found():
    wrong = report()
    wrong.totals.cost[:, 1, 0] = 3.0
    before = np.array([[0.0], [4.0]])
    with pytest.raises(ValueError, match="negative at step 202"):
        check_report(wrong, 100, 2, LAST_GOOD, before)
    check_report(wrong, 100, 2, LAST_GOOD, np.minimum(before, 3.0))


def test_a_cost_that_starts_again_with_its_episode_is_sound():
    good = report()
    good.totals.cost[:, 0, 0] = [1.0, 5.0, 0.0, 0.0, 2.0]
    good.ended[1, 0] = True
    check_report(good, 0, 2, LAST_GOOD)


def test_an_agent_that_acts_badly_is_not_its_environments_fault():
    wrong = report(**{"critic/reward_loss": bad_from(2)})
    wrong.totals.reward[2:] = np.nan
    wrong.finite_action[2:] = False
    with pytest.raises(NonFiniteError, match=r"^the agent's action .* step 6\. .* Try"):
        check_report(wrong, 0, 2, LAST_GOOD)


def test_an_observation_that_is_not_finite_is_named_before_the_action_it_leads_to():
    wrong = report()
    wrong.finite_observation[1:] = False
    wrong.finite_action[2:] = False
    with pytest.raises(NonFiniteError, match=r"environment's observation .* step 4\."):
        check_report(wrong, 0, 2, LAST_GOOD)


def test_metrics_of_rounds_without_an_update_are_not_looked_at():
    wrong = report(**{"critic/reward_loss": bad_from(0)})
    check_report(wrong._replace(updated=np.zeros(5, bool)), 0, 2, LAST_GOOD)


def test_a_parameter_that_is_not_finite_is_named():
    agent = {"actor": {"weight": jnp.array([1.0, jnp.inf])}, "steps": jnp.int32(3)}
    with pytest.raises(
        NonFiniteError, match=r"agent's \['actor'\]\['weight'\] .* 40\."
    ):
        check_parameters(agent, 40, LAST_GOOD)
    check_parameters({**agent, "actor": jnp.zeros(0)}, 40, LAST_GOOD)


@dataclass(frozen=True)
class BadDay:
    """One long episode with reward 1 a step, and from the 150th step on NaN."""

    spec = EnvSpec("BadDay", 1, (-1.0,), (1.0,), episode_length=1_000)

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key, state, action):
        steps = state + 1
        return steps, Step(
            observation=jnp.zeros(1),
            reward=jnp.where(steps >= 150, jnp.nan, 1.0),
            cost=jnp.zeros(1),
            terminated=jnp.array(False),
            truncated=jnp.array(False),
            metrics={},
        )


def small_agent():
    config = Config(
        env=EnvConfig("bad-day"),
        agent=AgentConfig(hidden_sizes=(8, 8)),
        training=TrainingConfig(
            total_steps=400,
            learning_starts=20,
            gradient_steps=0.1,
            batch_size=8,
            buffer_size=400,
            log_every=40,
            checkpoint_every=80,
        ),
        evaluation=EvaluationConfig(every=0, episodes=1),
    )
    return Agent(BadDay(), presets.with_algorithm(config, "sac"))


def poison(agent):
    """Make the actor's first weight infinite, as a step too large would."""
    state = agent.runner.state
    leaves, structure = jax.tree.flatten(state.agent.actor.params)
    leaves[0] = leaves[0].at[0, 0].set(jnp.inf)
    params = jax.tree.unflatten(structure, leaves)
    actor = state.agent.actor._replace(params=params)
    agent.runner.state = state._replace(agent=state.agent._replace(actor=actor))


@pytest.mark.parametrize(
    ("poisoned_at", "quantity", "step", "kept"),
    [
        (None, "the environment's reward", "150", 80),
        (40, "the agent's action", "41", None),
        (80, r"the agent's .actor.params\[0\].weight", "80", None),
        (120, "the agent's action", "121", 80),
    ],
)
def test_a_run_stops_and_leaves_the_last_good_checkpoint(
    tmp_path, poisoned_at, quantity, step, kept
):
    agent = small_agent()

    def callback(event):
        if event.step == poisoned_at:
            poison(agent)

    with pytest.raises(NonFiniteError, match=rf"^{quantity} .* step {step}\.") as error:
        agent.learn(out=tmp_path, callback=callback, progress_bar=False, trackers=())
    wanted = f"of step {kept}, is in" if kept else "has no checkpoint yet"
    assert wanted in str(error.value)
    fresh = small_agent()
    with RunDirectory.open(agent.run_path) as run:
        RunLogger(run, fresh.runner, trackers=()).restore(fresh.runner, Counters())
    assert fresh.num_timesteps == (kept or 0)
    check_parameters(fresh.runner.state.agent, 0, LAST_GOOD)


def test_a_loss_that_overflows_stops_the_run():
    # A reward of 1e30 is finite, its square in float32 is not.
    agent = small_agent()
    scaled = replace(agent.config.agent, reward_scale=1e30)
    config = replace(agent.config, agent=scaled)
    with pytest.raises(NonFiniteError, match=r"^critic/reward_loss .* step 20\."):
        Agent(BadDay(), config).learn(progress_bar=False)
