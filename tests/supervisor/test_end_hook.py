"""The command of hooks.toml is started when a run ends, with the run's facts and without a shell."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from driving import Console, all_of, wait_for

from kgops.supervisor import processes

PRINTER = (
    "import json, os, sys\n"
    "facts = {k: v for k, v in os.environ.items() if k.startswith('KGOPS_')}\n"
    "open(sys.argv[1] + '.new', 'w').write(json.dumps([sys.argv[2:], facts]))\n"
    "os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
)


def test_a_hook_gets_the_facts_of_the_run_and_its_words_as_they_are(run_cli: Console, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (run_cli.home / "hooks.toml").write_text(
        f'on_end = ["python3", "-c", {json.dumps(PRINTER)}, {json.dumps(str(told))}, "$(id); a  b"]\n'
    )
    run_cli("run", "exec", "--label", "it's; `x`", "--", "sh", "-c", "exit 3")
    wait_for(told.exists, "the hook")
    words, facts = json.loads(told.read_text())
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
    killed = run_cli.detach("sleep", "300", flags=("--exclusive",))
    run_cli.running(killed)
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
