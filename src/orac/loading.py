"""An agent from what was kept of it: a file, or a run directory to go on with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orac.api import Agent
from orac.config import serialization as config_text
from orac.options import check_callback
from orac.runs.checkpoint import Checkpoints
from orac.runs.directory import RunDirectory, read_config
from orac.training import saving
from orac.training.loop import Callback
from orac.training.run_logger import RunRecords
from orac.wiring import env_of


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
    check_callback(callback)
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
        if agent.num_timesteps < config.training.total_steps:
            run.note_commit()
    except BaseException:
        run.close()
        raise
    agent.run_path = run.path
    if agent.num_timesteps >= config.training.total_steps:
        told = [f"The run is finished, at {agent.num_timesteps:,} steps."]
    for sentence in told:
        say(sentence)
    agent._train(records, callback, progress_bar)
    return agent
