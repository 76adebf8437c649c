"""A GIF of an agent playing: one picture per moment, with a caption."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rlbook.agent import Agent
from rlbook.errors import RequestError, runs_in_notebook
from rlbook.interaction.environments import EnvRecipe
from rlbook.plots.colours import INK, PAPER, RED, readable_ink
from rlbook.plots.figure import drawing, save_bytes
from rlbook.plots.films.episode_board import BoardStage, Moment, picture_of, stage_for
from rlbook.plots.films.episode_frames import (
    Frame,
    play_frames,
    render_error_text,
    render_modes,
    with_mode,
)
from rlbook.plots.films.gif_writer import LAST, encode_gif, font, shared_palette
from rlbook.plots.terminal import ESCAPE, visible_length

LONGEST = 2_000  # frames
WIDEST = 600  # pixels; larger pictures are shrunk
SILENT = 2.0  # seconds of drawing before it is shown how far it has come
LETTERS = 13  # pixels, of the line below a picture
LETTERS_ACROSS = 32  # a wide picture's letters are this share of it: 11 pixels on a phone
SMALLEST = 320  # pixels; smaller ones are enlarged by a whole number, as far as they stay below


def save_gif(
    agent: Agent, recipe: EnvRecipe, path: str | Path, *, episodes: int = 1, seed: int = 0
) -> Path:
    """Writes greedy episodes as a GIF: an episode of n steps has n + 1 frames.

    Environments with a board (toy text) are shown on it, with the agent's values and arrows; others
    by the pixels that they draw, or by their text.

    Args:
        agent: who acts.
        recipe: where.
        path: the file, its name ending in .gif.
        episodes: how many.
        seed: decides how they start.

    Raises:
        RequestError: the environment can draw nothing here, more than 2 000 frames, or a file that
            cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise RequestError(f"the name of an animation must end in .gif, got {str(path)!r}")
    film = gif_bytes(agent, recipe, episodes=episodes, seed=seed)
    with drawing(str(path)):
        return save_bytes(path, film)


def gif_bytes(agent: Agent, recipe: EnvRecipe, *, episodes: int = 1, seed: int = 0) -> bytes:
    """The GIF that `save_gif` writes."""
    stage = stage_for(agent, recipe)
    modes = [] if stage is not None else render_modes(recipe)
    if stage is None and not modes:
        raise RequestError(f"{recipe.name} cannot be drawn here: {_no_pictures_reason(recipe)}")
    mode = None if stage is not None else "rgb_array" if "rgb_array" in modes else modes[0]
    played = play_frames(agent, recipe, mode, episodes=episodes, seed=seed)
    frames = list(_show_progress(_limit_frames(played)))
    if stage is None and frames[0].picture is None:
        raise RequestError(
            f"{recipe.name} cannot be drawn here: its render() returns nothing in the mode {mode!r}"
        )
    with drawing("the film"):
        return _gif_of(frames, stage, recipe)


def _gif_of(frames: list[Frame], stage: BoardStage | None, recipe: EnvRecipe) -> bytes:
    if stage is not None:
        frames = [_draw_on_board(frame, stage.at(frame.obs)) for frame in frames]
    pace = round(1000 / float(recipe.make().metadata.get("render_fps") or 4))
    durations = [LAST if frame.over else pace for frame in frames]
    width = max(round(font(LETTERS).getlength(caption_of(frame))) for frame in frames) + 16
    pictures = [picture(frame, width) for frame in _pad_frames(frames)]
    return encode_gif(pictures, durations, None if stage is None else shared_palette(pictures, 256))


def _draw_on_board(frame: Frame, moment: Moment) -> Frame:
    return replace(frame, picture=picture_of(moment), note=moment.note)


def caption_of(frame: Frame) -> str:
    """The step, the return so far, and information that the picture does not show."""
    counts = f"step {frame.step}   return {frame.episode_return:.4g}".replace("-", "−")
    return "   ".join(
        [counts, *([frame.note] if frame.note else []), *(["did not finish"] if frame.cut else [])]
    )


def picture(frame: Frame, width: int = 200) -> Image.Image:
    """The environment's image, at least `width` pixels wide, with a caption below it. So no two
    frames of an episode are equal."""

    drawn = (
        _text_picture(frame.picture)
        if isinstance(frame.picture, str)
        else Image.fromarray(np.asarray(frame.picture, dtype=np.uint8))
    )
    larger = SMALLEST // max(drawn.size)
    if larger > 1:
        drawn = drawn.resize(
            (larger * drawn.width, larger * drawn.height), Image.Resampling.NEAREST
        )
    drawn.thumbnail((WIDEST, WIDEST))
    across = max(width, drawn.width)
    letters = max(LETTERS, min(across // LETTERS_ACROSS, LETTERS * across // width))
    whole = Image.new("RGB", (across, drawn.height + 2 * letters), PAPER)
    whole.paste(drawn, ((across - drawn.width) // 2, 0))
    place = (8, drawn.height + 2 * letters // 5)
    ImageDraw.Draw(whole).text(place, caption_of(frame), fill=INK, font=font(letters))
    return whole


def _limit_frames(frames: Iterator[Frame]) -> Iterator[Frame]:
    for count, frame in enumerate(frames):
        if count >= LONGEST:
            raise RequestError(
                f"these episodes have more than {LONGEST:,} frames; ask for fewer episodes"
            )
        yield frame


def _show_progress(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The same frames, with a counter on standard error or in the cell if they take long: MuJoCo
    draws ten per second."""
    from tqdm.auto import tqdm

    shown = runs_in_notebook() or sys.stderr.isatty()
    yield from tqdm(frames, "drawing", unit=" frames", leave=False, delay=SILENT, disable=not shown)


def _pad_frames(frames: list[Frame]) -> list[Frame]:
    """Texts padded to the same size, above and to the right: all frames of a GIF have one size, and
    the content keeps its position."""
    if not isinstance(frames[0].picture, str):
        return frames
    texts = [frame.picture.strip("\n").split("\n") for frame in frames]
    lines, columns = (
        max(len(text) for text in texts),
        max(_width(line) for text in texts for line in text),
    )
    padded = [
        "\n".join(
            line + " " * (columns - _width(line)) for line in [*[""] * (lines - len(text)), *text]
        )
        for text in texts
    ]
    return [replace(frame, picture=text) for frame, text in zip(frames, padded, strict=True)]


def _width(line: str) -> int:
    return visible_length(line)


def _text_picture(text: str) -> Image.Image:
    """Lines of text as a picture; coloured text (gymnasium: the agent's position) gets a coloured
    background."""

    lines, letters = text.split("\n"), font(20, mono=True)
    advance, height, margin = round(letters.getlength("M")), 26, 14
    image = Image.new(
        "RGB",
        (2 * margin + advance * max(map(_width, lines)), 2 * margin + height * len(lines)),
        PAPER,
    )
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        _draw_line(draw, line, margin, margin + row * height, advance, height, letters)
    return image


def _draw_line(
    draw: ImageDraw.ImageDraw,
    line: str,
    left: int,
    top: int,
    advance: int,
    height: int,
    letters: ImageFont.FreeTypeFont,
) -> None:
    pieces, codes = ESCAPE.split(line), [None, *ESCAPE.findall(line)]
    for piece, code in zip(pieces, codes, strict=True):
        marked = code is not None and code != "\x1b[0m"
        if marked:
            draw.rectangle((left, top, left + advance * len(piece) - 1, top + height - 1), fill=RED)
        draw.text((left, top + 1), piece, fill=readable_ink(RED) if marked else INK, font=letters)
        left += advance * len(piece)


def _no_pictures_reason(recipe: EnvRecipe) -> str:
    """The reason, in the environment's own words."""
    if recipe.id is None:
        return "it was made without a render_mode"
    if "rgb_array" in recipe.make().unwrapped.metadata.get("render_modes", []):
        try:
            env = with_mode(recipe, "rgb_array").make()
            env.reset(seed=0)
            env.render()
        except Exception as error:
            return render_error_text(error)
    return "it has no render mode that gives text or pixels"
