"""Speed beside the peers: everything as a ratio, taken in turn in one process. `make bench` runs
all of it."""
