"""The page of `recordmill report` in Chromium: both themes, a desk and a phone."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import ENTER, RIGHT, TAB, Browser
from interop_tools import run_in_interop
from job_tools import SAMPLES, convert, recordmill

PAGES = ("images", "digits", "table")
LONG = "a_feature_whose_name_does_not_fit_into_the_width_of_any_phone_" * 2
WIDTHS = (390, 800, 1280)
LEAST_CONTRAST = 4.5  # WCAG 2.2, AA, text

# The contrast of every piece of text that is shown, and what it is.
CONTRASTS = """
const parse = text => {
  const numbers = text.match(/[\\d.]+/g).map(Number);
  return {rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1};
};
const luminance = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.alpha === 1) return colour.rgb;
    if (colour.alpha > 0) throw new Error(`half transparent: ${at.outerHTML}`);
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility() || element.tagName === "title")
    continue;
  const style = getComputedStyle(element);
  const front = luminance(parse(style.color).rgb);
  const back = luminance(behind(element));
  const [high, low] = front > back ? [front, back] : [back, front];
  found.push([(high + 0.05) / (low + 0.05), node.data.trim().slice(0, 40)]);
}
return found;
"""
# What can be reached and what reads it aloud.
STRUCTURE = """
const all = name => [...document.querySelectorAll(name)];
return {
  levels: all("h1, h2, h3, h4").map(heading => Number(heading.tagName[1])),
  landmarks: ["header", "nav", "main", "footer"].filter(name => all(name).length === 1),
  silent: all("img:not([alt]), img[alt=''], [role=img]:not([aria-label])")
    .map(element => element.outerHTML.slice(0, 200)),
  undescribed: all("figure").filter(figure => !figure.querySelector("details table"))
    .map(figure => figure.innerText),
  unnamed: all("section, .scroll").filter(element =>
    !element.getAttribute("aria-label") && !element.getAttribute("aria-labelledby"))
    .map(element => element.outerHTML.slice(0, 200)),
  unloaded: all("img").filter(image => image.loading !== "lazy" && !image.naturalWidth)
    .map(image => image.alt),
};
"""
OVERFLOW = """
const wide = document.documentElement.scrollWidth - innerWidth;
return wide <= 0 ? "" : [...document.querySelectorAll("body *")]
  .filter(element => element.getBoundingClientRect().right > innerWidth
    && !element.closest(".scroll, pre"))
  .map(element => element.outerHTML.slice(0, 100)).slice(0, 5).join(", ");
"""
PAPER = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page on images, one on CIFAR, and one on a table with awkward names."""
    root = tmp_path_factory.mktemp("pages")
    splits = ["--split", "train=0.8", "--split", "test=0.2", "--shards", 2]
    convert("images", SAMPLES / "images", root / "images", *splits)
    convert("cifar", SAMPLES / "cifar", root / "digits", "--shards", 3)
    rows = [
        f"{n},{n / 7},{'x' * (n % 400)},{'' if n % 3 else n},<script>alert({n})</script>"
        for n in range(300)
    ]
    header = f'id,"<img src=x onerror=alert(1)>",text,{LONG},shout'
    (root / "table.csv").write_text("\n".join([header, *rows, "short,row"]))
    convert("csv", root / "table.csv", root / "table", *splits, "--max-rejects", 1)
    made = {name: root / f"{name}.html" for name in PAGES}
    for name, page in made.items():
        ran = recordmill("report", root / name, "-o", page)
        assert ran.status == 0, ran.err
    return made


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def test_the_code_on_the_pages_runs(pages: dict[str, Path]) -> None:
    """As it is in the page's HTML, where TensorFlow and TFDS are."""
    for page in pages.values():
        codes = re.findall("<pre[^>]*><code>(.*?)</code>", page.read_text(), re.DOTALL)
        numpy, *others = map(html.unescape, codes)
        assert len(others) == 2
        exec(compile(numpy, page.name, "exec"), {})
        for code in others:
            assert "shape" in code
            assert run_in_interop(page.parent, "-c", code)


def open_all(browser: Browser) -> None:
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")


def requests(browser: Browser) -> list[str]:
    """The addresses that were asked for, but for what the page holds.

    The browser's own first page may still be loading.
    """
    messages = [json.loads(entry["message"]) for entry in browser.log("performance")]
    events: list[dict[str, Any]] = [message["message"] for message in messages]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
        and not event["params"]["documentURL"].startswith("chrome:")
    ]
    return [url for url in urls if not url.startswith("data:")]


@pytest.mark.parametrize("name", PAGES)
def test_it_asks_for_nothing_and_says_nothing_on_the_console(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    open_all(browser)
    browser.run("scrollTo(0, document.body.scrollHeight)")
    assert requests(browser) == [pages[name].resolve().as_uri()]
    said = [entry["message"] for entry in browser.log("browser")]
    assert [text for text in said if not text.startswith("chrome:")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_and_is_readable(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    browser.prefer(scheme)
    browser.open(pages[name])
    open_all(browser)
    for width in WIDTHS:
        browser.resize(width)
        assert browser.run(OVERFLOW) == "", width
    contrasts = browser.run(CONTRASTS)
    assert len(contrasts) > 50
    assert [found for found in contrasts if found[0] < LEAST_CONTRAST] == []


def test_what_is_wrong_would_be_noticed(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.prefer("light")
    browser.resize(390)
    browser.open(pages["digits"])
    browser.run("""
        document.querySelector("h1").style.color = "#999";
        document.querySelector("nav").style.width = "500px";
        document.querySelector("main").append(new Image());
        document.images[document.images.length - 1].src = "https://localhost:9/x.png";
    """)
    assert [text for ratio, text in browser.run(CONTRASTS) if ratio < LEAST_CONTRAST]
    assert browser.run(OVERFLOW).startswith("<nav")
    assert len(browser.run(STRUCTURE)["silent"]) == 1
    assert "Content Security Policy" in str(browser.log("browser"))


@pytest.mark.parametrize("name", PAGES)
def test_it_can_be_read_aloud(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    found = browser.run(STRUCTURE)
    levels = found.pop("levels")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert found.pop("landmarks") == ["header", "nav", "main", "footer"]
    assert found == {key: [] for key in found}


def test_images_are_shown(browser: Browser, pages: dict[str, Path]) -> None:
    browser.resize(1280)
    browser.open(pages["images"])
    script = """
        for (const image of document.images) await image.decode();
        return [...document.images].map(image => image.naturalWidth);
    """
    widths = browser.run(f"return (async () => {{ {script} }})()")
    assert len(widths) == 10
    assert min(widths) > 0


def test_the_switch_by_the_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    papers = {}
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(pages["table"])
        papers[scheme] = browser.run(PAPER)
    assert papers["light"] != papers["dark"]
    focused = "return document.activeElement.id || document.activeElement.className"
    browser.press(TAB)
    assert browser.run(focused) == "skip"
    browser.press(TAB)
    assert browser.run(focused) == "theme-auto"
    for theme in ("light", "dark"):
        browser.press(RIGHT)
        assert browser.run(focused) == f"theme-{theme}"
        assert browser.run(PAPER) == papers[theme]


def test_every_detail_by_the_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    """Tab comes to each of them, and Enter opens and closes it."""
    browser.open(pages["table"])
    total = browser.run("return document.querySelectorAll('summary').length")
    opened = "return [...document.querySelectorAll('details')].map(d => d.open)"
    before = browser.run(opened)
    reached = 0
    for _ in range(500):
        browser.press(TAB)
        tag = browser.run("return document.activeElement.tagName")
        if tag == "BODY" and reached:
            break
        if tag == "SUMMARY":
            browser.press(ENTER)
            reached += 1
    assert reached == total > 5
    assert browser.run(opened) == [not was for was in before]
