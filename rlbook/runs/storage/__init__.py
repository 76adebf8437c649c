"""What a run keeps on disk: checkpoints, the log, state as JSON and arrays. Files are written
whole or not at all, and read with suspicion."""
