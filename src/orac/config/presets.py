"""Presets: complete configs for each agent and environment.

`preset("orac", "orac/GuardedMaze-v0")` returns a config. There are three kinds of presets:

- `paper` has the settings of the paper's Appendix A, for the environments in the paper.
  Agents differ only in the two fields that `ALGORITHMS` lists, with two exceptions:
  SAC-Lagrangian has one scalar cost critic, as in the paper, and SAC has no constraints.
- `fast` has other settings for the same environments. The multiplier follows the measured
  risk of whole episodes, and a run takes minutes on one core.
- `general` has settings similar to `fast`, for any environment.
"""

import re
from dataclasses import dataclass, replace

from orac.config.schema import (
    AgentConfig,
    Config,
    Constraint,
    EnvConfig,
    EvaluationConfig,
    ExplorationConfig,
    MultiplierConfig,
    PivotConfig,
    TrainingConfig,
)
from orac.config.validation import check_choice, shown, unknown_name


@dataclass(frozen=True)
class Algorithm:
    """The two config fields that define an agent, and a description for listings."""

    risk_form: str | None
    """None if the preset of the environment chooses the risk form."""
    behaviour: str
    description: str


ALGORITHMS: dict[str, Algorithm] = {
    "orac": Algorithm(
        None, "optimistic", "ORAC, with the risk form of the environment's preset"
    ),
    "wcsac": Algorithm(
        None, "actor", "WCSAC, with the risk form of the environment's preset"
    ),
    "sac-lag": Algorithm("scalar", "actor", "SAC-Lagrangian: a limit on the mean cost"),
    "orac-iqn": Algorithm("implicit", "optimistic", "ORAC, implicit quantiles"),
    "wcsac-iqn": Algorithm("implicit", "actor", "WCSAC, implicit quantiles"),
    "orac-lin": Algorithm("dual", "optimistic", "ORAC, dual form of CVaR"),
    "wcsac-lin": Algorithm("dual", "actor", "WCSAC, dual form of CVaR"),
    "sac": Algorithm("scalar", "actor", "SAC without any constraint"),
}


def guarded_maze() -> Config:
    """Return Appendix A's settings for GuardedMaze, with guard probability 0.15."""
    return Config(
        env=EnvConfig(
            "orac/GuardedMaze-v0",
            # Scaling the observations is our choice. The paper does not mention it.
            params=(("guard_probability", 0.15), ("normalize_obs", True)),
        ),
        constraints=(Constraint("cost", limit=5.0, tail=0.05),),
        agent=AgentConfig(
            risk_form="implicit",
            discount=0.9999,
            cost_discount=0.9999,
            hidden_sizes=(64, 64),
            embedding_size=64,
            layer_norm=True,
            num_cost_critics=2,
            multiplier=MultiplierConfig(initial=0.0),
            exploration=ExplorationConfig(reward_optimism=3.0, cost_optimism=2.0),
        ),
        training=TrainingConfig(total_steps=500_000, learning_starts=5_000),
    )


def safety_gym() -> Config:
    """Return Appendix A's settings for Safety-Gymnasium, with a tail of 0.5."""
    return Config(
        env=EnvConfig("orac/SafetyPointGoal1-v0"),
        constraints=(Constraint("cost", limit=10.0, tail=0.5),),
        agent=AgentConfig(
            risk_form="dual",
            embedding_size=256,
            multiplier=MultiplierConfig(initial=1.0),
            pivot=PivotConfig(penalty=10.0),
        ),
        training=TrainingConfig(total_steps=5_000_000, learning_starts=500),
    )


def citylearn() -> Config:
    """Return Appendix A's settings for CityLearn, which Table 3 uses."""
    return Config(
        env=EnvConfig("orac/CityLearn-v0"),
        constraints=(Constraint("cost", limit=720.0, tail=0.05),),
        agent=AgentConfig(
            risk_form="dual", embedding_size=256, pivot=PivotConfig(penalty=10.0)
        ),
        training=TrainingConfig(total_steps=3_000_000, learning_starts=500),
    )


FAST_AGENT = AgentConfig(
    risk_form="quantile",
    num_quantiles=16,
    num_cost_critics=2,
    hidden_sizes=(128, 128),
    critic_layer_norm=True,
    kappa=0.1,
    discount=0.98,
    cost_discount=0.98,
    n_step=3,
    actor_learning_rate=5e-4,
    reward_critic_learning_rate=1e-3,
    cost_critic_learning_rate=1e-3,
    final_learning_rate=0.1,
    initial_temperature=0.1,
    polyak=0.01,
    target_every=1,
    actor_every=2,
    actor_average=0.999,
    normalize_observations=True,
    divide_by_multipliers=True,
    multiplier=MultiplierConfig(
        follows="episodes",
        initial=0.3,
        cap=100.0,
        proportional=0.2,
        margin=0.1,
        # Unlike in the maze, the risk varies smoothly with the multiplier, so the floor
        # need not rise. A noisy measurement would raise the floor for most of a run.
        remember_breaks=False,
    ),
    exploration=ExplorationConfig(decay_when_feasible=True),
)
"""Settings from which `general` and the fast presets of Safety-Gymnasium and CityLearn start.
Each of them changes a few."""


def fast_maze() -> Config:
    """Return settings for GuardedMaze with which a run takes about a minute on one core."""
    config = guarded_maze()
    return replace(
        config,
        agent=replace(
            config.agent,
            risk_form="quantile",
            # The learner divides costs by the limit of 5, so a kappa of 0.2 corresponds to
            # a cost of about 1.
            kappa=0.2,
            n_step=3,
            actor_learning_rate=1e-3,
            reward_critic_learning_rate=1e-3,
            cost_critic_learning_rate=1e-3,
            temperature_learning_rate=1e-3,
            final_learning_rate=0.1,
            initial_temperature=0.2,
            target_entropy=0.0,
            # Every seed that we compared earned less with -3 (results/tuning).
            final_target_entropy=-5.0,
            polyak=0.02,
            target_every=1,
            multiplier=MultiplierConfig(
                follows="episodes",
                initial=5.0,
                floor=0.25,
                cap=100.0,
                episodes_per_unit=270.0,
                proportional=0.0,
            ),
            exploration=replace(config.agent.exploration, decay_when_feasible=True),
        ),
        training=replace(
            config.training,
            total_steps=160_000,
            num_envs=8,
            gradient_steps=1 / 4,
            batch_size=128,
            buffer_size=160_000,
            restarts=2,
            log_every=4_000,
            checkpoint_every=20_000,
        ),
        evaluation=EvaluationConfig(every=4_000, episodes=100),
    )


def fast_safety_gym() -> Config:
    """Return settings for Safety-Gymnasium's tasks, except the button tasks.

    A run takes about 25 minutes on one core.
    """
    config = safety_gym()
    return replace(
        config,
        agent=replace(
            FAST_AGENT,
            centre=True,
            # Rewards are about 0.05 per step. With an initial temperature above 0.05, the
            # policy stays close to random for the first 100,000 steps.
            initial_temperature=0.02,
            temperature_learning_rate=1e-3,
            # The multiplier starts low, so that the agent learns the task first and the
            # risk approaches its limit from above.
            multiplier=replace(
                FAST_AGENT.multiplier, initial=0.1, floor=0.02, dead_zone=0.05
            ),
        ),
        training=TrainingConfig(
            total_steps=800_000,
            num_envs=8,
            learning_starts=5_000,
            gradient_steps=1 / 4,
            batch_size=128,
            log_every=4_000,
            checkpoint_every=40_000,
        ),
        evaluation=EvaluationConfig(every=40_000, episodes=30),
    )


def fast_safety_button() -> Config:
    """Return settings for Safety-Gymnasium's button tasks.

    A run takes about 45 minutes on one core. These tasks take longer to learn than the
    others, so the multiplier changes more slowly.
    """
    config = fast_safety_gym()
    multiplier = replace(config.agent.multiplier, initial=0.3, episodes_per_unit=700.0)
    return replace(
        config,
        agent=replace(config.agent, multiplier=multiplier),
        training=replace(config.training, total_steps=1_400_000),
    )


def fast_citylearn() -> Config:
    """Return settings for CityLearn with which a run takes about 15 minutes on one core."""
    config = citylearn()
    return replace(
        config,
        agent=replace(
            FAST_AGENT,
            centre=True,
            # Rewards and costs both have a size of about 1 per hour. The learner divides
            # costs by the limit converted to a discounted sum (50), so rewards are scaled
            # down as well.
            reward_scale=0.05,
            initial_temperature=0.01,
            temperature_learning_rate=1e-3,
            kappa=0.02,
            # A tail of 0.05 is narrower than one of the 16 quantiles, so the actor's loss
            # uses a wider tail.
            penalty_tail=0.5,
            multiplier=replace(
                FAST_AGENT.multiplier,
                # With an initial multiplier of 0.7, the risk comes within the limit later,
                # and the reward is lower.
                initial=1.0,
                # Most errors are below 0.1 of the limit, so the controller reacts strongly
                # to them. It treats the larger errors at the start as errors of 0.1.
                episodes_per_unit=30.0,
                max_error=0.1,
                proportional=0.5,
                margin=0.03,
                # The risk varies smoothly with the multiplier, so with a narrow dead zone
                # the controller can hold the risk near its limit.
                dead_zone=0.03,
            ),
        ),
        training=TrainingConfig(
            total_steps=360_000,
            num_envs=16,
            learning_starts=12_000,
            gradient_steps=1 / 2,
            log_every=5_000,
            checkpoint_every=50_000,
        ),
        # Two evaluations fill the window of measured episodes, and comparing them shows
        # whether the risk is falling.
        evaluation=EvaluationConfig(every=10_000, episodes=100),
    )


def general(env_id: str) -> Config:
    """Return the `general` settings for an environment."""
    return Config(
        env=EnvConfig(env_id),
        constraints=(Constraint("cost", limit=25.0, tail=0.25),),
        agent=replace(
            FAST_AGENT,
            discount=0.99,
            cost_discount=0.99,
            actor_every=1,
            normalize_rewards=True,
        ),
        training=TrainingConfig(
            total_steps=50_000,
            learning_starts=1_000,
            gradient_steps=1 / 2,
            batch_size=128,
        ),
        evaluation=EvaluationConfig(every=5_000, episodes=20),
    )


ROBOTS = "Point|Car|Racecar|Doggo|Ant|HalfCheetah|Hopper|Humanoid|Swimmer|Walker2d"
SAFETY_GYM = re.compile(rf"(orac/)?Safety({ROBOTS})[A-Z]\w*-v\d+")
SAFETY_GYM_VARIANTS = tuple(
    f"orac/Safety{robot}{task}{level}-v0"
    for robot in ("Point", "Car")
    for task in ("Goal", "Button")
    for level in range(3)
)
"""Ids of the variants of Safety-Gymnasium's tasks that this package provides."""
ENVIRONMENTS = {
    "orac/GuardedMaze-v0": {"paper": guarded_maze, "fast": fast_maze},
    "orac/CityLearn-v0": {"paper": citylearn, "fast": fast_citylearn},
}
"""Functions that return the settings, by environment id and kind of preset.

Ids of Safety-Gymnasium are not listed here: they use one of the two dicts below.
"""
SAFETY_GYM_PRESETS = {"paper": safety_gym, "fast": fast_safety_gym}
SAFETY_BUTTON_PRESETS = {"paper": safety_gym, "fast": fast_safety_button}
PRESETS = {
    "paper": "the paper's settings, for the environments in the paper",
    "fast": "limits the risk of whole episodes and trains in minutes, for the same environments",
    "general": "settings similar to fast, for any environment",
}


def with_algorithm(config: Config, algo: str) -> Config:
    """Return a copy of the config that trains the agent `algo`."""
    check_choice("algo", algo, ALGORITHMS)
    algorithm = ALGORITHMS[algo]
    risk_form = algorithm.risk_form or config.agent.risk_form
    agent = replace(
        config.agent,
        risk_form=risk_form,
        behaviour=algorithm.behaviour,
        # The dual form compares its pivot with costs that are not centred.
        centre=config.agent.centre and risk_form != "dual",
    )
    if algorithm.risk_form == "scalar":
        agent = replace(agent, num_cost_critics=1)
    constraints = () if algo == "sac" else config.constraints
    return replace(config, algo=algo, agent=agent, constraints=constraints)


def for_encoder(config: Config) -> Config:
    """Return the config without scaling of observations, for networks with an encoder.

    If each pixel were scaled by its own statistics, the same pattern would look different at
    each position.
    """
    return replace(config, agent=replace(config.agent, normalize_observations=False))


def check_algorithm(config: Config) -> None:
    """Raise an error if a config's fields contradict its `algo`."""
    check_choice("algo", config.algo, ALGORITHMS)
    algorithm, agent = ALGORITHMS[config.algo], config.agent
    risk_form = algorithm.risk_form or agent.risk_form
    if (risk_form, algorithm.behaviour) != (agent.risk_form, agent.behaviour):
        fitting = next(
            name
            for name, other in sorted(
                ALGORITHMS.items(), key=lambda item: item[1].risk_form is None
            )
            if other.risk_form in (None, agent.risk_form)
            and other.behaviour == agent.behaviour
            and name != "sac"
        )
        raise ValueError(
            f"algo {config.algo!r} needs risk_form {risk_form!r} and behaviour "
            f"{algorithm.behaviour!r}, but the config has {agent.risk_form!r} and "
            f"{agent.behaviour!r}, which belong to algo {fitting!r}. Choose the agent with "
            "--algo (in Python with orac.ORAC, orac.WCSAC, ...)."
        )
    if config.algo == "sac" and config.constraints:
        raise ValueError(
            "algo 'sac' takes no constraints, but the config has "
            f"{'one' if len(config.constraints) == 1 else 'some'} on: "
            f"{', '.join(c.name for c in config.constraints)}. Use algo 'sac-lag'."
        )


def long_preset_note(config: Config, kind: str | None) -> str:
    """Return a note if the default preset is used and its run takes hours, otherwise "".

    `kind` is the preset that the user chose, or None.
    """
    if kind is not None or not has_paper_preset(config.env.id):
        return ""
    times = {"orac/GuardedMaze-v0": "about a minute", "orac/CityLearn-v0": "15 minutes"}
    by_task = "45 minutes" if "Button" in config.env.id else "25 minutes"
    return (
        f"the preset is 'paper', the default for {config.env.id}: a run takes hours. With "
        f"--preset fast it takes {times.get(config.env.id, by_task)}."
    )


def has_paper_preset(env_id: str) -> bool:
    """Return whether there is a `paper` preset for this environment."""
    return env_id in ENVIRONMENTS or is_safety_gym(env_id)


def is_safety_gym(env_id: str) -> bool:
    """Return whether this is the id of a task of Safety-Gymnasium or of a variant of one."""
    return SAFETY_GYM.fullmatch(env_id) is not None


def preset(algo: str, env_id: str, kind: str | None = None) -> Config:
    """Return the config of the agent `algo` for an environment.

    `kind` is a key of `PRESETS`. By default it is `paper` for the paper's environments and
    `general` for others.
    """
    if kind is not None:
        check_choice("preset", kind, PRESETS)
    if not isinstance(env_id, str):
        raise ValueError(f"env_id must be text, got {shown(env_id)}.")
    kinds = ENVIRONMENTS.get(env_id)
    if kinds is None and is_safety_gym(env_id):
        kinds = SAFETY_BUTTON_PRESETS if "Button" in env_id else SAFETY_GYM_PRESETS
    if kinds is None and kind not in (None, "general"):
        raise ValueError(
            f"preset {kind!r} exists only for {', '.join(ENVIRONMENTS)} and "
            f"Safety-Gymnasium's tasks, not for {env_id!r}. Use the preset 'general'."
        )
    if kinds is not None and kind != "general":
        config = kinds[kind or "paper"]()
    elif kinds is not None:
        config = replace(general(env_id), constraints=kinds["paper"]().constraints)
    elif env_id.startswith("orac/"):
        known = [*ENVIRONMENTS, *SAFETY_GYM_VARIANTS]
        raise unknown_name("an environment of this package", env_id, known)
    else:
        config = general(env_id)
    config = replace(config, env=replace(config.env, id=env_id))
    return with_algorithm(config, algo)
