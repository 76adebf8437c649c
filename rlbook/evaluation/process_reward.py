"""A process reward model: the probability that each step of a solution is right.

    write some completions of each training prompt with the policy; find the ends of their steps
    label each step      exactly: the task says whether it is right
                         by rollouts: the share of K continuations from its end that are right
                         (soft), or whether at least one is (hard)
    for each minibatch of completions, at the end of each step
        minimise  -( y log σ(z) + (1 - y) log(1 - σ(z)) )

An outcome model sees one number for a solution of many steps; this one sees where it went wrong. A
solution's score is its worst step, or the product of all.

Source: Lightman et al. 2023, arXiv:2305.20050 (labels by people); labels by rollouts: Wang et al.
2023 (Math-Shepherd), arXiv:2312.08935, section 3.3. Deliberate difference: a head that
reads the text before and after a step, in place of the probability of a "+" token after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.data.rollout import Batch
from rlbook.evaluation.best_of_n import SampledCompletions
from rlbook.evaluation.outcome_value import completion_batch
from rlbook.functional.post_training.process_rewards import aggregate_steps, step_label_loss
from rlbook.interaction.environments import EnvRecipe
from rlbook.llm.environments.token_rows import TokenRules, pad_rows
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.models.causal_lm import LanguageModel, hidden_states
from rlbook.llm.models.language_model import Critic, LanguageModelPolicy
from rlbook.llm.rewards import Completion, mark_batched
from rlbook.networks.mlp import MLP
from rlbook.networks.optimizer import Group, LossOutput, adam, gradient_step
from rlbook.networks.policy import as_array, module_device

ROWS = 1024  # texts that are read or written side by side
Floats = NDArray[np.float64]


class TextSteps(NamedTuple):
    """The steps of N completions, S at most."""

    end: NDArray[np.int64]  # [N, S], tokens of the completion up to the end of each step
    right: Floats  # [N, S], what the task says of each: 1 or 0
    mask: NDArray[np.bool_]  # [N, S], which steps there are


def find_steps(completions: Sequence[Completion], rules: TokenRules) -> TextSteps:
    """The ends of the steps of completions, and whether each is right.

    Raises:
        ValueError: the task of these prompts has no steps.
    """
    rows: list[list[tuple[int, float]]] = []
    for one in completions:
        pieces = [rules.codec.decode([i]) for i in one.ids if i not in rules.codec.ends]
        ends = np.cumsum([len(piece) for piece in pieces])
        told = rules.task.judge_steps(one.prompt, "".join(pieces))
        rows.append([(int(np.searchsorted(ends, end)) + 1, right) for end, right in told])
    width = max([1, *map(len, rows)])  # a round of empty texts has no steps
    mask = np.arange(width) < np.array([len(row) for row in rows])[:, None]
    end = np.zeros(mask.shape, dtype=np.int64)
    right = np.zeros(mask.shape)
    for place, row in enumerate(rows):
        end[place, : len(row)] = [step[0] for step in row]
        right[place, : len(row)] = [step[1] for step in row]
    return TextSteps(end, right, mask)


def rollout_labels(
    policy: LanguageModelPolicy,
    recipe: EnvRecipe,
    completions: SampledCompletions,
    steps: TextSteps,
    samples: int,
    rng: np.random.Generator,
) -> Floats:
    """The share of the continuations from the end of each step that are right: [N, S].

    If the policy comes to a right answer from there with probability p, the label is p on average,
    with the standard error √(p (1 - p) / K). This is Math-Shepherd's soft estimation (eq. 4).

    Args:
        policy: continues.
        recipe: a token environment with the prompts of these completions; its reward says what is
            right, by 1.
        completions: completions.
        steps: theirs.
        samples: K, continuations of each beginning.
        rng: the noise.
    """
    text, place = (np.repeat(index, samples) for index in steps.mask.nonzero())
    paid = np.zeros(len(text))
    for start in range(0, len(text), ROWS):
        part = slice(start, start + ROWS)
        first = completions.prompt[text[part]]
        length = first + steps.end[text[part], place[part]]
        paid[part] = _continue(policy, recipe, completions, text[part], length, rng)
    label = np.zeros(steps.mask.shape)
    label[steps.mask] = paid.reshape(-1, samples).mean(axis=1)
    return label


def hard_labels(share: Floats) -> Floats:
    """Math-Shepherd's hard estimation (eq. 3): 1 if at least one of K continuations is right.

    On average that is 1 - (1 - p)^K: with many continuations of a policy that is right by chance,
    every step is called right.

    Args:
        share: [N, S], from `rollout_labels`.
    """
    return (share > 0).astype(np.float64)


def _continue(
    policy: LanguageModelPolicy,
    recipe: EnvRecipe,
    completions: SampledCompletions,
    text: NDArray[np.int64],
    length: NDArray[np.int64],
    rng: np.random.Generator,
) -> Floats:
    """The rewards [R] of texts that begin with the first `length` [R] tokens of completions."""
    env = recipe.make_native_vector(len(text))
    assert env is not None
    rules: TokenRules = env.unwrapped.rules  # type: ignore[attr-defined]
    numbers = {prompt: i for i, prompt in enumerate(rules.texts)}
    chosen = [numbers[completions.finished[row].prompt] for row in text]
    obs, _ = env.reset(seed=0, options={"prompt_id": chosen})
    env.defer_rewards(True)  # type: ignore[attr-defined]
    state, over = policy.initial_state(), np.zeros(len(text), dtype=bool)
    tokens = completions.tokens[text]
    while not over.all():
        column = np.minimum(obs["length"], tokens.shape[1] - 1)
        action, _ = policy.act(obs, rng, state)
        given = np.take_along_axis(tokens, column[:, None], axis=1)[:, 0]
        obs, _, terminated, truncated, _ = env.step(np.where(obs["length"] < length, given, action))
        over = terminated | truncated
    return env.score_round()[0]  # type: ignore[attr-defined]


@dataclass
class LabelledSteps:
    """Texts [B] with the ends, the labels and the mask of their steps, [B, S] each."""

    texts: Batch
    end: Tensor
    label: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.end)

    def __getitem__(self, rows: Tensor | slice) -> LabelledSteps:
        return LabelledSteps(self.texts[rows], self.end[rows], self.label[rows], self.mask[rows])


class StepJudge(nn.Module):
    """The logit of each step, from a small MLP on the language model's hidden states before and
    after it: before the step a policy's trunk predicts what should follow, and the step is right if
    it matches."""

    def __init__(self, model: LanguageModel, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = Critic(model).trunk
        size = model.config.get_text_config().hidden_size
        self.head = MLP((2 * size, 2 * size, 1), generator)

    def forward(self, texts: PromptRows, end: Tensor) -> Tensor:
        """Texts [B] and the ends [B, S] of their steps, in tokens of the completion → [B, S]."""
        hidden = hidden_states(self.trunk, texts).to(torch.float32)  # [B, T + 1, H]
        before = F.pad(end[:, :-1], (1, 0))
        read = [
            hidden.gather(1, place[..., None].expand(-1, -1, hidden.shape[-1]))
            for place in (before, end)
        ]
        return self.head(torch.cat(read, dim=-1)).squeeze(-1)


class ProcessReward:
    """The probability that each step is right.

    Args:
        policy: whose solutions it is about; the model starts from its trunk.
        rng: draws the weights of its head.
    """

    def __init__(self, policy: LanguageModelPolicy, rng: np.random.Generator) -> None:
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        self.network = StepJudge(policy.model, generator).to(module_device(policy.model))

    def fit(
        self,
        completions: SampledCompletions,
        steps: TextSteps,
        label: Floats,
        rng: np.random.Generator,
        *,
        passes: int = 3,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
    ) -> list[float]:
        """Fits the model to labelled steps; returns the loss of each minibatch, in nats.

        Args:
            completions: completions of training prompts.
            steps: theirs.
            label: [N, S], in [0, 1].
            rng: the order of the minibatches.
            passes: over all of them.
            batch_size: completions of a minibatch.
            learning_rate: Adam's step size, which falls linearly to 0.
        """
        device = module_device(self.network)
        rows = LabelledSteps(
            completion_batch(completions).to(device),
            *(torch.from_numpy(array).to(device) for array in (steps.end, label, steps.mask)),
        )
        optimizer, losses = adam([Group([self.network])], learning_rate), list[float]()
        total = passes * -(-len(rows) // batch_size)
        for _ in range(passes):
            for part in torch.from_numpy(rng.permutation(len(rows))).split(batch_size):
                optimizer.learning_rate = learning_rate * (1 - len(losses) / total)
                done = gradient_step(optimizer, self.loss, rows[part], max_grad_norm=1.0)
                losses.append(float(done["loss"]))
        return losses

    def loss(self, rows: LabelledSteps) -> LossOutput:
        """The cross-entropy of the labels."""
        loss = step_label_loss(self.logits(rows.texts, rows.end), rows.label, mask=rows.mask)
        return LossOutput(loss, {"loss": loss.detach()})

    def logits(self, batch: Batch, end: Tensor) -> Tensor:
        """The logit of each step: [B, S]."""
        texts = rows_of(batch.obs["tokens"], batch.obs["length"], batch.action)
        return self.network(texts, end)

    @torch.inference_mode()
    def score(self, completions: SampledCompletions, steps: TextSteps) -> Floats:
        """The probability that each step is right: [N, S]; 0 where there is none."""
        device, scores = module_device(self.network), []
        whole, end = (
            completion_batch(completions).to(device),
            torch.from_numpy(steps.end).to(device),
        )
        for start in range(0, len(end), ROWS):
            rows = slice(start, start + ROWS)
            scores.append(as_array(self.logits(whole[rows], end[rows]).sigmoid()))
        return np.where(steps.mask, np.concatenate(scores), 0.0)

    def judge(self, completions: SampledCompletions, steps: TextSteps, how: str) -> Floats:
        """The score of each completion: [N]; `how` as for `aggregate_steps`."""
        score, mask = torch.from_numpy(self.score(completions, steps)), torch.from_numpy(steps.mask)
        return aggregate_steps(score, mask, how).numpy()

    def reward(
        self, rules: TokenRules, how: str
    ) -> Callable[[Sequence[Completion]], list[float | None]]:
        """The score of a completion as a reward, for all completions of a round at once."""

        @mark_batched
        def process(completions: Sequence[Completion]) -> list[float | None]:
            found, steps = (
                _as_sampled_completions(completions, rules),
                find_steps(completions, rules),
            )
            return [float(score) for score in self.judge(found, steps, how)]

        return process


def _as_sampled_completions(
    completions: Sequence[Completion], rules: TokenRules
) -> SampledCompletions:
    """Completions in the format of sampled ones, without their likelihood."""
    prompts = [rules.codec.encode_prompt(one.prompt) for one in completions]
    texts = [[*prompt, *one.ids] for prompt, one in zip(prompts, completions, strict=True)]
    none = np.zeros(len(texts))
    return SampledCompletions(
        pad_rows(texts, rules.codec.pad),
        np.array([len(prompt) for prompt in prompts]),
        np.array([len(text) for text in texts]),
        none,
        none,
        list(completions),
    )
