"""Tests of the drawings of GuardedMaze: their contents, and a missing matplotlib."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from orac.envs.baselines import short_path
from orac.envs.maze.drawing import (
    AGENT_COLOUR,
    CELL_PIXELS,
    COLOURS,
    Trajectory,
    draw_state,
    plot_trajectories,
    to_trajectories,
)
from orac.envs.maze.env import GuardedMaze, MazeState
from orac.evaluation.rollout import record_episodes

SHORT = Trajectory(
    label="short way",
    positions=np.array([(4.0, 1.0), (5.0, 1.0), (6.0, 1.0), (6.0, 2.0)]),
    rewards=np.array([-1.0, -1.0, 16.0]),
    costs=np.array([20.0, 0.0, 0.0]),
    guard=True,
)
LONG = Trajectory(
    label="long way",
    positions=np.array([(6.0, 5.0), (6.0, 4.0), (6.0, 3.0), (6.0, 2.0)]),
    rewards=np.array([-1.0, -1.0, 16.0]),
    costs=np.array([4.0, 0.0, 0.0]),
)


def texts_of(figure):
    texts = [text.get_text() for text in figure.axes[0].texts]
    for legend in figure.legends:
        texts += [text.get_text() for text in legend.get_texts()]
    return texts


def pixel(image, x, y):
    row = image.shape[0] - 1 - round((y + 0.5) * CELL_PIXELS)
    return "#{:02X}{:02X}{:02X}".format(*image[row, round((x + 0.5) * CELL_PIXELS)])


def state_at(x, y):
    zero = np.zeros((), bool)
    return MazeState(np.array([x, y], np.float32), zero, zero, zero, zero, zero)


def test_image_shows_every_cell_in_its_colour_with_y_upwards():
    layout = GuardedMaze().layout
    image = draw_state(state_at(1, 1), layout)
    for letter in "#RPBG":
        x, y = layout.cells(letter)[0]
        assert pixel(image, x + 0.35, y + 0.4) == COLOURS[letter]
    assert pixel(image, 1, 1) == AGENT_COLOUR


def test_image_shows_the_agent_but_not_the_guard():
    layout = GuardedMaze().layout
    here, there = draw_state(state_at(1, 1), layout), draw_state(state_at(2, 6), layout)
    assert pixel(there, 2, 6) == AGENT_COLOUR
    assert pixel(there, 1, 1) != AGENT_COLOUR
    guarded = state_at(1, 1)._replace(guard=np.ones((), bool))
    np.testing.assert_array_equal(draw_state(guarded, layout), here)


def test_figure_labels_trajectories_costs_and_cells():
    figure = plot_trajectories(GuardedMaze(), [SHORT, LONG], "Two ways")
    assert isinstance(figure, Figure)
    texts = texts_of(figure)
    assert {"R", "P", "B", "G", "cost 20", "cost 4"} <= set(texts)
    assert "short way\n3 steps, return +14, cost 20, a guard was present" in texts
    assert "long way\n3 steps, return +14, cost 4" in texts
    assert any("cost 2, or 20 with a guard" in text for text in texts)
    assert any("15% of the episodes" in text for text in texts)
    assert figure.axes[0].get_title(loc="left") == "Two ways"


def test_figure_draws_the_positions_of_each_trajectory():
    axes = plot_trajectories(GuardedMaze(), [SHORT, LONG]).axes[0]
    paths = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 1]
    np.testing.assert_array_equal(paths, [SHORT.positions, LONG.positions])
    styles = [line.get_linestyle() for line in axes.lines if len(line.get_xydata()) > 1]
    assert len(set(styles)) == 2


def test_figure_explains_only_the_cells_of_its_map():
    figure = plot_trajectories(GuardedMaze(map="16x16", guard_probability=0.2))
    text = " ".join(texts_of(figure))
    assert "20% of the episodes" in text
    assert "reward +32" in text
    assert "pink" not in text
    assert figure.axes[0].get_xlim() == (-0.5, 15.5)


def test_figure_can_be_saved(tmp_path):
    plot_trajectories(GuardedMaze(), [SHORT]).savefig(tmp_path / "maze.png")
    with Image.open(tmp_path / "maze.png") as image:
        assert image.size == (960, 600)


@pytest.mark.parametrize("normalize_obs", [False, True])
def test_recorded_episodes_become_trajectories(normalize_obs):
    maze = GuardedMaze(
        action_noise=0.0,
        start_box=(4.0, 1.0, 4.0, 1.0),
        guard_probability=1.0,
        normalize_obs=normalize_obs,
    )
    recording = record_episodes(maze, jax.jit(short_path(maze)), episodes=2)
    first, second = to_trajectories(maze, recording, "short")
    # Right into the red cell, then diagonally into the goal.
    expected = [(4, 1), (5, 1), (6, 2)]
    np.testing.assert_allclose(first.positions, expected, atol=1e-5)
    assert first.rewards.tolist() == [-1.0, 16.0]
    assert first.costs.tolist() == [20.0, 0.0]
    assert (first.label, first.guard) == ("short", True)
    np.testing.assert_array_equal(second.positions, first.positions)


def test_missing_matplotlib_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[plots\]"'):
        plot_trajectories(GuardedMaze())


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_maze_is_imported_and_rendered_without_matplotlib():
    code = (
        "import sys, orac.envs, gymnasium\n"
        "env = gymnasium.make('orac/GuardedMaze-v0', render_mode='rgb_array')\n"
        "env.reset(seed=0), env.render()\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
