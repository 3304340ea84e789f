"""An episode of CityLearn for people: temperature, energy and storage over the hours.

Draws from observations alone, so any recorded episode can be drawn. Needs matplotlib,
imported when something is drawn. Colours are Okabe and Ito's, and each line has a style
of its own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from orac.envs.citylearn.env import CityLearn

_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PANELS = ("temperature (°C)", "net energy (kWh)", "state of charge")


def record_episode(
    key: Key[Array, ""],
    env: CityLearn,
    policy: Callable[[Float[Array, " observation"]], Float[Array, " action"]],
) -> Float[Array, "hour observation"]:
    """Play one episode; every observation from the first on."""

    def advance(carry, _):
        state, observation = carry
        state, step = env.step(key, state, policy(observation))
        return (state, step.observation), step.observation

    @jax.jit
    def play():
        state, first = env.reset(key)
        length = env.spec.episode_length
        _, rest = jax.lax.scan(advance, (state, first), length=length)
        return jnp.concatenate([first[None], rest])

    return play()


def plot_episode(
    env: CityLearn,
    observations: Float[Array, "hour observation"] | np.ndarray,
    building: int | None = None,
    hours: tuple[int, int] | None = None,
    title: str = "",
) -> Any:
    """A matplotlib figure of one building's episode, outages shaded.

    `building` is the building's number, the environment's first if left out; `hours`
    (first, last) cuts out a part of the month.
    """
    figure = make_figure()
    series = read_series(env, observations, building)
    first, last = hours or (0, len(observations) - 1)
    if not 0 <= first < last < len(observations):
        raise ValueError(
            f"hours must be (first, last) with 0 <= first < last < {len(observations)}, "
            f"got {hours}."
        )
    time = np.arange(first, last + 1)
    series = {name: values[first : last + 1] for name, values in series.items()}
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    draw_temperature(panels[0], time, series, env.comfort_band)
    draw_energy(panels[1], time, series)
    draw_storage(panels[2], time, series)
    for panel, label in zip(panels, _PANELS, strict=True):
        shade_outages(panel, time, series["power_outage"])
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    panels[-1].set_xlabel("hour of the month")
    panels[-1].set_xlim(first, last)
    days = 1 + (last - first) // 360
    panels[-1].set_xticks(np.arange(-(-first // 24) * 24, last + 1, 24 * days))
    if title:
        figure.suptitle(title)
    return figure


def make_figure() -> Any:
    """An empty figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Drawing an episode needs matplotlib: pip install "orac-rl[plots]"'
        ) from error
    return Figure(figsize=(11.0, 7.5), layout="constrained")


def read_series(
    env: CityLearn,
    observations: Float[Array, "hour observation"] | np.ndarray,
    building: int | None,
) -> dict[str, np.ndarray]:
    """What is drawn, by CityLearn's names, in its own units."""
    number = env.buildings[0] if building is None else building
    if number not in env.buildings:
        raise ValueError(
            f"building must be one of the environment's, {env.buildings}, got {number}."
        )
    place = env.buildings.index(number)
    names = (
        "indoor_dry_bulb_temperature",
        "indoor_dry_bulb_temperature_set_point",
        "net_electricity_consumption",
        "solar_generation",
        "electrical_storage_soc",
        "dhw_storage_soc",
        "power_outage",
    )
    given = jnp.asarray(observations)
    return {name: np.asarray(env.read(given, name))[:, place] for name in names}


def draw_temperature(panel, time, series: dict[str, np.ndarray], band: float) -> None:
    """Indoor temperature against its set point and the comfort band."""
    set_point = series["indoor_dry_bulb_temperature_set_point"]
    panel.fill_between(
        time,
        set_point - band,
        set_point + band,
        color=_BLUE,
        alpha=0.2,
        linewidth=0,
        label=f"set point ± {band:g} °C",
    )
    panel.plot(time, set_point, "--", color=_BLUE, linewidth=1, label="set point")
    panel.plot(
        time,
        series["indoor_dry_bulb_temperature"],
        color=_RED,
        linewidth=1.2,
        label="indoors",
    )


def draw_energy(panel, time, series: dict[str, np.ndarray]) -> None:
    """Energy drawn from the grid (fed in, below zero), and what the sun gave."""
    net = series["net_electricity_consumption"]
    panel.fill_between(time, net, 0.0, step="mid", color=_ORANGE, label="from the grid")
    panel.plot(
        time, series["solar_generation"], ":", color="#000000", label="solar generation"
    )
    panel.axhline(0.0, color="#000000", linewidth=0.8)


def draw_storage(panel, time, series: dict[str, np.ndarray]) -> None:
    """How full battery and hot water tank are."""
    panel.plot(time, series["electrical_storage_soc"], color=_GREEN, label="battery")
    panel.plot(time, series["dhw_storage_soc"], "--", color=_BLUE, label="hot water")
    panel.set_ylim(-0.03, 1.03)


def shade_outages(panel, time: np.ndarray, outage: np.ndarray) -> None:
    """Grey bands over the hours without grid."""
    edges = np.diff(np.concatenate([[0], outage > 0.5, [0]]).astype(int))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        panel.axvspan(
            time[start] - 0.5,
            time[end - 1] + 0.5,
            color="#777777",
            alpha=0.35,
            linewidth=0,
            label="" if number else "outage",
        )
