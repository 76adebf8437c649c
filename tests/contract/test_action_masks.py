"""Action masks: read once, checked, handed to whoever acts, and kept where a run is taken up
again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from masked_doors import OPEN, Doors

import rlbook
from rlbook.agent import Agent, Metrics, State, Step
from rlbook.errors import TrainingError
from rlbook.interaction.action_masks import UNUSED
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction


class Opener(Agent):
    """Takes an allowed action at random, and keeps every step."""

    batched = False

    def __init__(self, env: Any, config: object = None, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.rng, self.steps = np.random.default_rng(seed), []
        self.masks: list[np.ndarray | None] = []

    def act(
        self, observation: Any, *, explore: bool = True, action_mask: np.ndarray | None = None
    ) -> Any:
        self.masks.append(action_mask)
        assert action_mask is not None
        rows = action_mask.reshape(-1, 3)
        chosen = np.array([self.rng.choice(np.flatnonzero(row)) for row in rows])
        return chosen if self.batched else int(chosen[0])

    def learn(self, step: Step) -> Metrics:
        self.steps.append(step)
        return {}

    def state_dict(self) -> State:
        return {"taken": len(self.steps), "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.rng.bit_generator.state = state["rng"]


class ManyOpener(Opener):
    batched = True


class Blind(Opener):
    """Takes no mask."""

    def act(self, observation: Any, *, explore: bool = True) -> Any:  # type: ignore[override]
        return int(np.flatnonzero(OPEN[observation])[0])


def allowed_in(rooms: np.ndarray) -> np.ndarray:
    """What the masks of these rooms allow; of the ends, where nobody acts, everything."""
    return OPEN[rooms] | ~OPEN[rooms].any(axis=-1, keepdims=True)


def test_one_environments_masks_reach_the_agent_and_the_step() -> None:
    agent, interaction = Opener(None), SingleInteraction(Doors(), np.random.default_rng(0))
    for _ in loop(agent, interaction, Budget(200, None)):
        pass
    assert len(agent.steps) == 200 and interaction.episodes > 20
    for step, mask in zip(agent.steps, agent.masks, strict=True):
        assert step.action_mask is mask and step.action_mask.dtype == np.bool_
        np.testing.assert_array_equal(step.action_mask, allowed_in(step.obs))
        np.testing.assert_array_equal(step.next_action_mask, allowed_in(step.next_obs))


VECTORS = {
    "SyncVector": lambda: SyncVector([Doors() for _ in range(4)]),
    "SyncVectorEnv": lambda: SyncVectorEnv([Doors] * 4, autoreset_mode=AutoresetMode.DISABLED),
}


@pytest.mark.parametrize("rollout", ["steps", "episodes"])
@pytest.mark.parametrize("kind", list(VECTORS))
def test_many_environments_masks_reach_the_agent_and_the_step(kind: str, rollout: str) -> None:
    if kind == "SyncVectorEnv" and rollout == "episodes":
        rollout = "steps"  # it lets no finished environment wait
    agent = ManyOpener(None)
    interaction = VectorInteraction(VECTORS[kind](), np.random.default_rng(0), rollout=rollout)
    for _ in loop(agent, interaction, Budget(400, None)):
        pass
    assert interaction.episodes > 20
    for step, mask in zip(agent.steps, agent.masks, strict=True):
        assert step.action_mask is mask and mask.shape == (4, 3)
        np.testing.assert_array_equal(
            step.action_mask[step.valid], allowed_in(step.obs)[step.valid]
        )
        np.testing.assert_array_equal(
            step.next_action_mask[step.valid], allowed_in(step.next_obs)[step.valid]
        )
        assert step.action_mask.any(axis=1).all()


def test_workers_show_the_same_masks() -> None:
    gymnasium.register("tests/Doors-v0", entry_point=Doors)
    try:
        runs = [
            rlbook.train(
                ManyOpener,
                "tests/Doors-v0",
                steps=200,
                num_envs=4,
                seed=1,
                workers=workers,
                eval_every=0,
            )
            for workers in (None, 2)
        ]
    finally:
        del gymnasium.registry["tests/Doors-v0"]
    one, two = ([step.action_mask for step in run.agent.steps] for run in runs)
    np.testing.assert_array_equal(np.array(one), np.array(two))


def test_the_native_vector_form_shows_masks() -> None:
    env: Any = rlbook.make("TicTacToe-v0")
    agent = ManyOpener(None)
    from rlbook.envs.tic_tac_toe import TicTacToeVector

    interaction = VectorInteraction(TicTacToeVector(3), np.random.default_rng(0))
    interaction.start()
    np.testing.assert_array_equal(
        interaction.action_mask, env.unwrapped.action_mask(interaction.obs)
    )
    assert agent.steps == []


def test_an_environment_without_masks_has_none() -> None:
    interaction = SingleInteraction(Doors(shows=False), np.random.default_rng(0))
    interaction.start()
    step = interaction.step(0)
    assert (interaction.action_mask, step.action_mask, step.next_action_mask) == (None, None, None)
    assert (
        "action_mask"
        not in VectorInteraction(
            SyncVector([Doors(shows=False)]), np.random.default_rng(0)
        ).state_dict()
    )


class Says(Doors):
    """Shows what it is told to as its mask."""

    mask: Any = None

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.mask}


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ([1, 0], "must have 3 entries"),
        (np.ones((3, 3)), "must have 3 entries"),
        ([1, 2, 0], "must hold 1 for allowed and 0 for"),
        (["a", "b", "c"], "must hold 1"),
        ([0, 0, 0], "allows no action"),
    ],
)
def test_what_is_no_mask_is_refused_in_one_sentence(mask: Any, said: str) -> None:
    env = Says()
    env.mask = mask
    for interaction in (
        SingleInteraction(env, np.random.default_rng(0)),
        VectorInteraction(SyncVector([env]), np.random.default_rng(0)),
    ):
        with pytest.raises(TrainingError, match=said) as caught:
            interaction.start()
        assert "\n" not in str(caught.value)


def test_a_mask_that_is_shown_at_times_allows_everything_otherwise() -> None:
    class AtTimes(Doors):
        def _info(self) -> dict[str, Any]:
            return super()._info() if self.room == 2 else {}

        def step(self, action: int) -> Any:
            self.shows = False
            try:
                result = super().step(action)
            finally:
                self.shows = True
            return *result[:-1], self._info()

    interaction = SingleInteraction(AtTimes(), np.random.default_rng(0))
    interaction.start()
    shown, actions = False, np.random.default_rng(0).integers(3, size=50)
    for action in actions.tolist():
        step = interaction.step(action)
        shown = shown or step.next_obs == 2
        if shown:
            expected = OPEN[2] if step.next_obs == 2 else np.ones(3, dtype=bool)
            np.testing.assert_array_equal(step.next_action_mask, expected)
        interaction.reset_finished()
    assert shown


def test_an_agent_without_masks_is_told_of_once() -> None:
    run = rlbook.train(Blind, Doors(), steps=50, eval_every=0)
    assert run.notes.count(UNUSED) == 1
    assert UNUSED not in rlbook.train(Opener, Doors(), steps=50, eval_every=0).notes


def test_evaluating_and_playing_pass_the_mask_on() -> None:
    from rlbook.interaction.environments import EnvRecipe
    from rlbook.plots.films.episode_frames import play_frames

    run = rlbook.train(Opener, Doors(), steps=20, eval_every=0)
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20
    assert any(
        frame.over
        for frame in play_frames(run.agent, EnvRecipe.from_env(Doors()), None, episodes=2, seed=0)
    )
    many = rlbook.train(ManyOpener, Doors(), steps=20, num_envs=2, eval_every=0)
    assert len(rlbook.evaluate(many, episodes=20).returns) == 20
    assert any(
        frame.over
        for frame in play_frames(many.agent, EnvRecipe.from_env(Doors()), None, episodes=2, seed=0)
    )


@pytest.mark.parametrize("kind", [Opener, ManyOpener])
def test_a_run_that_is_taken_up_again_knows_the_mask(kind: type[Agent], tmp_path: Path) -> None:
    """Where an environment is restored from a snapshot no info is shown, so the mask comes from the
    checkpoint."""
    env = "tests/Doors-v0"
    gymnasium.register(env, entry_point=Doors)
    try:
        whole = rlbook.train(kind, env, steps=200, seed=3, eval_every=0, out=tmp_path / "whole")
        first = rlbook.train(kind, env, steps=101, seed=3, eval_every=0, out=tmp_path / "parts")
        resumed = rlbook.load(tmp_path / "parts", algorithm=kind).resume(steps=200)
    finally:
        del gymnasium.registry[env]
    steps = [*first.agent.steps, *resumed.agent.steps]
    for one, other in zip(whole.agent.steps, steps, strict=True):
        np.testing.assert_array_equal(one.action_mask, other.action_mask)
        np.testing.assert_array_equal(one.action, other.action)
