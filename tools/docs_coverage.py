"""MkDocs hook that fails the build when a public name is undocumented.

Public names are those on the reference pages and those that the package `orac` exports. On a
page, the directive `::: orac.core.risk` makes a whole module public, and
`::: orac.envs.citylearn.env.CityLearn` makes one name of a module public. Each public
function, class and method needs a docstring and an entry on a page.
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
    """Forget the names that the previous build collected."""
    _shown.clear()
    _directives.clear()


def on_page_markdown(markdown: str, **_) -> None:
    """Collect the `:::` directives of a page."""
    _directives.update(re.findall(r"^::: (\S+)", markdown, re.MULTILINE))


def on_page_content(html: str, **_) -> None:
    """Collect the names that a built page documents."""
    _shown.update(_ANCHOR.findall(html))


def on_post_build(config) -> None:
    """Raise an error that lists the undocumented names."""
    problems = find_problems(_directives, _shown)
    if problems:
        raise PluginError("Public names lack documentation:\n" + "\n".join(problems))


def find_problems(directives: set[str], shown: set[str]) -> list[str]:
    """Return a sentence for each public name that has no docstring or is on no page."""
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
    """Yield the dotted name and the definition of each name that a directive makes public."""
    path, inner = locate(directive)
    module = directive.removesuffix(f".{inner}") if inner else directive
    tree = ast.parse(path.read_text())
    if not inner:
        yield directive, tree
    yield from walk(tree, module, inner)


def walk(node: ast.AST, prefix: str, only: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the public definitions in a module or class, each before those inside it.

    If `only` is given, yield only the definition of that name and those inside it.
    """
    for child in getattr(node, "body", []):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        if child.name.startswith("_") or (only and child.name != only):
            continue
        decorators = {ast.unparse(decorator) for decorator in child.decorator_list}
        if "overload" in decorators:
            # The implementation, which follows the overloads, has the docstring.
            continue
        yield f"{prefix}.{child.name}", child
        if isinstance(child, ast.ClassDef):
            yield from walk(child, f"{prefix}.{child.name}")


def locate(dotted: str) -> tuple[Path, str]:
    """Return the file of a module, and the name inside the module if `dotted` has one."""
    for module, inner in ((dotted, ""), tuple(dotted.rsplit(".", 1))):
        stem = SOURCE.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.exists():
                return path, inner
    raise PluginError(
        f"::: {dotted} must name a module or one of its names in {SOURCE}."
    )


def exported_names() -> dict[str, str]:
    """Return the names that the package `orac` exports, with their modules."""
    for node in ast.parse((SOURCE / "orac/__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            return ast.literal_eval(node.value)
    raise PluginError("src/orac/__init__.py must have a dict _HOMES of its names.")
