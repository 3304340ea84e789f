"""Tests with random damage: reading gives the undamaged result, or an error of one sentence.

Each property damages files in random ways and reads them. The quick tests try some cases of
each property. `make fuzz` repeats them until ORAC_FUZZ_SECONDS have passed, and prints the
number of cases.
"""

import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

import orac.policy
from helpers.run_examples import assert_same_bits, make_replay, make_state
from helpers.synthetic_runs import make_config, write_run
from orac import envs
from orac.cli.main import is_user_error, main
from orac.config import serialization
from orac.config.schema import Config
from orac.core.agent import init
from orac.experiments.sweep import parse_grid
from orac.reports import report
from orac.reports.run_reader import read_columns, read_run
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory
from orac.training.saving import load_agent, save_agent
from orac.training.state import learner_for

SECONDS = float(os.environ.get("ORAC_FUZZ_SECONDS", 0))
CASES = 200 if SECONDS else 25

KINDS = (
    *("truncate", "flip", "insert", "zero", "number", "empty"),
    *("swap", "delete", "duplicate", "link", "pipe", "directory"),
)
IN_FILES = KINDS[:6]
"""Damage to the bytes of one file; the others concern whole files of a directory."""
NUMBERS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"-1", b"0", b"0.5", b"1e400", b"9" * 400),
    *(b".nan", b".inf", b"true", b"null", b'""', b"[]", b"{}", b"1" + b"0" * 12),
)
"""What a number in a text is replaced by."""


class Damage:
    """A drawn list of changes, which can be applied to bytes or to a directory."""

    def __init__(self, changes):
        self.changes = changes

    def __repr__(self):
        return f"Damage({self.changes})"

    def of_bytes(self, data: bytes) -> bytes:
        for kind, _, place, byte in self.changes:
            at = int(place * len(data))
            other = int(byte / 256 * len(data))
            low, high = min(at, other), max(at, other)
            if kind == "truncate":
                data = data[:at]
            elif kind == "insert":
                data = data[:at] + bytes([byte]) + data[at:]
            elif kind == "duplicate":
                data = data[:high] + data[low:high] + data[high:]
            elif kind == "delete":
                data = data[:low] + data[high:]
            elif kind == "zero":
                data = data[:low] + bytes(high - low) + data[high:]
            elif kind in ("empty", "directory"):
                data = b""
            elif kind == "number":
                number = NUMBERS[byte % len(NUMBERS)]
                data = data[:at] + re.sub(rb"-?\d[\d.e+-]*", number, data[at:], count=1)
            elif kind == "swap":
                data = data[high:] + data[low:high] + data[:low]
            elif data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ (byte or 1)]) + data[at + 1 :]
        return data

    def of_directory(self, folder: Path, victim: Path) -> None:
        for change in self.changes:
            kind, which, place, _ = change
            files = sorted(x for x in folder.rglob("*") if x.is_file())
            if not files:
                return
            file = files[int(which * len(files)) % len(files)]
            other = files[int(place * len(files)) % len(files)]
            if kind in IN_FILES:
                data = Damage([change]).of_bytes(file.read_bytes())
                file.unlink()
                file.write_bytes(data)
            elif kind == "swap":
                ours, theirs = file.read_bytes(), other.read_bytes()
                file.unlink()
                file.write_bytes(theirs)
                if other != file:
                    other.unlink()
                    other.write_bytes(ours)
            elif kind == "duplicate":
                data = file.read_bytes()
                file.with_name(f"{file.name}-copy").write_bytes(data)
            elif kind == "delete":
                file.unlink()
            elif kind == "directory":
                file.unlink()
                file.mkdir()
            elif kind == "link":
                file.unlink()
                file.symlink_to(victim)
            else:
                file.unlink()
                os.mkfifo(file)


fractions = st.floats(0, 1, exclude_max=True)
damages = st.lists(
    st.tuples(st.sampled_from(KINDS), fractions, fractions, st.integers(0, 255)),
    min_size=1,
    max_size=4,
).map(Damage)


def attempt(read):
    """Return what `read` returns, or None if it was refused in one sentence."""
    try:
        return read()
    except TypeCheckError:
        return None  # Only tests check the types of calls; the config checks its own.
    except Exception as error:
        assert is_user_error(error), f"{type(error).__name__}: {error}"
        message = str(error)
        assert message.strip() and "\n" not in message.strip()
        assert len(message) < 3000
        return None


CONFIG = serialization.dump(make_config())
GRID = "algos: [orac, wcsac]\nseeds: 2\nset: {agent.kappa: 0.5}\nvary: {agent.polyak: [0.1, 0.2]}\n"


def config_text(folder, damage):
    file = folder / "config.yaml"
    file.write_bytes(damage.of_bytes(CONFIG.encode()))
    config = attempt(lambda: serialization.load(file))
    if config is not None:
        assert isinstance(config, Config)
        assert serialization.parse(serialization.dump(config)) == config


def grid_text(folder, damage):
    file = folder / "grid.yaml"
    file.write_bytes(damage.of_bytes(GRID.encode()))

    def read():
        text = file.read_bytes().decode()
        return parse_grid(serialization.read_yaml(text, "the grid"))

    found = attempt(read)
    assert found is None or found[0].cases


def run_directory(folder, damage):
    path, victim = make_run(folder)
    damage.of_directory(path, victim)
    run = attempt(lambda: read_run(path))
    if run is not None and run.metrics:
        assert len({len(values) for values in run.metrics.values()}) == 1
    text = attempt(lambda: report.render([folder], "csv"))
    assert text is None or isinstance(text, str)

    def lock():
        with RunDirectory.open(path) as opened:
            return opened.path

    attempt(lock)
    assert victim.read_text() == "mine"


TEMPLATE_RUNS: dict[str, Path] = {}


def make_run(folder):
    """Copy a small run, and put a file beside it that nothing may change."""
    if "run" not in TEMPLATE_RUNS:
        root = Path(tempfile.mkdtemp())
        write_run(root, make_config(), evaluations=2, episodes=3)
        TEMPLATE_RUNS["run"] = root
    shutil.copytree(TEMPLATE_RUNS["run"], folder, dirs_exist_ok=True, symlinks=True)
    victim = folder.parent / f"{folder.name}-victim"
    victim.write_text("mine")
    return next(folder.rglob("config.yaml")).parent, victim


CAPACITY = 20


def checkpoints(folder, damage):
    saved = Checkpoints(folder / "checkpoints")
    for step in (10, 25):
        saved.save(step, make_state(step), make_replay(step, CAPACITY), {"step": step})
    victim = folder.parent / f"{folder.name}-victim"
    victim.write_text("mine")
    damage.of_directory(folder / "checkpoints", victim)
    template, empty = make_state(0), make_replay(0, CAPACITY)
    loaded = attempt(
        lambda: Checkpoints(folder / "checkpoints").load_latest(template, empty)
    )
    if loaded is not None:
        assert loaded.extra == {"step": loaded.step}
        assert_same_bits(loaded.state, make_state(loaded.step))
        assert_same_bits(loaded.replay, make_replay(loaded.step, CAPACITY))
    assert victim.read_text() == "mine"


CSV = "env_steps,reward,cost\n" + "".join(f"{i},{i / 7!r},\n" for i in range(20))


def csv_file(folder, damage):
    file = folder / "metrics.csv"
    file.write_bytes(damage.of_bytes(CSV.encode()))
    columns = attempt(lambda: read_columns(file))
    if columns:
        assert len({len(values) for values in columns.values()}) == 1


def exported_policy(folder, damage):
    file = folder / "policy.npz"
    np.savez(
        file,
        **{
            "num_layers": np.int64(2),
            "layer0/weight": np.ones((2, 3), np.float32),
            "layer0/bias": np.zeros(3, np.float32),
            "layer1/weight": np.full((3, 2), 0.1, np.float32),
            "layer1/bias": np.zeros(2, np.float32),
            "log_std_range": np.array([-5.0, 2.0]),
            "action_low": np.array([-1.0]),
            "action_high": np.array([1.0]),
        },
    )
    observation = np.ones(2, np.float32)
    action = orac.policy.load(file)(observation)
    file.write_bytes(damage.of_bytes(file.read_bytes()))
    found = attempt(lambda: orac.policy.load(file)(observation))
    assert found is None or np.array_equal(found, action)


def saved_monitor(folder, damage):
    file = folder / "monitor.json"
    good = orac.Monitor(5, 0.05, 0.95, 24)
    for cost in (1.0, 4.0, 20.0):
        good.update(cost)
    good.save(file)
    file.write_bytes(damage.of_bytes(file.read_bytes()))
    found = attempt(lambda: orac.Monitor.load(file))
    if found is not None:
        assert found.sentence() == good.sentence()
        assert found.update(7.0) == good.update(7.0)
        assert found.cvar_bounds == good.cvar_bounds


@cache
def agent_bytes():
    """Return the file of a small agent that was not trained, and its parameters."""
    config = make_config("sac-lag", changes=["agent.hidden_sizes=[8, 8]"])
    env = envs.make(config.env.id)
    learner = learner_for(env.spec, config)
    state = init(jax.random.key(0), learner)
    with tempfile.TemporaryDirectory() as folder:
        save_agent(Path(folder) / "agent", config, env.spec, state)
        return (Path(folder) / "agent").read_bytes(), state


def saved_agent(folder, damage):
    data, state = agent_bytes()
    file = folder / "agent"
    file.write_bytes(damage.of_bytes(data))
    found = attempt(lambda: load_agent(file))
    if found is not None:
        assert_same_bits(found[1], state)


def command_line(folder, damage):
    file = folder / "grid.yaml"
    file.write_bytes(damage.of_bytes(CONFIG.encode()))
    with suppress(TypeCheckError):
        assert main(["config", "--config", str(file)]) in (0, 1)


PROPERTIES = (
    config_text,
    grid_text,
    run_directory,
    checkpoints,
    csv_file,
    exported_policy,
    saved_monitor,
    saved_agent,
    command_line,
)


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_damage_gives_the_same_result_or_one_sentence(check, capsys):
    tried = 0

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(damages)
    def case(damage):
        nonlocal tried
        tried += 1
        with tempfile.TemporaryDirectory() as folder:
            inside = Path(folder) / "inside"
            inside.mkdir()
            check(inside, damage)

    started, number = time.monotonic(), 0
    while number == 0 or time.monotonic() - started < SECONDS / len(PROPERTIES):
        seed(number if not SECONDS else time.time_ns())(case)()
        number += 1
    with capsys.disabled():
        if SECONDS:
            print(f"\n{check.__name__}: {tried:,} cases")
