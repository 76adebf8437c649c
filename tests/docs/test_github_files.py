"""What GitHub reads: workflows, issue forms and CITATION.cff are what its schemas ask for, which
check-jsonschema ships; nothing is downloaded."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import rlbook

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").iterdir() if path.stem != "config")
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def schema_errors(schema: str, files: list[Path]) -> str:
    """What check-jsonschema says of files that do not follow a schema; empty where they do."""
    from check_jsonschema import main  # seconds, which only the process of these tests should pay
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, files)])
    return "" if done.exit_code == 0 else done.output or repr(done.exception)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_github_reads_follows_its_schema(schema: str) -> None:
    assert SCHEMAS[schema] and schema_errors(schema, SCHEMAS[schema]) == ""


@pytest.mark.parametrize(
    ("schema", "old", "new"),
    [
        ("vendor.github-workflows", "runs-on:", "runs_on:"),
        ("vendor.github-issue-forms", "type: textarea", "type: text"),
        ("vendor.github-issue-config", "true", "maybe"),
        ("vendor.citation-file-format", "license: MIT", "license: mine"),
    ],
)
def test_a_mistake_in_such_a_file_is_found(schema: str, old: str, new: str, tmp_path: Path) -> None:
    file = SCHEMAS[schema][0]
    text = file.read_text(encoding="utf-8")
    assert old in text
    wrong = tmp_path / file.name
    wrong.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert schema_errors(schema, [wrong])


def test_the_workflows_call_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.M))
    called = [
        target
        for path in WORKFLOWS
        for target in re.findall(r"\bmake ([a-z-]+)", path.read_text(encoding="utf-8"))
    ]
    assert {"check", "test", "wheel", "docs"} <= set(called) <= targets


def test_the_tests_run_on_three_pythons_from_the_oldest_supported_one() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={pythons[0]}"
    said = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert said == pythons


def test_every_job_ends_by_itself_and_may_write_only_what_it_publishes() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            assert 0 < job["timeout-minutes"] <= 120, (path.name, name)
            allowed = {"pages": "write", "id-token": "write"} if name == "publish" else None
            assert job.get("permissions") == allowed, (path.name, name)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == rlbook.__version__
    released = f"## [{rlbook.__version__}] - {citation['date-released']}"
    assert released in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
