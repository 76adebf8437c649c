"""Length and repetition penalties. |y| is the number of a completion's tokens, including EOS."""

from __future__ import annotations

from rlbook.llm.rewards.completion import Completion


def length(completion: Completion) -> float:
    """- |y| / L: minus the fraction of the allowed tokens that was used."""
    return -len(completion.ids) / _limit(completion, None)


def overlong(
    completion: Completion,
    *,
    buffer: int,
    limit: int | None = None,
    factor: float = 1.0,
    bounded: bool = True,
) -> float:
    """DAPO's soft overlong penalty: 0 up to L - B tokens, then linearly down to -factor at L
    tokens.

        r = factor · max(-1, min(0, (L - B - |y|) / B))

    Args:
        completion: what was written.
        buffer: B, the last tokens in which the penalty grows.
        limit: L; None is the limit of the environment.
        factor: the penalty at L tokens.
        bounded: false leaves out the max: beyond L the penalty grows on, as in verl.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 13.
    """
    over = len(completion.ids) - (_limit(completion, limit) - buffer)
    penalty = min(-over / buffer, 0.0)
    return factor * (max(penalty, -1.0) if bounded else penalty)


def repetition(completion: Completion, *, n: int = 3, factor: float = 1.0) -> float:
    """-factor · (1 - distinct n-grams / n-grams), over token ids: 0 if no n-gram repeats.

    Source: Yeo et al. 2025, arXiv:2502.03373, appendix C.2, as TRL's
    `get_repetition_penalty_reward` counts.
    """
    ids = completion.ids
    grams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return -factor * (1 - len(set(grams)) / len(grams)) if grams else 0.0


def _limit(completion: Completion, limit: int | None) -> int:
    limit = completion.limit if limit is None else limit
    if limit is None:
        raise ValueError("the completion has no limit; give one")
    return limit
