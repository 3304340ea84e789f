"""Results as a page that people look at, and as tables for papers and programs.

`write` is the way in. `tables` knows how tables are spelled, `contents` what stands in
them, `charts` draws with plotly, `page` puts one HTML file together that opens offline.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from orac.config.validation import check_choice
from orac.reports.html import contents, page, tables
from orac.reports.run_groups import read_results

SUFFIXES = {".html": "html", ".md": "markdown", ".tex": "latex", ".csv": "csv"}
FORMATS = tuple(SUFFIXES.values())


def render(
    paths: Sequence[str | os.PathLike[str]], form: str = "html", level: float = 0.95
) -> str:
    """A report on all runs at or below `paths`, as text in one of `FORMATS`."""
    check_choice("the format of a report", form, FORMATS)
    found = read_results(paths)
    if form == "html":
        return page.make_page(found, [Path(path) for path in paths], level)
    if form == "csv":
        return tables.to_csv(*contents.long_table(found, level))
    spell = tables.to_markdown if form == "markdown" else tables.to_latex
    shown = contents.all_tables(found, level)
    return "\n".join(spell(table) for table in shown)


def form_of(out: Path, form: str | None = None) -> str:
    """The format of a file by its ending, which a format that is given must fit."""
    found = SUFFIXES.get(out.suffix.lower())
    if found is None or form not in (None, found):
        wanted = {v: k for k, v in SUFFIXES.items()}.get(form or "")
        raise ValueError(
            f"a report's file must end in {wanted or ', '.join(SUFFIXES)}"
            f"{f', as its format is {form}' if wanted else ''}; got {out.name!r}. "
            "Name the file so; figures for print are drawn as PDF by --figures DIR."
        )
    return found


def write(
    paths: Sequence[str | os.PathLike[str]], out: Path, form: str | None = None
) -> Path:
    """Write a report in the format that the file's ending names."""
    text = render(paths, form_of(out, form))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return out
