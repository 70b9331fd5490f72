"""`python slow_relay.py PORT FILE`: ssh's ProxyCommand. While FILE is there, what passes trickles in small parts."""

import os
import select
import socket
import sys
import time

_PART, _EVERY_S = 400, 0.02


def relay(port: int, file: str) -> None:
    with socket.create_connection(("127.0.0.1", port)) as server:
        ways = {0: server.fileno(), server.fileno(): 1}
        while ways:
            for source in select.select([*ways], [], [])[0]:
                slow = os.path.exists(file)  # noqa: PTH110 - pathlib takes longer to load than ssh to connect
                part = os.read(source, _PART if slow else 1 << 16)
                if not part and source == 0:
                    del ways[0]
                    server.shutdown(socket.SHUT_WR)
                elif not part:
                    return
                while part:
                    part = part[os.write(ways[source], part) :]
                if slow:
                    time.sleep(_EVERY_S)


if __name__ == "__main__":
    relay(int(sys.argv[1]), sys.argv[2])
