"""The registry of algorithms: their names, the environments that they train on, and their
presets."""

from __future__ import annotations

import dataclasses
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from rlbook.agent import (
    ACTIONS,
    EXPECTED,
    OBSERVATIONS,
    Agent,
    Planner,
    Presets,
    preset_file,
    read_presets,
)
from rlbook.checks import did_you_mean, import_object, synonyms
from rlbook.envs.space_batches import plain
from rlbook.errors import RequestError
from rlbook.interaction.action_masks import ACTION_MASK, mask_table
from rlbook.interaction.environments import EnvRecipe, environments
from rlbook.interaction.expert_actions import check_advisable, check_comparable
from rlbook.interaction.spaces import AdaptedEnv, adapt_to

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

ALGORITHMS = {
    "policy_evaluation": "rlbook.algorithms.planning.policy_evaluation:PolicyEvaluation",
    "policy_iteration": "rlbook.algorithms.planning.policy_iteration:PolicyIteration",
    "modified_policy_iteration": (
        "rlbook.algorithms.planning.modified_policy_iteration:ModifiedPolicyIteration"
    ),
    "value_iteration": "rlbook.algorithms.planning.value_iteration:ValueIteration",
    "prioritized_sweeping": "rlbook.algorithms.planning.prioritized_sweeping:PrioritizedSweeping",
    "certainty_equivalence": (
        "rlbook.algorithms.model_based.certainty_equivalence:CertaintyEquivalence"
    ),
    "mcts": "rlbook.algorithms.planning.search.mcts:MCTS",
    "bandit": "rlbook.algorithms.tabular.bandit:Bandit",
    "mc_prediction": "rlbook.algorithms.tabular.prediction.mc_prediction:MCPrediction",
    "mc_control": "rlbook.algorithms.tabular.mc_control:MCControl",
    "off_policy_mc": "rlbook.algorithms.tabular.off_policy_mc:OffPolicyMC",
    "q_learning": "rlbook.algorithms.tabular.q_learning:QLearning",
    "dyna_q": "rlbook.algorithms.model_based.dyna_q:DynaQ",
    "dyna_q_plus": "rlbook.algorithms.model_based.dyna_q_plus:DynaQPlus",
    "td_prediction": "rlbook.algorithms.tabular.prediction.td_prediction:TDPrediction",
    "sarsa": "rlbook.algorithms.tabular.sarsa:Sarsa",
    "expected_sarsa": "rlbook.algorithms.tabular.expected_sarsa:ExpectedSarsa",
    "double_q_learning": "rlbook.algorithms.tabular.double_q_learning:DoubleQLearning",
    "n_step_td": "rlbook.algorithms.tabular.prediction.n_step_td:NStepTD",
    "td_lambda": "rlbook.algorithms.tabular.prediction.td_lambda:TDLambda",
    "n_step_sarsa": "rlbook.algorithms.tabular.n_step_sarsa:NStepSarsa",
    "sarsa_lambda": "rlbook.algorithms.tabular.sarsa_lambda:SarsaLambda",
    "watkins_q_lambda": "rlbook.algorithms.tabular.watkins_q_lambda:WatkinsQLambda",
    "semi_gradient_td": "rlbook.algorithms.value.semi_gradient_td:SemiGradientTD",
    "lstd": "rlbook.algorithms.value.lstd:LSTD",
    "gradient_td": "rlbook.algorithms.value.gradient_td:GradientTD",
    "semi_gradient_sarsa": "rlbook.algorithms.value.semi_gradient_sarsa:SemiGradientSarsa",
    "world_model": "rlbook.algorithms.model_based.world_model:WorldModelAgent",
    "mbpo": "rlbook.algorithms.model_based.mbpo:MBPO",
    "dqn": "rlbook.algorithms.value.dqn:DQN",
    "fitted_q": "rlbook.algorithms.value.fitted_q:FittedQ",
    "cql": "rlbook.algorithms.value.cql:CQL",
    "iql": "rlbook.algorithms.value.iql:IQL",
    "reinforce": "rlbook.algorithms.policy.reinforce:Reinforce",
    "a2c": "rlbook.algorithms.policy.a2c:A2C",
    "trpo": "rlbook.algorithms.policy.trpo:TRPO",
    "ppo": "rlbook.algorithms.policy.ppo:PPO",
    "ddpg": "rlbook.algorithms.policy.off_policy.ddpg:DDPG",
    "td3": "rlbook.algorithms.policy.off_policy.td3:TD3",
    "sac": "rlbook.algorithms.policy.off_policy.sac:SAC",
    "grpo": "rlbook.algorithms.policy.grpo:GRPO",
    "dpo": "rlbook.algorithms.policy.dpo:DPO",
    "alphazero": "rlbook.algorithms.model_based.alphazero:AlphaZero",
    "behavior_cloning": "rlbook.algorithms.imitation.behavior_cloning:BehaviorCloning",
    "rejection_sampling": "rlbook.algorithms.imitation.rejection_sampling:RejectionSampling",
    "distillation": "rlbook.algorithms.imitation.distillation:Distillation",
    "co_distillation": "rlbook.algorithms.imitation.co_distillation:CoDistillation",
    "rce": "rlbook.algorithms.imitation.rce:RCE",
    "dagger": "rlbook.algorithms.imitation.dagger:DAgger",
    "gail": "rlbook.algorithms.imitation.gail:GAIL",
    "reward_model": "rlbook.algorithms.imitation.reward_model:RewardModel",
}

ENUMERATED = 20_000
"""The number of transitions that `train` tries in an environment without a table before it reports
that there are too many for planning: a few seconds."""

ALIASES: dict[str, str] = {
    "sft": "behavior_cloning",
    "rft": "rejection_sampling",
    **dict.fromkeys(("ipo", "kto", "simpo", "orpo"), "dpo"),
    **dict.fromkeys(("rloo", "reinforce_plus_plus", "dr_grpo", "dapo", "gspo", "cispo"), "grpo"),
}
"""The language-model community's name of an algorithm → its name here."""

RELATED = {
    "recurrent_ppo": "ppo with recurrent='lstm'",
    "ppo_lstm": "ppo with recurrent='lstm'",
    "maskable_ppo": "ppo, which reads an action mask where the environment shows one",
    "vpg": "reinforce, or a2c with a critic",
    "pg": "reinforce, or a2c with a critic",
    "a3c": "a2c, whose environments act side by side",
    "bc": "behavior_cloning",
    "discrete_sac": "sac, which takes discrete actions, too",
    "soft_actor_critic": "sac",
    "gkd": "distillation",
    "drqn": "dqn with recurrent='lstm'",
    "r2d2": "dqn with recurrent='lstm'",
    "per": "dqn with prioritized=True",
    "double_dqn": "dqn, whose double is on by default",
    "ddqn": "dqn, whose double is on by default",
    "dueling_dqn": "dqn with dueling=True",
    "c51": "dqn with distributional=True",
    "rainbow": "dqn with prioritized, dueling, noisy and distributional True, and n_step=3",
}
"""Algorithms that are special cases of others here."""
LEFT_OUT = (
    *("qrdqn", "qr_dqn", "iqn", "her", "impala", "appo", "apex", "ape_x", "muzero", "dreamer"),
    *("dreamerv3", "decision_transformer", "cpo", "maddpg", "qmix", "mappo"),
)
"""Algorithms of other libraries that are not included; see the page "What is left out" of the
book."""
NOT_HERE = "; it is not part of rlbook, and the page 'What is left out' says where to find it"
VARIANTS: dict[str, dict[str, Any]] = {
    "rloo": {
        "baseline": "leave-one-out",
        "scale": "none",
        "ratio": "product",
        "average": "sequence",
        "kl_coef": 0.05,
        "kl_in": "reward",
        "kl_estimator": "k1",
    },
    "reinforce_plus_plus": {
        "baseline": "batch",
        "scale": "batch",
        "credit": "reward-to-go",
        "kl_coef": 0.01,
        "kl_in": "reward",
        "kl_estimator": "k1",
    },
    "dr_grpo": {"scale": "none", "average": "constant"},
    "dapo": {"clip": 0.2, "clip_high": 0.28, "average": "token", "refill": 10},
    "gspo": {"ratio": "sequence", "average": "sequence", "clip": 3e-4, "clip_high": 4e-4},
    "cispo": {"ratio": "cispo", "clip": 1.0, "clip_high": 4.0},
    **{loss: {"preference_loss": loss} for loss in ("ipo", "kto", "simpo")},
    "orpo": {"preference_loss": "orpo", "nll_coef": 1.0},
}
"""Alias → the hyper-parameters that define it: they override a preset's, and the user's override
them."""


def algorithms() -> dict[str, type[Agent]]:
    """Name → agent class, of all algorithms."""
    return {name: agent_class(name) for name in ALGORITHMS}


def agent_class(name: str, *, allow_import: bool = False) -> type[Agent]:
    """The class for a name, an alias, or "module:Class".

    Raises:
        RequestError: no such algorithm (the nearest name is given), or a module that may not be, or
            cannot be, imported.
    """
    name = ALIASES.get(name, name)
    if name in ALGORITHMS:
        return pkgutil.resolve_name(ALGORITHMS[name])
    if ":" in name:
        return _import_class(name, allow_import)
    known, plain = (*ALGORITHMS, *ALIASES), name.lower().replace("-", "_")
    hint = f"; it is {RELATED[plain]}" if plain in RELATED else did_you_mean(plain, known)
    if plain in LEFT_OUT:
        hint = NOT_HERE
    if name in gymnasium.registry or f"rlbook/{name}" in gymnasium.registry:
        hint = "; it is an environment, and the algorithm comes first"
    raise RequestError(f"unknown algorithm {name!r}{hint} (`rlbook list algorithms` shows all)")


def algorithm_hint(name: str) -> str:
    """The end of the message about a class that is not there, such as `DoubleDQN`; "" if no
    algorithm is known by this name."""

    def plain(each: str) -> str:
        return each.lower().replace("_", "")

    classes = [each for each in class_names() if plain(each) == plain(name)]
    if classes:
        return f"; did you mean {classes[0]!r}?"
    related = [said for each, said in RELATED.items() if plain(each) == plain(name)]
    if related:
        return f"; it is {related[0]}"
    return NOT_HERE if plain(name) in map(plain, LEFT_OUT) else ""


MOST_NAMES = 6  # of algorithms in a message


def refuse_foreign(algorithm: str, name: str) -> None:
    """Raises RequestError if `name`, which is not one of this algorithm's hyper-parameters, belongs
    to others; they are listed. A name that other books use for one of its own is left to the search
    for the nearest name."""
    mine = {item.name for item in dataclasses.fields(agent_class(algorithm).Config)}
    if mine & {*synonyms(name)}:
        return
    having = [
        other
        for other, agent in algorithms().items()
        if name in {item.name for item in dataclasses.fields(agent.Config)}
        and name not in getattr(agent.Config, "refused", {})
    ]
    if not having:
        return
    who = f"{list_names(having)} {'has' if len(having) == 1 else 'have'}"
    passes = name == "epochs" and "data" in agent_class(algorithm).sources()
    hint = "; `passes` counts those over recorded data" if passes else ""
    raise RequestError(f"{algorithm} has no hyper-parameter {name!r}; {who} it{hint}")


def list_names(names: list[str]) -> str:
    """Names as part of a sentence, only the first few if there are many."""
    few = len(names) <= MOST_NAMES
    *first, last = names if few else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} others"]
    return f"{', '.join(first)} and {last}" if first else last


OF_ANY_ENVIRONMENT = ("Steps", "Episodes")
"""The kinds of recorded data that every environment can have, those with rewards first; the others
are preferences, and answers with scores."""


def refuse_data(agent: type[Agent]) -> None:
    """Raises RequestError, listing the algorithms that learn from recorded data, for one that does
    not: first those that learn from rewards and have the same kind of actions."""

    def distance(name: str) -> tuple[int, bool, bool]:
        other = agent_class(name)
        ranks = [*map(OF_ANY_ENVIRONMENT.index, {*OF_ANY_ENVIRONMENT} & {*other.data_kinds})]
        continuous = agent.actions.startswith("scaled")
        apart = agent.__module__.rpartition(".")[0] != other.__module__.rpartition(".")[0]
        return (
            min(ranks, default=len(OF_ANY_ENVIRONMENT)),
            continuous and other.actions.startswith("discrete"),
            apart,
        )

    learning = [
        name
        for name, other in algorithms().items()
        if "data" in other.sources() or "demonstrations" in other.uses
    ]
    raise RequestError(
        f"{name_of(agent)} does not learn from recorded data, so data cannot be given;"
        f" {list_names(sorted(learning, key=distance))} do"
    )


def class_names() -> dict[str, str]:
    """Class name → algorithm name, for the built-in algorithms."""
    return {place.split(":")[1]: name for name, place in ALGORITHMS.items()}


def register(name: str, agent: type[Agent]) -> None:
    """Registers a user-defined algorithm under a name, for `rlbook.algorithms()`, `table` and
    `train`.

    Raises:
        RequestError: the name is taken, or the class is not an agent that could be trained.
    """
    if name in ALGORITHMS or name in ALIASES or ":" in name:
        raise RequestError(
            f"algorithm name {name!r} is taken"
            if ":" not in name
            else f"a name must not contain a colon, got {name!r}"
        )
    ALGORITHMS[name] = f"{check_class(agent).__module__}:{agent.__qualname__}"


def name_of(agent: type[Agent]) -> str:
    """The name by which `agent_class` finds a class: its registered name, or "module:Class"."""
    where = f"{agent.__module__}:{agent.__qualname__}"
    return next((name for name, home in ALGORITHMS.items() if home == where), where)


def check_class(agent: object) -> type[Agent]:
    """Returns the class. Raises RequestError if it is not an agent that can be trained."""
    if not (isinstance(agent, type) and issubclass(agent, Agent)):
        raise RequestError(
            f"algorithm must be a name or a class derived from rlbook.Agent, got {_describe(agent)}"
        )
    missing = sorted(getattr(agent, "__abstractmethods__", ()))
    if missing:
        raise RequestError(f"{agent.__name__} is not complete: it must define {', '.join(missing)}")
    if not agent.sources():
        raise RequestError(
            f"{agent.__name__} never learns: it must define learn(step), plan(model) or fit(data)"
        )
    if "environment" in agent.sources() and not agent.plays():
        raise RequestError(f"{agent.__name__} learns from its own actions, so it must define act")
    if not dataclasses.is_dataclass(agent.Config):
        raise RequestError(
            f"{agent.__name__}.Config must be a dataclass of hyper-parameters, got"
            f" {_describe(agent.Config)}"
        )
    for name, allowed in (("observations", OBSERVATIONS), ("actions", ACTIONS)):
        if (said := getattr(agent, name)) not in allowed:
            raise RequestError(
                f"{agent.__name__}.{name} must be one of {', '.join(map(repr, allowed))}, got"
                f" {said!r}{did_you_mean(said, allowed)}"
            )
    unknown = agent.budget.keys() - {"steps", "episodes", "passes", "eval_every"}
    if unknown:
        allowed = "steps, episodes, passes or eval_every"
        raise RequestError(
            f"{agent.__name__}.budget must name {allowed}, got {sorted(unknown)[0]!r}"
        )
    return agent


def _import_class(name: str, allow_import: bool) -> type[Agent]:
    # a class is looked at here, and nothing is called
    loaded = name.partition(":")[0] in sys.modules
    return check_class(import_object("algorithm", name, allow_import=allow_import or loaded))


def _describe(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"{value!r}"[:80]


def preset(agent: type[Agent], env_name: str) -> dict[str, Any]:
    """The default settings of `train` for this pair; the user's settings take precedence."""
    settings = {
        name: value for name, value in presets(agent).get(env_name, {}).items() if name != EXPECTED
    }
    budget = {} if settings.keys() & {"steps", "episodes", "passes"} else agent.budget
    return {**budget, **settings}


def presets(agent: type[Agent]) -> Presets:
    """Environment → settings that replace the defaults there and, for built-in algorithms, their
    expected results (`expected`)."""
    path = None if "presets" in vars(agent) else preset_file(agent)
    known = agent.presets if path is None else {**agent.presets, **read_presets(path)}
    return {env: dict(settings) for env, settings in known.items()}


def refusal_reason(algorithm: str, env_name: str) -> str | None:
    """The reason why this algorithm does not train on this environment; None if it does."""
    return _refusal_reason(algorithm, env_name, EnvRecipe.from_env(env_name).make())


def _refusal_reason(algorithm: str, env_name: str, env: gymnasium.Env) -> str | None:
    from rlbook.envs.tabular.enumeration import NoModel

    agent = agent_class(algorithm)
    try:
        names = {item.name for item in dataclasses.fields(agent.Config)}
        config = agent.Config(
            **{name: value for name, value in preset(agent, env_name).items() if name in names}
        )
        fitted = AdaptedEnv(env, adapt_to(agent, env, config))
        if issubclass(agent, Planner):
            agent(fitted, config).check_model(model_of(env))
        elif agent.sources() == ("data",) or {"advice", "demonstrations"} & set(agent.uses):
            check_teachable(agent, env)
        elif "teacher" in agent.uses:
            raise ValueError("it needs a teacher (--teacher, teacher=…)")
    except NoModel:  # then a planner has one estimated
        return None
    except ValueError as error:
        return str(error)
    return None


def check_teachable(agent: type[Agent], env: gymnasium.Env) -> None:
    """Raises ValueError if an agent that learns from demonstrations has no source of them: no data
    set, no expert, no exact solution, no random episodes."""
    if agent.prefers:
        if not hasattr(env.unwrapped, "answers"):
            check_rankable(env)
        return
    if "Steps" in agent.data_kinds:
        return
    asks = "advice" in agent.uses
    if asks:
        check_advisable(env)
    if "demonstrations" in agent.uses:
        check_comparable(env)
    if "expert" not in agent.uses:
        raise ValueError("it learns only from recorded data (--data, data=…)")
    if hasattr(env.unwrapped, "answers"):
        return
    try:
        exact_planner(env)
    except ValueError as error:
        wanted = (
            "an expert (--expert, expert=…)"
            if asks
            else "recorded data or an expert (--data or --expert, data=… or expert=…)"
        )
        raise ValueError(f"it needs {wanted}, since {error}") from None


WALKED, WALK = 30_000, 200
"""The total number of steps, and the length of each walk, within which random walks must have
different returns."""


def check_rankable(env: gymnasium.Env) -> None:
    """Raises ValueError if random episodes all have the same return, so that none can be preferred
    to another."""
    first, steps, seed = None, 0, 0
    while steps < WALKED:
        total, length = 0.0, 0
        _, info = env.reset(seed=seed)
        env.action_space.seed(seed)
        ended, seed = False, seed + 1
        while not ended and length < WALK:
            mask = info.get(ACTION_MASK)
            action = env.action_space.sample(
                None if mask is None else np.asarray(mask, dtype=np.int8)
            )
            _, reward, terminated, truncated, info = env.step(plain(action))
            total, length, ended = total + float(reward), length + 1, bool(terminated or truncated)
        first, steps = total if first is None else first, steps + max(1, length)
        if total != first:
            return
    raise ValueError(
        "it learns from random episodes that differ in their return, but here all return"
        f" {first:g};"
        " give data (--data, data=…)"
    )


def exact_planner(env: gymnasium.Env) -> tuple[Planner, TabularMDP]:
    """A planner that can act in `env`, and the model for it. Raises ValueError if there is no
    model, or none suited to acting."""
    kind = agent_class("value_iteration")
    model, config = model_of(env), kind.Config()
    planner = kind(AdaptedEnv(env, adapt_to(kind, env, config)), config)
    assert isinstance(planner, Planner)
    planner.check_model(model)
    return planner, model


def model_of(env: gymnasium.Env) -> TabularMDP:
    """An environment's finite model, restricted to the actions that its own `action_mask` method
    allows.

    Raises NoModel where there is none, and ValueError where finding it would take more than
    seconds.
    """
    from rlbook.envs.tabular.mdp import TabularMDP

    model, shown = TabularMDP.from_env(env, max_transitions=ENUMERATED), env.observation_space
    if not isinstance(shown, Discrete) or not model.observable or model.num_states != shown.n:
        return model
    allowed = mask_table(env, range(int(shown.start), int(shown.start + shown.n)))
    return model if allowed is None or allowed.all() else model.with_actions(allowed)


def table() -> dict[str, dict[str, str | None]]:
    """Algorithm → environment → None (it trains) or the reason why not."""
    # once each: a task lists all its prompts
    made = {env: EnvRecipe.from_env(env).make() for env in environments()}
    return {
        algorithm: {name: _refusal_reason(algorithm, name, env) for name, env in made.items()}
        for algorithm in ALGORITHMS
    }
