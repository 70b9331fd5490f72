"""Export to TensorBoard's event files."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from kgops.jobs import toml
from kgops.jobs.run_options import must_be_free, written
from kgops.jobs.text import one_line
from storage.transfer import Curve, Rows

_LARGEST = 1 << 53


def whole_steps(curve: Curve) -> Sequence[int]:
    """The curve's steps where all are integers; else (memory over time) the points counted from 0."""
    if all(abs(step) < _LARGEST and step == int(step) for step in curve.steps):
        return [int(step) for step in curve.steps]
    return range(len(curve.steps))


_DOUBLE, _BYTES, _FLOAT = 1, 2, 5  # wire types; 0 is a varint
_DT_STRING = 7
_LARGEST_FLOAT = 3.4028234663852886e38


def write_tensorboard(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """A folder for each run below `target`, for `--logdir`."""
    for rows in runs:
        folder = target / rows.run["folder"]
        path = folder / f"events.out.tfevents.{max(int(rows.run['submitted_at']), 0):010d}.kgops"
        must_be_free(path, force=force)
        folder.mkdir(parents=True, exist_ok=True)
        with written(path) as file:
            file.writelines(_record(event) for event in _events(rows))


def _events(rows: Rows) -> Iterator[bytes]:
    began = rows.run["started_at"] or rows.run["submitted_at"]
    ended = rows.run["ended_at"] or began
    yield _event(began, 0, _field(3, b"brain.Event:2"))
    yield _event(began, 0, _field(5, _field(1, _text("kgops/run", _summary(rows)))))
    for curve in rows.curves:
        tag = one_line(curve.name)
        for step, value, at in zip(whole_steps(curve), curve.values, curve.times, strict=True):
            yield _event(at, step, _field(5, _field(1, _scalar(tag, value))))
    for row in rows.tables["metric"]:
        yield _event(
            ended, 0, _field(5, _field(1, _scalar(f"metrics/{one_line(row['name'])}", row["value"])))
        )


def _summary(rows: Rows) -> str:
    """Markdown for TensorBoard's Text tab."""
    run = rows.run
    head = f"run {run['id']} · {run['workload']} · {one_line(run['label'])} · {run['state']}"
    try:
        job = toml.dumps(rows.spec["job"])
    except TypeError:  # an imported job may hold values that TOML cannot express
        job = repr(rows.spec["job"])
    return head + "\n\n" + "".join(f"    {line}\n" for line in job.splitlines())


# --- protocol buffers -----------------------------------------------------------------------------


def _event(at: float, step: int, what: bytes) -> bytes:
    return _key(1, _DOUBLE) + struct.pack("<d", at) + _key(2, 0) + _varint(step) + what


def _scalar(tag: str, value: float | None) -> bytes:
    number = math.nan if value is None else value
    if abs(number) > _LARGEST_FLOAT:
        number = math.copysign(math.inf, number)
    return _field(1, tag.encode()) + _key(2, _FLOAT) + struct.pack("<f", number)


def _text(tag: str, text: str) -> bytes:
    """A string tensor with the metadata of the text plugin."""
    one = _field(2, _key(1, 0) + _varint(1))  # a dimension of size 1
    tensor = _key(1, 0) + _varint(_DT_STRING) + _field(2, one) + _field(8, text.encode())
    metadata = _field(1, _field(1, b"text"))
    return _field(1, tag.encode()) + _field(8, tensor) + _field(9, metadata)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # two's complement of negative numbers
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- records --------------------------------------------------------------------------------------


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and offset (masked), as the TFRecord format requires."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_OF[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_OF = tuple(map(_crc_of, range(256)))
