"""Experiments on language models, in the form of the others."""
