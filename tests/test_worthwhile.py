"""A rung that is predicted to save nothing gets no attempt, and the plan says so."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kgops.jobs.job import Job, read_job
from kgops.planning.graph_counts import Answers, Counts
from kgops.planning.job_size import Subject, subject_of
from kgops.planning.memory_estimate import predict
from kgops.planning.oom_fallbacks import Rung, oom_fallbacks, passed_over
from kgops.planning.planner import Known, Suggestion, suggest
from kgops.planning.prune_fallbacks import Skipped, worth_an_attempt
from kgops.planning.targets import Target, find_targets, processor
from kgops.supervisor.launch import rungs_below
from kgops.supervisor.plan_job import Planned


def job(workload: str, settings: dict[str, Any], allow: bool = False, **levers: Any) -> Job:
    table = {
        "workload": workload,
        workload: settings,
        "levers": levers,
        "limits": {"allow_approximate": allow},
    }
    return read_job(table, "a test")


def drawn(seed: int) -> tuple[Job, Target]:
    draw = random.Random(seed)
    train = {
        "dataset": draw.choice(("nations", "kinships", "umls")),
        "embedding_dim": draw.choice((32, 100, 200)),
    }
    levers = {
        "batch_size": draw.choice((64, 256, 1024, 4096)),
        "entity_chunk": draw.choice(("auto", 64, 100_000)),
        "compile": draw.choice(("off", "default")),
    }
    both = {"train": train, "tracin": {"top_k": 5, "loss": "one-to-n"}}
    workload = draw.choice(("train", "pipeline"))
    made = job(workload, train if workload == "train" else both, draw.random() < 0.5, **levers)
    return made, draw.choice((processor(), find_targets("t4")[0]))


def trimmed(
    made: Job, target: Target, subject: Subject | None = None
) -> tuple[tuple[Rung, ...], list[Rung], list[Skipped], Suggestion]:
    found = subject or subject_of(made)
    assert isinstance(found, Subject)
    suggestion = suggest(found, target, Known(), thorough=False)
    assert suggestion is not None
    rungs = oom_fallbacks(made, target.facts, found.counts.entities)
    return (rungs, *worth_an_attempt(rungs, made, suggestion), suggestion)


def predicted(made: Job, suggestion: Suggestion, settings: dict[str, Any]) -> float:
    card = suggestion.target.facts
    shapes = suggestion.subject.shapes({**made.levers, **settings}, card)
    return max(predict(shape, card).total for shape in shapes)


@pytest.mark.parametrize("seed", range(10))
def test_every_rung_either_needs_less_than_the_one_before_or_is_said_to_be_left_out(seed: int) -> None:
    made, target = drawn(seed)
    rungs, tried, skipped, suggestion = trimmed(made, target)
    need = predicted(made, suggestion, {})
    for rung in tried:
        then = predicted(made, suggestion, rung.settings)
        # Of neither of these a prediction can say what they save.
        assert then < need or rung.levers & {"compile", "filtering"}, rung
        need = then
    alone = [one.rung for one in skipped]
    for rung in rungs:
        changed = {c.lever: c.after for c in rung.changes}
        took = any(changed.items() <= {c.lever: c.after for c in one.changes}.items() for one in tried)
        assert took or rung in alone, rung
    values = {c.lever: c.before for rung in reversed(rungs) for c in reversed(rung.changes)}
    for rung in tried:  # each goes on from where the one before it ended
        assert all(change.before == values[change.lever] for change in rung.changes)
        values |= {change.lever: change.after for change in rung.changes}
        assert rung.settings.items() <= values.items()


def of_size(made: Job, entities: int, train: int) -> Subject:
    tails, heads = Answers(train // 3, train, train * 20, 300), Answers(train // 4, train, train * 60, 900)
    counts = Counts(entities, 3, train, train // 20, train // 20, tails, heads)
    return Subject(made, counts, made, None, None)


def test_smaller_batches_end_where_weights_take_most() -> None:
    made = job("train", {"dataset": "x", "embedding_dim": 64}, allow=True, batch_size=4096)
    rungs, tried, skipped, _ = trimmed(made, processor(), of_size(made, 60_000, 100_000))
    last = tried[-1].settings["batch_size"]
    assert 4096 > last > 16 == rungs[-1].settings["batch_size"]
    smaller = passed_over([one.as_table() for one in skipped])[-1]
    assert re.fullmatch(rf"batch_size {last} → .*16 \(\d+ MiB predicted with it, .* without\)", smaller)


def test_what_saves_nothing_alone_goes_along_where_that_saves() -> None:
    """A step's activations take as much as its loss: one alone spares nothing."""
    settings = {"dataset": "x", "embedding_dim": 200, "loss": "1vsall-ce"}
    made = job("train", settings, batch_size=1024, entity_chunk=4096)
    _, tried, skipped, suggestion = trimmed(made, processor(), of_size(made, 14_541, 100_000))
    assert [str(change) for change in tried[-1].changes] == [
        *("entity_chunk 1024 → 512", "gradient_checkpointing off → on"),
    ]
    assert [one.rung.levers for one in skipped] == [{"entity_chunk"}]
    assert skipped[0].why.endswith("without; it goes with the next one")
    alone = predicted(made, suggestion, {"entity_chunk": 1024, "gradient_checkpointing": True})
    assert predicted(made, suggestion, tried[-1].settings) < 0.99 * alone


def test_filtering_is_tried_though_it_is_predicted_as_if_it_left_everything() -> None:
    both = {"train": {"dataset": "nations", "embedding_dim": 32}, "tracin": {"top_k": 5}}
    _, tried, _, _ = trimmed(job("pipeline", both, allow=True), processor())
    assert "filtering" in tried[-1].levers


def test_without_a_prediction_every_rung_is_tried() -> None:
    made = job("train", {"train": "/nowhere/train.txt"}, allow=True, batch_size=64)
    planned = Planned(made, (), processor(), unknown="nobody counted its triples")
    tried, skipped = rungs_below(planned)
    assert tried == [*oom_fallbacks(made, None)] and len(tried) > 2
    assert skipped == []
