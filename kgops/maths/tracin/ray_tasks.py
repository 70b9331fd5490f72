"""`--on ray`: scores the shards of a TracIn run as tasks of a Ray cluster; Ray retries the tasks of lost nodes.

The nodes share the run's folder with this machine. Without an address, a local cluster is started for the run, bound
to loopback and with a new token.
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
from kgops.jobs.run_options import ClusterRequest
from kgops.maths.tracin.fork import job_file, publish_shared_input, read_shared_graph
from kgops.maths.tracin.parallel import SpreadScorer
from kgops.maths.tracin.shards import Shards, ShardWorker
from kgops.maths.tracin.work import Work
from kgops.maths.train.worker import find_device
from kgops.maths.worker.devices import cleanup_for
from kgops.maths.worker.out_of_memory import is_out_of_memory
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job_file

_PATIENCE_S = 10.0  # for the cluster's head node to answer
_RETRIES = 3  # of a shard whose worker or node was lost
_STORE = 80 << 20  # bytes: nothing but names goes through Ray's object store


@contextmanager
def shared_by_ray(work: Work, shards: Shards, device: str) -> Iterator[SpreadScorer]:
    """One task for each unpublished shard."""
    ray = _ray(alone=work.job.on.address is None)
    publish_shared_input(shards.folder, work.job, work.graph)
    _connect(ray, work.job.on)
    try:
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        gpus = device.startswith("cuda")
        resources = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        task = ray.remote(_do_shard).options(max_retries=_RETRIES, **resources)
        missing = [shard for shard in shards if not shards.is_published(shard)]
        refs = [task.remote(str(work.folder), str(shards.folder), device, shard.name) for shard in missing]
        some, of = "s" if len(missing) != 1 else "", "s" if nodes > 1 else ""
        work.report.note(f"{len(missing):,} shard{some} for a Ray cluster of {nodes} node{of}.")
        yield SpreadScorer(shards, _RayTasks(ray, refs))
    finally:
        ray.shutdown()


class _RayTasks:
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
                message = next(iter(str(error).splitlines()), type(error).__name__)
                raise KgopsError(
                    f"Ray gave up on a shard after {_RETRIES} retries: {message:.200}",
                    hint="resume the run: published shards are kept",
                ) from error

    def under_way(self) -> float:
        return 0


_WORKERS: dict[str, ShardWorker] = {}  # of this Ray worker: loads the model once, not for each shard


def _do_shard(folder: str, shards_folder: str, device: str, name: str) -> None:
    """Runs in a Ray worker."""
    worker = _WORKERS.get(shards_folder)
    if worker is None:
        os.environ["KGOPS_EVENTS"] = f"{shards_folder}/ray-{os.uname().nodename}-{os.getpid()}.jsonl"
        shared = Path(shards_folder)
        job = read_job_file(job_file(shared))
        never: Any = lambda: False  # noqa: E731 - Ray ends its workers itself
        work = Work(job, read_shared_graph(shared), Path(folder), Reporter(Path(folder)), never)
        where = find_device(device)
        cleanup = cleanup_for(job, where)
        scoring = work.scoring(work.load(where, cleanup), where, cleanup)
        work.choose_threads(scoring)
        worker = ShardWorker(work, scoring, Shards.open(shared))
        _WORKERS.clear()
        _WORKERS[shards_folder] = worker
    worker.do_named(name)


def _connect(ray: Any, cluster: ClusterRequest) -> None:
    logging_off = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address is not None:
        try:
            _check_port(cluster.address)
            ray.init(address=cluster.address, **logging_off)
        except (OSError, ValueError) as error:
            raise KgopsError(
                f"no Ray cluster answers at {cluster.address}: {next(iter(str(error).splitlines()), '')}",
                hint="check `ray status` on one of its nodes; without --address a local cluster is started",
            ) from error
        return
    cores = cluster.tasks if cluster.tasks > 1 else len(os.sched_getaffinity(0))
    ray.init(
        num_cpus=cores,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=_STORE,
        **logging_off,
    )


def _check_port(address: str) -> None:
    """Fails early: if nothing answers, `ray.init` ends this process without a usable message."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), _PATIENCE_S).close()


def _ray(*, alone: bool) -> Any:
    """Imports Ray, which reads its environment at import."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        import ray
    except ImportError as error:
        raise Usage("Ray is not installed here.", hint="pip install 'kgops[ray]'") from error
    return ray
