"""Compiled steps find the weights plain ones find, and what cannot be had is said, not suffered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import patience
from recording import Recorder
from test_train_loop import small

from kgops.jobs.on_device import WorkerDevice, compile_mode
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.train.loop import FitResult, fit
from kgops.maths.train.settings import TrainSettings

# torch's compiler warns of torch's own deprecations while it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="no C++ compiler: torch.compile cannot make kernels for a CPU",
)
CPU, GPU = torch.device("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    for name, tensor in tried[0].state_dict().items():
        assert torch.equal(tensor, plain[0].state_dict()[name]), name


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
@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize(("mode", "precision"), [("default", "fp32"), ("reduce-overhead", "bf16")])
def test_compiled_training_on_a_gpu_has_the_losses_and_weights_of_plain_training(
    nations: Graph, tmp_path: Path, device: str, mode: str, precision: str
) -> None:
    settings = replace(SETTINGS, precision=precision)
    plain = trained(nations, tmp_path / "plain", settings, device, **STILL)
    compiled = trained(nations, tmp_path / "compiled", replace(settings, compile=mode), device, **STILL)
    assert compiled[2].options["compile"] == (mode, mode, None)
    losses = [[entry["loss"] for entry in done.history] for _, done, _ in (plain, compiled)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4 if precision == "fp32" else 1e-2)
