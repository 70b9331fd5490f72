"""`--on ray`: the pieces of a TracIn run as tasks of a Ray cluster, retried by Ray where a node of it dies.

The nodes share the run's folder with this machine, as Slurm's do. Without an address a local cluster is started, bound
to loopback, with a token of its own, and ended again with the run.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kgops.errors import KgopsError, Usage
from kgops.jobs.cluster import ClusterRequest
from kgops.jobs.job import read_job_file
from kgops.tracin.shards import Pieces
from kgops.training.out_of_memory import is_out_of_memory
from kgops.workers.cleanup import cleanup_for
from kgops.workers.report import Reporter
from kgops.workers.tracin_parallel import SpreadScorer
from kgops.workers.tracin_shard_worker import Hand
from kgops.workers.tracin_shared_input import job_file, ordered_graph, publish_order
from kgops.workers.tracin_work import Work
from kgops.workers.train import find_device

__all__ = ["shared_by_ray"]

_PATIENCE_S = 10.0  # for a cluster's head to answer
_RETRIES = 3  # of a piece whose worker or node was lost
_STORE = 80 << 20  # bytes: nothing but names goes through Ray's object store


@contextmanager
def shared_by_ray(work: Work, pieces: Pieces, device: str) -> Iterator[SpreadScorer]:
    """One task for each piece that is not published yet."""
    ray = _ray(alone=work.job.on.address is None)
    publish_order(pieces.folder, work.job, work.graph)
    _connect(ray, work.job.on)
    try:
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        gpus = device.startswith("cuda")
        asked = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        task = ray.remote(_do_piece).options(max_retries=_RETRIES, **asked)
        left = [piece for piece in pieces if not pieces.is_published(piece)]
        refs = [task.remote(str(work.folder), str(pieces.folder), device, piece.name) for piece in left]
        some, of = "s" if len(left) != 1 else "", "s" if nodes > 1 else ""
        work.report.note(f"{len(left):,} piece{some} for a Ray cluster of {nodes} node{of}.")
        yield SpreadScorer(pieces, _RayHands(ray, refs))
    finally:
        ray.shutdown()


class _RayHands:
    def __init__(self, ray: Any, refs: list[Any]) -> None:
        self._ray, self._refs = ray, refs

    def look(self) -> None:
        if not self._refs:
            return
        ended, self._refs = self._ray.wait(self._refs, num_returns=len(self._refs), timeout=0.05)
        for ref in ended:
            try:
                self._ray.get(ref)
            except self._ray.exceptions.RayTaskError as error:
                cause = error.cause
                if cause is not None and (is_out_of_memory(cause) or isinstance(cause, KgopsError)):
                    raise cause from None
                raise
            except self._ray.exceptions.RayError as error:
                told = next(iter(str(error).splitlines()), type(error).__name__)
                raise KgopsError(
                    f"Ray gave a piece up after {_RETRIES} more tries: {told:.200}",
                    hint="resume the run: what was published stays",
                ) from error

    def under_way(self) -> float:
        return 0


_HANDS: dict[str, Hand] = {}  # of this Ray worker: a model is loaded once, not for each piece


def _do_piece(folder: str, pieces_folder: str, device: str, name: str) -> None:
    """In a worker of Ray."""
    hand = _HANDS.get(pieces_folder)
    if hand is None:
        os.environ["KGOPS_EVENTS"] = f"{pieces_folder}/ray-{os.uname().nodename}-{os.getpid()}.jsonl"
        order = Path(pieces_folder)
        job = read_job_file(job_file(order))
        never: Any = lambda: False  # noqa: E731 - Ray ends its workers itself
        work = Work(job, ordered_graph(order), Path(folder), Reporter(Path(folder)), never)
        where = find_device(device)
        cleanup = cleanup_for(job, where)
        scoring = work.scoring(work.load(where, cleanup), where, cleanup)
        work.choose_threads(scoring)
        hand = Hand(work, scoring, Pieces.open(order))
        _HANDS.clear()
        _HANDS[pieces_folder] = hand
    hand.do_named(name)


def _connect(ray: Any, place: ClusterRequest) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if place.address is not None:
        try:
            _knock(place.address)
            ray.init(address=place.address, **quiet)
        except (OSError, ValueError) as error:
            raise KgopsError(
                f"no Ray cluster answers at {place.address}: {next(iter(str(error).splitlines()), '')}",
                hint="`ray status` on one of its nodes tells; without --address a local one is started",
            ) from error
        return
    cores = place.tasks if place.tasks > 1 else len(os.sched_getaffinity(0))
    ray.init(
        num_cpus=cores,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=_STORE,
        **quiet,
    )


def _knock(address: str) -> None:
    """Where nobody answers Ray ends our process, without a word that a person could use."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), _PATIENCE_S).close()


def _ray(*, alone: bool) -> Any:
    """It reads its environment when it is loaded."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        import ray
    except ImportError as error:
        raise Usage("Ray is not installed here.", hint="pip install 'kgops[ray]'") from error
    return ray
