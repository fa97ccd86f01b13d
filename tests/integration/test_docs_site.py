"""The documents as a site: every link leads somewhere, and no page takes anything from another host."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import chromium
import dorylus

ROOT = Path(__file__).parents[2]
FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Read(HTMLParser):
    """The anchors of a page, what it links to, and what a browser fetches to show it."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links, self.fetched = {""}, [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag in FETCHED and given.get(FETCHED[tag]):
            self.fetched.append(given[FETCHED[tag]])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site, which no warning stopped."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(built):
    """Every page of the site by its file."""
    return {file: Read(file) for file in built.rglob("*.html")}


def is_remote(address):
    return bool(urlsplit(address).netloc)


def test_every_link_and_picture_of_the_site_leads_somewhere(built, pages):
    lost = []
    for file, page in pages.items():
        for target in page.links + page.fetched:
            where = urlsplit(target)
            if where.scheme or where.netloc or file.name == "404.html":  # which is served for any address
                continue
            found = Path(os.path.normpath(file.parent / unquote(where.path))) if where.path else file
            if not found.is_file() or (found in pages and unquote(where.fragment) not in pages[found].anchors):
                lost.append(f"{file.relative_to(built)}: {target}")
    assert lost == []


def test_no_page_takes_anything_from_another_host(built, pages):
    assert [address for page in pages.values() for address in page.fetched if is_remote(address)] == []
    styles = "".join(file.read_text() for file in built.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)'\"]*", styles) == []
    diagrams = [file for file in pages if re.search(r'class="?[\w -]*mermaid', file.read_text())]
    assert diagrams == [], "their program would be fetched from another host"


def test_a_search_needs_no_server(built):
    assert "bounded asynchrony" in (built / "search" / "search_index.js").read_text().lower()
    assert "iframe-worker" in (built / "index.html").read_text()


def test_every_public_name_and_every_setting_is_documented(built, pages):
    reference = [file for file in pages if file.parent.name == "reference"]
    named = {anchor.rpartition(".")[2] for file in reference for anchor in pages[file].anchors}
    assert [name for name in dorylus.__all__ if name not in named] == []
    signatures = re.findall(r'<span class="nf">(\w+)</span>', "".join(file.read_text() for file in reference))
    functions = [name for name in dorylus.__all__ if inspect.isfunction(getattr(dorylus, name))]
    assert [name for name in functions if name not in signatures] == [], "a module of that name is there instead?"
    settings = re.findall(r"<tr>\s*<td><code>(\w+)</code>", (built / "settings.html").read_text())
    assert sorted(settings) == sorted(dorylus.RunConfig.names())


def test_a_flowchart_is_a_table_of_its_boxes(built):
    overview = (built / "repository" / "index.html").read_text()
    boxes = re.findall(r'\["(\w+/)<br/>', (ROOT / "README.md").read_text())
    assert boxes
    assert boxes == re.findall(r"<tr>\s*<td>(\w+/)</td>", overview)
    assert re.search(r"<td>wire/</td>\s*<td>.*</td>\s*<td>[^<]*functions/[^<]*</td>", overview)


@pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING)
def test_a_browser_reads_and_searches_the_files_and_asks_no_host(built):
    with chromium.chromium() as browser:
        page = browser.new_page()
        loaded, messages = [], []
        page.on("request", lambda request: loaded.append(urlsplit(request.url).scheme))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto((built / "repository" / "index.html").as_uri())
        page.goto((built / "index.html").as_uri())
        page.fill("input.md-search__input", "staleness")
        page.wait_for_selector(".md-search-result__item", state="attached")
        assert "Bounded staleness" in page.inner_text(".md-search-result__list")
    assert set(loaded) == {"file"}
    assert messages == []
