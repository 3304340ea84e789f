"""The paper's own numbers, as printed in its tables, and words for them.

`paper_results.json` holds facts alone, from the tables of "Optimistic Exploration for
Risk-Averse Constrained Reinforcement Learning": means, and the spread printed after ±.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any


@cache
def results() -> dict[str, Any]:
    """Everything, by the names in the file."""
    file = resources.files("orac.experiments") / "paper_results.json"
    return json.loads(file.read_text(encoding="utf-8"))


def look_up(key: Sequence[str]) -> Any:
    """What stands at a path of names, or None."""
    found: Any = results()
    for name in key:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def spread_text(pair: Sequence[float] | None) -> str:
    """A mean and its spread as the paper prints them."""
    return "–" if pair is None else f"{pair[0]:g} ± {pair[1]:g}"
