"""Whatever finite number and whatever local_time a worker sends: every command and every screen shows it."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from driving import Console, wait_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import add
from screen_driving import open_screens

from kgops.cli.output import print_json
from kgops.experiments.trial_result import spread_of
from kgops.jobs.text import clock
from kgops.present.areas import small_area
from kgops.present.curve_chart import draw, short
from kgops.present.formats import amount, duration, local_time, off_by, ratio_text
from kgops.present.overview import eta_s
from kgops.present.run_detail import Curve
from kgops.present.wording import metric_of, progress_of, short_amount, speed_of
from screens.widgets.bar import ratio_bar, scale_of, share_bar
from screens.widgets.chart_axis import on_axis
from screens.widgets.curve_panels import braille
from storage import series
from storage.database import Connection, transaction
from storage.runs import Run
from storage.series import Bucket

LARGEST, LEAST = 1.7976931348623157e308, 5e-324
NUMBERS = (1e308, -1e308, LARGEST, -LARGEST, LEAST, -LEAST, 0.0, 1e15, 1e-300, 2.0**63, 1e308)


def _events() -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for step, value in enumerate(NUMBERS):
        out.append({"event": "metric", "name": "mrr", "value": value, "step": step})
        out.append({"event": "metric", "name": "sorted by step", "value": step, "step": value})
        out.append({"event": "metric", "name": "epoch_seconds", "value": value, "step": step})
        out.append({"event": "metric", "name": f"constant {step}", "value": value, "step": 1})
        out.append({"event": "memory", "mib": {"host": value, "of\x1b[2J": -value}})
        done = {"done": value, "total": -value, "rate": value}
        out.append({"event": "progress", "phase": "x", "unit": f"u{step}", **done})
        out.append({"event": "note", "text": "at the end of time", "at": value})
        out.append({"event": "metric", "name": "late", "value": 1, "step": 1, "at": value})
        out.append({"event": "artifact", "path": f"results/{step}", "bytes": value, "at": value})
        option = {"requested": value, "applied": -value, "reason": "so"}
        out.append({"event": "option", "name": f"l{step}", **option})
        test = {"test": step, "triple": ["a", "b", "c"], "influences": [[1, "a", "b", "c", value]]}
        out.append({"event": "attribution", **test})
    for rate in (LEAST, -LEAST, 1e308, LARGEST):
        bounds = {"done": 1.0, "total": LARGEST, "rate": rate}
        out.append({"event": "progress", "phase": "x", "unit": "epochs", **bounds})
    for at in (1e300, -1e300, -1, 253402300800, 10**300):
        out.append({"event": "progress", "done": 1, "total": 2, "rate": LEAST, "at": at})
    out.append({"event": "metric", "name": "mrr", "value": 1e308, "step": 99, "at": 1e300})
    return out


WORKER = "import os, sys; open(os.environ['KGOPS_EVENTS'], 'ab').write(open(sys.argv[1], 'rb').read())"


def _send(run_cli: Console, tmp_path: Path, more: str = "") -> None:
    (tmp_path / "events").write_text("".join(json.dumps(event) + "\n" for event in _events()))
    worker = (sys.executable, "-I", "-S", "-c", WORKER + more, tmp_path / "events")
    done = run_cli.must("run", "exec", "--", *worker)
    assert "Traceback" not in done.err


COMMANDS = (
    *("runs", "runs --sort mrr", "runs --sort rate --ascending", "runs --metric best.mrr", "runs --json"),
    *("runs mrr>1e300", "runs rate<1e-300 done>-1e309", "runs --csv --metric mrr", "runs --sort time"),
    *("show 1", "show 1 --json", "report 1", "report 1 --force", "compare 1 2", "compare 1 2 --json"),
    *("compare 2 1 --all", "logs 1", "influences 1", "bench show", "bench show --json"),
    *(f"export 1 --to {wanted} --force" for wanted in ("json", "csv", "tensorboard")),
)


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_every_command_shows_any_finite_number(run_cli: Console, tmp_path: Path) -> None:
    _send(run_cli, tmp_path)
    _send(run_cli, tmp_path)
    for words in COMMANDS:
        done = run_cli(*words.split())
        assert "Traceback" not in done.err, (words, done.err)
        assert done.code == 0 or words.startswith("influences"), (words, done.err)
        if "--json" in words:
            json.loads(done.out, parse_constant=_no_constant)
    assert run_cli("import", "run-1.json").code == 0


async def test_screens_show_any_finite_number(run_cli: Console, tmp_path: Path) -> None:
    _send(run_cli, tmp_path)
    _send(run_cli, tmp_path)
    async with open_screens(run_cli.home, shows="RECENT") as seen:
        await seen.press("h", shows="2 runs")
        await seen.press("space", "space", "equals_sign", shows="METRICS")
        await seen.press("escape", "enter", shows="CURVES")


async def test_screens_show_a_run_that_goes_on_with_extremes(run_cli: Console, tmp_path: Path) -> None:
    (tmp_path / "events").write_text("".join(json.dumps(event) + "\n" for event in _events()))
    goes_on = "\nimport time\nwhile not os.path.exists('gate'): time.sleep(0.05)"
    number = run_cli.detach(sys.executable, "-I", "-S", "-c", WORKER + goes_on, tmp_path / "events")
    wait_for(lambda: (run := run_cli.running(number)) and run.done == 1.0, "its last progress")
    async with open_screens(run_cli.home, shows=("RUNNING", ">9999d")) as seen:
        await seen.press("enter", shows=("CURVES", "ETA >9999d"))
    (tmp_path / "gate").touch()
    assert run_cli.ended(number).state == "succeeded"


def test_a_report_that_cannot_be_made_leaves_the_old_one(run_cli: Console, tmp_path: Path) -> None:
    _send(run_cli, tmp_path, "\nprint(('x' * 300 + '\\n') * 200)")
    assert run_cli("report", "1", "--output", "page.html").code == 0
    before = (tmp_path / "page.html").read_bytes()
    assert len(before) > 45_000
    words = shlex.join(run_cli.argv("report", "1", "--output", "page.html", "--force"))
    limited = ("sh", "-c", f"ulimit -f 80; exec {words}")  # blocks of 512 bytes
    done = subprocess.run(limited, env=run_cli.environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write page.html: File too large\n"
    assert (tmp_path / "page.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == ["page.html"]


# --- the formatters, one by one ---

ANY = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(NUMBERS)
RUN = Run(
    **{
        **dict.fromkeys(Run._fields),
        "id": 1,
        "state": "running",
        "attempts": 1,
        "metric": "mrr",
        "phase": "x",
    }  # type: ignore[arg-type]
)
MANY = st.lists(ANY, min_size=1, max_size=40)


@given(value=ANY)
def test_any_number_is_formatted_in_few_columns(value: float) -> None:
    run = RUN._replace(rate=value, done=value, total=-value, metric_value=value)
    texts = [amount(value), duration(value), local_time(value), short_amount(value), short(value)]
    texts += [speed_of(run), metric_of(run), progress_of(run), off_by(value, LEAST) or "", ratio_text(value)]
    assert max(map(len, texts)) <= 48
    eta = eta_s(run._replace(started_at=0.0, reported_at=value))
    assert eta is None or eta >= 0
    assert eta_s(run._replace(phase="validate", started_at=0.0, reported_at=value)) is None
    assert clock(value, "%Y")


@given(values=MANY, low=ANY, high=ANY)
def test_any_curve_is_drawn(values: list[float], low: float, high: float) -> None:
    assert all(len(line) == 7 for line in braille(values, 7, 3, low, high))
    assert len(small_area(values, 5)) == 5
    spots = [(low, value) for value in values] + [(high, high)]
    assert len(on_axis(spots, min(low, high), max(low, high), 9)) == 9
    assert sum(len(piece.text) for piece in share_bar(low, high, 12)) == 12
    buckets = [Bucket(1, one, one, one, step, high) for step, one in zip(values, values, strict=True)]
    page = draw(Curve("x", len(values), low, tuple(buckets)), Run(submitted_at=0.0))
    assert not re.search(r"\b(nan|inf)\b", page)
    spread = spread_of([abs(value) or 1.0 for value in values])
    scale = scale_of([spread], 30)
    assert sum(len(piece.text) for piece in ratio_bar(spread, scale, "good")) == 30


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(batches=st.lists(MANY, min_size=1, max_size=6))
def test_a_mean_of_any_points_lies_between_them(conn: Connection, batches: list[list[float]]) -> None:
    with transaction(conn):
        conn.execute("DELETE FROM run")
        add(conn, 1)
    for values in batches:
        with transaction(conn):
            series.append(conn, 1, [series.Point("x", value, value, 0.0) for value in values])
    for at_most in (600, 4, 1):
        found = series.curve(conn, 1, "x", at_most=at_most)
        assert all(b.min is not None and b.mean is not None and b.max is not None for b in found)
        assert all(b.min <= b.mean <= b.max for b in found)  # type: ignore[operator]


def test_json_on_stdout_is_json_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.inf, -math.inf, math.nan, 1.5]})
    found = json.loads(capsys.readouterr().out, parse_constant=_no_constant)
    assert found == {"a": ["Infinity", "-Infinity", None, 1.5]}
