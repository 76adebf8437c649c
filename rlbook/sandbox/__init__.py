"""Resource limits for untrusted code: generated programs, and the templates of model folders."""
