"""A real SSH session: the screens are opened in it, it breaks, and whoever comes back finds the run as it goes on."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
import pytest
from driving import Console, Terminal, screens_of, wait_for, words_of
from ssh_server import Server, needs_ssh
from terminal_cells import shows

pytestmark = needs_ssh
WAITS = (
    "[ $KGOPS_ATTEMPT = 1 ] && [ -e twice ] || exit 0; echo ready; while [ ! -e gate ]; do sleep 0.05; done"
)


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
        if any(b"sshd" in word for word in words_of(pid)):
            with suppress(ProcessLookupError):  # it ended with another
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("breaks", [by_its_client, by_its_server])
def test_a_run_started_over_ssh_goes_on_when_the_connection_breaks_and_is_there_after(
    run_cli: Console, server: Server, breaks: Callable[[Server, Terminal], None]
) -> None:
    run_cli("run", "exec", "--label", "over ssh", "--", "sh", "-c", WAITS)
    (run_cli.cwd / "twice").touch()
    first = server.session(run_cli, "tui")
    first.wait_for_text(b"RECENT")
    first.type(b"a")  # the same job once more, as a run of its own
    first.wait_for_text(b"again?")
    first.type(b"y")
    wait_for(lambda: first.read() and run_cli.run(2), "the second run")  # a terminal takes what it is sent
    run_cli.running(2)
    wait_for(lambda: first.read() and shows(first.seen, "1 running"), "1 running")
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
    wait_for(lambda: second.read() and shows(second.seen, "0 running"), "0 running")
    second.type(b"q")
    assert second.wait() == 0
    assert b"\x1b[?1049l" in second.seen
    assert b"Traceback" not in first.seen + second.seen


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
