"""The message for an unregistered environment id: the nearest name, and how environments of other
packages are named."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlbook.checks import TRUST, did_you_mean

SHOWN = 5  # ids of a package that a message lists

MADE_SEVERAL = "training makes several with its option num_envs, and gymnasium.make_vec by itself"
OF_AN_ENVIRONMENT = {
    "num_envs": MADE_SEVERAL,
    "n_envs": MADE_SEVERAL,
    "vectorization_mode": MADE_SEVERAL,
    "vec_env_cls": MADE_SEVERAL,
    "seed": "env.reset(seed=1) seeds it, and in training rlbook.train(…, seed=1)",
    "wrappers": "wrap what rlbook.make returns",
    "wrapper_class": "wrap what rlbook.make returns",
    "model": "a model's folder is for environments of texts, and a network of your own is"
    " model={'network': MyFeatures}",
    "monitor_dir": "rlbook.train(…, out=folder) records returns and lengths",
    "frameskip": "rlbook.train(…, max_and_skip=4) repeats actions",
    "frame_stack": "it is an option of training: rlbook.train(…, frame_stack=4)",
}
"""Arguments that an environment does not have → what to use instead."""


def unknown_message(env_id: str, specs: Mapping[str, EnvSpec]) -> str:
    """The sentence for an id without a module."""
    hint = did_you_mean(env_id, specs) or did_you_mean(env_id, gymnasium.registry)
    shown = f"unknown environment {env_id!r}{hint} (`rlbook list envs` shows all)"
    if hint:
        return shown
    return (
        f"{shown}. If it belongs to another package, name the module that registers it, "
        f"'MODULE:{env_id}', and {TRUST}"
    )


def not_in_module_message(module: str, env_id: str) -> str:
    """The sentence for `module:id` where importing the module has not registered the id."""
    if _is_old(env_id):
        return (
            f"{module!r} registers {env_id!r} with gym, which is not maintained, in place of"
            " gymnasium; shimmy makes an environment of gymnasium's of it:"
            f" '{module}:GymV26Environment-v0' --env.env_id {env_id}"
            f" (env_kwargs={{'env_id': {env_id!r}}}; GymV21 before gym 0.26)"
        )
    package = module.split(".")[0]
    theirs = [name for name, spec in gymnasium.registry.items() if _module_of(spec) == package]
    if theirs:
        return (
            f"unknown environment {env_id!r}{did_you_mean(env_id, theirs)} ({package} registers"
            f" {_list_ids(theirs)})"
        )
    inner = f"{module}.envs"
    named = f", such as '{inner}:{env_id}'" if _is_there(inner) else ""
    return (
        f"importing {module!r} registers no environment with gymnasium, so {env_id!r} is unknown;"
        f" name the module inside the package that registers it{named}, or a class: 'MODULE:CLASS'"
    )


def _module_of(spec: EnvSpec) -> str:
    """The package that an environment's entry point is in."""
    entry_point = spec.entry_point
    named = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return named.split(":")[0].split(".")[0]


def _is_old(env_id: str) -> bool:
    """Whether the id is registered with gym, gymnasium's predecessor."""
    registry = getattr(getattr(sys.modules.get("gym"), "envs", None), "registry", {})
    return env_id in getattr(registry, "env_specs", registry)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _list_ids(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(map(repr, found[:SHOWN])) + more
