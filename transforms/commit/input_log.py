"""Writes and parses the two lists of a part's inputs (see schemas/dataset/parts.py).

inputs.jsonl.gz contains only what fixes the dataset's bytes: paths are relative to the
input root, each file stands for its content (see transforms/file_content.py), and
max_rejects is left out. An append needs it.

    {"recordmill": 1, "fingerprint": "...", "job": {...}, "by": "content"}
    ["2026/first.csv", 1234, "crc32c:89abcdef"]             path, bytes, content
    ["pictures/1.png", 99, "crc32c:89abcdef", "side"]       a file that cells may name
    ["cat/2.png", 0, "", "unreadable"]                      a broken link

inventory.jsonl.gz is what the run listed. While nothing there changed, nothing has to be
read to know that the inputs are the same. The manifest does not name it, as it differs
when the same files have other times.

    {"recordmill": 1, "fingerprint": "...", "job": {...}, "run": "..."}
    ["2026/first.csv", 1234, "1700000000000000000"]         path, bytes, version

Earlier versions wrote only such a list, as inputs.jsonl.gz and without "run". So does a
run now, if the source tells no checksums or a task was finished by an earlier version.
Both are JSON lines in gzip without file name and time.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.file_content import bytes_of_content
from recordmill.transforms.storage.gzip_packer import gzip_packer
from recordmill.transforms.tasks.fingerprint import FORMAT_VERSION, fixed_fields

_SIDE = "side"
_UNREADABLE = "unreadable"  # a broken link, or a name that is not UTF-8
_LEVEL = 6

CONVERT_ALL = (
    "convert all inputs again with `overwrite=true`, or as a new version "
    "(`version=auto`), without `append`"
)


class KeptFile(NamedTuple):
    """A file as it was when it was converted; a tuple, as there are millions of them.

    Attributes:
      size: in bytes.
      version: modification time or etag; None if it is not known.
      is_side: whether it is not an input, but a file that cells may name.
      is_unreadable: whether it was listed, but could not be read.
      content: of what was read of it (see transforms/file_content.py); None if it is not
        known.
    """

    size: int
    version: str | None
    is_side: bool
    is_unreadable: bool = False
    content: str | None = None


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """The inputs and the job of one part.

    Attributes:
      format_version: version of the records' bytes (FORMAT_VERSION of that run).
      fingerprint: of the dataset that includes this part.
      job: the fields of the job, as `fixed_fields` returns them.
      files: the files by path.
      by_content: whether files have their content in place of their version.
      run_key: of the run that made the part, or "".
    """

    format_version: int
    fingerprint: str
    job: dict[str, Any]
    files: dict[str, KeptFile]
    by_content: bool = False
    run_key: str = ""


def dump_inputs(
    fingerprint: str,
    job: JobSpec,
    files: Sequence[InputFile],
    side_files: Iterable[InputFile] = (),
    *,
    by_content: bool = False,
    run_key: str = "",
) -> bytes:
    """Serializes a list of the inputs of a part; equal values give equal bytes.

    Args:
      fingerprint: of the dataset that includes this part.
      job: of the part.
      files: the inputs.
      side_files: files that cells may name; those that are inputs, too, are left out.
      by_content: whether the files' versions are their content.
      run_key: of the run that makes the part.
    """
    entries = _kept(files, by_content=by_content, is_side=False)
    for path, side in _kept(side_files, by_content=by_content, is_side=True).items():
        entries.setdefault(path, side)
    fields = fixed_fields(job)
    return dump_kept(
        KeptInputs(FORMAT_VERSION, fingerprint, fields, entries, by_content, run_key)
    )


def _kept(
    files: Iterable[InputFile], *, by_content: bool, is_side: bool
) -> dict[str, KeptFile]:
    if by_content:
        return {
            path: KeptFile(size, None, is_side, bool(problem), version)
            for path, _, size, version, _, problem in files
        }
    return {
        path: KeptFile(size, version, is_side, bool(problem))
        for path, _, size, version, _, problem in files
    }


def dump_kept(inputs: KeptInputs, contents: Mapping[str, str] | None = None) -> bytes:
    """Serializes a list of inputs as `parse_inputs` reads it.

    Args:
      inputs: the list.
      contents: that of each file that was read, by path, in place of those in `inputs`.
    """
    head = {
        "recordmill": inputs.format_version,
        "fingerprint": inputs.fingerprint,
        "job": inputs.job,
        **({"by": "content"} if inputs.by_content else {}),
        **({"run": inputs.run_key} if inputs.run_key else {}),
    }
    lines = [_json_line(head)]
    if contents is not None:
        told: Iterable[str | None] = map(contents.get, inputs.files)
    elif inputs.by_content:
        told = (file.content for file in inputs.files.values())
    else:
        told = (file.version for file in inputs.files.values())
    lines += map(_file_line, inputs.files, inputs.files.values(), told)
    # Python's gzip module writes the operating system and, by default, the time.
    packer = gzip_packer(_LEVEL)
    return packer.compress("".join(lines).encode()) + packer.flush()


def _json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _file_line(path: str, file: KeptFile, told: str | None) -> str:
    """Returns what `_json_line` makes of a list of these, in a tenth of its time."""
    text = f"[{encode_basestring(path)},{file.size},{encode_basestring(told or '')}"
    if not (file.is_side or file.is_unreadable):
        return f"{text}]\n"
    kind = [_UNREADABLE] * file.is_unreadable + [_SIDE] * file.is_side
    return f"{text}{''.join([f',{encode_basestring(each)}' for each in kind])}]\n"


# What Python raises where a value of a JSON file is not what is expected there.
_NOT_VALID = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
)  # fmt: skip


def parse_inputs(data: bytes, uri: str) -> KeptInputs:
    """Parses an inventory.

    Raises:
      OutputError: it is not a valid inventory.
    """
    lines: list[str] = []
    try:
        lines = gzip.decompress(data).decode().split("\n")[:-1]
        # One call for all lines: a million files take a second.
        head, *entries = json.loads(f"[{','.join(lines)}]")
        by_content = head.get("by") == "content"
        files = {
            path: KeptFile(
                int(size),
                None if by_content else str(version),
                kind == [_SIDE],
                kind == [_UNREADABLE],
                _checked_content(version, size) if by_content else None,
            )
            for path, size, version, *kind in entries
        }
        if not all(type(path) is str for path in files):
            raise TypeError
        return KeptInputs(
            int(head["recordmill"]),
            str(head["fingerprint"]),
            dict(head["job"]),
            files,
            by_content,
            str(head.get("run", "")),
        )
    except (*_NOT_VALID, OSError, EOFError, zlib.error) as error:
        raise OutputRefusedError(
            f"{uri}: is not a valid inventory of inputs ({_first_problem(lines)}), so "
            f"nothing can be appended to the dataset; {CONVERT_ALL}"
        ) from error


def _checked_content(content: object, size: int) -> str:
    if not isinstance(content, str) or bytes_of_content(content, size) is None:
        raise ValueError(content)
    return content


def _first_problem(lines: Sequence[str]) -> str:
    """Describes the first line of an inventory that is not as it should be."""
    if not lines:
        return "expected lines of JSON, packed by gzip"
    for number, line in enumerate(lines[1:], 2):
        try:
            path, size, _, *_ = json.loads(line)
            if type(path) is str and int(size) >= 0:
                continue
        except _NOT_VALID:
            pass
        return f"line {number}: expected [path, size, version], found {line[:80]}"
    return f"line 1: expected recordmill, fingerprint and job, found {lines[0][:80]}"
