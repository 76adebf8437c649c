"""Beam post-training: the rows that a search produces, and the evaluation of a policy trained on
them.

For each query a sampler takes 16 of the 64 candidates, and a beam search over these looks for two
shots: the five best single shots, each with every other one after it, and of those pairs the five
best. That is what a recipe for choosing worked examples records, since the score of a pair costs a
whole answer of a large model. The best pairs of all may lie outside of the 16: a policy that learns
from the rows alone is bound by the search, one that tries for itself (online) is not.

The scores are of three levels. Beam: what `Retrieval-v0` pays, the gain in the probability of a
right answer. Sequence: coherence (like the query) and diversity (unlike each other). Task: whether
the query is answered correctly, 0 or 1. A row's score is their weighted sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import check, finite, one_of, optional, positive_int
from rlbook.errors import RequestError, request_errors
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.rewards import Completion, coherence, diversity, downstream
from rlbook.llm.tasks.retrieval import (
    CANDIDATES,
    RetrievalTask,
    choice,
    gain,
    is_answered,
    parse_choice,
    views,
)
from rlbook.llm.tasks.task import build_task
from rlbook.llm.tokenizers.tokenizer import Codec, character_codec
from rlbook.runs.run import Run, load
from rlbook.seeding import rng_for

Sampler = Literal["random", "text", "image", "mixed"]
SAMPLERS: tuple[Sampler, ...] = ("random", "text", "image", "mixed")
POOL, BEAMS = 16, 5
BEAM_ALONE: Mapping[str, float] = {"beam": 1.0}
LEVELS = ("beam", "coherence", "diversity", "task")


class Beam(NamedTuple):
    """Two shots found by a search."""

    shots: tuple[int, int]
    gain: float  # in the probability of a right answer


def pool(
    prompt: str, sampler: Sampler, rng: np.random.Generator, size: int = POOL
) -> NDArray[np.int64]:
    """The candidates of a search: random ones, the most similar by text or image, or a third of
    each kind; each once."""
    text, image = (np.argsort(-view, kind="stable") for view in views(prompt))
    drawn = rng.permutation(CANDIDATES)
    if sampler == "mixed":
        third = size // 3
        orders = np.concatenate([text[:third], image[:third], drawn])
        return orders[np.sort(np.unique(orders, return_index=True)[1])][:size]
    return {"random": drawn, "text": text, "image": image}[sampler][:size]


def beam_search(prompt: str, among: NDArray[np.int64], beams: int = BEAMS) -> list[Beam]:
    """The best pairs found by a search of this width, the best first."""
    single = sorted(among.tolist(), key=lambda shot: -gain(prompt, (shot,)))[:beams]
    pairs = [(first, second) for first in single for second in among.tolist() if second != first]
    found = [Beam(pair, gain(prompt, pair)) for pair in pairs]
    return sorted(found, key=lambda beam: -beam.gain)[:beams]


def levels(prompt: str, shots: tuple[int, int]) -> dict[str, float]:
    """The score of a choice at each level."""
    completion = Completion(prompt, None, choice(shots), True)
    return {
        "beam": gain(prompt, shots),
        "coherence": coherence(completion),
        "diversity": diversity(completion),
        "task": downstream(completion),
    }


def beam_rows(
    sampler: Sampler = "mixed",
    seed: int = 0,
    max_samples: int | None = None,
    weights: Mapping[str, float] = BEAM_ALONE,
) -> Iterator[dict[str, Any]]:
    """A row for each training query, as `rlbook train grpo --data` reads it.

    Args:
        sampler: which candidates the search looks at.
        seed: draws them, and the order of the queries.
        max_samples: how many queries; None takes all 512.
        weights: level → its weight in the score.

    Raises:
        ValueError: no such sampler or level, or a number out of range.
    """
    check("sampler", sampler, one_of(*SAMPLERS))
    check("max_samples", max_samples, optional(positive_int))
    for name, weight in weights.items():
        check("a level of the reward", name, one_of(*LEVELS))
        check(f"the weight of {name}", weight, finite)
    task, codec, rng = build_task(RetrievalTask), _codec(), rng_for(seed, "environment")
    order = rng.permutation(len(task.train))[:max_samples]
    for prompt in (task.train[i] for i in order):
        among = pool(prompt, sampler, rng)
        scored = []
        for beam in beam_search(prompt, among):
            parts = levels(prompt, beam.shots)
            scored.append(
                (sum(weight * parts[name] for name, weight in weights.items()), beam.shots)
            )
        scored.sort(reverse=True)
        yield {
            "prompt": prompt,
            "id_list": [codec.encode_answer(choice(shots)) for _, shots in scored],
            "score_list": [round(score, 6) for score, _ in scored],
            "candidates": among.tolist(),
            "sampler": sampler,
        }


def _codec() -> Codec:
    task = build_task(RetrievalTask)
    return character_codec(task.characters, task.words)


def write_beams(
    path: Path,
    seed: int = 0,
    sampler: Sampler = "mixed",
    max_samples: int | None = None,
    levels: Mapping[str, float] = BEAM_ALONE,
) -> dict[str, float]:
    """The stage that writes the beams of a search; see `beam_rows`. Raises RequestError where that
    raises ValueError."""
    with request_errors():
        rows = list(beam_rows(sampler, seed, max_samples, levels))
    _write(path, rows)
    scores = [row["score_list"] for row in rows]
    return {
        "rows": len(rows),
        "best_score": float(np.mean([max(row) for row in scores])),
        "score": float(np.mean(scores)),
    }


def write_answers(path: Path, beams: str | Path, seed: int = 0) -> dict[str, float]:
    """Writes each beam as a separate answer for supervised fine-tuning, which uses no scores."""
    codec, rows = _codec(), []
    for row in map(json.loads, Path(beams).read_text().splitlines()):
        rows += [
            {"prompt": row["prompt"], "completion": codec.decode(ids[:-1])}
            for ids in row["id_list"]
        ]
    _write(path, rows)
    return {"rows": len(rows)}


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def choices(
    run: Run, samples: int | None = None, split: str = "held_out", seed: int = 0
) -> tuple[list[str], list[str]]:
    """Queries, and what a run's policy answers to each: its most likely text, or `samples` sampled
    ones in a row."""
    from rlbook.llm.generation.generate import generate  # torch, which writing rows does without

    rules = _rules(split)
    count = samples or 1
    rng = None if samples is None else np.random.default_rng(seed)
    prompts, lengths = np.repeat(rules.prompts, count, 0), np.repeat(rules.prompt_lengths, count)
    found = generate(
        _policy(run),
        prompts,
        lengths,
        eos=rules.codec.eos,
        max_new_tokens=rules.max_new_tokens,
        rng=rng,
    )
    ended = [ids[mask].tolist() for ids, mask in zip(found.tokens, found.mask, strict=True)]
    texts = [rules.codec.decode(ids[:-1]) if ids[-1] == rules.codec.eos else "" for ids in ended]
    return [text for text in rules.texts for _ in range(count)], texts


def scores(
    run: Run, samples: int | None = 16, split: str = "held_out", seed: int = 0
) -> NDArray[np.float64]:
    """The mean score of each query [512] over so many samples, or of the most likely text if
    `samples` is none."""
    task = build_task(RetrievalTask)
    found = [task.score(*pair) for pair in zip(*choices(run, samples, split, seed), strict=True)]
    return np.array(found).reshape(-1, samples or 1).mean(1)


def correctness(run: Run, split: str = "held_out") -> NDArray[np.float64]:
    """Whether each query is answered correctly with the shots of its most likely text [512],
    0/1."""
    pairs = zip(*choices(run, None, split), strict=True)
    return np.array(
        [float(is_answered(prompt, parse_choice(text) or ())) for prompt, text in pairs]
    )


def correctness_without_shots(split: str = "held_out") -> NDArray[np.float64]:
    """The same without shots: the baseline for any choice."""
    return np.array(
        [float(is_answered(prompt, ())) for prompt in build_task(RetrievalTask).prompts(split)]
    )


def divergence(
    run: Run, reference: str | Path, samples: int = 4, split: str = "held_out"
) -> NDArray[np.float64]:
    """KL(π ‖ π_ref) per token, in nats, of each of the texts that π writes [512 · samples]: exact
    in each state.

    Args:
        run: π's.
        reference: the folder of π_ref's run.
        samples: texts that π writes to each query, all of whose states count.
        split: "train" or "held_out".
    """
    import torch

    from rlbook.data.rollout import Batch
    from rlbook.llm.generation.generate import generate

    rules, policy, other = _rules(split), _policy(run), _policy(load(reference))
    prompts, lengths = (
        np.repeat(rules.prompts, samples, 0),
        np.repeat(rules.prompt_lengths, samples),
    )
    rng = np.random.default_rng(0)
    found = generate(
        policy, prompts, lengths, eos=rules.codec.eos, max_new_tokens=rules.max_new_tokens, rng=rng
    )
    obs = {"tokens": torch.from_numpy(prompts), "length": torch.from_numpy(lengths)}
    action, log_prob, mask = (torch.from_numpy(x) for x in found)
    batch = Batch(obs=obs, action=action, log_prob=log_prob, mask=mask)
    with torch.no_grad():
        kl = policy.distributions(batch).kl(other.distributions(batch)).where(mask, 0.0)
    return (kl.sum(1) / mask.sum(1)).double().numpy()


def _rules(split: str) -> TokenRules:
    return TokenRules(
        build_task(RetrievalTask), split=split, reward="judged", model=None, max_new_tokens=None
    )


def _policy(run: Run) -> Any:
    from rlbook.llm.models.language_model import LanguageModelPolicy

    policy = getattr(run.agent, "policy", None)
    if not isinstance(policy, LanguageModelPolicy):
        raise RequestError(
            f"a language model is needed, and {run.request.algorithm} on {run.request.recipe.name}"
            " has none"
        )
    return policy
