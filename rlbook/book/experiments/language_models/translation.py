"""A small translation task for an encoder-decoder: words of 3 to 8 letters, which it learns to
reverse or to sort alphabetically.

    found = run(runs=1)
    found.accuracy["reverse"]                # [R, reports], share of held-out words that are right
    found.attention["reverse"]               # [H, n, m], which letter is read for which

Three things are left out, to see what they are for. Without positions the encoder sees a set of
letters: enough to sort them, and not to reverse them. Without the causal mask the decoder sees the
token that it is asked for: its loss falls to 0, and it has learned to copy what is not there when it
writes.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 5. Differences: two layers of 64 numbers a
token, no dropout, no label smoothing, and a learning rate that falls linearly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures.attention import MultiHeadAttention
from rlbook.llm.models.architectures.encoder_decoder import (
    DecoderLayer,
    EncoderDecoder,
    EncoderDecoderSizes,
    shift_right,
    teacher_forcing_loss,
    translate_greedy,
)
from rlbook.seeding import rng_for, torch_generator

PAD, START, END, FIRST = 0, 1, 2, 3  # FIRST is the letter a
LETTERS, SHORTEST, LONGEST = 26, 3, 8
WIDTH, HEADS, FEED_FORWARD, LAYERS = 64, 4, 128, 2
STEPS, BATCH, WARM_UP, LEARNING_RATE, REPORT = 500, 72, 50, 2e-3, 50
HELD_OUT = 8  # every eighth word
WORDS = ("learning", "policy", "maze")
VARIANTS = {
    "reverse": ("reverse", True, True),
    "sort": ("sort", True, True),
    "reverse, no positions": ("reverse", False, True),
    "sort, no positions": ("sort", False, True),
    "reverse, no causal mask": ("reverse", True, False),
}
"""Name → task, whether there are positions, whether the decoder's mask is causal."""


@dataclass(frozen=True)
class Translations:
    """R runs of each variant."""

    steps: NDArray[np.int64]  # [reports]
    accuracy: dict[str, NDArray[np.float64]]  # [R, reports], share of held-out words, greedily
    loss: dict[str, NDArray[np.float64]]  # [R, reports], of a training batch, nats a token
    attention: dict[str, NDArray[np.float64]]  # [H, n, m], last layer, first run, WORDS[0]
    written: dict[str, list[str]]  # what the first run makes of WORDS


class PeekingLayer(DecoderLayer):
    """A decoder layer without the causal mask, which is a bug."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x))
        x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, mask, context=memory))
        return self.final_layer_norm(x + self.fc2(self.activation(self.fc1(x))))


def run(runs: int = 1, seed: int = 10) -> Translations:
    """Trains each variant `runs` times, from `seed` on."""
    accuracy: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    loss: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    attention: dict[str, NDArray[np.float64]] = {}
    written: dict[str, list[str]] = {}
    for name in VARIANTS:
        for number in range(seed, seed + runs):
            model, right, losses = train_translator(name, number)
            accuracy[name].append(right)
            loss[name].append(losses)
            if name not in written:
                written[name] = [translate(model, word) for word in WORDS]
                attention[name] = cross_attention(model, WORDS[0], right_answer(name, WORDS[0]))
    return Translations(
        np.arange(0, STEPS + 1, REPORT),
        {name: np.array(rows) for name, rows in accuracy.items()},
        {name: np.array(rows) for name, rows in loss.items()},
        attention,
        written,
    )


def train_translator(name: str, seed: int) -> tuple[EncoderDecoder, list[float], list[float]]:
    """Trains a variant's model; returns its accuracy on held-out words and its loss at each
    report."""
    task, positions, causal = VARIANTS[name]
    model, data = new_translator(positions, causal, seed), torch_generator(rng_for(seed, "data"))
    held_out = draw_pairs(task, 256 * HELD_OUT, torch_generator(rng_for(seed, "held out")), True)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate_factor)
    accuracy, losses = [], []
    for step in range(STEPS + 1):
        source, target = draw_pairs(task, BATCH, data, held_out=False)
        loss = teacher_forcing_loss(model, source, target, start=START, pad=PAD)
        if step % REPORT == 0:
            accuracy.append(share_right(model, *held_out))
            losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model, accuracy, losses


def learning_rate_factor(step: int) -> float:
    """Linear warm-up, then linear decay to 0 after the last step."""
    return min((step + 1) / WARM_UP, (STEPS + 1 - step) / (STEPS + 1 - WARM_UP))


def new_translator(positions: bool, causal: bool, seed: int) -> EncoderDecoder:
    """A model with random weights."""
    sizes = EncoderDecoderSizes(
        vocabulary=FIRST + LETTERS,
        width=WIDTH,
        heads=HEADS,
        feed_forward=FEED_FORWARD,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        scale=WIDTH**0.5,
        positions=positions,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng_for(seed, "initialisation").integers(2**63 - 1)))
        model = EncoderDecoder(sizes)
        if not causal:
            model.decoder.layers = nn.ModuleList(PeekingLayer(sizes) for _ in range(LAYERS))
    return model


def draw_pairs(
    task: str, count: int, generator: torch.Generator, held_out: bool
) -> tuple[Tensor, Tensor]:
    """Words [B, 8] and their targets [B, 9], END after each, both padded with PAD.

    Of `count` words those remain that are held out, or those that are not: B is random. A word is
    held out if the sum of its tokens is divisible by `HELD_OUT`.
    """
    source = torch.randint(FIRST, FIRST + LETTERS, (count, LONGEST), generator=generator)
    length = torch.randint(SHORTEST, LONGEST + 1, (count, 1), generator=generator)
    source = source.masked_fill(torch.arange(LONGEST) >= length, PAD)
    chosen = (source.sum(1) % HELD_OUT == 0) == held_out
    source, length = source[chosen], length[chosen]
    return source, targets_of(task, source, length)


def targets_of(task: str, source: Tensor, length: Tensor) -> Tensor:
    """The correct outputs [B, 9] for words [B, 8] of `length` [B, 1] letters."""
    place = torch.arange(LONGEST)
    if task == "reverse":
        letters = source.gather(1, (length - 1 - place).clamp(min=0))
    else:
        letters = source.masked_fill(place >= length, FIRST + LETTERS).sort(dim=1).values
    letters = F.pad(letters.masked_fill(place >= length, PAD), (0, 1), value=PAD)
    return letters.scatter(1, length, END)


def share_right(model: EncoderDecoder, source: Tensor, target: Tensor) -> float:
    """The share of words [B, 8] whose output equals `target` [B, 9], every letter and END."""
    written = translate_greedy(
        model, source, start=START, end=END, pad=PAD, max_new_tokens=target.shape[1]
    )
    written = F.pad(written, (0, target.shape[1] - written.shape[1]), value=PAD)
    return (written == target).all(dim=1).double().mean().item()


def encode_word(word: str) -> Tensor:
    """The tokens of lower-case letters: [1, n]."""
    return torch.tensor([[FIRST + ord(letter) - ord("a") for letter in word]])


def translate(model: EncoderDecoder, word: str) -> str:
    """The model's output for a word."""
    ids = translate_greedy(
        model, encode_word(word), start=START, end=END, pad=PAD, max_new_tokens=LONGEST + 1
    )
    return "".join(chr(ord("a") + token - FIRST) for token in ids[0].tolist() if token >= FIRST)


def right_answer(name: str, word: str) -> str:
    """The correct output of a variant for a word."""
    return word[::-1] if VARIANTS[name][0] == "reverse" else "".join(sorted(word))


def cross_attention(model: EncoderDecoder, source: str, target: str) -> NDArray[np.float64]:
    """The letters of the source to which the decoder's last layer attends at each output letter:
    [H, n, m], each row sums to 1."""
    heard: list[Tensor] = []
    layer = model.decoder.layers[-1]
    assert isinstance(layer, DecoderLayer)

    def record_attention(
        module: MultiHeadAttention, given: tuple[Tensor, ...], named: dict[str, Tensor]
    ) -> None:
        heard.append(module.weights(*given, **named))

    handle = layer.encoder_attn.register_forward_pre_hook(record_attention, with_kwargs=True)
    with handle, torch.inference_mode():
        tokens = encode_word(source)
        model(tokens, shift_right(encode_word(target), START), torch.ones_like(tokens).bool())
    return heard[0][0].double().numpy()


def measurements(result: Translations) -> dict[str, float]:
    """The final share of correct held-out words, means over the runs; and the final loss of the
    model without the causal mask, in nats per token."""
    numbers = {
        f"{name}: right": float(rows[:, -1].mean()) for name, rows in result.accuracy.items()
    }
    peeking = "reverse, no causal mask"
    return numbers | {f"{peeking}: training loss": float(result.loss[peeking][:, -1].mean())}


def draw(result: Translations) -> Figure:
    """Accuracy over steps, and the decoder's attention while it reverses a word and sorts it."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, label_axes, legend
    from rlbook.plots.figure import new_figure, words

    figure = new_figure(10.0, 3.8)
    axes, *grids = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    label_axes(axes, "gradient steps", "held-out words that are right")
    for place, (name, rows) in enumerate(result.accuracy.items()):
        style = ":" if "no causal" in name else "--" if "no positions" in name else "-"
        draw_runs(axes, result.steps, rows, curve_colour(place), name, linestyle=style)
    axes.set_ylim(-0.03, 1.03)
    legend(axes, "center right")
    for grid, name in zip(grids, ("reverse", "sort"), strict=True):
        weights, written = result.attention[name].mean(0), right_answer(name, WORDS[0])
        grid.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        grid.set_xticks(range(len(WORDS[0])), list(WORDS[0]), **words(fontsize=10))
        grid.set_yticks(range(len(written)), list(written), **words(fontsize=10))
        grid.set_xlabel("letters of the source", **words(fontsize=10))
        grid.set_ylabel("letters written", **words(fontsize=10))
        grid.set_title(f"{name}: cross-attention", **words(fontsize=11, pad=8))
    return figure
