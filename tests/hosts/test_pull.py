"""`kgops pull`: a run of another host comes with its files, and an archive that is none brings nothing."""

import io
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from disks import small_disk
from driving import Console, wait_for
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh


def test_a_run_comes_with_its_log_and_its_folder(lab: Lab) -> None:
    there = lab.add("lab1")
    said = 'echo said there; echo 1 > "$KGOPS_RUN_FOLDER/results/a b"'
    there("run", "exec", "--label", "of lab1", "--", "sh", "-c", said)
    done = lab.must("pull", "lab1:1")
    assert done.out == "run 1: imported from lab1: exec run 1, succeeded: of lab1\n"
    here = lab.console
    assert (here.folder(1) / "worker.log").read_text() == (there.folder(1) / "worker.log").read_text()
    assert (here.folder(1) / "results/a b").read_text() == "1\n"
    assert here.show(1)["state"] == "succeeded"
    assert re.search(r"imported .* from lab1:1\n", here("show", "1").out)
    again = lab.must("pull", "lab1:last")
    assert again.err.startswith("already imported as run 1")
    assert not list(here.home.glob(".pull-*"))
    assert lab.kgops("pull", "lab1:last", "--twice").code == 0
    assert re.search(r"imported .* from lab1:1\n", here("show", "2").out)


def test_a_run_comes_with_what_its_record_has_beside_its_files(lab: Lab) -> None:
    there, here = lab.add("lab1"), lab.console
    script = "i=0; while [ ! -e gate ]; do echo loss=$i; i=$((i+1)); sleep 0.02; done"
    flags = ("--metric-regex", r"loss=(?P<loss>\S+)", "--tag", "paper")
    number = there.detach("sh", "-c", script, flags=flags)
    wait_for(lambda: (run := there.run(number)) is not None and run.peak_host_mib, "a sample of its memory")
    (there.cwd / "gate").touch()
    there.ended(number)
    assert there("note", "1", "best so far").code == 0
    done = lab.kgops("pull", "lab1:last")
    assert (done.code, done.err) == (0, "")
    original, copy = there.show(1), here.show(1)
    for key in ("peak_host_mib", "peak_gpu_mib", "tag", "series"):
        assert copy[key] == original[key], key
    assert [note["text"] for note in copy["note"]] == ["best so far"]
    assert [one["peak_host_mib"] for one in copy["attempt"]] == [original["peak_host_mib"]]


def test_a_run_that_is_not_there_or_has_not_ended_is_refused(lab: Lab) -> None:
    there = lab.add("lab1")
    number = there.going("sleep", "300")
    unended = lab.kgops("pull", f"lab1:{number}")
    assert unended.code == 1
    assert "has not ended" in unended.err
    assert "there is no run 7" in lab.kgops("pull", "lab1:7").err
    assert lab.kgops("pull", "lab2:1").code == 2
    assert lab.kgops("pull", "lab1:../1").code == 2
    assert lab.kgops("runs", "--json").json() == []


def test_a_small_run_comes_to_a_disk_with_little_space(lab: Lab, tmp_path: Path) -> None:
    lab.add("lab1")
    fill = 'head -c "$0" /dev/zero | tr "\\0" x > "$KGOPS_RUN_FOLDER/results/large"'
    for size in ("1000", "60000000"):
        assert lab.there("lab1")("run", "exec", "--", "sh", "-c", fill, size).code == 0
    with small_disk(tmp_path / "little", "size=48m") as disk:
        little = Console(disk.path / "home", tmp_path)
        little.home.mkdir(mode=0o700)
        shutil.copy(lab.console.home / "hosts.toml", little.home)
        small = little("pull", "lab1:1", env={"PATH": lab.path})
        assert (small.code, small.out.split(":")[0]) == (0, "run 1"), small.err
        large = little("pull", "lab1:2", env={"PATH": lab.path})
        assert large.code == 1
        said = r"Error: the archive takes 57\.\d MiB or more; 4\d\.\d MiB are free in \S+/home, and [56]\.\d MiB of"
        assert re.match(said, large.err), large.err
        assert not list(little.home.glob(".pull-*"))


def link(name: str, to: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    return entry


@pytest.mark.parametrize(
    "entries",
    [
        [tarfile.TarInfo("../escaped")],
        [tarfile.TarInfo("/tmp/escaped")],
        [tarfile.TarInfo("a/../../escaped")],
        [link("results", "/")],
        [tarfile.TarInfo("plan.json"), tarfile.TarInfo("plan.json")],
        [tarfile.TarInfo("plan.json"), tarfile.TarInfo("plan.json/below")],
        [],
    ],
    ids=["above", "absolute", "through", "link", "twice", "below a file", "nothing"],
)
def test_an_archive_that_leaves_its_folder_is_refused(lab: Lab, entries: list[tarfile.TarInfo]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry)
    (lab.folder / "evil.tar").write_bytes(packed.getvalue())
    lab.add("evil", program=f"#!/bin/sh\ncat {lab.folder}/evil.tar\n")
    before = set(Path(lab.console.home.parent).rglob("*escaped*"))
    done = lab.kgops("pull", "evil:1")
    assert done.code in (1, 2)
    assert done.err.count("Error: ") == 1, done.err
    assert "Traceback" not in done.err
    assert set(Path(lab.console.home.parent).rglob("*escaped*")) == before
    assert not list(lab.console.home.glob(".pull-*"))
    assert lab.kgops("runs", "--json").json() == []
