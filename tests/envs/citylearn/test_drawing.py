"""Tests of the figure of an episode: its contents, and invalid arguments."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.envs.baselines import BatteryReserve
from orac.envs.citylearn.drawing import plot_episode
from orac.envs.citylearn.env import CityLearn
from orac.evaluation.rollout import record_episodes

ENV = CityLearn(buildings=(2, 1))


@pytest.fixture(scope="module")
def observations():
    policy = jax.jit(BatteryReserve(ENV))
    return jnp.asarray(record_episodes(ENV, policy, seed=3).observations[:, 0])


def line(panel, label):
    (found,) = [line for line in panel.lines if line.get_label() == label]
    return found


def test_recorded_episode_has_all_hours_of_the_month(observations):
    assert observations.shape == (720, 41)
    hours = ENV.read(observations, "hour")[:, 0]
    np.testing.assert_allclose(hours, np.tile(np.arange(1, 25), 30), atol=1e-4)


def test_figure_shows_temperature_energy_and_storage(observations):
    figure = plot_episode(ENV, observations, building=1, title="A month")
    temperature, energy, storage = figure.axes
    names = {
        "indoors": (temperature, "indoor_dry_bulb_temperature"),
        "set point": (temperature, "indoor_dry_bulb_temperature_set_point"),
        "solar generation": (energy, "solar_generation"),
        "battery": (storage, "electrical_storage_soc"),
        "hot water": (storage, "dhw_storage_soc"),
    }
    for label, (panel, name) in names.items():
        drawn = line(panel, label).get_ydata()
        np.testing.assert_allclose(drawn, ENV.read(observations, name)[:, -1])
    assert figure.get_suptitle() == "A month"
    labels = [text.get_text() for text in temperature.get_legend().get_texts()]
    assert "set point ± 1 °C" in labels and "outage" in labels


def test_every_outage_is_shaded_in_every_panel(observations):
    outage = np.asarray(ENV.read(observations, "power_outage")[:, 0] > 0.5).astype(int)
    starts = np.flatnonzero(np.diff(outage) == 1) + 1
    assert len(starts) > 3
    for panel in plot_episode(ENV, observations).axes:
        assert [patch.get_x() + 0.5 for patch in panel.patches] == list(starts)


def test_figure_can_show_a_part_of_the_month(observations):
    figure = plot_episode(ENV, observations, hours=(100, 148))
    panel = figure.axes[0]
    assert panel.get_xlim() == (100, 148)
    np.testing.assert_array_equal(
        line(panel, "indoors").get_xdata(), np.arange(100, 149)
    )


def test_figure_can_be_saved(observations, tmp_path):
    plot_episode(ENV, observations).savefig(tmp_path / "month.png")
    assert (tmp_path / "month.png").stat().st_size > 10_000


@pytest.mark.parametrize("hours", [(5, 5), (-1, 3), (0, 720)])
def test_hours_outside_the_episode_raise_an_error(observations, hours):
    with pytest.raises(ValueError, match="0 <= first < last < 720, got"):
        plot_episode(ENV, observations, hours=hours)


def test_unknown_building_raises_an_error(observations):
    with pytest.raises(ValueError, match=r"environment's buildings, \(2, 1\), got 3"):
        plot_episode(ENV, observations, building=3)


def test_missing_matplotlib_is_named_with_its_extra(observations, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "orac-rl\[plots\]"'):
        plot_episode(ENV, observations)


def test_environment_imports_neither_matplotlib_nor_torch_nor_citylearn():
    code = (
        "import sys, orac.envs.baselines, orac.envs.citylearn.drawing;"
        "print([m for m in ('matplotlib', 'torch', 'citylearn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
