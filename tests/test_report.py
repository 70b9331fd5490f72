"""A run's page needs nothing but itself, and shows text from outside as text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from driving import Console

EVIL = "<script>alert(1)</script> & \x1b[31m\u202edeos"
VOID = {"meta", "rect", "polygon", "polyline", "line"}


class Page(HTMLParser):
    """What a browser would find: its tags, well nested, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_holds_the_whole_run_and_asks_nobody_else(run_cli: Console, tmp_path: Path) -> None:
    flags = ("--dataset", "nations", "--num-epochs", "3", "--embedding-dim", "16")
    assert run_cli("run", "train", *flags, env={"OMP_NUM_THREADS": "1"}).code == 0
    done = run_cli("report", "1", "--output", str(tmp_path / "page.html"))
    assert done.code == 0, done.err
    page = Page((tmp_path / "page.html").read_text())
    assert page.links == []
    assert "http" not in (tmp_path / "page.html").read_text()
    assert page.tags.count("polyline") >= 2  # loss and the seconds of epochs, at least
    for word in (
        "succeeded",
        "predicted of tensors",
        "test_mrr",
        "batch_size",
        "num_epochs = 3",
        "best_model.pt",
    ):
        assert word in page.text
    figure = run_cli.show(1)["figure"]["test_mrr"]
    assert f"{figure:.5g}" in page.text


def test_labels_tags_and_log_lines_are_text_whatever_they_hold(run_cli: Console, tmp_path: Path) -> None:
    label = EVIL.replace("\x1b", "")
    done = run_cli("run", "exec", "--label", label, "--", "printf", "%s\\n", EVIL)
    assert done.code == 0, done.err
    assert run_cli("note", "1", EVIL.replace("\x1b", "")).code == 0
    assert run_cli("report", "1", "--output", str(tmp_path / "page.html")).code == 0
    raw = (tmp_path / "page.html").read_text()
    page = Page(raw)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 3
    assert not {"\x1b", "\u202e"} & set(raw)


def test_nothing_that_is_there_is_written_over_unasked(run_cli: Console, tmp_path: Path) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    target = tmp_path / "page.html"
    target.write_text("mine")
    assert run_cli("report", "1", "--output", str(target)).code == 2
    assert target.read_text() == "mine"
    assert run_cli("report", "1", "--output", str(target), "--force").code == 0
    assert "run 1" in target.read_text()
    assert run_cli("report", "7").code == 2


@pytest.mark.parametrize("where", ["/proc/none/page.html"])
def test_a_place_that_cannot_be_written_is_named(run_cli: Console, where: str) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    done = run_cli("report", "1", "--output", where)
    assert done.code == 1
    assert where in done.err
