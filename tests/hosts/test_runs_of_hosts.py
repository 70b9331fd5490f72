"""`kgops show`, `logs`, `report` and `compare --html` of runs of other hosts, over real SSH."""

import subprocess
import sys

from driving import wait_for
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh

LOSSES = "for step in range(1, 5): print(f'loss {4 / step} step {step}', flush=True)"
REGEX = r"loss (?P<loss>[0-9.]+) step (?P<step>[0-9]+)"


def test_show_prints_the_page_there_cleaned_and_json_names_the_host(lab: Lab) -> None:
    there = lab.add("lab1")
    words = ("--label", "of lab1", "--metric-regex", REGEX)
    there.must("run", "exec", *words, "--", sys.executable, "-c", LOSSES)
    assert there("note", "1", "it said \x1b[2J").code == 0
    page = lab.must("show", "lab1:last")
    assert page.out.startswith("run 1 · exec · of lab1\n")
    assert "it said �[2J" in page.out
    table = lab.kgops("show", "lab1:1", "--json").json()
    assert (table["host"], table["id"], table["label"]) == ("lab1", 1, "of lab1")
    missing = lab.kgops("show", "lab1:9")
    assert missing.code == 2
    assert "lab1: there is no run 9" in missing.err
    assert lab.kgops("show", "lab7:1").code == 2


def test_logs_of_a_host_are_followed_to_the_runs_end_and_end_with_their_reader(lab: Lab) -> None:
    there, flag = lab.add("lab1"), lab.folder / "flag"
    waits = f"echo first; while ! test -e {flag}; do sleep 0.05; done; echo second"
    number = there.detach("sh", "-c", waits)
    argv = lab.console.argv("logs", "-f", f"lab1:{number}")
    environment = {"KGOPS_HOME": str(lab.console.home), "PATH": lab.path}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        follows = lab.feeds("lab1")
        assert follows
        reader.kill()
    wait_for(lambda: not set(lab.feeds("lab1")) & set(follows) or None, "its end there")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        flag.touch()
        assert reader.stdout.read() == b"second\n"
    assert reader.returncode == 0


def test_a_report_is_made_of_a_run_that_still_goes_on_there(lab: Lab) -> None:
    there = lab.add("lab1")
    number = there.going(
        *(sys.executable, "-c", f"{LOSSES}\nprint('<b>end', flush=True)\nimport time; time.sleep(1000)"),
        flags=("--label", "<i>far", "--metric-regex", REGEX),
    )
    wait_for(lambda: any(one["n"] == 4 for one in there.show(number)["series"]) or None, "four points")
    target = lab.folder / "page.html"
    lab.must("report", f"lab1:{number}", "--output", target)
    page = target.read_text()
    assert f"run lab1:{number} · exec · &lt;i&gt;far" in page
    assert "running" in page and "&lt;b&gt;end" in page and "<svg" in page
    assert "<i>" not in page
    again = lab.kgops("report", f"lab1:{number}", "--output", target)
    assert again.code != 0, "it is there already"
    assert lab.kgops("report", "lab1:9").code == 1
    assert lab.kgops("runs", "--json").json() == []


def test_a_report_has_the_quality_of_a_model_there_and_says_where_influences_are(lab: Lab) -> None:
    there = lab.add("lab1")
    there.must("run", "train", "--dataset", "nations", "--num-epochs", "1", "--embedding-dim", "8")
    there.must("run", "tracin", "--run", "1", "--max-triples", "1", "--top-k", "1")
    for number in (1, 2):
        lab.must("report", f"lab1:{number}", "--output", lab.folder / f"{number}.html")
    trained, traced = ((lab.folder / f"{number}.html").read_text() for number in (1, 2))
    assert "Quality by direction" in trained and "95 % interval" in trained
    assert "kgops pull" not in trained
    assert (
        "Influences are not in this page: they lie on the host. kgops pull lab1:2 imports the run" in traced
    )
