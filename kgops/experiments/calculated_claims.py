"""Claims that arithmetic, a data sheet or a count of weights judges: each function has a value and its working."""

from __future__ import annotations

import importlib.metadata
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kgops.gpus.known import KnownGpu, known_by_short_name
from kgops.jobs.regression_config import CHANNELS, SMALL_CHANNELS, RegressionConfig

__all__ = ["RECKONED", "Basis", "Reckoned"]

Basis = str  # of a verdict: `arithmetic`, `data sheet`, …
_TENSOR_CORES = ("v100", "t4", "a100-40", "rtx-2080ti", "rtx-3090", "rtx-4090")  # those the guide names
_VECTORS = 3  # of the batch, that the loss guide's text counts
_FRAME = 256  # pixels on a side: weights do not depend on it
_MIB, _GB = 2**20, 10**9


class Reckoned(NamedTuple):
    """A value in the claim's unit; None where it cannot be had, for the reason in `working`."""

    value: float | None
    working: str
    basis: Basis


def _stated(value: float, where: str) -> Reckoned:
    """What the document itself says elsewhere."""
    return Reckoned(value, where, "arithmetic")


def _sum(unit: str, terms: Sequence[float]) -> Reckoned:
    total = math.fsum(terms)
    written = " + ".join(f"{term:g}" for term in terms).replace("+ -", "- ")
    return Reckoned(total, f"{written} = {total:,.4g} {unit}", "arithmetic")


def _product(unit: str, factors: Sequence[float]) -> Reckoned:
    total = math.prod(factors)
    return Reckoned(
        total, f"{' x '.join(f'{one:,g}' for one in factors)} = {total:,.4g} {unit}", "arithmetic"
    )


def _quotient(unit: str, terms: Sequence[float]) -> Reckoned:
    above, below = terms
    return Reckoned(above / below, f"{above:,g} / {below:,g} = {above / below:,.4g} {unit}", "arithmetic")


def _labels(batch: int, entities: int) -> Reckoned:
    mib = 4 * batch * entities / _MIB
    return Reckoned(mib, f"4 bytes x {batch:,} x {entities:,} = {mib:.2f} MiB", "arithmetic")


def _vectors(batch: int) -> Reckoned:
    kib = _VECTORS * 4 * batch / 1024
    return Reckoned(kib, f"{_VECTORS} vectors x 4 bytes x {batch:,} = {kib:g} KiB", "arithmetic")


def _labels_saved(batch: int, entities: int) -> Reckoned:
    times = entities / _VECTORS
    working = f"{batch:,} x {entities:,} labels over {_VECTORS} vectors of {batch:,} = {times:,.0f}"
    return Reckoned(times, working, "arithmetic")


def _caching(trains: int) -> Reckoned:
    """A test triple needs a gradient of its own beside those of all training triples, however many tests there are."""
    times = (trains + 1) / trains
    working = f"{trains + 1:,} gradients a test triple become {trains:,}, however many tests there are"
    return Reckoned(times, f"{working}: {times:.4f} times", "arithmetic")


def _known(short_name: str) -> KnownGpu:
    found = known_by_short_name(short_name)
    assert found is not None
    return found


def _tensor_cores() -> Reckoned:
    gpus = [_known(name) for name in _TENSOR_CORES]
    ratios = {gpu.title: gpu.half_tflops / gpu.fp32_tflops for gpu in gpus}
    told = ", ".join(f"{title} {ratio:.1f}" for title, ratio in ratios.items())
    return Reckoned(min(ratios.values()), f"FP16 over FP32: {told}", "data sheet")


def _half_rate(short_name: str) -> Reckoned:
    gpu = _known(short_name)
    ratio = gpu.half_tflops / gpu.fp32_tflops
    working = f"{gpu.title} has no Tensor Cores; FP16 {gpu.half_tflops:g} of FP32 {gpu.fp32_tflops:g} TFLOPS"
    return Reckoned(ratio, working, "data sheet")


def _capability(short_name: str) -> Reckoned:
    gpu = _known(short_name)
    major, minor = gpu.compute_capability
    return Reckoned(major + minor / 10, f"{gpu.title} has {major}.{minor}", "data sheet")


def _capabilities(exact: Mapping[str, float], others: Sequence[str], least: float) -> Reckoned:
    """The share of the named GPUs that have the capability that is claimed of them."""
    found = {name: _capability(name).value or 0.0 for name in (*exact, *others)}
    right = [value == exact[name] if name in exact else value >= least for name, value in found.items()]
    told = ", ".join(f"{_known(name).title} {value:.1f}" for name, value in found.items())
    return Reckoned(sum(right) / len(right), told, "data sheet")


def _python_of_torch() -> Reckoned:
    """The least Python that the PyTorch of this installation takes: its second number."""
    try:
        asked = importlib.metadata.metadata("torch")["Requires-Python"] or ""
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Reckoned(None, "PyTorch is not installed here", "package")
    found = re.search(r">=\s*3\.(\d+)", asked)
    if found is None:
        return Reckoned(None, f"PyTorch {version} names no Python", "package")
    return Reckoned(float(found[1]), f"PyTorch {version} needs Python 3.{found[1]}", "package")


def _weights(small: bool) -> int:
    """Bytes of the network that ships."""
    config = RegressionConfig(_FRAME, _FRAME, channels=SMALL_CHANNELS if small else CHANNELS)
    return 4 * sum(math.prod(shape) for shape in config.shapes.values())


def _counted(part: str, small: bool) -> Reckoned:
    many = {"weights": 1, "optimizer": 2}[part]
    size = many * _weights(small)
    told = f"{_weights(small) // 4:,} weights x {4 * many} bytes = {size / _MIB:.1f} MiB, in the network that ships"
    return Reckoned(size / _GB, told, "arithmetic")


def _weights_left() -> Reckoned:
    small, full = _weights(True) // 4, _weights(False) // 4
    return Reckoned(small / full, f"{small:,} of {full:,} weights = {small / full:.0%}", "arithmetic")


RECKONED: dict[str, Callable[..., Reckoned]] = {
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
