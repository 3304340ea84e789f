"""Tests of `orac demo`: what it prints about an evaluation, and its live picture."""

import argparse
import io

import numpy as np
import pytest
from rich.console import Console

from orac.api import Agent
from orac.cli import demo
from orac.cli.demo import LivePicture, can_show_pictures, print_evaluation
from orac.config import overrides, presets
from orac.envs.maze.drawing import draw_text
from orac.envs.maze.env import GuardedMaze
from orac.training.run_loop import Event

LONG, GUARDED, CAUGHT, STUCK = (1, 4.0), (-1, 2.0), (-1, 20.0), (0, 0.0)


def test_an_evaluation_is_printed_with_its_paths_and_its_risk(capsys):
    episodes = [LONG] * 90 + [GUARDED] * 4 + [CAUGHT] * 1 + [STUCK] * 5
    rows = [{"path": float(path), "cost": cost} for path, cost in episodes]
    print_evaluation(Event(4000, {}, rows, agent=None))
    printed = capsys.readouterr().out
    assert "step   4,000:  90% long path,   5% through" in printed
    # The worst five episodes cost 20 + 4 * 4, which is 7.2 on average.
    assert printed.rstrip().endswith("7.2")


def test_nothing_is_printed_between_evaluations(capsys):
    print_evaluation(Event(500, {}, None, agent=None))
    assert capsys.readouterr().out == ""


@pytest.fixture
def agent():
    """Return an agent of the demo that learns in seconds."""
    config = overrides.override(
        presets.preset("orac", "orac/GuardedMaze-v0", "fast"),
        [
            *("training.total_steps=1600", "training.learning_starts=200"),
            *("training.log_every=400", "evaluation.every=400"),
            *("evaluation.episodes=4", "agent.hidden_sizes=[16,16]"),
            *("training.buffer_size=2000", "agent.num_quantiles=8"),
        ],
    )
    return Agent(config.env.id, config)


def terminal(width=80, height=40):
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=True,
        width=width,
        height=height,
        legacy_windows=False,
    )
    return console, stream


def test_picture_shows_walls_letters_and_paths():
    layout = GuardedMaze().layout
    path = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]])
    lines = draw_text(layout, [path]).plain.splitlines()
    assert len(lines) == 16 and {len(line) for line in lines} == {32}
    # The first row is at the top; the centre of cell (1, 1) is in the fourth from below.
    assert "\u25cf" * 12 in lines[16 - 1 - 3]
    assert sum(line.count("\u25cf") for line in lines) < 16
    for letter in "RPBG":
        assert any(letter in line for line in lines)


def test_live_picture_follows_the_training(agent):
    console, stream = terminal()
    now = iter(np.arange(0.0, 1000.0, 2.0))
    with LivePicture(agent, console, clock=lambda: next(now)) as show:
        agent.learn(callback=show, progress_bar=False)
    shown = stream.getvalue()
    assert shown.count("never arrive; the worst 5 % cost") >= 4
    assert "\u25cf" in shown and "5 episodes from the corner, 25% trained" in shown
    assert shown.rstrip("\n").endswith("\x1b[?25h"), "the cursor is shown again"


def test_pictures_take_a_small_share_of_the_time(agent, monkeypatch):
    console, _ = terminal()
    path = np.array([[1.0, 1.0], [1.0, 2.0]])
    monkeypatch.setattr(demo, "play_from_corner", lambda *_: [path])
    time = {"now": 0.0}

    class Clock:
        """A clock by which each picture takes half a second."""

        def __call__(self):
            time["now"] += 0.5
            return time["now"]

    rows = [{"path": 1.0, "cost": 4.0}]
    with LivePicture(agent, console, clock=Clock()) as show:
        for step in range(400):
            time["now"] += 0.5
            show(Event(step, {}, rows, agent))
    # The second waits 3 seconds; later ones wait until 2 % of the time is enough.
    assert 5 <= show.pictures <= 2 + time["now"] * 0.02 / 0.5


@pytest.mark.parametrize(("width", "height"), [(40, 40), (80, 10)])
def test_small_terminals_and_files_get_plain_lines(width, height, monkeypatch):
    assert can_show_pictures(terminal()[0])
    assert not can_show_pictures(terminal(width, height)[0])
    assert not can_show_pictures(Console(file=io.StringIO(), width=80, height=40))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_show_pictures(terminal()[0])


def test_without_matplotlib_the_demo_still_ends_with_its_certificate(
    agent, monkeypatch, tmp_path, capsys
):
    def missing(*_):
        raise ImportError("Drawing the maze needs matplotlib.")

    monkeypatch.setattr(demo, "plot_trajectories", missing)
    monkeypatch.setattr(demo, "Agent", lambda *_: agent)
    options = argparse.Namespace(seed=0, out=tmp_path)
    code = demo.run_demo(options)
    printed = capsys.readouterr().out
    assert "There is no picture. Drawing the maze needs matplotlib." in printed
    sentence = printed.strip().splitlines()[-1]
    assert sentence.startswith("certified" if code == 0 else "not certified")


@pytest.mark.parametrize("pictures", [True, False])
def test_a_stopped_demo_says_how_to_continue_and_certifies_nothing(
    agent, monkeypatch, tmp_path, capsys, pictures
):
    def stop(**options):
        agent.stop_signal, agent.run_path = 2, tmp_path
        if options.get("progress_bar", True):
            print(agent.stopped_text())

    monkeypatch.setattr(agent, "learn", stop)
    monkeypatch.setattr(demo, "Agent", lambda *_: agent)
    monkeypatch.setattr(demo, "can_show_pictures", lambda console: pictures)
    assert demo.run_demo(argparse.Namespace(seed=0, out=tmp_path)) == 130
    printed = capsys.readouterr().out
    assert printed.count("Stopped at step 0 of 1,600; everything is saved.\n") == 1
    assert printed.endswith(f"Continue with: orac resume {tmp_path}\n")
