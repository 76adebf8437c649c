"""A run's files: checkpoints, the log, and state as JSON and arrays. Files are written atomically
and validated when read."""
