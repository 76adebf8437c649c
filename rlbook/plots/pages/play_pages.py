"""Interactive pages, which `rlbook play` writes: one file each, which works from the disk and on a
phone.

A page is a module with a function `page()` that returns HTML, and a line in `PAGES`; those about
one formula share a module, and `page_of(name)` returns them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError, system_reason
from rlbook.runs.storage.files import replace_file

FORMULAS = "rlbook.plots.pages.formula_page"
PAGES = {
    "grid": (
        "rlbook.plots.pages.grid_page",
        "a grid world to draw, and nine methods that solve it step by step",
    ),
    "tokens": (
        "rlbook.plots.pages.token_page",
        "a small language model that writes sums, receives rewards, and learns",
    ),
    "clip": (FORMULAS, "PPO's clipped objective, with sliders for the ratio and the advantage"),
    "gae": (FORMULAS, "generalised advantage estimation of one episode, as λ and γ move"),
    "kl": (FORMULAS, "forward and reverse KL between two peaks and a normal distribution"),
    "softmax": (FORMULAS, "the probabilities of four tokens, as their logits and T move"),
    "belief": (FORMULAS, "the belief in a T-maze with a blurred sign, and a memory that forgets"),
    "bandits": (FORMULAS, "ε-greedy, UCB and the gradient method on ten machines"),
}
"""Name → the module that makes the page, and its description."""


def play(page: str = "grid", out: str | Path | None = None) -> Path:
    """Writes a page, and returns its path.

    Args:
        page: which one, a name of `PAGES`.
        out: the file, a name that ends in .html; None is play-PAGE.html in the working directory.

    Raises:
        RequestError: a page that does not exist, or a file that cannot be written.
    """
    if page not in PAGES:
        raise RequestError(
            f"there is no page {page!r}{did_you_mean(page, PAGES)} (known: {', '.join(PAGES)})"
        )
    path = Path(f"play-{page}.html" if out is None else out)
    if path.suffix != ".html":
        raise RequestError(f"the page is written as .html, got {path}")
    module = import_module(PAGES[page][0])
    text = module.page_of(page) if PAGES[page][0] == FORMULAS else module.page()
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise RequestError(f"cannot write {path}: {system_reason(error)}") from None
    return path
