"""Memory of a training of ConvE: its tensors by part, as settings and sizes of the graph give them.

Each function names the code that allocates. Sizes are in bytes; triples, ids and counts are int64.
"""

from __future__ import annotations

from math import ceil

from kgops.gpus.facts import GpuFacts
from kgops.gpus.known import cublas_workspace
from kgops.workloads.graphs.counts import Answers
from kgops.workloads.memory.phases import PeakMemory, Phases, Tensor
from kgops.workloads.train.models import buffer_bytes, weight_sizes
from kgops.workloads.train.options import (
    COLUMN_FOLDS,
    EVALUATION_CHUNK,
    EVALUATION_ENCODED,
    EVALUATION_QUERIES,
    TRAIN_ROWS_AT_ONCE,
)
from kgops.workloads.train.sizes import TrainShape

_ID, _ROW = 8, 24
MOMENTS = {"adam": 2, "adamw": 2, "adagrad": 1, "sgd": 0}
_PIECE = 1 << 20  # of what small tensors take together
_SCRATCH = "activations", "loss"


def peak_memory(shape: TrainShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return phases(shape, gpu, expandable=expandable).peak


def phases(s: TrainShape, gpu: GpuFacts | None, *, expandable: bool = False) -> Phases:
    """`kgops.maths.train.worker`, from the graph to the test metrics."""
    p = Phases("train, CUDA graphs" if s.captured else "train", on_gpu=s.on_gpu, expandable=expandable)
    weights = weight_sizes(s.model)
    moments = _parts("optimizer", *weights * MOMENTS[s.optimizer])
    known = s.train + s.valid + s.test
    workspace = cublas_workspace(gpu.compute_capability if gpu else None) if s.on_gpu else 0
    workspaces = _parts("workspace", *[workspace] * (2 if s.model.batch_norm else 1))
    graph = _parts("data", *[] if s.on_gpu else [_ROW * known])
    p.keep("loading", *graph, *_parts("weights", *weights, buffer_bytes(s.model)))
    _read(p, s)
    p.keep("loading", *_parts("gradients", *weights))
    if s.optimizer == "adagrad":
        p.keep("loading", *moments)
    if s.graphs:
        p.change_stream()
    before, after = _scratch(s)
    usual, last = _step(s, s.batch), _step(s, s.last_batch)
    p.keep("step", *workspaces[:1], *before)
    p.run("step", *usual[0])
    p.keep("step", *workspaces[1:], *after, beside=usual[-1])
    for moment in usual[1:]:
        p.run("step", *moment)
    if s.optimizer in ("adam", "adamw"):
        p.keep("step", *moments)
    for moment in usual:
        p.run("step", *moment)
    if s.captured:
        p.capture(*usual)
    if s.last_batch != s.batch:
        for moment in last:
            p.run("step", *moment)
    if s.validates:
        _evaluate(p, s, "validation", s.valid, s.train + s.valid)
        again = usual if not s.captured else last if s.last_batch != s.batch else []
        for moment in again:
            p.run("step", *moment)
    if s.captured:
        p.drop("workspace")
        p.release_graphs()
    elif s.graphs:
        p.empty_cache()
    p.drop("data", "optimizer", "evaluation", *_SCRATCH)
    if s.graphs:
        p.change_stream()
    if s.captured:
        graph += workspaces[:1]
    p.keep("test", *graph)
    if s.test:
        if s.validates:
            p.run("test", *_parts("checkpoint", *weights))
        _evaluate(p, s, "test", s.test, known)
    return p


def _parts(part: str, *sizes: int) -> list[Tensor]:
    return [(part, size) for size in sizes]


def _read(p: Phases, s: TrainShape) -> None:
    """The graph and `Batches`, which sorts on the host."""
    queries, answers = s.queries.queries, s.queries.answers
    if not s.on_gpu:
        rows = s.train * (2 if s.model.inverse else 1)
        sorting = max((64 if s.model.inverse else 40) * rows, 25 * answers + 48 * queries)
        p.run("loading", ("data", sorting))
        p.keep("loading", ("data", _ID * queries))
    p.keep("loading", *_parts("data", 2 * _ID * queries, _ID * queries, _ID * answers))
    if not s.on_gpu:
        p.run("step", *_parts("data", *[_ID * queries] * 4))


def _scratch(s: TrainShape) -> tuple[list[Tensor], list[Tensor]]:
    """Buffers of `FusedEncoder` and `EntityLoss`, which stay from step to step: some taken before the first step's
    loss, some in its backward pass."""
    c, low, batch = s.model, s.low, s.largest_batch
    taps, places = c.channels * c.kernel_height * c.kernel_width, c.map_height * c.map_width
    at_once = min(batch, TRAIN_ROWS_AT_ONCE)
    kernels, weight = batch * c.output_channels * (taps + 1), c.embedding_dim * c.features
    chunk = min(s.chunk, c.num_entities)
    kept = (at_once if s.checkpointing else batch) * c.features
    forward = [batch * (taps + 1) * places, kernels, batch * c.embedding_dim, kept] if c.features else []
    back = [at_once * c.features, kernels, batch * taps * places]
    wide, scores = [], [4 * chunk * batch]
    if low != 4:
        products = (chunk * batch, chunk * c.embedding_dim, batch * c.embedding_dim)
        forward.append(weight)
        back.append(weight if s.on_gpu else max(weight, *products))
        scores += [low * chunk * c.embedding_dim, low * chunk * batch]
        wide = [4 * at_once * (taps + 1) * places] if c.batch_norm else []
    before = _parts("activations", *[low * n for n in forward], *wide) + _parts("loss", *scores)
    return before, _parts("activations", *[low * n for n in back])


def _step(s: TrainShape, batch: int) -> list[list[Tensor]]:
    """The moments of `TrainStep` when most is alive: the loss of a chunk, the way back, and Adagrad's update."""
    c, on_gpu = s.model, s.on_gpu
    vectors, mask = 4 * batch * c.embedding_dim, (1 if on_gpu else 4) * batch * c.embedding_dim
    positives = s.positives * batch // max(s.batch, 1)
    chunk = min(s.chunk, c.num_entities)
    plane = 4 * chunk * batch
    kernels = 4 * batch * c.output_channels * (c.channels * c.kernel_height * c.kernel_width + 1)
    order = _ID * s.queries.queries
    data = _parts("data", order, order, 2 * _ID * batch, _ID * positives, _ID * positives)
    # Rows of heads and relations, and queries; ConvE's layers between them.
    held = [vectors] * 3
    if c.features:
        held += [2 * vectors, vectors, 4 * batch * c.output_channels]
    if c.batch_norm:
        held.append(2 * vectors)
    if c.input_dropout:
        held.append(2 * mask)
    if c.relation_dropout:
        held.append(mask)
    if c.output_dropout:
        held += [mask, vectors]
    inside = [_ID * positives] * 3 + [vectors]
    if s.low != 4:
        inside.append(s.low * batch * c.embedding_dim)
    is_softmax = s.loss.endswith("-ce")
    if s.low != 4 and on_gpu:  # a product in float32
        inside += [max(plane, 4 * chunk * c.embedding_dim)]
    elif s.low != 4 or not is_softmax:
        inside.append(plane)
    elif on_gpu:
        inside.append(plane // COLUMN_FOLDS)
    inside += [4 * positives] * is_softmax
    back = [vectors, 2 * vectors, 2 * vectors, vectors, vectors] if c.features else [vectors] * 5
    if c.batch_norm and not on_gpu:
        back.append(2 * vectors)
    moments = [
        [*data, *_parts("activations", *held), *_parts("loss", *inside)],
        [*data, *_parts("activations", *held, *back)],
        [*data, *_parts("activations", *held, kernels if c.features else _penalties(s, positives))],
    ]
    if s.optimizer == "adagrad" and on_gpu:  # roots and steps; gradients that are decayed or finite
        copies = 3 if s.weight_decay or s.precision == "fp16" else 2
        moments.append([*data, *_parts("optimizer", *weight_sizes(c) * copies)])
    return [*moments, [*data, *_parts("activations", *held)]]


def _penalties(s: TrainShape, positives: int) -> int:
    """`Penalties.add`, after the way back: gradients of queries and rows, and vectors of each triple."""
    c = s.model
    rows, triples = 4 * s.batch * c.embedding_dim, 4 * positives * c.embedding_dim
    size = 2 * rows  # queries are gone
    if s.n3 or s.predicts_relations:
        size += triples + (_ID + 9) * positives
    if s.predicts_relations:
        table = 4 * c.relation_rows * c.embedding_dim
        return size + 5 * triples + 4 * 4 * positives * c.relation_rows + table
    return size + (2 * max(triples, rows) if s.n3 else 0)


def _evaluate(p: Phases, s: TrainShape, phase: str, triples: int, known: int) -> None:
    """`Evaluator` on `triples`, with so many `known`; its sorted answers and its planes stay."""
    c, vector = s.model, 4 * s.model.embedding_dim
    given = ("evaluation", _ROW * known)
    rows = _parts("evaluation", *[_ROW * known] * s.on_gpu, 2 * _ROW * known)
    pairs = 2 * _ID * known
    p.run(phase, given, *rows, *_parts("evaluation", _ROW * known, _ROW * known))
    p.run(phase, given, *rows, *_parts("evaluation", *[pairs] * 4))
    batch = min(EVALUATION_QUERIES, triples * (2 if c.inverse else 1))
    chunk = min(EVALUATION_CHUNK["cuda" if s.on_gpu else "cpu"], c.num_entities)
    plane = chunk * batch
    p.keep(phase, *_parts("evaluation", pairs, pairs, 4 * plane, 4 * plane))
    asked = _parts(
        "evaluation",
        *[_ROW * triples] * (3 if s.on_gpu else 2),
        (4 * _ROW if c.inverse else 2 * _ROW) * triples,
    )
    piece = min(EVALUATION_ENCODED, batch)
    maps = 4 * piece * c.features
    encoding = _parts("evaluation", vector * batch, 4 * vector * piece, *[maps] * 2)
    near = [plane] * (3 if c.num_entities <= chunk else 4)
    answers = [_ID * _answers(s, batch, triples, known)] * 4
    ranking = _parts("evaluation", vector * batch, vector * batch, *near, *answers)
    p.run(phase, given, *asked, *encoding)
    p.run(phase, given, *asked, *ranking)
    if not c.inverse:  # all entities are encoded for each relation
        entities = _parts("evaluation", *[vector * c.num_entities] * 2, _ROW * c.num_entities)
        again = [entities[0]] * (min(c.num_relations, triples) > 1)
        maps = 4 * min(EVALUATION_ENCODED, c.num_entities) * c.features
        pieces = _parts("evaluation", *[_PIECE] * (vector * c.num_entities // _PIECE))
        p.run(phase, given, *asked, *again, *pieces, *_parts("evaluation", *[maps] * 2))
        p.run(phase, given, *asked, *again, *entities, *pieces)
        p.run(phase, given, *asked, entities[0], *ranking)


def _answers(s: TrainShape, batch: int, triples: int, known: int) -> int:
    """Known answers of a block of queries: many triples ask what has many answers, side by side."""

    def of(side: Answers) -> int:
        if not side.answers:
            return 0
        share = known / max(s.train, 1)
        usual = 1.25 * share * side.squares / side.answers
        times = min(batch, ceil(side.most * triples / max(s.train, 1)))
        return ceil(max(times * side.most * share + (batch - times) * usual * 0.5, batch * usual))

    return max(map(of, s.known))
