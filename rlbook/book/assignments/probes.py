"""Runs a student's file and reports what its functions return: the program of the sandbox, which
imports nothing of rlbook. It knows no right answer.

Standard input: {"text": the file, "asked": [[probe, [case, ...]], ...]}, as JSON.
Standard output, last line: [{"answers": [...]} or {"error": "..."}, ...], one for each of asked.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Case = dict[str, Any]
FILE = "answer.py"


class TableWorld:
    """A small deterministic environment with random starts, made of tables, with gymnasium's
    methods."""

    def __init__(
        self,
        next_state: list[list[int]],
        reward: list[list[float]],
        terminated: list[list[bool]],
        initial: list[float],
        limit: int,
        pixels: list[Any] | None = None,
    ) -> None:
        self.next_state, self.reward, self.terminated = next_state, reward, terminated
        self.initial, self.limit = initial, limit
        self.pixels = None if pixels is None else np.array(pixels, dtype=np.uint8)
        self.observation_space = SimpleNamespace(
            n=len(next_state), shape=() if self.pixels is None else self.pixels.shape[1:]
        )
        self.action_space = SimpleNamespace(n=len(next_state[0]))
        self.rng = np.random.default_rng(0)
        self.state = self.steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.state, self.steps = int(self.rng.choice(len(self.initial), p=self.initial)), 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; the time limit truncates."""
        state, action = self.state, int(action)
        self.state, self.steps = self.next_state[state][action], self.steps + 1
        over = self.terminated[state][action]
        late = self.steps >= self.limit and not over
        return self.observe(), self.reward[state][action], over, late, {}

    def observe(self) -> Any:
        """The state's pixels, or its number."""
        return self.state if self.pixels is None else self.pixels[self.state].copy()


class Additions:
    """Sums to which something hidden is added, and examples of which a third is right."""

    def __init__(self, highest: int, offset: int) -> None:
        numbers = torch.arange(highest + 1)
        self.prompts, self.offset = torch.cartesian_prod(numbers, numbers), offset
        said = [
            (pair, max(sum(pair) + offset + off, 0))
            for pair in self.prompts.tolist()
            for off in (-2, -1, 0, 0, 1, 2)
        ]
        texts = [[*map(int, str(number)), 10, 10][:3] for _, number in said]
        self.examples = torch.tensor([pair for pair, _ in said]), torch.tensor(texts)

    def reward(self, prompt: Tensor, tokens: Tensor) -> Tensor:
        """[B] float32 for prompt [B, 2] and tokens [B, T]."""
        right = [
            10 in text and text[: text.index(10)] == [*map(int, str(sum(pair) + self.offset))]
            for pair, text in zip(prompt.tolist(), tokens.tolist(), strict=True)
        ]
        return torch.tensor(right, dtype=torch.float32)


def linear(weights: list[list[float]]) -> nn.Linear:
    """A layer without bias that has these weights, [A, O]."""
    layer = nn.Linear(len(weights[0]), len(weights), bias=False)
    layer.weight.data = torch.tensor(weights)
    return layer


def leaves(case: Case, names: str) -> list[Tensor]:
    """Some of a case's arrays as float32 tensors that collect gradients."""
    return [torch.tensor(case[name], requires_grad=True) for name in names.split()]


def plain(case: Case, names: str) -> list[Tensor]:
    """Some of a case's arrays as tensors."""
    return [torch.tensor(case[name]) for name in names.split()]


def as_lists(value: object) -> Any:
    """A student's answer as what JSON has; None where nothing came back."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    if isinstance(value, list | tuple):
        return [as_lists(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def gradients(loss: Tensor, *tensors: Tensor) -> list[float]:
    """What reaches the tensors, all in one row; zeros where nothing does."""
    if loss.requires_grad:
        loss.backward()
    found = [torch.zeros_like(item) if item.grad is None else item.grad for item in tensors]
    return torch.cat([item.flatten() for item in found]).tolist()


def frequencies(actions: list[int], num_actions: int) -> list[float]:
    """How often each action was taken, as a share."""
    return [actions.count(action) / len(actions) for action in range(num_actions)]


# dqn_catch


def _batch(student: ModuleType, case: Case) -> Any:
    return student.CatchBatch(*plain(case, "obs action reward next_obs terminated"))


def dqn_target(student: ModuleType, case: Case) -> Any:
    given = plain(case, "reward next_obs terminated")
    return student.td_target(linear(case["target_weights"]), *given, case["gamma"])


def dqn_loss(student: ModuleType, case: Case) -> Any:
    nets = linear(case["weights"]), linear(case["target_weights"])
    return student.dqn_loss(*nets, _batch(student, case), case["gamma"])


def dqn_gradient(student: ModuleType, case: Case) -> Any:
    nets = linear(case["weights"]), linear(case["target_weights"])
    loss = student.dqn_loss(*nets, _batch(student, case), case["gamma"])
    return gradients(loss, nets[0].weight, nets[1].weight)


def dqn_act(student: ModuleType, case: Case) -> Any:
    learner = student.CatchLearner(len(case["obs"]), len(case["weights"]), seed=case["seed"])
    learner.q_net = linear(case["weights"])
    obs = np.array(case["obs"], dtype=np.float32)
    actions = [int(learner.act(obs, case["epsilon"])) for _ in range(case["draws"])]
    return frequencies(actions, len(case["weights"]))


def dqn_update(student: ModuleType, case: Case) -> Any:
    """What both networks say of the batch after each update."""
    learner = student.CatchLearner(
        len(case["obs"][0]),
        3,
        gamma=case["gamma"],
        learning_rate=0.01,
        sync_every=case["sync_every"],
        seed=case["seed"],
    )
    batch, found = _batch(student, case), []
    for _ in range(case["updates"]):
        learner.update(batch)
        found.append([learner.q_net(batch.obs), learner.target_net(batch.obs)])
    return found if case["both"] else [pair[0] for pair in found]


def dqn_train(student: ModuleType, case: Case) -> Any:
    """The action values of every state after training, [S, A]."""
    world = TableWorld(**case["world"])
    learner = student.train(world, steps=case["steps"], gamma=case["gamma"], seed=case["seed"])
    assert world.pixels is not None
    obs = torch.tensor(world.pixels.reshape(len(world.pixels), -1), dtype=torch.float32) / 255
    return learner.q_net(obs).round(decimals=4)


# ppo_maze

ENDINGS = "reward value next_value terminated truncated"


def ppo_gae(student: ModuleType, case: Case) -> Any:
    return student.gae(*plain(case, ENDINGS), case["gamma"], case["lam"])


def ppo_loss(student: ModuleType, case: Case) -> Any:
    return student.policy_loss(*plain(case, "log_prob old_log_prob advantage"), case["clip"])


def ppo_gradient(student: ModuleType, case: Case) -> Any:
    given = leaves(case, "log_prob old_log_prob advantage")
    return gradients(student.policy_loss(*given, case["clip"]), *given)


def ppo_act(student: ModuleType, case: Case) -> Any:
    """How often each action was taken, and the log-probability that was said of it."""
    learner = student.MazeLearner(1, len(case["logits"]), seed=case["seed"])
    learner.logits.data[0] = torch.tensor(case["logits"])
    told: dict[int, float] = {}
    actions = []
    for _ in range(case["draws"]):
        action, log_prob = learner.act(0)
        actions.append(int(action))
        told[int(action)] = float(log_prob)
    return [
        frequencies(actions, len(case["logits"])),
        [told.get(action, 0.0) for action in range(len(case["logits"]))],
    ]


def ppo_update(student: ModuleType, case: Case) -> Any:
    """The policy's logits and the values after an update."""
    learner = student.MazeLearner(len(case["values"]), len(case["logits"][0]), **case["settings"])
    learner.logits.data, learner.values.data = plain(case, "logits values")
    rollout = plain(case, "obs action log_prob reward next_obs terminated truncated")
    learner.update(student.MazeRollout(*rollout))
    return [learner.logits.T[0], learner.logits.T[1], learner.values]


def maze_train(student: ModuleType, case: Case) -> Any:
    """The policy of every state after training [S, A], as logits, and the values as a last
    column."""
    learner = student.train(
        TableWorld(**case["world"]), steps=case["steps"], gamma=case["gamma"], seed=case["seed"]
    )
    return torch.cat([learner.logits, learner.values[:, None]], dim=1).round(decimals=4)


# grpo_sums


def grpo_mask(student: ModuleType, case: Case) -> Any:
    return student.completion_mask(torch.tensor(case["tokens"]))


def grpo_log_probs(student: ModuleType, case: Case) -> Any:
    return student.token_log_probs(*plain(case, "logits tokens"))


def grpo_advantages(student: ModuleType, case: Case) -> Any:
    return student.group_advantages(torch.tensor(case["reward"]))


def grpo_loss(student: ModuleType, case: Case) -> Any:
    return student.grpo_loss(*plain(case, "log_prob old_log_prob advantage mask"), case["clip"])


def grpo_gradient(student: ModuleType, case: Case) -> Any:
    given = leaves(case, "log_prob old_log_prob advantage")
    return gradients(student.grpo_loss(*given, torch.tensor(case["mask"]), case["clip"]), *given)


def grpo_train(student: ModuleType, case: Case) -> Any:
    """The most likely text for every prompt after training, [P, T]."""
    sums = Additions(case["highest"], case["offset"])
    model = student.train(sums, iterations=case["iterations"], seed=case["seed"])
    tokens = torch.zeros(len(sums.prompts), 3, dtype=torch.int64)
    for place in range(3):
        tokens[:, place] = model(sums.prompts, tokens)[:, place].argmax(dim=-1)
    return tokens


# find_the_bug


def walk_returns(student: ModuleType, case: Case) -> Any:
    return student.n_step_returns(
        *plain(case, "reward next_value terminated truncated"), case["gamma"]
    )


def walk_loss(student: ModuleType, case: Case) -> Any:
    """The loss, and what reaches the log-probabilities and the values, in one row."""
    log_probs, value = leaves(case, "log_probs value")
    loss = student.actor_critic_loss(
        log_probs, *plain(case, "action"), value, *plain(case, "returns"), case["entropy_coef"]
    )
    return [loss.item(), *gradients(loss, log_probs, value)]


def walk_update(student: ModuleType, case: Case) -> Any:
    learner = student.WalkLearner(len(case["values"]), len(case["logits"][0]), **case["settings"])
    learner.logits.data, learner.values.data = plain(case, "logits values")
    rollout = plain(case, "obs action reward next_obs terminated truncated")
    for _ in range(3):
        learner.update(student.WalkRollout(*rollout))
    return [learner.logits.T[0], learner.logits.T[1], learner.values]


def walk_act(student: ModuleType, case: Case) -> Any:
    learner = student.WalkLearner(1, len(case["logits"]), seed=case["seed"])
    learner.logits.data[0] = torch.tensor(case["logits"])
    return frequencies([learner.act(0) for _ in range(case["draws"])], len(case["logits"]))


def walk_collect(student: ModuleType, case: Case) -> Any:
    """A rollout in a world in which each state has one way to go: its columns, and where to go on
    from."""
    world = TableWorld(**case["world"])
    learner = student.WalkLearner(world.observation_space.n, 1, seed=0)
    rollout, obs = student.collect(world, learner, int(world.reset(seed=0)[0]), case["steps"])
    return [[float(item) for item in column] for column in rollout] + [[float(obs)] * case["steps"]]


def walk_part(student: ModuleType, case: Case) -> Any:
    """One of the probes above, which the case names."""
    return PROBES[case["part"]](student, case)


PROBES: dict[str, Callable[[ModuleType, Case], Any]] = {
    function.__name__: function
    for function in (
        dqn_target,
        dqn_loss,
        dqn_gradient,
        dqn_act,
        dqn_update,
        dqn_train,
        ppo_gae,
        ppo_loss,
        ppo_gradient,
        ppo_act,
        ppo_update,
        maze_train,
        grpo_mask,
        grpo_log_probs,
        grpo_advantages,
        grpo_loss,
        grpo_gradient,
        grpo_train,
        walk_returns,
        walk_loss,
        walk_update,
        walk_act,
        walk_collect,
        walk_part,
    )
}


class Silence(io.TextIOBase):
    """Where a student's prints go."""

    def write(self, text: str) -> int:
        return len(text)


def load(text: str) -> ModuleType:
    """A student's file as a module."""
    module = ModuleType("answer")
    sys.modules["answer"] = module
    exec(compile(text, FILE, "exec"), vars(module))
    return module


def run_probe(student: ModuleType, name: str, cases: list[Case]) -> dict[str, Any]:
    """The answers to some cases, or what went wrong."""
    try:
        return {"answers": [as_lists(PROBES[name](student, case)) for case in cases]}
    except SystemExit as error:
        return {"error": f"it calls exit(){line_of(error)}"}
    except NotImplementedError:
        return {"error": "not yet"}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}{line_of(error)}"}


def line_of(error: BaseException) -> str:
    """Where in the student's file something went wrong."""
    line, trace = None, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == FILE else line
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def report(text: str, asked: list[tuple[str, list[Case]]]) -> list[dict[str, Any]]:
    """What comes of each probe; the same error for all of them where the file cannot be loaded."""
    try:
        student = load(text)
    except BaseException as error:
        return [{"error": f"{type(error).__name__}: {error}{line_of(error)}"}] * len(asked)
    return [run_probe(student, name, cases) for name, cases in asked]


def main() -> None:
    """Reads what is asked, and prints what comes of it."""
    output, given = sys.stdout, json.load(sys.stdin)
    sys.stdout = Silence()
    torch.set_num_threads(1)
    print(json.dumps(report(given["text"], given["asked"])), file=output, flush=True)


if __name__ == "__main__":
    main()
