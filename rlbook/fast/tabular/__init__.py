"""Fast forms of what works on tables: loops of learning, sweeps over all states, tree search."""
