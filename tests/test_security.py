"""Tests of the promises in docs/security.md, such as that files never execute code.

`tests/runs` tests damaged checkpoints and killed processes, and
`tests/envs/gym_adapter/test_misbehaving.py` tests environments that misbehave.
"""

import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import orac
from helpers.synthetic_runs import make_config, write_run
from helpers.toy_envs import Counter
from helpers.unsafe_code import unsafe_parts
from orac.api import Agent, load
from orac.cli import demo
from orac.cli.main import main
from orac.config import presets
from orac.config.schema import (
    AgentConfig,
    Config,
    Constraint,
    EnvConfig,
    EvaluationConfig,
    TrainingConfig,
)
from orac.config.validation import NonFiniteError, check_path
from orac.envs import user_code
from orac.evaluation.episodes import Episodes
from orac.experiments.run_study import write_rendering
from orac.reports import html, matplotlib_figures, report, run_reader
from orac.reports.run_reader import Results, read_results
from orac.runs.atomic_io import (
    DamagedFileError,
    DiskError,
    open_to_write,
    private_directory,
)
from orac.runs.checkpoint import Checkpoints, LoadedCheckpoint
from orac.runs.directory import RunDirectory
from orac.runs.machine import MemoryNeed, check_memory
from orac.training.host_loop import Acted, HostRunner
from orac.training.run_loop import Counters as LoopCounters
from orac.training.run_loop import interruptible
from orac.training.saving import restore_checkpoint

SOURCES = Path(orac.__file__).parent


def test_no_source_file_imports_pickle_or_lets_numpy_use_it():
    files = sorted(SOURCES.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        assert not unsafe_parts(file.read_text()), file


def test_the_search_for_pickle_finds_it():
    for code in (
        "import pickle",
        "from cloudpickle import loads",
        "import importlib; importlib.import_module('dill')",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=trusted)",
    ):
        assert unsafe_parts(code), code
    assert not unsafe_parts("import json; np.load(f, allow_pickle=False)")


def small_agent():
    config = Config(
        env=EnvConfig("counter"),
        constraints=(Constraint("first", 6.0),),
        agent=AgentConfig(hidden_sizes=(8, 8), num_cost_critics=2),
        training=TrainingConfig(
            total_steps=60,
            learning_starts=40,
            gradient_steps=0.05,
            buffer_size=100,
            batch_size=8,
            log_every=20,
            checkpoint_every=20,
        ),
        evaluation=EvaluationConfig(every=0, episodes=2),
    )
    return Agent(Counter(), presets.with_algorithm(config, "sac-lag"))


def poison(agent, value=np.inf):
    """Put a value into the actor's first weight; return the state before."""
    state = agent.runner.state
    leaves, structure = jax.tree.flatten(state.agent.actor.params)
    leaves[0] = leaves[0].at[0, 0].set(value)
    actor = state.agent.actor._replace(params=jax.tree.unflatten(structure, leaves))
    agent.runner.state = state._replace(agent=state.agent._replace(actor=actor))
    return state


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An agent with a finished run."""
    agent = small_agent()
    folder = tmp_path_factory.mktemp("runs")
    agent.learn(out=folder, progress_bar=False, trackers=())
    return agent


GOOD = Episodes(np.ones(20), np.ones((20, 1)), np.ones(20, int))
USES = {
    "predict": lambda agent, folder: agent.predict([1.0]),
    "evaluate": lambda agent, folder: agent.evaluate(episodes=2),
    "certify": lambda agent, folder: agent.certify(GOOD),
    "save": lambda agent, folder: agent.save(folder / "agent"),
    "export": lambda agent, folder: agent.export(folder / "policy.npz"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_policy_that_is_not_finite_is_refused(run, use, value, tmp_path):
    before = poison(run, value)
    try:
        with pytest.raises(NonFiniteError) as error:
            USES[use](run, tmp_path)
    finally:
        run.runner.state = before
    message = str(error.value)
    assert message.startswith("the agent's .actor.params[0].weight must be finite")
    assert f"of step 60, is in {run.run_path / 'checkpoints'}" in message
    assert not [*tmp_path.iterdir()]
    USES[use](run, tmp_path)


def test_a_saved_agent_that_is_not_finite_is_not_loaded(run, tmp_path, monkeypatch):
    before = poison(run)
    monkeypatch.setattr(Agent, "_finite_agent", lambda self: self.runner.state.agent)
    run.save(tmp_path / "agent")
    run.runner.state = before
    with pytest.raises(NonFiniteError, match=r"the agent in .*agent must be finite"):
        load(tmp_path / "agent", Counter())


def test_a_checkpoint_that_is_not_finite_is_skipped_as_a_damaged_one(tmp_path):
    agent = small_agent()

    def spoil(event):
        if event.step == 60:
            poison(agent)

    with pytest.raises(NonFiniteError):
        agent.learn(out=tmp_path, callback=spoil, progress_bar=False, trackers=())
    with RunDirectory.open(agent.run_path) as folder:
        checkpoints = folder.checkpoints()
        template = agent.runner.state._replace(replay=())
        checkpoints.load_latest(template)
        extra = {"counters": {}, "log_sizes": {}, "host_state": None}
        checkpoints.save(60, template, agent.runner.state.replay, extra)
    with pytest.warns(UserWarning) as warned:
        loaded = load(agent.run_path, Counter())
    said = " ".join(str(warning.message) for warning in warned)
    assert "step 60 is damaged: its .actor.params[0].weight is not finite" in said
    assert "The checkpoint of step 40 is used instead" in said
    assert loaded.num_timesteps == 40


@pytest.mark.parametrize("name", ["reward", "cost"])
def test_episodes_that_are_not_finite_are_no_evaluation(name):
    values = {"reward": np.ones(3), "cost": np.ones((3, 1))}
    values[name][1] = np.nan
    with pytest.raises(
        NonFiniteError, match=rf"the {name} of .* in episode 1 it is not"
    ):
        Episodes(**values, length=np.ones(3, int))


@pytest.fixture
def exported(run, tmp_path):
    run.export(tmp_path / "policy.npz")
    return tmp_path / "policy.npz"


VECTOR = '{"kind": "box", "shape": [1]}'


def as_bytes(text):
    return np.frombuffer(text.encode(), np.uint8)


def rewrite(path, compression=zipfile.ZIP_STORED, **changes):
    """Write the arrays of an exported policy again, with some of them replaced."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files} | changes
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, np.asarray(array), version=(1, 0))
            archive.writestr(f"{name}.npy", stream.getvalue())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer0/bias": np.full(8, np.nan)}, "must contain finite numbers"),
        ({"action_low": np.array([-np.inf])}, "must contain finite numbers"),
        ({"layer1/weight": np.ones((3, 3))}, "must be a policy"),
        ({"layer0/bias": np.array(["text"])}, "must be a policy"),
        ({"num_layers": np.int64(10**9)}, "must be a policy"),
        ({"num_layers": np.int64(0)}, "must be a policy"),
        ({"num_layers": np.int64(2)}, "must be a policy"),
        ({"action_low": np.array([3.0])}, "must be a policy"),
        ({"format": np.int64(2)}, "must be a policy"),
        ({"observation_structure": as_bytes(VECTOR)}, ""),
        ({"observation_structure": as_bytes(VECTOR[:-1] + ', "shape": [1]}')}, "must"),
        ({"observation_structure": as_bytes(VECTOR.replace("box", "x"))}, "must be"),
        ({"observation_structure": as_bytes("[" * 50_000)}, "must be a policy"),
    ],
)
def test_an_exported_policy_with_other_arrays_is_refused(exported, changes, message):
    rewrite(exported, **changes)
    if not message:
        assert orac.policy.load(exported)([1.0]).shape == (1,)
        return
    with pytest.raises(ValueError, match=message):
        orac.policy.load(exported)


def test_an_action_that_overflows_is_refused(exported):
    rewrite(exported, **{"layer0/weight": np.full((1, 8), 3e38, np.float32)})
    policy = orac.policy.load(exported)
    with (
        pytest.raises(ValueError, match="action must be finite"),
        np.errstate(all="ignore"),
    ):
        policy(np.array([1e30], np.float32))


def test_an_array_that_claims_more_than_it_holds_is_refused(exported):
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(exported, "a") as archive:
        archive.writestr("layer9/bias.npy", stream.getvalue() + b"\0" * 64)
    with pytest.raises(ValueError, match="must be a policy"):
        orac.policy.load(exported)


def test_compressed_arrays_of_a_policy_are_refused(exported):
    rewrite(exported, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="must be a policy") as raised:
        orac.policy.load(exported)
    assert "compressed" in str(raised.value.__cause__)


def test_two_arrays_of_one_name_are_refused(exported):
    with zipfile.ZipFile(exported) as archive:
        data = archive.read("layer0/bias.npy")
    with zipfile.ZipFile(exported, "a") as archive, pytest.warns(UserWarning):
        archive.writestr("layer0/bias.npy", data)
    with pytest.raises(ValueError, match="must be a policy"):
        orac.policy.load(exported)


def test_a_zip_with_a_long_list_of_members_is_refused_before_it_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "many", "w") as archive:
        for i in range(20_000):
            archive.writestr(f"layer{i}/weight.npy", b"")
    with pytest.raises(ValueError, match="must be a policy"):
        orac.policy.load(tmp_path / "many")
    with pytest.raises(ValueError, match="too many members"):
        load(tmp_path / "many", Counter())


def test_pipes_and_devices_are_not_read_as_policies_or_agents(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="must be a policy"):
            orac.policy.load(path)
        with pytest.raises(ValueError, match="not a regular file"):
            load(path, Counter())


def test_noise_that_is_not_finite_is_refused(exported):
    with pytest.raises(ValueError, match="noise must be finite"):
        orac.policy.load(exported)([1.0], noise=np.array([np.nan]))


BAD_EXTRAS = {
    "counters": [
        None,
        [],
        {"episodes": "x"},
        {"violations": 3},
        {"last_cost": ["x"]},
        {"largest_cost": [None]},
    ],
    "log_sizes": [None, {"metrics": -1}, {"metrics": 1.5}, {"metrics": "x"}],
    "host_state": [{"__array__": "x", "dtype": "<f4", "shape": [1]}],
}


@pytest.mark.parametrize(
    ("key", "value"), [(k, v) for k, values in BAD_EXTRAS.items() for v in values]
)
def test_a_checkpoint_with_other_content_is_refused_in_a_sentence(run, key, value):
    extra = {"counters": {}, "log_sizes": {}, "host_state": None, key: value}

    class Stored(Checkpoints):
        def load_latest(self, *templates):
            return LoadedCheckpoint(60, run.runner.state, (), extra, (), "")

    with RunDirectory.open(run.run_path) as folder:
        before = {x: x.read_bytes() for x in folder.path.glob("*.csv")}
        with pytest.raises(
            DamagedFileError, match="does not contain the state of a run"
        ):
            restore_checkpoint(folder, Stored(folder.path), run.runner, LoopCounters())
        assert before == {x: x.read_bytes() for x in folder.path.glob("*.csv")}


def test_a_picture_that_is_a_pipe_or_too_large_is_left_out(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "device.png").symlink_to("/dev/zero")
    (tmp_path / "large.png").write_bytes(html._PNG + bytes(2000))
    (tmp_path / "small.png").write_bytes(html._PNG + bytes(20))
    monkeypatch.setattr(html, "_PICTURE_BYTES", 1000)
    text = html._pictures(Results(()), [tmp_path])
    assert "small.png" in text and "device.png" not in text and "pipe.png" not in text
    assert (
        f"Left out, because they are too large or unreadable: {tmp_path / 'large.png'}"
        in text
    )


def test_a_csv_with_too_many_columns_or_cells_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "metrics.csv"
    file.write_text("," * run_reader.MAX_HEADER_BYTES + "a\n1\n")
    with pytest.raises(ValueError, match="bytes of column names"):
        run_reader.read_columns(file)
    file.write_text("a,b\n" + "1,2\n" * 100)
    monkeypatch.setattr(run_reader, "MAX_CELLS", 100)
    with pytest.raises(ValueError, match="100 cells, got 3 and 200"):
        run_reader.read_columns(file)


def test_an_agent_whose_environment_fails_still_delivers_its_best_policy():
    class Failing:
        def step(self, action):
            raise ValueError("broken")

    class Runner(HostRunner):
        def __init__(self):
            self.env, self.key = Failing(), None
            self.state = small_agent().runner.state._replace(
                replay=(1,), candidates=("best",), measured=("window",)
            )

        def _act(self, key, state):
            assert state.candidates == ()
            return Acted(np.zeros(1), np.zeros(1), {}, (), ())

    runner = Runner()
    with pytest.raises(ValueError, match="broken"):
        runner.advance(3, 10)
    assert runner.state.candidates == ("best",)
    assert runner.state.measured == ("window",)


def test_a_compressed_agent_is_refused_before_it_is_unpacked(run, tmp_path):
    run.save(tmp_path / "agent")
    with zipfile.ZipFile(tmp_path / "agent") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data if name != "agent.arrays" else b"\0" * 10**7)
    with pytest.raises(ValueError, match="is compressed or too large"):
        load(tmp_path / "bomb", Counter())
    members["sizes.json"] = json.dumps(
        json.loads(members["sizes.json"]) | {"observation_size": 10**9}
    ).encode()
    with zipfile.ZipFile(tmp_path / "large", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match=r"sizes\.json does not fit"):
        load(tmp_path / "large", Counter())


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def repeat_member(members):
    config = members["config.yaml"].replace(b"limit: 6.0", b"limit: 0.5")
    assert config != members["config.yaml"]
    return [("config.yaml", config), *members.items()]


def in_sizes(**changes):
    def change(members):
        sizes = json.loads(members["sizes.json"]) | changes
        return [*(members | {"sizes.json": json.dumps(sizes).encode()}).items()]

    return change


def in_text(entry):
    """Put an entry that `json.dumps` does not write into sizes.json."""

    def change(members):
        sizes = json.loads(members["sizes.json"])
        del sizes[json.loads(f"{{{entry}}}").popitem()[0]]
        text = json.dumps(sizes)[:-1] + f", {entry}}}"
        return [*(members | {"sizes.json": text.encode()}).items()]

    return change


def truncate_arrays(members):
    return [*(members | {"agent.arrays": members["agent.arrays"][:-100]}).items()]


def repeat_size(members):
    text = members["sizes.json"].replace(b'"env_steps"', b'"env_steps": 7, "env_steps"')
    return [*(members | {"sizes.json": text}).items()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda members: [*members.items()], ""),
        (repeat_member, "two members with the same name"),
        (repeat_size, "the key 'env_steps' twice"),
        (
            in_sizes(cost_value_limits=[np.nan]),
            r"cost_value_limits .* one per constraint",
        ),
        (in_sizes(cost_value_limits=[1.0, 2.0]), "one per constraint"),
        (in_sizes(cost_value_limits="9"), "one per constraint"),
        (in_sizes(cost_units=[np.inf]), r"cost_units .* one per constraint"),
        (in_sizes(cost_value_limits=None), r"cost_value_limits .* one per constraint"),
        (in_sizes(horizon_share=np.nan), r"horizon_share .* must be in \(0, 1\]"),
        (in_sizes(horizon_share=0), r"horizon_share .* must be in \(0, 1\]"),
        (in_sizes(horizon_share=None), r"horizon_share .* must be in \(0, 1\]"),
        (in_text('"horizon_share": 1e999'), r"horizon_share .* must be in \(0, 1\]"),
        (in_sizes(observation_structure="{"), "must be a JSON text that describes"),
        (in_sizes(observation_structure=7), "must be a JSON text that describes"),
        (
            in_sizes(observation_structure='{"kind": "box", "shape": [9]}'),
            r"observation_structure in .*agent must be a JSON text that describes an",
        ),
        (
            truncate_arrays,
            r"agent must be a file written .*: agent.arrays is truncated",
        ),
        (in_sizes(env_steps=10**12), "env_steps .* must be at most 2,000,000,000"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_saved_agent_says_everything_once_and_in_finite_numbers(
    run, tmp_path, change, message
):
    run.save(tmp_path / "agent")
    members = change(members_of(tmp_path / "agent"))
    with zipfile.ZipFile(tmp_path / "agent", "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    if not message:
        assert load(tmp_path / "agent", Counter()).num_timesteps == 60
        return
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "agent", Counter())


@pytest.mark.parametrize("path", ["", "a\0b"])
@pytest.mark.parametrize("use", ["load", "resume", "save", "export"])
def test_a_text_that_is_no_path_is_refused_in_a_sentence(run, use, path):
    with pytest.raises(ValueError, match=r"(path|run_dir) must name a file or folder"):
        getattr(orac if use in ("load", "resume") else run, use)(path)


@pytest.mark.parametrize("path", [None, 5, b"agent", []])
def test_a_value_that_is_no_path_is_refused_in_a_sentence(path):
    with pytest.raises(ValueError, match=r"out must name a file or folder, got"):
        check_path("out", path)


def test_a_directory_is_not_read_as_a_policy(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"must be a policy .*is a directory"):
        orac.policy.load(tmp_path)


# Files are data: no import and no link.

LINKS = ["lock", "metrics.csv", "meta.json", "checkpoints", "checkpoints/replay", "x"]


@pytest.mark.parametrize("name", LINKS)
def test_a_run_with_a_link_is_refused_and_nothing_outside_is_touched(tmp_path, name):
    with RunDirectory.create(tmp_path, "env", "algo", 0, {"a": 1}) as opened:
        path = opened.path
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "notes").write_text("mine")
    link, target = path / name, tmp_path / "victim"
    link.parent.mkdir(exist_ok=True)
    if not name.startswith("checkpoints"):
        target = target / "notes"
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    with pytest.raises(ValueError, match="must not be a symbolic link"):
        RunDirectory.open(path)
    assert [x.name for x in (tmp_path / "victim").iterdir()] == ["notes"]
    assert (tmp_path / "victim" / "notes").read_text() == "mine"


def test_links_pipes_and_directories_are_not_opened_for_writing(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            open_to_write(tmp_path / name, os.O_RDWR)
    assert (tmp_path / "victim").read_text() == "mine"


def write_report(name):
    def write(runs, folder):
        report.write([runs], folder / name)

    return write


def draw_demo(runs, folder):
    agent = object.__new__(Agent)
    agent.runner = SimpleNamespace(config=make_config())
    agent.predict = lambda observation: (np.zeros((len(observation), 2)), None)
    demo.draw(agent, folder / "maze.png")


WRITERS = {
    "report.html": write_report("report.html"),
    "report.md": write_report("report.md"),
    "report.csv": write_report("report.csv"),
    "orac-GuardedMaze-v0-curves.pdf": lambda runs, folder: (
        matplotlib_figures.save_figures(read_results([runs]), folder, ".pdf")
    ),
    "maze.png": draw_demo,
    "table.md": lambda runs, folder: write_rendering([], {}, folder),
    "figure.png": lambda runs, folder: write_rendering([], {"figure.png": b""}, folder),
}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("made-up"), make_config())


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "pipe"])
@pytest.mark.parametrize("name", WRITERS)
def test_no_output_is_written_through_a_link_or_waits_for_a_pipe(
    name, kind, a_run, tmp_path
):
    victim, output = tmp_path / "victim", tmp_path / "out" / name
    victim.write_text("mine")
    output.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(output)
    elif kind == "hard link":
        output.hardlink_to(victim)
    else:
        output.symlink_to(victim)
    WRITERS[name](a_run, output.parent)
    assert victim.read_text() == "mine"
    assert output.is_file() and not output.is_symlink()
    assert not [*output.parent.glob(".tmp-*")]


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module that leaves a file behind when it is imported."""
    code = "from pathlib import Path\nPath('imported').touch()\n"
    code += "from math import hypot\ndef cost(a, b, c, d): return 0.0\n"
    (tmp_path / "own_module.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(user_code, "ALLOWED_MODULES", set())
    yield tmp_path / "imported"
    sys.modules.pop("own_module", None)


FILES = {
    "train --config f.yaml": 'env: {id: "own_module:Foo-v0"}\n',
    "train --config f.yaml --quiet": "env: {id: Pendulum-v1, cost_fn: own_module:cost}\n",
    "sweep f.yaml": 'envs: ["own_module:Foo-v0"]\n',
    "sweep f.yaml --jobs 1": "envs: [Pendulum-v1]\nset: {env.cost_fn: own_module:cost}\n",
}


@pytest.mark.parametrize("command", FILES)
def test_a_file_does_not_import_a_module(own_module, command, capsys):
    Path("f.yaml").write_text(FILES[command])
    assert main(command.split()) == 1
    errors = capsys.readouterr().err
    option = "--import own_module"
    if command.endswith("--quiet"):
        option = "--cost-fn own_module:cost"
    assert errors.endswith(f"Type: orac {command} {option}\n")
    assert errors.count("\n") == 1
    assert not own_module.exists() and not Path("runs").exists()


def test_a_module_that_the_command_line_names_is_imported(own_module, capsys):
    Path("f.yaml").write_text('env: {id: "own_module:Foo-v0"}\n')
    assert main(["train", "--config", "f.yaml", "--import", "own_module"]) == 1
    assert own_module.exists()
    assert "There is no environment 'own_module:Foo-v0'" in capsys.readouterr().err


def test_a_file_names_only_functions_that_the_module_defines(own_module):
    user_code.allow_module("own_module")
    assert user_code.cost_fn_from_file("own_module:cost")(0, 0, 0, {}) == 0
    with pytest.raises(ValueError, match="must be defined in own_module"):
        user_code.cost_fn_from_file("own_module:hypot")
    with pytest.raises(user_code.NotImported):
        user_code.cost_fn_from_file("os:system")


@pytest.mark.parametrize("module", [".own", "own/module", "", "own-module"])
def test_what_is_no_module_is_refused_in_a_sentence(module):
    with pytest.raises(ValueError, match="must name a module"):
        user_code.allow_module(module)


# Memory, signals and the compilation cache.


def test_a_run_that_does_not_fit_names_the_setting_and_what_would_fit():
    needs = [
        MemoryNeed("agent.hidden_sizes", (8, 8), 10),
        MemoryNeed("buffer_size", 1000, 5000),
    ]
    check_memory(needs, 5010)
    with pytest.raises(
        ValueError, match=r"^buffer_size of 1000 .* About 490 would fit"
    ):
        check_memory(needs, 2500)
    with pytest.raises(
        ValueError, match=r"^agent.hidden_sizes of \(8, 8\) .* Lower it"
    ):
        check_memory([needs[0]], 5)


def test_a_replay_that_does_not_fit_is_refused_before_a_directory_is_made(tmp_path):
    agent = small_agent()
    training = replace(agent.config.training, buffer_size=2_000_000_000)
    agent.runner.configure(replace(agent.config, training=training))
    with pytest.raises(ValueError, match=r"training.buffer_size of 2000000000 needs"):
        agent.learn(out=tmp_path, progress_bar=False, trackers=())
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_at_the_next_log_row_with_a_checkpoint(
    number, tmp_path, capsys
):
    agent = small_agent()

    def interrupt(event):
        if event.step == 20:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    agent.learn(out=tmp_path, callback=interrupt, trackers=())
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"Stopped at step 20 of {agent.config.training.total_steps:,}; everything is saved.",
        f"Continue with: orac.resume({str(agent.run_path)!r}, env=...)",
    ]
    assert agent.stop_signal == number and signal.getsignal(number) is before
    assert agent.num_timesteps == 20
    assert [*agent.run_path.glob("checkpoints/step-000000000020.json")]


IMPORTING = """
import signal, sys, time
# A shell starts its background jobs, and so their tests, with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "/usr/bin/orac"
import orac
print("ready", flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass  # As an import that turns every exception into another.
"""


class Finalized:
    """An object whose finalizer presses Ctrl-C."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def collect_garbage():
    pressed = []

    def press(phase, info):
        # Python may collect garbage again before this function is no longer a callback.
        if not pressed:
            pressed.append(phase)
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(press)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(press)


@pytest.mark.parametrize("where", [Finalized, collect_garbage])
def test_the_second_ctrl_c_is_not_lost_where_python_ignores_errors(where, capfd):
    with pytest.raises(KeyboardInterrupt), interruptible() as received:
        signal.raise_signal(signal.SIGINT)
        where()
        time.sleep(5)
    assert received == [signal.SIGINT]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_the_program_at_once_and_without_a_traceback(number, code):
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code and errors == "\nStopped.\n"


def test_importing_the_package_in_a_script_leaves_its_signals_alone():
    code = "import signal, orac; print(signal.getsignal(signal.SIGTERM).name)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout == "SIG_DFL\n"


def test_only_a_folder_of_ones_own_is_private(tmp_path):
    assert private_directory(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "readable").mkdir(mode=0o755)
    assert private_directory(tmp_path / "readable")
    assert (tmp_path / "readable").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not private_directory(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert not private_directory(tmp_path / "link")
    (tmp_path / "file").touch()
    assert not private_directory(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_the_compilation_cache_is_only_used_in_a_private_folder(tmp_path, mode):
    (tmp_path / "orac").mkdir()
    (tmp_path / "orac").chmod(mode)
    code = (
        "import jax; from orac.training.xla import enable_compilation_cache as keep; "
        "keep(); jax.jit(lambda x: x + 1)(1); "
        "print(jax.config.jax_compilation_cache_dir, end='')"
    )
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}

    def run(**more):
        variables["XDG_CACHE_HOME"] = str(tmp_path)
        command = [sys.executable, "-c", code]
        options = {"capture_output": True, "text": True, "check": True}
        return subprocess.run(command, env={**variables, **more}, **options)

    first = run()
    if mode == 0o777:
        assert first.stdout == "None"
        assert "is not a folder that only you can write to" in first.stderr
        assert first.stderr.count("\n") == 1
        return
    folder = Path(first.stdout)
    assert folder.is_relative_to(tmp_path) and not first.stderr
    programs = sorted(folder.glob("*-cache"))
    assert programs and folder.stat().st_mode & 0o777 == 0o700
    # A program without the time of its last use was not written to its end.
    broken = programs[0].with_name("jit_broken-cache")
    broken.write_bytes(b"half")
    assert run().stderr == ""
    assert sorted(folder.glob("*-cache")) == programs
    assert run(ORAC_CACHE="off").stdout == "None"


def test_a_device_that_never_ends_is_not_read(capsys):
    assert main(["config", "--config", "/dev/zero"]) == 1
    assert "must be a regular file" in capsys.readouterr().err
    assert main(["sweep", "/dev/zero"]) == 1
    assert "must be a regular file" in capsys.readouterr().err


def test_a_full_checkpoint_directory_is_no_file(tmp_path):
    with RunDirectory.create(tmp_path, "env", "algo", 0, {"a": 1}) as opened:
        path = opened.path
    (path / "lock").unlink()
    os.mkfifo(path / "lock")
    with pytest.raises(DiskError, match="it is not a regular file"):
        RunDirectory.open(path)


def test_the_rollout_names_what_was_not_finite():
    class Broken(Counter):
        def step(self, key, state, action):
            state, step = super().step(key, state, action)
            bad = jnp.where(state[1] == 2, jnp.nan, step.reward)
            return state, step._replace(reward=bad)

    from orac.evaluation.rollout import roll_out

    def still(params, key, observation):
        return jnp.zeros((len(observation), 1))

    def lost(params, key, observation):
        return jnp.full((len(observation), 1), jnp.nan)

    with pytest.raises(NonFiniteError, match="environment's reward was not finite in"):
        roll_out(jax.random.key(0), None, Broken(), still, 4)
    with pytest.raises(NonFiniteError, match="policy's action was not finite in"):
        roll_out(jax.random.key(0), None, Counter(), lost, 4)
