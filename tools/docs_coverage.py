"""A hook of mkdocs: the build fails when a public name is undocumented.

Public is what the reference pages show (`::: orac.core.risk` makes a module public, and
`::: orac.envs.citylearn.env.CityLearn` one name of it) and every name that `import orac` hands
out. Each such function, class and method needs a docstring and a place on a built page.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.exceptions import PluginError

SOURCE = Path(__file__).parents[1] / "src"
_ANCHOR = re.compile(r'id="(orac[\w.]*)"')
_shown: set[str] = set()
_directives: set[str] = set()


def on_pre_build(config) -> None:
    """Forget the last build."""
    _shown.clear()
    _directives.clear()


def on_page_markdown(markdown: str, **_) -> None:
    """Note what a page asks for."""
    _directives.update(re.findall(r"^::: (\S+)", markdown, re.MULTILINE))


def on_page_content(html: str, **_) -> None:
    """Note what a page has."""
    _shown.update(_ANCHOR.findall(html))


def on_post_build(config) -> None:
    """Stop with the list of what is missing."""
    problems = find_problems(_directives, _shown)
    if problems:
        raise PluginError("Public names lack documentation:\n" + "\n".join(problems))


def find_problems(directives: set[str], shown: set[str]) -> list[str]:
    """A sentence for each public name without a docstring or without a place."""
    problems = []
    for directive in sorted(directives):
        for name, node in public_names(directive):
            if not ast.get_docstring(node):
                problems.append(f"{name} has no docstring.")
            elif name not in shown:
                problems.append(f"{name} is on no page of docs/reference.")
    for name, module in sorted(exported_names().items()):
        if f"{module}.{name}" not in shown:
            problems.append(f"orac.{name} is on no page: add '::: {module}' to one.")
    return problems


def public_names(directive: str) -> Iterator[tuple[str, ast.AST]]:
    """Dotted name and definition of all that a directive makes public."""
    path, inner = locate(directive)
    module = directive.removesuffix(f".{inner}") if inner else directive
    tree = ast.parse(path.read_text())
    if not inner:
        yield directive, tree
    yield from walk(tree, module, inner)


def walk(node: ast.AST, prefix: str, only: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public definitions below a module or a class, depth first."""
    for child in getattr(node, "body", []):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        if child.name.startswith("_") or (only and child.name != only):
            continue
        yield f"{prefix}.{child.name}", child
        if isinstance(child, ast.ClassDef):
            yield from walk(child, f"{prefix}.{child.name}")


def locate(dotted: str) -> tuple[Path, str]:
    """The file of a module, and the name in it if `dotted` goes further."""
    for module, inner in ((dotted, ""), tuple(dotted.rsplit(".", 1))):
        stem = SOURCE.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.exists():
                return path, inner
    raise PluginError(f"::: {dotted} names no module below {SOURCE}.")


def exported_names() -> dict[str, str]:
    """What `import orac` hands out, and the module it comes from."""
    for node in ast.parse((SOURCE / "orac/__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            return ast.literal_eval(node.value)
    raise PluginError("src/orac/__init__.py has no table _HOMES of its names.")
