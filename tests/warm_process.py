"""Processes of Python that begin with rlbook imported: each costs a tenth of a second of CPU time
in place of two or three, and is else what `subprocess` would start.

A server, one for each process of the tests, imports what a command needs and starts no thread. For
each request it forks, and the copy becomes the process that was asked for: with its own standard
streams, folder, environment variables, process group and exit code, and under its own process id,
to which signals can be sent. What a process must import, or may not import, is tested with
`subprocess`, and so is an environment variable that is read when rlbook is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

IMPORTED = (
    "rlbook.cli.train",
    "rlbook.algorithms.policy.ppo",
    "rlbook.algorithms.tabular.q_learning",
    "rlbook.envs.gridworlds.maze",
    "rlbook.diagnosis.summary",
    "rlbook.plots.curves",
    "charset_normalizer",
    "numba",
    "scipy.sparse",
    "sympy",
    "tyro",
    "typeguard",
)
"""What the server imports before its first request, where it is installed: most of what `rlbook
train` does."""


class WarmProcess:
    """A process of Python that runs `python WORDS`, with pipes for its output."""

    def __init__(
        self,
        words: Sequence[object],
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        new_group: bool = False,
        address_space: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        mine, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        request = {
            "words": [str(word) for word in words],
            "cwd": os.fspath(cwd if cwd is not None else Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "new_group": new_group,
            "address_space": address_space,
        }
        fds = [theirs.fileno(), *(write for _, write in pipes)]
        socket.send_fds(_server(), [b"r"], fds)
        theirs.close()
        for _, write in pipes:
            os.close(write)
        self._monitor = mine
        mine.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(_line(mine))
        self.stdout: IO[str] = os.fdopen(pipes[0][0], encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(pipes[1][0], encoding="utf-8")

    def poll(self) -> int | None:
        """The exit code, or None while it runs; as subprocess has it, -N for signal N."""
        if self.returncode is None and select.select([self._monitor], [], [], 0)[0]:
            self._read_code()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it goes on for longer than `timeout`, in seconds.
        """
        if self.returncode is None:
            if timeout is not None and not select.select([self._monitor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._read_code()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for its end, and returns what it wrote to both streams.

        Raises:
            subprocess.TimeoutExpired: it goes on for longer than `timeout`, in seconds.
        """
        said = ["", ""]

        def read(place: int, stream: IO[str]) -> None:
            said[place] = "" if stream.closed else stream.read()

        readers = [
            threading.Thread(target=read, args=item, daemon=True)
            for item in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        end = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        self.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Closes what is read from it."""
        for stream in (self.stdout, self.stderr, self._monitor):
            stream.close()

    def _read_code(self) -> None:
        self.returncode = int(_line(self._monitor))


def _line(connection: socket.socket) -> str:
    """The next line, and nothing after it, so that `select` sees what has not been read."""
    read = b""
    while not read.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            raise ConnectionError("the server of processes has ended")
        read += part
    return read.decode()


def run_python(
    words: Sequence[object], *, timeout: float = 120.0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` to its end; the options are those of `WarmProcess`."""
    process = WarmProcess(words, **options)
    try:
        out, err = process.communicate(timeout)
    finally:
        process.kill()
        process.close()
    return subprocess.CompletedProcess([str(word) for word in words], process.wait(), out, err)


@functools.cache
def _server() -> socket.socket:
    """The server of this process of the tests, which ends with it."""
    mine, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, __file__, str(theirs.fileno())]
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1])]),
        }
        process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], env=environment, process_group=0
        )
    atexit.register(process.wait)
    atexit.register(mine.close)  # which ends it, and is done first
    return mine


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks at each request. Returns in each copy, with what it shall become; and None, when there
    will be no more requests."""
    for name in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what a collection in a copy does not visit stays shared with the others
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1, 3)
        if not message:
            break
        if os.fork() == 0:
            requests.close()
            return _monitor(*fds)
        for fd in fds:
            os.close(fd)
        _reap()
    end = time.monotonic() + 2.0
    while _reap() and time.monotonic() < end:
        time.sleep(0.01)
    return None


def _reap() -> bool:
    """Waits for the monitors that have ended, so that the system counts their CPU time as that of
    the tests. Returns whether any are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _monitor(connection: int, out: int, err: int) -> dict[str, Any]:
    """Forks the process itself, tells its id and its exit code, and ends; returns in the process."""
    with socket.socket(fileno=connection) as given:
        with given.makefile("rb") as file:
            request = json.loads(file.readline())
        pid = os.fork()
        if pid == 0:
            given.close()
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.closerange(3, 256)
            return request
        os.close(out)
        os.close(err)
        given.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # where nobody asks any more
            given.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)


def become(request: dict[str, Any]) -> int:
    """Runs what was asked for, as a fresh interpreter would, and returns its exit code."""
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")
    code = 0
    try:
        _run(request)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if not isinstance(stop.code, int | None):
            print(stop.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def _run(request: dict[str, Any]) -> None:
    words, folder = request["words"], request["cwd"]
    if request["new_group"]:
        os.setpgid(0, 0)
    if request["address_space"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request["address_space"],) * 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(request["env"])
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0:1] = [folder, *filter(None, beside)]
    if words[0] == "-m":
        sys.argv = [words[1], *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.path[0] = str(Path(words[0]).parent)
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        task = serve(asked)
    if task is not None:
        exit_code = become(task)
        if exit_code < 0:
            signal.signal(-exit_code, signal.SIG_DFL)
            os.kill(os.getpid(), -exit_code)
        os._exit(exit_code)  # to take the interpreter apart would copy all of its memory
