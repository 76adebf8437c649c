"""`seed=None` draws a seed, as in gymnasium, NumPy and Stable-Baselines3, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from parallel_runs import finish, start

import rlbook
from rlbook.recipes.tuning import tune


def walk(**options: object) -> rlbook.Run:
    return rlbook.train("q_learning", "RandomWalk-v0", episodes=20, eval_every=0, **options)  # type: ignore[call-overload]


def test_a_seed_of_none_is_drawn_said_and_kept_so_that_the_run_can_be_repeated(
    tmp_path: Path,
) -> None:
    one, two = walk(seed=None, out=tmp_path / "run"), walk(seed=None)
    seed = one.request.seed
    # 2^-32 that two are equal
    assert 0 < seed < 2**32 and two.request.seed != seed
    assert f"seed: {seed}, drawn at random because seed was None" in one.notes
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["seed"] == seed
    assert walk(seed=seed).episode_returns == one.episode_returns
    assert walk(seed=seed).episode_lengths == one.episode_lengths


def test_without_a_seed_it_is_0() -> None:
    assert walk().request.seed == 0 and not any("seed" in note for note in walk().notes)


def test_a_run_that_goes_on_keeps_its_own_seed(tmp_path: Path) -> None:
    first = walk(seed=None, out=tmp_path / "run")
    again = walk(seed=None, out=tmp_path / "run", resume=True)
    assert again.request.seed == first.request.seed


def test_a_search_for_hyperparameters_needs_a_seed_that_can_be_given_again(tmp_path: Path) -> None:
    with pytest.raises(rlbook.RequestError, match="seed must be a number, got None"):
        tune("q_learning", "RandomWalk-v0", out=tmp_path / "search", seed=None)
    assert not (tmp_path / "search").exists()


def test_all_processes_of_a_run_draw_the_same_seed() -> None:
    code = (
        "import rlbook; run = rlbook.train('a2c', 'CartPole-v1', steps=20, num_envs=2, seed=None,"
        " eval_every=0); print(run.request.seed)"
    )
    done = finish(start(2, ["-c", code]), 100)
    assert [exit_code for exit_code, _, _ in done] == [0, 0], done
    assert done[0][1] == done[1][1] and int(done[0][1]) > 0
