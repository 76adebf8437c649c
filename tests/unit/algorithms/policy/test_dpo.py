"""DPO: which pairs are made, and what a pair teaches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths
from flat_parameters import flat_gradient
from steps import loss_of
from torch import Tensor
from torch.nn import functional as F

from rlbook.agent import Parts
from rlbook.algorithms.policy.dpo import DPO
from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE
from rlbook.algorithms.policy.preference_pairs import (
    LOSSES,
    PairedRows,
    kto_reference_point,
    ranked_pairs,
)
from rlbook.data.episodes import Episode, Pairs
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError

Make = Callable[..., Any]
NO_CLIP: dict[str, Any] = {"max_grad_norm": 1e9, "num_envs": 12, "group_size": 4}


# ---- pairs


@pytest.mark.parametrize(
    ("returns", "group_size", "pairs"),
    [
        (
            [1.0, 3.0, 2.0, 0.0],
            4,
            [(1, 3), (2, 0)],
        ),  # best against worst, second against second worst
        ([1.0, 3.0, 2.0, 0.0], 2, [(1, 0), (2, 3)]),
        ([1.0, 1.0, 2.0, 0.0], 2, [(2, 3)]),  # equals make no pair
        ([5.0, 5.0, 5.0, 5.0], 4, []),
        ([1.0, 0.0, 0.0, 1.0], 4, [(0, 2), (3, 1)]),  # a stable order among equals
        ([0.0, 1.0, 1.0, 1.0], 4, [(1, 0)]),  # the two in the middle are equal
        (
            [2.0, 0.0, 1.0, 9.0, 7.0, 8.0],
            3,
            [(0, 1), (3, 4)],
        ),  # the middle one of three is left over
        ([-1.0, -2.0, 4.0, 3.0], 2, [(0, 1), (2, 3)]),
    ],
)
def test_pairs_are_ranked_within_their_group(
    returns: list[float], group_size: int, pairs: list[tuple[int, int]]
) -> None:
    better, worse = ranked_pairs(torch.tensor(returns), group_size)
    assert sorted(zip(better.tolist(), worse.tolist(), strict=True)) == sorted(pairs)


def test_the_better_episode_of_a_pair_is_better_and_no_episode_is_in_two(
    stage: Make, scripted: Make
) -> None:
    theatre = stage("dpo", scripted(), num_envs=24, group_size=6)
    returns = torch.from_numpy(sum(step.reward * step.valid for step in theatre.round()))
    better, worse = ranked_pairs(returns, 6)
    assert len(better) == 12 and (returns[better] > returns[worse]).all()
    assert torch.equal(better // 6, worse // 6)
    assert sorted(torch.cat([better, worse]).tolist()) == list(range(24))


def test_a_round_of_equals_changes_nothing(stage: Make, arms: Make, fingerprint: Make) -> None:
    theatre = stage("dpo", arms((0.5, 0.5, 0.5)), num_envs=8)
    before = fingerprint(theatre.agent.policy)
    (metrics,) = theatre.learn(1)
    assert metrics == {"group_return": 0.5, "pairs": 0.0}
    assert fingerprint(theatre.agent.policy) == before and theatre.agent.optimizer.steps == 0


def test_the_best_arm_becomes_likelier_and_the_worst_one_less_likely(
    stage: Make, arms: Make
) -> None:
    """From the ranking to the step: pairs that were exchanged anywhere on the way would push the
    other way."""
    theatre = stage(
        "dpo",
        arms((1.0, 0.0, -1.0)),
        num_envs=32,
        group_size=4,
        hidden_sizes=(),
        learning_rate=1e-2,
    )
    before, after = (
        arm_probabilities(theatre.agent),
        theatre.learn(5),
        arm_probabilities(theatre.agent),
    )[::2]
    assert after[0] > before[0] + 0.01 and after[2] < before[2] - 0.01


def arm_probabilities(agent: Any) -> list[float]:
    weight, bias = agent.policy.actor.weights
    return (weight[:, 0] + bias).softmax(0).tolist()


# ---- the loss


def paired(theatre: Any, *, tilted: bool = True) -> tuple[Any, Batch, Batch]:
    """The agent and a round of its episodes as pairs; `tilted`: the policy has left its
    reference."""
    agent = theatre.agent
    if tilted:
        with torch.no_grad():
            agent.policy.actor.weights[-1].copy_(torch.tensor([0.8, 0.0, -0.8]))
    theatre.round()
    batch = agent.policy.batch(agent.rollout_data, "episode")
    batch.reference_log_prob = agent.reference_log_prob(batch)
    better, worse = ranked_pairs(agent.rollout_data.tensor("reward").sum(0), agent.group_size)
    return agent, batch[better], batch[worse]


LOG_RATIOS = ("reward_margin", "chosen_log_ratio", "rejected_log_ratio")


def rounded(agent: Any, slope: float = 1.0) -> dict[str, Any]:
    """Of Δ: 2 · 2 log-probabilities of size 1.1 a step, over 9 steps. `slope`: that of the loss."""
    return {"dtype": "float32", "terms": 9 + widths(agent.policy), "size": 40.0 * slope}


def delta(agent: Any, better: Batch, worse: Batch) -> Tensor:
    """Δ [P] by hand: differences of log-ratios, summed over the steps that count."""
    ratios = [
        ((agent.policy.evaluate(rows)[0] - rows.reference_log_prob) * rows.mask).sum(1)
        for rows in (better, worse)
    ]
    return ratios[0] - ratios[1]


def loss(agent: Any, better: Batch, worse: Batch) -> tuple[Tensor, Tensor]:
    return loss_of(agent, PairedRows(better, worse).as_minibatch())


def update(agent: Any, better: Batch, worse: Batch) -> dict[str, Tensor]:
    """One gradient step, as `learn` and `fit` make it."""
    return agent.step(PairedRows(better, worse))


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_the_loss_starts_at_ln_2(stage: Make, scripted: Make, beta: float) -> None:
    agent, better, worse = paired(stage("dpo", scripted(), beta=beta, **NO_CLIP), tilted=False)
    total, parts = loss(agent, better, worse)
    slope = max(beta, 1.0)
    assert total.item() == near(math.log(2), **rounded(agent, beta))
    assert [parts[name].item() for name in LOG_RATIOS] == near([0.0] * 3, **rounded(agent, slope))
    (metrics,) = stage("dpo", scripted(), beta=beta, batch_size=1000, **NO_CLIP).learn(1)
    assert metrics["preference_loss"] == near(math.log(2), **rounded(agent, beta))


def test_a_pair_the_other_way_round_has_the_other_sign(stage: Make, scripted: Make) -> None:
    agent, better, worse = paired(stage("dpo", scripted(), beta=0.5, **NO_CLIP))
    x = 0.5 * delta(agent, better, worse)
    assert x.abs().max() > 0.3
    assert_near(loss(agent, better, worse)[0], -F.logsigmoid(x).mean(), **rounded(agent, 0.5))
    assert_near(loss(agent, worse, better)[0], -F.logsigmoid(-x).mean(), **rounded(agent, 0.5))


@pytest.mark.parametrize(
    "options",
    [
        {"preference_loss": "sigmoid"},
        {"preference_loss": "sigmoid", "label_smoothing": 0.2},
        {"preference_loss": "ipo"},
        {"preference_loss": "hinge"},
        {"nll_coef": 0.7},
    ],
    ids=str,
)
def test_each_loss_is_its_formula(stage: Make, scripted: Make, options: dict[str, Any]) -> None:
    agent, better, worse = paired(stage("dpo", scripted(), beta=0.5, **options, **NO_CLIP))
    x = 0.5 * delta(agent, better, worse)
    eps = options.get("label_smoothing", 0.0)
    sigmoid, ipo, hinge = (
        -(1 - eps) * F.logsigmoid(x) - eps * F.logsigmoid(-x),
        (x / 0.5 - 1 / (2 * 0.5)).square(),
        (1 - x).relu(),
    )
    expected = {"sigmoid": sigmoid, "ipo": ipo, "hinge": hinge}[agent.config.preference_loss].mean()
    nll = -(agent.policy.evaluate(better)[0] * better.mask).sum() / better.mask.sum()
    total, parts = loss(agent, better, worse)
    slope = 2 * (x.abs().max().item() / 0.5 + 1) if agent.config.preference_loss == "ipo" else 1.0
    assert_near(total, expected + options.get("nll_coef", 0.0) * nll, **rounded(agent, slope))
    for told in (parts, update(agent, better, worse)):
        assert told["preference_loss"].item() == near(expected.item(), **rounded(agent, slope))
        assert told["nll"].item() == near(
            nll.item(), dtype="float32", terms=60 + widths(agent.policy)
        )


def test_the_gradient_pushes_the_pairs_apart_more_the_more_wrong_they_are(
    stage: Make, scripted: Make
) -> None:
    """∇ = -β mean σ(-β Δ) (∇ log π(τ_w) - ∇ log π(τ_l)); Rafailov et al. 2023, section 4."""
    agent, better, worse = paired(stage("dpo", scripted(), beta=0.5, **NO_CLIP))
    weights = torch.sigmoid(-0.5 * delta(agent, better, worse)).detach()
    apart = [(agent.policy.evaluate(rows)[0] * rows.mask).sum(1) for rows in (better, worse)]
    surrogate = -0.5 * (weights * (apart[0] - apart[1])).mean()
    expected = torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(surrogate, list(agent.policy.parameters()))]
    )
    update(agent, better, worse)
    terms = better.mask.numel() + widths(agent.policy)
    assert_near(flat_gradient(agent.optimizer), expected, terms=terms, size=expected.norm().item())


def test_the_diagnostics_are_what_they_say(stage: Make, scripted: Make) -> None:
    agent, better, worse = paired(stage("dpo", scripted(), beta=0.5, **NO_CLIP))
    ratios = [
        ((agent.policy.evaluate(rows)[0] - rows.reference_log_prob) * rows.mask).sum(1)
        for rows in (better, worse)
    ]
    _, parts = loss(agent, better, worse)
    assert_near(parts["accuracy"], (ratios[0] > ratios[1]).float().mean(), terms=len(better))
    expected = [0.5 * (ratios[0] - ratios[1]).mean().item(), *(r.mean().item() for r in ratios)]
    assert [parts[name].item() for name in LOG_RATIOS] == near(expected, **rounded(agent))


def test_what_follows_an_ending_changes_nothing(stage: Make, scripted: Make) -> None:
    agent, better, worse = paired(stage("dpo", scripted(), nll_coef=0.3, **NO_CLIP))
    total, parts = loss(agent, better, worse)
    for rows in (better, worse):
        rows.reference_log_prob[~rows.mask] = torch.nan
        rows.obs[~rows.mask] = -100.0
    again, others = loss(agent, better, worse)
    assert_near(total, again, **rounded(agent))
    for name in parts:
        assert_near(parts[name], others[name], **rounded(agent))


NEEDED: dict[str, dict[str, Any]] = {name: {} for name in LOSSES} | {
    "robust": {"label_smoothing": 0.2},
    "exo": {"label_smoothing": 0.2},
    "orpo": {"nll_coef": 1.0},
    "simpo": {"beta": 2.0},
}
"""What each loss cannot do without, or is seldom used without."""


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("preference_loss", list(LOSSES))
@pytest.mark.parametrize("size", [1, 4, 6])
def test_micro_batches_do_not_change_the_gradient(
    stage: Make, scripted: Make, size: int, preference_loss: str
) -> None:
    results = []
    for micro in (None, size):
        options: dict[str, Any] = NEEDED[preference_loss] | {
            "preference_loss": preference_loss,
            "nll_coef": 0.3,
            "micro_batch_size": micro,
        }
        agent, better, worse = paired(stage("dpo", scripted(), **options, **NO_CLIP))
        assert len(better) == 5  # and one pair of equals
        results.append((update(agent, better, worse), flat_gradient(agent.optimizer)))
    (parts, gradient), (others, other) = results
    for name in parts:
        assert_near(parts[name], others[name], **rounded(agent))
    terms = better.mask.numel() + widths(agent.policy)
    assert_near(gradient, other, terms=terms, size=gradient.norm().item())


# ---- the family


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_learns_from_the_pairs_it_plays(stage: Make, arms: Make, name: str) -> None:
    """The best of three arms gains on the worst one, from either kind of log-probability and with
    either kind of reference."""
    options = {"hidden_sizes": (), "learning_rate": 1e-2, "preference_loss": name} | NEEDED[name]
    theatre = stage("dpo", arms((1.0, 0.0, -1.0)), num_envs=32, group_size=4, **options)
    before, logged, after = (
        arm_probabilities(theatre.agent),
        theatre.learn(5),
        arm_probabilities(theatre.agent),
    )
    assert after[0] / after[2] > 1.1 * before[0] / before[2]
    assert theatre.agent.METRICS.keys() >= logged[-1].keys() and (
        "mismatched_kl" in logged[-1]
    ) == (name == "kto")


@pytest.mark.parametrize("name", REFERENCE_FREE)
def test_a_loss_without_a_reference_keeps_none_in_memory(
    stage: Make, arms: Make, scripted: Make, name: str
) -> None:
    theatre = stage("dpo", scripted(), preference_loss=name, **NEEDED[name], **NO_CLIP)
    assert theatre.agent.reference is None and theatre.agent.state_dict()["reference"] is None
    agent, better, worse = paired(theatre)
    policy = [
        (agent.policy.evaluate(rows)[0] * rows.mask).sum(1) / rows.mask.sum(1)
        for rows in (better, worse)
    ]
    _, parts = loss(agent, better, worse)
    assert_near(parts["chosen_log_ratio"], policy[0].mean(), terms=9 + widths(agent.policy))
    with pytest.raises(
        RequestError,
        match="reference has no effect with a preference_loss that uses none; leave it out",
    ):
        DPO(theatre.env, agent.config, 0, Parts(reference=agent))


def test_log_probabilities_per_step_are_those_of_the_authors_of_ipo(
    stage: Make, scripted: Make
) -> None:
    agent, better, worse = paired(
        stage("dpo", scripted(), preference_loss="ipo", per_step=True, beta=0.5, **NO_CLIP)
    )
    means = [
        ((agent.policy.evaluate(r)[0] - r.reference_log_prob) * r.mask).sum(1) / r.mask.sum(1)
        for r in (better, worse)
    ]
    distance = means[0] - means[1] - 1 / (2 * 0.5)
    slope = 2 * distance.abs().max().item()
    assert_near(loss(agent, better, worse)[0], distance.square().mean(), **rounded(agent, slope))


def test_ktos_point_of_reference_is_of_texts_behind_another_prompt(stage: Make) -> None:
    """Two prompts, exchanged: log π(answer 0 | prompt 1) and the other way round, against the first
    policy's; never below 0."""
    agent = stage("dpo", "Addition-v0", num_envs=4, preference_loss="kto").agent
    pairs = Pairs([text(5, 6, 7), text(8, 9, 3)], [text(5, 6, 2), text(8, 9, 8)])[np.array([0, 1])]
    with torch.no_grad():
        agent.policy.model.model.embed_tokens.weight += 0.1 * torch.randn(
            26, 64, generator=torch.Generator().manual_seed(22)
        )
    for rows in pairs[:2]:
        rows.reference_log_prob = agent.reference_log_prob(rows)
    exchanged = Pairs([text(8, 9, 7), text(5, 6, 3)], [text(8, 9, 2), text(5, 6, 8)])[
        np.array([0, 1])
    ]

    def mean_ratio(batches: Any) -> Tensor:
        ratios = [
            ((agent.policy.evaluate(rows)[0] - agent.reference_log_prob(rows)) * rows.mask).sum(1)
            for rows in batches
        ]
        return torch.cat(ratios).mean()

    expected = mean_ratio(exchanged[:2])
    assert expected > 2.0 and mean_ratio(pairs[:2]) < 0.5, (
        "a KL below 0 counts as 0, and own prompts give another"
    )
    # four log-probabilities of each text, of size ln 26
    models = agent.policy, agent.reference, agent.config
    found, size = kto_reference_point(pairs[:2], *models), 4 * math.log(26)
    assert_near(found, expected, terms=widths(agent.policy), size=size)


def text(*ids: int) -> Episode:
    """A prompt of two tokens with an answer of one, and its end."""
    return Episode(np.array([1, *ids[:2]]), np.array([ids[2], 2]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"preference_loss": "hinge", "label_smoothing": 0.1},
            "label_smoothing has no effect on the loss 'hinge'; leave it out",
        ),
        ({"preference_loss": "exo"}, r"label_smoothing must be in \(0, 0.5\) for exo, got 0.0"),
        ({"preference_loss": "robust", "label_smoothing": 0.5}, "label_smoothing must be in"),
        ({"preference_loss": "orpo"}, "nll_coef must be above 0 for orpo"),
        ({"preference_loss": "kto", "batch_size": 1}, "batch_size must be at least 2 for kto"),
        ({"simpo_margin": 1.0}, "simpo_margin has no effect on the loss 'sigmoid'"),
        (
            {"preference_loss": "simpo", "per_step": True},
            "per_step has no effect on the loss 'simpo'",
        ),
        (
            {"preference_loss": "simpo", "reference_period": 2},
            "reference_period has no effect on the loss 'simpo'",
        ),
        ({"preference_loss": "sigmod"}, "preference_loss must be one of 'sigmoid', 'ipo'"),
    ],
)
def test_settings_without_effect_on_a_loss_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        DPO.Config(**settings)


# ---- the reference, and rounds


def test_the_reference_never_moves(stage: Make, scripted: Make, fingerprint: Make) -> None:
    theatre = stage("dpo", scripted(), learning_rate=1e-2, **NO_CLIP)
    first, started = fingerprint(theatre.agent.reference), fingerprint(theatre.agent.policy)
    assert first == started
    theatre.learn(5)
    assert fingerprint(theatre.agent.reference) == first
    assert all(
        now != then for now, then in zip(fingerprint(theatre.agent.policy), started, strict=True)
    )


@pytest.mark.parametrize("period", [2, 3])
def test_the_reference_may_follow_every_few_rounds(
    stage: Make, scripted: Make, fingerprint: Make, period: int
) -> None:
    theatre = stage("dpo", scripted(), reference_period=period, learning_rate=1e-2, **NO_CLIP)
    agent, held = theatre.agent, fingerprint(theatre.agent.reference)
    for played in range(1, 8):
        theatre.learn(1)
        if played % period == 0:
            held = fingerprint(agent.policy)
        else:
            assert fingerprint(agent.policy) != held
        assert fingerprint(agent.reference) == held
    assert not {p.data_ptr() for p in agent.reference.parameters()} & {
        p.data_ptr() for p in agent.policy.parameters()
    }


@pytest.mark.parametrize(("epochs", "size", "steps"), [(1, 64, 1), (3, 64, 3), (2, 4, 2 * 2)])
def test_a_round_is_so_many_passes_over_its_pairs(
    stage: Make, scripted: Make, epochs: int, size: int, steps: int
) -> None:
    theatre = stage("dpo", scripted(), epochs=epochs, batch_size=size, **NO_CLIP)
    (metrics,) = theatre.learn(1)
    assert metrics["pairs"] == 6 and theatre.agent.optimizer.steps == steps


@pytest.mark.parametrize("temperature", [0.6, 2.5])
def test_the_temperature_is_in_every_log_probability(
    stage: Make, scripted: Make, temperature: float
) -> None:
    """The reference divides its logits too: before the first step both agree on every action."""
    agent, better, worse = paired(
        stage("dpo", scripted(), temperature=temperature, **NO_CLIP), tilted=False
    )
    for rows in (better, worse):
        log_prob, _, _ = agent.policy.evaluate(rows)
        for found in (log_prob, rows.reference_log_prob):
            assert_near(found[rows.mask], rows.log_prob[rows.mask], terms=widths(agent.policy))


# ---- recorded pairs


def pull(arm: int) -> Episode:
    return Episode(np.ones((1, 1), dtype=np.float32), np.array([arm]))


def fitted(agent: Any, data: Pairs, minibatches: int) -> list[dict[str, float]]:
    return list(itertools.islice(agent.fit(data), minibatches))


def test_recorded_pairs_make_the_odds_what_the_preferences_say(stage: Make, arms: Make) -> None:
    """Arm 0 is preferred to arm 2 in eight pairs of ten: the loss is least where σ(β Δ) = .8, so Δ
    = ln(.8 / .2) / β = ln 4 for β = 1, and Δ is what the logarithm of the odds π(0) / π(2) has
    gained."""
    agent = stage("dpo", arms(), num_envs=2, hidden_sizes=(), beta=1.0, learning_rate=0.1).agent
    before = arm_probabilities(agent)
    seen = fitted(agent, Pairs([pull(0)] * 8 + [pull(2)] * 2, [pull(2)] * 8 + [pull(0)] * 2), 300)
    after = arm_probabilities(agent)
    # the gradient σ(Δ) - .8, that of two weights and two biases, grows by σ (1 - σ) = .16 with Δ
    gained = math.log(after[0] / after[2]) - math.log(before[0] / before[2])
    left = seen[-1]["grad_norm"] / 2 / 0.16
    assert left < 1e-3
    bound = 2 * left + rounding_bound("float32", terms=4, size=math.log(4))
    assert gained == pytest.approx(math.log(0.8 / 0.2), rel=0, abs=bound)
    assert seen[0]["preference_loss"] == near(math.log(2), dtype="float32", terms=10)
    assert seen[0]["pairs"] == 10
    least = -0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    assert seen[-1]["preference_loss"] == near(least, dtype="float32", terms=10)
    assert seen[-1]["accuracy"] == near(0.8, dtype="float32", terms=10)
    assert agent.METRICS.keys() >= seen[-1].keys()


@pytest.mark.parametrize("name", ["epochs", "reference_period"])
def test_what_only_play_has_a_use_for_is_refused_with_recorded_pairs(
    stage: Make, arms: Make, name: str
) -> None:
    agent = stage("dpo", arms(), num_envs=2, **{name: 3}).agent
    with pytest.raises(
        ValueError, match=f"{name} has no effect on recorded data; got 3, leave it out"
    ):
        fitted(agent, Pairs([pull(0)], [pull(2)]), 1)
