"""Text from outside may hold anything: it never becomes a terminal escape, markup, a shell command or a path."""

import json
from collections.abc import Callable
from pathlib import Path

from driving import QUICK, Console, Terminal, files_of_runs

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
        {"event": "option", "name": EVIL, "requested": EVIL, "applied": EVIL, "reason": EVIL},
        {"event": "artifact", "path": f"results/{EVIL}", "kind": EVIL},
        {"event": "note", "text": EVIL},
        {
            "event": "attribution",
            "test": 1,
            "triple": [EVIL] * 3,
            "influences": [[1, *[EVIL] * 3, 0.5]],
            "names": {EVIL: EVIL},
        },
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
    assert run_cli("logs", "1", "--raw").raw == (tmp_path / "log").read_bytes()
    assert run_cli.show(1)["label"] == EVIL


def test_text_from_outside_never_reaches_a_pipe_raw(run_cli: Console, tmp_path: Path) -> None:
    """It may end on a terminal: `kgops logs 1 | less -R`."""
    (tmp_path / "events").write_text(events_that_mean_harm())
    log = EVIL.encode() + b"\n\xff\xfe\x9b2J\x1b[2J\xf0\x9f no newline"
    (tmp_path / "log").write_bytes(log)
    script = "cat events >> $KGOPS_EVENTS; cat log; exit 1"
    run = run_cli("run", "exec", "--label", EVIL, "--", "sh", "-c", script)
    assert harmful(run.raw + run.err.encode()) == []
    assert run_cli("note", "1", EVIL).code == 0
    commands = (
        *(
            "logs 1",
            "logs 1 -n 5",
            "logs 1 -f",
            "logs 1 --grep bold",
            "logs 1 --level info",
            "runs",
            "show 1",
        ),
        *("show 1 --json", "note 1", "tag 1", "runs --csv", "runs --json", "bench show", "resume 1"),
        *(
            "compare 1 2 --all",
            "report 1 --output /dev/stdout --force",
            "export 1 --to json --output /dev/stdout",
        ),
        *("influences 1", "influences 1 --json", "stop 1", "delete 2 --yes"),
    )
    run_cli("run", "exec", "--label", EVIL, "--", "true")
    for words in commands:
        done = run_cli(*words.split())
        assert "Traceback" not in done.err
        assert harmful(done.raw + done.err.encode()) == [], words
    assert run_cli("export", "1", "--to", "csv", "--output", "tables").code == 0
    assert [harmful(path.read_bytes()) for path in (tmp_path / "tables").iterdir()] == [[], [], []]
    for flags in ((), ("--grep", "bold"), ("-f",)):
        assert log.splitlines()[0] in run_cli("logs", "1", "--raw", *flags).raw


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
        f"workload = {wrong}\nlabel = 3\n{wrong} = {wrong}\n[options]\n{wrong} = 1\n"
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
    assert run_cli("logs", "1", "--raw").raw == raw
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
        'workload = "exec"\nlabel = 3\noptoins = 1\n[exec]\ncommand = "echo hi"\nprogress_regex = "("\n'
        '[gpu]\nexclusive = "yes"\n[limits]\nattempts = 1.5\ngrace_s = "long"\n[options]\nprecison = "fp16"\n'
    )
    done = run_cli("run", "job.toml")
    assert (done.code, done.out) == (2, "")
    for problem in (
        "label: expected text, found the number 3",
        "optoins: no such key; did you mean 'options'?",
        "exec.command: expected a list of texts, found the text 'echo hi'",
        "exec.progress_regex: not a regular expression",
        "gpu.exclusive: expected true or false",
        "limits.attempts: expected a whole number",
        "limits.grace_s: expected a number",
        "options.precison: no such option; did you mean 'precision'?",
    ):
        assert problem in done.err
    assert "8 problems" in done.err
    assert files_of_runs(run_cli) == set()
