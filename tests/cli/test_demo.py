"""Tests of `orac demo`: what it prints about an evaluation."""

from orac.cli.demo import print_evaluation
from orac.training.loop import Event

LONG, GUARDED, CAUGHT, STUCK = (1, 4.0), (-1, 2.0), (-1, 20.0), (0, 0.0)


def test_an_evaluation_is_printed_with_its_paths_and_its_risk(capsys):
    episodes = [LONG] * 90 + [GUARDED] * 4 + [CAUGHT] * 1 + [STUCK] * 5
    rows = [{"path": float(path), "cost": cost} for path, cost in episodes]
    print_evaluation(Event(4000, {}, rows, agent=None))
    printed = capsys.readouterr().out
    assert "step   4,000:  90% long path,   5% through" in printed
    # The worst five episodes cost 20 + 4 * 4, which is 7.2 on average.
    assert printed.rstrip().endswith("7.2")


def test_nothing_is_printed_between_evaluations(capsys):
    print_evaluation(Event(500, {}, None, agent=None))
    assert capsys.readouterr().out == ""
