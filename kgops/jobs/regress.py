"""The workload `regress`: it learns heights from windows of camera frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.regression_config import CHANNELS, SMALL_CHANNELS, RegressionConfig
from kgops.jobs.workload import Workload
from kgops.options.regress import REGRESS_OPTIONS

__all__ = ["REGRESS", "config_of", "image_size"]


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
        temporal_frames=options.get("temporal_frames", REGRESS.default("temporal_frames")),
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
    options=REGRESS_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.workers.regress",
    folders=("data_directory",),
)
