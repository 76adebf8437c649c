"""A run treats an environment, a model and recorded data alike: budget, log, evaluation,
checkpoints, resume bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.agent import Agent, Data, Metrics, Parts, State, Step
from rlbook.data.episodes import Episode, Episodes
from rlbook.errors import RequestError


class Counter(Agent):
    """Counts how often each action was recorded, and takes the most frequent; in an environment,
    how often each was taken."""

    batched = True
    observations = "vector"
    actions = "discrete"
    uses = ("expert",)
    data_kinds = ("Episodes",)
    budget = {"passes": 3}

    def __init__(self, env: Any, config: Any, seed: int = 0, parts: Parts = Parts()) -> None:
        super().__init__(env, config, seed, parts)
        self.counts = np.zeros(int(env.single_action_space.n))
        self.rows: list[float] = []

    def act(self, observation: Any, *, explore: bool = True) -> Any:
        return np.full(len(observation), self.counts.argmax())

    def fit(self, data: Data) -> Iterator[Metrics]:
        for batch in data.minibatches(8):
            self.counts += np.bincount(batch.action.numpy(), minlength=len(self.counts))
            self.rows += batch.obs[:, 0].tolist()
            yield {"rows": float(len(batch))}

    def state_dict(self) -> State:
        return {"counts": self.counts.copy(), "rows": list(self.rows)}

    def load_state_dict(self, state: State) -> None:
        self.counts, self.rows = state["counts"].copy(), list(state["rows"])


class Both(Counter):
    """Learns from an environment too."""

    budget = {"steps": 300}

    def learn(self, step: Step) -> Metrics:
        self.counts += np.bincount(step.action, minlength=len(self.counts))
        return {}


def walks(steps: int = 20, action: int = 1) -> Episodes:
    """One walk on the maze whose observations are numbered: a one-hot of 25 cells, the first entry
    replaced by the step's number."""
    obs = np.zeros((steps, 25), dtype=np.float32)
    obs[:, 0] = np.arange(steps)
    return Episodes([Episode(obs, np.full(steps, action))])


def test_recorded_data_are_learned_from_pass_after_pass() -> None:
    run = rlbook.train(Counter, "Maze-v0", data=walks())
    # 20 rows are 8 + 8 + 4, three times
    assert (run.passes, run.steps, run.unit) == (
        3.0,
        9,
        "minibatches",
    )
    assert run.agent.counts.tolist() == [0, 60, 0, 0]  # type: ignore[attr-defined]
    assert [report["rows"] for report in run.metrics[:3]] == [8, 8, 4]
    assert run.metrics[-1]["passes"] == 3.0 and "eval_return" in run.metrics[-1]


def test_every_row_comes_once_a_pass_in_an_order_of_the_seed() -> None:
    rows = {
        seed: rlbook.train(Counter, "Maze-v0", data=walks(), passes=2, seed=seed).agent.rows
        for seed in (0, 0, 1)
    }  # type: ignore[attr-defined]
    for order in rows.values():
        assert (
            sorted(order[:20]) == sorted(order[20:]) == list(range(20)) and order[:20] != order[20:]
        )
    assert rows[0] != rows[1]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_run_on_data_goes_on_bit_for_bit(cut: int, tmp_path: Path) -> None:
    """In the middle of a pass, at its end and behind it: 3 minibatches make a pass."""
    whole = rlbook.train(Counter, "Maze-v0", data=walks(), steps=7, eval_every=0)
    rlbook.train(Counter, "Maze-v0", data=walks(), steps=cut, eval_every=0, out=tmp_path / "run")
    resumed = rlbook.load(tmp_path / "run", data=walks()).resume(steps=7)
    assert resumed.agent.rows == whole.agent.rows and resumed.passes == whole.passes  # type: ignore[attr-defined]


def test_other_data_than_the_run_was_started_with_are_refused(tmp_path: Path) -> None:
    rlbook.train(Counter, "Maze-v0", data=walks(), steps=2, out=tmp_path / "run")
    assert "data: " in (tmp_path / "run" / "config.yaml").read_text()
    with pytest.raises(
        RequestError, match="data has changed since the run was started: its sha256 was"
    ):
        rlbook.load(tmp_path / "run", data=walks(action=2)).resume(steps=4)


def test_evaluating_needs_no_data(tmp_path: Path) -> None:
    run = rlbook.train(Counter, "Maze-v0", data=walks(), out=tmp_path / "run")
    assert (
        rlbook.evaluate(tmp_path / "run", episodes=1).mean == rlbook.evaluate(run, episodes=1).mean
    )
    assert rlbook.load(tmp_path / "run").passes == 3.0


def test_an_agent_with_two_sources_learns_from_data_where_it_is_given_some() -> None:
    assert Both.sources() == ("environment", "data")
    assert rlbook.train(Both, "Maze-v0", steps=40).unit == "steps"
    run = rlbook.train(Both, "Maze-v0", data=walks())
    assert (run.unit, run.passes) == ("minibatches", 10)  # not its 300 steps in an environment


def test_pairs_are_learned_from_as_data_not_as_the_rows_of_the_environment(tmp_path: Path) -> None:
    """The environment reads the prompt and the chosen answer alone; its vocabulary has the rejected
    one, too, so that the run may learn from the same file."""
    file = tmp_path / "pairs.jsonl"
    rows = ({"prompt": sign, "chosen": "yes", "rejected": "no"} for sign in "abcdefgh")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    where: dict[str, Any] = {"env_kwargs": {"data": str(file)}, "eval_every": 0}
    with pytest.raises(RequestError, match=r"pairs\.jsonl holds pairs of answers.* --data "):
        rlbook.train("reward_model", "Chat-v0", **where)
    with pytest.raises(
        RequestError, match=r"pairs\.jsonl holds pairs .* so that dpo learns from all"
    ):
        rlbook.train("dpo", "Chat-v0", **where)
    for judged in ({"env_kwargs": {"data": str(file), "reward": "length"}}, {"data": file}):
        rlbook.train("dpo", "Chat-v0", steps=1, num_envs=2, group_size=2, **where | judged)
    run = rlbook.train("reward_model", "Chat-v0", data=file, passes=1, **where)
    assert "o" in run.agent.codec.characters  # which "no" alone has


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "q_learning",
            {"data": "x"},
            (
                "q_learning does not learn from recorded data, so data cannot be given; fitted_q,"
                " cql, iql, behavior_cloning, distillation, co_distillation and 5 others do"
            ),
        ),
        (
            "td3",
            {"data": "x"},
            (
                "td3 does not learn from recorded data, so data cannot be given; iql, fitted_q,"
                " cql, behavior_cloning, gail, distillation and 5 others do"
            ),
        ),
        (
            "q_learning",
            {"passes": 2},
            (
                "passes are counted over recorded data, but q_learning was given none; give steps"
                " or episodes"
            ),
        ),
        ("q_learning", {"expert": "x"}, "q_learning has no use for expert, got 'x'"),
        ("q_learning", {"device": "cuda"}, "q_learning has no use for device, got 'cuda'"),
        ("q_learning", {"device": "tpu"}, "got 'tpu' (did you mean 'cpu'?)"),
        (
            "value_iteration",
            {"reward_model": "x"},
            "value_iteration gets no rewards from an environment, so it has no use for a"
            " reward_model",
        ),
        ("q_learning", {"reward_model": "nowhere"}, "reward_model: nowhere"),
        (
            "dpo",
            {"reward_model": "x", "data": "x"},
            "dpo learns from recorded data here, whose rewards a reward_model does not replace",
        ),
        (
            "mcts",
            {"reward_model": "x"},
            "mcts plans in a copy of its environment, whose rewards a reward_model does not"
            " replace",
        ),
        (
            Counter,
            {"episodes": 3},
            "plays no episodes when it learns from recorded data; give passes or steps",
        ),
        (Counter, {"data": "nowhere"}, "nowhere does not exist"),
        (Counter, {"data": walks(), "expert": "nowhere"}, "expert: nowhere"),
        (
            Counter,
            {"data": walks(), "expert": 3},
            "expert must be a run, a run's folder or an agent, got int",
        ),
        (Counter, {"data": walks(), "passes": 0}, "passes must be an integer of at least 1, got 0"),
    ],
)
def test_an_option_without_use_or_sense_is_refused(
    kind: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        rlbook.train(kind, "Maze-v0", **options)
    assert sentence in str(refusal.value)


def test_an_expert_is_a_run_its_folder_or_an_agent(tmp_path: Path) -> None:
    expert = rlbook.train("value_iteration", "Maze-v0", out=tmp_path / "expert")
    for named in (expert, expert.agent, tmp_path / "expert", str(tmp_path / "expert")):
        run = rlbook.train(Counter, "Maze-v0", data=walks(), expert=named)
        assert run.agent.parts.expert.greedy_policy()[0] == expert.agent.greedy_policy()[0]  # type: ignore[union-attr]


def test_an_expert_that_was_trained_on_since_is_noticed(tmp_path: Path) -> None:
    rlbook.train("q_learning", "Maze-v0", episodes=2, out=tmp_path / "expert")
    rlbook.train(
        Counter,
        "Maze-v0",
        data=walks(),
        steps=2,
        expert=str(tmp_path / "expert"),
        out=tmp_path / "run",
    )
    rlbook.load(tmp_path / "expert").resume(episodes=4)
    with pytest.raises(RequestError, match="expert has changed since the run was started"):
        rlbook.load(tmp_path / "run", data=walks()).resume(steps=4)
