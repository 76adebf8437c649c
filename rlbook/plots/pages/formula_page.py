"""Small pages, each about one formula: sliders, a chart, and a sentence with its numbers.

The formulas are written a second time, in JavaScript (`formula_play/formulas.js`), because a page
from the disk cannot load Python; a test holds them equal to this package.
"""

from __future__ import annotations

from typing import NamedTuple

from rlbook.plots.pages.templates import fill_template, script_of, text_of

ENGINE = ("formulas",)
DRAWING = ("chart", "pages", "controls")


class SmallPage(NamedTuple):
    """The content of a page, as HTML."""

    title: str
    about: str
    tasks: tuple[str, ...]


SMALL_PAGES = {
    "clip": SmallPage(
        "PPO's clip",
        "One action was taken with the old policy. Its ratio ρ says how much likelier it is under"
        " the new one, and A how much better than expected it was. The dashed line is ρA, the blue"
        " one PPO's objective, the smaller of ρA and clip(ρ)A.",
        (
            "Let A = 1 and raise ρ from 1. Where does the gradient stop?",
            "Let A = 1 and ρ = 0.5. Why is there a gradient, although ρ is outside the clip range?",
            "Change the sign of A. On which side is the flat part now?",
        ),
    ),
    "gae": SmallPage(
        "Generalised advantage estimation",
        "An episode of eight steps, of which the last one pays 1. The critic's values are 0.1, 0.2,"
        " 0.3, 0.2, 0.5, 0.4, 0.7 and 0.8. The advantage of a step is the sum of the TD errors from"
        " there on, each weighted by one more factor γλ.",
        (
            "Let λ = 0. What is left of the advantage?",
            "Let λ = 1 and γ = 1. Show that A₀ is the return, 1, less the first value, 0.1.",
            "At which λ does the last step still count at least half in A₀?",
        ),
    ),
    "kl": SmallPage(
        "Forward and reverse KL",
        "The target p has two peaks, at −2 and 2. Your q is a normal distribution, so it has only"
        " one. Move it until one of the two divergences is as small as you can make it.",
        (
            "Make KL(p‖q) small. What does the best q look like? (Mean 0, deviation 2.06.)",
            "Make KL(q‖p) small. How many best answers are there, and what is left? (ln 2 = 0.69.)",
            "With which of the two would a language model rather write nonsense between two good"
            " answers?",
        ),
    ),
    "softmax": SmallPage(
        "Softmax and temperature",
        "A language model gives each token a logit. Divided by the temperature T, they become"
        " probabilities. Move the temperature, and then the logits.",
        (
            "Which T makes the best token certain, and which makes all alike?",
            "Add 1 to all logits. What changes?",
            "With T = 0.5, how much must the logit of B rise until it is as likely as A?",
        ),
    ),
    "belief": SmallPage(
        "A belief in the T-maze",
        "A sign says in which arm at the end of a corridor the prize is: +1, and −1 in the other"
        " arm. Here the agent misreads the sign at times: a look is right with the probability q,"
        " and each look after the first costs 0.1. In the corridor nothing is seen. The belief b is"
        " the probability that the prize is up; the dashed line is the belief of an agent that"
        " remembers the last k observations only.",
        (
            "Look up twice and down once. Which single look leads to the same belief, and why?",
            "How large must k be for the first look to count at the junction?",
            "One look pays 2q − 1. Show that two looks pay no more on average, so that a second"
            " one alone is never worth its price.",
        ),
    ),
    "bandits": SmallPage(
        "A race of bandits",
        "Ten machines with unknown mean rewards; three methods look for the best one. Each curve is"
        " the mean of 200 problems.",
        (
            "Let ε = 0. Why does the curve become flat, and why so early?",
            "Which c is better in the first 100 pulls, and which one later?",
            "Change the seed. Which differences stay?",
        ),
    ),
}


def page_of(name: str) -> str:
    """One of the small pages as HTML."""
    small = SMALL_PAGES[name]
    return fill_template(
        "pages/formula_play/page.html",
        {
            "name": name,
            "title": small.title,
            "about": small.about,
            "tasks": "".join(f"<li>{task}</li>" for task in small.tasks),
            "style": text_of("pages/formula_play/page.css"),
            "engine": engine(),
            "drawing": script_of("formula_play", DRAWING),
            "theme": text_of("pages/theme.js"),
        },
    )


def engine() -> str:
    """The formulas as one script."""
    return script_of("formula_play", ENGINE)
