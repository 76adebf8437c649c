"""A hook on an agent's network changes a run, which says so: trained, loaded and resumed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rlbook
from rlbook.fast.modules import trains_plainly
from rlbook.runs.hooks import modifications

CHANGES = "which changes what is computed; no checkpoint keeps that"
SHORT: dict[str, Any] = {"steps": 64, "eval_every": 0, "num_envs": 2}


def doubled(module: Any, inputs: Any, output: Any) -> Any:
    return 2 * output


def idle(*_: Any) -> None:
    """Changes nothing."""


def replace_forward(layer: nn.Module) -> None:
    plain = layer.forward
    layer.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]


PUT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "forward": (lambda layer: layer.register_forward_hook(doubled), "a forward hook on"),
    "before": (lambda layer: layer.register_forward_pre_hook(idle), "a forward pre-hook on"),
    "backward": (lambda layer: layer.register_full_backward_hook(idle), "a backward hook on"),
    "pre-backward": (
        lambda layer: layer.register_full_backward_pre_hook(idle),
        "a backward pre-hook on",
    ),
    "replaced": (replace_forward, "a replaced forward on"),
    "gradient": (lambda layer: layer.bias.register_hook(lambda x: x), "a gradient hook on bias on"),
    "gathered gradient": (
        lambda layer: layer.bias.register_post_accumulate_grad_hook(idle),
        "a gradient hook on bias on",
    ),
}


def about_hooks(run: rlbook.Run) -> list[str]:
    return [note for note in run.notes if "trained with" in note]


@pytest.mark.parametrize("kind", PUT)
def test_a_run_says_what_was_put_into_a_layer(kind: str) -> None:
    put, said = PUT[kind]

    def on_report(run: Any) -> None:
        if run.steps < 4:
            put(run.agent.policy.actor.layers[1])

    run = rlbook.train("a2c", "Maze-v0", on_report=on_report, rollout_steps=1, **SHORT)
    name = "policy.actor.layers.1"
    assert about_hooks(run) == [f"trained with {said} {name}, {CHANGES}"]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "sac", "q_learning"])
def test_a_run_without_hooks_says_nothing(algorithm: str) -> None:
    short: dict[str, Any] = SHORT if algorithm != "q_learning" else {"steps": 64}
    run = rlbook.train(algorithm, "Maze-v0", **short)
    assert about_hooks(run) == [] and run.agent is not None


def test_a_resumed_run_says_with_what_it_was_trained(tmp_path: Path) -> None:
    folder, name = tmp_path / "run", "a forward hook on q.layers.0"
    rlbook.train("dqn", "Maze-v0", out=folder, **SHORT)
    run = rlbook.load(folder)
    run.agent.q.layers[0].register_forward_hook(doubled)  # type: ignore[attr-defined]
    run.resume(steps=128)
    assert about_hooks(run) == [f"trained with {name}, {CHANGES}"]
    again = rlbook.load(folder)
    said = f"until step 128 trained with {name}; no checkpoint keeps that"
    assert about_hooks(again) == [said]
    again.resume(steps=192)
    assert about_hooks(again) == [said]
    assert about_hooks(rlbook.load(folder)) == [said.replace("128", "192")]


def test_a_hook_on_all_modules_is_noted() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        run = rlbook.train("dqn", "Maze-v0", **SHORT)
    finally:
        handle.remove()
    assert len(about_hooks(run)) == 1 and "a hook on all modules" in about_hooks(run)[0]


def test_many_hooks_are_one_note() -> None:
    def on_report(run: Any) -> None:
        if run.steps < 4:
            for layer in [*run.agent.policy.actor.layers, *run.agent.policy.critic.layers]:
                layer.register_forward_hook(lambda *_: None)

    run = rlbook.train("a2c", "Maze-v0", on_report=on_report, rollout_steps=1, **SHORT)
    (note,) = about_hooks(run)
    assert note.count("a forward hook on") == 3 and " more, which changes" in note


def test_a_parametrization_is_found_wherever_the_network_is() -> None:
    agent = rlbook.train("dqn", "Maze-v0", **SHORT).agent
    assert modifications(agent) == []
    layer = agent.q.layers[1]  # type: ignore[attr-defined]
    nn.utils.parametrize.register_parametrization(layer, "bias", nn.Identity())
    assert modifications(agent) == ["a parametrization on q.layers.1"]


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_weight_whose_gradient_is_watched_is_left_to_autograd(hook: str) -> None:
    layer = nn.Linear(2, 1)
    weights = [layer.weight, layer.bias]
    assert trains_plainly(weights, weights) and not trains_plainly(weights, weights[:1])
    handle = getattr(layer.bias, hook)(idle)
    assert not trains_plainly(weights, weights)
    handle.remove()
    assert trains_plainly(weights, weights)


@pytest.mark.thorough
def test_a_table_is_looked_at_without_torch() -> None:
    program = "import sys, rlbook; rlbook.train('q_learning', 'Maze-v0', steps=50)"
    program += "; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], timeout=100, check=False)
    assert done.returncode == 0


def test_a_hook_changes_the_run() -> None:
    """Or else there would be nothing to say."""

    def on_report(run: Any) -> None:
        if run.steps < 4:
            run.agent.policy.actor.layers[0].register_forward_hook(doubled)

    found = []
    for how in (None, on_report):
        agent: Any = rlbook.train("a2c", "Maze-v0", on_report=how, rollout_steps=1, **SHORT).agent
        found.append(next(iter(agent.policy.actor.parameters())))
    assert not torch.equal(*found)
