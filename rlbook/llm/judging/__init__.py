"""Models that judge texts: prompts, verdicts, and whoever is asked. What a run is paid for a verdict
is in `rlbook.llm.rewards`."""
