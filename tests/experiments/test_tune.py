"""Tests of `orac tune`: search spaces, the study, and what it writes."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from helpers.browser import CHROMIUM, open_page
from orac.cli.main import main
from orac.config import overrides, presets, serialization
from orac.experiments import tune
from orac.experiments.launcher.processes import Processes
from orac.experiments.search_space import parse_space, space_of, value_in
from orac.experiments.tune import TuneOptions
from orac.runs.directory import RunInUse, acquire_lock, release_lock

FAKE = (sys.executable, str(Path(__file__).parents[1] / "helpers" / "fake_trial.py"))
CONFIG = overrides.override(
    presets.preset("orac", "orac/GuardedMaze-v0", "fast"),
    ["training.total_steps=600", "agent.kappa=1.5"],
)
SPACE = {
    "agent.kappa": {"low": 0.5, "high": 3},
    "agent.polyak": {"low": 0.01, "high": 1, "log": True},
}
"""The limit is 5, so trials with a polyak above 0.5 are above the limit."""


def run_tune(out, config=CONFIG, space=None, **options):
    """Run a study with the fake trials; return its exit code and what it logged."""
    lines = []
    parsed = parse_space(SPACE if space is None else space, config)
    code = tune.tune(
        config,
        parsed,
        TuneOptions(out, **{"trials": 3, "jobs": 2} | options),
        lines.append,
        Processes(options.get("jobs", 2), program=FAKE),
    )
    return code, "\n".join(lines)


def stored_trials(out, name="orac-GuardedMaze-v0-orac", storage=None):
    optuna = tune.import_optuna()
    url = storage or f"sqlite:///{out / 'study.db'}"
    return optuna.load_study(study_name=name, storage=url).trials


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the folder of a study of 16 trials, and what it logged."""
    out = tmp_path_factory.mktemp("tune") / "study"
    code, text = run_tune(out, trials=16)
    assert code == 0
    return out, text


def test_best_config_has_the_highest_reward_within_the_limit(study):
    out, text = study
    best = serialization.load(out / "best.yaml")
    trials = [t for t in stored_trials(out) if t.state.name == "COMPLETE"]
    feasible = [t for t in trials if t.user_attrs["risks"][0] <= 5]
    infeasible = [t for t in trials if t.user_attrs["risks"][0] > 5]
    winner = max(feasible, key=lambda t: t.value)
    assert infeasible and len(feasible) > 2
    assert best.agent.kappa == winner.params["agent.kappa"]
    assert best.agent.polyak == winner.params["agent.polyak"]
    assert 10 * best.agent.polyak <= 5
    assert best.seed == CONFIG.seed and best.training == CONFIG.training
    assert all(t.constraints["cost"] > 0 for t in infeasible)
    assert f"orac train --config {out / 'best.yaml'}" in text


@pytest.mark.parametrize("shared", [False, True])
def test_a_trial_that_was_killed_before_its_start_does_not_count(tmp_path, shared):
    out, storage = tmp_path / "study", f"sqlite:///{tmp_path / 'shared.db'}"
    options = {"storage": storage} if shared else {}
    assert run_tune(out, trials=1, **options)[0] == 0
    study = tune.import_optuna().load_study(
        study_name="orac-GuardedMaze-v0-orac",
        storage=storage if shared else f"sqlite:///{out / 'study.db'}",
    )
    study.ask()  # and the process is killed
    code, _ = run_tune(out, trials=3, **options)
    states = [t.state.name for t in stored_trials(out, **options)]
    lost = "RUNNING" if shared else "COMPLETE"
    assert (
        code == 0
        and states == ["COMPLETE", lost, "COMPLETE", "COMPLETE"][: len(states)]
    )
    assert states.count("COMPLETE") == 3


def change_database(out, *statements):
    with closing(sqlite3.connect(out / "study.db")) as database, database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0


ATTRIBUTES = {
    "risks": [None, '"x"', "[NaN]", "[1.0, 2.0]", '["x"]', "7", "[]"],
    "reward": [None, "NaN", '"high"', "true"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key in ATTRIBUTES for value in ATTRIBUTES[key]]
)
def test_a_trial_with_unusable_results_is_left_out(study, tmp_path, key, value):
    out = tmp_path / "study"
    shutil.copytree(study[0], out)
    best = serialization.load(out / "best.yaml").agent.kappa
    trials = [t for t in stored_trials(out) if t.state.name == "COMPLETE"]
    trial = next(t for t in trials if t.params["agent.kappa"] == best)
    where = f"WHERE trial_id = {trial._trial_id} AND key = '{key}'"
    change = "DELETE FROM trial_user_attributes"
    if value is not None:
        change = f"UPDATE trial_user_attributes SET value_json = '{value}'"
    change_database(out, f"{change} {where}")
    code, text = run_tune(out, trials=16)
    assert code == 0
    assert serialization.load(out / "best.yaml").agent.kappa != best
    assert "1 finished trial left out, because the reward, the risks or the" in text


@pytest.mark.parametrize("missing", [["token"], ["settings"], ["token", "settings"]])
def test_a_study_that_was_killed_before_its_first_trial_starts(tmp_path, missing):
    out = tmp_path / "study"
    out.mkdir()
    config = CONFIG, parse_space(SPACE, CONFIG), TuneOptions(out)
    tune.open_study(tune.import_optuna(), *config)
    names = ", ".join(map(repr, missing))
    change_database(out, f"DELETE FROM study_user_attributes WHERE key IN ({names})")
    assert run_tune(out, trials=1)[0] == 0
    assert run_tune(out, trials=2)[0] == 0 and len(stored_trials(out)) == 2


@pytest.mark.parametrize("key", ["token", "settings"])
@pytest.mark.parametrize("value", [None, "[1]", "null", "{"])
def test_a_study_without_usable_settings_is_refused(study, tmp_path, key, value):
    out = tmp_path / "study"
    shutil.copytree(study[0], out)
    change = "DELETE FROM study_user_attributes"
    if value is not None:
        change = f"UPDATE study_user_attributes SET value_json = '{value}'"
    change_database(out, f"{change} WHERE key = '{key}'")
    before = (out / "tune.yaml").read_text()
    wrong = "must have the settings and the token|has the trials of another study"
    with pytest.raises(ValueError, match=f"{wrong}|must be a database of `orac tune`"):
        run_tune(out, trials=16)
    assert (out / "tune.yaml").read_text() == before


def test_a_folder_in_use_is_not_changed(study, tmp_path):
    out = tmp_path / "study"
    out.mkdir()
    lock = acquire_lock(out)
    try:
        with pytest.raises(RunInUse):
            run_tune(out)
    finally:
        release_lock(lock)
    assert [path.name for path in out.iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "runs"])
def test_a_symbolic_link_in_the_folder_is_not_written_through(tmp_path, name):
    victim, out = tmp_path / "victim", tmp_path / "study"
    out.mkdir()
    (out / name).symlink_to(victim)
    with pytest.raises(ValueError, match=f"{name} must not be a symbolic link"):
        run_tune(out)
    assert not victim.exists() and [path.name for path in out.iterdir()] == [name]


def test_first_trial_has_the_settings_of_the_config(study):
    first = stored_trials(study[0])[0]
    assert first.params == {"agent.kappa": 1.5, "agent.polyak": 0.02}


def test_every_trial_trains_with_another_seed(study):
    seeds = {path.parent.name for path in study[0].glob("runs/*/*/*/*/config.yaml")}
    assert len(seeds) == 16


def test_table_lists_the_trials_within_the_limit_best_first(study):
    table = study[1].partition("Trials within the limits: orac in")[2]
    rows = [line.split() for line in table.splitlines()[2:]]
    rows = [row for row in rows if row and row[0].isdigit()]
    rewards, risks = ([float(row[i]) for row in rows] for i in (1, 2))
    assert len(rows) > 2 and rewards == sorted(rewards, reverse=True)
    assert max(risks) <= 5
    assert "finished above a limit" in table


def test_page_has_a_slice_of_every_parameter_and_no_address(study):
    page = (study[0] / "tune.html").read_text()
    head = page.partition("<script>")[0]
    assert "Reward and risk of cost" in head
    assert "Reward by kappa" in head and "Reward by polyak" in head
    assert '"type":"log"' in head and "within the limits" in head
    assert "http" not in head.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_page_is_drawn_in_a_browser(study, tmp_path):
    seen = open_page(study[0] / "tune.html", tmp_path)
    assert not seen["errors"] and not seen["refused"] and not seen["requests"]
    assert [chart["title"] for chart in seen["charts"]] == [
        "Reward and risk of cost",
        "Reward by kappa",
        "Reward by polyak",
    ]
    assert min(chart["marks"] for chart in seen["charts"]) > 5


def test_hopeless_trials_are_stopped_early(tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "STARTUP_TRIALS", 2)
    space = {"agent.kappa": {"low": 0.5, "high": 30}}
    _, text = run_tune(tmp_path / "study", space=space, trials=7, jobs=2)
    pruned = [t for t in stored_trials(tmp_path / "study") if t.state.name == "PRUNED"]
    assert pruned, text
    for trial in pruned:
        assert 200 <= max(trial.intermediate_values) < 600
    assert f"{len(pruned)} pruned" in text and "worse than most" in text


def test_trial_that_fails_does_not_end_the_study(tmp_path):
    space = {"agent.n_step": [3, 7]}
    _, text = run_tune(tmp_path / "study", space=space, trials=6)
    trials = stored_trials(tmp_path / "study")
    failed = [t for t in trials if t.state.name == "FAIL"]
    assert len(trials) == 6 and 0 < len(failed) < 6
    sentence = "ArithmeticError: the loss is not finite at step 300."
    assert f"Trial {failed[0].number} failed: {sentence}" in text
    assert sentence in failed[0].user_attrs["error"]


def test_trial_whose_process_is_killed_continues(tmp_path):
    space = {"agent.n_step": [3, 5]}
    code, text = run_tune(tmp_path / "study", space=space, trials=4)
    states = [trial.state.name for trial in stored_trials(tmp_path / "study")]
    assert code == 0 and set(states) == {"COMPLETE"}
    assert "was killed and continues" in text
    assert " 100\n" in (tmp_path / "study" / "runs" / "journal").read_text()


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from experiments.test_tune import run_tune
from pathlib import Path
code, text = run_tune(Path({out!r}), trials=3, jobs=2)
print(text)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_same_command_continues_the_study(tmp_path, number):
    out = tmp_path / "study"
    program = SCRIPT.format(tests=str(Path(__file__).parents[1]), out=str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAKE_TRIAL_SECONDS": "1"},
    )
    journal = out / "runs" / "journal"
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*/*/*/*/metrics.csv")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130, printed
        assert "Run the same command again to continue it." in printed

    # The workers see that their parent is gone, and save.
    def saved():
        files = out.glob("runs/*/*/*/*/saved")
        return {path.parts[-3]: int(path.read_text() or -1) for path in files}

    begun = {line.split()[0] for line in journal.read_text().splitlines()}
    while set(saved()) < begun or min(saved().values()) < 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before, lines = saved(), len(journal.read_text().splitlines())
    assert max(before.values()) > 0
    code, text = run_tune(out, trials=3)
    assert code == 0, text
    trials = stored_trials(out)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    later = [line.split() for line in journal.read_text().splitlines()[lines:]]
    # Those that had begun continue where they stopped instead of starting again.
    assert {name: int(step) for name, step in later if name in before} == before
    # Nothing is left to do, and the results are the same.
    best = (out / "best.yaml").read_text()
    assert run_tune(out, trials=3)[0] == 0
    assert (out / "best.yaml").read_text() == best and len(stored_trials(out)) == 3


def test_two_machines_share_a_study(tmp_path):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    for name, trials in (("one", 3), ("two", 6)):
        code, _ = run_tune(tmp_path / name, trials=trials, storage=storage)
        assert code == 0
    trials = stored_trials(tmp_path, storage=storage)
    assert len(trials) == 6
    assert len({trial.params["agent.kappa"] for trial in trials}) == 6
    assert not (tmp_path / "two" / "study.db").exists()
    assert len(list((tmp_path / "two").glob("runs/*/*/trial-*"))) == 3
    # The best of both is written on both.
    best = max(
        (t for t in trials if t.user_attrs["risks"][0] <= 5), key=lambda t: t.value
    )
    assert (
        serialization.load(tmp_path / "two" / "best.yaml").agent.kappa
        == (best.params["agent.kappa"])
    )


def test_study_without_feasible_trials_has_no_best_config(tmp_path):
    space = {"agent.polyak": {"low": 0.6, "high": 1}}
    code, text = run_tune(tmp_path / "study", space=space)
    assert code == 1 and not (tmp_path / "study" / "best.yaml").exists()
    assert "No trial is within its limits" in text
    assert "is nearest, risk" in text and "is outside the space" in text


def test_agent_without_constraints_is_tuned_for_reward(tmp_path):
    config = overrides.override(
        presets.preset("sac", "orac/GuardedMaze-v0", "fast"),
        ["training.total_steps=600"],
    )
    code, text = run_tune(tmp_path / "study", config=config, trials=2)
    assert code == 0 and "Trials finished: sac" in text


def test_another_config_or_folder_is_refused(study, tmp_path):
    out = study[0]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    other = overrides.override(CONFIG, ["training.batch_size=32"])
    with pytest.raises(
        ValueError, match=r"training.batch_size is 32 now and 128 in the"
    ):
        run_tune(out, config=other)
    with pytest.raises(ValueError, match=r"the space of agent.polyak is None now"):
        run_tune(out, space={"agent.kappa": SPACE["agent.kappa"]})
    with pytest.raises(ValueError, match="has the trials of another study or database"):
        run_tune(out, storage=f"sqlite:///{tmp_path / 'other.db'}")
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert {p: t for p, t in after.items() if p.name not in ("lock", "study")} == {
        p: t for p, t in before.items() if p.name not in ("lock", "study")
    }


@pytest.mark.parametrize("kind", presets.PRESETS)
@pytest.mark.parametrize("algo", ["orac", "wcsac", "sac-lag", "sac"])
def test_every_space_has_the_values_of_its_presets(kind, algo):
    ids = ["orac/GuardedMaze-v0", "orac/CityLearn-v0", "orac/SafetyPointGoal1-v0"]
    for env_id in ["Pendulum-v1"] if kind == "general" else ids:
        config = presets.preset(algo, env_id, kind)
        space = space_of(config, kind, None)
        fields = [field for parameter in space for field in parameter.fields]
        assert any("exploration" in f for f in fields) == (algo == "orac")
        assert any("multiplier" in f for f in fields) == (algo != "sac")
        outside = [p.name for p in space if value_in(config, p) is None]
        assert not outside, (env_id, outside)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ([1], "a space must be a mapping of config fields to values"),
        ({}, "a space must be a mapping"),
        ({"agent.kapa": [1, 2]}, "a field of agent .* Did you mean 'kappa'"),
        ({"agent.kappa": [1]}, "must be at least two different values"),
        ({"agent.kappa": [1, 1]}, "must be at least two different values"),
        ({"agent.kappa": 3}, "must have a list of choices, or a range"),
        ({"agent.kappa": {"low": 2, "high": 1}}, "must have numbers low < high"),
        ({"agent.kappa": {"low": 0, "high": 1}}, "agent.kappa must be above 0"),
        (
            {"agent.kappa": {"low": 0, "high": 1, "log": True}},
            "a logarithmic range must be above 0",
        ),
        ({"agent.kappa": {"low": 1, "hihg": 2}}, "Did you mean 'high'"),
        ({"agent.kappa": {"low": 1, "high": 2, "log": "no"}}, "must be true or false"),
        (
            {"agent.n_step": {"low": 1.5, "high": 3, "whole": True}},
            "a range of whole numbers must start and end with a whole number",
        ),
        ({"agent.n_step": {"low": 1, "high": 300, "whole": True}}, "at most 100"),
        ({"agent.kappa": [1, 2], "agent.kappa, agent.polyak": [0.1, 1]}, "it twice"),
        ({"constraints.0.limit": [1, 2]}, "must be the same for all trials"),
        ({"training.total_steps": [100, 200]}, "must be the same for all trials"),
        ({"seed": [1, 2]}, "must be the same for all trials"),
    ],
)
def test_mistakes_in_a_space_raise(space, message):
    with pytest.raises(ValueError, match=message):
        parse_space(space, CONFIG)


def test_space_of_fields_that_the_agent_does_not_use_raises():
    config = presets.preset("wcsac", "orac/GuardedMaze-v0", "fast")
    space = {"agent.exploration.shift_radius": [1, 2]}
    with pytest.raises(ValueError, match="at least one field that wcsac uses"):
        parse_space(space, config)


def test_whole_range_gives_whole_numbers(tmp_path):
    space = {"agent.num_quantiles": {"low": 8, "high": 16, "whole": True}}
    config = overrides.override(CONFIG, ["agent.num_quantiles=8"])
    code, _ = run_tune(tmp_path / "study", config=config, space=space, trials=2)
    assert code == 0
    values = [
        t.params["agent.num_quantiles"] for t in stored_trials(tmp_path / "study")
    ]
    assert all(isinstance(value, int) for value in values)


MAZE = ("tune", "--env-id", "orac/GuardedMaze-v0", "--preset", "fast")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials must be a whole number of at least 1"),
        (["--jobs", "0"], "--jobs must be a whole number of at least 1"),
        (["--threads", "0"], "--threads must be a whole number of at least 1"),
        (["--budget", "0"], "--budget must be above 0, got 0.0."),
        (["--episodes", "0"], "--episodes must be a whole number of at least 1"),
        (["--space", "none.yaml"], "the space none.yaml cannot be read"),
        (["--cost-fn", "no_module:f"], "no_module"),
        (["--set", "env.params.guard=1"], "guard_probability"),
        (["--out", "full"], "--out must be a new folder or one of an earlier"),
        (["--storage", "nonsense"], "--storage must be the URL of a database"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_written(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert main([*MAZE, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "mine.txt"]
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


SPEED = """
def fast(observation, action, next_observation, info):
    return float(abs(next_observation[2]) > 6.0)
"""
SMALL = [
    *("--total-steps", "600", "--set", "training.learning_starts=200"),
    *("--set", "training.log_every=200", "--set", "training.batch_size=32"),
    *("--set", "training.buffer_size=1000", "--set", "agent.num_quantiles=8"),
    *("--set", "evaluation.every=200", "--set", "evaluation.episodes=2"),
]


@pytest.mark.slow
def test_real_trials_in_a_users_environment(tmp_path):
    (tmp_path / "speed.py").write_text(SPEED)
    (tmp_path / "space.yaml").write_text("agent.actor_learning_rate: [1e-4, 1e-3]\n")
    orac = [sys.executable, "-m", "orac"]
    command = [
        *("tune", "--env-id", "Pendulum-v1", "--cost-fn", "speed:fast"),
        *("--cost-limit", "200", "--trials", "2", "--jobs", "2", "--episodes", "3"),
        *("--space", "space.yaml", *SMALL),
    ]
    done = subprocess.run(
        [*orac, *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    best = "tune/Pendulum-v1-orac/best.yaml"
    advice = f"Train with it: orac train --config {best} --cost-fn speed:fast"
    assert advice in done.stdout
    trained = subprocess.run(
        [*orac, *advice.split()[4:], "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "Done: runs/Pendulum-v1/orac/default/seed-000" in trained.stdout
