"""Tests of the properties that define risk measures."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from orac.config.schema import RiskMeasure
from orac.core import risk
from orac.evaluation.episodes import value_at_risk

DTYPES = ("float32", "float64")
COHERENT = (
    RiskMeasure("mean"),
    risk.cvar(1.0),
    risk.cvar(0.25),
    risk.cvar(0.05),
    RiskMeasure("wang", 0.75),
    RiskMeasure("power", 1.0),
    RiskMeasure("dual_power", 2.0),
)
CPW = RiskMeasure("cpw", 0.71)
ALL = (*COHERENT, CPW)

both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
coherent_measures = pytest.mark.parametrize("measure", COHERENT, ids=str)
all_measures = pytest.mark.parametrize("measure", ALL, ids=str)
examples = settings(max_examples=20, deadline=None, derandomize=True)

# One size throughout: each new one would be compiled anew.
SIZE = 8
numbers = st.floats(-100, 100, width=32)
samples = hnp.arrays(np.float32, SIZE, elements=numbers)
tails = st.sampled_from([1.0, 0.5, 0.3, 0.25, 0.05])
widths = hnp.arrays(np.float32, SIZE, elements=st.floats(0.0078125, 1, width=32))


@contextlib.contextmanager
def precision(dtype):
    """Arrays of `dtype`, and the tolerance that numbers up to about 100 deserve in it."""
    with jax.enable_x64(dtype == "float64"):
        tolerance = 2e-3 if dtype == "float32" else 1e-9
        yield (lambda x: jnp.asarray(x, dtype)), tolerance


sample_risk = jax.jit(risk.sample_risk, static_argnums=1)


def risk_of(x, measure):
    value = sample_risk(x, measure)
    assert value.dtype == x.dtype
    return float(value)


@both_dtypes
@coherent_measures
@given(widths)
@examples
def test_weights_sum_to_one_and_never_decrease_per_width(dtype, measure, drawn):
    with precision(dtype) as (array, _):
        normed = array(drawn) / array(drawn).sum()
        weights = np.asarray(risk.level_weights(measure, normed))
        assert weights.dtype == dtype
        assert weights.sum() == pytest.approx(1, abs=2e-6)
        assert (weights >= 0).all()
        # The spectrum is the weight per width; equal widths give rising weights.
        assert (np.diff(weights / np.asarray(normed)) > -1e-3).all()


@all_measures
def test_weights_of_equal_atoms_rise_for_every_measure_but_cpw(measure):
    weights = np.asarray(risk.level_weights(measure, jnp.full(32, 1 / 32)))
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    rises = bool((np.diff(weights) > -1e-6).all())
    assert rises == (measure != CPW) == measure.coherent


def test_32_quantiles_and_a_tail_of_5_percent_hold_1_6_atoms():
    # One atom weighs 1/32 of the mass and the tail is 0.05: the last takes
    # (1/32) / 0.05 = 0.625 of it, and 0.375 is left for the one before.
    weights = np.asarray(risk.level_weights(risk.cvar(0.05), jnp.full(32, 1 / 32)))
    np.testing.assert_allclose(weights[-2:], [0.375, 0.625], atol=2e-6)
    np.testing.assert_allclose(weights[:-2], 0, atol=2e-6)


def test_cvar_of_four_atoms_by_hand():
    # Atoms of 1/4: the worst 0.3 is all of 10 (0.25) and a fifth of 3 (0.05).
    # (0.25 * 10 + 0.05 * 3) / 0.3 = 2.65 / 0.3 = 8.8333...
    value = risk.sample_risk(jnp.array([3.0, 10.0, 1.0, 2.0]), risk.cvar(0.3))
    assert float(value) == pytest.approx(2.65 / 0.3, rel=1e-6)


def test_atoms_need_not_be_equal_and_the_tail_is_mass_not_a_level():
    # The guarded maze's short path: cost 20 with probability 0.15, else 2.
    quantiles, mass = jnp.array([2.0, 20.0]), jnp.array([0.85, 0.15])

    def at(tail):
        return float(risk.risk_of(quantiles, risk.level_weights(risk.cvar(tail), mass)))

    assert at(0.05) == pytest.approx(20, rel=1e-6)
    # Read as a quantile level it would be (0.15 * 20 + 0.80 * 2) / 0.95 = 4.842:
    # below the limit of 5, and the risky path would look feasible.
    assert at(0.95) == pytest.approx(4.6 / 0.95, rel=1e-6)
    assert at(1.0) == pytest.approx(0.85 * 2 + 0.15 * 20, rel=1e-6)


@both_dtypes
@pytest.mark.parametrize("tail", [1e-3, 1e-6, 1e-9, 1e-30])
def test_a_tail_thinner_than_an_atom_is_the_maximum(dtype, tail):
    with precision(dtype) as (array, _):
        weights = risk.level_weights(risk.cvar(tail), array(np.full(SIZE, 1 / SIZE)))
        np.testing.assert_array_equal(np.asarray(weights), np.eye(SIZE)[-1])


@both_dtypes
@all_measures
def test_distortions_run_from_0_to_1_and_have_their_inverse(dtype, measure):
    with precision(dtype) as (array, _):
        ends = risk.distort(measure, array([0.0, 1.0]))
        np.testing.assert_array_equal(np.asarray(ends), [0, 1])
        levels = array(np.linspace(0.003, 0.997, 333))
        inverse = jax.jit(risk.distort_levels, static_argnums=0)
        moved = np.asarray(inverse(measure, levels))
        assert ((moved > 0) & (moved < 1)).all() and (np.diff(moved) > 0).all()
        back = jax.jit(risk.distort, static_argnums=0)(measure, array(moved))
        np.testing.assert_allclose(back, levels, atol=2e-5 if measure == CPW else 1e-5)


@both_dtypes
@pytest.mark.parametrize("power", [0.3, 0.5, 1.0])
def test_the_inverse_of_cpw_holds_where_cpw_is_steep(dtype, power):
    with precision(dtype) as (array, _):
        levels = array(np.linspace(0.01, 0.99, 333))
        measure = RiskMeasure("cpw", power)
        back = risk.distort(measure, risk.distort_levels(measure, levels))
        np.testing.assert_allclose(back, levels, atol=1e-2 if power < 0.5 else 1e-3)


def test_cpw_rises_over_its_whole_range_of_parameters():
    levels = jnp.linspace(0, 1, 4097)
    for power in (0.3, 0.5, 0.71, 1.0):
        values = np.asarray(risk.distort(RiskMeasure("cpw", power), levels))
        assert (np.diff(values) > 0).all()


@both_dtypes
@all_measures
@given(samples, st.floats(0, 8, width=32), numbers)
@examples
def test_risk_is_translation_equivariant_and_positively_homogeneous(
    dtype, measure, x, factor, constant
):
    with precision(dtype) as (array, tolerance):
        moved = risk_of(array(factor) * array(x) + array(constant), measure)
        expected = factor * risk_of(array(x), measure) + constant
        assert moved == pytest.approx(expected, abs=8 * tolerance)


@both_dtypes
@all_measures
@given(samples, hnp.arrays(np.float32, SIZE, elements=st.floats(0, 50, width=32)))
@examples
def test_risk_is_monotone(dtype, measure, x, more):
    with precision(dtype) as (array, tolerance):
        low = risk_of(array(x), measure)
        assert risk_of(array(x) + array(more), measure) >= low - tolerance


@both_dtypes
@coherent_measures
@given(samples, samples)
@examples
def test_coherent_risk_is_subadditive(dtype, measure, x, y):
    with precision(dtype) as (array, tolerance):
        together = risk_of(array(x) + array(y), measure)
        apart = risk_of(array(x), measure) + risk_of(array(y), measure)
        assert together <= apart + tolerance


def test_cpw_is_not_subadditive_and_so_is_exempt():
    # Two gains that never come together: x pays 1 in a fourth of the cases, y in
    # another. CPW overrates each rare gain, so that apart they look better (lower).
    x, y = jnp.array([-1.0, 0, 0, 0]), jnp.array([0, -1.0, 0, 0])
    apart = risk_of(x, CPW) + risk_of(y, CPW)
    assert risk_of(x + y, CPW) > apart + 0.05


@both_dtypes
@coherent_measures
@given(samples)
@examples
def test_coherent_risk_lies_between_the_mean_and_the_maximum(dtype, measure, x):
    with precision(dtype) as (array, tolerance):
        value = risk_of(array(x), measure)
        assert x.astype(np.float64).mean() - tolerance <= value <= x.max() + tolerance


@both_dtypes
@given(samples, tails, tails)
@examples
def test_cvar_never_rises_with_the_tail(dtype, x, one, other):
    narrow, wide = min(one, other), max(one, other)
    with precision(dtype) as (array, tolerance):
        at_narrow = risk_of(array(x), risk.cvar(narrow))
        assert at_narrow >= risk_of(array(x), risk.cvar(wide)) - tolerance


@both_dtypes
@given(samples)
@examples
def test_cvar_of_the_whole_tail_is_the_mean_and_of_one_atom_the_maximum(dtype, x):
    with precision(dtype) as (array, tolerance):
        mean = x.astype(np.float64).mean()
        assert risk_of(array(x), risk.cvar(1.0)) == pytest.approx(mean, abs=tolerance)
        assert risk_of(array(x), RiskMeasure("mean")) == pytest.approx(
            mean, abs=tolerance
        )
        worst = risk_of(array(x), risk.cvar(1 / SIZE))
        assert worst == pytest.approx(float(x.max()), abs=tolerance)


@both_dtypes
@coherent_measures
@given(samples, samples)
@examples
def test_risk_of_a_mixture_is_at_least_the_mean_of_the_risks(dtype, measure, x, y):
    with precision(dtype) as (array, tolerance):
        mixture = risk_of(array(np.concatenate([x, y])), measure)
        apart = (risk_of(array(x), measure) + risk_of(array(y), measure)) / 2
        assert mixture >= apart - tolerance


@given(samples, st.permutations(range(SIZE)))
@examples
def test_the_order_of_samples_does_not_matter(x, order):
    for measure in ALL:
        value = risk_of(jnp.asarray(x[order]), measure)
        assert value == risk_of(jnp.asarray(x), measure)


@both_dtypes
@pytest.mark.parametrize("tail", [1.0, 0.5, 0.25, 0.05])
def test_cvar_of_a_gaussian_is_its_closed_form(dtype, tail):
    levels = (np.arange(20_000) + 0.5) / 20_000
    z = stats.norm.ppf(1 - tail)
    expected = 3 + 2 * (stats.norm.pdf(z) / tail if tail < 1 else 0)
    with precision(dtype) as (array, _):
        value = risk_of(array(3 + 2 * stats.norm.ppf(levels)), risk.cvar(tail))
    assert value == pytest.approx(expected, rel=1e-3)


def test_wang_moves_a_gaussian_by_its_shift():
    levels = (np.arange(20_000) + 0.5) / 20_000
    with jax.enable_x64(True):
        quantiles = jnp.asarray(stats.norm.ppf(levels))
        value = risk_of(quantiles, RiskMeasure("wang", 0.75))
    assert value == pytest.approx(0.75, abs=2e-3)


@pytest.mark.parametrize("name", ["power", "dual_power"])
@pytest.mark.parametrize("power", [0.0, 1.0, 3.0])
def test_power_measures_of_a_uniform_are_their_closed_form(name, power):
    # The integral of u dD(u) is (1 + p) / (2 + p) for both.
    uniform = (jnp.arange(4000) + 0.5) / 4000
    value = risk_of(uniform, RiskMeasure(name, power))
    assert value == pytest.approx((1 + power) / (2 + power), abs=1e-3)


def test_cpw_of_a_skewed_distribution_is_its_integral():
    # E[u^2] under D is 1 minus the integral of 2 u D(u), by parts.
    def distorted(u, p=0.71):
        s = 1 - u
        return 1 - s**p / (s**p + u**p) ** (1 / p)

    expected = 1 - integrate.quad(lambda u: 2 * u * distorted(u), 0, 1)[0]
    squares = ((jnp.arange(4000) + 0.5) / 4000) ** 2
    assert risk_of(squares, CPW) == pytest.approx(expected, abs=1e-3)


@all_measures
def test_implicit_levels_with_plain_widths_agree_with_weighted_quantiles(measure):
    # One asks a quantile function where the measure looks, the other weighs what a
    # grid answered; here the function is u^2.
    grid = (jnp.arange(4000) + 0.5) / 4000
    implicit = (risk.distort_levels(measure, grid) ** 2).mean()
    assert float(implicit) == pytest.approx(risk_of(grid**2, measure), abs=2e-3)


@both_dtypes
@given(samples, numbers, tails)
@examples
def test_the_dual_is_never_below_the_primal_and_meets_it_at_the_var(
    dtype, x, pivot, tail
):
    with precision(dtype) as (array, tolerance):
        primal = risk_of(array(x), risk.cvar(tail))
        dual = float(risk.dual_risk(array(x), array(pivot), tail))
        best = array(value_at_risk(x, tail))
        at_best = float(risk.dual_risk(array(x), best, tail))
    # Rounding in the excess is divided by the tail.
    assert dual >= primal - tolerance / tail
    assert at_best == pytest.approx(primal, abs=tolerance / tail)


@both_dtypes
@given(samples, numbers, numbers, st.floats(0, 1), st.sampled_from([0.5, 0.05]))
@examples
def test_the_dual_is_convex_in_its_pivot(dtype, x, one, other, share, tail):
    with precision(dtype) as (array, tolerance):

        def at(pivot):
            return float(risk.dual_risk(array(x), array(pivot), tail))

        chord = share * at(one) + (1 - share) * at(other)
        assert at(share * one + (1 - share) * other) <= chord + tolerance / tail


@both_dtypes
@given(hnp.arrays(np.float32, (3, SIZE), elements=numbers), numbers)
@examples
def test_the_order_of_ensemble_and_risk_matters_one_way_in_the_dual_form(
    dtype, x, pivot
):
    with precision(dtype) as (array, tolerance):
        members, pivots = array(x), array(np.full(3, pivot))
        risk_first = risk.dual_risk(members, pivots, 0.25).mean()
        mean_first = risk.dual_risk(members.mean(axis=0), pivots[0], 0.25)
        assert float(risk_first) >= float(mean_first) - 5 * tolerance


def test_the_dual_by_hand():
    # Quantiles 0, 2, 6, 12, pivot 4, tail 0.5: excesses 0, 0, 2, 8 have mean 2.5;
    # 2.5 / 0.5 + 4 = 9, which is also the mean of the worst half, (6 + 12) / 2.
    quantiles = jnp.array([0.0, 2.0, 6.0, 12.0])
    excess = risk.tail_excess(quantiles, jnp.float32(4), 0.5)
    np.testing.assert_array_equal(excess, [0, 0, 4, 16])
    assert float(risk.dual_risk(quantiles, jnp.float32(4), 0.5)) == 9
    assert value_at_risk(np.asarray(quantiles), 0.5) == 2
    assert float(risk.dual_risk(quantiles, jnp.float32(2), 0.5)) == 9
    # Off the value at risk it is larger: pivot 8 leaves 4 / 4 / 0.5 + 8 = 10.
    assert float(risk.dual_risk(quantiles, jnp.float32(8), 0.5)) == 10


@pytest.mark.parametrize(
    "tail, rank", [(1.0, 0), (0.75, 0), (0.5, 1), (0.4, 2), (0.05, 3), (1e-9, 3)]
)
def test_the_optimal_pivot_is_the_smallest_value_with_enough_mass_below(tail, rank):
    ordered = [1.0, 2.0, 3.0, 4.0]
    pivot = value_at_risk(np.array([3.0, 1.0, 4.0, 2.0]), tail)
    assert pivot == ordered[rank]


def test_the_dual_form_takes_cvar_and_the_mean_alone_and_says_why():
    assert risk.dual_tail(risk.cvar(0.05)) == 0.05
    assert risk.dual_tail(RiskMeasure("mean")) == 1
    with pytest.raises(ValueError, match="supports only 'cvar' and 'mean'") as spectral:
        risk.dual_tail(RiskMeasure("wang", 0.5))
    assert "Use risk_form='implicit', or the measure 'cvar'" in str(spectral.value)
    with pytest.raises(ValueError, match="not monotone, so that no dual form exists"):
        risk.dual_tail(CPW)


def test_rows_of_a_batch_are_separate_and_jit_changes_nothing():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 16)), jnp.float32)
    for measure in (RiskMeasure("mean"), risk.cvar(0.05), CPW):
        batched = sample_risk(x, measure)
        assert batched.shape == (5, 3)
        for i, j in ((0, 0), (4, 2)):
            single = float(risk.sample_risk(x[i, j], measure))
            assert float(batched[i, j]) == pytest.approx(single, rel=1e-5, abs=1e-6)


@all_measures
def test_the_gradient_of_a_risk_is_its_weights(measure):
    quantiles = jnp.linspace(-1, 3, 16)
    gradient = jax.grad(lambda q: risk.sample_risk(q, measure))(quantiles)
    weights = risk.level_weights(measure, jnp.full(16, 1 / 16))
    np.testing.assert_allclose(gradient, weights, atol=1e-6)


@pytest.mark.parametrize("tail", [0.0, 2.0, -0.1, float("nan"), float("inf")])
def test_a_tail_outside_0_1_is_refused_with_its_meaning(tail):
    with pytest.raises(ValueError) as error:
        risk.cvar(tail)
    text = str(error.value)
    assert "tail of risk measure 'cvar' must be in (0, 1]" in text
    assert "0.05 means the worst 5 %" in text and f"got {tail}" in text


@pytest.mark.parametrize(
    "name, parameter, text",
    [
        ("wang", -0.1, "must be a shift of at least 0; 0 is the mean; got -0.1"),
        ("power", -1.0, "must be a power of at least 0"),
        ("dual_power", float("nan"), "must be a power of at least 0.*got nan"),
        ("cpw", 0.1, r"must be a power in \[0.3, 1\].*got 0.1"),
        ("mean", float("nan"), "must be any finite number, .*; got nan"),
        ("cvr", 0.1, "got 'cvr'. Did you mean 'cvar'"),
        ("dualpower", 0.1, "Did you mean 'dual_power'"),
        ("CVaR", 0.1, "got 'CVaR'. Did you mean 'cvar'"),
        ("cvar", True, "must be in .*got True"),
        ("zzz", 0.1, "must be one of mean, cvar, wang, power, dual_power, cpw; got"),
    ],
)
def test_bad_measures_are_refused(name, parameter, text):
    with pytest.raises(ValueError, match=text):
        RiskMeasure(name, parameter)


def test_a_parameter_that_is_no_number_is_refused_with_what_arrived():
    # Made by hand: in tests the types would complain before the words do.
    measure = object.__new__(RiskMeasure)
    vars(measure).update(name="cvar", parameter="5%")
    with pytest.raises(ValueError, match=r"must be in \(0, 1\].*got '5%'"):
        measure.__post_init__()


@pytest.mark.parametrize(
    "bad", [[0.5, float("nan")], [0.5, -0.1], [float("inf"), 1.0], [0.0, 0.0], []]
)
def test_widths_that_are_no_weights_are_refused(bad):
    with pytest.raises(
        ValueError, match="widths must be finite, at least 0 and have a"
    ):
        risk.level_weights(risk.cvar(0.5), jnp.array(bad, jnp.float32))


def test_risk_of_no_sample_is_refused():
    with pytest.raises(ValueError, match="at least one value, got none"):
        risk.sample_risk(jnp.zeros(0), RiskMeasure("mean"))


def test_measures_are_hashable_values_that_jit_can_take_as_static():
    assert risk.cvar(0.05) == RiskMeasure("cvar", 0.05)
    assert len({risk.cvar(0.05), RiskMeasure("cvar", 0.05), RiskMeasure("mean")}) == 2


@pytest.mark.parametrize(("guard", "share"), [(0.15, 0.0208), (0.10, 0.0313)])
def test_the_limit_of_the_maze_allows_few_episodes_on_the_short_path(guard, share):
    """The long path costs 4, the short one 2, or 20 with the guard's probability.

    CVaR 0.05 of all episodes is 5 if 20 s + 4 (0.05 - s) = 5 * 0.05 for the mass s of
    guarded episodes, so s = 0.003125, which is a share of s / guard on the short path.
    """
    allowed = 0.003125 / guard
    assert allowed == pytest.approx(share, abs=1e-4)
    costs = jnp.array([2.0, 4.0, 20.0])

    def cvar_of(short):
        widths = jnp.array([short * (1 - guard), 1 - short, short * guard])
        return float(risk.risk_of(costs, risk.level_weights(risk.cvar(0.05), widths)))

    assert cvar_of(allowed) == pytest.approx(5.0, rel=1e-4)
    assert cvar_of(0.9 * allowed) < 5 < cvar_of(1.1 * allowed)
    # The same as episodes: 1000 on the short path.
    guarded, total = round(1000 * guard), round(1000 / allowed)
    episodes = np.full(total, 4.0, np.float32)
    episodes[:1000], episodes[:guarded] = 2.0, 20.0
    found = risk.sample_risk(jnp.asarray(episodes), risk.cvar(0.05))
    assert float(found) == pytest.approx(5.0, rel=1e-3)
    # The mean cost is far below the limit, and nearly that of the long path.
    assert episodes.mean() == pytest.approx(4.0, abs=0.05)
