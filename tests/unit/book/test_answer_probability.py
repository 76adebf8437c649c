"""The experiments on rewards without a verifier: what they look at, and what is made of it."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near

from rlbook.book.experiments.language_models import answer_probability, intrinsic_rewards


@pytest.mark.slow
def test_both_rewards_start_from_the_same_model_and_are_looked_at_alike() -> None:
    found = answer_probability.run(seeds=1, rounds=10, start={"steps": 6})
    assert found["verifier"].accuracy[0, 0] == found["answer"].accuracy[0, 0]
    assert all(
        each.accuracy.shape == each.rounds.shape and each.rounds[0, 0] == 0 < each.rounds[0, -1]
        for each in found.values()
    )
    assert answer_probability.draw(found).axes


def test_what_is_told_is_the_middle_of_the_ends_and_how_many_gained() -> None:
    """Ends .8 and .6 against .7 and .6: differences of -.1 and 0. From .5 and .6, one of the answer's runs
    gained, and both of the verifier's from .5 and .4."""
    looks = np.array([[0.0, 10.0], [0.0, 12.0]])
    ends = {"verifier": [[0.5, 0.8], [0.4, 0.6]], "answer": [[0.5, 0.7], [0.6, 0.6]]}
    told = answer_probability.measurements(
        {
            name: answer_probability.AnswerProbabilityCurves(looks, np.array(each))
            for name, each in ends.items()
        }
    )
    assert told["before"] == near(0.45, terms=2) and told["answer, run 1"] == 0.7
    assert told["answer less verifier, median"] == near(-0.05, terms=4, size=0.7)
    assert told["verifier, runs that gained"] == 2 and told["answer, runs that gained"] == 1


def test_the_rise_that_is_told_is_the_least_of_all_seeds() -> None:
    """Drawn answers: .2 → .5 → .1 and .3 → .4 → .2, which rise by .3 and .1; in the mean .25 → .45
    → .15."""
    looks, reward = np.array([[0.0, 5.0, 9.0]] * 2), np.array([[np.nan, -0.6, -0.2]] * 2)
    sampled = np.array([[0.2, 0.5, 0.1], [0.3, 0.4, 0.2]])
    found = {
        "entropy": intrinsic_rewards.IntrinsicRewardCurves(
            looks, np.full((2, 3), 0.5), sampled, reward
        )
    }
    told = intrinsic_rewards.measurements(found)
    assert told["entropy: drawn, best on the way"] == near(0.45, terms=2)
    assert told["entropy: drawn, at the end"] == near(0.15, terms=2)
    assert told["entropy: drawn, least rise of a seed"] == near(0.1, terms=2, size=0.4)
    assert told["entropy: drawn, rounds until then"] == 5.0
    assert intrinsic_rewards.draw(found).axes
