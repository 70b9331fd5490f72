"""Loads what a TracIn job names: graph, checkpoints, test triples, loss and scoring settings; resolves and reports its
options."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.job import Job
from kgops.jobs.on_device import product_precision
from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.tracin import test_triples
from kgops.maths.tracin.blocks import Settings
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint, find_checkpoints, load_checkpoint
from kgops.maths.tracin.curvature import Training, training_of
from kgops.maths.tracin.engines import block_gflop
from kgops.maths.tracin.finished_tests import FinishedTests, open_finished_tests
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.maths.tracin.models import chosen_parameters, facts_of, last_layers
from kgops.maths.tracin.scan import Scoring
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.maths.train.checkpoints import forced_difference
from kgops.maths.train.settings import Precision, place_of
from kgops.maths.worker.devices import choose_threads, devices_for
from kgops.maths.worker.entry import StopRequest
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.report import Reporter, report_applied
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.tracin.job import single_device_reason, tracin_options
from kgops.workloads.tracin.options import DEFAULT_LOSS, FILTERS, question_of

_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def filters(job: Job) -> bool:
    """Whether each test triple is scored on only its neighbourhood; the default for a batch."""
    return bool(job.options.get("filtering", bool(job.settings["test_triples"])))


def scoring_settings(
    job: Job,
    both_directions: bool,
    model: torch.nn.Module,
    device: torch.device,
    training: Training | None = None,
) -> Settings:
    factored = isinstance(model, EntityModel)
    chunk = job.options.get("entity_chunk", "auto")
    plain = Settings()
    place = place_of(device)
    precision, _ = product_precision(job.options.get("precision", "fp32"), place)
    return Settings(
        block=job.options.get("block", plain.block),
        chunk=plain.chunk if chunk == "auto" else chunk,
        tests_at_once=tests_at_once(job),
        both_directions=both_directions,
        seed=job.settings["seed"],
        precision=_FORMATS[precision] if factored else None,
        score=job.settings["score"],
        training=training,
    )


def tests_at_once(job: Job) -> int | None:
    """None: as many as fit in a fixed share of memory."""
    requested = job.options.get("tests_at_once", "auto")
    return None if requested == "auto" else int(requested)


def spread_over(job: Job, device: torch.device) -> tuple[list[str], str | None]:
    """One device for each process that shares the work, and why they differ from the request."""
    requested, alone = job.options.get("devices", 1), [str(device)]
    if requested == 1:
        return alone, None
    why = single_device_reason(job.settings)
    return (alone, why) if why else devices_for(requested, device)


def chosen_names(job: Job, model: torch.nn.Module) -> Collection[str] | None:
    """The parameters whose gradients count; None: all."""
    if job.settings["layers"]:
        return chosen_parameters(model, job.settings["layers"])
    count = job.options.get("last_layers", False)
    return last_layers(model, count) if count else None


def report_options(
    job: Job, device: torch.device, report: Reporter, model: torch.nn.Module | None = None
) -> None:
    """Reports the options; `model` is None if the run only filters."""
    devices, why = spread_over(job, device)
    applied = tracin_options(
        job, place_of(device), len(devices), why, factored=model is None or isinstance(model, EntityModel)
    )
    # In a pipeline the training has reported it.
    spoken_of = {"memory_cleanup", *({"gradient_checkpointing"} if report.earlier else ())}
    report_applied(job, applied, report, spoken_of - job.options.keys() | {"memory_cleanup"})


def load_graph(settings: dict[str, Any]) -> Graph:
    if settings["dataset"]:
        return read_pykeen_dataset(settings["dataset"])
    paths = {name: Path(settings[name]) if settings[name] else None for name in TRIPLES}
    train, vocabularies = (
        paths.pop("train"),
        {name: paths.pop(name) for name in ("entity_to_id", "relation_to_id")},
    )
    assert train is not None  # the job was checked
    if all(
        vocabularies.values()
    ):  # then the other files add no ids, and an unknown label in them is no error
        paths = dict.fromkeys(paths)
    return read_graph(train, **paths, **vocabularies)


@dataclass(frozen=True)
class Work:
    job: Job
    graph: Graph
    folder: Path
    report: Reporter
    stop: StopRequest

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def settings(self) -> dict[str, Any]:
        return self.job.settings

    def load(self, device: torch.device, cleanup: MemoryCleanup = OFF) -> list[LoadedCheckpoint]:
        settings = self.settings
        paths = find_checkpoints(
            path_of(settings["model_path"]), path_of(settings["checkpoint_dir"]), settings["last_checkpoints"]
        )
        loaded = []
        for path in paths:
            common = {name: settings[name] for name in ("learning_rate", "trust_pickle")}
            loaded.append(load_checkpoint(path, self.graph, device=device, **common))
            cleanup.between_phases()
        rate = settings["learning_rate"]
        if rate is not None and any(one.checkpoint.learning_rate != rate for one in loaded):
            self.report.note(f"learning_rate {rate:g} is not used: the checkpoints record their own.")
        return loaded

    def check_data(self, loaded: Sequence[LoadedCheckpoint]) -> None:
        """Refuses checkpoints of other training triples, unless forced: their influences would be of no training."""
        notes = [forced_difference(self.graph, one.data) for one in loaded]
        for note in dict.fromkeys(filter(None, notes)):
            self.report.note(note)

    def scoring(
        self, loaded: Sequence[LoadedCheckpoint], device: torch.device, cleanup: MemoryCleanup = OFF
    ) -> Scoring:
        """The scorer: checkpoints, loss, settings and parameters."""
        is_fisher = self.settings["score"] == "fisher"
        training = training_of(self.graph.train, loaded[0].loss) if is_fisher else None
        loss, both = (TARGET, False) if training else self._loss(loaded)
        checkpoints = [one.checkpoint for one in loaded]
        model = checkpoints[0].model
        requested = self.job.options.get("precision", "fp32")
        applied, why = product_precision(requested, place_of(device))
        # Only products of factors may be less than float32.
        Precision(requested, applied if isinstance(model, EntityModel) else "fp32", why).apply()
        names = chosen_names(self.job, model)
        many = f"{len(checkpoints)} checkpoints up to" if len(checkpoints) > 1 else "one checkpoint,"
        directions = ", both directions" if both else ""
        what = f"loss {self.loss_name()}{directions}" if training is None else "the logit of the tail"
        self.report.note(f"{many} {loaded[-1].path.name}; score {self.settings['score']}, {what}.")
        if question := question_of(self.settings["score"], self.loss_name()):
            self.report.note(question)
        if self.settings["test_triples"] and not both:
            self._note_heads()
        settings = scoring_settings(self.job, both, model, device, training)
        return Scoring(checkpoints, loss, settings, names, cleanup)

    def _note_heads(self) -> None:
        heads = sum(test.asks_head for test in self.tests)
        if heads:
            self.report.note(
                f"{heads:,} of {len(self.tests):,} test triples were predicted as heads; what is scored is their tail. "
                "`--score tracin --loss train` compares both directions, as training does."
            )

    def choose_threads(self, scoring: Scoring) -> None:
        gflop = block_gflop(scoring.checkpoints[0].model, scoring.loss, scoring.settings.block)
        choose_threads(gflop, "a block", scoring.device, self.report)

    def loss_name(self) -> str:
        if self.settings["score"] == "fisher":
            return "logit"
        return str(self.settings["loss"] or DEFAULT_LOSS)

    def _loss(self, loaded: Sequence[LoadedCheckpoint]) -> tuple[TracinLoss, bool]:
        name, facts = self.loss_name(), facts_of(loaded[0].checkpoint.model)
        both = self.settings["both_directions"]
        if name != "train":
            trained = str((loaded[0].loss or {}).get("name", ""))
            if name == "one-to-n" and trained.startswith("kvsall"):
                self.report.note(
                    "the model was trained with all known tails as true; one-to-n treats the others as false. "
                    "--loss train compares the gradients of the training loss."
                )
            return {"target": TARGET, "one-to-n": ONE_TO_N}[name], bool(both)
        if loaded[0].loss is None:
            raise BadInput(
                f"{loaded[0].path} does not record the loss it was trained with.",
                hint="choose --loss one-to-n or --loss target.",
            )
        rows = query_rows(self.graph.train, facts.inverse)
        if facts.inverse:
            rows = torch.cat([rows, inverse_triples(self.graph.train)])
        relation_rows = facts.relations * (2 if facts.inverse else 1)
        loss = trained_loss(loaded[0].loss, rows.to(facts.like.device), relation_rows)
        return loss, facts.inverse if both is None else both

    @cached_property
    def tests(self) -> list[TestTriple]:
        settings, graph = self.settings, self.graph
        if settings["test_triple"]:
            test = test_triples.from_text(settings["test_triple"], graph)
            if test.trouble:
                raise BadInput(
                    f"the test triple cannot be scored: {test.trouble}.", hint="check its spelling."
                )
            return [test]
        file = path_of(settings["test_triples"] or settings["test"])
        tests = (
            test_triples.from_graph(graph, graph.test)
            if file is None
            else test_triples.from_file(file, graph)
        )
        chosen = test_triples.selected(tests, settings["start_index"], settings["max_triples"])
        if not chosen:
            raise BadInput(
                f"no test triple is left: {len(tests):,} in all, --start-index {settings['start_index']}.",
                hint="give some with --test-triple or --test.",
            )
        return chosen

    def ids(self) -> torch.Tensor:
        return torch.tensor([test.ids for test in self.tests if test.ids is not None])

    def finished_tests(self) -> FinishedTests:
        """Tests that an earlier attempt finished, unless an OOM fallback changed what scores mean."""
        meaning = {
            "last_layers": self.job.options.get("last_layers", False),
            "filtering": filters(self.job),
            "data": self.data_digest,
        }
        finished_tests, dropped = open_finished_tests(meaning, self.folder / "finished_tests")
        if dropped:
            why = "the triples or their order" if "data" in dropped else "an OOM fallback"
            self.report.note(f"{why} changed what scores mean: finished test triples are scored again.")
            for path in self.results.glob("triple_*"):  # named by test triples that may be others now
                path.unlink()
        return finished_tests

    @cached_property
    def data_digest(self) -> str:
        """Of training and test triples in their order, since both are kept by their numbers."""
        tests = torch.tensor([test.ids or (-1, -1, -1) for test in self.tests])
        return hashlib.sha256(self.graph.train.numpy().tobytes() + tests.numpy().tobytes()).hexdigest()

    def neighbourhood(self) -> tuple[Neighbourhood, NeighbourhoodFilter] | None:
        if not filters(self.job):
            return None
        neighbourhood_filter = NeighbourhoodFilter(**{name: self.settings[name] for name in FILTERS})
        return Neighbourhood(self.graph.train, self.graph.num_entities), neighbourhood_filter


def path_of(name: str | None) -> Path | None:
    return Path(name) if name else None
