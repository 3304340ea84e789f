"""Many seeds at once: one program with `vmap` over seeds, or a process for each?

    python benchmarks/seeds.py [--preset maze|safety] [--seeds 1 2 4]

Updates a second over all seeds: of one program that may use every processor, and of
one-thread processes side by side, one for each processor. The scheduler does what wins.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from learner import cases, random_batch
from timing import median_ms

from orac.core import agent as agent_core
from orac.core.risk_forms import make_learner
from orac.training.xla import compiler_options

PRESETS = {"maze": "maze orac-iqn", "safety": "safety orac-lin"}


def time_update(preset: str, seeds: int, calls: int) -> float:
    """Milliseconds for one update of every seed, in one program."""
    config, problem = cases()[PRESETS[preset]]
    learner = make_learner(problem, config)
    keys = jax.random.split(jax.random.key(0), seeds)
    states = jax.vmap(lambda key: agent_core.init(key, learner))(keys)
    batch = random_batch(problem)
    batches = jax.tree.map(lambda x: jnp.stack([x] * seeds), batch)

    def update_all(keys, states, batches):
        def one(key, state, batch):
            return agent_core.update(key, state, batch, learner)[0]

        return jax.vmap(one)(keys, states, batches)

    run = jax.jit(update_all, donate_argnums=1, compiler_options=compiler_options())
    box = [states]

    def call():
        box[0] = run(keys, box[0], batches)
        jax.block_until_ready(box[0])

    return median_ms(call, repeats=5, calls=calls)


def time_processes(preset: str, calls: int) -> list[float]:
    """Milliseconds an update in one-thread processes that run side by side."""
    words = [sys.executable, str(Path(__file__)), "--preset", preset, "--alone"]
    children = [
        subprocess.Popen(
            [*words, str(processor), "--calls", str(calls)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for processor in sorted(os.sched_getaffinity(0))
    ]
    return [float(child.communicate()[0].split()[-1]) for child in children]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="maze")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--calls", type=int, default=20, help="updates per repeat")
    parser.add_argument("--alone", type=int, help="one seed on this processor")
    options = parser.parse_args()
    if options.alone is not None:
        os.sched_setaffinity(0, {options.alone})
        print(time_update(options.preset, 1, options.calls))
        return
    threads = len(os.sched_getaffinity(0))
    print(f"{PRESETS[options.preset]}, {threads} threads, jax {jax.__version__}")
    alone = time_processes(options.preset, options.calls)
    rate = sum(1e3 / ms for ms in alone)
    told = ", ".join(f"{ms:.1f}" for ms in alone)
    print(f"{threads} one-thread processes: {told} ms, {rate:.1f} updates/s in all")
    for seeds in options.seeds:
        ms = time_update(options.preset, seeds, options.calls)
        rate = 1e3 * seeds / ms
        print(f"vmap over {seeds} seeds: {ms:.1f} ms, {rate:.1f} updates/s", flush=True)


if __name__ == "__main__":
    main()
