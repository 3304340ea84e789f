"""Change fields of a config by their dotted names, as `--set a.b=c` does, and compare configs.

The command line, the settings of the Python interface, the grids of `orac sweep` and the
search spaces of `orac tune` all use these functions. Values are checked as in a YAML file.
An unknown name raises an error that suggests a similar known name, if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orac.config.schema import Config
from orac.config.serialization import from_dict, read_yaml, to_dict
from orac.config.validation import unknown_name


def override(config: Config, assignments: list[str]) -> Config:
    """Apply `a.b=c` assignments in order, with the same checks as for a YAML file."""
    data = to_dict(config)
    for text in assignments:
        name, separator, raw = text.partition("=")
        if not separator:
            raise ValueError(
                f"an assignment must look like agent.kappa=0.5, got {text!r}."
            )
        assign(data, name.strip(), read_yaml(raw, f"the value of {name.strip()}"))
    return from_dict(data)


def with_fields(config: Config, values: Mapping[str, Any]) -> Config:
    """Return the config with the given values of some fields, by their dotted names."""
    data = to_dict(config)
    for name, value in values.items():
        assign(data, name, value)
    return from_dict(data)


def assign(data: Any, dotted: str, value: Any) -> None:
    """Set the field with the dotted name `dotted` in the dict of a config.

    An unknown name raises an error.
    """
    *parents, last = dotted.split(".")
    path, hint = "", _hint_for(data, last)
    for part in parents:
        data = data[_key(data, part, path, hint)]
        path = f"{path}.{part}" if path else part
    if path.endswith("env.params"):
        data[last] = value
    else:
        data[_key(data, last, path, hint)] = value


def _hint_for(config: Any, last: str) -> str:
    """Suggest the dotted names of the fields whose last part is `last`, if there are any."""
    names = [name for name in flatten(config) if name.rpartition(".")[2] == last]
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""


def _key(data: Any, part: str, path: str, hint: str) -> Any:
    """Return `part` as a key of the dict or an index of the list `data`."""
    if not isinstance(data, list | dict) or not data:
        kind = "entries" if isinstance(data, list) else "fields"
        raise ValueError(f"{path} has no {kind}, got {path}.{part}.{hint}")
    if isinstance(data, list):
        if part.isdigit() and int(part) < len(data):
            return int(part)
        known = [str(i) for i in range(len(data))]
        raise unknown_name(f"an entry of {path}", part, known)
    if part not in data:
        what = f"a field of {path or 'the config'}"
        raise unknown_name(what, part, data, hint)
    return part


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return nested dicts, and lists of dicts, as one dict from dotted names to values."""
    items: Any = None
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        items = enumerate(value)
    if items is None:
        return {path: value}
    flat: dict[str, Any] = {}
    for name, item in items:
        flat |= flatten(item, f"{path}.{name}" if path else str(name))
    return flat


def flat_config(config: Config) -> dict[str, Any]:
    """Return the fields of a config by their dotted names."""
    return flatten(to_dict(config))


def unflatten(flat: dict[str, Any]) -> Any:
    """Return the nested dicts and lists from which `flatten` made a flat dict."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        inner = nested
        for part in parents:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(
                    f"{name} cannot be set, because a field that contains it already has "
                    "a plain value."
                )
        inner[last] = value
    return _with_lists(nested)


def _with_lists(value: Any) -> Any:
    """Replace each nested dict that has the keys 0, 1, ... by a list."""
    if not isinstance(value, dict):
        return value
    inner = {name: _with_lists(item) for name, item in value.items()}
    is_list = [*inner] == [str(i) for i in range(len(inner))]
    return [*inner.values()] if inner and is_list else inner


def difference(config: Config, base: Config) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two configs differ.

    The result maps the name of each such field to (value in config, value in base).
    """
    ours, theirs = flat_config(config), flat_config(base)
    return {
        name: (ours.get(name), theirs.get(name))
        for name in differing_names([theirs, ours])
    }


def differing_names(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values are not the same in all mappings."""
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    return [
        name
        for name in names
        if any(mapping.get(name) != mappings[0].get(name) for mapping in mappings)
    ]
