"""Text generation as a Markov decision process: the state is the text so far, an action is the next
token, EOS ends the episode."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypedDict, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from rlbook.checks import check, one_of, optional, positive_int
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.guards import METRICS
from rlbook.interaction.round_rewards import Scored
from rlbook.llm.environments.token_rows import TokenRows, TokenRules
from rlbook.llm.rewards import Asked
from rlbook.llm.tasks import AdditionTask, ReverseTask
from rlbook.llm.tasks.task import Task, build_task
from rlbook.llm.tokenizers.tokenizer import Codec
from rlbook.seeding import set_rng_state

Observation = dict[str, Any]


class TokenOptions(TypedDict, total=False):
    """The arguments common to all token environments; see `TokenEnv`."""

    split: str
    reward: Asked
    evaluation_reward: Asked
    model: str | None
    tokenizer: str | None
    vocab_size: int | None
    max_new_tokens: int | None
    num_examine: int
    render_mode: str | None
    allow_import: bool


class _ModelProperties:
    """Properties related to the language model, shared by the single and the vector form."""

    policy_kind: ClassVar[str] = "language_model"
    takes_permission: ClassVar[bool] = True
    rules: TokenRules
    rows: TokenRows
    model: str | None
    evaluation_kwargs: dict[str, Any]  # what evaluation changes: held-out prompts, and the reward

    @property
    def model_weight(self) -> float | None:
        """The weight of the run's reward model among the rewards; None if it is not one of them."""
        return self.rules.rewards.model_weight

    @property
    def codec(self) -> Codec:
        """Converts between text and token ids."""
        return self.rules.codec

    def limit_context(self, tokens: int, option: str) -> None:
        """Rejects reference answers and rows of data that exceed the context of a model whose sizes
        the user has chosen.

        Args:
            tokens: it reads so many.
            option: sets their number.
        """
        self.rules = copy.copy(self.rules)  # others may share them
        self.rules.codec = replace(self.rules.codec, context=tokens, context_option=option)

    def prompts_of_seeds(self, seeds: Sequence[int]) -> NDArray[np.int64]:
        """The prompt that each reset seed [E] begins, numbered as they come: [E]. Equal texts are one
        prompt."""
        numbers: dict[bytes, int] = {}
        texts = [self.rules.prompt_ids(self.rules.prompt_of(seed)).tobytes() for seed in seeds]
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts])

    def answers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The prompts with their reference answers, steps and EOS included, as token ids: int64 [L]
        and [T].

        Raises:
            RequestError: an example has no answer.
        """
        rules, codec = self.rules, self.rules.codec
        for i, text in enumerate(rules.demonstrations):
            if text is None:
                raise RequestError(rules.describe_missing_answer(i))
        found = [
            (rules.prompt_ids(i), np.array(codec.encode_answer(str(text))))
            for i, text in enumerate(rules.demonstrations)
        ]
        longest = max((len(prompt) + len(answer), i) for i, (prompt, answer) in enumerate(found))
        with request_errors(f"{rules.location(longest[1])}: "):
            codec.check_length(longest[0])
        return found

    def answer_replacer(self) -> Any:
        """The function that replaces generated answers by reference answers; see
        `rlbook.llm.generation.reference_answers.ReferenceAnswers`."""
        # torch, which the environment does without
        from rlbook.llm.generation.reference_answers import (
            ReferenceAnswers,
        )

        return ReferenceAnswers(self.rules)

    def text_worlds(self, width: int, *, verified: bool) -> list[Any]:
        """The simulators for a tree search, one per row; see
        `rlbook.llm.environments.text_world.TextWorld`."""
        # the search's modules, which the environment does without
        from rlbook.llm.environments.text_world import (
            TextWorld,
        )

        return [
            TextWorld(self.rows, row, width, verified=verified)
            for row in range(len(self.rows.lengths))
        ]

    def _single_spaces(self) -> tuple[spaces.Dict, spaces.Discrete]:
        length, vocabulary = self.rules.context_length, self.rules.observed_vocabulary
        tokens = spaces.MultiDiscrete(np.full(length, vocabulary, dtype=np.int64), dtype=np.int64)
        return spaces.Dict(
            {"tokens": tokens, "length": spaces.Discrete(length + 1)}
        ), spaces.Discrete(self.rules.codec.vocabulary_size)


class TokenEnv(_ModelProperties, gymnasium.Env[Observation, np.int64]):
    """
    ## Description
    A task gives a prompt; the agent writes its completion, one token an action.

    ## Action Space
    `Discrete(V)`: the id of the next token.

    ## Observation Space
    `Dict(tokens=MultiDiscrete([V] * L), length=Discrete(L + 1))`: the ids so far, prompt first,
    filled up with PAD to the right, and how many of them there are. L is the longest prompt plus
    `max_new_tokens`.

    ## Rewards
    0 until the episode ends; then `reward` of the completion: "correct" is what the task says of
    it, 1 for a right answer followed by EOS and 0 otherwise, "exact" is 1 for exactly the task's
    own answer, "prefix" is the share of it that is right before the first mistake, "edit" is 1 -
    the relative Levenshtein distance.

    ## Starting State
    A prompt of `split`. "train" draws one. "held_out" walks through them: a reset with seed s takes
    prompt s mod P, so P consecutive seeds visit each once, and a reset without a seed takes the
    next. `reset(options={"prompt_id": i})` takes prompt i.

    ## Episode End
    Terminated by EOS, truncated after `max_new_tokens` tokens without it (default: the longest
    demonstration, EOS and one more).

    ## Arguments
    * `split`: "train" or "held_out".
    * `reward`: "correct", "exact", "prefix", "edit", a function of a finished
      `rlbook.llm.rewards.Completion`, or several of them: a list, or a mapping such as {correct:
      1.0, edit: 0.2} of names to weights. Each of several is logged as `reward/NAME`.
    * `evaluation_reward`: what an evaluation counts, as `reward`.
    * `model`: a name, which the policy's builder reads; the environment builds no network. A local
      Hugging Face causal LM folder, whose tokenizer makes the ids here; None for the built-in small
      model, which has been taught about half of its task where the weights ship with the package;
      "new" for the same one untaught.
    * `tokenizer`: what the built-in model's tokens are: None for one a character, "character",
      "word", "bpe" or "bytelevel" for tokens that are trained on the texts of the training split
      (words: of both), or a tokenizer.json, or a folder with one, such as a run's. With a tokenizer
      the model starts untaught, because the weights that ship know the characters.
    * `vocab_size`: V, at most, special tokens included: of "bpe" and "bytelevel" (512) and of
      "word" (all words).
    * `max_new_tokens`: limit on a completion, in tokens.
    * `num_examine`: how many completions of each data source are printed whenever some are scored,
      with prompt, answer and score (0).

    ## Known answer
    The optimal return is 1.0 from every prompt.

    ## Version History
    * v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        task: Task,
        *,
        split: str = "train",
        reward: Asked = "correct",
        evaluation_reward: Asked = "correct",
        model: str | None = None,
        tokenizer: str | None = None,
        vocab_size: int | None = None,
        max_new_tokens: int | None = None,
        num_examine: int = 0,
        render_mode: str | None = None,
        allow_import: bool = False,
    ) -> None:
        rules = TokenRules(
            task,
            split=split,
            reward=reward,
            model=model,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            max_new_tokens=max_new_tokens,
            num_examine=num_examine,
            allow_import=allow_import,
        )
        self.evaluation_kwargs = {"split": "held_out", "reward": evaluation_reward}
        self._begin(rules, model, render_mode)

    def _begin(self, rules: TokenRules, model: str | None, render_mode: str | None) -> None:
        check("render_mode", render_mode, optional(one_of("ansi")))
        self.rules, self.model = rules, model
        self.observation_space, self.action_space = self._single_spaces()
        self.render_mode = render_mode
        self.rows = TokenRows(self.rules, 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts a new prompt; see "Starting State"."""
        super().reset(seed=seed)
        asked = (options or {}).get("prompt_id")
        self.rows.start(
            0,
            self.rows.pick(
                0, index=None if asked is None else int(asked), seed=seed, rng=self.np_random
            ),
        )
        return self._observation(), {}

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Appends a token."""
        reward = self.rows.write(np.atleast_1d(np.asarray(action, dtype=np.int64)))
        info = (
            {METRICS: {name: float(values[0]) for name, values in self.rows.named.items()}}
            if self.rows.named
            else {}
        )
        return (
            self._observation(),
            float(reward[0]),
            bool(self.rows.terminated[0]),
            bool(self.rows.truncated[0]),
            info,
        )

    def render(self) -> str | None:  # type: ignore[override]
        """The prompt and the completion as text."""
        return self.rows.text(0) if self.render_mode == "ansi" else None

    def snapshot(self) -> dict[str, Any]:
        """All state, even in the middle of an episode, including the generator."""
        return {"rows": self.rows.state(), "rng": self.np_random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self.rows.set_state(state["rows"])
        set_rng_state(self.np_random, state["rng"])

    def _observation(self) -> Observation:
        return {"tokens": self.rows.tokens[0].copy(), "length": np.int64(self.rows.lengths[0])}


class TokenVectorEnv(_ModelProperties, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """N prompts completed in parallel: the rules and arguments of `single`, on one [N, L] array.

    Autoreset is disabled. `defer_rewards(True)` lets rewards wait: `step` pays 0, and `score_round`
    gives the rewards of all completions that have ended, in one call.
    `reset(seed=None | int | list, options={"reset_mask": bool [N], "prompt_id": int | [N]})` begins
    the masked environments again (all of them by default) and returns all N observations; seed s
    means s, s + 1, … for the environments. One that has ended ignores its action until it is reset:
    its observation repeats, its reward is 0 and its flags stay.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    single: ClassVar[type[TokenEnv]] = TokenEnv  # whose rules and arguments these are

    def __init__(self, num_envs: int = 1, *, render_mode: str | None = None, **kwargs: Any) -> None:
        check("render_mode", render_mode, optional(one_of("ansi")))
        check("num_envs", num_envs, positive_int)
        one = self.single(**kwargs)
        self.rules, self.model, self.evaluation_kwargs = one.rules, one.model, one.evaluation_kwargs
        self.single_observation_space, self.single_action_space = self._single_spaces()
        self.num_envs = int(num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = render_mode
        self.rows = TokenRows(self.rules, self.num_envs)
        self.generators: list[np.random.Generator] = []

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Resets the masked environments; see the class."""
        options = options or {}
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be {self.num_envs} booleans")
        seeds, asked = self._seeds(seed), self._requested_lengths(options.get("prompt_id"))
        self._seed(seeds, mask)
        for row in np.flatnonzero(mask).tolist():
            self.rows.start(
                row,
                self.rows.pick(row, index=asked[row], seed=seeds[row], rng=self.generators[row]),
            )
        return self._observation(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Appends a token in every environment whose episode has not ended."""
        reward = self.rows.write(np.asarray(actions, dtype=np.int64))
        info = {METRICS: self.rows.named} if self.rows.named else {}
        return (
            self._observation(),
            reward,
            self.rows.terminated.copy(),
            self.rows.truncated.copy(),
            info,
        )

    def defer_rewards(self, deferred: bool) -> bool:
        """See the class."""
        self.rows.deferred = deferred
        return True

    def score_round(self) -> Scored:
        """The rewards [N] of the completions that have ended, 0 for the others, and the parts of a
        reward that has several, NaN for the others."""
        return self.rows.score(np.flatnonzero(self.rows.terminated | self.rows.truncated))

    def render(self) -> tuple[str, ...] | None:
        """The prompt and the completion of each environment as text."""
        return (
            tuple(self.rows.text(row) for row in range(self.num_envs))
            if self.render_mode == "ansi"
            else None
        )

    def snapshot(self) -> dict[str, Any]:
        """All state, even in the middle of an episode, including the generators."""
        return {
            "rows": self.rows.state(),
            "rng": [generator.bit_generator.state for generator in self.generators],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self.rows.set_state(state["rows"])
        self.generators = [np.random.Generator(np.random.PCG64()) for _ in state["rng"]]
        for generator, generator_state in zip(self.generators, state["rng"], strict=True):
            set_rng_state(generator, generator_state)

    def _observation(self) -> Observation:
        return {"tokens": self.rows.tokens.copy(), "length": self.rows.lengths.copy()}

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"a list given as seed must have {self.num_envs} entries, one per environment, "
                f"not {len(seed)}"
            )
        return [None if one is None else int(one) for one in seed]

    def _requested_lengths(self, prompt: ArrayLike | None) -> list[int | None]:
        if prompt is None:
            return [None] * self.num_envs
        return [
            int(one)
            for one in np.broadcast_to(np.asarray(prompt, dtype=np.int64), (self.num_envs,))
        ]

    def _seed(self, seeds: list[int | None], mask: np.ndarray) -> None:
        """Seeds each environment's own generator."""
        if not self.generators:
            self.generators = [seeding.np_random(seed)[0] for seed in seeds]
            return
        for row in np.flatnonzero(mask):
            if seeds[row] is not None:
                self.generators[row] = seeding.np_random(seeds[row])[0]


def describe_task(text: str) -> str:
    """The docstring of `TokenEnv`, and below it what a task is."""
    return f"{inspect.getdoc(TokenEnv)}\n\n{inspect.cleandoc(text)}\n"


class Addition(TokenEnv):
    __doc__ = describe_task("""
    The task: sums of two two-digit numbers, "12+34=" is answered by "46" and EOS; 7 588 training and 512 held-out prompts. V is 26, a
    prompt has 7 tokens (BOS first), `max_new_tokens` is 5 and L is 12. Optimal return: 1.0.

    One more argument:
    * `digits`: how many each of the two numbers has, 2 to 4 (2). Weights ship for two digits alone.
    """)

    def __init__(self, *, digits: int = 2, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(AdditionTask, digits), **kwargs)


class AdditionVector(TokenVectorEnv):
    """`Addition` for N environments."""

    single = Addition


class Reverse(TokenEnv):
    __doc__ = describe_task("""
    The task: six letters backwards, "abcdef=" is answered by "fedcba" and EOS; 7 680 training and 512 held-out prompts. V is 26, a
    prompt has 8 tokens (BOS first), `max_new_tokens` is 8 and L is 16. Optimal return: 1.0.
    """)

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(ReverseTask), **kwargs)


class ReverseVector(TokenVectorEnv):
    """`Reverse` for N environments."""

    single = Reverse
