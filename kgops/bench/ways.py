"""Several ways to do the same work, taking turns in children of one process that has loaded everything once.

Each way has a process of its own at each turn, so that its peak of memory is its own, and what a process happens to
find in memory is another's the next time; what loading libraries takes is in none.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kgops.bench.turns import write_turns

__all__ = ["LIVE", "Done", "Untestable", "measured", "needs_a_card", "take_turns"]

SECONDS_OF = "processor time of one thread, loading left out"
MEMORY_OF = "resident set at its peak, above that of the loaded model and data"
LIVE = "live bytes of torch's CPU allocator at their peak, above weights, gradients and optimizer"

T = TypeVar("T")


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

    seconds: float
    mib: float | None
    figures: dict[str, float] = field(default_factory=dict)
    remark: str | None = None
    memory_of: str = MEMORY_OF

    def as_table(self) -> dict[str, Any]:
        told: dict[str, Any] = {"state": "succeeded", "trouble": None, "remark": self.remark}
        told |= {"seconds": self.seconds, "seconds_of": SECONDS_OF, "took_s": self.seconds}
        told |= {"memory_mib": self.mib, "memory_of": self.memory_of}
        return told | {"figures": self.figures, "levers": {}}


def measured(
    work: Callable[[], T], warm_up: Callable[[], object] | None = None, *, sweeps: bool = False
) -> tuple[float, float | None, T]:
    """Processor seconds of `work`, and the peak above now of it and of what goes before, in MiB.

    Not the clock's: what else this machine does makes a single thread wait, and no more work. What `sweeps` reads
    every object there is: once before, since that brings pages into a fork which are no memory of its own.
    """
    if sweeps:
        gc.collect()
    start = _reset_peak()
    if warm_up is not None:
        warm_up()
    begun = time.process_time()
    result = work()
    seconds = time.process_time() - begun
    peak = _status("VmHWM")
    return seconds, None if start is None or peak is None else peak - start, result


def take_turns(ways: Mapping[str, Callable[[], Done]], number: int, *, turns: int = 1) -> None:
    """Takes every way so many times and writes down what each turn told; what cannot be done is tried once.

    In another order at each turn, drawn by its number: who goes before leaves a cache as it likes it.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for turn in range(turns):
        names = [name for name, told in found.items() if not (told and told[-1]["trouble"])]
        random.Random(number + turn).shuffle(names)
        for name in names:
            told = _in_a_child(ways[name])
            found[name].append(told)
            print(
                f"{name}: "
                + (told["trouble"] or f"{told['seconds']:.4g} s, {told['memory_mib'] or 0:.1f} MiB"),
                flush=True,
            )
    folder = os.environ.get("KGOPS_RUN_FOLDER")
    if folder:
        write_turns(Path(folder) / "results", found)
    else:
        print(json.dumps(found, indent=1))


def _in_a_child(way: Callable[[], Done]) -> dict[str, Any]:
    receiving, sending = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        with os.fdopen(sending, "w") as pipe:
            json.dump(_told(way), pipe)
        os._exit(0)  # nothing of the parent's is to be finished twice
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text or status:
        return _trouble(f"its process ended with {os.waitstatus_to_exitcode(status)}")
    told: dict[str, Any] = json.loads(text)
    return told


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
