"""Causal language models: a readable transformer, Hugging Face models, adapters, folders, export,
sizes."""
