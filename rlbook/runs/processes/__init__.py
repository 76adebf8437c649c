"""Runs in several processes: side by side, on a cluster, with torchrun; signals that stop them."""
