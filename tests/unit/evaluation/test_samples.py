"""`rlbook evaluate --samples K`: what is written is judged as it was, nothing in the agent changes,
and two runs are compared by prompt."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near, widths

import rlbook
from rlbook.cli.evaluate import _examples
from rlbook.cli.main import main
from rlbook.evaluation.episodes import evaluate_before, evaluate_samples
from rlbook.evaluation.samples import SampledEvaluation, difference
from rlbook.functional.intervals import t_interval
from rlbook.functional.post_training.success_rates import pass_at_k
from rlbook.llm.environments.token_env import TokenEnv
from rlbook.llm.models.likelihood import log_likelihood
from rlbook.llm.models.sources import small_llama
from rlbook.llm.rewards import Completion, given_answer
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.state_encoding import encode

LOGITS = 8.5  # the size of the shipped model's logits
TWO = {"reward": {"correct": 1.0, "edit": 0.5}}


def begun(algorithm: str = "grpo", env: str = "Addition-v0", **options: Any) -> Run:
    """A run that has not learned anything yet; the built-in model has, before it shipped."""
    return Run(Request.build(algorithm, env, **options))


@pytest.fixture(scope="module")
def run() -> Run:
    return begun(env_kwargs=TWO)


@pytest.fixture(scope="module")
def result(run: Run) -> SampledEvaluation:
    return evaluate_samples(run, 4, prompts=24, seed=1)


def test_every_measure_is_that_of_the_completions(result: SampledEvaluation) -> None:
    found = result.measures()
    right = np.array(
        [
            [sample.completion == sample.wanted and sample.ended for sample in row]
            for row in result.samples
        ]
    )
    assert result.verifier == "correct" and right.shape == (24, 4) and 0 < right.mean() < 1
    assert found["pass@1"].value == near(right.mean(), terms=right.size)
    assert found["pass@2"].value == near(
        pass_at_k(torch.tensor(right.sum(1)), 4, 2).mean().item(), terms=right.size
    )
    assert found["pass@4"].value == near(right.any(1).mean(), terms=right.size)
    assert found["reward/correct"].value == near(right.mean(), terms=right.size)
    assert right.mean() < found["reward/edit"].value < 1  # digits that are right count too
    length = np.mean([sample.tokens for row in result.samples for sample in row])
    assert found["length"].value == near(length, terms=right.size)
    assert found["truncated"].value == np.mean(
        [not sample.ended for row in result.samples for sample in row]
    )
    greedy = [sample.right for sample in result.greedy]
    assert found["right, greedy"].value == np.mean(greedy)
    assert all(
        sample.rewards["reward/correct"] == float(bool(sample.right))
        for row in result.samples
        for sample in row
    )


def test_what_does_not_fit_beside_each_other_is_written_in_turn(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of seven completions, the last one of one: each prompt has its own three, and pass@3
    although 3 is no power of 2."""
    monkeypatch.setattr("rlbook.evaluation.completions.ROWS", 7)
    found = evaluate_samples(run, 3, prompts=5, seed=1)
    prompts = [sample.prompt for sample in found.greedy]
    assert len(set(prompts)) == 5 and [
        [sample.prompt for sample in row] for row in found.samples
    ] == [[prompt] * 3 for prompt in prompts]
    right = np.array([[bool(sample.right) for sample in row] for row in found.samples])
    measures = found.measures()
    assert {"pass@1", "pass@2", "pass@3", "maj@2", "maj@3", "ties among 3"} <= measures.keys()
    assert measures["pass@3"].value == near(right.any(1).mean(), terms=5)


def test_the_intervals_are_over_prompts(result: SampledEvaluation) -> None:
    means = np.array([np.mean([sample.total for sample in row]) for row in result.samples])
    assert result.confidence_interval == near(t_interval(means), terms=2 * len(means))
    assert result.measures()["return"][1:] == near(t_interval(means), terms=2 * len(means))
    assert result.standard_error == near(means.std(ddof=1) / math.sqrt(24), terms=2 * len(means))
    assert "96 episodes of 24 prompts" in repr(result)
    # 3 ± t(.975, 3) · s / 2, s² = (4 + 1 + 1 + 4) / 3
    low, high = t_interval(np.array([1.0, 2.0, 4.0, 5.0]))
    assert (high - low) / 2 / (math.sqrt(10 / 3) / 2) == near(3.182446, terms=8, decimals=6) and (
        high + low
    ) / 2 == 3.0


def test_perplexity_is_that_of_the_right_answers(run: Run, result: SampledEvaluation) -> None:
    """e to the mean of -log p over all tokens of all answers, computed here prompt by prompt from
    the policy's distributions."""
    env: Any = run.request.recipe.for_evaluation().make().unwrapped
    total = tokens = 0.0
    for prompt, answer in env.answers()[:24]:
        for place, token in enumerate(answer):
            text = np.concatenate([prompt, answer[:place]])
            obs = {"tokens": torch.from_numpy(text)[None], "length": torch.tensor([len(text)])}
            total -= run.agent.policy.distribution(obs).log_prob(torch.tensor([token])).item()
            tokens += 1
    found = result.measures()["perplexity"]
    perplexity = math.exp(total / tokens)  # its rounding is its log's, times itself
    assert found.value == near(
        perplexity, dtype="float32", terms=widths(run.agent.policy), size=LOGITS * perplexity
    )
    assert 1.0 < found.low < found.value < found.high


def test_likelihoods_do_not_depend_on_what_stands_beside(run: Run) -> None:
    env: Any = run.request.recipe.for_evaluation().make().unwrapped
    pairs = env.answers()[:5]
    # up to 4 tokens of an answer
    alone, terms = (
        log_likelihood(run.agent.policy, pairs, rows=2),
        4 * widths(run.agent.policy),
    )
    assert log_likelihood(run.agent.policy, pairs) == near(
        alone, dtype="float32", terms=terms, size=LOGITS
    )


def test_the_same_seed_writes_the_same_and_nothing_in_the_agent_changes(
    run: Run, result: SampledEvaluation
) -> None:
    before = encode(run.agent.state_dict())
    again = evaluate_samples(run, 4, prompts=24, seed=1)
    after = encode(run.agent.state_dict())
    assert again.samples == result.samples and again.measures() == result.measures()
    assert after[0] == before[0] and all(
        np.array_equal(after[1][name], value) for name, value in before[1].items()
    )
    other = evaluate_samples(run, 4, prompts=24, seed=2)
    assert other.samples != result.samples and other.greedy == result.greedy


def test_sampling_parameters_are_honoured(run: Run, result: SampledEvaluation) -> None:
    greedy = evaluate_samples(run, 2, prompts=24, sampling={"temperature": 0.0})
    assert [row[0].completion for row in greedy.samples] == [
        sample.completion for sample in result.greedy
    ]
    found = greedy.measures()
    assert found["pass@1"] == found["pass@2"] == found["maj@2"] == found["right, greedy"]


def test_a_run_beside_itself_differs_in_nothing(run: Run, result: SampledEvaluation) -> None:
    found = difference(evaluate_before(run, "start", 4, prompts=24, seed=1), result)
    assert all(change == (0.0, 0.0, 0.0) for change in found.difference.values())
    assert found.gained == found.lost == []
    assert set(found.win_rates.values()) == {(0.5, 0.5, 0.5)} and "return" in found.win_rates


@pytest.mark.slow
def test_before_may_be_the_folder_of_a_model_or_of_a_run(tmp_path: Path) -> None:
    """Both hold the weights that the run begins with, so nothing differs; the folder's own
    tokenizer makes the ids."""
    model, folder = tmp_path / "model", tmp_path / "run"
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(model)
    character_tokenizer().save_pretrained(model)
    run = begun(model=str(model))
    run.claim(folder)
    after = evaluate_samples(run, 2, prompts=5)
    for before in (model, folder):
        found = difference(evaluate_before(run, before, 2, prompts=5), after)
        assert (
            all(change.value == 0.0 for change in found.difference.values())
            and "perplexity" in found.difference
        )
    with pytest.raises(rlbook.RequestError, match="nowhere"):
        evaluate_before(run, "nowhere", 2)


def test_a_difference_is_paired_by_prompt(run: Run, result: SampledEvaluation) -> None:
    """Against a model that knows nothing: what both were given is the same, and the interval is
    that of the prompts' differences."""
    before = evaluate_samples(begun(model="new", env_kwargs=TWO), 4, prompts=24, seed=1)
    found = difference(before, result)
    changes = result.prompt_means()["pass@1"] - before.prompt_means()["pass@1"]
    assert found.difference["pass@1"][1:] == near(
        t_interval(changes), terms=2 * len(changes), size=1.0
    )
    assert found.difference["perplexity"].high < 0 and found.lost == []
    assert len(found.gained) == sum(bool(sample.right) for sample in result.greedy)
    with pytest.raises(rlbook.RequestError, match="used different prompts"):
        difference(before, evaluate_samples(run, 1, prompts=3))


def test_a_reward_model_is_measured_beside_what_it_learned_from() -> None:
    model: Any = begun("reward_model", passes=1)
    torch.nn.init.ones_(model.agent.network.score.bias)  # a head that is 0 at first says nothing
    agent: Any = begun("ppo", reward_model=model.agent, num_envs=2)
    found = evaluate_samples(agent, 2, prompts=3)
    assert {"reward/model", "reward/correct"} <= set(found.measures())
    assert all(sample.rewards["reward/model"] == 1.0 for row in found.samples for sample in row)


def test_an_agent_without_a_language_model_is_sampled_as_it_explores() -> None:
    found = evaluate_samples(begun("dqn"), 2, prompts=3).measures()
    assert found["pass@1"].value <= 1 and "perplexity" not in found


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"samples": 0}, "samples must be"),
        ({"samples": 2, "explore": True}, "explore has no effect with samples"),
        ({"samples": 2, "temperature": -1.0}, "temperature"),
        ({"samples": 2, "tempreature": 1.0}, "did you mean 'temperature'"),
    ],
)
def test_bad_input_is_refused(run: Run, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rlbook.RequestError, match=sentence):
        rlbook.evaluate(run, **asked)


def test_a_maze_has_no_prompts() -> None:
    with pytest.raises(rlbook.RequestError, match=r"needs a token environment; Maze-v0 is none"):
        rlbook.evaluate(begun("q_learning", "Maze-v0"), samples=4)


def test_an_environment_without_an_id_has_no_held_out_prompts(run: Run) -> None:
    with pytest.raises(rlbook.RequestError, match="given by its id"):
        evaluate_samples(run.agent, 2, TokenEnv(AdditionTask()))


def completion(text: str, ended: bool = True) -> Completion:
    return Completion("", "1", text, ended)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("46", "46"),
        (" 046 ", "46"),
        ("1,000.0", "1000"),
        (r"so it is \boxed{\frac{1}{2}}.", "1/2"),
        ("<answer>0.5</answer>", "1/2"),
        ("<think>3,9</think>9", "9"),
        ("<think>3,9", None),
        ("", None),
        ("2*3 + 7", "2*3+7"),
        ("abc", "abc"),
    ],
)
def test_equal_answers_are_equal_texts(text: str, answer: str | None) -> None:
    assert given_answer(completion(text)) == answer
    assert given_answer(completion(text, ended=False)) is None


def test_the_last_number_may_be_the_answer() -> None:
    assert given_answer(completion("3 and 4 make 7."), last=True) == "7"
    assert given_answer(completion("nothing"), last=True) is None


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "run", tmp_path / "completions.jsonl"
    rlbook.train(
        "grpo", "Addition-v0", steps=1, num_envs=4, eval_every=0, eval_episodes=1, out=folder
    )
    words = [
        "evaluate",
        str(folder),
        "--samples",
        "3",
        "--episodes",
        "4",
        "--out",
        str(out),
        "--compare",
        "start",
    ]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["measures"]["pass@2"]) == {"value", "low", "high"} and facts["prompts"] == 4
    assert set(facts["compare"]["difference"]) == set(facts["measures"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 4 * (3 + 1) and [row["sample"] for row in rows[:4]] == [0, 1, 2, "greedy"]
    mean = np.mean([row["right"] for row in rows if row["sample"] != "greedy"])
    assert mean == near(facts["measures"]["pass@1"]["value"], terms=12)
    assert set(rows[0]) >= {
        "prompt",
        "completion",
        "tokens",
        "rewards",
        "answer",
        "right",
        "wanted",
        "prompt_id",
    }
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "wrong before, right now" in shown and "Student's t" in shown
    assert main(["evaluate", str(folder), "--choices", "2", "--episodes", "3"]) == 0
    assert "3 held-out prompts, 2 choices each; by chance 0.5\n" in capsys.readouterr().out
    assert main(["evaluate", str(folder), "--out", str(out)]) == 2
    assert "--samples" in capsys.readouterr().err
    assert (
        main(
            [
                "evaluate",
                str(folder),
                "--samples",
                "2",
                "--out",
                str(tmp_path / "no" / "file.jsonl"),
            ]
        )
        == 2
    )
    assert "does not exist" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "--samples", "2", "--out", str(tmp_path)]) == 2
    assert "is a folder; name a file" in capsys.readouterr().err


def test_an_example_shows_what_was_written_before_and_what_is_written_now() -> None:
    wrong, right = (SimpleNamespace(prompt="1+1=", completion=text) for text in ("3", "2"))
    found: Any = SimpleNamespace(gained=[(wrong, right)], lost=[])
    assert _examples(found)[1:] == [
        "wrong before, right now: 1 prompt",
        "  1+1= '3' -> '2'",
        "",
        "right before, wrong now: 0 prompts",
    ]


def test_win_rates_by_hand() -> None:
    from rlbook.evaluation.samples import win_rate

    # prompt 1: of 2 · 2 pairs 3 won and 1 tied; prompt 2: all lost; prompt 3: all tied
    before = np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    after = np.array([[1.0, 2.0], [0.0, 0.5], [0.5, 0.5]])
    found = win_rate(before, after)
    assert found.value == near(((3 + 1 / 2) / 4 + 0 + 1 / 2) / 3, dtype="float64", terms=12)
    assert 0.0 <= found.low < found.value < found.high <= 1.0
    turned = win_rate(after, before)
    assert found.value + turned.value == near(1.0, dtype="float64", terms=24)
    assert win_rate(before, after[:, :1]).value == near(
        (3 / 4 + 0 + 1 / 2) / 3, dtype="float64", terms=9
    )  # 1 beats 0 and ties with 1
    with pytest.raises(
        ValueError, match=r"must be \[P, K\] and \[P, L\], got \[3, 2\] and \[2, 2\]"
    ):
        win_rate(before, after[:2])


def test_the_interval_of_a_win_rate_covers_it_as_often_as_it_says() -> None:
    from rlbook.evaluation.samples import win_rate

    rng, covered = np.random.default_rng(0), 0
    for trial in range(200):  # scores N(0, 1) against N(0.5, 1): the rate is Φ(0.5 / √2) = 0.638
        found = win_rate(rng.normal(0, 1, (60, 1)), rng.normal(0.5, 1, (60, 1)), seed=trial)
        covered += found.low <= 0.638 <= found.high
    # 200 tries of 0.95, less four standard deviations and the percentile bootstrap's lack at P = 60
    assert covered >= 200 * (0.95 - 4 * (0.95 * 0.05 / 200) ** 0.5 - 0.02)
