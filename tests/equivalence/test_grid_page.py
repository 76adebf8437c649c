"""The methods of `rlbook play`, in JavaScript, are this package's on a hundred random worlds, given
the same random numbers."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, largest, near, rounding_bound
from javascript import returned

from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.algorithms.planning.search.mcts import MCTSConfig, simulate
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import empty_tree
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs.gridworlds.maze_model import maze_model
from rlbook.envs.gridworlds.maze_tables import MazeTables, maze_tables
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import TrainingError
from rlbook.functional.bandits import softmax
from rlbook.functional.policy_gradients import score_function_gradient
from rlbook.functional.returns import discounted_returns
from rlbook.plots.pages import grid_page
from rlbook.plots.pages.grid_replay import (
    PageRandom,
    ReplayResult,
    keep_reachable,
    page_tables,
    replay,
)
from rlbook.plots.pages.templates import text_of

LEARNERS = ("q_learning", "sarsa", "sarsa_lambda", "mc_control", "dyna_q")
SEED = 7
World = dict[str, Any]


def run(script: str, data: object) -> Any:
    """What a script behind the page's methods returns for data."""
    return returned(grid_page.engine(), script, data)


def random_world(rng: np.random.Generator) -> World:
    """Walls, ends, a cliff, rewards, slips, prices and γ; every fourth one is a map that the book's
    maze takes, with its prices."""
    plain = rng.random() < 0.25
    rows, columns = rng.integers(2, 8, 2)
    shares = [0.25, 0.75, 0.0, 0.0, 0.0] if plain else [0.2, 0.66, 0.06, 0.04, 0.04]
    cells = rng.choice(list("#.PCG"), size=rows * columns, p=shares)
    start, goal = rng.choice(rows * columns, 2, replace=False)
    cells[start], cells[goal] = "S", "G"
    text = "\n".join("".join(row) for row in cells.reshape(rows, columns))
    slip = float(rng.choice([0.0, 0.1, 0.5, 2 / 3, 1.0]))
    settings = {
        "gamma": float(rng.choice([0.5, 0.9, 0.95, 0.99])),
        "alpha": float(rng.choice([0.05, 0.1, 0.5, 1.0])),
        "epsilon": float(rng.choice([0.0, 0.1, 0.5])),
        "lambda": float(rng.choice([0.0, 0.5, 0.9, 1.0])),
        "planning": int(rng.choice([0, 3, 10])),
        "decay": int(rng.choice([0, 25, 100])),
    }
    world: World = {
        "map": text,
        "slip": slip,
        "limit": int(rng.integers(5, 40)),
        "settings": settings,
    }
    if plain:
        return world
    prices = {
        name: float(round(rng.normal(0, 5), 2)) for name in ("step", "bump", "goal", "pit", "cliff")
    }
    rewards = {
        f"{rng.integers(rows)},{rng.integers(columns)}": float(round(rng.normal(0, 5), 2))
        for _ in range(rng.integers(0, 4))
    }
    return world | prices | {"rewards": rewards}


def learned(world: World, name: str, steps: int) -> ReplayResult:
    """The same steps by the package's agent, with the page's settings and the page's random
    numbers."""
    return replay(
        {
            "world": world,
            "method": name,
            "settings": world["settings"],
            "seed": SEED,
            "steps": steps,
        }
    )


def rounding(model: TabularMDP, gamma: float) -> float:
    """Of values v with (I - γ P) v = r, a matrix whose condition is at most (1 + γ) / (1 - γ)."""
    size = (1 + gamma) / (1 - gamma) * float(np.abs(model.rewards).max()) / (1 - gamma)
    return rounding_bound("float64", terms=model.num_states, size=size)


def assert_within(ours: Any, theirs: Any, bound: float) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    rng = np.random.default_rng(0)
    return [random_world(rng) for _ in range(100)]


@pytest.fixture(scope="module")
def tabled(worlds: list[World]) -> list[MazeTables]:
    return [page_tables(world) for world in worlds]


@pytest.fixture(scope="module")
def models(tabled: list[MazeTables]) -> list[TabularMDP]:
    return [maze_model(table) for table in tabled]


def test_the_worlds_are_the_books_maze_where_they_can_be(
    worlds: list[World], tabled: list[MazeTables]
) -> None:
    shown = run(
        "return data.map(makeWorld).map(({ next, reward, terminal, start }) => ({ next, reward,"
        " terminal, start }));",
        worlds,
    )
    plain = 0
    for world, ours, found in zip(worlds, tabled, shown, strict=True):
        assert np.array_equal(found["next"], ours.next_state) and np.array_equal(
            found["reward"], ours.reward
        )
        assert (
            np.array_equal(found["terminal"], ours.terminal) and found["start"] == ours.layout.start
        )
        if "step" not in world and ours.layout.reachable()[ours.layout.goal]:
            book, plain = (
                maze_tables(world["map"], None, None, "standard", world["slip"], "index"),
                plain + 1,
            )
            assert np.array_equal(found["next"], book.next_state) and np.array_equal(
                found["reward"], book.reward
            )
    assert plain >= 10


def test_value_iteration_and_policy_iteration_agree_with_the_planners(
    worlds: list[World], models: list[TabularMDP]
) -> None:
    script = """return data.map((description) => {
      const world = makeWorld(description), { gamma } = description.settings, sweeps = [];
      let V = new Array(world.numStates).fill(0);
      for (let i = 0; i < 5; i++) sweeps.push(V = valueIterationSweep(world, V, gamma));
      const half = policyValues(world, world.cells.map(() => [0.25, 0.25, 0.25, 0.25]), gamma);
      return { sweeps, best: optimum(world, gamma), half, pays: expectedReturn(world, always(optimum(world, gamma).actions)) };
    });"""
    for world, model, found in zip(worlds, models, run(script, worlds), strict=True):
        gamma = world["settings"]["gamma"]
        V, error = np.zeros(model.num_states), rounding(model, gamma)
        for sweep in found["sweeps"]:
            V = model.backup(V, gamma).max(axis=1)
            assert_near(sweep, V, terms=5 * 4, size=5 * np.abs(model.rewards).max())
        best = PolicyIteration.solve(model, gamma=gamma).values()
        assert_within(found["best"]["V"], best, error)
        if gamma < 0.95:
            tolerance = 1e-11
            swept = ValueIteration.solve(model, gamma=gamma, tolerance=tolerance)
            assert_within(swept.values(), best, tolerance + error)
        uniform = np.full((model.num_states, 4), 0.25)
        assert_within(found["half"], model.policy_values(uniform, gamma), error)
        chain, rewards = model.chain(np.array(found["best"]["actions"]))
        paid = np.zeros(model.num_states)
        for _ in range(world["limit"]):
            paid = rewards + chain @ paid
        size = world["limit"] * float(np.abs(model.rewards).max())
        assert found["pays"] == near(paid @ model.initial, terms=4 * world["limit"], size=size)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_is_the_packages_bit_for_bit(
    name: str, worlds: list[World], steps: int = 40
) -> None:
    script = """return data.worlds.map((description) => {
      const run = startRun(makeWorld(description), data.name, description.settings, data.seed);
      for (let i = 0; i < data.steps; i++) stepRun(run);
      return { Q: run.memory.q, returns: run.returns, state: run.state, visits: run.visits };
    });"""
    found = run(script, {"worlds": worlds, "name": name, "seed": SEED, "steps": steps})
    episodes = 0
    for world, ours in zip(worlds, found, strict=True):
        theirs = learned(world, name, steps)
        assert (
            np.array_equal(ours["Q"], theirs.Q)
            and ours["returns"] == theirs.returns
            and ours["state"] == theirs.state
        )
        assert np.array_equal(ours["visits"], theirs.visits)
        episodes += len(theirs.returns)
    assert episodes > len(worlds)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_stays_the_packages_for_long(name: str, worlds: list[World]) -> None:
    test_a_learner_is_the_packages_bit_for_bit(name, worlds[:20], steps=2000)


def test_a_search_grows_the_packages_tree(worlds: list[World], models: list[TabularMDP]) -> None:
    script = """return data.worlds.map((description) => {
      const world = makeWorld(description), tree = makeTree(world.start), random = mulberry32(data.seed);
      for (let i = 0; i < 25; i++) simulate(tree, world, { ...SETTINGS, gamma: description.settings.gamma }, random);
      const { root: { count, mean, visits }, low, high, nodes } = tree;
      return { count, mean, visits, low, high, nodes, drawn: random(), best: mostVisited(tree.root) };
    });"""
    for world, model, ours in zip(
        worlds, models, run(script, {"worlds": worlds, "seed": SEED}), strict=True
    ):
        config, rng = MCTSConfig(gamma=world["settings"]["gamma"]), PageRandom(SEED)
        found, table = SearchTree(empty_tree(26, 4), 4, "chance"), TableModel(model)
        table.begin(int(model.initial.argmax()), rng)
        for _ in range(25):
            simulate(found, table, config, rng)  # type: ignore[arg-type]
        assert (
            ours["count"] == found.counts()
            and ours["visits"] == found.simulations
            and ours["nodes"] == found.num_nodes
        )
        returns: Any = {
            "terms": 100,
            "size": float(np.abs(model.rewards).max()) / (1 - config.gamma),
        }
        assert (
            ours["mean"] == near(list(found.values()), **returns)
            and ours["best"] == found.best_actions()
        )
        assert [ours["low"], ours["high"]] == near(list(found.tree.bounds), **returns)
        assert ours["drawn"] == rng.random()


def test_the_policy_gradient_is_the_librarys_on_the_same_episodes(worlds: list[World]) -> None:
    script = """return data.map((description) => {
      const run = startRun(makeWorld(description), "reinforce", { gamma: description.settings.gamma, alpha: 0.02 }, 3), episodes = [];
      let steps = [];
      while (episodes.length < 3) {
        const { state, action, reward, next, terminated, truncated } = stepRun(run);
        steps.push([state, action, reward, next, terminated, truncated]);
        if (terminated || truncated) episodes.push({ steps, H: structuredClone(run.memory.H), v: [...run.memory.v] }), steps = [];
      }
      return episodes;
    });"""
    for world, episodes in zip(worlds, run(script, worlds), strict=True):
        gamma, H = world["settings"]["gamma"], np.zeros((len(world["map"].replace("\n", "")), 4))
        v, error = np.zeros(len(H)), 0.0
        for episode in episodes:
            state, action, reward, following, terminated, truncated = (
                np.array(column) for column in zip(*episode["steps"], strict=True)
            )
            policy = softmax(H)
            flags = torch.tensor(terminated), torch.tensor(truncated)
            G = discounted_returns(
                torch.tensor(reward, dtype=torch.float64),
                *flags,
                gamma,
                next_value=torch.tensor(v[following]),
            ).numpy()
            weight = gamma ** np.arange(len(G)) * (G - v[state])
            # the policy, and so the step, changes by what H is off, times 2 α Σ|weights|
            rounded = {"terms": 4 * len(G), "size": 0.02 * np.abs(weight).sum() + np.abs(H).max()}
            error = error * (1 + 2 * 0.02 * np.abs(weight).sum()) + rounding_bound(
                "float64", **rounded
            )
            H = (
                H
                + 0.02
                * score_function_gradient(policy, state[:, None], action[:, None], weight[:, None])[
                    0
                ]
            )
            for s, g in zip(state, G, strict=True):
                v[s] += 0.1 * (g - v[s])
            assert_within(episode["H"], H, error)
            assert_near(episode["v"], v, terms=4 * len(G), size=largest([G, v]))


@pytest.mark.parametrize(
    ("preset", "id", "order"),
    [
        ("CliffWalking", "CliffWalking-v1", [0, 2, 3, 1]),
        ("FrozenLake", "FrozenLake-v1", [3, 1, 0, 2]),
    ],
)
def test_a_preset_is_gymnasiums_world(preset: str, id: str, order: list[int]) -> None:
    world = run(f'return PRESETS["{preset}"];', None)
    ours, theirs = maze_model(page_tables(world)), TabularMDP.from_env(gymnasium.make(id))
    V, error = PolicyIteration.solve(ours, gamma=0.95).values(), rounding(ours, 0.95)
    free = ~page_tables(world).terminal & (np.array(list(world["map"].replace("\n", ""))) != "C")
    assert_within(V[free], PolicyIteration.solve(theirs, gamma=0.95).values()[free], error)
    mine, other = ours.backup(V, 0.95), theirs.backup(V, 0.95)[:, order]
    assert_within(mine[free], other[free], error)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"map": "S.\n."}, "rows must be equally long"),
        ({"map": "..G"}, "exactly one start S, got 0"),
        ({"map": "SxG"}, 'got "x"'),
        ({"map": "S.G", "slip": 1.5}, "slip must be in [0, 1], got 1.5"),
        ({"map": "S.G", "limit": 0}, "limit must be"),
        ({"map": "S.G", "step": "a"}, "step must be a number, got a"),
        ({"map": "S.G", "rewards": {"a": 1}}, 'rewards must be "row,column"'),
    ],
)
def test_a_world_that_makes_no_sense_is_refused_in_a_sentence(broken: World, sentence: str) -> None:
    assert sentence in run(
        "try { makeWorld(data); return 'taken'; } catch (error) { return error.message; }", broken
    )


BROWSER = """
const nothing = new Proxy(function () {}, {
  get: (_, name) => ({ [Symbol.toPrimitive]: () => 0, [Symbol.iterator]: () => [nothing, nothing, nothing].values() })[name] ?? nothing,
  set: () => true, apply: () => nothing,
});
globalThis.window = globalThis.parent = globalThis;
globalThis.document = { addEventListener() {} };
for (const name of ["getElementById", "createElement", "createElementNS"]) document[name] = () => nothing;
globalThis.location = { hash: HASH, href: "file:///play-grid.html" + HASH };
globalThis.Option = class {};
globalThis.addEventListener = () => {};
globalThis.cancelAnimationFrame = () => {};
"""


def in_page(script: str, data: object, address: str = "") -> Any:
    """What a script in the whole page returns, in a browser that shows nothing."""
    drawing = "\n".join(text_of(f"pages/grid_play/{name}.js") for name in grid_page.DRAWING)
    return run(f"{BROWSER.replace('HASH', json.dumps(address))}\n{drawing}\n{script}", data)


METHODS = (*LEARNERS, "value_iteration", "policy_iteration", "mcts", "reinforce")


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_a_program_reads_is_made_again_by_the_package(
    name: str, worlds: list[World], models: list[TabularMDP]
) -> None:
    """Ten worlds of the page, each set, run and read through `rlbookPlay` alone."""
    script = """return data.worlds.map((world) => {
      const { settings, ...described } = world;
      const alpha = data.name === "reinforce" ? 0.01 : settings.alpha;
      rlbookPlay.load(described, { method: data.name, seed: data.seed, settings: { ...settings, simulations: 12, alpha } });
      rlbookPlay.step(45);
      return rlbookPlay.read();
    });"""
    places = [place for place, world in enumerate(worlds) if len(world["map"]) > 9][:10]
    asked = [worlds[place] for place in places]
    for place, found in zip(
        places, in_page(script, {"worlds": asked, "seed": SEED, "name": name}), strict=True
    ):
        again, free = replay(found), ~page_tables(worlds[place]).terminal
        assert (
            found["method"] == name
            and found["steps"] <= 45
            and found["returns"] == again.returns
            and found["state"] == again.state
        )
        gamma = worlds[place]["settings"]["gamma"]
        if name == "sarsa":
            best = PolicyIteration.solve(models[place], gamma=gamma).values()
            assert_within(found["optimal"]["V"], best, rounding(models[place], gamma))
        if name in LEARNERS:
            assert np.array_equal(found["Q"], again.Q) and np.array_equal(
                np.array(found["V"])[free], again.V[free]
            )
        elif name == "mcts":
            here = found["state"]
            assert_within(found["Q"][here], again.Q[here], rounding(models[place], gamma))
            assert found["visits"][here] == again.visits[here].tolist()
        elif name == "reinforce":
            # what H is off changes it by 2 α Σ|weights| of that: 45 weights G - v, |G| of 45
            # rewards at most
            largest_return = 45 * float(np.abs(models[place].rewards).max())
            size = (1 + 2 * 0.01 * 45 * 2 * largest_return) * np.abs(again.Q).max()
            assert_near(found["H"], again.Q, terms=45 * 4, size=size)
            assert_within(np.array(found["V"])[free], again.V[free], rounding(models[place], gamma))
        else:
            assert_within(np.array(found["V"])[free], again.V[free], rounding(models[place], gamma))


def test_without_a_discount_the_best_values_are_the_packages_or_a_reason(
    worlds: list[World],
) -> None:
    """What cannot be reached is left out: the page asks only where the agent can come to. Where
    steps and bumps are free, one can rest."""
    asked = worlds[:60] + [world | {"step": 0.0, "bump": 0.0} for world in worlds[60:]]
    script = (
        "return data.map((description) => ({ ...optimum(makeWorld(description), 1), reached:"
        " reached(makeWorld(description)) }));"
    )
    kinds = {"finite": 0, "From some cells": 0, "Walking in circles": 0}
    for world, found in zip(asked, run(script, asked), strict=True):
        table = keep_reachable(page_tables(world))
        assert np.array_equal(
            table.terminal, ~np.array(found["reached"]) | page_tables(world).terminal
        )
        model = maze_model(table)
        try:
            planner, kind = PolicyIteration.solve(model, gamma=1.0), "finite"
            best, chain = planner.values(), model.chain(planner.greedy_policy())[0].toarray()
            paid = best != 0  # elsewhere the agent rests or is at an end
            matrix = (np.eye(len(best)) - chain)[np.ix_(paid, paid)]
            condition = np.linalg.cond(matrix, np.inf) if paid.any() else 1.0
            assert found["V"] is not None, world
            assert_near(found["V"], best, terms=len(best), size=condition * np.abs(best).max())
        except (ValueError, TrainingError) as error:
            kind = "Walking in circles" if isinstance(error, TrainingError) else "From some cells"
            assert found["V"] is None and found["endless"].startswith(kind), world
        kinds[kind] += 1
    assert min(kinds.values()) > 0, kinds


def test_an_address_holds_the_world_the_method_and_the_settings() -> None:
    made = in_page(
        "rlbookPlay.load({ map: 'S..G', slip: 0.1 }, { method: 'dyna_q', settings: { alpha: 0.5 }"
        " }); return address();",
        None,
    )
    found = in_page("return rlbookPlay.read();", None, "#" + made.split("#")[1])
    assert (
        found["world"]["map"],
        found["world"]["slip"],
        found["method"],
        found["settings"]["alpha"],
    ) == ("S..G", 0.1, "dyna_q", 0.5)
    assert in_page("return rlbookPlay.read().world.map;", None, "#preset=FrozenLake").startswith(
        "S...\n.P.P"
    )


def test_the_methods_know_nothing_of_the_drawing() -> None:
    assert not any(word in grid_page.engine() for word in ("document", "window", "svg", "find("))


MUTANTS = {
    "a time limit ends the world": (
        "const bootstrap = terminated ? 0 : Math.max(...q[next])",
        "const bootstrap = step.truncated || terminated ? 0 : Math.max(...q[next])",
        "q_learning",
    ),
    "SARSA forgets the action it drew": (
        (
            "? null : nextAction;\n  return { before, bootstrap, nextAction, error, after:"
            " q[state][action] }"
        ),
        (
            "? null : null;\n  return { before, bootstrap, nextAction, error, after:"
            " q[state][action] }"
        ),
        "sarsa",
    ),
    "traces add up": (
        "trace[state][action] = alpha;",
        "trace[state][action] += alpha;",
        "sarsa_lambda",
    ),
    "traces outlive the episode": (
        "terminated || truncated ? 0 : gamma * lambda",
        "gamma * lambda",
        "sarsa_lambda",
    ),
    "every visit counts": ("if (visited.has(4 * state + action)) return;", "", "mc_control"),
    "a cut return ends with 0": (
        "beyond = step.terminated ? 0 : expectedValue(q[step.next], epsilon)",
        "beyond = 0",
        "mc_control",
    ),
    "planning pays what the last step paid": (
        "qLearningUpdate(q, model[s][a], settings)",
        "qLearningUpdate(q, { ...model[s][a], reward: step.reward }, settings)",
        "dyna_q",
    ),
    "ties go to the first": (
        "best[Math.floor(random() * best.length)];\n}",
        "best[0];\n}",
        "q_learning",
    ),
    "slips go backwards": (
        "[[2, 3], [2, 3], [0, 1], [0, 1]]",
        "[[1, 1], [0, 0], [3, 3], [2, 2]]",
        "planners",
    ),
    "the cliff ends the episode": (
        "=== GOAL || cell === PIT)",
        "=== GOAL || cell === PIT || cell === CLIFF)",
        "worlds",
    ),
    "a mean over one visit too many": (
        "/ above.count[action];",
        "/ (above.count[action] + 1);",
        "search",
    ),
    "no discount before the score": (
        "gamma ** time * (G - baseline)",
        "(G - baseline)",
        "gradient",
    ),
    "a kept tree forgets the range of returns": (
        "{ ...tree, root,",
        "{ ...makeTree(next), root,",
        "read mcts",
    ),
    "ε falls a step late": (
        "Math.min(steps / decay, 1)",
        "Math.min((steps - 1) / decay, 1)",
        "sarsa",
    ),
    "rest is worth nothing but 0": ("rest[state] < 0);", "true);", "undiscounted"),
    "circles that pay are not seen": (
        "&& !comesToRest(world, round) ? INFINITE",
        "&& false ? INFINITE",
        "undiscounted",
    ),
}
"""What is planted: the line, what it becomes, and the test that notices."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_planted_bug_is_noticed(
    bug: str,
    worlds: list[World],
    tabled: list[MazeTables],
    models: list[TabularMDP],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, wrong, check = MUTANTS[bug]
    source = grid_page.engine()
    assert source.count(right) == 1
    monkeypatch.setattr(grid_page, "engine", lambda: source.replace(right, wrong))
    with pytest.raises(AssertionError):
        if check == "worlds":
            test_the_worlds_are_the_books_maze_where_they_can_be(worlds, tabled)
        elif check == "planners":
            test_value_iteration_and_policy_iteration_agree_with_the_planners(worlds, models)
        elif check == "search":
            test_a_search_grows_the_packages_tree(worlds, models)
        elif check == "read mcts":
            test_a_run_that_a_program_reads_is_made_again_by_the_package("mcts", worlds, models)
        elif check == "undiscounted":
            test_without_a_discount_the_best_values_are_the_packages_or_a_reason(worlds)
        elif check == "gradient":
            test_the_policy_gradient_is_the_librarys_on_the_same_episodes(worlds)
        else:
            test_a_learner_is_the_packages_bit_for_bit(check, worlds)
