"""Starts, resumes or repeats runs on other hosts, without a connection to keep; once, even if an answer is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from kgops.errors import Unavailable, Usage, WontFit
from kgops.hosts import started
from kgops.hosts.ask import ask, bounded_json
from kgops.hosts.registry import Host
from kgops.hosts.run_actions import STATES, number_in, refused
from kgops.hosts.started import Start, Wanted
from kgops.jobs.job import Job
from kgops.settings import Home
from storage.runs import ENDED

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
    with started.starting(home, host, wanted) as (start, lost_at):
        # A start that the host never heard of is not lost: this is its first.
        known = {} if lost_at is None else _runs_started(home, host, [start.token])
        is_known = lost_at is not None and (known is None or start.token in known)
        command, *others = words
        (answer,) = ask(home, [host], (command, f"--token={start.token}", *others), _STARTING_S, said=said)
        if answer.problem is not None:
            if answer.code in _REFUSED:
                started.forget(home, start)
            elif answer.is_of_kgops:  # it ended there: the host knows whether it started a run
                _take_over(home, _runs_started(home, host, [start.token]), [start])
            raise refused(answer)
        number = number_in(answer)
        try:
            started.complete(home, {start.token: number})
        except Unavailable as error:  # it runs all the same
            note(error.message)
    if is_known:
        lost = time.strftime("%H:%M", time.localtime(lost_at))
        now = _state_there(home, host, number)
        state = f"; it is {now} now" if now is not None else ""
        more = "; repeat the command to start once more" if now in ENDED else ""
        note(
            f"the connection broke at {lost}, before {host.name} answered; this is the run of that start{state}{more}"
        )
    return number


def _state_there(home: Home, host: Host, number: int) -> str | None:
    (answer,) = ask(home, [host], ("show", "--json", "--", str(number)))
    run = bounded_json(answer.out)
    state = run.get("state") if isinstance(run, dict) else None
    return state if isinstance(state, str) and state in STATES else None


def find_lost(home: Home, hosts: Sequence[Host]) -> None:
    """Asks those hosts for the runs whose numbers never came, and forgets starts that came to nothing."""
    lost: dict[str, list[Start]] = {}
    for start in started.newest(home):
        if start.run is None:
            lost.setdefault(start.host, []).append(start)
    # What was asked for just now may still be on its way, and start.
    settled = time.time() - 2 * _STARTING_S
    for host in hosts:
        starts = lost.get(host.name, [])[:_MOST_LOST]
        if starts:
            found = _runs_started(home, host, [start.token for start in starts])
            _take_over(home, found, [start for start in starts if start.at < settled])


def _runs_started(home: Home, host: Host, tokens: Sequence[str]) -> dict[str, int] | None:
    """The runs there by token; None where the host does not say."""
    (answer,) = ask(home, [host], ("hosts", "started", *tokens))
    found = bounded_json(answer.out) if answer.problem is None else None
    if not isinstance(found, dict):
        return None
    return {token: number for token in tokens if _is_number(number := found.get(token))}


def _take_over(home: Home, found: Mapping[str, int] | None, ended: Sequence[Start]) -> None:
    """`ended`: starts that came to nothing unless they are among `found`."""
    if found is None:
        return
    started.complete(home, found)
    for start in ended:
        if start.token not in found:
            started.forget(home, start)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62


def plan_there(home: Home, host: Host, job: Job, flags: Sequence[str]) -> bytes:
    """What `kgops run --dry-run` prints there."""
    words = ("run", "-", "--dry-run", *flags)
    (answer,) = ask(home, [host], words, _STARTING_S, said=job.as_toml().encode())
    if answer.problem is not None:
        raise refused(answer)
    return answer.out
