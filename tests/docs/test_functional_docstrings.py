"""Every equation says where it is from and what shapes it takes, and the folder stays a bottom
layer."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import rlbook.functional

FOLDER = Path(rlbook.functional.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in FOLDER.rglob("[!_]*.py")
)
WITHOUT_SOURCE = {
    "weighted_sum",
    "backward_sum",
    "sequence_log_prob",
    "mean_log_prob",
    "divergence",
    "preference_accuracy",
    "parse_schedule",
    "hold_schedule",
    "flat_gradient",
    "log_ratios",
}
"""Sums, counts, parsers and choices by name: no equation of anybody's."""


def public_functions():
    for name in MODULES:
        module = importlib.import_module(f"rlbook.functional.{name}")
        for function_name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not function_name.startswith("_"):
                yield pytest.param(function, id=f"{name}.{function_name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_every_equation_has_a_docstring_with_its_source(function):
    text = inspect.getdoc(function) or ""
    assert text, "no docstring"
    assert function.__name__ in WITHOUT_SOURCE or "Source: " in text


@pytest.mark.parametrize(
    "function", [item for item in public_functions() if item.values[0].__name__.endswith("_loss")]
)
def test_every_loss_states_shapes_arguments_and_result(function):
    text = inspect.getdoc(function) or ""
    assert "[B]" in text or "[B, " in text or "as in `" in text
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for name in inspect.signature(function).parameters:
        assert name in arguments, f"{name} is not described"


@pytest.mark.parametrize("name", MODULES)
def test_the_equations_import_nothing_else_of_rlbook(name):
    for node in ast.walk(ast.parse((FOLDER / f"{name.replace('.', '/')}.py").read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for imported in names:
            assert not imported.startswith("rlbook") or imported.startswith("rlbook.functional")
