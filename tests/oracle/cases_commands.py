"""Makes the cases of commands: looking, checking, appending, versions, jobs, mistakes, Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from case_lines import section

IRIS = "convert csv ../../samples/iris/iris.csv out"
CIFAR = "convert cifar ../../samples/cifar out"
IMAGES = "convert images ../../samples/images out"
BAD = "a,b\n1,x\n2,y,z\n3\n4,w\n5,v,u\n"
HELPS = ["run", "plan", "schema infer", "schema check", "inspect", "report", "rejects", "diff", "verify", "index", "export tfds", "clean", "completion", *(f"convert {name}" for name in ["images", "cifar", "csv", "parquet", "arrow", "jsonl", "binary", "idx", "numpy", "svhn", "tfrecord", "webdataset"])]  # fmt: skip
JOB = "source: csv\ninputs: in/*.csv\noutput: out\n"
WRITE = """
import apache_beam as beam
from recordmill import ReadDataset, WriteDataset, open_dataset, read_rows
rows = [{{"text": f"text {{i}}", "label": ("low", "high")[i % 2], "marks": [i, i * i], "x": i / 3}} for i in range(60)]
schema = {{"text": "string", "label": {{"classes": ["low", "high"]}}, "marks": "int64[]"}}
with beam.Pipeline("FnApiRunner") as p:
    p | beam.Create(rows) | WriteDataset("out", schema{more})
for row in list(open_dataset("out"{split}))[:3]:
    print(row)
with beam.Pipeline("FnApiRunner") as p:
    p | ReadDataset("out", as_="dict") | beam.Map(lambda row: str(sorted(row))) | beam.combiners.Count.PerElement() | beam.Map(print)
"""
EXAMPLES = """
import apache_beam as beam
from recordmill import WriteDataset
raw = [bytes.fromhex(each) for each in {raw}]
with beam.Pipeline("FnApiRunner") as p:
    p | beam.Create(raw) | WriteDataset("out"{more})
"""
READ = """
import recordmill
print(sorted(recordmill.__all__))
rows = recordmill.open_dataset("out"{more})
print(len(rows), type(rows).__name__)
for row in [rows[0], rows[len(rows) - 1], rows[-1]]: print(row)
for row in list(rows)[:4]: print(row)
for row in list(recordmill.read_rows("out"))[:2]: print(row)
for batch in list(recordmill.read_batches("out"))[:1]: print(batch.schema, len(batch))
"""


def command_cases() -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    made_by = dict(section("datasets", 2))
    looks = [look for (look,) in section("looks", 1)]
    for kind, made in made_by.items():
        yield "looks", kind, {"in/bad.csv": BAD}, [made, *looks[:9]]
        yield "looks", kind, {"in/bad.csv": BAD}, [made, *looks[9:]]
        yield (
            "looks",
            f"{kind}-damaged",
            {"in/bad.csv": BAD},
            [
                made,
                {"do": ["damage", "out/*-0000*-of-0000*"]},
                "verify out",
                "verify out --quick",
                "inspect out",
                "report out",
                "index out",
                made,
                f"{made} --overwrite",
                "verify out",
            ],
        )
        yield (
            "looks",
            f"{kind}-missing",
            {"in/bad.csv": BAD},
            [
                made,
                {"do": ["rm", "out/schema.pbtxt"]},
                "verify out",
                "inspect out --tf",
                made,
                f"{made} --overwrite",
            ],
        )
        yield (
            "python",
            f"open-{kind}",
            {"in/bad.csv": BAD},
            [
                made,
                {"python": READ.format(more="")},
                {"python": READ.format(more=', "train"')},
            ],
        )
    for (look,) in section("more looks", 1):
        yield "looks", "more", {}, [made_by["iris"], look]
    for one, other in (
        ("iris", "gzip"),
        ("iris", "cifar"),
        ("gzip", "array"),
        ("json", "sequence"),
        ("images", "pixels"),
    ):
        yield (
            "looks",
            f"diff-{one}-{other}",
            {},
            [
                made_by[one],
                made_by[other].replace(" out", " other"),
                "diff out other",
                "diff out other --json",
                "diff out other --rows 0",
            ],
        )
    files = {
        "in/a.csv": "a,b\n1,x\n2,y\n",
        "in/b.csv": "a,b\n3,z\n",
        "in/s.yaml": "features:\n  a: int64\n  b: string\n",
        "in/m.py": "def same(batch):\n    return batch\n",
    }
    for (mistake,) in section("mistakes", 1):
        yield "mistakes", "", files, [mistake]
    yield (
        "mistakes",
        "json",
        files,
        [
            "convert csv nothing.csv out --json",
            "convert csv in/a.csv out --shards x --json",
            "verify nothing --json",
            "run nothing.yaml --json",
        ],
    )
    for name in HELPS:
        yield "help", name.replace(" ", "-"), {}, [f"{name} --help"]
    for name, job in section("job files", 2):
        yield (
            "jobs",
            name,
            files | {"job.yaml": job},
            [
                "plan job.yaml",
                "plan job.yaml --json",
                "run job.yaml --set n=2",
                "run job.yaml --set n=2",
                "run job.yaml --json --output other",
            ],
        )
    small, run = (
        {"in/a.csv": "a,b\n1,x\n2,y\n3,x\n", "in/later.txt": "a,b\n4,z\n5,x\n"},
        "convert csv 'in/*.csv' out",
    )
    later, change = (
        {"do": ["cp", "in/later.txt", "in/c.csv"]},
        {"do": ["write", "in/a.csv", "a,b\n9,x\n8,y\n"]},
    )
    for more in (
        "",
        "--label b",
        "--split p=0.5 --split q=0.5",
        "--shards 2 --seed 4",
        "--compression gzip",
        "--exchange engine",
        "--no-shuffle --index",
        "--container array_record",
        "--payload json",
        "--schema in/s.yaml",
        "--split p=0.5 --split q=0.5 --split-exact",
    ):
        given = small | {"in/s.yaml": files["in/s.yaml"]}
        yield (
            "append",
            "grows",
            given,
            [
                f"{run} {more} --append",
                later,
                f"{run} {more} --append --plan",
                f"{run} {more} --append",
                f"{run} {more} --append",
                "verify out --deep",
                "inspect out",
                "export tfds out tfds",
            ],
        )
    for name, text in {
        "type": "a,b\nx,y\n",
        "column": "a,c\n1,2\n",
        "missing": "a,b\n,y\n",
        "empty": "a,b\n",
        "bad": "a,b\n1,2,3\n",
    }.items():
        yield (
            "append",
            f"other-{name}",
            small | {"in/later.txt": text},
            [
                f"{run} --append",
                later,
                f"{run} --append",
                f"{run} --append --max-rejects 2",
                "verify out",
            ],
        )
    yield (
        "append",
        "changed",
        small,
        [
            f"{run} --append",
            change,
            f"{run} --append",
            f"{run} --overwrite",
            f"{run} --append --seed 3",
            {"do": ["rm", "in/a.csv"]},
            later,
            f"{run} --append",
        ],
    )
    yield (
        "append",
        "images",
        {},
        [
            "convert images ../../samples/images/animals ../../samples/images/objects out --append",
            f"{IMAGES} --append",
            "verify out",
        ],
    )
    yield (
        "append",
        "cifar",
        {},
        [
            "convert cifar ../../samples/cifar/batches.meta.txt ../../samples/cifar/data_batch_1.bin out --append",
            f"{CIFAR} --append",
            "verify out --deep",
            "inspect out --json",
            "report out",
        ],
    )
    again = [
        run,
        run,
        f"{run} --json",
        change,
        run,
        f"{run} --plan",
        f"{run} --overwrite",
        f"{run} --overwrite --grace 0",
        f"{run} --seed 5",
        f"{run} --seed 5 --overwrite",
        "clean out",
        "verify out",
    ]
    yield "again", "overwrite", small, again
    auto = f"{run} --dataset-version auto"
    yield (
        "again",
        "versions",
        small,
        [
            auto,
            auto,
            change,
            f"{auto} --plan",
            auto,
            later,
            f"{auto} --keep 2",
            f"{auto} --seed 3 --keep 1",
            "verify out",
            "inspect out",
            "clean out --dry-run",
        ],
    )
    yield (
        "again",
        "foreign",
        small | {"out/x.txt": "x"},
        [run, "verify out", "clean out"],
    )
    yield (
        "again",
        "rejects",
        {"in/bad.csv": BAD},
        [
            run,
            "rejects out",
            "rejects out --unpublished --json",
            "clean out --dry-run",
            "clean out",
            f"{run} --max-rejects 3",
            "rejects out --reason column",
            "rejects out --rows 1",
        ],
    )
    for made in (
        IRIS,
        IMAGES,
        f"{IRIS} --exchange engine",
        f"{IRIS} --memory 0 --shards 3",
    ):
        for step in (1, 4, 8, 12, 16, 20, 25, 30, 40):
            killed = {"args": made.split(), "die_at": step}
            yield (
                "again",
                f"killed-{step}",
                {},
                [
                    killed,
                    {"args": made.split(), "quiet": True},
                    "verify out",
                    {"args": ["clean", "out"], "quiet": True},
                ],
            )
    for (more,) in section("write arguments", 1):
        for split in ("", ', "train"')[: 2 if not more else 1]:
            yield (
                "python",
                "write",
                {},
                [
                    {"python": WRITE.format(more=more, split=split)},
                    {"python": WRITE.format(more=more, split=split)},
                    "verify out --deep",
                ],
            )
    message = [
        "0a0d0a0b0a016112061a040a020102",
        "0a0d0a0b0a016112061a040a020103",
        "0a0d0a0b0a016212061a040a020104",
    ]
    for raw in (message, message[:2], ["00"], []):
        for more in (
            "",
            ', payload="raw"',
            ', {"a": "int64[]"}',
            ', {"a": "int64[]"}, max_rejects=2',
        ):
            yield (
                "python",
                "examples",
                {},
                [
                    {"python": EXAMPLES.format(raw=raw, more=more)},
                    "verify out --deep",
                    "inspect out",
                ],
            )
    yield (
        "python",
        "standard-input",
        {"in/a.csv": "a,b\n1,x\n"},
        [{"args": ["convert", "csv", "-", "out"], "stdin": "in/a.csv"}, "inspect out"],
    )
