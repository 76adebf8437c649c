"""A language model with adapters of peft, and the same model without them.

An adapter is a small change of some layers, such as LoRA's W + B A, that is trained while W stays as it was. So the model from before the
training needs no memory of its own: it is the same one with the adapters off.
Source: Hu et al. 2022, arXiv:2106.09685, eq. 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from rlbook.agent import State
from rlbook.llm import causal_lm
from rlbook.llm.rows import Rows


def trains_adapters_alone(model: Any) -> bool:
    """Whether `model` is a `PeftModel` that trains nothing but its adapters, so that without them it is what it was before."""
    if not (hasattr(model, "disable_adapter") and hasattr(model, "peft_config")):
        return False
    with adapters_off(model):
        return not any(parameter.requires_grad for parameter in model.parameters())


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """Inside, the adapters of a `PeftModel` change nothing. Which parameters are trained is the same before and after."""
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with model.disable_adapter():
            yield
    finally:
        for parameter, was_trained in trained:               # peft would train every adapter from here on
            parameter.requires_grad_(was_trained)


class DecoderWithoutAdapters:
    """A decoder of the model with its adapters off."""

    def __init__(self, model: Any) -> None:
        self.model, self.decoder = model, causal_lm.decoder(model)

    def prefill(self, rows: Rows, new_tokens: int) -> Tensor:
        with adapters_off(self.model):
            return self.decoder.prefill(rows, new_tokens)

    def step(self, token: Tensor) -> Tensor:
        with adapters_off(self.model):
            return self.decoder.step(token)

    def state_dict(self) -> State:
        return self.decoder.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.decoder.load_state_dict(state)
