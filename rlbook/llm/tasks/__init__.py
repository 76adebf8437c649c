"""Tasks: prompts with a known answer."""

from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tasks.reverse import ReverseTask
from rlbook.llm.tasks.task import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (AdditionTask, ReverseTask)}

__all__ = ["TASKS", "AdditionTask", "ReverseTask", "Task"]
