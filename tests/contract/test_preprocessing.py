"""Frames stacked, grey, smaller and skipped, rewards clipped and lives told apart: in training, in
evaluation, in a folder, and bit for bit after a resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

import rlbook
from rlbook.cli import main as cli
from rlbook.errors import RequestError
from rlbook.evaluation.targets import find_target
from rlbook.interaction.image_preprocessing import ClippedEnv, Preprocessing
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import image_size, is_image
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.networks.cnn import FeatureNetwork
from rlbook.runs.request import Request
from rlbook.runs.run import Run

SIDE = 12


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """Frame t of an episode is filled with t; each step pays 5. Of three lives one is lost at every
    fourth step, so that a game takes 12 steps."""

    def __init__(self, colours: int = 3, keeps: bool = False) -> None:
        self.shape = (SIDE, SIDE, colours)
        self.observation_space = spaces.Box(0, 255, self.shape, np.uint8)
        self.action_space = spaces.Discrete(2)
        self.lives = 3
        if keeps:
            self.snapshot, self.restore = self._time, self._set_time

    def _time(self) -> dict[str, Any]:
        return {"time": self.time}

    def _set_time(self, state: dict[str, Any]) -> None:
        self.time = int(state["time"])

    def _frame(self) -> np.ndarray:
        return np.full(self.shape, self.time, dtype=np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._frame(), {"lives": 3}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self._frame(), 5.0, self.time == 12, False, {"lives": 3 - self.time // 4}


@pytest.fixture(autouse=True)
def corridor() -> Iterator[None]:
    gymnasium.register("LivesCorridor-v0", entry_point=Corridor)  # type: ignore[arg-type]
    yield
    del gymnasium.registry["LivesCorridor-v0"]


QUICK: dict[str, Any] = {"num_envs": 2, "eval_every": 0, "hidden_sizes": (8,)}
DQN: dict[str, Any] = {
    **QUICK,
    "batch_size": 8,
    "learning_starts": 16,
    "train_every": 8,
    "gradient_steps": 1,
    "epsilon": 0.3,  # no schedule over a budget, which a resumed run extends
    "anneal_learning_rate": False,
}


def agent_weights(run: Run) -> dict[str, torch.Tensor]:
    return dict(run.agent.q.state_dict())  # type: ignore[attr-defined]


# ---- what is seen


def test_a_stack_holds_the_last_frames_with_the_newest_last() -> None:
    env = Preprocessing(frame_stack=4).wrap(Corridor(1), "LivesCorridor-v0")
    assert type(env) is FrameStackObservation
    first, _ = env.reset()
    assert first[:, 0, 0, 0].tolist() == [0, 0, 0, 0]
    seen = [env.step(0)[0][:, 0, 0, 0].tolist() for _ in range(5)]
    assert seen[1] == [0, 0, 1, 2] and seen[4] == [2, 3, 4, 5]


def test_skipped_frames_pay_together_and_show_the_maximum_of_the_last_two() -> None:
    env = Preprocessing(max_and_skip=4, frame_stack=2).wrap(Corridor(1), "LivesCorridor-v0")
    env.reset()
    obs, reward, *_ = env.step(0)
    assert reward == 4 * 5 and obs[:, 0, 0, 0].tolist() == [0, max(3, 4)]


def test_grey_frames_are_the_channels_of_a_stack_and_one_channel_without() -> None:
    grey = Preprocessing(grayscale=True).wrap(Corridor(), "LivesCorridor-v0").observation_space
    both = Preprocessing(grayscale=True, frame_stack=4).wrap(Corridor(), "").observation_space
    assert grey.shape == (SIDE, SIDE, 1) and image_size(grey) == (SIDE, SIDE, 1)
    assert both.shape == (4, SIDE, SIDE) and image_size(both) == (SIDE, SIDE, 4)


def test_frames_are_resized_by_area() -> None:
    pytest.importorskip("cv2")
    env = Preprocessing(resize=6).wrap(Corridor(), "LivesCorridor-v0")
    env.reset()
    assert env.step(0)[0].shape == (6, 6, 3)
    assert (env.step(0)[0] == 2).all()  # the mean of equal pixels


def test_a_stack_of_coloured_images_is_one_image_with_all_their_channels() -> None:
    """The network sees [4, H, W, 3] as it sees [H, W, 12] with the channels in that order."""
    space = spaces.Box(0, 255, (4, SIDE, SIDE, 3), np.uint8)
    flat = spaces.Box(0, 255, (SIDE, SIDE, 12), np.uint8)
    assert is_image(space) and image_size(space) == (SIDE, SIDE, 12)
    stacked, whole = (
        FeatureNetwork(box, (5,), torch.Generator().manual_seed(0)) for box in (space, flat)
    )
    images = torch.from_numpy(space.sample()[None, None])
    as_one = images.movedim(2, -2).flatten(-2)  # [1, 1, H, W, 4 · 3]
    assert stacked(images).shape == (1, 1, 5)
    assert_near(stacked(images), whole(as_one), terms=widths(whole), size=1.0)


# ---- what is paid


def clipped_run(**options: Any) -> Run:
    return rlbook.train("dqn", "LivesCorridor-v0", steps=60, reward_clip=True, **DQN | options)


def test_rewards_are_clipped_for_the_learner_and_in_no_report() -> None:
    run = clipped_run()
    assert set(run.agent.replay.rows.reward[:50].tolist()) == {1.0}  # type: ignore[attr-defined]
    assert set(run.episode_returns) == {12 * 5.0}
    assert run.evaluate(episodes=2).mean == 12 * 5.0


def test_a_table_learns_from_clipped_rewards_and_reports_the_others() -> None:
    """Each step of the cliff costs 1 and a fall 100: Q-learning sees at most 1 of it."""
    run = rlbook.train("q_learning", "CliffWalking-v1", steps=2_000, reward_clip=True, gamma=0.9)
    assert min(run.episode_returns) < -100
    assert run.agent.action_values().min() >= -1 / (1 - 0.9)  # type: ignore[attr-defined]


# ---- lives


def test_a_lost_life_ends_the_value_and_not_the_game() -> None:
    env = Preprocessing(episodic_life=True).wrap(Corridor(), "LivesCorridor-v0")
    interaction = SingleInteraction(ClippedEnv(env), np.random.default_rng(0))
    interaction.start()
    ends = []
    for _ in range(12):
        step = interaction.step(0)
        assert step.reward == 1.0  # of 5, which the report has
        ends.append(bool(step.terminated) and not step.truncated)
        interaction.reset_finished()
    assert [t + 1 for t in range(12) if ends[t]] == [4, 8, 12]
    assert interaction.finished == [(12, 12 * 5.0, 12)]


def test_a_lost_life_is_told_by_many_environments_too() -> None:
    made = [Preprocessing(episodic_life=True).wrap(Corridor(), "") for _ in range(3)]
    interaction = VectorInteraction(SyncVector(made), np.random.default_rng(0))
    interaction.start()
    ends = []
    for _ in range(12):
        ends.append(interaction.step(np.zeros(3, dtype=np.int64)).terminated.tolist())
        interaction.reset_finished()
    assert [t + 1 for t in range(12) if ends[t] == [True] * 3] == [4, 8, 12]
    assert [length for _, _, length in interaction.finished] == [12] * 3


def test_an_evaluation_knows_no_lives_whether_the_environment_has_an_id_or_not() -> None:
    run = Run(Request.build("dqn", "LivesCorridor-v0", episodic_life=True, frame_stack=2))
    for env in (None, "LivesCorridor-v0", Corridor()):
        target = find_target(run, env)
        assert target.recipe.preprocessing == Preprocessing(episodic_life=True, frame_stack=2)
        assert target.played.preprocessing == Preprocessing(frame_stack=2)


@pytest.mark.slow
def test_workers_tell_of_lives_and_rewards_as_one_process_does() -> None:
    options: dict[str, Any] = {"episodic_life": True, "frame_stack": 2}
    one, two = clipped_run(**options), clipped_run(**options, workers=2)
    assert one.episode_returns == two.episode_returns
    weights = agent_weights(two)
    assert all(torch.equal(weight, weights[name]) for name, weight in agent_weights(one).items())


# ---- folders


USED: dict[str, Any] = {
    "frame_stack": 3,
    "grayscale": True,
    "max_and_skip": 2,
    "reward_clip": True,
    "episodic_life": True,
}


def test_only_what_is_used_stands_in_the_config() -> None:
    request = Request.build("dqn", "LivesCorridor-v0", **USED)
    text = request.as_yaml()
    assert "frame_stack: 3\n" in text and "grayscale: true\n" in text
    assert "resize" not in text and "noop_starts" not in text
    assert Request.from_yaml(text).recipe.preprocessing == request.recipe.preprocessing
    plain = Request.build("dqn", "LivesCorridor-v0").as_yaml()
    assert not any(name in plain for name in (*USED, "resize", "noop_starts"))


@pytest.mark.parametrize(
    ("env", "keeps"),
    [
        ("LivesCorridor-v0", True),
        ("LivesCorridor-v0", False),
        pytest.param("CartPole-v1", False, marks=pytest.mark.slow),
    ],
)
def test_a_run_is_resumed_bit_for_bit(env: str, keeps: bool, tmp_path: Path) -> None:
    """With snapshots of the environment, and by playing the episode again; the cut lies within an
    episode, where the stack holds earlier frames."""
    options: dict[str, Any] = DQN | {"frame_stack": 3, "max_and_skip": 2, "reward_clip": True}
    if env == "LivesCorridor-v0":
        options |= {"env_kwargs": {"keeps": keeps}, "episodic_life": True}
    rlbook.train("dqn", env, steps=34, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=90)
    whole = rlbook.train("dqn", env, steps=90, **options)
    assert again.episode_returns[-3:] == whole.episode_returns[-3:]
    weights = agent_weights(whole)
    assert all(torch.equal(weight, weights[name]) for name, weight in agent_weights(again).items())


def test_a_snapshot_holds_frames_that_a_first_skipped_step_still_shows() -> None:
    """An episode that ends within the first frames of a step shows frames of the one before: they
    are part of the state, though gymnasium meant them to be overwritten."""

    def made() -> ResumableEnv:
        env = gymnasium.wrappers.TimeLimit(Corridor(1), 5)
        return ResumableEnv(Preprocessing(max_and_skip=4).wrap(env, ""))

    one, other = made(), made()
    one.reset(seed=0)
    one.step(0)
    one.step(0)
    one.reset()
    one.step(0)
    other.restore(one.snapshot())
    assert np.array_equal(one.step(0)[0], other.step(0)[0])


def test_another_environment_is_evaluated_through_the_same_wrappers(tmp_path: Path) -> None:
    run = clipped_run(frame_stack=2, out=tmp_path / "run")
    found = rlbook.evaluate(
        tmp_path / "run", "LivesCorridor-v0", episodes=2, env_kwargs={"keeps": True}
    )
    assert found.mean == run.evaluate(episodes=2).mean == 12 * 5.0


def test_predict_says_where_the_agent_sees_something_else_than_gymnasium_shows() -> None:
    run = clipped_run(frame_stack=2)
    plain, _ = gymnasium.make("LivesCorridor-v0").reset(seed=0)
    with pytest.raises(
        ValueError, match=r"that is the observation of gymnasium.make.*: use run.make_env\(\)"
    ):
        run.predict(plain)
    with pytest.raises(ValueError, match=r"got an array of shape \(3,\)$"):
        run.predict(np.zeros(3))


def test_predict_takes_what_the_environment_shows(tmp_path: Path) -> None:
    run = clipped_run(frame_stack=2)
    assert run.predict(np.zeros((2, SIDE, SIDE, 3), dtype=np.uint8)) in (0, 1)
    assert run.predict(np.zeros((5, 2, SIDE, SIDE, 3), dtype=np.uint8)).shape == (5,)


def test_an_environment_of_ones_own_is_wrapped_as_well() -> None:
    run = rlbook.train("dqn", Corridor(), steps=40, frame_stack=2, **DQN)
    assert run.agent.adaptation.observation_space.shape == (2, SIDE, SIDE, 3)  # type: ignore[union-attr]
    assert run.evaluate(episodes=1).mean == 12 * 5.0


# ---- what a stack is worth


def test_a_stack_as_long_as_the_corridor_solves_the_t_maze() -> None:
    """With 3 observations the sign is still seen at the junction of length 2: the optimum is 1.
    Without them no policy takes the right arm for both signs."""
    options: dict[str, Any] = {
        "env_kwargs": {"length": 2},
        "steps": 6_000,
        "alpha": 0.5,
        "epsilon": 0.3,
        "eval_every": 0,
        "gamma": 1.0,
    }
    stacked = rlbook.train("q_learning", "TMaze-v0", frame_stack=3, **options)
    assert set(stacked.evaluate(episodes=20).returns) == {1.0}
    alone = rlbook.train("q_learning", "TMaze-v0", **options)
    assert min(alone.evaluate(episodes=20).returns) < 0


# ---- what cannot be


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "said"),
    [
        ("dqn", "CartPole-v1", {"grayscale": True}, "grayscale needs images in three colours"),
        ("dqn", "CartPole-v1", {"resize": 84}, "resize needs images, uint8"),
        ("dqn", "CartPole-v1", {"noop_starts": 30}, "noop_starts is for Atari's games"),
        (
            "dqn",
            "CartPole-v1",
            {"episodic_life": True},
            "episodic_life is for environments with lives",
        ),
        ("q_learning", "FrozenLake-v1", {"max_and_skip": 2}, "the maximum of arrays of numbers"),
        ("grpo", "Addition-v0", {"frame_stack": 2}, "observations of one shape"),
        ("dqn", "CartPole-v1", {"frame_stack": 0}, "frame_stack must be"),
        ("dqn", "CartPole-v1", {"grayscale": 3}, "grayscale must be true or false, got 3"),
        ("value_iteration", "FrozenLake-v1", {"frame_stack": 2}, "plans with the environment's"),
        ("mcts", "FrozenLake-v1", {"reward_clip": True}, "plans in a copy of its environment"),
        ("behavior_cloning", "Maze-v0", {"reward_clip": True}, "gets no rewards"),
        ("grpo", "LivesCorridor-v0", {"episodic_life": True}, "learns from whole episodes"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    algorithm: str, env: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        rlbook.train(algorithm, env, steps=10, **options)


def test_opencv_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r'resize needs opencv; `pip install "rlbook\[atari\]"`'):
        Preprocessing(resize=6).wrap(Corridor(), "LivesCorridor-v0")


def test_the_command_line_has_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "dqn",
        "--grayscale",
        "LivesCorridor-v0",
        "--frame-stack",
        "3",
        "--reward-clip",
    ]
    quick = ["--steps", "20", "--eval-every", "0", "--eval-episodes", "1", "--hidden-sizes", "4"]
    out = str(tmp_path / "run")
    assert cli.main([*words, "--no-episodic-life", *quick, "--out", out]) == 0
    config = (tmp_path / "run/config.yaml").read_text()
    assert "grayscale: true\n" in config and "episodic_life: false\n" in config
    assert cli.main(["evaluate", out, "--episodes", "1"]) == 0
    assert cli.main(["train", "--resume", out, "--steps", "40"]) == 0
    capsys.readouterr()
    assert cli.main(["train", "--resume", out, "--frame-stack", "4"]) == 2
    assert "was started with frame_stack 3" in capsys.readouterr().err


# ---- Atari


STANDARD: dict[str, Any] = {
    "frame_stack": 4,
    "grayscale": True,
    "resize": 84,
    "max_and_skip": 4,
    "noop_starts": 30,
    "episodic_life": True,
}


def made_game(game: str, **options: Any) -> gymnasium.Env:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    request = Request.build("dqn", game, **options)
    return request.recipe.make()


@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "ALE/Seaquest-v5", "PongNoFrameskip-v4"])
def test_a_game_is_restored_bit_for_bit_within_an_episode(game: str) -> None:
    """Sticky actions, no-op starts, frames and lives go on as they would have, over an episode's
    end, too."""
    one, other = (ResumableEnv(made_game(game, **STANDARD)) for _ in range(2))
    rng = np.random.default_rng(0)
    actions = rng.integers(one.action_space.n, size=500).tolist()  # type: ignore[attr-defined]
    one.reset(seed=5)
    other.reset(seed=9)
    for action in actions[:250]:
        if one.step(action)[2]:
            one.reset()
    other.restore(one.snapshot())
    for action in actions[250:]:
        expected, found = one.step(action), other.step(action)
        assert np.array_equal(expected[0], found[0]) and expected[1:] == found[1:]
        if expected[2]:
            assert np.array_equal(one.reset()[0], other.reset()[0])


def test_a_damaged_snapshot_of_a_game_is_refused() -> None:
    env: Any = made_game("ALE/Pong-v5").unwrapped
    env.reset(seed=0)
    saved = env.snapshot()
    with pytest.raises(ValueError, match="the saved emulator cannot be restored"):
        env.restore(saved | {"emulator": saved["emulator"][:100]})


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_without_chance_a_game_is_that_of_ale_py(probability: float) -> None:
    """With probability 1 every frame repeats the first no-op, here as there."""
    chance = {"repeat_action_probability": probability}
    ours: Any = made_game("ALE/Breakout-v5", env_kwargs=chance).unwrapped
    from ale_py.env import AtariEnv  # type: ignore[import-not-found]

    theirs = AtariEnv("breakout", **chance)
    ours.reset(seed=3)
    theirs.reset(seed=3)
    for action in np.random.default_rng(0).integers(4, size=100).tolist():
        mine, their = ours.step(action), theirs.step(action)
        assert np.array_equal(mine[0], their[0]) and mine[1:4] == their[1:4]


def test_sticky_actions_are_repeated_as_often_as_is_said() -> None:
    """Of 2 000 frames a quarter repeats, 500 ± 5 √(2 000 · ¼ · ¾) = 97. With four actions in turn
    that is another action than the asked one, but after four repetitions in a row (¼⁴, 8 frames)."""
    env: Any = made_game("ALE/Breakout-v5", env_kwargs={"frameskip": 1}).unwrapped
    env.reset(seed=0)
    repeats = 0
    for step in range(2_000):
        env.ale.act(env._action_set[step % 4])
        repeats += env.ale.last[0] != env._action_set[step % 4]
    assert abs(repeats - 500) < 97 + 8


def test_the_standard_preprocessing_is_four_grey_frames_of_84_pixels() -> None:
    env = made_game("ALE/Pong-v5", **STANDARD)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 84, 84) and obs.dtype == np.uint8 and obs.max() > 0
    raw: Any = env.unwrapped
    frame = raw.ale.getEpisodeFrameNumber()
    env.step(0)
    assert raw.ale.getEpisodeFrameNumber() == frame + 4  # its own frame skip is switched off


def test_a_games_own_frame_skip_is_not_skipped_twice() -> None:
    with pytest.raises(RequestError, match=r"skips 3 itself; give --env.frameskip 1"):
        made_game("ALE/Pong-v5", max_and_skip=4, env_kwargs={"frameskip": 3})


@pytest.mark.slow
def test_a_run_on_a_game_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    made_game("ALE/Breakout-v5")
    options: dict[str, Any] = (
        DQN | STANDARD | {"reward_clip": True, "learning_starts": 8, "buffer_size": 32}
    )
    rlbook.train("dqn", "ALE/Breakout-v5", steps=20, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=40)
    whole = rlbook.train("dqn", "ALE/Breakout-v5", steps=40, **options)
    weights = agent_weights(whole)
    assert all(torch.equal(weight, weights[name]) for name, weight in agent_weights(again).items())


def test_the_games_of_a_package_are_not_listed_as_ones_own() -> None:
    """`environments` names what needs no further package, also after a game was made."""
    made_game("ALE/Pong-v5").close()
    assert not [name for name in rlbook.environments() if "Pong" in name]
