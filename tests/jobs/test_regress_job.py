"""The job of a regression: configurations as their project writes them, options and their rules, sizes of flights."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgops.errors import BadJob, Usage
from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.planning.oom_fallbacks import oom_advice, oom_fallbacks
from kgops.planning.resolve import resolve
from kgops.workloads import configurations
from kgops.workloads.configurations import LEFT_OUT, job_table, read
from kgops.workloads.job_files import read_job
from kgops.workloads.regress.job import RegressionConfig
from kgops.workloads.regress.sizes import flights_in

T4 = GpuFacts("Tesla T4", (7, 5))
A100 = GpuFacts("A100", (8, 0))
# Every key that a configuration of the project's has, with values of its own.
THEIRS = """
data_directory: "/content/drive/data/"
output_directory: "/content/drive/plots/"
models_directory: "/content/drive/models/"
log_dir: "/content/drive/logs/"
pretrain_flight: 20241030
overweight_flight: "30Oct24"
overweight_factor: 3.5
validation_flight: "12Feb25"
learning_rate: 1e-3
weight_decay: 0.04
epochs: 50
optimizer: "AdamW"
scheduler: "ReduceLROnPlateau"
temporal_frames: 5
loss_type: "huber"
loss_alpha: 0.5
early_stopping_patience: 15
filter_type: "basic"
early_stopping_min_delta: 0.00025
huber_delta: 1.0
gamma: 1.5
under_weight: 1.0
loo: false
loo_epochs: 30
batch_size: 20
warmup_steps: 2000
hard_mining_k: 0.35
hard_mining_factor: 1.5
swath_slice: [40, 480]
hpc_mode: true
memory_optimized: false
gradient_checkpointing: true
torch_compile: true
torch_compile_mode: "default"
num_workers: 2
pin_memory: true
prefetch_factor: 3
use_spatial_attention: true
use_temporal_attention: false
flat_field_correction: true
clahe_clip_limit: 0.01
zscore_normalize: true
augment: true
angles_mode: "sza_only"
save_name:
architecture:
  name: "ssm"
flights:
  - name: "10Feb25"
    iFileName: "10Feb25/GLOVE2025.h5"
  - name: "30Oct24"
    iFileName: "30Oct24/WHYMSIE2024.h5"
"""


def of_text(tmp_path: Path, text: str) -> Job:
    path = tmp_path / "theirs.yaml"
    path.write_text(text)
    return read_job(job_table(read(str(path)), str(path)), str(path))


def job(
    allow: bool = False, profile: str | None = None, settings: dict[str, Any] | None = None, **options: Any
) -> Job:
    table: dict[str, Any] = {
        "workload": "regress",
        "regress": {"image_size": "64", **(settings or {})},
        "options": options,
        "limits": {"allow_approximate": allow},
    }
    return read_job(table | ({"profile": profile} if profile else {}), "a test")


def changed(asked: Job, gpu: GpuFacts | None = None) -> list[str]:
    return [str(change) for fallback in oom_fallbacks(asked, gpu) for change in fallback.changes]


# ---- configurations ----


def test_every_key_of_their_configurations_means_what_it_meant(tmp_path: Path) -> None:
    found = of_text(tmp_path, THEIRS)
    assert found.options == {
        "temporal_frames": 5,
        "batch_size": 20,
        "memory_optimized": False,
        "gradient_checkpointing": True,
        "compile": "default",
        "num_workers": 2,
    }
    expected = {
        "architecture": "ssm",
        "learning_rate": 1e-3,
        "optimizer": "adamw",
        "scheduler": "plateau",
        "pretrain_flight": "20241030",
        "angles_mode": "sza_only",
        "use_temporal_attention": False,
        "early_stopping_min_delta": 0.00025,
        "warmup_steps": 2000,
        "save_name": None,
    }
    assert {name: found.settings[name] for name in expected} == expected


def test_what_kgops_does_otherwise_is_told_with_the_reason_and_the_rest_is_not(tmp_path: Path) -> None:
    told = of_text(tmp_path, THEIRS).settings["left_out"]
    assert sorted(line.partition(":")[0] for line in told) == [
        *("clahe_clip_limit", "filter_type", "flights", "hard_mining_factor", "hard_mining_k", "hpc_mode"),
        *("log_dir", "models_directory", "pin_memory", "prefetch_factor", "swath_slice"),
    ]
    assert all(line == f"{name}: {LEFT_OUT[name]}" for line in told for name in [line.partition(":")[0]])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("colab_optimized_full", {"memory_optimized": False, "batch_size": 20, "compile": "default"}),
        ("colab_full_stable", {"memory_optimized": False, "batch_size": 16, "compile": "off"}),
        ("colab_optimized", {"memory_optimized": True, "batch_size": 16}),
    ],
)
def test_the_three_configurations_ship_and_leave_nothing_out(name: str, options: dict[str, Any]) -> None:
    assert name in configurations.names()
    table = job_table(read(name), name)
    assert "left_out" not in table["regress"]
    assert options.items() <= table["options"].items()
    assert ("compile" in table["options"]) == ("compile" in options)
    assert table["options"].get("gradient_checkpointing", False) is (name != "colab_optimized")
    found = read_job({**table, "regress": {**table["regress"], "data_directory": "flights"}}, name)
    assert found.settings["warmup_steps"] == 2000


def test_a_configuration_is_found_by_its_files_name_too_and_a_file_of_that_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("colab_optimized.yaml") == read("colab_optimized")
    (tmp_path / "colab_optimized.yaml").write_text("epochs: 3")
    assert read("colab_optimized.yaml") == {"epochs": 3}
    assert read("colab_optimized") != {"epochs": 3}


def test_unknown_keys_are_named_with_the_nearest_known_one_and_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadJob) as caught:
        of_text(
            tmp_path, "batchsize: 3\narchitecture: {nam: ssm}\ntorch_compile: 1\nmemory_optimised: true\n"
        )
    assert [line.partition(";")[0] + line.partition(";")[2] for line in caught.value.problems] == [
        "batchsize: no such key did you mean 'batch_size'?",
        "memory_optimised: no such key did you mean 'memory_optimized'?",
        "architecture.nam: no such key did you mean 'name'?",
        "architecture.name: missing; expected text".replace(";", ""),
        "torch_compile: expected true or false, found the number 1",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("architecture: {name: lstm}", "must be one of transformer, gnn, ssm, cnn"),
        ("learning_rate: fast", "expected a number, found the text 'fast'"),
        ("epochs: 2.5", "expected a whole number"),
        ("batch_size: 0", "a whole number from 1 on"),
        ("temporal_frames: many", "a whole number from 1 on"),
        ("torch_compile: true\ntorch_compile_mode: fastest", "reduce-overhead"),
        ("angles_mode: all", "both, sza_only, saa_only, none"),
        ("loss_type: l3", "huber, mse"),
        ("pretrain: false\nfinal: false", "no training is left"),
        ("image_size: 3x4x5", "a size like 224 or 440x640"),
        ("- a\n- b", "expected keys and values, found a list"),
        ("a: [1", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("", "expected keys and values"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadJob) as caught:
        of_text(tmp_path, text if text.startswith(("-", "a:")) or not text else f"{text}\ndata_directory: x")
    assert reason in str(caught.value.problems)


def test_a_file_that_is_no_configuration_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"missing\.yaml: No such file"):
        read(str(tmp_path / "missing.yaml"))
    with pytest.raises(Usage, match="did you mean 'colab_optimized'"):
        read("colab_optimised")
    with pytest.raises(Usage) as caught:
        read("configs/colab_optimized_full.yaml")
    assert "--config colab_optimized_full" in (caught.value.hint or "")
    bytes_, large = tmp_path / "bytes.yaml", tmp_path / "large.yaml"
    bytes_.write_bytes(b"a: \xff")
    with pytest.raises(BadJob, match="not UTF-8"):
        read(str(bytes_))
    large.write_text("#" * (configurations.LARGEST + 1))
    with pytest.raises(BadJob, match="no configuration"):
        read(str(large))


def test_pretraining_and_final_training_are_turned_off_by_their_flags(tmp_path: Path) -> None:
    found = of_text(tmp_path, "data_directory: x\nno_pretrain: true\nno_final: false")
    assert (found.settings["pretrain"], found.settings["final"]) == (False, True)


def test_compilation_is_off_unless_it_is_asked_for_and_a_mode_alone_asks_for_nothing(tmp_path: Path) -> None:
    asked = {
        "torch_compile: true": "default",
        "torch_compile: true\ntorch_compile_mode: reduce-overhead": "reduce-overhead",
        "torch_compile: false\ntorch_compile_mode: default": "off",
        "torch_compile_mode: default": None,
    }
    for text, mode in asked.items():
        assert of_text(tmp_path, f"{text}\ndata_directory: x").options.get("compile") == mode


def test_the_network_has_a_shape_only_where_there_can_be_one() -> None:
    for wrong in (
        {"height": 7},
        {"architecture": "rnn"},
        {"angles_mode": "x"},
        {"channels": (1, 2)},
        {"dropout": 1.0},
    ):
        with pytest.raises(Usage):
            RegressionConfig(**{"height": 32, "width": 32, **wrong})  # type: ignore[arg-type]
    with pytest.raises(Usage, match="30 features do not divide into 4 heads"):
        RegressionConfig(32, 32, channels=(10, 20, 30))
    assert RegressionConfig(32, 32, channels=(10, 20, 30), use_temporal_attention=False).mixer == "mean"
    full = RegressionConfig(224, 224)
    assert RegressionConfig(**full.to_dict()) == full


# ---- options ----


def test_graphs_give_way_to_checkpointing_and_compilation_does_not() -> None:
    found = resolve(job(compile="reduce-overhead", gradient_checkpointing=True), lambda _: A100)
    assert found.job.options["compile"] == "default"
    assert "static input data pointer changed" in str(found.corrected)
    assert not resolve(job(compile="reduce-overhead"), lambda _: A100).corrected
    assert not resolve(job(compile="default", gradient_checkpointing=True), lambda _: A100).corrected


def test_a_profile_brings_what_means_something_here() -> None:
    options = resolve(job(profile="t4"), lambda _: T4).job.options
    assert options["precision"] == "fp16"
    assert options["compile"] == "default"
    assert "entity_chunk" not in options
    assert resolve(job(profile="t4", precision="fp32"), lambda _: T4).job.options["precision"] == "fp32"


def test_the_fallbacks_goes_in_the_order_of_the_project_and_asks_before_it_changes_results() -> None:
    asked: dict[str, Any] = {
        "batch_size": 20,
        "compile": "default",
        "precision": "fp16",
        "temporal_frames": 5,
    }
    numeric = [
        "gradient_checkpointing off → on",
        *("microbatch 20 → 4", "microbatch 4 → 1", "compile default → off"),
    ]
    assert changed(job(**asked), T4) == numeric
    assert changed(job(allow=True, **asked), T4) == [
        *numeric,
        *("temporal_frames 5 → 4", "temporal_frames 4 → 3", "memory_optimized off → on"),
    ]
    assert changed(job(gradient_checkpointing=True, microbatch=1, precision="fp16"), T4) == []
    assert "memory_optimized off → on" not in changed(job(allow=True, memory_optimized=True))


def test_graphs_are_given_up_before_activations_are() -> None:
    lines = changed(job(compile="reduce-overhead", precision="fp16"), T4)
    assert lines[:2] == ["compile reduce-overhead → default", "gradient_checkpointing off → on"]


def test_after_the_last_fallback_only_what_is_left_is_advised() -> None:
    assert "smaller frames" in oom_advice(job())
    assert "embedding" not in oom_advice(job())


# ---- flights, seen from outside ----


def write_flight(path: Path, frames: int, size: tuple[int, int] = (12, 20), dtype: Any = np.uint8) -> None:
    np.savez(path, frames=np.zeros((frames, *size), dtype))


def test_flights_are_known_by_their_headers(tmp_path: Path) -> None:
    write_flight(tmp_path / "b.npz", 30)
    np.savez_compressed(tmp_path / "a.npz", frames=np.zeros((7, 12, 20), np.uint8))
    (tmp_path / "c").mkdir()
    np.save(tmp_path / "c" / "frames.npy", np.zeros((5, 12, 20), np.uint8))
    (tmp_path / "notes.txt").write_text("no flight")
    found = flights_in(tmp_path)
    assert not isinstance(found, str)
    assert (found.height, found.width, found.pixel) == (12, 20, 1)
    assert dict(found.frames) == {"a": 7, "b": 30, "c": 5}
    assert found.windows(6) == {"a": 2, "b": 25, "c": 0}


def test_pixels_that_are_not_bytes_take_four(tmp_path: Path) -> None:
    for dtype in (np.float32, np.float64, np.uint16):
        write_flight(tmp_path / "a.npz", 3, dtype=dtype)
        found = flights_in(tmp_path)
        assert not isinstance(found, str) and found.pixel == 4


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    assert "no flights" in str(flights_in(tmp_path))
    assert "No such file" in str(flights_in(tmp_path / "missing"))
    write_flight(tmp_path / "a.npz", 3)
    write_flight(tmp_path / "b.npz", 3, (16, 16))
    assert "several sizes" in str(flights_in(tmp_path))
    (tmp_path / "b.npz").write_bytes(b"no zip")
    assert "cannot be read" in str(flights_in(tmp_path))
    for array in (np.zeros((3, 4)), np.zeros((0, 4, 4))):
        np.savez(tmp_path / "b.npz", frames=array)
        assert "frames have the shape" in str(flights_in(tmp_path))
    np.savez(tmp_path / "b.npz", images=np.zeros((3, 4, 4)))
    assert "frames.npy" in str(flights_in(tmp_path))
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("frames.npy", b"\x93NUMPY\x01\x00\xff\xff{'shape':")
    assert "cannot be read" in str(flights_in(tmp_path))


def test_hdf5_files_are_asked_in_a_process_that_has_h5py(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["frames"] = np.zeros((9, 16, 24), np.uint8)
    found = flights_in(tmp_path)
    assert not isinstance(found, str)
    assert (found.height, found.width, dict(found.frames)) == (16, 24, {"a": 9})


def test_an_hdf5_file_that_nobody_can_read_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    assert "cannot be read" in str(flights_in(tmp_path))


def test_looking_at_flights_loads_no_numpy(tmp_path: Path) -> None:
    write_flight(tmp_path / "a.npz", 3)
    code = (
        "import sys; from pathlib import Path; from kgops.workloads.regress.sizes import flights_in\n"
        "assert not isinstance(flights_in(Path(sys.argv[1])), str)\n"
        "print([m for m in ('numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
