"""The preloaded library: built with the machine's compiler, armed for one process, and what it wrote down."""

import errno
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KILL = "kill"
STAYS = "+"  # behind an errno: the file stays broken from that call on
KINDS = (KILL, "EIO", "ENOSPC", "EMFILE", "ENOLCK", "EAGAIN", "EIO+", "ENOSPC+")


@dataclass(frozen=True, slots=True)
class Call:
    """One that a process made; `errors` are the names of those that a test may have it give."""

    number: int
    name: str
    path: str
    errors: frozenset[str]

    def can(self, kind: str) -> bool:
        return kind == KILL or kind.removesuffix(STAYS) in self.errors


@dataclass(frozen=True, slots=True)
class Arming:
    """What one process is to do: the first of `target`'s role that finds `once`."""

    target: str
    home: Path
    notes: Path  # a folder outside the home
    kind: str | None = None  # None: calls are written down, and none of them fails
    at: int = 0
    times: int = 1
    calls: str = ""  # a regular expression: calls that it does not find are not counted

    @property
    def trace(self) -> Path:
        return self.notes / "trace"

    @property
    def hit(self) -> Path:
        return self.notes / "hit"

    def lay_ready(self) -> None:
        for path in (self.trace, self.hit):
            path.unlink(missing_ok=True)
        (self.notes / "once").touch()

    def path(self, role: str) -> str:
        """A look at this path, by `os.access`, arms the process that looks as one of this role."""
        fault = 0
        if self.kind is not None:
            fault = -1 if self.kind == KILL else getattr(errno, self.kind.removesuffix(STAYS))
        told = {
            "role": role,
            "target": self.target,
            "home": self.home,
            "at": self.at,
            "times": self.times,
            "fault": fault,
            "wanted": self.calls,
            "trace": self.trace,
            "hit": self.hit,
            "once": self.notes / "once",
        }
        return "/arm-injection/" + ";".join(f"{name}={value}" for name, value in told.items())


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


def build(into: Path) -> Path:
    """The library. Without a compiler there is none: ask `compiler` first."""
    library = into / "interpose.so"
    found = compiler()
    assert found is not None
    subprocess.run(
        [found, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "interpose.c"), "-ldl"], check=True
    )
    return library


def read_calls(trace: Path) -> list[Call]:
    calls = []
    for line in trace.read_text(errors="replace").splitlines():
        number, name, path, errors = line.split("\t")
        calls.append(
            Call(int(number), name, path, frozenset(errno.errorcode[int(one)] for one in errors.split()))
        )
    return calls
