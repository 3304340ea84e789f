"""The commands `orac report` and `orac compare`."""

import argparse
import sys
from pathlib import Path

from orac.reports import report, tables
from orac.reports.behaviour import save_pictures
from orac.reports.compare import compare
from orac.reports.matplotlib_figures import save_figures
from orac.reports.run_reader import read_results

TITLE = b"<title>ORAC report</title>"
"""Text near the beginning of every report in HTML."""


def run_report(options: argparse.Namespace) -> int:
    """Write or print a report, and save figures if `--figures` is given."""
    if options.out or options.format in (None, "html"):
        out = options.out or default_report()
        print(f"Report: {report.write(options.paths, out, options.format)}")
    else:
        print(report.render(options.paths, options.format), end="")
    if (report.format_of(options.out) if options.out else options.format) == "csv":
        # A CSV table has no place for the notes on incomplete runs.
        for note in read_results(options.paths).notes:
            print(f"note: {note}", file=sys.stderr)
    if options.figures:
        results = read_results(options.paths)
        paths = save_figures(results, options.figures, ".pdf")
        paths += save_pictures(results, options.figures, ".pdf")
        print("\n".join(f"Figure: {path}" for path in paths))
    return 0


def default_report() -> Path:
    """Return report.html. Raises an error if that is a file that orac did not write."""
    out = Path("report.html")
    if out.is_file() and TITLE not in out.read_bytes()[:1000]:
        raise ValueError(
            f"{out} exists here already, and orac did not write it. Choose another file with "
            "--out."
        )
    return out


def run_compare(options: argparse.Namespace) -> int:
    """Print tables that compare two sets of runs."""
    to_format = getattr(tables, f"to_{options.format}")
    print("\n".join(map(to_format, compare(options.ours, options.theirs))), end="")
    return 0
