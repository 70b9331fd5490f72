"""Disks that fill, homes that cannot be written, databases that are locked, and text that means harm:
a clear message, the right exit code, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from driving import QUICK, Console, Terminal, all_of, end_all_of, wait_for

from kgops.runs import processes
from storage import attempts, intake, reports, runs, series
from storage.database import open_reader, open_writer
from storage.errors import DatabaseFull

# --- disks ----------------------------------------------------------------------------------------


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 4096, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    def free(self) -> None:
        self._ballast.unlink()

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "kgops-test", str(path)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        end_all_of(path / "kgops")
        if subprocess.run(["umount", str(path)], capture_output=True).returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def on_disk(disk: Disk, tmp_path: Path) -> Iterator[Console]:
    """A console whose home is on the small disk, with one run that succeeded."""
    (tmp_path / "work").mkdir()
    console = Console(disk.path / "kgops", tmp_path / "work")
    assert console("run", "exec", "--label", "first", "--", "sh", "-c", "echo hello").code == 0
    wait_for(lambda: not all_of(console.home), "its supervisor to leave")
    yield console
    console.close()


def is_clear(text: str) -> bool:
    return text.count("Error: ") == 1 and "Hint: " in text and "Traceback" not in text


def files_of_runs(console: Console) -> set[str]:
    return {path.name for path in (console.home / "runs").iterdir()}


def test_full_disk_refuses_a_launch_and_leaves_nothing_half_made(disk: Disk, on_disk: Console) -> None:
    before = files_of_runs(on_disk)
    disk.fill()
    refused = on_disk("run", "exec", "--", "true")
    assert refused.code == 1
    assert is_clear(refused.err), refused.err
    assert "space" in refused.err
    listed = on_disk("runs", "--json")
    assert (listed.code, [run["label"] for run in listed.json()]) == (0, ["first"]), listed.err
    assert on_disk("logs", "1").out == "hello\n"
    disk.free()
    assert on_disk("run", "exec", "--label", "second", "--", "true").code == 0
    assert [run["label"] for run in on_disk("runs", "--json").json()] == ["second", "first"]
    assert len(files_of_runs(on_disk)) == len(before) + 1
    assert list((on_disk.home / "pending").iterdir()) == []


def test_first_command_on_a_full_disk_says_so(disk: Disk, tmp_path: Path) -> None:
    disk.fill()
    console = Console(disk.path / "kgops", tmp_path)
    refused = console("run", "exec", "--", "true")
    assert refused.code == 1
    assert is_clear(refused.err), refused.err
    disk.free()
    assert console("run", "exec", "--", "true").code == 0


@pytest.mark.parametrize("supervisor_dies", [False, True], ids=["", "and its supervisor dies"])
def test_end_on_a_full_disk_is_not_lost(disk: Disk, on_disk: Console, supervisor_dies: bool) -> None:
    point = """echo '{"event": "metric", "name": "loss", "value": 0.5, "step": 1}' >> $KGOPS_EVENTS"""
    script = f"{point}; while [ ! -e gate ]; do sleep 0.05; done; exit 7"
    number = on_disk.detach("sh", "-c", script)
    wait_for(lambda: on_disk.show(number)["series"] or None, "the first point")
    disk.fill()
    (on_disk.cwd / "gate").touch()
    gone = [who for who in all_of(on_disk.home) if not processes.is_supervisor(who.pid)]
    wait_for(lambda: not any(who.is_alive() for who in gone), "the worker to end")
    wait_for(
        lambda: (
            b"exit code 7" in (on_disk.folder(number) / "outcome.slot").read_bytes()
            or b"again" in (on_disk.folder(number) / "supervisor.log").read_bytes()
            or not all_of(on_disk.home)
        ),
        "the supervisor to decide",
    )
    if supervisor_dies:
        for who in all_of(on_disk.home):
            processes.send(who, signal.SIGKILL)
        looked = on_disk("runs")
        assert looked.code == 0, looked.err
        assert "Traceback" not in looked.err
    disk.free()
    if supervisor_dies:
        assert on_disk("runs").code == 0
    run = on_disk.ended(number)
    assert (run.state, run.exit_code, run.reason) == ("failed", 7, "exit code 7")
    assert [(s["name"], s["n"]) for s in on_disk.show(number)["series"] if s["name"] == "loss"] == [
        ("loss", 1)
    ]


def test_full_disk_in_the_middle_of_a_large_batch_is_told_as_such(disk: Disk) -> None:
    conn = open_writer(disk.path / "kgops.db")
    add_run(conn)
    points = [series.Point("loss", float(i), 0.5, 0.0) for i in range(400_000)]
    with pytest.raises(DatabaseFull):
        intake.take_in(conn, 1, 1, intake.Batch(points=points), intake.Offsets(9, 9))
    assert not conn.in_transaction
    assert intake.offsets(conn, 1) == intake.Offsets(0, 0)
    assert series.of_run(conn, 1) == []
    conn.close()


def add_run(conn: sqlite3.Connection) -> None:
    runs.add(
        conn,
        number=1,
        workload="exec",
        label="x",
        profile=None,
        state="queued",
        folder="0001-exec",
        submitted_at=0.0,
        gpu=None,
        reserved_mib=None,
        exclusive=False,
        predicted_mib=None,
        spec=runs.RunSpec({}, {}, {}),
    )


def test_read_only_home_can_still_be_read(disk: Disk, on_disk: Console) -> None:
    number = on_disk.detach("sleep", "300")
    on_disk.running(number)
    end_all_of(on_disk.home)
    disk.remount("ro")
    for args in (
        ["runs"],
        ["runs", "--json"],
        ["show", "1"],
        ["show", "last"],
        ["logs", "1"],
        ["tag", "1"],
        ["note", "1"],
    ):
        done = on_disk(*args)
        assert done.code == 0, (args, done.err)
        assert "Traceback" not in done.err
    assert on_disk("logs", "1").out == "hello\n"
    assert "may be old" in on_disk("runs").err
    for args in (["run", "exec", "--", "true"], ["tag", "1", "x"], ["delete", "1", "--yes"], ["stop", "1"]):
        refused = on_disk(*args)
        assert refused.code == 1, args
        assert is_clear(refused.err), refused.err
        assert "Read-only file system" in refused.err
    disk.remount("rw")
    assert {run["state"] for run in on_disk("runs", "--json").json()} == {"succeeded", "interrupted"}


def test_home_that_is_a_file_says_so(tmp_path: Path, run_cli: Console) -> None:
    (tmp_path / "file").touch()
    for args in (["run", "exec", "--", "true"], ["runs"]):
        done = run_cli(*args, env={"KGOPS_HOME": str(tmp_path / "file")})
        assert "Traceback" not in done.err
        assert done.code == (1 if args[0] == "run" else 0)


# --- the database ---------------------------------------------------------------------------------


def test_locked_database_blocks_no_worker_and_loses_nothing(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import json, os, time\n"
        "while not os.path.exists('gate'): time.sleep(0.01)\n"
        "with open(os.environ['KGOPS_EVENTS'], 'a', buffering=1) as file:\n"
        "    for i in range(200):\n"
        "        print(json.dumps({'event': 'metric', 'name': 'loss', 'value': i, 'step': i}), file=file)\n"
        "        time.sleep(0.003)\n"
        "open('done', 'w').close()\n"
    )
    number = run_cli.detach(*QUICK, worker)
    run_cli.running(number)
    locker = open_writer(run_cli.home / "kgops.db")
    locker.execute("BEGIN EXCLUSIVE")
    (tmp_path / "gate").touch()
    waiting = run_cli.start("run", "exec", "--detach", "--", "true")
    wait_for((tmp_path / "done").exists, "the worker, which waits for nobody")
    time.sleep(0.5)  # no proof: only so that the end of the run falls into the lock too
    assert run_cli("runs").code == 0  # readers do not wait
    locker.execute("ROLLBACK")
    locker.close()
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, out) == (0, b"2\n"), err
    assert run_cli.ended(number).state == "succeeded"
    assert run_cli.ended(2).state == "succeeded"
    conn = open_reader(run_cli.home / "kgops.db")
    assert [p.value for p in series.points(conn, number, "loss")] == list(range(200))
    conn.close()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("PRAGMA user_version = 99", "was written by a newer kgops (schema 99"),
        (None, "is damaged"),
    ],
    ids=["newer", "damaged"],
)
def test_database_that_is_not_ours_to_use_is_refused(run_cli: Console, harm: str | None, said: str) -> None:
    database = run_cli.home / "kgops.db"
    if harm is None:
        database.write_bytes(b"this is no database" * 1000)
    else:
        conn = sqlite3.connect(database)
        conn.execute(harm)
        conn.close()
    before = database.read_bytes()
    for args in (["runs"], ["runs", "--json"], ["show", "1"], ["run", "exec", "--", "true"], ["logs", "1"]):
        done = run_cli(*args)
        assert (done.code, done.out) == (1, ""), args
        assert is_clear(done.err), done.err
        assert said in done.err
    assert database.read_bytes() == before


# --- size -----------------------------------------------------------------------------------------


def peak_mib_until_the_end(console: Console, number: int) -> float:
    """Of the supervisor's resident memory, looked at until it leaves."""
    conn = open_reader(console.home / "kgops.db")
    (attempt,) = attempts.of_run(conn, number)
    conn.close()
    seen = [0.0]

    def left() -> bool:
        try:
            status = Path(f"/proc/{attempt.supervisor_pid}/status").read_text()
        except OSError:
            return True
        seen.extend(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        return False

    wait_for(left, "the supervisor to leave", 40)
    return max(seen)


def cpu_s_of(work: Callable[[], object]) -> float:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    work()
    return used() - before


def test_huge_logs_lines_and_events_cost_the_supervisor_no_memory(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import os, sys, time\n"
        "block = ''.join(f'step {i} of many\\n' for i in range(10_000))\n"
        "for _ in range(100): sys.stdout.write(block)\n"
        "print('x' * 10_000_000)\n"
        "print('the end', flush=True)\n"
        "with open(os.environ['KGOPS_EVENTS'], 'w') as events:\n"
        '    print(\'{"event": "note", "text": "\' + \'y\' * 10_000_000 + \'"}\', file=events)\n'
        '    print(\'{"event": "metric", "name": "after", "value": 1, "step": 1}\', file=events)\n'
        "open('written', 'w').close()\n"
        "while not os.path.exists('gate'): time.sleep(0.02)\n"
    )
    flags = ("--metric-regex", r"step (?P<never>\d+) of none")
    number = run_cli.detach(*QUICK, worker, flags=flags)
    wait_for((tmp_path / "written").exists, "the worker")
    (tmp_path / "gate").touch()
    assert 5 < peak_mib_until_the_end(run_cli, number) < 40
    assert run_cli.ended(number).state == "succeeded"

    huge = cpu_s_of(lambda: run_cli("logs", str(number), "-n", "5"))
    lines = run_cli("logs", str(number), "-n", "5").raw.splitlines()
    assert [line[:20] for line in lines] == [
        *(f"step {i} of many".encode() for i in (9997, 9998, 9999)),
        b"x" * 20,
        b"the end",
    ]
    small = cpu_s_of(lambda: run_cli("logs", "1", "-n", "0"))
    assert huge - small < 0.5
    assert run_cli("logs", str(number)).raw == (run_cli.folder(number) / "worker.log").read_bytes()
    assert run_cli("logs", str(number), "--grep", "the end").raw == b"the end\n"
    shown = run_cli.show(number)
    assert [s["n"] for s in shown["series"] if s["name"] == "after"] == [1]
    kinds = {(e["kind"], e["body"]["text"]) for e in shown["event"]}
    assert kinds == {("log", "(part of a line longer than 1 MiB left out)")}


def test_log_keeps_its_newest_part_and_says_which(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import os, sys, time\n"
        "for i in range(300_000): print(f'line {i:09d}')\n"
        "sys.stdout.flush()\n"
        "while not os.path.exists('gate'): time.sleep(0.02)\n"
        "print('the end')\n"
    )
    number = run_cli.detach(*QUICK, worker, flags=("--log-limit", "1"))
    log = run_cli.folder(number) / "worker.log"
    wait_for(lambda: (log.exists() and log.stat().st_size == 300_000 * 15) or None, "the log")
    try:
        wait_for(lambda: log.stat().st_blocks * 512 <= 1 << 20, "the old part to go")
    except AssertionError:
        pytest.skip("this file system cannot give back a part of a file")
    (tmp_path / "gate").touch()
    run_cli.ended(number)
    kept = run_cli("logs", str(number)).raw
    assert b"\0" not in kept
    assert kept.endswith(b"line 000299999\nthe end\n")
    assert 1 << 18 < len(kept) <= 1 << 20


# --- text -----------------------------------------------------------------------------------------

EVIL = (
    "\x1b]52;c;aGk=\x07\x1b[2J\x1b]0;title\x07\x9b2J\x9d52;c;aGk=\x9c\u202e\u2066"
    "[bold]x[/bold][@click=app.quit]:warning:"
)
RAW = (
    *(b"\x1b]", b"\x1b[2J", b"\x1bP", b"\x07", b"\x9b2J"),
    *(c.encode() for c in "\x9b\x9c\x9d\u202e\u2066"),
)
LITERAL = b"[bold]x[/bold]"


def harmful(shown: bytes) -> list[bytes]:
    return [raw for raw in RAW if raw in shown]


def events_that_mean_harm() -> str:
    events: list[dict[str, object]] = [
        {"event": "metric", "name": EVIL, "value": 1, "step": 1},
        {"event": "progress", "phase": EVIL, "done": 1, "total": 2, "unit": EVIL, "rate": 1},
        {"event": "lever", "name": EVIL, "requested": EVIL, "effective": EVIL, "reason": EVIL},
        {"event": "artifact", "path": f"results/{EVIL}", "kind": EVIL},
        {"event": "failed", "reason": EVIL},
    ]
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)


def test_text_from_outside_never_reaches_a_terminal_raw(
    run_cli: Console, open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "events").write_text(events_that_mean_harm())
    (tmp_path / "log").write_bytes(EVIL.encode() + b"\n\xff\xfe\x9b2J\x1b[2J\xf0\x9f no newline")
    script = "cat events >> $KGOPS_EVENTS; cat log; sleep 1.2; exit 1"
    followed = open_terminal(
        *("run", "exec", "--label", EVIL, "--tag", EVIL.replace("\x9d", ""), "--", "sh", "-c", script)
    )
    assert followed.wait() == 1
    assert harmful(followed.seen) == []
    assert LITERAL in followed.seen
    assert run_cli("note", "1", EVIL).code == 0
    for args in (
        "runs",
        "show 1",
        "note 1",
        "tag 1",
        "logs 1",
        "logs 1 --grep bold",
        "show 1 --json",
        "runs --json",
    ):
        terminal = open_terminal(*args.split())
        assert terminal.wait() == 0, terminal.seen
        assert harmful(terminal.seen) == [], args
        assert LITERAL in terminal.seen, args
        terminal.close()
    assert run_cli("logs", "1").raw == (tmp_path / "log").read_bytes()
    assert run_cli.show(1)["label"] == EVIL


def test_job_file_that_means_harm_cannot_speak_to_the_terminal(
    open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    command = json.dumps(["echo", EVIL], ensure_ascii=True)
    (tmp_path / "job.toml").write_text(f'workload = "exec"\n[exec]\ncommand = {command}\n')
    dry = open_terminal("run", "job.toml", "--dry-run")
    assert dry.wait() == 0
    assert harmful(dry.seen) == []
    assert LITERAL in dry.seen
    wrong = json.dumps(EVIL)
    (tmp_path / "bad.toml").write_text(
        f"workload = {wrong}\nlabel = 3\n{wrong} = {wrong}\n[levers]\n{wrong} = 1\n"
    )
    bad = open_terminal("run", "bad.toml")
    assert bad.wait() == 2
    assert harmful(bad.seen) == []
    assert b"4 problems" in bad.seen
    assert b"[bold]" in bad.seen


def test_invalid_utf8_from_a_worker_is_kept_as_it_came(run_cli: Console) -> None:
    raw = b"caf\xe9 \xff\xfe\xc3\x28 \x00 end\r\n50%\r100%\rdone"
    event = b'{"event": "note", "text": "\xff"}\n\xfe\xfe\n{"event": "note", "text": "good"}\n'
    worker = f"import os, sys\nos.write(1, {raw!r})\nopen(os.environ['KGOPS_EVENTS'], 'wb').write({event!r})"
    assert run_cli("run", "exec", "--", *QUICK, worker).code == 0
    assert run_cli("logs", "1").raw == raw
    kinds = [(e["kind"], e["body"]["text"]) for e in run_cli.show(1)["event"]]
    assert kinds == [
        ("log", '{"event": "note", "text": "\ufffd"}'),
        ("log", "\ufffd\ufffd"),
        ("note", "good"),
    ]


def test_names_never_become_a_shell_command_or_a_path(run_cli: Console, tmp_path: Path) -> None:
    name = "$(touch pwned); `touch pwned` '; DROP TABLE run; -- ../../../etc \" | touch pwned"
    done = run_cli("run", "exec", "--label", name, "--tag", "../../x", "--", "echo", name)
    assert (done.code, done.err) == (0, f"{name}\n")
    assert run_cli.folder(1).parent == run_cli.home / "runs"
    assert run_cli("runs", "--json", "--search", "'; DROP TABLE run").json()[0]["label"] == name
    assert run_cli("runs", "--sort", "id; DROP TABLE run").code == 2
    assert not (tmp_path / "pwned").exists()


def test_job_file_of_wrong_types_exits_2_with_all_its_problems(run_cli: Console, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'workload = "exec"\nlabel = 3\nlevels = 1\n[exec]\ncommand = "echo hi"\nprogress_regex = "("\n'
        '[card]\nexclusive = "yes"\n[limits]\nattempts = 1.5\ngrace_s = "long"\n[levers]\nprecison = "fp16"\n'
    )
    done = run_cli("run", "job.toml")
    assert (done.code, done.out) == (2, "")
    for problem in (
        "label: expected text, found the number 3",
        "levels: no such key; did you mean 'levers'?",
        "exec.command: expected a list of texts, found the text 'echo hi'",
        "exec.progress_regex: not a regular expression",
        "card.exclusive: expected true or false",
        "limits.attempts: expected a whole number",
        "limits.grace_s: expected a number",
        "levers.precison: no such lever; did you mean 'precision'?",
    ):
        assert problem in done.err
    assert "8 problems" in done.err
    assert files_of_runs(run_cli) == set()


# --- secrets and modes ----------------------------------------------------------------------------

SECRETS = {
    "HF_TOKEN": "hunter1-in-the-environment",
    "my_api_key": "hunter2-in-the-environment",
    "CLIENT_SECRET_2": "hunter3-in-the-environment",
    "PGPASSWORD": "hunter4-in-the-environment",
}
ARGUMENTS = (
    *("--api-key", "hunter5-in-the-arguments"),
    "--token=hunter6-in-the-arguments",
    "DB_PASSWORD=hunter7-in-the-arguments",
    *("-password", "hunter8-in-the-arguments"),
)


def test_secrets_are_in_no_file_once_the_run_has_ended(run_cli: Console, tmp_path: Path) -> None:
    script = (
        "export API_KEY=hunter9-in-a-script OTHER_TOKEN='hunter10 in a script'\n"
        'while [ ! -e gate ]; do sleep 0.05; done; env > seen; echo "$@" >> seen'
    )
    number = run_cli.detach("sh", "-c", script, "sh", *ARGUMENTS, env=SECRETS)
    run_cli.running(number)
    private = run_cli.folder(number) / "private.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    for who in all_of(run_cli.home):
        if processes.is_supervisor(who.pid):
            assert b"hunter" not in Path(f"/proc/{who.pid}/cmdline").read_bytes()
    printed = (
        run_cli("runs", "--json").out + run_cli("show", str(number), "--json").out + run_cli("show", "1").out
    )
    assert "hunter" not in printed
    assert "HF_TOKEN" in printed  # that there was one may be known
    (tmp_path / "gate").touch()
    assert run_cli.ended(number).state == "succeeded"
    seen = (tmp_path / "seen").read_text()  # the worker itself got them all
    for secret in (*SECRETS.values(), *ARGUMENTS):
        assert secret in seen
    assert not private.exists()
    for path in run_cli.home.rglob("*"):
        assert "hunter" not in path.name
        if path.is_file():
            assert b"hunter" not in path.read_bytes(), path
    again = run_cli("run", "--again", str(number))
    assert (again.code, is_clear(again.err)) == (2, True)
    assert run_cli("resume", str(number)).code == 2


def test_home_and_all_in_it_are_private_whatever_the_umask(run_cli: Console, tmp_path: Path) -> None:
    home = tmp_path / "fresh"
    home.mkdir(mode=0o755)
    script = """echo '{"event": "note", "text": "x"}' > $KGOPS_EVENTS; echo out; sleep 0.3"""
    argv = shlex.join(run_cli.argv("run", "exec", "--", "sh", "-c", script))
    subprocess.run(
        ["sh", "-c", f"umask 022; exec {argv}"],
        env=run_cli.environment({"KGOPS_HOME": str(home)}),
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    paths = list(home.rglob("*"))
    assert {"kgops.db", "worker.log", "events.jsonl", "job.toml", "supervisor.log"} <= {
        path.name for path in paths
    }
    for path in paths:
        with suppress(FileNotFoundError):  # a journal goes with whoever closes the database last
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    wait_for(lambda: not all_of(home), "the supervisor to leave")


def test_working_folder_that_was_removed_is_named(run_cli: Console, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    argv = shlex.join(run_cli.argv("run", "exec", "--", "true"))
    done = subprocess.run(
        ["sh", "-c", f"rmdir {shlex.quote(str(lost))}; exec {argv}"],
        env=run_cli.environment(),
        capture_output=True,
        text=True,
        cwd=lost,
    )
    assert done.returncode == 2, done.stderr
    assert is_clear(done.stderr), done.stderr


def test_events_that_cannot_be_stored_end_nothing(run_cli: Console, conn: sqlite3.Connection) -> None:
    events = [
        '{"event": "memory", "mib": {"weights": 1' + "0" * 400 + ', "other": 12.5, "text": "x", "nan": NaN}}',
        '{"event": "metric", "name": "huge", "value": 1' + "0" * 400 + ', "step": 1}',
        '{"event": "metric", "name": "\\ud800", "value": 1, "step": 1}',
        '{"event": "artifact", "path": "../../etc/passwd"}',
        '{"event": "artifact", "path": "results/x", "bytes": 1e300}',
        "[" * 100_000,
        '{"event": "metric", "name": "good", "value": 1, "step": 2}',
    ]
    (run_cli.cwd / "events").write_text("\n".join(events))
    assert run_cli("run", "exec", "--", "sh", "-c", "cat events > $KGOPS_EVENTS").code == 0
    names = {one.name: one.last_value for one in series.of_run(conn, 1)}
    assert names["good"] == 1
    assert names["other_mib"] == 12.5
    assert "weights_mib" not in names
    assert [a.path for a in reports.artifacts(conn, 1)] == ["results/x"]
    assert sys.getsizeof(reports.events(conn, 1)) < 10_000
    assert os.path.getsize(run_cli.home / "kgops.db") < 1 << 20  # noqa: PTH202
    assert time.time() - (runs.latest(conn) or pytest.fail()).submitted_at < 60
