"""Holds what the pages say that commands print:
`python docs/printed.py [--write] [PAGE|HEADING …]`, a page such as chapters/planning.

In a page an output is a block of `text` directly after a block of `sh`. The commands are run:
those of a section share an empty folder. Where a section includes a file, or names one in
backquotes before a block of Python or YAML, the file is there. Then

- the words must be those that were printed. Line breaks may differ, and "…" stands for what is left
  out;
- the numbers must be those that were printed, where a network's training rounds as WRITTEN_WITH
  says. Elsewhere it rounds differently, so there the words alone are compared, and of what the
  doctor says only whether it names the fault that the section is about: a run that takes another
  course may show others beside it;
- nothing is said of seconds, of shares of the time, and of the commands that a run suggests at its
  end.

With --write the numbers are renewed; where the words have changed, the whole output is written, and
what is too much has to be cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

DOCS = Path(__file__).parent
WRITTEN_WITH = "torch 2.13.0+cpu, AVX512, 5662a0a6"
COLUMNS = 76  # that a page shows without scrolling
LONG = (
    "rlbook train alphazero TicTacToe-v0 --env.opponent self",
    "rlbook train dqn CartPole-v1 --out",
    "rlbook train dqn Catch-v0",
    "rlbook train dqn TMaze-v0 --recurrent gru",
    "rlbook train grpo Addition-v0 --out runs/sums",
    "rlbook train grpo Addition-v0 --env.reward '{exact: 1.0, length: 0.1}'",
    "rlbook train reward_model Addition-v0 --out runs/reward\nrlbook train ppo",
    "rlbook train rft Addition-v0",
    "rlbook train sac Pendulum-v1",
    "rlbook figure translation",
    "rlbook train grpo Addition-v0 --steps 20000 --out runs/short",
    "rlbook tune q_learning FrozenLake-v1",
)
"""How the outputs begin whose commands take more than ten seconds: they are compared by this
program only."""

NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
SECONDS = re.compile(r"\d+(?:\.\d+)? s\b")
VARYING = re.compile(r"^\n?(?:time: |evaluation took |  rlbook ).*\n?", flags=re.MULTILINE)
OUTPUT = re.compile(r"```sh\n([^`]*)```\n\n```text\n([^`]*)```")
FILE = re.compile(r"`(\w+\.(?:py|yaml))`[^`]*\n\n```(?:python|yaml)\n(.*?)```", flags=re.DOTALL)
INCLUDED = re.compile(r"\{literalinclude\} (\w+\.(?:py|yaml))\n")


class Output(NamedTuple):
    """Commands of a page, what it shows below them, what they print, and the heading above."""

    commands: str
    shown: str
    printed: str
    heading: str = ""

    def renewed(self) -> str:
        """What the page should show."""
        told = reprint_numbers(self.shown, self.printed)
        if told is None:
            lines = VARYING.sub("", self.printed).splitlines()
            return "".join(
                textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False) + "\n"
                for line in lines
            )
        return self.shown if SECONDS.sub("s", told) == SECONDS.sub("s", self.shown) else told

    def holds(self) -> bool:
        """Whether the page shows what is printed: the words, and the numbers where they can be
        compared."""
        if rounded_by() != WRITTEN_WITH:
            shown, printed = (
                without_other_faults(text, self.heading) for text in (self.shown, self.printed)
            )
            return reprint_numbers(shown, printed) is not None
        return self.renewed() == self.shown


def without_other_faults(text: str, heading: str) -> str:
    """What the doctor says, less the faults that `heading` does not name."""
    from rlbook.diagnosis.symptoms import RULES

    others = "|".join(re.escape(name) for name in RULES if name != heading)
    text = re.sub(rf"^(?:{others}): .*\n(?:  .*\n)*", "", text, flags=re.MULTILINE)
    return re.sub(r",\s+and\s+its\s+log\s+shows\s+no\s+known\s+problem", "", text)


def reprint_numbers(shown: str, printed: str) -> str | None:
    """What is shown, with the numbers that were printed; None if the words are others."""
    words, of = (" ".join(VARYING.sub("", text).split()) for text in (shown, printed))
    shape = f"({NUMBER.pattern})".join(
        re.escape(part).replace("…", ".*?") for part in NUMBER.split(words)
    )
    if (found := re.fullmatch(shape, of)) is None:
        return None
    numbers = iter(found.groups())
    return "".join(
        line if VARYING.match(line) else NUMBER.sub(lambda _: next(numbers), line)
        for line in shown.splitlines(keepends=True)
    )


@cache
def rounded_by() -> str:
    """How a network's numbers are rounded here: by which torch, with which of the processor's
    instructions, and what a short training comes to, since processors with the same instructions
    add up differently."""
    import torch

    import rlbook

    log = rlbook.train("ppo", "CartPole-v1", steps=2048, eval_every=0).metrics
    digest = hashlib.sha256(repr(log).encode()).hexdigest()[:8]
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {digest}"


def sections() -> dict[tuple[str, str], str]:
    """Page, heading → the text of a section that shows an output."""
    found = {}
    for page in sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts):
        for part in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if OUTPUT.search(part):
                found[
                    page.relative_to(DOCS).with_suffix("").as_posix(), part.partition("\n")[0]
                ] = part
    return found


def outputs(section: str, *, long: bool = True) -> Iterator[Output]:
    """Runs what a section shows the output of, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(section)
        for commands, shown in OUTPUT.findall(section):
            if long or not commands.startswith(LONG):
                yield Output(
                    commands,
                    shown,
                    "".join(map(printed, commands.replace("\\\n", " ").splitlines())),
                    section.partition("\n")[0],
                )


def write_files(section: str) -> None:
    """The files that a section shows or includes, in the working folder."""
    for name, text in FILE.findall(section):
        Path(name).write_text(text, encoding="utf-8")
    for name in INCLUDED.findall(section):
        shutil.copy(next(DOCS.rglob(name)), name)


def printed(command: str) -> str:
    """What a command prints on standard output, or the sentence with which it refuses; its seconds
    are those of the processor."""
    from rlbook.cli.main import main

    words = shlex.split(command, comments=True)
    if words[0] == "python":
        return subprocess.run(
            [sys.executable, *words[1:]], check=True, capture_output=True, text=True
        ).stdout
    out, err = io.StringIO(), io.StringIO()
    clock = mock.patch("time.monotonic", time.process_time)
    size = mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS)})
    with clock, size, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words[1:])
    if code not in (0, 2):  # interrupted, or a defect
        sys.exit(f"{command}\n{err.getvalue()}")
    return err.getvalue().splitlines()[-1] + "\n" if code else out.getvalue()


def renew(output: Output, page: Path) -> None:
    """Writes into the page what was printed."""
    before, after = (
        f"{output.commands}```\n\n```text\n{text}```" for text in (output.shown, output.renewed())
    )
    page.write_text(page.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def run(words: list[str]) -> int:
    """The program; how many outputs did not hold."""
    wanted, wrong = [word for word in words if word != "--write"], 0
    for (page, heading), section in sections().items():
        if not wanted or page in wanted or heading in wanted:
            for output in [output for output in outputs(section) if not output.holds()]:
                wrong += 1
                print(
                    f"{page}\n{output.commands}--- shown\n{output.shown}---"
                    f" printed\n{output.printed}",
                    flush=True,
                )
                if "--write" in words:
                    renew(output, DOCS / f"{page}.md")
    print(f"{wrong} outputs differ")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(run(sys.argv[1:])))
