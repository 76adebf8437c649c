"""The page on trained agents runs from top to bottom; and what a notebook shows of a run."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import rlbook
from rlbook.runs.options import NAMES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.thorough
def test_the_blocks_of_the_page_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "trained-agents.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 7
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    told = capsys.readouterr().out
    assert "({'episodes': 200},)" in told and "<Evaluation " in told and "<Run q_learning" in told
    assert {path.name for path in tmp_path.iterdir()} == {"curve.png", "maze.gif", "runs"}


def test_what_the_page_sets_beside_stable_baselines3_exists_here() -> None:
    page = (DOCS / "trained-agents.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (.*`.*) \| (.*) \|$", page.split("Coming from Stable-")[1], re.MULTILINE
    )
    given = " ".join(code for _, ours in rows for code in re.findall(r"`([^`]*)`", ours))
    fields = [agent.Config for agent in rlbook.algorithms().values()]
    known = {item.name for config in fields for item in dataclasses.fields(config)} | {*NAMES}
    for function in (rlbook.train, rlbook.load, rlbook.Run.watch, rlbook.Run.predict):
        known |= {*inspect.signature(function).parameters}
    assert len(rows) > 30 and set(re.findall(r"\b([a-z_]+)=", given)) <= known | {"env", "pi", "vf"}
    theirs, ours = re.search(r"`vf_coef=(\S+)` \| `value_coef=(\S+)`", page).groups()  # type: ignore[union-attr]
    # they leave out the ½ before the square, which tests/equivalence/test_recurrent_ppo.py compares
    assert float(ours) == 2 * float(theirs)
    assert all(rlbook.algorithms()[name].Config().anneal_learning_rate for name in ("ppo", "a2c"))  # type: ignore[attr-defined]


def test_a_schedule_that_is_annealed_once_more_is_noted() -> None:
    """`learning_rate=lambda left: 3e-4 * left` is 3e-4 with PPO's own annealing: with a schedule
    besides, it falls with the square."""
    rate, notes = "linear(3e-4, 0.0)", []
    for options in ({}, {"anneal_learning_rate": False}):
        run = rlbook.train(
            "ppo", "CartPole-v1", steps=64, eval_every=0, learning_rate=rate, **options
        )
        notes.append([note for note in run.notes if "anneal_learning_rate is true" in note])
    assert len(notes[0]) == 1 and notes[1] == []


in_a_kernel = pytest.mark.slow
"""A process that imports IPython and rlbook: seconds. The parts are tested one by one elsewhere."""


@pytest.fixture(scope="module")
def cells() -> list[list[dict]]:
    """The outputs of a notebook's cells."""
    import nbformat  # seconds, which only the process of this test should pay
    from nbclient import NotebookClient

    code = (
        "import rlbook\nrun = rlbook.train('q_learning', 'Maze-v0', episodes=200, alpha=0.5)",
        "run",
        "run.watch()",
        "quiet = rlbook.train('q_learning', 'Maze-v0', episodes=2, quiet=True)",
        "run.plot()",
        "rlbook.compare([run, quiet])",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in code])
    NotebookClient(notebook, timeout=120).execute()
    return [cell.outputs for cell in notebook.cells]


@in_a_kernel
def test_a_notebook_shows_a_closing_line(cells: list[list[dict]]) -> None:
    told = "".join(output.get("text", "") for output in cells[0] if output.get("name") == "stderr")
    assert re.search(r"q_learning on Maze-v0: [\d,]+ steps, 200 episodes; evaluation .* s\n", told)
    assert cells[3] == []


@in_a_kernel
def test_a_run_is_shown_with_its_curve_and_its_map(cells: list[list[dict]]) -> None:
    ((html, plain),) = ((out["data"]["text/html"], out["data"]["text/plain"]) for out in cells[1])
    assert html.count("data:image/png;base64,") == 2 and plain.startswith("<Run q_learning on")


@in_a_kernel
def test_the_film_stands_in_the_cell(cells: list[list[dict]]) -> None:
    (shown,) = cells[2]
    picture = shown["data"]["text/html"]  # nbconvert has no template for image/gif
    assert picture.startswith('<img alt="q_learning in Maze-v0" src="data:image/gif;base64,R0lGOD')


@in_a_kernel
def test_a_plot_and_a_comparison_stand_in_the_cell(cells: list[list[dict]]) -> None:
    """Without pyplot, which would have registered how figures are shown."""
    ((plot,), (table,)) = cells[4:6]
    assert plot["data"]["image/png"].startswith("iVBORw0KGgo")  # a PNG
    assert table["data"]["text/html"].count("<tr>") == 3
