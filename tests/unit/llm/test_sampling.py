"""How tokens are chosen in evaluation and generation: transformers' numbers, by hand, and through
`rlbook.evaluate`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near

import rlbook
from rlbook.cli.main import main
from rlbook.llm.generation import generate as generation
from rlbook.llm.generation.generate import _is_stopped, write
from rlbook.llm.generation.sampling import (
    NOT_THINKING,
    THINKING,
    Sampling,
    SamplingPolicy,
    sampling_policy,
    seen_tokens,
)
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.starting import starting_model
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_codec
from rlbook.runs.request import Request
from rlbook.runs.run import Run


def transformers_scores(
    logits: torch.Tensor, tokens: torch.Tensor, sampling: Sampling
) -> torch.Tensor:
    """What transformers' processors make of the logits, in the order of its `generate`."""
    from transformers.generation import logits_process as theirs

    processors: list[Any] = []
    if sampling.repetition_penalty != 1.0:
        processors.append(
            theirs.RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty))
        )
    if sampling.temperature != 1.0:
        processors.append(theirs.TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        processors.append(theirs.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        processors.append(theirs.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        processors.append(theirs.MinPLogitsWarper(sampling.min_p))
    return theirs.LogitsProcessorList(processors)(tokens, logits.clone())


def test_every_setting_is_equal_to_transformers_on_random_logits() -> None:
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    for trial in range(400):
        rows, vocabulary, length = (
            int(rng.integers(1, 5)),
            int(rng.integers(1, 60)),
            int(rng.integers(1, 9)),
        )
        logits = torch.randn(rows, vocabulary, generator=generator) * float(
            rng.choice([0.1, 1.0, 5.0, 30.0])
        )
        if trial % 5 == 0:
            logits = logits.round()  # ties
        tokens = torch.randint(vocabulary, (rows, length), generator=generator)
        chosen = {
            "temperature": float(rng.choice([0.1, 0.6, 0.7, 1.0, 1.7])),
            "top_k": int(rng.choice([0, 1, 3, 20, 100])),
            "top_p": float(rng.choice([0.01, 0.5, 0.8, 0.95, 1.0])),
            "min_p": float(rng.choice([0.0, 0.05, 0.3, 1.0])),
            "repetition_penalty": float(rng.choice([0.8, 1.0, 1.3])),
        }
        sampling = Sampling(**chosen)
        ours = sampling.scores(
            logits, seen_tokens(tokens.numpy(), np.full(rows, length), vocabulary)
        )
        assert torch.equal(ours, transformers_scores(logits, tokens, sampling)), chosen


def test_each_setting_by_hand() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[None]
    shares = {
        Sampling(): [0.5, 0.3, 0.15, 0.05],
        Sampling(temperature=0.5): [
            0.25 / 0.365,
            0.09 / 0.365,
            0.0225 / 0.365,
            0.0025 / 0.365,
        ],  # the squares, over their sum .365
        Sampling(top_k=2): [0.5 / 0.8, 0.3 / 0.8, 0, 0],
        Sampling(top_p=0.6): [0.5 / 0.8, 0.3 / 0.8, 0, 0],  # .5 is not yet .6, .5 + .3 is
        Sampling(top_p=1e-9): [1.0, 0, 0, 0],  # one at least
        Sampling(min_p=0.25): [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0],  # a quarter of .5 is .125
    }
    for sampling, wanted in shares.items():
        # logits of up to 3 / 0.5
        assert_near(sampling.scores(logits).softmax(-1)[0], wanted, terms=4, size=6.0)
    seen = torch.tensor([[True, False, True]])
    assert Sampling(repetition_penalty=2.0).scores(
        torch.tensor([[4.0, 4.0, -1.0]]), seen
    ).tolist() == [[2.0, 4.0, -2.0]]


def test_padding_does_not_count_as_seen() -> None:
    """Texts of 2, 0 and 3 tokens in rows of 3: what stands behind a text, token 0, is marked only
    where the text itself has it."""
    tokens = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 2]])
    marked = [np.flatnonzero(row).tolist() for row in seen_tokens(tokens, np.array([2, 0, 3]), 5)]
    assert marked == [[1, 3], [], [0, 2]]


def test_tokens_come_as_often_as_their_probability_says_and_never_where_it_is_zero() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(20_000, 4)
    token, log_prob = Sampling(top_k=2).draw(logits, np.random.default_rng(0))
    share = (token == 0).mean()
    # four standard errors
    assert set(token) == {0, 1} and abs(share - 0.625) < 4 * (0.625 * 0.375 / 20_000) ** 0.5
    assert_near(np.exp(log_prob), np.where(token == 0, 0.625, 0.375), terms=2)
    assert (Sampling(temperature=0.0).draw(logits, np.random.default_rng(0))[0] == 0).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": -1.0}, "temperature must be a number of at least 0, got -1.0"),
        ({"top_p": 0.0}, r"top_p must be a number in \(0, 1\], got 0.0"),
        ({"top_k": -1}, "top_k must be an integer of at least 0, got -1"),
        ({"min_p": 1.5}, r"min_p must be a number in \[0, 1\], got 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be a number above 0, got 0.0"),
        ({"stop": ("",)}, "stop must be a tuple of texts that are not empty"),
    ],
)
def test_a_value_out_of_its_range_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Sampling(**settings)


def test_the_advised_settings_have_their_numbers() -> None:
    assert (THINKING.temperature, THINKING.top_p, THINKING.top_k, THINKING.min_p) == (
        0.6,
        0.95,
        20,
        0.0,
    )
    assert (
        NOT_THINKING.temperature,
        NOT_THINKING.top_p,
        NOT_THINKING.top_k,
        NOT_THINKING.min_p,
    ) == (0.7, 0.8, 20, 0.0)
    assert str(THINKING) == "temperature 0.6, top_p 0.95, top_k 20"


@pytest.fixture(scope="module")
def adding() -> LanguageModelPolicy:
    return LanguageModelPolicy(starting_model(AdditionTask(), None, np.random.default_rng(0)))


@pytest.mark.parametrize("penalty", [1.2, 4.0])
def test_acting_and_generating_write_the_same_tokens(
    adding: LanguageModelPolicy, penalty: float
) -> None:
    """Also where a token is made less likely by one that was written before it."""
    sampling = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=penalty)
    env: Any = rlbook.make("Addition-v0", split="held_out").unwrapped
    for prompt in range(8):
        policy, noise = SamplingPolicy(adding, sampling), np.random.default_rng(3)
        obs, _ = env.reset(options={"prompt_id": prompt})
        state, over = policy.initial_state(), False
        while not over:
            token, _ = policy.act(
                {"tokens": obs["tokens"][None], "length": np.array([obs["length"]])}, noise, state
            )
            obs, _, terminated, truncated, _ = env.step(token[0])
            over = terminated or truncated
        written = write(
            adding,
            env.codec,
            [env.rules.texts[prompt]],
            sampling=sampling,
            max_new_tokens=env.rules.max_new_tokens,
            seed=3,
        )
        assert env.codec.decode(env.rows.completion(0)).removesuffix("<eos>") == written[0]


def test_a_completion_ends_at_a_stop_text_and_is_cut_before_it(adding: LanguageModelPolicy) -> None:
    codec, prompts = character_codec(), ["12+34=", "10+20="]
    whole = write(adding, codec, prompts, seed=None)
    stop = whole[0][1]
    cut = write(adding, codec, prompts, seed=None, sampling=Sampling(stop=(stop, "?")))
    assert cut == [text.partition(stop)[0] for text in whole] and cut[0] == whole[0][:1]
    both = write(
        adding, codec, prompts[:1], seed=None, sampling=Sampling(stop=(stop, whole[0][:2]))
    )
    assert both == [""], "two that end together: before the longer one, which begins first"


def test_every_end_token_ends_a_completion_and_is_no_part_of_it(
    adding: LanguageModelPolicy,
) -> None:
    codec, prompts = character_codec(), ["12+34=", "10+20="]
    whole = write(adding, codec, prompts, seed=None)
    end = whole[0][1]
    several = dataclasses.replace(codec, ends=(codec.eos, codec.encode_answer(end)[0]))
    cut = write(adding, several, prompts, seed=None)
    assert cut == [text.partition(end)[0] for text in whole] and cut[0] == whole[0][:1]


def test_a_stop_text_may_lie_within_a_token() -> None:
    """The word "1+2" is one token, which neither begins nor ends with the stop text; a row that
    isn't live is not looked at."""
    codec = character_codec(words=("1+2",))
    written = np.array([codec.encode_answer(text)[:2] for text in ("31+2", "312", "31+2")])
    assert _is_stopped(written, np.array([True, True, False]), ("+",), codec).tolist() == [
        True,
        False,
        False,
    ]


def test_a_rows_noise_is_the_same_whatever_other_rows_have_left(
    adding: LanguageModelPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, prompts = character_codec(), ["1+2=", "12+34=", "55+27=", "90+8="]
    asked: dict[str, Any] = {"max_new_tokens": 6, "sampling": Sampling(temperature=3.0)}
    written = []
    for leaves in (False, True):
        monkeypatch.setattr(generation, "is_worth_leaving", lambda *_, leaves=leaves: leaves)
        written.append(write(adding, codec, prompts, **asked))
    assert written[0] == written[1] and len({len(text) for text in written[0]}) > 1


def test_the_seed_decides_what_is_written(adding: LanguageModelPolicy) -> None:
    codec, prompts, hot = character_codec(), ["12+34="] * 20, Sampling(temperature=2.0)
    first, same, other = (
        write(adding, codec, prompts, sampling=hot, seed=seed) for seed in (0, 0, 1)
    )
    assert first == same != other


def test_tokens_of_a_narrowed_distribution_are_not_trained_on(adding: LanguageModelPolicy) -> None:
    policy: Any = sampling_policy(adding, {"top_k": 1})
    with pytest.raises(
        ValueError,
        match=(
            r"drawn by top_k 1 cannot be trained on: .* the ratio of new to old policy would not"
            r" be 1"
        ),
    ):
        policy.batch(None)
    with pytest.raises(
        rlbook.RequestError,
        match=(
            r"grpo has no hyper-parameter 'top_p': .* the ratio of new to old policy would not be 1"
        ),
    ):
        Request.build("grpo", "Addition-v0", hyperparameters={"top_p": 0.9})


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(Request.build("grpo", "Addition-v0"))


def test_an_evaluation_samples_as_it_is_asked_to(run: Run) -> None:
    before = {name: value.clone() for name, value in run.agent.policy.state_dict().items()}  # type: ignore[attr-defined]
    greedy, likeliest, cold, hot, again = (
        rlbook.evaluate(run, episodes=128, **options).returns
        for options in (
            {},
            {"top_k": 1},
            {"temperature": 0.01},
            {"temperature": 3.0},
            {"temperature": 3.0},
        )
    )
    assert (
        (greedy == likeliest).all()
        and (greedy == cold).mean() > 0.98
        and hot.mean() < greedy.mean() - 0.1
    )
    assert (hot == again).all() and (
        rlbook.evaluate(run, episodes=128, temperature=0.0).returns == greedy
    ).all()
    assert all(
        torch.equal(value, before[name]) for name, value in run.agent.policy.state_dict().items()
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "sentence"),
    [
        (
            "q_learning",
            "Maze-v0",
            {"top_k": 2},
            "top_k sets how a language model samples tokens, but this agent .q_learning. has none",
        ),
        (
            "ppo",
            "CartPole-v1",
            {"temperature": 0.5},
            "temperature sets how a language model samples tokens, but this agent .ppo. has none",
        ),
        ("grpo", "Addition-v0", {"top_p": 2.0}, r"top_p must be a number in \(0, 1\], got 2.0"),
        (
            "grpo",
            "Addition-v0",
            {"top_q": 2.0},
            "evaluate has no option 'top_q'; did you mean 'top_p'",
        ),
    ],
)
def test_elsewhere_it_is_refused_in_one_sentence(
    algorithm: str, env: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(rlbook.RequestError, match=sentence):
        rlbook.evaluate(Run(Request.build(algorithm, env)), episodes=1, **options)


def test_the_command_takes_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "run")
    assert (
        main(
            [
                "train",
                "grpo",
                "Addition-v0",
                "--steps",
                "1",
                "--num-envs",
                "4",
                "--eval-every",
                "0",
                "--out",
                folder,
            ]
        )
        == 0
    )
    capsys.readouterr()
    words = [
        "evaluate",
        folder,
        "--episodes",
        "16",
        "--temperature",
        "0.6",
        "--top-p",
        "0.95",
        "--top-k",
        "20",
        "--min-p",
        "0",
    ]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sampling"] == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
    }
    assert main([*words, "--repetition-penalty", "1.1"]) == 0
    assert (
        "sampled by temperature 0.6, top_p 0.95, min_p 0, repetition_penalty 1.1, top_k 20"
        in capsys.readouterr().out
    )
    for wrong, sentence in (
        ("--top-k 1.5", "--top-k must be a whole number"),
        ("--top-p x", "--top-p must be a number, got 'x'"),
    ):
        assert main(["evaluate", folder, *wrong.split()]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["train", "grpo", "Addition-v0", "--top-p", "0.9"]) == 2
    assert "the ratio of new to old policy would not be 1" in capsys.readouterr().err


def test_the_pages_bands_of_temperature_are_computed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "chapters" / "sampling.md").read_text(
        encoding="utf-8"
    )
    rows = re.findall(r"\| ([\d.]+) \| ([\d., ]+) \| [\d.]+ % \|", page)
    assert [row[0] for row in rows] == ["0.2", "0.5", "0.8", "1.0"]
    for temperature, shown in rows:
        found = (
            Sampling(temperature=float(temperature))
            .scores(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
            .softmax(-1)[0]
        )
        assert [f"{share:.3f}" for share in found.tolist()] == shown.split(", ")
