"""Answering in a chat as a Markov decision process: a token environment for examples with
messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlbook.data.schemas import Message
from rlbook.llm.environments.chat_rules import COMPARISONS, ChatRules, chat_settings, stops
from rlbook.llm.environments.examples import Source
from rlbook.llm.environments.token_env import TokenEnv, TokenVectorEnv
from rlbook.llm.rewards import Asked

SOURCES = ("task", "function", "data")
"""The arguments that name the source of the examples; exactly one of them is given."""
SPLITTING = ("split", "held_out", "held_out_data")
"""The arguments that determine which examples are held out, and which are used."""


class Chat(TokenEnv):
    """
    ## Description
    A chat waits for its next turn; the agent writes it, one token an action. The model's own chat
    template makes the prompt.

    ## Action Space
    `Discrete(V)`: the id of the next token.

    ## Observation Space
    `Dict(tokens=MultiDiscrete([V] * L), length=Discrete(L + 1))`: the ids so far, prompt first,
    filled up with PAD to the right, and how many of them there are. L is the longest prompt, or
    `max_prompt_tokens`, plus `max_new_tokens`. PAD is never an end token.

    ## Rewards
    0 until the episode ends; then `reward` of the completion, as in `Addition-v0`. A reward sees
    the messages and every column of the example; the text has its stop text and not its end token.

    ## Starting State
    A prompt of `split`, as in `Addition-v0`. The two splits are fixed: those of the task, what the
    function says for "train" and for "held_out", or a share of the rows (or a second file),
    whatever the seed.

    ## Episode End
    Terminated by an end token (the tokenizer's EOS, those of the folder's generation_config.json,
    and `end_tokens`) or as soon as the completion holds a text of `stop`; truncated after
    `max_new_tokens` tokens.

    ## Arguments
    * `task`, `function`, `data`: one of them, where the examples come from. A built-in task's name
      ("addition"); a function, or "module:function" with allow_import, that is given "train" or
      "held_out" and returns examples or rows; or a file of JSON lines, a JSON array, a parquet file
      or a `datasets` folder with rows of any form in `rlbook.data.schemas`.
    * `held_out`, `held_out_data`: the share of a file's rows that is held out (0.1), or another
      file.
    * `system`: system text for examples that bring none.
    * `shots`: how many training examples stand before each prompt with their answers (0), or a list
      of messages.
    * `template`: None for the tokenizer's own, "plain" for none, "r1_zero" for the prompt of
      DeepSeek-R1-Zero, or a file with one.
      `template_arguments`: what it is told, such as {enable_thinking: false};
      `add_generation_prompt` is true.
    * `end_tokens`, `stop`: a text or several: tokens, and texts, that end a completion besides.
    * `max_prompt_tokens`: limit on a prompt; `overlong` says what becomes of a longer one: "error"
      (the default), "left" (its first tokens are cut off), or "filter" (the example is left out).
    * `max_new_tokens`: limit on a completion, in tokens (of a task the longest answer, EOS and one
      more; otherwise 64).
    * `reward`, `split`, `model`, `tokenizer`, `vocab_size`, `num_examine`: as in `Addition-v0`.
      `evaluation_reward`: the reward of
      evaluations ("correct" in place of another comparison with the answer, otherwise `reward`).

    ## Known answer
    The optimal return of the default, sums of two two-digit numbers, is 1.0 from every prompt: its
    ids are those of `Addition-v0`.

    ## Version History
    * v0: first version.
    """

    def __init__(
        self,
        *,
        task: str | None = None,
        function: str | Source | None = None,
        data: str | Path | None = None,
        held_out_data: str | Path | None = None,
        held_out: float = 0.1,
        system: str | None = None,
        shots: int | Sequence[Message] = 0,
        template: str | None = None,
        template_arguments: dict[str, Any] | None = None,
        end_tokens: str | Sequence[str] = (),
        stop: str | Sequence[str] = (),
        max_prompt_tokens: int | None = None,
        overlong: str = "error",
        max_new_tokens: int | None = None,
        num_examine: int = 0,
        split: str = "train",
        reward: Asked = "correct",
        evaluation_reward: Asked = None,
        model: str | None = None,
        tokenizer: str | None = None,
        vocab_size: int | None = None,
        allow_import: bool = False,
        render_mode: str | None = None,
    ) -> None:
        settings = chat_settings(
            task=task,
            function=function,
            allow_import=allow_import,
            data=data,
            held_out_data=held_out_data,
            held_out=held_out,
            model=model,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            system=system,
            shots=shots,
            template=template,
            template_arguments=template_arguments,
            end_tokens=end_tokens,
            max_prompt_tokens=max_prompt_tokens,
            overlong=overlong,
        )
        rules = ChatRules(
            settings,
            split=split,
            reward=reward,
            stop=stops(stop),
            max_new_tokens=max_new_tokens,
            num_examine=num_examine,
        )
        if evaluation_reward is None:  # the success rate instead of a comparison with the answer
            compares = isinstance(reward, str) and reward in COMPARISONS
            evaluation_reward = "correct" if compares else reward
        self.evaluation_kwargs = {"split": "held_out", "reward": evaluation_reward}
        self._begin(rules, model, render_mode)

    @staticmethod
    def evaluation_arguments(
        own: Mapping[str, Any], overrides: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The arguments of an evaluation on other prompts than the run's own: every row of another
        file of `data` is a prompt, unless a split is asked for as well. The file that the run
        learned from stays where it is, because its rows may stand before each prompt as shots, and
        its characters may be the tokens.

        Args:
            own: the environment's.
            overrides: what the evaluation is to have instead.
        """
        arranged = dict(overrides)
        if overrides.get("data") is not None and overrides.keys().isdisjoint(SPLITTING):
            arranged["held_out_data"] = overrides["data"]
            if own.get("data") is not None:
                del arranged["data"]
        elif not overrides.keys().isdisjoint(SOURCES):
            own = {name: value for name, value in own.items() if name not in SPLITTING}
        if not arranged.keys().isdisjoint(SOURCES):
            own = {name: value for name, value in own.items() if name not in SOURCES}
        return dict(own) | arranged


class ChatVector(TokenVectorEnv):
    """`Chat` for N environments."""

    single = Chat
