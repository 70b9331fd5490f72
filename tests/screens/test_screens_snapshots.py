"""Every screen looks as it did when somebody last looked at it: text and tones, at two sizes, the main ones at three.

`pytest tests/screens/test_screens_snapshots.py --update-screens` draws the pictures anew; `git diff` then shows
what changed, and a person says whether that is better. `make pictures` also draws them as SVG into `build/screens`.
"""

import asyncio
import difflib
import functools
import math
import os
import platform
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # ships no types
import pytest
from nvml_standin import Machine, Slice, StandIn, a100, cuda_build, t4
from screen_benchmarks import add_claims
from screen_driving import Seen
from screen_home import ENVIRONMENT, GPUS, NOW, OTHER_MEMORY, OTHERS_PID, WORKERS, fill, hold
from screen_picture import picture

from kgops.gpus.history import KEPT, GpuCurve, GpuHistory
from kgops.gpus.processes import ProcessDetails, ProcessReader
from kgops.present import host
from kgops.settings import Home
from kgops.supervisor.on_gpus import Owners
from screens.app import KgopsApp
from screens.widgets.lines import Lines
from storage.database import open_writer

PICTURES = Path(__file__).parents[1] / "fixtures" / "screens"
SIZES = ("80x24", "120x40")
MAIN = (
    "dashboard",
    "run",
    "history",
    "compare",
    "new-run",
    "gpu",
)  # those are looked at on a large terminal, too
OF_ONE_SIZE = ("dashboard-light", "run-safe", "four-gpus")
HOMES = {"empty": "nothing", "predictions": "asked", "explanation": "asked"}  # of a story; else "home"
FOUR = Machine(  # one free, one full of another user's process, one in slices, one that rests
    (
        replace(t4("GPU-a", used_mib=11_204), utilization=97, temperature=71, power_mw=68_000),
        replace(t4("GPU-b", used_mib=14_600, processes=((1, 14_500),)), utilization=99, power_mw=70_000),
        replace(
            a100("GPU-c", used_mib=700),
            mig=True,
            slices=(
                Slice(0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-a", 20096, 700, ((1, 600),)),
                Slice(1, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-b", 20096, 0),
            ),
        ),
        t4("GPU-d"),
    )
)
_STILL_S = 0.5  # so long a picture that is not the expected one has to stay as it is

Story = Callable[[Seen], Awaitable[None]]


# --- how a person comes to each screen, and what is drawn there last ---


def shows(*texts: str) -> Story:
    async def story(seen: Seen) -> None:
        await seen.until_shows(*texts)

    return story


def then(before: Story, keys: str, *texts: str, at: int | None = None) -> Story:
    """After another story: on the row of run `at`, these keys, and what they make the screen show."""

    async def story(seen: Seen) -> None:
        await before(seen)
        if at is not None:
            seen.app.screen.query_one("#body", Lines).point_at(at)
        await seen.press(*keys.split(), shows=texts)

    return story


DASHBOARD = shows("ALERTS", "9.1 GiB free", "RECENT")
RUN = then(DASHBOARD, "enter", "7 train robokop-conve", "CURVES", "39 lines", at=7)
NEW_RUN = then(DASHBOARD, "n", "no file or folder")  # the newest run's data are gone
HISTORY = then(DASHBOARD, "h", "9 runs", "flights-full")
ANSWERED = shows("RECENT", "explain")
STORIES: dict[str, Story] = {
    "dashboard": DASHBOARD,
    "dashboard-light": then(DASHBOARD, "c", "theme light"),
    "four-gpus": shows("ALERTS", "0.3 GiB free", "2:1", "RECENT"),
    "empty": shows("No runs yet", "Tesla T4"),
    "gpu": then(DASHBOARD, "0", "GPU 0 · Tesla T4", "PROCESSES"),
    "run": RUN,
    "run-safe": then(RUN, "c c", "theme safe"),
    "run-ended": then(DASHBOARD, "end up enter", "2 train nations", "CURVES", "no output"),
    "run-steps": then(DASHBOARD, "end up up up up enter", "5 regress flights-full", "ATTEMPT", "no output"),
    "run-memory": then(RUN, "tab", "ESTIMATE"),
    "run-options": then(RUN, "tab tab", "OPTION", "requested"),
    "run-record": then(RUN, "shift+tab", "JOB"),
    "run-log": then(RUN, "l", "epoch  22/100", "epoch  37/100"),
    "new-run": then(
        NEW_RUN,
        f"down right {'down ' * 11} right down down",
        *("nations", "Tesla T4", "would wait now", "--dataset nations"),
    ),
    "new-run-regress": then(
        NEW_RUN,
        f"right right right down right right {'down ' * 8} right down down",
        *("colab_optimized", "Tesla T4", "the folder of flights is missing"),
    ),
    "new-run-trouble": then(NEW_RUN, "", "Tab completes"),
    "history": HISTORY,
    "compare": then(HISTORY, "end space up space equals_sign", "OPTIONS APPLIED", "METRICS", "batch_size"),
    "compare-unlike": then(
        HISTORY,
        "home down down space space space space equals_sign",
        *("7, 6, 5, 4", "SETTINGS", "OPTIONS APPLIED"),
    ),
    "influences": then(DASHBOARD, "end up up i", "TEST TRIPLES", "against│for", "head · relation"),
    "predictions": then(ANSWERED, "P", "predictions of 2", "vitamin · treats · ?", "sign_or_symptom", at=2),
    "explanation": then(ANSWERED, "i", "PREDICTIONS", "lost without these 2", "EFFECT", at=3),
    "profiles": then(DASHBOARD, "f", "PROFILE", "any machine"),
    "benchmarks": then(DASHBOARD, "b", "WHICH OPTIONS PAY", "kgops bench show claims"),
    "help": then(DASHBOARD, "question_mark", "KEYS HERE", "SIGNS"),
}
NAMES = [f"{name}-{size}" for name in STORIES for size in (SIZES[1:] if name in OF_ONE_SIZE else SIZES)]
NAMES += [f"{name}-200x60" for name in MAIN]


# --- the pictures, drawn in a child that sees two GPUs ---


def draw(folder: Path, names: list[str], expected: dict[str, str]) -> dict[str, str]:
    """Runs in the child: nothing that it changes here is seen by any other test."""
    os.chdir(folder)
    time.time = lambda: NOW
    socket.gethostname = platform.node = lambda: "gpu-7"
    roomy = os.statvfs_result((4096, 4096, 1 << 28, 1 << 27, 1 << 27, 1 << 24, 1 << 23, 1 << 23, 0, 255))
    os.statvfs = lambda path: roomy
    os.cpu_count = lambda: 16
    GpuHistory.__init__ = _ten_minutes  # type: ignore[method-assign]
    ProcessReader.read = _processes  # type: ignore[method-assign]
    Owners.run_of = lambda self, pid: next((run for run, one in WORKERS.items() if one == pid), None)  # type: ignore[method-assign]
    host._PROC = folder / "proc"
    held = hold(folder / "home")
    host._PROC.mkdir(exist_ok=True)
    (host._PROC / "stat").write_text("cpu 100 0 100 800 0 0 0 0 0 0\n")  # it never changes: no share is known
    psutil.PROCFS_PATH = str(host._PROC)
    memory = {"MemTotal": 67_108_864, "MemAvailable": 50_331_648, **dict.fromkeys(OTHER_MEMORY, 0)}
    lines = (f"{name}: {kib} kB" for name, kib in memory.items())
    (host._PROC / "meminfo").write_text("\n".join(lines))
    drawn = {name: asyncio.run(_draw(name, expected.get(name))) for name in names}
    for fd in held:
        os.close(fd)
    return drawn


def _processes(self: ProcessReader, pids: Iterable[int]) -> dict[int, ProcessDetails]:
    """A worker of each running run, and a program of somebody else."""
    train, tracin = (f"python -m kgops.maths.{name}.worker job.toml" for name in ("train", "tracin"))
    known = {
        WORKERS[7]: ProcessDetails(1, NOW - 1_500, "ada", True, train, 98.0),
        WORKERS[8]: ProcessDetails(2, NOW - 700, "ada", True, tracin, 100.0),
        1: ProcessDetails(3, NOW - 9_000, "eve", False, "python train_bert.py", 99.0),
        OTHERS_PID: ProcessDetails(4, NOW - 93_000, "bob", False, "python serve_llm.py --port 8000", 3.0),
    }
    return {pid: known[pid] for pid in pids if pid in known}


def _ten_minutes(self: GpuHistory) -> None:
    """Two GPUs that have been watched for ten minutes."""
    rise = [min(2_000.0 + 400 * n, 11_204.0) for n in range(KEPT)]
    steady = [3_980.0 if n > 40 else None for n in range(KEPT)]
    busy = [90 + 8 * math.sin(n / 3) if n % 25 > 2 else 12.0 for n in range(KEPT)]
    waves = [64.0 + 20 * math.sin(n / 7) for n in range(KEPT)]
    self._bucket, self._open, self._whole = None, {}, {}
    self.curves = {
        0: GpuCurve(tuple(rise), tuple(busy), _warming(busy, 71.0), _warming(busy, 68.0)),
        1: GpuCurve(tuple(steady), tuple(waves), _warming(waves, 58.0), _warming(waves, 41.0)),
    }


def _warming(load: list[float], end: float) -> tuple[float, ...]:
    """Follows the load slowly, up to `end`."""
    smooth = [sum(load[max(n - 20, 0) : n + 1]) / len(load[max(n - 20, 0) : n + 1]) for n in range(len(load))]
    return tuple(end * one / max(smooth) for one in smooth)


async def _draw(name: str, expected: str | None) -> str:
    story, _, size = name.rpartition("-")
    width, height = map(int, size.split("x"))
    # The home is named as seen from here: pictures show where a run's folder is.
    app = KgopsApp(Home(Path(HOMES.get(story, "home"))), unicode=True)
    async with app.run_test(size=(width, height)) as pilot:
        seen = Seen(app, pilot)
        try:
            await STORIES[story](seen)
        except AssertionError as error:
            return f"{error}\n"
        shown = await _settled(seen, expected)
        if folder := os.environ.get("KGOPS_PICTURES"):
            app.save_screenshot(f"{name}.svg", folder)
        return shown


async def _settled(seen: Seen, expected: str | None) -> str:
    """The expected picture as soon as it is there; else the one that stays."""
    shown, since = picture(seen.app), time.monotonic()
    while shown != expected and time.monotonic() - since < _STILL_S:
        await seen.pilot.pause(0.02)
        now = picture(seen.app)
        if now != shown:
            shown, since = now, time.monotonic()
    return shown


Drawn = Callable[[str], str]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Drawn:
    """The picture of that name; the first one asked for is drawn with all others of its size."""
    from screen_answers import fill_answers  # imports torch, which a child that draws has only the version of

    folder = tmp_path_factory.mktemp("screens")
    for name in ("home", "asked"):
        home = folder / name
        for part in ("runs", "pending"):
            (home / part).mkdir(parents=True)
        home.chmod(0o700)
        (home / "kgops.db").write_bytes(empty_database.read_bytes())
        conn = open_writer(home / "kgops.db")
        if name == "asked":
            fill_answers(conn, home)
        else:
            fill(conn, home)
            add_claims(conn, ENVIRONMENT, NOW - 3 * 86_400)
        conn.close()
    standin = StandIn(folder)
    cuda_build(folder / "build")
    return functools.partial(_one_of, functools.cache(functools.partial(_all_like, standin, folder)))


def _one_of(all_like: Callable[[str, bool], dict[str, str]], name: str) -> str:
    return all_like(name.rpartition("-")[2], name.startswith("four-gpus"))[name]


def _all_like(standin: StandIn, folder: Path, size: str, four: bool) -> dict[str, str]:
    standin.show(FOUR if four else GPUS)
    names = [name for name in NAMES if name.endswith(f"-{size}") and name.startswith("four-gpus") == four]
    kept = {name: path.read_text("utf-8") for name in names if (path := _file(name)).exists()}
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("TZ", "UTC")
        surroundings.setenv("PYTHONPATH", str(folder / "build"))  # where a run on these GPUs could start
        for variable in ("COLUMNS", "LINES", "NO_COLOR", "KGOPS_THEME"):
            surroundings.delenv(variable, raising=False)
        return standin.ask(draw, folder, names, kept)


def _file(name: str) -> Path:
    return PICTURES / f"{name}.txt"


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_looks_as_it_did(name: str, drawn: Drawn, request: pytest.FixtureRequest) -> None:
    file, now = _file(name), drawn(name)
    if request.config.getoption("--update-screens"):
        file.write_text(now, "utf-8")
    before = file.read_text("utf-8") if file.exists() else ""
    if now != before:
        changes = difflib.unified_diff(
            before.splitlines(), now.splitlines(), f"{file.name} (kept)", "drawn now", lineterm=""
        )
        pytest.fail("\n".join(changes), pytrace=False)


def test_no_picture_is_kept_of_a_screen_that_nobody_draws() -> None:
    assert sorted(path.stem for path in PICTURES.iterdir()) == sorted(NAMES)


def test_the_edges_of_every_panel_meet_at_its_corners() -> None:
    open_ends = []
    for path in sorted(PICTURES.iterdir()):
        lines = path.read_text("utf-8").partition("~~~")[0].splitlines()
        below = [*lines[1:], ""]
        for y, (line, under) in enumerate(zip(lines, below, strict=True)):
            corners = (x for x, char in enumerate(line) if char in "╭╮")
            open_ends += [
                f"{path.stem}, line {y + 1}" for x in corners if (under[x : x + 1] or " ") not in "│╰╯"
            ]
    assert open_ends == []
