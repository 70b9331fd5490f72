"""A TracIn run on a Ray cluster finds, byte for byte, what one process finds here, with a node killed on the way."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Console, wait_for
from small_graph import write_graph

pytest.importorskip("ray", reason="needs Ray: pip install 'kgops[ray]'")

# A cluster has its own process: what Ray starts in ours would stay until the last test.
_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
sizes = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=sizes)
more = [cluster.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(more[0], allow_graceful=False)
print("killed", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.fixture
def cluster() -> Iterator[subprocess.Popen[str]]:
    own = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.write("\n\n")
        process.stdin.close()


@pytest.fixture
def trained(run_cli: Console, tmp_path: Path) -> int:
    files = write_graph(tmp_path, 8, 500, 7, train=40_000, test=12)
    small = ("--embedding-dim", "16", "--output-channels", "2", "--validate-every", "0", "--num-epochs", "1")
    run_cli.must("run", "train", *files, *small, "--checkpoint-frequency", "1")
    return 1


def test_a_tracing_survives_the_loss_of_a_node_and_finds_what_one_process_finds(
    run_cli: Console, trained: int, cluster: subprocess.Popen[str]
) -> None:
    traced = ("tracin", "--run", str(trained), "--top-k", "9", "--loss", "one-to-n")
    run_cli.must("run", *traced, env={"OMP_NUM_THREADS": "1"})
    assert cluster.stdout is not None and cluster.stdin is not None
    address = cluster.stdout.readline().strip()
    done = run_cli.must("run", *traced, "--on", "ray", "--address", address, "--detach")
    number = int(done.out)
    pieces = run_cli.folder(number) / "shards"
    wait_for(lambda: list(pieces.glob("*/ray-*.jsonl")), "somebody to begin")
    cluster.stdin.write("\n")
    cluster.stdin.flush()
    assert cluster.stdout.readline().strip() == "killed"
    run = run_cli.ended(number)
    assert run.state == "succeeded", run.reason
    found = [(run_cli.folder(n) / "results" / "tracin.csv").read_bytes() for n in (2, number)]
    assert found[0] == found[1]
