"""Figure 2: evaluations during training in Safety-Gymnasium. The runs are Table 2's.

A row of panels for each world and tail, as the paper has them. Bands are intervals of the
mean; the paper's, half a standard deviation to each side, are `--band half-std`. The
table is Table 2's: what the curves end in.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orac.experiments import table2 as table2_safety_gym
from orac.experiments.curves import draw
from orac.experiments.safety_cases import line_label, panels, world_of
from orac.experiments.study import Found

TAILS = (0.5, 0.25)


def make_figure(everything: Sequence[Found], band: str) -> Any:
    """Reward, mean cost and CVaR; a SAC-Lagrangian is in every row."""
    rows = []
    for world in dict.fromkeys(map(world_of, everything)):
        for tail in TAILS:
            lines = [
                (line_label(found), found)
                for found in everything
                if world_of(found) == world
                and (
                    found.case.config.algo == "sac-lag"
                    or found.case.config.constraints[0].tail == tail
                )
            ]
            if lines:
                rows.append(panels(f"{world}, tail {tail:g}", lines, [tail]))
    return draw(rows, band)


STUDY = replace(table2_safety_gym.STUDY, name="figure2", make_figure=make_figure)
