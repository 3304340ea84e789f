"""Define studies: the cases to train, their seeds, and the tables made from their runs.

A case is one config that is trained with several seeds. It is one row of a table. An ablation
and the main experiment, for example, may have a case in common. If both use the same `--out`,
they share its runs, because its run directories are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orac.config import overrides
from orac.config.schema import Config
from orac.config.validation import check_choice
from orac.experiments.launcher.schedule import PlannedRun
from orac.reports.run_reader import Group, RecordedRun
from orac.reports.tables import Table


@dataclass(frozen=True)
class Case:
    """One config of a study."""

    label: str
    """Name in tables and messages, unique in the study."""
    name: str
    """Name of the directory that contains the run directories of all seeds."""
    config: Config
    seeds: int = 10
    """Default number of seeds; for a study of the paper, the paper's number."""
    key: tuple[str, ...] = ()
    """Path to the paper's numbers for this case in paper_results.json."""
    preset: Config | None = None
    """The config before `with_settings` changed it; None before that call."""
    first_seed: int = 0
    """First of the default seeds."""
    cost_bound: float | None = None
    """Maximum cost of an episode, for an environment that does not declare it."""


@dataclass(frozen=True)
class CaseResults:
    """The runs of a case that exist, in the order of their seeds; see `records.collect`."""

    case: Case
    runs: tuple[RecordedRun, ...]
    missing: tuple[int, ...] = ()
    """Seeds that were requested and have no run yet."""

    @property
    def config(self) -> Config:
        """Config of the existing runs; the config of the case if there are none."""
        return self.runs[0].config if self.runs else self.case.config

    @property
    def group(self) -> Group:
        """The existing runs as a group of a report."""
        return Group(self.case.label, self.runs)

    @property
    def evaluated(self) -> tuple[RecordedRun, ...]:
        """Runs that have at least one evaluation."""
        return tuple(run for run in self.runs if len(run.evaluation_steps))

    @property
    def finished(self) -> tuple[RecordedRun, ...]:
        """Evaluated runs that reached their last step."""
        return tuple(run for run in self.evaluated if run.finished)


@dataclass(frozen=True)
class Study:
    """A study of `orac reproduce`, or the study of a grid file of `orac sweep`."""

    name: str
    title: str
    cases: tuple[Case, ...]
    make_tables: Callable[[Sequence[CaseResults]], list[Table]]
    make_figure: Callable[[Sequence[CaseResults], str], Any] | None = None
    """Function that draws the results. Its second argument is the kind of band: interval or
    half-std."""
    evaluate_every: Callable[[int], int] | None = None
    """Function from the total steps to the steps between evaluations; None means that
    `evaluation.every` of the config is used."""
    run_columns: Callable[[RecordedRun], dict[str, Any]] = lambda run: {}
    """Function that returns additional columns of runs.csv for a run."""
    certifies: bool = False
    """Whether the delivered policy of every run is certified after training."""
    tails: tuple[float, ...] = ()
    """Tails of the CVaRs in tables and figures, in addition to the constraints' tails."""
    all_cases: tuple[Case, ...] = ()
    """All cases of the study, if `with_settings` has reduced `cases` to those that the user
    chose; empty before that call."""


def steps_between_evaluations(total_steps: int) -> int:
    """Return the steps between evaluations in environments with long episodes.

    The 100 episodes of an evaluation take 40,000 steps in Safety-Gymnasium and 71,900 in
    CityLearn. Therefore a run has only 50 evaluations, or fewer if it is short, because
    evaluations are at least 10,000 steps apart.
    """
    return max(10_000, total_steps // 50)


def with_settings(
    study: Study,
    steps: int | None = None,
    assignments: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Study:
    """Return the study with other settings in every case, or with only some of the cases.

    `steps` is the number of training steps, and `assignments` have the form `field=value`.
    `only` selects cases by label, agent or environment id; if it is empty, all are
    selected.
    """
    cases: list[Case] = []
    for case in study.cases:
        config = case.config
        if steps is not None:
            training = replace(config.training, total_steps=steps)
            config = replace(config, training=training)
        if study.evaluate_every is not None:
            every = study.evaluate_every(config.training.total_steps)
            config = replace(config, evaluation=replace(config.evaluation, every=every))
        config = overrides.override(config, [*assignments])
        for other in cases:
            if other.config == config:
                raise ValueError(
                    f"--set makes {other.label!r} and {case.label!r} the same. Leave out "
                    "the field that the study varies."
                )
        cases.append(replace(case, config=config, preset=case.config))
    names = {case: (case.config.algo, case.label, case.config.env.id) for case in cases}
    for selector in only:
        known = dict.fromkeys(name for several in names.values() for name in several)
        check_choice("--only", selector, known)
    chosen = [case for case in cases if not only or {*names[case]} & {*only}]
    return replace(study, cases=tuple(chosen), all_cases=tuple(cases))


def plan(study: Study, seeds: Sequence[int] | None, out: Path) -> list[PlannedRun]:
    """Return all runs of a study. If `seeds` is None, each case has its default seeds.

    The first seeds of all cases come before their second seeds, so that a study that is
    stopped early has some runs of every case.
    """
    wanted = {
        case: [*(seeds or range(case.first_seed, case.first_seed + case.seeds))]
        for case in study.cases
    }
    return [
        PlannedRun(
            case.label,
            replace(case.config, seed=chosen[i]),
            case.name,
            out,
            study.certifies,
            case.cost_bound,
        )
        for i in range(max(map(len, wanted.values())))
        for case, chosen in wanted.items()
        if i < len(chosen)
    ]


def missing_notes(results: Sequence[CaseResults]) -> list[str]:
    """Return a note on the missing and unfinished runs; no note if the study is complete."""
    notes = []
    waiting = [r.case.label for r in results if not r.runs and not r.missing]
    for result in results:
        parts = [
            f"seed {run.config.seed} is at step {run.steps:,} of "
            f"{run.config.training.total_steps:,}"
            for run in result.runs
            if not run.finished
        ]
        if result.missing:
            several = len(result.missing) > 1
            subject = f"{'seeds' if several else 'seed'} {_ranges(result.missing)}"
            parts.append(f"{subject} {'have' if several else 'has'} not started")
        if parts:
            notes.append(f"{result.case.label}: {'; '.join(parts)}.")
    if waiting:
        notes.append(f"These cases have no runs yet: {'; '.join(waiting)}.")
    return ["This study is not complete. " + " ".join(notes)] if notes else []


def _ranges(seeds: Sequence[int]) -> str:
    """Write 0, 1, 2, 5 as `0-2, 5`."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)
