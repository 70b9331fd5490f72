"""All workloads by name."""

from __future__ import annotations

from kgops.jobs.exec_command import EXEC
from kgops.jobs.pipeline import PIPELINE
from kgops.jobs.regress import REGRESS
from kgops.jobs.tracin import TRACIN
from kgops.jobs.train import TRAIN
from kgops.jobs.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (TRAIN, TRACIN, PIPELINE, REGRESS, EXEC)
}
