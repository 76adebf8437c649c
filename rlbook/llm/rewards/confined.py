"""Runs a program that nobody trusts: `python confined.py FOLDER MEMORY_MB SECONDS OUTPUT_BYTES ISOLATE [PLACE MODULE]…`.

It imports nothing of rlbook. Each MODULE is imported from PLACE before anything is given up, so that the program can use it.

FOLDER/program.py runs in this very process, after the process has given up for good:

- time: `RLIMIT_CPU`; who starts it stops it by the clock as well;
- memory: `RLIMIT_AS`;
- output: `RLIMIT_FSIZE`, since its output is a file;
- other processes, the network, signals to others, and every change to files: seccomp, which allows the system calls of `ALLOWED` and
  refuses all others. A file may be opened to be read;
- reading, outside of Python's own folders and the system's libraries: Landlock, where the kernel has it.

What stays: it can read the clock and the machine's name, and a hole in the kernel is a hole here.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import resource
import runpy
import struct
import sys

UNCONFINED = 77
"""The exit code where the kernel does not offer what was asked for."""
ARCHITECTURE = 0xC000003E                    # AUDIT_ARCH_X86_64: the numbers below are of this machine's system calls
ALLOWED = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10,
    "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "readv": 19,
    "writev": 20, "access": 21, "pipe": 22, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33,
    "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63, "fcntl": 72, "getcwd": 79, "readlink": 89, "gettimeofday": 96,
    "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    "sigaltstack": 131, "gettid": 186, "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
    "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "dup3": 292, "pipe2": 293, "getrandom": 318, "membarrier": 324,
    "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
OPEN, OPENAT, CLONE, CLONE3 = 2, 257, 56, 435
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
THREAD = 0x00010000                          # CLONE_THREAD: a thread of this process, whose memory is limited
PERMIT, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000      # SECCOMP_RET_ALLOW, _ERRNO and _KILL_PROCESS
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06          # BPF: load a word, jump if equal, jump if a bit is set, return
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2


def bounded(memory_mb: int, seconds: int, output_bytes: int) -> None:
    """Limits that can only be lowered from here on."""
    megabytes = memory_mb * 2**20
    for what, most in (
        (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, megabytes), (resource.RLIMIT_FSIZE, output_bytes),
        (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        resource.setrlimit(what, (most, most))


def _filter() -> bytes:
    """The seccomp filter as BPF instructions: (code, jump if true, jump if false, constant)."""

    def masked(number: int, argument: int, bits: int, if_any: int, otherwise: int) -> list[tuple[int, int, int, int]]:
        """The answer to one call by the bits of one argument; other calls fall through with their number loaded."""
        return [
            (EQUAL, 0, 4, number), (LOAD, 0, 0, 16 + 8 * argument), (ANY_BIT, 0, 1, bits),
            (RETURN, 0, 0, if_any), (RETURN, 0, 0, otherwise),
        ]  # fmt: skip

    forbidden = REFUSE | 1                   # EPERM
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURE), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    steps += masked(OPEN, 1, CHANGES, forbidden, PERMIT) + masked(OPENAT, 2, CHANGES, forbidden, PERMIT)
    steps += masked(CLONE, 0, THREAD, PERMIT, forbidden)
    steps += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, REFUSE | 38)]                    # ENOSYS: the C library falls back to clone
    for number in ALLOWED.values():
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, PERMIT)]
    steps += [(RETURN, 0, 0, forbidden)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def isolated(folder: str) -> bool:
    """No processes, network, signals or changed files from here on; False where the kernel cannot promise it."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    _read_only_here(library, [folder, sys.base_prefix, "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime"])
    code = _filter()
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    return library.prctl(SECCOMP, FILTER, ctypes.create_string_buffer(program, len(program)), 0, 0) == 0


def _read_only_here(library: ctypes.CDLL, places: list[str]) -> None:
    """Landlock: from here on only what lies in `places` can be read. A kernel without it leaves reading as it was."""
    everything, reading = 0x1FFF, 0x000D     # the 13 rights of its first version; execute, read a file, list a folder
    ruleset = library.syscall(444, ctypes.create_string_buffer(struct.pack("Q", everything), 8), ctypes.c_size_t(8), 0)
    if ruleset < 0:
        return
    for place in places:
        try:
            handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = reading if os.path.isdir(place) else 0x0004
        library.syscall(445, ruleset, 1, ctypes.create_string_buffer(struct.pack("=Qi", rights, handle), 12), 0)
        os.close(handle)
    library.syscall(446, ruleset, 0)
    os.close(ruleset)


def main() -> None:
    folder, *numbers = sys.argv[1:6]
    memory_mb, seconds, output_bytes, isolate = map(int, numbers)
    os.chdir(folder)
    runpy.run_path                           # noqa: B018 - loaded before reading is restricted
    own, wanted = [path for path in sys.path if path != os.path.dirname(__file__)], sys.argv[6:]
    for place, module in zip(wanted[::2], wanted[1::2], strict=True):
        sys.path = [*own, place]
        importlib.import_module(module)
    sys.argv, sys.path = ["program.py"], own
    bounded(memory_mb, seconds, output_bytes)
    if isolate and not isolated(folder):
        sys.exit(UNCONFINED)
    runpy.run_path("program.py", run_name="__main__")


if __name__ == "__main__":
    main()
