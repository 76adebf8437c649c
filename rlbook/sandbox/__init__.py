"""Code of strangers, with limits: programs, and templates that a model folder brings along."""
