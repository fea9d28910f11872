"""Rows that cannot be converted: where they go, and when they end the run."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    assert_unpublished,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
)


@dataclass(frozen=True)
class Spoilt:
    """An input with one row that cannot be converted.

    Attributes:
      source: the format.
      path: what to convert.
      rows: rows in it, the wrong one included.
      uri: the wrong row's file below the input.
      position: byte offset of the wrong row in it.
      reason: part of the reason expected.
      raw: the wrong row's bytes.
    """

    source: str
    path: Path
    rows: int
    uri: str
    position: int
    reason: str
    raw: bytes


def truncated_cifar(folder: Path) -> Spoilt:
    folder.mkdir()
    whole = (SAMPLES / "cifar" / "data_batch_1.bin").read_bytes()
    (folder / "data_batch_1.bin").write_bytes(whole[:-73])
    start = 159 * 3073
    return Spoilt(
        source="cifar",
        path=folder,
        rows=160,
        uri="data_batch_1.bin",
        position=start,
        reason="3,000 bytes at the end of the file, expected a whole cifar10 record",
        raw=whole[start:-73],
    )


def wrong_column_count(folder: Path) -> Spoilt:
    folder.mkdir()
    lines = IRIS.read_bytes().splitlines(keepends=True)
    wrong = b'6.0,"two\nlines",3.0,4.0,"wr""ong",1\n'
    lines[100:100] = [wrong]
    (folder / "iris.csv").write_bytes(b"".join(lines))
    return Spoilt(
        source="csv",
        path=folder,
        rows=151,
        uri="iris.csv",
        position=len(b"".join(lines[:100])),
        reason="6",
        raw=wrong.rstrip(b"\n"),
    )


def text_named_jpg(folder: Path) -> Spoilt:
    shutil.copytree(SAMPLES / "images", folder)
    for number in range(90):
        shutil.copy(folder / "animals" / "horse.png", folder / f"animals/{number}.png")
    wrong = b"this is no image\n"
    (folder / "medicine" / "wrong.jpg").write_bytes(wrong)
    return Spoilt(
        source="images",
        path=folder,
        rows=101,
        uri="medicine/wrong.jpg",
        position=0,
        reason="",
        raw=wrong,
    )


MAKERS: list[Callable[[Path], Spoilt]] = [
    truncated_cifar,
    wrong_column_count,
    text_named_jpg,
]


def rejects_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.open(encoding="utf-8")]


def assert_reject(reject: dict[str, Any], spoilt: Spoilt) -> None:
    assert list(reject) == ["uri", "position", "reason", "raw"]
    assert reject["uri"] == spoilt.uri
    assert reject["position"] == spoilt.position
    assert spoilt.reason in reject["reason"]
    assert reject["reason"]
    assert base64.b64decode(reject["raw"], validate=True) == spoilt.raw


@pytest.mark.parametrize("make", MAKERS)
def test_no_reject_by_default(tmp_path: Path, make: Callable[[Path], Spoilt]) -> None:
    spoilt = make(tmp_path / "in")
    output = tmp_path / "out"
    ran = recordmill("convert", spoilt.source, spoilt.path, output)
    assert (ran.status, ran.out) == (65, "")
    assert_unpublished(output)
    (folder,) = output.glob(".recordmill/*/rejects")
    assert f"1 of {spoilt.rows} rows rejected (limit 0):\n  1 x " in ran.err
    where = f"byte {spoilt.position:,}"
    if spoilt.source == "csv":
        where = "line 101"
    assert f"first at {spoilt.uri} {where}: " in ran.err
    assert "--max-rejects" in ran.err
    (reject,) = rejects_in(folder)
    assert_reject(reject, spoilt)


@pytest.mark.parametrize("make", MAKERS)
def test_rejects_that_are_allowed(
    tmp_path: Path, make: Callable[[Path], Spoilt]
) -> None:
    spoilt = make(tmp_path / "in")
    output = tmp_path / "out"
    ran = convert(spoilt.source, spoilt.path, output, "--max-rejects", "1%", "--json")
    manifest = manifest_of(output)
    assert manifest["rows_read"] == spoilt.rows
    assert manifest["rows_rejected"] == 1
    records = sum(split["records"] for split in manifest["splits"].values())
    assert records == spoilt.rows - 1
    facts = json.loads(ran.out)
    assert facts["rejects"] == str(output / "rejects")
    assert [reason["rows"] for reason in facts["reasons"]] == [1]
    (reject,) = rejects_in(output / "rejects")
    assert_reject(reject, spoilt)
    assert_whole(output)


@pytest.mark.parametrize(
    ("limit", "wrong_rows", "status"),
    [
        ("1", 1, 0),  # a count
        ("1", 2, 65),
        ("2%", 2, 0),  # exactly the share of 100 rows
        ("1.99%", 2, 65),  # a share is not rounded up
        ("0%", 1, 65),
        ("100%", 100, 65),  # no record to write
    ],
)
def test_limit(tmp_path: Path, limit: str, wrong_rows: int, status: int) -> None:
    rows = ["1,2"] * (100 - wrong_rows) + ["1"] * wrong_rows
    (tmp_path / "in.csv").write_text("\n".join(["a,b", *rows, ""]))
    output = tmp_path / "out"
    options = ["--max-rejects", limit]
    ran = recordmill("convert", "csv", tmp_path / "in.csv", output, *options)
    assert ran.status == status, ran.err
    if status:
        assert_unpublished(output)
    else:
        assert len(rejects_in(output / "rejects")) == wrong_rows


def test_people_are_told(tmp_path: Path) -> None:
    spoilt = wrong_column_count(tmp_path / "in")
    output = tmp_path / "out"
    ran = convert("csv", spoilt.path, output, "--max-rejects", "1")
    assert f"1 row rejected, kept in {output / 'rejects'}" in ran.err
    assert (
        "    1 x expected 5 columns, found 6; first at iris.csv line 101: " in ran.err
    )


def test_a_log_tells_the_reasons(tmp_path: Path) -> None:
    spoilt = wrong_column_count(tmp_path / "in")
    options = ["--max-rejects", "1", "--log-format", "json"]
    ran = convert("csv", spoilt.path, tmp_path / "out", *options)
    events = [json.loads(line) for line in ran.err.splitlines()]
    [event] = [each for each in events if each["event"] == "rows_rejected"]
    assert event["reasons"] == [{"reason": "expected # columns, found #", "rows": 1}]


def disk_is_full(*arguments: object) -> None:
    raise OSError("disk is full")


@pytest.mark.parametrize("first", ["scratch", "reference"])
@pytest.mark.parametrize("make", [truncated_cifar, text_named_jpg])
def test_counted_once_when_the_exchange_changes(
    tmp_path: Path, make: Callable[[Path], Spoilt], first: str
) -> None:
    """A run that failed goes on with another exchange, which rejects in other tasks."""
    spoilt = make(tmp_path / "in")
    output = tmp_path / "out"
    job = ["convert", spoilt.source, str(spoilt.path), str(output), "--max-rejects=1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", disk_is_full)
        assert recordmill(*job, "--exchange", first).status == 1
    other = "reference" if first == "scratch" else "scratch"
    ran = recordmill(*job, "--exchange", other)
    assert ran.status == 0, ran.err
    assert len(rejects_in(output / "rejects")) == 1
    assert manifest_of(output)["rows_rejected"] == 1
    assert_whole(output)
