"""What the log says of an agent with a table whose environment has a model.

How far it is from the exact answer.
"""

EXACT_METRICS = {
    "value_error": "root mean square of V(s) - V*(s) over the states that are reachable and not "
    "terminal, in reward units; V^π in place of V* for an agent that learns the values of a given "
    "policy π, and for an on-policy agent, whose π is its own policy with its exploration (V is "
    "then Σ_a π(a|s) Q(s, a)); exact, without the time limit; at evaluations",
    "policy_regret": "V*(s) - V^π(s) of the greedy policy π, averaged over where episodes begin, "
    "in reward units; exact; where value_error is, if the policy is sure to end the episode or "
    "gamma is below 1",
}
"""Name → meaning and unit; `rlbook.runs.exact_evaluation` computes them."""
