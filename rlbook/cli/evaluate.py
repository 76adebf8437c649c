"""`rlbook evaluate`: whole episodes of a run, K completions of each prompt, or the decisions of a
judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.checks import four_digits
from rlbook.cli.command_line import take_arguments, take_env_arguments
from rlbook.cli.language_models.judging import evaluate_pairs, evaluate_rows
from rlbook.cli.options import Evaluate, parse, refuse_idle
from rlbook.cli.output import Result, align_columns, note
from rlbook.cli.train import add_model_options
from rlbook.errors import RequestError, system_reason

if TYPE_CHECKING:
    from rlbook.evaluation.samples import Difference, Estimate, Sample, SampledEvaluation
    from rlbook.evaluation.targets import Target
    from rlbook.interaction.play_episodes import Evaluation
    from rlbook.runs.run import Run

SAMPLING = ("temperature", "top_p", "min_p", "repetition_penalty", "top_k")
SHOWN = 4  # examples of each kind
INTERVALS = "95 % intervals over prompts: Student's t; of the perplexity, a percentile bootstrap"


def run_evaluation(words: Sequence[str]) -> tuple[bool, Result]:
    """Whether JSON is requested, and the result."""
    from rlbook.evaluation.targets import (
        describe,
        find_target,
        language_model_folder,
        load_target,
    )

    words, env_kwargs = take_env_arguments(list(words))
    words, model = take_arguments(words, "model", "the model")
    elsewhere = [f"env.{name}" for name in env_kwargs] + [f"model.{name}" for name in model]
    options = parse(Evaluate, words, "rlbook evaluate")
    target, out = options.folder, options.out
    if Path(target).is_file():
        what = "a file of completions"
        refuse_idle(options, what, ("score", "label", "threshold", "out"), elsewhere)
        return options.json, evaluate_rows(
            target,
            options.score,
            options.label,
            options.threshold,
            out,
        )
    asked = {name: getattr(options, name) for name in ("episodes", "seed")}
    sampling = {name: value for name in SAMPLING if (value := getattr(options, name)) is not None}
    samples, choices = options.samples, options.choices
    loading: dict[str, Any] = {
        name: getattr(options, name) for name in ("checkpoint", "allow_import", "workers")
    }
    named: Run | str = target
    if language_model_folder(target) is None:
        named = run = load_target(target, options.env, loading)
        if run.agent.prefers and not run.agent.plays():
            used = ("data", "threshold", "out", "checkpoint")
            refuse_idle(options, "a reward model", used, elsewhere)
            return options.json, evaluate_pairs(run, target, options.data, options.threshold, out)
        loading = {"allow_import": options.allow_import and bool(options.env or env_kwargs)}
    spec = add_model_options({}, None, model).get("model")
    found = find_target(named, options.env, env_kwargs, spec, asked["seed"] or 0, **loading)
    place = describe(found.played) if options.env or env_kwargs else {}
    if choices is not None:
        refuse_idle(options, "choices", ("choices", "episodes", "checkpoint", "env"))
        return options.json, _choices(found, place, target, choices, asked["episodes"])
    drawn = ("episodes", "seed", *SAMPLING, "checkpoint", "env")
    if options.search is not None or options.simulations is not None or options.judge is not None:
        refuse_idle(options, "a search", ("search", "simulations", "judge", "samples", *drawn))
        search = {name: getattr(options, name) for name in ("search", "simulations", "judge")}
        return options.json, _evaluate_search(
            found, place, target, {"samples": samples, **search, **sampling, **asked}
        )
    if samples is None:
        refuse_idle(
            options,
            "whole episodes; use it with --samples K, a reward model or a file",
            ("explore", "workers", *drawn),
        )
        return options.json, _episodes(found, place, target, options.explore, sampling, asked)
    refuse_idle(options, "samples", ("samples", "out", "compare", *drawn))
    counts: dict[str, Any] = {
        "prompts": asked["episodes"],
        "seed": asked["seed"],
        "sampling": sampling,
    }
    return options.json, _samples(found, place, target, samples, counts, out, options.compare)


def _place_lines(place: dict[str, str]) -> str:
    """The lines of a result that say where the numbers were measured."""
    return "".join(f"\n{name:<13} {value}" for name, value in place.items())


def _episodes(
    target: Target,
    place: dict[str, str],
    folder: str,
    explore: bool,
    sampling: dict[str, float],
    options: dict[str, int | None],
) -> Result:
    import rlbook

    result = rlbook.evaluate(
        target,
        episodes=options["episodes"],
        seed=options["seed"],
        explore=explore,
        **sampling,  # type: ignore[arg-type]
    )
    low, high = result.confidence_interval
    returns, lengths = result.returns.tolist(), result.lengths.tolist()
    facts = {
        "folder": folder,
        "episodes": len(returns),
        "explore": explore,
        "sampling": sampling,
        "mean": result.mean,
        "confidence_interval": [low, high],
        "mean_length": sum(lengths) / len(lengths),
        "returns": returns,
        "lengths": lengths,
    }
    how = (
        "sampled by " + ", ".join(f"{name} {value:g}" for name, value in sampling.items())
        if sampling
        else "greedy"
    )
    text = (
        f"mean return   {four_digits(result.mean)}   (95 % confidence interval {four_digits(low)} to"
        f" {four_digits(high)})\nepisodes      {_count_episodes(result)},"
        f" {'exploring' if explore and not sampling else how}\nmean length  "
        f" {four_digits(facts['mean_length'])} steps"
    )
    facts |= _repeats(result)
    if result.num_unfinished:
        facts["unfinished"] = result.num_unfinished
        text += (
            f"\n{result.num_unfinished} of {len(returns)} episodes did not finish: they were "
            f"truncated after {result.limit:,} steps"
        )
    return facts | place, text + _place_lines(place)


def _repeats(result: Evaluation) -> dict[str, int]:
    """The number of different prompts, if some occurred several times."""
    count = result.num_prompts
    return {} if count in (None, len(result.returns)) else {"distinct_prompts": int(count or 0)}


def _count_episodes(result: Evaluation) -> str:
    """The number of episodes, and of their prompts if some occurred several times."""
    repeats = _repeats(result)
    among = f" of {repeats['distinct_prompts']} prompts" if repeats else ""
    return f"{len(result.returns)}{among}"


def _choices(
    target: Target, place: dict[str, str], folder: str, count: int, prompts: int | None
) -> Result:
    from rlbook.evaluation.choices import evaluate_choices
    from rlbook.functional.intervals import t_interval

    if count < 2:
        raise RequestError(f"--choices must be at least 2, got {count}")
    scores = evaluate_choices(target.agent, target.recipe, count, prompts)
    facts: dict[str, Any] = {"folder": folder, "choices": count, "prompts": len(scores.questions)}
    table = [("", "mean", "95 % interval")]
    for name in ("acc", "acc_norm"):
        values = getattr(scores, name)
        low, high = t_interval(values)
        facts[name] = {"value": float(values.mean()), "low": low, "high": high}
        table.append(
            (name, four_digits(values.mean()), f"{four_digits(low)} to {four_digits(high)}")
        )
    kind = "prompts" if place else "held-out prompts"
    about = (
        f"{len(scores.questions)} {kind}, {count} choices each; by chance {four_digits(1 / count)}"
    )
    return facts | _place_facts(place), "\n".join(
        [about + _place_lines(place), "", align_columns(table)]
    )


def _place_facts(place: dict[str, str]) -> dict[str, str]:
    """The facts about a place, where `prompts` is already a number."""
    return {"prompts_of" if name == "prompts" else name: text for name, text in place.items()}


def _evaluate_search(
    target: Target, place: dict[str, str], folder: str, options: dict[str, Any]
) -> Result:
    import rlbook
    from rlbook.evaluation.search import SearchEvaluation

    result = rlbook.evaluate(target, **options)
    assert isinstance(result, SearchEvaluation)
    low, high = result.confidence_interval
    facts = {
        "folder": folder,
        "episodes": len(result.returns),
        "search": result.search,
        "budget": result.budget,
        "judge": result.judge,
        "tokens": result.tokens,
        "mean": result.mean,
        "confidence_interval": [low, high],
        "mean_length": float(result.lengths.mean()),
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
    }
    judged = "" if result.judge is None else f", judged by {result.judge}"
    lines = [
        (
            f"mean return   {four_digits(result.mean)}   (95 % confidence interval {four_digits(low)} to"
            f" {four_digits(high)})"
        ),
        f"episodes      {_count_episodes(result)}, {result.search} with {result.budget}{judged}",
        f"mean length   {four_digits(facts['mean_length'])} steps",
    ]
    if result.tokens is not None:
        lines.append(
            f"budget        {four_digits(result.tokens)} tokens for a prompt, read by all networks"
        )
    return facts | _repeats(result) | place, "\n".join(lines) + _place_lines(place)


def _samples(
    target: Target,
    place: dict[str, str],
    folder: str,
    samples: int,
    options: dict[str, Any],
    out: str | None,
    before: str | None,
) -> Result:
    from rlbook.evaluation.episodes import evaluate_before, evaluate_samples
    from rlbook.evaluation.samples import difference

    if out is not None and not Path(out).absolute().parent.is_dir():
        raise RequestError(f"--out {out}: its folder does not exist")
    if out is not None and Path(out).is_dir():
        raise RequestError(f"--out {out} is a folder; name a file, such as completions.jsonl")
    result = evaluate_samples(target, samples, **options)
    facts: dict[str, Any] = {
        "folder": folder,
        "samples": samples,
        "prompts": len(result.samples),
        "verifier": result.verifier,
        "sampling": result.sampling,
        "intervals": INTERVALS,
        "measures": _as_json(result.measures()),
        **_place_facts(place),
    }
    if out is not None:
        _write(Path(out), result)
        facts["written"] = out
        note(f"the completions are in {out}")
    kind = "prompts" if place else "held-out prompts"
    drawn = f"{len(result.samples)} {kind}, {samples} completions of each, {result.sampling}"
    about = f"{drawn}; judged by {result.verifier!r}{_place_lines(place)}"
    if before is None:
        table = [
            ("", "mean", "95 % interval"),
            *((name, *_cells(item)) for name, item in result.measures().items()),
        ]
        return facts, "\n".join([about, "", align_columns(table), "", INTERVALS])
    change = difference(evaluate_before(target, before, samples, **options), result)
    facts["compare"] = {
        "with": before,
        "before": _as_json(change.before),
        "difference": _as_json(change.difference),
        "gained": [_change_facts(pair) for pair in change.gained],
        "lost": [_change_facts(pair) for pair in change.lost],
        "win_rates": _as_json(change.win_rates),
    }
    told = [about, "", _difference_table(change), "", *_win_rates(change), INTERVALS]
    return facts, "\n".join([*told, *_examples(change)])


def _win_rates(difference: Difference) -> list[str]:
    """A table of how often a completion now scores higher than one before."""
    title = "win rate over the run before, by", "rate", "95 % interval"
    table = [title, *((name, *_cells(item)) for name, item in difference.win_rates.items())]
    return [align_columns(table), ""]


def _as_json(measures: dict[str, Estimate]) -> dict[str, dict[str, float]]:
    return {name: item._asdict() for name, item in measures.items()}


def _cells(item: Estimate) -> tuple[str, str]:
    return four_digits(item.value), f"{four_digits(item.low)} to {four_digits(item.high)}"


def _difference_table(difference: Difference) -> str:
    table = [("", "before", "after", "difference", "95 % interval")]
    for name, change in difference.difference.items():
        interval = f"{change.low:+.4g} to {change.high:+.4g}"
        table.append(
            (
                name,
                four_digits(difference.before[name].value),
                four_digits(difference.after[name].value),
                f"{change.value:+.4g}",
                interval,
            )
        )
    return align_columns(table)


def _examples(difference: Difference) -> list[str]:
    """Some prompts whose greedy completion became right, or wrong."""
    lines = []
    for title, pairs in (
        ("wrong before, right now", difference.gained),
        ("right before, wrong now", difference.lost),
    ):
        lines += ["", f"{title}: {len(pairs)} prompt{'s' if len(pairs) != 1 else ''}"]
        lines += [
            f"  {_shorten_text(after.prompt)} {_shorten_text(old.completion)!r} -> {_shorten_text(after.completion)!r}"
            for old, after in pairs[:SHOWN]
        ]
    return lines


def _shorten_text(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"…{text[-59:]}"


def _change_facts(pair: tuple[Sample, Sample]) -> dict[str, Any]:
    before, after = pair
    return {
        "prompt": after.prompt,
        "wanted": after.wanted,
        "before": before.completion,
        "after": after.completion,
    }


def _write(path: Path, result: SampledEvaluation) -> None:
    """Writes one JSON object per line and completion; a prompt's greedy completion comes after its
    samples."""
    from rlbook.runs.storage.files import replace_file

    lines = []
    for place, (samples, greedy) in enumerate(zip(result.samples, result.greedy, strict=True)):
        for which, one in [*enumerate(samples), ("greedy", greedy)]:
            lines.append(
                json.dumps({"prompt_id": place, "sample": which, **vars(one)}, ensure_ascii=False)
            )
    try:
        replace_file(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise RequestError(f"cannot write {path}: {system_reason(error)}") from None
