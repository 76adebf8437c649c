"""What follows the KL in GRPO: β within bounds, the temperature, the curriculum over beams, and
which checkpoint may be the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near, widths

from rlbook.algorithms.policy.grpo import GRPO
from rlbook.algorithms.policy.kl_penalty import KLControl
from rlbook.algorithms.policy.recorded_groups import recorded_rows
from rlbook.data.episodes import Episode, Groups
from rlbook.functional.divergences import banded_kl_coef, temperature_of_kl

Make = Callable[..., Any]
BAND = (0.01, 0.1)
FREE = {"band": BAND, "factor": 1.1, "low": 0.0, "high": math.inf}


def test_beta_rises_above_the_band_falls_below_it_and_stays_inside() -> None:
    assert banded_kl_coef(0.2, 0.11, **FREE) == near(0.2 * 1.1)  # type: ignore[arg-type]
    assert banded_kl_coef(0.2, 0.009, **FREE) == near(0.2 / 1.1)  # type: ignore[arg-type]
    assert banded_kl_coef(0.2, 0.01, **FREE) == banded_kl_coef(0.2, 0.1, **FREE) == 0.2  # type: ignore[arg-type]
    assert banded_kl_coef(9.5, 0.2, band=BAND, factor=1.1, low=0.001, high=10.0) == 10.0
    assert banded_kl_coef(0.001, 0.0, band=BAND, factor=1.1, low=0.001, high=10.0) == 0.001


def test_a_policy_may_be_the_best_up_to_the_upper_end_of_the_band() -> None:
    control = KLControl(GRPO.Config(kl_coef=0.1, kl_band=(0.1, 0.3)))
    inside = {}
    for kl in (0.05, 0.2, 0.3, 0.31):
        control.update_coef(kl)
        inside[kl] = control.is_within_band
    assert inside == {0.05: True, 0.2: True, 0.3: True, 0.31: False}


def test_without_bounds_beta_runs_to_1e8_and_with_bounds_it_does_not() -> None:
    """A policy that starts at a KL of 0.2 and is cloned, not penalised: β 0.1 · 1.1^n passes 10⁸ at
    n = ln 10⁹ / ln 1.1 = 217.4."""
    free, bound = 0.1, KLControl(GRPO.Config(kl_coef=0.1, kl_band=BAND))
    steps = math.ceil(math.log(1e9) / math.log(1.1))
    for _ in range(steps):
        free = banded_kl_coef(free, 0.2, **FREE)  # type: ignore[arg-type]
        bound.update_coef(0.2)
    assert steps == 218 and free > 1e8 and bound.kl_coef == 10.0


def test_the_temperature_follows_the_kl_by_equal_factors() -> None:
    """From ½ to 2 over a band of one decade: in its (geometric) middle it is √(½ · 2) = 1."""
    found = [
        temperature_of_kl(kl, band=BAND, range=(0.5, 2.0))
        for kl in (0.0, 0.01, math.sqrt(0.001), 0.1, 3.0)
    ]
    assert found == near([0.5, 0.5, 1.0, 2.0, 2.0], terms=3, size=2 * math.log(1000))


def beams(seed: int = 0, groups: int = 6) -> Groups:
    """Groups of five episodes of three steps with the scores 5, 4, 3, 2, 1."""
    rng = np.random.default_rng(seed)

    def episode(score: float) -> Episode:
        return Episode(
            rng.normal(size=(3, 3)).astype(np.float32),
            rng.integers(3, size=3),
            np.array([0, 0, score], dtype=np.float32),
        )

    return Groups([[episode(score) for score in (5.0, 4.0, 3.0, 2.0, 1.0)] for _ in range(groups)])


def recorded(stage: Make, scripted: Make, **settings: Any) -> GRPO:
    return stage(
        "grpo", scripted(), num_envs=8, group_size=4, kl_coef=0.1, batch_size=6, **settings
    ).agent


def test_the_best_three_are_compared_first_with_their_own_mean_and_then_all(
    stage: Make, scripted: Make
) -> None:
    """Scores 5, 4, 3 standardise to 1, 0, -1; with the mean of all five, 3, the third would get 0.

    All five: ±2 and ±1 over √2.5. Deviations are 1e-4 larger; the sums are of five scores up to 5.
    """
    agent = recorded(stage, scripted, top=3, top_share=0.5)
    groups = beams(groups=1)[np.array([0])]
    batch, told = recorded_rows(agent, groups)
    sums: dict[str, Any] = {"dtype": "float32", "terms": 5, "size": 5}
    one = 1 / (1 + 1e-4)
    assert batch.advantage is not None
    assert batch.advantage[:, 0].tolist() == near([one, 0.0, -one], **sums)
    assert told["advantage"] == near(0.0, **sums) and told["advantage_std"] == near(one, **sums)
    agent.progress = 0.5
    batch, _ = recorded_rows(agent, groups)
    assert batch.advantage is not None
    spread = math.sqrt(2.5) + 1e-4
    assert batch.advantage[:, 0].tolist() == near([x / spread for x in (2, 1, 0, -1, -2)], **sums)


def test_no_advantage_of_five_beams_is_above_1_79(stage: Make, scripted: Make) -> None:
    """One above four equals: .8 over √.2 is 4 / √5 = (n - 1) / √n. A clip at 5 is inert."""
    agent = recorded(stage, scripted, advantage_clip=5.0)
    scores = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    batch, _ = recorded_rows(agent, beams(groups=1)[np.array([0])]._replace(returns=scores))
    assert batch.advantage is not None
    largest = batch.advantage.max().item()
    assert largest == near(0.8 / (math.sqrt(0.2) + 1e-4), dtype="float32", terms=5)
    assert largest < 1.79


def test_the_advantages_are_divided_by_the_temperature_of_the_last_kl(
    stage: Make, scripted: Make
) -> None:
    agent = recorded(stage, scripted, kl_band=BAND, score_temperatures=(0.5, 2.0), top=3)
    first, told = recorded_rows(agent, beams(groups=1)[np.array([0])])
    agent.control.update_coef(0.5)
    later, _ = recorded_rows(agent, beams(groups=1)[np.array([0])])
    assert (
        first.advantage is not None
        and later.advantage is not None
        and told["score_temperature"] == 0.5
    )
    one, sums = 1 / (1 + 1e-4), {"dtype": "float32", "terms": 3, "size": 5 / 0.5}
    assert first.advantage[0, 0].item() == near(one / 0.5, **sums)  # type: ignore[arg-type]
    assert later.advantage[0, 0].item() == near(one / 2, **sums)  # type: ignore[arg-type]


def test_the_logged_kl_is_the_exact_one_and_moves_beta(stage: Make, scripted: Make) -> None:
    agent = recorded(stage, scripted, kl_band=(1e-6, 1e-5), learning_rate=3e-2)
    data = beams()
    fitted = agent.fit(data)
    first, second = next(fitted), next(fitted)
    batch, _ = recorded_rows(agent, data[np.arange(6)])
    with torch.no_grad():
        new, old = (
            policy.distributions(batch).logits.log_softmax(-1)
            for policy in (agent.policy, agent.reference)
        )
    by_hand = (new.exp() * (new - old)).sum(-1).mean()
    assert second["reference_kl"] == near(
        float(by_hand), dtype="float32", terms=widths(agent.policy), size=old.abs().max().item()
    )
    assert second["reference_kl"] > 1e-5
    assert first["kl_coef"] == 0.1 and second["kl_coef"] == near(0.11)
    assert agent.settings.kl_coef == near(0.121)
    assert not agent.may_be_best, "it is above the band"


def test_held_out_groups_are_judged_after_each_pass_and_not_learned_from(
    stage: Make, scripted: Make
) -> None:
    agent = recorded(stage, scripted, held_out=0.5)
    agent.config.__dict__["batch_size"] = 2
    data = beams()
    fitted = agent.fit(data)
    logged = [next(fitted) for _ in range(4)]
    assert ["held_out_kl" in told for told in logged] == [
        False,
        True,
        False,
        True,
    ] and data.passes == 2.0


def test_what_follows_the_kl_is_part_of_the_state(stage: Make, scripted: Make) -> None:
    one, other = (recorded(stage, scripted, kl_band=BAND) for _ in range(2))
    one.control.update_coef(0.5)
    other.load_state_dict(one.state_dict())
    assert other.control.kl_coef == near(0.11) and other.control.kl == 0.5 and not other.may_be_best


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"top_share": 0.5}, "top_share has no effect without top; leave it out"),
        ({"kl_coef_max": 5.0}, "kl_coef_max has no effect without kl_band; leave it out"),
        (
            {"score_temperatures": (0.5, 2.0)},
            "score_temperatures has no effect without kl_band; leave it out",
        ),
        (
            {"kl_band": (0.1, 0.01)},
            (
                r"kl_band must be two numbers above 0, the second above the first, or none, got"
                r" \(0.1, 0.01\)"
            ),
        ),
        (
            {"kl_band": BAND},
            (
                "kl_coef must be a number from kl_coef_min to kl_coef_max where kl_band changes it,"
                " got 0.0 for 0.001 to 10"
            ),
        ),
        ({"held_out": 1.0}, r"held_out must be a number in \[0, 1\), got 1.0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(ValueError, match=refusal):
        GRPO.Config(**settings)
