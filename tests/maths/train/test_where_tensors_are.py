"""On a GPU no step computes anything of size on the CPU, and neither copies nor reads back in an epoch. No stream reads
what another may still write: torch's own sanitizer watches, in a process of its own, as it cannot stop.

A dispatch mode sees every operation below autograd. What a run does once (reading, sending the model) is told from what
each step does by running twice as many steps: what grows with them is a step's.
"""

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from estimate_regress import work_of
from estimating import SilentReporter
from recording import Recorder
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.ranking import answers, probability_of
from kgops.maths.predict.scores import scorer_of
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET
from kgops.maths.tracin.scan import AllScores, Scoring, TopTriples
from kgops.maths.train.batches import Batch
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.workloads.job_files import read_job
from kgops.workloads.train.models import ConvEConfig

pytestmark = pytest.mark.gpu
LARGE = 1000  # elements
_COMPUTES_NOTHING = {"empty", "detach", "view", "alias", "set_", "_to_copy"}  # a file is read so


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What was computed on the CPU, and what went between it and the GPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.computed: list[str] = []
        self.crossed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        devices = {x.device.type for x in tensors if x.dim() or x.device.type == "cuda"}
        name = str(func)
        if devices == {"cpu", "cuda"} or ("cuda" in devices and "_local_scalar_dense" in name):
            self.crossed.append(f"{_asked_by()}: {name}")
        elif (
            devices == {"cpu"}
            and name.split(".")[1] not in _COMPUTES_NOTHING
            and any(x.is_floating_point() and x.numel() > LARGE for x in tensors)
        ):
            self.computed.append(f"{name} {[tuple(x.shape) for x in tensors]}")
        return out


def _asked_by() -> str:
    """The innermost function of kgops under way: scan.add, ….

    What a backward asks for has none: torch calls it from a thread of its own.
    """
    for frame in reversed(traceback.extract_stack()):
        if "/kgops/" in frame.filename:
            return f"{Path(frame.filename).stem}.{frame.name}"
    return "a backward"


def watched(work: Callable[[], object]) -> Watch:
    watch = Watch()
    with watch:
        work()
    return watch


def model(graph: Graph, device: str) -> ConvE:
    torch.manual_seed(1)
    shape = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=128, output_channels=8)
    with torch.device(device):
        return ConvE(shape)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_more_steps_of_a_training_cross_no_more_often(
    nations: Graph, tmp_path: Path, precision: str, cuda_graphs: bool
) -> None:
    once = TrainSettings(
        num_epochs=1, batch_size=128, precision=precision, cuda_graphs=cuda_graphs, validate_every=0
    )

    def train(settings: TrainSettings, folder: str) -> None:
        fit(model(nations, "cuda"), nations, settings, tmp_path / folder, Recorder())

    train(once, "warm")
    few = watched(lambda: train(once, "few"))
    many = watched(lambda: train(replace(once, batch_size=32), "many"))  # four times the steps of an epoch
    assert len(many.crossed) <= len(few.crossed), set(many.crossed) - set(few.crossed)


@pytest.mark.parametrize("work", ["training", "evaluation", "tracin", "questions", "pairs"])
def test_nothing_of_size_is_computed_on_the_cpu(nations: Graph, tmp_path: Path, work: str) -> None:
    on_gpu = model(nations, "cuda")
    settings = TrainSettings(num_epochs=2, validate_every=0)
    known, entities, questions = nations.train, nations.num_entities, nations.test * torch.tensor([1, 1, 0])
    probability = probability_of({"name": "kvsall-bce"}, None)
    works: dict[str, Callable[[], object]] = {
        "training": lambda: fit(on_gpu, nations, settings, tmp_path, Recorder()),
        "evaluation": lambda: Evaluator(known, entities, device="cuda")(on_gpu, nations.test),
        "tracin": lambda: score(on_gpu, nations, 256),
        "questions": lambda: list(answers(scorer_of(on_gpu.eval(), 4096), questions, 5, probability)),
        "pairs": lambda: best_pairs(scorer_of(on_gpu.eval(), 4096), 3, 10, probability),
    }
    assert watched(works[work]).computed == []


def regression(
    folder: Path, epochs: int = 1, batch_size: int = 8, precision: str = "fp32"
) -> Callable[[], object]:
    make_flights(folder, 3, Sky(frames=24, size=16), seed=4)
    own = {"data_directory": str(folder), "epochs": epochs, "pretrain": False, "device": "cuda"}
    own |= {"augment": True, "flat_field_correction": True}
    options = {"compile": "off", "batch_size": batch_size, "temporal_frames": 3, "precision": precision}
    job = read_job({"workload": "regress", "regress": own, "options": options}, "a test's job")
    return work_of(job, folder, torch.device("cuda"), SilentReporter())


def cross_more_often(*works: Callable[[], object]) -> set[str]:
    """Who crosses more often in the second work, of more steps, than in the first."""
    few, many = (Counter(watched(work).crossed) for work in works)
    return {asked.partition(":")[0] for asked, times in many.items() if times > few[asked]}


def score(on_gpu: ConvE, graph: Graph, block: int) -> None:
    points = [TracinCheckpoint(on_gpu.eval(), 0.1)]
    sink = AllScores(8, len(graph.train), out=torch.zeros(8, len(graph.train), device="cuda"))
    Scoring(points, TARGET, replace(Settings(), block=block))(graph.train, graph.test[:8], sink)


def test_a_regression_computes_its_first_weights_alone_on_the_cpu(tmp_path: Path) -> None:
    once, more = (watched(regression(tmp_path / str(epochs), epochs)).computed for epochs in (1, 3))
    assert more == once
    assert {one.partition(" ")[0] for one in once} == {"aten.uniform_.default", "aten.mul_.Tensor"}


# What a step of a regression sends or reads back beside its batch, which a thread of its own sends, and why.
OF_A_REGRESSION = {
    "batches.augmented",  # which windows are mirrored, and how bright: drawn on the host, so a seed fits any device
    "metrics.predict",  # heights of a block of validation windows
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_more_steps_of_a_regression_cross_no_more_often_than_is_listed(
    tmp_path: Path, precision: str
) -> None:
    works = (regression(tmp_path / str(size), batch_size=size, precision=precision) for size in (8, 4))
    assert cross_more_often(*works) == OF_A_REGRESSION


# What a block of TracIn reads back, a few numbers each, and why.
OF_A_BLOCK = {
    "factors._grouped",  # how many distinct (head, relation) pairs it has: planes are made of that size
    "entity_pass.__init__",  # where the chunks of entities begin among its sorted tails
    "products._add_heads",  # whether any test triple's head is among its tails: most blocks save a product
}


def test_more_blocks_of_tracin_read_back_no_more_than_is_listed(nations: Graph) -> None:
    on_gpu = model(nations, "cuda")
    score(on_gpu, nations, 256)
    blocks = (partial(score, on_gpu, nations, block) for block in (256, 64))
    assert cross_more_often(*blocks) <= OF_A_BLOCK


# --- faults planted in a training's step, which the tests above would notice --------------------------


def run(work: str, folder: Path) -> None:
    graph = read_pykeen_dataset("nations")
    with torch.device("cuda"):
        model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=16))
    if work == "tracin":
        points = [TracinCheckpoint(model.eval(), 0.1)]
        Scoring(points, ONE_TO_N)(graph.train, graph.test[:4], TopTriples(5))
        return
    if work == "another stream":
        true = TrainStep.__call__

        def step(own: TrainStep, batch: Batch, want_value: bool = True) -> Any:
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                model.entities.detach() @ model.entities.detach().t()
            return true(own, batch, want_value)

        TrainStep.__call__ = step  # type: ignore[method-assign, assignment]
    settings = TrainSettings(num_epochs=2, batch_size=128, cuda_graphs=work == "replayed training")
    fit(model, graph, settings, folder, Recorder())


def sanitized(work: str, folder: Path, answers: Any) -> None:
    from torch.cuda._sanitizer import CUDASanitizerDispatchMode, CUDASanitizerErrors

    try:
        with CUDASanitizerDispatchMode():
            run(work, folder)
    except CUDASanitizerErrors as error:
        answers.put("\n".join(map(str, error.errors)))
    else:
        answers.put("")


def said(work: str, folder: Path) -> str:
    fresh = multiprocessing.get_context("spawn")
    answers = fresh.Queue()
    child = fresh.Process(target=sanitized, args=(work, folder, answers))
    child.start()
    child.join()
    assert child.exitcode == 0
    found: str = answers.get()
    return found


@pytest.mark.long
@pytest.mark.parametrize("work", ["training", "replayed training", "tracin"])
def test_no_stream_reads_what_another_may_still_write(work: str, tmp_path: Path) -> None:
    assert said(work, tmp_path) == ""
