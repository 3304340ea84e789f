"""Measure how long updates, actions, training loops and commands take, and compare with targets.

    make bench
    python benchmarks/bench.py [SECTION ...] [--repeats 5] [--products] [--record]

Every workload runs in a process that uses one processor, as the workers of orac do. The
workloads of a section take turns, so that other load slows all of them. The table shows
medians of the repeats in CPU milliseconds; wall times are recorded as well. Wherever
possible, a row of the table is a ratio of two times of the same run. Between runs and
machines, compare ratios and not milliseconds.
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN
from typing import Any, NamedTuple

from workloads import FORMS, PRESETS, SIZES

HERE = Path(__file__).resolve().parent
END_OF_TABLE = (
    "<!-- `benchmarks/bench.py --record` does not change the text below this line. -->"
)


class Measured(NamedTuple):
    """Medians over the repeats of a workload."""

    cpu: float
    """CPU milliseconds per unit of work."""
    wall: float
    """Wall milliseconds per unit of work."""
    peak: float
    """Peak memory of the process in MB."""
    facts: dict[str, Any]
    """Further information from the workload, such as its sizes."""


class Figure(NamedTuple):
    """One row of the table: a measured value and its target."""

    name: str
    value: float | None
    unit: str = ""
    target: str = ""
    """Text such as `<= 1.5` or `>= 2.5`; empty if there is no target."""
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
    """A process that prepares workloads and runs them on request."""

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
    """Measures workloads and collects figures. It is the argument of every section."""

    def __init__(self, processor: int, repeats: int, peers: Path, products: bool):
        self.processor, self.repeats = processor, repeats
        self.peers, self.products = peers, products
        self.measured: dict[str, Measured] = {}
        self.errors: dict[str, str] = {}
        self.figures: list[Figure] = []

    def measure(self, groups: list[tuple[list[str], str, str]]) -> None:
        """Measure groups of workloads, each in its own process.

        A group has the names of its workloads, the Python executable and the script of the
        process.
        """
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

    def process(self, arguments: list[str], cache: str) -> tuple[float, float]:
        """Run Python with these arguments and this cache folder.

        Returns the CPU seconds and the wall seconds of the process.
        """
        variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        variables["XDG_CACHE_HOME"] = cache
        started, before = time.perf_counter(), resource.getrusage(RUSAGE_CHILDREN)
        subprocess.run(
            ["taskset", "-c", str(self.processor), sys.executable, *arguments],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        after = resource.getrusage(RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return cpu, time.perf_counter() - started

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
        """Return the milliseconds of each workload, or the error that it raised."""
        return ", ".join(
            self.errors[name]
            if name in self.errors
            else f"{self.measured[name].cpu:.3g} ms"
            for name in names
        )


def updates(bench: Bench) -> None:
    """Time updates of all risk forms, sizes and presets, and their floors (see `floor.py`)."""
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


def acting(bench: Bench) -> None:
    """Time one action of the behaviour policy, in one environment."""
    names = [f"act {name}" for name in (*PRESETS, "256x256 quantile")]
    bench.measure([bench.ours(*names)])
    for name in names:
        bench.figure(name, bench.measured[name].cpu, "ms")


def loops(bench: Bench) -> None:
    """Time whole training loops of this library and of other libraries."""
    ours = {"Pendulum": "loop Pendulum", "PointGoal1": "loop PointGoal1"}
    sizes = {
        "Pendulum": {
            "hidden_sizes": [128, 128],
            "batch_size": 128,
            "num_envs": 1,
            "gradient_steps": 1,
        },
        "PointGoal1": {
            "hidden_sizes": [128, 128],
            "batch_size": 128,
            "num_envs": 8,
            "gradient_steps": 0.25,
        },
    }
    peers = [
        ("sbx", "Pendulum-v1", "Pendulum"),
        ("sb3", "Pendulum-v1", "Pendulum"),
        ("sbx", "orac/SafetyPointGoal1-v0", "PointGoal1"),
        ("sb3", "orac/SafetyPointGoal1-v0", "PointGoal1"),
        ("sb3", "package/SafetyPointGoal1-v0", "PointGoal1"),
        ("omnisafe", "package/SafetyPointGoal1-v0", "PointGoal1"),
    ]
    names = [
        f"{library} {env} {json.dumps(sizes[ours])}" for library, env, ours in peers
    ]
    groups = [bench.ours(name) for name in ours.values()]
    if bench.peers.exists():
        groups += [([name], str(bench.peers), "peers.py") for name in names]
    else:
        missing = f"{bench.peers} does not exist; `make bench` makes it"
        bench.errors |= dict.fromkeys(names, missing)
    bench.measure(groups)
    for env, name in ours.items():
        facts = bench.measured[name].facts
        if json.loads(json.dumps(facts)) != sizes[env]:
            raise ValueError(f"the peers of {name} must have the sizes {facts}")
    over = (ours["Pendulum"], names[0])
    bench.figure(
        "Pendulum, default agent, one update per step: our step / SBX SAC's",
        bench.ratio(*over),
        "",
        "<= 1.5",
        bench.note(*over),
    )
    bench.figure(
        "Pendulum: SB3 SAC's step / ours",
        bench.ratio(names[1], ours["Pendulum"]),
        "",
        "",
        bench.note(names[1]),
    )
    has_omnisafe = names[5] in bench.measured
    for (library, env, _), name in zip(peers[2:], names[2:], strict=True):
        whole = library == "omnisafe" or (name == names[4] and not has_omnisafe)
        bench.figure(
            f"PointGoal1 ({env.split('/')[0]}): step of {library} / ours",
            bench.ratio(name, ours["PointGoal1"]),
            "",
            ">= 2.5" if whole else "",
            bench.note(name, ours["PointGoal1"]),
        )


START = """if True:
    import sys
    import orac
    def spins(observation, action, next_observation, info):
        return float(abs(next_observation[2]) > 6)
    if sys.argv[1] == "maze":
        agent = orac.ORAC("orac/GuardedMaze-v0", preset="fast")
    else:
        agent = orac.ORAC("Pendulum-v1", cost_fn=spins, cost_limit=2)
    training = agent.config.training
    log = -(-training.log_every // training.num_envs)
    rounds = -(-training.learning_starts // training.num_envs)
    while rounds > 0:
        agent.runner.advance(min(rounds, log), log)
        rounds -= log
    while not int(agent.runner.state.agent.gradient_steps):
        agent.runner.advance(1, log)
"""


def startup(bench: Bench) -> None:
    """Time the import, commands that only print, and a run until its first update."""
    commands = {
        "import orac": (["-c", "import orac"], 0.5),
        "orac --help": (["-m", "orac", "--help"], 0.4),
        "orac train --algo orak": (["-m", "orac", "train", "--algo", "orak"], 0.4),
        "orac config": (["-m", "orac", "config"], 0.4),
        "orac agents": (["-m", "orac", "agents"], 0.4),
        "orac envs": (["-m", "orac", "envs"], 0.4),
    }
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(bench.repeats):
            for name, (command, _) in commands.items():
                found.setdefault(name, []).append(bench.process(command, folder))
        for name, (_, target) in commands.items():
            seconds(bench, name, found[name], f"<= {target}")
    found = {}
    for _ in range(bench.repeats):
        for case in ("maze", "Pendulum"):
            with tempfile.TemporaryDirectory() as folder:
                for heat in ("cold", "warm"):
                    times = bench.process(["-c", START, case], folder)
                    found.setdefault(f"{case}, {heat}", []).append(times)
    for name, times in found.items():
        target = "<= 12" if name.endswith("cold") else "<= 5"
        seconds(bench, f"import to first update: {name}", times, target)


def seconds(
    bench: Bench, name: str, times: list[tuple[float, float]], target: str
) -> None:
    """Add a figure in CPU seconds, with the wall seconds as its note."""
    cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
    bench.figure(name, cpu, "CPU s", target, f"{wall:.2f} s")


def memory(bench: Bench) -> None:
    """Measure the peak memory of a run with a full replay."""
    name = "memory PointGoal1"
    bench.measure([bench.ours(name)])
    found = bench.measured[name]
    size = found.facts["replay"]
    note = f"of which the replay of a million rows is {size:.0f} MB"
    bench.figure("peak memory, PointGoal1", found.peak, "MB", "", note)


GROWTH = {
    "num_quantiles": (8, 16, 32, 64),
    "num_cost_critics": (1, 2, 4, 8),
    "batch": (64, 128, 256, 512),
    "width": (64, 128, 256, 512),
    "constraints": (1, 2, 4),
    "seeds": (1, 2, 4),
}


def growth(bench: Bench) -> None:
    """Measure how the time of an update grows with each size of the general preset."""
    names = {
        what: [f"update general with {what}={size}" for size in sizes]
        for what, sizes in GROWTH.items()
    }
    bench.measure([bench.ours(*(name for row in names.values() for name in row))])
    for what, row in names.items():
        first, last = GROWTH[what][0], GROWTH[what][-1]
        bench.figure(
            f"update, {what} from {first} to {last} ({last // first} times): time",
            bench.ratio(row[-1], row[0]),
            "times",
            "",
            bench.note(*row),
        )


SECTIONS = {
    "updates": updates,
    "acting": acting,
    "loops": loops,
    "startup": startup,
    "memory": memory,
    "growth": growth,
}


def busy_processes(before: dict[int, tuple[str, float]], seconds: float) -> list[str]:
    """Return the other processes that used more than 5 % of a processor.

    `before` has the process times at the start, `seconds` ago.
    """
    now = process_times()
    shares = {
        pid: (name, (cpu - before.get(pid, (name, 0.0))[1]) / seconds)
        for pid, (name, cpu) in now.items()
        if pid != os.getpid()
    }
    busy = sorted(shares.values(), key=lambda item: -item[1])
    return [f"{name} {share:.0%}" for name, share in busy if share > 0.05]


def busy_seconds() -> float:
    """Return the CPU seconds that all processes together have used."""
    fields = Path("/proc/stat").read_text().split()
    user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, RUSAGE_CHILDREN)
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def process_times() -> dict[int, tuple[str, float]]:
    """Return the name and the CPU seconds of every process, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, fields = path.read_text().rsplit(")", 1)
            ticks = sum(map(int, fields.split()[11:13]))
            seconds = ticks / os.sysconf("SC_CLK_TCK")
            found[int(path.parent.name)] = (name.split("(", 1)[1], seconds)
    return found


def record(bench: Bench, folder: Path, circumstances: dict[str, Any]) -> None:
    """Write README.md, figures.csv and measured.json.

    If there is a README.md already, its text below the table is not changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    header = ["figure", "measured", "target", "", "milliseconds or notes"]
    with open(folder / "figures.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "value", "unit", "target", "reached", "note"])
        for f in bench.figures:
            reached = "" if f.reached is None else f.reached
            writer.writerow([f.name, f.value, f.unit, f.target, reached, f.note])
    data = {
        **circumstances,
        "measured": {name: m._asdict() for name, m in bench.measured.items()},
        "errors": bench.errors,
    }
    (folder / "measured.json").write_text(json.dumps(data, indent=1) + "\n")
    rows = [header, ["---"] * len(header), *(f.cells() for f in bench.figures)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    machine = circumstances["machine"]
    others = ", ".join(circumstances["others"]) or "none above 5 %"
    readme = folder / "README.md"
    below = readme.read_text().partition(END_OF_TABLE)[2] if readme.exists() else "\n"
    readme.write_text(
        "# Benchmarks\n\n"
        f"`make bench` at commit {machine['commit']}, with Python "
        f"{machine['versions']['python']} and jax {machine['versions']['jax']} on "
        f"{machine['cpu_count']} processors, of which each process used one. These are "
        f"medians of {bench.repeats} repeats in CPU milliseconds; the workloads of a "
        "section took turns. Compare ratios, not milliseconds, between runs. The run took "
        f"{circumstances['minutes']:.0f} minutes. Before it, the load of the machine was "
        f"{circumstances['load']:.1f}. During the run, all other processes together used "
        f"{circumstances['others_used']:.2f} processors. The busiest of those that ran from "
        f"start to end (share of a processor): {others}.\n\n{table}\n\n"
        "The floor of an update is the time of its matrix products. XLA computes each of them "
        "once, in the same loop and with the same compiler options; `benchmarks/floor.py` "
        "defines them. "
        "`figures.csv` has the table, `measured.json` all medians and the machine.\n\n"
        f"{END_OF_TABLE}{below}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about = f"sections to run: {', '.join(SECTIONS)} (default: all)"
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=about)
    about = "number of repeats of each workload (default: 5)"
    parser.add_argument("--repeats", type=int, default=5, help=about)
    about = "list the matrix products of each floor"
    parser.add_argument("--products", action="store_true", help=about)
    about = "number of the processor to use (default: the last one)"
    parser.add_argument("--processor", type=int, help=about)
    about = "Python of the environment that has the other libraries"
    peers = HERE.parent / ".venv-peers/bin/python"
    parser.add_argument("--peers", type=Path, default=peers, help=about)
    about = "write the table and the machine to results/benchmarks"
    parser.add_argument("--record", action="store_true", help=about)
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
    load, began, before = os.getloadavg()[0], time.perf_counter(), process_times()
    busy, own = busy_seconds(), own_seconds()
    print(
        f"processor {processor} of {os.cpu_count()}, load {load:.1f} before the start"
    )
    for section in chosen.sections or SECTIONS:
        SECTIONS[section](bench)
    seconds = time.perf_counter() - began
    others = busy_processes(before, seconds)
    used = (busy_seconds() - busy - (own_seconds() - own)) / seconds
    print(
        f"The run took {seconds / 60:.1f} minutes. Other processes used {used:.2f} "
        f"processors. The busiest: {', '.join(others) or 'none above 5 %'}"
    )
    if chosen.record:
        from orac.runs.machine import describe_machine

        circumstances = {
            "machine": describe_machine(),
            "load": load,
            "minutes": seconds / 60,
            "others_used": max(used, 0.0),
            "others": others,
        }
        record(bench, HERE.parent / "results/benchmarks", circumstances)


if __name__ == "__main__":
    main()
