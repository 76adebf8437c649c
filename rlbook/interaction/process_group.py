"""The processes that torchrun has started for one run, and their communication.

Every process makes the same run with the same seed. It steps its own share of the environments and
backpropagates its own rows of each minibatch; whatever comes of that is gathered or summed, so all
of them hold the same rollouts, the same weights and the same random generators. The first process,
the leader, evaluates, calls the callbacks and writes the folder; the others follow.

Messages are pickled, as torch.distributed's own are, and go through the sockets of its process
group, which only these processes hold: nothing of it is read from a file. Numbers that autograd
has made go through gloo on the CPU and through NCCL on GPUs.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from rlbook.errors import RequestError, TrainingError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The environment variables by which torchrun, or another launcher, numbers its processes."""
PATIENCE = timedelta(hours=12)
"""How long a process waits for the others; the leader may evaluate for a long time. A process that
ends closes its sockets, which the others notice immediately."""
LOST = "another of the {size} processes has ended, so no further step can be taken"
HEAD = 9  # bytes before a message: its length, and whether a signal asks to stop


class ProcessRank(NamedTuple):
    """A process among those of its run."""

    rank: int  # from 0; 0 is the leader
    size: int  # how many there are


def place() -> ProcessRank:
    """This process's place, from the environment variables of its launcher; without one it is the
    only process.

    Raises:
        RequestError: the variables are not numbers.
    """
    if any(name not in os.environ for name in VARIABLES):
        return ProcessRank(0, 1)
    try:
        found = ProcessRank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except ValueError:
        found = ProcessRank(-1, 0)
    if not 0 <= found.rank < found.size:
        raise RequestError(
            "RANK and WORLD_SIZE must be numbers with 0 ≤ RANK < WORLD_SIZE, got"
            f" {os.environ['RANK']!r} and {os.environ['WORLD_SIZE']!r}"
        )
    return found


def is_follower() -> bool:
    """Whether another process of this run writes files and prints."""
    return place().rank > 0


def process_group() -> ProcessGroup | None:
    """The processes of this run; None if this is the only one. The first call connects them."""
    global _group
    if _group is None and place().size > 1:
        _group = ProcessGroup(*place())
    return _group


def may_speak() -> bool:
    """Whether this process reports why the run has failed: the first that fails, or, before they
    are connected, the leader."""
    with contextlib.suppress(Exception):  # the process that holds the store may be gone
        return not is_follower() if _group is None else _group.store.add("rlbook/failed", 1) == 1
    return True


_group: ProcessGroup | None = None


class ProcessGroup:
    """N processes, of which this is one.

    Args:
        rank: the number of this process, from 0.
        size: N.

    Raises:
        TrainingError: the others do not answer.
    """

    training: ClassVar[ProcessGroup | None] = None
    """The processes of this run while all of them train; None at other times, such as in an
    evaluation, which the leader makes alone."""

    def __init__(self, rank: int, size: int) -> None:
        import torch
        import torch.distributed as distributed

        self.rank, self.size = rank, size
        self.exchanges = 0
        """Messages and sums exchanged so far; each also carries news of signals."""
        self.stopping = False
        """Whether a signal has reached any of the processes; the same in all of them."""
        self.received: list[int] = []
        """The signals that have reached this process."""
        self._room = 4096  # bytes that each message has
        backend = "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
            backend = "cpu:gloo,cuda:nccl"
        with _noticing_losses(size):
            if not distributed.is_initialized():
                distributed.init_process_group(backend, timeout=PATIENCE)
        self._torch, self._distributed = torch, distributed
        self.store: Any = distributed.distributed_c10d._get_default_store()
        atexit.register(self._close)  # its threads must not outlive the interpreter

    @property
    def is_leader(self) -> bool:
        """Whether this is the process that evaluates, calls the callbacks and writes."""
        return self.rank == 0

    @contextlib.contextmanager
    def train_together(self, training: bool = True) -> Iterator[None]:
        """Within the context, all processes train (or, with False, this one works alone)."""
        before, ProcessGroup.training = ProcessGroup.training, self if training else None
        try:
            yield
        finally:
            ProcessGroup.training = before

    def rows(self, count: int, group_size: int = 1) -> slice:
        """This process's rows of `count`, with groups of adjacent rows kept together; empty if
        there are more processes than groups."""
        return self.parts(count, group_size)[self.rank]

    def parts(self, count: int, group_size: int = 1) -> list[slice]:
        """The rows of every process, one after the other."""
        groups = count // group_size
        cuts = [group_size * (groups * rank // self.size) for rank in range(self.size)] + [count]
        return [slice(low, high) for low, high in itertools.pairwise(cuts)]

    def gather(self, message: object) -> list[Any]:
        """The messages of all processes, in their order.

        Raises:
            TrainingError: a process has ended.
        """
        torch = self._torch
        text = bytes(ForkingPickler.dumps(message))
        while True:
            mine = torch.zeros(HEAD + self._room, dtype=torch.uint8)
            head = len(text).to_bytes(8, "little") + bytes([bool(self.received)])
            shown = head + text[: self._room]
            mine[: len(shown)] = torch.frombuffer(bytearray(shown), dtype=torch.uint8)
            found = [torch.empty_like(mine) for _ in range(self.size)]
            with _noticing_losses(self.size):
                self._distributed.all_gather(found, mine)
            heads = [each[:HEAD].numpy().tobytes() for each in found]
            self._notice(any(each[8] for each in heads))
            lengths = [int.from_bytes(each[:8], "little") for each in heads]
            if max(lengths) <= self._room:
                break
            self._room = 1 << max(lengths).bit_length()
        return [
            ForkingPickler.loads(each[HEAD : HEAD + length].numpy().data)  # type: ignore[attr-defined]
            for each, length in zip(found, lengths, strict=True)
        ]

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replaces a tensor by its sum over all processes, the same bits in each of them.

        Raises:
            TrainingError: a process has ended.
        """
        with _noticing_losses(self.size):
            self._distributed.all_reduce(tensor)
        return tensor

    def sum_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        """The sum of a few numbers [M] over all processes, on the CPU."""
        told = self._torch.zeros(len(numbers) + 1, dtype=numbers.dtype)
        told[:-1], told[-1] = numbers, float(bool(self.received))
        self.sum_(told)
        self._notice(bool(told[-1] > 0))
        return told[:-1]

    def gather_rows(self, rows: torch.Tensor, count: int) -> torch.Tensor:
        """This process's rows [n, ...] of `rows(count)` and those of the others: [count, ...]."""
        parts, kind = self.parts(count), rows.dtype
        sent = rows.to(self._torch.uint8) if kind is self._torch.bool else rows
        mine = sent.new_zeros(max(part.stop - part.start for part in parts), *rows.shape[1:])
        mine[: len(rows)] = sent
        found = [self._torch.empty_like(mine) for _ in parts]
        with _noticing_losses(self.size):
            self._distributed.all_gather(found, mine)
        whole = [each[: part.stop - part.start] for each, part in zip(found, parts, strict=True)]
        return self._torch.cat(whole).to(kind)

    def run_on_leader(self, function: Callable[[], T]) -> T:
        """The result of a function that the leader runs alone, or the exception that it raises
        there.

        Raises:
            TrainingError: a process has ended.
            Exception: what the function raised.
        """
        answer: tuple[str, Any] = ("none", None)
        raised: BaseException | None = None
        if self.is_leader:
            try:
                with self.train_together(False):
                    answer = ("done", function())
            except (Exception, KeyboardInterrupt) as error:
                raised, answer = error, _describe(error)
        kind, what = self.gather(answer)[0]
        if raised is not None:
            raise raised
        if kind != "done":
            raise _rebuild(kind, what)
        return what

    def exchange_signals(self) -> None:
        """Tells the others whether a signal has reached this process."""
        self.gather(None)

    def _close(self) -> None:
        self.store = None
        with contextlib.suppress(Exception):  # the others may be gone
            self._distributed.destroy_process_group()

    def _notice(self, stopping: bool) -> None:
        self.exchanges += 1
        self.stopping = self.stopping or stopping


@contextlib.contextmanager
def _noticing_losses(size: int) -> Iterator[None]:
    """Within the context, an error of torch.distributed is reported as the end of another
    process."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, TrainingError):
            raise
        raise TrainingError(LOST.format(size=size)) from error


def _describe(error: BaseException) -> tuple[str, int | str]:
    """An exception as a message."""
    if isinstance(error, KeyboardInterrupt):
        return "signal", int(getattr(error, "signum", signal.SIGINT))
    if isinstance(error, RequestError | TrainingError):
        return type(error).__name__, str(error)
    return "Exception", f"{type(error).__name__}: {error}"


def _rebuild(kind: str, what: int | str) -> BaseException:
    """The inverse of `_describe`, in a process that follows."""
    if isinstance(what, int):
        stop = KeyboardInterrupt(signal.Signals(what).name)
        stop.signum = what  # type: ignore[attr-defined]
        return stop
    return RequestError(what) if kind == "RequestError" else TrainingError(what)
