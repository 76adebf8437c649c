"""The page on a real model on a laptop: its code runs, and its tables say what the recipes and the
presets say."""

from __future__ import annotations

import re
from pathlib import Path

from rlbook.llm.models.sizes import DATA_RATE, PART_RATE, RATE, SIZES
from rlbook.recipes.recipe import Recipe

PAGE = (Path(__file__).parents[2] / "docs" / "llm" / "laptop.md").read_text(encoding="utf-8")


def row(name: str) -> str:
    """The row of a table that begins so."""
    (found,) = re.findall(rf"^\| {re.escape(name)}.*$", PAGE, re.MULTILINE)
    return found


def test_its_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "laptop.md", "exec"), {})


def test_its_presets_are_those_by_size() -> None:
    huge, large = SIZES
    assert (huge.least, large.least) == (10**9, 2 * 10**7)
    assert f"| {RATE:.0e}; {DATA_RATE:.0e} from recorded data |".replace("e-0", "e-") in row(
        "`learning_rate`, all weights"
    )
    assert f"| {PART_RATE:.0e} |".replace("e-0", "e-") in row("`learning_rate`, an adapter")
    for names in (("num_envs", "group_size"), ("micro_batch_size",), ("eval_episodes", "steps")):
        line = row(", ".join(f"`{name}`" for name in names))
        for size in SIZES:
            assert (
                f"| {', '.join(f'{size.settings[name]:,}'.replace(',', ' ') for name in names)} |"
                in line
            )


def test_its_settings_are_those_of_the_recipes() -> None:
    one, small = (
        Recipe.find(name).stage("grpo").arguments
        for name in ("grpo_notebook", "grpo_notebook_small")
    )
    for arguments, steps in ((one, 80), (small, 80)):
        assert arguments["episodes"] / arguments["num_envs"] == steps and f"| {steps} |" in row(
            "steps"
        )
        assert arguments["model"]["adapter"] == {
            "r": 32,
            "lora_alpha": 32,
            "lora_dropout": 0.05,
            "target_modules": ["q_proj", "k_proj", "v_proj"],
        }
        assert arguments["kl_coef"] == 0.04 and list(arguments["env_kwargs"]["reward"]) == [
            "format",
            "accuracy",
            "levenshtein",
        ]
    assert (one["learning_rate"], small["learning_rate"]) == (1e-5, 3e-3)
    assert (
        one["num_envs"],
        one["env_kwargs"]["max_new_tokens"],
        small["env_kwargs"]["max_new_tokens"],
    ) == (4, 2048, 16)
    assert (small["num_envs"], small["group_size"], one["group_size"]) == (64, 8, 4)
