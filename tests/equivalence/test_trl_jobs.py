"""A job for TRL trains there, and its first step is the run's: the same loss and the same gradient
on the same rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from closeness import near, widths

from rlbook.agent import Step
from rlbook.algorithms.policy.grpo import grpo_loss, grpo_rows
from rlbook.data.rollout import Batch
from rlbook.functional.advantages import group_advantage
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.recipes.jobs.write_job import write_job
from rlbook.runs.request import Request
from rlbook.runs.run import Run

trl = pytest.importorskip("trl", reason="trl is in the extra [peers]")
pytestmark = [  # importing TRL takes five seconds
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]
SHORT = ["--max_steps", "2", "--use_cpu", "true", "--save_strategy", "no", "--disable_tqdm", "true"]


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    yield
    sys.modules.pop("rewards", None)


def write_config(folder: Path, algorithm: str, env: str = "Addition-v0", **entries: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"algorithm": algorithm, "env": env, **entries}))
    return path


def train(job: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
    """Runs a job's train.py for two steps; what its trainer computed losses of, and the trainer."""
    monkeypatch.syspath_prepend(str(job))
    spec = importlib.util.spec_from_file_location("train", job / "train.py")
    assert spec is not None and spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    seen: list[Any] = []

    class Recording(getattr(script, f"{kind}Trainer")):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            seen.append((found, 0.0))  # before it shuffles the groups' completions
            return found

        def compute_loss(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            copies = {
                name: value.clone() if hasattr(value, "clone") else value
                for name, value in inputs.items()
            }
            loss = super().compute_loss(model, inputs, *rest, **more)
            shown = loss[0] if isinstance(loss, tuple) else loss
            seen.append((copies, float(shown)))
            return loss

    monkeypatch.setattr(script, f"{kind}Trainer", Recording)
    never = ["--eval_strategy", "no", "--output_dir", str(job / "output")]
    return seen, script.main([*SHORT, *never])


def play_again(run: Run, tokens: Any) -> tuple[Batch, Any]:
    """The completions that TRL has sampled, as our agent would have played them: the rows of a
    round with their advantages, and the config."""
    agent: Any = run.agent
    prompts = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(tokens["prompt_ids"], tokens["prompt_mask"], strict=True)
    ]
    completions = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(tokens["completion_ids"], tokens["completion_mask"], strict=True)
    ]
    env: Any = run.request.recipe.make_native_vector(len(prompts))
    rules = env.rules
    places = {tuple(rules.prompt_ids(i).tolist()): i for i in range(len(rules.texts))}
    chosen = [places[tuple(prompt)] for prompt in prompts]
    log_prob = np.zeros((max(map(len, completions)), len(prompts)), np.float32)
    for sampled in (False, True):  # first without the log-probabilities, which need the whole round
        obs, _ = env.reset(seed=0, options={"prompt_id": chosen})
        ended = np.zeros(len(prompts), bool)
        agent.rollout_data.clear()
        for t in range(len(log_prob)):
            action = np.array([row[t] if t < len(row) else 0 for row in completions])
            after, reward, terminated, truncated, _ = env.step(action)
            step = Step(obs, action, reward, after, terminated, truncated, ~ended)
            agent.rollout_data.add(step, log_prob[t])
            obs, ended = after, ended | terminated | truncated
        assert ended.all()
        if not sampled:
            batch = agent.policy.batch(agent.rollout_data, "episode")
            with torch.no_grad():
                log_prob = agent.policy.evaluate(batch, entropy=False)[0].T.numpy()
    rows, _ = grpo_rows(agent.policy, agent.rollout_data, agent.settings, agent.reference)
    assert rows is not None
    return rows, agent.settings


GROUPS: dict[str, dict[str, Any]] = {
    "GRPO": {"hyperparameters": {"group_size": 4}},
    "a KL penalty and sequences": {
        "hyperparameters": {"kl_coef": 0.04, "average": "sequence", "clip_high": 0.28}
    },
    "two rewards": {"env_kwargs": {"reward": {"correct": 1.0, "length": 0.3, "edit": 0.5}}},
}


@pytest.mark.parametrize("name", GROUPS)
def test_grpo_trains_in_trl_with_the_first_loss_and_gradient_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, "grpo", num_envs=32, steps=1000, **GROUPS[name])
    write_job(config, tmp_path / "job", "trl")
    seen, trainer = train(tmp_path / "job", "GRPO", monkeypatch)
    (tokens, _), (_, loss) = seen[:2]
    run = Run(Request.from_yaml(config.read_text()))
    rows, settings = play_again(run, tokens)
    assert rows.advantage is not None and rows.advantage.abs().max() > 0.1
    agent: Any = run.agent
    terms, size = widths(agent.policy.model), float(rows.advantage.abs().max())
    numbers: dict[str, Any] = {"dtype": "float32", "terms": terms, "size": size}
    advantages = tokens["advantages"].view(len(rows), -1)[:, 0].tolist()
    assert rows.advantage[:, 0].tolist() == near(advantages, **numbers)
    rows.weight = settings.averaging()(rows.mask)
    ours = grpo_loss(agent.policy, rows, config=settings).loss
    assert float(ours) == near(loss, **numbers)
    norm = agent.update(rows)["grad_norm"]
    logged = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    assert len(logged) == 2
    assert norm == near(logged[0]["grad_norm"], dtype="float32", terms=terms, size=32 * size * norm)
    assert norm > 0.1


RLOO = {"group_size": 4}
PAIRS = [
    {"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 10)}
    for a, b in [(12, 34), (50, 27), (33, 61), (45, 45)]
]


def rows_file(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rloo_trains_in_trl_with_the_first_loss_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, "rloo", num_envs=32, steps=1000, hyperparameters=RLOO)
    write_job(config, tmp_path / "job", "trl")
    seen, _ = train(tmp_path / "job", "RLOO", monkeypatch)
    (tokens, _), (_, loss) = seen[:2]
    run = Run(Request.from_yaml(config.read_text()))
    rows, settings = play_again(run, tokens)
    agent: Any = run.agent
    numbers: dict[str, Any] = {"dtype": "float32", "terms": widths(agent.policy.model), "size": 1.0}
    assert rows.advantage is not None and rows.advantage.abs().max() > 0.1
    assert rows.advantage[:, 0].tolist() == near(tokens["advantages"].tolist(), **numbers)
    rows.weight = settings.averaging()(rows.mask)
    assert float(grpo_loss(agent.policy, rows, config=settings).loss) == near(loss, **numbers)


def test_supervised_learning_has_the_first_loss_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows in one batch, so that the order does not matter."""
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS]
    config = write_config(
        tmp_path, "sft", data=rows_file(tmp_path, rows), passes=2, hyperparameters={"batch_size": 4}
    )
    write_job(config, tmp_path / "job", "trl")
    seen, trainer = train(tmp_path / "job", "SFT", monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    ours = next(agent.fit(run.data_source()))
    terms = widths(agent.policy.model)
    assert seen[0][1] == near(ours["loss"], dtype="float32", terms=terms)
    norm = trainer.state.log_history[0]["grad_norm"]
    assert norm == near(ours["grad_norm"], dtype="float32", terms=terms, size=4 * norm)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"preference_loss": "hinge", "beta": 0.3},
        {"preference_loss": "ipo", "per_step": True},
        {"nll_coef": 0.0},
        {"preference_loss": "robust", "label_smoothing": 0.1},
        {"per_step": True},
    ],
)
def test_dpo_has_the_second_loss_of_the_run(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is ln 2 for any pair, since policy and reference are the same; the second, after a
    step on all pairs, is not."""
    hyperparameters = {"batch_size": 4, "learning_rate": 1e-4, "group_size": 2, **settings}
    config = write_config(
        tmp_path,
        "dpo",
        data=rows_file(tmp_path, PAIRS),
        passes=2,
        hyperparameters={"anneal_learning_rate": False, **hyperparameters},
    )
    write_job(config, tmp_path / "job", "trl")
    seen, _ = train(tmp_path / "job", "DPO", monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    coef = agent.config.nll_coef  # which the preset sets
    fitted = agent.fit(run.data_source())
    steps = [next(fitted) for _ in range(2)]
    losses = [step["preference_loss"] + coef * step["nll"] for step in steps]

    terms = widths(agent.policy.model)
    assert [loss for _, loss in seen][:1] == near(losses[:1], dtype="float32", terms=terms)
    assert seen[1][1] == near(losses[1], dtype="float32", terms=terms, size=10.0)
    assert losses[1] < losses[0]


def test_a_reward_model_has_the_losses_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(
        tmp_path,
        "reward_model",
        data=rows_file(tmp_path, PAIRS),
        passes=2,
        hyperparameters={
            "batch_size": 4,
            "held_out": 0.0,
            "learning_rate": 1e-4,
            "center_coef": 0.1,
        },
    )
    write_job(config, tmp_path / "job", "trl")
    seen, _ = train(tmp_path / "job", "Reward", monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    fitted = agent.fit(run.data_source())
    losses = [next(fitted)["loss"] for _ in range(2)]

    terms = widths(agent.network)
    assert [loss for _, loss in seen] == near(losses, dtype="float32", terms=terms, size=10.0)


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)


def chat_folder(folder: Path) -> Path:
    """A small model of random weights whose chat template has a generation prompt."""
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(folder)
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def test_a_chat_trains_in_trl_with_its_template_system_text_and_shots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": f"{a}+{b}", "answer": str(a + b)} for a in range(20, 30) for b in (30, 41)]
    model = chat_folder(tmp_path / "model")
    config = write_config(
        tmp_path,
        "grpo",
        env="Chat-v0",
        num_envs=16,
        steps=2000,
        model=str(model),
        env_kwargs={
            "data": rows_file(tmp_path, rows),
            "system": "abc",
            "shots": 1,
            "max_new_tokens": 5,
            "reward": {"edit": 1.0, "length": 0.1},
        },
        hyperparameters={"group_size": 4},
    )
    facts = write_job(config, tmp_path / "job", "trl")
    assert "model/" not in facts["files"] and str(model) in (tmp_path / "job/train.py").read_text()
    row = json.loads((tmp_path / "job/train.jsonl").read_text().splitlines()[0])
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "user"]
    seen, _ = train(tmp_path / "job", "GRPO", monkeypatch)
    (tokens, _), (_, loss) = seen[:2]
    run = Run(Request.from_yaml(config.read_text()))
    played, settings = play_again(run, tokens)
    agent: Any = run.agent
    numbers: dict[str, Any] = {"dtype": "float32", "terms": widths(agent.policy.model), "size": 2.0}
    assert played.advantage is not None and played.advantage.abs().max() > 0.1
    assert played.advantage[:, 0].tolist() == near(tokens["advantages"].tolist(), **numbers)
    played.weight = settings.averaging()(played.mask)
    assert float(grpo_loss(agent.policy, played, config=settings).loss) == near(loss, **numbers)


def test_an_adapter_trains_in_trl_from_the_model_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(
        tmp_path,
        "sft",
        data=rows_file(
            tmp_path, [{"prompt": r["prompt"], "completion": r["chosen"]} for r in PAIRS]
        ),
        passes=2,
        model={"adapter": {"r": 4, "lora_alpha": 8}},
        hyperparameters={"batch_size": 4},
    )
    write_job(config, tmp_path / "job", "trl")
    seen, trainer = train(tmp_path / "job", "SFT", monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    ours = next(agent.fit(run.data_source()))
    assert seen[0][1] == near(ours["loss"], dtype="float32", terms=widths(agent.policy.model))
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    assert trained == sum(p.numel() for p in agent.policy.parameters() if p.requires_grad)


def test_a_reward_model_pays_in_trl_what_it_pays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rlbook

    rlbook.train(
        "reward_model",
        "Addition-v0",
        steps=4,
        learning_rate=3e-3,
        out=tmp_path / "judge",
        quiet=True,
    )
    config = write_config(
        tmp_path,
        "grpo",
        num_envs=16,
        steps=2000,
        reward_model=str(tmp_path / "judge"),
        hyperparameters={"group_size": 4},
    )
    write_job(config, tmp_path / "job", "trl")
    seen, trainer = train(tmp_path / "job", "GRPO", monkeypatch)
    (tokens, _), _ = seen[:2]
    run = Run(Request.from_yaml(config.read_text()))
    rows, _ = play_again(run, tokens)
    judge: Any = rlbook.load(tmp_path / "judge").agent
    with torch.no_grad():
        paid = judge.network.rewards(rows).sum(1)
    advantages = group_advantage(paid, 4)
    numbers: dict[str, Any] = {"dtype": "float32", "terms": widths(judge.network), "size": 20.0}
    assert paid.std() > 0.01 and advantages.abs().max() > 0.1
    assert advantages.tolist() == near(tokens["advantages"].tolist(), **numbers)
    logged = trainer.state.log_history[0]
    assert logged["rewards/model/mean"] == near(float(paid.mean()), **numbers)


def test_kto_has_the_first_loss_and_gradient_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policy and reference are the same at first, so that the loss is ½ for any answer, and its
    gradient the difference of the good answers' and the bad answers'."""
    rows = [
        {"prompt": row["prompt"], "completion": row[kind], "label": kind == "chosen"}
        for row in PAIRS
        for kind in ("chosen", "rejected")
    ]
    settings = {"preference_loss": "kto", "batch_size": 8, "nll_coef": 0.0, "good_weight": 1.5}
    config = write_config(
        tmp_path, "dpo", data=rows_file(tmp_path, rows), passes=2, hyperparameters=settings
    )
    facts = write_job(config, tmp_path / "job", "trl")
    assert facts["method"] == "KTOTrainer" and facts["left_out"] == {}
    seen, trainer = train(tmp_path / "job", "KTO", monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    ours = next(agent.fit(run.data_source()))
    terms = widths(agent.policy.model)
    assert seen[0][1] == near(ours["preference_loss"], dtype="float32", terms=terms)
    norm = trainer.state.log_history[0]["grad_norm"]
    assert norm == near(ours["grad_norm"], dtype="float32", terms=terms, size=8 * norm)
    assert norm > 0.001


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ORPO", {"preference_loss": "orpo", "nll_coef": 1.0, "beta": 0.3}),
        ("CPO", {"preference_loss": "simpo", "nll_coef": 0.0, "beta": 2.0, "simpo_margin": 1.0}),
    ],
)
def test_losses_without_a_reference_train_in_trls_experimental_trainers(
    kind: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss on the pairs is ours; TRL's likelihood of the better answer has its prompt in it."""
    given = {"batch_size": 4, "learning_rate": 1e-4, "group_size": 2, **settings}
    config = write_config(
        tmp_path, "dpo", data=rows_file(tmp_path, PAIRS), passes=2, hyperparameters=given
    )
    facts = write_job(config, tmp_path / "job", "trl")
    assert facts["method"] == f"{kind}Trainer" and facts["left_out"] == {}
    seen, trainer = train(tmp_path / "job", kind, monkeypatch)
    run = Run(Request.from_yaml(config.read_text()))
    agent: Any = run.agent
    ours = next(agent.fit(run.data_source()))
    theirs = seen[0][1] - trainer.state.log_history[0].get("nll_loss", 0.0) * settings["nll_coef"]
    terms = widths(agent.policy.model)
    assert theirs == near(ours["preference_loss"], dtype="float32", terms=terms, size=10.0)
    assert ours["preference_loss"] > 0.01
