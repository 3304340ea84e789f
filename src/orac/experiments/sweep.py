"""A grid of one's own: a YAML file to the runs it means.

    envs: [orac/GuardedMaze-v0]
    algos: [orac, wcsac]
    seeds: 5                      # 0 to 4; or a list
    set: {training.total_steps: 100000}
    vary: {agent.exploration.shift_radius: [1, 2, 4]}

Every combination of environment, agent, varied values and seed is a run. Names that
nobody knows are errors with the nearest one that somebody does.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.config.validation import unknown_name
from orac.experiments.curves import Panel, draw
from orac.experiments.study import Case, Found, Study, shortcomings
from orac.reports.html.contents import all_tables
from orac.reports.html.tables import Table
from orac.reports.run_groups import Results
from orac.reports.seed_statistics import cvar_curve, evaluation_curve
from orac.runs.directory import safe_name

KEYS = ("name", "envs", "algos", "seeds", "set", "vary")


def read_grid(path: Path) -> tuple[Study, tuple[int, ...]]:
    """The study that a file describes, and its seeds."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(
            f"the grid {path} cannot be read: {error.strerror}. Name a YAML file."
        ) from error
    return parse_grid(config_text.read_yaml(text, str(path)), path.stem)


def parse_grid(grid: Any, name: str = "sweep") -> tuple[Study, tuple[int, ...]]:
    """The same from plain values; `name` is for a grid without one."""
    if not isinstance(grid, Mapping):
        raise ValueError(
            f"a grid must be a mapping with envs, algos and seeds, got {grid!r}."
        )
    for key in grid:
        if key not in KEYS:
            raise unknown_name("a key of the grid", str(key), KEYS)
    name = str(grid.get("name", name))
    if name != safe_name(name):
        raise ValueError(
            "name of the grid heads a folder and must be letters, digits and . _ + = -, got "
            f"{name!r}. Try {safe_name(name)!r}."
        )
    fixed = _mapping(grid, "set")
    varied = {k: _listed(v, f"vary.{k}") for k, v in _mapping(grid, "vary").items()}
    cases = [
        _case(env_id, algo, fixed, dict(zip(varied, values, strict=True)))
        for env_id in _listed(grid.get("envs", ["orac/GuardedMaze-v0"]), "envs")
        for algo in _listed(grid.get("algos", ["orac"]), "algos")
        for values in itertools.product(*varied.values())
    ]
    seeds = _seeds(grid.get("seeds", 1))
    cases = [replace(case, seeds=len(seeds)) for case in cases]
    return Study(name, name, tuple(cases), make_tables, make_figure), seeds


def _mapping(grid: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = grid.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{key} must be a mapping of config fields to values, got {value!r}. "
            "`orac train --help` lists the fields."
        )
    return dict(value)


def _listed(value: Any, what: str) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    if not found:
        raise ValueError(f"{what} must have at least one entry, got an empty list.")
    return found


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return tuple(range(value))
    if (
        isinstance(value, list)
        and value
        and all(
            isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in value
        )
    ):
        if len(set(value)) < len(value):
            raise ValueError(f"seeds must not repeat, got {value!r}. Leave one out.")
        return tuple(value)
    raise ValueError(
        f"seeds must be a number, such as 5, or a list, such as [0, 3]; got {value!r}."
    )


def _case(
    env_id: Any, algo: Any, fixed: Mapping[str, Any], varied: Mapping[str, Any]
) -> Case:
    plain = config_text.to_dict(presets.preset(str(algo), str(env_id)))
    for field, value in {**fixed, **varied}.items():
        if field in ("seed", "algo", "env.id"):
            raise ValueError(
                f"{field} of a grid is said by its own key (seeds, algos, envs), got it "
                "as a field to set or vary."
            )
        config_text.assign(plain, field, value)
    config: Config = config_text.from_dict(plain)
    words = [f"{_short(name, varied)}={value}" for name, value in varied.items()]
    label = f"{algo} ({', '.join(words)})" if words else str(algo)
    label = f"{label} in {env_id}"
    return Case(label, safe_name(",".join(words)) if words else "default", config)


def _short(field: str, others: Mapping[str, Any]) -> str:
    """The last part of a field's name, or all of it where two end alike."""
    last = field.split(".")[-1]
    alike = [other for other in others if other.split(".")[-1] == last]
    return last if len(alike) == 1 else field


def make_tables(everything: Sequence[Found]) -> list[Table]:
    """The report's tables, with what is missing told below the first."""
    groups = tuple(found.group for found in everything if found.runs)
    notes = shortcomings(everything)
    if not groups:
        return [Table("Results", ("agent",), (), tuple(notes))]
    first, *others = all_tables(Results(groups, ()), 0.95)
    # The last of them names directories, which a kept table must not depend on.
    return [replace(first, notes=(*first.notes, *notes)), *others[:-1]]


def make_figure(everything: Sequence[Found], band: str) -> Any:
    """Reward, cost and its CVaR in evaluations, a row for each environment."""
    rows = []
    for env_id in dict.fromkeys(found.case.config.env.id for found in everything):
        known = [f for f in everything if f.case.config.env.id == env_id and f.runs]
        if known:
            rows.append(world_panels(env_id, [(f.case.label, f) for f in known]))
    return draw(rows, band) if rows else None


def world_panels(env_id: str, lines: Sequence[tuple[str, Found]]) -> list[Panel]:
    """Reward, and for the first constraint its cost and CVaR."""
    config = lines[0][1].case.config
    panels = [
        Panel(f"Reward, {env_id}", lines, lambda r: evaluation_curve(r, "reward"))
    ]
    for c in config.constraints[:1]:
        column = c.name if c.name == "cost" else f"cost/{c.name}"
        panels.append(
            Panel(
                f"Mean {column}",
                lines,
                lambda r, column=column: evaluation_curve(r, column),
                c.limit,
            )
        )
        if c.tail < 1:
            panels.append(
                Panel(
                    f"CVaR at {c.tail:g}",
                    lines,
                    lambda r, c=c: cvar_curve(r, c.name, c.tail),
                    c.limit,
                )
            )
    return panels
