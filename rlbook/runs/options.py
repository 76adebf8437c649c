"""The options of a run: the arguments of `rlbook.train` and `rlbook train` besides
hyper-parameters. One field here is one option everywhere."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from rlbook.checks import check, did_you_mean, optional, whole_number
from rlbook.errors import RequestError, request_errors
from rlbook.networks.model_spec import DEVICE

AtLeast0 = int | None
AtLeast1 = int | None
Return = float | None
Switch = bool | None
Folder = Any
"""A path as text or Path, or the object that would be loaded from it."""

LEAST = {"AtLeast0": 0, "AtLeast1": 1}
MOST = {
    "num_envs": 2**20,
    "eval_episodes": 10_000_000,
    "seed": None,
    "workers": 1_024,
    "inspect": 1_024,
    "frame_stack": 64,
    "resize": 1_024,
    "max_and_skip": 64,
    "noop_starts": 1_000,
    "seeds": 10_000,
    "jobs": 1_024,
}
"""The upper limit of the other options: 64-bit integers."""
UNWRITTEN = ("workers", "inspect")
"""Options on which nothing in a run depends: they are not in config.yaml, and a run may be resumed
with others."""
BONUSES = ("count", "rnd")
"""The possible values of `exploration_bonus`."""
BUDGETS = ("steps", "episodes", "passes")
"""Options that set the training budget."""
SAMPLER_URL = re.compile(r"https?://[^\s/@]+(/\S*)?")


@dataclass(frozen=True)
class RunOptions:
    """Training budget, seed, evaluation, data and models of a run. None leaves an option to the
    preset of this algorithm on this environment."""

    # environment steps to train for (planners: sweeps; recorded data: minibatches)
    steps: AtLeast1 = None
    episodes: AtLeast1 = None  # finished episodes to train for
    passes: AtLeast1 = None  # passes over recorded data to train for
    # seeds every source of randomness: the same seed gives the same bytes (default: 0)
    seed: AtLeast0 = None
    # number of parallel environments, for algorithms that support several
    num_envs: AtLeast1 = None
    # steps between greedy evaluations; 0 disables them (default: ten per run)
    eval_every: AtLeast0 = None
    eval_episodes: AtLeast1 = None  # episodes per evaluation (default: 20)
    # stop training at the first evaluation whose mean return is at least this
    stop_at_return: Return = None
    # processes that step the environments, useful if they are slow; the results do not depend on it
    # (default: 1)
    workers: AtLeast1 = None
    # number of held-out starts on which to record the policy at each report, for `rlbook inspect`
    inspect: AtLeast1 = None
    # data set to learn from: a Minari folder, JSON Lines, CSV, Parquet, or a Hugging Face datasets
    # folder
    data: Folder = None
    expert: Folder = None  # run to learn from as the expert (default: the exact optimum, if known)
    teacher: Folder = None  # run or local Hugging Face model whose probabilities are learned
    # run or local Hugging Face model to use as the reference policy of a KL penalty or of DPO
    # (default: the initial policy)
    reference: Folder = None
    start: Folder = None  # run whose policy initialises the agent's, such as an sft run
    # run of a reward model whose reward replaces the environment's in training; evaluation keeps
    # the true reward
    reward_model: Folder = None
    # λ: the reward of an ensemble of reward models is its mean minus λ times its standard deviation
    # (default: 0)
    reward_caution: Return = None
    # reward added in training for rarely taken steps: count (β / √n for an action taken n times in
    # its state) or rnd (random network distillation, for states that are never seen twice)
    exploration_bonus: str | None = None
    # β, size of the exploration bonus, in reward units (default: 0.1)
    bonus_coef: Return = None
    # local Hugging Face model to initialise the networks from; in Python a ModelSpec, whose fields
    # are --model.KEY VALUE here
    model: Folder = None
    # device of the networks: cpu, cuda, cuda:1 (the second GPU) or auto (default: cpu)
    device: str | None = None
    # folder on a fast local disk for the images of a replay buffer, as memory-mapped files that are
    # deleted when the process ends (default: in memory)
    replay_folder: Folder = None
    # URL of a server that samples the completions in training, such as one of `rlbook serve`; it is
    # given the policy's weights before each round, and must run on this machine
    sampler: str | None = None
    # number of most recent observations that the agent sees together (default: 1)
    frame_stack: AtLeast1 = None
    # show images in shades of grey instead of in colour
    grayscale: Switch = None
    # side in pixels to which images are resized, a square (84 in the literature)
    resize: AtLeast1 = None
    # take each action for this many frames, and show the maximum of the last two (default: 1)
    max_and_skip: AtLeast1 = None
    # clip rewards to [-1, 1] in training; reported returns and evaluations are not clipped
    reward_clip: Switch = None
    # Atari: begin each episode with a random number of no-op actions, from 1 to this many
    # (default: 0)
    noop_starts: AtLeast0 = None
    # Atari: in training, treat a lost life as terminal in value estimates; the game goes on
    episodic_life: Switch = None
    # false: treat an entry action_mask of an observation as part of what the agent sees, not as a
    # mask (default: true)
    read_masks: Switch = None

    def __post_init__(self) -> None:
        _check_counts(self)
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool | None):
                raise RequestError(f"{name} must be true or false, got {getattr(self, name)!r}")
        for name in RETURNS:
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _finite_number(name, value))
        if self.exploration_bonus not in (None, *BONUSES):
            raise RequestError(
                f"exploration_bonus must be one of {', '.join(BONUSES)}, got"
                f" {self.exploration_bonus!r}{did_you_mean(self.exploration_bonus, BONUSES)}"
            )
        if self.sampler is not None and not SAMPLER_URL.fullmatch(str(self.sampler)):
            raise RequestError(
                f"sampler must be a URL such as http://127.0.0.1:8000/v1, got {self.sampler!r}"[
                    :200
                ]
            )
        if self.device is not None:  # a torch.device, too
            object.__setattr__(self, "device", str(self.device))
        with request_errors():
            check("device", self.device, optional(DEVICE))

    def explicit_options(self) -> dict[str, Any]:
        """The options that are not None."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        }


@dataclass(frozen=True)
class SeedOptions:
    """How many runs that differ only in their seed, and how many of them at a time. These options
    are not stored with any of the runs."""

    # number of runs to train, with consecutive seeds from --seed on, each in its own folder:
    # OUT/seed-0, OUT/seed-1, …
    seeds: AtLeast1 = None
    # number of --seeds runs to train at a time (default: the number of cores)
    jobs: AtLeast1 = None
    # train --seeds on the Ray cluster at this address, such as auto or 10.0.0.1:6379; its machines
    # must have access to OUT
    cluster: str | None = None

    def __post_init__(self) -> None:
        _check_counts(self)
        if self.jobs is not None and self.seeds is None:
            raise RequestError(f"jobs has no effect without seeds, got {self.jobs}")
        if self.cluster is not None and self.seeds is None:
            raise RequestError(f"cluster has no effect without seeds, got {self.cluster!r}")


def _check_counts(options: RunOptions | SeedOptions) -> None:
    """Converts counts to whole numbers. Raises RequestError if one is not a whole number, or
    outside its range."""
    for item in fields(options):
        value = getattr(options, item.name)
        if value is not None and item.type in LEAST:
            object.__setattr__(
                options,
                item.name,
                whole_number(item.name, value, LEAST[str(item.type)], MOST.get(item.name, 2**62)),
            )


def budgets_of(options: RunOptions) -> dict[str, int]:
    """The budget that options name, by what it counts: "steps", "episodes" or "passes"."""
    return {name: value for name in BUDGETS if (value := getattr(options, name)) is not None}


def _finite_number(name: str, value: object) -> float:
    """The value as a float. Raises RequestError where it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise RequestError(f"{name} must be a finite number, got {value!r}")
    return float(value)


NAMES = tuple(item.name for item in fields(RunOptions))
COUNTS = tuple(item.name for item in fields(RunOptions) if item.type in LEAST)
RETURNS = tuple(item.name for item in fields(RunOptions) if item.type == "Return")
FOLDERS = tuple(item.name for item in fields(RunOptions) if item.type == "Folder")
SWITCHES = tuple(item.name for item in fields(RunOptions) if item.type == "Switch")
PIXELS = (
    "frame_stack",
    "grayscale",
    "resize",
    "max_and_skip",
    "reward_clip",
    "noop_starts",
    "episodic_life",
    "read_masks",
)
"""Options that change what the agent sees of its environment; see
`rlbook.interaction.image_preprocessing`."""


NARROWED = ("top_p", "top_k", "min_p", "repetition_penalty")
"""Token-sampling options of evaluation that change the distribution, whose log-probabilities
training could not recompute."""


def refuse_narrowed(algorithm: str, name: str) -> None:
    """Raises RequestError if `name` is a token-sampling option, which training does not have."""
    if name in NARROWED:
        raise RequestError(
            f"{algorithm} has no hyper-parameter {name!r}: it would train on tokens of a narrowed"
            " distribution with log-probabilities of the whole one, so the ratio of new to old"
            " policy would not be 1; give it to `rlbook evaluate`"
        )
