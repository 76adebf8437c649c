"""One-line descriptions of the environments, and the optimal mean return where it is known but not
computed from a model."""

from __future__ import annotations

DESCRIPTIONS: dict[str, str] = {
    "Maze-v0": (
        "a small maze, solved exactly, on which the book shows nearly every idea of its first half"
    ),
    "GridWorld-v0": "Sutton and Barto's first grids, 4 × 4 and 5 × 5 with teleports",
    "WindyGridWorld-v0": "a grid with a crosswind, steady or gusty",
    "RandomWalk-v0": "a line of any length, the standard benchmark for prediction",
    "MaximizationBias-v0": "two states in which the largest estimate misleads",
    "TenArmedTestbed-v0": "ten slot machines, one of which pays best on average",
    "Gambler-v0": "how much to stake on an unfair coin",
    "CarRental-v0": "two car lots, and how many cars to move between them each night",
    "DynaMaze-v0": "a maze for planning from experience, and two variants that change",
    "ShortCorridor-v0": "three states that look alike, where only a stochastic policy does well",
    "TMaze-v0": "a sign at the start says which arm is right at the end: a test of memory",
    "DeepSea-v0": "a treasure at the end of one path of 2ⁿ: a test of exploration",
    "Catch-v0": "a ball falls through 10 × 5 pixels, and a paddle catches it: learning from images",
    "TicTacToe-v0": "a two-player game whose perfect play is known",
    "Addition-v0": "sums of two-digit numbers, generated one token per step",
    "Reverse-v0": "words to spell backwards, one token per step",
    "Chat-v0": (
        "chats in a model's own template, from tasks, functions or files, one token per step"
    ),
    "Sorting-v0": "eight digits in ascending order",
    "ModularArithmetic-v0": "remainders of sums, differences and products",
    "TaggedCopy-v0": ("the word between two tags, in capital letters and in brackets: a format"),
    "Countdown-v0": "an expression of three numbers that equals a target; many are correct",
    "Reasoning-v0": (
        "multi-step sums, whose last digit is rarely right without intermediate steps"
    ),
    "Mixture-v0": "several of these tasks at once, or one of them with the shared vocabulary",
    "Retrieval-v0": "two worked examples for a query, out of 64: every pair has a known score",
    "Acrobot-v1": "a two-link pendulum: swing its lower end above the line",
    "Blackjack-v1": "the card game: draw another card, or stay below 21 and beat the dealer",
    "CartPole-v1": "a pole on a cart: push left or right, and keep it upright for 500 steps",
    "CliffWalking-v1": "a grid with a cliff along the shortest path",
    "CliffWalkingSlippery-v1": "the cliff on slippery ground, where two moves in three go astray",
    "FrozenLake-v1": "a lake of 4 × 4 cells with holes, where two moves in three go astray",
    "FrozenLake8x8-v1": "the frozen lake with 8 × 8 cells",
    "MountainCar-v0": "an underpowered car in a valley: swing back, then up; three actions",
    "MountainCarContinuous-v0": "the same car with a continuous force, which is penalised",
    "Pendulum-v1": "a pendulum to swing up and balance with a continuous torque",
    "Taxi-v4": "fetch a passenger in a grid of 5 × 5 cells, and take them where they want to go",
}
"""Short id → description, shown by `rlbook list` and the site's table of environments."""

GRID_OPTIMA: dict[str, float] = {
    "Pendulum-v1": -137.2,  # on 601 × 601 states; they estimate -137.5
    "MountainCar-v0": -97.66,  # on 1 801 × 1 801 states; they estimate -97.71
    "MountainCarContinuous-v0": 99.64,  # on 401 × 401 states; they estimate 99.63
}
"""Id → a near-optimal return by dynamic programming: the mean return, over the starts, of the
policy of `evaluation/control_optima.py`, in reward units, so the optimum is at least that."""

SOLVED_FROM: dict[str, float] = {
    "Pendulum-v1": -160.0,  # 98 % of the way from random play, -1 256, to the optimum
}
"""Id → the mean return at which it counts as solved, where gymnasium states none."""

OF_OTHER_PACKAGES: dict[str, str] = {
    "LunarLander-v3": "a lander with three engines: come down softly between two flags",
    "LunarLanderContinuous-v3": "the lander with engines that run at any power",
    "BipedalWalker-v3": "a robot with two legs: walk over uneven ground",
    "BipedalWalkerHardcore-v3": "the same robot, with ladders, stumps and pitfalls in its way",
    "CarRacing-v3": "a car on a track, seen from above: learning from images",
    "InvertedPendulum-v5": "a pole on a cart, pushed with any force",
    "InvertedDoublePendulum-v5": "a pole on top of a pole on a cart, pushed with any force",
    "Reacher-v5": "an arm of two joints: touch a point",
    "Pusher-v5": "an arm of seven joints: push an object to a place",
    "Swimmer-v5": "three links in a viscous fluid: swim to the right",
    "Hopper-v5": "one leg of four parts: hop to the right without falling",
    "HalfCheetah-v5": "a flat cheetah with two legs: run to the right as fast as it can",
    "Walker2d-v5": "two legs in a plane: walk to the right without falling",
    "Ant-v5": "a body with four legs: walk to the right",
    "Humanoid-v5": "a body with two legs and two arms: walk without falling",
    "HumanoidStandup-v5": "the same body, lying on the ground: stand up",
    "ALE/Pong-v5": "Atari's table tennis, from its pixels",
    "MinAtar/Breakout-v1": "a ball, a paddle and a wall of bricks on 10 × 10 cells",
    "MinAtar/Asterix-v1": "treasures to collect and enemies to avoid on 10 × 10 cells",
    "MiniGrid-Empty-5x5-v0": "an empty room with a goal in its corner",
    "MiniGrid-Empty-Random-5x5-v0": "an empty room with a goal in its corner, from a random start",
    "MiniGrid-DoorKey-5x5-v0": "a key, a locked door, and a goal behind it",
    "MiniGrid-MemoryS7-v0": "an object at the start says which way to turn at the end: a test of memory",
}
"""Used where a package's own text begins with its history."""

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
"""Short id → the optimal mean return, in reward units, where `optimal_return` finds no model."""
