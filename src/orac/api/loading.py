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
from orac.config import serialization
from orac.config.schema import Config, Encoder
from orac.envs.base import EnvSpec
from orac.runs.arrays import OtherShapeError
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory, read_config
from orac.runs.loggers import check_trackers
from orac.runs.machine import check_memory
from orac.training import delivery, saving
from orac.training.host_loop import HostRunner
from orac.training.loop import Callback, Runner
from orac.training.run_logger import RunLogger
from orac.training.state import memory_needs


def load(path: str | Path, env: Any = None, **options: Any) -> Agent:
    """Return an agent from a file of `Agent.save` or a run directory's last checkpoint.

    If `orac certify` certified a policy of the run, the agent delivers that one.
    orac never imports code that a file names: pass `env`, `cost_fn` and `encoder` again if
    the run used an environment, a cost function or an encoder from your own module.
    """
    path = Path(path)
    if path.is_dir():
        config = serialization.from_dict(read_config(path))
        agent = Agent(choose_env(config, env), for_env(config, env), **options)
        checkpoints = Checkpoints(path / "checkpoints")
        # Another environment of the same spaces may have a state of another structure.
        rest = ("replay", "env", "observation", "context", "totals", "measured")
        template = agent.runner.state._replace(**dict.fromkeys(rest, ()))
        try:
            loaded = checkpoints.load_latest(
                template, check=saving.check_finite, part=True
            )
        except OtherShapeError as error:
            raise does_not_fit(path, agent.spec) from error
        if loaded is None:
            raise ValueError(
                f"{path} must hold a checkpoint to load an agent from, and has none yet. "
                f"Continue the run: orac resume {path}"
            )
        for message in loaded.warnings:
            warnings.warn(message, stacklevel=2)
        state, candidates = loaded.state.agent, loaded.state.candidates
        rounds = loaded.state.rounds
    else:
        config, state, candidates, steps = saving.load_agent(
            path, options.get("encoder")
        )
        agent = Agent(choose_env(config, env), for_env(config, env), **options)
        if not saving.same_shapes(state, agent.runner.state.agent):
            raise does_not_fit(path, agent.spec)
        rounds = jnp.int32(steps // config.training.num_envs)
    agent.runner.state = agent.runner.state._replace(
        agent=state, candidates=candidates, rounds=rounds
    )
    agent._source = path
    if not is_same_env(config, env, agent.runner):
        agent._new_env = name_of_env(env)
        if agent._new_env == LAMBDA:
            agent._new_env = agent.spec.name
    if path.is_dir():
        agent._certified = delivery.certified_place(path, candidates)
    return agent


def resume(
    run_dir: str | Path,
    env: Any = None,
    *,
    total_timesteps: int | None = None,
    callback: Callback | None = None,
    progress_bar: bool = True,
    trackers: Sequence[str] = ("tensorboard",),
    log: Any = print,
    **options: Any,
) -> Agent:
    """Continue a run from its newest intact checkpoint to the total of its config.

    A larger `total_timesteps` trains it further, even if it is finished. Its schedules
    still end at the first total. As for `load`, pass `env`, `cost_fn` and `encoder` again
    if they are your own code. Messages about the run go to `log`.
    """
    check_callback(callback)
    check_log(log)
    check_trackers(trackers)
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
        agent = Agent(choose_env(config, env), config, **options)
        if agent.config.env.cost_fn != config.env.cost_fn:
            log(
                f"The run was started with the cost function {config.env.cost_fn} and "
                f"continues with {agent.config.env.cost_fn}."
            )
        encoder = agent.config.agent.encoder
        if isinstance(encoder, Encoder) and encoder.name != config.agent.encoder:
            log(
                f"The run was started with the encoder {config.agent.encoder} and "
                f"continues with {encoder.name}."
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
    """Return whether `env` is the environment that the config names."""
    env_id = config.env.id
    if env is None or env_id == env:
        return True
    names = {env if isinstance(env, str) else name_of_env(env), runner.spec.name}
    if isinstance(runner, HostRunner):
        names.add(runner.env.class_name)
    elif envs.has_jax_form(env_id):
        env_id = envs.make(env_id, **dict(config.env.params)).spec.name
    return bare_id(env_id) in {bare_id(name) for name in names}


def for_env(config: Config, env: Any) -> Config:
    """Return the config without the parameters of its environment if `env` is another id."""
    if not isinstance(env, str) or bare_id(env) == bare_id(config.env.id):
        return config
    return replace(config, env=replace(config.env, params=()))


def bare_id(env_id: str) -> str:
    """Return an id without the module that registers it."""
    return env_id.rpartition(":")[2]


def check_same_id(config: Config, env: Any, path: Path) -> None:
    """Raise an error if a run would be resumed in an environment of another id."""
    known = isinstance(env, str) and is_env_id(config.env.id)
    if known and bare_id(env) != bare_id(config.env.id):
        raise ValueError(
            f"a run is resumed in its own environment, {config.env.id}, got {env}. To "
            "train its agent in another one, start a new run from it: "
            f"orac train --from {path} --env-id {env}"
        )


def does_not_fit(path: Path, spec: EnvSpec) -> ValueError:
    """Return the error for an agent that was trained with other spaces or settings."""
    return ValueError(
        f"the agent in {path} must fit the environment, but its networks have other shapes "
        f"than {spec.name} needs, with {spec.observation_size} numbers in an observation, "
        f"{spec.action_size} in an action and {spec.num_costs} cost(s). Give an "
        "environment with the spaces and costs of the one it was trained in, and the same "
        "encoder if it has one."
    )
