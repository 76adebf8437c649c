"""Rewards for text: functions of finished completions, used alone or as a weighted sum."""

from rlbook.llm.rewards.answers import (
    boxed,
    given_answer,
    is_number,
    last_boxed,
    last_number,
    number,
    numeric,
    remainder,
    tagged,
)
from rlbook.llm.rewards.code import code, run_program
from rlbook.llm.rewards.completion import BatchedReward, Completion, Reward, mark_batched
from rlbook.llm.rewards.composite import REWARDS, Asked, Rewards
from rlbook.llm.rewards.examine import print_samples
from rlbook.llm.rewards.formats import form, language, tags, think
from rlbook.llm.rewards.judge import judge
from rlbook.llm.rewards.lengths import length, overlong, repetition
from rlbook.llm.rewards.passages import grounding, squad_em, squad_f1
from rlbook.llm.rewards.rubric import rubric
from rlbook.llm.rewards.sequence_classifier import reward_model
from rlbook.llm.rewards.shots import coherence, diversity, downstream
from rlbook.llm.rewards.verifiers import correct, edit, exact, judged, prefix

__all__ = [
    "REWARDS",
    "Asked",
    "BatchedReward",
    "Completion",
    "Reward",
    "Rewards",
    "boxed",
    "code",
    "coherence",
    "correct",
    "diversity",
    "downstream",
    "edit",
    "exact",
    "form",
    "given_answer",
    "grounding",
    "is_number",
    "judge",
    "judged",
    "language",
    "last_boxed",
    "last_number",
    "length",
    "mark_batched",
    "number",
    "numeric",
    "overlong",
    "prefix",
    "print_samples",
    "remainder",
    "repetition",
    "reward_model",
    "rubric",
    "run_program",
    "squad_em",
    "squad_f1",
    "tagged",
    "tags",
    "think",
]
