"""The rows of the tasks, and the score of an answer; lm-evaluation-harness calls these functions."""

from __future__ import annotations

from typing import Any

from rlbook.evaluation.choices import draw_questions
from rlbook.interaction.environments import EnvRecipe

PROMPTS = 512


def held_out_rows(
    env: str = "Addition-v0",
    env_kwargs: dict[str, Any] | None = None,
    choices: int = 4,
    prompts: int = PROMPTS,
    **others: object,
) -> dict[str, Any]:
    """The held-out prompts of a token environment with their answers and choices, as one split.

    Args:
        env: its id, from `--metadata '{"env": "Reverse-v0"}'`.
        env_kwargs: its arguments, such as a run's; `Chat-v0` takes the tokenizer and the template of
            the evaluated folder, or of the model that is named here.
        choices: K, how many of a question.
        prompts: how many, from the first on.
        others: what else lm-evaluation-harness hands over, the model's arguments.
    """
    from datasets import Dataset

    kwargs = dict(env_kwargs or {})
    if env.removeprefix("rlbook/") == "Chat-v0" and "pretrained" in others:
        kwargs = {name: kwargs[name] for name in kwargs if name not in ("tokenizer", "vocab_size")}
        kwargs.setdefault("model", str(others["pretrained"]))  # which brings a tokenizer
    made: Any = EnvRecipe.from_env(env, kwargs=kwargs).for_evaluation().make().unwrapped
    rules = made.rules
    texts, answers = rules.texts[:prompts], rules.answers[:prompts]
    rows = [
        {
            "prompt": question.text,
            "answer": question.choices[question.right],
            "choices": list(question.choices),
            "right": question.right,
        }
        for question in draw_questions(texts, answers, choices)
    ]
    return {"test": Dataset.from_list(rows)}


def score_answer(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """`exact_match`, 1 where the text is the answer and nothing else; and `chars`, its length."""
    text = results[0].strip()
    return {"exact_match": float(text == doc["answer"].strip()), "chars": float(len(text))}
