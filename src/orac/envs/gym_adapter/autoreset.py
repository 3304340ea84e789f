"""What a Gymnasium vector environment's step reached, whichever way it restarts.

Gymnasium has three autoreset modes. SAME_STEP hands out the next episode's first
observation and hides the last one, and the last info, under `final_obs` and `final_info`;
NEXT_STEP spends a call on the reset, in which no step is taken; DISABLED leaves the reset
to us. This room undoes the differences. It knows nothing of costs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate
from jaxtyping import Float32

from orac.envs.gym_adapter.spaces import Flatten, make_flatten

AnyVector = VectorEnv[Any, Any, Any]
Observations = Float32[np.ndarray, "batch observation"]


class Outcome(NamedTuple):
    """One call of a vector environment's step, as it came back."""

    observation: Any
    reward: Any
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]
    cost: Any
    """The third of six step values; None when there were five."""
    ended: np.ndarray
    any_ended: bool


def unpack(result: tuple[Any, ...], name: str) -> Outcome:
    """Five step values, or six with the costs after the rewards."""
    if len(result) == 5:
        observation, reward, terminated, truncated, infos = result
        cost = None
    elif len(result) == 6:
        observation, reward, cost, terminated, truncated, infos = result
    else:
        raise ValueError(
            f"{name}.step returned {len(result)} values, but 5 (observations, rewards, "
            "terminations, truncations, infos) or 6 (with costs after rewards) were "
            "expected."
        )
    terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
    ended = terminated | truncated
    # Counting is several times faster than `any` on arrays this small.
    some = bool(np.count_nonzero(ended))
    return Outcome(observation, reward, terminated, truncated, infos, cost, ended, some)


def autoreset_mode(vector: AnyVector, name: str) -> AutoresetMode:
    """The mode a vector environment declares; a guess could corrupt last observations."""
    mode = vector.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(getattr(mode, "value", mode))
    except ValueError:
        raise ValueError(
            f"{name} does not say how it restarts ended episodes "
            f"(metadata['autoreset_mode'] is {mode!r}). Set it to one of "
            "gymnasium.vector.AutoresetMode, as Gymnasium's own vector environments do."
        ) from None


def reset_seeds(vector: AnyVector, seed: int) -> Any:
    """Independent seeds for the sub-environments, where they can be given one by one.

    Choice: Gymnasium gives sub-environment i the seed `seed + i`; runs with the seeds 0
    and 1 would then share all but one of their environments' seeds. A vector environment
    of another kind says that it takes a list of seeds by `takes_seeds = True`.
    """
    bare = vector.unwrapped
    takes_seeds = getattr(bare, "takes_seeds", False) is True
    if not takes_seeds and not isinstance(bare, SyncVectorEnv | AsyncVectorEnv):
        return seed
    words = np.random.SeedSequence(seed).generate_state(vector.num_envs)
    return [int(word) for word in words]


class Flattener(NamedTuple):
    """How the observations of a vector environment become flat float32 ones."""

    size: int
    one: Flatten
    batch: Callable[[Any], Observations]


def make_flattener(vector: AnyVector, name: str) -> Flattener:
    """Boxes are reshaped at once; other spaces go row by row through Gymnasium."""
    space = vector.single_observation_space
    size, flatten = make_flatten(space, name)
    expected = (vector.num_envs, *(space.shape or ()))

    def flatten_boxes(observation: Any) -> Observations:
        array = np.asarray(observation)
        if array.shape != expected:
            raise ValueError(
                f"{name} returned observations of shape {array.shape}, but its spaces say "
                f"{expected}. Make the two agree."
            )
        # A copy, always: a vector environment may write its next batch into this one.
        return array.astype(np.float32).reshape(vector.num_envs, size)

    def flatten_rows(observation: Any) -> Observations:
        return np.stack([flatten(row) for row in rows_of(vector, observation)])

    is_box = isinstance(space, Box)
    return Flattener(size, flatten, flatten_boxes if is_box else flatten_rows)


def rows_of(vector: AnyVector, observation: Any) -> list[Any]:
    """A batch of observations as each environment would have returned its own."""
    return list(iterate(vector.observation_space, observation))


def restart(
    vector: AnyVector, mode: AutoresetMode, outcome: Outcome, flattener: Flattener
) -> tuple[Any, Observations, Observations]:
    """Begin anew where episodes ended: what to act on next, and what was reached.

    Returns the batch to act on, as it came and flat, and the true next observations. Under
    NEXT_STEP the restart is the environment's own next call, and nothing is done here.
    """
    raw, ended = outcome.observation, outcome.ended
    flat = flattener.batch(raw)
    if mode is AutoresetMode.NEXT_STEP or not outcome.any_ended:
        return raw, flat, flat
    if mode is AutoresetMode.DISABLED:
        raw, _ = vector.reset(options={"reset_mask": ended.copy()})
        return raw, np.where(ended[:, None], flattener.batch(raw), flat), flat
    reached = flat.copy()
    for row, observation in final_observations(outcome).items():
        reached[row] = flattener.one(observation)
    return raw, flat, reached


def final_observations(outcome: Outcome) -> dict[int, Any]:
    """The last observations of the episodes that ended under SAME_STEP, by row."""
    final = outcome.infos.get("final_obs")
    rows = [int(row) for row in np.flatnonzero(outcome.ended)]
    found = {} if final is None else {row: _row(final, row) for row in rows}
    if final is None or any(observation is None for observation in found.values()):
        raise ValueError(
            "The vector environment ended an episode without infos['final_obs'], which "
            "SAME_STEP autoreset promises. Correct its metadata['autoreset_mode'] or "
            "its infos."
        )
    return found


def _row(column: Any, row: int) -> Any:
    """One environment's observation out of a batch, or out of an array of observations."""
    if isinstance(column, dict):
        return {key: _row(part, row) for key, part in column.items()}
    if isinstance(column, tuple):
        return tuple(_row(part, row) for part in column)
    return column[row]
