"""RLHF in four stages on a preference that can be learned, and how optimising it goes too far.

The prompts are sums of money, "12+34=", and the answer that people like best is near the right number and has its unit: "46c".

    1  sft            a model that writes the unit in half of its answers
    2  pairs          two answers of it to each prompt; people prefer the one with the higher true score
    3  reward model   learns to tell the two apart, without ever seeing a score
    4  ppo            is paid by the reward model; the KL penalty holds it to the first stage

Whether there is a unit can be seen on an answer, and the reward model learns it from few pairs; how near the number is would have to be
computed, and it learns little of that. So the true score rises while the policy learns to write the unit. Optimised further, the learned
score goes on rising through numbers that the reward model likes for no good reason, and the true score falls.

    stages = train(seed=0)
    stages.ppo.metrics                       # "return": the learned score, "true_return": the true one

Source: the stages: Stiennon et al. 2020, arXiv:2009.01325, section 3; over-optimisation: Gao et al. 2023, arXiv:2210.10760. Preference
and model are ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rlbook
from rlbook.data.episodes import Episode, Episodes, Pairs
from rlbook.interaction.environments import Recipe
from rlbook.interaction.playing import adapted_vector, play
from rlbook.interaction.vector import VectorInteraction
from rlbook.llm.rewards import Completion
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizer import character_codec
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENV = "Addition-v0"
UNIT = "c"
TOLERANCE = 20
"""An answer that is wrong by so much is as bad as any other."""


def closeness(completion: Completion) -> float:
    """1 for the right number, 0 for one that is wrong by `TOLERANCE` or is none, and a straight line between them."""
    number = completion.text.removesuffix(UNIT)
    if completion.answer is None or not number.isdecimal():
        return 0.0
    return max(0.0, 1.0 - abs(int(number) - int(completion.answer)) / TOLERANCE)


def true_score(completion: Completion) -> float:
    """What people think of an answer, in [0, 1]: half of it for the number, half for the unit."""
    unit = completion.ended and completion.text.endswith(UNIT)
    return 0.5 * closeness(completion) + 0.5 * unit


class Stages(NamedTuple):
    """A run for each stage that trains, and the pairs."""

    sft: rlbook.Run
    pairs: Pairs
    reward_model: rlbook.Run
    ppo: rlbook.Run


SFT: dict[str, Any] = {"steps": 100, "batch_size": 64, "learning_rate": 1e-3, "eval_every": 0}
REWARD_MODEL: dict[str, Any] = {"passes": 3, "learning_rate": 5e-4}
PPO: dict[str, Any] = {
    "num_envs": 128, "epochs": 2, "critic_start": "reward_model", "normalize_over": "rollout", "clip_value": 0.2, "eval_every": 0,
    "anneal_learning_rate": False,
}  # fmt: skip
HELD: dict[str, Any] = {"steps": 40_000, "learning_rate": 4e-4, "kl_coef": 0.02}
"""The last stage, held to the first."""
LET_GO: dict[str, Any] = HELD | {"kl_coef": 0.0}
"""The same without a penalty."""


def train(
    seed: int = 0, *, prompts: int = 1_500, ppo: dict[str, Any] | None = None, reward_model: dict[str, Any] | None = None
) -> Stages:
    """All four stages.

    Args:
        seed: of every stage.
        prompts: how many prompts are answered twice for the pairs.
        ppo: hyper-parameters and options of the last stage, beside those of `PPO`; `HELD` by default.
        reward_model: those of the third, beside those of `REWARD_MODEL`.
    """
    sft = rlbook.train("sft", ENV, data=demonstrations(seed), seed=seed, env_kwargs={"reward": true_score}, **SFT)
    pairs = preferences(sft, prompts, seed)
    model = rlbook.train("reward_model", ENV, data=pairs, seed=seed, **REWARD_MODEL | (reward_model or {}))
    return Stages(sft, pairs, model, optimise(sft, model, seed, ppo))


def optimise(sft: rlbook.Run, model: rlbook.Run, seed: int = 0, ppo: dict[str, Any] | None = None) -> rlbook.Run:
    """The last stage: PPO from the policy of `sft`, paid by `model`."""
    options = PPO | (HELD if ppo is None else ppo)
    return rlbook.train("ppo", ENV, start=sft, reward_model=model, seed=seed, env_kwargs={"reward": true_score}, **options)


def demonstrations(seed: int = 0) -> Episodes:
    """Right answers to the training prompts, half of them with the unit."""
    codec = character_codec()
    rows = [(codec.encode_prompt(prompt), codec.encode_answer(answer)) for prompt, answer in demonstrated(seed)]
    return Episodes([Episode(np.array(prompt), np.array(answer)) for prompt, answer in rows])


def demonstrated(seed: int) -> list[tuple[str, str]]:
    """Prompts and answers of `demonstrations`, as texts."""
    task = AdditionTask()
    texts = task.prompts("train")
    units = rng_for(seed, "comparisons").random(len(texts)) < 0.5
    return [(text, task.answer(text) + UNIT * bool(unit)) for text, unit in zip(texts, units, strict=True)]


def write_demonstrations(out: Path, *, seed: int) -> dict[str, int]:
    """`demonstrations` as JSON lines. Returns how many."""
    rows = [{"prompt": prompt, "completion": answer} for prompt, answer in demonstrated(seed)]
    return {"rows": write_rows(out, rows)}


def write_pairs(out: Path, run: str, *, prompts: int = 1_500, seed: int) -> dict[str, int]:
    """`preferences` of a run's agent as JSON lines, of answers that are text and came to an end. Returns how many."""
    pairs, codec, rows = preferences(rlbook.load(run, allow_import=True), prompts, seed), character_codec(), []
    for better, worse in zip(pairs.better, pairs.worse, strict=True):
        if all(each.action[-1] == codec.eos and each.action[:-1].min(initial=FIRST_LETTER) >= FIRST_LETTER for each in (better, worse)):
            chosen, rejected = (codec.decode(each.action[:-1]) for each in (better, worse))
            rows.append({"prompt": codec.decode(better.obs[1:]), "chosen": chosen, "rejected": rejected})
    return {"rows": write_rows(out, rows), "left_out": len(pairs) - len(rows)}


def write_rows(out: Path, rows: list[dict[str, str]]) -> int:
    """Writes JSON lines. Returns how many."""
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def preferences(run: rlbook.Run, prompts: int, seed: int = 0) -> Pairs:
    """Two sampled answers of a run's agent to each of so many prompts as pairs."""
    return neighbours(*sampled(run, prompts, seed))


def neighbours(episodes: list[Episode], scores: NDArray[np.float64]) -> Pairs:
    """Episodes 0 and 1, 2 and 3, … as pairs, the one with the higher of the scores [2 · P] first; equals make no pair."""
    pairs = np.arange(len(scores)).reshape(-1, 2)
    pairs = pairs[scores[pairs[:, 0]] != scores[pairs[:, 1]]]
    order = scores[pairs].argsort(1)
    better, worse = (np.take_along_axis(pairs, order[:, [place]], 1)[:, 0] for place in (1, 0))
    return Pairs([episodes[i] for i in better], [episodes[i] for i in worse])


def sampled(run: rlbook.Run, prompts: int, seed: int) -> tuple[list[Episode], NDArray[np.float64]]:
    """Two answers to each of so many training prompts, in neighbouring places, and their true scores [2 · prompts]."""
    agent: Any = run.agent
    env = adapted_vector(type(agent), Recipe.of(ENV, kwargs={"reward": true_score}), 2 * prompts, agent.config)
    interaction = VectorInteraction(env, rng_for(seed, "comparisons"), rollout="episodes", group_size=2)
    interaction.start()
    agent.begin()
    first, scores, steps = interaction.obs, np.zeros(2 * prompts), []
    while not steps or (steps[-1].valid & ~(steps[-1].terminated | steps[-1].truncated)).any():
        if steps:
            interaction.reset_finished()
        steps.append(interaction.step(agent.act(interaction.obs)))
        scores += steps[-1].reward
    agent.begin()
    lengths = np.sum([step.valid for step in steps], axis=0)                            # [2 · prompts]
    actions = np.stack([step.action for step in steps], axis=1)                         # [2 · prompts, T]
    starts, sizes = np.asarray(first["tokens"]), np.asarray(first["length"])
    episodes = [Episode(starts[i, : sizes[i]].copy(), actions[i, : lengths[i]].copy()) for i in range(2 * prompts)]
    return episodes, scores


def held_out(run: rlbook.Run) -> float:
    """The mean true score of greedy answers to the 512 held-out prompts."""
    recipe = Recipe.of(ENV, kwargs={"split": "held_out", "reward": true_score})
    return play(run.agent, recipe, 512, 0).mean


def told_apart(run: rlbook.Run, pairs: Pairs, *, units: bool) -> float:
    """The share of pairs that the reward model orders rightly, of those that differ in the unit, or in the number alone."""
    ends = [[UNIT_ID in episode.action for episode in episodes] for episodes in (pairs.better, pairs.worse)]
    rows = np.flatnonzero((np.array(ends[0]) != np.array(ends[1])) == units)
    return run.agent.accuracy(pairs, rows)  # type: ignore[attr-defined]


UNIT_ID, FIRST_LETTER = (int(character_codec().encode_answer(letter)[0]) for letter in (UNIT, "0"))
"""The ids before the first letter's end and fill a text."""
BINS = 20


class Found(NamedTuple):
    """What one seed found; [R, …] for R of them."""

    before: NDArray[np.float64]              # true score of greedy answers to held-out prompts, after SFT
    after: NDArray[np.float64]               # after PPO held by the penalty
    too_far: NDArray[np.float64]             # after PPO let go
    visible: NDArray[np.float64]             # share of fresh pairs ordered rightly, where the unit differs
    hidden: NDArray[np.float64]              # the same where the numbers alone differ
    held: NDArray[np.float64]                # [2, BINS], learned and true score while PPO is held by the penalty
    let_go: NDArray[np.float64]              # [2, BINS], while it is let go


def one(seed: int) -> Found:
    """All stages with one seed, the last one twice: with the penalty, and without it."""
    stages = train(seed)
    free = optimise(stages.sft, stages.reward_model, seed, LET_GO)
    fresh = preferences(stages.sft, 1_000, seed + 1_000)
    before, after, too_far = (np.asarray(held_out(run)) for run in (stages.sft, stages.ppo, free))
    visible, hidden = (np.asarray(told_apart(stages.reward_model, fresh, units=units)) for units in (True, False))
    return Found(before, after, too_far, visible, hidden, curve(stages.ppo), curve(free))


def run(seeds: int = 3) -> Found:
    """`one` for several seeds."""
    return Found(*(np.stack(each) for each in zip(*map(one, range(seeds)), strict=True)))


def curve(run: rlbook.Run) -> NDArray[np.float64]:
    """The learned and the true score of a run's training episodes, [2, BINS], means over equal parts of its budget."""
    reports = [report for report in run.metrics if "true_return" in report]
    place = np.array([min(int(BINS * report["step"] / run.steps), BINS - 1) for report in reports])
    values = np.array([[report[name] for report in reports] for name in ("return", "true_return")])
    return np.stack([values[:, place == k].mean(1) for k in range(BINS)], axis=1)


def measured(found: Found) -> dict[str, float]:
    """The numbers that the page names: means over the seeds."""
    true = found.let_go[:, 1]
    fall = true.max(1) - true[:, -BINS // 4 :].mean(1)
    return {
        "true score after SFT": float(found.before.mean()),
        "after PPO with the penalty": float(found.after.mean()),
        "least rise of a seed": float((found.after - found.before).min()),
        "after PPO without it": float(found.too_far.mean()),
        "fall from the best to the last quarter without it, sampled": float(fall.mean()),
        "least fall of a seed": float(fall.min()),
        "pairs told apart by their unit": float(found.visible.mean()),
        "pairs told apart by their number": float(found.hidden.mean()),
    }


def draw(found: Found) -> Figure:
    """The learned and the true score side by side, with the penalty and without it; thin lines are seeds."""
    from rlbook.book.figures.drawing import curve_colour, labelled
    from rlbook.plots.figure import new_figure

    figure = new_figure(8.4, 3.4)
    for axes, curves, options in zip(figure.subplots(1, 2), (found.held, found.let_go), (HELD, LET_GO), strict=True):
        steps = (np.arange(BINS) + 0.5) / BINS * options["steps"] / 1_000
        labelled(axes, "thousand tokens written", "true score (solid)")
        second = axes.twinx()
        second.set_ylabel("learned score (dashed)")
        for k, place, colour, style in ((1, axes, curve_colour(0), "-"), (0, second, curve_colour(1), "--")):
            place.plot(steps, curves[:, k].T, color=colour, linewidth=0.7, alpha=0.4, linestyle=style)
            place.plot(steps, curves[:, k].mean(0), color=colour, linewidth=2.0, linestyle=style)
        axes.set_ylim(0.4, 1.0)
        second.set_ylim(-1.0, 2.5)
        axes.set_title(f"weight of the KL penalty {options['kl_coef']:g}", fontsize=10)
    return figure
