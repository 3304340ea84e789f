"""Indoor temperature: each building's two-layer LSTM over the last twelve hours.

Every hour, CityLearn runs the network over a window of twelve rows and starts it from the
hidden state in which the previous window ended, although the windows overlap. This module
does the same. A row holds the weather, the calendar, the occupants and the set point, which
come from the data, and two numbers that depend on actions: the delivered cooling, and the
temperature one hour earlier. Until the window is full, the temperature is the recorded one.

The first layer's products with the rows of the data are computed once, in NumPy. The two
layers run as one network of twice the width, in which the second layer is one row behind
the first. This takes about half as many steps, with one matrix product each. The four gates share
one tanh, because sigmoid(x) = (1 + tanh(x / 2)) / 2 and the weights include the division
by 2.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from orac.envs.citylearn.data import (
    load_arrays,
    load_constant,
    load_hourly,
    load_shared,
)

LOOKBACK = 12
WARM_UP = LOOKBACK + 1
"""Hour in which the network predicts for the first time. The agent controls the cooling
from the next hour on."""
WIDTH = 16
PERIODS = {"month": 12, "hour": 24, "day_type": 8}


class TemperatureModel(NamedTuple):
    """Weights of the network. The 128 gates are ordered by kind, then layer, then unit."""

    exogenous: np.ndarray
    """Contribution of the data and the biases to the gates, `(hour, building, 128)`."""
    cooling: np.ndarray
    """Weights from cooling to the gates, `(building, 128)`; zero for the second layer."""
    temperature: np.ndarray
    """Weights from temperature to the gates, like those from cooling."""
    recurrent: np.ndarray
    """Weights from the units to the gates of both layers, `(building, 32, 128)`."""
    readout: np.ndarray
    """Weights from the second layer's units to the temperature, `(building, 16)`."""
    readout_bias: np.ndarray
    minimum: np.ndarray
    """Cooling and temperature that are scaled to 0, `(2, building)`."""
    span: np.ndarray
    """Range of cooling and temperature that is scaled to [0, 1], `(2, building)`."""


class IndoorState(NamedTuple):
    """State of the temperature model. Histories are scaled, with the oldest hour first."""

    cooling: Float[Array, "lookback building"]
    temperature: Float[Array, "lookback building"]
    hidden: Float[Array, "building units"]
    """Outputs of the first layer's units, then of the second layer's."""
    cell: Float[Array, "building units"]


@cache
def load_model(buildings: tuple[int, ...]) -> TemperatureModel:
    """Return the weights of the chosen buildings, arranged for `run_window`."""

    def weights(name: str) -> np.ndarray:
        return load_constant(f"weights/{name}", buildings)

    names = list(load_arrays()["model/inputs"][0])
    varied = [names.index("cooling_demand"), names.index("indoor_dry_bulb_temperature")]
    minimum = load_constant("model/minimum", buildings).astype(np.float32)
    span = load_constant("model/maximum", buildings).astype(np.float32) - minimum
    rows = np.stack([_load_input(name, buildings) for name in names], axis=-1)
    rows = (rows - minimum) / span
    rows[..., varied] = 0.0

    into_first = weights("l_lstm.weight_ih_l0")
    exogenous = np.einsum("hbi,bgi->hbg", rows, into_first)
    exogenous += weights("l_lstm.bias_ih_l0") + weights("l_lstm.bias_hh_l0")
    bias = weights("l_lstm.bias_ih_l1") + weights("l_lstm.bias_hh_l1")
    first, between, second = (
        weights(f"l_lstm.weight_{name}").swapaxes(1, 2)
        for name in ("hh_l0", "ih_l1", "hh_l1")
    )
    zero = np.zeros_like(first)
    return TemperatureModel(
        exogenous=_join_gates(exogenous, np.broadcast_to(bias, exogenous.shape)),
        cooling=_join_gates(into_first[:, :, varied[0]], zero[:, 0]),
        temperature=_join_gates(into_first[:, :, varied[1]], zero[:, 0]),
        recurrent=np.concatenate(
            [_join_gates(first, between), _join_gates(zero, second)], axis=1
        ),
        readout=weights("l_linear.weight")[:, 0],
        readout_bias=weights("l_linear.bias")[:, 0],
        minimum=minimum[:, varied].T,
        span=span[:, varied].T,
    )


def _join_gates(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Join the gates of both layers in one row, halved for gates with a sigmoid."""
    gates = np.stack([first, second], axis=-2)
    # Torch orders the gates as input, forget, cell, output.
    gates = gates.reshape(*gates.shape[:-1], 4, WIDTH).swapaxes(-3, -2)
    factor = np.array([0.5, 0.5, 1.0, 0.5], np.float32)[:, None, None]
    return (gates * factor).reshape(*gates.shape[:-3], 8 * WIDTH)


def _load_input(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """Return one input of the network over the month, `(hour, building)`, unscaled."""
    stem, _, wave = name.rpartition("_")
    if stem in PERIODS:
        angle = 2 * np.pi * load_shared(stem, buildings) / PERIODS[stem]
        return (np.sin if wave == "sin" else np.cos)(angle).astype(np.float32)
    if f"shared/{name}" in load_arrays():
        return load_shared(name, buildings).astype(np.float32)
    return load_hourly(name, buildings)


def init_indoor(num_buildings: int) -> IndoorState:
    """Return an empty state. The warm-up fills the histories."""
    history = jnp.zeros((LOOKBACK, num_buildings), jnp.float32)
    units = jnp.zeros((num_buildings, 2 * WIDTH), jnp.float32)
    return IndoorState(cooling=history, temperature=history, hidden=units, cell=units)


def next_temperature(
    model: TemperatureModel,
    indoor: IndoorState,
    hour: Int[Array, ""],
    cooling: Float[Array, " building"],
    recorded: Float[Array, " building"],
) -> tuple[IndoorState, Float[Array, " building"]]:
    """Return the state and temperature at the end of an hour with `cooling` kWh delivered.

    During the warm-up, the temperature is `recorded`.
    """
    scaled = (cooling - model.minimum[0]) / model.span[0]
    coolings = jnp.concatenate([indoor.cooling[1:], scaled[None]])
    hidden, cell = run_window(model, indoor, hour, coolings)
    output = (hidden[:, WIDTH:] * model.readout).sum(axis=-1) + model.readout_bias

    warm = hour >= WARM_UP
    scaled_record = (recorded - model.minimum[1]) / model.span[1]
    latest = jnp.where(warm, output, scaled_record)
    after = IndoorState(
        cooling=coolings,
        temperature=jnp.concatenate([indoor.temperature[1:], latest[None]]),
        hidden=jnp.where(warm, hidden, indoor.hidden),
        cell=jnp.where(warm, cell, indoor.cell),
    )
    return after, jnp.where(warm, output * model.span[1] + model.minimum[1], recorded)


def run_window(
    model: TemperatureModel,
    indoor: IndoorState,
    hour: Int[Array, ""],
    coolings: Float[Array, "lookback building"],
) -> tuple[Float[Array, "building units"], Float[Array, "building units"]]:
    """Return the hidden and the cell state of both layers after a window.

    The window ends at `hour`, and `coolings` are the scaled coolings in it.
    """
    exogenous = jax.lax.dynamic_slice_in_dim(
        jnp.asarray(model.exogenous), hour - (LOOKBACK - 1), LOOKBACK
    )
    rows = (
        exogenous
        + coolings[..., None] * model.cooling
        + indoor.temperature[..., None] * model.temperature
    )

    def advance(state, row):
        hidden, cell = state
        gates = row + jnp.einsum("bu,bug->bg", hidden, model.recurrent)
        admit, forget, candidate, output = jnp.split(jnp.tanh(gates), 4, axis=1)
        cell = (0.5 + 0.5 * forget) * cell + (0.5 + 0.5 * admit) * candidate
        return ((0.5 + 0.5 * output) * jnp.tanh(cell), cell), None

    def merge(first, second):
        """Join the first layer's units of `first` with the second layer's of `second`."""
        return jax.tree.map(
            lambda a, b: jnp.concatenate([a[:, :WIDTH], b[:, WIDTH:]], axis=1),
            first,
            second,
        )

    # While the first layer reads row k, the second one reads row k - 1. So each layer
    # pauses once: the second one at the first row, and the first one after the last row.
    state = (indoor.hidden, indoor.cell)
    state = merge(advance(state, rows[0])[0], state)
    state, _ = jax.lax.scan(advance, state, rows[1:])
    return merge(state, advance(state, rows[-1])[0])
