"""Vector environments: N environments in one process, in worker processes, or split among processes."""
