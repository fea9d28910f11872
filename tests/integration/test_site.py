"""The site that `make site` builds: it asks for nothing from elsewhere, and is searchable.

`make test-integration` builds it before the tests.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import ENTER, TAB, Browser
from pages import NOTEBOOKS, PAGES, ROOT

import recordmill
from recordmill.beam_jobs.cli.main import cli

SITE = ROOT / "build/site/html"
_RESULTS = """
return [...document.querySelectorAll(".md-search-result__link")].map(link => link.href)
"""


class _Loads(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = ("src", "srcset", "poster", "data")
        self.found += [value for name in names if (value := given.get(name))]
        if tag == "link":
            self.found.append(given["href"] or "")
        assert "@import" not in (given.get("style") or "")


def html_pages() -> list[Path]:
    pages = sorted(SITE.rglob("*.html"))
    assert pages, "no site: run `make site`"
    return pages


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def requested(browser: Browser) -> set[str]:
    """Returns where the requests of the page went: file, https..."""
    messages = (json.loads(e["message"])["message"] for e in browser.log("performance"))
    urls = (
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    )
    return {url.partition(":")[0] for url in urls}


def test_no_page_loads_anything_from_elsewhere() -> None:
    for page in html_pages():
        loads = _Loads()
        loads.feed(page.read_text())
        assert [url for url in loads.found if re.match(r"(https?:)?//", url)] == [], (
            page
        )
    for sheet in SITE.rglob("*.css"):
        text = sheet.read_text()
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", text), sheet


def test_every_page_is_there() -> None:
    for page in (*PAGES, *NOTEBOOKS):
        place = page.relative_to(ROOT).with_suffix(".html")
        shown = place.with_name("index.html") if place.stem == "README" else place
        assert (SITE / shown).is_file(), page


def test_the_reference_has_every_command_and_every_public_name() -> None:
    for name in cli.commands:
        text = (SITE / f"reference/cli/recordmill-{name}.html").read_text()
        assert f"Usage: recordmill {name}" in text
    text = (SITE / "reference/python.html").read_text()
    for name in {*recordmill.__all__, "TorchRows"}:
        assert f'id="recordmill.{name}"' in text, name
    text = (SITE / "reference/job-file.html").read_text()
    schema = json.loads((ROOT / "schemas/job_file.schema.json").read_text())
    for key in schema["properties"]:
        assert f"<td><code>{key}</code></td>" in text, key


def test_the_search_finds_a_page_by_keyboard_and_without_a_server(
    browser: Browser,
) -> None:
    browser.resize(1280)
    browser.open(SITE / "index.html")
    deadline = time.monotonic() + 60
    while not browser.run("return document.activeElement.tagName === 'INPUT'"):
        assert time.monotonic() < deadline
        browser.press("/")
    for key in "rejects":
        browser.press(key)
    while not (found := browser.run(_RESULTS)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert any("recordmill-rejects.html" in link for link in found)
    browser.press(ENTER)
    while "h=rejects" not in browser.run("return location.href"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert requested(browser) <= {"file", "data"}
    assert browser.log("browser") == []


def test_no_page_is_wider_than_a_phone_or_lacks_a_file(browser: Browser) -> None:
    browser.resize(390, 844)
    for page in html_pages():
        if page.name == "404.html":  # for a server: its links begin at the root
            continue
        browser.open(page)
        width = browser.run("return document.scrollingElement.scrollWidth")
        assert width <= 390, page
        assert browser.log("browser") == [], page
        assert requested(browser) <= {"file", "data"}, page


def test_the_first_tab_skips_to_the_content(browser: Browser) -> None:
    browser.open(SITE / "docs/images.html")
    for key in (TAB, ENTER, TAB):
        browser.press(key)
    inside = 'document.activeElement.closest("article.md-content__inner") !== null'
    assert browser.run(f"return {inside}")


def test_the_colours_are_those_of_the_system(browser: Browser) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(SITE / "index.html")
        colours.add(
            browser.run("return getComputedStyle(document.body).backgroundColor")
        )
    assert len(colours) == 2
