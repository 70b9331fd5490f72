"""Several ways to do the same work, taking turns in children of one process that has loaded everything once.

Each way has a process of its own, so that its peak of memory is its own; what loading libraries takes is in none. All
of them are made ready first and then wait: whose turn it is works, and nobody else. So a turn costs no more than the
work itself, and many can be taken of each way.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

__all__ = [
    "LIVE",
    "WAYS",
    "Done",
    "Times",
    "Untestable",
    "measured",
    "needs_a_card",
    "seconds_of",
    "take_turns",
]

WAYS = "ways.json"  # among the results of a command that takes all ways in turn
SECONDS_OF = "processor time of one thread, loading left out"
MEMORY_OF = "resident set at its peak, above that of the loaded model and data"
LIVE = "live bytes of torch's CPU allocator at their peak, above weights, gradients and optimizer"

_READY, _DONE, _GO = "ready\n", "done\n", b"g"

T = TypeVar("T")
Times = tuple[float, ...]  # seconds, of each turn


class Untestable(Exception):
    """Why this way cannot be taken here."""


def needs_a_card(what: str) -> Done:
    """`what` is a card's, and these ways are taken on the processor, whatever else there is."""
    import torch

    here = "this benchmark runs on the processor yet" if torch.cuda.is_available() else "no CUDA device"
    raise Untestable(f"{here}: {what}")


@dataclass(frozen=True)
class Done:
    """`mib` is the peak above the start; `figures` say how good the result is; `remark` what must be known with it."""

    seconds: Times
    mib: float | None
    figures: dict[str, float] = field(default_factory=dict)
    remark: str | None = None
    memory_of: str = MEMORY_OF

    def as_table(self) -> dict[str, Any]:
        told: dict[str, Any] = {"state": "succeeded", "trouble": None, "remark": self.remark}
        told |= {"seconds": self.seconds, "seconds_of": SECONDS_OF}
        told |= {"memory_mib": self.mib, "memory_of": self.memory_of}
        return told | {"figures": self.figures, "levers": {}}


def measured(
    work: Callable[[], T],
    warm_up: Callable[[], object] | None = None,
    *,
    sweeps: bool = False,
    parts: float = 1,
) -> tuple[Times, float | None, T]:
    """Processor seconds of a `parts`th of `work` at each turn, and the peak above now of what goes before and the first
    of them, in MiB.

    Not the clock's: what else this machine does makes a single thread wait, and no more work. What `sweeps` reads
    every object there is: once before, since that brings pages into a fork which are no memory of its own.
    """
    if sweeps:
        gc.collect()
    start = _reset_peak()
    if warm_up is not None:
        warm_up()
    seconds: list[float] = []
    peak: float | None = None
    for _ in _turns():
        took, result = seconds_of(work)
        seconds.append(took / parts)
        peak = _status("VmHWM") if peak is None else peak
    return tuple(seconds), None if start is None or peak is None else peak - start, result


def seconds_of(work: Callable[[], T]) -> tuple[float, T]:
    """Of the processor, once, whoever's turn it is."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def take_turns(ways: Mapping[str, Callable[[], Done]], begin_with: int, *, turns: int = 2) -> None:
    """Takes every way so many times, beginning with another at each turn, and writes down what they say."""
    names = _rotated(list(ways), begin_with)
    children = {name: _Child.start(ways[name], turns) for name in names}
    for turn in range(turns):
        for name in _rotated(names, turn):
            children[name].take_its_turn()
    found = {name: child.end() for name, child in children.items()}
    for name, told in found.items():
        seconds = told["seconds"] and min(told["seconds"])
        print(f"{name}: " + (told["trouble"] or f"{seconds:.4g} s, {told['memory_mib'] or 0:.1f} MiB"))
    text = json.dumps(found, indent=1)
    folder = os.environ.get("KGOPS_RUN_FOLDER")
    if folder:
        (Path(folder) / "results" / WAYS).write_text(text)
    else:
        print(text)


def _rotated(names: list[str], by: int) -> list[str]:
    shift = by % len(names)
    return names[shift:] + names[:shift]


class _Child:
    """A way in a process of its own, as its parent sees it: ready once started, at work in its turns alone."""

    def __init__(self, number: int, hear: IO[str], say: int) -> None:
        self.number, self._hear, self._say = number, hear, say
        self._last = hear.readline()  # ready, or all there is to say already

    @classmethod
    def start(cls, way: Callable[[], Done], turns: int) -> _Child:
        hearing, telling = os.pipe()
        waiting, starting = os.pipe()
        sys.stdout.flush()
        number = os.fork()
        if number == 0:
            os.close(hearing)
            os.close(starting)  # else it would not learn that its parent is gone
            with os.fdopen(telling, "w") as tell:
                global _parent
                _parent = _Parent(tell, waiting, turns)
                tell.write(json.dumps(_told(way)))
            os._exit(0)  # nothing of the parent's is to be finished twice
        os.close(telling)
        os.close(waiting)
        return cls(number, os.fdopen(hearing), starting)

    def take_its_turn(self) -> None:
        if self._last in (_READY, _DONE):
            try:
                os.write(self._say, _GO)
            except BrokenPipeError:  # it died while it waited: what is read then is nothing
                pass
            self._last = self._hear.readline()

    def end(self) -> dict[str, Any]:
        text = self._hear.read() if self._last in (_READY, _DONE) else self._last
        self._hear.close()
        os.close(self._say)
        _, status = os.waitpid(self.number, 0)
        if not text or status:
            return _trouble(f"its process ended with {os.waitstatus_to_exitcode(status)}")
        told: dict[str, Any] = json.loads(text)
        return told


@dataclass(frozen=True)
class _Parent:
    """What a child has of it."""

    tell: IO[str]
    waiting: int
    turns: int


_parent: _Parent | None = None  # of a child alone; without one there is a single turn


def _turns() -> Iterator[None]:
    """Comes back whenever it is this way's turn."""
    parent = _parent
    if parent is None:
        yield
        return
    for number in range(parent.turns):
        parent.tell.write(_DONE if number else _READY)
        parent.tell.flush()
        if os.read(parent.waiting, 1) != _GO:
            os._exit(1)  # whoever it worked for is gone
        yield
    parent.tell.write(_DONE)
    parent.tell.flush()


def _told(way: Callable[[], Done]) -> dict[str, Any]:
    try:
        return way().as_table()
    except Untestable as reason:
        return _trouble(str(reason))
    except Exception as error:  # of whatever library: the other ways are not to be lost with it
        traceback.print_exc()
        sys.stderr.flush()
        return _trouble(
            f"it failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )


def _trouble(why: str) -> dict[str, Any]:
    return {
        "state": "failed",
        "trouble": why,
        "figures": {},
        "levers": {},
        "seconds": None,
        "memory_mib": None,
    }


def _reset_peak() -> float | None:
    """MiB resident now, where the kernel lets the peak begin anew; the peak of a fork's parent says nothing."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        now = _status("VmRSS")
        return (
            now
            if now is not None and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 <= now
            else None
        )
    return _status("VmRSS")


def _status(name: str) -> float | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return None
