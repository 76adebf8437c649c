"""The common schemas for rows of text, each converted to a prompt and its completions, the best
first.

    prompt, completion               one answer                          (TRL)
    messages                         a chat that ends with an answer     (OpenAI, TRL)
    conversations                    the same, "from" human and gpt      (ShareGPT)
    prompt, completion, label        one answer, good or bad             (TRL)
    messages, label                  a chat whose last answer is that    (TRL)
    … with kto_tag in place of label the same, after an instruction, too (LLaMA-Factory)
    text                             a text, every token to be learned   (TRL)
    prompt, chosen, rejected         the better of two; perhaps margin   (TRL)
    chosen, rejected                 two chats that differ in the answer (TRL, UltraFeedback, HH-RLHF)
    prompt, completions[, scores]    several, best first or with scores
    prompt, id_list, score_list      several, as token ids with scores   (beams)
    prompt, reward_model             the ground truth as the answer      (verl)
    instruction[, input], output     one answer                          (Alpaca)
    … with chosen, rejected          the better of two, after conversations, an instruction or a
                                     question                            (LLaMA-Factory, Orca)
    prompt, answer                   one answer
    question, answer                 one answer, which follows "####" if there is one (GSM8K)
    prompt                           no answer: an `Example` alone

A prompt is a text or a list of messages, with `id_list` also a list of token ids; an answer is a
text or a list with one message of the assistant's. What a chat says before its last answer is its
prompt. `chosen` and `rejected` may be whole chats, whose shared beginning is the prompt. A label is
true or false; 1 and 0 are that too for an agent that learns from labels, and a column like any other
for one that does not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlbook.checks import nearest_name, shorten
from rlbook.data.text_files import Row

Message = dict[str, str]
Prompt = str | list[Message] | list[int]
"""A text, a chat, or token ids."""


class RowText(NamedTuple):
    """The content of a row, independent of its schema."""

    prompt: Prompt
    completions: list[str] | list[list[int]]  # the best first; texts or token ids
    scores: list[float] | None = None  # of the completions, where the row has them
    margin: float = 0.0  # by how much the first should beat the second, in reward units
    good: bool = True  # label of the only completion
    turns: bool = False  # whether the assistant's earlier answers are to be learned from too
    # a text without a prompt: no chat template is applied, and all of it is learned
    alone: bool = False


class Conversation(NamedTuple):
    """A whole chat as L token ids."""

    ids: list[int]  # [L]
    counts: list[bool]  # [L], which of them the assistant writes, the end of each turn included


@dataclass(frozen=True)
class Example:
    """A prompt and its metadata, such as the reference answer."""

    prompt: str | list[Message]
    answer: str | None = None
    columns: Mapping[str, object] = field(default_factory=dict)
    """Other columns of the row, such as verl's `data_source` and `extra_info`."""
    demonstration: str | None = None
    """The completion to learn from, if it is more than the answer."""
    others: tuple[str, ...] = ()
    """The row's other completions, such as a rejected one: used only for the vocabulary."""


class Schema(NamedTuple):
    """A schema: the columns that identify it, a description, and the function that parses a row."""

    columns: tuple[str, ...]
    kind: str  # "episodes", "pairs", "groups", "labelled" or "examples"
    read: Callable[[Row], RowText]


def schema_of(row: Row, *, answered: bool = True, counted: bool = False) -> Schema:
    """The schema of a row.

    Args:
        row: the first of a data set.
        answered: whether it must have an answer.
        counted: whether a label of 1 or 0 stands for true or false.

    Raises:
        ValueError: none of the known ones; the sentence names the columns and the nearest form.
    """
    schemas = [
        schema for schema in SCHEMAS if schema.kind != ("examples" if answered else "labelled")
    ]
    for schema in schemas:
        named = all(column in row for column in schema.columns)
        # another label is a column like any other
        if named and (schema.kind != "labelled" or _is_label(row[schema.columns[-1]], counted)):
            _check_text_alone(row)
            return schema
    meant = _nearest_columns(row, schemas)
    hint = f" (did you mean {meant}?)" if meant else ""
    got = ", ".join(map(str, row))
    got = f"{got[:80]}…" if len(got) > 80 else got or "none"
    raise ValueError(
        f"must have the columns of a form such as {_nearest_form(row, schemas)}, got {got}{hint};"
        " the page 'Data sets' lists all forms"
    )


def _nearest_form(row: Row, schemas: Sequence[Schema]) -> str:
    """The columns of the schema of which a row has, or seems to mean, the most; the simplest schema
    if it has none."""

    meant = {column for name in row for column in ALIASES.get(name, ())}

    def closeness(schema: Schema) -> int:
        has = sum(column in row for column in schema.columns)
        means = sum(
            column not in row and (column in meant or nearest_name(column, row) is not None)
            for column in schema.columns
        )
        return 3 * has + 2 * means - len(schema.columns) if has or means else -len(SCHEMAS)

    plain = sorted(schemas, key=lambda schema: schema.columns != ("prompt", "completion"))
    return ", ".join(max(plain, key=closeness).columns)


def _nearest_columns(row: Row, schemas: Sequence[Schema]) -> str:
    """The columns that a row of no known form seems to mean by its own, such as "'prompt' by
    'query'"; "" where nothing is similar."""
    for schema in schemas:
        found = [
            (c, next((n for n in row if c in ALIASES.get(n, ())), None)) for c in schema.columns
        ]
        if all(name is not None or column in row for column, name in found):
            return ", ".join(f"{c!r} by {name!r}" for c, name in found if c not in row)
    known = {column for schema in schemas for column in schema.columns}
    near = ((name, nearest_name(name, known)) for name in row if name not in known)
    return next((f"{match!r} by {name!r}" for name, match in near if match), "")


def _check_text_alone(row: Row) -> None:
    """Raises ValueError if a row has more than text in columns that would be passed over."""
    for name in UNREAD:
        if row.get(name) not in (None, "", "[]", [], {}):
            raise ValueError(
                f"{name} are not read, because the models here read text alone; leave such rows out,"
                " or the column where the texts suffice"
                if name != "tools"
                else "tools are not read; write them into the system text as the model's template"
                " does, and leave the column out"
            )


def _is_label(value: object, counted: bool) -> bool:
    """Whether a value is true or false; where they are `counted` also 1 or 0, which are texts in a
    CSV file."""
    return isinstance(value, bool) or (counted and value in (0, 1, "0", "1"))


def example_of(row: Row) -> Example:
    """A row as an example: the best completion becomes the answer, and all columns but the prompt
    are kept.

    Raises:
        ValueError: it has none of the known forms, or is not as it should be.
    """
    name = next((name for name in CHATS if name in row and "prompt" not in row), None)
    if (
        name is not None
        and isinstance(row[name], list)
        and row[name]
        and not _is_answer(row[name][-1])
    ):
        row = {**row, "prompt": _turns(name, row[name], row.get("system"))}
    schema = schema_of(row, answered=False)
    text = schema.read(row)
    if text.alone:
        raise ValueError(
            "a row of 'text' alone has no prompt to be answered; sft learns such rows as data"
            " (--data FILE, data=…), and the environment needs rows with prompts"
        )
    if not isinstance(text.prompt, str) and not all(
        isinstance(message, dict) for message in text.prompt
    ):
        raise ValueError(f"prompt must be a text or messages, got {shorten(text.prompt)}")
    answer = text.completions[0] if text.completions else None
    if isinstance(answer, list):
        raise ValueError(f"an answer must be a text, got the ids {shorten(answer)}")
    prompt: str | list[Message] = text.prompt  # type: ignore[assignment]
    return Example(
        prompt,
        answer,
        {name: value for name, value in row.items() if name not in ("prompt", *CHATS)},
        others=tuple(other for other in text.completions[1:] if isinstance(other, str)),
    )


def describe_columns(example: Example) -> str:
    """What an example without an answer has, for the end of a message."""
    columns = ["prompt", *example.columns]
    meant = ", ".join(
        f"{known!r} by {name!r}"
        for name in example.columns
        if (known := nearest_name(name, ("answer", "completion")))
    )
    hint = f"; did you mean {meant}?" if meant else ""
    return (
        f"has no answer, which a column 'answer' or 'completion' holds (it has"
        f" {', '.join(map(str, columns))[:80]}{hint})"
    )


def _completion(row: Row) -> RowText:
    return RowText(_prompt(row["prompt"]), [_answer("completion", row["completion"])])


def _with_label(read: Callable[[Row], RowText], column: str = "label") -> Callable[[Row], RowText]:
    """The parser of rows whose last answer has a label: the label applies to that answer alone."""

    def read_with_label(row: Row) -> RowText:
        if not _is_label(row[column], counted=True):
            raise ValueError(
                f"{column} must be true or 1 (a good completion), or false or 0 (a bad one), got"
                f" {shorten(row[column])}"
            )
        return read(row)._replace(good=bool(int(row[column])), turns=False)

    return read_with_label


def _plain_text(row: Row) -> RowText:
    if "prompt" in row:
        raise ValueError(
            "a row with a prompt needs its answer as 'completion', and has 'text'; a row of text"
            " alone has no prompt"
        )
    return RowText("", [_text("text", row["text"])], alone=True)


def _messages(row: Row) -> RowText:
    return _chat_text("messages", _chat("messages", row["messages"]))


def _conversations(row: Row) -> RowText:
    return _chat_text(
        "conversations", _turns("conversations", row["conversations"], row.get("system"))
    )


def _chat_text(name: str, messages: list[Message]) -> RowText:
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise ValueError(
            f"{name} must be a chat of at least two messages that ends with one of the role"
            " 'assistant'"
        )
    return RowText(
        messages[:-1],
        [_content(name, messages[-1])],
        turns=any(message["role"] == "assistant" for message in messages[:-1]),
    )


def _preference(row: Row) -> RowText:
    margin = row.get("margin", 0.0)
    if not _is_number(margin) or margin < 0.0:
        raise ValueError(f"margin must be a number of at least 0, got {shorten(margin)}")
    asked = _prompt_of_pair(row)
    chosen, rejected = (
        _dialogue(name, row[name], parse_text=asked is None) for name in ("chosen", "rejected")
    )
    if asked is None or any(
        isinstance(text, list) and len(text) > 1 for text in (chosen, rejected)
    ):
        asked, chosen, rejected = _split_dialogues(asked, chosen, rejected)
    return RowText(
        asked, [_answer("chosen", chosen), _answer("rejected", rejected)], margin=float(margin)
    )


def _prompt_of_pair(row: Row) -> Prompt | None:
    """The prompt of a row's two answers; None if they contain it."""
    if "prompt" in row:
        return _prompt(row["prompt"])
    if "conversations" in row:
        return _turns("conversations", row["conversations"], row.get("system"))
    if "instruction" in row:
        return _alpaca({**row, "output": ""}).prompt
    if "question" not in row:
        return None
    question, system = _text("question", row["question"]), row.get("system") or ""
    turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return _chat("system", turns) if system else question


def _dialogue(name: str, value: object, *, parse_text: bool) -> object:
    """An answer, or a chat that ends with one, its turns converted to messages; a text is parsed as
    a chat only if it must be a whole one."""
    if isinstance(value, list) and value:
        return _turns(name, value)
    if isinstance(value, Mapping):
        return _turns(name, [value])
    if parse_text and isinstance(value, str) and value.lstrip().startswith(HUMAN):
        pieces = _SPEAKER.split("\n\n" + value.strip())[1:]  # who, what, who, what, …
        roles = {HUMAN: "user"}
        return [
            {"role": roles.get(who, "assistant"), "content": what.strip()}
            for who, what in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return value


def _split_dialogues(
    prompt: Prompt | None, chosen: object, rejected: object
) -> tuple[list[Message], list[Message], list[Message]]:
    """Two whole chats as their common beginning, and the last answer of each."""
    chats = []
    for name, chat in (("chosen", chosen), ("rejected", rejected)):
        if not isinstance(chat, list) or len(chat) < 2 or not _is_answer(chat[-1]):
            raise ValueError(
                f"{name} must be a whole chat that ends with an answer of the assistant, where"
                f" {'there is no prompt' if prompt is None else 'the other one is'}; got"
                f" {shorten(chat)}"
            )
        chats.append(chat)
    start = chats[0][:-1]
    if chats[1][:-1] != start:
        raise ValueError("chosen and rejected must differ in their last message only")
    if isinstance(prompt, list) and start[: len(prompt)] != prompt:
        raise ValueError("chosen must begin with the messages of prompt, or be one message")
    return start, chats[0][-1:], chats[1][-1:]


def _candidates(row: Row) -> RowText:
    given = row["completions"]
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"completions must be a list of at least two texts, got {shorten(given)}")
    if isinstance(row.get("labels"), list):
        raise ValueError(
            "completions with labels are the steps of one solution (TRL's stepwise supervision),"
            " not several answers; write the solution as completion, and its worth as label"
        )
    completions = [_answer("completions", completion) for completion in given]
    prompt = _prompt(row["prompt"])
    if row.get("scores") is None:
        return RowText(prompt, completions)
    scores = _scores("scores", row["scores"], len(given))
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return RowText(prompt, [completions[i] for i in order], [scores[i] for i in order])


def _beams(row: Row) -> RowText:
    beams, prompt = row["id_list"], row["prompt"]
    if not isinstance(beams, list) or len(beams) < 2:
        raise ValueError(
            "id_list must be a list of at least two beams, each a list of token ids, got"
            f" {shorten(beams)}"
        )
    ids = [_ids("id_list", beam) for beam in beams]
    scores = _scores("score_list", row["score_list"], len(ids))
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    in_ids = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], dict)
    return RowText(
        _ids("prompt", prompt) if in_ids else _prompt(prompt),
        [ids[i] for i in order],
        [scores[i] for i in order],
    )


def _ids(name: str, value: object) -> list[int]:
    if (
        not isinstance(value, list)
        or not value
        or not all(type(item) is int and 0 <= item < 2**31 for item in value)
    ):
        raise ValueError(
            f"{name} must hold lists of token ids, integers of at least 0, got {shorten(value)}"
        )
    return value


def _scores(name: str, value: object, count: int) -> list[float]:
    if not isinstance(value, list) or len(value) != count or not all(map(_is_number, value)):
        raise ValueError(
            f"{name} must be one finite number for each of the {count} completions, got"
            f" {shorten(value)}"
        )
    return value


def _verl(row: Row) -> RowText:
    truth = (
        row["reward_model"].get("ground_truth") if isinstance(row["reward_model"], dict) else None
    )
    if truth is None:
        raise ValueError(
            f"reward_model must hold a ground_truth, got {shorten(row['reward_model'])}"
        )
    text = json.dumps(truth, ensure_ascii=False) if isinstance(truth, list | dict) else str(truth)
    return RowText(_prompt(row["prompt"]), [_answer("ground_truth", text)])


def _alpaca(row: Row) -> RowText:
    instruction, more = (
        _text("instruction", row["instruction"]),
        _text("input", row.get("input") or "", empty=True),
    )
    asked, answer = (
        f"{instruction}\n\n{more}" if more else instruction,
        [_answer("output", row["output"])],
    )
    system, history = row.get("system") or "", row.get("history") or []
    if not system and not history:
        return RowText(asked, answer)
    if not isinstance(history, list) or not all(
        isinstance(turn, list) and len(turn) == 2 for turn in history
    ):
        raise ValueError(f"history must be a list of [instruction, answer], got {shorten(history)}")
    turns = [
        {"role": role, "content": text}
        for turn in history
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    first = [{"role": "system", "content": system}] if system else []
    return RowText(_chat("history", [*first, *turns, {"role": "user", "content": asked}]), answer)


def _prompt_and_answer(row: Row) -> RowText:
    return RowText(_prompt(row["prompt"]), [_answer("answer", _number_as_text(row["answer"]))])


def _question(row: Row) -> RowText:
    answer = _answer("answer", _number_as_text(row["answer"]))
    return RowText(
        _text("question", row["question"]),
        [answer.rpartition("####")[2].strip().replace(",", "") if "####" in answer else answer],
    )


def _number_as_text(value: object) -> object:
    return str(value) if _is_number(value) else value


def _prompt_text(row: Row) -> RowText:
    return RowText(_prompt(row["prompt"]), [])


SCHEMAS = (
    Schema(("prompt", "chosen", "rejected"), "pairs", _preference),
    Schema(("conversations", "chosen", "rejected"), "pairs", _preference),
    Schema(("prompt", "id_list", "score_list"), "groups", _beams),
    Schema(("prompt", "completions"), "groups", _candidates),
    Schema(("prompt", "completion", "label"), "labelled", _with_label(_completion)),
    Schema(("prompt", "completion"), "episodes", _completion),
    Schema(("prompt", "reward_model"), "episodes", _verl),
    Schema(("prompt", "answer"), "episodes", _prompt_and_answer),
    Schema(("prompt",), "examples", _prompt_text),
    Schema(("messages", "label"), "labelled", _with_label(_messages)),
    Schema(("messages", "kto_tag"), "labelled", _with_label(_messages, "kto_tag")),
    Schema(("messages",), "episodes", _messages),
    Schema(("conversations", "label"), "labelled", _with_label(_conversations)),
    Schema(("conversations", "kto_tag"), "labelled", _with_label(_conversations, "kto_tag")),
    Schema(("conversations",), "episodes", _conversations),
    Schema(("instruction", "output", "kto_tag"), "labelled", _with_label(_alpaca, "kto_tag")),
    Schema(("instruction", "output"), "episodes", _alpaca),
    Schema(("question", "answer"), "episodes", _question),
    Schema(("instruction", "chosen", "rejected"), "pairs", _preference),
    Schema(("question", "chosen", "rejected"), "pairs", _preference),
    Schema(("chosen", "rejected"), "pairs", _preference),
    Schema(("text",), "episodes", _plain_text),
)
COLUMNS = {
    "Episodes": "one answer a row, such as prompt, completion",
    "Pairs": "two answers a row, such as prompt, chosen, rejected",
    "LabelledEpisodes": "prompt, completion, label, which is true or false, or messages with a label",
    "Groups": "several answers a row, such as prompt, completions, scores",
}
"""Class of `rlbook.data` → the columns of such rows, for error messages."""
ALIASES = {
    "query": ("prompt",),
    "problem": ("prompt", "question"),
    "question": ("prompt",),
    "input": ("prompt",),
    "response": ("completion", "output"),
    "output": ("completion",),
    "target": ("completion",),
    "solution": ("completion", "answer"),
    "ground_truth": ("answer",),
    "dialogue": ("messages",),
    "accepted": ("chosen",),
    "preferred": ("chosen",),
    "better": ("chosen",),
    "worse": ("rejected",),
}
"""A column of other data sets → the columns that it may be here, for the message about a row of no
known form."""
UNREAD = ("images", "videos", "audios", "tools")
"""Columns of other libraries that hold more of a prompt than its text."""
CHATS = ("messages", "conversations")
HUMAN = "Human:"
"""The beginning of an HH-RLHF chat, which is one text with answers after "Assistant:"."""
_SPEAKER = re.compile(r"\n\n(Human:|Assistant:)")
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "observation": "tool",
    "tool": "tool",
}
"""Speaker in ShareGPT's rows → role."""


def _prompt(value: object) -> str | list[Message]:
    return _chat("prompt", value) if isinstance(value, list) else _text("prompt", value)


def _answer(name: str, value: object) -> str:
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(
                f"{name} must be a text or a list of one message, got {len(value)} of them"
            )
        return _content(name, _chat(name, value)[0])
    return _text(name, value, empty=True)


def _content(name: str, answer: Message) -> str:
    """The text of an answer in a chat."""
    if answer.get("tool_calls"):
        raise ValueError(
            f"{name} ends with a call of a tool, which is learned only as text: write it into the"
            " content as the model's template does"
        )
    return answer["content"]


def _chat(name: str, value: object) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list of messages, got {shorten(value)}")
    for message in value:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            parts = isinstance(message, dict) and isinstance(message.get("content"), list)
            raise ValueError(
                f"{name} must hold messages with a role and a content, both texts, got"
                f" {shorten(message)}{'; write the parts of a content as one text' if parts else ''}"
            )
        _text(name, message["content"], empty=True)
    return value


def _turns(name: str, value: object, system: object = None) -> list[Message]:
    """Converts ShareGPT turns, {"from", "value"}, to messages; messages are kept."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list of messages, got {shorten(value)}")
    first: list[object] = [{"role": "system", "content": system}] if system else []
    return _chat(name, first + [_convert_turn(name, message) for message in value])


def _convert_turn(name: str, turn: object) -> object:
    if not isinstance(turn, dict) or "from" not in turn:
        return turn
    if turn["from"] not in ROLES:
        raise ValueError(
            f"{name}: 'from' must be one of {', '.join(ROLES)}, got {shorten(turn['from'])}"
        )
    return {"role": ROLES[turn["from"]], "content": turn.get("value")}


def _is_answer(turn: object) -> bool:
    return (
        isinstance(turn, dict) and turn.get("role", ROLES.get(str(turn.get("from")))) == "assistant"
    )


def _text(name: str, value: object, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise ValueError(
            f"{name} must be a text{'' if empty else ' that is not empty'}, got {shorten(value)}"
        )
    if not _is_unicode(value):
        raise ValueError(
            f"{name} holds half of a surrogate pair, which is not a character: {shorten(value)}"
        )
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )
