"""Two ways to run rounds behind one face: on device, and with the environment on the host.

A runner owns the `TrainState`; `loop.py` decides when to log, evaluate and save.
"""

from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from orac.config.schema import AgentConfig, Config
from orac.config.validation import check_seed
from orac.core import agent as agents
from orac.envs.base import Environment, EnvSpec, to_box
from orac.envs.gym_adapter.make import HostEnv
from orac.evaluation import rollout as evaluation
from orac.evaluation.result import Episodes
from orac.training import device_loop as device
from orac.training import host_loop as host
from orac.training.state import RoundReport, TrainState, problem_for

RUN, EVALUATE, RESTART, FRESH = 1, 2, 3, 4
"""What a key is folded with: a run's for the run, for its evaluations, and for episodes
that start anew because their world could not be put back; that of a seed which somebody
chose for other episodes than the run's own."""


@runtime_checkable
class Runner(Protocol):
    """Rounds of experience and learning, and evaluations of what was learned."""

    spec: EnvSpec
    config: Config
    state: TrainState

    def advance(self, rounds: int, capacity: int) -> RoundReport:
        """Run so many rounds; the report is NumPy, with that leading axis."""
        ...

    def evaluate(
        self, episodes: int, deterministic: bool = True, seed: int | None = None
    ) -> Episodes:
        """Whole episodes of the present policy: the run's own, or those of a seed."""
        ...

    def host_state(self) -> dict[str, Any] | None:
        """What the environment remembers, for a checkpoint; None if it cannot be had."""
        ...

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        """Go back to a checkpoint; False when the environment had to start anew."""
        ...

    def configure(self, config: Config) -> None:
        """Go on under another config of the same problem and networks."""
        ...

    def close(self) -> None: ...


def actor_policy(
    params: agents.AgentState,
    key: Key[Array, ""],
    observation: Array,
    *,
    spec: EnvSpec,
    config: AgentConfig,
    deterministic: bool,
) -> Array:
    """The actor as an evaluation runs it; never shifted."""
    if deterministic:
        action = agents.mean_action(params, observation, config)
    else:
        action = agents.sampled_action(key, params, observation, config)
    return to_box(spec, action)


def evaluation_key(
    own: Key[Array, ""], rounds: int, seed: int | None
) -> Key[Array, ""]:
    """The run's own key after so many rounds; a seed means the same for every run."""
    if seed is None:
        return jax.random.fold_in(own, rounds)
    check_seed("the seed of an evaluation", seed)
    return jax.random.fold_in(jax.random.key(seed), FRESH)


def to_numpy(report: RoundReport, rounds: int) -> RoundReport:
    return jax.tree.map(lambda x: np.asarray(x)[:rounds], report)


class DeviceRunner:
    """A JAX environment: everything in one compiled loop."""

    def __init__(self, env: Environment, config: Config) -> None:
        self.env, self.config, self.spec = env, config, env.spec
        key = jax.random.key(config.seed)
        self.key = jax.random.fold_in(key, RUN)
        self.evaluation_key = jax.random.fold_in(key, EVALUATE)
        self.state = device.init(key, env, config)
        self._policies = {
            flag: partial(
                actor_policy, spec=env.spec, config=config.agent, deterministic=flag
            )
            for flag in (True, False)
        }

    def advance(self, rounds: int, capacity: int) -> RoundReport:
        self.state, report = device.run(
            self.key, self.state, rounds, self.env, self.config, capacity
        )
        return to_numpy(report, rounds)

    def evaluate(
        self, episodes: int, deterministic: bool = True, seed: int | None = None
    ) -> Episodes:
        key = evaluation_key(self.evaluation_key, int(self.state.rounds), seed)
        policy = self._policies[deterministic]
        return evaluation.roll_out(key, self.state.agent, self.env, policy, episodes)

    def host_state(self) -> dict[str, Any] | None:
        return {}

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        self.state = state
        return True

    def configure(self, config: Config) -> None:
        self.config = config

    def close(self) -> None:
        pass


class HostRunner:
    """Any Gymnasium environment: it steps on the host, learning stays on device."""

    def __init__(self, env: HostEnv, evaluation_env: HostEnv, config: Config) -> None:
        self.env, self.evaluation_env = env, evaluation_env
        self.config, self.spec = config, env.spec
        self.problem = problem_for(env.spec, config)
        key = jax.random.key(config.seed)
        self.key = jax.random.fold_in(key, RUN)
        self.evaluation_key = jax.random.fold_in(key, EVALUATE)
        self.restart_key = jax.random.fold_in(key, RESTART)
        observation = env.reset(seed=config.seed)
        self.state = host.init(key, observation, env.spec, self.problem, config)
        self.configure(config)
        self._policies = {
            flag: jax.jit(
                partial(
                    actor_policy, spec=env.spec, config=config.agent, deterministic=flag
                )
            )
            for flag in (True, False)
        }

    def advance(self, rounds: int, capacity: int) -> RoundReport:
        reports: list[RoundReport] = []
        for _ in range(rounds):
            action, box_action, metrics = self._act(self.key, self.state)
            step = self.env.step(np.asarray(box_action))
            self.state, report = self._absorb(
                self.key, self.state, action, step, metrics
            )
            reports.append(report)
        return jax.tree.map(lambda *x: np.stack([np.asarray(i) for i in x]), *reports)

    def evaluate(
        self, episodes: int, deterministic: bool = True, seed: int | None = None
    ) -> Episodes:
        key = evaluation_key(self.evaluation_key, int(self.state.rounds), seed)
        policy, agent = self._policies[deterministic], self.state.agent
        shared = self.evaluation_env is self.env
        world = self.env.get_state() if shared else None
        rolled = evaluation.roll_out_host(
            key, lambda k, o: policy(agent, k, o), self.evaluation_env, episodes
        )
        if shared:
            # The only environment there is was played with: put it back, or start anew.
            self.restore(self.state, world)
        return rolled

    def host_state(self) -> dict[str, Any] | None:
        return self.env.get_state()

    def restore(self, state: TrainState, host_state: dict[str, Any] | None) -> bool:
        self.state = state
        if host_state is not None:
            self.env.set_state(host_state)
            return True
        # The world cannot be put back: episodes start anew, and the caller says so.
        rounds = int(state.rounds)
        observation = self.env.reset(seed=self.config.seed + rounds)
        key = jax.random.fold_in(self.restart_key, rounds)
        self.state = host.restart(key, state, jnp.asarray(observation), self.config)
        return False

    def configure(self, config: Config) -> None:
        self.config = config
        self._act = host.make_act(self.problem, config, self.spec)
        self._absorb = host.make_absorb(self.problem, config)

    def close(self) -> None:
        self.env.close()
        if self.evaluation_env is not self.env:
            self.evaluation_env.close()
