"""A history made by chance, beside what a test knows of each run without the database."""

import math
import operator
import random
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from storage import conditions, filters, reports, run_list, runs, series
from storage.database import open_writer, transaction

NOW = datetime(2026, 6, 15, 12).timestamp()
GPUS = {"GPU-aaaa1": "Tesla T4", "GPU-bbbb2": "NVIDIA A100-SXM4-80GB", "GPU-cccc3": "NVIDIA T400 4GB"}
WORDS = ["umls", "two words", "Drug treats", "a", "50% off", "x_y", 'say "hi"', "naïve 測試", "train"]


class Known(NamedTuple):
    """A run as the reference knows it, without the database."""

    run: dict[str, Any]
    tags: set[str]
    notes: list[str]
    final: dict[str, float]
    curves: dict[str, list[float]]

    @property
    def text(self) -> str:
        profile = self.run["profile"] or ""
        return " ".join([self.run["label"], self.run["workload"], profile, *sorted(self.tags), *self.notes])

    def metric(self, name: str) -> float | None:
        for full in (name, f"test_{name}", f"valid_{name}"):
            if full in self.final and self.run["state"] in runs.ENDED:
                return self.final[full]
            if full in self.curves:
                return self.curves[full][-1]
        return None

    def best(self, name: str) -> float | None:
        for full in (name, f"test_{name}", f"valid_{name}"):
            if full in self.final or full in self.curves:
                values = self.curves.get(full, [])
                return (min if "loss" in name else max)(values, default=None)
        return None


def make(conn: sqlite3.Connection, number: int, chance: random.Random) -> Known:
    state = chance.choice(runs.STATES)
    metrics = (
        chance.sample(["mrr", "test_mrr", "hits@10"], chance.randrange(3)) if state in runs.ENDED else []
    )
    final = {name: round(chance.random(), 1) for name in metrics}
    curves = {
        name: [round(chance.random(), 1) for _ in range(chance.randrange(1, 80))]
        for name in chance.sample(["loss", "valid_mrr", "test_mrr", "mrr"], chance.randrange(4))
    }
    run: dict[str, Any] = {
        "workload": chance.choice(["train", "tracin", "exec"]),
        "label": f"{chance.choice(WORDS)} {number % 7}",
        "profile": chance.choice([None, "t4", "t4-large"]),
        "submitted_at": NOW - chance.choice([10, 3000, 86400, 8 * 86400]),
        "gpu_request": chance.choice([None, "auto", "0"]),
        "predicted_mib": chance.choice([None, 900.0, 2048.0]),
        "reserved_mib": None,
    }
    spec = runs.RunSpec({}, {}, {"gpus": [{"name": name, "uuid": uuid} for uuid, name in GPUS.items()]})
    runs.add(conn, runs.Run(id=number, state="queued", folder=f"{number:04d}", **run), spec)
    run |= {
        "gpu": chance.choice([None, *GPUS, ",".join(GPUS), ",".join([*GPUS][::-1])]),
        "started_at": chance.choice([None, 1000.0]),
        "attempts": chance.randrange(3),
        "peak_gpu_mib": chance.choice([None, 512.0, 3000.0]),
        "peak_host_mib": chance.choice([None, 700.0, 5000.0]),
        "phase": chance.choice([None, "epoch", "Evaluate"]),
        "metric": chance.choice([None, "loss"]),
    }
    names = ("gpu", "started_at", "attempts", "peak_gpu_mib", "peak_host_mib", "phase", "metric")
    changes = ", ".join(f"{name} = :{name}" for name in names)
    conn.execute(
        f"UPDATE run SET {changes}, state = :state WHERE id = :id", {**run, "state": "running", "id": number}
    )
    for name, values in curves.items():
        series.append(conn, number, [series.Point(name, i, v, 1.0) for i, v in enumerate(values)])
    reports.record_result(conn, number, [], final)
    tags = set(chance.sample(["paper", "old", "paper2"], chance.randrange(3)))
    reports.change_tags(conn, number, add=sorted(tags), remove=[])
    notes = chance.choices(["Diverged at step 7", "keep"], k=chance.randrange(2))
    for note in notes:
        reports.add_note(conn, number, 1.0, note)
    run |= {"id": number, "state": state, "reason": None, "ended_at": None, "exit_code": None}
    if state in runs.ENDED:
        run |= {
            "reason": chance.choice([None, "killed by a kernel"]),
            "ended_at": 1000.0 + chance.choice([30, 7200]),
        }
        run["exit_code"] = chance.choice([0, 1, None])
        ending = {name: run[name] for name in ("state", "reason", "exit_code", "ended_at")}
        assert runs.end(conn, number, **ending)
    else:
        runs.set_state(conn, number, state, None)
    return Known(run, tags, notes, final, curves)


History = tuple[sqlite3.Connection, list[Known]]


def known_history(path: Path, template: Path) -> Iterator[History]:
    path.write_bytes(template.read_bytes())
    conn = open_writer(path)
    conn.execute("PRAGMA synchronous = OFF")
    chance = random.Random(5)
    yield conn, [make(conn, number, chance) for number in range(1, 161)]
    conn.close()


def small(conn: sqlite3.Connection, count: int) -> list[Known]:
    chance = random.Random(23)
    with transaction(conn):
        return [make(conn, number, chance) for number in range(1, count + 1)]


# --- the reference: each term as a text beside what it means of one run ------------------------------

Meaning = Callable[[Known], bool]
SIGNS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ":": operator.eq,
}


def lower(text: str | None) -> str:
    return (text or "").lower()


def compared(value: float | None, sign: str, than: float) -> bool:
    if sign == "!=":
        return value is not None and value != than
    return value is not None and SIGNS[sign](value, than)


def on_gpu(known: Known, name: str) -> bool:
    given = (known.run["gpu"] or "").split(",")
    words = " ".join(GPUS.get(uuid, "") for uuid in given).lower().replace("-", " ").split()
    return name in words or known.run["gpu_request"] == name


def seconds(known: Known) -> float | None:
    run = known.run
    if run["started_at"] is None:
        return None
    took: float = (run["ended_at"] if run["ended_at"] is not None else math.inf) - run["started_at"]
    return took


def a_term(chance: random.Random) -> tuple[str, Meaning]:
    sign = chance.choice([">", ">=", "<", "<=", "=", "!="])
    x = chance.choice([0.0, 0.3, 0.5, 1.0])
    mib = chance.choice([700, 900, 3000])
    word = chance.choice(
        ["a", "umls", "two words", "WORDS", "treats", "50%", "x_y", "_", "測試", "paper", "測"]
    )
    options: list[tuple[str, Meaning]] = [
        ("workload:train", lambda k: k.run["workload"] == "train"),
        ("workload=tracin,exec", lambda k: k.run["workload"] in ("tracin", "exec")),
        ("workload:t*", lambda k: k.run["workload"].startswith("t")),
        ("workload!=exec", lambda k: k.run["workload"] != "exec"),
        ("state:failed", lambda k: k.run["state"] == "failed"),
        ("state:Failed,oom", lambda k: k.run["state"] in ("failed", "out_of_memory")),
        ("state:ended", lambda k: k.run["state"] in runs.ENDED),
        ("state:s*", lambda k: k.run["state"] in ("succeeded", "starting")),
        ("profile:t4", lambda k: k.run["profile"] == "t4"),
        ("profile:none", lambda k: k.run["profile"] is None),
        ("tag:paper", lambda k: "paper" in k.tags),
        ("tag:paper*", lambda k: any(tag.startswith("paper") for tag in k.tags)),
        ("tag:old,paper2", lambda k: bool({"old", "paper2"} & k.tags)),
        ("tag:none", lambda k: not k.tags),
        ('label:"two words"', lambda k: "two words" in lower(k.run["label"])),
        ("label:drug", lambda k: "drug" in lower(k.run["label"])),
        ("note:diverged", lambda k: any("diverged" in lower(note) for note in k.notes)),
        ("reason:KERNEL", lambda k: "kernel" in lower(k.run["reason"])),
        ("phase:eval", lambda k: "eval" in lower(k.run["phase"])),
        ("gpu:t4", lambda k: on_gpu(k, "t4")),
        ("gpu:a100", lambda k: on_gpu(k, "a100")),
        ("gpu:0", lambda k: on_gpu(k, "0")),
        ("gpu:GPU-cccc", lambda k: "GPU-cccc3" in (k.run["gpu"] or "")),
        ("gpu:none", lambda k: k.run["gpu_request"] is None and k.run["gpu"] is None),
        ("since:1h", lambda k: k.run["submitted_at"] >= NOW - 3600),
        ("until:2026-06-10", lambda k: k.run["submitted_at"] < datetime(2026, 6, 11).timestamp()),
        ("since:today", lambda k: k.run["submitted_at"] >= datetime(2026, 6, 15).timestamp()),
        (f"peak_gpu{sign}{mib}", lambda k: compared(k.run["peak_gpu_mib"], sign, mib)),
        (f"peak_host{sign}{mib}MiB", lambda k: compared(k.run["peak_host_mib"], sign, mib)),
        (f"predicted{sign}2g", lambda k: compared(k.run["predicted_mib"], sign, 2048)),
        (f"time{sign}1h", lambda k: compared(seconds(k), sign, 3600)),
        (f"attempts{sign}1", lambda k: compared(k.run["attempts"], sign, 1)),
        ("exit:none", lambda k: k.run["exit_code"] is None),
        ("run:20..31", lambda k: 20 <= k.run["id"] <= 31),
        (f"mrr{sign}{x}", lambda k: compared(k.metric("mrr"), sign, x)),
        (f"test_mrr{sign}{x}", lambda k: compared(k.metric("test_mrr"), sign, x)),
        (f"hits@10{sign}{x}", lambda k: compared(k.metric("hits@10"), sign, x)),
        (f"best.loss{sign}{x}", lambda k: compared(k.best("loss"), sign, x)),
        (f"best.valid_mrr{sign}{x}", lambda k: compared(k.best("valid_mrr"), sign, x)),
        ("mrr:0.2..0.6", lambda k: (value := k.metric("mrr")) is not None and 0.2 <= value <= 0.6),
        ("loss=none", lambda k: k.metric("loss") is None),
        (f"final.mrr{sign}{x}", lambda k: compared(k.metric("mrr") if final_mrr(k) else None, sign, x)),
        (f'"{word}"', lambda k: word.lower() in k.text.lower()),
        (word.split()[0], lambda k: word.split()[0].lower() in k.text.lower()),
    ]
    text, means = chance.choice(options)
    if chance.random() < 0.25:
        return f"-{text}", lambda k: not means(k)
    return text, means


def final_mrr(known: Known) -> bool:
    """Whether what `mrr` means is a final metric."""
    for name in ("mrr", "test_mrr", "valid_mrr"):
        if name in known.final:
            return True
        if name in known.curves:
            return False
    return False


def found(conn: sqlite3.Connection, text: str, *, typing: bool = False) -> list[int]:
    reading = filters.read(text, now=NOW, typing=typing)
    assert not reading.troubles, reading.troubles
    wanted = run_list.Filter(conditions=conditions.compiled(conn, reading.terms))
    return sorted(run.id for run in run_list.page(conn, wanted, limit=1000))
