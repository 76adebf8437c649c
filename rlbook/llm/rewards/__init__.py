"""What a completion is worth: functions of finished completions, alone or several, named and weighted."""

from rlbook.llm.rewards.completion import BatchedReward, Completion, Reward, batched
from rlbook.llm.rewards.several import REWARDS, Asked, Rewards
from rlbook.llm.rewards.verifiers import correct, edit, exact, prefix

__all__ = ["REWARDS", "Asked", "BatchedReward", "Completion", "Reward", "Rewards", "batched", "correct", "edit", "exact", "prefix"]
