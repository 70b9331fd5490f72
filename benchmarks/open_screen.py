"""Runs `kgops tui` on a pseudo-terminal with simulated GPUs, for the screen benchmarks."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import PYTHON
from kgops.settings import Home

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import nvml_standin
from terminal_cells import shows

COLUMNS, LINES = 120, 40
_CURSOR = b"48;5;236"  # the colour that only the row under the cursor has behind it


class Screen:
    """`kgops tui` on a pseudo-terminal."""

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self.seen = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _become_screens(home, environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all threads, by the process's CPU clock."""
        return time.clock_gettime((~self.pid << 3) | 2)

    @property
    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def read(self, wait_s: float) -> bool:
        """False where nothing came."""
        if not select.select([self._fd], [], [], wait_s)[0]:
            return False
        self.seen += os.read(self._fd, 1 << 16)
        return True

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def read_until_silent(self, silent_s: float = 0.3, within_s: float = 3.0) -> None:
        """Until nothing has come for a while; a screen that moves every second falls silent in between."""
        deadline, before = time.monotonic() + within_s, -1
        while len(self.seen) != before and time.monotonic() < deadline:
            before = len(self.seen)
            self.read(silent_s)

    def until(self, *texts: bytes, within_s: float = 30.0) -> None:
        """The cells are made only in a silence: that takes longer than a screen needs to paint them. Of a text that
        changes, a screen sends only the cells that differ."""
        deadline = time.monotonic() + within_s
        while not all(text in self.seen for text in texts):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{texts} never showed; the screen sent {self.seen[-2000:]!r}")
            if not self.read(0.02) and all(shows(self.seen, text.decode()) for text in texts):
                return

    def until_painted(self, label: bytes) -> None:
        """Waits for the row of that label in the cursor's colour."""
        deadline = time.monotonic() + 5
        while not any(label in part[:60] for part in self.seen.split(_CURSOR)[1:]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cursor never came to {label!r}: {self.seen[-2000:]!r}")
            self.read(0.1)

    def share_for(self, seconds: float) -> tuple[float, float]:
        """Percent of one CPU, and bytes a second."""
        self.seen = b""
        before, begin = self.cpu_s, time.monotonic()
        self.read_for(seconds)
        took = time.monotonic() - begin
        return (self.cpu_s - before) / took * 100, len(self.seen) / took

    def close(self) -> None:
        self.press(b"q")
        deadline = time.monotonic() + 5
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            try:
                self.read(0.02)
            except OSError:  # it has closed its terminal
                time.sleep(0.02)
        os.close(self._fd)


def _become_screens(home: Home, more: Mapping[str, str]) -> None:
    dropped = (
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "TEXTUAL_COLOR_SYSTEM",
        "KGOPS_THEME",
    )
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"KGOPS_HOME": str(home.path), "TERM": "xterm-256color", **more}
    os.execve(PYTHON, [PYTHON, "-P", "-m", "kgops", "tui"], environment)


@contextmanager
def screens(home: Home, gpus: Gpus | None = None) -> Iterator[Screen]:
    screen = Screen(home, gpus.environment if gpus is not None else {})
    try:
        yield screen
    finally:
        screen.close()


class Gpus:
    """Four GPUs of the tests' stand-in for NVIDIA's library."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "nvml-state"
        library = str(nvml_standin.library())
        self.environment = {"LD_LIBRARY_PATH": library, nvml_standin.STATE: str(self._state)}

    @classmethod
    def built(cls, folder: Path) -> Gpus | None:
        """None without a compiler."""
        return cls(folder) if nvml_standin.compiler() else None

    def show(self, *, delay_ms: int = 0, tick: int = 0) -> None:
        """GPU readings that change with every tick, as under load."""
        gpus = tuple(
            replace(
                nvml_standin.t4(f"GPU-{i}", used_mib=3000 * (i + 1) + tick * 37 % 500),
                utilization=90 + (tick + i) % 9,
                temperature=60 + (tick // 3 + i) % 4,
                power_mw=(55 + (tick * 3 + i) % 13) * 1000,
            )
            for i in range(4)
        )
        machine = nvml_standin.Machine(gpus, delay_ms=delay_ms)
        fresh = self._state.with_suffix(".new")
        fresh.write_text(nvml_standin.state_text(machine))
        fresh.replace(self._state)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """GPU readings change every second."""
        over = threading.Event()

        def go() -> None:
            tick = 0
            while not over.wait(1.0):
                tick += 1
                self.show(tick=tick)

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
