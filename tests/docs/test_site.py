"""The site says what the code says: every agent has its page in the one form, every public name its
entry, every number its command."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from site_search import check_searches
from warm_process import run_python

import rlbook
from rlbook.book.exercises.exercise import exercises
from rlbook.diagnosis.glossary import GLOSSARY
from rlbook.registry import ALGORITHMS, agent_class

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PART_ONE = [
    "introduction",
    "bandits",
    "decision-processes",
    "planning",
    "monte-carlo",
    "temporal-difference",
    "n-step-and-lambda",
    "model-based",
    "trees",
]
PART_TWO = [
    "linear-approximation",
    "value-networks",
    "rainbow",
    "policy-gradient",
    "trust-regions",
    "pixels",
    "maximum-entropy",
    "imitation",
    "offline",
    "learned-models",
    "hidden-states",
]
PART_THREE = [
    "tokens",
    "transformer",
    "sampling",
    "language-models",
    "learning-from-data",
    "preferences",
    "groups",
    "rewards",
    "recipes",
]
CHAPTERS = [*PART_ONE, *PART_TWO, *PART_THREE]
CHAPTER = [
    "The problem",
    "By hand",
    "The equations",
    "Watch it",
    "Run it",
    "What goes wrong",
    "Beside the others",
    "Notebook",
    "Exercises",
    "Read on",
]
FORM = [
    "Idea",
    "Quick facts",
    "Equation",
    "Pseudocode",
    "The code",
    "Hyper-parameters",
    "Logged numbers",
    "Measured",
    "Exercises",
]
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts and "generated" not in path.parts
)


def from_file(path):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


api_pages = from_file(DOCS / "ext" / "api_pages.py")
results = from_file(DOCS / "ext" / "results.py")
excerpts = from_file(DOCS / "ext" / "excerpts.py")
proofs = from_file(DOCS / "ext" / "proofs.py")
sys.path.insert(0, str(DOCS))  # measure.py imports a module beside it
measure = from_file(DOCS / "measure.py")


def entries(module_name):
    """Name → what stands under it, for the functions and classes of a module's page; "Class.method"
    for methods."""
    found, outer, page = {}, None, api_pages.module_page(module_name)
    assert " at 0x" not in page, "an address says nothing, and is another one in each build"
    for fence, kind, name in re.findall(r"^(`{3,})\{py:(\w+)\} (\w+)", page, flags=re.MULTILINE):
        if kind in ("class", "function") and len(fence) == 6:
            outer = name
            found[name] = kind
        else:
            found[f"{outer}.{name}"] = kind
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_agent_has_a_page_in_the_one_form(algorithm):
    text = (DOCS / "algorithms" / f"{algorithm}.md").read_text()
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == FORM
    for directive in (
        "quick-facts",
        "pseudocode",
        "whole-file",
        "hyperparameters",
        "logged-numbers",
    ):
        assert f"```{{{directive}}} {algorithm}\n" in text, directive
    assert "$$" in text.split("## Equation")[1].split("## ")[0]
    assert len(re.findall(r"^\d\. ", text.split("## Exercises")[1], flags=re.MULTILINE)) == 3
    assert f"algorithms/{algorithm}\n" in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_chapter_from_its_problem_on_has_the_one_form(name):
    """A problem first, then three states by hand, the equations beside their code, something to
    watch and to run, what goes wrong."""
    text = (DOCS / "chapters" / f"{name}.md").read_text()
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == CHAPTER
    parts = dict(zip(CHAPTER, re.split(r"^## .*$", text, flags=re.MULTILINE)[1:], strict=True))
    folded = [len(block[0].split()) for block in proofs.BLOCK.finditer(text)]
    assert all(words <= 800 for words in folded)  # about a page each
    assert 1_500 <= len(text.split()) - sum(folded) <= 4_000
    assert "assert " in parts["By hand"]
    equations = excerpts.besides(parts["The equations"])
    assert len(equations) >= 3
    assert all("$$" in item[3] for item in equations)
    assert "![" in parts["Watch it"] or "```{animation} " in parts["Watch it"]
    assert "```sh\nrlbook " in parts["Run it"]
    assert "```{measured} " in text
    assert "|---" in parts["Beside the others"]
    assert re.search(r"\]\(\.\./notebooks/[\w-]+\.ipynb\)", parts["Notebook"])
    assert 3 <= len(re.findall(r"^\d\. ", parts["Exercises"], flags=re.MULTILINE)) <= 6
    assert f"\nchapters/{name}\n" in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("name", CHAPTERS)
def test_what_a_chapter_works_out_by_hand_is_what_its_code_says(name):
    by_hand = (
        (DOCS / "chapters" / f"{name}.md").read_text().split("## By hand")[1].split("\n## ")[0]
    )
    for code in re.findall(r"```python\n(.*?)```", by_hand, flags=re.DOTALL):
        exec(compile(code, f"{name}.md", "exec"), {})


def test_a_result_of_many_numbers_has_a_row_and_a_column_for_each():
    grid = results.result_grid(
        "clone: error 1; clone: cost 23.5; DAgger: error 0.1 → 0.2; DAgger: cost −3; the best 4"
    )
    assert grid is not None
    assert grid[0] == "| | error | cost |" and grid[2:4] == [
        "| clone | 1 | 23.5 |",
        "| DAgger | 0.1 → 0.2 | −3 |",
    ]
    assert grid[-1] == "the best 4."
    assert (
        results.result_grid("mean return 500, the median of 500, 500, 500; 26 s of training")
        is None
    )
    known = results.read()
    for item in known.values():
        if grid := results.result_grid(item["result"]):
            numbers = [re.search(r"[\d.]\S*$", part)[0] for part in item["result"].split("; ")]
            assert all(number in "\n".join(grid) for number in numbers)


def test_a_table_says_which_processor_each_of_its_numbers_comes_from(monkeypatch):
    def item(result, machine):
        return {
            "what": "the maze",
            "result": result,
            "commands": ["rlbook train sarsa Maze-v0"],
            "machine": machine,
        }

    measured = {
        "one": item("mean 1", "a Z80"),
        "two": item("mean 2", "a 6502"),
        "three": item("mean 3", "a Z80"),
    }
    monkeypatch.setattr(results, "read", lambda: measured)
    lines = results.as_markdown(["one", "two", "three"]).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:5]] == ["mean 1 ¹", "mean 2 ²", "mean 3 ¹"]
    assert lines[-1] == "Measured with `make measure` on ¹ a Z80; ² a 6502."
    alone = results.as_markdown(["one", "three"]).splitlines()
    assert (
        alone[2].split(" | ")[1] == "mean 1"
        and alone[-1] == "Measured with `make measure` on a Z80."
    )


def test_every_number_says_which_machine_it_comes_from():
    assert all(
        re.match(r"\d+ cores? (of .+|\(.+\)), Python \d", item["machine"])
        for item in results.read().values()
    )


def test_every_chapter_names_the_functions_to_write_that_belong_to_it():
    wanted = {item.chapter for item in exercises().values()}
    for name in CHAPTERS:
        end = (
            (DOCS / "chapters" / f"{name}.md")
            .read_text()
            .split("\n## Exercises\n")[1]
            .split("\n## ")[0]
        )
        assert (f"```{{exercises}} {name}\n" in end) == (name in wanted), name


def test_every_answer_to_a_question_says_where_it_stands():
    """Ten questions for each chapter, and each answer leads to a section of that chapter."""
    parts = (DOCS / "questions.md").read_text().split("\n## ")[1:]
    names = [part.splitlines()[0].lower().replace(" ", "-") for part in parts]
    assert sorted(names) == sorted(CHAPTERS)
    for chapter, part in zip(names, parts, strict=True):
        headings = re.findall(
            r"^#+ (.*)$", (DOCS / "chapters" / f"{chapter}.md").read_text(), flags=re.MULTILINE
        )
        anchors = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
        }
        questions, answers = part.split("<summary>Answers</summary>")
        for lines in (questions, answers):
            assert len(re.findall(r"^\d+\. ", lines, flags=re.MULTILINE)) == 10
        for line in re.findall(r"^\d+\. .*$", answers, flags=re.MULTILINE):
            found = re.findall(rf"\(chapters/{chapter}\.md#([\w-]+)\)", line)
            assert found and set(found) <= anchors, line


def test_the_readme_counts_the_algorithms_and_the_chapters():
    text = (ROOT / "README.md").read_text()
    assert f"\n{len(ALGORITHMS)} algorithms on one loop" in text
    assert f"\n{len(CHAPTERS)} chapters" in text


IN_NO_CHAPTER = {
    "vine",
    "co_distillation",
}


def test_the_chapters_lead_to_every_algorithm():
    text = "".join((DOCS / "chapters" / f"{name}.md").read_text() for name in CHAPTERS)
    assert sorted(path.stem for path in (DOCS / "chapters").glob("*.md")) == sorted(CHAPTERS)
    for algorithm in ALGORITHMS.keys() - IN_NO_CHAPTER:
        assert f"](../algorithms/{algorithm}.md)" in text, algorithm


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "{beside}" in page.read_text()], ids=lambda path: path.stem
)
def test_beside_each_equation_stand_lines_that_exist_and_tests_that_exist(page):
    found = excerpts.besides(page.read_text())
    assert len(found) == page.read_text().count("```{beside}")
    for path, name, options, _ in found:
        assert options.keys() <= {"from", "to", "tests"}
        assert excerpts.excerpt(path, name, options.get("from"), options.get("to")).strip()
        for reference in options["tests"].split():
            assert re.search(r"\bassert(_\w+)?\b", excerpts.source_of_test(reference)), reference


def test_the_ladder_has_three_rungs_of_at_most_25_lines_each():
    page = (DOCS / "ladder.md").read_text()
    found = excerpts.differences(page)
    assert [(old, new) for _, old, new, _, _ in found] == [
        ("reinforce", "reinforce_with_baseline"),
        ("reinforce_with_baseline", "a2c"),
        ("a2c", "ppo"),
    ]
    for path, old, new, options, text in found:
        lines = excerpts.difference(path, old, new)
        assert [line[1:] for line in lines if line[0] != "+"] == excerpts.body(path, old)
        assert [line[1:] for line in lines if line[0] != "-"] == excerpts.body(path, new)
        assert 0 < excerpts.changes(lines) <= 25 and all(len(line) <= 95 for line in lines)
        assert "$$" in text
        for reference in options["tests"].split():
            assert re.search(r"\bassert(_\w+)?\b", excerpts.source_of_test(reference)), reference


def test_an_excerpt_is_found_by_what_it_says():
    path, name = "docs/ext/excerpts.py", "excerpt"
    assert (
        excerpts.excerpt(path, name, "begin =")
        == excerpts.excerpt(path, name, "begin =", "end =").splitlines()[0]
    )
    assert (
        excerpts.excerpt(path, name, "begin =", "if last")
        .splitlines()[1]
        .startswith("end = begin + 1")
    )
    assert excerpts.excerpt(path, name).startswith("def excerpt(")
    with pytest.raises(ValueError, match="begins with 'nothing'"):
        excerpts.excerpt(path, name, "nothing")
    with pytest.raises(ValueError, match="has no test_of_nothing"):
        excerpts.source_of_test("tests/unit/algorithms/tabular/test_q_learning.py::test_of_nothing")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_included_code_is_where_the_page_says(page):
    for path, body in re.findall(
        r"```\{literalinclude\} (\S+)\n(.*?)```", page.read_text(), flags=re.DOTALL
    ):
        file = (page.parent / path).resolve().relative_to(ROOT)
        for name in re.findall(r":pyobject: (\S+)", body):
            assert excerpts.lines_of(str(file), name), f"{name} is not in {path}"


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_to_files_that_exist(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        beside, below = page.parent / target, ROOT / "docs" / target
        generated = "api/generated" in target  # made when the site is built
        # copied into docs/ when the site is built
        notebook = ROOT / "notebooks" / Path(target).name
        assert beside.exists() or below.exists() or generated or notebook.exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_measurement_on_a_page_was_made_and_can_be_made_again(page):
    for names in re.findall(r"```\{(?:measured|ablation)\} (.*)\n", page.read_text()):
        for name in names.split():
            assert name in measure.MEASUREMENTS
            measurement, known = measure.MEASUREMENTS[name], results.read()[name]
            seeds = (known["seeds"],) if isinstance(measurement, measure.Measurement) else ()
            assert known["commands"] == measurement.commands(*seeds), f"measure {name} again"


@pytest.mark.parametrize("name", measure.CURVES)
def test_learning_curves_stand_on_a_page_with_the_commands_that_draw_them(name):
    pages = [
        page.read_text() for page in PAGES if f"figures/curves-{name}.png)" in page.read_text()
    ]
    assert pages
    assert (DOCS / "figures" / f"curves-{name}.png").stat().st_size < 80_000
    home = (DOCS / "index.md").read_text()
    # the home page shows it and leads to where the commands are
    explained = [page for page in pages if page != home]
    assert explained and (home not in pages or f"]({name}.md)" in home)
    for command in measure.curve_commands(name):
        assert all(f"\n{command}\n" in page for page in explained), command


def test_an_ablation_becomes_a_table(monkeypatch):
    whole = {"name": "whole", "areas": [10.0, 30.0], "difference": None, "finals": [40.0, 60.0]}
    without = {
        "name": "double=false",
        "areas": [0.0, 8.0],
        "difference": [-62.4, 30.4],
        "finals": [0.0, 2.0],
    }
    made = {"parts": [whole, without], "commands": ["rlbook ablate"], "machine": "1 core of a Z80"}
    monkeypatch.setattr(results, "read", lambda: {"some": made})
    rows = results.ablation_as_markdown("some").splitlines()
    assert rows[2:4] == [
        "| `whole` | 20 (10, 30) |  | 50 |",
        "| `double=false` | 4 (0, 8) | −16 (−62 to +30) | 1 |",
    ]


@pytest.mark.parametrize(
    "name", [name for name in measure.MEASUREMENTS if name.startswith("one_axis")]
)
def test_the_learners_on_one_axis_were_trained_as_the_page_says(name):
    known, learners = results.read()[name], measure.one_axis.LEARNERS
    assert known["commands"] == measure.MEASUREMENTS[name].commands(), f"measure {name} again"
    assert list(known["learners"]) == list(learners)
    curves = json.loads(measure.OneAxis.curves.read_text())[measure.MEASUREMENTS[name].arguments]
    for learner, seeds in learners.items():
        found = measure.one_axis.LearningCurves.from_lists(curves[learner])
        assert len(found.distance) == seeds
        assert measure.one_axis.steps_to_optimum(found) == known["learners"][learner]
    assert f"| `{next(iter(learners))}` | " in results.one_axis_as_markdown()


@pytest.mark.parametrize(
    "name", [name for name, item in measure.MEASUREMENTS.items() if "Addition-v0" in item.arguments]
)
def test_sampled_accuracy_stands_beside_greedy_accuracy(name):
    found = results.read()[name]
    assert "of the held-out prompts right; sampling " in found["result"]
    assert any("--explore" in command for command in found["commands"])
    assert len(found["means"]) == len(found["sampled_means"])


def test_the_fall_of_plain_dpo_is_shown():
    page, known = (DOCS / "algorithms" / "dpo.md").read_text(), results.read()
    assert "dpo_plain_round dpo_nll_round" in page
    assert (
        "better answers −" in known["dpo_plain_round"]["result"]
        and "better answers +" in known["dpo_nll_round"]["result"]
    )
    before = known["addition_before"]["means"][0]
    assert max(known["dpo_plain_round"]["means"]) < before / 2
    assert min(known["dpo_nll_round"]["means"]) > before - 0.1  # it keeps about what it knew


def test_every_page_is_in_the_book():
    listed = "\n".join(
        (DOCS / name).read_text()
        for name in ("index.md", "environments/index.md", "bugs/index.md", "book-figures/index.md")
    )
    for page in PAGES:
        if page.name != "index.md" or page.parent != DOCS:
            assert page.stem in listed, page


@pytest.mark.parametrize("name", [name for name in rlbook.__all__ if name != "__version__"])
def test_every_public_name_has_an_api_entry(name):
    item = getattr(rlbook, name)
    assert f"`rlbook.{name} <" in api_pages.module_page("rlbook")
    if not inspect.ismodule(item):
        assert item.__name__ in entries(item.__module__)


def test_the_fields_of_named_tuples_have_types_and_comments_that_a_reader_knows():
    page = api_pages.module_page("rlbook.interaction.vector_envs.sync_vector")
    assert "{py:attribute} rewards\n:type: NDArray[np.float64]\n\n[N]\n" in page
    assert "ForwardRef" not in page
    page = api_pages.module_page("rlbook.algorithms.tabular.bandit")
    assert "\n\\[..., A]: N(a)\n" in page, "and not where a link would lead"


def test_public_names_come_first_and_internals_have_a_page_of_their_own():
    page = api_pages.module_page("rlbook.plots.curves")
    assert (
        page.index("{py:function} plot_curves")
        < page.index("## Internals")
        < page.index("{py:function} read_curve")
    )
    names = ["rlbook", "rlbook.training", "rlbook.functional.returns", "rlbook.runs.storage.log"]
    public, internal = api_pages.index_page(names), api_pages.internals_page(names)
    for name, _ in api_pages.names_of("rlbook"):
        assert f"`rlbook.{name} <" in public
    assert "`rlbook.functional.returns <" in public and "rlbook.runs.storage.log" not in public
    assert (
        "`rlbook.runs.storage.log <" in internal
        and "rlbook.training" not in internal
        and "\ninternals <internals>\n" in public
    )


@pytest.mark.parametrize(
    "package", ["envs", "functional", "policies", "data", "plots", "llm", "algorithms"]
)
def test_every_class_and_function_of_a_package_has_an_api_entry(package):
    names = [name for name in api_pages.module_names() if name.startswith(f"rlbook.{package}.")]
    files = [
        path.relative_to(ROOT).with_suffix("")
        for path in (ROOT / "rlbook" / package).rglob("[!_]*.py")
    ]
    assert {".".join(path.parts) for path in files} <= set(names)
    for name in names:
        source = Path(importlib.util.find_spec(name).origin).read_text()
        defined = set(re.findall(r"^(?:def|class) ([A-Za-z]\w*)", source, flags=re.MULTILINE))
        assert defined <= entries(name).keys(), name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_hyper_parameters_and_logged_numbers_all_have_a_meaning(algorithm):
    from rlbook.cli.explain import comments

    agent = agent_class(algorithm)
    assert all(comments(agent.Config).values())
    assert agent.METRICS
    assert all(agent.METRICS.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_overviews_lead_to_every_algorithm(algorithm):
    assert f"```{{logged-numbers}} {algorithm}\n" in (DOCS / "logged-numbers.md").read_text()
    assert f"]({algorithm}.md) |" in (DOCS / "algorithms" / "index.md").read_text()


def test_a_docstring_becomes_parameters_and_results():
    text = api_pages.as_markdown(
        "Adds.\n\nArgs:\n    a, b: numbers, in\n        metres.\n\nReturns:\n    The"
        " sum.\n\nSource: Peano, $1."
    )
    assert (
        text
        == "Adds.\n\n:param a: numbers, in metres.\n:param b: numbers, in metres.\n\n:returns: The"
        " sum.\n\nSource: Peano, \\$1."
    )


def test_the_page_of_results_shows_what_was_measured():
    text = (DOCS / "results.md").read_text()
    assert measure.with_results(text, results.read()) == text


def test_in_one_of_eight_rows_stable_baselines3_is_further_away_than_the_interval():
    text = (DOCS / "results.md").read_text()
    rows = re.findall(r"rlbook train (\w+ \S+)`.*? \| ([\d.]+) ± ([\d.]+) .*\| SB3: ([\d.]+)", text)
    further = {
        command: float(mean) > float(theirs)
        for command, mean, half, theirs in rows
        if abs(float(mean) - float(theirs)) > float(half)
    }
    assert len(rows) == 8 and further == {"td3 HalfCheetah-v5": True}
    assert "In seven of these eight rows" in text


def readme_example() -> str:
    return (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]


def test_each_line_of_the_readme_s_example_runs(tmp_path):
    """With fewer steps."""
    code = readme_example()
    assert len(code.strip().splitlines()) <= 7
    short = code.replace("seed=0,", "seed=0, steps=512,")
    done = run_python(["-c", short], cwd=tmp_path)
    assert short != code and done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] in ("0", "1")
    assert (tmp_path / "pole.gif").is_file() and (
        tmp_path / "runs" / "pole" / "metrics.jsonl"
    ).is_file()


@pytest.mark.slow
def test_the_readme_s_example_comes_to_what_its_comments_say(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", readme_example()], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    said = re.search(r"# (<Evaluation .*>)", readme_example())
    assert said is not None and done.stdout.splitlines()[0] == said[1]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_notebooks_have_exercises_and_are_shown_in_the_site(path):
    notebook = json.loads(path.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert "## Exercises" in "".join(line for cell in notebook["cells"] for line in cell["source"])
    assert any("check(" in line for cell in code for line in cell["source"])
    assert f"<notebooks/{path.stem}>" in (DOCS / "index.md").read_text()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """Every notebook with its stored outputs and every executed cell included; without the
    network."""
    from docutils.nodes import make_id

    cells = (  # a cache of its own: what has no stored output is executed
        f"nb_execution_cache_path={tmp_path / 'cells'}"
    )
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees"), "-D", cells]
    command = [sys.executable, "-m", "sphinx", *options, "docs", str(tmp_path / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    page = (tmp_path / "html" / "algorithms" / "ppo.html").read_text()
    assert 'class="katex-display"' in page and "<math " in page  # drawn, and for screen readers
    pictured = (tmp_path / "html" / "chapters" / "temporal-difference.html").read_text()
    assert pictured.count('class="only-light"') == pictured.count('class="only-dark"') >= 2
    for name in re.findall(r'src="\.\./(_images/[^"]+)"', pictured):
        assert (tmp_path / "html" / name).exists()
    style = (tmp_path / "html" / "_static" / "katex.css").read_text()
    assert style.count("src:url(data:font/woff2;base64,") == style.count("@font-face") > 10
    for built in (tmp_path / "html").rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="https?://[^"]+', built.read_text()
        )
        assert not loaded, f"{built.name} loads something from elsewhere"
    notebook = (tmp_path / "html" / "notebooks" / "hidden-states.html").read_text()
    assert "with a memory 1.00, without one 0.00" in notebook
    check_searches(tmp_path / "html")
    numbers = (tmp_path / "html" / "logged-numbers.html").read_text()
    assert all(f'id="{make_id(f"metric-{name}")}"' in numbers for name in GLOSSARY)
