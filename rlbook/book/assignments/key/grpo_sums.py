"""Assignment grpo_sums: group-relative policy optimisation of a small model that learns to add.

Fill in what raises NotImplementedError, and keep every name and argument: the tests call them. The
page grpo_sums.md says what each part is worth. NumPy and PyTorch are all that may be imported.

Source: Shao et al. 2024, arXiv:2402.03300, equation 3, without its KL term.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIGITS, END, LENGTH = 10, 10, 3
"""Tokens 0 to 9 are digits, token 10 ends a text, and a text has at most three tokens."""


class SumModel(nn.Module):
    """A language model of two summands: the logits of each token, given the tokens before it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width = 2 * DIGITS + (LENGTH - 1) * (END + 2) + LENGTH
        self.layers = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, END + 1))

    def forward(self, prompt: Tensor, tokens: Tensor) -> Tensor:
        """Logits [B, T, V] for prompt [B, 2] and tokens [B, T], both int64. Those at [:, t] are of
        token t itself and depend on the tokens before it alone."""
        batch, length = tokens.shape
        summands = F.one_hot(prompt, DIGITS).flatten(1)[:, None].expand(-1, length, -1)
        parts = [summands, F.one_hot(torch.arange(length), LENGTH).expand(batch, -1, -1)]
        for back in range(1, LENGTH):  # token t - back, or "none" before the text begins
            earlier = F.pad(tokens, (back, 0), value=END + 1)[:, :length]
            parts.append(F.one_hot(earlier, END + 2))
        return self.layers(torch.cat(parts, dim=-1).float())


@torch.no_grad()
def generate(model: SumModel, prompt: Tensor, generator: torch.Generator) -> Tensor:
    """A text for each prompt [B, 2], drawn token by token: [B, T]. What follows END is noise."""
    tokens = torch.zeros(len(prompt), LENGTH, dtype=torch.int64)
    for place in range(LENGTH):
        probs = model(prompt, tokens)[:, place].softmax(dim=-1)
        tokens[:, place] = torch.multinomial(probs, 1, generator=generator)[:, 0]
    return tokens


def pretrain(model: SumModel, sums: Any, steps: int = 200) -> None:
    """Imitates texts of which only some are right, so that every group has something to prefer."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    prompt, tokens = sums.examples
    for _ in range(steps):
        log_prob = torch.log_softmax(model(prompt, tokens), dim=-1)
        loss = -log_prob.gather(2, tokens[:, :, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def completion_mask(tokens: Tensor) -> Tensor:
    """Which tokens belong to the text: [B, T] bool, True up to the first END, that one included."""
    ### BEGIN SOLUTION
    ends = (tokens == END).long()
    return ends.cumsum(dim=1) - ends == 0
    ### END SOLUTION


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """log π of each token that was written: [B, T] for logits [B, T, V] and tokens [B, T]."""
    ### BEGIN SOLUTION
    return torch.log_softmax(logits, dim=-1).gather(2, tokens[:, :, None])[:, :, 0]
    ### END SOLUTION


def group_advantages(reward: Tensor) -> Tensor:
    """Advantages of G texts for each of P prompts: [P, G] for reward [P, G].

    Within the group of a prompt: the reward minus the group's mean, divided by the group's standard
    deviation (of G - 1 degrees of freedom, which is torch's default) plus 1e-4.
    """
    ### BEGIN SOLUTION
    mean, deviation = reward.mean(dim=1, keepdim=True), reward.std(dim=1, keepdim=True)
    return (reward - mean) / (deviation + 1e-4)
    ### END SOLUTION


def grpo_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, mask: Tensor, clip: float
) -> Tensor:
    """The clipped loss of B texts, a scalar to be minimised.

    L = −mean over texts of ( mean over a text's own tokens of min(ρ A, clip(ρ, 1−ε, 1+ε) A) ),
    where ρ = exp(log_prob − old_log_prob) is a token's ratio.

    log_prob and old_log_prob are [B, T], advantage is [B] and counts for every token of its text,
    mask [B, T] bool marks the tokens that count. The gradient flows through log_prob alone.
    """
    ### BEGIN SOLUTION
    old_log_prob, advantage = old_log_prob.detach(), advantage.detach()[:, None]
    ratio = torch.where(mask, log_prob - old_log_prob, 0.0).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    per_text = (surrogate * mask).sum(dim=1) / mask.sum(dim=1)
    return -per_text.mean()
    ### END SOLUTION


def train(
    sums: Any, *, iterations: int, group_size: int = 16, epochs: int = 2, seed: int = 0
) -> SumModel:
    """Learns for a number of iterations, and returns the model.

    The model begins as SumModel(seed) after pretrain. An iteration takes every prompt of sums.prompts [P, 2] (int64), writes group_size
    texts for each with the model as it is, and then takes `epochs` steps of Adam (learning rate 0.003) on the loss
    with ε = 0.2, where old_log_prob comes from the model that wrote.
    sums.reward(prompt [B, 2], tokens [B, T]) returns [B] float32: 1 where the text is the sum.
    """
    ### BEGIN SOLUTION
    model, generator = SumModel(seed), torch.Generator().manual_seed(seed)
    pretrain(model, sums)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(iterations):
        prompt = sums.prompts.repeat_interleave(group_size, dim=0)
        tokens = generate(model, prompt, generator)
        mask = completion_mask(tokens)
        reward = sums.reward(prompt, tokens).reshape(-1, group_size)
        advantage = group_advantages(reward).flatten()
        with torch.no_grad():
            old_log_prob = token_log_probs(model(prompt, tokens), tokens)
        for _ in range(epochs):
            log_prob = token_log_probs(model(prompt, tokens), tokens)
            loss = grpo_loss(log_prob, old_log_prob, advantage, mask, clip=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model
    ### END SOLUTION


class Sums:
    """All sums of two numbers from 0 to 6, examples to imitate, and how an answer is judged."""

    def __init__(self, highest: int = 6) -> None:
        numbers = torch.arange(highest + 1)
        self.prompts = torch.cartesian_prod(numbers, numbers)
        # each sum six times, of which two are right and the others are off by one or two
        said = [
            (summands, max(sum(summands) + off, 0))
            for summands in self.prompts.tolist()
            for off in (-2, -1, 0, 0, 1, 2)
        ]
        texts = [[*map(int, str(number)), END, END][:LENGTH] for _, number in said]
        self.examples = torch.tensor([summands for summands, _ in said]), torch.tensor(texts)

    def reward(self, prompt: Tensor, tokens: Tensor) -> Tensor:
        """[B] float32 for prompt [B, 2] and tokens [B, T]: 1 where the text is the sum and its END."""
        right = [
            text[: text.index(END)] == [int(digit) for digit in str(sum(summands))]
            if END in text
            else False
            for summands, text in zip(prompt.tolist(), tokens.tolist(), strict=True)
        ]
        return torch.tensor(right, dtype=torch.float32)


def main() -> None:
    """Trains on the sums, and says how many the model gets right."""
    sums = Sums()
    model = train(sums, iterations=600)
    tokens = generate(model, sums.prompts, torch.Generator().manual_seed(1_000))
    right = int(sums.reward(sums.prompts, tokens).sum())
    print(f"{right} of {len(sums.prompts)} sums are right")


if __name__ == "__main__":
    main()
