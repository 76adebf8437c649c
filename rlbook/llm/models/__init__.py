"""Causal language models: the transformer to be read, Hugging Face's, adapters, folders, export,
sizes."""
