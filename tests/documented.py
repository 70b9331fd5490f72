"""Documents as a person follows them: the commands they show, in one home and folder, and what each leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from driving import Console, Done, end_all_of

from kgops.cli import group
from kgops.settings import Home, make_home

ROOT = Path(__file__).parents[1]
# What sessions and examples run besides.
SCRIPTS = {
    "train.py": (
        "import sys\n"
        "if sys.argv[1:] == ['--batch-size', '64']:\n"
        "    sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB')\n"
        "held = bytearray(60 << 20)\n"  # more than its supervisor has: else nobody can say what it took
        "print('loss=0.125')\n"
    ),
    "long.py": "import time\ntime.sleep(300)\n",
}
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


# --- where commands stand -------------------------------------------------------------------------


@dataclass(frozen=True)
class Typed:
    """A command line as it stands in a document, without its comment, and what is shown below it."""

    line: str
    shown: tuple[str, ...] = ()


def page(name: str) -> str:
    return (ROOT / name).read_text()


def typed_in(text: str, kinds: str = "console|sh") -> list[Typed]:
    """Behind `$` in a session, every line of a script; a line that ends on a backslash goes on."""
    found: list[Typed] = []
    for kind, block in re.findall(rf"^```({kinds})\n(.*?)^```", text, re.M | re.S):
        for line in re.sub(r" \\\n\s*", " ", block).splitlines():
            if kind == "sh" or line.startswith("$ "):
                typed = re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip()
                found += [Typed(typed)] if typed else []
            elif line.strip():
                found[-1] = Typed(found[-1].line, (*found[-1].shown, line))
    return found


def document_pages() -> list[str]:
    """Every page that people read, without decisions and what `make docs` generates."""
    pages = [
        path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("decisions", "reference")
    ]
    return ["README.md", "ARCHITECTURE.md", *sorted(str(path.relative_to(ROOT)) for path in pages)]


def in_sentences(text: str) -> list[str]:
    """What stands between backticks in a text and begins with `kgops`, in the order of the text."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", outside)]
    return [span for span in dict.fromkeys(spans) if span.split()[0] == "kgops"]


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


# --- a person at a shell --------------------------------------------------------------------------


@dataclass(frozen=True)
class Went(Done):
    """How a command went, and which files below the folder are new or changed since."""

    written: frozenset[str] = frozenset()


@dataclass
class Desk:
    """A folder, a home and a shell in which `kgops` and `python` are this test's; lines build on one another."""

    folder: Path
    home: Path
    went: dict[str, Went] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)  # of the environment

    @classmethod
    def at(cls, place: Path) -> Desk:
        desk = cls(place / "work", place / "home" / "kgops")
        desk.folder.mkdir(parents=True)
        make_home(Home(desk.home))
        programs = place / "bin"
        programs.mkdir()
        python = shlex.quote(sys.executable)
        for name, words in (("kgops", f"{python} -m kgops"), ("python", python)):
            (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (programs / name).chmod(0o755)
        return desk

    @property
    def console(self) -> Console:
        return Console(self.home, self.folder)

    def environment(self) -> dict[str, str]:
        # One thread: arrays this small are no work to share, and other tests need the other CPUs.
        env = self.console.environment({"HOME": str(self.folder), "OMP_NUM_THREADS": "1", **self.more})
        return {**env, "PATH": f"{self.home.parent.parent / 'bin'}{os.pathsep}{env['PATH']}"}

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", line],
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, line: str) -> Went:
        before = self._files()
        with self.start(line) as child:
            out, err = child.communicate()
        assert "Traceback" not in err, err
        now = self._files()
        written = frozenset(name for name, stamp in now.items() if before.get(name) != stamp)
        self.went[line] = Went(child.returncode, out, err, written=written)
        return self.went[line]

    def must(self, line: str) -> Went:
        went = self.type(line)
        assert went.code == 0, (line, went.err)
        return went

    def run(self, number: int) -> Path:
        """The folder of a run."""
        return self.console.folder(number)

    def close(self) -> None:
        end_all_of(self.home)

    def _files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_file():
                status = path.stat()
                found[str(path.relative_to(self.folder))] = (status.st_mtime_ns, status.st_ino)
        return found


class Reader:
    """Somebody who types a page's lines from the top, as far as a test asks."""

    def __init__(self, desk: Desk, lines: list[Typed]) -> None:
        self.desk, self.lines = desk, lines

    def typed(self, line: Typed) -> Went:
        """A recipe trains for a few epochs: that all of them reach what is published, a test of its own looks at."""
        for each in self.lines[: self.lines.index(line) + 1]:
            if each.line not in self.desk.went:
                shorter = " --num-epochs 8" if "--recipe" in each.line else ""
                self.desk.went[each.line] = self.desk.type(each.line + shorter)
        went = self.desk.went[line.line]
        assert went.code == 0, went.err
        return went


def at_a_desk(folder: Path, lines: list[Typed]) -> Iterator[Reader]:
    reader = Reader(Desk.at(folder), lines)
    yield reader
    reader.desk.close()


# --- what is shown, beside what is printed --------------------------------------------------------


def unlike(shown: tuple[str, ...], printed: str) -> str | None:
    """The first shown line that nothing printed has the shape of, in order; None where all have been found.

    Numbers stand for any number and `…` for anything, or, alone on a line, for any lines; words are words.
    """
    lines = printed.splitlines()
    at = 0
    for line in shown:
        if line.strip() == "…":
            continue
        shape = re.compile(_shape(line))
        while at < len(lines) and not shape.fullmatch(lines[at]):
            at += 1
        if at == len(lines):
            return line
        at += 1
    return None


def _shape(line: str) -> str:
    """Runs of blanks are as wide as columns are today; so is a number."""
    parts = []
    for piece in re.split(r"(…|\s+)", line.strip()):
        if piece == "…":
            parts.append(".*")
        elif piece.isspace():
            parts.append(r"\s+")
        else:
            literal = _NUMBER.split(piece)
            parts.append(_NUMBER.pattern.join(re.escape(text) for text in literal))
    return r"\s*" + "".join(parts) + r"\s*"
