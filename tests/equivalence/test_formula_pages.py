"""The formulas of the small pages, in JavaScript, are this package's; and no slider leads to
anything that cannot be drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near
from javascript import returned

from rlbook.algorithms.tabular import bandit
from rlbook.book.exercises.part_two_memory import next_belief
from rlbook.envs.t_maze import (
    CORRIDOR,
    FORWARD,
    JUNCTION,
    SIGN_DOWN,
    SIGN_UP,
    UP,
    t_maze_model,
    t_maze_views,
)
from rlbook.envs.tabular.belief_mdp import hidden_model
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.advantages import gae
from rlbook.functional.bandits import preference_gradient, softmax, upper_confidence_bound
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.functional.post_training.distillation_losses import forward_kl
from rlbook.plots.pages import formula_page
from rlbook.plots.pages.templates import text_of


def run(script: str, data: object = None) -> Any:
    """What a script behind the formulas and the pages returns for data."""
    return returned(
        formula_page.engine() + "\n" + text_of("pages/formula_play/pages.js"), script, data
    )


def test_the_clipped_objective_and_its_slope_are_the_losses() -> None:
    rng = np.random.default_rng(0)
    cases = [
        [float(rng.uniform(0.05, 2)), float(rng.normal()), *rng.uniform(0.05, 0.5, 2).tolist()]
        for _ in range(200)
    ]
    script = "return data.map(c => [clippedSurrogate(...c), clippedSlope(...c)]);"
    for (ratio, advantage, low, high), (value, slope) in zip(
        cases, run(script, cases), strict=True
    ):
        log_ratio = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
        loss = clipped_surrogate_loss(
            log_ratio,
            torch.zeros_like(log_ratio),
            torch.full_like(log_ratio, advantage),
            clip=low,
            clip_high=high,
        )
        loss.backward()
        assert -loss.item() == near(value, terms=4, size=5)
        assert log_ratio.grad is not None
        assert -log_ratio.grad.item() == near(slope * ratio, terms=4, size=5)  # dρ = ρ d log ρ


def test_the_advantages_are_gae_and_the_weights_those_of_the_lambda_return() -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 8))
    for lam, gamma in ((0.0, 0.9), (0.5, 1.0), (0.9, 0.99), (1.0, 1.0)):
        script = "return { ...gae(data[0], data[1], data[2], data[3]), weights: lambdaWeights(data[3], 8) };"
        found = run(script, [rewards.tolist(), values.tolist(), gamma, lam])
        ended = torch.tensor([False] * 7 + [True])
        expected = gae(
            torch.tensor(rewards),
            torch.tensor(values),
            torch.tensor([*values[1:], 0.0]),
            ended,
            torch.zeros(8, dtype=torch.bool),
            gamma=gamma,
            gae_lambda=lam,
        )
        assert torch.tensor(found["advantages"], dtype=torch.float64) == near(
            expected, terms=16, size=20
        )
        assert sum(found["weights"]) == near(1.0, terms=8)
        returns = [  # n rewards, and then the value, or the end
            sum(gamma**k * rewards[k] for k in range(n)) + (gamma**n * values[n] if n < 8 else 0.0)
            for n in range(1, 9)
        ]
        assert np.dot(found["weights"], returns) - values[0] == near(
            found["advantages"][0], terms=64, size=20
        )


def test_softmax_entropy_and_kl_are_the_packages() -> None:
    rng = np.random.default_rng(0)
    for temperature in (0.1, 1.0, 3.0):
        first, second = rng.normal(size=(2, 6))
        script = (
            "const [p, q] = [data[0], data[1]].map(z => softmax(z, data[2]));"
            "return [p, entropy(p), kl(p, q.map(Math.log))];"
        )
        p, entropy, divergence = run(script, [first.tolist(), second.tolist(), temperature])
        expected = torch.distributions.Categorical(logits=torch.tensor(first / temperature))
        assert np.array(p) == near(softmax(first / temperature), terms=6)
        assert entropy == near(expected.entropy().item(), terms=12, size=5)
        teacher, student = torch.tensor(first), torch.tensor(second)
        exact = forward_kl(student / temperature, teacher / temperature).item()
        assert divergence == near(exact, terms=24, size=50)


def test_a_narrow_peak_far_from_the_target_has_a_divergence_that_is_finite() -> None:
    """KL(p ‖ N(m, σ²)) = -H(p) + log(σ √2π) + E[(x - m)²] / 2σ², in nats; p's peaks hardly
    overlap, so H(p) = H(N(., 0.5²)) + log 2, and the grid's steps are fine enough for the integral."""
    mean, deviation = -4.0, 0.3
    forward = run("return twoPeaks(...data).forward;", [mean, deviation])
    spread = np.mean([(peak - mean) ** 2 + 0.5**2 for peak in (-2, 2)])
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.5**2) + math.log(2)
    exact = -entropy + math.log(deviation * math.sqrt(2 * math.pi)) + spread / (2 * deviation**2)
    assert forward == pytest.approx(exact, abs=2 * math.exp(-8))  # the peaks overlap by about e^-8


def test_the_bandits_rules_are_the_packages() -> None:
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=5), np.array([3, 1, 0, 7, 2])
    bound = run(
        "return upperConfidenceBound(...data).map(x => x === Infinity ? 'first' : x);",
        [values.tolist(), counts.tolist(), 1.5],
    )
    expected = upper_confidence_bound(values, counts, 1.5)
    assert bound[2] == "first" and expected[2] == math.inf
    tried = counts > 0
    assert [x for x in bound if x != "first"] == near(expected[tried].tolist(), terms=5)
    change = run("return preferenceGradient(...data);", [values.tolist(), 2, 1.5, 0.25])
    exact = preference_gradient(values, np.array(2), np.array(1.5), np.array(0.25))
    assert change == near(exact.tolist(), terms=5)


@pytest.mark.thorough
def test_the_race_pulls_the_best_machine_as_often_as_the_packages_bandits() -> None:
    """The same rules with other random numbers: 200 problems, the last 50 of 400 pulls."""
    size = {"steps": 400, "problems": 400, "seed": 1}
    script = (
        "const late = (m, x) => banditRace(m, x, data).slice(-50).reduce((s, v) => s + v / 50, 0);"
        "return [late('greedy', 0.1), late('ucb', 1), late('gradient', 0.1)];"
    )
    shares = run(script, size)
    settings = ({"epsilon": 0.1}, {"method": "ucb", "confidence": 1.0}, {"method": "gradient"})
    for share, options in zip(shares, settings, strict=True):
        expected = share_of_best(options)
        assert abs(share - expected) < 4 * math.sqrt(0.25 / 400 * 2), (options, share, expected)


def share_of_best(options: dict[str, Any]) -> float:
    """Of the last 50 of 400 pulls, over 400 problems of ten machines, by the package's bandit."""
    rng, runs = np.random.default_rng(0), 400
    config = bandit.BanditConfig(**options)
    memory = bandit.empty_memory((runs, 10), config)
    means, best = rng.normal(size=(runs, 10)), 0.0
    for step in range(400):
        action = bandit.choose(memory, config, rng, options.get("epsilon", 0.0))
        reward = means[np.arange(runs), action] + rng.normal(size=runs)
        bandit.update(memory, config, action, reward)
        if step >= 350:
            best += (action == means.argmax(axis=1)).mean() / 50
    return float(best)


def test_a_step_of_a_belief_is_the_packages() -> None:
    rng = np.random.default_rng(0)
    belief, seen = rng.dirichlet(np.ones(5)), rng.uniform(size=5)
    moves = rng.dirichlet(np.ones(5), size=5)
    found = run("return nextBelief(...data);", [belief.tolist(), moves.tolist(), seen.tolist()])
    assert found == near(next_belief.function(belief, moves, seen).tolist(), terms=16)


@pytest.mark.parametrize(("looks", "corridor"), [([1, 1, 0], 2), ([0], 4), ([1, 0, 0, 0], 1)])
def test_the_belief_in_the_t_maze_is_that_of_the_packages_maze(
    looks: list[int], corridor: int
) -> None:
    """Standing still at the start, with a sign that is misread at times, and then going forward;
    what the arms pay at the junction is what the page says."""
    quality, places = 0.8, corridor + 1
    model = t_maze_model(corridor, observable=False)
    sure = np.eye(4)[t_maze_views(corridor)]
    blurred = sure.copy()
    blurred[[0, places], :2] = [[quality, 1 - quality], [1 - quality, quality]]
    hidden = hidden_model(model, blurred)
    script = "return signBeliefs(data[0], data[1], data[2], Infinity);"
    found = run(script, [looks, quality, corridor])
    moves = dense_moves(model)
    belief = model.initial * hidden.observed[:, SIGN_UP if looks[0] else SIGN_DOWN]
    belief /= belief.sum()
    actions = [UP] * (len(looks) - 1) + [FORWARD] * corridor
    seen = [SIGN_UP if up else SIGN_DOWN for up in looks[1:]]
    seen += [CORRIDOR] * (corridor - 1) + [JUNCTION]
    expected = [belief[:places].sum()]
    for action, observation in zip(actions, seen, strict=True):
        belief = next_belief.function(belief, moves[action], hidden.observed[:, observation])
        expected.append(belief[:places].sum())
    assert found == near(expected, terms=64)
    assert belief @ model.rewards[:, UP] == near(2 * found[-1] - 1, terms=64)
    forgotten = run("return signBeliefs(data[0], 0.8, data[1], data[1]);", [looks, corridor])
    assert forgotten[-1] == 0.5  # the last look is one observation too old


def dense_moves(model: TabularMDP) -> list[np.ndarray]:
    """Each action's probabilities [S, S] of going on from a state to another one."""
    unit = np.eye(model.num_states)
    columns = [model.backup(one, 1.0) - model.backup(0 * one, 1.0) for one in unit]  # [S, A] each
    return [
        np.stack([column[:, action] for column in columns], axis=1)
        for action in range(model.num_actions)
    ]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", formula_page.SMALL_PAGES)
def test_every_end_of_every_slider_can_be_drawn(name: str) -> None:
    script = """
    const page = PAGES[data], first = Object.fromEntries(page.controls.map(c => [c.name, c.first]));
    const cases = [first, ...page.controls.flatMap(c => [c.low, c.high].map(v => ({ ...first, [c.name]: v })))];
    return cases.map(values => page.draw(values)).map(({ chart, said }) => ({
      said,
      ranges: [...chart.x, ...chart.y],
      numbers: [
        ...(chart.lines ?? []).flatMap(line => line.from.flat()),
        ...(chart.bars ?? []).flatMap(bar => [bar.at, bar.value]),
        ...(chart.points ?? []).flatMap(point => [point.at, point.value]),
      ],
    }));"""
    for case in run(script, name):
        assert all(isinstance(x, int | float) for x in case["ranges"] + case["numbers"]), case[
            "said"
        ]
        for word in ("NaN", "undefined", "Infinity"):
            assert word not in case["said"], case["said"]
        low, high = case["ranges"][2:]
        assert low < high
