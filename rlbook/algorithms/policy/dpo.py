"""Direct preference optimisation: make the better of two episodes likelier than the worse one.

    repeat
        play groups of episodes with π; in each, pair the best with the worst, the second best with
            the second worst, …; or take pairs that were recorded
        Δ = [log π(τ_w) - log π_ref(τ_w)] - [log π(τ_l) - log π_ref(τ_l)]
        minimise  -mean log σ(β Δ)  -  c mean log π(τ_w)

τ_w is the better episode of a pair and τ_l the worse one; log π(τ) sums over the steps. There is no
reward model and no critic. Only differences count in the first term, so both log-probabilities may
fall while Δ grows; the second term (NLL) holds the better episode up.

`preference_loss` names other losses on the same pairs, each the repair of some weakness of this
one; `rlbook.functional.preference_losses` has the formulas. SimPO and ORPO know no π_ref, and keep
none.

`learn` ranks what the policy plays by its return, and equal returns make no pair (online DPO).
`fit` takes a data set of pairs as it is (DPO as published). On the maze a pair is two walks, played
ones from one start; on a token environment two completions of one prompt. `preference_loss` = kto
also takes episodes that are good or bad, each for itself; see `labelled_episodes`.

Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7. NLL term: Pang et al. 2024, arXiv:2404.19733,
eq. 1 (here per step, averaged). Online pairs: Guo et al. 2024, arXiv:2402.04792. `reference_period`
is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from rlbook.agent import Data, Metrics, Parts, State, Step
from rlbook.algorithms.policy.labelled_episodes import train_on_labelled
from rlbook.algorithms.policy.options import AdamOptions, PolicyOptions
from rlbook.algorithms.policy.pair_losses import (
    LOSSES,
    REFERENCE_FREE,
    PairLoss,
    check_pair_loss,
    pair_loss,
)
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import (
    at_least,
    non_negative,
    non_negative_int,
    number_in,
    one_of,
    positive,
    positive_int,
)
from rlbook.data.labelled import Labelled, LabelledBatch
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError
from rlbook.functional.averages import averaged, given, per_token
from rlbook.functional.kto_losses import mismatched_kl
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.functional.preference_losses import (
    implicit_reward,
    mean_log_prob,
    preference_accuracy,
    sequence_log_prob,
)
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, gradient_step, mean_metrics
from rlbook.networks.policy import Policy, whole


@dataclass(frozen=True)
class DPOConfig(PolicyOptions, AdamOptions):
    # G, episodes from one start, at least 2; divides num_envs; makes up to G / 2 pairs
    group_size: Annotated[int, at_least(2)] = 2
    # β, how strongly the policy is held to the reference, in nats⁻¹, > 0
    beta: Annotated[float, positive] = 0.1
    # which loss on the pairs; sigmoid is DPO's own
    preference_loss: Annotated[PairLoss, one_of(*LOSSES)] = "sigmoid"
    # divide log π(τ) by the steps of τ, under policy and reference; simpo and orpo always do
    per_step: bool = False
    # probability that a preference is the wrong way round, in [0, 0.5]: of sigmoid (conservative
    # DPO), robust and exo
    label_smoothing: Annotated[float, number_in(0.0, 0.5)] = 0.0
    simpo_margin: Annotated[float, non_negative] = 0.5  # γ of simpo, dimensionless
    # weight of a good episode where a bad one's is 1, of kto, > 0
    good_weight: Annotated[float, positive] = 1.0
    # c, weight of the better episode's negative log-likelihood, in loss per nat
    nll_coef: Annotated[float, non_negative] = 0.0
    # rounds of play after which the reference becomes the present policy; 0 never
    reference_period: Annotated[int, non_negative_int] = 0
    batch_size: Annotated[int, positive_int] = 64  # pairs of a minibatch
    epochs: Annotated[int, positive_int] = 1  # passes over the pairs of a round of play
    # pairs that are backpropagated at once; changes memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pair_loss(self)


class DPO(PolicyAgent):
    """Direct preference optimisation; see the module docstring."""

    Config = DPOConfig
    uses = ("reference", *PolicyAgent.uses)
    data_kinds = ("Pairs", "Labelled")
    rollout = "episodes"
    without_reference = "with a preference_loss that knows none; leave it out"
    default_num_envs = 32
    METRICS = {
        "preference_loss": "the chosen preference loss, minimised; "
        "ln 2 = 0.693 for sigmoid at the start",
        "nll": "-log π(a|s) per step of the better episodes, in nats",
        "accuracy": "share of pairs whose better episode has the larger implicit reward, "
        "in [0, 1]; of labelled episodes, of those on their side of KTO's point of reference",
        "reward_margin": "mean β Δ, the better episode's implicit reward minus the worse one's",
        "chosen_log_ratio": "mean log π(τ_w) - log π_ref(τ_w), in nats; "
        "below 0, they have become less likely; without a reference log π(τ_w)",
        "mismatched_kl": "KTO's point of reference, in nats",
        "rejected_log_ratio": "the same of the worse episodes",
        "pairs": "pairs in the round, where ties make none, or in the minibatch of recorded ones",
        "group_return": "mean undiscounted return of the round, in reward units (of played pairs)",
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
            raise RequestError("reference_period replaces the reference; leave one of the two out")
        return self.policy.frozen_copy()  # it gets other weights than the first

    def reference_state(self, reference: Policy) -> State | str:
        changes = self.config.reference_period
        return whole(reference) if changes else super().reference_state(reference)

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
            metrics |= self.update(batch, better, worse)
        self.rollout_data.clear()
        self.rounds += 1
        if self.config.reference_period and self.rounds % self.config.reference_period == 0:
            assert self.reference is not None
            self.reference.load_state_dict(self.policy.state_dict())
        return metrics

    def fit(self, data: Data) -> Iterator[Metrics]:
        """One gradient step for each minibatch of recorded pairs."""
        for name in ("epochs", "reference_period"):
            if (value := getattr(self.config, name)) != getattr(DPOConfig, name):
                refusal = f"{name} has no effect on recorded pairs; got {value!r}, leave it out"
                raise ValueError(refusal)
        if isinstance(data, Labelled):
            yield from self.fit_labels(data)
            return
        for pairs in data.minibatches(self.config.batch_size):
            better, worse = (rows.to(self.parts.device) for rows in pairs[:2])
            rate = self.anneal()
            for rows in (better, worse):
                rows.reference_log_prob = self.reference_log_prob(rows)
            metrics = mean_metrics([self.train_on(better, worse)])
            yield metrics | {"pairs": float(len(better)), "learning_rate": rate}

    def fit_labels(self, data: Labelled) -> Iterator[Metrics]:
        """The same for episodes with a label each."""
        if self.config.preference_loss != "kto":
            refusal = "preference_loss must be 'kto' for episodes that are good or bad each for"
            raise ValueError(f"{refusal} itself, got {self.config.preference_loss!r}")
        for episodes, good in data.minibatches(self.config.batch_size):
            device, rate = self.parts.device, self.anneal()
            batch = LabelledBatch(episodes.to(device), good.to(device))
            yield mean_metrics([train_on_labelled(self, batch)]) | {"learning_rate": rate}

    def update(self, batch: Batch, better: Tensor, worse: Tensor) -> Metrics:
        """Epochs over pairs, the rows `better` [P] and `worse` [P] of `batch`; returns the mean
        diagnostics."""
        rate, steps = self.anneal(), []
        for _ in range(self.config.epochs):
            order = torch.from_numpy(self.shuffling.permutation(len(better)))
            for pairs in order.split(self.config.batch_size):
                steps.append(self.train_on(batch[better[pairs]], batch[worse[pairs]]))
        return mean_metrics(steps) | {"learning_rate": rate}

    def train_on(self, better: Batch, worse: Batch) -> dict[str, Tensor]:
        """One gradient step on P pairs, row i of `better` against row i of `worse`.

        Returns:
            The diagnostics, and "grad_norm".
        """
        better.weight, pairs = per_token(better.mask), len(better)
        kto = self.config.preference_loss == "kto"
        kl = self.mismatched_kl(better, worse) if kto else None
        done = gradient_step(
            self.optimizer,
            lambda rows: self.loss(rows.better, rows.worse, pairs, kl),
            PairedRows(better, worse),
            micro_batch_size=self.config.micro_batch_size,
            max_grad_norm=self.config.max_grad_norm,
        )
        return done if kl is None else done | {"mismatched_kl": kl}

    def loss(self, better: Batch, worse: Batch, pairs: int, kl: Tensor | None = None) -> LossOutput:
        """The share that some pairs have in the loss of all `pairs`, and in the diagnostics."""
        config = self.config
        assert better.weight is not None
        log_prob, _, _ = self.policy.evaluate(better, entropy=False)
        chosen = self.whole(log_prob, better.mask)  # [P]
        rejected = self.whole(self.policy.evaluate(worse, entropy=False)[0], worse.mask)
        references = self.reference_of(better), self.reference_of(worse)
        average = given(torch.full_like(chosen, 1.0 / pairs))
        preference = pair_loss(config, (chosen, rejected), references, kl, average)
        weight = given(better.weight)
        nll = negative_log_likelihood_loss(log_prob, mask=better.mask, average=weight)
        total = preference + config.nll_coef * nll
        with torch.no_grad():
            ratios = chosen - references[0], rejected - references[1]
            rewards = [
                implicit_reward(sums, reference, config.beta)
                for sums, reference in zip((chosen, rejected), references, strict=True)
            ]
            return LossOutput(
                total,
                {
                    "preference_loss": preference.detach(),
                    "nll": nll.detach(),
                    "accuracy": preference_accuracy(*rewards) * (len(chosen) / pairs),
                    "reward_margin": averaged(rewards[0] - rewards[1], average=average),
                    "chosen_log_ratio": averaged(ratios[0], average=average),
                    "rejected_log_ratio": averaged(ratios[1], average=average),
                },
            )

    def whole(self, log_prob: Tensor, mask: Tensor) -> Tensor:
        """log π(τ) of whole episodes, or its mean over their steps: [P, T] → [P], in nats."""
        means = self.config.per_step or self.config.preference_loss in REFERENCE_FREE
        return (mean_log_prob if means else sequence_log_prob)(log_prob, mask)

    def reference_of(self, rows: Batch) -> Tensor:
        """log π_ref of whole episodes: [P], in nats; 0 where no reference is kept."""
        if rows.reference_log_prob is None:
            return torch.zeros(len(rows), device=rows.mask.device)
        return self.whole(rows.reference_log_prob, rows.mask)

    @torch.no_grad()
    def mismatched_kl(self, *batches: Batch) -> Tensor:
        """KTO's z: a scalar, in nats, of texts behind the prompt of the next row of their batch.

        All walks of a maze begin alike, so there each stands for any other.
        """
        sums = []
        for rows in batches:
            if isinstance(rows.obs, dict):
                shifted = {name: part.roll(-1, 0) for name, part in rows.obs.items()}
                rows = dataclasses.replace(rows, obs=shifted)
                rows.reference_log_prob = self.reference_log_prob(rows)
            log_prob = self.policy.evaluate(rows, entropy=False)[0]
            sums.append((self.whole(log_prob, rows.mask), self.reference_of(rows)))
        return mismatched_kl(*(torch.cat(column) for column in zip(*sums, strict=True)))

    def state_dict(self) -> State:
        return super().state_dict() | {"rounds": self.rounds}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.rounds = state["rounds"]


@dataclass
class PairedRows:
    """P pairs of episodes, row i of `better` against row i of `worse`."""

    better: Batch
    worse: Batch

    def __len__(self) -> int:
        return len(self.better)

    def __getitem__(self, rows: slice) -> PairedRows:
        return PairedRows(self.better[rows], self.worse[rows])


def ranked_pairs(returns: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Within each group the best episode against the worst, the second best against the second
    worst, and so on; ties make no pair.

    Args:
        returns: [N], groups of neighbours.
        group_size: G.

    Returns:
        Rows of the better and of the worse episodes: [P] and [P], P at most N / G · (G // 2).
    """
    half = group_size // 2
    order = returns.view(-1, group_size).argsort(dim=1, descending=True, stable=True)
    starts = torch.arange(0, len(returns), group_size, device=returns.device)
    order = order + starts[:, None]
    better, worse = order[:, :half].reshape(-1), order.flip(1)[:, :half].reshape(-1)
    differs = returns[better] > returns[worse]
    return better[differs], worse[differs]
