"""Guided search, best of n and the vote: limits in which they are the greedy policy, an exact
answer, what they cost, and bad requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
import rlbook.networks.distributions
import rlbook.networks.policy
from rlbook.algorithms.planning.search.guided_search import GuidedSearch, GuidedSearchConfig
from rlbook.algorithms.planning.search.world import simulator_of
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.book.experiments.language_models import tabular_language_model as three_tokens
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.errors import RequestError
from rlbook.evaluation import best_of_n, outcome_value
from rlbook.evaluation.best_of_n import (
    SampledCompletions,
    best_index,
    most_frequent,
    read_by,
    sample_completions,
    scores,
)
from rlbook.evaluation.outcome_value import OutcomeValue, completion_batch
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import play
from rlbook.llm.models.likelihood import log_likelihood
from rlbook.llm.rewards import Completion
from rlbook.llm.tokenizers.tokenizer import character_codec
from rlbook.seeding import rng_for


@pytest.fixture(scope="module")
def adder() -> rlbook.Run:
    """The small model as it ships, with a critic that has learned nothing: V is 0 everywhere."""
    return rlbook.train("ppo", "Addition-v0", seed=0, steps=1, num_envs=2, eval_every=0)


def searched(run: rlbook.Run, episodes: int = 24, **options: Any) -> Any:
    return rlbook.evaluate(run, episodes=episodes, seed=3, **options)


def test_one_simulation_writes_what_the_policy_finds_likeliest_and_reads_as_much_with_each_network(
    adder: rlbook.Run,
) -> None:
    greedy, found = searched(adder), searched(adder, search="mcts", simulations=1)
    assert (found.returns == greedy.returns).all() and (found.lengths == greedy.lengths).all()
    prompt = 7  # BOS and "12+34="; the last token that is written is read by nobody
    assert found.tokens == near(2 * (prompt + greedy.lengths.mean() - 1), terms=24)


def test_with_one_token_to_choose_from_a_search_is_greedy(adder: rlbook.Run) -> None:
    greedy, found = (
        searched(adder),
        searched(adder, search="mcts", simulations=4, top_k=1, judge="verifier"),
    )
    assert (found.returns == greedy.returns).all()


def test_a_judge_that_knows_the_answer_is_searched_for_it(adder: rlbook.Run) -> None:
    greedy, found = (
        searched(adder),
        searched(adder, search="mcts", simulations=32, judge="verifier"),
    )
    assert (found.returns >= greedy.returns).all() and found.mean > greedy.mean + 0.1


def test_one_sample_needs_no_choice_and_the_verifier_is_the_upper_bound(adder: rlbook.Run) -> None:
    names = ("log_prob", "critic", "verifier")
    one = [searched(adder, search="best_of_n", samples=1, judge=judge).returns for judge in names]
    assert (one[0] == one[1]).all() and (one[0] == one[2]).all()
    voted = searched(adder, search="majority", samples=1)
    assert (one[0] == voted.returns).all()
    assert (voted.lengths < 7).all(), "the prompt is no part of what was written"
    eight = {judge: searched(adder, search="best_of_n", samples=8, judge=judge) for judge in names}
    vote = searched(adder, search="majority", samples=8)
    assert all(
        (eight["verifier"].returns >= found.returns).all() for found in (vote, *eight.values())
    )
    # the critic reads what the policy has written
    assert eight["critic"].tokens == near(2 * vote.tokens, terms=24)
    assert eight["log_prob"].tokens == vote.tokens


def test_completions_to_choose_from_are_drawn_by_the_seed(
    adder: rlbook.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[object] = []

    def sample(*given: Any) -> SampledCompletions:
        drawn.append(given[-1].bit_generator.state)
        return sample_completions(*given)

    monkeypatch.setattr(best_of_n, "sample_completions", sample)
    searched(adder, episodes=2, search="majority", samples=2)
    assert drawn == [rng_for(3, "noise").bit_generator.state]


def test_one_beam_writes_what_the_policy_finds_likeliest_and_each_beam_reads_its_own_tokens(
    adder: rlbook.Run,
) -> None:
    greedy, found = searched(adder), searched(adder, search="beam", samples=1)
    assert (found.returns == greedy.returns).all() and (found.lengths == greedy.lengths).all()
    prompt = 7  # BOS and "12+34="; the last token that is written is read by nobody
    assert found.tokens == near(prompt + greedy.lengths.mean() - 1, terms=24)
    four = searched(adder, search="beam", samples=4)
    assert four.tokens == near(prompt + 4 * (four.lengths.mean() - 1), terms=24)
    assert four.budget == "4 beams" and four.judge is None


def test_the_score_of_a_text_is_the_mean_log_probability_of_its_own_tokens(
    adder: rlbook.Run,
) -> None:
    """Texts that end sooner wait for the others beside them, and what is drawn for them meanwhile
    does not count."""
    agent: Any = adder.agent
    found = sample_completions(
        agent,
        agent.policy,
        adder.request.recipe.for_evaluation(),
        range(6),
        4,
        np.random.default_rng(0),
    )
    assert len(set(found.num_tokens.tolist())) > 1
    pairs = [
        (tokens[:prompt], tokens[prompt:length])
        for tokens, prompt, length in zip(found.tokens, found.prompt, found.length, strict=True)
    ]
    expected = log_likelihood(agent.policy, pairs) / found.num_tokens
    # logits of that size
    assert_near(found.log_prob, expected, dtype="float32", terms=widths(agent.policy), size=8.5)


class CountsTokens:
    """A policy whose critic says of a text how many tokens it has."""

    model = torch.nn.Linear(1, 1)

    def value_parameters(self) -> list[torch.nn.Parameter]:
        return [*self.model.parameters()]

    def value(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return obs["length"].float()


def written(prompt: list[int], count: list[int]) -> SampledCompletions:
    """Completions of `count` tokens each after prompts of so many."""
    none = np.zeros(len(prompt))
    texts = np.zeros((len(prompt), 12), dtype=np.int64)
    return SampledCompletions(
        texts, np.array(prompt), np.array(prompt) + np.array(count), none, none, []
    )


def test_the_critic_values_a_text_before_its_last_token() -> None:
    """After the ending nothing is left to gain, so V says nothing there."""
    policy: Any = CountsTokens()
    assert scores("critic", policy, written([5, 6], [1, 4])).tolist() == [5 + 1 - 1, 6 + 4 - 1]


def test_a_prompt_is_read_once_for_all_its_completions_and_a_last_token_by_a_judge_alone() -> None:
    """Two prompts, of 5 and of 6 tokens, with three completions each."""
    found = written([5, 5, 5, 6, 6, 6], [1, 2, 3, 4, 2, 2])
    by_writer, by_judge = 5 + 6 + (0 + 1 + 2 + 3 + 1 + 1), 5 + 6 + (1 + 2 + 3 + 4 + 2 + 2)
    model: Any = object()  # a reward model
    expected = {None: by_writer, "log_prob": by_writer, "verifier": by_writer}
    expected |= {"critic": 2 * by_writer, model: by_writer + by_judge}
    assert all(read_by(judge, found, 3) == count / 2 for judge, count in expected.items())


def test_of_equal_scores_and_of_equal_votes_the_first_is_taken() -> None:
    assert best_index(np.array([[0.0, 2.0, 2.0], [1.0, 0.0, 0.5]])).tolist() == [1, 0]
    texts = [
        Completion("1+1=", "2", text, ended)
        for text, ended in (("3", True), ("2", False), ("2", True), ("02", True), ("3", True))
    ]
    # 3 twice; 2 and 02 are one answer, twice too; the unfinished one does not vote
    assert most_frequent(texts) == 0
    assert most_frequent([*texts, texts[2]]) == 2
    assert most_frequent(texts[1:2]) == 0
    assert most_frequent([texts[1], texts[1], texts[2]]) == 2, (
        "those that give no answer have no vote, however many they are"
    )


@pytest.mark.parametrize("seed", range(3))
def test_enough_simulations_find_the_completion_that_the_closed_form_goes_to(seed: int) -> None:
    """As β goes to 0, π* of the table is the completion of the largest reward; a uniform prior
    hides none."""
    reward = three_tokens.rewards(seed)
    task = EnvRecipe.from_env(three_tokens.writing(reward))
    assert three_tokens.optimum(np.full(27, 1 / 27), reward, 0.01).argmax() == reward.argmax()
    uniform = Looker(np.zeros(three_tokens.END + 1), three_tokens.TOKENS)
    model = simulator_of(task.make(), None, three_tokens.TOKENS)
    assert isinstance(model, TableModel)
    found = GuidedSearch(uniform, GuidedSearchConfig(simulations=2_000), table=model)
    assert play(found, task, 1, 0).returns[0] == near(reward.max(), dtype="float32", terms=3)


class Looker(rlbook.Agent):
    """Finds all actions equally likely, and looks up what a state is worth."""

    critic = True

    def __init__(self, values: np.ndarray, num_actions: int) -> None:
        super().__init__(None, None)
        self.policy: Any = _Uniform(torch.from_numpy(values), num_actions)

    def adapt_observations(self, observations: Any) -> Any:
        return np.asarray(observations, dtype=np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class _Uniform(rlbook.networks.policy.Policy):
    def __init__(self, values: torch.Tensor, num_actions: int) -> None:
        super().__init__()
        self.values_by_state, self.num_actions = torch.nn.Parameter(values), num_actions

    def act(self, obs: Any, rng: Any, state: Any = None) -> Any:
        raise NotImplementedError

    def distribution(self, obs: Any) -> Any:
        return rlbook.networks.distributions.Categorical(torch.zeros(len(obs), self.num_actions))

    def value_parameters(self) -> list[torch.nn.Parameter]:
        return [self.values_by_state]

    def value(self, obs: Any) -> Any:
        return self.values_by_state[obs.long()]

    batch = evaluate = values = act  # type: ignore[assignment]


def test_on_the_maze_the_same_class_with_exact_values_walks_as_well_as_anyone_can() -> None:
    task = EnvRecipe.from_env("Maze-v0")
    planner = rlbook.train("value_iteration", "Maze-v0")
    assert isinstance(planner.agent, ValueIteration)
    model = simulator_of(task.make(), None, 4)
    assert isinstance(model, TableModel)
    guide = Looker(planner.agent.values(), 4)
    found = GuidedSearch(
        guide, GuidedSearchConfig(simulations=64, gamma=planner.agent.config.gamma), table=model
    )
    assert play(found, task, 4, 0).mean == rlbook.evaluate(planner, episodes=4).mean


@pytest.mark.parametrize(("gamma", "length"), [(0.5, 1), (1.0, 2)])
def test_what_comes_later_is_discounted(gamma: float, length: int) -> None:
    """1 at once, or 1.5 after a step that pays nothing: γ · 1.5 is 0.75 or 1.5."""
    transitions = np.zeros((6, 3))
    transitions[[0, 1, 2, 3, 4, 5], [2, 1, 2, 2, 2, 2]] = 1.0
    rewards = np.array([[1.0, 0.0], [1.5, 1.5], [0.0, 0.0]])
    model = TabularMDP.from_arrays(
        transitions, rewards, terminal=[False, False, True], initial=[1.0, 0.0, 0.0]
    )
    task = EnvRecipe.from_env(TabularEnv(model))
    table = simulator_of(task.make(), None, 2)
    assert isinstance(table, TableModel)
    found = GuidedSearch(
        Looker(np.zeros(3), 2), GuidedSearchConfig(simulations=50, gamma=gamma), table=table
    )
    assert play(found, task, 1, 0).lengths.tolist() == [length]
    run = rlbook.train("ppo", TabularEnv(model), gamma=gamma, steps=1, num_envs=2, eval_every=0)
    assert searched(run, 3, search="mcts", simulations=50).lengths.tolist() == [length] * 3


def test_searching_changes_nothing_in_the_run(adder: rlbook.Run) -> None:
    before = {name: tensor.clone() for name, tensor in adder.agent.policy.state_dict().items()}  # type: ignore[attr-defined]
    first, second = (searched(adder, search="mcts", simulations=8) for _ in range(2))
    assert (first.returns == second.returns).all()
    after = adder.agent.policy.state_dict()  # type: ignore[attr-defined]
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"search": "mctss"},
            "search must be one of mcts, best_of_n, majority, beam, got 'mctss'; did you mean 'mcts'?",
        ),
        (
            {"search": "mcts", "samples": 4},
            "samples has no effect on search mcts; its budget is simulations",
        ),
        (
            {"search": "majority", "simulations": 4},
            "simulations has no effect on search majority; its budget is samples",
        ),
        (
            {"search": "majority", "judge": "critic"},
            "judge has no effect on search majority: the completions vote",
        ),
        ({"search": "beam", "judge": "critic"}, "search beam: probabilities decide"),
        ({"search": "beam", "top_k": 4}, "top_k sets how tokens are sampled, but search beam"),
        ({"simulations": 4}, "simulations has no effect without search"),
        ({"search": "mcts", "temperature": 0.5}, "search mcts samples none"),
        ({"search": "mcts", "simulations": 0}, "simulations"),
        ({"search": "best_of_n", "judge": "critik"}, "got 'critik'; did you mean 'critic'?"),
        ({"search": "mcts", "explore": True}, "explore has no effect with search"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_one_sentence(
    adder: rlbook.Run, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=None) as refused:
        searched(adder, 2, **options)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_without_a_critic_a_search_asks_for_another_judge() -> None:
    run = rlbook.train("reinforce", "Addition-v0", seed=0, steps=1, num_envs=4, eval_every=0)
    with pytest.raises(RequestError, match="has no critic"):
        searched(run, 2, search="mcts")
    # one network reads
    assert searched(run, 2, search="mcts", simulations=2, judge="verifier").tokens < 20
    with pytest.raises(RequestError, match="has no critic"):
        searched(run, 2, search="best_of_n", judge="critic")


@pytest.mark.thorough
def test_an_agent_without_a_policy_network_does_not_search() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=100, eval_every=0)
    with pytest.raises(RequestError, match="a guided search needs a policy network"):
        rlbook.evaluate(run, episodes=1, search="mcts")
    with pytest.raises(RequestError, match="chooses among completions"):
        rlbook.evaluate(run, episodes=1, search="majority")


def test_the_value_of_outcomes_learns_what_every_beginning_of_a_text_came_to(
    adder: rlbook.Run,
) -> None:
    """Two prompts, one always right and one always wrong: V goes to 1 and 0 at the prompt and at
    the whole text."""
    found = sample_completions(
        adder.agent, adder.agent.policy, adder.request.recipe, [0, 1], 8, np.random.default_rng(0)
    )  # type: ignore[attr-defined]
    found = found._replace(reward=np.repeat([1.0, 0.0], 8))
    value = OutcomeValue(adder.agent.policy)  # type: ignore[attr-defined]
    losses = value.fit(found, np.random.default_rng(0), passes=60, batch_size=8, learning_rate=3e-3)
    assert 0.0 <= losses[0] <= 0.5 and losses[-1] < 0.005
    for length in (found.prompt, found.length):
        judged, _ = value.score_steps(
            None, None, {"tokens": found.tokens, "length": length}, np.ones(16, dtype=bool)
        )
        assert np.abs(judged - found.reward).max() < 0.2
    tree = searched(adder, 2, search="mcts", simulations=2, judge=value)
    assert tree.judge == "a learned judge" and tree.tokens > 0


def test_the_value_of_outcomes_is_learned_at_the_prompt_too(adder: rlbook.Run) -> None:
    """V is right after each token and off by 1 at the prompt: ½ over all places."""
    policy: Any = adder.agent.policy  # type: ignore[attr-defined]
    found = sample_completions(
        adder.agent, policy, adder.request.recipe, [0], 1, np.random.default_rng(0)
    )
    batch, value = completion_batch(found), OutcomeValue(policy)
    assert batch.score is not None
    places = torch.zeros(1, 1 + batch.action.shape[1])
    places[0, 0] = 1.0
    value.network = lambda rows: places + batch.score  # type: ignore[assignment]
    assert value.loss(batch).loss == near(0.5 / places.numel(), dtype="float32", terms=8)


def test_the_step_size_of_the_value_of_outcomes_falls_to_0(
    adder: rlbook.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy: Any = adder.agent.policy  # type: ignore[attr-defined]
    found = sample_completions(
        adder.agent, policy, adder.request.recipe, [0, 1], 2, np.random.default_rng(0)
    )
    taken: list[float] = []

    def step(optimizer: Any, *_: object, **options: object) -> dict[str, float]:
        taken.append(optimizer.learning_rate)
        return {"loss": 0.0}

    monkeypatch.setattr(outcome_value, "gradient_step", step)
    OutcomeValue(policy).fit(found, np.random.default_rng(0), passes=2, batch_size=2)
    assert taken == near([1e-3, 0.75e-3, 0.5e-3, 0.25e-3], terms=2)


@pytest.mark.slow
def test_a_reward_models_run_is_searched_for_what_it_scores_highest(
    adder: rlbook.Run, tmp_path: Path
) -> None:
    """The environment pays what the reward model says, so that the return tells whether the search
    has listened to it."""
    folder = str(tmp_path / "judge")
    judge: Any = rlbook.train(
        "reward_model", "Addition-v0", steps=20, learning_rate=3e-3, eval_every=0, out=folder
    ).agent

    def said(completion: Completion) -> float:
        prompt = character_codec().encode_prompt(completion.prompt)
        tokens = np.array([[*prompt, *completion.ids]])
        text = {"tokens": tokens, "length": np.array([tokens.shape[1]])}
        return float(judge.score_steps(text, tokens[:, -1], text, np.ones(1, dtype=bool))[0][0])

    paid: dict[str, Any] = {
        "env": "Addition-v0",
        "env_kwargs": {"split": "held_out", "reward": said},
    }
    greedy = searched(adder, **paid)
    one, eight = (
        searched(adder, **paid, search="best_of_n", samples=n, judge=folder) for n in (1, 8)
    )
    tree = searched(adder, **paid, search="mcts", simulations=32, judge=folder)
    assert eight.judge == tree.judge == "a learned judge"
    assert eight.mean > one.mean and tree.mean > greedy.mean
    assert tree.tokens > greedy.lengths.mean() + 7 and eight.tokens > one.tokens
