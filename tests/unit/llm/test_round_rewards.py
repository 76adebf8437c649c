"""Rewards once a round: one call with all its completions, and the same training as with many."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.interaction.budget import Budget
from rlbook.interaction.round_rewards import round_scorer
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.llm.environments.token_env import AdditionVector
from rlbook.llm.rewards import Completion, edit, mark_batched, print_samples
from rlbook.llm.tokenizers.tokenizer import IDS
from rlbook.runs.storage.state_encoding import encode

EOS = IDS["<eos>"]


class Calls:
    """A batched reward that remembers how many completions each call had."""

    batched = True
    __name__ = "calls"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        self.sizes.append(len(completions))
        return [edit(completion) for completion in completions]

    def __deepcopy__(self, memo: object) -> Calls:
        return self


@mark_batched
def best_of_group(completions: Sequence[Completion]) -> list[float]:
    """1 for the completion of each prompt that is nearest to the answer: needs the whole group."""
    best: dict[str, float] = {}
    for one in completions:
        best[one.prompt] = max(best.get(one.prompt, 0.0), edit(one))
    return [float(edit(one) == best[one.prompt]) for one in completions]


def train(algorithm: str, reward: Any, **more: Any) -> rlbook.Run:
    budget = {"steps": 600, "eval_every": 0, "seed": 1, "num_envs": 32} | more
    return rlbook.train(
        algorithm, "Addition-v0", env_kwargs={"reward": reward}, quiet=True, **budget
    )


@pytest.mark.parametrize("algorithm", ["grpo", "reinforce", "ppo", "dpo", "rejection_sampling"])
def test_a_reward_is_called_once_a_round_with_all_its_completions(algorithm: str) -> None:
    calls = Calls()
    run = train(algorithm, calls, steps=None, episodes=96)
    assert calls.sizes == [32, 32, 32] and len(run.episode_returns) == 96


def test_an_evaluation_calls_it_once_with_all_of_its_episodes() -> None:
    calls = Calls()
    options: dict[str, Any] = {"steps": 100, "eval_every": 0, "quiet": True}
    run = rlbook.train("grpo", "Addition-v0", env_kwargs={"evaluation_reward": calls}, **options)
    calls.sizes.clear()
    assert len(run.evaluate(episodes=40).returns) == 40 and calls.sizes == [40]


@pytest.mark.parametrize(
    "algorithm",
    [
        "grpo",
        "ppo",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("reinforce", "dpo", "rejection_sampling")
        ),
    ],
)
def test_rewards_of_a_round_teach_what_rewards_of_each_step_teach(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = {"exact": 1.0, "edit": 0.2}
    once = train(algorithm, reward)
    monkeypatch.setattr(PolicyAgent, "awaits_round", False)
    each = train(algorithm, reward)
    ours, theirs = encode(once.agent.state_dict()), encode(each.agent.state_dict())
    assert ours[0] == theirs[0]
    for name, array in ours[1].items():
        np.testing.assert_array_equal(array, theirs[1][name], err_msg=name)
    assert once.episode_returns == each.episode_returns
    assert sum("reward/edit" in report for report in once.metrics) > 2
    for report, other in zip(once.metrics, each.metrics, strict=True):
        assert report.keys() == other.keys()
        # the parts are added up in another order: by row and not by the step that ended them
        assert all(
            report[name] == near(value, dtype="float64", terms=64)
            if name.startswith("reward/")
            else report[name] == value
            for name, value in other.items()
        )


def test_a_reward_can_compare_the_completions_of_a_group() -> None:
    run = train("grpo", best_of_group, steps=None, episodes=32)
    groups = np.reshape(run.episode_returns, (-1, run.request.config.group_size))
    assert sorted(map(max, groups.tolist())) == [1.0] * len(groups)


def text_rounds(scoring: str, *, reward: Any = "edit", num_envs: int = 3) -> VectorInteraction:
    found = VectorInteraction(
        AdditionVector(num_envs, reward=reward),
        np.random.default_rng(0),
        rollout="episodes",
        scoring=scoring,
    )
    found.start()
    return found


def write(interaction: VectorInteraction, columns: Sequence[Sequence[int]]) -> list[Any]:
    steps = []
    for column in columns:
        steps.append(interaction.step(np.array(column)))
        interaction.reset_finished()
    return steps


TOKENS = [[EOS, 5, 6], [7, EOS, 8], [7, 7, EOS]]
"""Three completions of one, two and three tokens."""


def test_the_last_step_of_a_round_brings_the_rewards_of_all_its_episodes() -> None:
    each = write(text_rounds("step", reward={"edit": 1.0}), TOKENS)
    once = write(text_rounds("round", reward={"edit": 1.0}), TOKENS)
    earned = [each[i].reward[i] for i in range(3)]
    assert [step.reward[:2].tolist() for step in once] == [[0.0, 0.0]] * 3
    assert [step.final_reward is None for step in once] == [True, True, False]
    assert once[2].final_reward.tolist() == earned and once[2].reward[2] == earned[2]
    assert once[2].info["reward/edit"].astype(np.float32).tolist() == earned
    assert once[0].info is None and all(step.final_reward is None for step in each)


def test_training_that_ends_within_a_round_has_scored_what_has_ended() -> None:
    interaction = text_rounds("round")
    interaction.budget = Budget(steps=5, episodes=None)  # 3 steps, and 2 of the second column
    steps = write(interaction, TOKENS[:2])
    assert np.isnan(steps[1].final_reward).tolist() == [False, False, True]
    assert interaction.cut_short(whole_rounds=False) == 2  # the means of the log are without them
    assert [row[1] for row in interaction.finished] == [
        float(np.float64(interaction.returns[row])) for row in (0, 1)
    ]
    interaction.budget = None
    (last,) = write(interaction, TOKENS[2:])
    assert np.isfinite(last.final_reward).all()
    assert last.final_reward[:2].tolist() == steps[1].final_reward[:2].tolist()
    whole = text_rounds("step")
    write(whole, TOKENS)
    assert interaction.finished == whole.finished  # each is in the log once
    assert not interaction.cut_short(whole_rounds=True) and not whole.cut_short(whole_rounds=True)


@pytest.mark.parametrize("awaits_round", [True, False])
def test_the_log_leaves_out_a_round_that_training_has_cut_short(
    awaits_round: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PolicyAgent, "awaits_round", awaits_round)
    reward = {"exact": 1.0, "length": 0.1}
    two = train("grpo", reward, steps=None, episodes=64, anneal_learning_rate=False)
    # three columns more, in which sums of two digits end, and those of three do not
    run = train("grpo", reward, steps=two.steps + 65, anneal_learning_rate=False)
    *_, second, last = run.metrics
    assert second["episodes"] == 64 < last["episodes"] == len(run.episode_returns) < 96
    assert second["length"] == np.mean(run.episode_lengths[32:64])
    assert max(run.episode_lengths[64:]) < max(run.episode_lengths[32:64])
    assert not [name for name in last if name in second and name.startswith(("re", "length"))]
    lines = len(run.metrics)
    run.train(steps=400)  # its first line would be of the long sums that were left
    assert run.episode_lengths[96:] and "length" not in run.metrics[-1]
    for before, line in itertools.pairwise(run.metrics[lines - 1 : -1]):
        whole = run.episode_lengths[max(before["episodes"], 96) : line["episodes"]]
        assert line.get("length") == (np.mean(whole) if whole else None)
        assert ("reward/exact" in line) == bool(whole)


@pytest.mark.parametrize("reward", ["edit", best_of_group])
def test_a_run_that_goes_on_within_a_round_becomes_the_run_that_never_stopped(reward: Any) -> None:
    constant: dict[str, Any] = {"anneal_learning_rate": False}
    whole = train("grpo", reward, steps=900, **constant)
    part = train("grpo", reward, steps=450, **constant)
    assert part.agent.rollout_data.steps  # it stopped within a round
    part.train(steps=900 - part.steps)
    ours, theirs = encode(part.agent.state_dict()), encode(whole.agent.state_dict())
    for name, array in theirs[1].items():
        np.testing.assert_array_equal(array, ours[1][name], err_msg=name)


def test_whoever_wants_no_rewards_asks_for_none() -> None:
    calls = Calls()
    interaction = text_rounds("never", reward=calls)
    write(interaction, TOKENS)
    assert calls.sizes == [] and [row[1] for row in interaction.finished] == [0.0] * 3


def test_an_unknown_wrapper_gets_each_reward_with_its_step() -> None:
    from gymnasium.vector import VectorWrapper

    class Doubled(VectorWrapper):
        def step(self, actions: Any) -> Any:
            obs, reward, *rest = self.env.step(actions)
            return (obs, 2 * reward, *rest)

    inner = AdditionVector(3, reward="edit")
    assert round_scorer(inner) is inner and round_scorer(Doubled(inner)) is None
    interaction = VectorInteraction(
        Doubled(inner), np.random.default_rng(0), rollout="episodes", scoring="round"
    )
    interaction.start()
    (first, *_) = write(interaction, TOKENS)
    assert first.reward[0] > 0 and first.final_reward is None


def test_a_failing_reward_ends_the_run_in_one_sentence() -> None:
    def bad(completion: Completion) -> float:
        raise KeyError("missing")

    with pytest.raises(rlbook.TrainingError, match=r"reward 'bad' failed on the completion .*"):
        train("grpo", bad)


def test_a_reward_model_is_asked_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlbook.algorithms.imitation.reward_model import RewardModel

    model = rlbook.train("reward_model", "Addition-v0", steps=2, eval_every=0, quiet=True)
    asked: list[int] = []
    plain = RewardModel.score_steps

    def counted(self: Any, obs: Any, action: Any, next_obs: Any, over: Any) -> Any:
        asked.append(int(over.sum()))
        return plain(self, obs, action, next_obs, over)

    monkeypatch.setattr(RewardModel, "score_steps", counted)
    budget = {"episodes": 64, "seed": 1, "eval_every": 0, "num_envs": 32, "quiet": True}
    once = rlbook.train("grpo", "Addition-v0", reward_model=model, **budget)
    assert asked == [32, 32]
    monkeypatch.setattr(PolicyAgent, "awaits_round", False)
    each = rlbook.train("grpo", "Addition-v0", reward_model=model, **budget)
    assert sum(asked[2:]) == 64 and len(asked) > 4
    # float32 sums over the width of the model, in batches of another size
    np.testing.assert_allclose(once.episode_returns, each.episode_returns, rtol=1e-5, atol=1e-5)
    assert once.metrics[-1]["true_return"] == each.metrics[-1]["true_return"]


def test_the_first_samples_of_each_data_source_are_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    env = AdditionVector(3, reward={"exact": 1.0, "edit": 0.5}, num_examine=2)
    interaction = VectorInteraction(
        env, np.random.default_rng(0), rollout="episodes", scoring="round"
    )
    interaction.start()
    prompts = [env.rules.texts[row] for row in env.rows.prompt]
    answers = [env.rules.answers[row] for row in env.rows.prompt]
    write(interaction, TOKENS)
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("-- train, sample") == 2
    for prompt, answer, text in zip(prompts[:2], answers[:2], ["", "1"], strict=True):
        score = 0.5 * edit(Completion(prompt, answer, text, True))
        said = f"[prompt] {prompt}\n[response] {text}\n"
        assert f"{said}[ground_truth] {answer}\n[score] {score:g}\n[reward/exact] 0\n" in told.err
    quiet = AdditionVector(3)
    quiet.rows.score(np.arange(3))
    assert capsys.readouterr().err == ""


def test_each_data_source_has_samples_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    written = [
        Completion("p", None, f"text {index}", True, columns={"data_source": source})
        for index, source in enumerate("aabab")
    ]
    print_samples(written, np.zeros(5), {}, count=1, split="train")
    told = capsys.readouterr().err
    assert told.count("-- train, sample") == 2
    assert "[data_source] a\n[prompt] p\n[response] text 0\n" in told
    assert "[data_source] b\n[prompt] p\n[response] text 2\n" in told


def test_a_chat_prints_its_turns_and_verls_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    from rlbook.llm.environments.chat_env import Chat

    rows = [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": f"{n}+1="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
        }
        for n, source in ((1, "a"), (2, "b"), (3, "a"), (4, "a"))
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    env = Chat(data=str(file), system="0", num_examine=1, max_new_tokens=3)
    for _ in range(2):  # one scored completion is one batch
        env.reset(seed=0)
        while not any(env.step(EOS)[2:4]):
            pass
    told = capsys.readouterr().err
    assert told.count("-- train, sample 1") == 2
    assert "[prompt] system: 0\nuser: " in told and "[ground_truth] " in told
    assert "[data_source] a" in told or "[data_source] b" in told


@pytest.mark.parametrize("bad", [-1, 0.5, "2"])
def test_num_examine_is_a_number_of_samples(bad: Any) -> None:
    with pytest.raises(ValueError, match="num_examine must be an integer of at least 0, got"):
        AdditionVector(2, num_examine=bad)
