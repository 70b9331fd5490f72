"""Known GPU models: memory, bandwidth and compute rates, for planning without the GPU.

The numbers are from data sheets (dense rates, boost clock): good for ranking options, off by some factor as absolutes.
Measurements of this machine take precedence. Memory of a GPU in the machine comes from the driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kgops.jobs.run_options import plain_model

# Sources. Compute capability: NVIDIA's list "CUDA GPU Compute Capability". Bandwidth and rates: NVIDIA's data
# sheets and architecture white papers of each GPU, dense (a "with sparsity" number halved), at boost
# clock; on GeForce GPUs half precision is the rate with sums in fp32, half of that with sums in fp16. Pascal but
# for the P100 multiplies fp16 at 1/64 of its fp32 rate (GP102 and GP104, "CUDA C++ Programming Guide", arithmetic
# throughput for 6.1). Turing: "NVIDIA Turing GPU Architecture", appendix A and table of TU102 to TU106; Ampere:
# "NVIDIA Ampere GA102 GPU Architecture", appendix A; Ada: "NVIDIA Ada GPU Architecture", appendix A; Blackwell:
# "NVIDIA RTX Blackwell GPU Architecture", appendix A; professional GPUs: their data sheets. Memory: totals that NVML
# reported in public dumps where they are no whole GiB, and of the T4 and the RTX 2080 Ti; else nominal. Nothing here
# was measured by kgops.


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """`half_tflops` is fp16, and bf16 as well where `tensor_core_dtypes` has it; 1 GB/s is 10^9 bytes/s.

    `usable_mib`: total less the driver's reserve, where that was seen; None is unknown.
    """

    short_name: str
    title: str
    compute_capability: tuple[int, int]
    memory_mib: int
    bandwidth_gb_s: int
    fp32_tflops: float
    tf32_tflops: float | None
    half_tflops: float
    usable_mib: int | None = None

    @property
    def tensor_core_dtypes(self) -> tuple[str, ...]:
        # torch's is_bf16_supported() says True on a T4, where bf16 is emulated and slow: go by the capability.
        if self.compute_capability >= (8, 0):
            return ("fp16", "bf16", "tf32")
        return ("fp16",) if self.compute_capability >= (7, 0) else ()


def cublas_workspace(capability: tuple[int, int] | None) -> int:
    """Bytes that torch gives cuBLAS for each thread and stream; the larger of both where the GPU is unknown."""
    return 8320 << 10 if capability and capability[0] not in (9, 10, 12) else 32 << 20


_GPUS: tuple[KnownGpu, ...] = (
    KnownGpu("t4", "Tesla T4", (7, 5), 15360, 320, 8.1, None, 65, usable_mib=14909),
    KnownGpu("v100", "V100 16 GB", (7, 0), 16384, 900, 15.7, None, 125),
    KnownGpu("v100-32", "V100 32 GB", (7, 0), 32768, 900, 15.7, None, 125),
    KnownGpu("titan-v", "TITAN V", (7, 0), 12288, 653, 14.9, None, 110),
    KnownGpu("p100", "Tesla P100 16 GB", (6, 0), 16276, 732, 9.3, None, 18.7),
    KnownGpu("p4", "Tesla P4", (6, 1), 8192, 192, 5.5, None, 0.09),
    KnownGpu("p40", "Tesla P40", (6, 1), 24576, 346, 11.8, None, 0.18),
    KnownGpu("gtx-1060", "GeForce GTX 1060 6 GB", (6, 1), 6144, 192, 4.4, None, 0.07),
    KnownGpu("gtx-1070", "GeForce GTX 1070", (6, 1), 8192, 256, 6.5, None, 0.1),
    KnownGpu("gtx-1080", "GeForce GTX 1080", (6, 1), 8192, 320, 8.9, None, 0.14),
    KnownGpu("gtx-1080ti", "GeForce GTX 1080 Ti", (6, 1), 11264, 484, 11.3, None, 0.2),
    KnownGpu("rtx-2060", "GeForce RTX 2060", (7, 5), 6144, 336, 6.5, None, 26),
    KnownGpu("rtx-2070", "GeForce RTX 2070", (7, 5), 8192, 448, 7.5, None, 30),
    KnownGpu("rtx-2080", "GeForce RTX 2080", (7, 5), 8192, 448, 10.1, None, 40),
    KnownGpu("rtx-2080ti", "GeForce RTX 2080 Ti", (7, 5), 11264, 616, 13.4, None, 54),
    KnownGpu("titan-rtx", "TITAN RTX", (7, 5), 24576, 672, 16.3, None, 130),
    KnownGpu("quadro-rtx-6000", "Quadro RTX 6000", (7, 5), 24576, 672, 16.3, None, 130),
    KnownGpu("quadro-rtx-8000", "Quadro RTX 8000", (7, 5), 49152, 672, 16.3, None, 130),
    KnownGpu("a10", "A10", (8, 6), 23028, 600, 31, 62, 125),
    KnownGpu("a10g", "A10G", (8, 6), 23028, 600, 35, 35, 70),
    KnownGpu("l4", "L4", (8, 9), 23034, 300, 30, 60, 121),
    KnownGpu("rtx-3060", "GeForce RTX 3060", (8, 6), 12288, 360, 12.7, 12.7, 25.5),
    KnownGpu("rtx-3070", "GeForce RTX 3070", (8, 6), 8192, 448, 20.3, 20.3, 40.6),
    KnownGpu("rtx-3080", "GeForce RTX 3080", (8, 6), 10240, 760, 29.8, 29.8, 59.5),
    KnownGpu("rtx-3080ti", "GeForce RTX 3080 Ti", (8, 6), 12288, 912, 34.1, 34.1, 68.2),
    KnownGpu("rtx-3090", "GeForce RTX 3090", (8, 6), 24576, 936, 36, 36, 71),
    KnownGpu("a30", "A30", (8, 0), 24576, 933, 10.3, 82, 165),
    KnownGpu("a40", "A40", (8, 6), 49152, 696, 37.4, 74.8, 149.7),
    KnownGpu("rtx-a5000", "RTX A5000", (8, 6), 24576, 768, 27.8, 55.6, 111),
    KnownGpu("rtx-a6000", "RTX A6000", (8, 6), 49152, 768, 38.7, 77.4, 154.8),
    KnownGpu("rtx-4060", "GeForce RTX 4060", (8, 9), 8192, 272, 15.1, 15.1, 30.2),
    KnownGpu("rtx-4070", "GeForce RTX 4070", (8, 9), 12288, 504, 29.1, 29.1, 58.3),
    KnownGpu("rtx-4070ti", "GeForce RTX 4070 Ti", (8, 9), 12288, 504, 40.1, 40.1, 80.2),
    KnownGpu("rtx-4080", "GeForce RTX 4080", (8, 9), 16384, 717, 48.7, 48.7, 97.5),
    KnownGpu("rtx-4090", "GeForce RTX 4090", (8, 9), 24564, 1008, 83, 83, 165),
    KnownGpu("rtx-6000-ada", "RTX 6000 Ada", (8, 9), 49152, 960, 91.1, 182, 364),
    KnownGpu("rtx-5080", "GeForce RTX 5080", (12, 0), 16384, 960, 56.3, 56.3, 112.6),
    KnownGpu("rtx-5090", "GeForce RTX 5090", (12, 0), 32607, 1792, 105, 105, 209),
    KnownGpu("a100-40", "A100 40 GB", (8, 0), 40960, 1555, 19.5, 156, 312),
    KnownGpu("a100-80", "A100 80 GB", (8, 0), 81920, 2039, 19.5, 156, 312),
    KnownGpu("l40", "L40", (8, 9), 49152, 864, 90.5, 90.5, 181),
    KnownGpu("l40s", "L40S", (8, 9), 46068, 864, 92, 183, 362),
    KnownGpu("h100", "H100 SXM", (9, 0), 81559, 3350, 67, 494, 989),
    KnownGpu("h100-pcie", "H100 PCIe", (9, 0), 81559, 2000, 51, 378, 756),
    KnownGpu("h100-nvl", "H100 NVL", (9, 0), 96256, 3900, 60, 417, 835),
    KnownGpu("h20", "H20", (9, 0), 98304, 4000, 44, 74, 148),
    KnownGpu("gh200", "GH200 96 GB", (9, 0), 98304, 4000, 67, 494, 989),
    KnownGpu("h200", "H200", (9, 0), 143771, 4800, 67, 494, 989),
    KnownGpu("b200", "B200", (10, 0), 183359, 8000, 75, 1100, 2250),
    KnownGpu("gb200", "GB200", (10, 0), 189471, 8000, 80, 1250, 2500),
)

_BY_SHORT_NAME = {gpu.short_name: gpu for gpu in _GPUS}

# Names as NVML spells them, where those are not the title; drivers before 465 left out the "NVIDIA " that is taken
# off before matching.
# Each name must match to the end: an "RTX 4090 Laptop GPU", a "3090 Ti", a "V100S", an "H200 NVL" and an
# "L40G" are other GPUs with other numbers, and no known GPU is better than the wrong one.
_DRIVER_NAMES = {
    "t4": r"(Tesla )?T4",
    "v100": r"Tesla V100-(SXM2|PCIE|DGXS|FHHL)-16GB(-LS|-N)?",
    "v100-32": r"Tesla V100-(SXM2|SXM3|PCIE|DGXS)-32GB(-LS|-N)?",
    "p100": r"Tesla P100-(PCIE|SXM2)-16GB",
    "gtx-1060": r"GeForce GTX 1060 6GB",
    "rtx-6000-ada": r"RTX 6000 Ada Generation",
    "a100-40": r"A100-(SXM4?|PCIE)-40GB",
    "a100-80": r"A100-(SXM4?|PCIE)-80GB|A100 80GB PCIe",  # the PCIe GPU has 5 % less bandwidth
    "h100": r"H100 80GB HBM3",
    "gh200": r"GH200 480GB",  # named by its CPU's memory
}
_BY_TYPED_NAME = {short.replace("-", ""): gpu for short, gpu in _BY_SHORT_NAME.items()}

_SLICE = re.compile(r"(?P<gpu>.+) MIG (?P<sevenths>[1-7])g\.(?P<gigabytes>\d+)gb(\+.+)?")


def short_names() -> tuple[str, ...]:
    """Every name that `known_by_short_name` knows, smallest GPUs of their kind first."""
    return tuple(_BY_SHORT_NAME)


def known_by_short_name(name: str) -> KnownGpu | None:
    """The GPU a person means by `t4`, `RTX_3090` or `rtx4090`; None if it is none of `short_names()`.

    Two GPUs that differ in memory alone have names of their own: `a100` is neither.
    """
    return _BY_TYPED_NAME.get(plain_model(name))


def known_by_name(nvml_name: str) -> KnownGpu | None:
    """The GPU that NVML names so, or None. A MIG slice is its GPU with the slice's share of everything."""
    mig_slice = _SLICE.fullmatch(nvml_name.strip())
    if mig_slice is not None:
        whole = known_by_name(mig_slice["gpu"])
        return (
            None if whole is None else _share(whole, int(mig_slice["sevenths"]), int(mig_slice["gigabytes"]))
        )
    bare = nvml_name.strip().removeprefix("NVIDIA ")
    return next(
        (gpu for gpu in _GPUS if re.fullmatch(_DRIVER_NAMES.get(gpu.short_name, gpu.title), bare)), None
    )


def _share(whole: KnownGpu, sevenths: int, gigabytes: int) -> KnownGpu:
    # MIG divides a GPU into seven parts of its multiprocessors and eight of its memory and bandwidth. The name gives
    # the memory rounded, so find the eighths it stands for; a slice really has a little less than that.
    eighths = min(8, max(1, round(gigabytes * 1024 / (whole.memory_mib / 8))))
    return replace(
        whole,
        title=f"{whole.title} MIG {sevenths}g.{gigabytes}gb",
        memory_mib=whole.memory_mib * eighths // 8,
        usable_mib=None,
        bandwidth_gb_s=whole.bandwidth_gb_s * eighths // 8,
        fp32_tflops=whole.fp32_tflops * sevenths / 7,
        tf32_tflops=None if whole.tf32_tflops is None else whole.tf32_tflops * sevenths / 7,
        half_tflops=whole.half_tflops * sevenths / 7,
    )
