"""Makes the cases of CSV: dialects, cells, encodings, schemas, splits, odd tables."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
from case_lines import section

CSV = "convert csv"
IRIS = "../../samples/iris/iris.csv"
GOATS = "../../golden/tutorial.csv"
LENIENT = "--max-rejects 90%"


DECLARED = (
    "a,b,c,f,m,l,j,h,b64,t,d,k,p,o\n"
    '1,2.5,x,true,7,1;2,"[[1],[2]]",00ff,AAE=,2026-01-05T08:30:00.5Z,2026-01-05,"1,5",one.txt,../x\n'
    '2,3.5,y,false,,3;4,"[[3],[4]]",0a,AQ,2026-01-06T00:00:00Z,2026-01-06,"2,5",one.txt,/etc/passwd\n'
    '300,0.1,z,1,9,5,"[5]",zz,=,yesterday,06.01.2026,"3.5",two.txt,one.txt\n'
)

MAP = """
import pyarrow as pa

def double(batch):
    rows = pa.array([row for row in range(len(batch)) for _ in (0, 1)], pa.int64())
    return batch.take(rows), rows

def few(batch):
    rows = [n for n, row in enumerate(batch.to_pylist()) if len(str(row)) % 3]
    rows = pa.array(rows, pa.int64())
    return batch.take(rows), rows

def fails(batch):
    raise ValueError("not so")
"""
EXPECTED = "features:\n  petal_length_cm: float32\n  species: string\n"


def random_table(random: Random) -> str:
    delimiter = random.choice(",,;\t|")
    cells = ["1", "2.5", "NA", " 7 ", "a", "'", '"x\ny"', '"a""b"', "", "1;2", "x,y"]
    cells += ["\\N", '\\"', '"a\\"', "\\\n", '"1,5"', "1.234,5", "true", "2026-01-05"]
    width = random.choice([1, 2, 3, 3, 5])
    rows = [random.choices(cells, k=width) for _ in range(random.randrange(1, 40))]
    head = delimiter.join(f"h{n}" for n in range(width))
    lines = [head, *map(delimiter.join, rows)]
    for _ in range(random.randrange(3)):
        lines.insert(
            random.randrange(len(lines) + 1), random.choice(["#", '# a "b', ""])
        )
    return random.choice(["\n", "\n", "\r\n", "\r"]).join(lines) + random.choice(
        ["\n", ""]
    )


def random_options(random: Random) -> str:
    some = [
        "--delimiter semicolon", "--quote \"'\"", "--quote none", "--skip-rows 1",
        "--header first", "--header none", "--null-values 'NA,2.5'", "--escape backslash",
        "--comment '#'", "--decimal comma", "--exchange engine", "--exchange reference",
        "--split train=0.5 --split test=0.5", "--shards 2", "--memory 0", "--label h0",
        "--input-compression auto", "--no-shuffle", "--index",
    ]  # fmt: skip
    return " ".join(random.sample(some, random.choice([0, 1, 2, 3])))


def damaged(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice([0, 0, 1, 3])):
        at = random.randrange(len(data))
        data = (
            data[:at]
            + bytes([random.randrange(256)])
            + data[at + random.randrange(3) :]
        )
    return data


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def packed_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


PACKERS = {"gz": packed_gzip, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


def csv_cases() -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    for name, text, options in section("csv tables", 3):
        commands = [f"{CSV} in/a.csv out {options}"]
        if len(text) < 100:
            commands.insert(0, f"{CSV} in/a.csv out {options} --plan")
        if not options:
            commands.insert(0, "schema infer csv in/a.csv")
        yield "", name, {"in/a.csv": text}, commands
    for name, schema in section("csv schemas", 2):
        files = {"in/a.csv": DECLARED, "in/s.yaml": f"features:\n  {schema}\n"}
        files |= {"in/one.txt": "one", "in/two.txt": "two"}
        run = f"{CSV} in/a.csv out --schema in/s.yaml"
        lenient = f"{run} --max-rejects 2 --overwrite"
        yield "", f"schema-{name}", files, ["schema check in/s.yaml", run, lenient]
    for (options,) in section("csv options", 1):
        name = options.replace("--", "").replace(" ", "-").replace("/", "_")[:40]
        files = {"in/map.py": MAP, "in/expected.yaml": EXPECTED}
        yield "", f"iris-{name}", files, [f"{CSV} {IRIS} out {options}"]
    table = "".join(f"{n},{n / 8},text {n % 7}\n" for n in range(5_000)).encode()
    text = b"id,share,kind\n" + table
    for ending, pack in PACKERS.items():
        files = {f"in/a.csv.{ending}": pack(text), "in/b.csv": pack(text[:5000])}
        yield "", f"packed-{ending}", files, [f"{CSV} in out --shards 3"]
        files = {f"in/a.csv.{ending}": pack(text)[:-9]}
        yield "", f"cut-{ending}", files, [f"{CSV} in out"]
        files = {f"in/a.{ending}": pack(text) + b"rubbish behind"}
        yield "", f"behind-{ending}", files, [f"{CSV} in/* out"]
    files = {"in/a.csv": packed_gzip(text[:900]) + packed_gzip(text[900:])}
    yield "", "packed-twice", files, [f"{CSV} in out"]
    files = {"in/a.csv": text, "in/b.csv.gz": packed_gzip(text)}
    yield "", "packed-and-plain", files, [f"{CSV} in out"]
    words = "name,größe\nä€ß,1\nñ,2\n"
    for encoding in (
        "utf-16",
        "utf-16-le",
        "utf-32",
        "latin-1",
        "cp1252",
        "utf-8-sig",
        "shift_jis",
    ):
        data = words.encode(encoding, "replace")
        runs = [f"{CSV} in out --encoding {encoding}", f"{CSV} in out2 {LENIENT}"]
        yield "", f"encoding-{encoding}", {"in/a.csv": data}, runs
    yield (
        "",
        "encoding-gz",
        {"in/a.csv": packed_gzip(words.encode("utf-16"))},
        [f"{CSV} in out"],
    )
    for exchange in ("scratch", "reference", "engine"):
        for more in (
            "",
            "--memory 0",
            "--compression gzip",
            "--split a=0.5 --split b=0.5",
        ):
            run = f"{CSV} {GOATS} out --shards 3 --exchange {exchange} {more}"
            yield "", f"goats-{exchange}", {}, [run]
    several = {
        "in/1.csv": "a,b\n1,x\n",
        "in/2.csv": "a,b\n2,y\n",
        "in/sub/3.csv": "a,b\n3,z\n",
    }
    odd = {
        "order": "b,a\nx,4\n", "more": "a,b,c\n4,x,5\n", "fewer": "a\n4\n", "types": "a,b\nq,7\n",
        "empty": "", "header": "a,b\n", "delimiter": "a;b\n4;x\n", "blank": "\n\n", "text": "hello",
        "names": "a,B\n4,x\n", "none": "4,x\n", "end": "a,b\n4,x",
    }  # fmt: skip
    for name, text_of in odd.items():
        yield "", f"several-{name}", several | {"in/4.csv": text_of}, [f"{CSV} in out"]
    yield (
        "",
        "several-globs",
        several,
        [f"{CSV} 'in/**/*.csv' out", f"{CSV} 'in/[0-9].csv' out2"],
    )
    yield (
        "",
        "several-twice",
        several,
        [f"{CSV} in/1.csv in/1.csv out", f"{CSV} in in/1.csv out2"],
    )
    yield (
        "",
        "several-exclude",
        several,
        [f"{CSV} in out --exclude sub --exclude 2.csv"],
    )
    many = {f"in/{n:03}.csv": f"n,t\n{n},t{n % 3}\n" for n in range(300)}
    yield (
        "",
        "many-small",
        many,
        [f"{CSV} in out --shards 2 --label t", f"{CSV} in out2 --plan"],
    )
    many["in/150.csv"] = "n,t\nx,y,z\n"
    yield (
        "",
        "many-small-odd",
        many,
        [f"{CSV} in out", f"{CSV} in out {LENIENT}", "rejects out"],
    )
    days = "".join(
        f"2026-{1 + n % 12:02}-{1 + n % 28:02},{n},{'ab'[n % 2]}\n" for n in range(200)
    )
    days = "day,n,part\n" + days
    for by in (
        "--split-by-time day=train,2026-06-01,test", "--split-by-time day=a,2026-03-01,b,2026-09-01,c",
        "--split-by-time day=train,80%,test", "--split-by-time n=train,150,test", "--split-column part",
        "--split-column part --label n", "--split-column part --split a=0.5", "--split-by part --split a=1/2 --split b=1/2",
        "--split-by-time day=train,soon,test", "--split-by-time day=train,20260101,test",
    ):  # fmt: skip
        yield "", "days", {"in/a.csv": days}, [f"{CSV} in/a.csv out {by}"]
    for number in range(70):
        random = Random(f"csv {number}")
        data = damaged(random_table(random).encode(), random)
        run = f"{CSV} in/a.csv out {LENIENT} {random_options(random)}"
        yield "", "random", {"in/a.csv": data}, [run]
