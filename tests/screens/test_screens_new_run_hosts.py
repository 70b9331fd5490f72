"""New run on another host, by real SSH: the form starts the job there, with the paths of that host."""

from __future__ import annotations

import shlex

from screen_driving import Seen, look
from ssh_server import Lab, needs_ssh
from test_screens_new_run import go_to, turn, write

from screens.host_run import HostRun
from screens.widgets.lines import Lines

pytestmark = needs_ssh


def test_n_on_the_hosts_screen_starts_a_job_on_the_host_under_the_cursor(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2")

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "n new run")
        seen.app.screen.query_one("#body", Lines).point_at(("host", "lab2"))
        await seen.press("n")
        await seen.until_shows("lab2 plans it when it starts", "--host lab2")
        assert seen.row_of("where").split()[1] == "lab2"
        await go_to(seen, "where")
        await seen.press("backspace")
        await seen.until_shows("to spare")
        assert "this machine" in seen.row_of("where")
        await turn(seen, "where", "lab2")
        await write(seen, "num_epochs", "1")
        await write(seen, "embedding_dim", "16")
        await seen.until_shows("--host lab2")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: ")
        await seen.press("x")
        await seen.until_shows("start it on lab2?")
        await seen.press("y")
        await seen.until(lambda: isinstance(seen.app.screen, HostRun), "the run's screen")
        await seen.until_shows("lab2:1 ", "started run lab2:1")
        dry = lab.kgops(*shlex.split(seen.app.clipboard)[1:], "--dry-run", "--json")
        assert dry.code == 0, dry.err

    look(lab.console.home, story, (160, 50))
    assert lab.there("lab2").ended(1).state == "succeeded"
    assert lab.there("lab1")("runs", "--json").json() == []
