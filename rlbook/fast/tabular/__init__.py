"""Fast forms for tables: learning loops, sweeps over all states, tree search."""
