"""`orac train`, `orac resume` and `orac config`: words to a config, and to a run of it."""

import argparse
import warnings
from pathlib import Path
from typing import Any

from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config


def resolve_config(options: argparse.Namespace) -> tuple[Config, Config]:
    """The config that the words mean, and the preset they started from."""
    if options.config is not None:
        base = config_text.load(options.config)
        if options.algo:
            base = presets.with_algorithm(base, options.algo)
        if options.env_id:
            base = config_text.override(base, [f"env.id={options.env_id}"])
    else:
        env_id = options.env_id or "orac/GuardedMaze-v0"
        base = presets.preset(options.algo or "orac", env_id)
    words = []
    for option, field in (
        ("seed", "seed"),
        ("total_steps", "training.total_steps"),
        ("num_envs", "training.num_envs"),
        ("cost_limit", "constraints.0.limit"),
        ("tail", "constraints.0.tail"),
    ):
        value = getattr(options, option)
        if value is not None:
            words.append(f"{field}={value}")
    config = config_text.override(base, [*words, *options.set])
    presets.check_algorithm(config)
    return config, base


def run_train(options: argparse.Namespace) -> int:
    from orac.api import Agent, NothingLearned

    config, _ = resolve_config(options)
    agent = Agent(config.env.id, config, cost_fn=options.cost_fn)
    print(describe(agent))
    with warnings.catch_warnings():
        # It was just described.
        warnings.simplefilter("ignore", NothingLearned)
        agent.learn(
            progress_bar=not options.quiet,
            out=options.out,
            name=options.name,
            trackers=tuple(options.track or ("tensorboard",)),
        )
    return finish(agent, agent.run_path)


def describe(agent: Any) -> str:
    """What is about to be trained, with each limit in both of its units."""
    from orac.api import nothing_learned

    config = agent.config
    lines = [f"{config.algo} in {config.env.id}, seed {config.seed}"]
    for constraint, value in zip(
        config.constraints, agent.problem.cost_value_limits, strict=True
    ):
        # A scalar critic knows the mean alone; evaluations report the risk all the same.
        scalar = config.agent.risk_form == "scalar"
        lines.append(
            f"  {constraint.name}: its {'mean' if scalar else constraint.measure} at most "
            f"{constraint.limit:g} an episode, which is {value:.4f} in the critics' units "
            f"(discount {config.agent.cost_discount:g})"
        )
    sentence = nothing_learned(config)
    if sentence:
        lines.append(f"  note: {sentence}")
    return "\n".join(lines)


def finish(agent: Any, path: Path | None) -> int:
    """Say how far the run came and what to do next."""
    total, env = agent.config.training.total_steps, agent.config.env
    # Code of one's own is named again each time: no file makes us import it.
    words = str(path)
    words += f" --env-id {env.id}" if ":" in env.id else ""
    words += f" --cost-fn {env.cost_fn}" if env.cost_fn else ""
    if agent.num_timesteps < total:
        print(f"Stopped at step {agent.num_timesteps:,} of {total:,}, all saved.")
        print(f"Go on with: orac resume {words}")
        return 130
    print(f"Done: {path}")
    print(f"Look at it with: orac evaluate {words}")
    return 0


def run_resume(options: argparse.Namespace) -> int:
    from orac.loading import resume

    agent = resume(
        options.run_dir,
        options.env_id,
        cost_fn=options.cost_fn,
        progress_bar=not options.quiet,
        trackers=tuple(options.track or ("tensorboard",)),
    )
    return finish(agent, Path(options.run_dir))


def run_config(options: argparse.Namespace) -> int:
    config, base = resolve_config(options)
    print(config_text.dump(config), end="")
    changes = config_text.difference(config, base)
    print("# changed from the preset:" if changes else "# as the preset has it")
    for name, (ours, theirs) in changes.items():
        print(f"#   {name}: {theirs} -> {ours}")
    return 0
