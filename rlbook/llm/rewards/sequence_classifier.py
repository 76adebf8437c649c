"""A reward model in a Hugging Face folder, by name among the rewards: any number of them, each for
the prompts that it is meant for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlbook.llm.rewards.completion import Completion, mark_batched
from rlbook.llm.tokenizers.batches import pad
from rlbook.llm.tokenizers.chat_codec import ChatCodec, chat_codec
from rlbook.llm.tokenizers.tokenizer import folder_codec

ROWS = 64  # texts that are read at a time


class _LoadedClassifier(NamedTuple):
    model: Any
    codec: ChatCodec


@mark_batched
def reward_model(completions: Sequence[Completion], *, folder: str) -> list[float | None]:
    """The score that a sequence classifier with one label gives to a prompt and its completion, in
    its own units. None for a text that it cannot read: too long, or with unknown characters.

    Args:
        completions: what was written.
        folder: a Hugging Face folder, such as one that `rlbook export` writes of a reward model.

    Source: Stiennon et al. 2020, arXiv:2009.01325, section 3.4; helpful and harmless apart: Bai et
    al. 2022, arXiv:2204.05862.
    """
    import torch

    model, codec = _load(folder, _write_time(folder))
    rows = [_encode(codec, one) for one in completions]
    scores: list[float | None] = [None] * len(rows)
    there = [place for place, ids in enumerate(rows) if ids]
    # transformers reads the score before the first of these; without one, of one text at a time
    fill = model.config.get_text_config().pad_token_id
    count = 1 if fill is None or fill < 0 else ROWS
    for start in range(0, len(there), count):
        places = there[start : start + count]
        ids, mask = pad([rows[place] or [] for place in places], fill or 0)
        with torch.inference_mode():
            found = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        for place, score in zip(places, found.logits[:, 0].float().tolist(), strict=True):
            scores[place] = score
    return scores


def check_reward_model(options: dict[str, Any]) -> None:
    """Raises ValueError unless there is a folder."""
    if not (Path(options["folder"]) / "config.json").is_file():
        raise ValueError(
            "folder of reward 'reward_model' must be a Hugging Face folder with a config.json, such"
            f" as one of rlbook export, got {options['folder']!r}"
        )


def _encode(codec: ChatCodec, completion: Completion) -> list[int] | None:
    messages = completion.messages or [{"role": "user", "content": completion.prompt}]
    try:
        answer = codec.encode_answer(completion.text)
        ids = [*codec.encode_prompt(list(messages)), *answer]  # type: ignore[arg-type]
    except ValueError:
        return None
    ids = ids if completion.ended else ids[:-1]
    return ids if len(ids) <= codec.limit else None


def _write_time(folder: str) -> int:
    """When the folder's weights were written, in nanoseconds."""
    return max((path.stat().st_mtime_ns for path in Path(folder).glob("*.safetensors")), default=0)


@functools.lru_cache(maxsize=4)
def _load(folder: str, changed: int) -> _LoadedClassifier:
    from rlbook.llm.models.sources import folder_classifier  # torch, which a verifier does without

    return _LoadedClassifier(folder_classifier(folder), chat_codec(folder_codec(folder)))
