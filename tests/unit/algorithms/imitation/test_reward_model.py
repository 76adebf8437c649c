"""The reward model: one class on the maze and on texts, by hand, taken up after its first update,
and paying another agent."""

from __future__ import annotations

import dataclasses
import json
from math import exp, factorial, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from numpy.typing import NDArray

import rlbook
from rlbook.algorithms.imitation.preference_scores import member_averages, member_scores
from rlbook.algorithms.imitation.reward_model import RewardModel, reward_model_loss
from rlbook.data import Episode, Groups, Pairs
from rlbook.errors import RequestError, TrainingError
from rlbook.functional.post_training.preference_losses import (
    bradley_terry_loss,
    centring_loss,
    plackett_luce_loss,
)
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.runs.run import Run
from rlbook.runs.storage.state_encoding import encode

EYE = np.eye(25, dtype=np.float32)
WALKS = [
    Episode(EYE[[0, 1]], np.array([3, 3]), np.array([-1.0, -1.0], np.float32)),
    Episode(EYE[[0, 0, 5]], np.array([0, 1, 2]), np.array([-5.0, -1.0, -5.0], np.float32)),
    Episode(EYE[[0]], np.array([0]), np.array([-5.0], np.float32)),
]
TEXTS = [
    Episode(np.array([1, 5, 6]), np.array([7, 8, 2])),
    Episode(np.array([1, 5, 6, 9]), np.array([7, 2])),
]


def agent_for(env: str, **settings: object) -> RewardModel:
    config = RewardModel.Config(**settings)  # type: ignore[arg-type]
    return RewardModel(adapted_vector(RewardModel, EnvRecipe.from_env(env), 2, config), config)


# ---- the losses


def test_bradley_terry_is_the_hand_computed_one() -> None:
    better, worse = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5])
    expected = (log(1 + exp(-1.0)) + log(1 + exp(0.5))) / 2  # differences 1 and -.5
    assert bradley_terry_loss(better, worse).item() == near(expected, dtype="float32", terms=4)
    assert bradley_terry_loss(better, better).item() == near(log(2), dtype="float32", terms=4)


def test_a_margin_is_taken_off_the_difference() -> None:
    better, worse = torch.tensor([2.0]), torch.tensor([1.0])
    assert bradley_terry_loss(better, worse, margin=3.0).item() == near(
        log(1 + exp(2.0)), dtype="float32", terms=3
    )


def test_plackett_luce_is_the_hand_computed_one() -> None:
    """First place from three, second from the two that are left, third for nothing; and a group of
    two beside it."""
    score = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.5, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    three = log((exp(2) + exp(1) + 1) / exp(2)) + log((exp(1) + 1) / exp(1))
    two = log((1 + exp(0.5)) / 1)
    assert plackett_luce_loss(score, mask).item() == near((three + two) / 2, terms=8)


def test_equal_scores_make_every_order_alike() -> None:
    loss = plackett_luce_loss(torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.bool))
    assert loss.item() == near(log(factorial(4)), dtype="float32", terms=8)


def test_ties_are_no_preferences() -> None:
    """Levels 3, 2, 2, 1: the two in the middle win against the last alone, and lose against the
    first."""
    score = torch.tensor([[2.0, 1.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    level, mask = torch.tensor([[3.0, 2.0, 2.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool)
    loss = plackett_luce_loss(score, mask, level=level)
    first = log(exp(2) + exp(1) + exp(-1) + 1) - 2
    tied = (log(exp(1) + 1) - 1) + (log(exp(-1) + 1) + 1)
    assert loss.item() == near(first + tied, dtype="float64", terms=12)
    swapped = plackett_luce_loss(score[:, [0, 2, 1, 3]], mask, level=level)
    assert swapped.item() == near(loss.item(), dtype="float64", terms=12), (
        "which of the tied stands first means nothing"
    )


def test_a_group_of_ties_costs_nothing_and_teaches_nothing() -> None:
    score = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    loss = plackett_luce_loss(score, torch.ones(1, 3, dtype=torch.bool), level=torch.ones(1, 3))
    loss.backward()
    assert loss.item() == 0.0 and score.grad is not None and not score.grad.any()


def test_levels_without_ties_are_the_order() -> None:
    score, mask = torch.tensor([[0.3, -1.0, 2.0]]), torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(
        plackett_luce_loss(score, mask),
        plackett_luce_loss(score, mask, level=-torch.arange(3.0)[None]),
    )


def test_rows_with_equal_scores_train_no_order(tmp_path: Path) -> None:
    """Three answers, of which two have one score: two pairs are left of three, and of a row of ties
    none."""
    from rlbook.data import load as load_data

    rows = [
        {"prompt": "10+20=", "completions": ["30", "31", "32"], "scores": [1.0, 0.5, 0.5]},
        {"prompt": "10+21=", "completions": ["30", "31", "32"], "scores": [2.0, 2.0, 2.0]},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data: Any = load_data(
        tmp_path / "rows.jsonl",
        adapted_vector(RewardModel, EnvRecipe.from_env("Addition-v0"), 2, RewardModel.Config()),
    )
    agent = agent_for("Addition-v0", held_out=0.0)
    better, worse = agent.ordered_scores(data, np.arange(2))
    assert len(better) == len(worse) == 2
    assert agent.accuracy(data, np.array([1])) is None
    metrics = agent.update(data[np.array([1])])  # ties alone
    assert metrics["loss"] == 0.0 and metrics["grad_norm"] == 0.0 and "accuracy" not in metrics
    metrics = agent.update(data[np.arange(2)])  # all scores are 0 at first
    assert metrics["loss"] == near(log(3) / 2, dtype="float32", terms=3)


def test_a_group_of_two_is_a_pair_in_loss_and_gradient() -> None:
    better, worse = torch.tensor([0.3, -1.0], requires_grad=True), torch.tensor([0.1, 2.0])
    pairs = torch.autograd.grad(bradley_terry_loss(better, worse), better)[0]
    score = torch.stack([better, worse], dim=1)
    groups = torch.autograd.grad(
        plackett_luce_loss(score, torch.ones(2, 2, dtype=torch.bool)), better
    )[0]
    assert_near(pairs, groups, terms=4, size=1.0)


def test_nothing_flows_through_the_padding_of_a_group() -> None:
    score = torch.tensor([[1.0, 0.0, torch.nan]], requires_grad=True)
    plackett_luce_loss(score, torch.tensor([[True, True, False]])).backward()
    assert score.grad is not None and score.grad[0, 2] == 0 and score.grad.isfinite().all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: bradley_terry_loss(torch.zeros(3, 1), torch.zeros(3)),
        lambda: bradley_terry_loss(torch.zeros(3, 1), torch.zeros(3, 1)),
        lambda: plackett_luce_loss(torch.zeros(3), torch.ones(3, dtype=torch.bool)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


def test_a_margin_may_differ_from_pair_to_pair() -> None:
    better, worse = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5])
    expected = (log(1 + exp(-0.5)) + log(1 + exp(1.5))) / 2  # 1 - .5 and -.5 - 1
    assert bradley_terry_loss(better, worse, margin=torch.tensor([0.5, 1.0])).item() == near(
        expected, dtype="float32", terms=5
    )
    with pytest.raises(ValueError, match="margin must have the shape of better"):
        bradley_terry_loss(better, worse, margin=torch.tensor([0.5]))


def test_centring_makes_the_scores_of_a_pair_cancel_out() -> None:
    better, worse = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5])
    assert centring_loss(better, worse).item() == near(
        (3.0**2 + 0.5**2) / 2, dtype="float32", terms=4
    )
    for env, episodes in (("Maze-v0", WALKS), ("Addition-v0", TEXTS)):
        agent = agent_for(env, learning_rate=1e-2, center_coef=0.1)
        pairs = Pairs(episodes[:1], episodes[1:2])[np.array([0])]
        for _ in range(24):
            agent.update(pairs)
        scores = [agent.score(pairs[place]).item() for place in (0, 1)]
        assert abs(sum(scores)) < 0.2 * (scores[0] - scores[1])


# ---- an ensemble

ENSEMBLE: dict[str, Any] = {"members": 3, "center_coef": 0.01}


def test_the_reward_of_an_ensemble_is_its_mean_and_its_spread_is_known() -> None:
    agent = agent_for("Maze-v0", **ENSEMBLE)
    obs, action, over = EYE[[0, 1]], np.array([3, 1]), np.array([False, True])
    members = [
        member.step_rewards(torch.from_numpy(obs), torch.from_numpy(action), None, None)
        for member in agent.network.members
    ]  # type: ignore[union-attr]
    each = torch.stack(members).detach().numpy()
    reward, spread = agent.score_steps(obs, action, obs, over)
    rounded: Any = {
        "dtype": "float32",
        "terms": 3 + widths(agent.network.members[0]),
        "size": float(np.abs(each).max()),
    }  # type: ignore[union-attr]
    assert reward == near(each.mean(0), **rounded) and spread == near(
        each.std(0, ddof=1), **rounded
    )
    whole = agent.network.step_rewards(torch.from_numpy(obs), torch.from_numpy(action), None, None)  # type: ignore[arg-type]
    assert whole.detach().numpy() == near(each.mean(0), **rounded)
    assert len({float(one[0]) for one in each}) == 3


def test_the_disagreement_is_over_the_members_of_an_episodes_score() -> None:
    agent, data = agent_for("Maze-v0", **ENSEMBLE), Pairs([WALKS[0]] * 2, [WALKS[1], WALKS[2]])
    batch = data[np.arange(2)]
    config = agent.config
    found = float(reward_model_loss(agent.network, batch, config=config).metrics["disagreement"])
    with torch.no_grad():
        scores = torch.cat([member_scores(agent.network, side) for side in batch[:2]], dim=1)
    each = scores.double().numpy()  # [K, 4]
    expected = np.mean([np.std(of_episode, ddof=1) for of_episode in each.T])
    assert found == near(expected, dtype="float32", terms=len(each) * 4, size=np.abs(each).max())


def test_members_learn_from_rows_of_their_own_and_part_ways_on_texts_too() -> None:
    agent = agent_for("Addition-v0", learning_rate=1e-2, **ENSEMBLE)
    data = Pairs([TEXTS[0]] * 3 + [TEXTS[1]], [TEXTS[1]] * 3 + [TEXTS[0]])
    for _ in range(4):
        metrics = agent.update(data[np.arange(4)])
    assert metrics["disagreement"] > 1e-3
    shares = torch.stack(member_averages(data[np.arange(4)], 3, agent.drawing))
    assert (
        shares.sum(1).tolist() == near([1.0] * 3, dtype="float32", terms=4)
        and (shares * 4 == (shares * 4).round()).all()
    )
    shown = {"tokens": np.zeros((2, 12), dtype=np.int64), "length": np.array([6, 6])}
    _, spread = agent.score_steps(shown, np.array([2, 2]), shown, np.array([True, False]))
    assert spread is not None and np.isnan(spread).tolist() == [False, True]


def test_an_ensemble_without_a_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="center_coef must be above 0 where members is 3"):
        RewardModel.Config(members=3)


@pytest.mark.thorough
@pytest.mark.parametrize("env", [pytest.param("Maze-v0", marks=pytest.mark.slow), "Addition-v0"])
def test_an_ensemble_cut_after_its_first_update_goes_on_bit_for_bit_and_pays(
    tmp_path: Path, env: str
) -> None:
    lines = [
        {"prompt": f"{n}+10=", "chosen": str(n + 10), "rejected": "99", "margin": 0.1 * (n % 3)}
        for n in range(10, 30)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = (
        ENSEMBLE
        | ({"walks": 10} if env == "Maze-v0" else {"data": tmp_path / "rows.jsonl"})
        | {"batch_size": 8}
    )
    whole = rlbook.train("reward_model", env, steps=4, **settings)
    rlbook.train("reward_model", env, steps=1, out=tmp_path / "run", **settings)
    resumed = rlbook.load(tmp_path / "run").resume(steps=4)
    for ours, theirs in zip(
        whole.agent.network.parameters(), resumed.agent.network.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)
    paid = rlbook.train(
        "ppo",
        env,
        steps=200,
        num_envs=8,
        reward_model=tmp_path / "run",
        reward_caution=1.0,
        eval_every=0,
    )
    assert any(report.get("disagreement", 0.0) > 0.0 for report in paid.metrics)


def test_a_margin_in_the_data_reaches_the_loss(tmp_path: Path) -> None:
    from rlbook.data import load as load_data

    rows = [
        {"prompt": "10+20=", "chosen": "30", "rejected": "99", "margin": 2.0},
        {"prompt": "10+21=", "chosen": "31", "rejected": "99"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RewardModel.Config()
    data: Any = load_data(
        tmp_path / "rows.jsonl",
        adapted_vector(RewardModel, EnvRecipe.from_env("Addition-v0"), 2, config),
    )
    batch = data[np.arange(2)]
    assert batch.margin.tolist() == [2.0, 0.0]
    metrics = agent_for("Addition-v0").update(batch)  # all scores are 0 at first
    assert metrics["loss"] == near((log(1 + exp(2.0)) + log(2)) / 2, dtype="float32", terms=4)
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows[0] | {"margin": "much"}) + "\n")
    with pytest.raises(
        RequestError, match="line 1: margin must be a number of at least 0, got 'much'"
    ):
        load_data(
            tmp_path / "rows.jsonl",
            adapted_vector(RewardModel, EnvRecipe.from_env("Addition-v0"), 2, config),
        )


# ---- the agent


def test_the_maze_agent_and_the_token_agent_are_of_one_class() -> None:
    maze, tokens = agent_for("Maze-v0"), agent_for("Addition-v0")
    assert type(maze) is type(tokens) is rlbook.algorithms()["reward_model"]
    assert RewardModel.sources() == ("data",) and not RewardModel.plays()


def test_a_walks_score_is_the_sum_of_its_steps_however_long_its_neighbour() -> None:
    agent = agent_for("Maze-v0")
    alone = [agent.score(Pairs([walk], [walk])[np.array([0])][0]).item() for walk in WALKS]
    steps = [
        [agent.network.rewards(_steps(walk, t)).item() for t in range(len(walk.action))]
        for walk in WALKS
    ]
    # sums of up to three rewards
    rounded: Any = {
        "dtype": "float32",
        "terms": 3 + widths(agent.network),
        "size": 3.0,
    }
    assert alone == near([sum(rewards) for rewards in steps], **rounded)
    together = agent.score(Groups([WALKS])[np.array([0])].episodes)
    assert together.tolist() == near(alone, **rounded)


def _steps(walk: Episode, t: int) -> Any:
    one = Episode(walk.obs[t : t + 1], walk.action[t : t + 1])
    return Pairs([one], [one])[np.array([0])][0]


def test_a_texts_score_is_read_behind_its_last_token() -> None:
    """Alone, beside a longer one, and as the environment shows the finished text: three ways to one
    number."""
    agent = agent_for("Addition-v0")
    torch.nn.init.normal_(agent.network.score.weight, generator=torch.Generator().manual_seed(0))
    alone = [agent.score(Pairs([text], [text])[np.array([0])][0]).item() for text in TEXTS]
    together = agent.score(Groups([TEXTS])[np.array([0])].episodes)
    # h ≈ ±1
    rounded: Any = {
        "dtype": "float32",
        "terms": widths(agent.network),
        "size": float(agent.network.score.weight.detach().norm()),
    }
    assert together.tolist() == near(alone, **rounded) and alone[0] != near(alone[1], **rounded)
    tokens = np.full((3, 12), 0)
    for row, text in enumerate([*TEXTS, TEXTS[0]]):
        tokens[row, : len(text.obs) + len(text.action)] = np.concatenate([text.obs, text.action])
    shown = {"tokens": tokens, "length": np.array([6, 6, 6])}
    paid, _ = agent.score_steps(shown, np.array([2, 2, 2]), shown, np.array([True, True, False]))
    assert paid.tolist() == near([*alone, 0.0], **rounded) and paid[2] == 0.0


def test_before_learning_texts_are_all_alike() -> None:
    metrics = agent_for("Addition-v0").update(Pairs(TEXTS[:1], TEXTS[1:])[np.array([0])])
    # a tie is not right
    assert metrics["loss"] == near(log(2), dtype="float32", terms=4) and metrics["accuracy"] == 0.0


@pytest.mark.parametrize(("env", "episodes"), [("Maze-v0", WALKS), ("Addition-v0", TEXTS)])
@pytest.mark.parametrize("in_groups", [True, False])
def test_an_order_is_learned(env: str, episodes: list[Episode], in_groups: bool) -> None:
    agent = agent_for(env, learning_rate=1e-2)
    data = Groups([episodes]) if in_groups else Pairs(episodes[:1], episodes[1:2])
    for _ in range(15):
        metrics = agent.update(data[np.array([0])])  # type: ignore[index]
    assert metrics["accuracy"] == 1.0 and metrics["margin"] > 1.0 and metrics["loss"] < 0.3


def test_rows_held_out_are_never_learned_from_and_are_tested_once_a_pass() -> None:
    class Seen(Pairs):
        rows: list[list[int]] = []

        def __getitem__(self, rows: NDArray[np.int64]) -> Any:
            self.rows.append(rows.tolist())
            return super().__getitem__(rows)

    data = Seen([WALKS[0]] * 10, [WALKS[1]] * 10)
    agent, found = agent_for("Maze-v0", held_out=0.3, batch_size=4), []
    for metrics, _ in zip(agent.fit(data), range(4), strict=False):
        found.append("held_out_accuracy" in metrics)
    assert found == [False, True, False, True]  # 7 rows are 4 + 3
    learned, tested = {row for rows in data.rows[:2] for row in rows}, set(data.rows[2])
    assert len(learned) == 7 and len(tested) == 3 and not learned & tested


@pytest.mark.parametrize("env", [pytest.param("Maze-v0", marks=pytest.mark.slow), "Addition-v0"])
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(tmp_path: Path, env: str) -> None:
    settings: dict[str, Any] = {"batch_size": 8, "held_out": 0.2}
    if env == "Maze-v0":
        settings |= {"walks": 10}
    else:
        lines = [
            {"prompt": f"{n}+10=", "chosen": str(n + 10), "rejected": "99"} for n in range(10, 40)
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        settings |= {"data": tmp_path / "rows.jsonl"}

    whole = rlbook.train("reward_model", env, steps=7, **settings)
    rlbook.train("reward_model", env, steps=1, out=tmp_path / "run", **settings)
    cut = rlbook.load(tmp_path / "run")
    assert cut.steps == 1 and cut.agent.optimizer.steps == 1  # type: ignore[attr-defined]
    resumed = cut.resume(steps=7)
    assert resumed.steps == 7 and resumed.passes == whole.passes
    for ours, theirs in zip(
        whole.agent.network.parameters(), resumed.agent.network.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


def test_a_reward_model_cannot_be_played() -> None:
    run = rlbook.train("reward_model", "Maze-v0", steps=1, walks=5)
    assert not any("eval_return" in report for report in run.metrics)
    with pytest.raises(RequestError, match="RewardModel does not act"):
        rlbook.evaluate(run, episodes=1)


def test_recorded_walks_with_rewards_are_ranked() -> None:
    from rlbook.data import Episodes

    run = rlbook.train("reward_model", "Maze-v0", data=Episodes(WALKS), steps=2, batch_size=4)
    assert run.steps == 2
    bare = [Episode(walk.obs, walk.action) for walk in WALKS]
    with pytest.raises(
        RequestError,
        match="pairs cannot be made of these data: this episode was recorded without rewards",
    ):
        rlbook.train("reward_model", "Maze-v0", data=Episodes(bare), steps=1)


# ---- in the environment's place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "maze"
    rlbook.train("reward_model", "Maze-v0", steps=30, walks=40, out=where)
    return where


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "texts"
    rlbook.train("reward_model", "Addition-v0", steps=3, out=where)
    return where


def paid_steps(model: RewardModel, actions: list[int]) -> float:
    """What walking from the start is worth to the model."""
    env = rlbook.make("Maze-v0")
    state, total = int(env.reset(seed=0)[0]), 0.0
    for action in actions:
        after = int(env.step(action)[0])
        total += model.score_steps(
            EYE[[state]], np.array([action]), EYE[[after]], np.array([False])
        )[0][0]
        state = after
    return total


WAY = [3, 3, 1, 1, 3, 3, 0, 0]


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_the_model_pays_while_training_and_the_environment_in_the_evaluation(
    algorithm: str, folder: Path
) -> None:
    """Whoever walks the shortest way is paid Σ r(s, a) in training, and 3.0 in an evaluation."""
    from rlbook.runs.request import Request

    run = Run(
        Request.build(
            algorithm,
            "Maze-v0",
            reward_model=folder,
            **({"num_envs": 3} if algorithm == "ppo" else {}),
        )
    )
    interaction, wrap = (
        run._source.interaction,
        (lambda a: np.full(3, a)) if algorithm == "ppo" else (lambda a: a),
    )  # type: ignore[attr-defined]
    interaction.start()
    paid = [np.ravel(interaction.step(wrap(action)).reward)[0] for action in WAY]
    expected = paid_steps(rlbook.load(folder).agent, WAY)  # type: ignore[arg-type]
    terms, size = len(WAY) + widths(rlbook.load(folder).agent.network), float(np.abs(paid).sum())  # type: ignore[attr-defined]
    assert (
        sum(paid) == near(expected, dtype="float32", terms=terms, size=size)
        and abs(sum(paid) - 3.0) > 1e-2
    )
    play = run.request.recipe.for_evaluation().make()
    play.reset(seed=0)
    assert sum(float(play.step(action)[1]) for action in WAY) == 3.0


def test_a_table_leaves_its_fast_form_where_a_model_pays(folder: Path) -> None:
    run = rlbook.train("q_learning", "Maze-v0", episodes=3, reward_model=folder)
    plain = rlbook.train("q_learning", "Maze-v0", episodes=3)
    assert any("sampled from the model" in note for note in plain.notes)
    assert not any("sampled from the model" in note for note in run.notes)
    assert run.episode_returns != plain.episode_returns


def test_texts_are_paid_when_they_are_finished(texts: Path) -> None:
    from rlbook.runs.request import Request

    run = Run(
        Request.build(
            "grpo", "Addition-v0", reward_model=texts, num_envs=8, hyperparameters={"group_size": 4}
        )
    )
    interaction, model = run._source.interaction, rlbook.load(texts).agent  # type: ignore[attr-defined]
    interaction.start()
    eos, paid = 2, np.zeros(8)
    for tokens in ([7] * 8, [8] * 4 + [eos] * 4, [eos] * 8):
        step = interaction.step(np.array(tokens))
        ended = (step.terminated | step.truncated) & step.valid
        paid += model.score_steps(step.obs, step.action, step.next_obs, ended)[0]  # type: ignore[attr-defined]
        assert (step.reward[~ended] == 0).all() and (step.final_reward is None) == (
            tokens[0] != eos
        )
        interaction.reset_finished()
    # all at once, when the last text is finished
    assert step.final_reward.tolist() == near(
        paid.tolist(), dtype="float32", terms=widths(model.network), size=1.0
    )  # type: ignore[attr-defined]
    assert (step.reward[:4] == step.final_reward[:4]).all() and (step.reward[4:] == 0).all()
    assert len(set(np.round(paid, 4))) > 1


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo", "dqn"])
def test_a_paid_run_goes_on_bit_for_bit_in_the_middle_of_an_episode(
    algorithm: str, folder: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"ppo": {"num_envs": 2, "rollout_steps": 8}}.get(algorithm, {})
    options = {"reward_model": str(folder), "eval_every": 0, "steps": 80, **settings}

    def stop(run: Run) -> None:
        if run.steps >= 44:  # the last checkpoint is that of step 40
            raise KeyboardInterrupt

    whole = rlbook.train(algorithm, "Maze-v0", **options)
    with pytest.raises((KeyboardInterrupt, TrainingError)):
        rlbook.train(algorithm, "Maze-v0", out=tmp_path / "run", on_report=stop, **options)
    cut = rlbook.load(tmp_path / "run")
    assert cut.steps == 40
    resumed = cut.resume()
    assert encode(whole._source.state_dict())[0] == encode(resumed._source.state_dict())[0]
    for ours, theirs in zip(arrays_of(whole), arrays_of(resumed), strict=True):
        assert np.array_equal(ours, theirs)
    assert whole.metrics == resumed.metrics


def arrays_of(run: Run) -> list[NDArray[Any]]:
    """Every array of the agent's and the source's state."""
    state = {"agent": run.agent.state_dict(), "source": run._source.state_dict()}
    return [array for _, array in sorted(encode(state)[1].items())]


def test_a_model_of_another_environment_is_refused(folder: Path, texts: Path) -> None:
    with pytest.raises(
        RequestError,
        match=(
            "ppo does not train on Addition-v0: the reward model was made for another environment"
        ),
    ):
        rlbook.train("ppo", "Addition-v0", reward_model=folder)
    with pytest.raises(
        RequestError,
        match="ppo does not train on Maze-v0: the reward model was made for another environment",
    ):
        rlbook.train("ppo", "Maze-v0", reward_model=texts)


def test_an_agent_that_is_no_reward_model_cannot_pay(tmp_path: Path) -> None:
    other = rlbook.train("q_learning", "Maze-v0", episodes=2)
    with pytest.raises(
        RequestError, match="reward_model must be a run of reward_model, got one of QLearning"
    ):
        rlbook.train("ppo", "Maze-v0", reward_model=other)


def test_a_run_in_a_folder_must_find_its_reward_model_again(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match="a run in a folder must be able to reload its reward_model"
    ):
        rlbook.train(
            "q_learning",
            "Maze-v0",
            episodes=2,
            reward_model=rlbook.load(folder),
            out=tmp_path / "run",
        )


def test_a_reward_model_that_was_trained_on_since_is_noticed(tmp_path: Path) -> None:
    rlbook.train("reward_model", "Maze-v0", steps=2, walks=10, out=tmp_path / "model")
    rlbook.train(
        "q_learning",
        "Maze-v0",
        episodes=2,
        reward_model=tmp_path / "model",
        out=tmp_path / "run",
    )
    rlbook.load(tmp_path / "model").resume(steps=4)
    with pytest.raises(RequestError, match="reward_model has changed since the run was started"):
        rlbook.load(tmp_path / "run").resume(episodes=4)


@pytest.mark.slow
def test_ppo_reaches_the_optimum_with_a_reward_learned_from_500_ranked_walks() -> None:
    """8 seeds of 8 do, of which 5 are played here; the walks themselves are uniformly random."""
    reached = 0
    for seed in range(5):
        model = rlbook.train("reward_model", "Maze-v0", seed=seed)
        run = rlbook.train("ppo", "Maze-v0", seed=seed, reward_model=model)
        reached += rlbook.evaluate(run, episodes=1).mean == 3.0
    assert reached >= 4


@pytest.mark.slow
def test_far_pairs_are_told_apart_and_near_misses_are_not() -> None:
    run = rlbook.train("reward_model", "Addition-v0")
    assert (
        next(
            report["held_out_accuracy"]
            for report in reversed(run.metrics)
            if "held_out_accuracy" in report
        )
        >= 0.9
    )


def test_a_budget_of_steps_is_no_number_of_walks_where_there_are_none(tmp_path: Path) -> None:
    """Texts are not walked through, and recorded pairs are there already: `walks` is as it was, and
    so it is not refused."""
    run = rlbook.train("reward_model", "Addition-v0", steps=2, eval_every=0)
    assert run.steps == 2 and run.request.config.walks == RewardModel.Config().walks
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "\n".join(
            json.dumps({"prompt": "1+1=", "chosen": "2", "rejected": wrong}) for wrong in "3456789"
        )
    )
    run = rlbook.train(
        "reward_model", "Addition-v0", data=str(path), steps=2, eval_every=0, batch_size=2
    )
    assert run.steps == 2 and run.request.config.walks == RewardModel.Config().walks


def test_a_reward_model_of_texts_reads_texts_of_other_lengths(texts: Path) -> None:
    model: Any = rlbook.load(texts).agent
    options: dict[str, Any] = {"steps": 100, "num_envs": 8, "eval_every": 0, "quiet": True}
    longer = rlbook.train(
        "grpo", "Addition-v0", env_kwargs={"digits": 4}, reward_model=texts, **options
    )
    assert longer.agent.adaptation.observation_space != model.adaptation.observation_space
    assert np.ptp(longer.episode_returns) > 0
    # a text is worth the same, whatever room there is behind it
    text = np.array([[1, 7, 8, 14, 9, 5, 15, 6, 2]])
    worth = []
    for room in (0, 3, 40):
        obs = {"tokens": np.pad(text, ((0, 0), (0, room))), "length": np.array([text.shape[1]])}
        over = np.ones(1, dtype=bool)
        worth.append(model.score_steps(obs, text[:, -1], obs, over)[0].item())
    size = max(map(abs, worth))
    assert worth == near([worth[0]] * 3, dtype="float32", terms=widths(model.network), size=size)


@pytest.mark.parametrize(
    ("env", "kwargs", "sentence"),
    [
        (
            "Mixture-v0",
            {},
            "it has a vocabulary of 26 tokens, but Mixture-v0 has a vocabulary of 53 tokens",
        ),
        ("Maze-v0", {}, "it has a vocabulary of 26 tokens, but Maze-v0 has the observation space"),
    ],
)
def test_a_reward_model_of_other_tokens_is_refused_in_a_short_sentence(
    texts: Path, env: str, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence) as told:
        rlbook.train("ppo", env, env_kwargs=kwargs, reward_model=texts, steps=8)
    assert len(str(told.value)) < 240 and "MultiDiscrete" not in str(told.value)


def test_the_tokens_and_the_context_of_a_reward_model_are_its_limits(texts: Path) -> None:
    from rlbook.interaction.learned_reward import check_readable
    from rlbook.llm.environments.token_env import Addition
    from rlbook.llm.tokenizers.tokenizer import CHARACTERS, character_codec

    env = Addition(digits=3)
    model: Any = rlbook.load(texts).agent
    check_readable(model, env, "Addition-v0")
    model.codec = dataclasses.replace(model.codec, context=env.rules.context_length)
    check_readable(model, env, "Addition-v0")
    model.codec = dataclasses.replace(model.codec, context=env.rules.context_length - 1)
    with pytest.raises(
        RequestError, match="reads at most 14 tokens, but a text of Addition-v0 can have 15"
    ):
        check_readable(model, env, "Addition-v0")
    model.codec = character_codec(CHARACTERS[::-1])
    with pytest.raises(
        RequestError, match="must have the tokenizer of Addition-v0, but has another"
    ):
        check_readable(model, env, "Addition-v0")


def test_a_search_does_not_take_a_judge_that_reads_other_tokens(texts: Path) -> None:
    run = rlbook.train("sft", "Mixture-v0", steps=1, eval_every=0, quiet=True)
    with pytest.raises(RequestError, match="the reward model was made for another environment"):
        rlbook.evaluate(run, episodes=2, search="best_of_n", samples=2, judge=texts)


def test_the_texts_of_a_round_are_read_a_few_at_a_time(
    texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlbook.llm.models import reward_head

    model: Any = rlbook.load(texts).agent
    tokens = np.random.default_rng(0).integers(5, 15, size=(7, 6))
    obs, over = {"tokens": tokens, "length": np.full(7, 6)}, np.arange(7) != 3
    whole, _ = model.score_steps(obs, tokens[:, -1], obs, over)
    read: list[int] = []
    plain = reward_head.rows_of
    monkeypatch.setattr(
        reward_head, "rows_of", lambda t, *more: read.append(len(t)) or plain(t, *more)
    )
    monkeypatch.setattr(reward_head, "TOKENS", 6 * 4)
    parts, _ = model.score_steps(obs, tokens[:, -1], obs, over)
    assert read == [4, 2] and whole[3] == parts[3] == 0.0
    assert parts.tolist() == near(
        whole.tolist(), dtype="float32", terms=widths(model.network), size=np.abs(whole).max()
    )


def test_a_margin_of_pairs_is_refused_on_groups() -> None:
    agent = agent_for("Maze-v0", margin=0.5)
    agent.check_data(Pairs(WALKS[:1], WALKS[1:2]))
    with pytest.raises(ValueError, match="margin has no effect on ranked groups; leave it out"):
        agent.check_data(Groups([WALKS]))
