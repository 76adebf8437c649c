"""Adapts rewards with the function signatures of TRL or verl. The signature is declared by the
reward's prefix, never guessed.

    module:function          one of this book's: a function of one `Completion`, or of many where `batched` marks it
    trl:module:function      f(prompts, completions, completion_ids, **columns) → [N] numbers or None
    verl:module:function     compute_score(data_source, solution_str, ground_truth, extra_info) → a number, or {"score": a number, …}

Source: TRL 1.16, `GRPOTrainer._calculate_rewards`; verl 0.9.1,
`experimental/reward_loop/reward_manager` and `workers/reward_manager`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rlbook import checks
from rlbook.checks import check, one_of, optional, positive, positive_int
from rlbook.llm.rewards.completion import Completion, mark_batched
from rlbook.llm.rewards.lengths import overlong
from rlbook.llm.rewards.score_pool import ScorePool
from rlbook.llm.rewards.score_worker import await_result, to_score

DIALECTS = ("trl", "verl")
MANAGERS = ("naive", "prime", "batch", "dapo", "concurrent")


def import_reward(source: str, *, allow_import: bool) -> tuple[str | None, Callable[..., Any]]:
    """The signature type and the function of "module:function", "trl:module:function" or
    "verl:module:function".

    Raises:
        ValueError: the module may not be imported, or cannot be, or has no such function.
    """
    first, _, rest = source.partition(":")
    dialect, place = (first, rest) if first in DIALECTS and ":" in rest else (None, source)
    found: Any = checks.import_object("reward", place, allow_import=allow_import, name=source)
    if not callable(found):
        raise ValueError(f"reward {source!r} must be a function, got {str(found)[:60]}")
    return dialect, found


def trl_reward(
    function: Callable[..., Any],
    *,
    make: Mapping[str, Any] | None = None,
    chat: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Callable[[Sequence[Completion]], list[float | None]]:
    """Converts a TRL reward function to one of this library.

    Prompts and completions are texts, or messages where the example is a chat. The function is told
    the example's columns, `answer` among them, and TRL's `trainer_state` (None), `log_extra` and
    `log_metric`, which drop what they are given. NaN means what None means: the reward does not
    apply.

    Args:
        function: of `prompts`, `completions`, `completion_ids` and the columns; it may be `async`.
        make: arguments of a function that makes the reward, such as {max_completion_len: 64,
            soft_punish_cache: 16}.
        chat: show texts as chats of one message too.
        columns: the function's name for a column → its name here, such as {solution: answer}.
    """
    reward = function(**make) if make is not None else function

    @mark_batched
    def score(completions: Sequence[Completion]) -> list[float | None]:
        rows = [{"answer": completion.answer, **completion.columns} for completion in completions]
        told: dict[str, Any] = {
            name: [row.get(name) for row in rows]
            for name in dict.fromkeys(name for row in rows for name in row)
            if name not in ("prompt", "completion")
        }
        told |= {name: told[here] for name, here in (columns or {}).items() if here in told}
        as_chat = chat or completions[0].messages is not None
        found = reward(
            prompts=[
                _prompt(completion) if as_chat else completion.prompt for completion in completions
            ],
            completions=[
                _reply(completion) if as_chat else completion.text for completion in completions
            ],
            completion_ids=[list(completion.ids) for completion in completions],
            **(told | {"trainer_state": None, "log_extra": _drop, "log_metric": _drop}),
        )
        return [None if value is None or _is_nan(value) else value for value in await_result(found)]

    return score


def verl_reward(
    function: Callable[..., Any],
    *,
    manager: str = "naive",
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = 300.0,
    jobs: int = 64,
    buffer: int | None = None,
    limit: int | None = None,
    factor: float = 1.0,
) -> Callable[[Sequence[Completion]], list[Any]]:
    """Converts a verl score function. If it returns a dict, `score` is the reward, and the other
    numbers are logged as `reward/NAME/KEY`.

    Its ground truth is the column reward_model's, or else the example's answer.

    Args:
        function: `compute_score`; it may be `async`.
        manager: naive asks for each completion. prime asks in `jobs` processes at a time (at most
            one for each core), with arguments by their position, and gives 0 to one that fails or
            takes too long. batch calls
            `compute_score(data_sources, solution_strs, ground_truths, extra_infos)` once. dapo is
            naive, and adds the overlong penalty of `buffer`, `limit` and `factor`. concurrent is
            prime with threads, for a function that waits for a server.
        kwargs: further arguments of the function, verl's `reward_kwargs`.
        timeout: of prime and concurrent, in seconds.
        jobs: of prime and concurrent.
        buffer: of dapo, in tokens.
        limit: of dapo; None is the limit of the environment.
        factor: of dapo, verl's `penalty_factor`.
    """
    check("manager", manager, one_of(*MANAGERS))
    check("timeout", timeout, optional(positive))
    check("jobs", jobs, positive_int)
    check("buffer", buffer, optional(positive_int))
    if (manager == "dapo") != (buffer is not None):
        raise ValueError(
            f"buffer is the overlong buffer of the manager dapo, got {buffer} with the manager"
            f" {manager!r}"
        )
    if manager == "prime":
        pool = ScorePool(partial(function, **(kwargs or {})), jobs, timeout)
        return mark_batched(
            lambda completions: pool([tuple(verl_row(one).values()) for one in completions])
        )
    return verl_reward_here(
        function,
        manager=manager,
        kwargs=kwargs,
        timeout=timeout,
        jobs=jobs,
        buffer=buffer,
        limit=limit,
        factor=factor,
    )


def verl_reward_here(
    function: Callable[..., Any],
    *,
    manager: str = "naive",
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = 300.0,
    jobs: int = 64,
    buffer: int | None = None,
    limit: int | None = None,
    factor: float = 1.0,
) -> Callable[[Sequence[Completion]], list[Any]]:
    """`verl_reward` with the managers that need no process of their own; a job holds this one."""
    score = partial(function, **(kwargs or {}))

    def score_one(completion: Completion) -> Any:
        return await_result(score(**verl_row(completion)))

    def score_with_penalty(completion: Completion) -> Any:
        found, penalty = (
            score_one(completion),
            overlong(completion, buffer=buffer or 1, limit=limit, factor=factor, bounded=False),
        )
        if isinstance(found, Mapping):
            return {**found, "score": found["score"] + penalty, "overlong_reward": penalty}
        return {"score": found + penalty, "overlong_reward": penalty}

    def score_batch(completions: Sequence[Completion]) -> list[Any]:
        rows = [verl_row(completion) for completion in completions]
        return list(
            await_result(score(**{f"{name}s": [row[name] for row in rows] for name in rows[0]}))
        )

    def score_in_threads(completions: Sequence[Completion]) -> list[Any]:
        pool = ThreadPoolExecutor(jobs)
        waiting = [
            pool.submit(lambda row: await_result(score(*row.values())), verl_row(completion))
            for completion in completions
        ]
        found = [_first_number(task, timeout) for task in waiting]
        pool.shutdown(wait=False, cancel_futures=True)
        return found

    if manager in ("batch", "concurrent"):
        return mark_batched(score_batch if manager == "batch" else score_in_threads)
    return score_one if manager == "naive" else score_with_penalty  # type: ignore[return-value]  # of one completion


def _first_number(task: Any, timeout: float | None) -> float:
    """The score of a thread, as `to_score` reads it, and 0 after a failure."""
    try:
        return to_score(task.result(timeout))
    except Exception:  # whatever the user's function does
        return 0.0


def verl_row(completion: Completion) -> dict[str, Any]:
    """A completion as the arguments of verl's `compute_score`."""
    columns = completion.columns
    model, extra = columns.get("reward_model"), columns.get("extra_info")
    truth = model.get("ground_truth") if isinstance(model, Mapping) else completion.answer
    return {
        "data_source": columns.get("data_source", ""),
        "solution_str": completion.text,
        "ground_truth": truth,
        "extra_info": dict(extra) if isinstance(extra, Mapping) else {},
    }


def _prompt(completion: Completion) -> list[Mapping[str, Any]]:
    return (
        list(completion.messages)
        if completion.messages is not None
        else [{"role": "user", "content": completion.prompt}]
    )


def _reply(completion: Completion) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": completion.text}]


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _drop(*_: object) -> None:
    """Discards what TRL's functions log in addition to their numbers."""
