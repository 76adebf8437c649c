"""What the pages say of one method beside another: "fewer", "sooner", "on 28 of 40 seeds". A
comparison is a claim like a number, so it has its runs, on seeds that chose no setting, and a test
of whether chance alone would show as much."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu, ttest_1samp, ttest_ind

import rlbook
from rlbook.book.experiments import imitation_ladder
from rlbook.book.experiments.one_axis import TABLES, learning_curves
from rlbook.cli.main import main
from rlbook.evaluation.optimal_return import optimal_return
from rlbook.interaction.environments import EnvRecipe

FIRST_SEED = 10
LEVEL = 0.01  # as likely as that is a difference this large where there is none
RESULTS = json.loads((Path(__file__).parents[2] / "docs" / "results.json").read_text())[
    "measurements"
]


def means(name: str) -> list[float]:
    """What each seed of a measured result came to; on token tasks, greedily."""
    return RESULTS[name]["means"]


def chance_of_being_above(better: list[float], worse: list[float]) -> float:
    """The p value of Mann and Whitney's test, one-sided: neither is above the other more often."""
    return float(mannwhitneyu(better, worse, alternative="greater").pvalue)


def difference_holds_0(first: list[float], second: list[float]) -> bool:
    """Whether Welch's 95 % interval of the difference of the means has 0 in it."""
    low, high = ttest_ind(first, second, equal_var=False).confidence_interval()
    return bool(low <= 0 <= high)


def seeds_with_the_best_way(algorithm: str, seeds: int, **options: Any) -> int:
    """On how many seeds the greedy policy earns 3 in the maze, the best there is."""
    runs = (
        rlbook.train(algorithm, "Maze-v0", seed=seed, eval_every=0, **options)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
    )
    return sum(rlbook.evaluate(run, episodes=1).mean == 3.0 for run in runs)


def chance_of_as_many(more: int, fewer: int, seeds: int) -> float:
    """The p value of Fisher's exact test, one-sided: both methods succeed equally often."""
    table = [[more, seeds - more], [fewer, seeds - fewer]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def test_a_model_saves_episodes_in_the_maze() -> None:
    """docs/chapters/model-based.md: Dyna-Q needs about 10 episodes (17 of 20 seeds), Q-learning
    about 50 (18 of 20)."""
    early = {
        name: seeds_with_the_best_way(name, 20, episodes=20) for name in ("dyna_q", "q_learning")
    }
    assert chance_of_as_many(early["dyna_q"], early["q_learning"], 20) < LEVEL, early
    assert seeds_with_the_best_way("dyna_q", 20, episodes=10) >= 14
    assert seeds_with_the_best_way("q_learning", 20, episodes=50) >= 14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "good", "bad"),
    [
        (
            "sarsa_lambda",
            {"trace_decay": 0.5, "epsilon": 0.1},
            {"trace_decay": 0.9, "epsilon": 0.1},
        ),
        ("n_step_sarsa", {"n": 8, "alpha": 0.1}, {"n": 8, "alpha": 0.3}),
    ],
)
def test_long_returns_want_small_steps_and_little_chance(
    algorithm: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    """docs/algorithms/sarsa_lambda.md and n_step_sarsa.md, exercises: 40 of 40 seeds beside 29 and
    28."""
    found = [seeds_with_the_best_way(algorithm, 40, **options) for options in (good, bad)]
    assert chance_of_as_many(*found, 40) < LEVEL, found


@pytest.mark.slow
def test_replay_saves_steps_on_the_pendulum() -> None:
    """docs/chapters/maximum-entropy.md: after 10 000 steps SAC is near the best, and PPO has hardly
    begun."""
    means = {
        name: [
            rlbook.evaluate(
                rlbook.train(name, "Pendulum-v1", steps=10_000, seed=seed, eval_every=0),
                episodes=50,
            ).mean
            for seed in range(FIRST_SEED, FIRST_SEED + 5)
        ]
        for name in ("sac", "ppo")
    }
    assert mannwhitneyu(means["sac"], means["ppo"], alternative="greater").pvalue < LEVEL, means
    assert np.median(means["ppo"]) < -600, means


# What the pages say of results that docs/measure.py has measured with fresh seeds


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # docs/chapters/language-models.md: PPO, GRPO and DPO on sums
        ("ppo_addition", "grpo_addition"),
        ("grpo_addition", "dpo_addition"),
        # docs/chapters/tokens.md: one token a character, and merges of digits
        ("sft_characters", "sft_bpe"),
        # docs/algorithms/rejection_sampling.md: less than GRPO
        ("grpo_addition", "rejection_sampling_addition"),
        # docs/chapters/temporal-difference.md: without exploring, Q-learning is better: -13 against
        # -15
        ("q_learning_cliff", "sarsa_cliff"),
        ("q_learning_cliff", "expected_sarsa_cliff"),
        # docs/chapters/imitation.md and offline.md: an expert who is asked, and values of what was
        # not tried held down
        ("dagger_slippery", "clone_slippery"),
        ("cql_cliff", "fitted_q_cliff"),
        ("iql_cliff", "fitted_q_cliff"),
        # docs/algorithms/dpo.md: with the NLL term the model knows more than before, without it
        # much is lost
        ("dpo_nll_round", "addition_before"),
        ("addition_before", "dpo_plain_round"),
    ],
)
def test_what_a_page_calls_better_was_measured_to_be(better: str, worse: str) -> None:
    assert chance_of_being_above(means(better), means(worse)) < LEVEL, (means(better), means(worse))


@pytest.mark.parametrize("algorithm", ["fitted_q", "cql", "iql"])
def test_from_walks_that_try_everything_each_offline_method_learns_the_exact_optimum(
    algorithm: str,
) -> None:
    """docs/chapters/offline.md: on each of ten seeds the greedy policy earns what planning says."""
    exact = optimal_return(EnvRecipe.from_env("Maze-v0"))
    result = RESULTS[f"{algorithm}_maze"]
    assert result["seeds"] == list(range(FIRST_SEED, FIRST_SEED + 10))
    assert result["means"] == [exact] * 10


@pytest.mark.parametrize("algorithm", ["cql", "iql"])
def test_from_a_narrow_recording_only_fitted_q_misses_the_exact_optimum(algorithm: str) -> None:
    """docs/chapters/offline.md: on ten seeds each."""
    exact = optimal_return(EnvRecipe.from_env("CliffWalking-v1"))
    assert means(f"{algorithm}_cliff") == [exact] * 10
    assert max(means("fitted_q_cliff")) < exact


def test_from_a_recording_of_the_pendulum_iql_earns_more_than_a_clone() -> None:
    """docs/algorithms/iql.md: five recordings, each of which both learn from; Welch's 95 % interval
    of the difference lies above 0."""
    iql, clone = RESULTS["iql_pendulum"], RESULTS["clone_pendulum"]
    assert iql["seeds"] == clone["seeds"] == list(range(FIRST_SEED, FIRST_SEED + 5))
    assert iql["commands"][:2] == clone["commands"][:2]  # the expert, and the recording
    interval = ttest_ind(iql["means"], clone["means"], equal_var=False).confidence_interval()
    assert interval.low > 0


def test_forgetting_old_returns_finds_the_shortest_way_more_often() -> None:
    """docs/chapters/monte-carlo.md: three of ten seeds, and all ten."""
    found = [means(name).count(3.0) for name in ("mc_control_forgetting", "mc_control_maze")]
    assert found == [10, 3] and chance_of_as_many(*found, 10) < LEVEL


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dqn_without", "distributional=false"),
        ("dqn_with", "distributional=true"),
        ("dqn_repairs", "buffer_size=32"),
    ],
)
def test_only_one_of_an_ablations_intervals_lies_beside_0(name: str, told: str) -> None:
    """docs/algorithms/dqn.md and docs/chapters/value-networks.md: of the other parts no effect was
    seen."""
    whole, *parts = RESULTS[name]["parts"]
    assert [
        part["name"] for part in parts if not difference_holds_0(part["areas"], whole["areas"])
    ] == [told]


def test_without_its_clip_and_with_a_single_epoch_ppo_learns_less() -> None:
    """docs/chapters/trust-regions.md: both differences; and one epoch is below no clip."""
    whole, unclipped, once = (part["areas"] for part in RESULTS["ppo_clip"]["parts"])
    assert not difference_holds_0(unclipped, whole) and not difference_holds_0(once, whole)
    assert chance_of_being_above(unclipped, once) < 0.05


def test_a_price_for_each_token_silences_the_model_where_it_is_divided_by_the_groups_deviation() -> (
    None
):
    """docs/chapters/rewards.md: on each of ten seeds; without the division none falls silent."""
    assert means("price_of_length") == [0.0] * 10 and min(means("price_of_length_plain")) > 0.4


def test_a_learned_baseline_keeps_what_was_learned_more_often() -> None:
    """docs/ladder.md: of five seeds three end at 250 to 360 without a baseline, and none below 490
    with it."""
    with_it, without = means("reinforce_learned"), means("reinforce_plain")
    assert min(with_it) > 490 and sum(mean < 365 for mean in without) == 3
    assert chance_of_being_above(with_it, without) < 0.05


def test_ten_seeds_do_not_settle_whether_random_actions_make_a_better_recording() -> None:
    """docs/chapters/imitation.md: nine clones and five keep the pole up for 475 steps, which chance
    alone shows one time in seven."""
    found = [
        sum(mean >= 475 for mean in means(name))
        for name in ("clone_cartpole", "clone_cartpole_greedy")
    ]
    assert found == [9, 5] and 1 / 8 < fisher_exact([[9, 1], [5, 5]]).pvalue < 1 / 6


def test_what_imagining_adds_cannot_be_told() -> None:
    """docs/algorithms/mbpo.md and docs/chapters/learned-models.md."""
    assert difference_holds_0(means("mbpo_pendulum"), means("mbpo_without"))


def test_grpo_takes_less_time_for_more_tokens_than_ppo() -> None:
    """docs/chapters/language-models.md; both were timed on one machine, and one has a quarter of
    the other's seconds."""
    assert RESULTS["grpo_addition"]["machine"] == RESULTS["ppo_addition"]["machine"]
    assert RESULTS["grpo_addition"]["seconds"] < RESULTS["ppo_addition"]["seconds"] / 2


def test_a_tree_spends_tokens_best_with_a_perfect_judge_and_gains_nothing_with_a_learned_one() -> (
    None
):
    """docs/llm/search.md: by the intervals over prompts that stand in its table."""
    found = RESULTS["token_search"]["measured"]

    def key(task: str, who: str) -> str:
        (name,) = (name for name in found if re.match(rf"{task}, {who}, \d+ tokens", name))
        return name

    def tokens(task: str, who: str) -> int:
        return int(key(task, who).rpartition(", ")[2].removesuffix(" tokens"))

    def difference(task: str, better: str, worse: str) -> tuple[float, float]:
        """Of the shares, and half of its 95 % interval."""
        halves = (found[f"{task}, {who}, ±"] for who in (better, worse))
        return found[key(task, better)] - found[key(task, worse)], math.hypot(*halves)

    for task, share in (("sums", 2 / 3), ("reasoning", 1 / 3)):
        assert tokens(task, "mcts, verifier") < share * tokens(task, "best of n, verifier")
        for better, worse in (
            ("mcts, verifier", "best of n, verifier"),
            ("greedy", "best of n, value"),
        ):
            gain, half = difference(task, better, worse)
            assert gain > half
    gain, half = difference("sums", "greedy", "mcts, value")
    assert abs(gain) < half  # near it
    gain, half = difference("reasoning", "greedy", "mcts, value")
    assert gain > half  # below it


def test_what_pages_say_of_language_models_is_what_their_seeds_came_to() -> None:
    """docs/llm/r1.md, rlhf.md, evaluation.md, beams.md and intrinsic-rewards.md. Both halves of a
    pair of measurements are over the same prompts."""
    r1, judge, beams, tries, sure = (
        RESULTS[name]["measured"]
        for name in ("r1", "over_optimisation", "beam_stages", "more_tries", "intrinsic_rewards")
    )
    for gain in (
        "zero - base",
        "cold_start - base",
        "reasoning_rl - cold_start",
        "distilled - small_rl",
    ):
        assert r1[f"{gain}: sums, sampled"] > r1[f"{gain}: sums, sampled, ±"]
    for unclear in (
        "reasoning_rl - zero: sums, sampled",
        "second_sft - reasoning_rl: sums, sampled",
        "all_tasks_rl - second_sft: sums, sampled",
        "all_tasks_rl - second_sft: copies, greedy",
    ):
        assert abs(r1[unclear]) < r1[f"{unclear}, ±"]
    assert r1["reasoning_rl: Latin, sampled"] > 0.99 > r1["zero: Latin, sampled"]
    for stage in ("ppo", "too_far"):
        assert judge[f"{stage}: AUC, least fall of a seed"] > 0.1
    for number in range(1, 11):
        online = beams[f"GRPO, online: gain, run {number}"]
        assert online > 0
        assert online > 2 * beams[f"RCE: gain, run {number}"]
        assert online > 2 * beams[f"GRPO, recorded: gain, run {number}"]
    assert tries["grpo: pass@1"] > tries["start: pass@1"] + 0.1
    assert abs(tries["grpo: pass@64"] - tries["start: pass@64"]) < 0.02
    for reward in ("entropy", "trajectory"):
        for kind in ("drawn", "greedy"):
            before = sure[f"{reward}: {kind}, before"]
            assert sure[f"{reward}: {kind}, at the end"] < before - 0.1
            error = (before * (1 - before) / 512) ** 0.5  # of the share of one seed's 512 prompts
            assert sure[f"{reward}: {kind}, best on the way"] - before < error
    falls = [fall for _, fall in RESULTS["rlhf"]["before and after"]["too_far: fall"]]
    assert min(falls) > 0.05
    for before, after in RESULTS["rlhf"]["before and after"]["ppo: true score"]:
        assert after > before + 0.2


def test_what_a_judge_has_kept_makes_a_better_policy_than_the_one_that_wrote_it() -> None:
    """docs/llm/r1.md: on each seed; the 95 % intervals of the gains are above 0. The sums are those
    of the nine seeds on which the base model learns them at all."""
    found = RESULTS["r1_scenarios"]

    def after(stage: str, what: str) -> np.ndarray:
        return np.array([pair[1] for pair in found["before and after"][f"{stage}: {what}"]])

    def points(better: np.ndarray, worse: np.ndarray) -> tuple[int, int]:
        gain = 100 * (better - worse)
        return round(gain.min()), round(gain.max())

    kept = {name: np.array(found["made"][f"kept: people, {name}"]) for name in ("all", "kept")}
    assert points(kept["kept"], kept["all"]) == (9, 21)
    assert (np.array(found["made"]["kept: judge right"]) > 0.5).all()
    gains = {"programs": (8, 22), "helpful": (12, 22), "harmless": (25, 56)}
    for what, told in gains.items():
        pair = after("second_sft", what), after("reasoning_rl", what)
        assert points(*pair) == told
        assert ttest_1samp(pair[0] - pair[1], 0.0).confidence_interval().low > 0.0
    assert points(after("reasoning_rl", "refused"), after("second_sft", "refused")) == (16, 31)
    learned = after("base", "sums") > 0.5
    assert np.array(found["seeds"])[~learned].tolist() == [16]
    sums = [after(stage, "sums") for stage in ("base", "reasoning_rl", "all_scenarios_rl")]
    assert points(sums[1][learned], sums[0][learned]) == (2, 9)
    assert max(stage[~learned].max() for stage in sums) < 0.1
    assert sums[2][learned].min() > 0.995
    assert points(after("all_scenarios_rl", "helpful"), after("second_sft", "helpful")) == (2, 9)
    assert points(after("second_sft", "refused"), after("all_scenarios_rl", "refused")) == (3, 14)
    same = [("reasoning_rl", "base", what) for what in ("programs", "helpful", "harmless")]
    same += [("reasoning_rl", "base", "refused"), ("all_scenarios_rl", "second_sft", "programs")]
    for stage, before, what in same:
        low, high = ttest_1samp(after(stage, what) - after(before, what), 0.0).confidence_interval()
        assert low < 0 < high, (stage, what)


def test_judges_of_steps_take_worse_than_one_sample_and_ruin_a_policy_that_they_pay() -> None:
    """docs/llm/rewards.md: the intervals of the gains are below 0, and on each seed the judge's score
    rises while right answers become few."""
    found = RESULTS["process_judges"]["measured"]
    for name in (
        "outcome",
        *(f"process, {how}" for how in ("last", "min", "product", "mean", "sum")),
    ):
        gain = f"best of 16, {name}: gain"
        assert found[gain] + found[f"{gain}, ±"] < 0.0
    for name in ("process, min", "process, sum"):
        assert found[f"{name}: score, least rise of a seed"] > 0.0
        assert found[f"{name}: right, least fall of a seed"] > 0.08
        assert found[f"{name}: right, most of a seed"] < 0.15


def test_judges_of_steps_on_countdown_gain_nothing_and_are_hacked_by_length() -> None:
    """docs/llm/rewards.md: intervals around 0, and no right answer on any seed after a judge paid."""
    found = RESULTS["countdown_judges"]["measured"]
    for name in (
        "outcome",
        *(f"process, {how}" for how in ("last", "min", "product", "mean", "sum")),
        "rollouts, min",
    ):
        gain = f"best of 16, {name}: gain"
        assert abs(found[gain]) < found[f"{gain}, ±"]
    assert round(found["best of 16, verifier"], 2) == 0.58
    for name, fewer in (("process, min", True), ("process, sum", False)):
        assert found[f"{name}: score, least rise of a seed"] > 0.0
        assert found[f"{name}: right, most of a seed"] == 0.0
        more = found[f"paid by, {name}: steps more"]
        half = found[f"paid by, {name}: steps more, ±"]
        assert more + half < -3.0 if fewer else more - half > 5.0


def test_hard_labels_forgive_and_soft_ones_of_16_continuations_make_a_better_judge() -> None:
    """docs/llm/rewards.md: what intervals say of labels by rollouts."""
    found = RESULTS["step_labels"]["measured"]

    def interval(name: str) -> tuple[float, float]:
        return found[name] - found[f"{name}, ±"], found[name] + found[f"{name}, ±"]

    forgiven = "hard 16: wrong called right"
    for other in ("hard 4", "soft 16"):
        assert interval(f"{other}: wrong called right")[1] < interval(forgiven)[0]
    assert interval("soft 16: best of 16, change")[0] > 0.0
    for name in ("soft 1", "soft 4", "hard 4", "hard 16"):
        low, high = interval(f"{name}: best of 16, change")
        assert low < 0.0 < high
    for name in ("soft 1", "soft 4", "hard 4", "soft 16", "hard 16", "exact"):
        assert found[f"{name}: best of 16"] < found["one sample: best of 16"]


def test_students_come_as_far_as_their_teacher_and_no_labels_are_better() -> None:
    """docs/algorithms/distillation.md says so."""
    labels = RESULTS["distilled_sizes"]["measured"]
    soft, hard = (
        [labels[f"{who}, run {number}"] for number in range(1, 11)]
        for who in ("soft labels", "hard labels")
    )
    assert 0.78 < min(soft + hard) <= max(soft + hard) < 0.835
    low, high = ttest_ind(soft, hard, equal_var=False).confidence_interval()
    assert (round(100 * low, 1), round(100 * high, 1)) == (-0.5, 2.0)


def test_the_answers_probability_helps_on_ten_seeds_and_a_verifier_on_nine() -> None:
    """docs/llm/intrinsic-rewards.md; without the run that collapses no difference is seen."""
    found = RESULTS["answer_probability"]["measured"]
    answer, verifier = (
        np.array([found[f"{who}, run {number}"] for number in range(1, 11)])
        for who in ("answer", "verifier")
    )
    assert found["answer, runs that gained"] == 10 and found["verifier, runs that gained"] == 9
    assert verifier.argmin() == 8 and verifier[8] < 0.125
    assert found["answer less verifier, median"] == 0.0
    assert difference_holds_0(np.delete(answer, 8), np.delete(verifier, 8))


def test_on_one_axis_a2c_needs_the_most_steps_in_the_maze_and_dqn_comes_near_first_on_the_lake() -> (
    None
):
    """docs/one-axis.md, by the ranges over its seeds: the slowest of one is before the fastest of
    another."""
    curves = json.loads(
        (Path(__file__).parents[2] / "docs" / "figures" / "one-axis.json").read_text()
    )

    def range_of(env: str, who: str) -> tuple[float, float]:
        saved = curves[env][who]
        near = np.array(saved["distance"]) <= 0.01 * abs(saved["best"])
        first = np.where(near.any(axis=1), np.array(saved["steps"])[near.argmax(axis=1)], np.inf)
        return float(first.min()), float(first.max())

    others = [who for who in curves["Maze-v0"] if who != "a2c"]
    assert range_of("Maze-v0", "a2c")[0] > max(range_of("Maze-v0", who)[1] for who in others)
    slow = [who for who in curves["FrozenLake-v1"] if who != "dqn"]
    assert range_of("FrozenLake-v1", "dqn")[1] < min(
        range_of("FrozenLake-v1", who)[0] for who in slow
    )


# What they say of runs that are made here


@pytest.mark.slow
def test_cells_that_look_alike_mislead_a_table() -> None:
    """docs/chapters/decision-processes.md: two of ten seeds find the best way by what is around the
    agent, and all ten by its cell."""
    found = [
        seeds_with_the_best_way("q_learning", 10, env_kwargs={"observation": seen})
        for seen in ("index", "local")
    ]
    assert chance_of_as_many(*found, 10) < LEVEL, found


@pytest.mark.slow
def test_without_optimism_nothing_but_the_first_episode_varies() -> None:
    """docs/chapters/introduction.md: with first values of -200 and no exploration every episode
    earns -100."""
    for seed in range(FIRST_SEED, FIRST_SEED + 10):
        run = rlbook.train(
            "q_learning",
            "Maze-v0",
            episodes=500,
            epsilon=0.0,
            initial_value=-200.0,
            seed=seed,
            eval_every=0,
        )
        assert set(run.episode_returns[1:]) == {-100.0} and -120 <= run.episode_returns[0] <= -100


@pytest.mark.slow
def test_monte_carlo_earns_more_early_on_and_some_seeds_settle_on_a_way_that_never_arrives() -> (
    None
):
    """docs/chapters/introduction.md: in the first 5 000 steps; 20 seeds."""
    early: dict[str, list[float]] = {"mc_control": [], "q_learning": []}
    final: dict[str, list[float]] = {"mc_control": [], "q_learning": []}
    for name in early:
        for seed in range(FIRST_SEED, FIRST_SEED + 20):
            run = rlbook.train(name, "Maze-v0", episodes=500, seed=seed, eval_every=0)
            returns, steps = np.array(run.episode_returns), np.cumsum(run.episode_lengths)
            early[name].append(float(returns[steps <= 5_000].mean()))
            final[name].append(rlbook.evaluate(run, episodes=1).mean)
    assert chance_of_being_above(early["mc_control"], early["q_learning"]) < LEVEL, early
    assert final["q_learning"] == [3.0] * 20 and 3 <= final["mc_control"].count(-100.0) <= 17, final


@pytest.mark.slow
@pytest.mark.parametrize("env", ["Maze-v0", "Taxi-v4", "CliffWalking-v1"])
def test_dyna_q_comes_near_the_best_policy_before_the_other_tables(env: str) -> None:
    """docs/one-axis.md: the fastest table in three worlds."""
    first = {
        name: learning_curves(name, env, 10, FIRST_SEED).first_step_within(0.01).tolist()
        for name in TABLES
    }
    for other in set(TABLES) - {"dyna_q"}:
        assert chance_of_being_above(first[other], first["dyna_q"]) < LEVEL, first


@pytest.mark.slow
def test_a_bounded_gradient_lets_the_values_of_a_small_network_run_away() -> None:
    """docs/chapters/value-networks.md: no return is above 33.3; on five seeds `q` is above 1 000
    with the Huber loss and at most 21 without it, and in a larger network at most 47."""
    settings: dict[str, Any] = {
        "steps": 10_000,
        "gamma": 0.97,
        "num_envs": 4,
        "learning_rate": 1e-3,
        "anneal_learning_rate": False,
        "n_step": 1,
        "hidden_sizes": (64,),
        "batch_size": 32,
        "train_every": 32,
        "gradient_steps": 8,
        "target_period": 128,
        "double": False,
        "learning_starts": 200,
        "epsilon": "linear(1.0, 0.05, 0.5)",
        "eval_every": 0,
    }
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        bounded, squared, larger = (
            rlbook.train("dqn", "CartPole-v1", seed=seed, **settings | change)
            for change in ({}, {"huber": False}, {"hidden_sizes": (64, 64)})
        )
        assert bounded.metrics[-1]["q"] > 10 / 0.03 > 1 / 0.03 > squared.metrics[-1]["q"]
        assert max(line.get("q") or 0.0 for line in larger.metrics) < 2 / 0.03


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_greedy_cloning_votes_random_actions_down(
    seeds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/chapters/learning-from-data.md: half of the actions were random, which costs 24, and
    the clone earns 3."""
    walks = str(tmp_path / "walks")
    policy = ["--policy", "optimal", "--epsilon", "0.5"]
    main(["record", "Maze-v0", *policy, "--episodes", "200", "--out", walks, "--json"])
    assert json.loads(capsys.readouterr().out)["return"] == pytest.approx(
        -21, abs=0.5
    )  # as printed
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        run = rlbook.train("behavior_cloning", "Maze-v0", data=walks, seed=seed, eval_every=0)
        assert rlbook.evaluate(run, episodes=1).mean == 3.0, seed


@pytest.mark.slow
def test_one_episode_is_too_little_for_a_clone_and_four_are_enough() -> None:
    """docs/chapters/imitation.md: on the slippery maze, exactly, as the medians of five seeds."""
    ladder = imitation_ladder.run(5, first=FIRST_SEED, labels=(16, 64))
    few, more = np.median(ladder.clone, axis=0)
    assert few < ladder.expert - 5 and more > ladder.expert - 1, ladder
    assert (
        chance_of_being_above(ladder.dagger[:, 0].tolist(), ladder.clone[:, 0].tolist()) > LEVEL
    ), "DAgger is the better one"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_score_that_chose_is_too_high(seeds: int, tmp_path: Path) -> None:
    """docs/tuning.md: over ten searches it lies above the same trial's mean on fresh seeds."""
    pytest.importorskip("optuna")
    from rlbook.recipes.tuning import tune

    gaps = []
    for seed in range(100, 1001, 100):
        settings: dict[str, Any] = {"steps": 10_000, "seed": seed, "out": tmp_path / str(seed)}
        found = tune(
            "q_learning", "FrozenLake-v1", trials=30, seeds=seeds, fresh_seeds=10, **settings
        )
        assert found.best.score is not None
        gaps.append(found.best.score - float(np.mean(found.fresh[found.best.number])))
    assert float(ttest_1samp(gaps, 0.0, alternative="greater").pvalue) < LEVEL
