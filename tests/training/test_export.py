"""Tests of exported policies, run by the programs that read these files."""

import sys
import types

import gymnasium
import jax
import numpy as np
import onnxruntime
import pytest
from jax import export as jax_export

import orac
from helpers import encoder_examples
from orac.core.normalization import ObservationStats

SMALL = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
}
PLAIN = {"agent.layer_norm": False, "agent.normalize_observations": False}
NORMED = {"agent.layer_norm": True, "agent.normalize_observations": True}
SAMPLED = {**NORMED, "agent.deployed_action": "sample"}
CASES = {
    "plain": ("orac", PLAIN),
    "normed": ("orac", NORMED),
    "pivot": ("orac-lin", NORMED),
    "sampled": ("orac", SAMPLED),
}


class Valves(gymnasium.Env):
    """Four observations and three actions, each with its own range."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (4,), np.float32)
    action_space = gymnasium.spaces.Box(
        np.array([-1.0, 0.0, 20.0], np.float32), np.array([1.0, 5.0, 30.0], np.float32)
    )
    episode_length = 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        seen = self.np_random.normal(size=4).astype(np.float32)
        return seen, 0.0, False, False, {"cost": 1.0}


def make(algo, settings):
    """Return an agent whose arrays are all random, as if it had been trained."""
    agent = orac.make_agent(
        algo,
        Valves,
        cost_limit=2.0,
        tail=0.5,
        settings={**SMALL, **settings},
    )
    generator = np.random.default_rng(1)

    def shake(tree):
        return jax.tree.map(
            lambda x: x + generator.normal(0, 0.3, x.shape).astype(np.float32), tree
        )

    state = agent.runner.state.agent
    stats = ObservationStats(
        np.int32(1000),
        np.array([50, -3, 0, 1], np.float32),
        np.array([400, 1, 1e-4, 9], np.float32),
    )
    state = state._replace(
        actor=state.actor._replace(params=shake(state.actor.params)),
        actor_average=shake(state.actor_average),
        pivot=state.pivot._replace(params=shake(state.pivot.params)),
        observation_stats=stats,
    )
    agent.runner.state = agent.runner.state._replace(agent=state, candidates=())
    return agent


@pytest.fixture(scope="module", params=CASES)
def agent(request):
    algo, settings = CASES[request.param]
    return make(algo, settings)


@pytest.fixture(scope="module")
def plain():
    return make(*CASES["plain"])


def cases_of(agent, batch):
    """Return observations, some of them far out, the noise, and the agent's actions."""
    observations = np.random.default_rng(2).normal(size=(batch, 4)) * [30, 3, 1, 100]
    observations = observations.astype(np.float32)
    noise = np.asarray(jax.random.normal(jax.random.key(7), (batch, 3)))
    actions, _ = agent.predict(observations, seed=7)
    inputs = {"observation": observations}
    if agent.config.agent.deployed_action == "sample":
        inputs["noise"] = noise
    return inputs, actions


def run_npz(path, inputs):
    return orac.policy.load(path)(inputs["observation"], inputs.get("noise"))


def run_onnx(path, inputs):
    session = onnxruntime.InferenceSession(path)
    assert {one.name for one in session.get_inputs()} == set(inputs)
    (action,) = session.run(["action"], inputs)
    return action


def run_stablehlo(path, inputs):
    exported = jax_export.deserialize(bytearray(path.read_bytes()))
    assert {"cpu", "cuda", "tpu"} <= {*exported.platforms}
    return np.asarray(exported.call(*inputs.values()))


RUN = {".npz": run_npz, ".onnx": run_onnx, ".stablehlo": run_stablehlo}


@pytest.mark.parametrize("ending", RUN)
def test_an_exported_policy_acts_as_the_agent_predicts(agent, ending, tmp_path):
    path = tmp_path / f"policy{ending}"
    agent.export(path)
    for batch in (1000, 1):
        inputs, wanted = cases_of(agent, batch)
        found = RUN[ending](path, inputs)
        assert found.shape == (batch, 3)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-5)
    inputs, wanted = cases_of(agent, 1000)
    # The comparison means something only if the actions differ from each other.
    assert (wanted.std(axis=0) > [0.1, 0.3, 0.5]).all()


def test_an_onnx_file_says_what_it_is_and_which_versions_it_needs(plain, tmp_path):
    import onnx

    plain.export(tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    about = {prop.key: prop.value for prop in model.metadata_props}
    assert about == {"agent": "orac", "env": "Valves", "action": "mean"}
    assert model.ir_version == 8 and [x.version for x in model.opset_import] == [17]


@pytest.mark.parametrize("name", ["policy.pt", "policy", "policy.ONNX"])
def test_another_ending_is_refused(plain, name, tmp_path):
    with pytest.raises(
        ValueError, match=r"must end in \.npz, \.onnx, \.stablehlo, got .*policy"
    ):
        plain.export(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", RUN)
def test_a_file_that_exists_is_replaced_only_on_request(plain, ending, tmp_path):
    path = tmp_path / f"policy{ending}"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match=r"already exists\. Choose another name"):
        plain.export(path)
    assert path.read_text() == "precious"
    plain.export(path, overwrite=True)
    inputs, wanted = cases_of(plain, 10)
    np.testing.assert_allclose(RUN[ending](path, inputs), wanted, atol=3e-5)


@pytest.fixture(scope="module")
def encoded():
    """An agent that sees images; one of its random arrays is a convolution."""
    agent = orac.ORAC(
        encoder_examples.Screen,
        cost_limit=2.0,
        tail=0.5,
        encoder=encoder_examples.CONVOLUTION,
        settings=SMALL,
    )
    state = agent.runner.state.agent
    state = state._replace(
        actor_average=jax.tree.map(lambda x: 2 * x, state.actor.params)
    )
    agent.runner.state = agent.runner.state._replace(agent=state, candidates=())
    return agent


def images_of(agent, batch):
    """Return random images, the same as inputs of an exported policy, and the actions."""
    shape = (batch, *encoder_examples.SHAPE)
    images = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    actions, _ = agent.predict(images)
    return {"observation": images.reshape(batch, -1).astype(np.float32)}, actions


@pytest.mark.parametrize(
    "ending", [".stablehlo", pytest.param(".onnx", marks=pytest.mark.slow)]
)
def test_a_policy_with_an_encoder_acts_as_the_agent_predicts(encoded, ending, tmp_path):
    path = tmp_path / f"policy{ending}"
    encoded.export(path)
    for batch in (100, 1):
        inputs, wanted = images_of(encoded, batch)
        np.testing.assert_allclose(RUN[ending](path, inputs), wanted, atol=1e-5)
    assert (images_of(encoded, 100)[1].std(axis=0) > 0.02).all()


def test_an_npz_file_cannot_contain_an_encoder(encoded, tmp_path):
    with pytest.raises(ValueError, match=r"Export it as \.onnx or \.stablehlo"):
        encoded.export(tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


def test_an_encoder_in_onnx_needs_its_converter(encoded, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[onnx-encoder\]"'):
        encoded.export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda *rest, **options: 1 / 0, "cannot be converted to ONNX .ZeroDivision"),
        (None, "gives other actions than the policy"),
    ],
)
def test_a_wrong_conversion_to_onnx_is_found(
    encoded, convert, message, tmp_path, monkeypatch
):
    import onnx

    def all_zeros(*rest, **options):
        """Return a model of the right inputs and outputs that ignores the observation."""
        kind, helper = onnx.TensorProto.FLOAT, onnx.helper
        size = int(np.prod(encoder_examples.SHAPE))
        weight = onnx.numpy_helper.from_array(np.zeros((size, 2), np.float32), "weight")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["observation", "weight"], ["action"])],
            "policy",
            [helper.make_tensor_value_info("observation", kind, ["batch", size])],
            [helper.make_tensor_value_info("action", kind, ["batch", 2])],
            [weight],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])

    converter = types.SimpleNamespace(to_onnx=convert or all_zeros)
    monkeypatch.setitem(sys.modules, "jax2onnx", converter)
    with pytest.raises(ValueError, match=message):
        encoded.export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ending", "package", "extra"),
    [(".onnx", "onnx", "onnx"), (".stablehlo", "flatbuffers", "stablehlo")],
)
def test_a_missing_package_is_named(
    plain, ending, package, extra, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ImportError, match=rf'needs {package}: pip install "orac-rl\[{extra}\]"'
    ):
        plain.export(tmp_path / f"policy{ending}")
    assert not list(tmp_path.iterdir())
