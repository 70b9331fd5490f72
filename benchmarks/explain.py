"""Explanations by the protocol of Kelpie (Rossi et al. 2022): do predictions fall without what explains them?

    python -m benchmarks.explain --dataset umls [--epochs 150] [--tests 100] [--seeds 3] [--json FILE]
    python -m benchmarks.explain --data DIR --base best_model.pt --methods 'none, another seed' 'explain, 4'
    python -m benchmarks.explain --lds --dataset umls --folder FOLDER [--subsets 100] [--tests 60]

Draws test triples whose tail the model ranks first. Each method gives each of them a set of training triples; all sets
of a method are removed at once, the model is trained again from the start, and hits@1 and MRR of the drawn triples are
taken again. Before, both are 1. Triples about the same two entities as the prediction are counted apart, since they
are easy to find. Of the last method the sets are also removed with one fact of each put back. The smallest sets are
found by training again, with other seeds than those that measure them.

With --lds, the linear datamodeling score of each score of training triples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.explain_protocol import REMOVED_HEADS, Removed, explained_tests, removals
from benchmarks.lds import LDS_HEADS, Compared, compared
from benchmarks.measure import arguments, run
from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.train.settings import TrainSettings
from kgops.workloads.train.models import ConvEConfig


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments("explain", __doc__, stores=False)
    parser.add_argument("--dataset", default="umls", help="a PyKEEN dataset by name")
    parser.add_argument("--data", type=Path, help="folder with train.txt, valid.txt and test.txt, instead")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each method or subset")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--embedding-dim", type=int, default=100)
    parser.add_argument("--base", type=Path, help="model of a kgops training to explain, and its settings")
    parser.add_argument("--methods", nargs="+", default=[], help="only the rows with these names")
    parser.add_argument("--max-facts", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write all values there")
    parser.add_argument("--lds", action="store_true", help="linear datamodeling scores instead")
    parser.add_argument("--subsets", type=int, default=100, help="with --lds, random halves to train on")
    parser.add_argument("--folder", type=Path, help="keeps the trainings, to go on from; --lds needs it")
    args = parser.parse_args(argv)
    if args.lds and args.folder is None:
        parser.error("--lds needs a --folder for its trainings")
    torch.set_num_threads(1)
    if args.data is None:
        graph = read_pykeen_dataset(args.dataset)
    else:
        graph = read_graph(*(args.data / f"{split}.txt" for split in ("train", "valid", "test")))
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=args.embedding_dim)
    settings = TrainSettings(
        num_epochs=args.epochs,
        batch_size=128,
        learning_rate=0.01,
        label_smoothing=0.1,
        loss="kvsall-bce",
        schedule="cosine",
        warmup_epochs=min(2, args.epochs - 1),
        validate_every=0,
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for one in _measured(args, graph, config, settings, folder):
            print(one.line(), flush=True)
            found.append(asdict(one))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0


def _measured(
    args: argparse.Namespace, graph: Graph, config: ConvEConfig, settings: TrainSettings, folder: Path
) -> Iterator[Removed] | Iterator[Compared]:
    if args.lds:
        print(LDS_HEADS)
        how = {"tests": args.tests, "subsets": args.subsets, "seeds": args.seeds}
        return compared(graph, config, settings, folder, **how)
    explained = explained_tests(graph, config, settings, args.base, folder, args.tests)
    print(f"{len(explained.drawn)} test triples ranked first\n{REMOVED_HEADS}", flush=True)
    return removals(explained, folder, seeds=args.seeds, most=args.max_facts, names=args.methods)


if __name__ == "__main__":
    run(main)
