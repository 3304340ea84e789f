"""Runs grouped by what was run, and what a reader must know about them.

Runs whose configs differ in nothing but the seed form a group; a group is what a table
has a row for and a figure a line. What the numbers say is in `summaries`.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.reports.run_reader import Run, cost_names, find_runs, read_run

_LONGEST_LABEL = 2
"""Most fields that a label spells out; beyond that it takes the runs' name."""
_MOST_LISTED = 3
"""Most evaluations of one run that a note lists."""


@dataclass(frozen=True)
class Group:
    """Runs of one config, one for each seed."""

    label: str
    """Unique among the groups of its environment."""
    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        """The config that all runs of the group share, seeds apart."""
        return self.runs[0].config

    @property
    def env_id(self) -> str:
        """The environment they ran in."""
        return self.config.env.id

    @property
    def is_rule(self) -> bool:
        """Nobody trained it: its seeds are draws of episodes, and its steps mean nothing."""
        return self.runs[0].rule is not None

    @property
    def evaluated(self) -> tuple[Run, ...]:
        """Those of its runs that have an evaluation."""
        return tuple(run for run in self.runs if len(run.evaluated_at))

    @property
    def cost_names(self) -> list[str]:
        """Names of the costs in their evaluations."""
        return list(dict.fromkeys(n for run in self.runs for n in cost_names(run)))


@dataclass(frozen=True)
class Results:
    """Everything that was found, and what a reader must know about it."""

    groups: tuple[Group, ...]
    notes: tuple[str, ...]

    def worlds(self) -> dict[str, list[Group]]:
        """Groups by environment, in the order in which they were found."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.env_id, []).append(group)
        return found


def read_results(paths: Iterable[str | os.PathLike[str]]) -> Results:
    """All runs at or below `paths`, grouped; one that cannot be read is left out and told."""
    runs, notes = [], []
    for path in find_runs(paths):
        try:
            runs.append(read_run(path))
        except (ValueError, OSError) as error:
            notes.append(f"{path} is left out: {error}")
    if not runs:
        raise ValueError(f"none of the runs found can be read. {' '.join(notes)}")
    found = group_runs(runs)
    return Results(found.groups, (*notes, *found.notes))


def group_runs(runs: Sequence[Run]) -> Results:
    """Runs by config without its seed; a repeated seed counts once, and is told."""
    sets: dict[str, dict[int, Run]] = {}
    notes = []
    for run in runs:
        plain = config_text.to_dict(run.config) | {"seed": 0}
        seeds = sets.setdefault(repr((run.rule, plain)), {})
        kept = seeds.setdefault(run.config.seed, run)
        if kept is not run:
            kept, left = (run, kept) if run.steps > kept.steps else (kept, run)
            seeds[run.config.seed] = kept
            notes.append(
                f"{left.path} repeats seed {run.config.seed} of {kept.path}: "
                "the same sample twice, counted once."
            )
    members = [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in sets.values()]
    # Rules come last: they are what the others are held against.
    members.sort(key=lambda seeds: seeds[0].rule is not None)
    labels = _labels(members)
    groups = tuple(map(Group, labels, members))
    for run in (run for group in groups for run in group.runs):
        notes += _shortcomings(run)
    found = Results(groups, ())
    for env_id, together in found.worlds().items():
        notes += _unlike(env_id, together)
    return Results(groups, tuple(notes))


def _unlike(env_id: str, groups: Sequence[Group]) -> list[str]:
    """What makes numbers of one environment hard to compare."""
    told = []
    fields = differing_fields([group.config for group in groups])
    worlds = [name for name in fields if name.startswith("env.")]
    if worlds:
        told.append(
            f"The groups in {env_id} differ in {', '.join(worlds)}: their numbers are not "
            "of the same task."
        )
    counts = {
        int((run.evaluations["env_steps"] == run.evaluated_at[-1]).sum())
        for group in groups
        for run in group.evaluated
    }
    if len(counts) > 1:
        told.append(
            f"The last evaluations in {env_id} have {min(counts):,} to {max(counts):,} "
            "episodes: CVaR and worst cost come out lower where there are fewer."
        )
    if any(group.is_rule for group in groups):
        told.append(
            f"The rules in {env_id} were not trained: their seeds are draws of episodes."
        )
    return told


def _shortcomings(run: Run) -> list[str]:
    total, told = run.config.training.total_steps, []
    if not run.finished:
        told.append(
            f"{run.path} is at step {run.steps:,} of {total:,}; its last evaluation "
            "counts as it is."
        )
    if not len(run.evaluated_at):
        told.append(f"{run.path} has no evaluation and is left out of the tables.")
    return [*told, *_not_finite(run)]


def _not_finite(run: Run) -> list[str]:
    """What has no number must not be averaged over, and must not go unseen."""
    broken = [*run.not_finite.items()]
    if not broken:
        return []
    steps = run.evaluations["env_steps"]
    listed = [
        f"{count} of {int((steps == step).sum())} at step {step:,}"
        for step, count in broken[-_MOST_LISTED:]
    ]
    earlier = len(broken) - len(listed)
    more = f", and in {_count(earlier, 'earlier evaluation')}" if earlier else ""
    what = (
        "curves leave these evaluations out"
        if run.has_finite_end
        else "nothing is computed from these evaluations, the last among them, so that the "
        "tables have no number where they need this run. Leave it out to see the others"
    )
    return [
        f"{run.path} has episodes with a reward, cost or length that is not finite: "
        f"{', '.join(listed)}{more}; {what}."
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _labels(members: Sequence[tuple[Run, ...]]) -> list[str]:
    """The agent's name, and what sets it apart from others of that name."""
    labels = []
    for runs in members:
        first = runs[0].config
        alike = [
            other[0].config
            for other in members
            if (other[0].config.env.id, other[0].config.algo, other[0].rule)
            == (first.env.id, first.algo, runs[0].rule)
        ]
        flat = config_text.flatten(config_text.to_dict(first))
        fields = [name for name in differing_fields(alike) if name != "seed"]
        words = [f"{name.split('.')[-1]}={flat.get(name)}" for name in fields]
        if len(words) > _LONGEST_LABEL:
            words = [runs[0].path.resolve().parent.name]
        words = ["rule", *words] if runs[0].rule else words
        labels.append(f"{first.algo} ({', '.join(words)})" if words else first.algo)
    worlds = [runs[0].config.env.id for runs in members]
    named = list(zip(worlds, labels, strict=True))
    return [
        label if named.count((world, label)) == 1 else f"{label} #{i + 1}"
        for i, (world, label) in enumerate(named)
    ]


def differing_fields(configs: Sequence[Config]) -> list[str]:
    """Dotted names of the fields that are not the same in all configs."""
    flat = [config_text.flatten(config_text.to_dict(config)) for config in configs]
    names = dict.fromkeys(name for fields in flat for name in fields)
    return [n for n in names if any(f.get(n) != flat[0].get(n) for f in flat)]
