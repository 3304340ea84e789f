"""`orac certify`: show with fresh episodes that a run's policy is within its limits.

The exit code is 0 if it is certified and 1 if it is not. The result is written to
`certificate.json` in the run's directory, and `orac.load` then delivers that policy.
"""

import argparse
import json
import sys
from pathlib import Path

from orac.api import load, write_certificate
from orac.cli.options import host_options


def run_certify(options: argparse.Namespace) -> int:
    """Certify a run's newest checkpoint or an agent in a file, and write the result."""
    path = Path(options.run_dir)
    agent = load(
        path,
        options.env_id,
        cost_fn=options.cost_fn,
        encoder=options.encoder,
        host_options=host_options(options),
    )
    result = agent.certify(
        confidence=options.confidence,
        looks=options.looks,
        episodes_max=options.episodes_max,
        log=lambda text: print(text, file=sys.stderr if options.json else sys.stdout),
    )
    record, file = write_certificate(agent, result, path)
    if options.json:
        print(json.dumps(record, indent=2))
    else:
        sentence = result.sentence()
        print(f"{sentence[0].upper()}{sentence[1:]}.")
        print(f"The policy is that of step {result.policy.step:,}. Written: {file}")
    return 0 if result.certified else 1
