"""New run over hosts, by real SSH: each plans the job itself, none is waited for, and Enter starts it there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Terminal, wait_for
from nvml_standin import Machine, t4
from screen_driving import Seen, look
from ssh_server import Lab, needs_ssh
from test_screens_new_run import go_to, opened, turn, write

from screens.host_run import HostRun
from screens.new_run import NewRun
from screens.widgets.lines import Lines

pytestmark = needs_ssh

HANGS = "#!/bin/sh\nexec sleep 1000\n"
NO_KGOPS = "#!/bin/sh\nexit 127\n"
TRIPLES = "".join(f"e{i}\tr{i % 3}\te{(i * 7) % 50}\n" for i in range(200))


async def small(seen: Seen) -> None:
    """Seconds to train."""
    await write(seen, "num_epochs", "1")
    await write(seen, "embedding_dim", "16")


def point_at(seen: Seen, host: str, gpu: str | None = None) -> None:
    seen.app.screen.query_one("#body", Lines).point_at(("offer", host, gpu))


def test_offers_come_host_by_host_and_enter_starts_the_job_there(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2")
    lab.add("hangs", program=HANGS)
    lab.add("bare", program=NO_KGOPS)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await small(seen)
        await turn(seen, "where", "any")
        await seen.until_shows("hangs  asked, no answer yet", "bare  no plan: ", "lab1  ", "lab2  ")
        await seen.until_shows("OFFERS", "starts it there, x on this one · no answer yet: hangs\n")
        assert "unknown" in seen.row_of("lab2")
        await write(seen, "label", "of both")
        await seen.until_shows("--label 'of both' --host any", "on this one · no answer yet: hangs\n")
        point_at(seen, "lab2")
        await seen.until_shows("--label 'of both' --host lab2", "PLAN  lab2 (the CPU): fits now")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: ")
        await seen.press("enter")
        await seen.until_shows("start it on lab2 (the CPU)?")
        await seen.press("n")
        await seen.until_gone("start it on lab2")
        assert not lab.there("lab2")("runs", "--json").json()
        await seen.press("enter", "y")
        await seen.until(lambda: isinstance(seen.app.screen, HostRun), "the run's screen")
        await seen.until_shows("lab2:1 ", "started run lab2:1")
        words = shlex.split(seen.app.clipboard)
        dry = lab.kgops(*words[1:], "--dry-run", "--json")
        assert (dry.code, dry.json()["job"]["label"]) == (0, "of both"), dry.err

    look(lab.console.home, story, (160, 50))
    assert lab.there("lab2").ended(1).state == "succeeded"
    assert lab.there("lab1")("runs", "--json").json() == []


def test_x_starts_on_the_best_host_and_copies_what_it_reads(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.add("lab1")
    monkeypatch.chdir(lab.console.cwd)
    (lab.console.cwd / "mine.tsv").write_text(TRIPLES)

    async def story(seen: Seen) -> None:
        screen = await opened(seen)
        await small(seen)
        # All hosts of a test share one file system: this path leads to the file in this process alone.
        screen._change(screen._draft.with_field("data", "/proc/self/cwd/mine.tsv"))
        await turn(seen, "where", "lab1")
        await seen.until_shows("lab1 (the CPU): fits now", "--host lab1")
        await seen.press("x", "y")
        await seen.until_shows("copying mine.tsv to lab1: 100 % of 0.0 MiB")
        await seen.until_shows("lab1:1 ", "started run lab1:1")

    look(lab.console.home, story, (160, 40))
    assert lab.there("lab1").ended(1).state == "succeeded"
    (kept,) = (lab.homes["lab1"] / "data").iterdir()
    assert (kept / "mine.tsv").read_text() == TRIPLES


def test_a_group_of_hosts_is_offered_and_asked_alone(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2", group="ours")
    lab.add("lab3", group="ours")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await small(seen)
        assert "any · ours · lab1 · lab2 · lab3" in seen.row_of("where")
        await turn(seen, "where", "ours")
        await seen.until_shows("--host ours", "lab2        the CPU", "lab3        the CPU")
        assert "lab1  " not in seen.text
        point_at(seen, "lab3")
        await seen.until_shows("--host lab3")
        await seen.press("x", "y")
        await seen.until_shows("lab3:1 ", "started run lab3:1")

    look(lab.console.home, story, (160, 40))


def test_a_job_too_large_for_every_host_is_refused_with_the_reason(lab: Lab) -> None:
    lab.add("lab1")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await write(seen, "embedding_dim", "100000")
        await turn(seen, "where", "any")
        await seen.until_shows("it would start on no host; on lab1: nations needs about ")
        await seen.press("x")
        await seen.until_shows("X starts it anyway")
        await write(seen, "seed", "-1")
        await seen.until_shows("PLAN  seed: must be at least 0")
        await seen.press("x")
        await seen.until_shows("must be at least 0, found -1")
        assert isinstance(seen.app.screen, NewRun)

    look(lab.console.home, story, (160, 40))
    assert lab.there("lab1")("runs", "--json").json() == []


def test_what_the_host_refuses_is_said_and_the_form_stays(lab: Lab) -> None:
    lab.add("lab1")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await turn(seen, "workload", "exec")
        await write(seen, "command", "true")
        await write(seen, "cwd", "/not/there")
        await seen.until_shows("there is no folder /not/there")
        await turn(seen, "where", "lab1")
        await seen.until_shows("--cwd /not/there --host lab1 -- true", "OFFERS")
        await seen.until_shows("on lab1: the working folder /not/there does not exist")
        await seen.press("X", "y")
        await seen.until_shows("\nlab1: the working folder /not/there does not exist")
        assert isinstance(seen.app.screen, NewRun)

    look(lab.console.home, story, (160, 40))


def test_n_on_the_hosts_screen_plans_for_the_host_under_the_cursor(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2")

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "n new run")
        seen.app.screen.query_one("#body", Lines).point_at(("host", "lab2"))
        await seen.press("n")
        await seen.until_shows("lab2 (the CPU): fits now", "--host lab2")
        assert seen.row_of("where").split()[1] == "lab2"
        assert "lab1 (the CPU)" not in seen.text
        await turn(seen, "workload", "pipeline")
        await seen.until_shows(".toml --host lab2 (y writes this job file)")
        await go_to(seen, "where")
        await seen.press("backspace")
        await seen.until_shows("to spare")
        assert "this machine" in seen.row_of("where")

    look(lab.console.home, story, (160, 50))


def test_every_gpu_of_a_host_is_an_offer_and_the_command_names_it(lab: Lab) -> None:
    others = ((os.getpid(), 14_000),)
    full = t4("GPU-a", used_mib=14_800, processes=others)
    lab.add("lab1", Machine((full, t4("GPU-b"))), has_cuda=True)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await turn(seen, "where", "lab1")
        await seen.until_shows("PLAN  lab1 (GPU 1, Tesla T4): fits now", "0 Tesla T4")
        rows = [line for line in seen.lines() if line.startswith("lab1  ")]
        assert [row.split()[1] for row in rows] == ["1", "0"], "what would end first is not first"
        assert "would wait now" in rows[1]
        point_at(seen, "lab1", "0")
        await seen.until_shows("--gpu 0 --host lab1", "PLAN  lab1 (GPU 0, Tesla T4): fits an empty Tesla T4")
        point_at(seen, "lab1", "1")
        await seen.until_shows("--gpu 1 --host lab1", "predicted, never measured")
        await turn(seen, "precision", "fp16")
        await seen.until_shows("--precision fp16", "PLAN  lab1 (GPU 1, Tesla T4): fits now")

    look(lab.console.home, story, (200, 50))


def clients(lab: Lab, host: str) -> list[Path]:
    """Processes of this side that have asked the host for a plan."""
    asked = f"{lab.homes[host].parent}/kgops command".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ssh") and any(asked in word and b"suggest" in word for word in words):
            found.append(process)
    return found


def test_quitting_waits_for_no_host_and_leaves_no_client(
    lab: Lab, open_terminal: Callable[..., Terminal]
) -> None:
    lab.add("hangs", program=HANGS)
    terminal = open_terminal()
    terminal.wait_for_text(b"No runs yet")
    terminal.type(b"n")
    terminal.wait_for_text(b"to spare")
    terminal.type(b"j\x1b[C")
    terminal.wait_for_text(b"no answer yet: hangs")
    wait_for(lambda: clients(lab, "hangs"), "the question")
    terminal.type(b"q")
    assert terminal.wait() == 0
    wait_for(lambda: not clients(lab, "hangs"), "the client to end")


def test_without_hosts_the_form_has_no_row_for_them(lab: Lab) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        assert "where" not in seen.text

    look(lab.console.home, story)
