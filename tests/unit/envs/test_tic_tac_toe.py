"""Tic-tac-toe: what its docstring states, counted by playing; illegal moves, sides, snapshots and
pictures."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs import TabularMDP
from rlbook.envs.tic_tac_toe import (
    LINES,
    TicTacToe,
    boards,
    is_finished,
    is_lost,
    number,
    perfect_values,
    positions,
    successor_table,
    symmetries,
)

DOC = " ".join((TicTacToe.__doc__ or "").split())
EMPTY = "." * 9


def won(board: str, mark: str) -> bool:
    return any(all(board[cell] == mark for cell in line) for line in LINES)


def over(board: str) -> bool:
    return won(board, "X") or won(board, "O") or "." not in board


def moves(board: str) -> list[str]:
    """All boards that one more mark makes, straight from the rules: nothing here comes from the
    environment."""
    mark = "X" if board.count("X") == board.count("O") else "O"
    return (
        []
        if over(board)
        else [board[:cell] + mark + board[cell + 1 :] for cell in range(9) if board[cell] == "."]
    )


@cache
def games(board: str) -> Counter[str]:
    """How many ways the game can go on from here, by who wins."""
    if over(board):
        return Counter({"X" if won(board, "X") else "O" if won(board, "O") else "draw": 1})
    return sum((games(after) for after in moves(board)), Counter())


@cache
def worth(board: str) -> int:
    """Minimax, to the side to move."""
    if over(board):
        return -1 if won(board, "X") or won(board, "O") else 0
    return max(-worth(after) for after in moves(board))


@cache
def chances(board: str) -> tuple[float, float, float]:
    """How likely the first side, the second and nobody win if both move at random."""
    if over(board):
        return (
            float(won(board, "X")),
            float(won(board, "O")),
            float(not won(board, "X") and not won(board, "O")),
        )
    first, second, nobody = np.mean([chances(after) for after in moves(board)], axis=0)
    return first, second, nobody


@cache
def against_chance(board: str, mark: str) -> float:
    """What the best play of one side reaches against random moves of the other."""
    if over(board):
        return float(won(board, mark)) - float(won(board, "O" if mark == "X" else "X"))
    values = [against_chance(after, mark) for after in moves(board)]
    return (
        max(values)
        if (mark == "X") == (board.count("X") == board.count("O"))
        else float(np.mean(values))
    )


def state_of(board: str) -> int:
    own = "X" if board.count("X") == board.count("O") else "O"
    return int("".join("0" if cell == "." else "1" if cell == own else "2" for cell in board), 3)


@cache
def every_board() -> frozenset[str]:
    found, new = {EMPTY}, [EMPTY]
    while new:
        new = [after for board in new for after in moves(board) if after not in found]
        new = list(dict.fromkeys(new))
        found.update(new)
    return frozenset(found)


def test_the_positions_are_those_that_playing_reaches_each_with_its_end_and_its_value() -> None:
    states = np.array([state_of(board) for board in every_board()])
    assert (
        len(states) == len(set(states.tolist())) == positions().sum() == 5478
        and positions()[states].all()
    )
    assert is_finished()[states].tolist() == [over(board) for board in every_board()]
    assert is_lost()[states].tolist() == [
        won(board, "X") or won(board, "O") for board in every_board()
    ]
    assert perfect_values()[states].tolist() == [worth(board) for board in every_board()]
    assert perfect_values()[0] == 0 and is_finished()[states].sum() == 958
    assert "5478 positions, 958 of them ends" in DOC


def test_the_number_of_games_is_the_stated_one() -> None:
    count = games(EMPTY)
    assert (count.total(), count["X"], count["O"], count["draw"]) == (255168, 131184, 77904, 46080)
    assert "255168 games: the first side wins 131184, the second 77904, and 46080 are drawn" in DOC


def test_random_players_win_and_draw_as_often_as_stated() -> None:
    first, second, nobody = chances(EMPTY)
    assert (
        f"wins with probability {first:.6f}, the second with {second:.6f}, and {nobody:.6f} are"
        " draws" in DOC
    )


@pytest.mark.parametrize("side", ["first", "second"])
def test_planning_finds_the_exact_best_response(side: str) -> None:
    expected = against_chance(EMPTY, "X" if side == "first" else "O")
    for observation in ("board", "index"):
        env = rlbook.make("TicTacToe-v0", opponent="random", side=side, observation=observation)
        run = rlbook.train("value_iteration", env, gamma=1.0, eval_every=0)
        value = env.unwrapped.model().initial @ run.agent.values()  # type: ignore[attr-defined]
        assert value == near(expected, terms=9 * 9, size=1.0)  # means over at most 9 moves, 9 deep
    assert f"{expected:.6f}" in DOC and against_chance(EMPTY, "X") == near(191 / 192, terms=9 * 9)
    env = rlbook.make("TicTacToe-v0", opponent="exact", side=side)
    run = rlbook.train("value_iteration", env, gamma=1.0, eval_every=0)
    assert env.unwrapped.model().initial @ run.agent.values() == 0.0  # type: ignore[attr-defined]
    assert (rlbook.evaluate(run, episodes=50).returns == 0).all()


def test_the_exact_player_plays_every_best_move_and_no_other() -> None:
    env: Any = rlbook.make("TicTacToe-v0", opponent="exact", side="first")
    played = Counter()
    for seed in range(200):
        env.reset(seed=seed)
        played[tuple(env.step(0)[0].tolist())] += 1
    assert set(played) == {(1, 0, 0, 0, 2, 0, 0, 0, 0)}, "a corner is answered in the middle alone"
    env = rlbook.make("TicTacToe-v0", opponent="exact", side="second")
    openings = Counter(int(env.reset(seed=seed)[0].argmax()) for seed in range(300))
    assert set(openings) == set(range(9)) and min(openings.values()) > 10, "every opening draws"


def test_marking_a_taken_cell_loses_and_the_mask_says_which_are_free() -> None:
    env: Any = rlbook.make("TicTacToe-v0", opponent="self")
    shown, info = env.reset(seed=0)
    assert info["action_mask"].all() and not shown.any()
    shown, *_, info = env.step(4)
    assert shown.tolist() == [0, 0, 0, 0, 2, 0, 0, 0, 0], "the other side sees the mark as theirs"
    assert np.flatnonzero(~info["action_mask"]).tolist() == [4]
    shown, reward, terminated, truncated, _ = env.step(4)
    assert (reward, terminated, truncated) == (-1.0, True, False) and shown[4] == 2


def test_side_by_side_the_mask_has_a_row_a_game() -> None:
    many = gymnasium.make_vec("rlbook/TicTacToe-v0", num_envs=3, opponent="self")
    assert many.reset(seed=0)[1]["action_mask"].all()
    free = many.step(np.array([0, 4, 8]))[-1]["action_mask"]
    assert (~free).nonzero()[1].tolist() == [0, 4, 8]


@pytest.mark.parametrize("observation", ["board", "index"])
def test_both_sides_are_paid_for_their_own_wins(observation: str) -> None:
    env: Any = rlbook.make("TicTacToe-v0", opponent="self", observation=observation)
    env.reset(seed=0)
    assert [env.step(cell)[1:3] for cell in (0, 3, 1, 4)] == [(0.0, False)] * 4
    before = env.unwrapped.snapshot()
    assert env.step(2)[1:3] == (1.0, True)
    env.unwrapped.restore(before)
    assert env.step(8)[1:3] == (0.0, False) and env.step(5)[1:3] == (
        1.0,
        True,
    ), "the second side's win is the second side's gain"


def test_a_snapshot_is_the_same_with_and_without_an_opponent() -> None:
    env: Any = rlbook.make("TicTacToe-v0", opponent="exact", side="second").unwrapped
    shown, _ = env.reset(seed=3)
    rules = env.rules()
    rules.reset(seed=0)
    rules.restore(env.snapshot())
    cell = int(np.flatnonzero(env.action_mask(shown))[0])
    assert rules.step(cell)[0].tolist() == [
        2 if at == cell else {0: 0, 1: 2, 2: 1}[own] for at, own in enumerate(shown.tolist())
    ]
    assert rules.alternates and not env.alternates


def test_a_game_against_oneself_is_no_mdp_and_is_judged_against_perfect_play() -> None:
    env: Any = rlbook.make("TicTacToe-v0", opponent="self").unwrapped
    with pytest.raises(ValueError, match="each side's gain is the other's loss"):
        env.model()
    with pytest.raises(rlbook.RequestError, match="each side's gain is the other's loss"):
        rlbook.train("value_iteration", "TicTacToe-v0", env_kwargs={"opponent": "self"})
    assert env.evaluation_kwargs == {"opponent": "exact"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"opponent": "perfect"}, "opponent must be one of random, exact, self, got 'perfect'."),
        ({"side": "X"}, "side must be one of random, first, second, got 'X'."),
        ({"observation": 3}, "observation must be one of board, index, got 3."),
        (
            {"opponent": "self", "side": "first"},
            "side has no effect with opponent 'self', which plays both, got 'first'; leave it out.",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        TicTacToe(**arguments)
    assert str(error.value) == complaint


def test_the_board_is_drawn_as_the_docstring_shows_it() -> None:
    env = TicTacToe("self", render_mode="rgb_array")
    env.reset(seed=0)
    for cell in (0, 2, 4, 8):
        env.step(cell)
    text = env.draw_text(env.snapshot()["state"])
    assert text == "X.O\n.X.\n..O" and all(f"{line} " in DOC for line in text.split())
    image = env.render().reshape(3, 64, 3, 64, 3)
    middle = image[:, 32, :, 32].tolist()
    assert [[pixel == middle[1][1] for pixel in row] for row in middle] == [
        [True, False, False],
        [False, True, False],
        [False] * 3,
    ]
    marked = (image != image[1, 32, 0, 32]).any(axis=-1)[:, 2:-2, :, 2:-2].any(axis=(1, 3))
    assert marked.tolist() == [[True, False, True], [False, True, False], [False, False, True]]


def test_the_board_has_eight_symmetries_and_a_move_turned_with_the_board_leads_to_the_board_turned() -> (
    None
):
    ways, shown = symmetries(), boards()
    assert sorted(map(tuple, ways)) == sorted({tuple(way) for way in ways}) and ways.shape == (8, 9)
    for way in ways:
        turned = number(shown[:, way])
        np.testing.assert_array_equal(perfect_values()[turned], perfect_values())
        np.testing.assert_array_equal(
            successor_table()[turned], number(shown[successor_table()[:, way]][:, :, way])
        )
    assert TicTacToe(observation="index").symmetries is None


@pytest.mark.parametrize("opponent", ["random", "exact"])
def test_finished_games_are_the_terminal_states_that_can_be_reached(opponent: str) -> None:
    model = TabularMDP.from_env(rlbook.make("TicTacToe-v0", opponent=opponent))
    reached = model.reachable()
    assert np.array_equal(model.terminal[reached], is_finished()[reached])
