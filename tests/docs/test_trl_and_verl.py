"""The page on TRL and verl: every field of TRL is named, and every default that is stated is the
installed one."""

import ast
import dataclasses
import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from closeness import assert_near

import rlbook
from rlbook.agent import Metrics, Step
from rlbook.algorithms.policy.ppo import PPO
from rlbook.data.rollout import Batch
from rlbook.llm.generation.prompt_rows import PromptRows, positions, rows_of
from rlbook.registry import ALIASES, VARIANTS, agent_class
from rlbook.runs.presets.named_presets import preset_names

PAGE = Path(__file__).parents[2] / "docs" / "llm" / "trl-and-verl.md"
OURS = {
    "SFTConfig": "sft",
    "RewardConfig": "reward_model",
    "DPOConfig": "dpo",
    "KTOConfig": "dpo",
    "GRPOConfig": "grpo",
    "RLOOConfig": "rloo",
}
SHARED = "What all of TRL's trainers share"
VERL = {"PPO": "ppo", "verl beside GRPO": "grpo"}


def tables() -> list[tuple[str, list[str], list[list[str]]]]:
    """Every table of the page: the heading above it, its own heading, its rows of cells."""
    found, heading, lines = [], "", PAGE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|---"):
            rows = []
            for below in lines[number + 1 :]:
                if not below.startswith("|"):
                    break
                rows.append(cells(below))
            found.append((heading, cells(lines[number - 1]), rows))
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def names_in(cell: str) -> list[str]:
    return cell.split("`")[1::2]


def stated(cell: str) -> object:
    return ast.literal_eval(cell)


def default_of(config: type, name: str) -> object:
    item = next(item for item in dataclasses.fields(config) if item.name == name)
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def mapped() -> dict[str, list[list[str]]]:
    """TRL's class, or the heading of what is shared → rows with a counterpart."""
    return {
        SHARED if head == SHARED else title[0].strip("`"): rows
        for head, title, rows in tables()
        if title[0].startswith("`")
    }


def left_out() -> dict[str, set[str]]:
    """The heading of a section → the names that are not here."""
    return {
        head: {name for row in rows for name in names_in(row[0])}
        for head, title, rows in tables()
        if title[0] == "not here"
    }


HEADINGS = {
    "SFTConfig": "SFT",
    "RewardConfig": "Reward models",
    "DPOConfig": "DPO",
    "KTOConfig": "KTO",
    "GRPOConfig": "GRPO",
    "RLOOConfig": "RLOO",
}


def named(kind: str) -> set[str]:
    return {name for row in mapped()[kind] for name in names_in(row[0])}


@pytest.mark.parametrize("kind", OURS)
def test_every_field_of_trl_is_mapped_or_left_out_with_a_reason_and_its_default_is_the_installed_one(
    kind: str,
) -> None:
    config = getattr(pytest.importorskip("trl"), kind)
    shared = named(SHARED) | left_out()[SHARED]
    own = named(kind) | left_out().get(HEADINGS[kind], set())
    fields = {item.name for item in dataclasses.fields(config)}
    assert sorted(fields - own - shared - {"learning_rate"}) == [], "not on the page"
    assert sorted(own - fields) == [], f"{kind} has no such field"
    for row in mapped()[kind]:
        assert default_of(config, names_in(row[0])[0]) == stated(row[1]), row


def test_what_the_trainers_share_is_in_each_of_them_and_has_the_stated_default() -> None:
    trl = pytest.importorskip("trl")
    for row in mapped()[SHARED]:
        assert default_of(trl.SFTConfig, names_in(row[0])[0]) == stated(row[1]), row
    every = {item.name for kind in OURS for item in dataclasses.fields(getattr(trl, kind))}
    assert sorted((named(SHARED) | left_out()[SHARED]) - every) == []


def ours(name: str) -> dict[str, object]:
    """Our hyper-parameters and their defaults, under a name or an alias."""
    config = agent_class(ALIASES.get(name, name)).Config
    return vars(config(**VARIANTS.get(name, {})))


def check_ours(rows: list[list[str]], name: str) -> int:
    """Compares the fourth column with our defaults, where the third names one of our
    hyper-parameters; returns how many."""
    defaults, checked = ours(name), 0
    for row in rows:
        here = names_in(row[2])
        if here and here[0] in defaults and row[3] not in ("", "–"):
            value = defaults[here[0]]
            same = row[3] == "none" if value is None else str(value).lower() == row[3]
            assert same or (isinstance(value, float) and float(row[3]) == value), (row, value)
            checked += 1
        elif here and not here[0].startswith("-") and " " not in here[0]:
            assert here[0] in defaults, f"{name} has no {here[0]!r}"
    return checked


@pytest.mark.parametrize(("kind", "name"), OURS.items())
def test_our_defaults_are_those_of_the_config(kind: str, name: str) -> None:
    assert check_ours(mapped()[kind], name) >= 2


@pytest.mark.parametrize(("heading", "name"), VERL.items())
def test_our_defaults_beside_verls_are_those_of_the_config(heading: str, name: str) -> None:
    rows = next(rows for head, title, rows in tables() if head == heading and title[0] == "verl")
    assert check_ours(rows, name) >= 8


def test_verls_defaults_are_those_of_its_files() -> None:
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        pytest.skip("verl is not installed")
    text = (
        Path(spec.origin).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    ).read_text(encoding="utf-8")
    whole = yaml.safe_load(text)
    for _, title, rows in tables():
        for row in rows if title[0] == "verl" else []:
            value = whole
            for key in names_in(row[0])[0].split("."):
                value = value[key]
            assert value == stated(row[1]) or (
                isinstance(value, str) and "${" in value and stated(row[1]) is None
            ), (row, value)


def fields_of_verl() -> dict[str, list[str]]:
    """verl's field → the names beside it."""
    rows = next(rows for _, title, rows in tables() if title[0] == "field of verl")
    return {names_in(row[0])[0]: names_in(row[2]) + names_in(row[3]) for row in rows}


def test_every_field_of_verl_has_a_name_that_exists_here() -> None:
    verl = (
        "prompts responses input_ids attention_mask response_mask position_ids old_log_probs"
        " ref_log_prob token_level_scores token_level_rewards values advantages returns"
    )
    table, homes = fields_of_verl(), {"Batch": Batch, "PromptRows": PromptRows, "Step": Step}
    assert list(table) == verl.split()
    for names in table.values():
        for name in names:
            home, _, field = name.rpartition(".")
            if home in homes:
                assert field in homes[home].__annotations__, name
            elif home:
                module, _, kind = home.rpartition(".")
                found = (
                    getattr(importlib.import_module(module), kind)
                    if kind[0].isupper()
                    else importlib.import_module(home)
                )
                assert callable(getattr(found, field)), name
    settings = ("kl_coef", "kl_in")
    assert all(name in ours("ppo") for name in settings)


class Watched(PPO):
    """PPO that keeps its first rollout and the batch made of it."""

    seen: list[tuple[list[Step], Batch]] = []

    def prepare(self) -> tuple[Batch, Metrics]:
        steps = list(self.rollout_data.steps)
        batch, metrics = super().prepare()
        if not self.seen:
            self.seen.append((steps, batch))
        return batch, metrics


def test_the_fields_hold_what_the_page_says_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round on sums, laid out as verl does: joined ids, positions, scores on the last token."""
    monkeypatch.setattr(Watched, "seen", [])
    options = {"kl_coef": 0.1, "normalize_advantage": False, "gamma": 1.0}
    rlbook.train(Watched, "Addition-v0", steps=100, num_envs=8, eval_every=0, **options)
    steps, batch = Watched.seen[0]
    rows = rows_of(batch.obs["tokens"], batch.obs["length"], batch.action)
    prompts = rows.with_prefix().prompt[rows.index]
    input_ids = torch.cat([prompts, rows.completion], 1)
    last = batch.mask.sum(1) - 1
    for number, length in enumerate(batch.obs["length"].tolist()):
        padding = int(rows.padding[rows.index][number])
        text = batch.obs["tokens"][number, :length].tolist() + batch.action[number].tolist()
        assert input_ids[number, padding:].tolist() == text
        where = torch.cat([x[number] for x in (positions(rows)[0][rows.index], positions(rows)[1])])
        assert where[padding:].tolist() == list(range(len(text)))
    scores = np.stack([step.reward * step.valid for step in steps], 1)
    paid = np.zeros_like(scores)
    paid[np.arange(8), last] = scores.sum(1)
    assert (scores == paid).all() and batch.mask.dtype is torch.bool
    assert batch.value is not None and batch.advantage is not None and batch.target is not None
    kept = batch.mask
    assert_near(batch.target[kept], (batch.advantage + batch.value)[kept], dtype="float32", terms=8)


def test_every_named_preset_is_on_the_page() -> None:
    rows = next(rows for _, title, rows in tables() if title[0] == "preset")
    assert sorted(names_in(row[0])[0] for row in rows) == preset_names()
