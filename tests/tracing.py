"""A graph as files, a small training on it, and triples of it to trace."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kgops.workloads.job_files import read_job

FILES = ("train", "valid", "test")


def nations() -> Path:
    """The folder of the graph's files, found without loading PyKEEN."""
    found = importlib.util.find_spec("pykeen")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "datasets" / "nations"


def files() -> dict[str, str]:
    return {name: str(nations() / f"{name}.txt") for name in FILES}


def flags(names: Sequence[str] = FILES) -> list[str]:
    """The graph's files as flags of a command."""
    return [word for name in names for word in (f"--{name}", files()[name])]


def on_trained(results: Path) -> list[str]:
    """The flags of a command that asks what `train_on_files` trained."""
    return ["--checkpoint-dir", str(results / "checkpoints"), "--device", "cpu", *flags()]


def triples_of(split: str) -> set[tuple[str, ...]]:
    return {tuple(line.split("\t")) for line in (nations() / f"{split}.txt").read_text().splitlines()}


def train_on_files(folder: Path) -> Path:
    """The results of a small training."""
    small = {"embedding_dim": 16, "output_channels": 2, "num_epochs": 4, "device": "cpu", "validate_every": 0}
    job = read_job({"workload": "train", "train": {**files(), **small}}, "the test")
    (folder / "job.toml").write_text(job.as_toml())
    worker = [sys.executable, "-P", "-m", "kgops.maths.train.worker", "job.toml"]
    subprocess.run(worker, cwd=folder, capture_output=True, check=True)
    return folder / "results"


def first_test_triples(many: int) -> list[list[str]]:
    return [line.split("\t") for line in (nations() / "test.txt").read_text().splitlines()[:many]]


def batch_file(folder: Path, triples: list[list[str]]) -> str:
    path = folder / "batch.txt"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    return str(path)
