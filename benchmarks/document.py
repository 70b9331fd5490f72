"""Runs the quick benchmarks and writes BENCHMARKS.md, each value with its command and machine.

    python -m benchmarks.document [--data DIR] [--write-only]

Values come from `benchmarks.jsonl` in the home. Sections that this home has not measured stay as they are, with their
fingerprint. README's table has rows of this document.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import PYTHON, Stored, arguments, run, stored
from kgops.experiments.fingerprint import describe
from storage.benches import fingerprint_key

NOTHING = "Not measured yet."
BATCH_S = 10.0  # a benchmark stores its values within this time


@dataclass(frozen=True)
class Section:
    """A benchmark: its command, which has `DIR` for the folder of graphs, and what its stored values have in theirs."""

    title: str
    command: str
    stored_as: str
    is_quick: bool = True  # part of `make bench`


SECTIONS = (
    Section("Cost of the screens", "python -m benchmarks.screens --quick --store", "benchmarks.screens"),
    Section(
        "Process memory on the CPU",
        "python -m benchmarks.memory --data DIR --store",
        "benchmarks.memory",
        is_quick=False,
    ),
    Section("Regression quality", "python -m benchmarks.regress --quick --store", "benchmarks.regress"),
    Section(
        "Training against PyKEEN",
        "python -m benchmarks.train --quick --store --only 'batch 256' --data DIR",
        "benchmarks.train",
    ),
    Section(
        "TracIn against other methods",
        "python -m benchmarks.tracin --quick --store --losses target --data DIR/fb15k-237",
        "benchmarks.tracin --quick",
    ),
    Section(
        "TracIn against a plain pass",
        "python -m benchmarks.tracin --ours-only --store --tests 1 64 512 --data DIR/fb15k-237",
        "benchmarks.tracin --ours-only",
    ),
    Section(
        "TracIn of a filtered batch",
        "python -m benchmarks.tracin --batch --store --data DIR/fb15k-237",
        "benchmarks.tracin --batch",
    ),
    Section(
        "TracIn of all training triples and all tests",
        "python -m benchmarks.tracin --full 1 --threads 2 --store --data DIR/fb15k-237",
        "benchmarks.tracin --full",
        is_quick=False,
    ),
    Section("Predictions", "python -m benchmarks.predict --store --data DIR/fb15k-237", "benchmarks.predict"),
    Section(
        "Recovery from kills at random times",
        "make chaos N=1000 CHAOS_FLAGS=--store",
        "make chaos",
        is_quick=False,
    ),
)

# Rows that README shows.
HEADLINES = (
    "FB15k-237, batch 256: PyKEEN as shipped (batch 16) / kgops, per sample",
    "FB15k-237, batch 256: PyKEEN patched / kgops",
    "kgops, factored, target, 64 tests",
    "sequential, PyKEEN's model, tests cached, target, 64 tests",
)
_BEGIN, _END = "<!-- rows of BENCHMARKS.md, by `make bench` -->", "<!-- end of these rows -->"
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| [^|]* \| [^|]* \|$", re.M)


def main(argv: list[str] | None = None) -> int:
    parser = arguments("document", __doc__, stores=False)
    parser.add_argument(
        "--data", type=Path, help="folder with fb15k-237 and wn18rr; without it they are left out"
    )
    parser.add_argument("--write-only", action="store_true", help="measure nothing; write the stored values")
    args = parser.parse_args(argv)
    path, readme = Path("BENCHMARKS.md"), Path("README.md")
    before = path.read_text("utf-8")
    if not args.write_only:
        measure(args.data)
    document = written(stored(), before)
    path.write_text(document, "utf-8")
    readme.write_text(with_headlines(readme.read_text("utf-8"), document), "utf-8")
    print(path, readme, sep="\n")
    return 0


def with_headlines(readme: str, document: str) -> str:
    """README with the current values of the document; a row without a value is n/a."""
    if readme.count(_BEGIN) != 1 or readme.count(_END) != 1:
        raise SystemExit(f"README needs one line {_BEGIN} and one {_END}")
    measured = dict(reversed(_ROW.findall(document)))  # the first of equal names
    rows = [f"| {name} | {measured.get(name, 'n/a')} |" for name in HEADLINES]
    before, _, rest = readme.partition(_BEGIN)
    table = "\n".join([_BEGIN, "", "| what | measured |", "|---|---|", *rows, "", _END])
    return before + table + rest.partition(_END)[2]


def measure(data: Path | None) -> None:
    """Runs the quick benchmarks one after the other; a missed target is not an error here."""
    for section in SECTIONS:
        if not section.is_quick or ("DIR" in section.command and data is None):
            continue
        command = section.command.replace("DIR", str((data or Path()).absolute()))
        begun = time.monotonic()
        print(command, file=sys.stderr, flush=True)
        done = subprocess.run([PYTHON, *shlex.split(command)[1:]], stdout=subprocess.DEVNULL)
        took = time.monotonic() - begun
        print(f"  ended with {done.returncode} after {took:.0f} s", file=sys.stderr, flush=True)


def written(values: Sequence[Stored], before: str = "") -> str:
    """The document; sections that this home has not measured are taken from `before`."""
    kept, title = _parts(before), "# Benchmarks"
    out = [title, *kept.get(title, [""])]
    for section in SECTIONS:
        newest = _last_batch(values, section.stored_as)
        heading = f"## {section.title}"
        out.append(heading)
        out += _metrics(newest, section) if newest else kept.get(heading, ["", NOTHING, ""])
    known = {title, *(f"## {section.title}" for section in SECTIONS)}
    for heading, lines in kept.items():  # tables that no program writes
        if heading not in known:
            out += [heading, *lines]
    return "\n".join(out)


def _parts(document: str) -> dict[str, list[str]]:
    """Lines below each heading, without empty sections."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in document.split("\n"):
        if line.startswith("#"):
            lines = parts[line] = []
        else:
            lines.append(line)
    return {heading: [*lines[:-1], ""] for heading, lines in parts.items() if NOTHING not in lines}


def _metrics(values: Sequence[Stored], section: Section) -> list[str]:
    lines = ["", "| what | measured | quartiles | n |", "|---|---|---|---|"]
    for m in values:
        spread = "" if m.low is None or m.high is None else f"{_metric(m.low)} – {_metric(m.high)}"
        subject = m.subject.replace("|", "\\|")
        lines.append(f"| {subject} | {_metric(m.value, m.unit)} | {spread} | {m.n} |")
    body = values[0].fingerprint
    machine = f"{fingerprint_key(body)}: {describe(body)}"
    return [*lines, "", f"Command: `{section.command}`. Fingerprint {machine}.", ""]


def _last_batch(values: Sequence[Stored], stored_as: str) -> list[Stored]:
    """Values that the newest run of a benchmark stored."""
    known = [one for one in values if stored_as in one.command]
    return [
        one for one in known if known[-1].at - one.at < BATCH_S and one.fingerprint == known[-1].fingerprint
    ]


def _metric(value: float, unit: str = "") -> str:
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{shown} {unit}".rstrip()


if __name__ == "__main__":
    run(main)
