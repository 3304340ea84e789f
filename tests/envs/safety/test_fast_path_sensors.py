"""Tests of the lidar on hand-computed readings: 4 bins, maximum distance 2 m."""

import numpy as np
import pytest

from orac.envs.safety.fast_path import Lidar

NO_ROTATION = np.eye(3)


def read(*objects, counts=None):
    offsets = np.array([[x, y, 0.0] for x, y in objects])
    return Lidar(counts or [len(objects)], 4, 2.0).read(offsets, NO_ROTATION)


def test_an_object_in_the_middle_of_its_bin_shows_half_in_both_neighbours():
    # At 45 degrees and 1 m: nearness (2 - 1) / 2 = 0.5 in bin 0, half of it in 1 and 3.
    side = np.sqrt(0.5)
    np.testing.assert_allclose(read((side, side)), [[0.5, 0.25, 0.0, 0.25]], atol=1e-15)


def test_an_object_at_the_start_of_its_bin_shows_fully_in_the_previous_bin():
    np.testing.assert_allclose(read((1.0, 0.0)), [[0.5, 0.0, 0.0, 0.5]])


def test_a_direction_just_below_the_full_circle_is_read():
    # -1e-20 modulo the full circle is the full circle itself, one bin past the last.
    np.testing.assert_allclose(read((1.0, -1e-20)), [[0.5, 0.0, 0.0, 0.5]])


def test_the_nearest_object_of_a_kind_counts():
    np.testing.assert_allclose(read((1.5, 0.0), (0.5, 0.0), (1.0, 0.0))[0, 0], 0.75)


def test_objects_beyond_the_maximum_distance_are_invisible():
    assert not read((2.0, 0.0), (0.0, 5.0)).any()


def test_each_kind_of_object_has_its_own_bins():
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
