"""Indoor temperature: each building's two-layer LSTM over the last twelve hours.

CityLearn runs the network over a window of twelve rows every hour and starts it from
the hidden state that the previous window ended with, though the windows overlap; so do
we. A row holds weather, calendar, occupants and set point, known for the whole month,
and two numbers that depend on actions: cooling delivered, and the temperature one hour
earlier. Before the window is full the temperature is the recorded one.

The first layer's products with the known numbers are made once, here, in NumPy. The two
layers run as one network of twice the width, the second one row behind the first: half
as many steps, each one matrix product. The four gates share one tanh, because
sigmoid(x) = (1 + tanh(x / 2)) / 2 and the halving is in the weights.
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
"""First hour with a full window, and the last one whose cooling is not controlled."""
WIDTH = 16
PERIODS = {"month": 12, "hour": 24, "day_type": 8}


class Model(NamedTuple):
    """Weights, the building first. Gates are ordered gate, layer, unit."""

    known: np.ndarray
    """Gates' inputs from known numbers, biases included, `(hour, building, 128)`."""
    cooling: np.ndarray
    """From the cooling to the gates, `(building, 128)`; none to the second layer's."""
    temperature: np.ndarray
    recurrent: np.ndarray
    """From both layers' units to both layers' gates, `(building, 32, 128)`."""
    readout: np.ndarray
    """From the second layer's units to the temperature, `(building, 16)`."""
    readout_bias: np.ndarray
    minimum: np.ndarray
    """Least cooling and temperature, `(2, building)`; with `span`, maps to [0, 1]."""
    span: np.ndarray


class Indoor(NamedTuple):
    """What the temperature remembers; histories are scaled, oldest hour first."""

    cooling: Float[Array, "lookback building"]
    temperature: Float[Array, "lookback building"]
    hidden: Float[Array, "building units"]
    """Outputs of the first layer's units, then of the second layer's."""
    cell: Float[Array, "building units"]


@cache
def load_model(buildings: tuple[int, ...]) -> Model:
    """Weights of the chosen buildings, arranged for `run_window`."""

    def weights(name: str) -> np.ndarray:
        return load_constant(f"weights/{name}", buildings)

    names = list(load_arrays()["model/inputs"][0])
    varied = [names.index("cooling_demand"), names.index("indoor_dry_bulb_temperature")]
    minimum = load_constant("model/minimum", buildings).astype(np.float32)
    span = load_constant("model/maximum", buildings).astype(np.float32) - minimum
    rows = np.stack([known_input(name, buildings) for name in names], axis=-1)
    rows = (rows - minimum) / span
    rows[..., varied] = 0.0

    into_first = weights("l_lstm.weight_ih_l0")
    known = np.einsum("hbi,bgi->hbg", rows, into_first)
    known += weights("l_lstm.bias_ih_l0") + weights("l_lstm.bias_hh_l0")
    bias = weights("l_lstm.bias_ih_l1") + weights("l_lstm.bias_hh_l1")
    first, between, second = (
        weights(f"l_lstm.weight_{name}").swapaxes(1, 2)
        for name in ("hh_l0", "ih_l1", "hh_l1")
    )
    nothing = np.zeros_like(first)
    return Model(
        known=join_gates(known, np.broadcast_to(bias, known.shape)),
        cooling=join_gates(into_first[:, :, varied[0]], nothing[:, 0]),
        temperature=join_gates(into_first[:, :, varied[1]], nothing[:, 0]),
        recurrent=np.concatenate(
            [join_gates(first, between), join_gates(nothing, second)], axis=1
        ),
        readout=weights("l_linear.weight")[:, 0],
        readout_bias=weights("l_linear.bias")[:, 0],
        minimum=minimum[:, varied].T,
        span=span[:, varied].T,
    )


def join_gates(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Both layers' gates in one row, halved where `run_units` needs a sigmoid."""
    gates = np.stack([first, second], axis=-2)
    # Torch's order of the gates: input, forget, cell, output.
    gates = gates.reshape(*gates.shape[:-1], 4, WIDTH).swapaxes(-3, -2)
    halved = np.array([0.5, 0.5, 1.0, 0.5], np.float32)[:, None, None]
    return (gates * halved).reshape(*gates.shape[:-3], 8 * WIDTH)


def known_input(name: str, buildings: tuple[int, ...]) -> np.ndarray:
    """One input of the network over the month, `(hour, building)`, not yet scaled."""
    stem, _, wave = name.rpartition("_")
    if stem in PERIODS:
        angle = 2 * np.pi * load_shared(stem) / PERIODS[stem]
        shared = (np.sin if wave == "sin" else np.cos)(angle)
    elif f"shared/{name}" in load_arrays():
        shared = load_shared(name)
    else:
        return load_hourly(name, buildings)
    return np.repeat(shared[:, None], len(buildings), axis=1).astype(np.float32)


def init_indoor(num_buildings: int) -> Indoor:
    """Nothing remembered: the warm-up fills the histories."""
    history = jnp.zeros((LOOKBACK, num_buildings), jnp.float32)
    units = jnp.zeros((num_buildings, 2 * WIDTH), jnp.float32)
    return Indoor(cooling=history, temperature=history, hidden=units, cell=units)


def next_temperature(
    model: Model,
    indoor: Indoor,
    hour: Int[Array, ""],
    cooling: Float[Array, " building"],
    recorded: Float[Array, " building"],
) -> tuple[Indoor, Float[Array, " building"]]:
    """Temperature at the end of `hour`, in which `cooling` kWh were delivered."""
    scaled = (cooling - model.minimum[0]) / model.span[0]
    coolings = jnp.concatenate([indoor.cooling[1:], scaled[None]])
    hidden, cell = run_window(model, indoor, hour, coolings)
    output = (hidden[:, WIDTH:] * model.readout).sum(axis=-1) + model.readout_bias

    warm = hour >= WARM_UP
    scaled_record = (recorded - model.minimum[1]) / model.span[1]
    latest = jnp.where(warm, output, scaled_record)
    after = Indoor(
        cooling=coolings,
        temperature=jnp.concatenate([indoor.temperature[1:], latest[None]]),
        hidden=jnp.where(warm, hidden, indoor.hidden),
        cell=jnp.where(warm, cell, indoor.cell),
    )
    return after, jnp.where(warm, output * model.span[1] + model.minimum[1], recorded)


def run_window(
    model: Model,
    indoor: Indoor,
    hour: Int[Array, ""],
    coolings: Float[Array, "lookback building"],
) -> tuple[Float[Array, "building units"], Float[Array, "building units"]]:
    """Hidden and cell state of both layers after the window that ends with `hour`."""
    known = jax.lax.dynamic_slice_in_dim(
        jnp.asarray(model.known), hour - (LOOKBACK - 1), LOOKBACK
    )
    rows = (
        known
        + coolings[..., None] * model.cooling
        + indoor.temperature[..., None] * model.temperature
    )

    def advance(state, row):
        hidden, cell = state
        gates = row + jnp.einsum("bu,bug->bg", hidden, model.recurrent)
        return run_units(gates, cell), None

    # While the first layer reads row k the second one reads row k - 1, so each layer
    # rests once: the second at the first row, the first after the last.
    state = (indoor.hidden, indoor.cell)
    state = merge(advance(state, rows[0])[0], state)
    state, _ = jax.lax.scan(advance, state, rows[1:])
    return merge(state, advance(state, rows[-1])[0])


def merge(first, second):
    """The first layer's units of one state and the second layer's of another."""
    return jax.tree.map(
        lambda a, b: jnp.concatenate([a[:, :WIDTH], b[:, WIDTH:]], axis=1),
        first,
        second,
    )


def run_units(
    gates: Float[Array, "building gates"], cell: Float[Array, "building units"]
) -> tuple[Float[Array, "building units"], Float[Array, "building units"]]:
    """One step of an LSTM: new hidden and cell state."""
    take, keep, new, show = jnp.split(jnp.tanh(gates), 4, axis=1)
    cell = (0.5 + 0.5 * keep) * cell + (0.5 + 0.5 * take) * new
    return (0.5 + 0.5 * show) * jnp.tanh(cell), cell


def temperature_range(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Temperatures that no action can leave: the units' outputs are in (-1, 1)."""
    reach = np.abs(model.readout).sum(axis=-1)
    span, minimum = model.span[1], model.minimum[1]
    coldest = (model.readout_bias - reach) * span + minimum
    return coldest, (model.readout_bias + reach) * span + minimum
