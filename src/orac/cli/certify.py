"""`orac certify`: show with fresh episodes that a run's policy is within its limits.

The exit code is 0 if it is certified and 1 if it is not. The result is written to
`certificate.json` in the run's directory, and `orac.load` then delivers that policy.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from orac.api import CERTIFY, Agent, load
from orac.cli.options import host_options
from orac.evaluation.certification import Certification
from orac.runs.atomic_io import write_text


def run_certify(options: argparse.Namespace) -> int:
    """Certify a run's newest checkpoint or an agent in a file, and write the result."""
    path = Path(options.run_dir)
    agent = load(
        path,
        options.env_id,
        cost_fn=options.cost_fn,
        host_options=host_options(options),
    )
    result = agent.certify(
        confidence=options.confidence,
        looks=options.looks,
        episodes_max=options.episodes_max,
        log=lambda text: print(text, file=sys.stderr if options.json else sys.stdout),
    )
    record = certificate_record(agent, result)
    file = certificate_path(path)
    write_text(file, json.dumps(record, indent=2) + "\n")
    if options.json:
        print(json.dumps(record, indent=2))
    else:
        sentence = result.sentence()
        print(f"{sentence[0].upper()}{sentence[1:]}.")
        print(f"The policy is that of step {result.policy.step:,}. Written: {file}")
    return 0 if result.certified else 1


def certificate_record(agent: Agent, result: Certification) -> dict[str, Any]:
    """Return the contents of certificate.json: what was certified, and how."""
    policy = result.policy
    return {
        **result.to_dict(),
        "env": agent.config.env.id,
        "step": policy.step,
        "action": "sampled" if policy.samples else "mean",
        "trained_steps": agent.num_timesteps,
        "seed": agent.config.seed,
        "first_sample": CERTIFY,
    }


def certificate_path(path: Path) -> Path:
    """Return where the certificate of a run directory, or of a saved agent, is written."""
    if path.is_dir():
        return path / "certificate.json"
    return path.with_name(f"{path.name}.certificate.json")
