"""Experiment trackers, which record the metrics of a run: TensorBoard, W&B and MLflow.

The package of a tracker is imported only if the tracker is used.
"""

import hashlib
import importlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from orac.config import overrides
from orac.config.reading import read_text
from orac.config.validation import check_choice, import_extra, shown
from orac.runs.atomic_io import write_text


class Tracker(NamedTuple):
    """An open tracker."""

    log: Callable[[int, Mapping[str, Any]], None]
    """Takes an environment step and the metrics at this step."""
    close: Callable[[], None]


def check_trackers(names: Any) -> None:
    """Raise an error if a tracker is unknown or not installed.

    It is not an error if TensorBoard is not installed.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(
            f"trackers must be a list of names, such as ['tensorboard'], got {shown(names)}."
        )
    for name in names:
        check_choice("a tracker", name, TRACKERS)
        # TensorBoard is on by default, so a run continues without it.
        if name != "tensorboard":
            import_extra(f"Logging to {name}", name, name)


def open_trackers(
    names: Iterable[str],
    directory: Path,
    config: Mapping[str, Any],
    start_step: int = 0,
) -> list[Tracker]:
    """Open the named trackers for the run in `directory`, which continues at `start_step`.

    TensorBoard is left out if it is not installed.
    """
    check_trackers(names := tuple(names))
    opened = [TRACKERS[name](directory, config, start_step) for name in names]
    return [tracker for tracker in opened if tracker is not None]


def _open_tensorboard(directory: Path, config: Any, start_step: int) -> Tracker | None:
    """Open event files for TensorBoard; None if tensorboardX is not installed.

    If `start_step` is above 0, TensorBoard will ignore the entries that an interrupted process
    wrote after it.
    """
    if find_spec("tensorboardX") is None:
        logging.getLogger("orac").info(
            "No TensorBoard events are written. To get them, run pip install "
            "'orac-rl[tensorboard]'."
        )
        return None
    # The names of the writer's files contain the time in whole seconds. Without the suffix,
    # a quick resume would overwrite a file.
    writer = importlib.import_module("tensorboardX").SummaryWriter(
        str(directory / "tensorboard"),
        purge_step=start_step + 1 if start_step else None,
        filename_suffix=f".{start_step}",
    )

    def log(step: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, float(value), step)

    return Tracker(log, writer.close)


def _open_wandb(directory: Path, config: Mapping[str, Any], start_step: int) -> Tracker:
    """Start a W&B run, or continue the run whose id is the hash of this directory's path."""
    where = directory.resolve()
    run = importlib.import_module("wandb").init(
        project=os.environ.get("WANDB_PROJECT", "orac"),
        id=hashlib.sha256(str(where).encode()).hexdigest()[:16],
        name="/".join(where.parts[-4:]),
        dir=str(where),
        config=dict(config),
        resume="allow",
    )
    return Tracker(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def _open_mlflow(directory: Path, config: Any, start_step: int) -> Tracker:
    """Start an MLflow run, or continue the one whose id is in the run directory."""
    mlflow = importlib.import_module("mlflow")
    id_file = directory / "mlflow_run_id"
    known = read_text(id_file, 1000) if id_file.exists() else None
    name = "/".join(directory.resolve().parts[-4:])
    run = mlflow.start_run(run_id=known, run_name=None if known else name)
    if known is None:
        write_text(id_file, run.info.run_id)
        mlflow.log_params(overrides.flatten(config))

    def log(step: int, metrics: Mapping[str, Any]) -> None:
        # The server rejects names with other characters, such as brackets.
        named = {re.sub(r"[^\w\-. :/]", "_", k): float(v) for k, v in metrics.items()}
        mlflow.log_metrics(named, step=step)

    return Tracker(log, mlflow.end_run)


TRACKERS = {
    "tensorboard": _open_tensorboard,
    "wandb": _open_wandb,
    "mlflow": _open_mlflow,
}
