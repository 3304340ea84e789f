"""Read and write configs as YAML.

An unknown key raises an error that suggests a similar known key, if there is one. Values
are read as YAML, so `1e-3`, `null` and `[64, 64]` are a number, None and a list. Reading a
file never runs code.
"""

import ast
import dataclasses
import inspect
import itertools
import re
import types
import typing
from pathlib import Path
from typing import Any

import yaml

from orac.config.reading import read_text
from orac.config.schema import Config, Encoder, EnvConfig
from orac.config.validation import frozen_value, unknown_name

MAX_YAML_BYTES = 1 << 18
"""Maximum size of a YAML text. A config has about 3 kB."""
MAX_YAML_DEPTH = 30
MAX_YAML_VALUES = 50_000
"""Maximum number of values in a YAML text, when all aliases are expanded."""


def to_dict(value: Any) -> Any:
    """Return a config as plain lists and dicts, in the order of its fields."""
    if isinstance(value, Encoder):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {
            f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
        if isinstance(value, EnvConfig):
            plain["params"] = {name: to_dict(v) for name, v in value.params}
        return plain
    if isinstance(value, tuple):
        return [to_dict(item) for item in value]
    return frozen_value(value)


def from_dict(data: Any, kind: type = Config, path: str = "") -> Any:
    """Build a config of type `kind` from a dict. Missing fields get their defaults.

    `path` is the dotted name of this part of the config, for error messages.
    """
    if not isinstance(data, dict):
        raise ValueError(
            f"{path or 'the config'} must be a mapping of names to values, got {data!r}."
        )
    fields = {f.name: f for f in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in data.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in fields:
            raise unknown_name(f"a field of {path or 'the config'}", name, fields)
        values[name] = _convert(value, hints[name], where)
    return kind(**values)


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Convert `value` to the type of its field, or raise an error."""
    if where.endswith("env.params"):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a mapping, got {value!r}.")
        return tuple((str(k), v) for k, v in value.items())
    if dataclasses.is_dataclass(hint):
        return from_dict(value, typing.cast(type, hint), where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _convert(value, arguments[0], where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            advice = (
                "" if dataclasses.is_dataclass(arguments[0]) else f" Write [{value}]."
            )
            raise ValueError(f"{where} must be a list, got {value!r}.{advice}")
        return tuple(
            _convert(item, arguments[0], f"{where}[{i}]")
            for i, item in enumerate(value)
        )
    return _convert_scalar(value, hint, where)


def _convert_scalar(value: Any, hint: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in (int, float, str, bool) and (
        not isinstance(value, hint) or (hint is not bool and isinstance(value, bool))
    ):
        kinds = {
            int: "a whole number",
            float: "a number",
            str: "text",
            bool: "true or false",
        }
        raise ValueError(f"{where} must be {kinds[hint]}, got {value!r}.")
    return value


class Loader(yaml.SafeLoader):
    """YAML loader that reads 1e-3 and 1e6 as numbers and limits what a text may contain.

    In YAML 1.1, 1e-3 and 1e6 are text, because they have no dot. The loader raises an error
    if a key is repeated, if a text is nested too deeply, or if a text is too large when all
    aliases are expanded.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read a node, or raise an error if it is nested too deeply."""
        self.depth += 1
        if self.depth > MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"it is nested deeper than {MAX_YAML_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> Any:
        """Read the document, or raise an error if it is too large when aliases are expanded."""
        node = super().get_single_node()
        _count_values(node, {})
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return the dict of a node, or raise an error if a key is repeated."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE_TAG:
                continue
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(
                    f"line {line} repeats the key {key.value!r}. Remove one of them"
                )
            seen.add(key.value)
        mapping = super().construct_mapping(node, deep)
        # Different texts can be the same value, such as 1 and 0x1. The node now also
        # contains the keys of merged mappings. These may occur twice, so only distinct texts
        # are counted.
        if node is not None and len({*map(str, mapping)}) < len(
            {key.value for key, _ in node.value}
        ):
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line} has two keys with the same value")
        return mapping


MERGE_TAG = "tag:yaml.org,2002:merge"
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MAX_DIGITS = 100


def _count_values(node: Any, known: dict[int, int]) -> int:
    """Return the number of values in a node, counting an alias each time it is used.

    `known` contains the counts of the nodes that were already visited.
    """
    children: list[Any] = []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    elif node is not None and node.tag in NUMBER_TAGS and len(node.value) > MAX_DIGITS:
        raise yaml.YAMLError(f"it has a number of more than {MAX_DIGITS} digits")
    if id(node) not in known:
        # A node that contains itself is reached again while it is being counted. It then
        # has the maximum count, which raises the error below.
        known[id(node)] = MAX_YAML_VALUES
        known[id(node)] = 1 + sum(_count_values(child, known) for child in children)
    if known[id(node)] > MAX_YAML_VALUES:
        raise yaml.YAMLError(f"it contains more than {MAX_YAML_VALUES:,} values")
    return known[id(node)]


class Dumper(yaml.SafeDumper):
    """YAML dumper that puts quotes around the text 1e5, so that `Loader` reads it as text."""


for _class in (Loader, Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        # Each text can match in only one way, so that a long one is not slow.
        re.compile(r"[-+]?(?:[\d_]+|\d[\d_]*\.[\d_]+|\.[\d_]+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def read_yaml(text: str, name: str) -> Any:
    """Parse YAML text into plain values.

    A text that is too long, is nested too deeply or has too many values raises an error,
    which calls the text `name`.
    """
    if len(text) > MAX_YAML_BYTES:
        raise ValueError(f"{name} must have at most {MAX_YAML_BYTES:,} characters.")
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:400].rstrip(".")
        raise ValueError(f"{name} cannot be read as YAML: {reason}.") from error


def read_yaml_file(
    path: Path | str, what: str, advice: str = "Name a YAML file."
) -> Any:
    """Read a YAML file into plain values.

    `what` is how the error refers to a file that cannot be read.
    """
    try:
        text = read_text(path, MAX_YAML_BYTES)
    except OSError as error:
        raise ValueError(
            f"{what} {path} cannot be read: {error.strerror}. {advice}"
        ) from error
    return read_yaml(text, str(path))


def dump(config: Config) -> str:
    """Return a config as YAML text."""
    return write_yaml(to_dict(config))


def write_yaml(data: Any) -> str:
    """Return plain values as YAML text that `read_yaml` reads back."""
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, width=88)


def parse(text: str, name: str = "the config") -> Config:
    """Build a config from YAML text. Missing fields get their defaults."""
    return from_dict(read_yaml(text, name))


def load(path: Path | str) -> Config:
    """Read a config from a YAML file."""
    advice = "Pass the path of a YAML file, such as a run's config.yaml."
    return from_dict(read_yaml_file(path, "the config", advice))


def field_help() -> dict[str, str]:
    """Return the help text of each field by its dotted name.

    The texts are read from the source of the schema.
    """
    return _collect_help(Config, "")


def _collect_help(kind: type, path: str) -> dict[str, str]:
    sentences, found = _help_of(kind), dict[str, str]()
    hints = typing.get_type_hints(kind)
    for f in dataclasses.fields(typing.cast(Any, kind)):
        where = f"{path}.{f.name}" if path else f.name
        hint = hints[f.name]
        inner = typing.get_args(hint)
        if dataclasses.is_dataclass(hint):
            found |= _collect_help(typing.cast(type, hint), where)
        elif inner and dataclasses.is_dataclass(inner[0]):
            found |= _collect_help(typing.cast(type, inner[0]), f"{where}.0")
        else:
            found[where] = sentences.get(f.name, "")
    return found


def _help_of(kind: type) -> dict[str, str]:
    """Return the text that follows each field in the source of a class, by field name."""
    body = typing.cast(Any, ast.parse(inspect.getsource(kind)).body[0]).body
    return {
        statement.target.id: " ".join(str(following.value.value).split())
        for statement, following in itertools.pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
