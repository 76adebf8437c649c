"""The diagrams of the book, as SVG: one style, drawn in the colour of the text around them, so that
they suit a light and a dark page. Each is at most 360 units wide, which a telephone shows at full
size.

A circle is a state, a dot an action, a square the end of an episode, as in Sutton and Barto.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

WIDTH = 360
LETTERS = 13  # the size of the words, in units
STATE, ACTION = 9, 4.5  # radii
# what a reader without the site's style sheet is shown, as in an e-book
OPEN, FULL = 'class="open" fill="white"', 'fill="currentColor"'
STRONG = 'fill="currentColor" fill-opacity="0.12"'


class Drawing:
    """Lines, circles, boxes and words, one after another."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.words: list[tuple[float, float, str, str]] = []  # x, y, anchor, text

    def line(self, *points: tuple[float, float], arrow: bool = False, dashed: bool = False) -> None:
        """Through the points; an arrow has its head at the last one."""
        ends = ' marker-end="url(#head)"' if arrow else ""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none"{dashes}{ends}/>')

    def state(self, x: float, y: float, text: str = "") -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{STATE}" {OPEN}/>')
        if text:
            self.text(x + STATE + 5, y + 4, text, "start")

    def action(self, x: float, y: float) -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{ACTION}" {FULL}/>')

    def end(self, x: float, y: float) -> None:
        side = 2 * STATE - 3
        self.parts.append(
            f'<rect x="{x - side / 2:g}" y="{y - side / 2:g}" width="{side}" height="{side}" {OPEN}/>'
        )

    def arc(self, x: float, y: float, reach: float) -> None:
        """Below a point, across the branches that a maximum is taken over."""
        self.parts.append(
            f'<path d="M {x - reach:g} {y:g} Q {x:g} {y + reach * 0.75:g} {x + reach:g} {y:g}" fill="none"/>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, strong: bool = False
    ) -> None:
        """Around its centre, with words in it."""
        look = STRONG if strong else OPEN
        self.parts.append(
            f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"'
            f' rx="6" {look}/>'
        )
        first = y + 4.5 - (len(lines) - 1) * 8
        for i, text in enumerate(lines):
            self.text(x, first + 16 * i, text)

    def text(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        self.words.append((x, y, anchor, text))
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{LETTERS}"'
            f' fill="currentColor" stroke="none">{escape(text)}</text>'
        )

    def svg(self, title: str) -> str:
        """The whole, with what a screen reader says."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M 0 0 L 8 4 L 0 8 z" {FULL}/></marker>'
        )
        return (
            f'<svg class="diagram" viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
            f' width="100%" style="max-width: {self.width * 1.4:g}px" stroke="currentColor"'
            ' stroke-width="1.3" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{escape(title)}</title><defs>{head}</defs>{''.join(self.parts)}</svg>"
        )


def film(frames: Sequence[Drawing], seconds: float = 1.5) -> Drawing:
    """One after another, each for some seconds, again and again. A program that does not move
    pictures shows the last one."""
    whole = Drawing(frames[0].height)
    last = len(frames) - 1
    for i, frame in enumerate(frames):
        shown, hidden = i / len(frames), (i + 1) / len(frames)
        times = f"0;{shown:.4f};{hidden:.4f}" if i else f"0;{hidden:.4f}"
        values = "hidden;visible;hidden" if i else "visible;hidden"
        whole.parts.append(
            f'<g visibility="{"visible" if i == last else "hidden"}">'
            f'<animate attributeName="visibility" calcMode="discrete" repeatCount="indefinite"'
            f' dur="{seconds * len(frames):g}s" keyTimes="{times}" values="{values}"/>'
            f"{''.join(frame.parts)}</g>"
        )
    return whole


def agent_and_environment() -> Drawing:
    d = Drawing(170)
    d.box(180, 30, 130, 40, "agent", strong=True)
    d.box(180, 138, 130, 40, "environment", strong=True)
    d.line((245, 30), (305, 30), (305, 138), (247, 138), arrow=True)
    d.text(311, 88, "action", "start")
    d.line((115, 128), (70, 128), (70, 40), (113, 40), arrow=True)
    d.text(64, 88, "state", "end")
    d.line((115, 148), (12, 148), (12, 20), (113, 20), arrow=True)
    d.text(18, 108, "reward", "start")
    return d


class Backup(NamedTuple):
    """A small tree: what an update of its top looks at."""

    name: str
    draw: Callable[[Drawing, float, float], None]  # the drawing, and where its top is


def _fan(
    d: Drawing, x: float, y: float, spread: float, drop: float, count: int = 3
) -> list[tuple[float, float]]:
    """Lines down from a point; where they end."""
    places = [(x + spread * (2 * i / (count - 1) - 1), y + drop) for i in range(count)]
    for place in places:
        d.line((x, y), place)
    return places


def _policy_evaluation(d: Drawing, x: float, y: float, best: bool = False) -> None:
    for dot in _fan(d, x, y, 26, 32, 2):
        for place in _fan(d, *dot, 12, 32, 2):
            d.state(*place)
        d.action(*dot)
    if best:
        d.arc(x, y + 14, 11)
    d.state(x, y)


def _value_iteration(d: Drawing, x: float, y: float) -> None:
    _policy_evaluation(d, x, y, best=True)


def _chain(d: Drawing, x: float, y: float, steps: int, end: str = "state") -> float:
    """States and actions in turn, down to the last one; its height."""
    for step in range(steps):
        d.line((x, y), (x, y + 26), (x, y + 52))
        d.action(x, y + 26)
        d.state(x, y)
        y += 52
        if step == steps - 1:
            (d.end if end == "end" else d.state)(x, y)
    return y


def _td(d: Drawing, x: float, y: float) -> None:
    _chain(d, x, y, 1)


def _monte_carlo(d: Drawing, x: float, y: float) -> None:
    d.line((x, y), (x, y + 40))
    d.action(x, y + 26)
    d.state(x, y)
    d.line((x, y + 44), (x, y + 76), dashed=True)
    d.end(x, y + 88)


def _sarsa(d: Drawing, x: float, y: float) -> None:
    d.line((x, y), (x, y + 32), (x, y + 64))
    d.state(x, y + 32)
    d.action(x, y)
    d.action(x, y + 64)


def _over_actions(d: Drawing, x: float, y: float, best: bool) -> None:
    d.line((x, y), (x, y + 32))
    for place in _fan(d, x, y + 32, 26, 34):
        d.action(*place)
    if best:
        d.arc(x, y + 52, 14)
    d.state(x, y + 32)
    d.action(x, y)


def _expected_sarsa(d: Drawing, x: float, y: float) -> None:
    _over_actions(d, x, y, best=False)


def _q_learning(d: Drawing, x: float, y: float) -> None:
    _over_actions(d, x, y, best=True)


def _n_step(d: Drawing, x: float, y: float) -> None:
    d.line((x, y), (x, y + 36))
    d.action(x, y + 22)
    d.state(x, y)
    d.line((x, y + 40), (x, y + 62), dashed=True)
    d.line((x, y + 64), (x, y + 84))
    d.action(x, y + 68)
    d.state(x, y + 90)


BACKUPS = {
    "policy_evaluation": Backup("policy evaluation", _policy_evaluation),
    "value_iteration": Backup("value iteration", _value_iteration),
    "monte_carlo": Backup("Monte Carlo", _monte_carlo),
    "td": Backup("TD(0)", _td),
    "n_step": Backup("n-step TD", _n_step),
    "sarsa": Backup("SARSA", _sarsa),
    "expected_sarsa": Backup("expected SARSA", _expected_sarsa),
    "q_learning": Backup("Q-learning", _q_learning),
}


def backups(names: Sequence[str]) -> Drawing:
    """Side by side, three in a row.

    Raises:
        KeyError: a name that is none of `BACKUPS`.
    """
    rows = [names[i : i + 3] for i in range(0, len(names), 3)]
    d = Drawing(136 * len(rows))
    for row, some in enumerate(rows):
        for column, name in enumerate(some):
            x = WIDTH / len(some) * (column + 0.5)
            BACKUPS[name].draw(d, x, 136 * row + 14)
            d.text(x, 136 * row + 130, BACKUPS[name].name)
    return d


def lambda_return() -> Drawing:
    d = Drawing(236)
    weights = ("1 − λ", "(1 − λ) λ", "(1 − λ) λ²", "the rest")
    for column, weight in enumerate(weights[:3]):
        x = 42 + 90 * column
        _chain(d, x, 14, column + 1)
        d.text(x, 206, weight)
    d.text(270, 60, "…")
    _monte_carlo(d, 322, 14)
    d.text(322, 206, weights[3])
    for column, name in enumerate(("one step", "two steps", "three steps")):
        d.text(42 + 90 * column, 228, name)
    d.text(322, 228, "to the end")
    return d


def network() -> Drawing:
    d = Drawing(190)
    columns = [(45, 4), (135, 5), (225, 5), (315, 2)]
    places = [[(x, 82 + 30 * (i - (count - 1) / 2)) for i in range(count)] for x, count in columns]
    for left, right in pairwise(places):
        for start in left:
            for stop in right:
                d.line(start, stop)
    for column in places:
        for place in column:
            d.state(*place)
    for (x, _), lines in zip(
        columns,
        (("observation", "4"), ("hidden", "64"), ("hidden", "64"), ("actions", "2")),
        strict=True,
    ):
        d.text(x, 168, lines[0])
        d.text(x, 184, lines[1])
    return d


def replay_and_target() -> Drawing:
    d = Drawing(230)
    d.box(70, 30, 120, 40, "environment")
    d.box(285, 30, 130, 40, "Q network θ", strong=True)
    d.line((220, 22), (132, 22), arrow=True)
    d.text(176, 16, "action")
    d.box(70, 120, 120, 44, "replay buffer", "(s, a, r, s')")
    d.line((70, 50), (70, 96), arrow=True)
    d.text(76, 77, "steps", "start")
    d.box(285, 120, 130, 44, "loss", "(Q(s, a) − y)²")
    d.line((130, 120), (218, 120), arrow=True)
    d.text(174, 112, "minibatch")
    d.line((285, 98), (285, 52), arrow=True)
    d.text(291, 77, "gradient", "start")
    d.box(180, 203, 220, 44, "target network θ⁻", "y = r + γ max Q⁻(s', a')")
    d.line((285, 181), (285, 144), arrow=True)
    d.text(291, 166, "y", "start")
    d.line((350, 30), (356, 30), (356, 203), (292, 203), arrow=True, dashed=True)
    d.text(350, 222, "copy", "end")
    return d


def transformer_block() -> Drawing:
    d = Drawing(336)
    x, side = 130, 22  # of the boxes, and of the line that goes past them
    d.text(x, 16, "X: n tokens of d numbers")
    height = 24
    for part in ("attention", "feed-forward"):
        d.line((x, height), (x, height + 34), arrow=True)
        d.box(x, height + 48, 130, 28, "norm")
        d.line((x, height + 62), (x, height + 76), arrow=True)
        d.box(x, height + 92, 130, 32, part, strong=True)
        d.line((x, height + 108), (x, height + 119), arrow=True)
        d.line(
            (x, height + 12),
            (side, height + 12),
            (side, height + 128),
            (x - 11, height + 128),
            arrow=True,
        )
        d.state(x, height + 128)
        d.text(x, height + 132.5, "+")
        height += 137
    d.line((x, height), (x, height + 20), arrow=True)
    d.text(x, height + 34, "X, of the same shape")
    d.text(208, 112, "takes means over the", "start")
    d.text(208, 128, "tokens in sight", "start")
    d.text(208, 257, "each token by itself", "start")
    return d


ROWS, COPIED_EVERY = 6, 4  # of the film: how many steps the buffer holds, and C
MINIBATCHES = ((1, 1), (1, 2), (3, 1), (2, 4), (5, 2), (1, 6), (4, 7), (3, 8), (9, 5), (10, 6),
               (8, 11), (12, 9))  # fmt: skip


def replay_frame(step: int) -> Drawing:
    """What the buffer holds after a step, which rows are learned from, and how old the target is."""
    d = Drawing(216)
    d.text(180, 18, f"step {step} is stored")
    stored = [0] * ROWS
    for earlier in range(1, step + 1):
        stored[(earlier - 1) % ROWS] = earlier
    for row, kept in enumerate(stored):
        x = 35 + 58 * row
        d.box(x, 52, 46, 36, str(kept) if kept else "–", strong=kept == step)
        if kept in MINIBATCHES[step - 1]:
            d.line((x, 70), (180, 104), arrow=True)
    first, second = MINIBATCHES[step - 1]
    d.box(180, 122, 220, 34, f"minibatch: steps {first} and {second}")
    d.line((120, 139), (90, 162), arrow=True)
    d.box(90, 186, 160, 46, "Q network θ", f"changed {step} times", strong=True)
    copied = step // COPIED_EVERY * COPIED_EVERY
    d.box(
        272, 186, 168, 46, "target network θ⁻", f"copied after step {copied}", strong=copied == step
    )
    d.text(86, 156, "gradient", "end")
    d.line((272, 163), (240, 141), arrow=True)
    d.text(276, 155, "y", "start")
    if copied == step:
        d.line((170, 186), (186, 186), arrow=True)
    return d


def replay_film() -> Drawing:
    return film([replay_frame(step) for step in range(1, len(MINIBATCHES) + 1)])


def rlhf() -> Drawing:
    d = Drawing(290)
    d.box(60, 46, 100, 40, "prompt x")
    d.box(215, 46, 150, 44, "actor π", "writes y", strong=True)
    d.line((110, 46), (138, 46), arrow=True)
    d.box(65, 146, 118, 44, "reward model", "score r(x, y)")
    d.box(195, 146, 118, 44, "reference", "log π_ref(y)")
    d.box(308, 146, 92, 44, "critic", "V(x, y<t)", strong=True)
    for x in (65, 195, 308):
        d.line((215, 68), (x, 122), arrow=True)
    d.box(130, 231, 230, 44, "reward of each token", "r at the end, − β log-ratio")
    d.line((65, 168), (90, 207), arrow=True)
    d.line((195, 168), (170, 207), arrow=True)
    d.box(308, 231, 92, 44, "advantage", "A (GAE)")
    d.line((245, 231), (260, 231), arrow=True)
    d.line((308, 168), (308, 207), arrow=True)
    d.line((308, 253), (308, 280), (3, 280), (3, 8), (215, 8), (215, 22), arrow=True)
    d.text(150, 274, "PPO changes actor and critic")
    return d


def grpo_group() -> Drawing:
    d = Drawing(248)
    d.box(42, 105, 76, 40, "prompt", "7 + 5 =")
    rows = [("12", "1", "+0.87"), ("13", "0", "−0.87"), ("12", "1", "+0.87"), ("2", "0", "−0.87")]
    for i, (answer, reward, advantage) in enumerate(rows):
        y = 30 + 50 * i
        d.line((80, 105), (118, y), arrow=True)
        d.box(148, y, 56, 34, answer)
        d.line((176, y), (206, y), arrow=True)
        d.box(232, y, 48, 34, reward)
        d.line((256, y), (286, y), arrow=True)
        d.box(320, y, 64, 34, advantage, strong=True)
    d.text(148, 220, "answers")
    d.text(232, 220, "rewards")
    d.text(320, 220, "advantages")
    d.text(180, 241, "mean 0.5, standard deviation 0.58")
    return d


DRAWINGS: dict[str, tuple[str, Callable[[], Drawing]]] = {
    "agent-and-environment": (
        "The agent sends an action to the environment, which answers with a reward and a state.",
        agent_and_environment,
    ),
    "network": (
        "A network of four inputs, two hidden layers and two outputs; every number of a layer is"
        " connected with every number of the next one.",
        network,
    ),
    "replay-and-target": (
        "DQN: steps go into a replay buffer, minibatches from it into the loss, whose target comes"
        " from a copy of the network.",
        replay_and_target,
    ),
    "replay-film": (
        "A film of twelve steps: each is stored in the replay buffer, in the place of the oldest one;"
        " two rows are drawn at random for an update; after every fourth step the target network"
        " becomes a copy of the network.",
        replay_film,
    ),
    "lambda-return": (
        "The λ-return: the backup diagrams of one step, two steps, three steps and the whole episode,"
        " each with its weight.",
        lambda_return,
    ),
    "transformer-block": (
        "A transformer block: norm and attention, added to the tokens, then norm and feed-forward,"
        " added to the sum.",
        transformer_block,
    ),
    "rlhf": (
        "RLHF: the actor writes, reward model, reference and critic judge, and PPO changes actor and"
        " critic.",
        rlhf,
    ),
    "grpo-group": (
        "GRPO: four answers to one prompt, their rewards, and the advantages that come from the"
        " group's mean and deviation.",
        grpo_group,
    ),
}


def diagram(name: str, *names: str) -> str:
    """The SVG of a diagram, or of backup diagrams side by side.

    Raises:
        KeyError: a name that does not exist.
    """
    if name == "backups":
        methods = ", ".join(BACKUPS[method].name for method in names)
        return backups(names).svg(f"Backup diagrams: {methods}.")
    title, draw = DRAWINGS[name]
    return draw().svg(title)
