"""The common forms of a row of text, and what each of them says: a prompt and completions, the best first.

    prompt, completion               one answer                          (TRL)
    messages                         a chat that ends with an answer     (OpenAI, TRL)
    prompt, chosen, rejected         the better of two answers           (TRL)
    prompt, completions[, scores]    several, best first or with scores  (beams)
    prompt, reward_model             the ground truth as the answer      (verl)
    instruction[, input], output     one answer                          (Alpaca)

A prompt is a text or a list of messages; an answer is a text or a list with one message of the assistant's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlbook.checks import nearest
from rlbook.data.text_files import Row

Message = dict[str, str]


class Text(NamedTuple):
    """What a row says."""

    prompt: str | list[Message]
    completions: list[str]                   # the best first


class Schema(NamedTuple):
    """A form of row: which columns it is known by, what it becomes, and how it is read."""

    columns: tuple[str, ...]
    kind: str                                # "episodes", "pairs" or "groups"
    read: Callable[[Row], Text]


def schema_of(row: Row) -> Schema:
    """The form of a row.

    Raises:
        ValueError: none of the known ones; the sentence names the columns and the nearest form.
    """
    for schema in SCHEMAS:
        if all(column in row for column in schema.columns):
            return schema
    wanted = "; ".join(", ".join(schema.columns) for schema in SCHEMAS)
    known = {column for schema in SCHEMAS for column in schema.columns}
    near = next(((name, match) for name in row if name not in known and (match := nearest(name, known))), None)
    hint = f" (did you mean {near[1]!r} by {near[0]!r}?)" if near else ""
    raise ValueError(f"must have the columns of one of these forms: {wanted}; got {', '.join(map(str, row)) or 'none'}{hint}")


def _completion(row: Row) -> Text:
    return Text(_prompt(row["prompt"]), [_answer("completion", row["completion"])])


def _messages(row: Row) -> Text:
    messages = _chat("messages", row["messages"])
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise ValueError("messages must be a chat of at least two messages that ends with one of the role 'assistant'")
    return Text(messages[:-1], [messages[-1]["content"]])


def _preference(row: Row) -> Text:
    return Text(_prompt(row["prompt"]), [_answer("chosen", row["chosen"]), _answer("rejected", row["rejected"])])


def _candidates(row: Row) -> Text:
    given, scores = row["completions"], row.get("scores")
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"completions must be a list of at least two texts, got {_short(given)}")
    completions = [_answer("completions", completion) for completion in given]
    if scores is not None:
        if not isinstance(scores, list) or len(scores) != len(given) or not all(map(_is_number, scores)):
            raise ValueError(f"scores must be one number for each of the {len(given)} completions, got {_short(scores)}")
        completions = [completions[i] for i in sorted(range(len(scores)), key=lambda i: -scores[i])]
    return Text(_prompt(row["prompt"]), completions)


def _verl(row: Row) -> Text:
    truth = row["reward_model"].get("ground_truth") if isinstance(row["reward_model"], dict) else None
    if truth is None:
        raise ValueError(f"reward_model must hold a ground_truth, got {_short(row['reward_model'])}")
    return Text(_prompt(row["prompt"]), [_answer("ground_truth", str(truth))])


def _alpaca(row: Row) -> Text:
    instruction, more = _text("instruction", row["instruction"]), _text("input", row.get("input") or "", empty=True)
    return Text(f"{instruction}\n\n{more}" if more else instruction, [_answer("output", row["output"])])


SCHEMAS = (
    Schema(("prompt", "chosen", "rejected"), "pairs", _preference),
    Schema(("prompt", "completions"), "groups", _candidates),
    Schema(("prompt", "completion"), "episodes", _completion),
    Schema(("messages",), "episodes", _messages),
    Schema(("prompt", "reward_model"), "episodes", _verl),
    Schema(("instruction", "output"), "episodes", _alpaca),
)


def _prompt(value: object) -> str | list[Message]:
    return _chat("prompt", value) if isinstance(value, list) else _text("prompt", value)


def _answer(name: str, value: object) -> str:
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"{name} must be a text or a list of one message, got {len(value)} of them")
        return _chat(name, value)[0]["content"]
    return _text(name, value, empty=True)


def _chat(name: str, value: object) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list of messages, got {_short(value)}")
    for message in value:
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise ValueError(f"{name} must hold messages with a role and a content, both texts, got {_short(message)}")
    return value


def _text(name: str, value: object, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise ValueError(f"{name} must be a text{'' if empty else ' that is not empty'}, got {_short(value)}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
