"""Compiled and replayed steps find the weights plain ones find, and what cannot be had is said, not suffered."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import patience
from recording import Recorder, assert_identical
from test_train_loop import small

from kgops.jobs.on_device import WorkerDevice, compile_mode
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.train.acceleration import ReplayedStep, StaticBatch
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.loop import FitResult, fit
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep

# torch's compiler, which an optimizer imports too, warns of torch's own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="no C++ compiler: torch.compile cannot make kernels for a CPU",
)
# Masks differ between a step and its replay, so that only a model without dropout can be compared.
STILL = {"input_dropout": 0.0, "feature_map_dropout": 0.0, "output_dropout": 0.0}
# Batches of another size at the end of each epoch, and a validation that shares the model.
SETTINGS = TrainSettings(
    num_epochs=3, batch_size=48, validate_every=1, seed=3, schedule="cosine", loss_every=4
)


@pytest.fixture(autouse=True)
def forget_kernels() -> Any:
    yield
    torch.compiler.reset()


def trained(
    graph: Graph, folder: Path, settings: TrainSettings, device: str = "cpu", **change: Any
) -> tuple[ConvE, FitResult, Recorder]:
    model, listener = small(graph, device, **change), Recorder()
    return model, fit(model, graph, settings, folder, listener), listener


def assert_same(a: tuple[ConvE, FitResult, Recorder], b: tuple[ConvE, FitResult, Recorder]) -> None:
    losses = [[entry["loss"] for entry in done.history] for _, done, _ in (a, b)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for (name, ours), theirs in zip(a[0].state_dict().items(), b[0].state_dict().values(), strict=True):
        if name != "conv.bias":  # its true gradient is 0; Adam scales up whatever rounding leaves
            torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=2e-3, msg=name)


@needs_compiler
@pytest.mark.parametrize("loss", ["kvsall-bce", "1vsall-ce"])
def test_compiled_training_has_the_losses_and_weights_of_plain_training(
    nations: Graph, tmp_path: Path, loss: str
) -> None:
    settings = replace(SETTINGS, loss=loss, label_smoothing=0.1, entity_chunk=7)
    plain = trained(nations, tmp_path / "plain", settings)
    compiled = trained(nations, tmp_path / "compiled", replace(settings, compile="default"))
    assert compiled[2].options["compile"] == ("default", "default", None)
    assert_same(compiled, plain)


COMPILED_SUM = """
import torch
from kgops.maths.train.step import Compiler
compiler = Compiler()
compiler.on = True
x = torch.arange(336.0)
print(compiler(lambda x: torch.sigmoid(x / 100) * 2)(x).sum().item(), torch.sigmoid(x / 100).mul(2).sum().item())
"""


@needs_compiler
@pytest.mark.long
def test_kernels_cached_by_a_machine_with_longer_vectors_are_not_used(tmp_path: Path) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    shorter = "avx2" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "default"
    for capability in ({}, {"ATEN_CPU_CAPABILITY": shorter}):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", COMPILED_SUM],
            env={**os.environ, **cache, **capability},
            capture_output=True,
            text=True,
            timeout=patience(),
        )
        assert done.returncode == 0, done.stderr
        compiled, plain = map(float, done.stdout.split())
        assert compiled == pytest.approx(plain, rel=1e-6), capability


def test_training_goes_on_where_compiling_fails_and_says_why(
    nations: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-compiler"
    broken.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    import torch._inductor.config as inductor

    plain = trained(nations, tmp_path / "plain", SETTINGS)
    # Its own way of changing it: pytest's takes the setting away afterwards, for all tests that follow.
    with inductor.patch({"cpp.cxx": (None, str(broken))}):
        tried = trained(nations, tmp_path / "tried", replace(SETTINGS, compile="default"))
    asked, applied, reason = tried[2].options["compile"]
    assert (asked, applied) == ("default", "off")
    assert reason is not None and reason.startswith("torch.compile failed: ")
    assert_identical(tried[0].state_dict(), plain[0].state_dict())


@pytest.mark.parametrize(
    ("mode", "capability", "checkpointing", "applied", "said"),
    [
        ("default", (6, 1), False, "off", "compute capability 7.0"),
        ("reduce-overhead", (7, 5), True, "default", "gradient checkpointing"),
        ("max-autotune", (9, 0), True, "default", "gradient checkpointing"),
        ("max-autotune", (9, 0), False, "max-autotune", None),
        ("default", (9, 0), True, "default", None),
    ],
)
def test_rules_for_compiling_on_a_gpu(
    mode: str, capability: tuple[int, int], checkpointing: bool, applied: str, said: str | None
) -> None:
    found, reason = compile_mode(mode, WorkerDevice(capability), checkpointing=checkpointing)
    assert found == applied
    assert reason is None if said is None else said in (reason or "")


@pytest.mark.triton
@pytest.mark.gpu
@pytest.mark.parametrize(("mode", "precision"), [("default", "fp32"), ("reduce-overhead", "bf16")])
def test_compiled_training_on_a_gpu_has_the_losses_and_weights_of_plain_training(
    nations: Graph, tmp_path: Path, mode: str, precision: str
) -> None:
    settings = replace(SETTINGS, precision=precision)
    plain = trained(nations, tmp_path / "plain", settings, "cuda", **STILL)
    compiled = trained(nations, tmp_path / "compiled", replace(settings, compile=mode), "cuda", **STILL)
    assert compiled[2].options["compile"] == (mode, mode, None)
    losses = [[entry["loss"] for entry in done.history] for _, done, _ in (plain, compiled)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4 if precision == "fp32" else 1e-2)


# --- replayed by a CUDA graph ---


@pytest.mark.parametrize("kind", ["bce", "softmax"])
@pytest.mark.parametrize("chunk", [3, 7, 64])
def test_positives_past_the_last_entity_count_for_nothing(kind: Any, chunk: int) -> None:
    generator = torch.Generator().manual_seed(4)
    queries, entities = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (5, 13))
    biases = torch.randn(13, generator=generator, dtype=torch.float64)
    positives = Positives(torch.tensor([0, 0, 1, 2, 3, 4]), torch.tensor([2, 12, 0, 7, 7, 12]))
    batch = Batch(torch.arange(5), torch.arange(5), positives)
    static = StaticBatch(5, 11, 13, torch.device("cpu"))
    for rows in (11, 6):  # once full, then with what the earlier batch left behind
        full = Positives(torch.arange(rows) % 5, torch.arange(rows))
        static.fill(replace(batch, positives=full))
    static.fill(batch)
    told = []
    for given in (positives, static.batch.positives):
        grads = torch.empty_like(entities), torch.empty_like(biases)
        loss = EntityLoss(kind, 0.1, chunk, torch.float64)
        result = loss(queries, entities, biases, given, *grads)
        told.append([result.value, result.d_queries, *grads])
    for plain, padded in zip(*told, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-12, atol=1e-15)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here a capture would succeed")
def test_a_step_that_cannot_be_captured_runs_as_it_is_and_says_why(nations: Graph) -> None:
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1)
    models = small(nations), small(nations)
    plain, replayed = (TrainStep(m, EntityLoss(), build_optimizer("adam", m, 0.01)) for m in models)
    instead = ReplayedStep(replayed, 64)
    for take in (plain, instead):
        torch.manual_seed(2)
        for batch in batches.epoch(1):
            take(batch)
    assert instead.failure is not None and not instead._graphs
    assert_identical(models[0].state_dict(), models[1].state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adagrad", "sgd"])
@pytest.mark.parametrize("loss", ["kvsall-bce", "1vsall-ce"])
def test_replayed_training_has_the_losses_and_weights_of_plain_training(
    nations: Graph, tmp_path: Path, optimizer: str, loss: str
) -> None:
    settings = replace(SETTINGS, optimizer=optimizer, loss=loss, label_smoothing=0.1)
    plain = trained(nations, tmp_path / "plain", settings, "cuda", **STILL)
    replayed = trained(nations, tmp_path / "replayed", replace(settings, cuda_graphs=True), "cuda", **STILL)
    assert replayed[2].options["cuda_graphs"] == (True, "on", None)
    assert_same(replayed, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_replayed_training_learns_in_every_precision(
    nations: Graph, tmp_path: Path, precision: str, checkpointing: bool
) -> None:
    settings = replace(
        SETTINGS,
        num_epochs=12,
        learning_rate=3e-3,
        precision=precision,
        cuda_graphs=True,
        gradient_checkpointing=checkpointing,
    )
    _, done, listener = trained(nations, tmp_path, settings, "cuda")
    assert listener.options["cuda_graphs"] == (True, "on", None)
    assert done.history[-1]["loss"] < 0.9 * done.history[0]["loss"]


@contextmanager
def on_a_stream_of_its_own() -> Iterator[None]:
    """Steps cannot be captured on the default stream."""
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        yield
    torch.cuda.current_stream().wait_stream(own)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [torch.float32, torch.float16])
def test_batches_with_more_positives_than_there_is_room_are_captured_again(
    nations: Graph, precision: torch.dtype
) -> None:
    def batch(positives: int) -> Batch:
        heads, pairs = torch.arange(positives, positives + 16) % 14, torch.arange(positives)
        true = Positives((pairs % 16).cuda(), (pairs // 16).cuda())
        return Batch(heads.cuda(), 2 * heads.cuda(), true)

    models = small(nations, "cuda", **STILL), small(nations, "cuda", **STILL)
    steps = [TrainStep(m, EntityLoss(dtype=precision), build_optimizer("adam", m, 1e-3)) for m in models]
    replayed = ReplayedStep(steps[0], 16)
    with on_a_stream_of_its_own():
        for count in (20, 20, 20, 20, 20, 40, 40, 100, 20):
            ours, theirs = replayed(batch(count)), steps[1](batch(count))
            assert replayed.failure is None
            assert ours is not None and theirs is not None
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    assert replayed._graphs


@pytest.mark.gpu
def test_a_failed_capture_leaves_the_stream_and_the_memory_as_they_were(nations: Graph) -> None:
    model = small(nations, "cuda")
    step = TrainStep(model, EntityLoss(), build_optimizer("adam", model, 1e-3))
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1, device="cuda")
    source = [batch for batch in batches.epoch(1) if len(batch) == 64]
    replayed = ReplayedStep(step, 64)

    def wait_for_the_device(*_: object) -> None:
        torch.zeros(16 << 20, device="cuda")  # in the pool of the capture
        float(model.biases.sum())

    with on_a_stream_of_its_own():
        before = torch.cuda.current_stream()
        for batch in source[:3]:
            replayed(batch)
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        hook = step.optimizer.register_step_pre_hook(wait_for_the_device)
        replayed(source[3])
        hook.remove()
        assert replayed.failure is not None and not replayed._graphs
        assert torch.cuda.current_stream() == before
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= reserved
        assert replayed(source[4]) is not None


@pytest.mark.gpu
def test_a_replayed_step_of_fp16_that_overflows_changes_no_weight_and_is_counted(nations: Graph) -> None:
    model = small(nations, "cuda", batch_norm=False, output_dropout=0.0)
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1, device="cuda")
    step = TrainStep(model, EntityLoss(dtype=torch.float16), build_optimizer("adam", model, 1e-3))
    replayed = ReplayedStep(step, 64)
    source = [batch for batch in batches.epoch(1) if len(batch) == 64]
    with on_a_stream_of_its_own():
        for batch in source[:6]:
            replayed(batch, want_value=False)
    assert replayed._graphs and replayed.failure is None and step.overflows == 0
    with torch.no_grad():
        model.conv.weight.mul_(1e30)
    before = {name: p.clone() for name, p in model.named_parameters()}
    replayed(source[6], want_value=False)
    assert step.overflows == 1
    assert_identical(dict(model.named_parameters()), before)
