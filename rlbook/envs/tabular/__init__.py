"""Finite models as arrays, and environments that sample from them."""
