"""A step of fine-tuning on texts of very different lengths: packed rows of 256 tokens beside a row
for each text, 1 M parameters.

The two take the same step: the difference of the losses is printed beside.
"""

from __future__ import annotations

import numpy as np

from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.agent import Parts
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning
from rlbook.data import Episode, Episodes
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector

TEXTS, MEAN, LONGEST, WIDTH, ROUNDS = 64, 30, 120, 256, 7
SIZES = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": WIDTH,
}


def learner(packing: int | None) -> BehaviorCloning:
    """An agent of these sizes, the same each time."""
    config = BehaviorCloning.Config(packing=packing)
    env = adapted_vector(BehaviorCloning, EnvRecipe.from_env("Addition-v0"), 1, config)
    return BehaviorCloning(env, config, parts=Parts(model=SIZES))


def texts(rng: np.random.Generator) -> list[Episode]:
    """Lengths are exponential, cut to 6 … 120 tokens; a third of each text is its prompt."""
    lengths = rng.exponential(MEAN, TEXTS).clip(6, LONGEST).astype(int)
    return [
        Episode(rng.integers(4, 20, length // 3), rng.integers(4, 20, length - length // 3))
        for length in lengths
    ]


def compare() -> list[Comparison]:
    batch = Episodes(texts(np.random.default_rng(0)))[np.arange(TEXTS)]
    agents = {"ours": learner(WIDTH), "peer": learner(None)}
    losses = {name: agent.update(batch)["loss"] for name, agent in agents.items()}
    rates = run_in_turn(
        {
            name: lambda agent=agent: 1 / seconds(lambda: agent.update(batch))
            for name, agent in agents.items()
        },
        ROUNDS,
    )
    note = f"difference of the first loss: {abs(losses['ours'] - losses['peer']):.1e} nats"
    return [
        Comparison(
            "fine-tuning packed, against a row a text",
            "steps/s",
            rates["ours"],
            rates["peer"],
            2.0,
            note,
        )
    ]
