"""Tests of the command line: error messages, exit codes and start-up."""

import signal
import subprocess
import sys

import pytest

import orac
from helpers.command_examples import ENV
from orac.cli import main as main_module
from orac.cli.main import COMMANDS, main

INVALID = [
    (["train", "--algo=orak"], "Did you mean 'orac'?"),
    (["train", "--env-id=orac/GuardedMaze-v1"], "GuardedMaze-v0"),
    (["train", "--env-id=Pendulum-v9"], "Pendulum"),
    (["train", "--tail=0"], "must be in (0, 1]"),
    (["train", "--tail=2"], "fraction of worst cases"),
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
    (["train", "--set=algo=orak"], "Did you mean 'orac'?"),
    (["train", "--set=algo=wcsac-lin"], "which belong to algo 'orac-iqn'"),
    (["train", "--set=agent.behaviour=actor"], "which belong to algo 'wcsac-iqn'"),
    (["train", "--algo=sac", "--tail=0.1"], "constraints has no entries"),
    (["train", "--set=constraints.0.name=a/b"], "It is used in the names of columns"),
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
    (["train", "--set=env.params.step_scale=0"], "The agent could not move"),
    (["train", "--set=env.params.red_cost=-1"], "red_cost must be at least 0, got -1"),
    (["train", "--set=agent=[1, 2"], "cannot be read as YAML"),
    (["train", "--env-id=CartPole-v1"], "continuous"),
    (["train", "--env-id=Pendulum-v1"], "cost_fn="),
    (["train", "--env-id=no.such.module:Name-v0"], "which cannot be imported"),
    (["train", "--env-id=Pendulum-v1", "--cost-fn=too_fast"], "my_costs:too_fast"),
    (
        ["train", "--env-id=Pendulum-v1", "--cost-fn=math:pi"],
        "must be a function of (observation",
    ),
    (["train", "--set=env.cost_fn=my:cost"], "orac never imports code"),
    (["train", "--num-envs=1e12"], "training.num_envs must be at most 1,000,000"),
    (["train", "--set=training.buffer_size=1e12"], "must be at most 2,000,000,000"),
    (["train", "--set=training.gradient_steps=1e30"], "must be in (0, 1000]"),
    (["train", "--set=evaluation.episodes=1e9"], "must be at most 10,000,000"),
    (["train", "--set=agent.kappa=1e39"], "The learner's largest number is 3.4e+38"),
    (["train", "--set=agent.hidden_sizes=[1000000]"], "must be at most 100,000"),
    (["train", "--total-steps=1e300"], "a number of more than 100 digits"),
    (["train", "--seed=99999999999"], "seed must be at most 4,294,967,295"),
    (["train", "--env-id="], "env.id must be the id of an environment, got ''"),
    (["config", "--algo="], "algo must be one of"),
    (["train", "--env-id=.foo:Foo-v0"], "must name a module, such as my_envs"),
    (["train", "--env-id=Pendulum-v1", "--cost-fn=.x:f"], "must name a module"),
    (["train", "--import=.x"], "must name a module"),
    (["train", "--cost-bound=3"], "cost_bounds in its spec instead; it is (24.0,) now"),
    (["resume", "/nowhere"], "/nowhere"),
    (["certify", "/nowhere"], "/nowhere"),
    (["evaluate", "--rule=no", "--checkpoint=last"], "--checkpoint is only for a RUN"),
    (["evaluate", "/nowhere"], "/nowhere"),
    (["evaluate"], "needs either a RUN or a --rule"),
    (["evaluate", "--rule=no", "--confidence=0.99"], "Add --certify, or leave it out"),
    (["evaluate", "--rule=no", "--certify", "--confidence=95"], "It is a fraction"),
    (
        ["evaluate", "--rule=no", "--episodes=1000000000"],
        "episodes must be at most 10,000,000",
    ),
    (
        ["evaluate", "--rule=no", "--episodes=0"],
        "episodes must be a whole number of at least 1",
    ),
    (
        ["evaluate", "/nowhere", "--video=a.xyz"],
        "must be a .gif or .mp4 file, got 'a.xyz'",
    ),
    (["evaluate", "/nowhere", "--seeds", "1", "2"], "of one seed, got --seeds 1 2."),
    (["evaluate", "/nowhere", "--set=seed=1"], "--set is only for a --rule"),
    (
        ["report", "/nowhere", "--out=x.pdf"],
        "end in .html, .md, .tex, .csv; got 'x.pdf'",
    ),
    (
        ["report", "/nowhere", "--out=x.html", "--format=csv"],
        "must end in .csv, because its format is csv",
    ),
    (["evaluate", "--rule=thermostatt"], "Did you mean 'thermostat'?"),
    (
        ["evaluate", "--rule=thermostat", "--env-id=Pendulum-v1"],
        "environment with baselines",
    ),
]


def test_the_table_of_invalid_arguments_is_long():
    assert len(INVALID) >= 45


@pytest.mark.parametrize(
    ("arguments", "fragment"), INVALID, ids=[" ".join(case[0]) for case in INVALID]
)
def test_an_invalid_argument_gives_one_line_with_advice(
    arguments, fragment, capsys, tmp_path
):
    if arguments[0] == "train":
        arguments = [*arguments, f"--out={tmp_path}"]
    assert main(arguments) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"orac {arguments[0]}: ") and errors.count("\n") == 1
    assert fragment in errors


def test_without_a_command_the_help_lists_all_commands(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {name}" in printed for name in COMMANDS)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"orac {orac.__version__}\n"


def test_an_unknown_command_exits_with_code_2(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["trian"])
    assert "no command 'trian'. Did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "--total_steps", "2000"], "Did you mean '--total-steps'?"),
        (["train", "--total_steps=2000"], "Did you mean '--total-steps'?"),
        (["train", "Pendulum-v1"], "unrecognized arguments: Pendulum-v1.\n"),
        (["export", "RUN"], "orac.load(RUN).export('policy.npz')"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_one(arguments, hint, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    errors = capsys.readouterr().err
    assert hint in errors
    if arguments[0] == "train":
        assert errors.startswith("usage: orac train ")


def test_notes_of_an_error_are_printed(capsys, monkeypatch):
    def fail(options):
        error = ValueError("the cost is nan.")
        error.add_note("Saved up to step 120. Continue with: orac resume RUN")
        raise error

    monkeypatch.setattr("orac.cli.doctor.run_agents", fail)
    assert main(["agents"]) == 1
    assert capsys.readouterr().err == (
        "orac agents: the cost is nan.\n"
        "Saved up to step 120. Continue with: orac resume RUN\n"
    )


def test_an_error_has_its_traceback_if_the_environment_asks_for_it(monkeypatch):
    monkeypatch.setenv("ORAC_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Did you mean 'orac'"):
        main(["config", "--algo=orak"])


def test_an_interrupt_exits_with_code_130(capsys, monkeypatch):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("orac.cli.doctor.run_agents", interrupt)
    assert main(["agents"]) == 130
    assert capsys.readouterr().err == "\nStopped.\n"


def test_help_listings_and_mistakes_do_not_import_jax():
    code = """if True:
        import sys
        sys.modules["jax"] = None
        from orac.cli.main import main
        assert main(["train", "--algo=orak"]) == 1
        assert main(["train", "--set=agent.kapa=1"]) == 1
        sys.exit(main([]) or main(["config"]) or main(["agents"]) or main(["envs"]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "orac-iqn" in done.stdout and ENV in done.stdout
    assert "'orak'" in done.stderr and "mean 'kappa'" in done.stderr


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    def fail(options):
        raise KeyError("a bug")

    monkeypatch.setattr("orac.cli.doctor.run_agents", fail)
    with pytest.raises(KeyError):
        main(["agents"])


def test_a_reader_that_closes_the_pipe_is_not_an_error():
    code = "from orac.cli.main import main; raise SystemExit(main(['config']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
    process.stderr.close()


def test_a_device_that_is_missing_is_an_error(tmp_path, capsys):
    assert main(["train", "--device=gpu", f"--env-id={ENV}", f"--out={tmp_path}"]) == 1
    errors = capsys.readouterr().err
    assert "--device must be one that JAX finds here (cpu), got gpu" in errors
    assert not [*tmp_path.iterdir()]


def complete(script, line):
    """Return what bash offers for the last word of a command line."""
    words = line.split(" ")
    registered = next(x for x in script.splitlines() if x.startswith("complete "))
    function = registered.split("-F")[1].split()[0]
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
    code += f'{function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    return done.stdout.split()


def test_bash_completes_commands_options_and_agents(capsys):
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert {*COMMANDS} <= {*complete(script, "orac ")}
    assert complete(script, "orac eva") == ["evaluate"]
    assert "--total-steps" in complete(script, "orac train --tot")
    assert {"orac", "wcsac"} <= {*complete(script, "orac train --algo ")}
    assert complete(script, "orac train --device c") == ["cpu"]
    assert complete(script, "orac train --preset f") == ["fast"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_with_all_commands(shell, capsys):
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_an_unknown_shell_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "fish"])
    assert "invalid choice: 'fish'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--print-completion", "bash"], ["agents"]])
def test_a_reader_that_stops_early_causes_no_error(arguments):
    command = [sys.executable, "-m", "orac", *arguments]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_more_ctrl_c_do_not_change_the_exit_code(monkeypatch, capsys):
    def stop(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["orac", "agents"])
    monkeypatch.setattr(main_module, "prepare", stop)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "\nStopped.\n"
