"""A network of one's own in the place of the built-in filters, in every agent that has a network."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import torch
from closeness import assert_near, widths
from gymnasium import spaces

import rlbook
from rlbook.cli.main import main
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.networks.cnn import FeatureNetwork, FeaturePolicy, FeatureReward
from rlbook.networks.critics import Critics
from rlbook.networks.model_spec import ModelSpec
from rlbook.networks.q_network import QNetwork, QSettings
from rlbook.networks.recurrent import RecurrentPolicy
from rlbook.networks.recurrent_q import RecurrentQ
from rlbook.runs.options import BUDGETS
from rlbook.runs.request import Request
from rlbook.runs.run import Run

CATCH = spaces.Box(0, 255, (10, 5, 1), np.uint8)
PLACE = "own_networks:Features"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def own(network: Any, **arguments: Any) -> Any:
    """The network as the builders get it."""
    return ModelSpec(network=network, network_kwargs=arguments or None).network


def tensors(state: Any, name: str = "") -> dict[str, Any]:
    """What an agent saves, with all its tensors and arrays by their paths."""
    if isinstance(state, dict):
        found = [tensors(value, f"{name}.{key}") for key, value in state.items()]
        return {key: value for each in found for key, value in each.items()}
    return {name: np.asarray(state).copy()} if isinstance(state, torch.Tensor | np.ndarray) else {}


REPLAY: dict[str, Any] = {
    "learning_starts": 8,
    "batch_size": 8,
    "train_every": 4,
    "buffer_size": 64,
    "gradient_steps": 1,
}
FAMILIES: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "CartPole-v1", {"rollout_steps": 8, "normalize_observation": True}),
    ("ppo", "Pendulum-v1", {"rollout_steps": 8, "separate_networks": False, "activation": "relu"}),
    ("ppo", "Catch-v0", {"rollout_steps": 8, "recurrent": "gru"}),
    ("a2c", "Catch-v0", {"separate_networks": False, "hidden_sizes": ()}),
    ("dqn", "CartPole-v1", REPLAY),
    ("dqn", "Catch-v0", {**REPLAY, "dueling": True, "noisy": True, "distributional": True}),
    ("dqn", "CartPole-v1", {**REPLAY, "recurrent": "gru", "sequence_length": 2, "overlap": 0}),
    ("sac", "CartPole-v1", REPLAY),
    ("sac", "Pendulum-v1", {**REPLAY, "activation": "tanh"}),
    ("td3", "Pendulum-v1", REPLAY),
    ("ddpg", "Pendulum-v1", REPLAY),
]


@pytest.mark.parametrize(("algorithm", "env", "settings"), FAMILIES, ids=str)
def test_every_family_learns_with_it_and_resumes_bit_for_bit(
    algorithm: str, env: str, settings: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"num_envs": 2, "eval_every": 0, "eval_episodes": 1} | settings
    options["learning_rate"] = 1e-3
    if algorithm in ("ppo", "a2c", "dqn"):
        options["anneal_learning_rate"] = False
    model = {"network": own_networks.Features, "network_kwargs": {"width": 7}}
    whole = rlbook.train(algorithm, env, steps=40, model=model, **options)
    rlbook.train(algorithm, env, steps=20, model=model, out="run", **options)
    again = rlbook.load("run", network=own_networks.Features)
    before = tensors(again.agent.state_dict())
    again.resume(steps=40)
    wanted, found = tensors(whole.agent.state_dict()), tensors(again.agent.state_dict())
    layers = {name for name in wanted if "filters." in name and name.endswith("layer.weight")}
    assert layers and all(wanted[name].shape[0] == 7 for name in layers)
    assert any((before[name] != found[name]).any() for name in layers)
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("algorithm", ["reward_model", "fitted_q"])
def test_what_learns_from_recordings_has_it_too(algorithm: str) -> None:
    run = rlbook.train(algorithm, "Catch-v0", passes=1, walks=4, model={"network": PLACE},
                       allow_import=True)  # fmt: skip
    names = tensors(run.agent.state_dict())
    assert any("filters.layer.weight" in name for name in names)


SEVERAL: dict[str, tuple[str, dict[str, Any], int]] = {
    "iql": ("CartPole-v1", {"passes": 1, "walks": 2, "batch_size": 16}, 4),
    "gail": ("Maze-v0", {"steps": 8, "rollout_steps": 8, "demonstrations": 9, "num_envs": 1}, 3),
    "alphazero": (
        "ShortCorridor-v0",
        {"episodes": 1, "simulations": 2, "train_every": 1, "batch_size": 4, "gradient_steps": 1},
        1,
    ),
    "mbpo": ("Pendulum-v1", {**REPLAY, "steps": 16, "model_steps": 2, "model_batch_size": 8}, 3),
}
"""Algorithm → an environment, a short budget, and how many networks learn."""


@pytest.mark.parametrize("algorithm", SEVERAL)
def test_each_network_of_an_agent_learns_behind_one_of_its_own(algorithm: str) -> None:
    """IQL's policy, value and two critics; GAIL's policy, critic and discriminator; AlphaZero's
    one; MBPO's policy and two critics."""
    env, options, count = SEVERAL[algorithm]
    model = {"network": own_networks.Features}
    run = rlbook.train(algorithm, env, model=model, eval_every=0, **options)
    before = tensors(run.agent.state_dict())
    budget: dict[str, Any] = {name: n for name, n in options.items() if name in BUDGETS}
    after = tensors(run.train(**budget).agent.state_dict())
    own = [name for name in before if "filters." in name and "layer.weight" in name]
    learning = [name for name in own if ".target." not in name and "moment" not in name]
    assert len(learning) == count, own
    assert all((before[name] != after[name]).any() for name in learning)
    agent = rlbook.load(run.save("saved"), network=own_networks.Features).agent
    found = tensors(agent.state_dict())
    assert all(np.array_equal(found[name], after[name]) for name in own)


def built(kind: str, network: Any) -> torch.nn.Module:
    """A network over Catch's images, with small filters, or one of one's own."""
    three, box = spaces.Discrete(3), spaces.Box(-1, 1, (2,))
    shared = {"critic": True, "hidden_sizes": (8,), "network": network}
    parts = QSettings(dueling=True, support=(-1.0, 1.0, 5))
    memory = QSettings(recurrent="gru")
    made: dict[str, Any] = {
        "actor": lambda: FeatureNetwork(CATCH, (8, 3), generator(), network=network),
        "policy": lambda: FeaturePolicy(CATCH, three, generator(), **shared),
        "shared": lambda: FeaturePolicy(CATCH, box, generator(), shared=True, **shared),
        "critics": lambda: Critics(
            CATCH, three, generator(), count=2, hidden_sizes=(8,), network=network
        ),
        "rainbow": lambda: QNetwork(CATCH, 3, (8, 8), generator(), parts, network),
        "drqn": lambda: RecurrentQ(CATCH, 3, (8,), generator(), memory, network),
        "reward": lambda: FeatureReward(CATCH, three, generator(), (8,), network),
        "gru": lambda: RecurrentPolicy(
            FeaturePolicy(CATCH, three, generator(), **shared), "gru", generator()
        ),
    }
    return made[kind]()


def loss(kind: str, network: Any) -> Any:
    """A number that every output has a part in."""
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, *CATCH.shape), np.uint8))
    if kind in ("policy", "shared"):
        action = torch.zeros(4, 2) if kind == "shared" else torch.arange(4) % 3
        mask = torch.ones(4, dtype=torch.bool)
        return sum(x.square().mean() for x in network.evaluate(Batch(obs, action, mask, mask)))
    if kind == "gru":
        state, starts = torch.zeros(2, network.state_size), torch.zeros(2, 2, dtype=torch.bool)
        outputs = network(obs.unflatten(0, (2, 2)), state, starts)
        return sum(output.square().mean() for output in outputs)
    if kind == "drqn":
        q, state = network.step(obs, torch.zeros(4, network.state_size))
        return q.square().mean() + state.square().mean()
    outputs = network(obs, torch.arange(4) % 3) if kind == "reward" else network(obs)
    return outputs.square().mean()


KINDS = ["actor", "policy", "shared", "critics", "rainbow", "drqn", "reward", "gru"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_the_built_in_filters_has_their_loss_and_their_gradients(kind: str) -> None:
    ours, theirs = built(kind, own(own_networks.SmallFilters)), built(kind, None)
    ours.load_state_dict(theirs.state_dict())  # the names are the same
    found, wanted = loss(kind, ours), loss(kind, theirs)
    terms = 60 * 9 * widths(theirs)
    assert_near(found, wanted, terms=terms)
    found.backward()
    wanted.backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None), name
        if mine.grad is not None and other.grad is not None:
            assert_near(mine.grad, other.grad, terms=terms, size=max(1.0, wanted.item()))


def test_weights_come_from_the_generator_alone_and_the_global_one_is_left_as_it_was() -> None:
    def weights(seed: int, noise: int) -> torch.Tensor:
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        network = FeatureNetwork(CATCH, (3,), generator(seed), network=own(own_networks.Features))
        assert torch.equal(before, torch.get_rng_state())
        return torch.cat([each.reshape(-1) for each in network.parameters()])

    assert torch.equal(weights(0, 0), weights(0, 1))
    assert not torch.equal(weights(0, 0), weights(1, 0))


def test_actor_and_critic_have_one_each_and_a_shared_head_the_actors() -> None:
    pair: Any = built("policy", own(own_networks.Features))
    assert not torch.equal(pair.actor.filters.layer.weight, pair.critic.filters.layer.weight)
    one: Any = built("shared", own(own_networks.Features))
    assert sum(isinstance(each, own_networks.Features) for each in one.modules()) == 1


def as_bytes(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Box(-2, 2, (3,), np.float32), lambda x: x),
        (as_bytes(10, 5, 1), lambda x: np.moveaxis(x, -1, -3) / 255),
        (as_bytes(3, 10, 10), lambda x: x / 255),
        (as_bytes(4, 12, 12, 3), lambda x: np.moveaxis(x, -1, -3).reshape(10, 12, 12, 12) / 255),
        (spaces.Box(0, 1, (6, 6, 2), np.bool_), lambda x: np.moveaxis(x, -1, -3)),  # type: ignore[call-overload]
    ],
)
def test_it_sees_vectors_as_they_are_and_images_with_channels_first(
    space: spaces.Box, seen: Any
) -> None:
    told: list[Any] = []

    class Looks(own_networks.Features):
        def __init__(self, space: Any) -> None:
            super().__init__(space)
            told.append(space)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            told.append(x)
            return super().forward(x)

    network = FeatureNetwork(space, (3,), generator(), network=own(Looks))
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(10)])
    assert network(torch.from_numpy(obs).unflatten(0, (2, 5))).shape == (2, 5, 3)
    expected = torch.from_numpy(np.asarray(seen(obs), dtype=np.float32))
    assert told[0].shape == expected.shape[1:] and told[-1].dtype == torch.float32
    assert_near(told[-1], expected)


@pytest.mark.parametrize("shared", [False, True])
def test_acting_and_learning_see_the_same_standardised_observations(shared: bool) -> None:
    space, three = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)
    network = own(own_networks.Features)
    settings: dict[str, Any] = {"critic": True, "shared": shared, "network": network}
    policy = FeaturePolicy(space, three, generator(), normalize_observation=True, **settings)
    obs = 5.0 + torch.rand(4, 3, generator=generator())
    policy.normalizer.update(obs)
    batch = Batch(obs, torch.arange(4) % 3, obs[:, 0], torch.ones(4, dtype=torch.bool))
    log_prob, _, value = policy.evaluate(batch)
    terms = widths(policy)
    assert_near(value, policy.value(obs), terms=terms, size=1.0)
    wanted = policy.distribution(obs).log_prob(batch.action)
    assert_near(log_prob, wanted, terms=terms)


def test_one_without_weights_is_an_mlp() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    network = FeatureNetwork(space, (4, 2), generator(), network=own(own_networks.Identity))
    x = torch.rand(5, 3)
    assert torch.equal(network(x), network.head(x))


def test_an_extractor_of_stable_baselines3_serves_as_it_is_and_stays_half_frozen() -> None:
    model = {"network": own_networks.Extractor, "network_kwargs": {"features_dim": 4}}
    run = rlbook.train(
        "ppo", "CartPole-v1", steps=32, rollout_steps=8, num_envs=2, eval_every=0, model=model
    )
    policy: Any = run.agent.policy  # type: ignore[attr-defined]
    frozen = {name for name, each in policy.named_parameters() if not each.requires_grad}
    assert {name.rpartition(".")[0] for name in frozen} == {
        "actor.filters.frozen",
        "critic.filters.frozen",
    }
    assert policy.actor.features_size == 4


def test_natures_extractor_of_stable_baselines3_serves_as_it_is() -> None:
    layers = pytest.importorskip("stable_baselines3.common.torch_layers")
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    network = FeatureNetwork(space, (3,), generator(), network=own(layers.NatureCNN))
    assert network.features_size == 512
    assert network(torch.zeros(2, *space.shape, dtype=torch.uint8)).shape == (2, 3)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("own_networks:Nobody", "network 'own_networks:Nobody' cannot be imported"),
        ("no_such_module:Features", "No module named 'no_such_module'"),
        ("own_networks.py:Features", "without .py, .* own_networks:Features"),
        ("own_networks:NoModule", "must be a class derived from torch.nn.Module"),
        ("own_networks:PlainNumber", "must be a class derived from torch.nn.Module, got 3"),
        ("own_networks:makes_a_number", "must make a torch.nn.Module, got int"),
        ("own_networks:NoSize", "must have features_size, .* at least 1, got None"),
        (
            "own_networks:WrongShape",
            r"must map observations \[2, 4\] to features \[2, 6\], got \[2, 5\]",
        ),
        ("own_networks:Fails", r"fails on observations \[2, 4\] \(IndexError: no such axis\)"),
        ("own_networks:Dropping", "the same features each time"),
        ("own_networks:BatchNormalised", "the same features each time"),
        ("own_networks:CountsItsCalls", "the same features each time"),
        ("resnet", "one of small, nature, impala, or module:Class of your own"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_nothing_is_written(
    network: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_networks, "PlainNumber", 3, raising=False)
    words = ["train", "ppo", "CartPole-v1", "--model.network", network, "--allow-import"]
    assert main([*words, "--out", "run"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("algorithm", "env", "model", "said"),
    [
        ("ppo", "CartPole-v1", {"network": PLACE}, "give --allow-import"),
        ("ppo", "CartPole-v1", {"network_kwargs": {"width": 3}}, "give network, too"),
        ("dqn", "Catch-v0", {"network": "small", "network_kwargs": {}}, "give network, too"),
        (
            "ppo",
            "CartPole-v1",
            {"network": own_networks.Features, "network_kwargs": {"depth": 3}},
            r"cannot be made of Box\(.* unexpected keyword argument 'depth'",
        ),
        (
            "ppo",
            "CartPole-v1",
            {"network": functools.partial(print)},
            "network must be a class, or",
        ),
        ("ppo", "CartPole-v1", {"network": torch.nn.Linear(4, 2)}, "a space, got a Linear"),
        ("sft", "Addition-v0", {"network": own_networks.Features}, "observations here are text"),
        (
            "world_model",
            "Pendulum-v1",
            {"network": own_networks.Features},
            "world_model takes no network of your own; ",
        ),
    ],
)
def test_what_has_no_use_for_it_says_so(
    algorithm: str, env: str, model: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        Run(Request.build(algorithm, env, model=model))


def test_a_strangers_folder_imports_nothing_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["CartPole-v1", "--steps", "16", "--rollout-steps", "8", "--num-envs", "2"]
    asked = ["--model.network", PLACE, "--model.network_kwargs.width", "3", "--allow-import"]
    assert main(["train", "ppo", *words, *asked, "--eval-every", "0", "--out", "run"]) == 0
    assert "rlbook evaluate run --allow-import" in capsys.readouterr().out
    assert main(["evaluate", "run", "--episodes", "1"]) == 2
    assert "--allow-import" in capsys.readouterr().err
    assert main(["evaluate", "run", "--episodes", "1", "--allow-import"]) == 0
    run = rlbook.load("run", allow_import=True)
    assert run.predict(np.zeros(4, np.float32)) in (0, 1)
    assert run.agent.policy.actor.features_size == 3  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="started with network own_networks:Features, not with"):
        rlbook.load("run", network=own_networks.Identity)
    capsys.readouterr()
    assert main(["export", "run", "model", "--allow-import"]) == 2
    assert "only a language model" in capsys.readouterr().err


def test_a_class_that_cannot_be_imported_is_given_again(tmp_path: Path) -> None:
    class Local(own_networks.Features):
        pass

    options: dict[str, Any] = {"rollout_steps": 8, "num_envs": 2, "eval_every": 0}
    options |= {"model": {"network": Local}, "out": tmp_path / "run"}
    rlbook.train("ppo", "CartPole-v1", steps=16, **options)
    with pytest.raises(RequestError, match=r"<locals>.Local' would import"):
        rlbook.load(tmp_path / "run")
    assert rlbook.load(tmp_path / "run", network=Local).steps == 16
    again = rlbook.train("ppo", "CartPole-v1", steps=16, resume=True, **options)
    assert again.steps == 16


@pytest.mark.parametrize("settings", [{"hidden_sizes": ()}, {"network": "small"}], ids=str)
def test_an_activation_without_effect_is_refused(settings: dict[str, Any]) -> None:
    network = settings.pop("network", None)
    model = None if network is None else {"network": network}
    with pytest.raises(RequestError, match="activation has no effect"):
        rlbook.train("ppo", "Catch-v0", steps=8, activation="relu", model=model, **settings)


def test_a_language_model_has_no_use_for_an_activation() -> None:
    assert "whose layers are given" in LanguageModelPolicy.idle["activation"]


@pytest.mark.parametrize(
    ("algorithm", "env", "default"),
    [
        ("ppo", "CartPole-v1", "tanh"),
        ("ppo", "Catch-v0", "tanh"),
        ("behavior_cloning", "CartPole-v1", "tanh"),
        ("dqn", "CartPole-v1", "relu"),
        ("fitted_q", "Catch-v0", "relu"),
        ("sac", "CartPole-v1", "relu"),
        ("td3", "Pendulum-v1", "relu"),
    ],
)
def test_the_activation_is_of_every_hidden_layer(algorithm: str, env: str, default: str) -> None:
    def activations(**settings: Any) -> set[Any]:
        agent = Run(Request.build(algorithm, env, hyperparameters=settings)).agent
        networks = [each for each in vars(agent).values() if isinstance(each, torch.nn.Module)]
        return {
            each.activation
            for network in networks
            for each in network.modules()
            if len(getattr(each, "layers", ())) > 1 and hasattr(each, "activation")
        }

    assert activations() == {default}
    other = "relu" if default == "tanh" else "tanh"
    assert activations(activation=other) == {other}
