"""Several texts in one row: the places by hand, and that no text sees another, in the loss and in
the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, rounding_bound, widths
from steps import loss_of

import rlbook
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning
from rlbook.data import Episode, Episodes
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.llm.generation.prompt_rows import packing_mask
from rlbook.llm.models import packing
from rlbook.llm.models.packing import check_packable, pack

TEXTS = [
    Episode(np.array([1, 5, 6]), np.array([7, 2])),
    Episode(np.array([1, 5, 6, 8]), np.array([7, 8, 9, 2])),
    Episode(np.array([1]), np.array([2])),
    Episode(np.array([1, 9, 9, 9, 9]), np.array([4, 4, 5, 2])),
    Episode(np.array([1, 7]), np.array([8, 6, 2])),
]


def test_where_texts_lie_and_what_they_see_by_hand() -> None:
    """Lengths without the last token: 4 = 3 + 2 - 1 and 1. In 5 columns both have room in one row,
    the longer first."""
    rows = pack(Episodes(TEXTS)[np.array([0, 2])], 6)
    assert rows.tokens.tolist() == [[1, 5, 6, 7, 1]]
    assert rows.text.tolist() == [[0, 0, 0, 0, 1]] and rows.position.tolist() == [[0, 1, 2, 3, 0]]
    assert rows.row.tolist() == [0, 0, 0] and rows.column.tolist() == [2, 3, 4], (
        "7 is chosen behind 6, EOS behind 7, EOS behind BOS"
    )
    sees = packing_mask(rows.text)[0, 0]
    assert sees[3].tolist() == [True, True, True, True, False] and sees[4].tolist() == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_the_longest_come_first_and_each_fills_the_first_row_with_room() -> None:
    """Lengths 8, 7, 4, 4, 1 in rows of 12: 8 + 4 = 12, 7 + 4 + 1 = 12."""
    rows = pack(Episodes(TEXTS)[np.arange(5)], 12)
    assert rows.tokens.shape == (2, 12) and (rows.text >= 0).all()
    assert sorted(set(rows.text[0].tolist())) == [0, 3] and sorted(set(rows.text[1].tolist())) == [
        1,
        2,
        4,
    ]


def agent_for(**settings: Any) -> BehaviorCloning:
    config = BehaviorCloning.Config(**settings)
    return BehaviorCloning(
        adapted_vector(BehaviorCloning, EnvRecipe.from_env("Addition-v0"), 2, config), config
    )


def loss_and_gradients(agent: BehaviorCloning) -> tuple[torch.Tensor, list[torch.Tensor]]:
    batch = Episodes(TEXTS)[np.arange(5)]
    batch.weight = agent.config.averaging()(batch.mask)
    loss = loss_of(agent, batch).loss
    loss.backward()
    return loss.detach(), [
        parameter.grad for parameter in agent.policy.parameters() if parameter.grad is not None
    ]


@pytest.mark.parametrize("plain", [False, True])
def test_packed_and_unpacked_have_the_same_loss_and_gradient(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:  # transformers' own forward pass
        monkeypatch.setattr(
            "rlbook.llm.models.language_model.packed_logits", packing.packed_logits.plain
        )  # type: ignore[attr-defined]
    (alone, expected), (together, found) = (
        loss_and_gradients(agent_for()),
        loss_and_gradients(agent_for(packing=12)),
    )
    terms = widths(agent_for().policy) + sum(len(text.action) for text in TEXTS)
    assert_near(together, alone, terms=terms)
    largest = max(gradient.abs().max().item() for gradient in expected)
    assert_near(found, expected, terms=terms, size=largest)


def test_a_neighbour_that_could_be_seen_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classic bug: plain causality over the whole row."""
    for form in ("rlbook.fast.llama", "rlbook.llm.models.packing"):
        monkeypatch.setattr(
            f"{form}.packing_mask", lambda text: packing_mask(torch.zeros_like(text))
        )
    (alone, _), (together, _) = (
        loss_and_gradients(agent_for()),
        loss_and_gradients(agent_for(packing=12)),
    )
    assert abs(alone - together) > 1e-3


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(
        RequestError, match="packing has no effect here, because it applies to texts"
    ):
        rlbook.train("sft", "Maze-v0", packing=64)
    with pytest.raises(
        ValueError, match="packing must be at least 8, the tokens of the longest text, got 4"
    ):
        loss_and_gradients(agent_for(packing=4))
    model: Any = agent_for().policy.model  # type: ignore[attr-defined]
    model.config.sliding_window = 4
    with pytest.raises(ValueError, match="attends to only the last 4"):
        check_packable(model, 12)


@pytest.mark.thorough
def test_packing_trains_through_the_run_and_leaves_the_same_model() -> None:
    """With ε = 1 a step of Adam's is about lr g; g's norm is clipped to 1, so is rounding."""
    options: dict[str, Any] = {"eval_every": 0, "learning_rate": 0.1, "adam_eps": 1.0}
    runs = [
        rlbook.train("sft", "Addition-v0", steps=steps, packing=width, **options)
        for width, steps in ((None, 3), (64, 3), (None, 2))
    ]
    policies: list[Any] = [run.agent.policy for run in runs]  # type: ignore[attr-defined]
    plain, packed, earlier = (list(policy.parameters()) for policy in policies)
    terms = widths(policies[0]) + 64 * 8  # layers, and tokens of a minibatch
    assert_near(packed, plain, terms=terms, size=0.1)
    step = max((new - old).abs().max().item() for new, old in zip(plain, earlier, strict=True))
    assert step > 100 * rounding_bound("float32", terms=terms, size=0.1)
