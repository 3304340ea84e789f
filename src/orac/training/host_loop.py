"""Algorithm 1 when the environment lives on the host: three calls a round.

Act on device, step on the host, and absorb what happened on device: replay and gradient
steps in one compiled call that donates the state, so the replay is never copied.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from orac.config.schema import Config
from orac.core import pivots
from orac.core.cost_models import Context, Problem
from orac.core.types import Metrics
from orac.envs.base import EnvSpec, to_box
from orac.training.device_loop import choose_action
from orac.training.state import RoundReport, Totals, TrainState, init_train_state
from orac.training.train_step import Happened, absorb
from orac.training.xla import compiler_options


def init(
    key: Key[Array, ""],
    observation: np.ndarray,
    spec: EnvSpec,
    problem: Problem,
    config: Config,
) -> TrainState:
    """A fresh agent at the first observations of the environments."""
    _, agent_key = jax.random.split(jax.random.fold_in(key, 0))
    return init_train_state(
        agent_key, (), jnp.asarray(observation), spec, problem, config
    )


def make_act(problem: Problem, config: Config, spec: EnvSpec) -> Callable[..., Any]:
    """The compiled first third of a round: actions in [-1, 1] and in the box."""

    @partial(jax.jit, compiler_options=compiler_options())
    def act(key: Key[Array, ""], state: TrainState) -> tuple[Array, Array, Metrics]:
        act_key, *_ = round_keys(key, state)
        action, metrics = choose_action(act_key, state, problem, config)
        return action, to_box(spec, action), metrics

    return act


def round_keys(key: Key[Array, ""], state: TrainState) -> Array:
    """Keys for acting, for new pivots and for learning in this round."""
    return jax.random.split(jax.random.fold_in(key, state.rounds), 3)


def make_absorb(problem: Problem, config: Config) -> Callable[..., Any]:
    """The compiled last third of a round: remember what happened, and learn.

    Its `step` is a `HostStep`, whose arrays are traced here.
    """

    @partial(jax.jit, donate_argnums=1, compiler_options=compiler_options())
    def absorb_step(
        key: Key[Array, ""],
        state: TrainState,
        action: Array,
        step: Any,
        act_metrics: Metrics,
    ) -> tuple[TrainState, RoundReport]:
        _, pivot_key, learn_key = round_keys(key, state)
        keys, happened = (pivot_key, learn_key), Happened(**step._asdict())
        return absorb(keys, state, (), action, happened, act_metrics, problem, config)

    return absorb_step


def restart(
    key: Key[Array, ""], state: TrainState, observation: Array, config: Config
) -> TrainState:
    """The same agent and replay at the start of new episodes, which draw new pivots."""
    num_envs = observation.shape[0]
    num_costs = state.totals.cost.shape[1]
    pivot = pivots.sample(
        key, state.agent.pivot.params, config.agent.pivot.std, num_envs
    )
    return state._replace(
        observation=observation,
        context=Context.start(num_envs, pivot),
        totals=Totals.zeros(num_envs, num_costs),
    )
