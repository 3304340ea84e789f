"""Tests of encoders in front of actor and critics: shapes, gradients and checks."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from helpers import encoder_examples as examples
from helpers.agent_examples import make_batch, small_config
from orac.config import serialization
from orac.config.schema import Encoder
from orac.core import agent as agent_core
from orac.core.cost_models import Context, make_problem, pivot_location
from orac.core.encoders import Encoded, encode, feature_size, unflatten
from orac.core.risk_forms import make_learner
from orac.envs.gym_adapter.metadata import observation_structure

SIZE = int(np.prod(examples.SHAPE))
STRUCTURE = json.dumps({"kind": "box", "shape": [*examples.SHAPE]})
CONVOLUTION = Encoder("examples:CONVOLUTION", examples.init, examples.apply)
ALGORITHMS = ("orac", "orac-lin", "sac-lag")


def learner_with(algo, encoder=CONVOLUTION, **changes):
    config = small_config(algo, encoder=encoder, **changes)
    problem = make_problem(
        SIZE, 2, config.constraints, 10, 0.99, observation_structure=STRUCTURE
    )
    return make_learner(problem, config.agent)


def new_agent(learner):
    return jax.jit(lambda key: agent_core.init(key, learner))(jax.random.key(0))


def batch_of_images():
    batch = make_batch(small_config("sac-lag"))
    images = jax.random.uniform(jax.random.key(1), (2, len(batch.reward), SIZE))
    seen, following = 255 * images
    return batch._replace(observation=seen, next_observation=following)


def encoders_in(tree):
    found = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Encoded))
    return [x.encoder for x in found if isinstance(x, Encoded)]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_network_has_its_own_parameters_of_the_encoder(algo):
    learner = learner_with(algo, actor_average=0.9)
    agent = new_agent(learner)
    count = learner.config.num_cost_critics
    for networks, members in (
        (agent.actor.params, 1),
        (agent.actor_average, 1),
        (agent.reward_critics.params, 2),
        (agent.target_reward_critics, 2),
        (agent.cost_critics.params, count),
        (agent.target_cost_critics, count),
    ):
        assert len(encoders_in(networks)) == members
    trained = (agent.actor, agent.reward_critics, agent.cost_critics)
    filters = [x["filters"] for x in encoders_in([one.params for one in trained])]
    for i, one in enumerate(filters):
        assert one.shape == (3, 3, 2, 3) and one.dtype == jnp.float32
        assert not any(np.array_equal(one, other) for other in filters[:i])
    assert agent.actor.params.encoder["bias"].dtype == jnp.float32


def test_features_come_before_the_pivot_and_the_action():
    learner = learner_with("orac-lin")
    agent = new_agent(learner)
    critic = agent.reward_critics.params[0]
    rows = jax.random.normal(jax.random.key(2), (4, SIZE + 1 + 2))
    network, inputs = encode(critic, rows)
    assert network[0].weight.shape[0] == inputs.shape[1] == examples.NUM_FEATURES + 3
    np.testing.assert_array_equal(inputs[:, -3:], rows[:, -3:])
    for row, features in zip(rows, inputs, strict=True):
        image = row[:SIZE].reshape(examples.SHAPE)
        wanted = examples.apply(critic.encoder, image)
        np.testing.assert_allclose(features[:-3], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_update_moves_every_encoder_and_its_targets(algo):
    learner = learner_with(algo, actor_average=0.5, target_every=1, n_step=1)
    agent = new_agent(learner)
    update = jax.jit(partial(agent_core.update, learner=learner))
    new, metrics = update(jax.random.key(3), agent, batch_of_images())
    before, after = encoders_in(agent), encoders_in(new)
    assert len(before) == len(after) > 0
    for old, moved in zip(before, after, strict=True):
        for name in old:
            assert not np.array_equal(old[name], moved[name]), name
    assert all(np.isfinite(value).all() for value in metrics.values())


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_policy_and_its_exploration_depend_on_the_image(algo):
    learner = learner_with(algo)
    agent = new_agent(learner)
    images = batch_of_images().observation
    context = Context.start(len(images), pivot_location(agent.pivot.params))
    act = jax.jit(partial(agent_core.act, learner=learner))
    action, _ = act(jax.random.key(4), agent, images, context, 2.0)
    assert action.shape == (len(images), 2) and np.isfinite(action).all()
    policy = agent_core.deployed_policy(agent)
    mean = agent_core.mean_action(policy, images, learner)
    assert (np.asarray(mean).std(axis=0) > 1e-4).all()


def test_observations_are_scaled_before_the_encoder():
    learner = learner_with("sac-lag", normalize_observations=True)
    agent = new_agent(learner)
    stats = agent.observation_stats._replace(
        seen=jnp.int32(9), mean=jnp.full(SIZE, 100.0), variance=jnp.full(SIZE, 2500.0)
    )
    policy = agent_core.deployed_policy(agent)._replace(observation_stats=stats)
    images = batch_of_images().observation
    raw = learner._replace(config=replace(learner.config, normalize_observations=False))
    np.testing.assert_allclose(
        agent_core.mean_action(policy, images, learner),
        agent_core.mean_action(policy, (images - 100) / 50, raw),
        atol=1e-5,
    )


def test_without_an_encoder_the_networks_are_plain_layers():
    agent = new_agent(learner_with("orac", encoder=None))
    assert not encoders_in(agent)
    assert agent.actor.params[0].weight.shape[0] == SIZE


SPACES = {
    "vector": spaces.Box(-1, 1, (4,)),
    "image": spaces.Box(0, 255, (3, 2, 1), np.uint8),
    "dict": spaces.Dict(
        camera=spaces.Box(0, 255, (3, 2), np.uint8),
        gear=spaces.Discrete(3),
        inner=spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, ()))),
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_an_encoder_receives_an_observation_in_its_original_shape(name):
    space = SPACES[name]
    space.seed(0)
    observation = space.sample()
    flat = np.asarray(flatten(space, observation), np.float32)
    found = unflatten(jnp.asarray(flat), observation_structure(space))
    if name == "dict":
        gear = np.eye(3)[observation["gear"]]
        observation = {**observation, "gear": gear}
    jax.tree.map(np.testing.assert_array_equal, found, observation)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    shapes = []

    def init(key, shape):
        shapes.append(shape)
        return ()

    def apply(params, seen):
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(seen)])

    encoder = Encoder(name, init, apply)
    structure = observation_structure(space)
    assert feature_size(encoder, flat.size, structure) == flat.size
    wanted = {
        "vector": (4,),
        "image": (3, 2, 1),
        "dict": {"camera": (3, 2), "gear": (3,), "inner": ((2,), ())},
    }
    assert shapes == [wanted[name]]


@pytest.mark.parametrize(
    ("init", "apply", "message"),
    [
        (
            examples.init,
            examples.as_matrix,
            r"a vector .* got an array of shape \(2, 30\)",
        ),
        (examples.init, examples.as_dict, "a vector .* got a dict"),
        (
            examples.init,
            examples.as_integers,
            "float features .* got an array of int32",
        ),
        (
            examples.init,
            examples.with_a_fault,
            r"apply\(params, observation\) fails for an observation of shape "
            r"\(6, 5, 2\): TypeError: ",
        ),
        (
            examples.apply,
            examples.apply,
            r"init\(key, observation_shape\) fails for an observation of shape",
        ),
        (
            examples.integer_parameters,
            examples.apply,
            "must be arrays of floats, which can be trained, got int32",
        ),
    ],
)
def test_functions_that_are_no_encoder_are_refused(init, apply, message):
    learner = learner_with("sac-lag", Encoder("mine:PAIR", init, apply))
    with pytest.raises(ValueError, match=f"encoder 'mine:PAIR': .*{message}"):
        new_agent(learner)


def test_a_name_that_was_not_imported_is_refused():
    learner = learner_with("sac-lag", "mine:PAIR")
    with pytest.raises(ValueError, match="'mine:PAIR' must be imported first"):
        new_agent(learner)


def test_a_file_has_only_the_name_of_an_encoder():
    config = small_config("orac", encoder=CONVOLUTION)
    plain = serialization.to_dict(config)
    assert plain["agent"]["encoder"] == CONVOLUTION.name
    assert serialization.parse(serialization.dump(config)).agent.encoder == (
        CONVOLUTION.name
    )
    with pytest.raises(ValueError, match=r"agent\.encoder must be text"):
        serialization.from_dict({"agent": {"encoder": ["a", "b"]}})
    # The annotations, which users do not check, would refuse a pair first.
    object.__setattr__(config.agent, "encoder", (examples.init, examples.apply))
    with pytest.raises(ValueError, match=r"you can pass the pair as encoder="):
        config.agent.__post_init__()
