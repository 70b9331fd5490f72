"""What a worker under Slurm says and prints arrives whole, however it writes; Slurm's commands are stand-ins."""

import json
import os
import sys
from pathlib import Path

from driving import Console

_SBATCH = """
import os, re, sys
text = open(sys.argv[-1]).read()
folder = re.search(r"^DIR=(\\S+)$", text, re.MULTILINE)[1]
for name in ("log.all", "events.all.jsonl"):
    os.replace(os.path.join(os.environ["READY"], name), os.path.join(folder, name))
open(os.path.join(folder, "exit.all"), "w").write("3")
print(7)
"""
_SQUEUE = "import sys\nsys.exit('slurm_load_jobs error: Invalid job id specified')"
_SCONTROL = "print('JobId=7 JobState=FAILED')"


def relayed(
    run_cli: Console, tmp_path: Path, log: bytes, events: bytes
) -> tuple[bytes, list[dict[str, object]]]:
    """The log and the events of a run whose Slurm job left these files and ended with exit code 3."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, body in (("sbatch", _SBATCH), ("squeue", _SQUEUE), ("scontrol", _SCONTROL), ("scancel", "")):
        (bin_ / name).write_text(f"#!{sys.executable}\n{body}\n")
        (bin_ / name).chmod(0o755)
    (tmp_path / "log.all").write_bytes(log)
    (tmp_path / "events.all.jsonl").write_bytes(events)
    own = {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "READY": str(tmp_path)}
    done = run_cli("run", "train", "--dataset", "nations", "--on", "slurm", env=own)
    assert done.code != 0
    folder = run_cli.folder(1)
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    return (folder / "worker.log").read_bytes(), [json.loads(line) for line in lines]


def note(text: str) -> bytes:
    return json.dumps({"event": "note", "at": 1.0, "text": text}).encode()


def test_progress_bars_and_a_last_line_without_end_arrive_byte_by_byte(
    run_cli: Console, tmp_path: Path
) -> None:
    log = (
        b"".join(b"\r%7d of 400000" % i for i in range(200_000))
        + b"\nbehind it\r\n"
        + b"x" * (5 << 20)
        + b"\nlast"
    )
    found, events = relayed(run_cli, tmp_path, log, note("one") + b"\r" + note("two") + b"\n" + note("last"))
    assert log in found
    texts = [event["text"] for event in events if event["event"] == "note"]
    assert [text for text in texts if text in ("one", "two", "last")] == ["one", "two", "last"]


def test_an_event_too_long_is_replaced_by_one_note_and_the_next_arrives(
    run_cli: Console, tmp_path: Path
) -> None:
    events = note("one") + b"\n" + note("y" * (5 << 20)) + b"\n" + note("two") + b"\n"
    found, arrived = relayed(run_cli, tmp_path, b"printed\n", events)
    assert b"printed\n" in found
    texts = [str(event["text"]) for event in arrived if event["event"] == "note"]
    assert [text for text in texts if text in ("one", "two")] == ["one", "two"]
    assert [text for text in texts if "longer than 1 MiB" in text] == [
        "Part of an event longer than 1 MiB was omitted."
    ]
    assert max(map(len, texts)) < 1000
