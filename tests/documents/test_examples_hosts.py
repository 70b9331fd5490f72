"""Examples of help pages about runs of other hosts, typed as they stand, over real SSH; without it test_examples.py
types them at a host that does not answer."""

import re
import shlex
import sys

from ssh_server import Lab, needs_ssh
from test_examples import AT_ONCE, put_before

pytestmark = needs_ssh

# example → what it prints, and the file that it leaves
EXAMPLES = {
    "kgops show lab2:17": (r"\Arun 17 · exec · of lab2\n", None),
    "kgops logs -n 50 lab2:17": (r"\Aloss=0\.125\n\Z", None),
    "kgops report lab2:17 --output lab2-17.html": (r"\Alab2-17\.html\n\Z", "lab2-17.html"),
    "kgops pull lab2:17": (r"\Arun 1: imported from lab2: exec run 17, succeeded: of lab2\n\Z", None),
    "kgops hosts check all": (r"(?m)^lab1: (?s:.*)^lab2: ", None),
}


def test_every_example_about_a_run_of_a_host_is_here() -> None:
    assert {line for line in AT_ONCE if re.search(r"lab\d:\d|check all", line)} == set(EXAMPLES)


def test_examples_about_other_hosts_do_what_they_say(lab: Lab) -> None:
    for name, number in (("lab1", 3), ("lab2", 17)):
        lab.add(name)
        put_before(lab.homes[name], number)
        command = ("run", "exec", "--label", f"of {name}", "--", sys.executable, "-c", "print('loss=0.125')")
        assert lab.there(name)(*command).code == 0
    for line, (prints, leaves) in EXAMPLES.items():
        went = lab.must(*shlex.split(line)[1:])
        assert re.search(prints, went.out), (line, went.out)
        if leaves is not None:
            assert "of lab2" in (lab.console.cwd / leaves).read_text()
