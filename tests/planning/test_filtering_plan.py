"""`suggest tracin` counts what filters leave, by the code that filters, and suggests one where the run is long."""

import json
import random
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytest
from driving import Console

ENTITIES = 60
MODEL = ("--checkpoint-dir", "checkpoints", "--train", "train.txt")
FILTERS = ("--n-hops 1", "--n-hops 2", "--path-filtering --max-total-path-length 3")


class Graph:
    """Random triples, two of them test triples, and the config of a model on them that takes long to trace."""

    def __init__(self, folder: Path, seed: int, *, checkpoints: int) -> None:
        rng = random.Random(seed)
        pairs = {(rng.randrange(ENTITIES), rng.randrange(ENTITIES)) for _ in range(130)}
        self.edges = sorted(pairs | {(i, (i + 1) % ENTITIES) for i in range(ENTITIES)})
        self.tests = [(rng.randrange(30), 30 + rng.randrange(30)) for _ in range(3)]
        (folder / "train.txt").write_text("".join(f"e{h}\tr\te{t}\n" for h, t in self.edges))
        (folder / "test.txt").write_text("".join(f"e{h}\tr\te{t}\n" for h, t in self.tests))
        model = {"num_entities": ENTITIES, "num_relations": 1, "embedding_dim": 2000}
        config = {"model": model, "training": {"loss": "kvsall-bce"}}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "checkpoints").mkdir()
        for number in range(checkpoints):
            (folder / "checkpoints" / f"checkpoint_epoch_{number}.pt").touch()

    def kept(self, head: int, tail: int, hops: int, longest: int | None = None) -> set[tuple[int, int]]:
        """By networkx: edges of which both ends are so near to head and to tail, and on a path between them."""
        graph: Any = nx.Graph(self.edges)
        near = set.intersection(
            *(set(nx.single_source_shortest_path_length(graph, end, cutoff=hops)) for end in (head, tail))
        ) | {head, tail}
        kept = {
            (a, b)
            for a, b in self.edges
            if {a, b} <= near and ({a, b} & {head, tail} or max(graph.degree(a), graph.degree(b)) >= 2)
        }
        if longest is not None:
            paths = nx.all_simple_edge_paths(graph, head, tail, cutoff=longest)
            on = {frozenset(edge) for path in paths for edge in path}
            kept = {edge for edge in kept if frozenset(edge) in on}
        return kept


def plan_of(console: Console, *more: str) -> dict[str, Any]:
    done = console("suggest", "tracin", *MODEL, *more, "--gpu", "cpu", "--json")
    assert done.code in (0, 3), done.err
    (plan,) = done.json()
    found: dict[str, Any] = plan
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_long_run_is_shown_what_each_filter_leaves_as_networkx_counts_and_which_to_add(
    run_cli: Console, tmp_path: Path, seed: int
) -> None:
    graph = Graph(tmp_path, seed, checkpoints=1000)
    plan = plan_of(run_cli, "--test", "test.txt")
    preview = plan["filtering"]
    assert preview["all_s"] > 180 and preview["requested"] is None
    assert (preview["tests"], preview["train"]) == (len(graph.tests), len(graph.edges))
    assert tuple(one["flags"] for one in preview["filters"]) == FILTERS
    for one, (hops, longest) in zip(preview["filters"], ((1, None), (2, None), (2, 3)), strict=True):
        each = [graph.kept(*test, hops, longest) for test in graph.tests]
        assert one["left"] == [len(edges) for edges in each]
        assert one["together"] == len(set.union(*each))
        assert 0 < one["takes_s"] < preview["all_s"] * 1.5
    assert ("filtering", False) in [(one["option"], one["applied"]) for one in plan["options"]]
    assert "--n-hops" not in plan["command"]
    first, *page = run_cli("suggest", "tracin", *MODEL, "--test", "test.txt", "--gpu", "cpu").out.splitlines()
    best = next(one for one in preview["filters"] if one["flags"] == preview["suggested"])
    assert f"{best['together']:,} of {len(graph.edges)} training triples, about " in first
    assert first.endswith(f"(off; add {preview['suggested']})")
    assert all(any(line.startswith(flags) for line in page) for flags in FILTERS)


def test_a_filter_that_was_asked_for_is_counted_alone(run_cli: Console, tmp_path: Path) -> None:
    graph = Graph(tmp_path, 6, checkpoints=1000)
    test = graph.tests[0]
    plan = plan_of(run_cli, "--test-triple", f"e{test[0]},r,e{test[1]}", "--n-hops", "1")
    assert plan["filtering"]["requested"]["left"] == [len(graph.kept(*test, 1))]
    assert plan["filtering"]["filters"] == [] and plan["filtering"]["suggested"] is None
    assert f"filtering 1 hop (asked): {len(graph.kept(*test, 1))} of {len(graph.edges)} " in plan["suggested"]
    assert plan["expected_s"] is None and plan["predicted_step"] is None  # those would be of all triples


def test_what_cannot_be_counted_says_why(run_cli: Console, tmp_path: Path) -> None:
    Graph(tmp_path, 7, checkpoints=1000)
    page = run_cli("suggest", "tracin", *MODEL, "--test-triple", "nobody,r,e5", "--gpu", "cpu")
    assert "filtering off (not counted)" in page.out.splitlines()[0]
    assert "filtering was not counted: " in page.out and "nobody" in page.out
