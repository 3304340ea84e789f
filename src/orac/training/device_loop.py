"""Algorithm 1 for JAX environments: acting, stepping, replay and updates in one scan.

The loop never leaves the device between two log rows. Every round draws its randomness
from the run's key and the number of the round, so that a resumed run draws the same.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from orac.config.schema import Config
from orac.core import agent as agents
from orac.core import exploration
from orac.core.cost_models import Problem
from orac.envs.base import Environment, reset_batch, step_batch, to_box
from orac.training.state import RoundReport, TrainState, init_train_state, problem_for
from orac.training.train_step import Happened, absorb
from orac.training.xla import compiler_options


def init(key: Key[Array, ""], env: Environment, config: Config) -> TrainState:
    """Reset the environments and make the agent."""
    # The run and its evaluations fold 1 and 2 into this key, and `split` would give those.
    env_key, agent_key = jax.random.split(jax.random.fold_in(key, 0))
    env_state, observation = reset_batch(env, env_key, config.training.num_envs)
    problem = problem_for(env.spec, config)
    state = init_train_state(
        agent_key, env_state, observation, env.spec, problem, config
    )
    # An environment may hand out one buffer twice; donation needs one each.
    return jax.tree.map(jnp.copy, state)


def run(
    key: Key[Array, ""],
    state: TrainState,
    rounds: Int[Array, ""] | int,
    env: Environment,
    config: Config,
    capacity: int,
) -> tuple[TrainState, RoundReport]:
    """Up to `capacity` rounds; reports have that leading axis, of which `rounds` are used.

    The number of rounds is traced, so that the last and shorter stretch of a run is the
    same program.
    """
    return compiled_run()(key, state, rounds, env, config, capacity)


@cache
def compiled_run() -> Any:
    """`_run`, compiled when it is first called: only then is the backend known."""
    return jax.jit(
        _run,
        static_argnames=("env", "config", "capacity"),
        donate_argnums=1,
        compiler_options=compiler_options(),
    )


def _run(
    key: Key[Array, ""],
    state: TrainState,
    rounds: Int[Array, ""] | int,
    env: Environment,
    config: Config,
    capacity: int,
) -> tuple[TrainState, RoundReport]:
    problem = problem_for(env.spec, config)
    step = partial(one_round, key, env=env, problem=problem, config=config)
    shapes = jax.eval_shape(step, state)[1]
    reports = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

    def body(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, reports = carry
        state, report = step(state)
        # An environment may return weakly typed numbers, which would be traced anew.
        state = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)
        return state, jax.tree.map(lambda all, x: all.at[i].set(x), reports, report)

    return jax.lax.fori_loop(0, rounds, body, (state, reports))


def one_round(
    key: Key[Array, ""],
    state: TrainState,
    *,
    env: Environment,
    problem: Problem,
    config: Config,
) -> tuple[TrainState, RoundReport]:
    """Act in every environment, remember what happened, and learn."""
    round_key = jax.random.fold_in(key, state.rounds)
    act_key, env_key, pivot_key, learn_key = jax.random.split(round_key, 4)
    action, act_metrics = choose_action(act_key, state, problem, config)
    env_state, observation, step = step_batch(
        env, env_key, state.env, to_box(env.spec, action)
    )
    keys, happened = (pivot_key, learn_key), Happened.of(step, observation)
    return absorb(
        keys, state, env_state, action, happened, act_metrics, problem, config
    )


def choose_action(
    key: Key[Array, ""], state: TrainState, problem: Problem, config: Config
) -> tuple[Array, dict[str, Array]]:
    """Uniform actions before learning starts, the behaviour policy from then on."""
    env_steps = state.rounds * config.training.num_envs
    shape = (config.training.num_envs, problem.action_size)

    def behaviour() -> tuple[Array, dict[str, Array]]:
        return agents.act(
            key,
            state.agent,
            state.observation,
            state.context,
            shift_radius_at(env_steps, config),
            problem,
            config.agent,
        )

    def uniform() -> tuple[Array, dict[str, Array]]:
        shapes = jax.eval_shape(behaviour)[1]
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), nothing

    return jax.lax.cond(env_steps < config.training.learning_starts, uniform, behaviour)


def shift_radius_at(env_steps: Int[Array, ""], config: Config) -> Float[Array, ""]:
    """The exploration radius at a point of the run."""
    settings = config.agent.exploration
    radius = settings.shift_radius
    if settings.radius_is_kl:
        radius = exploration.radius_from_kl(radius)
    if not settings.decay:
        return jnp.float32(radius)
    left = 1 - env_steps / config.training.total_steps
    return jnp.float32(radius) * jnp.clip(left, 0, 1)
