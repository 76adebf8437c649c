"""A language model's completions, token by token: each token's probability and its advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from torch import Tensor

from rlbook.agent import Agent
from rlbook.algorithms.policy.grpo import GRPOConfig
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.advantages import group_advantage
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.policy import as_array
from rlbook.plots.colours import readable_ink
from rlbook.plots.terminal import Terminal, advantage_paper, visible_length
from rlbook.runs.inspection import advantage_meaning, advantages, play_round

SAMPLES = 4  # completions of a prompt, for agents that have no group size


@dataclass(frozen=True)
class DisplayedCompletion:
    """One completion of a prompt."""

    prompt: str
    answer: str | None  # the right one, where it is known
    tokens: list[str]  # [T], EOS included where it was written
    probability: np.ndarray  # [T] under the policy that wrote them, in [0, 1]
    advantage: np.ndarray  # [T], see `DisplayedCompletions.meaning`
    reward: float  # of the whole, in reward units


@dataclass(frozen=True)
class DisplayedCompletions:
    """Completions, those of one prompt next to each other."""

    completions: list[DisplayedCompletion]
    meaning: str  # what the advantages are

    @property
    def mean_reward(self) -> float:
        """In reward units."""
        return float(np.mean([completion.reward for completion in self.completions]))


def writes(agent: Agent, recipe: EnvRecipe) -> bool:
    """Whether the agent acts with a language model in a token environment."""
    return getattr(getattr(agent, "policy", None), "unit", None) == "episode" and hasattr(
        recipe.make().unwrapped, "rules"
    )


def write(
    agent: Agent,
    recipe: EnvRecipe,
    starts: Sequence[int],
    *,
    samples: int | None = None,
    seed: int = 0,
    greedy: bool = False,
) -> DisplayedCompletions:
    """Generates completions of prompts with the agent's language model. The agent is not changed.

    Args:
        agent: one whose policy is a language model (PPO, GRPO, DPO).
        recipe: a token environment.
        starts: a reset seed for each prompt; on held-out prompts, seed s is prompt s.
        samples: completions of each prompt; None is the agent's group size, or 4 where it has none.
        seed: of the sampling.
        greedy: take the likeliest token instead of sampling.
    """
    assert isinstance(agent, PolicyAgent), "see `writes`"
    count = samples or (agent.group_size if agent.group_size > 1 else SAMPLES)
    env = adapted_vector(type(agent), recipe, len(starts) * count, agent.config)
    rng = None if greedy else np.random.default_rng(seed)
    rollout, _ = play_round(
        agent.policy, env, [start for start in starts for _ in range(count)], rng
    )
    batch = agent.policy.batch(rollout, "episode")
    rewards = as_array(rollout.tensor("reward")).sum(axis=0)  # [N]
    advantage, meaning = _advantages(agent, rollout, batch, count)
    rules, rows = env.unwrapped.rules, env.unwrapped.rows  # type: ignore[attr-defined]
    completions = []
    for row, reward in enumerate(rewards.tolist()):
        ids, prompt = rows.completion(row).tolist(), rules.texts[rows.prompt[row]]
        texts = [rules.codec.decode([token]) for token in ids]
        probability = np.exp(as_array(batch.log_prob[row, : len(ids)]))
        answer = rules.answers[rows.prompt[row]]
        completions.append(
            DisplayedCompletion(
                prompt, answer, texts, probability, as_array(advantage[row, : len(ids)]), reward
            )
        )
    return DisplayedCompletions(completions, meaning)


# Advantages: what each algorithm itself would teach


def _advantages(
    agent: PolicyAgent, rollout: Rollout, batch: Batch, group_size: int
) -> tuple[Tensor, str]:
    """Advantages [N, T], and their meaning: from the critic (PPO), from the reference (DPO), or
    else from the group (GRPO)."""
    if agent.critic or hasattr(agent.config, "beta"):
        own, meaning = advantages(agent, rollout), advantage_meaning(agent)
        if own is not None and meaning is not None:
            return own, meaning
    advantage = _from_group(rollout, group_size, agent.config)[:, None]
    unit = (
        "reward units"
        if getattr(agent.config, "scale", "none") == "none"
        else "standard deviations"
    )
    return advantage.expand(batch.mask.shape), f"relative to its group, in {unit}"


def _from_group(rollout: Rollout, group_size: int, config: GRPOConfig) -> Tensor:
    """Group-relative advantages [N]; 0 for a completion without others."""
    returns = rollout.tensor("reward").sum(0)
    if group_size == 1:
        return returns * 0.0
    if not hasattr(config, "scale"):  # of an agent that compares no groups, such as a clone
        return group_advantage(returns, group_size, scale="none")
    return group_advantage(returns, group_size, scale=config.scale, baseline=config.baseline)


# Showing


def written_text(written: DisplayedCompletions, terminal: Terminal) -> str:
    """Prompts, and below each its completions: a token, its probability, its advantage; coloured by
    the advantage."""
    largest = max(
        (float(np.abs(c.advantage).max(initial=0.0)) for c in written.completions), default=0.0
    )
    blocks = [
        f"{terminal.bold('token')} probability advantage {terminal.faint(f'({written.meaning})')}"
    ]
    for (prompt, answer), group in groupby(written.completions, key=lambda c: (c.prompt, c.answer)):
        rows = [_completion_text(completion, largest, terminal) for completion in group]
        blocks.append(
            "\n".join(
                [
                    (
                        f"{terminal.bold(prompt)} "
                        f" {terminal.faint('' if answer is None else f'right: {answer}')}"
                    ),
                    *rows,
                ]
            )
        )
    return "\n\n".join(blocks)


def _completion_text(completion: DisplayedCompletion, largest: float, terminal: Terminal) -> str:
    """One completion: its reward, then its tokens, on one line or more."""
    cells = [
        _token_text(token, float(probability), float(advantage), largest, terminal)
        for token, probability, advantage in zip(
            completion.tokens, completion.probability, completion.advantage, strict=True
        )
    ]
    reward = f"reward {completion.reward:<4.3g}"
    first, *rest = _wrap_cells(cells, terminal.size[0] - len(reward) - 5)
    shown = terminal.bold(reward) if completion.reward > 0 else terminal.faint(reward)
    return "\n".join([f"  {shown}  {first}", *(" " * (len(reward) + 4) + line for line in rest)])


def _token_text(
    token: str, probability: float, advantage: float, largest: float, terminal: Terminal
) -> str:
    shown = token.replace("\n", "\\n") or " "
    paper = advantage_paper(advantage, largest)
    coloured = terminal.paint(
        f" {shown} ", ink=None if paper is None else readable_ink(paper), paper=paper, bold=True
    )
    return (
        f"{coloured} {terminal.faint(f'{probability:.2f}'.removeprefix('0').rjust(4))}"
        f" {advantage:+.2f}"
    )


def _wrap_cells(cells: list[str], width: int) -> list[str]:
    """Cells side by side, as many as fit on a line."""
    lines = [""]
    for cell in cells:
        gap = " " if lines[-1] else ""
        if lines[-1] and visible_length(lines[-1] + gap + cell) > width:
            lines.append(cell)
        else:
            lines[-1] += gap + cell
    return lines
