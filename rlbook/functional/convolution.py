"""A convolution in plain form, and the size of its output.

Shapes: C channels of an image of H x W pixels, K filters of h x w pixels. The networks use
PyTorch's convolutions, which are tested against these.
"""

from __future__ import annotations

import torch
from torch import Tensor


def output_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """The number of positions of a filter along a side: ⌊(n + 2p - k) / s⌋ + 1.

    Args:
        size: n, pixels of the side.
        kernel: k, pixels of the filter along it.
        stride: s, pixels from one place of the filter to the next.
        padding: p, pixels that are 0, at either end.

    Returns:
        Pixels of the output along that side.

    Source: Dumoulin & Visin 2016, arXiv:1603.07285, relationship 6.
    """
    return (size + 2 * padding - kernel) // stride + 1


def convolve(
    image: Tensor, filters: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0
) -> Tensor:
    """The weighted sums of K filters at every position of an image.

    y[k, i, j] = b[k] + Σ_c Σ_u Σ_v W[k, c, u, v] x[c, s i + u - p, s j + v - p]

    Outside of the image x is 0.

    Args:
        image: x [C, H, W].
        filters: W [K, C, h, w].
        bias: b [K].
        stride: s, pixels from one place to the next.
        padding: p, pixels that are 0, around the image.

    Returns:
        y [K, H', W'], H' and W' as `output_size` has them.

    Raises:
        ValueError: the image has other channels than the filters, or is smaller than they are.

    Source: LeCun et al. 1989, doi:10.1162/neco.1989.1.4.541. The filter is not turned round, as in
    PyTorch.
    """
    height, width = filters.shape[-2:]
    if image.shape[0] != filters.shape[1]:
        raise ValueError(
            f"filters of {filters.shape[1]} channels cannot read an image of {image.shape[0]}"
        )
    x = torch.nn.functional.pad(image, (padding,) * 4)
    if x.shape[1] < height or x.shape[2] < width:
        raise ValueError(
            f"filters of {height} x {width} pixels do not fit into {x.shape[1]} x {x.shape[2]}"
        )
    patches = x.unfold(1, height, stride).unfold(2, width, stride)  # [C, H', W', h, w]
    sums = torch.einsum("kcuv,cijuv->kij", filters, patches)
    return sums + bias[:, None, None]
