"""Web server of `kgops serve`: the dashboard in a browser, on loopback, behind a one-time address."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path

import click
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from textual_serve.server import Server

from kgops.cli.output import tell
from kgops.errors import Unavailable
from kgops.jobs.text import one_line

_LOOPBACK = "127.0.0.1"
# What a browser may call this machine, directly or through a tunnel. Nothing else may get into page and headers.
_LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_GRACE_S = 0.2  # then open dashboards get the order to close
_BAD_ADDRESS = "This address is used or invalid. `kgops serve` has printed a new one on its terminal.\n"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><title>kgops</title>
<link rel="stylesheet" href="static/css/xterm.css">
<script src="static/js/textual.js"></script>
<script src="focus.js"></script>
<style>
html, body {{ margin: 0; height: 100%; background: #121212; color: #d0d0d0; overflow: hidden; }}
#terminal {{ width: 100vw; height: 100vh; }}
.xterm .xterm-viewport {{ overflow: hidden; }}
#closed {{ display: none; position: absolute; inset: 0; z-index: 1; background: #121212; }}
body.-closed #closed {{ display: grid; place-content: center; font: 16px monospace; }}
a {{ color: #5fafff; }}
</style>
</head>
<body>
<div id="closed"><p>The dashboard is closed; runs go on. <a href="">Open them again</a></p></div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{socket}" data-font-size="{size}"></div>
</body>
</html>
"""
# Focus the terminal once the socket is open, so that the first key reaches the dashboard without a click.
_FOCUS = """addEventListener("load", () => {
  new MutationObserver((_, watcher) => {
    if (!document.body.classList.contains("-loaded")) return;
    watcher.disconnect();
    document.querySelector("#terminal textarea")?.focus();
  }).observe(document.body, {attributeFilter: ["class"]});
});
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScreensServer(Server):
    """Starts one dashboard process for each open page.

    The printed address works once and redirects to a secret path that is valid as long as the server runs.
    No cookie: a browser would also send it to other servers tunnelled to the same host.
    """

    def __init__(self, command: str, tell_address: Callable[[str], None]) -> None:
        super().__init__(command, host=_LOOPBACK, title="kgops")
        self._tell_address = tell_address
        self._secret_path = "/" + secrets.token_urlsafe(24)
        self._token = ""

    def tell_address(self, port: int) -> None:
        """Print a new one-time address; the previous one is no longer valid."""
        self.port = port
        self._token = secrets.token_urlsafe(24)
        self._tell_address(f"http://{_LOOPBACK}:{port}/?token={self._token}")

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                # A HEAD request must not use up the address.
                web.get("/", self._enter, allow_head=False),
                web.get(f"{self._secret_path}/", self._page),
                web.get(f"{self._secret_path}/focus.js", self._focus),
                web.get(f"{self._secret_path}/ws", self.handle_websocket),
                web.static(f"{self._secret_path}/static", self.statics_path),
            ]
        )
        app.on_response_prepare.append(_close_to_others)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _LOCAL_HOST.fullmatch(request.host):
            raise web.HTTPForbidden(text="kgops serves its own machine only.\n")
        if request.path != "/" and not _equal("/" + request.path[1:].partition("/")[0], self._secret_path):
            raise web.HTTPForbidden(text=_BAD_ADDRESS)
        if any(origin != f"http://{request.host}" for origin in request.headers.getall("Origin", ())):
            raise web.HTTPForbidden(text="Requests from other sites are refused.\n")
        return await handler(request)

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        if not _equal(request.query.get("token", ""), self._token):
            raise web.HTTPForbidden(text=_BAD_ADDRESS)
        self.tell_address(self.port)
        raise web.HTTPSeeOther(f"{self._secret_path}/")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        size = request.query.get("fontsize", "16")
        socket = escape(f"ws://{request.host}{self._secret_path}/ws")
        page = _PAGE.format(socket=socket, size=size if size.isdecimal() else "16")
        return web.Response(text=page, content_type="text/html")

    async def _focus(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=_FOCUS, content_type="text/javascript")


def _equal(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


async def _close_to_others(request: web.Request, response: web.StreamResponse) -> None:
    """Forbid loading from, framing by and referring to other sites, and caching."""
    response.headers.update(
        {
            "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
            f"connect-src 'self' ws://{request.host}; frame-ancestors 'none'; base-uri 'none'",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }
    )


def serve(port: int | None, log: Path, tell_address: Callable[[str], None]) -> None:
    """Serve until a signal ends it. It and its dashboards write errors to `log`: text from outside must not reach
    the terminal."""
    argv = shlex.join([sys.executable, "-P", "-m", "kgops", "tui"])
    server = ScreensServer(f"exec {argv} 2>>{shlex.quote(str(log))}", tell_address)
    handler = logging.FileHandler(log)
    handler.addFilter(_is_no_bad_request)
    logging.getLogger("aiohttp").addHandler(handler)
    logging.getLogger("aiohttp").propagate = False
    asyncio.run(_serve(server, port or 0))


def _is_no_bad_request(record: logging.LogRecord) -> bool:
    """Anybody on this machine may send those, as many as they like."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


async def _serve(server: ScreensServer, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(await server._make_app(), access_log=None, shutdown_timeout=_GRACE_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, _LOOPBACK, port).start()
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            raise Unavailable(
                f"port {port} cannot be used: {why}", "without --port kgops takes a free one"
            ) from error
        server.tell_address(runner.addresses[0][1])
        await stopped.wait()
    finally:
        await runner.cleanup()


class AddressPrinter:
    """Prints each address to stdout, and how to use it to stderr."""

    def __init__(self) -> None:
        self._before = False

    def __call__(self, address: str) -> None:
        if self._before:
            tell("Opened. The next address, for another browser, works once too:")
        click.echo(address)
        if not self._before:
            port = address.partition(":")[2].partition(":")[2].partition("/")[0]
            tell(
                f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {one_line(socket.gethostname())}"
                " — then open the address there."
            )
            tell("The address works once. Ctrl-C ends the server; runs go on.")
        self._before = True
