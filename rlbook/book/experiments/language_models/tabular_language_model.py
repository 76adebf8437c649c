"""A tabular language model: three tokens, three steps, 27 completions, and the optimal policy under
a KL penalty in closed form.

    π*(y) = π_ref(y) exp(r(y) / β) / Z            y: a completion of three tokens

PPO, GRPO and DPO are three ways to that policy, and here each can be compared with it, completion
by completion. The states are the 13 texts so far; the policy is a table of logits (a linear layer
on one-hot states); π_ref is a run that was trained on another reward.

    found = run(seeds=3)
    found["grpo, k1 in the reward"].distance[0.5]        # [R], largest |π(y) - π*(y)| at β = 0.5, one a seed

The penalty belongs in the reward as k1: only there does an early token answer for the divergence of
the later ones. As a term of the loss k2 and k3 look at one step at a time, and converge to another
point near π*; `fixed_point` computes it.

Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 4 (the closed form); Tang & Munos 2025,
arXiv:2506.09477 (the gradients).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.data.episodes import Episode, Pairs
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.bandits import softmax
from rlbook.runs.run import Run
from rlbook.seeding import rng_for

Array = NDArray[np.float64]

TOKENS = STEPS = 3
COMPLETIONS = np.array(list(itertools.product(range(TOKENS), repeat=STEPS)))  # [27, 3]
# [27, 3], the texts on the way
STATES = np.array([[0, 1 + a, 4 + TOKENS * a + b] for a, b, _ in COMPLETIONS])
END = 13
BETAS = (1.0, 0.5)
ROUND = 1_024  # episodes
STILL = 1e-9  # a change of every completion's probability by less, in one step, is none

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo, k1 in the reward": ("grpo", {"kl_in": "reward", "kl_estimator": "k1"}),
    "grpo, k2 in the loss": ("grpo", {"kl_in": "loss", "kl_estimator": "k2"}),
    "grpo, k3 in the loss": ("grpo", {"kl_in": "loss", "kl_estimator": "k3"}),
    "ppo, k1 in the reward": ("ppo", {"kl_in": "reward", "kl_estimator": "k1"}),
    "ppo, k2 in the loss": ("ppo", {"kl_in": "loss", "kl_estimator": "k2"}),
    "ppo, k3 in the loss": ("ppo", {"kl_in": "loss", "kl_estimator": "k3"}),
    "dpo, recorded pairs": ("dpo", {}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": {"group_size": 16, "baseline": "leave-one-out", "scale": "none", "learning_rate": 0.05},
    "ppo": {
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "rollout_steps": STEPS,
        "batch_size": STEPS * ROUND,
        "epochs": 2,
        "normalize_advantage": False,
        "learning_rate": 0.05,
    },
    "dpo": {"batch_size": 4_096, "learning_rate": 0.03},
}


def writing(reward: Array) -> TabularMDP:
    """The task: an action appends a token, and after the third one the completion is rewarded.

    Args:
        reward: r [27], in reward units.
    """
    transitions, rewards = np.zeros((END + 1, TOKENS, END + 1)), np.zeros((END + 1, TOKENS))
    for text, completion, paid in zip(STATES, COMPLETIONS, reward, strict=True):
        transitions[text, completion, [*text[1:], END]] = 1.0
        rewards[text[-1], completion[-1]] = paid
    return TabularMDP.from_arrays(transitions, rewards, initial=np.eye(END + 1)[0])


def rewards(seed: int) -> Array:
    """The reward of each completion: [27], uniform in [0, 1]."""
    return rng_for(seed, "environment").random(len(COMPLETIONS))


def chances(policy: Array) -> Array:
    """The probability of each completion under π [S, A]: [27]."""
    return policy[STATES, COMPLETIONS].prod(axis=1)


def optimum(reference: Array, reward: Array, beta: float) -> Array:
    """π* in closed form: [27], from the reference's probabilities [27]."""
    weight = reference * np.exp(reward / beta)
    return weight / weight.sum()


def fixed_point(
    reference: Array, reward: Array, beta: float, estimator: str, steps: int = 50_000
) -> Array:
    """The point where the exact gradients of the reward and of a penalty in the loss cancel: [27].

    Args:
        reference: π_ref, [S, A].
        reward: [27].
        beta: β.
        estimator: "k2" or "k3".
        steps: of gradient ascent, from π_ref, at most. The curvature of the penalty grows with β,
            so a step is ∝ 1 / β: a longer one oscillates around the point forever.
    """
    logits, before = np.log(reference), np.full(len(COMPLETIONS), np.inf)
    for _ in range(steps):
        policy = softmax(logits)
        chance, ratio = chances(policy), np.log(policy / reference)[STATES, COMPLETIONS]
        if np.abs(chance - before).max() < STILL:
            return chance
        before = chance
        pull = ratio if estimator == "k2" else 1 - np.exp(-ratio)  # the estimators' derivatives
        score = chance[:, None] * ((reward - chance @ reward)[:, None] - beta * pull)
        gradient, total = np.zeros_like(logits), np.zeros(len(logits))
        np.add.at(gradient, (STATES, COMPLETIONS), score)
        np.add.at(total, STATES, score)
        logits = logits + (gradient - total[:, None] * policy) / beta
    raise ValueError(f"no fixed point after {steps:,} steps")


def table(run: Run) -> Array:
    """π of a run's agent in every state that has actions: [S, A]."""
    import torch

    agent: Any = run.agent
    with torch.no_grad():
        logits = agent.policy.distribution(torch.eye(END + 1)[:END]).logits
    return softmax(logits.double().numpy())


@cache
def reference_run(seed: int) -> Run:
    """The model before post-training: some rounds of REINFORCE on another reward."""
    return rlbook.train(
        "reinforce",
        writing(2 * rewards(seed + 1_000)),
        steps=20 * STEPS * 256,
        num_envs=256,
        seed=seed,
        eval_every=0,
        hidden_sizes=(),
        learning_rate=0.05,
        gamma=1.0,
    )


def sample_judged_pairs(reference: Array, reward: Array, count: int, seed: int) -> Pairs:
    """Pairs of completions, sampled from π_ref [27], with a preference: P(y ≻ y') = σ(r(y) -
    r(y')).

    DPO's optimum is π* if preferences come about like this. Where the larger reward wins every
    time, no finite policy is the optimum.
    """
    rng = rng_for(seed, "minibatches")
    drawn = rng.choice(len(reference), size=(count, 2), p=reference)
    first = rng.random(count) < 1 / (1 + np.exp(reward[drawn[:, 1]] - reward[drawn[:, 0]]))
    better, worse = np.where(first, drawn.T, drawn.T[::-1])
    episodes = [
        Episode(np.eye(END + 1, dtype=np.float32)[text], tokens)
        for text, tokens in zip(STATES, COMPLETIONS, strict=True)
    ]
    return Pairs([episodes[i] for i in better], [episodes[i] for i in worse])


def learn_policy(
    name: str, beta: float, seed: int, rounds: int = 150, pairs: int = 40_000
) -> Array:
    """The completion probabilities of a trained learner: [27].

    Args:
        name: one of `LEARNERS`.
        beta: β, the weight of the penalty, in reward units per nat; DPO's β.
        seed: of the reward, the reference and the run.
        rounds: of `ROUND` episodes, for those that play.
        pairs: for DPO, which passes over them 20 times.
    """
    algorithm, penalty = LEARNERS[name]
    reference, reward = reference_run(seed), rewards(seed)
    settings = {
        "seed": seed,
        "eval_every": 0,
        "hidden_sizes": (),
        "anneal_learning_rate": True,
        "reference": reference,
    }
    settings |= SETTINGS[algorithm]
    if algorithm == "dpo":
        recorded = sample_judged_pairs(chances(table(reference)), reward, pairs, seed)
        run = rlbook.train(
            algorithm, writing(reward), data=recorded, passes=20, beta=beta, **settings
        )
    else:
        steps = rounds * STEPS * ROUND
        run = rlbook.train(
            algorithm,
            writing(reward),
            steps=steps,
            num_envs=ROUND,
            kl_coef=beta,
            **settings,
            **penalty,
        )
    return chances(table(run))


@dataclass(frozen=True)
class CompletionDistances:
    """R runs of a learner at each β; a distance is the largest difference of a completion's
    probability."""

    distance: dict[float, Array]  # [R], from π*
    # [R], from where its own gradients cancel, which is π* but for a penalty in the loss
    beside: dict[float, Array]


def run(
    seeds: int = 3, first: int = 0, names: tuple[str, ...] = tuple(LEARNERS)
) -> dict[str, CompletionDistances]:
    """Trains all learners, each with every β and seed."""
    return {name: _learn(name, range(first, first + seeds)) for name in names}


def _learn(name: str, seeds: range) -> CompletionDistances:
    away: dict[float, list[tuple[float, float]]] = {beta: [] for beta in BETAS}
    for beta, seed in itertools.product(BETAS, seeds):
        reference, reward = table(reference_run(seed)), rewards(seed)
        policy, best = learn_policy(name, beta, seed), optimum(chances(reference), reward, beta)
        penalty = LEARNERS[name][1]
        ends = (
            fixed_point(reference, reward, beta, penalty["kl_estimator"])
            if penalty.get("kl_in") == "loss"
            else best
        )
        away[beta].append((float(np.abs(policy - best).max()), float(np.abs(policy - ends).max())))
    distance, beside = (
        {beta: np.array(pairs)[:, part] for beta, pairs in away.items()} for part in (0, 1)
    )
    return CompletionDistances(distance, beside)


def measurements(result: dict[str, CompletionDistances]) -> dict[str, float]:
    """The largest distance from π* over the seeds."""
    return {
        f"{name}, β {beta:g}": float(each.distance[beta].max())
        for name, each in result.items()
        for beta in BETAS
    }


def draw(result: dict[str, CompletionDistances]) -> Figure:
    """A dot for each run, by learner; the line is at 0.03."""
    from rlbook.book.figures.axes import curve_colour, labelled_figure, legend

    figure, axes = labelled_figure(
        7.5,
        0.8 + 0.4 * len(result),
        "largest difference of a completion's probability from the closed form",
        "",
    )
    axes.axvline(0.03, color=curve_colour(2), linestyle="--", linewidth=1.2)
    for place, beta in enumerate(BETAS):
        rows = np.concatenate(
            [
                np.full(len(each.distance[beta]), row + 0.2 * place)
                for row, each in enumerate(result.values())
            ]
        )
        away = np.concatenate([each.distance[beta] for each in result.values()])
        axes.plot(away, rows, "o", color=curve_colour(place), label=f"β = {beta:g}")
    axes.set_yticks(range(len(result)), list(result))
    axes.set_xlim(left=0.0)
    axes.invert_yaxis()
    legend(axes, "lower right")
    return figure
