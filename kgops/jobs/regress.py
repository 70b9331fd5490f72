"""The workload `regress`: a height for each short window of frames and the sun's angles, learned from flights."""

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

# What of `kgops.jobs.options` this workload pulls; its worker says of any other that it has none such.
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
    Key("output_directory", "str", help="Folder that gets a copy of the results when the run has succeeded."),
    Key("save_name", "str", help="What the run's results are called there."),
    Key("image_size", "str", check=_size, help="Height x width of frames, to plan before there are data."),
    Key("architecture", "str", "transformer", check=one_of(*ARCHITECTURES), help="What mixes frames."),
    Key("angles_mode", "str", "both", check=one_of(*ANGLES_MODES), help="Which of the sun's angles count."),
    Key("use_spatial_attention", "bool", True, help="Weigh the pixels of a frame."),
    Key("use_temporal_attention", "bool", True, help="Weigh the frames of a window; transformer only."),
    Key("dropout", "float", 0.0, check=_below_1, help="Dropout in the head."),
    Key("epochs", "int", 50, check=at_least(1), help="Passes over the training windows, at most."),
    Key("pretrain", "bool", True, help="First train on one flight alone."),
    Key("pretrain_flight", "str", help="Which; default: the one with most frames."),
    Key("final", "bool", True, help="Train on all flights but the one held out, and evaluate."),
    Key("validation_flight", "str", help="The flight held out; default: the last by name."),
    Key("overweight_flight", "str", help="The flight that counts more; default: the one of pretraining."),
    Key("overweight_factor", "float", 1.0, check=above(0), help="By how much it counts more."),
    Key("loo", "bool", False, help="Hold out each flight in turn."),
    Key("loo_epochs", "int", 30, check=at_least(1), help="Passes for each of them."),
    Key("loss_type", "str", "huber", check=one_of(*LOSSES), help="What is minimised."),
    Key("loss_alpha", "float", 0.5, check=_share, help="Share of the first part of a mixed loss."),
    Key("huber_delta", "float", 1.0, check=above(0), help="From where on a Huber loss is linear."),
    Key("gamma", "float", 1.5, check=above(0), help="Power of the error in a mixed Huber loss."),
    Key("under_weight", "float", 1.0, check=above(0), help="Weight of heights predicted too low."),
    Key("optimizer", "str", "adamw", check=one_of(*OPTIMIZERS), help="How weights follow gradients."),
    Key("scheduler", "str", "plateau", check=one_of(*SCHEDULES), help="How the learning rate changes."),
    Key("learning_rate", "float", 1e-3, check=above(0), help="Size of a step."),
    Key("weight_decay", "float", 0.04, check=at_least(0), help="Pull of weights towards zero."),
    Key("warmup_steps", "int", 0, check=at_least(0), help="Steps over which the learning rate rises."),
    Key("early_stopping_patience", "int", 15, check=at_least(0), help="Epochs without a gain; 0: never."),
    Key("early_stopping_min_delta", "float", 0.0, check=at_least(0), help="What counts as a gain."),
    Key("augment", "bool", False, help="Mirror and shift the brightness of training frames."),
    Key("flat_field_correction", "bool", False, help="Subtract the mean frame of the training flights."),
    Key("zscore_normalize", "bool", True, help="Mean 0 and deviation 1 over the training flights."),
    Key("seed", "int", 0, check=at_least(0), help="Same command, same seed, same numbers."),
    Key("resume_every", "float", 60.0, check=at_least(0), help="Seconds that a lost worker may cost."),
    Key(
        "device", "str", "auto", check=device_name, help="auto, cpu, cuda, or cuda:N; cuda insists on a GPU."
    ),
    Key("left_out", "strings", [], help="What of a configuration kgops does not do; the run says so."),
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
    """The network of a job on frames of this height and width."""
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
        problems.append("regress.final: off, and so are pretrain and loo: nothing is left to do")
    return problems


def _label(settings: dict[str, Any]) -> str:
    data = PurePath(settings["data_directory"] or "").name or settings["image_size"]
    return settings["save_name"] or f"{data} {settings['architecture']}"


REGRESS = Workload(
    name="regress",
    summary="heights from short windows of frames and the sun's angles",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.workers.regress",
    folders=("data_directory",),
)
