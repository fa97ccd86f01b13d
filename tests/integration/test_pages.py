"""Pages of runs in a real browser: what is drawn, what is loaded, what keys and the wheel do."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import chromium
import dorylus
from dorylus.report import LiveRun, LiveServer, RunFigures, report_page
from dorylus.runs import JsonlSink, MemorySink, Record, RunLog, current, read_log

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING)

CHARTS = ("loss", "scores", "seconds", "epoch_usd", "usd", "memory")
DRAWN = "body[data-drawn=yes]"
HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"
INKED = """(canvas) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    let inked = 0;
    for (let k = 3; k < pixels.length; k += 4) inked += pixels[k] > 0;
    return inked;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.chromium() as opened:
        yield opened


class Opened(NamedTuple):
    """A page, what it wrote to the console, and what it loaded."""

    page: Any
    messages: list[str]
    loaded: list[str]


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, **options: Any) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    try:
        page = context.new_page()
        seen = Opened(page, [], [])
        page.on("console", lambda message: seen.messages.append(message.text))
        page.on("pageerror", lambda error: seen.messages.append(str(error)))
        page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: seen.loaded.append(request.url))
        page.goto(address)
        yield seen
    finally:
        context.close()


def log_of(**settings: Any) -> list[dict[str, Any]]:
    """The run log of a real run."""
    graph = dorylus.communities(num_vertices=240, num_classes=4, num_features=8, seed=0)
    log = MemorySink()
    dorylus.train(graph, dorylus.gcn(hidden=4), threads=1, sinks=[log], **settings)
    return log.records


@pytest.fixture(scope="module")
def exact() -> list[dict[str, Any]]:
    return log_of(epochs=12, eval_every=2)


@pytest.fixture(scope="module")
def asynchronous() -> list[dict[str, Any]]:
    return log_of(epochs=16, eval_every=2, servers=3, intervals=3, mode="async", staleness=1)


def figures(name: str, records: list[Any]) -> RunFigures:
    run = RunFigures(name, {"how": "shell", "text": "dorylus train cora"})
    for record in records:
        run.add(json.loads(json.dumps(record)))
    return run


@pytest.fixture(scope="module")
def pages(exact: Any, asynchronous: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of reports."""
    folder = tmp_path_factory.mktemp("pages")
    killed = [record for record in asynchronous[:9] if record["kind"] != "spans"]
    hostile = [{**asynchronous[0], "graph": {"name": HOSTILE}, "config": {"partition": HOSTILE}}, *asynchronous[1:]]
    contents = {
        "one": [figures("mine", asynchronous)],
        "several": [figures("exact", exact), figures("asynchronous", asynchronous), figures("killed", killed)],
        "empty": [figures("empty", [])],
        "hostile": [figures(HOSTILE, hostile), figures(HOSTILE + "2", hostile[:1])],
    }
    for name, runs in contents.items():
        (folder / f"{name}.html").write_bytes(report_page(runs))
    return {name: (folder / f"{name}.html").as_uri() for name in contents}


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["one", "several", "empty", "hostile"])
def test_a_report_loads_nothing_says_nothing_and_fits(browser: Any, pages: Any, name: str, width: int) -> None:
    with opened(browser, pages[name], width, offline=True) as (page, messages, loaded):
        page.wait_for_selector(DRAWN)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(30)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")
        assert (messages, loaded) == ([], [pages[name]])


def test_charts_are_drawn_again_in_the_colours_of_the_night(browser: Any, pages: Any) -> None:
    with opened(browser, pages["one"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        selectors = ("#chart-loss canvas", ".timeline canvas")
        page.wait_for_timeout(100)
        day = [page.eval_on_selector(selector, "(canvas) => canvas.toDataURL()") for selector in selectors]
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(100)
        night = [page.eval_on_selector(selector, "(canvas) => canvas.toDataURL()") for selector in selectors]
        assert all(before != after for before, after in zip(day, night, strict=True))


def test_every_chart_and_the_timeline_have_ink(browser: Any, pages: Any) -> None:
    with opened(browser, pages["several"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        page.wait_for_timeout(100)  # frames of the timeline
        for name in CHARTS:
            assert page.eval_on_selector(f"#chart-{name} canvas", INKED) > 1000, name
        assert [ink > 1000 for ink in page.eval_on_selector_all(".timeline canvas", f"(all) => all.map({INKED})")] == [
            True
        ] * 2


def test_a_run_without_anything_says_so_in_every_section(browser: Any, pages: Any) -> None:
    with opened(browser, pages["empty"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        assert page.locator(".empty").count() >= len(CHARTS) + 5
        assert page.locator("canvas").count() == 0


def test_names_are_text_whatever_they_hold(browser: Any, pages: Any) -> None:
    with opened(browser, pages["hostile"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        assert HOSTILE in page.locator("header").inner_text()
        assert page.locator("img").count() == 0


def view(page: Any) -> tuple[float, float]:
    """What the timeline shows, in microseconds."""
    return tuple(page.eval_on_selector(".timeline canvas", "(c) => [+c.dataset.from, +c.dataset.to]"))


def span(page: Any) -> float:
    begin, end = view(page)
    return end - begin


def test_the_timeline_zooms_with_the_wheel_and_moves_with_the_pointer(browser: Any, pages: Any) -> None:
    with opened(browser, pages["one"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        canvas = page.locator(".timeline canvas")
        canvas.scroll_into_view_if_needed()
        box, whole = canvas.bounding_box(), span(page)
        x, y, scrolled = box["x"] + box["width"] / 2, box["y"] + 40, page.evaluate("scrollY")
        page.mouse.move(x, y)
        page.mouse.wheel(0, -300)
        page.wait_for_timeout(50)
        zoomed = span(page)
        assert zoomed < 0.7 * whole
        assert page.evaluate("scrollY") == scrolled
        begin, _ = view(page)
        page.mouse.down()
        page.mouse.move(x + 80, y, steps=4)
        page.mouse.up()
        assert view(page)[0] < begin
        assert span(page) == pytest.approx(zoomed, rel=1e-3)
        page.mouse.wheel(0, 150)
        page.wait_for_timeout(50)
        assert zoomed < span(page) < whole
        for _ in range(5):
            page.mouse.wheel(0, 300)
        page.wait_for_timeout(50)
        assert span(page) == whole
        page.mouse.wheel(0, 300)  # nothing is left to zoom out of
        page.wait_for_timeout(200)
        assert page.evaluate("scrollY") > scrolled


def test_the_timeline_is_read_and_zoomed_with_keys(browser: Any, pages: Any) -> None:
    with opened(browser, pages["one"]) as (page, messages, _):
        page.wait_for_selector(DRAWN)
        whole = span(page)
        page.focus(".tools select")
        for _ in range(6):  # past the buttons
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "CANVAS"
        page.keyboard.press("+")
        page.keyboard.press("+")
        assert span(page) == pytest.approx(0.49 * whole, rel=1e-3)
        begin, _ = view(page)
        page.keyboard.press("ArrowRight")
        assert view(page)[0] > begin
        page.keyboard.press("Home")
        assert view(page)[0] == 0
        page.keyboard.press("n")
        first = page.locator(".readout").inner_text()
        assert "interval" in first
        page.keyboard.press("n")
        assert page.locator(".readout").inner_text() != first
        page.keyboard.press("0")
        assert span(page) == whole
        assert messages == []


def test_runs_are_compared_by_the_settings_that_differ(browser: Any, pages: Any) -> None:
    with opened(browser, pages["several"]) as (page, _, _):
        page.wait_for_selector(DRAWN)
        rows = page.locator("#settings > div > .scroll tbody tr").all_inner_texts()
        assert ["mode", "pipe", "async", "async"] in [row.split("\t") for row in rows]
        assert not any(row.startswith("lr\t") for row in rows)


def long_log(asynchronous: list[Record], path: Path) -> None:
    """A log of 2,000 epochs on 16 servers, written as a run writes it: the records of a real run, again and again."""
    real = [record for record in asynchronous if record["kind"] == "epoch"]
    spans = [record for record in asynchronous if record["kind"] == "spans"]
    sink = JsonlSink(path)
    log = RunLog([sink])
    run = {name: value for name, value in asynchronous[0].items() if name not in ("kind", "t")}
    log.write("run", **run)
    for epoch in range(1, 2001):
        record = {**real[epoch % len(real)], "epoch": epoch, "loss": 2 / (1 + epoch / 100) + 0.1 * (epoch % 7)}
        record["servers"] = [
            {"server": server, "host": f"host-{server}", "seconds": 0.1, "sent_bytes": 10**6, "memory_bytes": 10**9,
             "peak_memory_bytes": 10**9} for server in range(16)
        ]  # fmt: skip
        log.write(**{name: value for name, value in record.items() if name != "t"})
        if epoch <= 3 or epoch & (epoch - 1) == 0:
            rows = [[*row[:6], server, epoch] for server in range(16) for row in spans[0]["spans"]]
            log.write("spans", epoch=epoch, spans=rows)
        if epoch % 10 == 0:
            log.write("evaluation", epoch=epoch, val_accuracy=1 - 1 / epoch, test_accuracy=1 - 2 / epoch)
    log.close()


def test_a_report_of_2000_epochs_on_16_servers_is_small_and_opens_at_once(
    browser: Any, asynchronous: Any, tmp_path: Path
) -> None:
    long_log(asynchronous, tmp_path / "log.jsonl")
    page_file = tmp_path / "long.html"
    page_file.write_bytes(report_page([figures("long", current(read_log(tmp_path / "log.jsonl")))]))
    assert page_file.stat().st_size < 5e6
    with opened(browser, "about:blank") as (page, messages, _):
        took_s = [opening_s(page, page_file) for _ in range(3)]
        assert min(took_s) < 2.0  # other programs may slow one of them down
        assert page.eval_on_selector(".timeline canvas", INKED) > 1000
        assert messages == []


def opening_s(page: Any, file: Path) -> float:
    """How long a page takes to be drawn, its timeline included."""
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector(DRAWN)
    two_frames = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.eval_on_selector(".timeline canvas", two_frames)
    return time.perf_counter() - began


def until(page: Any, selector: str, words: str | re.Pattern[str]) -> None:
    page.locator(selector, has_text=words).first.wait_for(timeout=10_000)


@contextmanager
def live(log: Path) -> Iterator[tuple[LiveServer, Callable[[], bool]]]:
    run = LiveRun(log, lambda: RunFigures("mine"))
    with LiveServer(run, "mine") as server:
        yield server, run.poll


def test_a_live_page_follows_a_run_to_its_end(browser: Any, asynchronous: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records, last = asynchronous[:-1], asynchronous[-1]
    epochs = [place for place, record in enumerate(records) if record["kind"] == "epoch"]
    with live(path) as (server, poll), opened(browser, server.address) as (page, messages, loaded):
        until(page, ".state", "waiting for the first record")
        sink = JsonlSink(path)
        for record in records[: epochs[4]]:
            sink.write(record)
        poll()
        until(page, ".tile", "4 of 16")
        ink = page.eval_on_selector("#chart-loss canvas", INKED)
        page.locator("#settings summary").click()
        for record in records[epochs[4] :]:
            sink.write(record)
            poll()
        page.wait_for_timeout(100)
        assert page.eval_on_selector("#chart-loss canvas", INKED) == ink  # out of view
        page.evaluate("scrollTo(0, 0)")
        until(page, ".tile b", re.compile("^16$"))
        until(page, ".state", "running")
        assert page.eval_on_selector("#chart-loss canvas", INKED) != ink
        assert page.eval_on_selector("#settings details", "(d) => d.open")  # what a reader opened stays open
        sink.write({**records[0], "resumed_from": 2})
        poll()
        until(page, ".tile", "2 of 16")
        sink.write(last)
        sink.close()
        poll()
        server.close()
        until(page, ".state", "ended")
        assert messages == []
        assert set(loaded) == {server.address, server.address + "events"}
