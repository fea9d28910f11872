"""Compares the inputs of a run with those that a dataset was made from."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice
from json.encoder import encode_basestring
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from recordmill.schemas.errors import (
    InputError,
    MissingFileError,
    OutputError,
    OutputRefusedError,
)
from recordmill.schemas.foreign_text import ForeignModel, ForeignText, is_parsed
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import inputs_name, inventory_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count, first_names, human_bytes, printable
from recordmill.transforms.dataset.files import find_manifest, read_fixed
from recordmill.transforms.file_content import bytes_of_content, content_of
from recordmill.transforms.inventory import (
    BATCH_FILES,
    NO_FILES,
    FileTable,
    Inventory,
    folders_of,
    joined,
)
from recordmill.transforms.parallel import ahead
from recordmill.transforms.sources.registry import (
    ARRAYS_MOVED,
    describe_inputs,
    folder_keys,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.storage.shard_file import gzip_packer
from recordmill.transforms.storage.store import Data
from recordmill.transforms.tasks.fingerprint import (
    FORMAT_VERSION,
    fingerprint_of,
    fixed_fields,
)
from recordmill.transforms.temporary import gather, spilled
from recordmill.transforms.tfrecord import crc32c

# inputs.jsonl.gz contains only what fixes the dataset's bytes: paths are relative to the
# input root, each file stands for its content (see transforms/file_content.py), and
# max_rejects is left out. An append needs it.
#
#     {"recordmill": 1, "fingerprint": "...", "job": {...}, "by": "content"}
#     ["2026/first.csv", 1234, "crc32c:89abcdef"]             path, bytes, content
#     ["images/1.png", 99, "crc32c:89abcdef", "side"]       a file that cells may name
#     ["cat/2.png", 0, "", "unreadable"]                      a broken link
#
# inventory.jsonl.gz is what the run listed. While nothing there changed, nothing has to be
# read to know that the inputs are the same. The manifest does not name it, as it differs
# when the same files have other times.
#
#     {"recordmill": 1, "fingerprint": "...", "job": {...}, "run": "..."}
#     ["2026/first.csv", 1234, "1700000000000000000"]         path, bytes, version
#
# Where the source has no checksums, such a list is inputs.jsonl.gz, without "run". Both are JSON lines in gzip without file name and time.

_SIDE = "side"
_UNREADABLE = "unreadable"  # a broken link, or a name that is not UTF-8
_LEVEL = 6
_PACKED_BYTES = 128 << 20  # of lines that are packed at once

CONVERT_ALL = (
    "convert all inputs again with `overwrite=true`, or as a new version "
    "(`version=auto`), without `append`"
)


class KeptFile(NamedTuple):
    """A file as it was when it was converted."""

    size: int
    version: str | None  # modification time or etag, if it is known
    is_side: bool  # whether it is no input, but a file that cells may name
    is_unreadable: bool = False  # whether it was listed, but could not be read
    content: str | None = (
        None  # of what was read of it (see transforms/file_content.py)
    )


_KEPT = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "version": pa.string(),
        "is_side": pa.bool_(),
        "is_unreadable": pa.bool_(),
        "content": pa.string(),
    }
)


@dataclass(frozen=True, eq=False)
class KeptFiles(FileTable):
    """Files as they were when they were converted: paths, and the fields of `KeptFile`."""

    @classmethod
    def listed(cls, files: Inventory, *, are_side: bool) -> KeptFiles:
        """Returns the files of an inventory, of which nothing was read yet."""

        def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = {
                **dict(zip(batch.schema.names, batch.columns, strict=True)),
                "is_side": pa.repeat(are_side, len(batch)),
                "is_unreadable": batch["problem"].is_valid(),
                "content": pa.nulls(len(batch), pa.string()),
            }
            arrays = [columns[name] for name in _KEPT.names]
            return pa.RecordBatch.from_arrays(arrays, schema=_KEPT)

        return cls(gather(map(kept, files.batches()), _KEPT))

    def __iter__(self) -> Iterator[tuple[str, KeptFile]]:
        for batch in self.batches():
            paths, *columns = (each.to_pylist() for each in batch.columns)
            yield from zip(paths, map(KeptFile, *columns), strict=True)


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """The inputs and the job of one part."""

    format_version: int  # of the records' bytes: FORMAT_VERSION of that run
    fingerprint: str  # of the dataset that includes this part
    job: dict[str, Any]  # its fields, as `fixed_fields` returns them
    files: KeptFiles
    by_content: bool = False  # whether files have their content, not their version
    run_key: str = ""  # of the run that made the part


def kept_files(files: Inventory, side_files: Inventory = NO_FILES) -> KeptFiles:
    """Returns what a run listed; of the files that cells may name, those not listed, too."""
    sides = KeptFiles.listed(side_files.without(files.paths), are_side=True)
    own = KeptFiles.listed(files, are_side=False).each_once()
    return KeptFiles(pa.concat_tables([own.table, sides.table]))


def dump_kept(inputs: KeptInputs) -> Data:
    """Serializes a list of inputs as `parse_inputs` reads it; a long one is mapped."""
    return spilled(_packed(inputs))


def _packed(inputs: KeptInputs) -> Iterator[bytes]:
    head = {
        "recordmill": inputs.format_version,
        "fingerprint": inputs.fingerprint,
        "job": inputs.job,
        **({"by": "content"} if inputs.by_content else {}),
        **({"run": inputs.run_key} if inputs.run_key else {}),
    }
    told = "content" if inputs.by_content else "version"
    # Python's gzip module writes the operating system and, by default, the time. So many at
    # once: the packed bytes depend on how the lines are cut.
    packer = gzip_packer(_LEVEL)
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
    lines = bytearray(f"{text}\n".encode())
    for batch in inputs.files.batches():
        path, text = _quoted(batch["path"]), _quoted(batch[told].fill_null(""))
        kind = pc.if_else(batch["is_unreadable"], f',"{_UNREADABLE}"', "")
        side = pc.if_else(batch["is_side"], f',"{_SIDE}"', "")
        size = batch["size"].cast(pa.string())
        lines += joined("[", path, ",", size, ",", text, kind, side, "]\n")
        while len(lines) > _PACKED_BYTES:
            with memoryview(lines) as view:
                yield packer.compress(view[:_PACKED_BYTES])
            del lines[:_PACKED_BYTES]
    yield packer.compress(lines)
    yield packer.flush()


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    """Returns each text as JSON."""
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        return pa.array(map(encode_basestring, texts.to_pylist()), pa.string())
    return pc.binary_join_element_wise('"', texts, '"', "")


class _KeptSplit(ForeignModel):
    """A split of a kept job."""

    name: str
    fraction: str


class _KeptFunction(ForeignModel):
    """The `map` function of a kept job."""

    function: str
    checksum: str


class _KeptJob(ForeignModel):
    """The fields of a kept job whose parts `option_changes` names."""

    source_options: dict[str, Any] = Field(default={})
    sharding: dict[str, Any] = Field(default={})
    splits: tuple[_KeptSplit, ...] = ()
    map: _KeptFunction | None = None


def _check_job(job: dict[str, Any]) -> dict[str, Any]:
    _KeptJob.model_validate(job)
    return job


class _KeptHead(ForeignModel):
    """The first line of a list of inputs."""

    recordmill: int
    fingerprint: str
    job: Annotated[dict[str, Any], AfterValidator(_check_job)]
    by: str = ""
    run: str = ""


def parse_inputs(data: bytes, uri: str) -> KeptInputs:
    """Parses an inventory.

    Raises:
      OutputRefusedError: it is not a valid one.
    """
    advice = f"Nothing can be appended to the dataset; {CONVERT_ALL}"
    text = ForeignText(uri, "valid inventory of inputs", advice)
    with (
        text.parsing(lambda _: "expected lines of JSON, packed by gzip"),
        gzip.open(io.BytesIO(data)) as lines,
    ):
        if not (first := lines.readline()):
            raise EOFError
        with text.parsing(lambda _: _expected(1, _HEAD, first)):
            head = _KeptHead.model_validate_json(first)
        by_content = head.by == "content"

        def batches() -> Iterator[pa.RecordBatch]:
            next_line = 2
            while part := list(islice(lines, BATCH_FILES)):
                problem = partial(_line_problem, part, next_line, by_content)
                with text.parsing(problem):
                    batch = _parse_lines(part, by_content=by_content)
                yield batch
                next_line += len(part)

        files = KeptFiles(gather(batches(), _KEPT))
    return KeptInputs(
        *(head.recordmill, head.fingerprint, head.job, files, by_content, head.run)
    )


def _parse_lines(lines: Sequence[bytes], *, by_content: bool) -> pa.RecordBatch:
    # One call for all lines: a million files take a second.
    entries = [
        (path, int(size), str(told), kind)
        for path, size, told, *kind in json.loads(b"[%b]" % b",".join(lines))
    ]
    paths, sizes, told, kinds = zip(*entries, strict=True)
    if not all(type(path) is str for path in paths) or min(sizes) < 0:
        raise TypeError
    nothing = [None] * len(told)
    if by_content and None in map(bytes_of_content, told, sizes):
        raise ValueError
    columns = (
        *(paths, sizes, nothing if by_content else told),
        *([kind == [name] for kind in kinds] for name in (_SIDE, _UNREADABLE)),
        told if by_content else nothing,
    )
    arrays = map(pa.array, columns, _KEPT.types)
    return pa.RecordBatch.from_arrays(list(arrays), schema=_KEPT)


_HEAD = "recordmill, fingerprint and job"
_SHOWN_BYTES = 80  # of a line


def _line_problem(
    lines: Sequence[bytes], first: int, by_content: bool, _error: Exception
) -> str:
    """Describes the first of these lines that is not valid; they count from `first`."""
    for number, line in enumerate(lines, first):
        if not is_parsed(partial(_parse_lines, [line], by_content=by_content)):
            return _expected(number, "[path, size, version]", line)
    return "expected lines of JSON"


def _expected(number: int, fields: str, line: bytes) -> str:
    shown = printable(line.rstrip()[:_SHOWN_BYTES].decode(errors="replace"))
    return f"line {number}: expected {fields}, found {shown}"


_SHARDING = {
    "num_shards": "shards",
    "shard_bytes": "shard_size",
    "num_readers": "readers",
}


# What `fixed_fields` leaves out where it has its default value.
_DEFAULTS = JobSpec(source="csv", name="data").model_dump(
    mode="json", exclude={"source", "name", "max_rejects", "source_options"}
)


def option_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], free: Sequence[str] = ()
) -> Iterator[str]:
    """Yields the options that differ between `fixed_fields` of jobs, with both values.

    Those that are free may differ.
    """
    old, new = _options_of(before), _options_of(now)
    for option in sorted({*old, *new}.difference(free)):
        if old.get(option) == new.get(option):
            continue
        if option == "declared":
            yield "the declared schema"
        elif option == "map":
            yield f"{_function(old.get(option))}, now {_function(new.get(option))}"
        elif option == "source":
            yield f"the input format {old.get(option)}, now {new.get(option)}"
        elif option == "sharding":  # of three options, each dataset has one
            yield f"{old.get(option)}, now {new.get(option)}"
        else:
            yield f"{_option(option, old)}, now {_option(option, new)}"


def _options_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a kept job, under the names that people give them."""
    options = {**_DEFAULTS, **fields}
    options |= options.pop("source_options", {})
    for name, value in options.pop("sharding", {}).items():
        if value is not None:
            options["sharding"] = f"`{_SHARDING.get(name, name)}={value}`"
    splits = options.pop("splits", [])
    options["splits"] = ",".join(f"{s['name']}={s['fraction']}" for s in splits)
    return {name: value for name, value in options.items() if value is not None}


def _function(value: Mapping[str, str] | None) -> str:
    """Returns how a function is told apart from others, of the same name or not."""
    if value is None:
        return "no `map`"
    return f"the `map` function {value['function']} (checksum {value['checksum'][:8]})"


def _option(name: str, options: Mapping[str, Any]) -> str:
    if name not in options:
        return f"no `{name}`"
    value = options[name]
    text = value if isinstance(value, str) else json.dumps(value)
    if not text or any(c.isspace() or c == "`" or not c.isprintable() for c in text):
        return f"`{name}` {json.dumps(text)}"  # front ends could not spell it
    return f"`{name}={text}`"


# Size and version (modification time or etag) tell quickly that a file is the same. A copy
# has another version, and so has a file that was touched: those are read, and the checksum
# of their content decides.

PART_BYTES = 8 << 20  # read at once by each thread
_THREADS = 8
_AHEAD = 2 * _THREADS  # parts


class Pairs(NamedTuple):
    """Files of a dataset and the same ones of the inputs, side by side."""

    kept: KeptFiles
    files: Inventory

    def same_unread(self) -> pa.ChunkedArray:
        """Returns which files are the same; null where they have to be read for that."""
        old, now = self.kept.table, self.files.table
        broken, content = old["is_unreadable"], old["content"]
        is_whole = pc.and_(
            pc.equal(old["size"], now["size"]),
            pc.equal(broken, now["problem"].is_valid()),
        )
        times = pc.fill_null(pc.equal(old["version"], now["version"]), False)
        unread = pc.or_(pc.equal(old["size"], 0), pc.equal(content, ""))
        may_differ = pc.if_else(unread, True, pa.scalar(None, pa.bool_()))
        without_times = pc.if_else(content.is_null(), False, may_differ)
        is_same = pc.if_else(pc.or_(broken, times), True, without_times)
        return pc.if_else(is_whole, is_same, False)


def read_contents(
    files: Sequence[tuple[InputFile, int]], storage: StorageOptions
) -> Iterator[str]:
    """Yields the content of each file, in order; a few parts are read ahead.

    Of each file at least one byte is to be read.
    """

    def read(part: tuple[InputFile, int, int]) -> FileChecksum:
        file, start, stop = part
        data = read_range(file.uri, start, stop, storage, file.seen)
        if len(data) < stop - start:
            raise InputError(
                f"{file.uri}: ends at byte {start + len(data)}, but had {file.size} "
                "bytes when it was listed; did it change meanwhile?"
            )
        return FileChecksum(file.path, start, stop, crc32c(data))

    sizes = {file.path: file.size for file, _ in files}
    parts = (
        (file, start, min(start + PART_BYTES, size))
        for file, size in files
        for start in range(0, size, PART_BYTES)
    )
    checksums = ahead(parts, read, _THREADS, most=_AHEAD)
    for path, own in groupby(checksums, lambda checksum: checksum.path):
        yield content_of(path, own, sizes[path])


@dataclass
class ContentCheck:
    """A comparison of files with those of a dataset; reads each file once at most."""

    storage: StorageOptions = NO_OPTIONS  # of the inputs
    tell: Callable[[str], None] = lambda _: None  # called before files are read
    _known: dict[InputFile, str] = field(default_factory=dict, repr=False)

    def changed(self, pairs: Pairs) -> Iterator[InputFile]:
        """Yields the files that are not the same any more; stop when you know enough.

        Nothing is read if any file is surely another one.
        """
        same = pairs.same_unread()
        if surely := pairs.files.where(pc.equal(same, False)):
            yield from surely
            return
        files = list(pairs.files.where(same.is_null()))
        before = pairs.kept.table["content"].filter(same.is_null()).to_pylist()
        unread = [
            (file, bytes_of_content(content, file.size) or 0)
            for file, content in zip(files, before, strict=True)
            if file not in self._known
        ]
        if unread:
            have = "has another time" if len(unread) == 1 else "have other times"
            size = human_bytes(sum(size for _, size in unread))
            self.tell(
                f"{count(len(unread), 'input file')} of the same name and size {have}: "
                f"reading {size} to compare"
            )
        found = read_contents(unread, self.storage)
        for file, content in zip(files, before, strict=True):
            if file not in self._known:
                self._known[file] = next(found)
            if self._known[file] != content:
                yield file

    def versions_read(self) -> dict[str, str]:
        """Returns the versions of the files that were read, by path."""
        return {file.path: file.version for file in self._known}

    def known_as_same(self, pairs: Pairs) -> pa.ChunkedArray:
        """Returns which files are the same, as far as that is known without reading."""
        same = pairs.same_unread()
        before = pairs.kept.table["content"].filter(same.is_null()).to_pylist()
        files = pairs.files.where(same.is_null())
        read = [self._known.get(f) == c for f, c in zip(files, before, strict=True)]
        if not read:
            return same
        return pc.replace_with_mask(
            same.combine_chunks(), same.is_null().combine_chunks(), pa.array(read)
        )


_SHOWN = 3  # files in an error message


def read_part(store: Store, manifest: Manifest, part: int) -> KeptInputs:
    """Reads the inputs of one part: their content, and their versions where known."""
    name = inputs_name(part)
    kept = parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    if not kept.by_content:
        return kept
    listed = read_inventory(store, manifest, part)
    if listed is None or listed.fingerprint != kept.fingerprint:
        return kept
    versions = listed.files.look_up("version", pa.string(), kept.files.paths)
    files = kept.files.having("version", versions)
    return replace(kept, files=files, run_key=listed.run_key)


def _read_parts(store: Store, manifest: Manifest) -> list[KeptInputs]:
    return [read_part(store, manifest, part) for part in range(manifest.appended + 1)]


def read_inventory(store: Store, manifest: Manifest, part: int) -> KeptInputs | None:
    """Reads what the run of a part listed; None if that is not known any more."""
    name = inventory_name(part)
    try:
        return parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    except OutputError:
        return None  # nothing is lost: the inputs can be read to compare them


def key_of(store: Store, manifest: Manifest) -> str:
    """Returns the key of the run that made a dataset, or its last part.

    Where it is not known, it is the fingerprint.
    """
    listed = read_inventory(store, manifest, manifest.appended)
    if listed is None or listed.fingerprint != manifest.fingerprint:
        return manifest.fingerprint
    return listed.run_key or manifest.fingerprint


def is_of_run(store: Store, manifest: Manifest, run_key: str) -> bool:
    """Tells whether a dataset, or its last part, was made by runs with this key."""
    return run_key in (manifest.fingerprint, key_of(store, manifest))


def is_same_dataset(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    side_files: Inventory,
    reading: str,
    check: ContentCheck,
) -> bool:
    """Tells whether a job would make just this dataset, if need be by reading inputs.

    A dataset that was appended to is not what one run makes. `reading` is what
    `registry.describe_inputs` says of the inputs.
    """
    run_key = fingerprint_of(job, files, side_files, reading=reading)
    if is_of_run(store, manifest, run_key):
        return True
    if manifest.appended:
        return False
    try:
        kept = read_part(store, manifest, 0)
    except OutputError:
        return False
    files = files.each_once()
    now = files + side_files.without(files.paths)
    positions = kept.files.find(now.paths)
    same_names = len(now) == len(kept.files) and not positions.null_count
    if not (kept.by_content and same_names):
        return False
    pairs = Pairs(kept.files.take(positions), now)
    by_content = now.having("version", pairs.kept.table["content"])
    parts = by_content[: len(files)], by_content[len(files) :]
    if fingerprint_of(job, *parts, reading=reading) != manifest.fingerprint:
        return False
    return next(check.changed(pairs), None) is None


def renew_inventories(
    store: Store, manifest: Manifest, versions: Mapping[str, str], run_key: str
) -> None:
    """Notes the versions of inputs that turned out to be the same, for the next run.

    Call it with the lease held. `run_key` is that of the run that found them.
    """
    for part in range(manifest.appended + 1):
        seen = store.find(inventory_name(part))
        if find_manifest(store) != manifest:
            return  # another run was faster
        kept = read_part(store, manifest, part)
        paths = pa.array(list(versions), pa.string())
        found = pc.index_in(kept.files.paths, value_set=paths)
        if not kept.by_content or found.null_count == len(found):
            continue
        times = pa.chunked_array([pa.array(versions.values(), pa.string())])
        times = pc.coalesce(times.take(found), kept.files.table["version"])
        files = kept.files.having("version", times)
        key = kept.run_key if manifest.appended else run_key
        renewed = replace(kept, files=files, run_key=key, by_content=False)
        store.swap(dump_kept(renewed), inventory_name(part), seen=seen)


def read_inputs(store: Store, manifest: Manifest, job: JobSpec) -> KeptFiles:
    """Reads all files that a dataset was made from, for a job that appends.

    Raises:
      OutputError: its inventories are missing, damaged, or of another job.
    """
    uri = store.uri_of(inputs_name(manifest.appended))
    try:
        parts = _read_parts(store, manifest)
    except MissingFileError as error:
        raise OutputRefusedError(
            f"{error}; without this inventory of the converted inputs nothing can be "
            f"appended; {CONVERT_ALL}"
        ) from error
    kept = parts[-1]
    if kept.fingerprint != manifest.fingerprint:
        raise OutputRefusedError(
            f"{uri}: belongs to another dataset (fingerprint {kept.fingerprint}, the "
            f"manifest says {manifest.fingerprint}); {CONVERT_ALL}"
        )
    if kept.format_version != FORMAT_VERSION:
        raise OutputRefusedError(
            f"{store.uri}: was written by another version of recordmill in another "
            f"format ({kept.format_version}, now {FORMAT_VERSION}); {CONVERT_ALL}"
        )
    # What new files have beside the dataset's columns says nothing of its records.
    free = ["columns", "extra_columns"]
    if _reads_no_folders(job, manifest, parts):
        free.append("partitions")
    if changes := list(option_changes(kept.job, fixed_fields(job), free)):
        raise OutputRefusedError(
            f"{store.uri}: was made by another job. Changed: {'; '.join(changes)}. Append "
            f"with the options of the first run, or {CONVERT_ALL}"
        )
    return _joined(parts)


_ARRAYS = (
    "arrays beside images, which it has as they were and which now move with the pixels"
)


def require_arrays_moved(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    check: ContentCheck,
) -> None:
    """Refuses to append arrays that move with their images to others that did not.

    Raises:
      OutputRefusedError: an earlier version made the dataset, and kept them as they were.
    """
    kept = read_part(store, manifest, 0)
    if _keeps_arrays(kept, job, files, check):
        raise OutputRefusedError(f"{store.uri}: differs in {_ARRAYS}; {CONVERT_ALL}")


def _keeps_arrays(
    kept: KeptInputs, job: JobSpec, files: Inventory, check: ContentCheck
) -> bool:
    """Tells whether a dataset is what a job made before it moved arrays with images."""
    own = files.where(
        pc.is_in(files.paths, value_set=kept.files.paths.combine_chunks())
    )
    reading = describe_inputs(job, own, check.storage) if own else ""
    if ARRAYS_MOVED not in reading:
        return False
    by = "content" if kept.by_content else "version"
    as_hashed = kept.files.having("version", kept.files.table[by])
    before = reading.replace(ARRAYS_MOVED, "")
    return fingerprint_of(job, as_hashed, reading=before) == kept.fingerprint


def _reads_no_folders(
    job: JobSpec, manifest: Manifest, parts: Sequence[KeptInputs]
) -> bool:
    """Tells whether a job takes folders for no columns, and its dataset has none of them.

    It was made before folders were columns, or has inputs in other folders.
    """
    if getattr(job.source_options, "partitions", "") != "none" or job.map is not None:
        return False
    # Only here: no other run needs it.
    from recordmill.transforms.sources.partitions import values_in

    declared, names = job.declared, {feature.name for feature in manifest.features}
    if declared is not None:
        names |= {declared.column_of(name) for name in declared.features}
    folders = folders_of(_joined(parts).paths).dictionary.to_pylist()
    return not any(names & values_in(f"{folder}/").keys() for folder in folders)


def _joined(parts: Sequence[KeptInputs]) -> KeptFiles:
    """Returns the files of all parts; one that is in several as in the last."""
    return KeptFiles(pa.concat_tables([part.files.table for part in parts])).each_once()


def new_files(
    kept: KeptFiles,
    files: Inventory,
    side_files: Inventory,
    uri: str,
    check: ContentCheck,
    *,
    left_out: frozenset[str] = frozenset(),
) -> tuple[Inventory, Inventory]:
    """Returns the new files among the inputs and among the files that cells may name.

    `kept` are the files that the dataset at `uri` was made from, `left_out` the
    paths of input files that `exclude` leaves out.

    Raises:
      InputError: a file that it was made from is missing, left out, or has changed.
    """
    is_side = kept.table["is_side"].combine_chunks()
    ones, sides = files.each_once(), side_files.each_once()
    positions, of_side = ones.find(kept.paths), sides.find(kept.paths)
    of_side = pc.if_else(is_side, pc.add(of_side, len(ones)), None)
    positions = pc.coalesce(positions, of_side)
    missing = kept.paths.filter(positions.is_null()).to_pylist()
    now = (ones + sides).take(positions.drop_null())
    both = Pairs(kept.where(positions.is_valid()), now)
    if missing:
        changed = now.where(pc.equal(both.same_unread(), False)).paths.to_pylist()
    else:
        changed = [file.path for file in check.changed(both)]
    if missing or changed:
        own = [path for path in missing if path in left_out]
        gone = [path for path in missing if path not in left_out]
        raise InputError(_describe_changes(uri, len(kept), gone, own, changed, files))
    new_inputs = files.without(kept.paths.filter(pc.invert(is_side)))
    new_sides = side_files.without(kept.paths).without(new_inputs.paths)
    return new_inputs, new_sides


def _describe_changes(
    uri: str,
    total: int,
    missing: Sequence[str],
    left_out: Sequence[str],
    changed: Sequence[str],
    files: Inventory,
) -> str:
    changes = [
        f"{len(paths):,} {state} ({first_names(paths, _SHOWN)})"
        for paths, state in (
            (missing, "are missing" if len(missing) > 1 else "is missing"),
            (left_out, "left out by `exclude`"),
            (changed, "changed"),
        )
        if paths
    ]
    told = " and ".join(filter(None, (", ".join(changes[:-1]), changes[-1])))
    ways_out = ["restore these files"] if missing or changed else []
    if left_out:
        ways_out.append("name fewer files in `exclude`, so that they are inputs again")
    hint = ""
    if len(missing) == total and files:
        root = files[0].uri.removesuffix(files[0].path)
        hint = (
            f". Paths are relative to the folder that all inputs share, now {root}: "
            "was it another one before?"
        )
    return (
        f"{uri}: of the {count(total, 'file')} it was made from, {told}. An append keeps "
        f"the records made from them: {', '.join(ways_out)}, or {CONVERT_ALL}{hint}"
    )


def dataset_changes(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    side_files: Inventory = NO_FILES,
    check: ContentCheck | None = None,
) -> list[str]:
    """Describes what differs between a dataset and the run that finds it, if known.

    There is a line for each kind of change; none if the dataset does not tell.
    """
    try:
        parts = _read_parts(store, manifest)
    except OutputError:
        return []  # an inventory is damaged
    last = parts[-1]
    if last.fingerprint != manifest.fingerprint:
        return []
    changes = list(option_changes(last.job, fixed_fields(job)))
    if last.format_version != FORMAT_VERSION:
        changes.append(
            f"the format of the records: {last.format_version}, now {FORMAT_VERSION}"
        )
    now = files + side_files.without(files.paths)
    check = check or ContentCheck()
    told = _file_changes(_joined(parts), now, check)
    if told:
        changes.append(f"input files: {', '.join(told)}")
    if manifest.appended and not changes:
        changes.append(f"rows that {count(manifest.appended, 'append')} added")
    if not changes and folder_keys(job, files):
        changes.append(
            "which folders are read as columns: to keep the records as they are, append "
            "with `partitions=none`"
        )
    if not changes and _keeps_arrays(parts[0], job, files, check):
        changes.append(_ARRAYS)
    if not changes and describe_inputs(job, files, check.storage):
        changes.append("which folders are read as splits and as classes")
    return changes


def _file_changes(kept: KeptFiles, now: Inventory, check: ContentCheck) -> list[str]:
    """Returns how many files are new, gone or changed, with the first names."""
    now = now.each_once()
    positions = kept.find(now.paths)
    both = now.where(positions.is_valid())
    pairs = Pairs(kept.take(positions.drop_null()), both)
    has_size = pc.equal(pairs.kept.table["size"], both.table["size"])
    differs = pc.and_(has_size, pc.invert(check.known_as_same(pairs)))
    kinds = (
        (now.without(kept.paths), "new"),
        (kept.without(now.paths), "gone"),
        (both.where(pc.invert(has_size)), "changed"),
        (both.where(differs), "written again with the same size"),
    )
    return [
        f"{len(files):,} {what} ({first_names(files.paths.to_pylist(), _SHOWN)})"
        for files, what in kinds
        if len(files)
    ]
