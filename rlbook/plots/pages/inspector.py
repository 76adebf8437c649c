"""The actions of a run as one page that needs no server and loads nothing: tokens, or steps,
coloured by a quantity.

The page has a slider over training, a choice of what colours, all numbers of the action that is
pointed at, and the same as a table.
"""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlbook.checks import whole_number
from rlbook.errors import RequestError, system_reason
from rlbook.plots.pages.templates import fill_template, script_data, text_of
from rlbook.runs.inspection import Inspector, Moment
from rlbook.runs.run import agent_in, load
from rlbook.runs.storage.checkpoints import list_checkpoints
from rlbook.runs.storage.files import replace_file
from rlbook.runs.token_record import TokenRecord, head_of, read_record

PROMPTS = 4  # where nobody says how many
ACTIONS = 150_000  # on a page; of more, some records are left out


def inspect(
    folder: str | Path,
    out: str | Path | None = None,
    prompts: int | None = None,
    *,
    allow_import: bool = False,
) -> Path:
    """Writes the page of a run, and returns its path.

    Args:
        folder: of the run.
        out: the file, a name that ends in .html; None is inspector.html in the folder.
        prompts: how many starts; None is all that were recorded, or 4.
        allow_import: as for `rlbook.load`.

    Raises:
        RequestError: no run folder, an agent without a policy network, more prompts than were
            recorded, or a file that cannot be written.
    """
    path = Path(out) if out is not None else Path(folder) / "inspector.html"
    if path.suffix != ".html":
        raise RequestError(f"the page is written as .html, got {path}")
    if prompts is not None:
        prompts = whole_number("prompts", prompts, least=1, most=1_024)
    text = page_of(record_of(Path(folder), prompts, allow_import=allow_import))
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise RequestError(f"cannot write {path}: {system_reason(error)}") from None
    return path


def record_of(
    folder: Path, prompts: int | None = None, *, allow_import: bool = False
) -> TokenRecord:
    """The recorded data of a run; if it recorded nothing, the actions of its stored checkpoints
    from some starts.

    Raises:
        RequestError: no run folder, an agent without a policy network, or more prompts than were
            recorded.
    """
    found = read_record(folder)
    if found is None or not found.moments:
        return _from_checkpoints(folder, prompts or PROMPTS, allow_import)
    count = len(found.head["prompts"])
    if prompts is None:
        return found
    if prompts > count:
        raise RequestError(
            f"prompts must be at most {count}, as many as were recorded in {folder}, got {prompts}"
        )
    rows = prompts * found.head["samples"]
    kept = [
        moment
        | {
            "episodes": moment["episodes"][:rows],
            "ratio": (moment["ratio"] or [])[:rows] or None,
        }
        for moment in found.moments
    ]
    return TokenRecord(found.head | {"prompts": found.head["prompts"][:prompts]}, kept)


def _from_checkpoints(folder: Path, prompts: int, allow_import: bool) -> TokenRecord:
    head: dict[str, Any] = {}
    moments: list[Moment] = []
    for step in sorted(list_checkpoints(folder)) or [None]:
        run = load(folder, checkpoint=step, allow_import=allow_import)
        inspector = Inspector(run.agent, run.request, prompts, partial(agent_in, run.request))
        head = head_of(run.request, inspector)
        moments.append(inspector.moment(run.steps, moments[-1] if moments else None))
    return TokenRecord(head, moments)


def page_of(record: TokenRecord) -> str:
    """The record as HTML."""
    head, moments = record.head, _select_moments(record.moments)
    title = f"{head['algorithm']} on {head['env']}, seed {head['seed']}"
    data = {name: head[name] for name in ("samples", "prompts", "meaning", "absent")} | {
        "moments": moments,
        "notes": _notes(record, len(moments)),
        "negative": _has_negative_value(moments),
    }
    known = {
        "title": html.escape(title),
        "lead": html.escape(_lead_text(record)),
        "plain": html.escape(_plain_text(record)),
        "data": script_data(data),
        "script": text_of("pages/inspector.js"),
    }
    return fill_template("pages/inspector.html", known)


def _select_moments(moments: list[Moment]) -> list[Moment]:
    """The moments of a page, each with the ratio that the next one found for its actions; evenly
    selected if there are too many."""
    joined = [
        _with_ratio(moment, after)
        for moment, after in zip(moments, [*moments[1:], None], strict=True)
    ]
    total = sum(len(episode["tokens"]) for moment in joined for episode in moment["episodes"])
    count = len(joined) if total <= ACTIONS else max(2, len(joined) * ACTIONS // total)
    return [
        joined[place]
        for place in np.linspace(0, len(joined) - 1, min(count, len(joined))).round().astype(int)
    ]


def _with_ratio(moment: Moment, after: Moment | None) -> Moment:
    ratios = None if after is None else after["ratio"]
    episodes = [
        {name: value for name, value in episode.items() if name != "ids"}
        for episode in moment["episodes"]
    ]
    if ratios is not None:
        episodes = [
            episode | {"ratio": ratio} for episode, ratio in zip(episodes, ratios, strict=True)
        ]
    return {"step": moment["step"], "episodes": episodes}


def _lead_text(record: TokenRecord) -> str:
    starts, samples = len(record.head["prompts"]), record.head["samples"]
    return (
        f"{starts} held-out start{'s' if starts > 1 else ''}, {samples} sampled episodes of each,"
        " with the same random numbers at every record. Each box is an action: a token, or a step."
    )


def _notes(record: TokenRecord, shown: int) -> list[str]:
    again = max(moment["again"] for moment in record.moments)
    notes = [
        "Evaluated again before any update, π(a|s) is what it was when the action was drawn: the"
        f" ratio is 1 within {again:.1g}."
    ]
    if shown < len(record.moments):
        notes.append(f"{shown} of the {len(record.moments)} records are shown, evenly chosen.")
    if shown == 1:
        notes.append(
            "There is one record. Train with --inspect N (inspect=N) to record at every report."
        )
    return notes


def _has_negative_value(moments: list[Moment]) -> bool:
    """Whether some value is below 0."""
    values = [
        value
        for moment in moments
        for episode in moment["episodes"]
        for value in episode.get("value", [])
    ]
    return any(value is not None and value < 0 for value in values)


def _plain_text(record: TokenRecord) -> str:
    """The last record as text, for readers without JavaScript."""
    moment, samples = record.moments[-1], record.head["samples"]
    lines = [f"step {moment['step']}"]
    for index, prompt in enumerate(record.head["prompts"]):
        lines.append(
            prompt["text"] + ("" if prompt["answer"] is None else f"   right: {prompt['answer']}")
        )
        for episode in moment["episodes"][index * samples : (index + 1) * samples]:
            lines.append(f"  reward {episode['reward']:g}: " + " ".join(episode["tokens"]))
    return "\n".join(lines)
