"""OpenSSH on loopback for tests, and hosts behind it: each with a home, a database and GPUs of its own."""

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from driving import QUICK, Console, Done, Terminal, end_all_of, wait_for
from nvml_standin import Machine, StandIn, cuda_build

from kgops.supervisor import processes

_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))
FOUND = {name: shutil.which(name, path=_PATH) for name in ("sshd", "ssh", "ssh-keygen")}
MISSING = [name for name, path in FOUND.items() if path is None]
needs_ssh = pytest.mark.skipif(
    bool(MISSING), reason=f"no {', '.join(MISSING)}: `apt-get install openssh-server openssh-client` has them"
)
_RELAY = Path(__file__).with_name("slow_relay.py")
_EMPTY_ROOM = Path("/run/sshd")  # where a server that is root puts whoever has not logged in yet


@dataclass(slots=True)
class Server:
    """OpenSSH on loopback, with keys, a port and a configuration of its own."""

    folder: Path
    port: int = 0
    child: subprocess.Popen[bytes] | None = None
    sessions: list[Terminal] = field(default_factory=list)

    def start(self) -> None:
        for name in ("host", "person"):
            flags = ["-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{name}"]
            subprocess.run([FOUND["ssh-keygen"] or "", *flags], check=True, capture_output=True)
        self.port = free_port()
        host, person = ((self.folder / f"{name}.pub").read_text() for name in ("host", "person"))
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}")
        (self.folder / "authorized_keys").write_text(person)
        home = self.folder / "home of logins"
        home.mkdir()
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPidFile none\nStrictModes no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\nMaxStartups 100\n"
            # A login reads its shell's files: those of whoever runs the tests may be slow, or left half done by a kill.
            f'SetEnv "HOME={home}"\n'
        )
        if os.geteuid() == 0:
            _EMPTY_ROOM.mkdir(mode=0o755, exist_ok=True)  # and left there, for servers of other tests
        self.listen()

    def listen(self) -> None:
        """Once more after it was killed, on the same port."""
        argv = [FOUND["sshd"] or "", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self.child = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(self._answers, "the SSH server")

    def kill(self) -> None:
        """With all logins, at once."""
        assert self.child is not None
        _kill([self.child.pid, *self.own_processes()])
        self.child.wait(10)

    def kill_logins(self) -> None:
        _kill(self.own_processes())

    def _answers(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, (self.folder / "sshd.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as conn:
                return conn.recv(4) == b"SSH-"
        except OSError:
            return False

    @property
    def options(self) -> dict[str, object]:
        """Of its clients."""
        return {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "IdentityFile": self.folder / "person",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }

    def _ssh(self, *words: str) -> list[str]:
        options = self.options
        said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        target = ["-p", str(self.port), f"{getpass.getuser()}@127.0.0.1"]
        return [FOUND["ssh"] or "", "-F", "/dev/null", *said, *target, *words]

    def session(self, console: Console, *args: str) -> Terminal:
        """`kgops ARGS` in a login of its own, on a terminal of 120 columns."""
        there = ["env", f"KGOPS_HOME={console.home}", *console.argv(*args)]
        argv = self._ssh("-tt", f"cd {shlex.quote(str(console.cwd))} && exec {shlex.join(there)}")
        terminal = Terminal(argv, {**os.environ, "TERM": "xterm-256color"}, console.cwd)
        termios.tcsetwinsize(terminal.master, (30, 120))
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
        if self.child is not None and self.child.poll() is None:
            self.kill()  # a login outlives its server, and with it the client's shared connection


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # one ends with the other
            os.kill(pid, signal.SIGKILL)


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


@dataclass(slots=True)
class Lab:
    """Hosts behind one server. A console of `home` finds them as a person's `~/.ssh/config` would name them."""

    server: Server
    folder: Path
    console: Console
    homes: dict[str, Path] = field(default_factory=dict)
    standins: dict[str, StandIn] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """With a client before the usual one that reads this test's configuration."""
        client = self.folder / "bin/ssh"
        if not client.exists():
            client.parent.mkdir()
            client.write_text(f'#!/bin/sh\nexec {FOUND["ssh"]} -F {self.folder}/config "$@"\n')
            client.chmod(0o755)
        return f"{client.parent}{os.pathsep}{os.environ['PATH']}"

    def add(
        self,
        name: str,
        machine: Machine | None = None,
        *,
        program: str | None = None,
        group: str = "",
        has_cuda: bool = False,
        slowable: bool = False,
    ) -> Console:
        """Names a host for the console, and returns kgops as a person there calls it. `program`: a shell script in
        place of kgops there. `has_cuda`: kgops plans there with a CUDA build of torch, which can compute nothing."""
        self.configure(name, slowable=slowable)
        home = self.folder / name / "kgops"
        home.mkdir(mode=0o700, parents=True)
        self.homes[name] = home
        environment = {"KGOPS_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[1])}
        if machine is not None:
            self.standins[name] = StandIn(home.parent)
            self.standins[name].show(machine)
            environment |= self.driver(name)
        if has_cuda:
            build = cuda_build(home.parent / "build")
            environment["PYTHONPATH"] = f"{build}{os.pathsep}{environment['PYTHONPATH']}"
        command = home.parent / "kgops command"  # a space: whoever forgets to quote it does not find it
        said = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
        command.write_text(program or f'#!/bin/sh\nexec env {said} {sys.executable} -m kgops "$@"\n')
        command.chmod(0o755)
        self.must("hosts", "add", name, "--kgops", command, *(["--group", group] if group else []))
        return self.there(name)

    def driver(self, name: str) -> dict[str, str]:
        """What lets a process see that host's GPUs."""
        shown = self.standins[name].environment()
        return {key: shown[key] for key in ("LD_LIBRARY_PATH", "KGOPS_NVML_STANDIN")}

    def slow_mark(self, name: str) -> Path:
        """While this file is there, what passes to and from the host trickles."""
        return self.folder / f"{name}.slow"

    def configure(self, name: str, *, slowable: bool = False) -> None:
        """An alias in the client's configuration."""
        relay = shlex.join([*QUICK[:-1], str(_RELAY), str(self.server.port), str(self.slow_mark(name))])
        options = {"HostName": "127.0.0.1", "Port": self.server.port, "User": getpass.getuser()}
        if slowable:
            options["ProxyCommand"] = relay
        lines = [f"  {key} {value}" for key, value in {**options, **self.server.options}.items()]
        with (self.folder / "config").open("a") as file:
            file.write("\n".join([f"Host {name}", *lines]) + "\n")

    def kgops(self, *args: str | Path) -> Done:
        """A command of the console that names hosts."""
        return self.console(*args, env={"PATH": self.path})

    def must(self, *args: str | Path) -> Done:
        return self.console.must(*args, env={"PATH": self.path})

    def there(self, name: str) -> Console:
        """kgops as a person on that host would call it."""
        return Console(self.homes[name], self.homes[name].parent)

    def feeds(self, name: str) -> list[int]:
        """Processes of its feed."""
        mark = f"KGOPS_HOME={self.homes[name]}".encode()
        return [pid for pid in self.server.own_processes() if mark in processes._environment(pid)]

    def close(self) -> None:
        for home in self.homes.values():
            end_all_of(home)


@contextmanager
def open_lab(folder: Path, console: Console) -> Iterator[Lab]:
    server = Server(folder)
    lab = Lab(server, folder, console)
    try:
        server.start()
        yield lab
    finally:
        lab.close()
        server.close()
