"""What the recipes that ship with kgops reach: test MRR of several seeds, by kgops and by PyKEEN's evaluator, and time.

    python -m benchmarks.recipes umls kinships [--data DIR] [--seeds 3] [--exclusive] [--write]

Each seed is one `kgops train --recipe NAME` in a temporary home, with all cores and nothing else running, and
with --exclusive if that is given. DIR has the folders fb15k-237, wn18rr and codex-s with train.txt, valid.txt and
test.txt, for their recipes `-best` and `-complex`, too; umls and kinships ship inside PyKEEN. PyKEEN loads the best
model of each run and evaluates it with its own RankBasedEvaluator. `--write` keeps what was measured beside the recipe,
where `kgops recipes show NAME` reads it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.measure import arguments, ended_run, quietness, run
from kgops.experiments.fingerprint import fingerprint
from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.pykeen_bridge import to_pykeen_state
from kgops.maths.train.checkpoints import read_checkpoint
from kgops.maths.trials import train_step
from kgops.workloads.train import recipes
from kgops.workloads.train.models import VectorConfig
from kgops.workloads.train.recipes import Measured, MeasuredRun

_HITS = ("hits_at_1", "hits_at_10")


def main(argv: list[str] | None = None) -> int:
    parser = arguments("recipes", __doc__, stores=False)
    of_graphs = [name for name in recipes.names() if recipes.graph_of(name)]
    parser.add_argument("names", nargs="+", choices=of_graphs, metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder of the graphs that PyKEEN does not ship")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--exclusive", action="store_true", help="the runs let their CPU threads spin")
    parser.add_argument("--write", action="store_true", help="keep the metrics beside the recipe")
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    for name in args.names:
        with tempfile.TemporaryDirectory(prefix="kgops-bench-") as home:
            runs = [_measure(name, seed, args.data, Path(home), args.exclusive) for seed in range(args.seeds)]
        print(f"{name:12} mean    MRR {mean(one.test['mrr'] for one in runs):.4f}", flush=True)
        if args.write:
            machine, today = _machine(args.exclusive), time.strftime("%Y-%m-%d")
            write_measured(Measured(today, machine, recipes.fingerprint_of(name), runs), name)
    return 0


def in_short(body: Mapping[str, Any]) -> str:
    """What decides how long a training takes on a CPU: `AMD EPYC, 2 cores, torch 2.13.0+cpu`."""
    machine, packages = body["machine"], body["packages"]
    variables = " ".join(f"{name}={value}" for name, value in (body.get("variables") or {}).items())
    short = f"{machine['processor']}, {machine['cores']} cores, torch {packages['torch']}"
    return f"{short}, {variables}" if variables else short


def _machine(exclusive: bool) -> str:
    """AMX is named because nothing else of a CPU changes the time of bf16 products as much; threads where set."""
    known: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    threads = os.environ.get("OMP_NUM_THREADS")
    parts = [in_short(fingerprint()), *(["AMX"] if known.get("amx_bf16") else [])]
    threads_set = [f"OMP_NUM_THREADS={threads}"] if threads else []
    return ", ".join([*parts, *threads_set, *(["--exclusive"] if exclusive else [])])


def _measure(name: str, seed: int, data: Path | None, home: Path, exclusive: bool) -> MeasuredRun:
    files = _files(name, data)
    given = [part for split, path in files.items() for part in (f"--{split}", str(path))]
    given += ["--exclusive"] if exclusive else []
    ended = ended_run(home, "train", "--recipe", name, "--seed", str(seed), *given)
    results, metric = Path(ended["path"]) / "results", ended["metric"]
    graph = read_graph(*files.values()) if files else read_pykeen_dataset(recipes.graph_of(name) or name)
    one = MeasuredRun(
        seed,
        seconds=round(ended["ended_at"] - ended["started_at"], 1),
        epochs=int(metric["epochs"]),
        test={short: metric[f"test_{short}"] for short in ("mrr", *_HITS)},
        pykeen=pykeen_metrics(graph, results / "best_model.pt"),
        curve=_curve(json.loads((results / "training_history.json").read_text("utf-8"))),
    )
    print(
        f"{name:12} seed {seed}  MRR {one.test['mrr']:.4f}  by PyKEEN {one.pykeen['mrr']:.4f}  "
        f"{one.seconds:.0f} s",
        flush=True,
    )
    return one


def _files(name: str, data: Path | None) -> dict[str, Path]:
    folder = None if data is None else data / re.sub("(-complex)?(-best)?$", "", name)
    if folder is None or not folder.is_dir():
        return {}
    return {split: folder / f"{split}.txt" for split in ("train", "valid", "test")}


def _curve(history: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Validations alone; the time is that of all epochs until then."""
    seconds = accumulate(entry.get("seconds", 0.0) for entry in history)
    return [
        (entry["epoch"], round(after, 1), round(entry["valid"]["both"]["mrr"], 4))
        for entry, after in zip(history, seconds, strict=True)
        if "valid" in entry
    ]


def pykeen_metrics(graph: Graph, checkpoint: Path) -> dict[str, float]:
    """MRR and hits of a model of kgops by PyKEEN's own model and evaluator, filtered by all known triples."""
    from pykeen.evaluation import RankBasedEvaluator

    model = read_checkpoint(checkpoint, torch.device("cpu")).build_model()
    theirs = in_pykeen(model, graph)
    with train_step.matrix_product():
        result = RankBasedEvaluator().evaluate(
            theirs,
            graph.test,
            additional_filter_triples=[graph.train, graph.valid],
            batch_size=256,
            use_tqdm=False,
        )
    names = {"mrr": "inverse_harmonic_mean_rank", **{name: name for name in _HITS}}
    return {own: float(result.get_metric(f"both.realistic.{far}")) for own, far in names.items()}


def in_pykeen(model: EntityModel, graph: Graph) -> Any:
    """PyKEEN's model of this name with these weights."""
    from pykeen.models import model_resolver

    if isinstance(model, ConvE):
        return train_step.pykeen_model(graph, model)
    c = model.config
    assert isinstance(c, VectorConfig)
    kind: Any = model_resolver.lookup(c.model)
    same: Any = kind(triples_factory=train_step.factory(graph), embedding_dim=c.rank, random_seed=0)
    same.load_state_dict(to_pykeen_state(model), strict=False)
    return same.eval()


def write_measured(found: Measured, name: str) -> None:
    """Beside the recipe, as JSON with a line for each run."""
    table = asdict(found)
    runs = ",\n  ".join(json.dumps(one) for one in table.pop("runs"))
    rest = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
    text = f'{{{rest},\n "runs": [\n  {runs}\n ]}}\n'
    recipes.find(name).with_suffix(".json").write_text(text, "utf-8")


if __name__ == "__main__":
    run(main)
