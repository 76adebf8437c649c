"""The agreement of a rubric and of grounding with the truth, on cases that ship."""

from __future__ import annotations

import numpy as np

from rlbook.book.experiments.language_models import reward_agreement
from rlbook.book.experiments.language_models.reward_agreement import Agreement, agreement_measures
from rlbook.llm.rewards import Completion, squad_em


def test_who_says_the_truth_agrees_wholly_and_who_is_blind_does_not() -> None:
    label = np.array([[True, False], [True, False], [False, True]])
    assert agreement_measures(Agreement(label, label, ("an answer",))) == {
        "answers": 6.0,
        "accuracy": 1.0,
        "accuracy, ±": 0.0,
        "kappa": 1.0,
        "kappa, ±": 0.0,
    }
    blind = agreement_measures(Agreement(label, np.ones((3, 2), dtype=bool), ("first", "second")))
    assert (blind["accuracy"], blind["kappa"]) == (0.5, 0.0)
    assert blind["called right: first"] == blind["called right: second"] == 1.0


def test_each_passage_has_the_word_that_is_asked_for() -> None:
    cases = reward_agreement._passages()
    assert len(cases) > 200
    for passage, question, word, kind in cases:
        assert word in kind and question.count(reward_agreement.GAP) == 1
        assert question.replace(reward_agreement.GAP, word) in passage
        assert squad_em(Completion(question, word, word, True)) == 1.0


def test_the_answers_to_a_prompt_stay_together_in_the_interval() -> None:
    """Ten prompts, whose four answers are all called right, or all wrong: as ten answers."""
    said = np.repeat(np.arange(10) < 5, 4).reshape(10, 4)
    right = np.ones_like(said)
    together, alone = (
        agreement_measures(Agreement(right[:, :n], said[:, :n], ("x",)))["accuracy, ±"]
        for n in (4, 1)
    )
    assert together == alone > 0.0


def test_the_rubric_errs_where_there_is_a_risk() -> None:
    """docs/llm/rewards.md: 148 refusals that it takes for no answer, and 40 wrong letters."""
    found = reward_agreement.rubric_agreement()
    assert int((found.label & ~found.said).sum()) == 148
    assert int((~found.label & found.said).sum()) == 40
