"""Runs a worker: reads its job, handles SIGTERM, reports failures, sets the exit code.

A task may have two processes, for example after its node seemed lost. Only the later one publishes. The starter writes
a mark to a file and passes path and mark to the process. A process that finds another mark there exits.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kgops.errors import KgopsError
from kgops.jobs.files import read_table
from kgops.jobs.job import Job
from kgops.jobs.option_reading import SEGMENTS, nearest
from kgops.maths.worker.out_of_memory import (
    describe,
    host_memory_mib,
    host_peak_mib,
    is_at_its_limit,
    is_out_of_memory,
    limit_memory,
)
from kgops.maths.worker.report import Reporter
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.job_files import read_job_file

_EVERY_S = 1.0
_checked = 0.0


class Fenced(Exception):
    """Another process does this work now."""


def is_on_another_machine() -> bool:
    """Whether a cluster started this process, not its supervisor."""
    return "KGOPS_FENCE" in os.environ


def check_fence() -> None:
    """Raises Fenced if this process has a successor; call it right before publishing."""
    fence = os.environ.get("KGOPS_FENCE")
    if fence is None:
        return
    path, _, mark = fence.rpartition(":")
    try:
        now = Path(path).read_text()
    except OSError:  # a file system outage does not mean a successor
        return
    if now != mark:
        raise Fenced(f"{mark} was succeeded by {now}")


def check_fence_if_due() -> None:
    """`check_fence`, at most once a second, for loops: reading the file is slow on network file systems."""
    global _checked
    now = time.monotonic()
    if now - _checked > _EVERY_S:
        _checked = now
        check_fence()


class Stopped(Exception):
    """The worker was asked to stop and has saved its state for a resume."""


def is_forced() -> bool:
    """Whether a person started the run with --force."""
    return os.environ.get("KGOPS_FORCE") == "1"


class StopRequest:
    """Set by SIGTERM; loops check it where they can stop."""

    def __init__(self) -> None:
        self._requested = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def __call__(self) -> bool:
        check_fence_if_due()
        return self._requested


def run_worker(work: Callable[[Job, Path, Reporter, StopRequest], None]) -> NoReturn:
    """Calls `work` with the job named on the command line; reports how it ended and exits accordingly.

    `--start` instead of a job prints the memory of the process, in MiB: the console plans with it.
    """
    if sys.argv[1:2] == ["--start"]:
        _print_start()
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kgops.maths.NAME.worker job.toml")
    gc.freeze()  # what was imported stays
    gc.enable()
    job_file = Path(sys.argv[1])
    folder = Path(os.environ.get("KGOPS_RUN_FOLDER", "."))
    reporter = Reporter(folder)
    reporter.libraries_mib = host_memory_mib()
    stop = StopRequest()

    def run_job() -> None:
        job = _with_settings(read_job_file(job_file), reporter)
        if job.limits.memory_mib is not None:
            limit_memory(job.limits.memory_mib)
        report_segments(folder, reporter)
        work(job, folder, reporter, stop)
        report_process_peak(reporter)
        if is_on_another_machine():  # no supervisor samples it there
            reporter.memory(host_peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    run_reporting_errors(reporter, run_job)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # everything is written, and torch's shutdown takes half a second


def _print_start() -> NoReturn:
    print(host_memory_mib(), flush=True)
    os._exit(0)


def report_segments(folder: Path, reporter: Reporter) -> None:
    """Reports whether the CUDA allocator's segments may grow, where a profile asks for it. It is a variable
    of this process, which torch reads once, and no option of the job. The plan has the request and why it was
    not applied."""
    try:
        planned = read_table(folder / "plan.json").get("choices")
    except OSError:
        return  # the plan is unknown
    if not isinstance(planned, list):
        return  # run by hand
    for choice in planned:
        if isinstance(choice, dict) and choice.get("option") == SEGMENTS:
            reporter.option(
                SEGMENTS,
                choice.get("requested"),
                choice.get("applied"),
                choice.get("reason"),
                choice.get("chosen_by"),
            )


def report_process_peak(reporter: Reporter) -> None:
    """The peak of only this process, from the kernel, so that no sample can miss it."""
    peak = host_peak_mib()
    if peak is not None:
        reporter.memory(process_peak=peak)


def run_reporting_errors(reporter: Reporter, work: Callable[[], None]) -> None:
    """Calls `work`; on failure reports how it ended and exits accordingly."""
    ran_out = None
    try:
        work()
    except Stopped:
        # End by the signal that asked for it: neither success nor failure.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    except Fenced as error:
        _end_for_successor(error)
    except Exception as error:
        try:
            check_fence()  # a successor also removes this process's files
        except Fenced as fenced:
            _end_for_successor(fenced)
        if is_out_of_memory(error):
            ran_out = describe(error)
        elif isinstance(error, KgopsError):
            _fail(error, reporter)
        elif is_at_its_limit():  # a library that reports it in another way
            ran_out = describe(error)
        else:
            # Nobody foresaw it: the log has where it came from, the reason what it said first.
            reporter.failed(
                f"{type(error).__name__}: {(str(error).strip() or 'without a word').splitlines()[0]}"
            )
            raise
    if ran_out is not None:
        # Only here: inside the except block the traceback keeps every tensor alive, and reporting takes memory.
        reporter.out_of_memory(ran_out)
        print(f"Out of memory: {ran_out}", file=sys.stderr)
        sys.exit(1)


def _end_for_successor(fenced: Fenced) -> NoReturn:
    print(f"Ended: {fenced}.", file=sys.stderr)
    sys.exit(os.EX_TEMPFAIL)


def _fail(error: KgopsError, reporter: Reporter) -> NoReturn:
    reporter.failed(error.message + (f" Hint: {error.hint}" if error.hint else ""))
    print(
        f"Error: {error.message}",
        *([f"Hint: {error.hint}"] if error.hint else []),
        sep="\n",
        file=sys.stderr,
    )
    sys.exit(error.exit_code)


def _with_settings(job: Job, reporter: Reporter) -> Job:
    """The job with the OOM fallbacks' changes for this attempt."""
    changed = json.loads(os.environ.get("KGOPS_SETTINGS", "{}"))
    unknown = [name for name in changed if name not in OPTIONS]
    if unknown:
        raise KgopsError(
            f"an OOM fallback changes {unknown[0]!r}, which is no option{nearest(unknown[0], OPTIONS)}"
        )
    reporter.requested_options = job.options
    reporter.requested_before_fallbacks = {name: job.options.get(name, "auto") for name in changed}
    return replace(job, options={**job.options, **changed})
