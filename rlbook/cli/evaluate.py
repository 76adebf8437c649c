"""`rlbook evaluate`: whole episodes of a run, K completions of each prompt, or the decisions of a
judge."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.cli.language_models.judging import judged_pairs, judged_rows
from rlbook.cli.options import Evaluate, parse
from rlbook.cli.output import Result, align_columns, four, note
from rlbook.cli.values import flag
from rlbook.errors import RequestError

if TYPE_CHECKING:
    from rlbook.evaluation.samples import Difference, Estimate, Sample, SampledEvaluation
    from rlbook.runs.run import Run

SAMPLING = ("temperature", "top_p", "min_p", "repetition_penalty", "top_k")
ALWAYS = ("folder", "json", "allow_import", "debug")
SHOWN = 4  # examples of each kind
INTERVALS = "95 % intervals over prompts: Student's t; of the perplexity, a percentile bootstrap"


def run_evaluation(words: Sequence[str]) -> tuple[bool, Result]:
    """Whether JSON is asked for, and the result."""
    import rlbook

    options = parse(Evaluate, words, "rlbook evaluate")
    target, out = options.folder, options.out
    if Path(target).is_file():
        _refuse_idle(options, "a file of completions", ("score", "label", "threshold", "out"))
        return options.json, judged_rows(
            target,
            options.score,
            options.label,
            options.threshold,
            out,
        )
    asked = {name: getattr(options, name) for name in ("episodes", "seed")}
    sampling = {name: value for name in SAMPLING if (value := getattr(options, name)) is not None}
    samples, choices = options.samples, options.choices
    run = rlbook.load(
        target,
        checkpoint=options.checkpoint,
        allow_import=options.allow_import,
        workers=options.workers,
    )
    if run.agent.prefers and not run.agent.plays():
        _refuse_idle(options, "a reward model", ("data", "threshold", "out", "checkpoint"))
        return options.json, judged_pairs(run, target, options.data, options.threshold, out)
    if choices is not None:
        _refuse_idle(options, "choices", ("choices", "episodes", "checkpoint"))
        return options.json, _choices(run, target, choices, asked["episodes"])
    drawn = ("episodes", "seed", *SAMPLING, "checkpoint")
    if options.search is not None or options.simulations is not None or options.judge is not None:
        _refuse_idle(options, "a search", ("search", "simulations", "judge", "samples", *drawn))
        search = {name: getattr(options, name) for name in ("search", "simulations", "judge")}
        return options.json, _evaluate_search(
            run, target, {"samples": samples, **search, **sampling, **asked}
        )
    if samples is None:
        _refuse_idle(
            options,
            "whole episodes; they are for --samples K, a reward model or a file",
            ("explore", "workers", *drawn),
        )
        return options.json, _episodes(run, target, options.explore, sampling, asked)
    _refuse_idle(options, "samples", ("samples", "out", "compare", *drawn))
    counts: dict[str, Any] = {
        "prompts": asked["episodes"],
        "seed": asked["seed"],
        "sampling": sampling,
    }
    return options.json, _samples(run, target, samples, counts, out, options.compare)


def _refuse_idle(options: Evaluate, what: str, used: Sequence[str]) -> None:
    """Raises RequestError at an option that would be left aside."""
    for item in dataclasses.fields(options):
        if item.name not in (*used, *ALWAYS) and getattr(options, item.name) != item.default:
            raise RequestError(f"{flag(item.name)} has no effect on {what}")


def _episodes(
    run: Run, folder: str, explore: bool, sampling: dict[str, float], asked: dict[str, int | None]
) -> Result:
    import rlbook

    result = rlbook.evaluate(
        run,
        episodes=asked["episodes"],
        seed=asked["seed"],
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
        f"mean return   {four(result.mean)}   (95 % confidence interval {four(low)} to"
        f" {four(high)})\nepisodes      {len(returns)},"
        f" {'exploring' if explore and not sampling else how}\nmean length  "
        f" {four(facts['mean_length'])} steps"
    )
    if result.num_unfinished:
        facts["unfinished"] = result.num_unfinished
        text += (
            f"\n{result.num_unfinished} of {len(returns)} episodes did not finish: they were cut after"
            f" {result.limit:,} steps"
        )
    return facts, text


def _choices(run: Run, folder: str, count: int, prompts: int | None) -> Result:
    from rlbook.evaluation.choices import evaluate_choices
    from rlbook.interaction.play_episodes import t_interval

    if count < 2:
        raise RequestError(f"--choices must be at least 2, got {count}")
    found = evaluate_choices(run.agent, run.request.recipe, count, prompts)
    facts: dict[str, Any] = {"folder": folder, "choices": count, "prompts": len(found.questions)}
    table = [("", "mean", "95 % interval")]
    for name in ("acc", "acc_norm"):
        values = getattr(found, name)
        low, high = t_interval(values)
        facts[name] = {"value": float(values.mean()), "low": low, "high": high}
        table.append((name, four(values.mean()), f"{four(low)} to {four(high)}"))
    about = f"{len(found.questions)} held-out prompts, {count} choices each; by chance {four(1 / count)}"
    return facts, "\n".join([about, "", align_columns(table)])


def _evaluate_search(run: Run, folder: str, asked: dict[str, Any]) -> Result:
    import rlbook
    from rlbook.evaluation.search import Searched

    result = rlbook.evaluate(run, **asked)
    assert isinstance(result, Searched)
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
            f"mean return   {four(result.mean)}   (95 % confidence interval {four(low)} to"
            f" {four(high)})"
        ),
        f"episodes      {len(result.returns)}, {result.search} with {result.budget}{judged}",
        f"mean length   {four(facts['mean_length'])} steps",
    ]
    if result.tokens is not None:
        lines.append(
            f"budget        {four(result.tokens)} tokens for a prompt, read by all networks"
        )
    return facts, "\n".join(lines)


def _samples(
    run: Run, folder: str, samples: int, asked: dict[str, Any], out: str | None, before: str | None
) -> Result:
    from rlbook.evaluation.episodes import evaluate_before, evaluate_samples
    from rlbook.evaluation.samples import difference

    if out is not None and not Path(out).absolute().parent.is_dir():
        raise RequestError(f"--out {out}: its folder does not exist")
    result = evaluate_samples(run, samples, **asked)
    facts: dict[str, Any] = {
        "folder": folder,
        "samples": samples,
        "prompts": len(result.samples),
        "verifier": result.verifier,
        "sampling": result.sampling,
        "intervals": INTERVALS,
        "measures": _as_json(result.measures()),
    }
    if out is not None:
        _write(Path(out), result)
        facts["written"] = out
        note(f"the completions are in {out}")
    drawn = (
        f"{len(result.samples)} held-out prompts, {samples} completions of each, {result.sampling}"
    )
    about = f"{drawn}; {result.verifier!r} says what is right"
    if before is None:
        table = [
            ("", "mean", "95 % interval"),
            *((name, *_cells(item)) for name, item in result.measures().items()),
        ]
        return facts, "\n".join([about, "", align_columns(table), "", INTERVALS])
    found = difference(evaluate_before(run, before, samples, **asked), result)
    facts["compare"] = {
        "with": before,
        "before": _as_json(found.before),
        "difference": _as_json(found.difference),
        "gained": [_change_facts(pair) for pair in found.gained],
        "lost": [_change_facts(pair) for pair in found.lost],
        "win_rates": _as_json(found.win_rates),
    }
    told = [about, "", _difference_table(found), "", *_win_rates(found), INTERVALS]
    return facts, "\n".join([*told, *_examples(found)])


def _win_rates(found: Difference) -> list[str]:
    """How often a completion now has a higher score than one before, as a table."""
    title = "win rate over the run before, by", "rate", "95 % interval"
    table = [title, *((name, *_cells(item)) for name, item in found.win_rates.items())]
    return [align_columns(table), ""]


def _as_json(measures: dict[str, Estimate]) -> dict[str, dict[str, float]]:
    return {name: item._asdict() for name, item in measures.items()}


def _cells(item: Estimate) -> tuple[str, str]:
    return four(item.value), f"{four(item.low)} to {four(item.high)}"


def _difference_table(found: Difference) -> str:
    table = [("", "before", "after", "difference", "95 % interval")]
    for name, change in found.difference.items():
        interval = f"{change.low:+.4g} to {change.high:+.4g}"
        table.append(
            (
                name,
                four(found.before[name].value),
                four(found.after[name].value),
                f"{change.value:+.4g}",
                interval,
            )
        )
    return align_columns(table)


def _examples(found: Difference) -> list[str]:
    """Some of the prompts whose greedy completion became right, or wrong."""
    lines = []
    for title, pairs in (
        ("wrong before, right now", found.gained),
        ("right before, wrong now", found.lost),
    ):
        lines += ["", f"{title}: {len(pairs)} prompts"]
        lines += [
            f"  {_short(after.prompt)} {_short(old.completion)!r} -> {_short(after.completion)!r}"
            for old, after in pairs[:SHOWN]
        ]
    return lines


def _short(text: str) -> str:
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
    """One JSON object per line and completion; the greedy one of a prompt comes after its
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
        raise RequestError(f"cannot write {path}: {error.strerror}") from None
