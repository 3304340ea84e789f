"""Film an episode of a trained agent in any environment that renders frames."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from orac.config.schema import EnvConfig


def record(
    agent: Any, path: str | Path, seed: int = 0, frames_per_second: int = 20
) -> Path:
    """Write one episode of the policy's mean action as a .gif or .mp4."""
    path = check_film(path)
    frames = play(agent, seed)
    write(path, frames, frames_per_second)
    return path


def check_film(path: str | Path) -> Path:
    """Refuse what cannot be written before anything takes time; makes its directory."""
    path = Path(path)
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(
            f"a film is written as .gif or .mp4, got {path.name!r}. Name the file so."
        )
    import_imageio()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def import_imageio() -> Any:
    """imageio, or an error that says how to get it."""
    try:
        import imageio.v3 as imageio
    except ImportError as error:
        raise ImportError('films need imageio: pip install "orac-rl[video]"') from error
    return imageio


def play(agent: Any, seed: int) -> list[np.ndarray]:
    """The frames of one episode."""
    import gymnasium

    config = agent.config.env
    env = _make(config)
    observation, _ = env.reset(seed=seed)
    frames = [_frame(env)]
    # An environment may end no episode by itself; training cut them at this length.
    for _ in range(config.episode_length or agent.spec.episode_length):
        flat = gymnasium.spaces.flatten(env.observation_space, observation)
        action, _ = agent.predict(flat)
        shaped = np.reshape(action, env.action_space.shape or ())
        observation, _, terminated, truncated, _ = env.step(shaped)
        frames.append(_frame(env))
        if terminated or truncated:
            break
    env.close()
    return frames


def _make(config: EnvConfig) -> Any:
    """The environment of a run, with pictures."""
    import gymnasium

    try:
        with warnings.catch_warnings():
            # Of a mode that is not declared; if it draws none, that is said in full.
            warnings.filterwarnings("ignore", message=r".*initialised with render_mode")
            return gymnasium.make(
                config.id,
                render_mode="rgb_array",
                disable_env_checker=True,
                **dict(config.params),
            )
    except TypeError as error:
        # It was made before, with the same words but this one.
        raise _no_film(config.id) from error
    except gymnasium.error.Error as error:
        raise ValueError(f"{config.id} cannot be filmed: {error}") from error


def _frame(env: Any) -> np.ndarray:
    try:
        frame = np.asarray(env.render())
    except NotImplementedError as error:
        raise _no_film(env.spec.id) from error
    if frame.ndim != 3:
        raise _no_film(env.spec.id)
    return frame


def _no_film(name: str) -> ValueError:
    return ValueError(
        f"{name} cannot be filmed: let it take render_mode='rgb_array', name that in "
        "metadata['render_modes'], and return an image of (height, width, 3) from render()."
    )


def write(path: Path, frames: list[np.ndarray], frames_per_second: int) -> None:
    imageio = import_imageio()
    if path.suffix == ".gif":
        imageio.imwrite(
            path, np.stack(frames), duration=1000 / frames_per_second, loop=0
        )
        return
    with warnings.catch_warnings():
        # JAX warns of forks because its threads are not copied; the encoder needs none.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        imageio.imwrite(path, np.stack(frames), fps=frames_per_second, codec="libx264")
