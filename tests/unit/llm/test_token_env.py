"""The token environments: prompts, rewards, endings, and the two forms side by side."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlbook.interaction.guards import METRICS
from rlbook.llm.environments.token_env import (
    Addition,
    AdditionVector,
    Reverse,
    ReverseVector,
    TokenEnv,
    TokenVectorEnv,
)
from rlbook.llm.rewards import Completion, edit, exact, prefix
from rlbook.llm.tasks import AdditionTask, ReverseTask, Task
from rlbook.llm.tasks.task import build_task
from rlbook.llm.tokenizers.tokenizer import IDS, character_codec, character_tokenizer

EOS = IDS["<eos>"]
FORMS = [(Addition, AdditionVector), (Reverse, ReverseVector)]


def write(env: TokenEnv, text: str, prompt: str) -> list[tuple[float, bool, bool]]:
    """Reward and flags of each token of `text` after `prompt`; "." stands for EOS."""
    env.reset(options={"prompt_id": env.rules.texts.index(prompt)})
    return [env.step(EOS if letter == "." else IDS[letter])[1:4] for letter in text]


@pytest.mark.parametrize("task", [AdditionTask(), ReverseTask()], ids=["addition", "reverse"])
def test_held_out_prompts_are_never_training_prompts(task: Task) -> None:
    assert len(task.held_out) == 512 and not set(task.held_out) & set(task.train)
    assert sorted([*task.held_out, *task.train]) == sorted(task.all_prompts())
    assert type(task)().held_out == task.held_out


def test_the_docstrings_state_the_facts() -> None:
    for env, prompt_tokens, context, prompts in (
        (Addition(), 7, 12, "7 588"),
        (Reverse(), 8, 16, "7 680"),
    ):
        doc = type(env).__doc__ or ""
        assert "\nThe task: " in doc  # indented as the rest, which Python 3.13 writes without
        assert f"{prompts} training and 512 held-out prompts" in doc and len(
            env.rules.texts
        ) == int(prompts.replace(" ", ""))
        assert (
            f"{prompt_tokens} tokens" in doc and (env.rules.prompt_lengths == prompt_tokens).all()
        )
        assert f"L is {context}" in doc and env.rules.context_length == context
        assert "V is 26" in doc and env.action_space.n == 26  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", [Addition, Reverse])
def test_the_right_answer_returns_one_from_every_prompt(form: type[TokenEnv]) -> None:
    env = form(split="held_out")
    for prompt in env.rules.texts[:50]:
        *before, last = write(env, env.rules.task.answer(prompt) + ".", prompt)
        assert last == (1.0, True, False) and not any(
            reward or ended or cut for reward, ended, cut in before
        )


def test_answers_to_learn_from_end_with_the_token_that_ends_a_text() -> None:
    for (prompt, answer), _ in zip(Addition().answers(), range(20), strict=False):
        text = character_codec().decode(prompt)
        left, right = text.removeprefix("<bos>").rstrip("=").split("+")
        assert answer.tolist() == [IDS[digit] for digit in str(int(left) + int(right))] + [EOS]


def test_only_the_exact_answer_with_its_ending_is_rewarded() -> None:
    env = Addition()
    assert [
        write(env, text, "11+35=")[-1] for text in ("46.", "47.", ".", "046.", "4600.", "46000")
    ] == [
        (1.0, True, False),
        (0.0, True, False),
        (0.0, True, False),
        (0.0, True, False),
        (0.0, True, False),
        (0.0, False, True),
    ]


def wrote(text: str, answer: str, ended: bool) -> Completion:
    return Completion("11+35=", answer, text, ended)


@pytest.mark.parametrize("end", [2, 3])
def test_every_token_that_ends_a_text_ends_an_answer(end: int, model: str, tmp_path: Path) -> None:
    """A folder may name several, such as the end of a turn beside the end of a text; neither is
    part of the answer."""
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    env = Addition(model=str(folder))
    env.reset(options={"prompt_id": 0})
    *answer, _ = env.rules.codec.encode_answer(env.rules.answers[0])
    for token in answer:
        assert env.step(token)[1:4] == (0.0, False, False)
    assert env.step(end)[1:4] == (1.0, True, False)


def test_a_reward_is_any_function_of_a_completion_and_its_example() -> None:
    seen: list[Completion] = []

    def length(completion: Completion) -> float:
        seen.append(completion)
        return -len(completion.text)

    assert write(Addition(reward=length), "461.", "11+35=")[-1] == (-3.0, True, False)
    assert seen == [Completion(prompt="11+35=", answer="46", text="461", ended=True)]


class Subtraction(Task):
    """Differences, whose sign is in no built-in vocabulary."""

    name = "subtraction"

    def all_prompts(self) -> list[str]:
        return [f"{left}-{right}=" for left in range(30) for right in range(30)]

    def answer(self, prompt: str) -> str:
        left, right = prompt.rstrip("=").split("-")
        return str(int(left) - int(right))


def test_the_vocabulary_comes_from_the_task() -> None:
    codec = TokenEnv(Subtraction()).codec
    # PAD, BOS, EOS and UNKNOWN besides
    assert codec.characters == set("0123456789-=") and codec.vocabulary_size == 4 + 12
    assert codec.decode(codec.encode_prompt("7-12=")) == "<bos>7-12="
    with pytest.raises(ValueError, match=r"no token for '\*' in '7\*12='"):
        codec.encode_prompt("7*12=")


def test_environments_of_one_task_share_what_follows_from_it_and_nobody_can_change_it() -> None:
    one, other, held_out = (
        TokenEnv(build_task(AdditionTask), split=split).rules
        for split in ("train", "train", "held_out")
    )
    assert (
        one.prompts is other.prompts
        and one.answers is other.answers
        and held_out.answers != one.answers
    )
    with pytest.raises(ValueError, match="read-only"):
        one.prompts[0, 0] = 0


def test_a_task_that_is_no_key_is_read_each_time() -> None:
    class Compared(Subtraction):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Compared)

    assert TokenEnv(Compared()).rules.answers == TokenEnv(Subtraction()).rules.answers


def test_a_task_that_writes_outside_its_vocabulary_is_refused() -> None:
    class Few(Subtraction):
        characters = "0123456789="

    with pytest.raises(ValueError, match=r"the vocabulary has no token for '-'.* tokenizer makes"):
        TokenEnv(Few())


def test_rewards_by_hand() -> None:
    assert (
        exact(wrote("46", "46", True)),
        exact(wrote("46", "46", False)),
        exact(wrote("4", "46", True)),
    ) == (1.0, 0.0, 0.0)
    assert prefix(wrote("46", "46", True)) == 1.0
    assert prefix(wrote("46", "46", False)) == 2 / 3  # 4 and 6 of 4, 6, EOS
    assert (
        prefix(wrote("45", "46", True)),
        prefix(wrote("96", "46", True)),
        prefix(wrote("461", "46", True)),
    ) == (1 / 3, 0.0, 2 / 3)
    assert edit(wrote("46", "46", True)) == 1.0
    assert edit(wrote("46", "46", False)) == 1 - 1 / 3  # EOS to insert; 4, 6, EOS are wanted
    assert edit(wrote("96", "46", True)) == 1 - 1 / 3  # one of three to replace
    assert edit(wrote("4666", "46", True)) == 1 - 2 / 5  # two of the five written to delete


@pytest.mark.parametrize("form", [Addition, Reverse])
@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_gymnasium_finds_nothing_to_complain_about(form: type[TokenEnv]) -> None:
    check_env(form(render_mode="ansi"))


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize(("single", "vector"), FORMS)
def test_single_and_vector_form_agree_step_by_step(
    single: type[TokenEnv], vector: type[TokenVectorEnv], split: str
) -> None:
    rng, seeds = np.random.default_rng(0), [5, 5, 700, 8]
    many, singles = (
        vector(4, split=split, reward="prefix"),
        [single(split=split, reward="prefix") for _ in seeds],
    )
    obs, _ = many.reset(seed=list(seeds))
    rows = [env.reset(seed=seed)[0] for env, seed in zip(singles, seeds, strict=True)]
    for turn in range(60):
        assert many.observation_space.contains(obs)
        for i, row in enumerate(rows):
            assert (obs["tokens"][i] == row["tokens"]).all() and obs["length"][i] == row["length"]
        action = rng.integers(0, len(IDS), 4)
        obs, reward, terminated, truncated, _ = many.step(action)
        steps = [env.step(a) for env, a in zip(singles, action, strict=True)]
        rows = [step[0] for step in steps]
        assert [step[1:4] for step in steps] == list(
            zip(reward.tolist(), terminated.tolist(), truncated.tolist(), strict=True)
        )
        if turn % 9 == 8 and split == "train":
            over = terminated | truncated
            obs, _ = many.reset(options={"reset_mask": over})
            rows = [
                env.reset()[0] if o else row
                for env, row, o in zip(singles, rows, over, strict=True)
            ]


def test_a_stream_that_has_ended_waits() -> None:
    env = AdditionVector(2)
    env.reset(seed=0)
    ended, _, terminated, _, _ = env.step(np.array([EOS, 4]))
    assert terminated.tolist() == [True, False]
    later, reward, terminated, truncated, _ = env.step(np.array([7, 7]))
    assert (later["tokens"][0] == ended["tokens"][0]).all() and later["length"].tolist() == [8, 9]
    assert reward[0] == 0.0 and terminated[0] and not truncated[0]
    assert ended["length"].tolist() == [8, 8]  # what was handed out stays as it was
    fresh, _ = env.reset(options={"reset_mask": np.array([True, False])})
    assert fresh["length"].tolist() == [7, 9] and not env.rows.terminated.any()


def test_what_each_reward_says_is_said_of_texts_that_ended_alone() -> None:
    env = AdditionVector(3, split="held_out", reward={"exact": 1.0, "prefix": 0.5})
    env.reset(seed=0)
    digit, eos = IDS[env.rules.answers[0][0]], env.rules.codec.eos
    *_, info = env.step(np.array([digit, eos, digit]))
    np.testing.assert_array_equal(info[METRICS]["reward/exact"], [np.nan, 0.0, np.nan])
    _, reward, *_, info = env.step(np.array([eos, digit, digit]))
    right = 1 / (len(env.rules.answers[0]) + 1)  # one digit of them, and the ending counts too
    assert reward.tolist() == [0.5 * right, 0.0, 0.0]
    np.testing.assert_array_equal(info[METRICS]["reward/prefix"], [right, np.nan, np.nan])
    assert METRICS not in env.step(np.array([eos, eos, digit]))[-1]


@pytest.mark.parametrize("streams", [1, 7, 512])
def test_512_consecutive_seeds_visit_each_held_out_prompt_once(streams: int) -> None:
    env, seen = AdditionVector(streams, split="held_out"), []
    for start in range(0, 512, streams):
        env.reset(seed=1_000 + start)
        seen += env.rows.prompt.tolist()
    assert sorted(seen[:512]) == list(range(512))


def test_resets_without_a_seed_walk_through_the_held_out_prompts() -> None:
    single, env = Addition(split="held_out"), AdditionVector(8, split="held_out")
    for form, streams in ((single, 1), (env, 8)):
        seen: list[int] = []
        while len(seen) < 512:
            form.reset()
            seen += form.rows.prompt.tolist()
        assert sorted(seen) == list(range(512)) and len(form.rows.prompt) == streams


def test_equal_seeds_make_a_group_of_equal_prompts() -> None:
    env = AdditionVector(6)
    obs, _ = env.reset(seed=[3, 3, 3, 9, 9, 9])
    assert (obs["tokens"][:3] == obs["tokens"][0]).all() and (
        obs["tokens"][3:] == obs["tokens"][3]
    ).all()
    assert (obs["tokens"][0] != obs["tokens"][3]).any()


@pytest.mark.parametrize("vector", [False, True])
def test_a_snapshot_goes_on_where_it_was_taken(vector: bool) -> None:
    def play(env: Any, turns: int, rng: np.random.Generator) -> list[Any]:
        seen = []
        for _ in range(turns):
            action = rng.integers(4, 14, 3) if vector else int(rng.integers(4, 14))
            obs, reward, terminated, truncated, _ = env.step(action)
            over = np.asarray(terminated | truncated)
            if over.any():
                obs, _ = env.reset(options={"reset_mask": over}) if vector else env.reset()
            seen += [obs["tokens"].tolist(), np.asarray(reward).tolist()]
        return seen

    env, other = (AdditionVector(3), AdditionVector(3)) if vector else (Addition(), Addition())
    env.reset(seed=4)
    play(env, 7, np.random.default_rng(0))
    state = env.snapshot()
    other.reset(seed=99)
    other.restore(state)
    assert play(env, 30, np.random.default_rng(1)) == play(other, 30, np.random.default_rng(1))


def test_render_shows_prompt_and_completion() -> None:
    env = Addition(render_mode="ansi")
    write(env, "46.", "11+35=")
    assert env.render() == "11+35=46<eos>"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"split": "test"}, "split must be one of 'train', 'held_out', got 'test'"),
        ({"reward": "best"}, "reward must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens must be an integer of at least 1"),
        (
            {"model": "some-hub/name"},
            "model: 'some-hub/name' must be a local Hugging Face causal LM folder",
        ),
        ({"render_mode": "human"}, "render_mode must be one of 'ansi'"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], sentence: str) -> None:
    for make in (Addition, AdditionVector):
        with pytest.raises(ValueError, match=sentence) as refusal:
            make(**options)
        assert "\n" not in str(refusal.value)


def test_bad_prompts_and_actions_are_refused() -> None:
    env = Addition()
    with pytest.raises(ValueError, match="prompt_id: 7588 must be from 0 to 7587"):
        env.reset(options={"prompt_id": 7588})
    env.reset(seed=0)
    for action in (-1, 26):
        with pytest.raises(ValueError, match="must be 1 token ids from 0 to 25"):
            env.step(action)


def test_the_tokenizer_is_a_hugging_face_fast_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    character_tokenizer().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    codec = character_codec()
    assert tokenizer.is_fast and len(tokenizer) == codec.vocabulary_size == 26
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (
        codec.pad,
        codec.bos,
        codec.eos,
    )
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    ids = tokenizer("12+34=")["input_ids"]
    assert [ids] == codec.encode_prompts(["12+34="]) and tokenizer.decode(
        ids, skip_special_tokens=True
    ) == "12+34="
    chat = [{"role": "user", "content": "12+34="}, {"role": "assistant", "content": "46"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<bos>12+34=46<eos>"
    assert tokenizer.apply_chat_template(chat[:1])["input_ids"] == ids


def test_stepping_needs_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, numpy; from rlbook.llm.environments.token_env import AdditionVector; env ="
        " AdditionVector(2); env.reset(seed=0);env.step(numpy.array([4, 2]));"
        " print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [(), ("<x>", "then")])
def test_joined_pieces_are_what_the_tokenizer_decodes(words: tuple[str, ...]) -> None:
    codec, rng = character_codec(words=words), np.random.default_rng(0)
    for length in range(40):
        ids = rng.integers(codec.vocabulary_size, size=length)
        assert codec.decode(ids) == codec.backend.decode(ids.tolist(), skip_special_tokens=False)
