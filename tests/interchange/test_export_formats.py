"""Curves and metrics written for other programs are those of the record, and nothing is written over unasked."""

import csv
import math
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.interchange import export
from kgops.interchange.tensorboard import write_tensorboard
from kgops.supervisor import run_json
from storage import transfer
from storage.transfer import Curve, Rows

EVIL = "../../größe 🙂 = {x}\n\x85=1+1"


@pytest.fixture
def rows(conn: sqlite3.Connection) -> Rows:
    """A run with curves of every kind: whole steps, moments as steps, nothing but NaN, huge, odd names."""
    made: dict[str, Any] = {
        **{column.name: None for column in transfer.columns(conn, "run")},
        "workload": "train",
        "label": EVIL,
        "state": "failed",
        "reason": "too\nlate",
        "attempts": 1,
        "submitted_at": 1e9 + 0.25,
        "ended_at": 1e9 + 60,
        "exclusive": 0,
        "folder": "",
        "id": 0,
    }
    curves = [
        Curve("loss", [0, 1, 2], [1 / 3, None, 1e-300], [1e9, 1e9 + 1.5, 1e9 + 2]),
        Curve("host_memory_mib", [1e9 + 0.5, 1e9 + 1.7], [3.5, 1e300], [1e9, 1e9 + 1]),
        Curve("../loss", [5, -7], [math.inf, None], [1e9, 1e9]),
    ]
    hanging: dict[str, list[dict[str, Any]]] = {name: [] for name in transfer.TABLES}
    hanging["metric"] = [{"name": "test_mrr", "value": 0.1 + 0.2}, {"name": "loss", "value": -math.inf}]
    hanging["tag"] = [{"tag": "paper"}]
    hanging["note"] = [{"at": 1e9, "text": EVIL}]
    kept = {"effect": "exact", "reason": None, "chosen_by": None, "attempt": 1}
    hanging["option"] = [{**kept, "name": "compile", "requested": "on", "applied": None}]
    job = {"workload": "train", "train": {"a b/c": [1, None], "x": EVIL}}
    spec: dict[str, Any] = {"job": job, "plan": {}, "environment": {}}
    number = transfer.insert_rows(conn, Rows(made, spec, hanging, curves), folder="0001-train-x")
    found = transfer.read_rows(conn, number)
    assert found is not None
    return found


# --- tables ---------------------------------------------------------------------------------------


def test_csv_has_every_digit_of_every_point(rows: Rows, tmp_path: Path) -> None:
    export.write_csv(iter([rows, rows]), tmp_path / "out", force=False)
    with (tmp_path / "out" / "series.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    points = [(c.name, *p) for c in rows.curves for p in zip(c.steps, c.values, c.times, strict=True)]
    assert len(read) == 2 * len(points)
    for line, (name, step, value, at) in zip(read, points, strict=False):
        told = float(line["value"]) if line["value"] else None
        assert (line["name"], float(line["step"]), float(line["at"])) == (name, step, at)
        assert repr(told) == repr(value)
    with (tmp_path / "out" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        metrics = {line["name"]: float(line["value"]) for line in csv.DictReader(file)}
    assert metrics == {row["name"]: row["value"] for row in rows.tables["metric"]}
    assert (tmp_path / "out" / "runs.csv").read_text(encoding="utf-8").count("\n") == 3


def crc32c(data: bytes) -> int:
    """Bit by bit, by its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    """As TFRecord frames them, every checksum checked."""

    def checked(part: bytes, mask: bytes) -> bytes:
        (wanted,) = struct.unpack("<I", mask)
        crc = crc32c(part)
        assert wanted == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        return part

    while data:
        (length,) = struct.unpack("<Q", checked(data[:8], data[8:12]))
        yield checked(data[12 : 12 + length], data[12 + length : 16 + length])
        data = data[16 + length :]


def message(data: bytes) -> dict[int, list[Any]]:
    """A protocol buffer's fields, by number."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << 64) if value >> 63 else value

    while at < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value: Any = varint()
        elif kind == 2:
            size = varint()
            value, at = data[at : at + size], at + size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            (value,) = struct.unpack(form, data[at : at + size])
            at += size
        found.setdefault(number, []).append(value)
    return found


# --- TensorBoard ----------------------------------------------------------------------------------


def float32(value: float | None) -> float:
    if value is None:
        return math.nan
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def expected_points(rows: Rows) -> dict[str, list[tuple[float, int, str]]]:
    counted = {"host_memory_mib"}  # its steps are moments
    curves = {
        c.name: [
            (at, n if c.name in counted else int(step), repr(float32(value)))
            for n, (step, value, at) in enumerate(zip(c.steps, c.values, c.times, strict=True))
        ]
        for c in rows.curves
    }
    ended = rows.run["ended_at"]
    metrics = {f"metrics/{f['name']}": [(ended, 0, repr(float32(f["value"])))] for f in rows.tables["metric"]}
    return curves | metrics


def test_event_files_hold_every_point_in_well_framed_records(rows: Rows, tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283  # of RFC 3720
    write_tensorboard(iter([rows]), tmp_path / "tb", force=False)
    (path,) = (tmp_path / "tb" / "0001-train-x").iterdir()
    assert "tfevents" in path.name
    version, text, *events = [message(data) for data in records(path.read_bytes())]
    assert version[3] == [b"brain.Event:2"]
    (shown,) = message(message(text[5][0])[1][0])[8]
    assert "größe".encode() in message(shown)[8][0]
    found: dict[str, list[tuple[float, int, str]]] = {}
    for event in events:
        value = message(message(event[5][0])[1][0])
        found.setdefault(value[1][0].decode(), []).append((event[1][0], event[2][0], repr(value[2][0])))
    assert found == expected_points(rows)


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["json", "csv", "tensorboard"])
def test_what_is_there_is_written_over_with_force_alone(run_cli: Console, wanted: str) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    first = run_cli.must("export", "1", "--to", wanted)
    again = run_cli("export", "1", "--to", wanted)
    assert again.code == 2 and "already exists" in again.err
    assert run_cli("export", "1", "--to", wanted, "--force").out == first.out
    assert run_cli("export", "1", "--to", wanted, "--output", "/proc/none/x").code == 1
    assert run_cli("export", "9", "--to", wanted).code == 2


def test_an_export_that_is_killed_or_fails_leaves_nothing_under_its_name(rows: Rows, tmp_path: Path) -> None:
    def broken() -> Iterator[Rows]:
        yield rows
        raise RuntimeError("as a deleted run would")

    for write in (run_json.write_json, export.write_csv):
        with pytest.raises(RuntimeError):
            write(broken(), tmp_path / "out", force=False)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
