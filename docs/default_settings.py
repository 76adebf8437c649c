"""Measures what the default settings of the tabular algorithms come to, environment by environment,
and those of networks there and in classic control, and writes docs/defaults.json, the tables of
docs/defaults.md, and what the doctor knows of them.

    python docs/measure.py defaults                         all pairs: about four hours
    python docs/measure.py defaults_FrozenLake-v1           one environment
    python docs/measure.py defaults_FrozenLake-v1_sarsa     one pair
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import rlbook
from rlbook.diagnosis.better_settings import SAMPLED
from rlbook.evaluation.catalogue import read_catalogue
from rlbook.evaluation.optimal_return import optimal_return
from rlbook.interaction.environments import EnvRecipe
from rlbook.registry import ALGORITHMS, agent_class

HERE = Path(__file__).parent
PATH = HERE / "defaults.json"
PAGE = HERE / "defaults.md"
SEEDS = range(10, 20)
"""Settings were chosen on the seeds from 100 on."""
FEWER = ((60.0, 3), (10.0, 5))
"""Seconds of the first run, from which on so many seeds are measured."""
SAMPLERS = ("reinforce", "ppo", "a2c", "sac")
"""Policies that are judged as they sample, where the best one is random."""
DRAWS = 100_000
"""Actions from which the probabilities of such a policy are estimated."""
PLAYED = 200
"""Episodes, where the return cannot be computed."""
RANDOM_PLAYED = 200
"""Episodes of random play, where its return cannot be computed."""
LONGEST = 30.0
"""Seconds; a pair whose first run takes longer is left out: four times that for a network."""
FEWEST = 3
"""Seeds from which on a pair is recommended."""
AVERAGED = ("Pendulum-v1", "MountainCar-v0")
"""Environments whose starts differ most: a policy's return is averaged over them."""
LONG = ("dqn", "td3", "world_model", "mbpo")
"""Whose runs take minutes there: what docs/results.json holds of them is taken."""

LEARNERS = (
    "q_learning",
    "double_q_learning",
    "watkins_q_lambda",
    "sarsa",
    "expected_sarsa",
    "n_step_sarsa",
    "sarsa_lambda",
    "mc_control",
    "off_policy_mc",
    "dyna_q",
    "dyna_q_plus",
    "certainty_equivalence",
    "value_iteration",
)
ENVIRONMENTS = (
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "Maze-v0",
    "GridWorld-v0",
    "WindyGridWorld-v0",
    "DynaMaze-v0",
    "RandomWalk-v0",
    "MaximizationBias-v0",
    "TenArmedTestbed-v0",
    "Gambler-v0",
    "ShortCorridor-v0",
    "TicTacToe-v0",
    "CarRental-v0",
    "DeepSea-v0",
    "TMaze-v0",
    "CartPole-v1",
    "MountainCar-v0",
    "Acrobot-v1",
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "Catch-v0",
)
CONTROL = ENVIRONMENTS[-6:]
"""Environments for networks and linear features alone."""
ROOMS = ("rlbook.algorithms.value.", "rlbook.algorithms.policy.")
NETWORKS = ("dqn", "ppo", "a2c", "sac")


def learners_of(env: str) -> tuple[str, ...]:
    """Who is measured there."""
    if env in CONTROL:
        return (*control_learners(), *MODELS)
    return (*LEARNERS, *NETWORKS, *(("reinforce",) if env in SAMPLED else ()))


def seed_count(seconds: float) -> int:
    """How many seeds are measured where the first run took so long."""
    return next((count for least, count in FEWER if seconds >= least), len(SEEDS))


MODELS = ("world_model", "mbpo")
"""Measured where they have a preset: elsewhere their runs take too long."""


@functools.cache
def control_learners() -> tuple[str, ...]:
    """All that learn to act from an environment's steps alone, with linear features or a network."""
    return tuple(
        name
        for name, place in ALGORITHMS.items()
        if place.startswith(ROOMS)
        and agent_class(name).sources() == ("environment",)
        and agent_class(name).seeks_return
    )


def measure_defaults(wanted: list[str], machine: str) -> None:
    """Trains the pairs whose names begin as asked, and writes after each."""
    for env in ENVIRONMENTS:
        for algorithm in learners_of(env):
            name = f"defaults_{env}_{algorithm}"
            if wanted and not any(name.startswith(beginning) for beginning in wanted):
                continue
            found = measure_pair(algorithm, env)
            if found is None:
                continue
            print(f"{name}: {found}", file=sys.stderr, flush=True)
            known = read_defaults()
            known.setdefault(env, {})[algorithm] = {"machine": machine} | found
            PATH.write_text(
                json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
                encoding="utf-8",
            )
    write_page(read_defaults())
    write_solved(read_defaults())


def read_defaults() -> dict[str, dict[str, dict[str, Any]]]:
    """Environment → algorithm → what was measured so far."""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


def measure_pair(algorithm: str, env: str) -> dict[str, Any] | None:
    """`rlbook train ALGORITHM ENV` with each seed: the expected return of the greedy policy, and
    the seconds. None where the algorithm does not train there, or takes too long."""
    from rlbook.registry import refusal_reason

    if refusal_reason(algorithm, env) is not None:
        return None
    known = preset_result(algorithm, env)
    if known is not None or (env in CONTROL and algorithm in MODELS):
        return known
    returns, seconds = [], []
    network = algorithm in NETWORKS or env in CONTROL
    longest = 4 * LONGEST if network else LONGEST
    for seed in SEEDS:
        if seconds and len(returns) == seed_count(seconds[0]):
            break
        start = time.perf_counter()
        run = rlbook.train(algorithm, env, seed=seed)
        seconds.append(time.perf_counter() - start)
        if seconds[0] > longest:
            return None
        returns.append(judged_return(run))
    return {
        "returns": [float(f"{value:.6g}") for value in returns],
        "seconds": float(f"{statistics.median(seconds):.2g}"),
        **facts_of(env),
        "seeds": list(SEEDS[: len(returns)]),
    }


def judged_return(run: rlbook.Run) -> float:
    """What a run came to: the expected return of greedy play, or of the policy as it samples where
    the best one is random; the mean of 200 episodes where neither can be computed."""
    from rlbook.evaluation.optimal_return import (
        blind_return,
        expected_return,
        greedy_return,
        network_return,
    )

    recipe = run.request.recipe.for_evaluation()
    algorithm, env = run.request.algorithm, run.request.recipe.name
    if algorithm in SAMPLERS and env in SAMPLED:
        exact = blind_return(recipe, sampled_shares(run))
    elif env in CONTROL:
        exact = expected_return(run.agent, recipe)
    elif algorithm in NETWORKS:
        exact = network_return(run.agent, recipe)
    else:
        exact = greedy_return(run.agent, recipe)
    return rlbook.evaluate(run, episodes=PLAYED).mean if exact is None else exact


@functools.cache
def facts_of(env: str) -> dict[str, float | None]:
    """The optimum, the return from which the environment counts as solved, and random play's."""
    from rlbook.evaluation.optimal_return import random_return, solving_return

    facts, recipe = read_catalogue().environments[env], EnvRecipe.from_env(env)
    worst, target = random_return(recipe), solving_return(recipe)
    return {
        "optimum": facts.optimum if env in CONTROL else optimal_return(recipe),
        "random": played_at_random(recipe) if worst is None else worst,
    } | ({"solved_from": facts.target if target is None else target} if env in CONTROL else {})


def played_at_random(recipe: EnvRecipe) -> float:
    """The mean return of random play in 200 episodes."""
    env, total = recipe.make(), 0.0
    env.action_space.seed(0)
    for episode in range(RANDOM_PLAYED):
        env.reset(seed=episode)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, done = total + float(reward), terminated or truncated
    return float(f"{total / RANDOM_PLAYED:.6g}")


def preset_result(algorithm: str, env: str) -> dict[str, Any] | None:
    """What docs/results.json holds of the same command: the default settings where a preset is
    measured; None where it holds nothing, or where the starts are averaged over here."""
    exact = env in AVERAGED and algorithm not in LONG
    if env not in CONTROL or exact:
        return None
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))["measurements"]
    command = rf"rlbook train {algorithm} {env} --seed [12]0 --out runs/\w+"
    for item in results.values():
        if any(re.fullmatch(command, line) for line in item.get("commands", ())):
            return {
                "returns": [float(f"{value:.6g}") for value in item["means"]],
                "seconds": item["seconds"],
                **facts_of(env),
                "seeds": item["seeds"],
                "machine": item["machine"],
            }
    return None


def sampled_shares(run: rlbook.Run) -> np.ndarray:
    """How often a policy that always sees the same draws each action, [A]."""
    env = run.make_env()
    observations = np.zeros(DRAWS, dtype=np.int64)
    drawn = run.predict(observations, explore=True)
    return np.bincount(drawn, minlength=env.action_space.n) / DRAWS  # type: ignore[attr-defined]


def is_solved(value: float, item: dict[str, Any]) -> bool:
    """As the doctor and the closing line of a run judge it."""
    from rlbook.evaluation.optimal_return import CLOSE

    best = item["optimum"]
    target = item.get("solved_from")
    return value >= (best - CLOSE * max(1.0, abs(best)) if target is None else target)


def write_solved(known: dict[str, dict[str, dict[str, Any]]]) -> None:
    """What the doctor recommends, into its file."""
    from rlbook.diagnosis.better_settings import PATH as SOLVED

    head = "".join(f"# {line}\n" for line in HEAD)
    found = yaml.safe_dump(solved_everywhere(known), default_flow_style=None)
    SOLVED.write_text(head + found, encoding="utf-8")


def solved_everywhere(known: dict[str, dict[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Environment → the algorithms with a table whose default settings reached the optimum with every
    seed, the fastest first."""
    return {
        env: [
            algorithm
            for algorithm, item in sorted(items.items(), key=lambda pair: pair[1]["seconds"])
            if (algorithm not in NETWORKS or env in CONTROL)
            and len(item["returns"]) >= FEWEST
            and all(is_solved(value, item) for value in item["returns"])
        ]
        for env, items in known.items()
    }


HEAD = (
    "Environment → the algorithms whose default settings reached the optimum, or what counts as",
    "solved, with each seed, the fastest first: what the doctor recommends. Written by",
    "docs/measure.py defaults.",
)


def write_page(known: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Puts the tables between the page's two marks."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(text, known), encoding="utf-8")


def with_tables(text: str, known: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The page's text with the tables made anew."""
    parts = [table_of(env, known[env]) for env in ENVIRONMENTS if env in known]
    machines = [item["machine"] for items in known.values() for item in items.values()]
    where = sorted({name for several in machines for name in several.split("; ")})
    made = f"Measured on {'; '.join(where)}."
    between = "\n\n" + "\n\n".join([*parts, made]) + "\n\n"
    return re.sub(
        r"(<!-- defaults -->).*?(<!-- end of defaults -->)",
        lambda marks: marks[1] + between + marks[2],
        text,
        flags=re.DOTALL,
    )


def table_of(env: str, items: dict[str, dict[str, Any]]) -> str:
    """One environment's table."""
    first = next(iter(items.values()))
    solved = first.get("solved_from")
    known = [
        *(() if first["optimum"] is None else [f"Optimum {number(first['optimum'])}"]),
        *(() if solved is None else [f"solved from {number(solved)}"]),
        f"random play {number(first['random'])}",
    ]
    rows = [
        f"## {env}",
        "",
        f"{', '.join(known).capitalize()}.",
        "",
        "| algorithm | mean return | share of the optimum | seeds at the optimum | seconds |",
        "|---|---|---|---|---|",
    ]
    for algorithm in learners_of(env):
        if algorithm not in items:
            continue
        item = items[algorithm]
        best, worst, returns = item["optimum"], item["random"], item["returns"]
        part = share_of(statistics.fmean(returns), worst, best)
        count = sum(is_solved(value, item) for value in returns)
        rows.append(
            f"| `{algorithm}` | {number(statistics.fmean(returns))} | {part} |"
            f" {count} of {len(returns)} | {item['seconds']:g} |"
        )
    return "\n".join(rows)


def share_of(value: float, worst: float, best: float | None) -> str:
    """How far a mean return is on the way from random play to the optimum."""
    if best is None:
        return "—"
    share = (value - worst) / (best - worst)
    return f"{share:.1%}" if share >= 0 else "below 0"


def number(value: float) -> str:
    """With four digits, and a minus sign."""
    return f"{value:.4g}".replace("-", "−").replace("e+0", " · 10^")
