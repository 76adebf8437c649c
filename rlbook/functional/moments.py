"""Running mean and variance of a stream of data."""

from __future__ import annotations

from torch import Tensor


def merged_moments(
    count: Tensor, mean: Tensor, variance: Tensor, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and variance after adding the batch `x`.

    δ = mean(x) - mean,   mean' = mean + δ B / (n + B)
    variance' = (n variance + B var(x) + δ² n B / (n + B)) / (n + B)

    The result is that of one pass over everything, up to rounding, however it was divided.

    Args:
        count: [], n, how many rows were seen before.
        mean: [...], their mean; of no account where n = 0.
        variance: [...], their variance, divided by n.
        x: [B, ...], more rows, B ≥ 1, from any number of environments.

    Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
    sample variances", eq. 2.1.
    """
    if x.shape[1:] != mean.shape or mean.shape != variance.shape or len(x) == 0:
        shapes = f"{list(x.shape)}, {list(mean.shape)} and {list(variance.shape)}"
        raise ValueError(f"x must be [B, ...] with mean and variance [...], got {shapes}")
    total, delta = count + len(x), x.mean(0) - mean
    between = delta.square() * count * len(x) / total
    squares = variance * count + x.var(0, unbiased=False) * len(x) + between
    return total, mean + delta * len(x) / total, squares / total
