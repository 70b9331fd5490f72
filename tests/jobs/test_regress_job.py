"""The job of a regression: configurations as their project writes them, options and their rules, sizes of flights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgops.errors import BadJob, Usage
from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.planning.oom_fallbacks import oom_fallbacks
from kgops.workloads import configurations
from kgops.workloads.configurations import job_table, read
from kgops.workloads.job_files import read_job
from kgops.workloads.regress.sizes import flights_in

T4 = GpuFacts("Tesla T4", (7, 5))
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


# ---- options ----


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


# ---- flights, seen from outside ----


def test_flights_are_known_by_their_headers(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", frames=np.zeros((30, 12, 20), np.uint8))
    np.savez_compressed(tmp_path / "a.npz", frames=np.zeros((7, 12, 20), np.uint8))
    (tmp_path / "c").mkdir()
    np.save(tmp_path / "c" / "frames.npy", np.zeros((5, 12, 20), np.uint8))
    (tmp_path / "notes.txt").write_text("no flight")
    found = flights_in(tmp_path)
    assert not isinstance(found, str)
    assert (found.height, found.width, found.pixel) == (12, 20, 1)
    assert dict(found.frames) == {"a": 7, "b": 30, "c": 5}
    assert found.windows(6) == {"a": 2, "b": 25, "c": 0}


def test_hdf5_files_are_asked_in_a_process_that_has_h5py(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["frames"] = np.zeros((9, 16, 24), np.uint8)
    found = flights_in(tmp_path)
    assert not isinstance(found, str)
    assert (found.height, found.width, dict(found.frames)) == (16, 24, {"a": 9})
