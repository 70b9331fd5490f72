"""Secrets among arguments and variables are masked wherever they stand, and what is none is left as it is."""

from pathlib import Path

import pytest

from kgops.jobs import secrets


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (["--api-key", "x", "y"], ["--api-key", "***", "y"]),
        (
            ["--api-key=x", "API_KEY=x", "-password", "x"],
            ["--api-key=***", "API_KEY=***", "-password", "***"],
        ),
        (["--token", "--other", "x"], ["--token", "--other", "x"]),
        (["sh", "-c", "export HF_TOKEN=x; run"], ["sh", "-c", "export HF_TOKEN=***; run"]),
        (["sh", "-c", "cd a && MY_SECRET='a b' run"], ["sh", "-c", "cd a && MY_SECRET=*** run"]),
        (
            ["sh", "-c", 'run --x "$API_TOKEN"; A_KEY=$OTHER b'],
            ["sh", "-c", 'run --x "$API_TOKEN"; A_KEY=$OTHER b'],
        ),
        (["python", "-c", "max(a, key=len)"], ["python", "-c", "max(a, key=len)"]),
        (["--epochs", "3", "name=x"], ["--epochs", "3", "name=x"]),
        (
            ["--passwd", "x", "--auth=x", "--credential", "x"],
            ["--passwd", "***", "--auth=***", "--credential", "***"],
        ),
        (["--pass", "x", "--passphrase=x"], ["--pass", "***", "--passphrase=***"]),
        (["mysql", "-u", "me", "-px", "db"], ["mysql", "-u", "me", "-p<***>", "db"]),
        (["sudo", "/usr/bin/mysqldump", "-psecret"], ["sudo", "/usr/bin/mysqldump", "-p<***>"]),
        (["sh", "-c", "mysql -u me -px db | wc -p8"], ["sh", "-c", "mysql -u me -p<***> db | wc -p8"]),
        (["sshpass", "-p", "x", "ssh", "-p", "22"], ["sshpass", "-p", "***", "ssh", "-p", "22"]),
        (["curl", "-u", "me:x", "--user=me:x"], ["curl", "-u", "me:<***>", "--user=me:<***>"]),
        (["--db", "https://u:x@h/p", "git://a:b@c"], ["--db", "https://u:<***>@h/p", "git://a:<***>@c"]),
        (["clone", "https://ghp_0123456789abcdef@github.com/x"], ["clone", "https://<***>@github.com/x"]),
        (["get", "https://h/p?a=1&api_key=x&b=2"], ["get", "https://h/p?a=1&api_key=<***>&b=2"]),
        (["curl", "-H", "Authorization: Bearer x"], ["curl", "-H", "Authorization: Bearer <***>"]),
        (
            ["Authorization: Basic dXNlcjpYWA==", "X-Api-Key: x"],
            ["Authorization: Basic <***>", "X-Api-Key: <***>"],
        ),
        (["PRIVATE-TOKEN: x", "--header=Bearer abcdef"], ["PRIVATE-TOKEN: <***>", "--header=Bearer <***>"]),
        (
            ["sh", "-c", "curl -H 'Authorization: Bearer x' -H \"X-Api-Key: x\" h"],
            ["sh", "-c", "curl -H 'Authorization: Bearer <***>' -H \"X-Api-Key: <***>\" h"],
        ),
        (["sh", "-c", "curl -u 'me:x' h"], ["sh", "-c", "curl -u 'me:<***>' h"]),
        (['{"api_key": "x", "n": "y"}'], ['{"api_key": "<***>", "n": "y"}']),
        (['{\\"token\\": \\"x\\"}'], ['{\\"token\\": \\"<***>\\"}']),
        (
            ["sh", "-c", "go --api-key x --n 3 --token=y"],
            ["sh", "-c", "go --api-key <***> --n 3 --token=<***>"],
        ),
        (["python", "-c", "login(password='x')"], ["python", "-c", "login(password='<***>')"]),
        (
            ["sh", "-c", "a; DB_PASSWD=x MY_CREDENTIALS=x go"],
            ["sh", "-c", "a; DB_PASSWD=*** MY_CREDENTIALS=*** go"],
        ),
    ],
    ids=range(28),
)
def test_secrets_among_arguments_are_masked_and_known_to_be(given_: list[str], kept: list[str]) -> None:
    assert secrets.masked_arguments(given_) == kept
    assert secrets.is_masked(kept) == (given_ != kept)


@pytest.mark.parametrize(
    "harmless",
    [
        ["serve", "-p8080"],
        ["gcc", "-pthread", "-pipe"],
        ["ssh", "-p", "22", "me@host"],
        ["mysql", "-p", "db"],  # asks for it
        ["sh", "-c", 'mysql -p"$PW" db; curl -H "Authorization: Bearer $TOKEN" -u "me:$PW" h'],
        ["--tokenizer", "bert", "--keyword", "x", "--author=me", "--authors", "a"],
        ["python", "-c", "f(key=len); print('*** done ***')"],
        ["http://host:8080/path", "git@github.com:me/it.git", "ssh://git@host/x"],
        ["sh", "-c", 'curl -u me:$PW --user "me:$PW" h; sshpass -p $PW ssh h'],
        ["echo", "a: b", "http://h/?page=2"],
    ],
    ids=range(10),
)
def test_what_is_no_secret_is_left_as_it_is(harmless: list[str]) -> None:
    assert secrets.masked_arguments(harmless, {}) == harmless
    assert not secrets.is_masked(harmless)


def test_the_value_of_a_secret_variable_is_masked_wherever_it_stands(tmp_path: Path) -> None:
    environment = {
        "HF_TOKEN": "hunter-22",
        "A_KEY": "1",
        "USE_AUTH": "true",
        "SSH_KEY": str(tmp_path),
        "PYTHONPATH": "/x/hunter-22/y",
    }
    given = ["run", "--name=hunter-22", "ahunter-22b", "1", "true", f"{tmp_path}/x"]
    kept = secrets.masked_arguments(given, environment)
    assert kept == ["run", "--name=<***>", "a<***>b", "1", "true", f"{tmp_path}/x"]
    assert secrets.is_masked(kept)
    assert secrets.masked_environment(environment)["PYTHONPATH"] == "/x/<***>/y"
