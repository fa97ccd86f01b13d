"""What a run tells of its functions: the data path as it is chosen, and the figures of the closing table."""

from dorylus.observe.sink import Record
from dorylus.report import units
from dorylus.report.summary import Summary

SHOWN_S = 0.5  # programs that took longer to make are told of

PATHS = {
    "direct": "functions fetch tensors from our data ports",
    "inline": "tensors travel in the payloads of invocations",
}


def pool_line(record: Record) -> str | None:
    """What a pool notes, in a line, where people would wait or wonder: the data path, and programs that took long."""
    if record.get("what") == "data_path":
        path = str(record.get("path"))
        return f"data path {path}: {PATHS.get(path, path)} ({record.get('why')})"
    if record.get("what") == "program" and record.get("seconds", 0.0) > SHOWN_S:
        took = units.seconds(record["seconds"])
        return f"exported {record.get('body')}, {record.get('mode')}, in {took}; it is kept for the next run"
    return None


def pool_rows(summary: Summary) -> list[tuple[str, str]]:
    """Rows on functions; nothing for a run without them."""
    told = (summary.result or {}).get("pool")
    if not told:
        return []
    sizes = f"{units.size(told['bytes_in'])} in, {units.size(told['bytes_out'])} out"
    billed = units.seconds(told["billed_ms"] / 1000)
    again = f"{told['relaunches']:,} relaunched, {told['duplicates'] + told['duplicate_parts']:,} duplicates dropped"
    faults = f"{told['timeouts']:,} timed out, {told['losses']:,} lost, {told['throttled']:,} throttled"
    where = f"{summary.config.get('pool')}, {told['data_path']}, {told['functions']:,} at once at the end"
    count = f"{told['invocations']:,} ({told['cold_starts']:,} cold), {sizes}"
    if summary.config.get("pool") == "ray":  # nothing of it is billed by itself
        return [("dense tasks", f"{where}; {count}"), ("tried again", again if told["relaunches"] else "–")]
    return [
        ("functions", where),
        ("invocations", f"{count}, {billed} billed"),
        ("tried again", f"{again}; {faults}" if told["relaunches"] or told["duplicates"] else "–"),
    ]
