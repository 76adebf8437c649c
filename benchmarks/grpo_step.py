"""A GRPO step beside TRL's: 4 prompts × 8 completions × 32 tokens, a Llama of 1 M parameters, one
update, β = 0, one thread.

Ours is the agent of the book in the loop of the book, on an environment whose completions all have
32 tokens. TRL runs with its defaults (bf16 autocast, gradient checkpointing) and with its fastest
setting here (bf16 autocast, none).
"""

from __future__ import annotations

import statistics
import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from transformers.utils import logging

from benchmarks.model_sizes import SIZES, Size
from benchmarks.timing import Comparison, clock
from benchmarks.trl import DROPPED, step_seconds, word_tokenizer
from rlbook.agent import Parts
from rlbook.algorithms.policy.grpo import GRPO, GRPOConfig
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.networks.model_spec import ModelSpec

SIZE = SIZES[1]
STEPS, ROUNDS = 8, 4


class FixedLengthTokens(VectorEnv):
    """Writes a size's number of tokens behind a random prompt; the reward is the share of even
    tokens.

    Args:
        folder: the model's.
        size: of the model and of the texts.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    policy_kind = "language_model"

    def __init__(self, folder: str, size: Size = SIZE) -> None:
        # a folder's model needs no task and no tokenizer of it
        self.model, self.rules = (
            folder,
            SimpleNamespace(task=None, codec=None),
        )
        self.size, self.end = size, size.prompt_length + size.new_tokens
        self.num_envs = size.prompts * size.completions
        tokens = spaces.MultiDiscrete([size.vocabulary] * self.end)
        self.single_observation_space = spaces.Dict(
            tokens=tokens, length=spaces.Discrete(self.end + 1)
        )
        self.single_action_space = spaces.Discrete(size.vocabulary)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.tokens = np.zeros((self.num_envs, self.end), np.int64)
        self.length = self.size.prompt_length
        for row, row_seed in zip(self.tokens, seed, strict=True):
            row[: self.length] = np.random.default_rng(row_seed).integers(
                3, self.size.vocabulary, self.length
            )
        return self._observation(), {}

    def step(self, actions: Any) -> Any:
        self.tokens[:, self.length] = actions
        self.length += 1
        over = np.full(self.num_envs, self.length == self.end)
        reward = (
            (self.tokens[:, self.size.prompt_length :] % 2 == 0).mean(1)
            if over[0]
            else np.zeros(self.num_envs)
        )
        return self._observation(), reward, np.zeros_like(over), over, {}

    def _observation(self) -> dict[str, np.ndarray]:
        return {"tokens": self.tokens.copy(), "length": np.full(self.num_envs, self.length)}


def our_steps(compute: str = "float32", size: Size = SIZE, device: str = "cpu") -> list[float]:
    """Seconds of each step, the first two dropped: of the CPU's time, or of a GPU by the wall."""
    now = clock(device)
    with tempfile.TemporaryDirectory() as folder:
        size.model().save_pretrained(folder)
        env: Any = FixedLengthTokens(folder, size)
        config = GRPOConfig(group_size=size.completions, learning_rate=1e-6, max_grad_norm=1.0)
        agent = GRPO(env, config, parts=Parts(model=ModelSpec(compute=compute), device=device))
    interaction = VectorInteraction(
        env, np.random.default_rng(0), rollout="episodes", group_size=size.completions
    )
    times, start = [], now()
    for metrics in loop(agent, interaction, Budget(env.num_envs * size.new_tokens * STEPS, None)):
        if metrics:
            times.append(now() - start)
            start = now()
    return times[DROPPED:]


def trl_steps(size: Size = SIZE, device: str = "cpu", **settings: Any) -> list[float]:
    """The same of TRL's steps."""
    from datasets import Dataset

    rng = np.random.default_rng(0)
    prompts = [
        " ".join(f"t{i}" for i in rng.integers(3, size.vocabulary, size.prompt_length))
        for _ in range(size.prompts * STEPS)
    ]
    arguments = {
        "per_device_train_batch_size": size.prompts * size.completions,
        "num_generations": size.completions,
        "max_completion_length": size.new_tokens,
        "generation_kwargs": {"min_new_tokens": size.new_tokens},
        "max_steps": STEPS,
    }
    return step_seconds(
        "GRPO",
        arguments | settings,
        device=device,
        model=size.model(),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=word_tokenizer(size.vocabulary),
        reward_funcs=lambda completion_ids, **_: [
            sum(i % 2 == 0 for i in ids) / len(ids) for ids in completion_ids
        ],
    )


def compare() -> list[Comparison]:
    logging.set_verbosity_error()
    runs = {
        "ours": our_steps,
        "bfloat16": lambda: our_steps("bfloat16"),
        "defaults": trl_steps,
        "best": lambda: trl_steps(bf16=True, gradient_checkpointing=False),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(ROUNDS + 1):
        for name, run in runs.items():
            rate = 1.0 / statistics.median(run())
            if round_:
                rates[name].append(rate)
    return [
        Comparison(
            "GRPO step, against TRL's defaults", "steps/s", rates["ours"], rates["defaults"], 1.6
        ),
        Comparison(
            "GRPO step, against TRL's best setting", "steps/s", rates["ours"], rates["best"], 2.0
        ),
        Comparison(
            "the same with compute bfloat16, as TRL's",
            "steps/s",
            rates["bfloat16"],
            rates["best"],
            2.2,
        ),
    ]
