"""A worker of TracIn gets the graph as it was read, holds no more of a GPU than was reserved, and gives memory back."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

from kgops.errors import BadInput
from kgops.jobs.run_options import GPU_BUDGET
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.tracin.fork import job_file, publish_shared_input, read_shared_graph
from kgops.maths.worker.devices import keep_to_budget
from kgops.workloads.job_files import read_job, read_job_file

JOB = read_job({"workload": "exec", "exec": {"command": ["true"]}}, "a test")


def test_the_graph_comes_back_with_the_same_numbers_and_the_same_labels(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("b\tr\ta\na\ts\tc\n")
    (tmp_path / "test.txt").write_text("c\tr\tnew\n")
    graph = read_graph(tmp_path / "train.txt", None, tmp_path / "test.txt")
    publish_shared_input(tmp_path, JOB, graph)
    got = read_shared_graph(tmp_path)
    for name in ("train", "valid", "test"):
        assert torch.equal(getattr(got, name), getattr(graph, name))
    assert (got.entities, got.relations) == (graph.entities, graph.relations)
    assert got.entities.digest == graph.entities.digest
    assert read_job_file(job_file(tmp_path)) == JOB


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_a_graph_that_was_cut_short_is_refused_by_its_name_and_replaced(tmp_path: Path, kept: int) -> None:
    nothing = torch.empty(0, 3, dtype=torch.long)
    graph = Graph(nothing, nothing, nothing, Vocabulary.of(["a"]), Vocabulary.of(["r"]))
    publish_shared_input(tmp_path, JOB, graph)
    path = tmp_path / "graph.torch"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadInput, match=r"graph\.torch is no shared graph"):
        read_shared_graph(tmp_path)
    publish_shared_input(tmp_path, JOB, graph)  # by a second attempt
    assert read_shared_graph(tmp_path).entities == graph.entities
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.torch", "job.toml"]


MIB = 1 << 20
BUDGET = 400


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield torch.device("cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_blocks_of_growing_sizes_give_back_what_none_of_them_fits_into(gpu: torch.device) -> None:
    with mock.patch.dict(os.environ, {GPU_BUDGET: str(BUDGET)}):
        keep_to_budget(gpu)
    for mib in range(100, 130):  # together ten times the budget
        torch.empty(mib * MIB, dtype=torch.uint8, device=gpu)
    assert torch.cuda.max_memory_reserved() <= BUDGET * MIB
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty((BUDGET + 1) * MIB, dtype=torch.uint8, device=gpu)


def test_a_cpu_and_a_run_without_a_budget_are_left_alone() -> None:
    with mock.patch.dict(os.environ, {GPU_BUDGET: "1"}):
        keep_to_budget(torch.device("cpu"))
    with mock.patch.dict(os.environ, {GPU_BUDGET: ""}):
        keep_to_budget(torch.device("cuda"))


PROGRAM = """
import resource
from kgops.maths.tracin.scan import trim_heap

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

pieces = [bytes(60_000) for _ in range(4000)]
pins = [bytes(600) for _ in range(40_000)]
kept = pieces[::8] + pins
del pieces
before = resident_mib()
trim_heap()
print(before - resident_mib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc's heap")
def test_what_lies_free_between_pieces_in_use_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100
