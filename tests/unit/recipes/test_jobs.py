"""A job holds the run's rows, rewards and settings; what has no counterpart is listed, and a method
that the target lacks is refused."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from closeness import near, rounding_bound

from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.hyperparameters import Hyperparameters
from rlbook.llm.rewards import REWARDS, Completion
from rlbook.llm.rewards.code import isolation_works
from rlbook.llm.rewards.composite import CHECKS
from rlbook.llm.tasks import TASKS
from rlbook.recipes.jobs import exported_rewards, llama_factory_job, trl_job, verl_job
from rlbook.recipes.jobs.job import TARGETS, Job
from rlbook.recipes.jobs.job_fields import JobFields
from rlbook.recipes.jobs.job_rows import labelled_rows
from rlbook.recipes.jobs.self_contained import SourceFile
from rlbook.recipes.jobs.trainer_arguments import batch_arguments
from rlbook.recipes.jobs.write_job import _job_of, write_job
from rlbook.registry import agent_class
from rlbook.runs.presets.named_presets import FOLDER as PRESETS
from rlbook.runs.request import Request


def write_config(folder: Path, algorithm: str, env: str = "Addition-v0", **entries: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(
        yaml.safe_dump({"algorithm": algorithm, "env": env, **entries}, sort_keys=False)
    )
    return path


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def grpo_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("job")
    reward = {
        "correct": 1.0,
        "overlong": {"weight": 0.5, "buffer": 2},
        "edit": 0.25,
        "language": 0.125,
    }
    config = write_config(
        folder, "grpo", env="Countdown-v0", steps=5000, env_kwargs={"reward": reward}
    )
    return write_job(config, folder / "trl", "trl"), folder / "trl"


def test_the_files_are_those_that_the_readme_lists(grpo_job: tuple[dict[str, Any], Path]) -> None:
    facts, folder = grpo_job
    named = {name.rstrip("/") for name in facts["files"]}
    assert named == {path.name for path in folder.iterdir()}
    text = (folder / "README.md").read_text()
    assert all(f"`{name}`" in text for name in facts["files"] if name != "README.md")
    assert "python train.py" in text and "accelerate launch --num_processes 8" in text


def test_the_rows_are_the_prompts_of_the_task(grpo_job: tuple[dict[str, Any], Path]) -> None:
    rows, held_out = (read_lines(grpo_job[1] / f"{name}.jsonl") for name in ("train", "held_out"))
    task = TASKS["countdown"]()
    assert tuple(row["prompt"] for row in rows) == task.train
    assert tuple(row["prompt"] for row in held_out) == task.held_out
    assert rows[0]["answer"] == task.answer(rows[0]["prompt"])


def test_the_rewards_are_the_runs_and_need_no_rlbook(
    grpo_job: tuple[dict[str, Any], Path],
) -> None:
    """Each is asked about right, wrong and unfinished completions in a process without rlbook."""
    folder = grpo_job[1]
    row = read_lines(folder / "train.jsonl")[0]
    env: Any = Request.build(
        "grpo",
        "Countdown-v0",
        env_kwargs={
            "reward": {
                "correct": 1.0,
                "overlong": {"buffer": 2, "weight": 0.5},
                "edit": 0.25,
                "language": 0.125,
            }
        },
    ).recipe.make()
    rules = env.unwrapped.rules
    place = rules.texts.index(row["question"])
    other = str(2 * int(row["question"].rstrip("=").split(":")[1]))
    codec = rules.codec
    completions = [
        codec.encode_answer(row["answer"]),
        codec.encode_answer("1+" + other),
        codec.encode_answer(row["answer"])[:-1],
        [codec.pad, *codec.encode_answer(row["answer"])],
        (codec.encode_answer("1+1+1+1+1+1+1+1+1")[:-1] * 2)[: rules.max_new_tokens],
    ]
    import numpy as np

    total, named = rules.rewards([rules.to_completion(place, np.array(ids)) for ids in completions])
    asked = f"""
import json, sys
sys.modules["rlbook"] = None
sys.path.insert(0, {str(folder)!r})
import rewards
row, completions = json.loads(sys.stdin.read())
columns = {{name: [row[name]] * len(completions) for name in row if name != "prompt"}}
prompts = [row["prompt"]] * len(completions)
print(json.dumps([
    function(prompts=prompts, completions=prompts, completion_ids=completions, trainer_state=None,
             **columns)
    for function in rewards.FUNCTIONS
]), json.dumps(rewards.WEIGHTS), json.dumps([f.__name__ for f in rewards.FUNCTIONS]))
"""
    said = subprocess.run(
        [sys.executable, "-c", asked],
        input=json.dumps([row, completions]),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    values, weights, names = (json.loads(f"[{part}]")[0] for part in _split_json(said))
    assert names == ["correct", "overlong", "edit", "language"]
    assert weights == [1.0, 0.5, 0.25, 0.125]
    # what does not apply, as a share of no letters, is 0 there
    assert values == [np.nan_to_num(named[f"reward/{name}"]).tolist() for name in names]
    summed = [sum(w * v[i] for w, v in zip(weights, values, strict=True)) for i in range(5)]
    assert summed == near(total.tolist(), terms=4)
    assert total[0] > 1.0 > total[1] and 0.0 < values[2][2] < 1.0 and min(values[1]) == -1.0


def _split_json(text: str) -> list[str]:
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end])
        at = end + 1
    return found


def test_every_built_in_reward_and_judge_can_be_written_down(tmp_path: Path) -> None:
    file = SourceFile()
    names = {n: file.add(function) for n, function in REWARDS.items() if function not in CHECKS}
    judges = {name: file.add(task.score_recorded, f"score_{name}") for name, task in TASKS.items()}
    (tmp_path / "all_rewards.py").write_text(file.text("All."))
    assert list(file.modules) == ["program.py"]
    assert "import rlbook" not in file.text("") and "from rlbook" not in file.text("")
    sys.path.insert(0, str(tmp_path))
    for name, text in file.modules.items():
        (tmp_path / name).write_text(text)
    try:
        module = load_module(tmp_path / "all_rewards.py")
    finally:
        sys.path.remove(str(tmp_path))
        for name in ("program", "all_rewards"):
            sys.modules.pop(name, None)
    shown = Completion("12+34=", "46", "<think>4</think><answer>46</answer>", True, ids=(7, 8, 2))
    theirs = module.Completion(**{name: getattr(shown, name) for name in shown.__slots__})
    for name in ("exact", "edit", "answer", "format", "tags", "think", "language", "numeric"):
        assert getattr(module, names[name])(theirs) == REWARDS[name](shown), name
    for name, task in TASKS.items():
        prompt = task().train[0]
        right = task().demonstration(prompt), task().answer(prompt) + "1"
        for text in right:
            asked = prompt, task().answer(prompt), text
            assert getattr(module, judges[name])(*asked) == task.score_recorded(*asked)


def test_a_reward_that_asks_a_model_stays_at_home(tmp_path: Path) -> None:
    asked = {"rubric": {"criteria": {"short": {"max_words": 3}}}}
    config = write_config(tmp_path, "grpo", steps=100, env_kwargs={"reward": asked})
    with pytest.raises(
        RequestError, match="reward 'rubric' asks a model, which cannot be exported"
    ):
        write_job(config, tmp_path / "job", "trl")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def job_of(
    target: str, algorithm: str, folder: Path, env: str = "Addition-v0", **options: Any
) -> Job:
    """A job of which nothing is written yet."""
    request = Request.build(algorithm, env, **options)
    return _job_of(target, request, None, folder, folder)


def test_a_round_is_counted_in_completions_and_training_in_updates(tmp_path: Path) -> None:
    """64 episodes are 4 rounds of 16, gone through twice in minibatches of 8: 4 · 2 · 2 updates. Of
    8 rows 6 cannot be backpropagated at once, as they do not divide them, so it is 2."""
    settings = {"group_size": 4, "batch_size": 8, "micro_batch_size": 6, "epochs": 2}
    job = job_of("trl", "grpo", tmp_path, episodes=64, num_envs=16, hyperparameters=settings)
    expected = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 8,
        "num_iterations": 2,
        "max_steps": 16,
    }
    assert expected.items() <= trl_job._rounds(job).items()
    settings = {"batch_size": 12, "micro_batch_size": 8}
    batch = batch_arguments(job_of("trl", "sft", tmp_path, passes=1, hyperparameters=settings))
    assert (batch["per_device_train_batch_size"], batch["gradient_accumulation_steps"]) == (4, 3)


@pytest.mark.parametrize(
    ("average", "name"), [("token", "dapo"), ("sequence", "grpo"), ("constant", "dr_grpo")]
)
def test_each_average_of_the_loss_has_trls_name(average: str, name: str, tmp_path: Path) -> None:
    job = job_of("trl", "grpo", tmp_path, steps=100, hyperparameters={"average": average})
    assert trl_job._grpo(job)["loss_type"] == name


@pytest.mark.parametrize(
    ("clip", "high", "cap"), [(1.0, 4.0, 5.0), (0.3, None, 1.3), (0.3, 0.5, 1.5)]
)
def test_trls_cispo_is_told_the_cap_itself(
    clip: float, high: float | None, cap: float, tmp_path: Path
) -> None:
    """TRL 1.16: clamp(ρ, max=epsilon_high); ours is clamp(ρ, 1 - clip, 1 + clip_high)."""
    settings = {"ratio": "cispo", "clip": clip, "clip_high": high}
    job = job_of("trl", "grpo", tmp_path, steps=100, hyperparameters=settings)
    assert trl_job._clips(job, "cispo")["epsilon_high"] == cap
    assert ("clip" in job.fields.left_out) == (clip < 1.0)


def test_layers_without_an_adapter_have_none_in_verl(tmp_path: Path) -> None:
    adapter = {"r": 2, "exclude_modules": ["o_proj"]}
    job = job_of("verl", "grpo", tmp_path, steps=100, model={"adapter": adapter})
    assert verl_job._model(job)["exclude_modules"] == ["o_proj"]


def test_a_rate_that_anneals_is_linear_whichever_way_it_is_asked_for() -> None:
    config = agent_class("ppo").Config
    for asked in (
        {"learning_rate": 1e-3, "anneal_learning_rate": True},
        {"learning_rate": "linear(1e-3, 0)", "anneal_learning_rate": False},
    ):
        assert JobFields(config(**asked)).learning_rate() == (1e-3, "linear", 0.0, 0.0)
    constant = JobFields(config(learning_rate=1e-3, anneal_learning_rate=False))
    assert constant.learning_rate() == (1e-3, "constant", 0.0, 0.0)


def test_verls_loss_has_the_runs_bounds_and_a_penalty_only_where_it_weighs_something(
    tmp_path: Path,
) -> None:
    for ratio in ("token", "cispo"):
        settings = {"clip": 0.3, "ratio": ratio}
        job = job_of("verl", "grpo", tmp_path, steps=100, hyperparameters=settings)
        loss = verl_job._losses(job)
        assert (loss["clip_ratio_low"], loss["clip_ratio_high"]) == (0.3, 0.3)
    for coef in (0.0, 0.1):
        settings = {"kl_coef": coef, "kl_in": "loss"}
        job = job_of("verl", "grpo", tmp_path, steps=100, hyperparameters=settings)
        actor: dict[str, Any] = {}
        verl_job._add_penalty(job, {"actor_rollout_ref": {"actor": actor}}, {})
        assert (actor["use_kl_loss"], actor.get("kl_loss_coef", 0.0)) == (coef > 0.0, coef)
    settings = {"learning_rate": "cosine(1e-3, warmup=0.1)", "anneal_learning_rate": False}
    optimizer = verl_job._optimizer(
        job_of("verl", "sft", tmp_path, passes=1, hyperparameters=settings)
    )
    assert optimizer["lr_warmup_steps_ratio"] == 0.1 and "lr_warmup_steps" not in optimizer


def test_a_pair_is_a_good_answer_and_a_bad_one(tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n')
    settings = {"preference_loss": "kto"}
    job = job_of("trl", "dpo", tmp_path, data=str(data), passes=1, hyperparameters=settings)
    assert [*labelled_rows(job)] == [("1+1=", "2", True), ("1+1=", "3", False)]


def test_the_pairs_of_a_reward_model_are_texts_without_an_ending(tmp_path: Path) -> None:
    config = write_config(tmp_path, "reward_model", steps=2)
    write_job(config, tmp_path / "job", "trl")
    rows = read_lines(tmp_path / "job" / "train.jsonl")
    assert rows and all(row["chosen"].isdecimal() and row["rejected"].isdecimal() for row in rows)


def test_a_pair_has_its_own_margin_or_that_of_the_run(tmp_path: Path) -> None:
    pair = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in (pair | {"margin": 2.0}, pair)))
    settings = {"margin": 0.5}
    job = job_of(
        "trl", "reward_model", tmp_path, data=str(data), passes=1, hyperparameters=settings
    )
    trl_job.write_reward_training(job)
    assert [row["margin"] for row in read_lines(tmp_path / "train.jsonl")] == [2.0, 0.5]


def test_as_many_rows_are_held_out_as_in_the_run(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    arguments = {"data": str(data), "held_out": 0.25}
    job = job_of("llamafactory", "sft", tmp_path, "Chat-v0", passes=1, env_kwargs=arguments)
    llama_factory_job.write_sft(job)
    assert yaml.safe_load((tmp_path / "train.yaml").read_text())["val_size"] == 0.25


def test_a_reward_that_compares_with_an_answer_is_0_without_one() -> None:
    """Where it is the task that judges, the task needs none."""
    text = Completion("12+34=", None, "46", True, judge=lambda text: 1.0)
    for judged, expected in ((False, 0.0), (True, 1.0)):
        reward = exported_rewards.ExportedReward(
            "given", 1.0, lambda completion: 1.0, needs_answer=True, judged=judged
        )
        assert exported_rewards.reward_values(reward, [text]) == [expected]


def test_a_reward_for_some_prompts_is_one_in_a_job_too() -> None:
    reward = exported_rewards.ExportedReward(
        "edit", 1.0, REWARDS["edit"], where=(("task", ("sums",)),)
    )
    texts = [
        Completion("12+34=", "46", "46", True, columns={"task": task})
        for task in ("sums", "copies")
    ]
    assert exported_rewards.reward_values(reward, texts) == [1.0, 0.0]


def test_two_things_of_one_name_keep_apart() -> None:
    from rlbook.llm.rewards import answers
    from rlbook.llm.tasks import expressions

    file = SourceFile()
    file.add(answers.number)
    file.add(expressions.parse)
    scope: dict[str, Any] = {"__name__": "alone"}
    exec(compile(file.text("Two."), "two.py", "exec"), scope)
    assert answers.LONGEST != expressions.LONGEST
    assert (scope["LONGEST"], scope["LONGEST_2"]) == (answers.LONGEST, expressions.LONGEST)
    longer = "1" * (answers.LONGEST + 1)
    assert scope["number"](longer) is None and scope["number"]("12") == 12


REFUSED = {
    ("q_learning", "trl"): "TRL has no q_learning that a job could be written for (it has: ",
    ("ppo", "trl"): "TRL has no ppo",
    ("dpo", "verl"): "verl has no dpo",
    ("reward_model", "verl"): "verl has no reward_model",
    ("grpo", "llamafactory"): "LLaMA-Factory has no grpo",
}


@pytest.mark.parametrize("asked", REFUSED)
def test_a_method_that_the_target_lacks_is_refused_with_those_that_it_has(
    asked: tuple[str, str], tmp_path: Path
) -> None:
    config = write_config(tmp_path, asked[0], steps=100)
    with pytest.raises(RequestError) as refused:
        write_job(config, tmp_path / "job", asked[1])
    said = str(refused.value)
    assert said.startswith(REFUSED[asked]) and "sft" in said and "\n" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_bad_requests_are_one_sentence_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = write_config(tmp_path, "grpo", steps=100), tmp_path / "job"
    asked = {
        (str(config), str(out), "--job", "trll"): "job must be one of trl, verl, llamafactory",
        (str(config), str(out), "--job", "trl", "--merge"): "--merge applies to a model's folder",
        (str(config), str(config), "--job", "trl"): "exists already",
        (str(tmp_path / "no.yaml"), str(out), "--job", "trl"): "neither a run's folder nor",
        (
            str(config),
            str(out),
            "--job",
            "trl",
            "--checkpoint",
            "3",
        ): "checkpoint applies to a run's",
    }
    for words, expected in asked.items():
        assert main(["export", *words]) == 2
        said = capsys.readouterr()
        assert expected in said.err and said.out == "" and said.err.count("\n") == 1
    maze = write_config(tmp_path, "grpo", env="Maze-v0", steps=100)
    assert main(["export", str(maze), str(out), "--job", "trl"]) == 2
    assert "Maze-v0 is not a token environment" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_options_without_a_counterpart_are_printed_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(
        tmp_path, "grpo", steps=1000, hyperparameters={"refill": 3, "clip": "linear(0.3, 0.1)"}
    )
    assert main(["export", str(config), str(tmp_path / "job"), "--job", "trl"]) == 0
    said = capsys.readouterr().out
    assert "left out: refill 3: groups of equal returns stay" in said
    assert "left out: clip linear(0.3, 0.1, 1.0): constant at 0.3" in said
    text = (tmp_path / "job" / "README.md").read_text()
    assert "- `refill` 3:" in text and "- `clip` linear" in text
    assert yaml.safe_load((tmp_path / "job" / "config.yaml").read_text())["epsilon"] == 0.3


def test_a_field_that_nobody_reads_is_left_out_by_name() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Config(Hyperparameters):
        known: int = 1
        added_later: float = 0.0
        idle: float = 0.0

    fields = JobFields(Config(known=2, added_later=0.5))
    assert fields.take("known") == 2 and fields.take("absent", 7) == 7
    fields.list_unread("TRL")
    assert fields.left_out == {"added_later": "0.5: TRL has no counterpart"}


def test_a_run_s_folder_begins_anew_or_at_a_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    import rlbook

    run = rlbook.train(
        "sft", "Addition-v0", out=tmp_path / "run", steps=2, eval_every=0, learning_rate=0.02
    )
    first: Any = rlbook.train("sft", "Addition-v0", steps=1, learning_rate=1e-9, eval_every=0)
    for checkpoint, agent in ((None, first.agent), (run.steps, run.agent)):
        out = tmp_path / f"job-{checkpoint}"
        write_job(tmp_path / "run", out, "trl", checkpoint=checkpoint)
        weights = load_file(out / "model" / "model.safetensors")
        mine: Any = agent
        name = "model.layers.0.mlp.up_proj.weight"
        same = (weights[name] - mine.policy.model.state_dict()[name]).abs().max()
        assert same <= 1e-9 + rounding_bound("float32")  # the step of Adam's first update
    assert sorted(TARGETS) == ["llamafactory", "trl", "verl"]


def test_compute_score_is_the_runs_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl decodes a response without its special tokens; one of `limit` tokens was cut off."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra [data]")
    config, job = write_config(tmp_path, "grpo", steps=1000), tmp_path / "job"
    write_job(config, job, "verl")
    monkeypatch.chdir(tmp_path)  # as a worker of verl is somewhere else
    module = load_module(job / "rewards.py")
    row = parquet.read_table(job / "train.parquet").to_pylist()[0]
    assert row["prompt"] == [{"role": "user", "content": row["extra_info"]["question"]}]
    truth = row["reward_model"]["ground_truth"]
    texts = {truth: 1.0, truth[:-1]: 0.0, truth + "1": 0.0, "11111": 0.0, "<pad>" + truth: 0.0}
    for text, expected in texts.items():
        found = module.compute_score(row["data_source"], text, truth, row["extra_info"])
        assert found == {"score": expected, "correct": expected}
    longest = module.RULES._replace(limit=len(truth))
    monkeypatch.setattr(module, "RULES", longest)  # then the right text has no room for its end
    assert module.compute_score(row["data_source"], truth, truth, row["extra_info"])["score"] == 0.0


ROWS = [
    {"question": f"{a}+{b}=", "answer": str(a + b)} for a, b in [(12, 34), (50, 27), (33, 61)] * 4
]


def test_full_fine_tuning_is_written_as_the_preset_says(tmp_path: Path) -> None:
    """Cut-off 2 048, two rows a step, a rate of 1e-4, two epochs, a cosine with a warm-up of a
    tenth, a tenth of the rows for validation."""
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    preset = yaml.safe_load((PRESETS / "sft_full.yaml").read_text())
    preset["env_kwargs"]["data"] = str(data)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(preset))
    facts = write_job(tmp_path / "config.yaml", tmp_path / "job", "llamafactory")
    found = yaml.safe_load((tmp_path / "job" / "train.yaml").read_text())
    expected = {
        "stage": "sft",
        "finetuning_type": "full",
        "cutoff_len": 2048,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-4,
        "num_train_epochs": 2.0,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "val_size": 0.1,
    }
    assert {name: found[name] for name in expected} == expected
    rows = json.loads((tmp_path / "job" / "train.json").read_text())
    asked = [{"instruction": r["question"], "input": "", "output": r["answer"]} for r in ROWS]
    assert sorted(map(str, rows)) == sorted(map(str, asked))
    sets = json.loads((tmp_path / "job" / "dataset_info.json").read_text())
    assert sets["train"]["columns"] == {
        "prompt": "instruction",
        "query": "input",
        "response": "output",
    }
    assert facts["left_out"] == {}


def test_chats_become_share_gpt_and_pairs_are_ranked(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    turns = [{"role": "system", "content": "abc"}, {"role": "user", "content": "1+1="}]
    rows = [{"prompt": turns, "chosen": answer, "rejected": "3"} for answer in ("2", "2" * 2500)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = write_config(tmp_path, "dpo", data=str(data), passes=1)
    write_job(config, tmp_path / "job", "llamafactory")
    written = yaml.safe_load((tmp_path / "job" / "train.yaml").read_text())
    assert written["cutoff_len"] == 4096  # nothing is cut off
    row = json.loads((tmp_path / "job" / "train.json").read_text())[0]
    assert row == {
        "conversations": [{"from": "system", "value": "abc"}, {"from": "human", "value": "1+1="}],
        "chosen": {"from": "gpt", "value": "2"},
        "rejected": {"from": "gpt", "value": "3"},
    }
    entry = json.loads((tmp_path / "job" / "dataset_info.json").read_text())["train"]
    assert entry["ranking"] is True and entry["formatting"] == "sharegpt"


def test_a_warm_up_in_steps_and_weight_decay_reach_each_target(tmp_path: Path) -> None:
    settings = {"warmup_steps": 7, "weight_decay": 0.1, "learning_rate": 1e-5}
    config = write_config(
        tmp_path,
        "sft",
        passes=1,
        hyperparameters={**settings, "anneal_learning_rate": False, "average": "sequence"},
    )
    places = {"trl": "config.yaml", "verl": "job.yaml", "llamafactory": "train.yaml"}
    for target, name in places.items():
        facts = write_job(config, tmp_path / target, target)
        found = yaml.safe_load((tmp_path / target / name).read_text())
        if target == "verl":
            optim = found["optim"]
            assert (optim["lr_warmup_steps"], optim["weight_decay"], optim["lr"]) == (7, 0.1, 1e-5)
        else:
            assert {key: found[key] for key in settings} == settings
            assert found["lr_scheduler_type"] == "constant_with_warmup"
        assert list(facts["left_out"]) == ["average"]


def test_rloo_s_baseline_is_that_of_trls_trainer(tmp_path: Path) -> None:
    config = write_config(tmp_path, "rloo", steps=1000)
    facts = write_job(config, tmp_path / "job", "trl")
    assert facts["method"] == "RLOOTrainer" and "baseline" not in facts["left_out"]


def test_a_job_that_pays_no_rewards_imports_none(tmp_path: Path) -> None:
    reward = {"reward": "a_module_that_is_not_there:near"}
    config = write_config(tmp_path, "sft", passes=1, env_kwargs=reward)
    assert "train.jsonl" in write_job(config, tmp_path / "job", "trl")["files"]
    config = write_config(tmp_path, "grpo", steps=1000, env_kwargs=reward)
    with pytest.raises(RequestError, match="--allow-import"):
        write_job(config, tmp_path / "other", "trl")


def test_a_named_models_folder_is_referred_to_and_a_users_reward_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from rlbook.llm.models.sources import small_llama
    from rlbook.llm.tokenizers.tokenizer import character_tokenizer

    model = tmp_path / "small"
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(model)
    character_tokenizer().save_pretrained(model)
    (tmp_path / "job_rewards.py").write_text(
        "import math\n\nSCALE = 2.0\n\n\n"
        "def halves(completion):\n    return shrink(len(completion.text))\n\n\n"
        "def shrink(number):\n    return math.floor(number) / SCALE\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = write_config(
        tmp_path,
        "grpo",
        steps=1000,
        model=str(model),
        env_kwargs={"reward": {"halves": {"function": "job_rewards:halves", "weight": 2.0}}},
    )
    with pytest.raises(RequestError, match="allow"):
        write_job(config, tmp_path / "job", "trl")
    facts = write_job(config, tmp_path / "job", "trl", allow_import=True)
    assert "model/" not in facts["files"]
    assert repr(str(model)) in (tmp_path / "job" / "train.py").read_text().replace('"', "'")
    sys.modules.pop("job_rewards")
    (tmp_path / "job_rewards.py").unlink()
    module = load_module(tmp_path / "job" / "rewards.py")
    ids = module.RULES.tokenizer.encode("123", add_special_tokens=False).ids
    found = module.FUNCTIONS[0](
        prompts=["1+2="], completions=["123"], completion_ids=[ids], question=["1+2="], answer=["3"]
    )
    assert found == [1.5] and module.WEIGHTS == [2.0]


@pytest.mark.parametrize("target", ["trl", "verl"])
def test_a_reward_in_another_signature_is_copied_without_this_package(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signatures.py").write_text(
        "def lengths(completions, **_):\n    return [float(len(text)) for text in completions]\n\n\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': float(solution_str == ground_truth), 'more': 1.0}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    reward = {
        "verl:signatures:compute_score": {"manager": "prime", "jobs": 1},
        "trl:signatures:lengths": 0.5,
    }
    config = write_config(tmp_path, "grpo", steps=1000, env_kwargs={"reward": reward})
    write_job(config, tmp_path / "job", target, allow_import=True)
    assert "by threads, not by processes" in (tmp_path / "job" / "README.md").read_text()
    asked = {
        "verl": "rewards.compute_score('sums', '46', '46', {})",
        "trl": "[function(prompts=['12+34='], completions=['46'], completion_ids="
        "[rewards.RULES.tokenizer.encode('46', add_special_tokens=False).ids], question=['12+34='], answer=['46'])"
        " for function in rewards.FUNCTIONS]",
    }[target]
    alone = (
        "import json, sys\nsys.modules.update(rlbook=None, cloudpickle=None)\n"
        f"import rewards\nprint(json.dumps({asked}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", alone], cwd=tmp_path / "job", capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    wanted = {
        "verl": {"score": 2.0, "compute_score": 1.0, "lengths": 2.0},
        "trl": [[1.0], [2.0]],
    }
    assert json.loads(said.stdout) == wanted[target]


def test_a_new_reward_models_tokens_are_those_of_the_tokenizer_beside_it(tmp_path: Path) -> None:
    """The model of LLaMA-Factory's job had one token a character, whatever the tokenizer."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "1+2=", "chosen": "3", "rejected": "4"}\n' * 4)
    env_kwargs = {"tokenizer": "bpe", "vocab_size": 300}
    config = write_config(tmp_path, "reward_model", steps=2, data=str(pairs), env_kwargs=env_kwargs)
    write_job(config, tmp_path / "job", "llamafactory")
    settings = json.loads((tmp_path / "job" / "model" / "config.json").read_text())
    tokenizer = json.loads((tmp_path / "job" / "tokenizer" / "tokenizer.json").read_text())
    added = {entry["content"] for entry in tokenizer["added_tokens"]}
    assert settings["vocab_size"] == len(tokenizer["model"]["vocab"].keys() | added)


def test_a_reward_model_of_a_run_goes_with_the_job(tmp_path: Path) -> None:
    import rlbook

    judge = tmp_path / "judge"
    rlbook.train("reward_model", "Addition-v0", steps=1, out=judge, quiet=True)
    settings = {"critic_start": "reward_model"}
    config = write_config(
        tmp_path, "ppo", steps=1000, reward_model=str(judge), hyperparameters=settings
    )
    facts = write_job(config, tmp_path / "job", "verl")
    found = yaml.safe_load((tmp_path / "job" / "job.yaml").read_text())
    assert found["reward"]["reward_model"]["model_path"] == "${oc.env:JOB}/reward_model"
    assert found["critic"]["model"]["path"] == "${oc.env:JOB}/reward_model"
    assert "rewards.py" not in facts["files"] and "custom_reward_function" not in found["reward"]
    written = json.loads((tmp_path / "job" / "reward_model" / "config.json").read_text())
    assert written["architectures"] == ["LlamaForSequenceClassification"]


@pytest.mark.thorough
def test_the_presets_come_back_as_verls_own_settings(tmp_path: Path) -> None:
    """GSM8K's and the DAPO-like run: batches in prompts, micro-batches in completions."""
    rows = [{"question": "12+34=", "answer": "#### 46"}, {"question": "50+27=", "answer": "77"}]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows * 10))
    small_limits = {"max_prompt_tokens": 512, "max_new_tokens": 1024}
    found = {}
    for name in ("gsm8k", "dapo"):
        preset = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
        preset["env_kwargs"] |= {"data": str(data), **small_limits}
        preset.setdefault("steps" if "episodes" not in preset else "episodes", 1_000_000)
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(preset))
        write_job(tmp_path / "config.yaml", tmp_path / name, "verl")
        found[name] = yaml.safe_load((tmp_path / name / "job.yaml").read_text())
    data_, parts = found["gsm8k"]["data"], found["gsm8k"]["actor_rollout_ref"]
    assert (data_["train_batch_size"], parts["rollout"]["n"]) == (1024, 4)
    assert (data_["max_prompt_length"], data_["max_response_length"]) == (512, 1024)
    actor = parts["actor"]
    assert (actor["ppo_mini_batch_size"], actor["ppo_micro_batch_size_per_gpu"]) == (256, 1)
    assert (actor["use_kl_loss"], actor["kl_loss_coef"]) == (True, 0.001)
    assert (actor["kl_loss_type"], actor["entropy_coeff"]) == ("low_var_kl", 0.0)
    assert actor["optim"]["lr"] == 1e-6
    assert found["gsm8k"]["trainer"]["total_training_steps"] == 105  # 15 passes of 7 steps
    data_, parts = found["dapo"]["data"], found["dapo"]["actor_rollout_ref"]
    assert (data_["train_batch_size"], parts["rollout"]["n"]) == (32, 8)
    assert data_["truncation"] == "left"
    actor = parts["actor"]
    assert (actor["ppo_mini_batch_size"], actor["ppo_micro_batch_size_per_gpu"]) == (16, 4)
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"]) == (0.2, 0.28)
    assert (actor["clip_ratio_c"], actor["loss_agg_mode"]) == (10.0, "token-mean")
    assert (actor["optim"]["lr_warmup_steps"], actor["optim"]["weight_decay"]) == (10, 0.1)
    assert actor["optim"]["clip_grad"] == 1.0
    rewards = (tmp_path / "dapo" / "rewards.py").read_text()
    assert "partial(overlong, buffer=1024, factor=1.0)" in rewards


def test_a_job_for_a_named_model_loads_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of seven billion parameters is exported on a laptop."""
    import torch

    from rlbook.llm.models.sources import small_llama
    from rlbook.llm.tokenizers.tokenizer import character_tokenizer

    model = tmp_path / "small"
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(model)
    character_tokenizer().save_pretrained(model)
    (model / "model.safetensors").write_bytes(b"not to be read")
    for algorithm, target in (("grpo", "trl"), ("grpo", "verl"), ("sft", "llamafactory")):
        budget: dict[str, Any] = {"passes": 1} if algorithm == "sft" else {"steps": 1000}
        config = write_config(tmp_path, algorithm, model=str(model), **budget)
        write_job(config, tmp_path / f"{algorithm}-{target}", target)


def test_a_sandbox_goes_along_with_the_reward_that_runs_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isolation_works():
        pytest.skip("programs are isolated on Linux on x86-64 alone")
    data = tmp_path / "rows.jsonl"
    rows = [{"question": "print(3)", "answer": "3"}, {"question": "print(5)", "answer": "5"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = {"code": {"seconds": 2.0}, "repetition": 0.1}
    arguments = {"data": str(data), "reward": reward}
    config = write_config(tmp_path, "grpo", env="Chat-v0", steps=1000, env_kwargs=arguments)
    facts = write_job(config, tmp_path / "job", "trl", allow_import=True)
    assert facts["files"]["program.py"] == "what the rewards run"
    assert facts["files"]["train.jsonl"] == "1 row"
    monkeypatch.syspath_prepend(str(tmp_path / "job"))
    module = load_module(tmp_path / "job" / "rewards.py")
    sys.modules.pop("program", None)
    encode = module.RULES.tokenizer.encode
    ids = [[*encode(text, add_special_tokens=False).ids, 2] for text in ("print(3)", "print(5)")]
    columns = {"question": ["print(3)"] * 2, "answer": ["3"] * 2}
    found = module.FUNCTIONS[0](
        prompts=["print(3)"] * 2, completions=["", ""], completion_ids=ids, **columns
    )
    assert found == [1.0, 0.0]


@pytest.mark.parametrize("size", [64, 16, 12])
def test_eight_gpus_take_the_step_of_one_or_the_readme_says_that_they_do_not(
    size: int, tmp_path: Path
) -> None:
    settings = {"batch_size": size, "micro_batch_size": 4}
    config = write_config(tmp_path, "sft", passes=1, hyperparameters=settings)
    write_job(config, tmp_path / "job", "trl")
    text = (tmp_path / "job" / "README.md").read_text()
    here, steps = (
        int(text.partition(f"--{name} ")[2].split()[0].strip("`"))
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
    )
    told = "on 8 GPUs a step has 8 rows, and here 12, which 8 does not divide" in text
    assert told == (8 * here * steps != size) and told == (size == 12)


def test_losses_without_a_reference_are_written_for_trls_experimental_trainers(
    tmp_path: Path,
) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n' * 2)
    for name, package, kind, settings in (
        ("orpo", "trl.experimental.orpo", "ORPO", {"beta": 0.1, "max_length": 4096}),
        (
            "simpo",
            "trl.experimental.cpo",
            "CPO",
            {"loss_type": "simpo", "simpo_gamma": 0.5, "cpo_alpha": 0.0},
        ),
    ):
        (tmp_path / name).mkdir()
        given = {"preference_loss": name, "nll_coef": 1.0 if name == "orpo" else 0.0}
        config = write_config(
            tmp_path / name, "dpo", data=str(data), passes=1, hyperparameters=given
        )
        facts = write_job(config, tmp_path / f"job-{name}", "trl")
        script = (tmp_path / f"job-{name}" / "train.py").read_text()
        assert (
            f"\nfrom trl import TrlParser\nfrom {package} import {kind}Config, {kind}Trainer\n"
            in script
        )
        compile(script, "train.py", "exec")
        written = yaml.safe_load((tmp_path / f"job-{name}" / "config.yaml").read_text())
        assert settings.items() <= written.items() and facts["left_out"] == {}
        assert facts["method"] == f"{kind}Trainer"
