"""The retrieval world: its scores by hand, its exact optimum, its rewards, and the beams that its
searches leave behind."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near

import rlbook
from rlbook.book.experiments.language_models import beams as book
from rlbook.data import Groups, load
from rlbook.errors import RequestError
from rlbook.functional.divergences import k3
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.llm.rewards import Completion, coherence, diversity, downstream, judged
from rlbook.llm.tasks import retrieval as world
from rlbook.llm.tasks.task import build_task
from rlbook.recipes.recipe import Recipe as Stages
from rlbook.recipes.run_recipe import run_recipe
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

TASK = build_task(world.RetrievalTask)
QUERY = TASK.held_out[0]


def test_a_score_is_what_the_formula_says_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates 0a|AK and 9j|JT beside the query 0a|AK: similar by 1 and by 0, and to each other
    by 0."""
    made = np.array([[0] * 4, [9] * 4] + [[5] * 4] * 62, dtype=float)
    monkeypatch.setattr(world, "candidates", lambda: made)
    sigma = lambda evidence: 1 / (1 + math.exp(-evidence)) - 0.5  # noqa: E731 - the formula's σ
    rounded: dict[str, Any] = {"terms": 6, "size": 1.0}
    assert world.gain("0a|AK=", (1, 0)) == near(
        sigma(0.4 * (0 - 0.63) + 0.6 * (1 - 0.63) - 0.3 * (0 - 0.63)), **rounded
    )
    assert world.gain("0a|AK=", (0, 1)) == near(
        sigma(0.4 * (1 - 0.63) + 0.6 * (0 - 0.63) - 0.3 * (0 - 0.63)), **rounded
    )
    assert world.gain("0a|AK=", (0, 0)) == near(sigma(0.37 - 0.3 * 0.37), **rounded), (
        "the same shot twice says the same twice"
    )
    assert (
        world.gain("0a|AK=", (0,)) == near(sigma(0.6 * 0.37), **rounded)
        and world.gain("0a|AK=", ()) == 0.0
    )
    assert (
        world.features("3f|CR=").tolist() == [3, 5, 2, 7]
        and world.write_query([3, 5, 2, 7]) == "3f|CR="
    )
    assert float(world.similarity(np.array([1.0, 2.0]), np.array([4.0, 2.0]))) == near(
        1 - (3 + 0) / 2 / 9, terms=3
    )


def test_the_optimum_is_the_best_of_all_pairs_and_is_reached_by_the_answer() -> None:
    table = world.pair_scores(QUERY)
    rng = np.random.default_rng(0)
    for first, second in rng.integers(64, size=(20, 2)):
        assert table[first, second] == near(world.gain(QUERY, (first, second)), terms=6, size=1.0)
    assert (
        TASK.score(QUERY, TASK.answer(QUERY))
        == near(table.max(), terms=6, size=1.0)
        == TASK.optimum(QUERY)
    )
    mean = {
        split: np.mean([TASK.optimum(prompt) for prompt in TASK.prompts(split)])
        for split in ("train", "held_out")
    }
    assert mean == {"train": near(0.0526, decimals=4), "held_out": near(0.0526, decimals=4)}
    assert np.mean([world.pair_scores(prompt).mean() for prompt in TASK.held_out]) == near(
        0.0, decimals=4
    )


@pytest.mark.parametrize("text", ["", "<17>", "<17><42><03>", "17", "<17>|<42>", "<17><64>"])
def test_what_is_no_choice_is_worth_as_much_as_no_shots(text: str) -> None:
    assert world.parse_choice("<17><42>") == (17, 42)
    assert TASK.score(QUERY, text) == 0.0 if text != "<17><64>" else "<64>" not in TASK.words


def test_the_environment_pays_the_score_and_nothing_else() -> None:
    env = rlbook.make("Retrieval-v0", split="held_out")
    env.reset(seed=0)
    ids = env.unwrapped.codec.encode_answer("<17><42>")
    rewards = [env.step(token)[1] for token in ids]
    assert len(ids) == 3 and rewards == [
        0.0,
        0.0,
        near(world.gain(QUERY, (17, 42)), terms=6, size=1.0),
    ]


def test_the_three_levels_of_reward() -> None:
    written = Completion(QUERY, None, "<17><42>", True, judge=lambda text: TASK.score(QUERY, text))
    query, others = world.features(QUERY), world.candidates()
    by_hand = [
        1 - sum(abs(a - b) for a, b in zip(query, others[i], strict=True)) / 36 for i in (17, 42)
    ]
    assert coherence(written) == near(sum(by_hand) / 2, terms=6, size=1.0)
    assert diversity(written) == near(
        sum(abs(a - b) for a, b in zip(others[17], others[42], strict=True)) / 36, terms=6
    )
    assert judged(written) == near(world.gain(QUERY, (17, 42)), terms=6, size=1.0)
    cut = Completion(QUERY, None, "<17><42>", False, judge=written.judge)
    assert judged(cut) == coherence(cut) == diversity(cut) == 0.0 and downstream(cut) == float(
        world.is_answered(QUERY, ())
    )
    right = np.mean(
        [
            downstream(Completion(prompt, None, TASK.answer(prompt), True))
            for prompt in TASK.held_out
        ]
    )
    plain = np.mean([world.is_answered(prompt, ()) for prompt in TASK.held_out])
    assert plain < right, "the best shots make more queries right"


@pytest.mark.parametrize("sampler", book.SAMPLERS)
def test_a_search_finds_the_best_pairs_that_begin_with_one_of_the_five_best_shots(
    sampler: book.Sampler,
) -> None:
    among = book.pool(QUERY, sampler, np.random.default_rng(0))
    assert len(set(among.tolist())) == 16
    found = book.beam_search(QUERY, among)
    assert [beam.gain for beam in found] == sorted(
        (beam.gain for beam in found), reverse=True
    ) and len(found) == 5
    first = sorted(among.tolist(), key=lambda shot: -world.gain(QUERY, (shot,)))[:5]
    best = max(world.gain(QUERY, (a, b)) for a in first for b in among.tolist() if a != b)
    assert found[0].gain == near(best, terms=6, size=1.0) and {
        beam.shots[0] for beam in found
    } <= set(first)


def test_the_text_sampler_takes_the_likest_by_text() -> None:
    text, _ = world.views(QUERY)
    taken = book.pool(QUERY, "text", np.random.default_rng(0))
    assert text[taken].min() >= np.sort(text)[-16]


def test_the_rows_are_beams_that_a_run_reads(tmp_path: Path) -> None:
    path = tmp_path / "beams.jsonl"
    facts = book.write_beams(path, seed=0, max_samples=4)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert facts["rows"] == len(rows) == 4 and all(
        row["score_list"] == sorted(row["score_list"], reverse=True) for row in rows
    )
    data = load(
        path,
        adapted_vector(
            rlbook.algorithms()["rce"],
            EnvRecipe.from_env("Retrieval-v0"),
            1,
            rlbook.algorithms()["rce"].Config(),
        ),
    )
    assert isinstance(data, Groups)
    batch = data[np.array([0])]
    assert batch.episodes.action.tolist() == rows[0]["id_list"] and batch.returns.tolist() == near(
        rows[0]["score_list"], dtype="float32"
    )
    book.write_answers(tmp_path / "answers.jsonl", beams=path)
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    found = TASK.score(rows[0]["prompt"], answers[0]["completion"])
    assert len(answers) == 20 and found == near(rows[0]["score_list"][0], decimals=6)


def test_levels_are_added_with_their_weights_and_an_unknown_one_is_named() -> None:
    row = next(
        book.beam_rows(
            "mixed", max_samples=1, weights={"beam": 1.0, "diversity": 0.5, "task": 0.01}
        )
    )
    shots = tuple(token - 46 for token in row["id_list"][0][:2])
    parts = book.levels(row["prompt"], shots)  # type: ignore[arg-type]
    assert row["score_list"][0] == near(
        parts["beam"] + 0.5 * parts["diversity"] + 0.01 * parts["task"], decimals=6
    )
    with pytest.raises(
        ValueError,
        match=(
            "a level of the reward must be one of 'beam', 'coherence', 'diversity', 'task', got"
            " 'beem'"
        ),
    ):
        next(book.beam_rows(weights={"beem": 1.0}))
    with pytest.raises(
        ValueError, match="sampler must be one of 'random', 'text', 'image', 'mixed', got 'txt'"
    ):
        next(book.beam_rows("txt"))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="sampler must be one of"):
        book.write_beams(Path("never.jsonl"), sampler="txt")  # type: ignore[arg-type]


def test_the_mean_over_old_samples_of_r_minus_one_minus_log_r_is_the_kl_from_old_to_new() -> None:
    """The erratum: with r = new / old and samples of old it is KL(old ‖ new), by Σ old (r - 1 - log
    r); no KL to a reference."""
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.7, 0.2, 0.1])
    estimate = float((old * k3(old.log(), new.log())).sum())
    forward = 0.5 * math.log(0.5 / 0.7) + 0.3 * math.log(0.3 / 0.2) + 0.2 * math.log(0.2 / 0.1)
    backward = 0.7 * math.log(0.7 / 0.5) + 0.2 * math.log(0.2 / 0.3) + 0.1 * math.log(0.1 / 0.2)
    assert (
        estimate == near(forward, dtype="float32", terms=3, size=1.0)
        and abs(estimate - backward) > 0.005
    )


def test_the_rows_of_a_recipe_can_be_limited_from_the_command_line() -> None:
    found = Stages.find("beams", max_samples=32)
    assert (
        found.stage("beams").arguments["max_samples"] == 32
        and "max_samples" not in found.stage("sft").arguments
    )
    with pytest.raises(RequestError, match="max_samples must be at least 1, got 0"):
        Stages.find("beams", max_samples=0)
    with pytest.raises(RequestError, match="no stage of this recipe has max_samples"):
        Stages.find("rlhf", max_samples=32)


SHORT = {
    "sft.passes": 1,
    "rce.passes": 1,
    "grpo.passes": 2,
    "grpo.eval_every": 1,
    "grpo.eval_episodes": 8,
    "online.steps": 300,
    "online.num_envs": 16,
    "measure.sampled_score.samples": 1,
}


@pytest.mark.slow
def test_the_recipe_goes_from_a_search_to_a_table_and_keeps_the_best_within_the_band(
    tmp_path: Path,
) -> None:
    facts = run_recipe(Stages.find("beams", SHORT, max_samples=32), tmp_path / "beams")
    found = {(row["stage"], row["measure"]) for row in facts["table"]}
    assert all(stage["finished"] for stage in facts["stages"])
    assert {(stage, "sampled_score") for stage in ("sft", "rce", "grpo", "online")} <= found and (
        "grpo",
        "kl_to_sft",
    ) in found
    assert ("sft", "kl_to_sft") not in found
    run = rlbook.load(tmp_path / "beams" / "grpo")
    assert {"kl_coef", "score_temperature", "ratio", "held_out_kl", "advantage_std"} <= run.metrics[
        -1
    ].keys()
    best = rlbook.load(tmp_path / "beams" / "grpo", checkpoint="best")
    reports = [
        report
        for report in run.metrics
        if "eval_return" in report and report["reference_kl"] <= 0.1
    ]
    assert (
        best.steps
        == max(reports, key=lambda report: (report["eval_return"], report["step"]))["step"]
    )
    assert (
        len(book.scores(run, samples=2)) == 512
        and len(book.divergence(run, tmp_path / "beams" / "sft", samples=1)) == 512
    )


@pytest.mark.slow
def test_a_stage_on_recorded_beams_goes_on_bit_for_bit_where_it_was_cut(tmp_path: Path) -> None:
    book.write_beams(tmp_path / "beams.jsonl", max_samples=32)
    settings: dict[str, Any] = {
        "steps": 8,
        "data": tmp_path / "beams.jsonl",
        "batch_size": 4,
        "kl_coef": 0.1,
        "kl_band": (1e-4, 1e-3),
        "held_out": 0.25,
        "score_temperatures": (0.5, 2.0),
        "top": 3,
        "top_share": 0.5,
        "eval_every": 0,
        "env_kwargs": {"model": "new"},
    }
    whole = rlbook.train("grpo", "Retrieval-v0", **settings)

    def stop(run: Run) -> None:
        if run.steps == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("grpo", "Retrieval-v0", out=tmp_path / "run", on_report=stop, **settings)
    resumed = rlbook.load(tmp_path / "run").resume()
    assert [report["kl_coef"] for report in resumed.metrics] == [
        report["kl_coef"] for report in whole.metrics
    ]
    for ours, theirs in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)
