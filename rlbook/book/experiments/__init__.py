"""Experiments behind the pages: each module is one, run by `python -m`."""
