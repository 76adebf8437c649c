"""Signs that the training of a language model goes wrong. Most are found in the log; one checks
tokens that the agent has just sampled."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rlbook.diagnosis.learning_log import Log

if TYPE_CHECKING:
    from rlbook.agent import Agent
    from rlbook.interaction.environments import EnvRecipe

AWAY, GONE = 0.5, 2.0  # nats a step from the reference, of a policy that is no better, and of any
CUT_OFF = 0.5  # share of the last texts at their limit, from which on length runs away
LONGER = 1.3  # times as long as at first
RISEN = 0.3  # of its range, by which what is paid has risen
FLAT = 0.1  # of its range, by which what is meant may have risen and still be called flat
RIGHT = 0.95  # share of right answers that leaves nothing to rise to
OFF = 0.001  # |ρ - 1|, a hundred times what the rounding of float32 explains
LOOKED_AT = 16  # texts that are drawn to see whether the ratio is 1
VERIFIERS = ("reward/correct", "reward/exact", "reward/numeric", "reward/boxed", "reward/answer")


def kl_running_away(log: Log) -> str | None:
    """The KL from the reference grows without improving the policy, or so far that nothing of the
    reference is left."""
    late = log.last_third("reference_kl")
    if not late or log.is_done:
        return None
    end = statistics.fmean(late)
    if end <= (AWAY if log.is_stuck else GONE):
        return None
    return (
        f"reference_kl is {end:.2g} nats a step at the end:"
        " the policy has left its reference; raise kl_coef, lower learning_rate, or stop"
        " earlier"
    )


def length_exploding(log: Log) -> str | None:
    """Completions that once ended by themselves are now truncated."""
    lengths = [item[2] for item in log.episodes]
    third = len(lengths) // 3
    if log.completion_limit is None or third < 2:
        return None
    before, now = lengths[:third], lengths[-third:]
    short, long = statistics.fmean(before), statistics.fmean(now)
    cut = sum(length >= log.completion_limit for length in now) / third
    cut_before = sum(length >= log.completion_limit for length in before) / third
    if cut < CUT_OFF or cut_before > cut / 2 or long < LONGER * short:
        return None
    return (
        f"completions grew from {short:.3g} to {long:.3g} tokens, and {cut:.0%} of the last are "
        "cut off: the reward favours length, or EOS has become unlikely; look at each reward, "
        "add overlong, or lower learning_rate"
    )


def reward_without_the_verifier(log: Log) -> str | None:
    """The training reward rises, but the verifier's score does not."""
    # of whole rounds, where it is logged: less noisy
    returned = "group_return" if log.values("group_return") else "return"
    pairs = [
        (returned, "true_return"),
        ("episode_reward", returned),
        *((returned, name) for name in VERIFIERS),
    ]
    for paid, meant in pairs:
        paid_rise, meant_rise, end = _rise(log, paid), _rise(log, meant), log.last_third(meant)
        if paid_rise is None or meant_rise is None or paid_rise <= RISEN or meant_rise > FLAT:
            continue
        if log.is_optimal(statistics.fmean(end)) or (
            meant in VERIFIERS and statistics.fmean(end) >= RIGHT
        ):
            continue
        rose, went = (
            f"from {statistics.fmean(log.first_third(name)):.3g} to"
            f" {statistics.fmean(log.last_third(name)):.3g}"
            for name in (paid, meant)
        )
        return (
            f"{paid} rose {rose}, {meant} went {went}: the policy exploits the training reward; "
            "stop earlier, raise kl_coef, or train on the intended reward"
        )
    return None


def _rise(log: Log, name: str) -> float | None:
    """The increase of the mean from the first to the last third, as a fraction of the range; None
    for too few values."""
    values = log.values(name)
    if not log.last_third(name):
        return None
    return (statistics.fmean(log.last_third(name)) - statistics.fmean(log.first_third(name))) / max(
        max(values) - min(values), 1e-9
    )


def ratio_not_one(log: Log) -> str | None:
    """The recomputed probability of freshly sampled tokens differs from that at sampling."""
    if (
        log.ratio_error is None
        or log.ratio_error <= OFF
        or log.settings.get("importance_cap") is not None
    ):
        return None
    return (
        f"the ratio of freshly sampled tokens is {log.ratio_error:.2g} away from 1: acting and "
        "learning disagree about their probability; compute in float32, or correct it with "
        "importance_cap"
    )


TEXT_RULES: Mapping[str, Callable[[Log], str | None]] = {
    "KL running away": kl_running_away,
    "length exploding": length_exploding,
    "reward without the verifier": reward_without_the_verifier,
    "ratio not 1 at the first step": ratio_not_one,
}


def first_ratio_error(agent: Agent, recipe: EnvRecipe) -> float | None:
    """The largest |ρ - 1| of freshly sampled tokens, where ρ is their recomputed probability
    divided by that at sampling.

    Nothing was learned in between, so it is 0 up to rounding. None of an agent that learns from no
    language model's draws.
    """
    import torch

    from rlbook.algorithms.policy.policy_agent import PolicyAgent
    from rlbook.interaction.play_episodes import adapted_vector
    from rlbook.runs.inspection import play_round

    if not isinstance(agent, PolicyAgent) or agent.policy.unit != "episode":
        return None
    env = adapted_vector(type(agent), recipe, LOOKED_AT, agent.config)
    rng, starts = np.random.default_rng(0), range(LOOKED_AT)
    rollout, _ = play_round(agent.policy, env, starts, rng, scoring="never")
    batch = agent.policy.batch(rollout, "episode")
    with torch.inference_mode():
        again, _, _ = agent.policy.evaluate(batch, entropy=False)
    return float(((again - batch.log_prob).exp() - 1.0).abs()[batch.mask].max())
