"""Environments whose tokens are learned from their texts: what they show, what a run keeps of it,
and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.llm.tokenizers.trained_codec import KINDS
from rlbook.runs.exporting import export
from rlbook.runs.storage.files import CheckpointError

SHORT: dict[str, Any] = {"steps": 4, "batch_size": 16, "eval_every": 0, "seed": 0}
BPE = {"tokenizer": "bpe", "vocab_size": 60}


def rows(path: Path, animals: str) -> Path:
    lines = [
        {"prompt": f"the {animal} says", "completion": f" {sound} to the {animal}"}
        for animal, sound in (pair.split(":") for pair in animals.split())
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    return rows(
        tmp_path / "animals.jsonl", "cow:moo cat:meow dog:woof duck:quack sheep:baa hen:cluck"
    )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "env_id",
    [
        "Addition-v0",
        "Reasoning-v0",
        pytest.param("TaggedCopy-v0", marks=pytest.mark.slow),
        pytest.param("Chat-v0", marks=pytest.mark.slow),
    ],
)
def test_the_right_answer_pays_in_any_tokens(env_id: str, kind: str) -> None:
    env: Any = rlbook.make(env_id, tokenizer=kind).unwrapped
    for prompt in (0, 5):
        obs, _ = env.reset(seed=0, options={"prompt_id": prompt})
        assert env.codec.decode(obs["tokens"][1 : obs["length"]]) == env.rules.texts[prompt]
        reward, terminated = 0.0, False
        for token in env.codec.encode_answer(env.rules.demonstrations[prompt]):
            _, reward, terminated, truncated, _ = env.step(token)
            assert not truncated
        assert (reward, terminated) == (1.0, True)


def test_a_bpe_vocabulary_is_as_large_as_asked_and_makes_texts_shorter() -> None:
    plain: Any = rlbook.make("Reverse-v0").unwrapped
    merged: Any = rlbook.make("Reverse-v0", tokenizer="bpe", vocab_size=80).unwrapped
    assert merged.codec.vocabulary_size == merged.action_space.n == 80
    assert merged.rules.prompt_lengths.mean() < 0.9 * plain.rules.prompt_lengths.mean()
    few: Any = rlbook.make("Addition-v0", tokenizer="bpe", vocab_size=512).unwrapped
    assert few.codec.vocabulary_size < 512  # two digits have 100 pairs, three some more


def test_the_limit_holds_the_demonstration_with_the_most_tokens() -> None:
    """All answers have six letters, and as many tokens as their letters happen to make."""
    env: Any = rlbook.make("Reverse-v0", tokenizer="bpe", vocab_size=80).unwrapped
    task = env.rules.task
    most = max(len(env.codec.encode_answer(task.answer(prompt))) for prompt in task.all_prompts())
    assert env.rules.max_new_tokens == most + 1


@pytest.mark.thorough
def test_both_splits_and_a_mixture_s_parts_have_the_same_tokens() -> None:
    made: list[Any] = [
        rlbook.make("Mixture-v0", tokenizer="bpe", vocab_size=60, **more).unwrapped
        for more in ({}, {"split": "held_out"}, {"only": "reasoning"})
    ]
    assert len({env.codec.backend.to_str() for env in made}) == 1


def test_words_that_are_lost_are_shown_as_unknown_in_prompts(animals: Path) -> None:
    env: Any = rlbook.make("Chat-v0", data=str(animals), tokenizer="word").unwrapped
    ids = env.codec.encode_prompts(["the goat says"])[0]
    assert env.codec.decode(ids) == "<bos>the <unk> says"


def test_a_row_whose_answer_has_a_lost_word_is_refused_by_its_line(
    animals: Path, tmp_path: Path
) -> None:
    other = rows(tmp_path / "other.jsonl", "cow:moo cat:purr")
    with pytest.raises(RequestError, match=r"other\.jsonl.*2.*no token for the word 'purr'"):
        rlbook.train(
            "sft",
            "Chat-v0",
            data=str(other),
            env_kwargs={"data": str(animals), "tokenizer": "word"},
            **SHORT,
        )
    with pytest.raises(RequestError, match=r"animals\.jsonl.*no token for the word"):
        rlbook.make("Chat-v0", data=str(animals), tokenizer="word", vocab_size=9)


def test_own_data_trains_its_tokenizer(animals: Path) -> None:
    env: Any = rlbook.make("Chat-v0", data=str(animals), **BPE).unwrapped
    assert env.codec.vocabulary_size == 60
    tokens = env.codec.backend.encode("the dog says", add_special_tokens=False).tokens
    assert tokens[0] == "the" and "".join(tokens) == "the dog says"


def test_a_run_keeps_its_tokenizer_when_the_data_changes(animals: Path, tmp_path: Path) -> None:
    """What an id stands for is part of what was learned: rows that are added must not change it."""
    folder = tmp_path / "run"
    run: Any = rlbook.train(
        "sft", "Chat-v0", out=folder, env_kwargs={"data": str(animals), **BPE}, **SHORT
    )
    before = run.agent.codec.backend.to_str()
    assert (folder / "tokenizer.json").read_text() == before
    rows(animals, "mule:heehaw bee:buzz owl:hoo crow:caw frog:croak pig:oink")
    with pytest.raises(RequestError, match="no token for"):  # z and k were in no row
        rlbook.load(folder)
    rows(animals, "cow:moo ham:ham ham:ham ham:ham ham:ham ham:meow")
    changed: Any = rlbook.make("Chat-v0", data=str(animals), **BPE).unwrapped
    loaded: Any = rlbook.load(folder)
    assert loaded.agent.codec.backend.to_str() == before != changed.codec.backend.to_str()
    assert loaded.evaluate(episodes=2).returns.shape == (2,)
    with pytest.raises(RequestError, match="data has changed since the run was started"):
        loaded.resume(steps=8)


def test_a_run_resumes_to_the_bit_with_its_tokenizer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env_kwargs": BPE, **SHORT, "anneal_learning_rate": False}
    whole: Any = rlbook.train("sft", "Addition-v0", **(options | {"steps": 6}))
    rlbook.train("sft", "Addition-v0", out=tmp_path / "run", **(options | {"steps": 3}))
    again: Any = rlbook.load(tmp_path / "run").resume(steps=6)
    for ours, theirs in zip(
        whole.agent.policy.parameters(), again.agent.policy.parameters(), strict=True
    ):
        assert (ours == theirs).all()
    assert "tokenizer: bpe" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sft"
    rlbook.train("sft", "Addition-v0", out=folder, env_kwargs={"tokenizer": "bpe"}, **SHORT)
    return folder


def test_a_run_s_folder_is_a_tokenizer_for_the_next_run(taught: Path, tmp_path: Path) -> None:
    run: Any = rlbook.train(
        "grpo",
        "Chat-v0",
        out=tmp_path / "grpo",
        start=taught,
        env_kwargs={"task": "addition", "tokenizer": str(taught)},
        steps=64,
        num_envs=8,
        group_size=4,
        eval_every=0,
    )
    assert run.agent.codec.backend.to_str() == (taught / "tokenizer.json").read_text()
    text = (tmp_path / "grpo" / "config.yaml").read_text()
    (tmp_path / "grpo" / "config.yaml").write_text(text)
    assert rlbook.evaluate(tmp_path / "grpo", episodes=2).returns.shape == (2,)


def test_an_exported_run_says_the_same_in_the_model_s_own_tokens(
    taught: Path, tmp_path: Path
) -> None:
    import torch
    from closeness import assert_near, widths
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export(taught, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    run: Any = rlbook.load(taught)
    codec, terms = run.agent.codec, widths(run.agent.policy.model)
    assert model.config.vocab_size == len(tokenizer) == codec.vocabulary_size
    for text in ("12+34=", "98+76="):
        ids = tokenizer(text, return_tensors="pt")
        assert ids.input_ids.tolist() == codec.encode_prompts([text])
        with torch.no_grad():
            ours = run.agent.policy.model(input_ids=ids.input_ids).logits
            assert_near(model(**ids).logits, ours, terms=terms)
    env: Any = rlbook.make("Addition-v0", model=str(tmp_path / "model")).unwrapped
    own: Any = rlbook.make("Addition-v0", tokenizer=str(taught)).unwrapped
    assert (env.rules.prompts == own.rules.prompts).all()


def test_another_tokenizer_is_refused_where_an_agent_is_evaluated(taught: Path) -> None:
    with pytest.raises(RequestError, match="another tokenizer than the agent was trained with"):
        rlbook.evaluate(taught, "Chat-v0", 2, env_kwargs={"tokenizer": "word"})
    kwargs = {"task": "addition", "tokenizer": str(taught), "split": "held_out"}
    assert rlbook.evaluate(taught, "Chat-v0", 2, env_kwargs=kwargs).returns.shape == (2,)


def test_a_changed_or_missing_tokenizer_is_refused(taught: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(taught, copied)
    (copied / "tokenizer.json").write_text((taught / "tokenizer.json").read_text() + "\n")
    with pytest.raises(CheckpointError, match="not the tokenizer that the run was started with"):
        rlbook.load(copied)
    (copied / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"lacks tokenizer\.json"):
        rlbook.load(copied)


@pytest.mark.thorough
def test_the_weights_that_ship_are_for_characters(taught: Path) -> None:
    plain: Any = rlbook.train("sft", "Addition-v0", **(SHORT | {"steps": 1}))
    named: Any = rlbook.train(
        "sft", "Addition-v0", env_kwargs={"tokenizer": "bpe"}, **(SHORT | {"steps": 1})
    )
    assert plain.evaluate(episodes=64).mean > 0.0  # it has been taught about half of its task
    assert named.evaluate(episodes=64).mean == 0.0


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"tokenizer": "bp"}, "or a folder with one, got 'bp'; did you mean 'bpe'"),
        ({"tokenizer": 3}, "got 3"),
        ({"tokenizer": "bpe", "vocab_size": 5}, "at least 26, for 4 special tokens and 22"),
        (
            {"tokenizer": "bytelevel", "vocab_size": 99},
            "at least 260, for 4 special tokens and 256",
        ),
        ({"tokenizer": "word", "vocab_size": 4}, "at least 5, for 4 special tokens and 1 word"),
        ({"tokenizer": "word", "vocab_size": 50}, "could never be generated; tokenizer 'bpe'"),
        ({"tokenizer": "bpe", "vocab_size": 0}, "vocab_size must be an integer of at least 1"),
        ({"vocab_size": 99}, "vocab_size 99 has no effect without a tokenizer"),
        ({"tokenizer": "character", "vocab_size": 99}, "no effect on tokenizer 'character'"),
        ({"tokenizer": "bpe", "model": "here"}, "the model 'here' brings its own"),
    ],
)
@pytest.mark.parametrize("env_id", ["Addition-v0", "Chat-v0"])
def test_what_cannot_be_is_refused_in_one_sentence(
    env_id: str, asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        rlbook.make(env_id, **asked)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_a_file_that_holds_no_such_tokenizer_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    file = tmp_path / "tokenizer.json"
    for text, reason in (
        ("nothing", "holds none that can be read"),
        (Tokenizer(models.BPE()).to_str(), "must have the tokens <pad>, <bos>, <eos>, <unk>"),
    ):
        file.write_text(text)
        with pytest.raises(RequestError, match=reason):
            rlbook.make("Addition-v0", tokenizer=str(tmp_path))


def test_the_command_line_says_how_many_tokens_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "train sft Addition-v0 --steps 1 --env.tokenizer bpe --env.vocab_size 512".split()
    assert main([*words, "--out", str(tmp_path / "run"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "tokenizer bpe: 215 tokens; the texts have too few pairs or words for 512" in shown.err
    json.loads(shown.out)
    assert main([*words[:-1], "9", "--out", str(tmp_path / "other")]) == 2
    assert "vocab_size must be at least 26" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert np.isfinite(rlbook.evaluate(tmp_path / "run", episodes=2).mean)
