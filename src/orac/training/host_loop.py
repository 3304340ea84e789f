"""Algorithm 1 for environments on the host: act, step, then store and update.

Acting and updating are two compiled calls per round. The second one donates the training
state, so the replay is never copied.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from orac.config.schema import Config
from orac.core import agent as agent_core
from orac.core.agent import PolicyState
from orac.core.types import Metrics
from orac.envs.base import EnvSpec, to_box
from orac.envs.gym_adapter.vector import HostEnv
from orac.evaluation.rollout import (
    Episodes,
    HostPolicy,
    check_culprits,
    roll_out_host,
)
from orac.policy import Policy
from orac.training.device_loop import choose_action
from orac.training.export import policy_arrays
from orac.training.measurement import plays_deployed
from orac.training.state import (
    EVALUATE,
    RESTART,
    RUN,
    empty_replay,
    evaluation_key,
    in_order_of,
    init_train_state,
    learner_for,
    noise_policy,
    start_episodes,
    without_seed,
)
from orac.training.train_step import (
    StepBatch,
    StepReport,
    TrainState,
    store_and_update,
)
from orac.training.xla import compiler_options


class HostRunner:
    """Trains in a Gymnasium environment, which steps on the host."""

    def __init__(
        self,
        env: HostEnv,
        config: Config,
        make_evaluation_env: Callable[[], HostEnv] | None = None,
    ) -> None:
        self.env, self._make_evaluation_env = env, make_evaluation_env
        self._evaluation_env: HostEnv | None = None
        config = in_order_of(env.spec, config)
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
        """The environments of evaluations; made when they are needed for the first time.

        They are those of training if no others can be made.
        """
        if self._make_evaluation_env is None:
            return self.env
        if self._evaluation_env is None:
            self._evaluation_env = self._make_evaluation_env()
        return self._evaluation_env

    def advance(self, rounds: int, capacity: int) -> StepReport:
        """Run this many rounds; the report holds NumPy arrays with one entry per round."""
        if not self.state.replay:
            # Make the environments for evaluations now, so that an error appears early.
            assert self.evaluation_env is not None
            buffer = empty_replay(self.learner.problem, self.config)
            self.state = self.state._replace(replay=buffer)
        reports: list[StepReport] = []
        kept = {"measured": self.state.measured, "candidates": self.state.candidates}
        self.state = self.state._replace(measured=(), candidates=())
        try:
            for _ in range(rounds):
                acted = self._act(self.key, self.state)
                step = self.env.step(np.asarray(acted.box_action))
                self.state, report = self._update(
                    self.state, acted, StepBatch(**step._asdict())
                )
                reports.append(report)
        finally:
            # After an error, too, so that the agent can still deliver its best policy.
            self.state = self.state._replace(**kept)
        return jax.tree.map(lambda *x: np.stack([np.asarray(i) for i in x]), *reports)

    def evaluate(
        self,
        policy: PolicyState,
        episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        sample: int = 0,
    ) -> Episodes:
        """Play whole episodes of a policy; `seed` replaces the run's key.

        The policy is computed with NumPy, which is several times faster than a compiled
        call for the few observations of a step. One with an encoder is compiled.
        """
        key = evaluation_key(self.evaluation_key, int(self.state.rounds), seed, sample)
        if self.config.agent.encoder is None:
            act = Policy(policy_arrays(self.config, self.spec, policy, deterministic))
        else:
            act = self._compiled_policy(policy)
        env = self.evaluation_env
        shared = env is self.env
        env_state = self.env.get_state() if shared else None
        rolled = roll_out_host(key, act, env, episodes, not deterministic)
        if shared:
            # The only environment was used: restore its state, or start new episodes.
            self.restore(self.state, env_state)
        return rolled

    def _compiled_policy(self, policy: PolicyState) -> HostPolicy:
        """Return a policy with an encoder as a function of NumPy arrays."""
        act = jax.jit(noise_policy(self.spec, without_seed(self.config)))

        def act_on_host(rows: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            given = () if noise is None else (noise.astype(np.float32),)
            action = np.asarray(act(policy, rows, *given))
            check_culprits(np.where(np.isfinite(action).all(axis=1), 0, 2))
            return action

        return act_on_host

    def host_state(self) -> dict[str, Any] | None:
        """Return the environment's state for a checkpoint; None if it cannot be saved."""
        return self.env.get_state()

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to a checkpoint; return False if the episodes had to start again."""
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
        """Continue under another config of the same problem and networks."""
        self.config = config
        self._act, self._update = compiled_steps(self.spec, without_seed(config))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        if self._evaluation_env is not None:
            self._evaluation_env.close()


class Acted(NamedTuple):
    """The result of acting in one round, which storing and updating need."""

    action: Float[Array, "env action"]
    """Actions in [-1, 1]; `box_action` has the units of the environment."""
    box_action: Float[Array, "env action"]
    metrics: Metrics
    deployed: Any
    """Which environments act with the deployed policy; empty, `()`, if none ever does."""
    keys: tuple[Array, Array]
    """The round's keys for new pivots and for updating."""


@lru_cache(maxsize=64)
def compiled_steps(spec: EnvSpec, config: Config) -> tuple[Any, Any]:
    """Return the two compiled calls of a round: `act`, and store and update."""
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
            theirs = agent_core.deployed_action(
                act_key, state.agent, state.observation, learner
            )
            action = jnp.where(deployed[:, None], theirs, action)
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
