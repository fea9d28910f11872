"""Names the parts of a dataset: its first run, and each append.

    NAME-train.12345678.tfrecord-00000-of-00008                  part 0, the first run
    NAME-train.g00001-9abcdef0.tfrecord-a00001-00000-of-00002    part 1, an append
    inputs.jsonl.gz, inputs-a00001.jsonl.gz      the input files of each, by content
    inventory.jsonl.gz, ...                      the same files, as they were listed
    run.json, run-a00001.json                    when and how each was made
    rejects/12345678-*.jsonl, rejects/g00001-9abcdef0-a00001-*.jsonl

A part's files are never touched by a later one. The names of shards and rejects have
the mark of the commit that published them: no two datasets of a folder share a name, so
a run that comes late can neither change nor remove a file that is in use. The names
sort as the parts do.
"""

from __future__ import annotations

import re

REJECTS_NAME = "rejects"  # the folder of rejected rows
MAX_APPENDS = 99_999  # five digits, so that names sort
MARK = r"(?:g\d{5,}-)?[0-9a-f]{8}"  # of a commit, in names of files
CONTAINERS = ("tfrecord", "array_record")  # in names of shards
_CONTAINER = rf"(?:{'|'.join(CONTAINERS)})-"


def commit_mark(fingerprint: str, generation: int) -> str:
    """Returns the mark in the names of the files that a commit adds.

    Args:
      fingerprint: of the dataset that it publishes.
      generation: how many commits there were before in this folder.

    >>> commit_mark("0123456789abcdef", 0), commit_mark("0123456789abcdef", 12)
    ('01234567', 'g00012-01234567')
    """
    return (f"g{generation:05d}-" if generation else "") + fingerprint[:8]


def generation_of(mark: str) -> int:
    """Returns the generation in a commit's mark; 0 where there is none.

    >>> generation_of("01234567"), generation_of("g00012-01234567"), generation_of("")
    (0, 12, 0)
    """
    return int(mark[1:].partition("-")[0]) if mark.startswith("g") else 0


def mark_of(shard_file: str) -> str:
    """Returns the mark in a shard's name; "" if it was published without one.

    >>> mark_of("digits-train.g00001-01234567.tfrecord-00000-of-00008")
    'g00001-01234567'
    >>> mark_of("digits-train.tfrecord-a00001-00000-of-00002")
    ''
    """
    found = re.search(
        rf"\.({MARK})(?:\.{_CONTAINER}|\.a\d{{5}}-|-\d+-of-\d+\.)", shard_file
    )
    return found[1] if found else ""


def mark_of_rejects(file: str) -> str:
    """Returns the mark in the name of a published rejects file; "" if there is none.

    >>> mark_of_rejects("rejects/g00001-01234567-range-0.jsonl")
    'g00001-01234567'
    """
    found = re.match(rf"{REJECTS_NAME}/({MARK})-", file)
    return found[1] if found else ""


def marked_rejects(file: str, mark: str) -> str:
    """Returns the name under which a staged rejects file is published.

    >>> marked_rejects("rejects/range-0.jsonl", "01234567")
    'rejects/01234567-range-0.jsonl'
    """
    return f"{REJECTS_NAME}/{mark}-{file.removeprefix(f'{REJECTS_NAME}/')}"


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
    mark = re.search(rf"\.(?:{_CONTAINER})?a(\d{{5}})-", shard_file)
    return int(mark[1]) if mark else 0


def is_shard_name(file: str) -> bool:
    """Tells whether a file is named as shards are, or as their index files.

    >>> is_shard_name("digits-train.tfrecord-00000-of-00008"), is_shard_name("run.json")
    (True, False)
    """
    return any(f".{container}" in file for container in CONTAINERS)


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
