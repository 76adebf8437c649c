"""Tasks: prompts with a known answer."""

from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tasks.countdown import CountdownTask
from rlbook.llm.tasks.mixture import MixtureTask
from rlbook.llm.tasks.modular import ModularTask
from rlbook.llm.tasks.reasoning import ReasoningTask
from rlbook.llm.tasks.retrieval import RetrievalTask
from rlbook.llm.tasks.reverse import ReverseTask
from rlbook.llm.tasks.sorting import SortingTask
from rlbook.llm.tasks.tagged_copy import TaggedCopyTask
from rlbook.llm.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        AdditionTask,
        ReverseTask,
        SortingTask,
        ModularTask,
        TaggedCopyTask,
        CountdownTask,
        ReasoningTask,
    )
}

RECORDED = "rlbook/"
"""The prefix of a task's name in the `data_source` of the rows that `rlbook record` writes."""


def recorded_task(source: object) -> type[Task] | None:
    """The task named by a row's `data_source`; None if it is not a built-in one."""
    known: dict[str, type[Task]] = {**TASKS, RetrievalTask.name: RetrievalTask}
    return (
        known.get(str(source).removeprefix(RECORDED)) if str(source).startswith(RECORDED) else None
    )


__all__ = [
    "RECORDED",
    "TASKS",
    "AdditionTask",
    "CountdownTask",
    "MixtureTask",
    "ModularTask",
    "ReasoningTask",
    "ReverseTask",
    "SortingTask",
    "TaggedCopyTask",
    "Task",
    "recorded_task",
]
