"""Multiple choice: the right answer among the answers of other prompts, chosen by likelihood.

    acc        the choice with the highest log π(choice|prompt)
    acc_norm   the highest of that divided by the choice's characters, so that short ones have no head start

The end token does not belong to a choice. `rlbook.evaluation.lm_eval_tasks` asks
lm-evaluation-harness the same questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.threads import use_one_thread


class ChoiceQuestion(NamedTuple):
    """A prompt, and the possible answers to it."""

    prompt: int  # index of the prompt in its split
    text: str
    choices: tuple[str, ...]
    right: int  # index into `choices`


class ChoiceScores(NamedTuple):
    """A model's choices, question by question."""

    questions: list[ChoiceQuestion]
    log_likelihood: NDArray[np.float64]  # [P, K], in nats
    acc: NDArray[np.float64]  # [P], 1 where the right choice is the most likely one
    acc_norm: NDArray[np.float64]  # [P], the same by likelihood per character


def draw_questions(
    texts: Sequence[str], answers: Sequence[str | None], count: int
) -> list[ChoiceQuestion]:
    """One question for each prompt with an answer: its own answer, and the answers of the `count` -
    1 prompts that follow it when answers are sorted by length and then alphabetically, cyclically.
    The position of the right answer moves by one from question to question.

    Args:
        texts: [P], the prompts.
        answers: [P], None where there is none.
        count: K, choices of each question, at least 2.

    Raises:
        RequestError: there are fewer than K different answers.
    """
    known = [answer for answer in answers if answer is not None]
    if len(set(known)) < count:
        raise RequestError(
            f"choices {count} needs as many different answers among the prompts, got"
            f" {len(set(known))}"
        )
    questions: list[ChoiceQuestion] = []
    distinct = sorted(set(known), key=lambda answer: (len(answer), answer))
    place = {answer: index for index, answer in enumerate(distinct)}
    for index, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        if answer is None:
            continue
        start = place[answer]
        others = [distinct[(start + step) % len(distinct)] for step in range(1, count)]
        right = len(questions) % count
        chosen = (*others[:right], answer, *others[right:])
        questions.append(ChoiceQuestion(index, text, chosen, right))
    return questions


def choose(
    log_likelihood: NDArray[np.float64], questions: Sequence[ChoiceQuestion]
) -> ChoiceScores:
    """The choices that follow from the log-likelihoods [P, K] of all choices; the first one among
    ties.

    Source: Gao et al. 2024, lm-evaluation-harness, doi:10.5281/zenodo.12608602: `acc` and
    `acc_norm` of multiple_choice.
    """
    length = np.array([[len(choice) for choice in question.choices] for question in questions])
    right = np.array([question.right for question in questions])
    return ChoiceScores(
        list(questions),
        log_likelihood,
        (log_likelihood.argmax(1) == right).astype(float),
        ((log_likelihood / length).argmax(1) == right).astype(float),
    )


def evaluate_choices(
    agent: Agent, recipe: EnvRecipe, count: int, prompts: int | None = None
) -> ChoiceScores:
    """Asks the questions of the held-out prompts, without changing the agent.

    Args:
        agent: with a language model.
        recipe: the token environment that it is trained in.
        count: K, choices of each question.
        prompts: how many of the prompts, from the first on; None is all, at most 512.

    Raises:
        RequestError: no token environment, no language model, or too few different answers.
    """
    from rlbook.evaluation.completions import PROMPTS
    from rlbook.llm.environments.token_rows import TokenRules
    from rlbook.llm.generation.sampling import sampling_policy
    from rlbook.llm.models.likelihood import log_likelihood

    env: Any = recipe.for_evaluation().make().unwrapped
    rules = getattr(env, "rules", None)
    policy = sampling_policy(getattr(agent, "policy", None), {})
    if not isinstance(rules, TokenRules) or policy is None:
        raise RequestError(
            "choices compares the likelihood of texts, so it needs a language model trained on a"
            f" token environment; got {type(agent).__name__} on {recipe.name}"
        )
    number = min(prompts or PROMPTS, len(rules.texts))
    questions = draw_questions(rules.texts[:number], rules.answers[:number], count)
    pairs = [
        (rules.prompt_ids(question.prompt), np.array(rules.codec.encode_answer(choice))[:-1])
        for question in questions
        for choice in question.choices
    ]
    with use_one_thread():
        found = log_likelihood(policy, pairs)
    return choose(found.reshape(len(questions), count), questions)
