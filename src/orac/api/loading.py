"""Load an agent from a file or a run directory, and resume a run."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from orac import envs
from orac.api.agent import Agent, check_callback, check_log, extended_training
from orac.api.environments import (
    LAMBDA,
    choose_env,
    is_env_id,
    name_of_env,
    run_arguments,
)
from orac.api.options import changed_host_options, refuse_unknown_options
from orac.config import serialization
from orac.config.schema import Config, Encoder
from orac.config.validation import check_path
from orac.envs.base import EnvSpec
from orac.envs.user_code import CostFn, can_be_imported
from orac.runs.arrays import TemplateMismatchError
from orac.runs.atomic_io import shown_path
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory, certificate_problem, read_config
from orac.runs.machine import check_memory
from orac.runs.trackers import check_trackers
from orac.training import delivery, saving
from orac.training.encoder_loading import EncoderPair
from orac.training.host_loop import HostRunner
from orac.training.run_logger import RunLogger
from orac.training.run_loop import Callback, Runner
from orac.training.state import memory_needs


@refuse_unknown_options
def load(
    path: str | Path,
    env: Any = None,
    *,
    cost_fn: CostFn | str | None = None,
    encoder: EncoderPair | str | None = None,
    cost_bound: float | Sequence[float] | None = None,
    cost_names: Sequence[str] | None = None,
    cost_keys: Sequence[str] | None = None,
    metric_names: Sequence[str] = (),
    vectorization: str = "auto",
) -> Agent:
    """Return an agent from a file or a run directory.

    `path` is a file written by `Agent.save`, or a run directory, whose newest intact
    checkpoint is loaded. If `orac certify` certified a policy of the run, and the run still
    has it, the agent delivers that policy.

    orac does not import code only because a file names it. Pass `env`, `cost_fn` and
    `encoder` again if the run used an environment, a cost function or an encoder from your
    module. Pass `cost_bound` again before you certify, because a certificate never relies
    on a number from a file. The other options are those of `make_agent` about the
    environment, which are not stored in the file either. All other settings come from the
    file.
    """
    check_path("path", path)
    # Making the environment may change the working directory.
    given, path = Path(path), Path(path).absolute()
    options: dict[str, Any] = {
        "cost_fn": cost_fn,
        "encoder": encoder,
        "host_options": changed_host_options(locals()),
    }
    if path.is_dir():
        config = serialization.from_dict(read_config(given))
        agent = Agent(choose_env(config, env), config_for_env(config, env), **options)
        checkpoints = Checkpoints(path / "checkpoints")
        # Do not load these fields. If `env` is another environment, its state may have
        # another structure, even if its spaces are the same.
        left_out = ("replay", "env", "observation", "context", "totals", "measured")
        template = agent.runner.state._replace(**dict.fromkeys(left_out, ()))
        try:
            loaded = checkpoints.load_latest(
                template, check=saving.check_loaded, part=True
            )
        except TemplateMismatchError as error:
            raise does_not_fit(path, agent.spec) from error
        if loaded is None:
            raise ValueError(
                f"{shown_path(path)} has no checkpoint yet, so no agent can be loaded from "
                f"it. Continue the run: orac resume {shown_path(path)}"
            )
        for message in loaded.warnings:
            warnings.warn(message, stacklevel=3)
        state, candidates = loaded.state.agent, loaded.state.candidates
        rounds, state_digest = loaded.state.rounds, loaded.state_digest
        largest_cost = saving.saved_largest_cost(loaded.extra.get("counters"), path)
    else:
        saved = saving.load_agent(given, encoder)
        config, state, candidates, steps, largest_cost = saved
        agent = Agent(choose_env(config, env), config_for_env(config, env), **options)
        if not saving.same_shapes(state, agent.runner.state.agent):
            raise does_not_fit(path, agent.spec)
        rounds = jnp.int32(steps // config.training.num_envs)
        state_digest = None
    agent.runner.state = agent.runner.state._replace(
        agent=state, candidates=candidates, rounds=rounds
    )
    agent._source, agent._state_digest = path, state_digest
    if not is_same_env(config, env, agent.runner):
        agent._new_env = name_of_env(env)
        if agent._new_env == LAMBDA:
            agent._new_env = agent.spec.name
    agent._new_cost_fn = other_cost_fn(config, agent.config)
    if agent._has_own_task:
        agent._counters.largest_cost = largest_cost
    trained_with, has_now = config.env.cost_fn, agent.config.env.cost_fn
    if agent._new_cost_fn is None and has_now != trained_with:
        warnings.warn(
            f"the agent was trained with the cost function {trained_with} and now has "
            f"{has_now}. Its evaluations and certificates are right only if both compute "
            "the same cost.",
            stacklevel=3,
        )
    if path.is_dir():
        if problem := certificate_problem(path):
            warnings.warn(problem, stacklevel=3)
        agent._certified = delivery.certified_index(path, candidates)
    return agent


@refuse_unknown_options
def resume(
    run_dir: str | Path,
    env: Any = None,
    *,
    total_timesteps: int | None = None,
    callback: Callback | None = None,
    progress_bar: bool = True,
    trackers: Sequence[str] = ("tensorboard",),
    log: Any = print,
    cost_fn: CostFn | str | None = None,
    encoder: EncoderPair | str | None = None,
    cost_bound: float | Sequence[float] | None = None,
    cost_names: Sequence[str] | None = None,
    cost_keys: Sequence[str] | None = None,
    metric_names: Sequence[str] = (),
    vectorization: str = "auto",
) -> Agent:
    """Continue a run from its newest intact checkpoint.

    The run trains up to the total number of steps in its config. With a larger
    `total_timesteps`, it trains further, even if it is finished. Its schedules still end at
    the original total. `log` is a function that receives messages about the run. Pass
    `env`, `cost_fn`, `encoder`, `cost_bound` and the other options as for `load`.
    """
    check_callback(callback)
    check_log(log)
    check_trackers(trackers)
    check_path("run_dir", run_dir)
    run = RunDirectory.open(run_dir)
    try:
        planned = config = serialization.from_dict(read_config(run.path))
        check_same_id(config, env, run.path)
        if total_timesteps is not None:
            steps = run.checkpoints().steps()
            taken = steps[-1] if steps else 0
            training = extended_training(config.training, total_timesteps, taken)
            config = replace(config, training=training)
        for message in run.machine_differences():
            log(message)
        agent = Agent(
            choose_env(config, env),
            config,
            cost_fn=cost_fn,
            encoder=encoder,
            host_options=changed_host_options(locals()),
        )
        check_same_env(config, env, agent.runner, run.path)
        if other := other_cost_fn(config, agent.config):
            own = config.env.cost_fn
            expected = (
                f"with its own cost function, {own}"
                if own
                else "without a cost function"
            )
            raise ValueError(
                f"this run must be resumed {expected}, got {other}. To train its agent with "
                "the new one, start a new run from it: "
                f"orac train --from {shown_path(run.path)} --cost-fn {other}"
            )
        if agent.config.env.cost_fn != config.env.cost_fn:
            log(
                f"The run was started with the cost function {config.env.cost_fn} and "
                f"continues with {agent.config.env.cost_fn}."
            )
        new_encoder = agent.config.agent.encoder
        if (
            isinstance(new_encoder, Encoder)
            and new_encoder.name != config.agent.encoder
        ):
            log(
                f"The run was started with the encoder {config.agent.encoder} and "
                f"continues with {new_encoder.name}."
            )
        check_memory(memory_needs(agent.spec, agent.config, with_replay=True))
        logger = RunLogger(run, agent.runner, trackers)
        messages = logger.restore(agent.runner, agent._counters)
        if agent.num_timesteps:
            messages += agent._collect_first()
        if config != planned:
            total = config.training.total_steps
            run.extend(serialization.to_dict(config), agent.num_timesteps, total)
        if agent.num_timesteps < config.training.total_steps:
            run.note_commit()
        if agent.num_timesteps >= config.training.total_steps:
            arguments = run_arguments(run.path, agent.config)
            messages = [
                f"The run is finished, at {agent.num_timesteps:,} steps. To train it "
                f"further: orac resume {arguments} --total-steps {2 * agent.num_timesteps}"
            ]
        for message in messages:
            log(message)
    except BaseException:
        run.close()
        raise
    agent.run_path = run.path
    agent._train(logger, callback, progress_bar)
    return agent


def is_same_env(config: Config, env: Any, runner: Runner) -> bool:
    """Return True if `env` is None or is the environment that the config names."""
    env_id = config.env.id
    if env is None or env_id == env:
        return True
    if isinstance(env, str) and ":" in env_id and ":" in env:
        return is_same_id(env, env_id)
    names = {env if isinstance(env, str) else name_of_env(env), runner.spec.name}
    if isinstance(runner, HostRunner):
        names.add(runner.env.class_name)
    elif envs.is_jax_env(env_id):
        env_id = envs.make(env_id, **dict(config.env.params)).spec.name
    return bare_id(env_id) in {bare_id(name) for name in names}


def other_cost_fn(trained: Config, now: Config) -> str | None:
    """Return the name of the current cost function if training used a different one.

    The name of a lambda or of a function in a notebook is not compared, because such a
    function may have another name when the user passes it again.
    """
    before, name = trained.env.cost_fn, now.env.cost_fn
    if name == before or (before is not None and not can_be_imported(before)):
        return None
    return name


def config_for_env(config: Config, env: Any) -> Config:
    """Return the config. If `env` is another id, remove the environment's parameters."""
    if not isinstance(env, str) or is_same_id(env, config.env.id):
        return config
    return replace(config, env=replace(config.env, params=()))


def is_same_id(first: str, second: str) -> bool:
    """Return whether two ids name the same environment.

    Another module may register another environment under the same id, so the modules must
    be the same too, if both ids have one.
    """
    modules = {env_id.rpartition(":")[0] for env_id in (first, second)} - {""}
    return bare_id(first) == bare_id(second) and len(modules) < 2


def bare_id(env_id: str) -> str:
    """Return an environment's id without the module that registers it."""
    return env_id.rpartition(":")[2]


def check_same_id(config: Config, env: Any, path: Path) -> None:
    """Raise an error if a run would be resumed in an environment with another id."""
    known = isinstance(env, str) and is_env_id(config.env.id)
    if known and not is_same_id(env, config.env.id):
        raise ValueError(
            f"a run must be resumed in its own environment, {config.env.id}, got {env}. To "
            "train its agent in another environment, start a new run: "
            f"orac train --from {shown_path(path)} --env-id {env}"
        )


def check_same_env(config: Config, env: Any, runner: Runner, path: Path) -> None:
    """Raise an error if a run would be resumed in another environment, of any kind.

    An environment that is not an id has to be made first, to learn its name.
    """
    if not is_same_env(config, env, runner):
        name = name_of_env(env)
        raise ValueError(
            f"a run must be resumed in its own environment, {config.env.id}, got "
            f"{runner.spec.name if name == LAMBDA else name}. Pass the environment as it "
            "was passed when the run was started. To train its agent in another "
            "environment, start a new run: "
            f"orac.load({str(shown_path(path))!r}, env=...).learn(out=...)"
        )


def does_not_fit(path: Path, spec: EnvSpec) -> ValueError:
    """Return the error for an agent that was trained with other spaces or settings."""
    return ValueError(
        f"the agent in {shown_path(path)} must fit the environment, but its networks have "
        f"other shapes than {spec.name} needs (observation size {spec.observation_size}, "
        f"action size {spec.action_size}, number of costs {spec.num_costs}). Pass an "
        "environment with the same spaces and costs as the one that the agent was trained "
        "in, and the same encoder if the agent has one."
    )
