"""Token sampling: the effect of each setting on a distribution, and of temperatures and beams on a
model's answers.

    found = run()
    found.right[found.temperatures.index(0.5)]       # [R], share of right answers at that temperature

Two next-token distributions over eight tokens, one of which is nearly decided and the other open,
show what the filters keep: top-k the same number of tokens of both, top-p and min-p fewer of the
decided one. Then the small model that ships answers held-out sums, each several times, at
temperatures from 0 to 1, and by beam search.

Source: Holtzman et al. 2020, arXiv:1904.09751, section 3; Nguyen et al. 2024, arXiv:2407.01082,
figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

import rlbook
from rlbook.book.figures.axes import curve_colour, label_axes
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.generation.beam_search import beam_search
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure, words
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.seeding import rng_for

ENVIRONMENT, PROMPTS, SAMPLES = "Addition-v0", 256, 8
TOKENS = ("the", "a", "this", "its", "one", "no", "my", "blue")
LOGITS = {
    "decided": (6.0, 2.8, 2.2, 1.5, 1.0, 0.5, 0.0, -1.0),
    "open": (3.0, 2.8, 2.6, 2.3, 1.9, 1.4, 0.6, -1.0),
}
"""Next-token logits [V] of two texts."""
SEEN = 0  # the token that the repetition penalty finds in the text
SETTINGS = {
    "temperature 0.3": Sampling(temperature=0.3),
    "temperature 0.7": Sampling(temperature=0.7),
    "top_k 3": Sampling(top_k=3),
    "top_p 0.9": Sampling(top_p=0.9),
    "min_p 0.1": Sampling(min_p=0.1),
    "penalty 1.5": Sampling(repetition_penalty=1.5),
}
TEMPERATURES = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
BANDS = {"facts, code": (0.0, 0.3), "answers": (0.3, 0.7), "ideas": (0.7, 1.0)}
BEAMS = (1, 2, 4, 8)
TREE = {
    "": {"a": 0.5, "b": 0.4, "EOS": 0.1},
    "a": {"a": 0.4, "b": 0.3, "EOS": 0.3},
    "b": {"a": 0.05, "b": 0.05, "EOS": 0.9},
}
"""Next-token probabilities after each text, for texts of at most two tokens."""


@dataclass(frozen=True)
class DrawnAnswers:
    """R repetitions with different noise; the model and its prompts stay the same."""

    kept: dict[str, dict[str, NDArray[np.float64]]]  # text → setting → [V], probabilities
    temperatures: Sequence[float]
    right: NDArray[np.float64]  # [temperatures, R], share of the answers
    different: NDArray[np.float64]  # [temperatures, R], different texts among SAMPLES of a prompt
    beams: Sequence[int]
    beams_right: NDArray[np.float64]  # [beams], share of the best beam's answers
    log_prob: NDArray[np.float64]  # [beams], mean log p of the best beam's text, in nats


def run(runs: int = 3, seed: int = 10) -> DrawnAnswers:
    """Filters the two distributions, and samples the model's answers `runs` times, from `seed`
    on."""
    asked = Run(Request.build("grpo", ENVIRONMENT, seed=seed))
    policy: Any = asked.agent.policy  # type: ignore[attr-defined]
    env: Any = rlbook.make(ENVIRONMENT, split="held_out").unwrapped
    drawn = [
        [
            sampled_answers(policy, env.rules, temperature, rng_for(number, "noise"))
            for number in range(seed, seed + runs)
        ]
        for temperature in TEMPERATURES
    ]
    searched = [searched_answers(policy, env.rules, beams) for beams in BEAMS]
    return DrawnAnswers(
        {text: kept_probabilities(torch.tensor([row])) for text, row in LOGITS.items()},
        TEMPERATURES,
        np.array([[right for right, _ in row] for row in drawn]),
        np.array([[different for _, different in row] for row in drawn]),
        BEAMS,
        np.array([right for right, _ in searched]),
        np.array([log_prob for _, log_prob in searched]),
    )


def kept_probabilities(logits: Tensor) -> dict[str, NDArray[np.float64]]:
    """Logits [1, V] → for each setting the probabilities [V] that a token is drawn from."""
    seen = torch.zeros(logits.shape, dtype=torch.bool)
    seen[0, SEEN] = True
    return {
        name: sampling.scores(logits.double(), seen)[0].softmax(-1).numpy()
        for name, sampling in SETTINGS.items()
    }


def sampled_answers(
    policy: LanguageModelPolicy, rules: TokenRules, temperature: float, rng: np.random.Generator
) -> tuple[float, float]:
    """The share of correct answers among SAMPLES per prompt, and the mean number of different
    ones."""
    tokens = rules.prompts[:PROMPTS].repeat(SAMPLES, axis=0)
    length = rules.prompt_lengths[:PROMPTS].repeat(SAMPLES)
    found = generate(
        policy,
        tokens,
        length,
        eos=rules.codec.eos,
        max_new_tokens=rules.max_new_tokens,
        rng=rng,
        sampling=Sampling(temperature=temperature),
    )
    texts = texts_of(rules, found.tokens, found.mask).reshape(-1, SAMPLES)
    right = texts == np.array(rules.answers[: len(texts)])[:, None]
    return float(right.mean()), float(np.mean([len(set(row)) for row in texts.tolist()]))


def searched_answers(
    policy: LanguageModelPolicy, rules: TokenRules, beams: int
) -> tuple[float, float]:
    """The share of prompts with a correct best beam, and its mean log-probability, in nats."""
    found = beam_search(
        policy,
        rules.prompts[:PROMPTS],
        rules.prompt_lengths[:PROMPTS],
        ends=rules.codec.ends,
        max_new_tokens=rules.max_new_tokens,
        beams=beams,
        length_penalty=0.0,
    )
    texts = texts_of(rules, found.tokens[:, 0], found.mask[:, 0])
    return float(np.mean(texts == np.array(rules.answers[: len(texts)]))), float(
        found.score[:, 0].mean()
    )


def texts_of(
    rules: TokenRules, tokens: NDArray[np.int64], mask: NDArray[np.bool_]
) -> NDArray[np.str_]:
    """Completions [N, T] as texts [N]."""
    return np.array(
        [rules.to_completion(0, row[real]).text for row, real in zip(tokens, mask, strict=True)]
    )


def measurements(result: DrawnAnswers) -> dict[str, float]:
    """Means of the runs at some temperatures, and the results of beam search."""
    numbers = {}
    for temperature in (0.0, 0.3, 0.7, 1.0):
        row = list(result.temperatures).index(temperature)
        numbers[f"temperature {temperature:g}: right"] = float(result.right[row].mean())
        numbers[f"temperature {temperature:g}: different of {SAMPLES}"] = float(
            result.different[row].mean()
        )
    for row, beams in enumerate(result.beams):
        name = f"{beams} beam" + "s" * (beams > 1)
        numbers[f"{name}: right"] = float(result.beams_right[row])
        numbers[f"{name}: log p"] = float(result.log_prob[row])
    return numbers


def draw(result: DrawnAnswers) -> Figure:
    """The effect of the settings on the two distributions; answers over the temperature; and a
    search tree."""
    figure = new_figure(10.0, 6.6, narrow_height=2.1 * len(SETTINGS) + 7.0)
    stacked = is_narrow()
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.5, 1) if stacked else (1.25, 1))
    above, below = parts
    shape = (len(SETTINGS), len(LOGITS)) if stacked else (len(LOGITS), len(SETTINGS))
    grid = above.subplots(*shape, sharex=True, sharey=True)
    grid = grid.T if stacked else grid
    for row, (text, logits) in enumerate(LOGITS.items()):
        plain = torch.tensor(logits).softmax(-1).numpy()
        for column, (name, kept) in enumerate(result.kept[text].items()):
            draw_bars(grid[row, column], plain, kept, name if row == 0 else "")
        grid[row, 0].set_ylabel(f"{text}\nprobability", **words(fontsize=9.5))
    right, beams = below.subplots(2, 1) if stacked else below.subplots(1, 2)
    label_axes(right, "temperature", "share of right answers")
    spread = label_axes(right.twinx(), "", f"different answers of {SAMPLES}")
    spread.grid(visible=False)
    spread.spines["right"].set_visible(True)
    for low, _ in list(BANDS.values())[1:]:
        right.axvline(low, color=fraction_rgb(GREY), linewidth=0.8, linestyle=":")
    for name, (low, high) in BANDS.items():
        right.text((low + high) / 2, 0.04, name, ha="center", **words(fontsize=9))
    (first,) = right.plot(
        result.temperatures, result.right.mean(1), marker="o", color=curve_colour(0), label="right"
    )
    (second,) = spread.plot(
        result.temperatures,
        result.different.mean(1),
        marker="s",
        linestyle="--",
        color=curve_colour(1),
        label="different",
    )
    right.set_ylim(0, 0.7)
    spread.set_ylim(0, SAMPLES)
    right.legend(
        handles=[first, second],
        frameon=False,
        labelcolor=words()["color"],
        fontsize=9,
        loc="upper right",
    )
    draw_tree(beams)
    return figure


def draw_tree(axes: Axes) -> None:
    """The texts of `TREE`, generated greedily and by two beams."""
    axes.set_axis_off()
    axes.set_title("two beams: where greedy decoding goes wrong", **words(fontsize=11, pad=8))
    colours = [fraction_rgb(GREY), curve_colour(0), curve_colour(1)]
    place = {"": (0.0, 3.5), "a": (1.0, 5.5), "b": (1.0, 2.0), "EOS": (1.0, 0.0)}
    place |= {"a a": (2.2, 7.0), "a b": (2.2, 5.5), "a EOS": (2.2, 4.0)}
    place |= {"b a": (2.2, 3.0), "b b": (2.2, 2.0), "b EOS": (2.2, 1.0)}
    marks = dict.fromkeys(("a", "b", "b EOS"), 1) | {"a a": 2}
    for text, (x, y) in place.items():
        if not text:
            axes.text(x, y, "prompt", ha="right", va="center", **words(fontsize=10))
            continue
        before, _, last = text.rpartition(" ")
        colour = colours[marks.get(text, 0)]
        start = place[before]
        axes.plot(
            [start[0] + (0.55 if before else 0.03), x - 0.05],
            [start[1], y],
            color=colour,
            linewidth=1 + bool(marks.get(text)),
        )
        label = f"{last}  {text_probability(text):.3g}"
        weight = "bold" if marks.get(text) else "normal"
        axes.text(x, y, label, va="center", **words(fontsize=10, color=colour, weight=weight))
    aside = 3.25 if is_narrow() else 2.95
    axes.text(aside, 7.0, "greedy", va="center", **words(fontsize=10, color=colours[2]))
    axes.text(aside, 1.0, "2 beams", va="center", **words(fontsize=10, color=colours[1]))
    axes.set_xlim(-0.4, aside + 0.65)


def text_probability(text: str) -> float:
    """The probability of a text of `TREE`, its tokens separated by spaces."""
    probability, before = 1.0, ""
    for token in text.split():
        probability *= TREE[before][token]
        before = f"{before} {token}".strip()
    return probability


def draw_bars(
    axes: Axes, probability: NDArray[np.float32], filtered: NDArray[np.float64], title: str
) -> None:
    """A bar per token: the model's probability in grey, and the one that is sampled from in
    colour."""
    label_axes(axes, "", "", title)
    place = np.arange(len(TOKENS))
    axes.bar(place, probability, color="0.85", width=0.85)
    axes.bar(place, filtered, color=curve_colour(0), width=0.45)
    axes.set_xticks(place, TOKENS, rotation=90, **words(fontsize=8))
    axes.set_ylim(0, 1)
