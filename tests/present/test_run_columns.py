"""A field of a run reaches every list of runs through one column; texts are as wide as a terminal shows them."""

import csv
import io
import sqlite3
import time

from driving import Console
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kgops.hosts.picture import run_row
from kgops.hosts.rows import run_of
from kgops.present.columns import HISTORY, ON_HOSTS, RunTable
from kgops.present.formats import drawn, fitted, padded, width_of
from storage import runs

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_cpu_time_of_a_run_is_in_every_list(run_cli: Console, conn: sqlite3.Connection) -> None:
    assert run_cli("run", "exec", "--", "python3", "-c", BUSY).code == 0
    (listed,) = run_cli("runs", "host_cpu_s>0.2", "--sort", "host_cpu_s", "--json").json()
    assert listed["host_cpu_s"] >= 0.3
    (row,) = csv.DictReader(io.StringIO(run_cli("runs", "--csv").out))
    assert float(row["host_cpu_s"]) == listed["host_cpu_s"]
    assert run_cli("runs").out.split("\n")[0].split()[4:6] == ["TIME", "CPU"]
    run = runs.get(conn, 1)
    assert run is not None
    for columns, one in ((HISTORY, run), (ON_HOSTS, run_of(1, run_row(run)))):
        assert one.host_cpu_s == listed["host_cpu_s"]
        table = RunTable(columns, 170)
        drawn = "".join(piece.text for piece in table.run_row(one, time.time(), 1).pieces)
        assert "CPU" in "".join(piece.text for piece in table.heading().pieces)
        assert drawn.endswith("   0:00")


SIGNS = st.text("ab 日é…▇·👩👧❤👍\u0301\u0e31\u0903\u200d\ufe0f\ufe0e\U0001f3fd\u200b각")


@given(SIGNS)
def test_width_is_that_of_what_is_drawn(text: str) -> None:
    assert width_of(text) == cell_len(drawn(text))


@given(SIGNS, st.integers(1, 20))
def test_a_cell_has_the_width_of_its_column(text: str, columns: int) -> None:
    assert cell_len(padded(fitted(text, columns), columns)) == columns
