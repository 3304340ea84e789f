"""Evaluations kept on disk as run directories, so that reports set them beside runs.

A rule that nobody trained, or a policy evaluated once more on other episodes, gets
`<out>/<env>/<algo>/<name>/seed-000` with config.yaml, meta.json and evaluations.csv. What
was evaluated stands in meta.json under `evaluated`. Neither rolls out nor summarises.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.evaluation.result import Episodes
from orac.runs.atomic_io import write_text
from orac.runs.directory import RunDirectory, read_meta, run_path


def free_path(out: Path, config: Config, name: str = "default") -> Path:
    """Where an evaluation would be kept; refused where something is already."""
    path = run_path(out, config.env.id, config.algo, config.seed, name)
    if (path / "config.yaml").exists():
        raise FileExistsError(
            f"{path} already holds a run or an evaluation. Choose another --out, or "
            "other --seeds."
        )
    return path


def keep(
    out: Path,
    config: Config,
    episodes: Episodes,
    cost_names: Sequence[str],
    evaluated: Mapping[str, Any],
    name: str = "default",
) -> Path:
    """Write one evaluation as a run's directory; returns its path.

    `evaluated` says of what: `{"rule": name}`, or `{"run": path, "env_steps": step}`.
    """
    path = free_path(out, config, name)
    plain = config_text.to_dict(config)
    with RunDirectory.create(
        out, config.env.id, config.algo, config.seed, plain, name
    ) as run:
        meta = {**read_meta(path), "evaluated": dict(evaluated)}
        write_text(path / "meta.json", json.dumps(meta, indent=2) + "\n")
        step = int(evaluated.get("env_steps", 0))
        rows = [{"env_steps": step, **row} for row in episodes.rows(cost_names)]
        log = run.log("evaluations", rows[0])
        for row in rows:
            log.append(row)
    return path
