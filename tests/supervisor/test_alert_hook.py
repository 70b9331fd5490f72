"""The command on_alert of hooks.toml is started once for each alert, by supervisors, without any screen open."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from driving import Console, wait_for
from nvml_standin import Machine, StandIn, t4
from records import add

from kgops.settings import Home
from kgops.supervisor.alert_hook import AlertHook
from storage import series
from storage.database import Connection

PRINTER = (
    "import json, os, sys\n"
    "facts = {k: v for k, v in os.environ.items() if k.startswith('KGOPS_')}\n"
    "open(sys.argv[1], 'a').write(json.dumps([sys.argv[2:], facts]) + '\\n')\n"
)


def hook(home: Path, told: Path) -> None:
    (home / "hooks.toml").write_text(
        f'on_alert = ["python3", "-c", {json.dumps(PRINTER)}, {json.dumps(str(told))}, "$(id); a  b"]\n'
    )


def heard(told: Path) -> list[dict[str, str]]:
    return [json.loads(line)[1] for line in told.read_text().splitlines()] if told.exists() else []


def test_a_hot_gpu_starts_the_hook_of_the_run_that_has_it(run_cli: Console, tmp_path: Path) -> None:
    told, standin = tmp_path / "told", StandIn(tmp_path)
    hook(run_cli.home, told)
    standin.show(Machine((replace(t4("GPU-a"), temperature=90), t4("GPU-b"))))
    gpus = gpus_of(standin)
    for gpu in ("1", "0"):
        run_cli("run", "exec", "--gpu", gpu, "--detach", "--label", "a `b`", "--", "sleep", "600", env=gpus)
    wait_for(lambda: heard(told), "the hook")
    assert json.loads(told.read_text().splitlines()[0])[0] == ["$(id); a  b"]
    facts = heard(told)[0]
    assert (facts["KGOPS_RUN"], facts["KGOPS_RUN_STATE"]) == ("2", "running")  # GPU 1 is cool
    assert (facts["KGOPS_ALERT"], facts["KGOPS_RUN_LABEL"]) == ("GPU", "a `b`")
    assert facts["KGOPS_ALERT_TEXT"].startswith("GPU 0 is hot")
    assert "KGOPS_TAG" not in facts
    run_cli("stop", "1", "2", env=gpus)
    assert [run.state for run in (run_cli.run(1), run_cli.run(2)) if run] == ["cancelled", "cancelled"]


def test_a_hook_that_goes_on_is_no_process_of_the_run(run_cli: Console, tmp_path: Path) -> None:
    started, standin = tmp_path / "started", StandIn(tmp_path)
    shell = f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600"
    (run_cli.home / "hooks.toml").write_text(f"on_alert = {json.dumps(['sh', '-c', shell])}\n")
    standin.show(Machine((replace(t4("GPU-a"), temperature=90),)))
    gpus = gpus_of(standin)
    until_started = ["sh", "-c", f"while ! [ -e {started} ]; do sleep .1; done"]
    run_cli("run", "exec", "--gpu", "0", "--detach", "--", *until_started, env=gpus)
    wait_for(lambda: (run := run_cli.run(1)) is not None and run.ended, "the run's end")
    run = run_cli.row(1)
    assert (run.state, run.reason) == ("succeeded", None)
    os.kill(int(started.read_text()), 9)  # alive until now


def gpus_of(standin: StandIn) -> dict[str, str]:
    own = standin.environment()
    return {name: own[name] for name in own if own[name] != os.environ.get(name)}


def stalled(conn: Connection) -> None:
    add(conn, 1, folder="0001-exec", submitted_at=1.0)
    reported_at = time.time() - 3600
    conn.execute(
        "UPDATE run SET state = 'running', rate = 2.0, done = 3, total = 9, reported_at = ? WHERE id = 1",
        (reported_at,),
    )


def test_a_run_that_stalls_starts_the_hook_once(conn: Connection, home: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook(home, told)
    stalled(conn)
    hooks = [AlertHook(Home(home), 1), AlertHook(Home(home), 1)]  # the second as after an adoption
    for one in (*hooks, *hooks):
        one.check(conn, ())
        wait_for(lambda one=one: not one.pids(), "the end of the hook")  # type: ignore[misc]
    assert [facts["KGOPS_ALERT"] for facts in heard(told)] == ["no progress"]
    conn.execute("UPDATE run SET reported_at = reported_at + 600 WHERE id = 1")  # went on, and stalled again
    hooks[0].check(conn, ())
    wait_for(lambda: not hooks[0].pids(), "the end of the hook")
    assert len(heard(told)) == 2


def test_a_run_that_diverges_starts_the_hook(conn: Connection, home: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook(home, told)
    stalled(conn)
    conn.execute("UPDATE run SET rate = NULL WHERE id = 1")
    series.append(conn, 1, [series.Point("loss", 1.0, None, 1.0)])
    one = AlertHook(Home(home), 1)
    one.check(conn, ())
    wait_for(lambda: not one.pids(), "the end of the hook")
    assert [(facts["KGOPS_ALERT"], facts["KGOPS_ALERT_TEXT"]) for facts in heard(told)] == [
        ("diverged", "diverged: loss became NaN or infinite")
    ]
