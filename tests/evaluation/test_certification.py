"""Tests of certifying a run: the chosen policy, the fresh episodes and the rate of errors."""

import json
from functools import cache

import numpy as np
import pytest

from orac.config.schema import Constraint
from orac.envs.base import EnvSpec
from orac.evaluation import certification
from orac.evaluation.certification import certify_candidates, validation_episodes
from orac.evaluation.cvar_bounds import cvar_upper_bound
from orac.evaluation.episodes import Episodes

LIMIT = Constraint("cost", limit=5.0, tail=0.5)


def make_spec(bounds=(10.0,), names=("cost",)):
    return EnvSpec("toy", 1, (-1.0,), (1.0,), 10, names, bounds)


class Policies:
    """Plays costs that depend on the candidate and the sample, and records the calls."""

    def __init__(self, costs, rewards):
        self.costs, self.rewards, self.calls = costs, rewards, []

    def __call__(self, candidate, number, sample):
        self.calls.append((candidate, number, sample))
        cost = self.costs(candidate, sample)
        return Episodes(
            np.full(number, float(self.rewards[candidate])),
            np.tile(np.atleast_1d(np.asarray(cost, float)), (number, 1)),
            np.ones(number, int),
        )


def test_a_safe_policy_is_certified_by_fresh_episodes_at_the_first_look():
    play = Policies(lambda candidate, sample: 2.0, [1.0])
    result = certify_candidates([0], play, [LIMIT], make_spec(), validation=200)
    assert result.certified and len(result.looks) == 1
    # 200 episodes of cost 2 would be enough: 1.5 times as many are played.
    assert play.calls == [(0, 200, 0), (0, 300, 1)]
    assert result.looks[0].episodes == 300 and result.policy == 0
    (bound,) = result.certificates
    assert bound.level == pytest.approx(1 - 0.05 / 3)
    assert bound.estimate == 2 and 2 < bound.upper < 5
    assert result.sentence().startswith(
        "certified: with 95 % confidence the CVaR of episode cost at tail 0.5 is below "
    )
    assert result.sentence().endswith(
        "(limit 5), shown by 300 fresh episodes at look 1 of 3"
    )


def test_a_confidence_too_close_to_1_is_refused_before_an_episode_is_played():
    play = Policies(lambda candidate, sample: 2.0, [1.0])
    with pytest.raises(ValueError, match=r"confidence must be smaller, got 0\.99999"):
        certify_candidates(
            [0], play, [LIMIT], make_spec(), confidence=0.9999999999999999
        )
    assert play.calls == []


def test_the_policy_of_highest_reward_that_can_be_certified_is_chosen():
    cost_of = {0: 6.0, 1: 4.99, 2: 2.0, 3: 1.0}
    play = Policies(lambda candidate, sample: cost_of[candidate], [9, 8, 5, 3])
    result = certify_candidates(
        [0, 1, 2, 3], play, [LIMIT], make_spec(), validation=200, episodes_max=2000
    )
    # The first is above the limit and the second too close to it.
    assert result.certified and result.policy == 2 and result.looks[0].reward == 5


def test_of_several_constraints_the_one_above_its_limit_is_named():
    play = Policies(lambda candidate, sample: [2.0, 7.0], [1.0])
    both = [LIMIT, Constraint("noise", limit=5.0, tail=0.25)]
    spec = make_spec((10.0, 10.0), ("cost", "noise"))
    result = certify_candidates([0], play, both, spec, validation=200)
    assert result.sentence() == (
        "not certified: the policy with the lowest risk has a CVaR of 7 at tail 0.25 for "
        "'noise' on 200 episodes (limit 5), so more episodes would not certify it"
    )


def test_only_five_candidates_are_compared():
    play = Policies(lambda candidate, sample: 2.0, [*range(8)])
    result = certify_candidates([*range(8)], play, [LIMIT], make_spec(), validation=50)
    assert result.candidates == 5 and result.policy == 4


def test_a_failed_look_is_followed_by_fresh_episodes_of_another_candidate():
    # The validation episodes of candidate 0 were lucky.
    play = Policies(
        lambda candidate, sample: 6.0 if candidate == 0 and sample else 2.0, [9, 5]
    )
    result = certify_candidates([0, 1], play, [LIMIT], make_spec(), validation=200)
    assert result.certified and result.policy == 1
    assert [(look.candidate, look.sample) for look in result.looks] == [(0, 1), (1, 2)]
    assert [look.certified for look in result.looks] == [False, True]
    assert "at look 2 of 3" in result.sentence()


def test_failed_looks_count_for_the_next_choice_and_their_number_is_limited():
    random = np.random.default_rng(0)

    def play(candidate, number, sample):
        # Fresh episodes are always worse than the first ones.
        high = 9.9 if sample else 2.0
        cost = np.where(random.random((number, 1)) < 0.5, high, 0.0)
        return Episodes(np.zeros(number), cost, np.ones(number, int))

    result = certify_candidates([0] * 5, play, [LIMIT], make_spec(), validation=100)
    assert not result.certified and len(result.looks) == 3
    assert [look.sample for look in result.looks] == [1, 2, 3]
    assert result.sentence().startswith("not certified: with 95 % confidence")


def test_several_constraints_share_the_error():
    constraints = [LIMIT, Constraint("heat", limit=50.0, tail=0.25)]
    spec = make_spec((10.0, 100.0), ("cost", "heat"))
    play = Policies(lambda candidate, sample: [2.0, 20.0], [1.0])
    result = certify_candidates([0], play, constraints, spec, confidence=0.9)
    assert result.certified
    assert [c.level for c in result.certificates] == pytest.approx([1 - 0.1 / 6] * 2)
    assert "of episode cost at tail 0.5 is below" in result.sentence()
    assert (
        "and the CVaR of episode cost heat at tail 0.25 is below" in result.sentence()
    )
    # One constraint that fails is enough.
    worse = Policies(lambda candidate, sample: [2.0, 60.0 if sample else 20.0], [1.0])
    assert not certify_candidates([0], worse, constraints, spec).certified


def test_a_policy_above_the_limit_is_not_tried():
    play = Policies(lambda candidate, sample: 6.0, [1.0])
    result = certify_candidates([0], play, [LIMIT], make_spec())
    assert not result.certified and not result.looks and len(play.calls) == 1
    assert result.sentence() == (
        "not certified: the policy with the lowest risk has a CVaR of 6 at tail 0.5 on 400 "
        "episodes (limit 5), so more episodes would not certify it"
    )


def test_a_large_bound_is_named_if_the_risk_is_not_close_to_the_limit():
    play = Policies(lambda candidate, sample: 1.0, [1.0])
    result = certify_candidates(
        [0], play, [LIMIT], make_spec((1e6,)), episodes_max=1000
    )
    assert result.sentence().endswith(
        "(limit 5), but an episode may cost up to 1e+06 (the declared bound), so 1,000 fresh "
        "episodes would probably not certify it; allow more (episodes_max), or declare a "
        "smaller cost_bound if no episode can cost more than that"
    )


def test_a_policy_too_close_to_the_limit_is_not_tried():
    play = Policies(lambda candidate, sample: 4.99, [1.0])
    result = certify_candidates([0], play, [LIMIT], make_spec(), episodes_max=1000)
    assert not result.looks
    assert "1,000 fresh episodes would probably not certify it" in result.sentence()
    assert "episodes_max" in result.sentence()


IMPOSSIBLE = [
    (LIMIT, None, "declares no bound on the 'cost' of an episode"),
    (Constraint("cost", limit=0.0, tail=0.5), (10.0,), "is 0, which no number of"),
    (
        Constraint("cost", limit=5.0, risk="wang", risk_parameter=0.5),
        (10.0,),
        "only for CVaR and the mean",
    ),
]


@pytest.mark.parametrize(("constraint", "bounds", "fragment"), IMPOSSIBLE)
def test_what_cannot_be_certified_is_said_before_an_episode_is_played(
    constraint, bounds, fragment
):
    play = Policies(lambda candidate, sample: 0.0, [1.0])
    result = certify_candidates([0], play, [constraint], make_spec(bounds))
    assert not result.certified and not play.calls
    assert fragment in result.sentence()


def test_the_line_that_declares_a_bound_is_part_of_the_sentence():
    sentence = certification.cannot_certify(LIMIT, None)
    assert "`cost_bound = ...`" in sentence and "--cost-bound BOUND" in sentence
    assert "largest cost of a step times the number of steps" in sentence
    assert not any(sign.isdigit() for sign in sentence), "no number to copy"


def test_another_measure_decides_which_policy_is_chosen_but_is_not_certified():
    wang = Constraint("heat", limit=50.0, risk="wang", risk_parameter=0.5)
    spec = make_spec((10.0, 100.0), ("cost", "heat"))
    cost_of = {0: [2.0, 60.0], 1: [2.0, 20.0]}
    play = Policies(lambda candidate, sample: cost_of[candidate], [9, 5])
    result = certify_candidates([0, 1], play, [LIMIT, wang], spec)
    assert result.policy == 1 and len(result.certificates) == 1
    assert result.certificates[0].certified and not result.certified
    assert (
        "the wang risk of 'heat' at parameter 0.5 is used to choose"
        in result.sentence()
    )


def test_validation_episodes_follow_the_smallest_tail():
    assert validation_episodes([LIMIT]) == 400
    assert validation_episodes([LIMIT, Constraint("heat", limit=1, tail=0.05)]) == 800


def test_the_result_can_be_written_as_json():
    play = Policies(lambda candidate, sample: 2.0, [1.0])
    result = certify_candidates([0], play, [LIMIT], make_spec(), validation=200)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["certified"] and data["looks"][0]["episodes"] == 300
    assert data["looks"][0]["bounds"][0]["upper"] <= 5


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"confidence": 95}, "It is a fraction"),
        ({"looks": 0}, "looks must be a whole number of at least 1"),
        ({"episodes_max": 0}, "episodes_max must be a whole number of at least 1"),
    ],
)
def test_invalid_options_are_refused(options, fragment):
    play = Policies(lambda candidate, sample: 2.0, [1.0])
    with pytest.raises(ValueError, match=fragment):
        certify_candidates([0], play, [LIMIT], make_spec(), **options)


def test_a_certification_needs_a_constraint():
    with pytest.raises(ValueError, match="needs a constraint to certify"):
        certify_candidates([0], Policies(lambda c, s: 2.0, [1.0]), [], make_spec())


def false_certificates(monkeypatch, repeats, number, **options):
    """Share of runs that are certified although all five policies are above the limit.

    The cost is 10 with probability 0.251 and 0 otherwise, so CVaR at 0.5 is 5.02. Every
    look has the number of episodes for which luck is most likely to help: just as many as
    certify when all of them cost 0. The bound hardly depends on the order of the episodes,
    so it is computed once for each number of costly ones.
    """

    @cache
    def bound_of_counts(costly, number, level):
        costs = np.where(np.arange(number) < costly, 10.0, 0.0)
        return cvar_upper_bound(costs, 0.5, 10.0, level)

    def quick_bound(costs, tail, cost_bound, level):
        return bound_of_counts(int((costs > 0).sum()), len(costs), level)

    monkeypatch.setattr(certification, "cvar_upper_bound", quick_bound)
    monkeypatch.setattr(certification, "ROUND_TO", 1)
    monkeypatch.setattr(certification, "SURPLUS", 1)
    monkeypatch.setattr(certification, "needed_for", lambda *_: number)
    random = np.random.default_rng(0)

    def play(candidate, number, sample):
        cost = 10.0 * (random.random((number, 1)) < 0.251)
        return Episodes(random.normal(size=number), cost, np.ones(number, int))

    return np.mean(
        [
            certify_candidates(
                [*range(5)], play, [LIMIT], make_spec(), validation=10, **options
            ).certified
            for _ in range(repeats)
        ]
    )


def test_policies_above_the_limit_are_rarely_certified(monkeypatch):
    share = false_certificates(monkeypatch, 2000, 16)
    assert 0.01 < share <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 2000)


def test_looks_at_the_full_level_would_certify_too_often(monkeypatch):
    # Three looks with an error of 0.15 in total are three looks at 95 %.
    assert false_certificates(monkeypatch, 2000, 12, confidence=0.85) > 0.065


@pytest.mark.parametrize(
    ("cost_of", "rewards", "calls"),
    [
        # The second candidate would be certified before the first is looked at.
        ({0: [99.0, 0.0], 1: [2.0, 0.0]}, [5, 9], 1),
        # The risk of the second candidate is above the limit.
        ({0: [2.0, 0.0], 1: [99.0, 0.0]}, [9, 5], 2),
        # The cost whose bound is exceeded cannot be certified.
        ({0: [2.0, 150.0]}, [9], 1),
    ],
)
def test_a_validation_episode_above_the_declared_bound_certifies_nothing(
    cost_of, rewards, calls
):
    zero = Constraint("heat", limit=0.0, tail=0.5)
    spec = make_spec((10.0, 100.0), ("cost", "heat"))
    play = Policies(lambda candidate, sample: cost_of[candidate], rewards)
    with pytest.raises(
        ValueError, match=r"one episode cost .* \(a validation episode\)"
    ):
        certify_candidates([*cost_of], play, [LIMIT, zero], spec)
    assert len(play.calls) == calls


def test_a_fresh_episode_above_the_declared_bound_certifies_nothing():
    play = Policies(lambda candidate, sample: 99.0 if sample else 2.0, [1.0])
    with pytest.raises(ValueError, match=r"cost 99 \(a fresh episode of look 1\)"):
        certify_candidates([0], play, [LIMIT], make_spec())
