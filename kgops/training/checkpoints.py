"""Checkpoints: whole or absent on disk, checked before they are believed, loaded without running code.

A run's folder holds two series. `checkpoint_epoch_0000002.pt` are kept for TracIn: weights, learning
rate and loss. `resume_….pt` also hold optimizer, random states and position in the data; only the newest
two stay, so that one is left if the other turns out to be damaged.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, KgopsError, Unavailable
from kgops.jobs.files import sync_folder, write_durably
from kgops.jobs.manifest import digest_of
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.out_of_memory import is_out_of_memory
from kgops.training.torch_files import read_saved

__all__ = [
    "BadCheckpoint",
    "Checkpoint",
    "forget_resumable",
    "kept_checkpoints",
    "newest_resumable",
    "read_checkpoint",
    "rng_states",
    "set_rng_states",
    "sweep",
    "write_checkpoint",
    "write_kept",
    "write_resumable",
]

FORMAT = "kgops checkpoint"
VERSION = 1
_RESUME = re.compile(r"resume_(\d+)_(\d+)\.pt")
_KEPT = re.compile(r"checkpoint_epoch_(\d+)\.pt")


class BadCheckpoint(BadInput):
    """Truncated, changed, or not written by kgops."""


@dataclass(frozen=True)
class Checkpoint:
    """What TracIn and inference need; `training` has the rest, for resuming, and is empty elsewhere.

    `epoch` and `batch` say where training stands: `batch` batches into the epoch after `epoch`.
    """

    model: Mapping[str, torch.Tensor]
    config: Mapping[str, Any]
    epoch: int
    batch: int
    learning_rate: float
    loss: Mapping[str, Any]
    entities_digest: str
    relations_digest: str
    settings: Mapping[str, Any]
    training: Mapping[str, Any]

    def build_model(self) -> ConvE:
        """The model with these weights, in evaluation mode."""
        try:
            config = ConvEConfig(**self.config)
            with torch.device("meta"):  # sizes first: what only says that it is large must take no room
                wanted = {name: own.shape for name, own in ConvE(config).state_dict().items()}
            if wanted != {name: own.shape for name, own in self.model.items()}:
                raise ValueError("other names or shapes")
            if not self.model["entities"].is_floating_point():
                raise ValueError("weights that are no numbers")
            model = ConvE(config)
            model.to(self.model["entities"].dtype).load_state_dict(dict(self.model))
        except (KgopsError, RuntimeError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            if is_out_of_memory(error):
                raise
            raise BadCheckpoint(
                f"the checkpoint of epoch {self.epoch} has weights of another model than its configuration says.",
                hint="it was changed, or another kgops wrote it; use the checkpoint before it.",
            ) from error
        return model.eval()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> str:
    """Writes `path` and, beside it, `path.sha256`; returns the digest.

    Whoever looks at any moment, after a power cut too, finds the old file, the new one, or none.
    """
    body = {"format": FORMAT, "version": VERSION, **{k: _plain(v) for k, v in vars(checkpoint).items()}}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside = path.with_name(path.name + ".sha256")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save(body, file)
            file.flush()
            os.fsync(file.fileno())
        digest, _ = digest_of(temporary)
        # The old digest goes first and the new one comes last: a file may lack its digest for a
        # moment, but never stands beside another file's, for which it would be refused.
        beside.unlink(missing_ok=True)
        sync_folder(path.parent)
        temporary.replace(path)
        write_durably(beside, f"{digest}  {path.name}\n".encode())  # and with it the folder
    except OSError as error:
        if temporary.is_file():
            temporary.unlink()
        raise Unavailable(
            f"{path} cannot be written: {error.strerror}.",
            hint="free some space on that disk, then resume the run.",
        ) from error
    return digest


def read_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """The checkpoint at `path`, after its digest has been checked."""
    beside = path.with_name(path.name + ".sha256")
    try:
        if beside.exists() and beside.read_text("ascii", "replace").split(" ")[0] != digest_of(path)[0]:
            raise BadCheckpoint(
                f"{path} is not what was written: its SHA-256 differs from {beside.name}.",
                hint="it was cut short or changed; use the checkpoint before it.",
            )
        body = read_saved(path, device)
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror}.", hint="check the path.") from error
    except ValueError as error:
        raise BadCheckpoint(
            f"{path} is no checkpoint of kgops, or was cut short: {error}.",
            hint="use the checkpoint before it.",
        ) from error
    # A tensor is neither equal to a text nor unequal: it has to be asked what it is.
    if (
        not isinstance(body, dict)
        or not isinstance(format_name := body.get("format"), str)
        or format_name != FORMAT
    ):
        raise BadCheckpoint(f"{path} is no checkpoint of kgops.", hint="PyKEEN's load by --from-pykeen.")
    version = body.get("version")
    if not isinstance(version, int) or version != VERSION:
        raise BadCheckpoint(
            f"{path} has format version {version!r:.20}; this kgops reads version {VERSION}.",
            hint="use the kgops that wrote it.",
        )
    wrong = [name for name, fits in _FIELD_CHECKS.items() if not fits(body.get(name))]
    if wrong:
        raise BadCheckpoint(
            f"{path} is damaged: its {', '.join(wrong)} cannot be.", hint="use the checkpoint before it."
        )
    return Checkpoint(**{name: body[name] for name in Checkpoint.__dataclass_fields__})


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _is_metadata(value: Any) -> bool:
    """A table that is compared with what a person asks for."""
    return _is_table(value) and not any(isinstance(item, torch.Tensor) for item in value.values())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: (
        _is_table(value) and all(isinstance(weight, torch.Tensor) for weight in value.values())
    ),
    **dict.fromkeys(("config", "loss", "settings"), _is_metadata),
    "training": _is_table,
    **dict.fromkeys(("epoch", "batch"), _is_count),
    "learning_rate": lambda value: isinstance(value, int | float) and math.isfinite(value),
    **dict.fromkeys(("entities_digest", "relations_digest"), lambda value: isinstance(value, str)),
}


def write_kept(folder: Path, checkpoint: Checkpoint) -> Path:
    """Keeps this epoch for TracIn, without what only resuming needs."""
    path = folder / f"checkpoint_epoch_{checkpoint.epoch:07}.pt"
    write_checkpoint(path, Checkpoint(**{**vars(checkpoint), "training": {}}))
    return path


def kept_checkpoints(folder: Path) -> list[Path]:
    """By epoch, oldest first."""
    numbered = [(int(m[1]), p) for p in folder.glob("*.pt") if (m := _KEPT.fullmatch(p.name))]
    return [path for _, path in sorted(numbered)]


def write_resumable(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes the point to resume from and lets go of all but the newest two."""
    path = folder / f"resume_{checkpoint.epoch:07}_{checkpoint.batch:09}.pt"
    write_checkpoint(path, checkpoint)
    for old in _resumable(folder)[2:]:
        old.unlink(missing_ok=True)
        old.with_name(old.name + ".sha256").unlink(missing_ok=True)
    return path


def newest_resumable(
    folder: Path, device: torch.device | str = "cpu"
) -> tuple[Checkpoint | None, list[BadCheckpoint]]:
    """The newest point to resume from that can be believed, and what was refused on the way to it."""
    refused: list[BadCheckpoint] = []
    for path in _resumable(folder):
        try:
            return read_checkpoint(path, device), refused
        except BadCheckpoint as error:
            refused.append(error)
    return None, refused


def forget_resumable(folder: Path) -> int:
    """Removes the points of an earlier training, which a later resume would take for its own."""
    paths = _resumable(folder)
    for path in paths:
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".sha256").unlink(missing_ok=True)
    return len(paths)


def sweep(folder: Path) -> None:
    """Removes what a writer killed in the middle left behind; for the only writer of `folder` to call."""
    for leftover in folder.glob(".*.pt*.tmp"):
        leftover.unlink(missing_ok=True)


def rng_states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_rng_states(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    # States are bytes for the host to read, wherever the rest of a checkpoint was loaded to.
    torch.set_rng_state(states["cpu"].cpu())
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)


def _resumable(folder: Path) -> list[Path]:
    """Newest first."""
    numbered = [(int(m[1]), int(m[2]), p) for p in folder.glob("*.pt") if (m := _RESUME.fullmatch(p.name))]
    return [path for _, _, path in sorted(numbered, reverse=True)]


def _plain(value: Any) -> Any:
    """Mappings as dicts and paths as text: what `weights_only` reads back."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value
