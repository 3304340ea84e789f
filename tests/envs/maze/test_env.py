"""GuardedMaze against its specification: hand-worked episodes, a twin, known averages."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.maze_twin import SMALL, Twin
from orac.envs.maze.checks import as_tuple, check_parameters
from orac.envs.maze.controllers import long_path, record_episode, short_path
from orac.envs.maze.env import (
    GuardedMaze,
    MazeState,
    place,
    position_of,
    reset,
    step,
    transition,
)

LEFT, RIGHT, DOWN, UP, STAY = (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)
LONG_WAY = [UP] * 5 + [RIGHT] * 5 + [DOWN] * 4

_transition = functools.partial(jax.jit, static_argnums=3)(transition)


def start_at(xy, params, guard=False):
    state, _ = reset(jax.random.key(0), params)
    return place(state, {"xy": xy, "guard": guard}, params)[0]


def play(xy, actions, guard=False, **parameters):
    """Noise-free steps from `xy` until the episode ends or the actions do."""
    params = GuardedMaze(**{"action_noise": 0.0} | parameters)
    state, steps = start_at(xy, params, guard), []
    for action in actions:
        state, result = _transition(
            state, jnp.array(action, jnp.float32), jnp.zeros(2), params
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
def test_episode_of_the_specification(xy, actions, guard, expected):
    _, steps = play(xy, actions, guard)
    assert summary(steps) == expected


def test_bonus_and_pink_cell_are_paid_on_the_steps_the_specification_names():
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


def test_move_whose_end_is_a_wall_is_rejected_whole_and_time_passes():
    state, steps = play((4, 3), [(1, 1)])
    assert state.xy.tolist() == [4, 3]
    assert not steps[0].metrics["moved"]
    assert (int(state.time), rewards(steps)) == (1, [-1])


def test_move_whose_middle_is_a_wall_is_rejected():
    # (2.4, 4.8) is in cell (2, 5); the end (3.3, 5.7) in the free cell (3, 6), but the
    # middle (2.85, 5.25) in the wall (3, 5).
    state, _ = play((2.4, 4.8), [(0.9, 0.9)])
    assert state.xy.tolist() == pytest.approx([2.4, 4.8])


def test_nobody_leaves_the_map():
    state, _ = play((1, 1), [(-1, -1)] * 3, step_scale=1.9)
    assert state.xy.tolist() == [1, 1]


def test_half_way_belongs_to_the_upper_cell():
    _, steps = play((4, 1), [(0.5, 0)])
    assert costs(steps) == [2]


def test_red_cell_crossed_by_the_middle_alone_is_charged():
    # From 4.4 by 1.2 to 5.6: the end is in cell 6, the middle 5.0 in the red cell.
    _, steps = play((4.4, 1), [RIGHT], step_scale=1.2)
    assert costs(steps) == [2]
    assert steps[0].observation.tolist() == pytest.approx([5.6, 1])


def test_rejected_move_through_the_red_cell_costs_nothing():
    # The middle (4.7, 1.3) is in the red cell, the end (5.0, 1.6) in the wall above it.
    state, steps = play((4.4, 1), [(0.6, 0.6)])
    assert costs(steps) == [0]
    assert not state.touched_red


def test_second_visit_of_a_colour_is_free_in_episode_mode():
    _, steps = play((4, 1), [RIGHT, LEFT, RIGHT, STAY], guard=True)
    assert costs(steps) == [20, 0, 0, 0]


def test_each_entry_is_charged_in_entry_mode_and_staying_is_not():
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


def test_bonus_cell_crossed_by_the_middle_alone_gives_nothing():
    # (5.45, 6.4) to (6.45, 5.4): the middle (5.95, 5.9) is in the bonus cell.
    state, steps = play((5.45, 6.4), [(1, -1)])
    assert rewards(steps) == [-1]
    assert steps[0].metrics["moved"]
    assert not state.got_bonus


def test_goal_cell_crossed_by_the_middle_alone_does_not_end_the_episode():
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


def test_path_tells_the_short_way_from_the_long_one():
    def path(xy, actions):
        return [int(result.metrics["path"]) for result in play(xy, actions)[1]]

    assert path((4, 1), [STAY, RIGHT, RIGHT, UP]) == [0, -1, -1, -1]
    assert path((1, 1), LONG_WAY) == [0] * 13 + [1]


def test_observation_is_the_place_alone_raw_or_scaled_to_the_walls():
    _, steps = play((4, 1), [RIGHT], guard=True)
    assert steps[0].observation.tolist() == [5, 1]
    _, steps = play((0.5, 3.5), [RIGHT], guard=True, normalize_obs=True)
    # (1.5 - 3.5) / 3 and (3.5 - 3.5) / 3.
    assert steps[0].observation.tolist() == pytest.approx([-2 / 3, 0])
    params = GuardedMaze(normalize_obs=True)
    back = position_of(steps[0].observation, params)
    assert back.tolist() == pytest.approx([1.5, 3.5])


def test_episodes_start_anywhere_in_the_start_square_with_a_guard_at_its_rate():
    state, observation = reset(jax.random.key(3), GuardedMaze(), (20_000,))
    assert jnp.array_equal(state.xy, observation)
    assert 0.6 <= state.xy.min() < 0.61
    assert 3.59 < state.xy.max() <= 3.6
    np.testing.assert_allclose(state.xy.mean(0), 2.1, atol=0.03)
    assert abs(np.corrcoef(np.asarray(state.xy).T)[0, 1]) < 0.03
    # Four standard errors of a frequency: 4 * sqrt(0.15 * 0.85 / 20000) = 0.0101.
    assert float(state.guard.mean()) == pytest.approx(0.15, abs=0.0101)
    assert not any(flag.any() for flag in state[3:])


def test_noise_has_its_scale_on_both_coordinates():
    params = GuardedMaze(action_noise=0.1)
    state, _ = reset(jax.random.key(0), params, (20_000,))
    state, _ = place(state, {"xy": (2.5, 2.5)}, params)
    advance = jax.jit(functools.partial(step, params=params))
    after, _ = advance(jax.random.key(1), state, jnp.zeros((20_000, 2)))
    moves = np.asarray(after.xy - state.xy)
    # The standard error of a standard deviation is 0.1 / sqrt(2 * 20000) = 0.0005.
    np.testing.assert_allclose(moves.std(0), 0.1, atol=0.002)
    np.testing.assert_allclose(moves.mean(0), 0.0, atol=0.003)
    assert abs(np.corrcoef(moves.T)[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("cost_mode", "num_steps"), [("episode", 1000), ("entry", 200)]
)
def test_maze_and_its_twin_agree_on_a_hundred_mazes(cost_mode, num_steps):
    """A hundred thousand steps with the default costs, a fifth of it with the others."""
    params = GuardedMaze(cost_mode=cost_mode)
    random = np.random.default_rng(7)
    lead = jax.jit(lambda xy: [make(params)(xy) for make in (short_path, long_path)])
    twins = [new_twin(random, cost_mode) for _ in range(100)]
    state = state_of(twins)
    events, num_near_edge = np.zeros(6, int), 0
    for _ in range(num_steps):
        # Blind wandering hardly ever sees the long way, so two of three mazes are led.
        action = random.uniform(-1.3, 1.3, (100, 2)).astype(np.float32)
        for third, led in enumerate(lead(state.xy)):
            action[third::3] = led[third::3]
        noise = random.normal(size=(100, 2)).astype(np.float32)
        state, result = jax.device_get(_transition(state, action, noise, params))
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
        state = follow_twins(state, twins)
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


def follow_twins(state, twins):
    """Restart the mazes whose twins are new; the others go on with their own numbers."""
    fresh = np.array([twin.time == 0 for twin in twins])
    pick = jax.vmap(
        lambda chosen, new, old: jax.tree.map(
            lambda a, b: jnp.where(chosen, a, b), new, old
        )
    )
    return pick(fresh, state_of(twins), state)


def table_of(state, result):
    metrics = result.metrics
    columns = (result.reward, result.cost[:, 0], result.terminated, result.truncated)
    return np.column_stack([*columns, metrics["moved"], metrics["path"], state.xy])


def count_events(expected, got_bonus):
    """Red, pink, goal, time limit, wall, and episodes that ended with a bonus."""
    _, cost, terminated, truncated, moved = expected.T[:5].astype(int)
    ended = terminated + truncated
    red = (cost == 2) | (cost == 20)
    events = red, cost == 4, terminated, truncated, 1 - moved, ended * got_bonus
    return np.array([event.sum() for event in events], int)


def test_twin_draws_the_same_maze():
    rows = GuardedMaze().layout.rows
    assert [row.replace("s", ".") for row in rows] == SMALL


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def roll_out(params, controller, num_episodes, key):
    """Steps, return, cost and goal of whole episodes."""
    reset_key, step_key = jax.random.split(key)
    state, observation = params.reset_many(reset_key, num_episodes)

    def advance(carry, number):
        state, observation, running, total = carry
        action = controller(observation)
        key = jax.random.fold_in(step_key, number)
        state, result = params.step_many(key, state, action)
        new = (1.0, result.reward, result.cost[:, 0], result.terminated)
        total = jax.tree.map(lambda a, b: a + running * b, total, new)
        return (state, result.observation, running & ~result.done, total), None

    total = (jnp.zeros(num_episodes),) * 4
    running = jnp.ones(num_episodes, bool)
    carry = (state, observation, running, total)
    carry, _ = jax.lax.scan(advance, carry, jnp.arange(params.episode_length))
    return carry[3]


@pytest.mark.parametrize(
    ("guard_probability", "mean_cost"),
    # 2 * 0.85 + 20 * 0.15 = 4.70 and 2 * 0.90 + 20 * 0.10 = 3.80.
    [(0.15, 4.70), (0.10, 3.80)],
)
def test_short_way_has_the_known_length_return_and_cost(guard_probability, mean_cost):
    params = GuardedMaze(guard_probability)
    length, total, cost, goal = roll_out(
        params, short_path(params), 20_000, jax.random.key(11)
    )
    assert float(length.mean()) == pytest.approx(4.5, rel=0.05)
    assert float(total.mean()) == pytest.approx(12.5, rel=0.05)
    assert goal.mean() > 0.995
    assert set(np.unique(cost).tolist()) == {2.0, 20.0}
    # Four standard errors: 4 * 18 * sqrt(p * (1 - p) / 20000), 0.18 and 0.15.
    assert float(cost.mean()) == pytest.approx(mean_cost, abs=0.18)
    worst = np.sort(np.asarray(cost))[-1000:]
    assert worst.mean() == 20.0


def test_long_way_has_the_known_length_return_and_cost():
    params = GuardedMaze()
    length, total, cost, goal = roll_out(
        params, long_path(params), 20_000, jax.random.key(12)
    )
    assert float(length.mean()) == pytest.approx(11.0, rel=0.05)
    assert float(total.mean()) == pytest.approx(6.3, rel=0.05)
    assert goal.mean() > 0.995
    assert set(np.unique(cost[goal == 1]).tolist()) == {4.0}
    assert float(cost.mean()) == pytest.approx(4.0, rel=0.005)


def test_followers_find_their_way_through_the_large_maze():
    params = GuardedMaze(map="16x16", time_limit=200)
    for make, expected in ((short_path, {2.0, 20.0}), (long_path, {0.0})):
        _, _, cost, goal = roll_out(params, make(params), 2000, jax.random.key(0))
        assert goal.mean() > 0.995
        assert set(np.unique(cost).tolist()) == expected


def test_recorded_episode_is_the_one_that_was_played():
    params = GuardedMaze(action_noise=0.0)
    options = {"xy": (4.0, 1.0), "guard": True}
    episode = record_episode(
        jax.random.key(0), params, short_path(params), "short", options
    )
    assert episode.positions[0].tolist() == [4, 1]
    assert episode.costs.tolist() == [20.0] + [0.0] * (len(episode.costs) - 1)
    assert episode.guard is True
    assert len(episode.positions) == len(episode.rewards) + 1


def test_batch_is_the_same_as_one_by_one():
    params = GuardedMaze()
    state, _ = reset(jax.random.key(0), params, (32,))
    action = jax.random.uniform(jax.random.key(1), (32, 2), minval=-1)
    noise = jax.random.normal(jax.random.key(2), (32, 2))
    together = _transition(state, action, noise, params)
    single = functools.partial(transition, params=params)
    one_by_one = jax.jit(jax.vmap(single))(state, action, noise)
    for a, b in zip(
        jax.tree.leaves(together), jax.tree.leaves(one_by_one), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_one_compilation_serves_equal_mazes():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def start(params, key):
        traces.append(1)
        return params.reset(key)

    for _ in range(3):
        start(GuardedMaze(pink_cell=(6, 3)), jax.random.key(0))
    assert len(traces) == 1
    start(GuardedMaze(), jax.random.key(0))
    assert len(traces) == 2


def test_spec_says_what_an_episode_can_cost_and_how_long_it_is():
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
        ({"guard_probability": 1.5}, r"guard_probability must be a number in \[0, 1\]"),
        ({"red_cost": -1.0}, "red_cost must be a number of at least 0, .* A cost is"),
        ({"bonus": float("inf")}, "bonus must be a number that is finite, got inf"),
        ({"step_scale": 0.0}, "step_scale must be above 0, got 0: no action"),
        ({"action_noise": float("nan")}, "action_noise must be a number"),
        ({"step_scale": 2.5}, "could jump a wall"),
        ({"time_limit": 0}, "time_limit must be a whole number of steps, at least 1"),
        ({"cost_mode": "episodes"}, "Did you mean 'episode'"),
        ({"pink_cell": (5, 4)}, r"pink_cell must be a free cell .* which is #"),
        ({"pink_cell": (60, 4)}, "outside the map"),
    ],
)
def test_parameter_out_of_range_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        GuardedMaze(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_paid_steps": 2.5}, "num_paid_steps must be a whole number"),
        ({"time_limit": True}, "time_limit must be a whole number"),
        ({"guard_probability": "low"}, "guard_probability must be a number"),
        ({"map": 8}, "map must be a name or a drawing in text, got 8"),
    ],
)
def test_parameter_of_another_kind_is_refused(parameters, message):
    wrong = SimpleNamespace(**vars(GuardedMaze()) | parameters)
    with pytest.raises(ValueError, match=message):
        check_parameters(wrong)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([6], "pink_cell must be 2 numbers, got"),
        ("64", "pink_cell must be 2 numbers, got '64'"),
        ((6, 4.5), "pink_cell must be 2 whole numbers"),
    ],
)
def test_cell_that_is_none_is_refused(value, message):
    assert as_tuple("pink_cell", [6.0, 4], int, 2) == (6, 4)
    with pytest.raises(ValueError, match=message):
        as_tuple("pink_cell", value, int, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xy": (5, 3)}, r"which is in the wall cell \(5, 3\)"),
        ({"xy": (9, 1)}, "which is outside the map. The map is 8 by 8"),
        ({"xy": (1, 2, 3)}, "one point"),
        ({"gaurd": True}, "Did you mean 'guard'"),
    ],
)
def test_impossible_place_is_refused(options, message):
    params = GuardedMaze()
    state, _ = reset(jax.random.key(0), params)
    with pytest.raises(ValueError, match=message):
        place(state, options, params)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"xy": "ab"}, "xy must be two numbers"),
        ({"xy": (1j, 1.0)}, "xy must be two numbers"),
        ({"xy": (6.0, 2.0)}, r"in the goal cell \(6, 2\)"),
        ({"guard": "no"}, "guard must be True or False"),
        ({"guard": 2}, "guard must be True or False"),
        ({"guard": [True, False]}, "guard must be True or False"),
    ],
)
def test_a_placement_that_means_nothing_is_refused(options, fragment):
    maze = GuardedMaze()
    state, _ = maze.reset(jax.random.key(0))
    with pytest.raises(ValueError, match=fragment):
        maze.place(state, options)
