"""Opens each algorithm's page with a film of its agent, its learning curve beside the optimum, and
how to try it: a command, and a page to play with that is set to it.

The pictures are those of docs/films.py. The block is put after the page's title when the page is
read, so that no page can be without it, and none has to say it.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import one_file
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlbook.plots.pages.play_pages import play
from rlbook.registry import ALGORITHMS

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS))

import films  # noqa: E402

FOLDER = "_play"


class Page(NamedTuple):
    """A page of `rlbook play`, and what it is set to."""

    name: str
    shows: str
    settings: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"{self.name}.html" + (f"#{urlencode(self.settings)}" if self.settings else "")


def grid(method: str, shows: str, world: str = "Maze-v0") -> Page:
    """The grid world with one of its methods."""
    return Page("grid", shows, {"preset": world, "method": method})


CLIP, GAE = Page("clip", "PPO's clip"), Page("gae", "the generalised advantage")
KL, SOFTMAX = Page("kl", "forward and reverse KL"), Page("softmax", "softmax and temperature")
TOKENS = Page("tokens", "a language model that learns sums")
SWEEPS = grid("value_iteration", "value iteration")
ROUNDS = grid("policy_iteration", "policy iteration")
EPISODES = grid("mc_control", "Monte Carlo control")
STEPS = grid("sarsa", "SARSA", "CliffWalking-v1")
GREEDY = grid("q_learning", "Q-learning")
TRACES = grid("sarsa_lambda", "SARSA(λ)")
MODEL = grid("dyna_q", "Dyna-Q")
GRADIENT = grid("reinforce", "a policy gradient")
SEARCH = grid("mcts", "Monte Carlo tree search")
PLAY: dict[str, Page] = {
    "bandit": Page("bandits", "ε-greedy, UCB and the gradient method"),
    **dict.fromkeys(["value_iteration", "policy_evaluation", "prioritized_sweeping"], SWEEPS),
    **dict.fromkeys(["policy_iteration", "modified_policy_iteration"], ROUNDS),
    **dict.fromkeys(["mc_control", "mc_prediction", "off_policy_mc"], EPISODES),
    **dict.fromkeys(["sarsa", "td_prediction", "semi_gradient_sarsa", "semi_gradient_td"], STEPS),
    **dict.fromkeys(["expected_sarsa", "lstd", "gradient_td"], STEPS),
    **dict.fromkeys(["q_learning", "double_q_learning", "dqn", "fitted_q", "cql", "iql"], GREEDY),
    **dict.fromkeys(["sarsa_lambda", "td_lambda", "n_step_td", "n_step_sarsa"], TRACES),
    "watkins_q_lambda": TRACES,
    **dict.fromkeys(["dyna_q", "dyna_q_plus", "certainty_equivalence"], MODEL),
    **dict.fromkeys(["world_model", "mbpo"], MODEL),
    **dict.fromkeys(["mcts", "alphazero"], SEARCH),
    "reinforce": GRADIENT,
    **dict.fromkeys(["ppo", "trpo"], CLIP),
    "a2c": GAE,
    **dict.fromkeys(["sac", "td3", "ddpg"], SOFTMAX),
    **dict.fromkeys(["behavior_cloning", "dagger", "gail", "rce", "distillation"], KL),
    "co_distillation": KL,
    **dict.fromkeys(["grpo", "dpo", "rejection_sampling", "reward_model"], TOKENS),
}
"""The page that shows each algorithm's update, or that of the nearest method which has a page."""


CURVES = {
    films.RETURNS: (
        "The learning curve of {} on {}",
        "its learning curve; a dashed line is the optimum, where it is known",
    ),
    films.ERRORS: (
        "The errors of {} on {}",
        "how far they are from the exact ones",
    ),
}
"""What a curve shows → what it is called, and how the line below the pictures says it."""


def opening(name: str) -> str:
    """What follows the title of an algorithm's page, as Markdown."""
    link = f"```{{try-it}} {name}\n```\n"
    if name not in films.FILMS:
        return f"\n{link}"
    shown = films.FILMS[name]
    values = shown.film == films.VALUES
    told = "The values of {} as they are learned" if values else "An episode of {}, after training"
    told = told.format(shown.env)
    curve, seen = CURVES[shown.curve]
    commands = "\n".join([*films.training(name), films.filming(name)])
    return f"""
:::::{{container}} agent-film
![{told}](../figures/films/{name}.gif)

![{curve.format(name, shown.env)}](../figures/films/{name}.png)
:::::

*{told}, and {seen}.* Try it:

```sh
{commands}
```

{link}"""


class TryIt(SphinxDirective):
    """A link to the page to play with, which is written where it is not there yet."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        if self.env.app.tags.has(one_file.TAG):
            return []
        page = PLAY[self.arguments[0]]
        path = Path(self.env.app.outdir) / FOLDER / f"{page.name}.html"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            play(page.name, path)
        source = "../" * self.env.docname.count("/") + f"{FOLDER}/{page.address}"
        link = nodes.raw(
            "", f'<a href="{escape(source)}">Play with {page.shows}</a>', format="html"
        )
        return [nodes.paragraph("", "", link, nodes.Text(", step by step and with its numbers."))]


def open_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the opening after the title of an algorithm's page."""
    folder, _, name = page.rpartition("/")
    if folder == "algorithms" and name in ALGORITHMS:
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n{opening(name)}{rest}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("try-it", TryIt)
    app.connect("source-read", open_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
