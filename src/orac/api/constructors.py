"""Make a new agent from a preset and options that change the preset.

`ORAC`, `WCSAC`, `SACLagrangian` and `SAC` call `make_agent` with the name of an agent.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate

from orac.api.agent import Agent
from orac.api.environments import name_of_env
from orac.api.options import Options, changed_host_options, refuse_unknown_options
from orac.config import overrides, presets
from orac.config.schema import Config, Constraint
from orac.config.validation import check_range, shown
from orac.envs.user_code import CostFn
from orac.evaluation.episodes import risk_phrase
from orac.training.encoder_loading import EncoderPair


class AssumedLimitWarning(UserWarning):
    """Warns that no cost limit was given and a default is used."""


def takes_options_of(
    make: Callable[Concatenate[str, Options], Agent],
) -> Callable[[Callable[..., Agent]], Callable[Options, Agent]]:
    """Return a decorator that gives a function the options of `make`, except `algo`.

    The decorator copies the signature and the descriptions, so that `help`, `inspect` and
    editors show all options, although only the source of `make` lists them.
    """

    def give(function: Callable[..., Agent]) -> Callable[Options, Agent]:
        signature = inspect.signature(make)
        options = [*signature.parameters.values()][1:]
        vars(function)["__signature__"] = signature.replace(parameters=options)
        _, heading, described = (inspect.getdoc(make) or "").partition("Args:")
        _, env, described = described.partition("    env:")
        text = inspect.getdoc(function) or ""
        function.__doc__ = f"{text}\n\n{heading}\n{env}{described}"
        return function

    return give


@refuse_unknown_options
def make_agent(
    algo: str,
    env: Any,
    *,
    cost_limit: float | None = None,
    tail: float | None = None,
    seed: int = 0,
    constraints: Sequence[Constraint] | None = None,
    cost_fn: CostFn | str | None = None,
    encoder: EncoderPair | str | None = None,
    cost_bound: float | Sequence[float] | None = None,
    num_envs: int | None = None,
    episode_length: int | None = None,
    env_params: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Config | None = None,
    preset: str | None = None,
    cost_names: Sequence[str] | None = None,
    cost_keys: Sequence[str] | None = None,
    metric_names: Sequence[str] = (),
    vectorization: str = "auto",
) -> Agent:
    """Return an agent that is built from a preset and options that change the preset.

    Args:
        algo: Name of an agent; `orac agents` lists all names.
        env: An environment (of Gymnasium, JAX, Brax or MuJoCo Playground), its id (such as
            `"brax:halfcheetah"`), or a function that makes a Gymnasium environment.
        cost_limit: Limit on the risk of an episode's cost.
        tail: Fraction of worst episodes whose mean cost is limited, or 1 for all episodes.
        seed: Seed of all random numbers.
        constraints: List of limits, instead of `cost_limit` and `tail`, as in
            `[orac.Constraint("comfort", limit=720, tail=0.05), ...]`.
        cost_fn: Function of (observation, action, next_observation, info) that returns
            the cost of a step, or its name, `"module:function"`. Without a function, the
            cost is `info["cost"]`.
        encoder: Functions `(init, apply)` that turn an observation, such as an image, into
            features for every network, or the name of the pair, `"module:name"`
            (see `core.encoders`). They receive unscaled observations, because this option
            turns off `agent.normalize_observations` of a preset.
        cost_bound: Largest possible cost of an episode. Certificates need it.
        num_envs: Number of environments that are stepped in parallel.
        episode_length: Number of steps after which episodes are truncated.
        env_params: Keyword arguments for the environment.
        settings: Values of config fields by their dotted names, as in
            `{"agent.kappa": 0.5}`.
        config: A complete config that replaces the preset.
        preset: "paper", "fast" or "general" (see `config.presets`). The default is "paper"
            for the paper's environments and "general" for others.
        cost_names: Names of the costs. The default is the names of the constraints.
        cost_keys: Keys of `info` under which the costs are reported.
        metric_names: Keys of `info` whose values are reported as metrics.
        vectorization: How parallel environments are made: "sync" (all in this process),
            "async" (one process per environment), "vector" (the vector environment that is
            registered for the id), or "auto" ("vector" if there is one, otherwise "sync").
    """
    name = env if isinstance(env, str) else name_of_env(env)
    for option, given_value in (("env_params", env_params), ("settings", settings)):
        if not isinstance(given_value, Mapping | None):
            raise ValueError(
                f"{option} must be a dict, such as {{'name': value}}, got "
                f"{shown(given_value)}."
            )
    if not isinstance(config, Config | None):
        raise ValueError(
            f"config must be an orac.Config, got {shown(config)}. orac.preset makes one."
        )
    chosen = replace(config or presets.preset(algo, name, preset), seed=seed)
    if encoder is not None and config is None:
        chosen = presets.for_encoder(chosen)
    if env_params:
        merged = {**dict(chosen.env.params), **env_params}
        chosen = replace(chosen, env=replace(chosen.env, params=tuple(merged.items())))
    if episode_length is not None:
        chosen = replace(chosen, env=replace(chosen.env, episode_length=episode_length))
    if num_envs is not None:
        chosen = replace(chosen, training=replace(chosen.training, num_envs=num_envs))
    if constraints is None:
        # A limit of 0 is valid only together with a cost_scale, which is in the settings.
        scales = {x: v for x, v in (settings or {}).items() if "cost_scale" in x}
        chosen = overrides.with_fields(chosen, scales)
    chosen = replace(
        chosen, constraints=merge_constraints(chosen, constraints, cost_limit, tail)
    )
    if settings:
        chosen = overrides.with_fields(chosen, settings)
    host_options = changed_host_options(locals())
    agent = Agent(
        env, chosen, cost_fn=cost_fn, encoder=encoder, host_options=host_options
    )
    by_setting = any(name.startswith("constraints") for name in settings or ())
    if not (cost_limit is not None or constraints or config or by_setting):
        assumed = assumed_limit(agent.config)
        if assumed:
            warnings.warn(assumed, AssumedLimitWarning, stacklevel=4)
    return agent


@takes_options_of(make_agent)
def ORAC(env: Any, **options: Any) -> Agent:
    """Make an ORAC agent (Optimistic Risk-averse Actor-Critic).

    Takes the options of `make_agent`.
    """
    return make_agent("orac", env, **options)


@takes_options_of(make_agent)
def WCSAC(env: Any, **options: Any) -> Agent:
    """Make a WCSAC agent (Worst-Case SAC), which is ORAC without optimism.

    Takes the options of `make_agent`.
    """
    return make_agent("wcsac", env, **options)


@takes_options_of(make_agent)
def SACLagrangian(env: Any, **options: Any) -> Agent:
    """Make a SAC-Lagrangian agent: SAC with a limit on the mean cost.

    Takes the options of `make_agent`. `tail` does not change what is learned, because this
    agent's critics estimate only the mean. Evaluations and certificates measure the CVaR at
    this tail. Its default is the preset's tail, so that different agents can be compared.
    With `tail=1`, evaluations and certificates measure the mean too.
    """
    return make_agent("sac-lag", env, **options)


@takes_options_of(make_agent)
def SAC(env: Any, **options: Any) -> Agent:
    """Make a SAC agent, which has no constraint. Takes the options of `make_agent`."""
    return make_agent("sac", env, **options)


def merge_constraints(
    config: Config,
    constraints: Sequence[Constraint] | None,
    cost_limit: float | None,
    tail: float | None,
) -> tuple[Constraint, ...]:
    """Return the given constraints.

    If `constraints` is None, return the constraints of the config, after setting the limit
    and the tail of the first one to `cost_limit` and `tail`, if these are given.
    """
    if constraints is not None:
        if cost_limit is not None or tail is not None:
            raise ValueError(
                "give either constraints, or cost_limit and tail, but not both. Each "
                "constraint contains a limit and a tail."
            )
        example = "Write constraints=[orac.Constraint('cost', limit=5.0, tail=0.05)]."
        if not isinstance(constraints, list | tuple):
            raise ValueError(
                f"constraints must be a list, got {shown(constraints)}. {example}"
            )
        for one in constraints:
            if not isinstance(one, Constraint):
                raise ValueError(
                    "each entry of constraints must be an orac.Constraint, got "
                    f"{one!r}. {example}"
                )
        return tuple(constraints)
    if cost_limit is not None:
        check_range("cost_limit", cost_limit, 0)
    if tail is not None:
        check_range("tail", tail, 0, 1, open_low=True)
    if not config.constraints:
        return ()
    first = config.constraints[0]
    if cost_limit is not None:
        first = replace(first, limit=float(cost_limit))
    if tail is not None:
        first = replace(first, tail=float(tail))
    return (first, *config.constraints[1:])


def assumed_limit(config: Config) -> str:
    """Return a warning that the limit of the preset is used, or "" if none is needed.

    None is needed for the paper's environments, whose presets have a limit that suits them.
    """
    if presets.has_paper_preset(config.env.id) or not config.constraints:
        return ""
    constraint = config.constraints[0]
    measure = config.agent.learned_measure(constraint)
    return (
        f"no cost_limit was given for {config.env.id}, so the "
        f"{risk_phrase(measure, 'its episode cost')} is limited to {constraint.limit:g}. "
        "Pass cost_limit= and tail=."
    )
