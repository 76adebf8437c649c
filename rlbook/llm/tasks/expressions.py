"""Evaluates arithmetic expressions with a parser of its own, so that generated text is never
executed.

    expression = term   { ("+" | "-") term }
    term       = factor { ("*" | "/") factor }
    factor     = number | "(" expression ")"

Each rule is a method, and each takes what it has read off the front of the text. Values are
fractions, so that 8/3*3 is 8.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import NamedTuple

DEEPEST = 20  # parentheses inside each other
LONGEST = 200  # characters of an expression
DIGITS = frozenset("0123456789")
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


class Expression(NamedTuple):
    """A parsed expression."""

    value: Fraction
    numbers: tuple[int, ...]  # in the order in which they were written


class _ExpressionError(Exception):
    """The text is not an expression, or divides by 0."""


def parse(text: str) -> Expression | None:
    """Parses the expression in `text`; None if it is invalid or has no value. Spaces between its
    parts are allowed."""
    if len(text) > LONGEST:
        return None
    reader = _Reader(text)
    try:
        value = reader.expression(0)
        reader.end()
    except (_ExpressionError, ZeroDivisionError):
        return None
    return Expression(value, tuple(reader.numbers))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.numbers = text, 0, list[int]()

    def next_character(self) -> str:
        """The next non-space character; "" at the end."""
        while self.text[self.place : self.place + 1] == " ":
            self.place += 1
        return self.text[self.place : self.place + 1]

    def expression(self, depth: int) -> Fraction:
        value = self.term(depth)
        while (sign := self.next_character()) in ("+", "-"):
            self.place += 1
            value = OPERATORS[sign](value, self.term(depth))
        return value

    def term(self, depth: int) -> Fraction:
        value = self.factor(depth)
        while (sign := self.next_character()) in ("*", "/"):
            self.place += 1
            value = OPERATORS[sign](value, self.factor(depth))
        return value

    def factor(self, depth: int) -> Fraction:
        if self.next_character() != "(":
            return self.number()
        if depth == DEEPEST:
            raise _ExpressionError
        self.place += 1
        value = self.expression(depth + 1)
        if self.next_character() != ")":
            raise _ExpressionError
        self.place += 1
        return value

    def number(self) -> Fraction:
        self.next_character()
        start = self.place
        while self.text[self.place : self.place + 1] in DIGITS:
            self.place += 1
        digits = self.text[start : self.place]
        if not digits or (digits[0] == "0" and digits != "0"):
            raise _ExpressionError
        self.numbers.append(int(digits))
        return Fraction(int(digits))

    def end(self) -> None:
        if self.next_character():
            raise _ExpressionError
