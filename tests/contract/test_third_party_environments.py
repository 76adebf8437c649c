"""Environments written elsewhere are trained, watched and resumed, whatever habits they have."""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import seeding

import rlbook
from rlbook.cli import main as cli
from rlbook.diagnosis.symptoms import observation_scales
from rlbook.envs.space_batches import is_equal
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.resumable import ResumableEnv
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.seeding import GLOBAL_RNGS, rng_state

OPTIONS: dict[str, dict[str, Any]] = {
    "q_learning": {},
    "semi_gradient_sarsa": {},
    "dqn": {"num_envs": 1, "learning_starts": 4},
    "ppo": {"num_envs": 2, "rollout_steps": 8},
}
GENERATORS = {
    "numpy": np.random.default_rng,
    "numpy, of another kind": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "older numpy": np.random.RandomState,
    "Python": random.Random,
}


class Strict(gymnasium.Env):
    """Takes Python's integers alone, as NASim does. Its episodes have five steps."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space, action_space = spaces.Discrete(6), spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.place = render_mode, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action: Any) -> Any:
        assert type(action) is int, f"{type(action)} is no int"
        self.place += 1
        return self.place, float(action), self.place == 5, False, {}

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), 40 * self.place, np.uint8)


class Drawing(Strict):
    """Shows numbers of a generator in an object that it holds, which a reset with a seed makes
    anew; with `made_once` none does. Its episodes have forty steps."""

    observation_space = spaces.Discrete(1_000)

    def __init__(self, kind: str = "numpy", *, made_once: bool = False) -> None:
        super().__init__()
        self.kind, self.made_once = kind, made_once
        self.queue = SimpleNamespace(parts=[GENERATORS[kind](7)])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.place = 0
        if not self.made_once:
            self._make_generator(seed)
        return self._number(), {}

    def _make_generator(self, seed: int | None) -> None:
        if seed is not None:
            self.queue.parts[0] = GENERATORS[self.kind](seed)

    def step(self, action: Any) -> Any:
        self.place += 1
        return self._number(), float(action), self.place == 40, False, {}

    def _number(self) -> int:
        return int(1_000 * self.queue.parts[0].random())


class OldGenerator(Drawing):
    """Its `np_random` is of numpy's older kind, as that of shimmy's bsuite environments."""

    @property
    def np_random(self) -> Any:
        return self.queue.parts[0]


class Entropic(Drawing):
    """Makes a new generator at each reset, without a seed from the operating system's entropy: as
    panda-gym's tasks and gym-electric-motor do."""

    def _make_generator(self, seed: int | None) -> None:
        self.queue.parts[0] = GENERATORS[self.kind](seed)


class OldStyle(Strict):
    """As `Entropic`, with gymnasium's own generator, as before gymnasium."""

    observation_space = spaces.Discrete(1_000)
    step, _number = Drawing.step, lambda self: int(self.np_random.integers(1_000))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.place, (self.np_random, _) = 0, seeding.np_random(seed)
        return self._number(), {}


class Derived(Drawing):
    """Makes a new generator at each reset, from gymnasium's."""

    def _make_generator(self, seed: int | None) -> None:
        self.queue.parts[0] = np.random.default_rng(int(self.np_random.integers(2**31)))


class Sampling(Strict):
    """Shows samples of its own space, as many first drafts do."""

    step, _number = Drawing.step, lambda self: int(self.observation_space.sample())

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(1_000, seed=5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.place = 0
        return self._number(), {}


class Global(Strict):
    """Draws from the global generators of numpy and Python, as NASim does."""

    observation_space = spaces.Discrete(1_000)
    step = Drawing.step

    def __init__(self) -> None:
        super().__init__()
        np.random.seed(7)  # noqa: NPY002
        random.seed(7)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.place = 0
        return self._number(), {}

    def _number(self) -> int:
        return int(500 * random.random() + 500 * np.random.random())  # noqa: NPY002


class Unseeded(Global):
    """Seeds nothing, and pays what it shows."""

    level = 0.0

    def __init__(self) -> None:
        Strict.__init__(self)

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.level + obs, *rest


class Drawn(Unseeded):
    """Pays something else each time it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.level = random.random() + np.random.random()  # noqa: NPY002


def old_generator() -> gymnasium.Env:
    return OldGenerator("older numpy")


class Swallowing(Strict):
    """Is interrupted while a library calls it back, where ctypes swallows every exception: as a
    compiler of numba's does with PyFlyt."""

    interrupted = False

    def __init__(self) -> None:
        super().__init__()
        if not Swallowing.interrupted:
            Swallowing.interrupted = True
            ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()


@pytest.fixture
def swallowing() -> Iterator[str]:
    """The id of `Swallowing`, which no other test is to see among the environments."""
    gymnasium.register("Swallowing-v0", f"{__name__}:Swallowing", max_episode_steps=20)
    yield "Swallowing-v0"
    del gymnasium.registry["Swallowing-v0"]


def interrupt_at(step: int) -> Any:
    def on_report(run: rlbook.Run) -> None:
        if run.steps >= step:
            signal.raise_signal(signal.SIGINT)

    return on_report


def resumed(algorithm: str, env: Any, out: Path, **changed: Any) -> rlbook.Run:
    """A run of 200 steps, stopped after about 101, within an episode, and resumed with a new environment."""
    options: dict[str, Any] = {"steps": 200, "seed": 3, "eval_every": 0}
    options |= OPTIONS[algorithm] | changed
    with pytest.raises(Interrupted):
        rlbook.train(algorithm, env(), out=out, on_report=interrupt_at(101), **options)
    whole = rlbook.train(algorithm, env(), **options)
    run = rlbook.load(out, env=env()).resume()
    assert run.episode_returns == whole.episode_returns
    return run


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_an_environment_is_given_pythons_integers(algorithm: str, tmp_path: Path) -> None:
    run = resumed(algorithm, lambda: Strict("rgb_array"), tmp_path / "run")
    assert run.evaluate(episodes=2).lengths.tolist() == [5, 5]
    run.watch(gif=tmp_path / "film.gif")
    assert (tmp_path / "film.gif").stat().st_size > 0


def test_a_film_of_what_draws_nothing_is_refused_in_a_sentence(tmp_path: Path) -> None:
    class Printing(Strict):
        metadata = {"render_modes": ["ansi"]}

        def render(self) -> Any:
            return None  # it prints, as NASim does

    run = rlbook.train("q_learning", Printing("ansi"), steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError, match=r"render\(\) returns nothing in the mode 'ansi'"):
        run.watch(gif=tmp_path / "film.gif")


def test_the_doctor_gives_it_pythons_integers_too() -> None:
    shown = gymnasium.wrappers.TransformObservation(
        Strict(), lambda place: np.array([place], np.float32), spaces.Box(0, 6, (1,))
    )
    # the places are 0 to 4, again and again: their variance is 2
    assert observation_scales(EnvRecipe.from_env(shown)) == [pytest.approx(2**0.5, rel=0.01)]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("made_once", [False, True])
@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_an_environments_own_generator_is_resumed(
    algorithm: str, kind: str, made_once: bool, tmp_path: Path
) -> None:
    resumed(algorithm, lambda: Drawing(kind, made_once=made_once), tmp_path / "run")


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", [Entropic, OldStyle, Derived, Sampling, old_generator])
@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_an_episode_is_resumed_wherever_its_numbers_come_from(
    algorithm: str, env: Any, tmp_path: Path
) -> None:
    resumed(algorithm, env, tmp_path / "run")


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", ["q_learning", "semi_gradient_sarsa", "dqn"])
def test_an_environment_that_draws_from_the_global_generators_is_resumed(
    algorithm: str, tmp_path: Path
) -> None:
    """Evaluations in between leave the global generators as they were."""
    resumed(algorithm, Global, tmp_path / "run", eval_every=30, eval_episodes=1)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("q_learning", {}),
        ("ppo", {"num_envs": 4}),
        pytest.param("ppo", {"num_envs": 4, "workers": 2}, marks=pytest.mark.thorough),
    ],
)
def test_a_seed_determines_what_comes_from_the_global_generators(
    algorithm: str, options: dict[str, Any]
) -> None:
    """The caller's own draws stay what they were, whatever state they are in."""
    found = []
    for own in (1, 2):
        random.seed(own)
        np.random.seed(own)  # noqa: NPY002
        before = [rng_state(rng) for rng in GLOBAL_RNGS]
        run = rlbook.train(algorithm, Unseeded, seed=3, steps=400, quiet=True, **options)
        played = run.evaluate(episodes=5, seed=1)
        found.append((run.episode_returns, played.returns.tolist()))
        assert is_equal(before, [rng_state(rng) for rng in GLOBAL_RNGS])
    assert found[0] == found[1]
    other = rlbook.train(algorithm, Unseeded, seed=4, steps=400, quiet=True, **options)
    assert other.episode_returns != found[0][0]


def test_a_seed_determines_an_environment_that_is_drawn_when_it_is_made() -> None:
    gymnasium.register("Drawn-v0", lambda **options: Drawn())
    try:
        runs = [rlbook.train("q_learning", "Drawn-v0", seed=s, steps=100) for s in (3, 3, 4)]
    finally:
        del gymnasium.registry["Drawn-v0"]
    first, second, other = (run.episode_returns for run in runs)
    assert first == second != other
    assert first[0] % 1 > 0


def test_several_environments_that_share_a_generator_are_told_how_they_could_be_resumed(
    tmp_path: Path,
) -> None:
    with pytest.raises(rlbook.TrainingError, match=r"a global one that .* \(num_envs\) draw"):
        resumed("ppo", Global, tmp_path / "run")


def test_a_space_that_somebody_else_samples_from_is_no_obstacle() -> None:
    env = ResumableEnv(gymnasium.make("CartPole-v1"))
    for _ in range(2):
        env.reset(seed=0 if env.obs is None else None)
        env.step(env.action_space.sample())
    fresh = ResumableEnv(gymnasium.make("CartPole-v1"))
    fresh.restore(env.snapshot())
    assert np.asarray(fresh.obs).tolist() == np.asarray(env.obs).tolist()


def first_numbers(env: gymnasium.Env, episodes: int = 5) -> list[int]:
    return [env.reset(seed=3)[0], *(env.reset()[0] for _ in range(episodes - 1))]


@pytest.mark.parametrize("env", [Entropic, OldStyle])
def test_a_seed_determines_every_episode_of_an_environment_that_draws_entropy(env: Any) -> None:
    numbers = first_numbers(ResumableEnv(env()))
    assert numbers == first_numbers(ResumableEnv(env())) and len(set(numbers)) > 1
    assert numbers != first_numbers(env())


@pytest.mark.parametrize("env", [Drawing, Derived, old_generator])
def test_what_a_seed_determines_already_stays_as_it_is(env: Any) -> None:
    assert first_numbers(ResumableEnv(env())) == first_numbers(env())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_foreign_code_swallows_stops_the_run_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], swallowing: str
) -> None:
    out = str(tmp_path / "run")
    words = ["q_learning", swallowing, "--steps", "50", "--eval-every", "0", "--out", out]
    with use_handler(signal.default_int_handler):
        assert cli.main(["train", *words]) == 130
        assert "interrupted at step" in capsys.readouterr().err
        assert cli.main(["train", "--resume", out]) == 0


@contextlib.contextmanager
def use_handler(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# ---- ids


def refusal(env_id: str, *, allow_import: bool = False) -> str:
    with pytest.raises(rlbook.RequestError) as error:
        rlbook.train("ppo", env_id, steps=10, allow_import=allow_import)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_id_says_how_another_packages_environment_is_named() -> None:
    assert refusal("Tiny-v0") == (
        "unknown environment 'Tiny-v0' (`rlbook list envs` shows all). If it belongs to another"
        " package, name the module that registers it, 'MODULE:Tiny-v0', and give --allow-import"
        " (allow_import=True) if you trust it"
    )
    assert "did you mean 'FrozenLake-v1'? (`rlbook" in refusal("FrozneLake-v0")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose packages can be imported; what they register is forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before, modules = dict(gymnasium.registry), set(sys.modules)
    yield tmp_path
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    for name in set(sys.modules) - modules:
        if name.startswith(("stranger_", "gym.")) or name == "gym":
            del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_misspelt_id_of_a_package_is_compared_with_its_own(packages: Path) -> None:
    ids = "".join(
        f"gymnasium.register('Stranger{n}-v0', 'stranger_a.worlds:World')\n" for n in range(7)
    )
    write(packages / "stranger_a" / "__init__.py", f"import gymnasium\n{ids}")
    assert refusal("stranger_a:Strnager3-v0", allow_import=True) == (
        "unknown environment 'Strnager3-v0'; did you mean 'Stranger3-v0'? (stranger_a registers"
        " 'Stranger0-v0', 'Stranger1-v0', 'Stranger2-v0', 'Stranger3-v0', 'Stranger4-v0' and 2 more)"
    )


def test_a_package_whose_import_registers_nothing_is_answered_with_what_to_name(
    packages: Path,
) -> None:
    write(packages / "stranger_b" / "__init__.py", "")
    said = refusal("stranger_b:Tiny-v0", allow_import=True)
    assert said == (
        "importing 'stranger_b' registers no environment with gymnasium, so 'Tiny-v0' is unknown;"
        " name the module inside the package that registers it, or a class: 'MODULE:CLASS'"
    )
    write(packages / "stranger_c" / "__init__.py", "")
    write(packages / "stranger_c" / "envs.py", "")
    said = refusal("stranger_c:Tiny-v0", allow_import=True)
    assert "that registers it, such as 'stranger_c.envs:Tiny-v0', or a class" in said


def test_an_environment_of_gym_before_gymnasium_is_told_apart(packages: Path) -> None:
    write(packages / "gym" / "__init__.py", "from gym import envs")
    write(packages / "gym" / "envs.py", "registry = {}")
    write(packages / "stranger_d.py", "import gym\ngym.envs.registry['Old-v0'] = None")
    assert refusal("stranger_d:Old-v0", allow_import=True) == (
        "'stranger_d' registers 'Old-v0' with gym, which is not maintained, in place of gymnasium;"
        " shimmy makes an environment of gymnasium's of it: 'stranger_d:GymV26Environment-v0'"
        " --env.env_id Old-v0 (env_kwargs={'env_id': 'Old-v0'}; GymV21 before gym 0.26)"
    )
