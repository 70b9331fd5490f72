"""Plans fit the GPU, keep what a person fixed, and are the fastest of what a brute-force search finds."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from counting import calls_of

from kgops.gpus.known import known_by_short_name, short_names
from kgops.jobs.job import Job
from kgops.planning import profiles
from kgops.planning.memory_estimate import Correction, JobSize, Measured, job_size_of, learn_time, predict
from kgops.planning.planner import MARGIN, MachineCorrections, Suggestion, largest_where, need_mib, suggest
from kgops.planning.speed import rates_of, seconds
from kgops.planning.targets import Target, cpu_target, find_targets
from kgops.workloads.job_files import read_job
from kgops.workloads.train.sizes import TrainShape

NOTHING = MachineCorrections()
DATASETS = ("nations", "kinships", "umls")


def training(seed: int) -> Job:
    """A random training with some options fixed and others open."""
    draw = random.Random(seed)
    options = {
        "batch_size": draw.choice((64, 256, 4096, 65536)),
        "precision": draw.choice(("auto", "fp32", "fp16")),
        "entity_chunk": draw.choice(("auto", "auto", 64)),
        "gradient_checkpointing": draw.choice((True, False)),
    }
    kept = {name: value for name, value in options.items() if draw.random() < 0.6}
    settings = {"dataset": draw.choice(DATASETS), "embedding_dim": draw.choice((32, 200, 1000))}
    return read_job({"workload": "train", "train": settings, "options": kept}, "a test's job")


def on_umls(**options: object) -> Job:
    return read_job({"workload": "train", "train": {"dataset": "umls"}, "options": options}, "a test's job")


def planned(job: Job, target: Target, known: MachineCorrections = NOTHING) -> Suggestion:
    subject = job_size_of(job)
    assert isinstance(subject, JobSize)
    found = suggest(subject, target, known)
    assert found is not None
    return found


def of_room(mib: float) -> Target:
    """A T4 with another memory."""
    return replace(find_targets("t4")[0], usable_mib=mib)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_chosen_fits_with_its_margin_changes_nothing_but_exact_options_and_keeps_what_was_fixed(
    seed: int,
) -> None:
    job, room = training(seed), random.Random(seed).choice((500, 700, 1000, 3000, 15000))
    found = planned(job, of_room(room))
    if found.chosen is None:
        assert found.requested.need_mib > room
        assert found.nearest is None or found.nearest.need_mib <= room
        return
    assert found.chosen.estimate.total_mib * (1 + MARGIN) <= room
    assert found.chosen.effect == "exact"
    fixed = {option for option, value in job.options.items() if value != "auto"}
    assert not fixed & found.chosen.changes.keys()
    assert all(option.need_mib <= room for option in found.others)
    shown = [found.chosen, *found.others]
    for option in found.others:
        better = [one for one in shown if one.need_mib <= option.need_mib and one.seconds < option.seconds]
        assert option.effect != "exact" or not better


@pytest.mark.parametrize("seed", range(12))
def test_nothing_a_brute_force_search_finds_is_faster_by_more_than_what_a_roofline_can_tell(
    seed: int,
) -> None:
    job, room = training(seed), random.Random(seed).choice((520, 700, 2000))
    target = of_room(room)
    found = planned(job, target)
    subject = found.job_size
    is_open = job.options.get("entity_chunk", "auto") == "auto"
    open_chunks = [None, 512, 2048, 8192, 32768] if is_open else [None]
    open_checkpointing = [None, True] if "gradient_checkpointing" not in job.options else [None]
    best = None
    for chunk, checkpointing in product(open_chunks, open_checkpointing):
        if chunk is not None and chunk >= subject.counts.entities:
            continue
        changes = {"entity_chunk": chunk, "gradient_checkpointing": checkpointing}
        options = {**job.options, **{name: value for name, value in changes.items() if value is not None}}
        (shape,) = subject.shapes(options, target.facts)
        if need_mib(predict(shape, target.facts)) <= room:
            took = seconds(shape, rates_of(target))
            best = took if best is None else min(best, took)
    assert (found.chosen is None) == (best is None)
    if found.chosen is not None and best is not None:
        assert found.chosen.seconds <= best / 0.95


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_batch_fits_and_one_a_twentieth_larger_does_not(seed: int) -> None:
    job = training(seed)
    target = of_room(900)
    found = planned(job, target)
    most = found.largest_batch
    options = {**job.options, **found.best.changes}

    def need(batch: int) -> float:
        (shape,) = found.job_size.shapes({**options, "batch_size": batch}, target.facts)
        return need_mib(predict(shape, target.facts))

    if most is None:
        assert need(1) > 900
        return
    assert need(most) <= 900
    (shape,) = found.job_size.shapes({**options, "batch_size": most}, target.facts)
    assert isinstance(shape, TrainShape)
    is_whole_epoch = most >= shape.queries.queries
    assert is_whole_epoch or need(most + max(2, most // 20)) > 900


def test_the_nearest_change_is_the_first_fallback_that_fits_even_if_it_changes_results() -> None:
    options = {"batch_size": 65536, "entity_chunk": 64, "precision": "fp16", "gradient_checkpointing": True}

    def needs(batch: int) -> float:
        return planned(on_umls(**{**options, "batch_size": batch}), of_room(15000)).requested.need_mib

    room = (needs(16) + needs(65536)) / 2
    found = planned(on_umls(**options), of_room(room))
    assert not found.fits
    assert found.nearest is not None
    assert found.nearest.effect == "changes results"
    assert found.nearest.changes["batch_size"] < 65536
    assert found.nearest.need_mib <= room < found.requested.need_mib


def test_what_runs_have_taught_moves_the_prediction_and_the_choice() -> None:
    job, known = on_umls(), MachineCorrections(correction=Correction(1.5, 12))
    plain = planned(job, of_room(15000))
    taught = planned(job, of_room(15000), known)
    assert taught.best.estimate.total == pytest.approx(1.5 * plain.best.estimate.total, rel=1e-6)
    between = (plain.best.need_mib + taught.best.need_mib) / 2
    assert planned(job, of_room(between)).chosen is not None
    assert planned(job, of_room(between), known).requested.need_mib > between


def test_expected_time_is_the_median_of_past_runs_with_their_range() -> None:
    assert learn_time([]) is None
    assert learn_time([Measured(0.0, 1.0)]) is None
    learned = learn_time([Measured(1, 2), Measured(1, 3), Measured(2, 20)])
    assert learned is not None and learned.expected(2.0) == (6, 4, 20, 3)


def test_a_long_run_is_expected_by_long_runs_alone() -> None:
    """A small one takes 5 s before it begins, whatever it computes."""
    small, large = [Measured(0.1, 5.1)] * 20, [Measured(90.0, 95.0)]
    learned = learn_time([*small, *large])
    assert learned is not None
    assert learned.expected(100.0).s == pytest.approx(105.6, abs=0.1)
    assert learned.expected(0.1) == (5.1, 5.1, 5.1, 9)


@pytest.mark.parametrize("gpu", short_names())
def test_every_known_gpu_gets_a_plan_in_a_format_its_tensor_cores_have(gpu: str) -> None:
    job = profiles.apply(
        read_job({"workload": "train", "profile": "auto", "train": {"dataset": "umls"}}, "x")
    )
    target = find_targets(gpu)[0]
    found = planned(job, target)
    (shape,) = found.job_size.shapes(found.job_size.job.options, target.facts)
    known = known_by_short_name(gpu)
    assert known is not None
    assert isinstance(shape, TrainShape)
    assert shape.precision in (*known.tensor_core_dtypes, "fp32")


def test_the_processor_has_the_memory_that_is_free_not_what_others_hold() -> None:
    here = cpu_target()
    assert here.usable_mib is not None
    assert here.free_mib is not None
    assert here.room_mib == here.free_mib <= here.usable_mib


@pytest.fixture(scope="module")
def wide_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many entities and relations as FB15k-237 has, and enough triples for hundreds of blocks."""
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("wide") / "train.txt"
    rows = (
        f"e{int(14_541 * draw.random() ** 2)}\tr{int(237 * draw.random() ** 2)}\te{int(14_541 * draw.random())}"
        for _ in range(60_000)
    )
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("workload", "most"), [("train", 70_000), ("pipeline", 250_000)])
def test_a_plan_looks_at_few_settings(workload: str, most: int, wide_graph: Path) -> None:
    """A search that predicts every setting would call ten times as much; this is a matter of milliseconds."""
    files = {"train": str(wide_graph), "test": str(wide_graph)}
    table = files if workload == "train" else {"train": files, "tracin": {"max_triples": 64}}
    subject = job_size_of(
        profiles.apply(read_job({"workload": workload, "profile": "auto", workload: table}, "x"))
    )
    assert isinstance(subject, JobSize)
    for gpu in ("t4", "h200", "a10"):
        assert calls_of(partial(suggest, subject, find_targets(gpu)[0])) < most, gpu


# What is to spare at a number, where the largest that fits is `edge`.
SPARES: dict[str, Callable[[int, int], float]] = {
    "straight": lambda edge, n: edge - n,
    "bent": lambda edge, n: (edge - n) * (1 if n > edge / 3 else 5),
    "steps": lambda edge, n: edge // 1000 - n // 1000,
    "cliff": lambda edge, n: 1.0 if n <= edge else -1e9,
}


@pytest.mark.parametrize("kind", SPARES)
@pytest.mark.parametrize("seed", range(50))
def test_the_largest_number_that_fits_is_found_to_2_percent(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    spare = partial(SPARES[kind], draw.randint(0, 10**6))
    looked_at: list[int] = []

    def noted(number: int) -> float:
        looked_at.append(number)
        return spare(number)

    found = largest_where(noted, 2 ** draw.randint(0, 20), 2**20)
    assert found == max((number for number in looked_at if spare(number) >= 0), default=None)
    assert spare((found or 0) + max(1, (found or 0) // 50)) < 0
    assert len(looked_at) == len(set(looked_at)) < 45
