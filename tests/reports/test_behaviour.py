"""Tests of pictures of what policies do."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.synthetic_runs import (
    init_state,
    make_config,
    write_checkpoint,
    write_run,
)
from orac.cli.main import main
from orac.core.agent import deployed_policy, mean_action
from orac.envs.base import to_box
from orac.evaluation.rollout import record_episodes
from orac.reports import report
from orac.reports.behaviour import (
    behaviour_pictures,
    make_env,
    make_policy,
    save_pictures,
)
from orac.reports.run_reader import read_results
from orac.training.state import learner_for

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
    """Write two runs with untrained policies, one without a checkpoint, and a rule."""
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        config = make_config("wcsac", seed, changes=TINY)
        path = write_run(root, config)
        if seed < 2:
            write_checkpoint(path, config)
    arguments = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=20"]
    assert main([*arguments, f"--out={root}"]) == 0
    return root


@pytest.fixture(scope="module")
def groups(root):
    return read_results([root]).groups


def test_recordings_of_all_policies_have_the_same_initial_states(groups):
    starts = []
    for run in (groups[0].runs[0], groups[0].runs[1], groups[1].runs[0]):
        env = make_env(run)
        recording = record_episodes(env, make_policy(run, env), 4)
        starts.append(recording.observations[0])
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])


def test_policy_is_the_mean_action_of_the_checkpoint(groups):
    runs = groups[0].runs
    env = make_env(runs[0])
    observations = jnp.full((3, 2), 0.25)
    policies = [make_policy(run, env) for run in runs]
    assert policies[2] is None, "it has no checkpoint"
    first, second = (np.asarray(policy(observations)) for policy in policies[:2])
    assert not np.allclose(first, second)
    learner = learner_for(env.spec, runs[1].config)
    state = init_state(jax.random.key(1), replace(runs[1].config, seed=0))
    action = mean_action(deployed_policy(state.agent), observations, learner)
    np.testing.assert_allclose(second, to_box(env.spec, action), rtol=1e-6)


def test_a_policy_with_an_encoder_is_not_drawn(groups):
    run = groups[0].runs[0]
    agent = replace(run.config.agent, encoder="mine:PAIR")
    encoded = replace(run, config=replace(run.config, agent=agent))
    with pytest.raises(ValueError, match=r"encoder, mine:PAIR, is code that a report"):
        make_policy(encoded, make_env(encoded))


def test_each_group_has_a_maze_and_missing_policies_a_note(groups):
    (picture,), notes = behaviour_pictures(groups)
    panels = [axes for axes in picture.figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles[0].startswith("wcsac (2 seeds)\n")
    assert titles[1] == "long_path (rule) (1 seed)\n5 took the long path"
    # A path, a start, an end and its costs for each of five episodes of two seeds.
    assert len(panels[0].lines) == 2 * 5 * 4 + len(
        picture.figure.legends[0].get_texts()
    )
    (note,) = notes
    assert note.startswith("No picture of ")
    assert note.endswith("seed-002, which has no checkpoint.")


def test_runs_that_choose_among_measured_policies_are_drawn(tmp_path):
    changes = [*TINY, "agent.multiplier.follows=episodes"]
    config = make_config("orac", changes=[*changes, "agent.multiplier.initial=1"])
    write_checkpoint(write_run(tmp_path, config), config)
    (picture,), notes = behaviour_pictures(read_results([tmp_path]).groups)
    assert picture.name == "paths" and notes == []


def test_one_note_names_all_runs_without_a_checkpoint(tmp_path):
    paths = [write_run(tmp_path, make_config("wcsac", seed)) for seed in range(5)]
    _, (note,) = behaviour_pictures(read_results([tmp_path]).groups)
    named = ", ".join(map(str, paths[:3]))
    assert note == f"No picture of {named} and 2 more, which have no checkpoint."


def test_report_shows_the_pictures(root):
    text = report.render([root])
    assert text.count('src="data:image/png') == 1
    assert "Paths of each agent" in text and "has no checkpoint" in text


def test_pictures_are_saved_as_files(root, tmp_path):
    (path,) = save_pictures(read_results([root]), tmp_path / "new")
    assert path.name == "orac-GuardedMaze-v0-paths.png"
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_other_environments_have_no_pictures(groups, monkeypatch):
    monkeypatch.setattr(type(groups[0]), "env_id", "Pendulum-v1")
    assert behaviour_pictures(groups) == ([], [])


@pytest.mark.slow
def test_building_is_drawn_for_each_rule(tmp_path):
    for rule in ("thermostat", "battery_reserve"):
        arguments = ["evaluate", f"--rule={rule}", "--episodes=2", f"--out={tmp_path}"]
        assert main(arguments) == 0
    pictures, notes = behaviour_pictures(read_results([tmp_path]).groups)
    assert [picture.name for picture in pictures] == [
        "days-battery_reserve (rule)",
        "days-thermostat (rule)",
    ]
    assert notes == []
    outages = [len(picture.figure.axes[0].patches) for picture in pictures]
    assert outages[0] == outages[1] > 0, "both have the same month"
