"""One OpenSSH client to one host: how it is started, read within limits, and what its failures mean.

The user's own `~/.ssh/config`, keys and agent are used; no password is asked for. The words of a command are quoted one
by one for the shell of the other side, and no shell of this side sees them.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import selectors
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from kgops.errors import BadInput, KgopsError, Unavailable
from kgops.hosts.protocol import LONGEST_LINE
from kgops.hosts.registry import Host
from kgops.jobs.text import one_line
from kgops.settings import Home

_OPTIONS = {
    "BatchMode": "yes",  # a missing key is an error at once, and nobody waits for a password
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    # What a configuration forwards for logins is none of a feed's: neither agent nor display nor ports.
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
}
_LONGEST_SOCKET = 107 - 18  # sun_path, less the suffix under which ssh binds it first
_LONGEST_ERROR = 4096
_MOST_AFTER = 1 << 16  # bytes behind the end of an archive
_SILENT_S = 120.0
_EXIT_PATIENCE_S = 0.5  # from the end of its output to its exit
NOT_FOUND, SSH_FAILED = 127, 255


class Flooded(KgopsError):
    """The host sends more than any feed does."""


def argv_of(home: Home, host: Host, words: Sequence[str]) -> list[str]:
    """The client's command line. `words` are run there by the kgops of that host."""
    options = dict(_OPTIONS)
    socket = control_path(home, host)
    if socket is not None:
        options |= {"ControlMaster": "auto", "ControlPath": str(socket), "ControlPersist": "60"}
    said = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    command = " ".join((_quoted_path(host.kgops), *map(shlex.quote, words)))
    return [_ssh(), "-T", *said, "--", host.address, command]


def control_path(home: Home, host: Host) -> Path | None:
    """The socket that later connections to the host share; None where no short private folder is there for it."""
    mark = hashlib.sha256(f"{home.path}\0{host.name}\0{host.address}".encode()).hexdigest()[:12]
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), str(home.path)):
        if not folder or "%" in folder or '"' in folder or any(char.isspace() for char in folder):
            continue  # ssh would read more into such a path
        path = Path(folder) / f"kgops-{mark}"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET and _is_private(Path(folder)):
            return path
    return None


def forget_socket(home: Home, host: Host) -> None:
    """So that the next connection is a fresh one: what holds the socket no longer answers."""
    socket = control_path(home, host)
    if socket is not None:
        socket.unlink(missing_ok=True)


def meaning_of(code: int | None, said: str, host: Host) -> tuple[str, str | None]:
    """What happened and what to do, by the client's exit code and its last words."""
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    words = one_line(last.strip(), 200)
    if code == NOT_FOUND:
        return (
            f"{host.kgops!r} is not found there",
            f"install kgops there, or name its path: kgops hosts add {host.name} {host.address} --kgops PATH",
        )
    if code == SSH_FAILED:
        return words or "ssh failed without a word", f"try it: ssh {host.address}"
    errors = [line.removeprefix("Error: ") for line in said.splitlines() if line.startswith("Error: ")]
    if errors:
        hints = [line.removeprefix("Hint: ") for line in said.splitlines() if line.startswith("Hint: ")]
        # Its commands and numbers are those of that host: typed here, they would mean other runs.
        return one_line(errors[-1], 300), f"on {host.name}: {one_line(hints[-1], 300)}" if hints else None
    return (
        f"kgops there ended{'' if code is None else f' with exit code {code}'}{': ' if words else ''}{words}",
        f"try it: ssh {host.address} {_quoted_path(host.kgops)} doctor",
    )


_running: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_clients() -> None:
    """A console that quits while a host hangs leaves no client behind that waits for it."""
    for child in list(_running):
        child.kill()


class Connection:
    """A running client. Nothing here blocks: `read` takes what has come, within the limits of a feed."""

    def __init__(
        self,
        home: Home,
        host: Host,
        words: Sequence[str],
        limits: Limits,
        *,
        keeps_stdin: bool = False,
        source: BinaryIO | None = None,
    ) -> None:
        """`keeps_stdin`: the other side goes on until the connection ends; else its input is what `source`, an open
        file or pipe, holds."""
        self.host = host
        self._limits = limits
        self._rest = b""
        self._errors = b""
        self._child = subprocess.Popen(
            argv_of(home, host, words),
            stdin=subprocess.PIPE if keeps_stdin else source or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the console, which ends its clients itself
            bufsize=0,
        )
        _running.add(self._child)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self.stdout, self.stderr = self._child.stdout.fileno(), self._child.stderr.fileno()
        for fd in (self.stdout, self.stderr):
            os.set_blocking(fd, False)

    def lines(self) -> tuple[list[bytes], bool]:
        """Whole lines that came since, and whether more may come. Flooded beyond the limits."""
        new = self._take(self.stdout)
        if new is None:
            return [], True
        self._rest += new
        *whole, self._rest = self._rest.split(b"\n")
        if len(self._rest) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in whole):
            raise Flooded(f"it sent a line of more than {LONGEST_LINE:,} bytes", TRY)
        self._limits.count(len(new), len(whole))
        return whole, bool(new)

    def take_errors(self) -> bool:
        """Keeps the last words on stderr; False once it is closed."""
        new = self._take(self.stderr)
        if new:
            self._limits.count(len(new), 0)
            self._errors = (self._errors + new)[-_LONGEST_ERROR:]
        return new != b""

    def take_bytes(self) -> bytes | None:
        """What came, of any length: for a reader that has limits of its own. None: nothing yet; empty: the end."""
        return self._take(self.stdout)

    @property
    def errors(self) -> str:
        return self._errors.decode("utf-8", "replace")

    def close(self, *, has_ended: bool = False) -> int | None:
        """Ends the client; its exit code if it had ended by itself. `has_ended`: it closed its output."""
        code = _exit_code(self._child, _EXIT_PATIENCE_S if has_ended else 0.0)
        if code is None:
            self._child.kill()
            self._child.wait()
        _running.discard(self._child)
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()
        return code

    def _take(self, fd: int) -> bytes | None:
        """None: nothing has come. Empty: the other side closed it."""
        try:
            return os.read(fd, 1 << 16)
        except BlockingIOError:
            return None


class ByteStream:
    """What a connection brings, as a file to be read from the front. Raises Unavailable where nothing comes, or where
    it takes longer than `patience_s` in all."""

    def __init__(self, connection: Connection, patience_s: float | None = None) -> None:
        self._connection = connection
        self._patience_s, self._begun = patience_s, time.monotonic()
        self._rest = bytearray()
        self._selector = selectors.DefaultSelector()
        for fd in (connection.stdout, connection.stderr):
            self._selector.register(fd, selectors.EVENT_READ)
        self.has_ended = False

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and not self.has_ended:
            self._take()
        taken = bytes(memoryview(self._rest)[:size])
        del self._rest[:size]
        return taken

    def drain(self) -> None:
        """To the end of what the other side writes, which it must reach to exit with success."""
        seen = 0
        while not self.has_ended:
            self._take()
            seen += len(self._rest)
            self._rest.clear()
            if seen > _MOST_AFTER:
                raise BadInput("the archive goes on behind its end")

    def close(self) -> None:
        self._selector.close()

    def _take(self) -> None:
        now = time.monotonic()
        until = now + _SILENT_S if self._patience_s is None else self._begun + self._patience_s
        ready = self._selector.select(max(until - now, 0.0))
        if time.monotonic() >= until and (not ready or now >= until):
            if self._patience_s is not None:
                raise Unavailable(f"no answer for {self._patience_s:.0f} s")
            raise Unavailable(f"nothing came for {_SILENT_S:.0f} s", "try again; nothing was imported")
        for key, _ in ready:
            if key.fd == self._connection.stderr:
                if not self._connection.take_errors():
                    self._selector.unregister(key.fd)
            elif (new := self._connection.take_bytes()) is not None:
                self._rest += new
                self.has_ended = not new
        if self.has_ended:
            self._connection.take_errors()  # its last words


class Limits:
    """A feed's rate over minutes: a first picture at once, then some lines a second. Buckets that leak."""

    def __init__(
        self,
        most_bytes: int = 2 * LONGEST_LINE,
        bytes_per_s: int = 1 << 17,
        most_lines: int = 500,
        lines_per_s: int = 20,
    ) -> None:
        self._most, self._per_s = (most_bytes, most_lines), (bytes_per_s, lines_per_s)
        self._held = [0.0, 0.0]
        self._at = time.monotonic()

    def count(self, new_bytes: int, new_lines: int) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        for i, new in enumerate((new_bytes, new_lines)):
            self._held[i] = max(self._held[i] - passed * self._per_s[i], 0.0) + new
            if self._held[i] > self._most[i]:
                what = ("bytes", "lines")[i]
                raise Flooded(f"it sent more than {self._most[i]:,} {what} at once", TRY)


TRY = "kgops there sends less, where it is kgops; `kgops hosts check` tries it again"


def _exit_code(child: subprocess.Popen[bytes], patience_s: float) -> int | None:
    try:
        return child.wait(patience_s)
    except subprocess.TimeoutExpired:
        return None


def _ssh() -> str:
    found = shutil.which("ssh")
    if found is None:
        raise Unavailable("there is no `ssh` on this machine", "install OpenSSH's client")
    return found


def _quoted_path(path: str) -> str:
    """For the shell of the other side, whose home `~` means."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _is_private(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
