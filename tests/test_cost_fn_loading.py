"""Tests of cost functions by name: a name that the user gives is imported, one in a file is not."""

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import orac
from orac.cli.main import main
from orac.config import serialization
from orac.envs.identity import PYTHON
from orac.envs.user_code import NotImported, cost_fn_from_file
from orac.runs.directory import read_meta, run_path
from orac.training.saving import load_agent

SETTINGS = {
    "agent.hidden_sizes": [16, 16],
    "training.gradient_steps": 0.25,
    "training.learning_starts": 100,
    "training.buffer_size": 2000,
    "training.batch_size": 32,
    "training.log_every": 100,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
}
MODULE = """
from pathlib import Path
Path(__file__).with_name("was_run").touch()
def too_fast(obs, action, next_obs, info):
    return float(abs(next_obs[2]) > 4.0)
"""
COST_FN = "own_costs:too_fast"


class OwnModule:
    """A directory with a user's module that leaves a file when it is run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "own_costs.py").write_text(MODULE)

    def was_run(self) -> bool:
        """Return whether the module was imported since the last call, and unload it."""
        sys.modules.pop("own_costs", None)
        marker = self.path / "was_run"
        found = marker.exists()
        marker.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    module = OwnModule(tmp_path_factory.mktemp("code"))
    path, directory = list(sys.path), os.getcwd()
    os.chdir(module.path)
    yield module
    os.chdir(directory)
    sys.path[:] = path
    sys.modules.pop("own_costs", None)


@pytest.fixture(scope="module")
def run(own, tmp_path_factory):
    """A run that was trained from the command line in the directory of the module."""
    out = tmp_path_factory.mktemp("runs")
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    options = ["--env-id=Pendulum-v1", f"--cost-fn={COST_FN}", "--cost-limit=10"]
    options += [f"--out={out}", "--quiet", "--total-steps=400", *settings]
    assert main(["train", "--algo=sac-lag", *options]) == 0
    assert own.was_run()
    return run_path(out, "Pendulum-v1", "sac-lag", 0, "default")


def test_config_holds_the_name_of_the_function(run):
    assert serialization.load(run / "config.yaml").env.cost_fn == COST_FN


def test_loading_a_run_does_not_import_its_cost_function(own, run):
    for load in (orac.load, orac.resume):
        with pytest.raises(
            ValueError,
            match=f"orac never .* as cost_fn=, or its name, cost_fn='{COST_FN}'",
        ):
            load(run)
    assert not own.was_run()
    assert orac.load(run, cost_fn=COST_FN).num_timesteps == 400
    assert own.was_run()


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_command_names_the_missing_option_and_works_with_it(own, run, command, capsys):
    assert main([command, str(run)]) == 1
    assert f"Add --cost-fn {COST_FN} or --import own_costs" in capsys.readouterr().err
    assert not own.was_run()
    more = ["--episodes=2"] if command == "evaluate" else ["--quiet"]
    assert main([command, str(run), f"--cost-fn={COST_FN}", *more]) == 0
    if command == "resume":
        next_command = f"orac evaluate {run} --cost-fn {COST_FN}"
        assert next_command in capsys.readouterr().out
    assert own.was_run()


def test_config_file_does_not_cause_an_import(own, run, tmp_path, capsys):
    config = [f"--config={run / 'config.yaml'}", f"--out={tmp_path}"]
    assert main(["train", *config]) == 1
    assert "orac never imports code" in capsys.readouterr().err
    assert not own.was_run() and not list(tmp_path.iterdir())


def test_loading_a_saved_agent_does_not_import_its_cost_function(own, run, tmp_path):
    orac.load(run, cost_fn=lambda *_: 0.0).save(tmp_path / "agent.zip")
    assert not own.was_run()
    assert load_agent(tmp_path / "agent.zip")[0].env.cost_fn.endswith("<lambda>")
    with pytest.raises(ValueError, match=r"<lambda>', and orac never imports code"):
        orac.load(tmp_path / "agent.zip")
    orac.load(tmp_path / "agent.zip", cost_fn=lambda *_: 0.0)


def test_a_run_is_not_resumed_with_another_cost_function(run):
    text = f"with its own cost function, {COST_FN}, "
    with pytest.raises(ValueError, match=text):
        orac.resume(run, cost_fn=lambda *_: 0.0, progress_bar=False)


def test_loading_a_run_does_not_import_the_module_of_its_environment(
    own, run, tmp_path
):
    copy = tmp_path / "run"
    copy.mkdir()
    text = (run / "config.yaml").read_text()
    (copy / "meta.json").write_bytes((run / "meta.json").read_bytes())
    (copy / "config.yaml").write_text(
        text.replace("id: Pendulum-v1", "id: own_costs:Swing-v0")
    )
    with pytest.raises(ValueError, match="Import own_costs first, or pass env="):
        orac.load(copy, cost_fn=COST_FN)
    assert not own.was_run()


SCRIPT = """
import orac

def fast(observation, action, next_observation, info):
    return float(abs(next_observation[2]) > 4.0)

options = {"cost_fn": fast, "cost_limit": 10, "cost_bound": 200}
agent = orac.SACLagrangian("Pendulum-v1", **options, settings={settings})
agent.learn(400, out="runs", progress_bar=False, trackers=())
with open("trained", "a") as file:
    file.write("x")

def below(observation, action, next_observation, info):
    return 0.0
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The folder of a script without a main guard, which was run there."""
    folder = tmp_path_factory.mktemp("script")
    text = SCRIPT.replace("{settings}", repr(SETTINGS))
    (folder / "script.py").write_text(text)
    before = os.getcwd()
    os.chdir(folder)
    try:
        runpy.run_path("script.py", run_name="__main__")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def unload(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("script", None)


RUN = "runs/Pendulum-v1/sac-lag/default/seed-000"


def test_a_run_records_where_the_cost_function_of_its_script_is(script):
    assert serialization.load(script / RUN / "config.yaml").env.cost_fn == "script:fast"
    record = read_meta(script / RUN)["cost_fn"]
    assert len(record.pop("digest")) == 32 and record.pop("python") == PYTHON
    assert record == {
        "module": "script",
        "file": str(script / "script.py"),
        "name": "fast",
    }


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", RUN, "--episodes=2"],
        ["resume", RUN, "--quiet", "--total-steps=600"],
        ["certify", RUN, "--episodes-max=60", "--looks=1"],
    ],
    ids=lambda command: command[0],
)
def test_the_printed_command_works_when_it_is_pasted(
    script, unload, monkeypatch, capsys, command
):
    monkeypatch.chdir(script)
    assert main(command) == 1
    printed = capsys.readouterr().err.strip()
    assert "script" not in sys.modules
    pasted = shlex.split(printed.partition(" Type: ")[2])
    options = ["--cost-fn", "script:fast", "--cost-bound", "200"]
    assert pasted == ["orac", *command, *options]
    assert main(pasted[1:]) in (0, 1)
    assert not capsys.readouterr().err
    assert (script / "trained").read_text() == "x", "it was imported, not run again"


def test_certify_without_the_bound_of_the_script_replaces_no_certificate(
    script, unload, monkeypatch, capsys
):
    monkeypatch.chdir(script)
    file = script / RUN / "certificate.json"
    before = file.read_bytes() if file.exists() else None
    assert main(["certify", RUN, "--cost-fn", "script:fast", "--looks", "1"]) == 1
    printed = capsys.readouterr().err.strip()
    assert (
        "declares no bound" in printed and "was started with a cost bound." in printed
    )
    assert printed.endswith(
        f"Type: orac certify {RUN} --cost-fn script:fast --looks 1 --cost-bound 200"
    )
    assert (file.read_bytes() if file.exists() else None) == before


def test_report_needs_no_cost_function(script, unload, monkeypatch, capsys):
    monkeypatch.chdir(script)
    assert main(["report", "runs", "--format=markdown"]) == 0
    assert "sac-lag" in capsys.readouterr().out
    assert "script" not in sys.modules


def test_the_printed_command_works_in_another_folder(
    script, unload, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(script / RUN), "--episodes=2"]) == 1
    command = capsys.readouterr().err.partition(" Type: ")[2].strip()
    assert command.startswith(f"PYTHONPATH={script}")
    program = shlex.join([sys.executable, "-m", "orac"])
    command = command.replace(" orac evaluate ", f" {program} evaluate ")
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cost" in done.stdout


def test_a_function_below_the_first_agent_is_explained(script, unload, monkeypatch):
    monkeypatch.chdir(script)
    monkeypatch.syspath_prepend(script)
    with pytest.raises(ValueError, match="Define it above the first agent of script"):
        orac.load(RUN, cost_fn="script:below")
    assert (script / "trained").read_text() == "x"


def test_a_script_that_ends_the_program_is_explained(tmp_path, monkeypatch):
    (tmp_path / "ends.py").write_text("raise SystemExit(2)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"'ends', which ended the program .*__main__"):
        orac.SACLagrangian("Pendulum-v1", cost_fn="ends:fast", cost_limit=10)


@pytest.mark.parametrize("name", ["script:<lambda>", "__main__:fast", "a:b.<locals>.c"])
def test_a_function_that_cannot_be_imported_has_no_command_that_fails(name):
    with pytest.raises(NotImported, match="Pass the function itself") as caught:
        cost_fn_from_file(name)
    assert "cannot be imported by its name" in vars(caught.value)["shell_text"]
    assert not caught.value.options
