"""Starts, resumes or repeats runs on other hosts, without a connection to keep; once, even if an answer is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeGuard

from kgops.errors import Unavailable, Usage, WontFit
from kgops.hosts import started
from kgops.hosts.ask import ask, bounded_json
from kgops.hosts.registry import Host
from kgops.hosts.run_actions import number_in, refused
from kgops.hosts.started import Wanted
from kgops.jobs.job import Job
from kgops.settings import Home

__all__ = ["again_there", "find_lost", "plan_there", "resume_there", "start_there"]

Note = Callable[[str], None]

_STARTING_S = 300.0
_REFUSED = (Usage.exit_code, WontFit.exit_code, 127)  # nothing was started
_MOST_LOST = 64


def start_there(
    home: Home, host: Host, job: Job, flags: Sequence[str], note: Note = lambda text: None
) -> int:
    """The number of the run there, which no longer needs this machine. `note` hears of a start whose answer was lost:
    it is not repeated."""
    wanted = Wanted(job.workload, job.label, [job.as_table(), *flags])
    return _once(home, host, wanted, ("run", "-", "--detach", *flags), note, job.as_toml().encode())


def resume_there(home: Home, host: Host, number: str, note: Note = lambda text: None) -> int:
    wanted = Wanted("n/a", f"run {number}, resumed", ["resume", number])
    return _once(home, host, wanted, ("resume", "--detach", "--", number), note)


def again_there(
    home: Home, host: Host, number: str, flags: Sequence[str] = (), note: Note = lambda text: None
) -> int:
    """The number of the new run there."""
    wanted = Wanted("n/a", f"run {number}, again", ["again", number, *flags])
    return _once(home, host, wanted, ("run", f"--again={number}", "--detach", *flags), note)


def _once(home: Home, host: Host, wanted: Wanted, words: Sequence[str], note: Note, said: bytes = b"") -> int:
    """Asks with a token that the run there keeps."""
    with started.starting(home, host, wanted) as (start, was_lost):
        command, *others = words
        (answer,) = ask(home, [host], (command, f"--token={start.token}", *others), _STARTING_S, said=said)
        if answer.code in _REFUSED:
            started.forget(home, start)
        if answer.problem is not None:
            raise refused(answer)
        number = number_in(answer)
        try:
            started.complete(home, {start.token: number})
        except Unavailable as error:  # it runs all the same
            note(error.message)
    if was_lost:
        lost = time.strftime("%H:%M", time.localtime(start.at))
        note(f"the connection broke at {lost}, before {host.name} answered; this is the run of that start")
    return number


def find_lost(home: Home, hosts: Sequence[Host]) -> None:
    """Asks those hosts for the runs whose numbers never came."""
    lost: dict[str, list[str]] = {}
    for start in started.newest(home):
        if start.run is None:
            lost.setdefault(start.host, []).append(start.token)
    for host in hosts:
        tokens = lost.get(host.name, [])[:_MOST_LOST]
        if not tokens:
            continue
        (answer,) = ask(home, [host], ("hosts", "started", *tokens), _STARTING_S)
        found = bounded_json(answer.out) if answer.problem is None else None
        numbers = {token: found.get(token) for token in tokens} if isinstance(found, dict) else {}
        started.complete(home, {token: one for token, one in numbers.items() if _is_number(one)})


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62


def plan_there(home: Home, host: Host, job: Job, flags: Sequence[str]) -> bytes:
    """What `kgops run --dry-run` prints there."""
    words = ("run", "-", "--dry-run", *flags)
    (answer,) = ask(home, [host], words, _STARTING_S, said=job.as_toml().encode())
    if answer.problem is not None:
        raise refused(answer)
    return answer.out
