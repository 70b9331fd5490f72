"""Sizes of a TracIn run that its memory depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.workloads.graphs.block_counts import Groups
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.number_formats import product_precision
from kgops.workloads.tracin.job import Does, does_of, top_k_of
from kgops.workloads.tracin.options import (
    DEFAULT_LOSS,
    LARGEST_ALL_SCORES,
    TRACIN_AGREEMENT_TESTS,
    TRACIN_AGREEMENT_TRAINS,
    TRACIN_BLOCK,
    TRACIN_CHUNK,
    TRACIN_FISHER_BLOCK,
    TRACIN_FISHER_OF_RELATION,
    TRACIN_FISHER_QUERIES,
    TRACIN_TANGENT_GROUPS,
    TRACIN_TEST_BYTES,
    TRACIN_TESTS,
)
from kgops.workloads.train.models import ConvEConfig, ModelConfig
from kgops.workloads.train.options import TRAIN_LOSS
from kgops.workloads.train.sizes import TrainShape, shape_of_training

# From input to output. Each part with a separate weight and bias is a layer.
_VECTORS = ("entities", "biases", "relations")
_ORDER = (*_VECTORS, "input_norm", "conv", "feature_norm", "project", "output_norm")

CONVOLUTION = frozenset(
    f"{layer}.{kind}" for layer in ("conv", "feature_norm", "input_norm") for kind in ("weight", "bias")
)


def parameters_of(c: ModelConfig, wanted: Sequence[str] | None, last_layers: int) -> frozenset[str]:
    """Parameters `wanted` by name or layer, otherwise of the last layers; 0 of them: all."""
    order = _ORDER if isinstance(c, ConvEConfig) else ("entities", "relations")
    layers = [layer for layer in order if c.batch_norm or not layer.endswith("_norm")]
    names = {layer: _names(layer) for layer in layers}
    if wanted:
        every = [name for layer in layers for name in names[layer]]
        return frozenset(n for n in every if any(n == want or n.startswith(f"{want}.") for want in wanted))
    return frozenset(name for layer in layers[-last_layers:] for name in names[layer])


def _names(layer: str) -> tuple[str, ...]:
    return (layer,) if layer in _VECTORS else (f"{layer}.weight", f"{layer}.bias")


class Format(NamedTuple):
    """What factors of products are rounded to: `size` bytes a number. `widened` where they are multiplied in
    float32 all the same, as fp16 on a CPU, which would sum in fp16."""

    size: int = 4
    widened: bool = False
    on_gpu: bool = False

    @property
    def is_low(self) -> bool:
        return self.size != 4

    @classmethod
    def named(cls, name: str, *, on_gpu: bool) -> Format:
        low = name in ("bf16", "fp16")
        return cls(2 if low else 4, name == "fp16" and not on_gpu, on_gpu)


EXACT = Format()


@dataclass(frozen=True, slots=True)
class TracinShape:
    """TracIn over `checkpoints` of one ConvE. `groups` are the distinct queries of a training block at most. `low`
    is the format of all products but the two large ones. `names` are the parameters that
    take part. With `top_k` None all scores are kept."""

    workload: ClassVar[str] = "tracin"

    model: ModelConfig
    on_gpu: bool
    counts: Counts
    tests: int
    checkpoints: int
    loss: str  # target, one-to-n, or that of training
    both_directions: bool
    block: int
    chunk: int
    groups: int
    top_k: int | None
    names: frozenset[str]
    filtered: bool = False
    low: Format = EXACT
    tests_at_once: int | None = None
    does: Does = "trace"
    retrained: TrainShape | None = None  # with --validate: what is trained again
    score: str = "tracin"

    @property
    def score_bytes(self) -> tuple[int, int]:
        """Memory that the score keeps of the training at each checkpoint, and needs apart from that; at most,
        about."""
        c, rows = self.model, self.rows_each * self.block
        if self.score == "fisher":
            sampled, again, root = self._curvature
            # With their weights, whose storage has the size of all rows, and by head.
            all_queries = (
                16 * self._distinct_queries + 8 * self.rows_each * self.counts.train + 8 * c.num_entities
            )
            return sampled + again + root + all_queries, 0
        if self.score == "cosine":
            return 0, 4 * 2 * rows * (c.features + (0 if self.loss == "target" else 2 * c.num_entities))
        return 0, 0

    @property
    def curvature_bytes(self) -> tuple[int, int]:
        """Memory of a checkpoint's curvature beyond the part that it keeps: while its products are made, and while
        queries are sampled."""
        if self.score != "fisher":
            return 0, 0
        sampled, again, root = self._curvature
        chosen = 24 * self.fisher_queries + 8 * self._distinct_queries  # rows and weights, and all numbers
        made = max(sampled + chosen, 2 * again, again + 2 * root) - again - root
        # At last only queries of a relation are sampled. Labels of a softmax are drawn in float64.
        queries = self.fisher_queries
        planes = 24 * min(TRACIN_FISHER_BLOCK, queries) * self.model.num_entities
        of_relation = 2 * sampled * min(TRACIN_FISHER_OF_RELATION, queries) // queries
        return made, planes + of_relation

    @property
    def fisher_queries(self) -> int:
        """Distinct queries of the training that are sampled."""
        return min(TRACIN_FISHER_QUERIES, self._distinct_queries)

    @property
    def _distinct_queries(self) -> int:
        """Where nobody counted, as if all were distinct."""
        sides = (self.counts.tails, self.counts.heads) if self.both_directions else (self.counts.tails,)
        return sum(side.queries for side in sides) or self.rows_each * self.counts.train

    @property
    def _curvature(self) -> tuple[int, int, int]:
        """Of Fisher's: the sampled queries, the projection's inputs once more, and the root of their products."""
        c, queries = self.model, self.fisher_queries
        small = c.output_channels * (c.channels * c.kernel_height * c.kernel_width + 3) + 2 * c.channels
        vectors = 6 if isinstance(c, ConvEConfig) else 4  # an output norm has two more
        sampled = 4 * queries * (c.features + vectors * c.embedding_dim + small)
        return sampled, 4 * queries * (c.features + 1), 4 * min(queries, c.features + 1) ** 2

    @property
    def of_tests(self) -> TracinShape:
        """For its tests: logits under the fisher score, whatever the loss of training triples is."""
        return replace(self, loss="target") if self.score == "fisher" else self

    @property
    def rows_each(self) -> int:
        """Rows that a triple stands for."""
        return 2 if self.both_directions else 1

    @property
    def knows_all(self) -> bool:
        """Whether the loss takes every known answer for true."""
        return self.loss.startswith("kvsall")

    @property
    def taps(self) -> int:
        """Of a kernel of the convolution."""
        return self.model.channels * self.model.kernel_height * self.model.kernel_width

    @property
    def places(self) -> int:
        """Of a feature map."""
        return self.model.map_height * self.model.map_width

    @property
    def best(self) -> int:
        """Influences that are kept of a test triple."""
        return min(self.top_k or self.counts.train, self.counts.train)

    @property
    def goes_deep(self) -> bool:
        """Whether gradients before the feature maps take part."""
        return bool(self.names & (CONVOLUTION | {"entities", "relations"}))

    def groups_at_once(self, groups: int) -> int:
        """Whose maps move together, by tangents."""
        return groups if self.on_gpu else min(groups, TRACIN_TANGENT_GROUPS)

    @property
    def ranks(self) -> bool:
        """Whether blocks are ranked as they come; otherwise all scores are kept."""
        return self.top_k is not None and not self.filtered

    @property
    def tests_of_a_tile(self) -> int:
        """That `trace` hands to one scan."""
        if self.ranks:
            return min(self.tests, TRACIN_TESTS)
        most = max(1, LARGEST_ALL_SCORES // (8 * max(self.counts.train, 1)))
        if self.top_k is None or self.filtered:
            return min(self.tests, TRACIN_TESTS, self.tests_at_once or TRACIN_TESTS, most)
        return min(self.tests, TRACIN_TESTS)

    @property
    def tests_of_a_block(self) -> int:
        """Whose factors are in memory together: `tests_that_fit`."""
        shared = 0 if self.of_tests.loss == "target" else self.model.num_entities
        numbers = shared + self.model.features + 8 * self.model.embedding_dim
        each = 4 * numbers * self.checkpoints * self.rows_each
        fitting = self.tests_at_once or max(1, min(TRACIN_TESTS, TRACIN_TEST_BYTES // each))
        return min(self.tests_of_a_tile, fitting)


def compared_ways(s: TracinShape) -> list[TracinShape]:
    """Settings that rescore a sample of a run: all of them, then without each option that changes scores. None
    where none does."""
    n = min(s.counts.train, TRACIN_AGREEMENT_TRAINS)
    # Of triples drawn from many nobody knows which queries they share.
    counts = s.counts if n == s.counts.train else replace(s.counts, train=n, groups=Groups())
    ours = replace(s, counts=counts, block=min(s.block, n), top_k=None, filtered=False)
    ours = replace(ours, tests=min(s.tests, TRACIN_AGREEMENT_TESTS))
    exact = replace(ours, low=EXACT)
    every = parameters_of(s.model, None, 0)
    ways = [exact] if s.low.is_low else []
    ways += [replace(exact, names=every)] if s.names != every else []
    return [ours, *ways] if ways else []


def tracin_shape(
    job: Job,
    counts: Counts,
    gpu: GpuFacts | None,
    model: ModelConfig,
    *,
    trained: Mapping[str, Any],
    checkpoints: int,
    tests: int,
) -> TracinShape:
    """Of a job `tracin` on `checkpoints` of `model`, for `tests` triples. `trained` has the `loss` and the
    `label_smoothing` of its training. They count where the job uses the loss of that training."""
    settings, options = job.settings, job.options
    asked = settings["loss"] or DEFAULT_LOSS
    loss = trained["loss"] or TRAIN_LOSS if asked == "train" else asked
    both = settings["both_directions"]
    if settings["score"] == "fisher":  # logits, of both directions where there are two
        asked, both = "target", model.inverse
        trained_loss = str(trained["loss"] or TRAIN_LOSS)
        loss = trained_loss if trained_loss.startswith("1vsall") else "target"
    both = (asked == "train" and model.inverse) if both is None else both
    block = options.get("block", TRACIN_BLOCK)
    chunk, at_once = options.get("entity_chunk", "auto"), options.get("tests_at_once", "auto")
    on_gpu = gpu is not None
    return TracinShape(
        model,
        on_gpu,
        counts,
        tests,
        checkpoints,
        loss,
        both,
        min(block, counts.train),
        TRACIN_CHUNK if chunk == "auto" else chunk,
        counts.groups.in_block(min(block, counts.train), both_directions=both),
        top_k_of(settings),
        parameters_of(model, settings["layers"], options.get("last_layers", False) or 0),
        bool(options.get("filtering", bool(settings["test_triples"]))),
        Format.named(product_precision(options.get("precision", "fp32"), gpu), on_gpu=on_gpu),
        None if at_once == "auto" else int(at_once),
        does_of(settings),
        retrained_shape(counts, gpu, model, trained) if settings["validate"] else None,
        settings["score"],
    )


def fisher_shape(model: ModelConfig, counts: Counts, gpu: GpuFacts | None, *, tests: int) -> TracinShape:
    """Of Fisher scores as an explain run takes them: by its own block size, without options."""
    block = min(TRACIN_BLOCK, counts.train)
    return TracinShape(
        model,
        gpu is not None,
        counts,
        tests,
        checkpoints=1,
        loss="target",
        both_directions=model.inverse,
        block=block,
        chunk=TRACIN_CHUNK,
        groups=counts.groups.in_block(block, both_directions=model.inverse),
        top_k=None,
        names=parameters_of(model, None, 0),
        score="fisher",
    )


def retrained_shape(
    counts: Counts, gpu: GpuFacts | None, model: ModelConfig, trained: Mapping[str, Any]
) -> TrainShape | None:
    """The training that is repeated without validation; None where its settings are not known."""
    if trained.get("optimizer") is None:
        return None
    names = ("batch_size", "precision", "entity_chunk", "gradient_checkpointing")
    options = {name: trained[name] for name in names if trained.get(name) is not None}
    own = {
        name: trained.get(name)
        for name in (
            *("loss", "group_queries", "label_smoothing", "optimizer", "weight_decay"),
            *("regularizer", "relation_prediction"),
        )
    }
    epochs = trained.get("num_epochs") or 1
    settings = {**own, "num_epochs": epochs, "validate_every": 0, "engine": "kgops"}
    return shape_of_training(model, settings, options, counts, gpu)


def tests_of(settings: Mapping[str, Any], counts: Counts) -> int:
    """Number of test triples to attribute; for a file its number of lines."""
    if settings["test_triple"]:
        return 1
    limit: int | None = settings["max_triples"]
    count = lines_of(settings["test_triples"]) if settings["test_triples"] else counts.test
    start: int = settings["start_index"]
    count = max(count - start, 0)
    return max(1, count if limit is None else min(count, limit))
