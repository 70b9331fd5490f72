"""What a person types and what comes of it: every verb, every exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest
from driving import QUICK, Console, all_of, identity_in, wait_for

from kgops.cli import COMMANDS, group
from kgops.cli import main as kgops
from kgops.runs import processes
from storage import attempts, runs
from storage.database import open_reader

HEAVY = ("torch", "numpy", "pykeen", "pandas", "sqlite_utils", "textual", "scipy")


# --- help -----------------------------------------------------------------------------------------


def parse(command: click.Command, name: str, args: list[str], parent: click.Context | None = None) -> None:
    """As click does before it calls anything; raises where the arguments are wrong."""
    ctx = command.make_context(name, list(args), parent=parent)
    rest = [*ctx._protected_args, *ctx.args]
    if isinstance(command, click.Group) and rest:
        _, sub, left = command.resolve_command(ctx, rest)
        assert sub is not None
        parse(sub, rest[0], left, ctx)


@pytest.mark.parametrize("words", [*([name] for name in COMMANDS), ["run", "exec"]], ids=" ".join)
def test_every_command_has_help_that_ends_with_a_runnable_example(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kgops([*words, "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    start = max((i for i, line in enumerate(lines) if "Example:" in line), default=None)
    assert start is not None, "no example"
    example = shlex.split(" ".join(lines[start:]).partition("Example:")[2])
    assert example[:2] == ["kgops", words[0]]
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    parse(command, words[0], example[2:])


def test_help_names_every_command_and_says_what_it_does(run_cli: Console) -> None:
    shown = run_cli("--help")
    assert shown.code == 0
    for name, summary in COMMANDS.items():
        assert f"\n  {name} " in shown.out
        assert summary in shown.out
    assert run_cli().out == shown.out


def test_console_commands_load_nothing_heavy(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    code = (
        "import sys\nfrom kgops.cli import main\n"
        "for args in (['--help'], ['runs'], ['runs', '--json'], ['show', '1'], ['logs', '1'], ['tag', '1', 'x']):\n"
        "    assert main(args) == 0, args\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=run_cli.environment(),
        cwd=run_cli.cwd,
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("HEAVY []\n"), done.stdout + done.stderr


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "state", "reason"),
    [
        ("exit 0", 0, "succeeded", None),
        ("exit 3", 1, "failed", "exit code 3"),
        ("kill -SEGV $$", 1, "failed", "crashed: SIGSEGV"),
        ("echo 'RuntimeError: CUDA out of memory.'; exit 1", 4, "out_of_memory", "CUDA out of memory"),
        ("kill -KILL $$", 5, "interrupted", "SIGKILL, which kgops did not send"),
        ("echo 'cp: No space left on device' >&2; exit 1", 1, "failed", "no space left on the disk"),
    ],
)
def test_exit_code_says_how_the_run_ended(
    run_cli: Console, script: str, code: int, state: str, reason: str | None
) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", script)
    assert done.code == code, done.err
    assert f"run 1 {state}" in done.out
    run = run_cli.run(1)
    assert run is not None
    assert run.state == state
    assert reason is None or reason in (run.reason or "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["run", "exce", "--", "true"], "did you mean 'exec'?"),
        (["run", "missing.toml"], "cannot read the job file missing.toml"),
        (["run", "exec", "--", "no-such-program-here"], "there is no program 'no-such-program-here'"),
        (["run", "exec", "--cwd", "/no/such/folder", "--", "true"], "does not exist"),
        (["run", "exec", "--gpu", "7", "--", "true"], "card"),
        (["run", "exec", "--on-oom", "batch=64", "--", "true"], "the command has no {batch} to replace"),
        (["run", "exec", "--metric-regex", "(", "--", "true"], "exec.metric_regex: not a regular expression"),
        (["run", "exec", "--grace", "-1", "--", "true"], "grace"),
        (["run", "exec", "--label", " ", "--", "true"], "label: must not be empty"),
        (["run", "exec", "--label", "x" * 101, "--", "true"], "label: longer than 100 characters"),
        (["run", "exec"], "Missing argument"),
        (["runs", "--sort", "lable"], "did you mean 'label'?"),
        (["runs", "--since", "yesterday"], "write 30m, 12h, 7d or 2w"),
        (["show", "1"], "there is no run 1"),
        (["show", "../../etc"], "is no run"),
        (["logs", "last"], "there is no run last"),
        (["stop", "99"], "there is no run 99"),
        (["tag", "1", "two words"], "a tag is one word"),
        (["note", "1", "  "], "the note is empty"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_exit_2_with_a_message_and_record_nothing(
    run_cli: Console, args: list[str], said: str
) -> None:
    done = run_cli(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ["runs", "--after", "9" * 30],
        ["runs", "--since", "9" * 400 + "w"],
        ["runs", "--search", "\udcff"],
        ["runs", "--tag", "\udcff"],
        ["run", "exec", "--tag", "\udcff", "--", "true"],
        ["run", "exec", "--tag", "two words", "--", "true"],
        ["run", "exec", "--label", "\udcff", "--", "true"],
        ["run", "exec", "--", "echo", "\udcff"],
        ["run", "exec", "--grace", "inf", "--", "true"],
        ["run", "exec", "--log-limit", "1e308", "--", "true"],
    ],
    ids=range(10),
)
def test_values_no_record_could_hold_are_mistakes_too(run_cli: Console, args: list[str]) -> None:
    done = run_cli(*args)
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


# --- starting -------------------------------------------------------------------------------------


def test_detached_run_prints_its_number_and_ends_by_itself(run_cli: Console) -> None:
    done = run_cli("run", "exec", "--detach", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.code, done.out) == (0, "1\n")
    assert run_cli.ended(1).state == "succeeded"
    assert run_cli("logs", "1").raw == b"out\nerr\n"


def test_followed_run_shows_its_log_on_stderr_and_its_end_on_stdout(run_cli: Console) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", "echo first; sleep 0.3; echo last")
    assert done.err == "first\nlast\n"
    assert done.out.startswith("run 1 succeeded")


def test_run_gets_null_stdin_its_folder_and_its_number(run_cli: Console) -> None:
    done = run_cli(
        *(
            "run",
            "exec",
            "--",
            "sh",
            "-c",
            'cat; echo "$KGOPS_RUN $KGOPS_ATTEMPT"; echo "$KGOPS_RUN_FOLDER"; pwd',
        ),
        input=b"never read",
    )
    assert done.err == f"1 1\n{run_cli.folder(1)}\n{run_cli.cwd}\n"


def test_dry_run_prints_a_job_that_can_be_run_and_records_nothing(run_cli: Console) -> None:
    args = ("run", "exec", "--label", 'odd "label" \\', "--on-oom", "n=4,2", "--grace", "2.5")
    shown = run_cli(*args, "--dry-run", "--", "echo", "{n}", "a b")
    assert shown.code == 0
    assert shown.out.endswith("# echo 4 'a b'\n")
    assert not list((run_cli.home / "runs").iterdir())
    table = tomllib.loads(shown.out)
    assert table["label"] == 'odd "label" \\'
    assert table["exec"]["on_oom"] == {"n": [4, 2]}
    (run_cli.cwd / "job.toml").write_text(shown.out)
    done = run_cli("run", "job.toml")
    assert (done.code, done.err) == (0, "4 a b\n")
    assert run_cli.show(1)["job"] == table


def test_flags_before_and_after_the_workload_mean_the_same(run_cli: Console) -> None:
    before = run_cli("run", "--label", "x", "--attempts", "3", "exec", "--dry-run", "--", "true")
    after = run_cli("run", "exec", "--dry-run", "--attempts", "3", "--label", "x", "--", "true")
    assert before.out == after.out
    assert 'label = "x"' in before.out


def test_job_file_of_this_folder_is_the_default_and_any_other_can_be_named(run_cli: Console) -> None:
    (run_cli.cwd / "kgops.toml").write_text('workload = "exec"\n[exec]\ncommand = ["echo", "default"]\n')
    (run_cli.cwd / "other.toml").write_text('workload = "exec"\n[exec]\ncommand = ["echo", "other"]\n')
    assert run_cli("run").err == "default\n"
    assert run_cli("run", "other.toml", "--label", "mine").err == "other\n"
    assert [run["label"] for run in run_cli("runs", "--json").json()] == ["mine", "echo default"]


def test_without_a_job_file_the_demo_is_the_default_job(run_cli: Console) -> None:
    shown = run_cli("run", "--dry-run")
    assert shown.code == 0
    assert "this is the demo" in shown.err
    assert tomllib.loads(shown.out)["workload"] in ("train", "pipeline")


def test_again_repeats_the_job_where_it_ran_before(run_cli: Console, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run_cli.cwd / "job.toml").write_text(
        'workload = "exec"\n[exec]\ncommand = ["sh", "-c", "pwd; exit 7"]\n'
    )
    first = run_cli("run", "job.toml", "--label", "probe")
    again = run_cli("run", "--again", "last", cwd=elsewhere)
    assert (again.code, again.err) == (first.code, first.err) == (1, f"{run_cli.cwd}\n")
    one, two = run_cli.show(1), run_cli.show(2)
    assert one["job"] == two["job"]
    assert two["label"] == "probe"


def test_unstartable_program_fails_with_what_the_system_said(run_cli: Console) -> None:
    program = run_cli.cwd / "broken"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = run_cli("run", "exec", "--", "./broken")
    assert done.code == 1
    assert "cannot start './broken'" in done.err


# --- reading --------------------------------------------------------------------------------------


def columns_of(conn: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}


def test_json_keys_are_the_columns_of_the_database(run_cli: Console, conn: sqlite3.Connection) -> None:
    events = [
        {"event": "metric", "name": "loss", "value": 0.5, "step": 1},
        {
            "event": "lever",
            "name": "precision",
            "requested": "fp16",
            "effective": "fp32",
            "reason": "no card",
        },
        {"event": "artifact", "path": "results/a.txt", "kind": "text", "bytes": 3},
        {"event": "note", "text": "hello"},
        {"event": "progress", "done": 1, "total": 2},
    ]
    script = "".join(f"echo {shlex.quote(json.dumps(event))} >> $KGOPS_EVENTS\n" for event in events)
    printed = run_cli("run", "exec", "--json", "--tag", "t", "--", "sh", "-c", script)
    assert printed.code == 0, printed.err
    run_cli("note", "1", "worth keeping")
    (listed,) = run_cli("runs", "--json").json()
    shown = run_cli.show(1)
    assert set(listed) == columns_of(conn, "run")
    assert set(listed) < set(shown)
    assert set(printed.json()) == set(shown)
    for table in ("attempt", "lever", "series", "event", "artifact", "note"):
        assert shown[table], f"{table} has no row"
        assert set(shown[table][0]) <= columns_of(conn, table)
    assert shown["tag"] == ["t"]
    assert {(e["kind"], e["body"].get("text")) for e in shown["event"]} >= {("note", "hello")}
    lever = shown["lever"][0]
    assert (lever["requested"], lever["effective"], lever["kind"]) == ("fp16", "fp32", "numeric")
    page = run_cli("show", "1").out
    for word in ("precision", "fp32", "no card", "loss", "results/a.txt", "worth keeping", "tags       t"):
        assert word in page


def test_listing_filters_sorts_and_pages(run_cli: Console, conn: sqlite3.Connection) -> None:
    for number, state in enumerate(["succeeded", "failed", "succeeded", "cancelled", "failed"], start=1):
        runs.add(
            conn,
            number=number,
            workload="exec",
            label=f"label {number}",
            profile=None,
            state="queued",
            folder=f"{number:04d}-exec",
            submitted_at=time.time() - 86400 * (5 - number) - 60,
            gpu=None,
            reserved_mib=None,
            exclusive=False,
            predicted_mib=None,
            spec=runs.RunSpec({}, {}, {}),
        )
        runs.end(conn, number, state=state, reason=None, exit_code=number, ended_at=time.time())

    def numbers(*args: str) -> list[int]:
        return [run["id"] for run in run_cli("runs", "--json", *args).json()]

    assert numbers() == [5, 4, 3, 2, 1]
    assert numbers("--state", "failed", "--state", "cancelled") == [5, 4, 2]
    assert numbers("--sort", "exit_code", "--ascending", "--limit", "2") == [1, 2]
    assert numbers("--sort", "exit_code", "--ascending", "--limit", "2", "--after", "2") == [3, 4]
    assert numbers("--since", "2d") == [5, 4]
    assert numbers("--search", "BEL 3") == [3]
    assert numbers("--workload", "train") == []
    limited = run_cli("runs", "--limit", "2")
    assert "--after 4" in limited.err
    assert "No run matches." in run_cli("runs", "--tag", "nothing").err


def test_before_the_first_run_listing_is_empty_and_makes_nothing(run_cli: Console, tmp_path: Path) -> None:
    fresh = {"KGOPS_HOME": str(tmp_path / "fresh")}
    assert run_cli("runs", "--json", env=fresh).out == "[]\n"
    assert "No runs yet" in run_cli("runs", env=fresh).err
    assert run_cli("show", "last", env=fresh).code == 2
    assert not (tmp_path / "fresh").exists()


def test_tags_notes_and_search_find_a_run_again(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "baseline", "--", "true")
    run_cli("run", "exec", "--label", "other", "--", "true")
    assert run_cli("tag", "1", "paper", "draft").out == "draft paper\n"
    assert run_cli("tag", "1", "--remove", "draft", "--json").json() == ["paper"]
    assert run_cli("note", "1", "the embedding of aspirin").code == 0
    assert [note["text"] for note in run_cli("note", "1", "--json").json()] == ["the embedding of aspirin"]
    for words in ("aspirin", "paper base", "PAPER", "se em", "%", "_", '"', "\\"):
        found = [run["id"] for run in run_cli("runs", "--json", "--search", words).json()]
        assert found == ([] if words in ("%", "_", '"', "\\") else [1]), words
    assert [run["id"] for run in run_cli("runs", "--json", "--tag", "paper").json()] == [1]


def test_delete_forgets_row_and_folder_and_never_gives_the_number_again(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run_cli("run", "exec", "--", "true")
    folder = run_cli.folder(2)
    refused = run_cli("delete", "2")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert run_cli("delete", "2", "--yes").out == "run 2 deleted\n"
    assert not folder.exists()
    assert run_cli("show", "2").code == 2
    assert run_cli.detach("true") == 3


def test_running_run_is_not_deleted(run_cli: Console) -> None:
    number = run_cli.detach("sleep", "60")
    run_cli.running(number)
    done = run_cli("delete", str(number), "--yes")
    assert (done.code, f"kgops stop {number}" in done.err) == (2, True)
    assert run_cli.folder(number).is_dir()


def test_reader_that_leaves_early_is_no_error(run_cli: Console) -> None:
    run_cli("run", "exec", "--", *QUICK, "for i in range(60000): print('line', i)")
    for args in ("logs 1", "runs --json", "show 1 --json", "logs 1 --grep line"):
        pipe = f"{shlex.join(run_cli.argv())} {args} | head -c 5; code=${{PIPESTATUS[0]}}; echo; echo $code"
        piped = subprocess.run(
            ["bash", "-c", pipe],
            env=run_cli.environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert piped.stderr == ""
        assert piped.stdout.splitlines()[-1] == "0", args


def test_terminal_that_knows_only_ascii_still_gets_an_answer(run_cli: Console) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = run_cli("run", "exec", "--label", "naïve – 測試", "--", "true", env=ascii_only)
    assert (done.code, done.err) == (0, "")
    assert "run 1 succeeded" in done.out
    assert run_cli("runs", env=ascii_only).code == 0
    assert run_cli.show(1)["label"] == "naïve – 測試"


# --- exec -----------------------------------------------------------------------------------------


def test_out_of_memory_steps_down_and_says_so(run_cli: Console) -> None:
    script = '[ "$1" = 16 ] && exit 0; echo "torch.OutOfMemoryError: CUDA out of memory at $1"; exit 1'
    done = run_cli(
        *("run", "exec", "--on-oom", "batch_size=64,32,16", "--", "sh", "-c", script, "sh", "{batch_size}")
    )
    assert done.code == 0, done.out + done.err
    assert "3 attempts" in done.out
    assert "after out of memory batch_size=16" in done.out
    shown = run_cli.show(1)
    assert [(a["outcome"], a["settings"]) for a in shown["attempt"]] == [
        ("out_of_memory", {"batch_size": 64}),
        ("out_of_memory", {"batch_size": 32}),
        ("succeeded", {"batch_size": 16}),
    ]
    assert [e["kind"] for e in shown["event"]] == ["step_down", "step_down"]
    assert shown["exit_code"] == 0


def test_out_of_memory_after_the_last_rung_exits_4(run_cli: Console) -> None:
    script = "echo 'RuntimeError: DefaultCPUAllocator: not enough memory: you tried'; exit 1"
    done = run_cli("run", "exec", "--on-oom", "n=2,1", "--", "sh", "-c", script, "sh", "{n}")
    assert done.code == 4
    assert [a["outcome"] for a in run_cli.show(1)["attempt"]] == ["out_of_memory"] * 2


def test_what_an_earlier_attempt_wrote_is_not_held_against_a_later_one(run_cli: Console) -> None:
    script = """[ $1 = 1 ] && exit 3
    echo 'CUDA out of memory'; echo '{"event": "out_of_memory", "detail": "tried 2 GiB"}' >> $KGOPS_EVENTS; exit 1"""
    done = run_cli("run", "exec", "--on-oom", "n=2,1", "--", "sh", "-c", script, "sh", "{n}")
    assert [(a["outcome"], a["exit_code"]) for a in run_cli.show(1)["attempt"]] == [
        ("out_of_memory", 1),
        ("failed", 3),
    ]
    assert done.code == 1


def test_values_for_out_of_memory_reach_the_command_as_they_were_typed(run_cli: Console) -> None:
    values = ("1e-3", "007", "1.50", "nan", "x", "4")
    for value in values:
        shown = run_cli("run", "exec", "--dry-run", "--on-oom", f"v={value},1", "--", "echo", "{v}")
        assert shown.out.splitlines()[-1] == f"# echo {value}"


def test_metrics_and_progress_are_read_from_the_log(run_cli: Console) -> None:
    script = "for i in 1 2 3; do echo \"step $i/3 loss=0.$i acc=9$i\"; done; echo 'loss=nan'"
    done = run_cli(
        *("run", "exec", "--progress-regex", r"step (?P<done>\d+)/(?P<total>\d+)"),
        *(
            "--metric-regex",
            r"step (?P<step>\d+).*loss=(?P<loss>\S+) acc=(?P<acc>\S+)",
            "--",
            "sh",
            "-c",
            script,
        ),
    )
    assert done.code == 0
    shown = run_cli.show(1)
    assert (shown["done"], shown["total"]) == (3, 3)
    assert {(s["name"], s["n"], s["last_step"], s["last_value"]) for s in shown["series"]} >= {
        ("loss", 3, 3, 0.3),
        ("acc", 3, 3, 93),
    }


def test_command_that_reports_events_itself_is_understood(run_cli: Console) -> None:
    script = """echo '{"event": "failed", "reason": "the data has no relation 7"}' >> $KGOPS_EVENTS; exit 1"""
    done = run_cli("run", "exec", "--", "sh", "-c", script)
    assert done.code == 1
    assert "the data has no relation 7" in done.out


# --- stopping -------------------------------------------------------------------------------------


def test_stop_asks_first_and_a_worker_that_answers_is_cancelled_not_succeeded(run_cli: Console) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    number = run_cli.detach("bash", "-c", script)
    log = run_cli.folder(number) / "worker.log"
    wait_for(lambda: b"ready" in log.read_bytes() if log.exists() else None, "the worker")
    done = run_cli("stop", str(number))
    assert (done.code, done.out) == (0, f"run {number}: cancelled\n")
    assert b"saved" in log.read_bytes()
    run = run_cli.run(number)
    assert run is not None
    assert (run.state, run.exit_code) == ("cancelled", 0)
    assert run_cli("run", "exec", "--", "true").code == 0  # nothing of it stands in the way


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def mark(name):
    with open(name + ".tmp", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(name + ".tmp", name)
def child(name, *, own_session=False, close=False, orphan=False, forget=False):
    if os.fork():
        os.wait() if orphan else None
        return
    if own_session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    if close:
        os.closerange(3, 4096)
    if forget:
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", FORGETFUL, name], {})
    mark(name)
    time.sleep(300)
    os._exit(0)
FORGETFUL = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); f = open(sys.argv[1] + '.tmp', 'w');" \\
    "print(os.getpid(), file=f); f.close(); os.rename(sys.argv[1] + '.tmp', sys.argv[1]); time.sleep(300)"
child("plain")
child("session", own_session=True)
child("closed", own_session=True, close=True)
child("orphan", own_session=True, close=True, orphan=True)
child("forgetful", own_session=True, orphan=True, forget=True)
child("ghost", own_session=True, close=True, orphan=True, forget=True)
mark("parent")
time.sleep(300)
"""
MEMBERS = ("plain", "session", "closed", "orphan", "forgetful", "ghost", "parent")


@pytest.mark.parametrize("through_a_link", [False, True], ids=["", "home is a symbolic link"])
def test_stop_ends_the_whole_tree_after_the_grace(
    run_cli: Console, tmp_path: Path, through_a_link: bool
) -> None:
    if through_a_link:
        link = tmp_path / "link"
        link.symlink_to(run_cli.home)
        env = {"KGOPS_HOME": str(link)}
    else:
        env = {}
    number = run_cli.detach(*QUICK, FAMILY, flags=("--grace", "0.3"), env=env)
    family = {name: identity_in(run_cli.cwd / name) for name in MEMBERS}
    try:
        done = run_cli("stop", str(number), env=env, timeout_s=15)
        left = [name for name, who in family.items() if who.is_alive()]
    finally:
        for who in family.values():
            processes.send(who, signal.SIGKILL)
    assert left == []
    assert done.out == f"run {number}: cancelled\n"
    wait_for(lambda: not all_of(run_cli.home), "the supervisor to leave")


def test_what_a_worker_leaves_running_ends_with_it(run_cli: Console) -> None:
    script = "setsid sleep 300 & echo $! > child; exit 0"
    number = run_cli.detach("sh", "-c", script)
    assert run_cli.ended(number).state == "succeeded"
    assert not Path(f"/proc/{(run_cli.cwd / 'child').read_text().strip()}").exists()


def test_grandchild_that_saves_its_work_gets_the_whole_grace(run_cli: Console) -> None:
    saving = "trap 'sleep 0.6; echo saved > saved; exit 0' TERM; echo > ready; while :; do sleep 0.05; done"
    (run_cli.cwd / "train.sh").write_text(saving)
    number = run_cli.detach("bash", "-c", "bash train.sh; echo over", flags=("--grace", "20"))
    wait_for((run_cli.cwd / "ready").exists, "the grandchild")
    begun = time.monotonic()
    assert run_cli("stop", str(number)).out == f"run {number}: cancelled\n"
    assert (run_cli.cwd / "saved").exists()
    assert time.monotonic() - begun < 15


def test_second_stop_with_less_grace_is_heeded(run_cli: Console) -> None:
    number = run_cli.detach("bash", "-c", "trap '' TERM; echo > ready; while :; do sleep 0.05; done")
    wait_for((run_cli.cwd / "ready").exists, "the worker")
    assert run_cli("stop", str(number), "--no-wait").out == f"run {number}: asked to stop\n"
    wait_for((run_cli.folder(number) / "attempts/1/asked-to-stop").exists, "the first request to be seen")
    done = run_cli("stop", str(number), "--grace", "0.1", timeout_s=15)
    assert done.out == f"run {number}: cancelled\n"


def test_resume_makes_a_new_attempt_in_the_same_run(run_cli: Console) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", "echo attempt $KGOPS_ATTEMPT; [ $KGOPS_ATTEMPT = 2 ]")
    assert done.code == 1
    resumed = run_cli("resume", "1")
    assert (resumed.code, resumed.err) == (0, "attempt 2\n")
    shown = run_cli.show(1)
    assert (shown["state"], shown["attempts"]) == ("succeeded", 2)
    assert [a["outcome"] for a in shown["attempt"]] == ["failed", "succeeded"]
    refused = run_cli("resume", "1")
    assert (refused.code, "--again 1" in refused.err) == (2, True)


# --- the queue ------------------------------------------------------------------------------------


def test_exclusive_run_waits_for_others_and_starts_by_itself(run_cli: Console) -> None:
    gate = run_cli.cwd / "gate"
    waiting = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.05; done"
    first = run_cli.detach("sh", "-c", waiting)
    second = run_cli.detach("sh", "-c", waiting)
    alone = run_cli.detach("true", flags=("--exclusive",))
    last = run_cli.detach("true")
    for number in (first, second):
        run_cli.running(number)
    states = {run["id"]: (run["state"], run["reason"]) for run in run_cli("runs", "--json").json()}
    assert states[alone] == ("queued", "this machine's processors to itself (in use by 1, 2)")
    assert states[last][0] == "queued"  # nobody overtakes
    gate.touch()
    ends = {number: run_cli.ended(number) for number in (first, second, alone, last)}
    assert [run.state for run in ends.values()] == ["succeeded"] * 4
    begun, before = ends[alone].started_at, [ends[first].ended_at, ends[second].ended_at]
    assert begun is not None
    assert all(end is not None and end <= begun for end in before)


def test_waiting_run_can_be_stopped(run_cli: Console) -> None:
    first = run_cli.detach("sleep", "60", flags=("--exclusive",))
    second = run_cli.detach("true")
    assert run_cli("stop", str(second)).out == f"run {second}: cancelled\n"
    assert run_cli("stop", str(first), "--grace", "5").out == f"run {first}: cancelled\n"
    assert run_cli.show(second)["attempts"] == 0


def test_waiting_run_whose_folder_is_gone_does_not_stop_the_others(run_cli: Console) -> None:
    first = run_cli.detach("sleep", "60", flags=("--exclusive",))
    lost = run_cli.detach("true")
    folder = run_cli.folder(lost)
    subprocess.run(["rm", "-r", str(folder)], check=True)
    listed = run_cli("runs", "--json")
    assert listed.code == 0, listed.err
    states = {run["id"]: run["state"] for run in listed.json()}
    assert states[lost] == "interrupted"
    assert run_cli("stop", str(first), "--grace", "5").code == 0
    assert run_cli("run", "exec", "--", "true").code == 0


# --- after a supervisor is killed -----------------------------------------------------------------


def attempts_of(run_cli: Console, number: int) -> list[attempts.Attempt]:
    conn = open_reader(run_cli.home / "kgops.db")
    try:
        return attempts.of_run(conn, number)
    finally:
        conn.close()


def kill_supervisor(run_cli: Console) -> None:
    (pid,) = {attempt.supervisor_pid for attempt in attempts_of(run_cli, 1)}
    who = processes.identify(pid or 0)
    assert who is not None
    processes.send(who, signal.SIGKILL)
    wait_for(lambda: not who.is_alive(), "the supervisor to die")


def test_out_of_memory_that_was_taken_in_survives_the_death_of_its_supervisor(run_cli: Console) -> None:
    script = """echo '{"event": "out_of_memory", "detail": "tried 2 GiB"}' >> $KGOPS_EVENTS
    while [ ! -e gate ]; do sleep 0.05; done; exit 1"""
    number = run_cli.detach("sh", "-c", script)
    wait_for(lambda: run_cli.show(number)["event"] or None, "the event in the database")
    kill_supervisor(run_cli)
    (run_cli.cwd / "gate").touch()
    run_cli("runs")
    run = run_cli.ended(number)
    assert (run.state, run.reason) == ("out_of_memory", "tried 2 GiB")


def test_following_a_log_ends_with_its_run_even_if_the_supervisor_was_killed(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", "echo one; while [ ! -e gate ]; do sleep 0.05; done; echo two")
    run_cli.running(number)
    kill_supervisor(run_cli)
    follower = run_cli.start("logs", "-f", str(number))
    (run_cli.cwd / "gate").touch()
    out, _ = follower.communicate(timeout=20)
    assert (out, follower.returncode) == (b"one\ntwo\n", 0)
    assert run_cli.ended(number).state == "succeeded"


def test_damaged_plan_of_an_orphaned_run_stops_no_command(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", "while [ ! -e gate ]; do sleep 0.05; done")
    run_cli.running(number)
    kill_supervisor(run_cli)
    (run_cli.folder(number) / "plan.json").write_text("{")
    assert (
        run_cli("runs").err
        == f"Note: run {number} had lost its supervisor and has a new one; its worker went on.\n"
    )
    assert run_cli("run", "exec", "--", "true").code == 0
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(number).state == "succeeded"
    assert [attempt.adoptions for attempt in attempts_of(run_cli, number)] == [1]


def test_summary_view_and_listing_agree(run_cli: Console, conn: sqlite3.Connection) -> None:
    run_cli("run", "exec", "--tag", "a", "--tag", "b", "--", "sh", "-c", "exit 2")
    row = conn.execute("SELECT id, state, reason, tags, exit_code FROM run_summary").fetchone()
    run = runs.get(conn, 1)
    assert run is not None
    shown = runs.as_table(run)
    assert row == (1, shown["state"], shown["reason"], "a b", shown["exit_code"])
    assert os.path.commonpath([run_cli.folder(1), run_cli.home]) == str(run_cli.home)
    assert all_of(run_cli.home) == set() or wait_for(lambda: not all_of(run_cli.home), "everybody to leave")


def test_a_misspelt_file_of_triples_is_told_at_once_and_nothing_is_started(run_cli: Console) -> None:
    done = run_cli("run", "train", "--train", "no-such-file.tsv")
    assert done.code == 2
    assert f"train.train: there is no file {run_cli.cwd / 'no-such-file.tsv'}" in done.err
    assert run_cli.run(1) is None
