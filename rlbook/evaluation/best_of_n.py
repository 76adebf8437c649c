"""Selects one of several completions: best-of-n with a judge, and majority vote.

    write n completions of a prompt, each drawn independently
    best of n    the one that the judge scores highest: by the mean log-probability of its tokens, by a critic (V of the text before the
                 last token), by a reward model, or by the verifier, which is pass@n: what no judge
                 can surpass
    majority     the first one that gives the most frequent answer; what stands before the answer does not vote

Of equal ones the first is taken.

Source: best of n: Stiennon et al. 2020, arXiv:2009.01325, section 4.3; majority voting: Wang et al.
2022 (self-consistency), arXiv:2203.11171, section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbook.agent import Agent, Step
from rlbook.errors import RequestError
from rlbook.evaluation.completions import LARGE, LARGE_ROWS
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.learned_reward import LearnedReward
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.play_episodes import adapted_vector, check_spaces
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.rewards import Completion, given_answer
from rlbook.networks.policy import as_array, module_device

ROWS = 1024  # completions that are written side by side
Floats = NDArray[np.float64]


class SampledCompletions(NamedTuple):
    """N completions; those of one prompt are adjacent."""

    tokens: NDArray[np.int64]  # [N, L], prompts and completions, padded to the right
    prompt: NDArray[np.int64]  # [N], tokens in each prompt
    length: NDArray[np.int64]  # [N], tokens in prompt and completion
    log_prob: Floats  # [N], mean of the completion's tokens, in nats
    reward: Floats  # [N], the environment's reward
    finished: list[Completion]

    @property
    def num_tokens(self) -> NDArray[np.int64]:
        """The number of tokens in each completion: [N]."""
        return self.length - self.prompt

    def choices(self, n: int) -> NDArray[np.int64]:
        """The row indices by prompt: [P, n]."""
        return np.arange(len(self.length)).reshape(-1, n)


def sample_completions(
    agent: Agent,
    policy: LanguageModelPolicy,
    recipe: EnvRecipe,
    starts: Sequence[int],
    n: int,
    rng: np.random.Generator,
) -> SampledCompletions:
    """Samples n completions from each of P reset seeds, without changing the agent.

    Args:
        agent: whose environment it is.
        policy: its language model, or that with a `Sampling` of its own.
        recipe: a token environment.
        starts: [P] reset seeds; on held-out prompts, seed s is prompt s modulo their number.
        n: completions of each.
        rng: the noise.
    """
    large = sum(parameter.numel() for parameter in policy.model.parameters()) > LARGE
    seeds = np.repeat(np.asarray(starts), n)
    env = adapted_vector(
        type(agent), recipe, min(len(seeds), LARGE_ROWS if large else ROWS), agent.config
    )
    check_spaces(agent, recipe, env.adaptation)
    parts = []
    for first in range(0, len(seeds), env.num_envs):
        part = seeds[first : first + env.num_envs]
        parts.append(_round(policy, env, np.resize(part, env.num_envs).tolist(), len(part), rng))
    arrays = [np.concatenate([part[i] for part in parts]) for i in range(5)]
    return SampledCompletions(*arrays, [one for part in parts for one in part.finished])  # type: ignore[arg-type]


def _round(
    policy: LanguageModelPolicy,
    env: AdaptedVectorEnv,
    seeds: list[int],
    count: int,
    rng: np.random.Generator,
) -> SampledCompletions:
    """Samples one completion from each seed; only the first `count` are needed."""
    state, log_prob, total = policy.initial_state(), np.zeros(0), np.zeros(env.num_envs)

    def act(obs: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        nonlocal log_prob
        action, log_prob = policy.act(obs, rng, state)
        return action

    def add(step: Step) -> None:
        np.add(total, log_prob, out=total, where=step.valid)

    interaction = VectorInteraction(env, rollout="episodes", seeds=seeds, scoring="round")
    for _ in act_step_reset(interaction, act, add):
        pass
    inner: Any = env.unwrapped
    rules, rows = inner.rules, inner.rows
    prompt = rules.prompt_lengths[rows.prompt][:count]
    length = rows.lengths[:count].copy()
    finished = [
        rules.to_completion(int(rows.prompt[row]), rows.completion(row)) for row in range(count)
    ]
    mean = total[:count] / (length - prompt)
    return SampledCompletions(
        rows.tokens[:count].copy(),
        prompt,
        length,
        mean,
        interaction.returns[:count].copy(),
        finished,
    )


def scores(
    judge: str | LearnedReward, policy: LanguageModelPolicy, completions: SampledCompletions
) -> Floats:
    """The judge's scores of completions: [N].

    Args:
        judge: "log_prob", "critic", "verifier", or a reward model.
        policy: has the critic.
        completions: what was written.
    """
    if judge == "verifier":
        return completions.reward
    if judge == "log_prob":
        return completions.log_prob
    parts = np.array_split(np.arange(len(completions.length)), -(-len(completions.length) // ROWS))
    if judge == "critic":
        if not policy.value_parameters():
            raise RequestError(
                "judge: the run has no critic; allowed: log_prob, verifier, or the folder of a"
                " reward model"
            )
        device = module_device(policy.model)
        texts = [
            {"tokens": completions.tokens[part], "length": completions.length[part] - 1}
            for part in parts
        ]
        return np.concatenate(
            [
                as_array(policy.value({k: torch.from_numpy(v).to(device) for k, v in text.items()}))
                for text in texts
            ]
        )
    assert not isinstance(judge, str)
    whole = [
        {"tokens": completions.tokens[part], "length": completions.length[part]} for part in parts
    ]
    over = [np.ones(len(part), dtype=bool) for part in parts]
    none = [np.zeros(len(part), dtype=np.int64) for part in parts]
    judged = zip(whole, none, over, strict=True)
    return np.concatenate(
        [judge.score_steps(text, action, text, end)[0] for text, action, end in judged]  # type: ignore[arg-type]
    )


def best_index(score: Floats) -> NDArray[np.int64]:
    """The index of the highest score in each row: [P, n] → [P], the first one among ties."""
    return score.argmax(axis=1)


def most_frequent(finished: Sequence[Completion]) -> int:
    """The first completion with the most frequent answer; the first of all if none gives an
    answer."""
    answers = [given_answer(one) for one in finished]
    votes = Counter(answer for answer in answers if answer is not None)
    return answers.index(votes.most_common(1)[0][0]) if votes else 0


def read_by(judge: str | LearnedReward | None, completions: SampledCompletions, n: int) -> float:
    """The number of tokens that all networks process for each prompt, with a KV cache, counted once
    per network.

    The last token of a completion is not read by who writes it; the prompt is read once for all n.
    """
    writer = completions.prompt[::n].sum() + (completions.num_tokens - 1).sum()
    if judge == "critic":
        writer = 2 * writer
    elif judge is not None and not isinstance(judge, str):
        writer += completions.prompt[::n].sum() + completions.num_tokens.sum()
    return float(writer) * n / len(completions.length)
