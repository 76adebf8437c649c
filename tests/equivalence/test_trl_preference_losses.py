"""The losses on pairs are TRL's: the numbers that its own trainers give for the same
log-probabilities, to ten decimals.

TRL's loss functions are called on trainers that are made without their constructors, on a model
that only says its log-probabilities. `TRL` holds the numbers; the slow one asks TRL again.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from closeness import near
from torch import Tensor

from rlbook.functional.post_training import kto_losses
from rlbook.functional.post_training import preference_losses as losses

# log π of each token: two better episodes, of 3 and 2 tokens, and two worse ones, of 2 and 3
LOG_PROB = torch.tensor(
    [[-0.6, -2.5, -0.5], [-1.2, -0.2, 0.0], [-0.7, -1.5, 0.0], [-2.0, -0.4, -1.1]],
    dtype=torch.float64,
)
REFERENCE = torch.tensor(
    [[-1.0, -2.0, -0.9], [-1.0, -0.8, 0.0], [-0.4, -1.1, 0.0], [-2.5, -0.3, -0.2]],
    dtype=torch.float64,
)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
MISMATCHED, MISMATCHED_REFERENCE = LOG_PROB.roll(1, 0) * 0.9, REFERENCE.roll(1, 0)
# of the same four, each for itself; a good one weighs 1.5
LABELS = torch.tensor([True, False, False, False])

TRL: dict[tuple[str, float], float] = {  # (loss, ε) → TRL 1.16's number at β = 0.3
    ("sigmoid", 0.0): 0.5607936898,
    ("sigmoid_norm", 0.0): 0.6337912482,
    ("cdpo", 0.2): 0.6177936898,
    ("hinge", 0.0): 0.715,
    ("ipo", 0.0): 1.5851388889,
    ("robust", 0.2): 0.4657936898,
    ("exo_pair", 0.2): 0.1351161026,
    ("apo_zero", 0.0): 0.9289066843,
    ("apo_down", 0.0): 0.9554567274,
    ("kto", 0.0): 0.4644602079,
    ("kto_labels", 0.0): 0.5382911123,
    ("simpo", 0.0): 0.9410583513,
    ("orpo", 0.0): 0.1719586998,
}

# TRL's numbers have its rounding, and the others float64's
DTYPE = {
    "exo_pair": "float32",
    "orpo": "float32",
}


def sums(log_prob: Tensor) -> tuple[Tensor, Tensor]:
    better, worse = losses.sequence_log_prob(log_prob, MASK).chunk(2)
    return better, worse


def means(log_prob: Tensor) -> tuple[Tensor, Tensor]:
    better, worse = losses.mean_log_prob(log_prob, MASK).chunk(2)
    return better, worse


def ours(name: str, epsilon: float, log_prob: Tensor = LOG_PROB) -> Tensor:
    """This book's loss at β = 0.3."""
    pair, per_step = (*sums(log_prob), *sums(REFERENCE)), (*means(log_prob), *means(REFERENCE))
    smoothed = {"beta": 0.3, "label_smoothing": epsilon}
    whole, reference = (
        losses.sequence_log_prob(rows, MASK) for rows in (MISMATCHED, MISMATCHED_REFERENCE)
    )
    return {
        "sigmoid": lambda: losses.dpo_loss(*pair, beta=0.3),
        "sigmoid_norm": lambda: losses.dpo_loss(*per_step, beta=0.3),
        "cdpo": lambda: losses.dpo_loss(*pair, **smoothed),
        "hinge": lambda: losses.hinge_preference_loss(*pair, beta=0.3),
        "ipo": lambda: losses.ipo_loss(*per_step, beta=0.3),
        "robust": lambda: losses.robust_dpo_loss(*pair, **smoothed),
        "exo_pair": lambda: losses.exo_loss(*pair, **smoothed),
        "apo_zero": lambda: losses.apo_zero_loss(*pair, beta=0.3),
        "apo_down": lambda: losses.apo_down_loss(*pair, beta=0.3),
        "kto": lambda: kto_losses.kto_loss(
            *pair, kto_losses.mismatched_kl(whole, reference), beta=0.3
        ),
        "kto_labels": lambda: kto_losses.labelled_kto_loss(
            losses.sequence_log_prob(log_prob, MASK),
            losses.sequence_log_prob(REFERENCE, MASK),
            LABELS,
            kto_losses.mismatched_kl(whole, reference),
            beta=0.3,
            good_weight=1.5,
        ),
        "simpo": lambda: losses.simpo_loss(*means(log_prob), beta=0.3, margin=0.5),
        "orpo": lambda: losses.orpo_loss(*means(log_prob), beta=0.3),
    }[name]()


@pytest.mark.parametrize(("name", "epsilon"), list(TRL))
def test_a_loss_is_trls(name: str, epsilon: float) -> None:
    assert ours(name, epsilon).item() == near(
        TRL[name, epsilon], dtype=DTYPE.get(name), decimals=10
    )


@pytest.mark.parametrize(("name", "epsilon"), list(TRL))
def test_no_sign_of_a_loss_can_be_turned_round(name: str, epsilon: float) -> None:
    """A step down the loss makes the better episode gain on the worse one; turning log π round
    gives another number."""
    log_prob = LOG_PROB.clone().requires_grad_()
    ours(name, epsilon, log_prob).backward()
    assert log_prob.grad is not None
    better, worse = (log_prob.grad * MASK).chunk(2)
    assert better.sum() < worse.sum() and (log_prob.grad[~MASK] == 0).all()
    # the worse episodes in the better ones' place
    turned = ours(name, epsilon, LOG_PROB.roll(2, 0)).item()
    assert abs(turned - TRL[name, epsilon]) > 1e-3


@pytest.mark.slow
def test_trl_still_says_the_same() -> None:
    pytest.importorskip("trl", reason="trl is in the extra [peers]")
    for name, epsilon in TRL:
        assert theirs(name, epsilon) == near(
            TRL[name, epsilon], dtype=DTYPE.get(name), decimals=10
        ), name


# ---- TRL


class Accelerator:
    """What a trainer asks of accelerate in one process."""

    device = torch.device("cpu")

    def gather_for_metrics(self, value: Tensor) -> Tensor:
        return value

    gather = gather_for_metrics

    def unwrap_model(self, model: Any) -> Any:
        return model


class Speaking(torch.nn.Module):
    """A model whose log-probabilities are given; with a second table for the mismatched texts."""

    is_gradient_checkpointing = False

    def __init__(self, log_prob: Tensor, mismatched: Tensor | None = None) -> None:
        super().__init__()
        self.tables = [log_prob] if mismatched is None else [mismatched, log_prob]

    def forward(self, **_: object) -> Any:
        table = self.tables.pop(0) if len(self.tables) > 1 else self.tables[0]
        zeros = torch.zeros_like(table)
        return SimpleNamespace(
            log_probs=table,
            entropy=zeros,
            mean_logits=zeros,
            is_top1=zeros.bool(),
            log_sum_sq_probs=zeros,
        )


def trainer(module: str, name: str, **attributes: object) -> Any:
    made = importlib.import_module(module).__dict__[name]
    bare = type("Bare" + name, (made,), {"__init__": lambda self: None})()
    common = {
        "accelerator": Accelerator(),
        "beta": 0.3,
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "aux_loss_enabled": False,
        "_total_train_tokens": 0,
        "_tp_size": 1,
        "args": SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=0.05),
    }
    vars(bare).update(common | attributes)
    return bare


def theirs(name: str, epsilon: float) -> float:
    """TRL's number."""
    if name == "cdpo":  # since 1.0 its label_smoothing no longer reaches "sigmoid"; CPO's does
        policy, reference = sums(LOG_PROB), sums(REFERENCE)
        cpo = trainer(
            "trl.experimental.cpo.cpo_trainer",
            "CPOTrainer",
            loss_type="sigmoid",
            label_smoothing=epsilon,
            alpha=0.0,
        )
        return cpo.cpo_loss(policy[0] - reference[0], policy[1] - reference[1])[0].mean().item()
    if name == "simpo":
        cpo = trainer(
            "trl.experimental.cpo.cpo_trainer",
            "CPOTrainer",
            loss_type="simpo",
            simpo_gamma=0.5,
            label_smoothing=0.0,
            alpha=0.0,
        )
        return cpo.cpo_loss(*means(LOG_PROB))[0].mean().item()
    if name == "orpo":
        orpo = trainer("trl.experimental.orpo.orpo_trainer", "ORPOTrainer")
        return -orpo.odds_ratio_loss(*means(LOG_PROB))[0].mean().item()
    completion = torch.nn.functional.pad(MASK, (1, 0)).long()
    inputs: dict[str, Any] = {
        "input_ids": torch.zeros(4, 4).long(),
        "attention_mask": torch.ones(4, 4).long(),
    }
    inputs["completion_mask"] = completion
    if name in ("kto", "kto_labels"):
        labels, weight = (
            (torch.tensor([True, True, False, False]), 1.0) if name == "kto" else (LABELS, 1.5)
        )
        inputs |= {f"KL_{key}": value for key, value in inputs.items()} | {"label": labels}
        kto = trainer(
            "trl.trainer.kto_trainer",
            "KTOTrainer",
            loss_type="kto",
            calculate_KL=True,
            precompute_ref_logps=False,
            desirable_weight=weight,
            undesirable_weight=1.0,
            model=Speaking(LOG_PROB),
            ref_model=Speaking(REFERENCE, MISMATCHED_REFERENCE * MASK),
        )
        return kto._compute_loss(Speaking(LOG_PROB, MISMATCHED * MASK), inputs, False).item()
    dpo = trainer(
        "trl.trainer.dpo_trainer",
        "DPOTrainer",
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        loss_types=[name],
        loss_weights=[1.0],
        label_smoothing=epsilon,
        use_weighting=False,
        model=Speaking(LOG_PROB),
        ref_model=Speaking(REFERENCE),
    )
    return dpo._compute_loss(Speaking(LOG_PROB), inputs, False).item()
