"""`--sampler URL`: a server writes the completions that a run learns from, and truncated importance
weights correct what it computes otherwise."""

from __future__ import annotations

import copy
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from parallel_runs import finish, start
from served import RunningServer, served, write_addition_folder

import rlbook
from rlbook.algorithms.policy.episode_scores import weight_by_importance
from rlbook.algorithms.policy.grpo import GRPO, grpo_loss
from rlbook.algorithms.policy.ppo import PPO
from rlbook.cli import main as cli
from rlbook.data.rollout import Batch
from rlbook.errors import TrainingError
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.serving.sampler import RemoteSampler
from rlbook.runs.processes.interrupts import Interrupted

ROUND: dict[str, Any] = {"num_envs": 16, "eval_every": 0, "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_addition_folder(tmp_path_factory.mktemp("models") / "sums")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with served(folder) as running:
        yield running


def rounds(monkeypatch: pytest.MonkeyPatch, agent: type[Any]) -> list[Any]:
    """The agents of a run with their rollouts as they were before each update."""
    seen: list[Any] = []
    prepare: Callable[..., Any] = agent.prepare

    def watch(self: Any) -> Any:
        seen.append((copy.deepcopy(self.policy), copy.copy(self.rollout_data)))
        seen[-1][1].steps, seen[-1][1].log_probs = (
            list(self.rollout_data.steps),
            list(self.rollout_data.log_probs),
        )
        return prepare(self)

    monkeypatch.setattr(agent, "prepare", watch)
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm, agent", [("grpo", GRPO), ("ppo", PPO)])
def test_each_round_is_sampled_with_the_policys_weights(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, algorithm: str, agent: type[Any]
) -> None:
    """What the server says of its tokens is what the learner's policy of that round says of
    them."""
    seen = rounds(monkeypatch, agent)
    before = server.engine.status()["answered"]
    run = rlbook.train(
        algorithm, "Addition-v0", steps=300, sampler=server.url, learning_rate=0.01, **ROUND
    )
    assert len(seen) >= 4 and server.engine.status()["answered"] - before >= 16 * len(seen)
    for policy, rollout in seen:
        batch = policy.batch(rollout, "episode")
        log_prob = policy.evaluate(batch)[0]
        assert_near(
            batch.log_prob[batch.mask],
            log_prob[batch.mask],
            dtype="float32",
            terms=2 * widths(policy.model),
            size=float(policy.logits(batch).detach().abs().max()),
        )
    first, last = (policy.state_dict() for policy, _ in (seen[0], seen[-1]))
    assert any(not torch.equal(first[name], last[name]) for name in first)
    assert run.request.config.importance_cap == 2.0
    weights = [line["importance"] for line in run.metrics if "importance" in line]
    assert weights and weights == near(
        [1.0] * len(weights), dtype="float32", terms=2 * widths(seen[0][0].model), size=100.0
    )


def test_rejection_sampling_learns_from_a_server(server: RunningServer) -> None:
    run = rlbook.train("rejection_sampling", "Addition-v0", steps=200, sampler=server.url, **ROUND)
    assert run.steps >= 200 and any(0 < line.get("kept", 0) <= 1 for line in run.metrics)


@pytest.mark.slow
def test_of_two_processes_one_asks_the_server(server: RunningServer, tmp_path: Path) -> None:
    words = "-m rlbook train grpo Addition-v0 --steps 200 --num-envs 16 --seed 3 --eval-every 0"
    answered = [server.engine.status()["answered"]]
    for processes in (1, 2):
        folder = ["--sampler", server.url, "--out", str(tmp_path / str(processes))]
        done = finish(start(processes, [*words.split(), *folder]), 300)
        assert [code for code, _, _ in done] == [0] * processes, done
        answered.append(server.engine.status()["answered"])
    assert answered[2] - answered[1] == answered[1] - answered[0] > 0
    one, two = ((tmp_path / number / "episodes.csv").read_text() for number in "12")
    assert one == two and one.count("\n") > 32


@pytest.mark.thorough
def test_an_adapter_is_added_to_the_weights_that_the_server_gets(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = rounds(monkeypatch, GRPO)
    rlbook.train(
        "grpo",
        "Addition-v0",
        steps=300,
        sampler=server.url,
        model={"adapter": {"r": 4}},
        learning_rate=0.05,
        **ROUND,
    )
    policy, rollout = seen[-1]
    batch = policy.batch(rollout, "episode")
    assert_near(
        batch.log_prob[batch.mask],
        policy.evaluate(batch)[0][batch.mask],
        dtype="float32",
        terms=2 * widths(policy.model),
        size=float(policy.logits(batch).detach().abs().max()),
    )
    assert any(
        parameter.abs().sum() > 0
        for name, parameter in policy.named_parameters()
        if "lora_B" in name or "lora_b" in name
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "calls", [31, *(pytest.param(calls, marks=pytest.mark.slow) for calls in (30, 32, 33))]
)
def test_a_run_goes_on_with_its_sampler_and_is_evaluated_without(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    options: dict[str, Any] = {**ROUND, "sampler": server.url, "steps": 600}
    whole = rlbook.train("grpo", "Addition-v0", out=tmp_path / "whole", **options)
    act, count = GRPO.act, itertools.count(1)

    def stop(self: Any, *given: Any, **named: Any) -> Any:
        if next(count) == calls:
            signal.raise_signal(signal.SIGTERM)
        return act(self, *given, **named)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(GRPO, "act", stop)
        rlbook.train("grpo", "Addition-v0", out=tmp_path / "part", **options)
    part = rlbook.load(tmp_path / "part").resume()
    assert part.steps == whole.steps
    for ours, theirs in zip(
        part.agent.policy.parameters(), whole.agent.policy.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    before = server.engine.status()
    assert rlbook.evaluate(tmp_path / "whole", episodes=20, explore=True).returns.shape == (20,)
    assert server.engine.status() == before


def test_two_runs_with_one_server_notice_it(server: RunningServer) -> None:
    sampler = RemoteSampler(server.url)
    sampler.check()
    policy = LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0)))
    sampler.load_weights(policy)
    other = RemoteSampler(server.url)
    other.load_weights(LanguageModelPolicy(small_llama(torch.Generator().manual_seed(1))))
    with pytest.raises(TrainingError, match="weights that this run did not send"):
        asked = {"extra_body": {"return_token_ids": True}}
        sampler.complete([[1, 5, 14]], [4], 0, asked)


def test_a_sampler_that_cannot_serve_is_refused_before_anything_is_written(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["grpo", "Addition-v0", "--sampler", "http://127.0.0.1:9/v1"], "cannot be reached"),
        (["grpo", "Addition-v0", "--sampler", "localhost"], "sampler must be a URL such as"),
        (["grpo", "Maze-v0", "--sampler", server.url], "needs a token environment"),
        (["dqn", "Maze-v0", "--sampler", server.url], "has no use for sampler"),
        (["grpo", "Addition-v0", "--sampler", server.root + "/v2"], "no /rlbook/weights"),
    ):
        assert cli.main(["train", *words, "--out", str(tmp_path / "run")]) == 2, words
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_weights_of_another_shape_are_refused_by_the_server(server: RunningServer) -> None:
    policy = LanguageModelPolicy(small_llama(torch.Generator(), layers=1))
    with pytest.raises(TrainingError, match=r"refuses: model: .* lacks the weight"):
        RemoteSampler(server.url).load_weights(policy)


# ---- what the importance weights are for


def gradient(policy: LanguageModelPolicy, batch: Batch, config: Any) -> torch.Tensor:
    """Of GRPO's loss with these rows, each element counting 1."""
    batch.weight = batch.mask.float()
    parameters = list(policy.parameters())
    found = torch.autograd.grad(grpo_loss(policy, batch, config=config).loss, parameters)
    return torch.cat([part.flatten() for part in found]).double()


@pytest.fixture(scope="module")
def tiny() -> LanguageModelPolicy:
    """Five tokens, of which two are written."""
    model = small_llama(
        torch.Generator().manual_seed(0), vocabulary_size=5, hidden_size=8, layers=1
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.7, generator=torch.Generator().manual_seed(5))
    return LanguageModelPolicy(model)


@pytest.mark.parametrize("how", ["temperature", "bfloat16"])
def test_the_gradient_is_right_in_expectation_with_the_weights_and_biased_without(
    tiny: LanguageModelPolicy, how: str
) -> None:
    """The expectation over all 25 completions of two tokens, under the sampler's probabilities μ:
    Σ μ(x) w(x) A(x) ∇ log π(x), with w = π(x) / μ(x) of the whole completion, is the exact policy
    gradient Σ π(x) A(x) ∇ log π(x)."""
    every = torch.tensor(list(itertools.product(range(5), repeat=2)))  # [25, 2]
    advantage = torch.tensor(np.random.default_rng(0).normal(size=25), dtype=torch.float32)
    prompts = {"tokens": torch.tensor([[1, 3, 0, 0]] * 25), "length": torch.full((25,), 2)}
    mask = torch.ones(25, 2, dtype=torch.bool)

    def rows(log_prob: torch.Tensor, importance: torch.Tensor | None, share: torch.Tensor) -> Batch:
        weighted = (advantage * share * 25)[:, None].expand(25, 2)
        return Batch(prompts, every, log_prob, mask, importance=importance, advantage=weighted)

    if how == "temperature":
        sampler = LanguageModelPolicy(tiny.model, temperature=1.6)
    else:
        sampler = LanguageModelPolicy(copy.deepcopy(tiny.model).to(torch.bfloat16))
    with torch.no_grad():
        blank = Batch(prompts, every, torch.zeros(25, 2), mask)
        own = tiny.evaluate(blank)[0]
        theirs = sampler.evaluate(blank)[0].float()
    drawn = theirs.sum(1).exp()  # μ(x)
    assert float(drawn.sum()) == near(
        1.0, dtype="bfloat16" if how == "bfloat16" else "float32", terms=50
    )
    config = GRPO.Config(importance_cap=100.0, importance_of="sequence")
    exact = gradient(tiny, rows(own, None, own.sum(1).exp()), config)
    without = gradient(tiny, rows(own, None, drawn), config)

    weighted = rows(theirs, None, drawn)
    weight_by_importance(weighted, tiny, config)
    assert torch.equal(weighted.log_prob, own)
    corrected = gradient(tiny, weighted, config)
    size = float(exact.abs().max())
    assert_near(corrected, exact, dtype="float32", terms=50 * widths(tiny.model), size=size)
    bias = float((without - exact).abs().max())
    assert bias > (0.05 if how == "temperature" else 1e-4) * size
    assert float((corrected - exact).abs().max()) < bias / 20


@pytest.mark.thorough
def test_what_a_hot_server_samples_teaches_what_the_policy_would_have(
    server: RunningServer, folder: Path
) -> None:
    """2 048 first tokens after "12+34=", drawn at temperature 1.5; a 4 is worth 1. Along the exact
    gradient of π(4), of length 1, the weighted mean is 1 within its standard error, and the
    unweighted one is μ(4) / π(4)."""
    policy = LanguageModelPolicy(folder_model(folder))
    prompt, four, count = [1, 5, 6, 14, 7, 8, 15], 8, 2048
    sampler = RemoteSampler(server.url)
    sampler.load_weights(policy)
    extra = {"return_token_ids": True}
    found = sampler.complete(
        [prompt] * count, [1] * count, 0, {"temperature": 1.5, "extra_body": extra}
    )
    token = torch.tensor([ids for ids, _ in found])  # [N, 1]
    prompts = {"tokens": torch.tensor([prompt] * count), "length": torch.full((count,), 7)}
    mask = torch.ones(count, 1, dtype=torch.bool)
    batch = Batch(prompts, token, torch.tensor([said for _, said in found]), mask)
    config = GRPO.Config(importance_cap=20.0)
    weight_by_importance(batch, policy, config)
    assert batch.importance is not None
    reward = (token == four).double()
    one = batch[:1]
    one.action, one.advantage, one.importance = torch.tensor([[four]]), torch.ones(1, 1), None
    slope = gradient(policy, one, config)  # -∇ log π(4), of one element
    with torch.no_grad():
        log_probs = policy.logits(batch[:1])[0, 0].log_softmax(-1)
    exact = log_probs[four].exp() * slope
    scale = float(slope @ exact / (exact @ exact))  # of one 4, along the exact gradient
    weighted = (batch.importance.double() * reward * scale)[:, 0]
    error = float(weighted.std() / count**0.5)
    assert abs(float(weighted.mean()) - 1.0) < 4 * error
    unweighted = float(reward.mean() * scale)
    assert abs(unweighted - 1.0) > 10 * error
    # and the update does what these numbers say
    batch.advantage = reward.float()
    assert float(gradient(policy, batch, config) @ exact / (exact @ exact)) / count == near(
        float(weighted.mean()), dtype="float32", terms=count * widths(policy.model)
    )
