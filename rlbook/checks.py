"""Validation of values: ranges of hyper-parameters and arguments, names, JSON, and the content of
checkpoints.

    check("batch_size", value, positive_int)

Every refusal is a ValueError of one sentence: the field, what it must be, and what came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import json
import math
import operator
import os
import pkgutil
import re
import resource
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, ParamSpec, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rlbook.errors import (
    IdleSetting,
    ImportRefusedError,
    RequestError,
    WrongArguments,
    WrongValue,
)
from rlbook.functional.schedules import Schedule

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """The kind of values that a field accepts."""

    description: str  # fills "FIELD must be …"
    allows: Callable[[Any], bool]  # True where the value is allowed
    # ends the sentence, such as with the nearest name
    hint: Callable[[Any], str] = lambda value: ""
    # of numbers, the interval that holds all that are allowed
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()  # of names, those that are allowed


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


finite = Kind("a finite number", _number)
positive = Kind("a number above 0", lambda value: _number(value) and value > 0, low=0)
# inf switches a bound off
bound = Kind("a number above 0", lambda value: positive.allows(value) or value == math.inf, low=0)
non_negative = Kind("a number of at least 0", lambda value: _number(value) and value >= 0, low=0)
unit_interval = Kind(
    "a number in [0, 1]", lambda value: _number(value) and 0 <= value <= 1, low=0, high=1
)
positive_fraction = Kind(
    "a number in (0, 1]", lambda value: _number(value) and 0 < value <= 1, low=0, high=1
)
share_below_one = Kind(
    "a number in [0, 1)", lambda value: _number(value) and 0 <= value < 1, low=0, high=1
)
open_unit_interval = Kind(
    "a number in (0, 1)", lambda value: _number(value) and 0 < value < 1, low=0, high=1
)
boolean = Kind("true or false", lambda value: isinstance(value, bool))


def is_count(value: object) -> bool:
    """Whether the value is a count: an int from 0 to the largest 64-bit integer."""
    return type(value) is int and 0 <= value < 2**63


def number_in(low: float, high: float) -> Kind:
    """A number from `low` to `high`, both included."""
    return Kind(
        f"a number in [{low:g}, {high:g}]",
        lambda value: _number(value) and low <= value <= high,
        low=low,
        high=high,
    )


def number_from(low: float) -> Kind:
    """A number that is at least `low`."""
    return Kind(
        f"a number of at least {low:g}", lambda value: _number(value) and value >= low, low=low
    )


def at_least(low: int) -> Kind:
    """An integer that is at least `low`."""
    return Kind(
        f"an integer of at least {low}", lambda value: _integer(value) and value >= low, low=low
    )


positive_int = at_least(1)
non_negative_int = at_least(0)
positive_ints = Kind(
    "a tuple of integers of at least 1",
    lambda value: (
        isinstance(value, tuple | list) and all(positive_int.allows(item) for item in value)
    ),
)


def _pair(value: object) -> TypeGuard[tuple[float, float]]:
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(positive.allows(item) for item in value)
    )


positive_pair = Kind("two numbers above 0", _pair)
rising_pair = Kind(
    "two numbers above 0, the second above the first",
    lambda value: _pair(value) and value[0] < value[1],
)


def one_of(*choices: str) -> Kind:
    """One of the given names."""
    return Kind(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, str) and value in choices,
        lambda value: did_you_mean(getattr(value, "__name__", value), choices, " ({})"),
        choices=choices,
    )


def optional(kind: Kind) -> Kind:
    """None, or a value of the given kind."""
    return dataclasses.replace(
        kind,
        description=f"{kind.description}, or none",
        allows=lambda value: value is None or kind.allows(value),
    )


def check(name: str, value: object, kind: Kind) -> None:
    """Raises ValueError with one sentence unless the value is of this kind."""
    if not kind.allows(value):
        raise WrongValue(f"{name} must be {kind.description}, got {value!r:.200}{kind.hint(value)}")


def value_at(rate: float | Schedule, progress: float) -> float:
    """A number, or the value of a schedule at this point of training."""
    return rate(progress) if isinstance(rate, Schedule) else rate


def four_digits(value: float) -> str:
    """A number with four significant digits, but with all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 9_999.5 and math.isfinite(value) else f"{value:.4g}"


def crosses(period: int, before: int, after: int) -> bool:
    """Whether a multiple of `period` lies in (before, after]."""
    return after // period > before // period


SYNONYMS = {
    "lam": ("trace_decay", "gae_lambda"),
    "lambda": ("trace_decay", "gae_lambda"),
    "lambda_": ("trace_decay", "gae_lambda"),
    "lmbda": ("trace_decay", "gae_lambda"),
    "lr": ("learning_rate", "alpha"),
    "learning_rate": ("alpha",),
    "step_size": ("alpha", "learning_rate"),
    "alpha": ("conservative_coef", "learning_rate", "lora_alpha"),
    "eps": ("epsilon",),
    "discount": ("gamma",),
    "discount_factor": ("gamma",),
    "n_steps": ("n", "rollout_steps"),
    "q_init": ("initial_value",),
    "optimistic": ("initial_value",),
    "optimism": ("initial_value",),
    "tau": ("temperature",),
    "buffer": ("buffer_size",),
    "clip_range": ("clip",),
    "timesteps": ("steps",),
    "n_envs": ("num_envs",),
    "update_epochs": ("epochs",),
    "num_steps": ("rollout_steps",),
    "net_arch": ("hidden_sizes",),
    "post_fcnet_hiddens": ("post_hidden_sizes",),
    "lstm_hidden_size": ("hidden_sizes",),
    "policy_kwargs": ("hidden_sizes",),
    "verbose": ("quiet",),
    "progress_bar": ("quiet",),
    "callback": ("callbacks",),
    "on_step": ("on_report",),
    "save_path": ("out",),
    "best_model_save_path": ("out",),
    "tensorboard_log": ("track",),
    "eval_freq": ("eval_every",),
    "n_eval_episodes": ("eval_episodes", "episodes"),
    "deterministic": ("explore",),
    "action_masks": ("action_mask",),
    "learn": ("train",),
    "fit": ("train",),
    "get_env": ("make_env",),
    "policy": ("agent",),
    "exploration_fraction": ("epsilon",),
    "exploration_initial_eps": ("epsilon",),
    "exploration_final_eps": ("epsilon",),
    "epsilon_decay": ("epsilon",),
    "target_update_interval": ("target_period",),
    "train_freq": ("train_every",),
    "action_noise": ("exploration_noise",),
    "target_policy_noise": ("target_noise",),
    "use_rms_prop": ("optimizer",),
    "activation_fn": ("activation", "model"),
    "features_extractor_class": ("model",),
    "features_extractor_kwargs": ("model",),
    "normalize_advantages": ("normalize_advantage",),
    "ent_coef": ("entropy_coef", "temperature"),
    "vf_coef": ("value_coef",),
    "norm_obs": ("normalize_observation",),
    "normalize": ("normalize_observation",),
    "monitor_dir": ("out",),
    "vec_env_cls": ("workers",),
    "reset_num_timesteps": ("resume",),
    "reward_threshold": ("stop_at_return",),
    "lr_schedule": ("learning_rate",),
    "replay_buffer_class": ("prioritized", "buffer_size"),
    "replay_buffer_kwargs": ("prioritized", "buffer_size"),
    "optimize_memory_usage": ("replay_folder",),
    "save_freq": ("out",),
    "clip_range_vf": ("clip_value",),
    "ortho_init": ("orthogonal_init",),
    "share_features_extractor": ("separate_networks",),
    "optimizer_class": ("optimizer",),
    "n_stack": ("frame_stack",),
    "tb_log_name": ("out",),
    # CleanRL
    "anneal_lr": ("anneal_learning_rate",),
    "clip_vloss": ("clip_value",),
    "train_frequency": ("train_every",),
    "policy_lr": ("learning_rate",),
    "policy_noise": ("target_noise",),
    "save_model": ("out",),
    "wandb_project_name": ("track",),
    "wandb": ("track",),
    "exp_name": ("out",),
    "cuda": ("device",),
    "num_minibatches": ("batch_size",),
    "norm_adv": ("normalize_advantage",),
    "clip_coef": ("clip",),
    "start_e": ("epsilon",),
    "end_e": ("epsilon",),
    "target_network_frequency": ("target_period",),
    "policy_frequency": ("policy_delay",),
    "autotune": ("temperature",),
    "rank": ("r",),
    "dropout": ("lora_dropout",),
    "targets": ("target_modules",),
    # Spinning Up
    "pi_lr": ("learning_rate",),
    "vf_lr": ("learning_rate",),
    "q_lr": ("learning_rate",),
    "steps_per_epoch": ("rollout_steps",),
    "train_pi_iters": ("epochs",),
    "train_v_iters": ("epochs",),
    "ac_kwargs": ("hidden_sizes",),
    "total_steps": ("steps",),
    "max_ep_len": ("env_kwargs",),
    "polyak": ("tau",),
    "replay_size": ("buffer_size",),
    "update_after": ("learning_starts",),
    "start_steps": ("learning_starts",),
    "update_every": ("train_every",),
    "act_noise": ("exploration_noise",),
    "noise_clip": ("target_noise_clip",),
    "logger_kwargs": ("out",),
    "num_test_episodes": ("eval_episodes",),
    "cg_iters": ("cg_iterations",),
    "damping_coeff": ("cg_damping",),
    "backtrack_iters": ("line_search_steps",),
    # Tianshou
    "step_per_collect": ("rollout_steps", "train_every"),
    "repeat_per_collect": ("epochs",),
    "update_per_step": ("gradient_steps",),
    "estimation_step": ("n_step",),
    "target_update_freq": ("target_period",),
    "eps_clip": ("clip",),
    "value_clip": ("clip_value",),
    "reward_normalization": ("normalize_reward",),
    "advantage_normalization": ("normalize_advantage",),
    "training_num": ("num_envs",),
    "test_num": ("eval_episodes",),
    "episode_per_test": ("eval_episodes",),
    "stop_fn": ("stop_at_return",),
    "save_best_fn": ("out",),
    "actor_lr": ("learning_rate",),
    "critic_lr": ("learning_rate",),
    # RLlib
    "clip_param": ("clip",),
    "vf_clip_param": ("clip_value",),
    "vf_loss_coeff": ("value_coef",),
    "kl_coeff": ("kl_coef",),
    "train_batch_size": ("rollout_steps", "batch_size"),
    "rollout_fragment_length": ("rollout_steps",),
    "minibatch_size": ("batch_size",),
    "sgd_minibatch_size": ("batch_size",),
    "num_sgd_iter": ("epochs",),
    "num_epochs": ("epochs", "passes"),
    "num_workers": ("workers",),
    "num_rollout_workers": ("workers",),
    "num_env_runners": ("workers",),
    "num_envs_per_worker": ("num_envs",),
    "num_envs_per_env_runner": ("num_envs",),
    "num_gpus": ("device",),
    "fcnet_hiddens": ("hidden_sizes",),
    "fcnet_activation": ("activation",),
    "observation_filter": ("normalize_observation",),
    "evaluation_interval": ("eval_every",),
    "evaluation_duration": ("eval_episodes",),
    "target_network_update_freq": ("target_period",),
    "double_q": ("double",),
    "env_config": ("env_kwargs",),
    "exploration_config": ("epsilon",),
    "replay_buffer_config": ("buffer_size",),
    "storage_path": ("out",),
    "local_dir": ("out",),
    # scikit-learn
    "max_iter": ("steps",),
    "random_state": ("seed",),
    "n_jobs": ("workers",),
    "hidden_layer_sizes": ("hidden_sizes",),
    "learning_rate_init": ("learning_rate",),
    "solver": ("optimizer",),
    "early_stopping": ("stop_at_return",),
    "warm_start": ("start",),
    "l2_regularization": ("weight_decay",),
    # TRL, transformers, verl and LLaMA-Factory
    "model_name_or_path": ("model",),
    "model_path": ("model",),
    "pretrained": ("model",),
    "dataset": ("data",),
    "dataset_name": ("data",),
    "train_file": ("data",),
    "train_files": ("data",),
    "output_dir": ("out",),
    "num_train_epochs": ("passes",),
    "total_epochs": ("passes",),
    "max_steps": ("steps",),
    "total_timesteps": ("steps",),
    "resume_from_checkpoint": ("resume",),
    "report_to": ("track",),
    "train_dataset": ("data",),
    "ref_model": ("reference",),
    "run_name": ("out",),
    "warmup_ratio": ("warmup_steps",),
    "num_ppo_epochs": ("epochs",),
    "whiten_rewards": ("whiten_reward",),
    "rpo_alpha": ("nll_coef",),
    "mask_truncated_completions": ("mask_truncated",),
    "fp16": ("model.compute",),
    "peft_config": ("model.adapter.r", "model"),
    "use_vllm": ("sampler",),
    "vllm_mode": ("sampler",),
    "vllm_server_base_url": ("sampler",),
    "center_rewards_coefficient": ("center_coef",),
    "response_length": ("max_new_tokens", "env.max_new_tokens"),
    "eval_steps": ("eval_every",),
    "per_device_train_batch_size": ("batch_size",),
    "mini_batch_size": ("batch_size",),
    "ppo_mini_batch_size": ("batch_size",),
    "gradient_accumulation_steps": ("micro_batch_size",),
    "lr_scheduler_type": ("learning_rate",),
    "grad_clip": ("max_grad_norm",),
    "loss_type": ("preference_loss", "average"),
    "loss_agg_mode": ("average",),
    "undesirable_weight": ("good_weight",),
    "desirable_weight": ("good_weight",),
    "beta": ("kl_coef", "inverse_temperature", "importance_exponent"),
    "init_kl_coef": ("kl_coef",),
    "kl_loss_coef": ("kl_coef",),
    "kl_loss_type": ("kl_estimator",),
    "entropy_coeff": ("entropy_coef",),
    "num_generations": ("group_size",),
    "rollout_n": ("group_size",),
    "num_iterations": ("epochs",),
    "ppo_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "scale_rewards": ("scale",),
    "adv_estimator": ("baseline",),
    "cliprange": ("clip",),
    "clip_ratio": ("clip",),
    "clip_ratio_low": ("clip",),
    "clip_ratio_high": ("clip_high",),
    "clip_ratio_c": ("dual_clip",),
    "delta": ("dual_clip",),
    "epsilon_high": ("clip_high",),
    "cliprange_value": ("clip_value",),
    "use_peft": ("model.adapter.r",),
    "lora_r": ("r", "model.adapter.r"),
    "lora_rank": ("r", "model.adapter.r"),
    "lora_alpha": ("lora_alpha", "model.adapter.lora_alpha"),
    "lora_dropout": ("lora_dropout", "model.adapter.lora_dropout"),
    "lora_target": ("target_modules", "model.adapter.target_modules"),
    "lora_target_modules": ("target_modules", "model.adapter.target_modules"),
    "target_modules": ("target_modules", "model.adapter.target_modules"),
    "load_in_4bit": ("model.dtype",),
    "gradient_checkpointing": ("model.gradient_checkpointing",),
    "bf16": ("model.compute",),
    "max_new_tokens": ("max_new_tokens", "env.max_new_tokens"),
    "max_tokens": ("max_new_tokens", "env.max_new_tokens"),
    "max_completion_length": ("max_new_tokens", "env.max_new_tokens"),
    "max_response_length": ("max_new_tokens", "env.max_new_tokens"),
    "max_prompt_length": ("max_prompt_tokens", "env.max_prompt_tokens"),
    "max_length": ("max_prompt_tokens", "env.max_prompt_tokens"),
    "max_seq_length": ("max_prompt_tokens", "env.max_prompt_tokens"),
    "cutoff_len": ("max_prompt_tokens", "env.max_prompt_tokens"),
    "chat_template": ("template", "env.template"),
    "chat_template_path": ("template", "env.template"),
    "reward_funcs": ("reward", "env.reward"),
    "reward_function": ("reward", "env.reward"),
}
"""Other books' and libraries' name of a hyper-parameter → its possible names here."""
WORDS = {
    "swish": ("silu",),
    "leakyrelu": ("leaky_relu",),
    "env": ("envs",),
    "environments": ("envs",),
    "enjoy": ("watch",),
    "render": ("watch",),
    "test": ("evaluate",),
    "predict": ("evaluate",),
}
"""The same for a hyper-parameter's values, commands and listed items."""


_VERSION = re.compile(r"-v\d+$")


def synonyms(name: object) -> tuple[str, ...]:
    """The names here that may be meant by another book's or library's name of a hyper-parameter, an
    option or a value."""
    return (SYNONYMS | WORDS).get(_python_name(name), ())


def _python_name(name: object) -> str:
    """A name in Python's form, even if it was typed as an option."""
    return str(name).lower().strip("-").replace("-", "_")


def nearest_name(name: object, allowed: Iterable[str]) -> str | None:
    """The allowed name most similar to the given one, or None if none is similar. The version of an
    environment's id, such as -v0, makes nothing similar."""
    by_lower = {choice.lower(): choice for choice in allowed}
    plain = {choice.strip("-").replace("-", "_"): choice for choice in by_lower}
    for synonym in synonyms(name):
        if synonym in plain:
            return by_lower[plain[synonym]]
    by_stem = {_VERSION.sub("", lower): choice for lower, choice in by_lower.items()}
    stem = _VERSION.sub("", str(name).lower())
    matches = difflib.get_close_matches(stem, list(by_stem), n=3, cutoff=0.6)
    if not matches:
        theirs = difflib.get_close_matches(_python_name(stem), SYNONYMS, 1, SLIP)
        meant = (plain[ours] for their in theirs for ours in SYNONYMS[their] if ours in plain)
        return next((by_lower[choice] for choice in meant), None)
    return by_stem[max(matches, key=lambda match: _similarity(stem, match))]


def _similarity(name: str, other: str) -> tuple[float, int]:
    """Larger for names that are more alike; among equals, for one of the same length: `dqn` is
    closer to `dnq` than `dyna_q` is."""
    ratio = difflib.SequenceMatcher(None, other, name).ratio()
    return ratio, -abs(len(name) - len(other))


def did_you_mean(name: object, allowed: Iterable[str], form: str = "; {}") -> str:
    """The ending of an error message about an unknown `name`, such as "; did you mean 'gamma'?":
    the most similar name, or else the names that contain it as a word or are contained in it; "" if
    there is none."""
    allowed = list(allowed)
    match, words = nearest_name(name, allowed), _words(name)
    related = [choice for choice in allowed if words <= _words(choice) or _words(choice) <= words]
    found = [match] if match else related[:MOST_RELATED]
    return form.format(f"did you mean {' or '.join(map(repr, found))}?") if found else ""


def name_hint(name: str, hints: Mapping[str, str], valid_names: Iterable[str]) -> str:
    """As `did_you_mean`, but some names have a sentence of their own in `hints`: that of the given
    name, or of the name that it seems a misspelling of."""
    valid_names, typed = list(valid_names), _python_name(name)
    keys = {key.lower(): key for key in hints}
    found = [typed] if typed in keys else []
    if not found and not synonyms(name):
        found = difflib.get_close_matches(typed, keys, 1, SLIP)
    for key in found:
        likeness = _similarity(typed, key)
        if key == typed or all(
            _similarity(typed, _python_name(one)) < likeness for one in valid_names
        ):
            return f"; {hints[keys[key]]}"
    return did_you_mean(name, valid_names)


SLIP = 0.8
"""The similarity, from 0 to 1, from which a name counts as a misspelling of another library's."""


MOST_RELATED = 3  # names in a message


def _words(name: object) -> set[str]:
    return {*_python_name(name).split("_")}


MOST_LISTED = 12
"""The number of names that a message lists in full."""


def names_or_help(names: Iterable[str], shown_by: str) -> str:
    """Ends the message about an unknown name: with the known names or, if there are many, with the
    command that lists them."""
    names = list(names)
    few = len(names) <= MOST_LISTED
    return f" (it has: {', '.join(names)})" if few else f" ({shown_by} shows all)"


def check_idle(config: object, name: str, reason: str, hint: str = "leave it out") -> None:
    """Raises IdleSetting if a hyper-parameter is set that nothing reads, for a reason such as
    "without kl_coef"; the message ends with the hint."""
    if getattr(config, name) != getattr(type(config), name):
        raise IdleSetting(name, reason, hint)


def check_buffer_size(buffer_size: int, num_envs: int) -> None:
    """Raises ValueError if a replay buffer cannot hold one step of all environments."""
    if num_envs > buffer_size:
        raise ValueError(f"buffer_size must be at least num_envs {num_envs}, got {buffer_size}")


def check_memory(name: str, count: int, size: int, hint: str = "") -> None:
    """Raises ValueError if `count` items of `size` bytes exceed the machine's memory; nothing is
    allocated. The message ends with the hint."""
    has = machine_memory()
    if count * size > has:
        raise ValueError(
            f"{name} {count:,} needs {count * size / 1e9:,.0f} GB of memory, and this process can"
            f" have {has / 1e9:,.0f}{hint}"
        )


def machine_memory() -> int:
    """Bytes of memory that this process can have: the machine's, those of the container that it
    runs in, or those that `ulimit -v` leaves it."""
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        has = min(has, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return has if limit == resource.RLIM_INFINITY else min(has, limit)


def check_disk(name: str, count: int, size: int, folder: Path) -> None:
    """Raises ValueError if `count` items of `size` bytes exceed the free space on a folder's disk;
    nothing is written."""
    free = shutil.disk_usage(folder).free
    if count * size > free:
        raise ValueError(
            f"{name} {count:,} needs {count * size / 1e9:,.0f} GB on the disk of {folder}, where"
            f" {free / 1e9:,.0f} are free"
        )


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """The value as an int, also where it is a float such as 1e6. Raises RequestError if it is not a
    whole number or out of range."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise RequestError(f"{name} must be an integer of at least {least}, got {value!r}")
    if most is not None and int(value) > most:
        raise RequestError(f"{name} must be an integer of at most {most:,}, got {int(value):,}")
    return int(value)


ENDLESS = 2**62
"""A count that is never reached."""


# ---- JSON that says one thing


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shorten(twice)} occurs twice")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{shorten(digits)} is beyond the largest number")
    return number


STRICT_JSON = json.JSONDecoder(
    object_pairs_hook=_unique_names,
    parse_constant=_refuse_constant,
    parse_float=_parse_finite_float,
)
"""A JSON decoder that raises ValueError where Python's own does not: for a name twice in one
object, NaN, 1e400."""


def parse_json(text: str | bytes) -> Any:
    """Parses a JSON text; bytes are decoded as UTF-8. Raises ValueError as `STRICT_JSON` does."""
    return STRICT_JSON.decode(text.decode("utf-8-sig") if isinstance(text, bytes) else text)


# ---- what a checkpoint says: ValueError with one sentence where it cannot be


def saved_count(name: str, value: object) -> int:
    """A saved count, at least 0."""
    if not _integer(value) or not 0 <= value < ENDLESS:
        raise ValueError(f"the saved {name} must be an integer of at least 0, got {shorten(value)}")
    return int(value)


def saved_number(name: str, value: object) -> float:
    """A saved finite number."""
    if not _number(value):
        raise ValueError(f"the saved {name} must be a finite number, got {shorten(value)}")
    return float(value)


def saved_array(
    name: str,
    value: object,
    dtype: DTypeLike,
    shape: tuple[int, ...] | None = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> np.ndarray:
    """A copy of a saved array, which must have this dtype, shape (None: any length [K]) and range
    [low, high); floats must be finite."""
    found = np.asarray(value)
    if found.dtype != np.dtype(dtype):
        raise ValueError(f"the saved {name} must have type {np.dtype(dtype)}, got {found.dtype}")
    if found.shape != shape if shape is not None else found.ndim != 1:
        wanted = "one dimension" if shape is None else f"shape {list(shape)}"
        raise ValueError(f"the saved {name} must have {wanted}, got shape {list(found.shape)}")
    if found.size and found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(
            f"the saved {name} must be finite, got {found[~np.isfinite(found)].flat[0]}"
        )
    if found.size and found.dtype.kind != "b" and not (found.min() >= low and found.max() < high):
        wrong = found.min() if found.min() < low else found.max()
        raise ValueError(f"the saved {name} must be in [{low:g}, {high:g}), got {wrong}")
    return found.copy()


def shorten(value: object) -> str:
    """A value as a message shows it, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


TRUST = "give --allow-import (allow_import=True) if you trust it"


def import_object(what: str, place: str, *, allow_import: bool, name: str | None = None) -> object:
    """The object that "module:name" names.

    Args:
        what: what it is to be, for a message, such as "algorithm".
        place: "module:name"; the name may have dots.
        allow_import: whether that module's code may run.
        name: what the user wrote, where that is more than `place`.

    Raises:
        ImportRefusedError: it may not be imported.
        RequestError: it cannot be.
    """
    module = place.partition(":")[0]
    told = f"{what} {name or place!r}"
    if not allow_import:
        raise ImportRefusedError(f"{told} would import the module {module!r}; {TRUST}")
    try:
        return pkgutil.resolve_name(place)
    except Exception as error:  # whatever the user's module does
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise RequestError(f"{told} cannot be imported ({reason}){module_hint(place)}") from error


def module_hint(place: str) -> str:
    """What to write in place of a file's name: "my/rewards.py:f" is "my.rewards:f"; "" if none was
    given."""
    module, _, name = place.partition(":")
    if not module.endswith(".py") and "/" not in module:
        return ""
    path = Path(module.removesuffix(".py"))
    parts = [part for part in path.parts if part not in (".", "/")]
    return f"; a module is named without .py, from the current folder on: {'.'.join(parts)}:{name}"


def are_batches(observations: Any, space: Any) -> bool:
    """Whether each component of a dict observation has exactly one additional axis.

    How long the others are is left open: a language model reads texts of any length.
    """
    if not (hasattr(observations, "keys") and hasattr(space, "keys")):
        return False
    axes = {name: len(getattr(part, "shape", ())) for name, part in observations.items()}
    return all(axes.get(name) == len(part.shape) + 1 for name, part in space.items())


def batch_error(observations: Any, space: Any, *, adapts: bool) -> str:
    """The error message for `observations` that are not a batch of elements of `space`.

    `adapts`: the environment's own observations look different from those that the agent sees.
    """
    got, wanted = _shapes(observations), _shapes(space, "N")
    said = f"act takes a batch of observations, {wanted}, got {got}"
    if got == _shapes(space):
        batch = "observation[None]"
        if hasattr(space, "keys"):
            batch = "{name: np.array(part)[None] for name, part in observation.items()}"
        return f"{said}; of one, act({batch})[0] is the action"
    if adapts:
        return f"{said}; agent.adapt_observations(observations) makes them of the environment's, [N, ...]"
    return said


def is_one(observation: ArrayLike, space: Any) -> bool:
    """Whether this is a single observation of a discrete or array space; True for any other kind of
    space."""
    shape = getattr(space, "shape", ())
    if hasattr(space, "n") and not shape:
        return _is_number(observation, getattr(space, "start", 0), space.n)
    if not shape or not hasattr(space, "low"):
        return True
    return np.shape(observation) == shape and np.asarray(observation).dtype.kind in "fiub"


def _is_number(value: object, start: int, count: int) -> bool:
    if isinstance(value, bool | str | bytes):
        return False
    try:
        return 0 <= operator.index(value) - start < count  # type: ignore[arg-type]
    except TypeError:  # no whole number
        return False


def observation_error(observation: ArrayLike, space: Any, *, adapts: bool) -> str:
    """The error message for a value that is not a single observation of `space`; `adapts` as for
    `wrong_batch`."""
    if hasattr(space, "n") and not getattr(space, "shape", ()):
        start = int(getattr(space, "start", 0))
        wanted = f"a whole number from {start} to {start + int(space.n) - 1}"
        number = np.ndim(observation) == 0 and not hasattr(observation, "keys")
        got = f"{observation!r:.60}" if number else _shapes(observation)
    else:
        wanted, got = f"numbers of {_shapes(space)}", _shapes(observation)
    said = f"act takes one observation, {wanted}, got {got}"
    hint = "; agent.adapt_observations(observation) makes it of the environment's"
    return said + hint if adapts else said


def _shapes(observations: Any, *leading: str) -> str:
    """The shape of an array or a space as text, such as "shape [N, 4]"; for a dict, that of each
    component."""
    if hasattr(observations, "keys"):
        parts = sorted(observations.items())
        return ", ".join(f"{name!r}: {_shapes(part, *leading)}" for name, part in parts)
    if isinstance(observations, list | tuple):
        return f"a {type(observations).__name__}"
    shape = observations.shape if hasattr(observations, "shape") else np.shape(observations)
    return f"shape [{', '.join([*leading, *map(str, shape)])}]"


def as_path(name: str, value: object) -> Path:
    """A path that was given as text or as a path. Raises RequestError if it is something else."""
    if not isinstance(value, str | os.PathLike):
        raise RequestError(f"{name} must be a path, got {value!r:.60}")
    return Path(value)


def check_arguments(
    example: str, others: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a public function: a call that lacks an argument, or has one that is unknown, given
    twice or one too many, is a WrongArguments of one sentence.

    Args:
        example: a call as it should be, and what else helps, for the end of the sentence.
        others: other libraries' arguments → what to write instead.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked_call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                wrong = _argument_error(function.__name__, signature, args, kwargs, example, others)
                raise WrongArguments(f"{function.__name__} {wrong}") from None
            return function(*args, **kwargs)

        return checked_call

    return decorate


def _argument_error(
    function: str,
    signature: inspect.Signature,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    example: str,
    others: Mapping[str, str],
) -> str:
    """What is wrong with a call whose arguments do not fit the signature."""
    parameters = {name: item for name, item in signature.parameters.items() if name != "self"}
    kinds, names = [item.kind for item in parameters.values()], list(parameters)
    by_place = [
        name for name, item in parameters.items() if item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    given = len(args) - ("self" in signature.parameters)
    for name in kwargs:
        if name not in names and inspect.Parameter.VAR_KEYWORD not in kinds:
            hint = name_hint(name, others, names)
            return f"has no argument {name!r}{hint}{names_or_help(names, f'help({function})')}"
        if name in by_place[:given]:
            return f"got {name} twice; call it as in {example}"
    if given > len(by_place):
        first = f"{', '.join(by_place)} by position, and the rest by name" if by_place else ""
        return f"takes {first or 'arguments by name alone'}, as in {example}"
    missing = [
        name
        for name in by_place[given:]
        if name not in kwargs and parameters[name].default is inspect.Parameter.empty
    ]
    return f"needs {' and '.join(missing)}, as in {example}"
