"""A precomputed catalogue: each environment's spaces and optimum, the algorithms that train on it
or the reason why not, and the measured results of the presets.

To make every environment and every agent takes some ten seconds, so the file `catalogue.json` holds
what came of it; presets have files of their own. `python -m rlbook.evaluation.catalogue` writes it
again, and a test compares the two. What the file does not know, such as an environment of your own,
is looked at when it is asked for.
"""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlbook.agent import Presets, preset_files, read_presets
from rlbook.envs.descriptions import (
    DESCRIPTIONS,
    GRID_OPTIMA,
    OF_OTHER_PACKAGES,
    SOLVED_FROM,
    STATED_OPTIMA,
)
from rlbook.envs.space_batches import space_text
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe, environments, find
from rlbook.registry import ALGORITHMS, ALIASES, agent_class, presets, refusal_reason, table

PATH = Path(__file__).with_name("catalogue.json")
PACKAGE = Path(__file__).parents[1]
NEAR = 0.02  # of the optimum's size: what is as near to it as this has reached it


class EnvFacts(NamedTuple):
    """The facts about an environment."""

    id: str  # gymnasium's
    what: str
    observations: str
    actions: str
    time_limit: int | None  # steps of an episode; None without a limit
    optimum: float | None  # the optimal mean return, in reward units; None if unknown
    # the mean return from which gymnasium calls it solved, or `SOLVED_FROM` does
    solved_from: float | None

    @property
    def target(self) -> float | None:
        """The mean return at which the environment counts as solved."""
        if self.optimum is None or self.is_near_optimal:
            return self.solved_from
        return self.optimum - NEAR * abs(self.optimum)

    @property
    def is_near_optimal(self) -> bool:
        """Whether `optimum` was computed on a grid and is therefore approximate, so that a
        threshold defines the solution."""
        return self.id in GRID_OPTIMA


class PresetResult(NamedTuple):
    """The measured result of an algorithm's preset."""

    algorithm: str
    value: float  # mean return of the last evaluations, in reward units
    seeds: int
    seconds: float  # of a run, on the machine that measured it


class AlgorithmFacts(NamedTuple):
    """What an algorithm learns from, and its presets."""

    sources: tuple[str, ...]
    presets: dict[str, dict[str, Any]]  # environment → settings, and `expected`


class Catalogue(NamedTuple):
    """The catalogue's content."""

    environments: dict[str, EnvFacts]
    algorithms: dict[str, AlgorithmFacts]
    refusals: dict[str, dict[str, str]]  # environment → algorithm → why it does not train there

    def table(self) -> dict[str, dict[str, str | None]]:
        """Algorithm → environment → None (it trains) or the reason why not."""
        return {
            algorithm: {env: self.refusals[env].get(algorithm) for env in self.environments}
            for algorithm in self.algorithms
        }

    def measurements(self, env: str) -> list[PresetResult]:
        """The measured results of the presets for an environment, best first; the fastest first
        among ties."""
        found = [
            PresetResult(name, expected["value"], expected["seeds"], expected["seconds"])
            for name, facts in self.algorithms.items()
            if (expected := facts.presets.get(env, {}).get("expected")) is not None
        ]
        return sorted(found, key=lambda item: (-item.value, item.seconds))

    def solvers(self, env: str) -> list[PresetResult]:
        """The results that solve the environment, the fastest first; none for an environment that
        is not listed, such as CartPole-v0."""
        target = self.environments[env].target if env in self.environments else None
        found = [
            item for item in self.measurements(env) if target is not None and item.value >= target
        ]
        return sorted(found, key=lambda item: item.seconds)


def catalogue() -> Catalogue:
    """The content of `catalogue.json`, extended by what has been registered since and can be made
    here."""
    known, facts = read_catalogue(), dict[str, EnvFacts]()
    algorithms = {name: known.algorithms.get(name) or algorithm_facts(name) for name in ALGORITHMS}
    for name in environments():
        with suppress(RequestError):
            facts[name] = known.environments.get(name) or env_facts(name)
    refusals = {
        name: {
            algorithm: reason
            for algorithm in algorithms
            if (reason := _refusal(known, algorithm, name)) is not None
        }
        for name in facts
    }
    return Catalogue(facts, algorithms, refusals)


def example_of(algorithm: str) -> str:
    """A first example for `rlbook train`: an algorithm or alias with an environment that it trains
    on, preferably one with a preset."""
    name, known = ALIASES.get(algorithm, algorithm), catalogue()
    if name not in known.algorithms:  # a class of your own
        env = next(iter(presets(agent_class(name))), "Maze-v0")
        return f"{algorithm} {env}{' --allow-import' * (':' in algorithm)}"
    trains = [env for env in known.environments if name not in known.refusals[env]]
    preferred = list(known.algorithms[name].presets)
    if not trains:  # on none without a teacher
        return f"{algorithm} {(*preferred, 'Maze-v0')[0]} --teacher RUN"
    return f"{algorithm} {next((env for env in preferred if env in trains), trains[0])}"


def _refusal(catalogue: Catalogue, algorithm: str, env: str) -> str | None:
    if algorithm in catalogue.algorithms and env in catalogue.environments:
        return catalogue.refusals[env].get(algorithm)
    try:
        return refusal_reason(algorithm, env)
    except Exception as error:  # of an environment that somebody else wrote
        said = (str(error).splitlines() or [""])[0][:150]
        return f"trying it raised {type(error).__name__}: {said}"


def env_entry(name: str) -> tuple[str, EnvFacts, dict[str, str]]:
    """An environment's short name, its description, and the algorithms that do not train on it,
    with reasons; also for environments that are not listed, such as LunarLander-v3.

    Raises:
        RequestError: no such environment, or it cannot be made here.
    """
    short, known = find(name).id.removeprefix("rlbook/"), catalogue()
    if short in known.environments:
        return short, known.environments[short], known.refusals[short]
    reasons = {algorithm: refusal_reason(algorithm, short) for algorithm in ALGORITHMS}
    return short, env_facts(short), {key: why for key, why in reasons.items() if why is not None}


@functools.cache
def read_catalogue() -> Catalogue:
    """Reads `catalogue.json`."""
    held = json.loads(PATH.read_text(encoding="utf-8"))
    return Catalogue(
        {
            name: EnvFacts(what=DESCRIPTIONS[name], **facts)
            for name, facts in held["environments"].items()
        },
        {
            name: AlgorithmFacts(tuple(facts["sources"]), _presets_in(facts["preset_files"]))
            for name, facts in held["algorithms"].items()
        },
        {
            env: {name: reason for reason, names in reasons.items() for name in names.split()}
            for env, reasons in held["refusals"].items()
        },
    )


def compute_catalogue() -> Catalogue:
    """Computes the whole catalogue, by making every environment and trying every algorithm."""
    reasons, envs = table(), {name: env_facts(name) for name in DESCRIPTIONS}
    refusals = {
        env: {name: row[env] for name, row in reasons.items() if row[env] is not None}
        for env in envs
    }
    return Catalogue(envs, {name: algorithm_facts(name) for name in ALGORITHMS}, refusals)  # type: ignore[arg-type]


def as_json(catalogue: Catalogue) -> dict[str, Any]:
    """A catalogue in the format of `catalogue.json`, with each reason once per environment."""
    refusals: dict[str, dict[str, str]] = {}
    for env, reasons in catalogue.refusals.items():
        refusals[env] = {}
        for name, reason in reasons.items():
            refusals[env][reason] = f"{refusals[env].get(reason, '')} {name}".strip()
    return {
        "environments": {
            name: {key: value for key, value in facts._asdict().items() if key != "what"}
            for name, facts in catalogue.environments.items()
        },
        "algorithms": {
            name: {"sources": list(facts.sources), "preset_files": _preset_files(name)}
            for name, facts in catalogue.algorithms.items()
        },
        "refusals": refusals,
    }


def env_facts(name: str) -> EnvFacts:
    """The facts about an environment, computed by making it.

    Raises:
        RequestError: it cannot be made here.
    """
    from rlbook.evaluation.optimal_return import optimal_return

    recipe = EnvRecipe.from_env(name)
    env, computed = recipe.make(), optimal_return(recipe)
    optimum = STATED_OPTIMA.get(name) if computed is None else round(computed, 6)
    threshold = SOLVED_FROM.get(name, getattr(env.spec, "reward_threshold", None))
    return EnvFacts(
        id=str(recipe.id),
        what=(DESCRIPTIONS | OF_OTHER_PACKAGES).get(name) or _first_sentence(env.unwrapped),
        observations=space_text(env.observation_space),
        actions=space_text(env.action_space),
        time_limit=recipe.time_limit,
        optimum=optimum,
        solved_from=None if threshold is None else float(threshold),
    )


def algorithm_facts(name: str) -> AlgorithmFacts:
    """What an algorithm learns from, and its presets."""
    agent = agent_class(name)
    return AlgorithmFacts(tuple(agent.sources()), _plain(presets(agent)))


def _preset_files(name: str) -> list[str]:
    """The files of an algorithm's presets, inherited ones included, relative to the package."""
    return [path.relative_to(PACKAGE).as_posix() for path in preset_files(agent_class(name))]


def _presets_in(files: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        found |= _plain(read_presets(PACKAGE / file))
    return found


def _plain(settings: Presets) -> dict[str, dict[str, Any]]:
    """Presets as plain JSON values: tuples become lists."""
    return json.loads(json.dumps(settings, default=list))


def _first_sentence(env: object) -> str:
    """The first sentence of an environment class's description."""
    import inspect
    import re

    text = re.sub(r"(?m)^#.*$", "", inspect.getdoc(type(env)) or "")
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)  # links as their text
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    # after an initial, as in "P. Wawrzyński", a sentence goes on
    sentences = (re.split(r"(?<!\b[A-Z])\. ", part)[0].rstrip(".") for part in paragraphs if part)
    return next(sentences, "")


if __name__ == "__main__":
    PATH.write_text(json.dumps(as_json(compute_catalogue()), indent=1, ensure_ascii=False) + "\n")
