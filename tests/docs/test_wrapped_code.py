"""Code fits narrow pages, and its text stays what it was."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location(
    "wrapped_code", Path(__file__).parents[2] / "docs" / "ext" / "wrapped_code.py"
)
assert spec is not None and spec.loader is not None
wrapped_code = importlib.util.module_from_spec(spec)
sys.modules["wrapped_code"] = wrapped_code
spec.loader.exec_module(wrapped_code)


def block(code: str, language: str) -> str:
    """As Sphinx writes it."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    return (
        f'<div class="highlight-{language}'
        f' notranslate">{highlight(code, get_lexer_by_name(language), HtmlFormatter())}</div>'
    )


def text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page)).strip("\n")


def test_long_lines_hang_by_their_indentation_and_nothing_is_lost() -> None:
    long = '    value = reward + gamma * (1.0 - terminated) * next_value  # "<&>"'
    code = f'def target():\n    """A text\n    of two lines."""\n\n{long}\n    return value\n'
    found = wrapped_code.fitted(block(code, "python"))
    assert text(found) == code.strip("\n")
    assert re.findall(r'style="--in: (\d+)ch"', found) == ["8"], "four of its own, and four further"
    assert found.count("<span") == found.count("</span>")


def test_a_drawing_stays_whole_and_long_pseudocode_is_wrapped() -> None:
    drawing = (
        "+----------------------------------------------+\n|  1   -- right -->   2                 "
        "       |\n"
    )
    found = wrapped_code.fitted(block(drawing, "text"))
    assert (
        '<pre class="drawing" style="--columns: 48">' in found
        and "hanging" not in found
        and text(found) == drawing.strip("\n")
    )
    assert "hanging" in wrapped_code.fitted(block("x" * 80 + "\n", "text"))


def test_a_long_name_in_a_table_is_broken_only_at_its_joints() -> None:
    name = '<code><span class="pre">{}</span></code>'
    long, short = name.format("actor.kl_loss_coef"), name.format("gae_lambda")
    page = f"<table><td>{long}</td><td>{short}</td></table>{long}"  # outside a table it is not long
    found = wrapped_code.fitted(page)
    assert found.replace("<wbr>", "") == page
    assert found.count("<wbr>") == 3 and "actor.<wbr>kl_<wbr>loss_<wbr>coef" in found
    found = wrapped_code.fitted(f"<table>{name.format('StopTrainingOnRewardThreshold(9)')}</table>")
    assert ">Stop<wbr>Training<wbr>On<wbr>Reward<wbr>Threshold(9)<" in found
    found = wrapped_code.fitted(f"<table>{name.format('RecurrentPPO(&quot;MlpLstm&quot;')}</table>")
    assert "RecurrentPPO(<wbr>&quot;MlpLstm&quot;<" in found


def test_an_option_and_a_small_number_stay_whole_and_a_long_call_is_broken_at_its_joints() -> None:
    command = wrapped_code.fitted(
        block("rlbook compare runs/first-1 runs/first-2 --out first.png\n", "sh")
    )
    assert '<span class="whole">--out</span>' in command
    call = "weight = ratio.clamp(max=limit).exp().masked_fill(mask, 1e-6)\n"
    found = wrapped_code.fitted(block(call, "python"))
    assert (
        text(found) == call.strip()
        and '<wbr><span class="o">.</span><span class="n">exp</span>' in found
    )
    assert '<span class="whole">1e-6</span>' in found
    commented = wrapped_code.fitted(
        block("rlbook plot runs/first                       # learning curve and value map\n", "sh")
    )
    assert '<span class="whole"># learning</span>' in commented
    assert '<span class="pre whole">--out</span>' in wrapped_code.fitted(
        '<code><span class="pre">--out</span></code>'
    )


def test_what_is_set_in_far_is_set_in_less_on_a_phone_and_a_path_is_broken_at_its_strokes() -> None:
    code = (
        f"minimise the loss                   pairs\n{' ' * 36}ties, of which there may be some\n"
    )
    found = wrapped_code.fitted(block(code, "text"))
    assert text(found) == code.strip("\n")
    assert f'{" " * 20}<span class="far">{" " * 16}</span>ties' in found
    assert 'style="--in: 24ch"' in found
    style = (Path(__file__).parents[2] / "docs/static/book.css").read_text(encoding="utf-8")
    assert re.search(r"\.highlight \.far \{\s+display: none", style)
    path = "# rlbook/algorithms/tabular/prediction/mc_prediction.py\n"
    found = wrapped_code.fitted(block(path, "python"))
    assert text(found) == path.strip("\n")
    assert '<span class="whole"># rlbook/</span>algorithms/<wbr>tabular/<wbr>' in found


def test_code_in_a_table_that_is_longer_than_a_column_is_marked_and_may_be_broken() -> None:
    """In the first column of a table code stays on one line, and the printed book was cut there."""
    code = '<td><p><code class="docutils literal"><span class="pre">{}</span></code></p></td>'
    call = "policy_kwargs=dict(features_extractor_class=MyExtractor)"
    page = f"<table><tr>{code.format(call)}{code.format('rlbook.train')}</tr></table>"
    found = wrapped_code.fitted(page)
    assert re.findall(r'<code class="([^"]*)"', found) == [
        "long docutils literal",
        "docutils literal",
    ]
    assert text(found) == text(page) and "=<wbr" in found
    style = (Path(__file__).parents[2] / "docs/static/book.css").read_text(encoding="utf-8")
    kept = re.findall(r"td:first-child code:not\((.*)\) \{\n *white-space: nowrap", style)
    assert kept == [".long, :has(> span:nth-child(5))"]
