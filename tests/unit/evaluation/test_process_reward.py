"""Steps of solutions: where they end, which are right, and a judge that learns it."""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near

import rlbook
from rlbook.evaluation.best_of_n import SampledCompletions, sample_completions
from rlbook.evaluation.process_reward import (
    ProcessReward,
    TextSteps,
    _as_sampled_completions,
    find_steps,
    hard_labels,
    rollout_labels,
)
from rlbook.interaction.environments import EnvRecipe
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.tasks.countdown import CountdownTask
from rlbook.llm.tasks.reasoning import ReasoningTask

TASK = {"terms": 3}
RECIPE = EnvRecipe.from_env("Reasoning-v0", kwargs=TASK)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        # 4 + 7 + 8: the sums are 4, 1, 9
        ("<think>4,1,9</think>9", [(9, 1), (11, 1), (20, 1), (21, 1)]),
        ("<think>4,2,9</think>8", [(9, 1), (11, 0), (20, 1), (21, 0)]),
        ("<think>e,1,κ</think>9", [(9, 1), (11, 1), (20, 1), (21, 1)]),  # letters of two scripts
        ("<think>4,1,9,9</think>9", [(9, 1), (11, 1), (13, 1), (22, 0), (23, 1)]),  # one too many
        ("<think>4,1", [(9, 1), (10, 1)]),  # cut off
        ("9", [(1, 1)]),
        ("8", [(1, 0)]),
        ("", []),
    ],
)
def test_the_steps_of_a_sum_by_hand(text: str, steps: list[tuple[int, int]]) -> None:
    found = ReasoningTask(terms=3).judge_steps("4+7+8=", text)
    assert [right for _, right in found] == [right for _, right in steps]
    assert [end for end, _ in found] == [end for end, _ in steps]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("2*3+7", [1, 1, 1, 1, 1]),
        ("7+3*2", [1, 1, 1, 1, 1]),
        ("7+2+3", [1, 1, 1, 0, 0]),  # 7+2*3 begins so
        ("3*7+2", [1, 1, 0, 0, 0]),
        ("(2*3)+7", [1, 1, 1, 1, 1, 1, 1]),  # redundant parentheses
        ("((7)+(3*2", [1, 1, 1, 1, 1, 1, 1, 1, 0]),  # unfinished
        ("27+3*2", [1, 0, 0, 0, 0, 0]),
        ("2**3", [1, 1, 0, 0]),
        ("2*3)+7", [1, 1, 1, 0, 0, 0]),
    ],
)
def test_the_beginnings_of_an_expression_by_hand(text: str, right: list[int]) -> None:
    found = CountdownTask().judge_steps("2,3,7:13=", text)
    assert found == [(end, float(one)) for end, one in enumerate(right, start=1)]


@pytest.mark.thorough
@pytest.mark.parametrize("prompt", ["2,3,7:20=", "1,3,6:2=", "1,12,12:2="])
def test_a_beginning_is_right_if_a_right_expression_begins_so_by_brute_force(prompt: str) -> None:
    """All expressions of the three numbers with up to two pairs of parentheses, redundant or not,
    around each part: of a beginning with at most two of them every necessary end is there.
    2*(3+7) is 20, 1/3*6 is 2 by way of a fraction, and 12 begins like the number 1."""
    task = CountdownTask()

    def enclose(text: str) -> list[str]:
        return [text, f"({text})", f"(({text}))"]

    texts = {
        text
        for numbers in set(permutations(prompt.split(":")[0].split(",")))
        for first, second in product("+-*/", repeat=2)
        for a, b, c in product(*map(enclose, numbers))
        for whole in (
            *(f"{left}{second}{c}" for left in enclose(f"{a}{first}{b}")),
            *(f"{a}{first}{right}" for right in enclose(f"{b}{second}{c}")),
        )
        for text in enclose(whole)
    }
    right = {text for text in texts if task.score(prompt, text)}
    beginnings = {text[:end] for text in right for end in range(1, len(text) + 1)}
    told = {
        text[:end]: label
        for text in random.Random(0).sample(sorted(texts), 400)
        for end, label in task.judge_steps(prompt, text)[:-1]
        if text[:end].count("(") <= 2
    }
    assert {text for text, label in told.items() if label} == beginnings & told.keys()
    assert 25 < len(beginnings & told.keys()) < len(told) - 25  # there are many of both


def test_a_task_without_steps_says_so() -> None:
    rules = EnvRecipe.from_env("Addition-v0").make().unwrapped.rules  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="task 'addition' has no reasoning steps to judge"):
        find_steps([rules.to_completion(0, np.array([5, 2]))], rules)


@pytest.fixture(scope="module")
def policy() -> Any:
    run = rlbook.train(
        "sft",
        "Reasoning-v0",
        env_kwargs=TASK,
        steps=150,
        batch_size=32,
        learning_rate=1e-3,
        eval_every=0,
        seed=0,
        quiet=True,
    )
    return run.agent


@pytest.fixture(scope="module")
def rules() -> TokenRules:
    return RECIPE.make().unwrapped.rules  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def found(policy: Any) -> SampledCompletions:
    starts, rng = range(1000, 1080), np.random.default_rng(0)
    return sample_completions(policy, policy.policy, RECIPE, starts, 8, rng)


@pytest.mark.thorough
def test_steps_end_where_their_last_token_is(found: SampledCompletions, rules: TokenRules) -> None:
    steps = find_steps(found.finished, rules)
    for row in range(40):
        ids = found.finished[row].ids
        texts = [rules.codec.decode(ids[:end]) for end in steps.end[row][steps.mask[row]]]
        told = rules.task.judge_steps(found.finished[row].prompt, rules.codec.decode(ids))
        assert len(texts) <= len(told)
        assert all(text[-1:] in ",>=" or text == texts[-1] for text in texts)


def test_a_beginning_is_worth_the_share_of_its_continuations_that_are_right(
    policy: Any, found: SampledCompletions, rules: TokenRules
) -> None:
    steps = find_steps(found.finished, rules)
    few = SampledCompletions(*(part[:48] for part in found))  # type: ignore[arg-type]
    label = rollout_labels(
        policy.policy,
        RECIPE,
        few,
        type(steps)(*(a[:48] for a in steps)),
        8,
        np.random.default_rng(1),
    )
    mask = steps.mask[:48]
    assert label.shape == mask.shape and (label[~mask] == 0).all()
    assert np.isin(label * 8, np.arange(9)).all()
    # after the last step nothing but EOS is to come
    ended = [i for i, one in enumerate(few.finished) if one.ended and "</think>" in one.text]
    last = np.array([label[i][mask[i]][-1] for i in ended])
    assert np.abs(last - few.reward[ended]).mean() < 0.05  # at most 0.015 on the seeds 10 to 19
    # right steps are worth more than wrong ones: by 0.13 to 0.84 on the seeds 10 to 19
    right = steps.right[:48][mask] > 0
    assert label[mask][right].mean() > label[mask][~right].mean()


SLIP = 0.4
REACHED = {
    # numbers that are left and how far the last one is off → the probability of a right answer
    (0, 0): 1.0,
    (0, 1): 0.0,
    (0, 2): 0.0,
    (1, 0): 0.6,
    (1, 1): 0.2,  # a slip in the other direction
    (1, 2): 0.0,
    (2, 0): 0.6**2 + 2 * 0.2**2,  # no slip, or two that cancel
    (2, 1): 2 * 0.2 * 0.6,
    (2, 2): 0.2**2,
    (3, 0): 0.6**3 + 6 * 0.6 * 0.2**2,
    (3, 1): 3 * 0.2 * 0.6**2 + 3 * 0.2**3,
    (3, 2): 3 * 0.2**2 * 0.6,
}


class SlippingAdder:
    """Adds each term to the last sum that is written, and copies the last sum as the answer. Each
    of the four numbers slips by +1 or -1 with SLIP / 2 each."""

    def __init__(self, rules: TokenRules) -> None:
        self.codec = rules.codec

    def initial_state(self) -> None:
        return None

    def act(self, obs: Any, rng: np.random.Generator, state: None) -> tuple[Any, Any]:
        slips = rng.choice([0, 1, -1], p=[1 - SLIP, SLIP / 2, SLIP / 2], size=len(obs["length"]))
        texts = [
            self.codec.decode([int(i) for i in row[:length]])
            for row, length in zip(obs["tokens"], obs["length"], strict=True)
        ]
        return np.array([self._next(*pair) for pair in zip(texts, slips, strict=True)]), None

    def _next(self, text: str, slip: int) -> int:
        prompt, written = text.removeprefix("<bos>").split("=")
        sums, close, answer = written.removeprefix("<think>").partition("</think>")
        done = [int(one) for one in sums.split(",") if one]
        if not written:
            following = "<think>"
        elif answer:
            following = ""  # EOS
        elif sums[-1:].isdigit() and not close:
            following = "," if len(done) < 3 else "</think>"
        else:
            term = 0 if close else int(prompt.split("+")[len(done)])
            following = str((sum(done[-1:]) + term + int(slip)) % 10)
        return self.codec.encode_answer(following)[0]


def test_rollout_labels_are_unbiased_with_the_binomial_standard_error(rules: TokenRules) -> None:
    """Of a policy whose probability of coming to a right answer is known from each step."""
    off = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 0), (1, 2, 2), (2, 1, 0), (2, 2, 2)]
    repeated, samples = 30, 6
    texts, left, error = [], [], []
    for row, slips in enumerate(off * repeated):
        terms = [int(term) for term in rules.texts[row].rstrip("=").split("+")]
        sums = [
            str((total + slip) % 10) for total, slip in zip(np.cumsum(terms), slips, strict=True)
        ]
        text = f"<think>{','.join(sums)}</think>{sums[-1]}"
        texts.append(rules.to_completion(row, np.array(rules.codec.encode_answer(text))))
        left.append([3, 2, 1, 0])
        error.append([*slips, slips[-1]])
    found, steps = _as_sampled_completions(texts, rules), find_steps(texts, rules)
    assert steps.mask.all() and (steps.right == (np.array(error) == 0)).all()
    policy: Any = SlippingAdder(rules)
    label = rollout_labels(policy, RECIPE, found, steps, samples, np.random.default_rng(3))
    pairs = list(zip(np.ravel(left).tolist(), np.ravel(error).tolist(), strict=True))
    for pair, p in REACHED.items():
        each = label.ravel()[[one == pair for one in pairs]]
        n, variance = len(each), p * (1 - p) / samples
        assert n >= repeated
        assert abs(each.mean() - p) <= 4 * np.sqrt(variance / n), pair
        if variance:  # of a squared error: its variance is (2 + excess kurtosis) of the square
            spread = np.sqrt((2 + (1 / (p * (1 - p)) - 6) / samples) / n) * variance
            assert abs(((each - p) ** 2).mean() - variance) <= 4 * spread, pair
        hard, some = hard_labels(each), 1 - (1 - p) ** samples
        assert abs(hard.mean() - some) <= 4 * np.sqrt(some * (1 - some) / n), pair
        assert set(hard.tolist()) <= {0.0, 1.0}


def test_rollout_labels_of_a_model_are_its_own_probabilities(
    policy: Any, found: SampledCompletions, rules: TokenRules
) -> None:
    """After </think> two tokens are left, so that only the answer and EOS are right: the label
    estimates P(answer) P(EOS)."""
    steps = find_steps(found.finished, rules)
    rows = np.flatnonzero((steps.mask.sum(axis=1) == 4) & (steps.end[:, 2] == 7))[:40]
    few = SampledCompletions(
        *(part[rows] for part in found[:5]),
        [found.finished[row] for row in rows],  # type: ignore[arg-type]
    )
    third = TextSteps(steps.end[rows, 2:3], steps.right[rows, 2:3], steps.mask[rows, 2:3])
    samples, rng = 64, np.random.default_rng(1)
    label = rollout_labels(policy.policy, RECIPE, few, third, samples, rng)[:, 0]
    exact = np.zeros(len(rows))
    for place, row in enumerate(rows):
        text = found.tokens[row, : found.prompt[row] + 7].tolist()
        ending = rules.codec.encode_answer(found.finished[row].answer)  # the answer and EOS
        with torch.inference_mode():
            logits = policy.policy.model(input_ids=torch.tensor([text + ending])).logits
        log_prob = logits[0, -3:-1].log_softmax(-1)
        exact[place] = log_prob[[0, 1], ending].sum().exp()
    assert ((exact > 0.1) & (exact < 0.9)).sum() >= 10, "the policy is too sure to tell"
    variance = exact * (1 - exact) / samples
    assert abs((label - exact).sum()) <= 4 * np.sqrt(variance.sum())
    assert (abs(label - exact) <= 5 * np.sqrt(variance) + 3 / samples).all()


def test_where_a_text_has_no_more_steps_its_score_is_0(policy: Any, rules: TokenRules) -> None:
    texts = ["<think>4,1,9</think>9", "<think>4", "9"]
    ids = [np.array(rules.codec.encode_answer(text)) for text in texts]
    written = [rules.to_completion(row, each) for row, each in enumerate(ids)]
    steps = find_steps(written, rules)
    assert steps.mask.sum(axis=1).tolist() == [4, 1, 1]
    model = ProcessReward(policy.policy, np.random.default_rng(0))
    score = model.score(_as_sampled_completions(written, rules), steps)
    assert (score[~steps.mask] == 0.0).all()
    assert ((score[steps.mask] > 0.0) & (score[steps.mask] < 1.0)).all()


@pytest.mark.slow
def test_a_process_reward_learns_which_steps_are_right(
    policy: Any, found: SampledCompletions, rules: TokenRules
) -> None:
    from sklearn.metrics import roc_auc_score

    steps = find_steps(found.finished, rules)
    model = ProcessReward(policy.policy, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    losses = model.fit(found, steps, steps.right, rng, passes=12, learning_rate=3e-3)
    # on the seeds 10 to 19 at most 0.58, and an area of at least 0.86
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    score = model.score(found, steps)
    assert score.shape == steps.mask.shape and (score[~steps.mask] == 0).all()
    assert roc_auc_score(steps.right[steps.mask], score[steps.mask]) > 0.75
    lowest = model.judge(found, steps, "min")
    assert lowest.tolist() == near(
        [
            row[mask].min() if mask.any() else 0.0
            for row, mask in zip(score, steps.mask, strict=True)
        ],
        terms=1,
    )


def test_a_round_of_texts_without_steps_earns_nothing(policy: Any, rules: TokenRules) -> None:
    """What was left of a round ended training, where all of it was empty."""
    model = ProcessReward(policy.policy, np.random.default_rng(0))
    empty = [rules.to_completion(row, np.array([rules.codec.eos])) for row in range(2)]
    steps = find_steps(empty, rules)
    assert steps.mask.shape == (2, 1) and not steps.mask.any()
    for how in ("min", "product", "last", "mean", "sum"):
        assert model.reward(rules, how)(empty) == [0.0, 0.0]


def test_it_is_a_reward_of_a_whole_round(
    policy: Any, found: SampledCompletions, rules: TokenRules
) -> None:
    steps = find_steps(found.finished, rules)
    model = ProcessReward(policy.policy, np.random.default_rng(0))
    reward = model.reward(rules, "sum")
    assert reward.batched  # type: ignore[attr-defined]
    asked = reward(found.finished[:16])
    expected = model.judge(found, steps, "sum")[:16]
    width = sum(parameter.shape[-1] for parameter in model.network.parameters())
    assert asked == near(expected.tolist(), dtype="float32", terms=width, size=8.0)
    run = rlbook.train(
        "grpo",
        "Reasoning-v0",
        env_kwargs=TASK | {"reward": reward},
        steps=60,
        num_envs=8,
        eval_every=0,
        quiet=True,
    )
    assert all(np.isfinite(run.episode_returns))


def test_the_model_is_not_the_policy(policy: Any, found: SampledCompletions, rules: Any) -> None:
    before = [parameter.clone() for parameter in policy.policy.parameters()]
    model, steps = (
        ProcessReward(policy.policy, np.random.default_rng(0)),
        find_steps(found.finished, rules),
    )
    model.fit(found, steps, steps.right, np.random.default_rng(1), passes=1)
    assert all(map(torch.equal, before, policy.policy.parameters()))
