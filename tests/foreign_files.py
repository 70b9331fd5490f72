"""Random commands whose inputs and outputs overlap, are linked or lie in a home; and what they did to other files."""

import hashlib
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LEDGER = "kgops-files.json"
Seen = dict[Path, tuple[int, str]]


@dataclass
class Command:
    workload: str
    settings: dict[str, Any]
    force: bool

    def words(self, small: dict[str, tuple[str, ...]]) -> list[str]:
        """As a person types it."""
        named = [(f"--{name.replace('_', '-')}", str(value)) for name, value in self.settings.items()]
        flags = [word for pair in named for word in pair]
        return ["run", self.workload, *flags, *small[self.workload], *(["--force"] if self.force else [])]


@dataclass
class Place:
    """A folder of a person with models, data, links and a home; `model` is a real training's results."""

    root: Path
    model: Path
    draw: random.Random
    run: Path | None = None  # the folder of a run in a real home
    written: dict[Path, set[str]] = field(default_factory=dict)  # by kgops: digests that a file had

    def __post_init__(self) -> None:
        for name in ("mine", "mine/models", "home/runs/0001-train-x", "home/pending", "data"):
            (self.root / name).mkdir(parents=True)
        for name in ("mine/models/a", "mine/models/b", "home/runs/0001-train-x/results"):
            shutil.copytree(self.model, self.root / name)
        for name in (
            "home/kgops.db",
            "home/runs/0001-train-x/plan.json",
            "home/runs/0001-train-x/outcome.slot",
        ):
            (self.root / name).write_text("{}")
        for name in (
            "mine/config.json",
            "mine/own.csv",
            "mine/notes.txt",
            "data/own.json",
            "data/predictions.csv",
        ):
            (self.root / name).write_text(name)
        (self.root / "data/train.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
        os.link(self.root / "mine/models/a/final_model.pt", self.root / "mine/final_model.pt")
        os.link(self.root / "data/train.txt", self.root / "mine/answers.csv")
        links = {
            "to-models": "mine/models/a",
            "to-home": self.run or "home/runs/0001-train-x",
            "to-data": "data",
            "own.json": "data/own.json",
            "nowhere": "data/not-there",
            "circle": "circle",
            "deep": "to-models/checkpoints",
        }
        for name, target in links.items():
            (self.root / name).symlink_to(self.root / target)

    def command(self, workloads: tuple[str, ...]) -> Command:
        workload, draw = self.draw.choice(workloads), self.draw
        settings: dict[str, Any] = {}
        if workload != "train":
            folder = self._some(
                ("mine/models/a", "mine/models/b", "to-models", "mine/models/a/../b", "out/one")
            )
            settings["model_path"] = folder / "final_model.pt"
            if draw.random() < 0.5 or workload == "tracin":
                settings["checkpoint_dir"] = folder / "checkpoints"
        outputs = draw.choice((("output_dir",), ("output",), ("output_dir", "output")))
        if workload == "train":
            outputs = ("output_dir",)
        for name in outputs:
            settings[name] = self._folder() if name == "output_dir" else self._file()
        return Command(workload, settings, force=draw.random() < 0.5)

    def _folder(self) -> Path:
        below = self.draw.choice(("", "", "", "new", "results", "checkpoints", "..", "../out/one"))
        return self._some(_PLACES) / below

    def _file(self) -> Path:
        name = self.draw.choice(
            ("own.json", "own.csv", "config.json", "answers.csv", "predictions.csv", "x.json", "a/b/c.csv")
        )
        return self._some(_PLACES) / name

    def _some(self, names: tuple[str, ...]) -> Path:
        return self.root / self.draw.choice(names)

    def meddle(self) -> None:
        """A person edits or adds a file somewhere, or puts a link where kgops may write."""
        folder = self._some(("out/one", "out/two", "out", "mine"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.draw.choice(
            ("best_model.pt", "config.json", "tracin.csv", "predictions.csv", "new.txt")
        )
        if path.is_symlink() or self.draw.random() < 0.3:
            path.unlink(missing_ok=True)
            path.symlink_to(self.root / "data/own.json")
        else:
            path.write_text(f"edited {self.draw.random()}")

    def seen(self) -> Seen:
        """Every file, with its inode and digest; a link is its target's name."""
        found: Seen = {}
        for root in (self.root, *([self.run] if self.run else [])):
            for path in (Path(folder, name) for folder, _, names in os.walk(root) for name in names):
                if path.name != LEDGER:
                    content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
                    found[path] = path.lstat().st_ino, hashlib.sha256(content).hexdigest()
        return found

    def harmed(self, command: Command, before: Seen, after: Seen) -> list[Path]:
        """Files that the command changed or removed, apart from those that `--force` lets it: kgops' own, as it left
        them, and the output file that the person named. Inputs and runs of a home are never let."""
        changed = [path for path, was in before.items() if after.get(path) != was]
        if not command.force:
            return changed
        named = Path(os.path.realpath(command.settings.get("output", "/")))
        inputs = [
            Path(os.path.realpath(value)) for key, value in command.settings.items() if "output" not in key
        ]
        return [
            path
            for path in changed
            if path.is_relative_to(self.root / "home")
            or not path.is_relative_to(self.root)
            or any(path == one or path.is_relative_to(one) for one in inputs)
            or (path != named and before[path][1] not in self.written.get(path, ()))
        ]

    def note_written(self, before: Seen, after: Seen) -> None:
        for path, now in after.items():
            if before.get(path) != now:
                self.written.setdefault(path, set()).add(now[1])


_PLACES = (
    *("out/one", "out/one", "out/two", "out/two", "out", "mine", "mine/models", "mine/models/a", "data"),
    *("home", "home/runs", "home/runs/0001-train-x", "to-models", "to-home", "to-data", "nowhere", "deep"),
    *("circle", "fresh", "fresh/deeper", "out/one/../two", ""),
)
