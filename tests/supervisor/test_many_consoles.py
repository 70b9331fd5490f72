"""Twenty consoles at once in one home, the first of all commands among them: each is answered, and no run is lost."""

from __future__ import annotations

import random
import re
from collections import Counter

from driving import Console, all_of, files_of_runs, patience, wait_for

BEGIN = ["run", "exec", "--detach", "--", "true"]
FOLLOW = ["run", "exec", "--", "true"]
OTHERS = (
    ["runs"],
    ["runs", "--json"],
    ["show", "last"],
    ["stop", "last"],
    ["stop", "1"],
    ["delete", "1", "--yes"],
    ["delete", "last", "--yes"],
    ["note", "1", "x"],
    ["logs", "1"],
)


def test_twenty_consoles_at_once_lose_no_run(run_cli: Console) -> None:
    assert run_cli(*FOLLOW).code == 0
    commands = [*[BEGIN] * 9, *[FOLLOW] * 2, *OTHERS]
    random.Random(0).shuffle(commands)
    children = [(args, run_cli.start(*args)) for args in commands]
    given = []
    for args, child in children:
        out, err = child.communicate(timeout=patience())
        told = err.decode()
        assert "Traceback" not in told, (args, told)
        assert "is locked" not in told, (args, told)
        if child.returncode == 2:
            assert re.search(
                "there is no run|has just been deleted|is being deleted|was deleted by another command", told
            ), (args, told)
        if args[0] == "run" and child.returncode not in (0, 130):  # another console may have stopped it
            raise AssertionError((args, child.returncode, told))
        if args is BEGIN:
            given.append(int(out))
    assert len(set(given)) == len(given) == 9
    wait_for(lambda: not all_of(run_cli.home), "every supervisor to leave")
    listed = run_cli("runs", "--json", "--limit", "100").json()
    assert Counter(run["state"] for run in listed).keys() <= {"succeeded", "cancelled"}
    assert len({run["id"] for run in listed}) >= 10  # of twelve at most two were deleted
    assert files_of_runs(run_cli) == {run["folder"] for run in listed}
    assert list((run_cli.home / "pending").iterdir()) == []
