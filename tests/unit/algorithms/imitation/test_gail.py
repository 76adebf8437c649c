"""GAIL: its penalty by hand and through the fast MLP, the density ratio that its discriminator
tends to, and the maze."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
from rlbook.agent import Parts
from rlbook.algorithms.imitation.gail import (
    GAIL,
    DiscriminatorBatch,
    discriminator_update,
    gail_discriminator_loss,
)
from rlbook.data import Episode, Episodes
from rlbook.errors import RequestError
from rlbook.functional.adversarial import (
    discriminator_loss,
    gradient_penalty,
    hurry_reward,
    log_ratio_reward,
    survival_reward,
)
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.mlp import MLP
from rlbook.runs.demonstrations import exact_expert
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run


def test_the_discriminators_loss_by_hand() -> None:
    """D = σ(ln 3) = 3/4 of the expert's step, σ(0) = 1/2 of the policy's: ln(4/3) + ln 2. Equal
    logits of 0: 2 ln 2."""
    loss = discriminator_loss(torch.tensor([math.log(3)]), torch.tensor([0.0]))
    assert loss.item() == near(math.log(4 / 3) + math.log(2), dtype="float32", terms=2)
    assert_near(
        discriminator_loss(torch.zeros(3), torch.zeros(5)),
        2 * math.log(2),
        dtype="float32",
        terms=8,
    )


def test_the_three_rewards_by_hand() -> None:
    """D = 3/4: ln 3, -ln(1/4), ln(3/4)."""
    f = torch.tensor([math.log(3)])
    found = [form(f).item() for form in (log_ratio_reward, survival_reward, hurry_reward)]
    assert found == near([math.log(3), math.log(4), math.log(3 / 4)], dtype="float32", terms=2)


def test_the_penalty_of_a_line_is_that_of_its_slope_and_its_gradient_reaches_the_weights() -> None:
    """f = w x with w = (3, 4), ‖w‖ = 5: (5 - 1)², and ∂/∂w = 2 (5 - 1) w / 5."""
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    penalty = gradient_penalty(lambda x: x @ w, torch.randn(7, 2), torch.randn(7, 2), torch.rand(7))
    penalty.backward()
    # the square of 5 - 1, whose slope is 8
    rounded: dict[str, Any] = {"dtype": "float32", "terms": 7 * 2, "size": 8 * 5.0}
    assert penalty.item() == near(16.0, **rounded)
    assert_near(w.grad, torch.tensor([8 * 3 / 5, 8 * 4 / 5]), **rounded)


def test_the_norm_is_taken_for_each_sample_between_the_two() -> None:
    """f = ½ ‖x‖², so the slope is x. Shares 1 and ½ of (3, 4), (0, 8) with (9, 9), (0, 0): norms 5
    and 4, (16 + 9) / 2."""
    expert, policy = torch.tensor([[3.0, 4.0], [0.0, 8.0]]), torch.tensor([[9.0, 9.0], [0.0, 0.0]])
    penalty = gradient_penalty(
        lambda x: x.square().sum(-1) / 2, expert, policy, torch.tensor([1.0, 0.5])
    )
    assert penalty.item() == near((16 + 9) / 2, dtype="float32", terms=4, size=8 * 5.0)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_second_gradients_through_the_fast_mlp_are_right(activation: str) -> None:
    """Beside the same layers applied by torch alone, by input and by weights; and against finite
    differences."""
    network = MLP((5, 8, 8, 1), torch.Generator().manual_seed(0), activation=activation).double()
    torch.manual_seed(1)
    expert, policy, share = (
        torch.randn(6, 5).double(),
        torch.randn(6, 5).double(),
        torch.rand(6).double(),
    )

    def plain(x: torch.Tensor) -> torch.Tensor:
        for layer in list(network.layers)[:-1]:
            x = getattr(torch, activation)(layer(x))
        return network.layers[-1](x).squeeze(-1)

    gradients = []
    for logit in (lambda x: network(x).squeeze(-1), plain):
        penalty = gradient_penalty(logit, expert, policy, share)
        found = torch.autograd.grad(penalty, list(network.parameters()), allow_unused=True)
        gradients.append([torch.zeros(1) if part is None else part for part in found])
    for ours, theirs in zip(*gradients, strict=True):
        assert_near(ours, theirs, terms=6 + widths(network), size=10.0)
    assert any(part.abs().max() > 1e-3 for part in gradients[0])
    if activation == "tanh":  # a kink has no second derivative to compare with
        assert torch.autograd.gradgradcheck(network, (expert.requires_grad_(),))


@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_the_discriminator_minimises_its_loss_and_so_much_of_the_penalty(weight: float) -> None:
    config = GAIL.Config(gradient_penalty=weight, hidden_sizes=(4,))
    agent = GAIL(adapted_vector(GAIL, EnvRecipe.from_env("Maze-v0"), 2, config), config)
    generator = torch.Generator().manual_seed(0)
    expert, policy = (
        torch.randn(6, agent.discriminator.network.weights[0].shape[1], generator=generator)
        for _ in range(2)
    )
    share = torch.rand(6, generator=generator)
    batch = DiscriminatorBatch(expert, policy, share)
    found = gail_discriminator_loss(agent.discriminator, batch, config=config)
    f = agent.discriminator.network
    parts = [discriminator_loss(f(expert).squeeze(-1), f(policy).squeeze(-1)).item()]
    parts.append(gradient_penalty(lambda x: f(x).squeeze(-1), expert, policy, share).item())
    assert found.loss.item() == near(
        parts[0] + weight * parts[1], dtype="float32", terms=6 * widths(f)
    )
    assert (
        found.metrics["discriminator_loss"].item()
        == near(parts[0], dtype="float32", terms=6 * widths(f))
        and parts[1] > 0.1
    )


def occupancy(policy: np.ndarray, gamma: float) -> np.ndarray:
    """ρ(s, a) of a policy on the maze, exactly, discounted: [S, A], with sum 1."""
    model = exact_model()
    chain, _ = model.chain(policy)
    visits = np.linalg.solve(np.eye(model.num_states) - gamma * chain.toarray().T, model.initial)
    visits[model.terminal] = 0.0
    return visits[:, None] * policy / visits.sum()


def exact_model() -> Any:
    return rlbook.envs.TabularMDP.from_env(rlbook.make("Maze-v0"))


@pytest.mark.slow
def test_the_discriminator_tends_to_the_log_ratio_of_the_occupancies() -> None:
    """Steps drawn from the exact occupancies of two fixed policies; without the penalty, which
    bends f. Of 80 000 steps a pair with 1 in 100 has 800, and the log ratio a standard error of √(2
    / 800) = 0.05."""
    recipe = EnvRecipe.from_env("Maze-v0")
    best = exact_expert(recipe).greedy_policy()  # type: ignore[attr-defined]
    best = best if best.ndim == 2 else np.eye(4)[best]
    rho = [occupancy(policy, 0.9) for policy in (0.6 * best + 0.1, 0.2 * best + 0.2)]
    rng, eye = np.random.default_rng(0), np.eye(25, dtype=np.float32)
    drawn = [np.divmod(rng.choice(100, size=80_000, p=each.ravel()), 4) for each in rho]
    data = Episodes([Episode(eye[drawn[0][0]], drawn[0][1])])
    config = GAIL.Config(
        gradient_penalty=0.0, batch_size=4_096, discriminator_steps=400, discriminator_rate=1e-3
    )
    agent = GAIL(
        adapted_vector(GAIL, recipe, 2, config), config, 0, Parts(demonstrations=lambda: data)
    )
    steps = agent.discriminator.input(
        torch.from_numpy(eye[drawn[1][0]]), torch.from_numpy(drawn[1][1])
    )
    discriminator_update(
        agent.discriminator, agent.judge, steps, agent.expert_steps, config, agent.drawing
    )
    often = (rho[0] > 0.01) & (rho[1] > 0.01)
    state, action = np.nonzero(often)
    with torch.no_grad():
        found = agent.discriminator(torch.from_numpy(eye[state]), torch.from_numpy(action)).numpy()
    exact = np.log(rho[0][often] / rho[1][often])
    assert len(exact) >= 8 and exact.min() < -0.2 and exact.max() > 0.8
    assert np.abs(found - exact).max() < 0.25


def test_the_policy_is_paid_by_the_discriminator_and_the_log_shows_the_environments_return() -> (
    None
):
    run: Any = rlbook.train("gail", "Maze-v0", steps=1_024, reward="survival", eval_every=0)
    assert all(report["learned_reward"] > 0 for report in run.metrics if "learned_reward" in report)
    assert max(run.episode_returns) < 4 and min(run.episode_returns) < 0


@pytest.mark.parametrize(
    ("env", "options", "sentence"),
    [
        ("Addition-v0", {}, "it compares single steps, but a text is scored as a whole"),
        (
            "CartPole-v1",
            {},
            r"needs recorded data or an expert \(--data or --expert, data=… or expert=…\)",
        ),
        (
            "Maze-v0",
            {"reward_model": "x"},
            "gail learns its reward itself, so it has no use for a reward_model",
        ),
        ("Maze-v0", {"passes": 3}, "passes are counted over recorded data"),
        ("Maze-v0", {"reward": "log_ration"}, "did you mean 'log_ratio'"),
    ],
)
def test_what_cannot_be_imitated_so_is_refused(
    env: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        rlbook.train("gail", env, **options)


def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "steps": 300,
        "num_envs": 4,
        "rollout_steps": 16,
        "batch_size": 32,
        "demonstrations": 50,
        "eval_every": 0,
    }
    whole: Any = rlbook.train("gail", "Maze-v0", **settings)

    def stop(run: Run) -> None:
        if run.agent.optimizer.steps:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("gail", "Maze-v0", out=tmp_path / "run", on_report=stop, **settings)
    assert "data: " in (tmp_path / "run" / "config.yaml").read_text()
    resumed: Any = rlbook.load(tmp_path / "run").resume()
    assert resumed.episode_returns == whole.episode_returns
    for network in ("policy", "discriminator"):
        for ours, theirs in zip(
            *(getattr(run.agent, network).parameters() for run in (whole, resumed)), strict=True
        ):
            assert torch.equal(ours, theirs)


def one_episode(seed: int) -> float:
    """What the greedy policy earns after imitating eight steps: one episode of the exact policy.
    PPO's rewards are the discriminator's."""
    run = rlbook.train("gail", "Maze-v0", steps=16_000, demonstrations=8, seed=seed, eval_every=0)
    return rlbook.evaluate(run, episodes=1).mean


@pytest.mark.slow
def test_one_episode_of_the_expert_is_enough_for_the_maze() -> None:
    assert one_episode(0) == 3.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_it_is_enough_from_every_seed(seed: int) -> None:
    assert one_episode(seed) == 3.0


def test_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="recurrent must be none, got 'lstm': D compares"):
        GAIL.Config(recurrent="lstm")


def test_a_reference_policy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kl_coef must be 0\.0, got 0\.1: the expert takes"):
        GAIL.Config(kl_coef=0.1)
