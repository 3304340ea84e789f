"""Format tables of text as HTML, markdown, LaTeX or plain text, and rows as CSV.

Cells may contain any text, because every format escapes its special characters.
"""

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orac.evaluation.seed_intervals import Interval

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
    """Rows of text with a title and notes. The first column has the names of the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def number(value: float) -> str:
    """Format a number as text; the text is a dash if the number is not finite.

    Numbers with an absolute value of at least 1000 are rounded to a whole number. Other
    numbers that are not whole are rounded to four significant digits.
    """
    if not math.isfinite(value):
        return "–"
    whole = value == round(value) or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def span(values: Sequence[float]) -> str:
    """Format the smallest and the largest value, as in `2 to 5`.

    The text is a single number if both look the same, and a dash if there are no values.
    """
    if not values:
        return "–"
    low, high = number(float(min(values))), number(float(max(values)))
    return low if low == high else f"{low} to {high}"


def cell(interval: Interval | None) -> str:
    """Format a mean with its interval; None becomes a dash.

    With one seed, there is no interval. If all seeds have the same value, there is none
    either, and the cell says why.
    """
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None or interval.low == interval.high:
        reason = "" if interval.n == 1 else " [same value for all seeds]"
        return f"{number(interval.estimate)}{reason}"
    width = interval.high - interval.low
    # Two digits of the width are enough; more would suggest too much precision.
    places = min(max(1 - math.floor(math.log10(width)), 1 if width < 100 else 0), 8)
    mean, low, high = (
        f"{x:,.{places}f}" for x in (interval.estimate, interval.low, interval.high)
    )
    return f"{mean} [{low}, {high}]"


def to_markdown(table: Table) -> str:
    """Format as GitHub-flavoured markdown, with aligned columns in the source."""

    def escape(text: str) -> str:
        # A markdown renderer would interpret HTML in the text.
        plain = text.replace("&", "&amp;").replace("<", "&lt;")
        return plain.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")

    rows = [[escape(text) for text in row] for row in (table.columns, *table.rows)]
    rule = ["-" * max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = _aligned([rows[0], rule, *rows[1:]], " | ")
    body = "\n".join(f"| {line} |" for line in lines)
    notes = "".join(f"\n{escape(note)}\n" for note in table.notes)
    return f"## {escape(table.title)}\n\n{body}\n{notes}"


def to_text(table: Table) -> str:
    """Format as aligned columns for a terminal."""
    lines = [
        f"  {line}".rstrip() for line in _aligned([table.columns, *table.rows], "  ")
    ]
    return "\n".join([table.title, *lines, *table.notes, ""])


def _aligned(rows: Sequence[Sequence[str]], separator: str) -> list[str]:
    """Return one line per row, with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [separator.join(map(str.ljust, row, widths)) for row in rows]


def to_latex(table: Table) -> str:
    """Format as a `table` environment that needs no LaTeX package."""

    def line(row: Iterable[str]) -> str:
        return " & ".join(map(_latex_escape, row)) + r" \\"

    parts = [
        *(f"% {note}".replace("\n", " ") for note in table.notes),
        r"\begin{table}",
        rf"\caption{{{_latex_escape(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        *(r"\hline", line(table.columns), r"\hline"),
        *map(line, table.rows),
        *(r"\hline", r"\end{tabular}", r"\end{table}", ""),
    ]
    return "\n".join(parts)


def _latex_escape(text: str) -> str:
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return escaped.replace("–", "--").replace("−", "$-$").replace("\n", " ")


def to_html(table: Table) -> str:
    """Format as an HTML table that scrolls sideways on narrow screens."""

    def cell_of(text: str) -> str:
        # Long text may wrap, but a number with its interval must not.
        kind = " class=words" if len(text) > 24 and "[" not in text else ""
        return f"<td{kind}>{html.escape(text)}</td>"

    head = "".join(f"<th scope=col>{html.escape(x)}</th>" for x in table.columns)
    body = "\n".join(
        f"<tr><th scope=row>{html.escape(name)}</th>{''.join(map(cell_of, cells))}</tr>"
        for name, *cells in table.rows
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in table.notes)
    return (
        f"<h3>{html.escape(table.title)}</h3><div class=scroll tabindex=0><table>"
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{notes}\n"
    )


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format as CSV with unrounded numbers; None becomes an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()
