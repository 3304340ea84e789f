"""The commands `orac doctor`, `orac agents` and `orac envs`.

They list the packages that are installed or missing, the agents and the environments.
"""

import argparse
import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import gymnasium

from orac import envs
from orac.config import presets
from orac.envs.safety import INSTALL, missing

REQUIRED = (
    "jax",
    "jaxlib",
    "optax",
    "numpy",
    "scipy",
    "gymnasium",
    "jaxtyping",
    "rich",
)

EXTRAS = {
    "plots": (("matplotlib", "PIL"), "figures"),
    "report": (("plotly",), "the HTML report"),
    "video": (("imageio", "imageio_ffmpeg"), "MP4 films"),
    "tensorboard": (("tensorboardX",), "TensorBoard events"),
    "onnx": (("onnx",), "policies as ONNX files"),
    "onnx-encoder": (("jax2onnx",), "policies with an encoder as ONNX files"),
    "stablehlo": (("flatbuffers",), "policies as StableHLO files"),
    # `orac.envs.safety.missing` finds the missing modules of this extra.
    "safety": ((), "Safety-Gymnasium"),
    "brax": (("brax",), "environments of Brax"),
    "playground": (("mujoco_playground",), "environments of MuJoCo Playground"),
    "tune": (("optuna",), "tuning"),
    "ray": (("ray",), "clusters"),
    "wandb": (("wandb",), "Weights & Biases"),
    "mlflow": (("mlflow",), "MLflow"),
}
"""The optional extras: the modules that each needs, and what it is for."""


def run_doctor(options: argparse.Namespace) -> int:
    """Print a table of packages, and how to install each extra that is missing."""
    import jax

    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(f"JAX runs on {', '.join(str(device) for device in jax.devices())}\n")
    for name in REQUIRED:
        print(f"  {name:<12} {installed_version(name)}")
    print()
    for extra, (modules, purpose) in EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        install = f'pip install "orac-rl[{extra}]"'
        if extra == "safety":
            absent, install = [*missing()], INSTALL
        if absent:
            print(f"  {extra:<12} missing ({', '.join(absent)}): {purpose}")
            print(textwrap.indent(install, " " * 15))
        else:
            print(f"  {extra:<12} ready: {purpose}")
    return 0


def installed_version(name: str) -> str:
    """Return the version of a package or, if it is missing, how to install it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return f"missing: pip install {name}"


def run_agents(options: argparse.Namespace) -> int:
    """List the agents with their risk form and behaviour policy, and the presets."""
    for name, algorithm in presets.ALGORITHMS.items():
        form = algorithm.risk_form or "by env"
        print(
            f"{name:<10} risk {form:<9} behaviour {algorithm.behaviour:<11} "
            f"{algorithm.description}"
        )
    print("\npresets (--preset):")
    for name, description in presets.PRESETS.items():
        print(f"{name:<10} {description}")
    return 0


def run_envs(options: argparse.Namespace) -> int:
    """List the environments of this package."""
    for env_id in sorted(gymnasium.registry):
        if env_id.startswith("orac/"):
            kind = "on device" if envs.is_jax_env(env_id) else "on the host"
            print(f"{env_id:<32} {kind}")
    print(
        "You can also use the id of any other Gymnasium environment with continuous actions. "
        "Its cost is info['cost'] or the result of --cost-fn. Environments of Brax and MuJoCo "
        "Playground work too, such as brax:halfcheetah or playground:CartpoleBalance."
    )
    return 0
