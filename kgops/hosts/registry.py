"""The hosts a person named, in `hosts.toml` of the home: name, address, path of kgops there, group."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import Usage
from kgops.jobs import toml
from kgops.jobs.files import read_named, write_durably
from kgops.jobs.option_reading import nearest
from kgops.settings import Home, make_home
from kgops.supervisor import locks

ALL = "all"
_RESERVED = frozenset({ALL, "here"})
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# What ssh takes for a target, and no character that its configuration (ProxyCommand %h) could hand to a shell.
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?[A-Za-z0-9_\[:][A-Za-z0-9._:\[\]-]{0,253}")
_LARGEST, _MOST_HOSTS, _LONGEST_PATH = 1 << 18, 256, 1024


class Host(NamedTuple):
    name: str
    address: str  # user@host, or an alias of ~/.ssh/config
    kgops: str = "kgops"  # the command there
    group: str | None = None


def read(home: Home) -> dict[str, Host]:
    """The named hosts in their order; Usage with every problem if the file is not valid."""
    return _hosts(home, _tables(home))


def _tables(home: Home) -> dict[str, Any]:
    """What the file has under each name, valid or not."""
    path = _path(home)
    if not path.exists():
        return {}
    text = read_named(path, "list of hosts", _LARGEST)
    try:
        return toml.loads(text)
    except ValueError as error:
        raise Usage(f"{path} is not valid TOML: {error}", "correct it, or remove it") from error


def _hosts(home: Home, tables: dict[str, Any]) -> dict[str, Host]:
    problems: list[str] = []
    hosts = {name: host for name, table in tables.items() if (host := _host(name, table, problems))}
    if len(tables) > _MOST_HOSTS:
        problems.append(f"{len(tables):,} hosts, and at most {_MOST_HOSTS} are read")
    if problems:
        raise Usage(f"{_path(home)}: {'; '.join(problems[:8])}", "correct it, or `kgops hosts remove NAME`")
    return hosts


def add(home: Home, host: Host) -> bool:
    """Adds the host, or replaces the one of its name; True if there was none."""
    if problem := _problem(host):
        raise Usage(problem, "kgops hosts add lab1 user@host --kgops /path/to/kgops --group lab")
    make_home(home)
    with _changing(home):
        tables = _tables(home)
        is_new = host.name not in tables
        # A table that is not valid may be the one to replace.
        hosts = _hosts(home, {**tables, host.name: _table(host)})
        _write(home, {name: _table(one) for name, one in hosts.items()})
    return is_new


def remove(home: Home, names: Sequence[str]) -> None:
    make_home(home)
    with _changing(home):
        tables = _tables(home)  # not `read`: one that is not valid can be removed, others stay as they are
        for name in names:
            if name not in tables:
                raise Usage(
                    f"there is no host {name!r:.60}{nearest(name, tables)}", "`kgops hosts` lists them"
                )
        _write(home, {name: table for name, table in tables.items() if name not in names})


def pick(hosts: dict[str, Host], words: str) -> list[Host]:
    """The hosts that `all`, or names and groups with commas between them, mean; each once."""
    if not hosts:
        raise Usage("no host is named yet", "kgops hosts add lab1 user@host")
    picked: dict[str, Host] = {}
    for word in words.split(","):
        if word == ALL:
            found = list(hosts.values())
        elif word in hosts:
            found = [hosts[word]]
        else:
            found = [host for host in hosts.values() if host.group == word and word]
        if not found:
            known = dict.fromkeys((*hosts, *groups_of(hosts), ALL))
            raise Usage(
                f"{word!r:.60} is no host and no group{nearest(word, known)}", "`kgops hosts` lists them"
            )
        picked |= {host.name: host for host in found}
    return list(picked.values())


def groups_of(hosts: dict[str, Host]) -> list[str]:
    """Names that mean all hosts of a group. A host's own name means that host."""
    return sorted({host.group for host in hosts.values() if host.group and host.group not in hosts})


def _host(name: str, table: Any, problems: list[str]) -> Host | None:
    if not isinstance(table, dict):
        problems.append(f"{name!r:.60} is not a table")
        return None
    unknown = sorted(set(table) - {"address", "kgops", "group"})
    values = {key: table[key] for key in ("address", "kgops", "group") if key in table}
    if unknown or not all(isinstance(value, str) for value in values.values()):
        problems.append(f"{name!r:.60} takes the texts address, kgops and group, and nothing else")
        return None
    host = Host(name, values.pop("address", name), **values)
    if problem := _problem(host):
        problems.append(problem)
        return None
    return host


def _problem(host: Host) -> str | None:
    for what, name in (("name of a host", host.name), ("name of a group", host.group)):
        if name is not None and (not _NAME.fullmatch(name) or name in _RESERVED):
            return (
                f"{name!r:.60} is not the {what}: small letters, digits, dots and hyphens, not {_reserved()}"
            )
    if not _ADDRESS.fullmatch(host.address):
        return f"{host.address!r:.60} is not an address: user@host, or an alias of ~/.ssh/config"
    if not 0 < len(host.kgops) <= _LONGEST_PATH or not host.kgops.isprintable() or host.kgops[0] == "-":
        return f"{host.kgops!r:.60} is not a path of kgops"
    return None


def _reserved() -> str:
    return ", ".join(sorted(_RESERVED))


def _path(home: Home) -> Path:
    return home.path / "hosts.toml"


def _table(host: Host) -> dict[str, str]:
    given = {
        "address": host.address,
        "kgops": host.kgops if host.kgops != "kgops" else None,
        "group": host.group,
    }
    return {key: value for key, value in given.items() if value is not None}


def _write(home: Home, tables: dict[str, Any]) -> None:
    try:
        text = toml.dumps(tables)
    except TypeError as error:  # a date, in a table that is not valid
        raise Usage(f"{_path(home)}: {error}", "correct it") from error
    write_durably(_path(home), text.encode())


@contextmanager
def _changing(home: Home) -> Iterator[None]:
    """One command at a time reads, changes and writes the list."""
    lock = locks.take(home.path / "hosts.lock", patience_s=10.0)
    if lock is None:
        raise Usage("another command is changing the list of hosts", "try again")
    try:
        yield
    finally:
        os.close(lock)
