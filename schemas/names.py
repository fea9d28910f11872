"""Names the files of a dataset: those of its first run, and of each append.

    NAME-train.12345678.tfrecord-00000-of-00008                  part 0, the first run
    NAME-train.g00001-9abcdef0.tfrecord-a00001-00000-of-00002    part 1, an append
    inputs.jsonl.gz, inputs-a00001.jsonl.gz      the input files of each, by content
    inventory.jsonl.gz, ...                      the same files, as they were listed
    run.json, run-a00001.json                    when and how each was made
    rejects/12345678-*.jsonl, rejects/g00001-9abcdef0-a00001-*.jsonl

A part's files are never touched by a later one. The names of shards and rejects have
the mark of the commit that published them, so a run that comes late can neither change
nor remove a file that is in use. The names sort as the parts do.
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
MAX_SHARDS = 99_999  # of a split
MARK = r"(?:g\d{5,}-)?[0-9a-f]{8}"  # of a commit, in names of files
CONTAINERS = ("tfrecord", "array_record")  # in names of shards
_CONTAINER = rf"(?:{'|'.join(CONTAINERS)})-"


def commit_mark(fingerprint: str, generation: int) -> str:
    """Returns the mark in the names of the files that a commit of a dataset adds.

    `generation` is how many commits there were before in this folder.

    >>> commit_mark("0123456789abcdef", 0), commit_mark("0123456789abcdef", 12)
    ('01234567', 'g00012-01234567')
    """
    return (f"g{generation:05d}-" if generation else "") + fingerprint[:8]


def generation_of(mark: str) -> int:
    """Returns the generation in a commit's mark; 0 where there is none."""
    return int(mark[1:].partition("-")[0]) if mark.startswith("g") else 0


def mark_of(shard_file: str) -> str:
    """Returns the mark in a shard's name; "" if it was published without one.

    >>> mark_of("digits-train.g00001-01234567.tfrecord-00000-of-00008")
    'g00001-01234567'
    """
    found = re.search(
        rf"\.({MARK})(?:\.{_CONTAINER}|\.a\d{{5}}-|-\d+-of-\d+\.)", shard_file
    )
    return found[1] if found else ""


def mark_of_rejects(file: str) -> str:
    """Returns the mark in the name of a published rejects file; "" if there is none."""
    found = re.match(rf"{REJECTS_NAME}/({MARK})-", file)
    return found[1] if found else ""


def marked_rejects(file: str, mark: str) -> str:
    """Returns the name under which a staged rejects file is published."""
    return f"{REJECTS_NAME}/{mark}-{file.removeprefix(f'{REJECTS_NAME}/')}"


def part_mark(part: int) -> str:
    """Returns the mark in the names of a part's files; "" for the first run's."""
    return f"a{part:05d}" if part else ""


def part_of(shard_file: str) -> int:
    """Returns the part that a shard belongs to, by its name.

    >>> part_of("digits-train.tfrecord-a00001-00000-of-00002")
    1
    """
    mark = re.search(rf"\.(?:{_CONTAINER})?a(\d{{5}})-", shard_file)
    return int(mark[1]) if mark else 0


def is_shard_name(file: str) -> bool:
    """Tells whether a file is named as shards are, or as their index files."""
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


LABELS_ENDING = ".labels.txt"


def format_labels(names: Iterable[str]) -> bytes:
    """Formats class names as lines; as JSON strings where TFDS would change them."""

    def line(name: str) -> str:
        # TFDS splits at line ends (of any system), strips lines and drops empty ones.
        survives = name and name == name.strip() and not {"\n", "\r"} & set(name)
        is_plain = survives and name[0] != '"'
        return name if is_plain else json.dumps(name, ensure_ascii=False)

    return "".join(f"{line(name)}\n" for name in names).encode()


def parse_labels(data: bytes) -> tuple[str, ...]:
    """Parses a labels file; returns its class names in the order of their index.

    Raises:
      ValueError: a name is not UTF-8.
    """
    found = []
    for line in filter(None, map(str.strip, data.decode("utf-8-sig").split("\n"))):
        found.append(line)
        if line[0] == '"':
            with suppress(json.JSONDecodeError):  # else the quote belongs to the name
                found[-1] = str(json.loads(line))
    if not all(map(is_utf8, found)):
        raise ValueError("half of a surrogate pair")
    return tuple(found)


INDEX_SUFFIX = ".idx"  # of the file beside a shard that tells where its records begin


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
    """Returns a shard's file name; those of one part sort as the shards do.

    The marks stand behind a dot, which no split's name has, so that no split can be
    called like them. `part` is 0 for the first run, `mark` is "" while it is staged.

    >>> shard_file_name("digits", "train", 0, 8)
    'digits-train.tfrecord-00000-of-00008'
    >>> shard_file_name("digits", "train", 0, 2, "gzip", part=1, mark="g00002-01234567")
    'digits-train.g00002-01234567.a00001-00000-of-00002.tfrecord.gz'
    """
    start = f"{name}-{split}.{mark}" if mark else f"{name}-{split}"
    suffix = f"{shard_index:05d}-of-{num_shards:05d}"
    if part:
        suffix = f"{part_mark(part)}-{suffix}"
    if compression == "gzip":
        return f"{start}{'.' if part else '-'}{suffix}.tfrecord.gz"
    return f"{start}.{container}-{suffix}"


def staged_file_name(shard_file: str) -> str:
    """Returns the name that a shard has while it is staged: without a mark.

    >>> staged_file_name("digits-train.g00002-01234567.tfrecord-00000-of-00008")
    'digits-train.tfrecord-00000-of-00008'
    """
    mark = mark_of(shard_file)
    return shard_file.replace(f".{mark}", "", 1) if mark else shard_file


def marked_file_name(staged: str, mark: str) -> str:
    """Returns the name under which a staged shard is published.

    >>> marked_file_name("digits-train-00000-of-00008.tfrecord.gz", "01234567")
    'digits-train.01234567-00000-of-00008.tfrecord.gz'
    """
    start, dot, end = staged.partition(".")
    if end.startswith("tfrecord.gz"):  # NAME-SPLIT-00000-of-00008
        start, index, of, total = start.rsplit("-", 3)
        return f"{start}.{mark}-{index}-{of}-{total}.{end}"
    return f"{start}.{mark}{dot}{end}"


_NOT_IN_NAMES = ("\\", "\0")
_MAX_SHOWN = 100
MAX_NAME_BYTES = 255  # of a file or folder, in all usual file systems


class UnsafeNameError(OutputRefusedError, ValueError):
    """A name that could lead out of the folder it belongs to."""


def check_file_name(name: str, where: str = "", *, plain: bool = False) -> str:
    r"""Checks that a name stays below the folder that it is joined to; returns it.

    Nothing becomes a path, or a key in a store, before this function has seen it:

        data/x.tfrecord                              ok
        ../x   a/../b   /etc/x   a//b   a\b   ""     refused

    A `plain` name is that of one file in that folder, which every file system takes:
    UTF-8 of at most MAX_NAME_BYTES. `where` is what has the name, for the message.
    """
    parts = name.split("/")
    outside = any(part in ("", ".", "..") for part in parts)
    outside |= any(mark in name for mark in _NOT_IN_NAMES)
    if plain and (outside or len(parts) > 1):
        expected = "the name of a file without a folder"
    elif outside:
        expected = "a relative path like a/b"
    elif plain and not is_utf8(name):
        expected = "UTF-8"
    elif plain and len(name.encode()) > MAX_NAME_BYTES:
        expected = f"at most {MAX_NAME_BYTES} bytes, found {len(name.encode())}"
    else:
        return name
    shown = repr(name[:_MAX_SHOWN]) + ("..." if len(name) > _MAX_SHOWN else "")
    raise UnsafeNameError(
        f"{where}{': ' if where else ''}name {shown}: expected {expected}"
    )
