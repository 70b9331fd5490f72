"""`kgops regress`, `kgops suggest regress` and `kgops data flights`, as a person calls them."""

import hashlib
import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from driving import Console

from kgops.cli import main
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.workloads import configurations

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL = ("--size", "16", "--frames", "40", "--flights", "3")


class Said(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_flights(folder, 3, Sky(frames=40, size=16))
    return folder


@pytest.fixture
def flights(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the folder where the person stands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights").symlink_to(made)
    return tmp_path / "flights"


@pytest.fixture
def kgops(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command, without a process of its own for each call."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def planned(kgops: Command, *args: str | Path) -> dict[str, Any]:
    """The job that a command would start."""
    said = kgops("run", "regress", *args, "--dry-run")
    assert said.code == 0, said.err
    return tomllib.loads(said.out)


# ---- flags ----


def test_their_flags_are_accepted_unchanged(kgops: Command, flights: Path) -> None:
    job = planned(
        kgops,
        *("--config", "colab_optimized_full", "--data_directory", flights, "--batch_size", "16"),
        *("--temporal_frames", "4", "--epochs", "7", "--learning_rate", "0.002", "--loss_type", "mse_mae"),
        *("--angles_mode", "saa_only", "--architecture_name", "gnn", "--no-augment", "--zscore_normalize"),
        *("--no-use_spatial_attention", "--use_temporal_attention", "--no-flat_field_correction", "--no-loo"),
        *("--save_name", "mine", "--no_pretrain", "--weight_decay", "0.1", "--early_stopping_patience", "3"),
    )
    settings, options = job["regress"], job["options"]
    expected = {
        "epochs": 7,
        "learning_rate": 0.002,
        "loss_type": "mse_mae",
        "angles_mode": "saa_only",
        "architecture": "gnn",
        "augment": False,
        "use_spatial_attention": False,
        "flat_field_correction": False,
        "pretrain": False,
        "final": True,
        "save_name": "mine",
        "weight_decay": 0.1,
        "early_stopping_patience": 3,
        "warmup_steps": 2000,  # of the configuration, since no flag says otherwise
        "data_directory": str(flights),
    }
    assert {name: settings[name] for name in expected} == expected
    assert (options["batch_size"], options["temporal_frames"]) == (16, 4)
    assert job["label"] == "mine"


def test_a_file_of_theirs_is_read_from_where_the_person_stands(
    kgops: Command, flights: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("data_directory: flights\noutput_directory: out\nhpc_mode: true\n")
    settings = planned(kgops, "--config", "mine.yaml")["regress"]
    assert settings["data_directory"] == str(flights)
    assert settings["output_directory"] == str(tmp_path / "out")
    assert settings["left_out"] == [f"hpc_mode: {configurations.LEFT_OUT['hpc_mode']}"]


def test_flags_of_theirs_that_mean_nothing_here_are_accepted_and_told(kgops: Command, flights: Path) -> None:
    given = "--hpc_mode --filter_type basic --cbh_min 0.1 --clahe_clip_limit 0.02 --no_plots"
    told = planned(kgops, "--data_directory", flights, *given.split())["regress"]["left_out"]
    assert [line.partition(":")[0] for line in sorted(told)] == [
        *("cbh_min", "clahe_clip_limit", "filter_type", "hpc_mode", "no_plots")
    ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "--data-directory is missing"),
        (("--config", "colab_optimised"), "did you mean 'colab_optimized'?"),
        (("--config", "theirs.yaml"), "batchsize: no such key; did you mean 'batch_size'?"),
        (("--data_directory", "nowhere"), "there is no folder"),
        (("--data_directory", ".", "--architecture", "rnn"), "must be one of transformer, gnn, ssm, cnn"),
        (("--data_directory", ".", "--batch_size", "0"), "must be a whole number from 1 on"),
        (("--data_directory", ".", "--no-pretrain", "--no-final"), "no training is left"),
    ],
)
def test_a_mistake_is_named_and_starts_nothing(
    kgops: Command, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    (tmp_path / "theirs.yaml").write_text("batchsize: 3\ndata_directory: .\n")
    said = kgops("run", "regress", *args)
    assert said.code == 2
    assert says in said.err
    assert kgops("runs", "--json").json() == []


# ---- plans ----


def test_a_plan_without_data_shows_memory_by_part_and_the_largest_batch(kgops: Command) -> None:
    said = kgops("suggest", "regress", "--gpu", "t4", "--details")
    assert said.code == 0, said.err
    suggested, head = said.out.splitlines()[:2]
    assert suggested.startswith("Suggested for Tesla T4: fp16 on · cleanup on · checkpointing ")
    assert head.startswith("regress 224x224 transformer on Tesla T4 (14,909 MiB): fits an empty Tesla T4, ")
    for part in ("weights", "gradients", "optimizer", "activations", "allocator", "context", "total"):
        assert f"\n{part} " in said.out
    assert "would fit" in next(line for line in said.out.splitlines() if line.startswith("batch_size"))
    assert said.out.rstrip().splitlines()[-1] == "kgops regress --data-directory DIR --profile t4"


def test_the_command_of_a_plan_starts_the_job_that_was_planned(kgops: Command, flights: Path) -> None:
    config = ("--config", "colab_full_stable", "--data_directory", flights)
    asked = (*config, "--loss_type", "mae", "--no-augment")
    (found,) = kgops("suggest", "regress", *asked, "--gpu", "t4", "--json").json()
    again = found["command"][2:]
    own = planned(kgops, *asked, "--profile", "t4")
    assert planned(kgops, *again) == own, shlex.join(again)


def test_what_does_not_fit_in_any_exact_way_names_the_nearest_that_does(kgops: Command) -> None:
    said = kgops("suggest", "regress", "--image_size", "2000x2000", "--batch_size", "64", "--gpu", "t4")
    assert said.code == 3
    assert "does not fit: needs" in said.out
    assert "nearest change that fits: gradient_checkpointing on, microbatch" in said.out


# ---- flights ----


def test_made_flights_are_the_same_for_the_same_seed_and_never_mixed_with_others(run_cli: Console) -> None:
    def digests(name: str, *more: str) -> list[str]:
        made = run_cli.must("data", "flights", "--make", name, *SMALL, *more)
        return [hashlib.sha256(Path(line).read_bytes()).hexdigest() for line in made.out.split()]

    first = digests("a")
    assert len(first) == 3
    assert digests("b") == first
    assert set(digests("c", "--seed", "1")).isdisjoint(first)
    again = run_cli("data", "flights", "--make", "a")
    assert again.code == 2
    assert "not empty" in again.err


# ---- a run ----


def test_a_run_learns_says_what_it_left_out_and_is_recorded_with_its_forecast(
    run_cli: Console, flights: Path
) -> None:
    (run_cli.cwd / "mine.yaml").write_text(
        "data_directory: flights\nmemory_optimized: true\nbatch_size: 8\ntemporal_frames: 3\nepochs: 1\n"
        "architecture: {name: cnn}\nno_pretrain: true\nswath_slice: [1, 9]\noutput_directory: out\n"
    )
    done = run_cli.must("run", "regress", "--config", "mine.yaml", "--json", env=ONE_THREAD)
    run = done.json()
    assert run["state"] == "succeeded"
    assert run["metric"]["test_mae"] > 0
    assert run["predicted_mib"] > 0
    assert {option["name"]: option["applied"] for option in run["option"]}["batch_size"] == "8"
    assert "left out of the configuration: swath_slice" in str(run["event"])
    assert (run_cli.cwd / "out" / "best_model.pt").exists()
    assert run_cli("report", "1").code == 0
    page = next(run_cli.cwd.glob("*.html")).read_text()
    leading = page[: page.index("peak host memory")]
    assert all(f"test {name}" in leading for name in ("R2", "RMSE", "MAE"))
