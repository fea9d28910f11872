"""Tables that were misread in silence are refused, and each way out that is named works."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from job_tools import convert, manifest_of, recordmill

pytestmark = pytest.mark.usefixtures("without_beam")

NUMBERED = "1001|alice|3.5|\n1002|bob|4.5|\n1003|eve|2.5|\n"


def features_of(dataset: Path) -> dict[str, str]:
    return {one["name"]: one["dtype"] for one in manifest_of(dataset)["features"]}


@pytest.mark.parametrize(
    "text",
    [
        "1001,alice,3.5\n1002,bob,4.5\n1003,eve,n.a.\n",
        NUMBERED,
        "5.1,3.5,,0.2,setosa\n4.9,3.0,,0.2,setosa\n",
        "$5.00,7%\n$6.50,9%\n",
        "23:10,A-17\n22:05,A-18\n",
        "7,oak\n12,elm\n12.5o,ash\n9,fir\n",
    ],
)
def test_a_first_row_is_no_header(tmp_path: Path, text: str) -> None:
    """Whatever blank columns and odd cells there are."""
    source = tmp_path / "in.csv"
    source.write_text(text)
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert "line 1 should be the header, but it looks like a row" in ran.err
    convert("csv", source, tmp_path / "none", "--header", "none")
    assert manifest_of(tmp_path / "none")["rows_read"] == text.count("\n")
    convert("csv", source, tmp_path / "first", "--header", "first")
    assert manifest_of(tmp_path / "first")["rows_read"] == text.count("\n") - 1


@pytest.mark.parametrize(
    "text", ["a-1,x\nb-2,y\nc-3,x\n", "oak,red\nelm,red\nash,blue\n"]
)
def test_a_first_row_that_may_be_one_is_warned_of(tmp_path: Path, text: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text(text)
    ran = convert("csv", source, tmp_path / "out")
    assert "is used as the header, but looks like a row" in ran.err
    assert (
        "Warning" not in convert("csv", source, tmp_path / "b", "--header", "none").err
    )
    assert (
        "Warning" not in convert("csv", source, tmp_path / "c", "--header", "first").err
    )


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("id:name\n1:x\n2:y\n", "--delimiter colon"),
        ("id\x01name\n1\x01x\n2\x01y\n", "--delimiter 0x01"),
        ("id^name\n1^x\n2^y\n", "--delimiter caret"),
        ("id~name\n1~x\n2~y\n", "--delimiter tilde"),
        ("id name\n1 x\n2 y\n", "--delimiter space"),
    ],
)
def test_a_table_in_one_column_is_refused(tmp_path: Path, text: str, way: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text(text)
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert f"between 2 cells. Use {way}. " in ran.err
    convert("csv", source, tmp_path / "out", *way.split())
    assert features_of(tmp_path / "out") == {"id": "int64", "name": "string"}
    [keep] = re.findall("--delimiter comma", ran.err)
    convert("csv", source, tmp_path / "one", *keep.split())
    assert len(features_of(tmp_path / "one")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "id   name\n1    Jane Doe\n22   Joe Bloggs\n",
        "id  n\n1   5\n222 7\n",
        "  id  n\n   1  5\n 222  7\n",
        "id::n\n1::5\n222::7\n",
    ],
)
def test_several_characters_between_cells(tmp_path: Path, text: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text(text)
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    [command] = re.findall("sed '[^']+'", ran.err)
    done = subprocess.run(
        shlex.split(command), input=text.encode(), capture_output=True, check=True
    )
    source.write_bytes(done.stdout)
    convert("csv", source, tmp_path / "out")
    assert features_of(tmp_path / "out")["id"] == "int64"
    assert len(features_of(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    "text",
    ["full name\nJane Doe\nJoe Bloggs\n", "start time\n12:30\n14:15\n", "url\nhttp://a\n"
     "http://b\n", "when\n2026-01-01 12:30\n2026-01-02 12:45\n", "n\n1 234\n5 678\n",
     "ratio\n16:9\n4:3\n5:4\n", "text\nash oak elm fir\nfir ash yew oak\nelm\n"],
)  # fmt: skip
def test_a_single_column_is_one(tmp_path: Path, text: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text(text)
    convert("csv", source, tmp_path / "out")
    assert len(features_of(tmp_path / "out")) == 1


def test_a_line_before_does_not_hide_the_delimiter(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("report of june\nid^name\n1^x\n2^y\n3^z\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65, ran.out
    assert "between 2 cells. Use --delimiter caret. " in ran.err


def test_a_footer_does_not_hide_the_delimiter(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id|name|v\n1|a|2.5\n2|b|3.5\ntotal 6\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert "expected 3 columns, found 1; first at in.csv line 4" in ran.err
    convert("csv", source, tmp_path / "out", "--max-rejects", 1)
    assert features_of(tmp_path / "out")["v"] == "float32"


def test_lines_before_the_header_do_not_hide_the_delimiter(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text(
        "quarterly report\nby willow\nid;name;v\n1;a;2.5\n2;b;3.5\n3;c;4\n"
    )
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    [way] = re.findall("--skip-rows 2", ran.err)
    convert("csv", source, tmp_path / "out", *way.split())
    assert features_of(tmp_path / "out")["v"] == "float32"


def test_a_line_that_names_the_delimiter(tmp_path: Path) -> None:
    """Excel writes and reads it; each file of an input has the same, or none has."""
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a.csv", "b.csv"):
        (source / name).write_bytes(b"sep=;\r\nid;name\r\n1;a,b\r\n2;c,d\r\n")
    ran = convert("csv", source, tmp_path / "out")
    assert features_of(tmp_path / "out") == {"id": "int64", "name": "string"}
    assert manifest_of(tmp_path / "out")["rows_read"] == 4
    assert "header: line 2" in ran.err
    (source / "c.csv").write_text("id;name\n1;a\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out2")
    assert ran.status == 65
    assert "c.csv: the first line is not 'sep=;', as in the first file" in ran.err


def test_text_in_utf_16_without_a_mark(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes("id,name\n1,a\n".encode("utf-16-le"))
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    [way] = re.findall("--encoding utf-16-le", ran.err)
    convert("csv", source, tmp_path / "out", *way.split())
    assert features_of(tmp_path / "out")["id"] == "int64"


@pytest.mark.parametrize(
    "rows",
    [
        [
            '"3","Fears for pensions","Unions say"',
            '"3","Wall St. Bears","Reuters says"',
        ],
        ['"Sports","The race is on again"', '"World","Fears for pensions after talks"'],
    ],
)
def test_files_whose_first_rows_differ_may_have_no_header(
    tmp_path: Path, rows: list[str]
) -> None:
    """As AG News has them: all cells are text."""
    (tmp_path / "in").mkdir()
    for name, row in zip(("test.csv", "train.csv"), rows, strict=True):
        (tmp_path / "in" / name).write_text(f"{row}\n{row.replace('s', 'z')}\n")
    job = ("convert", "csv", tmp_path / "in", tmp_path / "out")
    ran = recordmill(*job)
    assert "its columns differ from the first file" in ran.err
    assert "If the first lines are rows, use --header none, and name" in ran.err
    names = ",".join("abc"[: rows[0].count('","') + 1])
    assert recordmill(*job, "--header", "none", "--columns", names).status == 0
    # Names are none.
    (tmp_path / "in/test.csv").write_text("id,the name\n1,x\n")
    (tmp_path / "in/train.csv").write_text("id,title\n1,x\n")
    assert "--header none" not in recordmill(*job[:3], tmp_path / "other").err
