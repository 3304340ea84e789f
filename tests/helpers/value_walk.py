"""Pass every kind of value to every option and every argument, and report the results.

This is a separate program, because in pytest the types of all calls are checked, which is not
so for users. It prints JSON: `problems`, a list of sentences, and `accepted`, the accepted
values by option. With an accepted value, a command stops before its first step, episode or
worker, so nothing is trained.
"""

import argparse
import contextlib
import functools
import inspect
import io
import json
import math
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np

import orac
import orac.policy
from orac.api import agent as agent_module
from orac.api import environments
from orac.cli import evaluate, options
from orac.cli import main as cli
from orac.evaluation import rollout
from orac.experiments import run_study, tune
from orac.experiments.launcher import schedule
from orac.training import device_loop, host_loop

HUGE = 10**400
TEXTS = {
    **{x: x for x in ("0", "-1", "0.5", "1e12", "1e30", "nan", "inf", "text")},
    **{"empty": "", "huge": str(HUGE), "long": "x" * 300, "two lines": "a\nb"},
}
"""Values on the command line, by the name that the report uses."""
PATHS = {"empty": "", "below a file": "grid.yaml/x", "long": "x" * 300}
"""Values of options that name files and folders. Any other text would be valid."""
OBJECTS = {
    **{repr(x): x for x in (0, -1, 0.5, 10**12, 1e30, math.nan, math.inf, True)},
    **{repr(x): x for x in ("", "text", b"x", [], {}, [math.nan])},
    **{"huge": HUGE, "object": object(), "array": np.zeros((2, 3)), "null": "a\0b"},
}
"""Values in Python."""
SETTINGS = {
    "agent.hidden_sizes": [8, 8],
    "training.buffer_size": 1000,
    "training.batch_size": 32,
    "training.learning_starts": 100,
    "training.gradient_steps": 0.25,
    "evaluation.episodes": 2,
}
SMALL = [
    *("--num-envs=4", "--total-steps=200"),
    *(f"--set={name}={x}" for name, x in SETTINGS.items()),
]
ENV = "orac/GuardedMaze-v0"


class Accepted(BaseException):
    """Raised where the work would start. It is no `Exception`, so no handler catches it."""


def accept(*arguments, **keywords):
    raise Accepted


def accept_episodes(key, policy, env, act, episodes, *rest):
    rollout.check_episodes(episodes)
    raise Accepted


@functools.cache
def cached_runner(env, config, make=environments.DeviceRunner):
    """Make each runner only once, because it takes half a second. No runner is stepped."""
    return make(env, config)


def stop_before_the_work():
    environments.DeviceRunner = cached_runner
    cli.make_parser = functools.cache(cli.make_parser)
    agent_module.run_loop = tune.Tuner.run = evaluate.evaluate_baseline = accept
    schedule.run_all = run_study.run_all = accept
    device_loop.roll_out = host_loop.roll_out_host = accept_episodes


class Walk:
    """Tries values in a separate folder and collects problems and accepted values."""

    def __init__(self, folder):
        self.folder, self.problems, self.accepted = folder, [], {}
        self.before = self.files()

    def files(self):
        """Return the time of the last change of every file, 0 for a folder, by path."""
        return {
            str(path): path.stat().st_mtime_ns if path.is_file() else 0
            for path in self.folder.rglob("*")
            if path.name != "lock"
        }

    def attempt(self, label, name, call, describe):
        """Call a function and store the result.

        `describe` returns whether the call was refused, and a problem or an empty text.
        """
        printed = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(printed[0]),
            contextlib.redirect_stderr(printed[1]),
        ):
            try:
                outcome = call()
            except Accepted:
                outcome = None
            except BaseException as error:
                outcome = error
        refused, problem = describe(outcome, printed[1].getvalue())
        before, after = self.before, self.files()
        if problem:
            self.problems.append(f"{label} with {name}: {problem}")
        elif refused and before != after:
            changed = sorted(set(after) ^ set(before))
            self.problems.append(f"{label} with {name}: refused, but made {changed}")
        elif not refused:
            self.accepted.setdefault(label, []).append(name)
        if after == before:
            return
        for path in map(Path, set(after) - set(before)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.before = self.files()


# The command line.


def command_lines(run):
    """Yield every option of every command, with the other arguments that it needs."""
    base = {
        "train": ["--out=new", "--quiet", *SMALL],
        "resume": [run, "--quiet"],
        "evaluate": [run, "--episodes=2"],
        "certify": [run],
        "report": [run, "--format=csv"],
        "compare": ["base", "base"],
        "reproduce": ["table1", "--out=new"],
        "sweep": ["grid.yaml", "--out=new"],
        "tune": ["--out=new", *SMALL],
        "config": [],
        "demo": ["--out=new"],
    }
    needs = {
        ("evaluate", "--rule"): [],
        ("evaluate", "--set"): ["--rule=thermostat"],
        ("evaluate", "--confidence"): [run, "--certify"],
        ("train", "--jobs"): [*base["train"], "--seeds=0-1"],
    }
    parser = cli.make_parser()
    (commands,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for command, subparser in commands.items():
        for action in subparser._actions:
            if action.nargs == 0:
                continue
            is_path = action.type in (options.path, options.folder)
            values = PATHS if is_path else TEXTS
            if action.option_strings:
                option = action.option_strings[0]
                others = needs.get((command, option), base[command])
                for name, text in values.items():
                    arguments = [command, *others, f"{option}={text}"]
                    yield f"{command} {option}", name, arguments
            else:
                others = [x for x in base[command] if x.startswith("--")]
                others = ["base", *others] if command == "compare" else others
                for name, text in values.items():
                    yield f"{command} {action.dest}", name, [command, text, *others]


def describe_command(outcome, printed):
    """Return whether a command was refused, and the problem with its error, if any."""
    if isinstance(outcome, SystemExit):
        outcome = outcome.code
    if outcome in (None, 0):
        return False, ""
    lines = printed.strip().split("\n")
    if outcome == 2 and lines[-1].startswith("orac "):
        return True, ""
    if outcome == 1 and len(lines) == 1 and len(printed) < 1500:
        return True, ""
    return True, f"{outcome!r}, {printed[-300:]!r}"


LATE = "train --name", "train --out", "tune --out", "tune --storage"
"""Options that are checked after the agent is made."""


def walk_commands(walk, run):
    for label, name, arguments in command_lines(run):
        # These options change the config, so each value would need a new runner.
        short = label.startswith(("train ", "tune ")) and label not in LATE
        environments.DeviceRunner = accept if short else cached_runner
        walk.attempt(label, name, lambda a=arguments: cli.main(a), describe_command)
    environments.DeviceRunner = cached_runner


# Python.


def describe_call(outcome, printed):
    """Return whether a call was refused, and the problem with its error, if any."""
    if not isinstance(outcome, BaseException):
        return False, ""
    message = str(outcome)
    kinds = ValueError, TypeError, OSError, ImportError
    if not isinstance(outcome, kinds):
        return True, f"{type(outcome).__name__}: {message[:200]}"
    if not message.strip() or "\n" in message or len(message) > 1000:
        return True, f"the message {message[:200]!r}"
    return True, ""


def walk_arguments(walk, label, function, *values, skip=(), **keywords):
    """Try all values for each argument of a function.

    `values` and `keywords` are valid values, which the other arguments get.
    """
    parameters = [
        x
        for x in inspect.signature(function).parameters.values()
        if x.kind not in (x.VAR_KEYWORD, x.VAR_POSITIONAL)
    ]
    for i, parameter in enumerate(parameters):
        if parameter.name in skip:
            continue
        for name, value in OBJECTS.items():
            positional, named = [*values], dict(keywords)
            if i < len(positional):
                positional[i] = value
            else:
                named[parameter.name] = value

            def call(positional=positional, named=named):
                function(*positional, **named)

            walk.attempt(f"{label}({parameter.name})", name, call, describe_call)


def no_cost(observation, action, next_observation, info):
    return 0.0


def walk_python(walk, run, agent):
    make_host_runner = environments.HostRunner
    environments.DeviceRunner = environments.HostRunner = accept
    walk_arguments(walk, "make_agent", orac.make_agent, "orac", ENV)
    walk_arguments(
        walk,
        "make_agent of Pendulum",
        orac.make_agent,
        *("orac", "Pendulum-v1"),
        cost_fn=no_cost,
        skip=("env", "algo", "config", "preset"),
    )
    environments.DeviceRunner, environments.HostRunner = cached_runner, make_host_runner
    fresh = orac.load("agent")
    observation = np.zeros(agent.spec.observation_size, np.float32)
    flags = "progress_bar", "profile"

    def learn(out="new", name="default", trackers=()):
        new = orac.load("agent")
        new._source = None
        new.runner.state = new.runner.state._replace(
            rounds=0 * agent.runner.state.rounds
        )
        new.learn(None, None, False, out, name, trackers)

    walk_arguments(walk, "learn", fresh.learn, skip=(*flags, "out", "name", "trackers"))
    walk_arguments(walk, "learn", learn)
    sampled = {"deterministic": False, "seed": 0}
    walk_arguments(
        walk, "predict", agent.predict, observation, skip=("state",), **sampled
    )
    walk_arguments(walk, "evaluate", agent.evaluate)
    walk_arguments(walk, "certify", agent.certify)
    walk_arguments(walk, "policy_of", agent.policy_of)
    walk_arguments(walk, "save", agent.save)
    walk_arguments(walk, "export", agent.export, "x.npz", skip=("overwrite",))
    walk_arguments(walk, "load", orac.load, run)
    walk_arguments(walk, "resume", orac.resume, run, skip=flags)
    walk_arguments(walk, "preset", orac.preset, "orac", ENV)
    walk_arguments(walk, "Constraint", orac.Constraint, "cost", 5.0)
    walk_arguments(walk, "RiskMeasure", orac.RiskMeasure, "cvar", 0.5)
    walk_arguments(walk, "Config", orac.Config)
    monitor = orac.Monitor(5, 0.05, 0.95, 24)
    walk_arguments(walk, "Monitor", orac.Monitor, 5, 0.05, 0.95, 24)
    walk_arguments(walk, "Monitor.update", monitor.update)
    walk_arguments(walk, "Monitor.save", monitor.save)
    walk_arguments(walk, "Monitor.load", orac.Monitor.load)
    walk_arguments(walk, "policy.load", orac.policy.load)
    policy = orac.policy.load("policy.npz")
    walk_arguments(walk, "policy", policy, observation)


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("grid.yaml").write_text("algos: [sac-lag]\nset: {training.num_envs: 4}\n")
        agent = orac.SACLagrangian(ENV, num_envs=4, settings=SETTINGS, cost_limit=5)
        agent.learn(200, progress_bar=False, out="base", trackers=())
        agent.save("agent")
        agent.export("policy.npz")
        run = str(agent.run_path)
        stop_before_the_work()
        walk = Walk(Path(folder))
        walk_commands(walk, run)
        walk_python(walk, run, agent)
        os.chdir("/")
    print(json.dumps({"problems": walk.problems, "accepted": walk.accepted}))


if __name__ == "__main__":
    main()
