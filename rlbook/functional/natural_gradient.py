"""Natural gradient: steps measured by the change of the policy's distribution, not of its
weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def flat_gradient(
    scalar: Tensor, parameters: Sequence[Tensor], *, create_graph: bool = False
) -> Tensor:
    """The gradient of a scalar with respect to all parameters, as one vector.

    Args:
        scalar: what is differentiated; its graph is kept.
        parameters: P numbers in all; one that the scalar does not depend on has gradient 0.
        create_graph: whether the gradient is to be differentiated in turn.

    Returns:
        [P], in units of the scalar per unit of the parameter, in the order of the parameters.
    """
    found = torch.autograd.grad(
        scalar, parameters, create_graph=create_graph, retain_graph=True, allow_unused=True
    )
    pairs = zip(found, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs])


def fisher_vector_product(
    kl_gradient: Tensor, parameters: Sequence[Tensor], vector: Tensor, *, damping: float = 0.0
) -> Tensor:
    """(F + c I) v without forming F, which has P² entries.

    F = ∇² mean KL(π_old ‖ π_θ) at θ = θ_old,   F v = ∇ ( ∇KL · v )

    At this θ the KL and its gradient are 0, and its second derivative is the Fisher matrix
    F = E[ ∇log π(a|s) ∇log π(a|s)ᵀ ]: ½ dᵀ F d is the KL of a small step d, in nats.

    Args:
        kl_gradient: [P]. ∇KL at θ_old, from `flat_gradient` with `create_graph`.
        parameters: θ, P numbers in all.
        vector: v, [P].
        damping: c ≥ 0, which makes a singular F invertible.

    Returns:
        [P], without gradient.

    Source: Schulman et al. 2015, arXiv:1502.05477, appendix C.1, which differentiates the
    distribution's parameters instead; Pearlmutter 1994, doi:10.1162/neco.1994.6.1.147.
    """
    product = flat_gradient(kl_gradient @ vector, parameters)
    return product.detach() + damping * vector


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """Solves A x = b for a symmetric positive definite A that is given only by its matrix-vector
    products.

    α = rᵀr / pᵀA p,   x ← x + α p,   r' = r - α A p,   p ← r' + (r'ᵀr' / rᵀr) p

    Args:
        product: v [P] → A v [P].
        b: [P].
        iterations: at most so many products; P of them are exact but for rounding.
        tolerance: stops where rᵀr of the residual r = b - A x is at most this.

    Returns:
        [P]; 0 where b is 0.

    Source: Hestenes & Stiefel 1952, doi:10.6028/jres.049.044, section 3.
    """
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    square = residual @ residual
    for _ in range(iterations):
        if square <= tolerance:
            break
        image = product(direction)
        length = square / (direction @ image)
        x, residual = x + length * direction, residual - length * image
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return x


def trust_region_step(direction: Tensor, image: Tensor, max_kl: float) -> Tensor:
    """Scales a direction so that the KL predicted by the Fisher matrix is `max_kl`.

    d = √(2 δ / sᵀ F s) s,   so that ½ dᵀ F d = δ

    Args:
        direction: s, [P].
        image: F s, [P].
        max_kl: δ, in nats, > 0.

    Returns:
        [P]; 0 where s is 0.

    Source: Schulman et al. 2015, arXiv:1502.05477, appendix C.
    """
    length = (direction @ image).clamp(min=torch.finfo(direction.dtype).tiny)
    return math.sqrt(2.0 * max_kl) * length.rsqrt() * direction
