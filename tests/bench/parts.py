"""The parts of the benchmark, and the peers in each."""

from __future__ import annotations

import dataclasses

CONVERT = "{recordmill} convert {kind} {input} {output} --workers 2"


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of a part.

    Attributes:
      name: as the page calls it.
      line: its words.
      rows: of its input; 0: as many as the part has.
      often: it is run as often as recordmill, otherwise as often as slow peers.
      counts: what its output is counted by: "tfrecord", "mds", "tar" or "" (no records).
      row_memory_bytes: what it holds in memory for each row, rounded up.
      inside: its own seconds count, which it prints as JSON in its last line.
      keep: its output stays for the commands after it that name "{kept}".
    """

    name: str
    line: str
    rows: int = 0
    often: bool = False
    counts: str = "tfrecord"
    row_memory_bytes: int = 0
    inside: bool = False
    keep: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """One input and what is run on it.

    Attributes:
      name: on the command line and in the JSON.
      title: on the page.
      kind: of the input, see inputs.py.
      rows: of the input, at full size.
      commands: in their order.
      minutes: what it takes on two quiet cores, inputs made before.
      repeat: runs of recordmill, where the usual ones are too few.
      warm: a round more is run first, which does not count.
      scaled: the input shrinks with `--scale`.
      disk: what the commands need on the disk at most, by the bytes of the largest input.
    """

    name: str
    title: str
    kind: str
    rows: int
    commands: tuple[Command, ...]
    minutes: float
    repeat: int = 0
    warm: bool = False
    scaled: bool = True
    disk: float = 2.5


def mill(
    source: str, *options: str, name: str = "recordmill", rows: int = 0
) -> Command:
    """Convert by recordmill, with its defaults but for these options."""
    line = " ".join([CONVERT.replace("{kind}", source), *options])
    return Command(name, line, rows=rows, often=True)


def script(
    name: str,
    python: str,
    words: str,
    *,
    often: bool = False,
    counts: str = "tfrecord",
    row_memory_bytes: int = 0,
) -> Command:
    """Run a peer's script by the Python of an environment."""
    line = f"{{{python}}} {{here}}/{words}"
    return Command(
        name, line, often=often, counts=counts, row_memory_bytes=row_memory_bytes
    )


def one_worker(source: str) -> Command:
    """Convert by recordmill with one worker: what the second one brings."""
    command = mill(source, name="recordmill, 1 worker")
    return dataclasses.replace(
        command, line=command.line.replace("--workers 2", "--workers 1")
    )


def kept(command: Command) -> Command:
    """Keep the output of a command."""
    return dataclasses.replace(command, keep=True)


# Records of CIFAR-10 in 0.3, 1 and 10 GB of input, whole files of 100,000.
GROWTH = {"0.3 GB": 100_000, "1 GB": 300_000, "10 GB": 3_300_000}
# Shards and scratch of 10 GB of CSV would take 45 GB of disk.
CSV_GROWTH = {"0.36 GB": 1_000_000, "3.6 GB": 10_000_000}


def csv_peers(row_memory_bytes: int) -> tuple[Command, ...]:
    """Name the peers of a table; Beam only where its memory is known."""
    beam = script(
        "beam",
        "interop",
        "peer_beam.py csv {input} {output}",
        row_memory_bytes=row_memory_bytes,
    )
    return (
        script(
            "read and copy",
            "python",
            "peer_read.py pyarrow {input} {kept} {output}",
            often=True,
        ),
        script("polars reads", "peers", "peer_read.py polars {input}", counts=""),
        script("duckdb reads", "peers", "peer_read.py duckdb {input}", counts=""),
        script("tfx", "tfx", "peer_tfx.py csv {input} {output}"),
        script("loop", "interop", "peer_loop.py csv {input} {output}"),
        *([beam] if row_memory_bytes else []),
    )


IMAGE_PEERS = (
    script("copy", "python", "peer_copy.py {input} {output}", often=True),
    script("loop-header", "interop", "peer_loop.py images {input} {output} header"),
    script("tfds", "interop", "peer_tfds.py images {input} {output}"),
    script("webdataset", "peers", "peer_webdataset.py {input} {output}", counts="tar"),
    script(
        "streaming", "streaming", "peer_streaming.py {input} {output}", counts="mds"
    ),
    script(
        "img2dataset",
        "img2dataset",
        "peer_img2dataset.py {input} {output}",
        counts="tar",
    ),
)
RESIZE_PEERS = (
    script("loop", "python", "peer_resize.py pillow {input} {output}", often=True),
    script("tf.image", "interop", "peer_resize.py tf {input} {output}"),
    script(
        "img2dataset",
        "img2dataset",
        "peer_img2dataset.py {input} {output} 224",
        counts="tar",
    ),
)
IMAGE_LOOP = script("loop", "interop", "peer_loop.py images {input} {output}")
CIFAR_LOOP = script("loop", "interop", "peer_loop.py cifar {input} {output}")
CIFAR_TFDS = script("tfds", "interop", "peer_tfds.py cifar {input} {output}")
CIFAR_BEAM = script(
    "beam", "interop", "peer_beam.py cifar {input} {output}", row_memory_bytes=25_000
)

PARTS = (
    Part(
        "startup",
        "Start-up: ten rows of CSV",
        "csv",
        10,
        (
            Command(
                "import apache_beam",
                "{python} -c __import__('apache_beam')",
                often=True,
                counts="",
            ),
            mill("csv"),
            Command("--help", "{recordmill} --help", often=True, counts=""),
        ),
        minutes=0.6,
        repeat=7,
        warm=True,
        scaled=False,
    ),
    Part(
        "encoder",
        "The encoder alone, 40 columns, 110,000 rows in memory, one thread",
        "batches",
        110_000,
        (
            Command(
                "recordmill",
                "{python} {here}/encoder.py recordmill {input}",
                counts="",
                often=True,
                inside=True,
            ),
            Command(
                "tfx",
                "{tfx} {here}/encoder.py tfx {input}",
                counts="",
                often=True,
                inside=True,
            ),
        ),
        minutes=0.6,
    ),
    Part(
        "csv",
        "CSV, 40 columns, 1M rows",
        "csv",
        1_000_000,
        (kept(mill("csv")), *csv_peers(row_memory_bytes=8_000)),
        minutes=4,
        disk=8,
    ),
    Part(
        "infer",
        "`schema infer` of CSV, 40 columns, 3M rows",
        "csv",
        3_000_000,
        (
            Command(
                "recordmill",
                "{recordmill} schema infer csv {input} --workers 2 --output {output}",
                often=True,
                counts="",
            ),
            script(
                "pyarrow reads",
                "python",
                "peer_read.py pyarrow {input}",
                often=True,
                counts="",
            ),
        ),
        minutes=0.5,
    ),
    Part(
        "csv-3m",
        "CSV, 40 columns, 3M rows",
        "csv",
        3_000_000,
        (kept(mill("csv")), one_worker("csv"), *csv_peers(row_memory_bytes=0)),
        minutes=7,
        disk=8,
    ),
    Part(
        "cifar-500k",
        "CIFAR-10, 500k records",
        "cifar",
        500_000,
        (mill("cifar"), CIFAR_LOOP, CIFAR_BEAM),
        minutes=1.3,
    ),
    Part(
        "cifar",
        "CIFAR-10, 2M records",
        "cifar",
        2_000_000,
        (mill("cifar"), CIFAR_LOOP, CIFAR_TFDS),
        minutes=7,
    ),
    Part(
        "images-5k",
        "5,000 JPEG files",
        "images",
        5_000,
        (mill("images"), *IMAGE_PEERS[:3], IMAGE_LOOP),
        minutes=0.4,
    ),
    Part(
        "images",
        "50,000 JPEG files",
        "images",
        50_000,
        (mill("images"), one_worker("images"), *IMAGE_PEERS),
        minutes=4,
    ),
    Part(
        "resize",
        "20,000 JPEG files of 330 to 500 pixels a side, scaled to 224 x 224",
        "images",
        20_000,
        (mill("images", "--resize", "224x224"), *RESIZE_PEERS),
        minutes=9,
    ),
    Part(
        "resize-large",
        "8,000 JPEG files of 1024 x 768, scaled to 224 x 224",
        "large-images",
        8_000,
        (mill("images", "--resize", "224x224"), *RESIZE_PEERS),
        minutes=9,
    ),
    Part(
        "wide",
        "Parquet, 200 columns, 20 of them lists, 50,000 rows",
        "wide",
        50_000,
        (
            mill("parquet"),
            script("tfx", "tfx", "peer_tfx.py wide {input} {output}"),
            script("loop", "interop", "peer_loop.py wide {input} {output}"),
        ),
        minutes=1.2,
    ),
    Part(
        "photos",
        "Photographs of scikit-image, PNG and JPEG, each under 100 names",
        "photos",
        0,
        (mill("images"), *IMAGE_PEERS[:3]),
        minutes=0.4,
        scaled=False,
    ),
    Part(
        "gzip",
        "TFRecord to shards under gzip, level 6, 1M records of the CSV",
        "shards",
        1_000_000,
        (
            mill("tfrecord", "--compression", "gzip"),
            script("writer", "interop", "peer_gzip.py {input} {output}"),
        ),
        minutes=1.4,
    ),
    Part(
        "growth",
        "CIFAR-10, 0.3, 1 and 10 GB",
        "cifar",
        GROWTH["0.3 GB"],
        tuple(mill("cifar", name=name, rows=rows) for name, rows in GROWTH.items()),
        minutes=2.5,
    ),
    Part(
        "growth-csv",
        "CSV, 0.36 and 3.6 GB, `--memory 0`",
        "csvs",
        CSV_GROWTH["0.36 GB"],
        tuple(
            mill("csv", "--memory", "0", name=name, rows=rows)
            for name, rows in CSV_GROWTH.items()
        ),
        minutes=3,
        disk=5,
    ),
)
BY_NAME = {part.name: part for part in PARTS}
