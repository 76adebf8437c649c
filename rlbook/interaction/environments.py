"""Finds and makes environments by id: rlbook's short ids and gymnasium's; an unknown id raises an
error that suggests the nearest valid one."""

from __future__ import annotations

import copy
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode

from rlbook.checks import TRUST, check_arguments, module_hint, name_hint
from rlbook.envs.extras import make as make_one
from rlbook.envs.extras import needs_an_extra, provide
from rlbook.envs.masked_observations import keys_beside_mask
from rlbook.envs.registration import register
from rlbook.errors import ImportRefusedError, RequestError, one_line
from rlbook.interaction.image_preprocessing import Preprocessing
from rlbook.interaction.observed_masks import wrap_observed_mask, wrap_observed_masks
from rlbook.interaction.unknown_environments import (
    OF_AN_ENVIRONMENT,
    not_in_module_message,
    unknown_message,
)
from rlbook.interaction.vector_envs.copied_arrays import CopiedArrays

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

register()

PERMISSION = (  # the argument of an environment whose other arguments may name modules to import
    "allow_import"
)
TOKENS = ("model", "tokenizer", "vocab_size")
"""The arguments of an environment that determine its tokens."""
UNREWARDED = "length"
"""The reward of a text where nobody asks for rewards."""
UNLIMITED = -1  # gymnasium's max_episode_steps for no time limit
# what an environment made of a model is called, and its time limit in environment steps
MODEL, MODEL_LIMIT = (
    "TabularMDP",
    1_000,
)
ALWAYS_END = ("rlbook/", "Blackjack-", "MiniGrid-", "BabyAI-", "ALE/")
"""Prefixes of ids whose episodes always terminate, even without a time limit of gymnasium's."""
LARGEST = 10**8  # numbers in an observation or an action
EnvLike: TypeAlias = "str | gymnasium.Env | Callable[..., gymnasium.Env] | TabularMDP"
"""An environment as given by the user: an id, an environment, a class or function that makes one,
or a model to sample episodes from."""
Made = TypeVar("Made")
FAMILIES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


def _wrappers(env: gymnasium.Env | None) -> Iterator[gymnasium.Wrapper]:
    """The wrappers of an environment, from the outermost to the innermost."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def environments() -> dict[str, EnvSpec]:
    """Name → spec of every environment that needs no further package: rlbook's own (by short id),
    gymnasium's, and those that you registered."""
    ours = {
        id.removeprefix("rlbook/"): spec
        for id, spec in gymnasium.registry.items()
        if id.startswith("rlbook/")
    }
    ours = {id: spec for id, spec in ours.items() if not needs_an_extra(spec)}
    theirs = {
        id: spec
        for id, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith(FAMILIES) and _is_newest(spec)
    }
    yours = {
        id: spec
        for id, spec in gymnasium.registry.items()
        if not _ships_with_gymnasium(spec)
        and not id.startswith("rlbook/")
        and not needs_an_extra(spec)
    }
    return dict(sorted(ours.items())) | dict(sorted(theirs.items())) | dict(sorted(yours.items()))


def _ships_with_gymnasium(spec: EnvSpec) -> bool:
    entry_point = spec.entry_point
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return module.startswith(("gymnasium.", "shimmy.")) or spec.id.startswith(
        ("phys2d/", "tabular/", "GymV")
    )


def _is_newest(spec: EnvSpec) -> bool:
    return not any(
        other.name == spec.name and (other.version or 0) > (spec.version or 0)
        for other in gymnasium.registry.values()
    )


def find(env_id: str, *, allow_import: bool = False) -> EnvSpec:
    """The spec of an environment id, short or long.

    Raises:
        RequestError: no such environment (the nearest name is given), or `module:Name` without
            `allow_import`.
    """
    module: str | None = None
    if ":" in env_id:
        if not allow_import:
            module = env_id.split(":")[0]
            raise ImportRefusedError(
                f"environment {env_id!r} would import the module {module!r}; {TRUST}"
            )
        module, env_id = env_id.split(":", 1)
        import importlib

        try:
            imported = importlib.import_module(module)
        except Exception as error:  # whatever the user's module does
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise RequestError(
                f"environment module {module!r} cannot be imported"
                f" ({reason}){module_hint(f'{module}:{env_id}')}"
            ) from error
        env_id = _register_class(imported, env_id)
    provide(env_id)
    for name in (env_id, f"rlbook/{env_id}"):  # who registered a name of their own means that one
        if name in gymnasium.registry:
            return gymnasium.registry[name]
    other = _other_version(env_id)
    if other or module is None:
        raise RequestError(other or unknown_message(env_id, environments()))
    raise RequestError(not_in_module_message(module, env_id))


def _register_class(module: ModuleType, name: str) -> str:
    """The id that `module:Name` stands for. Where that names no id but an environment's class in
    the module, or a function that makes one, it is registered as "module/Name"."""
    space = module.__name__.replace(".", "-")
    inner = name.removeprefix(f"{space}/")
    if name in gymnasium.registry or not callable(getattr(module, inner, None)):
        return name
    own = f"{space}/{inner}"
    if own not in gymnasium.registry:
        gymnasium.register(own, f"{module.__name__}:{inner}")
    return own


def _other_version(env_id: str) -> str:
    """The sentence for an id that exists in another version alone; "" for any other."""
    known = gymnasium.registry | environments()
    base = env_id.removeprefix("rlbook/").rsplit("-v", 1)[0]
    other_versions = [
        name
        for name, spec in known.items()
        if spec.name == base and spec.namespace in (None, "rlbook") and _is_newest(spec)
    ]
    if not other_versions:
        return ""
    where = (
        ""
        if known[other_versions[-1]].id.startswith("rlbook/")
        else f" in gymnasium {gymnasium.__version__}"
    )
    return f"environment {env_id!r} does not exist{where}; use {other_versions[-1]!r}"


@check_arguments('rlbook.make("CartPole-v1")')
def make(env_id: str, *, allow_import: bool = False, **kwargs: Any) -> gymnasium.Env:
    """`gymnasium.make`, where "Maze-v0" is short for "rlbook/Maze-v0".

    Args:
        env_id: an id of rlbook's, gymnasium's, or one you registered.
        allow_import: let an id of the form "module:Name" import that module.
        kwargs: the environment's own arguments.

    Raises:
        RequestError: unknown id, or an argument that the environment refuses.
    """
    if not isinstance(env_id, str):
        raise RequestError(
            f"make takes an environment's id, got a {type(env_id).__name__}; rlbook.train also "
            "takes environments and classes"
        )
    return EnvRecipe(
        find(env_id, allow_import=allow_import).id, kwargs, allow_import=allow_import
    )._make_bare()


@dataclass(frozen=True)
class EnvRecipe:
    """Everything needed to make an environment again; this is what a run folder stores."""

    id: str | None
    kwargs: dict[str, Any] = field(default_factory=dict)
    instance: gymnasium.Env | None = field(default=None, compare=False)
    module: str | None = None  # what is imported first, where the id was given as `module:Name`
    # whether its arguments may name modules to import, too
    allow_import: bool = field(default=False, compare=False)
    # what a run's folder holds in place of some of `kwargs`, such as the tokenizer that was trained
    held: dict[str, Any] = field(default_factory=dict, compare=False)
    # what stands between the environment and the agent
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    # the arguments that an evaluation was asked for, and so does not replace
    asked: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def from_env(
        cls, env: EnvLike, *, allow_import: bool = False, kwargs: dict[str, Any] | None = None
    ) -> EnvRecipe:
        """The recipe of an id, of an environment made by `rlbook.make` or `gymnasium.make`, of a
        class or a function that makes one from `kwargs`, or of a `TabularMDP` to sample episodes
        from."""
        if isinstance(env, str):
            module = env.split(":", 1)[0] if ":" in env else None
            if PERMISSION in (kwargs or {}):
                raise RequestError(
                    f"{PERMISSION} is not an argument of an environment; give --allow-import"
                    " (allow_import=True)"
                )
            return cls(
                find(env, allow_import=allow_import).id,
                dict(kwargs or {}),
                module=module,
                allow_import=allow_import,
            )
        if callable(env) and not isinstance(env, gymnasium.Env):
            env, kwargs = _make_from(env, dict(kwargs or {})), None
        if not isinstance(env, gymnasium.Env):
            env = _model_env(env)
        if kwargs:
            names = ", ".join(map(str, kwargs))
            raise RequestError(
                f"env_kwargs apply only to an environment given by its id; {names} cannot change"
                " an environment that already exists"
            )
        spec = env.spec
        if (
            spec is None
            or spec.id not in gymnasium.registry
            or any(wrapper.kwargs is None for wrapper in spec.additional_wrappers)
        ):
            return cls(None, {}, env)
        provide(spec.id)
        settings = dict(spec.kwargs)
        if spec.max_episode_steps != gymnasium.registry[spec.id].max_episode_steps:
            settings["max_episode_steps"] = spec.max_episode_steps or UNLIMITED
        return cls(
            spec.id, settings, env, allow_import=bool(settings.pop(PERMISSION, allow_import))
        )

    @property
    def name(self) -> str:
        """The environment's name as shown to users."""
        if (
            self.id is None
            and self.instance is not None
            and self.instance.spec is not None
            and self.instance.spec.id == MODEL
        ):
            return MODEL
        return (self.id or type(getattr(self.instance, "unwrapped", None)).__name__).removeprefix(
            "rlbook/"
        )

    @property
    def written_id(self) -> str | None:
        """The id that suffices, together with `kwargs`, to make this environment again; None for an
        instance that has no id or is wrapped."""
        if self._source() != self.id:
            return None
        return self.id if self.module is None else f"{self.module}:{self.id}"

    @property
    def typed_id(self) -> str:
        """The id as a command takes it: the name, or `module:id` where a module registers it."""
        return self.name if self.module is None else f"{self.module}:{self.id}"

    def is_called(self, typed: str) -> bool:
        """Whether an id that was typed is this environment's."""
        module, colon, inner = typed.rpartition(":")
        if self.module is None or not colon:
            return inner.removeprefix("rlbook/") == self.name
        own = self.name.removeprefix(f"{self.module.replace('.', '-')}/")
        return module == self.module and inner in (self.id, own)

    @property
    def time_limit(self) -> int | None:
        """The time limit that gymnasium applies to an episode, in environment steps; None without
        one."""
        if self.id is None:
            return (
                None
                if self.instance is None or self.instance.spec is None
                else self.instance.spec.max_episode_steps
            )
        limit = self.kwargs.get("max_episode_steps", gymnasium.registry[self.id].max_episode_steps)
        return None if limit == UNLIMITED else limit

    @property
    def may_never_end(self) -> bool:
        """Whether an episode may never end: there is no time limit, and the environment is not
        known to terminate always."""
        if self.time_limit is not None:
            return False
        if (
            self.id is not None
            and gymnasium.registry[self.id].max_episode_steps is None
            and self.id.startswith(ALWAYS_END)
        ):
            return False
        return not any(
            isinstance(item, gymnasium.wrappers.TimeLimit) for item in _wrappers(self.instance)
        )

    def for_evaluation(self) -> EnvRecipe:
        """The environment used for evaluation: the environment may name arguments to replace
        (`evaluation_kwargs`, e.g. held-out prompts)."""
        preprocessing = self.preprocessing.for_evaluation()
        if self.id is None:
            return EnvRecipe(None, {}, self._copy(), preprocessing=preprocessing)
        changed = self._evaluation_kwargs
        kwargs = self.kwargs | {name: changed[name] for name in changed if name not in self.asked}
        return replace(self, kwargs=kwargs, preprocessing=preprocessing)

    def with_arguments(self, arguments: Mapping[str, Any]) -> EnvRecipe:
        """The same environment with other arguments for its evaluation, which count more than those
        that it would choose itself. The class of the environment may say what follows from them
        (`evaluation_arguments`, e.g. which prompts another file of prompts replaces).

        Raises:
            RequestError: it was not made by an id, so that it cannot be made in another way.
        """
        if self.id is None or self._source() != self.id:
            raise RequestError(
                f"{', '.join(arguments)} cannot change {self.name}, which was not made by its id;"
                " give env"
            )
        arranged = getattr(self._creator(), "evaluation_arguments", None)
        kwargs = (
            self.kwargs | dict(arguments) if arranged is None else arranged(self.kwargs, arguments)
        )
        return replace(self, kwargs=kwargs, asked=frozenset(arguments))

    def with_tokens_of(
        self, other: Mapping[str, Any], held: Mapping[str, Any] = MappingProxyType({})
    ) -> EnvRecipe:
        """The same environment with the tokens that the arguments of another one name: its
        language model's, or its tokenizer's.

        Args:
            other: the other one's `kwargs`.
            held: and its `held`.
        """
        kept = {name: value for name, value in self.kwargs.items() if name not in TOKENS}
        taken = {name: other[name] for name in TOKENS if name in other}
        return replace(self, kwargs=kept | taken, held=dict(held))

    def without_rewards(self) -> EnvRecipe:
        """The same environment for a program that only acts in it: where its rewards may name
        modules and none may be imported, it pays for the length of a text instead."""
        creator = None if self.allow_import or self.id is None else self._creator()
        if not getattr(creator, "takes_permission", False):
            return self
        kept = {name: self.kwargs[name] for name in self.kwargs if name != "evaluation_reward"}
        return replace(self, kwargs={**kept, "reward": UNREWARDED})

    def for_held_out_prompts(self) -> EnvRecipe:
        """As `for_evaluation`, but with the reward used in training."""
        if self.id is None:
            return self.for_evaluation()
        changed = self._evaluation_kwargs
        held_out = {name: value for name, value in changed.items() if name != "reward"}
        return replace(self, kwargs=self.kwargs | held_out)

    @cached_property
    def _evaluation_kwargs(self) -> dict[str, Any]:
        """What evaluation changes. The reward of training is imported only if evaluation has the
        same one."""
        reward = self.kwargs.get("evaluation_reward")
        made = self if reward is None else replace(self, kwargs={**self.kwargs, "reward": reward})
        if reward is None and "reward" in self.kwargs:
            found = getattr(self.without_rewards().make().unwrapped, "evaluation_kwargs", {})
            if found.get("reward") != UNREWARDED:  # it has one of its own
                return found
        return getattr(made.make().unwrapped, "evaluation_kwargs", {})

    def make(self) -> gymnasium.Env:
        """Makes one environment. An instance given by the user is used directly if it has no recipe
        to make another.

        Raises:
            RequestError: it cannot be made, or its spaces are none that anybody could learn in.
        """
        return self._wrap(self._make_bare())

    def _wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        if self.preprocessing.read_masks:
            env = wrap_observed_mask(env)
        elif not keys_beside_mask(env.observation_space, env.action_space):
            raise RequestError(
                f"read_masks has no effect on {self.name}, whose observations hold no action mask"
            )
        return self.preprocessing.wrap(env, self.name)

    def _make_bare(self) -> gymnasium.Env:
        """One environment as its class shows it: without preprocessing, and with a mask that its
        observations hold."""
        if self.id is None:
            assert self.instance is not None
            env = self.instance
        else:
            own = self.preprocessing.env_kwargs(gymnasium.registry[self.id], self.kwargs)
            env = self._build_guarded(
                lambda: make_one(
                    self._source(), **{**self.kwargs, **self.held, **own}, **self._permission()
                )
            )
        for name in ("observation_space", "action_space"):
            _check_space(self.name, name, getattr(env, name, None))
        return env

    def make_many(self, count: int) -> list[gymnasium.Env]:
        """Makes `count` environments; an instance without a recipe is used once and copied for the
        rest."""
        if self.id is None:
            return [self.make(), *(self._wrap(self._copy()) for _ in range(count - 1))]
        return [self.make() for _ in range(count)]

    def _copy(self) -> gymnasium.Env:
        try:
            return copy.deepcopy(self._make_bare())
        except Exception as error:  # whatever the user's class holds
            name, reason = self.name, one_line(error)
            raise RequestError(
                f"environment {name!r} has no id and cannot be copied ({reason}); register it and"
                " give its id"
            ) from error

    def _source(self) -> str | EnvSpec:
        """The argument for `gymnasium.make`: the id, or the spec of a wrapped instance."""
        spec = None if self.instance is None else self.instance.spec
        return spec if spec is not None and spec.additional_wrappers else str(self.id)

    def make_native_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv | None:
        """The environment's own vector form, if it has one whose autoreset can be disabled and no
        preprocessing is asked for; else None."""
        if self.preprocessing.is_used:
            return None
        if self.name == MODEL and self.instance is not None:
            return _vector_env_of_model(self.instance, num_envs, self.time_limit)
        if self.id is None or not isinstance(self._source(), str):
            return None
        spec = gymnasium.registry[self.id]
        if spec.vector_entry_point is None:
            return None
        creator = (
            spec.vector_entry_point
            if callable(spec.vector_entry_point)
            else load_env_creator(spec.vector_entry_point)
        )
        if getattr(creator, "metadata", {}).get("autoreset_mode") != AutoresetMode.DISABLED:
            return None
        kwargs = (
            self.kwargs
            | self.held
            | (
                {"max_episode_steps": None}
                if self.kwargs.get("max_episode_steps") == UNLIMITED
                else {}
            )
        )
        made = self._build_guarded(
            lambda: gymnasium.make_vec(
                str(self.id), num_envs=num_envs, **kwargs, **self._permission()
            )
        )
        own = type(made.unwrapped).__module__.startswith("rlbook.")  # these make new arrays
        return wrap_observed_masks(made if own else CopiedArrays(made))

    def _permission(self) -> dict[str, Any]:
        """The `allow_import` argument, passed only to environments whose arguments may name
        modules; it is never stored in a run's config."""
        creator = self._creator() if self.allow_import else None
        return {PERMISSION: True} if getattr(creator, "takes_permission", False) else {}

    def reads_text(self) -> bool:
        """Whether it is a token environment, in which a language model acts."""
        creator = None if self.id is None else self._creator()
        world = creator if isinstance(creator, type) else self.make().unwrapped
        return getattr(world, "policy_kind", None) == "language_model"

    def _creator(self) -> Any:
        """The class of the environment, or the function that makes one."""
        entry_point = gymnasium.registry[str(self.id)].entry_point
        return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point

    def _build_guarded(self, build: Callable[[], Made]) -> Made:
        """Builds the environment and turns what its class raises into one sentence."""
        self._check_switches()
        try:
            made = build()
            _warn_of_age_once(str(self.id))
            return made
        except RequestError:
            raise
        except TypeError as error:
            raise RequestError(self._bad_argument(error)) from error
        except Exception as error:  # whatever the class raises
            raise RequestError(f"environment {self.name!r}: {one_line(error)}") from error

    def _check_switches(self) -> None:
        """Raises RequestError for a text such as "maybe" as the value of an argument that is true
        or false: Python would take any text for true."""
        texts = {name: value for name, value in self.kwargs.items() if isinstance(value, str)}
        defaults = inspect.signature(self._creator()).parameters if texts else {}
        for name, value in texts.items():
            if name in defaults and isinstance(defaults[name].default, bool):
                raise RequestError(
                    f"environment {self.name!r}: {name} must be true or false, got {value!r}"
                )

    def _bad_argument(self, error: TypeError) -> str:
        creator = self._creator()
        parameters = inspect.signature(creator).parameters.values()
        allowed = [
            p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"
        ]
        rest = next((p.name for p in parameters if p.kind == p.VAR_KEYWORD), None)
        others = [] if rest is None else _listed_keywords(creator, rest)
        allowed += [name for name in others if name != PERMISSION]
        open_ended = rest is not None and not others
        unknown = (
            []
            if open_ended
            else [key for key in self.kwargs if key not in (*allowed, "max_episode_steps")]
        )
        if not unknown:
            return f"environment {self.name!r}: {one_line(error)}"
        hint = name_hint(unknown[0], OF_AN_ENVIRONMENT, allowed)
        return (
            f"environment {self.name!r} has no argument {unknown[0]!r}{hint} (allowed:"
            f" {', '.join(allowed) or 'none'})"
        )


def _warn_of_age_once(env_id: str) -> None:
    """Keeps gymnasium's warning about a newer version of an environment to once per run."""
    spec = gymnasium.registry[env_id]
    newest = max(
        (other.version or 0)
        for other in gymnasium.registry.values()
        if (other.namespace, other.name) == (spec.namespace, spec.name)
    )
    said = rf".*The environment {re.escape(env_id)} is out of date"
    if (spec.version or 0) < newest and said not in _known_ages:
        _known_ages.add(said)
        warnings.filterwarnings("ignore", said, DeprecationWarning)


_known_ages: set[str] = set()


def _listed_keywords(creator: Any, rest: str) -> list[str]:
    """The names listed by `**rest: Unpack[SomeTypedDict]`; none without it."""
    try:
        hint = get_type_hints(creator.__init__)[rest]
    except (AttributeError, KeyError, NameError, TypeError):
        return []
    return [name for kind in get_args(hint) for name in getattr(kind, "__annotations__", {})]


def _make_from(make_env: Callable[..., object], kwargs: dict[str, Any]) -> gymnasium.Env:
    """The environment made by a class or a function. Raises RequestError if it raises, or returns
    anything else."""
    name = getattr(make_env, "__name__", type(make_env).__name__)
    try:
        env = make_env(**kwargs)
    except RequestError:
        raise
    except Exception as error:  # whatever the user's class raises
        raise RequestError(f"environment {name!r}: {one_line(error)}") from error
    if not isinstance(env, gymnasium.Env):
        raise RequestError(
            f"env must make a gymnasium.Env, but {name} made a {type(env).__name__}{_conversion_hint(env)}"
        )
    return env


def _conversion_hint(env: object) -> str:
    """How to turn an object that is not an environment into one."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return f"; give a single environment, and num_envs={env.num_envs}"
    if isinstance(env, list | tuple) and env:
        return f"; give one of them, and num_envs={len(env)}"
    if hasattr(env, "reset") and hasattr(env, "step"):
        return "; derive its class from gymnasium.Env"
    return ""


def _model_env(model: object) -> gymnasium.Env:
    """An environment that samples its steps from a `TabularMDP`. If nothing else can end an
    episode, it is truncated after `MODEL_LIMIT` steps."""
    from rlbook.envs.tabular.mdp import TabularMDP

    if not isinstance(model, TabularMDP):
        raise RequestError(
            "env must be an environment id, a gymnasium.Env, a class or function that makes one,"
            f" or a TabularMDP, got {type(model).__name__}{_conversion_hint(model)}"
        )
    from rlbook.envs.tabular.tabular_env import TabularEnv

    env = TabularEnv(model)
    env.spec = EnvSpec(MODEL, max_episode_steps=MODEL_LIMIT)
    return gymnasium.wrappers.TimeLimit(env, MODEL_LIMIT)


def _vector_env_of_model(
    env: gymnasium.Env, num_envs: int, limit: int | None
) -> gymnasium.vector.VectorEnv:
    from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

    inner: Any = env.unwrapped
    return TabularVectorEnv(num_envs, max_episode_steps=limit, model=inner.model())


def _check_space(env: str, name: str, space: object) -> None:
    """Raises RequestError if a space is missing, empty or too large to fit in memory."""
    if not isinstance(space, spaces.Space):
        raise RequestError(
            f"environment {env!r} must have an {name} of gymnasium's, got"
            f" {'none' if space is None else repr(space)[:60]}"
        )
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)
        for part in parts:
            _check_space(env, name, part)
        if not parts:
            raise RequestError(
                f"environment {env!r} has an {name} without components: there is nothing to"
                " observe or to choose"
            )
        return
    size = 1 if space.shape is None else math.prod(space.shape)
    if size == 0:
        raise RequestError(
            f"environment {env!r} has an {name} of shape {space.shape}: there is nothing to"
            " observe or to choose"
        )
    if size > LARGEST:
        raise RequestError(
            f"environment {env!r} has an {name} of {size:,} numbers (at most {LARGEST:,})"
        )
