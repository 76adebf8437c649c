"""GRPO's losses beside TRL's own `_compute_loss`, which a trainer made without its constructor runs
on given log-probabilities."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from closeness import assert_near
from torch import Tensor

from rlbook.algorithms.policy.grpo import GRPOConfig, grpo_loss
from rlbook.data.rollout import Batch
from rlbook.functional.policy_losses import truncated_importance_weight
from rlbook.registry import VARIANTS

pytestmark = pytest.mark.slow  # importing TRL takes five seconds
MASK = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4, 3])[:, None]
# The ratio of a completion of four tokens is e^(4 · 0.8 · 2) at most, twice their deviation; times
# A.
ROUNDED: dict[str, Any] = {"dtype": "float64", "terms": 17, "size": 600.0 * 3}


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log π, log π_old, log π_ref [6, 4] and A [6]; ratios from about 0.1 to 10."""
    generator = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(6, 4, generator=generator, dtype=torch.float64)
    new, reference = (
        old + torch.randn(6, 4, generator=generator, dtype=torch.float64) * scale
        for scale in (0.8, 0.3)
    )
    return (
        new.requires_grad_(),
        old,
        reference,
        torch.randn(6, generator=generator, dtype=torch.float64),
    )


def trls(kind: str, log_prob: Tensor, inputs: dict[str, Any], **options: Any) -> Tensor:
    """The loss of TRL's trainer `kind` for log-probabilities that no model computed."""
    trl = pytest.importorskip("trl")
    settings = getattr(trl, kind.replace("Trainer", "Config"))
    defaults = {item.name: item.default for item in settings.__dataclass_fields__.values()}
    arguments = SimpleNamespace(**defaults | {"steps_per_generation": 1} | options)
    trainer = object.__new__(getattr(trl, kind))
    same = lambda tensor, **_: tensor  # noqa: E731 - one process
    accelerator = SimpleNamespace(num_processes=1, gather=same, reduce=same, sync_gradients=False)
    vars(trainer).update(
        vars(arguments),
        args=arguments,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        epsilon_low=arguments.epsilon,
        epsilon_high=arguments.epsilon_high or arguments.epsilon,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *_, **__: (
            log_prob,
            torch.zeros_like(log_prob),
            None,
        ),
    )
    ids = torch.zeros(MASK.shape, dtype=torch.long)
    prompts = {
        "prompt_ids": ids[:, :0],
        "prompt_mask": ids[:, :0],
        "completion_ids": ids,
        "completion_mask": MASK.long(),
    }
    return trainer._compute_loss(None, prompts | inputs | {"num_items_in_batch": MASK.sum()})


def ours(
    log_prob: Tensor,
    old: Tensor,
    reference: Tensor,
    advantage: Tensor,
    importance: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Our loss, of a policy that is only its log-probabilities."""
    config = GRPOConfig(**options)
    policy: Any = SimpleNamespace(
        evaluate=lambda *_, **__: (log_prob, torch.zeros_like(log_prob), None)
    )
    rows = advantage[:, None].expand(MASK.shape)
    held = reference if config.kl_coef else None
    batch = Batch(
        {},
        torch.zeros(MASK.shape),
        old,
        MASK,
        advantage=rows,
        reference_log_prob=held,
        importance=importance,
    )
    batch.weight = config.averaging()(MASK)
    return grpo_loss(policy, batch, config=config).loss


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"average": "sequence"}),
    "dapo, the default": ({}, {}),
    "bnpo": ({"loss_type": "bnpo"}, {"average": "token"}),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "max_completion_length": 7},
        {"average": "constant", "average_divisor": 7},
    ),
    "clip-higher": ({"epsilon": 0.2, "epsilon_high": 0.28}, {"clip": 0.2, "clip_high": 0.28}),
    "GSPO": (
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"ratio": "sequence", "average": "sequence"},
    ),
    "GSPO over tokens": ({"importance_sampling_level": "sequence"}, {"ratio": "sequence"}),
    "CISPO": ({"loss_type": "cispo", "epsilon_high": 5.0}, VARIANTS["cispo"]),
    "KL": (
        {"beta": 0.04, "use_bias_correction_kl": False, "loss_type": "grpo"},
        {"kl_coef": 0.04, "average": "sequence"},
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_loss_and_its_gradient_are_trls(name: str) -> None:
    theirs, mine = SETTINGS[name]
    for seed in range(3):
        new, old, reference, advantage = drawn(seed)
        inputs = {
            "advantages": advantage,
            "old_per_token_logps": old,
            "ref_per_token_logps": reference,
        }
        losses = (
            trls("GRPOTrainer", new, inputs, **theirs),
            ours(new, old, reference, advantage, **mine),
        )
        assert_near(losses[1], losses[0], **ROUNDED)
        gradients = [torch.autograd.grad(loss, new)[0] for loss in losses]
        assert_near(gradients[1], gradients[0], **ROUNDED)
        assert gradients[0].abs().max() > 0.01


def test_two_sided_clipping_is_the_dual_clip_where_the_advantage_is_negative() -> None:
    """TRL's `delta` cuts ρ from above before the minimum: for A < 0 that is -δ A, and for A > 0 the
    clip is below it anyway."""
    new, old, reference, advantage = drawn()
    inputs = {"advantages": advantage, "old_per_token_logps": old}
    losses = (
        trls("GRPOTrainer", new, inputs, delta=3.0),
        ours(new, old, reference, advantage, dual_clip=3.0),
    )
    assert_near(losses[1], losses[0], **ROUNDED)


@pytest.mark.parametrize("episode", [False, True])
def test_samples_of_another_engine_weigh_as_in_trl(episode: bool) -> None:
    """TRL's mode `token_truncate` or `sequence_truncate`, whose ratio it hands to the loss as [B,
    T] or [B, 1]."""
    new, old, reference, advantage = drawn()
    behaviour = old - 0.7 * torch.randn(
        6, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64
    )
    difference = (old - behaviour) * MASK
    ratio = (difference.sum(1, keepdim=True) if episode else difference).exp().clamp(max=2.0)
    inputs = {
        "advantages": advantage,
        "old_per_token_logps": old,
        "importance_sampling_ratio": ratio,
    }
    importance = truncated_importance_weight(old, behaviour, MASK, cap=2.0, episode=episode)
    assert (ratio == 2.0).any() and (ratio < 1.0).any()
    theirs = trls("GRPOTrainer", new, inputs, use_vllm=True)
    assert_near(ours(new, old, reference, advantage, importance), theirs, **ROUNDED)


def test_rloo_is_trls() -> None:
    """One ratio of the whole completion, its probability now over that then, and a mean over
    completions."""
    new, old, reference, advantage = drawn()
    inputs = {"advantages": advantage, "old_logps": (old * MASK).sum(1)}
    losses = (
        trls("RLOOTrainer", new, inputs),
        ours(new, old, reference, advantage, **VARIANTS["rloo"]),
    )
    assert_near(losses[1], losses[0], **ROUNDED)
    gradients = [torch.autograd.grad(loss, new)[0] for loss in losses]
    assert_near(gradients[1], gradients[0], **ROUNDED)
