"""Write the README's results section from `results/`, between its two markers.

    python tools/readme_results.py            # rewrite README.md
    python tools/readme_results.py --check    # fail if README.md would change

`orac reproduce NAME --record results/NAME` records a study. The section contains the tables
of the studies in `MAIN`, and a link to the README of every other folder in `results/`.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
MAIN = ("limit", "contrast")
NONE = (
    "Nothing is recorded yet. `orac reproduce limit --record results/limit` runs a study "
    "and records it.\n"
)


def section(results: Path) -> str:
    """Return the text between the markers."""
    found = {path.parent.name: path for path in sorted(results.glob("*/table.md"))}
    parts = [_full_tables(found[name]) for name in MAIN if name in found]
    others = [
        path
        for path in sorted(results.glob("*/README.md"))
        if path.parent.name not in MAIN
    ]
    if others:
        links = ", ".join(map(_titled_link, others))
        parts.append(f"Other results: {links}.\n")
    return "\n".join(parts) or NONE


def _titled_link(readme: Path) -> str:
    """Return a link to a page, with the title of the page as its text."""
    title = readme.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return f"[{title}](results/{readme.parent.name}/README.md)"


def _full_tables(table: Path) -> str:
    """Return a study's tables, with headings one level lower, and links to its other files."""
    name = table.parent.name
    lines = table.read_text(encoding="utf-8").strip().split("\n")
    lowered = [f"#{line}" if line.startswith("## ") else line for line in lines]
    files = [
        ("README.md", "discussion"),
        ("runs.csv", "runs"),
        ("config.yaml", "config"),
        ("figure.png", "figure"),
    ]
    links = [
        f"[{title}](results/{name}/{file})"
        for file, title in files
        if (table.parent / file).exists()
    ]
    return "\n".join(lowered) + "\n\n" + ", ".join(links) + "\n"


def updated(readme: str, results: Path) -> str:
    """Return the text of the README with a new results section."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md must have the lines {BEGIN} and {END}, in order.")
    return f"{before}{BEGIN}\n{section(results)}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only check, write nothing"
    )
    options = parser.parse_args()
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = updated(old, ROOT / "results")
    if options.check and new != old:
        print("README.md is out of date: run python tools/readme_results.py")
        return 1
    if not options.check:
        readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
