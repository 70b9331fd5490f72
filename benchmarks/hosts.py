"""`python -m benchmarks.hosts`: cost of the screen over many hosts, each behind SSH on loopback with GPUs and runs."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import truediv
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # ships no types

from benchmarks.console import fill
from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store, table
from benchmarks.open_screen import Screen, bare_textual_ms, beside, screens
from kgops.experiments.fingerprint import fingerprint
from kgops.settings import Home, make_home

COMMAND = "python -m benchmarks.hosts"
GPUS, RUNS, HANGING = 8, 100, 3
ANSWER_S = 0.1  # after which the hosts of the opening answer
_TESTS = Path(__file__).resolve().parents[1] / "tests"


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, with fewer repetitions")
    parser.add_argument("--hosts", type=int, default=20, help="number of hosts, default 20")
    parser.add_argument(
        "--vanish", type=int, metavar="N", help="N faults of hosts at random, and nothing else"
    )
    parser.add_argument("--seed", type=int, default=24, help="of the faults")
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    given = parser.parse_args()
    if not (_TESTS / "ssh_server.py").exists():
        sys.exit("the hosts are made by the tests' SSH server: run this in a checkout")
    sys.path.append(str(_TESTS))
    server = importlib.import_module("ssh_server")
    if server.MISSING:
        sys.exit(f"no {', '.join(server.MISSING)} on this machine")
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}")
    with tempfile.TemporaryDirectory(prefix="kgops-hosts-") as base:
        if given.vanish is not None:
            lines = vanishing(Path(base), server, given.vanish, given.seed)
        else:
            lines = opening(Path(base), server, given.hosts, rounds=3 if given.quick else 9)
            lines += watching(Path(base), server, given.hosts, seconds=15 if given.quick else 60)
    print("\n".join(table(lines)))
    if given.store:
        store(lines, COMMAND)
    sys.exit(1 if any(line.reached is False for line in lines) else 0)


# --- what is measured ---


def opening(base: Path, server: Any, count: int, *, rounds: int) -> list[Line]:
    """Hosts that send a recorded picture after 100 ms: their own cost is not measured here. One machine is client and
    all servers, so what SSH alone takes there is measured beside, and what is left with a client that needs none."""
    first, half, whole, floor, free, bare = [], [], [], [], [], []
    with _lab(base / "opening", server) as lab:
        picture = _recorded_picture(base, server)
        program = f"#!/bin/sh\nsleep {ANSWER_S}\ncat {picture}\nexec cat >/dev/null\n"
        for name in _names(count):
            lab.add(name, program=program)
        client = _client_without_ssh(base / "opening")
        for _ in range(rounds):
            bare.append(bare_textual_ms(Home(lab.console.home)))
            floor.append(_bare_ssh_s(lab, _names(count)))
            begin = time.monotonic()
            with _screen(lab) as screen:
                screen.until(b"connecting")
                first.append(screen.cpu_s * 1000)
                half.append(_until_answer(screen, count // 2, count) - begin)
                whole.append(_until_answer(screen, count, count) - begin)
            _end_clients(base)
            begin = time.monotonic()
            with _screen(lab, path=client) as screen:
                free.append(_until_answer(screen, count, count) - begin)
    shown = f"{count} hosts that answer in 100 ms"
    return [
        Line("hosts_first_paint", f"{count} hosts, first picture: CPU", "ms", tuple(first), 350),
        Line("hosts_bare_textual", "Textual alone, one line of text: CPU", "ms", tuple(bare)),
        Line("hosts_half_shown", f"{shown}: half shown", "s", tuple(half)),
        Line("hosts_all_shown", f"{shown}: all shown", "s", tuple(whole), 1.5),
        Line("hosts_bare_ssh", f"{count} times `ssh HOST true` at once, alone", "s", tuple(floor)),
        Line("hosts_shown_by_ssh", "the former by the latter", "x", tuple(map(truediv, whole, floor))),
        Line("hosts_shown_free", "all shown, with a client that needs no SSH", "s", tuple(free), 1.5),
    ]


def _until_answer(screen: Screen, wanted: int, count: int) -> float:
    """When the title says that so many answer."""
    while not any(screen.shows(f"{number} of {count} answer") for number in range(wanted, count + 1)):
        screen.read(0.1)
    return time.monotonic()


def _bare_ssh_s(lab: Any, names: list[str]) -> float:
    environment = {**os.environ, "PATH": lab.path}
    begin = time.monotonic()
    nothing = subprocess.DEVNULL
    clients = [
        subprocess.Popen(["ssh", name, "true"], env=environment, stdin=nothing, stdout=nothing)
        for name in names
    ]
    for client in clients:
        if client.wait():
            raise RuntimeError(f"`ssh HOST true` exits with {client.returncode}")
    return time.monotonic() - begin


def _client_without_ssh(folder: Path) -> str:
    """A PATH whose `ssh` runs the command itself."""
    client = folder / "no ssh/ssh"
    client.parent.mkdir()
    client.write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    client.chmod(0o755)
    return f"{client.parent}{os.pathsep}{os.environ['PATH']}"


def watching(base: Path, server: Any, count: int, *, seconds: float) -> list[Line]:
    """Feeds as they are, with GPUs that move and that do not."""
    names = _names(count)
    with _lab(base / "watching", server) as lab:
        for name in names:
            lab.add(name, _machine(0))
            _show(lab, name, 0)
            fill(Home(lab.homes[name]), RUNS)
        with _screen(lab) as screen:
            screen.until(f"{count} of {count} answer".encode(), within_s=180)
            screen.read_for(10)
            still = _shares(lab, names, screen, seconds)
            _start_progress(lab, names)
            with beside(lambda tick: _move(lab, names, tick)):
                screen.read_for(3)
                moving = _shares(lab, names, screen, seconds)
                rss = screen.rss_mb
                took = _keys(lab, names[:HANGING], screen, presses=60 if seconds < 30 else 300)
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    hosts = f"{count} hosts, {GPUS} GPUs and {RUNS} runs each"
    return [
        Line("hosts_rss", f"{hosts}: memory here", "MB", (rss,), 70),
        Line("hosts_idle_cpu", "nothing changes: CPU here", "%", (still["here"],), 2),
        Line("hosts_idle_ssh_cpu", "the same: CPU of the SSH clients", "%", (still["clients"],)),
        Line("hosts_idle_sshd_cpu", "the same: CPU of the SSH servers, all hosts", "%", (still["servers"],)),
        Line("hosts_idle_feed_cpu", "the same: CPU there, each host", "%", still["there"], 0.5),
        Line("hosts_idle_bytes", "the same: sent by a host, keep-alive within", "B/s", still["bytes"], 10),
        Line(
            "hosts_moving_cpu",
            "a GPU and the progress of a run of each host move every second: CPU here",
            "%",
            (moving["here"],),
            2,
        ),
        Line("hosts_moving_ssh_cpu", "the same: CPU of the SSH clients", "%", (moving["clients"],)),
        Line(
            "hosts_moving_sshd_cpu", "the same: CPU of the SSH servers, all hosts", "%", (moving["servers"],)
        ),
        Line("hosts_moving_feed_cpu", "the same: CPU there, each host", "%", moving["there"], 0.5),
        Line("hosts_moving_bytes", "the same: sent by a host", "B/s", moving["bytes"], 1000),
        Line("hosts_key_p50", f"key to screen, {HANGING} of {count} hosts hang: median", "ms", tuple(took)),
        Line("hosts_key_p99", "the same: p99", "ms", tuple(took), 30, metric=p99),
    ]


def vanishing(base: Path, server: Any, rounds: int, seed: int) -> list[Line]:
    """Faults at random; each state that is shown is judged, and compared with the host's own record."""
    vanish = importlib.import_module("vanishing").vanish
    names = ("lab1", "lab2", "lab3")
    with _lab(base / "vanishing", server) as lab:
        os.environ["PATH"] = lab.path  # connections start in this process
        for name in names:
            lab.add(name, slowable=True)
        seen = vanish(lab, names, rounds=rounds, seed=seed)
    shown = f"{rounds} faults, {seen.posts:,} states shown: runs shown twice, lost or in a wrong state"
    return [Line("hosts_vanish_wrong", shown, "", (float(len(seen.wrong)),), 0)]


def _shares(lab: Any, names: list[str], screen: Screen, seconds: float) -> dict[str, Any]:
    """Percent of one CPU here and there, and what each feed wrote a second."""
    feeds = {name: psutil.Process(lab.feeds(name)[0]) for name in names}
    clients, servers = _clients(lab.folder), _servers(lab)

    def spent(processes: list[psutil.Process]) -> list[float]:
        return [sum(one.cpu_times()[:2]) for one in processes]

    def written() -> list[int]:
        return [one.io_counters().write_chars for one in feeds.values()]

    begin, cpu_there, sent = time.monotonic(), spent(list(feeds.values())), written()
    cpu_clients, cpu_servers = sum(spent(clients)), sum(spent(servers))
    here, _ = screen.share_for(seconds)
    took = time.monotonic() - begin
    there = zip(spent(list(feeds.values())), cpu_there, strict=True)
    return {
        "here": here,
        "clients": (sum(spent(clients)) - cpu_clients) / took * 100,
        "servers": (sum(spent(servers)) - cpu_servers) / took * 100,
        "there": tuple((now - before) / took * 100 for now, before in there),
        "bytes": tuple((now - before) / took for now, before in zip(written(), sent, strict=True)),
    }


def _keys(lab: Any, hanging: list[str], screen: Screen, *, presses: int) -> list[float]:
    """Time from a key to the painted cursor row, at the end of the list, which nothing else repaints."""
    for name in hanging:
        for pid in lab.feeds(name):
            os.kill(pid, signal.SIGSTOP)
    screen.until(b"does not answer", within_s=60)
    screen.press(b"G")
    screen.read_for(2)
    took = []
    for i in range(presses):
        screen.seen = b""
        begin = time.perf_counter()
        screen.press(b"k" if i % 2 == 0 else b"j")
        screen.until_cursor()
        took.append((time.perf_counter() - begin) * 1000)
        screen.read_for(0.05 + 0.03 * (i % 5))
    for name in hanging:
        for pid in lab.feeds(name):
            os.kill(pid, signal.SIGCONT)
    return took


# --- what they run on ---


def _names(count: int) -> list[str]:
    return [f"lab{number:02d}" for number in range(1, count + 1)]


@contextmanager
def _lab(folder: Path, server: Any) -> Iterator[Any]:
    """Hosts, and a home whose console knows them."""
    console = importlib.import_module("driving").Console(folder / "here", folder)
    folder.mkdir()
    make_home(Home(console.home))
    with server.open_lab(folder, console) as lab:
        try:
            yield lab
        finally:
            _end_clients(folder)


@contextmanager
def _screen(lab: Any, path: str | None = None) -> Iterator[Screen]:
    environment = {"PATH": path or lab.path}
    with screens(Home(lab.console.home), None, "--hosts", "all", environment=environment) as screen:
        yield screen


def _machine(tick: int) -> Any:
    standin = importlib.import_module("nvml_standin")
    gpus = [standin.h200(f"GPU-{i}", used_mib=9000 * (i + 1)) for i in range(GPUS)]
    moved = tick % GPUS
    gpus[moved] = replace(
        gpus[moved], utilization=40 + tick % 50, used_mib=9000 * (moved + 1) + tick * 37 % 500
    )
    return standin.Machine(tuple(gpus))


def _move(lab: Any, names: list[str], tick: int) -> None:
    for name in names:
        _show(lab, name, tick)


def _show(lab: Any, name: str, tick: int) -> None:
    """Without the stand-in's list of calls, whose bytes would count as the feed's."""
    standin = importlib.import_module("nvml_standin")
    state = lab.homes[name].parent / "nvml-state"
    fresh = state.with_suffix(".new")
    fresh.write_text(standin.state_text(_machine(tick)))
    fresh.replace(state)


def _recorded_picture(base: Path, server: Any) -> Path:
    """What the feed of such a host says first."""
    with _lab(base / "recorded", server) as lab:
        lab.add("one", _machine(0))
        fill(Home(lab.homes["one"]), RUNS)
        said = lab.there("one")("feed", "--json", env=lab.driver("one"))
        path = base / "picture.jsonl"
        path.write_text(said.out)
    return path


def _clients(folder: Path) -> list[psutil.Process]:
    """SSH clients of a console in that folder, with those that hold a shared connection."""
    found = []
    for one in psutil.process_iter(["name", "cmdline"]):
        if one.info["name"] == "ssh" and str(folder) in " ".join(one.info["cmdline"] or ()):
            found.append(one)
    return found


def _servers(lab: Any) -> list[psutil.Process]:
    """What `sshd` runs for each login, without the programs that were asked for."""
    logins = [psutil.Process(pid) for pid in lab.server.own_processes()]
    return [one for one in logins if one.name().startswith("sshd")]


def _start_progress(lab: Any, names: list[str]) -> None:
    """A run on each host that reports a step every second."""
    steps = "i=0; while sleep 1; do i=$((i+1)); echo step $i of 100000; done"
    wanted = ("--progress-regex", r"step (?P<done>\d+) of (?P<total>\d+)")
    for name in names:
        lab.there(name).detach("sh", "-c", steps, flags=wanted)


def _end_clients(folder: Path) -> None:
    """So that the next console connects anew."""
    clients = _clients(folder)
    for one in clients:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    psutil.wait_procs(clients, timeout=10)


if __name__ == "__main__":
    run(main)
