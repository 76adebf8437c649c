"""A reward of one's own: a sum should be written in figures alone, and a wrong one should at least
be near."""

from rlbook.llm.rewards import Completion, last_number, mark_batched


def near(completion: Completion) -> float | None:
    """1 where the number is right, and less the further off it is; None where nothing was
    written."""
    written = last_number(completion.text)
    return None if written is None else 1 / (1 + abs(float(written) - float(completion.answer)))


@mark_batched
def fresh(completions: list[Completion]) -> list[float]:
    """1 for a text that no other of those that ended together has."""
    texts = [completion.text for completion in completions]
    return [float(texts.count(text) == 1) for text in texts]
