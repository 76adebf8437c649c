"""Measures every number that the site and the README state, by the commands they state beside it, and writes docs/results.json.

    python docs/measure.py                   everything: about half an hour on two cores
    python docs/measure.py ppo_maze grpo     only what begins so; the rest stays as it was
    python docs/measure.py figure            the book's figures, into docs/figures; figure_6 draws those of chapter 6

The README's table is written anew from the results.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RLBOOK = [sys.executable, "-m", "rlbook"]
PATH = HERE / "results.json"


@dataclass(frozen=True)
class Training:
    """`rlbook train` with one seed, and `rlbook evaluate` on what came of it."""

    returns: list[float]                     # of the greedy evaluation episodes, in reward units
    seconds: float                           # of training, evaluations on the way included
    facts: dict[str, Any]                    # what `rlbook train --json` printed
    logged: dict[str, float]                 # the last value of each number in metrics.jsonl
    sampled: list[float]                     # returns with `rlbook evaluate --explore`; empty where that is not asked for

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def sampled_mean(self) -> float:
        return statistics.fmean(self.sampled)


@dataclass(frozen=True)
class Measurement:
    """What is measured: `train ARGUMENTS` for some seeds, each judged by `evaluate FOLDER EVALUATE`, told in one phrase.

    With `sampled`, each is judged a second time, exploring: a language model then samples.
    """

    what: str
    arguments: str
    tell: Callable[[list[Training]], str]
    seeds: int = 1
    evaluate: str = "--episodes 20"
    sampled: bool = False

    def commands(self) -> list[str]:
        """As the pages show them."""
        folder = f"runs/{self.arguments.split()[0]}"
        seed = "" if self.seeds == 1 else " --seed 0"
        more = [] if self.seeds == 1 else [f"the same with --seed 1 … {self.seeds - 1}" if self.seeds > 2 else "the same with --seed 1"]
        judges = [f"rlbook evaluate {folder} {self.evaluate}{how}" for how in ("", " --explore")[: 1 + self.sampled]]
        return [f"rlbook train {self.arguments}{seed} --out {folder}", *judges, *more]

    def run(self) -> dict[str, Any]:
        """Runs the commands."""
        with tempfile.TemporaryDirectory() as folder:
            runs = [self._train(Path(folder) / str(seed), seed) for seed in range(self.seeds)]
        told = {"what": self.what, "result": self.tell(runs), "commands": self.commands(), "means": [run.mean for run in runs]}
        return told | ({"sampled_means": [run.sampled_mean for run in runs]} if self.sampled else {})

    def _train(self, folder: Path, seed: int) -> Training:
        facts = called("train", *self.arguments.split(), "--seed", str(seed), "--out", str(folder))
        judged = called("evaluate", str(folder), *self.evaluate.split())
        sampled = called("evaluate", str(folder), *self.evaluate.split(), "--explore")["returns"] if self.sampled else []
        return Training(judged["returns"], facts["seconds"], facts, logged(folder), sampled)


def logged(folder: Path) -> dict[str, float]:
    """The last value of each number in a run's metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {name: value for line in lines for name, value in json.loads(line).items() if value is not None}


def called(*words: str) -> dict[str, Any]:
    """What `rlbook WORDS --json` prints."""
    done = subprocess.run([*RLBOOK, *words, "--json"], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise SystemExit(f"{done.stderr}\nrlbook {' '.join(words)} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


# Telling


def optimal(best: float) -> Callable[[list[Training]], str]:
    """How many seeds earn the optimal return in every episode."""

    def tell(runs: list[Training]) -> str:
        good = sum(all(abs(value - best) < 1e-4 for value in run.returns) for run in runs)
        return f"optimal return {best:g} from {good} of {len(runs)} seeds; {seconds(runs)} of training"

    return tell


def mean_return(runs: list[Training]) -> str:
    """The median over seeds of the mean return."""
    if len(runs) == 1:
        return f"mean return {runs[0].mean:.4g}; {seconds(runs)} of training"
    each = ", ".join(f"{run.mean:.4g}" for run in runs)
    return f"mean return {statistics.median(run.mean for run in runs):.4g}, the median of {each}; {seconds(runs)} of training"


def exact_match(runs: list[Training]) -> str:
    """The held-out exact match, greedy and sampled: mean returns, as percentages."""
    right = f"{_share([run.mean for run in runs])} of the held-out prompts right; sampling {_share([run.sampled_mean for run in runs])}"
    return right if len(runs) == 1 else f"{right}; {seconds(runs)} of training"


def _share(values: list[float]) -> str:
    """The mean over seeds, and the seeds."""
    each = f" (the mean of {', '.join(f'{value:.1%}' for value in values)})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1%}{each}"


def log_ratios(runs: list[Training]) -> str:
    """What DPO has done to the log-probabilities of the better and the worse answers, and to the exact match."""
    better, worse = (statistics.fmean(run.logged[f"{name}_log_ratio"] for run in runs) for name in ("chosen", "rejected"))
    ratios = f"log π - log π_ref of the better answers {better:+.2f} nats, of the worse ones {worse:+.2f}".replace("-", "−")
    return f"{ratios}; {exact_match(runs)}"


def planned(runs: list[Training]) -> str:
    """The sweeps, and the value where episodes begin."""
    last = runs[0].facts["metrics"]
    return f"{runs[0].facts['steps']} sweeps; value of the start {last['value']:.6f}; mean greedy return {runs[0].mean:.4g}"


def seconds(runs: list[Training]) -> str:
    """The median time of a run."""
    return f"{statistics.median(run.seconds for run in runs):.2g} s"


ADDITION = "--episodes 512"
BEFORE = "--steps 1 --eval-every 0"
ROUND = "--steps 4200 --num-envs 1024 --epochs 20 --learning-rate 3e-4 --eval-every 0"

MEASUREMENTS = {
    "value_iteration_maze": Measurement("the maze, γ = 0.99", "value_iteration Maze-v0", planned),
    "value_iteration_undiscounted": Measurement("the maze, γ = 1", "value_iteration Maze-v0 --gamma 1", planned),
    "value_iteration_lake": Measurement(
        "FrozenLake-v1 (slippery)", "value_iteration FrozenLake-v1", planned, evaluate="--episodes 10000"
    ),
    "value_iteration_cliff": Measurement("CliffWalking-v1", "value_iteration CliffWalking-v1", planned),
    "value_iteration_taxi": Measurement("Taxi-v4", "value_iteration Taxi-v4", planned, evaluate="--episodes 1000"),
    "q_learning_maze": Measurement("the maze", "q_learning Maze-v0 --episodes 500", optimal(3.0), seeds=10),
    "q_learning_shaped": Measurement(
        "the maze, shaped rewards", "q_learning Maze-v0 --episodes 500 --env.rewards shaped", optimal(9.2), seeds=10
    ),
    "dqn_maze": Measurement("the maze", "dqn Maze-v0", optimal(3.0), seeds=5),
    "dqn_cartpole": Measurement(
        "CartPole-v1, best checkpoint", "dqn CartPole-v1 --steps 50000", mean_return, seeds=3, evaluate="--checkpoint best --episodes 50"
    ),
    "ppo_maze": Measurement("the maze", "ppo Maze-v0", optimal(3.0), seeds=10),
    "ppo_shaped": Measurement("the maze, shaped rewards", "ppo Maze-v0 --env.rewards shaped", optimal(9.2), seeds=10),
    "ppo_cartpole": Measurement("CartPole-v1", "ppo CartPole-v1 --steps 50000", mean_return, seeds=3, evaluate="--episodes 50"),
    "ppo_addition": Measurement("two-digit sums", "ppo Addition-v0", exact_match, seeds=3, evaluate=ADDITION, sampled=True),
    "grpo_maze": Measurement("the maze", "grpo Maze-v0", optimal(3.0), seeds=10),
    "grpo_addition": Measurement("two-digit sums", "grpo Addition-v0", exact_match, seeds=3, evaluate=ADDITION, sampled=True),
    "dpo_maze": Measurement("the maze", "dpo Maze-v0", optimal(3.0), seeds=10),
    "dpo_addition": Measurement("two-digit sums", "dpo Addition-v0", exact_match, seeds=3, evaluate=ADDITION, sampled=True),
    "addition_before": Measurement(
        "two-digit sums, before reinforcement learning", f"grpo Addition-v0 {BEFORE}", exact_match, evaluate=ADDITION, sampled=True
    ),
    "dpo_plain_round": Measurement(
        "one round of pairs, plain DPO", f"dpo Addition-v0 {ROUND} --nll-coef 0", log_ratios, seeds=3, evaluate=ADDITION, sampled=True
    ),
    "dpo_nll_round": Measurement(
        "one round of pairs, with the NLL term", f"dpo Addition-v0 {ROUND} --nll-coef 1", log_ratios, seeds=3, evaluate=ADDITION,
        sampled=True,
    ),
    "dpo_plain": Measurement(
        "fresh pairs all the time, plain DPO", "dpo Addition-v0 --nll-coef 0", log_ratios, seeds=3, evaluate=ADDITION, sampled=True
    ),
}


def machine() -> str:
    """The machine and the versions, in words."""
    import torch

    import rlbook

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {"Python": platform.python_version(), "torch": torch.__version__, "rlbook": rlbook.__version__}
    return f"{cores} cores ({platform.machine()}), " + ", ".join(f"{name} {version}" for name, version in versions.items())


def write_readme(known: dict[str, Any]) -> None:
    """Puts the results between the README's two marks."""
    path = HERE.parent / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(with_results(text, known), encoding="utf-8")


def with_results(text: str, known: dict[str, Any]) -> str:
    """The README's text with the table made anew."""
    rows = ["| algorithm | where | result | command |", "|---|---|---|---|"]
    for name, item in known.items():
        if name in README:
            algorithm = "none yet" if name == "addition_before" else f"`{item['commands'][0].split()[2]}`"
            commands = "<br>".join(f"`{command}`" for command in item["commands"] if command.startswith("rlbook"))
            rows.append(f"| {algorithm} | {item['what']} | {item['result']} | {commands} |")
    between = "\n" + "\n".join(rows) + "\n"
    return re.sub(r"(<!-- results -->).*?(<!-- end of results -->)", lambda m: m[1] + between + m[2], text, flags=re.DOTALL)


README = (
    "value_iteration_maze", "q_learning_maze", "dqn_maze", "dqn_cartpole", "ppo_maze", "ppo_cartpole", "ppo_addition", "grpo_maze",
    "grpo_addition", "dpo_maze", "dpo_addition", "addition_before",
)  # fmt: skip


def measure_figures(wanted: list[str]) -> None:
    """Draws the book's figures by `rlbook figure`, and keeps what was measured beside them."""
    from rlbook.figures import FIGURES

    path = HERE / "figures" / "figures.json"
    known = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    for number in FIGURES:
        if wanted and not any(f"figure_{number}".startswith(beginning) for beginning in wanted):
            continue
        print(f"figure {number}", file=sys.stderr)
        picture = path.with_name(f"figure-{number}.png")
        known[number] = called("figure", number, "--out", str(picture)) | {"written": picture.name}
        shrink(picture)
        known = {name: known[name] for name in FIGURES if name in known}
        path.write_text(json.dumps({"machine": machine(), "figures": known}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def shrink(picture: Path) -> None:
    """Rewrites a PNG with at most 96 colours, which takes a third of the room."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(96, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def main(wanted: list[str]) -> None:
    """Measures, and writes after each measurement."""
    measure_figures(wanted)
    known = json.loads(PATH.read_text(encoding="utf-8"))["measurements"] if PATH.exists() else {}
    for name, measurement in MEASUREMENTS.items():
        if wanted and not any(name.startswith(beginning) for beginning in wanted):
            continue
        print(name, file=sys.stderr)
        known[name] = measurement.run()
        print(f"{name}: {known[name]['result']}")
        known = {name: known[name] for name in MEASUREMENTS if name in known}
        PATH.write_text(json.dumps({"machine": machine(), "measurements": known}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_readme(known)


if __name__ == "__main__":
    main(sys.argv[1:])
