"""Models that judge texts: prompts, verdicts, and the models themselves. Rewards based on verdicts
are in `rlbook.llm.rewards`."""
