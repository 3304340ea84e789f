"""One HTML file that opens offline: tables, charts, pictures, configs, machines.

plotly.js is inlined once; a policy in the page's head forbids every request, so that
the browser itself keeps the promise. Everything that comes from a run is escaped.
"""

import base64
import html
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from orac.config import serialization as config_text
from orac.reports import behaviour as pictures
from orac.reports.html import charts, contents, origins
from orac.reports.html.tables import to_html
from orac.reports.run_groups import Group, Results

_PICTURE_BUDGET = 3_000_000
"""Bytes of PNG files that a page takes in; others are named."""
_PNG = b"\x89PNG\r\n\x1a\n"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


def make_page(found: Results, roots: Sequence[Path], level: float = 0.95) -> str:
    """The whole page as text."""
    drawn: list[charts.Chart] = []
    sections = []
    for env_id, groups in found.worlds().items():
        here = charts.world_charts(groups)
        figures = "".join(
            _figure(chart, len(drawn) + i) for i, chart in enumerate(here)
        )
        drawn += here
        first = contents.deciding_tables(env_id, groups, level)
        others = contents.further_tables(env_id, groups, level)
        sections.append(
            f"<section><h2>{html.escape(env_id)}</h2>{''.join(map(to_html, first))}"
            f"<div class=charts>{figures}</div>{_behaviour(groups)}"
            f"{''.join(map(to_html, others))}</section>"
        )
    sections += [_pictures(found, roots), _configs(found), _machines(found)]
    template = (
        files("orac.reports.html").joinpath("page.html").read_text(encoding="utf-8")
    )
    parts = {
        "@POLICY@": _POLICY,
        "@LEAD@": _lead(found),
        "@SECTIONS@": "\n".join(sections),
        "@CHARTS@": _json([{"data": c.data, "layout": c.layout} for c in drawn]),
        "@PLOTLY@": plotly_source(),
    }
    # One after the other from the left: nothing that was put in is looked at again.
    text = []
    for name, part in parts.items():
        before, _, template = template.partition(name)
        text += [before, part]
    return "".join([*text, template])


def plotly_source() -> str:
    """plotly.js, whole."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            'The report\'s charts need plotly: pip install "orac-rl[report]". '
            "Tables need nothing: --format markdown, latex or csv."
        ) from error
    return get_plotlyjs()


def _json(value: object) -> str:
    # Inside a script element only "<" could end it early.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _lead(found: Results) -> str:
    runs = sum(len(group.runs) for group in found.groups)
    words = (
        f"{_count(runs, 'run')} in {_count(len(found.groups), 'group')} of equal configs, "
        f"{_count(len(found.worlds()), 'environment')}. Made on "
        f"{time.strftime('%Y-%m-%d')}."
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in found.notes)
    return f"<p>{words}</p>" + (f"<ul class=notes>{notes}</ul>" if notes else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _figure(chart: charts.Chart, number: int) -> str:
    title = html.escape(chart.title)
    note = f"<p class=note>{html.escape(chart.note)}</p>" if chart.note else ""
    return (
        f"<figure><figcaption>{title}</figcaption>"
        f'<div class=chart id="chart-{number}" role=img aria-label="{title}"></div>'
        f"{note}</figure>"
    )


def _behaviour(groups: Sequence[Group]) -> str:
    """What the policies do, played now from the runs' checkpoints."""
    try:
        drawn, told = pictures.world_pictures(groups)
    except ImportError as error:
        drawn, told = [], [f"No pictures of the policies: {error}"]
    shown = "".join(
        _image(picture.title, pictures.to_png(picture), picture.title)
        for picture in drawn
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in told)
    images = f"<div class=pictures>{shown}</div>" if shown else ""
    return images + (f"<ul class=notes>{notes}</ul>" if notes else "")


def _image(alt: str, data: bytes, caption: str) -> str:
    source = base64.b64encode(data).decode()
    return (
        f'<figure><img alt="{html.escape(alt)}" src="data:image/png;base64,{source}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _pictures(found: Results, roots: Sequence[Path]) -> str:
    """PNG files beside the runs, as long as they fit."""
    shown, left, budget = [], [], _PICTURE_BUDGET
    for path in find_pictures(found, roots):
        data = path.read_bytes()
        if len(data) > budget:
            left.append(html.escape(str(path)))
            continue
        budget -= len(data)
        shown.append(_image(str(path), data, str(path)))
    if not shown and not left:
        return ""
    note = f"<p class=note>Left out for size: {', '.join(left)}</p>" if left else ""
    pictures = f"<div class=pictures>{''.join(shown)}</div>"
    return f"<section><h2>Pictures</h2>{pictures}{note}</section>"


def find_pictures(found: Results, roots: Sequence[Path]) -> list[Path]:
    """PNG files in the runs' directories, their parents, and the directories asked for."""
    runs = [run.path for group in found.groups for run in group.runs]
    places = dict.fromkeys([*roots, *(path.parent for path in runs), *runs])
    files_ = {file.resolve(): file for p in places for file in sorted(p.glob("*.png"))}
    return [file for file in files_.values() if file.read_bytes()[:8] == _PNG]


def _configs(found: Results) -> str:
    table = origins.config_table(found.groups)
    lead = to_html(table) if table else "<p>All runs have the same config.</p>"
    whole = "".join(
        f"<details><summary>{html.escape(origins.full_label(group, found.groups))}"
        f"</summary><pre>{html.escape(config_text.dump(group.config))}</pre></details>"
        for group in found.groups
    )
    return f"<section><h2>Configs</h2>{lead}<h3>In full</h3>{whole}</section>"


def _machines(found: Results) -> str:
    return f"<section><h2>Runs</h2>{to_html(origins.machine_table(found))}</section>"
