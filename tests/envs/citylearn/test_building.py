"""Tests of the battery with numbers worked out by hand (Building 1: 4 kWh, 3.32 kW)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orac.envs.citylearn.building import (
    BatteryState,
    init_storage,
    power_efficiency,
    power_limit,
    run_battery,
)
from orac.envs.citylearn.data import load_battery

BATTERY = load_battery((1,))
UNLIMITED = jnp.full(1, jnp.inf, jnp.float32)

jitted_run_battery = jax.jit(partial(run_battery, BATTERY))


def run(level, request, limit=UNLIMITED, efficiency=0.95):
    """Return the level, the electricity that entered and the state after one hour."""
    values = (level, 4.0, efficiency)
    state = BatteryState(*(jnp.full(1, value, jnp.float32) for value in values))
    request = jnp.full(1, request, jnp.float32)
    after, balance = jitted_run_battery(state, request, limit)
    return float(after.level[0]), float(balance[0]), after


def test_new_battery_starts_at_its_minimum_charge():
    start = init_storage(BATTERY).battery
    np.testing.assert_allclose([start.level[0], start.capacity[0]], [0.2, 4.0], 1e-6)


def test_charging_at_full_power_loses_the_square_root_of_the_efficiency():
    # 0.15 * 4 * 0.9999 = 0.59994 kWh are left; at full load the efficiency is 0.9, so
    # 3.32 * sqrt(0.9) = 3.149629 of 3.32 kWh arrive: 3.749569 kWh are 0.937392 of 4.
    level, balance, after = run(0.15, 0.83)
    assert level == pytest.approx(0.937392, abs=1e-6)
    assert balance == pytest.approx(3.32, abs=1e-6)
    assert after.efficiency[0] == pytest.approx(0.9, abs=1e-6)
    # Wear: 1e-5 * 4 * 3.32 / (2 * 4) = 1.66e-5 kWh.
    assert after.capacity[0] == pytest.approx(4 - 1.66e-5, abs=3e-7)


def test_discharging_takes_more_from_the_battery_than_it_delivers():
    # Half of the power is 1.66 kWh; between 0.3 and 0.7 the efficiency rises from 0.88
    # to 0.95, at 0.5 it is 0.915. 1.66 / sqrt(0.915) = 1.735392 kWh leave 2.79972.
    level, balance, _ = run(0.7, -0.415)
    assert balance == pytest.approx(-1.66, abs=1e-6)
    assert level == pytest.approx((2.79972 - 1.735392) / 4, abs=1e-6)


def test_discharge_stops_near_the_minimum_charge():
    # 0.05 above the floor are 0.2 kWh, of which sqrt(0.81) * 0.2 = 0.18 can be used.
    _, balance, _ = run(0.25, -0.83, efficiency=0.81)
    assert balance == pytest.approx(-0.18, abs=1e-6)
    assert run(0.15, -0.83)[1] == 0.0


def test_charge_is_limited_by_the_available_electricity():
    assert run(0.2, 0.5, jnp.full(1, 0.25, jnp.float32))[1] == pytest.approx(0.25)
    assert run(0.2, 0.5, jnp.zeros(1))[1] == 0.0


def test_charge_is_limited_by_the_free_capacity():
    # CityLearn limits the charge to 4 - 0.79992 = 3.20008 kWh, before losses.
    assert run(0.2, 0.83)[1] == pytest.approx(3.20008, abs=1e-5)


def test_idle_battery_only_leaks():
    level, balance, _ = run(0.5, 0.0)
    assert (level, balance) == (pytest.approx(0.49995, abs=1e-7), 0.0)


def test_full_battery_has_a_fifth_of_its_power():
    np.testing.assert_allclose(
        power_limit(jnp.array([0.0, 0.8, 0.9, 1.0])), [1.0, 1.0, 0.6, 0.2], atol=1e-6
    )


def test_efficiency_is_linear_between_the_knots_of_its_curve():
    loads = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0]
    found = [float(power_efficiency(BATTERY, jnp.array([load]))[0]) for load in loads]
    np.testing.assert_allclose(found, [0.88, 0.88, 0.915, 0.95, 0.95, 0.925, 0.9], 1e-6)
