"""Prints some completions with their rewards, to be read while a run trains."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from numpy.typing import NDArray
from tqdm import tqdm

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.rewards.trl_and_verl import verl_row


def print_samples(
    completions: Sequence[Completion],
    scores: NDArray,
    parts: Mapping[str, NDArray],
    *,
    count: int,
    split: str,
) -> None:
    """Prints the first `count` completions of each data source on standard error, beside a progress
    bar if there is one.

    Args:
        completions: N of them.
        scores: [N], in reward units.
        parts: name → [N], of a reward that has several.
        count: how many of each source.
        split: which prompts these are.

    Source: verl 0.9.1, `num_examine` of the reward managers: once for each batch of completions,
    with the same four headings.
    """
    seen: Counter[str] = Counter()
    for index, completion in enumerate(completions):
        row = verl_row(completion)
        source = str(row["data_source"] or completion.columns.get("task", ""))
        seen[source] += 1
        if seen[source] > count:
            continue
        turns = completion.messages or [{"role": "user", "content": completion.prompt}]
        prompt = "\n".join(
            turn["content"] if len(turns) == 1 else f"{turn['role']}: {turn['content']}"
            for turn in turns
        )
        ended = "" if completion.ended else " (cut off at the limit)"
        lines = {
            "data_source": source or None,
            "prompt": prompt,
            "response": completion.text + ended,
            "ground_truth": row["ground_truth"],
            "score": f"{scores[index]:g}",
            **{name: f"{values[index]:g}" for name, values in parts.items()},
        }
        shown = [f"[{name}] {value}" for name, value in lines.items() if value is not None]
        tqdm.write("\n".join([f"-- {split}, sample {index + 1}", *shown]), file=sys.stderr)
