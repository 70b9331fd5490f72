"""`kgops serve` in a real headless Chromium: the page draws, keys act, and nothing is asked of another machine."""

import asyncio
import base64
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from driving import CHROMIUM, Console, patience, wait_for

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium here: `apt-get install --no-install-recommends chromium-headless-shell` has one",
)


@pytest.fixture
def address(run_cli: Console) -> Iterator[str]:
    assert run_cli("run", "exec", "--label", "drawn", "--", "sh", "-c", "echo an error").code == 0
    child = run_cli.start("serve")
    assert child.stdout is not None
    yield child.stdout.readline().decode().strip()
    child.terminate()
    child.wait(patience())


@pytest.fixture
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a Chromium of its own takes orders."""
    folder = tmp_path_factory.mktemp("chromium")
    argv = [CHROMIUM or "", "--headless", "--remote-debugging-port=0", "--enable-unsafe-swiftshader"]
    argv += ["--window-size=1200,700", f"--user-data-dir={folder}", "about:blank"]
    if os.geteuid() == 0:
        argv.insert(1, "--no-sandbox")
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    told = folder / "DevToolsActivePort"
    try:
        wait_for(lambda: told.exists() and len(told.read_text().split()) == 2, "Chromium")
        port, path = told.read_text().split()
        yield f"ws://127.0.0.1:{port}{path}"
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@dataclass(slots=True)
class Page:
    """A tab, and a person's eyes and hands in front of it."""

    websocket: aiohttp.ClientWebSocketResponse
    session: str = ""
    asked: set[str] = field(default_factory=set)  # machines that the page asked for anything
    complaints: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def do(self, method: str, **given: object) -> dict[str, Any]:
        number = next(self.numbers)
        order: dict[str, object] = {"id": number, "method": method, "params": given}
        await self.websocket.send_json(order | ({"sessionId": self.session} if self.session else {}))
        while True:
            said = await self.websocket.receive_json()
            if said.get("id") == number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self._hear(said)

    def _hear(self, said: dict[str, Any]) -> None:
        if said["method"] == "Network.requestWillBeSent":
            self.asked.add(urlsplit(said["params"]["request"]["url"]).netloc)
        elif said["method"] == "Network.webSocketCreated":
            self.asked.add(urlsplit(said["params"]["url"]).netloc)
        elif said["method"] == "Runtime.exceptionThrown":
            self.complaints.append(str(said["params"]))
        elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
            self.complaints.append(str(said["params"]["entry"]))

    async def value(self, script: str) -> object:
        return (await self.do("Runtime.evaluate", expression=script))["result"].get("value")

    async def until(self, script: str) -> None:
        async with asyncio.timeout(patience()):
            while not await self.value(script):
                await asyncio.sleep(0.05)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])

    async def until_it_changes(self, before: bytes) -> bytes:
        async with asyncio.timeout(patience()):
            while (now := await self.picture()) == before:
                await asyncio.sleep(0.1)
        return now

    async def press(self, key: str, code: str, number: int, text: str) -> None:
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.do("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        await self.do("Input.dispatchKeyEvent", type="keyUp", **about)


@asynccontextmanager
async def page_of(devtools: str) -> AsyncIterator[Page]:
    async with aiohttp.ClientSession() as session, session.ws_connect(devtools, max_msg_size=1 << 26) as ws:
        page = Page(ws)
        made = await page.do("Target.createTarget", url="about:blank")
        there = await page.do("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        page.session = there["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            await page.do(f"{domain}.enable")
        yield page


async def test_it_draws_takes_keys_and_asks_nobody_else(address: str, devtools: str, tmp_path: Path) -> None:
    async with page_of(devtools) as page:
        await page.do("Page.navigate", url=address)
        await page.until("document.body?.classList.contains('-first-byte')")
        assert "token" not in str(await page.value("location.href"))
        empty = await page.picture()
        drawn = await page.until_it_changes(empty) if len(empty) < 8000 else empty
        await page.press("Enter", "Enter", 13, "\r")  # without a click before
        opened = await page.until_it_changes(drawn)
        assert len(opened) > 8000  # text, and not one colour
        await page.press("q", "KeyQ", 81, "q")
        await page.until("document.body.classList.contains('-closed')")
        assert await page.value("getComputedStyle(document.querySelector('#closed')).display") == "grid"
        assert page.complaints == []
        assert page.asked == {urlsplit(address).netloc}
