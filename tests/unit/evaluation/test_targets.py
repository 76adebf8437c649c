"""`rlbook evaluate` elsewhere than on a run's own prompts: a language model that was not trained
here, another file of prompts, another reward, another environment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from closeness import near, widths

import rlbook
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.evaluation.episodes import evaluate_before, evaluate_samples
from rlbook.evaluation.targets import describe, find_target
from rlbook.runs.exporting import export
from rlbook.runs.request import Request
from rlbook.runs.run import Run

SUMS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in ((10, 21), (32, 43), (54, 15))]
SURPRISE = 30.0  # nats at most, of an answer of three tokens
WRONG = [{"prompt": row["prompt"], "answer": "1"} for row in SUMS]


def begun(**options: Any) -> Run:
    """A run that has not learned anything; the built-in model has, before it shipped."""
    return Run(Request.build("grpo", "Chat-v0", **options))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three sums, and in wrong.jsonl beside them three whose answers are not theirs."""
    for name, content in (("sums.jsonl", SUMS), ("wrong.jsonl", WRONG)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    return tmp_path / "sums.jsonl"


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What the command prints with --json."""
    assert main(["evaluate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command that is refused."""
    assert main(["evaluate", *words]) == 2
    return capsys.readouterr().err


def test_a_models_folder_is_evaluated_before_any_training(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    untaught = evaluated(capsys, model, "--env", "Addition-v0", "--episodes", "8")
    assert untaught["environment"] == "Addition-v0" and untaught["reward"] == "correct"
    assert untaught["prompts"] == "512 held-out prompts of the task addition"
    run = Run(Request.build("grpo", "Addition-v0", model=model))
    assert untaught["returns"] == rlbook.evaluate(run, episodes=8).returns.tolist()
    assert main(["evaluate", model, "--env", "Addition-v0", "--episodes", "2"]) == 0
    assert "reward        correct" in capsys.readouterr().out


def test_a_models_folder_is_sampled_and_compared_with_itself(
    model: str, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [model, "--env", "Chat-v0", "--env.data", str(rows), "--env.reward", "edit"]
    assert "give max_new_tokens 57 or less" in refused(capsys, *there)
    there += ["--env.max_new_tokens", "8"]
    found = evaluated(capsys, *there, "--samples", "2", "--compare", model, "--seed", "1")
    assert found["prompts"] == 3 and found["prompts_of"] == f"3 rows of {rows}"
    assert found["reward"] == "edit"
    assert found["compare"]["difference"]["return"]["value"] == 0.0
    again = evaluated(capsys, *there, "--episodes", "3", "--temperature", "5", "--seed", "1")
    greedy = evaluated(capsys, *there, "--episodes", "3", "--seed", "1")
    assert again["lengths"] != greedy["lengths"]
    choices = evaluated(capsys, *there, "--choices", "2")
    assert choices["prompts_of"] == f"3 rows of {rows}"


def test_a_model_that_explores_samples(model: str, rows: Path) -> None:
    there: dict[str, Any] = {
        "env": "Chat-v0",
        "env_kwargs": {"data": str(rows), "max_new_tokens": 6},
    }
    found, again = (rlbook.evaluate(model, **there, seed=1, explore=True) for _ in range(2))
    assert found.lengths.tolist() == again.lengths.tolist()
    assert found.lengths.tolist() != rlbook.evaluate(model, **there, seed=1).lengths.tolist()


def test_a_run_is_evaluated_on_every_row_of_another_file(rows: Path) -> None:
    run = begun(env_kwargs={"task": "addition"})
    found = find_target(run, env_kwargs={"data": str(rows)})
    world: Any = found.played.make().unwrapped
    assert sorted(world.rules.texts) == sorted(row["prompt"] for row in SUMS)
    assert describe(found.played)["prompts"] == f"3 rows of {rows}"
    own = rlbook.evaluate(run, env_kwargs={"data": str(rows)}).returns
    assert len(own) == 3 and own.mean() > 0.0  # the model that ships knows some sums
    wrong = {"data": str(rows.with_name("wrong.jsonl"))}
    assert rlbook.evaluate(run, episodes=3, env_kwargs=wrong).mean == 0.0


def test_the_file_that_a_run_learned_from_gives_its_shots(rows: Path) -> None:
    own = {"data": str(rows), "held_out_data": str(rows), "shots": 1}
    found = find_target(
        begun(env_kwargs=own), env_kwargs={"data": str(rows.with_name("wrong.jsonl"))}
    )
    assert found.played.kwargs == own | {
        "held_out_data": str(rows.with_name("wrong.jsonl")),
        "split": "held_out",
        "reward": "correct",
    }
    world: Any = found.played.make().unwrapped
    assert [message["content"] for message in world.rules.chat.shots] == ["10+21=", "31"]


def test_an_evaluation_may_ask_for_a_split_of_another_file(rows: Path) -> None:
    asked = {"data": str(rows), "split": "train", "held_out": 0.3}
    world: Any = find_target(begun(), env_kwargs=asked).played.make().unwrapped
    assert len(world.rules.texts) == 2 and world.rules.split == "train"
    assert "training rows" in world.rules.describe_prompts()


def test_an_evaluation_pays_the_reward_that_it_was_asked_for(rows: Path) -> None:
    run = begun(env_kwargs={"reward": "exact"})
    own = find_target(run).played
    assert own.kwargs["reward"] == "correct"  # a success rate in place of a comparison
    other = find_target(run, env_kwargs={"reward": {"edit": 0.5, "prefix": 1.0}})
    assert describe(other.played)["reward"] == "0.5 edit + prefix"
    assert rlbook.evaluate(run, episodes=4, env_kwargs={"reward": "edit"}).mean > 0.0


def test_a_run_reads_another_environment_with_its_own_tokens(model: str, rows: Path) -> None:
    run = Run(Request.build("grpo", "Addition-v0", model=model))
    there = {"data": str(rows), "max_new_tokens": 8}
    found = find_target(run, "Chat-v0", there)
    assert found.played.kwargs["model"] == model
    assert len(rlbook.evaluate(run, "Chat-v0", 3, env_kwargs=there).returns) == 3


def test_an_agent_is_judged_on_held_out_prompts_where_the_environment_has_an_id() -> None:
    agent = Run(Request.build("grpo", "Addition-v0")).agent
    named, made = find_target(agent, "Addition-v0"), find_target(agent, rlbook.make("Addition-v0"))
    assert named.played.kwargs["split"] == "held_out" and named.played != named.recipe
    assert made.played == made.recipe


def test_the_start_of_a_run_meets_it_on_other_prompts(rows: Path) -> None:
    before = evaluate_before(begun(), "start", 2, env_kwargs={"data": str(rows)})
    assert len(before.samples) == 3


def test_other_environments_take_other_arguments_too(capsys: pytest.CaptureFixture[str]) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=200, eval_every=0)
    found = find_target(run, env_kwargs={"slip": 0.5})
    assert describe(found.played) == {"environment": "Maze-v0 with slip 0.5"}
    slipping = rlbook.evaluate(run, episodes=20, env_kwargs={"slip": 0.5}).returns
    assert len(set(slipping)) > 1


def test_a_wrong_request_is_one_sentence(
    model: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = refused(capsys, model)
    assert "holds a language model, which has no environment of its own" in alone
    assert "--env Addition-v0" in alone and alone.count("\n") == 1
    assert "Maze-v0 is not a token environment" in refused(capsys, model, "--env", "Maze-v0")
    there = [model, "--env", "Chat-v0", "--env.data"]
    assert "nowhere.jsonl does not exist" in refused(capsys, *there, "nowhere.jsonl")
    unknown = refused(capsys, *there, str(rows), "--env.reward", "numric")
    assert "numric" in unknown and "numeric" in unknown
    assert "has no argument 'dat'" in refused(capsys, model, "--env", "Chat-v0", "--env.dat", "x")
    other = refused(capsys, model, "--env", "Addition-v0", "--env.rewrd", "edit")
    assert (
        "has no argument 'rewrd'; did you mean 'reward'? (allowed: digits, split, reward" in other
    )
    assert "allow_import" not in other
    late = refused(capsys, model, "--env", "Addition-v0", "--checkpoint", "best")
    assert "checkpoint says how to load a run's folder" in late and "a model" in late
    (tmp_path / "done.jsonl").write_text("{}\n")
    file = refused(capsys, str(tmp_path / "done.jsonl"), "--env.data", "x")
    assert "--env.data has no effect on a file of completions" in file


def test_a_character_without_a_token_is_named(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"data": str(rows), "held_out_data": str(rows)}
    rlbook.train("sft", "Chat-v0", env_kwargs=own, steps=1, eval_every=0, out=tmp_path / "run")
    (tmp_path / "other.jsonl").write_text('{"prompt": "7+Ü=", "answer": "7"}\n')
    told = refused(capsys, str(tmp_path / "run"), "--env.data", str(tmp_path / "other.jsonl"))
    assert (
        "Chat-v0 has characters that the model has no tokens for: 'Ü' (it has: +0123456789=" in told
    )


def test_a_text_longer_than_the_models_positions_names_the_options(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPT-2 has a table of positions; beyond its end torch raised an IndexError."""
    sizes = {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    own: dict[str, Any] = {"data": str(rows), "held_out_data": str(rows)}
    with pytest.raises(RequestError, match=r"max_new_tokens 9 or less; or .*config.n_positions 71"):
        begun(env_kwargs=own, model={"config": sizes})
    own["max_new_tokens"] = 9
    run = begun(env_kwargs=own, model={"config": sizes})
    (tmp_path / "long.jsonl").write_text('{"prompt": "10+21+1=", "answer": "32"}\n')
    with pytest.raises(RequestError, match=r"reads 16 tokens.* 18 .* max_new_tokens 7 or less$"):
        rlbook.evaluate(run, env_kwargs={"data": str(tmp_path / "long.jsonl")})


def test_an_adapter_alone_is_told_of_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    told = refused(capsys, str(tmp_path), "--env", "Addition-v0")
    assert "holds an adapter alone" in told and f"--model.adapter {tmp_path}" in told


def test_what_has_no_effect_is_refused_in_python(model: str) -> None:
    with pytest.raises(RequestError, match="model sets how a folder's model is loaded"):
        rlbook.evaluate(begun(), episodes=1, model={"dtype": "bfloat16"})
    with pytest.raises(RequestError, match="neither another folder nor sizes"):
        rlbook.evaluate(model, "Addition-v0", 1, model={"folder": "x"})
    with pytest.raises(RequestError, match="start is a run before it learned anything"):
        evaluate_before(model, "start", 2, "Addition-v0")


def test_a_models_folder_takes_an_adapter_and_another_dtype(
    model: str, rows: Path, tmp_path: Path
) -> None:
    there: dict[str, Any] = {
        "env": "Chat-v0",
        "env_kwargs": {"data": str(rows), "max_new_tokens": 6},
    }
    trained = rlbook.train(
        "sft",
        **there,
        data=str(rows),
        passes=4,
        eval_every=0,
        out=tmp_path / "run",
        model={"folder": model, "adapter": {"r": 2}},
        learning_rate=0.03,
    )
    export(tmp_path / "run", tmp_path / "adapter")
    asked = {"adapter": str(tmp_path / "adapter")}
    there["env_kwargs"]["held_out_data"] = str(rows)
    found = evaluate_samples(model, 2, **there, model=asked)
    network: Any = find_target(trained).agent
    likelihood = evaluate_samples(trained, 2, env_kwargs={"held_out_data": str(rows)}).surprise
    assert found.surprise == near(
        likelihood, dtype="float32", terms=widths(network.policy.model), size=SURPRISE
    )
    assert found.surprise != near(evaluate_samples(model, 2, **there).surprise, terms=1)
    low: Any = find_target(model, **there, model={"dtype": "bfloat16"}).agent
    assert {str(p.dtype) for p in low.policy.parameters()} == {"torch.bfloat16"}


LONG = {
    "completion": {"prompt": "1+1=", "completion": "2" * 30},
    "pairs": {"prompt": "1+1=", "chosen": "2", "rejected": "3" * 30},
    "turns": {
        "messages": [
            {"role": "user", "content": "1+1="},
            {"role": "assistant", "content": "2"},
        ]
        * 8
    },
}


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [("sft", "completion"), ("sft", "turns"), ("dpo", "pairs"), ("reward_model", "pairs")],
)
def test_a_row_longer_than_a_table_of_positions_is_refused_with_its_line_when_it_is_read(
    algorithm: str, form: str, tmp_path: Path
) -> None:
    path, rows = tmp_path / "rows.jsonl", [LONG[form]]
    short = {"messages": LONG["turns"]["messages"][:2]}
    if form != "turns":
        short = {name: text[:4] for name, text in LONG[form].items()}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [short, short, *rows]))
    sizes = {"model_type": "gpt2", "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    asked: dict[str, Any] = {"env_kwargs": {"task": "addition"}, "model": {"config": sizes}}
    told = (
        rf"^{re.escape(str(path))}, line 3: the prompt and its answer have (\d+) tokens, but the"
        r" model's limit is 24: make the model with --model\.config\.n_positions \1 or more$"
    )
    with pytest.raises(RequestError, match=told):
        rlbook.train(algorithm, "Chat-v0", data=str(path), steps=1, quiet=True, **asked)


def test_a_reference_answer_longer_than_a_table_of_positions_is_refused(tmp_path: Path) -> None:
    """The environment has room for completions of 3 tokens, and sft learns answers of any length."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [LONG["completion"]] * 2))
    sizes = {"model_type": "gpt2", "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    kwargs = {"data": str(path), "held_out": 0.5, "max_new_tokens": 3}
    with pytest.raises(RequestError, match=r"rows\.jsonl, line [12]: .* 36 tokens, .*is 24: make"):
        rlbook.train("sft", "Chat-v0", env_kwargs=kwargs, model={"config": sizes}, quiet=True)


def test_a_prompt_that_leaves_no_room_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    short = {"messages": LONG["turns"]["messages"][:2]}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [short, LONG["turns"], short, short]))
    sizes = {"model_type": "gpt2", "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    with pytest.raises(RequestError, match=r"that of .*rows\.jsonl, line 2, and .*no completion"):
        rlbook.train(
            "sft", "Chat-v0", env_kwargs={"data": str(path)}, model={"config": sizes}, quiet=True
        )


def test_an_idle_option_is_refused_also_where_it_is_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text('{"right": true, "score": 1.0}\n')
    for name in ("seed", "temperature"):
        assert main(["evaluate", str(path), "--score", "score", f"--{name}", "0"]) == 2
        said = f"rlbook: --{name} has no effect on a file of completions\n"
        assert capsys.readouterr().err == said
