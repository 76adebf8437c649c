"""The inspector's numbers are the agent's own, and looking changes nothing; a page shows whatever a
policy has written as text."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import rounding_bound, widths

import rlbook
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.plots.pages.inspector import page_of, record_of
from rlbook.runs.inspection import Inspector
from rlbook.runs.token_record import FILE, TokenRecord, TokenRecorder, read_record

GRPO: dict[str, Any] = {
    "num_envs": 8,
    "group_size": 4,
    "kl_coef": 0.01,
    "eval_every": 0,
    "learning_rate": 3e-3,
}


def trained(model: str, folder: Path, steps: int = 160, **options: Any) -> rlbook.Run:
    settings = GRPO | {"env_kwargs": {"model": model, "reward": "edit"}} | options
    return rlbook.train("grpo", "Addition-v0", steps=steps, out=folder, **settings)


@pytest.fixture(scope="module")
def run(model: str, tmp_path_factory: pytest.TempPathFactory) -> rlbook.Run:
    return trained(model, tmp_path_factory.mktemp("runs") / "grpo", inspect=2)


def record(run: rlbook.Run) -> TokenRecord:
    found = read_record(run.folder)  # type: ignore[arg-type]
    assert found is not None
    return found


def log_probs(network: Any, prompt: str, ids: list[int]) -> torch.Tensor:
    """log π of every token at each place of a completion: [T, V]."""
    before = character_tokenizer()(prompt)["input_ids"]
    with torch.no_grad():
        return (
            network(torch.tensor([[*before, *ids]])).logits[0, len(before) - 1 : -1].log_softmax(-1)
        )


HALF_A_DIGIT = 5e-6  # relative: the record keeps six digits


def log_prob_bound(run: rlbook.Run, log_prob: torch.Tensor) -> float:
    """How far rounding takes log π, and relatively π: its size through all layers of the model."""
    size = log_prob.abs().max().item()
    return rounding_bound("float32", terms=widths(run.agent.policy.model), size=size)


def test_each_number_is_that_of_the_model_and_of_the_algorithm(run: rlbook.Run) -> None:
    found, agent = record(run), run.agent
    assert found.head["samples"] == 4 and len(found.head["prompts"]) == 2 and len(found.moments) > 2
    episodes = found.moments[-1]["episodes"]
    for place, episode in enumerate(episodes):
        prompt, ids = found.head["prompts"][place // 4]["text"], episode["ids"]
        now, first = (
            log_probs(policy.model, prompt, ids) for policy in (agent.policy, agent.reference)
        )
        chosen = range(len(ids)), ids
        rounding = log_prob_bound(run, now)
        expected = {
            "probability": now.exp()[chosen],
            "reference": first.exp()[chosen],
            "entropy": -(now.exp() * now).sum(-1),
            "kl": (now.exp() * (now - first)).sum(-1),
        }
        for name, values in expected.items():
            np.testing.assert_allclose(
                episode[name], values, rtol=HALF_A_DIGIT, atol=rounding, err_msg=name
            )
        rewards = np.array(
            [other["reward"] for other in episodes[place // 4 * 4 : place // 4 * 4 + 4]]
        )
        spread = rewards.std(ddof=1) + 1e-4
        advantage = (episode["reward"] - rewards.mean()) / spread
        # the rewards have lost half a digit each: two of them in the difference, two in the spread
        np.testing.assert_allclose(
            episode["advantage"],
            np.full(len(ids), advantage),
            rtol=HALF_A_DIGIT,
            atol=4 * HALF_A_DIGIT * np.abs(rewards).max() / spread,
        )
        assert "".join(episode["tokens"]) == character_tokenizer().decode(ids)
    assert found.head["absent"] == {"value": "grpo has no critic with this baseline"}


def test_the_ratio_is_what_updates_have_made_of_a_probability(run: rlbook.Run) -> None:
    found = record(run)
    before, last = found.moments[-2:]
    for place, episode in enumerate(before["episodes"]):
        now = log_probs(
            run.agent.policy.model, found.head["prompts"][place // 4]["text"], episode["ids"]
        )
        expected = (
            now.exp()[range(len(episode["ids"])), episode["ids"]].numpy() / episode["probability"]
        )
        np.testing.assert_allclose(
            last["ratio"][place], expected, rtol=2 * HALF_A_DIGIT + 2 * log_prob_bound(run, now)
        )
    assert any(abs(ratio - 1) > 0.01 for ratios in last["ratio"] for ratio in ratios)


def test_without_an_update_the_ratio_is_1(run: rlbook.Run) -> None:
    inspector = Inspector(run.agent, run.request, 2, lambda folder: rlbook.load(folder).agent)
    moment = inspector.moment(0, None)
    again = inspector.moment(0, moment)
    least = min(p for episode in moment["episodes"] for p in episode["probability"])
    rounding = 2 * log_prob_bound(run, torch.tensor(least).log())
    assert again["episodes"] == moment["episodes"] and moment["again"] < rounding
    np.testing.assert_allclose(
        np.concatenate(again["ratio"]), 1.0, rtol=0, atol=rounding + 2 * HALF_A_DIGIT
    )


def test_a_run_is_the_same_with_and_without(model: str, run: rlbook.Run, tmp_path: Path) -> None:
    plain = trained(model, tmp_path / "plain").folder
    assert plain is not None and run.folder is not None and not (plain / FILE).exists()
    files = [
        path.relative_to(plain)
        for path in plain.rglob("*")
        if path.is_file() and path.name not in ("seconds.json", ".lock")
    ]
    assert Path("metrics.jsonl") in files and Path("config.yaml") in files and len(files) >= 7
    assert filecmp.cmpfiles(plain, run.folder, map(str, files), shallow=False)[1:] == ([], [])


def test_a_resumed_run_goes_on_recording_and_ends_with_the_same_bytes(
    model: str, run: rlbook.Run, tmp_path: Path
) -> None:
    def stop(run: rlbook.Run) -> None:
        if run.steps > 90:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(model, tmp_path / "cut", inspect=2, on_report=stop)
    rlbook.load(tmp_path / "cut").resume()
    assert run.folder is not None
    assert (tmp_path / "cut" / FILE).read_bytes() == (run.folder / FILE).read_bytes()


def test_a_record_is_cut_back_to_the_step_where_the_run_goes_on(tmp_path: Path) -> None:
    """What was recorded at that very step stays: nobody records it again."""
    head: dict[str, Any] = {"prompts": [], "meaning": {}, "samples": 1}
    lines = [head, *({"step": step, "episodes": []} for step in (10, 20, 30))]
    (tmp_path / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    inspector: Any = None  # it is asked when something is recorded
    with TokenRecorder(tmp_path, inspector, head, 20) as recorder:
        assert recorder.last == lines[2]
    found = read_record(tmp_path)
    assert found is not None and [moment["step"] for moment in found.moments] == [10, 20]


def test_a_step_in_the_maze_has_the_same_numbers_as_a_token(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "num_envs": 2,
        "rollout_steps": 8,
        "eval_every": 0,
    }
    run = rlbook.train(
        "ppo",
        "Maze-v0",
        steps=64,
        out=tmp_path / "run",
        inspect=1,
        env_kwargs={"max_episode_steps": 9},
        **options,
    )
    found = record(run)
    episode = found.moments[-1]["episodes"][0]
    rows = [
        int(state.split()[1].rstrip(",")) * 5 + int(state.split()[3]) for state in episode["states"]
    ]
    assert episode["states"][0] == "row 0, column 0" and set(episode["tokens"]) <= {
        "up",
        "down",
        "left",
        "right",
    }
    value, layers = run.agent.value(np.array(rows)), widths(run.agent.policy.critic)
    np.testing.assert_allclose(
        episode["value"],
        value,
        rtol=HALF_A_DIGIT,
        atol=rounding_bound("float32", terms=layers, size=np.abs(value).max()),
    )
    assert len(rows) == 9 and "kl" in found.head["absent"]
    # λ = 1: A + V is the return to come
    rewards = np.diff([*(np.array(episode["advantage"]) + episode["value"])])
    assert set(np.round(-rewards, 3)) <= {-1.0, -5.0, -6.0, 10.0, 9.0}
    assert "rlbook inspect" not in (page := page_of(found)) and "ppo on Maze-v0, seed 0" in page


@pytest.mark.slow
def test_where_nothing_was_recorded_the_checkpoints_are_asked(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train(
        "sft",
        "Addition-v0",
        steps=4,
        eval_every=0,
        env_kwargs={"model": model},
        out=tmp_path / "sft",
        batch_size=4,
    )
    found = record_of(tmp_path / "sft", 1)
    assert list(found.head["meaning"]) == ["probability", "entropy", "ratio"] and {
        "advantage",
        "kl",
        "value",
    } == set(found.head["absent"])
    assert (
        len(found.moments) == 2
        and found.moments[0]["ratio"] is None
        and found.moments[1]["ratio"] is not None
    )
    assert (
        main(
            [
                "inspect",
                str(tmp_path / "sft"),
                "--out",
                str(tmp_path / "page.html"),
                "--prompts",
                "1",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["written"] == [str(tmp_path / "page.html")]
    assert "behavior_cloning has no advantages" in (tmp_path / "page.html").read_text()


def test_what_a_policy_writes_cannot_become_part_of_the_page() -> None:
    evil = "</script><!--<script>alert(1)</script>"
    episode = {
        "reward": 0.0,
        "rewards": {evil: 1.0},
        "tokens": [evil, "&"],
        "ids": [1, 2],
        "probability": [0.5, 0.1],
    }
    head = {
        "algorithm": evil,
        "env": "E",
        "seed": 0,
        "samples": 1,
        "prompts": [{"text": evil, "answer": evil}],
        "meaning": {"probability": "π"},
        "absent": {},
    }
    page = page_of(
        TokenRecord(head, [{"step": 0, "again": 0.0, "ratio": None, "episodes": [episode]}])
    )
    assert page.count("<script") == page.count("</script") == 1 and "<!--" not in page
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "") and "https:" not in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            lambda folder: rlbook.train("ppo", "Maze-v0", steps=8, inspect=2),
            "there is none; give out",
        ),
        (
            lambda folder: rlbook.train("q_learning", "Maze-v0", steps=8, inspect=2, out=folder),
            "q_learning has none",
        ),
        (
            lambda folder: rlbook.train("ppo", "Pendulum-v1", steps=8, inspect=2, out=folder),
            "needs discrete actions",
        ),
        (lambda folder: rlbook.plots.inspect(folder, "page.txt"), "written as .html"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_writes_nothing(
    asked: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=said):
        asked(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_more_prompts_than_were_recorded_are_refused(run: rlbook.Run) -> None:
    assert len(record_of(run.folder, 1).moments[0]["episodes"]) == 4  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="prompts must be at most 2"):
        record_of(run.folder, 3)  # type: ignore[arg-type]
