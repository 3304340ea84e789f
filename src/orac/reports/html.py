"""Make the HTML report: one file with tables, plotly charts, pictures and configs.

The page works offline. It contains plotly.js, and its content security policy makes the
browser refuse every network request. In the HTML, text from runs is always escaped. The package
plotly is needed only for the source of plotly.js (`plotly_source`), because `plotly_figures`
returns charts as plain lists and dicts.
"""

import base64
import html
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from orac.config import serialization
from orac.config.reading import read_limited
from orac.config.validation import import_extra
from orac.reports import behaviour, charts
from orac.reports.charts import LineChart
from orac.reports.matplotlib_figures import figure_bytes
from orac.reports.plotly_figures import to_plotly
from orac.reports.run_reader import Group, Results, count, full_label
from orac.reports.tables import Table, to_html

_PICTURE_BYTES = 3_000_000
"""Maximum total bytes of the PNG files that a page includes. The page names the others."""
_PNG = b"\x89PNG\r\n\x1a\n"


def make_page(
    results: Results,
    env_tables: dict[str, tuple[list[Table], list[Table]]],
    configs: Table | None,
    runs: Table,
    roots: Sequence[Path],
) -> str:
    """Return the whole page as HTML.

    `env_tables` has the tables above and below the charts of each environment. `configs` is
    the table of differences between configs; None if the configs do not differ. The page
    includes the PNG files in `roots`, in the run directories and in their parent directories.
    """
    plots: list[dict[str, Any]] = []
    sections = []
    for env_id, groups in results.by_env().items():
        labels = [group.label for group in groups]
        figures = ""
        for chart in charts.report_charts(groups):
            is_line = isinstance(chart, LineChart)
            note, is_wide = chart.note if is_line else "", is_line and chart.wide_until
            figures += figure(chart.title, note, len(plots), bool(is_wide))
            plots.append(to_plotly(chart, labels))
        above, below = ("".join(map(to_html, part)) for part in env_tables[env_id])
        sections.append(
            f"<section><h2>{html.escape(env_id)}</h2>{above}"
            f"<div class=charts>{figures}</div>{_behaviour(groups)}{below}</section>"
        )
    sections += [
        _pictures(results, roots),
        _configs(configs, results.groups),
        f"<section><h2>Runs</h2>{to_html(runs)}</section>",
    ]
    lead = (
        f"<p>This page shows {count(len(results.runs), 'run')} of "
        f"{count(len(results.groups), 'config')} in "
        f"{count(len(results.by_env()), 'environment')}. It was made on "
        f"{time.strftime('%Y-%m-%d')}.</p>"
    )
    return fill_page(lead + _notes(results.notes), sections, plots)


def fill_page(
    lead: str, sections: Sequence[str], plots: Sequence[dict[str, Any]]
) -> str:
    """Return page.html with the given content.

    `lead` and `sections` are HTML. `plots` has plotly's data and layout of each chart.
    """
    template = files("orac.reports").joinpath("page.html").read_text(encoding="utf-8")
    data = json.dumps(plots, allow_nan=False, separators=(",", ":"))
    parts = {
        "@LEAD@": lead,
        "@SECTIONS@": "\n".join(sections),
        # Only "<" could end the surrounding script element early.
        "@CHARTS@": data.replace("<", "\\u003c"),
        "@PLOTLY@": plotly_source(),
    }
    # The template is filled from left to right, so that inserted text that contains the name
    # of a placeholder stays as it is.
    text = []
    for name, part in parts.items():
        before, _, template = template.partition(name)
        text += [before, part]
    return "".join([*text, template])


def plotly_source() -> str:
    """Return the source of plotly.js."""
    advice = "Tables do not need it: use --format markdown, latex or csv."
    plotly = import_extra("The HTML report", "report", "plotly.offline", advice=advice)
    return plotly.get_plotlyjs()


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<ul class=notes>{items}</ul>" if items else ""


def figure(title: str, note: str, number: int, is_wide: bool = False) -> str:
    """Return the HTML element into which the page's script draws the chart `number`."""
    title = html.escape(title)
    below = f"<p class=note>{html.escape(note)}</p>" if note else ""
    return (
        f"<figure{' class=wide' if is_wide else ''}><figcaption>{title}</figcaption>"
        f'<div class=chart id="chart-{number}" role=img aria-label="{title}"></div>'
        f"{below}</figure>"
    )


def _behaviour(groups: Sequence[Group]) -> str:
    """Play episodes of the policies and return pictures of them as HTML."""
    try:
        pictures, notes = behaviour.behaviour_pictures(groups)
    except ImportError as error:
        pictures, notes = [], [f"No pictures of the policies: {error}"]
    images = [(figure_bytes(x.figure, "png", dpi=110), x.title) for x in pictures]
    return _images(images) + _notes(notes)


def _images(pictures: Sequence[tuple[bytes, str]]) -> str:
    """Return the HTML of PNG files with their captions."""
    images = ""
    for data, caption in pictures:
        source, text = base64.b64encode(data).decode(), html.escape(caption)
        images += (
            f'<figure><img alt="{text}" src="data:image/png;base64,{source}">'
            f"<figcaption>{text}</figcaption></figure>"
        )
    return f"<div class=pictures>{images}</div>" if images else ""


def _pictures(results: Results, roots: Sequence[Path]) -> str:
    """Return a section with the PNG files in `roots`, the run directories and their parents.

    The text is empty if there are no PNG files.
    """
    runs = [run.path for run in results.runs]
    places = dict.fromkeys([*roots, *(path.parent for path in runs), *runs])
    found = {file.resolve(): file for p in places for file in sorted(p.glob("*.png"))}
    pictures, left_out, bytes_left = [], [], _PICTURE_BYTES
    for path in found.values():
        if not path.is_file():
            continue
        try:
            data = read_limited(path, bytes_left)
        except (ValueError, OSError):
            left_out.append(html.escape(str(path)))
            continue
        if not data.startswith(_PNG):
            continue
        bytes_left -= len(data)
        pictures.append((data, str(path)))
    body = _images(pictures)
    if left_out:
        body += (
            "<p class=note>Left out, because they are too large or unreadable: "
            f"{', '.join(left_out)}</p>"
        )
    return f"<section><h2>Pictures</h2>{body}</section>" if body else ""


def _configs(table: Table | None, groups: Sequence[Group]) -> str:
    lead = to_html(table) if table else "<p>All runs have the same config.</p>"
    whole = "".join(
        f"<details><summary>{html.escape(full_label(group, groups))}</summary>"
        f"<pre>{html.escape(serialization.dump(group.config))}</pre></details>"
        for group in groups
    )
    return f"<section><h2>Configs</h2>{lead}<h3>In full</h3>{whole}</section>"
