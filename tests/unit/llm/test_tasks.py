"""The built-in tasks: what they ask, what they take for right, and the environments around them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlbook
from rlbook.llm.environments import task_envs
from rlbook.llm.environments.token_env import TokenEnv
from rlbook.llm.rewards import Completion, correct, exact
from rlbook.llm.tasks import (
    TASKS,
    AdditionTask,
    CountdownTask,
    ModularTask,
    ReasoningTask,
    ReverseTask,
    SortingTask,
    TaggedCopyTask,
    Task,
)
from rlbook.llm.tasks.expressions import parse
from rlbook.llm.tasks.reasoning import final_answer
from rlbook.llm.tasks.task import build_task
from rlbook.llm.tokenizers.tokenizer import IDS, character_codec, character_tokenizer

ALL = {name: kind() for name, kind in TASKS.items()}
VARIANTS = ALL | {
    "addition of 3": AdditionTask(3),
    "addition of 4": AdditionTask(4),
    "without steps": ReasoningTask(steps=False),
}
FORMS = {
    "Sorting": ("7 680", 26, 10, 10),
    "ModularArithmetic": ("15 872", 19, 10, 3),
    "TaggedCopy": ("7 680", 29, 12, 9),
    "Countdown": ("7 675", 23, None, 12),
    "Reasoning": ("7 680", 19, 13, 16),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_no_prompt_is_held_out_and_trained_on_or_stands_twice(name: str) -> None:
    task = VARIANTS[name]
    assert len(task.held_out) == 512 and len({*task.held_out, *task.train}) == len(
        task.all_prompts()
    ) == 512 + len(task.train)


@pytest.mark.parametrize("name", VARIANTS)
def test_answers_and_demonstrations_are_right_and_within_the_vocabulary(name: str) -> None:
    task = VARIANTS[name]
    codec = character_codec(task.characters, task.words)
    for prompt in task.held_out:
        assert (
            task.score(prompt, task.answer(prompt))
            == task.score(prompt, task.demonstration(prompt))
            == 1.0
        )
        assert task.score(prompt, "") == task.score(prompt, task.answer(prompt) + "=") == 0.0
        assert codec.decode(
            codec.encode_answer(task.demonstration(prompt))[:-1]
        ) == task.demonstration(prompt)


@pytest.mark.parametrize(
    ("task", "prompt", "answer"),
    [
        (AdditionTask(2), "12+34=", "46"),
        (AdditionTask(3), "999+111=", "1110"),
        (AdditionTask(4), "1000+9000=", "10000"),
        (ReverseTask(), "abcdef=", "fedcba"),
        (SortingTask(), "72905314=", "01234579"),
        (ModularTask(), "58*77%10=", "6"),  # 4 466
        (ModularTask(), "12-34%10=", "8"),  # -22 = -3 · 10 + 8
        (ModularTask(7), "58*77%7=", "0"),  # 4 466 = 638 · 7
        (TaggedCopyTask(), "ab<cde>fgh=", "[CDE]"),
        (CountdownTask(), "2,3,7:13=", "2*3+7"),
        (ReasoningTask(), "4+7+8+5+9+6=", "9"),  # 39
        (ReasoningTask(3, digits=2), "47+86+75=", "08"),  # 208
    ],
)
def test_answers_by_hand(task: Task, prompt: str, answer: str) -> None:
    assert task.answer(prompt) == answer


def test_the_scratchpad_has_the_sum_so_far_behind_each_term() -> None:
    # 4, 11, 19, 24, 33, 39
    assert ReasoningTask().demonstration("4+7+8+5+9+6=") == "<think>4,1,9,4,3,9</think>9"
    assert ReasoningTask(steps=False).demonstration("4+7+8+5+9+6=") == "9"
    # 47, 133, 208
    assert ReasoningTask(3, digits=2).demonstration("47+86+75=") == "<think>47,33,08</think>08"


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("9", "9"),
        ("<think>1</think>9", "9"),
        ("<think></think>9", "9"),
        ("<think>9", ""),
        ("9</think>", ""),
        ("<think>9</think>1", "1"),
        ("<think>1</think>2</think>3", "3"),
        ("<think>1</think>2<think>", "2<think>"),
    ],
)
def test_only_what_stands_behind_the_scratchpad_is_the_answer(text: str, final: str) -> None:
    assert final_answer(text) == final
    assert ReasoningTask().score("4+7+8+5+9+6=", text) == float(final == "9")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("2*3+7", 1.0),
        ("7+3*2", 1.0),
        ("(3*2)+7", 1.0),
        ("7 + (2 * 3)", 1.0),
        ("7/(1/(2*3))", 0.0),
        ("7+6", 0.0),
        ("2*3+7+0", 0.0),
        ("13", 0.0),
        ("2*3+7=13", 0.0),
        ("2*3-7", 0.0),
        ("2*3+7)", 0.0),
        ("(2*3+7", 0.0),
        ("2**3+7", 0.0),
        ("-2*3+7", 0.0),
        ("02*3+7", 0.0),
        ("__import__('os')", 0.0),
        ("2*3+7#", 0.0),
        ("²*3+7", 0.0),
        ("", 0.0),
        ("()", 0.0),
        ("2*3+ 7", 1.0),
        ("2*3+7.0", 0.0),
        ("2 3+7", 0.0),
    ],
)
def test_countdown_takes_every_expression_that_uses_each_number_once(
    text: str, right: float
) -> None:
    assert CountdownTask().score("2,3,7:13=", text) == right


def test_countdown_takes_fractions_on_the_way_and_numbers_that_stand_twice() -> None:
    task = CountdownTask()
    assert task.score("3,3,8:8=", "8/3*3") == 1.0 and task.score("3,3,8:8=", "8/(3-3)") == 0.0
    assert task.score("3,3,8:24=", "8*3") == 0.0


def test_an_expression_has_its_usual_value() -> None:
    """Python's own arithmetic of fractions, on expressions that this test writes, is what the
    parser is held to."""
    rng = np.random.default_rng(0)

    def written(depth: int) -> tuple[str, Fraction | None]:
        if depth == 0 or rng.random() < 0.3:
            number = int(rng.integers(1, 100))
            return str(number), Fraction(number)
        (left, a), (right, b) = written(depth - 1), written(depth - 1)
        sign = "+-*/"[rng.integers(4)]
        text = f"({left}{sign}{right})"
        if a is None or b is None or (sign == "/" and b == 0):
            return text, None
        return text, {"+": a + b, "-": a - b, "*": a * b, "/": a / (b or 1)}[sign]

    for _ in range(300):
        text, value = written(4)
        found = parse(text)
        assert (None if found is None else found.value) == value
    assert (
        parse("2+3*4-6/3") == (12, (2, 3, 4, 6, 3))
        and parse("8-3-2") == (3, (8, 3, 2))
        and parse("8/4/2") == (1, (8, 4, 2))
    )


@pytest.mark.parametrize(
    "text", ["(" * 10_000, "(" * 30 + "1" + ")" * 30, "9" * 5_000, "1/0", "1/(2-2)"]
)
def test_what_is_too_deep_too_long_or_has_no_value_is_no_expression(text: str) -> None:
    assert parse(text) is None


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", FORMS)
def test_the_docstrings_state_the_facts(name: str) -> None:
    prompts, vocabulary, length, limit = FORMS[name]
    env, doc = (
        rlbook.make(f"{name}-v0").unwrapped,
        " ".join((getattr(task_envs, name).__doc__ or "").split()),
    )
    rules = env.rules  # type: ignore[attr-defined]
    assert f"{prompts} training and 512 held-out prompts" in doc and len(rules.texts) == int(
        prompts.replace(" ", "")
    )
    assert f"V is {vocabulary}" in doc and rules.codec.vocabulary_size == vocabulary
    assert f"`max_new_tokens` is {limit}" in doc and rules.max_new_tokens == limit
    assert f"L is {rules.context_length}" in doc
    assert f"{length or '9 to 13'} tokens" in doc and {*rules.prompt_lengths} == (
        {length} if length else {*range(9, 14)}
    )


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_gymnasium_finds_nothing_to_complain_about(name: str) -> None:
    check_env(rlbook.make(f"{name}-v0", render_mode="ansi").unwrapped)


@pytest.mark.parametrize("name", FORMS)
def test_demonstrations_earn_everything_held_out(name: str) -> None:
    single = rlbook.make(f"{name}-v0", split="held_out").unwrapped
    vector = getattr(task_envs, f"{name}Vector")(4, split="held_out")
    assert isinstance(single, TokenEnv) and single.evaluation_kwargs == {
        "split": "held_out",
        "reward": "correct",
    }
    vector.reset(seed=0)
    answers = [answer for _, answer in vector.answers()[:4]]
    earned = np.zeros(4)
    for step in range(max(map(len, answers))):
        earned += vector.step(np.array([answer[min(step, len(answer) - 1)] for answer in answers]))[
            1
        ]
    assert (earned == 1.0).all() and vector.rows.terminated.all()


def test_another_right_expression_earns_as_much_as_the_tasks_own() -> None:
    env = TokenEnv(CountdownTask(), split="held_out")
    prompt = next(
        text
        for text in env.rules.texts
        if "+" in env.rules.task.answer(text) and "*" not in env.rules.task.answer(text)
    )
    other = "+".join(reversed(env.rules.task.answer(prompt).split("+")))
    number, codec = env.rules.texts.index(prompt), env.codec
    whole = env.rules.to_completion(number, np.array(codec.encode_answer(other)))
    assert (correct(whole), exact(whole)) == (1.0, 0.0)
    # cut off before EOS
    assert (
        correct(env.rules.to_completion(number, np.array(codec.encode_answer(other)[:-1]))) == 0.0
    )
    # nobody says that it is right
    assert correct(Completion("2,3,7:13=", "2*3+7", "7+3*2", ended=True)) == 0.0


def test_a_word_of_the_task_is_one_token() -> None:
    task = ReasoningTask()
    codec = character_codec(task.characters, task.words)
    ids = codec.encode_answer("<think>12</think>3")
    assert (
        len(ids) == 6
        and codec.decode(ids[:-1]) == "<think>12</think>3"
        and codec.vocabulary_size == 4 + len(task.characters) + 2
    )
    assert character_tokenizer(task.characters, task.words)("<think>12</think>3").input_ids == [
        IDS["<bos>"],
        *ids[:-1],
    ]
    with pytest.raises(ValueError, match="no token for '<' in '<thnk>'"):
        codec.encode_answer("<thnk>")


@pytest.mark.parametrize(
    ("env", "kwargs", "sentence"),
    [
        ("Addition-v0", {"digits": 5}, "digits must be an integer from 2 to 4, got 5"),
        ("ModularArithmetic-v0", {"modulus": 1}, "modulus must be an integer from 2 to 99, got 1"),
        ("Reasoning-v0", {"terms": 9}, "terms must be an integer from 3 to 8, got 9"),
        ("Reasoning-v0", {"steps": "no"}, "steps must be true or false, got 'no'"),
    ],
)
def test_bad_arguments_are_one_sentence(env: str, kwargs: dict[str, object], sentence: str) -> None:
    with pytest.raises(rlbook.RequestError, match=sentence):
        rlbook.make(env, **kwargs)


def test_weights_of_two_digits_are_not_taken_for_others() -> None:
    from rlbook.llm.models.starting import starting_model

    two, three = (
        starting_model(AdditionTask(digits), None, np.random.default_rng(0)) for digits in (2, 3)
    )
    assert not (two.lm_head.weight == three.lm_head.weight).all()
    new = starting_model(AdditionTask(3), "new", np.random.default_rng(0))
    assert (new.lm_head.weight == three.lm_head.weight).all()


def test_a_task_of_ones_own_that_changes_is_read_as_it_is_now() -> None:
    task = AdditionTask(2)
    before = TokenEnv(task).rules.answers
    task.train = task.train[:64]
    assert TokenEnv(task).rules.answers == before[:64]
    assert build_task(AdditionTask, 2).shared and not task.shared
