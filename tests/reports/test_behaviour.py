"""What policies do, played from checkpoints and rules, and drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.synthetic_runs import make_config, write_checkpoint, write_run
from orac.cli.main import main
from orac.core.agent import mean_action
from orac.envs.base import to_box
from orac.envs.maze.controllers import long_path
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.rollout import record_episodes
from orac.reports import behaviour as pictures
from orac.reports import html as report
from orac.reports.playing import policy_of, world_of
from orac.reports.run_groups import read_results
from orac.training import device_loop as device

ENV = "orac/GuardedMaze-v0"
TINY = [
    "agent.hidden_sizes=[8, 8]",
    "agent.embedding_size=4",
    "agent.num_quantiles=4",
    "agent.num_policy_quantiles=4",
    "training.buffer_size=64",
    "training.num_envs=2",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two runs with untrained policies in their checkpoints, one without, and a rule."""
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        config = make_config("wcsac", seed, changes=TINY)
        path = write_run(root, config)
        if seed < 2:
            write_checkpoint(path, config)
    words = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=20"]
    assert main([*words, f"--out={root}"]) == 0
    return root


@pytest.fixture(scope="module")
def groups(root):
    return read_results([root]).groups


def test_a_rule_is_played_to_the_end_of_every_episode():
    maze = GuardedMaze()
    recording = record_episodes(maze, jax.jit(long_path(maze)), 6)
    assert (recording.metrics["path"] == 1).all()
    for i, length in enumerate(recording.lengths):
        assert recording.costs[:length, i].sum() == 4
    assert recording.observations.shape == (recording.lengths.max() + 1, 6, 2)


def test_a_seed_stands_for_the_same_starts_whatever_the_policy(groups):
    starts = []
    for run in (groups[0].runs[0], groups[0].runs[1], groups[1].runs[0]):
        env = world_of(run)
        starts.append(record_episodes(env, policy_of(run, env), 4).observations[0])
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])


def test_the_policy_is_the_one_of_the_checkpoint(groups):
    runs = groups[0].runs
    env = world_of(runs[0])
    seen = jnp.full((3, 2), 0.25)
    first, second = (np.asarray(policy_of(run, env)(seen)) for run in runs[:2])
    assert not np.allclose(first, second)
    state = device.init(jax.random.key(1), env, runs[1].config)
    expected = to_box(env.spec, mean_action(state.agent, seen, runs[1].config.agent))
    np.testing.assert_allclose(second, expected, rtol=1e-6)


def test_each_group_has_a_maze_and_what_is_missing_is_told(groups):
    (picture,), told = pictures.world_pictures(groups)
    panels = [axes for axes in picture.figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles[0].startswith("wcsac, 2 seeds\n")
    assert titles[1] == "long_path (rule), 1 seed\n5 long path"
    # A path, a start, an end and its costs for each of five episodes a seed.
    assert len(panels[0].lines) == 2 * 5 * 4
    (sentence,) = told
    assert sentence.startswith("No picture without a policy: ")
    assert sentence.endswith("seed-002 has no checkpoint.")


def test_runs_without_checkpoints_are_told_in_one_line(tmp_path):
    paths = [write_run(tmp_path, make_config("wcsac", seed)) for seed in range(5)]
    _, (sentence,) = pictures.world_pictures(read_results([tmp_path]).groups)
    named = ", ".join(map(str, paths[:3]))
    assert sentence == (
        f"No picture without a policy: {named} and 2 more have no checkpoint."
    )
    assert all(sentence.count(str(path)) == 1 for path in paths[:3])


def test_the_report_shows_the_pictures(root):
    text = report.render([root])
    assert text.count('src="data:image/png') == 1
    assert "Paths of each agent" in text and "has no checkpoint" in text


def test_pictures_are_saved_as_files(root, tmp_path):
    (path,) = pictures.save_pictures(read_results([root]), tmp_path / "new")
    assert path.name == "orac-GuardedMaze-v0-paths.png"
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_an_environment_that_nobody_draws_has_no_pictures(groups, monkeypatch):
    monkeypatch.setattr(type(groups[0]), "env_id", "Pendulum-v1")
    assert pictures.world_pictures(groups) == ([], [])


@pytest.mark.slow
def test_a_building_is_drawn_under_each_rule(tmp_path):
    for rule in ("thermostat", "battery_reserve"):
        words = ["evaluate", f"--rule={rule}", "--episodes=2", f"--out={tmp_path}"]
        assert main(words) == 0
    drawn, told = pictures.world_pictures(read_results([tmp_path]).groups)
    assert [picture.name for picture in drawn] == [
        "days-battery_reserve (rule)",
        "days-thermostat (rule)",
    ]
    assert told == []
    outages = [len(picture.figure.axes[0].patches) for picture in drawn]
    assert outages[0] == outages[1] > 0, "the same month for both"
