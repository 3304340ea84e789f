"""Tests of `orac train`, `orac resume` and `orac config`.

`tests/training/test_resume.py` tests signals and resumed runs in separate processes.
"""

import csv
import os
import re
import shlex
import signal
import sys
import threading
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from conftest import CACHE
from helpers.command_examples import ENV, QUICK, train_arguments
from orac.api import Agent
from orac.cli.main import main
from orac.cli.train import finish
from orac.config import presets, serialization
from orac.experiments.launcher import processes
from orac.reports.run_reader import read_columns
from orac.runs.directory import run_path

TINY = train_arguments(800, 400)


def test_a_run_directory_has_all_its_files(trained_run):
    names = {path.name for path in trained_run.iterdir()}
    assert {"config.yaml", "meta.json", "metrics.csv", "timings.csv"} <= names
    assert {"episodes.csv", "evaluations.csv", "tensorboard", "checkpoints"} <= names
    header, *rows = (trained_run / "evaluations.csv").read_text().splitlines()
    assert header.startswith("env_steps,episode,reward,cost,length")
    assert len(rows) == 20, "two evaluations of ten episodes, one row each"
    metrics = (trained_run / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/cumulative_cost", "train/violations_cost"} <= set(metrics)


def test_a_metric_without_a_value_is_an_empty_cell(trained_run):
    with open(trained_run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert "nan" not in (trained_run / "metrics.csv").read_text()
    # Rows at 160, 320, ..., 800; learning starts at 400, and a maze ends after 100 steps.
    assert [row["gradient_steps"] == "0" for row in rows] == [True, True] + [False] * 3
    for row in rows:
        learned = row["gradient_steps"] != "0"
        for name in ("constraint/risk/cost", "critic/cost_loss", "actor/entropy"):
            assert (row[name] != "") == learned, name
        # An agent has a multiplier and a limit before it learns.
        assert float(row["constraint/multiplier/cost"]) >= 0
        assert float(row["constraint/limit/cost"]) == pytest.approx(4.9753, abs=1e-4)
    assert rows[0]["constraint/multiplier/cost"] == "0.0"
    assert rows[0]["constraint/limit/cost"] == rows[-1]["constraint/limit/cost"]
    columns = read_columns(trained_run / "metrics.csv")
    risks = columns["constraint/risk/cost"]
    assert np.isnan(risks).tolist() == [True, True, False, False, False]


def test_a_run_that_is_too_short_to_learn_prints_one_note(
    tmp_path, capsys, monkeypatch
):
    # Warnings are errors in these tests, so the note must replace the warning.
    monkeypatch.setattr(Agent, "_train", lambda agent, logger, *_: logger.close())
    arguments = ["train", f"--env-id={ENV}", f"--out={tmp_path}", *TINY]
    assert main([*arguments, "--total-steps=400"]) == 130
    printed = capsys.readouterr()
    assert (
        "  note: learning starts at step 400, but the run ends at 400, so it only acts at "
        "random. Set training.learning_starts lower, or train longer.\n"
    ) in printed.out
    assert not printed.err


@pytest.mark.parametrize(
    ("options", "time"),
    [
        ([], "about a minute"),
        (["--preset=paper"], ""),
        (["--preset=fast"], ""),
        (["--total-steps=800"], ""),
        (["--env-id=orac/CityLearn-v0"], "15 minutes"),
    ],
)
def test_a_run_of_hours_is_announced_if_nobody_chose_it(
    options, time, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Agent, "_train", lambda agent, logger, *_: logger.close())
    assert main(["train", f"--out={tmp_path}", *options]) == 130
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("note: the preset is 'paper', the default for ") == bool(
        time
    )
    assert line.endswith(f"With --preset fast it takes {time}.") == bool(time)


def test_train_prints_each_limit_in_both_units(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Agent, "_train", lambda agent, logger, *_: logger.close())
    arguments = ["train", f"--env-id={ENV}", f"--out={tmp_path}", *TINY]
    assert main(arguments) == 130
    assert capsys.readouterr().out.startswith(
        "orac in orac/GuardedMaze-v0, seed 0\n"
        "  cost: CVaR of at most 5 per episode at tail 0.05, which is 4.9753 in the critics' "
        "units (discount 0.9999)\n"
    )


ACTIVITIES = (
    *("acting", "environment", "storing and updating", "evaluating"),
    *("saving", "compiling", "everything else"),
)


@pytest.mark.parametrize("env", [ENV, "Pendulum-v1"])
def test_profile_says_where_the_time_of_both_loops_went(tmp_path, capsys, env):
    arguments = [f"--env-id={env}", "--algo=wcsac", f"--out={tmp_path}", "--profile"]
    if env != ENV:
        arguments.append("--cost-fn=helpers.command_examples:spins")
    assert main(["train", *arguments, *train_arguments(800, 400)]) == 0
    _, table = capsys.readouterr().out.split(
        "Where the time of these 800 steps went:\n"
    )
    rows = {line[2:23].strip(): line[24:].split() for line in table.splitlines()[:8]}
    assert tuple(rows) == (*ACTIVITIES, "in total")
    seconds = {name: float(row[0]) for name, row in rows.items()}
    assert all(seconds[name] >= 0 for name in ACTIVITIES)
    total = sum(seconds[name] for name in ACTIVITIES)
    assert abs(total - seconds["in total"]) < 0.1
    assert seconds["storing and updating"] > 0 and seconds["evaluating"] > 0


def test_the_same_run_cannot_be_started_twice(trained_run, capsys):
    out = trained_run.parents[3]
    arguments = ["train", "--algo=wcsac", f"--env-id={ENV}", f"--out={out}", *TINY]
    assert main(arguments) == 1
    printed = capsys.readouterr().err
    assert "already holds a run" in printed
    assert f" Continue with: orac resume {trained_run}\n" in printed
    assert main([*arguments, "--total-steps=900"]) == 1
    printed = capsys.readouterr().err
    assert f"Continue with: orac resume {trained_run} --total-steps 900\n" in printed


def test_resuming_a_finished_run_does_nothing(trained_run, capsys):
    assert main(["resume", str(trained_run), "--quiet"]) == 0
    assert "The run is finished, at 800 steps." in capsys.readouterr().out


def test_the_next_command_names_an_environment_in_a_users_module(tmp_path, capsys):
    config = presets.preset("orac", "my_env:Walk-v0")
    total = config.training.total_steps
    done = {
        "num_timesteps": total,
        "spec": SimpleNamespace(cost_bounds=None),
        "env_id": config.env.id,
    }
    agent = SimpleNamespace(config=config, delivery_lines=lambda: [], **done)
    folder = tmp_path / "my runs"
    assert finish(agent, folder, Namespace(quiet=True, cost_bound=[1234567.0])) == 0
    *_, evaluate, certify = capsys.readouterr().out.splitlines()
    for line in (evaluate, certify):
        options = shlex.split(line.partition(": orac ")[2])[1:]
        bound = ["--cost-bound", "1234567.0"]
        assert options == [str(folder), "--env-id", "my_env:Walk-v0", *bound]


def test_a_stopped_run_has_the_exit_code_of_its_signal(tmp_path, capsys):
    stopped = {"num_timesteps": 10, "stopped_text": lambda: "Stopped at step 10."}
    config = presets.preset("orac", ENV)
    agent = SimpleNamespace(config=config, stop_signal=15, **stopped)
    assert finish(agent, tmp_path, Namespace(quiet=True)) == 143
    assert capsys.readouterr().out == "Stopped at step 10.\n"
    agent.stop_signal = None
    assert finish(agent, tmp_path, Namespace(quiet=False)) == 130
    assert not capsys.readouterr().out, "`learn` has printed it"


def test_a_name_with_a_space_is_an_error(tmp_path, capsys):
    arguments = ["train", "--algo=wcsac", f"--env-id={ENV}", *TINY]
    assert main([*arguments, f"--out={tmp_path}", "--name=first try"]) == 1
    assert "Try 'first-try'" in capsys.readouterr().err


def test_a_tracker_that_is_not_installed_leaves_no_run_directory(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    arguments = ["train", "--algo=wcsac", f"--env-id={ENV}", f"--out={tmp_path}", *TINY]
    assert main([*arguments, "--track=wandb"]) == 1
    assert 'pip install "orac-rl[wandb]"' in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_config_prints_yaml_and_what_was_changed(capsys):
    assert main(["config", "--algo=orac", "--tail=0.1", "--set=agent.kappa=0.5"]) == 0
    printed = capsys.readouterr().out
    config = serialization.from_dict(yaml.safe_load(printed))
    assert config.agent.kappa == 0.5 and config.constraints[0].tail == 0.1
    assert "#   agent.kappa: 1.0 -> 0.5" in printed


def test_a_printed_config_can_be_loaded_again(tmp_path, capsys):
    main(["config", "--algo=wcsac-lin", "--seed=3"])
    file = tmp_path / "config.yaml"
    file.write_text(capsys.readouterr().out)
    main(["config", f"--config={file}"])
    assert f"# identical to {file}" in capsys.readouterr().out


def test_a_config_of_another_agent_than_its_algo_is_an_error(capsys):
    assert main(["config", "--set=agent.behaviour=actor"]) == 1
    assert "which belong to algo 'wcsac-iqn'" in capsys.readouterr().err


def test_a_config_file_that_is_missing_is_an_error(capsys):
    assert main(["config", "--config=nowhere.yaml"]) == 1
    assert "the config nowhere.yaml cannot be read" in capsys.readouterr().err


FAKE = (sys.executable, str(Path(__file__).parents[1] / "helpers/fake_worker.py"))


@pytest.fixture
def fake_workers(monkeypatch):
    """Workers that only count, as the tests of the launcher have them."""
    real = processes.Processes
    monkeypatch.setattr(processes, "Processes", partial(real, program=FAKE))


def test_several_seeds_stop_and_go_on_with_the_same_command(
    tmp_path, capsys, monkeypatch, fake_workers
):
    arguments = ["train", "--algo=wcsac", f"--env-id={ENV}", f"--out={tmp_path}"]
    arguments += [*TINY, "--total-steps=20000", "--seeds=0-2", "--jobs=2"]
    arguments.remove("--quiet")
    journal = tmp_path / "journal"

    def interrupt():
        while not journal.exists() or journal.read_text().count("+") < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(arguments) == 130
    thread.join()
    printed = capsys.readouterr().out
    assert printed.startswith("wcsac in orac/GuardedMaze-v0, seeds 0, 1, 2\n")
    assert "Run the same command again to continue" in printed
    folder = run_path(tmp_path, ENV, "wcsac", 0, "default").parent
    for seed in range(2):
        # Close to the end, so that the rest takes only a moment.
        (folder / f"seed-{seed:03d}" / "saved").write_text("19900")
    (folder / "seed-002").mkdir()
    (folder / "seed-002" / "saved").write_text("19900")
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "started   wcsac in orac/GuardedMaze-v0, seed 0 at step" in printed
    assert re.search(r"step [\d,]+/60,000 .* seed 0 100%  seed 1 100%  seed 2", printed)
    assert printed.endswith(f"Report: orac report {folder}\n")
    assert main(arguments) == 0
    assert "3 of 3 runs are finished already." in capsys.readouterr().out
    other = ["--tail=0.5", "--set=agent.kappa=0.5"]
    assert main([*arguments, *other]) == 1
    printed = capsys.readouterr()
    assert not printed.out, "the check comes before the description of the runs"
    assert "(2 fields, such as constraints.0.tail: 0.05 there, 0.5 here)" in printed.err
    assert "Add --name NAME for a new run, choose another --out" in printed.err


def test_seeds_train_the_same_runs_as_one_seed_at_a_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_cost.py").write_text(
        "def fast(o, a, next_observation, info):\n"
        "    return float(abs(next_observation[2]) > 4.0)\n"
    )
    arguments = ["train", "--algo=sac-lag", "--env-id=Pendulum-v1", "--cost-limit=10"]
    arguments += ["--cost-fn=own_cost:fast", "--cost-bound=200", *QUICK]
    arguments += ["--total-steps=400", "--set=training.learning_starts=100"]
    assert main([*arguments, "--seeds=0,3", "--jobs=1"]) == 0
    folder = run_path("runs", "Pendulum-v1", "sac-lag", 0, "default").parent
    printed = capsys.readouterr().out
    for seed in (0, 3):
        assert f"\nseed {seed}: reward " in printed
        assert read_columns(folder / f"seed-{seed:03d}/metrics.csv")["env_steps"][-1]
    sys.modules.pop("own_cost", None)
    command = shlex.split(printed.rpartition("Report: ")[2])
    assert main([*command[1:], "--format=markdown"]) == 0
    assert "sac-lag" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--jobs=2"],
            "--jobs 2 is the number of seeds that train at a time. Add --seeds",
        ),
        (
            ["--seeds=0-4", "--seed=1"],
            "--seed is for one run, and --seeds trains several",
        ),
        (
            ["--seeds=0-4", "--jobs=0"],
            "--jobs must be a whole number of at least 1, got 0",
        ),
        (["--seeds=0-4", "--from=x"], "--from is for one run"),
        (["--seeds=0-4", "--device=cpu"], "--device is for one run"),
        (["--seeds=0-4", "--name=a b"], "Try 'a-b'"),
    ],
)
def test_options_that_do_not_go_with_seeds_are_refused_before_anything_runs(
    tmp_path, capsys, options, message
):
    arguments = ["train", f"--env-id={ENV}", f"--out={tmp_path / 'runs'}"]
    assert main([*arguments, *TINY, *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
