"""A run's page needs nothing but itself, and shows text from outside as text."""

import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from driving import CHROMIUM, Console, patience

from kgops.interchange.import_scores import HEADER
from kgops.present.comparison import Comparison, Difference, Metric, compare
from kgops.present.comparison_page import page as comparison_page
from kgops.present.curve_chart import draw
from kgops.present.run_detail import Curve
from storage import runs
from storage.database import open_reader
from storage.series import Bucket

EVIL = "<script>alert(1)</script> & \x1b[31m\u202edeos"
VOID = {"meta", "path"}


class Page(HTMLParser):
    """What a browser would find: its tags, well nested, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.raw = text
        self.numbers: list[str] = []  # beside the axes
        self.large: list[str] = []  # names and values of large numbers, in their order
        self.heads: list[str] = []  # of sections and folds, in their order
        self.charts: list[str] = []  # names, in their order
        self.lines: list[str] = []  # of charts, in a colour
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "path" and "hue" in (dict(attrs).get("class") or ""):
            self.lines.append(dict(attrs).get("d") or "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] == "text":
            self.numbers.append(data)
        for tags, found in (
            (("dt", "dd"), self.large),
            (("h2", "summary"), self.heads),
            (("b",), self.charts if "figure" in self._open else []),
        ):
            if self._open and self._open[-1] in tags:
                found.append(data.strip())


def test_a_page_holds_the_whole_run_and_asks_nobody_else(two_trainings: Console, tmp_path: Path) -> None:
    page = report_of(two_trainings, tmp_path, "2")
    assert page.links == [] and "http" not in page.raw
    assert page.tags.count("svg") >= 2  # loss and the seconds of epochs, at least
    for word in (
        "succeeded",
        "predicted peak: in",
        "test_mrr",
        "batch_size",
        "num_epochs = 4",
        "best_model.pt",
    ):
        assert word in page.text
    metric = two_trainings.show(2)["metric"]["test_mrr"]
    assert f"{metric:.5g}" in page.text


def report_of(run_cli: Console, tmp_path: Path, *runs: str) -> Page:
    command = ("compare", *runs, "--html") if len(runs) > 1 else ("report", *runs)
    run_cli.must(*command, "--output", str(tmp_path / "page.html"), "--force")
    return Page((tmp_path / "page.html").read_text())


def test_what_was_reached_leads_and_the_record_is_folded(two_trainings: Console, tmp_path: Path) -> None:
    page = report_of(two_trainings, tmp_path, "2")
    metrics = two_trainings.show(2)["metric"]
    assert page.large[:4] == [
        "test MRR",
        f"{metrics['test_mrr']:.5g}",
        "test hits@10",
        f"{metrics['test_hits_at_10']:.5g}",
    ]
    leading = ["Curves", "Memory", "Options that differ from the defaults"]
    assert page.heads[:3] == leading
    assert page.charts[:2] == ["loss", "valid_mrr"]
    assert page.tags.count("h2") == 3 and {"Metrics", "Job", "End of the log"} <= set(page.heads)
    # A fast run has no more curves than those on top.
    between = page.text.partition(leading[2])[2].partition(page.heads[3])[0]
    assert "batch_size64256person" in between and "num_epochs4100the job" in between
    assert "learning_rate" not in between and "precision" not in between  # these are as declared


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_training_is_printed_on_two_pages(two_trainings: Console, tmp_path: Path) -> None:
    report_of(two_trainings, tmp_path, "2")
    argv = [
        CHROMIUM or "",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ]
    argv += [f"--print-to-pdf={tmp_path / 'page.pdf'}", str(tmp_path / "page.html")]
    subprocess.run(argv, check=True, capture_output=True, timeout=patience())
    assert 1 <= len(re.findall(rb"/Type /Page\b", (tmp_path / "page.pdf").read_bytes())) <= 2


def test_a_comparison_marks_the_best_and_draws_curves_together(
    two_trainings: Console, tmp_path: Path
) -> None:
    page = report_of(two_trainings, tmp_path, "1", "2")
    assert page.links == [] and "http" not in page.raw
    assert page.heads[:3] == ["What was reached", "Settings that differ", "Applied options that differ"]
    assert page.charts[:2] == ["loss", "valid_mrr"]
    chart = page.raw.partition(">loss<")[2].partition("</figure>")[0]
    assert set(re.findall(r"hue\d", chart)) == {"hue0", "hue1"}
    first, second = (two_trainings.show(number)["metric"]["test_mrr"] for number in (1, 2))
    assert second > first  # with a learning rate of nothing, nothing is learned
    (row,) = re.findall(r"<tr>(<td>test MRR.*?)</tr>", page.raw)
    one, other = re.findall(r'<td class="([^"]*)">([^<]*)', row)
    assert one == ("n", f"{first:.5g}")
    assert other == ("n best", f"★ {second:.5g} · {second / first:.2f}×")
    (differs,) = re.findall(r"<tr>(<td>train.learning_rate.*?)</tr>", page.raw.partition("All settings")[0])
    assert differs.endswith("<td>1e-05</td><td>0.001</td>")


def test_times_of_two_machines_have_no_ratio_and_no_best(run_cli: Console) -> None:
    for seconds in ("0", "0.3"):
        assert run_cli("run", "exec", "--", "sleep", seconds).code == 0
    here = comparison_of(run_cli)
    there = replace(here, environment=(Difference("machine.host", ("one", "other")),))
    took = [re.findall(r"<tr>(<td>took.*?)</tr>", comparison_page(one, ()))[0] for one in (here, there)]
    assert "★" in took[0] and took[0].endswith("×</td>")
    assert "★" not in took[1] and "×</td>" not in took[1]


def comparison_of(run_cli: Console) -> Comparison:
    conn = open_reader(run_cli.home / "kgops.db")
    try:
        return compare(conn, [run for number in (1, 2) if (run := runs.get(conn, number)) is not None])
    finally:
        conn.close()


def test_a_run_that_failed_is_never_the_best(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "false").code != 0
    assert run_cli("run", "exec", "--", "true").code == 0
    comparison = comparison_of(run_cli)
    assert comparison.best(Metric("test_mrr", "", (0.9, 0.1), (None, None))) == []
    both = replace(comparison, runs=(comparison.runs[1], comparison.runs[1]))
    assert both.best(Metric("test_mrr", "", (0.9, 0.1), (None, None))) == [0]
    assert both.best(Metric("test_mae", "", (0.9, 0.1), (None, None))) == [1]
    assert both.best(Metric("their_number", "", (0.9, 0.1), (None, None))) == []


def test_labels_tags_and_log_lines_are_text_whatever_they_hold(run_cli: Console, tmp_path: Path) -> None:
    label = EVIL.replace("\x1b", "")
    run_cli.must("run", "exec", "--label", label, "--", "printf", "%s\\n", EVIL)
    assert run_cli("note", "1", EVIL.replace("\x1b", "")).code == 0
    assert run_cli("report", "1", "--output", str(tmp_path / "page.html")).code == 0
    raw = (tmp_path / "page.html").read_text()
    page = Page(raw)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 3
    assert not {"\x1b", "\u202e"} & set(raw)
    assert run_cli("run", "exec", "--label", label, "--", "printf", "%s\\n", EVIL, EVIL).code == 0
    compared = report_of(run_cli, tmp_path, "1", "2")
    assert "script" not in compared.tags and compared.text.count("<script>alert(1)</script>") >= 3
    assert not {"\x1b", "\u202e"} & set(compared.raw)


def test_nothing_that_is_there_is_written_over_unasked(run_cli: Console, tmp_path: Path) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    target = tmp_path / "page.html"
    target.write_text("mine")
    assert run_cli("report", "1", "--output", str(target)).code == 2
    assert target.read_text() == "mine"
    assert run_cli("report", "1", "--output", str(target), "--force").code == 0
    assert "run 1" in target.read_text()
    assert run_cli("report", "7").code == 2


# --- curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [(1e300, -1e300), (1e-310, 2e-310), (5.0, 5.0 + 1e-15), (1e308, -1e308), (0.0, 1e-300), (-3.0, 1e15)],
)
def test_no_values_are_too_odd_to_be_drawn(values: tuple[float, float]) -> None:
    buckets = tuple(Bucket(1, value, value, value, step, step) for step, value in enumerate(values, 1))
    later = runs.Run(submitted_at=2e9)  # than any step: no curve is one over time
    page = Page(draw(Curve("loss", 2, values[-1], buckets), later))
    assert "nan" not in page.raw and "inf" not in page.raw
    numbers = re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", " ".join(page.lines))
    assert numbers and all(-1 <= float(number) <= 441 for number in numbers)


def test_a_page_says_where_an_imported_run_came_from_and_what_a_tracing_found(
    run_cli: Console, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    labels = ["drug:1", "<b>aspirin", "treats", "treats", "pain", "pain"]
    (folder / "tracin.csv").write_text(
        ",".join(HEADER) + "\n" + ",".join([*labels, "x", "ex", "r", "are", "y", "why", "0.25"]) + "\n"
    )
    assert run_cli("import", folder).code == 0
    assert run_cli("report", "1", "--output", str(tmp_path / "page.html")).code == 0
    page = Page((tmp_path / "page.html").read_text())
    assert f"from {folder}" in page.text and "n/a" in page.text
    assert "<b>aspirin · treats · pain" in page.text and "+0.25" in page.text and "b" not in page.tags
    assert f"from {folder}" in run_cli("show", "1").out
