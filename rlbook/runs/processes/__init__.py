"""Runs in several processes: side by side, on a cluster, with torchrun; and the signals that stop them."""
