"""The list of hosts: what a name, an address and a path may be, and what they become on a command line."""

import shlex
import threading
from pathlib import Path

import pytest
from driving import Console

from kgops.errors import Usage
from kgops.hosts import registry
from kgops.hosts.connection import argv_of
from kgops.hosts.registry import Host
from kgops.settings import Home


@pytest.mark.parametrize(
    "name", ["", "-oProxyCommand=id", "Lab", "a b", "a/b", "..", "a;b", "x" * 64, "all", "a\n", "ä"]
)
def test_names_that_are_no_names_are_refused(home: Path, name: str) -> None:
    with pytest.raises(Usage):
        registry.add(Home(home), Host(name, "lab1"))
    assert registry.read(Home(home)) == {}


@pytest.mark.parametrize(
    "address",
    ["-oProxyCommand=id", "a@-b", "$(id)", "a;id", "a b", "", "a@b@c", "`id`", "a\nb", "a'b", "x" * 400],
)
def test_addresses_that_a_shell_or_ssh_would_read_are_refused(home: Path, address: str) -> None:
    with pytest.raises(Usage):
        registry.add(Home(home), Host("lab1", address))


def test_what_is_added_is_read_back(home: Path) -> None:
    hosts = [
        Host("lab1", "ada@10.0.0.1", "~/it's here/kgops", "ours"),
        Host("lab.2", "lab2", "kgops", None),
        Host("v6", "[::1]", "/opt/kgops", "ours"),
    ]
    for host in hosts:
        assert registry.add(Home(home), host)
    assert list(registry.read(Home(home)).values()) == hosts
    assert registry.pick(registry.read(Home(home)), "ours,lab1") == [hosts[0], hosts[2]]
    with pytest.raises(Usage, match="did you mean 'lab1'"):
        registry.pick(registry.read(Home(home)), "lab")


def test_hosts_added_at_the_same_time_are_all_kept(home: Path) -> None:
    threads = [
        threading.Thread(target=registry.add, args=(Home(home), Host(f"lab{i}", f"lab{i}"))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(registry.read(Home(home))) == [f"lab{i}" for i in range(8)]


@pytest.mark.parametrize(
    "text",
    [
        "[lab1",
        "lab1 = 3",
        "[lab1]\naddress = 3",
        "[lab1]\npassword = 'x'",
        "[lab1]\naddress = '-oX'",
        "['-x']",
    ],
)
def test_a_list_that_is_not_valid_is_refused_by_its_path(home: Path, text: str) -> None:
    (home / "hosts.toml").write_text(text)
    with pytest.raises(Usage, match=r"hosts\.toml"):
        registry.read(Home(home))


@pytest.mark.parametrize("wrong", ["[Bad]", "Bad = 3"])
def test_hosts_are_changed_and_removed_beside_a_table_that_is_not_valid(run_cli: Console, wrong: str) -> None:
    assert run_cli("hosts").err.startswith("No host is named yet")
    listed = run_cli.home / "hosts.toml"
    listed.write_text(f"{wrong}\n\n[lab1]\naddress = 'ada@lab1'\n\n[lab2]\nadress = 'ada@lab2'\n")
    assert "`kgops hosts remove NAME`" in run_cli("hosts").err
    done = run_cli("hosts", "remove", "Bad")
    assert (done.code, done.err) == (0, "Removed Bad.\n")
    assert "'lab2' takes the texts" in run_cli("hosts").err
    replaced = run_cli("hosts", "add", "lab2", "ada@new")
    assert (replaced.code, replaced.err.split(".")[0]) == (0, "Changed host lab2"), replaced.err
    found = run_cli("hosts", "--json").json()
    assert [(one["name"], one["address"]) for one in found] == [("lab1", "ada@lab1"), ("lab2", "ada@new")]
    assert run_cli("hosts", "remove", "lab1").code == 0
    assert [one["name"] for one in run_cli("hosts", "--json").json()] == ["lab2"]
    gone = run_cli("hosts", "remove", "lab1")
    assert gone.code == 2 and "there is no host 'lab1'; did you mean 'lab2'?" in gone.err


def test_words_for_the_other_side_are_quoted_one_by_one(home: Path) -> None:
    words = ("runs", "a b", "$(id)", "it's", "-x")
    argv = argv_of(Home(home), Host("lab1", "ada@lab1", "~/my kgops/bin"), words)
    assert argv[-3:-1] == ["--", "ada@lab1"]
    path, *rest = shlex.split(argv[-1])
    assert (path, *rest) == ("~/my kgops/bin", *words)
    assert argv[-1].startswith("~/'my kgops/bin' ")
    assert "BatchMode=yes" in argv
    assert "ForwardAgent=no" in argv
