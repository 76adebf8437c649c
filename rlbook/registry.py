"""Which algorithms there are, which environment each of them trains on, and with which settings."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

from rlbook.agent import Agent, Planner
from rlbook.errors import RequestError
from rlbook.interaction.environments import Recipe, environments
from rlbook.interaction.spaces import AdaptedEnv, adapt_to

if TYPE_CHECKING:
    from rlbook.envs.mdp import TabularMDP

ALGORITHMS = {
    "policy_evaluation": "rlbook.algorithms.planning.policy_evaluation:PolicyEvaluation",
    "policy_iteration": "rlbook.algorithms.planning.policy_iteration:PolicyIteration",
    "modified_policy_iteration": "rlbook.algorithms.planning.modified_policy_iteration:ModifiedPolicyIteration",
    "value_iteration": "rlbook.algorithms.planning.value_iteration:ValueIteration",
    "prioritized_sweeping": "rlbook.algorithms.planning.prioritized_sweeping:PrioritizedSweeping",
    "certainty_equivalence": "rlbook.algorithms.model_based.certainty_equivalence:CertaintyEquivalence",
    "mcts": "rlbook.algorithms.planning.mcts:MCTS",
    "mc_prediction": "rlbook.algorithms.tabular.mc_prediction:MCPrediction",
    "mc_control": "rlbook.algorithms.tabular.mc_control:MCControl",
    "off_policy_mc": "rlbook.algorithms.tabular.off_policy_mc:OffPolicyMC",
    "q_learning": "rlbook.algorithms.tabular.q_learning:QLearning",
    "dyna_q": "rlbook.algorithms.model_based.dyna_q:DynaQ",
    "dyna_q_plus": "rlbook.algorithms.model_based.dyna_q_plus:DynaQPlus",
    "td_prediction": "rlbook.algorithms.tabular.td_prediction:TDPrediction",
    "sarsa": "rlbook.algorithms.tabular.sarsa:Sarsa",
    "expected_sarsa": "rlbook.algorithms.tabular.expected_sarsa:ExpectedSarsa",
    "double_q_learning": "rlbook.algorithms.tabular.double_q_learning:DoubleQLearning",
    "n_step_td": "rlbook.algorithms.tabular.n_step_td:NStepTD",
    "td_lambda": "rlbook.algorithms.tabular.td_lambda:TDLambda",
    "n_step_sarsa": "rlbook.algorithms.tabular.n_step_sarsa:NStepSarsa",
    "sarsa_lambda": "rlbook.algorithms.tabular.sarsa_lambda:SarsaLambda",
    "watkins_q_lambda": "rlbook.algorithms.tabular.watkins_q_lambda:WatkinsQLambda",
    "dqn": "rlbook.algorithms.value.dqn:DQN",
    "ppo": "rlbook.algorithms.policy.ppo:PPO",
    "grpo": "rlbook.algorithms.policy.grpo:GRPO",
    "dpo": "rlbook.algorithms.policy.dpo:DPO",
}

BUDGET: dict[str, dict[str, Any]] = {
    "policy_evaluation": {"steps": 100_000},
    "policy_iteration": {"steps": 10_000},
    "modified_policy_iteration": {"steps": 10_000},
    "value_iteration": {"steps": 10_000},
    "prioritized_sweeping": {"steps": 10_000},
    "certainty_equivalence": {"steps": 20_000},
    "mcts": {"episodes": 10, "eval_every": 0},
    "mc_prediction": {"episodes": 1_000},
    "mc_control": {"episodes": 500},
    "off_policy_mc": {"episodes": 2_000},
    "q_learning": {"episodes": 500},
    "dyna_q": {"episodes": 100},
    "dyna_q_plus": {"episodes": 100},
    "td_prediction": {"episodes": 1_000},
    "sarsa": {"episodes": 500},
    "expected_sarsa": {"episodes": 500},
    "double_q_learning": {"episodes": 500},
    "n_step_td": {"episodes": 1_000},
    "td_lambda": {"episodes": 1_000},
    "n_step_sarsa": {"episodes": 500},
    "sarsa_lambda": {"episodes": 500},
    "watkins_q_lambda": {"episodes": 500},
    "dqn": {"steps": 50_000},
    "ppo": {"steps": 100_000},
    "grpo": {"steps": 100_000},
    "dpo": {"steps": 100_000},
}
"""What `train` does without --steps and --episodes, where no preset says otherwise."""

ENUMERATED = 20_000
"""Transitions of an environment without a table that `train` tries before it says that there are too many to plan in: a few seconds."""

TOKENS: dict[str, dict[str, Any]] = {
    "ppo": {
        "steps": 120_000, "num_envs": 128, "batch_size": 128, "epochs": 2, "learning_rate": 4e-4, "gamma": 1.0, "truncation": "terminal",
    },
    "grpo": {"steps": 250_000, "num_envs": 256, "group_size": 4, "learning_rate": 3e-4, "anneal_learning_rate": True},
    "dpo": {"steps": 120_000, "num_envs": 256, "group_size": 4, "learning_rate": 1e-4, "nll_coef": 1.0},
}
"""A small language model: whole completions, a token limit that is part of the task, careful steps."""

PLANNERS = ("value_iteration", "policy_iteration", "modified_policy_iteration", "prioritized_sweeping", "policy_evaluation")
"""They need a model; where there is none, one is estimated."""

PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    **{(name, env): settings | {"eval_episodes": 512} for name, settings in TOKENS.items() for env in ("Addition-v0", "Reverse-v0")},
    **{(name, "CartPole-v1"): {"bins": 16, "sampled_steps": 200_000} for name in PLANNERS},
    **{(name, "TabularMDP"): {"eval_every": 0} for name in PLANNERS},      # playing it would take far longer than planning
    ("certainty_equivalence", "CartPole-v1"): {"steps": 200_000, "plan_every": 10_000, "tolerance": 1e-2, "bins": 16},
    ("mcts", "Maze-v0"): {"simulations": 5_000},
    ("mcts", "Acrobot-v1"): {"simulations": 10},
    ("ppo", "Maze-v0"): {"steps": 40_000, "num_envs": 16, "rollout_steps": 32, "batch_size": 128, "learning_rate": 1e-3},
    ("grpo", "Maze-v0"): {"steps": 100_000},
    ("dpo", "Maze-v0"): {"steps": 200_000, "num_envs": 64, "group_size": 8, "anneal_learning_rate": True},
    ("dqn", "Maze-v0"): {"steps": 20_000},
    ("ppo", "CartPole-v1"): {
        "steps": 50_000, "rollout_steps": 32, "epochs": 20, "learning_rate": 1e-3, "gamma": 0.98, "gae_lambda": 0.8,
        "entropy_coef": 0.005,
    },
    ("dqn", "CartPole-v1"): {
        "steps": 50_000, "hidden_sizes": (128, 128), "learning_rate": 1e-3, "batch_size": 128, "learning_starts": 1_000,
        "train_every": 256, "gradient_steps": 128, "target_period": 256, "double": False, "epsilon": "linear(1.0, 0.04, 0.16)",
        "eval_every": 1_000, "eval_episodes": 10,
    },
    ("ppo", "Pendulum-v1"): {
        "steps": 150_000, "rollout_steps": 256, "epochs": 10, "learning_rate": 1e-3, "gamma": 0.9, "normalize_reward": True,
    },
}  # fmt: skip
"""(algorithm, environment) → settings that replace the defaults: a budget, num_envs, hyper-parameters."""


def algorithms() -> dict[str, type[Agent]]:
    """Name → agent class."""
    return {name: agent_class(name) for name in ALGORITHMS}


def agent_class(name: str) -> type[Agent]:
    """The class behind a name.

    Raises:
        RequestError: no such algorithm; the nearest name is given.
    """
    if name not in ALGORITHMS:
        nearest = difflib.get_close_matches(name.lower().replace("-", "_"), list(ALGORITHMS), n=1, cutoff=0.4)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise RequestError(f"unknown algorithm {name!r}{hint} (known: {', '.join(ALGORITHMS)})")
    module, attribute = ALGORITHMS[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def preset(algorithm: str, env_name: str) -> dict[str, Any]:
    """The settings that `train` starts from for this pair; what the user gives goes before them."""
    settings = PRESETS.get((algorithm, env_name), {})
    budget = {} if settings.keys() & {"steps", "episodes"} else BUDGET[algorithm]
    return budget | settings


def why_not(algorithm: str, env_name: str) -> str | None:
    """Why this algorithm does not train on this environment; None where it does."""
    from rlbook.envs.enumeration import NoModel

    agent = agent_class(algorithm)
    try:
        env = Recipe.of(env_name).make()
        fitted = AdaptedEnv(env, adapt_to(agent, env, agent.Config()))
        if issubclass(agent, Planner):
            agent(fitted, agent.Config()).check_model(model_of(env))
    except NoModel:                          # then a planner has one estimated
        return None
    except ValueError as error:
        return str(error)
    return None


def model_of(env: gymnasium.Env) -> TabularMDP:
    """An environment's finite model. Raises NoModel where there is none, and ValueError where finding it would take more than seconds."""
    from rlbook.envs.mdp import TabularMDP

    return TabularMDP.from_env(env, max_transitions=ENUMERATED)


def table() -> dict[str, dict[str, str | None]]:
    """Algorithm → environment → None (it trains) or the reason why not."""
    return {algorithm: {env: why_not(algorithm, env) for env in environments()} for algorithm in ALGORITHMS}
