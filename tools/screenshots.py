"""Takes the pictures of docs/images anew: python tools/screenshots.py. Trains three small runs; needs Chromium."""

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import dorylus  # noqa: E402
from chromium import MISSING, PROGRAM, chromium  # noqa: E402
from dorylus.cli import main as program  # noqa: E402
from dorylus.report import LiveRun, LiveServer, RunFigures  # noqa: E402

IMAGES = ROOT / "docs" / "images"
GRAPH = "communities:num_vertices=20000,num_classes=8,average_degree=20"
RUNS = {
    "pipe": ["--epochs", "120", "--servers", "2", "--intervals", "6"],
    "async": ["--epochs", "120", "--servers", "2", "--intervals", "6", "--mode", "async", "--staleness", "1"],
    "limited": ["--epochs", "60", "--memory", "2GiB", "--model", "sage"],
}


def main() -> None:
    if PROGRAM is None:
        sys.exit(MISSING)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        runs = {name: Path(folder) / name for name in RUNS}
        for name, flags in RUNS.items():
            call("train", GRAPH, "--run-dir", runs[name], "--threads", 2, "--eval-every", 5, "--quiet", *flags)
        call("report", runs["async"], "--out", f"{folder}/one.html")
        call("report", *runs.values(), "--out", f"{folder}/several.html")
        with opened(browser, f"file://{folder}/one.html") as page:
            page.screenshot(path=IMAGES / "report.png")
            page.focus(".timeline canvas")
            for key in "+++":
                page.keyboard.press(key)
            page.keyboard.press("n")
            page.wait_for_timeout(200)
            page.locator("#timeline").screenshot(path=IMAGES / "report-timeline.png")
        with opened(browser, f"file://{folder}/several.html", scheme="dark") as page:
            page.screenshot(path=IMAGES / "report-several.png")
        live(browser, Path(folder) / "live")


def call(*words: object) -> None:
    try:
        program([str(word) for word in words])
    except SystemExit as end:
        if end.code:
            raise


def opened(browser: Any, address: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Any:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address)
    page.wait_for_selector("body[data-drawn=yes]")
    page.wait_for_timeout(300)
    return page


def live(browser: Any, run_dir: Path) -> None:
    """The live page of a run in its 60th epoch, as wide as a telephone."""
    graph = dorylus.load("communities", num_vertices=20_000, num_classes=8, average_degree=20)
    with dorylus.Trainer(
        graph, dorylus.gcn(hidden=16), run_dir=run_dir, epochs=200, threads=2, eval_every=5
    ) as trainer:
        trainer.run(40)
        run = LiveRun(run_dir / "log.jsonl", lambda: RunFigures("live"))
        run.poll()
        with LiveServer(run, "live") as server:
            trainer.run(20)
            run.poll()
            with opened(browser, server.address, width=400, height=720) as page:
                page.screenshot(path=IMAGES / "live.png")


if __name__ == "__main__":
    main()
