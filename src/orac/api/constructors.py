"""Make a new agent from a preset and the options that differ from it.

`ORAC`, `WCSAC`, `SACLagrangian` and `SAC` call `make_agent` with the name of a preset.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from orac.api.agent import Agent
from orac.api.environments import name_of_env
from orac.config import presets, serialization
from orac.config.schema import Config, Constraint
from orac.config.validation import check_range, shown, unknown_name
from orac.envs.gym_adapter.costs import CostFn
from orac.envs.gym_adapter.make import make_host
from orac.training.encoder_loading import EncoderPair

Options = ParamSpec("Options")


class AssumedLimitWarning(UserWarning):
    """Warns that no cost limit was given, so that a default is used."""


def refuse_unknown_options(
    function: Callable[Options, Agent],
) -> Callable[Options, Agent]:
    """Raise an error with the nearest known name for an option that does not exist."""
    parameters = inspect.signature(function).parameters
    known = [x for x, one in parameters.items() if one.kind is one.KEYWORD_ONLY]

    @wraps(function)
    def checked(*arguments: Options.args, **options: Options.kwargs) -> Agent:
        for name in options:
            if name not in parameters:
                raise unknown_name("an option", name, known)
        return function(*arguments, **options)

    return checked


def takes_options_of(
    make: Callable[Concatenate[str, Options], Agent],
) -> Callable[[Callable[..., Agent]], Callable[Options, Agent]]:
    """Give a function the signature of `make_agent` without the algorithm's name.

    There is then only one list of options, which `help`, `inspect` and editors show.
    """

    def give(function: Callable[..., Agent]) -> Callable[Options, Agent]:
        signature = inspect.signature(make)
        options = [*signature.parameters.values()][1:]
        vars(function)["__signature__"] = signature.replace(parameters=options)
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
    """Return an agent built from a preset and the options that differ from it.

    Args:
        algo: Name of an agent, as `orac agents` lists them.
        env: An id, an environment, a function that makes one, a JAX environment, or one of
            Brax or MuJoCo Playground (`"brax:halfcheetah"`).
        cost_limit: Limit on the risk of the cost of one episode.
        tail: Fraction of the worst episodes whose mean cost is limited; 1 for all episodes.
        seed: Seed of all random numbers.
        constraints: Several limits instead of `cost_limit` and `tail`, as in
            `[orac.Constraint("comfort", limit=720, tail=0.05), ...]`.
        cost_fn: Function of (observation, action, next_observation, info) that returns
            the cost of a step, or its name, `"module:function"`. By default the cost is
            `info["cost"]`.
        encoder: Functions `(init, apply)` that turn an observation, such as an image, into
            features for every network, or their name, `"module:name"`
            (see `core.encoders`). They receive raw observations, because a preset's
            `agent.normalize_observations` is turned off.
        cost_bound: Largest possible cost of an episode, which certificates need.
        num_envs: Number of environments that are stepped in parallel.
        episode_length: Number of steps after which episodes are truncated.
        env_params: Keyword arguments for the environment.
        settings: Values by dotted config field, as in `{"agent.kappa": 0.5}`.
        config: A whole config, instead of a preset.
        preset: "paper", "fast" or "general" (see `config.presets`); by default "paper" for
            the paper's environments and "general" for others.
        cost_names: Names of the costs; by default those of the constraints.
        cost_keys: Keys of `info` under which the costs are reported.
        metric_names: Keys of `info` to report as metrics.
        vectorization: "auto", "sync", "async" (one process per environment) or "vector".
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
    chosen = replace(
        chosen, constraints=merge_constraints(chosen, constraints, cost_limit, tail)
    )
    if settings:
        data = serialization.to_dict(chosen)
        for dotted, value in settings.items():
            serialization.assign(data, dotted, value)
        chosen = serialization.from_dict(data)
    given: dict[str, Any] = {
        "cost_bound": cost_bound,
        "cost_names": cost_names,
        "cost_keys": cost_keys,
        "metric_names": metric_names,
        "vectorization": vectorization,
    }
    # Some environments reject unknown options, so options with default values are left out.
    defaults = inspect.signature(make_host).parameters
    host_options = {x: v for x, v in given.items() if v is not defaults[x].default}
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
    """Optimistic Risk-averse Actor-Critic. Takes the options of `make_agent`."""
    return make_agent("orac", env, **options)


@takes_options_of(make_agent)
def WCSAC(env: Any, **options: Any) -> Agent:
    """Worst-Case SAC: ORAC without optimism. Takes the options of `make_agent`."""
    return make_agent("wcsac", env, **options)


@takes_options_of(make_agent)
def SACLagrangian(env: Any, **options: Any) -> Agent:
    """SAC with a limit on the mean cost. Takes the options of `make_agent`.

    `tail` does not change what is learned, since a scalar critic only estimates the mean.
    Evaluations and certificates measure the risk at this tail. By default it is that of the
    preset, so that agents can be compared. With `tail=1` they use the mean as well.
    """
    return make_agent("sac-lag", env, **options)


@takes_options_of(make_agent)
def SAC(env: Any, **options: Any) -> Agent:
    """SAC without a constraint. Takes the options of `make_agent`."""
    return make_agent("sac", env, **options)


def merge_constraints(
    config: Config,
    constraints: Sequence[Constraint] | None,
    cost_limit: float | None,
    tail: float | None,
) -> tuple[Constraint, ...]:
    """Return the given constraints, or the config's with this limit and tail."""
    if constraints is not None:
        if cost_limit is not None or tail is not None:
            raise ValueError(
                "give either constraints or cost_limit and tail, got both. "
                "A constraint has its own limit and tail."
            )
        example = "Write constraints=[orac.Constraint('cost', limit=5.0, tail=0.05)]."
        if not isinstance(constraints, list | tuple):
            raise ValueError(
                f"constraints must be a list, got {shown(constraints)}. {example}"
            )
        for one in constraints:
            if not isinstance(one, Constraint):
                raise ValueError(
                    f"constraints must each be an orac.Constraint, got {one!r}. {example}"
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
    """Return a warning if the limit is only a default, otherwise an empty text."""
    if presets.has_settings(config.env.id) or not config.constraints:
        return ""
    constraint = config.constraints[0]
    return (
        f"no cost_limit was given for {config.env.id}, so the "
        f"{config.agent.learned_measure(constraint)} of its cost is limited to "
        f"{constraint.limit:g} per episode. Pass cost_limit= and tail=."
    )
