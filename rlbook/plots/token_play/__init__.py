"""A page on which the small language model answers sums, is paid, and learns, without a server: `rlbook play tokens`.

The model and GRPO's step are a second implementation, in JavaScript (`transformer.js`, `learning.js`), which
tests/equivalence/test_token_play.py holds equal to the first. The weights are the file that ships with the package, as it is.
"""

from __future__ import annotations

import base64
import html
import json
from importlib.resources import files

from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.llm.models import SMALL
from rlbook.llm.starting_models import taught_weights
from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.token_rows import TokenRules
from rlbook.llm.tokenizer import IDS
from rlbook.llm.transformer import Sizes

TITLE = "A language model that learns while you watch"
PROMPT = "57+68="
SHOWN = 128                                  # held-out sums that the page counts
SCRIPTS = ("transformer.js", "learning.js", "page.js")


def book_data() -> dict[str, object]:
    """What the scripts read: sizes, vocabulary, held-out sums and limits; the weights aside."""
    task = AdditionTask()
    rules = TokenRules(task, split="held_out", reward="exact", model=None, max_new_tokens=None)
    sizes = {"layers": SMALL["num_hidden_layers"], "heads": SMALL["num_attention_heads"], "eps": Sizes.eps, "theta": Sizes.theta}
    return {
        "sizes": sizes, "tokens": list(IDS), "heldOut": task.held_out, "shown": SHOWN, "prompt": PROMPT,
        "limit": rules.max_new_tokens, "maxGradNorm": GRPOConfig.max_grad_norm,
    }  # fmt: skip


def script(*names: str) -> str:
    """The named scripts, one behind the other."""
    return "\n".join(files(__name__).joinpath(name).read_text(encoding="utf-8") for name in names)


def page() -> str:
    """The page as HTML, weights and all."""
    data = book_data()
    weights = base64.b64encode(taught_weights("addition")).decode()
    shape = f"{SMALL['num_hidden_layers']} layers, {SMALL['num_attention_heads']} heads, {SMALL['hidden_size']} numbers a token"
    known = {
        "title": TITLE, "prompt": html.escape(PROMPT), "limit": str(data["limit"]), "shape": shape, "script": script(*SCRIPTS),
        "data": json.dumps(data | {"weights": weights}, separators=(",", ":")).replace("</", "<\\/"),
    }  # fmt: skip
    pieces = files(__name__).joinpath("page.html").read_text(encoding="utf-8").split("{{")
    return pieces[0] + "".join(known[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))
