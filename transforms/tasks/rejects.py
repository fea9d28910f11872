"""Rejected rows: their lines in files, those of a dataset or a run, and their reasons.

A reject is a line of JSON: uri, position (bytes), code, reason, raw (base64). Reasons carry the
values that were found, so they are counted by their common form, the kind:

    "expected 6 columns, found 3"  "expected 6 columns, found 5"
    ->  "expected # columns, found #", 2 rows
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from recordmill.schemas.errors import InputError, OutputError, UsageError
from recordmill.schemas.input_files import MEMBER_MARK, Seen, is_archive_name
from recordmill.schemas.names import REJECTS_NAME, run_metadata_name
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import NOT_VALID, count, printable
from recordmill.transforms.dataset.files import find_manifest, rejects_files
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.registry import SourceFormat, load_format
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace, work_folder_of

MAX_READ_BYTES = 256 << 20  # of a file, to count its lines
MAX_KINDS = 1_000  # reasons of further kinds are counted together
OTHER_KINDS = "other reasons"
NOT_COUNTED = "not counted"
MAX_COUNTED = 100_000  # rejects whose reasons the end of a run counts
MAX_DESCRIBED = 10_000  # rejects that an error message counts
_COMPARED_BYTES = 1 << 16  # of a row
_DESCRIBED_KINDS = 3
_INPUT_NAME = "input.json"  # in a workspace: the input root and the format
_RAW_CHARACTERS = 60  # of a reject that are shown

# What differs from row to row: quoted texts, bytes, lists and numbers.
_VALUES = re.compile(
    r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"|\[[^\]]*\]|-?\d(?:[\d.,]*\d)?"
)


def parse_reject(line: bytes, where: str) -> Reject:
    """Parses one line of a rejects file; a pipeline's row has no path."""
    try:
        fields = json.loads(line)
        from_pipeline = fields["uri"] is None and fields["position"] is None
        return Reject(
            path="" if from_pipeline else str(fields["uri"]),
            position=0 if from_pipeline else int(fields["position"]),
            reason=str(fields["reason"]),
            raw=base64.b64decode(fields["raw"], validate=True),
            code=fields.get("code", "row"),
        )
    except NOT_VALID as error:
        raise OutputError(
            f"{where}: {line[:80]!r} is not a valid reject (expected an object with "
            "uri, position, code, reason and raw)"
        ) from error


@dataclass(frozen=True, slots=True)
class RejectLocator:
    """What finds the lines of rejects; without a root, or if the input changed, none."""

    root: str = ""  # the folder below which all inputs are, or "" if it is not known
    source: str = ""  # name of the input format, which tells whether its rows are lines
    storage: StorageOptions = NO_OPTIONS  # options of the inputs' storage

    def line(self, reject: Reject) -> int | None:
        """Returns the number of the line that a reject begins in, or None.

        Reads the file up to there, which is why it is done for few rejects.
        """
        rows = self._format()
        if not self.root or not reject.path or rows is None or rows.line_of is None:
            return None
        if reject.position > MAX_READ_BYTES or not reject.raw:
            return None
        uri = posixpath.join(self.root, reject.path)
        wanted = reject.raw[:_COMPARED_BYTES]

        def read(start: int, stop: int) -> bytes:
            return read_range(uri, start, stop, self.storage, seen)

        try:
            seen = _seen_in_archive(uri, self.storage)
            if read(reject.position, reject.position + len(wanted)) != wanted:
                return None  # the file has changed since
            return rows.line_of(read, reject.position)
        except InputError:
            return None  # it is gone

    def describe(self, reject: Reject) -> str:
        """Returns "a.csv line 3", or "a.csv byte 17" if the line is not known."""
        if not reject.path:
            return "a row of the pipeline"
        rows, place, unit = self._format(), self.line(reject), "line"
        if place is None:
            place, unit = reject.position, rows.position_unit if rows else "byte"
        return f"{printable(reject.path)} {unit} {place:,}"

    def _format(self) -> SourceFormat[Any] | None:
        try:
            return load_format(self.source) if self.source else None
        except UsageError:  # of a package that is not installed here
            return None


@lru_cache(maxsize=64)
def _seen_in_archive(uri: str, storage: StorageOptions) -> Seen | None:
    """Returns where a member of an archive lies; None of a file that is in none."""
    archive, is_inside, _ = uri.partition(f"{MEMBER_MARK}/")
    if not is_inside or not is_archive_name(archive):
        return None
    _, files = list_inputs([archive], storage, keep_unreadable=True)
    return next((file.seen for file in files if file.uri == uri), None)


UNKNOWN_INPUT = RejectLocator()


@dataclass(frozen=True, slots=True)
class RejectKind:
    """Rejects whose reasons differ in their values alone."""

    kind: str  # the reason with # for each value
    rows: int  # how many there are
    first: Reject  # the first of them

    @property
    def is_known(self) -> bool:
        """Returns whether all rows have the reason of the first."""
        return self.kind not in (OTHER_KINDS, NOT_COUNTED)

    @property
    def code(self) -> str:
        """Returns the code of all rows, or other."""
        return self.first.code if self.is_known else "other"

    @property
    def example(self) -> str:
        """Returns the reason of the first, with its values; the kind if reasons differ."""
        return printable(self.first.reason) if self.is_known else self.kind


def reason_kind(reason: str) -> str:
    """Returns a reason without the values in it.

    >>> reason_kind("price: 'abc' is not a valid float32")
    'price: # is not a valid float#'
    >>> reason_kind("labels: [1, 2] is not int64")
    'labels: # is not int#'
    >>> reason_kind("found 1,200 bytes, expected 3,073.")
    'found # bytes, expected #.'
    >>> reason_kind("expected 6, found 3, 4")
    'expected #, found #, #'
    """
    return _VALUES.sub("#", reason)


def count_kinds(rejects: Iterable[Reject], total: int = 0) -> list[RejectKind]:
    """Counts rejects by the kind of their reasons, the commonest first.

    If there are more in `total`, the others are of the kind NOT_COUNTED, which is the
    last.
    """
    rows: dict[str, int] = {}
    firsts: dict[str, Reject] = {}
    for reject in rejects:
        kind = reason_kind(reject.reason)
        if kind not in rows and len(rows) >= MAX_KINDS:
            kind = OTHER_KINDS
        rows[kind] = rows.get(kind, 0) + 1
        firsts.setdefault(kind, reject)
    kinds = [RejectKind(kind, rows[kind], firsts[kind]) for kind in rows]
    kinds.sort(key=lambda kind: (-kind.rows, kind.kind))
    if kinds and (more := total - sum(rows.values())) > 0:
        kinds.append(RejectKind(NOT_COUNTED, more, kinds[0].first))
    return kinds


def readable_raw(raw: bytes) -> str:
    r"""Returns a reject's bytes as text if they are UTF-8, or their first bytes as hex.

    >>> readable_raw(b"6.0,two"), readable_raw(b"\xff\xd8\xff")
    ('"6.0,two"', 'ff d8 ff')
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        more = " ..." if len(raw) > _RAW_CHARACTERS // 3 else ""
        return raw[: _RAW_CHARACTERS // 3].hex(" ") + more
    more = "..." if len(text) > _RAW_CHARACTERS else ""
    return f'"{printable(text[:_RAW_CHARACTERS])}{more}"'


def describe_kinds(
    rejects: Iterable[Reject], locator: RejectLocator = UNKNOWN_INPUT
) -> str:
    """Describes the commonest kinds of rejects, a line for each; "" without rejects.

    Counts the first rejects only, so that a message never takes long.
    """
    kinds = count_kinds(islice(rejects, MAX_DESCRIBED))
    return "".join(f"\n  {line}" for line in kind_lines(kinds, locator))


def kind_lines(
    kinds: Iterable[RejectKind], locator: RejectLocator = UNKNOWN_INPUT
) -> list[str]:
    """Describes the first kinds: how many rows, why, where the first is, what it is.

    The last line tells how many more kinds there are.
    """
    listed = list(kinds)
    known = [kind for kind in listed if kind.is_known]
    lines = [
        f"{kind.rows:,} x {kind.example}; first at "
        f"{locator.describe(kind.first)}: {readable_raw(kind.first.raw)}"
        for kind in known[:_DESCRIBED_KINDS]
    ]
    if more := known[_DESCRIBED_KINDS:]:
        rows = sum(kind.rows for kind in more)
        lines.append(f"and {count(len(more), 'more reason')} ({count(rows, 'row')})")
    lines += [
        f"and {count(kind.rows, 'row')}: {kind.kind}"
        for kind in listed
        if not kind.is_known
    ]
    return lines


def published_rejects(store: Store) -> Iterator[Reject]:
    """Yields the rejects that are kept beside a dataset, file by file."""
    manifest = find_manifest(store)
    if manifest is not None:
        yield from _rejects_in(store, rejects_files(store, manifest))


def published_locator(store: Store, storage: StorageOptions) -> RejectLocator:
    """Returns what finds the lines of a dataset's rejects, by its run.json."""
    return _locator(store, run_metadata_name(0), storage)


def _locator(store: Store, name: str, storage: StorageOptions) -> RejectLocator:
    try:
        found = json.loads(store.read(name))
        return RejectLocator(str(found["input_root"]), str(found["source"]), storage)
    except (OutputError, ValueError, KeyError, TypeError):
        return UNKNOWN_INPUT  # a pipeline's dataset has none


def save_input(workspace: Workspace, input_root: str, source: str) -> None:
    """Writes to a run's workspace what finds the lines of its rejects."""
    found = {"input_root": input_root, "source": source}
    workspace.put(_INPUT_NAME, json.dumps(found).encode())


def run_rejects(workspace: Workspace) -> Iterator[Reject]:
    """Yields the rejects of one run that has not published."""
    store, folder = workspace.place(REJECTS_NAME)
    yield from _rejects_in(store, store.list(folder))


def first_reject_line(workspace: Workspace) -> str:
    """Describes the first row that a run rejected; "" if there is none."""
    for reject in run_rejects(workspace):
        where = UNKNOWN_INPUT.describe(reject)
        command = rejects_command(workspace)
        return f"rejected: {where}: {printable(reject.reason)} (all so far: {command})"
    return ""


def rejects_command(workspace: Workspace) -> str:
    """Returns the command that lists the rejects of a run that has not published."""
    command = f"recordmill rejects {shlex.quote(workspace.store.uri)} --unpublished"
    folder = str(Path(workspace.root).parent)
    is_default = workspace.shared or isinstance(workspace.store, LocalStore)
    if is_default or folder == work_folder_of(workspace.store.uri):
        return command
    return f"{command} --scratch {shlex.quote(folder)}"


def unpublished_rejects(store: Store, scratch: str = "") -> Iterator[Reject]:
    """Yields the rejects of runs that have not published; "" is the default scratch."""
    for root, run in _unpublished_runs(store, scratch):
        yield from _rejects_in(root, root.list(f"{run}/{REJECTS_NAME}"))


def unpublished_locator(
    store: Store, scratch: str, storage: StorageOptions
) -> RejectLocator:
    """Returns what finds the lines of the rejects that `unpublished_rejects` yields.

    It finds none if these runs had several inputs.
    """
    found = {
        _locator(root, f"{run}/{_INPUT_NAME}", storage)
        for root, run in _unpublished_runs(store, scratch)
        if root.list(f"{run}/{REJECTS_NAME}")
    }
    return found.pop() if len(found) == 1 else UNKNOWN_INPUT


def _unpublished_runs(store: Store, scratch: str) -> Iterator[tuple[Store, str]]:
    """Yields the folder of each run that has not published: a store, its name there."""
    roots: list[Store] = [store.below(WORK_FOLDER)]
    if not isinstance(store, LocalStore):
        local = scratch or work_folder_of(store.uri)
        roots.append(LocalStore(local, follows_links=False))
    for root in roots:
        if isinstance(root, LocalStore) and not Path(root.root).is_dir():
            continue
        for run in sorted(root.list_level().folders):
            yield root, run


def _rejects_in(store: Store, names: Iterable[str]) -> Iterator[Reject]:
    for name in sorted(names):
        if name.endswith(".jsonl"):
            for number, line in enumerate(store.read(name).splitlines(), 1):
                yield parse_reject(line, f"{store.uri_of(name)}: line {number}")
