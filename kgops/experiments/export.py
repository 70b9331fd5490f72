"""Export of a benchmark as JSON or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable, Usage
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import RULE, Row, rows, shown
from kgops.experiments.trial_result import Spread
from kgops.jobs.cluster import make_folder_of
from kgops.jobs.text import one_line
from storage import benches
from storage.benches import Bench
from storage.database import Connection


def as_table(conn: Connection, bench: Bench) -> dict[str, Any]:
    """A benchmark with all of its pairs and the values of each run."""
    return {
        **{name: value for name, value in asdict(bench).items() if name != "fingerprint"},
        "fingerprint": benches.fingerprint(conn, bench.fingerprint),
        "fingerprint_key": bench.fingerprint,
        "rule": RULE,
        "row": [asdict(row) for row in rows(conn, bench)],
        "pair": [asdict(pair) for pair in benches.pairs(conn, bench.id)],
    }


def as_markdown(conn: Connection, bench: Bench) -> str:
    measured = rows(conn, bench)
    first = measured[0]
    lines = [
        f"**{_md(bench.name)}**: each variant against {_md(first.variant)}, pair by pair; medians (quartiles).",
        "",
        f"| variant | time, {first.seconds_of or 'n/a'} | times faster | n | memory | times less memory | verdict |",
        "|---|---|---|---|---|---|---|",
        *(_md_row(row) for row in measured),
        "",
        f"Command: `{bench.command}`. Memory: {first.memory_of or 'n/a'}.",
        f"Fingerprint {machine_line(conn, bench.fingerprint)}.",
        *_md_notes(measured),
        RULE,
    ]
    return "\n".join(lines) + "\n"


def write(path: Path, content: str | bytes, *, force: bool) -> None:
    try:
        make_folder_of(path)
        with path.open("wb" if force else "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except FileExistsError as error:
        raise Usage(f"{path} already exists", "--force overwrites it") from error
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error


def _md_row(row: Row) -> str:
    alone = row.variant == row.baseline
    time, memory = row.seconds, row.memory_mib
    cells = [
        _md(row.variant),
        f"{time.median:.4g} s" if time else "n/a",
        "1" if alone else _md_spread(row.speed),
        str((row.seconds.n if row.seconds else 0) if alone else row.speed.n if row.speed else 0),
        f"{memory.median:,.1f} MiB" if memory else "n/a",
        "1" if alone else _md_spread(row.memory),
        shown(row.verdict, _md(row.why)),
    ]
    return "| " + " | ".join(cells) + " |"


def _md_notes(measured: Sequence[Row]) -> list[str]:
    off = [
        f"{_md(row.variant)}: {name} was not applied ({_md(why)})."
        for row in measured
        for name, why in row.unapplied.items()
    ]
    busy = max((row.busy for row in measured if row.busy is not None), default=0.0)
    return off + (
        [f"Busy machine: other processes used {busy:.0%} of the CPUs before the rounds."]
        if busy > 0.15
        else []
    )


def _md_spread(one: Spread | None) -> str:
    return "n/a" if one is None else f"{one.median:.2f} ({one.low:.2f}–{one.high:.2f})"


def _md(text: str) -> str:
    return one_line(text).replace("|", "\\|")
