"""The small language model answers sums, receives rewards, and learns, in a page of one file.

The model and GRPO's step are written a second time, in JavaScript (`token_play/transformer.js` and
`learning.js`), because a page from the disk cannot load Python; a test holds them equal to this
package and to PyTorch. The weights are the file that ships, as it is.
"""

from __future__ import annotations

import base64
import html

from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.models.architectures.transformer import TransformerSizes
from rlbook.llm.models.sources import SMALL
from rlbook.llm.models.starting import taught_weights
from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tokenizers.tokenizer import IDS
from rlbook.plots.pages.templates import fill_template, script_data, script_of, text_of

TITLE = "A language model that learns while you watch"
PROMPT = "57+68="
SHOWN = 128  # held-out sums that the page counts
ENGINE = ("transformer", "learning")
"""The scripts of the model and its training, in loading order."""
DRAWING = ("page", "writing", "groups", "training", "controls")
"""The scripts of the display."""


def book_data() -> dict[str, object]:
    """The data of the scripts: sizes, vocabulary, held-out sums and limits, without the weights."""
    task = AdditionTask()
    rules = TokenRules(task, split="held_out", reward="exact", model=None, max_new_tokens=None)
    sizes = {
        "layers": SMALL["num_hidden_layers"],
        "heads": SMALL["num_attention_heads"],
        "eps": TransformerSizes.eps,
        "theta": TransformerSizes.theta,
    }
    return {
        "sizes": sizes,
        "tokens": list(IDS),
        "heldOut": task.held_out,
        "shown": SHOWN,
        "prompt": PROMPT,
        "limit": rules.max_new_tokens,
        "maxGradNorm": GRPOConfig.max_grad_norm,
    }


def engine() -> str:
    """The model and its learning as one script."""
    return script_of("token_play", ENGINE)


def page() -> str:
    """The page as HTML, including the weights."""
    data = book_data()
    weights = base64.b64encode(taught_weights("addition")).decode()
    shape = (
        f"{SMALL['num_hidden_layers']} layers, {SMALL['num_attention_heads']} heads,"
        f" {SMALL['hidden_size']} numbers a token"
    )
    known = {
        "title": TITLE,
        "prompt": html.escape(PROMPT),
        "limit": str(data["limit"]),
        "shape": shape,
        "data": script_data(data | {"weights": weights}),
        "style": text_of("pages/token_play/page.css"),
        "engine": engine(),
        "drawing": script_of("token_play", DRAWING),
        "theme": text_of("pages/theme.js"),
    }
    return fill_template("pages/token_play/page.html", known)
