"""A step of learning from data beside TRL's: fine-tuning, DPO and a reward model, a Llama of 1 M
parameters, one thread, CPU time.

Texts are 16 tokens of prompt with 48 of completion (fine-tuning, 32 of them) or 32 (16 pairs), and
EOS. Both clip the gradient and step with Adam; the loss is of the completions alone. TRL runs with
its defaults (bf16 autocast, gradient checkpointing) and without the latter in bf16 and in float32,
of which the faster counts. Ours computes in float32.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from transformers.utils import logging

from benchmarks.grpo_step import SIZE, FixedLengthTokens
from benchmarks.timing import Comparison
from benchmarks.trl import DROPPED, step_seconds, word_tokenizer
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning, BehaviorCloningConfig
from rlbook.algorithms.imitation.reward_model import RewardModel, RewardModelConfig
from rlbook.algorithms.policy.dpo import DPO, DPOConfig
from rlbook.data import Episode, Episodes, Pairs

PROMPT, WRITTEN, PAIRED, TEXTS, PAIRS, EOS = 16, 48, 32, 32, 16, 1
STEPS, ROUNDS = 8, 5
Rows = list[tuple[list[int], list[int], list[int]]]
"""Prompt and two completions without EOS; fine-tuning looks at the first."""


def rows(count: int, written: int) -> Rows:
    """The same each time."""
    rng, lengths = np.random.default_rng(0), (PROMPT, written, written)
    return [
        tuple(rng.integers(3, SIZE.vocabulary, length).tolist() for length in lengths)
        for _ in range(count)
    ]  # type: ignore[misc]


def episodes(rows: Rows, which: int) -> list[Episode]:
    return [Episode(np.array(row[0]), np.array([*row[which], EOS])) for row in rows]


def our_steps(agent_class: Any, config: Any, data: Any) -> list[float]:
    """CPU seconds of each step, the first two dropped."""
    with tempfile.TemporaryDirectory() as folder:
        SIZE.model().save_pretrained(folder)
        agent = agent_class(FixedLengthTokens(folder), config)
    data.shuffle(np.random.default_rng(0))
    times, start = [], time.process_time()
    for _, _ in zip(range(STEPS), agent.fit(data), strict=False):
        times.append(time.process_time() - start)
        start = time.process_time()
    return times[DROPPED:]


def our_fine_tuning() -> list[float]:
    data = Episodes(episodes(rows(TEXTS * STEPS, WRITTEN), 1))
    return our_steps(
        BehaviorCloning, BehaviorCloningConfig(batch_size=TEXTS, learning_rate=1e-6), data
    )


def our_pairs() -> Pairs:
    given = rows(PAIRS * STEPS, PAIRED)
    return Pairs(episodes(given, 1), episodes(given, 2))


def our_dpo() -> list[float]:
    return our_steps(DPO, DPOConfig(batch_size=PAIRS, learning_rate=1e-6), our_pairs())


def our_reward_model() -> list[float]:
    return our_steps(
        RewardModel,
        RewardModelConfig(batch_size=PAIRS, learning_rate=1e-6, held_out=0.0),
        our_pairs(),
    )


def their_steps(
    trainer: str,
    start: Any,
    columns: tuple[str, ...],
    given: Rows,
    batch: int,
    parts: dict[str, Any] | None = None,
    **settings: Any,
) -> list[float]:
    """The same with TRL."""
    from datasets import Dataset

    texts = {
        name: [" ".join(f"t{i}" for i in row[place]) for row in given]
        for place, name in enumerate(columns)
    }
    arguments = {
        "per_device_train_batch_size": batch,
        "max_steps": STEPS,
        "learning_rate": 1e-6,
    } | settings
    return step_seconds(
        trainer,
        arguments,
        model=start,
        train_dataset=Dataset.from_dict(texts),
        processing_class=word_tokenizer(SIZE.vocabulary),
        **parts or {},
    )


def their_fine_tuning(**settings: Any) -> list[float]:
    return their_steps(
        "SFT",
        SIZE.model(),
        ("prompt", "completion"),
        rows(TEXTS * STEPS, WRITTEN),
        TEXTS,
        **settings,
    )


def their_dpo(**settings: Any) -> list[float]:
    given = rows(PAIRS * STEPS, PAIRED)
    return their_steps(
        "DPO",
        SIZE.model(),
        ("prompt", "chosen", "rejected"),
        given,
        PAIRS,
        {"ref_model": SIZE.model()},
        **settings,
    )


def their_reward_model(**settings: Any) -> list[float]:
    from transformers import LlamaForSequenceClassification

    config = SIZE.model().config
    config.num_labels = 1
    start = LlamaForSequenceClassification(config)
    return their_steps(
        "Reward",
        start,
        ("prompt", "chosen", "rejected"),
        rows(PAIRS * STEPS, PAIRED),
        PAIRS,
        **settings,
    )


STEPS_OF: dict[str, tuple[Callable[[], list[float]], Callable[..., list[float]]]] = {
    "fine-tuning": (our_fine_tuning, their_fine_tuning),
    "DPO": (our_dpo, their_dpo),
    "reward-model": (our_reward_model, their_reward_model),
}


def compare() -> list[Comparison]:
    logging.set_verbosity_error()
    return [line for name in STEPS_OF for line in beside(name)]


def beside(name: str) -> list[Comparison]:
    ours, theirs = STEPS_OF[name]
    runs: dict[str, Callable[[], list[float]]] = {
        "ours": ours,
        "defaults": theirs,
        "bf16": lambda: theirs(bf16=True, gradient_checkpointing=False),
        "float32": lambda: theirs(bf16=False, gradient_checkpointing=False),
    }
    rates: dict[str, list[float]] = {side: [] for side in runs}
    for round_ in range(ROUNDS + 1):
        for side, run in runs.items():
            rate = 1.0 / statistics.median(run())
            if round_:
                rates[side].append(rate)
    best = list(map(max, rates["bf16"], rates["float32"]))
    return [
        Comparison(
            f"{name} step, against TRL's defaults", "steps/s", rates["ours"], rates["defaults"], 1.3
        ),
        Comparison(f"{name} step, against TRL's best setting", "steps/s", rates["ours"], best, 1.3),
    ]
