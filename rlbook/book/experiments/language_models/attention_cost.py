"""What a layer of a transformer costs in multiplications, time and memory, and what the KV cache
saves.

    found = run()
    found.products["attention"]              # [lengths], multiplications, counted by torch

A layer of Llama with width d, as many heads of keys as of queries, and f units in its feed-forward
part multiplies n (4 d² + 3 d f) numbers in its matrices and 2 n² d in its attention, masked places
included. What training keeps for the backward pass has a part that grows with n and the attention
weights, H n² numbers. Multiplications and bytes are exact, and the same on every machine; times are
CPU seconds of one thread.

Source: Vaswani et al. 2017, arXiv:1706.03762, table 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from rlbook.llm.models.architectures.attention import attention, causal_mask
from rlbook.llm.models.architectures.transformer import Cache, Layer, Transformer, TransformerSizes

WIDTH, HEADS, FEED_FORWARD, LAYERS, VOCABULARY = 128, 4, 384, 2, 64
LENGTHS = (128, 256, 512, 1024, 2048)
WRITTEN = 256  # tokens
FLOAT = 4  # bytes
MATRICES, ATTENTION = "matrices", "attention"
SIZES = TransformerSizes(
    VOCABULARY,
    width=WIDTH,
    layers=LAYERS,
    heads=HEADS,
    kv_heads=HEADS,
    head_width=WIDTH // HEADS,
    feed_forward=FEED_FORWARD,
)


@dataclass(frozen=True)
class LayerCosts:
    """The cost of n tokens in one layer, for several lengths, and of generating token t after t - 1
    others."""

    lengths: NDArray[np.int64]  # [lengths], n
    products: dict[str, NDArray[np.float64]]  # part → [lengths], multiplications
    seconds: dict[str, NDArray[np.float64]]  # part → [lengths], CPU seconds
    kept: NDArray[np.float64]  # [lengths], bytes that the backward pass needs
    token_seconds: dict[str, NDArray[np.float64]]  # with a cache or without → [WRITTEN]
    cache_bytes: float  # of a token in one layer


def run(runs: int = 3, lengths: Sequence[int] = LENGTHS, written: int = WRITTEN) -> LayerCosts:
    """Counts and measures; of `runs` measurements the smallest is kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layer, model = Layer(SIZES), Transformer(SIZES)
            texts = [torch.randn(1, n, WIDTH) for n in lengths]
        counted = [products_of(layer, x) for x in texts]
        timed = [seconds_of(layer, x, runs) for x in texts]
        cache: Cache = []
        model(torch.zeros(1, 1, dtype=torch.int64), cache)
        return LayerCosts(
            np.array(lengths),
            {part: np.array([count[part] for count in counted]) for part in (MATRICES, ATTENTION)},
            {part: np.array([item[part] for item in timed]) for part in (MATRICES, ATTENTION)},
            np.array([kept_bytes(layer, x) for x in texts]),
            {
                name: np.min([token_seconds(model, written, kept) for _ in range(runs)], axis=0)
                for name, kept in (("with a cache", True), ("without", False))
            },
            float(sum(part.numel() * FLOAT for part in cache[0])),
        )
    finally:
        torch.set_num_threads(threads)


def products_of(layer: Layer, x: Tensor) -> dict[str, float]:
    """The multiplications of a forward pass over x [1, n, d]: between tokens, and with weight
    matrices."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, [], 0)
    # torch counts a multiplication and an addition as two
    counts = {str(name): flops / 2 for name, flops in counter.get_flop_counts()["Global"].items()}
    between = counts["aten.bmm"]
    return {ATTENTION: between, MATRICES: sum(counts.values()) - between}


def seconds_of(layer: Layer, x: Tensor, runs: int) -> dict[str, float]:
    """CPU seconds of attention alone and of the rest."""
    q = x.unflatten(-1, (HEADS, -1)).transpose(1, 2).contiguous()  # [1, H, n, D]
    mask = causal_mask(x.shape[1])
    alone, whole = [], []
    with torch.inference_mode():
        for _ in range(runs + 1):  # the first one warms up
            start = time.process_time()
            attention(q, q, q, mask)
            alone.append(time.process_time() - start)
            start = time.process_time()
            layer(x, [], 0)
            whole.append(time.process_time() - start)
    return {ATTENTION: min(alone[1:]), MATRICES: max(min(whole[1:]) - min(alone[1:]), 0.0)}


def kept_bytes(layer: Layer, x: Tensor) -> float:
    """The bytes that a forward pass keeps for the backward pass, besides the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = layer(x, [], 0)  # alive until here, so that no place is used twice
    del result
    return float(sum(kept.values()))


@torch.inference_mode()
def token_seconds(model: Transformer, written: int, cached: bool) -> NDArray[np.float64]:
    """CPU seconds of each of `written` tokens, generated greedily after token 0: [written]."""
    cache: Cache | None = [] if cached else None
    tokens = unread = torch.zeros(1, 1, dtype=torch.int64)
    seconds = np.zeros(written)
    for place in range(written):
        start = time.process_time()
        token = model(unread, cache)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, token], dim=1)
        unread = token if cached else tokens
        seconds[place] = time.process_time() - start
    return seconds


def measurements(result: LayerCosts) -> dict[str, float]:
    """The counts for one token; how the parts grow from the second-longest text to the longest, of
    which `LENGTHS` has twice as many tokens; the time of the last tokens."""
    longest = float(result.lengths[-1])
    a_token = result.products[MATRICES][-1] / longest
    numbers = {
        "multiplications a token, matrices": float(a_token),
        "multiplications a token of the longest text, attention": float(
            result.products[ATTENTION][-1] / longest
        ),
        "length at which both are equal": float(
            a_token * longest**2 / result.products[ATTENTION][-1]
        ),
        "MB kept for the backward pass, shortest text": float(result.kept[0] / 1e6),
        "MB kept for the backward pass, longest text": float(result.kept[-1] / 1e6),
        "kB of KV cache a token and layer": result.cache_bytes / 1e3,
    }
    growth = {
        f"time of {part}, longest text beside half of it": float(seconds[-1] / seconds[-2])
        for part, seconds in result.seconds.items()
        if len(seconds) > 1
    }
    last = {
        f"ms a token, the last 16 of {len(seconds)}, {name}": float(1e3 * seconds[-16:].mean())
        for name, seconds in result.token_seconds.items()
    }
    return numbers | growth | last


def draw(result: LayerCosts) -> Figure:
    """Time and memory over the length, and the time of each generated token."""
    from rlbook.book.figures.axes import curve_colour, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(10.0, 3.5)
    times, memory, writing = figure.subplots(1, 3)
    label_axes(times, "n, tokens", "milliseconds of CPU", "a layer's forward pass")
    for place, (part, seconds) in enumerate(result.seconds.items()):
        times.plot(result.lengths, 1e3 * seconds, marker="o", color=curve_colour(place), label=part)
    label_axes(memory, "n, tokens", "megabytes", "memory of a layer")
    weights = HEADS * result.lengths.astype(float) ** 2 * FLOAT
    kept = {"kept for the backward pass": result.kept, "attention weights alone": weights}
    for place, (name, size) in enumerate(kept.items()):
        memory.plot(result.lengths, size / 1e6, marker="o", color=curve_colour(place), label=name)
    cache = result.cache_bytes * result.lengths / 1e6
    memory.plot(result.lengths, cache, marker="o", color=curve_colour(2), label="KV cache")
    label_axes(writing, "t, the token that is written", "milliseconds of CPU", "one more token")
    for place, (name, seconds) in enumerate(result.token_seconds.items()):
        place_of = np.arange(1, len(seconds) + 1)
        writing.plot(place_of, 1e3 * seconds, color=curve_colour(place), label=name, linewidth=1.2)
    for axes in (times, memory):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    for axes in (times, memory, writing):
        legend(axes, "upper left")
    return figure
