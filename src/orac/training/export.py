"""Export a policy for deployment. The file extension selects the format.

| extension    | runs with                                 |
|--------------|-------------------------------------------|
| `.npz`       | `orac.policy`, which needs only NumPy      |
| `.onnx`      | ONNX Runtime and other ONNX programs       |
| `.stablehlo` | `jax.export.deserialize` on CPU, GPU, TPU  |

An exported policy takes unscaled observations as flat vectors and returns actions in the
environment's action space. The file contains the scaling of both. `orac.policy` also takes
observations as the environment returns them, such as dicts. A policy that samples its
actions takes standard normal numbers as a second input, `noise`. `orac.policy` draws these
numbers itself if they are not given.

If the policy has an encoder, the user's own functions must be exported too. StableHLO
supports the functions that JAX can compile for all platforms, ONNX supports those that the
package jax2onnx can convert, and `.npz` supports no encoders.
"""

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from orac.config.schema import Config
from orac.config.validation import import_extra
from orac.core import normalization
from orac.core.agent import PolicyState
from orac.core.encoders import Encoded
from orac.core.networks import EPSILON, LOG_STD_MAX, LOG_STD_MIN
from orac.envs.base import EnvSpec
from orac.runs.atomic_io import atomic_file
from orac.training.state import learner_for, noise_policy

FORMAT = 1
OPSET, IR_VERSION = 17, 8
"""Versions of ONNX's operators and file format, from 2022. They are the oldest with layer
norms, so that even old runtimes can run the file."""
ENCODER_OPSET = 18
"""Version of the operators for a policy with an encoder: the oldest that jax2onnx writes
correctly."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Platforms on which a StableHLO file runs, no matter where it was exported."""

Writer = Callable[[Config, EnvSpec, PolicyState, bool], bytes]
"""Function that returns the contents of a policy's file in one format."""


def export_policy(
    path: str | Path,
    config: Config,
    spec: EnvSpec,
    policy: PolicyState,
    uses_mean_action: bool,
    overwrite: bool = False,
) -> None:
    """Write the policy to a file whose extension selects the format.

    The file contains the weights, the scaling of observations, the constant input of the dual
    form (the pivot) and the bounds of the actions.
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        raise ValueError(
            f"the file of a policy must end in {', '.join(WRITERS)}, got {str(path)!r}. "
            "The extension selects the format; .npz needs only NumPy to run."
        )
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} already exists. Choose another name, or pass overwrite=True."
        )
    data = WRITERS[path.suffix](config, spec, policy, uses_mean_action)
    with atomic_file(path) as write:
        write(data)


def policy_arrays(
    config: Config, spec: EnvSpec, policy: PolicyState, uses_mean_action: bool
) -> dict[str, Any]:
    """Return all arrays that `orac.policy.Policy` needs, by name."""
    if isinstance(policy.actor, Encoded):
        raise ValueError(
            "a policy with an encoder cannot be exported as .npz, because such a file runs "
            "with NumPy, which cannot run the encoder. Export it as .onnx or .stablehlo."
        )
    arrays: dict[str, Any] = {
        "format": np.int64(FORMAT),
        "num_layers": np.int64(len(policy.actor)),
        "action_low": np.array(spec.action_low),
        "action_high": np.array(spec.action_high),
        "log_std_range": np.array([LOG_STD_MIN, LOG_STD_MAX]),
        "deterministic": np.array(uses_mean_action),
    }
    if spec.observation_structure:
        text = spec.observation_structure.encode()
        arrays["observation_structure"] = np.frombuffer(text, np.uint8)
    for i, layer in enumerate(policy.actor):
        for name, value in layer._asdict().items():
            if value is not None:
                arrays[f"layer{i}/{name}"] = np.asarray(value)
    if config.agent.normalize_observations:
        stats = policy.observation_stats
        variance = np.asarray(normalization.safe_variance(stats))
        arrays["observation_mean"] = np.asarray(stats.mean)
        arrays["observation_scale"] = 1 / np.sqrt(variance + 1e-6)
    costs = learner_for(spec, config).costs
    if costs.input_size > spec.observation_size:
        arrays["pivot"] = np.asarray(costs.evaluation_inputs(jnp.asarray(policy.pivot)))
    return arrays


def to_npz(
    config: Config, spec: EnvSpec, policy: PolicyState, uses_mean_action: bool
) -> bytes:
    """Return the policy as an .npz file for `orac.policy.load`."""
    stream = io.BytesIO()
    np.savez(stream, **policy_arrays(config, spec, policy, uses_mean_action))
    return stream.getvalue()


def to_onnx(
    config: Config, spec: EnvSpec, policy: PolicyState, uses_mean_action: bool
) -> bytes:
    """Return the policy as an ONNX model that takes batches of any size."""
    onnx = import_extra("An .onnx file", "onnx", "onnx", "onnx.numpy_helper")
    if isinstance(policy.actor, Encoded):
        model = convert_to_onnx(config, spec, policy, uses_mean_action)
        return finish_onnx(onnx, model, config, spec, uses_mean_action)
    arrays = policy_arrays(config, spec, policy, uses_mean_action)
    constants: dict[str, np.ndarray] = {}
    nodes: list[Any] = []

    def apply(
        kind: str, rows: str, *others: Any, name: str = "", **options: Any
    ) -> str:
        """Add an operation and return the name of its output.

        The operation takes `rows` and `others`. A string is the name of an earlier output, and
        anything else is a constant.
        """
        output = name or f"{kind.lower()}{len(nodes)}"
        inputs = [rows]
        for i, other in enumerate(others):
            if not isinstance(other, str):
                constants[f"{output}/{i}"] = np.asarray(other, np.float32)
                other = f"{output}/{i}"
            inputs.append(other)
        nodes.append(onnx.helper.make_node(kind, inputs, [output], output, **options))
        return output

    rows = "observation"
    if "observation_mean" in arrays:
        rows = apply("Sub", rows, arrays["observation_mean"])
        rows = apply("Mul", rows, arrays["observation_scale"])
        rows = apply("Clip", rows, -10.0, 10.0)
    *hidden, head = range(len(policy.actor))
    weights = [arrays[f"layer{i}/weight"] for i in (*hidden, head)]
    biases = [arrays[f"layer{i}/bias"] for i in (*hidden, head)]
    if "pivot" in arrays:
        # The pivot is a constant input, so its product with the weights is added to the
        # first bias.
        weights[0], constant = np.split(weights[0], [spec.observation_size])
        biases[0] = biases[0] + arrays["pivot"] @ constant
    for i in hidden:
        rows = apply("Gemm", rows, weights[i], biases[i])
        if f"layer{i}/scale" in arrays:
            norm = arrays[f"layer{i}/scale"], arrays[f"layer{i}/offset"]
            rows = apply("LayerNormalization", rows, *norm, axis=-1, epsilon=EPSILON)
        rows = apply("Relu", rows)
    mean_weight, raw_weight = np.split(weights[head], 2, axis=1)
    mean_bias, raw_bias = np.split(biases[head], 2)
    mean = apply("Gemm", rows, mean_weight, mean_bias)
    tensor, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    inputs = [tensor("observation", number, ["batch", spec.observation_size])]
    shape = ["batch", spec.action_size]
    if not uses_mean_action:
        inputs.append(tensor("noise", number, shape))
        raw = apply("Tanh", apply("Gemm", rows, raw_weight, raw_bias))
        middle, half = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
        std = apply("Exp", apply("Add", apply("Mul", raw, half), middle))
        mean = apply("Add", mean, apply("Mul", std, "noise"))
    low, high = arrays["action_low"], arrays["action_high"]
    unit = apply("Add", apply("Tanh", mean), 1.0)
    apply("Add", apply("Mul", unit, (high - low) / 2), low, name="action")
    initial = [onnx.numpy_helper.from_array(x, name) for name, x in constants.items()]
    outputs = [tensor("action", number, shape)]
    graph = onnx.helper.make_graph(nodes, "policy", inputs, outputs, initial)
    model = onnx.helper.make_model(
        graph,
        producer_name="orac",
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return finish_onnx(onnx, model, config, spec, uses_mean_action)


def finish_onnx(
    onnx: Any, model: Any, config: Config, spec: EnvSpec, uses_mean_action: bool
) -> bytes:
    """Add a description of the policy to an ONNX model, check it, and return its bytes."""
    about = {"agent": config.algo, "env": config.env.id}
    about["action"] = "mean" if uses_mean_action else "sampled with the noise"
    if spec.observation_structure:
        about["observation_structure"] = spec.observation_structure
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def to_stablehlo(
    config: Config, spec: EnvSpec, policy: PolicyState, uses_mean_action: bool
) -> bytes:
    """Return the policy as a serialised `jax.export.Exported` for any batch size."""
    import_extra("A .stablehlo file", "stablehlo", "flatbuffers")
    from jax import export

    (batch,) = export.symbolic_shape("batch")
    sizes = input_sizes(spec, uses_mean_action).values()
    inputs = [jax.ShapeDtypeStruct((batch, size), jnp.float32) for size in sizes]
    act = jax.jit(batched_policy(config, spec, policy))
    exported = export.export(act, platforms=PLATFORMS)(*inputs)
    return bytes(exported.serialize())


def input_sizes(spec: EnvSpec, uses_mean_action: bool) -> dict[str, int]:
    """Return the number of columns of each input of an exported policy, by name."""
    sizes = {"observation": spec.observation_size}
    return sizes if uses_mean_action else sizes | {"noise": spec.action_size}


def batched_policy(
    config: Config, spec: EnvSpec, policy: PolicyState
) -> Callable[..., Array]:
    """Return the policy as a function of observations and, if it samples, of noise.

    `vmap` adds the batch axis, because the batch size may be unknown when the function is
    converted.
    """
    act = noise_policy(spec, config)
    return jax.vmap(lambda *row: act(policy, *(x[None] for x in row))[0])


def convert_to_onnx(
    config: Config, spec: EnvSpec, policy: PolicyState, uses_mean_action: bool
) -> Any:
    """Return a policy with an encoder as an ONNX model, converted from JAX.

    The model is run and compared with the policy, because not every function of JAX is
    converted correctly.
    """
    what = "An .onnx file of a policy with an encoder"
    jax2onnx = import_extra(what, "onnx-encoder", "jax2onnx")
    onnxruntime = import_extra(what, "onnx-encoder", "onnxruntime")
    sizes = input_sizes(spec, uses_mean_action)
    act = batched_policy(config, spec, policy)
    generator = np.random.default_rng(0)
    rows = {
        name: generator.normal(size=(7, size)).astype(np.float32)
        for name, size in sizes.items()
    }
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        model = jax2onnx.to_onnx(
            act,
            [("batch", size) for size in sizes.values()],
            model_name="policy",
            opset=ENCODER_OPSET,
            input_names=[*sizes],
            output_names=["action"],
        )
        model.ir_version = IR_VERSION
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (found,) = session.run(["action"], rows)
    except Exception as error:  # Neither package has a base class for its errors.
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise ValueError(
            f"the encoder cannot be converted to ONNX ({type(error).__name__}: {reason}). "
            "Export the policy as .stablehlo, or write the encoder with other functions."
        ) from error
    finally:
        logger.setLevel(level)
    if not np.allclose(found, np.asarray(act(*rows.values())), rtol=1e-3, atol=1e-3):
        raise ValueError(
            "the encoder was converted to ONNX, but the model gives other actions than the "
            "policy. Export the policy as .stablehlo, or write the encoder with other "
            "functions."
        )
    return model


WRITERS: dict[str, Writer] = {
    ".npz": to_npz,
    ".onnx": to_onnx,
    ".stablehlo": to_stablehlo,
}
