"""A causal language model as a policy: the state is the text so far, the action the next token, the
KV cache the recurrent state."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlbook.data.rollout import Batch, Rollout, to_device
from rlbook.llm.generation.kv_cache import ActingState
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.models import causal_lm
from rlbook.llm.models.adapters import (
    DecoderWithoutAdapters,
    adapters_change_nothing,
    disable_adapters,
    trains_adapters_alone,
)
from rlbook.llm.models.causal_lm import LanguageModel
from rlbook.llm.models.packing import check_packable, pack, packed_logits
from rlbook.networks.data_parallel import map_rows
from rlbook.networks.distributions import Categorical, sample_logits
from rlbook.networks.policy import Policy, Unit, frozen_parameters, to_full_precision
from rlbook.networks.reward_network import members_of

NO_MASKS = "a language model ignores action masks, but the environment shows one"


class LanguageModelPolicy(Policy):
    """π(token|text) from a Hugging Face causal LM, and V(text) from a separate network.

    Observations are those of `rlbook.llm.environments.token_env`: tokens [N, L], padded to the
    right, and length [N]. A batch's row is an episode: obs holds the prompts, action [B, T] the
    completions, mask the tokens written before the end (EOS included).

    Args:
        model: the language model; dropout is switched off.
        critic: whether there is a V: a copy of the model's trunk, with a linear head that starts at
            0.
        temperature: divides the logits, when acting and when evaluating.
    """

    rollout = "episodes"
    unit = "episode"
    splits = True
    stores = "first"
    made_by = "; a language model is the one that --model names (model=…)"
    idle = dict.fromkeys(
        ("hidden_sizes", "activation", "orthogonal_init", "normalize_observation"),
        "the policy is a language model, whose layers are given",
    ) | {
        "separate_networks": "a language model's critic is always a network of its own",
        "rollout_steps": "a language model collects one episode in each environment",
        "recurrent": "a language model sees the whole text at each step",
    }

    def __init__(
        self, model: LanguageModel, *, critic: bool = False, temperature: float = 1.0
    ) -> None:
        super().__init__()
        self.model = model.eval()
        self.critic = Critic(model) if critic else None
        self.temperature = temperature

    def train(self, mode: bool = True) -> LanguageModelPolicy:
        """Does nothing: dropout stays off, because old and new log-probabilities must agree."""
        return self

    def initial_state(self) -> ActingState:
        return ActingState(self.model)

    def decoder(self) -> causal_lm.Decoder:
        """A decoder with the current weights."""
        return causal_lm.decoder(self.model)

    def act(
        self,
        obs: dict[str, np.ndarray],
        rng: np.random.Generator | None,
        state: Any = None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        if action_mask is not None:
            raise ValueError(NO_MASKS)
        state = self.initial_state() if state is None else state
        return state.act(self, obs, rng)

    def draw(
        self, logits: Tensor, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples tokens [N] with log-probabilities [N] from logits [N, V], with one uniform number
        per row; takes the mode if `rng` is None."""
        scaled = to_full_precision(logits)
        if self.temperature != 1.0:
            scaled = scaled / self.temperature
        return sample_logits(scaled, None if rng is None else rng.random(len(scaled)))

    def distribution(self, obs: dict[str, Tensor]) -> Categorical:
        """π(·|text) of the next token, for texts as in the observations."""
        rows = rows_of(obs["tokens"], obs["length"], obs["tokens"][:, :0])
        return self._distribution(causal_lm.logits(self.model, rows)[:, -1])

    def _distribution(self, logits: Tensor) -> Categorical:
        return Categorical(to_full_precision(logits) / self.temperature)

    def distributions(self, batch: Batch) -> Categorical:
        # torch's other attentions cannot be differentiated twice
        with sdpa_kernel(SDPBackend.MATH):
            return self._distribution(self.logits(batch))

    def value_parameters(self) -> list[nn.Parameter]:
        return [] if self.critic is None else list(self.critic.parameters())

    def batch(self, rollout: Rollout, unit: Unit | None = None, /, **fields: Tensor) -> Batch:
        if unit == "step":
            raise ValueError("unit must be 'episode' for a language model, got 'step'")
        prompts = {
            name: to_device(np.asarray(rollout.steps[0].obs[name]), rollout.device)
            for name in ("tokens", "length")
        }
        names = {"action": "action", "log_prob": "log_prob", "mask": "valid"}
        rows = {name: rollout.tensor(source).T.contiguous() for name, source in names.items()}
        return Batch(obs=prompts, **rows, **{name: value.T for name, value in fields.items()})

    def evaluate(
        self, batch: Batch, *, entropy: bool = True, entropy_gradient: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if self.packing is not None and self.critic is None:
            return self._evaluate_packed(batch, self.packing, entropy, entropy_gradient)
        completion = batch.action.where(batch.real_mask, 0)  # any valid id will do in padding
        rows = rows_of(batch.obs["tokens"], batch.obs["length"], completion[:, :-1])
        distribution = self._distribution(causal_lm.logits(self.model, rows))
        value = None if self.critic is None else self.critic(rows)
        log_prob = distribution.log_prob(completion)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            return log_prob, distribution.entropy() if entropy else None, value

    def _evaluate_packed(
        self, batch: Batch, width: int, entropy: bool, gradient: bool
    ) -> tuple[Tensor, Tensor | None, None]:
        """The same on packed rows, without a critic; 0 outside the mask."""
        check_packable(self.model, width)
        distribution = self._distribution(packed_logits(self.model, pack(batch, width)))
        found = [distribution.log_prob(batch.action[batch.mask])]
        with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
            found += [distribution.entropy()] if entropy else []
        laid = [
            torch.zeros(batch.mask.shape, dtype=x.dtype, device=x.device).masked_scatter(
                batch.mask, x
            )
            for x in found
        ]
        return laid[0], laid[1] if entropy else None, None

    def logits(self, batch: Batch) -> Tensor:
        """Next-token logits before the temperature [B, T, V], with gradients."""
        completion = batch.action.where(batch.real_mask, 0)[:, :-1]
        rows = rows_of(batch.obs["tokens"], batch.obs["length"], completion)
        return causal_lm.logits(self.model, rows)

    @torch.inference_mode()
    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        assert self.critic is not None
        value = map_rows(self._values_along, self.batch(rollout)).T.clone()  # [T + 1, N]
        return value[:-1], value[1:]

    def _values_along(self, batch: Batch) -> Tensor:
        """V before and after each token: [B, T + 1]."""
        assert self.critic is not None
        completion = batch.action.where(batch.real_mask, 0)
        return self.critic(rows_of(batch.obs["tokens"], batch.obs["length"], completion))

    @torch.inference_mode()
    def value(self, obs: dict[str, Tensor]) -> Tensor:
        """V(text) in reward units: [N]."""
        assert self.critic is not None
        return self.critic(rows_of(obs["tokens"], obs["length"], obs["tokens"][:, :0]))[:, 0]

    def start_from(self, other: Policy) -> None:
        super().start_from(other)
        if self.critic is not None and not other.value_parameters():
            self.critic.trunk.load_state_dict(_trunk(self.model).state_dict())

    def start_critic(self, reward: nn.Module) -> None:
        scores = getattr(members_of(reward)[0], "score", None)
        assert self.critic is not None and isinstance(scores, Critic)
        try:
            self.critic.load_state_dict(scores.state_dict())
        except RuntimeError:
            raise ValueError(
                "critic_start must be 'policy' here, got 'reward_model': its language model has "
                "a different architecture"
            ) from None

    def reference(self) -> LanguageModelPolicy:
        """The reference policy of a KL penalty: the policy as it is now, without a critic.

        Where new adapters are all that is trained, it is the model without them, on the same
        weights; else, as with adapters that have learned before, a copy of the trained weights.
        """
        if trains_adapters_alone(self.model) and adapters_change_nothing(self.model):
            return PolicyWithoutAdapters(self)
        return self._copy({id(part): part for part in frozen_parameters(self.model).values()})

    def frozen_copy(self) -> LanguageModelPolicy:
        """A frozen copy of the policy, without the critic."""
        return self._copy({})

    def _copy(self, shared: dict[int, Any]) -> LanguageModelPolicy:
        """A frozen copy without the critic, which has the tensors of `shared` (id → tensor) in
        common with the policy."""
        model = copy.deepcopy(self.model, shared)
        reference = LanguageModelPolicy(model, temperature=self.temperature)
        reference.requires_grad_(False)
        return reference


class PolicyWithoutAdapters(LanguageModelPolicy):
    """Another policy's language model with its adapters disabled. It has no weights of its own, so
    checkpoints do not store it."""

    def __init__(self, policy: LanguageModelPolicy) -> None:
        Policy.__init__(self)
        self.shared = (policy.model,)  # in a tuple, so that it is not part of this module
        self.critic, self.temperature = None, policy.temperature

    @property
    def model(self) -> Any:
        """The other policy's model, including its adapters."""
        return self.shared[0]

    def decoder(self) -> causal_lm.Decoder:
        return DecoderWithoutAdapters(self.model)

    def act(
        self,
        obs: dict[str, np.ndarray],
        rng: np.random.Generator | None,
        state: Any = None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        with disable_adapters(self.model):
            return super().act(obs, rng, state, action_mask)

    def distribution(self, obs: dict[str, Tensor]) -> Categorical:
        with disable_adapters(self.model):
            return super().distribution(obs)

    def distributions(self, batch: Batch) -> Categorical:
        with disable_adapters(self.model):
            return super().distributions(batch)

    def evaluate(
        self, batch: Batch, *, entropy: bool = True, entropy_gradient: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        with disable_adapters(self.model):
            return super().evaluate(batch, entropy=entropy, entropy_gradient=entropy_gradient)

    def logits(self, batch: Batch) -> Tensor:
        with disable_adapters(self.model):
            return super().logits(batch)


def _trunk(model: LanguageModel) -> Any:
    """The model without its output layer; inside a peft wrapper, that of the wrapped model."""
    below: Any = getattr(model, "get_base_model", lambda: model)()
    return below.base_model


class Critic(nn.Module):
    """V(text): a copy of a language model's trunk with a linear head, initialised to 0."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(_trunk(model))
        self.weight = nn.Parameter(torch.zeros(1, model.config.get_text_config().hidden_size))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, rows: PromptRows) -> Tensor:
        """V, [B, T + 1], in reward units, with gradients."""
        hidden = causal_lm.hidden_states(self.trunk, rows)
        return F.linear(hidden.to(self.weight.dtype), self.weight, self.bias).squeeze(-1)
