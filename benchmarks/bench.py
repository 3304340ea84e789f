"""Time everything that a user waits for, and compare it with its target, in one run.

    python benchmarks/bench.py [SECTION ...] [--repeats 5] [--products]

Every workload runs in a process that uses one processor, as orac's own workers do. The
workloads of a section take turns, so that other load slows all of them, and the table shows
medians of the repeats in CPU milliseconds (wall times are recorded as well). Figures are
ratios within one run wherever that is possible: compare those, not milliseconds, between
runs and machines.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from workloads import FORMS, PRESETS, SIZES

HERE = Path(__file__).resolve().parent


class Measured(NamedTuple):
    """Medians of a workload's repeats."""

    cpu: float
    wall: float
    peak: float
    facts: dict[str, Any]


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    value: float | None
    unit: str = ""
    target: str = ""
    """`<= 1.5` or `>= 2.5`; empty if there is none."""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        if not self.target or self.value is None:
            return None
        sign, number = self.target.split()
        return (
            self.value <= float(number) if sign == "<=" else self.value >= float(number)
        )

    def cells(self) -> list[str]:
        value = "-" if self.value is None else f"{self.value:.3g}"
        reached = {None: "", True: "reached", False: "not reached"}[self.reached]
        return [
            self.name,
            f"{value} {self.unit}".strip(),
            self.target,
            reached,
            self.note,
        ]


class Worker:
    """A process that holds prepared workloads."""

    def __init__(self, processor: int, names: list[str], python: str, script: str):
        self.names = names
        command = [python, str(HERE / script), str(processor), *names]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        self.errors: dict[str, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}

    def wait(self) -> None:
        """Wait until the workloads are prepared."""
        for name in self.names:
            answer = self.answer()
            if "error" in answer:
                self.errors[name] = answer["error"]
            else:
                self.facts[name] = answer["facts"]

    def run(self, name: str) -> dict[str, float]:
        self.process.stdin.write(f"{self.names.index(name)}\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {', '.join(self.names)} ended early")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Bench:
    """Measures workloads; the first argument of every section."""

    def __init__(self, processor: int, repeats: int, peers: Path, products: bool):
        self.processor, self.repeats = processor, repeats
        self.peers, self.products = peers, products
        self.measured: dict[str, Measured] = {}
        self.errors: dict[str, str] = {}
        self.figures: list[Figure] = []

    def measure(self, groups: list[tuple[list[str], str, str]]) -> None:
        """Measure groups of workloads: names, Python and script of a process each."""
        workers = []
        for names, python, script in groups:
            worker = Worker(self.processor, names, python, script)
            worker.wait()
            workers.append(worker)
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(self.repeats):
            for worker in workers:
                for name in worker.facts:
                    found.setdefault(name, []).append(worker.run(name))
        for worker in workers:
            worker.close()
            self.errors |= worker.errors
            for name, facts in worker.facts.items():
                medians = [
                    statistics.median(run[key] for run in found[name])
                    for key in ("cpu", "wall", "peak")
                ]
                self.measured[name] = Measured(*medians, facts)

    def ours(self, *names: str) -> tuple[list[str], str, str]:
        return list(names), sys.executable, "workloads.py"

    def figure(self, name: str, value: float | None, *rest: str) -> None:
        self.figures.append(Figure(name, value, *rest))
        print("  ".join(cell for cell in self.figures[-1].cells() if cell), flush=True)

    def ratio(self, over: str, under: str) -> float | None:
        both = [self.measured.get(name) for name in (over, under)]
        if None in both:
            return None
        return both[0].cpu / both[1].cpu

    def note(self, *names: str) -> str:
        """Return the milliseconds of workloads, or why there are none."""
        return ", ".join(
            self.errors[name]
            if name in self.errors
            else f"{self.measured[name].cpu:.3g} ms"
            for name in names
        )


def updates(bench: Bench) -> None:
    """An update of every form and size, and its floor."""
    names = [f"{size} {form}" for size in SIZES for form in FORMS] + list(PRESETS)
    pairs = [(f"update {name}", f"floor {name}") for name in names]
    bench.measure([bench.ours(*(name for pair in pairs for name in pair))])
    targets = {
        "256x256 quantile": "<= 1.25",
        "maze scalar": "<= 2",
        "256x256 dual": "<= 1.15",
        "maze implicit": "<= 1.6",
    }
    over = "update maze quantile", "update maze scalar"
    bench.figure(
        "update, maze: quantile / SAC-Lagrangian",
        bench.ratio(*over),
        "",
        "<= 1.5",
        bench.note(*over),
    )
    for name, pair in zip(names, pairs, strict=True):
        bench.figure(
            f"update / floor: {name}",
            bench.ratio(*pair),
            "",
            targets.get(name, ""),
            bench.note(*pair),
        )
        facts = bench.measured[pair[1]].facts
        if bench.products:
            print(f"    {facts['mflop']:.0f} MFLOP")
            print("\n".join(f"    {line}" for line in facts["products"]))


SECTIONS = {"updates": updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about = f"sections to run: {', '.join(SECTIONS)} (default: all)"
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=about)
    parser.add_argument("--repeats", type=int, default=5, help="of each workload (5)")
    parser.add_argument("--products", action="store_true", help="list the floor")
    about = "number of the processor to use (default: the last one)"
    parser.add_argument("--processor", type=int, help=about)
    about = "Python of the environment that has the other libraries"
    peers = HERE.parent / ".venv-peers/bin/python"
    parser.add_argument("--peers", type=Path, default=peers, help=about)
    chosen = parser.parse_args()
    for section in chosen.sections:
        if section not in SECTIONS:
            parser.error(
                f"SECTION must be one of {', '.join(SECTIONS)}; got {section!r}"
            )
    processor = chosen.processor
    if processor is None:
        processor = max(os.sched_getaffinity(0))
    bench = Bench(processor, chosen.repeats, chosen.peers, chosen.products)
    print(f"processor {processor} of {os.cpu_count()}, load {os.getloadavg()[0]:.1f}")
    for section in chosen.sections or SECTIONS:
        SECTIONS[section](bench)


if __name__ == "__main__":
    main()
