"""One home for all pictures of screens: the same runs at the same moment, whoever draws it and wherever."""

import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvml_standin import Machine, t4
from records import add

from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder, folder_name
from storage import attempts, influences, reports, runs
from storage.attempts import Batch, Offsets, Progress, write_batch
from storage.database import Connection, transaction
from storage.influences import Influence, TestTriple
from storage.reports import Artifact, Option
from storage.series import Point

NOW = 1_773_500_000.0  # a Saturday, 14 March 2026, 14:53:20 UTC
_HOUR, _DAY = 3600.0, 86_400.0
_T4 = ("GPU-5d0c9a3e-77b1-4f0e-9b7c-0a5e2f6d1c48", "GPU-e81f4b26-2c39-4d7a-8a15-93b6f07d2e5c")
WORKERS = {7: 4_711, 8: 4_802}  # PIDs by run
OTHERS_PID = 5_120
# Of /proc/meminfo besides what matters here.
OTHER_MEMORY = ("MemFree", "Buffers", "Cached", "Active", "Inactive", "Slab", "Shmem", "SReclaimable")
GPUS = Machine(
    (
        replace(
            t4(_T4[0], used_mib=11_204, processes=((WORKERS[7], 11_160),)),
            utilization=97,
            temperature=71,
            power_mw=68_000,
        ),
        replace(
            t4(_T4[1], used_mib=3_980, processes=((WORKERS[8], 2_310), (OTHERS_PID, 1_568))),
            utilization=64,
            temperature=58,
            power_mw=41_000,
        ),
    )
)
ENVIRONMENT = {
    "python": "3.11.7",
    "packages": {"kgops": "1.0.0", "torch": "2.13.0+cu128", "pykeen": "1.11.1"},
    "machine": {"host": "gpu-7", "system": "Linux 6.8.0", "processor": "AMD EPYC 7302", "cores": 16},
    "driver": "570.86.15",
    "gpus": [{"name": "Tesla T4", "uuid": uuid, "mib": 15_360} for uuid in _T4],
    "git": {"commit": "3989bbf617b87927ffb0f5ec5724a5762835fba0", "changed": False},
    "variables": {"OMP_NUM_THREADS": "8"},
}
_ESTIMATE = {
    "parts_mib": {
        "activations": 6_410.0,
        "workspace": 1_630.0,
        "scores": 1_204.0,
        "optimizer": 804.0,
        "weights": 402.0,
        "gradients": 402.0,
        "allocator": 198.0,
    },
    "phase": "backward",
}


def fill(conn: Connection, home: Path) -> None:
    """Nine runs: one of every end, two that go on, one that waits."""
    with transaction(conn):
        _nations(conn, home, 1, batch=256, mrr=0.5309, ago=4 * _DAY)
        _nations(conn, home, 2, batch=512, mrr=0.6006, ago=4 * _DAY - _HOUR)
        reports.change_tags(conn, 2, add=["paper", "baseline"], remove=[])
        came = {"kind": "export", "source": "/srv/paper/runs.json", "run": 17, "host": "gpu-3"}
        reports.add_event(conn, 2, 0, NOW - 3.5 * _DAY, "imported", came)
        reports.add_note(conn, 2, NOW - 3 * _DAY, "The one of table 2.\nBatch 256 is worse.")
        _tracing(conn, home)
        _diverged(conn, home)
        _stepped_down(conn, home)
        _stopped(conn, home)
        _training(conn, home)
        _scoring(conn, home)
        _waiting(conn, home)


def hold(home: Path) -> list[int]:
    """The locks of runs that have not ended, as their supervisors would hold them; nobody repairs or starts them."""
    held = [locks.take(RunFolder(path).supervisor_lock) for path in sorted((home / "runs").iterdir())[6:]]
    assert None not in held
    return [fd for fd in held if fd is not None]


# --- runs that ended ---


def _nations(conn: Connection, home: Path, number: int, *, batch: int, mrr: float, ago: float) -> None:
    job = {
        "workload": "train",
        "train": {"dataset": "nations", "embedding_dim": 200, "num_epochs": 100},
        "options": {"batch_size": batch, "compile": "default"},
    }
    begun = NOW - ago
    _begin(conn, home, number, "train", "nations", begun, job, gpu=_T4[0], predicted=405.0)
    curve = _curves(number, 100, begun, 0.4, floor=0.21, best=mrr)
    told = ("batch_size", "changes results", str(batch), None), ("compile", "rounding", "default", None)
    found = Batch(points=curve, options=_options(told), metric=("valid_mrr", mrr))
    found.progress = Progress("epoch", 100, 100, "epochs", 2.5, begun + 40)
    _end(conn, number, found, begun + 41.5 - number, peak_gpu=412.0, peak_host=2_310.0)
    files = [
        Artifact("results/best_model.pt", "best_model", None, 8_407_669, begun + 40),
        Artifact("results/test_results.json", "metrics", None, 606, begun + 40),
    ]
    metrics = {"test_mrr": mrr + 0.02, "test_hits_at_10": 0.985, "test_mean_rank": 2.796, "train_s": 38.2}
    reports.record_result(conn, number, files, metrics)


_FOUND = """
0.7518 burma intergovorgs indonesia
0.4402 china embassy indonesia
0.3127 india ngo indonesia
0.2884 burma embassy china
0.2761 netherlands ngo indonesia
0.2433 burma treaties india
0.2105 india intergovorgs indonesia
0.1987 china ngo burma
0.1640 egypt intergovorgs india
0.1312 uk ngoorgs3 netherlands
0.1290 poland economicaid burma
0.1177 burma reldiplomacy india
0.0948 indonesia treaties usa
0.0611 ussr exports indonesia
-0.0502 jordan intergovorgs egypt
-0.0733 israel embassy burma
-0.0911 usa militaryalliance uk
-0.1204 brazil ngo cuba
-0.1486 netherlands treaties uk
-0.2213 burma negativebehavior india
-0.3120 ussr embassy china
-0.5014 uk embassy china
"""


def _tracing(conn: Connection, home: Path) -> None:
    begun = NOW - 3 * _DAY
    job = {"workload": "tracin", "tracin": {"dataset": "nations", "run": 2, "top_k": 50}}
    _begin(conn, home, 3, "tracin", "nations", begun, job, gpu=_T4[1], predicted=880.0)
    scored = [line.split() for line in _FOUND.strip().splitlines()]
    ranks = [*range(1, 15), *range(-8, 0)]
    one = tuple(
        Influence(1, rank, h, r, t, float(score))
        for rank, (score, h, r, t) in zip(ranks, scored, strict=True)
    )
    names = {"burma": "Myanmar", "intergovorgs": "meets in organisations", "usa": "United States"}
    traced = [
        TestTriple(1, "burma", "ngo", "indonesia", 1592, None, one, names),
        TestTriple(
            2, "egypt", "treaties", "usa", 1592, None, (Influence(2, 1, "egypt", "ngo", "usa", 0.125),)
        ),
        TestTriple(3, "atlantis", "ngo", "usa", None, "atlantis is not in the training triples"),
    ]
    influences.add(conn, 3, traced)
    progress = Progress("block", 31, 31, "blocks", 3.1, begun + 62)
    done = Batch(progress=progress, metric=("traced", 2.0))
    _end(conn, 3, done, begun + 64, peak_gpu=902.0, peak_host=2_802.0)
    reports.record_result(conn, 3, [], {"tests": 2.0, "tracin_s": 61.4})


def _diverged(conn: Connection, home: Path) -> None:
    begun = NOW - _DAY
    job = {"workload": "train", "train": {"train": "robokop/train.txt", "num_epochs": 100}}
    _begin(conn, home, 4, "train", "robokop fp16, no scaler", begun, job, gpu=_T4[0], predicted=None)
    points = [Point("loss", n, 0.5 + n * n / 40 if n < 12 else None, begun + n) for n in range(1, 13)]
    off = ("compile", "rounding", "default", "capability 6.1 < 7.0")
    found = Batch(points=points, options=_options((off,)), metric=("loss", None))
    found.progress = Progress("epoch", 12, 100, "epochs", 0.8, begun + 15)
    why = "the loss is no number any more, in epoch 12"
    _end(conn, 4, found, begun + 15, state="failed", reason=why, peak_gpu=9_870.0, peak_host=4_403.0)


def _stepped_down(conn: Connection, home: Path) -> None:
    begun = NOW - 20 * _HOUR
    job = {"workload": "regress", "regress": {"configuration": "colab_optimized", "num_epochs": 20}}
    change = {"option": "microbatch", "before": 20, "after": 10}
    fallback = {
        "changes": [change],
        "effect": "rounding",
        "reason": "a step adds up the gradients of two halves",
    }
    _begin(
        conn,
        home,
        5,
        "regress",
        "flights-full",
        begun,
        job,
        gpu=_T4[1],
        fallbacks=[fallback],
        predicted=14_100.0,
    )
    reason = "CUDA out of memory: 1,250 MiB asked, 411 MiB free"
    _close(conn, 5, 1, "out_of_memory", begun + 95, reason)
    reports.add_event(
        conn, 5, 1, begun + 95, "step_down", {"fallback": fallback, "settings": {"microbatch": 10}}
    )
    _attempt(conn, 5, 2, begun + 97, _T4[1], {"microbatch": 10})
    done = Batch(metric=("val_rmse", 0.0834), progress=Progress("epoch", 20, 20, "epochs", 0.1, begun + 300))
    _end(conn, 5, done, begun + 312, attempt=2, peak_gpu=8_912.0, peak_host=3_377.0)


def _stopped(conn: Connection, home: Path) -> None:
    begun = NOW - 2 * _HOUR
    job = {"workload": "exec", "exec": {"command": ["python", "eval.py", "--all"], "cwd": "/srv/robokop"}}
    _begin(conn, home, 6, "exec", "python eval.py --all", begun, job)
    _end(conn, 6, Batch(), begun + 734, state="cancelled", reason="stopped by ada", peak_host=611.0)


# --- runs that go on ---


def _training(conn: Connection, home: Path) -> None:
    begun = NOW - 25 * 60
    job = {
        "workload": "train",
        "profile": "t4",
        "train": {"train": "robokop/train.txt", "embedding_dim": 400, "num_epochs": 100},
        "options": {"batch_size": 512, "precision": "auto", "compile": "reduce-overhead"},
    }
    choices = [
        _choice("precision", "auto", "fp16", "profile", "no bf16 tensor cores on this GPU"),
        _choice("entity_chunk", "auto", 8192, "planner", "scores of 50,112 entities are never stored"),
        _choice("compile", "reduce-overhead", "default", "rule", "CUDA graphs and checkpointing do not mix"),
        _choice("gradient_checkpointing", True, True, "profile", None),
        _choice("batch_size", 512, 512, "person", None),
    ]
    forecast = {"on": "Tesla T4", "on_gpu": True, "predicted_mib": 11_050.0, "estimate": _ESTIMATE}
    plan = {"choices": choices, "forecast": {**forecast, "modelled_s": 35.0, "usable_mib": 14_909.0}}
    label = "robokop-conve"
    _begin(conn, home, 7, "train", label, begun, job, gpu=_T4[0], plan=plan, predicted=11_050.0, profile="t4")
    told = (
        ("batch_size", "changes results", "512", None),
        ("precision", "rounding", "fp16", None),
        ("entity_chunk", "exact", "8192", None),
        ("compile", "rounding", "default", None),
        ("gradient_checkpointing", "exact", "on", None),
    )
    points = _curves(7, 37, begun, 40.0, floor=0.0021, best=0.287)
    points += [
        Point("gpu_memory_mib", int(begun) + 25 * n, 11_204 - 9_000 / (1 + n * n), begun + 25 * n)
        for n in range(60)
    ]
    found = Batch(points=points, options=_options(told), metric=("valid_mrr", 0.287))
    found.progress = Progress("epoch", 37, 100, "epochs", 0.0251, NOW - 4)
    write_batch(conn, 7, 1, found, Offsets())
    attempts.note_peaks(conn, 7, 1, gpu_mib=11_204.0, host_mib=5_120.0, cpu_s=None)
    _write_log(home, 7, label)


def _scoring(conn: Connection, home: Path) -> None:
    begun = NOW - 12 * 60
    job = {"workload": "tracin", "tracin": {"run": 2, "test": "drug-disease.tsv", "top_k": 100}}
    _begin(conn, home, 8, "tracin", "drug-disease-25", begun, job, gpu=_T4[1], predicted=3_900.0)
    found = Batch(progress=Progress("block", 12, 31, "blocks", None, NOW - 2), metric=None)
    write_batch(conn, 8, 1, found, Offsets())


def _waiting(conn: Connection, home: Path) -> None:
    job = {"workload": "train", "train": {"train": "robokop/train.txt", "embedding_dim": 800}}
    _add(conn, home, 9, "train", "robokop-conve-big", NOW - 600, job, gpu_request="0", predicted=10_900.0)
    runs.set_reason(conn, 9, "queued", "run 7, which reserves 10,900 MiB, on GPU 0")


# --- what they are made from ---


def _add(
    conn: Connection,
    home: Path,
    number: int,
    workload: str,
    label: str,
    at: float,
    job: dict[str, Any],
    *,
    predicted: float | None = None,
    **given: Any,
) -> None:
    folder = folder_name(number, workload, label)
    (home / "runs" / folder).mkdir(parents=True)
    given |= {"workload": workload, "label": label, "folder": folder, "submitted_at": at}
    given |= {"reserved_mib": None if predicted is None else round(predicted), "predicted_mib": predicted}
    add(conn, number, job={"label": label, **job}, env=ENVIRONMENT, **given)


def _begin(
    conn: Connection,
    home: Path,
    number: int,
    workload: str,
    label: str,
    at: float,
    job: dict[str, Any],
    *,
    gpu: str | None = None,
    plan: dict[str, Any] | None = None,
    fallbacks: Sequence[dict[str, Any]] = (),
    **given: Any,
) -> None:
    given |= {"gpu_request": None if gpu is None else str(_T4.index(gpu))}
    given |= {"plan": {**(plan or {}), "fallbacks": list(fallbacks)}}
    _add(conn, home, number, workload, label, at - 3, job, **given)
    runs.claim(conn, number, gpu=gpu)
    _attempt(conn, number, 1, at, gpu, {})


def _attempt(
    conn: Connection, run: int, number: int, at: float, gpu: str | None, settings: dict[str, Any]
) -> None:
    nobody = {"boot_id": "another boot", "worker_pid": 1, "worker_started": 1, "supervisor_pid": 1}
    began = attempts.Attempt(run, number, settings=settings, gpu=gpu, started_at=at, **nobody)  # type: ignore[arg-type]
    attempts.begin(conn, began)


def _close(conn: Connection, run: int, number: int, outcome: str, at: float, reason: str | None) -> None:
    attempts.close(
        conn, run, number, outcome=outcome, reason=reason, exit_code=None, signal=None, ended_at=at
    )


def _end(
    conn: Connection,
    run: int,
    told: Batch,
    at: float,
    *,
    attempt: int = 1,
    state: str = "succeeded",
    reason: str | None = None,
    peak_gpu: float | None = None,
    peak_host: float | None = None,
) -> None:
    write_batch(conn, run, attempt, told, Offsets())
    attempts.note_peaks(conn, run, attempt, gpu_mib=peak_gpu, host_mib=peak_host, cpu_s=None)
    _close(conn, run, attempt, state, at, reason)
    runs.end(conn, run, state=state, reason=reason, exit_code=int(state == "failed"), ended_at=at)


def _curves(seed: int, epochs: int, at: float, each_s: float, *, floor: float, best: float) -> list[Point]:
    shaky = random.Random(seed)
    found = []
    for n in range(1, epochs + 1):
        when, noise = at + each_s * n, shaky.uniform(-1, 1)
        found.append(Point("loss", n, floor * (1 + 6 * math.exp(-n / 9) + 0.05 * noise), when))
        found.append(Point("epoch_seconds", n, each_s * (1 + 0.03 * noise), when))
        if n % 2 == 0 or n == epochs:
            found.append(
                Point("valid_mrr", n, best * (1 - math.exp(-4 * n / epochs)) / (1 - math.exp(-4)), when)
            )
    return found


def _options(told: Sequence[tuple[str, str, str, str | None]]) -> list[Option]:
    """A reason is given where something asked for did not take effect."""
    return [
        Option(1, name, kind, asked, "off" if why else asked, why, "person")
        for name, kind, asked, why in told
    ]


def _choice(option: str, asked: Any, applied: Any, by: str, reason: str | None) -> dict[str, Any]:
    return {"option": option, "requested": asked, "applied": applied, "chosen_by": by, "reason": reason}


def _write_log(home: Path, number: int, label: str) -> None:
    lines = ["reading robokop/train.txt: 5,124,310 triples, 50,112 entities, 217 relations"]
    for n in range(1, 38):
        lines.append(f"epoch {n:>3}/100  loss {0.0021 * (1 + 6 * math.exp(-n / 9)):.5f}  39.8 s")
        if n == 20:
            lines.append("WARNING: the loss of 3 batches overflowed in fp16 and was scaled down")
    log = RunFolder(home / "runs" / folder_name(number, "train", label)).log
    log.write_text("\n".join(lines) + "\n")
    os.utime(log, (NOW, NOW))
