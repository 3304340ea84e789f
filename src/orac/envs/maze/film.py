"""An episode of GuardedMaze as a film: a GIF, or an MP4 where ffmpeg is at hand.

Needs matplotlib and Pillow (the `plots` extra); MP4 needs the `video` extra.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from orac.envs.maze.drawing import Trajectory, draw_trajectory, guard_words, make_figure
from orac.envs.maze.env import GuardedMaze


def animate_episode(
    params: GuardedMaze,
    trajectory: Trajectory,
    path: str | Path,
    frames_per_second: float = 3.0,
) -> Path:
    """Write an episode as a film, a `.gif` or an `.mp4`; the last frame stays a while."""
    path = Path(path)
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(
            f"A film is written as .gif or .mp4, got {path.name!r}. Name the file so."
        )
    if not frames_per_second > 0:
        raise ValueError(f"frames_per_second must be above 0, got {frames_per_second}.")
    frames = [np.array(frame) for frame in _film(params, trajectory)]
    frames += [frames[-1]] * round(2 * frames_per_second)
    write = _write_gif if path.suffix == ".gif" else _write_mp4
    write(path, frames, frames_per_second)
    return path


def _film(params: GuardedMaze, whole: Trajectory) -> Iterator[np.ndarray]:
    """A frame for the start and one for each step."""
    figure, axes = make_figure(params, whole.label)
    canvas = figure.canvas
    for num_steps in range(len(whole.rewards) + 1):
        seen = whole._replace(
            positions=whole.positions[: num_steps + 1],
            rewards=whole.rewards[:num_steps],
            costs=whole.costs[:num_steps],
        )
        artists = draw_trajectory(axes, seen, 0)
        axes.set_xlabel(_caption(seen, whole), fontsize=11, loc="left", labelpad=8)
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3]
        for artist in artists:
            artist.remove()


def _caption(seen: Trajectory, whole: Trajectory) -> str:
    now = (
        f"step {len(seen.rewards)}     reward so far {seen.rewards.sum():+g}"
        f"     cost so far {seen.costs.sum():g}"
    )
    if len(seen.rewards) < len(whole.rewards):
        return f"{now}\n"
    return f"{now}\nThe episode is over{guard_words(whole)}."


def _write_gif(path: Path, frames: list[np.ndarray], frames_per_second: float) -> None:
    # Pillow comes with matplotlib, which has drawn the frames.
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(
        path,
        save_all=True,
        append_images=images[1:],
        duration=round(1000 / frames_per_second),
        loop=0,
    )


def _write_mp4(path: Path, frames: list[np.ndarray], frames_per_second: float) -> None:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 imageio finds it by itself
    except ImportError as error:
        raise ImportError(
            'Writing an .mp4 needs ffmpeg: pip install "orac-rl[video]". A .gif does not.'
        ) from error
    with warnings.catch_warnings():
        # JAX warns of any fork; this one becomes ffmpeg at once and shares no lock.
        warnings.filterwarnings("ignore", ".*os.fork", RuntimeWarning)
        imageio.mimwrite(path, [*frames], fps=frames_per_second, macro_block_size=2)
