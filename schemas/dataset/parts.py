"""Names the parts of a dataset: its first run, and each append.

    NAME-train.tfrecord-00000-of-00008           part 0, the first run
    NAME-train.tfrecord-a00001-00000-of-00002    part 1, the first append; sorts behind
    inputs.jsonl.gz, inputs-a00001.jsonl.gz      the input files of each, by content
    inventory.jsonl.gz, ...                      the same files, as they were listed
    run.json, run-a00001.json                    when and how each was made
    rejects/*.jsonl, rejects/a00001-*.jsonl

A part's files are never touched by a later one.
"""

from __future__ import annotations

import re

REJECTS_NAME = "rejects"  # the folder of rejected rows
MAX_APPENDS = 99_999  # five digits, so that names sort


def part_mark(part: int) -> str:
    """Returns the mark in the names of a part's files; "" for the first run's.

    >>> part_mark(0), part_mark(12)
    ('', 'a00012')
    """
    return f"a{part:05d}" if part else ""


def part_of(shard_file: str) -> int:
    """Returns the part that a shard belongs to, by its name.

    >>> part_of("digits-train.tfrecord-a00001-00000-of-00002")
    1
    >>> part_of("digits-train-00000-of-00008.tfrecord.gz")
    0
    """
    mark = re.search(r"\.(?:tfrecord-)?a(\d{5})-", shard_file)
    return int(mark[1]) if mark else 0


def inputs_name(part: int) -> str:
    """Returns the name of the file that lists the inputs of a part by their content."""
    return f"inputs-{part_mark(part)}.jsonl.gz" if part else "inputs.jsonl.gz"


def inventory_name(part: int) -> str:
    """Returns the name of the file that says as what the inputs of a part were listed."""
    return f"inventory-{part_mark(part)}.jsonl.gz" if part else "inventory.jsonl.gz"


def run_metadata_name(part: int) -> str:
    """Returns the name of the file that tells when and how a part was made."""
    return f"run-{part_mark(part)}.json" if part else "run.json"


def rejects_prefix(part: int) -> str:
    """Returns what the names of a part's files of rejects begin with."""
    return f"{part_mark(part)}-" if part else ""
