"""A Python whose every process, and all that these start, has a small C library loaded before all others.

Supervisors get little of a console's environment, so a variable alone would not reach them: the interpreter itself
sets it, wherever it is started from.
"""

import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from driving import Console

_INTERPRETER = r"""
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    setenv("LD_PRELOAD", LIBRARY, 1);
    argv[0] = SELF;  /* from here Python tells which packages are its own */
    execv(PYTHON, argv);
    return 126;
}
"""


@dataclass(slots=True)
class PreloadedConsole(Console):
    """`kgops` under that Python."""

    python: str = field(default=sys.executable)

    def argv(self, *args: str | Path) -> list[str]:
        return [self.python, "-m", "kgops", *map(str, args)]


def compile_library(source: str, folder: Path, name: str) -> Path:
    """Skips the test where there is no compiler, or no C library of the kind it was written for."""
    library = folder / f"{name}.so"
    return _compile(source, library, ["-shared", "-fPIC", "-pthread"])


@contextmanager
def preloaded(
    home: Path, folder: Path, source: str, *, file: str, **names: str
) -> Iterator[tuple[PreloadedConsole, Callable[[float], None]]]:
    """A console whose processes load tests/SOURCE.c first, and what writes the number that it reads in FILE."""
    number = folder / "number"
    number.write_bytes(struct.pack("q", 0))

    def write(value: float) -> None:
        with number.open("r+b") as opened:
            opened.write(struct.pack("q", int(value)))

    defined = "".join(f'#define {name} "{text}"\n' for name, text in {file: number, **names}.items())
    text = defined + Path(__file__).with_name(f"{source}.c").read_text()
    (folder / "work").mkdir()
    python = python_with(compile_library(text, folder, source), folder / "python")
    console = PreloadedConsole(home, folder / "work", python=python)
    yield console, write
    write(0)
    console.close()


def python_with(library: Path, folder: Path) -> str:
    """The path of an interpreter, in an environment of its own below `folder` with the packages of this one."""
    (folder / "bin").mkdir(parents=True)
    packages = Path(sysconfig.get_path("purelib"))
    below = folder / packages.relative_to(sys.prefix)
    below.parent.mkdir(parents=True)
    below.symlink_to(packages)
    real = Path(sys.executable).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    python = folder / "bin" / "python"
    names = {"LIBRARY": library, "SELF": python, "PYTHON": real}
    _compile(_INTERPRETER, python, [f'-D{name}="{path}"' for name, path in names.items()])
    return str(python)


def _compile(source: str, into: Path, flags: list[str]) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = subprocess.run(
        [compiler, "-O1", *flags, "-x", "c", "-", "-o", str(into), "-ldl"],
        input=source,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"cannot compile for this machine: {made.stderr[-300:]}")
    return into
