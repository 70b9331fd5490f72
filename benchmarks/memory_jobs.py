"""Small jobs of all workloads with a memory model, on graphs from nations to FB15k-237."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kgops.errors import Usage
from kgops.jobs.bundled import BUNDLED

_HELD_OUT = 500  # validation and test triples: ranking takes time, and as much memory for any number of them
# Graph -> entities, relations and training triples where no folder of real graphs is given.
_SIZES = {
    "codex-s": (2_034, 42, 32_888),
    "wn18rr": (40_943, 11, 86_835),
    "fb15k-237": (14_541, 237, 272_115),
    "hetionet-disease": (7_700, 12, 30_610),
}
_FLIGHTS = {"small": (32, 48, 60), "middle": (64, 64, 120), "large": (96, 128, 40)}


@dataclass(frozen=True)
class MemoryJob:
    """`of` is the number of the training, from 1, whose checkpoints a TracIn run reads."""

    workload: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    of: int | None = None


def _train(data: str, dim: int, batch: int, options: Mapping[str, Any] = {}, **settings: Any) -> MemoryJob:
    own = {"embedding_dim": dim, "num_epochs": 1, "checkpoint_frequency": 1, **settings}
    return MemoryJob("train", data, own, {"batch_size": batch, **options})


def _tracin(data: str, of: int, options: Mapping[str, Any] = {}, **settings: Any) -> MemoryJob:
    return MemoryJob("tracin", data, settings, options, of=of)


def _pipeline(data: str, dim: int, tests: int) -> MemoryJob:
    trained = {"embedding_dim": dim, "num_epochs": 2, "checkpoint_frequency": 1}
    return MemoryJob("pipeline", data, {"train": trained, "tracin": {"max_triples": tests, "top_k": 50}})


def _regress(data: str, options: Mapping[str, Any] = {}, **settings: Any) -> MemoryJob:
    return MemoryJob("regress", data, {"epochs": 1, "pretrain": False, **settings}, options)


# From small to large. `of` numbers the jobs of this list from 1.
JOBS: tuple[MemoryJob, ...] = (
    _train("nations", 200, 256),
    _train("codex-s", 200, 256, num_epochs=2),
    _tracin("codex-s", 2, max_triples=1, top_k=100),
    _train("umls", 64, 64),
    _regress("small", {"batch_size": 8}),
    _tracin("codex-s", 2, max_triples=40, top_k=50),
    _train("wn18rr", 48, 512, {"entity_chunk": 2048}, output_channels=16),
    _pipeline("nations", 64, 20),
    _train("codex-s", 400, 512, loss="1vsall-ce"),
    _tracin("codex-s", 2, self_influence=True, top_k=100),
    _train("fb15k-237", 64, 1024, output_channels=8),
    _regress("middle", {"batch_size": 16, "gradient_checkpointing": True}),
    _train("hetionet-disease", 200, 1024, optimizer="adagrad"),
    _tracin("wn18rr", 7, max_triples=1, top_k=100),
    _train("nations", 32, 1024, {"gradient_checkpointing": True}),
    _tracin("fb15k-237", 11, max_triples=2, top_k=100),
    _train("codex-s", 100, 1024, {"gradient_checkpointing": True}),
    _regress("large", {"batch_size": 8}),
    _tracin("codex-s", 2, {"tests_at_once": 1}, max_triples=4, top_k=100),
    _train("wn18rr", 96, 2048, output_channels=4),
    _pipeline("codex-s", 100, 10),
    _tracin("codex-s", 2, {"precision": "bf16"}, max_triples=20, top_k=50),
    _train("fb15k-237", 96, 2048, {"entity_chunk": 4096}, output_channels=4),
    _tracin("hetionet-disease", 13, test_triples="tests.txt"),
    _train("kinships", 200, 128, {"precision": "bf16"}),
    _tracin("codex-s", 2, {"block": 1024}, max_triples=10),
    _regress("middle", {"batch_size": 4, "temporal_frames": 8}, architecture="gnn"),
    _train("codex-s", 200, 128, optimizer="sgd", inverse=False),
    _tracin("codex-s", 2, loss="one-to-n", max_triples=5, top_k=100),
    _pipeline("hetionet-disease", 64, 5),
    _tracin("wn18rr", 20, {"last_layers": 2}, max_triples=30, top_k=50),
    _train("hetionet-disease", 64, 256, {"precision": "bf16", "entity_chunk": 1024}),
)


def table_of(job: MemoryJob, data: Path, trained: Mapping[int, int]) -> dict[str, Any]:
    """The job as a job-file table. `trained` maps a training's number in `JOBS` to its run."""
    folder, own = data / job.data, dict(job.settings)
    graph = {"dataset": job.data}
    if job.data not in BUNDLED:
        graph = {name: str(folder / f"{name}.txt") for name in ("train", "valid", "test")}
    if job.workload == "regress":
        own["data_directory"] = str(folder)
    elif job.workload == "pipeline":
        own["train"] = {**graph, **own["train"]}
    elif job.of is None:
        own = {**graph, **own}
    else:
        own["run"] = trained[job.of]
        if "test_triples" in own:
            own["test_triples"] = str(folder / own["test_triples"])
    return {"workload": job.workload, job.workload: own, "options": dict(job.options)}


def write_data(folder: Path, real: Path | None) -> None:
    """Writes graphs and flights of all jobs. `real` has a folder per graph; without it graphs are random."""
    for name, sizes in _SIZES.items():
        (folder / name).mkdir(parents=True)
        splits = _drawn(*sizes) if real is None else _read(real / name)
        for split, lines in splits.items():
            kept = lines if split == "train" else lines[:_HELD_OUT]
            (folder / name / f"{split}.txt").write_text("".join(kept), "utf-8")
        (folder / name / "tests.txt").write_text("".join(splits["test"][:20]), "utf-8")
    for seed, (name, (height, width, frames)) in enumerate(_FLIGHTS.items()):
        (folder / name).mkdir()
        _write_flights(folder / name, (frames, height, width), seed)


def _read(folder: Path) -> dict[str, list[str]]:
    try:
        return {
            split: (folder / f"{split}.txt").read_text("utf-8").splitlines(keepends=True)
            for split in ("train", "valid", "test")
        }
    except OSError as error:
        raise Usage(f"{folder} lacks the graph: {error.strerror}", "name their folder: --data DIR") from error


def _drawn(entities: int, relations: int, triples: int) -> dict[str, list[str]]:
    draw = random.Random(entities)

    def lines(many: int) -> Iterator[str]:
        for _ in range(many):
            head, relation = int(entities * draw.random() ** 2), int(relations * draw.random() ** 2)
            yield f"entity/{head}\trelation/{relation}\tentity/{int(entities * draw.random() ** 2)}\n"

    whole = [f"entity/{number}\trelation/0\tentity/{number * 7 % entities}\n" for number in range(entities)]
    train = sorted({*whole, *lines(max(0, triples - entities))})
    return {"train": train, "valid": list(lines(_HELD_OUT)), "test": list(lines(_HELD_OUT))}


def _write_flights(folder: Path, shape: tuple[int, int, int], seed: int) -> None:
    """Two flights of noise: memory does not depend on the data."""
    noise, frames = np.random.default_rng(seed), shape[0]
    for number in range(2):
        np.savez(
            folder / f"{number}.npz",
            frames=noise.integers(0, 256, shape, dtype=np.uint8),
            solar_zenith=noise.uniform(20, 60, frames),
            solar_azimuth=noise.uniform(100, 250, frames),
            height=noise.uniform(0.5, 3, frames),
            time=np.arange(frames, dtype=float),
        )
