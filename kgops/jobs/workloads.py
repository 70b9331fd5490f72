"""All workloads by name."""

from __future__ import annotations

from kgops.jobs.command import EXEC
from kgops.jobs.pipelining import PIPELINE
from kgops.jobs.regressing import REGRESS
from kgops.jobs.tracing import TRACIN
from kgops.jobs.training import TRAIN
from kgops.jobs.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (TRAIN, TRACIN, PIPELINE, REGRESS, EXEC)
}
