"""Every agent with a network takes images as they are: uint8, filters in front, learned to the
optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, rounding_bound, widths
from gymnasium import spaces
from torch import Tensor

import rlbook
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError
from rlbook.interaction.spaces import channels_first, image_size, is_image
from rlbook.networks.build import build_action_value
from rlbook.networks.cnn import FeatureNetwork, FeaturePolicy, FeatureReward
from rlbook.networks.mlp import MLP
from rlbook.networks.values import ActionValue, Value
from rlbook.runs.request import Request
from rlbook.runs.run import Run

SIDE = 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
STARTS = [(row, column) for row in range(SIDE) for column in range(SIDE)][:-1]
"""Every cell but the last, which is the goal."""


class ImageRoom(gymnasium.Env[np.ndarray, np.int64]):
    """4 x 4 cells of `pixels` x `pixels` bytes: the agent is white, the goal in the last corner
    grey, the floor black.

    A step costs 1 and moves by a cell, walls hold; the goal ends the episode, 20 steps cut it. From
    (r, c) the best return is -(6 - r - c), so the mean over the 15 starts is -(16 · 6 - 2 · 4 · 6)
    / 15 = -3.2.
    """

    def __init__(self, pixels: int = 3, channels_first: bool = False) -> None:
        self.pixels, self.channels_first = pixels, channels_first
        side = SIDE * pixels
        shape = (1, side, side) if channels_first else (side, side, 1)
        self.observation_space, self.action_space = (
            spaces.Box(0, 255, shape, np.uint8),
            spaces.Discrete(4),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.time = STARTS[self.np_random.integers(len(STARTS))], 0
        return self.image(self.cell), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell, self.time = moved(self.cell, int(action)), self.time + 1
        terminated = self.cell not in STARTS
        return self.image(self.cell), -1.0, terminated, self.time == 20 and not terminated, {}

    def image(self, cell: tuple[int, int]) -> np.ndarray:
        room = np.zeros((SIDE, SIDE), dtype=np.uint8)
        room[-1, -1] = 128
        room[cell] = 255
        image = np.kron(room, np.ones((self.pixels, self.pixels), dtype=np.uint8))
        return image[None] if self.channels_first else image[..., None]


def moved(cell: tuple[int, int], action: int) -> tuple[int, int]:
    """The cell behind a move."""
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(cell, MOVES[action], strict=True))
    return row, column


def detours(agent: Any, room: ImageRoom) -> int:
    """From how many of the 15 cells the greedy action does not lead nearer to the goal: 0 for an
    optimal policy."""
    actions = agent.act(np.stack([room.image(cell) for cell in STARTS]), explore=False)
    return sum(
        sum(moved(cell, int(action))) != sum(cell) + 1
        for cell, action in zip(STARTS, actions, strict=True)
    )


gymnasium.register("ImageRoom-v0", entry_point=ImageRoom)


def images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def box(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def network(space: spaces.Space, **settings: Any) -> FeatureNetwork:
    return FeatureNetwork(space, (8, 3), torch.Generator().manual_seed(0), **settings)


def agent_of(algorithm: str, **options: Any) -> Any:
    return Run(Request.build(algorithm, "ImageRoom-v0", num_envs=4, **options)).agent


# ---- spaces


@pytest.mark.parametrize(
    ("shape", "size", "first"),
    [
        ((12, 16, 3), (12, 16, 3), False),
        ((3, 12, 16), (12, 16, 3), True),
        ((84, 84, 4), (84, 84, 4), False),
        ((4, 4, 4), (4, 4, 4), False),
    ],
)
def test_the_shorter_of_the_outer_axes_is_the_channels(shape: Any, size: Any, first: bool) -> None:
    assert (
        is_image(box(*shape))
        and image_size(box(*shape)) == size
        and channels_first(box(*shape)) is first
    )


def test_bytes_along_three_axes_are_an_image_and_nothing_else_is() -> None:
    others = [
        box(12, 12),
        box(144),
        spaces.Box(0, 1, (12, 12, 3)),
        spaces.Discrete(3),
        spaces.MultiDiscrete([256, 256]),
    ]
    assert not any(map(is_image, others))


@pytest.mark.parametrize(
    "algorithm", ["ppo", "dqn", "grpo", "reinforce", "behavior_cloning", "dpo"]
)
def test_agents_with_a_network_see_the_image_as_it_is(algorithm: str) -> None:
    run = Run(Request.build(algorithm, "ImageRoom-v0"))
    assert (
        run.agent.adaptation.observe is None
        and run.notes[0] == "observation: an image of 12 x 12 pixels and 1 channels"
    )
    assert run.agent.act(images(5, 12, 12, 1), explore=False).shape == (5,)


# ---- networks


def test_the_large_filters_are_those_of_the_nature_paper() -> None:
    """84 → (84 - 8) / 4 + 1 = 20 → (20 - 4) / 2 + 1 = 9 → 9 - 3 + 1 = 7, with 64 channels: 3 136
    numbers."""
    made = network(box(4, 84, 84))
    assert [tuple(layer.weight.shape) for layer in made.filters] == [
        (32, 4, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
    ]
    assert made.features_size == 64 * 7 * 7 == made.layers[0].weight.shape[1]
    assert network(box(36, 36, 1)).features_size == 64 * 1 * 1  # 36 → 8 → 3 → 1
    # the small ones: 35 → 18 → 9, and 36 → 18 → 9
    assert network(box(35, 36, 1)).features_size == 32 * 9 * 9


@pytest.mark.parametrize("pixels", [12, 36])
def test_channels_may_stand_first_or_last(pixels: int) -> None:
    last, first = network(box(pixels, pixels, 3)), network(box(3, pixels, pixels))
    seen = torch.from_numpy(images(2, 5, pixels, pixels, 3))
    out = last(seen)
    assert out.shape == (2, 5, 3)
    assert_near(out, first(seen.movedim(-1, -3)), terms=widths(last), size=1.0)


def test_a_byte_counts_as_a_share_of_255_whatever_its_type() -> None:
    made, seen = network(box(12, 12, 1)), torch.from_numpy(images(4, 12, 12, 1))
    assert torch.equal(made(seen), made(seen.float())) and torch.equal(
        made(seen), made(seen.long())
    )
    x = torch.relu(made.filters[0](seen.movedim(-1, 1) / 255.0))
    x = torch.relu(made.filters[1](x))
    assert_near(made(seen), made.head(x.flatten(1)), terms=widths(made), size=1.0)


@pytest.mark.parametrize("pixels", [12, 36])
def test_the_layout_in_memory_changes_no_gradient(pixels: int) -> None:
    """An image [C, H, W] has its channels last in memory where there is a gradient, and only there;
    what is given stays as it was."""
    last, first = network(box(pixels, pixels, 3)), network(box(3, pixels, pixels))
    seen = torch.from_numpy(images(5, pixels, pixels, 3)).float()
    kept = seen.clone()
    for made, given in ((last, seen), (first, seen.movedim(-1, -3).contiguous())):
        with torch.no_grad():
            acted = made(given)
        out = made(given)
        assert_near(out, acted, terms=widths(made), size=1.0)
        out.square().sum().backward()
    assert torch.equal(seen, kept)
    for one, other in zip(last.parameters(), first.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        size = float(one.grad.abs().max())
        assert_near(one.grad, other.grad, terms=2 * widths(last) + pixels**2, size=size)


def test_the_gradient_of_the_filters_is_the_difference_quotient() -> None:
    made, seen = network(box(6, 6, 2)).double(), torch.from_numpy(images(3, 6, 6, 2))
    weight = made.filters[0].weight
    made(seen).square().sum().backward()
    step = torch.zeros_like(weight)
    h = step[3, 1, 2, 0] = 1e-6
    values = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            weight += sign * step
            values.append(made(seen).square().sum())
            weight -= sign * step
    # between its kinks the function is a polynomial of degree 2, so that rounding alone is left
    error = rounding_bound("float64", terms=widths(made), size=float(values[0])) / h
    quotient = float(values[0] - values[1]) / (2 * h)
    assert float(weight.grad[3, 1, 2, 0]) == pytest.approx(quotient, rel=0, abs=error)  # type: ignore[index]


def test_weights_are_orthogonal_or_uniform() -> None:
    """Gain √2: rows of length √2. Uniform in ±1/√fan_in: with 2 channels and 3 x 3 kernels
    ±1/√18."""
    rows = network(box(6, 6, 2)).filters[0].weight.detach().flatten(1)  # [16, 18]
    assert_near(rows @ rows.T, 2.0 * torch.eye(16), terms=rows.numel())
    uniform = network(box(6, 6, 2), orthogonal=False).filters[0]
    assert (
        0.9 * 18**-0.5 < float(uniform.weight.detach().abs().max()) <= 18**-0.5
        and uniform.bias.any()
    )


@pytest.mark.parametrize("shared", [False, True])
def test_acting_and_evaluating_agree_on_images(shared: bool) -> None:
    policy = FeaturePolicy(
        box(12, 12, 3),
        spaces.Discrete(5),
        torch.Generator().manual_seed(0),
        critic=True,
        shared=shared,
        hidden_sizes=(16,),
    )
    seen = images(7, 12, 12, 3)
    action, log_prob = policy.act(seen, np.random.default_rng(0))
    found = policy.distribution(torch.from_numpy(seen)).log_prob(torch.from_numpy(action))
    terms = widths(policy)
    assert_near(log_prob, found, terms=terms)
    every = torch.ones(7, dtype=torch.bool)
    batch = Batch(
        torch.from_numpy(seen), torch.from_numpy(action), torch.from_numpy(log_prob), every
    )
    _, entropy, value = policy.evaluate(batch)
    assert value is not None and value.shape == (7,)
    assert entropy is not None and entropy.shape == (7,)
    assert_near(policy.value(torch.from_numpy(seen)), value, terms=terms, size=1.0)


def test_a_continuous_policy_sees_images_too() -> None:
    policy = FeaturePolicy(
        box(12, 12, 3), spaces.Box(-1, 1, (2,)), torch.Generator().manual_seed(0), critic=False
    )
    action, log_prob = policy.act(images(7, 12, 12, 3), np.random.default_rng(0))
    assert action.shape == (7, 2) and log_prob.shape == (7,)


def test_a_critic_is_a_value_and_a_q_network_an_action_value() -> None:
    room = torch.from_numpy(images(6, 12, 12, 1))
    for agent, seen in (
        (agent_of("ppo"), room),
        (Run(Request.build("ppo", "Maze-v0")).agent, torch.rand(6, 25)),
    ):
        value: Value = agent.policy.value
        assert value(seen).shape == (6,)
    for agent, seen in (
        (agent_of("dqn"), room),
        (Run(Request.build("dqn", "Maze-v0")).agent, torch.rand(6, 25)),
    ):
        action_value: ActionValue = agent.q
        assert action_value(seen).shape == (6, 4)


def test_a_q_network_is_built_from_the_spaces() -> None:
    built = [
        build_action_value(
            gymnasium.make_vec(env, 2, vectorization_mode="sync"), np.random.default_rng(0), (8,)
        )
        for env in ("ImageRoom-v0", "CartPole-v1")
    ]
    assert [type(made) for made in built] == [FeatureNetwork, MLP]


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "float64"},
        {"trainable": "head"},
        {"trainable": ["*filters*"], "dtype": "bfloat16"},
    ],
)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_the_model_s_settings_hold_for_images(algorithm: str, settings: dict[str, Any]) -> None:
    run = rlbook.train(
        algorithm,
        "ImageRoom-v0",
        model=settings,
        steps=64,
        num_envs=4,
        eval_every=0,
        hidden_sizes=(8,),
        **(
            {"learning_starts": 16, "batch_size": 8}
            if algorithm == "dqn"
            else {"rollout_steps": 8, "batch_size": 32}
        ),  # type: ignore[arg-type]
    )
    made: Any = run.agent
    network = made.q if algorithm == "dqn" else made.policy
    trained = {name for name, weight in network.named_parameters() if weight.requires_grad}
    if settings.get("trainable") == "head":
        assert all("head.layers.1" in name for name in trained)
    if "*filters*" in settings.get("trainable", ()):
        assert trained and all("filters" in name for name in trained)
    assert {weight.dtype for weight in network.parameters()} == {
        getattr(torch, settings.get("dtype", "float32"))
    }


def test_an_image_is_not_standardised() -> None:
    with pytest.raises(
        RequestError,
        match="normalize_observation has no effect here, because pixel values are scaled to",
    ):
        agent_of("ppo", hyperparameters={"normalize_observation": True})


def test_a_reward_of_images_and_actions_is_learned() -> None:
    run = rlbook.train(
        "reward_model", "ImageRoom-v0", steps=3, batch_size=4, walks=20, hidden_sizes=(8,)
    )
    agent: Any = run.agent
    assert type(agent.network) is FeatureReward
    seen, over = images(5, 12, 12, 1), np.zeros(5, dtype=bool)
    assert agent.score_steps(seen, np.arange(5) % 4, seen, over)[0].shape == (5,)


def test_a_replay_buffer_counts_a_byte_for_a_byte() -> None:
    agent = agent_of("dqn", hyperparameters={"buffer_size": 100})
    agent.act(images(4, 12, 12, 1))
    from rlbook.agent import Step

    flags = np.zeros(4, dtype=bool)
    agent.learn(
        Step(
            images(4, 12, 12, 1),
            np.zeros(4, np.int64),
            np.zeros(4, np.float32),
            images(4, 12, 12, 1),
            flags,
            flags,
        )
    )
    rows = agent.replay.rows_at(np.arange(4))
    assert rows.obs.dtype == torch.uint8 and rows.obs.shape == (4, 12, 12, 1)
    assert agent.replay.frames.frame_bytes == 144


# ---- runs


QUICK: dict[str, dict[str, Any]] = {
    "ppo": {"rollout_steps": 16, "num_envs": 4},
    "dqn": {"learning_starts": 40, "buffer_size": 64, "batch_size": 16},
    "reinforce": {"num_envs": 4},
    "grpo": {"num_envs": 4, "group_size": 4},
}


def weights(run: Run) -> dict[str, Tensor]:
    agent: Any = run.agent
    return (agent.q if hasattr(agent, "q") else agent.policy).state_dict()


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[] if name in ("ppo", "dqn") else pytest.mark.slow)
        for name in QUICK
    ],
)
def test_a_run_on_images_resumes_bit_for_bit(algorithm: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0} | QUICK[algorithm]
    if algorithm != "dqn":
        options["anneal_learning_rate"] = False
    else:
        options["epsilon"] = 0.5
    rlbook.train(algorithm, "ImageRoom-v0", steps=90, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=170)
    options["steps"] = 170
    whole = weights(rlbook.train(algorithm, "ImageRoom-v0", **options))
    assert all(torch.equal(weight, whole[name]) for name, weight in weights(again).items())


def test_all_of_rainbows_parts_on_images_resume_bit_for_bit(tmp_path: Path) -> None:
    """Filters, then noisy streams of distributions; the cut lies behind the first update."""
    options: dict[str, Any] = {
        "hidden_sizes": (8, 8),
        "eval_every": 0,
        "importance_exponent": 0.5,
        "dueling": True,
        "prioritized": True,
        "n_step": 3,
        "noisy": True,
        "distributional": True,
        "num_envs": 2,
        **QUICK["dqn"],
    }
    rlbook.train("dqn", "ImageRoom-v0", steps=90, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=170)
    whole = rlbook.train("dqn", "ImageRoom-v0", steps=170, **options)
    assert again.agent.optimizer.steps > 10  # type: ignore[attr-defined]
    assert all(torch.equal(weight, weights(whole)[name]) for name, weight in weights(again).items())


def test_a_replay_folder_changes_where_the_frames_lie_and_nothing_else(tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0} | QUICK["dqn"]
    disk = tmp_path / "disk"
    disk.mkdir()
    out: dict[str, Any] = {"out": tmp_path / "run", "replay_folder": disk}
    whole = weights(rlbook.train("dqn", "ImageRoom-v0", steps=170, **options, epsilon=0.5))
    run = rlbook.train("dqn", "ImageRoom-v0", steps=90, **options, **out, epsilon=0.5)
    frames = run.agent.replay.frames  # type: ignore[attr-defined]
    assert frames.folder == disk and not list(disk.iterdir())
    again = rlbook.load(tmp_path / "run").resume(steps=170)
    assert all(torch.equal(weight, whole[name]) for name, weight in weights(again).items())
    disk.rmdir()  # whoever only plays the run does without
    assert rlbook.load(tmp_path / "run").agent.replay.frames.folder is None  # type: ignore[attr-defined]


def test_the_size_of_the_replay_buffer_is_said_before_training() -> None:
    run = Run(Request.build("dqn", "ImageRoom-v0", hyperparameters={"buffer_size": 10**6}))
    assert "replay buffer: up to 0.14 GB of memory for 1,000,000 frames, and one frame more" in (
        " ".join(run.notes)
    )
    with pytest.raises(RequestError, match=r"GB of memory, and .* replay_folder keeps the frames"):
        agent_of("dqn", hyperparameters={"buffer_size": 10**12})


@pytest.mark.parametrize("kind", ["missing", "vectors", "table"])
def test_a_replay_folder_of_no_use_is_refused(kind: str, tmp_path: Path) -> None:
    algorithm, env, folder, message = {
        "missing": ("dqn", "ImageRoom-v0", tmp_path / "none", "must be a folder that exists"),
        "vectors": ("dqn", "CartPole-v1", tmp_path, "is for observations that are images"),
        "table": ("q_learning", "Maze-v0", tmp_path, "q_learning has no use for replay_folder"),
    }[kind]
    with pytest.raises(RequestError, match=message):
        rlbook.train(algorithm, env, steps=10, replay_folder=folder, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


LEARNING: dict[str, dict[str, Any]] = {
    "ppo": {
        "steps": 12_000,
        "num_envs": 16,
        "rollout_steps": 32,
        "batch_size": 128,
        "learning_rate": 1e-3,
    },
    "dqn": {"steps": 6_000, "hidden_sizes": (64,)},
    "reinforce": {"steps": 24_000},
    "grpo": {"steps": 24_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("algorithm", LEARNING)
def test_the_shortest_way_through_the_room_is_learned_from_its_image(
    algorithm: str, seed: int
) -> None:
    run = rlbook.train(algorithm, "ImageRoom-v0", seed=seed, eval_every=0, **LEARNING[algorithm])
    assert detours(run.agent, ImageRoom()) == 0


@pytest.mark.slow
def test_the_way_is_cloned_from_an_expert_that_sees_the_image() -> None:
    expert = rlbook.train("reinforce", "ImageRoom-v0", seed=0, eval_every=0, steps=24_000)
    for seed in range(3):
        run = rlbook.train(
            "behavior_cloning",
            "ImageRoom-v0",
            seed=seed,
            expert=expert,
            demonstrations=1_000,
            eval_every=0,
        )
        assert detours(run.agent, ImageRoom()) == 0
