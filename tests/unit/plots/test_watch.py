"""Watching: every moment of an episode is shown, in the terminal and in a GIF, and the agent does
not notice."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near
from gymnasium import spaces
from PIL import Image, ImageSequence

import rlbook
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.plots import save_gif, watch
from rlbook.plots.films import animation
from rlbook.plots.films.episode_frames import play_frames, render_modes
from rlbook.plots.films.gif_writer import encode_gif
from rlbook.plots.terminal import Terminal, picture_text, visible_length

MAZE = "rlbook/Maze-v0"


class FakeTerminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


class Countdown(gymnasium.Env[np.ndarray, int]):
    """Three steps that no renderer can draw."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 3
        return np.array([self.left], dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return np.array([self.left], dtype=np.float32), 0.5, self.left == 0, False, {}


def solved() -> Any:
    return rlbook.train("value_iteration", MAZE)


def clumsy() -> Any:
    """An untrained network, which runs against a wall until the time is over."""
    return rlbook.train("ppo", MAZE, steps=1, eval_every=0)


def frames_of(path: Path) -> tuple[list[np.ndarray], list[int]]:
    with Image.open(path) as film:
        pairs = [
            (np.array(frame.convert("RGB")), frame.info["duration"])
            for frame in ImageSequence.Iterator(film)
        ]
    return [frame for frame, _ in pairs], [duration for _, duration in pairs]


# Moments


@pytest.mark.parametrize("make_run", [solved, clumsy])
def test_an_episode_of_n_steps_has_n_plus_1_moments(make_run: Any) -> None:
    run = make_run()
    frames = list(play_frames(run.agent, run.request.recipe, "ansi", episodes=2, seed=0))
    result = rlbook.evaluate(run, episodes=1)  # the maze without slips has one greedy episode
    assert [frame.step for frame in frames] == 2 * [*range(result.lengths[0] + 1)]
    assert [frame.episode for frame in frames if frame.over] == [1, 2]
    assert {frame.episode_return for frame in frames if frame.over} == {result.mean}


def test_playing_changes_nothing_in_the_agent() -> None:
    from rlbook.runs.storage.state_encoding import encode

    run = rlbook.train("ppo", MAZE, steps=300, eval_every=0)
    before = encode(run.agent.state_dict())
    watch(run, stream=io.StringIO())
    after = encode(run.agent.state_dict())
    assert repr(after) == repr(before)


def test_continuous_actions_and_vectors_are_played_too() -> None:
    run = rlbook.train("ppo", "Pendulum-v1", steps=8, eval_every=0, num_envs=2)
    frames = list(play_frames(run.agent, run.request.recipe, None, episodes=1, seed=0))
    assert len(frames) == 201 and frames[-1].over and np.shape(frames[-1].action) == (1,)


# In the terminal


def test_the_terminal_shows_every_step_and_the_return() -> None:
    stream = io.StringIO()
    assert watch(solved(), stream=stream) == [3.0]
    text = stream.getvalue()
    assert [f"step {step} " in text for step in range(10)] == [*[True] * 9, False]
    assert text.startswith("A..#G\n.#.#.\n.#...\n...#.\n.#...\n")
    assert "S..#A" in text and "action right" in text and "episode 1: return 3 in 8 steps" in text
    assert "\x1b" not in text


def test_a_folder_is_watched_as_well(tmp_path: Path) -> None:
    rlbook.train("value_iteration", MAZE, out=tmp_path / "run")
    assert watch(tmp_path / "run", episodes=2, stream=io.StringIO()) == [3.0, 3.0]


def test_frames_take_each_others_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = FakeTerminal()
    watch(solved(), stream=stream, pause=0.0)
    # five rows and a caption, moved over before each of the 8 steps
    assert stream.getvalue().count("\x1b[6F\x1b[J") == 8


def test_without_colour_what_gymnasium_marks_stands_in_brackets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = rlbook.train("value_iteration", "FrozenLake-v1", env_kwargs={"is_slippery": False})
    stream = io.StringIO()
    watch(run, stream=stream)
    assert (
        "[S]FFF" in stream.getvalue()
        and "HFF[G]" in stream.getvalue()
        and "\x1b" not in stream.getvalue()
    )


def test_an_environment_without_pictures_is_shown_in_numbers() -> None:
    run = rlbook.train("ppo", Countdown(), steps=8, eval_every=0, num_envs=1)
    stream = io.StringIO()
    assert watch(run, stream=stream) == [1.5]  # three times 0.5
    assert [f"observation [{left}]" in stream.getvalue() for left in range(5)] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert render_modes(run.request.recipe) == []


def test_a_picture_becomes_half_blocks_of_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "3")
    pixels = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 9, 9]]], dtype=np.uint8)
    assert picture_text(pixels, Terminal(FakeTerminal())) == (
        "\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[0m\x1b[38;2;0;255;0;48;2;9;9;9m▀\x1b[0m"
    )


def test_a_small_picture_is_enlarged_in_whole_steps_to_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.setenv("LINES", "24")
    pixels = np.array([[[255, 0, 0], [0, 255, 0]]] * 3, dtype=np.uint8)
    text = picture_text(pixels, Terminal(FakeTerminal()))
    assert [visible_length(line) for line in text.split("\n")] == [14] * 11  # 2 × 7 by 3 × 7
    assert text.count("\x1b[0m") == 2 * 11  # pixels of one colour are painted at once


def cart_pole(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What watching CartPole writes to a terminal of 60 × 24."""
    defaults = {"TERM": "xterm", "COLUMNS": "60", "LINES": "24"}
    for name in ("COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (defaults | variables).items():
        monkeypatch.setenv(name, value)
    run = rlbook.train("ppo", "CartPole-v1", steps=8, eval_every=0, num_envs=1)
    stream = FakeTerminal()
    (total,) = watch(run, stream=stream, pause=0.0)
    text = stream.getvalue()
    assert text.count("step ") - 1 == total  # 1 a step, and the reset
    return text


@pytest.mark.parametrize(
    ("colours", "pole"),
    [
        ({"COLORTERM": "truecolor"}, r"\x1b\[38;2;2\d\d;1\d\d;1\d\d;"),  # (202, 152, 101)
        ({}, r"\x1b\[[34]8;5;(?!16|231|23\d|24\d|25\d)\d+"),  # of the cube, and no grey
    ],
)
def test_cart_pole_is_drawn_in_the_terminals_pixels(
    colours: dict[str, str], pole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pygame")
    text = cart_pole(monkeypatch, **colours)
    assert "observation" not in text and re.search(pole, text)
    first = text[: text.index("step 0")].split("\n")[:-1]
    assert len(first) == 19  # 400 pixels of 600 by 59 columns: 39 rows of pixels, two a line
    assert {visible_length(line) for line in first} == {59}


def test_without_colours_cart_pole_is_four_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = cart_pole(monkeypatch, NO_COLOR="1")
    assert "observation [" in text and "▀" not in text and "shown in numbers" not in text


def test_what_is_missing_for_a_picture_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    text = cart_pole(monkeypatch)
    assert "CartPole-v1 is shown in numbers: it needs pygame" in text
    assert 'pip install "rlbook[games]"' in text and "observation [" in text


def test_a_line_that_the_terminal_breaks_is_moved_over_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "24")
    terminal = Terminal(FakeTerminal())
    terminal.redraw("x" * 25)
    terminal.redraw("y")
    assert "\x1b[3F\x1b[J" in terminal.stream.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"episodes": 0}, "episodes must be"), ({"seed": -1}, "seed must be")],
)
def test_impossible_requests_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        watch(solved(), **arguments)  # type: ignore[arg-type]


# As a GIF


@pytest.mark.parametrize("make_run", [solved, clumsy])
def test_a_gif_has_as_many_frames_as_steps_and_one(tmp_path: Path, make_run: Any) -> None:
    run = make_run()
    assert watch(run, gif=tmp_path / "film.gif") == []
    pictures, durations = frames_of(tmp_path / "film.gif")
    assert len(pictures) == rlbook.evaluate(run, episodes=1).lengths[0] + 1
    # 1000 / 8 frames a second, in hundredths of a second; the end stays
    assert durations == [
        *[120] * (len(pictures) - 1),
        1200,
    ]


def test_a_film_that_takes_long_counts_its_frames_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    watch(solved(), gif=tmp_path / "film.gif")
    assert terminal.getvalue() == ""
    monkeypatch.setattr(animation, "SILENT", 0.0)
    watch(solved(), gif=tmp_path / "film.gif")
    assert "drawing: 0 frames" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    watch(solved(), gif=tmp_path / "film.gif")
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_a_gif_shows_the_agent_where_it_is(tmp_path: Path) -> None:
    save_gif(solved().agent, EnvRecipe(MAZE), tmp_path / "film.gif")
    pictures, _ = frames_of(tmp_path / "film.gif")
    # the agent's colour; the middle of the upper right cell of 48 pixels
    red, goal = (
        (204, 92, 60),
        (24, 4 * 48 + 24),
    )
    distances = [np.abs(picture[goal].astype(int) - red).max() for picture in pictures]
    assert distances[-1] < 16 and min(distances[:-1]) > 16


@pytest.mark.thorough
def test_pictures_of_up_to_256_colours_keep_them_all() -> None:
    rng = np.random.default_rng(10)
    for count in (256, 257):
        colours = rng.permutation(1 << 24)[:count]
        pixels = np.concatenate([colours, rng.choice(colours, 32 * 32 - count)]).reshape(32, 32)
        drawn = np.stack([pixels >> 16, pixels >> 8 & 255, pixels & 255], axis=-1).astype(np.uint8)
        film = encode_gif([Image.fromarray(drawn)] * 2, [100, 100])
        shown = np.array(Image.open(io.BytesIO(film)).convert("RGB"))
        off = np.abs(shown.astype(int) - drawn).max()
        assert (off == 0) == (count == 256)


def test_an_environment_of_text_becomes_a_gif_of_text(tmp_path: Path) -> None:
    run = rlbook.train("value_iteration", "CliffWalking-v1")
    save_gif(run.agent, run.request.recipe, tmp_path / "film.gif")
    pictures, _ = frames_of(tmp_path / "film.gif")
    assert len(pictures) == 13 + 1 and len({picture.shape for picture in pictures}) == 1


def test_a_gif_of_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    env = Countdown()
    agent = rlbook.train("ppo", env, steps=8, eval_every=0, num_envs=1).agent
    with pytest.raises(RequestError, match="cannot be drawn here"):
        save_gif(agent, EnvRecipe.from_env(Countdown()), tmp_path / "film.gif")
    with pytest.raises(RequestError, match=r"must end in \.gif"):
        watch(solved(), gif=tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


class ModelessCountdown(Countdown):
    """Takes the render mode that it does not offer."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


def test_a_registered_environment_without_render_modes_is_refused_too(tmp_path: Path) -> None:
    gymnasium.register("Countdown-v0", ModelessCountdown)
    try:
        run = rlbook.train("dqn", "Countdown-v0", steps=6, eval_every=0)
        with pytest.raises(
            RequestError,
            match="cannot be drawn here: it has no render mode that gives text or pixels",
        ):
            watch(run, gif=tmp_path / "film.gif")
    finally:
        gymnasium.registry.pop("Countdown-v0")


# Boards


TOY = ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1"]


@pytest.mark.parametrize("env", TOY)
def test_toy_text_is_drawn_on_its_board_with_the_agent_in_its_cell(
    env: str, tmp_path: Path
) -> None:
    """The disc stands where the environment says that the agent is, and no other cell has its
    colour in the middle."""
    from rlbook.envs.rendering import AGENT, COLOURS
    from rlbook.plots.films.episode_board import picture_of, stage_for

    run = rlbook.train("q_learning", env, steps=50, eval_every=0, simulate=False)
    stage = stage_for(run.agent, run.request.recipe)
    assert stage is not None
    here = {
        "FrozenLake-v1": (5, 5, 16),
        "CliffWalking-v1": (36, 36, 48),
        "Taxi-v4": (((2 * 5 + 3) * 5 + 4) * 4 + 1, 13, 25),
    }
    obs, state, count = here.get(env, ((15, 10, 0), 3 * 10 + 9, 100))
    moment = stage.at(obs)
    assert moment.state == state and moment.chart.board.num_states == count
    picture, board = picture_of(moment), moment.chart.board
    side = picture.shape[0] // board.rows
    row, column = divmod(state, board.columns)
    row = board.rows - 1 - row if board.upward else row
    middle = picture[row * side + side // 2, column * side + side // 2]
    assert np.abs(middle.astype(int) - COLOURS[AGENT]).max() <= 2
    path = save_gif(
        run.agent,
        EnvRecipe(run.request.recipe.id, {"max_episode_steps": 5}),
        tmp_path / "a.gif",
        seed=2,
    )
    frames, _ = frames_of(path)
    assert 2 <= len(frames) <= 6 and len({frame.shape for frame in frames}) == 1


def test_taxi_says_who_waits_where_and_has_its_walls() -> None:
    from rlbook.plots.films.episode_board import stage_for

    run = rlbook.train("value_iteration", "Taxi-v4")
    stage = stage_for(run.agent, run.request.recipe)
    assert stage is not None and stage.actions[4] == "pick up"
    # in the upper left corner, the passenger on board, to Y
    moment = stage.at(((0 * 5 + 0) * 5 + 4) * 4 + 2)
    assert moment.note == "passenger in the taxi, wants to Y" and moment.state == 0
    assert moment.barriers == ((0, 1), (1, 1), (3, 0), (3, 2), (4, 0), (4, 2))
    assert moment.chart.board.texts[0] == "R" and moment.chart.policy[20] == 5  # at Y: drop off
    assert moment.chart.values[20] == near(20.0, terms=2), (
        "the passenger is paid for, and the episode is over"
    )


def test_blackjack_shows_the_board_of_the_ace_and_nothing_below_12() -> None:
    from rlbook.plots.films.episode_board import stage_for

    run = rlbook.train("q_learning", "Blackjack-v1", steps=50, eval_every=0)
    stage = stage_for(run.agent, run.request.recipe)
    assert stage is not None
    soft, low = stage.at((18, 1, 1)), stage.at((8, 7, 0))
    assert (
        soft.chart.board.title == "usable ace" and soft.note == "player 18, dealer ace, usable ace"
    )
    assert (low.state, low.note, low.chart.board.title) == (
        None,
        "player 8, dealer 7",
        "no usable ace",
    )


def test_the_terminal_shows_the_board_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    run = rlbook.train("value_iteration", "FrozenLake-v1", env_kwargs={"is_slippery": False})
    stream = FakeTerminal()
    assert watch(run, stream=stream, pause=0.0) == [1.0]
    # six steps, and the start
    assert stream.getvalue().count("●") == 7 and "action down" in stream.getvalue()


def test_an_agent_without_values_is_watched_as_before() -> None:
    from rlbook.plots.films.episode_board import stage_for

    run = rlbook.train("mcts", "FrozenLake-v1", steps=1, simulations=2, eval_every=0)
    assert stage_for(run.agent, run.request.recipe) is None
    assert stage_for(solved().agent, EnvRecipe(MAZE)) is None, "the maze draws itself"


@pytest.mark.parametrize(("display", "driver"), [("", "dummy"), (":0", None)])
def test_windows_are_hidden_only_where_there_is_no_display(
    display: str, driver: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import sys

    from rlbook.plots.films.episode_frames import hide_windows

    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("SDL_VIDEODRIVER", "MUJOCO_GL", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("DISPLAY", display)
    hide_windows()
    assert os.environ.get("SDL_VIDEODRIVER") == driver
    assert os.environ.get("MUJOCO_GL") == (driver and "egl")


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_classic_control_becomes_a_gif(env: str, tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    run = rlbook.train("ppo", env, steps=8, num_envs=2, eval_every=0)
    frames, _ = frames_of(
        save_gif(run.agent, EnvRecipe(env, {"max_episode_steps": 4}), tmp_path / "a.gif")
    )
    assert len(frames) == 5 and len({frame.tobytes() for frame in frames}) == 5


def test_the_demos_environment_has_what_classic_control_is_drawn_with() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert '-e ".[games]"' in makefile.split(".venv/.runtime:")[1].split("\n\n")[0]


def test_an_episode_that_nothing_would_end_is_shown_for_a_while(tmp_path: Path) -> None:
    run, stream = (
        rlbook.train("q_learning", "CliffWalking-v1", steps=1, eval_every=0),
        io.StringIO(),
    )
    watch(run, stream=stream)
    assert "step 200 " in stream.getvalue() and "step 201" not in stream.getvalue()
    assert (
        "it did not finish, and was cut off, because the environment has no time limit"
        in stream.getvalue()
    )


@pytest.mark.thorough
def test_who_judges_and_does_not_act_is_not_watched() -> None:
    run = rlbook.train("reward_model", MAZE, passes=1, eval_every=0)
    with pytest.raises(
        RequestError,
        match="reward_model does not act, so there is nothing to watch; rlbook evaluate measures",
    ):
        watch(run)


class Broken(Countdown):
    """Its renderer fails in a way of its own."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        raise OSError("cannot open\ndisplay :9")


def test_a_renderer_that_fails_is_one_sentence(tmp_path: Path) -> None:
    run = rlbook.train("ppo", Broken("rgb_array"), steps=1, eval_every=0)
    with pytest.raises(RequestError, match="could not be drawn: OSError: cannot open display :9"):
        watch(run, tmp_path / "broken.gif")
    gymnasium.register("BrokenRenderer-v0", entry_point=Broken)
    try:
        run = rlbook.train("ppo", "BrokenRenderer-v0", steps=1, eval_every=0)
        with pytest.raises(
            RequestError,
            match="BrokenRenderer-v0 cannot be drawn here: OSError: cannot open display :9",
        ):
            watch(run, tmp_path / "broken.gif")
    finally:
        del gymnasium.registry["BrokenRenderer-v0"]
    assert list(tmp_path.iterdir()) == []
