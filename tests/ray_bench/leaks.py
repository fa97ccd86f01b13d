"""What runs leave behind: on a cluster that goes on, and in namespaces where nothing should be left."""

import os
import tempfile
import threading
import time
from typing import Any

from ray_bench.network import alive, title

SERVERS = ("ray::GraphServer", "ray::ParameterServer")  # titles of the processes of our actors
SETTLE_S = 15.0  # the time in which Ray ends processes after a request


def left_by_runs() -> list[str]:
    """What is left of the runs of this driver, once Ray has had time to clean up."""
    until = time.monotonic() + SETTLE_S
    while (left := _left_by_runs()) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def left_by_nodes() -> list[str]:
    """What is left where all nodes have been closed: processes, namespaces and shared memory."""
    strangers = [f"process {title(pid)[:100]}" for pid in alive() if pid != os.getpid()]
    return strangers + [f"{folder}/{name}" for folder in ("/run/netns", "/dev/shm") for name in os.listdir(folder)]


def _left_by_runs() -> list[str]:
    import ray
    from ray._private.state import actors

    groups = ray.util.placement_group_table()
    has, free = ray.cluster_resources(), ray.available_resources()
    return [
        *(f"process {title(pid)}" for pid in alive() if title(pid).startswith(SERVERS)),
        *(f"actor {each['ActorClassName']}" for each in actors().values() if each["State"] != "DEAD"),
        *(f"placement group {each}" for each, group in groups.items() if group["state"] != "REMOVED"),
        *(f"{_used(name, has, free)} {name} used" for name in _WHOLE if _used(name, has, free) > 0),
        *(f"thread {each.name}" for each in threading.enumerate() if each.name.startswith("dorylus-")),
        *(f"/dev/shm/{name}" for name in os.listdir("/dev/shm")),
        *(f"file {name}" for name in os.listdir(tempfile.gettempdir())),
    ]


_WHOLE = ("CPU", "memory", "object_store_memory")


def _used(name: str, has: dict[str, Any], free: dict[str, Any]) -> float:
    return float(has.get(name, 0.0) - free.get(name, 0.0))
