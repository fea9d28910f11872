"""Lines of text: what Python splits them into, wherever a file is cut."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from job_tools import command, examples_of, recordmill
from source_tools import read, write

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.lines import TextSource

LINES = st.lists(st.sampled_from([b"", b"a", b"\xc3\xbc", b"x" * 30, b" ", b"\xff", b"a\r"]))  # fmt: skip


def python_lines(data: bytes) -> list[bytes]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@examples(100)
@given(
    lines=LINES,
    end=st.sampled_from([b"", b"\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    keeps=st.booleans(),
    range_bytes=st.integers(1, 40),
)
def test_lines_are_those_of_python(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    end: bytes,
    mark: bytes,
    keeps: bool,
    range_bytes: int,
) -> None:
    data = mark + b"\n".join(lines) + end
    if not data:
        return
    folder = tmp_path_factory.mktemp("text")
    write(folder, {"a.txt": data, "packed/a.txt.gz": gzip.compress(data)})
    source = TextSource(keeps_blank_lines=keeps, range_bytes=range_bytes)
    expected = [line for line in python_lines(data) if keeps or line]
    for given_file in ("a.txt", "packed/a.txt.gz"):
        reading = read(source, folder / given_file)
        good = [line.decode() for line in expected if is_text(line)]
        assert [row["text"] for row in reading.rows] == good
        bad = [line for line in expected if not is_text(line)]
        assert [reject.raw for reject in reading.rejects] == bad
    whole = read(replace(source, range_bytes=1 << 20), folder / "a.txt")
    assert whole.origins == read(source, folder / "a.txt").origins


def test_text_by_the_command(tmp_path: Path) -> None:
    """Splits by the names of files; rejects by their lines; records or the bytes alone."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/train.txt").write_text("one\n\ntwo\n")
    (tmp_path / "in/test.txt").write_bytes(b"three\n\xff\n")
    out = tmp_path / "out"
    job = ["convert", "text", tmp_path / "in", out, "--no-shuffle"]
    ran = command(*job)
    assert ran.status != 0
    assert "test.txt line 2" in ran.err
    assert command(*job, "--max-rejects", 1).status == 0
    train, test = (
        [each.features.feature["text"].bytes_list.value[0] for each in examples_of(out, split)]
        for split in ("train", "test")
    )  # fmt: skip
    assert (train, test) == ([b"one", b"", b"two"], [b"three"])
    ran = recordmill("convert", "text", tmp_path / "in/train.txt", tmp_path / "raw", "--payload", "raw", "--blank-lines", "skip")  # fmt: skip
    assert ran.status == 0, ran.err
    assert "2 records" in ran.err


def test_content_of_another_format_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    ran = recordmill("convert", "text", tmp_path / "a.txt", tmp_path / "out")
    assert ran.status != 0
    assert r"not UTF-8: b'\x89PNG' at byte 0 of the line" in ran.err


def test_parallel_texts_are_not_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for split in ("train", "test"):
        for language in ("de", "en", "fr"):
            write(folder, {f"{split}.{language}": f"{split} {language}\n".encode()})
    job = ["convert", "text", str(folder), str(tmp_path / "out")]
    ran = recordmill(*job)
    assert ran.status == 65
    assert f"{folder}/test.en: has the texts of test.de in another language" in ran.err
    ways = re.findall(r"--exclude '([^']+)'", ran.err)
    assert ways == ["*.en*", "*.fr*"]
    ran = recordmill(*job, *(word for way in ways for word in ("--exclude", way)))
    assert ran.status == 0, ran.err
    for split in ("train", "test"):
        (row,) = examples_of(tmp_path / "out", split)
        assert row.features.feature["text"].bytes_list.value == [f"{split} de".encode()]
    for path in [*folder.iterdir()]:
        path.rename(f"{path}.txt")
    ran = recordmill(*job[:3], str(tmp_path / "all"))
    assert ran.status == 0, ran.err
    assert len([*examples_of(tmp_path / "all", "test")]) == 3


def test_texts_of_one_language_are_read(tmp_path: Path) -> None:
    """The same name twice, packed and not, is no other language; nor is a program."""
    names = ("news.en", "news.en.bz2", "main.js", "main.py", "other.de")
    write(tmp_path, dict.fromkeys(names, b"x\n"))
    assert len(read(TextSource(), tmp_path).rows) == len(names)
    write(tmp_path, {"news.de.zst": b"x\n"})
    with pytest.raises(InputError, match=r"texts of news\.de\.zst in another language"):
        read(TextSource(), tmp_path)
