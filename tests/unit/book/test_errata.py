"""The page of errata: each wrong line beside the right one, and every check that the page names
exists."""

from __future__ import annotations

import ast
import datetime
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from closeness import assert_near, near, rounding_bound

from rlbook.data.episodes import RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import group_advantage
from rlbook.functional.divergences import adapted_kl_coef, categorical_entropy, k3
from rlbook.functional.policy_losses import clipped_surrogate_loss

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "llm" / "errata.md"
P, Q, R = (
    torch.tensor(each, dtype=torch.float64)
    for each in ((0.5, 0.25, 0.25), (0.25, 0.25, 0.5), (0.375, 0.25, 0.375))
)
Make = Callable[..., Any]


def kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p * (p / q).log()).sum()


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", PAGE.read_text(encoding="utf-8"))))
)
def test_every_check_of_the_page_exists(name: str) -> None:
    file, _, test = name.partition("::")
    found = {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert not test or test in found


def test_a_divergence_is_the_cross_entropy_less_the_entropy() -> None:
    """KL(P ‖ Q) = ½ ln 2 + ¼ ln ½ = ¼ ln 2; neither symmetric in general, nor a distance: by way of
    R it is shorter."""
    cross, own = -(P * Q.log()).sum(), categorical_entropy(P.log())
    assert_near(kl(P, Q), cross - own, terms=3, size=2.0)
    assert kl(P, Q).item() == near(0.25 * math.log(2), terms=3, size=1.0) and own - cross < 0
    assert kl(P, R) + kl(R, Q) < kl(P, Q)
    assert abs(kl(P, R) - kl(R, P)) > 1e-4


def test_a_perplexity_has_the_base_of_its_logarithm() -> None:
    """Four equally likely tokens: 2 bits, 1.386 nats, and 4 choices either way; 2 to the power of
    nats would be 2.61."""
    nats = categorical_entropy(torch.zeros(4).log_softmax(-1)).item()
    four = near(4, dtype="float32", terms=4, size=4 * math.log(4))
    assert math.exp(nats) == four == 2 ** (nats / math.log(2))
    assert 2**nats == near(2.614, decimals=3)


def test_a_minimum_without_clip_learns_nothing_at_the_first_step() -> None:
    """At ρ = 1, min(ρ, .8, 1.2) is .8 whatever ρ does. And where A < 0 it hides how far a bad
    action has risen: ρ = 1.5."""
    for right in (True, False):
        log_prob = torch.zeros(1, requires_grad=True)
        ratio, low, high = log_prob.exp(), torch.tensor([0.8]), torch.tensor([1.2])
        wrong = -torch.minimum(torch.minimum(ratio, low), high).sum()
        loss = clipped_surrogate_loss(log_prob, torch.zeros(1), torch.ones(1)) if right else wrong
        assert torch.autograd.grad(loss, log_prob)[0].item() == (-1.0 if right else 0.0)
    risen = torch.tensor([1.5])
    found = clipped_surrogate_loss(risen.log(), torch.zeros(1), -torch.ones(1)).item()
    assert found == near(1.5, dtype="float32", terms=2)
    assert -(min(1.5, 0.8, 1.2) * -1) == 0.8


def test_k3_without_its_logarithm_estimates_nothing() -> None:
    """E_π[π_ref / π - 1] = Σ π_ref - 1 = 0, and k3's mean is KL(π ‖ π_ref)."""
    assert_near((P * (Q / P - 1)).sum(), 0.0, terms=3, size=2.0)
    assert_near((P * k3(P.log(), Q.log())).sum(), kl(P, Q), terms=3, size=2.0)


def test_k3_of_the_ratio_to_the_old_policy_is_a_divergence_from_that_policy() -> None:
    """Σ old (r - 1 - log r) with r = new / old is KL(old ‖ new); the reference does not occur in
    it."""
    ratio = Q / P
    assert_near((P * (ratio - 1 - ratio.log())).sum(), kl(P, Q), terms=3, size=2.0)


def test_the_ratio_is_one_in_the_first_minibatch_alone(stage: Make, arms: Make) -> None:
    settings: dict[str, Any] = {
        "num_envs": 32,
        "group_size": 4,
        "learning_rate": 1e-2,
        "hidden_sizes": (),
    }
    one = stage("grpo", arms((1.0, 0.0, -1.0)), **settings).learn(1)[0]["approx_kl"]
    four = stage("grpo", arms((1.0, 0.0, -1.0)), batch_size=8, **settings).learn(1)[0]["approx_kl"]
    rounding = rounding_bound("float32", terms=3, size=math.log(3))
    assert abs(one) < rounding and four > 10 * rounding


def test_minibatches_step_and_micro_batches_add_up(stage: Make, arms: Make) -> None:
    for cut, steps in (({"batch_size": 8}, 4), ({"micro_batch_size": 8}, 1)):
        theatre = stage("grpo", arms((1.0, 0.0, -1.0)), num_envs=32, group_size=4, **cut)
        theatre.learn(1)
        assert int(theatre.agent.optimizer.state_dict()["steps"]) == steps


def test_the_mean_of_the_best_three_is_their_own() -> None:
    """Scores .046, .045, .037, .020, .012: the mean of the first three is .0427, that of all five
    .032, below each of the three."""
    scores = torch.tensor([0.046, 0.045, 0.037, 0.020, 0.012])
    rows = Batch(
        torch.zeros(5, 1, 1),
        torch.zeros(5, 1),
        torch.zeros(5, 1),
        torch.ones(5, 1, dtype=torch.bool),
    )
    best = RankedBatch(rows, torch.tensor([5]), scores).best_episodes(3)
    assert best.sizes.tolist() == [3] and best.returns.tolist() == scores[:3].tolist()
    own = group_advantage(best.returns, 3, scale="none")
    assert (
        own.sum().item() == near(0.0, dtype="float32", terms=3, size=0.15) and own[2] < 0 < own[0]
    )
    assert (group_advantage(scores, 5, scale="none")[:3] > 0).all()


def test_without_bounds_beta_runs_away() -> None:
    """A KL that stays twice above its target: β grows by a fifth each time, and 10⁸ is 102 times
    away from 1; bounds stop it."""
    free = bounded = 1.0
    for _ in range(102):
        free = adapted_kl_coef(free, 0.2, target=0.1, share=1.0, low=0.0, high=math.inf)
        bounded = adapted_kl_coef(bounded, 0.2, target=0.1, share=1.0, low=0.01, high=10.0)
    assert free == near(1.2**102, terms=102) and free > 1e8 and bounded == 10.0


def test_a_step_has_five_values() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="too many values to unpack"):
        _, _, _, _ = env.step(0)  # type: ignore[assignment]
    assert len(env.step(0)) == 5


def test_a_moment_has_no_datetime() -> None:
    with pytest.raises(AttributeError):
        _ = datetime.datetime.now().datetime  # type: ignore[attr-defined]


def test_the_type_of_padding_is_not_its_token() -> None:
    from transformers import PreTrainedTokenizerFast

    from rlbook.llm.tokenizers.tokenizer import character_backend

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=character_backend(), pad_token="<eos>")
    assert tokenizer.pad_token_id == 2 and tokenizer.pad_token_type_id == 0
