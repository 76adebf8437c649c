"""Search at the same budget, in small: what each method chooses among the same completions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.experiments.language_models import token_search
from rlbook.evaluation.outcome_value import OutcomeValue

PROMPTS = 6


@pytest.mark.thorough
def test_the_first_completions_are_the_same_for_every_judge_and_the_verifier_chooses_best() -> None:
    run = rlbook.train("grpo", "Addition-v0", steps=1, eval_every=0)
    agent: Any = run.agent
    found = token_search.try_methods(run, OutcomeValue(agent.policy), PROMPTS, trees=2)
    among_n = [name for name in found if name.startswith("best of n")] + ["majority"]
    assert "best of n, critic" not in found and "mcts, critic" not in found  # GRPO has none
    assert all(len(found[name]) == len(token_search.SAMPLES) for name in among_n)
    single = found["majority"][0][1]
    best = [rewards for _, rewards in found["best of n, verifier"]]
    for name in among_n:
        tokens, rewards = zip(*found[name], strict=True)
        assert (rewards[0] == single).all()  # of one completion there is nothing to choose
        assert all((chosen <= most).all() for chosen, most in zip(rewards, best, strict=True))
        assert (np.diff(tokens) > 0).all()
    assert (np.diff(best, axis=0) >= 0).all()
    # a judge that is a network reads each completion once more, the first one unjudged
    written, judged = found["majority"], found["best of n, value"]
    assert judged[0][0] == written[0][0] and judged[1][0] > written[1][0]
    assert all(len(rewards) == 2 for _, rewards in found["mcts, value"])


def test_a_model_that_did_not_learn_is_left_out_and_the_others_are_averaged() -> None:
    """Two models are right on 3 and on 2 of 4 prompts, a third on 1: less than half."""
    right = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    each = [{"greedy": [(10.0 + place, row)]} for place, row in enumerate(right)]
    result = token_search._stack_models(each)
    assert result.left_out == 1 and result.tokens["greedy"].tolist() == [10.5]
    assert result.accuracy["greedy"].tolist() == [[1.0, 0.5, 0.5, 0.5]]
    assert result.seeds["greedy"].tolist() == [[0.75], [0.5]]
    numbers = token_search.measurements({"sums": result})
    assert numbers["sums, greedy, 10 tokens"] == near(0.625, terms=4)
    assert len(token_search.draw({"sums": result}).axes) == 1
    with pytest.raises(ValueError, match="none of 1 models has learned the task"):
        token_search._stack_models(each[2:])
