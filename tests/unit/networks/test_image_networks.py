"""Filters by name: Nature's and IMPALA's, and critics of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from gymnasium import spaces
from torch import nn

import rlbook
from rlbook.errors import RequestError
from rlbook.networks.cnn import FeatureNetwork, FeaturePolicy
from rlbook.networks.critics import Critics
from rlbook.runs.request import Request
from rlbook.runs.run import Run

STACK = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def made(network: str | None, space: spaces.Box = STACK) -> FeatureNetwork:
    generator = torch.Generator().manual_seed(0)
    return FeatureNetwork(space, (512, 6), generator, activation="relu", network=network)


def frames(space: spaces.Box, count: int = 3) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (count, *space.shape), dtype=np.uint8))


def test_natures_network_is_stable_baselines3s_on_the_same_weights() -> None:
    torch_layers = pytest.importorskip("stable_baselines3.common.torch_layers")
    theirs, ours = torch_layers.NatureCNN(STACK, features_dim=512), made("nature")
    convolutions = [layer for layer in theirs.cnn if isinstance(layer, nn.Conv2d)]
    layers = [*ours.filters, ours.layers[0]]
    for mine, their in zip(layers, [*convolutions, theirs.linear[0]], strict=True):
        their.load_state_dict(mine.state_dict())
    seen = frames(STACK)
    expected = theirs(seen.float() / 255.0)
    assert_near(ours(seen, end=-1), expected, terms=widths(ours), size=1.0)


def test_images_in_float32_are_left_as_they_are() -> None:
    """They are divided by their largest value, in a copy."""
    images = frames(STACK).float()
    before = images.clone()
    with torch.no_grad():
        made("nature").features(images)
    assert torch.equal(images, before)


def test_natures_numbers_of_weights() -> None:
    """4·8²·32+32, 32·4²·64+64, 64·3²·64+64, 7²·64·512+512, 512·6+6: the paper's 1.69 million."""
    sizes = sum(weight.numel() for weight in made("nature").parameters())
    assert sizes == 8_224 + 32_832 + 36_928 + 1_606_144 + 3_078


def test_impalas_stages_halve_the_sides_and_add_to_what_they_get() -> None:
    """84 → 42 → 21 → 11, with 32 channels; a block whose last filter is 0 adds nothing."""
    network = made("impala")
    assert network.features_size == 32 * 11 * 11
    stage: Any = network.filters[0]
    for layer in stage.blocks[1::2]:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    x = frames(STACK).float() / 255.0
    pooled = nn.functional.max_pool2d(stage.first(x), 3, 2, 1)
    assert torch.equal(stage(x), pooled) and pooled.shape == (3, 16, 42, 42)


def test_impalas_features_pass_a_relu_and_natures_do_too() -> None:
    for name in ("impala", "nature"):
        features = made(name).features(frames(STACK, 1))
        assert bool((features >= 0.0).all()) and bool((features > 0.0).any()), name


def test_impala_reads_the_smallest_images_and_natures_filters_do_not() -> None:
    catch = spaces.Box(0, 255, (10, 5, 1), np.uint8)
    assert made("impala", catch)(frames(catch)).shape == (3, 6)
    with pytest.raises(ValueError, match="network nature needs images of at least 36 x 36"):
        made("nature", catch)


def test_the_default_follows_from_the_size_of_the_image() -> None:
    assert made(None).network == "nature"
    assert made(None, spaces.Box(0, 255, (10, 5, 1), np.uint8)).network == "small"


def test_a_policy_with_named_filters_has_relu_behind_them() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = FeaturePolicy(STACK, spaces.Discrete(3), generator, critic=True, network="nature")
    assert policy.actor.head.activation == "relu"


@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
def test_critics_of_images_evaluate_each_with_filters_of_its_own(actions: Any) -> None:
    space = spaces.Box(0, 255, (10, 5, 1), np.uint8)
    generator = torch.Generator().manual_seed(0)
    critics = Critics(space, actions, generator, count=2, hidden_sizes=(8,))
    seen, chosen = frames(space, 4), torch.from_numpy(np.stack([actions.sample()] * 4))
    q = critics(seen, chosen)
    assert q.shape == (2, 4) and not torch.equal(q[0], q[1])
    assert critics.filters is not None and len(critics.filters) == 2


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac", "reward_model"])
def test_a_run_has_the_network_that_it_names(algorithm: str) -> None:
    run = Run(Request.build(algorithm, "Catch-v0", model={"network": "impala"}))
    agent: Any = run.agent
    network = {"ppo": "policy", "dqn": "q", "sac": "actor", "reward_model": "network"}[algorithm]
    found = {
        item.network
        for item in getattr(agent, network).modules()
        if isinstance(item, FeatureNetwork)
    }
    assert found == {"impala"}
    assert "network: impala" in run.request.as_yaml()


@pytest.mark.parametrize(
    ("algorithm", "env", "model", "said"),
    [
        ("dqn", "CartPole-v1", {"network": "nature"}, "network nature reads images"),
        ("sac", "Pendulum-v1", {"network": "small"}, "network small reads images"),
        ("dqn", "Catch-v0", {"network": "nature"}, "at least 36 x 36 pixels, got 10 x 5"),
        ("dqn", "Catch-v0", {"network": "resnet"}, "network must be"),
        ("sac", "Catch-v0", {"dtype": "float64"}, "dtype has no effect"),
    ],
)
def test_a_network_that_cannot_be_is_one_sentence(
    algorithm: str, env: str, model: dict[str, str], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        rlbook.train(algorithm, env, steps=10, model=model)


def test_sac_on_images_is_resumed_bit_for_bit(tmp_path: Any) -> None:
    options: dict[str, Any] = {"num_envs": 2, "learning_starts": 16, "eval_every": 0}
    rlbook.train("sac", "Catch-v0", steps=30, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=60)
    whole = rlbook.train("sac", "Catch-v0", steps=60, **options)
    weights = dict(whole.agent.actor.state_dict())  # type: ignore[attr-defined]
    found = again.agent.actor.state_dict()  # type: ignore[attr-defined]
    assert all(torch.equal(weight, weights[name]) for name, weight in found.items())
