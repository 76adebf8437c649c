"""Vector environments: N of them in one process, in worker processes, or split among processes."""
