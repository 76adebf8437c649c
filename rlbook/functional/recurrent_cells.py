"""One step of a recurrent network: from its state and an input to its next state.

Shapes: B rows, H units. σ is the logistic function, ⊙ the product of elements.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape


def gru_cell(from_input: Tensor, from_state: Tensor, h: Tensor) -> Tensor:
    """One step of a gated recurrent unit.

    r = σ(W_r x + U_r h),   z = σ(W_z x + U_z h)
    n = tanh(W_n x + r ⊙ U_n h)
    h' = (1 - z) ⊙ n + z ⊙ h

    Each U h has a bias of its own. With z = 1 a unit keeps what it remembers; with r = 0 it looks
    at the input alone.

    Args:
        from_input: [B, 3H]. W x, the parts of r, z and n side by side.
        from_state: [B, 3H]. U h, in the same order.
        h: [B, H], what was remembered so far.

    Returns:
        h' [B, H].

    Source: Cho et al. 2014, arXiv:1406.1078, eq. 5 to 8. Difference, as in PyTorch and cuDNN: r
    multiplies U_n h, and not h.
    """
    check_same_shape(from_input=from_input, from_state=from_state)
    reset_input, update_input, new_input = from_input.chunk(3, dim=-1)
    reset_state, update_state, new_state = from_state.chunk(3, dim=-1)
    reset = torch.sigmoid(reset_input + reset_state)
    update = torch.sigmoid(update_input + update_state)
    new = torch.tanh(new_input + reset * new_state)
    check_same_shape(new=new, h=h)
    return (1 - update) * new + update * h


def lstm_cell(from_input: Tensor, from_state: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of long short-term memory.

    i = σ(W_i x + U_i h),   f = σ(W_f x + U_f h),   o = σ(W_o x + U_o h)
    g = tanh(W_g x + U_g h)
    c' = f ⊙ c + i ⊙ g
    h' = o ⊙ tanh(c')

    With f = 1 and i = 0 a unit keeps its c, however long.

    Args:
        from_input: [B, 4H]. W x, the parts of i, f, g and o side by side.
        from_state: [B, 4H]. U h, in the same order.
        c: [B, H], the memory cells so far.

    Returns:
        h' and c', [B, H] each.

    Source: Hochreiter & Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735, with the forget gate f of
    Gers et al. 2000, doi:10.1162/089976600300015015.
    """
    check_same_shape(from_input=from_input, from_state=from_state)
    i, f, g, o = (from_input + from_state).chunk(4, dim=-1)
    check_same_shape(f=f, c=c)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
