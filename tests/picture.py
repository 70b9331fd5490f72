"""Takes the pictures of the main screens, from a session that really takes place: `python tests/picture.py docs`.

Makes a tour in a temporary folder, opens the screens on it, writes what they show as SVG, and removes the tour. The
GPUs are those of the stand-in for NVIDIA's library: their names say that they are sample data.
"""

import asyncio
import html
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # ships no types
from driving import end_all_of
from nvml_standin import Gpu, Machine, Slice, StandIn, a100, cuda_build, t4
from screen_driving import Seen

from kgops.settings import Home
from kgops.tour import home as homes
from kgops.tour.filling import REAL, fill
from screens.app import KgopsApp
from screens.widgets.lines import Lines

README_SIZE, SIZE = (112, 38), (120, 36)
LARGEST = 100_000
WATCHED_S = 45.0  # until what is running has a curve
CELL = 12.2  # width of a character in Rich's SVG
COMPARED, SHOWN = (36, 35, 34), 46  # of the sample data
TITLE = "kgops demo --tour: sample data"


# --- what is on the GPUs ---


def gpus(ours: int, theirs: list[int], tick: int) -> Machine:
    """One with a run of ours, one full of another user's process, one in slices, and one that rests."""
    wave = tick * 37 % 50
    first = t4("GPU-a", 8_940, ((ours, 8_940),))
    full = t4("GPU-b", 14_520, ((theirs[0], 14_520),))
    slices = (
        Slice(0, "NVIDIA A100 MIG 3g.20gb", "MIG-a", 20_096, 11_130, ((theirs[1], 11_130),)),
        Slice(1, "NVIDIA A100 MIG 3g.20gb", "MIG-b", 20_096, 0),
    )
    cut = replace(a100("GPU-c", 11_130), mig=True, slices=slices)
    return Machine(
        (
            _named(first, "Tesla T4", 88 + wave // 5, ((ours, 88 + wave // 5),), 61 + wave // 20),
            _named(full, "Tesla T4", 97, ((theirs[0], 97),), 74),
            _named(cut, "NVIDIA A100-SXM4-40GB", None, (), 52),
            _named(t4("GPU-d"), "Tesla T4", 0, (), 34),
        )
    )


def _named(gpu: Gpu, name: str, percent: int | None, busy: tuple[tuple[int, int], ...], degrees: int) -> Gpu:
    watts = 12_000 + (percent or 0) * 560
    return replace(gpu, name=name, utilization=percent, busy=busy, temperature=degrees, power_mw=watts)


@contextmanager
def _others() -> Iterator[list[int]]:
    """Processes of another user, if this one may start such."""
    sleep = shutil.which("sleep")
    other = "daemon" if os.getuid() == 0 else None
    names = ("finetune.py --sample", "serve.py --sample")
    begun = [subprocess.Popen([name, "900"], executable=sleep, user=other, cwd="/") for name in names]
    try:
        yield [one.pid for one in begun]
    finally:
        for one in begun:
            one.kill()
            one.wait()


@contextmanager
def _moving(standin: StandIn, ours: int, theirs: list[int]) -> Iterator[None]:
    over = threading.Event()

    def move() -> None:
        tick = 0
        while not over.wait(1.0):
            tick += 1
            standin.show(gpus(ours, theirs, tick))

    standin.show(gpus(ours, theirs, 0))
    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _process_of(home: Home, run: int) -> int:
    """Of the tour's running run."""
    words = f"{home.path}{os.sep}runs{os.sep}{run:04}-"
    for process in psutil.process_iter():
        try:
            if process.environ().get("KGOPS_EVENTS", "").startswith(words):
                return int(process.pid)
        except psutil.Error:
            continue
    raise AssertionError(f"no process of run {run}")


# --- the pictures, in a child that sees those GPUs ---


def taken(app: KgopsApp) -> str:
    """What is on the screen; the font is the reader's own, and nothing is asked of another machine."""
    drawn = app.export_screenshot(title=TITLE)
    background = re.search(r'<rect fill="(#[0-9a-f]+)" x="0" y="1.5"', drawn)
    assert background is not None
    ground = f'<rect fill="{background[1]}" width="100%" height="100%"/>'
    for pattern, instead in (
        (r"<!--.*?-->", ""),
        (r"@font-face \{.*?\}\s*", ""),
        (r"font-family: [^;]+;", "font-family: ui-monospace, Menlo, Consolas, monospace;"),
        (r'<clipPath id="[^"]+-line-\d+">.*?</clipPath>', ""),
        (r' clip-path="url\(#[^"]+-line-\d+\)"', ""),
        (r"<text [^>]*>\s*</text>", ""),  # ends of lines
        (rf'<rect fill="{background[1]}"[^>]*/>', ""),
        (r"terminal-\d+-", ""),
    ):
        drawn = re.sub(pattern, instead, drawn, flags=re.S)
    drawn = re.sub(r'x="([\d.]+)"([^>]*) textLength="([\d.]+)">([^<]*)', _without_blanks_around, drawn)
    drawn = re.sub(r'(<g [^>]*clip-path="url\(#clip-terminal\)">)', rf"\1{ground}", drawn)
    return re.sub(r"\s*\n\s*", "\n", drawn).strip() + "\n"


def _without_blanks_around(text: re.Match[str]) -> str:
    """Some programs drop blanks at the start of a text, and what follows moves to the left."""
    x, y, words = float(text[1]), text[2], text[4].removesuffix("\n")
    led = re.match("(?:&#160;)*", words)
    kept = words[led.end() if led else 0 :]
    before = (len(words) - len(kept)) // len("&#160;")
    after = len(re.search("(?:&#160;)*$", kept)[0]) // len("&#160;")  # type: ignore[index]  # it always matches
    if any("⠀" < char <= "⣿" for char in kept):  # another font has these, of another width
        count = len(html.unescape(kept)) - after
        places = " ".join(f"{x + (before + i) * CELL:.1f}" for i in range(count))
        return f'x="{places}"{y}>{kept[: len(kept) - after * 6]}'
    length = float(text[3]) - (before + after) * CELL
    return f'x="{x + before * CELL:.1f}"{y} textLength="{length:.1f}">{kept[: len(kept) - after * 6]}'


async def _walk(seen: Seen, folder: Path) -> None:
    app = seen.app

    def body() -> Lines:
        return app.screen.query_one("#body", Lines)

    def take(name: str) -> None:
        (folder / f"{name}.svg").write_text(taken(app), encoding="utf-8")

    await seen.until_shows("RUNNING", "RECENT", "a curve to watch", "GPU 1")
    await seen.wait(WATCHED_S)
    take("dashboard")
    await seen.pilot.resize_terminal(*SIZE)
    await seen.press("0")
    await seen.until_shows("GPU 0 ·", "PROCESSES")
    take("gpu")
    await seen.press("escape", "h")
    await seen.until_shows("wn18rr", "filter:")
    body().point_at(SHOWN)
    await seen.until_shows(f"{SHOWN} train wn18rr", "OPTIONS that differ")
    take("history")
    await _filter(seen, "kinships")
    for run in COMPARED:
        body().point_at(run)
        await seen.press("space")
    await seen.press("equals_sign")
    await seen.until_shows("SETTINGS", "METRICS")
    take("compare")
    await seen.press("escape")
    await seen.until_shows("/ kinships")
    await _filter(seen, f"run:{SHOWN}")
    body().point_at(SHOWN)
    await seen.press("enter")
    await seen.until_shows("CURVES", "LOG")
    take("run")
    await seen.press("escape", "escape")
    await seen.until_shows("RUNNING")
    await seen.press("n")
    await seen.until_shows("PLAN")
    take("new-run")


async def _filter(seen: Seen, words: str) -> None:
    await seen.press("slash", "ctrl+u")
    await seen.press(*words)
    await seen.press("enter")
    await seen.until_shows(f"/ {words}", " of ")


def draw(home: Path, folder: Path) -> None:
    socket.gethostname = platform.node = lambda: "gpu-server"

    async def open_and_walk() -> None:
        app = KgopsApp(Home(home), unicode=True)
        async with app.run_test(size=README_SIZE) as pilot:
            await _walk(Seen(app, pilot), folder)

    asyncio.run(open_and_walk())


def main() -> None:
    where = Path(sys.argv[1])
    where.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kgops-picture-") as folder, _others() as theirs:
        home = Home(Path(folder) / "tour")
        drawn = Path(folder) / "drawn"
        drawn.mkdir()
        try:
            tour = fill(home, lambda line: print(line, file=sys.stderr), REAL)
            standin = StandIn(Path(folder))
            with _moving(standin, _process_of(home, tour.running), theirs):
                # So that it plans for those GPUs, too.
                environment = {**standin.environment(), "PYTHONPATH": str(cuda_build(Path(folder)))}
                subprocess.run(
                    [sys.executable, __file__, "--draw", home.path, drawn], env=environment, check=True
                )
            homes.remove(home, own_too=True)
        finally:
            end_all_of(home.path)
        for picture in sorted(drawn.iterdir()):
            size = picture.stat().st_size
            assert size < LARGEST, f"{picture.name}: {size:,} bytes"
            shutil.copy(picture, where)
            print(f"{where / picture.name}: {size:,} bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--draw":
        draw(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
