"""What each logged number means, which values are healthy, and what others say: `rlbook explain entropy`, and `docs/logged-numbers.md`.

What an algorithm itself says about a number stands in its `METRICS`; here stands how to read it.
"""

from __future__ import annotations

from typing import NamedTuple

from rlbook.registry import ALGORITHMS, agent_class


class Entry(NamedTuple):
    """How to read a number."""

    short: str  # what it is, in a few words, as a plot shows it
    unit: str
    healthy: str  # which values are
    otherwise: str  # what others mean
    source: str = ""  # where it comes from, where that is not this book


REWARD, NATS, SHARE, COUNT = "reward units", "nats", "a share, 0 to 1", "a count"
KL = "Schulman 2020, Approximating KL divergence (joschu.net/blog/kl-approx.html)"
PPO, DPO, GAIL = "Schulman et al. 2017, arXiv:1707.06347", "Rafailov et al. 2023, arXiv:2305.18290", "Ho & Ermon 2016, arXiv:1606.03476"
TRPO, GRPO, DAGGER = "Schulman et al. 2015, arXiv:1502.05477", "Shao et al. 2024, arXiv:2402.03300", "Ross et al. 2011, arXiv:1011.0686"
SAC, CQL, DQN = "Haarnoja et al. 2018, arXiv:1812.05905", "Kumar et al. 2020, arXiv:2006.04779", "Mnih et al. 2015, doi:10.1038/nature14236"
GKD = "Agarwal et al. 2023, arXiv:2306.13649"
BOOK = "Sutton & Barto 2018"

COMMON: dict[str, str] = {
    "step": "environment steps so far, all environments together; a planner counts sweeps, an agent that learns from data minibatches",
    "episodes": "training episodes that have ended",
    "return": "mean undiscounted return of the training episodes since the last line; the agent explores here",
    "length": "their mean length",
    "true_return": "mean return of the same episodes in the environment's own reward, where a reward model pays in its place",
    "reward/NAME": "mean of each of several rewards, where it applies; only on token tasks, and only where several were asked for",
    "eval_return": "mean return of greedy episodes in an environment of their own; only on the lines where the agent was evaluated",
    "eval_episodes": "how many those were, where an evaluation on the way was shortened because it would have taken more than four times "
    "the steps of the training before it; elsewhere as many as were asked for",
    "eval_unfinished": "share of those episodes that were cut because they did not end, in an environment without a time limit; not where "
    "it is 0",
}
"""What every run logs."""

GLOSSARY: dict[str, Entry] = {
    "step": Entry("how far the run is", "environment steps", "grows to the budget", "the x axis of every plot"),
    "episodes": Entry(
        "training episodes that have ended", COUNT, "grows all the time", "0 for long: episodes are long, or never end; see the time limit"
    ),
    "return": Entry(
        "return of a training episode",
        REWARD,
        "rises, and then stays",
        "flat from the start: nothing is learned; falls back: steps are too large; below eval_return while the agent explores much",
    ),
    "true_return": Entry(
        "return in the environment's own reward",
        REWARD,
        "rises with the paid return",
        "falls while return rises: the reward model is over-optimised; raise kl_coef, stop earlier, or ask more people",
        "Gao et al. 2023, arXiv:2210.10760",
    ),
    "length": Entry(
        "length of a training episode",
        "environment steps",
        "rises where the task is to last, falls where it is to arrive",
        "exactly the time limit: the clock ends the episodes",
    ),
    "eval_return": Entry(
        "return of a greedy episode",
        REWARD,
        "rises with return, and ends above it",
        "far below return: the most probable action is wrong somewhere, and sampling gets out of it",
    ),
    "eval_episodes": Entry(
        "episodes of an evaluation that was shortened",
        "episodes",
        "not there: all that were asked for were played",
        "5: the least there is; eval_return then errs much from one line to the next",
    ),
    "eval_unfinished": Entry(
        "greedy episodes that did not finish",
        SHARE,
        "not there: all of them finished",
        "above 0: the greedy policy walks in circles; eval_return then says when the episodes were cut, not how good the policy is",
    ),
    "accuracy": Entry(
        "pairs in the right order",
        SHARE,
        "rises from 0.5 towards 1",
        "0.5: guessing; 1 at once: the pairs are too easy, or are learned by heart",
        DPO,
    ),
    "advantage": Entry("mean advantage of recorded episodes", "standard deviations", "0", "not 0: the groups' means are taken over others"),
    "advantage_std": Entry(
        "spread of the advantages",
        REWARD,
        "above 0, and about as large as returns differ",
        "0: all returns are equal, and the gradient is 0",
    ),
    "agreement": Entry(
        "learner and expert would do the same",
        SHARE,
        "rises towards 1",
        "stays low: the network cannot tell states apart, or is trained too little; always 0 with continuous actions",
        DAGGER,
    ),
    "alpha": Entry(
        "step size", "none", "0.01 to 0.5 for tables", "near 1 with random rewards: values jump; near 0: values hardly move", BOOK
    ),
    "approx_kl": Entry(
        "how far an update moved the policy",
        NATS,
        "0.001 to 0.02",
        "above 0.05: steps are too large; below 0.0001: they are too small; exactly 0 where each batch is used for one step",
        KL,
    ),
    "backups": Entry("states updated so far", COUNT, "grows", "compare planners by it: fewer for the same values is better"),
    "best_weight": Entry(
        "weight of the best of a group", SHARE, "rises from near 1 / G as score_temperature falls", "1 / G throughout: all scores are equal"
    ),
    "beta": Entry(
        "expert's action is taken",
        SHARE,
        "falls from 1 to 0",
        "1 all the time is behaviour cloning: the learner never sees its own mistakes",
        DAGGER,
    ),
    "bound": Entry(
        "proved distance from the values asked for",
        REWARD,
        "falls to the tolerance",
        "does not fall: gamma is close to 1, and many sweeps are needed",
    ),
    "change": Entry(
        "largest change of a value",
        REWARD,
        "falls to 0, by a factor of about gamma a sweep",
        "stays: policies with equal values take turns, or gamma is 1",
    ),
    "changed": Entry(
        "states whose action was improved", COUNT, "falls to 0 within a few rounds", "never 0: actions of equal value take turns"
    ),
    "chosen_log_ratio": Entry(
        "better answers against the reference",
        NATS,
        "near or above 0",
        "falls far below 0: better answers become rarer too; raise nll_coef or beta",
        DPO,
    ),
    "clipped_mass": Entry(
        "probability beyond the atoms",
        SHARE,
        "near 0",
        "above 0.1: v_min and v_max are too narrow for the returns",
        "Bellemare et al. 2017, arXiv:1707.06887",
    ),
    "clip_fraction": Entry(
        "samples outside the clip", SHARE, "0.02 to 0.3", "above 0.3: updates are too large or too many; 0: the clip does nothing", PPO
    ),
    "converged": Entry("stopping rule was met", "0 or 1", "1 in the last report", "0: max_sweeps came first; raise it, or the tolerance"),
    "critic_loss": Entry(
        "squared error of the critics",
        "squared reward units",
        "settles; its size goes with the squared size of returns",
        "grows without end: values diverge; lower learning_rate or tau",
    ),
    "depth": Entry(
        "depth of the search tree",
        "actions",
        "reaches the goal or the end of a game",
        "small: too few simulations, or exploration too wide",
    ),
    "deviation": Entry(
        "spread of the returns that are kept",
        REWARD,
        "falls as play gets better",
        "0: all returns are equal, and the value network has nothing to learn",
    ),
    "discriminator_accuracy": Entry(
        "discriminator is right",
        SHARE,
        "falls from near 1 towards 0.5",
        "stays near 1: the policy is told apart with ease and gets little gradient; 0.5 from the start: it is trained too little",
        GAIL,
    ),
    "discriminator_loss": Entry(
        "cross-entropy of the discriminator", NATS, "rises towards 1.386 = 2 ln 2", "near 0: the discriminator is too strong", GAIL
    ),
    "effective_updates": Entry(
        "updates, weighed",
        COUNT,
        "not much below the number of updates",
        "far below: a few weights decide everything; policies are too different",
        BOOK,
    ),
    "episode_reward": Entry(
        "what episodes are worth to the policy",
        "as its name says",
        "rises together with group_return",
        "rises while group_return falls: the policy is sure, and wrong",
        "Zhao et al. 2025, arXiv:2505.19590",
    ),
    "dropped_groups": Entry(
        "groups that were left out", SHARE, "below 0.7", "near 1: most of what is played is thrown away", "Yu et al. 2025, arXiv:2503.14476"
    ),
    "entropy": Entry(
        "how undecided the policy is",
        NATS,
        "falls slowly from ln(actions), to near 0 where one action is best",
        "near 0 at once: it stopped exploring; unchanged: it does not learn; below 0 is possible for continuous actions",
    ),
    "epsilon": Entry(
        "probability of a random action",
        SHARE,
        "falls from 1 to about 0.05",
        "0 from the start: nothing is tried; large at the end: return stays below eval_return",
        BOOK,
    ),
    "explained_variance": Entry(
        "how much the critic explains",
        "none, 1 at most",
        "rises towards 1",
        "near 0: no better than a constant; below 0: worse than one; without meaning where all returns are equal",
    ),
    "gap": Entry(
        "log-sum-exp of Q above the recorded action's",
        REWARD,
        "small, and above 0",
        "large: untried actions look good; raise the penalty",
        CQL,
    ),
    "grad_norm": Entry(
        "length of the gradient",
        "units of the loss",
        "of the order of max_grad_norm, or some times that",
        "0: nothing is learned; a hundred times max_grad_norm: rewards or errors are too large",
    ),
    "gradient_penalty": Entry(
        "gradient of the discriminator, from 1",
        "none",
        "near 0",
        "large: the discriminator is steep; raise the penalty's coefficient",
        "Gulrajani et al. 2017, arXiv:1704.00028",
    ),
    "group_return": Entry("return of a round", REWARD, "rises", "flat with zero_std_groups near 1: tasks are too hard or too easy", GRPO),
    "hard_loss": Entry(
        "-log q of the teacher's choice", NATS, "falls to the teacher's own entropy", "falls below it: single choices are learned by heart"
    ),
    "held_out_kl": Entry("distance from the reference on held-out groups", NATS, "within kl_band", "above reference_kl: over-fitted", KL),
    "held_out_loss": Entry(
        "clipped surrogate on held-out groups", "standard deviations", "falls", "rises while policy_loss falls: over-fitted", PPO
    ),
    "held_out_accuracy": Entry(
        "held-out pairs in the right order", SHARE, "rises with accuracy", "far below accuracy: the training pairs are learned by heart"
    ),
    "importance": Entry(
        "learner's probability over the sampler's",
        "none",
        "within 0.01 of 1",
        "far from 1: the sampler is another policy: other weights, numbers of fewer bits, or sampling parameters that training leaves out",
    ),
    "improvement": Entry(
        "what the step gained",
        "units of the advantage",
        "above 0, and near predicted_improvement",
        "far below the prediction: the step is too large; lower max_kl",
        TRPO,
    ),
    "kept": Entry(
        "share of the round that is cloned", SHARE, "with a threshold rises with group_return; with keep alone it is constant",
        "0: nothing passes the threshold, and nothing is learned; 1: everything does, and nothing is selected",
    ),
    "kept_return": Entry(
        "return of what is cloned", REWARD, "above group_return, which follows it", "equal to group_return: nothing is selected any more"
    ),
    "kl": Entry("how far the step went", NATS, "just below max_kl", "far below: the line search shortened the step", TRPO),
    "known_pairs": Entry(
        "state-action pairs in the model", COUNT, "grows to all that can be tried", "stops early: exploration is too little"
    ),
    "known_states": Entry("states in the model", COUNT, "grows to all that can be reached", "stops early: exploration is too little"),
    "labels": Entry("states labelled by the expert", COUNT, "grows each round", "what an expert has to be paid for", DAGGER),
    "learned_reward": Entry(
        "reward by the discriminator",
        NATS,
        "settles near the value of steps that cannot be told apart",
        "falls: the discriminator wins",
        GAIL,
    ),
    "learning_rate": Entry(
        "step size of the optimiser",
        "none",
        "1e-4 to 3e-3 for Adam, falling to 0 where it is annealed",
        "see learning rate too high, too low in the book's page on agents that do not learn",
    ),
    "line_search_steps": Entry("step lengths tried", COUNT, "1 or 2", "all of them: the quadratic model is wrong; lower max_kl", TRPO),
    "loss": Entry(
        "negative log-probability of the data",
        NATS,
        "falls from ln(actions); to the expert's own entropy at best",
        "falls on while eval_return does not: the data are learned by heart",
    ),
    "margin": Entry("score of better minus worse", "none", "rises above 0", "grows without end: the pairs are learned by heart"),
    "mean_weight": Entry(
        "importance weight, mean", "none", "about 1 in prediction", "far from 1: weights vary too much, or are truncated", BOOK
    ),
    "model_loss": Entry("loss of the learned model", "none", "falls, and settles", "rises again: new states differ from the old ones"),
    "nll": Entry(
        "negative log-probability of better answers",
        NATS,
        "stays, or falls",
        "rises: better answers become less likely; raise nll_coef",
        DPO,
    ),
    "nodes": Entry("nodes of the tree", COUNT, "about the number of simulations", "far fewer: most simulations end where others did"),
    "one_step_error": Entry(
        "error of the model's next state",
        "standard deviations of s' - s",
        "well below 1",
        "1 or more: the model knows nothing of what comes next",
    ),
    "pairs": Entry("pairs that were learned from", COUNT, "most of those in a round", "near 0: all returns are ties"),
    "peer_divergence": Entry(
        "how far two students are apart", NATS, "falls with hard_loss, not to 0", "0 from the start: they are the same, and teach nothing"
    ),
    "policy_loss": Entry(
        "what the policy's step minimises", "depends on the algorithm", "no value is; look at return", "falling does not mean learning"
    ),
    "policy_loss_bound": Entry(
        "what the policy loses at most", REWARD, "falls to 0", "far above policy_regret: a bound, which is seldom reached"
    ),
    "policy_regret": Entry(
        "what the greedy policy loses", REWARD, "falls to 0", "stays above 0: some action is still wrong where episodes pass"
    ),
    "positions": Entry("positions that are kept", COUNT, "grows to buffer_size", "small: the network learns from few games"),
    "predicted_improvement": Entry(
        "what the step should gain", "units of the advantage", "above 0", "near 0: the policy is at a maximum, or has no signal", TRPO
    ),
    "preference_loss": Entry("loss of the preferences", NATS, "falls from 0.693 = ln 2", "stays at 0.693: pairs cannot be told apart", DPO),
    "priority": Entry("largest Bellman error", REWARD, "falls to the tolerance", "stays: errors are passed on in a circle"),
    "q": Entry(
        "mean action value",
        REWARD,
        "comes near the discounted return",
        "far above any possible return: values diverge or are too hopeful",
        DQN,
    ),
    "queue": Entry("states that wait", COUNT, "grows, and empties in the end", "never empties: the tolerance is too small for the time"),
    "ratio": Entry("importance ratio, mean", "none", "about 1", "far from 1: the policies differ too much for the data"),
    "disagreement": Entry(
        "spread of an ensemble's members",
        REWARD,
        "small where the data are",
        "grows while an agent is paid: it has found episodes that the data say nothing about; raise reward_caution",
        "Christiano et al. 2017, arXiv:1706.03741",
    ),
    "kl_coef": Entry(
        "weight of the KL penalty",
        "reward units per nat",
        "settles where reference_kl meets kl_target",
        "at a bound: the target is out of reach",
        "Ziegler et al. 2019, arXiv:1909.08593",
    ),
    "mismatched_kl": Entry(
        "KTO's point of reference",
        NATS,
        "small, and above 0 once the policy moves",
        "always 0: the policy has become less sure of everything",
        "Ethayarajh et al. 2024, arXiv:2402.01306",
    ),
    "reference_kl": Entry("distance from the reference policy", NATS, "small, and settled by kl_coef", "grows: raise kl_coef", KL),
    "rejected_log_ratio": Entry(
        "worse answers against the reference", NATS, "falls below chosen_log_ratio", "equal to it: nothing is told apart", DPO
    ),
    "reward_error": Entry(
        "error of the predicted reward", REWARD, "falls to the noise of the rewards", "stays: rewards depend on what is not seen"
    ),
    "reward_margin": Entry(
        "implicit reward of better minus worse",
        "none",
        "rises above 0",
        "grows while chosen_log_ratio falls: both answers become rarer",
        DPO,
    ),
    "rollout_error": Entry(
        "error of the model after a rollout",
        "standard deviations of s",
        "below 1",
        "far above one_step_error: errors grow with each step; plan less far",
    ),
    "root_value": Entry("value of the root", REWARD, "comes near the return", "far above it: the simulations are luckier than the play"),
    "score_temperature": Entry(
        "τ of the scores' softmax", "standard deviations", "2 to 0.5", "far above: all are cloned alike; far below: only the best is"
    ),
    "simulations": Entry("simulations behind a move", COUNT, "at least what was asked for", "more is stronger and slower"),
    "step_fraction": Entry("share of the step that was taken", SHARE, "1, or a half", "0: no step was good enough", TRPO),
    "student_played": Entry(
        "whether the student played the round", SHARE, "student_share on average", "always 0: its own mistakes are not corrected", GKD
    ),
    "sweep": Entry("how far the planner is", "sweeps", "grows", "the x axis of a planner's plot"),
    "sweeps": Entry("sweeps of the last plan", COUNT, "well below max_sweeps", "max_sweeps: the plan is not finished"),
    "target": Entry(
        "mean target of Q",
        REWARD,
        "comes near the discounted return",
        "far above any possible return: values of untried actions are taken for true",
        CQL,
    ),
    "td_error": Entry(
        "error of a value against its target",
        REWARD,
        "falls to the noise of rewards and next states",
        "grows: the step size is too large; rises at first where rewards are rare",
        BOOK,
    ),
    "td_loss": Entry(
        "loss of Q against its target",
        "reward units, squared where small",
        "settles; may rise while returns do",
        "grows without end: values diverge",
        DQN,
    ),
    "teacher_divergence": Entry(
        "how far the student is from its teacher", NATS, "falls, and stays small", "stays high: the student is too small, or sees less", GKD
    ),
    "temperature": Entry(
        "how random the actions are", "reward units, or per nat", "falls as the agent learns", "0: greedy; large: at random", SAC
    ),
    "value": Entry("value of the start", REWARD, "settles", "grows without end: gamma is 1 and the model never ends"),
    "value_error": Entry(
        "distance of the values from the exact ones",
        REWARD,
        "falls; to 0 for a planner",
        "stays large while policy_regret is 0: seldom visited states, or values of acting with exploration",
    ),
    "value_loss": Entry(
        "squared error of the critic",
        "squared reward units",
        "settles; rises at first where returns grow",
        "in the hundreds: rewards are too large; grows without end: learning_rate is too high",
    ),
    "weight_variance": Entry(
        "variance of the importance weights", "none", "below 1, or a few", "large: few episodes decide everything", BOOK
    ),
    "reward/NAME": Entry(
        "one of several rewards, before its weight",
        "its own",
        "the one that matters rises, the others do not fall",
        "a form or a length rises alone: the agent earns by looks; raise the weight of what matters",
    ),
    "zero_std_groups": Entry(
        "groups whose returns are all equal", SHARE, "below 0.5", "near 1: tasks are too hard or too easy for the group's size", GRPO
    ),
}


def entry_of(name: str) -> str:
    """The name of the entry that a logged number has: that of `reward/exact` is `reward/NAME`."""
    return "reward/NAME" if name.startswith("reward/") else name


def said_by(name: str) -> dict[str, list[str]]:
    """What is said about a number → the algorithms that say it."""
    found: dict[str, list[str]] = {COMMON[name]: ["all"]} if name in COMMON else {}
    for algorithm in ALGORITHMS:
        meaning = agent_class(algorithm).METRICS.get(name)
        if meaning is not None:
            found.setdefault(meaning, []).append(algorithm)
    return found
