"""Two residual layers with layer normalisation, which read a vector of any length."""

import torch
from torch import nn


class Residual(nn.Module):
    """h ← h + W₂ relu(W₁ norm(h)), twice, of h = W x."""

    def __init__(self, space, width=64):
        super().__init__()
        self.features_size = width
        self.first = nn.Linear(space.shape[0], width)
        self.blocks = nn.ModuleList(self._block(width) for _ in range(2))

    def forward(self, x):  # [B, O] → [B, width]
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return torch.relu(h)

    def _block(self, width):
        layers = nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        return nn.Sequential(nn.LayerNorm(width), *layers)
