"""What each environment is, in one line, and the largest mean return where it is known and no model
gives it."""

from __future__ import annotations

DESCRIPTIONS: dict[str, str] = {
    "Maze-v0": ("a small maze, solved exactly, in which every idea of the first half can be seen"),
    "GridWorld-v0": "the book's first grids, 4 × 4 and 5 × 5 with teleports",
    "WindyGridWorld-v0": "a grid with a wind across it, steady or gusty",
    "RandomWalk-v0": "a line of any length, the problem that prediction is measured on",
    "MaximizationBias-v0": "two states in which the largest estimate misleads",
    "TenArmedTestbed-v0": "ten slot machines, one of which pays best on average",
    "Gambler-v0": "how much to stake on an unfair coin",
    "CarRental-v0": "two lots of cars, and how many to drive over at night",
    "DynaMaze-v0": "a maze for planning from experience, and two that change on the way",
    "ShortCorridor-v0": "three places that look alike, where only chance arrives",
    "TicTacToe-v0": "a game for two in which perfect play is known",
    "Addition-v0": "sums of two-digit numbers, written one token a step",
    "Reverse-v0": "words written backwards, one token a step",
    "Chat-v0": (
        "chats by a model's own template, from tasks, functions or files of rows, one token a step"
    ),
    "Sorting-v0": "eight digits in ascending order",
    "ModularArithmetic-v0": "remainders of sums, differences and products",
    "TaggedCopy-v0": ("the word between two tags, in capital letters and in brackets: a format"),
    "Countdown-v0": "an expression of three numbers that comes to a target; many are right",
    "Reasoning-v0": (
        "sums in several steps, whose last digit is rarely right without written steps"
    ),
    "Mixture-v0": "several of these tasks at once, or one of them with the vocabulary of all",
    "Retrieval-v0": "two worked examples for a query, out of 64: every pair has a known score",
    "Acrobot-v1": "two links that hang from a joint: swing the lower end above the line",
    "Blackjack-v1": "the card game: draw another card, or stay below 21 and beat the dealer",
    "CartPole-v1": "a pole on a cart: push left or right, and keep it upright for 500 steps",
    "CliffWalking-v1": "a grid with a cliff along the shortest way",
    "CliffWalkingSlippery-v1": "the cliff on slippery ground, where two moves in three go astray",
    "FrozenLake-v1": "a lake of 4 × 4 cells with holes, where two moves in three go astray",
    "FrozenLake8x8-v1": "the frozen lake with 8 × 8 cells",
    "MountainCar-v0": "a car too weak for its hill: first back, then up; pushed left, right or not",
    "MountainCarContinuous-v0": "the same car with a force to choose, and a price on force",
    "Pendulum-v1": "a pendulum to swing up and hold, by a torque that is a number",
    "Taxi-v4": "fetch a passenger in a grid of 5 × 5 cells, and take them where they want to go",
}
"""Short id → what it is. `rlbook list` and the site's table of environments say it."""

STATED_OPTIMA: dict[str, float] = {
    "CartPole-v1": 500.0,  # 1 a step, and the time limit is 500
    "Retrieval-v0": 0.0526,  # the best of all pairs, on average over the held-out queries
    **dict.fromkeys(
        (
            *("Addition-v0", "Reverse-v0", "Sorting-v0", "ModularArithmetic-v0", "TaggedCopy-v0"),
            *("Countdown-v0", "Reasoning-v0", "Mixture-v0"),
        ),
        1.0,  # every answer right
    ),
}
"""Short id → the largest mean return, in reward units, where `optimal_return` finds no model."""
