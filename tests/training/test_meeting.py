"""DistributedGroup of one training find each other, whoever was there before them and however late somebody comes."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed

from kgops.training.data_parallel import DistributedGroup, agree_on_prefix

dist: Any = torch.distributed


@pytest.mark.parametrize("of", [1, 2, 5])
def test_all_agree_on_a_word_that_none_before_them_had(of: int) -> None:
    store, draw = dist.HashStore(), random.Random(of)
    words: list[str] = []
    for _ in range(3):  # each time the greetings and answers of those before are still there

        def come(which: int, late: float) -> str:
            time.sleep(late)
            return agree_on_prefix(store, which, of, patience_s=30)

        with ThreadPoolExecutor(of) as pool:
            agreed = set(pool.map(come, range(of), [draw.random() / 5 for _ in range(of)]))
        assert len(agreed) == 1
        words += agreed
    assert len(set(words)) == 3


def test_who_waits_in_vain_says_for_whom() -> None:
    with pytest.raises(TimeoutError, match="rank 2 of 3 has not joined"):
        store = dist.HashStore()
        store.set("here/1", "somebody")
        store.set("here/2", "somebody who is gone")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(agree_on_prefix, store, 1, 3, patience_s=30)
            agree_on_prefix(store, 0, 3, patience_s=0.5)


def two_that_agree(which: int, port: int, late: float) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    time.sleep(late)
    group = DistributedGroup(which, 2, "env://", torch.device("cpu"))
    assert group.any(which == 1)
    os._exit(7)  # as one that is killed: it takes back nothing of what it has told


def test_who_begins_again_never_knocks_where_the_one_before_was() -> None:
    """torchrun's store outlives a restart; the second process comes late to it."""
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    anew = multiprocessing.get_context("spawn")
    for late in (0.0, 2.0):
        two = [
            anew.Process(target=two_that_agree, args=(which, store.port, which * late)) for which in range(2)
        ]
        for one in two:
            one.start()
        try:
            for one in two:
                one.join(60)
            assert [one.exitcode for one in two] == [7, 7]
        finally:
            for one in two:
                one.kill()
