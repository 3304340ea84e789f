"""Tests of the documentation: order, links, names of code, and reference pages."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from orac.config import overrides, serialization
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


def read(name):
    return (ROOT / name).read_text()


@pytest.mark.parametrize(
    ("name", "max_lines"), [("README.md", 140), ("CONTRIBUTING.md", 60)]
)
def test_the_first_pages_are_short(name, max_lines):
    # The results are tables, which have a line for each recorded case.
    begin, end = "<!-- results:begin -->", "<!-- results:end -->"
    text = re.sub(f"{begin}.*{end}", "", read(name), flags=re.DOTALL)
    assert len(text.splitlines()) <= max_lines


def test_the_readme_sections_are_in_order():
    text = read("README.md")
    order = [
        "`orac` trains",
        "](docs/images/maze_paths.png)",
        "make demo",
        "## A short example",
        "<!-- results:begin -->",
        "<!-- results:end -->",
        "## Install",
        "## Where is ...?",
        "## Reproduce",
        "## What this is not",
        "## Cite",
        "## Alternatives",
    ]
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", read(name), re.DOTALL)


def test_the_example_of_the_readme_has_at_most_twelve_lines():
    assert len(python_blocks("README.md")[0].splitlines()) <= 12


def test_the_start_page_has_the_example_of_the_readme():
    assert python_blocks("docs/index.md") == python_blocks("README.md")


def test_the_files_named_in_the_readme_exist():
    named = re.findall(
        r"`((?:src|docs|examples|tests|tools)/[\w./]+)`", read("README.md")
    )
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_modules_and_imports_in_a_page_exist():
    for page in (ROOT / "docs").rglob("*.md"):
        dotted = re.findall(r"`(orac\.[a-z_]+\.[\w.]+)`", page.read_text())
        for block in python_blocks(page.relative_to(ROOT)):
            imports = re.findall(
                r"^from (orac[\w.]*) import (.+)$", block, re.MULTILINE
            )
            for module, names in imports:
                dotted += [f"{module}.{name}" for name in names.split(", ")]
        for each in dotted:
            path, name = docs_coverage.locate(each)
            assert not name or re.search(rf"\b{name}\b", path.read_text()), each


def test_the_changelog_has_a_heading_for_results():
    headings = re.findall(r"^### (.*)$", read("CHANGELOG.md"), re.MULTILINE)
    assert "Results" in headings
    assert {*headings} <= {"Added", "Changed", "Fixed", "Removed", "Results"}


def linked_files(page):
    """Return the files that a page links to; check the addresses of other sites."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            assert target.startswith("https://"), target
        elif not target.startswith("#"):
            found.append((page.parent / target.partition("#")[0]).resolve())
    return found


@cache
def ignored_files():
    """Return the linked files that Git ignores, so that a clone does not have them."""
    linked = {str(path) for page in PAGES for path in linked_files(page)}
    found = subprocess.run(
        ["git", "check-ignore", "--stdin"],
        input="\n".join(sorted(linked)),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {*found.stdout.splitlines()}


@pages
def test_links_lead_to_existing_files(page):
    for path in linked_files(page):
        assert path.exists(), path
        assert str(path) not in ignored_files(), f"Git ignores {path}"


PRIVATE = re.compile(
    r"/work/|/tmp/|/root/|\bissue #?\d+|\bhelpers?\b|\bintegrator\b|\bsessions?\b", re.I
)
"""Words about how and where the project is developed, which users do not need."""


@pages
def test_pages_do_not_mention_how_the_project_is_developed(page):
    found = PRIVATE.search(page.read_text())
    assert not found, found


@pytest.mark.parametrize("name", ["troubleshooting", "tutorial", "algorithms"])
def test_the_settings_and_columns_named_in_a_page_exist(name):
    text = read(f"docs/{name}.md")
    fields = overrides.flatten(serialization.to_dict(Config()))
    setting = r"`((?:agent|training|evaluation)\.[\w.]+)(?:=[^`]*)?`"
    for dotted in re.findall(setting, text):
        group = any(field.startswith(f"{dotted}.") for field in fields)
        assert dotted in fields or group, dotted
    metrics = read("docs/metrics.md")
    prefix = "constraint|measured|train|critic|actor|explore"
    for column in re.findall(rf"`((?:{prefix})/[\w/<>]+)`", text):
        assert f"`{column}`" in metrics, column


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = read("mkdocs.yml")
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, page


def test_the_build_fails_on_a_public_name_without_a_docstring(tmp_path, monkeypatch):
    (tmp_path / "orac").mkdir()
    (tmp_path / "orac/__init__.py").write_text('_HOMES = {"Good": "orac.module"}\n')
    (tmp_path / "orac/module.py").write_text(
        '"""A module."""\n\nclass Good:\n    """Fine."""\n\n    def bad(self): ...\n\n'
        "    def _hidden(self): ...\n"
    )
    monkeypatch.setattr(docs_coverage, "SOURCE", tmp_path)
    shown = {"orac.module", "orac.module.Good"}
    found = docs_coverage.find_problems({"orac.module"}, shown)
    assert found == ["orac.module.Good.bad has no docstring."]
    found = docs_coverage.find_problems({"orac.module"}, {"orac.module"})
    assert "orac.module.Good is on no page of docs/reference." in found
    assert "orac.Good is on no page: add '::: orac.module' to one." in found


def test_every_public_name_of_the_package_is_exported():
    tree = ast.parse(read("src/orac/__init__.py"))
    listed = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert {*docs_coverage.exported_names()} == {*listed}
