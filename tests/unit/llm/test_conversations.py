"""Fine-tuning on chats of several turns: the assistant's tokens count, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, rounding_bound, widths
from steps import loss_of

import rlbook
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning
from rlbook.data import Episode, Episodes, load
from rlbook.data.episodes import collate
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.llm.tokenizers.assistant_tokens import conversation
from rlbook.llm.tokenizers.chat_codec import chat_codec
from rlbook.llm.tokenizers.tokenizer import EOS, character_codec, character_tokenizer

Make = Callable[..., Any]
CHAT = [
    {"role": "user", "content": "1+1="},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "12+3="},
    {"role": "assistant", "content": "15"},
]
GENERATION = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}a{% generation %}{{"
    " message['content'] }}"
    + EOS
    + "{% endgeneration %}+{% else %}b{{ message['content'] }}{% endif %}{% endfor %}{% if"
    " add_generation_prompt %}a{% endif %}"
)
"""Marks its own turns: transformers' {% generation %}."""


def counted(codec: Any, messages: list[dict[str, str]]) -> tuple[str, str]:
    """The whole text, and the tokens that count with a gap between turns."""
    found = codec.encode_conversation(messages)
    parts = ["".join(codec.decode([i]) if own else "|" for i, own in zip(*found, strict=True))]
    return codec.decode(found.ids), parts[0]


def test_the_answers_and_their_ends_count() -> None:
    text, own = counted(character_codec(), CHAT)
    assert text == "<bos>1+1=2<eos>12+3=15<eos>"
    assert own == "|" * 5 + "2<eos>" + "|" * 5 + "15<eos>"


def test_the_mask_is_that_of_transformers_where_a_template_marks_its_turns() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = GENERATION
    codec = character_codec()
    told = tokenizer.apply_chat_template(
        CHAT, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )

    def template(messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        return tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    found = conversation(codec.backend, template, codec.ends, CHAT)
    assert (
        found.ids == told["input_ids"]
        and [int(own) for own in found.counts] == told["assistant_masks"]
    )
    assert 0 < sum(found.counts) == len("2") + len("15") + 2


def test_a_chat_that_is_too_long_is_rendered_once() -> None:
    """Turn by turn would take the square of its length: hours for a row of 40 000 turns."""
    codec, rendered = character_codec(), []

    def template(messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        rendered.append(len(messages))
        return "1" * len(messages)

    with pytest.raises(
        ValueError,
        match=r"^the prompt and its answer have 40000 tokens, but the model's limit is 4096: the",
    ):
        conversation(
            codec.backend, template, codec.ends, CHAT * 10_000, check_length=codec.check_length
        )
    assert rendered == [40_000]


def test_a_file_with_a_chat_of_many_turns_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"messages": turns}) for turns in (CHAT, CHAT * 5_000)))
    with pytest.raises(
        RequestError,
        match=(
            r"rows\.jsonl, line 2: the prompt and its answer have \d+ tokens, but the model's limit is"
            r" 4096: the default for models that state none"
        ),
    ):
        rlbook.train("sft", "Addition-v0", data=str(path), steps=4)


@pytest.mark.parametrize("system", [False, True])
def test_the_answers_of_worked_examples_do_not_count(system: bool) -> None:
    shots = [{"role": "user", "content": "3+3="}, {"role": "assistant", "content": "6"}]
    codec = chat_codec(character_codec(), system=None if system else "a", shots=shots)
    own = [{"role": "system", "content": "b"}, *CHAT] if system else CHAT
    text, marked = counted(codec, own)
    assert text == f"<bos>{'b' if system else 'a'}3+3=6<eos>1+1=2<eos>12+3=15<eos>"
    assert marked.replace("|", "") == "2<eos>15<eos>"


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    """As Qwen3's, which leaves out what was thought in all turns but the last."""

    def template(messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        return "".join(m["content"] + ("+" if m is messages[-1] else "") for m in messages)

    codec = character_codec()
    with pytest.raises(ValueError, match="formats an answer differently when more turns follow"):
        conversation(codec.backend, template, codec.ends, CHAT)


def test_a_file_of_chats_is_one_episode_each_from_the_first_answer_on(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(
        json.dumps({"messages": CHAT}) + "\n" + json.dumps({"messages": CHAT[:2]}) + "\n"
    )
    env = adapted_vector(
        BehaviorCloning, EnvRecipe.from_env("Addition-v0"), 1, BehaviorCloning.Config()
    )
    data: Any = load(file, env)
    several, one = data.episodes[0], data.episodes[1]
    codec = character_codec()
    assert (
        codec.decode(several.obs) == "<bos>1+1="
        and codec.decode(several.action) == "2<eos>12+3=15<eos>"
    )
    assert several.counts.tolist() == [True] * 2 + [False] * 5 + [True] * 3
    assert codec.decode(one.action) == "2<eos>" and one.counts is None
    plain = chat_codec(character_codec(), template="plain")
    # nothing says where a turn ends: the last answer alone is learned from
    assert plain.encode_conversation(CHAT) is None


@pytest.mark.parametrize("packing", [None, 40])
def test_the_loss_is_that_of_each_answer_behind_all_that_was_said_before(
    stage: Make, packing: int | None
) -> None:
    """-mean over the 5 tokens of the answers; a row for each turn says the same, and the user's
    tokens are read and not learned."""
    codec: Any = character_codec()
    ids, own = codec.encode_conversation(CHAT)
    whole = Episode(np.array(ids[:5]), np.array(ids[5:]), counts=np.array(own[5:]))
    turns = [
        Episode(np.array(ids[:5]), np.array(ids[5:7])),
        Episode(np.array(ids[:12]), np.array(ids[12:])),
    ]
    agent = stage("behavior_cloning", "Addition-v0", num_envs=1, packing=packing).agent
    losses = []
    for episodes in ([whole], turns, [whole, *turns]):
        batch = collate(episodes)
        batch.weight = batch.mask / batch.mask.sum()
        losses.append(loss_of(agent, batch).loss)
    terms = widths(agent.policy)
    assert_near(losses[0], losses[1], terms=terms)
    assert_near(losses[0], losses[2], terms=terms)
    changed = Episode(whole.obs, np.where(whole.counts, whole.action, 7), counts=whole.counts)
    batch = collate([changed])
    batch.weight = batch.mask / batch.mask.sum()
    rounding = rounding_bound("float32", terms=terms, size=losses[0].item())
    # another question in between: it is read
    assert abs(loss_of(agent, batch).loss - losses[0]) > 10 * rounding


def test_which_actions_count_is_part_of_the_digest_and_checked() -> None:
    obs, action = np.array([1, 5]), np.array([6, 7, 2])
    marks = (None, np.array([True, False, True]), np.ones(3, bool))
    digests = {Episodes([Episode(obs, action, counts=counts)]).digest() for counts in marks}
    assert len(digests) == 3
    with pytest.raises(ValueError, match="counts must mark some of the 3 actions"):
        Episode(obs, action, counts=np.zeros(3, bool))


def test_a_refusal_names_the_line(tmp_path: Path, stage: Make) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(
        json.dumps({"messages": [*CHAT[:3], {"role": "assistant", "content": "?"}]}) + "\n"
    )
    with pytest.raises(
        RequestError, match=r"chats.jsonl, line 1: the vocabulary has no token for '\?'"
    ):
        load(file, stage("behavior_cloning", "Addition-v0", num_envs=1).env)
