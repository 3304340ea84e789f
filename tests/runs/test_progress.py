"""Tests of the progress bar in a terminal, and of the lines that replace it elsewhere."""

import io
import signal

import pytest
from rich.console import Console

from orac.runs.progress import Progress

METRICS = {"risk": 5.5, "limit": 5.0, "reward": 12.3456, "cost": 4, "multiplier": 0.25}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def make(total=1000, terminal=False, **options):
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    return Progress(total, console=console, clock=clock, **options), clock, stream


def test_a_plain_line_has_step_speed_time_left_and_metrics():
    progress, clock, stream = make()
    with progress:
        clock.now += 10
        progress.update(200, METRICS)
    assert stream.getvalue() == (
        "step 200/1,000  20 steps/s  left ?  "
        "risk 5.5  limit 5  reward 12.35  cost 4  multiplier 0.25\n"
    )


def test_a_metric_without_a_value_is_a_dash():
    progress, clock, stream = make()
    with progress:
        clock.now += 10
        unknown = dict.fromkeys(("reward", "cost", "risk"), float("nan"))
        progress.update(200, METRICS | unknown)
    assert stream.getvalue().endswith(
        "risk -  limit 5  reward -  cost -  multiplier 0.25\n"
    )


def test_plain_lines_are_printed_every_few_seconds_and_at_the_end():
    progress, clock, stream = make(line_seconds=5.0)
    for step in range(1, 101):
        clock.now += 0.4
        progress.update(step)
    progress.close()
    progress.close()
    lines = stream.getvalue().splitlines()
    # 40 seconds: at 0.4, then each time 13 steps (5.2 s) later, and the last step.
    shown = [int(line.split()[1].split("/")[0]) for line in lines]
    assert shown == [1, 14, 27, 40, 53, 66, 79, 92, 100]


def test_plain_lines_without_news_are_rare():
    progress, clock, stream = make(line_seconds=5.0)
    for _ in range(110):
        clock.now += 1
        progress.update(0, {"seed 0": "0%"})
    progress.update(0, {"seed 0": "1%"})
    lines = stream.getvalue().splitlines()
    assert [line.split()[-1] for line in lines] == ["0%", "0%", "1%"]


def test_a_long_line_is_neither_wrapped_nor_coloured():
    progress, clock, stream = make()
    clock.now += 1
    progress.update(1, {f"a rather [long] :name: {i}": i for i in range(20)})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("a rather [long] :name: 19 19")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_note_is_printed_as_it_is(terminal):
    progress, clock, stream = make(terminal=terminal)
    with progress:
        clock.now += 10
        progress.update(200, METRICS)
        progress.notes(["every [cost] is :zero:."])
    assert "note: every [cost] is :zero:.\n" in stream.getvalue().replace("\r", "")


def test_a_note_of_a_quiet_run_is_logged(caplog):
    progress, _, stream = make(quiet=True)
    progress.notes(["every cost is zero."])
    assert not stream.getvalue() and caplog.messages == ["every cost is zero."]


def test_quiet_prints_nothing():
    for terminal in (True, False):
        progress, clock, stream = make(quiet=True, terminal=terminal)
        clock.now += 10
        progress.update(500, METRICS)
        progress.close()
        assert stream.getvalue() == ""


def test_nothing_is_printed_for_a_run_without_updates():
    progress, _, stream = make()
    progress.close()
    assert stream.getvalue() == ""


def test_the_bar_shows_everything_and_restores_the_cursor():
    progress, clock, stream = make(terminal=True)
    with progress:
        clock.now += 10
        progress.update(200, METRICS)
        for step in (350, 500):
            clock.now += 5
            progress.update(step)
    shown = stream.getvalue()
    for text in ("20%", "50%", "500/1,000", "30 steps/s", "left 0:00:17", "risk 5.5"):
        assert text in shown
    assert shown.count("\x1b[?25l") == 1, "the cursor is hidden once"
    assert shown.rstrip("\n").endswith("\x1b[?25h"), "and shown again at the end"


def test_the_bar_is_drawn_at_most_a_few_times_per_second():
    progress, clock, stream = make(terminal=True)
    with progress:
        for step in range(1000):
            clock.now += 0.001
            progress.update(step)
    assert stream.getvalue().count("steps/s") <= 8


def test_the_speed_excludes_the_compilation():
    progress, clock, _ = make(total=100_000)
    clock.now += 60
    progress.update(100)
    assert progress.line().endswith("left ?"), "most of this time was compilation"
    for step in range(200, 3200, 100):
        clock.now += 1
        progress.update(step)
        if step == 300:
            # Two of the first three updates took one second.
            assert progress.line().endswith("  100 steps/s  left 0:16:37")
    # 969 seconds are left: (100,000 - 3,100) / 100.
    assert progress.line().endswith("  100 steps/s  left 0:16:09")


def test_the_speed_of_a_resumed_run_counts_only_new_steps():
    progress, clock, _ = make(start_step=600)
    for step in (700, 800, 900):
        clock.now += 10
        progress.update(step)
    assert progress.line().endswith("  10 steps/s  left 0:00:10")


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_is_not_swallowed(terminal):
    progress, clock, stream = make(terminal=terminal)
    # A process that was started in the background ignores this signal by default.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), progress:
            clock.now += 1
            progress.update(10, METRICS)
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not terminal or stream.getvalue().rstrip("\n").endswith("\x1b[?25h")
