"""The documentation is true to itself: lengths, order, links, names, and no gaps."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orac.config import serialization as config_text
from orac.config.schema import Config

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import docs_coverage  # noqa: E402

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "results/**/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
pages = pytest.mark.parametrize(
    "page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES]
)


def lines_of(name):
    return (ROOT / name).read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "most"), [("README.md", 150), ("CONTRIBUTING.md", 60)]
)
def test_what_is_read_first_is_short(name, most):
    assert len(lines_of(name)) <= most


def test_the_readme_has_its_order():
    text = (ROOT / "README.md").read_text()
    order = [
        "Train a policy",
        "](docs/images/maze_paths.png)",
        "make demo",
        "## Twelve lines",
        "## Where is ...?",
        "<!-- results:begin -->",
        "<!-- results:end -->",
        "## Install",
        "## Reproduce",
        "## What this is not",
        "## Cite",
        "## Alternatives",
    ]
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)


def test_the_readme_starts_with_twelve_lines_of_python():
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert block and len(block[1].splitlines()) <= 12


def test_the_files_that_the_readme_names_exist():
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"`((?:src|docs|examples|tests|tools)/[\w./]+)`", text)
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_changelog_has_a_heading_for_results():
    headings = [line for line in lines_of("CHANGELOG.md") if line.startswith("### ")]
    known = {"Added", "Changed", "Fixed", "Removed", "Results"}
    assert "### Results" in headings
    assert {heading.removeprefix("### ") for heading in headings} <= known


@pages
def test_links_go_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            continue
        if "://" in target:
            assert target.startswith("https://"), target
        else:
            path = page.parent / target.partition("#")[0]
            assert path.exists(), target
            assert not is_ignored(path), f"{target} is here, but git ignores it"


def is_ignored(path):
    """A file of ours that others would not get with a clone."""
    command = ["git", "check-ignore", "--quiet", str(path.resolve())]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


# What is only known where the project is made has no place in what users read.
PRIVATE = re.compile(
    r"/work/|/tmp/|/root/|\bissue #?\d+|\bhelpers?\b|\bintegrator\b|\bsessions?\b", re.I
)


@pages
def test_the_project_speaks_of_itself_alone(page):
    found = PRIVATE.search(page.read_text())
    assert not found, found


@pytest.mark.parametrize("name", ["troubleshooting", "tutorial", "algorithms"])
def test_the_settings_and_columns_that_a_page_names_exist(name):
    text = (ROOT / f"docs/{name}.md").read_text()
    fields = config_text.flatten(config_text.to_dict(Config()))
    metrics = (ROOT / "docs/metrics.md").read_text()
    for dotted in re.findall(
        r"`((?:agent|training|evaluation)\.[\w.]+)(?:=[^`]*)?`", text
    ):
        assert dotted in fields or any(f.startswith(f"{dotted}.") for f in fields), (
            dotted
        )
    prefix = "constraint|train|critic|actor|explore"
    columns = re.findall(rf"`((?:{prefix})/[\w/<>]+)`", text)
    for column in columns:
        assert f"`{column}`" in metrics, column


def test_every_page_of_docs_has_a_place_in_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, page


def test_the_build_fails_on_a_name_without_a_docstring(tmp_path, monkeypatch):
    (tmp_path / "orac").mkdir()
    (tmp_path / "orac/__init__.py").write_text('_HOMES = {"Good": "orac.room"}\n')
    (tmp_path / "orac/room.py").write_text(
        '"""A room."""\n\nclass Good:\n    """Fine."""\n\n    def bad(self): ...\n\n'
        "    def _hidden(self): ...\n"
    )
    monkeypatch.setattr(docs_coverage, "SOURCE", tmp_path)
    shown = {"orac.room", "orac.room.Good"}
    found = docs_coverage.find_problems({"orac.room"}, shown)
    assert found == ["orac.room.Good.bad has no docstring."]
    found = docs_coverage.find_problems({"orac.room"}, {"orac.room"})
    assert "orac.room.Good is on no page of docs/reference." in found
    assert "orac.Good is on no page: add '::: orac.room' to one." in found


def test_every_name_of_the_package_is_exported_and_has_a_home():
    homes = docs_coverage.exported_names()
    tree = ast.parse((ROOT / "src/orac/__init__.py").read_text())
    listed = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert set(homes) == set(listed)
