"""Environments from optional packages, installed through rlbook's extras: Box2D, MuJoCo, Atari,
MinAtar, MiniGrid, reasoning-gym."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlbook.errors import RequestError, one_line

VIEWS = ("planes", "image")


class Family(NamedTuple):
    """The environments of one package."""

    name: str
    # of their ids, or of their entry points where gymnasium itself registers them
    beginnings: tuple[str, ...]
    modules: tuple[str, ...]  # what must be importable
    extra: str  # that installs it


FAMILIES = (
    Family("Box2D", ("gymnasium.envs.box2d",), ("Box2D", "pygame"), "box2d"),
    Family("Atari", ("ALE/", "ale_py.env:", "rlbook.envs.atari:"), ("ale_py",), "atari"),
    Family("MuJoCo", ("gymnasium.envs.mujoco",), ("imageio", "mujoco"), "mujoco"),
    Family("MinAtar", ("MinAtar/",), ("minatar.gym",), "minatar"),
    Family("MiniGrid", ("MiniGrid-", "BabyAI-"), ("minigrid",), "minigrid"),
    Family(
        "reasoning-gym",
        ("ReasoningGym-", "rlbook.llm.environments.reasoning_gym_env:"),
        ("reasoning_gym",),
        "reasoning",
    ),
)


def provide(env_id: str) -> None:
    """Imports the package that registers an environment id, if the id belongs to one.

    Raises:
        RequestError: the package is not installed; the extra is named.
    """
    family = _family(env_id)
    if family is None:
        return
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # a package's output is not a result
    for module in family.modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            needs = f'{family.name} environments need `pip install "rlbook[{family.extra}]"`'
            raise RequestError(f"{needs} ({' '.join(str(error).split())})") from None
        except Exception as error:  # MuJoCo with a MUJOCO_GL that is not there
            raise RequestError(
                f"{module} cannot be imported here: {type(error).__name__}: {one_line(error)}"
            ) from error
    if family.name == "MinAtar":
        _register_games()
    if family.name == "Atari":
        ale = importlib.import_module("ale_py")
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # a greeting otherwise
        _replace("ale_py.env:AtariEnv", "rlbook.envs.atari:AtariGame")
    if family.name == "MuJoCo":
        mujoco = importlib.import_module("mujoco")
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(_warn)


def _warn(message: str) -> None:
    """MuJoCo's warnings, each once; it would print them for every environment that is made, and add
    them to a file in the current folder. What gymnasium's own models still use is left out."""
    if " is deprecated " not in message:
        _print_once(message.partition(" Time =")[0])


@functools.cache
def _print_once(message: str) -> None:
    print(f"MuJoCo warns: {message}", file=sys.stderr)


def _family(env_id: str) -> Family | None:
    spec = gymnasium.registry.get(env_id)
    entry_point = str(spec.entry_point) if spec is not None else ""
    if spec is None and "NoFrameskip-v" in env_id:  # the older ids of Atari
        env_id = f"ALE/{env_id}"
    return next(
        (
            family
            for family in FAMILIES
            if env_id.startswith(family.beginnings) or entry_point.startswith(family.beginnings)
        ),
        None,
    )


def missing_package(env_id: str) -> str | None:
    """Why an environment of an optional package cannot be made here, the extra named; None where
    the package is installed, and for all other ids."""
    try:
        provide(env_id)
    except RequestError as error:
        return str(error)
    return None


def needs_an_extra(spec: EnvSpec) -> bool:
    """Whether an environment requires a package beyond rlbook's own dependencies."""
    return _family(spec.id) is not None


def _register_games() -> None:
    """Registers MinAtar's games, unless they are."""
    ours = "rlbook.envs.minatar:Game"
    if not any(spec.entry_point == ours for spec in gymnasium.registry.values()):
        importlib.import_module("minatar.gym").register_envs()
        _replace("minatar.gym:BaseEnv", ours)


def _replace(theirs: str, ours: str) -> None:
    """Registers games again, in the variant that supports snapshots within an episode."""
    gymnasium.registry.update(
        {
            name: replace(spec, entry_point=ours)
            for name, spec in gymnasium.registry.items()
            if spec.entry_point == theirs
        }
    )


def make(source: str | EnvSpec, *, view: str | None = None, **kwargs: Any) -> gymnasium.Env:
    """`gymnasium.make`, with the `view` of a MiniGrid: "planes" (the default) or "image"; see
    `rlbook.envs.minigrid`.

    Raises:
        ValueError: no such view.
        TypeError: a view of what is no MiniGrid.
    """
    family = _family(source if isinstance(source, str) else source.id)
    if family is None or family.name != "MiniGrid":
        if view is not None:
            kwargs["view"] = view
        return gymnasium.make(source, **kwargs)
    if view not in (None, *VIEWS):
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    from rlbook.envs.minigrid import Planes, Symbols, is_raw

    env = gymnasium.make(source, **kwargs)
    if not is_raw(env):  # the user's own wrapper says what is seen
        return env
    return Symbols(env) if view == "image" else Planes(env)
