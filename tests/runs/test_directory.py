import errno
import json
import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from helpers.run_examples import make_state
from orac.runs import machine
from orac.runs.atomic_io import DiskError
from orac.runs.directory import (
    LOGS,
    RunDirectory,
    read_config,
    read_meta,
    run_path,
    safe_name,
)

CONFIG = {"algo": "orac", "tail": 0.05, "hidden": [64, 64], "limit": None}


def create(root, **changes):
    options = {"env_id": "maze", "algo": "orac", "seed": 0, "config": CONFIG, **changes}
    return RunDirectory.create(root, **options)


def test_a_run_is_laid_out_by_env_algo_name_and_seed(tmp_path):
    with create(tmp_path, env_id="ALE/Pong-v5", name="first-try", seed=7) as run:
        assert run.path == tmp_path / "ALE-Pong-v5" / "orac" / "first-try" / "seed-007"
        assert sorted(os.listdir(run.path)) == ["config.yaml", "lock", "meta.json"]
        assert run.config() == CONFIG
        assert run.checkpoints().directory == run.path / "checkpoints"


def test_a_run_says_what_it_ran_on(tmp_path):
    with create(tmp_path) as run:
        meta = read_meta(run.path)
    assert meta["versions"]["jax"] == jax.__version__
    assert meta["versions"]["numpy"] == np.__version__
    assert set(meta["versions"]) >= {"orac", "jaxlib", "gymnasium", "python"}
    assert meta["threads"] == len(os.sched_getaffinity(0))
    assert meta["cpu_count"] == os.cpu_count()
    assert meta["platform"]


def test_a_commit_is_that_of_the_repository_a_folder_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine._commit(tmp_path) is None

    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

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


def test_other_code_that_goes_on_with_a_run_is_noted(tmp_path, monkeypatch):
    commits = iter(["one", "one", "two", "two", "one"])
    monkeypatch.setattr(machine, "_commit", lambda _: next(commits))
    with create(tmp_path) as run:
        notes = []
        for _ in range(4):
            run.note_commit()
            notes.append(read_meta(run.path).get("resumed_at_commits"))
    assert notes == [None, ["two"], ["two"], ["two", "one"]]
    assert read_meta(run.path)["commit"] == "one"


def test_a_resume_elsewhere_is_told(tmp_path, monkeypatch):
    with create(tmp_path) as run:
        assert run.machine_differences() == []
        threads = len(os.sched_getaffinity(0))
        monkeypatch.setattr(machine, "count_threads", lambda: 99)
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert run.machine_differences() == [
            f"The run was started with threads {threads} and goes on with 99: it may "
            "not end bit-identical to an uninterrupted one.",
            "The run was started with OMP_NUM_THREADS unset and goes on with 3: it may "
            "not end bit-identical to an uninterrupted one.",
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
def test_an_id_without_letters_is_no_directory(text):
    with pytest.raises(ValueError, match="needs letters or digits"):
        safe_name(text)


@pytest.mark.parametrize(
    ("name", "better"),
    [("first try", "first-try"), ("a/b", "a-b"), ("../up", "up"), ("-x", "x")],
)
def test_two_names_never_mean_one_directory(tmp_path, name, better):
    with create(tmp_path, name=better):
        pass
    with pytest.raises(ValueError, match=f"got {name!r}. Try {better!r}"):
        create(tmp_path, name=name)


def test_seeds_are_not_negative(tmp_path):
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        run_path(tmp_path, "maze", "orac", -1, "x")


def test_a_second_run_in_one_place_is_refused_and_the_first_is_untouched(tmp_path):
    with create(tmp_path) as run:
        path = run.path
    with pytest.raises(FileExistsError, match=r"already holds a run. .*orac resume"):
        create(tmp_path, config={"other": 1})
    assert read_config(path) == CONFIG
    with RunDirectory.open(path) as again:
        assert again.config() == CONFIG


def test_a_start_that_was_killed_early_can_be_repeated(tmp_path):
    path = run_path(tmp_path, "maze", "orac", 0, "default")
    path.mkdir(parents=True)
    (path / "lock").write_text("process 1")
    (path / ".tmp-config.yaml").write_text("half")
    with create(tmp_path) as run:
        assert run.config() == CONFIG


def test_one_process_at_a_time(tmp_path):
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
from orac.runs.directory import RunDirectory
run = RunDirectory.open(sys.argv[1])
if "--fork" in sys.argv and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("locked", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("options", [[], ["--fork"]])
def test_a_killed_process_gives_its_run_back(tmp_path, options):
    """Also when a worker that it forked lives on."""
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


def test_a_path_under_a_file_is_a_readable_error(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(DiskError, match="a file stands where a directory is needed"):
        create(tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "a file"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "permission denied. Choose a directory you may write to"),
        (errno.EROFS, "the file system is read-only. Choose another directory"),
        (errno.ENOSPC, "the disk is full. What was saved before is intact"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_what_a_disk_refuses_is_said_in_a_sentence(
    tmp_path, monkeypatch, call, number, sentence
):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(DiskError) as caught:
            create(tmp_path)
    assert sentence in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.errno == number
    with create(tmp_path) as run:
        assert run.config() == CONFIG


def test_a_directory_that_is_no_run_is_said_to_be_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no run: it has no config\.yaml"):
        RunDirectory.open(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [1, 2", r"config\.yaml cannot be read"),
        ("just text", "must hold named values, found str"),
        ("!!python/object/apply:os.mkdir [exploded]", "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_broken_config_is_refused(tmp_path, monkeypatch, content, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        RunDirectory.open(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_config_that_yaml_cannot_hold_leaves_the_place_free(tmp_path):
    with pytest.raises(Exception, match="cannot represent"):
        create(tmp_path, config={"f": object()})
    with create(tmp_path) as run:
        assert run.config() == CONFIG


def test_logs_are_cut_back_to_the_checkpoint(tmp_path):
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
        run.cut_logs(loaded.extra["logs"])
        assert (path / "metrics.csv").read_text() == "step\n1\n"
        assert (path / "episodes.csv").read_text() == ""
        metrics = run.log("metrics", ["step"])
        metrics.append({"step": 2})
        assert run.log_sizes()["metrics"] == 9
        run.cut_logs({"metrics": 7})
        metrics.append({"step": 3})
    assert (path / "metrics.csv").read_text() == "step\n1\n3\n"


def test_a_log_that_is_not_open_is_measured_too(tmp_path):
    with create(tmp_path) as run:
        run.log("episodes", ["return"]).append({"return": 1})
    with RunDirectory.open(run.path) as run:
        assert run.log_sizes()["episodes"] == len("return\n1\n")


def test_a_run_without_a_checkpoint_starts_its_logs_again(tmp_path):
    with create(tmp_path) as run:
        run.log("metrics", ["step"]).append({"step": 1})
    with RunDirectory.open(run.path) as run:
        run.cut_logs({})
        run.log("metrics", ["step"]).append({"step": 9})
    assert (run.path / "metrics.csv").read_text() == "step\n9\n"


def test_lost_rows_are_noticed(tmp_path):
    with create(tmp_path) as run, pytest.raises(ValueError, match="rows are missing"):
        run.cut_logs({"metrics": 100})


def test_only_the_four_logs_exist_and_each_once(tmp_path):
    with create(tmp_path) as run:
        for name in LOGS:
            run.log(name, ["step"])
        with pytest.raises(ValueError, match="open already"):
            run.log("metrics", ["step"])
        with pytest.raises(ValueError, match="A run has the logs metrics, timings"):
            run.log("metric", ["step"])


def test_closing_twice_is_fine(tmp_path):
    run = create(tmp_path)
    run.log("metrics", ["step"])
    run.close()
    run.close()
    with RunDirectory.open(run.path):
        run.close()
        with pytest.raises(RuntimeError, match="in use"):
            RunDirectory.open(run.path)


def test_meta_is_plain_json(tmp_path):
    with create(tmp_path) as run:
        assert json.loads((run.path / "meta.json").read_text()) == read_meta(run.path)
        began = time.perf_counter()
        run.machine_differences()
        assert time.perf_counter() - began < 5
