"""Chromium without a window, for tests of pages and for their pictures; it may open nothing but what it is given."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAM = shutil.which("chromium")
MISSING = "Chromium is not installed: apt install chromium"
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-domain-reliability", "--metrics-recording-only", "--no-first-run",
    "--no-pings",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright, with a home of its own."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=PROGRAM, args=QUIET, env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home}
        )
        try:
            yield browser
        finally:
            browser.close()
