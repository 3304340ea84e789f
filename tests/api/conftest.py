"""A trained agent that the tests of the Python interface share."""

import pytest

import orac
from helpers.pendulum import TINY, too_fast


@pytest.fixture(scope="module")
def pendulum():
    """WCSAC after 400 steps, with one update in four steps from the hundredth on."""
    agent = orac.WCSAC(
        "Pendulum-v1",
        cost_fn=too_fast,
        cost_limit=10.0,
        tail=0.25,
        seed=0,
        settings={**TINY, "training.gradient_steps": 0.25},
    )
    agent.learn(total_timesteps=400, progress_bar=False)
    return agent
