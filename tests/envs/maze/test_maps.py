"""Tests of the maps of GuardedMaze: the two named ones, drawn ones and invalid ones."""

import pytest

from orac.envs.maze.env import GuardedMaze
from orac.envs.maze.maps import GOAL, RED, WALL, load_map

DRAWN = """
    ######
    #s..G#
    #sRP.#
    ######
"""


def test_small_map_is_that_of_the_paper():
    small = load_map("8x8")
    assert (small.cells("R"), small.cells("P")) == (((5, 1),), ((6, 4),))
    assert (small.cells("B"), small.cells("G")) == (((6, 6),), ((6, 2),))
    assert small.start_box == (0.6, 0.6, 3.6, 3.6)
    inner = {(x, y) for x, y in small.cells("#") if 0 < x < 7 and 0 < y < 7}
    assert inner == {(3, 5), (4, 5), (5, 5), (5, 4), (5, 3), (5, 2)}


def test_large_map_is_the_second_map_of_the_authors():
    large = load_map("16x16")
    assert set(large.cells("R")) == {(x, y) for x in (11, 12) for y in (1, 2, 3)}
    assert set(large.cells("G")) == {(x, y) for x in (13, 14) for y in (4, 5)}
    assert large.start_box == pytest.approx((0.6, 0.6, 6.4, 6.4))
    walls = {(x, y) for x, y in large.cells("#") if 0 < x < 15 and 0 < y < 15}
    bars = [(range(1, 7), (7, 8)), (range(5, 13), (11, 12)), ((11, 12), range(4, 12))]
    assert walls == {(x, y) for xs, ys in bars for x in xs for y in ys}


def test_flags_are_indexed_by_x_and_then_y():
    flags = load_map("8x8").flags()
    assert (flags[5, 1], flags[6, 2], flags[5, 2], flags[1, 1]) == (RED, GOAL, WALL, 0)


def test_drawn_map_starts_in_its_s_cells_and_its_size_sets_the_time_limit():
    drawn = load_map(DRAWN)
    assert (drawn.width, drawn.height) == (6, 4)
    assert drawn.start_box == pytest.approx((0.6, 0.6, 1.4, 2.4))
    assert drawn.time_limit == 75
    assert GuardedMaze(map=DRAWN).spec.observation_high == (5.0, 3.0)


def test_start_box_and_pink_cell_replace_those_of_the_map():
    drawn = load_map(DRAWN, (3.0, 2.0, 3.2, 2.2), (4, 1))
    assert drawn.start_box == (3.0, 2.0, 3.2, 2.2)
    assert drawn.cells("P") == ((4, 1),)


def test_pink_cell_on_a_start_cell_does_not_change_the_start_box():
    moved = load_map("16x16", pink_cell=load_map("16x16").cells("s")[0])
    assert moved.start_box == load_map("16x16").start_box
    assert len(moved.cells("P")) == 1


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ("8x9", "map must be 8x8, 16x16 or a drawing .* got '8x9'. Did you mean '8x8'"),
        ("####\n#.G#\n####", "has no start: draw s cells, or pass start_box"),
        ("####\n#s.#\n####", "has no goal: draw at least one G"),
        ("#####\n#s#G#\n#####", r"goal cannot be reached from the start cell \(1, 1\)"),
        ("####\n#sG.\n####", "outer ring of a map must be wall"),
        ("####\n#sG#\n#####", r"same width, got \[4, 5\]"),
        ("####\n#sX#\n####", "drawn with .*, got X"),
        ("#####\n#s.s#\n#..G#\n#####", "must fill one rectangle, got 2 cells"),
        ("\n\n", "no rows"),
    ],
)
def test_invalid_map_raises_an_error(drawing, message):
    with pytest.raises(ValueError, match=message):
        load_map(drawing)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((0.2, 1.0, 2.0, 2.0), r"touches cell \(0, 1\), which is a wall"),
        ((1.0, 1.0, 9.0, 2.0), "a wall or outside the map"),
        ((2.0, 1.0, 1.0, 2.0), "x_low, y_low, x_high, y_high"),
    ],
)
def test_start_box_outside_the_free_cells_raises_an_error(box, message):
    with pytest.raises(ValueError, match=message):
        load_map("8x8", box)


def test_goal_behind_a_diagonal_gap_counts_as_unreachable():
    with pytest.raises(ValueError, match="cannot be reached"):
        load_map("#####\n#.#G#\n#s.##\n#####")
