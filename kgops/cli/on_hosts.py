"""What commands show of several hosts, and of a run of another host, as in lab2:17, with its output cleaned."""

from __future__ import annotations

import json
import selectors
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import print_json, say, say_lines, say_result, tell
from kgops.errors import Unavailable, Usage
from kgops.hosts import registry
from kgops.hosts.ask import Answer, ask, bounded_json
from kgops.hosts.connection import Connection, Limits, meaning_of
from kgops.hosts.mirror import HostState
from kgops.hosts.protocol import Row, accepted
from kgops.hosts.rows import gpu_of, run_of, sorted_gpus
from kgops.hosts.run_actions import placed, plan_there, refused, start_there
from kgops.hosts.run_mirror import LogCopy, RunMirror
from kgops.hosts.watch import first_pictures
from kgops.jobs.job import Job
from kgops.jobs.text import from_bytes, one_line
from kgops.present.columns import PRINTED, lines
from kgops.present.formats import table, whole
from kgops.present.gpu_cells import GpuRow, load, short_name, users_in_full
from kgops.present.log_lines import newest_lines
from kgops.settings import find_home
from kgops.workloads.job_files import with_absolute_paths

_GPU_HEADS = ("HOST", "GPU", "NAME", "USED", "TOTAL", "UTIL", "TEMP", "USERS")


def show_gpus(words: str, as_json: bool) -> int:
    """Returns the exit code: 1 if a host does not answer."""
    home = find_home()
    states = first_pictures(home, registry.pick(registry.read(home), words))
    if as_json:
        print_json([_gpus_table(state) for state in states])
    else:
        rows = [
            (state.name, *_gpu_cells(gpu_of(key, row, state.rows("process"))))
            for state in states
            for key, row in sorted_gpus(state)
        ]
        if rows:
            say_lines(table(_GPU_HEADS, rows, right=frozenset({"USED", "TOTAL", "UTIL", "TEMP"})))
        for state in states:
            _say_trouble(state)
    return 0 if all(state.has_picture for state in states) else 1


def _gpu_cells(gpu: GpuRow) -> tuple[str, ...]:
    """Number, name, memory used and usable, utilization, temperature, users."""
    if gpu.problem is not None:
        return gpu.label, short_name(gpu.name), "", "", "", "", f"does not answer: {gpu.problem}"
    used = whole(gpu.used_mib), whole(gpu.usable_mib)
    util, heat, _ = load(gpu, with_units=True)
    return gpu.label, short_name(gpu.name), *used, util.text, heat.text, users_in_full(gpu)


def _gpus_table(state: HostState) -> dict[str, Any]:
    processes = state.rows("process").values()
    return {
        "host": state.name,
        "answers": state.has_picture,
        "kgops": state.version,
        "problem": state.problem or state.rows("host").get("host", {}).get("problem"),
        "gpu": [
            {"index": key, **row, "process": [one for one in processes if one.get("gpu") == key]}
            for key, row in sorted_gpus(state)
        ],
    }


def _say_trouble(state: HostState) -> None:
    if not state.has_picture:
        say(f"{state.name}: does not answer: {state.problem or 'no line came in time'}")
        if state.hint:
            tell(f"Hint for {state.name}: {state.hint}")
    elif problem := state.rows("host").get("host", {}).get("problem"):
        say(f"{state.name}: {problem}")
    elif not state.rows("gpu"):
        say(f"{state.name}: the driver finds no GPU")


def show_runs(words: str, flags: Sequence[str], as_json: bool) -> int:
    """`flags`: of `kgops runs`, which lists and filters on each host. Exit code 1 if a host has no list."""
    home = find_home()
    hosts = registry.pick(registry.read(home), words)
    answers = ask(home, hosts, ("runs", "--json", *flags))
    found = [_runs_of(answer) for answer in answers]
    if as_json:
        print_json(
            [
                {
                    "host": answer.host.name,
                    "answers": answer.is_of_kgops,
                    "problem": problem,
                    "run": [{"id": number, **row} for number, row in listed.items()],
                }
                for answer, (listed, problem) in zip(answers, found, strict=True)
            ]
        )
    else:
        runs = [run_of(number, row) for listed, _ in found for number, row in listed.items()]
        names = [answer.host.name for answer, (listed, _) in zip(answers, found, strict=True) for _ in listed]
        if runs:
            say_lines(lines(PRINTED, runs, time.time(), hosts=names))
        elif any(problem is None for _, problem in found):
            tell("No run matches.")
        for answer, (_, problem) in zip(answers, found, strict=True):
            if problem is not None:
                say(f"{answer.host.name}: {'' if answer.is_of_kgops else 'does not answer: '}{problem}")
                if answer.hint:
                    tell(f"Hint for {answer.host.name}: {answer.hint}")
    return 1 if any(problem for _, problem in found) else 0


def _runs_of(answer: Answer) -> tuple[dict[int, Row], str | None]:
    """The runs in an answer by number, in its order, or why there are none. Numbers belong to that host."""
    if answer.problem is not None:
        return {}, answer.problem
    listed = bounded_json(answer.out)
    if not isinstance(listed, list):
        return {}, "what it printed is not a list of runs"
    found: dict[int, Row] = {}
    for one in listed:
        key = str(one.get("id")) if isinstance(one, dict) and isinstance(one.get("id"), int) else None
        row = accepted("run", key, one)
        if row is not None and key is not None:
            found[int(key)] = row
    return found, None


_NO_LIMIT = 1 << 62
_LOG_LINES = 200


def show_there(name: str, *, as_json: bool) -> None:
    home, host, number = placed(name)
    (answer,) = ask(home, [host], ("show", *(["--json"] if as_json else []), "--", number))
    if answer.problem is not None:
        raise refused(answer)
    if not as_json:
        say_lines(one_line(line, 4_000) for line in from_bytes(answer.out).splitlines())
        return
    try:
        found = json.loads(answer.out)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable(
            f"{host.name}: what it printed is not a run", "install the same kgops on both machines"
        )
    print_json({"host": host.name, **found})


def logs_there(name: str, flags: Sequence[str], *, raw: bool) -> None:
    """Nothing is kept here, so that a log may have any length; a line has the limit of a connection."""
    home, host, number = placed(name)
    limits = Limits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
    connection = Connection(home, host, ("logs", *flags, "--", number), limits, keeps_stdin=True)
    has_ended = False
    try:
        _pass_on(connection, raw=raw)
        has_ended = True
    finally:
        code = connection.close(has_ended=has_ended)
    if code == 1 and not connection.errors:
        raise click.exceptions.Exit(1)  # no line matched
    if code != 0:
        problem, hint = meaning_of(code, connection.errors, host)
        raise refused(Answer(host, problem=problem, hint=hint, code=code))
    for line in connection.errors.splitlines():
        tell(one_line(line, 400))


def _pass_on(connection: Connection, *, raw: bool) -> None:
    """Until it closes its output."""
    out = sys.stdout.buffer
    with selectors.DefaultSelector() as selector:
        selector.register(connection.stdout, selectors.EVENT_READ)
        selector.register(connection.stderr, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == connection.stderr:
                    if not connection.take_errors():
                        selector.unregister(key.fd)
                    continue
                if raw:
                    new = connection.take_bytes()
                    goes_on = new != b""
                    out.write(new or b"")
                else:
                    taken, goes_on = connection.lines()
                    out.writelines(one_line(from_bytes(line)).encode() + b"\n" for line in taken)
                out.flush()
                if not goes_on:
                    connection.take_errors()
                    return


def report_there(name: str) -> tuple[str, str]:
    """The page, and the run's name."""
    from kgops.present import report_page  # a page and its pictures take long to import

    home, host, number = placed(name)
    with tempfile.TemporaryDirectory(prefix="kgops-report-") as folder:
        log = Path(folder) / "worker.log"
        mirror = partial(RunMirror, LogCopy(log))
        (state,) = first_pictures(home, [host], asks=(f"--run={number}",), mirror=mirror)
        if state.detail is None:
            raise Unavailable(f"{host.name}: {state.problem or 'no answer'}", state.hint)
        # Results lie there; a path of that machine is read on none but it.
        detail = replace(state.detail, path=Path(folder))
        last = newest_lines(log, _LOG_LINES)
        called = f"{host.name}:{detail.run.id}"
        try:
            return report_page.page(detail, last, name=called), called
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(
                f"{host.name}: what it says of the run cannot be drawn: {error!r:.100}"
            ) from error


def start_on_host(job: Job, name: str, given: dict[str, Any]) -> int:
    """Prints the run's name, as in `lab2:17`. Paths and runs that the job names are those of that host."""
    home = find_home()
    chosen = registry.pick(registry.read(home), name)
    if len(chosen) != 1:
        raise Usage(f"{name!r} names {len(chosen)} hosts", "a run starts on one: kgops run … --host NAME")
    (host,) = chosen
    job = with_absolute_paths(job, Path.cwd())
    flags = [*(["--force"] if given["force"] else []), *(f"--tag={tag}" for tag in given["tags"])]
    if given["dry_run"]:
        shown = plan_there(home, host, job, [*flags, *(["--json"] if given["as_json"] else [])])
        say_lines(one_line(line, 4_000) for line in shown.decode("utf-8", "replace").splitlines())
        return 0
    number = start_there(home, host, job, flags)
    say_result(
        given["as_json"],
        lambda: {"host": host.name, "id": number},
        lambda: [f"{host.name}:{number}"],
    )
    if not given["as_json"]:
        tell(
            f"It goes on there. `kgops runs --hosts {host.name}` lists it, `kgops pull {host.name}:{number}` brings it."
        )
    return 0
