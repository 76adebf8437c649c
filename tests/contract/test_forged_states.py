"""A checkpoint whose seals are right and whose state no run has written: one sentence, before
anything uses it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlbook
from rlbook.cli import main as cli
from rlbook.runs.storage.array_files import ArrayFile
from rlbook.runs.storage.checkpoints import (
    BLOB,
    HEADER,
    SCHEMA,
    CheckpointError,
    _seal,
    latest_step,
    load_checkpoint,
)
from rlbook.runs.storage.folder import seal
from rlbook.runs.storage.state_encoding import encode

State = dict[str, Any]
NAN, HUGE = float("nan"), 10**400

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": (
        "Maze-v0",
        {
            "steps": 60,
            "learning_starts": 20,
            "prioritized": True,
            "n_step": 2,
            "env_kwargs": {"slip": 0.2},
        },
    ),
    "sac": ("Pendulum-v1", {"steps": 60, "learning_starts": 20, "num_envs": 2}),
    "ppo": ("CartPole-v1", {"steps": 120, "num_envs": 2, "rollout_steps": 50}),
    "grpo": (
        "Addition-v0",
        {
            "steps": 20,
            "num_envs": 8,
            "group_size": 4,
            "model": {"hidden_size": 8, "intermediate_size": 8},
        },
    ),
    "dyna_q": ("TicTacToe-v0", {"steps": 30}),
    "alphazero": ("Maze-v0", {"steps": 120, "simulations": 2, "greedy_simulations": 2}),
    "q_learning": ("OwnGenerators-v0", {"steps": 150}),
}


class OwnGenerators(gymnasium.Env):
    """Draws what it shows from generators of three kinds that no reset makes anew. Its episodes
    have 40 steps."""

    observation_space, action_space = gymnasium.spaces.Discrete(10), gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.old, self.python = np.random.RandomState(1), random.Random(2)
        self.philox = np.random.Generator(np.random.Philox(3))

    def reset(self, *, seed: int | None = None, options: State | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._draw(), 1.0, self.time == 40, False, {}

    def _draw(self) -> int:
        total = self.old.normal() + self.python.gauss(0, 1) + self.philox.normal()
        return int(abs(100 * total)) % 10


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    gymnasium.register("OwnGenerators-v0", f"{__name__}:OwnGenerators")
    yield
    del gymnasium.registry["OwnGenerators-v0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the run of an algorithm, once."""
    made: dict[str, Path] = {}

    def run(algorithm: str) -> Path:
        if algorithm not in made:
            env, options = RUNS[algorithm]
            small: dict[str, Any] = (
                {"hidden_sizes": (4,)} if algorithm in ("dqn", "sac", "ppo") else {}
            )
            made[algorithm] = tmp_path_factory.mktemp("runs") / algorithm
            rlbook.train(
                algorithm,
                env,
                out=made[algorithm],
                eval_every=0,
                eval_episodes=1,
                **options,
                **small,
            )
        return made[algorithm]

    return run


def forge(folder: Path, change: Callable[[State], Any]) -> None:
    """Rewrites the last checkpoint after `change(state)`: also with what is never written, such as
    NaN."""
    step = latest_step(folder)
    assert step is not None
    _, state = load_checkpoint(folder)
    change(state)
    arrays: dict[str, np.ndarray] = {}
    skeleton = skeleton_of(state, "", arrays)
    blob = ArrayFile.from_arrays(arrays)
    header = {
        "schema": SCHEMA,
        "step": step,
        "libraries": {},
        "config": [seal((folder / "config.yaml").read_bytes())],
        "blobs": {BLOB: {"size": blob.size, "sha256": blob.sha256()}},
        "frozen": {},
        "state": skeleton,
    }
    place = folder / "checkpoints" / str(step)
    (place / HEADER).write_bytes(_seal(header))
    (place / BLOB).write_bytes(b"".join(blob))


def skeleton_of(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        return {name: skeleton_of(part, f"{where}/{name}", arrays) for name, part in value.items()}
    if isinstance(value, list):
        return [skeleton_of(part, f"{where}/{index}", arrays) for index, part in enumerate(value)]
    if isinstance(value, np.ndarray):
        arrays[where] = value
        return {"$array": where}
    if isinstance(value, torch.Tensor):
        arrays[where] = value.numpy()
        return {"$tensor": where, "dtype": str(value.dtype).removeprefix("torch.")}
    return encode({"value": value})[0]["value"]  # type: ignore[index]


def at(state: State, place: str) -> tuple[Any, Any]:
    """What holds the value at a place such as "agent/counts/0", and its name there."""
    *path, last = (int(name) if name.isdigit() else name for name in place.split("/"))
    for name in path:
        state = state[name]  # type: ignore[index]
    return state, last


def becomes(place: str, change: Any) -> Callable[[State], None]:
    """Puts another value there: `change`, or what it makes of the one that stands there."""

    def changed(state: State) -> None:
        holder, name = at(state, place)
        holder[name] = change(holder[name]) if callable(change) else change

    return changed


def filled(value: float) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        made = array.clone() if isinstance(array, torch.Tensor) else array.copy()
        made[...] = value
        return made

    return change


RNG = "agent/rngs/0"
ROWS, STEP = "agent/replay/rows", "agent/rollout/steps/0"
WORLD = "source/env/rngs/0"
HELD = "source/env/generators"
OLD, PYTHONS, PHILOX = (f"{HELD}/{number}/state" for number in range(3))
FORGERIES: dict[str, list[tuple[str, Any, str]]] = {
    "dqn": [
        (
            f"{ROWS}/action",
            filled(99),
            r"agent/replay/rows/action holds a value that is not an action of Discrete\(4\)",
        ),
        (f"{ROWS}/action", filled(-1), "a value that is not an action"),
        (f"{ROWS}/action", lambda kept: kept.double(), "a value that is not an action"),
        (f"{ROWS}/action", None, "a value that is not an action"),
        (f"{ROWS}/obs", lambda kept: kept[:, :-1].clone(), "is not an observation"),
        (f"{ROWS}/next_obs", filled(NAN), "NaN"),
        (f"{ROWS}/reward", lambda kept: kept.double(), "reward must be float32"),
        (f"{ROWS}/reward", None, "lacks its reward"),
        (f"{ROWS}/terminated", lambda kept: kept.long(), "are not booleans"),
        ("agent/replay/priorities/values", filled(-1.0), "priorities"),
        ("agent/replay/priorities/largest", NAN, "not finite"),
        ("agent/replay/size", HUGE, "64 bits"),
        ("agent/optimizer/steps", filled(-5.0), "not a number of steps"),
        ("agent/optimizer/steps", filled(0.5), "not a number of steps"),
        ("agent/optimizer/square", filled(-1.0), "means of squares below 0"),
        (f"{RNG}/state/state", HUGE, "random generator"),
        (f"{RNG}/state/inc", -1, "random generator"),
        (f"{RNG}/uinteger", "7", "random generator"),
        (f"{WORLD}/state/state", -1, "random generator"),
        (f"{WORLD}/has_uint32", 2, "random generator"),
        ("source/env/rngs", [], "generators"),
        ("source/env/steps_left", lambda left: left[:0], "steps_left"),
        ("source/valid", filled(0), "valid must be true"),
        ("source/steps", HUGE, "64 bits"),
        ("report/progress", HUGE, "64 bits"),
    ],
    "sac": [
        (f"{ROWS}/action", lambda kept: kept.long(), "a value that is not an action"),
        (f"{ROWS}/action", lambda kept: kept[:, 0].clone(), "a value that is not an action"),
        ("agent/optimizers/actor/steps", filled(-5.0), "not a number of steps"),
        ("agent/counts/0", -1, "below 0"),
        ("source/env/terminated", lambda flags: flags[:1], "terminated"),
        (
            "source/env/envs/0/actions",
            lambda actions: np.full_like(actions, 1e30)[:, :0],
            "does not fit",
        ),
    ],
    "ppo": [
        (f"{STEP}/action", filled(99), "a value that is not an action"),
        (f"{STEP}/obs", lambda obs: obs[:1], "is not an observation"),
        (
            "agent/rollout/log_probs/0",
            filled(-1e30),
            "log-probability that no sampled action can have",
        ),
        (
            "agent/rollout/log_probs/0",
            lambda kept: kept[:1],
            "not log-probabilities of these actions",
        ),
        ("agent/rollout/log_probs", [], "one array of log-probabilities for each step"),
        ("agent/rollout/steps/0", {}, "is not a step"),
        ("agent/kl_coef", NAN, "not finite"),
    ],
    "grpo": [
        ("source/env/rows/tokens", filled(10**9), "tokens must be in"),
        ("source/env/rows/prompt", filled(10**9), "prompt must be in"),
        ("source/env/rows/lengths", filled(-1), "lengths must be in"),
        ("source/env/rng/0/uinteger", -1, "random generator"),
    ],
    "alphazero": [
        ("agent/kept/obs", lambda kept: kept[:0], "an observation, a target and an outcome each"),
        ("agent/optimizer/steps", filled(-5.0), "not a number of steps"),
    ],
    "q_learning": [
        (f"{OLD}/state/pos", 625, "random generator is damaged"),
        (f"{OLD}/state/pos", -1, "random generator is damaged"),
        (f"{OLD}/state/pos", 3.0, "random generator is damaged"),
        (f"{OLD}/state/key", lambda key: key[:-1], "random generator is damaged"),
        (f"{OLD}/state/key", lambda key: key.astype(np.int64), "random generator is damaged"),
        (f"{OLD}/state/key", filled(0), "random generator is damaged"),
        (f"{OLD}/state/key", "words", "random generator is damaged"),
        (f"{OLD}/has_gauss", 2, "random generator is damaged"),
        (f"{OLD}/gauss", NAN, "random generator is damaged"),
        (f"{OLD}/bit_generator", "PCG64", "random generator is damaged"),
        (f"{OLD}/bit_generator", [], "random generator is damaged"),
        (OLD, np.random.Generator(np.random.MT19937(0)).bit_generator.state, "of another kind"),
        (OLD, {"state": 3}, "random generator is damaged"),
        (f"{PYTHONS}/state/pos", 625, "random generator is damaged"),
        (f"{PYTHONS}/state/key", filled(0), "random generator is damaged"),
        (f"{PYTHONS}/gauss", "0", "random generator is damaged"),
        (f"{PYTHONS}/has_gauss", 0, "random generator is that of another kind"),
        (PYTHONS, np.random.PCG64(0).state, "of another kind"),
        (f"{PHILOX}/buffer_pos", 5, "random generator is damaged"),
        (f"{PHILOX}/buffer", lambda words: words[:3], "random generator is damaged"),
        (f"{PHILOX}/state/counter", [0, 0, 0, 0], "random generator is damaged"),
        (f"{HELD}/0/place", ["no", "such"], "no random generator as no.such"),
        (f"{HELD}/0/place", [], "no random generator as"),
        (f"{HELD}/0/place", None, "does not fit"),
        (HELD, 3, "does not fit"),
        ("source/env/seeded", [], "does not fit"),
        ("source/env/seeded", [1, -1], "does not fit"),
        ("source/env/seed", "1", "does not fit"),
        ("source/env/actions", "01", "does not fit"),
        ("source/env/actions", filled(2), r"actions must be in \[0, 2\), got 2"),
    ],
    "dyna_q": [
        ("source/rng/state/state", 1.5, "random generator"),
        ("source/length", HUGE, "64 bits"),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", RUNS)
def test_a_forged_state_is_refused_in_one_sentence(
    algorithm: str,
    finished: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = finished(algorithm)
    unchanged = Path(shutil.copytree(original, tmp_path / "unchanged"))
    forge(unchanged, lambda state: None)
    assert cli.main(["train", "--resume", str(unchanged)]) == 0, (
        "the refusals below are not about the seals"
    )
    for number, (place, change, reason) in enumerate(FORGERIES[algorithm]):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        forge(folder, becomes(place, change))
        capsys.readouterr()
        code, said = (
            cli.main(["train", "--resume", str(folder)]),
            capsys.readouterr().err.splitlines(),
        )
        assert code == 2 and len(said) == 1 and len(said[0]) < 500, (place, said)
        assert re.search(reason, said[0]), (place, said)


def test_a_sparse_file_of_a_terabyte_is_refused_before_memory_is_taken(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished("dqn"), tmp_path / "run"))
    place = folder / "checkpoints" / str(latest_step(folder))
    header = json.loads((place / HEADER).read_bytes())
    del header["sha256"]
    header["blobs"][BLOB]["size"] = 2**40
    os.truncate(place / BLOB, 2**40)
    (place / HEADER).write_bytes(_seal(header))
    with pytest.raises(
        CheckpointError, match=r"1099511627776 bytes, more than this machine has memory"
    ):
        rlbook.load(folder)


@pytest.mark.parametrize(
    "env", ["Addition-v0", "Chat-v0", "Mixture-v0", "Retrieval-v0", "Countdown-v0"]
)
def test_every_environment_of_texts_takes_its_own_snapshot_and_no_other_prompt(env: str) -> None:
    made: Any = gymnasium.make_vec(f"rlbook/{env}", num_envs=2)
    fresh: Any = gymnasium.make_vec(f"rlbook/{env}", num_envs=2)
    made.reset(seed=0)
    snapshot = made.unwrapped.snapshot()
    fresh.unwrapped.restore(snapshot)
    action = np.zeros(2, dtype=np.int64)
    assert [part.tolist() for part in made.step(action)[1:4]] == [
        part.tolist() for part in fresh.step(action)[1:4]
    ]
    count = len(made.unwrapped.rows.rules.texts)
    for prompt in (count, -3):
        snapshot["rows"]["prompt"][0] = prompt
        with pytest.raises(ValueError, match=rf"prompt must be in \[-2, {count - 1}\]"):
            fresh.unwrapped.restore(snapshot)
