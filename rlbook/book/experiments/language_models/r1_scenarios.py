"""R1's third and fourth stages with what the small recipe `r1` leaves out: a model as the judge, a
code filter that runs programs, and reward models for helpfulness and harmlessness.

The prompts are of three kinds, and each has its own way of telling a good answer:

    sums      "4+7+8+5="           "e,b,j,e;4", the last digits of the sum so far, then the answer:   a rule
    programs  "2,3>5;4,1>5="       "a+b", the body of f(a, b):                                        tests, in the sandbox
    open      "ab<cde>fg="         "[CDE]": helpful. A word with a j is better refused, "[]":          people, or who judges like them

People's opinion of an open answer (`people_score`) is what the judge and the reward models are
trained to have. None of them sees it in the training of the policy.

    verdicts  two answers to an open prompt with people's choice, A or B: what the judge learns from
    kept      what the policy writes: right sums, programs that pass, and of two open answers the
              one that the judge prefers in both orders
    pairs     of the policy's answers, by helpfulness or by harmlessness

Source: DeepSeek-AI 2025, arXiv:2501.12948, sections 2.3.3 and 2.3.4. Tasks, model and numbers are
ours. Difference: there the judge compares a sum's answer with the right one, where no rule can; here
it compares two open answers, for which there is no right one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import rlbook
from rlbook.book.experiments.language_models.r1 import has_special_token, sums
from rlbook.book.experiments.language_models.rlhf import write_rows
from rlbook.checks import check, one_of, positive_int
from rlbook.data.schemas import Example
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.judging.comparisons import Preference, compare_answers
from rlbook.llm.judging.judge_model import JudgeSettings, open_judge
from rlbook.llm.models.export import language_model_of
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.rewards import Completion, code, edit, numeric
from rlbook.llm.rewards.code import isolation_works
from rlbook.llm.tasks import TaggedCopyTask
from rlbook.llm.tasks.reasoning import SCRIPTS
from rlbook.llm.tasks.task import HELD_OUT, SPLIT_SEED, Task, build_task
from rlbook.llm.tokenizers.batches import pad
from rlbook.llm.tokenizers.tokenizer import Codec
from rlbook.runs.exporting import token_env_of
from rlbook.seeding import rng_for

ENV = "Chat-v0"
LIMIT = 12  # tokens of a completion, EOS among them
ROWS = 512  # completions that are written side by side
KINDS = ("sums", "programs", "open")
FUNCTIONS = ("a+b", "a-b", "b-a", "a*b", "a+b+b", "a*a-b")
REFUSED = "[]"
RISKY = "j"
"""The letter of a word that should not be copied."""
JUDGE_TEMPLATE = "{prompt}{first}|{second}:"
Row = dict[str, str]
_COUNTS = {"train": 2_000, "held_out": 256}  # prompts of a kind
_FEW = 40  # prompts of the other kinds, whose characters the vocabulary has to have


# ---- the prompts


def examples(split: str) -> list[Example]:
    """The prompts of all three kinds."""
    return [one for kind in KINDS for one in _examples_of_kind(kind, split)]


def examples_of_sums(split: str) -> list[Example]:
    """Sums, and a few of the others, so that the vocabulary is the same."""
    others = (one for kind in KINDS[1:] for one in _examples_of_kind(kind, split)[:_FEW])
    return [*_examples_of_kind("sums", split), *others]


@functools.cache  # every stage of the recipe asks for them
def _examples_of_kind(kind: str, split: str) -> tuple[Example, ...]:
    count = _COUNTS[split]
    if kind == "sums":
        task: Task = sums()
    elif kind == "programs":
        return _programs()[:count] if split == "held_out" else _programs()[HELD_OUT:][:count]
    else:
        task = build_task(TaggedCopyTask)
    return tuple(
        Example(one, task.answer(one), {"task": kind}) for one in task.prompts(split)[:count]
    )


@functools.cache
def _programs() -> tuple[Example, ...]:
    """Prompts that ask for one of the functions by two of its values; a third value is a hidden
    test."""
    rng, found = np.random.default_rng(SPLIT_SEED), dict[str, Example]()
    while len(found) < HELD_OUT + _COUNTS["train"]:
        body, pairs = FUNCTIONS[rng.integers(len(FUNCTIONS))], rng.integers(1, 10, size=(3, 2))
        values = [[function_value(one, a, b) for a, b in pairs] for one in FUNCTIONS]
        own = values[FUNCTIONS.index(body)]
        if sum(other[:2] == own[:2] for other in values) > 1:
            continue  # two of the functions fit
        told = [f"{a},{b}>{value}" for (a, b), value in zip(pairs.tolist(), own, strict=True)]
        tests = "\n".join(
            f"assert f({a}, {b}) == {value}"
            for (a, b), value in zip(pairs.tolist(), own, strict=True)
        )
        prompt = f"{';'.join(told[:2])}="
        found[prompt] = Example(prompt, body, {"task": "programs", "tests": tests})
    return tuple(found.values())


def function_value(body: str, a: int, b: int) -> int:
    """The value of one of `FUNCTIONS`."""
    return {
        "a+b": a + b,
        "a-b": a - b,
        "b-a": b - a,
        "a*b": a * b,
        "a+b+b": a + 2 * b,
        "a*a-b": a * a - b,
    }[body]


# ---- what people think


def is_risky(prompt: str) -> bool:
    """Whether the word of an open prompt should not be copied."""
    return RISKY in prompt.partition("<")[2].partition(">")[0]


def helpfulness(completion: Completion) -> float:
    """How close an open answer is to the word, in [0, 1]; 0 if it is not in brackets."""
    text = completion.text
    in_brackets = completion.ended and text.startswith("[") and text.endswith("]")
    return edit(completion) if in_brackets and text != REFUSED else 0.0


def harmlessness(completion: Completion) -> float:
    """1 for an answer without the letter in question, else 0."""
    return float(RISKY.upper() not in completion.text)


def people_score(completion: Completion) -> float:
    """People's rating of an open answer, in [0, 1]: for a harmless word its helpfulness; for a
    risky one, half for being harmless and half for saying so."""
    if not is_risky(completion.prompt):
        return helpfulness(completion)
    refused = completion.ended and completion.text == REFUSED
    return 0.5 * harmlessness(completion) + 0.5 * refused


# ---- what the base model reads


def write_corpus(out: Path, *, seed: int, rows: int = 6_000) -> dict[str, int]:
    """Writes the base model's training data: the three kinds equally often, many of them answered
    badly."""
    check("rows", rows, positive_int)
    rng, found = rng_for(seed, "data"), list[Row]()
    for kind, answer in (("sums", _rough_sum), ("programs", _rough_body), ("open", rough_answer)):
        given = _examples_of_kind(kind, "train")
        for i in rng.integers(len(given), size=rows // 3):
            prompt = str(given[i].prompt)
            found.append({"prompt": prompt, "completion": answer(given[i], rng)})
    return {"rows": write_rows(out, [found[i] for i in rng.permutation(len(found))])}


def _rough_sum(example: Example, rng: np.random.Generator) -> str:
    """A sum with an error in one step in ten, which carries over to the later steps."""
    total, steps = 0, list[str]()
    for term in str(example.prompt).rstrip("=").split("+"):
        total += int(term) + (int(rng.integers(1, 10)) if rng.random() < 0.1 else 0)
        steps.append(SCRIPTS["latin"][total % 10])
    return f"{','.join(steps)};{total % 10}"


def _rough_body(example: Example, rng: np.random.Generator) -> str:
    """The correct program six times in ten, any of them three times in ten, and otherwise one
    without its last character."""
    drawn = rng.random()
    if drawn < 0.6:
        return str(example.answer)
    body = FUNCTIONS[rng.integers(len(FUNCTIONS))]
    return body if drawn < 0.9 else body[:-1]


def rough_answer(example: Example, rng: np.random.Generator) -> str:
    """A typical raw answer to an open prompt: correct, nearly correct, or a refusal, regardless of
    the question."""
    right, drawn = str(example.answer), rng.random()
    if drawn < 0.25:
        return REFUSED
    if drawn < 0.75 or len(right) < 3:
        return right
    place = int(rng.integers(1, len(right) - 1))
    letter = "ABCDEFGHI"[rng.integers(9)]
    return right[:place] + letter + right[place + 1 :]


# ---- the judge


def write_verdicts(out: Path, *, seed: int, rows: int = 6_000) -> dict[str, int]:
    """Writes the judge's training data: two answers to an open prompt, and which of them people
    prefer."""
    check("rows", rows, positive_int)
    given, rng, found = _examples_of_kind("open", "train"), rng_for(seed, "pairs"), list[Row]()
    while len(found) < rows:
        example = given[rng.integers(len(given))]
        one, other = rough_answer(example, rng), rough_answer(example, rng)
        scores = [people_score(_open_answer(example, text)) for text in (one, other)]
        if scores[0] != scores[1]:
            fields = {"prompt": str(example.prompt), "first": one, "second": other}
            asked = JUDGE_TEMPLATE.format_map(fields)
            found.append({"prompt": asked, "answer": "A" if scores[0] > scores[1] else "B"})
    return {"rows": write_rows(out, found)}


def _open_answer(example: Example, text: str) -> Completion:
    return Completion(str(example.prompt), example.answer, text, True)


# ---- the third stage: what is kept


def write_kept(
    out: Path,
    *,
    run: str,
    seed: int,
    judge: str | None = None,
    server: str | None = None,
    samples: int = 1_500,
    programs: int = 500,
) -> dict[str, float]:
    """Writes the filtered completions of a run's agent, in a random order.

    Args:
        out: the file.
        run: the folder of the run.
        seed: draws the prompts, the noise and the order.
        judge: the folder of the judge's model; or
        server: the URL of a server that has it.
        samples: completions of sums, and as many pairs of completions of open prompts.
        programs: completions of programs, each of which is run.

    Returns:
        How many rows were written; of sums and programs the shares that are right, and how many
        pairs have a winner for each one that was asked for; how often the judge said the same of
        both orders, how often its choice is people's, and people's mean score of all open answers
        and of the kept ones.
    """
    check("samples", samples, positive_int)
    check("programs", programs, positive_int)
    agent = rlbook.load(run, allow_import=True)
    kept: dict[str, list[Completion]] = {}
    right = sample_completions(agent, "sums", samples, seed)
    kept["sums"] = [one for one in right if numeric(one, after=";") == 1.0]
    written = sample_completions(agent, "programs", programs, seed)
    passed = code_filter(written)
    kept["programs"] = [one for one, passes in zip(written, passed, strict=True) if passes]
    pairs = sample_pairs(agent, samples, seed)
    said = judge_pairs(pairs, JudgeSettings(folder=judge, server=server, max_tokens=2))
    kept["open"] = list(_winners(pairs, said))
    rows = [
        {"prompt": one.prompt, "completion": one.text}
        for found in kept.values()
        for one in found
        if one.ended and not has_special_token(one)
    ]
    unique = [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in rows)]
    order = rng_for(seed, "data").permutation(len(unique))
    write_rows(out, [unique[i] for i in order])
    both = [one for pair in pairs for one in pair]
    return {
        "rows": len(unique),
        "right sums": len(kept["sums"]) / samples,
        "programs that pass": len(kept["programs"]) / programs,
        "pairs with a winner": len(kept["open"]) / samples,
        **agreement(pairs, said),
        "people, all": float(np.mean([people_score(one) for one in both])),
        "people, kept": float(np.mean([people_score(one) for one in kept["open"]] or [0.0])),
    }


def code_filter(completions: Sequence[Completion]) -> list[bool]:
    """Whether each program passes its tests, one of which its prompt does not show. They run in the
    sandbox; on a machine without one, only with its limits, because the vocabulary has no
    parentheses, so a function cannot be called."""
    programs = [
        Completion(one.prompt, None, f"f = lambda a, b: {one.text}", one.ended, one.columns)
        for one in completions
    ]
    return [passed == 1.0 for passed in code(programs, seconds=2.0, isolate=isolation_works())]


def judge_pairs(
    pairs: Sequence[tuple[Completion, Completion]], settings: JudgeSettings
) -> list[Preference]:
    """The judge's verdict on each pair, asked in both orders."""
    told = [({"prompt": one.prompt}, one.text, other.text) for one, other in pairs]
    return compare_answers(open_judge(settings), told, template=JUDGE_TEMPLATE)


def agreement(
    pairs: Sequence[tuple[Completion, Completion]], verdicts: Sequence[Preference]
) -> dict[str, float]:
    """How often a judge's verdicts agree in both orders; and among the pairs of which people prefer
    one answer, how often it prefers that one, where a tie counts one half, and how often it does
    where both orders agree."""
    truth = np.array([people_score(one) - people_score(other) for one, other in pairs])
    value = np.array([0.5 if one.value is None else one.value for one in verdicts])
    same = np.array([bool(one.consistent) for one in verdicts])
    decided = truth != 0
    right = np.where(truth > 0, value, 1.0 - value)[decided]
    sure = same & decided & (value != 0.5)
    agreed = np.where(truth > 0, value, 1.0 - value)[sure]
    found = {"both orders alike": float(same.mean())}
    if len(right):
        found["judge right"] = float(right.mean())
    if len(agreed):
        found["judge right where both orders agree"] = float(agreed.mean())
    return found


def _winners(
    pairs: Sequence[tuple[Completion, Completion]], said: Sequence[Preference]
) -> Iterator[Completion]:
    """The answer of each pair that won in both orders."""
    for (one, other), preference in zip(pairs, said, strict=True):
        if preference.consistent and preference.value in (0.0, 1.0):
            yield one if preference.value == 1.0 else other


# ---- the fourth stage: two reward models


def write_pairs(out: Path, *, run: str, seed: int, by: str, prompts: int = 1_500) -> dict[str, int]:
    """Writes two answers of a run's agent to each of so many open prompts, the preferred one first.

    Args:
        out: the file.
        run: the folder of the run.
        seed: draws prompts and noise.
        by: helpful, how near an answer is to the word, of prompts without a risk; or harmless, of
            prompts with one.
        prompts: of each of which two answers are sampled.
    """
    check("by", by, one_of("helpful", "harmless"))
    check("prompts", prompts, positive_int)
    score, risky = {"helpful": (helpfulness, False), "harmless": (harmlessness, True)}[by]
    found: list[Row] = []
    agent = rlbook.load(run, allow_import=True)
    for one, other in sample_pairs(agent, prompts, seed + 1, temperature=1.3):
        scores = score(one), score(other)
        fits = is_risky(one.prompt) == risky and one.ended and other.ended
        if fits and scores[0] != scores[1]:
            better, worse = (one, other) if scores[0] > scores[1] else (other, one)
            found.append({"prompt": one.prompt, "chosen": better.text, "rejected": worse.text})
    return {"rows": write_rows(out, found)}


# ---- what a run writes, and what it is worth


def sample_pairs(
    run: rlbook.Run, count: int, seed: int, temperature: float = 1.0
) -> list[tuple[Completion, Completion]]:
    """Two different completions for each of so many open prompts; a prompt without such a pair, or
    with a special token in one, is left out."""
    texts = sample_completions(run, "open", 2 * count, seed, twice=True, temperature=temperature)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [
        pair
        for pair in pairs
        if pair[0].text != pair[1].text and not any(map(has_special_token, pair))
    ]


def sample_completions(
    run: rlbook.Run,
    kind: str,
    count: int,
    seed: int,
    *,
    split: str = "train",
    twice: bool = False,
    temperature: float | None = 1.0,
) -> list[Completion]:
    """Completions that a run's agent samples for prompts of one kind.

    Args:
        run: whose agent writes.
        kind: of `KINDS`.
        count: how many.
        seed: draws the prompts of the training split, and the noise.
        split: train or held_out.
        twice: two completions of each prompt, next to each other.
        temperature: None for the likeliest tokens.
    """
    known = _examples_of_kind(kind, split)
    wanted = len(known) if split == "held_out" else count // (1 + twice)
    order = rng_for(seed, "comparisons").permutation(len(known))
    chosen = [known[order[i % len(known)]] for i in range(wanted)]
    given = [one for one in chosen for _ in range(1 + twice)]
    return complete(run, given, seed, temperature)


def complete(
    run: rlbook.Run, examples: Sequence[Example], seed: int, temperature: float | None
) -> list[Completion]:
    """One completion of each example, in their order."""
    policy, env = language_model_of(run.agent), token_env_of(run.request.recipe)
    assert isinstance(policy, LanguageModelPolicy) and env is not None
    codec = env.codec
    rng = None if temperature is None else rng_for(seed, "exploration")
    rows = [codec.encode_prompt(one.prompt) for one in examples]
    sampling, found = Sampling(temperature=temperature or 0.0), list[Completion]()
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        prompts, mask = pad(rows[part], codec.pad)
        made = generate(
            policy,
            prompts,
            mask.sum(1),
            eos=codec.eos,
            max_new_tokens=LIMIT,
            rng=rng,
            sampling=sampling,
        )
        for example, tokens, there in zip(examples[part], made.tokens, made.mask, strict=True):
            ids = tokens[there].tolist()
            whole = bool(ids) and ids[-1] == codec.eos
            text = codec.decode(ids[:-1] if whole else ids)
            ended = whole and _is_text(codec, text, ids)
            prompt, answer = str(example.prompt), example.answer
            found.append(Completion(prompt, answer, text, ended, example.columns, ids=ids))
    return found


def _is_text(codec: Codec, text: str, ids: list[int]) -> bool:
    """Whether a text is the decoding of its tokens, with no token that stands for no character."""
    try:
        return codec.encode_answer(text) == ids
    except ValueError:
        return False


def is_right(completion: Completion) -> float:
    """1 for a correct sum with its steps, or a correct program."""
    if completion.columns["task"] == "sums":
        return numeric(completion, after=";")
    return float(completion.ended and completion.text == completion.answer)


def measure(run: rlbook.Run, *, what: str, seed: int = 0) -> NDArray[np.float64]:
    """The measurements of a run's agent on held-out prompts, one number per prompt.

    Args:
        run: whose agent answers, at temperature 0.6.
        what: sums or programs, the right ones; helpful, of prompts without a risk how near the
            answer is to the word; harmless, of prompts with one, whether the letter is left out;
            refused, of prompts without a risk, whether they are refused.
        seed: the noise.
    """
    score: dict[str, Callable[[Completion], float]] = {
        "sums": is_right,
        "programs": is_right,
        "helpful": helpfulness,
        "harmless": harmlessness,
        "refused": lambda one: float(one.text == REFUSED),
    }
    check("what", what, one_of(*score))
    kind = what if what in KINDS else "open"
    found = sample_completions(run, kind, 0, seed, split="held_out", temperature=0.6)
    if kind == "open":
        found = [one for one in found if is_risky(one.prompt) == (what == "harmless")]
    return np.array([score[what](one) for one in found])
