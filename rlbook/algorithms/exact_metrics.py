"""Metrics of a tabular agent whose environment has a model: its distance from the exact answer."""

EXACT_METRICS = {
    "value_error": "root mean square of V(s) - V*(s) over the reachable, non-terminal states, in "
    "reward units. V^π replaces V* for an agent that evaluates a given policy π, and for an "
    "on-policy agent, whose π is its own exploring policy (V is then Σ_a π(a|s) Q(s, a)). Exact, "
    "ignoring the time limit; at evaluations only",
    "policy_regret": "V*(s) - V^π(s) of the greedy policy π, averaged over the initial states, in "
    "reward units. Exact; logged with value_error, if the policy is certain to end the episode or "
    "gamma is below 1",
}
"""Name → meaning and unit; `rlbook.runs.exact_evaluation` computes them."""
