"""Three lines of Python: make an agent, let it learn, look at what it does.

    agent = orac.ORAC("orac/GuardedMaze-v0", cost_limit=5.0, tail=0.05, seed=0)
    agent.learn(total_timesteps=300_000)
    print(agent.evaluate(episodes=100))

A thin shell: it turns words into a config, an environment into a runner, and hands both
to the loop. Names follow Stable-Baselines3 where it has them.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from orac import config_text, envs, presets, saving
from orac.agents import mean_action, sampled_action
from orac.certificates import Certificate, certify_cvar
from orac.config import Config, Constraint
from orac.envs.checks import check_environment
from orac.envs.host import make_host
from orac.envs.hosting.costs import CostFn
from orac.envs.hosting.named import import_cost_fn, name_of_cost_fn
from orac.envs.protocol import EnvSpec, to_box
from orac.evaluation import Episodes, risk_of_episodes, summarise
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory, read_config
from orac.runs.progress import Progress
from orac.training.loop import Callback, Counters, run_loop
from orac.training.records import NoRecords, Records, RunRecords
from orac.training.runners import DeviceRunner, HostRunner, Runner
from orac.training.state import problem_of
from orac.valuation import Problem


@dataclass(frozen=True)
class Evaluation:
    """An evaluation's numbers by name (`evaluation["cost/cvar_0.05"]`), and its episodes."""

    summary: dict[str, float]
    episodes: Episodes

    def __getitem__(self, name: str) -> float:
        return self.summary[name]

    def __str__(self) -> str:
        width = max(map(len, self.summary))
        return "\n".join(f"{k:<{width}}  {v:.6g}" for k, v in self.summary.items())


class NothingLearned(UserWarning):
    """The warning that a run will end before its learning starts."""


def nothing_learned(config: Config) -> str:
    """The sentence of that warning; empty when the run will learn."""
    start, total = config.training.learning_starts, config.training.total_steps
    if start < total:
        return ""
    return (
        f"learning starts at step {start:,} and the run ends at {total:,}: it only acts "
        "at random. Set training.learning_starts lower, or train longer."
    )


class Agent:
    """An agent in its environment. Make one with `orac.ORAC` and its siblings."""

    def __init__(
        self,
        env: Any,
        config: Config,
        *,
        cost_fn: CostFn | str | None = None,
        host_options: Mapping[str, Any] | None = None,
    ) -> None:
        presets.check_algorithm(config)
        self.config, cost_function = with_cost_fn(config, cost_fn)
        self.runner = make_runner(env, self.config, cost_function, host_options)
        self.run_path: Path | None = None
        self._counters = Counters()

    @property
    def spec(self) -> EnvSpec:
        """What the environment says of itself: sizes, boxes, names of costs."""
        return self.runner.spec

    @property
    def problem(self) -> Problem:
        """Sizes, constraints, and their limits in the critics' units."""
        return problem_of(self.spec, self.config)

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken so far."""
        return int(self.runner.state.rounds) * self.config.training.num_envs

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Callback | None = None,
        progress_bar: bool = True,
        out: str | Path | None = None,
        name: str = "default",
        trackers: Sequence[str] = ("tensorboard",),
    ) -> "Agent":
        """Train until `total_timesteps` environment steps were taken in all.

        With `out` everything is kept in a run directory below it, and `orac.resume` goes
        on from there after any stop. A callback gets an `Event` at each log row and each
        evaluation; the run stops when it returns False.
        """
        if total_timesteps is not None:
            self._set_total(total_timesteps)
        sentence = nothing_learned(self.config)
        if sentence:
            warnings.warn(sentence, NothingLearned, stacklevel=2)
        records: Records = NoRecords()
        if out is not None:
            if self.num_timesteps:
                raise ValueError(
                    "out must be given at the first call of learn, got it after "
                    f"{self.num_timesteps:,} steps, whose records would be missing. "
                    "Make a new agent, or save this one with save()."
                )
            run = RunDirectory.create(
                out,
                self.config.env.id,
                self.config.algo,
                self.config.seed,
                config_text.to_dict(self.config),
                name,
            )
            self.run_path = run.path
            records = RunRecords(run, self.runner, trackers)
        self._train(records, callback, progress_bar)
        return self

    def _set_total(self, total_timesteps: int) -> None:
        training = replace(self.config.training, total_steps=total_timesteps)
        self.config = replace(self.config, training=training)
        self.runner.configure(self.config)

    def _train(
        self, records: Records, callback: Callback | None, progress_bar: bool
    ) -> None:
        total = self.config.training.total_steps
        try:
            with Progress(total, self.num_timesteps, quiet=not progress_bar) as bar:
                run_loop(
                    self.runner,
                    records,
                    self._counters,
                    callback=callback,
                    agent=self,
                    progress=bar,
                )
        finally:
            records.close()

    def predict(
        self,
        observation: Any,
        state: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch of them, in the environment's box.

        A dict or a tuple, as the environment returns it, is flattened. `state` is for
        symmetry with Stable-Baselines3: policies here have none. Without `deterministic`
        the action is drawn with `seed`.
        """
        if isinstance(self.runner, HostRunner) and is_nested(observation):
            observation = self.runner.env.flatten(observation)
        rows = np.asarray(observation, np.float32)
        size = self.spec.observation_size
        if rows.shape not in ((size,), (len(rows) if rows.ndim else 0, size)):
            raise ValueError(
                f"observation must have shape ({size},) or (batch, {size}), got "
                f"{rows.shape}. Flatten it as the environment's space says."
            )
        batch = jnp.asarray(rows.reshape(-1, size))
        agent = self.runner.state.agent
        if deterministic:
            action = mean_action(agent, batch, self.config.agent)
        else:
            key = jax.random.key(np.random.randint(2**31) if seed is None else seed)
            action = sampled_action(key, agent, batch, self.config.agent)
        action = np.asarray(to_box(self.spec, action))
        return (action[0] if rows.ndim == 1 else action), state

    def evaluate(
        self,
        episodes: int = 100,
        deterministic: bool = True,
        tails: Sequence[float] = (),
    ) -> Evaluation:
        """Whole episodes of the present policy, and what they say about its risk."""
        rolled = self.runner.evaluate(episodes, deterministic)
        summary = summarise(
            rolled, self.config.constraints, self.spec.cost_names, tails
        )
        return Evaluation(summary, rolled)

    def certify(
        self, episodes: Episodes, confidence: float = 0.95
    ) -> list[Certificate]:
        """What such episodes prove, constraint by constraint, beyond sampling error."""
        return certify(episodes, self.config.constraints, self.spec, confidence)

    def save(self, path: str | Path) -> None:
        """Write the agent (not its replay) to one file; `orac.load` reads it back."""
        saving.save(path, self.config, self.spec, self.runner.state.agent)

    def export(self, path: str | Path) -> None:
        """Write the policy for deployment: `orac.policy.load` runs it with NumPy alone."""
        saving.export(path, self.config, self.spec, self.runner.state.agent)

    def close(self) -> None:
        """Close the environment."""
        self.runner.close()


def is_nested(observation: Any) -> bool:
    """Whether this is an observation of a Dict or Tuple space, not numbers already."""
    if isinstance(observation, tuple):
        return any(np.ndim(part) > 0 for part in observation)
    return isinstance(observation, Mapping)


def certify(
    episodes: Episodes,
    constraints: Sequence[Constraint],
    spec: EnvSpec,
    confidence: float = 0.95,
) -> list[Certificate]:
    """A certificate for each constraint, on the cost of its name."""
    certificates = []
    for constraint in constraints:
        m = spec.cost_names.index(constraint.name)
        costs, measure = episodes.cost[:, m], constraint.measure
        bound = None if spec.cost_bounds is None else spec.cost_bounds[m]
        estimate = risk_of_episodes(costs, measure)
        if measure.name in ("cvar", "mean"):
            tail = measure.parameter if measure.name == "cvar" else 1.0
            certificate = certify_cvar(
                costs,
                estimate,
                cost_limit=float(constraint.limit),
                tail=float(tail),
                cost_bound=bound,
                level=confidence,
            )
        else:
            certificate = Certificate(
                f"the {measure} of episode cost",
                estimate,
                upper=None,
                limit=constraint.limit,
                level=confidence,
                episodes=len(costs),
                remark="bounds that hold for finitely many episodes are here for CVaR and "
                "the mean only. Certify with risk 'cvar' and a tail.",
            )
        certificates.append(certificate)
    return certificates


def with_cost_fn(
    config: Config, cost_fn: CostFn | str | None
) -> tuple[Config, CostFn | None]:
    """The config that names this cost function, and the function itself.

    A config alone never makes us import what it names: importing runs code, and configs
    are read from files. Whoever loads one gives the function, or its name, again.
    """
    named = config.env.cost_fn
    if cost_fn is None:
        if named is None:
            return config, None
        raise ValueError(
            f"the cost of this run is computed by {named!r}, which a file only names and "
            f"which is not imported unasked. Say so with --cost-fn {named} (in Python "
            f"cost_fn={named!r}, or the function itself)."
        )
    by_name = isinstance(cost_fn, str)
    function = import_cost_fn(cost_fn) if by_name else cost_fn
    name = cost_fn if by_name else name_of_cost_fn(function)
    return replace(config, env=replace(config.env, cost_fn=name)), function


def make_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None = None,
    host_options: Mapping[str, Any] | None = None,
) -> Runner:
    """The loop that fits the environment: compiled for JAX, else on the host."""
    params = dict(config.env.params)
    if isinstance(env, str) and envs.has_jax_form(env) and cost_fn is None:
        return DeviceRunner(envs.make(env, **params), config)
    if not isinstance(env, str) and isinstance(getattr(env, "spec", None), EnvSpec):
        if cost_fn is not None:
            raise ValueError(
                "cost_fn must be None for a JAX environment, which reports its own cost."
            )
        return DeviceRunner(env, config)
    return make_host_runner(env, config, cost_fn, host_options or {}, params)


def make_host_runner(
    env: Any,
    config: Config,
    cost_fn: CostFn | None,
    host_options: Mapping[str, Any],
    params: Mapping[str, Any],
) -> HostRunner:
    """The loop for a Gymnasium environment, which is tried before it is trained on."""
    names = tuple(c.name for c in config.constraints) or None
    options: dict[str, Any] = {
        "cost_fn": cost_fn,
        "cost_names": names,
        "episode_length": config.env.episode_length,
        "env_kwargs": params or None,
        **host_options,
    }
    if names and len(names) > 1 and cost_fn is None:
        options.setdefault("cost_keys", names)
    host = make_host(env, config.training.num_envs, **options)
    check_environment(host, seed=config.seed)
    # An object cannot be made twice: it serves for both, and is reset in between.
    shared = not (isinstance(env, str) or callable(env))
    evaluation_env = host if shared else make_host(env, 1, **options)
    return HostRunner(host, evaluation_env, config)


def make_agent(
    algo: str,
    env: Any,
    *,
    cost_limit: float | None = None,
    tail: float | None = None,
    seed: int = 0,
    constraints: Sequence[Constraint] | None = None,
    cost_fn: CostFn | str | None = None,
    num_envs: int | None = None,
    episode_length: int | None = None,
    env_params: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Config | None = None,
    **host_options: Any,
) -> Agent:
    """An agent from a preset and the words that differ from it.

    `env` is an id, an environment, a factory or a JAX environment. `settings` are config
    fields by dotted name, `{"agent.kappa": 0.5}`. Several constraints are given as
    `constraints=[orac.Constraint("comfort", limit=720, tail=0.05), ...]`. Other keywords
    go to `envs.host.make_host` (`cost_bound`, `cost_keys`, `metric_names`, ...).
    """
    name = env if isinstance(env, str) else name_of(env)
    chosen = replace(config or presets.preset(algo, name), seed=seed)
    if env_params:
        merged = {**dict(chosen.env.params), **env_params}
        chosen = replace(chosen, env=replace(chosen.env, params=tuple(merged.items())))
    if episode_length is not None:
        chosen = replace(chosen, env=replace(chosen.env, episode_length=episode_length))
    if num_envs is not None:
        chosen = replace(chosen, training=replace(chosen.training, num_envs=num_envs))
    chosen = replace(
        chosen,
        constraints=_constraints(chosen, constraints, cost_limit, tail),
    )
    if settings:
        data = config_text.to_dict(chosen)
        for dotted, value in settings.items():
            config_text.assign(data, dotted, value)
        chosen = config_text.from_dict(data)
    return Agent(env, chosen, cost_fn=cost_fn, host_options=host_options)


def _constraints(
    config: Config,
    constraints: Sequence[Constraint] | None,
    cost_limit: float | None,
    tail: float | None,
) -> tuple[Constraint, ...]:
    if constraints is not None:
        if cost_limit is not None or tail is not None:
            raise ValueError(
                "give either constraints or cost_limit and tail, got both. "
                "A constraint has its own limit and tail."
            )
        return tuple(constraints)
    if not config.constraints:
        return ()
    first = config.constraints[0]
    if cost_limit is not None:
        first = replace(first, limit=float(cost_limit))
    if tail is not None:
        first = replace(first, tail=float(tail))
    return (first, *config.constraints[1:])


def name_of(env: Any) -> str:
    """A name for the run directory of an environment that is no id."""
    spec = getattr(env, "spec", None)
    for attribute in ("id", "name"):
        if isinstance(getattr(spec, attribute, None), str):
            return getattr(spec, attribute)
    return getattr(env, "__name__", type(env).__name__)


def ORAC(env: Any, **options: Any) -> Agent:
    """Optimistic Risk-averse Actor-Critic. Options are those of `make_agent`."""
    return make_agent("orac", env, **options)


def WCSAC(env: Any, **options: Any) -> Agent:
    """Worst-Case SAC: the same without optimism. Options are those of `make_agent`."""
    return make_agent("wcsac", env, **options)


def SACLagrangian(env: Any, **options: Any) -> Agent:
    """SAC with mean cost under the limit. Options are those of `make_agent`.

    `tail` changes nothing that is learned, since a scalar critic knows the mean alone. It
    is where evaluations and certificates measure risk: by default the preset's tail, so
    that agents can be compared. With `tail=1` they look at the mean too.
    """
    return make_agent("sac-lag", env, **options)


def SAC(env: Any, **options: Any) -> Agent:
    """Plain SAC, no constraint. Options are those of `make_agent`."""
    return make_agent("sac", env, **options)


def load(path: str | Path, env: Any = None, **options: Any) -> Agent:
    """An agent from a file of `Agent.save`, or from a run directory's last checkpoint.

    No code runs because a file names it: `env` and `cost_fn` are given again where the
    run had a cost function, or an environment in a module of its own.
    """
    path = Path(path)
    if path.is_dir():
        return _load_run(path, env, **options)
    config, state = saving.load(path)
    agent = Agent(env_of(config, env), config, **options)
    saving.check_fit(state, agent.runner.state.agent, path)
    agent.runner.state = agent.runner.state._replace(agent=state)
    return agent


def env_of(config: Config, env: Any) -> Any:
    """The environment that was given, else the config's, if nobody's module must run."""
    env_id = config.env.id
    module = env_id.rpartition(":")[0]
    if env is None and module and module not in sys.modules:
        raise ValueError(
            f"the environment of this run is {env_id!r}, whose module a file only names "
            f"and which is not imported unasked. Say so with --env-id {env_id} (in Python "
            f"env={env_id!r})."
        )
    return env_id if env is None else env


def _load_run(path: Path, env: Any, **options: Any) -> Agent:
    config = config_text.from_dict(read_config(path))
    agent = Agent(env_of(config, env), config, **options)
    template = agent.runner.state._replace(replay=())
    loaded = Checkpoints(path / "checkpoints").load_latest(template)
    if loaded is None:
        raise ValueError(
            f"{path} must hold a checkpoint to load an agent from, and has none yet. "
            f"Go on with the run: orac resume {path}"
        )
    state = agent.runner.state._replace(
        agent=loaded.state.agent, rounds=loaded.state.rounds
    )
    agent.runner.state = state
    return agent


def resume(
    run_dir: str | Path,
    env: Any = None,
    *,
    callback: Callback | None = None,
    progress_bar: bool = True,
    trackers: Sequence[str] = ("tensorboard",),
    say: Any = print,
    **options: Any,
) -> Agent:
    """Go on with a run from its newest good checkpoint, to the end of its config.

    As for `load`, `env` and `cost_fn` are given again where their code is the user's own.
    """
    run = RunDirectory.open(run_dir)
    try:
        config = config_text.from_dict(run.config())
        for sentence in run.machine_differences():
            say(sentence)
        agent = Agent(env_of(config, env), config, **options)
        if agent.config.env.cost_fn != config.env.cost_fn:
            say(
                f"The run was started with the cost function {config.env.cost_fn} and "
                f"goes on with {agent.config.env.cost_fn}."
            )
        records = RunRecords(run, agent.runner, trackers)
        _, told = records.restore(agent.runner, agent._counters)
    except BaseException:
        run.close()
        raise
    agent.run_path = run.path
    for sentence in told:
        say(sentence)
    agent._train(records, callback, progress_bar)
    return agent
