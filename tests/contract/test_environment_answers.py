"""An environment answers as gymnasium asks, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import rlbook
from rlbook.interaction.spaces import AdaptedVectorEnv, adapt
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.seeding import rng_state, set_rng_state

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
AGENTS = {"q_learning": spaces.Discrete(4), "semi_gradient_sarsa": BOX, "dqn": BOX, "ppo": BOX}
"""Agents and what they see: a table's own loop, one environment, and two of many."""


class Answering(gymnasium.Env):
    """Four steps an episode; from the fifth step on `step` and `reset` change the answers."""

    action_space = spaces.Discrete(2)

    def __init__(
        self,
        space: spaces.Space,
        step: Callable[[Any], Any] = tuple,
        reset: Callable[[Any], Any] = tuple,
    ) -> None:
        self.observation_space, self.answer, self.begin, self.count = space, step, reset, 0
        self.right: Any = np.zeros(2, np.float32) if space is BOX else 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.begin((self.right, {})) if self.count else (self.right, {})

    def step(self, action: Any) -> Any:
        self.count += 1
        said = self.right, 1.0, self.count % 4 == 0, False, {}
        return self.answer(said) if self.count >= 5 else said


def trained(algorithm: str, steps: int = 12, **answers: Any) -> rlbook.Run:
    options: dict[str, Any] = {"num_envs": 1} if algorithm in ("dqn", "ppo") else {}
    env = Answering(AGENTS[algorithm], **answers)
    return rlbook.train(algorithm, env, steps=steps, eval_every=0, **options)


def refusal(algorithm: str, **answers: Any) -> str:
    with pytest.raises(rlbook.TrainingError) as error:
        trained(algorithm, **answers)
    assert "\n" not in str(error.value)
    return str(error.value)


def put(place: int, value: Any) -> Callable[[Any], Any]:
    """Puts a value into a step's five."""
    return lambda said: (*said[:place], value, *said[place + 1 :])


GRADIENT = torch.ones((), requires_grad=True)
FIVE = "step must return observation, reward, terminated, truncated and info, got"
OLD = "step returned 4 values, as gym did before gymnasium: it must return 5"
NUMBER = "the reward must be a number, got"
FORMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "old": (lambda said: (*said[:3], said[4]), OLD),
    "three": (lambda said: said[:3], f"{FIVE} 3 values"),
    "nothing": (lambda said: None, f"{FIVE} None"),
    "info": (put(4, None), "info must be a dict, got None"),
    "text": (put(2, "False"), "terminated must be True or False, got 'False'"),
    "no flag": (put(2, None), "terminated must be True or False, got None"),
    "NaN": (put(3, np.nan), "truncated must be True or False, got nan"),
    "two": (put(3, 2), "truncated must be True or False, got 2"),
    "float": (put(2, 1.0), "terminated must be True or False, got 1.0"),
    "flags": (put(2, np.array([True])), "terminated must be True or False, got array([ True])"),
    "reward": (put(1, "1"), f"{NUMBER} '1'"),
    "bytes": (put(1, b"1"), f"{NUMBER} b'1'"),
    "digits": (put(1, np.array("1")), f"{NUMBER} array('1'"),
    "complex": (put(1, np.complex128(1j)), f"{NUMBER} np.complex128(1j)"),
    "row": (put(1, np.array([1.0])), f"{NUMBER} array([1.]) of shape (1,)"),
    "tensor": (put(1, torch.ones(1)), f"{NUMBER} tensor([1.]) of shape (1,)"),
    "beyond a float": (put(1, 10**400), "float"),
    "gradient": (
        put(1, GRADIENT),
        f"{NUMBER} tensor(1., requires_grad=True), which has a gradient",
    ),
}


@pytest.mark.parametrize("algorithm", AGENTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_another_form_is_one_sentence(algorithm: str, form: str) -> None:
    step, sentence = FORMS[form]
    told = refusal(algorithm, step=step)
    assert sentence in told and told.startswith("the environment failed at step 5: ")


STARTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bare": (lambda said: np.array([0.5, -0.5]), "got array([ 0.5, -0.5])"),
    "observation": (lambda said: said[0], "got "),
    "no info": (lambda said: (said[0], None), "got "),
    "three": (lambda said: (*said, {}), "got "),
}


@pytest.mark.parametrize("algorithm", AGENTS)
@pytest.mark.parametrize("form", STARTS)
def test_a_reset_of_another_form_is_one_sentence(algorithm: str, form: str) -> None:
    reset, got = STARTS[form]
    sentence = f"failed to reset after step 4: reset must return an observation and a dict, {got}"
    assert sentence in refusal(algorithm, reset=reset)


GOOD: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda said: (said[0], np.float32(1.0), np.bool_(said[2]), np.False_, said[4]),
    "integers": lambda said: (said[0], 1, int(said[2]), np.int64(0), said[4]),
    "arrays": lambda said: (said[0], np.array(1.0), np.array(said[2]), np.array(False), said[4]),
    "tensors": lambda said: (said[0], *map(torch.tensor, said[1:4]), said[4]),
    "list": list,
}


@pytest.mark.parametrize("algorithm", AGENTS)
@pytest.mark.parametrize("form", GOOD)
def test_numbers_and_flags_may_be_numpys_and_torchs(algorithm: str, form: str) -> None:
    run = trained(algorithm, steps=40, step=GOOD[form])
    assert run.episode_returns == [4.0] * 10
    assert all(type(item) is float for item in run.episode_returns)


OBSERVATIONS: dict[str, tuple[spaces.Space, Any, Any]] = {
    "one number for two": (BOX, np.zeros(2, np.float32), np.zeros(1, np.float32)),
    "a scalar for two": (BOX, np.zeros(2, np.float32), 0.0),
    "a byte's 300": (spaces.Box(0, 255, (2,), np.uint8), np.zeros(2, np.uint8), np.array([3, 300])),
    "a half": (spaces.Discrete(4), 2, 2.5),
    "no number": (spaces.Discrete(4), 2, np.nan),
    "a text": (BOX, np.zeros(2, np.float32), np.array(["0.1", "0.2"])),
}


@pytest.mark.parametrize("case", OBSERVATIONS)
@pytest.mark.filterwarnings("error")
def test_an_observation_is_not_bent_into_its_space(case: str) -> None:
    """As `array[i] = row` would: spread over the axes, wrapped around, or cut to a whole number."""
    space, right, wrong = OBSERVATIONS[case]

    class Odd(Answering):
        def __init__(self) -> None:
            super().__init__(space, step=put(0, wrong))
            self.right = right

    with pytest.raises(rlbook.TrainingError, match=r"step 5: the observation .* outside"):
        rlbook.train("ppo", Odd(), steps=12, num_envs=1, eval_every=0)


IMAGE = spaces.Box(0, 255, (2, 2, 1), np.uint8)
PARTS: dict[str, tuple[Any, str]] = {
    "a byte's 300": (np.full((2, 2, 1), 300, np.uint16), r"\['image'\] 300 is outside Box"),
    "a half": (np.full((2, 2, 1), 0.5), r"\['image'\] 0.5 is outside Box"),
    "no channel": (np.zeros((2, 2), np.uint8), r"\['image'\] has shape \(2, 2\) and type uint8"),
}


@pytest.mark.parametrize("case", PARTS)
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.filterwarnings("ignore")  # gymnasium's own, about the same number
def test_no_part_of_an_observation_is_bent_into_its_space(case: str, num_envs: int) -> None:
    wrong, sentence = PARTS[case]
    right = {"image": np.zeros((2, 2, 1), np.uint8), "place": np.zeros(2, np.float32)}
    space = spaces.Dict(image=IMAGE, place=BOX)
    for one, shown, odd in (
        (space, right, right | {"image": wrong}),
        (spaces.Tuple([space, BOX]), (right, right["place"]), (right | {"image": wrong}, 0)),
    ):
        env = Answering(one, step=put(0, odd))
        env.right = shown
        named = "" if one is space else r"\[0\]"
        with pytest.raises(rlbook.TrainingError, match=f"the observation{named}{sentence}"):
            rlbook.train("ppo", env, steps=12, num_envs=num_envs, eval_every=0)


@pytest.mark.filterwarnings("ignore")
def test_an_array_is_no_dict_of_parts() -> None:
    env = Answering(spaces.Dict(image=IMAGE, place=BOX))
    env.right = np.zeros(2)
    with pytest.raises(rlbook.TrainingError, match=r"is outside Dict\('image', 'place'\)$"):
        rlbook.train("ppo", env, steps=12, eval_every=0)


@pytest.mark.filterwarnings("ignore")
def test_a_part_of_whole_floats_becomes_the_bytes_of_its_space() -> None:
    """As an image of its own may be `np.zeros((2, 2, 1))`."""
    env = Answering(spaces.Dict(image=IMAGE))
    env.right = {"image": np.full((2, 2, 1), 7.0)}
    stacked, _ = SyncVector([env, env]).reset(seed=0)
    assert stacked["image"].dtype == np.uint8 and (stacked["image"] == 7).all()


class Many(VectorEnv):
    """Two environments side by side, as somebody else writes them."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    num_envs = 2
    single_observation_space, single_action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, **said: Any) -> None:
        self.said = said

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.said.get("reset", (np.zeros(2, np.int64), {}))

    def step(self, actions: Any) -> Any:
        said = {
            "obs": np.zeros(2, np.int64),
            "reward": np.ones(2),
            "terminated": np.zeros(2, np.bool_),
            "truncated": np.zeros(2, np.bool_),
            "info": {},
        }
        return self.said.get("step", tuple((said | self.said).values()))


MANY: dict[str, tuple[Any, str]] = {
    "reward": ([1.0, 1.0], "reward must be an array [2] of numbers, got [1.0, 1.0]"),
    "terminated": (np.zeros(2), "terminated must be an array [2] of bools, got array([0., 0.])"),
    "truncated": (
        np.zeros((2, 1), np.bool_),
        "truncated must be an array [2] of bools, got array([[",
    ),
    "info": ((), "info must be a dict, got ()"),
    "step": ((0, 1, 2, 3), OLD),
}


@pytest.mark.parametrize("part", MANY)
def test_many_side_by_side_are_held_to_the_same(part: str) -> None:
    value, sentence = MANY[part]
    env = Many(**{part: value})
    adaptation = adapt(env.single_observation_space, env.single_action_space, rlbook.PPO)
    interaction = VectorInteraction(AdaptedVectorEnv(env, adaptation), np.random.default_rng(0))
    interaction.start()
    with pytest.raises(rlbook.TrainingError) as error:
        interaction.step(np.zeros(2, np.int64))
    assert sentence in str(error.value)


def test_a_wrapper_that_takes_four_values_apart_says_what_is_wrong() -> None:
    env = gymnasium.wrappers.TimeLimit(Answering(BOX, step=FORMS["old"][0]), 100)
    with pytest.raises(rlbook.TrainingError, match=f"step 5: {OLD}"):
        rlbook.train("dqn", env, steps=12, num_envs=1, eval_every=0)


class Unseeded(Answering):
    """Draws its observations, and its reset forgets to pass the seed on."""

    forgets = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        gymnasium.Env.reset(self, seed=None if self.forgets else seed)
        return self.np_random.random(2, np.float32), {}


@pytest.mark.parametrize("algorithm", ["semi_gradient_sarsa", "dqn", "ppo"])
def test_a_reset_that_forgets_its_seed_is_noted(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Unseeded.reset does not call super().reset(seed=seed)"
    for forgets in (True, False):
        monkeypatch.setattr(Unseeded, "forgets", forgets)
        options: dict[str, Any] = {} if algorithm == "semi_gradient_sarsa" else {"num_envs": 2}
        run = rlbook.train(algorithm, Unseeded(BOX), steps=40, eval_every=0, **options)
        assert any(note.startswith(said) for note in run.notes) == forgets


class Saving(Unseeded):
    """Passes the seed on, and has a snapshot."""

    forgets = False

    def snapshot(self) -> dict[str, Any]:
        return {"rng": rng_state(self.np_random), "count": self.count}

    def restore(self, state: dict[str, Any]) -> None:
        set_rng_state(self.np_random, state["rng"])
        self.count = state["count"]


@pytest.mark.parametrize("env", ["CartPole-v1", Saving(BOX)])
def test_a_run_that_goes_on_blames_no_environment_for_its_seed(env: Any, tmp_path: Path) -> None:
    """Its generator is restored from the folder, by a replay or by a snapshot."""
    folder = tmp_path / "run"
    rlbook.train("ppo", env, steps=400, rollout_steps=4, num_envs=2, eval_every=0, out=folder)
    again = "CartPole-v1" if isinstance(env, str) else Saving(BOX)
    run = rlbook.load(folder, env=again).train(steps=32)
    assert not any("np_random" in note for note in run.notes)


def test_a_dict_without_one_of_its_entries_is_named() -> None:
    both = spaces.Dict(here=BOX, there=BOX)
    for num_envs in (1, 2):
        env = Answering(both, reset=lambda said: ({"here": said[0]["here"]}, {}))
        env.right = {"here": np.zeros(2, np.float32), "there": np.zeros(2, np.float32)}
        env.count = 1  # the first reset is wrong, too
        with pytest.raises(rlbook.TrainingError, match="no 'there', which observation_space has"):
            rlbook.train("ppo", env, steps=8, num_envs=num_envs, eval_every=0)


def test_many_in_one_process_show_what_one_shows() -> None:
    many = SyncVector([Answering(BOX), Answering(BOX)])
    shown, _ = many.reset(seed=0)
    assert shown.dtype == np.float32 and shown.shape == (2, 2)


class Broken(gymnasium.Env):
    """A class of another version than its package: its constructor raises."""

    def __init__(self, raised: BaseException) -> None:
        raise raised


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (AssertionError(), r"AssertionError, raised in test_environment_answers\.py, line \d+"),
        (KeyError("friction"), r"KeyError: 'friction', raised in .*, line \d+"),
        (AttributeError("no attribute\n'qpos'"), r"no attribute 'qpos'"),
        (RuntimeError("no such model"), "no such model"),
        (ZeroDivisionError("division by zero"), "division by zero"),
    ],
)
def test_a_constructor_that_raises_is_one_sentence(raised: BaseException, said: str) -> None:
    gymnasium.register("Broken-v0", entry_point=Broken, kwargs={"raised": raised})
    try:
        with pytest.raises(rlbook.RequestError, match=rf"environment 'Broken-v0': {said}$"):
            rlbook.train("ppo", "Broken-v0", steps=8)
    finally:
        del gymnasium.registry["Broken-v0"]
