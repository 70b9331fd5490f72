"""The commands of hooks.toml are started when a run ends and for each alert, with the run's facts and without a shell,
without any screen open."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, all_of, wait_for
from nvml_standin import Machine, StandIn, t4
from records import add

from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.alert_hook import AlertHook
from storage import series
from storage.database import Connection

PRINTER = (
    "import json, os, sys\n"
    "facts = {k: v for k, v in os.environ.items() if k.startswith('KGOPS_')}\n"
    "open(sys.argv[1], 'a').write(json.dumps([sys.argv[2:], facts]) + '\\n')\n"
)


def hook(home: Path, name: str) -> Path:
    """The file that each start of the hook adds a line to."""
    told = home / "told"
    (home / "hooks.toml").write_text(
        f'{name} = ["python3", "-c", {json.dumps(PRINTER)}, {json.dumps(str(told))}, "$(id); a  b"]\n'
    )
    return told


def heard(told: Path) -> list[tuple[list[str], dict[str, str]]]:
    """The words and the facts of each start."""
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_hook_gets_the_facts_of_the_run_and_its_words_as_they_are(run_cli: Console) -> None:
    told = hook(run_cli.home, "on_end")
    run_cli("run", "exec", "--label", "it's; `x`", "--", "sh", "-c", "exit 3")
    words, facts = wait_for(lambda: heard(told), "the hook")[0]
    assert words == ["$(id); a  b"]
    assert facts["KGOPS_RUN"] == "1"
    assert (facts["KGOPS_RUN_STATE"], facts["KGOPS_RUN_EXIT_CODE"]) == ("failed", "3")
    assert facts["KGOPS_RUN_LABEL"] == "it's; `x`"
    assert facts["KGOPS_RUN_PEAK_GPU_MIB"] == ""  # unknown
    assert Path(facts["KGOPS_RUN_FOLDER"]) == run_cli.folder(1)
    assert "KGOPS_TAG" not in facts and "KGOPS_SUPERVISOR" not in facts


def test_a_hook_is_started_by_the_process_that_records_the_end(run_cli: Console, tmp_path: Path) -> None:
    """A command does where no supervisor is left: of a run that waited, or whose processes were killed."""
    ends = tmp_path / "ends"
    script = f'echo "$KGOPS_RUN $KGOPS_RUN_STATE" >> {ends}; echo heard'
    (run_cli.home / "hooks.toml").write_text(f"on_end = {json.dumps(['sh', '-c', script])}\n")
    killed = run_cli.going("sleep", "300", flags=("--exclusive",))
    waiting = run_cli.detach("true")
    assert run_cli("stop", str(waiting)).code == 0
    wait_for(ends.exists, "the hook of the run that waited")
    assert ends.read_text() == f"{waiting} cancelled\n"
    for who in all_of(run_cli.home):
        processes.send(who, signal.SIGKILL)
    run_cli("runs")
    wait_for(lambda: f"{killed} interrupted" in ends.read_text(), "the hook of the killed run")
    assert "heard" in (run_cli.folder(killed) / "supervisor.log").read_text()


def test_a_hook_ends_at_the_first_signal(run_cli: Console, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = ["sh", "-c", f"echo $$ > {pid}; exec sleep 300"]
    (run_cli.home / "hooks.toml").write_text(f"on_end = {json.dumps(words)}\n")
    run_cli("run", "exec", "--", "true")
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), "the hook")
    hook = processes.identify(int(pid.read_text()))
    assert hook is not None
    processes.send(hook, signal.SIGTERM)
    wait_for(lambda: not hook.is_alive(), "the hook to end")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('on_end = "echo hello"', "must be a list of words"),
        ("on_end = [", "cannot be read"),
        ('on_end = ["/no/such/program"]', "cannot be started"),
        ('on_ende = ["true"]', "nothing starts 'on_ende'; the names are on_end and on_alert"),
    ],
)
def test_a_broken_hook_is_logged_and_changes_nothing_of_the_run(
    run_cli: Console, text: str, said: str
) -> None:
    (run_cli.home / "hooks.toml").write_text(text)
    assert run_cli("run", "exec", "--", "true").code == 0
    log = run_cli.folder(1) / "supervisor.log"
    wait_for(lambda: log.exists() and said in log.read_text(), "the supervisor's message")
    run = run_cli.row(1)
    assert run.state == "succeeded"


def test_doctor_says_what_is_wrong_with_hooks(run_cli: Console) -> None:
    hooks = run_cli.home / "hooks.toml"
    hooks.write_text('on_end = ["true"]\n')
    assert _of_hooks(run_cli) == {"subject": "hooks", "level": "ok", "found": "on_end", "advice": None}
    hooks.write_text('on_exit = ["true"]\n')
    found = _of_hooks(run_cli)
    assert found["level"] == "trouble" and "'on_exit'" in found["found"]


def _of_hooks(run_cli: Console) -> dict[str, str]:
    findings: list[dict[str, str]] = run_cli("doctor", "--json").json()
    return next(one for one in findings if one["subject"] == "hooks")


def test_hostile_hooks_file_is_named_and_no_end_waits_for_it(run_cli: Console) -> None:
    hooks = run_cli.home / "hooks.toml"
    for text, said in (
        ("a = " + "[" * 100_000, "nested too deeply"),
        ('on_end = ["a\\u0000b"]', "on_end"),
        (None, ""),
    ):
        hooks.unlink(missing_ok=True)
        if text is None:
            os.mkfifo(hooks)  # reading it would wait for ever
        else:
            hooks.write_text(text)
        assert run_cli("run", "exec", "--", "true").code == 0
        found = {one["subject"]: one for one in run_cli("doctor", "--json").json()}["hooks"]
        assert found["level"] == "trouble" and said in found["found"]


# --- alerts -----------------------------------------------------------------------------------------


def test_a_hot_gpu_starts_the_hook_of_the_run_that_has_it(run_cli: Console, standin: StandIn) -> None:
    told = hook(run_cli.home, "on_alert")
    standin.show(Machine((replace(t4("GPU-a"), temperature=90), t4("GPU-b"))))
    gpus = standin.variables()
    for gpu in ("1", "0"):
        run_cli("run", "exec", "--gpu", gpu, "--detach", "--label", "a `b`", "--", "sleep", "600", env=gpus)
    wait_for(lambda: heard(told), "the hook")
    words, facts = heard(told)[0]
    assert words == ["$(id); a  b"]
    assert (facts["KGOPS_RUN"], facts["KGOPS_RUN_STATE"]) == ("2", "running")  # GPU 1 is cool
    assert (facts["KGOPS_ALERT"], facts["KGOPS_RUN_LABEL"]) == ("GPU", "a `b`")
    assert facts["KGOPS_ALERT_TEXT"].startswith("GPU 0 is hot")
    assert "KGOPS_TAG" not in facts
    run_cli("stop", "1", "2", env=gpus)
    assert [run.state for run in (run_cli.run(1), run_cli.run(2)) if run] == ["cancelled", "cancelled"]


def test_a_hook_that_goes_on_is_no_process_of_the_run(
    run_cli: Console, standin: StandIn, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    shell = f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600"
    (run_cli.home / "hooks.toml").write_text(f"on_alert = {json.dumps(['sh', '-c', shell])}\n")
    standin.show(Machine((replace(t4("GPU-a"), temperature=90),)))
    gpus = standin.variables()
    until_started = ["sh", "-c", f"while ! [ -e {started} ]; do sleep .1; done"]
    run_cli("run", "exec", "--gpu", "0", "--detach", "--", *until_started, env=gpus)
    wait_for(lambda: (run := run_cli.run(1)) is not None and run.ended, "the run's end")
    run = run_cli.row(1)
    assert (run.state, run.reason) == ("succeeded", None)
    os.kill(int(started.read_text()), 9)  # alive until now


def stalled(conn: Connection) -> None:
    add(conn, 1, folder="0001-exec", submitted_at=1.0)
    reported_at = time.time() - 3600
    conn.execute(
        "UPDATE run SET state = 'running', rate = 2.0, done = 3, total = 9, reported_at = ? WHERE id = 1",
        (reported_at,),
    )


def test_a_run_that_stalls_starts_the_hook_once(conn: Connection, home: Path) -> None:
    told = hook(home, "on_alert")
    stalled(conn)
    hooks = [AlertHook(Home(home), 1), AlertHook(Home(home), 1)]  # the second as after an adoption
    for one in (*hooks, *hooks):
        one.check(conn, ())
        wait_for(lambda one=one: not one.pids(), "the end of the hook")  # type: ignore[misc]
    assert [facts["KGOPS_ALERT"] for _, facts in heard(told)] == ["no progress"]
    conn.execute("UPDATE run SET reported_at = reported_at + 600 WHERE id = 1")  # went on, and stalled again
    hooks[0].check(conn, ())
    wait_for(lambda: not hooks[0].pids(), "the end of the hook")
    assert len(heard(told)) == 2


def test_a_run_that_diverges_starts_the_hook(conn: Connection, home: Path) -> None:
    told = hook(home, "on_alert")
    stalled(conn)
    conn.execute("UPDATE run SET rate = NULL WHERE id = 1")
    series.append(conn, 1, [series.Point("loss", 1.0, None, 1.0)])
    one = AlertHook(Home(home), 1)
    one.check(conn, ())
    wait_for(lambda: not one.pids(), "the end of the hook")
    assert [(facts["KGOPS_ALERT"], facts["KGOPS_ALERT_TEXT"]) for _, facts in heard(told)] == [
        ("diverged", "diverged: loss became NaN or infinite")
    ]
