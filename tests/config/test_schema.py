"""Tests that configs check their values, and that presets have the paper's settings."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from orac.config import presets
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
from orac.core import risk

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "kind, settings, text",
    [
        (Constraint, dict(tail=0.0), r"be in \(0, 1\].*worst 5 %; got 0.0\.$"),
        (
            Constraint,
            dict(tail=1e-320),
            r"tail of .*'cost' must be in \[1e-05, 1\], got",
        ),
        (
            Constraint,
            dict(tail=1e-9),
            r"in \[1e-05, 1\], got 1e-09\. A smaller tail ta",
        ),
        (Constraint, dict(limit=1e-300), r"must be 0 or at least 1e-30, got 1e-300"),
        (Constraint, dict(cost_scale=1e-300), r"must be at least 1e-30, got 1e-300"),
        (AgentConfig, dict(penalty_tail=1e-9), r"must be in \[1e-05, 1\], got 1e-09"),
        (TrainingConfig, dict(learning_starts=10**12), "must be at most 2,000,000,000"),
        (TrainingConfig, dict(updates_start=10**12), "must be at most 2,000,000,000"),
        (AgentConfig, dict(target_every=10**12), "must be at most 2,000,000,000"),
        (AgentConfig, dict(actor_every=10**12), "must be at most 2,000,000,000"),
        (Constraint, dict(tail=2.0), r"be in \(0, 1\].*; got 2.0\.$"),
        (Constraint, dict(tail=NAN), r"be in \(0, 1\].*; got nan\.$"),
        # A tail that no measure reads is checked all the same.
        (Constraint, dict(risk="mean", tail=2.0), r"be in \(0, 1\].*; got 2.0"),
        (
            Constraint,
            dict(limit=-1.0),
            "limit of constraint 'cost' must be at least 0, got -1.0. It is the highest",
        ),
        (Constraint, dict(limit=NAN), "must be at least 0, got nan"),
        (Constraint, dict(limit=INF), "must be at least 0, got inf"),
        (Constraint, dict(risk="cvr"), "got 'cvr'. Did you mean 'cvar'"),
        (
            Constraint,
            dict(risk="wang"),
            "risk_parameter must be a shift .* got None. Set",
        ),
        (Constraint, dict(risk="wang", risk_parameter=-1.0), "a shift of at least 0"),
        (
            Constraint,
            dict(risk_parameter=0.05),
            "must be None .* 'cvar', got 0.05. The pa",
        ),
        (MultiplierConfig, dict(initial=-0.1), "multiplier.initial must be at least 0"),
        (MultiplierConfig, dict(cap=0.0), "multiplier.cap must be above 0, got 0.0"),
        (MultiplierConfig, dict(learning_rate=NAN), "learning_rate must be .* got nan"),
        (
            MultiplierConfig,
            dict(pid_gains=(1.0, -1.0, 0.0)),
            "pid_gains must be at least",
        ),
        (MultiplierConfig, dict(states="start"), "Did you mean 'starts'"),
        (
            AgentConfig,
            dict(multiplier=MultiplierConfig(states="starts"), cost_discount=1.0),
            "needs an agent.cost_discount below 1",
        ),
        (
            AgentConfig,
            dict(multiplier=MultiplierConfig(states="starts"), cost_discount=1 - 1e-8),
            "accumulated discount, got 0.99999999",
        ),
        (PivotConfig, dict(mode="stationry"), "Did you mean 'stationary'"),
        (PivotConfig, dict(std=0.0), "pivot.std must be above 0, got 0.0"),
        (
            PivotConfig,
            dict(every=0),
            "pivot.every must be a whole number of at least 1",
        ),
        (PivotConfig, dict(penalty=-1.0), "pivot.penalty must be at least 0"),
        (ExplorationConfig, dict(shift_radius=-4.0), "shift_radius must be at least 0"),
        (
            ExplorationConfig,
            dict(cost_optimism=NAN),
            "must be a finite number, got nan",
        ),
        (
            AgentConfig,
            dict(num_cost_critics=0),
            "num_cost_critics must be a whole number of at least 1, got .* 1 means no",
        ),
        (
            AgentConfig,
            dict(num_quantiles=0),
            "num_quantiles must be a whole number of a",
        ),
        (
            AgentConfig,
            dict(risk_form="iqn"),
            "must be one of scalar, quantile, implicit, dual; got",
        ),
        (AgentConfig, dict(behaviour="optimist"), "Did you mean 'optimistic'"),
        (
            AgentConfig,
            dict(discount=0.0),
            r"agent.discount must be in \(0, 1\], got 0.0",
        ),
        (AgentConfig, dict(cost_discount=1.01), r"cost_discount must be in \(0, 1\]"),
        (AgentConfig, dict(kappa=0.0), "agent.kappa must be above 0, got 0.0"),
        (AgentConfig, dict(polyak=1.5), r"agent.polyak must be in \(0, 1\], got 1.5"),
        (
            AgentConfig,
            dict(hidden_sizes=(64,)),
            "at least 2 entries for risk_form 'impl",
        ),
        (AgentConfig, dict(risk_form="dual", hidden_sizes=()), "at least 1 entries"),
        (
            AgentConfig,
            dict(hidden_sizes=(64, 0)),
            "hidden_sizes must be a whole number",
        ),
        (
            AgentConfig,
            dict(actor_learning_rate=-1.0),
            "actor_learning_rate must be at l",
        ),
        (
            AgentConfig,
            dict(target_entropy=NAN),
            "target_entropy must be a finite number",
        ),
        (
            AgentConfig,
            dict(initial_temperature=0.0),
            "initial_temperature must be above 0",
        ),
        (AgentConfig, dict(max_gradient_norm=0.0), "max_gradient_norm must be above 0"),
        (AgentConfig, dict(target_every=0), "target_every must be a whole number"),
        (
            TrainingConfig,
            dict(total_steps=0),
            "total_steps must be a whole number of at",
        ),
        (TrainingConfig, dict(batch_size=0), "batch_size must be a whole number"),
        (
            TrainingConfig,
            dict(learning_starts=-1),
            "learning_starts must be a whole numb",
        ),
        (
            TrainingConfig,
            dict(gradient_steps=0.0),
            "gradient_steps must be in .0, 1000.",
        ),
        (
            EvaluationConfig,
            dict(episodes=0),
            "evaluation.episodes must be a whole number",
        ),
        (
            EvaluationConfig,
            dict(every=-1),
            "evaluation.every must be a whole number of",
        ),
        (
            EnvConfig,
            dict(episode_length=0),
            "env.episode_length must be a whole number",
        ),
        (Config, dict(seed=-1), "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_invalid_values_raise_an_error_that_says_what_to_do(kind, settings, text):
    with pytest.raises(ValueError, match=text):
        kind(**settings)


def test_gains_come_in_threes():
    gains = object.__new__(MultiplierConfig)
    vars(gains).update(vars(MultiplierConfig()), pid_gains=(1.0, 2.0))
    with pytest.raises(ValueError, match=r"three numbers .* got \(1.0, 2.0\). A gain"):
        gains.__post_init__()


def test_gradient_steps_must_fit_the_rounds():
    TrainingConfig(num_envs=16, gradient_steps=1 / 16)
    TrainingConfig(num_envs=4, gradient_steps=2.0)
    TrainingConfig(num_envs=1, gradient_steps=0.25)
    with pytest.raises(
        ValueError, match="whole number or one over a whole number"
    ) as e:
        TrainingConfig(num_envs=4, gradient_steps=0.4)
    assert "got 0.4 * 4 = 1.6" in str(e.value)
    assert "With 4 environments, 0.25 gives one gradient step per round" in str(e.value)


def test_constraints_need_different_names():
    with pytest.raises(ValueError, match=r"different names, got \['cost', 'cost'\]"):
        Config(constraints=(Constraint(), Constraint()))


def test_the_dual_form_refuses_measures_it_has_no_pivot_for():
    dual = AgentConfig(risk_form="dual")
    Config(agent=dual, constraints=(Constraint(tail=0.1),))
    Config(agent=dual, constraints=(Constraint(risk="mean"),))
    for measure, text in (("wang", "supports only"), ("cpw", "not monotone")):
        constraint = Constraint(risk=measure, risk_parameter=0.7)
        with pytest.raises(ValueError, match=text):
            Config(agent=dual, constraints=(constraint,))
        Config(constraints=(constraint,))


def test_parameters_that_cannot_be_hashed_are_refused():
    with pytest.raises(
        ValueError, match=r"lists of them, got .* Make the environment in"
    ):
        EnvConfig(params=(("task", {"a": 1}),))


def test_each_constraint_knows_its_measure():
    assert Constraint(tail=0.05).measure == risk.cvar(0.05)
    assert Constraint(risk="mean").measure == risk.RiskMeasure("mean")
    wang = Constraint(risk="wang", risk_parameter=0.0)
    assert wang.measure == risk.RiskMeasure("wang", 0.0)


def test_a_config_is_hashable_whatever_it_was_given():
    env = EnvConfig(params=(("cells", [1, [2, 3]]), ("speed", np.float64(0.5))))
    assert env.params == (("cells", (1, (2, 3))), ("speed", 0.5))
    assert type(dict(env.params)["speed"]) is float
    config = Config(env=env, constraints=(Constraint(limit=np.float64(5)),))
    assert hash(config) == hash(dataclasses.replace(config))


def test_lists_become_tuples_where_a_tuple_is_meant():
    # Made by hand: in tests the types would refuse a list first.
    agent = object.__new__(AgentConfig)
    vars(agent).update(vars(AgentConfig()), hidden_sizes=[64, 64])
    agent.__post_init__()
    assert agent.hidden_sizes == (64, 64) and isinstance(hash(agent), int)


def test_zero_is_a_fine_number_where_it_means_something():
    Constraint(limit=0.0)
    AgentConfig(temperature_learning_rate=0.0)
    ExplorationConfig(shift_radius=0.0, reward_optimism=-1.0, cost_optimism=0.0)
    EvaluationConfig(every=0)
    TrainingConfig(learning_starts=0)


COMMON = dict(
    actor_learning_rate=3e-4,
    reward_critic_learning_rate=3e-4,
    cost_critic_learning_rate=3e-4,
    temperature_learning_rate=5e-4,
    initial_temperature=1.0,
    target_entropy=None,
    polyak=0.005,
    target_every=2,
    num_quantiles=32,
    num_policy_quantiles=32,
)
# Appendix A, 'Environment specific': one column per world.
ENVIRONMENTS = {
    "orac/GuardedMaze-v0": dict(
        multiplier_initial=0.0,
        learning_starts=5_000,
        discount=0.9999,
        hidden_sizes=(64, 64),
        embedding_size=64,
        layer_norm=True,
        num_cost_critics=2,
        optimism=(4.0, 3.0, 2.0),
        risk_form="implicit",
        tail=0.05,
        limit=5.0,
        total_steps=500_000,
        penalty=None,
    ),
    "orac/SafetyPointGoal1-v0": dict(
        multiplier_initial=1.0,
        learning_starts=500,
        discount=0.99,
        hidden_sizes=(256, 256),
        embedding_size=256,
        layer_norm=False,
        num_cost_critics=5,
        optimism=(4.0, 4.0, 1.0),
        risk_form="dual",
        tail=0.5,
        limit=10.0,
        total_steps=5_000_000,
        penalty=10.0,
    ),
    "orac/CityLearn-v0": dict(
        multiplier_initial=0.0,
        learning_starts=500,
        discount=0.99,
        hidden_sizes=(256, 256),
        embedding_size=256,
        layer_norm=False,
        num_cost_critics=5,
        optimism=(4.0, 4.0, 1.0),
        risk_form="dual",
        tail=0.05,
        limit=720.0,
        total_steps=3_000_000,
        penalty=10.0,
    ),
}


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_presets_hold_the_papers_numbers(env_id):
    column, config = ENVIRONMENTS[env_id], presets.preset("orac", env_id)
    agent, training = config.agent, config.training
    for name, value in COMMON.items():
        assert getattr(agent, name) == value, name
    names = "hidden_sizes embedding_size layer_norm num_cost_critics risk_form discount"
    for name in names.split():
        assert getattr(agent, name) == column[name], name
    assert agent.cost_discount == column["discount"]
    assert agent.multiplier.initial == column["multiplier_initial"]
    assert agent.multiplier.learning_rate == 5e-4
    assert agent.multiplier.cap is None and not agent.multiplier.pid
    explore = agent.exploration
    assert (
        explore.shift_radius,
        explore.reward_optimism,
        explore.cost_optimism,
    ) == column["optimism"]
    assert explore.decay and not explore.radius_is_kl
    assert training.learning_starts == column["learning_starts"]
    assert training.total_steps == column["total_steps"]
    assert (training.batch_size, training.buffer_size) == (256, 1_000_000)
    assert (config.evaluation.every, config.evaluation.episodes) == (10_000, 100)
    (constraint,) = config.constraints
    assert (constraint.limit, constraint.tail) == (column["limit"], column["tail"])
    assert constraint.measure == risk.cvar(column["tail"])
    if column["penalty"] is not None:
        assert agent.pivot.penalty == column["penalty"]


@pytest.mark.parametrize(
    "algo, form, behaviour, members",
    [
        ("orac", "dual", "optimistic", 5),
        ("wcsac", "dual", "actor", 5),
        ("orac-iqn", "implicit", "optimistic", 5),
        ("wcsac-iqn", "implicit", "actor", 5),
        ("orac-lin", "dual", "optimistic", 5),
        ("wcsac-lin", "dual", "actor", 5),
        ("sac-lag", "scalar", "actor", 1),
        ("sac", "scalar", "actor", 1),
    ],
)
def test_agents_differ_in_risk_form_and_behaviour_alone(algo, form, behaviour, members):
    config = presets.preset(algo, "orac/SafetyPointGoal1-v0")
    agent = config.agent
    assert (agent.risk_form, agent.behaviour) == (form, behaviour)
    assert agent.num_cost_critics == members and config.algo == algo
    assert bool(config.constraints) == (algo != "sac")
    base = presets.safety_gym().agent
    changes = dict(risk_form=form, behaviour=behaviour, num_cost_critics=members)
    assert agent == dataclasses.replace(base, **changes)


def test_presets_follow_the_environment_and_an_unknown_one_gets_a_general_one():
    goal = presets.preset("orac", "SafetyCarButton2-v0")
    assert goal.env.id == "SafetyCarButton2-v0" and goal.constraints[0].limit == 10
    own = presets.preset("orac", "Pendulum-v1")
    assert own.agent.risk_form == "quantile" and own.env.params == ()
    maze = dict(presets.preset("wcsac", "orac/GuardedMaze-v0").env.params)
    assert maze == {"guard_probability": 0.15, "normalize_obs": True}


@pytest.mark.parametrize("name", ["SafetyReservoir-v0", "mine:SafetyPointGoal1-v0"])
def test_an_own_environment_is_not_taken_for_the_packages(name):
    assert presets.preset("orac", name).agent.risk_form == "quantile"
    assert not presets.has_paper_preset(name)


def test_every_id_of_the_package_has_its_settings():
    ids = [name for name in gymnasium.registry if "Safety" in name]
    assert len(ids) > 50
    assert [name for name in ids if not presets.has_paper_preset(name)] == []


def test_an_unknown_agent_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"got 'wscac'\. Did you mean 'wcsac'"):
        presets.preset("wscac", "orac/GuardedMaze-v0")


def test_kinds_of_presets_exist_where_they_are_promised():
    for env_id in ("orac/GuardedMaze-v0", "orac/CityLearn-v0", "SafetyPointGoal1-v0"):
        fast = presets.preset("orac", env_id, "fast")
        assert fast.agent.follows_episodes and fast.agent.risk_form == "quantile"
        assert presets.preset("orac", env_id) == presets.preset("orac", env_id, "paper")
        general = presets.preset("orac", env_id, "general")
        assert general.agent.normalize_rewards
        assert general.constraints == fast.constraints
    assert presets.preset("orac", "Pendulum-v1", "general").agent.follows_episodes
    with pytest.raises(ValueError, match="Use the preset 'general'"):
        presets.preset("orac", "Pendulum-v1", "fast")
    with pytest.raises(ValueError, match="Did you mean 'fast'"):
        presets.preset("orac", "Pendulum-v1", "fats")


@pytest.mark.parametrize("env_id", ["orac/GuardedMaze-v1", "orac/CityLern-v0"])
def test_an_id_of_ours_that_does_not_exist_has_no_preset(env_id):
    with pytest.raises(ValueError, match=f"got '{env_id}'. Did you mean 'orac/"):
        presets.preset("orac", env_id)


def test_every_preset_goes_by_its_own_name():
    for algo in presets.ALGORITHMS:
        for env_id in ("orac/GuardedMaze-v0", "orac/CityLearn-v0", "Pendulum-v1"):
            presets.check_algorithm(presets.preset(algo, env_id))


@pytest.mark.parametrize(
    ("algo", "changes", "text"),
    [
        ("orak", {}, "Did you mean 'orac'"),
        (
            "orac",
            {"behaviour": "actor"},
            "'quantile' and 'actor', which belong to algo 'wcsac'",
        ),
        (
            "wcsac-iqn",
            {"risk_form": "dual"},
            "which belong to algo 'wcsac-lin'. Choose the agent",
        ),
        (
            "sac-lag",
            {"risk_form": "scalar"},
            "and 'optimistic', which belong to algo 'orac'",
        ),
        ("sac", {"risk_form": "scalar", "behaviour": "actor"}, "Use algo 'sac-lag'"),
    ],
)
def test_a_config_under_the_name_of_another_agent_is_refused(algo, changes, text):
    base = presets.preset("orac", "Pendulum-v1")
    if algo.startswith("wcsac"):
        changes = {"behaviour": "actor", **changes}
    agent = dataclasses.replace(base.agent, **changes)
    config = dataclasses.replace(base, algo=algo, agent=agent)
    with pytest.raises(ValueError, match=text):
        presets.check_algorithm(config)


@pytest.mark.parametrize(
    "name", ["", "a,b", "a/b", 'a"b', "a\nb", " a", "a ", "=1+1", "a\tb"]
)
def test_a_constraint_has_a_name_that_can_head_a_column(name):
    with pytest.raises(ValueError, match="It is used in the names of columns"):
        Constraint(name)


def test_constraints_may_be_named_in_any_language():
    for name in ("cost", "cost_hazards", "Käfer 2", "battery.wear", "x-1"):
        assert Constraint(name).name == name


def test_some_environment_is_left_to_explore():
    training = TrainingConfig(num_envs=4, deployed_envs=3)
    assert Config(training=training).training.deployed_envs == 3
    with pytest.raises(ValueError, match=r"one of the 4 environments .* got 4"):
        Config(training=dataclasses.replace(training, deployed_envs=4))
    with pytest.raises(ValueError, match=r"one of the 1 environments .* got 2"):
        Config(training=TrainingConfig(num_envs=1, deployed_envs=2))


def test_a_scalar_critic_refuses_a_measure_that_it_cannot_learn():
    with pytest.raises(
        ValueError, match="learns only the mean of a cost, got risk 'wa"
    ):
        Config(
            agent=AgentConfig(risk_form="scalar"),
            constraints=(Constraint(risk="wang", risk_parameter=0.5),),
        )


def test_the_nearest_name_is_found_whatever_its_case():
    with pytest.raises(ValueError, match="Did you mean 'wcsac'"):
        presets.preset("WCSAC", "orac/GuardedMaze-v0")
    with pytest.raises(ValueError, match="Did you mean 'dual'"):
        AgentConfig(risk_form="DUAL")


def test_a_multiplier_that_follows_episodes_starts_between_floor_and_cap():
    with pytest.raises(ValueError, match=r"at least multiplier\.floor \(2\), got 1"):
        MultiplierConfig(follows="episodes", initial=1.0, floor=2.0)
    MultiplierConfig(follows="critics", initial=0.0, floor=2.0)


def test_centring_needs_discounts_below_one():
    with pytest.raises(ValueError, match=r"centre needs discounts below 1"):
        AgentConfig(centre=True, cost_discount=1.0)


def test_centring_and_the_dual_form_exclude_each_other():
    with pytest.raises(ValueError, match=r"does not work with agent.risk_form 'dual'"):
        AgentConfig(centre=True, risk_form="dual")
    fast = presets.preset("orac-lin", "orac/SafetyPointGoal1-v0", "fast")
    assert (fast.agent.risk_form, fast.agent.centre) == ("dual", False)
    assert presets.preset("orac", "orac/SafetyPointGoal1-v0", "fast").agent.centre


def test_a_penalty_tail_needs_a_multiplier_that_follows_episodes():
    with pytest.raises(
        ValueError, match=r"penalty_tail needs .* 'episodes', got 'crit"
    ):
        AgentConfig(penalty_tail=0.5)
