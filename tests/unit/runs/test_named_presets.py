"""The settings of published recipes by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.cli.main import main
from rlbook.cli.options import run_options
from rlbook.errors import RequestError
from rlbook.runs.presets.named_presets import named_preset, preset_names
from rlbook.runs.run import load

SMALL = {
    "gsm8k": "--num-envs 8 --steps 60 --env.max-prompt-tokens 10 --env.max-new-tokens 6",
    "dapo": "--num-envs 8 --steps 60 --env.max-prompt-tokens 10 --env.max-new-tokens 6",
    "sft_lora": "--steps 2 --batch-size 4 --env.max-prompt-tokens 10 --env.max-new-tokens 8",
    "sft_full": "--steps 2 --env.max-prompt-tokens 10 --env.max-new-tokens 8",
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", SMALL)
def test_every_preset_trains_and_its_settings_are_those_of_the_run(
    name: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "run")
    words = ["train", "--preset", name, *SMALL[name].split(), "--eval-every", "0", "--out", out]
    assert main([*words, "--eval-episodes", "2"]) == 0
    preset, run = named_preset(name), load(out)
    assert run.request.recipe.name == preset.env == "Chat-v0"
    assert run.request.recipe.kwargs["max_new_tokens"] in (6, 8)
    assert run.request.recipe.kwargs["max_prompt_tokens"] == 10
    for key, value in preset.hyperparameters.items():
        if not (key == "batch_size" and name == "sft_lora"):
            assert run.request.hyperparameters[key] == (
                value if not str(value).startswith("cosine") else "cosine(0.0001, 0.0, 1.0, 0.1)"
            )
    assert run.steps > 0 and run.request.budget.episodes is run.request.budget.passes is None
    if name == "sft_lora":
        assert run.request.options.model.explicit_fields()["adapter"]["lora_alpha"] == 16


@pytest.mark.parametrize("name", ["atari_dqn", "atari_ppo"])
def test_the_presets_of_atari_show_four_grey_frames_to_natures_network(name: str) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    preset = named_preset(name)
    run = (
        rlbook.train(
            preset.algorithm, preset.env, preset=name, steps=8, eval_every=0, rollout_steps=2
        )
        if name == "atari_ppo"
        else rlbook.train(
            preset.algorithm, preset.env, preset=name, steps=8, eval_every=0, buffer_size=16
        )
    )
    agent: Any = run.agent
    assert agent.adaptation.observation_space.shape == (4, 84, 84)
    network = agent.q if name == "atari_dqn" else agent.policy.actor
    assert network.network == "nature" and network.layers[0].out_features == 512


@pytest.mark.parametrize("name", preset_names())
def test_no_preset_anneals_its_learning_rate_twice(name: str) -> None:
    preset = named_preset(name)
    config: Any = rlbook.algorithms()[preset.algorithm].Config
    rate = preset.hyperparameters.get("learning_rate", config().learning_rate)
    twice = preset.hyperparameters.get("anneal_learning_rate", config().anneal_learning_rate)
    assert isinstance(rate, float) or "(" not in str(rate) or not twice


def test_every_preset_is_tried() -> None:
    assert sorted([*SMALL, "atari_dqn", "atari_ppo"]) == preset_names()


def test_the_batch_words_are_verls() -> None:
    """train_batch_size and ppo_mini_batch_size count prompts, each of which has n answers."""
    for name, train, n, mini, micro in (("gsm8k", 1024, 4, 256, 1), ("dapo", 32, 8, 16, 4)):
        preset = named_preset(name)
        found = preset.hyperparameters
        assert preset.options["num_envs"] == train * n and found["group_size"] == n
        assert found["batch_size"] == mini * n and found["micro_batch_size"] == micro
    assert named_preset("gsm8k").options["episodes"] == 15 * (7473 // 1024) * 1024 * 4
    dapo = named_preset("dapo")
    assert dapo.env_kwargs["reward"]["overlong"] == {"buffer": 1024, "factor": 1.0}
    assert {"dual_clip": 10.0, "warmup_steps": 10, "weight_decay": 0.1}.items() <= (
        dapo.hyperparameters.items()
    )


def test_what_is_given_beside_a_preset_counts_more_and_another_environment_keeps_its_own_limits() -> (
    None
):
    options: dict[str, Any] = {"num_envs": 8, "steps": 40, "eval_every": 0, "clip": 0.3}
    run = rlbook.train("grpo", "Addition-v0", preset="gsm8k", **options)
    held = run.request
    assert held.recipe.kwargs == {} and held.options.episodes is None and held.num_envs == 8
    assert held.config.clip == 0.3 and held.config.dual_clip == 3.0 and held.config.group_size == 4
    config = type(run.agent).Config(clip=0.4)
    again = rlbook.train(
        "grpo", "Addition-v0", preset="gsm8k", config=config, **options | {"clip": 0.5}
    )
    assert again.request.config.clip == 0.5


def test_a_models_folder_joins_what_a_preset_trains_of_it() -> None:
    preset = named_preset("sft_lora")
    found = preset.for_run("sft", "Chat-v0", {"model": "somewhere", "passes": 1})
    assert found.options["model"]["folder"] == "somewhere" and found.options["passes"] == 1
    assert found.options["model"]["adapter"]["r"] == 8
    own = {"model": {"folder": "x", "adapter": {"r": 2}}}
    assert preset.for_run("sft", "Chat-v0", own).options["model"] == own["model"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("grpo Addition-v0 --preset gsm9k", "unknown preset 'gsm9k'; did you mean 'gsm8k'?"),
        (
            "ppo Addition-v0 --preset gsm8k",
            "preset gsm8k is for grpo, got ppo (presets of ppo: atari_ppo)",
        ),
        ("sft Chat-v0 --preset dapo", "presets of behavior_cloning: sft_full, sft_lora"),
    ],
)
def test_a_wrong_preset_is_refused_in_one_sentence_and_nothing_is_written(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words.split(), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1 and not any(tmp_path.iterdir())
    with pytest.raises(RequestError, match="unknown preset"):
        rlbook.train("grpo", "Addition-v0", preset="none", steps=8)


def test_the_help_and_the_completion_name_every_preset() -> None:
    shown = run_options()["preset"][1].__metadata__[0]
    assert "{" + ",".join(preset_names()) + "}" in str(shown)
