"""The paper's settings for each agent and environment.

`preset("orac", "orac/GuardedMaze-v0")` returns a whole config. An agent sets two fields
(`ALGORITHMS`). Everything else is the environment's column in the paper's Appendix A and
the same for every agent. The exceptions are SAC-Lagrangian, which has one scalar cost
critic as in the paper, and SAC, which has no constraints.
"""

import dataclasses
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
from orac.config.validation import check_choice, unknown_name


@dataclass(frozen=True)
class Algorithm:
    """An agent: its risk form (None: the environment's preset decides) and behaviour."""

    risk_form: str | None
    behaviour: str
    describes: str


ALGORITHMS: dict[str, Algorithm] = {
    "orac": Algorithm(
        None, "optimistic", "ORAC, in the form that the paper uses for that environment"
    ),
    "wcsac": Algorithm(
        None, "actor", "WCSAC, in the form that the paper uses for that environment"
    ),
    "sac-lag": Algorithm(
        "scalar", "actor", "SAC-Lagrangian: mean cost under the limit"
    ),
    "orac-iqn": Algorithm("implicit", "optimistic", "ORAC, implicit quantiles"),
    "wcsac-iqn": Algorithm("implicit", "actor", "WCSAC, implicit quantiles"),
    "orac-lin": Algorithm("dual", "optimistic", "ORAC, dual (linear) CVaR"),
    "wcsac-lin": Algorithm("dual", "actor", "WCSAC, dual (linear) CVaR"),
    "sac": Algorithm("scalar", "actor", "SAC without any constraint"),
}


def guarded_maze() -> Config:
    """Appendix A, 'Environment specific' column GuardedMaze; Table 1 at 0.15."""
    return Config(
        env=EnvConfig(
            "orac/GuardedMaze-v0",
            # Scaling observations is our choice; the paper does not mention it.
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
    """Appendix A, 'Environment specific' column SafetyGymnasium; Table 2 at tail 0.5."""
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
    """Appendix A, 'Environment specific' column CityLearn; Table 3."""
    return Config(
        env=EnvConfig("orac/CityLearn-v0"),
        constraints=(Constraint("cost", limit=720.0, tail=0.05),),
        agent=AgentConfig(
            risk_form="dual", embedding_size=256, pivot=PivotConfig(penalty=10.0)
        ),
        training=TrainingConfig(total_steps=3_000_000, learning_starts=500),
    )


def general(env_id: str) -> Config:
    """Settings for a user's environment: Safety-Gymnasium's numbers, implicit form."""
    config = safety_gym()
    return replace(
        config,
        env=EnvConfig(env_id),
        constraints=(Constraint("cost", limit=25.0, tail=0.25),),
        agent=replace(
            config.agent,
            risk_form="implicit",
            embedding_size=64,
            num_cost_critics=2,
            multiplier=MultiplierConfig(),
        ),
        training=replace(config.training, total_steps=100_000, learning_starts=1_000),
        evaluation=EvaluationConfig(episodes=20),
    )


def demo() -> Config:
    """GuardedMaze in minutes on two cores: 8 mazes, one gradient step per round.

    Differs from the paper in seven more fields: fewer quantiles (two fields), time limits
    that count as terminal, a faster multiplier that is driven by initial states only (two
    fields), a quarter of the shift radius, and a limit of 4.5 instead of 5, as a margin
    because the risk varies with the start.
    """
    config = with_algorithm(guarded_maze(), "orac")
    agent = config.agent
    return replace(
        config,
        constraints=(replace(config.constraints[0], limit=4.5),),
        agent=replace(
            agent,
            num_quantiles=16,
            num_policy_quantiles=16,
            bootstrap_on_truncation=False,
            multiplier=replace(agent.multiplier, learning_rate=4e-3, states="starts"),
            exploration=replace(agent.exploration, shift_radius=1.0),
        ),
        training=replace(
            config.training,
            total_steps=400_000,
            num_envs=8,
            gradient_steps=1 / 8,
            log_every=2_000,
        ),
    )


ROBOTS = "Point|Car|Racecar|Doggo|Ant|HalfCheetah|Hopper|Humanoid|Swimmer|Walker2d"
SAFETY_GYM = re.compile(rf"(orac/)?Safety({ROBOTS})[A-Z]\w*-v\d+")
ENVIRONMENTS = {"orac/GuardedMaze-v0": guarded_maze, "orac/CityLearn-v0": citylearn}
"""Environments that have their own column; Safety-Gymnasium's ids share one."""


def with_algorithm(config: Config, algo: str) -> Config:
    """Return an environment's settings for one agent."""
    check_choice("algo", algo, ALGORITHMS)
    algorithm = ALGORITHMS[algo]
    agent = replace(
        config.agent,
        risk_form=algorithm.risk_form or config.agent.risk_form,
        behaviour=algorithm.behaviour,
    )
    if agent.risk_form == "scalar":
        agent = replace(agent, num_cost_critics=1)
    constraints = () if algo == "sac" else config.constraints
    return dataclasses.replace(config, algo=algo, agent=agent, constraints=constraints)


def check_algorithm(config: Config) -> None:
    """Raise an error if a config's fields contradict its `algo`."""
    check_choice("algo", config.algo, ALGORITHMS)
    algorithm, agent = ALGORITHMS[config.algo], config.agent
    risk_form = algorithm.risk_form or agent.risk_form
    if (risk_form, algorithm.behaviour) != (agent.risk_form, agent.behaviour):
        others = [
            name
            for name, other in ALGORITHMS.items()
            if (other.risk_form, other.behaviour) == (agent.risk_form, agent.behaviour)
            and name != "sac"
        ]
        fitting = (
            f"its algo is {others[0]!r}" if others else "no algo has this combination"
        )
        raise ValueError(
            f"algo {config.algo!r} has risk_form {risk_form!r} and behaviour "
            f"{algorithm.behaviour!r}, got {agent.risk_form!r} and {agent.behaviour!r}: "
            f"{fitting}. Choose the agent with --algo (in Python with orac.ORAC, orac.WCSAC, ...)."
        )
    if config.algo == "sac" and config.constraints:
        raise ValueError(
            "algo 'sac' has no constraints, got "
            f"{', '.join(c.name for c in config.constraints)}. Use algo 'sac-lag'."
        )


def with_seed(config: Config, seed: int) -> Config:
    """Return the same config with another seed."""
    return replace(config, seed=seed)


def has_settings(env_id: str) -> bool:
    """Return whether the paper has settings, with a limit, for this environment."""
    return env_id in ENVIRONMENTS or is_safety_gym(env_id)


def is_safety_gym(env_id: str) -> bool:
    """Return whether this is an id of Safety-Gymnasium or our variant of one."""
    return SAFETY_GYM.fullmatch(env_id) is not None


def preset(algo: str, env_id: str) -> Config:
    """Return the paper's settings of `algo` for its environments, or general ones."""
    if env_id in ENVIRONMENTS:
        config = ENVIRONMENTS[env_id]()
    elif is_safety_gym(env_id):
        config = safety_gym()
    elif env_id.startswith("orac/"):
        known = [*ENVIRONMENTS, "orac/SafetyPointGoal1-v0 and its siblings"]
        raise unknown_name("an environment of this package", env_id, known)
    else:
        config = general(env_id)
    config = replace(config, env=replace(config.env, id=env_id))
    return with_algorithm(config, algo)
