"""A training of ConvE as the allocator sees it: what `fit` and the worker around it take and give back;
`step_memory` has its steps.

Line by line after `kgops.maths.train` and `kgops.maths.models.encoder`; each function names the one it follows. Sizes
are in bytes; triples, ids and counts are int64.
"""

from __future__ import annotations

from contextlib import nullcontext

from kgops.gpus.facts import GpuFacts
from kgops.workloads.graphs.evaluation_counts import EvaluationBlocks
from kgops.workloads.memory.ledger import Held, Ledger, Scratch
from kgops.workloads.memory.peak import PeakMemory, replayed
from kgops.workloads.train.conve_weights import moved_sizes, weight_sizes
from kgops.workloads.train.options import GRAPH_WARM_UP, LOSS_EVERY
from kgops.workloads.train.ranking_memory import walk_evaluation, walk_evaluator
from kgops.workloads.train.sizes import TrainShape
from kgops.workloads.train.step_memory import capture_steps, take_step

_ID = 8
_ROW = 3 * _ID


def walk_training(ledger: Ledger, s: TrainShape, *, resumed: bool = False) -> None:
    """`kgops.maths.train.worker`, from the graph to the test metrics; `resumed`: from a checkpoint."""
    ledger.phase = "loading"
    on_host = not s.on_gpu
    graph = [ledger.take("data", _ROW * n) for n in (s.train, s.valid, s.test) if on_host]
    weights = [ledger.take("weights", size) for size in moved_sizes(s.model)]
    data = _batches(ledger, s)
    optimizer = _early_optimizer(ledger, s)
    gradients = [ledger.take("gradients", size) for size in weight_sizes(s.model)]
    scratch, planes = Scratch(ledger), Scratch(ledger)
    with ledger.own_stream() if s.graphs else nullcontext():
        made = _fit(ledger, s, scratch, planes, resumed)
    if s.captured:
        ledger.release_graphs()
    elif s.graphs:
        ledger.empty_cache()
    scratch.close()
    planes.close()
    ledger.give(*data, *optimizer, *made)
    if s.test:
        ledger.phase = "test"
        if s.validates:
            ledger.flash("checkpoint", *weight_sizes(s.model))
        known = ledger.take("evaluation", _ROW * (s.train + s.valid + s.test))
        evaluator = walk_evaluator(ledger, s, s.train + s.valid + s.test)
        planes = Scratch(ledger)
        walk_evaluation(ledger, s, planes, s.ranked[1], s.test, s.train + s.valid + s.test)
        planes.close()
        ledger.give(known, *evaluator)
    ledger.give(*graph, *weights, *gradients)


def _fit(ledger: Ledger, s: TrainShape, scratch: Scratch, planes: Scratch, resumed: bool) -> list[Held]:
    """`kgops.maths.train.loop.fit`: two epochs, as all others are like the second. What lives as long as it does."""
    optimizer: list[Held] = []
    evaluator: list[Held] = []
    if resumed:
        _resume(ledger, s)
    ledger.phase = "step"
    order = _begin_epoch(ledger, s)
    before = take_step(ledger, s, scratch, s.batch, [])
    if s.optimizer in ("adam", "adamw"):
        optimizer = [ledger.take("optimizer", size) for size in weight_sizes(s.model) for _ in (1, 2)]
    ends_usual = s.last_batch == s.batch  # the last step of an epoch has the loss value, too
    if s.usual_batches > 1:
        is_last = ends_usual and s.usual_batches == 2
        before = take_step(ledger, s, scratch, s.batch, before, with_value=is_last)
    is_captured = s.usual_batches > GRAPH_WARM_UP
    graphs = capture_steps(ledger, s, scratch) if is_captured else []
    if not graphs and s.usual_batches > (2 if ends_usual else LOSS_EVERY):
        before = take_step(ledger, s, scratch, s.batch, before)
    if s.last_batch != s.batch:
        before = take_step(ledger, s, scratch, s.last_batch, before)
    ledger.give(*before, *order)
    if s.validates:
        ledger.phase = "validation"
        known = ledger.take("evaluation", _ROW * (s.train + s.valid))
        evaluator = walk_evaluator(ledger, s, s.train + s.valid)
        walk_evaluation(ledger, s, planes, s.ranked[0], s.valid, s.train + s.valid)
        ledger.give(known)
    if s.epochs > 1:  # beside the evaluator, which stays for the next validation
        ledger.phase = "step"
        order, before = _begin_epoch(ledger, s), []
        if not graphs:
            before = take_step(ledger, s, scratch, s.batch, before)
            graphs = capture_steps(ledger, s, scratch)
        if s.last_batch != s.batch:
            before = take_step(ledger, s, scratch, s.last_batch, before)
        ledger.give(*before, *order)
    if s.validates:
        ledger.phase = "validation"
        walk_evaluation(ledger, s, planes, s.ranked[0], s.valid, s.train + s.valid)
    ledger.give(*graphs)
    return [*optimizer, *evaluator]


def walk_retraining(ledger: Ledger, s: TrainShape, tests: int) -> None:
    """`kgops.maths.tracin.retraining`: all that is known stays sorted for ranks and margins, while one training on part
    of the triples, without validation, follows the other."""
    known = s.train + s.valid + s.test + tests
    own = ledger.take("evaluation", _ROW * known)
    evaluator = walk_evaluator(ledger, s, known)
    rows = [ledger.take("evaluation", _ROW * known)] if s.model.inverse else []
    ledger.flash("evaluation", _ROW * known, _ID * known, _ID * known, _ROW * known)
    tails = [ledger.take("evaluation", _ID * known) for _ in range(4)]
    ledger.give(own, *rows)
    planes = Scratch(ledger)  # the evaluator's, which stay for the trainings after the first
    for _ in ("first", "next"):
        _walk_one_of_many(ledger, s, planes, tests, known)
    planes.close()
    ledger.give(*evaluator, *tails)


def _walk_one_of_many(ledger: Ledger, s: TrainShape, planes: Scratch, tests: int, known: int) -> None:
    """A training on part of the triples, and what its model says of the tests."""
    ledger.phase = "retraining"
    graph = [ledger.take("data", _ROW * s.train), ledger.take("data", s.train)]
    weights = [ledger.take("weights", size) for size in moved_sizes(s.model)]
    data = _batches(ledger, s)
    optimizer = _early_optimizer(ledger, s)
    gradients = [ledger.take("gradients", size) for size in weight_sizes(s.model)]
    scratch = Scratch(ledger)
    order = _begin_epoch(ledger, s)
    before = take_step(ledger, s, scratch, s.batch, [])
    if s.optimizer in ("adam", "adamw"):
        optimizer = [ledger.take("optimizer", size) for size in weight_sizes(s.model) for _ in (1, 2)]
    ledger.give(*take_step(ledger, s, scratch, s.largest_batch, before), *order)
    scratch.close()
    ledger.give(*data, *optimizer)
    ledger.phase = "validation"
    walk_evaluation(ledger, s, planes, EvaluationBlocks(), tests, known)
    ledger.flash("evaluation", *[8 * s.model.num_entities] * 4)  # one test's scores, and which are false
    ledger.give(*graph, *weights, *gradients)


def _batches(ledger: Ledger, s: TrainShape) -> list[Held]:
    """`Batches.__init__`, which sorts on the host."""
    queries, answers = s.queries.queries, s.queries.answers
    if not s.on_gpu:
        rows = s.train * (2 if s.model.inverse else 1)
        own = [ledger.take("data", _ROW * rows)] if s.model.inverse else []
        if own:
            ledger.flash("data", _ROW * s.train, _ROW * s.train)
        order = ledger.take("data", _ID * rows)
        ledger.flash("data", *[_ID * rows] * 4)  # the column, its sorted values, their places, a range
        ledger.give(order)
        ordered = ledger.take("data", _ROW * rows)
        ledger.flash("data", _ID * rows)
        ledger.give(*own)
        if s.loss.startswith("kvsall"):
            marks = ledger.take("data", rows)
            ledger.flash("data", 3 * rows)
            distinct = ledger.take("data", _ROW * answers)
            ledger.flash("data", rows, _ID * answers)
            ledger.give(ordered, marks)
            ordered = distinct
        marks = ledger.take("data", answers)
        ledger.flash("data", _ID * queries, _ID * queries, *[2 * _ID * queries] * 2)
        ledger.flash("data", _ID * queries, _ID * queries, 2 * _ID * queries, _ID * answers)
        ledger.give(ordered, marks)
        counts = [ledger.take("data", _ID * queries)]
    else:
        counts = []
    held = (2 * _ID * queries, _ID * queries, _ID * answers)
    return counts + [ledger.take("data", size) for size in held]


def _early_optimizer(ledger: Ledger, s: TrainShape) -> list[Held]:
    """Adagrad has its sums from the start; Adam's moments come with the first step."""
    return [
        ledger.take("optimizer", size) for size in (weight_sizes(s.model) if s.optimizer == "adagrad" else ())
    ]


def _resume(ledger: Ledger, s: TrainShape) -> None:
    """`_Run.begin`: the whole checkpoint is read to the device before it is copied into the model."""
    ledger.phase = "resuming"
    moments = {"adam": 2, "adamw": 2, "adagrad": 1}.get(s.optimizer, 0)
    ledger.flash("checkpoint", *[size for size in weight_sizes(s.model) for _ in range(1 + moments)])


def _begin_epoch(ledger: Ledger, s: TrainShape) -> list[Held]:
    """The order of an epoch and its counts; `Batches.epoch`."""
    each = _ID * s.queries.queries
    order = [ledger.take("data", each), ledger.take("data", each)]
    if not s.on_gpu:
        ledger.flash("data", each, each)
    return order


def peak_memory(shape: TrainShape, gpu: GpuFacts | None, *, resumed: bool, expandable: bool) -> PeakMemory:
    def walk(ledger: Ledger) -> None:
        walk_training(ledger, shape, resumed=resumed)

    return replayed(walk, gpu, on_gpu=shape.on_gpu, expandable=expandable)
