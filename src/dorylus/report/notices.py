"""What people are told of between epochs, a line each: what they would wait for or wonder about."""

from dorylus.observe.sink import Record
from dorylus.report import units
from dorylus.report.pool_rows import pool_line


def notice(record: Record) -> str | None:
    """The line that a record is worth; most are worth none."""
    known = {
        "synchronous": _synchronous,
        "pool": pool_line,
        "cluster": _cluster,
        "memory": _memory,
        "set_up": _set_up,
        "unlocked": _unlocked,
    }
    tell = known.get(record["kind"])
    return None if tell is None else tell(record)


def _synchronous(record: Record) -> str:
    """That an asynchronous run goes on exactly, and why."""
    score = units.percent(record.get("score"))
    return (
        f"epoch {record['epoch']}: validation is at {score}, close to the target; epochs are synchronous from here on"
    )


def _memory(record: Record) -> str:
    """How a memory limit is kept."""
    held, files = units.size(record["peak_bytes"]), units.size(sum(record["on_disk"].values()))
    if not sum(record["on_disk"].values()) and not record["read_bytes"]:
        return f"memory: about {held} at the worst moment, and nothing in files"
    moved = f"reads {units.size(record['read_bytes'])} and writes {units.size(record['written_bytes'])} of them"
    return f"memory: about {held} at the worst moment, {files} in scratch files; an epoch {moved}"


def _unlocked(record: Record) -> str:
    """That nothing stops a process on another machine from writing the same run."""
    return (
        f"the file system of {record['run_dir']} has no locks: nothing stops a process on another machine from writing "
        "to this run. Let one process at a time train or resume it."
    )


def _set_up(record: Record) -> str | None:
    """That set-up is over; how far it is, while it is not, is shown otherwise."""
    return None if record.get("stage") else f"set up in {units.seconds(record['seconds'])}"


def set_up_line(record: Record) -> str:
    """How far a stage of the set-up is: what is done, its rate and the time left."""
    spent_s, done, total = record["seconds"], record["done_bytes"], record["total_bytes"]
    if not spent_s or not done:
        return str(record["stage"])
    rate = done / spent_s
    left_s = (total - done) / rate
    left = f"{units.seconds(left_s)} left" if left_s >= 1 else "<1 s left"
    return f"{record['stage']}  {units.size(rate)}/s  {left}"


def _cluster(record: Record) -> str | None:
    """Where servers are, that some were lost, and that a run goes on."""
    match record.get("what"):
        case "session":
            hosts = sorted({host for host, _ in (record.get("servers") or {}).get("graph", ())})
            return f"graph servers are on {', '.join(hosts)}" if record.get("session") == 1 and hosts else None
        case "fault":
            return f"after epoch {record.get('epoch')}: {record.get('error')} Waiting for all servers to be back."
        case "recovered":
            took = units.seconds(record.get("seconds") or 0.0)
            return f"all servers are back after {took}; going on after epoch {record.get('epoch')}"
        case "straggler":
            late = ", ".join(map(str, record.get("servers") or ()))
            return f"a task of graph server {late} goes on after its session has ended; its result will be dropped"
        case "shrunk":
            return f"servers did not come back: going on with {record.get('servers')} after epoch {record.get('epoch')}"
        case _:
            return None
