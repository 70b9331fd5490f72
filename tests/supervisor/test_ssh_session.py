"""A real SSH session: the screens are opened in it, it breaks, and whoever comes back finds the run as it goes on."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from driving import Console, Terminal, all_of, wait_for

from kgops.supervisor import processes

_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))
FOUND = {name: shutil.which(name, path=_PATH) for name in ("sshd", "ssh", "ssh-keygen")}
MISSING = [name for name, path in FOUND.items() if path is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no {', '.join(MISSING)}: `apt-get install openssh-server openssh-client` has them"
)
WAITS = (
    "[ $KGOPS_ATTEMPT = 1 ] && [ -e twice ] || exit 0; echo ready; while [ ! -e gate ]; do sleep 0.05; done"
)
_EMPTY_ROOM = Path("/run/sshd")  # where a server that is root puts whoever has not logged in yet


@dataclass(slots=True)
class Server:
    """OpenSSH on loopback, with keys, a port and a configuration of its own."""

    folder: Path
    port: int = 0
    child: subprocess.Popen[bytes] | None = None
    made_room: bool = False
    sessions: list[Terminal] = field(default_factory=list)

    def start(self) -> None:
        for name in ("host", "person"):
            keygen = [
                FOUND["ssh-keygen"] or "",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                f"{self.folder}/{name}",
            ]
            subprocess.run(keygen, check=True, capture_output=True)
        self.port = free_port()
        host, person = ((self.folder / f"{name}.pub").read_text() for name in ("host", "person"))
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}")
        (self.folder / "authorized_keys").write_text(person)
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPidFile none\nStrictModes no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\n"
        )
        if os.geteuid() == 0 and not _EMPTY_ROOM.exists():
            _EMPTY_ROOM.mkdir(mode=0o755)
            self.made_room = True
        log = (self.folder / "sshd.log").open("wb")
        argv = [FOUND["sshd"] or "", "-D", "-e", "-f", str(config)]
        self.child = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        wait_for(self._answers, "the SSH server")

    def _answers(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, (self.folder / "sshd.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as conn:
                return conn.recv(4) == b"SSH-"
        except OSError:
            return False

    def _ssh(self, *words: str) -> list[str]:
        options = {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "IdentityFile": self.folder / "person",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        target = ["-p", str(self.port), f"{getpass.getuser()}@127.0.0.1"]
        return [FOUND["ssh"] or "", "-F", "/dev/null", *said, *target, *words]

    def session(self, console: Console, *args: str, lines: int = 30) -> Terminal:
        """`kgops ARGS` in a login of its own, on a terminal of 120 columns."""
        there = ["env", f"KGOPS_HOME={console.home}", *console.argv(*args)]
        argv = self._ssh("-tt", f"cd {shlex.quote(str(console.cwd))} && exec {shlex.join(there)}")
        terminal = Terminal(argv, {**os.environ, "TERM": "xterm-256color"}, console.cwd)
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 120, 0, 0))
        self.sessions.append(terminal)
        return terminal

    @contextmanager
    def tunnel(self, to: int) -> Iterator[int]:
        """A port of this side that leads to one of the other, as `ssh -N -L` makes it."""
        port = free_port()
        child = subprocess.Popen(
            self._ssh("-N", "-L", f"{port}:127.0.0.1:{to}", "-o", "ExitOnForwardFailure=yes"),
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: is_open(port), "the tunnel")
            yield port
        finally:
            child.terminate()
            child.wait(10)

    def own_processes(self) -> list[int]:
        """Of all logins that it serves."""
        assert self.child is not None
        return [pid for pid in processes.descendants([self.child.pid]) if pid != self.child.pid]

    def close(self) -> None:
        for terminal in self.sessions:
            terminal.close()
        if self.child is not None:
            self.child.terminate()
            self.child.wait(10)
        if self.made_room:
            _EMPTY_ROOM.rmdir()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ssh"))
    try:
        server.start()
        yield server
    finally:
        server.close()


def by_its_client(server: Server, terminal: Terminal) -> None:
    """The person's machine is gone from one moment to the next."""
    os.kill(terminal.child.pid, signal.SIGKILL)


def by_its_server(server: Server, terminal: Terminal) -> None:
    """What served the login is killed, and nothing is told to whoever was in it."""
    for pid in server.own_processes():
        if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def screens_of(home: Path) -> list[int]:
    """Processes of `kgops tui`."""
    found = []
    for who in all_of(home):
        try:
            words = Path(f"/proc/{who.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tui" in words and b"kgops" in words:
            found.append(who.pid)
    return found


@pytest.mark.parametrize("breaks", [by_its_client, by_its_server])
def test_a_run_started_over_ssh_goes_on_when_the_connection_breaks_and_is_there_after(
    run_cli: Console, server: Server, breaks: Callable[[Server, Terminal], None]
) -> None:
    run_cli("run", "exec", "--label", "over ssh", "--", "sh", "-c", WAITS)
    (run_cli.cwd / "twice").touch()
    first = server.session(run_cli, "tui")
    first.wait_for_text(b"RECENT")
    first.type(b"a")  # the same job once more, as a run of its own
    wait_for(lambda: run_cli.run(2), "the second run")
    run_cli.running(2)
    first.wait_for_text(b"1 running")
    breaks(server, first)
    first.wait()
    wait_for(lambda: not screens_of(run_cli.home), "the screens to leave with their terminal")
    time.sleep(0.5)  # whatever a lost login takes with it has been taken
    run_cli.running(2)
    second = server.session(run_cli, "tui")
    second.wait_for_text(b"1 running")
    second.wait_for_text(b"over ssh")
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(2).state == "succeeded"
    (made,) = run_cli.show(2)["attempt"]
    assert made["adoptions"] == 0  # it kept its supervisor all the time
    second.wait_for_text(b"0 running")
    second.type(b"q")
    assert second.wait() == 0
    assert b"\x1b[?1049l" in second.seen
    assert b"Traceback" not in first.seen + second.seen


def test_a_detached_command_over_ssh_leaves_its_run_behind(run_cli: Console, server: Server) -> None:
    done = server.session(run_cli, "run", "exec", "--detach", "--", "sh", "-c", "sleep 1; echo over")
    assert done.wait() == 0, done.seen
    assert run_cli.ended(1).state == "succeeded"
    assert (run_cli.folder(1) / "worker.log").read_text() == "over\n"


def test_the_screens_take_the_size_of_the_terminal_at_the_other_end(run_cli: Console, server: Server) -> None:
    run_cli("run", "exec", "--label", "seen from afar", "--", "true")
    terminal = server.session(run_cli, "tui")
    terminal.wait_for_text(b"seen from afar")
    terminal.seen = b""
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.kill(terminal.child.pid, signal.SIGWINCH)
    terminal.wait_for_text(b"\x1b[24;")  # the footer is drawn in the last of fewer lines
    terminal.type(b"q")
    assert terminal.wait() == 0


def test_served_screens_are_reached_through_a_tunnel_under_the_port_of_this_side(
    run_cli: Console, server: Server
) -> None:
    run_cli("run", "exec", "--label", "seen through a tunnel", "--", "true")
    child = run_cli.start("serve")
    assert child.stdout is not None
    address = urlsplit(child.stdout.readline().decode().strip())

    async def look(port: int) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
            async with session.get(f"http://localhost:{port}/?{address.query}") as answer:
                found = re.search(r'data-session-websocket-url="([^"]+)"', await answer.text())
            assert found is not None
            assert found[1].startswith(f"ws://localhost:{port}/")
            headers = {"Origin": f"http://localhost:{port}"}
            async with session.ws_connect(f"{found[1]}?width=120", headers=headers) as websocket:
                sent = b""
                while b"seen through a tunnel" not in sent:
                    sent += await websocket.receive_bytes()

    with server.tunnel(address.port or 0) as port:
        asyncio.run(look(port))
    child.terminate()
    assert child.wait(20) == 0
