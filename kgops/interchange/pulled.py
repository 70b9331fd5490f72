"""What the record of a run has beside the run's files: added to a copy that was restored from the files."""

from __future__ import annotations

from typing import NamedTuple

from storage import attempts, reports, series, transfer
from storage.database import Connection
from storage.transfer import Rows


class Pulled(NamedTuple):
    """A run of another host, whose folder was copied."""

    name: str  # as in lab2:17
    record: Rows | None = None  # None: it did not come


def add_record(conn: Connection, number: int, rows: Rows) -> None:
    """Tags, notes, peaks, and curves that the supervisor sampled. ValueError: one of them fits no row."""
    with transfer.row_errors():
        reports.change_tags(conn, number, add=[row["tag"] for row in rows.tables["tag"]], remove=[])
        for note in rows.tables["note"]:
            reports.add_note(conn, number, note["at"], note["text"])
        for attempt in rows.tables["attempt"]:
            attempts.note_peaks(
                conn,
                number,
                attempt["number"],
                gpu_mib=attempt["peak_gpu_mib"],
                host_mib=attempt["peak_host_mib"],
                cpu_s=attempt["cpu_s"],
            )
        known = {one.name for one in series.of_run(conn, number)}
        for curve in rows.curves:
            if curve.name not in known:
                points = zip(curve.steps, curve.values, curve.times, strict=True)
                series.append(conn, number, [series.Point(curve.name, *point) for point in points])
        series.settle(conn, number)
