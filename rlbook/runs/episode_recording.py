"""`rlbook record`: writes episodes of a run's agent, an exact planner or a random policy as a data
set, or a task's examples as rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rlbook.agent import Agent
from rlbook.checks import check, one_of, unit_interval, whole_number
from rlbook.data.recorded import RecordedEpisode
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.runs.demonstrations import (
    OPTIMAL,
    POLICIES,
    UNIFORM,
    UniformAgent,
    exact_expert,
    record_episodes,
)
from rlbook.runs.run import Run, load


def record(
    source: str | Path | Run,
    out: str | Path,
    *,
    episodes: int = 100,
    policy: str | None = None,
    epsilon: float = 0.0,
    seed: int = 0,
    explore: bool = False,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
    env_kwargs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Plays episodes and writes them as a Minari data set for `--data`; implements `rlbook record`.

    Args:
        source: a run or its folder, whose agent acts; or an environment's id, in which `policy`
            acts.
        out: the folder to write; it must not exist or hold a data set.
        episodes: how many, at least 1.
        policy: "uniform", or "optimal" from the environment's model; with an environment only.
        epsilon: the share of actions that are drawn uniformly instead, in [0, 1]: walks of every
            quality.
        seed: of resets and of random actions.
        explore: let a run's agent act as in training.
        checkpoint, allow_import: as in `rlbook.load`.
        env_kwargs: arguments for an environment given by its id.

    Returns:
        Facts: the environment and its arguments, episodes, steps, mean return, and the folder.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    from rlbook.data.minari_files import data_folder, write_minari

    episodes = whole_number("episodes", episodes, least=1)
    seed = whole_number("seed", seed, least=0)
    with request_errors():
        check("epsilon", epsilon, unit_interval)
        check("policy", policy, one_of(*POLICIES)) if policy is not None else None
    folder = Path(out)
    if data_folder(folder) is not None or (
        folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise RequestError(f"{out} exists already; name a new folder")
    agent, recipe, name = _acting_agent(
        source, policy, seed, explore, checkpoint, allow_import, env_kwargs
    )
    returns: list[float] = []

    def play() -> Iterator[RecordedEpisode]:
        for episode in islice(
            record_episodes(agent, recipe, seed, explore=explore, epsilon=epsilon), episodes
        ):
            returns.append(sum(episode.rewards))
            yield episode

    steps = write_minari(folder, play(), recipe.make(), policy=name)
    return {
        "env": recipe.typed_id,
        "env_kwargs": dict(recipe.kwargs),
        "policy": name,
        "episodes": episodes,
        "steps": steps,
        "return": sum(returns) / episodes,
        "data": str(out),
    }


def record_examples(
    source: str,
    out: str | Path,
    *,
    schema: str = "verl",
    episodes: int | None = None,
    allow_import: bool = False,
    env_kwargs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes the examples of a token environment as rows for `--env.data` of Chat-v0 and for verl;
    implements `record --schema verl`.

    Args:
        source: the environment's id; its argument `split` says which examples.
        out: the file to write: parquet where its name ends in .parquet, or else JSON lines.
        schema: "verl".
        episodes: how many of the examples, from the first; None is all.
        allow_import, env_kwargs: as in `record`.

    Returns:
        Facts: how many rows, and the file; and a note where the task's own score cannot be told
            from a row.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    with request_errors():
        check("schema", schema, one_of("verl"))
    if episodes is not None:
        episodes = whole_number("episodes", episodes, least=1)
    if Path(source).is_dir():
        raise RequestError(
            "schema applies to the examples of an environment given by its id, but a run was given"
        )
    recipe = EnvRecipe.from_env(source, allow_import=allow_import, kwargs=env_kwargs)
    rules: Any = getattr(recipe.make().unwrapped, "rules", None)
    if not hasattr(rules, "example"):
        raise RequestError(
            f"schema applies to the examples of a token environment, but {recipe.name} has none"
        )
    from rlbook.data.verl_rows import verl_row, write_rows
    from rlbook.llm.tasks import RECORDED, MixtureTask, Task, recorded_task

    task = getattr(rules, "judge", None) or rules.task

    def source_of(text: str) -> str:
        return RECORDED + (task.of[text] if isinstance(task, MixtureTask) else task.name)

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(min(len(rules.texts), episodes or len(rules.texts))):
            example, messages = rules.example(index)
            with request_errors():
                source = source_of(rules.texts[index])
                yield verl_row(example, messages, source=source, split=rules.split, index=index)

    facts = {
        "env": recipe.name,
        "schema": schema,
        "split": rules.split,
        "rows": write_rows(Path(out), rows()),
        "data": str(out),
    }
    score = getattr(type(task), "score", Task.score)
    if score is not Task.score and recorded_task(source_of(rules.texts[0])) is None:
        facts["note"] = (
            f"{recipe.name} scores by more than the rows say; read again, they are compared with"
            " the ground truth"
        )
    return facts


def _acting_agent(
    source: str | Path | Run,
    policy: str | None,
    seed: int,
    explore: bool,
    checkpoint: int | str | None,
    allow_import: bool,
    env_kwargs: dict[str, Any] | None,
) -> tuple[Agent, EnvRecipe, str]:
    """The agent that acts, its environment, and its name."""
    if isinstance(source, Run) or Path(source).is_dir():
        if policy is not None or env_kwargs:
            raise RequestError(
                "a run has its own policy and environment; policy and env_kwargs apply only to"
                " an environment given by its id"
            )
        run = (
            source
            if isinstance(source, Run)
            else load(source, checkpoint=checkpoint, allow_import=allow_import)
        )
        return run.agent, run.request.recipe, run.request.algorithm
    for option, given in (("checkpoint", checkpoint is not None), ("explore", explore)):
        if given:
            raise RequestError(f"{option} is for a run's folder")
    recipe = EnvRecipe.from_env(str(source), allow_import=allow_import, kwargs=env_kwargs)
    if (policy or UNIFORM) == OPTIMAL:
        return exact_expert(recipe), recipe, OPTIMAL
    env = recipe.make()
    return (
        UniformAgent(AdaptedEnv(env, adapt_to(UniformAgent, env, None)), seed=seed),
        recipe,
        UNIFORM,
    )
