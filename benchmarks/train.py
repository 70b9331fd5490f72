"""Training against PyKEEN: speed, memory and quality.

    python -m benchmarks.train --data DIR [--quick] [--store]

DIR has the folders fb15k-237, wn18rr and codex-s. Each comparison runs in a new process, without another's
memory or threads; within it the variants are interleaved, and each round gives one ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.entry import run
from benchmarks.measure import PYTHON, Line, quietness, store, table
from kgops.errors import KgopsError
from kgops.experiments.fingerprint import fingerprint

COMMAND = "python -m benchmarks.train"
OURS, BF16 = "kgops, float32", "kgops, bfloat16"
PATCHED, SHIPPED = "PyKEEN, matrix product patched in", "PyKEEN as shipped"
FLOOR = "floor: products, convolution, Adam"
MANY = 100_000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with fb15k-237, wn18rr, codex-s")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; PyKEEN as shipped at batch 16")
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    parser.add_argument("--only", help="comparisons whose name contains this")
    args = parser.parse_args(argv)
    data: Path = args.data.absolute()
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}", flush=True)
    lines: list[Line] = []
    for name, compare in _comparisons(data, args.quick):
        if args.only and args.only not in name:
            continue
        begun = time.perf_counter()
        measured = compare()
        lines += measured
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(table(lines)))
    print(
        "Ratios: PyKEEN's time per sample over ours, round by round; above the floor: ours over it. MiB: peak"
    )
    print("live bytes of a step above weights, gradients and optimizer, as torch's profiler records them.")
    if args.store:
        store(lines, COMMAND + f" --data {data}" + (" --quick" if args.quick else ""))
    return 1 if any(line.reached is False for line in lines) else 0


def _comparisons(data: Path, quick: bool) -> Iterator[tuple[str, Callable[[], list[Line]]]]:
    fb, wn = data / "fb15k-237", data / "wn18rr"
    yield (
        "fb15k-237 batch 256",
        lambda: _step(
            "fb15k237_256",
            "FB15k-237, batch 256",
            ["--data", str(fb)],
            256,
            quick,
            {"shipped": 80, "patched": 2.6, "bf16": 3.6, "floor": 1.2, "mib": 60},
        ),
    )
    yield (
        "fb15k-237 batch 1024",
        lambda: _step(
            "fb15k237_1024",
            "FB15k-237, batch 1024",
            ["--data", str(fb)],
            1024,
            quick,
            {"patched": 3.1, "bf16": 4.6},
        ),
    )
    yield (
        "wn18rr batch 256",
        lambda: _step("wn18rr_256", "WN18RR, batch 256", ["--data", str(wn)], 256, quick, {"patched": 3.8}),
    )
    yield (
        "100k entities batch 1024",
        lambda: _step(
            "100k_1024",
            "100k entities, batch 1024",
            ["--entities", str(MANY)],
            1024,
            quick,
            {"patched": 4, "bf16": 5.3, "mib": 190},
        ),
    )
    yield "1M entities batch 512", lambda: _million(quick)
    for graph in ("kinships",) if quick else ("kinships", "umls"):
        yield f"quality {graph}", partial(_quality, graph, ["--dataset", graph], 1 if quick else 3)
    if not quick:
        yield "quality codex-s", lambda: _quality("codex-s", ["--data", str(data / "codex-s")], 3)
    yield "threads", lambda: _threads(3 if quick else 9)
    yield "nations", lambda: _demo(1 if quick else 3)


def _step(
    key: str, subject: str, what: list[str], batch: int, quick: bool, targets: dict[str, float]
) -> list[Line]:
    flags = [*what, "--batch-size", str(batch), "--json"]
    flags += ["--quick"] if quick else []
    flags += [] if "shipped" in targets else ["--without-shipped"]
    rows = {row["name"]: row for row in json.loads(_run("kgops.trials.train_step", *flags))}
    ours, patched = rows[OURS], rows[PATCHED]
    over = tuple(1 / ratio for ratio in rows[FLOOR]["ratios"])
    # PyKEEN patched and our bfloat16 are ratios to our float32 step of that round.
    paired = zip(patched["ratios"], rows[BF16]["ratios"], strict=True)
    low = tuple(theirs / ours_low for theirs, ours_low in paired)
    most = tuple(a / b for a, b in zip(patched["ratios"], rows[FLOOR]["ratios"], strict=True))
    lines = [
        _ratio(f"{key}_patched", f"{subject}: PyKEEN patched / kgops", patched["ratios"], targets["patched"]),
        _ratio(
            f"{key}_bf16", f"{subject}: PyKEEN patched / kgops bf16", low, _where_amx(targets.get("bf16"))
        ),
        Line(f"{key}_most", f"{subject}: PyKEEN patched / bare products", "×", most),
        Line(f"{key}_floor", f"{subject}: kgops / bare products", "×", over, targets.get("floor")),
        Line(f"{key}_ms", f"{subject}: a step of kgops, best", "ms", (ours["best_ms"],)),
        Line(f"{key}_mib", f"{subject}: memory of a step", "MiB", (ours["peak_mib"],), targets.get("mib")),
    ]
    lines.append(
        Line(f"{key}_patched_mib", f"{subject}: memory of PyKEEN patched", "MiB", (patched["peak_mib"],))
    )
    if SHIPPED in rows:
        shipped = rows[SHIPPED]
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


def _million(quick: bool) -> list[Line]:
    """Time and memory of a step at one million entities."""
    flags = ["--entities", "1000000", "--batch-size", "512", "--ours-only", "--json"]
    flags += ["--quick"] if quick else ["--rounds", "5"]
    row = next(r for r in json.loads(_run("kgops.trials.train_step", *flags)) if r["name"] == OURS)
    subject = "1M entities, batch 512"
    return [
        Line("1m_512_mib", f"{subject}: memory of a step", "MiB", (row["peak_mib"],), 300),
        Line("1m_512_ms", f"{subject}: a step of kgops, best", "ms", (row["best_ms"],)),
    ]


def _quality(graph: str, what: list[str], seeds: int) -> list[Line]:
    """Test MRR after the same training by both, seed by seed."""
    result = json.loads(_run("benchmarks.quality", *what, "--seeds", str(seeds), "--json"))
    ours, theirs = result["kgops"], result["PyKEEN, patched"]
    more = tuple(a["mrr"] - b["mrr"] for a, b in zip(ours, theirs, strict=True))
    subject = f"{graph}, 20 epochs: test MRR"
    return [
        Line(f"quality_{graph}", f"{subject}, kgops − PyKEEN", "", more, 0, at_least=True),
        Line(f"quality_{graph}_mrr", f"{subject} of kgops", "", tuple(o["mrr"] for o in ours)),
    ]


_THREADS = """
import itertools, json, sys, time
import kgops.workers  # sets how threads wait
import torch
from kgops.trials.train_step import synthetic
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.batches import Batches
from kgops.training.optimizers import build_optimizer
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep
from kgops.training.threads import step_gflop, threads_for
entities, batch, dim, channels, rounds = map(int, sys.argv[1:])
graph, cores = synthetic(entities), torch.get_num_threads()
config = ConvEConfig(entities, graph.num_relations, embedding_dim=dim, output_channels=channels)
settings = TrainSettings(batch_size=batch)
batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=batch, seed=0)
model = ConvE(config).train()
loss = settings.build_loss(torch.float32, settings.chunk_for(torch.device("cpu")))
step = TrainStep(model, loss, build_optimizer("adam", model, 1e-3))
source = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
chosen = threads_for(step_gflop(config, batch), cores)
def timed(threads):
    torch.set_num_threads(threads)
    step(next(source))
    begun = time.perf_counter()
    for _ in range(5):
        step(next(source))
    return (time.perf_counter() - begun) * 200
print(json.dumps({"chosen": chosen, "cores": cores, "ms": [(timed(chosen), timed(cores)) for _ in range(rounds)]}))
"""


def _threads(rounds: int) -> list[Line]:
    """A tiny step with the threads the worker chooses, and with a thread for every core."""
    lines = []
    for entities, batch, dim, channels in ((100, 64, 32, 8), (15_000, 256, 200, 32)):
        sizes = map(str, (entities, batch, dim, channels, rounds))
        result = json.loads(_output([PYTHON, "-P", "-c", _THREADS, *sizes], one_thread=False))
        subject = f"{entities:,} entities, d = {dim}, batch {batch}"
        many = f"{result['cores']} threads / the {result['chosen']} chosen"
        ratios = tuple(every / chosen for chosen, every in result["ms"])
        lines.append(Line(f"threads_{entities}", f"{subject}: {many}", "×", ratios))
        chosen_ms = tuple(chosen for chosen, _ in result["ms"])
        lines.append(Line(f"threads_{entities}_ms", f"{subject}: a step, threads as chosen", "ms", chosen_ms))
    return lines


def _demo(repetitions: int) -> list[Line]:
    """`kgops run` with default options, in a temporary home."""
    took = []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="kgops-bench-") as home:
            command = [PYTHON, "-P", "-m", "kgops", "run", "train", "--dataset", "nations"]
            begun = time.perf_counter()
            _output([*command, "--num-epochs", "20", "--json"], one_thread=False, home=home, cwd=home)
            took.append(time.perf_counter() - begun)
    return [Line("nations_s", "Nations, 20 epochs, from key press to record", "s", tuple(took))]


def _run(module: str, *flags: str) -> str:
    return _output([PYTHON, "-P", "-m", module, *flags], one_thread=True)


def _output(command: list[str], *, one_thread: bool, home: str | None = None, cwd: str | None = None) -> str:
    environment = dict(os.environ)
    if one_thread:
        environment["OMP_NUM_THREADS"] = "1"
    if home is not None:
        environment["KGOPS_HOME"] = home
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        result = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        why = next(
            (line.removeprefix("Error: ") for line in result if line.startswith("Error: ")), result[-1]
        )
        raise KgopsError(
            f"{' '.join(command[3:5])} ended with {done.returncode}: {why}",
            f"run it by hand to see all that it says: {shlex.join(command)}",
        )
    return done.stdout


if __name__ == "__main__":
    run(main)
