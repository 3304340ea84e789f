"""Tests of `orac demo`: when it succeeds and when it stops training."""

from orac.cli.demo import LongPathCallback
from orac.training.loop import Event

LONG, GUARDED = (1, 4.0), (-1, 2.0)
CAUGHT = (-1, 20.0)


def evaluate(*evaluations):
    """Return whether training continues after each evaluation, and the callback."""
    callback = LongPathCallback()
    continues = []
    for number, (long, guarded, caught) in enumerate(evaluations, start=1):
        episodes = [LONG] * long + [GUARDED] * guarded + [CAUGHT] * caught
        rows = [{"path": float(path), "cost": cost} for path, cost in episodes]
        event = Event(1000 * number, {}, rows, agent=None)
        continues.append(callback(event))
    return continues, callback


def test_ninety_percent_on_the_long_path_twice_in_a_row_is_a_success():
    continues, callback = evaluate((100, 0, 0), (10, 90, 0), (95, 5, 0), (90, 10, 0))
    assert all(continues) and callback.found_at == 4000


def test_training_stops_after_ninety_eight_percent_twice_in_a_row():
    continues, callback = evaluate(
        (95, 4, 1), (98, 2, 0), (97, 3, 0), (98, 1, 1), (99, 1, 0)
    )
    assert continues == [True, True, True, True, False]
    # The first success counts, although later evaluations were better.
    assert callback.found_at == 2000


def test_ninety_percent_once_or_with_a_gap_is_not_a_success():
    continues, callback = evaluate((90, 10, 0), (89, 11, 0), (90, 10, 0))
    assert all(continues) and callback.found_at is None


def test_training_continues_between_evaluations():
    assert LongPathCallback()(Event(500, {}, None, agent=None))
