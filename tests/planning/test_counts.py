"""How large a job's data are is known without torch, agrees with what training reads, and is remembered. Graphs of
PyKEEN's are planned before a download, by sizes that are those of the real thing."""

import gzip
import json
import os
import random
from pathlib import Path

import pytest
import torch
from driving import Console

from kgops.jobs.bundled import BUNDLED
from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import rows_of
from kgops.maths.train.batches import Batches, lexicographic
from kgops.workloads.graphs.counts import PUBLISHED, Counts, counts_of, sizes_of
from kgops.workloads.job_files import read_job
from kgops.workloads.shared_options import LARGEST_GROUP
from kgops.workloads.train.models import ConvEConfig
from kgops.workloads.train.sizes import train_shape


def agree(counts: Counts | None, graph: Graph) -> None:
    assert counts is not None
    assert (counts.entities, counts.relations) == (graph.num_entities, graph.num_relations)
    assert (counts.train, counts.valid, counts.test) == (len(graph.train), len(graph.valid), len(graph.test))


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_graphs_are_counted_as_training_reads_them_and_as_was_published(name: str) -> None:
    real = counts_of({"dataset": name})
    agree(real, read_pykeen_dataset(name))
    assert real is not None and not real.published
    assert sizes_of(name) == (real.entities, real.relations, real.train, real.valid, real.test)


def written(folder: Path, lines: int, seed: int = 0) -> dict[str, str]:
    """Three files of random triples, one packed, with repeats, blank lines, a header and another line end."""
    rng = random.Random(seed)
    found = {}
    for split, many in (("train", lines), ("valid", lines // 9), ("test", lines // 7)):
        rows = [f"é{rng.randrange(60)}\tr {rng.randrange(5)}\t{rng.randrange(60)}" for _ in range(many)]
        text = "head\trelation\ttail\r\n" + "\r\n".join([*rows, rows[0], "", ""])
        path = folder / (f"{split}.gz" if split == "test" else f"{split}.tsv")
        path.write_bytes(gzip.compress(text.encode()) if split == "test" else text.encode())
        found[split] = str(path)
    return found


@pytest.mark.parametrize("start", ["", "3\n", "label\tid\n"])
def test_a_vocabulary_says_how_many_there_are(tmp_path: Path, start: str) -> None:
    triples, entities = tmp_path / "train.tsv", tmp_path / "entities.tsv"
    triples.write_text("a\tr\tb\n")
    entities.write_text(f"{start}a\t0\nb\t1\nunused\t2\n")
    counts = counts_of({"train": str(triples), "entity_to_id": str(entities)})
    agree(counts, read_graph(triples, entity_to_id=entities))
    assert counts is not None and counts.entities == 3


def test_queries_and_their_answers_are_those_of_the_batches(tmp_path: Path) -> None:
    files = written(tmp_path, 700, seed=3)
    with Path(files["train"]).open("ab") as file:
        file.write("".join(f"é1\tr {n % 3}\té{n % 40}\n" for n in range(120)).encode())  # large groups
    graph, counts = read_graph(Path(files["train"])), counts_of({"train": files["train"]})
    assert counts is not None
    tails = Batches(graph.train, inverse=False, one_positive=False, batch_size=64, seed=0)
    both = Batches(graph.train, inverse=True, one_positive=False, batch_size=64, seed=0)
    assert counts.tails.queries == tails.num_queries
    assert counts.tails.queries + counts.heads.queries == both.num_queries
    sizes = [len(batch.positives) for batch in tails.epoch(1)]
    assert counts.tails.answers == sum(sizes)
    grouped = Batches(
        graph.train, inverse=True, one_positive=False, largest_group=LARGEST_GROUP, batch_size=64, seed=0
    )
    assert grouped.num_queries > both.num_queries  # the graph has larger groups
    for wanted, expected in ((True, grouped.num_queries), (False, 2 * len(graph.train))):
        table = {"train": files["train"], "loss": "1vsall-ce", "group_queries": wanted}
        shape = train_shape(read_job({"workload": "train", "train": table}, "test"), counts, None)
        assert shape is not None and shape.examples == expected


@pytest.mark.parametrize("both_directions", [False, True])
def test_queries_of_a_block_are_those_that_tracin_finds_in_it(tmp_path: Path, both_directions: bool) -> None:
    files = written(tmp_path, 900, seed=4)
    graph, counts = read_graph(Path(files["train"])), counts_of({"train": files["train"]})
    assert counts is not None
    model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=8))
    for size in (32, 256, 600, 5000):
        blocks = [
            rows_of(model, graph.train[ids], both_directions)
            for ids in torch.split(lexicographic(graph.train), size)
        ]
        found = [len(torch.unique(rows[:, :2], dim=0)) for rows in blocks]
        predicted = counts.groups.in_block(size, both_directions=both_directions)
        assert max(found) <= predicted
        if size in (32, 256):
            assert max(found) == predicted


def test_counts_are_remembered_until_a_file_changes(tmp_path: Path) -> None:
    files, memory = written(tmp_path, 300), tmp_path / "home" / "counts.json"
    first = counts_of(files, memory)
    assert first is not None and counts_of(files, memory) == first
    told = json.loads(memory.read_text())
    (key,) = told
    told[key]["entities"] = 12345
    memory.write_text(json.dumps(told))
    second = counts_of(files, memory)
    assert second is not None and second.entities == 12345  # nothing was read again
    Path(files["train"]).write_text("a\tr\tb\n")
    os.utime(files["train"], (1, 1))
    third = counts_of(files, memory)
    assert third is not None and third.train == 1


def test_what_cannot_be_counted_is_unknown_and_never_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tsv"
    broken.write_text("only two\tcolumns\n")
    assert counts_of({"dataset": "a-graph-nobody-published"}) is None
    assert counts_of({"train": str(broken)}) is None
    assert counts_of({"train": str(tmp_path / "missing.tsv")}) is None
    assert counts_of({}) is None


def test_what_another_kgops_remembered_is_counted_anew(tmp_path: Path) -> None:
    triples, remembered = tmp_path / "train.txt", tmp_path / "counts.json"
    triples.write_text("a\tr\tb\nb\tr\tc\n")
    counted = counts_of({"train": str(triples)}, remembered)
    broken: object
    for broken in ({}, {"entities": 3}, [], "text", {"tails": 1}):
        told = json.loads(remembered.read_text())
        remembered.write_text(json.dumps(dict.fromkeys(told, broken)))
        assert counts_of({"train": str(triples)}, remembered) == counted


# --- published sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe", ["codex-s", "fb15k-237", "fb15k-237-complex", "wn18rr", "kinships", "umls"]
)
def test_a_recipe_is_planned_without_a_download(recipe: str, run_cli: Console) -> None:
    done = run_cli.must("suggest", "train", "--recipe", recipe, "--gpu", "t4", "--json")
    (found,) = done.json()
    assert found["unknown"] is None
    assert found["need_mib"] > 400
    assert found["fits"] is True


def test_every_size_is_what_pykeen_says_of_it() -> None:
    from docdata import get_docdata
    from pykeen.datasets import dataset_resolver

    for name in PUBLISHED:
        told = get_docdata(dataset_resolver.lookup(name))["statistics"]
        parts = ("entities", "relations", "training", "validation", "testing")
        assert sizes_of(name) == tuple(told[part] for part in parts), name


@pytest.mark.parametrize("name", ["codexsmall", "fb15k237", "wn18rr"])
def test_what_was_counted_of_a_recipes_graph_has_its_published_size(name: str) -> None:
    found = counts_of({"dataset": name})
    assert found is not None and found.published and not found.assumed
    assert sizes_of(name) == (*(found.entities, found.relations, found.train, found.valid, found.test),)
    assert found.tails.answers == found.heads.answers == found.train
    assert 0 < found.heads.queries < found.tails.queries < found.train
    assert Counts.from_table(json.loads(json.dumps(found.as_table()))) == found


def test_a_plan_says_that_a_graph_is_not_here_and_what_is_assumed_of_it(run_cli: Console) -> None:
    counted = run_cli("suggest", "train", "--dataset", "codexsmall", "--gpu", "t4").out
    assert (
        "2,034 entities, 42 relations, 32,888 training triples: as published, not downloaded yet" in counted
    )
    assumed = run_cli("suggest", "train", "--dataset", "yago310", "--gpu", "t4").out
    assert "123,143 entities" in assumed
    assert "planned as one query per training triple" in assumed
    assert "as published" not in run_cli("suggest", "train", "--dataset", "nations", "--gpu", "t4").out
