"""Figure of a CityLearn episode: temperature, energy and storage over the hours.

`plot_episode` needs only the environment and the observations, so any recorded episode can
be drawn. The
function imports matplotlib when it is called. The colours are those of Okabe and Ito, which
people with colour vision deficiencies can tell apart. The lines of a panel also differ in
style.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from orac.config.validation import import_extra
from orac.envs.citylearn.env import CityLearn

_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PANELS = ("temperature (°C)", "net energy (kWh)", "state of charge")


def plot_episode(
    env: CityLearn,
    observations: Float[Array, "hour observation"] | np.ndarray,
    building: int | None = None,
    hours: tuple[int, int] | None = None,
    title: str = "",
) -> Any:
    """Return a matplotlib figure of one building's episode, with outages shaded.

    `building` is the number of the building and defaults to the environment's first. `hours`
    (first, last) selects a part of the month.
    """
    figures = import_extra("Drawing an episode", "plots", "matplotlib.figure")
    number = env.buildings[0] if building is None else building
    if number not in env.buildings:
        raise ValueError(
            f"building must be one of the environment's buildings, {env.buildings}, got "
            f"{number}."
        )
    first, last = hours or (0, len(observations) - 1)
    if not 0 <= first < last < len(observations):
        raise ValueError(
            f"hours must be (first, last) with 0 <= first < last < {len(observations)}, "
            f"got {hours}."
        )
    time = np.arange(first, last + 1)
    selected = jnp.asarray(observations)[first : last + 1]
    place = env.buildings.index(number)

    def series(name: str) -> np.ndarray:
        return np.asarray(env.read(selected, name))[:, place]

    figure = figures.Figure(figsize=(11.0, 7.5), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    temperature, energy, storage = panels

    set_point = series("indoor_dry_bulb_temperature_set_point")
    temperature.fill_between(
        time,
        set_point - env.comfort_band,
        set_point + env.comfort_band,
        color=_BLUE,
        alpha=0.2,
        linewidth=0,
        label=f"set point ± {env.comfort_band:g} °C",
    )
    temperature.plot(time, set_point, "--", color=_BLUE, linewidth=1, label="set point")
    indoors = series("indoor_dry_bulb_temperature")
    temperature.plot(time, indoors, color=_RED, linewidth=1.2, label="indoors")

    net, solar = series("net_electricity_consumption"), series("solar_generation")
    energy.fill_between(
        time, net, 0.0, step="mid", color=_ORANGE, label="from the grid"
    )
    energy.plot(time, solar, ":", color="#000000", label="solar generation")
    energy.axhline(0.0, color="#000000", linewidth=0.8)

    battery, tank = series("electrical_storage_soc"), series("dhw_storage_soc")
    storage.plot(time, battery, color=_GREEN, label="battery")
    storage.plot(time, tank, "--", color=_BLUE, label="hot water")
    storage.set_ylim(-0.03, 1.03)

    for panel, label in zip(panels, _PANELS, strict=True):
        _shade_outages(panel, time, series("power_outage"))
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    storage.set_xlabel("hour of the month")
    storage.set_xlim(first, last)
    days = 1 + (last - first) // 360
    storage.set_xticks(np.arange(-(-first // 24) * 24, last + 1, 24 * days))
    if title:
        figure.suptitle(title)
    return figure


def _shade_outages(panel: Any, time: np.ndarray, outage: np.ndarray) -> None:
    """Draw grey bands over the hours without grid power."""
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
