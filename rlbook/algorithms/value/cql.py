"""Conservative Q-learning (CQL): fitted Q iteration that penalises high values of untried actions.

    as fitted Q iteration, but each minibatch
        minimises  ½ mean (Q(s, a) - y)²  +  α mean [ log Σ_b exp Q(s, b) - Q(s, a) ]

The bracket is a soft maximum over all actions minus the value of the recorded one. Its gradient is
π_Q(b|s) - 1[b = a], with π_Q the softmax of Q: actions with high Q are pushed down and the recorded
one is pushed up; if the softmax equals the recorded behaviour, the gradient is 0. So an untried
action cannot look best merely because no data contradict it, and the greedy policy stays close to
the data. The larger α, the closer it comes to cloning the most frequent recorded actions; with
α = 0 it is fitted Q iteration.

Source: Kumar et al. 2020, arXiv:2006.04779, eq. 4, CQL(H), for discrete actions. Difference: α is
fixed, not adapted by a Lagrange multiplier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.algorithms.value.fitted_q import FittedQ, FittedQConfig, regression_loss
from rlbook.checks import non_negative
from rlbook.data.replay import Transitions
from rlbook.functional.value_losses import conservative_gap
from rlbook.networks.optimizer import LossOutput
from rlbook.networks.policy import to_full_precision
from rlbook.networks.values import ActionValue


def cql_loss(
    q: ActionValue, target: ActionValue, batch: Transitions, *, config: CQLConfig
) -> LossOutput:
    """The loss of fitted Q iteration plus the weighted conservative term; lower is better."""
    values = to_full_precision(q(batch.obs))  # [B, A]
    fitted = regression_loss(values, target, batch, config.gamma)
    gap = conservative_gap(values, batch.action, batch.action_mask)
    loss = fitted.loss + config.conservative_coef * gap
    return LossOutput(loss, fitted.metrics | {"gap": gap.detach()})


@dataclass(frozen=True)
class CQLConfig(FittedQConfig):
    # α, weight of the conservative term, in reward units; 0 is fitted Q iteration
    conservative_coef: Annotated[float, non_negative] = 1.0


class CQL(FittedQ):
    """Conservative Q-learning; see the module docstring."""

    config: CQLConfig
    Config = CQLConfig
    loss = staticmethod(cql_loss)
    METRICS = FittedQ.METRICS | {
        "gap": "mean of log Σ exp Q(s, ·) - Q(s, a), in reward units; ln A if all values are "
        "equal, near 0 if the recorded action's is by far the largest",
    }
