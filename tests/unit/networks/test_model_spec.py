"""What a user may say about the model behind an agent, and what is built from it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlbook
from rlbook.errors import RequestError
from rlbook.llm.models.build import language_model
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.networks.build import PolicySettings, build_policy
from rlbook.networks.model_spec import ModelSpec
from rlbook.networks.policy import Policy, load_saved, saved_tensors
from rlbook.runs.request import Request
from rlbook.runs.run import Run

LORA = {"r": 2, "target_modules": ["q_proj", "up_proj"]}
SHORT: dict[str, Any] = {"steps": 40, "num_envs": 4, "eval_every": 0}


def addition(**kwargs: Any) -> Any:
    return rlbook.make("Addition-v0", **kwargs)


def model_of(spec: ModelSpec, seed: int = 0, **kwargs: Any) -> Any:
    return language_model(addition(**kwargs), np.random.default_rng(seed), spec)


def policy_of(spec: ModelSpec, algorithm: str = "grpo", seed: int = 0) -> Policy:
    request = Request.build(algorithm, "Addition-v0", model=spec, seed=seed)
    return Run(request).agent.policy  # type: ignore[attr-defined]


def trained(network: torch.nn.Module) -> set[str]:
    return {name for name, parameter in network.named_parameters() if parameter.requires_grad}


@pytest.fixture
def sizes_alone(tmp_path: Path) -> Path:
    """A folder with a tokenizer and a config.json, and no weights."""
    character_tokenizer().save_pretrained(tmp_path / "model")
    small_llama(
        torch.Generator().manual_seed(0), hidden_size=8, feed_forward=16
    ).config.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


# ---- what may be said


def test_a_folder_a_spec_its_fields_and_sizes_all_name_a_model() -> None:
    assert ModelSpec.from_value(None) is None
    assert (
        ModelSpec.from_value("m")
        == ModelSpec.from_value(Path("m"))
        == ModelSpec.from_value({"folder": "m"})
        == ModelSpec(folder="m")
    )
    assert ModelSpec.from_value({"hidden_size": 8, "dtype": "float32"}) == ModelSpec(
        config={"hidden_size": 8, "dtype": "float32"}
    )
    spec = ModelSpec(
        config={"hidden_size": 8}, adapter=LORA, trainable=("*lora_B*",), dtype="bfloat16"
    )
    assert (
        ModelSpec.from_value(spec.explicit_fields()) == spec
        and json.loads(json.dumps(spec.explicit_fields())) == spec.explicit_fields()
    )
    assert ModelSpec(adapter=LORA).trained_parts == "adapter" and ModelSpec().trained_parts == "all"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"dtype": "float3"},
            "dtype must be one of 'float32', 'float64', 'bfloat16', '4bit', got 'float3'",
        ),
        (
            {"trainable": "heads"},
            "trainable must be one of all, adapter, head, or a list of patterns",
        ),
        ({"trainable": ()}, "trainable must hold patterns"),
        ({"trainable": "adapter"}, "the model has no adapter"),
        ({"folder": "m", "config": {}}, "a folder or a config"),
        ({"folder": "m", "adaptor": "x"}, "no 'adaptor'; did you mean 'adapter'"),
        ({"device": "tpu"}, "device must be one of"),
        (3, "a folder, a ModelSpec or a mapping, got 3"),
        (dict, "or a mapping such as {'network': dict}, got"),
    ],
)
def test_what_cannot_be_a_model_is_refused_in_one_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ModelSpec.from_value(given)
    with pytest.raises(RequestError, match=sentence):
        Request.build("grpo", "Addition-v0", model=given)


@pytest.mark.parametrize(
    ("algorithm", "env", "model", "sentence"),
    [
        (
            "ppo",
            "Maze-v0",
            {"hidden_size": 8},
            ("the model's config applies to language models, .* use hidden_sizes"),
        ),
        (
            "reward_model",
            "Maze-v0",
            {"adapter": LORA},
            "the model's adapter applies to language models",
        ),
        (
            "ppo",
            "Maze-v0",
            {"trainable": ["*.layer.*"]},
            r"no parameter matches \(one is 'actor.layers.0",
        ),
        ("q_learning", "Maze-v0", {"dtype": "float64"}, "q_learning has no use for model"),
        (
            "grpo",
            "Addition-v0",
            {"hidden_sise": 8},
            "of model_type 'llama' has no 'hidden_sise'; did you mean 'hidden_size'",
        ),
        ("grpo", "Addition-v0", {"vocab_size": 8}, "vocab_size follows from the task's own tokens"),
        (
            "grpo",
            "Addition-v0",
            {"hidden_size": 33},
            r"no language model can be made with {'hidden_size': 33} \(.*The hidden size",
        ),
        ("grpo", "Addition-v0", {"num_hidden_layers": 10**9}, "1 to 1,000 are allowed"),
        ("grpo", "Addition-v0", {"hidden_size": 400_000}, "GB of memory"),
        (
            "grpo",
            "Addition-v0",
            {"attn_implementation": "someone/else"},
            "asks for the attention implementation 'someone/else'",
        ),
        (
            "grpo",
            "Addition-v0",
            {"adapter": {"rank": 8}},
            "'rank' is not a setting of an adapter here",
        ),
        (
            "grpo",
            "Addition-v0",
            {"adapter": {"r": 2, "target_modules": ["none"]}},
            "names 'none', .* did you mean 'down_proj'",
        ),
    ],
)
def test_a_model_that_does_not_suit_the_task_is_refused(
    algorithm: str, env: str, model: Any, sentence: str
) -> None:
    if "adapter" in model:
        pytest.importorskip("peft", reason="peft is in the extra [lora]")
    with pytest.raises(RequestError, match=sentence):
        Run(Request.build(algorithm, env, model=model))


def test_one_device_is_named() -> None:
    assert Request.build("grpo", "Addition-v0", model={"device": "auto"}).options.device == "auto"
    with pytest.raises(
        RequestError, match="device is cpu, but the model's device is auto; give only one"
    ):
        Request.build("grpo", "Addition-v0", model={"device": "auto"}, device="cpu")


# ---- weights


def test_a_folder_without_weights_is_built_with_new_ones_of_the_seed(sizes_alone: Path) -> None:
    before = torch.get_rng_state()
    first, same, other = (
        folder_model(sizes_alone, np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.lm_head.weight, same.lm_head.weight) and not torch.equal(
        first.lm_head.weight, other.lm_head.weight
    )
    assert first.config.hidden_size == 8 and not first.training and first.dtype == torch.float32
    run = Run(Request.build("grpo", "Addition-v0", model=sizes_alone))
    assert any(note.startswith("model: random weights from the seed") for note in run.notes)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.safetensors.index.json", "part.safetensors", "model.gguf"]
)
def test_weights_that_cannot_be_read_are_not_replaced_by_new_ones(
    sizes_alone: Path, name: str
) -> None:
    (sizes_alone / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no file named model.safetensors|damaged"):
        folder_model(sizes_alone, np.random.default_rng(0))


def test_without_a_generator_a_folder_without_weights_is_refused(sizes_alone: Path) -> None:
    with pytest.raises(ValueError, match=r"has no file named model.safetensors"):
        folder_model(sizes_alone)


def test_sizes_make_a_model_for_the_tokens_of_the_task() -> None:
    """V = 26 tokens of d = 8 numbers, in and out."""
    model = model_of(
        ModelSpec(config={"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})
    )
    assert model.lm_head.weight.shape == (26, 8) and len(model.model.layers) == 1
    gpt2 = model_of(
        ModelSpec(config={"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2})
    )
    assert type(gpt2).__name__ == "GPT2LMHeadModel" and gpt2.lm_head.weight.shape == (26, 8)


def test_an_empty_spec_is_the_built_in_model() -> None:
    plain, spelt = (
        model_of(spec).state_dict() for spec in (ModelSpec(), ModelSpec(trainable="all"))
    )
    assert all(torch.equal(plain[name], spelt[name]) for name in plain)


def test_the_environment_s_model_is_a_name_and_no_network() -> None:
    env = addition(model="new").unwrapped
    assert env.model == "new" and not any(
        isinstance(value, torch.nn.Module) for value in vars(env).values()
    )
    with pytest.raises(
        ValueError,
        match="the environment uses the token ids of the built-in model, but the model is 'elsewhere'",
    ):
        model_of(ModelSpec(folder="elsewhere"))


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("env", ["Maze-v0", "Addition-v0"])
def test_the_weights_have_the_type_that_is_asked_for_and_are_trained_in_it(
    env: str, dtype: str
) -> None:
    short: dict[str, Any] = SHORT | {"steps": 256 if env == "Maze-v0" else 40}
    run = rlbook.train("ppo", env, model={"dtype": dtype}, **short)
    policy = run.agent.policy  # type: ignore[attr-defined]
    kinds = {
        parameter.dtype
        for name, parameter in policy.named_parameters()
        if not name.startswith(("critic.weight", "critic.bias"))
    }
    assert kinds == {getattr(torch, dtype)}
    assert all(np.isfinite(value) for value in run.metrics[-1].values() if isinstance(value, float))


# ---- what is trained


def test_the_head_of_an_mlp_is_its_last_layers() -> None:
    run = Run(Request.build("ppo", "Pendulum-v1", model={"trainable": "head"}, num_envs=2))
    last = {
        f"{network}.layers.2.{part}"
        for network in ("actor", "critic")
        for part in ("weight", "bias")
    }
    assert trained(run.agent.policy) == {"log_std", *last}  # type: ignore[attr-defined]


def test_patterns_name_what_is_trained() -> None:
    run = Run(
        Request.build("ppo", "Maze-v0", model={"trainable": ["critic.*", "actor.layers.2.*"]})
    )
    names = trained(run.agent.policy)  # type: ignore[attr-defined]
    assert {name.split(".")[0] for name in names} == {"actor", "critic"} and len(names) == 6 + 2


def test_the_head_of_a_language_model_is_its_output_layer_and_the_critic_s_trunk_is_frozen_too() -> (
    None
):
    run = Run(Request.build("ppo", "Addition-v0", model=ModelSpec(trainable="head"), num_envs=4))
    assert trained(run.agent.policy) == {"model.lm_head.weight", "critic.weight", "critic.bias"}  # type: ignore[attr-defined]


def test_what_is_not_trained_stays_what_it_was() -> None:
    """Cloning one right answer after the other moves the output layer, and it alone."""
    spec = ModelSpec(trainable="head")
    before = policy_of(spec, "behavior_cloning").state_dict()
    run = rlbook.train(
        "behavior_cloning", "Addition-v0", model=spec, steps=2, batch_size=8, eval_every=0
    )
    after = run.agent.policy.state_dict()  # type: ignore[attr-defined]
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "model.lm_head.weight"
    }


# ---- adapters


def test_a_new_adapter_changes_nothing_at_first_and_is_all_that_is_trained() -> None:
    pytest.importorskip("peft", reason="peft is in the extra [lora]")
    plain, adapted, same, other = (
        model_of(spec, seed)
        for spec, seed in (
            (ModelSpec(), 0),
            (ModelSpec(adapter=LORA), 0),
            (ModelSpec(adapter=LORA), 0),
            (ModelSpec(adapter=LORA), 1),
        )
    )
    ids = torch.arange(3, 9)[None]
    assert torch.equal(plain(ids).logits, adapted(ids).logits)
    names = trained(adapted)
    # A and B, two matrices, two layers
    assert len(names) == 2 * 2 * 2 and all("lora_" in name for name in names)
    one, two, three = (
        next(p for n, p in m.named_parameters() if "lora_A" in n) for m in (adapted, same, other)
    )
    assert torch.equal(one, two) and not torch.equal(one, three)
    assert trained(model_of(ModelSpec(adapter=LORA, trainable=("*lora_B*",)))) == {
        name for name in names if "lora_B" in name
    }


def written_adapter(folder: Path, **entries: Any) -> Path:
    """An adapter whose B is not 0, as peft writes one, for the built-in model."""
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = peft.get_peft_model(
            model_of(ModelSpec()),
            peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **LORA),
        )
        model.save_pretrained(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    return folder


def test_an_adapter_s_folder_is_honoured_and_goes_on_from_its_weights(tmp_path: Path) -> None:
    """The model says with its adapter what peft's own loader makes it say."""
    folder = written_adapter(tmp_path / "adapter")
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs: Any = peft.PeftModel.from_pretrained(model_of(ModelSpec()), str(folder))
    ours, ids = model_of(ModelSpec(adapter=str(folder))), torch.arange(3, 9)[None]
    assert torch.equal(ours(ids).logits, theirs(ids).logits)
    assert (ours(ids).logits - model_of(ModelSpec())(ids).logits).abs().max() > 0.01
    assert all("lora_" in name for name in trained(ours)) and trained(ours)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"peft_type": "IA3"}, "must hold an adapter of peft_type LORA"),
        ({"megatron_config": {"a": 1}}, "asks for megatron_config"),
        ({"corda_config": {"cache_file": "x"}}, "asks for corda_config"),
        ({"init_lora_weights": "pissa"}, "changes the model's own weights"),
        ({"r": 3}, "does not fit the model: "),
        ({"target_modules": ["q_proj"]}, "does not fit the model: .* and 3 more"),
    ],
)
def test_an_adapter_of_another_kind_or_shape_is_refused(
    tmp_path: Path, entries: dict[str, Any], sentence: str
) -> None:
    folder = written_adapter(tmp_path / "adapter", **entries)
    with pytest.raises(ValueError, match=f"adapter: '{folder}' {sentence}"):
        model_of(ModelSpec(adapter=str(folder)))


def test_an_adapter_s_weights_are_not_unpickled(tmp_path: Path) -> None:
    folder = written_adapter(tmp_path / "adapter")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(ValueError, match=r"has no file named adapter_model.safetensors"):
        model_of(ModelSpec(adapter=str(folder)))


# ---- runs


def test_a_run_with_an_adapter_resumes_bit_for_bit_and_keeps_what_is_trained(
    tmp_path: Path,
) -> None:
    """The base weights are named by a digest: of 80 000 numbers none is in the checkpoint."""
    adapter = written_adapter(tmp_path / "adapter")
    spec = {"adapter": str(adapter), "trainable": "adapter"}
    more: dict[str, Any] = SHORT | {"kl_coef": 0.1, "anneal_learning_rate": False}
    longer: dict[str, Any] = more | {"steps": 80}
    whole = rlbook.train("grpo", "Addition-v0", model=spec, **longer)
    rlbook.train("grpo", "Addition-v0", model=spec, out=tmp_path / "run", **more)
    again = rlbook.load(tmp_path / "run").resume(steps=80)
    one, two = (saved_tensors(run.agent.policy) for run in (whole, again))  # type: ignore[attr-defined]
    assert one.keys() == two.keys() and {name for name in one if "lora_" not in name} == {"frozen"}
    assert one.pop("frozen") == two.pop("frozen") and all(
        torch.equal(one[name], two[name]) for name in one
    )
    with pytest.raises(RequestError, match="resuming cannot make it"):
        rlbook.train(
            "grpo",
            "Addition-v0",
            model={"trainable": "head"},
            out=tmp_path / "run",
            resume=True,
            **more,
        )
    written_adapter(tmp_path / "adapter")  # the same again, and then another one
    assert rlbook.load(tmp_path / "run").resume(steps=90).steps >= 90
    written_adapter(tmp_path / "adapter", lora_alpha=16)
    with pytest.raises(RequestError, match="adapter has changed since the run was started"):
        rlbook.load(tmp_path / "run").resume(steps=100)


def test_weights_that_are_not_trained_must_come_back_the_same() -> None:
    spec = ModelSpec(config={"hidden_size": 8}, trainable="head")
    one, same, other = policy_of(spec), policy_of(spec), policy_of(spec, seed=1)
    load_saved(same, saved_tensors(one))
    with pytest.raises(RuntimeError, match="the weights that are not trained have changed"):
        load_saved(other, saved_tensors(one))
    with pytest.raises(RuntimeError, match=r"missing or unexpected tensors: model.lm_head.weight"):
        load_saved(same, {"frozen": saved_tensors(one)["frozen"]})


def test_a_reward_model_starts_from_a_model_spec_too() -> None:
    run = Run(
        Request.build(
            "reward_model",
            "Addition-v0",
            model=ModelSpec(config={"hidden_size": 8}, trainable="head"),
        )
    )
    assert trained(run.agent.network) == {"score.weight"}  # type: ignore[attr-defined]
    walks = Run(
        Request.build("reward_model", "Maze-v0", model={"trainable": "head", "dtype": "float64"})
    )
    assert trained(walks.agent.network) == {"network.layers.2.weight", "network.layers.2.bias"}  # type: ignore[attr-defined]


def test_a_policy_is_built_from_the_spaces_and_the_spec_alone() -> None:
    policy = build_policy(
        addition(),
        np.random.default_rng(0),
        PolicySettings(critic=True),
        {"hidden_size": 8, "num_attention_heads": 2},
    )
    assert policy.critic.trunk.config.hidden_size == 8  # type: ignore[union-attr]
