"""The page on trained agents runs from top to bottom; and what a notebook shows of a run."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.runs.options import NAMES
from rlbook.training import completions

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


INTERRUPTED = """import os, signal
def interrupt(run):
    os.kill(os.getpid(), signal.SIGINT)
rlbook.train('ppo', 'CartPole-v1', steps=512, num_envs=1, eval_every=0, on_report=interrupt)"""
BROKEN = """import gymnasium
class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}
    def step(self, action):
        return misspelt
rlbook.train('ppo', Broken, steps=100)"""


@pytest.fixture(scope="module")
def notebook() -> Any:
    """A notebook that has been run."""
    import nbformat  # seconds, which only the process of this test should pay
    from nbclient import NotebookClient

    code = (
        "import rlbook\nrun = rlbook.train('q_learning', 'Maze-v0', episodes=200, alpha=0.5)",
        "run",
        "run.watch()",
        "quiet = rlbook.train('q_learning', 'Maze-v0', episodes=2, quiet=True)",
        "run.plot()",
        "rlbook.compare([run, quiet])",
        "rlbook.train('q_learning', 'Maze-v0', alhpa=0.5)",
        INTERRUPTED,
        "import sys; run = sys.last_value.run; before = run.steps; run.train().steps - before",
        BROKEN,
        "_ = rlbook.train('ppo', 'CartPole-v1', steps=4000, on_report=lambda run: 'stop')",
        "get_ipython().complete(None, 'rlbook.train(\\'ppo\\', \\'Maze-v0\\', gae', 34)[1]",
        *SLIPS,
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in code])
    return NotebookClient(notebook, timeout=120, allow_errors=True).execute()


SLIPS = (
    "rlbook.Trainer",
    "from rlbook import Trainer",
    "run.score()",
    "run.agent.save('a')",
    "run.watch(gif_path='a.gif')",
    "rlbook.PPO.Config(gama=1.0)",
    "rlbook.PPO.Config(clip=-1.0)",
)


@pytest.fixture(scope="module")
def cells(notebook: Any) -> list[list[dict]]:
    """The outputs of its cells."""
    return [cell.outputs for cell in notebook.cells]


@in_a_kernel
def test_a_notebook_shows_a_closing_line(cells: list[list[dict]]) -> None:
    told = "".join(output.get("text", "") for output in cells[0] if output.get("name") == "stdout")
    assert re.search(r"q_learning on Maze-v0: [\d,]+ steps, 200 episodes; evaluation .* s\n", told)
    assert cells[3] == []
    # on standard error it would be painted like an exception
    assert not any(output.get("name") == "stderr" for outputs in cells for output in outputs)


@in_a_kernel
def test_a_run_is_shown_with_its_curve_and_its_map(cells: list[list[dict]]) -> None:
    ((html, plain),) = ((out["data"]["text/html"], out["data"]["text/plain"]) for out in cells[1])
    assert html.count("data:image/png;base64,") == 2 and plain.startswith("<Run q_learning on")


@in_a_kernel
def test_the_film_stands_in_the_cell(cells: list[list[dict]]) -> None:
    (shown,) = cells[2]
    picture = shown["data"]["text/html"]  # nbconvert has no template for image/gif
    image = '<img class="rlbook-film" alt="q_learning in Maze-v0" src="data:image/gif;base64,R0lGOD'
    assert image in picture


@in_a_kernel
def test_a_plot_and_a_comparison_stand_in_the_cell(cells: list[list[dict]]) -> None:
    """Without pyplot, which would have registered how figures are shown."""
    ((plot,), (table,)) = cells[4:6]
    assert plot["data"]["image/png"].startswith("iVBORw0KGgo")  # a PNG
    assert table["data"]["text/html"].count("<tr>") == 3


def traceback_of(outputs: list[dict]) -> str:
    (error,) = (output for output in outputs if output["output_type"] == "error")
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error["traceback"]))


@in_a_kernel
def test_an_error_has_the_lines_of_the_cell_and_its_sentence(cells: list[list[dict]]) -> None:
    told = traceback_of(cells[6])
    assert "----> 1 rlbook.train(" in told and "did you mean 'alpha'?" in told
    assert "rlbook/" not in told and len(told.split("\n")) <= 8


@in_a_kernel
@pytest.mark.parametrize("number", range(len(SLIPS)))
def test_a_slip_has_the_line_of_the_cell_and_its_sentence(
    cells: list[list[dict]], number: int
) -> None:
    told = traceback_of(cells[12 + number])
    assert f"----> 1 {SLIPS[number]}" in told and "rlbook/" not in told, told


@in_a_kernel
def test_an_error_of_the_environment_has_its_line_too(cells: list[list[dict]]) -> None:
    told = traceback_of(cells[9])
    assert "----> 8         return misspelt" in told and "NameError: name 'misspelt'" in told
    assert told.rstrip().endswith("step 1: NameError: name 'misspelt' is not defined")
    assert "rlbook/" not in told


@in_a_kernel
def test_an_interrupted_run_is_kept_and_goes_on(cells: list[list[dict]]) -> None:
    told = traceback_of(cells[7])
    found = re.search(
        r"Interrupted: SIGINT\nstopped at (\d+) steps of 512; to go on: import sys;"
        r" run = sys.last_value.run; run.train\(\)$",
        told.rstrip(),
    )
    assert found is not None and "rlbook/" not in told
    ((added,),) = ([out for out in cells[8] if out["output_type"] == "execute_result"],)
    assert int(found[1]) + int(added["data"]["text/plain"]) == 512


@in_a_kernel
def test_a_bar_is_left_in_red_only_of_the_run_that_was_interrupted(notebook: Any) -> None:
    """tqdm leaves one wherever the total was not reached: also where a callback stops."""
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    styles = [widget["state"].get("bar_style") for widget in state.values()]
    assert styles.count("danger") == 1  # the interrupted one's


@in_a_kernel
def test_tab_knows_the_hyperparameters_of_the_algorithm(cells: list[list[dict]]) -> None:
    (shown,) = cells[11]
    assert shown["data"]["text/plain"] == "['gae_lambda=']"


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("rlbook.train('q_learn", ["q_learning"]),
        ('run = rlbook.train("dpo", "Maze-v0", preference_l', ["preference_loss="]),
        ("rlbook.train('dqn', 'CartPole-v1', epsilon=Linear(1.0, 0.1), double", ["double="]),
        ("rlbook.train('dqn', 'CartPole-v1', epsilon=Linear(1.0, gam", []),  # inside another call
        ("rlbook.train('dqn', 'CartPole-v1', gamma=dou", []),
        ("rlbook.train('dqn', 'dou", []),  # inside a text
        ("rlbook.train('dqn', 'CartPole-v1'); dou", []),
        ("rlbook.train('nobody', 'CartPole-v1', gam", []),
        ("rlbook.load('dqn', gam", []),
    ],
)
def test_what_is_completed_inside_train(before: str, found: list[str]) -> None:
    assert completions(before) == found
