"""Several tasks in one environment, and steps in two scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlbook
from rlbook.llm.environments import task_envs
from rlbook.llm.rewards import Completion, language
from rlbook.llm.tasks import AdditionTask, MixtureTask, ReasoningTask, ReverseTask, TaggedCopyTask
from rlbook.llm.tokenizers.tokenizer import character_codec

LATIN = ReasoningTask(4, script="latin")


def mixture(**kwargs: Any) -> Any:
    return rlbook.make("Mixture-v0", **kwargs).unwrapped


def test_steps_are_written_in_the_letters_of_a_script() -> None:
    """4, 11, 19, 24: the last digits 4, 1, 9, 4 are e, b, j, e, where a is 0."""
    assert LATIN.demonstration("4+7+8+5=") == "<think>e,b,j,e</think>4"
    assert ReasoningTask(4, script="greek").demonstration("4+7+8+5=") == "<think>ε,β,κ,ε</think>4"
    mixed = LATIN.worked_answer("4+7+8+5=", ["latin", "greek", "digits", "greek"])
    assert mixed == "<think>e,β,9,ε</think>4" and LATIN.score("4+7+8+5=", mixed) == 1.0
    assert (
        ReasoningTask(3, digits=2, script="latin").demonstration("47+86+75=")
        == "<think>eh,dd,ai</think>08"
    )


@pytest.mark.parametrize(
    ("scripts", "share"),
    [("llll", 1.0), ("gggg", 0.0), ("llgl", 0.75), ("dddd", None), ("lddg", 0.5)],
)
def test_the_share_of_latin_steps_is_the_languages_reward(
    scripts: str, share: float | None
) -> None:
    names = {"l": "latin", "g": "greek", "d": "digits"}
    text = LATIN.worked_answer("4+7+8+5=", [names[letter] for letter in scripts])
    assert language(Completion("4+7+8+5=", "4", text, ended=True)) == share


@pytest.mark.parametrize("name", ["Mixture-v0", "Chat-v0"])
def test_special_tokens_are_of_no_language(name: str) -> None:
    rules: Any = rlbook.make(name).unwrapped.rules
    letters = rules.codec.encode_answer("ab")[:-1]
    ids = [rules.codec.pad, *letters, rules.codec.bos]
    written = rules.to_completion(0, np.array(ids))
    assert written.text == "<pad>ab<bos>"
    assert (language(written), language(written, script="greek")) == (1.0, 0.0)
    assert language(rules.to_completion(0, np.array(ids[:1]))) is None


def test_without_letters_the_vocabulary_is_what_it_was() -> None:
    sizes = [len(task.characters) + len(task.words) + 4 for task in (ReasoningTask(), LATIN)]
    assert sizes == [19, 39]


def test_a_mixture_has_the_prompts_of_its_tasks_and_judges_each_by_its_own() -> None:
    tasks = {"reasoning": LATIN, "addition": AdditionTask()}
    task = MixtureTask(tasks)
    assert task.prompts("train") == LATIN.train + tasks["addition"].train
    assert task.prompts("held_out") == LATIN.held_out + tasks["addition"].held_out
    assert (task.answer("12+34="), task.answer("4+7+8+5=")) == ("46", "4") and task.demonstration(
        "4+7+8+5="
    ) == "<think>e,b,j,e</think>4"
    assert task.score("12+34=", "46") == task.score("4+7+8+5=", "<think>a</think>4") == 1.0
    assert task.score("12+34=", "<think>a</think>46") == 0.0
    assert [task.columns(prompt) for prompt in ("12+34=", "4+7+8+5=")] == [
        {"task": "addition"},
        {"task": "reasoning"},
    ]
    codec = character_codec(task.characters, task.words)
    assert codec.vocabulary_size == 4 + len(task.characters) + 2 and len({*task.characters}) == len(
        task.characters
    )


def test_a_stage_may_show_one_task_alone_in_the_same_spaces() -> None:
    whole, copies = mixture(), mixture(only="tagged_copy")
    assert (
        whole.observation_space == copies.observation_space
        and whole.action_space == copies.action_space
    )
    assert copies.rules.texts == TaggedCopyTask().train and len(whole.rules.texts) == 2 * 7_680
    held_out = mixture(only="reasoning", split="held_out")
    assert (
        held_out.rules.texts == LATIN.held_out
        and held_out.rules.max_new_tokens == whole.rules.max_new_tokens
    )


def test_tasks_that_share_a_prompt_are_refused() -> None:
    with pytest.raises(ValueError, match="the tasks a and b have prompts in common"):
        MixtureTask({"a": ReverseTask(), "b": ReverseTask()})


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        (
            {"tasks": {"reasonin": {}, "addition": {}}},
            r"tasks must be one of .*, got 'reasonin' \(did you mean 'reasoning'\?\)",
        ),
        (
            {"tasks": {"reasoning": {"term": 4}, "addition": {}}},
            "an argument of task 'reasoning' must be one of 'terms', .*, got 'term'",
        ),
        (
            {"tasks": {"reasoning": {"terms": 9}, "addition": {}}},
            "terms must be an integer from 3 to 8, got 9",
        ),
        ({"tasks": {"addition": {}}}, r"a mixture has at least two tasks, got \['addition'\]"),
        (
            {"tasks": ["addition"]},
            r"tasks must be names with their arguments, .*, got \['addition'\]",
        ),
        (
            {"only": "reverse"},
            "only must be one of 'reasoning', 'tagged_copy', or none, got 'reverse'",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rlbook.RequestError, match=sentence):
        rlbook.make("Mixture-v0", **kwargs)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_the_docstring_states_the_facts() -> None:
    env, doc = mixture(), " ".join((task_envs.Mixture.__doc__ or "").split())
    rules = env.rules
    assert "15 360 training and 1 024 held-out prompts" in doc and (
        len(rules.texts),
        len(rules.task.held_out),
    ) == (15_360, 1_024)
    assert (
        "V is 53" in doc
        and rules.codec.vocabulary_size == 53
        and "9 or 12 tokens" in doc
        and {*rules.prompt_lengths} == {9, 12}
    )
    assert (
        "`max_new_tokens` is 12" in doc
        and rules.max_new_tokens == 12
        and "L is 24" in doc
        and rules.context_length == 24
    )
    check_env(rlbook.make("Mixture-v0", render_mode="ansi").unwrapped)


def test_the_vector_form_earns_what_its_demonstrations_earn() -> None:
    vector = task_envs.MixtureVector(4, only="reasoning", split="held_out")
    vector.reset(seed=0)
    answers = [answer for _, answer in vector.answers()[:4]]
    earned = np.zeros(4)
    for step in range(max(map(len, answers))):
        earned += vector.step(np.array([answer[min(step, len(answer) - 1)] for answer in answers]))[
            1
        ]
    assert (earned == 1.0).all() and vector.rows.terminated.all()
