"""DPO on recorded pairs: one class on walks and on texts, learning as well as numbers say, and
resumed bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.algorithms.policy.dpo import DPO
from rlbook.data.episodes import Episode, Pairs
from rlbook.llm.tasks import AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_codec
from rlbook.runs.storage.state_encoding import encode

FAST: dict[str, Any] = {"num_envs": 8, "eval_every": 0}


def walk(actions: list[int]) -> Episode:
    """What a walk through the maze looks like to the agent: cells as one-hot vectors, until the
    goal or the end of the list."""
    env = rlbook.make("Maze-v0")
    cells, taken, rewards = [env.reset(seed=0)[0]], [], []
    for action in actions:
        cell, reward, terminated, _, _ = env.step(action)
        taken, rewards, cells = [*taken, action], [*rewards, reward], [*cells, cell]
        if terminated:
            break
    size = int(env.observation_space.n)  # type: ignore[attr-defined]
    return Episode(
        np.eye(size, dtype=np.float32)[cells[:-1]],
        np.array(taken),
        np.array(rewards, dtype=np.float32),
        terminated,
    )


def walks() -> Pairs:
    """The shortest way, of value iteration, against forty walks at random."""
    planner: Any = rlbook.train("value_iteration", "Maze-v0", gamma=0.99).agent
    policy, env, way = np.asarray(planner.greedy_policy()), rlbook.make("Maze-v0"), []
    cell, over = env.reset(seed=0)[0], False
    while not over:
        way.append(int(policy[cell]) if policy.ndim == 1 else int(policy[cell].argmax()))
        cell, _, over, _, _ = env.step(way[-1])
    rng = np.random.default_rng(0)
    return Pairs([walk(way)] * 40, [walk(rng.integers(4, size=20).tolist()) for _ in range(40)])


def texts() -> Pairs:
    """Right answers of Addition-v0 against right answers to other sums, of another length or
    not."""
    task, codec = AdditionTask(), character_codec()
    prompts, answers = (
        task.train[:64],
        [codec.encode_answer(task.answer(prompt)) for prompt in task.train[:65]],
    )
    encoded = [np.array(row) for row in codec.encode_prompts(prompts)]
    better, worse = (
        [Episode(obs, np.array(answers[i + k])) for i, obs in enumerate(encoded)] for k in (0, 1)
    )
    return Pairs(better, worse)


@pytest.mark.thorough
def test_recorded_walks_and_recorded_texts_are_learned_from_by_one_class() -> None:
    """The walk that was always preferred becomes the greedy one: 7 · -1 + 10 = 3.

    The last pass of three other runs on texts had a loss of .415 to .452 and was right about .88 to
    1 of the pairs; ln 2 = .693 and .5 is where it begins. On walks, five runs ended between .31 and
    .333, and were right about all.
    """
    maze = rlbook.train(
        "dpo", "Maze-v0", data=walks(), passes=40, nll_coef=1.0, batch_size=20, **FAST
    )
    tokens = rlbook.train(
        "dpo", "Addition-v0", data=texts(), passes=20, batch_size=16, learning_rate=1e-3, **FAST
    )
    assert type(maze.agent) is type(tokens.agent) is DPO
    assert rlbook.evaluate(maze, episodes=1).mean == 7 * -1 + 10
    for run, loss, accuracy in ((maze, 0.45, 0.95), (tokens, 0.55, 0.75)):
        last = {
            name: np.mean([report[name] for report in run.metrics[-4:]])
            for name in ("preference_loss", "accuracy")
        }
        assert last["preference_loss"] < loss and last["accuracy"] > accuracy
        assert run.agent.rounds == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", [1, 5])
def test_a_run_on_recorded_pairs_is_taken_up_bit_for_bit(tmp_path: Path, cut: int) -> None:
    """Cut after its first update, and between two passes of three minibatches each."""
    # the budget does not matter then
    options: dict[str, Any] = FAST | {
        "batch_size": 16,
        "anneal_learning_rate": False,
    }
    data = walks()
    pairs = [Pairs(data.better, data.worse) for _ in range(3)]
    whole = rlbook.train("dpo", "Maze-v0", data=pairs[0], steps=8, **options)
    rlbook.train("dpo", "Maze-v0", data=pairs[1], steps=cut, out=tmp_path / "run", **options)
    part = rlbook.load(tmp_path / "run", data=pairs[2])
    assert part.agent.optimizer.steps == cut  # type: ignore[attr-defined]
    parts = part.resume(steps=8)
    assert snapshot(whole) == snapshot(parts)


def snapshot(run: rlbook.Run) -> tuple[str, dict[str, bytes]]:
    skeleton, arrays = encode(run.agent.state_dict())
    return json.dumps(skeleton), {name: array.tobytes() for name, array in arrays.items()}
