"""Lidar readings worked out by hand: 4 bins of a quarter turn, nothing seen from 2 m on."""

import numpy as np
import pytest

from orac.envs.safety.lidar import Lidar

NORTH = np.eye(3)


def read(*things, counts=None):
    offsets = np.array([[x, y, 0.0] for x, y in things])
    return Lidar(counts or [len(things)], 4, 2.0).read(offsets, NORTH)


def test_a_thing_halfway_into_its_bin_shows_half_in_both_neighbours():
    # At 45 degrees and 1 m: nearness (2 - 1) / 2 = 0.5 in bin 0, and half of it beside.
    side = np.sqrt(0.5)
    np.testing.assert_allclose(read((side, side)), [[0.5, 0.25, 0.0, 0.25]], atol=1e-15)


def test_a_thing_at_the_start_of_its_bin_shows_fully_in_the_bin_before():
    np.testing.assert_allclose(read((1.0, 0.0)), [[0.5, 0.0, 0.0, 0.5]])


def test_a_direction_just_below_the_full_circle_is_read():
    # -1e-20 modulo the full circle is the full circle itself, one bin past the last.
    np.testing.assert_allclose(read((1.0, -1e-20)), [[0.5, 0.0, 0.0, 0.5]])


def test_the_nearest_thing_shows():
    np.testing.assert_allclose(read((1.5, 0.0), (0.5, 0.0), (1.0, 0.0))[0, 0], 0.75)


def test_things_out_of_reach_do_not_show():
    assert not read((2.0, 0.0), (0.0, 5.0)).any()


def test_each_kind_has_a_circle_of_its_own():
    readings = read((1.0, 0.0), (-1.0, 0.0), (-0.5, 0.0), counts=[1, 2])
    np.testing.assert_allclose(readings[:, 0], [0.5, 0.0])
    np.testing.assert_allclose(readings[:, 2], [0.0, 0.75])


@pytest.mark.parametrize("quarter", range(4))
def test_readings_turn_with_the_agent(quarter):
    angle = quarter * np.pi / 2 + 1e-3
    turn = np.array(
        [
            [np.cos(angle), -np.sin(angle), 0],
            [np.sin(angle), np.cos(angle), 0],
            [0, 0, 1],
        ]
    )
    readings = Lidar([1], 4, 2.0).read(np.array([[0.7, 0.7, 0.0]]), turn)
    assert int(readings[0].argmax()) == (4 - quarter) % 4
