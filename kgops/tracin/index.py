"""TracIn index: the training triples' factors on disk, built once, queried without a model pass over them.

A folder with one file for each block and checkpoint, memory-mapped by queries, and `index.json`, written last: a
folder without it is unfinished, and building resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from kgops.errors import BadInput, Interrupted, Unavailable
from kgops.jobs.files import read_json, write_json
from kgops.tracin.blocks import Engine, Settings, TestFactors, TracinCheckpoint
from kgops.tracin.encoder import Encoded
from kgops.tracin.engines import engines_for
from kgops.tracin.entity_pass import OutputPass, Places, Positives, gradient_at
from kgops.tracin.factors import Factors, OtherSide
from kgops.tracin.loss import TracinLoss
from kgops.tracin.models import facts_of
from kgops.tracin.scan import Sink, check_ids, ordered_blocks, tests_that_fit
from kgops.training.checkpoints import read_saved
from kgops.training.memory_cleanup import OFF, MemoryCleanup
from kgops.training.reporter import Progress, Report

__all__ = ["Index", "build_index", "open_index"]

FORMAT = 1
HEADER, UNFINISHED = "index.json", "unfinished.json"
BLOCK = 2048  # training triples in a file
SPARE_BYTES = 1 << 30  # left free on the disk


def describe(
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    train: torch.Tensor,
    settings: Settings,
    names: Collection[str] | None,
) -> dict[str, Any]:
    """Everything that the index's content depends on."""
    known = None if loss.known is None else _digest(*loss.known.digestible)
    return {
        "format": FORMAT,
        "models": [_digest(*checkpoint.model.state_dict().values()) for checkpoint in checkpoints],
        "learning rates": [checkpoint.learning_rate for checkpoint in checkpoints],
        "training triples": _digest(train),
        "loss": {"kind": loss.kind, "smoothing": loss.smoothing, "known": known},
        "layers": None if names is None else sorted(names),
        "both directions": settings.both_directions,
        "precision": None if settings.precision is None else str(settings.precision),
        "projection": settings.projection_dim,
        "seed": settings.seed if settings.projection_dim else None,
        "block": BLOCK,
    }


def build_index(
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    train: torch.Tensor,
    folder: Path,
    *,
    settings: Settings,
    names: Collection[str] | None = None,
    report: Report | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    cleanup: MemoryCleanup = OFF,
) -> int:
    """Writes the missing files; returns the index's size in bytes."""
    header = describe(checkpoints, loss, train, settings, names)
    folder.mkdir(parents=True, exist_ok=True)
    existing = read_json(folder / HEADER) or read_json(folder / UNFINISHED)
    if existing is not None and existing != header:
        raise BadInput(
            f"{folder} holds another index: {_difference(existing, header)}.", hint="choose another folder."
        )
    write_json(folder / UNFINISHED, header)
    engines = _engines(checkpoints, loss, settings, names)
    blocks = list(ordered_blocks(train.to(engines[0].encoder.entities.device), BLOCK))
    progress = None if report is None else Progress(report, "index", "blocks")
    todo = [
        (p, b) for p in range(len(engines)) for b in range(len(blocks)) if not _file(folder, p, b).exists()
    ]
    for done, (p, b) in enumerate(todo):
        if stop_requested():
            raise Interrupted(
                f"stopped after {done:,} of {len(todo):,} blocks.", hint="resume the run to go on."
            )
        body = _to_file(engines[p], blocks[b].triples) | {"ids": blocks[b].ids.cpu()}
        if done == 0:
            _check_disk(folder, _bytes(body) * len(todo))
        _write(_file(folder, p, b), body)
        cleanup.after_step()
        if progress is not None:
            progress(done + 1, len(todo))
    write_json(folder / HEADER, header)
    (folder / UNFINISHED).unlink(missing_ok=True)
    return sum(path.stat().st_size for path in folder.glob("*.pt"))


@dataclass(frozen=True)
class Index:
    """Scores test triples with the indexed training triples; only the test triples pass through the models."""

    folder: Path
    engines: Sequence[Engine]
    settings: Settings
    cleanup: MemoryCleanup = OFF
    _checked: set[Path] = field(default_factory=set, init=False, repr=False)

    def scan(
        self,
        tests: torch.Tensor,
        sink: Sink,
        *,
        report: Report | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        """As `scan.scan`; the sink's `ids` are rows of the training triples that the index was built from."""
        check_ids(facts_of(self.engines[0].checkpoint.model), tests, "test")
        device = self.engines[0].encoder.entities.device
        files = sorted(self.folder.glob("000-*.pt"))
        tests = tests.to(device)
        step = tests_that_fit(self.engines, self.settings, self.engines[0].encoder.entities.element_size())
        progress = None if report is None else Progress(report, "tracin", "blocks")
        tiles = math.ceil(len(tests) / step)
        for number, first in enumerate(range(0, len(tests), step)):
            kept = [engine.keep(tests[first : first + step]) for engine in self.engines]
            for b in range(len(files)):
                if stop_requested():
                    raise Interrupted("stopped among the blocks of the index.", hint="resume to go on.")
                ids, scores = self._block(b, kept, device)
                sink.add(first, ids, scores)
                self.cleanup.after_step()
                if progress is not None:
                    progress(number * len(files) + b + 1, tiles * len(files))
            del kept
            self.cleanup.between_phases()
        sink.finish()

    def _block(
        self, b: int, kept: Sequence[TestFactors], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total: torch.Tensor | None = None
        for p, tests in enumerate(kept):
            ids, scores = self._at_checkpoint(p, b, tests, device)
            total = scores if total is None else total.add_(scores)
        assert total is not None
        return ids, total

    def _at_checkpoint(
        self, p: int, b: int, tests: TestFactors, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """In a function of its own: nothing of one checkpoint is left when the next is read, and no part of its file,
        which stays mapped as a whole.
        """
        file = _file(self.folder, p, b)
        stored = _read(file, device, is_checked=file in self._checked)
        self._checked.add(file)
        factors = _from_file(self.engines[p], stored, tests)
        return stored["ids"].clone(), self.engines[p].pair(factors, tests, len(stored["ids"]))


def open_index(
    folder: Path,
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    train: torch.Tensor,
    *,
    settings: Settings,
    names: Collection[str] | None = None,
    cleanup: MemoryCleanup = OFF,
) -> Index:
    """The index in `folder`; refused if its models, loss or triples differ."""
    header = read_json(folder / HEADER)
    if header is None:
        unfinished = (folder / UNFINISHED).exists()
        raise BadInput(
            f"{folder} holds {'an unfinished' if unfinished else 'no'} index.",
            hint="build it with --build-index" + (", which resumes where it stopped." if unfinished else "."),
        )
    expected = describe(checkpoints, loss, train, settings, names)
    if header != expected:
        raise BadInput(
            f"the index in {folder} does not match this job: {_difference(header, expected)}.",
            hint="use the settings it was built with, or build another.",
        )
    return Index(folder, _engines(checkpoints, loss, settings, names), settings, cleanup)


def _engines(
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    settings: Settings,
    names: Collection[str] | None,
) -> list[Engine]:
    all_engines = engines_for(checkpoints, loss, settings, names)
    engines = [engine for engine in all_engines if isinstance(engine, Engine)]
    if len(engines) < len(all_engines):
        raise BadInput(
            f"an index cannot be built of {type(checkpoints[0].model).__name__} under this loss: its gradients do "
            "not split into factors.",
            hint="score directly, without an index.",
        )
    return engines


def _to_file(engine: Engine, triples: torch.Tensor) -> dict[str, Any]:
    """The result of `Engine.make`, with all gradients at the scores or their projection."""
    sketch = engine.sketch
    # More samples than triples, so that the backward pass is done here, once for all queries.
    others = None if sketch is None else OtherSide(sketch.scores, None, len(triples) + 1, None)
    factors = engine.make(triples, others, keep=sketch is None)
    stored: dict[str, Any] = {name: getattr(factors, name) for name in _PLAIN}
    stored |= {
        "x": factors.encoded.x,
        "maps": factors.encoded.maps if factors.maps_low is None else factors.maps_low,
    }
    if factors.shared is not None and factors.positives is not None:
        stored |= {"delta": factors.shared.delta, "gram": factors.shared.gram, "norms": factors.shared.norms}
        places = factors.positives.places
        stored |= {
            "at_entities": places.entities,
            "at_groups": places.groups,
            "share": factors.positives.share,
        }
    return {k: v.detach().cpu().contiguous() if isinstance(v, torch.Tensor) else v for k, v in stored.items()}


_PLAIN = (
    *("heads", "relations", "group", "tails", "own", "one_to_one", "sample", "u", "norm", "conv"),
    *("heads_in", "relations_in", "pulled", "scale"),
)


def _from_file(engine: Engine, stored: Mapping[str, Any], kept: TestFactors) -> Factors:
    """A block's factors, with the gradient at the entities of the queried tests."""
    x, maps = stored["x"], stored["maps"]
    nothing = x.new_empty(0)
    shared = None
    if "at_entities" in stored:
        tests = kept.factors
        wanted = torch.cat([tests.tails, tests.heads])
        total = engine.total
        positives = Positives(
            Places(stored["at_entities"], stored["at_groups"], total, total), stored["share"]
        )
        encoder = engine.encoder
        at = gradient_at(engine.loss, x, encoder.entities, encoder.biases, wanted, positives, stored["norms"])
        gram = stored["gram"]
        if gram is None and kept.others.delta is not None:
            gram = stored["delta"].t() @ kept.others.delta.to(x.dtype)
        shared = OutputPass(nothing, None, None if gram is None else gram.clone(), at)
    return Factors(
        Encoded(nothing, nothing, maps, nothing, x),
        **{name: stored[name] for name in _PLAIN},
        shared=shared,
    )


def _file(folder: Path, checkpoint: int, block: int) -> Path:
    return folder / f"{checkpoint:03}-{block:07}.pt"


def _write(path: Path, body: Mapping[str, Any]) -> None:
    half = path.with_name(f".{path.name}.part")
    try:
        with half.open("wb") as file:
            torch.save(dict(body), file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        half.unlink(missing_ok=True)
        raise Unavailable(
            f"{path} cannot be written: {str(error)[:200]}.", hint="free space on that disk, then resume."
        ) from error


def _read(path: Path, device: torch.device, *, is_checked: bool) -> dict[str, Any]:
    """Compared with the checksums that the file holds, once: a tensor that is mapped is not."""
    try:
        if not is_checked:
            with ZipFile(path) as file:
                if (damaged := file.testzip()) is not None:
                    raise ValueError(f"{damaged} has another checksum")
        body: dict[str, Any] = read_saved(path, mmap=True)
        if not isinstance(body, dict):
            raise ValueError("no table")
    except (OSError, ValueError, BadZipFile) as error:
        raise BadInput(
            f"{path} is missing or damaged.",
            hint="remove it and build the index again; the other files are kept.",
        ) from error
    return {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in body.items()}


def _bytes(body: Mapping[str, Any]) -> int:
    return sum(value.nbytes for value in body.values() if isinstance(value, torch.Tensor))


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free - SPARE_BYTES:
        raise Unavailable(
            f"the index would take about {needed / 2**30:,.1f} GiB; {folder} has {free / 2**30:,.1f} GiB free.",
            hint="give --projection-dim 256, fewer checkpoints by --last-checkpoints, or another disk.",
        )


def _difference(existing: Any, here: Mapping[str, Any]) -> str:
    if not isinstance(existing, Mapping):
        return "unreadable description"
    names = [name for name in here if existing.get(name) != here[name]]
    return f"different {', '.join(names)}" if names else "a later format"


def _digest(*tensors: torch.Tensor) -> str:
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        whole.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()
