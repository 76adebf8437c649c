"""`rlbook doctor`: what is wrong with the folder of a run, or of several seeds, and what the logs say
about the learning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlbook.cli.options import Doctor, parse
from rlbook.cli.output import Result, for_terminal
from rlbook.runs.storage.folder import run_folders


def examine_folder(words: Sequence[str]) -> tuple[bool, Result, int]:
    """Whether JSON is requested; the facts and the text; and the exit code: 1 if anything is wrong
    with the folder."""
    options = parse(Doctor, words, "rlbook doctor")
    runs = [_examine_run(path, options) for path in run_folders(Path(options.folder))]
    several = len(runs) > 1
    facts = {"folder": options.folder, "runs": runs} if several else runs[0]
    lines = [line for run in runs for line in _lines(run, named=several)]
    damaged = any(run["complaints"] for run in runs)
    return options.json, (facts, "\n".join(map(for_terminal, lines))), int(damaged)


def _examine_run(folder: Path, options: Doctor) -> dict[str, Any]:
    from rlbook.diagnosis.doctor import complaints

    found = complaints(folder, allow_import=options.allow_import, env=options.env)
    signs = {} if found else symptoms_of(folder, options.allow_import, options.env)
    return {"folder": str(folder), "complaints": found, "symptoms": signs}


def _lines(run: dict[str, Any], *, named: bool) -> list[str]:
    """What is said of a run; `named`: each line that does not name its folder begins with it."""
    folder, found, signs = run["folder"], run["complaints"], run["symptoms"]
    silent = "" if signs else ", and its log shows no known problem"
    said = found or [f"{rule}: {sentence}" for rule, sentence in signs.items()]
    lead = [] if found else [f"the files of {folder} are undamaged{silent}"]
    return lead + [f"{folder}: {line}" if named and folder not in line else line for line in said]


def symptoms_of(folder: Path, allow_import: bool, env: str | None = None) -> dict[str, str]:
    """What the log of an undamaged folder says about the learning.

    Args:
        folder, allow_import, env: as in `rlbook.load`. Where the folder names no environment and
            there is none here either, only what can be seen without one is said.
    """
    from rlbook.diagnosis.better_settings import better_settings, solving_threshold
    from rlbook.diagnosis.doctor import load_run
    from rlbook.diagnosis.symptoms import observation_scales, symptoms
    from rlbook.diagnosis.text_symptoms import first_ratio_error
    from rlbook.evaluation.control_optima import control_task
    from rlbook.evaluation.optimal_return import expected_return, optimal_return, solving_return
    from rlbook.interaction.environments import EnvRecipe
    from rlbook.runs.request import Request
    from rlbook.runs.run import lacks_env
    from rlbook.runs.run_tokenizer import add_tokenizer
    from rlbook.runs.storage.folder import read_config

    if lacks_env(folder) and env is None:
        return symptoms(folder)
    request = Request.from_yaml(read_config(folder)[0], allow_import=allow_import, env=env)
    request = add_tokenizer(folder, request)
    recipe, settings = request.recipe.without_rewards(), vars(request.config)
    usual = EnvRecipe(recipe.id).time_limit if recipe.id is not None else None
    scales = observation_scales(recipe) if settings.get("normalize_observation") is False else ()
    known: dict[str, Any] = {
        "time_limit": recipe.time_limit,
        "usual_limit": usual,
        "best": optimal_return(recipe),
        "enough": solving_return(recipe),
    }
    better = better_settings(request)
    if better is not None:
        known |= {"better": better, "solved_from": solving_threshold(request)}
    if hasattr(request.agent, "greedy_policy") or control_task(recipe) is not None:
        agent = load_run(folder, allow_import, env).agent
        known["expected"] = expected_return(agent, recipe.for_evaluation())
    rules = getattr(recipe.make().unwrapped, "rules", None)
    if rules is not None:  # the episodes are texts
        agent = load_run(folder, allow_import, env).agent
        known |= {
            "completion_limit": rules.max_new_tokens,
            "ratio_error": first_ratio_error(agent, recipe),
        }
    return symptoms(folder, settings=settings, scales=scales, **known)
