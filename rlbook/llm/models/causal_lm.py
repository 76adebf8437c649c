"""Any Hugging Face causal language model through its own forward pass: correct for any
architecture, with adapters and hooks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.fast_forms import has_fast_form
from rlbook.llm.generation.prompt_rows import PromptRows, positions
from rlbook.networks.policy import module_device

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

LanguageModel: TypeAlias = "PreTrainedModel | PeftModel"
"""A causal language model of transformers, or one with adapters in it."""


def _inputs(model: nn.Module, rows: PromptRows, tokens: Tensor) -> dict[str, Any]:
    """Token ids [B, P or P + T], their attention mask and their position ids; architectures without
    position ids infer them."""
    prompt, completion = positions(rows)
    position = torch.cat([prompt[rows.index], completion], dim=1)[:, : tokens.shape[1]]
    mask = (
        torch.arange(tokens.shape[1], device=tokens.device) >= rows.padding[rows.index][:, None]
    ).long()
    inputs = {"input_ids": tokens, "attention_mask": mask}
    return {**inputs, "position_ids": position} if _takes(model, "position_ids") else inputs


def _takes(model: nn.Module, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


@has_fast_form
def logits(model: nn.Module, rows: PromptRows) -> Tensor:
    """Next-token logits [B, T + 1, V] after the prompt and after each completion token, with
    gradients, on the model's device."""
    rows = rows.to(module_device(model)).with_prefix()
    tokens = torch.cat([rows.prompt[rows.index], rows.completion], dim=1)
    columns = rows.completion.shape[1] + 1
    keep = {"logits_to_keep": columns} if _takes(model, "logits_to_keep") else {}
    return model(**_inputs(model, rows, tokens), use_cache=False, **keep).logits[:, -columns:]


@has_fast_form
def hidden_states(trunk: nn.Module, rows: PromptRows) -> Tensor:
    """The trunk's last hidden state [B, T + 1, d] at the same columns as `logits`, with
    gradients."""
    rows = rows.to(module_device(trunk)).with_prefix()
    tokens = torch.cat([rows.prompt[rows.index], rows.completion], dim=1)
    output = trunk(**_inputs(trunk, rows, tokens), use_cache=False)
    return output.last_hidden_state[:, -rows.completion.shape[1] - 1 :]


@has_fast_form
def decoder(model: LanguageModel) -> Decoder:
    """A decoder, which computes the next-token logits of `model` column by column with its current
    weights."""
    return CausalDecoder(model)


class Decoder(Protocol):
    """Processes N prompts, then one token per row at a time."""

    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor: ...

    def step(self, token: Tensor) -> Tensor: ...

    def select(self, rows: Tensor) -> None: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class CausalDecoder:
    """Next-token logits for N rows, one column at a time, with transformers' own KV cache."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @torch.inference_mode()
    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor:
        """Processes the prompts (`rows.completion` is ignored). Returns logits [N, V]. The cache
        grows automatically."""
        from transformers import DynamicCache

        rows = rows.to(module_device(self.model)).with_prefix()
        distinct = rows._replace(
            index=torch.arange(len(rows.prompt), device=rows.index.device),
            completion=rows.prompt[:, :0],
        )
        self.cache = DynamicCache(config=self.model.config)
        self.padding, self.column = rows.padding[rows.index], rows.prompt.shape[1]
        output = self.model(
            **_inputs(self.model, distinct, rows.prompt), past_key_values=self.cache, use_cache=True
        )
        self.cache.batch_select_indices(rows.index)
        return output.logits[:, -1][rows.index]

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        """Appends one token to each row: int64 [N] → logits [N, V]."""
        token = token.to(self.padding.device)
        mask = (torch.arange(self.column + 1, device=token.device) >= self.padding[:, None]).long()
        position = (
            {"position_ids": (self.column - self.padding)[:, None]}
            if _takes(self.model, "position_ids")
            else {}
        )
        output = self.model(
            input_ids=token[:, None],
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            **position,
        )
        self.column += 1
        return output.logits[:, -1]

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
        from transformers import DynamicCache

        self.cache, device = DynamicCache(config=self.model.config), module_device(self.model)
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
