"""What a stream without Greek letters and arrows shows in their place."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import rlbook
from rlbook.ascii_signs import SPELL_OUT, spell_out, writable
from rlbook.cli.main import main
from rlbook.plots.terminal import Terminal


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        (
            "Q(s, a) ← Q(s, a) + α [ r + γ max_a' Q₁(s', a') - Q(s, a) ]",
            "Q(s, a) <- Q(s, a) + alpha [ r + gamma max_a' Q1(s', a') - Q(s, a) ]",
        ),
        ("γV and γλ, TD(λ)", "gamma V and gamma lambda, TD(lambda)"),
        ("θᵀx⁻¹, 10⁻³, ½ ‖x‖²", "theta^Tx^-1, 10^-3, 1/2 ||x||^2"),
        ("∇θ, ∂L/∂w, ĝ, Σ_s'", "grad theta, dL/dw, g_hat, sum_s'"),
        ("12.5 ± 0.3 ≥ 4 × 3 …", "12.5 +/- 0.3 >= 4 x 3 ..."),
        ("▁▂▃▄▅▆▇█", "_.:-=+*#"),
        ("café “said” – so", "cafe 'said' - so"),
        ("a 中 b", "a ? b"),
        ("plain", "plain"),
    ],
)
def test_signs_are_spelled_out_in_ascii(text: str, ascii_text: str) -> None:
    assert writable(text, "ascii") == ascii_text
    assert text.encode("ascii", SPELL_OUT).decode() == ascii_text
    assert writable(text, "utf-8") == text


def test_what_an_encoding_has_is_kept() -> None:
    assert writable("3 ± 1 × γ → ²", "latin-1") == "3 ± 1 × gamma -> ²"
    assert writable("3 ± 1", None) == "3 ± 1"


def test_every_sign_of_the_package_can_be_spelled() -> None:
    root = Path(rlbook.__file__).parent
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    signs = {sign for path in files for sign in path.read_text("utf-8") if not sign.isascii()}
    assert len(signs) > 100
    assert {sign for sign in signs if not spell_out(sign, 0).strip("?").isascii()} == set()
    assert {sign for sign in signs if "?" in spell_out(sign, 0)} == set()


class Stream(io.TextIOWrapper):
    """A terminal of an encoding, or a file."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "ppo"],
        ["list", "envs"],
        ["list", "algorithms"],
        ["train", "q_learning", "--help"],
        ["bug", "list"],
    ],
    ids=" ".join,
)
def test_a_command_prints_no_question_mark_for_a_sign(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as where every sign can be shown, and within the same width."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = {}
    for encoding in ("ascii", "utf-8"):
        stream = Stream(encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(words) == 0
        shown[encoding] = stream.text()
    assert not shown["utf-8"].isascii()
    assert shown["ascii"].count("?") == shown["utf-8"].count("?")
    if words[0] == "list":  # what is laid out for the terminal
        assert max(map(len, shown["ascii"].splitlines())) <= 80


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", ["train", "tune"])
@pytest.mark.parametrize("algorithm", ["ppo", "td_lambda", None])
def test_help_with_signs_spelled_out_fits_the_terminal(
    algorithm: str | None, command: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same help has been shown with the signs themselves before."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for encoding in ("utf-8", "ascii"):
        stream = Stream(encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([command, *filter(None, [algorithm]), "--help"]) == 0
        shown = stream.text()
        assert shown.isascii() is (encoding == "ascii")
        assert max(map(len, shown.splitlines())) <= columns


def test_a_terminal_spells_out_what_it_cannot_write() -> None:
    stream = Stream("ascii")
    Terminal(stream).write("γ = 0.99 → 0.9")
    assert stream.text() == "gamma = 0.99 -> 0.9\n"


def test_an_error_is_spelled_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("ascii")
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["train", "q_learning", "Maze-v0", "--γ", "1"]) == 2
    assert "gamma" in stream.text() and "?" not in stream.text().replace("(did you mean", "")


def test_runs_and_evaluations_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`print` of a sign that the stream has not would raise."""
    run = rlbook.train("q_learning", "RandomWalk-v0", episodes=40, quiet=True)
    evaluation = rlbook.evaluate(run, episodes=4)
    assert "±" in repr(evaluation) and not repr(run).isascii()
    stream = Stream("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print(run, evaluation)
    assert " +/- " in stream.text() and "?" not in stream.text()
