"""Runs benchmark variants interleaved.

On a CPU each runs in a forked worker process, one repetition at a time. All workers of a trial live at once and one of
them runs. Repetitions follow each other within hundredths of a second, in which the load of a shared machine changes
little. Libraries are loaded before the fork and not timed. On a GPU, which no process can keep through a fork, variants
run one after another, in another order in each trial.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import sys
import traceback
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from statistics import median
from typing import Any

import torch

from kgops.maths.trials.variants import Trial, Untestable, Variant, live_memory_mib, on_gpu
from kgops.workloads.registry import write_trials

Records = list[dict[str, Any]]  # one for each repetition of a trial


def read_arguments(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """The program's arguments and the arguments of `run_trials`; computes on one thread from then on."""
    parser.add_argument("--trials", type=int, default=2, help="trials of each variant")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=4,
        help="repetitions in each trial; variants alternate at each repetition",
    )
    parser.add_argument("--round", type=int, default=0, help="seed of the order in which variants run")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # a process forked from one with threads would wait for them forever
    return args


def run_trials(variants: Mapping[str, Variant], seed: int, *, trials: int = 1, repetitions: int = 1) -> None:
    """Runs all variants `trials` times and writes a record for each repetition. A variant that fails is not repeated.

    The order is drawn anew each time from `seed`, since a variant finds the caches that its predecessor left. Without a
    GPU all run on one core. Another process may slow one of two cores for minutes, and a process tends to return to its
    core.
    """
    if not on_gpu():
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    # Otherwise each worker imports it, which takes longer than all of its repetitions.
    importlib.import_module("torch._dynamo")
    results: dict[str, Records] = {name: [] for name in variants}
    for trial in range(trials):
        remaining = {
            name: variants[name]
            for name, records in results.items()
            if not (records and records[-1]["trouble"])
        }
        for name, records in _run_trial(remaining, repetitions, random.Random(seed + trial)).items():
            results[name] += records
            print(f"{name}: {_summary(records)}", flush=True)
    folder = os.environ.get("KGOPS_RUN_FOLDER")
    if folder:
        write_trials(Path(folder) / "results", results)
    else:
        print(json.dumps(results, indent=1))


def _run_trial(variants: Mapping[str, Variant], repetitions: int, draw: random.Random) -> dict[str, Records]:
    if on_gpu():
        order = [*variants]
        draw.shuffle(order)
        return {name: _alone_on_gpu(variants[name], repetitions) for name in order}
    workers = {name: _Worker(variant, repetitions) for name, variant in variants.items()}
    records: dict[str, Records] = {}
    while len(records) < len(workers):
        waiting = [name for name in workers if name not in records]
        draw.shuffle(waiting)
        for name in waiting:
            result = workers[name].resume()
            if result is not None:
                records[name] = result
    return records


def _alone_on_gpu(variant: Variant, repetitions: int) -> Records:
    records = _records(variant, Trial(repetitions, lambda: None))
    torch._dynamo.reset()  # otherwise torch compiles no more after the eighth model of one class
    gc.collect()
    torch.cuda.empty_cache()
    return records


class _Worker:
    """A forked process that runs one variant, up to the next pause on each request."""

    def __init__(self, variant: Variant, repetitions: int) -> None:
        self._pipe, theirs = Pipe()
        self._process = ForkProcess(target=_run_worker, args=(variant, repetitions, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def resume(self) -> Records | None:
        """Runs the worker to its next pause; None unless it has finished."""
        records: Records | None = None
        try:
            self._pipe.send("resume")
            records = self._pipe.recv()
            if records is None:
                return None
        except (EOFError, OSError):
            pass  # it has ended without an answer
        self._process.join()
        if records is None or self._process.exitcode:
            return _failure(f"its process ended with {self._process.exitcode}")
        return records


def _run_worker(variant: Variant, repetitions: int, pipe: Connection[Any, Any]) -> None:
    def wait() -> None:
        try:
            pipe.recv()
        except EOFError:
            os._exit(1)  # the parent has ended

    def pause() -> None:
        pipe.send(None)
        wait()

    wait()
    pipe.send(_records(variant, Trial(repetitions, pause)))


def _records(variant: Variant, trial: Trial) -> Records:
    try:
        done = variant(trial)
        live = trial.gpu_mib
        return done.as_records(live_memory_mib(variant, trial.repetitions) if live is None else live)
    except Untestable as reason:
        return _failure(str(reason))
    except Exception as error:  # from any library; the other variants still have to run
        traceback.print_exc()
        sys.stderr.flush()
        first = str(error).splitlines()[0] if str(error) else ""
        return _failure(f"it failed: {type(error).__name__}: {first}")


def _failure(why: str) -> Records:
    nothing: dict[str, Any] = {"seconds": None, "memory_mib": None, "metrics": {}, "options": {}}
    return [{"state": "failed", "trouble": why, **nothing}]


def _summary(records: Records) -> str:
    first = records[0]
    if first["trouble"]:
        return str(first["trouble"])
    seconds = median(record["seconds"] for record in records)
    return f"{seconds:.4g} s, {first['memory_mib'] or 0:.1f} MiB"
