"""Tests of training that continues after a run's end, from a saved agent, or elsewhere."""

import json
import shutil
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest

import orac
from helpers.command_examples import ENV, train_arguments
from helpers.run_examples import assert_same_bits
from helpers.toy_envs import TwoKindsOfStart
from orac.api import Agent
from orac.cli.main import main
from orac.config import presets, serialization
from orac.reports.run_reader import read_columns
from orac.runs.directory import read_meta, run_path
from training.test_run_loop import assert_same_run, doors_config

QUIET = {"progress_bar": False, "trackers": ()}
TOTAL, LATER = 1600, 2560


@dataclass(frozen=True)
class DearerDoors(TwoKindsOfStart):
    """The same spaces, and another name, cost and structure of state."""

    @property
    def spec(self):
        return replace(super().spec, name="DearerDoors", cost_bounds=(20.0,))

    def reset(self, key):
        state, observation = super().reset(key)
        return {"second": state}, observation

    def step(self, key, state, action):
        second, step = super().step(key, state["second"], action)
        return {"second": second}, step._replace(cost=2 * step.cost)


def optimistic_config():
    config = presets.with_algorithm(doors_config(), "orac")
    training = replace(config.training, total_steps=TOTAL)
    return replace(config, training=training)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a finished run; tests continue copies of it."""
    agent = Agent(TwoKindsOfStart(), optimistic_config())
    agent.learn(out=tmp_path_factory.mktemp("finished"), **QUIET)
    return agent.run_path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def resume(path, **options):
    messages = []
    agent = orac.resume(
        path, TwoKindsOfStart(), log=messages.append, **QUIET, **options
    )
    return agent, "\n".join(messages)


def test_a_finished_run_is_trained_further_and_an_interruption_changes_nothing(
    finished, run, tmp_path, caplog
):
    whole, _ = resume(run, total_timesteps=LATER)
    assert (
        "the schedules of this run end at step 1,600, but the run continues to step 2,560. "
        "After step 1,600 the shift radius stays at 0 and the learning rates stay at 0.2 "
        "times their initial values."
    ) in caplog.text
    assert whole.num_timesteps == LATER
    config = serialization.load(run / "config.yaml").training
    assert (config.total_steps, config.schedule_steps) == (LATER, TOTAL)
    assert read_meta(run)["extended"] == [{"at_step": TOTAL, "total_steps": LATER}]
    rows = read_columns(run / "metrics.csv")
    past = rows["env_steps"] > TOTAL
    assert past.sum() == 6 and (rows["env_steps"][~past] <= TOTAL).all()
    assert (rows["explore/shift_norm"][past] == 0).all()
    assert (rows["measured/clock"][past] == 1).all()
    assert rows["explore/shift_norm"][rows["env_steps"] == 800] > 0
    assert rows["gradient_steps"][-1] > rows["gradient_steps"][~past][-1]
    # The window of measured episodes is still full, so that the multiplier goes on.
    assert (rows["measured/episodes"][past] > 0).all()

    broken = shutil.copytree(finished, tmp_path / "broken")
    stopped, _ = resume(
        broken, total_timesteps=LATER, callback=lambda event: event.step < 2080
    )
    assert stopped.num_timesteps == 2080
    again, _ = resume(broken)
    assert_same_run(whole, again)

    # The agent from `load` has the replay and everything else that the run has.
    loaded = orac.load(finished, TwoKindsOfStart())
    assert not loaded.runner.state.replay
    loaded.learn(LATER, progress_bar=False)
    assert_same_bits(loaded.runner.state, whole.runner.state)


def test_a_total_that_is_reached_already_is_refused_before_anything_changes(run):
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(ValueError, match=r"above the 1,600 steps .* pass 3,200"):
        resume(run, total_timesteps=TOTAL)
    after = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert before == after
    _, messages = resume(run)
    assert f"orac resume {run} --total-steps 3200" in messages


def test_more_steps_are_added_to_those_taken(finished):
    agent = orac.load(finished, TwoKindsOfStart())
    with pytest.raises(ValueError, match="either total_timesteps"):
        agent.learn(2000, more_steps=400)
    with pytest.raises(ValueError, match="more_steps must be a whole number"):
        agent.learn(more_steps=0)
    agent.learn(more_steps=LATER - TOTAL, progress_bar=False)
    assert agent.num_timesteps == LATER
    assert agent.config.training.schedule_steps == TOTAL


def always_right(agent):
    """Replace the policy by one that does almost exactly the action 1."""
    state = agent.runner.state.agent
    *layers, head = state.actor.params
    size = agent.spec.action_size
    bias = jnp.where(jnp.arange(2 * size) < size, 10.0, -20.0)
    head = head._replace(weight=jnp.zeros_like(head.weight), bias=bias)
    actor = state.actor._replace(params=(*layers, head))
    state = agent.runner.state._replace(agent=state._replace(actor=actor))
    agent.runner.state = state


def test_a_file_without_a_replay_collects_steps_with_its_policy_first(
    finished, tmp_path, caplog
):
    agent = orac.load(finished, TwoKindsOfStart())
    always_right(agent)
    agent.save(tmp_path / "agent.zip")
    loaded = orac.load(tmp_path / "agent.zip", TwoKindsOfStart())
    assert loaded.num_timesteps == TOTAL
    updates = int(loaded.runner.state.agent.gradient_steps)
    seen = {}

    def watch(event):
        buffer = event.agent.runner.state.replay
        actions = np.asarray(buffer.storage.action)[: int(buffer.inserted)]
        seen[event.step] = event.metrics["gradient_steps"], actions

    out = tmp_path / "runs"
    loaded.learn(more_steps=640, out=out, callback=watch, **QUIET)
    assert (
        "the agent was loaded without its replay, so its policy collects 320 steps before the "
        "first update, at step 1,920."
    ) in caplog.text
    assert [seen[step][0] - updates for step in (1760, 1920, 2080)] == [0, 2, 22]
    assert len(seen[1760][1]) == 160 and (seen[1760][1] > 0.99).all()
    origin = {
        "path": str(tmp_path / "agent.zip"),
        "step": TOTAL,
        "env": "TwoKindsOfStart",
    }
    assert read_meta(loaded.run_path)["continued_from"] == origin

    # A run that was killed before its first step, or later, ends in the same way.
    killed = tmp_path / "killed"
    again = orac.load(tmp_path / "agent.zip", TwoKindsOfStart())
    again.learn(
        more_steps=640, out=killed, callback=lambda event: event.step < 1760, **QUIET
    )
    resumed, _ = resume(again.run_path)
    assert_same_run(loaded, resumed)


def test_training_goes_on_in_another_environment_of_the_same_spaces(
    finished, tmp_path, caplog
):
    agent = orac.load(finished, DearerDoors())
    held = agent.best
    assert held is not None
    agent.learn(more_steps=640, out=tmp_path, **QUIET)
    assert "the agent was trained in another environment, so its policy" in caplog.text
    assert agent.config.env.id == "DearerDoors"
    assert agent.run_path == run_path(tmp_path, "DearerDoors", "orac", 0, "default")
    origin = read_meta(agent.run_path)["continued_from"]
    assert origin == {"path": str(finished), "step": TOTAL, "env": "TwoKindsOfStart"}
    assert agent.best is None or agent.best.step > TOTAL
    assert int(agent.runner.state.replay.inserted) == 640
    again = orac.load(agent.run_path, DearerDoors())
    assert again._new_env is None


def test_commands_continue_a_run_and_start_one_from_another(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--algo=wcsac", f"--env-id={ENV}", *train_arguments(800, 400)]
    assert main(arguments) == 0
    path = run_path("runs", ENV, "wcsac", 0, "default")
    assert main(["resume", str(path), "--total-steps=1120", "--quiet"]) == 0
    assert serialization.load(path / "config.yaml").training.total_steps == 1120
    assert read_columns(path / "metrics.csv")["env_steps"][-1] == 1120
    capsys.readouterr()

    assert main(["resume", str(path), "--total-steps=1120"]) == 1
    assert "above the 1,120 steps taken so far, got 1,120" in capsys.readouterr().err
    assert main(["resume", str(path), "--env-id=Pendulum-v1"]) == 1
    assert f"orac train --from {path} --env-id Pendulum-v1" in capsys.readouterr().err
    assert main(["train", "--from", str(path), "--env-id=orac/CityLearn-v0"]) == 1
    assert "must fit the environment" in capsys.readouterr().err
    assert main(["train", "--from", str(path), "--tail=0.1"]) == 1
    assert "got --tail. Leave it out." in capsys.readouterr().err
    assert main(["train", "--from", str(path), "--total-steps=1440"]) == 1
    assert "already holds a run" in capsys.readouterr().err
    again = ["train", "--from", str(path), "--total-steps=1440", "--name=longer"]
    assert main([*again, "--quiet"]) == 0
    longer = run_path("runs", ENV, "wcsac", 0, "longer")
    assert read_meta(longer)["continued_from"]["path"] == str(path)
    assert read_columns(longer / "metrics.csv")["env_steps"].tolist() == [1280, 1440]
    assert (
        json.loads((longer / "delivered.json").read_text())["written_at_step"] == 1440
    )
    assert [*longer.glob("checkpoints/replay/*.arrays")]


def test_a_run_is_resumed_only_with_its_own_cost_function(run, monkeypatch):
    monkeypatch.setattr(orac.api.loading, "other_cost_fn", lambda *_: "mine:cheap")
    says = (
        r"must be resumed without a cost function, got mine:cheap\. .* "
        r"--cost-fn mine:cheap$"
    )
    with pytest.raises(ValueError, match=says):
        resume(run, total_timesteps=LATER)
