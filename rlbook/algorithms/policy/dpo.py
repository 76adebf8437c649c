"""Direct preference optimisation: make the better of two episodes more likely than the worse one.

    repeat
        play groups of episodes with π; in each, pair the best with the worst, the second best with
            the second worst, …; or use recorded pairs
        Δ = [log π(τ_w) - log π_ref(τ_w)] - [log π(τ_l) - log π_ref(τ_l)]
        minimise  -mean log σ(β Δ)  -  c mean log π(a|s) over the steps of the τ_w

τ_w is the better episode of a pair and τ_l the worse one; log π(τ) sums over the steps. There is no
reward model and no critic. Only differences count in the first term, so both log-probabilities may
fall while Δ grows; the second term (NLL) keeps the better episode's from falling.

`preference_loss` selects other losses on the same pairs, each of which remedies a weakness of this
one; `rlbook.functional.post_training.preference_losses` has their formulas. SimPO and ORPO use no
π_ref.

`learn` ranks the policy's own episodes by their returns; equal returns form no pair (online DPO).
`fit` uses a data set of pairs as it is (DPO as published). On the maze a pair is two episodes, from
the same start if played; on a token environment two completions of one prompt. `preference_loss` =
kto also accepts episodes labelled good or bad one by one; see `labelled_episodes`.

Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7. NLL term: Pang et al. 2024, arXiv:2404.19733,
eq. 1 (here per step, averaged). Online pairs: Guo et al. 2024, arXiv:2402.04792. `reference_period`
is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from rlbook.agent import Data, Metrics, Parts, State, Step
from rlbook.algorithms.policy.dpo_config import REFERENCE_FREE, DPOConfig
from rlbook.algorithms.policy.labelled_episodes import labelled_update
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.algorithms.policy.preference_pairs import (
    PairedRows,
    episode_log_prob,
    kto_reference_point,
    pair_loss,
    pair_metrics,
    ranked_pairs,
    reference_log_prob,
)
from rlbook.data.labelled import LabelledBatch, LabelledEpisodes
from rlbook.errors import RequestError
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy, module_tensors


def dpo_update(
    policy: Policy,
    optimizer: Optimizer,
    pairs: PairedRows,
    config: DPOConfig,
    *,
    reference: Policy | None = None,
    loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """One gradient step on P pairs, played or recorded. Returns the diagnostics, and "grad_norm".

    Args:
        policy, optimizer: changed in place.
        pairs: row i of `better` against row i of `worse`, with log π_ref where it is needed.
        config: hyper-parameters.
        reference: π_ref; None where none is kept.
        loss: of some of the pairs; None is `dpo_loss`.
    """
    kl = {}
    if config.preference_loss == "kto":
        kl["mismatched_kl"] = kto_reference_point(
            [pairs.better, pairs.worse], policy, reference, config
        )
    step_loss = partial(loss or dpo_loss, policy, config=config, **kl)
    metrics = gradient_step(
        optimizer,
        step_loss,
        pairs.as_minibatch(),
        micro_batch_size=config.micro_batch_size,
        max_grad_norm=config.max_grad_norm,
    )
    return metrics | kl


def dpo_loss(
    policy: Policy,
    pairs: PairedRows,
    *,
    config: DPOConfig,
    mismatched_kl: Tensor | None = None,
) -> LossOutput:
    """These pairs' share of the loss; lower is better.

    Args:
        policy: π.
        pairs: some of them, which know how many there are in all.
        config: hyper-parameters.
        mismatched_kl: KTO's reference point, in nats.
    """
    better, worse = pairs.better, pairs.worse
    log_prob, _, _ = policy.evaluate(better, entropy=False)  # [P, T]
    chosen = episode_log_prob(log_prob, better.mask, config)  # [P]
    rejected = episode_log_prob(policy.evaluate(worse, entropy=False)[0], worse.mask, config)
    compared = (
        (chosen, rejected),
        (reference_log_prob(better, config), reference_log_prob(worse, config)),
    )
    average, share = torch.full_like(chosen, 1.0 / pairs.count), len(chosen) / pairs.count
    preference = pair_loss(config, *compared, mismatched_kl, average)
    nll = negative_log_likelihood_loss(log_prob, **better.share)
    total = preference + config.nll_coef * nll
    metrics = {"preference_loss": preference.detach(), "nll": nll.detach()}
    return LossOutput(total, metrics | pair_metrics(config, *compared, average, share))


class DPO(PolicyAgent):
    """Direct preference optimisation; see the module docstring."""

    Config = DPOConfig
    uses = ("reference", *PolicyAgent.uses)
    data_kinds = ("Pairs", "LabelledEpisodes")
    idle_on_data = ("epochs", "reference_period")
    rollout = "episodes"
    without_reference = "with a preference_loss that uses none; leave it out"
    default_num_envs = 32
    loss = staticmethod(dpo_loss)
    METRICS = {
        "preference_loss": "the selected preference loss, minimised; "
        "sigmoid starts at ln 2 = 0.693",
        "nll": "-log π(a|s) per step of the better episodes, in nats",
        "accuracy": "fraction of pairs whose better episode has the larger implicit reward, in "
        "[0, 1]; for labelled episodes, of those on the correct side of KTO's reference point",
        "reward_margin": "mean β Δ, the better episode's implicit reward minus the worse one's",
        "chosen_log_ratio": "mean log π(τ_w) - log π_ref(τ_w), in nats; "
        "below 0, they have become less likely; without a reference, log π(τ_w)",
        "mismatched_kl": "KTO's reference point, in nats: KL(π ‖ π_ref) estimated from pairs of a "
        "prompt and another prompt's answer",
        "rejected_log_ratio": "chosen_log_ratio of the worse episodes: log π(τ_l) - log π_ref(τ_l)",
        "pairs": "pairs in the round, ties excluded; for recorded pairs, in the minibatch",
        "group_return": "mean undiscounted return of the round, in reward units (on-policy only)",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: DPOConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: DPOConfig = config
        self.rounds = 0

    @staticmethod
    def needs_reference(config: DPOConfig) -> bool:
        return config.preference_loss not in REFERENCE_FREE

    def make_reference(self) -> Policy:
        if not self.config.reference_period:
            return super().make_reference()
        if self.parts.reference is not None:
            raise RequestError("reference_period replaces the reference; give only one of them")
        return self.policy.frozen_copy()  # it gets other weights than the first

    def reference_state(self, reference: Policy) -> State | str:
        changes = self.config.reference_period
        return module_tensors(reference) if changes else super().reference_state(reference)

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch = self.policy.batch(self.rollout_data, "episode")  # [N, T]
        batch.reference_log_prob = self.reference_log_prob(batch)
        returns = self.rollout_data.tensor("reward").sum(0)  # [N]
        better, worse = ranked_pairs(returns, self.group_size)
        metrics = {"group_return": float(returns.mean()), "pairs": float(len(better))}
        if len(better):
            metrics |= self.update(PairedRows(batch[better], batch[worse]))
        self.rollout_data.clear()
        self.rounds += 1
        if self.config.reference_period and self.rounds % self.config.reference_period == 0:
            assert self.reference is not None
            self.reference.load_state_dict(self.policy.state_dict())
        return metrics

    def update(self, pairs: PairedRows) -> Metrics:
        """Epochs over the pairs of a round; returns the mean diagnostics."""
        rate, metrics = self.anneal(), []
        for _ in range(self.config.epochs):
            order = torch.from_numpy(self.shuffling.permutation(len(pairs)))
            metrics += [self.step(pairs[rows]) for rows in order.split(self.config.batch_size)]
        return mean_metrics(metrics) | {"learning_rate": rate}

    def check_data(self, data: Data) -> None:
        super().check_data(data)
        if isinstance(data, LabelledEpisodes) and self.config.preference_loss != "kto":
            refusal = "preference_loss must be 'kto' for episodes that are good or bad each for"
            raise ValueError(f"{refusal} itself, got {self.config.preference_loss!r}")

    def fit(self, data: Data) -> Iterator[Metrics]:
        """One gradient step for each minibatch of recorded pairs."""
        self.check_data(data)
        if isinstance(data, LabelledEpisodes):
            yield from self.fit_labels(data)
            return
        for recorded in data.minibatches(self.config.batch_size):
            better, worse = (rows.to(self.parts.device) for rows in recorded[:2])
            rate = self.anneal()
            for rows in (better, worse):
                rows.reference_log_prob = self.reference_log_prob(rows)
            metrics = mean_metrics([self.step(PairedRows(better, worse))])
            yield metrics | {"pairs": float(len(better)), "learning_rate": rate}

    def fit_labels(self, data: LabelledEpisodes) -> Iterator[Metrics]:
        """One gradient step for each minibatch of labelled episodes."""
        for episodes, good in data.minibatches(self.config.batch_size):
            batch = LabelledBatch(episodes.to(self.parts.device), good.to(self.parts.device))
            batch.episodes.reference_log_prob = self.reference_log_prob(batch.episodes)
            rate, models = self.anneal(), (self.policy, self.optimizer)
            step = labelled_update(*models, batch, self.config, self.reference)
            yield mean_metrics([step]) | {"learning_rate": rate}

    def step(self, pairs: PairedRows) -> dict[str, Tensor]:
        """One gradient step."""
        models = {"reference": self.reference, "loss": self.loss}
        return dpo_update(self.policy, self.optimizer, pairs, self.config, **models)

    def state_dict(self) -> State:
        return super().state_dict() | {"rounds": self.rounds}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.rounds = state["rounds"]
