"""The experiment of RLHF's page: what people like, which answers become pairs, and what the four stages come to."""

from __future__ import annotations

import numpy as np
import pytest

import rlbook
from rlbook.book import rlhf
from rlbook.data import Episode
from rlbook.llm.rewards import Completion
from rlbook.llm.tokenizer import character_codec


@pytest.mark.parametrize(("text", "ended", "score"), [
    ("46c", True, 1.0),
    ("46", True, 0.5),                       # the number, without its unit
    ("41c", True, 0.5 * (1 - 5 / 20) + 0.5),
    ("99c", True, 0.5),                      # the unit alone
    ("46cc", True, 0.5),                     # "46c" is no number
    ("46c", False, 0.5),                     # never ended
    ("", True, 0.0),
])  # fmt: skip
def test_an_answer_is_worth_its_number_and_its_unit(text: str, ended: bool, score: float) -> None:
    assert rlhf.true_score(Completion("12+34=", "46", text, ended)) == pytest.approx(score, abs=1e-12)


def test_half_of_the_demonstrations_have_the_unit() -> None:
    texts = rlhf.demonstrations(0)
    units = np.mean([rlhf.UNIT_ID in episode.action for episode in texts.episodes])
    assert 0.45 < units < 0.55 and len(texts) == 7_588


def test_the_better_neighbour_is_first_and_equals_make_no_pair() -> None:
    episodes = [Episode(np.array([1, prompt]), np.array([answer, 2])) for prompt in range(3) for answer in (7, 8)]
    pairs = rlhf.neighbours(episodes, np.array([0.5, 1.0, 0.3, 0.3, 0.9, 0.2]))
    assert [(row.obs[1], row.action[0]) for row in pairs.better] == [(0, 8), (2, 7)]
    assert [(row.obs[1], row.action[0]) for row in pairs.worse] == [(0, 7), (2, 8)]


@pytest.mark.slow
def test_two_answers_to_a_prompt_stand_side_by_side() -> None:
    sft = rlbook.train("sft", rlhf.ENV, data=rlhf.demonstrations(0), steps=3, eval_every=0)
    episodes, scores = rlhf.sampled(sft, 20, seed=1)
    assert len(episodes) == 40 and scores.min() >= 0.0 and scores.max() <= 1.0
    assert all(np.array_equal(one.obs, other.obs) for one, other in zip(episodes[::2], episodes[1::2], strict=True))
    codec = character_codec()
    for episode, score in zip(episodes[:10], scores, strict=False):
        prompt, text = codec.decode(episode.obs[1:]), codec.decode(episode.action).removesuffix("<eos>")
        answer = str(sum(map(int, prompt.rstrip("=").split("+"))))
        wanted = rlhf.true_score(Completion(prompt, answer, text.strip(), bool(episode.action[-1] == codec.eos)))
        assert score == pytest.approx(wanted, abs=1e-6)                                 # rewards are float32


@pytest.mark.slow
def test_the_true_score_rises_by_15_points_with_the_penalty_and_falls_without_it() -> None:
    """Three seeds: see docs/results.json, `rlhf`."""
    found = rlhf.one(0)
    assert found.after - found.before >= 0.15
    learned, true = found.let_go
    assert true.max() - true[-5:].mean() >= 0.05 and learned[-5:].mean() > learned[true.argmax()]
    assert found.visible > 0.9 and found.hidden < 0.7
