"""Runs an untrusted program: `python program.py FOLDER MEMORY_MB SECONDS OUTPUT_BYTES ISOLATE
[PLACE MODULE]…`.

It imports nothing of rlbook. Each MODULE is imported from PLACE before anything is given up, so
that the program can use it and its public parts.

FOLDER/program.py runs in this very process, after the process has given up for good:

- time: `RLIMIT_CPU`; who starts it stops it by the clock as well, and it dies with who started it;
- memory: `RLIMIT_AS`; where the machine runs out of it all the same, the kernel ends this process
  first;
- output: `RLIMIT_FSIZE`, since its output is a file;
- other processes, the network, signals to others, and every change to files: seccomp, which allows
  the system calls of `ALLOWED` and `CHECKED` and refuses all others. A file may be opened to be
  read. Landlock holds signals back a second time, where the kernel has it;
- reading, outside of Python's own folders and the system's libraries: Landlock, where the kernel
  has it;
- even seeing what else there is: a root folder of its own, where the kernel allows a mount
  namespace;
- privileges: all capabilities, and root's user where there is another;
- threads: `RLIMIT_NPROC`. It does not hold for root, who gets none where it cannot become another
  user.

What stays: it can read the clock and the machine's name; where there is no mount namespace, it can
ask whether a file exists, how large it is and when it changed; and a hole in the kernel is a hole
here.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import platform
import resource
import runpy
import signal
import struct
import sys

UNCONFINED = 77
"""The exit code if the kernel does not support the requested isolation."""
ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64: the numbers below are of this machine's system calls
ALLOWED = {
    "read": 0,
    "write": 1,
    "close": 3,
    "stat": 4,
    "fstat": 5,
    "lstat": 6,
    "poll": 7,
    "lseek": 8,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "pread64": 17,
    "readv": 19,
    "writev": 20,
    "access": 21,
    "pipe": 22,
    "select": 23,
    "sched_yield": 24,
    "mremap": 25,
    "dup": 32,
    "dup2": 33,
    "nanosleep": 35,
    "getpid": 39,
    "exit": 60,
    "uname": 63,
    "getcwd": 79,
    "readlink": 89,
    "gettimeofday": 96,
    "getrlimit": 97,
    "getrusage": 98,
    "sysinfo": 99,
    "times": 100,
    "getuid": 102,
    "getgid": 104,
    "geteuid": 107,
    "getegid": 108,
    "sigaltstack": 131,
    "gettid": 186,
    "getdents64": 217,
    "exit_group": 231,
    "newfstatat": 262,
    "readlinkat": 267,
    "faccessat": 269,
    "pselect6": 270,
    "ppoll": 271,
    "set_robust_list": 273,
    "dup3": 292,
    "getrandom": 318,
    "statx": 332,
    "rseq": 334,
    "faccessat2": 439,
}
"""System calls that affect only this process, or only query information."""
# SECCOMP_RET_ALLOW, _ERRNO and _KILL_PROCESS
PERMIT, REFUSE, KILL = (
    0x7FFF0000,
    0x00050000,
    0x80000000,
)
LOAD, AND, EQUAL, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
"""BPF: load a word, keep some of its bits, jump if it is equal, jump if a bit is set, return."""
FORBIDDEN = (RETURN, 0, 0, REFUSE | 1)  # EPERM
Instructions = list[tuple[int, int, int, int]]  # code, jump if true, jump if false, constant


def allow_values(argument: int, *values: int, bits: int = 0xFFFFFFFF) -> Instructions:
    """Allows a call if `bits` of an argument equal one of the values."""
    steps = [(LOAD, 0, 0, 16 + 8 * argument), (AND, 0, 0, bits)]
    for value in values:
        steps += [(EQUAL, 0, 1, value), (RETURN, 0, 0, PERMIT)]
    return [*steps, FORBIDDEN]


def allow_without_bits(argument: int, bits: int) -> Instructions:
    """Allows a call if an argument has none of the bits set."""
    return [
        (LOAD, 0, 0, 16 + 8 * argument),
        (ANY_BIT, 0, 1, bits),
        FORBIDDEN,
        (RETURN, 0, 0, PERMIT),
    ]


def complement(bits: int) -> int:
    """The complement of the bits within a word."""
    return ~bits & 0xFFFFFFFF


def _fcntl() -> Instructions:
    """Allows F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC and F_GETPIPE_SZ, and F_SETFL if
    it changes only O_NONBLOCK.

    Of the others, F_SETOWN and F_SETSIG send any signal to any process; O_DIRECT on the output,
    which the reader of the output shares, makes its reading fail.
    """
    steps = allow_without_bits(2, os.O_ASYNC | os.O_DIRECT | os.O_APPEND | os.O_NOATIME)
    return [
        (LOAD, 0, 0, 24),
        (EQUAL, 0, len(steps), 4),
        *steps,
        *allow_values(1, 0, 1, 2, 3, 1030, 1032),
    ]


# 0x8000: O_LARGEFILE
READING = os.O_CLOEXEC | os.O_NONBLOCK | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOCTTY | 0x8000
THREAD = 0x003D0F00  # the flags of pthread_create: a thread that shares memory, files and limits
CHECKED = {
    (2, "open"): allow_without_bits(
        1, complement(READING)
    ),  # without O_PATH, which Landlock does not look at
    (257, "openat"): allow_without_bits(2, complement(READING)),
    (9, "mmap"): allow_without_bits(
        3, 0x42000
    ),  # MAP_HUGETLB, MAP_LOCKED: memory of which others have less
    (28, "madvise"): allow_values(
        2, 0, 1, 2, 3, 4, 8, 14, 15, 16, 17
    ),  # for root, others poison pages of libraries
    (16, "ioctl"): allow_values(
        1, 0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451
    ),  # TCGETS TIOCGWINSZ FIONBIO FIONREAD FIO(N)CLEX
    (72, "fcntl"): _fcntl(),
    (202, "futex"): allow_values(
        1, 0, 1, 3, 4, 5, 9, 10, bits=0x7F
    ),  # without priority inheritance
    (204, "sched_getaffinity"): allow_values(0, 0),  # of itself: others' say whether they exist
    (228, "clock_gettime"): allow_without_bits(
        0, 1 << 31
    ),  # a clock with this bit is another process's
    (229, "clock_getres"): allow_without_bits(0, 1 << 31),
    (230, "clock_nanosleep"): allow_without_bits(0, 1 << 31),
    (293, "pipe2"): allow_without_bits(1, os.O_EXCL),  # O_NOTIFICATION_PIPE
    (435, "clone3"): [(RETURN, 0, 0, REFUSE | 38)],  # ENOSYS: the C library falls back to clone
}
"""System calls that are allowed only with some arguments."""
NO_NEW_PRIVILEGES, DIE_WITH_PARENT = 38, 1  # of prctl
NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000  # of mount
PLACES = [
    sys.base_prefix,
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/share/zoneinfo",
    "/etc/localtime",
]
"""The paths that a program may read: Python's own folders and the system's libraries."""
NOBODY = 65534
THREADS = 64


def set_limits(memory_mb: int, seconds: int, output_bytes: int) -> None:
    """Sets resource limits, which can only be lowered afterwards."""
    with contextlib.suppress(OSError):  # a system without it
        _write("/proc/self/oom_score_adj", b"1000")
    megabytes = memory_mb * 2**20
    # at the limit SIGXCPU, which says why; a program that ignores it is killed a second later
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for what, most in (
        (resource.RLIMIT_AS, megabytes),
        (resource.RLIMIT_FSIZE, output_bytes),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _filter(threads: bool) -> bytes:
    """The seccomp filter as BPF instructions."""
    checked = CHECKED | {
        (56, "clone"): allow_values(0, THREAD, THREAD | 0x400000) if threads else [FORBIDDEN]
    }
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURE), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    for number in ALLOWED.values():
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, PERMIT)]
    for (number, _), answer in checked.items():
        steps += [(EQUAL, 0, len(answer), number), *answer]
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, FORBIDDEN])


def isolate_process(folder: str) -> bool:
    """Denies new processes, network, signals and file changes from here on; returns False if the
    kernel cannot enforce this."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    library, parent = ctypes.CDLL(None, use_errno=True), os.getppid()
    tasks = int(_read_file("/proc/loadavg").split(b"/")[1].split()[0])  # on this machine
    own_root, own_users = _change_root(library)
    is_root = not _change_user(library)
    counted_apart = own_users and tuple(map(int, platform.release().split(".")[:2])) >= (5, 14)
    # of this process; or of the user, who has others
    most = THREADS if counted_apart else tasks + THREADS
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    library.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent or library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    _restrict_reading(library, [os.getcwd() if own_root else folder, *PLACES])
    code = _filter(threads=not is_root)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    return library.syscall(317, 1, 1, ctypes.create_string_buffer(program, len(program))) == 0


def _change_root(library: ctypes.CDLL) -> tuple[bool, bool]:
    """Changes to a root folder that contains only `PLACES` and this folder's program, read-only, as
    /program.

    Returns:
        Whether there is one, and whether there is a user namespace for it, which is how an ordinary
        user gets one.
    """
    own_users, user, group = False, os.geteuid(), os.getegid()
    try:
        if library.unshare(NEW_MOUNTS) != 0:
            own_users = library.unshare(NEW_USERS | NEW_MOUNTS) == 0
            if not own_users:
                return False, False
            _write("/proc/self/setgroups", b"deny")
            _write("/proc/self/uid_map", b"%d %d 1" % (user, user))
            _write("/proc/self/gid_map", b"%d %d 1" % (group, group))
        os.umask(0o022)
        root, text = os.getcwd(), _read_file("program.py")
        _mount(library, "none", "/", PRIVATE | RECURSIVE)
        _mount(library, "tmpfs", root, 0)
        os.mkdir(f"{root}/program")
        _write(f"{root}/program/program.py", text)
        for place in filter(os.path.exists, sorted(PLACES, key=len)):
            _show(library, place, root + place)
        os.chroot(root)
        os.chdir("/program")
        # read only, and what is mounted in it
        library.syscall(442, -100, b"/", 0x8000, struct.pack("QQQQ", 1, 0, 0, 0), 32)
    except OSError:
        return False, own_users
    return True, own_users


def _show(library: ctypes.CDLL, place: str, target: str) -> None:
    """Bind-mounts one place at another."""
    if os.path.exists(target):  # within one that is shown already
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(place):
        os.mkdir(target)
    else:
        _write(target, b"")
    _mount(library, place, target, BIND | RECURSIVE)


def _mount(library: ctypes.CDLL, source: str, target: str, flags: int) -> None:
    kind, place = (b"tmpfs" if source == "tmpfs" else None), os.fsencode(target)
    if library.mount(os.fsencode(source), place, kind, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), "mount", target)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, text: bytes) -> None:
    with open(path, "wb") as file:
        file.write(text)


def _change_user(library: ctypes.CDLL) -> bool:
    """Drops all capabilities and root's user id; False if this process stays root, because no other
    user can read Python."""
    changed = os.geteuid() != 0 or _can_be_nobody()
    if os.geteuid() == 0 and changed:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    library.syscall(126, struct.pack("II", 0x20080522, 0), bytes(24))  # capset
    return changed


def _can_be_nobody() -> bool:
    try:
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        _read_file(os.__file__)
    except OSError:
        return False
    finally:
        os.seteuid(0)
        os.setegid(0)
    return True


def _restrict_reading(library: ctypes.CDLL, places: list[str]) -> None:
    """Landlock: from here on only files in `places` can be read, and no signal can be sent to other
    processes.

    A kernel without it, or with an older version of it, leaves things as they were.
    """
    version = library.syscall(444, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    # the rights that it knows: all of them are given up
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    network, signals = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    rights = struct.pack("QQQ", files, network, signals)[
        : 24 if version >= 6 else 16 if version >= 4 else 8
    ]
    ruleset = library.syscall(444, rights, ctypes.c_size_t(len(rights)), 0)
    for place in places:
        try:
            handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        reading = 0x000D if os.path.isdir(place) else 0x0004  # execute, read a file, list a folder
        library.syscall(445, ruleset, 1, struct.pack("=Qi", reading, handle), 0)
        os.close(handle)
    library.syscall(446, ruleset, 0)
    os.close(ruleset)


def main() -> None:
    folder, *numbers = sys.argv[1:6]
    memory_mb, seconds, output_bytes, isolate = map(int, numbers)
    os.chdir(folder)
    runpy.run_path  # noqa: B018 - loaded before reading is restricted
    own, wanted = [path for path in sys.path if path != os.path.dirname(__file__)], sys.argv[6:]
    for place, module in zip(wanted[::2], wanted[1::2], strict=True):
        sys.path = [*own, place]
        imported = importlib.import_module(module)
        for name in getattr(imported, "__all__", ()):  # parts that load when they are asked for
            getattr(imported, name, None)
    sys.argv, sys.path = ["program.py"], own
    set_limits(memory_mb, seconds, output_bytes)
    if isolate and not isolate_process(folder):
        sys.exit(UNCONFINED)
    runpy.run_path("program.py", run_name="__main__")


if __name__ == "__main__":
    main()
