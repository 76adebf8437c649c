"""Inspects a policy action by action, for tokens of a text or steps in a maze: its probabilities,
and the quantities that its algorithm derives from them.

An `Inspector` plays the same few starts whenever it is asked, with the same random numbers, in an
environment of its own, and changes nothing in the agent. `rlbook.runs.token_record` keeps what it
saw; `rlbook.plots.pages.inspector` shows it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlbook.checks import ENDLESS
from rlbook.envs.gridworlds.layouts import ACTION_NAMES
from rlbook.errors import RequestError
from rlbook.interaction.loop import act_step_reset, logged_rows
from rlbook.interaction.threads import use_one_thread
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.registry import name_of
from rlbook.runs.setup import environment_of
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv
    from torch import Tensor

    from rlbook.agent import Agent, Step
    from rlbook.algorithms.policy.policy_agent import PolicyAgent
    from rlbook.data.rollout import Batch, Rollout
    from rlbook.interaction.environments import EnvRecipe
    from rlbook.networks.policy import Policy
    from rlbook.runs.request import Request

Moment = dict[str, Any]
"""The data of one step of training, as plain JSON; see `Inspector.moment`."""

SAMPLES = 4  # episodes from each start, of agents that have no group size
LONGEST = 1_000  # steps after which an episode is cut that no limit of its own ends
ROWS = 8  # episodes whose distributions are in memory at once


@dataclass(frozen=True)
class Quantities:
    """The quantities computed for each action."""

    meaning: dict[str, str]  # name → what it is, with its unit
    absent: dict[str, str]  # name → why this agent has no such number


def check_inspectable(agent: Agent) -> PolicyAgent:
    """Returns the agent if its actions can be inspected; raises RequestError otherwise."""
    from rlbook.algorithms.policy.policy_agent import PolicyAgent

    name = name_of(type(agent))
    if not isinstance(agent, PolicyAgent):
        raise RequestError(
            f"inspect shows the probabilities of a policy network, but {name} has none; use it"
            " with ppo, grpo, dpo, sft, …"
        )
    if agent.adaptation is not None and not isinstance(
        agent.adaptation.action_space, spaces.Discrete
    ):
        raise RequestError(
            f"inspect needs discrete actions, such as tokens, but those of this {name} are numbers"
        )
    return agent


class Inspector:
    """Plays episodes from `prompts` starts, as many from each as the agent's groups have, and
    computes the quantities of every action.

    Args:
        agent: whose policy acts.
        request: of its run: where it plays (held-out prompts, with the reward of training) and the
            seed of the noise.
        prompts: how many starts.
        load: reads the agent of a run's folder, for a reward model that pays.

    Raises:
        RequestError: the agent has no policy network, or its actions are not a finite set.
    """

    def __init__(
        self, agent: Agent, request: Request, prompts: int, load: Callable[[Path], Agent]
    ) -> None:
        self.agent, self.seed = check_inspectable(agent), request.seed
        self.samples = self.agent.group_size if self.agent.group_size > 1 else SAMPLES
        self.starts = [start for start in range(prompts) for _ in range(self.samples)]
        held_out = request.recipe.for_held_out_prompts()
        asked = dataclasses.replace(request, recipe=held_out).with_options(
            num_envs=len(self.starts), workers=None
        )
        self.env: Any = environment_of(asked, load)
        self.world: Any = self.env.unwrapped
        self.quantities = _quantities(self.agent)
        self.names = action_names(held_out)
        limit = held_out.time_limit or 0
        self.longest = ENDLESS if self._writes else max(limit, LONGEST)

    @property
    def _writes(self) -> bool:
        return hasattr(self.world, "rules")

    def prompts(self) -> list[dict[str, str | None]]:
        """Each start: the `text` of a prompt and its reference `answer`; in other environments its
        number."""
        places = range(0, len(self.starts), self.samples)
        if not self._writes:
            return [{"text": f"start {self.starts[place]}", "answer": None} for place in places]
        rules = self.world.rules
        chosen = [self.starts[place] % len(rules.texts) for place in places]
        return [{"text": rules.texts[prompt], "answer": rules.answers[prompt]} for prompt in chosen]

    def moment(self, step: int, before: Moment | None) -> Moment:
        """What the policy does at this moment. The agent, including its random generators, is not
        changed.

        Args:
            step: of training, for the record.
            before: the moment before this one.

        Returns:
            `episodes`, those of one start next to each other: `reward`, `rewards` by name,
            `tokens`, `ids`, `states` where they have names, and a list for each quantity, an item
            an action. `ratio`: the probability that the policy now has for the actions of the
            moment before, over what it had then. `again`: how far the ratio of the new actions,
            evaluated again, is from 1 at most.
        """
        with use_one_thread():
            ratio = None if before is None else self._ratio(before)
            rollout, named = play_round(
                self.agent.policy,
                self.env,
                self.starts,
                rng_for(self.seed, "noise"),
                longest=self.longest,
            )
            columns, again = self._measure(rollout)
            return {
                "step": step,
                "again": again,
                "ratio": ratio,
                "episodes": self._episodes(rollout, named, columns),
            }

    def _measure(self, rollout: Rollout) -> tuple[dict[str, np.ndarray], float | None]:
        """Every quantity [N, T], and the ratio between π now and π when the actions were drawn."""
        from rlbook.networks.policy import as_array

        batch = self.agent.policy.batch(rollout, "episode")
        found = evaluated_rows(self.agent, batch)
        again = float(
            np.abs(np.expm1(found.pop("log_prob") - as_array(batch.log_prob)))[
                as_array(batch.mask)
            ].max(initial=0.0)
        )
        found["probability"] = np.exp(as_array(batch.log_prob))
        advantage = advantages(self.agent, rollout)
        if advantage is not None:
            found["advantage"] = as_array(advantage)
        return {
            name: found[name] for name in self.quantities.meaning if name in found
        }, round_significant(again)

    def _episodes(
        self, rollout: Rollout, named: dict[str, np.ndarray], columns: dict[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        names = ("action", "reward", "valid")
        action, reward, valid = (rollout.tensor(name).cpu().numpy() for name in names)
        action, reward, lengths = action.T, reward.sum(axis=0), valid.sum(axis=0).tolist()
        states = self._states(rollout)
        episodes = []
        for row, length in enumerate(lengths):
            ids = action[row, :length].tolist()
            parts = {
                name: round_significant(values[row])
                for name, values in named.items()
                if math.isfinite(values[row])
            }
            numbers = {
                name: [round_significant(value) for value in values[row, :length]]
                for name, values in columns.items()
            }
            where = {} if states is None else {"states": states[row][:length]}
            head = {
                "reward": round_significant(reward[row]),
                "rewards": parts,
                "tokens": [self._name(one) for one in ids],
                "ids": ids,
            }
            episodes.append(head | where | numbers)
        return episodes

    def _name(self, action: int) -> str:
        if self._writes:
            return self.world.rules.codec.decode([action])
        return self.names[action] if self.names else str(action)

    def _states(self, rollout: Rollout) -> list[list[str]] | None:
        """The state index of each action, for environments with numbered states."""
        own = self.env.env.single_observation_space
        if self._writes or not isinstance(own, spaces.Discrete):
            return None
        numbers = (
            rollout.tensor("obs").cpu().numpy().argmax(axis=-1).T
        )  # one-hot [T, N, S] → [N, T]
        layout = getattr(getattr(self.world, "tables", None), "layout", None)
        if layout is None:
            return [[f"state {number}" for number in row] for row in numbers.tolist()]
        return [
            ["row {}, column {}".format(*divmod(number, layout.columns)) for number in row]
            for row in numbers.tolist()
        ]

    def _ratio(self, before: Moment) -> list[list[float | None]]:
        """π now over π then, for a moment's actions, which are replayed so that the policy sees the
        same states."""
        episodes = before["episodes"]
        actions = np.zeros(
            (max(len(item["ids"]) for item in episodes), len(episodes)), dtype=np.int64
        )
        for row, item in enumerate(episodes):
            actions[: len(item["ids"]), row] = item["ids"]
        rollout, _ = play_round(
            self.agent.policy, self.env, self.starts, None, actions=actions, longest=self.longest
        )
        batch = self.agent.policy.batch(rollout, "episode")
        now = np.exp(
            evaluated_rows(self.agent, batch, log_prob_alone=True)["log_prob"].astype(np.float64)
        )
        return [
            [
                round_significant(p / then) if then else None
                for p, then in zip(now[row], item["probability"], strict=False)
            ]
            for row, item in enumerate(episodes)
        ]


def play_round(
    policy: Policy,
    env: VectorEnv,
    starts: Sequence[int],
    rng: np.random.Generator | None,
    *,
    actions: np.ndarray | None = None,
    longest: int = ENDLESS,
    scoring: str = "round",
) -> tuple[Rollout, dict[str, np.ndarray]]:
    """Plays one round of whole episodes into a separate rollout.

    Args:
        policy: acts; greedily where `rng` is None.
        env: N environments.
        starts: a reset seed for each.
        rng: of the policy's choices.
        actions: [T, N], are taken in place of the policy's.
        longest: steps after which an episode is cut.
        scoring: as of a `VectorInteraction`.

    Returns:
        The rollout, and what the environment said of each episode by name: [N], NaN where it said
        nothing.
    """
    from rlbook.data.rollout import Rollout
    from rlbook.networks.policy import module_device

    rollout, state, log_prob = (
        Rollout(policy.stores, module_device(policy)),
        policy.initial_state(),
        np.zeros(0, dtype=np.float32),
    )
    named: dict[str, np.ndarray] = {}

    def act(obs: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
        nonlocal log_prob
        if actions is not None:
            log_prob = np.zeros(len(starts), dtype=np.float32)
            return actions[min(len(rollout.steps), len(actions) - 1)]
        action, log_prob = policy.act(obs, rng, state)
        return action

    def learn(step: Step) -> None:
        for name, values in (step.info or {}).items():
            told = np.broadcast_to(np.asarray(values, dtype=np.float64), step.valid.shape)
            kept = named.setdefault(name, np.full(len(starts), np.nan))
            named[name] = np.where(logged_rows(step) & np.isfinite(told), told, kept)
        rollout.add(step, log_prob)

    interaction = VectorInteraction(
        env, rollout="episodes", seeds=list(starts), longest=longest, scoring=scoring
    )
    for _ in act_step_reset(interaction, act, learn):
        pass
    return rollout, named


def evaluated_rows(
    agent: PolicyAgent, batch: Batch, *, log_prob_alone: bool = False
) -> dict[str, np.ndarray]:
    """The networks' outputs for episodes, each [N, T]: `log_prob`, `entropy`, `value` (with a
    critic), `kl` and `reference` (with a reference policy).

    A few rows at a time: the distributions of all over a large vocabulary would not fit into the
    memory.
    """
    import torch

    from rlbook.networks.policy import as_array

    pieces: dict[str, list[np.ndarray]] = {}
    with torch.no_grad():
        for first in range(0, len(batch), ROWS):
            rows = batch[slice(first, first + ROWS)]
            log_prob, entropy, value = agent.policy.evaluate(rows, entropy=not log_prob_alone)
            found: dict[str, Tensor | None] = {"log_prob": log_prob}
            if not log_prob_alone:
                found |= {"entropy": entropy, "value": value}
            if agent.reference is not None and not log_prob_alone:
                found["kl"] = agent.policy.distributions(rows).kl(
                    agent.reference.distributions(rows)
                )
                found["reference"] = agent.reference.evaluate(rows, entropy=False)[0].exp()
            for name, values in found.items():
                if values is not None:
                    pieces.setdefault(name, []).append(as_array(values))
    return {name: np.concatenate(values) for name, values in pieces.items()}


def advantages(agent: PolicyAgent, rollout: Rollout) -> Tensor | None:
    """The algorithm's own advantage for each action of whole episodes, [N, T]; None if it has no
    advantages."""
    import torch

    from rlbook.algorithms.policy.dpo import DPO

    if isinstance(agent, DPO):
        batch = agent.policy.batch(rollout, "episode")
        reference = agent.reference_log_prob(batch)
        return None if reference is None else agent.config.beta * (batch.log_prob - reference)
    if advantage_meaning(agent) is None:
        return None
    twin: Any = copy.copy(agent)
    twin.rollout_data, twin.reward_scale = rollout, copy.deepcopy(agent.reward_scale)
    twin.sampling = None  # of groups: all of them are shown
    found = twin.prepare()
    advantage = (found[0] if isinstance(found, tuple) else found).advantage
    if advantage.dim() == 2:
        return advantage
    mask = rollout.tensor("valid")  # rows of steps: [B]
    return (
        torch.zeros(mask.shape, dtype=advantage.dtype, device=mask.device)
        .masked_scatter(mask, advantage)
        .T
    )


def advantage_meaning(agent: PolicyAgent) -> str | None:
    """The meaning of the agent's advantages; None if it has none."""
    from rlbook.algorithms.policy.a2c import A2C
    from rlbook.algorithms.policy.dpo import DPO
    from rlbook.algorithms.policy.grpo import GRPO
    from rlbook.algorithms.policy.ppo import PPO
    from rlbook.algorithms.policy.reinforce import Reinforce
    from rlbook.algorithms.policy.trpo import TRPO

    config = agent.config
    if isinstance(agent, DPO):
        return (
            "implicit reward of the action, β log(π / π_ref)"
            if agent.reference is not None
            else None
        )
    if isinstance(agent, GRPO):
        unit = "reward units" if config.scale == "none" else "standard deviations"
        return (
            "how much better the whole episode did than its group, the same for each action, in"
            f" {unit}"
        )
    if isinstance(agent, Reinforce):
        return "what followed minus the baseline, in reward units"
    prepare = getattr(type(agent), "prepare", None)
    if prepare is PPO.prepare:
        return "generalised estimate by the critic, before it is standardised, in reward units"
    if prepare in (A2C.prepare, TRPO.prepare):
        return (
            "generalised estimate by the critic, in"
            f" {'standard deviations' if config.normalize_advantage else 'reward units'}"
        )
    return None  # gail's own prepare would train


def _quantities(agent: PolicyAgent) -> Quantities:
    name, meaning, absent = (
        name_of(type(agent)),
        {"probability": "π(a|s) when the action was drawn, from 0 to 1"},
        {},
    )
    known = advantage_meaning(agent)
    if known is None:
        absent["advantage"] = f"{name} has no advantages"
    else:
        meaning["advantage"] = known
    if agent.reference is None:
        absent["kl"] = (
            f"{name} has no reference "
            f"here{'' if not hasattr(agent.config, 'kl_coef') else ', because kl_coef is 0'}"
        )
    else:
        meaning["kl"] = "KL(π ‖ π_ref) in this state, over all actions, in nats"
        meaning["reference"] = "π_ref(a|s), the reference's probability of this action, from 0 to 1"
    meaning["entropy"] = "of π(·|s), in nats; 0 means deterministic"
    if agent.policy.value_parameters():
        meaning["value"] = "V(s) of the critic before the action, in reward units"
    else:
        absent["value"] = (
            f"{name} has no"
            f" critic{' with this baseline' if hasattr(agent.config, 'baseline') else ''}"
        )
    meaning["ratio"] = (
        "π(a|s) at the next record, after the updates in between, over π(a|s) here; 1 is no change"
    )
    return Quantities(meaning, absent)


def action_names(recipe: EnvRecipe) -> Sequence[str] | None:
    """The names of the actions, if the environment defines them."""
    env: Any = recipe.make().unwrapped
    return (
        ACTION_NAMES
        if hasattr(getattr(env, "tables", None), "layout")
        else getattr(env, "action_names", ()) or None
    )


def round_significant(value: float) -> float | None:
    """Rounds to six significant digits, the precision of a single-precision number; None if it is
    not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
