"""Tests of layout sampling against drawing one number at a time, as the package does."""

import math

import numpy as np
import pytest

from orac.envs.safety.layout import (
    Placements,
    RandomBuffer,
    sample_goal,
    sample_layout,
)

CROWDED = Placements(
    {"agent": 0.4, "goal": 0.4, **{f"object{index}": 0.3 for index in range(6)}},
    (-1.3, -1.3, 1.3, 1.3),
    0.0,
)


def layout_one_by_one(placements, random):
    """Sample a layout as the package does, with one call of `uniform` per number."""
    while True:
        layout = {}
        for name, radius in placements.radii.items():
            x_low, y_low, x_high, y_high = placements.extents
            for _ in range(100):
                point = (
                    random.uniform(x_low + radius, x_high - radius),
                    random.uniform(y_low + radius, y_high - radius),
                )
                if all(
                    math.dist(point, other)
                    >= placements.radii[name_of] + placements.margin + radius
                    for name_of, other in layout.items()
                ):
                    layout[name] = point
                    break
            else:
                break
        if len(layout) == len(placements.radii):
            return layout


@pytest.mark.parametrize("seed", range(5))
def test_layouts_and_random_state_equal_drawing_one_number_at_a_time(seed):
    fast, plain = np.random.RandomState(seed), np.random.RandomState(seed)
    for _ in range(3):
        assert sample_layout(CROWDED, fast) == layout_one_by_one(CROWDED, plain)
        assert fast.random_sample() == plain.random_sample()


def test_unused_numbers_are_returned():
    random, plain = np.random.RandomState(1), np.random.RandomState(1)
    numbers = RandomBuffer(random)
    numbers.pairs(100)
    numbers.consume(3)
    later = numbers.pairs(2000)
    numbers.consume(1)
    numbers.return_unused()
    expected = plain.random_sample(8)
    np.testing.assert_array_equal(later[0], expected[6:])
    assert random.random_sample() == plain.random_sample()


def test_a_binomial_draw_with_probability_one_consumes_one_number():
    # So a step of the fast path may draw one uniform number instead.
    random, plain = np.random.RandomState(2), np.random.RandomState(2)
    assert random.binomial(10, 1.0) == 10
    plain.random_sample()
    assert random.random_sample() == plain.random_sample()


def test_an_impossible_layout_raises_an_error_with_advice(monkeypatch):
    monkeypatch.setattr("orac.envs.safety.layout.LAYOUT_ATTEMPTS", 3)
    full = Placements({"agent": 1.0, "goal": 1.0}, (-1.1, -1.1, 1.1, 1.1), 0.0)
    with pytest.raises(
        RuntimeError, match=r"no layout for agent, goal .* radii smaller, or"
    ):
        sample_layout(full, np.random.RandomState(0))


def test_a_goal_keeps_its_distance_from_all_objects():
    others = {"agent": (-0.8, -0.8), "object0": (0.9, 0.9)}
    goal = sample_goal(CROWDED, others, np.random.RandomState(0))
    assert goal is not None
    assert math.dist(goal, others["agent"]) >= 0.8
    assert math.dist(goal, others["object0"]) >= 0.7


def test_an_impossible_goal_is_none(monkeypatch):
    monkeypatch.setattr("orac.envs.safety.layout.GOAL_ATTEMPTS", 50)
    small = Placements({"agent": 2.0, "goal": 0.5}, (-1.0, -1.0, 1.0, 1.0), 0.0)
    assert sample_goal(small, {"agent": (0.0, 0.0)}, np.random.RandomState(0)) is None
