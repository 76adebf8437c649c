"""The slides of a week are made from its chapters, and need nothing from outside."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from rlbook.book.course.syllabus import select_weeks

pytest.importorskip("docutils", reason="the slides draw formulas as the site does")
DOCS = Path(__file__).parents[2] / "docs"


def load_slides() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slides", DOCS / "slides.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_weeks_slides_say_what_its_chapters_say_and_need_no_network() -> None:
    (week,) = select_weeks("7")
    text = load_slides().week_slides(week)
    for name in week.read:
        if name.startswith("chapters/"):
            title = (DOCS / f"{name}.md").read_text().splitlines()[0].removeprefix("# ")
            assert f"<h1>{title}</h1>" in text
    for head in ("The problem", "By hand", "What goes wrong", "Questions", "This week"):
        assert f"<h2>{head}</h2>" in text
    assert "Proximal policy optimisation on the maze" in text
    assert (
        'class="katex' in text and 'src="data:image/' in text and '<div class="highlight">' in text
    )
    body = re.sub(r"<style>.*?</style>|<math.*?</math>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', body)
    assert not re.search(r"\$[^<]*\\|\{[a-z]+\}`|\]\(", re.sub(r"<script>.*", "", body))
    assert len(re.findall(r"<section id=", text)) > 20


@pytest.mark.skipif(not shutil.which("chromium"), reason="Chromium is not installed")
@pytest.mark.thorough
def test_every_slide_fits_at_the_scale_of_its_window(tmp_path: Path) -> None:
    (week,) = select_weeks("2")
    over = (
        "<script>addEventListener('load',()=>document.fonts.ready.then(()=>{document.title="
        "JSON.stringify([...document.querySelectorAll('.fit')].map(fit=>Math.max("
        "fit.scrollHeight-fit.clientHeight,fit.scrollWidth-fit.clientWidth)))}))</script></html>"
    )
    slides = load_slides()
    equation = (
        r"$$V^\pi(s) = \sum_a \pi(a \mid s) \Bigl[ r(s, a) + \gamma \sum_{s'} V^\pi(s') \Bigr]$$"
    )
    said = (
        r"It follows from $G_t = R_{t+1} + \gamma G_{t+1}$ by taking the mean of each state $S_t$. "
    )
    told = slides.two_columns(slides.render(said * 4), "<pre>values = solve(chain)</pre>")
    long = slides.slide("Too long", slides.render("\n\n".join([equation] * 3)) + told, "below")
    text = slides.week_slides(week).replace("<script>", f"{long}<script>", 1)
    page = tmp_path / "week.html"
    page.write_text(text.replace("</html>", over), encoding="utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--window-size=700,600",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]
    shown = subprocess.run(
        ["chromium", *options, page.as_uri()], capture_output=True, text=True, check=True
    ).stdout
    pixels = json.loads(re.findall(r"<title>(\[.*?\])</title>", shown)[0])
    assert len(pixels) > 20 and max(pixels) <= 1


def test_a_worked_example_goes_on_on_a_second_slide() -> None:
    slides = load_slides()
    assert slides.split_into_pages(["One. Two. Three:", "Four."], 2) == [
        "One. Two.",
        "Three.\n\nFour.",
    ]
    found = slides.chapter_slides("chapters/introduction")
    by_hand = [text for text in found if "<h2>By hand</h2>" in text]
    assert len(by_hand) == 2 and "After three episodes every number" in by_hand[1]


def test_a_chapters_questions_are_found_by_where_their_answers_lead() -> None:
    slides = load_slides()
    assert slides.questions_on("chapters/hidden-states")[0] in (DOCS / "questions.md").read_text()
    assert len(slides.questions_on("chapters/pixels")) == 10
    assert slides.questions_on("chapters/no-such-page") == []


def test_what_goes_wrong_is_found_in_both_forms() -> None:
    slides = load_slides()
    headed = "### One frame\n\nIt is said. More. And more.\n\n### Two\n\nAgain."
    assert slides.mistakes_of(headed) == ["**One frame.** It is said. More.", "**Two.** Again."]
    bold = "**A fault.** It is said. More. And more.\n\n*How to notice:* look."
    assert slides.mistakes_of(bold) == ["**A fault.** It is said. More."]
