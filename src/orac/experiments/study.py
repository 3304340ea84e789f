"""What a study is: cases to run, seed by seed, and what is made of them.

A case is a row of a table: one config, run with several seeds, in a place of its own
below the study's folder. Studies whose cases are the same, such as an ablation's middle
value and the main experiment, share those runs when they share the folder.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orac.config import serialization as config_text
from orac.config.schema import Config
from orac.config.validation import unknown_name
from orac.experiments.launcher.schedule import PlannedRun
from orac.reports.html.tables import Table
from orac.reports.run_groups import Group
from orac.reports.run_reader import Run, read_run
from orac.runs.directory import run_path


@dataclass(frozen=True)
class Case:
    """One config of a study, and how many seeds it has in the paper."""

    label: str
    """For people, and unique in its study."""
    name: str
    """Of its run directories."""
    config: Config
    seeds: int = 10
    key: tuple[str, ...] = ()
    """Where its numbers are in the study's part of the paper's results."""
    preset: Config | None = None
    """Its config before any setting of the caller's; None: there was none."""


@dataclass(frozen=True)
class Found:
    """A case's runs as they are on disk, with their seeds in order."""

    case: Case
    runs: tuple[Run, ...]
    missing: tuple[int, ...] = ()
    """Seeds that were asked for and are not begun."""

    @property
    def evaluated(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if len(run.evaluated_at))

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.evaluated if run.finished)

    @property
    def group(self) -> Group:
        return Group(self.case.label, self.runs)


def no_columns(run: Run) -> dict[str, Any]:
    """Nothing beyond what runs.csv says of every run."""
    return {}


@dataclass(frozen=True)
class Study:
    """One command of `orac reproduce`, or a grid of one's own."""

    name: str
    title: str
    cases: tuple[Case, ...]
    make_tables: Callable[[Sequence[Found]], list[Table]]
    make_figure: Callable[[Sequence[Found], str], Any] | None = None
    """From what was found and the kind of band: interval or half-std."""
    evaluate_every: Callable[[int], int] | None = None
    """Steps between evaluations, from the total; None leaves the config's."""
    run_columns: Callable[[Run], dict[str, Any]] = no_columns
    """What runs.csv says of each run beside what it says of all."""


def with_settings(
    study: Study,
    steps: int | None = None,
    assignments: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Study:
    """The study with other settings in every case, or with fewer cases."""
    cases = []
    for case in study.cases:
        config = case.config
        if steps is not None:
            training = replace(config.training, total_steps=steps)
            config = replace(config, training=training)
        if study.evaluate_every is not None:
            every = study.evaluate_every(config.training.total_steps)
            config = replace(config, evaluation=replace(config.evaluation, every=every))
        config = config_text.override(config, [*assignments])
        cases.append(replace(case, config=config, preset=case.config))
    _check_apart(cases)
    return replace(study, cases=tuple(choose(cases, only)))


def _check_apart(cases: Sequence[Case]) -> None:
    """A setting must not undo what sets two cases apart."""
    seen: dict[Config, Case] = {}
    for case in cases:
        other = seen.setdefault(case.config, case)
        if other is not case:
            raise ValueError(
                f"--set makes {other.label!r} and {case.label!r} the same. Leave out the "
                "field that the study varies."
            )


def choose(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Cases of which a word is the label, the agent or the environment; all without."""
    for word in only:
        known = dict.fromkeys(
            name
            for case in cases
            for name in (case.config.algo, case.label, case.config.env.id)
        )
        if word not in known:
            raise unknown_name("--only", word, known)
    return [
        case
        for case in cases
        if not only or {case.label, case.config.algo, case.config.env.id} & {*only}
    ]


def plan(study: Study, seeds: Sequence[int] | None, out: Path) -> list[PlannedRun]:
    """Every run, seed by seed: a study that ends early has some of every case."""
    wanted = {case: [*(seeds or range(case.seeds))] for case in study.cases}
    most = max(map(len, wanted.values()))
    return [
        PlannedRun(case.label, replace(case.config, seed=chosen[i]), case.name, out)
        for i in range(most)
        for case, chosen in wanted.items()
        if i < len(chosen)
    ]


def collect(
    cases: Iterable[Case], out: Path, planned: Sequence[PlannedRun] = ()
) -> list[Found]:
    """What is on disk of each case: all of its seeds, whoever asked for them."""
    found = []
    for case in cases:
        config = case.config
        folder = run_path(out, config.env.id, config.algo, 0, case.name).parent
        paths = sorted(path.parent for path in folder.glob("seed-*/config.yaml"))
        runs = tuple(read_run(path) for path in paths)
        _check_alike(case, runs)
        there = {run.config.seed for run in runs}
        asked = {run.config.seed for run in planned if run.path.parent == folder}
        found.append(Found(case, runs, tuple(sorted(asked - there))))
    return found


def _check_alike(case: Case, runs: Sequence[Run]) -> None:
    for run in runs[1:]:
        changes = config_text.difference(
            replace(run.config, seed=0), replace(runs[0].config, seed=0)
        )
        if changes:
            name, (ours, theirs) = next(iter(changes.items()))
            raise ValueError(
                f"the runs of {case.label} must differ in their seed alone, but {run.path} "
                f"has {name} {ours} and {runs[0].path} has {theirs}. Move one of them."
            )


def shortcomings(everything: Sequence[Found]) -> list[str]:
    """Sentences on what a partial study lacks."""
    told = []
    for found in everything:
        total = found.case.config.training.total_steps
        parts = [
            f"seed {run.config.seed} is at step {run.steps:,} of "
            f"{run.config.training.total_steps:,}"
            for run in found.runs
            if not run.finished
        ]
        if found.missing:
            plural = "s" if len(found.missing) > 1 else ""
            verb = "are" if plural else "is"
            parts.append(f"seed{plural} {_ranges(found.missing)} {verb} not begun")
        elif not found.runs:
            parts.append(f"nothing is begun (of {total:,} steps)")
        if parts:
            told.append(f"{found.case.label}: {'; '.join(parts)}.")
    if not told:
        return []
    return ["Partial study. " + " ".join(told)]


def _ranges(seeds: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0-2, 5`."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)
