"""Data flows one way: a module imports only from rooms to the left of its own.

A room is a module or a whole package; the files of one room may use one another, but
not in a circle. Imports inside functions count like any other.
"""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# From left to right. A new room needs its place here, and docs/design.md a line.
ROOMS = """
    types checks
    risk config config_text presets
    gradients networks critics exploration pivots valuation
    optimizers observations multipliers agent_state learning agents
    replay
    envs.protocol envs
    evaluation rules
    runs kept compilation
    training saving policy
    betting statistics certificates aggregates reading results measures summaries ranking
    verdicts wiring options
    api
    making loading
    plots playing pictures video report compare
    worker schedule processes schedule_ray reproduce sweep
    demo doctor
    cli_options cli_evaluation cli_studies cli_training cli __main__
"""
ORDER = ROOMS.split()
MATHS = ORDER[: ORDER.index("envs.protocol")]


def find_modules():
    """Dotted name to file, without the leading `orac`; the package itself is ''."""
    found = {}
    for path in (SOURCE / "orac").rglob("*.py"):
        parts = path.relative_to(SOURCE / "orac").with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(parts)] = path
    return found


MODULES = find_modules()


def imported(path):
    """Every name that a file imports, as absolute dotted paths."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import: write it in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    """Modules of this package that a file imports: names inside one count as it."""
    for name in imported(path):
        package, _, inner = name.partition(".")
        if package != "orac":
            continue
        while inner not in MODULES:
            inner = inner.rpartition(".")[0]
        yield inner


GRAPH = {name: {*ours(path)} - {name} for name, path in MODULES.items()}


def room_of(module):
    """The most exact entry of ORDER that holds the module."""
    holds = [room for room in ORDER if f"{module}.".startswith(f"{room}.")]
    assert holds, f"{module} is in no room: give it a place in ORDER"
    return max(holds, key=len)


# The package's own door hands out names of every room, and stands outside the order.
@pytest.mark.parametrize("module", sorted(MODULES.keys() - {""}))
def test_imports_point_left(module):
    place = ORDER.index(room_of(module))
    for other in GRAPH[module]:
        assert other, f"{module} imports the package itself, which imports everything"
        assert ORDER.index(room_of(other)) <= place, (
            f"{module} imports {other}, which is to its right"
        )


def test_no_room_goes_in_circles():
    graph = {name: others for name, others in GRAPH.items() if name}
    assert len([*graphlib.TopologicalSorter(graph).static_order()]) == len(MODULES) - 1


def test_every_room_is_on_the_map():
    page = (SOURCE.parent / "docs/design.md").read_text()
    for room in sorted({name.partition(".")[0] for name in MODULES} - {""}):
        shown = f"`{room}.py`" in page or f"`{room}/`" in page
        assert shown, f"{room} has no line in docs/design.md"


def test_an_exported_policy_needs_numpy_alone():
    allowed = {*sys.stdlib_module_names, "numpy"}
    needed = {name.partition(".")[0] for name in imported(MODULES["policy"])}
    assert needed <= allowed and GRAPH["policy"] == set()


@pytest.mark.parametrize("room", [room for room in MATHS if room != "config_text"])
def test_the_maths_knows_no_files_no_time_and_no_environments(room):
    shell = {
        "os",
        "io",
        "pathlib",
        "time",
        "logging",
        "gymnasium",
        "yaml",
        "subprocess",
    }
    needed = {name.partition(".")[0] for name in imported(MODULES[room])}
    assert not needed & shell
