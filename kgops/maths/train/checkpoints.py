"""Checkpoints: written atomically, verified by SHA-256, loaded without running code."""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, KgopsError, Unavailable
from kgops.jobs.files import sync, write_durably
from kgops.jobs.manifest import digest_of
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.build import build_model
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.worker.entry import is_forced
from kgops.maths.worker.out_of_memory import is_out_of_memory
from kgops.workloads.train.models import model_of_sizes


def forced_difference(graph: Graph, trained: Mapping[str, str]) -> str | None:
    """A note if the graph has other training triples than a training with these digests. Raises BadInput unless the
    run was started with --force."""
    difference = graph.difference("train", trained)
    if difference is None:
        return None
    if not is_forced():
        raise BadInput(
            difference,
            hint="give the triples that the model was trained on; --force takes these, and the record says so.",
        )
    return f"{difference.removesuffix('.')}; --force takes them."


def read_saved(path: Path, device: torch.device | str = "cpu", *, mmap: bool = False) -> Any:
    """The value in `path`; ValueError unless it is a complete file of `torch.save`.

    OSError and out of memory pass through, since the file may be valid.
    """
    with path.open("rb") as file:
        _must_be_stored(file)
    try:
        value = torch.load(path, map_location=device, weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # the unpickler may raise any exception on invalid bytes
        if is_out_of_memory(error):
            raise
        raise ValueError(f"torch cannot read it: {type(error).__name__}") from error
    _must_hold_its_tensors(value)
    return value


def _must_be_stored(file: Any) -> None:
    """Refuses compressed files, which torch never writes: they may expand a thousandfold."""
    size = file.seek(0, 2)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except Exception as error:  # zipfile raises this too
        raise ValueError("it is not a complete torch file") from error
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, which torch never does")
    if sum(member.file_size for member in members) > size:
        raise ValueError("its stated size is larger than the file")


def _must_hold_its_tensors(value: Any) -> None:
    """Refuses views larger than their storage, which would expand when copied."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            if one.layout != torch.strided or one.is_quantized:
                raise ValueError("a tensor in it has an unsupported layout or type")
            if one.nbytes > one.untyped_storage().nbytes():
                raise ValueError("a tensor in it is larger than its data in the file")
        elif isinstance(one, Mapping | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.keys(), *one.values()] if isinstance(one, Mapping) else one


FORMAT = "kgops checkpoint"
VERSION = 1
_RESUME = re.compile(r"resume_(\d+)_(\d+)\.pt")
_KEPT = re.compile(r"checkpoint_epoch_(\d+)\.pt")


class BadCheckpoint(BadInput):
    """The checkpoint is truncated, changed, or not from kgops."""


@dataclass(frozen=True)
class Checkpoint:
    """Data for TracIn and inference; `training` has the rest for resuming and is empty in other checkpoints.

    `epoch` and `batch` are the position: `batch` batches into the epoch after `epoch`. `data` are the digests of the
    graph, and empty in old checkpoints.
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
    data: Mapping[str, str] = field(default_factory=dict)

    def build_model(self) -> EntityModel:
        """The model with these weights, on their device, in evaluation mode."""
        try:
            config = model_of_sizes(self.config)
            with torch.device(
                "meta"
            ):  # compare sizes first: a file that only claims large sizes must allocate nothing
                wanted = {name: own.shape for name, own in build_model(config).state_dict().items()}
            if wanted != {name: own.shape for name, own in self.model.items()}:
                raise ValueError("other names or shapes")
            entities = self.model["entities"]
            if not entities.is_floating_point():
                raise ValueError("weights that are not floating point")
            model = build_model(config).to(entities.device, entities.dtype)
            model.load_state_dict(dict(self.model))
        except (KgopsError, RuntimeError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            if is_out_of_memory(error):
                raise
            raise BadCheckpoint(
                f"the checkpoint of epoch {self.epoch} has weights that do not fit its configuration.",
                hint="it was changed, or another version of kgops wrote it; use the previous checkpoint.",
            ) from error
        return model.eval()

    def batches_done(self, batch_size: int, batches: int) -> int:
        """Batches of this size that are done of the next epoch, which has so many: the same examples, in the same
        order. A partial batch is repeated."""
        before = int(self.settings["batch_size"])
        return self.batch if before == batch_size else min(self.batch * before // batch_size, batches - 1)


def refuse_unless_same(checkpoint: Checkpoint, same: Mapping[str, bool]) -> None:
    """Raises BadInput with what differs from the training that is to go on from the checkpoint."""
    differs = [name for name, agrees in same.items() if not agrees]
    if differs:
        raise BadInput(
            f"the checkpoint of epoch {checkpoint.epoch} belongs to another training: "
            f"its {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}.",
            hint="resume with the original settings and files, or start a new run.",
        )


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> str:
    """Writes `path` and its digest file `path.sha256`; returns the digest.

    Readers find the old file, the new one, or none at any time, also after a power cut.
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
        # Removes the old digest first and writes the new one last. A file may briefly lack its digest, but never
        # has another file's digest, for which it would be refused.
        beside.unlink(missing_ok=True)
        sync(path.parent)
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
    """Reads the checkpoint at `path` after verifying its digest."""
    beside = path.with_name(path.name + ".sha256")
    try:
        if beside.exists() and beside.read_text("ascii", "replace").split(" ")[0] != digest_of(path)[0]:
            raise BadCheckpoint(
                f"{path} is damaged: its SHA-256 differs from {beside.name}.",
                hint="it was truncated or changed; use the previous checkpoint.",
            )
        body = read_saved(path, device)
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror}.", hint="check the path.") from error
    except ValueError as error:
        raise BadCheckpoint(
            f"{path} is not a kgops checkpoint, or is truncated: {error}.",
            hint="use the previous checkpoint.",
        ) from error
    # Comparing a tensor with a string gives no bool, so check the type first.
    if (
        not isinstance(body, dict)
        or not isinstance(format_name := body.get("format"), str)
        or format_name != FORMAT
    ):
        raise BadCheckpoint(f"{path} is not a kgops checkpoint.", hint="load PyKEEN's with --from-pykeen.")
    version = body.get("version")
    if not isinstance(version, int) or version != VERSION:
        raise BadCheckpoint(
            f"{path} has format version {version!r:.20}; this version of kgops reads {VERSION}.",
            hint="use the version of kgops that wrote it.",
        )
    wrong = [name for name, fits in _FIELD_CHECKS.items() if not fits(body.get(name))]
    if wrong:
        raise BadCheckpoint(
            f"{path} is damaged: its {', '.join(wrong)} is invalid.", hint="use the previous checkpoint."
        )
    return Checkpoint(**{name: body[name] for name in Checkpoint.__dataclass_fields__})


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _is_metadata(value: Any) -> bool:
    """Whether the value is a table without tensors, which can be compared with a job's settings."""
    return _is_table(value) and not any(isinstance(item, torch.Tensor) for item in value.values())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: (
        _is_table(value) and all(isinstance(weight, torch.Tensor) for weight in value.values())
    ),
    **dict.fromkeys(("config", "loss", "settings"), _is_metadata),
    "training": _is_table,
    "data": lambda value: _is_table(value) and all(isinstance(one, str) for one in value.values()),
    **dict.fromkeys(("epoch", "batch"), _is_count),
    "learning_rate": lambda value: isinstance(value, int | float) and math.isfinite(value),
    **dict.fromkeys(("entities_digest", "relations_digest"), lambda value: isinstance(value, str)),
}


def write_kept(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes this epoch's checkpoint for TracIn, without the data that only resuming needs."""
    path = folder / f"checkpoint_epoch_{checkpoint.epoch:07}.pt"
    write_checkpoint(path, Checkpoint(**{**vars(checkpoint), "training": {}}))
    return path


def kept_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints kept for TracIn, oldest first."""
    numbered = [(int(m[1]), p) for p in folder.glob("*.pt") if (m := _KEPT.fullmatch(p.name))]
    return [path for _, path in sorted(numbered)]


def write_resumable(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes a resume checkpoint and removes all but the newest two."""
    path = folder / f"resume_{checkpoint.epoch:07}_{checkpoint.batch:09}.pt"
    write_checkpoint(path, checkpoint)
    _remove(_resumable(folder)[2:])
    return path


def newest_resumable(folder: Path, device: torch.device, note: Callable[[str], None]) -> Checkpoint | None:
    """The newest valid resume checkpoint; `note` hears of newer ones that are invalid, and that there is none."""
    for path in _resumable(folder):
        try:
            return read_checkpoint(path, device)
        except BadCheckpoint as error:
            note(f"{error.message} {error.hint or ''}".strip())
    note("no checkpoint to resume from: training starts at epoch 1.")
    return None


def forget_resumable(folder: Path) -> int:
    """Removes resume checkpoints of an earlier training, which a later resume would load."""
    paths = _resumable(folder)
    _remove(paths)
    return len(paths)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".sha256").unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Removes temporary files of a killed writer; only the one writer of `folder` may call it."""
    for leftover in folder.glob(".*.pt*.tmp"):
        leftover.unlink(missing_ok=True)


def rng_states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_rng_states(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    # Random states must be on the host, whatever device the checkpoint was loaded to.
    torch.set_rng_state(states["cpu"].cpu())
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)


def _resumable(folder: Path) -> list[Path]:
    """Resume checkpoints, newest first."""
    numbered = [(int(m[1]), int(m[2]), p) for p in folder.glob("*.pt") if (m := _RESUME.fullmatch(p.name))]
    return [path for _, _, path in sorted(numbered, reverse=True)]


def _plain(value: Any) -> Any:
    """Converts mappings to dicts and paths to strings, which `weights_only` can read."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value
