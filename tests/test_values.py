"""Tests of every option of every command and every public argument, with every kind of value.

A value is either accepted, or refused with one sentence before any file is made. The accepted
values are listed here, so that the author of a new option or argument must decide about them.
`tests/config/test_values.py` does the same for the fields of a config.
"""

import json
import subprocess
import sys
from pathlib import Path

WALK = Path(__file__).parent / "helpers" / "value_walk.py"

LIMITS = ["0", "0.5", "1e12", "1e30"]
HOURS = ["0.5", "1e12", "1e30", "inf", "huge"]
NAMES = ["0", "0.5", "1e12", "1e30", "nan", "inf", "text"]
ANY_TEXT = ["0", "-1", *NAMES[1:], "huge", "long", "two lines"]
COMMANDS = {
    "train --cost-limit": LIMITS,
    "train --tail": ["0.5"],
    "train --seed": ["0"],
    "train --name": NAMES,
    "evaluate --seeds": ["0"],
    "evaluate --tails": ["0.5"],
    "evaluate --confidence": ["0.5"],
    "certify --confidence": ["0.5"],
    "reproduce --budget": HOURS,
    "sweep --budget": HOURS,
    "tune --cost-limit": LIMITS,
    "tune --tail": ["0.5"],
    "tune --seed": ["0"],
    "tune --budget": HOURS,
    "tune --study-name": ANY_TEXT,
    # A config may be for an environment that is not installed here.
    "config --env-id": ANY_TEXT,
    "config --cost-limit": LIMITS,
    "config --tail": ["0.5"],
    "config --seed": ["0"],
    "demo --seed": ["0"],
}
"""Values that each option accepts; all options that are not here accept none of them."""

POSITIVE = ["0.5", "1000000000000", "1e+30"]
EMPTY = ["[]", "{}"]
ARGUMENTS = {
    "make_agent(cost_limit)": ["0", *POSITIVE],
    "make_agent(tail)": ["0.5"],
    "make_agent(seed)": ["0"],
    "make_agent(constraints)": ["[]"],
    "make_agent(env_params)": ["{}"],
    "make_agent(settings)": ["{}"],
    "make_agent of Pendulum(cost_limit)": POSITIVE,
    "make_agent of Pendulum(tail)": ["0.5"],
    "make_agent of Pendulum(seed)": ["0"],
    "make_agent of Pendulum(constraints)": ["[]"],
    "make_agent of Pendulum(cost_bound)": POSITIVE,
    "make_agent of Pendulum(env_params)": ["{}"],
    "make_agent of Pendulum(settings)": ["{}"],
    "make_agent of Pendulum(cost_keys)": ["'text'", "null"],
    "make_agent of Pendulum(metric_names)": ["'text'", *EMPTY, "null"],
    "learn(out)": ["'text'"],
    "learn(name)": ["'text'"],
    "learn(trackers)": EMPTY,
    "predict(deterministic)": ["True"],
    "predict(seed)": ["0"],
    "evaluate(deterministic)": ["True"],
    "evaluate(tails)": ["0.5", *EMPTY],
    "evaluate(seed)": ["0"],
    "certify(confidence)": ["0.5"],
    "save(path)": ["'text'"],
    "resume(trackers)": EMPTY,
    "preset(env_id)": ["'text'", "null"],
    "Constraint(name)": ["'text'"],
    "Constraint(limit)": ["0", *POSITIVE],
    "Constraint(tail)": ["0.5"],
    "Constraint(cost_scale)": POSITIVE,
    "RiskMeasure(parameter)": ["0.5"],
    "Config(algo)": ["''", "'text'", "null"],
    "Config(seed)": ["0"],
    "Config(constraints)": ["[]"],
    "Monitor(limit)": ["0.5"],
    "Monitor(tail)": ["0.5"],
    "Monitor(confidence)": ["0.5"],
    "Monitor(run_length)": POSITIVE[1:],
    "Monitor.update(episode_cost)": ["0", "0.5"],
    "Monitor.save(path)": ["'text'"],
    "policy(noise)": ["0", "-1", *POSITIVE, "True"],
}
"""Values that each argument accepts; all arguments that are not here accept none."""


def test_every_value_is_sensible_or_refused_in_one_sentence():
    done = subprocess.run([sys.executable, str(WALK)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["problems"], "\n".join(found["problems"])
    assert found["accepted"] == {**COMMANDS, **ARGUMENTS}
