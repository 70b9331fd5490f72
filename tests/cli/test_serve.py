"""`kgops serve`: the screens through real HTTP and websockets, for whoever has the address and nobody else."""

import asyncio
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from driving import Console, patience, screens_of, wait_for
from terminal_cells import shows


@dataclass(slots=True)
class Served:
    """`kgops serve` as a person started it."""

    console: Console
    child: subprocess.Popen[bytes]
    address: str

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def next_address(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().decode().strip()

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.child.send_signal(number)
        return self.child.wait(patience())


@pytest.fixture
def served(run_cli: Console) -> Iterator[Served]:
    assert run_cli("run", "exec", "--label", "seen in a browser", "--", "true").code == 0
    child = run_cli.start("serve")
    assert child.stdout is not None
    address = child.stdout.readline().decode().strip()
    assert address, child.stderr.read().decode() if child.stderr else ""
    yield Served(run_cli, child, address)
    if child.poll() is None:
        child.terminate()
        child.wait(patience())


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience()))


async def status(session: aiohttp.ClientSession, url: str, **how: object) -> int:
    async with session.get(url, allow_redirects=False, **how) as answer:  # type: ignore[arg-type]
        return answer.status


async def enter(session: aiohttp.ClientSession, address: str) -> tuple[str, str]:
    """The address of the page that it leads to, and of the websocket that the page names."""
    async with session.get(address) as answer:
        assert answer.status == 200
        page = await answer.text()
        found = re.search(r'data-session-websocket-url="([^"]+)"', page)
        assert found is not None
        return str(answer.url), found[1]


class Screen:
    """What the page's terminal would be sent."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket, self.sent = websocket, b""

    async def until(self, text: str) -> None:
        async with asyncio.timeout(patience()):
            while text.encode() not in self.sent and not shows(self.sent, text):
                message = await self.websocket.receive()
                assert message.type is not aiohttp.WSMsgType.CLOSED, f"no {text!r} in {self.sent[-2000:]!r}"
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.sent += message.data

    async def say(self, *what: object) -> None:
        await self.websocket.send_json(what)

    async def closed(self) -> None:
        async with asyncio.timeout(patience()):
            while (await self.websocket.receive()).type is not aiohttp.WSMsgType.CLOSED:
                pass


async def test_the_page_leads_to_the_screens_and_keys_act_in_them(served: Served) -> None:
    async with browser() as session:
        _, socket_url = await enter(session, served.address)
        async with session.ws_connect(f"{socket_url}?width=120&height=30") as websocket:
            screen = Screen(websocket)
            await screen.until("seen in a browser")
            await screen.say("stdin", "\r")
            await screen.until("Record")
            await screen.say("resize", {"width": 90, "height": 20})
            await screen.until("\x1b[20;")
            await screen.say("stdin", "q")
            await screen.closed()
        assert "Traceback" not in screen.sent.decode("utf-8", "replace")
    wait_for(lambda: not screens_of(served.console.home), "the screens to leave")


async def test_an_address_works_once_and_another_is_printed(served: Served) -> None:
    async with browser() as session:
        page, _ = await enter(session, served.address)
        assert await status(session, served.address) == 403
        assert await status(session, page) == 200  # where it led to can be loaded again
        another = served.next_address()
        assert another != served.address
        await enter(session, another)
        assert await status(session, another) == 403


async def test_without_the_token_page_files_and_websocket_are_refused(served: Served) -> None:
    async with browser() as session:
        paths = (
            "/",
            "/?token=",
            "/?token=wrong",
            "/ws",
            "/static/js/textual.js",
            "/download/x",
            "/../x",
            "//",
        )
        for path in paths:
            assert await status(session, served.origin + path) == 403, path
        for path in ("/ws", "/wrong/ws", "/?token=wrong"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(served.origin + path)
            assert refused.value.status == 403
        assert not screens_of(served.console.home)
        await enter(session, served.address)  # none of this has used it up


async def test_other_sites_and_other_names_for_this_machine_are_refused(served: Served) -> None:
    async with browser() as session:
        page, socket_url = await enter(session, served.address)
        assert await status(session, page, headers={"Host": f"evil.example:{served.port}"}) == 403
        for odd in ("[::", "127.0.0.1.evil.example", "localhost.evil.example:80", "user@evil.example", ""):
            assert await status(session, page, headers={"Host": odd}) in (400, 403), odd
        for odd in (
            "localhost:1; script-src *",
            "localhost/x",
            "localhost?x",
            "x@127.0.0.1",
            "[::1]x",
            "::1",
            "127.1",
        ):
            assert await status(session, page, headers={"Host": odd}) == 403, odd
        for tunnel in ("localhost:9999", "[::1]:9999"):  # its other end
            assert await status(session, page, headers={"Host": tunnel}) == 200
        for origin in ("http://evil.example", f"http://localhost:{served.port}", "null"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(socket_url, headers={"Origin": origin})
            assert refused.value.status == 403
        async with session.ws_connect(
            f"{socket_url}?width=120", headers={"Origin": served.origin}
        ) as websocket:
            await Screen(websocket).until("seen in a browser")


async def test_the_page_asks_nothing_of_other_machines_and_keeps_nothing(served: Served) -> None:
    async with browser() as session:
        page, _ = await enter(session, served.address)
        async with session.get(page) as answer:
            text = await answer.text()
            policy = answer.headers["Content-Security-Policy"]
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'self'" in policy
        named = re.findall(r'(?:https?|wss?)://([^/"\s;]+)', text + policy)
        assert set(named) == {f"127.0.0.1:{served.port}"}
        for name in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert await status(session, page + name) == 200


def test_it_listens_on_loopback_alone(served: Served) -> None:
    sockets = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = (line.split()[1] for line in sockets.splitlines() if line.split()[3] == "0A")  # TCP_LISTEN
    assert [one for one in listening if one.endswith(f":{served.port:04X}")] == [
        f"0100007F:{served.port:04X}"
    ]


async def test_what_is_no_request_is_refused_and_stays_off_the_terminal(served: Served) -> None:
    async with browser() as session:
        for odd in (
            b"\x1b[31mX\r\n\r\n",
            b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(odd)
            assert b" 400 " in await reader.readline()
            writer.close()
        await enter(session, served.address)
    assert served.end() == 0
    assert served.child.stderr is not None
    said = served.child.stderr.read().decode()
    assert "\x1b" not in said and "Traceback" not in said
    assert len(said.splitlines()) == 4  # how to use the address, that it was opened, and that it is over


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_screens_end_with_the_server_and_runs_do_not(served: Served, number: signal.Signals) -> None:
    going = served.console.going("sh", "-c", "while [ ! -e gate ]; do sleep 0.05; done")

    async with browser() as session:
        _, socket_url = await enter(session, served.address)
        async with session.ws_connect(socket_url) as websocket:
            await Screen(websocket).until("1 running")
            code = await asyncio.to_thread(served.end, number)
            assert code == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    wait_for(lambda: not screens_of(served.console.home), "the screens to leave")
    served.console.running(going)
    (served.console.cwd / "gate").touch()
    assert served.console.ended(going).state == "succeeded"


async def test_a_run_started_in_the_browser_gets_none_of_its_variables(served: Served) -> None:
    console = served.console
    console("run", "exec", "--label", "tells all", "--", "sh", "-c", "env; [ ! -e twice ] || exec sleep 60")
    (console.cwd / "twice").touch()

    async with browser() as session:
        _, socket_url = await enter(session, served.address)
        async with session.ws_connect(socket_url) as websocket:
            screen = Screen(websocket)
            await screen.until("RECENT")
            await screen.say("stdin", "a")
            await screen.until("again?")
            await screen.say("stdin", "y")
            await screen.until("1 running")
        await asyncio.to_thread(console.running, 3)
    wait_for(lambda: "PATH=" in (console.folder(3) / "worker.log").read_text(), "its environment")
    names = {line.partition("=")[0] for line in (console.folder(3) / "worker.log").read_text().splitlines()}
    assert not {name for name in names if name.startswith(("TEXTUAL", "TERM_PROGRAM"))}
    assert "ROWS" not in names
    assert console("stop", "3").code == 0


def test_a_taken_port_is_an_error_with_a_way_out(run_cli: Console) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_cli("serve", "--port", str(taken.getsockname()[1]))
    assert done.code == 1
    assert "address already in use" in done.err
    assert "without --port" in done.err
