"""The supervised warm-up of the small built-in model: taught until it knows about half, so that there is something to reinforce.

    minimise  - mean over answer tokens of log π(answer token | prompt, answer so far),   EOS being the last answer token

on training prompts only, until the greedy exact match on a slice of them that is set apart reaches `target`. From random weights no
completion is ever right, and a reward of 0 teaches nothing. The result is cached as a Hugging Face folder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor
from tqdm import tqdm

from rlbook.data.rollout import Batch
from rlbook.errors import TrainingError
from rlbook.fast.flat_adam import FlatAdam
from rlbook.interaction.threads import single_threaded
from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.models import small_llama
from rlbook.llm.tasks.task import Task
from rlbook.llm.token_rows import padded
from rlbook.llm.tokenizer import character_codec, character_tokenizer
from rlbook.seeding import rng_for, torch_generator


@dataclass(frozen=True)
class Recipe:
    """How the warm-up goes."""

    target: float = 0.45                     # greedy exact match to stop at, in [0, 1]
    ceiling: float = 0.52                    # greedy exact match not to exceed: where a stride ended above, it is shortened
    learning_rate: float = 3e-3              # Adam's step size, after `ramp`
    ramp: int = 100                          # steps over which the step size grows from 0: without it some seeds never get going
    batch_size: int = 128                    # answers a step
    set_apart: int = 512                     # training prompts that measure and do not teach
    check_every: int = 5                     # steps between two measurements
    max_steps: int = 4000                    # steps after which it is given up


class Answers:
    """A task's training prompts with their answers, as rows: obs of `LanguageModelPolicy`, action and mask [B, T]."""

    def __init__(self, task: Task) -> None:
        codec = character_codec()
        prompts = codec.encode_prompts(task.train)
        answers = [codec.encode_answer(task.answer(prompt)) for prompt in task.train]
        self.tokens = torch.from_numpy(padded(prompts, codec.pad))
        self.length = torch.tensor([len(row) for row in prompts])
        self.action = torch.from_numpy(padded(answers, codec.pad))
        self.mask = torch.arange(self.action.shape[1]) < torch.tensor([len(row) for row in answers])[:, None]

    def __len__(self) -> int:
        return len(self.action)

    def batch(self, rows: Any) -> Batch:
        """Some of them. The log-probabilities of acting are unknown, for nobody acted: NaN."""
        action = self.action[rows]
        obs = {"tokens": self.tokens[rows], "length": self.length[rows]}
        return Batch(obs=obs, action=action, log_prob=torch.full(action.shape, torch.nan), mask=self.mask[rows])


def warm_model(task: Task, seed: int = 0, recipe: Recipe = Recipe(), cache: Path | None = None) -> Any:
    """The warmed-up `LlamaForCausalLM`, from the cache where it is there and whole, made anew (and cached, if possible) where not."""
    model = small_llama(torch_generator(rng_for(seed, "initialisation")))
    key = _key(task, seed, recipe, model)
    folder = (cache or cache_folder()) / f"{task.name}-{seed}-{key[:16]}"
    if not _load(model, folder, key):
        accuracy = warm_up(model, task, seed, recipe)
        _store(model, folder, {"key": key, "exact_match": accuracy})
    return model


def cache_folder() -> Path:
    """$RLBOOK_CACHE, else rlbook in $XDG_CACHE_HOME, else in ~/.cache."""
    own, shared = os.environ.get("RLBOOK_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else Path(shared or Path.home() / ".cache") / "rlbook"


def warm_up(model: Any, task: Task, seed: int, recipe: Recipe = Recipe()) -> float:
    """Trains `model` in place, on one thread. Returns the greedy exact match on the prompts set apart.

    Raises:
        TrainingError: the target was not reached in `max_steps` steps.
    """
    policy, answers, rng = LanguageModelPolicy(model), Answers(task), rng_for(seed, "minibatches")
    with single_threaded(), _progress(task, recipe) as bar:
        optimizer = FlatAdam([policy.model], recipe.learning_rate, betas=(0.9, 0.98))
        apart, before = answers.batch(slice(recipe.set_apart)), optimizer.flat.clone()
        for step in range(recipe.max_steps + 1):
            if step % recipe.check_every == 0:
                accuracy = exact_match(policy, apart)
                bar.update(min(100 * accuracy, bar.total) - bar.n)
                if accuracy >= recipe.target:
                    return _shorten(optimizer.flat, before, lambda: exact_match(policy, apart), recipe)
                before = optimizer.flat.clone()
            rows = torch.from_numpy(rng.integers(recipe.set_apart, len(answers), recipe.batch_size))
            optimizer.learning_rate = recipe.learning_rate * min(1.0, (step + 1) / recipe.ramp)
            optimizer.step(supervised_loss(policy, answers.batch(rows)), max_grad_norm=1.0)
    raise TrainingError(f"the warm-up on {task.name} did not reach {recipe.target:.0%} exact match in {recipe.max_steps} steps")


def _shorten(flat: Tensor, before: Tensor, measure: Callable[[], float], recipe: Recipe) -> float:
    """Where the last stride overshot, the point between its ends where the exact match lies between target and ceiling, by bisection."""
    after, accuracy = flat.clone(), measure()
    for _ in range(10):
        if accuracy <= recipe.ceiling:
            break
        flat.copy_((before + after) / 2)
        middle = measure()
        if middle >= recipe.target:
            after, accuracy = flat.clone(), middle
        else:
            before = flat.clone()
    flat.copy_(after)
    return accuracy


def supervised_loss(policy: LanguageModelPolicy, batch: Batch) -> Tensor:
    """-mean log π(answer token), in nats a token; EOS counts like any other token, padding not at all. A scalar.

    Source: maximum likelihood with teacher forcing, Williams & Zipser 1989.
    """
    log_prob, _, _ = policy.evaluate(batch, entropy=False)
    return -(log_prob * batch.mask).sum() / batch.mask.sum()


@torch.no_grad()
def exact_match(policy: LanguageModelPolicy, batch: Batch) -> float:
    """Share of rows whose greedy completion is the answer, EOS included.

    Read off one pass over the answers: writing greedily gives the answer exactly if every answer token is the likeliest after those before.
    """
    right = policy.logits(batch).argmax(-1) == batch.action
    return (right | ~batch.mask).all(1).float().mean().item()


def _key(task: Task, seed: int, recipe: Recipe, model: Any) -> str:
    """A digest of everything that the weights depend on."""
    architecture = {name: value for name, value in model.config.to_dict().items() if name != "transformers_version"}
    parts = {
        "task": task.name, "seed": seed, "recipe": asdict(recipe), "architecture": architecture, "code": _code(),
        "torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "numpy": np.__version__,
        "prompts": hashlib.sha256("\n".join(task.train).encode()).hexdigest(),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _code() -> str:
    """A digest of the code that the weights depend on: the language model's and the policies' (the optimiser is there)."""
    package = Path(__file__).parents[1]
    files = sorted([*package.glob("llm/**/*.py"), *package.glob("policies/*.py"), *package.glob("fast/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _load(model: Any, folder: Path, key: str) -> bool:
    """Fills in the cached weights; False where they are missing, damaged or another recipe's."""
    try:
        note = json.loads((folder / "warmup.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        if note["key"] != key or note["sha256"] != hashlib.sha256(data).hexdigest():
            return False
        model.load_state_dict(load(data))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return False
    return True


def _store(model: Any, folder: Path, note: dict[str, Any]) -> None:
    """Writes a Hugging Face folder under a temporary name, then renames it. Where that is not possible there is no cache."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder.parent))
        data = save(model.state_dict(), metadata={"format": "pt"})
        (temporary / "model.safetensors").write_bytes(data)
        (temporary / "warmup.json").write_text(json.dumps({**note, "sha256": hashlib.sha256(data).hexdigest()}))
        model.config.save_pretrained(temporary)
        character_tokenizer().save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    except OSError:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _progress(task: Task, recipe: Recipe) -> tqdm:
    layout = "{desc}: {n:.0f}% exact match |{bar}| target {total:.0f}% [{elapsed}<{remaining}]"
    return tqdm(total=100 * recipe.target, desc=f"warming up on {task.name}", bar_format=layout, file=sys.stderr)
