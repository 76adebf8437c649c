"""Registers rlbook's environments with Gymnasium: id, entry point and time limit."""

from __future__ import annotations

import gymnasium


def register() -> None:
    """Registers every rlbook environment with Gymnasium. Repeated calls have no effect.

    Only names are stored: the classes are imported when an environment is made, so this loads
    neither torch nor scipy.
    """
    _register(
        "rlbook/Maze-v0",
        "rlbook.envs.gridworlds.maze:Maze",
        "rlbook.envs.gridworlds.maze_vector:MazeVector",
        max_episode_steps=100,
    )
    _register_tabular("rlbook/GridWorld-v0", "rlbook.envs.gridworlds.gridworld:GridWorld", 100)
    _register_tabular(
        "rlbook/WindyGridWorld-v0", "rlbook.envs.gridworlds.windy_gridworld:WindyGridWorld", 1_000
    )
    _register_tabular("rlbook/RandomWalk-v0", "rlbook.envs.random_walk:RandomWalk", 10_000)
    _register_tabular(
        "rlbook/TenArmedTestbed-v0", "rlbook.envs.ten_armed_testbed:TenArmedTestbed", None
    )
    _register_tabular(
        "rlbook/MaximizationBias-v0", "rlbook.envs.maximization_bias:MaximizationBias", None
    )
    _register_tabular("rlbook/Gambler-v0", "rlbook.envs.gambler:Gambler", 10_000)
    _register_tabular("rlbook/CarRental-v0", "rlbook.envs.car_rental:CarRental", 100)
    _register_tabular("rlbook/DynaMaze-v0", "rlbook.envs.gridworlds.dyna_maze:DynaMaze", 10_000)
    _register_tabular("rlbook/TicTacToe-v0", "rlbook.envs.tic_tac_toe:TicTacToe", None)
    _register_tabular("rlbook/ShortCorridor-v0", "rlbook.envs.short_corridor:ShortCorridor", 1_000)
    _register_tabular("rlbook/Catch-v0", "rlbook.envs.catch:Catch", None)
    _register_tabular("rlbook/TMaze-v0", "rlbook.envs.t_maze:TMaze", 1_000)
    _register_tabular("rlbook/DeepSea-v0", "rlbook.envs.deep_sea:DeepSea", None)
    _register(
        "rlbook/Addition-v0",
        "rlbook.llm.environments.token_env:Addition",
        "rlbook.llm.environments.token_env:AdditionVector",
    )
    _register(
        "rlbook/Reverse-v0",
        "rlbook.llm.environments.token_env:Reverse",
        "rlbook.llm.environments.token_env:ReverseVector",
    )
    for name in ("Sorting", "ModularArithmetic", "TaggedCopy", "Countdown", "Reasoning", "Mixture"):
        _register(
            f"rlbook/{name}-v0",
            f"rlbook.llm.environments.task_envs:{name}",
            f"rlbook.llm.environments.task_envs:{name}Vector",
        )
    _register(
        "rlbook/Chat-v0",
        "rlbook.llm.environments.chat_env:Chat",
        "rlbook.llm.environments.chat_env:ChatVector",
    )
    retrieval = "rlbook.llm.environments.retrieval_env"
    _register("rlbook/Retrieval-v0", f"{retrieval}:Retrieval", f"{retrieval}:RetrievalVector")
    gyms = "rlbook.llm.environments.reasoning_gym_env:ReasoningGym"
    _register("rlbook/ReasoningGym-v0", gyms, f"{gyms}Vector")


def _register_tabular(env_id: str, entry_point: str, max_episode_steps: int | None) -> None:
    """Registers a tabular environment and its vector form, which is in the same module under the
    same name plus `Vector`."""
    _register(env_id, entry_point, f"{entry_point}Vector", max_episode_steps)


def _register(
    env_id: str, entry_point: str, vector_entry_point: str, max_episode_steps: int | None = None
) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            id=env_id,
            entry_point=entry_point,
            vector_entry_point=vector_entry_point,
            max_episode_steps=max_episode_steps,
        )
