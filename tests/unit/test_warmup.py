"""The warm-up: what it teaches, on what, and what becomes of its cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlbook.errors import TrainingError
from rlbook.llm import warmup
from rlbook.llm.generation import generate
from rlbook.llm.language_model import LanguageModelPolicy
from rlbook.llm.models import small_llama
from rlbook.llm.tasks import AdditionTask, ReverseTask
from rlbook.llm.token_env import AdditionVector
from rlbook.llm.tokenizer import IDS
from rlbook.llm.warmup import Answers, Recipe, exact_match, supervised_loss, warm_model
from rlbook.policies.build import PolicySettings, build_policy

QUICK = Recipe(target=0.0, ceiling=1.0)  # content with the untrained model
SHORT = Recipe(target=0.002, batch_size=32)


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_warm_up_stops_between_30_and_60_percent(tmp_path: Path) -> None:
    task = ReverseTask()
    policy = LanguageModelPolicy(warm_model(task, 0, cache=tmp_path))
    assert 0.45 <= exact_match(policy, Answers(task).batch(slice(512))) <= 0.52
    assert 0.30 <= exact_match(policy, Answers(task).batch(slice(512, None))) <= 0.60


def test_the_same_seed_makes_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, second, other = (warm_model(AdditionTask(), seed, SHORT, tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "a")))
    assert same(first, second) and not same(first, other)


def test_the_warm_up_leaves_global_generators_and_threads_alone(tmp_path: Path) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    numpy_state = repr(np.random.mtrand._rand.get_state(legacy=False))
    warm_model(AdditionTask(), 0, SHORT, tmp_path)
    assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads()
    assert repr(np.random.mtrand._rand.get_state(legacy=False)) == numpy_state


def test_held_out_prompts_are_no_part_of_the_answers() -> None:
    task = AdditionTask()
    answers, held_out = Answers(task), {tuple(row) for row in AdditionVector(1, split="held_out").rules.prompts.tolist()}
    assert not held_out & {tuple(row) for row in answers.tokens.tolist()}
    row = answers.batch([0])
    text = "".join(name for token in row.action[0][row.mask[0]].tolist() for name, index in IDS.items() if index == token)
    assert text == task.answer(task.train[0]) + "<eos>"


def test_the_loss_of_uniform_guessing_is_the_logarithm_of_the_vocabulary() -> None:
    model = small_llama(torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(model.lm_head.weight)
    loss = supervised_loss(LanguageModelPolicy(model), Answers(AdditionTask()).batch(slice(8)))
    assert loss.item() == pytest.approx(np.log(26), abs=1e-6)


def test_padding_is_no_part_of_the_loss() -> None:
    """Answers of 2 and 3 digits and EOS: the mean over 3 + 4 tokens, whatever stands behind the end."""
    task, policy = AdditionTask(), LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0)))
    answers = [task.answer(prompt) for prompt in task.train]
    short, long = (next(i for i, answer in enumerate(answers) if len(answer) == length) for length in (2, 3))
    batch = Answers(task).batch([short, long])
    assert batch.mask.sum(1).tolist() == [3, 4]
    log_prob = policy.evaluate(batch)[0].double()
    expected = -(log_prob[0, :3].sum() + log_prob[1, :4].sum()) / (3 + 4)
    assert supervised_loss(policy, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    batch.action[~batch.mask] = IDS["7"]
    assert supervised_loss(policy, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_exact_match_is_that_of_writing_greedily(tmp_path: Path) -> None:
    task = ReverseTask()
    policy = LanguageModelPolicy(warm_model(task, 0, Recipe(target=0.1), tmp_path))
    batch = Answers(task).batch(slice(600, 700))
    written = generate(policy, batch.obs["tokens"].numpy(), batch.obs["length"].numpy(), eos=IDS["<eos>"], max_new_tokens=7)
    right = (written.tokens == batch.action.numpy()).all(1)                           # every answer here has 6 letters and EOS
    assert 0 < right.mean() < 1 and exact_match(policy, batch) == pytest.approx(right.mean(), abs=1e-6)


def test_the_cache_is_a_hugging_face_folder_that_serves_as_model(tmp_path: Path) -> None:
    model = warm_model(AdditionTask(), 0, QUICK, tmp_path)
    (folder,) = tmp_path.iterdir()
    env = AdditionVector(2, model=str(folder))
    policy = build_policy(env, np.random.default_rng(0), PolicySettings())
    assert same(policy.model, model)


def test_a_cached_model_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = warm_model(AdditionTask(), 0, QUICK, tmp_path)
    monkeypatch.setattr(warmup, "warm_up", lambda *_: pytest.fail("trained again"))
    assert same(model, warm_model(AdditionTask(), 0, QUICK, tmp_path))


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", flip_a_bit), ("model.safetensors", lambda file: file.write_bytes(file.read_bytes()[:1000])),
        ("model.safetensors", Path.unlink), ("warmup.json", lambda file: file.write_text("[]")), ("warmup.json", Path.unlink),
    ],
    ids=["bit flipped", "cut off", "missing", "note damaged", "note missing"],
)  # fmt: skip
def test_a_damaged_cache_is_made_anew(tmp_path: Path, file: str, damage: Any) -> None:
    model = warm_model(AdditionTask(), 0, QUICK, tmp_path)
    (folder,) = tmp_path.iterdir()
    whole = (folder / file).read_bytes()
    damage(folder / file)
    assert same(model, warm_model(AdditionTask(), 0, QUICK, tmp_path))
    assert (folder / file).read_bytes() == whole and [entry.name for entry in tmp_path.iterdir()] == [folder.name]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert same(warm_model(AdditionTask(), 0, QUICK, blocked), warm_model(AdditionTask(), 0, QUICK, tmp_path))
    assert blocked.read_text() == "not a folder"


def test_a_target_out_of_reach_is_an_error() -> None:
    with pytest.raises(TrainingError, match="did not reach 100% exact match in 2 steps"):
        warmup.warm_up(small_llama(torch.Generator().manual_seed(0)), AdditionTask(), 0, Recipe(target=1.0, max_steps=2))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("RLBOOK_CACHE", raising=False)
    assert warmup.cache_folder() == Path("/x/rlbook")
    monkeypatch.setenv("RLBOOK_CACHE", "/own")
    assert warmup.cache_folder() == Path("/own")
