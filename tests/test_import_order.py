"""Tests that a package imports only packages before it in `ORDER`, and never in a circle."""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ORDER = [
    "config",
    "core",
    "envs",
    "evaluation",
    "runs",
    "training",
    "reports",
    "api",
    "experiments",
    "cli",
    "__main__",
]
STANDALONE = {"policy", "monitor"}
"""Modules that need only NumPy, for programs that use exported policies. They import none of
the other modules."""


def find_modules():
    """Dotted name, without the leading `orac`, to file. The package itself is ''."""
    found = {}
    for path in (SOURCE / "orac").rglob("*.py"):
        parts = path.relative_to(SOURCE / "orac").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = find_modules()


def imported(path):
    """Yield every name that a file imports, as an absolute dotted path."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; write it in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path):
    """Yield the modules of this package that a file imports."""
    for name in imported(path):
        package, _, inner = name.partition(".")
        if package != "orac":
            continue
        while inner not in MODULES:
            inner = inner.rpartition(".")[0]
        yield inner


GRAPH = {name: {*own_imports(path)} - {name} for name, path in MODULES.items()}
LIBRARY = sorted(MODULES.keys() - {"", *STANDALONE})


@pytest.mark.parametrize("module", LIBRARY)
def test_a_module_imports_only_packages_to_its_left(module):
    place = ORDER.index(module.partition(".")[0])
    for other in GRAPH[module] - STANDALONE:
        assert other, (
            f"{module} imports the top-level package, which imports everything"
        )
        assert ORDER.index(other.partition(".")[0]) <= place, (
            f"{module} imports {other}, which is to its right"
        )


def test_no_imports_go_in_a_circle():
    graph = {name: others for name, others in GRAPH.items() if name}
    assert len([*graphlib.TopologicalSorter(graph).static_order()]) == len(MODULES) - 1


@pytest.mark.parametrize("module", sorted(STANDALONE))
def test_a_module_for_deployment_needs_only_numpy(module):
    needed = {name.partition(".")[0] for name in imported(MODULES[module])}
    assert needed <= {*sys.stdlib_module_names, "numpy"}


@pytest.mark.parametrize("module", [m for m in LIBRARY if m.startswith("config")])
def test_the_config_needs_no_jax(module):
    needed = {name.partition(".")[0] for name in imported(MODULES[module])}
    assert not needed & {"jax", "jaxtyping", "optax", "gymnasium"}


@pytest.mark.parametrize("module", [m for m in LIBRARY if m.startswith("core")])
def test_the_maths_uses_no_files_no_clock_and_no_environments(module):
    needed = {name.partition(".")[0] for name in imported(MODULES[module])}
    shell = [
        "os",
        "io",
        "pathlib",
        "time",
        "logging",
        "gymnasium",
        "yaml",
        "subprocess",
    ]
    assert not needed & {*shell}


def test_every_package_is_on_the_map():
    page = (SOURCE.parent / "docs/design.md").read_text()
    for name in {module.partition(".")[0] for module in LIBRARY} - {"__main__"}:
        assert f"`{name}/`" in page or f"`{name}.py`" in page, name
