"""RLHF in four stages on a preference that can be learned, and reward over-optimisation.

The prompts are sums of money, "12+34=", and the answer that people like best is near the right
number and has its unit: "46c".

    1  sft            a model that writes the unit in half of its answers
    2  pairs          two answers of it to each prompt; people prefer the one with the higher true score
    3  reward_model   learns to tell the two apart, without ever seeing a score
    4  ppo            is paid by the reward model; the KL penalty holds it to the first stage
    5  too_far        the same without the penalty

Whether there is a unit can be seen on an answer, and the reward model learns it from few pairs; how
near the number is would have to be computed, and it learns little of that. So the true score rises
while the policy learns to write the unit. Without a penalty the learned score stays as high with
numbers that the reward model likes for no good reason, and the true score does not rise.

    rlbook recipe rlhf                       # recipes/rlhf.yaml says what each stage does

Source: the stages: Stiennon et al. 2020, arXiv:2009.01325, section 3; over-optimisation: Gao et al.
2023, arXiv:2210.10760. Preference and model are ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

import rlbook
from rlbook.checks import check, positive_int
from rlbook.data.episodes import Episode, Pairs, collate
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.llm.rewards import Completion
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_codec
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENV = "Addition-v0"
UNIT = "c"
TOLERANCE = 20
"""An answer that is wrong by this much is as bad as any other."""


def closeness(completion: Completion) -> float:
    """1 for the correct number, 0 for one that is wrong by `TOLERANCE` or missing, linear in
    between."""
    number = completion.text.removesuffix(UNIT)
    if completion.answer is None or not number.isdecimal():
        return 0.0
    return max(0.0, 1.0 - abs(int(number) - int(completion.answer)) / TOLERANCE)


def true_score(completion: Completion) -> float:
    """People's rating of an answer, in [0, 1]: half for the number, half for the unit."""
    unit = completion.ended and completion.text.endswith(UNIT)
    return 0.5 * closeness(completion) + 0.5 * unit


def demonstrations(seed: int = 0) -> list[tuple[str, str]]:
    """The training prompts with their correct answers, half of them with the unit."""
    task = AdditionTask()
    texts = task.prompts("train")
    units = rng_for(seed, "comparisons").random(len(texts)) < 0.5
    return [
        (text, task.answer(text) + UNIT * bool(unit))
        for text, unit in zip(texts, units, strict=True)
    ]


def write_demonstrations(out: Path, *, seed: int) -> dict[str, int]:
    """Writes `demonstrations` as JSON lines. Returns their number."""
    rows = [{"prompt": prompt, "completion": answer} for prompt, answer in demonstrations(seed)]
    return {"rows": write_rows(out, rows)}


def write_pairs(out: Path, run: str, *, prompts: int = 1_500, seed: int) -> dict[str, int]:
    """Writes `preferences` of a run's agent as JSON lines, for finished answers that are text.
    Returns their number."""
    check("prompts", prompts, positive_int)
    pairs, codec, rows = (
        preferences(rlbook.load(run, allow_import=True), prompts, seed),
        character_codec(),
        [],
    )
    for better, worse in zip(pairs.better, pairs.worse, strict=True):
        if all(
            each.action[-1] == codec.eos
            and each.action[:-1].min(initial=FIRST_LETTER) >= FIRST_LETTER
            for each in (better, worse)
        ):
            chosen, rejected = (codec.decode(each.action[:-1]) for each in (better, worse))
            rows.append(
                {"prompt": codec.decode(better.obs[1:]), "chosen": chosen, "rejected": rejected}
            )
    return {"rows": write_rows(out, rows), "left_out": len(pairs) - len(rows)}


def write_rows(out: Path, rows: list[dict[str, str]]) -> int:
    """Writes rows as JSON lines. Returns their number."""
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def preferences(run: rlbook.Run, prompts: int, seed: int = 0) -> Pairs:
    """Two sampled answers of a run's agent to each of so many prompts as pairs."""
    return neighbours(*sample_pairs(run, prompts, seed))


def neighbours(episodes: list[Episode], scores: NDArray[np.float64]) -> Pairs:
    """Episodes 0 and 1, 2 and 3, … as pairs, the one with the higher of the scores [2 · P] first;
    ties make no pair."""
    pairs = np.arange(len(scores)).reshape(-1, 2)
    pairs = pairs[scores[pairs[:, 0]] != scores[pairs[:, 1]]]
    order = scores[pairs].argsort(1)
    better, worse = (np.take_along_axis(pairs, order[:, [place]], 1)[:, 0] for place in (1, 0))
    return Pairs([episodes[i] for i in better], [episodes[i] for i in worse])


def sample_pairs(
    run: rlbook.Run, prompts: int, seed: int, split: str = "train"
) -> tuple[list[Episode], NDArray[np.float64]]:
    """Two adjacent answers to each of so many prompts of a split, and their true scores [2 ·
    prompts]."""
    agent: Any = run.agent
    env = adapted_vector(
        type(agent),
        EnvRecipe.from_env(ENV, kwargs={"reward": true_score, "split": split}),
        2 * prompts,
        agent.config,
    )
    interaction = VectorInteraction(
        env, rng_for(seed, "comparisons"), rollout="episodes", group_size=2
    )
    interaction.start()
    agent.begin()
    first, scores, steps = interaction.obs, np.zeros(2 * prompts), []
    while not steps or (steps[-1].valid & ~(steps[-1].terminated | steps[-1].truncated)).any():
        if steps:
            interaction.reset_finished()
        steps.append(interaction.step(agent.act(interaction.obs)))
        scores += steps[-1].reward
    agent.begin()
    lengths = np.sum([step.valid for step in steps], axis=0)  # [2 · prompts]
    actions = np.stack([step.action for step in steps], axis=1)  # [2 · prompts, T]
    starts, sizes = np.asarray(first["tokens"]), np.asarray(first["length"])
    episodes = [
        Episode(starts[i, : sizes[i]].copy(), actions[i, : lengths[i]].copy())
        for i in range(2 * prompts)
    ]
    return episodes, scores


def pair_accuracy(run: rlbook.Run, pairs: Pairs, *, units: bool) -> NDArray[np.float64]:
    """1 for each pair that the reward model orders correctly and ½ for equal scores, for pairs of
    which one answer has the unit, or for pairs of which both or neither has: [K]."""
    ends = [
        [UNIT_ID in episode.action for episode in episodes]
        for episodes in (pairs.better, pairs.worse)
    ]
    rows = np.flatnonzero((np.array(ends[0]) != np.array(ends[1])) == units)
    better, worse = (
        scores(run, [episodes[int(row)] for row in rows])
        for episodes in (pairs.better, pairs.worse)
    )
    return (better > worse) + 0.5 * (better == worse)


def scores(model: rlbook.Run, episodes: Sequence[Episode]) -> NDArray[np.float64]:
    """A reward model's scores of episodes, [E] in its own units."""
    with torch.no_grad():
        return model.agent.score(collate(episodes)).double().numpy()  # type: ignore[attr-defined]


def fresh_pair_accuracy(
    run: rlbook.Run, sft: str, *, units: bool, prompts: int = 1_000, seed: int = 1_000
) -> NDArray[np.float64]:
    """`pair_accuracy` on new pairs of the initial policy."""
    return pair_accuracy(
        run, preferences(rlbook.load(sft, allow_import=True), prompts, seed), units=units
    )


def learned_score(
    run: rlbook.Run, reward_model: str, *, prompts: int = 256, seed: int = 0
) -> NDArray[np.float64]:
    """A reward model's scores of two sampled answers to each of so many held-out prompts: [2 ·
    prompts]."""
    return scores(
        rlbook.load(reward_model, allow_import=True),
        sample_pairs(run, prompts, seed, "held_out")[0],
    )


def fall(run: rlbook.Run) -> list[float]:
    """The final drop of the training episodes' true score below its maximum: one number, or none
    before there are any."""
    return (
        [float(true.max() - true[-BINS // 4 :].mean())]
        if len(run.metrics) > BINS and (true := curve(run)[1]).size
        else []
    )


UNIT_ID, FIRST_LETTER = (int(character_codec().encode_answer(letter)[0]) for letter in (UNIT, "0"))
"""The ids before the first letter's end and fill a text."""
BINS = 20


def curve(run: rlbook.Run) -> NDArray[np.float64]:
    """The learned and the true score of a run's training episodes, [2, BINS], means over equal
    parts of its budget."""
    reports = [report for report in run.metrics if "true_return" in report]
    place = np.array([min(int(BINS * report["step"] / run.steps), BINS - 1) for report in reports])
    values = np.array([[report[name] for report in reports] for name in ("return", "true_return")])
    return np.stack([values[:, place == k].mean(1) for k in range(BINS)], axis=1)


def draw(folders: Sequence[Path]) -> Figure:
    """The learned and the true score side by side, with and without the penalty; thin lines are
    other seeds."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, label_axes
    from rlbook.plots.figure import new_figure

    figure = new_figure(8.4, 3.4)
    for axes, stage in zip(figure.subplots(1, 2), ("ppo", "too_far"), strict=True):
        runs = [rlbook.load(folder / stage, allow_import=True) for folder in folders]
        curves = np.stack([curve(run) for run in runs])  # [R, 2, BINS]
        steps = (np.arange(BINS) + 0.5) / BINS * runs[0].steps / 1_000
        label_axes(axes, "thousand tokens written", "true score (solid)")
        second = axes.twinx()
        second.set_ylabel("learned score (dashed)")
        for k, place, colour, style in (
            (1, axes, curve_colour(0), "-"),
            (0, second, curve_colour(1), "--"),
        ):
            values = curves[:, k]
            draw_runs(place, steps, values, colour, thin=0.7, linestyle=style, linewidth=2.0)
        axes.set_ylim(0.4, 1.0)
        second.set_ylim(-1.0, 2.5)
        axes.set_title(f"weight of the KL penalty {runs[0].request.config.kl_coef:g}", fontsize=10)
    return figure
