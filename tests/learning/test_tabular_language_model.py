"""PPO, GRPO and DPO on a language model that is a table: each comes to the closed form π_ref exp(r
/ β) / Z."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near

from rlbook.book.experiments.language_models import tabular_language_model as tabular
from rlbook.functional.bandits import softmax

LOGITS = np.random.default_rng(3).normal(size=(tabular.END, tabular.TOKENS))


def test_the_task_pays_each_completion_what_it_is_worth() -> None:
    """With γ = 1 the value of a policy is Σ π(y) r(y), and the 27 probabilities add up to 1."""
    reward, policy = tabular.rewards(0), softmax(LOGITS)
    model = tabular.writing(reward)
    padded = np.vstack([policy, np.full(tabular.TOKENS, 1 / tabular.TOKENS)])
    assert tabular.chances(policy).sum() == near(1.0, terms=27)
    assert model.policy_values(padded, 1.0)[0] == near(
        tabular.chances(policy) @ reward, terms=27, size=1.0
    )


def test_no_policy_is_better_than_the_closed_form() -> None:
    """J(π) = E r - β KL(π ‖ π_ref) is β log Z there, and smaller for any other distribution."""
    reference, reward, beta = tabular.chances(softmax(LOGITS)), tabular.rewards(1), 0.5
    best = tabular.optimum(reference, reward, beta)
    value = best @ reward - beta * best @ np.log(best / reference)
    assert value == near(
        beta * np.log((reference * np.exp(reward / beta)).sum()),
        terms=27,
        size=np.abs(np.log(reference)).max(),
    )
    for other in np.random.default_rng(0).dirichlet(best * 200, size=50):
        assert other @ reward - beta * other @ np.log(other / reference) < value


@pytest.mark.slow
def test_a_penalty_in_the_loss_settles_beside_it_unless_no_token_matters_to_later_ones() -> None:
    """Where reference and reward are the same after every text of a length, divergence to come does
    not depend on the token: k2 is exact.

    k3 has the gradient of KL(π_ref ‖ π) and is not, even then.
    """
    rows = [0, *[1] * 3, *[4] * 9]
    paid = np.random.default_rng(4).random((tabular.STEPS, tabular.TOKENS))
    additive = paid[np.arange(tabular.STEPS), tabular.COMPLETIONS].sum(axis=1)
    for reference, reward, exact in (
        (softmax(LOGITS[rows]), additive, True),
        (softmax(LOGITS), tabular.rewards(0), False),
    ):
        best = tabular.optimum(tabular.chances(reference), reward, 0.5)
        away = {
            name: np.abs(tabular.fixed_point(reference, reward, 0.5, name) - best).max()
            for name in ("k2", "k3")
        }
        # where its steps stop; the other one stays ten times as far away, and more
        assert (away["k2"] < 1e-4) == exact and 1e-3 < away["k3"] < 0.05, away


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_where_gradients_cancel_is_found_and_not_swung_around(estimator: str) -> None:
    """With seed 12 and β = 1 a step of 5 swings between two policies, which are .18 (k2) and .30
    (k3) away from the closed form; the gradients cancel within .01 of it."""
    reference = tabular.table(tabular.reference_run(12))
    best = tabular.optimum(tabular.chances(reference), tabular.rewards(12), 1.0)
    found = tabular.fixed_point(reference, tabular.rewards(12), 1.0, estimator)
    assert np.abs(found - best).max() < 0.01
    with pytest.raises(ValueError, match="no fixed point after 2 steps"):
        tabular.fixed_point(reference, tabular.rewards(12), 1.0, estimator, steps=2)


def test_the_picture_shows_every_run() -> None:
    """A distance of .09 stands on the axis as one of .01 does."""
    away = {beta: np.array([0.01, 0.09]) for beta in tabular.BETAS}
    (axes,) = tabular.draw({"grpo, k3 in the loss": tabular.CompletionDistances(away, away)}).axes
    low, high = axes.get_xlim()
    assert low <= 0.0 and high > 0.09


@pytest.mark.thorough
def test_grpo_comes_within_three_hundredths_of_the_closed_form() -> None:
    """From .108 away, where the reference is."""
    reference, reward = tabular.chances(tabular.table(tabular.reference_run(0))), tabular.rewards(0)
    best = tabular.optimum(reference, reward, 0.5)
    assert np.abs(reference - best).max() > 0.1
    assert (
        np.abs(tabular.learn_policy("grpo, k1 in the reward", 0.5, 0, rounds=50) - best).max()
        < 0.03
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", tabular.LEARNERS)
def test_every_learner_does_from_three_seeds(name: str) -> None:
    """k3 in the loss settles elsewhere: no learner could come closer than its own gradients do, and
    this one comes to where they cancel."""
    (found,) = tabular.run(3, names=(name,)).values()
    for beta in tabular.BETAS:
        assert found.beside[beta].max() < 0.03
        assert found.distance[beta].max() < 0.03 or "k3" in name
