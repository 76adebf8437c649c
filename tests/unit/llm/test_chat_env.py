"""The chat environment: what its prompts are, what ends a completion, where examples come from, and
what is refused."""

from __future__ import annotations

import copy
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from gymnasium.utils.env_checker import check_env
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from warm_process import run_python

import rlbook
from rlbook.data.rollout import Batch
from rlbook.data.schemas import Example
from rlbook.errors import RequestError
from rlbook.llm.environments.chat_env import Chat, ChatVector
from rlbook.llm.environments.chat_rules import prompts_of
from rlbook.llm.models.export import chat_tokenizer
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.rewards import Completion
from rlbook.llm.tokenizers.tokenizer import IDS, character_tokenizer, folder_codec

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'critic' %}{{"
    " raise_exception('no critics here') }}{% endif %}<|im_start|>{{ message.role }}\n{{"
    " message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt"
    " %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking"
    " %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SPECIAL = ("<pad>", "<s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
MERGES = [("1", "2"), ("a", "n"), ("s", "w"), ("sw", "e"), ("swe", "r"), ("an", "swer")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of random weights whose tokenizer is byte-level, has a chat template, puts BOS in
    front of texts, ends turns with <|im_end|>, and would cut texts at 5 tokens if its
    tokenizer.json were taken at its word."""
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("chat model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {
        token: i
        for i, token in enumerate([*SPECIAL, *alphabet, *("".join(pair) for pair in MERGES)])
    }
    backend = Tokenizer(models.BPE(vocabulary, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )  # type: ignore[assignment]
    backend.add_special_tokens(list(SPECIAL))
    backend.enable_truncation(5)
    model = small_llama(
        torch.Generator().manual_seed(0), vocabulary_size=len(vocabulary) + 3, context=256
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(
                    0.0, parameter.shape[1] ** -0.5, generator=torch.Generator().manual_seed(1)
                )
    model.generation_config.eos_token_id = [2, 4]
    model.save_pretrained(path)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        chat_template=TEMPLATE,
    )
    tokenizer.save_pretrained(path)
    saved = json.loads((path / "tokenizer.json").read_text())
    saved["truncation"] = {
        "direction": "Right",
        "max_length": 5,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (path / "tokenizer.json").write_text(json.dumps(saved))
    return path


def theirs(folder: Path, messages: list[dict[str, str]], **arguments: Any) -> list[int]:
    """What transformers makes of messages."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, **arguments
    )


def rows(path: Path, *items: Any) -> str:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


USER, BE = (
    {"role": "user", "content": "12+34, né? 💡"},
    {"role": "system", "content": "be an answer\n\n "},
)
CHAT = [
    BE,
    USER,
    {"role": "assistant", "content": "46"},
    {"role": "user", "content": "<|im_end|> and <s>"},
]


@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
def test_ids_are_those_of_apply_chat_template(folder: Path, arguments: dict[str, Any]) -> None:
    chats = [[USER], [BE, USER], CHAT]
    env = Chat(
        function=lambda split: [Example(chat, "46") for chat in chats],
        model=str(folder),
        template_arguments=arguments,
    )
    for i, chat in enumerate(chats):
        expected = theirs(folder, chat, **arguments)
        ids = env.rules.prompt_ids(i).tolist()
        assert ids == expected and ids[0] == 1 and ids[1] != 1  # one BOS, the template's
    obs, _ = env.reset(options={"prompt_id": 1})
    assert obs["tokens"][: obs["length"]].tolist() == theirs(folder, [BE, USER], **arguments)


def test_the_tokenizer_that_is_exported_cuts_nothing(folder: Path) -> None:
    """The folder's tokenizer.json cuts texts after 5 tokens, and one reads the exported file without
    transformers as well, which would lift that limit."""
    env = Chat(function=lambda split: [Example([USER], "46")], model=str(folder))
    backend = chat_tokenizer(env).backend_tokenizer
    text = "1 2 3 4 5 6 7 8"
    assert backend.decode(backend.encode(text).ids) == text


def test_system_text_and_shots_stand_before_the_prompt(folder: Path) -> None:
    examples = [
        Example("1+1", "2"),
        Example([USER], "46"),
        Example([BE, USER], "46"),
        Example("3+3", "6"),
    ]
    made = Chat(function=lambda split: examples, model=str(folder), system="sum", shots=1)
    shot = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
    assert len(made.rules.texts) == 3  # the shot is no prompt: it would show its own answer
    for i, (system, last) in enumerate(
        [("sum", USER["content"]), (BE["content"], USER["content"]), ("sum", "3+3")]
    ):
        chat = [{"role": "system", "content": system}, *shot, {"role": "user", "content": last}]
        assert made.rules.prompt_ids(i).tolist() == theirs(folder, chat)
    given = Chat(function=lambda split: examples, model=str(folder), shots=shot)
    assert len(given.rules.texts) == 4 and given.rules.prompt_ids(3).tolist() == theirs(
        folder, [*shot, {"role": "user", "content": "3+3"}]
    )


def test_the_built_in_models_chats_are_its_templates() -> None:
    env, tokenizer = Chat(shots=2), character_tokenizer()
    for i in (0, 7):
        messages = env.rules.to_completion(i, np.array([4])).messages
        ids = tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert (
            env.rules.prompt_ids(i).tolist() == ids
            and ids.count(IDS["<bos>"]) == 1
            and ids.count(IDS["<eos>"]) == 2
        )
    # other letters, other weights
    assert env.rules.task.name == "addition" and Chat(system="add!").rules.task.name == "chat"


def test_the_default_is_the_sums_with_the_ids_of_addition() -> None:
    ours, plain = rlbook.make("Chat-v0"), rlbook.make("Addition-v0")
    assert (
        ours.observation_space == plain.observation_space
        and ours.action_space == plain.action_space
    )
    for seed in range(5):
        assert np.array_equal(
            ours.reset(seed=seed)[0]["tokens"], plain.reset(seed=seed)[0]["tokens"]
        )
    assert "optimal return of the default" in str(Chat.__doc__)
    rules: Any = Chat(split="held_out").rules
    for i in range(20):
        env = Chat(split="held_out")
        env.reset(options={"prompt_id": i})
        *_, last = [env.step(token) for token in rules.codec.encode_answer(rules.answers[i])]
        assert last[1:4] == (1.0, True, False)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_gymnasium_finds_nothing_to_complain_about() -> None:
    check_env(Chat(render_mode="ansi", stop="0"))


def test_plain_prompts_have_the_tokenizers_bos_and_no_template(folder: Path) -> None:
    env = Chat(
        function=lambda split: [Example("12", "3"), Example(CHAT[:2], "3")],
        model=str(folder),
        template="plain",
    )
    codec = folder_codec(folder)
    assert codec.decode(env.rules.prompt_ids(0)) == "<s>12"
    assert codec.decode(env.rules.prompt_ids(1)) == f"<s>{BE['content']}{USER['content']}"


def test_a_template_of_ones_own_is_read_from_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}{{ tail }}"
    )
    mine: Any = {"template": str(tmp_path / "mine.jinja"), "template_arguments": {"tail": "an"}}
    env = Chat(function=lambda split: [Example("12", "3")], model=str(folder), **mine)
    assert env.codec.decode(env.rules.prompt_ids(0)) == "<s>[12]an"


def write(env: Chat, ids: list[int]) -> list[tuple[float, bool, bool]]:
    return [env.step(token)[1:4] for token in ids]  # type: ignore[misc]


def test_the_prompt_of_r1_zero_is_the_papers() -> None:
    from jinja2 import Environment

    from rlbook.llm.tokenizers.chat_codec import R1_ZERO_TEMPLATE

    # arXiv:2501.12948, table 1, with "prompt" in the question's place
    table = (
        "A conversation between User and Assistant. The user asks a question, and the Assistant"
        " solves it. The assistant first thinks about the reasoning process in the mind and then"
        " provides the user with the answer. The reasoning process and answer are enclosed within"
        " <think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning"
        " process here </think> <answer> answer here </answer>. User: prompt. Assistant:"
    )
    asked = {"messages": [{"role": "user", "content": "prompt"}], "add_generation_prompt": True}
    assert Environment().from_string(R1_ZERO_TEMPLATE).render(**asked) == table


def test_a_folders_model_is_asked_as_r1_zero_was(folder: Path) -> None:
    from rlbook.llm.tokenizers.chat_codec import chat_codec
    from rlbook.llm.tokenizers.tokenizer import folder_codec

    text = chat_codec(folder_codec(folder), template="r1_zero").render("12+34=")
    assert text.startswith("<s>A conversation between User and Assistant. The user asks")
    assert text.endswith("</answer>. User: 12+34=. Assistant:")
    # its prompt alone is longer than what this model reads
    with pytest.raises(ValueError, match="the prompt has 355 tokens, but the model's limit is 256"):
        Chat(model=str(folder), template="r1_zero")
    with pytest.raises(ValueError, match="template must be none or 'plain' for the built-in model"):
        Chat(template="r1_zero")


def test_any_end_token_ends_a_completion(folder: Path) -> None:
    seen: list[Completion] = []

    def reward(completion: Completion) -> float:
        seen.append(completion)
        return 1.0

    env = Chat(
        function=lambda split: [Example("1", "2")],
        model=str(folder),
        end_tokens="</think>",
        reward=reward,
    )
    # EOS first, then generation_config's, then those asked for
    assert env.codec.ends == (4, 2, 6) and env.codec.pad == 0
    two = env.codec.backend.token_to_id("2")
    for end in env.codec.ends:
        env.reset(seed=0)
        assert write(env, [two, end]) == [(0.0, False, False), (1.0, True, False)]
        assert (seen[-1].text, seen[-1].ended, list(seen[-1].ids)) == ("2", True, [two, end])
    env.reset(seed=0)
    # other special tokens, PAD and BOS among them, end nothing
    assert write(env, [3, 5, 0, 1])[-1] == (
        0.0,
        False,
        False,
    )


def test_a_stop_text_ends_a_completion_across_tokens(folder: Path) -> None:
    seen: list[Completion] = []
    env = Chat(
        function=lambda split: [Example("1", "2")],
        model=str(folder),
        stop=["answer", "\n\n"],
        reward=lambda c: seen.append(c) or 1.0,
        max_new_tokens=6,
    )
    token = env.codec.backend.token_to_id
    env.reset(seed=0)
    assert write(env, [token("2"), token("an"), token("swer")]) == [
        (0.0, False, False),
        (0.0, False, False),
        (1.0, True, False),
    ]
    # the stop text is part of what was written
    assert (seen[-1].text, seen[-1].ended) == (
        "2answer",
        True,
    )
    env.reset(seed=0)
    assert write(env, [token("a")] * 6)[-1] == (1.0, False, True) and not seen[-1].ended
    many = ChatVector(
        2,
        function=lambda split: [Example("1", "2")],
        model=str(folder),
        stop="12",
        max_new_tokens=6,
    )
    many.reset(seed=0)
    _, _, terminated, _, _ = many.step(np.array([token("1"), token("12")]))
    assert terminated.tolist() == [False, True]
    _, _, terminated, _, _ = many.step(np.array([token("2"), token("2")]))
    assert terminated.tolist() == [True, True] and many.rows.lengths[1] + 1 == many.rows.lengths[0]


def test_a_reward_sees_messages_and_columns(folder: Path, tmp_path: Path) -> None:
    seen: list[Completion] = []
    row = {
        "prompt": [BE, USER],
        "data_source": "sums",
        "reward_model": {"style": "rule", "ground_truth": 46},
        "extra_info": {"index": 3},
    }
    env = Chat(
        data=rows(tmp_path / "rows", row, row),
        model=str(folder),
        reward=lambda c: seen.append(c) or 0.5,
    )
    env.reset(seed=0)
    assert write(env, [4])[-1][0] == 0.5
    done = seen[-1]
    assert (done.prompt, done.answer, done.text, done.limit) == (
        USER["content"],
        "46",
        "",
        64,
    ) and done.messages == [BE, USER]
    assert done.columns == {
        name: row[name] for name in ("data_source", "reward_model", "extra_info")
    }


def test_prompts_over_the_limit_are_an_error_cut_or_left_out(tmp_path: Path) -> None:
    data = rows(
        tmp_path / "rows",
        *({"prompt": str(i) * n, "answer": "2"} for i, n in enumerate((3, 9, 3, 9, 9, 3))),
    )
    limits: Any = {"data": data, "max_prompt_tokens": 4, "held_out": 0.5}
    with pytest.raises(
        ValueError,
        match=(
            rf"{data}, line \d: the prompt has 10 tokens, but max_prompt_tokens is 4 \(overlong"
            r" \"left\""
        ),
    ):
        Chat(**limits)
    cut, filtered = (Chat(**limits, overlong=way).rules for way in ("left", "filter"))
    # the last four of BOS (1) and a digit (4 and more), three times or nine
    shown = {
        tuple(int(token) - int(text[0]) for token in cut.prompt_ids(i))
        for i, text in enumerate(cut.texts)
    }
    assert all(row[-3:] == (4, 4, 4) for row in shown) and (4, 4, 4, 4) in shown and len(shown) > 1
    assert 0 < len(filtered.texts) < len(cut.texts) and filtered.context_length == 4 + 64
    for i, text in enumerate(filtered.texts):
        assert len(text) == 3 and filtered.prompt_ids(i).tolist() == [1, *[4 + int(text[0])] * 3]
    with pytest.raises(
        ValueError, match="max_prompt_tokens is 2, and every prompt of a split is longer"
    ):
        Chat(**limits | {"max_prompt_tokens": 2}, overlong="filter")


def test_every_format_and_two_files_give_the_same_examples(tmp_path: Path) -> None:
    import datasets
    import pyarrow
    import pyarrow.parquet

    items = [{"prompt": f"{i}+1=", "answer": str(i + 1), "level": i} for i in range(30)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items), tmp_path / "rows.parquet")
    datasets.Dataset.from_list(items).save_to_disk(str(tmp_path / "folder"))
    (tmp_path / "array.json").write_text(json.dumps(items))
    paths = (
        rows(tmp_path / "lines", *items),
        *(str(tmp_path / name) for name in ("rows.parquet", "folder", "array.json")),
    )
    found = [
        {split: Chat(data=path, split=split).rules for split in ("train", "held_out")}
        for path in paths
    ]
    for rules in found:
        assert [list(rules[split].texts) for split in rules] == [
            list(found[0][split].texts) for split in rules
        ]
        assert (
            len(rules["held_out"].texts) == 3
            and len(set(rules["train"].texts) | set(rules["held_out"].texts)) == 30
        )
        train = rules["train"]
        assert all(
            column["level"] + 1 == int(answer)
            for column, answer in zip(train.columns, train.answers, strict=True)
        )
    both = Chat(
        data=paths[0],
        held_out_data=rows(tmp_path / "more", {"prompt": "7+7="}),
        split="held_out",
        reward=len,
    ).rules
    assert list(both.texts) == ["7+7="] and list(both.answers) == [None]


def test_rows_with_one_prompt_are_all_held_out_or_none(tmp_path: Path) -> None:
    """Each prompt has five answers, as in data of preferences."""
    items = [{"prompt": f"{a}+{b}=", "answer": str(b)} for a in range(20) for b in range(1, 6)]
    data = rows(tmp_path / "rows", *({**item, "prompt": item["prompt"][:-2]} for item in items))
    texts = {split: Chat(data=data, split=split).rules.texts for split in ("train", "held_out")}
    assert (len(texts["train"]), len(texts["held_out"])) == (90, 10)
    assert not set(texts["train"]) & set(texts["held_out"])
    same = rows(tmp_path / "same", *[{"prompt": "1+1=", "answer": "2"}] * 10)
    assert len(Chat(data=same, split="held_out").rules.texts) == 1


def test_a_function_gives_examples_or_rows_for_each_split(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my_sums.py").write_text(
        "def few(split):\n    return [{'prompt': '1+1=' if split == 'train' else '2+2=', 'answer':"
        " 4}]\ndef broken(split):\n    raise KeyError(split)\ndef odd(split):\n    return"
        " [{'promt': 1}]\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError,
        match="function 'my_sums:few' would import the module 'my_sums'; give --allow-import",
    ):
        Chat(function="my_sums:few")
    # loaded long since, and harmful
    with pytest.raises(
        ValueError, match="function 'shutil:rmtree' would import the module 'shutil'"
    ):
        Chat(function="shutil:rmtree")
    texts = {
        split: list(Chat(function="my_sums:few", allow_import=True, split=split).rules.texts)
        for split in ("train", "held_out")
    }
    assert texts == {"train": ["1+1="], "held_out": ["2+2="]}
    for name, sentence in (
        ("broken", r"'my_sums:broken' failed on the split 'train' \(KeyError"),
        ("odd", "example 1: must have the columns of a form"),
        ("number", "must be a function, got int"),
        ("none", r"cannot be imported \(AttributeError"),
        ("a:b", "of the form 'module:function'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Chat(function=f"my_sums:{name}", allow_import=True)


def test_a_batch_is_as_good_as_each_prompt_alone(folder: Path) -> None:
    policy = LanguageModelPolicy(folder_model(folder))
    rules = Chat(
        function=lambda split: [Example("1", "2"), Example([BE, USER], "2"), Example(CHAT, "2")],
        model=str(folder),
    ).rules
    prompts = [torch.from_numpy(rules.prompt_ids(i)) for i in range(3)]
    lengths = [len(prompt) for prompt in prompts]
    assert len(set(lengths)) == 3
    written = torch.tensor([[9, 10, 4, 0, 0], [8, 4, 0, 0, 0], [7, 11, 12, 13, 4]])
    mask = torch.tensor([[True] * 3 + [False] * 2, [True] * 2 + [False] * 3, [True] * 5])
    for pad in (rules.codec.pad, 4, 77):  # what stands behind a prompt is of no importance
        tokens = torch.full((3, max(lengths) + 7), pad)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        batch = Batch(
            {"tokens": tokens, "length": torch.tensor(lengths)}, written, torch.zeros(3, 5), mask
        )
        together, entropy, _ = policy.evaluate(batch)
        for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
            count = int(mask[i].sum())
            obs = {"tokens": prompt[None], "length": torch.tensor([length])}
            alone = Batch(
                obs, written[i : i + 1, :count], torch.zeros(1, count), mask[i : i + 1, :count]
            )
            log_prob, own_entropy, _ = policy.evaluate(alone)
            assert entropy is not None and own_entropy is not None
            assert_near(together[i, :count], log_prob[0], terms=widths(policy))
            assert_near(entropy[i, :count], own_entropy[0], terms=widths(policy))


def test_ids_are_the_truth_where_decoding_and_encoding_again_would_differ(folder: Path) -> None:
    env = Chat(function=lambda split: [Example("1", "12")], model=str(folder))
    token = env.codec.backend.token_to_id
    apart, merged = [token("1"), token("2"), 4], [token("12"), 4]
    obs: Any = None
    for ids in (apart, merged):
        start = int(env.reset(seed=0)[0]["length"])
        for one in ids:
            obs, reward, _, _, _ = env.step(one)
        # the same text, by other tokens
        assert obs["tokens"][start : obs["length"]].tolist() == ids and reward == 1.0
    assert env.codec.encode_answer("12") == merged


def test_a_chat_env_goes_on_from_its_snapshot_and_is_copied(folder: Path) -> None:
    env = Chat(
        model=str(folder),
        function=lambda split: [Example(str(i), "2") for i in range(50)],
        stop="12",
    )
    env.reset(seed=1)
    env.step(9)
    other = copy.deepcopy(env)
    assert other.rules is env.rules
    held = env.snapshot()
    after = [env.step(10)[0], *(env.reset()[0] for _ in range(5))]
    env.restore(held)
    again = [env.step(10)[0], *(env.reset()[0] for _ in range(5))]
    copied = [other.step(10)[0], *(other.reset()[0] for _ in range(5))]
    for one, two, three in zip(after, again, copied, strict=True):
        assert np.array_equal(one["tokens"], two["tokens"]) and np.array_equal(
            one["tokens"], three["tokens"]
        )


def test_answers_to_clone_are_those_of_the_examples(folder: Path) -> None:
    env = Chat(model=str(folder), function=lambda split: [Example("1", "12"), Example("2", "an")])
    assert [answer.tolist() for _, answer in env.answers()] == [
        env.codec.encode_answer("12"),
        env.codec.encode_answer("an"),
    ]
    with pytest.raises(RequestError, match=r"example 1 has no answer, which a column 'answer' or"):
        Chat(function=lambda split: [Example("1")], reward=len).answers()
    with pytest.raises(
        ValueError,
        match=(
            r"'correct' compares with the answer, but function '<lambda>', split 'train', example 1"
            r" has no answer, which a column 'answer' or 'completion' holds \(it has prompt\); for"
        ),
    ):
        Chat(function=lambda split: [Example("1")])


def test_evaluation_counts_exact_answers_where_training_compares_with_them() -> None:
    def mine(completion: Completion) -> float:
        return 1.0

    cases: Any = (
        ("edit", None, "correct"),
        (mine, None, mine),
        ({"edit": 1.0}, None, {"edit": 1.0}),
        (mine, "exact", "exact"),
    )
    for reward, asked, expected in cases:
        assert Chat(reward=reward, evaluation_reward=asked).evaluation_kwargs == {
            "split": "held_out",
            "reward": expected,
        }


def test_prompts_are_made_once_and_again_when_a_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    first = Chat(data=rows(path, *({"prompt": str(i), "answer": "1"} for i in range(2))))
    assert prompts_of(first.rules.settings) is prompts_of(
        Chat(data=str(path), reward="edit").rules.settings
    )  # type: ignore[attr-defined]
    assert (
        len(
            Chat(
                data=rows(path, *({"prompt": str(i), "answer": "1"} for i in range(5)))
            ).rules.texts
        )
        == 4
    )


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"task": "additon"},
        r"task must be one of .*'addition'.*got 'additon' \(did you mean 'addition'\?\)",
    ),
    (
        {"task": "addition", "data": "x"},
        "examples come from a task, a function or data, but task and data were given",
    ),
    ({"data": "nowhere"}, "data: nowhere does not exist"),
    ({"data": 3}, "data must be the path of a file or a folder of rows, got 3"),
    ({"held_out_data": "x"}, "held_out_data applies to examples from data"),
    ({"held_out": 1}, r"held_out must be a number in \(0, 1\), got 1"),
    ({"system": ["a"]}, r"system must be a text, or none, got \['a'\]"),
    (
        {"shots": -1},
        "shots must be a number of training examples, at least 0, or a list of messages, got -1",
    ),
    ({"shots": 10_000}, "shots must be fewer than the 7588 training examples, got 10000"),
    ({"shots": [{"role": "user"}]}, "shots must be a number or messages with a role and a content"),
    (
        {"template": "nowhere.jinja"},
        "template must be none, 'plain' or a file, and 'nowhere.jinja' cannot be read",
    ),
    ({"template_arguments": "x"}, "template_arguments must be a mapping such as"),
    (
        {"template_arguments": {"enable_thinking": False}},
        "the chat template does not use 'enable_thinking'",
    ),
    (
        {"template": "plain", "template_arguments": {"a": 1}},
        "there is no chat template here to use 'a'",
    ),
    ({"template_arguments": {"tokenize": True}}, "the chat template does not use 'tokenize'"),
    ({"end_tokens": "<|im_end|>"}, r"end_tokens: the tokenizer has no token '<\|im_end\|>'"),
    ({"stop": ""}, "stop must be a text or a list of texts, none of them empty, got ''"),
    ({"stop": ["a", 1]}, "stop must be a text or a list of texts"),
    ({"overlong": "right"}, "overlong must be one of 'error', 'left', 'filter', got 'right'"),
    ({"overlong": "left"}, "overlong 'left' needs max_prompt_tokens"),
    ({"max_prompt_tokens": 0}, "max_prompt_tokens must be an integer of at least 1"),
    ({"split": "test"}, "split must be one of 'train', 'held_out'"),
    ({"reward": "exakt"}, "reward must be one of"),
    ({"render_mode": "human"}, "render_mode must be one of 'ansi'"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), BAD, ids=[str(index) for index in range(len(BAD))]
)
def test_a_wrong_argument_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, RequestError), match=sentence) as refusal:
        Chat(**arguments)
    assert "\n" not in str(refusal.value)


HOSTILE: list[tuple[Any, str]] = [
    ({"prompt": [{"role": "user"}]}, "prompt must hold messages with a role and a content"),
    ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "prompt must hold messages"),
    ({"prompt": ""}, "prompt must be a text that is not empty"),
    ({"prompt": {}}, "prompt must be a text"),
    (
        {"prompt": [{"role": "critic", "content": "no"}]},
        r"the chat template refuses these messages \(no critics here\)",
    ),
    ({"prompt": "\ud800"}, "prompt holds half of a surrogate pair"),
    ({"prompt": [{"role": "user", "content": "\ud800"}]}, "prompt holds half of a surrogate pair"),
    ([1], "must be a JSON object"),
    ({"promt": "a"}, "did you mean 'prompt' by 'promt'"),
    (
        {"prompt": "1" * 300},
        r"line 2: the prompt has \d+ tokens, but the model's limit is 256, its answer included",
    ),
]


@pytest.mark.parametrize(
    ("row", "sentence"), HOSTILE, ids=[str(index) for index in range(len(HOSTILE))]
)
def test_a_bad_row_is_named_by_its_line(
    folder: Path, tmp_path: Path, row: Any, sentence: str
) -> None:
    data = rows(tmp_path / "rows", {"prompt": "a"}, row, {"prompt": "b"})
    with pytest.raises((ValueError, RequestError), match=sentence) as refusal:
        Chat(data=data, model=str(folder))
    assert "\n" not in str(refusal.value) and "line 2" in str(refusal.value)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "row"),
    [
        ("grpo", {"prompt": "1+" * 50_000, "answer": "2"}),
        pytest.param("sft", {"prompt": "1+" * 50_000, "answer": "2"}, marks=pytest.mark.slow),
        pytest.param("sft", {"prompt": "1+1=", "answer": "2" * 100_000}, marks=pytest.mark.slow),
    ],
)
def test_a_long_row_is_refused_by_its_line_before_memory_is_taken(
    algorithm: str, row: dict[str, str], tmp_path: Path
) -> None:
    """100 000 tokens against each other are a mask of 10 GB; here nothing of the kind may be asked
    for."""
    data = rows(tmp_path / "rows.jsonl", *[{"prompt": "1+1=", "answer": "2"}] * 20, row)
    words = [
        "train",
        algorithm,
        "Chat-v0",
        "--env.data",
        str(data),
        "--steps",
        "64",
        "--out",
        str(tmp_path / "a"),
    ]
    limit = 4 * 2**30  # of address space, most of which libraries reserve
    done = run_python(["-m", "rlbook", *words], address_space=limit)
    assert done.returncode == 2 and not (tmp_path / "a").exists(), done.stderr
    assert (
        "line 21: the prompt" in done.stderr
        and "tokens, but the model's limit is 4096" in done.stderr
    )


def test_a_long_row_of_recorded_answers_is_refused_by_its_line(tmp_path: Path) -> None:
    data = rows(
        tmp_path / "rows.jsonl",
        {"prompt": "1+1=", "completion": "2"},
        {"prompt": "1+1=", "completion": "2" * 100_000},
    )
    with pytest.raises(
        RequestError,
        match=r"line 2: the prompt and its answer have 10000\d tokens, but the model's limit is 4096",
    ):
        rlbook.train("sft", "Addition-v0", data=str(data), steps=10)


def test_long_prompts_are_cut_or_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    data = rows(
        tmp_path / "rows.jsonl",
        *({"prompt": f"{n}+=", "answer": "2"} for n in range(10, 30)),
        {"prompt": "1+" * 5_000, "answer": "2"},
    )
    assert (
        Chat(
            data=str(data), max_prompt_tokens=64, overlong="filter"
        ).unwrapped.rules.prompt_lengths.max()
        == 5
    )
    assert Chat(
        data=str(data), max_prompt_tokens=64, overlong="left"
    ).unwrapped.rules.prompt_lengths.max() in (5, 64)


ENDLESS = (
    "{% for i in range(100000) %}{% for j in range(100000) %}{% set k = j %}{% endfor %}{%"
    " endfor %}"
)
LONG_WINDED = "{% for i in range(20) %}{{ messages[0].content * 1000000 }}{% endfor %}"

GREEDY = (
    (
        "{% set x = 'a' * 3000000000 %}",
        "{{ 'x' | center(3000000000) }}",
        "{{ '%03000000000d' % 1 }}",
        "{% set l = [1] * 300000000 %}",
    )
    if sys.platform == "linux"
    else ()
)
"""Templates of which one call into C asks for gigabytes."""


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (ENDLESS, r"the chat template takes longer than 0\.3 s for these messages"),
        (
            LONG_WINDED,
            (
                "the chat template makes 20,000,000 characters of these messages, but at most"
                " 16,777,216 are allowed"
            ),
        ),
        (
            "x" * 300_000,
            r"template '.*' has 300,000 characters, but a chat template may have at most 65,536",
        ),
        *[
            (greedy, "the chat template takes more than 1 GiB for these messages")
            for greedy in GREEDY
        ],
        (
            "{% set a = 7 %}{% set b = 10000000 %}{{ (a ** b) % 3 }}",
            r"template '.*' uses a power \(\*\*\), which is not allowed",
        ),
    ],
)
def test_a_chat_template_has_limits(
    template: str, sentence: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlbook.llm.tokenizers.tokenizer.TEMPLATE_SECONDS", 0.3)
    (tmp_path / "own.jinja").write_text(template)
    with pytest.raises((ValueError, RequestError), match=sentence) as refusal:
        Chat(
            data=rows(tmp_path / "rows", {"prompt": "a"}, {"prompt": "b"}),
            model=str(folder),
            template=str(tmp_path / "own.jinja"),
        )
    assert "\n" not in str(refusal.value)


def test_what_is_passed_on_to_a_call_is_no_power() -> None:
    from rlbook.llm.tokenizers.tokenizer import has_power

    passed_on = (
        "{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(**messages[0]) }}{{ f(1, **messages[0]) }}{#"
        " 2 ** 3 #} 2 ** 3"
    )
    assert (
        not has_power(passed_on)
        and has_power("{{ 2**3 }}")
        and has_power("{% if x ** 2 %}{% endif %}")
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_limit_on_memory_ends_with_its_block() -> None:
    from rlbook.sandbox.memory_limit import memory_limit

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError), memory_limit(2**28):
        bytearray(2**29)
    assert resource.getrlimit(resource.RLIMIT_AS) == before and len(bytearray(2**29)) == 2**29


def test_a_template_in_a_models_folder_has_the_same_limit(folder: Path, tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "chat_template.jinja").write_text("x" * 300_000)
    with pytest.raises(
        (ValueError, RequestError),
        match=r"model: the chat template in '.*other' has 300,000 characters",
    ):
        Chat(data=rows(tmp_path / "rows", {"prompt": "a"}, {"prompt": "b"}), model=str(other))


def test_a_strange_generation_config_is_refused(folder: Path, tmp_path: Path) -> None:
    import shutil

    for named, sentence in (
        ([2, "x"], "must be token ids, got 'x'"),
        ([10**6], "must be token ids, got 1000000"),
        (True, "got True"),
    ):
        other = tmp_path / str(sentence)
        shutil.copytree(folder, other)
        settings = json.loads((other / "generation_config.json").read_text())
        (other / "generation_config.json").write_text(
            json.dumps(settings | {"eos_token_id": named})
        )
        with pytest.raises(ValueError, match=sentence):
            folder_codec(other)


def test_a_token_without_a_row_in_the_model_is_named(folder: Path, tmp_path: Path) -> None:
    """transformers reads the tokenizer of a Qwen2 folder as Qwen2's, with a token more."""
    import shutil

    other = tmp_path / "qwen2"
    shutil.copytree(folder, other)
    tokens = json.loads((other / "tokenizer.json").read_text())
    del tokens["truncation"]
    tokens["added_tokens"] = [t for t in tokens["added_tokens"] if t["content"] != SPECIAL[2]]
    text = json.dumps(tokens).replace(SPECIAL[2], "<|nothing|>")
    (other / "tokenizer.json").write_text(text)
    settings = json.loads((other / "config.json").read_text())
    size = len(tokens["model"]["vocab"])
    settings |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": size}
    (other / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"no row for '<\|endoftext\|>' \(resize_token_embeddings"):
        folder_codec(other)
