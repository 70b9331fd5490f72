"""Output that is full, closed or gone, and signals at any moment: a sentence and an exit code, never a traceback."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Terminal, patience

FULL = "Error: the output cannot be written: no space left on device\n"
CLOSED = "Error: the output cannot be written: it is closed\n"


def with_streams(run_cli: Console, words: str, redirected: str) -> subprocess.CompletedProcess[str]:
    """What the command says and how it ends, its streams redirected as a shell does it."""
    line = f"exec {shlex.join(run_cli.argv(*words.split()))} {redirected}"
    return subprocess.run(
        ["bash", "-c", line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=run_cli.environment(),
        cwd=run_cli.cwd,
        timeout=patience(),
    )


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Console:
    """With a run of many lines that has ended."""
    console = Console(tmp_path_factory.mktemp("home") / "kgops", tmp_path_factory.mktemp("cwd"))
    console.must("run", "exec", "--", "seq", "100000")
    return console


@pytest.mark.parametrize(
    "words", ["--help", "--version", "runs", "runs --json", "show 1", "logs 1", "doctor"]
)
def test_output_that_cannot_be_written_is_one_sentence(console: Console, words: str) -> None:
    for redirected, told in ((">/dev/full", FULL), (">&-", CLOSED)):
        done = with_streams(console, words, redirected)
        assert (done.returncode, done.stderr) == (1, told)
        assert with_streams(console, words, f"{redirected} 2>&-").returncode == 1
        assert with_streams(console, words, f"{redirected} 2>/dev/full").returncode == 1


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 1)])
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
def test_a_run_ends_as_it_ended_whoever_hears_of_it(
    run_cli: Console, command: str, code: int, redirected: str
) -> None:
    for words in (f"run exec -- {command}", f"run exec --json -- {command}"):
        done = with_streams(run_cli, words, redirected)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert done.stderr.count("Warning: the output could not be written") == ("2>" not in redirected)
    assert with_streams(run_cli, "resume 1", redirected).returncode == (code if command == "false" else 2)


def test_a_run_that_is_left_alone_has_started_whoever_hears_it(run_cli: Console) -> None:
    done = with_streams(run_cli, "run exec --detach -- true", ">/dev/full")
    assert done.returncode == 0
    assert "could not be written" in done.stderr
    assert run_cli.ended(1).state == "succeeded"


def test_no_file_is_opened_in_place_of_a_closed_stream(console: Console, tmp_path: Path) -> None:
    """What a command writes would go into it."""
    watched = (
        "import os, sys\n"
        "def look(event, details):\n"
        "    if event == 'sqlite3.connect':\n"
        "        print(*(os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)), file=open('seen', 'w'))\n"
        "sys.addaudithook(look)\n"
        "sys.argv = ['kgops', 'runs']\n"
        "from kgops.__main__ import main\n"
        "main()"
    )
    line = shlex.join([sys.executable, "-c", watched])
    closed = ["sh", "-c", f"exec {line} <&- >&- 2>&-"]
    assert subprocess.run(closed, env=console.environment(), cwd=tmp_path).returncode == 1
    assert (tmp_path / "seen").read_text().split() == ["/dev/null"] * 3


def test_a_reader_that_has_enough_ends_a_command_in_silence(console: Console) -> None:
    for words in ("logs 1", "logs 1 --grep 1", "runs --json", "show 1 --json", "--help"):
        piped = with_streams(console, words, "| head -c 5; echo; echo ${PIPESTATUS[0]}")
        assert piped.stderr == ""
        assert piped.stdout.splitlines()[-1] == "0", words
    done = with_streams(console, "run exec -- false", "2>/dev/null | true; echo $?")
    assert "Traceback" not in done.stderr


# --- signals ---

MOMENTS = {
    "imports": ("import", "click"),
    "the command's imports": ("import", "kgops.cli.output"),
    "opening the database": ("sqlite3.connect", ""),
    "settling": ("import", "kgops.supervisor.settle"),
    "its output": ("import", "unicodedata"),
    "an answer to the first": ("import", "kgops.cli.output"),
}


def struck(number: int, event: str, name: str, *, twice: bool = False) -> str:
    """kgops, which sends itself a signal the moment something happens in it."""
    return (
        "import os, sys\n"
        "class Heard:\n"
        "    def write(self, text):\n"
        f"        if {twice} and 'Aborted' in text: os.kill(os.getpid(), {number})\n"
        "        return sys.__stderr__.write(text)\n"
        "    def flush(self): pass\n"
        "def strike(event, details):\n"
        f"    if event == {event!r} and {name!r} in str(details[0]): os.kill(os.getpid(), {number})\n"
        "sys.addaudithook(strike)\n"
        "sys.argv = ['kgops', 'runs']\n"
        "from kgops import __main__ as kgops\n"
        "before = kgops.prepare\n"
        "def prepare():\n"
        "    before()\n"
        f"    if {twice}: sys.stderr = Heard()\n"
        "kgops.prepare = prepare\n"
        "kgops.main()"
    )


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        *((moment, signal.SIGINT) for moment in MOMENTS),
        ("settling", signal.SIGTERM),
        ("imports", signal.SIGHUP),
    ],
)
def test_a_signal_at_any_moment_ends_a_command_in_silence(
    run_cli: Console, moment: str, number: signal.Signals
) -> None:
    assert run_cli("run", "exec", "--label", "日本", "--", "true").code == 0
    if moment == "settling":
        folder = run_cli.folder(1)
        (run_cli.home / "pending" / f"{folder.name}.new").touch()
    code = struck(number, *MOMENTS[moment], twice=moment.startswith("an answer"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=run_cli.environment(),
        cwd=run_cli.cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode in ((130, -number) if number == signal.SIGINT else (-number,)), done
    assert "Traceback" not in done.stderr
    assert run_cli("runs").code == 0


def test_screens_that_crash_do_not_end_as_if_nothing_was(
    run_cli: Console, open_terminal: Callable[..., Terminal]
) -> None:
    broken = (
        "import sys\n"
        "from screens.dashboard import Dashboard\n"
        "def show_state(self, state): raise ValueError('a mistake of ours')\n"
        "Dashboard.show_state = show_state\n"
        "sys.argv = ['kgops', 'tui']\n"
        "from kgops.__main__ import main\n"
        "main()"
    )
    assert run_cli("run", "exec", "--", "true").code == 0
    terminal = open_terminal(argv=[sys.executable, "-c", broken])
    assert terminal.wait() == 1
    assert b"a mistake of ours" in terminal.seen
