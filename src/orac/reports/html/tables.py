"""One table, spelled four ways: HTML, markdown, LaTeX and plain text; and CSV.

Cells are text and may hold anything: each spelling escapes what would break it.
"""

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orac.evaluation.intervals import Interval

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


@dataclass(frozen=True)
class Table:
    """Rows of text under a title; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def number(value: float) -> str:
    """Four significant digits, and what is whole or in the thousands without a point.

    What is not finite is a dash, as what is not known.
    """
    if not math.isfinite(value):
        return "–"
    whole = value == round(value) or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def cell(interval: Interval | None) -> str:
    """Mean and interval, or why there is none; nothing is a dash."""
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None or interval.low == interval.high:
        why = "" if interval.n == 1 else " [all seeds equal]"
        return f"{number(interval.estimate)}{why}"
    width = interval.high - interval.low
    # Two digits of the width: more would pretend to know more.
    places = min(max(1 - math.floor(math.log10(width)), 1 if width < 100 else 0), 8)
    mean, low, high = (
        f"{x:,.{places}f}" for x in (interval.estimate, interval.low, interval.high)
    )
    return f"{mean} [{low}, {high}]"


def to_markdown(table: Table) -> str:
    """A GitHub-flavoured table that is aligned for readers of the source as well."""

    def escape(text: str) -> str:
        # HTML in markdown is HTML: a name must not become a tag.
        plain = text.replace("&", "&amp;").replace("<", "&lt;")
        return plain.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")

    rows = [[escape(text) for text in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_aligned(row, widths, " | ") for row in rows]
    rule = " | ".join("-" * width for width in widths)
    body = "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])
    notes = "".join(f"\n{escape(note)}\n" for note in table.notes)
    return f"## {escape(table.title)}\n\n{body}\n{notes}"


def to_text(table: Table) -> str:
    """Columns for a terminal."""
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_aligned(row, widths, "  ").rstrip() for row in rows]
    return "\n".join([table.title, *(f"  {x}" for x in lines), *table.notes, ""])


def _aligned(row: Sequence[str], widths: Sequence[int], separator: str) -> str:
    padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
    return separator.join(padded)


def to_latex(table: Table) -> str:
    """A `table` environment that needs no package."""

    def line(row: Iterable[str]) -> str:
        return " & ".join(map(latex_escape, row)) + r" \\"

    notes = [f"% {note}" for note in table.notes]
    body = [line(row) for row in table.rows]
    return "\n".join(
        [
            *(note.replace("\n", " ") for note in notes),
            r"\begin{table}",
            rf"\caption{{{latex_escape(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"\hline",
            line(table.columns),
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return escaped.replace("–", "--").replace("−", "$-$").replace("\n", " ")


def to_html(table: Table) -> str:
    """A table that scrolls by itself where the screen is narrow."""
    head = "".join(f"<th scope=col>{html.escape(x)}</th>" for x in table.columns)
    body = "\n".join(
        f"<tr><th scope=row>{html.escape(row[0])}</th>"
        + "".join(_html_cell(text) for text in row[1:])
        + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in table.notes)
    return (
        f"<h3>{html.escape(table.title)}</h3><div class=scroll tabindex=0><table>"
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{notes}\n"
    )


def _html_cell(text: str) -> str:
    # Words may be broken into lines, numbers with their intervals not.
    kind = " class=words" if len(text) > 24 and "[" not in text else ""
    return f"<td{kind}>{html.escape(text)}</td>"


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers for programs, with nothing rounded; what is not known stays empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()
