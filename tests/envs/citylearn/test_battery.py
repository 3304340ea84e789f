"""The battery's rules on numbers worked out by hand (Building 1: 4 kWh, 3.32 kW)."""

import jax.numpy as jnp
import numpy as np
import pytest

from orac.envs.citylearn.battery import (
    Charge,
    init_charge,
    power_efficiency,
    power_limit,
    run_battery,
)
from orac.envs.citylearn.data import load_battery

BATTERY = load_battery((1,))
FREE = jnp.full(1, jnp.inf, jnp.float32)


def charge_at(level, efficiency=0.95):
    values = (level, 4.0, efficiency)
    return Charge(*(jnp.full(1, value, jnp.float32) for value in values))


def run(level, share, limit=FREE, efficiency=0.95):
    share = jnp.full(1, share, jnp.float32)
    after, balance = run_battery(BATTERY, charge_at(level, efficiency), share, limit)
    return float(after.level[0]), float(balance[0]), after


def test_a_new_battery_stands_at_its_floor():
    start = init_charge(BATTERY)
    np.testing.assert_allclose([start.level[0], start.capacity[0]], [0.2, 4.0], 1e-6)


def test_charging_at_full_power_loses_the_root_of_the_efficiency():
    # 0.15 * 4 * 0.9999 = 0.59994 kWh are left; at full load the efficiency is 0.9, so
    # 3.32 * sqrt(0.9) = 3.149629 of 3.32 kWh arrive: 3.749569 kWh are 0.937392 of 4.
    level, balance, after = run(0.15, 0.83)
    assert level == pytest.approx(0.937392, abs=1e-6)
    assert balance == pytest.approx(3.32, abs=1e-6)
    assert after.efficiency[0] == pytest.approx(0.9, abs=1e-6)
    # Wear: 1e-5 * 4 * 3.32 / (2 * 4) = 1.66e-5 kWh.
    assert after.capacity[0] == pytest.approx(4 - 1.66e-5, abs=3e-7)


def test_discharging_costs_more_than_it_gives():
    # Half of the power is 1.66 kWh; between 0.3 and 0.7 the efficiency rises from 0.88
    # to 0.95, at 0.5 it is 0.915. 1.66 / sqrt(0.915) = 1.735392 kWh leave 2.79972.
    level, balance, _ = run(0.7, -0.415)
    assert balance == pytest.approx(-1.66, abs=1e-6)
    assert level == pytest.approx((2.79972 - 1.735392) / 4, abs=1e-6)


def test_a_discharge_stops_near_the_floor():
    # 0.05 above the floor are 0.2 kWh, of which sqrt(0.81) * 0.2 = 0.18 can be given.
    _, balance, _ = run(0.25, -0.83, efficiency=0.81)
    assert balance == pytest.approx(-0.18, abs=1e-6)
    assert run(0.15, -0.83)[1] == 0.0


def test_what_may_enter_is_limited_from_outside():
    assert run(0.2, 0.5, jnp.full(1, 0.25, jnp.float32))[1] == pytest.approx(0.25)
    assert run(0.2, 0.5, jnp.zeros(1))[1] == 0.0


def test_no_more_enters_than_there_is_room_for():
    # 4 - 0.79992 = 3.20008 kWh fit by CityLearn's count, before losses.
    assert run(0.2, 0.83)[1] == pytest.approx(3.20008, abs=1e-5)


def test_a_battery_left_alone_only_leaks():
    level, balance, _ = run(0.5, 0.0)
    assert (level, balance) == (pytest.approx(0.49995, abs=1e-7), 0.0)


def test_a_full_battery_gives_a_fifth_of_its_power():
    np.testing.assert_allclose(
        power_limit(jnp.array([0.0, 0.8, 0.9, 1.0])), [1.0, 1.0, 0.6, 0.2], atol=1e-6
    )


def test_efficiency_follows_its_curve_between_the_knots():
    loads = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0]
    found = [float(power_efficiency(BATTERY, jnp.array([load]))[0]) for load in loads]
    np.testing.assert_allclose(found, [0.88, 0.88, 0.915, 0.95, 0.95, 0.925, 0.9], 1e-6)
