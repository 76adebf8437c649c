"""KTO without pairs: episodes that are good or bad, each for itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
from rlbook.agent import Parts
from rlbook.algorithms.policy.dpo import DPO
from rlbook.algorithms.policy.labelled_episodes import LabelledRows, labelled_loss
from rlbook.algorithms.policy.preference_pairs import kto_reference_point
from rlbook.cli.main import main
from rlbook.data import Episode, LabelledEpisodes, load
from rlbook.data.rollout import Batch
from rlbook.data.schemas import schema_of
from rlbook.errors import RequestError
from rlbook.functional.post_training import kto_losses

Make = Callable[..., Any]
RATIOS = torch.tensor([0.4, -0.3, 1.1, -2.0])
ZERO = torch.zeros(4)


def text(*ids: int) -> Episode:
    """A prompt of two tokens with an answer of one, and its end."""
    return Episode(np.array([1, *ids[:2]]), np.array([ids[2], 2]))


def four() -> LabelledEpisodes:
    return LabelledEpisodes(
        [text(5, 6, 7), text(8, 9, 4), text(6, 6, 8), text(5, 9, 3)], [True, False, False, True]
    )


def moved(agent: DPO) -> DPO:
    """The agent, away from its reference: the episodes below have a mismatched KL above 0."""
    model: Any = agent.policy.model
    with torch.no_grad():
        noise = torch.randn(26, 64, generator=torch.Generator().manual_seed(4))
        model.model.embed_tokens.weight += 0.1 * noise
    return agent


def largest(agent: Any, batch: Batch) -> float:
    """The largest -log π of an episode's answer, in nats."""
    with torch.no_grad():
        return (agent.policy.evaluate(batch)[0] * batch.mask).sum(1).abs().max().item()


def test_each_episode_is_judged_by_its_label_against_the_point_of_reference() -> None:
    """Good: 1 - σ(.5 (.4 - .2)) = 1 - σ(.1), weighed double; bad: 1 - σ(.5 (.2 + .3)), 1 - σ(.5 (.2
    - 1.1)), 1 - σ(.5 (.2 + 2))."""
    good = torch.tensor([True, False, False, False])
    found = kto_losses.labelled_kto_loss(
        RATIOS, ZERO, good, torch.tensor(0.2), beta=0.5, good_weight=2.0
    )
    inside = torch.tensor([0.1, 0.25, -0.45, 1.1])
    weight = torch.tensor([2.0, 1.0, 1.0, 1.0])
    assert_near(found, ((1 - inside.sigmoid()) * weight).sum() / 4, terms=4)


def test_as_many_good_as_bad_ones_are_the_loss_on_pairs() -> None:
    good, kl = torch.tensor([True, True, False, False]), torch.tensor(0.3)
    pairs = kto_losses.kto_loss(
        RATIOS[:2], RATIOS[2:], ZERO[:2], ZERO[2:], kl, beta=0.4, good_weight=1.5
    )
    labelled = kto_losses.labelled_kto_loss(RATIOS, ZERO, good, kl, beta=0.4, good_weight=1.5)
    assert_near(labelled, pairs, terms=4)


def test_each_prompt_gets_the_completion_of_the_row_before_it_as_in_trl(stage: Make) -> None:
    """TRL: KL_completion_ids = [completions[-1]] + completions[:-1]."""
    agent: Any = moved(stage("dpo", "Addition-v0", num_envs=4, preference_loss="kto").agent)
    batch = four()[np.arange(4)].episodes
    answers = [text(5, 6, 3), text(8, 9, 7), text(6, 6, 4), text(5, 9, 8)]  # 7, 4, 8, 3, one row on
    mismatched = LabelledEpisodes(answers, [True] * 4)[np.arange(4)].episodes
    ratio = (
        (agent.policy.evaluate(mismatched)[0] - agent.reference_log_prob(mismatched))
        * mismatched.mask
    ).sum(1)
    network = {"terms": widths(agent.policy.model), "size": largest(agent, mismatched)}
    assert ratio.mean() > 0.5, "a KL below 0 counts as 0, whatever the texts"
    kl = kto_reference_point([batch], agent.policy, agent.reference, agent.config)
    assert_near(kl, ratio.mean(), **network)


@pytest.mark.parametrize("rows", [slice(0, 4), slice(0, 1), slice(3, 4)])
def test_micro_batches_add_up_to_the_whole(stage: Make, rows: slice) -> None:
    """The loss and each diagnostic of all four are those of some and of the rest together, even
    where one label is missing there."""
    agent = moved(
        stage("dpo", "Addition-v0", num_envs=4, preference_loss="kto", nll_coef=0.3).agent
    )
    batch = four()[np.arange(4)]
    options: dict[str, Any] = {"config": agent.config, "mismatched_kl": torch.tensor(0.1)}
    batch.episodes.reference_log_prob = agent.reference_log_prob(batch.episodes)
    whole = LabelledRows.from_batch(batch)
    rest = [slice(0, rows.start), slice(rows.stop, 4)]
    parts = [
        labelled_loss(agent.policy, whole[part], **options)
        for part in (rows, *rest)
        if part.stop > part.start
    ]
    together = labelled_loss(agent.policy, whole, **options)
    size = largest(agent, batch.episodes)
    network: dict[str, Any] = {"terms": widths(agent.policy.model), "size": size}
    assert_near(together.loss, sum(part.loss for part in parts), **network)
    for name, value in together.metrics.items():
        assert_near(value, sum(part.metrics[name] for part in parts), **network)


def test_good_episodes_become_likelier_and_bad_ones_less_likely(stage: Make) -> None:
    agent: DPO = stage(
        "dpo", "Addition-v0", num_envs=4, preference_loss="kto", batch_size=4, learning_rate=3e-4
    ).agent
    data = four()
    data.shuffle(np.random.default_rng(0))
    logged = [metrics for _, metrics in zip(range(12), agent.fit(data), strict=False)]
    layers = widths(agent.policy.model)  # type: ignore[arg-type]
    half = near(0.5, dtype="float32", terms=layers, size=2 * math.log(26))
    assert logged[0]["preference_loss"] == half, "policy and reference agree"
    assert logged[-1]["chosen_log_ratio"] > 0.1 and logged[-1]["rejected_log_ratio"] < -0.1
    assert logged[-1]["preference_loss"] < 0.49 and logged[-1]["accuracy"] == 1.0
    assert agent.METRICS.keys() >= logged[-1].keys()


def test_walks_through_the_maze_may_have_labels_too(stage: Make) -> None:
    theatre = stage("dpo", "Maze-v0", num_envs=4, preference_loss="kto", batch_size=2)
    agent, size = theatre.agent, theatre.env.single_observation_space.shape[0]
    walks = [
        Episode(np.eye(size, dtype=np.float32)[[0, 1]], np.array(actions))
        for actions in ([0, 1], [2, 3])
    ]
    loss = next(agent.fit(LabelledEpisodes(walks, [True, False])))["preference_loss"]
    assert loss == near(0.5, dtype="float32", terms=widths(agent.policy), size=2 * math.log(4))


def test_labels_are_for_kto_alone(stage: Make) -> None:
    agent = stage("dpo", "Addition-v0", num_envs=4).agent
    with pytest.raises(
        ValueError,
        match=(
            "preference_loss must be 'kto' for episodes that are good or bad each for itself, got"
            " 'sigmoid'"
        ),
    ):
        next(agent.fit(four()))
    assert agent.parts == Parts()


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_with_a_label_are_read_from_a_file_and_learned_from(
    tmp_path: Path, stage: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """TRL's form, texts and chats; the command line takes it, and other agents refuse it."""
    rows = [
        {"prompt": "12+34=", "completion": "46", "label": True},
        {"prompt": "12+34=", "completion": "47", "label": False},
    ]
    chat = [{"role": "user", "content": "12+34="}]
    rows.append(
        {"prompt": chat, "completion": [{"role": "assistant", "content": "45"}], "label": False}
    )
    file = written(tmp_path / "labels.jsonl", *rows)
    data: Any = load(file, stage("dpo", "Addition-v0", num_envs=4).env)
    assert isinstance(data, LabelledEpisodes) and data[np.array([0, 1, 2])].good.tolist() == [
        True,
        False,
        False,
    ]
    assert (
        len(data.digest()) == 64 and len(LabelledEpisodes(data.episodes, data.good).digest()) == 64
    )
    command = [
        "train",
        "dpo",
        "Addition-v0",
        "--data",
        str(file),
        "--passes",
        "2",
        "--batch-size",
        "3",
        "--eval-every",
        "0",
    ]
    assert main([*command, "--preference-loss", "kto", "--out", str(tmp_path / "run")]) == 0
    assert main(["train", "sft", *command[2:5], "--out", str(tmp_path / "sft")]) == 2
    told = capsys.readouterr().err
    assert (
        "learns from Episodes (one answer a row" in told
        and "the data are LabelledEpisodes (" in told
    )
    assert main([*command, "--out", str(tmp_path / "sigmoid")]) == 2
    assert "preference_loss must be 'kto'" in capsys.readouterr().err
    answers = written(tmp_path / "rows.jsonl", {"prompt": "1+1=", "completion": "2", "label": 3})
    for agent, sentence in (
        ("grpo", "grpo learns from Groups (several answers a row, such as prompt, completions"),
        (
            "dpo",
            "rows of text need two answers a row, such as prompt, chosen, rejected, or prompt,",
        ),
        ("rce", "rows of text need several answers a row"),
    ):
        folder = tmp_path / f"with-{agent}"
        assert (
            main(["train", agent, "Addition-v0", "--data", str(answers), "--out", str(folder)]) == 2
        )
        assert sentence in capsys.readouterr().err and not folder.exists()


def test_a_label_that_is_neither_is_named_with_its_line(tmp_path: Path, stage: Make) -> None:
    row = {"prompt": "12+34=", "completion": "46"}
    file = written(tmp_path / "labels.jsonl", row | {"label": True}, row | {"label": "good"})
    with pytest.raises(
        RequestError,
        match=(
            r"labels.jsonl, line 2: label must be true or 1 \(a good completion\), or false or 0 .*,"
            r" got 'good'"
        ),
    ):
        load(file, stage("dpo", "Addition-v0", num_envs=4).env)
    assert schema_of(row | {"label": 3}).kind == "episodes"  # a column like any other


@pytest.mark.parametrize("labels", [(True, False), (1, 0), (1, False), ("1", "0")])
def test_a_label_may_be_a_number_and_may_judge_a_chat(
    labels: tuple[object, object], tmp_path: Path, stage: Make
) -> None:
    """As TRL and LLaMA-Factory have unpaired preferences; the label judges the last answer."""
    chat = [
        {"role": "user", "content": "1+1="},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "12+34="},
        {"role": "assistant", "content": "46"},
    ]
    turns = [{"from": "human", "value": "12+34="}, {"from": "gpt", "value": "46"}]
    env = stage("dpo", "Addition-v0", num_envs=4).env
    for number, form in enumerate(
        (
            {"prompt": "1+1=212+34=", "completion": "46"},
            {"messages": chat},
            {"conversations": turns},
        )
    ):
        file = written(tmp_path / f"{number}.jsonl", *({**form, "label": one} for one in labels))
        data: Any = load(file, env, kinds=("Pairs", "LabelledEpisodes"))
        assert isinstance(data, LabelledEpisodes) and data[np.array([0, 1])].good.tolist() == [
            True,
            False,
        ]
        assert [env.unwrapped.codec.decode(data.episodes[0].action[:-1])] == ["46"]
        assert data.episodes[0].counts is None


def test_a_number_is_a_label_only_for_an_agent_that_learns_from_labels(tmp_path: Path) -> None:
    rows = [{"prompt": "12+34=", "completion": "46", "label": one} for one in (1, 0)]
    file = str(written(tmp_path / "rows.jsonl", *rows))
    run = rlbook.train("sft", "Addition-v0", data=file, passes=1, eval_every=0)
    assert type(run.data_source()).__name__ == "Episodes"
    run = rlbook.train("kto", "Addition-v0", data=file, passes=1, eval_every=0)
    assert type(run.data_source()).__name__ == "LabelledEpisodes"


def test_labels_and_episodes_must_be_as_many() -> None:
    with pytest.raises(
        ValueError, match="labelled episodes need one label each, and at least one, got 1 for 2"
    ):
        LabelledEpisodes([text(5, 6, 7)] * 2, [True])
