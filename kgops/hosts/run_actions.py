"""Starts, resumes, repeats and stops runs of another host, by the commands a person would type there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kgops.errors import Unavailable, Usage, WontFit
from kgops.hosts import registry
from kgops.hosts.ask import Answer, ask, bounded_json
from kgops.hosts.registry import Host
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.settings import Home, find_home
from storage.runs import STATES

_PATIENCE_S = 120.0
_STARTING_S = 300.0
_STOPPING_S = 3600.0  # a job may have named a long grace


class Stopped(NamedTuple):
    id: int
    state: str
    reason: str | None


def split_name(name: str, hosts: dict[str, Host]) -> tuple[Host, str]:
    """The host and the number in `lab2:17` or `lab2:last`."""
    host, colon, number = name.rpartition(":")
    if not colon or not (number == "last" or (number.isdecimal() and number.isascii() and len(number) <= 18)):
        raise Usage(f"{name!r:.60} is not HOST:RUN", "for instance lab2:17, or lab2:last")
    if host not in hosts:
        raise Usage(f"there is no host {host!r:.60}", "`kgops hosts` lists them")
    return hosts[host], number


def placed(name: str) -> tuple[Home, Host, str]:
    """As `split_name`, of the hosts that are named here."""
    home = find_home()
    return home, *split_name(name, registry.read(home))


def start_there(home: Home, host: Host, job: Job, flags: Sequence[str]) -> int:
    """The number of the run there, which no longer needs this machine. Whether a start happened whose answer is lost,
    the host knows: the error says how to look."""
    return _started(home, host, ("run", "-", "--detach", *flags), job.as_toml().encode())


def resume_there(home: Home, host: Host, number: str) -> int:
    return _started(home, host, ("resume", "--detach", "--", number))


def again_there(home: Home, host: Host, number: str, flags: Sequence[str] = ()) -> int:
    """The number of the new run there."""
    return _started(home, host, ("run", f"--again={number}", "--detach", *flags))


def plan_there(home: Home, host: Host, job: Job, flags: Sequence[str]) -> bytes:
    """What `kgops run --dry-run` prints there."""
    return _ask(home, host, ("run", "-", "--dry-run", *flags), _STARTING_S, job.as_toml().encode()).out


def _started(home: Home, host: Host, words: Sequence[str], said: bytes = b"") -> int:
    """The run's number that a command printed."""
    answer = _ask(home, host, words, _STARTING_S, said)
    number = answer.out.strip()
    if not number.isdigit() or len(number) > 18:
        shown = one_line(number[:60].decode("utf-8", "replace"))
        raise Unavailable(
            f"{host.name}: what it printed is not a run's number: {shown!r}", _LOOK.format(host)
        )
    return int(number)


def stop(
    home: Home, host: Host, numbers: Sequence[str], grace_s: float | None = None, *, waits: bool
) -> list[Stopped]:
    words = ["stop", "--json", *([] if waits else ["--no-wait"])]
    words += [] if grace_s is None else [f"--grace={grace_s!r}"]
    answer = _ask(home, host, [*words, "--", *numbers], _STOPPING_S if waits else _PATIENCE_S)
    listed = bounded_json(answer.out)
    found = [_stopped(one) for one in listed] if isinstance(listed, list) else []
    known = [one for one in found if one is not None]
    if len(known) != len(numbers):
        raise Unavailable(f"{host.name}: what it printed is not a list of runs", _LOOK.format(host))
    return known


def refused(answer: Answer) -> Unavailable | Usage | WontFit:
    """The error in an answer, of the kind that it was there."""
    kinds: dict[int, Any] = {Usage.exit_code: Usage, WontFit.exit_code: WontFit}
    # Without an exit code of kgops the connection broke, and nobody knows what happened there.
    hint = answer.hint if answer.code in (1, 2, 3, 127) else _LOOK.format(answer.host)
    error: Unavailable | Usage | WontFit = kinds.get(answer.code or 0, Unavailable)(
        f"{answer.host.name}: {answer.problem}", hint
    )
    return error


_LOOK = "`kgops runs --hosts {0.name}` shows what became of it"


def _ask(
    home: Home, host: Host, words: Sequence[str], patience_s: float = _PATIENCE_S, said: bytes = b""
) -> Answer:
    (answer,) = ask(home, [host], words, patience_s, said=said)
    if answer.problem is not None:
        raise refused(answer)
    return answer


def _stopped(one: Any) -> Stopped | None:
    if not isinstance(one, dict) or one.get("state") not in STATES or not isinstance(one.get("id"), int):
        return None
    reason = one.get("reason")
    return Stopped(one["id"], one["state"], one_line(reason, 300) if isinstance(reason, str) else None)
