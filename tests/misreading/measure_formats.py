"""Measures what becomes of content of one format that is given to the command of another.

    python tests/misreading/measure_formats.py --seed 1 --each 2 --show 20

A case is a small file (or a folder of images) whose format is known, given to a command
under its own name, and under a name with the ending of that command.

| outcome | meaning |
|---|---|
| read | it is of the command's own format, and read |
| led | refused, and the message names the command that reads it; or what it is, if none |
| refused | refused without that |
| told | converted, with a warning |
| wrong | converted as what it is not, in silence |
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import sqlite3
import sys
import tempfile
import wave
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))

from archive_tools import tar_of, zip_of  # noqa: E402
from frames import frame  # noqa: E402
from job_tools import recordmill  # noqa: E402
from pixel_zoo import IMAGES  # noqa: E402
from tfrecord_tools import example  # noqa: E402
from webdataset_tools import npy  # noqa: E402

OUTCOMES = ("read", "led", "refused", "told", "wrong")
# Endings that the files of a command have.
ENDINGS = {
    "csv": "csv", "parquet": "parquet", "arrow": "arrow", "jsonl": "jsonl",
    "images": "jpg", "cifar": "bin", "idx": "idx3-ubyte", "numpy": "npy",
    "tfrecord": "tfrecord", "webdataset": "tar",
}  # fmt: skip
COMMANDS = tuple(ENDINGS)
_WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven")


def _rows(rng: random.Random) -> list[dict[str, object]]:
    return [
        {"id": row, "price": round(rng.uniform(0, 99), 2), "word": rng.choice(_WORDS)}
        for row in range(rng.randint(3, 60))
    ]


def _delimited(rng: random.Random, delimiter: str) -> bytes:
    out, rows = io.StringIO(), _rows(rng)
    writer = csv.DictWriter(out, [*rows[0]], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _json_lines(rng: random.Random) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in _rows(rng)).encode()


def _array(rng: random.Random) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    shape = rng.randint(3, 30), 5, 4
    return np.random.default_rng(rng.randrange(1 << 30)).integers(
        0, 256, shape, np.uint8
    )


def _idx(rng: random.Random) -> bytes:
    array = _array(rng)
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\0\0\x08\x03" + sizes + array.tobytes()


def _cifar(rng: random.Random) -> bytes:
    rows = (bytes([rng.randrange(10)]) + rng.randbytes(3072) for _ in range(20))
    return b"".join(rows)


def _columnar(write: Callable[[pa.Table, io.BytesIO], None]) -> _Make:
    def make(rng: random.Random) -> bytes:
        out = io.BytesIO()
        write(pa.Table.from_pylist(_rows(rng)), out)
        return out.getvalue()

    return make


def _stream(table: pa.Table, out: io.BytesIO) -> None:
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)


def _records(rng: random.Random) -> bytes:
    return frame(
        [
            example({"id": at, "word": rng.randbytes(5)})
            for at in range(rng.randint(1, 9))
        ]
    )


def _samples(rng: random.Random) -> bytes:
    image = IMAGES["rgb.png"][0]
    members: dict[str, bytes] = {}
    for at in range(rng.randint(2, 9)):
        members |= {f"{at:04}.png": image, f"{at:04}.cls": b"%d" % rng.randrange(3)}
    return tar_of(members)


def _sheet(rng: random.Random) -> bytes:
    row = f"<row><c><v>{rng.randrange(99)}</v></c></row>"
    return zip_of(
        {
            "[Content_Types].xml": b"<Types/>",
            "xl/workbook.xml": b"<workbook/>",
            "xl/worksheets/sheet1.xml": f"<sheetData>{row}</sheetData>".encode(),
        }
    )


def _page(rng: random.Random) -> bytes:
    cells = "".join(f"<li>{rng.choice(_WORDS)}, {at}</li>\n" for at in range(9))
    return f"<!DOCTYPE html>\n<html><body>\n<ul>\n{cells}</ul></body></html>\n".encode()


def _readme(rng: random.Random) -> bytes:
    words = " ".join(rng.choices(_WORDS, k=60))
    return f"# The {rng.choice(_WORDS)} data\n\n{words}.\n\n- one, two\n".encode()


def _database(rng: random.Random) -> bytes:
    base = sqlite3.connect(":memory:")
    base.execute("create table t (id integer, word text)")
    base.executemany("insert into t values (?, ?)", [(1, rng.choice(_WORDS))])
    base.commit()
    return base.serialize()


def _sound(rng: random.Random) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(rng.randbytes(4000))
    return out.getvalue()


def _npz(rng: random.Random) -> bytes:
    out = io.BytesIO()
    np.savez(out, x=_array(rng))
    return out.getvalue()


_Make = Callable[[random.Random], bytes]
# Kind -> the command that reads it, "" for none; the ending of its name; its bytes.
KINDS: dict[str, tuple[str, str, _Make]] = {
    "csv": ("csv", "csv", lambda rng: _delimited(rng, ",")),
    "tsv": ("csv", "tsv", lambda rng: _delimited(rng, "\t")),
    "csv.gz": ("csv", "csv.gz", lambda rng: gzip.compress(_delimited(rng, ","))),
    "jsonl": ("jsonl", "jsonl", _json_lines),
    "jsonl.gz": ("jsonl", "jsonl.gz", lambda rng: gzip.compress(_json_lines(rng))),
    "json array": ("", "json", lambda rng: json.dumps(_rows(rng), indent=1).encode()),
    "parquet": ("parquet", "parquet", _columnar(pa.parquet.write_table)),
    "arrow file": ("arrow", "arrow", _columnar(pa.feather.write_feather)),
    "arrow stream": ("arrow", "arrows", _columnar(_stream)),
    "tfrecord": ("tfrecord", "tfrecord", _records),
    "tfrecord.gz": ("tfrecord", "tfrecord.gz", lambda rng: gzip.compress(_records(rng))),
    "webdataset": ("webdataset", "tar", _samples),
    "idx": ("idx", "idx3-ubyte", _idx),
    "idx.gz": ("idx", "idx3-ubyte.gz", lambda rng: gzip.compress(_idx(rng))),
    "npy": ("numpy", "npy", lambda rng: npy(_array(rng))),
    "npz": ("numpy", "npz", _npz),
    "cifar": ("cifar", "bin", _cifar),
    "png": ("images", "png", lambda rng: IMAGES["rgb.png"][0]),
    "jpeg": ("images", "jpg", lambda rng: IMAGES["rgb.jpg"][0]),
    "xlsx": ("", "xlsx", _sheet),
    "pdf": ("", "pdf", lambda rng: b"%PDF-1.7\n" + rng.randbytes(900) + b"\n%%EOF\n"),
    "html": ("", "html", _page),
    "readme": ("", "md", _readme),
    "sqlite": ("", "sqlite", _database),
    "wav": ("", "wav", _sound),
}  # fmt: skip
# What a message calls content that no command reads, or that nothing marks.
_NAMES = {
    "cifar": "binary data",
    "xlsx": "a ZIP file", "pdf": "a PDF file", "sqlite": "an SQLite database",
    "wav": "binary data", "html": "HTML or XML", "json array": "JSON that is not JSON Lines",
    "readme": "prose",
}  # fmt: skip


def judge(kind: str, command: str, ran_status: int, out: str, err: str) -> str:
    """Returns the outcome of a case."""
    own = KINDS[kind][0]
    if ran_status == 0:
        if own == command:
            return "read"
        return "told" if json.loads(out)["understood"]["warnings"] else "wrong"
    named = _NAMES.get(kind, f"`recordmill convert {own}`")
    return "led" if named in err else "refused"


def convert(
    kind: str, command: str, number: int, name: str, folder: Path
) -> tuple[str, str]:
    """Returns the outcome of a case, and what the command says."""
    data = KINDS[kind][2](random.Random(f"{kind} {number}"))
    path = folder / "in" / "some" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    of_images = ("--label-from", "none") if command == "images" else ()
    place = folder / "in" if command == "images" else path
    ran = recordmill("convert", command, place, folder / "out", "--json", *of_images)
    return judge(kind, command, ran.status, ran.out, ran.err), ran.err


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="files of each kind")
    parser.add_argument("--show", default="", help="outcomes to show, with commas")
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    by_command: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, (own, ending, _) in KINDS.items():
        for command in COMMANDS:
            names = [f"a.{ending}"]
            if own != command:
                names.append(f"a.{ENDINGS[command]}")
            for number in range(asked.seed, asked.seed + asked.each):
                for name in names:
                    with tempfile.TemporaryDirectory() as folder:
                        outcome, said = convert(
                            kind, command, number, name, Path(folder)
                        )
                    if outcome in asked.show.split(",") and number == asked.seed:
                        last = said.replace(folder, "").strip().split("\n")[0]
                        print(f"{outcome}: {kind} as {name} to {command}: {last[:260]}")
                    if own != command:
                        total[outcome] += 1
                        by_kind[kind][outcome] += 1
                        by_command[command][outcome] += 1
                    elif outcome != "read":
                        print(f"NOT READ: {kind} by {command}: {said}")
    for title, counts in (
        *((f"given {kind}", each) for kind, each in by_kind.items()),
        *((f"to {command}", each) for command, each in by_command.items()),
        ("all", total),
    ):
        shares = "  ".join(
            f"{each} {counts[each]:4} {counts[each] / counts.total():7.2%}"
            for each in OUTCOMES[1:]
        )
        print(f"{title:20} {counts.total():5}  {shares}")


if __name__ == "__main__":
    main()
