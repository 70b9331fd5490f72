"""When cached GPU memory goes back, what that may cost, and what is said of it.

The policy is given the accounts of a GPU here; on a GPU, tests marked `gpu` let another process hold most of it.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recording import Recorder, assert_identical
from tiny_regression import QUICK, made_flights, train, weights

from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.memory_cleanup import OFF, SHARE, CudaMemory, GpuMemory, MemoryCleanup
from kgops.workloads.train.models import ConvEConfig

MIB = 1 << 20


@dataclass
class Gpu:
    """Its accounts and its clock: what is asked of it takes time, as steps do."""

    free: int
    reserved: int
    unused: int
    ask_s: float = 100e-6
    give_s: float = 2e-3
    now: float = 0.0
    asked: int = 0
    fixed: bool = False  # nothing of the cache can be given back

    def read(self) -> GpuMemory:
        self.now, self.asked = self.now + self.ask_s, self.asked + 1
        return GpuMemory(self.free * MIB, self.reserved * MIB, self.unused * MIB, segments=3)

    def free_cache(self) -> None:
        self.now += self.give_s
        if not self.fixed:
            self.take(-self.unused)

    def take(self, mib: int) -> None:
        """The next steps have it again, and use it for as long as they last."""
        self.free, self.reserved, self.unused = self.free - mib, self.reserved + mib, self.unused + mib

    def cleanup(self, **more: object) -> MemoryCleanup:
        return MemoryCleanup(self, clock=lambda: self.now, **more)  # type: ignore[arg-type]

    def steps(self, cleanup: MemoryCleanup, count: int, each_s: float = 0.01) -> None:
        for _ in range(count):
            self.now += each_s
            cleanup.after_step()


def test_nothing_is_given_back_while_more_is_free_than_that_would_free() -> None:
    gpu = Gpu(free=500, reserved=2000, unused=499)
    cleanup = gpu.cleanup()
    gpu.steps(cleanup, 1000)
    cleanup.between_phases()
    assert cleanup.reads > 2 and (gpu.reserved, cleanup.times) == (2000, 0)
    assert cleanup.summary == "never needed"


def test_memory_that_runs_short_within_a_phase_is_given_back_and_counted() -> None:
    gpu = Gpu(free=5000, reserved=1000, unused=400)
    cleanup = gpu.cleanup()
    gpu.steps(cleanup, 1000)
    gpu.free = 300  # another process has come
    gpu.steps(cleanup, 1000)
    assert (gpu.free, gpu.reserved, cleanup.times) == (700, 600, 1)
    gpu.take(804)
    cleanup.between_phases()
    assert cleanup.summary.startswith("gave back 1,204 MiB, 2 times")


def test_what_steps_take_again_stays_theirs_until_the_next_phase() -> None:
    gpu = Gpu(free=300, reserved=1000, unused=0)
    cleanup = gpu.cleanup()
    gpu.take(200)
    gpu.steps(cleanup, 2000)
    assert cleanup.times == 1 and gpu.reserved == 1000
    gpu.take(200)
    gpu.steps(cleanup, 5000)
    assert cleanup.times == 1 and gpu.reserved == 1200, "each step would have taken it again"
    assert "the next steps allocated it again 1 time" in cleanup.summary
    cleanup.between_phases()
    assert cleanup.times == 2 and gpu.reserved == 1000


@given(
    gpu=st.builds(
        Gpu,
        free=st.integers(0, 500),
        reserved=st.just(2000),
        unused=st.integers(0, 1500),
        ask_s=st.floats(1e-6, 1e-2),
        give_s=st.floats(1e-5, 0.2),
    ),
    steps=st.lists(
        st.tuples(st.floats(1e-4, 0.5), st.integers(0, 300), st.booleans()), min_size=1, max_size=200
    ),
)
def test_all_of_it_costs_one_percent_and_the_first_time_at_most(
    gpu: Gpu, steps: list[tuple[float, int, bool]]
) -> None:
    cleanup = gpu.cleanup()
    started, worked = gpu.now, 0.0
    for each_s, takes, ends_phase in steps:
        gpu.now, worked = gpu.now + each_s, worked + each_s
        gpu.take(min(takes, gpu.free))
        cleanup.after_step()
        if ends_phase:
            cleanup.between_phases()
    spent = gpu.now - started - worked
    unknown = gpu.give_s + gpu.ask_s  # what giving back costs shows the first time
    assert spent <= SHARE * (gpu.now - started) + unknown
    assert cleanup.cost * (gpu.now - started) >= spent - 1e-9, "what it says it cost is all that it cost"


def test_without_a_gpu_nothing_is_asked_and_nothing_said() -> None:
    OFF.after_step()
    OFF.between_phases()
    assert (OFF.reads, OFF.times, OFF.cost) == (0, 0, 0.0)


# --- on a GPU: another process holds most of it ---------------------------------------------------------

HOLD = """
import sys, torch
held = torch.empty(torch.cuda.mem_get_info()[0] - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
CACHED, LEFT = 400 * MIB, 1000 * MIB


@contextmanager
def held_by_another(leaving: int) -> Iterator[None]:
    """All of the GPU but this, for as long as this lasts."""
    argv = [sys.executable, "-c", HOLD, str(leaving)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        try:
            assert other.stdout.readline() == b"held\n"
            yield
        finally:
            other.stdin.close()


def cache(mib: int) -> None:
    """An earlier phase needed this much at once."""
    del_me = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    del del_me


class CachesAtEach(Recorder):
    """Leaves a cache behind whenever an epoch is told of, as evaluations and checkpoints do."""

    def metric(self, name: str, value: float, step: int) -> None:
        super().metric(name, value, step)
        if name == "loss":
            cache(max(1, torch.cuda.mem_get_info()[0] // MIB * 2 // 3))


def on_gpu(graph: Graph) -> ConvE:
    shape = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=16, output_channels=2)
    return ConvE(shape).to("cuda")


def trained_on_gpu(folder: Path, cleanup: MemoryCleanup) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    graph = read_pykeen_dataset("nations")
    model = on_gpu(graph)
    settings = TrainSettings(num_epochs=12, batch_size=64, validate_every=1)
    fit(model, graph, settings, folder, CachesAtEach(), cleanup=cleanup)
    return {name: one.cpu() for name, one in model.state_dict().items()}


def regressed_on_gpu(folder: Path, cleanup: MemoryCleanup) -> dict[str, torch.Tensor]:
    torch.backends.cudnn.deterministic = True
    settings = replace(QUICK, epochs=6, pretrain=False)
    how = {"device": "cuda", "cleanup": cleanup, "report": CachesAtEach()}
    train(made_flights(folder / "flights"), folder, settings, **how)
    return weights(folder / "best_model.pt")


def scored_on_gpu(folder: Path, cleanup: MemoryCleanup) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    graph = read_pykeen_dataset("nations")
    points = [TracinCheckpoint(on_gpu(graph).eval(), 0.1) for _ in range(2)]
    sink = AllScores(40, len(graph.train))

    def and_cache() -> bool:
        cache(max(1, torch.cuda.mem_get_info()[0] // MIB * 2 // 3))
        return False

    settings = replace(Settings(), block=64, tests_at_once=8)
    tests = graph.test[:40]
    Scoring(points, TARGET, settings, cleanup=cleanup)(graph.train, tests, sink, stop=and_cache)
    return {"scores": sink.scores}


@pytest.mark.gpu
def test_on_a_gpu_that_another_process_fills_the_cache_goes_back_to_the_driver() -> None:
    torch.cuda.empty_cache()
    cache(CACHED // MIB)
    with held_by_another(CACHED // 4):
        before = torch.cuda.mem_get_info()[0]
        cleanup = MemoryCleanup(CudaMemory(torch.device("cuda")))
        assert cleanup.times == 1 and cleanup.freed_bytes >= CACHED
        assert torch.cuda.mem_get_info()[0] >= before + CACHED


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("work", [trained_on_gpu, regressed_on_gpu, scored_on_gpu])
def test_on_a_gpu_giving_back_leaves_every_number_as_it_is(
    tmp_path: Path, work: Callable[[Path, MemoryCleanup], dict[str, torch.Tensor]]
) -> None:
    for name in ("plain", "short"):
        (tmp_path / name).mkdir()
    torch.cuda.empty_cache()
    with held_by_another(LEFT):
        plain = work(tmp_path / "plain", OFF)
        torch.cuda.empty_cache()
        cleanup = MemoryCleanup(CudaMemory(torch.device("cuda")))
        short = work(tmp_path / "short", cleanup)
    assert cleanup.times > 0, cleanup.summary
    assert_identical(plain, short)
