"""What the processes of a TracIn run are given is the graph as it was read, whatever its labels are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.tracin.fork import job_file, publish_shared_input, read_shared_graph
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
def test_a_graph_that_was_cut_short_is_refused_by_its_name(tmp_path: Path, kept: int) -> None:
    nothing = torch.empty(0, 3, dtype=torch.long)
    publish_shared_input(
        tmp_path, JOB, Graph(nothing, nothing, nothing, Vocabulary.of(["a"]), Vocabulary.of(["r"]))
    )
    path = tmp_path / "graph.torch"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadInput, match=r"graph\.torch is no shared graph"):
        read_shared_graph(tmp_path)


def test_a_second_attempt_has_its_own_graph_in_the_place_of_one_that_was_cut_short(tmp_path: Path) -> None:
    nothing = torch.empty(0, 3, dtype=torch.long)
    graph = Graph(nothing, nothing, nothing, Vocabulary.of(["a"]), Vocabulary.of(["r"]))
    publish_shared_input(tmp_path, JOB, graph)
    (tmp_path / "graph.torch").write_bytes(b"")
    publish_shared_input(tmp_path, JOB, graph)
    assert read_shared_graph(tmp_path).entities == graph.entities
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.torch", "job.toml"]
