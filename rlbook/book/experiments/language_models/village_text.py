"""The text on which the chapter on tokens trains n-grams and word vectors.

    python -m rlbook.book.experiments.language_models.village_text      writes village.txt, beside this file, again

No sentence is taken from anywhere: the frames below were written for this book, and a generator
fills them in. A word can only be learned from its neighbours, so the frames say of each word what
tells it from others: a king and a queen rule and wear crowns, a boy and a girl go to school, men
and boys are "he". The text is in the public domain (CC0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("village.txt")
SENTENCES, SEED = 1500, 7

COUPLES = {  # male, female, and what such people do
    ("king", "queen"): (
        "{the} rules the land from a golden throne",
        "{the} wears a heavy crown in the palace",
        "the soldiers of {the} guard the castle",
        "{the} lives in a palace with {his} servants",
        "the land obeys {the} and {his} golden crown",
    ),
    ("prince", "princess"): (
        "{the} is young and will wear the crown one day",
        "{the} lives in the palace and learns to rule",
        "the young {name} rides through the castle gate",
        "the soldiers bow to the young {name}",
        "{the} plays in the garden of the palace",
    ),
    ("man", "woman"): (
        "{the} works in the village every day",
        "{the} buys potatoes at the market",
        "the old {name} walks to the shop",
        "{the} pays for {his} shoes at the shop",
        "the {name} from the village works for {his} money",
    ),
    ("boy", "girl"): (
        "{the} is young and goes to school",
        "{the} plays with toys after school",
        "the young {name} reads a book at school",
        "the teacher asks the {name} a question",
        "{the} plays in the yard of the school",
    ),
    ("father", "mother"): (
        "{the} cooks dinner for {his} children",
        "{the} tells {his} children a story at night",
        "the children love their {name}",
        "{the} puts {his} baby to bed",
        "{the} works hard for {his} children",
    ),
    ("brother", "sister"): (
        "{the} shares {his} room with the baby",
        "{the} helps with the homework",
        "i quarrel with my {name} about a game",
        "my {name} shares the sweets with me",
        "my {name} and i play a game at home",
    ),
    ("uncle", "aunt"): (
        "{the} visits us at christmas with presents",
        "my {name} comes by train to visit us",
        "{the} brings presents when {he} visits us",
        "we visit my {name} in the city",
        "my {name} sends us a letter from the city",
    ),
}
GENDER = (  # of any of them
    "{the} says that {he} is tired",
    "{he} said that {his} coat was warm , and {the} {himself} was happy",
    "{the} lost {his} hat , so {he} looked for it",
    "{the} looked at {himself} in the mirror and combed {his} {hair}",
    "{he} is {a} , and {he} likes {his} {clothes}",
    "people call {him} a good {name} , and {he} smiles",
    "{the} put on {his} {clothes} , and then {he} went out",
)
WORDS = {
    "he": ("he", "she"),
    "his": ("his", "her"),
    "him": ("him", "her"),
    "himself": ("himself", "herself"),
    "hair": ("beard", "braid"),
    "clothes": ("trousers", "dress"),
}
GROUPS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("cow", "sheep", "goat", "horse"): (
        "the {one} eats grass in the field",
        "the farmer leads the {one} to the field",
        "a {one} and a {two} stand in the barn",
        "the {one} sleeps on straw in the barn",
    ),
    ("cat", "dog"): (
        "the {one} sleeps in front of the fire",
        "the {one} chases a mouse in the kitchen",
        "a {one} and a {two} fight over a bone",
        "the {one} wags its tail and wants to be fed",
    ),
    ("bread", "cheese", "soup", "cake"): (
        "they eat {one} and {two} for lunch",
        "the cook makes {one} in the kitchen",
        "a plate of {one} stands on the table",
        "we are hungry and ask for {one}",
    ),
    ("milk", "water", "tea", "juice"): (
        "they drink {one} and {two} after lunch",
        "a cup of {one} stands on the table",
        "we are thirsty and ask for {one}",
        "pour the {one} into my cup",
    ),
    ("monday", "tuesday", "wednesday", "thursday", "friday"): (
        "on {one} we go to work early",
        "the week is long , and today is {one}",
        "see you on {one} or on {two}",
        "after {one} the week goes on",
    ),
    ("two", "three", "four", "five", "six"): (
        "there are {one} apples in the basket",
        "he counted {one} or {two} birds",
        "it costs {one} coins",
        "{one} and {two} are numbers",
    ),
    ("red", "blue", "green", "yellow"): (
        "paint the door {one} or {two}",
        "the flower is {one}",
        "a {one} flag hangs on the wall",
        "she chose the {one} paint",
    ),
    ("rain", "snow", "wind", "sunshine"): (
        "the weather brings {one} in the afternoon",
        "there will be {one} and {two} tomorrow",
        "the {one} came over the hills",
        "we stayed inside because of the {one}",
    ),
}


def village() -> list[list[str]]:
    """The shipped text: sentences of words and punctuation marks, in small letters."""
    return [line.split() for line in FILE.read_text(encoding="utf-8").splitlines()]


def compose(seed: int = SEED, count: int = SENTENCES) -> list[str]:
    """Sentences in small letters, one per line, with spaces between the words."""
    rng = np.random.default_rng(seed)
    return [
        _draw_sentence_on_people(rng) if rng.random() < 0.65 else _draw_sentence_on_things(rng)
        for _ in range(count)
    ]


def _draw_sentence_on_people(rng: np.random.Generator) -> str:
    couple = list(COUPLES)[rng.integers(len(COUPLES))]
    frames, sex = (COUPLES[couple] if rng.random() < 0.5 else GENDER), int(rng.integers(2))
    name = couple[sex]
    words = {word: forms[sex] for word, forms in WORDS.items()}
    article = "an" if name[0] in "aeiou" else "a"
    family = name in ("brother", "sister", "uncle", "aunt")
    words |= {"name": name, "a": f"{article} {name}", "the": f"{'my' if family else 'the'} {name}"}
    return frames[rng.integers(len(frames))].format(**words) + " ."


def _draw_sentence_on_things(rng: np.random.Generator) -> str:
    group = list(GROUPS)[rng.integers(len(GROUPS))]
    frames = GROUPS[group]
    one, two = rng.choice(len(group), 2, replace=False)
    return frames[rng.integers(len(frames))].format(one=group[one], two=group[two]) + " ."


def main() -> None:
    FILE.write_text("\n".join(compose()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
