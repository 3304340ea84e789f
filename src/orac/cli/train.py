"""`orac train`, `orac resume` and `orac config`: build a config, train with it or print it.

The options of all commands are in `options.py`.
"""

import argparse
import signal
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orac.cli.options import host_options
from orac.config import presets, serialization
from orac.config.schema import Config

if TYPE_CHECKING:
    from orac.api import Agent


def run_train(options: argparse.Namespace) -> int:
    """Train a new agent."""
    config, _ = resolve_config(options)
    presets.check_algorithm(config)
    # JAX is imported here, after the options were checked.
    from orac.api import Agent, ShortRunWarning, choose_env

    # Only an id that was typed may import its module; that of a file must not.
    env = options.env_id or choose_env(config, None)
    agent = Agent(
        env, config, cost_fn=options.cost_fn, host_options=host_options(options)
    )
    print(describe(agent))
    show_by_default = warnings.showwarning

    def show_warning(message: Any, category: Any, *where: Any) -> None:
        if category is ShortRunWarning:
            print(f"  note: {message}")
        else:
            show_by_default(message, category, *where)

    with warnings.catch_warnings():
        warnings.simplefilter("always", ShortRunWarning)
        warnings.showwarning = show_warning
        agent.learn(
            progress_bar=not options.quiet,
            out=options.out,
            name=options.name,
            trackers=tuple(options.track or ("tensorboard",)),
            profile=options.profile,
        )
    if agent.profile:
        print(agent.profile.table())
    assert agent.run_path is not None
    return finish(agent, agent.run_path, options.cost_bound)


def run_resume(options: argparse.Namespace) -> int:
    """Continue a run from its newest intact checkpoint."""
    from orac.api import resume

    agent = resume(
        options.run_dir,
        options.env_id,
        cost_fn=options.cost_fn,
        host_options=host_options(options),
        progress_bar=not options.quiet,
        trackers=tuple(options.track or ("tensorboard",)),
    )
    return finish(agent, Path(options.run_dir), options.cost_bound)


def run_config(options: argparse.Namespace) -> int:
    """Print the config as YAML, followed by its differences from the preset."""
    config, base = resolve_config(options)
    presets.check_algorithm(config)
    print(serialization.dump(config), end="")
    changes = serialization.difference(config, base)
    print("# changed from the preset:" if changes else "# identical to the preset")
    for name, (value, preset_value) in changes.items():
        print(f"#   {name}: {preset_value} -> {value}")
    return 0


def resolve_config(options: argparse.Namespace) -> tuple[Config, Config]:
    """Return the config that the options describe, and the preset it is based on."""
    if options.config is not None:
        if options.preset is not None:
            raise ValueError(
                "--preset and --config each give a whole config, got both. Drop one."
            )
        base = serialization.load(options.config)
        if options.algo is not None:
            base = presets.with_algorithm(base, options.algo)
        if options.env_id is not None:
            base = serialization.override(base, [f"env.id={options.env_id!r}"])
    else:
        chosen = "orac/GuardedMaze-v0" if options.env_id is None else options.env_id
        algo = "orac" if options.algo is None else options.algo
        base = presets.preset(algo, chosen, options.preset)
    given = {
        "seed": options.seed,
        "training.total_steps": options.total_steps,
        "training.num_envs": options.num_envs,
        "constraints.0.limit": options.cost_limit,
        "constraints.0.tail": options.tail,
    }
    changes = [
        f"{field}={value}" for field, value in given.items() if value is not None
    ]
    return serialization.override(base, [*changes, *options.set]), base


def describe(agent: "Agent") -> str:
    """Return a description of the run: what is limited, and how it is measured."""
    config = agent.config
    lines = [f"{config.algo} in {config.env.id}, seed {config.seed}"]
    if config.agent.follows_episodes:
        from orac.training.measurement import held_measure, window_size

        share = 1 - config.agent.multiplier.margin
        return "\n".join(
            [
                *lines,
                *(
                    f"  {constraint.name}: {held_measure(constraint, config)} of at most "
                    f"{constraint.limit:g} per episode, measured over the last "
                    f"{window_size(config.constraints):,} episodes of the deployed policy, "
                    f"which the multiplier holds at {share * constraint.limit:g}"
                    for constraint in config.constraints
                ),
            ]
        )
    for constraint, value in zip(
        config.constraints, agent.problem.cost_value_limits, strict=True
    ):
        lines.append(
            f"  {constraint.name}: {config.agent.learned_measure(constraint)} of at most "
            f"{constraint.limit:g} per episode, which is {value:.4f} in the critics' units "
            f"(discount {config.agent.cost_discount:g})"
        )
    return "\n".join(lines)


def finish(
    agent: "Agent", path: Path, cost_bound: Sequence[float] | None = None
) -> int:
    """Print what the run delivers and the command to type next; return the exit code."""
    from orac.api import run_arguments

    total = agent.config.training.total_steps
    arguments = run_arguments(path, agent.config)
    for bound in cost_bound or ():
        arguments += f" --cost-bound {bound:g}"
    if agent.num_timesteps < total:
        print(
            f"Stopped at step {agent.num_timesteps:,} of {total:,}; everything is saved."
        )
        print(f"Continue with: orac resume {arguments}")
        return 128 + (agent.stop_signal or signal.SIGINT)
    print(f"Done: {path}")
    print("\n".join(agent.delivery_lines()))
    print(f"Evaluate it with: orac evaluate {arguments}")
    if agent.config.constraints:
        declared = agent.spec.cost_bounds is not None
        bound = "" if declared else " --cost-bound COST"
        print(f"Certify it with: orac certify {arguments}{bound}")
    return 0
