"""The numbers that a job's memory depends on, from its settings, its levers, its data and its card.

Every default is the one that workers use (`kgops.jobs.sizes`, `kgops.jobs.conve_config`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from kgops.errors import Usage
from kgops.gpus.facts import CardFacts
from kgops.jobs import sizes
from kgops.jobs.conve_config import ConvEConfig
from kgops.jobs.job import Job
from kgops.plans.blocks import Groups
from kgops.plans.counts import Answers, Counts
from kgops.plans.layers import parameters_of
from kgops.plans.product_memory import EXACT, Format
from kgops.plans.ranked import Ranked
from kgops.plans.regress_shape import RegressShape

__all__ = [
    "Shape",
    "TracinShape",
    "TrainShape",
    "compared_ways",
    "effective_precision",
    "model_of_config",
    "tracin_shape",
    "train_shape",
]

Does = Literal["trace", "self", "index", "filter"]

_BF16, _FP16 = (8, 0), (7, 0)  # compute capabilities from which `auto` takes them
_MODEL_KEYS = {field.name for field in fields(ConvEConfig)}


@dataclass(frozen=True, slots=True)
class TrainShape:
    """A training of kgops' own ConvE. `queries` are those of an epoch, inverses included where the model has
    them; `chunk` is the entities scored at once; `low` the bytes of a number in the large products."""

    model: ConvEConfig
    on_card: bool
    train: int
    valid: int
    test: int
    queries: Answers
    known: tuple[Answers, Answers]  # tails and heads of the training triples
    ranked: tuple[Ranked, Ranked]  # by validation and by test
    loss: str
    smoothing: bool
    batch_size: int
    chunk: int
    precision: str
    low: int
    optimizer: str
    weight_decay: bool
    checkpointing: bool
    validates: bool

    @property
    def batch(self) -> int:
        """Queries of a usual batch."""
        return min(self.batch_size, self.queries.queries)

    @property
    def examples(self) -> int:
        """Of an epoch."""
        return self.queries.queries

    @property
    def largest_batch(self) -> int:
        """A last query alone joins the batch before it."""
        alone = self.queries.queries > self.batch_size and self.queries.queries % self.batch_size == 1
        return self.batch + alone

    @property
    def positives(self) -> int:
        """Of the batch of an epoch that has most, about."""
        q = self.queries
        mean, batch = q.answers / max(q.queries, 1), self.batch
        variance = max(q.squares / max(q.queries, 1) - mean * mean, 0.0)
        batches = max(q.queries / max(batch, 1), 1)
        # A batch is drawn without replacement: the more of the queries it takes, the less its sum varies.
        spread = math.sqrt(variance * batch * (1 - batch / max(q.queries, 1)))
        # Half of the largest query beside that: counts of answers have long tails.
        likely = mean * batch + spread * math.sqrt(2 * math.log(1 + batches)) + q.most / 2
        return min(q.answers, max(math.ceil(likely), min(q.most + round(mean * (batch - 1)), q.answers)))


@dataclass(frozen=True, slots=True)
class TracinShape:
    """TracIn over `checkpoints` of one ConvE. `groups` are the distinct queries of a training block at most;
    `gram` is the format of the two large products, `low` that of all others. `names` are the parameters that
    take part. With `top_k` None all scores are kept."""

    model: ConvEConfig
    on_card: bool
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
    gram_format: Format = EXACT
    low: Format = EXACT
    projection: int | None = None
    tests_at_once: int | None = None
    does: Does = "trace"
    from_index: bool = False
    scanned: int = 0  # triples of a block where an index, with blocks of its own, does not answer
    retrained: TrainShape | None = None  # with --validate: what is trained again

    @property
    def gram(self) -> int:
        """Bytes of a number in the two large products."""
        return self.gram_format.size

    @property
    def rows_each(self) -> int:
        """Rows that a triple stands for."""
        return 2 if self.both_directions else 1

    @property
    def knows_all(self) -> bool:
        """Whether the loss takes every known answer for true."""
        return self.loss.startswith("kvsall")

    @property
    def ranks(self) -> bool:
        """Whether blocks are ranked as they come; else all scores are kept."""
        return self.top_k is not None and not self.filtered

    @property
    def tests_of_a_tile(self) -> int:
        """That `trace` hands to one scan."""
        if self.ranks:
            return min(self.tests, sizes.TRACIN_TESTS)
        most = max(1, sizes.LARGEST_ALL_SCORES // (8 * max(self.counts.train, 1)))
        if self.top_k is None or self.filtered:
            return min(self.tests, sizes.TRACIN_TESTS, self.tests_at_once or sizes.TRACIN_TESTS, most)
        return min(self.tests, sizes.TRACIN_TESTS)


def compared_ways(s: TracinShape) -> list[TracinShape]:
    """What a run is scored again by, on a sample of its pairs: as it was, then with each lever that changes scores
    left away. None where none does."""
    n = min(s.counts.train, sizes.TRACIN_AGREEMENT_TRAINS)
    # Of triples drawn from many nobody knows which queries they share.
    counts = s.counts if n == s.counts.train else replace(s.counts, train=n, groups=Groups())
    ours = replace(
        s, counts=counts, block=min(s.scanned or s.block, n), top_k=None, filtered=False, from_index=False
    )
    ours = replace(ours, tests=min(s.tests, sizes.TRACIN_AGREEMENT_TESTS))
    exact = replace(ours, gram_format=EXACT, low=EXACT)
    every = parameters_of(s.model, None, 0)
    ways = [exact] if s.gram_format.is_low or s.low.is_low else []
    ways += [replace(exact, projection=None)] if s.projection else []
    ways += [replace(exact, projection=None, names=every)] if s.names != every else []
    return [ours, *ways] if ways else []


Shape = TrainShape | TracinShape | RegressShape


def train_shape(job: Job, counts: Counts, card: CardFacts | None) -> TrainShape | None:
    """Of a job `train`; None for PyKEEN's own pipeline, whose models have no formula. No `card`: on the CPU."""
    if job.settings["engine"] != "kgops":
        return None
    return _of_training(model_of_settings(job.settings, counts), job.settings, job.levers, counts, card)


def _of_training(
    model: ConvEConfig,
    settings: Mapping[str, Any],
    levers: Mapping[str, Any],
    counts: Counts,
    card: CardFacts | None,
) -> TrainShape:
    precision = effective_precision(levers.get("precision", "fp32"), card)
    batch_size = levers.get("batch_size", sizes.TRAIN_BATCH)
    chunk = levers.get("entity_chunk", "auto")
    device = "cpu" if card is None else "cuda"
    loss = settings["loss"] or sizes.TRAIN_LOSS
    return TrainShape(
        model,
        card is not None,
        counts.train,
        counts.valid,
        counts.test,
        _queries(counts, loss.startswith("1vsall"), model.inverse),
        (counts.tails, counts.heads),
        counts.ranked,
        loss,
        bool(settings["label_smoothing"]),
        batch_size,
        sizes.loss_chunk(None if chunk == "auto" else chunk, batch_size, device),
        precision,
        2 if precision in ("fp16", "bf16") else 4,
        settings["optimizer"],
        bool(settings["weight_decay"]),
        bool(levers.get("gradient_checkpointing", False)),
        settings["validate_every"] > 0 and counts.valid > 0,
    )


def tracin_shape(
    job: Job,
    counts: Counts,
    card: CardFacts | None,
    model: ConvEConfig,
    *,
    trained: Mapping[str, Any],
    checkpoints: int,
    tests: int,
) -> TracinShape:
    """Of a job `tracin` on `checkpoints` of `model`, tracing `tests` triples. `trained` has the `loss` and the
    `label_smoothing` of its training, which count where the job asks for no loss of its own."""
    settings, levers = job.settings, job.levers
    asked = settings["loss"] or ("target" if settings["run"] is None else "train")
    loss = trained["loss"] or sizes.TRAIN_LOSS if asked == "train" else asked
    both = settings["both_directions"]
    both = (asked == "train" and model.inverse) if both is None else both
    # An index has larger blocks of its own.
    indexed = bool(settings["build_index"] or settings["use_index"])
    scanned = levers.get("block", sizes.TRACIN_BLOCK)
    block = sizes.TRACIN_INDEX_BLOCK if indexed else scanned
    chunk, at_once = levers.get("entity_chunk", "auto"), levers.get("tests_at_once", "auto")
    top_k = settings["top_k"] or (None if settings["run"] is None else sizes.TRACIN_TOP_K_OF_A_RUN)
    on_card = card is not None
    return TracinShape(
        model,
        on_card,
        counts,
        tests,
        checkpoints,
        loss,
        both,
        min(block, counts.train),
        sizes.TRACIN_CHUNK if chunk == "auto" else chunk,
        counts.groups.in_block(min(block, counts.train), both_directions=both),
        top_k,
        parameters_of(model, settings["layers"], levers.get("last_layers", False) or 0),
        bool(levers.get("filtering", bool(settings["test_triples"]))),
        Format.named(levers.get("gram_precision", "fp32"), on_card=on_card),
        Format.named(_of_products(levers.get("precision", "fp32"), card), on_card=on_card),
        settings["projection_dim"],
        None if at_once == "auto" else int(at_once),
        _does(settings),
        bool(settings["use_index"]),
        scanned,
        _retrained(counts, card, model, trained) if settings["validate"] else None,
    )


def _does(settings: Mapping[str, Any]) -> Does:
    """As the worker decides."""
    if settings["skip_tracin"]:
        return "filter"
    if settings["self_influence"]:
        return "self"
    return "index" if settings["build_index"] else "trace"


def _of_products(asked: str, card: CardFacts | None) -> str:
    """What TracIn makes of a number format on that card; an unknown capability is believed to have it."""
    if card is None:
        return asked if asked in ("bf16", "fp16") else "fp32"
    whole = card.compute_capability is None or card.compute_capability >= _BF16
    if asked in ("auto", "bf16"):
        return "bf16" if whole else "fp16"
    return asked


def _retrained(
    counts: Counts, card: CardFacts | None, model: ConvEConfig, trained: Mapping[str, Any]
) -> TrainShape | None:
    """The training that --validate repeats without validation; None where its settings are not known."""
    if trained.get("optimizer") is None:
        return None
    names = ("batch_size", "precision", "entity_chunk", "gradient_checkpointing")
    levers = {name: trained[name] for name in names if trained.get(name) is not None}
    own = {name: trained.get(name) for name in ("loss", "label_smoothing", "optimizer", "weight_decay")}
    settings = {**own, "validate_every": 0, "engine": "kgops"}
    return _of_training(model, settings, levers, counts, card)


def model_of_settings(settings: Mapping[str, Any], counts: Counts) -> ConvEConfig:
    """As the worker builds it."""
    told = {name: settings[name] for name in _MODEL_KEYS & settings.keys() if settings[name] is not None}
    return ConvEConfig(num_entities=counts.entities, num_relations=counts.relations, **told)


def model_of_config(config: Mapping[str, Any]) -> ConvEConfig | None:
    """From the `config.json` that a training leaves beside its models; None where it is of another model."""
    told = config.get("model")
    if not isinstance(told, Mapping) or not {"num_entities", "num_relations"} <= told.keys() <= _MODEL_KEYS:
        return None
    counted = [value for name, value in told.items() if not name.endswith("dropout")]
    if not all(value is None or isinstance(value, int) for value in counted):
        return None
    try:
        return ConvEConfig(**told)
    except (Usage, TypeError, ValueError, ArithmeticError):  # changed since, or of another kgops
        return None


def _queries(counts: Counts, one_positive: bool, inverse: bool) -> Answers:
    if one_positive:
        rows = counts.train * (2 if inverse else 1)
        return Answers(rows, rows, rows, min(rows, 1))
    tails, heads = counts.tails, counts.heads
    if not inverse:
        return tails
    return Answers(
        tails.queries + heads.queries,
        tails.answers + heads.answers,
        tails.squares + heads.squares,
        max(tails.most, heads.most),
    )


def effective_precision(asked: str, card: CardFacts | None) -> str:
    """What workers make of a number format on that card; an unknown capability is believed to have it."""
    if card is None:
        return asked if asked == "bf16" and _cpu_has_bf16() else "fp32"
    capability = card.compute_capability
    if asked == "auto":
        if capability is None:
            return "fp32"
        return "bf16" if capability >= _BF16 else "fp16" if capability >= _FP16 else "fp32"
    if asked in ("bf16", "tf32") and capability is not None and capability < _BF16:
        return "fp32"
    return asked


@functools.cache
def _cpu_has_bf16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8", "replace").split("flags", 1)[-1].split("\n", 1)[0]
    except OSError:
        return False
    return any(flag in flags.split() for flag in ("avx512_bf16", "amx_bf16"))
