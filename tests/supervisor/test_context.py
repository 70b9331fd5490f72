"""The first run on a GPU tells how much memory a CUDA context takes there, beside what torch reserves."""

import pytest
from driving import Console, wait_for
from nvml_standin import Machine, StandIn, compiler, t4
from records import FORECAST, add

from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.watch import SAMPLE_EVERY_S, SETTLED_S
from storage import runs, series
from storage.database import Connection, open_reader, transaction

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in driver")
RESERVES = """echo '{"event": "memory", "mib": {"reserved": 1000}}' >> "$KGOPS_EVENTS"; exec sleep 60"""


def test_a_context_is_what_the_driver_counts_beyond_what_torch_has_reserved_for_a_while(
    run_cli: Console, standin: StandIn, on_t4: dict[str, str]
) -> None:
    number = run_cli.going("sh", "-c", RESERVES, flags=("--gpu", "0"), env=on_t4)
    tree = Tree(RunFolder(run_cli.folder(number)), 1)
    (worker,) = wait_for(tree.members, "the worker")
    standin.show(Machine((t4(used_mib=1150, processes=((worker.pid, 1150),)),)))

    def contexts() -> list[float | None]:
        with open_reader(run_cli.home / "kgops.db") as conn:
            found, used = (
                [point.value for point in series.points(conn, number, name)]
                for name in ("context_mib", "gpu_memory_mib")
            )
        # Samples are as far apart as this or further, and are written together with the context that they show.
        settled = used.count(1150.0) * SAMPLE_EVERY_S > SETTLED_S + 2 * SAMPLE_EVERY_S
        assert found or not settled, f"no context is recorded, though the GPU's memory was: {used}"
        if not found:
            run_cli.running(number)  # else it can come no more
        return found

    assert wait_for(contexts, "the context") == [150.0]


@pytest.mark.parametrize(("driver", "planned_mib"), [(Machine(()).driver, 150.0), ("1.2.3", 400.0)])
def test_a_plan_takes_the_context_that_was_measured_on_this_gpu_with_this_driver(
    driver: str, planned_mib: float, run_cli: Console, conn: Connection, on_t4: dict[str, str]
) -> None:
    forecast = {**FORECAST, "estimate": {"parts_mib": {"weights": 500.0}}}
    plan = {"forecast": forecast}
    add(conn, 1, workload="train", label="nations", predicted_mib=500.0, plan=plan, env={"driver": driver})
    conn.execute("UPDATE run SET attempts = 1 WHERE id = 1")
    with transaction(conn):
        series.append(conn, 1, [series.Point("context_mib", 1.0, 150.0, 1.0)])
    runs.end(conn, 1, state="succeeded", reason=None, exit_code=0, ended_at=1.0)
    shown = run_cli("suggest", "train", "--dataset", "nations", "--gpu", "0", "--json", env=on_t4)
    assert shown.code in (0, 3), shown.err  # 3: torch of these tests may have no CUDA
    (plan,) = shown.json()
    assert plan["estimate"]["parts_mib"]["context"] == planned_mib
