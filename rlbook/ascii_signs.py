"""Spells signs in ASCII for streams that cannot encode them: γ as gamma, → as ->, ± as +/-.

`SPELL_OUT` is an error handler of Python's codecs, for `open`, `str.encode` and
`stream.reconfigure(errors=SPELL_OUT)`. It is asked for those characters alone that the encoding of
the stream does not have, so a Latin-1 terminal keeps its ± and its ×.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata

SPELL_OUT = "rlbook.spell_out"
"""The error handler's name."""
BARS = dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True))
"""The columns of a small curve, from the lowest to the highest."""
SIGNS = BARS | {
    **dict.fromkeys("−–—‐‑─", "-"),
    **dict.fromkeys("“”„‟‘’‚′", "'"),
    **dict.fromkeys("●○∘", "o"),
    **dict.fromkeys("▀■", "#"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┼", "+"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("‖∥", "||"),
    **dict.fromkeys("⌈⌊", "["),
    **dict.fromkeys("⌉⌋", "]"),
    **dict.fromkeys("≈∝∼", "~"),
    **dict.fromkeys("⊙∗×⋅", "*"),
    "×": "x",
    "·": ".",
    "•": "*",
    "…": "...",
    "→": "->",
    "←": "<-",
    "↔": "<->",
    "↑": "^",
    "↓": "v",
    "↖": "\\",
    "↘": "\\",
    "↗": "/",
    "↙": "/",
    "►": ">",
    "≻": ">",
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "±": "+/-",
    "√": "sqrt",
    "∞": "inf",
    "∇": "grad ",
    "∂": "d",
    "∈": " in ",
    "∪": "|",
    "∫": "int ",
    "Σ": "sum",
    "Π": "prod",
    "⋮": ":",
    "∩": "&",
    "¬": "not ",
    "∅": "{}",
    "¡": "!",
    "®": "(R)",
    "\u2044": "/",
    "µ": "mu",
    "\u0302": "_hat",
    "\u0304": "_bar",
    "\u00a0": " ",
}
"""Sign → its ASCII spelling."""
RAISED = "superscript", "modifier letter"
"""Beginnings of the names of superscript characters."""


def spell_out(text: str, place: int) -> str:
    """The ASCII form of a text's character at this place; "?" if there is none.

    A letter's name is set apart from the letters beside it: γV is "gamma V". What stands above the
    line follows a "^": x⁻¹ is "x^-1".
    """
    sign = text[place]
    if sign in SIGNS:
        return SIGNS[sign]
    name = unicodedata.name(sign, "").lower()
    if name.startswith("greek"):
        word = name.split(" with ")[0].rpartition(" ")[2].replace("lamda", "lambda")
        word = word.capitalize() if "capital" in name else word
        before, after = (_is_letter(text, place + step) for step in (-1, 1))
        return f"{' ' if before else ''}{word}{' ' if after and not _is_greek(text, place + 1) else ''}"
    parts = unicodedata.normalize("NFKD", sign)
    if parts == sign:
        return "" if unicodedata.combining(sign) else "?"
    plain = "".join(
        part if part.isascii() else spell_out(parts, index) for index, part in enumerate(parts)
    )
    follows = place > 0 and _is_raised(text[place - 1])
    return f"^{plain}" if _is_raised(sign) and not follows else plain


def _is_letter(text: str, place: int) -> bool:
    return 0 <= place < len(text) and text[place].isalpha() and not _is_raised(text[place])


def _is_greek(text: str, place: int) -> bool:
    return 0 <= place < len(text) and unicodedata.name(text[place], "").startswith("GREEK")


def _is_raised(sign: str) -> bool:
    return unicodedata.name(sign, "").lower().startswith(RAISED)


def _handle(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = range(error.start, error.end)
    return "".join(spell_out(error.object, place) for place in signs), error.end


codecs.register_error(SPELL_OUT, _handle)


def writable(text: str, encoding: str | None) -> str:
    """A text in the form that a stream of this encoding can show, so that its length is known in
    advance."""
    known = encoding or "utf-8"
    return text if text.isascii() else text.encode(known, SPELL_OUT).decode(known)


def printable(text: str) -> str:
    """A text in the form that standard output can show, so that printing an object with it in its
    `repr` does not fail."""
    return writable(text, getattr(sys.stdout, "encoding", None))
