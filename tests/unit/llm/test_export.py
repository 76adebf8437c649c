"""What `rlbook export` writes is loaded by transformers and peft, and says what the run says."""

from __future__ import annotations

import io
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, rounding_bound, widths

import rlbook
from rlbook.cli.main import main
from rlbook.cli.output import next_commands
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.llm.generation.generate import generate
from rlbook.llm.models.adapters import adapter_weights
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.plots import inspect, watch
from rlbook.recipes.jobs.write_job import write_job
from rlbook.runs.exporting import export
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.serving import open_served_model
from rlbook.runs.storage.checkpoints import latest_step

SHORT: dict[str, Any] = {
    "steps": 4,
    "batch_size": 16,
    "eval_every": 0,
    "seed": 0,
    "learning_rate": 0.02,
}
LORA = {"adapter": {"r": 2, "use_dora": True}}


def taught(folder: Path, **options: Any) -> Path:
    rlbook.train("sft", "Addition-v0", out=folder, **(SHORT | options))
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught(tmp_path_factory.mktemp("runs") / "plain")


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught(tmp_path_factory.mktemp("runs") / "lora", model=LORA)


@pytest.fixture
def loaded() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM, transformers.AutoTokenizer


IDS = torch.tensor([[1, 5, 7, 14, 8, 9, 15], [1, 6, 6, 14, 4, 2, 11]])


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_what_asks_for_no_reward_imports_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_reward.py").write_text("def short(completion):\n    return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"episodes": 8, "num_envs": 8, "eval_every": 0, "quiet": True}
    reward = {"my_own_reward:short": 1.0, "code": 0.1}
    folder = tmp_path / "run"
    own: dict[str, Any] = {"env_kwargs": {"reward": reward}, "allow_import": True, "out": folder}
    steps = rlbook.train("grpo", "Addition-v0", **own, **options).steps
    told = taught(tmp_path / "told", env_kwargs={"reward": reward}, allow_import=True)
    (tmp_path / "my_own_reward.py").unlink()
    del sys.modules["my_own_reward"]
    assert export(folder, tmp_path / "model")["kind"] == "model"
    assert open_served_model(folder).name == "run"
    assert rlbook.train("grpo", "Addition-v0", start=folder, **options).steps > 0
    other: dict[str, Any] = {"env_kwargs": {"reward": "edit"}, "episodes": 8}
    assert len(rlbook.evaluate(folder, **other).returns) == 8
    assert main(["evaluate", str(folder), "--env.reward", "edit", "--episodes", "8"]) == 0
    assert len(rlbook.evaluate(folder, episodes=8).returns) == 8  # of right answers, as by default
    assert watch(folder, episodes=1, stream=io.StringIO())
    assert main(["doctor", str(folder)]) == 0
    job = write_job(told, tmp_path / "told_job", "trl", checkpoint=latest_step(told))
    assert job["method"] == "SFTTrainer"
    chat = EnvRecipe.from_env("Chat-v0", kwargs={"reward": "my_own_reward:short"})
    for asks in (
        chat.for_evaluation,  # which has the reward of training by default
        lambda: inspect(folder, tmp_path / "page.html", 1),
        lambda: write_job(folder, tmp_path / "job", "trl", checkpoint=steps),
    ):
        with pytest.raises(RequestError, match=r"would import the module 'my_own_reward'; .*allow"):
            asks()


@pytest.mark.thorough
def test_a_model_comes_with_tokenizer_template_and_generation_config(
    plain: Path, tmp_path: Path, loaded: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    facts = export(plain, tmp_path / "model")
    assert capfd.readouterr().err == ""  # no bar of transformers' for the writing of the weights
    model, tokenizer = (kind.from_pretrained(tmp_path / "model") for kind in loaded)
    policy: Any = rlbook.load(plain).agent.policy  # type: ignore[attr-defined]
    terms, other = widths(policy.model), logits(small_llama(torch.Generator()))
    assert_near(logits(model), logits(policy.model), terms=terms)
    assert (logits(model) - other).abs().max() > 0.01
    assert facts["kind"] == "model" and facts["parameters"] == sum(
        p.numel() for p in model.parameters()
    )
    chat = [{"role": "user", "content": "12+34="}]
    assert (
        tokenizer("12+34=").input_ids
        == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    )
    prompt = np.array([tokenizer("12+34=").input_ids])
    ours = generate(
        policy, prompt, np.array([prompt.shape[1]]), eos=tokenizer.eos_token_id, max_new_tokens=5
    )
    theirs = model.generate(torch.from_numpy(prompt))[0, prompt.shape[1] :]
    assert theirs.tolist() == ours.tokens[0][ours.mask[0]].tolist()
    again = rlbook.load(plain).request.recipe.make()
    assert (
        rlbook.make("Addition-v0", model=str(tmp_path / "model")).unwrapped.codec.eos
        == again.unwrapped.codec.eos
    )  # type: ignore[attr-defined]


def test_weights_in_several_files_are_the_same_model(
    plain: Path, tmp_path: Path, loaded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(plain), str(tmp_path / "shards"), "--shard-size", "200KB"]) == 0
    assert "model of 134,720 parameters in 4 files in " in capsys.readouterr().out
    files = sorted((tmp_path / "shards").glob("*.safetensors"))
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    assert len(files) == 4 and {file.name for file in files} == {*index["weight_map"].values()}
    assert all(file.stat().st_size < 210_000 for file in files)
    export(plain, tmp_path / "whole")
    shards, whole = (loaded[0].from_pretrained(tmp_path / name) for name in ("shards", "whole"))
    assert torch.equal(logits(shards), logits(whole))


@pytest.mark.parametrize("size", ["500", "0MB", "many", "-1GB"])
def test_a_size_without_a_meaning_is_refused(size: str, plain: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"such as 500MB or 2GB, got '"):
        export(plain, tmp_path / "shards", shard_size=size)
    assert not list(tmp_path.iterdir())


def test_an_adapter_comes_alone_with_the_built_in_model_beside_it(
    lora: Path, tmp_path: Path, loaded: Any
) -> None:
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    facts = export(lora, tmp_path / "adapter")
    policy: Any = rlbook.load(lora).agent.policy  # type: ignore[attr-defined]
    assert facts["kind"] == "adapter" and facts["base"] == str(tmp_path / "adapter" / "base")
    assert facts["parameters"] == sum(
        weight.numel() for weight in adapter_weights(policy.model).values()
    )
    assert {path.name for path in (tmp_path / "adapter").glob("adapter_*")} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.PeftModel.from_pretrained(
            loaded[0].from_pretrained(facts["base"]), str(tmp_path / "adapter")
        )
    terms = widths(policy.model)
    assert_near(logits(model), logits(policy.model), terms=terms)
    assert (
        logits(loaded[0].from_pretrained(facts["base"])) - logits(policy.model)
    ).abs().max() > 0.01
    export(lora, tmp_path / "merged", merge=True)
    merged = loaded[0].from_pretrained(tmp_path / "merged")
    assert_near(logits(merged), logits(policy.model), terms=terms)
    further = taught(
        tmp_path / "further",
        model={"adapter": str(tmp_path / "adapter")},
        steps=1,
        learning_rate=1e-12,
    )
    taught_further: Any = rlbook.load(further).agent
    assert_near(logits(taught_further.policy.model), logits(policy.model), terms=terms)


def test_a_folder_s_adapter_names_the_folder(tmp_path: Path) -> None:
    small_llama(torch.Generator().manual_seed(3), hidden_size=16, feed_forward=16).save_pretrained(
        tmp_path / "small"
    )
    character_tokenizer().save_pretrained(tmp_path / "small")
    spec = {"folder": str(tmp_path / "small"), "adapter": {"r": 2}}
    facts = export(taught(tmp_path / "run", model=spec), tmp_path / "out")
    assert facts["base"] == str(tmp_path / "small") and not (tmp_path / "out" / "base").exists()
    assert (
        json.loads((tmp_path / "out" / "adapter_config.json").read_text())[
            "base_model_name_or_path"
        ]
        == facts["base"]
    )


@pytest.mark.parametrize("spec", [None, LORA])
def test_a_reward_model_is_a_classifier_of_one_label(spec: Any, tmp_path: Path) -> None:
    """Texts of several lengths in one padded batch; the score is read behind each one's last
    token."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    pairs = [
        {"prompt": f"1{i}+2{i}=", "chosen": str(30 + 2 * i), "rejected": "7"} for i in range(5)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    options: dict[str, Any] = {
        "data": tmp_path / "pairs.jsonl",
        "passes": 3,
        "learning_rate": 0.02,
        "held_out": 0.0,
        "seed": 0,
    }
    run = rlbook.train("reward_model", "Addition-v0", model=spec, out=tmp_path / "run", **options)
    if spec is not None:
        with pytest.raises(RequestError, match="a reward model is exported whole: give --merge"):
            export(tmp_path / "run", tmp_path / "out")
    assert (
        export(tmp_path / "run", tmp_path / "out", merge=spec is not None)["kind"] == "reward model"
    )
    model: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["1+2=3<eos>", "12+34=46<eos>", "12+34=7<eos>", "99+99="]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = model(**batch).logits
    seen = {"tokens": batch.input_ids, "length": batch.attention_mask.sum(1)}
    network: Any = run.agent.network  # type: ignore[attr-defined]
    ours = (
        network.step_rewards(seen, batch.input_ids[:, 0], seen, torch.ones(4, dtype=torch.bool))
        .detach()
        .numpy()
    )
    terms = widths(network)
    assert_near(theirs, ours[:, None], terms=terms)
    assert np.ptp(ours) > 10 * rounding_bound(
        "float32", terms=terms, size=float(np.abs(ours).max())
    )


def test_what_cannot_be_exported_is_one_sentence_and_nothing_is_written(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train("q_learning", "Maze-v0", steps=10, out=tmp_path / "maze")
    (tmp_path / "there").mkdir()
    capsys.readouterr()
    for words, sentence in (
        (
            (str(tmp_path / "maze"), "m"),
            (
                "holds q_learning on Maze-v0, but only a language model trained on a token"
                " environment can be exported"
            ),
        ),
        ((str(plain), str(tmp_path / "there")), "there exists already; name a new folder"),
        (
            (str(plain), str(tmp_path / "m"), "--merge"),
            "merge adds an adapter to the model, and this run trained none",
        ),
        ((str(tmp_path / "none"), str(tmp_path / "m")), "none"),
        ((str(plain), str(tmp_path / "m"), "--mergee"), "did you mean '--merge'"),
        ((str(plain),), "OUT the folder to write"),
    ):
        assert main(["export", *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said and said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"maze", "there"}
    shutil.rmtree(tmp_path / "maze")


def test_after_a_reward_model_the_command_line_suggests_what_works() -> None:
    judges, pays, exports, plots = suggested(
        "reward_model", "Addition-v0", env_kwargs={"digits": 2}
    )
    assert (
        pays == "rlbook train ppo Addition-v0 --env.digits 2 --reward-model runs/r"
        and exports == "rlbook export runs/r runs/r-model"
    )
    assert judges == "rlbook evaluate runs/r" and plots == "rlbook plot runs/r"
    assert suggested("reward_model", "Maze-v0") == [
        judges,
        "rlbook train ppo Maze-v0 --reward-model runs/r",
        plots,
    ]
    assert suggested("grpo", "Maze-v0") == ["rlbook evaluate runs/r", "rlbook watch runs/r", plots]


def suggested(algorithm: str, env: str, **options: Any) -> list[str]:
    return next_commands(Run(Request.build(algorithm, env, **options)), Path("runs/r"))


@pytest.mark.parametrize("sizes", [None, {"hidden_size": 32, "num_attention_heads": 2}])
def test_an_exported_model_reads_the_texts_of_its_own_environment(
    sizes: dict[str, int] | None, tmp_path: Path
) -> None:
    """The small model said that it reads 64 tokens, so that its own environment, and other programs,
    refused its folder."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"prompt": "plural of {"ab" * i}: ", "answer": "{i}"}}\n' for i in range(20))
    )
    asked: dict[str, Any] = {"data": str(rows), "tokenizer": "bpe"}
    out: dict[str, Any] = {"model": sizes, "out": tmp_path / "run", "quiet": True}
    rlbook.train("sft", "Chat-v0", env_kwargs=asked, steps=1, eval_every=0, **out)
    env: Any = rlbook.make("Chat-v0", **asked).unwrapped
    assert env.rules.context_length > 64
    export(tmp_path / "run", tmp_path / "model")
    again: Any = rlbook.make("Chat-v0", data=str(rows), model=str(tmp_path / "model")).unwrapped
    assert again.rules.context_length == env.rules.context_length == again.codec.limit
