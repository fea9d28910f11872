"""Names the files of a dataset, for its first run and for each append.

    NAME-train.12345678.tfrecord-00000-of-00008                  part 0, the first run
    NAME-train.g00001-9abcdef0.tfrecord-a00001-00000-of-00002    part 1, an append
    inputs.jsonl.gz, inputs-a00001.jsonl.gz      checksums of the input files of a part
    inventory.jsonl.gz, ...                      the same files as listed before reading
    run.json, run-a00001.json                    when and how each part was created
    rejects/12345678-*.jsonl, rejects/g00001-9abcdef0-a00001-*.jsonl

A later part never changes the files of an earlier part. The names of shards and rejects
include the ID of the commit that published them. So a delayed run can neither change nor
remove a file that is in use. The names sort in the order of the parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress

from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.text import is_utf8

REJECTS_NAME = "rejects"  # the folder of rejected rows
MAX_APPENDS = 99_999  # five digits, so that names sort
MAX_SHARDS = 99_999  # maximum number of shards of a split
COMMIT_ID_PATTERN = r"(?:g\d{5,}-)?[0-9a-f]{8}"  # pattern of a commit ID in file names
CONTAINERS = ("tfrecord", "array_record")  # containers, as in names of shards
_CONTAINER = rf"(?:{'|'.join(CONTAINERS)})-"


def format_commit_id(fingerprint: str, generation: int) -> str:
    """Returns the commit ID for the names of the files that a commit adds.

    `generation` is the number of earlier commits in this folder.

    >>> format_commit_id("0123456789abcdef", 0), format_commit_id("0123456789abcdef", 12)
    ('01234567', 'g00012-01234567')
    """
    return (f"g{generation:05d}-" if generation else "") + fingerprint[:8]


def parse_generation(mark: str) -> int:
    """Returns the generation in a commit ID; 0 for the first commit."""
    return int(mark[1:].partition("-")[0]) if mark.startswith("g") else 0


def parse_commit_id(shard_file: str) -> str:
    """Returns the commit ID in a shard's name, or "" if the name has none.

    >>> parse_commit_id("digits-train.g00001-01234567.tfrecord-00000-of-00008")
    'g00001-01234567'
    """
    match = re.search(
        rf"\.({COMMIT_ID_PATTERN})(?:\.{_CONTAINER}|\.a\d{{5}}-|-\d+-of-\d+\.)",
        shard_file,
    )
    return match[1] if match else ""


def parse_rejects_commit_id(file: str) -> str:
    """Returns the commit ID in the name of a published rejects file, or ""."""
    match = re.match(rf"{REJECTS_NAME}/({COMMIT_ID_PATTERN})-", file)
    return match[1] if match else ""


def published_rejects_name(file: str, mark: str) -> str:
    """Returns the published name of a staged rejects file."""
    return f"{REJECTS_NAME}/{mark}-{file.removeprefix(f'{REJECTS_NAME}/')}"


def format_part_mark(part: int) -> str:
    """Returns the mark of a part in file names; "" for the first run."""
    return f"a{part:05d}" if part else ""


def parse_part(shard_file: str) -> int:
    """Returns the number of the part that a shard belongs to, by its name.

    >>> parse_part("digits-train.tfrecord-a00001-00000-of-00002")
    1
    """
    mark = re.search(rf"\.(?:{_CONTAINER})?a(\d{{5}})-", shard_file)
    return int(mark[1]) if mark else 0


def is_shard_name(file: str) -> bool:
    """Returns whether a file has the name of a shard or of its index file."""
    return any(f".{container}" in file for container in CONTAINERS)


def inputs_file_name(part: int) -> str:
    """Returns the name of the file with the checksums of the inputs of a part."""
    return f"inputs-{format_part_mark(part)}.jsonl.gz" if part else "inputs.jsonl.gz"


def inventory_file_name(part: int) -> str:
    """Returns the name of the file with the inventory of a part."""
    return (
        f"inventory-{format_part_mark(part)}.jsonl.gz" if part else "inventory.jsonl.gz"
    )


def run_metadata_name(part: int) -> str:
    """Returns the name of the file about the run that created a part."""
    return f"run-{format_part_mark(part)}.json" if part else "run.json"


def rejects_prefix(part: int) -> str:
    """Returns the prefix of the names of a part's rejects files."""
    return f"{format_part_mark(part)}-" if part else ""


LABELS_ENDING = ".labels.txt"


def format_labels(names: Iterable[str]) -> bytes:
    """Formats class names as lines, with JSON strings for names that TFDS changes."""

    def line(name: str) -> str:
        # TFDS splits text at all kinds of line ends, strips lines and drops empty lines.
        survives = name and name == name.strip() and not {"\n", "\r"} & set(name)
        is_plain = survives and name[0] != '"'
        return name if is_plain else json.dumps(name, ensure_ascii=False)

    return "".join(f"{line(name)}\n" for name in names).encode()


def parse_labels(content: bytes) -> tuple[str, ...]:
    """Parses a labels file into class names in index order.

    Raises:
      ValueError: a name is not UTF-8.
    """
    class_names = []
    for line in filter(None, map(str.strip, content.decode("utf-8-sig").split("\n"))):
        class_names.append(line)
        if line[0] == '"':
            with suppress(json.JSONDecodeError):  # else the quote belongs to the name
                class_names[-1] = str(json.loads(line))
    if not all(map(is_utf8, class_names)):
        raise ValueError("an unpaired surrogate")
    return tuple(class_names)


INDEX_SUFFIX = ".idx"  # ending of the file with the record offsets of a shard


def index_file_name(shard_file: str) -> str:
    """Returns the name of a shard's index file, staged or published."""
    return shard_file + INDEX_SUFFIX


def shard_file_name(
    name: str,
    split: str,
    shard_index: int,
    num_shards: int,
    compression: str = "none",
    part: int = 0,
    mark: str = "",
    container: str = "tfrecord",
) -> str:
    """Returns the file name of a shard; the names of a part sort in shard order.

    The commit ID and the mark of the part follow a dot. Names of splits have no dot, so
    they cannot be confused. `part` is 0 for the first run, `mark` is "" while staged.

    >>> shard_file_name("digits", "train", 0, 8)
    'digits-train.tfrecord-00000-of-00008'
    >>> shard_file_name("digits", "train", 0, 2, "gzip", part=1, mark="g00002-01234567")
    'digits-train.g00002-01234567.a00001-00000-of-00002.tfrecord.gz'
    """
    start = f"{name}-{split}.{mark}" if mark else f"{name}-{split}"
    suffix = f"{shard_index:05d}-of-{num_shards:05d}"
    if part:
        suffix = f"{format_part_mark(part)}-{suffix}"
    if compression == "gzip":
        return f"{start}{'.' if part else '-'}{suffix}.tfrecord.gz"
    return f"{start}.{container}-{suffix}"


def staged_file_name(shard_file: str) -> str:
    """Returns the name of a shard while it is staged, without a commit ID.

    >>> staged_file_name("digits-train.g00002-01234567.tfrecord-00000-of-00008")
    'digits-train.tfrecord-00000-of-00008'
    """
    mark = parse_commit_id(shard_file)
    return shard_file.replace(f".{mark}", "", 1) if mark else shard_file


def published_file_name(staged: str, mark: str) -> str:
    """Returns the published name of a staged shard.

    >>> published_file_name("digits-train-00000-of-00008.tfrecord.gz", "01234567")
    'digits-train.01234567-00000-of-00008.tfrecord.gz'
    """
    start, dot, end = staged.partition(".")
    if end.startswith("tfrecord.gz"):  # NAME-SPLIT-00000-of-00008
        start, index, of, total = start.rsplit("-", 3)
        return f"{start}.{mark}-{index}-{of}-{total}.{end}"
    return f"{start}.{mark}{dot}{end}"


_NOT_IN_NAMES = ("\\", "\0")
_MAX_SHOWN = 100
MAX_NAME_BYTES = 255  # maximum size of a name in all usual file systems


class UnsafeNameError(OutputRefusedError, ValueError):
    """A name that could lead out of its folder."""


def check_file_name(name: str, location: str = "", *, plain: bool = False) -> str:
    r"""Checks that a name stays below the folder that it is joined to; returns it.

    Every name passes this function before it becomes a path or a key in a store:

        data/x.tfrecord                              ok
        ../x   a/../b   /etc/x   a//b   a\b   ""     refused

    Args:
      name: The name.
      location: Location of the name, for the message.
      plain: Whether it must be the name of a file directly in the folder that every file
        system accepts: UTF-8 of at most MAX_NAME_BYTES.

    Raises:
      UnsafeNameError: the name is not allowed.
    """
    parts = name.split("/")
    leads_outside = any(part in ("", ".", "..") for part in parts)
    leads_outside |= any(mark in name for mark in _NOT_IN_NAMES)
    if plain and (leads_outside or len(parts) > 1):
        expected = "the name of a file without a folder"
    elif leads_outside:
        expected = "a relative path like a/b"
    elif plain and not is_utf8(name):
        expected = "UTF-8"
    elif plain and len(name.encode()) > MAX_NAME_BYTES:
        expected = f"at most {MAX_NAME_BYTES} bytes, found {len(name.encode())}"
    else:
        return name
    shown_name = repr(name[:_MAX_SHOWN]) + ("..." if len(name) > _MAX_SHOWN else "")
    raise UnsafeNameError(
        f"{location}{': ' if location else ''}name {shown_name}: expected {expected}"
    )
