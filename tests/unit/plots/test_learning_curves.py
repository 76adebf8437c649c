"""Learning curves: averaging, the bootstrap band, and what stands in the figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from closeness import assert_near, near
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.evaluation.optimal_return import horizon_values, optimal_return
from rlbook.interaction.environments import EnvRecipe
from rlbook.plots.colours import CURVES
from rlbook.plots.curve_axes import DrawnCurve, learning_range, log_ticks, tick_text
from rlbook.plots.curves import (
    bootstrap_band,
    has_map,
    mean_curve,
    moving_mean,
    plot_curves,
    read_curve,
    save_curve,
)
from rlbook.registry import ALGORITHMS


def write_run(
    folder: Path,
    reports: list[dict[str, Any]],
    *,
    algorithm: str = "ppo",
    seed: int = 0,
    **config: Any,
) -> Path:
    folder.mkdir()
    settings = {"algorithm": algorithm, "env": "rlbook/Maze-v0", "seed": seed, "num_envs": 8}
    (folder / "config.yaml").write_text(
        yaml.safe_dump(settings | {"env_kwargs": {}, "hyperparameters": {"clip": 0.2}} | config)
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
    return folder


def rising(level: float) -> list[dict[str, Any]]:
    return [{"step": step, "return": level + step / 100} for step in (100, 200, 300)]


def lines(figure: Any, panel: int = 0) -> dict[str, Any]:
    """Label → line, for what the legend names."""
    return {
        str(line.get_label()): line
        for line in figure.axes[panel].lines
        if not str(line.get_label()).startswith("_")
    }


# Averaging


def test_the_mean_is_taken_over_the_steps_that_all_runs_cover() -> None:
    first = np.array([0.0, 10.0]), np.array([0.0, 10.0])  # y = x on [0, 10]
    second = np.array([5.0, 20.0]), np.array([10.0, 25.0])  # y = x + 5 on [5, 20]
    mean = mean_curve([first, second])
    assert (mean.steps[0], mean.steps[-1]) == (5.0, 10.0)
    assert_near(mean.mean, mean.steps + 2.5, terms=4)  # (x + (x + 5)) / 2


def test_one_run_is_shown_as_it_was_logged() -> None:
    steps, returns = np.array([1.0, 5.0, 6.0]), np.array([3.0, 1.0, 2.0])
    mean = mean_curve([(steps, returns)])
    np.testing.assert_array_equal(mean.steps, steps)
    np.testing.assert_array_equal(mean.mean, returns)


def test_the_band_of_equal_runs_is_a_line() -> None:
    values = np.tile(np.array([1.0, -2.0, 0.5]), (5, 1))
    low, high = bootstrap_band(values)
    assert_near(low, values[0], terms=5)
    assert_near(high, values[0], terms=5)


def test_the_band_lies_within_the_runs_and_around_their_mean() -> None:
    values = np.random.default_rng(3).normal(size=(6, 50))
    low, high = bootstrap_band(values)
    assert (values.min(axis=0) <= low).all() and (high <= values.max(axis=0)).all()
    assert (low < values.mean(axis=0)).all() and (values.mean(axis=0) < high).all()


def test_the_95_percent_band_holds_the_true_mean_about_95_times_in_a_hundred() -> None:
    # 2 000 experiments of 40 runs, true mean 2
    values = np.random.default_rng(0).normal(loc=2.0, size=(40, 2_000))
    low, high = bootstrap_band(values)
    # A percentile bootstrap of 40 is a little too narrow: 94 %, with a standard error of √(0.95 ·
    # 0.05 / 2000) = 0.5 %.
    assert 0.92 < ((low <= 2.0) & (high >= 2.0)).mean() < 0.96


def test_a_wider_confidence_gives_a_wider_band() -> None:
    values = np.random.default_rng(1).normal(size=(10, 30))
    low_50, high_50 = bootstrap_band(values, confidence=0.5)
    low_95, high_95 = bootstrap_band(values, confidence=0.95)
    assert (high_95 - low_95 > high_50 - low_50).all()


def test_the_band_depends_on_its_own_seed_and_on_no_global_one() -> None:
    values = np.random.default_rng(2).normal(size=(5, 10))
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr, index]  # noqa: NPY002
    first, second = bootstrap_band(values), bootstrap_band(values)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]  # noqa: NPY002


# The figure


def test_runs_that_differ_in_their_seed_become_one_curve_with_a_band(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / str(seed), rising(seed), seed=seed) for seed in range(3)]
    figure = plot_curves(folders)
    (label,) = (label for label in lines(figure) if label.startswith("ppo"))
    assert "3 seeds" in label
    ends = lines(figure)[label].get_ydata()[[0, -1]]
    assert_near(ends, [2.0, 4.0], terms=4)  # (0 + 1 + 2) / 3 + 100 / 100, … + 300 / 100
    assert (
        len([part for part in figure.axes[0].collections if isinstance(part, PolyCollection)]) == 1
    )


def test_algorithms_become_curves_of_their_own_in_different_colours(tmp_path: Path) -> None:
    names = list(ALGORITHMS)[: len(CURVES) + 1]
    figure = plot_curves([write_run(tmp_path / name, rising(0), algorithm=name) for name in names])
    *curves, last = (lines(figure)[name] for name in names)
    assert len({line.get_color() for line in curves}) == len(CURVES)
    assert not any(line.is_dashed() for line in curves)
    assert last.get_color() == curves[0].get_color() and last.is_dashed()  # there are no more
    assert not [part for part in figure.axes[0].collections if isinstance(part, PolyCollection)]


def test_curves_of_the_same_colour_differ_in_the_panel_of_errors_too(tmp_path: Path) -> None:
    names = list(ALGORITHMS)[: len(CURVES) + 1]
    reports = [report | {"value_error": 1.0} for report in rising(0)]
    figure = plot_curves([write_run(tmp_path / name, reports, algorithm=name) for name in names])
    assert [line.is_dashed() for line in figure.axes[1].lines] == [False] * len(CURVES) + [True]


def test_runs_of_a_single_report_are_a_dot(tmp_path: Path) -> None:
    reports = rising(0)[:1]
    folders = [write_run(tmp_path / str(seed), reports, seed=seed) for seed in range(2)]
    (line,) = (line for label, line in lines(plot_curves(folders)).items() if "ppo" in label)
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([100.0], [1.0])
    assert line.get_marker() == "o"


def test_a_hyper_parameter_that_differs_sets_two_curves_apart_and_names_them(
    tmp_path: Path,
) -> None:
    figure = plot_curves(
        [
            write_run(tmp_path / str(clip), rising(0), hyperparameters={"clip": clip, "epochs": 4})
            for clip in (0.1, 0.2)
        ]
    )
    assert {"ppo, clip 0.1", "ppo, clip 0.2"} <= set(lines(figure))


def test_each_environment_has_its_panel(tmp_path: Path) -> None:
    shaped = write_run(tmp_path / "b", rising(0), env_kwargs={"rewards": "shaped"})
    figure = plot_curves([write_run(tmp_path / "a", rising(0)), shaped])
    assert [axes.get_title() for axes in figure.axes] == ["Maze-v0", "Maze-v0 (rewards=shaped)"]
    assert "optimum 3" in lines(figure, 0) and "optimum 9.2" in lines(figure, 1)


def test_what_learned_from_recorded_data_is_drawn_by_its_evaluations(tmp_path: Path) -> None:
    steps, returns = [207, 414, 621], [-100.0, 1.0, 3.0]
    reports: list[dict[str, Any]] = [
        {"step": step, "passes": step / 207, "eval_return": value}
        for step, value in zip(steps, returns, strict=True)
    ]
    between = {"step": 300, "passes": 300 / 207, "td_loss": 1.0}
    folder = write_run(tmp_path / "cql", [*reports, between], algorithm="cql")
    curve = read_curve(folder)
    assert (curve.steps.tolist(), curve.returns.tolist(), curve.unit) == (
        steps,
        returns,
        "minibatches",
    )
    figure = plot_curves([folder, write_run(tmp_path / "ppo", rising(0))])
    drawn, played = figure.axes
    assert (drawn.get_xlabel(), played.get_xlabel()) == ("minibatches", "environment steps")
    assert lines(figure)["cql"].get_marker() == "o" and "greedy episodes" not in lines(figure)
    assert "rlbook explain eval_return" in figure.get_supxlabel()
    silent = write_run(tmp_path / "silent", [between], algorithm="cql")
    with pytest.raises(RequestError, match="nothing to draw yet: no evaluation has ended"):
        plot_curves(silent)


def test_planners_have_a_panel_of_their_own_in_sweeps(tmp_path: Path) -> None:
    sweeps = [{"step": sweep, "sweep": sweep, "value": -float(sweep)} for sweep in (1, 2, 3)]
    figure = plot_curves(
        [
            write_run(tmp_path / "a", rising(0)),
            write_run(tmp_path / "b", sweeps, algorithm="value_iteration"),
        ]
    )
    assert [axes.get_xlabel() for axes in figure.axes] == ["environment steps", "sweeps"]
    assert figure.axes[1].get_ylabel() == "value of the start (reward units)"
    # a value is discounted, and the optimum of the other panel is not
    assert list(lines(figure, 1)) == ["value_iteration"] and "optimum 3" in lines(figure, 0)
    np.testing.assert_array_equal(
        lines(figure, 1)["value_iteration"].get_ydata(), [-1.0, -2.0, -3.0]
    )


def test_axes_name_their_units_and_the_optimum_is_dashed(tmp_path: Path) -> None:
    figure = plot_curves(write_run(tmp_path / "a", rising(0)))
    axes, optimum = figure.axes[0], lines(figure)["optimum 3"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "environment steps",
        "return of an episode (reward units)",
    )
    assert list(optimum.get_ydata()) == near([3.0, 3.0], terms=8, size=17)  # 7 steps of -1, 10
    assert optimum.is_dashed()


def test_an_environment_that_is_not_registered_here_is_drawn_without_its_optimum(
    tmp_path: Path,
) -> None:
    figure = plot_curves(write_run(tmp_path / "a", rising(0), env="Elsewhere-v3"))
    assert list(lines(figure)) == ["ppo"]


def test_greedy_evaluations_are_marked(tmp_path: Path) -> None:
    reports = [
        {"step": 100, "return": 1.0, "eval_return": 2.0},
        {"step": 200, "return": 1.5},
        {"step": 300, "eval_return": 3.0},
    ]
    curve = read_curve(write_run(tmp_path / "a", reports))
    np.testing.assert_array_equal(curve.eval_steps, [100, 300])
    np.testing.assert_array_equal(curve.eval_returns, [2.0, 3.0])
    np.testing.assert_array_equal(curve.returns, [1.0, 1.5])
    figure = plot_curves(tmp_path / "a")
    assert "greedy episodes" in lines(figure)
    circles = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in circles if len(line.get_xdata())] == [
        [100.0],
        [300.0],
    ]


def test_what_was_judged_against_the_exact_answer_has_panels_below(tmp_path: Path) -> None:
    reports = [
        {"step": step, "return": 1.0, "value_error": 100 / step, "policy_regret": 300.0 - step}
        for step in (100, 200, 300)
    ]
    (
        write_run(tmp_path / "0", reports),
        write_run(
            tmp_path / "1",
            [
                report | {"value_error": 3.0, "policy_regret": 2 * report["policy_regret"]}
                for report in reports
            ],
            seed=1,
        ),
    )
    axes = plot_curves([tmp_path / "0", tmp_path / "1"]).axes
    assert [panel.get_ylabel() for panel in axes[1:]] == [
        "value error (reward units)",
        "policy regret (reward units)",
    ]
    assert (axes[1].get_yscale(), axes[2].get_yscale()) == ("log", "symlog")  # the regret ends at 0
    # the band reaches from the one run, 200, to the other, 400: a quarter of all resamples
    assert axes[2].get_ylim() == near((0.0, 1.3 * 400))
    assert_near(axes[1].lines[0].get_ydata()[[0, -1]], [(1 + 3) / 2, (1 / 3 + 3) / 2], terms=4)
    assert len([part for part in axes[1].collections if isinstance(part, PolyCollection)]) == 1
    # nothing judged, no panels
    assert len(plot_curves(write_run(tmp_path / "2", rising(0))).axes) == 1


def test_an_evaluation_that_was_cut_is_marked_and_does_not_flatten_the_curve(
    tmp_path: Path,
) -> None:
    """Training returns lie between 1 and 3, the optimum is 3: the axis ends a little beyond,
    whatever -10 000 an evaluation says."""
    reports = [
        *rising(0),
        {"step": 150, "eval_return": -10_000.0, "eval_unfinished": 1.0},
        {"step": 300, "eval_return": 2.5},
    ]
    axes = plot_curves(write_run(tmp_path / "a", reports)).axes[0]
    bottom, top = axes.get_ylim()
    assert 0.5 < bottom < 1.0 and 3.0 < top < 3.5
    shown = lines(axes.figure)
    assert (
        shown["greedy episodes: did not finish"].get_marker() == "x" and "greedy episodes" in shown
    )
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [line.get_xdata().tolist() for line in crosses] == [[150.0]]
    circle = next(
        line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1
    )
    assert circle.get_ydata().tolist() == [2.5]


def test_an_evaluation_far_below_training_stands_at_the_edge(tmp_path: Path) -> None:
    axes = plot_curves(
        write_run(tmp_path / "a", [*rising(0), {"step": 300, "eval_return": -500.0}])
    ).axes[0]
    assert (
        axes.get_ylim()[0] > 0.5
        and lines(axes.figure)["greedy episodes below the axis"].get_marker() == "v"
    )


def test_the_last_evaluation_stands_in_the_picture_where_it_is_above_training(
    tmp_path: Path,
) -> None:
    """A greedy policy may be far better than one that explores; an earlier outlier is marked."""
    ended = [*rising(0), {"step": 300, "eval_return": 20.0}]
    axes = plot_curves(write_run(tmp_path / "a", ended)).axes[0]
    assert axes.get_ylim()[1] > 20.0 and "greedy episodes above the axis" not in lines(axes.figure)
    earlier = [
        rising(0)[0] | {"eval_return": 20.0},
        *rising(0)[1:],
        {"step": 300, "eval_return": 2},
    ]
    axes = plot_curves(write_run(tmp_path / "b", earlier)).axes[0]
    assert axes.get_ylim()[1] < 5.0 and "greedy episodes above the axis" in lines(axes.figure)


def test_of_several_runs_only_what_came_to_its_end_is_averaged(tmp_path: Path) -> None:
    ended = [*rising(0), {"step": 300, "eval_return": 3.0}]
    cut = [*rising(0), {"step": 300, "eval_return": -1_000.0, "eval_unfinished": 0.5}]
    axes = plot_curves(
        [write_run(tmp_path / str(seed), each, seed=seed) for seed, each in enumerate((ended, cut))]
    ).axes[0]
    marks = {
        line.get_marker(): line.get_ydata().tolist()
        for line in axes.lines
        if line.get_marker() in "ox" and len(line.get_xdata())
    }
    assert marks["o"] == [3.0] and len(marks["x"]) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.5"),
        (200.0, "200"),
        (-9_999.0, "−9999"),
        (10_000.0, "10k"),
        (-12_500.0, "−12.5k"),
        (1_500_000.0, "1.5M"),
        (0.001, "0.001"),
        (3e9, "3G"),
    ],
)
def test_ticks_are_numbers_as_people_write_them(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_no_axis_has_an_offset_or_a_power_of_ten(tmp_path: Path) -> None:
    numbers = [
        {"return": 1e6 + step, "value_error": 10.0**-step, "policy_regret": 5.0 - step}
        for step in range(1, 6)
    ]
    reports = [{"step": 10**6 * place} | report for place, report in enumerate(numbers, 1)]
    figure = plot_curves(write_run(tmp_path / "a", reports, env="Elsewhere-v0"), tmp_path / "a.png")
    texts = [
        label.get_text()
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_majorticklabels()
    ]
    assert {"2M", "0.01", "0.001"} <= set(texts) and not any(
        "e" in text or "$" in text for text in texts
    )
    assert not any(axes.yaxis.get_offset_text().get_visible() for axes in figure.axes)


def test_a_panel_of_fewer_than_three_points_is_left_out(tmp_path: Path) -> None:
    reports = [
        report | ({"value_error": 1.0} if place else {}) for place, report in enumerate(rising(0))
    ]
    assert len(plot_curves(write_run(tmp_path / "two", reports)).axes) == 1
    assert (
        len(
            plot_curves(
                write_run(tmp_path / "three", [report | {"value_error": 1.0} for report in reports])
            ).axes
        )
        == 2
    )
    text = write_run(
        tmp_path / "text",
        [report | ({"entropy": 1.0} if place else {}) for place, report in enumerate(rising(0))],
        **TEXT,
    )
    assert len(plot_curves(text).axes) == 1


@pytest.mark.parametrize(
    ("algorithms", "exploration", "said"),
    [
        (["q_learning"], "epsilon", "value_error: error of the values against the exact ones"),
        (
            ["sarsa"],
            "epsilon",
            "value_error: distance from the values of its own policy, exploration included",
        ),
        # UCB is no distribution over actions, so there is no policy of its own to evaluate
        (["sarsa"], "ucb", "value_error: error of the values against the exact ones"),
        (
            ["sarsa", "q_learning"],
            "epsilon",
            "value_error: distance from V*; of sarsa from V of its own policy",
        ),
    ],
)
def test_the_panel_says_whose_values_an_on_policy_learner_is_compared_with(
    tmp_path: Path, algorithms: list[str], exploration: str, said: str
) -> None:
    reports = [report | {"value_error": 1.0} for report in rising(0)]
    settings = {"hyperparameters": {"exploration": exploration}}
    figure = plot_curves(
        [write_run(tmp_path / name, reports, algorithm=name, **settings) for name in algorithms]
    )
    assert said in [text.get_text() for text in figure.axes[1].texts]


TITLES = [
    "rewards by name",
    "KL divergence",
    "entropy of the next token: entropy",
    "length of a completion: length",
    "groups of equal returns: zero_std_groups",
]
TEXT = {"env": "rlbook/Addition-v0", "algorithm": "grpo"}


def written(level: float) -> list[dict[str, Any]]:
    numbers = {
        "reward/exact": level,
        "reward/length": -0.5,
        "reference_kl": 0.1,
        "entropy": 1.0,
        "length": 3.5,
        "zero_std_groups": 0.2,
    }
    return [report | numbers | {"approx_kl": 0.01} for report in rising(level)]


def test_of_a_token_run_everything_that_matters_is_in_one_picture(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / str(seed), written(seed / 2), seed=seed, **TEXT) for seed in (0, 1)
    ]
    figure = plot_curves(runs)
    titles = [axes.get_title(loc="left") for axes in figure.axes[1:]]
    assert titles == TITLES
    assert list(lines(figure, 1)) == ["exact", "length"] and list(lines(figure, 2)) == [
        "reference_kl",
        "approx_kl",
    ]
    assert lines(figure, 1)["exact"].get_ydata()[0] == 0.25  # the mean of 0 and ½
    assert list(lines(figure, 5)) == ["zero_std_groups"]
    assert figure.axes[5].get_ylim() == (-0.03, 1.03)
    assert figure.axes[1].get_ylim()[0] < -0.5  # a reward may cost something; an entropy may not
    assert figure.axes[3].get_ylim()[0] == near(-0.03 * figure.axes[3].get_ylim()[1])


def test_several_token_runs_are_compared_by_their_returns_alone(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, written(0.5), **TEXT | {"algorithm": name})
        for name in ("grpo", "ppo")
    ]
    assert len(plot_curves(runs).axes) == 1


def test_a_figure_is_written_as_its_name_says(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", rising(0))
    plot_curves(folder, tmp_path / "deeper" / "curve.png")
    plot_curves(folder, tmp_path / "curve.svg")
    assert (tmp_path / "deeper" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "curve.svg").read_bytes()
    assert sorted(path.name for path in (tmp_path / "deeper").iterdir()) == ["curve.png"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "does not exist"), ("empty", "no episode has ended"), ("broken", "not YAML")],
)
def test_folders_without_a_curve_are_refused_in_a_sentence(
    tmp_path: Path, name: str, message: str
) -> None:
    write_run(tmp_path / "empty", [{"step": 100, "episodes": 0}])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("a: [")
    with pytest.raises(RequestError, match=message):
        plot_curves(tmp_path / name)


def test_a_figure_in_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"must end in \.png, \.svg, \.pdf"):
        plot_curves(tmp_path / "nowhere", tmp_path / "curve.bmp")


def test_a_run_saves_its_curve_in_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    import rlbook

    run = rlbook.train("q_learning", "Maze-v0", episodes=20, out=tmp_path / "run", eval_every=0)
    assert save_curve(run) == tmp_path / "run" / "curve.png"
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert save_curve(rlbook.train("q_learning", "Maze-v0", episodes=20, eval_every=0)) is None


@pytest.mark.thorough
def test_plotting_leaves_pyplot_and_its_settings_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rising(0))
    program = f"""
import sys
import rlbook, rlbook.plots
assert "matplotlib" not in sys.modules
import matplotlib
before = str(matplotlib.rcParams.copy())
rlbook.plots.plot_curves({str(tmp_path / "a")!r}, {str(tmp_path / "a.png")!r})
assert "matplotlib.pyplot" not in sys.modules
assert str(matplotlib.rcParams.copy()) == before
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# Where learning happens


def falling_off(level: float, *, deep: float = -50_000.0) -> list[dict[str, Any]]:
    """Ten reports: four far below, then a rise of 10 each to `level`."""
    returns = [
        deep,
        deep / 2,
        deep / 5,
        deep / 10,
        *(level - 10 * left for left in range(5, -1, -1)),
    ]
    return [
        {"step": 100 * number, "episodes": 10 * number, "return": value}
        for number, value in enumerate(returns, 1)
    ]


def edge_marks(axes: Any, marker: str = "v") -> list[Any]:
    """Curves' marks at an edge, one entry a curve; evaluations' are white, the legend's empty."""
    return [
        line
        for line in axes.lines
        if line.get_marker() == marker
        and len(line.get_xdata())
        and line.get_markerfacecolor() != "white"
    ]


def test_the_axis_follows_the_end_of_a_curve_that_begins_far_below(tmp_path: Path) -> None:
    """The last third are -33, -23, -13, which the beginning at -50 000 does not flatten: the axis
    ends within a few times their distance from 0."""
    figure = plot_curves(write_run(tmp_path / "a", falling_off(-13.0), env="CliffWalking-v1"))
    axes, shown = figure.axes[0], lines(figure)
    bottom, top = axes.get_ylim()
    assert -100 < bottom < -33 and -13 <= top < 10
    assert shown["ppo"].get_ydata().min() == -50_000  # drawn, and cut by the axis
    (marks,) = edge_marks(axes)
    assert marks.get_color() == shown["ppo"].get_color() and set(marks.get_ydata()) == {0.0}
    assert marks.get_xdata().min() >= 100 and marks.get_xdata().max() <= 500
    assert "below the axis, down to −50k" in shown


def test_a_curve_that_comes_down_from_far_above_is_marked_at_the_upper_edge(tmp_path: Path) -> None:
    reports = falling_off(13.0, deep=5e6)
    figure = plot_curves(write_run(tmp_path / "a", reports, env="Elsewhere-v0"))
    assert figure.axes[0].get_ylim()[1] < 200
    assert [set(marks.get_ydata()) for marks in edge_marks(figure.axes[0], "^")] == [{1.0}]
    assert "above the axis, up to 5M" in lines(figure)


def test_a_rise_that_can_be_seen_whole_is_shown_whole(tmp_path: Path) -> None:
    """Pendulum: from -1400 to -150. The beginning takes most of the axis, and the end is seen."""
    returns = [-1_400.0, -1_300.0, -900.0, -400.0, -160.0, -150.0, -145.0, -150.0, -148.0]
    reports = [{"step": step, "return": value} for step, value in enumerate(returns, 1)]
    figure = plot_curves(write_run(tmp_path / "a", reports, env="Pendulum-v1"))
    assert figure.axes[0].get_ylim()[0] < -1_400 and not edge_marks(figure.axes[0])
    assert not any("below" in label for label in lines(figure))


def test_a_curve_that_is_flat_at_its_end_shows_how_it_got_there(tmp_path: Path) -> None:
    reports = [{"step": step, "return": float(step > 5)} for step in range(1, 21)]
    figure = plot_curves(write_run(tmp_path / "a", reports, env="Elsewhere-v0"))
    assert figure.axes[0].get_ylim()[0] < 0.0 and not edge_marks(figure.axes[0])


def test_several_runs_in_one_picture_are_marked_in_their_colours_in_places_of_their_own(
    tmp_path: Path,
) -> None:
    for name, level, seed in (("a", -13.0, 0), ("b", -13.0, 1), ("c", -17.0, 0), ("d", -17.0, 1)):
        algorithm = "q_learning" if level == -13.0 else "sarsa"
        reports = falling_off(level, deep=-50_000.0 - 10 * seed)
        write_run(tmp_path / name, reports, algorithm=algorithm, seed=seed, env="CliffWalking-v1")
    figure = plot_curves([tmp_path / name for name in "abcd"])
    axes, shown = figure.axes[0], lines(figure)
    first, second = edge_marks(axes)
    assert axes.get_ylim()[0] > -100
    assert [first.get_color(), second.get_color()] == [
        shown[name].get_color() for name in ("q_learning", "sarsa")
    ]
    assert not set(first.get_xdata()) & set(second.get_xdata())
    assert "below the axis, down to −50k" in shown


def test_a_run_that_never_learns_does_not_flatten_one_that_does(tmp_path: Path) -> None:
    lost = [{"step": 100 * number, "return": -70_000.0 - number} for number in range(1, 11)]
    write_run(tmp_path / "lost", lost, algorithm="sarsa", env="CliffWalking-v1")
    write_run(tmp_path / "found", falling_off(-13.0), env="CliffWalking-v1")
    for order in (["lost", "found"], ["found", "lost"]):
        figure = plot_curves([tmp_path / name for name in order])
        assert figure.axes[0].get_ylim()[0] > -100
        marks = edge_marks(figure.axes[0])
        assert len(marks) == 2 and max(mark.get_xdata().max() for mark in marks) < 1_000
        assert "below the axis, down to −70k" in lines(figure)
    alone = plot_curves(tmp_path / "lost").axes[0]
    assert alone.get_ylim()[0] < -70_000 and not edge_marks(alone)


def test_one_bad_report_at_the_end_does_not_set_the_height() -> None:
    """Of the last 20 reports one is 10 000, beyond nine tenths of them, which lie from 0 to 1: the
    height is that, and as much again on either side."""
    returns = np.array([-1e6] * 40 + [0.0, 1.0] * 9 + [1.0, 1e4])
    curve = DrawnCurve(np.arange(60.0), returns, returns, returns, (0.0, 0.0, 0.0))
    assert learning_range([curve]) == (-1.0, 2.0)


def test_two_runs_that_differ_by_what_can_be_seen_share_an_axis(tmp_path: Path) -> None:
    for name, level in (("ppo", 3.0), ("dqn", -28.0)):
        reports = [{"step": step, "return": level} for step in (1, 2, 3)]
        write_run(tmp_path / name, reports, algorithm=name)
    low, high = plot_curves([tmp_path / "ppo", tmp_path / "dqn"]).axes[0].get_ylim()
    assert low < -28 and high > 3


def test_runs_whose_budget_counts_episodes_are_drawn_over_episodes(tmp_path: Path) -> None:
    """Episodes of one run take 10 steps, of the other 20: over steps, the mean of the two would end
    where the shorter one does."""
    for seed, length in ((0, 10), (1, 20)):
        reports = [
            {"step": length * count, "episodes": count, "return": float(count), "value_error": 4.0}
            for count in (5, 10, 15, 20)
        ]
        write_run(tmp_path / str(seed), reports, seed=seed, episodes=20, algorithm="q_learning")
    figure = plot_curves([tmp_path / "0", tmp_path / "1"])
    assert {axes.get_xlabel() for axes in figure.axes} == {"episodes"}
    (label,) = (label for label in lines(figure) if label.startswith("q_learning"))
    assert_near(lines(figure)[label].get_xdata()[[0, -1]], [5.0, 20.0], terms=4)
    assert_near(lines(figure)[label].get_ydata()[[0, -1]], [5.0, 20.0], terms=4)
    # beside a run whose budget is of steps, both are drawn over steps
    write_run(tmp_path / "ppo", rising(0), steps=300)
    both = plot_curves([tmp_path / "0", tmp_path / "ppo"])
    assert both.axes[0].get_xlabel() == "environment steps"
    assert lines(both)["q_learning"].get_xdata().tolist() == [50, 100, 150, 200]


# Panels and ticks


def errors_of(values: list[float], name: str = "value_error") -> list[dict[str, Any]]:
    return [
        {"step": 100 * number, "return": 1.0, name: value} for number, value in enumerate(values, 1)
    ]


def test_a_panel_without_a_curve_is_not_drawn(tmp_path: Path) -> None:
    """Judged runs beside ones that were not: the second column has one panel and no hole; runs
    that were judged at no steps in common have none either."""
    judged = write_run(tmp_path / "a", errors_of([3.0, 2.0, 1.0]))
    other = write_run(tmp_path / "b", rising(0), env_kwargs={"rewards": "shaped"})
    figure = plot_curves([judged, other])
    assert len(figure.axes) == 3 and all(axes.get_visible() and axes.lines for axes in figure.axes)
    late = [report | {"step": report["step"] + 300} for report in errors_of([3.0, 2.0, 1.0])]
    apart = write_run(tmp_path / "c", [*rising(0), *late], seed=1)
    assert len(plot_curves([judged, apart]).axes) == 1


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.05, 200.0, [0.1, 1.0, 10.0, 100.0]),
        (0.12, 0.85, [0.2, 0.4, 0.6, 0.8]),
        (2.0, 4.0, [2.0, 3.0, 4.0]),
        (1e-9, 1e6, [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6]),
    ],
)
def test_a_logarithmic_axis_is_labelled_at_round_numbers(
    low: float, high: float, ticks: list[float]
) -> None:
    found = log_ticks(low, high)
    assert set(ticks) <= set(found) and 3 <= len(found) <= 6


@given(st.floats(1e-8, 1e8), st.floats(1.0001, 1e9))
def test_a_logarithmic_axis_has_at_least_two_labels_within_it(low: float, ratio: float) -> None:
    found = log_ticks(low, low * ratio)
    assert 2 <= len(found) <= 9 and found == sorted(found)
    assert all(low <= tick <= low * ratio for tick in found)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("values", [[0.42, 0.41, 0.4], [3.1, 2.4, 2.2], [900.0, 0.04, 0.02]])
def test_every_panel_has_labels_on_its_axis_however_little_it_spans(
    tmp_path: Path, values: list[float]
) -> None:
    figure = plot_curves(write_run(tmp_path / "a", errors_of(values)), tmp_path / "a.png")
    axis, (low, high) = figure.axes[1].yaxis, figure.axes[1].get_ylim()
    labels = [
        label.get_text()
        for tick, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        if low <= tick <= high
    ]
    assert figure.axes[1].get_yscale() == "log"
    assert len(labels) >= 3 and all(labels) and len(set(labels)) == len(labels)


def test_a_regret_that_is_0_throughout_has_a_straight_axis(tmp_path: Path) -> None:
    reports = errors_of([0.0, 0.0, 0.0], "policy_regret")
    axes = plot_curves(write_run(tmp_path / "a", reports)).axes[1]
    assert (axes.get_yscale(), axes.get_ylim()) == ("linear", (0.0, 1.0))


@pytest.mark.parametrize(
    ("values", "scale"), [([5.0, 1.0, 0.0], "linear"), ([50.0, 1.0, 0.0], "symlog")]
)
def test_errors_of_one_size_that_end_at_0_have_a_straight_axis(
    tmp_path: Path, values: list[float], scale: str
) -> None:
    assert plot_curves(write_run(tmp_path / "a", errors_of(values))).axes[1].get_yscale() == scale


def test_a_search_keeps_no_values_for_a_map(tmp_path: Path) -> None:
    found = {
        name: has_map(read_curve(write_run(tmp_path / name, rising(0), algorithm=name)))
        for name in ("ppo", "mcts")
    }
    assert found == {"ppo": True, "mcts": False}
    assert not has_map(read_curve(write_run(tmp_path / "pole", rising(0), env="CartPole-v1")))


# The optimum


@pytest.mark.parametrize(
    ("env", "kwargs", "optimum"),
    [
        ("rlbook/Maze-v0", {}, 7 * -1 + 10),
        ("rlbook/Maze-v0", {"rewards": "shaped"}, 8 * -0.1 + 10),
        ("rlbook/Maze-v0", {"layout": "S..G"}, 2 * -1 + 10),
        ("rlbook/Maze-v0", {"max_episode_steps": 5}, 5 * -1),  # the goal is 8 steps away
        ("FrozenLake-v1", {"is_slippery": False}, 1.0),
        ("CliffWalking-v1", {}, -13.0),  # up, eleven to the right, down
    ],
)
def test_the_optimum_follows_from_the_model_and_the_time_limit(
    env: str, kwargs: dict[str, Any], optimum: float
) -> None:
    rewards_in_all = 20
    assert optimal_return(EnvRecipe(env, kwargs)) == near(optimum, terms=100, size=rewards_in_all)


def test_an_environment_without_a_model_has_no_known_optimum() -> None:
    assert optimal_return(EnvRecipe("CartPole-v1")) is None


def test_a_policys_return_within_the_time_limit_counts_every_step() -> None:
    model = EnvRecipe("rlbook/Maze-v0", {"layout": "S.G"}).make().unwrapped.model()  # type: ignore[attr-defined]
    left, right = np.full(3, 2), np.full(3, 3)
    # bumps; a step, then bumps
    assert_near(horizon_values(model, 4, left), [4 * -5, -1 + 3 * -5, 0], terms=4, size=20)
    assert_near(horizon_values(model, 4, right), [-1 + 10, 10, 0], terms=4, size=20)


def test_a_legend_of_long_labels_stays_within_the_figure(tmp_path: Path) -> None:
    """Two of them side by side would be wider than the picture."""
    runs = []
    for baseline in ("none", "learned", "leave-one-out"):
        settings = {"algorithm": "reinforce", "hyperparameters": {"baseline": baseline}}
        runs += [
            write_run(tmp_path / f"{baseline}-{seed}", rising(1.0), seed=seed, **settings)
            for seed in (0, 1)
        ]
    figure = plot_curves(runs)
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert all("baseline" in text.get_text() for text in legend.get_texts()[:3])
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


# Smoothing


def test_a_moving_mean_is_of_as_many_as_there_are_and_then_of_the_last_eight() -> None:
    values = np.arange(12.0)
    found = moving_mean(values, 8)
    assert found[:3].tolist() == [0.0, 0.5, 1.0]  # of one, two and three
    assert_near(found[7:], [3.5, 4.5, 5.5, 6.5, 7.5], terms=12, size=66.0)  # (0 + … + 7) / 8
    np.testing.assert_array_equal(moving_mean(values, 1), values)


def test_a_smoothed_curve_stands_before_the_one_that_was_logged(tmp_path: Path) -> None:
    reports = [{"step": step, "return": float(step % 2)} for step in range(1, 41)]
    folder = write_run(tmp_path / "run", reports)
    plain, figure = plot_curves(folder), plot_curves(folder, smooth=8)
    (label,) = (name for name in lines(figure) if name.startswith("ppo"))
    assert label == "ppo, mean of 8 reports"
    assert_near(lines(figure)[label].get_ydata()[8:], [0.5] * 32, terms=40, size=20.0)
    (faint,) = (line for line in figure.axes[0].lines if line.get_alpha() == 0.3)
    assert faint.get_ydata().tolist() == [report["return"] for report in reports]
    assert figure.axes[0].get_ylim() == plain.axes[0].get_ylim()  # nothing is cut off
    assert not [line for line in plain.axes[0].lines if line.get_alpha() == 0.3]
    with pytest.raises(RequestError, match="smooth must be a number of reports, at least 1, got 0"):
        plot_curves(folder, smooth=0)


def test_a_token_runs_rewards_are_smoothed_too(tmp_path: Path) -> None:
    reports = [
        {"step": step, "return": 1.0, "reward/correct": float(step % 2), "entropy": 1.0}
        for step in range(1, 21)
    ]
    folder = write_run(tmp_path / "run", reports, env="rlbook/Addition-v0")
    figure = plot_curves(folder, smooth=2)
    panels = [
        axes for axes in figure.axes[1:] if any(line.get_alpha() == 0.3 for line in axes.lines)
    ]
    assert len(panels) == len(figure.axes) - 1 >= 2
    rewards = [line for axes in panels for line in axes.lines if "correct" in str(line.get_label())]
    assert rewards and rewards[0].get_ydata()[1:].tolist() == [0.5] * 19


def test_the_command_smooths_and_says_where_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_run(tmp_path / "run", rising(0)))
    out = tmp_path / "curve.svg"
    assert main(["plot", folder, "--smooth", "2", "--out", str(out)]) == 0
    assert "ppo, mean of 2 reports" in out.read_text()
    assert main(["plot", folder, "--smooth", "2", "--values"]) == 2
    assert "--smooth is for curves" in capsys.readouterr().err
    for seed in (0, 1):
        (tmp_path / "seeds").mkdir(exist_ok=True)
        write_run(tmp_path / "seeds" / f"seed-{seed}", rising(0), seed=seed)
    assert main(["plot", str(tmp_path / "seeds"), "--values"]) == 2
    assert "--values draws one run, got 2 folders" in capsys.readouterr().err
