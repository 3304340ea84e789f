"""When the demo calls it a success, and when it stops."""

from orac.cli.demo import Success
from orac.training.loop import Event

LONG, GUARDED = (1, 4.0), (-1, 2.0)
CAUGHT = (-1, 20.0)


def watch(*evaluations):
    """Whether training goes on after each evaluation, and who watched."""
    success = Success()
    going_on = []
    for number, (long, guarded, caught) in enumerate(evaluations, start=1):
        ends = [LONG] * long + [GUARDED] * guarded + [CAUGHT] * caught
        rows = [{"path": float(path), "cost": cost} for path, cost in ends]
        event = Event(1000 * number, {}, rows, agent=None)
        going_on.append(success(event))
    return going_on, success


def test_the_long_path_twice_in_a_row_is_success():
    going_on, success = watch((100, 0, 0), (10, 90, 0), (95, 5, 0), (90, 10, 0))
    assert all(going_on) and success.found_at == 4000


def test_it_goes_on_until_the_long_path_is_sure_twice_in_a_row():
    going_on, success = watch(
        (95, 4, 1), (98, 2, 0), (97, 3, 0), (98, 1, 1), (99, 1, 0)
    )
    assert going_on == [True, True, True, True, False]
    # Found is found, though it was surer later.
    assert success.found_at == 2000


def test_ninety_percent_once_or_with_a_gap_is_no_success():
    going_on, success = watch((90, 10, 0), (89, 11, 0), (90, 10, 0))
    assert all(going_on) and success.found_at is None


def test_between_evaluations_training_goes_on():
    assert Success()(Event(500, {}, None, agent=None))
