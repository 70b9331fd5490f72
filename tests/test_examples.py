"""Every example that people are shown, in README and in help, is run as it is written, or is known not to be and why.

A new example that stands in no table here fails: write down how it is checked.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from driving import Console, Done, end_all_of, wait_for
from parsing import parse

from kgops.cli import group
from kgops.cli.bench import BENCHMARKS
from kgops.cli.demo import after_the_first, next_steps
from kgops.settings import Home, make_home
from kgops.tour.benches import bench_stories, put_benches
from kgops.tour.filling import put_stories
from kgops.tour.stories import stories
from storage import runs
from storage.database import open_writer

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

# --- where examples stand -------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command there is, by the words that call it."""
    waiting: list[tuple[str, click.Command, click.Context]] = [("kgops", group, click.Context(group))]
    while waiting:
        words, command, ctx = waiting.pop()
        yield words, command
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                sub = command.get_command(ctx, name)
                assert sub is not None, f"{words} {name}"
                waiting.append((f"{words} {name}", sub, click.Context(sub, parent=ctx, info_name=name)))


def of_help(command: click.Command) -> list[str]:
    """The commands behind `Example:`, a line each."""
    behind = (command.epilog or "").partition("Example:")[2]
    return [line.strip() for line in behind.splitlines() if line.strip()]


def of_readme() -> list[str]:
    """What is typed in its blocks: behind `$` in a session, every line of a script; without comments."""
    found = []
    for kind, block in re.findall(r"^```(console|sh)\n(.*?)^```", README.read_text(), re.M | re.S):
        for line in re.sub(r" \\\n\s*", " ", block).splitlines():
            if kind == "sh" or line.startswith("$ "):
                found.append(re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip())
    return [line for line in found if line]


# --- how each is checked --------------------------------------------------------------------------

# Run as it is, with exit code 0, where there is a history to look at.
WITH_A_HISTORY = (
    "kgops show 1",
    "kgops show last",
    "kgops runs 'mrr>0.3 tag:paper -state:failed since:7d' --sort mrr --limit 20",
    "kgops runs workload:train --figure test_mrr --csv --all > runs.csv",
    "kgops compare 12 17 21",
    "kgops report 42 --output run-42.html",
    "kgops export 12 17 --to json --out two-runs.json",
    "kgops export 1 2 --to json --out runs.json",
    "kgops influences last --test 1",
    "kgops logs -f last --grep loss",
    "kgops tag 42 paper baseline --remove draft",
    'kgops note 42 "best so far; see the email of Tuesday"',
    "kgops bench show 3",
    "kgops bench show --figures tracin memory --sort value",
    "kgops bench compare 3 4",
    "kgops bench export 3 --to svg --out speed.svg",
    "kgops delete 41 42 --yes",
)
# The same in an empty home, in a folder with the scripts that are named.
ON_THEIR_OWN = (
    "kgops run exec -- python train.py",
    "kgops run exec --label eval -- python eval.py",
    'kgops run exec --on-oom batch_size=64,32,16 -- python train.py --batch-size "{batch_size}"',
    "kgops run exec --on-oom batch_size=64,32,16 --metric-regex 'loss=(?P<loss>\\S+)'"
    ' -- python train.py --batch-size "{batch_size}"',
    "kgops run --detach exec -- python long.py",
    "kgops suggest train --dataset nations --gpu t4 --explain",
    "kgops suggest train --dataset umls --gpu t4",
    "kgops suggest regress --config colab_optimized_full --gpu t4",
    "kgops profiles show t4",
    "kgops profiles check t4",
    "kgops profiles new --from t4 mine.toml",
    "kgops doctor",
    "kgops gpus --json",
)
# A run with this number has to be in this state; the last is what is to become of it.
ON_A_RUN = {
    "kgops stop 42 --grace 60": (42, "running", "cancelled"),
    "kgops stop 4": (4, "running", "cancelled"),
    "kgops logs -f 4": (4, "ended", "failed"),
    "kgops resume 42 --detach": (42, "ended", "failed"),
}
# Planned and printed in place of being started, since it would take this.
DRY = {
    "kgops run train --dataset nations --num-epochs 20": "a quarter of a minute; test_train_worker trains",
    "kgops run train --dataset nations --num-epochs 20 --profile t4": "the same",
}
# Every word is parsed as it would be before anything is done, since it needs this.
PARSED = {
    "kgops run sweep kinships --vary batch_size=256,512 --vary learning_rate=0.001,0.003": "minutes: test_sweep",
    "kgops tui": "a terminal: test_screens_terminal opens one",
    "kgops serve --port 8123": "to go on until it is interrupted: test_serve",
    "kgops demo --tour": "half a minute: test_tour makes one",
    "kgops run tracin --run 1 --test-triple 'usa,embassy,china' --top-k 10": "a trained model: test_tracin_worker",
    "kgops run tracin --run 1 --test-triple usa embassy china --top-k 100": "the same",
    "kgops suggest tracin --run 1 --gpu t4": "the same",
    "kgops run regress --config colab_optimized --data_directory flights --epochs 20": "flights: test_run_regress",
    "kgops data flights --make flights": "h5py, which not every machine has: test_flights",
    "kgops data flights --make flights --flights 6 --size 64": "the same",
    "kgops bench claims --quick --only b": "minutes: test_bench_claims",
    "kgops bench import bench-3.json": "an export: test_bench_import takes them in",
    "kgops bench matrix job.toml --vary batch_size=256,512 --vary precision=fp32,bf16": "minutes: test_bench_matrix",
}
# With files of its own: below.
BY_ITSELF = (
    "kgops import run-12.json ~/old/.kgops/runs/0042-train-nations results/robokop",
    "kgops import runs.json results/nations",
)
# What make would do, without doing it: this very test is among what it does.
MAKE = (
    "make demo",
    "make test",
    "make bench DATA=DIR",
    "make chaos N=1000",
    "make inject",
)
IN_A_SENTENCE = ("make soak MINUTES=30", "make clients", "make gpu-check", "make picture")
KNOWN = {*WITH_A_HISTORY, *ON_THEIR_OWN, *ON_A_RUN, *DRY, *PARSED, *BY_ITSELF, *MAKE}


def everything() -> set[str]:
    return {line for _, command in commands() for line in of_help(command)} | set(of_readme())


def measures(line: str) -> bool:
    """Benchmarks of kgops itself take arguments of their own."""
    return line.startswith(tuple(f"kgops bench {name} " for name in BENCHMARKS))


def test_every_command_shows_an_example_of_itself() -> None:
    for words, command in commands():
        found = of_help(command)
        assert found, f"`{words} --help` has no example"
        assert any(line.startswith(words) for line in found), f"{words}: {found}"


def test_every_example_is_known_here_and_nothing_else_is() -> None:
    shown = {line for line in everything() if not measures(line)}
    assert shown - KNOWN == set(), "examples that no table of this file says how to check"
    assert KNOWN - shown == set(), "nobody shows these any more"


# --- running them ---------------------------------------------------------------------------------


class Shell:
    """Runs a line as a person's shell does, in which `kgops` and `python` are this test's."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self._bin = console, folder / "bin"
        self._bin.mkdir(parents=True)
        for name, words in (("kgops", f"{shlex.quote(sys.executable)} -m kgops"), ("python", sys.executable)):
            (self._bin / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (self._bin / name).chmod(0o755)

    def __call__(self, line: str) -> Done:
        env = self.console.environment({"HOME": str(self.console.cwd)})
        env["PATH"] = f"{self._bin}{os.pathsep}{env['PATH']}"
        done = subprocess.run(
            ["sh", "-c", line],
            env=env,
            cwd=self.console.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)


SCRIPTS = {
    "train.py": (
        "import sys\n"
        "if sys.argv[1:] == ['--batch-size', '64']:\n"
        "    sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB')\n"
        "print('loss=0.125')\n"
    ),
    "eval.py": "print('fine')\n",
    "long.py": "import time\ntime.sleep(300)\n",
}


@pytest.fixture
def shell(run_cli: Console, tmp_path: Path) -> Shell:
    for name, text in SCRIPTS.items():
        (run_cli.cwd / name).write_text(text)
    return Shell(run_cli, tmp_path / "shell")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A tour's history, a tracing as its last run, and the benchmarks of two tours."""
    home = Home(tmp_path_factory.mktemp("history") / "kgops")
    make_home(home)
    conn = open_writer(home.database)
    traced = next(one for one in stories() if one.traced)
    put_stories(home, conn, [replace(traced, days=0.1), *stories(), *bench_stories()])
    put_benches(conn, list(range(20, 20 + len(bench_stories()))), time.time())
    conn.close()
    console = Console(home.path, home.path.parent)
    yield Shell(console, home.path.parent / "shell")
    end_all_of(home.path)


@pytest.mark.parametrize("line", WITH_A_HISTORY)
def test_example_works_on_a_history(history: Shell, line: str) -> None:
    done = history(line)
    assert done.code == 0, done.err


@pytest.mark.parametrize("line", ON_THEIR_OWN)
def test_example_works_at_once(shell: Shell, line: str) -> None:
    done = shell(line)
    # A machine without a card is no reason to fail: `doctor` and `gpus` say by their codes what they found.
    good = (0, 1) if line in ("kgops doctor", "kgops gpus --json") else (0,)
    assert done.code in good, done.err
    if "--on-oom" in line:
        assert "2 attempts · after out of memory batch_size=32" in done.out


def put_run(console: Console, number: int, state: str) -> None:
    """A run of this number that goes on, or has failed."""
    conn = open_writer(console.home / "kgops.db")
    runs.add(
        conn,
        number=number - 1,
        workload="exec",
        label="before",
        profile=None,
        state="queued",
        folder=f"{number - 1:04d}-exec",
        submitted_at=time.time(),
        gpu=None,
        reserved_mib=None,
        exclusive=False,
        predicted_mib=None,
        spec=runs.RunSpec({}, {}, {}),
    )
    runs.end(conn, number - 1, state="cancelled", reason=None, exit_code=None, ended_at=time.time())
    conn.close()
    if state == "running":
        assert console.detach("python3", "-c", SCRIPTS["long.py"]) == number
        wait_for(lambda: (run := console.run(number)) and run.state == "running", "it to run")
    else:
        assert console("run", "exec", "--", "sh", "-c", "exit 3").code == 1


@pytest.mark.parametrize("line", ON_A_RUN)
def test_example_does_what_it_says_to_a_run(shell: Shell, line: str) -> None:
    number, state, then = ON_A_RUN[line]
    put_run(shell.console, number, state)
    assert shell(line).code == 0
    assert shell.console.ended(number).state == then
    resumed = shell.console.show(number)["attempts"]
    assert resumed == (2 if "resume" in line else 1)


def test_what_was_exported_or_lies_in_a_folder_is_imported(shell: Shell) -> None:
    console = shell.console
    there = {"KGOPS_HOME": str(console.cwd / "old" / ".kgops")}
    assert console("run", "exec", "--label", "first", "--", "true", env=there).code == 0
    for name in ("runs.json", "run-12.json"):
        assert console("export", "1", "--to", "json", "--out", name, env=there).code == 0
    assert console("run", "exec", "--label", "second", "--", "true", env=there).code == 0
    folder = console.cwd / "old/.kgops/runs"
    next(folder.glob("0002-*")).rename(folder / "0042-train-nations")
    for name in ("nations", "robokop"):
        output = console.cwd / "results" / name
        output.mkdir(parents=True)
        (output / "training_history.json").write_text(f'{{"loss": [0.5, 0.25], "name": "{name}"}}')
    one, other = (shell(line) for line in sorted(BY_ITSELF, reverse=True))
    assert (one.code, other.code) == (0, 0), one.err + other.err
    assert one.out.count(": imported ") == 2
    assert other.out.count(": imported ") == 2
    assert "is this already" in other.err  # run-12.json is the same run as runs.json


@pytest.mark.parametrize("line", DRY)
def test_example_is_planned(shell: Shell, line: str) -> None:
    done = shell(f"{line} --dry-run")
    assert done.code == 0, done.err


@pytest.mark.parametrize("line", PARSED)
def test_example_is_parsed(shell: Shell, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.console.cwd)
    (shell.console.cwd / "job.toml").write_text("")
    words = shlex.split(line)
    parse(group, words[0], words[1:])


@pytest.mark.parametrize("lines", [after_the_first(1, "kgops"), next_steps(Home(Path("a")), 1, "kgops")])
def test_what_a_demo_says_to_do_next_can_be_typed(lines: list[str]) -> None:
    typed = [shlex.split(line) for line in lines if re.match(r" {5}(KGOPS_HOME=\S+ )?kgops", line)]
    assert len(typed) >= 4
    for words in typed:
        behind = words[words.index("kgops") + 1 :]
        if behind:  # alone it opens the screens
            parse(group, "kgops", behind)


@pytest.mark.parametrize("line", sorted(filter(measures, everything())))
def test_benchmark_takes_the_flags_it_is_shown_with(line: str) -> None:
    """Looked for in its source: to ask itself would load all that it measures."""
    name, *words = line.split()[2:]
    source = (ROOT / "kgops/bench" / f"{name}.py").read_text()
    known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))
    assert known
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("line", (*MAKE, *IN_A_SENTENCE))
def test_make_knows_what_to_do(line: str) -> None:
    done = subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_of_a_benchmark_ends_with_its_example_too(run_cli: Console) -> None:
    done = run_cli("bench", "console", "--help")
    assert done.code == 0
    assert done.out.rstrip().endswith("Example:  kgops bench console --quick")
    assert "--store" in done.out
