"""How fast rows travel between servers: the peer transport of graph servers against a raw socket.

    python -m benchmarks.exchange [--mib 8] [--messages 64] [--rounds 7]

Two processes in two network namespaces, joined by a bridge. The raw socket sends one ready buffer again and again and
receives into another; the peer transport sends frames that hold an array, and its receiver gets each as one. Both take
turns in one run. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import table
from benchmarks.shaped.network import Network, move_out

BOUND = 0.6
SECRET = bytes(range(32))
HEADINGS = ("transport", "MiB a message", "MB/s", "of a raw socket")
WAIT_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.role:
        ROLES[options.role](options)
        return 0
    move_out()
    network = Network(2, None)
    measured: dict[str, list[float]] = {"raw socket": [], "peer transport": []}
    for _ in range(options.rounds):
        for name, role in zip(measured, ("raw", "peer"), strict=True):
            measured[name].append(turn(network, role, options))
    raw = statistics.median(measured["raw socket"])
    rows = [
        (name, f"{options.mib:g}", f"{statistics.median(rates):.0f}", f"{statistics.median(rates) / raw:.2f}")
        for name, rates in measured.items()
    ]
    table.show(HEADINGS, rows, f"between two namespaces, {options.messages} messages a turn, {options.rounds} turns")
    command = f"python -m benchmarks.exchange --mib {options.mib:g} --messages {options.messages}"
    (options.results / "exchange.md").write_text(f"`{command}`\n\n" + table.markdown(HEADINGS, rows))
    return 0 if float(rows[1][-1]) >= BOUND else 1


def turn(network: Network, role: str, options: argparse.Namespace) -> float:
    """Megabytes a second of one turn, as the receiver counts them."""
    words = ["--mib", str(options.mib), "--messages", str(options.messages)]
    command = [sys.executable, "-m", "benchmarks.exchange", *words, "--role"]
    receiver = subprocess.Popen(network.command(0, [*command, f"{role}-receiver"]), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    address = json.loads(receiver.stdout.readline())
    sender = subprocess.run(
        network.command(1, [*command, f"{role}-sender", "--to", json.dumps(address)]), timeout=WAIT_S, check=True
    )
    assert sender.returncode == 0
    output, _ = receiver.communicate(timeout=WAIT_S)
    return float(json.loads(output))


def own_address() -> str:
    """The address of the namespace this process is in."""
    interfaces = json.loads(
        subprocess.run(["ip", "-j", "addr", "show", "eth0"], capture_output=True, check=True).stdout
    )
    return str(interfaces[0]["addr_info"][0]["local"])


def raw_receiver(options: argparse.Namespace) -> None:
    size = int(options.mib * 2**20)
    with socket.create_server((own_address(), 0)) as listener:
        report(listener.getsockname())
        link, _ = listener.accept()
    buffer = memoryview(bytearray(size))

    def one() -> None:
        got = 0
        while got < size:
            got += link.recv_into(buffer[got:])

    report(rate(one, options))


def raw_sender(options: argparse.Namespace) -> None:
    message = np.ones(int(options.mib * 2**20), np.uint8).data
    with socket.create_connection(tuple(options.to), WAIT_S) as link:
        for _ in range(options.messages + 1):
            link.sendall(message)


def peer_receiver(options: argparse.Namespace) -> None:
    from dorylus.wire.peer_transport import PeerTransport

    transport = PeerTransport(own_address(), SECRET, 0)
    came = threading.Semaphore(0)
    transport.open(1, lambda peer, frame: came.release(), lambda peer, why: None)
    report(transport.address)
    report(rate(lambda: came.acquire(timeout=WAIT_S), options))
    transport.close()


def peer_sender(options: argparse.Namespace) -> None:
    from dorylus.wire.peer_transport import PeerTransport

    rows = np.ones((int(options.mib * 2**20) // 512, 128), np.float32)
    transport = PeerTransport(own_address(), SECRET, 1)
    over = threading.Event()
    transport.open(1, lambda peer, frame: None, lambda peer, why: over.set())
    transport.connect({0: tuple(options.to)})
    for number in range(options.messages + 1):
        transport.post(0, {"number": number}, {"rows": rows}, WAIT_S)
    while transport.sent_bytes < rows.nbytes * (options.messages + 1):
        time.sleep(0.01)
    transport.close()


def rate(one: Callable[[], object], options: argparse.Namespace) -> float:
    """Megabytes a second of the messages after the first."""
    one()
    start = time.perf_counter()
    for _ in range(options.messages):
        one()
    return options.messages * options.mib * 2**20 / 1e6 / (time.perf_counter() - start)


def report(value: object) -> None:
    print(json.dumps(value), flush=True)


ROLES: dict[str, Callable[[argparse.Namespace], None]] = {
    "raw-receiver": raw_receiver,
    "raw-sender": raw_sender,
    "peer-receiver": peer_receiver,
    "peer-sender": peer_sender,
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange", description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=float, default=8.0)
    parser.add_argument("--messages", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
