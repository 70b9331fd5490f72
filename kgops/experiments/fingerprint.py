"""Fingerprint of a machine and its versions: read it, describe it in one line, compare two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgops.supervisor.environment import describe_environment, git_commit
from storage import benches
from storage.database import Connection

# They limit the instructions that libraries use, or say how threads wait: a time measured so is that of another CPU.
_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"),
    *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"),
)


def fingerprint() -> dict[str, Any]:
    """Machine, versions and kgops commit (if it runs from a checkout)."""
    describe = describe_environment()
    kept = {name: describe[name] for name in ("python", "packages", "machine", "driver", "gpus")}
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    body = {**kept, "git": git_commit(Path(__file__).parent), "threads": threads}
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    if found.get("OMP_WAIT_POLICY") == "PASSIVE":  # workers set it themselves
        del found["OMP_WAIT_POLICY"]
    return body | ({"variables": found} if found else {})


def machine_line(conn: Connection, key: str) -> str:
    return f"{key}: {describe(benches.fingerprint(conn, key))}"


def host_of(body: Mapping[str, Any]) -> str | None:
    """Host name of the machine; identical machines share a fingerprint, and the first one gives the name."""
    known = body.get("machine")
    name = known.get("host") if isinstance(known, dict) else None
    return name if isinstance(name, str) and name else None


def device(body: Mapping[str, Any]) -> str:
    """`Tesla T4`, `2 × NVIDIA H100 PCIe`; without a GPU the processor."""
    names = [gpu.get("name") or "?" for gpu in body.get("gpus") or ()]
    counts = {name: names.count(name) for name in names}
    gpus = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return gpus or _processor(body)


def hardware(body: Mapping[str, Any]) -> str:
    """`Tesla T4, Intel Xeon, 2 cores`: what stays the same when versions, commit or host name change."""
    processor, cores = _processor(body), (body.get("machine") or {}).get("cores")
    return ", ".join([*dict.fromkeys((device(body), processor)), *([f"{cores} cores"] if cores else [])])


def _processor(body: Mapping[str, Any]) -> str:
    return (body.get("machine") or {}).get("processor") or "unknown processor"


def describe(body: Mapping[str, Any]) -> str:
    machine = body.get("machine") or {}
    gpus = ", ".join(gpu.get("name") or "?" for gpu in body.get("gpus") or ()) or "no GPU"
    packages = body.get("packages") or {}
    git = body.get("git") or {}
    commit = str(git.get("commit") or "no commit")[:10] + (" with changes" if git.get("changed") else "")
    driver = f"driver {body['driver']}" if body.get("driver") else None
    threads, variables = _values(body, "threads"), _values(body, "variables")
    parts = [
        f"{machine.get('processor') or 'unknown processor'}, {machine.get('cores') or '?'} cores",
        *(
            gpus,
            driver,
            machine.get("system"),
            f"Python {body.get('python')}",
            f"torch {packages.get('torch')}",
        ),
        *(f"kgops {commit}", threads, variables),
    ]
    return ", ".join(part for part in parts if part)


def _values(body: Mapping[str, Any], of: str) -> str:
    return " ".join(f"{name}={value}" for name, value in (body.get(of) or {}).items())


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Fields that differ, such as `packages.torch: 2.10 and 2.13`; empty for equal fingerprints."""
    if benches.fingerprint_key(dict(a)) == benches.fingerprint_key(dict(b)):
        return []
    left, right = _flat(a), _flat(b)
    names = [name for name in dict.fromkeys((*left, *right)) if name != "machine.host"]
    return [
        f"{name}: {left.get(name)} and {right.get(name)}"
        for name in names
        if left.get(name) != right.get(name)
    ]


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        where = f"{path}.{name}" if path else name
        flat |= _flat(value, where) if isinstance(value, Mapping) else {where: value}
    return flat
