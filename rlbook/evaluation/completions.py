"""Samples K completions of each held-out prompt from a language model, and scores them."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.errors import RequestError, request_errors
from rlbook.evaluation.samples import Sample, SampledEvaluation
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.learned_reward import LOGGED as LEARNED
from rlbook.interaction.learned_reward import LearnedReward
from rlbook.interaction.loop import act_step_reset, do_nothing
from rlbook.interaction.play_episodes import adapted_vector, check_spaces
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.generation.sampling import sampling_policy
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.likelihood import log_likelihood
from rlbook.llm.rewards import Completion, Rewards, given_answer, numeric
from rlbook.llm.rewards.composite import CORRECT, LOGGED, Part, given_function, verifier_results
from rlbook.seeding import rng_for

PROMPTS = 512  # held-out ones, where nothing else is asked for
# written side by side; so many by a model of more parameters
ROWS, LARGE_ROWS, LARGE = (
    512,
    32,
    5_000_000,
)


def sample(
    agent: Agent,
    recipe: EnvRecipe,
    *,
    samples: int,
    prompts: int | None = None,
    seed: int = 0,
    sampling: Mapping[str, Any] | None = None,
    reward_model: LearnedReward | None = None,
) -> SampledEvaluation:
    """Samples K completions of each held-out prompt, and one greedy one, without changing the
    agent.

    Args:
        agent: any that acts in a token environment.
        recipe: that environment, as it is trained in: its rewards are measured beside those of its
            evaluation.
        samples: K.
        prompts: how many, from the first held-out one on; None is all of them, at most 512.
        seed: of the noise.
        sampling: how tokens are drawn; see `rlbook.llm.generation.sampling.Sampling`.
        reward_model: what it says of each completion is measured too, as `reward/model`.

    Raises:
        RequestError: no token environment, or sampling parameters for an agent without a language
            model.
    """
    held_out = recipe.for_evaluation()
    rules = getattr(held_out.make().unwrapped, "rules", None)
    if not isinstance(rules, TokenRules):
        wanted = (
            "samples counts how many of K completions of a prompt are correct, so it needs a "
            "token environment"
        )
        raise RequestError(
            f"{wanted}; {recipe.name} is none (evaluate it with episodes and explore)"
        )
    if held_out.make_native_vector(1) is None:
        raise RequestError(
            "samples needs a token environment given by its id, so that its held-out prompts"
            " can be found"
        )
    if not agent.batched:
        raise RequestError(
            "samples are generated in parallel, but this agent takes one environment at a time"
        )
    trained: Any = recipe.make().unwrapped
    writer = _CompletionEvaluator(
        agent, held_out, (rules.rewards, trained.rules.rewards), dict(sampling or {}), reward_model
    )
    count = min(prompts or PROMPTS, len(rules.texts))
    with use_one_thread():
        written = writer.write(
            [prompt for prompt in range(count) for _ in range(samples)], rng_for(seed, "noise")
        )
        greedy = writer.write(range(count), None)
        log_prob, tokens = writer.likelihood(held_out, count)
    rows = [written[start : start + samples] for start in range(0, len(written), samples)]
    returns, lengths = (
        np.array([one.total for one in written]),
        np.array([one.tokens for one in written]),
    )
    return SampledEvaluation(
        returns,
        lengths,
        rows,
        greedy,
        -log_prob,
        tokens,
        writer.verifier.name,
        writer.drawn_by,
        seed,
        prompts=np.arange(count).repeat(samples),
    )


class _CompletionEvaluator:
    """Generates an agent's completions, and scores them with the rewards of evaluation, then with
    those of training."""

    def __init__(
        self,
        agent: Agent,
        recipe: EnvRecipe,
        rewards: Sequence[Rewards],
        sampling_options: dict[str, Any],
        learned: LearnedReward | None,
    ) -> None:
        self.agent, self.recipe, self.rewards, self.learned = agent, recipe, rewards, learned
        self.policy: LanguageModelPolicy | None = getattr(agent, "policy", None)
        with request_errors():
            self.sampler = sampling_policy(self.policy, sampling_options)
        if self.sampler is None and sampling_options:
            raise RequestError(
                f"{next(iter(sampling_options))} sets how a language model samples tokens, but this agent has"
                " none"
            )
        self.drawn_by = (
            "the agent's own exploration" if self.sampler is None else str(self.sampler.sampling)
        )
        size = (
            0
            if self.sampler is None
            else sum(parameter.numel() for parameter in self.sampler.model.parameters())
        )
        self.rows = LARGE_ROWS if size > LARGE else ROWS
        self.verifier: Part = next(
            (found for one in rewards if (found := one.verifier) is not None), CORRECT
        )

    def write(self, prompts: Sequence[int], rng: np.random.Generator | None) -> list[Sample]:
        """One completion of each prompt; greedy without `rng`."""
        env = adapted_vector(
            type(self.agent), self.recipe, min(self.rows, len(prompts)), self.agent.config
        )
        check_spaces(self.agent, self.recipe, env.adaptation)
        rules, rows = env.unwrapped.rules, env.unwrapped.rows  # type: ignore[attr-defined]
        act, finished, scores = self._acting_function(rng), [], []
        for start in range(0, len(prompts), env.num_envs):
            part = list(prompts[start : start + env.num_envs])
            seeds = part + part[-1:] * (env.num_envs - len(part))
            for _ in act_step_reset(
                VectorInteraction(env, rollout="episodes", seeds=seeds, scoring="never"),
                act,
                do_nothing,
            ):
                pass
            finished += [
                rules.to_completion(int(rows.prompt[row]), rows.completion(row))
                for row in range(len(part))
            ]
            if self.learned is not None:
                text = self.learned.adapt_observations(
                    {"tokens": rows.tokens.copy(), "length": rows.lengths.copy()}
                )
                last, over = (
                    rows.tokens[np.arange(len(seeds)), rows.lengths - 1],
                    np.ones(len(seeds), dtype=bool),
                )
                scores += self.learned.score_steps(text, last, text, over)[0][: len(part)].tolist()
        return self._score(finished, {LEARNED: np.array(scores)} if scores else {})

    def _acting_function(self, rng: np.random.Generator | None) -> Callable[[Any], NDArray[Any]]:
        """The acting function: observations [N, ...] → actions [N]."""
        if self.sampler is None:
            agent = copy.deepcopy(self.agent)
            agent.begin()
            return functools.partial(agent.act, explore=rng is not None)
        policy = self.sampler if rng is not None or self.policy is None else self.policy
        state = policy.initial_state()
        return lambda obs: policy.act(obs, rng, state)[0]

    def _score(
        self, finished: Sequence[Completion], named: dict[str, NDArray[np.float64]]
    ) -> list[Sample]:
        """The rewards of completions, in addition to those already in `named`."""
        for rewards in reversed(self.rewards):
            total, parts = rewards(finished)
            named |= parts | (
                {LOGGED + rewards.parts[0].name: total} if rewards.alone and rewards.parts else {}
            )
        judged, last = (
            verifier_results(self.verifier, finished),
            inspect.unwrap(given_function(self.verifier)) is numeric,
        )
        return [
            Sample(
                one.prompt,
                one.answer,
                one.text,
                len(one.ids),
                one.ended,
                {name: _as_number(values[i]) for name, values in named.items()},
                float(total[i]),
                given_answer(one, last=last),
                None if np.isnan(judged[i]) else bool(judged[i]),
            )
            for i, one in enumerate(finished)
        ]

    def likelihood(
        self, recipe: EnvRecipe, count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """log π of the reference answers to the first prompts, in nats, and their lengths in
        tokens, [P] each; NaN without a reference answer."""
        env: Any = recipe.make().unwrapped
        try:
            pairs = env.answers()[:count] if self.sampler is not None else []
        except ValueError:  # an example without an answer
            pairs = []
        if self.sampler is None or not pairs:
            return np.full(count, np.nan), np.full(count, np.nan)
        return log_likelihood(self.sampler, pairs, rows=min(self.rows, 64)), np.array(
            [float(len(ids)) for _, ids in pairs]
        )


def _as_number(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
