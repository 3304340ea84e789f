"""Outages: how often, how long, and never the same month twice."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from orac.envs.citylearn.env import CityLearn
from orac.envs.citylearn.outages import draw_outages

MONTHS = 3000
SAIFI, CAIDI = 183.0, 331.2


@pytest.fixture(scope="module")
def months():
    """The outages of 3000 resets."""
    keys = jax.random.split(jax.random.key(1), MONTHS)
    return np.asarray(
        jax.jit(jax.vmap(lambda key: CityLearn().reset(key)[0].outage))(keys)
    )


def expected_share() -> float:
    """Probability of an outage, averaged over the hours of the month.

    A day's outage covers hour t with probability saifi / 365 times the mean over its 24
    starts s <= t of P(length > t - s) = exp(-60 (t - s + 1) / caidi); days are
    independent.
    """
    t = np.arange(720)[:, None]
    free = np.ones(720)
    for day in range(1, 30):
        later = t - (24 * day + np.arange(24)) + 1
        covers = np.where(later > 0, np.exp(-60 * np.maximum(later, 1) / CAIDI), 0.0)
        free *= 1 - SAIFI / 365 * covers.mean(axis=1)
    return float((1 - free).mean())


def lengths_and_starts(months: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = np.diff(np.pad(months.astype(int), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.nonzero(edges == 1)[1], np.nonzero(edges == -1)[1]
    return ends - starts, starts


def test_a_tenth_of_all_hours_has_no_grid(months):
    assert expected_share() == pytest.approx(0.0995, abs=0.0005)
    assert months.mean() == pytest.approx(0.0995, abs=0.003)


def test_every_month_has_outages_of_its_own(months):
    assert len(np.unique(months, axis=0)) == MONTHS


def test_the_first_day_has_none_and_all_others_have_some(months):
    by_day = months.reshape(MONTHS, 30, 24).mean(axis=(0, 2))
    assert by_day[0] == 0.0
    assert by_day[1:].min() > 0.03


def test_single_outages_last_as_long_as_the_mean_says():
    # With an outage every day of six minutes' mean none lasts an hour; with a day's mean
    # an outage that starts lasts an hour or more with probability exp(-60 / 1440).
    keys = jax.random.split(jax.random.key(0), 500)
    short = jax.vmap(lambda key: draw_outages(key, 365.0, 6.0))(keys)
    assert short.mean() < 1e-4
    long = jax.vmap(lambda key: draw_outages(key, 365.0, 1440.0))(keys)
    assert long[:, 72:].mean() > 0.5


def test_outages_beyond_all_whole_numbers_last_to_the_end_of_the_month():
    keys = jax.random.split(jax.random.key(0), 20)
    months = np.asarray(jax.vmap(lambda key: draw_outages(key, 365.0, 1e15))(keys))
    assert months[:, 48:].all()


def test_no_interruptions_a_year_mean_no_outage():
    assert not draw_outages(jax.random.key(0), 0.0, CAIDI).any()


def test_buildings_share_the_grid():
    env = CityLearn(buildings=(1, 2, 3))
    state, _ = env.reset(jax.random.key(2))
    hour = int(np.flatnonzero(state.outage)[0])
    state = state._replace(hour=jnp.int32(hour - 1))
    _, step = jax.jit(env.step)(jax.random.key(0), state, jnp.zeros(9))
    np.testing.assert_array_equal(env.read(step.observation, "power_outage"), 1.0)


@pytest.mark.slow
def test_outages_are_distributed_as_in_citylearn(months):
    if importlib.util.find_spec("citylearn") is None:
        pytest.skip("run `make setup-citylearn`")
    import gymnasium

    sys.modules.setdefault("gym", gymnasium)
    from citylearn.power_outage import ReliabilityMetricsPowerOutage

    theirs = np.array(
        [
            ReliabilityMetricsPowerOutage(
                saifi=SAIFI, caidi=CAIDI, random_seed=seed
            ).get_signals(720, seconds_per_time_step=3600.0)
            for seed in range(MONTHS)
        ]
    )
    assert theirs.mean() == pytest.approx(months.mean(), abs=0.003)
    (length, start), (their_length, their_start) = (
        lengths_and_starts(months),
        lengths_and_starts(theirs),
    )
    assert stats.ks_2samp(length, their_length).pvalue > 0.001
    assert stats.ks_2samp(start, their_start).pvalue > 0.001
    assert stats.ks_2samp(months.sum(axis=1), theirs.sum(axis=1)).pvalue > 0.001
