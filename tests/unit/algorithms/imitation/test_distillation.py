"""Distillation: the divergences by hand and beside TRL's, one class on the maze and on texts, and
the bytes of a run that was cut."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths
from steps import loss_of, train_on
from torch import Tensor

import rlbook
from rlbook.agent import Parts
from rlbook.algorithms.imitation.distillation import Distillation
from rlbook.data import Episode, Episodes
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError
from rlbook.functional.post_training.distillation_losses import (
    divergence,
    forward_kl,
    generalised_jsd,
    reverse_kl,
    soft_label_loss,
)
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

TEACHER, STUDENT = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.25, 0.5, 0.25]).log()
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def test_both_kl_divergences_by_hand() -> None:
    """½ ln(½ / ¼) + ¼ ln(¼ / ½) + ¼ ln 1 = ¼ ln 2, and the same the other way round, since p and q
    change places."""
    for kl in (forward_kl, reverse_kl):
        assert float(kl(STUDENT, TEACHER)) == near(
            math.log(2) / 4, dtype="float32", terms=3, size=1.0
        )
    narrow = torch.tensor([0.5, 0.5, 0.0]).log()
    by_hand = 0.5 * math.log(0.5 / 0.5) + 0.5 * math.log(0.5 / 0.25)
    assert float(reverse_kl(narrow, TEACHER)) == near(by_hand, dtype="float32", terms=3, size=1.0)
    assert float(forward_kl(narrow, TEACHER)) == math.inf, "it rules out what the teacher might do"


def test_the_jensen_shannon_divergence_by_hand_and_its_limits() -> None:
    """m = (3/8, 3/8, ¼): ½ [½ ln(4/3) + ¼ ln(2/3)] · 2."""
    by_hand = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3)
    rounded: dict[str, Any] = {"dtype": "float32", "terms": 6, "size": 1.0}
    assert float(generalised_jsd(STUDENT, TEACHER)) == near(by_hand, **rounded)
    apart = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log()
    assert float(generalised_jsd(apart[0], apart[1])) == near(math.log(2), **rounded), (
        "its largest value"
    )
    teacher, student = TEACHER.double(), torch.tensor([0.1, 0.6, 0.3]).double().log()
    beta = 1e-6
    error = 10 * beta + rounding_bound("float64", terms=6) / beta  # JSD = β KL + O(β²)
    for mixture, kl in ((beta, forward_kl), (1 - beta, reverse_kl)):
        found = float(generalised_jsd(student, teacher, mixture)) / beta
        assert found == pytest.approx(float(kl(student, teacher)), rel=0, abs=error)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_at_its_ends_the_generalised_divergence_is_a_kl_divergence(temperature: float) -> None:
    """As in TRL: β = 0 is KL(teacher ‖ student), β = 1 KL(student ‖ teacher), values and
    gradients."""
    for mixture, kind in ((0.0, "forward"), (1.0, "reverse")):
        ours, plain = (STUDENT[None].log_softmax(-1).requires_grad_() for _ in range(2))
        found = soft_label_loss(
            ours, TEACHER[None], kind="jsd", mixture=mixture, temperature=temperature
        )
        expected = soft_label_loss(plain, TEACHER[None], kind=kind, temperature=temperature)
        rounded: dict[str, Any] = {"terms": 6, "size": temperature**2}
        assert_near(found, expected, **rounded)
        assert expected.item() > 0.01
        found.backward(), expected.backward()
        assert_near(ours.grad, plain.grad, **rounded)


@pytest.mark.parametrize("mixture", [-0.1, 1.1, math.nan])
def test_a_mixture_outside_of_its_range_is_refused(mixture: float) -> None:
    with pytest.raises(ValueError, match=r"mixture must be a number in \[0, 1\], got "):
        generalised_jsd(STUDENT, TEACHER, mixture)


@pytest.mark.parametrize(
    ("kind", "mixture", "beta"),
    [
        ("forward", 0.5, 0.0),
        ("reverse", 0.5, 1.0),
        ("jsd", 0.0, 0.0),
        ("jsd", 1.0, 1.0),
        ("jsd", 0.5, 0.5),
        ("jsd", 0.1, 0.1),
    ],
)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_loss_is_trls_but_for_the_square_of_the_temperature(
    kind: str, mixture: float, beta: float, temperature: float
) -> None:
    trainer = pytest.importorskip("trl.experimental.gkd.gkd_trainer").GKDTrainer
    numbers = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(3, 4, 7, generator=numbers) for _ in range(2))
    mask = torch.rand(3, 4, generator=numbers) > 0.3
    labels = torch.zeros(3, 4, dtype=torch.long).masked_fill(~mask, -100)
    theirs, ours = student.clone().requires_grad_(), student.clone().requires_grad_()
    expected = trainer.generalized_jsd_loss(
        theirs, teacher, labels, beta=beta, temperature=temperature
    )
    found = (
        soft_label_loss(
            ours, teacher, temperature=temperature, kind=kind, mixture=mixture, mask=mask
        )
        / temperature**2
    )
    rounded: dict[str, Any] = {"terms": 12 * 7, "size": 3.0}
    assert_near(found, expected, **rounded)
    for loss in (expected, found):
        loss.backward()
    assert_near(ours.grad, theirs.grad, **rounded)


def test_the_factor_t_squared_keeps_the_gradients_size() -> None:
    """Hinton's eq. 4: at large T the gradient in a logit tends to (z_q - z_p) / A; without T² it
    would be T² times smaller."""
    teacher, student = (
        torch.tensor([[1.0, -1.0, 0.0]]),
        torch.tensor([[0.5, 0.5, -1.0]], requires_grad=True),
    )
    soft_label_loss(student, teacher, temperature=1000.0).backward()
    assert student.grad is not None
    # the next term is of size z² / T; T (q - p) is the difference of two numbers of size T / 3
    bound = 1 / 1000 + rounding_bound("float32", terms=3, size=1000 / 3)
    assert (student.grad - (student.detach() - teacher) / 3).abs().max() < bound
    plain = torch.tensor([[0.5, 0.5, -1.0]], requires_grad=True)
    soft_label_loss(plain, teacher).backward()
    expected = plain.detach().softmax(-1) - teacher.softmax(-1)
    assert_near(plain.grad, expected, terms=3, size=1.0)


def test_what_is_masked_reaches_neither_loss_nor_gradient() -> None:
    student = torch.tensor([[[0.0, 1.0], [math.nan, 0.0]]], requires_grad=True)
    loss = soft_label_loss(student, torch.zeros(1, 2, 2), mask=torch.tensor([[True, False]]))
    loss.backward()
    assert loss.isfinite() and student.grad is not None and student.grad.isfinite().all()


def test_a_divergence_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be one of forward, reverse, jsd, got 'hinge'"):
        divergence(STUDENT, TEACHER, "hinge")


def teacher_for(env: str, seed: int = 0) -> Run:
    """A run of one step: a policy of its own, which has learned nothing."""
    model: dict[str, Any] = {"model": "new"} if env == "Addition-v0" else {}
    return rlbook.train(
        "reinforce", env, steps=1, num_envs=4, seed=seed, eval_every=0, env_kwargs=model
    )


def agent_for(env: str, **settings: object) -> Distillation:
    config = Distillation.Config(**settings)  # type: ignore[arg-type]
    recipe = EnvRecipe.from_env(env, kwargs={"model": "new"} if env == "Addition-v0" else {})
    return Distillation(
        adapted_vector(Distillation, recipe, 2, config),
        config,
        seed=1,
        parts=Parts(teacher=teacher_for(env).agent),
    )


def step(agent: Distillation, batch: Batch) -> dict[str, Tensor]:
    """One gradient step on recorded actions."""
    batch.weight = agent.config.averaging()(batch.mask)
    return train_on(agent, batch, teacher=agent.teacher, labelled=True)


def test_the_maze_agent_and_the_token_agent_are_of_one_class() -> None:
    maze, tokens = agent_for("Maze-v0"), agent_for("Addition-v0")
    assert type(maze) is type(tokens) is rlbook.algorithms()["distillation"]


TEXTS = Episodes(
    [
        Episode(np.array([1, 5, 6]), np.array([7, 2])),
        Episode(np.array([1, 5, 6, 8]), np.array([7, 7, 7, 2])),
    ]
)
STEPS = Episodes([Episode(np.eye(25, dtype=np.float32)[:3], np.array([0, 1, 3]))])


@pytest.mark.parametrize(("env", "data"), [("Maze-v0", STEPS), ("Addition-v0", TEXTS)])
def test_alpha_and_beta_weigh_the_soft_and_the_hard_loss(env: str, data: Episodes) -> None:
    agent, batch = (
        agent_for(env, soft_coef=0.7, hard_coef=0.3, soft_temperature=20.0),
        data[np.arange(len(data))],
    )
    metrics = {name: float(value) for name, value in step(agent, batch).items()}
    expected = 0.7 * 20.0**2 * metrics["teacher_divergence"] + 0.3 * metrics["hard_loss"]
    assert metrics["loss"] == near(expected, dtype="float32", terms=widths(agent.policy))
    assert metrics["teacher_divergence"] > 0


@pytest.mark.parametrize("env", ["Maze-v0", "Addition-v0"])
def test_micro_batches_change_no_gradient(env: str) -> None:
    data = STEPS if env == "Maze-v0" else TEXTS
    agents = [agent_for(env, micro_batch_size=size) for size in (None, 1)]
    steps = [step(agent, data[np.arange(len(data))]) for agent in agents]
    norms = [float(step["grad_norm"]) for step in steps]
    # of q - p, two probabilities
    assert norms[0] == near(norms[1], dtype="float32", terms=widths(agents[0].policy), size=1.0)


def test_where_the_student_played_the_label_is_what_the_teacher_finds_likeliest() -> None:
    agent, batch = agent_for("Maze-v0", hard_coef=1.0), STEPS[np.arange(3)]
    likeliest: Tensor = agent.teacher.distributions(batch).mode()
    relabelled = STEPS[np.arange(3)]
    relabelled.action = likeliest
    ones = torch.full((3,), 1 / 3)
    batch.weight = relabelled.weight = ones
    played = loss_of(agent, batch, teacher=agent.teacher, labelled=False)
    assert torch.equal(
        played.loss, loss_of(agent, relabelled, teacher=agent.teacher, labelled=True).loss
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_lambda_says_who_plays(share: float) -> None:
    agent = agent_for("Maze-v0", student_share=share)
    agent.begin()
    assert agent.guided == (share == 0.0)
    agent.progress = 1.0
    agent.begin()
    assert not agent.guided, "what has learned plays alone"


def test_what_a_group_earned_is_the_mean_of_its_returns() -> None:
    run = rlbook.train(
        "distillation",
        "Addition-v0",
        teacher=teacher_for("Addition-v0"),
        env_kwargs={"model": "new", "reward": "length"},
        steps=60,
        num_envs=4,
        eval_every=0,
    )
    rounds = [line for line in run.metrics if "group_return" in line]
    assert rounds
    for line in rounds:
        assert line["group_return"] == near(line["return"], dtype="float32", terms=4 * 16)


def test_a_teacher_of_action_values_is_a_softmax_of_them() -> None:
    dqn = rlbook.train("dqn", "Maze-v0", steps=20, eval_every=0)
    config = Distillation.Config(value_temperature=0.5)
    agent = Distillation(
        adapted_vector(Distillation, EnvRecipe.from_env("Maze-v0"), 2, config),
        config,
        parts=Parts(teacher=dqn.agent),
    )
    batch = STEPS[np.arange(3)]
    with torch.no_grad():
        expected = (dqn.agent.q(batch.obs) / 0.5).softmax(-1)  # type: ignore[attr-defined]
        found = agent.teacher.distributions(batch).log_probs.exp()
        assert_near(found, expected, terms=widths(dqn.agent.q))  # type: ignore[attr-defined]


def test_a_temperature_of_action_values_is_refused_of_a_teacher_with_a_policy() -> None:
    ppo = rlbook.train("ppo", "Maze-v0", steps=16, num_envs=2, rollout_steps=8, eval_every=0)
    config = Distillation.Config(value_temperature=0.5)
    env = adapted_vector(Distillation, EnvRecipe.from_env("Maze-v0"), 2, config)
    with pytest.raises(ValueError, match="value_temperature has no effect where the teacher has"):
        Distillation(env, config, parts=Parts(teacher=ppo.agent))


def test_without_a_teacher_or_with_one_that_has_no_probabilities_the_refusal_says_so() -> None:
    with pytest.raises(
        RequestError,
        match=r"distillation does not train on Maze-v0: it needs a teacher \(--teacher, teacher=…\)",
    ):
        rlbook.train("distillation", "Maze-v0", steps=10)
    table = rlbook.train("q_learning", "Maze-v0", steps=10, eval_every=0)
    with pytest.raises(
        RequestError,
        match="teacher must be a run of an agent with a policy network, got one of QLearning",
    ):
        rlbook.train("distillation", "Maze-v0", steps=10, teacher=table)
    with pytest.raises(RequestError, match="the teacher was made for another environment"):
        rlbook.train("distillation", "CartPole-v1", steps=10, teacher=teacher_for("Maze-v0"))
    with pytest.raises(RequestError, match="both 0, so nothing would be learned"):
        rlbook.train(
            "distillation", "Maze-v0", steps=10, teacher=teacher_for("Maze-v0"), soft_coef=0.0
        )
    with pytest.raises(RequestError, match="divergence must be one of"):
        rlbook.train(
            "distillation",
            "Maze-v0",
            steps=10,
            teacher=teacher_for("Maze-v0"),
            divergence="reversed",
        )
    for kind in ("forward", "reverse"):
        with pytest.raises(ValueError, match="mixture has no effect unless divergence is jsd"):
            Distillation.Config(mixture=0.9, divergence=kind)
    assert Distillation.Config(mixture=0.9, divergence="jsd").mixture == 0.9
    assert (
        rlbook.registry.refusal_reason("distillation", "Maze-v0")
        == "it needs a teacher (--teacher, teacher=…)"
    )


@pytest.mark.parametrize("env", [pytest.param("Maze-v0", marks=pytest.mark.slow), "Addition-v0"])
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(tmp_path: Path, env: str) -> None:
    model: dict[str, Any] = {"model": SIZES} if env == "Addition-v0" else {}
    folder = tmp_path / "teacher"
    rlbook.train("reinforce", env, steps=1, num_envs=4, eval_every=0, out=folder)
    settings = {
        "num_envs": 4,
        "eval_every": 0,
        "teacher": folder,
        "student_share": 0.5,
        "steps": 1500 if env == "Maze-v0" else 150,
    } | model
    whole = rlbook.train("distillation", env, **settings)

    def stop(run: Run) -> None:
        if run.agent.optimizer.steps >= 1:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("distillation", env, out=tmp_path / "run", on_report=stop, **settings)
    resumed = rlbook.load(tmp_path / "run").resume()
    assert resumed.steps == whole.steps
    for ours, theirs in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("teacher", ["ppo", "dqn"])
@pytest.mark.slow
def test_a_student_of_eight_units_walks_the_maze_as_its_teacher_does(teacher: str) -> None:
    named = rlbook.train(teacher, "Maze-v0", seed=0, eval_every=0)
    run = rlbook.train(
        "distillation", "Maze-v0", teacher=named, hidden_sizes=(8,), seed=0, eval_every=0
    )
    assert rlbook.evaluate(run, episodes=3).mean == 3.0


def test_a_models_folder_teaches_and_at_first_has_nothing_to_teach_itself(tmp_path: Path) -> None:
    from rlbook.llm.models.sources import small_llama
    from rlbook.llm.tokenizers.tokenizer import character_tokenizer

    small_llama(torch.Generator().manual_seed(3), hidden_size=16, feed_forward=16).save_pretrained(
        tmp_path
    )
    character_tokenizer().save_pretrained(tmp_path)
    settings: dict[str, Any] = {
        "env_kwargs": {"model": str(tmp_path)},
        "num_envs": 4,
        "steps": 60,
        "eval_every": 0,
    }
    run = rlbook.train("distillation", "Addition-v0", teacher=tmp_path, **settings)
    told = [
        metrics["teacher_divergence"] for metrics in run.metrics if "teacher_divergence" in metrics
    ]
    # the same weights; later Adam has made steps of the rounding
    terms = widths(run.agent.policy)  # type: ignore[attr-defined]
    assert told[0] == near(0.0, dtype="float32", terms=terms, size=math.log(26))
