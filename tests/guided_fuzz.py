"""Parsers under fuzz that is guided by what it reaches; tests/test_fuzz_*.py damage files by chance.

`make fuzz SECONDS=60`, or `python tests/guided_fuzz.py --seconds 60 --only job`: each parser in a process of its own.
Needs `pip install atheris`, which has wheels for some Pythons. Prints a table; exit code 1 where anything but a refusal
came out, took longer than ten seconds or too much memory. What did it is kept in the folder that is named.
"""

import argparse
import contextlib
import functools
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@functools.cache
def _nations() -> Any:
    from kgops.maths.graphs.triples import read_pykeen_dataset

    return read_pykeen_dataset("nations")


# Of each parser the module, and what of it reads a file.
PARSERS: dict[str, tuple[str, Callable[[Any, Path], object]]] = {
    "triples": ("kgops.maths.graphs.triples", lambda module, path: module.read_graph(path)),
    "vocabulary": ("kgops.maths.graphs.vocabulary", lambda module, path: module.read_vocabulary(path)),
    "tests": ("kgops.maths.tracin.test_triples", lambda module, path: module.from_file(path, _nations())),
    "job": ("kgops.workloads.job_files", lambda module, path: module.read_job_file(path)),
    "profile": ("kgops.planning.profiles", lambda module, path: module.read(path)),
    "configuration": (
        "kgops.workloads.configurations",
        lambda module, path: module.job_table(module.read(str(path)), str(path)),
    ),
    "event": ("kgops.jobs.events", lambda module, path: module.read(path.read_bytes(), 7.0)),
    "filter": (
        "storage.filters",
        lambda module, path: module.read(path.read_bytes().decode("utf-8", "replace"), now=1.8e9),
    ),
    "checkpoint": (
        "kgops.maths.train.checkpoints",
        lambda module, path: module.read_checkpoint(path).build_model(),
    ),
}
# Whole ones to begin with.
FILES = {"job": "kgops/recipes/*.toml", "profile": "profiles/*.toml", "configuration": "kgops/recipes/*.yaml"}
_TRIPLES = [b"brazil\tembassy\tuk\nusa\tembassy\tchina\n", b"usa\tembassy\tuk\r\n\nuk\tembassy\tusa\n"]
SEEDS = {
    "triples": _TRIPLES,
    "tests": _TRIPLES,
    "vocabulary": [b"a\t0\nb\t1\n", b"2\na\t0\nb\t1\n"],
    "event": [
        b'{"event": "metric", "at": 1.5, "name": "loss", "value": 0.25, "step": 3}',
        b'{"event":"note"}',
    ],
    "filter": [b'mrr>0.3 tag:paper since:7d -state:failed "two words"', b"gpu:t4 loss<=1e-3..2"],
}
PLANTED = "planted"  # a fault, to see that faults are noticed
_MOST_MIB = 2000  # of a process, torch with it
_LONGEST_S = 10


def input_of(parser: str, folder: Path) -> Path:
    """Some files are known by how their name ends."""
    return folder / ("input.yaml" if parser == "configuration" else "input")


def seeds(parser: str) -> list[bytes]:
    if parser in FILES:
        texts = [path.read_bytes() for path in sorted(ROOT.glob(FILES[parser]))]
        return [
            text for text in texts if parser != "job" or b"\ndataset" in text
        ]  # one recipe takes any graph
    return [_checkpoint()] if parser == "checkpoint" else SEEDS.get(parser, [b"x"])


def _checkpoint() -> bytes:
    from test_fuzz_weights import CHECKPOINT

    from kgops.maths.train.checkpoints import write_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        write_checkpoint(path, CHECKPOINT)
        return path.read_bytes()


def reader(parser: str) -> Callable[[Path], object]:
    """Imports what it needs: within the child, where imports are watched."""
    if parser == PLANTED:
        return _planted
    name, read = PARSERS[parser]
    return functools.partial(read, importlib.import_module(name))


def _planted(path: Path) -> None:
    if b"!" in path.read_bytes():
        raise ValueError("what was planted")


def fuzz(parser: str, folder: Path, seconds: int) -> None:
    """Never returns: the fuzzer ends its process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["kgops", "storage"], enable_loader_override=False):
        from kgops.errors import KgopsError

        read = reader(parser)
    path = input_of(parser, folder)

    def one(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(KgopsError):  # a refusal
            read(path)

    flags: dict[str, object] = {
        "max_total_time": seconds,
        "timeout": _LONGEST_S,
        "rss_limit_mb": _MOST_MIB,
        "max_len": 20_000,
    }
    flags |= {"artifact_prefix": f"{folder}/found-", "print_final_stats": 1}
    words = [f"-{name}={value}" for name, value in flags.items()]
    atheris.Setup([sys.argv[0], *words, str(folder / "seeds")], one)
    atheris.Fuzz()


def tried(parser: str, base: Path, seconds: int) -> tuple[bool, str]:
    folder = base / parser
    (folder / "seeds").mkdir(parents=True)
    for number, content in enumerate(seeds(parser)):
        (folder / "seeds" / str(number)).write_bytes(content)
    command = [
        sys.executable,
        __file__,
        "--child",
        parser,
        "--folder",
        str(folder),
        "--seconds",
        str(seconds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, errors="replace")
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    units = re.findall(r"number_of_executed_units:\s*(\d+)", done.stderr)
    reached = re.findall(r"cov: (\d+)", done.stderr)
    found = sorted(one.name for one in folder.glob("found-*"))
    told = f"{int(units[-1]) if units else 0:,} inputs, {int(reached[-1]) if reached else 0:,} places reached"
    if done.returncode == 0 and not found:
        return True, told
    return False, f"{told}; {', '.join(found) or f'ended with {done.returncode}'} in {folder}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--only", choices=[*PARSERS, PLANTED])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given: Any = parser.parse_args(argv)
    sys.path.insert(0, str(ROOT))
    if given.child:
        fuzz(given.child, given.folder, given.seconds)
    if importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: pip install atheris (it has wheels for some Pythons)", file=sys.stderr
        )
        return 2
    base = Path(tempfile.mkdtemp(prefix="kgops-fuzz-"))
    good = True
    for name in [given.only] if given.only else PARSERS:
        went_well, told = tried(name, base, given.seconds)
        good = good and went_well
        print(f"{'ok' if went_well else 'FOUND':6} {name:14} {told}", flush=True)
    if good:
        shutil.rmtree(base)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
