"""Rewards without a verifier: certainty by hand, the errata of the notes, and what GRPO makes of
them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import group_advantage
from rlbook.functional.post_training.intrinsic_rewards import (
    debias,
    mean_over_steps,
    mean_probability,
    self_certainty,
)
from rlbook.llm.generation.reference_answers import ReferenceAnswers
from rlbook.networks.distributions import Categorical

Make = Callable[..., Any]


def test_self_certainty_is_the_divergence_of_chance_from_the_policy() -> None:
    """Σ 1/3 ln((1/3) / p) for p = ½, ¼, ¼; Intuitor's logsumexp - mean(logits) is that and ln 3."""
    logits = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log() + 1.7
    found = self_certainty(logits.log_softmax(-1))
    by_hand = sum(math.log((1 / 3) / p) / 3 for p in (0.5, 0.25, 0.25))
    assert found.item() == near(by_hand, terms=3, size=math.log(4))
    intuitors = (logits.logsumexp(-1) - logits.mean(-1)).item()
    assert intuitors == near(by_hand + math.log(3), terms=6, size=2)
    chance = torch.full((4, 5), -math.log(5))
    assert_near(self_certainty(chance), torch.zeros(4), terms=5, size=math.log(5))


def test_certainty_and_entropy_do_not_agree_on_who_is_surer() -> None:
    """Ruling one action out entirely is worth much to KL(U ‖ π), and hardly anything to the
    entropy."""
    split = torch.tensor([0.499999, 0.499999, 2e-6]).log()
    leaning = torch.tensor([0.8, 0.1, 0.1]).log()
    assert self_certainty(split) > self_certainty(leaning)
    assert Categorical(split).entropy() > Categorical(leaning).entropy()


def test_entropy_in_nats_is_that_in_bits_times_ln_2() -> None:
    """The notes write log₂: a fair coin has 1 bit, .693 nats. A reward in bits acts as one in nats
    with 1.44 times the coefficient."""
    coin = Categorical(torch.zeros(2)).entropy().item()
    assert coin == near(math.log(2), dtype="float32", terms=2)
    assert coin / math.log(2) == near(1.0, dtype="float32", terms=2)


def test_one_impossible_token_costs_the_mean_its_share() -> None:
    """Four tokens of probability .9, one of 1e-6: the mean is 3.6 / 5; padding is nothing."""
    log_prob = torch.tensor([[0.9, 0.9, 0.9, 0.9, 1e-6, math.nan]], dtype=torch.float64).log()
    mask = torch.tensor([[True] * 5 + [False]])
    assert mean_probability(log_prob, mask).item() == near((4 * 0.9 + 1e-6) / 5, terms=5)
    assert mean_probability(log_prob, torch.zeros_like(mask)).item() == 0.0


def test_clip_names_the_value_first() -> None:
    """The notes' clip(0, 1, r - r') would be min(max(0, 1), r - r') in torch's order: negative
    where reasoning does harm."""
    gain = torch.tensor([0.3, -0.2, 1.4])
    assert_near(debias(gain, torch.zeros(3)), torch.tensor([0.3, 0.0, 1.0]))
    misread = torch.clamp(torch.zeros(3), torch.ones(3), gain)
    assert misread[1] < 0


def test_too_hard_and_too_easy_prompts_both_have_a_small_spread() -> None:
    """The notes say that too hard ones have a large one. Probabilities near 0 cannot differ by
    much, and neither can those near 1."""
    rng = np.random.default_rng(0)
    spread = [
        np.std(1 / (1 + np.exp(-(middle + rng.normal(size=1000))))) for middle in (-6.0, 0.0, 6.0)
    ]
    assert max(spread[0], spread[2]) < 0.1 * spread[1]


def test_the_mean_over_steps_leaves_padding_out() -> None:
    value = torch.tensor([[1.0, 3.0, math.nan], [5.0, math.nan, math.nan]])
    assert mean_over_steps(value, value.isfinite()).tolist() == [2.0, 5.0]


@pytest.mark.parametrize("name", ["self-certainty", "entropy", "log-probability", "trajectory"])
def test_grpo_compares_what_the_policy_pays_itself(stage: Make, scripted: Make, name: str) -> None:
    theatre = stage(
        "grpo", scripted(), num_envs=8, group_size=4, episode_reward=name, learning_rate=1e-2
    )
    theatre.learn(2)
    theatre.round()
    batch, metrics = theatre.agent.prepare()
    with torch.no_grad():
        log_probs = theatre.agent.policy.distributions(batch).log_probs
    step = {
        "self-certainty": -math.log(3) - log_probs.sum(-1) / 3,
        "entropy": (log_probs.exp() * log_probs).sum(-1),
        "log-probability": log_probs.gather(-1, batch.action[..., None])[..., 0],
        "trajectory": log_probs.gather(-1, batch.action[..., None])[..., 0],
    }[name]
    whole = torch.sum if name == "trajectory" else torch.mean
    reward = torch.stack([whole(row[counts]) for row, counts in zip(step, batch.mask, strict=True)])
    layers, size = widths(theatre.agent.policy), reward.abs().max().item()
    assert metrics["episode_reward"] == near(
        reward.mean().item(), dtype="float32", terms=layers, size=size
    )
    # what rounding does to a reward counts in units of the group's standard deviation
    spread = reward.view(-1, 4).std(1).min().item()
    assert_near(batch.advantage[:, 0], group_advantage(reward, 4), terms=layers, size=size / spread)


def test_certainty_of_continuous_actions_is_refused_and_their_likelihood_is_not(
    stage: Make, scripted: Make
) -> None:
    with pytest.raises(
        ValueError,
        match=(
            "episode_reward 'self-certainty' compares with random actions, "
            "so it needs discrete actions"
        ),
    ):
        stage("grpo", scripted(True), num_envs=8, group_size=4, episode_reward="self-certainty")
    assert stage(
        "grpo", scripted(True), num_envs=8, group_size=4, episode_reward="log-probability"
    ).learn(1)


def test_being_paid_for_certainty_makes_the_policy_certain_of_anything(
    stage: Make, scripted: Make
) -> None:
    theatre = stage(
        "grpo", scripted(), num_envs=32, group_size=8, episode_reward="entropy", learning_rate=3e-2
    )
    logged = theatre.learn(60)
    assert (
        logged[-1]["entropy"] < 0.3 * logged[0]["entropy"]
        and logged[-1]["episode_reward"] > logged[0]["episode_reward"]
    )


# ---- the probability of the right answer


def reasoning(stage: Make, **options: Any) -> Any:
    env = rlbook.make("Reasoning-v0", terms=3, model="new")
    return stage("grpo", env, num_envs=4, group_size=2, episode_reward="answer", **options)


def written(theatre: Any, texts: list[str]) -> tuple[Any, list[str]]:
    """A batch of completions to the prompts of a reset, EOS included where a text ends with a dot;
    and the right answers."""
    rules = theatre.env.unwrapped.rules
    ids = [
        rules.codec.encode_answer(text.rstrip("."))[: None if text.endswith(".") else -1]
        for text in texts
    ]
    rows = theatre.interaction.obs
    prompts = [
        rules.codec.decode(tokens[1:length])
        for tokens, length in zip(rows["tokens"], rows["length"], strict=True)
    ]
    action, mask = torch.zeros(4, 12, dtype=torch.long), torch.zeros(4, 12, dtype=torch.bool)
    for row, tokens in enumerate(ids):
        action[row, : len(tokens)], mask[row, : len(tokens)] = torch.tensor(tokens), True
    obs = {name: torch.from_numpy(np.asarray(part)) for name, part in rows.items()}
    return Batch(obs, action, torch.zeros(4, 12), mask), [
        rules.task.answer(prompt) for prompt in prompts
    ]


def test_the_right_answer_takes_the_place_of_the_one_behind_the_steps(stage: Make) -> None:
    theatre = reasoning(stage)
    batch, answers = written(
        theatre,
        ["<think>12</think>99.", "<think>1</think>2</think>3.", "<think>12</think>9", "77."],
    )
    right, codec = theatre.env.unwrapped.answer_replacer()(batch), theatre.env.unwrapped.rules.codec
    texts = [
        codec.decode(ids[mask])
        for ids, mask in zip(right.after_steps.action, right.after_steps.mask, strict=True)
    ]
    steps = [
        "<think>12</think>",
        "<think>1</think>2</think>",
        "<think>12</think>",
        "<think></think>",
    ]
    assert texts == [
        f"{before}{answer}<eos>" for before, answer in zip(steps, answers, strict=True)
    ]
    judged = [
        codec.decode(ids[weight > 0])
        for ids, weight in zip(right.after_steps.action, right.after_steps.weight, strict=True)
    ]
    assert judged == answers  # the tokens of y* alone: EOS is no part of the answer
    alone = [
        codec.decode(ids[mask])
        for ids, mask in zip(right.alone.action, right.alone.mask, strict=True)
    ]
    assert alone == [f"<think></think>{answer}<eos>" for answer in answers]
    assert right.well_formed.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_reward_is_what_steps_add_and_a_tenth_for_the_form(stage: Make) -> None:
    """.9 clip(r - r', 0, 1) + .1 with r and r' as means of exp(log π) over the answer's tokens;
    nothing without the form."""
    theatre = reasoning(stage)
    agent = theatre.agent
    with torch.no_grad():  # away from the reference, which gives r'
        for parameter in agent.policy.parameters():
            parameter.mul_(3.0)
    batch, _ = written(
        theatre, ["<think>12</think>9", "77.", "<think>12</think>99.", "<think>3</think>3."]
    )
    right = theatre.env.unwrapped.answer_replacer()(batch)
    both = ((agent.policy, right.after_steps), (agent.reference, right.alone))
    with torch.no_grad():
        pairs = [zip(policy.evaluate(rows)[0], rows.weight, strict=True) for policy, rows in both]
        log_probs = [[row[weight > 0] for row, weight in each] for each in pairs]
    means = [torch.stack([log_prob.exp().mean() for log_prob in each]) for each in log_probs]
    expected = (0.9 * (means[0] - means[1]).clamp(0, 1) + 0.1) * torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert bool((means[0] - means[1] > 0.1)[2:].all()), "clipped, r' would not be seen"
    # a probability is off by no more than its logarithm
    size = max(-log_prob.min().item() for each in log_probs for log_prob in each)
    found = agent.reward(agent.policy, agent.reference, batch)
    assert_near(found, expected, terms=widths(agent.policy.model), size=size)
    assert theatre.learn(1)[0]["episode_reward"] >= 0.0


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (
            "Maze-v0",
            "episode_reward 'answer' needs an environment with reference answers",
        ),
        (
            "Addition-v0",
            (
                "episode_reward 'answer' needs reasoning steps that end with '</think>', "
                "but the vocabulary has no such token"
            ),
        ),
    ],
)
def test_where_nobody_writes_steps_there_is_nothing_to_judge(
    stage: Make, env: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        stage("grpo", env, num_envs=4, group_size=2, episode_reward="answer")


def test_a_prompt_with_two_answers_is_refused(stage: Make) -> None:
    """A round does not say which row an episode came from."""
    rules = reasoning(stage).env.unwrapped.rules
    twice = copy.copy(rules)
    twice.prompts = np.concatenate([rules.prompts, rules.prompts[:1]])
    twice.prompt_lengths = np.concatenate([rules.prompt_lengths, rules.prompt_lengths[:1]])
    twice.answers = [*rules.answers, rules.answers[0]]
    ReferenceAnswers(twice)
    twice.answers = [*rules.answers, "none"]
    with pytest.raises(ValueError, match="needs one answer to each prompt, but those of example 1"):
        ReferenceAnswers(twice)
