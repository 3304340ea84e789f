"""Tests that certificates hold for many distributions and are close to the best bound."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from orac.core import risk
from orac.evaluation import cvar_bounds
from orac.evaluation.cvar_bounds import (
    certify_cvar,
    certify_violations,
    cvar_upper_bound,
    episodes_needed,
    proportion_upper_bound,
    violation_sentence,
)


def sample_cvar(costs, tail):
    return float(risk.sample_risk(jnp.asarray(costs), risk.cvar(tail)))


@pytest.mark.parametrize("tail", [0.05, 0.13, 0.5, 1.0])
def test_the_cvar_of_a_sample_is_that_of_the_risk_measure(tail):
    costs = np.random.default_rng(0).gamma(2.0, size=37)
    assert cvar_bounds.sample_cvar(costs, tail) == pytest.approx(
        sample_cvar(costs, tail), rel=1e-5
    )


def atoms(values, chances):
    """Return a sampler of a discrete distribution, and its exact CVaR."""

    def cvar(tail):
        order = np.argsort(values)[::-1]
        reached = np.minimum(np.cumsum(np.asarray(chances)[order]), tail)
        mass = np.diff(np.append(0, reached))
        return float(mass @ np.asarray(values)[order]) / tail

    return lambda random, n: random.choice(values, n, p=chances), cvar


def triangle():
    """Return the same for 24 sqrt(U), whose CVaR is 16 (1 - (1 - tail)^1.5) / tail."""
    return (
        lambda random, n: 24 * np.sqrt(random.random(n)),
        lambda tail: 16 * (1 - (1 - tail) ** 1.5) / tail,
    )


# The atoms at the bound are so rare that 60 episodes may miss them.
DISTRIBUTIONS = {
    "unseen atom": atoms([4.0, 24.0], [0.953, 0.047]),
    "just seen atom": atoms([4.0, 24.0], [0.925, 0.075]),
    "two paths": atoms([2.0, 20.0], [0.85, 0.15]),
    "three": atoms([0.0, 10.0, 24.0], [0.9, 0.08, 0.02]),
    "triangle": triangle(),
}


def coverage(name, episodes, tail, repeats):
    draw, cvar = DISTRIBUTIONS[name]
    random, truth = np.random.default_rng(0), cvar(tail) - 1e-9
    return np.mean(
        [
            cvar_upper_bound(draw(random, episodes), tail, 24.0) >= truth
            for _ in range(repeats)
        ]
    )


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_bound_covers_at_least_95_percent(name):
    # Three standard errors of 200 repeats at 95 % are 4.6 %.
    assert coverage(name, 60, 0.25, 200) >= 0.95 - 0.046


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("tail", [0.05, 0.25, 1.0])
def test_bound_covers_at_least_95_percent_at_every_tail(name, tail):
    # Three standard errors of 1500 repeats at 95 % are 1.7 %.
    assert coverage(name, 60, tail, 1500) >= 0.95 - 0.017


@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("tail", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("episodes", [3, 60, 1000])
def test_equal_costs_do_not_exclude_an_atom_that_may_be_unseen(episodes, tail, level):
    # If the bound has probability p, all episodes cost 4 with probability (1 - p)^n. No
    # valid bound can exclude the p at which that is 1 - level; a good one is close to it.
    p = 1 - (1 - level) ** (1 / episodes)
    least = 4 + 20 * min(p / tail, 1)
    upper = cvar_upper_bound(np.full(episodes, 4.0), tail, 24.0, level)
    assert upper >= least - 1e-6
    if episodes == 1000:
        assert upper - 4 <= 1.08 * (least - 4)


def test_perfect_long_path_policy_is_bounded_near_five():
    # Cost always 4 of at most 24. By hand: 4 + 20 (1 - 0.05^(1/1000)) / 0.05 = 5.1965 is
    # the smallest valid bound; the bound by the Dvoretzky-Kiefer-Wolfowitz inequality is
    # 4 + 20 sqrt(log(20) / 2000) / 0.05 = 19.48.
    upper = cvar_upper_bound(np.full(1000, 4.0), 0.05, 24.0)
    assert 5.1965 < upper < 5.28


def test_expected_wealth_is_at_most_one_under_the_hypothesis():
    draw, cvar = DISTRIBUTIONS["two paths"]
    random, truth = np.random.default_rng(1), cvar(0.25) / 24
    wealth = []
    for _ in range(400):
        costs = draw(random, 60) / 24
        bets = cvar_bounds.place_bets(cvar_bounds.shuffle(costs), 0.25, 0.95)
        wealth.append(math.exp(bets.log_wealth(truth)))
    assert np.mean(wealth) <= 1 + 3 * np.std(wealth) / math.sqrt(400)


def test_wealth_increases_with_the_cvar_of_the_hypothesis():
    costs = np.random.default_rng(2).beta(2, 5, 200)
    bets = cvar_bounds.place_bets(cvar_bounds.shuffle(costs), 0.1, 0.95)
    wealth = [bets.log_wealth(c) for c in np.linspace(0, 0.999, 40)]
    assert (np.diff(wealth) > 0).all()


def test_pivots_and_bets_depend_only_on_earlier_episodes():
    costs = np.random.default_rng(3).random((1, 300))
    changed = costs.copy()
    changed[:, 200:] = 0.9
    first = cvar_bounds.place_bets(costs, 0.2, 0.95)
    second = cvar_bounds.place_bets(changed, 0.2, 0.95)
    before = np.cumsum(first.lengths) - first.lengths <= 200
    assert before.sum() > 20
    np.testing.assert_array_equal(first.pivots[:, before], second.pivots[:, before])
    np.testing.assert_array_equal(
        first.fractions[:, before], second.fractions[:, before]
    )
    assert (first.fractions >= 0).all()
    assert (first.fractions < 1).all()


@pytest.mark.parametrize("tail", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_bound_lies_between_the_estimate_and_the_declared_bound(name, tail):
    costs = DISTRIBUTIONS[name][0](np.random.default_rng(4), 150)
    upper = cvar_upper_bound(costs, tail, 24.0)
    assert sample_cvar(costs, tail) - 1e-4 <= upper <= 24


def test_bound_scales_with_the_costs():
    costs = 24 * np.random.default_rng(5).beta(2, 5, 300)
    plain = cvar_upper_bound(costs, 0.1, 24.0)
    assert cvar_upper_bound(100 * costs, 0.1, 2400.0) == pytest.approx(100 * plain)


def test_bound_hardly_depends_on_the_order_of_the_episodes():
    costs = 24 * np.random.default_rng(6).beta(2, 5, 1000)
    shuffled = cvar_upper_bound(costs, 0.05, 24.0)
    for ordered in (np.sort(costs), np.sort(costs)[::-1]):
        assert cvar_upper_bound(ordered, 0.05, 24.0) == pytest.approx(
            shuffled, rel=0.02
        )


def test_bound_tightens_with_episodes_and_loosens_with_confidence():
    costs = 24 * np.random.default_rng(7).beta(2, 5, 4000)
    few, many = (cvar_upper_bound(costs[:n], 0.1, 24.0) for n in (200, 4000))
    assert many < few
    assert cvar_upper_bound(costs[:200], 0.1, 24.0, 0.999) > few


def test_whole_tail_bounds_the_mean_tighter_than_hoeffding():
    costs = np.random.default_rng(8).beta(2, 5, 500)
    hoeffding = costs.mean() + math.sqrt(math.log(20) / 1000)
    assert costs.mean() < cvar_upper_bound(costs, 1.0, 1.0) < hoeffding


@pytest.mark.parametrize("costs", [[4.0], [24.0] * 50, [0.0, 24.0]])
def test_too_little_evidence_gives_the_declared_bound(costs):
    assert cvar_upper_bound(costs, 0.05, 24.0) == 24.0


def test_costs_a_rounding_error_above_the_bound_are_clipped():
    costs = np.full(20, np.float32(24.000002))
    assert cvar_upper_bound(costs, 0.5, 24.0) == 24.0


def test_episodes_needed_is_the_number_at_which_the_bound_meets_the_limit():
    costs = 24 * np.random.default_rng(9).beta(2, 5, 500)
    limit = sample_cvar(costs, 0.1) + 0.5
    needed = episodes_needed(costs, limit, 0.1, 24.0)
    assert needed > 500
    bounds = [
        cvar_upper_bound(np.resize(costs, n), 0.1, 24.0)
        for n in (needed, int(0.8 * needed))
    ]
    assert bounds[0] <= limit < bounds[1]


def test_episodes_needed_is_the_present_number_if_that_is_enough():
    assert episodes_needed(np.full(1000, 4.0), 6.0, 0.05, 24.0) == 1000
    assert episodes_needed([4.0], 24.0, 0.05, 24.0) == 1


def test_proportion_bound_agrees_with_scipys_exact_one_sided_test():
    for violations in (0, 3, 49):
        oracle = stats.binomtest(violations, 50, alternative="less")
        expected = oracle.proportion_ci(0.95, "exact").high
        assert proportion_upper_bound(violations, 50) == pytest.approx(expected)
    assert proportion_upper_bound(50, 50) == 1


def test_sentence_of_a_certified_limit():
    certificate = certify_cvar(
        np.full(1000, 4.0), 4.0, cost_limit=6.0, tail=0.05, cost_bound=24.0
    )
    assert certificate.certified
    assert certificate.sentence() == (
        "with 95 % confidence the CVaR of episode cost at tail 0.05 is below 5.27 (limit 6): "
        "certified by 1000 episodes"
    )


def test_sentence_if_more_episodes_are_needed():
    certificate = certify_cvar(
        np.full(1000, 4.0), 4.0, cost_limit=5.0, tail=0.05, cost_bound=24.0
    )
    assert not certificate.certified
    assert certificate.sentence() == (
        "with 95 % confidence the CVaR of episode cost at tail 0.05 is below 5.27 (limit 5): "
        "not certified; about 1300 episodes like these would be needed"
    )


def test_sentence_if_more_episodes_would_not_help():
    certificate = certify_cvar(
        np.full(1000, 4.0), 4.0, cost_limit=4.0, tail=1.0, cost_bound=24.0
    )
    assert certificate.episodes_needed is None
    assert certificate.sentence() == (
        "with 95 % confidence the mean of episode cost is below 4.07 (limit 4): "
        "not certified; the estimate 4 is not below the limit, so more episodes "
        "like these would not help"
    )


def test_sentence_if_too_many_episodes_would_be_needed(monkeypatch):
    monkeypatch.setattr(cvar_bounds, "MAX_NEEDED", 2000)
    certificate = certify_cvar(
        np.full(1000, 4.0), 4.0, cost_limit=4.1, tail=0.05, cost_bound=24.0
    )
    assert certificate.sentence().endswith(
        "not certified; more than 2000 episodes like these would be needed"
    )


def test_sentence_if_the_bound_is_the_declared_one():
    certificate = certify_cvar(
        [4.0, 4.0], 4.0, cost_limit=6.0, tail=0.05, cost_bound=24.0
    )
    assert "is at most the declared bound, 24 (limit 6)" in certificate.sentence()


def certify(costs, cost_limit, cost_bound=24.0):
    estimate = sample_cvar(costs, 0.05)
    return certify_cvar(
        costs, estimate, cost_limit=cost_limit, tail=0.05, cost_bound=cost_bound
    )


def test_a_declared_bound_below_the_limit_certifies_any_policy():
    sentence = certify([4.0], 30.0).sentence()
    assert "at most the declared bound, 24 (limit 30)" in sentence
    assert sentence.endswith("certified by the declared bound, whatever the policy")


def test_the_sentence_of_one_episode_is_singular():
    sentence = certify([0.0], 0.0, cost_bound=None).sentence()
    assert "about 59 episodes like these" in sentence
    whole = certify_violations([0.0], 5.0, tail=0.96).sentence()
    assert whole.endswith("is below 0.95 (limit 0.96): certified by 1 episode")


def test_a_cost_bound_of_zero_needs_no_more_episodes():
    assert episodes_needed([0.0, 0.0], 0.0, 0.05, 0.0) == 2


def test_sentence_without_a_declared_bound_is_about_violations():
    certificate = certify_cvar(
        np.full(1000, 4.0), 4.0, cost_limit=5.0, tail=0.05, cost_bound=None
    )
    assert certificate.upper is None
    assert not certificate.certified
    assert certificate.sentence() == (
        "no certificate for the CVaR of episode cost at tail 0.05: the environment declares "
        "no bound on an episode's cost, and without one a single unseen episode could "
        "cost anything. What holds without a bound: with 95 % confidence the "
        "probability of an episode cost above 5 is below 0.003 (limit 0.05): certified "
        "by 1000 episodes"
    )


def test_certificate_of_violations_has_the_number_of_episodes_needed():
    # No violation in 20 episodes excludes 13.9 %; (1 - 0.05)^n = 0.05 at n = 58.4.
    certificate = certify_violations(np.zeros(20), 5.0, 0.05)
    assert certificate.upper == pytest.approx(1 - 0.05 ** (1 / 20))
    assert 59 <= certificate.episodes_needed <= 61
    hopeless = certify_violations(np.full(20, 9.0), 5.0, 0.05)
    assert (hopeless.upper, hopeless.episodes_needed) == (1.0, None)


def test_the_search_for_few_episodes_ends():
    # The root of (1 - 0.5)^n = 0.05 is 4.3, so five episodes without a violation certify.
    certificate = certify_violations([0.0], 5.0, tail=0.5)
    assert certificate.upper == pytest.approx(0.95)
    assert certificate.episodes_needed == 5


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cvar_upper_bound([1.0], 0.05, 24.0, 95.0), "0.95 for 95 % confidence"),
        (lambda: cvar_upper_bound([1.0], 0.0, 24.0), "0.05 means the worst 5 %"),
        (
            lambda: cvar_upper_bound([1.0], 5.0, 24.0),
            r"tail must be in \(0, 1\], got 5",
        ),
        (
            lambda: cvar_upper_bound([1.0], 0.1, -1.0),
            "cost_bound must be at least 0, got -1",
        ),
        (lambda: cvar_upper_bound([30.0], 0.1, 24.0), "a certificate relies on it"),
        (lambda: cvar_upper_bound([-1.0], 0.1, 24.0), r"got costs in \[-1, -1\]"),
        (lambda: cvar_upper_bound([], 0.1, 24.0), "one cost per episode"),
        (lambda: certify_violations([np.nan, 1.0], 5.0, 0.1), "in 1 of 2 episodes"),
        (lambda: proportion_upper_bound(3, 2), "got 3 of 2"),
        (lambda: proportion_upper_bound(0.5, 2), "whole numbers"),
        (lambda: certify([4.0], math.nan), "cost_limit must be at least 0, got nan"),
        (lambda: certify([4.0], -1.0), "cost_limit must be at least 0, got -1"),
        (
            lambda: certify_violations([4.0], math.nan, 0.1),
            "cost_limit must be a finite",
        ),
        (lambda: episodes_needed([4.0], math.inf, 0.1, 24.0), "cost_limit must be"),
    ],
)
def test_invalid_arguments_raise_an_error_with_the_reason(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_violation_sentence_has_bound_limit_and_count():
    # The root of (1 - p)^93 = 0.05 is 0.03169.
    assert violation_sentence(np.full(93, 4.0), 5.0) == (
        "with 95 % confidence an episode's cost exceeds the limit with probability at most "
        "0.0317 (limit 5, exceeded by 0 of 93 episodes)"
    )
    sentence = violation_sentence([4.0, 6.0], 5.0, 0.9, "cost heat")
    assert sentence.startswith("with 90 % confidence an episode's cost heat exceeds")
    assert sentence.endswith("at most 0.949 (limit 5, exceeded by 1 of 2 episodes)")
    with pytest.raises(ValueError, match="must be a finite number"):
        violation_sentence([np.nan], 5.0)


@pytest.mark.parametrize(
    ("level", "text"),
    [(0.95, "95"), (1 - 0.05 / 3, "98.3333"), (0.9999999, "99.99999")],
)
def test_a_confidence_below_1_is_never_shown_as_100_per_cent(level, text):
    assert cvar_bounds.percent(level) == text
    assert cvar_bounds.percent(1 - 2**-53) == "99.9999999999"
