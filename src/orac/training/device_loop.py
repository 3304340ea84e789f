"""Run the paper's Algorithm 1 in JAX environments, as one compiled program.

The program acts, steps the environments, stores the steps and updates the agent. It is a
`fori_loop` over rounds and does not leave the device between two log rows. A round is one
step of every environment. The random numbers of a round depend only on the run's key and
the number of the round, so a resumed run draws the same numbers.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from orac.config.schema import Config
from orac.core.agent import Learner, PolicyState
from orac.envs.base import Environment, reset_batch, step_batch, to_box
from orac.evaluation.rollout import Episodes, roll_out
from orac.training.state import (
    EVALUATE,
    MEASURE,
    RESTART,
    RUN,
    empty_replay,
    evaluation_key,
    evaluation_policy,
    init_train_state,
    learner_for,
    order_constraints,
    start_episodes,
    without_seed,
)
from orac.training.train_step import (
    StepBatch,
    StepReport,
    TrainState,
    choose_action,
    store_and_update,
)
from orac.training.xla import compiler_options


class DeviceRunner:
    """A runner that trains and evaluates in JAX environments, in compiled loops."""

    def __init__(self, env: Environment, config: Config) -> None:
        config = order_constraints(env.spec, config)
        self.env, self.config, self.spec = env, config, env.spec
        self.learner = learner_for(env.spec, config)
        key = jax.random.key(config.seed)
        self.key = jax.random.fold_in(key, RUN)
        self.evaluation_key = jax.random.fold_in(key, EVALUATE)
        self.restart_key = jax.random.fold_in(key, RESTART)
        self.state = init(key, env, self.learner, config)

    def advance(self, rounds: int, capacity: int) -> StepReport:
        """Run this many rounds and return NumPy arrays with one entry per round.

        `capacity` is the number of rounds for which the program is compiled. It must be at
        least `rounds`.
        """
        if not self.state.replay:
            buffer = empty_replay(self.learner.problem, self.config)
            self.state = self.state._replace(replay=buffer)
        state = self.state._replace(measured=(), candidates=())
        state, report = compiled_run()(
            self.key, state, rounds, self.env, without_seed(self.config), capacity
        )
        self.state = state._replace(
            measured=self.state.measured, candidates=self.state.candidates
        )
        return jax.tree.map(lambda x: np.asarray(x)[:rounds], report)

    def evaluate(
        self,
        policy: PolicyState,
        episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        sample: int = MEASURE,
    ) -> Episodes:
        """Play whole episodes of a policy and return their totals.

        The random numbers are made from `seed`, or from the run's key if `seed` is None.
        Calls with different values of `sample` play different episodes.
        """
        key = evaluation_key(self.evaluation_key, int(self.state.rounds), seed, sample)
        act = evaluation_policy(self.spec, without_seed(self.config), deterministic)
        return roll_out(key, policy, self.env, act, episodes)

    def host_state(self) -> dict[str, Any] | None:
        """Return an empty dict, because the state of JAX environments is in `TrainState`."""
        return {}

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to the state of a checkpoint. If `host_state` is None, start new episodes.

        Returns False if new episodes were started.
        """
        self.state = state
        if host_state is not None:
            return True
        num_envs = self.config.training.num_envs
        key = jax.random.fold_in(self.restart_key, state.rounds)
        env_key, pivot_key = jax.random.split(key)
        env_state, observation = copy_arrays(reset_batch(self.env, env_key, num_envs))
        state = state._replace(env=env_state)
        self.state = start_episodes(
            pivot_key, state, observation, self.spec, self.learner
        )
        return False

    def configure(self, config: Config) -> None:
        """Use another config from now on. It must have the same problem and networks."""
        self.config = config

    def close(self) -> None:
        """Do nothing, because a JAX environment has nothing to release."""


def init(
    key: Key[Array, ""], env: Environment, learner: Learner, config: Config
) -> TrainState:
    """Reset the environments, make the agent, and return the first training state."""
    # Fold in 0 first. Splitting the key itself could give a key that folding in RUN or
    # EVALUATE gives as well.
    env_key, agent_key = jax.random.split(jax.random.fold_in(key, 0))
    env_state, observation = reset_batch(env, env_key, config.training.num_envs)
    # An environment may use one buffer for two leaves, but only separate buffers can be
    # donated to a compiled program.
    env_state, observation = copy_arrays((env_state, observation))
    return init_train_state(
        agent_key, env_state, observation, env.spec, learner, config
    )


@jax.jit
def copy_arrays(arrays: Any) -> Any:
    """Copy all arrays in one compiled program."""
    return jax.tree.map(jnp.copy, arrays)


@cache
def compiled_run() -> Any:
    """Return `run` as a compiled function.

    The function is made at the first call and not at import, because the backend is known
    only then.
    """
    return jax.jit(
        run,
        static_argnames=("env", "config", "capacity"),
        donate_argnums=1,
        compiler_options=compiler_options(),
    )


def run(
    key: Key[Array, ""],
    state: TrainState,
    rounds: Int[Array, ""] | int,
    env: Environment,
    config: Config,
    capacity: int,
) -> tuple[TrainState, StepReport]:
    """Run the given number of rounds, at most `capacity`.

    Returns the new state and the reports, which have a leading axis of size `capacity`, with
    zeros after the last round. The number of rounds is a traced value, so that the last call
    of a run, which may have fewer rounds, uses the same program.
    """
    learner = learner_for(env.spec, config)
    step = partial(one_round, key, env=env, learner=learner, config=config)
    # jit caches the trace, so `eval_shape` and `fori_loop` share it.
    step = jax.jit(step, inline=True)
    shapes = jax.eval_shape(step, state)[1]
    reports = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

    def body(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, reports = carry
        state, report = step(state)
        # An environment may return weakly typed numbers, for which JAX would trace the step
        # again.
        state = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)
        return state, jax.tree.map(lambda all, x: all.at[i].set(x), reports, report)

    return jax.lax.fori_loop(0, rounds, body, (state, reports))


def one_round(
    key: Key[Array, ""],
    state: TrainState,
    *,
    env: Environment,
    learner: Learner,
    config: Config,
) -> tuple[TrainState, StepReport]:
    """Act in every environment, store the steps, and run the updates that are due."""
    round_key = jax.random.fold_in(key, state.rounds)
    act_key, env_key, pivot_key, update_key = jax.random.split(round_key, 4)
    action, act_metrics = choose_action(act_key, state, learner, config)
    env_state, observation, step = step_batch(
        env, env_key, state.env, to_box(env.spec, action)
    )
    keys, steps = (pivot_key, update_key), StepBatch(observation, *step)
    return store_and_update(
        keys, state, env_state, action, steps, act_metrics, learner, config
    )
