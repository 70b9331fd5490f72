"""Charts of a benchmark are the same picture as SVG and as PNG, in black and white, with every variant by its name."""

from __future__ import annotations

import math
import sqlite3
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.experiments.charts import Dot, front
from kgops.experiments.trial_result import Spread
from kgops.present.axes import Axis
from kgops.present.pictures import ZOOM
from storage import benches
from storage.benches import Pair

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def bench(conn: sqlite3.Connection) -> str:
    """Three sizes, each smaller and faster than the one before, under names that mean something in XML."""
    names = ("<a>", "b & c", "c")
    variants = [{"name": name, "varied": {"size": float(i + 1)}} for i, name in enumerate(names)]
    plan = {"variants": variants, "rounds": 3, "warm_all": True}
    number = benches.begin(conn, "matrix <j>.toml", plan, "kgops bench matrix j.toml", {"machine": {}}, 1.0)
    for k, name in enumerate(names[1:], 1):
        for i in range(3):
            first, other = (_told((1 + 0.1 * i) / part, 100 / part) for part in (1, 1 + k))
            benches.add_pair(conn, number, Pair(i, name, None, None, first, other, 0.0, (), float(i)))
    benches.end(conn, number, 2.0)
    return str(number)


def _told(seconds: float, mib: float) -> dict[str, Any]:
    of = {"seconds_of": "an epoch", "memory_of": "resident set", "trouble": None}
    return {**of, "seconds": seconds, "memory_mib": mib}


def test_charts_are_svg_with_every_variant_and_its_front(
    run_cli: Console, bench: str, tmp_path: Path
) -> None:
    done = run_cli("bench", "export", bench, "--to", "svg", cwd=tmp_path)
    assert done.out.split() == ["bench-1-memory.svg", "bench-1-size.svg"], done.err
    for name in done.out.split():
        page = ET.parse(tmp_path / name).getroot()
        texts = [t.text for t in page.iter(f"{SVG}text")]
        assert {"<a>", "b & c", "c"} <= set(texts) or "time" in texts
        colours = {e.get(a) for e in page.iter() for a in ("fill", "stroke")} - {None, "none"}
        assert colours <= {"black", "white", "#ddd", "#555"}
        for path in page.iter(f"{SVG}path"):
            assert "nan" not in (path.get("d") or "")
    assert run_cli("bench", "export", bench, "--to", "svg", cwd=tmp_path).code == 2  # they are there already
    one = run_cli("bench", "export", bench, "--to", "svg", "--output", tmp_path / "one.svg")
    assert "one file has one chart, memory; without --output there are also size" in one.err


def test_charts_are_png_of_the_same_size_and_without_pillow_it_is_said_what_to_install(
    run_cli: Console, bench: str, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    done = run_cli("bench", "export", bench, "--to", "png", cwd=tmp_path)
    assert done.out.split() == ["bench-1-memory.png", "bench-1-size.png"], done.err
    assert run_cli("bench", "export", bench, "--to", "svg", "--output", tmp_path / "same.svg").code == 0
    drawn = ET.parse(tmp_path / "same.svg").getroot()
    size = tuple(ZOOM * int(drawn.get(side) or 0) for side in ("width", "height"))
    with image.open(tmp_path / "bench-1-memory.png") as found:
        assert (found.format, found.mode, found.size) == ("PNG", "L", size)
    (tmp_path / "without" / "PIL").mkdir(parents=True)
    (tmp_path / "without" / "PIL" / "__init__.py").write_text("raise ImportError")
    env = {"PYTHONPATH": str(tmp_path / "without")}
    missing = run_cli("bench", "export", bench, "--to", "png", "--force", cwd=tmp_path, env=env)
    assert missing.code == 1 and "PNG needs Pillow" in missing.err and "kgops[png]" in missing.err


def test_the_front_has_what_nothing_beats_in_both() -> None:
    def dot(x: float, y: float) -> Dot:
        return Dot("", Spread(x, x, x, 1), Spread(y, y, y, 1))

    best = [dot(1, 9), dot(2, 5), dot(7, 1)]
    beaten = [dot(1, 10), dot(3, 5), dot(8, 2), dot(2, 6)]
    assert front([*beaten, *best]) == best


@pytest.mark.parametrize("values", [(102.8, 111.4), (0.03, 0.16), (1e-6, 0.02), (5.0, 5.0), (-3.0, 9.0)])
def test_a_tick_says_the_value_it_stands_at(values: tuple[float, float]) -> None:
    axis = Axis.over(values, 0, 100, "x")
    ticks = axis.ticks()
    assert len(ticks) >= 2
    for value, name in ticks:
        assert math.isclose(float(name.replace(",", "")), value, rel_tol=1e-9, abs_tol=1e-12)
        assert -1e-9 <= axis(value) <= 100 + 1e-9
