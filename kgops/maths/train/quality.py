"""Quality by relation, direction and degree, from ranks that an evaluation has already, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.train.evaluate import Evaluation

_SAMPLES = 1000  # of the bootstrap
_INTERVAL = 0.95
_SEED = 0
_HITS_AT = (1, 10)
# Triples of the training that mention the answer: the last degree of each bucket.
_BUCKETS = (0, 2, 5, 10, 20, 50, 100)

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Means over the ranks of a group, each with the interval that 95 % of resampled means lie in."""

    name: str
    count: int
    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, name: str, ranks: _Floats, generator: np.random.Generator) -> Group:
        # Resampling n ranks of which many are equal is drawing how often each distinct rank occurs.
        distinct, counts = np.unique(ranks, return_counts=True)
        drawn = generator.multinomial(len(ranks), counts / len(ranks), size=_SAMPLES) / len(ranks)
        low, high = (1 - _INTERVAL) / 2, (1 + _INTERVAL) / 2
        means, intervals = {}, {}
        for metric, values in _values(distinct):
            means[metric] = float(values @ counts / len(ranks))
            interval = np.quantile(drawn @ values, (low, high))
            intervals[metric] = (float(interval[0]), float(interval[1]))
        return cls(name, len(ranks), means, intervals)

    def to_dict(self) -> dict[str, Any]:
        named: dict[str, Any] = {"name": self.name, "count": self.count}
        for metric, mean in self.means.items():
            named |= {metric: mean, f"{metric}_interval": list(self.intervals[metric])}
        return named


def quality_table(evaluation: Evaluation, graph: Graph) -> dict[str, Any]:
    """Of the graph's test triples, as JSON: by relation, the most frequent first; by direction, head or tail
    predicted; by degree of the answer in the training triples. A rank that is not a number is left out."""
    triples = graph.test
    generator = np.random.default_rng(_SEED)
    ranks = np.concatenate([evaluation.head_ranks.numpy(), evaluation.tail_ranks.numpy()])
    relations = np.concatenate([triples[:, 1].cpu().numpy()] * 2)
    is_tail = np.arange(len(ranks)) >= len(triples)
    answers = torch.cat([triples[:, 0], triples[:, 2]]).cpu()
    ends = torch.cat([graph.train[:, 0], graph.train[:, 2]])
    degrees = torch.bincount(ends, minlength=graph.num_entities)[answers].numpy()
    buckets = np.searchsorted(_BUCKETS, degrees)

    def grouped(of_rank: npt.NDArray[Any], names: list[str]) -> Iterator[Group]:
        for number, name in enumerate(names):
            chosen = ranks[(of_rank == number) & np.isfinite(ranks)]
            if len(chosen):
                yield Group.of(name, chosen, generator)

    by_relation = sorted(grouped(relations, list(graph.relations.labels)), key=lambda one: -one.count)
    by_group = {
        "relation": by_relation,
        "direction": grouped(is_tail.astype(np.int64), ["head", "tail"]),
        "degree": grouped(buckets, _bucket_names()),
    }
    groups = {group: [one.to_dict() for one in found] for group, found in by_group.items()}
    return {"groups": groups, "interval": _INTERVAL, "bootstrap_samples": _SAMPLES}


def _values(ranks: _Floats) -> Iterator[tuple[str, _Floats]]:
    yield "mrr", 1 / ranks
    for k in _HITS_AT:
        yield f"hits_at_{k}", (ranks <= k).astype(np.float64)


def _bucket_names() -> list[str]:
    """`0`, `1-2`, …, `over 100`."""
    first = [0, *(last + 1 for last in _BUCKETS[:-1])]
    names = [str(low) if low == high else f"{low}-{high}" for low, high in zip(first, _BUCKETS, strict=True)]
    return [*names, f"over {_BUCKETS[-1]}"]
