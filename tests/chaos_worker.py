"""A worker for the kill tests: counts units, remembers where it was, and tells the truth outside the home.

Usage: chaos_worker.py TRUTH_FOLDER UNITS SECONDS_PER_UNIT [GAP]
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from gaps import wait_to_be_killed


def main() -> None:
    truth, units, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    gap = sys.argv[4] if len(sys.argv) > 4 else None
    truth.mkdir(parents=True, exist_ok=True)
    # Close-on-exec, so that only this very process holds it: two workers of one run at a time would meet here.
    alone = os.open(truth / "alone.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (truth / "TWICE").touch()
    with (truth / "starts").open("a") as starts:
        starts.write(f"{os.environ['KGOPS_ATTEMPT']} {os.getpid()}\n")
    # One grandchild stays in our session, the other leaves it and closes all it inherited.
    subprocess.Popen(["sleep", "600"], close_fds=False)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    state = truth / "state"
    begin = int(state.read_text()) if state.exists() else 0
    events = os.open(os.environ["KGOPS_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for unit in range(begin, units):
        time.sleep(seconds)
        line = {"event": "metric", "at": time.time(), "name": "unit", "value": unit, "step": unit}
        os.write(events, json.dumps(line).encode() + b"\n")
        new = state.with_suffix(".new")
        new.write_text(str(unit + 1))
        new.rename(state)
        wait_to_be_killed(gap)
    (truth / "finished").touch()


if __name__ == "__main__":
    main()
