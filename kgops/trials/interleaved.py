"""Ways take their turns in children of one process that has loaded everything once, part by part, one at a time.

All of a turn's children live at once, and one of them works: from one part to the next some hundredths of a second
pass, in which a machine that others use, too, changes little. What loading libraries takes is in none of it.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from kgops.jobs.trials import write_trials
from kgops.trials.variants import Turn, Untestable, Way, weigh

__all__ = ["take_turns"]

Told = list[dict[str, Any]]  # of the parts of a turn


def take_turns(ways: Mapping[str, Way], number: int, *, turns: int = 1, parts: int = 1) -> None:
    """Takes every way so many times and writes down what each part of each turn told; what cannot be done is tried
    once. In another order each time, drawn by the number: who goes before leaves a cache as it likes it. On one core:
    of two one may be slower for minutes, for what others do there, and a process goes back to where it was before."""
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    # Else each child loads it, with its optimizer or to be weighed, which takes longer than all of its parts.
    importlib.import_module("torch._dynamo")
    found: dict[str, Told] = {name: [] for name in ways}
    for turn in range(turns):
        left = {name: ways[name] for name, told in found.items() if not (told and told[-1]["trouble"])}
        for name, told in _turn(left, parts, random.Random(number + turn)).items():
            found[name] += told
            print(f"{name}: {_said(told)}", flush=True)
    folder = os.environ.get("KGOPS_RUN_FOLDER")
    if folder:
        write_trials(Path(folder) / "results", found)
    else:
        print(json.dumps(found, indent=1))


def _turn(ways: Mapping[str, Way], parts: int, draw: random.Random) -> dict[str, Told]:
    children: dict[str, _Child] = {}
    for name, way in ways.items():
        children[name] = _Child(way, parts, list(children.values()))
    told: dict[str, Told] = {}
    while len(told) < len(children):
        waiting = [name for name in children if name not in told]
        draw.shuffle(waiting)
        for name in waiting:
            answer = children[name].go_on()
            if answer is not None:
                told[name] = answer
    return told


class _Child:
    """A process that takes a way, a step each time it is told to go on: it makes ready, does a part, tells."""

    def __init__(self, way: Way, parts: int, others: list[_Child]) -> None:
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(from_parent)
            os.close(to_parent)
            for other in others:  # else each would keep the other waiting for a parent that is gone
                other.close()
            _be_a_child(way, parts, to_child, from_child)
        os.close(to_child)
        os.close(from_child)
        self._asking = os.fdopen(from_parent, "w", buffering=1)
        self._hearing = os.fdopen(to_parent)

    def go_on(self) -> Told | None:
        """None as long as there is more to do."""
        try:
            self._asking.write("\n")
        except BrokenPipeError:
            pass  # it has ended: what it said last, if anything, is still to be read
        line = self._hearing.readline()
        if line == "\n":
            return None
        self._hearing.close()
        _, status = os.waitpid(self._pid, 0)
        if not line or status:
            return _trouble(f"its process ended with {os.waitstatus_to_exitcode(status)}")
        told: Told = json.loads(line)
        return told

    def close(self) -> None:
        os.close(self._asking.fileno())
        os.close(self._hearing.fileno())


def _be_a_child(way: Way, parts: int, hearing: int, saying: int) -> None:
    """Never returns: nothing of the parent's is to be finished twice."""

    def wait() -> None:
        if not os.read(hearing, 1):
            os._exit(1)  # the parent is gone

    def pause() -> None:
        os.write(saying, b"\n")
        wait()

    wait()
    text = json.dumps(_told(way, Turn(parts, pause))) + "\n"
    with os.fdopen(saying, "w") as pipe:
        pipe.write(text)
    os._exit(0)


def _told(way: Way, turn: Turn) -> Told:
    try:
        done = way(turn)
        return done.as_tables(weigh(way, turn.parts))
    except Untestable as reason:
        return _trouble(str(reason))
    except Exception as error:  # of whatever library: the other ways are not to be lost with it
        traceback.print_exc()
        sys.stderr.flush()
        first = str(error).splitlines()[0] if str(error) else ""
        return _trouble(f"it failed: {type(error).__name__}: {first}")


def _trouble(why: str) -> Told:
    nothing: dict[str, Any] = {"seconds": None, "memory_mib": None, "metrics": {}, "options": {}}
    return [{"state": "failed", "trouble": why, **nothing}]


def _said(told: Told) -> str:
    first = told[0]
    if first["trouble"]:
        return str(first["trouble"])
    seconds = median(one["seconds"] for one in told)
    return f"{seconds:.4g} s, {first['memory_mib'] or 0:.1f} MiB"
