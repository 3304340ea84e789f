"""Tests of goals, rewards and costs on hand-chosen numbers."""

import numpy as np
import pytest

from orac.envs.safety.fast_path import Rules

GOAL = Rules(
    goal_size=0.3,
    has_buttons=False,
    hazard_size=0.2,
    buttons_cost=False,
    gremlins_cost=False,
    vases_cost=True,
    vase_speed=1e-4,
    distance_reward=1.0,
    goal_reward=1.0,
    reward_limit=10.0,
    button_delay=0,
)
BUTTON = Rules(
    goal_size=0.2,
    has_buttons=True,
    hazard_size=0.2,
    buttons_cost=True,
    gremlins_cost=True,
    vases_cost=False,
    vase_speed=0.0,
    distance_reward=1.0,
    goal_reward=1.0,
    reward_limit=10.0,
    button_delay=10,
)
FAR, STILL = np.array([1.0, 2.0]), np.zeros((2, 3))


def test_a_goal_is_met_by_distance_and_a_button_by_touch():
    assert GOAL.is_met(0.3, set(), 0)
    assert not GOAL.is_met(0.31, {"button0"}, 0)
    assert BUTTON.is_met(1.0, {"button2"}, 2)
    assert not BUTTON.is_met(0.0, {"button1"}, 2)


def test_the_reward_is_progress_plus_a_bonus_and_is_clipped():
    assert GOAL.reward(1.5, 1.25, met=False) == 0.25
    assert GOAL.reward(1.5, 1.25, met=True) == 1.25
    assert GOAL.reward(50.0, 0.0, met=True) == 10.0


def test_hazards_cost_inside_but_not_on_their_edge():
    inside = GOAL.costs(np.array([3.0, 0.19]), STILL, set(), 0, 0)
    edge = GOAL.costs(np.array([3.0, 0.2]), STILL, set(), 0, 0)
    assert inside["cost_hazards"] == 1.0
    assert edge["cost_hazards"] == 0.0


def test_vases_cost_when_touched_and_when_they_move():
    moving = np.array([[0.0, 0.0, 0.0], [6e-5, 0.0, 8e-5]])
    touched = GOAL.costs(FAR, STILL, {"vase"}, 0, 0)
    moved = GOAL.costs(FAR, moving, set(), 0, 0)
    assert (touched["cost_vases_contact"], touched["cost_vases_velocity"]) == (1, 0)
    assert (moved["cost_vases_contact"], moved["cost_vases_velocity"]) == (0, 1)


@pytest.mark.parametrize(
    ("touched", "timer", "expected"),
    [
        (set(), 0, 0.0),
        ({"button1"}, 0, 0.0),
        ({"button2"}, 0, 1.0),
        ({"button1", "button2"}, 0, 1.0),
        ({"button2"}, 3, 0.0),
        ({"gremlin", "vase"}, 0, 0.0),
    ],
)
def test_wrong_buttons_cost_unless_the_buttons_are_inactive(touched, timer, expected):
    costs = BUTTON.costs(FAR, STILL, touched, 1, timer)
    assert costs["cost_buttons"] == expected


def test_a_touched_gremlin_costs():
    assert BUTTON.costs(FAR, STILL, {"gremlin"}, 1, 5)["cost_gremlins"] == 1.0
    assert BUTTON.costs(FAR, STILL, {"button1"}, 1, 5)["cost_gremlins"] == 0.0
