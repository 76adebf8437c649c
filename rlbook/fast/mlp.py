"""Multi-layer perceptrons as one node of autograd's graph, with written-out gradients.

At these sizes autograd spends longer on its nodes than on the arithmetic: one node makes an update
of PPO about twice as fast. Each function here stands in for one of `rlbook.networks.mlp` and leaves
the work to it where a layer is not an ordinary linear one (an adapter, a parametrisation, a hook),
its activation is none of `WRITTEN_OUT`, or its numbers are not float32 or float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlbook.fast.matrix_product import product, times
from rlbook.fast.modules import is_default_context, is_unmodified
from rlbook.networks import mlp
from rlbook.networks import noisy_linear as noisy
from rlbook.networks.mlp import MLP

WRITTEN_OUT = ("tanh", "relu")
"""The activations whose gradient is written out here; a network with another is left to
autograd."""
Weights = list[Tensor]
"""Weight and bias of each layer in turn: [out, in], [out], …"""


def forward(network: MLP, x: Tensor, end: int | None = None) -> Tensor:
    """The fast form of `MLP.forward`, which still calls hooks on the network itself."""
    weights = weights_of(network, x)
    if weights is not None and end is not None:
        weights = weights[: 2 * end]
    if not weights:
        return MLP.forward.plain(network, x, end)  # type: ignore[attr-defined]
    z = evaluate(x, network.activation, [weights])[0]
    return z if end is None else mlp.ACTIVATIONS[network.activation](z)


def apply_networks(networks: Sequence[MLP], x: Tensor) -> list[Tensor]:
    """The fast form of `rlbook.networks.mlp.apply_networks`."""
    first, all_weights = networks[0], [weights_of(network, x) for network in networks]
    alike = all(
        is_unmodified(network) and network.activation == first.activation for network in networks
    )
    known = [
        weights
        for weights in all_weights
        if weights is not None and len(weights) == len(all_weights[0] or ())
    ]
    if not alike or len(known) < len(networks):
        return mlp.apply_networks.plain(networks, x)  # type: ignore[attr-defined]
    return evaluate(x, first.activation, known)


def apply_two_heads(network: MLP, head: MLP, x: Tensor) -> tuple[Tensor, Tensor]:
    """The fast form of `rlbook.networks.mlp.apply_two_heads`: the hidden layers are computed
    once."""
    if not is_unmodified(network) or weights_of(network, x) is None:
        return mlp.apply_two_heads.plain(network, head, x)  # type: ignore[attr-defined]
    seen = network.forward(x, end=-1)
    return network.layers[-1](seen), head(seen)


def apply_layers(weights: Sequence[Tensor], x: Tensor, activation: str = "relu") -> Tensor:
    """The fast form of `rlbook.networks.noisy_linear.apply_layers`."""
    known = (
        activation in WRITTEN_OUT
        and type(x) is Tensor
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )
    if not known or any(weight.dtype is not x.dtype or not weight.is_cpu for weight in weights):
        return noisy.apply_layers.plain(weights, x, activation)  # type: ignore[attr-defined]
    return evaluate(x, activation, [list(weights)])[0]


def weights_of(network: nn.Module, x: Tensor) -> Weights | None:
    """The network's weights, or None if the functions below would not compute what its layers
    do."""
    dtype = x.dtype
    if (
        type(network) is not MLP
        or network.activation not in WRITTEN_OUT
        or type(x) is not Tensor
        or dtype not in (torch.float32, torch.float64)
        or not is_default_context()
    ):
        return None
    weights: Weights = []
    for layer in network.layers._modules.values():
        if type(layer) is not nn.Linear or not is_unmodified(layer):
            return None
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        if type(weight) is not nn.Parameter or type(bias) is not nn.Parameter:
            return None
        if (
            weight.dtype is not dtype
            or bias.dtype is not dtype
            or not (weight.is_cpu and bias.is_cpu)
        ):
            return None
        weights.append(weight)
        weights.append(bias)
    return weights if x.is_cpu else None


def evaluate(x: Tensor, activation: str, networks: Sequence[Weights]) -> list[Tensor]:
    """The outputs [..., out] of networks of equally many layers on the same x [..., in]."""
    flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        weights = (
            networks[0]
            if len(networks) == 1
            else [tensor for network in networks for tensor in network]
        )
        outputs = Backpropagation.apply(flat, activation, len(networks), *weights)
    else:
        outputs = [forward_pass(flat, activation, network)[-1] for network in networks]
    return [out if x.dim() == 2 else out.view(*x.shape[:-1], out.shape[-1]) for out in outputs]


def forward_pass(x: Tensor, activation: str, weights: Sequence[Tensor]) -> list[Tensor]:
    """x [B, in], then the output of every hidden layer, then the network's. Without gradients."""
    outputs = [x]
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        outputs.append(_activate(product(outputs[-1], weight, bias), activation))
    return [*outputs, product(outputs[-1], weights[-2], weights[-1])]


def backward_pass(
    delta: Tensor,
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    activation: str,
    into: Sequence[Tensor | None],
) -> tuple[list[Tensor], Tensor]:
    """The chain rule, from the last layer to the first; see `Backpropagation`.

    Args:
        delta: ∂loss/∂z of the last layer, [B, out].
        inputs: what each layer saw, x [B, in] first.
        weights: weight and bias of each layer in turn.
        activation: of the hidden layers, one of `WRITTEN_OUT`.
        into: memory for the gradient of each of the weights, or None for new memory.

    Returns:
        The gradients, in the order of the weights, and ∂loss/∂z of the first layer.
    """
    gradients: list[Tensor] = []
    for layer in range(len(inputs) - 1, -1, -1):
        h, place, bias = inputs[layer], into[2 * layer], into[2 * layer + 1]
        gradients += [torch.sum(delta, 0, out=bias), _weight_gradient(delta, h, place)]
        if layer:
            delta = _activation_gradient(times(delta, weights[2 * layer]), h, activation)
    return gradients[::-1], delta


def input_gradient(
    delta: Tensor, inputs: Sequence[Tensor], weights: Sequence[Tensor], activation: str
) -> Tensor:
    """∂loss/∂x of the network [B, in], without any of its weights' gradients; the arguments are
    those of `backward_pass`."""
    for layer in range(len(inputs) - 1, 0, -1):
        delta = _activation_gradient(times(delta, weights[2 * layer]), inputs[layer], activation)
    return times(delta, weights[0])


def _weight_gradient(delta: Tensor, h: Tensor, out: Tensor | None) -> Tensor:
    """δᵀ h; transposed, it is three times faster where h is the narrower of the two."""
    if h.shape[1] < delta.shape[1]:
        return torch.mm(h.t(), delta, out=None if out is None else out.t()).t()
    return times(delta.t(), h, out)


class _BackpropContext(Protocol):
    """What `Backpropagation` stores between its two passes."""

    activation: str
    networks: int
    share: int
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class Backpropagation(torch.autograd.Function):
    """One or more MLPs as a single node of the graph: the chain rule, layer by layer.

    h_0 = x,   z_l = h_{l-1} W_lᵀ + b_l,   h_l = φ(z_l),   output z_L
    δ_L = ∂loss/∂z_L,   ∂loss/∂W_l = δ_lᵀ h_{l-1},   ∂loss/∂b_l = Σ δ_l,   δ_{l-1} = (δ_l W_l) φ'(z_{l-1})

    Source: Rumelhart, Hinton & Williams 1986, doi:10.1038/323533a0. Equal to autograd's gradient up
    to rounding; where the gradient is to be differentiated in turn, autograd computes it.
    """

    @staticmethod
    def forward(
        ctx: _BackpropContext, x: Tensor, activation: str, networks: int, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        saved, outputs, share = [x, *weights], [], len(weights) // networks
        for start in range(0, len(weights), share):
            _, *between, out = forward_pass(x, activation, weights[start : start + share])
            saved += between
            outputs.append(out)
        ctx.save_for_backward(*saved)
        ctx.activation, ctx.networks, ctx.share = activation, networks, share
        return tuple(outputs)

    @staticmethod
    def backward(ctx: _BackpropContext, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        share, count = ctx.share, ctx.share * ctx.networks
        x, *rest = ctx.saved_tensors
        weights, between = rest[:count], rest[count:]
        if torch.is_grad_enabled():  # create_graph: the gradient gets a graph of its own
            return _differentiable(ctx, x, weights, deltas)
        gradients: list[Tensor] = []
        for_x, hidden = None, share // 2 - 1
        for network, delta in enumerate(deltas):
            own = weights[network * share : (network + 1) * share]
            inputs = [x, *between[network * hidden : (network + 1) * hidden]]
            found, delta = backward_pass(delta, inputs, own, ctx.activation, [None] * share)
            gradients += found
            if ctx.needs_input_grad[0]:
                for_x = delta @ own[0] if for_x is None else for_x + delta @ own[0]
        return for_x, None, None, *gradients


def _differentiable(
    ctx: _BackpropContext, x: Tensor, weights: list[Tensor], deltas: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient by autograd's own nodes, so that it can be differentiated again."""
    phi, outputs = mlp.ACTIVATIONS[ctx.activation], []
    # a weight that comes twice is told apart
    x, *weights = [tensor.view_as(tensor) for tensor in (x, *weights)]
    for start in range(0, len(weights), ctx.share):
        h, own = x, weights[start : start + ctx.share]
        for weight, bias in zip(own[:-2:2], own[1:-2:2], strict=True):
            h = phi(torch.addmm(bias, h, weight.t()))
        outputs.append(torch.addmm(own[-1], h, own[-2].t()))
    needed = [ctx.needs_input_grad[0], *ctx.needs_input_grad[3:]]
    inputs = [tensor for tensor, wanted in zip([x, *weights], needed, strict=True) if wanted]
    found = iter(torch.autograd.grad(outputs, inputs, deltas, create_graph=True, allow_unused=True))
    for_x, *gradients = [next(found) if wanted else None for wanted in needed]
    return for_x, None, None, *gradients


def _activation_gradient(delta: Tensor, h: Tensor, activation: str) -> Tensor:
    """δ φ'(z), computed from h = φ(z), in place of δ: allocating memory costs more here than the
    arithmetic."""
    if activation == "tanh":
        return torch.ops.aten.tanh_backward.grad_input(delta, h, grad_input=delta)
    return torch.ops.aten.threshold_backward.grad_input(delta, h, 0, grad_input=delta)


def _activate(z: Tensor, activation: str) -> Tensor:
    """φ(z), in place. numpy's tanh is ten times faster than torch's here."""
    if activation == "tanh":
        np.tanh(z.numpy(), out=z.numpy())
        return z
    return z.relu_()
