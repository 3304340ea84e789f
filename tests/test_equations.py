"""Tests of `docs/equations.md`: each equation names one function, whose docstring has its tag."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from orac.config import overrides, serialization
from orac.config.schema import Config

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"Eq\. \((\d+)\)\.$")


class Row(NamedTuple):
    """One line of the table."""

    number: int
    meaning: str
    alias: int | None
    home: str
    test: str


def read_table():
    rows = []
    for line in (ROOT / "docs/equations.md").read_text().splitlines():
        if re.match(r"\| \d+ \|", line):
            number, meaning, alias, home, test = (
                cell.strip().strip("`") for cell in line.strip("|").split("|")
            )
            rows.append(
                Row(int(number), meaning, int(alias) if alias else None, home, test)
            )
    return rows


def functions_of(path):
    """Every function of a file by dotted name within it, nested ones too."""

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = f"{prefix}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    yield name, child
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    return dict(walk(ast.parse(path.read_text()), ""))


def find_tags():
    """Number to the functions whose docstring's first paragraph closes with its tag."""
    tags = defaultdict(list)
    for path in (ROOT / "src/orac").rglob("*.py"):
        parts = path.relative_to(ROOT / "src/orac").with_suffix("").parts
        for name, node in functions_of(path).items():
            opening = (ast.get_docstring(node) or "").partition("\n\n")[0]
            found = TAG.search(opening)
            if found:
                tags[int(found[1])].append(".".join([*parts, name]))
    return dict(tags)


TABLE = read_table()
BY_NUMBER = {row.number: row for row in TABLE}
TAGS = find_tags()
rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: f"eq{row.number}")


def test_the_table_lists_all_forty_equations_once_and_in_order():
    assert [row.number for row in TABLE] == list(range(1, 41))


def test_every_tag_in_the_source_is_in_the_table():
    assert set(TAGS) == {row.number for row in TABLE if row.alias is None}


@rows
def test_each_equation_has_exactly_one_home(row):
    if row.alias is None:
        assert TAGS[row.number] == [row.home]
    else:
        assert row.number not in TAGS
        assert BY_NUMBER[row.alias].alias is None, "an alias of an alias"
        assert row.home == BY_NUMBER[row.alias].home


@rows
def test_each_home_exists(row):
    module, _, name = row.home.rpartition(".")
    path = ROOT / "src/orac" / f"{module.replace('.', '/')}.py"
    assert name in functions_of(path)


@rows
def test_each_test_exists(row):
    file, _, name = row.test.partition("::")
    assert name in functions_of(ROOT / "tests" / file)


def test_a_tag_stands_nowhere_but_at_the_end_of_a_first_sentence():
    # So that `grep 'Eq. (14)\.'` has one hit; elsewhere it is "see (14)".
    for path in (ROOT / "src/orac").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.search(r"Eq\. \(\d+\)", line):
                comment = line.strip().startswith("# Deviates from Eq. (")
                assert comment or re.search(r'Eq\. \(\d+\)\.("""$|$)', line), line


def test_every_deviation_in_the_source_has_its_line_in_the_docs():
    listed = (ROOT / "docs/deviations.md").read_text()
    told = set(map(int, re.findall(r"^\| \((\d+)\)", listed, re.MULTILINE)))
    marked = set()
    for path in (ROOT / "src/orac").rglob("*.py"):
        marked |= set(
            map(int, re.findall(r"Deviates from Eq\. \((\d+)\)", path.read_text()))
        )
    assert marked and marked <= told


def test_deviations_are_comments_and_not_docstrings():
    for path in (ROOT / "src/orac").rglob("*.py"):
        for name, node in functions_of(path).items():
            docstring = ast.get_docstring(node) or ""
            marks = ("# Deviates", "# Choice", "# Numerics")
            assert not any(mark in docstring for mark in marks), f"{path.name}: {name}"


def names_in(path):
    """What a module defines, and a file's own name as `risk.py` is written."""
    names = {"py"}
    for node in ast.parse(path.read_text()).body:
        targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


@pytest.mark.parametrize("page", ["equations", "deviations", "design"])
def test_the_names_that_a_document_uses_exist(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    fields = overrides.flatten(serialization.to_dict(Config()))
    for dotted in re.findall(r"`([a-z_]+(?:[./]\w+)+)`", text):
        if dotted in fields:
            continue
        module, _, name = dotted.rpartition(".")
        path = ROOT / "src/orac" / f"{module.replace('.', '/')}.py"
        if path.exists():
            assert name in names_in(path), dotted
        else:
            places = (ROOT, ROOT / "src/orac", ROOT / "tests")
            assert any((place / dotted).exists() for place in places), dotted
