"""The page on rewards: its examples by hand, its own reward, and its commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlbook.cli.main import main
from rlbook.llm.rewards import REWARDS, Completion, Rewards

FOLDER = Path(__file__).parents[2] / "docs" / "llm"
PAGE = (FOLDER / "rewards.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _can_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)


def test_every_reward_has_its_place_on_the_page() -> None:
    assert (
        set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= set(REWARDS) - {"code"}
        and "`code` runs" in PAGE
    )


@pytest.mark.parametrize(
    ("asked", "text", "tokens", "value"),
    [
        ("prefix", "45", 3, 1 / 3),
        ("edit", "45", 3, 1 - 1 / 3),
        ("tags", "<think>4+2</think> 6", 3, 2 / 4),
        ("format", "<think>4+2</think> 6", 3, 0.0),
        ("format", "<think></think><answer></answer>", 3, 1.0),
        ("language", "ab好的", 3, 2 / 4),
        ({"overlong": {"buffer": 4}}, "", 16, 0.0),
        ({"overlong": {"buffer": 4}}, "", 17, -1 / 4),
        ({"overlong": {"buffer": 4}}, "", 20, -1.0),
        ({"repetition": {"n": 2}}, "", 5, -(1 - 1 / 4)),
        ({"rubric": {"criteria": {"number": {"matches": "^[0-9]+$"}}}}, "45", 3, 1.0),
    ],
)
def test_the_examples_by_hand(asked: object, text: str, tokens: int, value: float) -> None:
    total, _ = Rewards(asked)([Completion("", "46", text, True, ids=[7] * tokens, limit=20)])
    assert total.tolist() == [value]


def test_the_python_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for code in blocks:  # each may use what those before it have imported
        exec(code, names)
    assert len(blocks) == 4
    (said,) = re.findall(r"prints `(.*?)`", PAGE)
    assert capsys.readouterr().out.strip() == said


def test_the_own_rewards_are_short_and_train_by_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [
        line
        for line in (FOLDER / "my_rewards.py").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    assert len(lines) <= 15
    asked = re.findall(r"--env.reward '(.*near.*)' --allow-import", PAGE)[0]
    words = [
        "train",
        "grpo",
        "Addition-v0",
        "--steps",
        "60",
        "--num-envs",
        "8",
        "--eval-every",
        "0",
        "--out",
        "run",
        "--env.reward",
        asked,
    ]
    assert main(words) == 2 and "would import the module 'my_rewards'" in capsys.readouterr().err
    assert main([*words, "--allow-import", "--json"]) == 0
    logged = [
        json.loads(line)
        for line in Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {"reward/exact", "reward/near", "reward/fresh"} <= {
        name for line in logged for name in line
    }


def test_fresh_counts_the_others() -> None:
    import my_rewards  # type: ignore[import-not-found]

    total, _ = Rewards({"fresh": {"function": my_rewards.fresh}})(
        [Completion("", "46", text, True) for text in ("46", "46", "7")]
    )
    np.testing.assert_array_equal(total, [0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("experiment", "place"), [("process_judges", ""), ("countdown_judges", "on Countdown ")]
)
def test_the_tables_of_process_judges_state_what_was_measured(experiment: str, place: str) -> None:
    known = json.loads((FOLDER.parent / "results.json").read_text(encoding="utf-8"))
    found = known["measurements"][experiment]["measured"]
    stated = 0
    for kind, after in (
        ("best of 16", f"| best of 16 {place}by |"),
        ("paid by", f"| paid {place}by |"),
    ):
        for line in PAGE.split(after)[1].split("\n\n")[0].splitlines()[2:]:
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            assert cells == process_judges_cells(found, kind, name)
            stated += 1
    assert stated == sum(name.endswith(": steps") for name in found)


def test_the_table_of_step_labels_states_what_was_measured() -> None:
    known = json.loads((FOLDER.parent / "results.json").read_text(encoding="utf-8"))
    found = known["measurements"]["step_labels"]["measured"]

    def cell(name: str, sign: str = "") -> str:
        if name not in found:
            return "–"
        value, half = (f"{100 * found[one]:{sign}.1f}" for one in (name, f"{name}, ±"))
        return f"{value} ± {half.lstrip('+')}".replace("-", "−")

    lines = PAGE.split("| labels |")[1].split("\n\n")[0].splitlines()[2:]
    for line in lines:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        shares = ("agree", "right called wrong", "wrong called right", "best of 16")
        assert cells == [
            *(cell(f"{name}: {what}") for what in shares),
            cell(f"{name}: best of 16, change", "+"),
        ]
    assert len(lines) == sum(name.endswith(": best of 16") for name in found)


def process_judges_cells(found: dict[str, float], kind: str, name: str) -> list[str]:
    """The numbers of a line."""
    told = f"{kind}, {name}"

    def change(what: str) -> str:
        if f"{told}: {what}" not in found:
            return "–"
        half = 100 * found[f"{told}: {what}, ±"]
        return f"{100 * found[f'{told}: {what}']:+.1f} ± {half:.1f}".replace("-", "−")

    cells = [f"{100 * found[told]:.1f} %", change("gain"), f"{found[f'{told}: steps']:.2f}"]
    if kind == "best of 16":
        return cells
    scores = [found.get(f"{name}: score {when}") for when in ("before", "after")]
    return [*cells, "–" if None in scores else " → ".join(f"{score:.2f}" for score in scores)]
