"""Reads, counts and locates the rejects of a dataset or a run.

A reject is a line of JSON: uri, position (bytes), code, reason, raw (base64). Reasons
contain the values that were found, so rejects are counted by a common form of their
reasons, the kind:

    "expected 6 columns, found 3"  "expected 6 columns, found 5"
    ->  "expected # columns, found #", 2 rows
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from recordmill.schemas.dataset_text import parse_reject, parse_run_metadata
from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import MEMBER_MARK, FileStat, is_archive_name
from recordmill.schemas.names import (
    REJECTS_NAME,
    UnsafeNameError,
    check_file_name,
    run_metadata_name,
)
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import escape_unprintable, format_count
from recordmill.transforms.dataset.files import find_manifest, rejects_files
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.registry import SourceFormat, load_format
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.reading import (
    is_local,
    local_path,
    read_range,
    real_uri,
)
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace, work_folder_of

MAX_READ_BYTES = 256 << 20  # most bytes of a file that are read to count its lines
MAX_KINDS = 1_000  # further kinds are counted together
OTHER_KINDS = "other reasons"
NOT_COUNTED = "not counted"
MAX_COUNTED = 100_000  # rejects whose reasons the end of a run counts
MAX_DESCRIBED = 10_000  # rejects that an error message counts
_COMPARED_BYTES = 1 << 16  # most bytes of a row that are compared with the input
_DESCRIBED_KINDS = 3
_INPUT_NAME = "input.json"  # in a workspace: the input root and the format
_RAW_CHARACTERS = 60  # most characters of a reject that are shown

# The parts of reasons that differ between rows: quoted texts, bytes, lists and numbers.
_VALUES = re.compile(
    r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"|\[[^\]]*\]|-?\d(?:[\d.,]*\d)?"
)


class RejectLine(NamedTuple):
    """The line in which a reject begins, or the reason why it is unknown."""

    number: int | None = None  # from 1; None if unknown
    problem: str = ""  # the reason, if reading the input was requested


UNKNOWN_LINE = RejectLine()


@dataclass(frozen=True, slots=True)
class RejectLocator:
    """A locator of the lines in which rejects begin; it reads the inputs up to there.

    A dataset must not choose the files that are read. So `root` always comes from the
    user's command: the inputs of a conversion, or `input_root` of a command that shows
    rejects. It never comes from a file of the dataset. Without a root, only byte
    positions are known.
    """

    root: str = ""  # the parent folder or URL of the inputs; "" to read none
    source: str = ""  # name of the input format, which determines if rows are lines
    storage: StorageOptions = NO_OPTIONS  # options of the inputs' storage
    follows_links: bool = False  # whether a link may lead out of a local root

    @property
    def is_by_line(self) -> bool:
        """Returns whether the rows of the format are lines of a file."""
        row_format = self._format()
        return row_format is not None and row_format.line_of is not None

    def line(self, reject: Reject) -> RejectLine:
        """Returns the line in which a reject begins.

        Reads the file up to there, so it is called for few rejects only.
        """
        row_format = self._format()
        if not self.root or not reject.path or not row_format or not row_format.line_of:
            return UNKNOWN_LINE
        if reject.position > MAX_READ_BYTES or not reject.raw:
            return UNKNOWN_LINE
        row = reject.raw[:_COMPARED_BYTES]
        try:
            uri = self._input_uri(reject.path)
            stat = _archive_member_stat(uri, self.storage)

            def read(start: int, stop: int) -> bytes:
                return read_range(uri, start, stop, self.storage, stat)

            if read(reject.position, reject.position + len(row)) != row:
                return RejectLine(
                    problem=f"{uri}: the rejected row is not at byte "
                    f"{reject.position:,}; the file has changed"
                )
            return RejectLine(row_format.line_of(read, reject.position))
        except (InputError, UnsafeNameError) as error:
            return RejectLine(problem=str(error))

    def describe(self, reject: Reject, line: RejectLine | None = None) -> str:
        """Returns a location: "a.csv line 3", or "a.csv byte 17" without a line."""
        if not reject.path:
            return "a row of the pipeline"
        row_format, number, unit = (
            self._format(),
            (line or self.line(reject)).number,
            "line",
        )
        if number is None:
            number = reject.position
            unit = row_format.position_unit if row_format else "byte"
        return f"{escape_unprintable(reject.path)} {unit} {number:,}"

    def _format(self) -> SourceFormat[Any] | None:
        try:
            return load_format(self.source) if self.source else None
        except UsageError:  # a package of the format is not installed here
            return None

    def _input_uri(self, path: str) -> str:
        """Returns the URI of an input.

        Raises:
          UnsafeNameError, InputError: the input is no regular file below the root.
        """
        uri = posixpath.join(self.root, check_file_name(path, self.root))
        if is_local(uri):
            archive, is_inside, _ = uri.partition(f"{MEMBER_MARK}/")
            is_member = is_inside and is_archive_name(archive)
            self._require_regular_file(local_path(archive if is_member else uri))
        return uri

    def _require_regular_file(self, path: Path) -> None:
        try:
            is_regular = stat.S_ISREG(path.stat().st_mode)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        if not is_regular:  # reading a FIFO would block
            raise InputError(f"{path}: not a regular file, so it is not read")
        root = Path(real_uri(self.root))
        if not self.follows_links and not path.resolve().is_relative_to(root):
            raise InputError(
                f"{path}: a link to {path.resolve()}, which is not below {root}, so it is "
                "not read"
            )


@lru_cache(maxsize=64)
def _archive_member_stat(uri: str, storage: StorageOptions) -> FileStat | None:
    """Returns the file stat of an archive member; None for a file outside of archives."""
    archive, is_inside, _ = uri.partition(f"{MEMBER_MARK}/")
    if not is_inside or not is_archive_name(archive):
        return None
    _, files = list_inputs([archive], storage, keep_unreadable=True)
    return next((file.stat for file in files if file.uri == uri), None)


UNKNOWN_INPUT = RejectLocator()


@dataclass(frozen=True, slots=True)
class RejectKind:
    """A group of rejects whose reasons differ only in the values in them."""

    kind: str  # the reason with # for each value
    num_rows: int  # number of rejects
    first_reject: Reject  # the first reject

    @property
    def has_one_reason(self) -> bool:
        """Returns whether all rejects have the same reason, except for values."""
        return self.kind not in (OTHER_KINDS, NOT_COUNTED)

    @property
    def code(self) -> str:
        """Returns the code of all rejects, or "other"."""
        return self.first_reject.code if self.has_one_reason else "other"

    @property
    def example(self) -> str:
        """Returns the reason of the first reject; the kind if reasons differ."""
        return (
            escape_unprintable(self.first_reject.reason)
            if self.has_one_reason
            else self.kind
        )


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
    """Returns the kinds of rejects with their counts, the most frequent kind first.

    If `total` is larger than the number of `rejects`, the difference has the kind
    NOT_COUNTED, which is the last.
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
    kinds.sort(key=lambda kind: (-kind.num_rows, kind.kind))
    if kinds and (num_not_counted := total - sum(rows.values())) > 0:
        kinds.append(RejectKind(NOT_COUNTED, num_not_counted, kinds[0].first_reject))
    return kinds


def readable_raw(raw: bytes) -> str:
    r"""Returns a reject's bytes as text if they are UTF-8, or their first bytes as hex.

    >>> readable_raw(b"6.0,two"), readable_raw(b"\xff\xd8\xff")
    ('"6.0,two"', 'ff d8 ff')
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        ellipsis = " ..." if len(raw) > _RAW_CHARACTERS // 3 else ""
        return raw[: _RAW_CHARACTERS // 3].hex(" ") + ellipsis
    ellipsis = "..." if len(text) > _RAW_CHARACTERS else ""
    return f'"{escape_unprintable(text[:_RAW_CHARACTERS])}{ellipsis}"'


def describe_kinds(
    rejects: Iterable[Reject], locator: RejectLocator = UNKNOWN_INPUT
) -> str:
    """Returns a line for each of the most frequent kinds of rejects; "" without rejects.

    Only the first rejects are counted, so that a message never takes long.
    """
    kinds = count_kinds(islice(rejects, MAX_DESCRIBED))
    return "".join(f"\n  {line}" for line in kind_lines(kinds, locator))


def kind_lines(
    kinds: Iterable[RejectKind], locator: RejectLocator = UNKNOWN_INPUT
) -> list[str]:
    """Returns a line for each of the first kinds: count, reason, first location and row.

    The last line has the number of further kinds.
    """
    kind_list = list(kinds)
    kinds_with_reason = [kind for kind in kind_list if kind.has_one_reason]
    lines = [
        f"{kind.num_rows:,} x {kind.example}; first at "
        f"{locator.describe(kind.first_reject)}: {readable_raw(kind.first_reject.raw)}"
        for kind in kinds_with_reason[:_DESCRIBED_KINDS]
    ]
    if further_kinds := kinds_with_reason[_DESCRIBED_KINDS:]:
        rows = sum(kind.num_rows for kind in further_kinds)
        lines.append(
            f"and {format_count(len(further_kinds), 'more reason')} ({format_count(rows, 'row')})"
        )
    lines += [
        f"and {format_count(kind.num_rows, 'row')}: {kind.kind}"
        for kind in kind_list
        if not kind.has_one_reason
    ]
    return lines


def published_rejects(store: Store) -> Iterator[Reject]:
    """Yields the rejects that are stored with a dataset, file by file."""
    manifest = find_manifest(store)
    if manifest is not None:
        yield from _rejects_in(store, rejects_files(store, manifest))


def published_locator(
    store: Store, input_root: str, storage: StorageOptions
) -> RejectLocator:
    """Returns the locator of a dataset's rejects, with the format from run.json.

    `input_root` comes from the user; "" to read no input.
    """
    name = run_metadata_name(0)
    data = store.read_if_exists(name)
    if data is None:  # the dataset of a pipeline has no run metadata
        return UNKNOWN_INPUT
    source = parse_run_metadata(data, store.uri_of(name)).source
    return RejectLocator(input_root, source, storage)


def save_input(workspace: Workspace, input_root: str, source: str) -> None:
    """Stores the input root and the format of a run's rejects in its workspace."""
    metadata = {"input_root": input_root, "source": source}
    workspace.write_file(_INPUT_NAME, json.dumps(metadata).encode())


def run_rejects(workspace: Workspace) -> Iterator[Reject]:
    """Yields the rejects of an unpublished run."""
    store, folder = workspace.store_and_name(REJECTS_NAME)
    yield from _rejects_in(store, store.list(folder))


def first_reject_line(workspace: Workspace) -> str:
    """Returns a line about the first reject of a run; "" if there is none."""
    for reject in run_rejects(workspace):
        location = UNKNOWN_INPUT.describe(reject)
        command = rejects_command(workspace)
        return f"rejected: {location}: {escape_unprintable(reject.reason)} (all so far: {command})"
    return ""


def rejects_command(workspace: Workspace) -> str:
    """Returns the command that lists the rejects of an unpublished run."""
    command = f"recordmill rejects {shlex.quote(workspace.store.uri)} --unpublished"
    folder = str(Path(workspace.root).parent)
    is_default = workspace.is_in_store or isinstance(workspace.store, LocalStore)
    if is_default or folder == work_folder_of(workspace.store.uri):
        return command
    return f"{command} --scratch {shlex.quote(folder)}"


def unpublished_rejects(store: Store, scratch: str = "") -> Iterator[Reject]:
    """Yields the rejects of unpublished runs; `scratch` "" means the default folder."""
    for root, run in _unpublished_runs(store, scratch):
        yield from _rejects_in(root, root.list(f"{run}/{REJECTS_NAME}"))


def unpublished_locator(
    store: Store, scratch: str, input_root: str, storage: StorageOptions
) -> RejectLocator:
    """Returns the locator of the rejects that `unpublished_rejects` yields.

    It reads no input if the runs had different inputs. `input_root` comes from the user.
    """
    inputs = set[tuple[str, str]]()
    for root, run in _unpublished_runs(store, scratch):
        name = f"{run}/{_INPUT_NAME}"
        if (
            root.list(f"{run}/{REJECTS_NAME}")
            and (data := root.read_if_exists(name)) is not None
        ):
            metadata = parse_run_metadata(data, root.uri_of(name))
            inputs.add((metadata.input_root, metadata.source))
    if len(inputs) != 1:
        return UNKNOWN_INPUT
    return RejectLocator(input_root, inputs.pop()[1], storage)


def _unpublished_runs(store: Store, scratch: str) -> Iterator[tuple[Store, str]]:
    """Yields the folder of each unpublished run: a store, and the name in it."""
    roots: list[Store] = [store.subfolder_store(WORK_FOLDER)]
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
