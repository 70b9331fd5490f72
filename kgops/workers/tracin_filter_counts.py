"""Counts the training triples that filtering leaves each test triple: a job on stdin, JSON on stdout.

For a plan: the console cannot import torch or numpy, so it runs this module.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from kgops.jobs.job import read_job
from kgops.tracin.attribution import candidates
from kgops.workers.entry import StopRequest
from kgops.workers.report import Reporter
from kgops.workers.tracin_work import Work, load_graph

MOST_TESTS = 64  # evenly spaced


def main() -> None:
    job = read_job(json.load(sys.stdin), "the job to plan")
    job = replace(job, options={**job.options, "filtering": True})
    graph = load_graph(job.settings)
    work = Work(job, graph, Path(), Reporter(Path()), StopRequest())
    tests = [test for test in work.tests if test.ids is not None]
    step = max(1, -(-len(tests) // MOST_TESTS))
    rows, union = candidates(work.neighbourhood(), tests[::step], len(graph.train))
    counts = {
        "tests": len(tests),
        "counted": len(rows),
        "train": len(graph.train),
        "left": [len(one) for one in rows],
        "together": len(union),
    }
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
