"""Action masks in recordings: they are written, read again, and kept to in targets and
likelihoods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import near
from gymnasium import spaces
from masked_doors import GAMMA, LEADS_TO, OPEN, PAYS, Doors

import rlbook
from rlbook.agent import Step
from rlbook.data.episodes import Episode, Episodes, collate
from rlbook.data.files import load
from rlbook.data.minari_files import write_minari
from rlbook.data.recorded import RecordedEpisode, to_episode
from rlbook.data.replay import Transitions
from rlbook.data.transitions import Steps
from rlbook.errors import RequestError
from rlbook.functional.value_losses import conservative_gap
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.registry import agent_class
from rlbook.runs.demonstrations import EpisodeRecorder
from rlbook.runs.episode_recording import record

ENV = "tests/RecordedDoors-v0"
COSTS = 20.0
"""What each step costs more than in `masked_doors`, so that a closed door, which nobody tried and
whose value stays near 0, would look best."""
ENOUGH = OPEN | ~OPEN.any(axis=1, keepdims=True)
"""[6, 3], the masks as they are recorded: at an end everything is allowed."""


class CostlyDoors(Doors):
    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        room, paid, *rest = super().step(action)
        return room, paid - COSTS, *rest


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    gymnasium.register(ENV, CostlyDoors)
    yield
    del gymnasium.registry[ENV]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors") / "walks"
    record(ENV, folder, episodes=60, seed=10)
    return folder


def read(folder: Path, algorithm: str = "fitted_q") -> Episodes:
    env = gymnasium.make(ENV)
    data = load(folder, AdaptedEnv(env, adapt_to(agent_class(algorithm), env, None)))
    assert isinstance(data, Episodes)
    return data


def rooms(one_hot: torch.Tensor) -> np.ndarray:
    return one_hot.numpy().argmax(axis=1)


def test_a_recording_holds_the_masks_of_both_ends_of_a_step(recording: Path) -> None:
    rows = Steps(read(recording).episodes).rows
    assert rows.action_mask is not None and rows.next_action_mask is not None
    seen, after = rooms(rows.obs), LEADS_TO[rooms(rows.obs), rows.action.numpy()]
    assert len(np.unique(seen)) == 4
    assert (rows.action_mask.numpy() == ENOUGH[seen]).all()
    assert (rows.next_action_mask.numpy() == ENOUGH[after]).all()
    batch = read(recording)[[0, 1]]
    assert batch.action_mask is not None
    assert (batch.action_mask.numpy() == ENOUGH[rooms(batch.obs)]).all()


class ShownMasks(gymnasium.ObservationWrapper):
    """The doors, whose observation holds its mask, as other libraries record them."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict(
            observation=env.observation_space, action_mask=spaces.MultiBinary(3)
        )

    def observation(self, observation: int) -> dict[str, Any]:
        return {"observation": observation, "action_mask": ENOUGH[observation].astype(np.int8)}


def test_masks_in_the_recorded_observations_are_masks(recording: Path, tmp_path: Path) -> None:
    walked, episodes = read(recording).episodes[:3], []
    for each in walked:
        assert each.last_obs is not None
        seen = np.concatenate([each.obs, each.last_obs[None]]).argmax(axis=1)
        shown = [{"observation": room, "action_mask": OPEN[room]} for room in seen]
        episodes.append(
            RecordedEpisode(
                shown, each.action, [0.0] * len(each.action), each.terminated, False, 10
            )
        )
    write_minari(tmp_path, episodes, ShownMasks(gymnasium.make(ENV)), policy="walks")
    one, other = Steps(read(tmp_path).episodes).rows, Steps(walked).rows
    assert torch.equal(one.obs, other.obs)
    assert one.action_mask is not None and other.action_mask is not None
    assert torch.equal(one.action_mask, other.action_mask)


def test_without_masks_nothing_is_recorded_of_them(tmp_path: Path) -> None:
    record("Maze-v0", tmp_path / "walks", episodes=2, seed=10)
    env = gymnasium.make("rlbook/Maze-v0")
    data = load(tmp_path / "walks", AdaptedEnv(env, adapt_to(agent_class("fitted_q"), env, None)))
    assert isinstance(data, Episodes) and data[[0]].action_mask is None
    assert Steps(data.episodes).rows.next_action_mask is None


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["fitted_q", "cql"])
def test_targets_are_over_the_recorded_masks(recording: Path, algorithm: str) -> None:
    settings = {"conservative_coef": 0.0} if algorithm == "cql" else {}
    run = rlbook.train(
        algorithm,
        ENV,
        data=recording,
        steps=2_000,
        seed=10,
        gamma=GAMMA,
        hidden_sizes=(),
        learning_rate="linear(0.1, 0.0)",
        eval_every=0,
        quiet=True,
        **settings,
    )
    agent: Any = run.agent
    value = np.zeros(len(OPEN))
    for _ in range(200):
        exact = np.where(OPEN, PAYS - COSTS + GAMMA * value[LEADS_TO], -np.inf)
        value = np.where(OPEN.any(axis=1), exact.max(axis=1), 0.0)
    found = agent.action_values(np.arange(len(OPEN)))
    # a target that took a closed door would be off by ½ · 20 or more
    assert np.abs(found - exact)[OPEN].max() < 0.2


def test_the_conservative_term_leaves_forbidden_actions_alone() -> None:
    q = torch.tensor([[1.0, 7.0, 2.0]], requires_grad=True)
    gap = conservative_gap(q, torch.tensor([0]), torch.tensor([[True, False, True]]))
    assert gap.item() == near(math.log(math.e + math.e**2) - 1, dtype="float32", terms=3)
    gap.backward()
    assert q.grad is not None and q.grad[0, 1] == 0.0


@pytest.mark.parametrize("algorithm", ["behavior_cloning", "iql"])
def test_likelihoods_are_over_the_recorded_masks(recording: Path, algorithm: str) -> None:
    """Before it has learned, a policy is nearly uniform: over the open doors, which are one or two,
    not over all three."""
    settings = {"inverse_temperature": 0.0} if algorithm == "iql" else {}
    run = rlbook.train(
        algorithm,
        ENV,
        data=recording,
        steps=1,
        batch_size=1_000,
        learning_rate=1e-9,
        eval_every=0,
        quiet=True,
        **settings,
    )
    found = run.metrics[-1]["loss" if algorithm == "behavior_cloning" else "policy_loss"]
    open_doors = OPEN[rooms(Steps(read(recording).episodes).rows.obs)].sum(axis=1)
    # the output layer begins at 1 % of its usual size
    assert abs(found - np.log(open_doors).mean()) < 0.05 < math.log(3) - math.log(2)


def test_episodes_of_several_lengths_allow_everything_in_their_padding() -> None:
    masks = np.array([[True, False], [False, True], [True, True]])
    obs, reward = np.eye(3, dtype=np.float32), np.zeros(2, dtype=np.float32)
    long = Episode(obs[:2], np.array([0, 1]), reward, action_masks=masks)
    short = Episode(obs[:1], np.array([1]), reward[:1])
    batch = collate([long, short])
    assert batch.action_mask is not None
    assert batch.action_mask.tolist() == [masks[:2].tolist(), [[True, True], [True, True]]]
    rows = Steps([long, short]).rows
    assert isinstance(rows, Transitions) and rows.next_action_mask is not None
    assert rows.next_action_mask.tolist() == [*masks[1:].tolist(), [True, True]]
    assert long.digest() != Episode(obs[:2], np.array([0, 1]), reward).digest()


def test_an_action_that_was_taken_was_possible() -> None:
    masks = np.array([[True, False], [True, True]])
    env = gymnasium.make(ENV)
    adapted = AdaptedEnv(env, adapt_to(agent_class("fitted_q"), env, None))
    two = spaces.Discrete(2)
    episode = to_episode(
        np.array([0, 4]), np.array([1]), np.array([0.0]), True, adapted.adaptation, two, masks
    )
    assert episode.action_masks is not None
    assert episode.action_masks.tolist() == [[True, True], [True, True]]
    assert masks[0].tolist() == [True, False]


def test_masks_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path) -> None:
    env = gymnasium.make(ENV)
    wrong = RecordedEpisode([0, 1], [0], [0.0], False, True, 0, np.ones((2, 4), dtype=bool))
    write_minari(tmp_path / "walks", [wrong], env, policy="nobody")
    with pytest.raises(RequestError, match="3 entries, one per action"):
        read(tmp_path / "walks")
    with pytest.raises(ValueError, match=r"allow an action in every row, got bool \[2, 3\]"):
        Episode(np.eye(1), np.array([0]), action_masks=np.zeros((2, 3), dtype=bool))


def test_demonstrations_that_are_cut_keep_their_masks() -> None:
    run = rlbook.train(
        "behavior_cloning",
        "Taxi-v4",
        demonstrations=20,
        steps=1,
        learning_rate=1e-9,
        eval_every=0,
        quiet=True,
    )
    assert run.metrics[-1]["loss"] < math.log(6) - 0.3  # Taxi allows six actions nowhere


def test_recorded_play_takes_as_many_random_actions_as_it_is_told(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"policy": "optimal", "episodes": 5}
    best, mixed = (
        record("Maze-v0", tmp_path / str(epsilon), epsilon=epsilon, **asked)["return"]
        for epsilon in (0.0, 0.5)
    )
    assert best == near(3.0, terms=10) and mixed < best


def test_until_the_first_mask_everything_is_allowed() -> None:
    recorder = EpisodeRecorder(rlbook.make("Maze-v0"))
    recorder.reset(seed=0)
    first, last = np.array([True, False]), np.array([False, True])
    assert recorder.episode(Step(0, 0, 0.0, 1, False, False, next_action_mask=first)) is None
    found = recorder.episode(
        Step(1, 0, 0.0, 2, True, False, action_mask=first, next_action_mask=last)
    )
    assert found is not None and found.action_masks is not None
    assert found.action_masks.tolist() == [[True, True], [True, False], [False, True]]
