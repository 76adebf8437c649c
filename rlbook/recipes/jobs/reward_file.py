"""rewards.py of a job: the run's rewards as functions that do not need rlbook."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from rlbook.checks import import_object
from rlbook.errors import RequestError
from rlbook.llm.rewards import code
from rlbook.llm.rewards.composite import CHECKS, Part, given_function
from rlbook.llm.rewards.trl_and_verl import DIALECTS, trl_reward, verl_reward_here
from rlbook.llm.tasks import MixtureTask, Task, recorded_task
from rlbook.recipes.jobs.exported_rewards import (
    ExportedReward,
    ModelReward,
    TextRules,
    as_trl_function,
    score_for_verl,
)
from rlbook.recipes.jobs.job import Job
from rlbook.recipes.jobs.job_rows import source_of
from rlbook.recipes.jobs.self_contained import SourceFile

HEAD = """The rewards of {what}, as functions that need no rlbook.

Written by `rlbook export --job {target}`.
"""
SETUP = """HERE = Path(__file__).resolve().parent
RULES = {rules}(
    tokenizer=Tokenizer.from_file(str(HERE / "tokenizer" / "tokenizer.json")),
    ends={ends},
    limit={limit},
    judges={judges},
)
REWARDS = [
{rewards}
]"""
FOR_TRL = """FUNCTIONS = [{adapter}(reward, RULES) for reward in REWARDS]
WEIGHTS = [reward.weight for reward in REWARDS]"""
FOR_VERL = '''def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """What verl calls for each completion."""
    return {adapter}(REWARDS, RULES, data_source, solution_str, ground_truth, extra_info)'''


FOR_MODEL = """MODEL = {model}(str(HERE / "{folder}"), str(HERE / "tokenizer"), {arguments})
FUNCTIONS.append(MODEL)
WEIGHTS.append({weight})"""


def write_rewards(job: Job, model: str | None = None) -> list[float]:
    """Writes rewards.py, and the modules that its rewards use, such as a sandbox.

    Args:
        job: whose environment has the rewards.
        model: the name of a reward model's folder, which pays in their place, or beside them where
            one of them is "model".

    Returns:
        The weights of the rewards.
    """
    file, rewards = SourceFile(), job.rules.rewards
    parts = [] if model is not None and rewards.model_weight is None else rewards.parts
    asked = _foreign_sources(job.request.recipe.kwargs.get("reward"))
    lines = []
    for part in parts:
        if inspect.unwrap(given_function(part)) in CHECKS:
            raise RequestError(
                f"reward {part.name!r} asks a model, which cannot be exported with a job; leave "
                "it out, or give the job a function of your own"
            )
        try:
            name, call = _add_reward(file, part, asked.get(part.name), job)
        except (OSError, TypeError, ValueError, SyntaxError) as error:
            raise RequestError(
                f"reward {part.name!r} has no source that could be written down"
                f" ({' '.join(str(error).split())[:120]})"
            ) from None
        flags = [
            f"{flag}=True"
            for flag, on in (
                ("batched", part.batched),
                ("needs_answer", part.compares),
                ("judged", part.judged),
            )
            if on
        ]
        flags += [f"where={part.where!r}"] if part.where else []
        kind = file.add(ExportedReward)
        lines.append(
            f"    {kind}({', '.join([repr(part.name), repr(part.weight), call, *flags])}),"
        )
        if inspect.unwrap(given_function(part)) is code:
            job.differences.append("programs run on the machine that computes the rewards")
    judges = _judges(file, job)
    adapter = as_trl_function if job.target == "trl" else score_for_verl
    names = {"rules": file.add(TextRules), "adapter": file.add(adapter)}
    file.imports("from pathlib import Path", "from tokenizers import Tokenizer")
    if any("partial(" in line for line in lines):
        file.imports("from functools import partial")
    codec = job.rules.codec
    setup = SETUP.format(
        rules=names["rules"],
        ends=repr(tuple(int(end) for end in codec.ends)),
        limit=job.rules.max_new_tokens,
        judges="{" + ", ".join(f"{source!r}: {name}" for source, name in judges.items()) + "}",
        rewards="\n".join(lines),
    )
    last = (FOR_TRL if job.target == "trl" else FOR_VERL).format(adapter=names["adapter"])
    weights = [part.weight for part in parts]
    if model is not None:
        weights.append(rewards.model_weight or 1.0)
        last += "\n" + FOR_MODEL.format(
            model=file.add(ModelReward),
            folder=model,
            arguments=repr(dict(getattr(codec, "arguments", {}))),
            weight=weights[-1],
        )
    what = f"{job.request.algorithm} on {job.request.recipe.name}"
    job.write(
        "rewards.py",
        file.text(HEAD.format(what=what, target=job.target), setup + "\n\n\n" + last),
    )
    for name, text in file.modules.items():
        job.write(name, text)
        job.modules.append(name)
    return weights


def _foreign_sources(specification: object) -> dict[str, tuple[str, dict[str, Any]]]:
    """The name of each reward in TRL's or verl's signature → its source and its options."""
    entries = (
        [(key, value) for key, value in specification.items()]
        if isinstance(specification, Mapping)
        else [
            (one, 1.0)
            for one in (
                specification if isinstance(specification, list | tuple) else [specification]
            )
        ]
    )
    found = {}
    for key, value in entries:
        options = dict(value) if isinstance(value, Mapping) else {}
        options.pop("weight", None)
        source = options.pop("function", key)
        if isinstance(source, str) and source.partition(":")[0] in DIALECTS and ":" in source:
            found[str(key).rpartition(":")[2]] = (source, options)
    return found


def _add_reward(
    file: SourceFile, part: Part, dialect: tuple[str, dict[str, Any]] | None, job: Job
) -> tuple[str, str]:
    """Adds a reward's source. Returns its name, and the expression that is called."""
    if dialect is not None:
        source, options = dialect
        kind, _, place = source.partition(":")
        function: Any = import_object(
            "reward", place, allow_import=job.request.recipe.allow_import, name=source
        )
        adapter = file.add(trl_reward if kind == "trl" else verl_reward_here)
        if options.get("manager") == "prime":
            options = {**options, "manager": "concurrent"}
            job.differences.append(f"reward {part.name!r} is computed by threads, not by processes")
        name = file.add(function)
        given = "".join(f", {key}={value!r}" for key, value in options.items())
        return name, f"{adapter}({name}{given})"
    name = file.add(inspect.unwrap(given_function(part)))
    bound: Any = part.function
    while hasattr(bound, "__wrapped__") and not isinstance(bound, functools.partial):
        bound = bound.__wrapped__
    options = bound.keywords if isinstance(bound, functools.partial) else {}
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    return name, f"partial({name}{given})" if given else name


def _judges(file: SourceFile, job: Job) -> dict[str, str]:
    """Data source → the name of the function that judges answers."""
    rules, found = job.rules, {}
    task = getattr(rules, "judge", None) or rules.task
    if isinstance(task, MixtureTask):
        sources = {source_of(rules, prompts.prompts("train")[0]) for prompts in task.tasks.values()}
    else:
        sources = {source_of(rules, rules.texts[0])}
    sources |= {
        str(columns.get("data_source"))
        for columns in (rules.columns[i] for i in range(len(rules.texts)))
        if "data_source" in columns
    }
    for source in sorted(sources):
        kind = recorded_task(source)
        if kind is not None:
            stem = source.rpartition("/")[2]
            found[source] = file.add(kind.score_recorded, f"score_{stem}")
    score = getattr(type(task), "score", Task.score)
    if not found and score not in (Task.score, MixtureTask.score):
        job.fields.left_out["the task's own score"] = (
            f"{job.request.recipe.name} scores by more than its rows say; answers are compared"
        )
    return found
