"""The policy protocol: the torch module of an agent.

An MLP and a language model both keep it, so one PPO serves both. Everything an algorithm needs of a
policy is below, and nothing else is called.

Shapes: N environments, T time, B minibatch rows, A action components. An MLP's batch is [B] steps
(or [B, T] episodes); a sequence model's is [B, T], one row an episode.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rlbook.agent import FrozenPart, State
from rlbook.data.rollout import Batch, Rollout
from rlbook.networks.distributions import Distribution

Unit = Literal["step", "episode", "sequence"]


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor as a NumPy array, detached and from any device; half precision becomes float32."""
    return to_full_precision(tensor).cpu().numpy()


def to_full_precision(tensor: Tensor) -> Tensor:
    """Casts half precision to float32, so that probabilities are never computed in less."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def module_device(module: nn.Module) -> torch.device:
    """The device of the module's parameters."""
    return next(module.parameters()).device


FROZEN = "frozen"
"""The key of frozen weights in a saved state."""


def module_tensors(module: nn.Module) -> State:
    """The module's tensors by name; a tensor with several names (a tied output layer) appears under
    the first only."""
    return dict(_unique_tensors(module))


def saved_tensors(module: nn.Module) -> State:
    """The tensors of `module_tensors` for a checkpoint: trained ones, and separately frozen ones; a
    module that is `rebuilt` from its `ModelSpec` stores only a digest of its frozen ones.
    """
    frozen = frozen_parameters(module)
    state: State = {name: tensor for name, tensor in _unique_tensors(module) if name not in frozen}
    if not frozen:
        return state
    return state | {
        FROZEN: digest(frozen) if getattr(module, "rebuilt", False) else FrozenPart(frozen)
    }


def load_saved(module: nn.Module, state: State) -> None:
    """The inverse of `saved_tensors` and of `module_tensors`.

    Raises:
        RuntimeError: names or shapes do not fit, or what is not trained differs from what it was.
    """
    kept = state.get(FROZEN, {})
    tensors = {name: value for name, value in state.items() if name != FROZEN}
    needed = {name for name, _ in _unique_tensors(module)}
    if isinstance(kept, str):
        frozen = frozen_parameters(module)
        check_digest("the weights that are not trained", frozen, kept)
        needed -= frozen.keys()
    else:
        tensors |= kept
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    odd = [*sorted(needed.intersection(missing)), *unexpected]
    if odd:
        raise RuntimeError(f"missing or unexpected tensors: {', '.join(odd)}")


def frozen_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The frozen parameters by name."""
    return {name: value for name, value in module.named_parameters() if not value.requires_grad}


def check_digest(what: str, tensors: Mapping[str, Tensor], stored: str) -> None:
    """Raises RuntimeError if the digest of `what` differs from the `stored` one."""
    if digest(tensors) != stored:
        raise RuntimeError(
            f"{what} have changed since the run started: their sha256 was {stored[:12]}…"
        )


def digest(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of tensors and their names."""
    hashed = hashlib.sha256()
    for name, tensor in tensors.items():
        numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        hashed.update(numbers.numpy().data)
    return hashed.hexdigest()


def _unique_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The module's tensors, each only under the first of its names."""
    first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    for name, tensor in module.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if first.setdefault(place, name) == name or not tensor.numel():
            yield name, tensor


class Policy(nn.Module):
    """π(a|s), and V(s) if a critic was requested."""

    rollout: ClassVar[str] = "steps"
    """"episodes" for a sequence model, which processes whole episodes only."""
    unit: ClassVar[Unit] = "step"
    """The default unit of a minibatch's rows."""
    idle: Mapping[str, str] = {"packing": "it applies to texts, but the rows here are steps"}
    """Hyper-parameters that have no effect on this policy, each with the reason."""
    rebuilt: bool = False
    """Whether its frozen weights are restored by building it from its `ModelSpec`: a checkpoint
    then stores only their digest."""
    made_by: ClassVar[str] = ""
    """Ends the message about networks that differ: what determines their sizes."""
    named: bool = False
    """Whether all its initial weights are in a folder from which they can be read again."""
    packing: int | None = None
    """The length, in tokens, of a row of several texts, if `evaluate` concatenates them."""
    splits: ClassVar[bool] = False
    """Whether several processes also share its acting and its other computations without gradients;
    for a small policy the communication would take longer."""
    state_size: int = 0
    """S, the size of a recurrent policy's state; 0 for any other."""
    stores: ClassVar[Literal["all", "first"]] = "all"
    """The observations that a rollout must store. "first": the first one and the actions determine
    the row."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer: nn.Module = nn.Identity()
        """What observations pass through first: a `Normalizer`, whose running statistics the agent
        updates after each rollout, or nothing."""

    def initial_state(self) -> Any:
        """The recurrent state for acting (a KV cache); None if the policy has none.

        Evaluation owns another one.
        """
        return None

    @abstractmethod
    def act(
        self,
        obs: Any,
        rng: np.random.Generator | None,
        state: Any = None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per environment, sampled with `rng`, or the mode if `rng` is None.

        Without gradients. `action_mask` [N, A] bool: which discrete actions are allowed; None: all.

        Returns:
            action [N] or [N, A], and its log-probability [N] in nats (float32).
        """

    @abstractmethod
    def distribution(self, obs: Any) -> Distribution:
        """π(·|s) for observations (a tensor, or a dict of tensors) [N, ...], with gradients."""

    def distributions(self, batch: Batch) -> Distribution:
        """π(·|s) for the states of a batch, restricted to `batch.action_mask`, with gradients; its
        log-probabilities have the shape of `batch.mask`."""
        return self.distribution(batch.obs)

    @abstractmethod
    def value_parameters(self) -> list[nn.Parameter]:
        """The parameters that affect only V; empty without a critic."""

    @abstractmethod
    def batch(self, rollout: Rollout, unit: Unit | None = None, /, **fields: Tensor) -> Batch:
        """The rollout as a batch: valid steps [B, ...], or episodes [N, T, ...] with `mask`;
        quantities computed for each of its steps, `fields` [T, N], are converted likewise."""

    @abstractmethod
    def evaluate(
        self, batch: Batch, *, entropy: bool = True, entropy_gradient: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """log π(a|s) and the entropy of π(·|s) (both in nats), and V(s); shaped like `batch.mask`.

        π is over the actions that `batch.action_mask` allows. The entropy is None where it was not
        asked for, and has no gradient where `entropy_gradient` is false: it then keeps no graph,
        which for a large vocabulary is most of an update's memory. V(s) is None without a critic.
        """

    @abstractmethod
    def value(self, obs: Any) -> Tensor:
        """V(s) of observations (a tensor, or a dict of tensors): [N, ...] → [N].

        In reward units, without gradients; a `rlbook.networks.values.Value`.
        """

    @abstractmethod
    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """V(obs) and V(next_obs), each [T, N], without gradients.

        Where the episode terminated, V(next_obs) is of no use.
        """

    def start_from(self, other: Policy) -> None:
        """Copies the weights of a policy with the same architecture, and its critic's if both have
        one.

        Raises:
            ValueError: the networks differ.
        """
        critic = set(map(id, self.value_parameters()))
        own = {name for name, value in self.named_parameters() if id(value) in critic}
        given, mine = other.state_dict(), self.state_dict()
        fits = {
            name: value
            for name, value in given.items()
            if name in mine and mine[name].shape == value.shape
        }
        if not mine.keys() - own <= fits.keys():
            lacking = min(mine.keys() - own - fits.keys())
            raise ValueError(
                "start must be a run of the same networks; its policy has no "
                f"{lacking!r} of shape {list(mine[lacking].shape)}{self.made_by}"
            )
        self.load_state_dict(fits, strict=False)

    def start_critic(self, reward: nn.Module) -> None:
        """Initialises V with the weights of a reward model's network.

        Raises:
            ValueError: the reward is one of steps, or of another network.
        """
        raise ValueError(
            "critic_start must be 'policy' here, got 'reward_model': that model rewards each "
            "step, r(s, a); only a model that scores a whole text can initialise a value"
        )

    def reference(self) -> Policy:
        """The reference policy of a KL penalty: a frozen copy of the current weights, sharing those
        that are not trained."""
        return self.frozen_copy()

    def frozen_copy(self) -> Policy:
        """A copy of this policy whose weights are never trained."""
        import copy

        reference = copy.deepcopy(self)
        reference.requires_grad_(False)
        return reference
