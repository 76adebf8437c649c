"""Lists the algorithms, the environments, and the table of which trains on which; or everything
about one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlbook.cli.explain import summary
from rlbook.cli.output import Result, align_columns, fill_paragraph
from rlbook.diagnosis.better_settings import default_solvers
from rlbook.errors import RequestError
from rlbook.evaluation.catalogue import (
    Catalogue,
    EnvFacts,
    PresetResult,
    catalogue,
    env_entry,
    example_of,
)
from rlbook.registry import ALGORITHMS, ALIASES, VARIANTS

WORDS = ("algorithms", "envs", "recipes", "all")
NAMED = 4  # algorithms that an environment's line names


def listing(what: str = "all") -> Result:
    """The output of `rlbook list`: as plain JSON types, and laid out for a terminal.

    Args:
        what: "algorithms", "envs", "recipes", "all" for those and the table, or the name of an
            algorithm, an environment or a recipe.

    Raises:
        RequestError: another word; the nearest one is given.
    """
    if what not in WORDS:
        return _describe_item(what)
    known = catalogue()
    parts = {
        "algorithms": _algorithms,
        "envs": lambda: _environments(known),
        "recipes": _recipes,
        "all": lambda: _table(known),
    }
    shown = [what] if what != "all" else list(parts)
    found = [parts[name]() for name in shown]
    facts = {
        "table" if name == "all" else name: content
        for name, (content, _) in zip(shown, found, strict=True)
    }
    return facts, "\n\n".join(text for _, text in found)


def _describe_item(name: str) -> Result:
    """Everything about the item of this name."""
    import gymnasium

    from rlbook.checks import did_you_mean
    from rlbook.interaction.environments import environments
    from rlbook.recipes.recipe_file import recipes

    if name in ALGORITHMS or name in ALIASES:
        return _algorithm(name, catalogue())
    if name in recipes():
        return {"recipe": name, "what": recipes()[name]}, "\n".join(
            [fill_paragraph(f"{name}  {recipes()[name]}", "", "  "), f"\n  rlbook recipe {name}"]
        )
    if ":" in name:
        raise RequestError(
            f"list shows what is registered, and {name!r} would import a module; rlbook train takes"
            " it with --allow-import"
        )
    try:
        entry = env_entry(name)
    except RequestError as error:
        if "unknown environment" not in str(error):
            raise
        known = (*WORDS, *ALGORITHMS, *ALIASES, *environments(), *recipes())
        hint = did_you_mean(name, known) or did_you_mean(name, gymnasium.registry)
        raise RequestError(
            f"list knows no {name!r}{hint} (it takes {', '.join(WORDS)}, or the"
            " name of an algorithm, an environment or a recipe)"
        ) from None
    return _environment(*entry, catalogue())


# All of them


def _algorithms() -> tuple[Any, str]:
    facts = {name: summary(name) for name in ALGORITHMS}
    return facts, "Algorithms (rlbook list NAME shows more)\n" + _columns(facts)


def _environments(catalogue: Catalogue) -> tuple[Any, str]:
    facts = {
        name: _env_facts(name, facts, catalogue) for name, facts in catalogue.environments.items()
    }
    lines = {
        name: [facts.what, _describe_best(name, facts, catalogue)]
        for name, facts in catalogue.environments.items()
    }
    heading = "Environments (rlbook list NAME shows more)"
    return facts, f"{fill_paragraph(heading, '', '  ')}\n{_columns(lines)}"


def _recipes() -> tuple[Any, str]:
    from rlbook.recipes.recipe_file import recipes

    facts = recipes()
    return facts, "Recipes (rlbook recipe NAME)\n" + _columns(facts)


def _describe_best(name: str, facts: EnvFacts, catalogue: Catalogue) -> str:
    """An environment's optimum, and the algorithm that reaches it, or comes closest."""
    said, solvers = _target(facts), _solvers(name, catalogue)
    if solvers:
        return f"{said}; reached by {_shorten_list(solvers)}"
    measured = [f"{item.algorithm} {item.value:.3g}" for item in catalogue.measurements(name)]
    return f"{said}; best measured: {_shorten_list(measured)}" if measured else said


def _target(facts: EnvFacts) -> str:
    if facts.is_near_optimal:
        return f"near-optimal {facts.optimum:.4g}, solved from {facts.solved_from:g}"
    if facts.optimum is not None:
        return f"optimum {facts.optimum:.4g}"
    if facts.solved_from is not None:
        return f"solved from {facts.solved_from:g}"
    return "optimum not known"


def _solvers(name: str, catalogue: Catalogue) -> list[str]:
    """The algorithms that were measured to reach an environment's optimum: with default settings
    and all of ten seeds, or with a preset on average; within each group the fastest first."""
    presets = [item.algorithm for item in catalogue.solvers(name)]
    return list(dict.fromkeys([*default_solvers().get(name, []), *presets]))


def _shorten_list(names: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    if len(names) <= NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _table(catalogue: Catalogue) -> tuple[Any, str]:
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for env, reasons in catalogue.refusals.items():
        refused = ((name, _reason(reason, env, name)) for name, reason in reasons.items())
        alike.setdefault(tuple(refused), []).append(env)
    parts = ["Which trains on which"]
    for refused, envs in alike.items():
        reasons = dict(refused)
        trained = [name for name in catalogue.algorithms if name not in reasons]
        lines = _trains("algorithms", trained, reasons, "      ")
        parts.append("\n".join([fill_paragraph(", ".join(envs), "  ", "  "), *lines]))
    return catalogue.table(), "\n\n".join(parts)


def _trains(
    what: str, trained: Sequence[str], refused: Mapping[str, str], indent: str
) -> list[str]:
    """The algorithms that train, or the environments on which one does, and the others by
    reason."""
    count = len(trained) + len(refused)
    parts = [f"{len(trained)} of {count} {what}: {', '.join(trained)}"]
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused.items():
        by_reason.setdefault(reason, []).append(name)
    parts += [f"not {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return [fill_paragraph(part, indent, indent + "    ") for part in parts]


def _reason(reason: str, env: str, algorithm: str) -> str:
    """The reason without names and numbers, so that those with the same reason can be listed
    together."""
    counted = re.sub(r" \(at most [\d,]+\)", "", re.sub(r"\babout [\d,^]+", "too many", reason))
    counted = re.sub(r"Box\([^()]*\([^()]*\)[^()]*\)", "actions in a box", counted)
    return re.sub(
        rf"\b((rlbook/)?{re.escape(env)}|{re.escape(algorithm)})(?![\w-])", "it", counted
    ).rstrip(".")


def _columns(facts: Mapping[str, str | list[str]]) -> str:
    """Names, each with one or more paragraphs beside it."""
    width, lines = max(map(len, facts)) + 4, []
    for name, said in facts.items():
        first = f"  {name}".ljust(width)
        for text in [said] if isinstance(said, str) else said:
            lines.append(fill_paragraph(text, first, " " * width) if text else first.rstrip())
            first = " " * width
    return "\n".join(lines)


# One of them


def _environment(
    name: str, facts: EnvFacts, refused: Mapping[str, str], catalogue: Catalogue
) -> Result:
    measured, start = catalogue.measurements(name), _start(name, refused, catalogue)
    trained = [algorithm for algorithm in ALGORITHMS if algorithm not in refused]
    content = {
        "env": name,
        **_env_facts(name, facts, catalogue),
        "trains": trained,
        "refused": dict(refused),
        "commands": start,
    }
    rows = [("observations", facts.observations), ("actions", facts.actions)]
    rows += [("time limit", "none" if facts.time_limit is None else f"{facts.time_limit} steps")]
    rows += [("best return", _target(facts))]
    if solvers := _solvers(name, catalogue):
        rows += [("reached by", ", ".join(solvers))]
    parts = [
        (name if name == facts.id else f"{name}  ({facts.id})")
        + "\n"
        + fill_paragraph(facts.what, "  ", "  "),
        _columns(dict(rows)),
        *_measured_table(measured),
        "\n".join(["Algorithms that train here", *_trains("algorithms", trained, refused, "  ")]),
        "\n".join(["Start", *(f"  {command}" for command in start)]),
    ]
    return content, "\n\n".join(parts)


def _env_facts(name: str, facts: EnvFacts, catalogue: Catalogue) -> dict[str, Any]:
    return {
        **facts._asdict(),
        "solved_by": _solvers(name, catalogue),
        "measured": [item._asdict() for item in catalogue.measurements(name)],
    }


def _measured_table(measured: Sequence[PresetResult]) -> list[str]:
    if not measured:
        return []
    rows = [
        (f"  {item.algorithm}", f"{item.value:.4g}", str(item.seeds), _seconds(item.seconds))
        for item in measured
    ]
    heading = "Measured results of presets (rlbook verify reproduces them)"
    return [f"{heading}\n" + align_columns([("  algorithm", "return", "seeds", "seconds"), *rows])]


def _start(name: str, refused: Mapping[str, str], catalogue: Catalogue) -> list[str]:
    """Commands to start with: of algorithms that solve the environment, or of the best available
    ones."""
    best = [item.algorithm for item in catalogue.measurements(name)]
    learns = [key for key in ("behavior_cloning", "ppo", "q_learning") if key not in refused]
    chosen = (_solvers(name, catalogue) or best or learns or ["ppo"])[:2]
    return [
        *(f"rlbook train {key} {name}" for key in chosen),
        f"rlbook train {chosen[0]} --help",
    ]


def _algorithm(asked: str, catalogue: Catalogue) -> Result:
    name = ALIASES.get(asked, asked)
    facts, row = catalogue.algorithms[name], catalogue.table()[name]
    trains = [env for env, reason in row.items() if reason is None]
    refused = {env: reason for env, reason in row.items() if reason is not None}
    reasons = {env: _reason(why, env, name) for env, why in refused.items()}
    start = [
        f"rlbook train {example_of(asked)}",
        f"rlbook train {asked} --help",
        f"rlbook explain {asked}",
    ]
    content = {
        "algorithm": asked,
        "what": summary(name),
        "class": ALGORITHMS[name],
        "sources": list(facts.sources),
        "presets": facts.presets,
        "trains": trains,
        "refused": refused,
        "commands": start,
    }
    if asked in VARIANTS:
        content["variant_of"], content["settings"] = name, VARIANTS[asked]
    rows = {"learns from": ", ".join(_SOURCES[source] for source in facts.sources)}
    for kind in ("observations", "actions"):
        kinds = {getattr(catalogue.environments[each], kind).partition("(")[0] for each in trains}
        rows[kind] = ", ".join(sorted(kinds)) or "none of the listed environments'"
    if asked != name:
        settings = ", ".join(f"{key} {value}" for key, value in VARIANTS.get(asked, {}).items())
        rows["the same as"] = f"{name}{' with ' if settings else ''}{settings}"
    parts = [
        f"{asked}  ({ALGORITHMS[name]})\n" + fill_paragraph(summary(name), "  ", "  "),
        _columns(rows),
        *_presets(facts.presets, measured=asked not in VARIANTS),
        "\n".join(["Where it trains", *_trains("environments", trains, reasons, "  ")]),
        "\n".join(["Start", *(f"  {command}" for command in start)]),
    ]
    return content, "\n\n".join(parts)


_SOURCES = {
    "environment": "steps in an environment",
    "model": "an environment's model",
    "data": "recorded data",
}


def _presets(presets: Mapping[str, Mapping[str, Any]], *, measured: bool) -> list[str]:
    """Each preset: its settings, and their result where it was `measured`."""
    if not presets:
        return []
    lines = {}
    for env, settings in presets.items():
        given = ", ".join(
            f"{key} {_plain(value)}" for key, value in settings.items() if key != "expected"
        )
        expected = settings.get("expected")
        lines[env] = [given or "the defaults"]
        if expected is not None and measured:
            lines[env].append(
                f"result: {expected['value']:.4g} ({expected['seeds']} seeds, "
                f"{_seconds(expected['seconds'])} s each)"
            )
    return ["Presets, which train starts from\n" + _columns(lines)]


def _seconds(value: float) -> str:
    """Seconds with two significant digits, but with all digits before the decimal point."""
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def _plain(value: object) -> str:
    return (
        " ".join(map(str, value))
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool) or value is None
        else str(value)
    )
