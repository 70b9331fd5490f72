"""A host that answers without end, or packs little into much: it is refused, and takes little memory here."""

import json
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest
from driving import QUICK, patience
from ssh_server import Lab, needs_ssh

from kgops.hosts.protocol import LONGEST_LINE

pytestmark = needs_ssh

# A small process starts the command, whose memory is told to its parent: a fork of the tests would count theirs.
# No command may take more than 1 GiB of addresses: what is not refused ends, and spares the machine.
WATCHED = """
import os, resource, sys
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, used = os.wait4(child, 0)
open(sys.argv[1], "w").write(str(used.ru_maxrss >> 10))
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""
MOST_MIB = 160  # a command that asks a host takes 50


def refused(lab: Lab, *args: str, code: int = 1) -> str:
    """What the command prints; it took little memory."""
    peak = lab.folder / "peak"
    done = subprocess.run(
        [*QUICK, WATCHED, str(peak), *lab.console.argv(*args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=lab.console.environment({"PATH": lab.path}),
        cwd=lab.console.cwd,
        timeout=patience(),
        text=True,
    )
    assert done.returncode == code, done.stdout
    assert "Traceback" not in done.stdout
    assert int(peak.read_text()) < MOST_MIB
    return done.stdout


def repeats(folder: Path, block: bytes, pause_s: float = 0.0) -> str:
    """A host that says the same block again and again: pauses keep it below any rate."""
    file = folder / "block"
    file.write_bytes(block)
    return f"#!/bin/sh\nwhile cat {shlex.quote(str(file))}; do sleep {pause_s}; done\n"


@pytest.mark.parametrize(
    "args",
    [
        ("runs", "--hosts", "evil"),
        ("stop", "evil:1"),
        ("run", "--host", "evil", "exec", "--", "true"),
    ],
    ids=["runs", "stop", "run"],
)
def test_an_answer_without_end_is_cut_at_its_total(lab: Lab, args: tuple[str, ...]) -> None:
    lab.add("evil", program=repeats(lab.folder, b"x" * 999_999 + b"\n", pause_s=0.2))
    said = refused(lab, *args)
    assert "it sent more than 8,388,608 bytes" in said


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"\n" * 200_001, "more than 200,000 lines"),
        (b"x" * (LONGEST_LINE + 1), "a line of more than 1,048,576 bytes"),
    ],
)
def test_an_answer_of_many_lines_or_a_long_one_is_refused(lab: Lab, answer: bytes, problem: str) -> None:
    (lab.folder / "answer").write_bytes(answer)
    lab.add("evil", program=f"#!/bin/sh\nexec cat {lab.folder}/answer\n")
    said = refused(lab, "runs", "--hosts", "evil")
    assert problem in said


def test_an_answer_of_many_empty_values_is_no_list(lab: Lab) -> None:
    (lab.folder / "lists").write_bytes(
        b"[" + b"[],\n" * 150_000 + b"[],[],[],[],[],[],[]," * 300_000 + b"0]\n"
    )
    lab.add("evil", program=f"#!/bin/sh\nfold -w 90000 {lab.folder}/lists\n")
    said = refused(lab, "runs", "--hosts", "evil")
    assert "what it printed is not a list of runs" in said


def pulled(lab: Lab, answers: str) -> str:
    """A run whose archive is whole comes without the record, about which its host answers so."""
    there = lab.add("lab1")
    assert there("run", "exec", "--", "true").code == 0
    assert there("export", "1", "--to", "tar", "--output", str(lab.folder / "run.tar")).code == 0
    archive = f'#!/bin/sh\ncase "$*" in *tar*) exec cat {lab.folder}/run.tar;; esac\n'
    lab.add("evil", program=archive + answers.removeprefix("#!/bin/sh\n"))
    return refused(lab, "pull", "evil:1", code=0)


@pytest.mark.parametrize("block", [b"x" * 1_000_000, b"[],[],[],[],"], ids=["text", "lists"])
def test_a_record_without_end_is_not_read(lab: Lab, block: bytes) -> None:
    said = pulled(lab, repeats(lab.folder, block * (1_000_000 // len(block))))
    assert "evil: it sent more than 16 MiB" in said


@pytest.mark.parametrize(
    "text", ['{"a": [' + "[]," * 2_500_000, '{"a": "' + "\U0001f600" * 3_500_000], ids=["values", "signs"]
)
def test_a_record_that_swells_when_it_is_read_is_refused(lab: Lab, text: str) -> None:
    (lab.folder / "record").write_text(text, encoding="utf-8")
    said = pulled(lab, f"#!/bin/sh\ncat {lab.folder}/record\n")
    assert "no record that kgops reads" in said


def header(kind: bytes, size: int, **more: str) -> bytes:
    entry = tarfile.TarInfo("a")
    entry.type, entry.size, entry.pax_headers = kind, size, more
    return entry.tobuf(tarfile.PAX_FORMAT if more else tarfile.GNU_FORMAT)


BIG = 80 << 20
SPARSE = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "a",
    "GNU.sparse.realsize": "1",
}
BOMBS = {
    "extended": (header(tarfile.XHDTYPE, BIG), b"x"),
    "global": (header(tarfile.XGLTYPE, BIG), b"x"),
    "long name": (header(tarfile.GNUTYPE_LONGNAME, BIG), b"x"),
    "long link": (header(tarfile.GNUTYPE_LONGLINK, BIG), b"x"),
    "sparse": (header(tarfile.GNUTYPE_SPARSE, BIG), b"x"),
    "sparse map": (header(tarfile.REGTYPE, BIG, **SPARSE), b"90000000\n" + b"1\n" * 500),
    "headers": (b"", header(tarfile.XHDTYPE, 0)),
    "sizes below zero": (header(tarfile.REGTYPE, -(1 << 40)), b"x"),
    "after its end": (bytes(512), bytes(512)),
    "files": (b"", header(tarfile.REGTYPE, 0)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_archive_that_swells_is_refused_at_its_header(lab: Lab, name: str) -> None:
    begin, block = BOMBS[name]
    (lab.folder / "begin").write_bytes(begin)
    whole = repeats(lab.folder, block * ((1 << 20) // len(block)))
    lab.add("evil", program=whole.replace("while", f"cat {lab.folder}/begin\nwhile"))
    said = refused(lab, "pull", "evil:1")
    assert "evil: the archive " in said or "evil: what came is no archive of files" in said
    assert not list(lab.console.home.glob(".pull-*"))


def test_names_too_long_for_a_header_come_whole(lab: Lab) -> None:
    there = lab.add("lab1")
    deep = f"{'folder' * 20}/{'ü' * 100}/{'name' * 30}"
    made = f'mkdir -p "$KGOPS_RUN_FOLDER/results/{deep}" && echo 7 > "$KGOPS_RUN_FOLDER/results/{deep}/x"'
    assert there("run", "exec", "--", "sh", "-c", made).code == 0
    assert lab.kgops("pull", "lab1:1").code == 0
    assert (lab.console.folder(1) / "results" / deep / "x").read_text() == "7\n"
    assert json.loads(lab.console("show", "1", "--json").out)["state"] == "succeeded"
