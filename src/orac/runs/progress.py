"""Progress display of a run: a bar in a terminal, plain lines elsewhere.

The bar starts no thread and handles no signals, so that Ctrl-C reaches the training loop.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REFRESH_SECONDS = 0.2
UNCHANGED_SECONDS = 60.0
"""Minimum time between plain lines if neither the step nor a metric has changed."""


class Progress:
    """Shows the steps, the steps per second, the time left and the newest metrics."""

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        *,
        quiet: bool = False,
        line_seconds: float = 5.0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show the progress from `start_step` to `total_steps`.

        Plain lines are at least `line_seconds` apart. With `quiet`, nothing is shown.
        """
        self.total_steps = total_steps
        self._quiet, self._line_seconds = quiet, line_seconds
        self._console, self._clock = console or Console(), clock
        self._step = self._shown_step = start_step
        self._shown_at = -math.inf
        self._shown_metrics: dict[str, float | str] = {}
        # Only recent times are stored, because the speed may change.
        self._times = deque([(clock(), start_step)], maxlen=12)
        self._metrics: dict[str, float | str] = {}
        self._live: Live | None = None

    def update(self, step: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Set the step and some metrics, and refresh the display if enough time has passed.

        A metric is a number or a string; NaN means that it has no value yet. Metrics that
        are not given do not change.
        """
        now, self._step = self._clock(), step
        for name, value in (metrics or {}).items():
            self._metrics[name] = value if isinstance(value, str) else float(value)
        if step > self._times[-1][1]:
            self._times.append((now, step))
        is_bar = self._console.is_terminal
        wait = REFRESH_SECONDS if is_bar else self._line_seconds
        if not is_bar and (step, self._metrics) == (
            self._shown_step,
            self._shown_metrics,
        ):
            wait = max(wait, UNCHANGED_SECONDS)
        if not self._quiet and now - self._shown_at >= wait:
            self._shown_at = now
            self._show(is_bar)

    def notes(self, sentences: Iterable[str]) -> None:
        """Print sentences as notes; if the display is quiet, log them as warnings."""
        for sentence in sentences:
            if self._quiet:
                logging.getLogger("orac").warning(sentence)
            else:
                self.print(f"note: {sentence}")

    def print(self, line: str) -> None:
        """Print a line above the bar, unless the display is quiet."""
        if not self._quiet:
            console = self._live.console if self._live else self._console
            console.print(Text(line), soft_wrap=True)

    def _show(self, is_bar: bool) -> None:
        self._shown_step, self._shown_metrics = self._step, {**self._metrics}
        if not is_bar:
            # A `Text` is printed as it is. In a string, brackets would start mark-up, and
            # words between colons could become emoji.
            self._console.print(Text(self.line()), soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        share = self._step / max(1, self.total_steps)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=1.0, completed=share, width=20),
            f"{share:4.0%}",
            f"{self._step:,}/{self.total_steps:,}",
            self._speed(),
        )
        bar = Group(grid, Text(self._numbers(), overflow="fold"))
        self._live.update(bar, refresh=True)

    def line(self) -> str:
        """Return the whole display as one line of plain text."""
        steps = f"step {self._step:,}/{self.total_steps:,}"
        return f"{steps}  {self._speed()}  {self._numbers()}".rstrip()

    def _speed(self) -> str:
        """Return the speed over the last few updates, and the time left at this speed.

        If there are three or more intervals between updates, the slowest is left out, because
        it may include a compilation. With fewer intervals, the time left is not known.
        """
        intervals = [(b - a, n - m) for (a, m), (b, n) in pairwise(self._times)]
        intervals.sort(key=lambda interval: interval[0] / interval[1])
        used = intervals[:-1] if len(intervals) > 2 else intervals
        seconds, steps = map(sum, zip(*used, strict=True)) if used else (0.0, 0)
        rate = steps / seconds if seconds > 0 else 0.0
        known = len(intervals) > 2 and rate > 0
        left = max(0, self.total_steps - self._step) / rate if known else None
        return f"{rate:,.0f} steps/s  left {clock_text(left)}"

    def _numbers(self) -> str:
        # A metric that has no value yet is shown as a dash.
        def text_of(value: float | str) -> str:
            if isinstance(value, str):
                return value
            return "-" if math.isnan(value) else f"{value:.4g}"

        return "  ".join(f"{k} {text_of(v)}" for k, v in self._metrics.items())

    def close(self) -> None:
        """Show the last state and release the terminal. Closing twice has no effect."""
        if not self._quiet and self._shown_step != self._step:
            self._show(self._console.is_terminal)
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._quiet = True

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clock_text(seconds: float | None) -> str:
    """Format a duration as hours:minutes:seconds, and an unknown one as `?`."""
    if seconds is None:
        return "?"
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
