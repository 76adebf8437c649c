"""What a run's log says about how it learned: signs that something is wrong, each with what to try.

A rule looks at the last third of the reports, so that the noise of a beginning is not taken for a fault, and keeps silent where the log
lacks what it reads. The bounds are rules of thumb; each is provoked by a real run in `tests/unit/test_doctor.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlbook.runs.log import read_episodes, read_metrics

CLIPPED = 0.3                                # share of samples out of PPO's bounds from which on the step is too large
COLLAPSED = 0.02                             # of the entropy at the start
CUT = 0.1                                    # share of the targets' probability that a distribution over returns may lose at its ends
BEHIND = 0.25                                # of the range of returns seen, by which evaluation may lag behind training
FEW = 6                                      # reports or episodes from which nothing can be told


@dataclass(frozen=True)
class Log:
    """What the rules read."""

    reports: list[dict[str, float | None]]
    episodes: list[tuple[int, float, int]]   # step, return, length
    time_limit: int | None                   # in environment steps
    best: float | None                       # the optimal return, where it is known

    def values(self, name: str) -> list[float]:
        """One number of all reports that have it."""
        return [value for report in self.reports if (value := report.get(name)) is not None]

    def late(self, name: str) -> list[float]:
        """Those of the last third; none where there are too few to tell."""
        values = self.values(name)
        return values[-(len(values) // 3) :] if len(values) >= FEW else []

    def solved(self, value: float) -> bool:
        """Whether a mean return is as good as optimal."""
        return self.best is not None and value >= self.best - 0.02 * max(1.0, abs(self.best))


def symptoms(folder: Path, *, time_limit: int | None = None, best: float | None = None) -> dict[str, str]:
    """Rule → sentence, for each rule that has something to say about the log in a folder.

    Args:
        folder: a sound run folder.
        time_limit: of an episode, in environment steps, where there is one.
        best: the optimal return, where it is known.
    """
    log = Log(read_metrics(folder), read_episodes(folder), time_limit, best)
    return {name: sentence for name, rule in RULES.items() if (sentence := rule(log)) is not None}


def critic_worse_than_the_mean(log: Log) -> str | None:
    """`explained_variance` below 0: a constant would be the better V."""
    late, greedy = log.late("explained_variance"), log.values("eval_return")
    if not late or statistics.median(late) >= 0.0:
        return None
    if greedy and log.solved(greedy[-1]):    # where returns vary no more, there is nothing to explain
        return None
    told = f"explained_variance is {statistics.median(late):.2g} at the end"
    return f"{told}: the critic is worse than a constant; lower learning_rate, raise value_coef, or scale the rewards (normalize_reward)"


def clip_fraction_too_high(log: Log) -> str | None:
    """Most of what an update does is undone by the clip."""
    late = log.late("clip_fraction")
    if not late or statistics.fmean(late) <= CLIPPED:
        return None
    told = f"clip_fraction is {statistics.fmean(late):.2g} at the end"
    return f"{told}: updates move the policy further than the clip allows; lower learning_rate or epochs, or set target_kl"


def entropy_collapsed(log: Log) -> str | None:
    """The policy made up its mind early, and has not become better since."""
    entropy, returns = log.values("entropy"), log.values("return")
    third = len(entropy) // 3
    if len(entropy) < FEW or len(returns) < FEW or entropy[0] <= 0 or max(entropy[third:]) > COLLAPSED * entropy[0]:
        return None
    early, late = statistics.fmean(returns[: max(1, len(returns) // 3)]), statistics.fmean(log.late("return"))
    if log.solved(late) or late > early + 0.5 * (max(returns) - min(returns)):
        return None
    told = f"entropy fell from {entropy[0]:.2g} to {entropy[third]:.2g} nats in the first third, and returns have stayed at {late:.4g}"
    return f"{told}: the policy stopped exploring too early; raise entropy_coef or lower learning_rate"


def capped_by_the_time_limit(log: Log) -> str | None:
    """Episodes that once were shorter all reach the limit now, or none has ever ended before it."""
    if log.time_limit is None or len(log.episodes) < FEW:
        return None
    returns, lengths = [item[1] for item in log.episodes], [item[2] for item in log.episodes]
    late = lengths[-(len(lengths) // 3) :]
    at_limit = sum(length >= log.time_limit for length in late) / len(late)
    if min(lengths) >= log.time_limit and len(set(returns)) == 1:
        told = f"all {len(lengths)} episodes ran into the time limit of {log.time_limit} steps with the same return {returns[0]:.4g}"
        return f"{told}: no reward has told one behaviour from another; explore more, or choose a denser reward"
    if min(lengths) >= log.time_limit or at_limit < 0.8:
        return None
    told = f"{at_limit:.0%} of the last episodes are cut by the time limit of {log.time_limit} steps"
    return f"{told}: returns cannot show what is learned beyond it; where they are as good as they can be, the run is longer than needed"


def evaluation_far_under_training(log: Log) -> str | None:
    """The greedy policy earns less than the one that explores."""
    returns, greedy = log.values("return"), log.values("eval_return")
    if len(returns) < FEW or not greedy:
        return None
    now, then = greedy[-1], statistics.fmean(log.late("return"))
    if then - now <= BEHIND * max(max(returns) - min(returns), 1e-9) or log.solved(now):
        return None
    told = f"greedy episodes return {now:.4g}, training episodes {then:.4g}"
    return f"{told}: what was learned depends on exploring; judge it with evaluate --explore, or train until the policy is sure"


def gradient_zero(log: Log) -> str | None:
    """Nothing is learned."""
    late = log.late("grad_norm")
    if not late or max(late) > 1e-10:
        return None
    return "grad_norm is 0 at the end: nothing is learned; all advantages are 0 (no reward differs), or no weight is trained"


def groups_without_spread(log: Log) -> str | None:
    """Groups whose returns are all equal teach nothing."""
    late = log.late("zero_std_groups")
    if not late or statistics.fmean(late) < 0.9:
        return None
    returned = log.late("group_return")
    if returned and log.solved(statistics.fmean(returned)):
        return None
    told = f"{statistics.fmean(late):.0%} of the groups have equal returns at the end, and teach nothing"
    return f"{told}: raise group_size or temperature, or choose tasks that are neither too easy nor too hard"


def returns_outside_of_the_atoms(log: Log) -> str | None:
    """A distribution over returns ends before the returns do."""
    late = log.late("clipped_mass")
    if not late or statistics.fmean(late) <= CUT:
        return None
    told = f"clipped_mass is {statistics.fmean(late):.2g} at the end"
    return f"{told}: returns lie outside of v_min and v_max and are cut; widen them (rewards of at most r come to at most r / (1 - gamma))"


RULES: Mapping[str, Callable[[Log], str | None]] = {
    "critic worse than the mean": critic_worse_than_the_mean,
    "clip fraction too high": clip_fraction_too_high,
    "entropy collapsed": entropy_collapsed,
    "returns capped by the time limit": capped_by_the_time_limit,
    "evaluation far under training": evaluation_far_under_training,
    "gradient zero": gradient_zero,
    "groups without spread": groups_without_spread,
    "returns outside of the atoms": returns_outside_of_the_atoms,
}
