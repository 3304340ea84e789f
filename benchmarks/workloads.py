"""The workloads that `bench.py` times, each in a process that uses one processor.

    python benchmarks/workloads.py PROCESSOR NAME [NAME ...]

The process prepares the named workloads (it compiles them and runs them once) and prints
one line of JSON for each. Then it reads indices of workloads from standard input. For each
index it runs the workload for about `SHORTEST` seconds, and prints the wall and CPU
milliseconds per unit of work and the peak memory. In this way, `bench.py` alternates between
workloads and processes.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

LOOP = 8
"""Number of updates in one compiled program, as in the training loop of JAX environments."""
SHORTEST = 0.1
"""Approximate seconds of a timed run. The preparation measures how many calls that takes."""
SIZES = ("maze", "256x256")
FORMS = ("scalar", "quantile", "implicit", "dual")
PRESETS = {
    "fast maze": ("orac/GuardedMaze-v0", "fast", (2, 2, 100)),
    "fast PointGoal1": ("orac/SafetyPointGoal1-v0", "fast", (60, 2, 400)),
    "general": ("Pendulum-v1", "general", (3, 1, 200)),
}


class Workload(NamedTuple):
    """A function to time."""

    call: Callable[[], Any]
    units: int
    """Number of units of work, such as updates, that one call does."""
    facts: dict[str, Any]
    """Further information for `bench.py`."""


class Learning(NamedTuple):
    """A learner's config and problem, and the rows of a batch."""

    config: Any
    problem: Any
    batch: int


def serve(prepare: Callable[[str], Workload], names: list[str]) -> None:
    """Prepare the workloads, and run each whose index is read from standard input."""
    ready = []
    for name in names:
        try:
            workload = prepare(name)
            workload.call()
            calls, seconds = 0, time.perf_counter()
            while time.perf_counter() - seconds < SHORTEST:
                workload.call()
                calls += 1
        except Exception as error:
            # For example, a package may be missing. The table of `bench.py` says so.
            ready.append(None)
            reply({"error": f"{type(error).__name__}: {error}"})
            continue
        ready.append((workload, calls))
        reply({"facts": workload.facts})
    for line in sys.stdin:
        workload, calls = ready[int(line)]
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            workload.call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        share = 1e3 / (calls * workload.units)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reply({"wall": wall * share, "cpu": cpu * share, "peak": peak / 1024})


def reply(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)


def learning(name: str) -> Learning:
    """Return the config and the problem of the learner that a name describes.

    A name is a size and a risk form (`maze quantile`), a preset (`fast maze`), or a preset
    with one size changed (`general with num_quantiles=32`).
    """
    from orac.config import presets
    from orac.core.cost_models import make_problem

    preset, _, change = name.partition(" with ")
    if preset in PRESETS:
        env_id, kind, (observation, action, length) = PRESETS[preset]
        config = presets.preset("orac", env_id, kind)
    else:
        size, form = preset.split(" ")
        config = {"maze": presets.guarded_maze, "256x256": presets.safety_gym}[size]()
        observation, action, length = (2, 2, 100) if size == "maze" else (60, 2, 400)
        if form == "scalar":
            config = presets.with_algorithm(config, "sac-lag")
        else:
            agent = replace(config.agent, risk_form=form, behaviour="optimistic")
            config = replace(config, agent=agent)
    agent, batch = config.agent, config.training.batch_size
    constraints = config.constraints
    if change:
        what, number = change.split("=")
        value = int(number)
        if what == "batch":
            batch = value
        elif what == "width":
            agent = replace(agent, hidden_sizes=(value, value))
        elif what == "constraints":
            first = constraints[0]
            constraints = tuple(replace(first, name=f"cost{i}") for i in range(value))
        elif what != "seeds":
            agent = replace(agent, **{what: value})
    problem = make_problem(
        observation,
        action,
        constraints,
        length,
        agent.cost_discount,
        agent.discount,
        divide_by_limit=agent.follows_episodes,
    )
    return Learning(agent, problem, batch)


def random_batch(config: Any, problem: Any, rows: int) -> Any:
    """Return a batch of random transitions."""
    import jax
    import jax.numpy as jnp

    from orac.core.types import Transition

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
        steps=jnp.full(rows, config.n_step) if config.n_step > 1 else (),
    )


def update(name: str) -> Workload:
    """Return a workload of `LOOP` updates of a learner in one program.

    A program allocates its temporary memory at each call. So a program with a single update
    would take more time per update than the training loop.
    """
    import jax
    import jax.numpy as jnp

    from orac.core import agent as agent_core
    from orac.core.risk_forms import make_learner
    from orac.training.xla import compiler_options

    config, problem, rows = learning(name)
    learner = make_learner(problem, config)
    batch = random_batch(config, problem, rows)
    seeds = int(name.partition("seeds=")[2] or 1)

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        return agent_core.update(key, state, batch, learner)[0], None

    def updates(state: Any, key: Any) -> Any:
        return jax.lax.scan(one, state, jax.random.split(key, LOOP))[0]

    state = jax.jit(lambda key: agent_core.init(key, learner))(jax.random.key(0))
    key = jax.random.key(1)
    if seeds > 1:
        updates = jax.vmap(updates)
        state = jax.tree.map(lambda x: jnp.stack([x] * seeds), state)
        key = jax.random.split(key, seeds)
    program = jax.jit(updates, donate_argnums=0, compiler_options=compiler_options())
    box = [jax.tree.map(jnp.copy, state)]

    def call() -> None:
        box[0] = jax.block_until_ready(program(box[0], key))

    return Workload(call, LOOP, {})


def floor(name: str) -> Workload:
    """Return a workload of the matrix products of a learner's updates (see `floor.py`)."""
    import jax
    from floor import floor_program, products_of

    config, problem, rows = learning(name)
    products = products_of(problem, config, rows)
    program = floor_program(products, LOOP)
    facts = {
        "mflop": sum(product.flops for product in products) / 1e6,
        "products": [product.describe() for product in products],
    }
    return Workload(lambda: jax.block_until_ready(program()), LOOP, facts)


def act(name: str) -> Workload:
    """Return a workload of one action of the behaviour policy, with its optimistic shift."""
    import jax
    import jax.numpy as jnp

    from orac.core import agent as agent_core
    from orac.core.cost_models import Context
    from orac.core.risk_forms import make_learner
    from orac.training.xla import compiler_options

    config, problem, _ = learning(name)
    learner = make_learner(problem, config)

    def choose(key: Any, state: Any, observation: Any, context: Any) -> Any:
        return agent_core.act(key, state, observation, context, 4.0, learner)[0]

    program = jax.jit(choose, compiler_options=compiler_options())
    state = jax.jit(lambda key: agent_core.init(key, learner))(jax.random.key(0))
    context = Context.start(1, jnp.full(problem.num_constraints, 0.5))
    arguments = (jax.random.key(1), state, jnp.zeros((1, problem.observation_size)))
    return Workload(lambda: jax.block_until_ready(program(*arguments, context)), 1, {})


def loop(name: str) -> Workload:
    """Return a workload of rounds of a whole training loop, after the warm-up steps.

    In `Pendulum`, the default agent makes one gradient step per environment step. In
    `PointGoal1`, the agent has the fast preset of the task.
    """
    import orac

    settings: dict[str, Any] = {
        "training.learning_starts": 400,
        "training.buffer_size": 20_000,
    }
    if name == "Pendulum":
        agent = orac.ORAC(
            "Pendulum-v1",
            cost_fn=spins,
            cost_limit=2,
            settings={**settings, "training.gradient_steps": 1},
        )
    else:
        agent = orac.ORAC("orac/SafetyPointGoal1-v0", preset="fast", settings=settings)
    runner, num_envs = agent.runner, agent.config.training.num_envs
    rounds = 400 // num_envs
    runner.advance(rounds, rounds)
    return Workload(
        lambda: runner.advance(rounds, rounds),
        rounds * num_envs,
        loop_facts(agent.config),
    )


def loop_facts(config: Any) -> dict[str, Any]:
    """Return the sizes that must be the same in the loops of other libraries."""
    training = config.training
    return {
        "hidden_sizes": config.agent.hidden_sizes,
        "batch_size": training.batch_size,
        "num_envs": training.num_envs,
        "gradient_steps": training.gradient_steps,
    }


def spins(observation: Any, action: Any, next_observation: Any, info: Any) -> float:
    """Return the cost of the README's pendulum."""
    return float(abs(next_observation[2]) > 6)


def memory(name: str) -> Workload:
    """Return a workload of rounds in PointGoal1 with a full replay of a million rows."""
    import jax

    import orac

    settings = {"training.learning_starts": 400, "training.buffer_size": 1_000_000}
    agent = orac.ORAC(f"orac/Safety{name}-v0", preset="fast", settings=settings)
    runner = agent.runner
    runner.advance(50, 50)
    replay = runner.state.replay
    fill = jax.jit(
        lambda storage: jax.tree.map(lambda x: (x + 1).astype(x.dtype), storage),
        donate_argnums=0,
    )
    full = replay._replace(storage=fill(replay.storage), inserted=replay.inserted * 0)
    full = full._replace(inserted=full.inserted + 1_000_000)
    runner.state = runner.state._replace(replay=full)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(full)) / 2**20
    return Workload(lambda: runner.advance(50, 50), 400, {"replay": size})


WORKLOADS: dict[str, Callable[[str], Workload]] = {
    "update": update,
    "floor": floor,
    "act": act,
    "loop": loop,
    "memory": memory,
}


def prepare(name: str) -> Workload:
    kind, _, rest = name.partition(" ")
    return WORKLOADS[kind](rest)


if __name__ == "__main__":
    # The processor must be chosen before JAX starts, as in the workers of orac.
    os.sched_setaffinity(0, {int(sys.argv[1])})
    cache = Path(__file__).resolve().parents[1] / ".cache/bench"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    sys.path.insert(0, str(Path(__file__).parent))
    serve(prepare, sys.argv[2:])
