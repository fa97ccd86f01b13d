"""Ray on one machine, started by the commands of docs/cluster.md: which sockets listen, printed as JSON.

    python -m ray_bench.documented_start FOLDER

It runs in isolated namespaces, where nothing but loopback can be reached.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from ray_bench.isolated import TESTS, settle_in

DOC = TESTS.parent / "docs" / "cluster.md"
LINK, ADDRESS, BEYOND = "dorylus-up", "10.99.0.1", "10.99.0.2"
READY = "a process of Ray is at work"
DRIVER = f"""
import ray, time
ray.init(address="auto", log_to_driver=False)
ray.get(ray.remote(lambda: 0).remote())
print("{READY}", flush=True)
time.sleep(60)
"""
_LISTENS = "0A"
_LOOPBACK = re.compile(r"[0-9A-F]{6}7F|0{24}01000000|0{16}FFFF0000[0-9A-F]{6}7F")  # 127.x.x.x, ::1, ::ffff:127.x.x.x


def documented() -> list[str]:
    """The commands of the section about one machine, up to the one that starts Ray."""
    section = DOC.read_text().split("### One machine\n")[1].split("\n### ")[0]
    lines = re.findall(r"```\n(.*?)```", section, re.DOTALL)[0].splitlines()
    last = next(number for number, line in enumerate(lines) if re.search(r"\bray start\b", line))
    return lines[: last + 1]


def listeners() -> list[dict[str, Any]]:
    """The listening TCP sockets of this network namespace: port, whether on loopback only, and the owner's command."""
    owners = _owners()
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == _LISTENS:
                loopback = _LOOPBACK.fullmatch(address) is not None
                found.append({"port": int(port, 16), "loopback": loopback, "of": owners.get(fields[9], "?")})
    return sorted(found, key=lambda each: (each["of"], each["port"]))


def _owners() -> dict[str, str]:
    """The command of the process that holds each socket, by the socket's number."""
    owners = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            for handle in (process / "fd").iterdir():
                with suppress(OSError):
                    target = os.readlink(handle)
                    if target.startswith("socket:["):
                        owners[target[8:-1]] = command
    return owners


def look_like_a_machine() -> None:
    """An address and a default route, as machines have: without them Ray itself picks loopback as its address."""
    for command in (
        f"ip link add {LINK} type veth peer name {LINK}-far",
        f"ip link set {LINK} up",
        f"ip link set {LINK}-far up",
        f"ip address add {ADDRESS}/24 dev {LINK}",
        f"ip route add default via {BEYOND}",  # where no host is
    ):
        subprocess.run(command.split(), check=True)


def main(folder: Path) -> dict[str, Any]:
    settle_in()
    look_like_a_machine()
    from ray_bench.nodes import environment

    kept = ("RAY_USAGE", "PATH", "HOME", "PYTHONPATH")  # everything else is as a reader of the page has it
    given = {name: value for name, value in environment(folder).items() if name.startswith(kept)}
    own = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), given["PATH"]]), "RAY_TMPDIR": str(folder)}
    script = "\n".join(["set -e", *documented(), f"exec {sys.executable} -c '{DRIVER}'"])
    with subprocess.Popen(["sh", "-c", script], env=given | own, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        output = list(takewhile(lambda line: line.strip() != READY, shell.stdout))
        try:
            assert shell.poll() is None, f"{script}\n{''.join(output)}"
            return {"listeners": listeners()}
        finally:
            shell.kill()


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
