"""What cost critics make of the maze's two ways, by kappa and by whose fractions they are.

    python tools/critic_readings.py --jobs 2 --record results/maze_readings

Nobody acts here: a chain of ten steps stands for each way, the cost falls due in the middle,
and the critics of the maze's preset learn what is to come from fresh batches, bootstrapping
down the chain. Past the guard it is 20 with probability 0.15 and else 2, around it is 4, so
the CVaR at 0.05 is 20 and 4. A row of the table is a reading; the seeds are its unit.
"""

import argparse
import csv
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from orac.config import presets
from orac.config.schema import AgentConfig
from orac.core import agent as agents
from orac.core import cost_models as valuation
from orac.core import learning
from orac.core.agent_state import AgentState
from orac.core.cost_models import Context, Problem, make_problem
from orac.core.types import Transition
from orac.evaluation.intervals import mean_interval
from orac.runs.cpu_affinity import limit_threads
from orac.training.xla import compiler_options

CHAIN, DUE, BATCH = 10, 5, 256
READINGS = [(kappa, shared) for kappa in (1.0, 0.1) for shared in (True, False)]


def see(past_guard: Array, time: Array) -> Array:
    """An observation: which way, and how far along."""
    return jnp.stack([jnp.where(past_guard, 0.5, -0.5), time / DUE - 1], axis=-1)


def draw_batch(key: Key[Array, ""]) -> Transition:
    """Steps from anywhere on either chain, with any action."""
    keys = jax.random.split(key, 4)
    past_guard = jax.random.bernoulli(keys[0], 0.5, (BATCH,))
    time = jax.random.randint(keys[1], (BATCH,), 0, CHAIN)
    caught = jax.random.bernoulli(keys[2], 0.15, (BATCH,))
    due = jnp.where(past_guard, jnp.where(caught, 20.0, 2.0), 4.0)
    cost = jnp.where(time == DUE, due, 0.0)[:, None]
    return Transition(
        observation=see(past_guard, time),
        action=jax.random.uniform(keys[3], (BATCH, 2), minval=-1, maxval=1),
        reward=jnp.zeros(BATCH),
        cost=cost,
        next_observation=see(past_guard, time + 1),
        terminated=time == CHAIN - 1,
        truncated=jnp.zeros(BATCH, bool),
        accumulated_cost=jnp.zeros_like(cost),
        accumulated_discount=jnp.ones(BATCH),
    )


def make_step(problem: Problem, config: AgentConfig) -> Callable[..., Any]:
    """One gradient step of the critics and their targets, as an agent makes it."""

    def step(state: AgentState, key: Key[Array, ""]) -> tuple[AgentState, None]:
        batch_key, critic_key = jax.random.split(key)
        pivot = jnp.zeros((BATCH, 1))
        batch, inputs, next_inputs, _ = learning.prepare(
            state, draw_batch(batch_key), pivot, config
        )
        reward, cost, _ = learning.update_critics(
            critic_key, state, batch, inputs, next_inputs, problem, config
        )
        count = state.gradient_steps + 1
        target = learning.update_targets(
            count, state.target_cost_critics, cost.params, config
        )
        return state._replace(
            reward_critics=reward,
            cost_critics=cost,
            target_cost_critics=target,
            gradient_steps=count,
        ), None

    return step


def risks(state: AgentState, problem: Problem, config: AgentConfig) -> np.ndarray:
    """CVaR to go: (way, first step or the one where it is due), past the guard first."""
    past_guard = jnp.array([True, True, False, False])
    observation = see(past_guard, jnp.array([0, DUE, 0, DUE]))
    levels, weights = valuation.fixed_levels(problem, config)
    quantiles = valuation.cost_quantiles(
        state.cost_critics.params,
        observation,
        jnp.zeros((4, 2)),
        levels,
        problem,
        config,
    ).mean(axis=1)
    context = Context.start(4, jnp.zeros((4, 1)))
    found = valuation.risk_to_go(quantiles, weights, context, problem, config)
    return np.asarray(found).reshape(2, 2)


def make_learn(kappa: float, shared: bool, steps: int) -> Callable[[int], np.ndarray]:
    """A function of the seed: the risks that its critics have learned."""
    preset = presets.with_algorithm(presets.guarded_maze(), "wcsac")
    config = replace(
        preset.agent,
        kappa=kappa,
        shared_fractions=shared,
        num_quantiles=16,
        num_policy_quantiles=16,
    )
    problem = make_problem(2, 2, preset.constraints, 100, config.cost_discount)

    @partial(jax.jit, compiler_options=compiler_options())
    def run(key: Key[Array, ""]) -> AgentState:
        init_key, learn_key = jax.random.split(key)
        state = agents.init(init_key, problem, config)
        keys = jax.random.split(learn_key, steps)
        return jax.lax.scan(make_step(problem, config), state, keys)[0]

    return lambda seed: risks(run(jax.random.key(seed)), problem, config)


def learn_all(reading: tuple[float, bool], seeds: int, steps: int) -> list[list[float]]:
    """A row for each seed."""
    learn = make_learn(*reading, steps)
    return [learn(seed).ravel().tolist() for seed in range(seeds)]


def table_row(kappa: float, shared: bool, found: list[list[float]]) -> str:
    intervals = [mean_interval(column) for column in zip(*found, strict=True)]
    cells = [f"{i.estimate:.2f} [{i.low:.2f}, {i.high:.2f}]" for i in intervals]
    whose = "one set" if shared else "one for each row"
    return f"| {kappa:g} | {whose} | {' | '.join(cells)} |"


def write_found(folder: Path, lines: list[str], rows: list[list[Any]]) -> None:
    """After each reading, so that one that is stopped loses no other."""
    (folder / "critics.md").write_text("\n".join(lines) + "\n")
    with (folder / "critics.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000, help="gradient steps")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    names = ["guard, first step", "guard, due", "long, first step", "long, due"]
    lines = [
        f"| kappa | fractions | {' | '.join(names)} |",
        "|---|---|---|---|---|---|",
    ]
    rows: list[list[Any]] = []
    work = partial(learn_all, seeds=options.seeds, steps=options.steps)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, spawn, limit_threads, (1,)) as pool:
        for reading, found in zip(READINGS, pool.map(work, READINGS), strict=True):
            lines.append(table_row(*reading, found))
            print(lines[-1], flush=True)
            rows += [[*reading, seed, *row] for seed, row in enumerate(found)]
            if options.record:
                columns = ["kappa", "shared_fractions", "seed", *names]
                write_found(options.record, lines, [columns, *rows])


if __name__ == "__main__":
    main()
