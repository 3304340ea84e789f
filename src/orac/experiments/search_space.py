"""Search spaces of `orac tune`: the config fields to search, and the values to try.

`search_spaces.yaml` has the space of each preset and describes the format.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from orac.config import overrides, serialization
from orac.config.schema import Config
from orac.config.validation import check_choice, check_value, is_number

RANGE_KEYS = ("low", "high", "log", "whole")
FIXED = ("seed", "algo", "env", "constraints", "evaluation", "training.total_steps")
"""Fields that must be the same for all trials, so that the trials can be compared."""


@dataclass(frozen=True)
class Parameter:
    """Fields that get the same value, and the values to try: choices or a range."""

    fields: tuple[str, ...]
    choices: tuple[str, ...] = ()
    """Values to try, as JSON text, because Optuna's storage cannot hold lists."""
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Whether the range is searched on a logarithmic scale."""
    whole: bool = False
    """Whether the range has only whole numbers."""

    @property
    def name(self) -> str:
        """Names of the fields, separated by commas as in the file."""
        return ", ".join(self.fields)

    def suggest(self, trial: Any) -> Any:
        """Return the value that an Optuna trial suggests."""
        if self.choices:
            return json.loads(trial.suggest_categorical(self.name, self.choices))
        suggest = trial.suggest_int if self.whole else trial.suggest_float
        return suggest(self.name, self.low, self.high, log=self.log)

    def from_storage(self, value: Any) -> Any:
        """Convert a value that Optuna stored to a value for the config."""
        return json.loads(value) if self.choices else value

    def to_storage(self, value: Any) -> Any | None:
        """Convert a value of the config for Optuna; None if it is outside the space."""
        if self.choices:
            text = json.dumps(value)
            return text if text in self.choices else None
        inside = is_number(value) and self.low <= value <= self.high
        return value if inside else None


Space = tuple[Parameter, ...]


def space_of(config: Config, preset: str | None, path: Path | None) -> Space:
    """Return the search space in the file `path` or, if `path` is None, of the preset.

    If both `path` and `preset` are None, a config whose multiplier follows episodes gets the
    space of `general`, and any other config gets the space of `paper`.
    """
    if path is not None:
        return parse_space(serialization.read_yaml_file(path, "the space"), config)
    text = files("orac.experiments").joinpath("search_spaces.yaml").read_text("utf-8")
    spaces = serialization.read_yaml(text, "search_spaces.yaml")
    kind = preset or ("general" if config.agent.follows_episodes else "paper")
    return parse_space(spaces[kind], config)


def parse_space(data: Any, config: Config) -> Space:
    """Check a search space and return its parameters, without fields that have no effect.

    Every choice and both ends of every range must be valid in the config.
    """
    if not isinstance(data, Mapping) or not data:
        raise ValueError(
            "a space must be a mapping of config fields to values, such as "
            f"`agent.n_step: [1, 3]`, got {data!r}."
        )
    space, seen = [], set[str]()
    for key, values in data.items():
        names = tuple(name.strip() for name in str(key).split(","))
        for name in names:
            if name in seen:
                raise ValueError(f"a space must have {name} once, got it twice.")
            seen.add(name)
            if name.startswith(tuple(f"{x}." for x in FIXED)) or name in FIXED:
                raise ValueError(
                    f"{name} must be the same for all trials, because otherwise they could "
                    "not be compared, but it is in the space. Set it with an option or "
                    "--set."
                )
        used = tuple(name for name in names if has_effect(name, config))
        parameter = _parameter(names, values)
        ends = [parameter.low, parameter.high]
        tried = [json.loads(text) for text in parameter.choices] or ends
        for value in tried:
            with_values(config, {parameter: value})
        if used:
            space.append(_parameter(used, values))
    if not space:
        raise ValueError(
            f"a space must have at least one field that {config.algo} uses, got "
            f"{', '.join(seen)}."
        )
    return tuple(space)


def _parameter(fields: tuple[str, ...], values: Any) -> Parameter:
    name = ", ".join(fields)
    if isinstance(values, list):
        choices = tuple(json.dumps(value) for value in values)
        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ValueError(
                f"the choices of {name} must be at least two different values, got "
                f"{values!r}. Fix a single value with --set."
            )
        return Parameter(fields, choices)
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{name} must have a list of choices, or a range such as "
            f"{{low: 0.1, high: 1}}, got {values!r}."
        )
    for key in values:
        check_choice(f"a key of the range of {name}", str(key), RANGE_KEYS)
    low: Any = values.get("low")
    high: Any = values.get("high")
    if not is_number(low) or not is_number(high) or not low < high:
        raise ValueError(
            f"the range of {name} must have numbers low < high, got {low!r} and {high!r}."
        )
    log, whole = values.get("log", False), values.get("whole", False)
    for key, value in (("log", log), ("whole", whole)):
        check_value(f"{key} of {name}", value, bool)
    if log and low <= 0:
        raise ValueError(
            f"a logarithmic range must be above 0, but the range of {name} starts at {low!r}."
        )
    if whole:
        if low != math.floor(low) or high != math.floor(high):
            raise ValueError(
                f"a range of whole numbers must start and end with a whole number, but that "
                f"of {name} goes from {low!r} to {high!r}."
            )
        low, high = int(low), int(high)
    return Parameter(fields, (), low, high, log, whole)


def has_effect(field: str, config: Config) -> bool:
    """Return False if the agent of this config certainly does not use a field.

    Agents without optimistic exploration, without pivots or without constraints do not use
    the fields about these. The result is True for all other fields.
    """
    agent = config.agent
    if field.startswith("agent.exploration."):
        return agent.behaviour == "optimistic"
    if field.startswith("agent.pivot."):
        return agent.is_dual and bool(config.constraints)
    if field.startswith(("agent.multiplier.", "agent.cost_")):
        return bool(config.constraints)
    return True


def with_values(config: Config, values: Mapping[Parameter, Any]) -> Config:
    """Return the config with the given values of some parameters."""
    fields = {f: value for parameter, value in values.items() for f in parameter.fields}
    return overrides.with_fields(config, fields)


def value_in(config: Config, parameter: Parameter) -> Any | None:
    """Return the config's value of a parameter, in the form that Optuna stores.

    Returns None if the value is outside the space, or if the parameter's fields have
    different values.
    """
    flat = overrides.flat_config(config)
    values = [parameter.to_storage(flat.get(field)) for field in parameter.fields]
    return values[0] if all(value == values[0] for value in values) else None
