"""The program's words: what they print, and what they say when they are wrong."""

import csv
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from helpers.command_examples import ENV, train_words
from orac.api import Agent
from orac.cli.main import main, make_parser
from orac.cli.train import finish
from orac.config import presets
from orac.config import serialization as config_text
from orac.reports.run_reader import read_columns
from orac.runs.directory import run_path

TINY = train_words(800, 400)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    assert (
        main(["train", "--algo=wcsac", f"--env-id={ENV}", f"--out={out}", *TINY]) == 0
    )
    return run_path(out, ENV, "wcsac", 0, "default")


def test_a_run_directory_holds_what_it_promises(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "meta.json", "metrics.csv", "timings.csv"} <= names
    assert {"episodes.csv", "evaluations.csv", "tensorboard", "checkpoints"} <= names
    header, *rows = (run / "evaluations.csv").read_text().splitlines()
    assert header.startswith("env_steps,episode,reward,cost,length")
    assert len(rows) == 20, "two evaluations of ten episodes, one row each"
    metrics = (run / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/cumulative_cost", "train/violations_cost"} <= set(metrics)


def test_what_was_not_measured_yet_is_an_empty_cell(run):
    with open(run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert "nan" not in (run / "metrics.csv").read_text()
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
    columns = read_columns(run / "metrics.csv")
    risks = columns["constraint/risk/cost"]
    assert np.isnan(risks).tolist() == [True, True, False, False, False]


def test_a_run_that_will_not_learn_is_told_once(tmp_path, capsys, monkeypatch):
    # Warnings are errors in these tests: the note must be all there is.
    monkeypatch.setattr(Agent, "_train", lambda agent, records, *_: records.close())
    words = ["train", f"--env-id={ENV}", f"--out={tmp_path}", *TINY]
    assert main([*words, "--total-steps=400"]) == 130
    told = capsys.readouterr()
    assert (
        "  note: learning starts at step 400 and the run ends at 400: it only acts at "
        "random. Set training.learning_starts lower, or train longer.\n"
    ) in told.out
    assert not told.err


def test_evaluate_prints_risk_and_a_certificate(run, capsys):
    assert (
        main(["evaluate", str(run), "--episodes=50", "--certify", "--tails", "0.5"])
        == 0
    )
    told = capsys.readouterr().out
    for word in (
        "reward/mean",
        "cost/cvar_0.05",
        "cost/cvar_0.5",
        "cost/violation_rate",
    ):
        assert word in told
    assert "with 95 % confidence the CVaR at 0.05 of episode cost" in told
    assert "with 95 % confidence an episode's cost exceeds the limit with" in told


def test_evaluate_speaks_json(run, capsys):
    assert main(["evaluate", str(run), "--episodes=5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 5


def test_evaluate_films_an_episode(run, tmp_path, capsys):
    film = tmp_path / "new" / "episode.gif"
    assert main(["evaluate", str(run), "--episodes=2", f"--video={film}"]) == 0
    assert film.read_bytes()[:3] == b"GIF"


def test_a_seed_draws_other_episodes_of_a_run(run, tmp_path, capsys):
    def guards(*words):
        out = tmp_path / str(len([*tmp_path.iterdir()]))
        words = ["evaluate", str(run), "--episodes=40", f"--out={out}", *words]
        assert main(words) == 0
        (path,) = out.rglob("evaluations.csv")
        return read_columns(path)["guard_present"].tolist()

    own, other = guards(), guards("--seed=1")
    assert own == guards() and other == guards("--seeds", "1")
    assert own != other
    path = next((tmp_path / "1").rglob("meta.json"))
    assert json.loads(path.read_text())["evaluated"]["episodes_of_seed"] == 1


def test_a_rule_is_evaluated_like_an_agent(capsys):
    words = ["evaluate", "--rule=long_path", f"--env-id={ENV}", "--episodes=200"]
    assert main([*words, "--certify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cost/cvar_0.05"] == 4 and told["cost/violation_rate"] == 0
    risk, violations = told["certificates"]
    assert "not certified" in risk, "200 episodes are too few"
    # 1 - 0.05 ** (1 / 200) is 0.01487.
    assert violations == (
        "with 95 % confidence an episode's cost exceeds the limit with probability at most "
        "0.0149 (limit 5, exceeded by 0 of 200 episodes)"
    )


def test_the_same_run_is_not_started_twice(run, capsys):
    out = run.parents[3]
    words = ["train", "--algo=wcsac", f"--env-id={ENV}", f"--out={out}", *TINY]
    assert main(words) == 1
    assert "already holds a run" in capsys.readouterr().err


def test_config_prints_yaml_and_what_was_changed(capsys):
    assert main(["config", "--algo=orac", "--tail=0.1", "--set=agent.kappa=0.5"]) == 0
    told = capsys.readouterr().out
    config = config_text.from_dict(yaml.safe_load(told))
    assert config.agent.kappa == 0.5 and config.constraints[0].tail == 0.1
    assert "#   agent.kappa: 1.0 -> 0.5" in told


def test_a_printed_config_can_be_given_back(tmp_path, capsys):
    main(["config", "--algo=wcsac-lin", "--seed=3"])
    file = tmp_path / "config.yaml"
    file.write_text(capsys.readouterr().out)
    main(["config", f"--config={file}"])
    assert "# as the preset has it" in capsys.readouterr().out


def test_help_of_train_has_the_sentence_of_every_field(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["train", "--help"])
    told = capsys.readouterr().out
    for name, sentence in config_text.field_sentences().items():
        assert name in told and sentence in told


def test_agents_and_envs_are_listed(capsys):
    main(["agents"])
    main(["envs"])
    told = capsys.readouterr().out
    assert all(name in told for name in presets.ALGORITHMS)
    assert ENV in told and "orac/SafetyPointGoal1-v0" in told


def test_the_doctor_names_the_line_that_installs_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("orac.cli.doctor.find_spec", lambda name: None)
    monkeypatch.setattr("orac.cli.doctor.missing", lambda: ("mujoco", "glfw"))
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert 'pip install "orac-rl[plots]"' in told
    assert "safety       missing (mujoco, glfw): Safety-Gymnasium" in told
    assert "    pip install --no-deps safety-gymnasium==1.0.0\n" in told


WRONG = [
    (["train", "--algo=orak"], "Did you mean 'orac'?"),
    (["train", "--env-id=orac/GuardedMaze-v1"], "GuardedMaze-v0"),
    (["train", "--env-id=Pendulum-v9"], "Pendulum"),
    (["train", "--tail=0"], "must be a tail in (0, 1]"),
    (["train", "--tail=2"], "worst-case mass"),
    (["train", "--cost-limit=-1"], "must be at least 0, got -1"),
    (
        ["train", "--num-envs=0"],
        "training.num_envs must be a whole number of at least 1",
    ),
    (["train", "--total-steps=-5"], "training.total_steps must be a whole number"),
    (["train", "--num-envs=7", "--set=training.gradient_steps=0.3"], "whole number"),
    (["train", "--set=agent.kapa=1"], "Did you mean 'kappa'?"),
    (["train", "--set=agent.kappa"], "must look like agent.kappa=0.5"),
    (
        ["train", "--set=agent.kappa=banana"],
        "agent.kappa must be a number, got 'banana'",
    ),
    (["train", "--set=agent.risk_form=iqn"], "agent.risk_form must be one of scalar"),
    (["train", "--set=agent.hidden_sizes=[]"], "agent.hidden_sizes must have at least"),
    (["train", "--set=agent.num_cost_critics=0"], "agent.num_cost_critics must be"),
    (["train", "--set=constraints.0.risk=cvarr"], "Did you mean 'cvar'?"),
    (["train", "--set=env.params.guard=0.2"], "guard"),
    (["train", "--set=env.params.guard_probability=2"], "guard_probability"),
    (["train", "--config=/nowhere.yaml"], "/nowhere.yaml"),
    (["train", "--seed=-1"], "seed must be a whole number of at least 0"),
    (["train", "--name=first try"], "Try 'first-try'"),
    (["train", "--set=algo=orak"], "Did you mean 'orac'?"),
    (["train", "--set=algo=wcsac-lin"], "its algo is 'orac-iqn'"),
    (["train", "--set=agent.behaviour=actor"], "its algo is 'wcsac-iqn'"),
    (["train", "--algo=sac", "--tail=0.1"], "an entry of constraints"),
    (["train", "--set=constraints.0.name=a/b"], "It heads columns"),
    (["train", "--set=constraints.1.limit=5"], "an entry of constraints must be one"),
    (["train", "--set=constraints.0.risk=wang"], "Set risk_parameter"),
    (["train", "--set=agent.discount=1.5"], "agent.discount must be in (0, 1]"),
    (["train", "--set=agent.polyak=0"], "agent.polyak must be in (0, 1]"),
    (["train", "--set=agent.kappa=.nan"], "agent.kappa must be above 0, got nan"),
    (["train", "--set=agent.hidden_sizes=64"], "agent.hidden_sizes must be a list"),
    (["train", "--set=agent.hidden_sizes=8,8"], "got '8,8'. Write [8,8]."),
    (["train", "--set=training.batch_size=2.5"], "must be a whole number, got 2.5"),
    (["train", "--set=training.buffer_size=0"], "of at least 1, got 0"),
    (["train", "--set=evaluation.episodes=none"], "evaluation.episodes must be"),
    (["train", "--set=env.params.step_scale=0"], "no action would move the agent"),
    (["train", "--set=env.params.red_cost=-1"], "a number of at least 0, got -1"),
    (["train", "--set=agent=[1, 2"], "must be YAML"),
    (["train", "--env-id=CartPole-v1"], "continuous"),
    (["train", "--env-id=Pendulum-v1"], "cost_fn="),
    (["train", "--env-id=no.such.module:Name-v0"], "which cannot be imported"),
    (["train", "--env-id=Pendulum-v1", "--cost-fn=too_fast"], "my_costs:too_fast"),
    (["train", "--env-id=Pendulum-v1", "--cost-fn=math:pi"], "but it is a float"),
    (["train", "--set=env.cost_fn=my:cost"], "is not imported unasked"),
    (["resume", "/nowhere"], "/nowhere"),
    (["evaluate", "/nowhere"], "/nowhere"),
    (["evaluate"], "needs a RUN or a --rule"),
    (["evaluate", "--rule=no", "--confidence=0.99"], "Add --certify, or leave it out"),
    (["evaluate", "--rule=no", "--certify", "--confidence=95"], "It is a fraction"),
    (
        ["evaluate", "--rule=no", "--episodes=1000000000"],
        "at most 10,000,000, got 1,000",
    ),
    (["evaluate", "--rule=no", "--episodes=0"], "episodes must be at least 1 and"),
    (["evaluate", "/nowhere", "--video=a.xyz"], "written as .gif or .mp4, got 'a.xyz'"),
    (["evaluate", "/nowhere", "--seeds", "1", "2"], "of one seed, got --seeds 1 2."),
    (["evaluate", "/nowhere", "--set=seed=1"], "--set is for a --rule"),
    (
        ["report", "/nowhere", "--out=x.pdf"],
        "end in .html, .md, .tex, .csv; got 'x.pdf'",
    ),
    (
        ["report", "/nowhere", "--out=x.html", "--format=csv"],
        "must end in .csv, as its format is csv; got 'x.html'",
    ),
    (["evaluate", "--rule=thermostatt"], "Did you mean 'thermostat'?"),
    (["evaluate", "--rule=thermostat", "--env-id=Pendulum-v1"], "that has rules"),
]


def test_the_table_of_wrong_words_is_long():
    assert len(WRONG) >= 45


@pytest.mark.parametrize(
    ("words", "fragment"), WRONG, ids=[" ".join(w[0]) for w in WRONG]
)
def test_a_wrong_word_gets_one_line_that_says_what_to_do(
    words, fragment, capsys, tmp_path
):
    if words[0] == "train":
        words = [*words, f"--out={tmp_path}"]
    assert main(words) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"orac {words[0]}: ") and errors.count("\n") == 1
    assert fragment in errors


def test_an_unwritable_directory_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("not a directory")
    words = ["train", "--algo=wcsac", f"--env-id={ENV}", *TINY]
    assert main([*words, f"--out={tmp_path / 'file' / 'runs'}"]) == 1
    assert "file" in capsys.readouterr().err


def test_a_truncated_saved_agent_is_refused(run, tmp_path, capsys):
    foreign = tmp_path / "agent.zip"
    foreign.write_bytes(b"not a zip")
    assert main(["evaluate", str(foreign)]) == 1
    assert "written by Agent.save" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["train", "--device=gpu", f"--out={tmp_path}", *TINY]) == 1
    told = capsys.readouterr().err
    assert "--device must be one that JAX finds here (cpu), got gpu" in told
    assert not [*tmp_path.iterdir()]


def test_a_missing_tracker_leaves_nothing_behind(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    words = ["train", f"--env-id={ENV}", f"--out={tmp_path}", *TINY]
    assert main([*words, "--track=wandb"]) == 1
    assert "pip install 'orac-rl[wandb]'" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_steps_may_be_written_as_people_write_them():
    for text in ("100000", "100_000", "1e5"):
        options = make_parser().parse_args(["train", f"--total-steps={text}"])
        assert options.total_steps == 100_000
    for text in ("1.5", "many", "inf", "nan"):
        with pytest.raises(SystemExit):
            make_parser().parse_args(["train", f"--total-steps={text}"])


def test_a_config_that_is_not_there_is_told_in_a_sentence(capsys):
    assert main(["config", "--config=nowhere.yaml"]) == 1
    assert "the config nowhere.yaml cannot be read" in capsys.readouterr().err


def test_a_finished_run_says_so(run, capsys):
    assert main(["resume", str(run), "--quiet"]) == 0
    assert "The run is finished, at 800 steps." in capsys.readouterr().out


def test_what_to_type_next_names_an_environment_of_ones_own(tmp_path, capsys):
    config = presets.preset("orac", "my_env:Walk-v0")
    agent = SimpleNamespace(config=config, num_timesteps=10)
    finish(agent, tmp_path)
    assert "--env-id my_env:Walk-v0" in capsys.readouterr().out


def test_an_error_that_knows_the_way_back_tells_it(capsys, monkeypatch):
    def fail(options):
        error = ValueError("the cost is nan.")
        error.add_note("Saved up to step 120. Go on with: orac resume RUN")
        raise error

    monkeypatch.setattr("orac.cli.main.run_agents", fail)
    assert main(["agents"]) == 1
    assert "Go on with: orac resume RUN" in capsys.readouterr().err
