"""Load an agent from a file or a run directory, and resume a run."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from orac import envs
from orac.api.agent import Agent, check_callback, check_log, extended_training
from orac.api.environments import (
    LAMBDA,
    bare_id,
    choose_env,
    is_env_id,
    is_same_id,
    name_of_env,
    run_arguments,
    usable_options,
)
from orac.api.options import (
    changed_host_options,
    other_cost_option,
    recorded_options,
    refuse_unknown_options,
)
from orac.config import serialization
from orac.config.schema import Config, Encoder
from orac.config.validation import check_path
from orac.envs.base import EnvSpec
from orac.envs.identity import env_difference
from orac.envs.user_code import CostFn, can_be_imported
from orac.runs.arrays import TemplateMismatchError
from orac.runs.atomic_io import shown_path
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import (
    RunDirectory,
    certificate_problem,
    read_config,
    read_meta,
    valid_certificate,
)
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
    environment. If you do not pass them, they come from the file, like all other settings.
    """
    check_path("path", path)
    # Making the environment may change the working directory.
    given, path = Path(path), Path(path).absolute()
    changed = changed_host_options(locals())
    options: dict[str, Any] = {"cost_fn": cost_fn, "encoder": encoder}
    if path.is_dir():
        config, task = serialization.from_dict(read_config(given)), read_task(path)
        recorded = recorded_options(task, str(shown_path(path / "meta.json")))
        options["host_options"] = {**usable_options(recorded, config, env), **changed}
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
        config, state, candidates, steps, largest_cost, task = saved
        recorded = recorded_options(task, str(shown_path(path)))
        options["host_options"] = {**usable_options(recorded, config, env), **changed}
        agent = Agent(choose_env(config, env), config_for_env(config, env), **options)
        if not saving.same_shapes(state, agent.runner.state.agent):
            raise does_not_fit(path, agent.spec)
        rounds = jnp.int32(steps // config.training.num_envs)
        state_digest = None
    agent.runner.state = agent.runner.state._replace(
        agent=state, candidates=candidates, rounds=rounds
    )
    agent._source, agent._state_digest, agent._task = path, state_digest, task
    difference = other_env(agent, task)
    has_same_name = is_same_env(config, env, agent.runner)
    if difference or not has_same_name:
        agent._new_env = config.env.id if env is None else name_of_env(env)
        if agent._new_env == LAMBDA:
            agent._new_env = agent.spec.name
        agent._new_task_reason = difference if has_same_name else ""
    agent._new_cost_fn, reason = other_cost(config, task, agent, changed)
    agent._new_task_reason = agent._new_task_reason or reason
    if agent._has_own_task:
        agent._counters.largest_cost = largest_cost
    if agent._new_cost_fn is None:
        agent._not_compared = not_compared(config, task, agent)
        if agent._not_compared:
            warnings.warn(agent._not_compared, stacklevel=3)
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
        task, changed = read_task(run.path), changed_host_options(locals())
        recorded = recorded_options(task, str(shown_path(run.path / "meta.json")))
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
            host_options={**usable_options(recorded, config, env), **changed},
        )
        agent._task = task
        difference = other_env(agent, task)
        check_same_env(config, env, agent.runner, run.path, difference)
        other, reason = other_cost(config, task, agent, changed)
        if other is not None:
            raise different_cost(config, run.path, other, reason)
        if agent.config.env.cost_fn != config.env.cost_fn:
            log(
                f"The run was started with the cost function {config.env.cost_fn} and "
                f"continues with {agent.config.env.cost_fn}."
            )
        agent._not_compared = not_compared(config, task, agent)
        if agent._not_compared:
            log(agent._not_compared)
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
            if valid_certificate(run.path):
                messages.append(
                    "The certificate of this run does not count for the policies that are "
                    "trained now. Certify the run again afterwards."
                )
            total = config.training.total_steps
            run.extend(serialization.to_dict(config), agent.num_timesteps, total)
        if agent.num_timesteps < config.training.total_steps:
            run.note_commit()
        if agent.num_timesteps >= config.training.total_steps:
            arguments = run_arguments(run.path, agent.config, env_id=agent.env_id)
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


def read_task(path: Path) -> dict[str, Any]:
    """Return the meta.json of a run, or nothing if the run has none."""
    return read_meta(path) if (path / "meta.json").is_file() else {}


def other_env(agent: Agent, task: Mapping[str, Any]) -> str:
    """Return how the agent's environment differs from the recorded one, or ""."""
    return env_difference(task.get("env_made_from"), agent._meta["env_made_from"])


def other_cost(
    config: Config, task: Mapping[str, Any], agent: Agent, given: Mapping[str, Any]
) -> tuple[str | None, str]:
    """Return the name of the agent's cost if training used another one, and the reason.

    `task` is the record of the run and `given` are the options that the caller passed. The
    name is None if the cost is the same as in training or cannot be compared.
    """
    now = agent.config.env.cost_fn
    if name := other_cost_fn(config, agent.config):
        return name, ""
    if now is not None:
        before, code = code_records(task, agent)
        if before["python"] == code["python"] and before["digest"] != code["digest"]:
            return now, (
                "its code, its default values or the values that it uses from its enclosing "
                "function differ from those in training. Pass the unchanged function. A "
                "function that you define in a module, such as my_costs.py, can be passed "
                "by its name, my_costs:NAME"
            )
        return None, ""
    option = other_cost_option(given, task, config.constraints)
    return option or None, ""


def code_records(
    task: Mapping[str, Any], agent: Agent
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the digest and the Python version of the recorded and the present cost function.

    Both digests and versions are "" if one of the functions has no digest.
    """
    found = []
    for record in (task.get("cost_fn"), agent._meta.get("cost_fn")):
        known = record if isinstance(record, dict) else {}
        found.append({x: str(known.get(x, "")) for x in ("digest", "python")})
    if not all(one["digest"] for one in found):
        return {"digest": "", "python": ""}, {"digest": "", "python": ""}
    return found[0], found[1]


def not_compared(config: Config, task: Mapping[str, Any], agent: Agent) -> str:
    """Return a sentence if the cost function could not be compared with that of training.

    A function of a run of an earlier version, which recorded no code, has only a name.
    """
    trained_with, has_now = config.env.cost_fn, agent.config.env.cost_fn
    if has_now is None:
        return ""
    before, now = code_records(task, agent)
    if before["digest"] and before["python"] == now["python"]:
        return ""
    advice = (
        "Evaluations and certificates are right only if both compute the same cost."
    )
    if before["digest"]:
        return (
            f"the code of the cost function {has_now} cannot be compared with that of "
            f"training, which used Python {before['python']} and not {now['python']}. {advice}"
        )
    if has_now != trained_with:
        return (
            f"the agent was trained with the cost function {trained_with} and now has "
            f"{has_now}, and their code cannot be compared. {advice}"
        )
    if isinstance(task.get("cost_fn"), dict) and "env_made_from" in task:
        return (
            f"the code of the cost function {has_now} cannot be compared with that of "
            f"training, because Python does not show it. {advice}"
        )
    return ""


def different_cost(config: Config, path: Path, other: str, reason: str) -> ValueError:
    """Return the error for a run that would be resumed with another cost."""
    own = config.env.cost_fn
    if own is None and "=" in other:
        return ValueError(
            "this run must be resumed with the options of its training, which select the "
            f"costs, got {other}. Leave the option out. To train its agent with the new "
            f"cost, start a new run: orac.load({str(shown_path(path))!r}, "
            f"{other}).learn(out=...)"
        )
    expected = (
        f"with its own cost function, {own}" if own else "without a cost function"
    )
    why = f" ({reason})" if reason else ""
    start = f"orac train --from {shown_path(path)} --cost-fn {other}"
    if not can_be_imported(other):
        start = f"orac.load({str(shown_path(path))!r}, cost_fn=...).learn(out=...)"
    return ValueError(
        f"this run must be resumed {expected}, got {other}{why}. To train its agent with "
        f"the new one, start a new run from it: {start}"
    )


def config_for_env(config: Config, env: Any) -> Config:
    """Return the config. If `env` is another id, remove the environment's parameters."""
    if not isinstance(env, str) or is_same_id(env, config.env.id):
        return config
    return replace(config, env=replace(config.env, params=()))


def check_same_id(config: Config, env: Any, path: Path) -> None:
    """Raise an error if a run would be resumed in an environment with another id."""
    known = isinstance(env, str) and is_env_id(config.env.id)
    if known and not is_same_id(env, config.env.id):
        raise ValueError(
            f"a run must be resumed in its own environment, {config.env.id}, got {env}. To "
            "train its agent in another environment, start a new run: "
            f"orac train --from {shown_path(path)} --env-id {env}"
        )


def check_same_env(
    config: Config, env: Any, runner: Runner, path: Path, difference: str = ""
) -> None:
    """Raise an error if a run would be resumed in another environment, of any kind.

    An environment that is not an id has to be made first, to learn its name. `difference` says
    how it differs from the recorded description of the run's environment, or is "".
    """
    has_same_name = is_same_env(config, env, runner)
    if difference or not has_same_name:
        name = config.env.id if env is None else name_of_env(env)
        reason = f" ({difference})" if difference and has_same_name else ""
        raise ValueError(
            f"a run must be resumed in its own environment, {config.env.id}, got "
            f"{runner.spec.name if name == LAMBDA else name}{reason}. Pass the environment as it "
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
