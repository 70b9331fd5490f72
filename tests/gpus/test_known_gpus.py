"""GPUs are known by the name NVML gives them and by the one people type, and no GPU is taken for another."""

import pytest

from kgops.gpus import known

GEFORCE = (
    "gtx-1070 gtx-1080 gtx-1080ti rtx-2060 rtx-2070 rtx-2080 rtx-2080ti rtx-3060 rtx-3070 rtx-3080 rtx-3080ti"
)
GEFORCE += " rtx-3090 rtx-4060 rtx-4070 rtx-4070ti rtx-4080 rtx-4090 rtx-5080 rtx-5090"
NAMES = {
    "Tesla V100-SXM2-16GB": "v100",
    "Tesla V100-PCIE-32GB": "v100-32",
    "Tesla P100-PCIE-16GB": "p100",
    "NVIDIA A100-SXM4-40GB": "a100-40",
    "A100-PCIE-40GB": "a100-40",
    "NVIDIA A100-SXM4-80GB": "a100-80",
    "NVIDIA A100-SXM-80GB": "a100-80",
    "NVIDIA A100 80GB PCIe": "a100-80",
    "TITAN V": "titan-v",
    "NVIDIA TITAN V": "titan-v",
    "TITAN RTX": "titan-rtx",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA GeForce GTX 1060 6GB": "gtx-1060",
    "Quadro RTX 6000": "quadro-rtx-6000",
    "Quadro RTX 8000": "quadro-rtx-8000",
    "NVIDIA RTX A5000": "rtx-a5000",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    **{f"Tesla {short.upper()}": short for short in ("t4", "p4", "p40")},
    **{
        f"NVIDIA {short.upper()}": short
        for short in ["a10", "a10g", "a30", "a40", "b200", "gb200", "h20", "h200", "l4", "l40", "l40s"]
    },
    **{
        f"{maker}GeForce {short.upper().replace('-', ' ').replace('TI', ' Ti')}": short
        for short in GEFORCE.split()
        for maker in ("", "NVIDIA ")  # as older drivers name them, and as newer ones do
    },
}


@pytest.mark.parametrize(("name", "short"), NAMES.items())
def test_a_gpu_is_known_by_the_name_that_nvml_gives_it(name: str, short: str) -> None:
    gpu = known.known_by_name(name)
    assert gpu is not None
    assert gpu.short_name == short
    assert gpu is known.known_by_short_name(short)


def test_every_known_gpu_has_an_nvml_name_and_every_promised_short_name_is_there() -> None:
    assert set(NAMES.values()) == set(known.short_names())
    promised = "t4 v100 a10 l4 rtx-2080ti rtx-3090 rtx-4090 a100-40 a100-80 l40s h100 h200 b200"
    promised += " gtx-1080 gtx-1080ti v100-32 rtx-2080 rtx-3080 rtx-4080"
    assert set(promised.split()) <= set(known.short_names())


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 2070 with Max-Q Design",
        "NVIDIA GeForce GTX 1060 3GB",
        "NVIDIA L40G",
        "NVIDIA A100X",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 144G HBM3e",
        "Tesla V100S-PCIE-32GB",
        "Tesla K80",
        "",
        "NVIDIA",
    ],
)
def test_a_gpu_of_other_metrics_is_not_taken_for_a_known_one(name: str) -> None:
    assert known.known_by_name(name) is None


def test_bf16_is_offered_only_where_tensor_cores_have_it() -> None:
    for short in known.short_names():
        gpu = known.known_by_short_name(short)
        assert gpu is not None
        assert ("bf16" in gpu.tensor_core_dtypes) == (gpu.compute_capability >= (8, 0))
        assert ("tf32" in gpu.tensor_core_dtypes) == (gpu.tf32_tflops is not None)
        assert bool(gpu.tensor_core_dtypes) == (gpu.compute_capability >= (7, 0))


@pytest.mark.parametrize(
    ("name", "real_mib"),
    [
        # Totals that torch reported for such slices.
        ("NVIDIA H200 MIG 3g.71gb", 71168),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40192),
        ("NVIDIA A100-SXM4-80GB MIG 1g.20gb", 19968),
    ],
)
def test_a_slice_has_its_share_of_its_gpu(name: str, real_mib: int) -> None:
    part, whole = known.known_by_name(name), known.known_by_name(name.split(" MIG ")[0])
    assert part is not None
    assert whole is not None
    assert real_mib <= part.memory_mib <= real_mib * 1.03
    assert part.half_tflops < whole.half_tflops
    assert part.bandwidth_gb_s < whole.bandwidth_gb_s
    assert (part.compute_capability, part.short_name) == (whole.compute_capability, whole.short_name)
