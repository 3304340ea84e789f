"""Tests of formatting numbers and tables."""

import re

import pytest

from orac.evaluation.seed_intervals import Interval
from orac.reports.tables import Table, cell, number, span, to_html, to_latex, to_text


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (3.1, 3.2, "3.14 [3.10, 3.20]"),
        (-11.0, 17.0, "3.1 [-11.0, 17.0]"),
        (-1500.0, 1500.0, "3 [-1,500, 1,500]"),
        (None, None, "3.142 [same value for all seeds]"),
        (3.14159, 3.14159, "3.142 [same value for all seeds]"),
    ],
)
def test_interval_is_printed_as_precisely_as_it_is_known(low, high, shown):
    assert cell(Interval(3.14159, low, high, 0.95, "by hand", 5)) == shown
    assert cell(Interval(3.14159, None, None, 0.95, "one run", 1)) == "3.142"
    assert cell(None) == "–"


def test_numbers_that_are_not_finite_are_a_dash():
    assert number(float("nan")) == number(float("inf")) == "–"
    assert (number(1234.5), number(0.123456), number(7.0)) == ("1,234", "0.1235", "7")


def test_span_is_the_common_value_or_the_range():
    assert (span([]), span([2.0, 2.0]), span([3.0, 1.5])) == ("–", "2", "1.5 to 3")


def test_markdown_rows_have_as_many_cells_as_the_head(markdown_report):
    blocks = markdown_report.split("\n## ")
    assert len(blocks) == 7
    for block in blocks:
        rows = [line for line in block.splitlines() if line.startswith("|")]
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(counts) == 1 and len(rows) >= 3
    assert "<img" not in markdown_report


def test_latex_and_html_escape_what_they_interpret():
    table = Table("a_b", ("x",), (("</td>|&_%",),), ("note",))
    assert r"\textless{}/td\textgreater{}\textbar{}\&\_\% \\" in to_latex(table)
    assert r"\caption{a\_b}" in to_latex(table) and "% note" in to_latex(table)
    assert "&lt;/td&gt;|&amp;_%" in to_html(table)
    assert to_text(table) == "a_b\n  x\n  </td>|&_%\nnote\n"
