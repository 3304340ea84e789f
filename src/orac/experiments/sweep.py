"""Read the grid file of a sweep and return the study that it describes.

A grid file looks like this:

    envs: [orac/GuardedMaze-v0]
    algos: [orac, wcsac]
    preset: fast                  # if left out: the default preset of `orac train`
    seeds: 5                      # 0 to 4; or a list
    set: {training.total_steps: 100000}
    vary: {agent.exploration.shift_radius: [1, 2, 4]}

Every combination of an environment, an agent, one value of each varied field and a seed is one
run.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orac.config import overrides, presets, serialization
from orac.config.schema import Config
from orac.config.validation import (
    check_choice,
    check_count,
    check_seed,
    is_number,
    shown,
)
from orac.experiments.study import Case, CaseResults, Study, missing_notes
from orac.reports.charts import learning_charts
from orac.reports.matplotlib_figures import BAND_NOTES, draw_line_charts
from orac.reports.report import all_tables
from orac.reports.run_reader import Results
from orac.reports.tables import Table
from orac.runs.directory import check_run_name, safe_name

MAX_RUNS = 100_000
"""Maximum number of runs of a grid."""
KEYS = ("name", "envs", "algos", "preset", "seeds", "set", "vary")


def read_grid(path: Path) -> tuple[Study, tuple[int, ...]]:
    """Return the study that a grid file describes, and its seeds."""
    return parse_grid(serialization.read_yaml_file(path, "the grid"), path.stem)


def parse_grid(grid: Any, name: str = "sweep") -> tuple[Study, tuple[int, ...]]:
    """Return the study and the seeds of a grid. `name` is used if the grid has no name."""
    if not isinstance(grid, Mapping):
        raise ValueError(
            f"a grid must be a mapping with keys such as envs, algos and seeds, got {grid!r}."
        )
    for key in grid:
        check_choice("a key of the grid", str(key), KEYS)
    name = str(grid.get("name", name))
    check_run_name(name, "the name of the grid, which becomes a folder,")
    preset = grid.get("preset")
    if preset is not None:
        check_choice("preset", str(preset), presets.PRESETS)
    seeds = _seeds(grid.get("seeds", 1))
    fixed = _mapping(grid, "set")
    varied = {k: _listed(v, f"vary.{k}") for k, v in _mapping(grid, "vary").items()}
    env_ids = _listed(grid.get("envs", ["orac/GuardedMaze-v0"]), "envs")
    algos = _listed(grid.get("algos", ["orac"]), "algos")
    for key, command in (("envs", "envs"), ("algos", "agents")):
        for value in env_ids if key == "envs" else algos:
            if not isinstance(value, str):
                raise ValueError(
                    f"an entry of {key} must be a name, got {value!r}. `orac {command}` "
                    "lists the names."
                )
    counts = [len(x) for x in (env_ids, algos, *varied.values(), seeds)]
    check_count("the number of runs of a grid", math.prod(counts), high=MAX_RUNS)
    cases = tuple(
        _case(
            presets.preset(algo, env_id, preset),
            fixed,
            dict(zip(varied, values, strict=True)),
            len(seeds),
        )
        for env_id in env_ids
        for algo in algos
        for values in itertools.product(*varied.values())
    )
    tails = {c.tail for case in cases for c in case.config.constraints}
    study = Study(name, name, cases, make_tables, make_figure, tails=(*sorted(tails),))
    return study, seeds


def _mapping(grid: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = grid.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{key} must be a mapping of config fields to values, got {value!r}. "
            "`orac train --help` lists the fields."
        )
    for field in value:
        if not isinstance(field, str):
            raise ValueError(
                f"a field in {key} must be the name of a config field, such as "
                f"agent.kappa, got {field!r}."
            )
    return dict(value)


def _listed(value: Any, what: str) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"{what} must have at least one entry, got an empty list.")
    # 1 and 1.0 are the same value.
    different = {float(x) if is_number(x) else repr(x) for x in values}
    if len(different) < len(values):
        raise ValueError(f"{what} must not repeat, got {shown(values)}. Leave one out.")
    return values


def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        advice = "Or give a list of seeds, such as [0, 3]."
        check_count("seeds", value, advice=advice, high=MAX_RUNS)
        return tuple(range(value))
    for seed in _listed(value, "seeds"):
        check_seed("an entry of seeds", seed)
    return tuple(value)


def _case(
    base: Config,
    fixed: Mapping[str, Any],
    varied: Mapping[str, Any],
    seeds: int,
) -> Case:
    fields = {**fixed, **varied}
    for field in fields:
        if field in ("seed", "algo", "env.id"):
            raise ValueError(
                f"{field} cannot be under set or vary in a grid. Use the grid's key seeds, "
                "algos or envs instead."
            )
    # Labels name a field by its last part, unless another varied field has the same last part.
    endings = [field.split(".")[-1] for field in varied]
    parts = [
        f"{ending if endings.count(ending) == 1 else field}={value}"
        for ending, (field, value) in zip(endings, varied.items(), strict=True)
    ]
    label = f"{base.algo} ({', '.join(parts)})" if parts else base.algo
    name = safe_name(",".join(parts)) if parts else "default"
    check_run_name(name, "the name of a run, which is made from the fields that vary,")
    config = overrides.with_fields(base, fields)
    return Case(f"{label} in {base.env.id}", name, config, seeds)


def make_tables(results: Sequence[CaseResults]) -> list[Table]:
    """Return the tables of a report, with a note about missing runs below the first table."""
    groups = tuple(result.group for result in results if result.runs)
    notes = missing_notes(results)
    if not groups:
        return [Table("Results", ("agent",), (), tuple(notes))]
    first, *others = all_tables(Results(groups))
    # The last table lists the run directories. It is left out, because the tables that a
    # study stores with its results must not depend on where the runs are.
    return [replace(first, notes=(*first.notes, *notes)), *others[:-1]]


def make_figure(results: Sequence[CaseResults], band: str) -> Any:
    """Draw reward, mean cost and CVaR of the evaluations, with a row per environment."""
    rows = []
    for env_id in dict.fromkeys(result.case.config.env.id for result in results):
        shown = [r for r in results if r.case.config.env.id == env_id and r.runs]
        if shown:
            groups = [result.group for result in shown]
            rows.append(learning_charts(groups, env_id, band=band))
    return draw_line_charts(rows, note=BAND_NOTES[band]) if rows else None
