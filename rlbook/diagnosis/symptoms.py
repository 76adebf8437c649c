"""Symptoms in a run's log: signs that something is wrong, each with a suggestion.

A rule looks at the last third of the reports, so that the noise of a beginning is not taken for a
fault, and keeps silent where the log lacks what it reads. The bounds are rules of thumb.
`docs/why-it-does-not-learn.md` has an entry for each rule, with a run that provokes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from rlbook.diagnosis.learning_log import FEW, Log
from rlbook.diagnosis.text_symptoms import TEXT_RULES
from rlbook.envs.space_batches import plain
from rlbook.interaction.environments import EnvRecipe
from rlbook.runs.storage.log import read_episodes, read_metrics

WORSE = -0.05  # explained variance under which a critic is worse than a constant, and not by chance
CLIPPED = 0.3  # share of samples that the clip holds from which on the step is too large
FAR = 0.05  # nats from the old policy to the new one, from which on the step is too large
UNMOVED = 0.001  # nats within which an entropy has not changed
# of the range of returns, by which they grow from the third quarter of a run that is too short to the last
GROWTH = 0.1
CHANCE = 0.05  # p-value under which returns that grow are not taken for noise
SWAMPED = 100  # times max_grad_norm, beyond which clipping leaves nothing but a direction
LARGE = 100.0  # squared reward units, of a critic's loss that comes from the size of the rewards
UNEVEN = 30  # ratio of the scales of two components from which on a network hardly sees the smaller
PLAYED = 1_000  # random steps that tell the scales of observations
COLLAPSED = 0.02  # of the entropy at the start
CUT = 0.1  # share of the targets' probability that a distribution over returns may lose at its ends
BEHIND = 0.25  # of the range of returns seen, by which evaluation may lag behind training


def symptoms(
    folder: Path,
    *,
    time_limit: int | None = None,
    usual_limit: int | None = None,
    best: float | None = None,
    settings: Mapping[str, object] | None = None,
    scales: Sequence[float] = (),
    completion_limit: int | None = None,
    ratio_error: float | None = None,
    expected: float | None = None,
    better: str | None = None,
    solved_from: float | None = None,
    enough: float | None = None,
) -> dict[str, str]:
    """Rule → sentence, for each rule that applies to the log in a folder.

    Args:
        folder: a sound run folder.
        time_limit: of an episode, in environment steps, where there is one.
        usual_limit: the same of the environment as it is registered.
        best: the optimal return, where it is known.
        settings: the run's hyper-parameters, by name.
        scales: as `observation_scales` gives them.
        completion_limit: tokens that a completion may have at most, where the episodes are texts.
        ratio_error: as `rlbook.diagnosis.text_symptoms.first_ratio_error` finds it.
        expected: the exact mean return of greedy play, where it can be computed.
        better: as `rlbook.diagnosis.better_settings` says it.
        solved_from: the mean return from which the environment counts as solved.
        enough: the mean return from which greedy play counts as optimal; None is within 2 % of
            `best`.
    """
    played = read_episodes(folder)
    log = Log(
        read_metrics(folder),
        played,
        time_limit,
        usual_limit,
        best,
        settings or {},
        scales,
        completion_limit,
        ratio_error,
        expected,
        better,
        solved_from,
        enough,
    )
    return {name: sentence for name, rule in RULES.items() if (sentence := rule(log)) is not None}


def observation_scales(recipe: EnvRecipe) -> list[float]:
    """The standard deviation of each component of an environment's observations under random
    actions; empty if they are not a vector."""
    env = recipe.make()
    try:
        if not isinstance(env.observation_space, Box) or len(env.observation_space.shape) != 1:
            return []
        env.action_space.seed(0)
        seen = [env.reset(seed=0)[0]]
        for _ in range(PLAYED):
            obs, _, terminated, truncated, _ = env.step(plain(env.action_space.sample()))
            seen.append(env.reset()[0] if terminated or truncated else obs)
        return np.std(np.array(seen, dtype=float), axis=0).tolist()
    finally:
        env.close()


def critic_worse_than_the_mean(log: Log) -> str | None:
    """`explained_variance` below 0: a constant would predict better than V. If all returns are
    equal, there is nothing left to explain."""
    late, returns = log.last_third("explained_variance"), log.values("return")
    if not late or statistics.median(late) >= WORSE or log.is_done:
        return None
    if (
        len(returns) >= FEW
        and not log.is_stuck
        and statistics.pstdev(log.last_third("return")) < 0.1 * (max(returns) - min(returns))
    ):
        return None
    return (
        f"explained_variance is {statistics.median(late):.2g} at the end:"
        " the critic is worse than a constant; lower learning_rate, raise value_coef, or"
        " scale the rewards (normalize_reward)"
    )


def clip_fraction_too_high(log: Log) -> str | None:
    """The clip removes the gradient of most samples."""
    late = log.last_third("clip_fraction")
    if not late or statistics.fmean(late) <= CLIPPED:
        return None
    return (
        f"clip_fraction is {statistics.fmean(late):.2g} at the end:"
        " updates move the policy further than the clip allows; lower learning_rate or"
        " epochs, or set target_kl"
    )


def entropy_collapse(log: Log) -> str | None:
    """The policy became deterministic early, and has not improved since; for a language model, at
    any time."""
    entropy, returns = log.values("entropy"), log.values("return")
    third, writes = len(entropy) // 3, log.completion_limit is not None
    if len(entropy) < FEW or len(returns) < FEW or entropy[0] <= 0:
        return None
    # nine tenths of the reports after the first third: a network that jumps may act at random for one
    later = sorted(entropy[third:])[: -(len(entropy) // 15) or None]
    left = statistics.fmean(log.last_third("entropy")) if writes else later[-1]
    early, late = (
        statistics.fmean(returns[: max(1, len(returns) // 3)]),
        statistics.fmean(log.last_third("return")),
    )
    if (
        left > COLLAPSED * entropy[0]
        or log.is_optimal(late)
        or late > early + 0.5 * (max(returns) - min(returns))
    ):
        return None
    when, now = ("at the end", left) if writes else ("in the first third", entropy[third])
    return (
        f"entropy fell from {entropy[0]:.2g} to {now:.2g} nats {when}, and returns have stayed at"
        f" {late:.4g}:"
        " the policy stopped exploring too early; raise entropy_coef or lower learning_rate"
    )


def capped_by_the_time_limit(log: Log) -> str | None:
    """Episodes that were once shorter now all reach the time limit, or none has ever ended before
    it."""
    if log.time_limit is None or len(log.episodes) < FEW:
        return None
    returns, lengths = [item[1] for item in log.episodes], [item[2] for item in log.episodes]
    late = lengths[-(len(lengths) // 3) :]
    at_limit = sum(length >= log.time_limit for length in late) / len(late)
    if min(lengths) >= log.time_limit and len(set(returns)) == 1:
        return (
            f"all {len(lengths)} episodes reached the time limit of {log.time_limit} steps with "
            f"the same return {returns[0]:.4g}: no reward has distinguished one behaviour from another; "
            "explore more, or choose a denser reward"
        )
    longest_is_best = statistics.fmean(returns[-len(late) :]) >= max(returns) - 0.01 * (
        max(returns) - min(returns)
    )
    if (
        min(lengths) >= log.time_limit
        or at_limit < 0.8
        or (log.time_limit == log.usual_limit and longest_is_best)
    ):
        return None
    return (
        f"{at_limit:.0%} of the last episodes are cut off by the time limit of {log.time_limit} "
        "steps: returns cannot show any further learning; if they are optimal, the run is "
        "longer than needed"
    )


def evaluation_far_below_training(log: Log) -> str | None:
    """The greedy policy earns much less than the exploring one."""
    returns, greedy = log.values("return"), log.values("eval_return")
    if len(returns) < FEW or not greedy:
        return None
    now, then, noise = (
        greedy[-1],
        statistics.fmean(log.last_third("return")),
        statistics.pstdev(log.last_third("return")),
    )
    if then - now <= max(BEHIND * (max(returns) - min(returns)), 2 * noise, 1e-9) or log.is_optimal(
        now
    ):
        return None
    return (
        f"greedy episodes return {now:.4g}, training episodes {then:.4g}: the policy depends on "
        "exploration; evaluate it with --explore, or train until it is more deterministic"
    )


def gradient_zero(log: Log) -> str | None:
    """The gradient is zero, so nothing is learned, although there was something to learn."""
    late = log.last_third("grad_norm")
    returned = log.last_third("group_return") or log.last_third("return")
    if not late or max(late) > 1e-10 or log.is_done:
        return None
    if returned and log.is_optimal(statistics.fmean(returned)):
        return None
    return (
        "grad_norm is 0 at the end: nothing is learned; all advantages are 0 (all rewards are "
        "equal), or no weight is trained"
    )


def zero_variance_groups(log: Log) -> str | None:
    """Groups whose returns are all equal have zero advantages and contribute no gradient."""
    late = log.last_third("zero_std_groups")
    if not late or statistics.fmean(late) < 0.9:
        return None
    returned = log.last_third("group_return")
    if returned and log.is_optimal(statistics.fmean(returned)):
        return None
    return (
        f"{statistics.fmean(late):.0%} of the groups have equal returns at the end, and "
        "contribute no gradient: raise group_size or temperature, or choose tasks that are "
        "neither too easy nor too hard"
    )


def returns_outside_the_atoms(log: Log) -> str | None:
    """The support of the return distribution is narrower than the returns."""
    late = log.last_third("clipped_mass")
    if not late or statistics.fmean(late) <= CUT:
        return None
    return (
        f"clipped_mass is {statistics.fmean(late):.2g} at the end: returns lie outside [v_min, "
        "v_max] and are clipped; widen the range (with rewards of at most r, returns are at "
        "most r / (1 - gamma))"
    )


def time_limit_treated_as_terminal(log: Log) -> str | None:
    """The critic treats a time limit as a termination."""
    lengths = [item[2] for item in log.episodes]
    late = lengths[-(len(lengths) // 3) :]
    if log.settings.get("truncation") != "terminal" or log.time_limit is None or len(lengths) < FEW:
        return None
    cut = sum(length >= log.time_limit for length in late) / len(late)
    if cut < 0.5:
        return None
    return (
        f"{cut:.0%} of the last episodes are cut off by the time limit of {log.time_limit} "
        "steps, and truncation is terminal: the critic treats the limit as a termination, which no "
        "observation announces; set truncation to bootstrap"
    )


def learning_rate_too_high(log: Log) -> str | None:
    """Updates change the policy too much, or errors grow."""
    moved, errors = log.values("approx_kl"), log.values("td_error")
    third = len(errors) // 3
    if len(moved) >= FEW and statistics.fmean(moved) > FAR and not log.is_done:
        return (
            f"approx_kl is {statistics.fmean(moved):.2g} nats an update on average: each update "
            "moves far from the policy that collected its data; lower learning_rate, or set "
            "target_kl"
        )
    if third < 2 or not log.is_stuck:
        return None
    early, late = statistics.fmean(errors[:third]), statistics.fmean(errors[-third:])
    if late <= 3 * early or late <= 10 * statistics.fmean(
        abs(item[1]) / item[2] for item in log.episodes
    ):
        return None
    return (
        f"td_error grew from {early:.2g} to {late:.2g}, but returns did not: each step "
        "overshoots its target; lower the step size (alpha or learning_rate)"
    )


def learning_rate_too_low(log: Log) -> str | None:
    """The policy has hardly changed, although returns differ and there was something to learn."""
    entropy, returns = log.values("entropy"), [item[1] for item in log.episodes]
    if len(entropy) < FEW or max(entropy) - min(entropy) >= UNMOVED or not log.is_stuck:
        return None
    if max(returns.count(value) for value in set(returns)) > 0.9 * len(returns):
        return None
    return (
        f"entropy has stayed at {entropy[-1]:.3g} nats, and returns are no better than at the "
        "start: the policy hardly changes; raise learning_rate tenfold"
    )


def too_little_exploration(log: Log) -> str | None:
    """A value-based agent never tries other actions, and does not improve."""
    epsilon = log.values("epsilon")
    if (
        len(epsilon) < FEW
        or max(epsilon) > 0.01
        or not log.is_stuck
        or learning_rate_too_high(log)
        or discount_too_low(log)
    ):
        return None
    return (
        f"epsilon is {max(epsilon):.2g} from the start, and returns have not improved: actions "
        "that are never tried cannot be learned; start with epsilon near 1 and decrease it"
    )


def rewards_too_large(log: Log) -> str | None:
    """The critic's gradient is so large that after clipping almost nothing of the policy's is
    left."""
    norms, explained, limit = (
        log.last_third("grad_norm"),
        log.last_third("explained_variance"),
        log.number("max_grad_norm"),
    )
    if not norms or not explained or not limit or not log.is_stuck:
        return None
    norm, share, losses = (
        statistics.median(norms),
        statistics.median(explained),
        log.last_third("value_loss"),
    )
    if norm <= SWAMPED * limit or share > 0.2 or not losses or statistics.median(losses) < LARGE:
        return None
    return (
        f"grad_norm is {norm:.3g} before it is clipped to {limit:g}, and explained_variance"
        f" {share:.2g}:"
        " returns are too large for the critic; set normalize_reward, or scale the rewards"
    )


def unnormalised_observations(log: Log) -> str | None:
    """The components of an observation have very different scales."""
    spread = [scale for scale in log.scales if scale > 0]
    if (
        log.settings.get("normalize_observation") is not False
        or not log.is_stuck
        or len(spread) < 2
        or max(spread) <= UNEVEN * min(spread)
    ):
        return None
    return (
        f"components of the observation vary by {min(spread):.2g} to {max(spread):.2g}: the "
        "largest dominate the network's input; set normalize_observation"
    )


def discount_too_low(log: Log) -> str | None:
    """A delayed reward is discounted to almost nothing."""
    gamma, lengths = log.number("gamma"), [item[2] for item in log.episodes]
    if gamma is None or gamma >= 1.0 or not log.is_stuck:
        return None
    length, horizon = statistics.median(lengths[-(len(lengths) // 3) :]), 1 / (1 - gamma)
    if length <= 20 * horizon:
        return None
    return (
        f"gamma {gamma:g} looks about {horizon:.2g} steps ahead, and episodes last {length:g}: "
        "rewards further away hardly count; raise gamma"
    )


def replay_buffer_too_small(log: Log) -> str | None:
    """The buffer holds so few episodes that the network forgets what it does not currently see."""
    size, lengths = log.number("buffer_size"), [item[2] for item in log.episodes]
    if size is None or len(lengths) < FEW or log.is_done:
        return None
    length = statistics.fmean(lengths[-(len(lengths) // 3) :])
    if size >= 10 * length or log.episodes[-1][0] < 10 * size:
        return None
    return (
        f"buffer_size {size:g} holds {size / length:.2g} of the last episodes: older ones are "
        "forgotten; raise buffer_size"
    )


def budget_too_short(log: Log) -> str | None:
    """Returns are still increasing at the end of the run: training returns, or evaluation returns
    if no episodes are played."""
    if log.episodes and len(log.episodes) < FEW and not log.is_done:
        ended = "1 episode has" if len(log.episodes) == 1 else f"{len(log.episodes)} episodes have"
        return f"only {ended} ended, which is too few to learn from; raise steps or episodes"
    from scipy.stats import mannwhitneyu  # half a second, which few runs need

    if log.is_done:
        return None
    before, end = log.quarters() if log.episodes else log.evaluations()
    if min(len(before), len(end)) < FEW // 2:
        return None
    then, now = statistics.fmean(before), statistics.fmean(end)
    chance = mannwhitneyu(end, before, alternative="greater").pvalue if log.episodes else 0.0
    if now - then <= GROWTH * log.span or chance > CHANCE:
        return None
    return (
        f"returns grew from {then:.4g} to {now:.4g} between the third quarter of the run and the "
        "last: it was still learning when it ended; raise steps"
    )


def short_of_the_optimum(log: Log) -> str | None:
    """Greedy play is not optimal, and settings that reach the optimum are known."""
    greedy = log.values("eval_return") if log.expected is None else [log.expected]
    if log.better is None or not greedy or log.is_done:
        return None
    if log.best is None and log.solved_from is not None and greedy[-1] < log.solved_from:
        return (
            f"greedy play returns {greedy[-1]:.4g}, and {log.solved_from:.4g} counts as solved: "
            f"{log.better}"
        )
    if log.best is None:
        return None
    return f"greedy play returns {greedy[-1]:.4g} of {log.best:.4g}: {log.better}"


SHORT = "short of the optimum"
RULES: Mapping[str, Callable[[Log], str | None]] = {
    "critic worse than the mean": critic_worse_than_the_mean,
    "clip fraction too high": clip_fraction_too_high,
    "entropy collapsed": entropy_collapse,
    "returns capped by the time limit": capped_by_the_time_limit,
    "evaluation far below training": evaluation_far_below_training,
    "gradient zero": gradient_zero,
    "groups without spread": zero_variance_groups,
    "returns outside the atoms": returns_outside_the_atoms,
    "time limit treated as terminal": time_limit_treated_as_terminal,
    "learning rate too high": learning_rate_too_high,
    "learning rate too low": learning_rate_too_low,
    "too little exploration": too_little_exploration,
    "rewards too large": rewards_too_large,
    "observations unnormalised": unnormalised_observations,
    "discount too low for the horizon": discount_too_low,
    "replay buffer too small": replay_buffer_too_small,
    "budget too short": budget_too_short,
    SHORT: short_of_the_optimum,
    **TEXT_RULES,
}
