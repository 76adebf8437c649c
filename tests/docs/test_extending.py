"""The pages on adding an algorithm, an environment and a task: what they show is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near
from gymnasium.utils.env_checker import check_env

import rlbook
from rlbook.cli.main import main

FOLDER = Path(__file__).parents[2] / "docs" / "extend"


@pytest.fixture(autouse=True)
def _can_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("page", ["algorithm", "environment", "task", "network"])
def test_the_python_of_a_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(code.replace("steps=2_000", "steps=200").replace("episodes=512", "episodes=64"), {})
    assert capsys.readouterr().out


def test_own_reinforce_is_short_and_finds_the_shortest_paths() -> None:
    import my_reinforce  # type: ignore[import-not-found]

    code = (FOLDER / "my_reinforce.py").read_text(encoding="utf-8").split("@dataclass")[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 45
    run = rlbook.train(my_reinforce.Reinforce, "GridWorld-v0", steps=20_000, seed=0, eval_every=0)
    best = rlbook.train("value_iteration", "GridWorld-v0", eval_every=0)
    found, wanted = (rlbook.evaluate(each, episodes=50, seed=0).returns for each in (run, best))
    np.testing.assert_array_equal(found, wanted)


def test_own_reinforce_resumes_bit_for_bit(tmp_path: Path) -> None:
    import my_reinforce  # type: ignore[import-not-found]

    options: dict[str, Any] = {"seed": 1, "eval_every": 0}
    whole = rlbook.train(my_reinforce.Reinforce, "GridWorld-v0", steps=700, **options)
    rlbook.train(my_reinforce.Reinforce, "GridWorld-v0", steps=333, out=tmp_path / "run", **options)
    resumed = rlbook.load(tmp_path / "run", allow_import=True).resume(steps=700)
    np.testing.assert_array_equal(resumed.agent.theta, whole.agent.theta)  # type: ignore[attr-defined]
    assert resumed.episode_returns == whole.episode_returns


def test_own_algorithm_and_own_environment_train_by_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "train",
        "my_reinforce:Reinforce",
        "my_environment:Corridor-v0",
        "--steps",
        "400",
        "--allow-import",
        "--out",
        "run",
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 400
    assert main(["evaluate", "run", "--episodes", "2", "--allow-import", "--json"]) == 0


def test_own_environment_keeps_gymnasiums_rules_and_has_the_return_that_it_states() -> None:
    import my_environment  # type: ignore[import-not-found]

    check_env(rlbook.make("Corridor-v0").unwrapped, skip_render_check=True)
    for length, key in ((8, 3), (5, 0)):
        run = rlbook.train("value_iteration", my_environment.Corridor(length, key), eval_every=0)
        assert rlbook.evaluate(run, episodes=1).mean == 10 - (length - 1) - 1


def test_own_task_pays_for_its_answer_and_speaks_its_own_alphabet() -> None:
    import my_task  # type: ignore[import-not-found]

    env: Any = rlbook.make("Sort-v0", reward=my_task.digits_in_place)
    rules = env.unwrapped.rules
    assert env.action_space.n == 11 + 4  # ten digits, "=", and four special tokens
    env.reset(seed=0)
    prompt = rules.texts[env.unwrapped.rows.prompt[0]]
    answer = rules.task.answer(prompt)
    assert list(answer) == sorted(prompt[:3])
    wrong_end = answer[:2] + ("0" if answer[2] != "0" else "1")
    for written, wanted in ((answer, 1.0), (wrong_end, 2 / 3)):
        env.reset(seed=0)
        steps = [
            env.step(token)
            for token in [
                *rules.codec.backend.encode(written, add_special_tokens=False).ids,
                rules.codec.eos,
            ]
        ]
        assert sum(step[1] for step in steps) == near(wanted, terms=3) and steps[-1][2]


def test_own_task_is_short_and_its_verifier_takes_what_it_should() -> None:
    import my_task  # type: ignore[import-not-found]

    code = (
        (FOLDER / "my_task.py")
        .read_text(encoding="utf-8")
        .split('"""', 2)[2]
        .split("def digits_in_place")[0]
    )
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    task = my_task.SortTask()
    assert [task.score("725=", text) for text in ("257", "752", "275", "")] == [1.0, 1.0, 0.0, 0.0]
    assert task.demonstration("725=") == "257"


def test_own_task_trains_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "sft",
        "my_task:Sort-v0",
        "--env.model",
        "new",
        "--steps",
        "2",
        "--batch-size",
        "8",
        "--eval-every",
        "0",
    ]
    assert main([*words, "--allow-import", "--out", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert main(["evaluate", "run", "--episodes", "2", "--allow-import", "--json"]) == 0


def test_own_recipe_is_checked_by_a_dry_run_and_runs_with_small_budgets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["recipe", str(FOLDER / "my_recipe.yaml"), "--allow-import"]
    assert main([*words, "--dry-run", "--ppo.kl_coeff", "0"]) == 2
    assert (
        "stage ppo: ppo has no hyper-parameter 'kl_coeff'; did you mean 'kl_coef'?"
        in capsys.readouterr().err
    )
    small = [
        "--walks.episodes",
        "5",
        "--first_policy.steps",
        "2",
        "--reward_model.passes",
        "1",
        "--ppo.steps",
        "512",
    ]
    assert (
        main([*words, *small, "--measure.sampled_return.episodes", "1", "--out", "run", "--json"])
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert [item["finished"] for item in facts["stages"]] == [True] * 4
    # a reward model does not act
    assert [row["stage"] for row in facts["table"]] == [
        "first_policy",
        "ppo",
    ]
    assert facts["stages"][0]["facts"]["episodes"] == 5 and Path("run/walks/walks").is_dir()


@pytest.mark.slow
def test_own_recipe_finds_the_shortest_way_through_the_maze(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main(["recipe", str(FOLDER / "my_recipe.yaml"), "--allow-import", "--out", "run", "--json"])
        == 0
    )
    table = json.loads(capsys.readouterr().out)["table"]
    assert table[-1]["stage"] == "ppo" and table[-1]["after"]["mean"] == near(
        3.0, terms=8, size=10.0
    )


def own_agent(begin: Any) -> type[rlbook.Agent]:
    """An agent of somebody's own that begins as `begin` does."""

    class Own(rlbook.Agent):
        observations, batched, __init__ = "index", False, begin

        def act(self, observation: Any, *, explore: bool = True) -> int:
            return 0

        def learn(self, step: rlbook.Step) -> dict[str, float]:
            return {}

    return Own


def test_an_agent_that_forgets_to_begin_as_agents_do_is_told_what_to_write() -> None:
    def forgets(self: Any, env: Any, config: Any, seed: int = 0) -> None:
        self.table = np.zeros(16)

    wanted = r"Own.__init__ must begin with super\(\).__init__\(env, config, seed\)"
    own, env = own_agent(forgets), rlbook.make("FrozenLake-v1")
    with pytest.raises(rlbook.RequestError, match=wanted):
        rlbook.train(own, env, steps=20)
    with pytest.raises(rlbook.RequestError, match=wanted):
        rlbook.evaluate(own(env, None), env, episodes=1)
    with pytest.raises(rlbook.RequestError, match=wanted):
        own(env, None).predict(0)


def test_an_agent_whose_init_takes_other_arguments_is_told_which() -> None:
    def no_seed(self: Any, env: Any, config: Any) -> None:
        rlbook.Agent.__init__(self, env, config)

    with pytest.raises(rlbook.RequestError, match=r"Own.__init__ must take env, config and seed=0"):
        rlbook.train(own_agent(no_seed), "FrozenLake-v1", steps=20)
