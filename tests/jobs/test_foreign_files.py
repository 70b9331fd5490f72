"""Over 300 random commands no file is replaced or removed that is not the run's: the checks and copies of real runs."""

import random
import shutil
from pathlib import Path

import pytest
from foreign_files import Command, Place

from kgops.errors import KgopsError
from kgops.jobs import manifest
from kgops.jobs.job import Job
from kgops.maths.worker.outputs import Publication, make_output_folder
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job
from kgops.workloads.outputs import must_be_free

COMMANDS = 300
_MODELS = ("best_model.pt", "final_model.pt", "checkpoints/checkpoint_epoch_0000002.pt", "config.json")
_ANSWERS = {
    "train": (*_MODELS, "training_history.json"),
    "tracin": ("tracin.json", "tracin.csv"),
    "predict": ("predictions.json", "predictions.csv"),
}


def _job(command: Command) -> Job:
    asked = {"train": {}, "tracin": {"test_triple": "a,r,b"}, "predict": {"head": "a", "relation": "r"}}
    settings = {name: str(value) for name, value in command.settings.items()}
    table = {"dataset": "nations", **asked[command.workload], **settings}
    return read_job({"workload": command.workload, command.workload: table}, "a test")


def _results(folder: Path, command: Command, draw: random.Random) -> dict[Path, str]:
    """As a worker of this job leaves them."""
    names = [
        *_ANSWERS[command.workload],
        *([] if draw.random() < 0.5 else ["checkpoints/checkpoint_epoch_0000004.pt"]),
    ]
    paths = [
        folder / "results" / name
        for name in (names if command.workload == "train" else _ANSWERS[command.workload])
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name} {draw.random()}")
    return {path: manifest.digest_of(path)[0] for path in paths}


def _run(place: Place, command: Command, folder: Path) -> bool:
    """What console and worker do about outputs; False where it was refused."""
    try:
        job = _job(command)
        must_be_free(job, place.root, force=command.force)
        if place.draw.random() < 0.2:
            place.meddle()
        folder.mkdir()
        digests = _results(folder, command, place.draw)
        make_output_folder(job, folder)
    except KgopsError:
        return False
    if place.draw.random() < 0.2:
        place.meddle()
    before = place.seen()
    try:
        Publication(job, folder, folder / "results", digests, Reporter(folder)).copy()
        return True
    except KgopsError:
        return False
    finally:
        after = place.seen()
        assert place.harmed(command, before, after) == [], command
        place.note_written(before, after)


def test_random_commands_harm_no_file_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    for name in _MODELS:
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(name)
    place = Place(tmp_path / "place", model, random.Random(48))
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    done = {False: 0, True: 0}
    for number in range(COMMANDS):
        command = place.command(tuple(_ANSWERS))
        monkeypatch.setenv("KGOPS_FORCE", "1" if command.force else "")
        monkeypatch.setenv(manifest.OWNER, f"{number:016x}#1")
        if _run(place, command, tmp_path / f"run-{number}"):
            done[command.force] += 1
        elif number % 50 == 49:  # room for others: a person cleans up
            shutil.rmtree(place.root / "out", ignore_errors=True)
    assert min(done.values()) > COMMANDS // 20, done  # not all were refused
