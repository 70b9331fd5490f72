"""A fallback that is predicted to save nothing gets no attempt, and the plan says so."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kgops.jobs.job import Job
from kgops.planning.memory_estimate import JobSize, job_size_of, predict
from kgops.planning.oom_fallbacks import Fallback, oom_fallbacks, skipped_lines
from kgops.planning.plan_job import Planned
from kgops.planning.planner import MachineCorrections, Suggestion, suggest
from kgops.planning.start import fallbacks_below
from kgops.planning.targets import Target, cpu_target, find_targets
from kgops.planning.worth_an_attempt import Skipped, worth_an_attempt
from kgops.workloads.graphs.counts import Answers, Counts
from kgops.workloads.job_files import read_job
from kgops.workloads.plan import plan_of


def job(workload: str, settings: dict[str, Any], allow: bool = False, **options: Any) -> Job:
    table = {
        "workload": workload,
        workload: settings,
        "options": options,
        "limits": {"allow_approximate": allow},
    }
    return read_job(table, "a test")


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
