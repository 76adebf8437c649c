"""No test compares floating-point results with a bound that somebody fitted: it says where its
bound comes from.

`closeness.py` derives most bounds. Any other stands beside what it is made of: an expression with a
name in it (`4 * error`, `run.agent.config.tolerance`) or a root or power (`4 * 0.5 / 600**0.5`), or
a comment on the same line or the line above.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMPARISONS = ("approx", "allclose", "isclose", "assert_allclose", "assert_close")
BOUNDS = ("atol", "rtol", "abs", "rel", "abs_tol", "rel_tol")
SMALL = 1e-3  # no bound of what an agent learned is as small as that
SUSPECT = re.compile(
    r"^[A-Z_]+ = .*\de-\d|<=?[^\n:]*(\de-\d|0\.000\d)|"
    + "|".join(rf"\b{name}\(" for name in COMPARISONS),
    re.MULTILINE,
)
REMARK = re.compile(r"#\s*(type:|fmt:|noqa|pragma)")  # to a program, not to a reader


def comment_lines(text: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and not REMARK.match(token.string)
    }


def is_bare(bound: ast.expr, constants: set[str]) -> bool:
    """Whether it is a number, other than 0, with nothing that says where it comes from."""
    nodes = list(ast.walk(bound))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    if isinstance(bound, ast.Constant) and bound.value == 0:
        return False
    return names <= constants and not any(isinstance(node, ast.Call | ast.Pow) for node in nodes)


def is_small(bound: ast.expr, constants: set[str]) -> bool:
    """Whether there is a small number in it, or the name of one."""
    return any(
        (
            node.id in constants
            if isinstance(node, ast.Name)
            else isinstance(node, ast.Constant)
            and isinstance(node.value, float)
            and 0 < node.value < SMALL
        )
        for node in ast.walk(bound)
    )


def bare_constants(tree: ast.Module, text: str) -> set[str]:
    """The module's small numbers without a comment, such as TOLERANCE = 1e-5."""
    small = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and is_bare(node.value, set())
        and is_small(node.value, set())
    ]
    comments = comment_lines(text) if small else set()
    return {
        target.id
        for node in small
        if not comments & {node.lineno - 1, node.lineno}
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def bounded_bare(node: ast.Compare | ast.Call, constants: set[str]) -> bool:
    """Whether a comparison has a bare bound, or a library's own."""
    if isinstance(node, ast.Compare):
        pairs = zip(node.ops, node.comparators, strict=True)
        return any(
            isinstance(order, ast.Lt | ast.LtE)
            and is_bare(bound, constants)
            and is_small(bound, constants)
            for order, bound in pairs
        )
    if getattr(node.func, "attr", getattr(node.func, "id", "")) not in COMPARISONS:
        return False
    given = [keyword.value for keyword in node.keywords if keyword.arg in BOUNDS]
    return not given or any(is_bare(bound, constants) for bound in given)


def fitted_bounds(text: str) -> Iterator[int]:
    """The lines of the comparisons whose bound says nothing of where it comes from."""
    if not SUSPECT.search(text):
        return
    tree = ast.parse(text)
    constants = bare_constants(tree, text)
    found = [
        (statement, node)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assert | ast.Expr | ast.Assign | ast.AugAssign | ast.Return)
        for node in ast.walk(statement)
        if isinstance(node, ast.Compare | ast.Call) and bounded_bare(node, constants)
    ]
    comments = comment_lines(text) if found else set()
    for statement, node in found:
        if not comments & set(
            range(statement.lineno - 1, (statement.end_lineno or statement.lineno) + 1)
        ):
            yield node.lineno


def test_every_bound_says_where_it_comes_from() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "closeness.py"
        for line in sorted(set(fitted_bounds(path.read_text(encoding="utf-8"))))
    ]
    assert not found, (
        "compare with near() or assert_near() of tests/closeness.py, or say what the bound is made"
        " of:\n" + "\n".join(found)
    )


@pytest.mark.parametrize(
    "line",
    [
        "assert abs(x - y) < 1e-6",
        "assert (x - y).abs().max() <= 2 * 1e-5",
        "assert x == pytest.approx(y)",
        "assert x == pytest.approx(y, rel=0, abs=1e-4)",
        "np.testing.assert_allclose(x, y)",
        "assert_close(x, y, atol=1e-5, rtol=0)",
        "assert torch.allclose(x, y, atol=1e-5)",
        "assert np.isclose(x, y, rtol=0.01)  # noqa: S101",
        "TOL = 1e-5\nassert abs(x) < TOL",
        "TOL = 1e-5\nassert_close(x, y, atol=TOL, rtol=0)",
        "def f():\n    return abs(x - y) < 1e-9",
    ],
)
def test_a_fitted_bound_is_found(line: str) -> None:
    assert len(list(fitted_bounds(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "assert x == near(y, terms=3)",
        "assert x == pytest.approx(y, rel=0, abs=4 * error)",
        "assert abs(x - y) < 4 * spread",
        "np.testing.assert_allclose(x, y, rtol=0, atol=agent.config.tolerance)",
        "assert share == pytest.approx(0.5, abs=4 * 0.5 / 600**0.5)",
        "# V <= 1, and γ^1500 of it is left\nassert error < 1e-6",
        "assert error < 1e-6  # V <= 1, and γ^1500 of it is left",
        "TOL = 1e-9  # the planner's\nassert abs(x) < TOL",
        "assert x > 1e-3",
        "assert loss < 0.05",
        "train(rate=1e-4)",
    ],
)
def test_a_derived_bound_is_let_through(line: str) -> None:
    assert not list(fitted_bounds(line))
