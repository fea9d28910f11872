"""Formats by name: built in, of other packages, and those that cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.sources import registry
from recordmill.transforms.sources.csv.rows import RangeRows
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.file_splits import AUTO, FileSplits
from recordmill.transforms.sources.partitions import Partitions
from recordmill.transforms.sources.registry import (
    BUILT_IN,
    CifarOptions,
    InstalledFormats,
    SourceFormat,
    format_names,
    load_format,
    make_source,
)

LINES = SourceFormat(
    name="lines",
    summary="Lines.",
    options=SourceOptions,
    make_source=lambda options, request: CsvSource(),
)
Offer = Callable[..., None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Makes entry points known: name=module:attribute."""

    def offer(*points: tuple[str, str]) -> None:
        found = [
            EntryPoint(name, value, registry.ENTRY_POINT_GROUP)
            for name, value in points
        ]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)
        registry._entry_points.cache_clear()

    yield offer
    registry._entry_points.cache_clear()


def test_built_in_formats() -> None:
    assert format_names()[:3] == ("images", "audio", "text")
    for name in BUILT_IN:
        found = load_format(name)
        assert found.name == name
        assert issubclass(found.options, SourceOptions)
        assert make_source(JobSpec(source=name, name="a")).storage.to_dict() == {}


def test_names_and_options_need_no_arrow() -> None:
    """The command line shows its help by them."""
    code = (
        "import sys\nfrom recordmill.transforms.sources.registry import *\n"
        "for name in format_names(): load_format(name).options.model_fields\n"
        "print({'pyarrow', 'apache_beam'} & sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "set()\n", ran.stderr


def test_a_format_of_another_package(offer: Offer) -> None:
    offer(("lines", f"{__name__}:LINES"))
    assert format_names() == (*BUILT_IN, "lines")
    assert load_format("lines") is LINES
    assert dict(InstalledFormats())["lines"] is SourceOptions
    assert isinstance(make_source(JobSpec(source="lines", name="a")), CsvSource)


@pytest.mark.parametrize(
    ("points", "name", "message"),
    [
        ((), "orc", "found 'orc', expected one of images, audio, text, cifar, csv, parquet, arrow, jsonl, binary, idx, numpy, tfrecord, webdataset; a"),
        ((("csv", "a:B"),), "csv", "source csv: is built in, but the package of a:B adds"),
        ((("x", "a:B"), ("x", "c:D")), "x", "a:B and the package of c:D add a format"),
        ((("x", "no_such_module:A"),), "x", "cannot be imported: ModuleNotFoundError"),
        ((("x", f"{__name__}:NONE"),), "x", "cannot be imported: AttributeError"),
        ((("x", f"{__name__}:LINES"),), "x", "is not a SourceFormat with the name 'x'"),
        ((("x", f"{__name__}:BUILT_IN"),), "x", "is not a SourceFormat with the name"),
    ],
)  # fmt: skip
def test_formats_that_cannot_be_loaded(
    offer: Offer, points: tuple[tuple[str, str], ...], name: str, message: str
) -> None:
    offer(*points)
    with pytest.raises(UsageError) as caught:
        load_format(name)
    assert message in str(caught.value)
    assert load_format("images").name == "images"  # the others still work


@pytest.mark.parametrize("name", ["rows", "Lines", "a-b", "", "1a"])
def test_names_that_no_format_may_have(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name of a format"):
        SourceFormat(
            name=name, summary="", options=SourceOptions, make_source=LINES.make_source
        )


def test_options_of_another_format() -> None:
    job = JobSpec(source="csv", name="a")
    rows = RangeRows(partitions=Partitions(are_read=True))
    assert make_source(job) == CsvSource(splits=FileSplits(AUTO), rows=rows)
    wrong = JobSpec(source="images", name="a", source_options=CifarOptions())
    with pytest.raises(
        ValueError, match="has options of type ImagesOptions, got Cifar"
    ):
        make_source(wrong)
    with pytest.raises(ValueError, match="no files to be read from"):
        make_source(JobSpec(source="rows", name="a"))
