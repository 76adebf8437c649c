"""A convolution by hand, as PyTorch computes it, and of an image that is moved."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_near

from rlbook.functional.convolution import convolve, output_size


def integers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).double()


def test_a_filter_for_an_edge_by_hand() -> None:
    """(-1, 1) is the pixel on the right less the one on the left: 9 where the edge is."""
    image = torch.tensor([[0.0, 0.0, 9.0, 9.0]] * 3)[None]
    edge = torch.tensor([[-1.0, 1.0]])[None, None]
    found = convolve(image, edge, torch.tensor([0.5]))
    assert found.tolist() == [[[0.5, 9.5, 0.5]] * 3]


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 0), (3, 2), (4, 1)])
def test_it_is_pytorchs_convolution(stride: int, padding: int) -> None:
    image, filters, bias = integers(3, 9, 7), integers(5, 3, 4, 2, seed=1), integers(5, seed=2)
    expected = torch.nn.functional.conv2d(
        image[None], filters, bias, stride=stride, padding=padding
    )
    found = convolve(image, filters, bias, stride=stride, padding=padding)
    assert_near(found, expected[0], terms=3 * 4 * 2 + 1, size=9.0 * (3 * 4 * 2 + 1))
    height, width = (output_size(n, k, stride, padding) for n, k in ((9, 4), (7, 2)))
    assert found.shape == (5, height, width)


def test_an_image_that_is_moved_has_sums_that_are_moved() -> None:
    """Numbers that are small integers, so that no order of the sums rounds."""
    image, filters, bias = integers(2, 8, 8), integers(4, 2, 3, 3, seed=1), integers(4, seed=2)
    whole = convolve(image, filters, bias)
    moved = convolve(image.roll((1, 2), (1, 2)), filters, bias)
    assert torch.equal(moved[:, 1:, 2:], whole[:, :-1, :-2])


def test_an_output_has_a_pixel_for_each_place_of_the_filter() -> None:
    for size in range(3, 20):
        for kernel in (1, 2, 3):
            for stride in (1, 2, 3, 4):
                for padding in (0, 1, 2):
                    places = range(-padding, size + padding - kernel + 1, stride)
                    assert output_size(size, kernel, stride, padding) == len(places)


def test_natures_filters_leave_seven_pixels_of_84() -> None:
    side, sides = 84, []
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        side = output_size(side, kernel, stride, 0)
        sides.append(side)
    assert sides == [20, 9, 7]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="filters of 3 channels cannot read an image of 2"):
        convolve(integers(2, 5, 5), integers(1, 3, 2, 2), integers(1))
    with pytest.raises(ValueError, match="filters of 4 x 4 pixels do not fit into 3 x 5"):
        convolve(integers(2, 3, 5), integers(1, 2, 4, 4), integers(1))
