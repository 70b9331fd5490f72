"""TracIn run by two processes against one on one core: time, memory, and the machine's own speed-up.

    python -m benchmarks.spread --data DIR [--tests 2000] [--rounds 3] [--store]

DIR has train.txt and test.txt. The variants are interleaved; each is a worker as a supervisor starts it, from start to
its manifest, loading included. The third variant is two independent TracIn runs, each on one core: their slowdown
limits the possible speed-up. The model is not trained: the cost of a TracIn run does not depend on the weights.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store, table
from kgops.graphs.triples import read_graph
from kgops.jobs.job import read_job
from kgops.models.conve import ConvE, ConvEConfig
from kgops.planning.resolve import for_worker, resolve
from kgops.training.checkpoints import Checkpoint, write_checkpoint

__all__ = ["main", "untrained"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt and test.txt")
    parser.add_argument("--tests", type=int, default=2000, help="test triples")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        untrained(folder / "model.pt", args.data, args.dim)
        ratios: list[float] = []
        given: list[float] = []
        alone: list[float] = []
        shared: list[float] = []
        peaks = {1: 0.0, 2: 0.0}
        for number in range(args.rounds):
            for devices, times in ((1, alone), (2, shared)):
                took, peak = _trace(folder / f"{number}-{devices}", folder, args, devices, cores[:devices])
                times.append(took)
                peaks[devices] = max(peaks[devices], peak)
            ratios.append(alone[-1] / shared[-1])
            apart = _trace_apart(folder / f"{number}-apart", folder, args, cores)
            given.append(len(cores) * alone[-1] / apart)
            print(
                f"round {number + 1}: {alone[-1]:.1f} s alone, {shared[-1]:.1f} s shared, "
                f"{apart:.1f} s two of them at once",
                flush=True,
            )
    what = f"{args.tests:,} tests, top 100"
    lines = [
        Line("spread_two", f"{what}: one process on one core / two on two", "×", tuple(ratios), 1.85, at_least=True),
        Line("spread_given", f"{what}: speed-up of two independent TracIn runs on two cores", "×", tuple(given)),
        Line("spread_alone_s", f"{what}: one process", "s", tuple(alone)),
        Line("spread_shared_s", f"{what}: two processes", "s", tuple(shared)),
        Line("spread_peak_1", "largest process, alone", "MiB", (peaks[1],)),
        Line("spread_peak_2", "largest process, of two", "MiB", (peaks[2],)),
    ]  # fmt: skip
    print("\n".join(table(lines)))
    if args.store:
        store(lines, "benchmarks.spread")
    return 0 if statistics.median(ratios) >= 1.85 else 1


def _trace(
    folder: Path, data: Path, args: argparse.Namespace, devices: int, cores: list[int]
) -> tuple[float, float]:
    """Seconds, and peak MiB of the largest process so far."""
    begun = time.perf_counter()
    with _worker(folder, data, args, devices, cores) as worker:
        _end(worker)
    return time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _trace_apart(folder: Path, data: Path, args: argparse.Namespace, cores: list[int]) -> float:
    """Seconds until independent TracIn runs, one per core, have all ended."""
    folder.mkdir()
    begun = time.perf_counter()
    workers = [_worker(folder / str(core), data, args, 1, [core]) for core in cores]
    for worker in workers:
        _end(worker)
    return time.perf_counter() - begun


def _worker(
    folder: Path, data: Path, args: argparse.Namespace, devices: int, cores: list[int]
) -> subprocess.Popen[bytes]:
    folder.mkdir()
    settings = {
        "model_path": str(data / "model.pt"),
        "train": str(args.data / "train.txt"),
        "test": str(args.data / "test.txt"),
        "max_triples": args.tests,
        "top_k": 100,
        "loss": "one-to-n",
        "learning_rate": 0.001,
        "device": "cpu",
    }
    job = read_job({"workload": "tracin", "tracin": settings, "options": {"devices": devices}}, "a benchmark")
    (folder / "job.toml").write_text(job.as_toml())
    own = {"KGOPS_RUN_FOLDER": str(folder), "KGOPS_EVENTS": str(folder / "events.jsonl")}
    own |= for_worker(resolve(job, lambda _: None).environment, os.environ)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kgops.workers.tracin", str(folder / "job.toml")],
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.wait() != 0:
        raise RuntimeError(f"the worker ended with {worker.returncode}")


def untrained(path: Path, data: Path, dim: int) -> None:
    graph = read_graph(data / "train.txt", None, data / "test.txt")
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=dim)
    torch.manual_seed(0)
    digests = graph.entities.digest, graph.relations.digest
    loss = {"name": "kvsall-bce", "label_smoothing": 0.0}
    model = ConvE(config).state_dict()
    write_checkpoint(path, Checkpoint(model, config.to_dict(), 1, 0, 0.001, loss, *digests, {}, {}))


if __name__ == "__main__":
    run(main)
