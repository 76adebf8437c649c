"""The index of terms leads to where each is defined."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "ext"))
spec = importlib.util.spec_from_file_location("terms", DOCS / "ext" / "terms.py")
assert spec is not None and spec.loader is not None
index = importlib.util.module_from_spec(spec)
sys.modules["terms"] = index
spec.loader.exec_module(index)
TERMS = index.terms()


def bold(chapter: str) -> list[str]:
    """What stands in bold in a chapter, links without their targets."""
    text = (DOCS / "chapters" / f"{chapter}.md").read_text()
    return [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found)
        for found in re.findall(r"\*\*([^*\n]+)\*\*", text)
    ]


@pytest.mark.parametrize("chapter", sorted(path.stem for path in (DOCS / "chapters").glob("*.md")))
def test_each_term_stands_in_bold_in_the_chapter_that_defines_it(chapter: str) -> None:
    listed = [term.bold for term in TERMS if term.chapter == chapter]
    assert listed, "a chapter that defines nothing"
    assert [term for term in listed if term not in bold(chapter)] == []


def test_terms_are_listed_once_and_in_order() -> None:
    names = [term.term for term in TERMS]
    assert len(names) == len(set(names)) == len({term.anchor for term in TERMS}) > 120
    assert names == sorted(
        names, key=lambda name: name.replace("ε", "epsilon").replace("λ", "lambda").lower()
    )
    lines = (DOCS / "terms.md").read_text().split("```{terms}\n")[1].split("\n```")[0].splitlines()
    assert len(lines) == 2 * len(TERMS), "a line that is not read"


def test_a_meaning_is_short() -> None:
    assert [term.term for term in TERMS if len(term.meaning) > 160] == []
    assert [term.term for term in TERMS if not term.meaning.endswith(".")] == []


def test_no_two_terms_have_one_name_in_chinese() -> None:
    names = [term.chinese for term in TERMS if term.chinese]
    assert len(names) == len(set(names)) > 200
    assert [name for name in names if not re.search(r"[\u4e00-\u9fff]", name)] == []
    (trace,) = [term for term in TERMS if term.term == "trace"]
    assert trace.chinese == "资格迹" and trace.explanation.endswith("receives. (资格迹)")


def test_terms_without_a_tooltip_are_terms() -> None:
    assert {term.term for term in TERMS} >= index.EVERYWHERE | index.ELSEWHERE_OTHERWISE


@pytest.mark.parametrize(
    ("name", "written", "left"),
    [
        ("episode", ["episode", "Episodes"], ["EPISODE", "episodic"]),
        ("policy", ["policy", "Policies"], ["policys"]),
        ("off-policy", ["Off-policy"], ["policy"]),
        ("proximal policy optimisation", ["proximal policy optimisation", "PPO"], ["ppo"]),
        ("Dyna-Q plus", ["Dyna-Q+"], []),
        ("KTO", ["KTO"], ["kto"]),
    ],
)
def test_a_term_is_found_in_the_plural_and_by_its_abbreviation(
    name: str, written: list[str], left: list[str]
) -> None:
    (term,) = [term for term in TERMS if term.term == name]
    assert [word for word in written + left if re.fullmatch(term.pattern, word)] == written


PAGE = """# Off-policy learning and PPO

## A policy gradient

The `minibatch` of an off-policy learner has [a replay buffer](https://example.org), and $policy$ is no word here.
Two minibatches of **rollout** data come from the replay buffer. A second minibatch and a rollout are like the first ones.

| a table with an epoch | a baseline |
|---|---|
| an epoch | a baseline |

    the entropy stands in code

- An item about the temperature, a reward model of "better" & <worse> and PPO.
"""


def test_the_first_use_of_a_term_on_a_page_is_a_link_with_its_meaning(tmp_path: Path) -> None:
    """Of a page that Sphinx has built: not in titles, code, links, tables or bold words."""
    pytest.importorskip("myst_parser")
    from sphinx.application import Sphinx

    source, out = tmp_path / "source", tmp_path / "out"
    (source / "chapters").mkdir(parents=True)
    (source / "conf.py").write_text(
        "extensions = ['myst_parser', 'terms']\nmyst_enable_extensions = ['dollarmath']\n"
    )
    (source / "index.md").write_text("# Home\n\nAn off-policy learner; no page of the book's.\n")
    (source / "chapters" / "page.md").write_text(PAGE)
    # it is the chapter that defines them
    (source / "chapters" / "value-networks.md").write_text("# DQN\n\nA minibatch, off-policy.\n")
    status = io.StringIO()
    Sphinx(source, source, out, tmp_path / "trees", "html", status=status, warning=status).build()
    links = {
        name: re.findall(
            r'<a aria-description="([^"]*)" class="term" href="([^"]*)">([^<]*)</a>',
            (out / f"{name}.html").read_text(encoding="utf-8"),
        )
        for name in ("index", "chapters/page", "chapters/value-networks")
    }
    assert [(word, place) for _, place, word in links["chapters/page"]] == [
        ("off-policy", "temporal-difference.html#term-off-policy"),
        ("minibatches", "value-networks.html#term-minibatch"),
        ("replay buffer", "value-networks.html#term-replay-buffer"),
        ("reward model", "preferences.html#term-reward-model"),
        ("PPO", "trust-regions.html#term-proximal-policy-optimisation"),
    ]
    explanation = {term.term: term.explanation for term in TERMS}
    assert links["chapters/page"][0][0] == explanation["off-policy"]
    assert links["index"] == []
    assert [word for _, _, word in links["chapters/value-networks"]] == ["off-policy"]
