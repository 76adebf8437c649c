"""Writes the slides of a course, a file for each week of the syllabus, from the chapters that are
read in it:

    python docs/slides.py           docs/_build/slides/week-01.html … week-12.html
    python docs/slides.py 7         one week

A chapter gives its problem with the picture, the worked example, each equation beside its code, the
picture to watch, what goes wrong, and three of its questions; the week gives what to run and to
write. Nothing is written by hand, so a slide says what its page says today. A file needs no network
and no script but the one in it: arrow keys turn the pages, and a browser prints one a page.
"""

from __future__ import annotations

import base64
import html
import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "ext"))

import excerpts  # noqa: E402 - from docs/ext
import formulas  # noqa: E402

from rlbook.book.assignments.assignment import assignments  # noqa: E402
from rlbook.book.course.syllabus import Week, select_weeks  # noqa: E402

BUILD = HERE / "_build" / "slides"
MARKDOWN = MarkdownIt("commonmark").enable("table")
EQUATIONS, MISTAKES, QUESTIONS = 4, 4, 3  # slides or lines of a chapter
MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
BLOCK = re.compile(r"\$\$.+?\$\$", re.DOTALL)
SENTENCES = re.compile(r"(?<=[.?!])\s+(?=[A-Z*$])")
CODE = HtmlFormatter(style="default", nowrap=False)
TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".gif": "image/gif", ".jpg": "image/jpeg"}


def render(text: str) -> str:
    """Markdown as HTML: formulas drawn, links and roles as their text."""
    drawings: list[str] = []

    def draw(found: re.Match[str]) -> str:
        block = found[1] is not None
        parts = formulas.split_parts(found[1]) if block else [found[2]]
        drawings.append("".join(formulas.drawn(part, block=block) for part in parts))
        return f"\ue000{len(drawings) - 1}\ue001"

    text = re.sub(r"(?<!!)\[([^\]]*)\]\([^)\s]*\)", r"\1", MATH.sub(draw, text))
    text = MARKDOWN.render(re.sub(r"\{[\w:-]+\}`([^`<]+?)(?: <[^`]*>)?`", r"\1", text))
    return re.sub("\ue000(\\d+)\ue001", lambda found: drawings[int(found[1])], text)


def split_into_pages(paragraphs: list[str], most: int) -> list[str]:
    """A text in pages of at most so many whole sentences; at the end of a paragraph a full stop
    stands for the colon that introduces a listing."""
    pages: list[list[str]] = [[]]
    room = most
    for part in paragraphs:
        sentences = SENTENCES.split(" ".join(part.split()))
        while sentences:
            if not room:
                pages.append([])
                room = most
            said, sentences = sentences[:room], sentences[room:]
            room -= len(said)
            pages[-1].append(re.sub(r":$", ".", " ".join(said)))
    return ["\n\n".join(page) for page in pages]


def first_sentences(paragraphs: list[str], most: int) -> str:
    """The beginning of a text."""
    return split_into_pages(paragraphs, most)[0]


def section_of(page: str, title: str) -> str:
    """The text below a heading of the second level, up to the next one; empty if there is none."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def paragraphs_of(text: str) -> list[str]:
    """Paragraphs of prose: no listing, picture, heading, table or directive, and nothing about what
    is to be pressed on the page."""
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"\n{2,}", text.strip())
    return [part for part in parts if part and part[0] not in "!#|<(:" and part[:6] != "Press "]


def picture_of(text: str) -> str:
    """The first picture of a section, within the file; empty if it has none."""
    for alternative, path in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", text):
        file = (HERE / "chapters" / path).resolve()
        if file.is_file() and file.suffix in TYPES:
            data = base64.b64encode(file.read_bytes()).decode()
            source = f"data:{TYPES[file.suffix]};base64,{data}"
            return f'<img src="{source}" alt="{html.escape(alternative)}">'
    return ""


def slide(title: str, body: str, foot: str, level: int = 2) -> str:
    """One page."""
    head = f"<h{level}>{html.escape(title)}</h{level}>"
    return f'<section><div class="fit">{head}{body}</div><footer>{html.escape(foot)}</footer></section>'


def two_columns(left: str, right: str) -> str:
    """Side by side, or the left one alone where there is no right one."""
    return f'<div class="two"><div>{left}</div><div>{right}</div></div>' if right else left


def mistakes_of(text: str) -> list[str]:
    """What goes wrong, a line each: a heading with the first sentences below it, or a paragraph that
    begins with its subject in bold type."""
    parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)[1:]
    if parts:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [f"**{head}.** {first_sentences(paragraphs_of(said), 2)}" for head, said in pairs]
    return [first_sentences([part], 2) for part in paragraphs_of(text) if part.startswith("**")]


def questions_on(name: str) -> list[str]:
    """Those of docs/questions.md whose answers lead most often to this chapter."""
    parts = re.split(r"^## ", (HERE / "questions.md").read_text(encoding="utf-8"), flags=re.M)
    most = max(parts, key=lambda part: part.count(f"({name}.md"))
    asked = most.split("<details>")[0] if f"({name}.md" in most else ""
    return re.findall(r"^\d+\. (.+)$", asked, re.MULTILINE)


def chapter_slides(name: str) -> list[str]:
    """The slides of a chapter, such as "chapters/planning"."""
    page = (HERE / f"{name}.md").read_text(encoding="utf-8")
    title = re.findall(r"^# (.+)$", page, re.MULTILINE)[0]
    slides = [slide(title, "", title, level=1)]
    for head, most, pages in (("The problem", 6, 1), ("By hand", 8, 2), ("Watch it", 5, 1)):
        text = section_of(page, head)
        picture = picture_of(text)
        for said in split_into_pages(paragraphs_of(text), most)[:pages]:
            if said or picture:
                slides.append(slide(head, two_columns(render(said), picture), title))
            picture = ""
        if head == "By hand":
            slides += equation_slides(page, title)
    wrong = mistakes_of(section_of(page, "What goes wrong"))
    if wrong:
        lines = "\n".join(f"- {line}" for line in wrong[:MISTAKES])
        slides.append(slide("What goes wrong", render(lines), title))
    asked = questions_on(name)
    if asked:
        chosen = [asked[place * len(asked) // QUESTIONS] for place in range(QUESTIONS)]
        slides.append(slide("Questions", render("\n".join(f"1. {text}" for text in chosen)), title))
    return slides


def equation_slides(page: str, title: str) -> list[str]:
    """Each equation, and below it what it says and the lines that compute it."""
    slides = []
    for path, name, options, text in excerpts.besides(page)[:EQUATIONS]:
        before = page[: page.index(text)]
        head = re.findall(r"^###? (.+)$", before, re.MULTILINE)[-1]
        code = excerpts.excerpt(path, name, options.get("from"), options.get("to"))
        shown = highlight(code, PythonLexer(), CODE)
        where = f"<p><code>{path}</code></p>"
        equations = "\n\n".join(found[0] for found in BLOCK.finditer(text))
        told = render(BLOCK.sub("", text))
        slides.append(slide(head, render(equations) + told + shown + where, title))
    return slides


def week_slides(week: Week) -> str:
    """The whole file of a week."""
    foot = f"Week {week.number}: {week.title}"
    slides = [slide(week.title, f"<p>Week {week.number}</p>", "rlbook", level=1)]
    for name in week.read:
        if name.startswith("chapters/"):
            slides += chapter_slides(name)
    whole = [item.title for item in assignments().values() if item.week == week.number]
    rows = [f"- In the lecture: {week.show}", f"- Notebooks: {', '.join(week.notebooks)}"]
    rows += [f"- Functions to write: {', '.join(f'`{name}`' for name in week.write)}"]
    rows += [f"- Assignment: {', '.join(whole)}"] if whole else []
    slides.append(
        slide("This week", render("\n".join([*rows, f"- Read on: {week.further}"])), foot)
    )
    own, script = (
        (HERE / "static" / f"slides.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    style = formulas.style_sheet() + own + CODE.get_style_defs()
    slides = [
        text.replace("<section>", f'<section id="{number}">')
        for number, text in enumerate(slides, 1)
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(foot)}</title>'
        f"<style>{style}</style>{''.join(slides)}<script>{script}</script></html>\n"
    )


def main() -> None:
    asked = select_weeks(sys.argv[1] if len(sys.argv) > 1 else None)
    BUILD.mkdir(parents=True, exist_ok=True)
    for week in asked:
        file = BUILD / f"week-{week.number:02}.html"
        file.write_text(week_slides(week), encoding="utf-8")
        print(f"{file.relative_to(HERE.parent)}, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
