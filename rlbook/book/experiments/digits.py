"""Hinton's first experiment on scikit-learn's digits: 1 797 images of 8 × 8 points, a network of
1200-1200 units, and one of 800-800.

    found = run(seeds=3)
    found.right["distilled"]                     [R], share of the test images that are named right

A student learns from α T² KL(teacher ‖ student) at temperature T and from (1 - α) times the
cross-entropy with the true labels, T = 20 and α = 0.7. A second student learns without the
distillation, and a third is never shown an image of a 3: what it knows of threes it has from how
probable the teacher finds a 3 in images of other digits.

Source: Hinton et al. 2015, arXiv:1503.02531, section 3, there with MNIST. A unit is kept with
probability 0.8 in the teacher's training, which in torch is a dropout of 0.2. Needs scikit-learn,
of the extra `dev`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.post_training.distillation_losses import soft_label_loss
from rlbook.seeding import rng_for, torch_generator

TEACHER, STUDENT, KEPT = (1200, 1200), (800, 800), 0.8
TEMPERATURE, ALPHA = 20.0, 0.7
TRAINED_ON, EPOCHS, BATCH, RATE, MISSING = 1_000, 20, 100, 1e-3, 3


@dataclass(frozen=True)
class Digits:
    """Results of R seeds."""

    right: dict[str, NDArray[np.float64]]  # by network, [R], share of all test images
    missing: dict[str, NDArray[np.float64]]  # the same of the threes among them


class Network(nn.Module):
    """A network with two hidden layers; dropout uses its own generator."""

    def __init__(self, sizes: tuple[int, int], generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator
        sides = (64, *sizes, 10)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sides))
        for weights in self.parameters():
            bound = 64**-0.5 if weights.dim() == 1 else weights.shape[1] ** -0.5
            nn.init.uniform_(weights, -bound, bound, generator=generator)

    def forward(self, x: Tensor, keep_probability: float = 1.0) -> Tensor:
        """Images [B, 64] → logits [B, 10]."""
        for layer in list(self.layers)[:-1]:
            x = torch.relu(layer(x))
            if keep_probability < 1.0:
                x = (
                    x
                    * (torch.rand(x.shape, generator=self.generator) < keep_probability)
                    / keep_probability
                )
        return self.layers[-1](x)


def images(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images [·, 64] in [0, 1] and digits [·], for training and for testing."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    order = rng_for(seed, "data").permutation(len(found.target))
    x, y = (
        torch.from_numpy(found.data[order] / 16.0).float(),
        torch.from_numpy(found.target[order]).long(),
    )
    return x[:TRAINED_ON], y[:TRAINED_ON], x[TRAINED_ON:], y[TRAINED_ON:]


def train_network(
    sizes: tuple[int, int],
    x: Tensor,
    y: Tensor,
    seed: int,
    *,
    teacher: Network | None = None,
    keep_probability: float = 1.0,
) -> Network:
    """Trains a network on images and digits, and on a teacher's outputs if there is one."""
    rng = rng_for(seed, "initialisation")
    network = Network(sizes, torch_generator(rng))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.from_numpy(rng.permutation(len(x))).split(BATCH):
            logits = network(x[rows], keep_probability)
            loss = negative_log_likelihood_loss(
                logits.log_softmax(-1).gather(1, y[rows, None])[:, 0]
            )
            if teacher is not None:
                with torch.no_grad():
                    soft = teacher(x[rows])
                loss = (
                    ALPHA * soft_label_loss(logits, soft, temperature=TEMPERATURE)
                    + (1.0 - ALPHA) * loss
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


def run(seeds: int = 3, first: int = 0) -> Digits:
    """Trains a teacher and three students for each seed."""
    right: dict[str, list[float]] = {}
    missing: dict[str, list[float]] = {}
    for seed in range(first, first + seeds):
        x, y, test_x, test_y = images(seed)
        teacher, others = train_network(TEACHER, x, y, seed, keep_probability=KEPT), y != MISSING
        networks = {
            "teacher": teacher,
            "alone": train_network(STUDENT, x, y, seed),
            "distilled": train_network(STUDENT, x, y, seed, teacher=teacher),
            "alone, without threes": train_network(STUDENT, x[others], y[others], seed),
            "distilled, without threes": train_network(
                STUDENT, x[others], y[others], seed, teacher=teacher
            ),
        }
        for name, network in networks.items():
            with torch.no_grad():
                hits = (network(test_x).argmax(-1) == test_y).double()
            right.setdefault(name, []).append(float(hits.mean()))
            missing.setdefault(name, []).append(float(hits[test_y == MISSING].mean()))
    return Digits(
        *({name: np.array(each) for name, each in found.items()} for found in (right, missing))
    )


def measurements(result: Digits) -> dict[str, float]:
    """Means over the seeds."""
    all_images = {name: float(each.mean()) for name, each in result.right.items()}
    return all_images | {
        f"{name}, of the threes": float(result.missing[name].mean())
        for name in result.missing
        if "without" in name
    }
