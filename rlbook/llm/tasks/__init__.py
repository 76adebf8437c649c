"""Tasks: prompts with a known answer."""

from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tasks.countdown import CountdownTask
from rlbook.llm.tasks.mixture import MixtureTask
from rlbook.llm.tasks.modular import ModularTask
from rlbook.llm.tasks.reasoning import ReasoningTask
from rlbook.llm.tasks.reverse import ReverseTask
from rlbook.llm.tasks.sorting import SortingTask
from rlbook.llm.tasks.tagged_copy import TaggedCopyTask
from rlbook.llm.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (AdditionTask, ReverseTask, SortingTask, ModularTask, TaggedCopyTask, CountdownTask, ReasoningTask)
}

__all__ = [
    "TASKS", "AdditionTask", "CountdownTask", "MixtureTask", "ModularTask", "ReasoningTask", "ReverseTask", "SortingTask",
    "TaggedCopyTask", "Task",
]  # fmt: skip
