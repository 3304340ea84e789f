"""Milliseconds per update of each preset: ours, the floor, eager PyTorch, and SBX's SAC.

    pip install "orac-rl[bench]"
    python benchmarks/learner.py [--products]

All in one run on one machine, medians of repeats, compile time apart. `--products` lists
the floor's matrix products with their FLOPs.
"""

import argparse
import importlib.util
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from floor import floor_program, products_of
from timing import median_ms

from orac.config import presets
from orac.config.schema import AgentConfig
from orac.core import agent as agent_core
from orac.core.cost_models import Context, Problem, make_problem
from orac.core.risk_forms import make_learner
from orac.core.types import Transition
from orac.training.xla import compiler_options

BATCH = 256
LOOP = 8


def cases() -> dict[str, tuple[AgentConfig, Problem]]:
    maze, gym = presets.guarded_maze(), presets.safety_gym()
    found = {}
    for name, world, sizes in (
        ("maze orac-iqn", presets.with_algorithm(maze, "orac"), (2, 2, 100)),
        ("maze sac-lag", presets.with_algorithm(maze, "sac-lag"), (2, 2, 100)),
        ("safety orac-lin", presets.with_algorithm(gym, "orac"), (60, 2, 400)),
        ("safety sac-lag", presets.with_algorithm(gym, "sac-lag"), (60, 2, 400)),
        ("safety sac", presets.with_algorithm(gym, "sac"), (60, 2, 400)),
    ):
        observation, action, length = sizes
        problem = make_problem(
            observation, action, world.constraints, length, world.agent.cost_discount
        )
        found[name] = (world.agent, problem)
    return found


def random_batch(problem: Problem, rows: int = BATCH) -> Transition:
    keys = jax.random.split(jax.random.key(0), 5)
    size, count = problem.observation_size, problem.num_constraints
    return Transition(
        observation=jax.random.normal(keys[0], (rows, size)),
        action=jnp.tanh(jax.random.normal(keys[1], (rows, problem.action_size))),
        reward=jax.random.normal(keys[2], (rows,)),
        cost=jnp.abs(jax.random.normal(keys[3], (rows, count))),
        next_observation=jax.random.normal(keys[4], (rows, size)),
        terminated=jnp.zeros(rows, bool),
        truncated=jnp.zeros(rows, bool),
        accumulated_cost=jnp.zeros((rows, count)),
        accumulated_discount=jnp.ones(rows),
    )


def time_update(
    config: AgentConfig, problem: Problem, batch: Transition, loop: int = LOOP
) -> float:
    """Milliseconds per update, `loop` of them in one program as the training loops do.

    A program asks the system for its scratch memory at each call; for one update alone
    that can cost more than the update (`one call` in the table).
    """
    learner = make_learner(problem, config)

    def updates(state: agent_core.AgentState) -> agent_core.AgentState:
        def one(state: agent_core.AgentState, step: jax.Array) -> tuple[Any, Any]:
            key = jax.random.fold_in(jax.random.key(1), step)
            return agent_core.update(key, state, batch, learner)

        return jax.lax.scan(one, state, jnp.arange(loop))[0]

    program = jax.jit(updates, donate_argnums=0, compiler_options=compiler_options())
    box = [agent_core.init(jax.random.key(0), learner)]

    def call():
        box[0] = jax.block_until_ready(program(box[0]))

    return median_ms(call, calls=max(24 // loop, 1)) / loop


def time_act(config: AgentConfig, problem: Problem) -> float:
    learner = make_learner(problem, config)
    act = jax.jit(
        partial(agent_core.act, learner=learner), compiler_options=compiler_options()
    )
    state = agent_core.init(jax.random.key(0), learner)
    context = Context.start(1, jnp.full(problem.num_constraints, 0.5))
    observation = jnp.zeros((1, problem.observation_size))
    key = jax.random.key(1)

    def call():
        jax.block_until_ready(act(key, state, observation, context, 4.0))

    return median_ms(call, calls=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", action="store_true", help="list the floor")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    print(f"{threads} threads, load {os.getloadavg()[0]:.1f}, jax {jax.__version__}")
    has_torch = importlib.util.find_spec("torch") is not None
    print(
        "| preset | ours ms | one call | floor ms | ratio | GFLOP | eager PyTorch ms | act ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, (config, problem) in cases().items():
        products = products_of(problem, config, BATCH)
        run = floor_program(products, LOOP)
        floor = median_ms(lambda r=run: jax.block_until_ready(r(0.0)), calls=3) / LOOP
        batch = random_batch(problem)
        ours = time_update(config, problem, batch)
        once = time_update(config, problem, batch, loop=1)
        torch_ms = "-"
        if has_torch:
            from torch_twin import time_torch_update

            torch_ms = f"{time_torch_update(config, problem, batch):.1f}"
        act = time_act(config, problem)
        flops = sum(product.flops for product in products) / 1e9
        print(
            f"| {name} | {ours:.1f} | {once:.1f} | {floor:.1f} | {ours / floor:.2f} | {flops:.2f} "
            f"| {torch_ms} | {act:.2f} |",
            flush=True,
        )
        if options.products:
            for p in products:
                size = f"({p.rows}, {p.inner}) x ({p.inner}, {p.columns})"
                print(
                    f"    {p.count} x {size:<32} {p.flops / 1e6:8.1f} MFLOP  {p.what}"
                )
    if importlib.util.find_spec("sbx") is not None:
        from sbx_sac import time_sbx_update

        print(f"SBX SAC, 256 x 256, 60 observations: {time_sbx_update():.1f} ms")


if __name__ == "__main__":
    main()
