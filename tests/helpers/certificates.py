"""Write made-up certificates that fit a run, as `orac certify` does."""

import json

from helpers.manifests import DIGEST
from orac.evaluation.cvar_bounds import name_of_risk
from orac.evaluation.episodes import cost_noun
from orac.runs.directory import config_checksum, read_config


def make_certificate(path, upper=4.6, estimate=4.0, **changes):
    """Return the certificate of a run whose bounds all have the same numbers.

    `changes` are fields of the certificate and of its look.
    """
    config = read_config(path)
    bounds = [
        {
            "quantity": name_of_risk(c["tail"], f"episode {cost_noun(c['name'])}"),
            "estimate": estimate,
            "upper": upper,
            "limit": c["limit"],
            "confidence": 1 - 0.05 / (3 * len(config["constraints"])),
            "cost_bound": 24.0,
        }
        for c in config["constraints"]
    ]
    certified = all(upper <= bound["limit"] for bound in bounds)
    look = {"episodes": 2700, "reward": 6.0, "certified": certified, "bounds": bounds}
    record = {
        "certified": certified,
        "confidence": 0.95,
        "max_looks": 3,
        "looks": [look | {x: y for x, y in changes.items() if x in look}],
        "env": config["env"]["id"],
        "step": config["training"]["total_steps"],
        "trained_steps": config["training"]["total_steps"],
        "seed": config["seed"],
        "config": config_checksum(path),
        "state_digest": DIGEST,
    }
    return record | {x: y for x, y in changes.items() if x not in look or x in record}


def write_certificate(path, **changes):
    """Write `make_certificate` to the directory of the run."""
    text = json.dumps(make_certificate(path, **changes))
    (path / "certificate.json").write_text(text)
