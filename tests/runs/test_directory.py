"""Tests of run directories: layout, lock, config, logs and saved evaluations."""

import errno
import json
import math
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from helpers.certificates import make_certificate
from helpers.manifests import write_manifest
from helpers.run_examples import make_state
from orac.config import serialization
from orac.config.presets import preset
from orac.evaluation.cvar_bounds import cvar_upper_bound
from orac.runs import directory, machine
from orac.runs.atomic_io import DiskError, write_text
from orac.runs.directory import (
    LOGS,
    RunDirectory,
    acquire_lock,
    certificate_problem,
    config_checksum,
    evaluation_path,
    read_certificate,
    read_config,
    read_meta,
    run_path,
    safe_name,
    save_evaluation,
    valid_certificate,
    write_meta,
)

CONFIG = {"algo": "orac", "tail": 0.05, "hidden": [64, 64], "limit": None}


def create(root, **changes):
    options = {"env_id": "maze", "algo": "orac", "seed": 0, "config": CONFIG, **changes}
    return RunDirectory.create(root, **options)


def test_the_path_has_env_algo_name_and_seed(tmp_path):
    with create(tmp_path, env_id="ALE/Pong-v5", name="first-try", seed=7) as run:
        assert run.path == tmp_path / "ALE-Pong-v5" / "orac" / "first-try" / "seed-007"
        assert sorted(os.listdir(run.path)) == ["config.yaml", "lock", "meta.json"]
        assert read_config(run.path) == CONFIG
        assert run.checkpoints().directory == run.path / "checkpoints"


def test_meta_describes_the_machine(tmp_path):
    with create(tmp_path) as run:
        meta = read_meta(run.path)
    assert meta["versions"]["jax"] == jax.__version__
    assert meta["versions"]["numpy"] == np.__version__
    assert set(meta["versions"]) >= {"orac", "jaxlib", "gymnasium", "python"}
    assert meta["threads"] == len(os.sched_getaffinity(0))
    assert meta["cpu_count"] == os.cpu_count()
    assert meta["platform"]


def test_the_commit_is_that_of_the_folders_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    # A Git hook that runs the tests names its own repository, and a user's settings may sign
    # every commit.
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    assert machine._commit(tmp_path) is None

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "one")
    clean = machine._commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "a").write_text("2")
    assert machine._commit(tmp_path) == f"{clean}-dirty"
    monkeypatch.setenv("PATH", "")
    assert machine._commit(tmp_path) is None


def test_a_resume_with_another_commit_is_recorded(tmp_path, monkeypatch):
    commits = iter(["one", "one", "two", "two", "one"])
    monkeypatch.setattr(machine, "_commit", lambda _: next(commits))
    with create(tmp_path) as run:
        notes = []
        for _ in range(4):
            run.note_commit()
            notes.append(read_meta(run.path).get("resumed_at_commits"))
    assert notes == [None, ["two"], ["two"], ["two", "one"]]
    assert read_meta(run.path)["commit"] == "one"


def test_a_resume_on_another_machine_gives_warnings(tmp_path, monkeypatch):
    with create(tmp_path) as run:
        assert run.machine_differences() == []
        threads = len(os.sched_getaffinity(0))
        monkeypatch.setattr(machine, "count_threads", lambda: 99)
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert run.machine_differences() == [
            f"The run was started with threads {threads} and continues with 99: its "
            "results may not be bit-identical to those of an uninterrupted run.",
            "The run was started with OMP_NUM_THREADS unset and continues with 3: its "
            "results may not be bit-identical to those of an uninterrupted run.",
        ]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("../../etc/passwd", "etc-passwd"),
        ("my env: v1", "my-env-v1"),
        ("lr=1e-3+big", "lr=1e-3+big"),
        ("package.module:Env-v0", "package.module-Env-v0"),
    ],
)
def test_ids_become_one_path_component(text, safe):
    assert safe_name(text) == safe


@pytest.mark.parametrize("text", ["", "..", "/", "💥"])
def test_an_id_without_letters_raises_an_error(text):
    with pytest.raises(ValueError, match="needs letters or digits"):
        safe_name(text)


@pytest.mark.parametrize(
    ("name", "better"),
    [("first try", "first-try"), ("a/b", "a-b"), ("../up", "up"), ("-x", "x")],
)
def test_a_name_that_would_be_changed_raises_an_error(tmp_path, name, better):
    with create(tmp_path, name=better):
        pass
    with pytest.raises(ValueError, match=f"got {name!r}. Try {better!r}"):
        create(tmp_path, name=name)


def test_a_negative_seed_raises_an_error(tmp_path):
    with pytest.raises(
        ValueError, match="seed must be a whole number of at least 0, got -1"
    ):
        run_path(tmp_path, "maze", "orac", -1, "x")


def test_a_second_run_in_the_same_directory_raises_an_error(tmp_path):
    with create(tmp_path) as run:
        path = run.path
    with pytest.raises(FileExistsError, match=r"already holds a run\. Choose another"):
        create(tmp_path, config={"other": 1})
    assert read_config(path) == CONFIG
    with RunDirectory.open(path) as again:
        assert read_config(again.path) == CONFIG


def test_a_run_that_was_killed_while_starting_can_be_started_again(tmp_path):
    path = run_path(tmp_path, "maze", "orac", 0, "default")
    path.mkdir(parents=True)
    (path / "lock").write_text("process 1")
    (path / ".tmp-config.yaml").write_text("half")
    with create(tmp_path) as run:
        assert read_config(run.path) == CONFIG


def test_only_one_writer_can_open_a_run(tmp_path):
    with create(tmp_path) as run:
        for enter in (lambda: RunDirectory.open(run.path), lambda: create(tmp_path)):
            with pytest.raises(
                RuntimeError, match=f"in use by process {os.getpid()} on "
            ):
                enter()
    with RunDirectory.open(run.path):
        pass


HOLDER = """
import os, sys, time
if "--slow" in sys.argv:
    # Runs in the child before the hook that drops the lock there.
    os.register_at_fork(after_in_child=lambda: time.sleep(1))
from orac.runs.directory import RunDirectory
run = RunDirectory.open(sys.argv[1])
if "--fork" in sys.argv and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("locked", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("options", [[], ["--fork"], ["--fork", "--slow"]])
def test_a_killed_process_releases_its_run(tmp_path, options, monkeypatch):
    """A worker that it forked may live on, and may be slow to drop the lock."""
    # On a busy machine, the worker may get no processor for some seconds.
    monkeypatch.setattr(directory, "LOCK_TIMEOUT", 60.0)
    with create(tmp_path) as run:
        path = run.path
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDER, str(path), *options],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(RuntimeError, match=f"in use by process {holder.pid} on"):
            RunDirectory.open(path)
        holder.kill()
        holder.wait()
        with RunDirectory.open(path):
            pass
    finally:
        os.killpg(holder.pid, 9) if options else None
        holder.stdout.close()


def test_a_lock_that_a_fork_keeps_is_not_waited_for_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr(directory, "_is_running", lambda owner: False)
    with create(tmp_path) as run, pytest.raises(RuntimeError, match="in use by"):
        RunDirectory.open(run.path)


def test_a_lock_on_another_host_counts_as_running():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    assert not directory._is_running(f"process {ended.pid} on {host}")
    assert directory._is_running(f"process {ended.pid} on not-{host}")
    assert directory._is_running(f"process {os.getpid()} on {host}")
    assert directory._is_running("")


def test_a_path_under_a_file_raises_a_readable_error(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(DiskError, match="a file is where a directory is needed"):
        create(tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "a file"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "permission denied. Choose a directory you may write to"),
        (errno.EROFS, "the file system is read-only. Choose another directory"),
        (errno.ENOSPC, "the disk is full. Earlier saves are intact"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_disk_errors_are_sentences(tmp_path, monkeypatch, call, number, sentence):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(DiskError) as caught:
            create(tmp_path)
    assert sentence in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.errno == number
    with create(tmp_path) as run:
        assert read_config(run.path) == CONFIG


def test_opening_a_directory_without_a_run_raises_an_error(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"is not a run directory: it has no config\.yaml"
    ):
        RunDirectory.open(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_folder_of_runs_suggests_the_runs_in_it(tmp_path):
    paths = []
    for seed in range(5):
        with create(tmp_path, seed=seed) as run:
            paths.append(run.path)
    first = paths[0]
    for folder in (tmp_path, first.parent.parent, first.parent):
        with pytest.raises(FileNotFoundError) as caught:
            read_config(folder)
        runs = " or ".join(map(str, paths[:3]))
        assert str(caught.value).endswith(f" Did you mean {runs} or another run there?")
    outside = tmp_path / "other"
    outside.mkdir()
    (outside / "link").symlink_to(first.parent)
    with pytest.raises(FileNotFoundError, match="A run's directory looks like runs/"):
        read_config(outside)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [1, 2", r"config\.yaml cannot be read"),
        ("just text", "must contain a mapping, found str"),
        ("!!python/object/apply:os.mkdir [exploded]", "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_broken_config_raises_an_error(tmp_path, monkeypatch, content, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        RunDirectory.open(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_config_that_yaml_cannot_hold_leaves_the_directory_free(tmp_path):
    with pytest.raises(Exception, match="cannot represent"):
        create(tmp_path, config={"f": object()})
    with create(tmp_path) as run:
        assert read_config(run.path) == CONFIG


def test_logs_are_truncated_to_the_checkpoint(tmp_path):
    with create(tmp_path) as run:
        metrics = run.log("metrics", ["step"])
        metrics.append({"step": 1})
        sizes = run.log_sizes()
        assert sizes == {"metrics": 7, "timings": 0, "episodes": 0, "evaluations": 0}
        run.checkpoints().save(1, make_state(1), extra={"logs": sizes})
        metrics.append({"step": 2})
        run.log("episodes", ["return"]).append({"return": 0.5})
    path = run.path
    assert (path / "metrics.csv").read_text() == "step\n1\n2\n"
    with RunDirectory.open(path) as run:
        loaded = run.checkpoints().load_latest(make_state(0))
        run.truncate_logs(loaded.extra["logs"])
        assert (path / "metrics.csv").read_text() == "step\n1\n"
        assert (path / "episodes.csv").read_text() == ""
        metrics = run.log("metrics", ["step"])
        metrics.append({"step": 2})
        assert run.log_sizes()["metrics"] == 9
        with pytest.raises(ValueError, match="before you open one"):
            run.truncate_logs({"metrics": 7})
    with RunDirectory.open(path) as run:
        run.truncate_logs({"metrics": 7})
        run.log("metrics", ["step"]).append({"step": 3})
    assert (path / "metrics.csv").read_text() == "step\n1\n3\n"


def test_log_sizes_include_closed_logs(tmp_path):
    with create(tmp_path) as run:
        run.log("episodes", ["return"]).append({"return": 1})
    with RunDirectory.open(run.path) as run:
        assert run.log_sizes()["episodes"] == len("return\n1\n")


def test_a_run_without_a_checkpoint_restarts_its_logs(tmp_path):
    with create(tmp_path) as run:
        run.log("metrics", ["step"]).append({"step": 1})
    with RunDirectory.open(run.path) as run:
        run.truncate_logs({})
        run.log("metrics", ["step"]).append({"step": 9})
    assert (run.path / "metrics.csv").read_text() == "step\n9\n"


def test_missing_rows_raise_an_error(tmp_path):
    with create(tmp_path) as run, pytest.raises(ValueError, match="rows are missing"):
        run.truncate_logs({"metrics": 100})


def test_only_the_four_logs_exist_and_each_once(tmp_path):
    with create(tmp_path) as run:
        for name in LOGS:
            run.log(name, ["step"])
        with pytest.raises(ValueError, match="already open"):
            run.log("metrics", ["step"])
        with pytest.raises(
            ValueError, match="the log of a run must be one of metrics, timings"
        ):
            run.log("metric", ["step"])


def test_closing_twice_has_no_effect(tmp_path):
    run = create(tmp_path)
    run.log("metrics", ["step"])
    run.close()
    run.close()
    with RunDirectory.open(run.path):
        run.close()
        with pytest.raises(RuntimeError, match="in use"):
            RunDirectory.open(run.path)


def test_meta_is_json_and_quick_to_compare(tmp_path):
    with create(tmp_path) as run:
        assert json.loads((run.path / "meta.json").read_text()) == read_meta(run.path)
        began = time.perf_counter()
        run.machine_differences()
        assert time.perf_counter() - began < 5


def evaluation_config(seed=0):
    return replace(preset("orac", "orac/GuardedMaze-v0"), seed=seed)


def test_an_evaluation_is_saved_as_a_run(tmp_path):
    rows = [{"episode": i, "reward": i / 3, "cost": 4.0} for i in range(2)]
    evaluated = {"run": "runs/a", "env_steps": 70}
    path = save_evaluation(tmp_path, evaluation_config(), rows, evaluated, "again")
    assert path == tmp_path / "orac-GuardedMaze-v0" / "orac" / "again" / "seed-000"
    assert read_config(path)["env"]["id"] == "orac/GuardedMaze-v0"
    assert read_meta(path)["evaluated"] == evaluated
    assert (path / "evaluations.csv").read_text() == (
        "env_steps,episode,reward,cost\n70,0,0.0,4.0\n70,1,0.3333333333333333,4.0\n"
    )
    with pytest.raises(FileExistsError, match="already holds a run or an evaluation"):
        evaluation_path(tmp_path, evaluation_config(), "again")
    assert not evaluation_path(tmp_path, evaluation_config(1), "again").exists()


@pytest.mark.parametrize("name", ["lock", "metrics.csv"])
def test_a_file_with_a_second_name_elsewhere_is_not_written(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("my notes")
    with create(tmp_path) as run:
        (run.path / name).unlink(missing_ok=True)
        os.link(victim, run.path / name)
        with pytest.raises(DiskError, match="a hard link"):
            acquire_lock(run.path) if name == "lock" else run.log("metrics", ["a"])
    assert victim.read_text() == "my notes"


def test_an_unfinished_file_with_a_second_name_elsewhere_is_replaced(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("my notes")
    os.link(victim, tmp_path / ".tmp-a.json")
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"
    assert victim.read_text() == "my notes"


def test_a_key_that_occurs_twice_in_json_is_an_error(tmp_path):
    with create(tmp_path) as run:
        (run.path / "meta.json").write_text('{"a": {"b": 1, "b": 2}}')
        with pytest.raises(ValueError, match="it has the key 'b' twice"):
            read_meta(run.path)


def test_a_list_of_meta_that_is_none_is_an_error(tmp_path):
    with create(tmp_path) as run:
        write_meta(run.path, {"extended": 7, "resumed_at_commits": "abc"})
        with pytest.raises(ValueError, match=r"extended in .* must be a list, got 7"):
            run.extend({}, 10, 20)
        with pytest.raises(
            ValueError, match=r"resumed_at_commits in .* must be a list"
        ):
            run.note_commit()


def in_look(**changes):
    return lambda record: record["looks"][-1].update(changes)


def in_bound(**changes):
    return lambda record: record["looks"][-1]["bounds"][0].update(changes)


def with_confidence(confidence):
    def change(record):
        record["confidence"] = confidence
        in_bound(confidence=1 - (1 - confidence) / 3)(record)

    return change


def certified_run(root, changes=None):
    """A run of 100 steps, with a certificate that fits it apart from the changes.

    `changes` is a dict of fields, or a function that edits the certificate.
    """
    config = serialization.to_dict(evaluation_config())
    with RunDirectory.create(root, "env", "orac", 0, config) as run:
        path = run.path
    write_manifest(path / "checkpoints", 100)
    record = make_certificate(path, trained_steps=100, step=80)
    if callable(changes):
        changes(record)
    else:
        record |= changes or {}
    (path / "certificate.json").write_text(json.dumps(record))
    return path


def test_a_certificate_is_valid_for_its_own_run(tmp_path):
    path = certified_run(tmp_path)
    assert certificate_problem(path) == "" and valid_certificate(path)["certified"]
    (path / "certificate.json").unlink()
    assert certificate_problem(path) == "" and valid_certificate(path) is None


@pytest.mark.parametrize("missing", directory.CERTIFICATE_FIELDS)
def test_a_certificate_that_lacks_a_field_counts_for_no_run(tmp_path, missing):
    path = certified_run(tmp_path, lambda record: record.pop(missing))
    assert f"lacks the field {missing}, which" in certificate_problem(path)
    assert certificate_problem(path).endswith("orac certify or agent.certify().")
    assert valid_certificate(path) is None


def test_a_certificate_is_about_a_policy_that_the_run_evaluated(tmp_path):
    path = certified_run(tmp_path)
    file = path / "evaluations.csv"
    file.write_text("env_steps,episode\n80,0\n100,0\n")
    assert certificate_problem(path) == ""
    file.write_text("env_steps,episode\n8,0\n800,0\n100,80\n")
    assert "a policy of step 80, at which the run evaluated none" in (
        certificate_problem(path)
    )
    write_meta(path, {"continued_from": {}})
    assert certificate_problem(path) == "", "the other run evaluated it"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("episodes", [5, 100, 1000])
def test_no_bound_is_lower_than_that_of_episodes_without_cost(seed, episodes):
    random = np.random.default_rng(seed)
    for tail in (0.05, 0.5, 1.0):
        costs = 24 * random.beta(0.05, 2, episodes)
        lowest = cvar_upper_bound(np.zeros(episodes), tail, 24.0, 0.98)
        assert cvar_upper_bound(costs, tail, 24.0, 0.98) >= lowest


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": "that of another run"}, "a run with another config"),
        ({"env": "Pendulum-v1"}, "a run with another config"),
        ({"seed": 1}, "a run with another config"),
        ({"trained_steps": 50}, "when the run had 50 steps, and now it has 100"),
        ({"state_digest": "1" * 64}, "steps of the run were trained again"),
        ({"state_digest": None}, "steps of the run were trained again"),
        ({"looks": []}, "its bounds are not within the limits"),
        (in_bound(upper=5.5), "its bounds are not within the limits"),
        (in_bound(upper=math.nan), "its bounds are not within the limits"),
        (in_bound(upper=-1), "its bounds are not within the limits"),
        (in_bound(limit=6.0), "it was edited"),
        (in_bound(estimate=7.0), "it was edited"),
        (in_bound(estimate=math.nan), "it was edited"),
        (in_look(certified=False), "it was edited"),
        (in_look(episodes=0), "it was edited"),
        (in_look(episodes=math.inf), "it was edited"),
        (in_look(reward="high"), "it was edited"),
        ({"certified": "no"}, "it was edited"),
        ({"certified": 1}, "it was edited"),
        ({"confidence": 5}, "it was edited"),
        ({"confidence": math.nan}, "it was edited"),
        ({"confidence": "0.95"}, "it was edited"),
        ({"step": 101}, "it was edited"),
        ({"step": True}, "it was edited"),
        ({"step": 79.5}, "it was edited"),
        (with_confidence(0.3), "its confidence is below 0.5"),
        ({"confidence": 0.9}, "it was edited"),
        ({"max_looks": 0}, "it was edited"),
        ({"max_looks": 10**9}, "it was edited"),
        (lambda record: record.update(looks=record["looks"] * 4), "it was edited"),
        (in_look(episodes=1), "it was edited"),
        (in_look(episodes=300), "it was edited"),
        (in_look(episodes=10**30), "it was edited"),
        (in_look(reward=1e300), "it was edited"),
        (in_bound(upper=0), "it was edited"),
        (in_bound(upper=3.9), "it was edited"),
        (in_bound(estimate=0.0, upper=0.01), "it was edited"),
        (in_bound(cost_bound=4.5), "it was edited"),
        (in_bound(cost_bound=None), "it was edited"),
        (in_bound(quantity="the CVaR of episode cost at tail 0.5"), "it was edited"),
        (in_bound(confidence=0.95), "it was edited"),
    ],
)
def test_a_certificate_of_another_run_or_time_is_ignored(tmp_path, changes, says):
    path = certified_run(tmp_path, changes)
    assert says in certificate_problem(path)
    assert valid_certificate(path) is None


def test_a_certificate_of_a_run_with_a_damaged_checkpoint_is_ignored(tmp_path):
    path = certified_run(tmp_path)
    manifest = path / "checkpoints" / "step-000000000100.json"
    manifest.write_text(manifest.read_text().replace("100", "101"))
    assert "every checkpoint of the run is damaged" in certificate_problem(path)
    write_manifest(path / "checkpoints", 50)
    assert "had 100 steps, and now it has 50" in certificate_problem(path)


@pytest.mark.parametrize(("step", "kept"), [(100, True), (99, False), (0, False)])
def test_a_certificate_is_deleted_if_the_run_goes_back(tmp_path, step, kept):
    path = certified_run(tmp_path)
    with RunDirectory.open(path) as run:
        messages = run.drop_certificate(step)
    assert (path / "certificate.json").exists() == kept
    assert [
        f"made at step 100 and the run goes back to step {step}." in m for m in messages
    ] == [True] * (not kept)


def test_a_certificate_with_another_limit_is_ignored(tmp_path):
    path = certified_run(tmp_path)
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("limit: 5.0", "limit: 4.9"))
    assert "a run with another config" in certificate_problem(path)


def test_more_steps_do_not_change_the_checksum_of_a_config(tmp_path):
    path = certified_run(tmp_path)
    before, config = config_checksum(path), read_config(path)
    config["training"] |= {"total_steps": 900, "schedule_steps": 800}
    with RunDirectory.open(path) as run:
        run.extend(config, 100, 900)
    assert config_checksum(path) == before


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_certificate_is_named_with_the_way_back(tmp_path, text):
    (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(ValueError, match=r"Delete it, and certify the run again\.$"):
        read_certificate(tmp_path)
