"""The matrix product of a linear layer, by the faster of the two libraries inside torch.

torch multiplies float32 matrices with MKL, which on CPUs of other makers than Intel leaves half of
the vector width unused; oneDNN, which torch carries for lower precisions, does not: same precision,
up to twice the speed above a million multiplications. On Intel's CPUs MKL is the faster of the two.
The two round differently, so a run notes which one it used.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rlbook.fast.library_choice import CHOICE, asked_library

WORTHWHILE = 2**20  # multiplications up to which the longer way to oneDNN costs more than it saves


def cpu_maker() -> str:
    """ "GenuineIntel", "AuthenticAMD", …, or the platform's name for its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("vendor_id")),
        platform.processor(),
    )


def chosen_library() -> str:
    """ "mkl" (torch's own product) or "onednn".

    Raises:
        ValueError: `RLBOOK_MATMUL` names another one, or oneDNN where this torch does not have it.
    """
    asked = asked_library()
    if asked == "onednn" and _one_dnn() is None:
        raise ValueError(f"{CHOICE}: this torch has no oneDNN product")
    return asked or ("mkl" if _one_dnn() is None or "Intel" in cpu_maker() else "onednn")


def _one_dnn() -> Callable[..., Tensor] | None:
    """oneDNN's product, a private function of torch; None if this torch has none."""
    available = torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )
    return torch.ops.mkldnn._linear_pointwise if available else None


LIBRARY = chosen_library()
ONE_DNN = _one_dnn() if LIBRARY == "onednn" else None


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a bᵀ + bias, without gradients: a [M, K], b [O, K], bias [O] → [M, O]."""
    if (
        ONE_DNN is not None
        and a.shape[0] * b.numel() > WORTHWHILE
        and a.dtype == torch.float32
        and a.device.type == "cpu"
    ):
        return ONE_DNN(a, b, bias, "none", [], "")
    return a @ b.t() if bias is None else torch.addmm(bias, a, b.t())


def times(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a b, without gradients: a [M, K], b [K, O] → [M, O], into `out` where it is given."""
    if ONE_DNN is None:
        return torch.mm(a, b, out=out)
    found = product(a, b.t())
    return found if out is None else out.copy_(found)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ, with gradients: x [M, in], weight [out, in] → [M, out]; under autocast, torch's own."""
    if ONE_DNN is None or torch.is_autocast_enabled("cpu"):
        return torch.nn.functional.linear(x, weight)
    return _Linear.apply(x, weight)  # type: ignore[return-value]


class _Linear(torch.autograd.Function):
    """`product` with gradients, which are made of differentiable steps and so have gradients
    themselves."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        for_x, for_weight = ctx.needs_input_grad  # type: ignore[attr-defined]
        # create_graph: the gradient gets a graph of its own
        multiply = linear if torch.is_grad_enabled() else product
        return (
            multiply(grad, weight.t()) if for_x else None,
            multiply(grad.t(), x.t()) if for_weight else None,
        )
