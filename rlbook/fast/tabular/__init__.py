"""Fast forms of what works on tables: compiled loops of learning, sweeps over all states, tree search."""
