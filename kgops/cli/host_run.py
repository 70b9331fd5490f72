"""`kgops show`, `logs` and `report` of a run of another host, as in lab2:17, with its output cleaned."""

from __future__ import annotations

import json
import selectors
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import print_json, say_lines, say_result, tell
from kgops.errors import Unavailable, Usage
from kgops.hosts import registry
from kgops.hosts.ask import Answer, ask
from kgops.hosts.connection import Connection, Limits, meaning_of
from kgops.hosts.mirror import LogCopy, RunMirror
from kgops.hosts.run_actions import placed, plan_there, refused, start_there
from kgops.hosts.watch import first_pictures
from kgops.jobs.job import Job
from kgops.jobs.text import from_bytes, one_line
from kgops.present import report_page
from kgops.present.log_lines import newest_lines
from kgops.settings import find_home
from kgops.workloads.job_files import with_absolute_paths

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
                    lines, goes_on = connection.lines()
                    out.writelines(one_line(from_bytes(line)).encode() + b"\n" for line in lines)
                out.flush()
                if not goes_on:
                    connection.take_errors()
                    return


def report_there(name: str) -> tuple[str, str]:
    """The page, and the run's name."""
    home, host, number = placed(name)
    with tempfile.TemporaryDirectory(prefix="kgops-report-") as folder:
        log = Path(folder) / "worker.log"
        mirror = partial(RunMirror, LogCopy(log))
        (state,) = first_pictures(home, [host], asks=(f"--run={number}",), mirror=mirror)
        if state.detail is None:
            raise Unavailable(f"{host.name}: {state.problem or 'no answer'}", state.hint)
        # Results lie there; a path of that machine is read on none but it.
        detail = replace(state.detail, path=Path(folder))
        lines = newest_lines(log, _LOG_LINES)
        called = f"{host.name}:{detail.run.id}"
        try:
            return report_page.page(detail, lines, name=called), called
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
