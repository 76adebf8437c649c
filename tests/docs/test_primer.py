"""The primer's code runs from top to bottom, and its exercises have the answers that it gives."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from closeness import near

PAGE = Path(__file__).parents[2] / "docs" / "primer.md"


def namespace() -> dict[str, Any]:
    """What the page's code has defined at its end."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(compile(code, "primer.md", "exec"), names)
    return names


def test_the_primers_code_runs_and_its_exercises_come_to_what_it_says() -> None:
    names = namespace()
    descend, adam, entropy, kl = (names[name] for name in ("descend", "adam", "entropy", "kl"))
    z = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    torch.logsumexp(z, 0).backward()
    assert torch.allclose(z.grad, torch.softmax(z, 0))  # exercise 1
    assert descend(0.0401, 50.0, 1000) > 100 > 0.01 > descend(0.0399, 50.0, 1000) > 0
    assert adam([1.0, -1.0]) - adam([1.0]) == near(0.0053, dtype="float32", decimals=4)
    assert entropy(torch.tensor([1 / 2, 1 / 6, 1 / 6, 1 / 6])).item() == near(
        1.24, dtype="float32", decimals=2
    )
    assert (math.exp(2), 2 / math.log(2)) == (
        near(7.39, dtype="float32", decimals=2),
        near(2.885, dtype="float32", decimals=3),
    )
    a, b, c = (torch.tensor([p, 1 - p]) for p in (0.5, 0.75, 0.9))
    printed = [kl(a, b).item(), kl(b, c).item(), kl(a, c).item()]
    assert printed == near([0.144, 0.092, 0.511], dtype="float32", decimals=3)


def test_the_table_of_step_sizes_and_losses_is_right() -> None:
    names = namespace()
    assert [round(names["descend"](a, 1.0, 1), 1) for a in (0.1, 1, 1.9, 2.1)] == [
        0.9,
        0,
        -0.9,
        -1.1,
    ]
    assert torch.tensor([0.0, 0.0, 0.0, 10.0]).median() == 0.0
