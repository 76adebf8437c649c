"""TRL's trainers for a comparison: a tokenizer whose words are its ids, and the seconds of each
optimiser step."""

from __future__ import annotations

import contextlib
import io
import tempfile
from typing import Any

from benchmarks.timing import clock

DROPPED = 2  # first steps, in which memory is taken and libraries are warmed


def word_tokenizer(vocabulary: int) -> Any:
    """A tokenizer of the words t0, t1, …, whose ids are their numbers; t0 pads, t1 ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t2"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="t0", eos_token="t1", padding_side="left"
    )


def step_seconds(
    trainer: str, arguments: dict[str, Any], *, device: str = "cpu", **parts: Any
) -> list[float]:
    """Seconds of each step of `trl.TRAINERTrainer` by `clock`, the first two dropped.

    Args:
        trainer: "GRPO", "SFT", "DPO" or "Reward".
        arguments: of its config, beside those that keep it from writing and reporting.
        device: "cpu" or "cuda".
        parts: of the trainer itself: model, data set, tokenizer.
    """
    import trl
    from transformers import TrainerCallback

    now = clock(device)
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(now() - self.start)

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        settings = getattr(trl, f"{trainer}Config")(
            output_dir=folder,
            use_cpu=device == "cpu",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **arguments,
        )
        getattr(trl, f"{trainer}Trainer")(args=settings, callbacks=[Clock()], **parts).train()
    return times[DROPPED:]
