"""Tests of GuardedMaze: episodes worked out by hand, a slow reference, invalid parameters."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.maze_twin import SMALL, Twin
from orac.envs.baselines import long_path, short_path
from orac.envs.maze.env import GuardedMaze, MazeState, check_maze, to_tuple

LEFT, RIGHT, DOWN, UP, STAY = (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)
LONG_WAY = [UP] * 5 + [RIGHT] * 5 + [DOWN] * 4

transition = jax.jit(GuardedMaze.transition, static_argnums=0)


def play(xy, actions, guard=False, **parameters):
    """Take steps without noise from `xy` until the episode or the list of actions ends."""
    maze = GuardedMaze(**{"action_noise": 0.0} | parameters)
    state, _ = maze.place(maze.reset(jax.random.key(0))[0], {"xy": xy, "guard": guard})
    steps = []
    for action in actions:
        state, result = transition(
            maze, state, jnp.array(action, jnp.float32), jnp.zeros(2)
        )
        steps.append(result)
        if result.done:
            break
    return state, steps


def summary(steps):
    total = sum(float(result.reward) for result in steps)
    cost = sum(float(result.cost[0]) for result in steps)
    last = steps[-1]
    assert not (last.terminated and last.truncated)
    end = "terminated" if last.terminated else "truncated" if last.truncated else "on"
    return total, cost, len(steps), end


def costs(steps):
    return [float(result.cost[0]) for result in steps]


def rewards(steps):
    return [float(result.reward) for result in steps]


@pytest.mark.parametrize(
    ("xy", "actions", "guard", "expected"),
    [
        ((4, 1), [RIGHT, RIGHT, UP], False, (14, 2, 3, "terminated")),
        ((4, 1), [RIGHT, RIGHT, UP], True, (14, 20, 3, "terminated")),
        ((1, 1), LONG_WAY, False, (4, 4, 14, "terminated")),
        ((4, 2), [RIGHT] * 100, False, (-32, 0, 100, "truncated")),
        ((1, 1), [STAY] * 100, False, (-32, 0, 100, "truncated")),
        (
            (1, 1),
            [UP] * 5 + [RIGHT] * 5 + [STAY] * 90,
            False,
            (-31, 0, 100, "truncated"),
        ),
        ((1, 1), [STAY] * 40 + LONG_WAY, False, (-15, 4, 54, "terminated")),
        (
            (4, 1),
            [RIGHT, LEFT, RIGHT, LEFT, LEFT, LEFT]
            + [UP] * 5
            + [RIGHT] * 4
            + [DOWN] * 4,
            True,
            (-1, 24, 19, "terminated"),
        ),
        ((3.4, 2.2), [(1, -1), (1, 0.1), (0.6, 0.8)], False, (14, 2, 3, "terminated")),
    ],
)
def test_episode_of_the_specification_has_its_reward_cost_and_length(
    xy, actions, guard, expected
):
    _, steps = play(xy, actions, guard)
    assert summary(steps) == expected


def test_bonus_and_pink_cell_count_at_the_steps_of_the_specification():
    _, steps = play((1, 1), LONG_WAY)
    assert [number + 1 for number, r in enumerate(rewards(steps)) if r == 0] == [10]
    assert [number + 1 for number, c in enumerate(costs(steps)) if c] == [12]


def test_diagonal_action_moves_one_cell_along_each_axis():
    state, _ = play((1, 1), [(1, 1)])
    assert state.xy.tolist() == [2, 2]


def test_actions_beyond_the_box_are_clipped():
    state, _ = play((2, 3), [(7, -9)])
    assert state.xy.tolist() == [3, 2]


def test_step_scale_is_the_length_of_a_full_action():
    state, _ = play((1, 1), [(1, 0.5)], step_scale=0.5)
    assert state.xy.tolist() == [1.5, 1.25]


def test_move_into_a_wall_is_rejected_as_a_whole_and_still_takes_a_step():
    state, steps = play((4, 3), [(1, 1)])
    assert state.xy.tolist() == [4, 3]
    assert not steps[0].metrics["moved"]
    assert (int(state.time), rewards(steps)) == (1, [-1])


def test_move_whose_midpoint_is_in_a_wall_is_rejected():
    # (2.4, 4.8) is in cell (2, 5) and the end (3.3, 5.7) in the free cell (3, 6), but the
    # midpoint (2.85, 5.25) is in the wall (3, 5).
    state, _ = play((2.4, 4.8), [(0.9, 0.9)])
    assert state.xy.tolist() == pytest.approx([2.4, 4.8])


def test_agent_cannot_leave_the_map():
    state, _ = play((1, 1), [(-1, -1)] * 3, step_scale=1.9)
    assert state.xy.tolist() == [1, 1]


def test_border_between_two_cells_belongs_to_the_upper_one():
    _, steps = play((4, 1), [(0.5, 0)])
    assert costs(steps) == [2]


def test_red_cell_is_charged_if_only_the_midpoint_is_in_it():
    # From 4.4 by 1.2 to 5.6: the end is in cell 6, the midpoint 5.0 in the red cell.
    _, steps = play((4.4, 1), [RIGHT], step_scale=1.2)
    assert costs(steps) == [2]
    assert steps[0].observation.tolist() == pytest.approx([5.6, 1])


def test_rejected_move_through_the_red_cell_costs_nothing():
    # The midpoint (4.7, 1.3) is in the red cell, the end (5.0, 1.6) in the wall above.
    state, steps = play((4.4, 1), [(0.6, 0.6)])
    assert costs(steps) == [0]
    assert not state.touched_red


def test_colour_is_charged_once_in_episode_mode():
    _, steps = play((4, 1), [RIGHT, LEFT, RIGHT, STAY], guard=True)
    assert costs(steps) == [20, 0, 0, 0]


def test_entry_mode_charges_each_entry_but_not_staying():
    moves = [RIGHT, STAY, LEFT, RIGHT, STAY]
    _, steps = play((4, 1), moves, guard=True, cost_mode="entry")
    assert costs(steps) == [20, 0, 0, 20, 0]


def test_entry_mode_charges_the_pink_cell_again():
    moves = [DOWN, UP, DOWN]
    _, steps = play((6, 5), moves, cost_mode="entry")
    assert costs(steps) == [4, 0, 4]
    assert costs(play((6, 5), moves)[1]) == [4, 0, 0]


def test_agent_placed_in_the_red_cell_pays_on_its_first_step():
    _, steps = play((5, 1), [STAY, STAY])
    assert costs(steps) == [2, 0]


def test_bonus_is_given_once():
    _, steps = play((5, 6), [RIGHT, LEFT, RIGHT, STAY])
    assert rewards(steps) == [0, -1, -1, -1]


def test_bonus_is_not_given_if_only_the_midpoint_is_in_its_cell():
    # (5.45, 6.4) to (6.45, 5.4): the midpoint (5.95, 5.9) is in the bonus cell.
    state, steps = play((5.45, 6.4), [(1, -1)])
    assert rewards(steps) == [-1]
    assert steps[0].metrics["moved"]
    assert not state.got_bonus


def test_episode_goes_on_if_only_the_midpoint_is_in_the_goal():
    _, steps = play((6, 2.9), [DOWN], step_scale=1.9)
    assert steps[0].observation.tolist() == pytest.approx([6, 1])
    assert not steps[0].terminated


def test_goal_on_the_last_step_terminates_and_does_not_truncate():
    route = [RIGHT, RIGHT, UP]
    assert summary(play((4, 1), route, time_limit=3)[1])[2:] == (3, "terminated")
    assert summary(play((4, 1), route, time_limit=2)[1])[2:] == (2, "truncated")


def test_steps_after_the_paid_ones_give_no_reward():
    _, steps = play((1, 1), [STAY] * 4, num_paid_steps=2, step_reward=-3.0)
    assert rewards(steps) == [-3, -3, 0, 0]


def test_pink_cell_can_be_moved():
    _, steps = play((6, 5), [DOWN, DOWN], pink_cell=(6, 3))
    assert costs(steps) == [0, 4]


def test_costs_and_rewards_are_parameters():
    chosen = {"red_cost": 1.0, "guard_cost": 7.0, "goal_reward": 5.0, "bonus": 3.0}
    assert summary(play((4, 1), [RIGHT, RIGHT, UP], **chosen)[1])[:2] == (3, 1)
    assert summary(play((4, 1), [RIGHT, RIGHT, UP], True, **chosen)[1])[:2] == (3, 7)
    assert rewards(play((5, 6), [RIGHT], **chosen)[1]) == [2]
    assert costs(play((6, 5), [DOWN], pink_cost=9.0)[1]) == [9]


def test_path_metric_distinguishes_the_short_path_from_the_long_one():
    def path(xy, actions):
        return [int(result.metrics["path"]) for result in play(xy, actions)[1]]

    assert path((4, 1), [STAY, RIGHT, RIGHT, UP]) == [0, -1, -1, -1]
    assert path((1, 1), LONG_WAY) == [0] * 13 + [1]


def test_observation_is_the_position_raw_or_scaled_to_the_walls():
    _, steps = play((4, 1), [RIGHT], guard=True)
    assert steps[0].observation.tolist() == [5, 1]
    _, steps = play((0.5, 3.5), [RIGHT], guard=True, normalize_obs=True)
    # (1.5 - 3.5) / 3 and (3.5 - 3.5) / 3.
    assert steps[0].observation.tolist() == pytest.approx([-2 / 3, 0])
    back = GuardedMaze(normalize_obs=True).position_of(steps[0].observation)
    assert back.tolist() == pytest.approx([1.5, 3.5])


def test_episodes_start_uniformly_in_the_start_box_with_a_guard_at_its_rate():
    state, observation = GuardedMaze().reset_many(jax.random.key(3), 20_000)
    assert jnp.array_equal(state.xy, observation)
    assert 0.6 <= state.xy.min() < 0.61
    assert 3.59 < state.xy.max() <= 3.6
    np.testing.assert_allclose(state.xy.mean(0), 2.1, atol=0.03)
    assert abs(np.corrcoef(np.asarray(state.xy).T)[0, 1]) < 0.03
    # Four standard errors of a frequency: 4 * sqrt(0.15 * 0.85 / 20000) = 0.0101.
    assert float(state.guard.mean()) == pytest.approx(0.15, abs=0.0101)
    assert not any(flag.any() for flag in state[3:])


def test_noise_has_its_standard_deviation_on_both_coordinates():
    maze = GuardedMaze(action_noise=0.1)
    state, _ = maze.reset_many(jax.random.key(0), 20_000)
    state, _ = maze.place(state, {"xy": (2.5, 2.5)})
    after, _ = jax.jit(maze.step)(jax.random.key(1), state, jnp.zeros((20_000, 2)))
    moves = np.asarray(after.xy - state.xy)
    # The standard error of a standard deviation is 0.1 / sqrt(2 * 20000) = 0.0005.
    np.testing.assert_allclose(moves.std(0), 0.1, atol=0.002)
    np.testing.assert_allclose(moves.mean(0), 0.0, atol=0.003)
    assert abs(np.corrcoef(moves.T)[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("cost_mode", "num_steps"), [("episode", 1000), ("entry", 200)]
)
def test_maze_agrees_with_its_slow_twin_in_a_hundred_episodes_at_a_time(
    cost_mode, num_steps
):
    """Compare 100,000 steps in the default cost mode and 20,000 in the other one."""
    maze = GuardedMaze(cost_mode=cost_mode)
    random = np.random.default_rng(7)
    baselines = jax.jit(lambda xy: [make(maze)(xy) for make in (short_path, long_path)])
    twins = [new_twin(random, cost_mode) for _ in range(100)]
    state = state_of(twins)
    events, num_near_edge = np.zeros(6, int), 0
    for _ in range(num_steps):
        # Random actions hardly ever take the long path, so baselines act in two thirds.
        action = random.uniform(-1.3, 1.3, (100, 2)).astype(np.float32)
        for third, chosen in enumerate(baselines(state.xy)):
            action[third::3] = chosen[third::3]
        noise = random.normal(size=(100, 2)).astype(np.float32)
        state, result = jax.device_get(transition(maze, state, action, noise))
        expected = np.array(
            [
                (*twin.step(a, n), twin.x, twin.y)
                for twin, a, n in zip(
                    twins, action.tolist(), noise.tolist(), strict=True
                )
            ]
        )
        agree = np.isclose(table_of(state, result), expected, atol=1e-5).all(1)
        near_edge = np.array([twin.near_edge for twin in twins])
        assert (agree | near_edge).all()
        num_near_edge += (~agree).sum()
        events += count_events(expected, state.got_bonus)
        for row in np.flatnonzero(result.done | ~agree):
            twins[row] = new_twin(random, cost_mode)
        fresh = np.array([twin.time == 0 for twin in twins])
        state = choose(fresh, state_of(twins), state)
    assert num_near_edge <= 5
    assert events.min() > num_steps / 20, events


def new_twin(random, cost_mode):
    x, y = random.uniform(0.6, 3.6, 2).astype(np.float32).tolist()
    return Twin(x, y, random.random() < 0.15, charge_each_entry=cost_mode == "entry")


def state_of(twins):
    size = len(twins)
    return MazeState(
        xy=np.array([(twin.x, twin.y) for twin in twins], np.float32),
        guard=np.array([twin.guard for twin in twins]),
        time=np.zeros(size, np.int32),
        touched_red=np.zeros(size, bool),
        touched_pink=np.zeros(size, bool),
        got_bonus=np.zeros(size, bool),
    )


@jax.jit
def choose(fresh, new, old):
    """Return `new` in the rows that are fresh, and `old` in the others."""
    pick = jax.vmap(
        lambda chosen, a, b: jax.tree.map(lambda x, y: jnp.where(chosen, x, y), a, b)
    )
    return pick(fresh, new, old)


def table_of(state, result):
    metrics = result.metrics
    columns = (result.reward, result.cost[:, 0], result.terminated, result.truncated)
    return np.column_stack([*columns, metrics["moved"], metrics["path"], state.xy])


def count_events(expected, got_bonus):
    """Count red, pink, goal, time limit, wall, and episodes that ended with a bonus."""
    _, cost, terminated, truncated, moved = expected.T[:5].astype(int)
    ended = terminated + truncated
    red = (cost == 2) | (cost == 20)
    events = red, cost == 4, terminated, truncated, 1 - moved, ended * got_bonus
    return np.array([event.sum() for event in events], int)


def test_twin_has_the_same_map():
    rows = GuardedMaze().layout.rows
    assert [row.replace("s", ".") for row in rows] == SMALL


def test_batch_gives_the_same_steps_as_one_maze_at_a_time():
    maze = GuardedMaze()
    state, _ = maze.reset_many(jax.random.key(0), 32)
    action = jax.random.uniform(jax.random.key(1), (32, 2), minval=-1)
    noise = jax.random.normal(jax.random.key(2), (32, 2))
    together = transition(maze, state, action, noise)
    one_by_one = jax.jit(jax.vmap(maze.transition))(state, action, noise)
    for a, b in zip(
        jax.tree.leaves(together), jax.tree.leaves(one_by_one), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_equal_mazes_share_one_compiled_program():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def start(maze, key):
        traces.append(1)
        return maze.reset(key)

    for _ in range(3):
        start(GuardedMaze(pink_cell=(6, 3)), jax.random.key(0))
    assert len(traces) == 1
    start(GuardedMaze(), jax.random.key(0))
    assert len(traces) == 2


def test_spec_bounds_the_cost_and_the_length_of_an_episode():
    spec = GuardedMaze().spec
    assert spec.cost_bounds == (24.0,)
    assert (spec.episode_length, spec.observation_size) == (100, 2)
    assert (spec.observation_low, spec.observation_high) == ((0, 0), (7, 7))
    assert GuardedMaze(cost_mode="entry").spec.cost_bounds == (2400.0,)
    large = GuardedMaze(map="16x16").spec
    assert (large.cost_bounds, large.episode_length) == ((20.0,), 1920)
    scaled = GuardedMaze(normalize_obs=True).spec
    assert scaled.observation_high == pytest.approx((3.5 / 3, 3.5 / 3))


def test_large_maze_has_the_original_rewards():
    # L = 2 * 16 = 32: the goal gives L, the first 2 L steps give -1.
    _, steps = play((13, 3), [UP], map="16x16")
    assert summary(steps) == (32, 0, 1, "terminated")
    _, steps = play((1, 1), [STAY] * 70, map="16x16")
    assert summary(steps)[0] == -64


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"guard_probability": 1.5}, r"guard_probability must be in \[0, 1\], got 1.5"),
        ({"red_cost": -1.0}, "red_cost must be at least 0, .* not as a negative cost"),
        ({"bonus": float("inf")}, "bonus must be a finite number, got inf"),
        ({"goal_reward": float("nan")}, "goal_reward must be a finite number, got nan"),
        ({"step_scale": 0.0}, r"step_scale must be in \(0, 1.99\], .* could not move"),
        ({"action_noise": float("nan")}, "action_noise must be at least 0, got nan"),
        ({"step_scale": 2.5}, "could jump over a wall"),
        ({"time_limit": 0}, "time_limit must be a whole number of at least 1, got 0"),
        ({"num_paid_steps": -1}, "num_paid_steps must be a whole number of at least 0"),
        ({"cost_mode": "episodes"}, "Did you mean 'episode'"),
        ({"pink_cell": (5, 4)}, r"pink_cell must be a free cell .* which is a wall"),
        ({"pink_cell": (60, 4)}, "outside the map"),
    ],
)
def test_parameter_out_of_range_raises_an_error(parameters, message):
    with pytest.raises(ValueError, match=message):
        GuardedMaze(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_paid_steps": 2.5}, "num_paid_steps must be a whole number"),
        ({"time_limit": True}, "time_limit must be a whole number"),
        ({"guard_probability": "low"}, r"guard_probability must be in \[0, 1\]"),
        ({"map": 8}, "map must be the name of a map or a map drawn as text, got 8"),
    ],
)
def test_parameter_of_the_wrong_type_raises_an_error(parameters, message):
    wrong = SimpleNamespace(**vars(GuardedMaze()) | parameters)
    with pytest.raises(ValueError, match=message):
        check_maze(wrong)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([6], "pink_cell must be 2 numbers, got"),
        ("64", "pink_cell must be 2 numbers, got '64'"),
        ((6, 4.5), "pink_cell must be 2 whole numbers"),
    ],
)
def test_cell_must_be_two_whole_numbers(value, message):
    assert to_tuple("pink_cell", [6.0, 4], int, 2) == (6, 4)
    with pytest.raises(ValueError, match=message):
        to_tuple("pink_cell", value, int, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xy": (5, 3)}, r"which is in the wall cell \(5, 3\)"),
        ({"xy": (6.0, 2.0)}, r"in the goal cell \(6, 2\)"),
        ({"xy": (9, 1)}, "which is outside the map. The map is 8 by 8"),
        ({"xy": (1, 2, 3)}, "one point"),
        ({"xy": "ab"}, "xy must be two numbers"),
        ({"xy": (1j, 1.0)}, "xy must be two numbers"),
        ({"guard": "no"}, "guard must be True or False"),
        ({"guard": 2}, "guard must be True or False"),
        ({"guard": [True, False]}, "guard must be True or False"),
        ({"gaurd": True}, "Did you mean 'guard'"),
    ],
)
def test_invalid_reset_option_raises_an_error(options, message):
    maze = GuardedMaze()
    state, _ = maze.reset(jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        maze.place(state, options)
