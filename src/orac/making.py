"""Three lines of Python: make an agent, let it learn, look at what it does.

    agent = orac.ORAC("orac/GuardedMaze-v0", cost_limit=5.0, tail=0.05, seed=0)
    agent.learn(total_timesteps=300_000)
    print(agent.evaluate(episodes=100))

Words become a config; the agent itself is `api.Agent`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orac.api import Agent
from orac.config import presets
from orac.config import serialization as config_text
from orac.config.schema import Config, Constraint
from orac.envs.gym_adapter.costs import CostFn
from orac.options import assumed_limit, check_words, constraints_of
from orac.wiring import name_of


class AssumedLimit(UserWarning):
    """The warning that nobody chose the limit of a cost."""


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
    check_words(host_options, make_agent)
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
        constraints=constraints_of(chosen, constraints, cost_limit, tail),
    )
    if settings:
        data = config_text.to_dict(chosen)
        for dotted, value in settings.items():
            config_text.assign(data, dotted, value)
        chosen = config_text.from_dict(data)
    agent = Agent(env, chosen, cost_fn=cost_fn, host_options=host_options)
    by_setting = any(word.startswith("constraints") for word in settings or ())
    if not (cost_limit is not None or constraints or config or by_setting):
        sentence = assumed_limit(agent.config)
        if sentence:
            warnings.warn(sentence, AssumedLimit, stacklevel=3)
    return agent


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
