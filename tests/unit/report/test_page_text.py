"""The page shows names and values as text, whatever is in them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from job_tools import convert
from small_dataset import write_dataset

from recordmill.beam_jobs.report.page import build_page, render_page
from recordmill.beam_jobs.report.page_cards import feature_card, format_share
from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.schemas.manifest import MANIFEST_NAME, ManifestSplit
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.statistics.column_summary import ColumnSummary, CommonValues
from recordmill.transforms.statistics.dataset_statistics import (
    DatasetStatistics,
    gather_statistics,
)
from recordmill.transforms.storage import open_store
from recordmill.transforms.tasks.rejects import UNKNOWN_INPUT

HOSTILE = (
    """<script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;\u202e\u0085\x07"""
)
VOID = {"meta", "img", "input", "rect", "path"}


class Tags(HTMLParser):
    """All tags and attributes of a page; fails where tags do not close each other."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {v or "" for name, v in attrs if name in ("src", "href")}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(folder: Path) -> str:
    store = open_store(str(folder))
    manifest = read_manifest(store)
    figures = gather_statistics(store, manifest, lambda done, total: None)
    page = build_page(manifest, figures, str(folder), UNKNOWN_INPUT)
    return render_page(page).decode()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page on a dataset whose every name and value is an attack."""
    root = tmp_path_factory.mktemp("hostile")
    cell = '"' + HOSTILE.replace('"', '""') + '"'
    (root / "schema.yaml").write_text(
        "features:\n"
        "  label: {classes: [a, b, '<script>alert(3)</script>']}\n"
        "  text: {dtype: string, column: '<b>text</b>'}\n"
    )
    (root / "rows.csv").write_text(f"label,<b>text</b>\na,{cell}\nb,x\n{cell}\n")
    out = root / "<i>out</i>"
    schema = ["--schema", root / "schema.yaml", "--name", "attack"]
    convert("csv", root / "rows.csv", out, *schema, "--max-rejects", 1, "--shards", 2)
    return page_of(out)


def test_nothing_in_the_data_becomes_markup(hostile: str) -> None:
    tags = Tags(hostile)
    assert not tags.tags & {"script", "b", "iframe", "link", "object"}
    assert not {name for name in tags.attributes if name.startswith("on")}
    text = " ".join(tags.texts)
    assert "<script>alert(1)</script>" in text
    assert "<script>alert(3)</script>" in text
    assert "<i>out</i>" in text


def test_control_characters_are_written_out(hostile: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", hostile)
    assert r"\u202e" in hostile


def test_the_page_asks_for_nothing_else(hostile: str) -> None:
    addresses = Tags(hostile).addresses
    assert {a for a in addresses if not a.startswith(("#", "data:image/"))} == set()
    assert "@import" not in hostile
    assert not re.search(r"url\((?!data:)", hostile)
    assert "default-src 'none'" in hostile


def test_ids_are_unique_and_links_lead_somewhere(hostile: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', hostile)
    assert sorted(ids) == sorted(set(ids))
    assert {a[1:] for a in re.findall(r'href="(#[^"]+)"', hostile)} <= set(ids)


def test_the_same_dataset_gives_the_same_page(iris: Path) -> None:
    assert page_of(iris) == page_of(iris)


def test_values_of_which_none_is_common() -> None:
    feature = FeatureSpec("id", Kind.BYTES, dtype="string")
    for values, shown in (
        (CommonValues((), 90, 9, max_error=3), "at most 3 times"),
        (CommonValues((("a", 2),), 90, 9, max_error=3), "at most 5 times"),
        (CommonValues((), 1, 0, num_long=1), "1"),
    ):
        summary = ColumnSummary(feature, 1)
        summary.num_rows, summary.common_values = 90, values
        card = feature_card(summary)
        assert not card.tables
        assert card.facts[-1].text == shown


def test_shares() -> None:
    assert format_share(1, 1000) == "0.1 %"


def test_pages_of_datasets_without_rows(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "zoo")
    nothing = ManifestSplit(records=0, bytes=0, shards=())
    for splits in ({}, {"train": nothing}):
        empty = manifest.model_copy(update={"splits": splits})
        (tmp_path / "zoo" / MANIFEST_NAME).write_bytes(empty.to_bytes())
        Tags(page_of(tmp_path / "zoo"))


def test_pages_of_every_kind_of_feature(tmp_path: Path, rows_dataset: Path) -> None:
    write_dataset(tmp_path / "zoo")
    for folder in (tmp_path / "zoo", rows_dataset):
        page = page_of(folder)
        tags = Tags(page)
        assert {"figure", "details", "img"} <= tags.tags
        for feature in read_manifest(open_store(str(folder))).features:
            assert feature.name in page


def test_a_page_with_many_classes(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "zoo")
    names = tuple(f"class {n}" for n in range(50))
    label = FeatureSpec("label", Kind.INT64, class_names=names)
    figures = DatasetStatistics(manifest, (label,), {"label": names})
    figures.add(
        pa.record_batch({"label": [*range(50), 99]}), next(iter(manifest.splits))
    )
    page = render_page(build_page(manifest, figures, "out", UNKNOWN_INPUT)).decode()
    text = " ".join(Tags(page).texts)
    assert "99 (no class)" in text
