"""Tests of failures during a run: each ends with a clear message and an intact run directory."""

import errno
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import orac
from orac.runs.atomic_io import DiskError
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory

SETTINGS = {
    "agent.hidden_sizes": [8, 8],
    "training.learning_starts": 100,
    "training.gradient_steps": 0.05,
    "training.batch_size": 16,
    "training.buffer_size": 500,
    "training.log_every": 40,
    "training.checkpoint_every": 80,
    "evaluation.every": 160,
    "evaluation.episodes": 2,
}
COMPARED = ("metrics.csv", "episodes.csv", "evaluations.csv")
CHECKED = 20
"""Steps that are taken to try an environment before the run's own first."""


class Stateless(gymnasium.Env):
    """A random walk; after `good` steps `late` is its info."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, good: float = np.inf, late: dict | None = None):
        self.last_good, self.late = good + CHECKED, late
        self.count, self.time, self.place = 0, 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, 0.0
        return self.observe(), {}

    def step(self, action):
        self.count, self.time = self.count + 1, self.time + 1
        self.place += float(action[0]) + self.np_random.normal()
        info = (
            {"cost": float(self.place > 1)}
            if self.count < self.last_good
            else self.late
        )
        return self.observe(), self.place, False, self.time == 25, info

    def observe(self):
        return np.array([self.place, self.time], np.float32)


class Wanderer(Stateless):
    """A walk that changes the working directory at every step."""

    episode_length = 25

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def step(self, action):
        os.chdir(self.folder)
        return super().step(action)


def test_an_environment_that_changes_the_working_directory_does_not_move_its_run(
    tmp_path, monkeypatch, capsys
):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir(), elsewhere.mkdir()
    monkeypatch.chdir(here)
    options = {"settings": SETTINGS, "tail": 1, "cost_limit": 5, "cost_bound": 25}
    agent = orac.WCSAC(partial(Wanderer, elsewhere), **options)
    os.chdir(here)
    agent.learn(160, out="runs", progress_bar=False)
    assert Path.cwd() == elsewhere
    agent.certify(episodes_max=100)
    path = here / "runs" / "Wanderer" / "wcsac" / "default" / "seed-000"
    assert agent.run_path == path
    assert Checkpoints(path / "checkpoints").steps()[-1] == 160
    assert (path / "certificate.json").exists()
    assert "orac.resume" in agent._how_to_continue(path)
    os.chdir(here)
    assert "orac.resume('runs/Wanderer/" in agent._how_to_continue(path)
    run = path.relative_to(here)
    orac.resume(
        run,
        env=partial(Wanderer, elsewhere),
        total_timesteps=240,
        log=[].append,
        progress_bar=False,
    )
    assert Checkpoints(path / "checkpoints").steps()[-1] == 240
    assert not [*elsewhere.iterdir()]


class Walk(Stateless):
    """The same walk, whose state can be saved."""

    def get_state(self):
        return {"count": self.count, "time": self.time, "place": self.place}

    def set_state(self, state):
        self.count, self.time, self.place = (
            int(state["count"]),
            int(state["time"]),
            float(state["place"]),
        )


def make(env=Walk, **settings) -> orac.Agent:
    return orac.SACLagrangian(
        env, cost_limit=5, episode_length=25, settings={**SETTINGS, **settings}
    )


def learn(agent, steps, out, **options) -> orac.Agent:
    return agent.learn(steps, out=out, progress_bar=False, trackers=(), **options)


def resume(path, env=Walk) -> list[str]:
    """Resume the run in an environment that is mended, and return what is logged."""
    logged: list[str] = []
    orac.resume(path, env, progress_bar=False, trackers=(), log=logged.append)
    return logged


def contents(path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in COMPARED}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a run that nothing happened to."""
    agent = learn(make(), 400, tmp_path_factory.mktemp("whole"))
    return contents(agent.run_path)


class FullDisk:
    """`os.write` on a disk that has some bytes left below a directory."""

    def __init__(self, left: int) -> None:
        self.left, self.below, self.real = left, None, os.write

    def write(self, descriptor, data):
        where = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.below is None or not where.startswith(str(self.below)):
            return self.real(descriptor, data)
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.real(descriptor, memoryview(data)[: self.left])
        self.left -= written
        return written


@pytest.mark.parametrize("left", [0, 500, 2_000, 9_000, 20_000])
def test_a_full_disk_stops_the_run_and_nothing_is_lost(
    tmp_path, monkeypatch, whole, left
):
    disk, agent = FullDisk(left), make()

    def fills_up(event):
        if event.step == 120:
            disk.below = agent.run_path

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", disk.write)
        with pytest.raises(DiskError, match="the disk is full"):
            learn(agent, 400, tmp_path, callback=fills_up)
    assert agent.num_timesteps < 400
    assert not list(agent.run_path.rglob(".tmp-*")), "nothing half-written stays"
    assert resume(agent.run_path) == []
    assert contents(agent.run_path) == whole


@pytest.mark.parametrize(
    ("good", "late", "says"),
    [
        (2_000, {"cost": np.nan}, "reported a cost of nan. Guard its formula"),
        (1_000, {}, "reported no cost: info has no key 'cost'"),
    ],
)
def test_a_cost_that_fails_late_leaves_a_run_that_can_be_resumed(
    tmp_path, good, late, says
):
    settings = {
        "training.gradient_steps": 0.01,
        "training.log_every": good // 20,
        "training.checkpoint_every": good // 5,
        "evaluation.every": 0,
    }
    agent = make(partial(Walk, good=good, late=late), **settings)
    with pytest.raises(ValueError) as caught:
        learn(agent, good * 21 // 20, tmp_path)
    assert f"at step {good:,} environment 0" in str(caught.value)
    assert says in str(caught.value)
    steps = Checkpoints(agent.run_path / "checkpoints").steps()
    assert steps == [good * 3 // 5, good * 4 // 5]
    assert resume(agent.run_path) == []
    last = (agent.run_path / "metrics.csv").read_text().splitlines()[-1]
    assert last.startswith(f"{good * 21 // 20},")


class Breaks(Walk):
    """An environment with a mistake of the user's own."""

    def step(self, action):
        if self.count + 1 >= self.last_good:
            raise KeyError("wind")
        return super().step(action)


@pytest.mark.parametrize(
    ("good", "saved"), [(200, "Saved up to step 160."), (60, "Nothing is saved yet.")]
)
def test_an_error_of_the_environments_own_ends_with_the_way_back(
    tmp_path, whole, good, saved
):
    agent = make(partial(Breaks, good=good))
    with pytest.raises(KeyError, match="wind") as caught:
        learn(agent, 400, tmp_path)
    path = agent.run_path
    (note,) = caught.value.__notes__
    assert note == f"{saved} Continue with: orac.resume({str(path)!r}, env=...)"
    resume(path, type("Breaks", (Walk,), {}))
    assert contents(path) == whole


@pytest.mark.parametrize(
    ("env_id", "cost_fn", "words"),
    [
        ("Pendulum-v1", None, ""),
        ("Pendulum-v1", "costs:fast", " --cost-fn costs:fast"),
        ("my_env:Walk-v0", None, " --env-id my_env:Walk-v0"),
    ],
)
def test_the_way_back_names_what_no_file_makes_us_import(
    tmp_path, env_id, cost_fn, words
):
    agent = make()
    env = replace(agent.config.env, id=env_id, cost_fn=cost_fn)
    agent.runner.configure(replace(agent.config, env=env))
    assert agent._how_to_continue(tmp_path) == (
        f"Continue with: orac resume {tmp_path}{words}"
    )


def test_an_interrupt_that_nobody_caught_leaves_a_run_to_go_on_with(tmp_path, whole):
    agent = make()

    def interrupt(event):
        if event.step == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(agent, 400, tmp_path, callback=interrupt)
    assert resume(agent.run_path) == []
    assert contents(agent.run_path) == whole


def test_two_learners_in_one_directory_are_told_and_the_first_goes_on(tmp_path, whole):
    first, told = make(), []

    def second(event):
        if event.step == 80:
            with pytest.raises(RuntimeError, match="is in use by process") as caught:
                orac.resume(first.run_path, Walk, progress_bar=False)
            told.append(str(caught.value))

    learn(first, 400, tmp_path, callback=second)
    assert len(told) == 1 and contents(first.run_path) == whole


def test_a_directory_where_nothing_can_be_written_stops_before_training(tmp_path):
    (tmp_path / "file").write_text("no directory")
    agent = make()
    with pytest.raises(DiskError, match="a file is where a directory is needed"):
        learn(agent, 400, tmp_path / "file" / "runs")
    assert agent.num_timesteps == 0


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (gymnasium.spaces.Discrete(3), "continuous"),
        (Box(-1.0, 1.0, (0,)), "action"),
        (Box(-np.inf, np.inf, (2,)), "finite"),
    ],
)
def test_an_action_space_that_does_not_fit_leaves_no_directory(tmp_path, space, says):
    class Wrong(Walk):
        action_space = space

    with pytest.raises(ValueError, match=says):
        learn(make(Wrong), 400, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_environment_without_a_state_to_save_goes_on_and_says_so(tmp_path):
    agent = make(Stateless)
    learn(agent, 400, tmp_path, callback=lambda event: event.step < 200)
    told: list[str] = []
    path, quiet = agent.run_path, {"progress_bar": False, "trackers": ()}
    orac.resume(path, Stateless, **quiet, log=told.append)
    assert told == [
        "The environment's state could not be saved, so its episodes start again: the "
        "run continues, but its results will differ from those of an uninterrupted run."
    ]
    with RunDirectory.open(agent.run_path):
        last = (agent.run_path / "metrics.csv").read_text().splitlines()[-1]
    assert last.startswith("400,")
