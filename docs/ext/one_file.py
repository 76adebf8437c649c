"""The chapters as one file: what docs/book_file.py builds with the tag `print`, for `make epub` and
`make pdf`.

The pages are those of printed_pages.py. What paper cannot do is left out or unfolded: a link to any
other page becomes its words, a film becomes a picture, answers stand open, and of a test that
verifies an equation the sentence remains.
"""

from __future__ import annotations

import posixpath
import re
from html import escape
from typing import Any

from docutils import nodes
from printed_pages import DOCS, pages, parts, without_other_links
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

TAG = "print"
SUMMARY = re.compile(r"<details[^>]*>\s*<summary>(?P<words>.*?)</summary>", flags=re.DOTALL)
FIRST_PAGE = """# {title}

{author}, version {version}. {copyright}.

"""


def first_page(config: Config) -> str:
    """The Markdown of the page that all others are put into."""
    words = {"title": config.epub_title, "author": config.author, "version": config.version}
    trees = [
        "\n".join([f"```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n", *names, "```"])
        for caption, names in parts().items()
    ]
    return FIRST_PAGE.format(**words, copyright=config.copyright) + "\n\n".join(trees)


def choose_pages(app: Sphinx, config: Config) -> None:
    """Everything else is as if it were not there."""
    everything = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if "_build" not in path.parts
    }
    config.exclude_patterns += [f"{page}.md" for page in everything - pages() - {"index"}]
    config.exclude_patterns += ["notebooks/**", "api/**"]
    config.html_title = config.epub_title
    config.html_css_files = [*config.html_css_files, "print.css", "paper.css"]


def rewrite_source(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        source[0] = first_page(app.config)
    else:
        source[0] = without_other_links(source[0], page)


def unfold(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """What stands folded up stands open, and a test is its sentence."""
    within_test = False
    for node in list(doctree.findall(nodes.Element)):
        if isinstance(node, nodes.raw) and node.get("format") == "html":
            text = node.astext()
            within_test = "details" in text and "<details" in text and "Verified: " in text
            shown = SUMMARY.sub(_heading, text).replace("</details>", "")
            node.children = [nodes.Text(shown)]
            node.rawsource = shown
        elif within_test and isinstance(node, nodes.literal_block):
            node.parent.remove(node)


def _heading(summary: re.Match[str]) -> str:
    kind = "test" if summary["words"].startswith("Verified: ") else "unfolded"
    return f'<p class="{kind}">{summary["words"]}</p>'


def name_apart(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """In one file of all pages, gives each page's anchors names of their own: every chapter has a
    section of exercises."""
    if app.builder.name != "singlehtml":
        return
    chapters: dict[str, tuple[str, str]] = {}
    for file in list(doctree.findall(addnodes.start_of_file)):
        prefix = _prefix(file["docname"])
        pages_below = [page for page in file.findall(addnodes.start_of_file) if page is not file]
        others = {id(node) for page in pages_below for node in page.findall(nodes.Element)}
        for node in file.findall(nodes.Element):
            if id(node) in others:
                continue
            node["ids"] = [prefix + name for name in node.get("ids", [])]
            if "refid" in node:
                node["refid"] = prefix + node["refid"]
        section = next(file.findall(nodes.section))
        title = next(section.findall(nodes.title)).astext()
        chapters[file["docname"]] = (section["ids"][0], title)
    for link in doctree.findall(nodes.reference):
        found = re.fullmatch(r"#document-([^#]+)(?:#(.+))?", link.get("refuri", ""))
        if found is not None:
            name, anchor = found.groups()
            link["refuri"] = f"#{_prefix(name)}{anchor}" if anchor else f"#{chapters[name][0]}"
    first = next(doctree.findall(nodes.section))
    first.insert(2, nodes.raw("", _contents(chapters), format="html"))


def _contents(chapters: dict[str, tuple[str, str]]) -> str:
    """The list of parts and chapters, from each page's anchor and title."""
    lines = []
    for part, names in parts().items():
        items = "".join(
            f'<li><a href="#{anchor}">{escape(title)}</a></li>'
            for anchor, title in (chapters[name] for name in names)
        )
        lines.append(f'<p class="part">{escape(part)}</p><ul>{items}</ul>')
    return f'<nav class="chapter-list">{"".join(lines)}</nav>'


def _prefix(page: str) -> str:
    return escape(page.replace("/", "-")) + "--"


def choose_style(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """An e-book has the style sheets that are for it and no others, and is XML."""
    if app.builder.name == "epub":
        wanted = ("pygments.css", "epub.css", "print.css")
        context["css_files"] = [
            sheet
            for sheet in context["css_files"]
            if posixpath.basename(str(sheet.filename)).split("?")[0] in wanted
        ]
        context["body"] = re.sub(r"<(br|hr|img)\b([^<>]*?)\s*/?>", r"<\1\2 />", context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    if app.tags.has(TAG):
        app.connect("config-inited", choose_pages)
        app.connect("source-read", rewrite_source)
        app.connect("doctree-resolved", unfold)
        app.connect("doctree-resolved", name_apart)
        app.connect("html-page-context", choose_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
