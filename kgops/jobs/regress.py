"""The workload `regress`: its job keys, their checks and help. It learns heights from windows of camera frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.chunk_sizes import REGRESS_FRAMES
from kgops.jobs.keys import Key, above, at_least, device_name, one_of
from kgops.jobs.regression_config import (
    ANGLES_MODES,
    ARCHITECTURES,
    CHANNELS,
    SMALL_CHANNELS,
    RegressionConfig,
)
from kgops.jobs.workload import Workload

__all__ = [
    "KEYS",
    "LOSSES",
    "OPTIMIZERS",
    "OPTIONS_OF_REGRESS",
    "REGRESS",
    "SCHEDULES",
    "config_of",
    "image_size",
]

# mse and mae are plain; huber has `huber_delta`; `weighted_` weighs heights predicted too low by `under_weight`;
# mse_mae mixes by `loss_alpha`; huber_mae and weighted_huber_mae mix with |error|^gamma by `loss_alpha`.
LOSSES = ("huber", "mse", "mae", "mse_mae", "huber_mae", "weighted_huber", "weighted_huber_mae")
OPTIMIZERS = ("adamw", "adam", "sgd")
SCHEDULES = ("plateau", "cosine", "constant")

# The options of `kgops.jobs.options` that this workload has; its worker reports any other as off.
OPTIONS_OF_REGRESS = frozenset(
    {
        *("precision", "batch_size", "microbatch", "temporal_frames", "memory_optimized"),
        *("gradient_checkpointing", "compile", "num_workers", "memory_cleanup", "scale_gradients"),
    }
)


def _share(value: float) -> str | None:
    return None if 0 <= value <= 1 else f"must be from 0 to 1, found {value}"


def _below_1(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and below 1, found {value}"


def _size(value: str) -> str | None:
    parts = value.split("x")
    good = 1 <= len(parts) <= 2 and all(part.isdecimal() and len(part) < 6 for part in parts)
    return None if good else f"must be a size like 224 or 440x640, found {value!r:.60}"


KEYS = (
    Key("data_directory", "str", help="Folder of flights, one HDF5 or npz file each."),
    Key("output_directory", "str", help="Folder for a copy of the results once the run has succeeded."),
    Key("save_name", "str", help="Name of the results in that folder."),
    Key("image_size", "str", check=_size, help="Height x width of frames, to plan without data."),
    Key(
        "architecture",
        "str",
        "transformer",
        check=one_of(*ARCHITECTURES),
        help="Network that combines the frames of a window.",
    ),
    Key("angles_mode", "str", "both", check=one_of(*ANGLES_MODES), help="Sun angles given to the network."),
    Key("use_spatial_attention", "bool", True, help="Attention over the pixels of a frame."),
    Key(
        "use_temporal_attention",
        "bool",
        True,
        help="Attention over the frames of a window; transformer only.",
    ),
    Key("dropout", "float", 0.0, check=_below_1, help="Dropout in the output head."),
    Key("epochs", "int", 50, check=at_least(1), help="Most epochs over the training windows."),
    Key("pretrain", "bool", True, help="Pretrain on one flight."),
    Key("pretrain_flight", "str", help="Flight to pretrain on; default: the one with most frames."),
    Key("final", "bool", True, help="Train on all flights but the validation flight, then evaluate."),
    Key("validation_flight", "str", help="Validation flight; default: the last by name."),
    Key("overweight_flight", "str", help="Flight with a larger weight; default: the pretraining flight."),
    Key("overweight_factor", "float", 1.0, check=above(0), help="Weight of that flight."),
    Key("loo", "bool", False, help="Leave-one-out: hold out each flight in turn."),
    Key("loo_epochs", "int", 30, check=at_least(1), help="Most epochs for each held-out flight."),
    Key("loss_type", "str", "huber", check=one_of(*LOSSES), help="Training loss."),
    Key("loss_alpha", "float", 0.5, check=_share, help="Share of the first term of a mixed loss."),
    Key("huber_delta", "float", 1.0, check=above(0), help="Error above which the Huber loss is linear."),
    Key("gamma", "float", 1.5, check=above(0), help="Exponent of the error in a mixed Huber loss."),
    Key("under_weight", "float", 1.0, check=above(0), help="Weight of heights predicted too low."),
    Key("optimizer", "str", "adamw", check=one_of(*OPTIMIZERS), help="Optimizer."),
    Key("scheduler", "str", "plateau", check=one_of(*SCHEDULES), help="Learning rate schedule."),
    Key("learning_rate", "float", 1e-3, check=above(0), help="Learning rate of the optimizer."),
    Key("weight_decay", "float", 0.04, check=at_least(0), help="Weight decay of the optimizer."),
    Key("warmup_steps", "int", 0, check=at_least(0), help="Steps of linear learning rate warmup."),
    Key(
        "early_stopping_patience",
        "int",
        15,
        check=at_least(0),
        help="Epochs without an improvement before stopping; 0: never.",
    ),
    Key(
        "early_stopping_min_delta",
        "float",
        0.0,
        check=at_least(0),
        help="Least decrease of the loss that counts as an improvement.",
    ),
    Key("augment", "bool", False, help="Mirror training frames and shift their brightness."),
    Key("flat_field_correction", "bool", False, help="Subtract the mean frame of the training flights."),
    Key(
        "zscore_normalize",
        "bool",
        True,
        help="Normalize to mean 0 and standard deviation 1 over the training flights.",
    ),
    Key("seed", "int", 0, check=at_least(0), help="Random seed."),
    Key(
        "resume_every",
        "float",
        60.0,
        check=at_least(0),
        help="Seconds between checkpoints to resume from after a lost worker.",
    ),
    Key(
        "device",
        "str",
        "auto",
        check=device_name,
        help="Device: auto, cpu, cuda or cuda:N; cuda fails without a GPU.",
    ),
    Key(
        "left_out",
        "strings",
        [],
        help="Configuration keys that kgops does not support; the run reports them.",
    ),
)


def image_size(settings: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width that the job names."""
    if settings["image_size"] is None:
        return None
    parts = [int(part) for part in settings["image_size"].split("x")]
    return parts[0], parts[-1]


def config_of(
    settings: Mapping[str, Any], options: Mapping[str, Any], size: tuple[int, int]
) -> RegressionConfig:
    """The network of a job for frames of this height and width."""
    same = ("architecture", "angles_mode", "use_spatial_attention", "use_temporal_attention", "dropout")
    return RegressionConfig(
        *size,
        temporal_frames=options.get("temporal_frames", REGRESS_FRAMES),
        channels=SMALL_CHANNELS if options.get("memory_optimized", False) else CHANNELS,
        **{name: settings[name] for name in same},
    )


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    if not settings["data_directory"] and not settings["image_size"]:
        problems.append(
            "regress.data_directory: missing; name a folder of flights (image_size alone is enough to plan)"
        )
    if not settings["final"] and not settings["pretrain"] and not settings["loo"]:
        problems.append("regress.final: off, and so are pretrain and loo: no training is left")
    return problems


def _label(settings: dict[str, Any]) -> str:
    data = PurePath(settings["data_directory"] or "").name or settings["image_size"]
    return settings["save_name"] or f"{data} {settings['architecture']}"


REGRESS = Workload(
    name="regress",
    summary="heights from windows of camera frames and sun angles",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.workers.regress",
    folders=("data_directory",),
)
