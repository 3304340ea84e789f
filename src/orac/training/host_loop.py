"""Run the paper's Algorithm 1 in environments that are stepped on the host, in Python.

A round is one step of every environment. It calls two compiled programs. The first chooses
the actions. Then the environments are stepped, and the second program stores the steps and
updates the agent. The training state is donated to the second program, so the replay is
never copied.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from orac.config.schema import Config
from orac.config.validation import NonFiniteError
from orac.core import agent as agent_core
from orac.core.agent import PolicyState
from orac.core.types import Metrics
from orac.envs.base import EnvSpec, to_box
from orac.envs.gym_adapter.vector import HostEnv
from orac.evaluation.rollout import (
    ACTION_NOT_FINITE,
    Episodes,
    HostPolicy,
    roll_out_host,
)
from orac.policy import Policy
from orac.training.export import policy_arrays
from orac.training.measurement import plays_deployed
from orac.training.state import (
    EVALUATE,
    MEASURE,
    RESTART,
    RUN,
    empty_replay,
    evaluation_key,
    init_train_state,
    learner_for,
    noise_policy,
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


class HostRunner:
    """A runner that trains and evaluates in Gymnasium environments, stepped on the host."""

    def __init__(
        self,
        env: HostEnv,
        config: Config,
        make_evaluation_env: Callable[[], HostEnv] | None = None,
    ) -> None:
        self.env, self._make_evaluation_env = env, make_evaluation_env
        self._evaluation_env: HostEnv | None = None
        config = order_constraints(env.spec, config)
        self.config, self.spec = config, env.spec
        self.learner = learner_for(env.spec, config)
        key = jax.random.key(config.seed)
        self.key = jax.random.fold_in(key, RUN)
        self.evaluation_key = jax.random.fold_in(key, EVALUATE)
        self.restart_key = jax.random.fold_in(key, RESTART)
        observation = jnp.asarray(env.reset(seed=config.seed))
        # The device loop uses the first of these two keys to reset its environments.
        _, agent_key = jax.random.split(jax.random.fold_in(key, 0))
        self.state = init_train_state(
            agent_key, (), observation, env.spec, self.learner, config
        )
        self.configure(config)

    @property
    def evaluation_env(self) -> HostEnv:
        """The environments in which policies are evaluated. They are made at the first use.

        If no separate environments can be made, the training environments are used.
        """
        if self._make_evaluation_env is None:
            return self.env
        if self._evaluation_env is None:
            self._evaluation_env = self._make_evaluation_env()
        return self._evaluation_env

    def advance(self, rounds: int, capacity: int) -> StepReport:
        """Run this many rounds and return NumPy arrays with one entry per round.

        `capacity` is not used on the host.
        """
        if not self.state.replay:
            # Make the environments for evaluations now, so that errors appear early.
            assert self.evaluation_env is not None
            buffer = empty_replay(self.learner.problem, self.config)
            self.state = self.state._replace(replay=buffer)
        reports: list[StepReport] = []
        removed = {"measured": self.state.measured, "candidates": self.state.candidates}
        self.state = self.state._replace(measured=(), candidates=())
        try:
            for _ in range(rounds):
                acted = self._act(self.key, without_learning(self.state))
                step = self.env.step(np.asarray(acted.box_action))
                self.state, report = self._update(
                    self.state, acted, StepBatch(**step._asdict())
                )
                reports.append(report)
        finally:
            # Put these back even after an error, so that the agent can still deliver its
            # best policy.
            self.state = self.state._replace(**removed)
        return jax.tree.map(lambda *x: np.stack([np.asarray(i) for i in x]), *reports)

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
        Calls with different values of `sample` play different episodes. A policy without an
        encoder is computed with NumPy, which is several times faster than a compiled call
        for the few observations of a step. A policy with an encoder is compiled.
        """
        key = evaluation_key(self.evaluation_key, int(self.state.rounds), seed, sample)
        if self.config.agent.encoder is None:
            act = Policy(policy_arrays(self.config, self.spec, policy, deterministic))
        else:
            act = self._compiled_policy(policy)
        env = self.evaluation_env
        shared = env is self.env
        # This is a copy, because the user's get_state may return what the episodes change.
        env_state = deepcopy(self.env.get_state()) if shared else None
        rolled = roll_out_host(key, act, env, episodes, not deterministic)
        if shared:
            # The episodes were played in the training environment. Restore its state, or
            # start new episodes if the state could not be saved.
            self.restore(self.state, env_state)
        return rolled

    def _compiled_policy(self, policy: PolicyState) -> HostPolicy:
        """Return a compiled policy as a function that takes and returns NumPy arrays."""
        act = jax.jit(noise_policy(self.spec, without_seed(self.config)))

        def act_on_host(rows: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            optional = () if noise is None else (noise.astype(np.float32),)
            action = np.asarray(act(policy, rows, *optional))
            if not np.isfinite(action).all():
                fault, advice = ACTION_NOT_FINITE
                raise NonFiniteError(f"{fault}, so there is no result. {advice}")
            return action

        return act_on_host

    def host_state(self) -> dict[str, Any] | None:
        """Return the environment's state for a checkpoint, or None if it cannot be saved."""
        return self.env.get_state()

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to a checkpoint. Return False if new episodes had to be started."""
        self.state = state
        if host_state is not None:
            self.env.set_state(host_state)
            return True
        rounds = int(state.rounds)
        observation = jnp.asarray(self.env.reset(seed=self.config.seed + rounds))
        key = jax.random.fold_in(self.restart_key, rounds)
        self.state = start_episodes(key, state, observation, self.spec, self.learner)
        return False

    def configure(self, config: Config) -> None:
        """Use another config from now on. It must have the same problem and networks."""
        self.config = config
        self._act, self._update = compiled_steps(self.spec, without_seed(config))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        if self._evaluation_env is not None:
            self._evaluation_env.close()


def without_learning(state: TrainState) -> TrainState:
    """Return the state without the arrays that acting never reads.

    JAX needs time for every array that is passed to a compiled program, and two thirds of
    them are targets and optimiser states.
    """
    agent = state.agent
    trained = {
        name: getattr(agent, name)._replace(opt_state=())
        for name in ("actor", "reward_critics", "cost_critics", "pivot")
    }
    agent = agent._replace(
        **trained, target_reward_critics=(), target_cost_critics=(), log_temperature=()
    )
    return state._replace(agent=agent, replay=())


class Acted(NamedTuple):
    """The result of `act` in one round, which is passed to `update`."""

    action: Float[Array, "env action"]
    """Actions in [-1, 1]."""
    box_action: Float[Array, "env action"]
    """The same actions in the environment's action space."""
    metrics: Metrics
    deployed: Any
    """Which environments act with the deployed policy. It is `()` if the multiplier follows
    the critics."""
    keys: tuple[Array, Array]
    """Keys of this round for drawing new pivots and for updating."""


@lru_cache(maxsize=64)
def compiled_steps(spec: EnvSpec, config: Config) -> tuple[Any, Any]:
    """Return the two compiled functions of a round, `act` and `update`.

    `update` stores the steps in the replay and runs the updates that are due.
    """
    learner = learner_for(spec, config)

    @partial(jax.jit, compiler_options=compiler_options())
    def act(key: Key[Array, ""], state: TrainState) -> Acted:
        round_key = jax.random.fold_in(key, state.rounds)
        act_key, pivot_key, update_key = jax.random.split(round_key, 3)
        action, metrics = choose_action(act_key, state, learner, config)
        deployed: Any = ()
        if config.agent.follows_episodes:
            lengths = state.totals.length
            deployed = plays_deployed(key, state.rounds, lengths, config)
            deployed_action = agent_core.deployed_action(
                act_key, state.agent, state.observation, learner
            )
            action = jnp.where(deployed[:, None], deployed_action, action)
        keys = (pivot_key, update_key)
        return Acted(action, to_box(spec, action), metrics, deployed, keys)

    @partial(jax.jit, donate_argnums=0, compiler_options=compiler_options())
    def update(
        state: TrainState, acted: Acted, steps: StepBatch
    ) -> tuple[TrainState, StepReport]:
        return store_and_update(
            acted.keys,
            state,
            (),
            acted.action,
            steps,
            acted.metrics,
            learner,
            config,
            acted.deployed,
        )

    return act, update
