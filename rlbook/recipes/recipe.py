"""A recipe: stages of post-training in order, read from a YAML file and checked before anything is
written.

    title: RLHF with four models
    defaults: {env: Addition-v0}             # for every stage that trains and does not say otherwise
    measure:                                 # before and after each stage: what `rlbook.evaluate` takes, or a function of the book
      accuracy: {env: Addition-v0, env_kwargs: {split: held_out}, episodes: 512}
    stages:
      demonstrations: {make: "rlbook.book.experiments.language_models.rlhf:write_demonstrations"}            # a data file
      sft: {train: sft, data: {stage: demonstrations}, steps: 100}               # what `rlbook.train` takes
      ppo: {train: ppo, start: {stage: sft}, steps: 20000, kl_coef: 0.02}
      free: {like: ppo, kl_coef: 0}                                              # all that an earlier stage says, but for this
      model: {export: {stage: ppo}}                                              # a Hugging Face folder

`{stage: NAME}` stands for what an earlier stage has written: the folder of its run, its data file,
its model.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbook.checks import did_you_mean, import_object, whole_number
from rlbook.errors import RequestError
from rlbook.recipes.recipe_file import (
    SHIPPED,
    Tree,
    functions_of_the_book,
    limit,
    merge_arguments,
    parse_recipe,
    set_value,
    shorten_repr,
)
from rlbook.runs.options import NAMES
from rlbook.runs.request import Request

KINDS = ("train", "make", "export")
RESERVED = ("measure", "defaults", "done")  # words that are not names of stages
DATA = "data.jsonl"
DOES = {"train": "trains", "make": "makes data", "export": "exports a model"}
NAMEABLE = {
    "data": ("make",),
    "model": ("export", "make"),
    "export": ("train",),
    "start": ("train",),
    "reward_model": ("train",),
    "expert": ("train",),
    "reference": ("train", "export", "make"),
    "teacher": ("train", "export", "make"),
}
"""Entry → the kinds of stages that it may refer to. A function may have written a Hugging Face
folder."""


@dataclass(frozen=True)
class Measure:
    """A measurement of a run, one number per episode or item."""

    name: str
    stages: tuple[str, ...] | None
    """The stages whose runs are measured; None: all that act."""
    call: str | None
    """"module:function", called with the run; None: `rlbook.evaluate`."""
    value: str
    """The name of the evaluation's array."""
    arguments: Tree


@dataclass(frozen=True)
class Stage:
    """One stage of a recipe."""

    name: str
    kind: str
    what: Any
    """The algorithm, the function's name, or {stage: NAME} of the export."""
    arguments: Tree
    about: str

    @property
    def required_stages(self) -> tuple[str, ...]:
        """The earlier stages that it refers to, each once."""
        return tuple(dict.fromkeys(_stage_names([self.what, self.arguments])))

    def place(self, folder: Path) -> Path:
        """Its output: the folder of its run or its model, or its data file."""
        home = folder / self.name
        return home / str(self.arguments.get("file", DATA)) if self.kind == "make" else home


class Recipe:
    """A checked recipe.

    Attributes:
        tree: all that the file and the command line say, with the seed.
        trusted: whether its names of modules may be imported: it is the book's, or the user says
            so.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """

    def __init__(
        self, name: str, tree: Tree, *, allow_import: bool = False, shipped: bool = False
    ) -> None:
        self.name, self.tree, self.trusted, self._shipped = (
            name,
            tree,
            allow_import or shipped,
            shipped,
        )
        self.title, self.about, self.seed = (
            str(tree.get("title", name)),
            str(tree.get("about", "")),
            whole_number("seed", tree["seed"], 0),
        )
        self.stages = tuple(
            self._stage(key, self._merge_like(key, value)) for key, value in tree["stages"].items()
        )
        self.measures = tuple(
            self._measure(key, value) for key, value in (tree.get("measure") or {}).items()
        )
        self._check_order()

    @classmethod
    def find(
        cls,
        name: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        max_samples: int | None = None,
        allow_import: bool = False,
    ) -> Recipe:
        """A recipe of the book by its name, or the one in a YAML file.

        Args:
            name: of one of `recipes()`, or the path of a file that ends in .yaml or .yml.
            overrides: "STAGE.KEY" → value, in place of what the recipe says; keys may lie in each
                other, as in "ppo.env_kwargs.split".
            seed: in place of the recipe's own.
            max_samples: in place of what each stage that says `max_samples` says.
            allow_import: let it name modules to import.
        """
        shipped = not name.endswith((".yaml", ".yml"))
        path = SHIPPED / f"{name}.yaml" if shipped else Path(name)
        if shipped and path.stem not in (
            known := [item.stem for item in sorted(SHIPPED.glob("*.yaml"))]
        ):
            hint = did_you_mean(name, known)
            raise RequestError(
                f"there is no recipe {name!r}{hint} (known: {', '.join(known)}; or the path of a"
                " .yaml file)"
            )
        tree = parse_recipe(path)
        for key, value in (overrides or {}).items():
            set_value(tree, key.split("."), value)
        if max_samples is not None:
            limit(tree, max_samples)
        tree["seed"] = tree.get("seed", 0) if seed is None else seed
        return cls(path.stem, tree, allow_import=allow_import, shipped=shipped)

    @property
    def digest(self) -> str:
        """The sha256 of its content."""
        return hashlib.sha256(
            json.dumps(self.tree, sort_keys=True, default=str).encode()
        ).hexdigest()

    def stage(self, name: str) -> Stage:
        """The stage with this name."""
        found = {stage.name: stage for stage in self.stages}
        if name not in found:
            hint = did_you_mean(name, found)
            raise RequestError(
                f"the recipe {self.name} has no stage {name!r}{hint} (it has: {', '.join(found)})"
            )
        return found[name]

    def measurements(self, stage: Stage, *, plays: bool) -> list[Measure]:
        """The measurements of a stage's run; `plays`: whether its agent acts."""
        return [
            item
            for item in self.measures
            if (plays if item.stages is None else stage.name in item.stages)
        ]

    def request(self, stage: Stage, folder: Path) -> Request:
        """The request of a stage that trains, with its paths in `folder`."""
        given = self.fill_places(stage.arguments, folder)
        env, env_kwargs = given.pop("env", None), given.pop("env_kwargs", None) or {}
        options: Tree = {"seed": self.seed} | {key: given.pop(key) for key in NAMES if key in given}
        try:
            if not isinstance(env, str):
                raise RequestError(f"it needs an env, such as Maze-v0, got {env!r}")
            if not isinstance(env_kwargs, dict):
                raise RequestError(f"env_kwargs must be a mapping, got {env_kwargs!r}")
            return Request.build(
                stage.what,
                env,
                allow_import=self.trusted,
                env_kwargs=env_kwargs,
                hyperparameters=given,
                **options,
            )
        except RequestError as error:
            raise RequestError(f"stage {stage.name}: {error}") from None

    def function(self, name: str, where: str) -> Callable[..., Any]:
        """The function that "module:name" names. A user's recipe may use the functions that the
        book's recipes use."""
        found = import_object(
            "function",
            name,
            allow_import=self.trusted or name in functions_of_the_book(),
            name=f"{name} of {where}",
        )
        if not callable(found):
            raise RequestError(f"{where}: {name} is not a function")
        return found

    def fill_places(self, value: object, folder: Path) -> Any:
        """The value with each {stage: NAME} replaced by that stage's path."""
        if isinstance(value, Mapping):
            if set(value) == {"stage"}:
                return str(self.stage(value["stage"]).place(folder.resolve()))
            return {key: self.fill_places(item, folder) for key, item in value.items()}
        return (
            [self.fill_places(item, folder) for item in value] if isinstance(value, list) else value
        )

    def check(self, folder: Path) -> None:
        """Checks the request of every stage, as far as possible before the earlier ones have run.

        Raises:
            RequestError: one sentence that names the stage.
        """
        made: list[Any] = []
        for stage in self.stages:
            if stage.kind == "train":
                request = self.request(stage, folder)
                waits = any(
                    _stage_names([stage.arguments.get(key) for key in ("env_kwargs", "model")])
                )
                if not waits and request.recipe not in made:
                    self._make(stage, request)
                    made.append(request.recipe)
            elif stage.kind == "make":
                arguments = {
                    key: value
                    for key, value in stage.arguments.items()
                    if key not in ("file", "seed")
                }
                self._check_call(f"stage {stage.name}", stage.what, arguments, folder, seed=0)
        for measure in self.measures:
            for name in [*(measure.stages or ()), *_stage_names(measure.arguments)]:
                self.stage(name)
            if measure.stages is None and any(_stage_names(measure.arguments)):
                raise RequestError(
                    f"measure {measure.name} names a stage, so it must say whose runs are measured:"
                    " stages: [NAME, …]"
                )
            if measure.call is not None:
                self._check_call(f"measure {measure.name}", measure.call, measure.arguments, folder)

    def _make(self, stage: Stage, request: Request) -> None:
        try:
            request.recipe.make()
        except (RequestError, ValueError) as error:
            raise RequestError(f"stage {stage.name}: {error}") from None

    def _check_call(
        self, where: str, name: str, arguments: Tree, folder: Path, **given: object
    ) -> None:
        """Raises RequestError if the function does not accept these arguments."""
        signature = inspect.signature(self.function(name, where))
        try:
            signature.bind(folder, **given, **arguments)
        except TypeError as error:
            taken = [key for key in list(signature.parameters)[1:] if key != "seed"]
            raise RequestError(
                f"{where}: {name}: {error} (it takes: {', '.join(taken) or 'nothing more'})"
            ) from None

    def _merge_like(self, name: str, value: object) -> object:
        """A stage's settings, on top of those of the stage that it is `like`."""
        if not isinstance(value, Mapping) or "like" not in value:
            return value
        earlier = list(self.tree["stages"])[: list(self.tree["stages"]).index(name)]
        other = value["like"]
        if other not in earlier:
            raise RequestError(
                f"stage {name}: like must be an earlier stage"
                f" ({', '.join(earlier) or 'there is none'}), got {other!r}"
            )
        base = self._merge_like(other, self.tree["stages"][other])
        own = {key: item for key, item in value.items() if key != "like"}
        return merge_arguments(base, own) if isinstance(base, Mapping) else base

    def _stage(self, name: str, value: object) -> Stage:
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name)
            or name in RESERVED
        ):
            raise RequestError(
                f"a stage's name is letters, digits, - and _, and none of {', '.join(RESERVED)};"
                f" got {name!r}"
            )
        if (
            not isinstance(value, Mapping)
            or len(kinds := [kind for kind in KINDS if kind in value]) != 1
        ):
            raise RequestError(
                f"stage {name} must say one of {', '.join(KINDS)}, got {shorten_repr(value)}"
            )
        kind, rest = kinds[0], {str(key): item for key, item in value.items()}
        what, about = rest.pop(kind), str(rest.pop("about", ""))
        if kind == "export":
            if not isinstance(what, Mapping) or set(what) != {"stage"}:
                raise RequestError(
                    f"stage {name}: export must be {{stage: NAME}}, got {shorten_repr(what)}"
                )
            wrong = next((key for key in rest if key not in ("merge", "checkpoint")), None)
            if wrong is not None:
                raise RequestError(
                    f"stage {name}: export has no option {wrong!r} (it has: merge, checkpoint)"
                )
        elif not isinstance(what, str):
            raise RequestError(f"stage {name}: {kind} must be a name, got {shorten_repr(what)}")
        if kind == "make" and not re.fullmatch(r"[\w-][\w.-]*", str(rest.get("file", DATA))):
            raise RequestError(
                f"stage {name}: file must be a file name without folders, got {rest['file']!r}"
            )
        return Stage(
            name,
            kind,
            what,
            merge_arguments(self.tree.get("defaults") or {}, rest) if kind == "train" else rest,
            about,
        )

    def _measure(self, name: str, value: object) -> Measure:
        if not isinstance(value, Mapping):
            raise RequestError(
                f"measure {name} must be a mapping, such as {{episodes: 100}}, got {shorten_repr(value)}"
            )
        rest = {str(key): item for key, item in value.items()}
        stages, call = rest.pop("stages", None), rest.pop("call", None)
        if stages is not None and not (isinstance(stages, list) and stages):
            raise RequestError(
                f"measure {name}: stages must be a list of names, got {shorten_repr(stages)}"
            )
        value = rest.pop("value", "returns")
        return Measure(
            str(name), None if stages is None else tuple(map(str, stages)), call, str(value), rest
        )

    def _check_order(self) -> None:
        """Raises RequestError if a stage refers to one that does not come before it, or to one of
        the wrong kind."""
        earlier: dict[str, Stage] = {}
        for stage in self.stages:
            for name in stage.required_stages:
                if name not in earlier:
                    hint = did_you_mean(name, earlier)
                    raise RequestError(
                        f"stage {stage.name} names {name!r}, but no earlier stage has that "
                        f"name{hint}"
                    )
            for key, value in (stage.arguments | {stage.kind: stage.what}).items():
                if (
                    stage.kind != "make"
                    and key in NAMEABLE
                    and isinstance(value, Mapping)
                    and set(value) == {"stage"}
                ):
                    other = earlier[value["stage"]]
                    if other.kind not in NAMEABLE[key]:
                        raise RequestError(
                            f"stage {stage.name}: {key} names {other.name}, which"
                            f" {DOES[other.kind]}{_other_way(key)}"
                        )
            earlier[stage.name] = stage


def _other_way(key: str) -> str:
    """What to write instead."""
    ways = {
        "model": "; name an export of it, or use start",
        "data": "; name a stage that makes data",
    }
    return ways.get(key, "; name a stage that trains")


def _stage_names(value: object) -> Iterator[str]:
    """The names in each {stage: NAME} of a value."""
    if isinstance(value, Mapping):
        if set(value) == {"stage"}:
            yield str(value["stage"])
        else:
            yield from (name for item in value.values() for name in _stage_names(item))
    elif isinstance(value, list):
        yield from (name for item in value for name in _stage_names(item))
