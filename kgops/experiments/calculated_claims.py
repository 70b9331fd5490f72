"""Claims judged without a measurement: by arithmetic, or by a data sheet."""

from __future__ import annotations

import importlib.metadata
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kgops.gpus.known import KnownGpu, known_by_short_name
from kgops.jobs.regress import CHANNELS, SMALL_CHANNELS, RegressionConfig

Basis = str  # of a verdict: `arithmetic`, `data sheet`, …
_TENSOR_CORES = (
    "v100",
    "t4",
    "a100-40",
    "rtx-2080ti",
    "rtx-3090",
    "rtx-4090",
)  # the GPUs that the guide names
_VECTORS = 3  # vectors of batch size that the loss guide counts
_FRAME = 256  # pixels on a side; the number of weights does not depend on it
_MIB, _GB = 2**20, 10**9


class Calculation(NamedTuple):
    """A value in the claim's unit; None if it cannot be calculated, with the reason in `working`."""

    value: float | None
    working: str
    basis: Basis


def _stated(value: float, where: str) -> Calculation:
    """A value that another line of the document states."""
    return Calculation(value, where, "arithmetic")


def _sum(unit: str, terms: Sequence[float]) -> Calculation:
    total = math.fsum(terms)
    written = " + ".join(f"{term:g}" for term in terms).replace("+ -", "- ")
    return Calculation(total, f"{written} = {total:,.4g} {unit}", "arithmetic")


def _product(unit: str, factors: Sequence[float]) -> Calculation:
    total = math.prod(factors)
    return Calculation(
        total, f"{' x '.join(f'{one:,g}' for one in factors)} = {total:,.4g} {unit}", "arithmetic"
    )


def _quotient(unit: str, terms: Sequence[float]) -> Calculation:
    above, below = terms
    return Calculation(above / below, f"{above:,g} / {below:,g} = {above / below:,.4g} {unit}", "arithmetic")


def _labels(batch: int, entities: int) -> Calculation:
    mib = 4 * batch * entities / _MIB
    return Calculation(mib, f"4 bytes x {batch:,} x {entities:,} = {mib:.2f} MiB", "arithmetic")


def _vectors(batch: int) -> Calculation:
    kib = _VECTORS * 4 * batch / 1024
    return Calculation(kib, f"{_VECTORS} vectors x 4 bytes x {batch:,} = {kib:g} KiB", "arithmetic")


def _labels_saved(batch: int, entities: int) -> Calculation:
    times = entities / _VECTORS
    working = f"{batch:,} x {entities:,} labels over {_VECTORS} vectors of {batch:,} = {times:,.0f}"
    return Calculation(times, working, "arithmetic")


def _caching(trains: int) -> Calculation:
    """Without a cache every test triple needs one more gradient than there are training triples."""
    times = (trains + 1) / trains
    working = f"{trains + 1:,} gradients a test triple become {trains:,}, however many tests there are"
    return Calculation(times, f"{working}: {times:.4f} times", "arithmetic")


def _known(short_name: str) -> KnownGpu:
    gpu = known_by_short_name(short_name)
    assert gpu is not None
    return gpu


def _tensor_cores() -> Calculation:
    gpus = [_known(name) for name in _TENSOR_CORES]
    ratios = {gpu.title: gpu.half_tflops / gpu.fp32_tflops for gpu in gpus}
    listed = ", ".join(f"{title} {ratio:.1f}" for title, ratio in ratios.items())
    return Calculation(min(ratios.values()), f"FP16 over FP32: {listed}", "data sheet")


def _half_rate(short_name: str) -> Calculation:
    gpu = _known(short_name)
    ratio = gpu.half_tflops / gpu.fp32_tflops
    working = f"{gpu.title} has no Tensor Cores; FP16 {gpu.half_tflops:g} of FP32 {gpu.fp32_tflops:g} TFLOPS"
    return Calculation(ratio, working, "data sheet")


def _capability(short_name: str) -> Calculation:
    gpu = _known(short_name)
    major, minor = gpu.compute_capability
    return Calculation(major + minor / 10, f"{gpu.title} has {major}.{minor}", "data sheet")


def _capabilities(exact: Mapping[str, float], others: Sequence[str], least: float) -> Calculation:
    """Share of the named GPUs that have the claimed compute capability."""
    values = {name: _capability(name).value or 0.0 for name in (*exact, *others)}
    right = [value == exact[name] if name in exact else value >= least for name, value in values.items()]
    listed = ", ".join(f"{_known(name).title} {value:.1f}" for name, value in values.items())
    return Calculation(sum(right) / len(right), listed, "data sheet")


def _python_of_torch() -> Calculation:
    """Minor version of the oldest Python that the installed PyTorch supports."""
    try:
        required = importlib.metadata.metadata("torch")["Requires-Python"] or ""
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Calculation(None, "PyTorch is not installed here", "package")
    match = re.search(r">=\s*3\.(\d+)", required)
    if match is None:
        return Calculation(None, f"PyTorch {version} names no Python", "package")
    return Calculation(float(match[1]), f"PyTorch {version} needs Python 3.{match[1]}", "package")


def _weights(small: bool) -> int:
    """Bytes of the weights of kgops' regression network."""
    config = RegressionConfig(_FRAME, _FRAME, channels=SMALL_CHANNELS if small else CHANNELS)
    return 4 * sum(math.prod(shape) for shape in config.shapes.values())


def _counted(part: str, small: bool) -> Calculation:
    copies = {"weights": 1, "optimizer": 2}[part]
    size = copies * _weights(small)
    count = _weights(small) // 4
    working = f"{count:,} weights x {4 * copies} bytes = {size / _MIB:.1f} MiB, in kgops' network"
    return Calculation(size / _GB, working, "arithmetic")


def _weights_left() -> Calculation:
    small, full = _weights(True) // 4, _weights(False) // 4
    return Calculation(small / full, f"{small:,} of {full:,} weights = {small / full:.0%}", "arithmetic")


CALCULATIONS: dict[str, Callable[..., Calculation]] = {
    "stated": _stated,
    "sum": _sum,
    "product": _product,
    "quotient": _quotient,
    "labels": _labels,
    "vectors": _vectors,
    "labels_saved": _labels_saved,
    "caching": _caching,
    "tensor_cores": _tensor_cores,
    "half_rate": _half_rate,
    "capability": _capability,
    "capabilities": _capabilities,
    "python_of_torch": _python_of_torch,
    "counted": _counted,
    "weights_left": _weights_left,
}
