"""Training against PyKEEN: speed and memory.

    python -m benchmarks.train --data DIR [--quick] [--store]

DIR has the folders fb15k-237 and wn18rr. Each comparison runs in a new process, without another's
memory or threads; within it the variants are interleaved, and each round gives one ratio.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Line, arguments, finish, json_of, quietness, run
from kgops.experiments.fingerprint import fingerprint

# Key, subject, graph (a folder of DIR or a number of entities), batch size, targets.
COMPARISONS: tuple[tuple[str, str, str | int, int, dict[str, float]], ...] = (
    (
        "fb15k237_256",
        "FB15k-237, batch 256",
        "fb15k-237",
        256,
        {"shipped": 80, "patched": 2.6, "bf16": 3.6, "floor": 1.2, "mib": 60},
    ),
    ("fb15k237_1024", "FB15k-237, batch 1024", "fb15k-237", 1024, {"patched": 3.1, "bf16": 4.6}),
    ("wn18rr_256", "WN18RR, batch 256", "wn18rr", 256, {"patched": 3.8}),
    ("100k_1024", "100k entities, batch 1024", 100_000, 1024, {"patched": 4, "bf16": 5.3, "mib": 190}),
    ("1m_512", "1M entities, batch 512", 1_000_000, 512, {"mib": 300}),  # too large for PyKEEN
)


def main(argv: list[str] | None = None) -> int:
    parser = arguments("train", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with fb15k-237 and wn18rr")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; PyKEEN as shipped at batch 16")
    parser.add_argument("--only", help="comparisons whose name contains this")
    args = parser.parse_args(argv)
    data: Path = args.data.absolute()
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}", flush=True)
    lines: list[Line] = []
    for key, subject, graph, batch, targets in COMPARISONS:
        if args.only and args.only not in subject:
            continue
        begun = time.perf_counter()
        given = ["--data", str(data / graph)] if isinstance(graph, str) else ["--entities", str(graph)]
        given += ["--batch-size", str(batch), *(["--quick"] if args.quick else [])]
        lines += _step(key, subject, given, targets)
        print(f"{subject}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    code = finish(lines, keep=args.store)
    print(
        "Ratios: PyKEEN's time per sample over kgops'; kgops' over that of bare products. MiB: peak live bytes"
    )
    print("of a step above weights, gradients and optimizer, as torch's profiler records them.")
    return code


def _step(key: str, subject: str, flags: list[str], targets: dict[str, float]) -> list[Line]:
    flags += [] if "shipped" in targets else ["--without-shipped"]
    flags += [] if "patched" in targets else ["--ours-only"]
    rows = {row["name"]: row for row in json_of("benchmarks.train_step", *flags, OMP_NUM_THREADS="1")}
    ours = rows["kgops"]
    lines = [
        Line(f"{key}_ms", f"{subject}: a step of kgops, best", "ms", (ours["best_ms"],)),
        Line(f"{key}_mib", f"{subject}: memory of a step", "MiB", (ours["peak_mib"],), targets.get("mib")),
    ]
    if "patched" not in rows:
        return lines
    patched, floor = rows["patched"]["ratios"], rows["floor"]["ratios"]
    patched_mib = rows["patched"]["peak_mib"]
    # All are ratios to kgops' float32 step of that round.
    low = tuple(theirs / ours_low for theirs, ours_low in zip(patched, rows["bf16"]["ratios"], strict=True))
    most = tuple(a / b for a, b in zip(patched, floor, strict=True))
    over = tuple(1 / ratio for ratio in floor)
    bf16 = _where_amx(targets.get("bf16"))
    lines = [
        _ratio(f"{key}_patched", f"{subject}: PyKEEN patched / kgops", patched, targets["patched"]),
        _ratio(f"{key}_bf16", f"{subject}: PyKEEN patched / kgops bf16", low, bf16),
        Line(f"{key}_most", f"{subject}: PyKEEN patched / bare products", "×", most),
        Line(f"{key}_floor", f"{subject}: kgops / bare products", "×", over, targets.get("floor")),
        *lines,
        Line(f"{key}_patched_mib", f"{subject}: memory of PyKEEN patched", "MiB", (patched_mib,)),
    ]
    if "shipped" in rows:
        shipped = rows["shipped"]
        if shipped["peak_mib"] is not None:
            subject_of_memory = f"{subject}: memory of PyKEEN as shipped"
            lines.append(Line(f"{key}_shipped_mib", subject_of_memory, "MiB", (shipped["peak_mib"],)))
        name = f"{subject}: PyKEEN as shipped (batch {shipped['samples']}) / kgops, per sample"
        lines.insert(0, _ratio(f"{key}_shipped", name, shipped["ratios"], targets["shipped"]))
    return lines


def _ratio(name: str, subject: str, values: Any, target: float | None) -> Line:
    return Line(name, subject, "×", tuple(values), target, at_least=True)


def _where_amx(target: float | None) -> float | None:
    """The bf16 target applies if the CPU has bf16 instructions."""
    flags = Path("/proc/cpuinfo")
    return target if flags.exists() and "amx_bf16" in flags.read_text() else None


if __name__ == "__main__":
    run(main)
