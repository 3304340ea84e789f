"""Pictures of the maze: what is in them, and what is said when they cannot be made."""

import builtins
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from orac.envs.maze.drawing import Trajectory, plot_trajectories
from orac.envs.maze.env import GuardedMaze, MazeState
from orac.envs.maze.film import animate_episode
from orac.envs.maze.pixels import AGENT_COLOUR, CELL_PIXELS, COLOURS, draw_state

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


def words_of(figure):
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


def test_image_moves_with_the_agent_and_hides_the_guard():
    layout = GuardedMaze().layout
    here, there = draw_state(state_at(1, 1), layout), draw_state(state_at(2, 6), layout)
    assert pixel(there, 2, 6) == AGENT_COLOUR
    assert pixel(there, 1, 1) != AGENT_COLOUR
    guarded = state_at(1, 1)._replace(guard=np.ones((), bool))
    np.testing.assert_array_equal(draw_state(guarded, layout), here)


def test_figure_tells_trajectories_costs_and_cells_in_words():
    figure = plot_trajectories(GuardedMaze(), [SHORT, LONG], "Two ways")
    assert isinstance(figure, Figure)
    words = words_of(figure)
    assert {"R", "P", "B", "G", "cost 20", "cost 4"} <= set(words)
    assert "short way\n3 steps, return +14, cost 20, a guard was there" in words
    assert "long way\n3 steps, return +14, cost 4" in words
    assert any("cost 2, or 20 with a guard" in text for text in words)
    assert any("15% of the episodes" in text for text in words)
    assert figure.axes[0].get_title(loc="left") == "Two ways"


def test_figure_draws_each_trajectory_where_it_went():
    axes = plot_trajectories(GuardedMaze(), [SHORT, LONG]).axes[0]
    paths = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 1]
    np.testing.assert_array_equal(paths, [SHORT.positions, LONG.positions])
    styles = [line.get_linestyle() for line in axes.lines if len(line.get_xydata()) > 1]
    assert len(set(styles)) == 2


def test_figure_of_another_map_shows_only_what_it_has():
    figure = plot_trajectories(GuardedMaze(map="16x16", guard_probability=0.2))
    words = " ".join(words_of(figure))
    assert "20% of the episodes" in words
    assert "reward +32" in words
    assert "pink" not in words
    assert figure.axes[0].get_xlim() == (-0.5, 15.5)


def test_figure_can_be_saved(tmp_path):
    plot_trajectories(GuardedMaze(), [SHORT]).savefig(tmp_path / "maze.png")
    with Image.open(tmp_path / "maze.png") as image:
        assert image.size == (960, 600)


def test_film_has_a_frame_for_the_start_and_each_step_and_stays_on_the_last(tmp_path):
    path = animate_episode(GuardedMaze(), SHORT, tmp_path / "episode.gif", 5.0)
    with Image.open(path) as film:
        durations = []
        for frame in range(film.n_frames):
            film.seek(frame)
            durations.append(film.info["duration"])
        assert film.size == (960, 600)
    # Four frames of 0.2 s; the last one is held for two seconds more.
    assert durations == [200, 200, 200, 2200]


def test_film_can_be_an_mp4(tmp_path):
    path = animate_episode(GuardedMaze(), SHORT, tmp_path / "episode.mp4")
    assert path.read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize(
    ("name", "speed", "message"),
    [
        ("episode.avi", 3.0, r"written as .gif or .mp4, got 'episode.avi'"),
        ("episode.gif", 0.0, "frames_per_second must be above 0"),
    ],
)
def test_film_that_cannot_be_written_is_refused(tmp_path, name, speed, message):
    with pytest.raises(ValueError, match=message):
        animate_episode(GuardedMaze(), SHORT, tmp_path / name, speed)


@pytest.mark.parametrize(
    ("missing", "call", "message"),
    [
        (
            "matplotlib",
            lambda path: plot_trajectories(GuardedMaze()),
            r'pip install "orac-rl\[plots\]"',
        ),
        (
            "imageio",
            lambda path: animate_episode(GuardedMaze(), SHORT, path / "film.mp4"),
            r'pip install "orac-rl\[video\]"',
        ),
    ],
)
def test_missing_package_is_named_with_its_extra(
    monkeypatch, tmp_path, missing, call, message
):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=message):
        call(tmp_path)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_maze_is_imported_and_rendered_without_matplotlib():
    code = (
        "import sys, orac.envs, gymnasium\n"
        "env = gymnasium.make('orac/GuardedMaze-v0', render_mode='rgb_array')\n"
        "env.reset(seed=0), env.render()\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
