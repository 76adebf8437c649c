"""Experiments on language models: each module is one, run by `python -m`."""
