"""What the settings leave of a distribution, and the tree of texts, are what the chapter says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import near

from rlbook.book.experiments.language_models import sampling


def test_filters_keep_fewer_tokens_of_a_decided_distribution_except_top_k() -> None:
    kept = {
        text: {
            name: int((found > 0).sum())
            for name, found in sampling.kept_probabilities(torch.tensor([logits])).items()
        }
        for text, logits in sampling.LOGITS.items()
    }
    assert kept["decided"]["top_k 3"] == kept["open"]["top_k 3"] == 3
    assert (kept["decided"]["top_p 0.9"], kept["open"]["top_p 0.9"]) == (1, 5)
    assert (kept["decided"]["min_p 0.1"], kept["open"]["min_p 0.1"]) == (1, 6)
    assert kept["open"]["temperature 0.3"] == len(sampling.TOKENS)


def test_greedy_decoding_and_two_beams_write_what_the_tree_shows() -> None:
    first = max(sampling.TREE[""], key=lambda token: sampling.TREE[""][token])
    second = max(sampling.TREE[first], key=lambda token: sampling.TREE[first][token])
    assert f"{first} {second}" == "a a" and sampling.text_probability("a a") == near(0.5 * 0.4)
    texts = [f"{one} {two}" for one in "ab" for two in sampling.TREE[one]]
    best = max(["EOS", *texts], key=sampling.text_probability)
    assert best == "b EOS" and sampling.text_probability(best) == near(0.4 * 0.9)
    assert sum(map(sampling.text_probability, ["EOS", *texts])) == near(1.0, terms=7)


@pytest.mark.slow
def test_a_higher_temperature_gives_more_answers_and_fewer_right_ones() -> None:
    """On each of ten noises from 30 on, the shares of right answers at 0, 0.5 and 1 were 0.50, 0.39
    to 0.41, and 0.25 to 0.27: far apart beside what the noise does."""
    found = sampling.run(runs=1, seed=30)
    right, different = found.right[:, 0], found.different[:, 0]
    cold, middle, hot = (found.temperatures.index(t) for t in (0.0, 0.5, 1.0))
    assert right[cold] > right[middle] + 0.05 > right[hot] + 0.1
    assert different[cold] == 1.0 and (np.diff(different) > 0).all()
    assert found.log_prob[1] >= found.log_prob[0]  # two beams, and one
    assert len(sampling.measurements(found)) == 16
    sampling.draw(found)
