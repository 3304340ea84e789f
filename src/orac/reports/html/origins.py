"""Where a report's numbers come from: configs, their differences, runs and machines."""

from collections.abc import Sequence
from typing import Any

from orac.config import serialization as config_text
from orac.reports.html.tables import Table
from orac.reports.run_groups import Group, Results, differing_fields


def config_table(groups: Sequence[Group]) -> Table | None:
    """Fields in which the groups differ; None where there is nothing to tell.

    A rule has an environment and constraints, and nothing else of a config.
    """
    trained = [group for group in groups if not group.is_rule]
    shared = [name for name in _different(groups) if _holds_for_rules(name)]
    shared = [name for name in shared if name != "algo"]
    names = {*_different(trained), *shared}
    groups = groups if shared else trained
    flat = [config_text.flatten(config_text.to_dict(g.config)) for g in groups]
    ordered = [name for fields in flat for name in fields if name in names]
    if not names:
        return None
    rows = tuple(
        (
            name,
            *(
                "–"
                if group.is_rule and not _holds_for_rules(name)
                else str(fields.get(name, "–"))
                for group, fields in zip(groups, flat, strict=True)
            ),
        )
        for name in dict.fromkeys(ordered)
    )
    columns = ("field", *(full_label(group, groups) for group in groups))
    return Table("Differences between the configs", columns, rows)


def _different(groups: Sequence[Group]) -> list[str]:
    fields = differing_fields([group.config for group in groups])
    return [name for name in fields if name != "seed"]


def _holds_for_rules(name: str) -> bool:
    return name.partition(".")[0] in ("algo", "env", "constraints")


def full_label(group: Group, groups: Sequence[Group]) -> str:
    """The label, with the environment where there are several."""
    several = len({other.env_id for other in groups}) > 1
    return f"{group.label} in {group.env_id}" if several else group.label


def machine_table(found: Results) -> Table:
    """One row a run: where it is, how far it came, and what it ran on."""
    rows = []
    for group in found.groups:
        for run in group.runs:
            versions = run.meta.get("versions") or {}
            total = run.config.training.total_steps
            rows.append(
                (
                    str(run.path),
                    str(run.config.seed),
                    "rule" if run.rule else f"{run.steps:,} of {total:,}",
                    *(_say(versions.get(name)) for name in ("orac", "jax", "python")),
                    *(
                        _say(run.meta.get(name))
                        for name in ("platform", "threads", "commit")
                    ),
                )
            )
    columns = ("run", "seed", "steps", "orac", "jax", "python")
    columns = (*columns, "platform", "threads", "commit")
    return Table("What was run where", columns, tuple(rows), found.notes)


def _say(value: Any) -> str:
    return "–" if value is None else str(value)
