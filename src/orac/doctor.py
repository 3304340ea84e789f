"""What is installed, what is missing, and the exact line that installs it."""

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

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
    "safety": (
        ("mujoco", "xmltodict", "safety_gymnasium"),
        "Safety-Gymnasium",
        'pip install "orac-rl[safety]" && '
        "pip install --no-deps safety-gymnasium==1.0.0",
    ),
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
        if absent:
            lines.append(f"  {extra:<12} missing ({', '.join(absent)}): {purpose}")
            lines.append(f"  {'':<12} {line}")
        else:
            lines.append(f"  {extra:<12} ready: {purpose}")
    return "\n".join(lines)


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return f"missing: pip install {name}"
