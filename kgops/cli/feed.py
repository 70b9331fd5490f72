"""`kgops feed`: the content of a dashboard, as lines of JSON for another machine."""

from __future__ import annotations

import gc
import os
import select
import sys
import time

import click

from kgops import __version__
from kgops.errors import Usage
from kgops.hosts.picture import EVERY_S, PictureReader
from kgops.hosts.protocol import PROTOCOL, as_line, difference
from kgops.settings import find_home


@click.command(
    epilog="\b\nExample:  kgops feed --json < /dev/null\n          kgops feed --run last --json < /dev/null"
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, the only form there is.")
@click.option(
    "--alive",
    "alive_s",
    type=click.IntRange(1, 3600),
    default=10,
    show_default=True,
    help="Seconds after which a line says that nothing changed.",
)
@click.option("--run", "name", metavar="RUN", help="Only this run: its page, curves and log.")
def command(as_json: bool, alive_s: int, name: str | None) -> None:
    """Show GPUs, processes, runs and alerts of this machine as they change, read-only.

    A greeting, a whole picture, then what changed; `kgops hosts` of another machine reads it. Ends when its input
    ends, after the first picture at the soonest, or when nobody reads its output.
    """
    if not as_json:
        raise Usage("a feed is written for a console, as JSON", "kgops feed --json")
    if name is not None:
        _say_run(name, alive_s)
        return
    _say(_HELLO)
    with PictureReader(find_home()) as reader:
        shown = reader.read()
        _say({"type": "picture", **shown})
        gc.freeze()
        said_at = time.monotonic()
        while _goes_on():
            now = reader.read()
            change = difference(shown, now)
            if change is not None or time.monotonic() - said_at >= alive_s:
                _say(change or {"type": "alive"})
                shown, said_at = now, time.monotonic()


_HELLO: dict[str, object] = {
    "type": "hello",
    "protocol": PROTOCOL,
    "kgops": __version__,
}
_SETTLE_EVERY_S = 15.0


def _say_run(name: str, alive_s: int) -> None:
    from kgops.cli.session import (
        existing,
    )  # a feed of all runs opens the database itself, and settles nothing
    from kgops.hosts.run_picture import RunPictureReader
    from kgops.supervisor.pending import needs_settling

    session = existing()
    reader = RunPictureReader(session.home, session.conn, session.run(name).id)
    _say(_HELLO)
    said_at = settled_at = time.monotonic()
    while True:
        messages = reader.read()
        for message in messages:
            _say(message)
        now = time.monotonic()
        if not messages and now - said_at >= alive_s:
            _say({"type": "alive"})
        said_at = now if messages or now - said_at >= alive_s else said_at
        if not _goes_on():
            return
        if now - settled_at >= _SETTLE_EVERY_S:
            settled_at = now
            if needs_settling(session.home, session.conn):
                existing().conn.close()  # its supervisor may have been killed


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(as_line(message).decode("ascii"))
    sys.stdout.flush()


def _goes_on() -> bool:
    """Waits for the time of the next reading; False once the connection has ended."""
    waiting = select.poll()
    waiting.register(sys.stdin.fileno(), select.POLLIN)
    waiting.register(sys.stdout.fileno(), 0)  # an error there is reported all the same
    deadline = time.monotonic() + EVERY_S
    while (left := deadline - time.monotonic()) > 0:
        for fd, what in waiting.poll(left * 1000):
            if fd != sys.stdin.fileno() or not what & select.POLLIN or not os.read(fd, 4096):
                return False
    return True
