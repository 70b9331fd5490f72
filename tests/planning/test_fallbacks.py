"""The OOM fallbacks: what is changed after an out-of-memory, in which order; results only with leave. One that is
predicted to save nothing gets no attempt, and the plan says so."""

import random
import re
from typing import Any

import pytest
import torch

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.maths.train.saved_models import MAY_DIFFER
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.out_of_memory import is_out_of_memory
from kgops.planning.memory_estimate import JobSize, job_size_of, predict
from kgops.planning.oom_fallbacks import (
    Fallback,
    fallback_line,
    fallbacks_taken,
    oom_fallbacks,
    skipped_lines,
)
from kgops.planning.plan_job import Planned
from kgops.planning.planner import MachineCorrections, Suggestion, suggest
from kgops.planning.start import fallbacks_below
from kgops.planning.targets import Target, cpu_target, find_targets
from kgops.planning.worth_an_attempt import Skipped, worth_an_attempt
from kgops.workloads.catalog import OPTIONS, effect_of
from kgops.workloads.graphs.counts import Answers, Counts
from kgops.workloads.job_files import read_job
from kgops.workloads.plan import SMALLEST_CHUNK, plan_of

T4 = GpuFacts("Tesla T4", (7, 5))
A100 = GpuFacts("A100", (8, 0))
P100 = GpuFacts("P100", (6, 0))
ORDER = ("exact", "rounding", "changes results")


def job(
    workload: str = "train", settings: dict[str, Any] | None = None, allow: bool = False, **options: Any
) -> Job:
    default: dict[str, dict[str, Any]] = {
        "train": {"dataset": "nations"},
        "tracin": {"model_path": "m.pt", "dataset": "nations"},
        "pipeline": {"train": {"dataset": "nations"}, "tracin": {"top_k": 5}},
    }
    given = settings or {}
    own = given if "train" in given else {**default[workload], **given}
    table = {"workload": workload, workload: own, "options": options, "limits": {"allow_approximate": allow}}
    return read_job(table, "a test")


def changed(job: Job, gpu: GpuFacts | None = None) -> list[str]:
    return [str(change) for fallback in oom_fallbacks(job, gpu) for change in fallback.changes]


@pytest.mark.parametrize("workload", ["train", "tracin", "pipeline"])
@pytest.mark.parametrize("gpu", [None, P100, T4, A100])
@pytest.mark.parametrize("allow", [False, True])
def test_every_fallback_changes_something_keeps_what_came_before_and_comes_in_its_order(
    workload: str, gpu: GpuFacts | None, allow: bool
) -> None:
    fallbacks = oom_fallbacks(job(workload, allow=allow, cuda_graphs=True, compile="default"), gpu)
    assert fallbacks
    so_far: dict[str, Any] = {}
    for fallback in fallbacks:
        assert fallback.reason and fallback.changes
        assert all(change.before != change.after for change in fallback.changes)
        so_far |= {change.option: change.after for change in fallback.changes}
        assert fallback.settings == so_far
        assert all(OPTIONS[name].problem(value) is None for name, value in fallback.settings.items())
        assert all(ORDER.index(effect_of(c.option)) <= ORDER.index(fallback.effect) for c in fallback.changes)
    kinds = [ORDER.index(fallback.effect) for fallback in fallbacks]
    assert kinds == sorted(kinds)
    assert any(fallback.effect == "changes results" for fallback in fallbacks) == allow


def test_precision_is_a_fallback_only_on_a_gpu_that_has_the_format() -> None:
    def formats(gpu: GpuFacts | None) -> list[Any]:
        found = (change for fallback in oom_fallbacks(job(), gpu) for change in fallback.changes)
        return [change.after for change in found if change.option == "precision"]

    assert [formats(gpu) for gpu in (None, P100, T4, A100)] == [[], [], ["fp16"], ["bf16"]]
    assert "precision fp32 → bf16" not in changed(job(settings={"device": "cpu"}), A100)
    assert "precision" not in "".join(changed(job(precision="auto"), A100))


def test_a_training_under_cuda_graphs_keeps_activations_until_the_graphs_are_gone() -> None:
    """Checkpointing does not go with a mode that replays graphs: the rule of plans/rules.py."""
    checkpointing = "gradient_checkpointing off → on"
    lines = changed(job(compile="reduce-overhead"), A100)
    assert lines.index("compile reduce-overhead → default") + 1 == lines.index(checkpointing)
    lines = changed(job(cuda_graphs=True), A100)
    assert lines.index("cuda_graphs on → off") < lines.index(checkpointing)


def test_what_changes_results_gives_way_in_small_steps_and_with_leave_alone() -> None:
    assert [line for line in changed(job(allow=True)) if line.startswith("batch_size")] == [
        *("batch_size 256 → 128", "batch_size 128 → 64", "batch_size 64 → 32", "batch_size 32 → 16"),
    ]
    lines = changed(job("tracin", allow=True))
    assert lines[-2:] == ["last_layers off → 1", "filtering off → on"]
    assert "filtering off → on" not in changed(job("tracin", {"self_influence": True}, allow=True))


@pytest.mark.parametrize("batch", [1, 100, 256, 1000, 4096])
def test_the_fallbacks_starts_from_what_workers_take_unasked(batch: int) -> None:
    for device, gpu in (("cpu", None), ("cuda", A100)):
        taken = TrainSettings(batch_size=batch).chunk_for(torch.device(device))
        first = next((c for r in oom_fallbacks(job(batch_size=batch), gpu) for c in r.changes), None)
        before = first.before if first is not None and first.option == "entity_chunk" else None
        assert before == (taken if taken > SMALLEST_CHUNK else None)


def test_a_checkpoint_may_differ_in_all_the_fallbacks_changes_of_a_training_and_in_nothing_that_is_no_option() -> (
    None
):
    asked = job(allow=True, cuda_graphs=True, compile="max-autotune")
    fallbacks = (one for gpu in (None, T4, A100) for one in oom_fallbacks(asked, gpu))
    options = {change.option for fallback in fallbacks for change in fallback.changes}
    assert options <= MAY_DIFFER
    patience = {"num_epochs", "patience", "validate_every", "checkpoint_frequency", "resume_every"}
    assert options | patience | {"loss_every"} == MAY_DIFFER


def test_a_summary_says_what_gave_way_from_where_to_where() -> None:
    fallbacks = [fallback.as_table() for fallback in oom_fallbacks(job(entity_chunk=8192), None)]
    assert fallbacks_taken([{}], fallbacks) is None
    assert fallback_line(fallbacks[-1]) == (
        "gradient_checkpointing off → on (exact: activations are recomputed instead of kept)"
    )
    assert fallbacks_taken([{}, {"entity_chunk": 2048}], fallbacks) == (
        "1 OOM fallback: entity_chunk 8192 → 2048 (exact)"
    )
    lost = [{}, {"entity_chunk": 2048}, {"entity_chunk": 2048}, {"entity_chunk": 512}]
    assert fallbacks_taken(lost, fallbacks) == "2 OOM fallbacks: entity_chunk 8192 → 2048 → 512 (exact)"


CAUSED = ImportError("numpy failed to import")
CAUSED.__cause__ = MemoryError()


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ImportError("libfoo.so: failed to map segment from shared object"), True),
        (CAUSED, True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (RuntimeError("can't start new thread"), False),  # without a limit: too many threads
        (OSError(28, "No space left on device"), False),
        (ValueError("a label that says out of memory"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error: BaseException, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


# --- worth an attempt ---------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[Job, Target]:
    draw = random.Random(seed)
    train = {
        "dataset": draw.choice(("nations", "kinships", "umls")),
        "embedding_dim": draw.choice((32, 100, 200)),
    }
    options = {
        "batch_size": draw.choice((64, 256, 1024, 4096)),
        "entity_chunk": draw.choice(("auto", 64, 100_000)),
        "compile": draw.choice(("off", "default")),
    }
    both = {"train": train, "tracin": {"top_k": 5, "loss": "one-to-n"}}
    workload = draw.choice(("train", "pipeline"))
    made = job(workload, train if workload == "train" else both, draw.random() < 0.5, **options)
    return made, draw.choice((cpu_target(), find_targets("t4")[0]))


def trimmed(
    made: Job, target: Target, subject: JobSize | None = None
) -> tuple[tuple[Fallback, ...], list[Fallback], list[Skipped], Suggestion]:
    found = subject or job_size_of(made)
    assert isinstance(found, JobSize)
    suggestion = suggest(found, target, MachineCorrections(), thorough=False)
    assert suggestion is not None
    fallbacks = oom_fallbacks(made, target.facts, found.counts.entities)
    return (fallbacks, *worth_an_attempt(fallbacks, made, suggestion), suggestion)


def predicted(made: Job, suggestion: Suggestion, settings: dict[str, Any]) -> float:
    gpu = suggestion.target.facts
    shapes = suggestion.job_size.shapes({**made.options, **settings}, gpu)
    return max(predict(shape, gpu).total for shape in shapes)


@pytest.mark.parametrize("seed", range(10))
def test_every_fallback_either_needs_less_than_the_one_before_or_is_said_to_be_left_out(seed: int) -> None:
    made, target = drawn(seed)
    fallbacks, tried, skipped, suggestion = trimmed(made, target)
    need = predicted(made, suggestion, {})
    for fallback in tried:
        then = predicted(made, suggestion, fallback.settings)
        # Of neither of these a prediction can say what they save.
        assert then < need or fallback.options & {"compile", "filtering"}, fallback
        need = then
    alone = [one.fallback for one in skipped]
    for fallback in fallbacks:
        changed = {c.option: c.after for c in fallback.changes}
        took = any(changed.items() <= {c.option: c.after for c in one.changes}.items() for one in tried)
        assert took or fallback in alone, fallback
    values = {c.option: c.before for fallback in reversed(fallbacks) for c in reversed(fallback.changes)}
    for fallback in tried:  # each goes on from where the one before it ended
        assert all(change.before == values[change.option] for change in fallback.changes)
        values |= {change.option: change.after for change in fallback.changes}
        assert fallback.settings.items() <= values.items()


def of_size(made: Job, entities: int, train: int) -> JobSize:
    tails, heads = Answers(train // 3, train, train * 20, 300), Answers(train // 4, train, train * 60, 900)
    counts = Counts(entities, 3, train, train // 20, train // 20, tails, heads)
    stages = plan_of(made.workload).stages(made, lambda settings: counts)
    assert not isinstance(stages, str)
    return JobSize(made, counts, tuple(stages))


def test_smaller_batches_end_where_weights_take_most() -> None:
    made = job("train", {"dataset": "x", "embedding_dim": 64}, allow=True, batch_size=4096)
    fallbacks, tried, skipped, _ = trimmed(made, cpu_target(), of_size(made, 60_000, 100_000))
    last = tried[-1].settings["batch_size"]
    assert 4096 > last > 16 == fallbacks[-1].settings["batch_size"]
    smaller = skipped_lines([one.as_table() for one in skipped])[-1]
    assert re.fullmatch(rf"batch_size {last} → .*16 \(\d+ MiB predicted with it, .* without\)", smaller)


def test_what_saves_nothing_alone_goes_along_where_that_saves() -> None:
    """A step's activations take as much as its loss: one alone spares nothing."""
    settings = {"dataset": "x", "embedding_dim": 200, "loss": "1vsall-ce"}
    made = job("train", settings, batch_size=1024, entity_chunk=4096)
    _, tried, skipped, suggestion = trimmed(made, cpu_target(), of_size(made, 14_541, 100_000))
    assert [str(change) for change in tried[-1].changes] == [
        *("entity_chunk 1024 → 512", "gradient_checkpointing off → on"),
    ]
    assert [one.fallback.options for one in skipped] == [{"entity_chunk"}]
    assert skipped[0].why.endswith("without; tried with the next one")
    alone = predicted(made, suggestion, {"entity_chunk": 1024, "gradient_checkpointing": True})
    assert predicted(made, suggestion, tried[-1].settings) < 0.99 * alone


def test_without_a_prediction_every_fallback_is_tried() -> None:
    made = job("train", {"train": "/nowhere/train.txt"}, allow=True, batch_size=64)
    planned = Planned(made, (), cpu_target(), unknown="nobody counted its triples")
    tried, skipped = fallbacks_below(planned)
    assert tried == [*oom_fallbacks(made, None)] and len(tried) > 2
    assert skipped == []
