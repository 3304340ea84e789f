"""What is installed, what is missing, and the exact line that installs it."""

import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from orac.envs.safety import INSTALL, missing

NEEDED = ("jax", "jaxlib", "optax", "numpy", "scipy", "gymnasium", "jaxtyping", "rich")

EXTRAS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "plots": (("matplotlib", "PIL"), "figures", 'pip install "orac-rl[plots]"'),
    "report": (("plotly",), "the HTML report", 'pip install "orac-rl[report]"'),
    "video": (
        ("imageio", "imageio_ffmpeg"),
        "MP4 films",
        'pip install "orac-rl[video]"',
    ),
    "tensorboard": (
        ("tensorboardX",),
        "TensorBoard events",
        'pip install "orac-rl[tensorboard]"',
    ),
    # Its modules and its lines are known where it is used.
    "safety": ((), "Safety-Gymnasium", INSTALL),
    "ray": (("ray",), "clusters", 'pip install "orac-rl[ray]"'),
    "wandb": (("wandb",), "Weights & Biases", 'pip install "orac-rl[wandb]"'),
    "mlflow": (("mlflow",), "MLflow", 'pip install "orac-rl[mlflow]"'),
}


def diagnose() -> str:
    """A table of packages, and for each missing extra what it is for and how to get it."""
    import jax

    lines = [
        f"Python {platform.python_version()} on {platform.platform()}",
        f"JAX runs on {', '.join(str(device) for device in jax.devices())}",
        "",
        *(f"  {name:<12} {installed(name)}" for name in NEEDED),
        "",
    ]
    for extra, (modules, purpose, line) in EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        if extra == "safety":
            absent = list(missing())
        if absent:
            lines.append(f"  {extra:<12} missing ({', '.join(absent)}): {purpose}")
            lines.append(textwrap.indent(line, " " * 15))
        else:
            lines.append(f"  {extra:<12} ready: {purpose}")
    return "\n".join(lines)


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return f"missing: pip install {name}"
