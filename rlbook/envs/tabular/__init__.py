"""Finite models as arrays, and what samples from them."""
