"""What a language model wrote, as it is shown: the probabilities are the model's, the advantages
the algorithm's."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths

import rlbook
from rlbook.interaction.environments import EnvRecipe
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.plots import watch
from rlbook.plots.completions import (
    DisplayedCompletion,
    DisplayedCompletions,
    write,
    writes,
    written_text,
)
from rlbook.plots.terminal import Terminal
from rlbook.runs.storage.state_encoding import encode

ENV = "rlbook/Addition-v0"


@functools.cache
def untrained(algorithm: str, model: str, **hyperparameters: Any) -> Any:
    """A run that has taken one step, the same one for all that ask for it."""
    return rlbook.train(
        algorithm,
        ENV,
        steps=1,
        eval_every=0,
        num_envs=8,
        env_kwargs={"model": model},
        **hyperparameters,
    )


def dense(model: str) -> EnvRecipe:
    """Rewards that differ between wrong answers."""
    return EnvRecipe(ENV, {"model": model, "reward": "edit"})


def test_prompts_stand_together_and_held_out_ones_are_numbered_by_their_seed(model: str) -> None:
    run = untrained("grpo", model, group_size=4)
    recipe = run.request.recipe.for_evaluation()
    rules = recipe.make().unwrapped.rules  # type: ignore[attr-defined]
    written = write(run.agent, recipe, [3, 511])
    assert [completion.prompt for completion in written.completions] == [rules.texts[3]] * 4 + [
        rules.texts[511]
    ] * 4
    left, right = rules.texts[3].rstrip("=").split("+")
    assert written.completions[0].answer == str(int(left) + int(right))


def test_of_an_agent_that_compares_no_groups_each_answer_is_compared_with_the_others_to_its_prompt(
    model: str,
) -> None:
    run = rlbook.train("sft", ENV, steps=1, eval_every=0, env_kwargs={"model": model})
    written = write(run.agent, dense(model), range(20), samples=4)
    assert written.meaning == "relative to its group, in reward units"
    for first in range(0, 20 * 4, 4):
        group = written.completions[first : first + 4]
        mean = sum(completion.reward for completion in group) / 4
        for completion in group:
            expected = np.full(len(completion.tokens), completion.reward - mean)
            assert_near(completion.advantage, expected, dtype="float32", terms=4, size=1.0)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_probabilities_are_those_of_the_model_itself(model: str, temperature: float) -> None:
    from transformers import AutoModelForCausalLM

    run = untrained("grpo", model, temperature=temperature)
    network, tokenizer = AutoModelForCausalLM.from_pretrained(model), character_tokenizer()
    for completion in write(run.agent, dense(model), [0]).completions:
        prompt = tokenizer(completion.prompt)["input_ids"]
        ids = tokenizer.convert_tokens_to_ids(completion.tokens)
        with torch.no_grad():
            logits = network(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / temperature).softmax(-1)[range(len(ids)), ids]
        size = logits.abs().max().item() / temperature  # of an exponent, and p ≤ 1
        assert_near(
            completion.probability, expected, dtype="float32", terms=widths(network), size=size
        )


def test_a_group_advantage_is_the_rewards_distance_from_its_groups_mean(model: str) -> None:
    run = untrained("grpo", model, group_size=4)
    written = write(run.agent, dense(model), range(20))
    assert len({completion.reward for completion in written.completions}) > 1
    for first in range(0, 20 * 4, 4):
        group = written.completions[first : first + 4]
        rewards = np.array([completion.reward for completion in group])
        for completion in group:  # (r - mean) / (standard deviation with G - 1, + 1e-4)
            size = 1 / (rewards.std(ddof=1) + 1e-4)
            expected = np.full(len(completion.tokens), (completion.reward - rewards.mean()) * size)
            assert_near(completion.advantage, expected, dtype="float32", terms=4, size=size)


def test_with_lambda_1_a_critics_advantage_is_the_reward_less_the_value(model: str) -> None:
    run = untrained("ppo", model, gamma=1.0, gae_lambda=1.0, truncation="terminal")
    (bias,) = (
        parameter for parameter in run.agent.policy.critic.parameters() if parameter.numel() == 1
    )
    torch.nn.init.constant_(bias, 0.25)  # the other weights of the head are 0: V is 0.25 everywhere
    written = write(run.agent, dense(model), [0, 1])
    assert "critic" in written.meaning and len(written.completions) == 2 * 4
    for completion in written.completions:
        expected = np.full(len(completion.tokens), completion.reward - 0.25)
        assert_near(completion.advantage, expected, dtype="float32", terms=len(expected), size=1.0)


def test_a_preference_agents_advantage_is_its_implicit_reward(model: str) -> None:
    run = untrained("dpo", model, group_size=4, beta=0.1)
    written = write(run.agent, dense(model), [0])
    for completion in written.completions:  # π is still π_ref
        size = 0.1 * np.abs(np.log(completion.probability)).sum()
        nothing, terms = np.zeros(len(completion.tokens)), widths(run.agent.policy)
        assert_near(completion.advantage, nothing, dtype="float32", terms=terms, size=size)
    lm_head = run.agent.policy.model.lm_head
    with torch.no_grad():
        lm_head.weight *= 1.5
    changed = write(run.agent, dense(model), [0]).completions
    assert any(np.abs(completion.advantage).max() > 0.01 for completion in changed)


def test_greedy_completions_of_a_prompt_are_all_alike_and_sampled_ones_are_not(model: str) -> None:
    agent = untrained("grpo", model, group_size=4).agent
    greedy = write(agent, dense(model), [0], greedy=True).completions
    assert len({tuple(completion.tokens) for completion in greedy}) == 1
    sampled = write(agent, dense(model), [0]).completions
    assert len({tuple(completion.tokens) for completion in sampled}) == 4


def test_writing_is_seeded_and_changes_nothing_in_the_agent(model: str) -> None:
    agent = untrained("grpo", model).agent
    before = repr(encode(agent.state_dict()))
    first, again, other = (write(agent, dense(model), [0], seed=seed) for seed in (1, 1, 2))
    assert (
        [c.tokens for c in first.completions]
        == [c.tokens for c in again.completions]
        != [c.tokens for c in other.completions]
    )
    assert repr(encode(agent.state_dict())) == before


def test_only_language_models_write(model: str) -> None:
    token_run = untrained("grpo", model)
    assert writes(token_run.agent, token_run.request.recipe)
    maze = rlbook.train("grpo", "rlbook/Maze-v0", steps=1, eval_every=0)
    assert not writes(maze.agent, maze.request.recipe)


def test_watching_a_token_run_shows_every_token_with_its_numbers(model: str) -> None:
    run, stream = untrained("grpo", model, group_size=4), io.StringIO()
    rewards = watch(run, episodes=2, stream=stream)
    text = stream.getvalue()
    assert len(rewards) == 2 * 4 and text.count("  reward ") == 8
    assert text.count("right: ") == 2 and "relative to its group" in text and "\x1b" not in text


def test_a_language_models_gif_has_a_frame_for_each_token(model: str, tmp_path: Path) -> None:
    from PIL import Image

    run = untrained("grpo", model)
    watch(run, gif=tmp_path / "film.gif", seed=5)
    from rlbook.plots.films.episode_frames import play_frames

    moments = list(
        play_frames(run.agent, run.request.recipe.for_evaluation(), "ansi", episodes=1, seed=5)
    )
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == len(moments) > 1  # type: ignore[attr-defined]


# The text


class FakeTerminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def completion(advantage: list[float], reward: float = 1.0) -> DisplayedCompletion:
    count = len(advantage)
    return DisplayedCompletion(
        "12+34=",
        "46",
        [str(i % 10) for i in range(count)],
        np.full(count, 0.5),
        np.array(advantage),
        reward,
    )


def test_green_is_better_than_expected_and_red_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = written_text(
        DisplayedCompletions([completion([1.0, -1.0, 0.0])], ""), Terminal(FakeTerminal())
    )
    assert "48;2;88;160;98m 0 " in text  # the book's green behind token 0
    assert "48;2;204;92;60m 1 " in text  # its red behind token 1
    assert "\x1b[1m 2 \x1b[0m" in text  # nothing behind token 2


def test_long_completions_are_wrapped_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = written_text(DisplayedCompletions([completion([0.5] * 40)], ""), Terminal(io.StringIO()))
    rows = text.split("\n")[3:]
    assert len(rows) > 5 and max(map(len, rows)) <= 60
    assert sum(row.count("+0.50") for row in rows) == 40
