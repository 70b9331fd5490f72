"""Filtered evaluation against PyKEEN's evaluator with equal weights: time and ranks.

python -m benchmarks.evaluation --data DIR [--triples N]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.entry import run
from kgops.graphs.triples import Graph, read_graph
from kgops.models.conve import ConvE, ConvEConfig
from kgops.models.pykeen_bridge import to_pykeen_state
from kgops.training.evaluate import Evaluator
from kgops.trials import peers

__all__ = ["Outcome", "compare", "main"]


@dataclass(frozen=True)
class Outcome:
    triples: int
    our_s: float
    pykeen_s: float
    ranks: int
    ranks_that_differ: int

    @property
    def times_faster(self) -> float:
        return self.pykeen_s / self.our_s


def compare(graph: Graph, model: ConvE, triples: torch.Tensor, batch_size: int) -> Outcome:
    """Both rank these triples; our time includes building the filter, which PyKEEN's evaluator does not have."""
    started = time.perf_counter()
    known = torch.cat([graph.train, graph.valid, graph.test])
    ours = Evaluator(known, graph.num_entities)(model, triples)
    our_s = time.perf_counter() - started
    assert ours is not None
    reference, evaluator = _pykeen(graph, model)
    started = time.perf_counter()
    evaluator.evaluate(
        reference,
        triples,
        additional_filter_triples=[graph.train, graph.valid, graph.test],
        batch_size=batch_size,
        use_tqdm=False,
    )
    pykeen_s = time.perf_counter() - started
    differ = sum(
        int((torch.cat([torch.as_tensor(p) for p in evaluator.ranks[side, "realistic"]]) != own).sum())
        for side, own in (("head", ours.head_ranks), ("tail", ours.tail_ranks))
    )
    return Outcome(len(triples), our_s, pykeen_s, 2 * len(triples), differ)


def _pykeen(graph: Graph, model: ConvE) -> tuple[Any, Any]:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import ConvE as PykeenConvE

    reference = PykeenConvE(triples_factory=peers.factory(graph), embedding_dim=model.config.embedding_dim)
    reference.load_state_dict(to_pykeen_state(model))
    return reference.eval(), RankBasedEvaluator(clear_on_finalize=False)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt, valid.txt, test.txt")
    parser.add_argument("--triples", type=int, default=128, help="test triples that both rank")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="PyKEEN's; as shipped it takes much memory"
    )
    parser.add_argument("--whole", action="store_true", help="also time ours on the whole test set")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    graph = read_graph(*(args.data / f"{split}.txt" for split in ("train", "valid", "test")))
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations)).eval()
    outcome = compare(graph, model, graph.test[: args.triples], args.batch_size)
    if args.json:
        print(json.dumps({**asdict(outcome), "times_faster": outcome.times_faster}))
        return 0
    print(
        f"{outcome.triples:,} test triples: kgops {outcome.our_s:.2f} s, PyKEEN {outcome.pykeen_s:.2f} s, "
        f"{outcome.times_faster:.1f} times faster; {outcome.ranks_that_differ} of {outcome.ranks:,} ranks differ"
    )
    if args.whole:
        started = time.perf_counter()
        Evaluator(torch.cat([graph.train, graph.valid, graph.test]), graph.num_entities)(model, graph.test)
        print(f"{len(graph.test):,} test triples: kgops {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    run(main)
