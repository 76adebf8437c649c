"""Any Hugging Face causal language model through its own forward pass: correct for any
architecture, with adapters and hooks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.data.rollout import to_device
from rlbook.fast_forms import has_fast_form
from rlbook.llm.generation.prompt_rows import PromptRows
from rlbook.llm.models.compute import cast_weights, compute_context, compute_of

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

LanguageModel: TypeAlias = "PreTrainedModel | PeftModel"
"""A causal language model of transformers, or one with adapters in it."""


CACHE = ("cache", "past_key_values")
"""What a forward pass calls its KV cache: the first from transformers 5.24 on, the second before."""


def _inputs(
    model: nn.Module, tokens: Tensor, padding: Tensor, *, before: int = 0, last: int | None = None
) -> dict[str, Any]:
    """Token ids [B, n] of columns `before` on, their position ids and the attention mask of all
    columns so far, of which the first `padding` [B] hold no token; architectures without position
    ids infer them. The output layer need read no more than the `last` columns."""
    column = torch.arange(before + tokens.shape[1], device=tokens.device)
    mask = (column >= padding[:, None]).long()
    optional: dict[str, Any] = {"position_ids": (column[before:] - padding[:, None]).clamp(min=0)}
    optional |= {} if last is None else {"logits_to_keep": last}
    taken = {name: value for name, value in optional.items() if argument_name(model, name)}
    return {"input_ids": tokens, "attention_mask": mask, **taken}


def argument_name(model: nn.Module, *names: str) -> str:
    """The first of these names that is one of the arguments of the model's forward pass; "" if it
    has none of them. peft's wrapper passes all on."""
    below: nn.Module = getattr(model, "get_base_model", lambda: model)()
    arguments = inspect.signature(below.forward).parameters
    return next((name for name in names if name in arguments), "")


@has_fast_form
def logits(model: nn.Module, rows: PromptRows) -> Tensor:
    """Next-token logits [B, T + 1, V] after the prompt and after each completion token, with
    gradients, on the model's device."""
    with compute_context(model):
        return _read(model, rows, "logits")


@has_fast_form
def hidden_states(trunk: nn.Module, rows: PromptRows) -> Tensor:
    """The trunk's last hidden state [B, T + 1, d] at the same columns as `logits`, with
    gradients."""
    with compute_context(trunk):
        return _read(trunk, rows, "last_hidden_state")


def _read(module: Any, rows: PromptRows, output: str) -> Tensor:
    """An output of the forward pass after the prompt and after each completion token: [B, T + 1,
    ·]. A prompt of several completions is read once: first the distinct prompts, then all
    completions, each on the keys and values of its prompt."""
    from rlbook.llm.models.cache_layers import first_pass, next_pass

    rows = rows.with_prefix(module.device)
    padding, columns = rows.padding[rows.index], rows.completion.shape[1] + 1
    name = argument_name(module, *CACHE) if len(rows.index) > len(rows.prompt) else ""
    cache = first_pass(module.config) if name else None
    if cache is None:
        tokens = torch.cat([rows.prompt[rows.index], rows.completion], dim=1)
        found = module(**_inputs(module, tokens, padding, last=columns), use_cache=False)
        return found[output][:, -columns:]
    inputs = _inputs(module, rows.prompt, rows.padding, last=1)
    found = module(**inputs, use_cache=True, **{name: cache})
    after_prompt = found[output][:, -1:][rows.index]  # [B, 1, ·]
    if columns == 1:
        return after_prompt
    inputs = _inputs(module, rows.completion, padding, before=rows.prompt.shape[1])
    found = module(**inputs, use_cache=True, **{name: next_pass(cache, rows.index)})
    return torch.cat([after_prompt, found[output]], dim=1)


@has_fast_form
def decoder(model: LanguageModel) -> Decoder:
    """A decoder, which computes the next-token logits of `model` column by column with its current
    weights."""
    return CausalDecoder(model)


class Decoder(Protocol):
    """Processes N prompts, then one token per row at a time; `select` lets rows leave."""

    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor: ...

    def step(self, token: Tensor) -> Tensor: ...

    def select(self, rows: Tensor) -> None: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class CausalDecoder:
    """Next-token logits for N rows, one column at a time, with transformers' own KV cache."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.rounded = cast_weights(model)

    @torch.inference_mode()
    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor:
        """Processes the prompts (`rows.completion` is ignored) and makes room for `new_tokens` more
        columns, which is not a limit. Returns logits [N, V]."""
        from rlbook.llm.models.cache_layers import block_cache

        rows = rows.with_prefix(self.model.device)
        self.padding, self.column = rows.padding[rows.index], rows.prompt.shape[1]
        self.cache = block_cache(
            self.model.config, self.column + new_tokens, compute_of(self.model).dtype
        )
        output = self._forward(**_inputs(self.model, rows.prompt, rows.padding, last=1))
        self.cache.batch_select_indices(rows.index)
        return output[:, -1][rows.index]

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        """Appends one token to each row: int64 [N] → logits [N, V]."""
        token = to_device(token, self.padding.device)
        inputs = _inputs(self.model, token[:, None], self.padding, before=self.column)
        output = self._forward(**inputs)
        self.column += 1
        return output[:, -1]

    def _forward(self, **inputs: object) -> Tensor:
        """Logits [N, n, V] of the columns after those in the cache."""
        inputs |= {argument_name(self.model, *CACHE): self.cache, "use_cache": True}
        with compute_context(self.model):
            if not self.rounded:
                return self.model(**inputs).logits
            return torch.func.functional_call(self.model, self.rounded, kwargs=inputs).logits

    @torch.inference_mode()
    def select(self, rows: Tensor) -> None:
        """Goes on with these rows: int64 [M], each from 0 to N - 1; one may come several times."""
        rows = rows.to(self.padding.device)
        self.cache.batch_select_indices(rows)
        self.padding = self.padding[rows]

    def state_dict(self) -> State:
        """The KV cache, bit for bit: every tensor and number in its layers."""
        layers = [
            {name: _clone_tensor(value) for name, value in vars(layer).items() if _is_state(value)}
            for layer in self.cache.layers
        ]
        return {"layers": layers, "padding": self.padding.clone(), "column": self.column}

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        from rlbook.llm.models.cache_layers import block_cache

        device = self.model.device
        self.cache = block_cache(self.model.config, 0, compute_of(self.model).dtype)
        self.padding, self.column = state["padding"].to(device, copy=True), state["column"]
        for layer, fields in zip(self.cache.layers, state["layers"], strict=True):
            fields = {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in fields.items()
            }
            tensors = [value for value in fields.values() if isinstance(value, Tensor)]
            if tensors:
                fields = {"dtype": tensors[0].dtype, "device": device, **fields}
            vars(layer).update({name: _clone_tensor(value) for name, value in fields.items()})


def _is_state(value: object) -> bool:
    return isinstance(value, Tensor | bool | int | float | str) or value is None


def _clone_tensor(value: object) -> Any:
    return (
        value.clone(memory_format=torch.contiguous_format) if isinstance(value, Tensor) else value
    )
