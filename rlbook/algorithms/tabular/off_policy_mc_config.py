"""The hyper-parameters of off-policy Monte Carlo, for its two tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.algorithms.tabular.control_agent import ControlConfig
from rlbook.algorithms.tabular.episode import VISITS
from rlbook.algorithms.tabular.prediction.given_policy import GivenPolicy, plain_policy
from rlbook.algorithms.tabular.prediction.off_policy_prediction import WEIGHTINGS
from rlbook.checks import one_of, positive
from rlbook.functional.schedules import Constant, Inverse, Schedule

CONTROL = "control"
PREDICTION = "prediction"


@dataclass(frozen=True)
class OffPolicyMCConfig(ControlConfig):
    """Hyper-parameters of off-policy Monte Carlo."""

    # what is learned: control (the best policy, Q) or prediction (a given policy's V)
    task: Annotated[str, one_of(CONTROL, PREDICTION)] = CONTROL
    # importance sampling: ordinary, weighted or truncated; control is always weighted
    weighting: Annotated[str, one_of(*WEIGHTINGS)] = "weighted"
    # truncated: the largest weight c, > 0
    clip: Annotated[float, positive] = 10.0
    # prediction: the target policy π: uniform, optimal, epsilon-greedy, one action per state, or a
    # .json file
    policy: GivenPolicy = "optimal"
    # ordinary and truncated: step size α, in (0, 1]; inverse(1.0) averages all returns
    alpha: Schedule = Inverse(1.0)
    # probability ε of a random action of the behaviour policy, in [0, 1]; 1: uniform
    epsilon: Schedule = Constant(0.5)
    # how actions are chosen while learning: epsilon-greedy or softmax
    exploration: Annotated[str, one_of("epsilon-greedy", "softmax")] = "epsilon-greedy"
    # prediction: which visits in an episode count: first or every
    visits: Annotated[str, one_of(*VISITS)] = "every"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == CONTROL and self.weighting != "weighted":
            raise ValueError(
                "weighting must be 'weighted' with task 'control', which leaves out weights of 0, "
                f"got {self.weighting!r}"
            )
        if self.task == PREDICTION and isinstance(self.epsilon, Inverse):
            raise ValueError(
                f"epsilon cannot be {self.epsilon} with task 'prediction', which counts no visits "
                "of actions"
            )
        object.__setattr__(self, "policy", plain_policy(self.policy))
