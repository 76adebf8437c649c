"""`--device`: the same training where the networks are on another device. The cases on "cuda" run
where there is a GPU.

What needs no GPU to be wrong is tested without one: what a GPU is given is the plain code (but for
the recorded step of `tests/equivalence/test_decoders.py`), and a run goes from one form to the
other.
"""

from __future__ import annotations

import copy
import dataclasses
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_near, largest, widths
from gymnasium import spaces
from torch import Tensor

import rlbook
from rlbook.agent import Parts, Step
from rlbook.algorithms.policy.actor_critic_agent import surrogate_loss
from rlbook.algorithms.policy.ppo import PPO
from rlbook.data import Steps
from rlbook.data.episodes import PairedBatch, RankedBatch
from rlbook.data.rollout import Batch, Rollout, to_device
from rlbook.errors import RequestError
from rlbook.fast_forms import use_plain_forms
from rlbook.functional.value_losses import squared_value_loss
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.mlp import MLPPolicy
from rlbook.networks.model_spec import ModelSpec
from rlbook.networks.optimizer import Adam, Group, adam
from rlbook.networks.policy import module_device
from rlbook.registry import agent_class
from rlbook.runs.demonstrations import random_walks
from rlbook.runs.options import RunOptions
from rlbook.runs.parts import closest_device
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.checkpoints import load_checkpoint
from rlbook.runs.storage.state_encoding import encode

GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
)

# (algorithm, environment) → options, steps of the whole run, step at which it is cut; nothing
# follows the budget
Case = tuple[str, str, dict[str, Any], int, int]
CASES: list[Case] = [
    (
        "ppo",
        "CartPole-v1",
        {
            "num_envs": 4,
            "rollout_steps": 16,
            "epochs": 2,
            "normalize_observation": True,
            "kl_coef": 0.1,
        },
        256,
        100,
    ),
    (
        "ppo",
        "Pendulum-v1",
        {"num_envs": 2, "rollout_steps": 16, "epochs": 2, "normalize_reward": True},
        128,
        36,
    ),
    ("ppo", "Maze-v0", {"num_envs": 4, "rollout_steps": 16, "separate_networks": False}, 256, 100),
    (
        "dqn",
        "CartPole-v1",
        {
            "learning_starts": 50,
            "train_every": 50,
            "gradient_steps": 4,
            "double": True,
            "epsilon": 0.1,
        },
        300,
        130,
    ),
    (
        "dqn",
        "CartPole-v1",
        {
            "learning_starts": 50,
            "train_every": 50,
            "gradient_steps": 4,
            "double": True,
            "importance_exponent": 0.5,
            "dueling": True,
            "prioritized": True,
            "n_step": 3,
            "noisy": True,
            "distributional": True,
        },
        300,
        130,
    ),
    (
        "dqn",
        "Maze-v0",
        {"learning_starts": 50, "train_every": 50, "gradient_steps": 4, "epsilon": 0.1},
        300,
        130,
    ),
    ("reinforce", "CartPole-v1", {"num_envs": 4, "baseline": "learned"}, 300, 40),
    ("dpo", "CartPole-v1", {"num_envs": 4, "group_size": 2}, 300, 40),
    ("behavior_cloning", "Maze-v0", {"demonstrations": 200}, 8, 3),
    ("reward_model", "Maze-v0", {"walks": 40}, 8, 3),
    ("reward_model", "Addition-v0", {"batch_size": 8, "walks": 500}, 4, 2),
    ("grpo", "Addition-v0", {"num_envs": 8, "group_size": 4, "kl_coef": 0.01}, 200, 70),
    ("ppo", "Addition-v0", {"num_envs": 8}, 100, 50),
    ("dpo", "Addition-v0", {"num_envs": 8, "group_size": 4}, 100, 50),
]


TEXTS = pytest.mark.skipif(
    find_spec("transformers") is None, reason="a machine with a GPU may have torch alone"
)


def params(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(case, id=name_of(case), marks=[TEXTS] if case[1] == "Addition-v0" else [])
        for case in cases
    ]


def name_of(case: Case) -> str:
    return f"{case[0]}-{case[1]}" + "-all-parts" * ("noisy" in case[2])


def numbers(run: Run) -> dict[str, bytes]:
    """Every array of the agent's state."""
    return {name: array.tobytes() for name, array in encode(run.agent.state_dict())[1].items()}


def network(run: Run) -> torch.nn.Module:
    return next(
        getattr(run.agent, name) for name in ("q", "policy", "network") if hasattr(run.agent, name)
    )


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), GPU])
@pytest.mark.parametrize("case", params(CASES))
def test_a_run_trains_saves_and_goes_on_bit_for_bit_on_its_device(
    case: Case, device: str, tmp_path: Path
) -> None:
    algorithm, env, options, steps, cut = case
    fixed = algorithm == "reward_model"
    annealed = {} if fixed else {"anneal_learning_rate": False}  # the cut run has a smaller budget
    options = {"eval_every": 0, "seed": 3, "device": device, **annealed, **options}
    whole = rlbook.train(algorithm, env, steps=steps, out=tmp_path / "whole", **options)
    assert module_device(network(whole)).type == device
    rlbook.train(algorithm, env, steps=cut, out=tmp_path / "cut", **options)
    resumed = rlbook.load(tmp_path / "cut").resume(steps=steps)
    assert numbers(resumed) == numbers(whole)
    _, state = load_checkpoint(tmp_path / "cut")
    tensors = list(tensors_in(state))
    assert tensors and all(tensor.device.type == "cpu" for tensor in tensors)
    if resumed.agent.plays():
        returns = [rlbook.evaluate(run, episodes=4).mean for run in (tmp_path / "whole", resumed)]
        assert returns[0] == returns[1]
    else:
        asked: dict[str, Any] = {"steps": 100, "num_envs": 8, "eval_every": 0, "device": device}
        paid = [
            rlbook.train("reinforce", env, reward_model=str(tmp_path / name), **asked)
            for name in ("whole", "cut")
        ]
        assert numbers(paid[0]) == numbers(paid[1])


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else []
    )
    return [tensor for item in items for tensor in tensors_in(item)]


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("case", params([case for case in CASES if case[0] == "ppo"]))
def test_log_probabilities_and_values_are_those_of_the_plain_code_on_the_cpu(
    case: Case, device: str
) -> None:
    """Within float32's rounding."""
    algorithm, env, options, steps, _ = case
    agent: Any = rlbook.train(
        algorithm, env, steps=steps, eval_every=0, device=device, **options
    ).agent
    interaction = Run(
        Request.build(algorithm, env, num_envs=options["num_envs"])
    )._source.interaction  # type: ignore[attr-defined]
    there, here = Rollout(agent.policy.stores, device), Rollout(agent.policy.stores)

    def learn(step: Step) -> None:
        for rollout in (there, here):
            rollout.add(step, agent._log_prob)

    agent.begin()
    for _ in islice(act_step_reset(interaction, agent.act, learn), 3):
        pass
    plain = copy.deepcopy(agent.policy).to("cpu")
    with torch.no_grad():
        found = agent.policy.evaluate(agent.policy.batch(there))
        with use_plain_forms():
            expected = plain.evaluate(plain.batch(here))
    rounded: dict[str, Any] = {"terms": widths(plain), "size": largest(expected)}
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == device
        assert_near(one, other, **rounded)
    drawn = agent.policy.batch(there)
    assert_near(drawn.log_prob[drawn.mask], found[0][drawn.mask], **rounded)


# ---- torch's device "meta" has shapes and no numbers, is on every machine, and mixes with the CPU as little as a GPU does


def on_meta(*shape: int) -> Tensor:
    return torch.zeros(shape, device="meta")


@pytest.mark.parametrize(
    "action_space", [spaces.Discrete(2), spaces.Box(-1, 1, (2,))], ids=["discrete", "continuous"]
)
def test_an_update_of_an_mlp_stays_on_its_device(action_space: spaces.Space) -> None:
    policy = MLPPolicy(
        4, action_space, torch.Generator().manual_seed(0), critic=True, normalize_observation=True
    ).to("meta")
    action = on_meta(16).long() if isinstance(action_space, spaces.Discrete) else on_meta(16, 2)
    batch = Batch(
        obs=on_meta(16, 4),
        action=action,
        log_prob=on_meta(16),
        mask=on_meta(16) == 0,
        advantage=on_meta(16),
    )
    optimizer = adam([Group([policy])], 1e-3)
    assert isinstance(optimizer, Adam)
    log_prob, entropy, value = policy.evaluate(batch)
    assert entropy is not None and value is not None and batch.advantage is not None
    loss = (
        surrogate_loss(log_prob, batch.log_prob, batch.advantage)
        - entropy.mean()
        + squared_value_loss(value, on_meta(16))
    )
    assert optimizer.step(loss).is_meta and policy.value(torch.zeros(3, 4)).is_meta
    assert policy.normalizer.update(batch.obs) is None


def test_a_reward_model_scores_on_its_device_what_was_recorded_elsewhere() -> None:
    agent: Any = Run(Request.build("reward_model", "Maze-v0")).agent
    agent.network.to("meta")
    agent.parts = dataclasses.replace(agent.parts, device="meta")
    seen = Batch(
        obs=torch.zeros(6, 5, 25),
        action=torch.zeros(6, 5).long(),
        log_prob=torch.zeros(6, 5),
        mask=torch.ones(6, 5) == 1,
    )
    score = agent.score(seen)
    assert score.is_meta and score.shape == (6,)
    assert all(
        part.is_meta for part in RankedBatch(seen, torch.tensor([2, 4]), score).group_scores(score)
    )
    pairs = PairedBatch(seen, seen, None)
    assert agent.loss(agent.network, pairs, config=agent.config).loss.is_meta


def test_a_language_model_reads_on_its_device_what_comes_from_elsewhere() -> None:
    transformers = pytest.importorskip("transformers", reason="a machine may have torch alone")
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 5):
        pytest.skip("it asks for autocast on meta, which torch does not know")
    from rlbook.llm.generation.prompt_rows import PromptRows
    from rlbook.llm.models.causal_lm import logits
    from rlbook.llm.models.compute import set_compute
    from rlbook.llm.models.language_model import LanguageModelPolicy
    from rlbook.llm.models.sources import small_llama

    model = small_llama(torch.Generator().manual_seed(0))
    model.set_attn_implementation("eager")  # the other one looks at the mask's numbers
    policy = LanguageModelPolicy(model, critic=True).to("meta")
    here = PromptRows(
        torch.ones(3, 5).long(),
        torch.tensor([0, 1, 2]),
        torch.zeros(8).long(),
        torch.ones(8, 4).long(),
    )
    for recomputed in (False, True):
        set_compute(policy.model, None, recomputed)
        decoder = policy.decoder()
        for rows in (
            here,
            here.with_prefix("meta"),
            here._replace(index=torch.arange(3), completion=here.completion[:3]),
        ):
            assert logits(policy.model, rows).is_meta and policy.critic(rows).is_meta  # type: ignore[misc]
            assert decoder.prefill(rows, 3).is_meta
            assert decoder.step(torch.zeros(len(rows.index)).long()).is_meta
            decoder.select(torch.tensor([2, 0]))
            assert decoder.step(torch.zeros(2).long()).is_meta
    log_prob = policy._distribution(logits(policy.model, here)[:, :4]).log_prob(
        here.completion.to("meta")
    )
    assert adam([Group([policy.model])], 1e-3).step(log_prob.mean()).is_meta


# ---- which device


def test_a_gpu_is_named_by_its_number() -> None:
    """0 is the first; one that is not there is another one for acting, and refused for training."""
    for name in ("cpu", "cuda", "cuda:0", "cuda:11", "auto"):
        assert RunOptions(device=name).device == name and ModelSpec(device=name).device == name
    for name in ("cuda1", "cuda:", "cuda:-1", "cuda:01", "gpu", "CUDA"):
        sentence = (
            "device must be one of cpu, cuda, cuda:N .the GPU with number N, from 0 on., auto"
        )
        with pytest.raises(RequestError, match=sentence):
            RunOptions(device=name)
        with pytest.raises(ValueError, match=sentence):
            ModelSpec(device=name)
    assert [closest_device("cuda:1", count) for count in (0, 1, 2)] == ["cpu", "cuda", "cuda:1"]
    assert [closest_device("auto", count) for count in (0, 1)] == ["cpu", "cuda"]
    assert [closest_device("cpu", 2), closest_device("cuda", 2)] == ["cpu", "cuda"]


def test_the_model_s_device_may_have_a_number_too() -> None:
    asked = Request.build("grpo", "Addition-v0", model={"device": "cuda:1"}).options
    assert asked.device == "cuda:1" and asked.model is None


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there is a second GPU here")
def test_a_second_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="device 'cuda:1' is not available here; allowed: cpu, "):
        rlbook.train("dqn", "Maze-v0", steps=10, device="cuda:1", out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_is_on_its_device_is_not_copied() -> None:
    here = torch.arange(3)
    assert to_device(here, "cpu") is here and to_device(here, torch.device("cpu")) is here
    assert to_device(here, "meta").is_meta


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_what_goes_to_a_gpu_arrives_there() -> None:
    here = torch.arange(1000)
    assert torch.equal(to_device(here, "cuda").cpu(), here)


# ---- between devices


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("plain_first", [False, True], ids=["fast then plain", "plain then fast"])
@pytest.mark.parametrize("case", params([CASES[0], CASES[3], CASES[8]]))
def test_a_run_of_one_form_is_loaded_by_the_other(
    case: Case, plain_first: bool, tmp_path: Path
) -> None:
    """A GPU is given the plain forms, so this is what a run does that comes from one, or goes
    there, in the middle of an episode."""
    algorithm, env, options, steps, cut = case
    with use_plain_forms(plain_first):
        run = rlbook.train(algorithm, env, steps=cut, eval_every=0, out=tmp_path / "run", **options)
    with use_plain_forms(not plain_first):
        loaded = rlbook.load(tmp_path / "run")
        for name, tensor in network(loaded).state_dict().items():
            assert torch.equal(tensor, network(run).state_dict()[name])
        assert loaded.resume(steps=steps).steps >= steps


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_of_a_gpu_plays_without_one_and_does_not_go_on(tmp_path: Path) -> None:
    sentence = "device 'cuda' is not available here; allowed: cpu, auto"
    with pytest.raises(RequestError, match=sentence):
        rlbook.train("dqn", "Maze-v0", steps=10, device="cuda", out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    Run(Request.build("dqn", "Maze-v0", steps=10, device="cuda")).claim(tmp_path / "run")
    assert rlbook.evaluate(tmp_path / "run", episodes=1).mean <= 0
    with pytest.raises(RequestError, match=sentence):
        rlbook.load(tmp_path / "run").resume()


def test_a_network_is_the_same_before_training_whatever_the_device() -> None:
    first, second = (
        Run(Request.build("ppo", "CartPole-v1", device=device)) for device in ("cpu", "auto")
    )
    for one, other in zip(network(first).parameters(), network(second).parameters(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())


class AsItWas(PPO):
    """Builds as subclasses did before there were parts."""

    def __init__(self, env: Any, config: Any, seed: int = 0) -> None:
        super().__init__(env, config, seed)


def test_a_subclass_without_parts_trains_and_is_given_none_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rlbook.train(AsItWas, "Maze-v0", steps=64, num_envs=4, rollout_steps=16).steps == 64
    monkeypatch.setattr("rlbook.runs.parts.device_of", lambda name: name or "cpu")
    with pytest.raises(
        RequestError, match=r"AsItWas.__init__ has no argument parts, so device cannot be given"
    ):
        rlbook.train(AsItWas, "Maze-v0", steps=64, device="cuda")


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        *((name, "CartPole-v1") for name in ("fitted_q", "cql", "dqn", "ppo")),
        *((name, "Pendulum-v1") for name in ("iql", "sac", "td3", "mbpo", "ppo", "gail")),
    ],
)
def test_a_network_on_another_device_is_given_what_it_reads_there(algorithm: str, env: str) -> None:
    """ "meta" is a device that every machine has. Its tensors hold no numbers, so an answer ends where
    it is read; a tensor that was left on the processor would be refused before."""
    kind = agent_class(algorithm)
    adapted = adapted_vector(kind, EnvRecipe.from_env(env), 2, kind.Config())
    with use_plain_forms(True):
        agent: Any = kind(adapted, kind.Config(), parts=Parts(device="meta"))
        obs, _ = adapted.reset(seed=0)
        asked = [lambda: agent.act(obs, explore=False)]
        if "Steps" in kind.data_kinds:
            request = Request.build(algorithm, env, passes=1, hyperparameters={"walks": 2})
            steps = Steps(random_walks(request, adapted).episodes)
            asked.append(lambda: next(agent.fit(steps)))
        asked += [
            lambda name=name: getattr(agent, name)(obs)
            for name in ("value", "action_values")
            if hasattr(agent, name)
        ]
        for ask in asked:
            with pytest.raises((NotImplementedError, RuntimeError), match="meta tensor"):
                ask()
