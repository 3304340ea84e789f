"""What the agent's lidar reads: for each kind of thing, how near it is in each direction.

The package's pseudo-lidar for all things at once. Pure NumPy; knows nothing of MuJoCo.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


class Lidar:
    """A full circle of bins for each kind; a thing also shows in the two bins beside its own.

    A reading is 1 where a thing touches the agent and 0 from `max_distance` on; of several
    things the nearest shows. The neighbours read the share of the bin the thing has come
    towards them, so that readings change smoothly.
    """

    def __init__(
        self, counts: Sequence[int], num_bins: int, max_distance: float
    ) -> None:
        self._shape = (len(counts), num_bins)
        self._bin_size = 2 * np.pi / num_bins
        self._max_distance = max_distance
        # An angle just below zero is rounded to the full circle, one bin past the last.
        bins = np.arange(num_bins + 1) % num_bins
        near = np.stack([bins, (bins + 1) % num_bins, (bins - 1) % num_bins], axis=-1)
        first = num_bins * np.repeat(np.arange(len(counts)), counts)
        self._near, self._first = near, first[:, None]
        self._share = np.ones((len(first), 3))

    def read(
        self, offsets: Float[np.ndarray, "thing 3"], rotation: Float[np.ndarray, "3 3"]
    ) -> Float[np.ndarray, "kind bin"]:
        """Readings for things at `offsets` from the agent, ordered kind by kind."""
        ego = offsets @ rotation
        x, y = ego[:, 0], ego[:, 1]
        bins = np.arctan2(y, x) % (2 * np.pi) / self._bin_size
        index = bins.astype(np.intp)
        share = self._share
        np.subtract(bins, index, out=share[:, 1])
        np.subtract(1.0, share[:, 1], out=share[:, 2])
        nearness = (self._max_distance - np.hypot(x, y)) / self._max_distance
        readings = np.zeros(self._shape)
        # Things out of reach have a negative nearness, which loses against the zeros.
        np.maximum.at(
            readings.reshape(-1),
            (self._near[index] + self._first).reshape(-1),
            (share * nearness[:, None]).reshape(-1),
        )
        return readings
