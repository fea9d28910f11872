"""Lists of the inputs of a dataset, and their comparison with the inputs of a run."""

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
from recordmill.schemas.foreign_text import ForeignModel, ForeignText, is_parsable
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import inputs_file_name, inventory_file_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import (
    escape_unprintable,
    format_bytes,
    format_count,
    format_names,
)
from recordmill.transforms.dataset.files import find_manifest, read_fixed
from recordmill.transforms.file_content import bytes_of_content, combine_checksums
from recordmill.transforms.inventory import (
    BATCH_FILES,
    NO_FILES,
    FileTable,
    Inventory,
    join_texts,
    parent_folders,
)
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.registry import (
    ARRAYS_TRANSFORMED,
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
from recordmill.transforms.temporary import gather_batches, spill_bytes
from recordmill.transforms.tfrecord import crc32c

# inputs.jsonl.gz contains only values that determine the dataset's bytes: paths are
# relative to the input root, each file is identified by its content text (see
# transforms/file_content.py), and max_rejects is left out. An append needs this list.
#
#     {"recordmill": 1, "fingerprint": "...", "job": {...}, "by": "content"}
#     ["2026/first.csv", 1234, "crc32c:89abcdef"]             path, bytes, content
#     ["images/1.png", 99, "crc32c:89abcdef", "side"]         a sidecar file
#     ["cat/2.png", 0, "", "unreadable"]                      a broken link
#
# inventory.jsonl.gz is the inventory of the run. If no size and version in it changed,
# the inputs are the same and need not be read. The manifest does not list this file,
# because it differs if the same files have other times.
#
#     {"recordmill": 1, "fingerprint": "...", "job": {...}, "run": "..."}
#     ["2026/first.csv", 1234, "1700000000000000000"]         path, bytes, version
#
# If the source has no checksums, inputs.jsonl.gz lists versions instead, without "run".
# Both are JSON lines in gzip without file name and time.

_SIDECAR = "side"
_UNREADABLE = "unreadable"  # a broken link, or a name that is not UTF-8
_LEVEL = 6
_PACKED_BYTES = 128 << 20  # bytes of lines that are compressed together

CONVERT_ALL = (
    "convert all inputs again with `overwrite=true`, or as a new version "
    "(`version=auto`), without `append`"
)


class ConvertedFile(NamedTuple):
    """A file as it was when it was converted."""

    size: int
    version: str | None  # modification time or etag, if known
    is_sidecar: bool  # a sidecar file instead of an input
    is_unreadable: bool = False  # the file was listed, but could not be read
    # its content text (see transforms/file_content.py), if known
    content: str | None = None


_CONVERTED_FILE_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "version": pa.string(),
        "is_sidecar": pa.bool_(),
        "is_unreadable": pa.bool_(),
        "content": pa.string(),
    }
)


@dataclass(frozen=True, eq=False)
class ConvertedFiles(FileTable):
    """Files as they were when converted: `path` and the fields of `ConvertedFile`."""

    @classmethod
    def from_inventory(cls, files: Inventory, *, are_sidecars: bool) -> ConvertedFiles:
        """Returns the files of an inventory, with unknown content."""

        def add_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = {
                **dict(zip(batch.schema.names, batch.columns, strict=True)),
                "is_sidecar": pa.repeat(are_sidecars, len(batch)),
                "is_unreadable": batch["problem"].is_valid(),
                "content": pa.nulls(len(batch), pa.string()),
            }
            arrays = [columns[name] for name in _CONVERTED_FILE_SCHEMA.names]
            return pa.RecordBatch.from_arrays(arrays, schema=_CONVERTED_FILE_SCHEMA)

        return cls(
            gather_batches(map(add_columns, files.batches()), _CONVERTED_FILE_SCHEMA)
        )

    def __iter__(self) -> Iterator[tuple[str, ConvertedFile]]:
        for batch in self.batches():
            paths, *columns = (column.to_pylist() for column in batch.columns)
            yield from zip(paths, map(ConvertedFile, *columns), strict=True)


@dataclass(frozen=True, slots=True)
class PartInputs:
    """The inputs and the job of one part."""

    format_version: int  # of the records' bytes: FORMAT_VERSION of that run
    fingerprint: str  # of the dataset that includes this part
    job: dict[str, Any]  # its fields, as `fixed_fields` returns them
    files: ConvertedFiles
    by_content: bool = False  # files have a content text instead of a version
    run_key: str = ""  # of the run that created the part


def converted_files_of(
    files: Inventory, sidecar_files: Inventory = NO_FILES
) -> ConvertedFiles:
    """Returns the files that a run listed: inputs, then the other sidecar files."""
    sides = ConvertedFiles.from_inventory(
        sidecar_files.without_paths(files.paths), are_sidecars=True
    )
    input_files = ConvertedFiles.from_inventory(
        files, are_sidecars=False
    ).unique_paths()
    return ConvertedFiles(pa.concat_tables([input_files.table, sides.table]))


def dump_part_inputs(inputs: PartInputs) -> Data:
    """Serializes a list of inputs for `parse_inputs`; a long one is mapped."""
    return spill_bytes(_packed(inputs))


def _packed(inputs: PartInputs) -> Iterator[bytes]:
    head = {
        "recordmill": inputs.format_version,
        "fingerprint": inputs.fingerprint,
        "job": inputs.job,
        **({"by": "content"} if inputs.by_content else {}),
        **({"run": inputs.run_key} if inputs.run_key else {}),
    }
    column_name = "content" if inputs.by_content else "version"
    # Python's gzip module would write the operating system and, by default, the time. The
    # block size is fixed, because the compressed bytes depend on how the lines are cut.
    packer = gzip_packer(_LEVEL)
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
    lines = bytearray(f"{text}\n".encode())
    for batch in inputs.files.batches():
        path, text = _quoted(batch["path"]), _quoted(batch[column_name].fill_null(""))
        kind = pc.if_else(batch["is_unreadable"], f',"{_UNREADABLE}"', "")
        side = pc.if_else(batch["is_sidecar"], f',"{_SIDECAR}"', "")
        size = batch["size"].cast(pa.string())
        lines += join_texts("[", path, ",", size, ",", text, kind, side, "]\n")
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
    """A split in a stored job."""

    name: str
    fraction: str


class _KeptFunction(ForeignModel):
    """The `map` function in a stored job."""

    function: str
    checksum: str


class _KeptJob(ForeignModel):
    """The fields of a stored job whose parts `option_changes` names."""

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


def parse_inputs(packed_lines: bytes, uri: str) -> PartInputs:
    """Parses a list of inputs: inputs.jsonl.gz or inventory.jsonl.gz.

    Raises:
      OutputRefusedError: the list is not valid.
    """
    advice = f"Nothing can be appended to the dataset; {CONVERT_ALL}"
    text = ForeignText(uri, "valid inventory of inputs", advice)
    with (
        text.parsing(lambda _: "expected lines of JSON, compressed with gzip"),
        gzip.open(io.BytesIO(packed_lines)) as lines,
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

        files = ConvertedFiles(gather_batches(batches(), _CONVERTED_FILE_SCHEMA))
    return PartInputs(
        *(head.recordmill, head.fingerprint, head.job, files, by_content, head.run)
    )


def _parse_lines(lines: Sequence[bytes], *, by_content: bool) -> pa.RecordBatch:
    # One call for all lines: 1 second for a million files.
    fields_of_lines = [
        (path, int(size), str(version_text), kind)
        for path, size, version_text, *kind in json.loads(b"[%b]" % b",".join(lines))
    ]
    paths, sizes, version_texts, kinds = zip(*fields_of_lines, strict=True)
    if not all(type(path) is str for path in paths) or min(sizes) < 0:
        raise TypeError
    null_column = [None] * len(version_texts)
    if by_content and None in map(bytes_of_content, version_texts, sizes):
        raise ValueError
    columns = (
        *(paths, sizes, null_column if by_content else version_texts),
        *([kind == [name] for kind in kinds] for name in (_SIDECAR, _UNREADABLE)),
        version_texts if by_content else null_column,
    )
    arrays = map(pa.array, columns, _CONVERTED_FILE_SCHEMA.types)
    return pa.RecordBatch.from_arrays(list(arrays), schema=_CONVERTED_FILE_SCHEMA)


_HEAD = "recordmill, fingerprint and job"
_SHOWN_BYTES = 80  # of a line, in an error message


def _line_problem(
    lines: Sequence[bytes], first: int, by_content: bool, _error: Exception
) -> str:
    """Returns a description of the first invalid line; `first` is the first number."""
    for number, line in enumerate(lines, first):
        if not is_parsable(partial(_parse_lines, [line], by_content=by_content)):
            return _expected(number, "[path, size, version]", line)
    return "expected lines of JSON"


def _expected(number: int, fields: str, line: bytes) -> str:
    line_start = escape_unprintable(
        line.rstrip()[:_SHOWN_BYTES].decode(errors="replace")
    )
    return f"line {number}: expected {fields}, found {line_start}"


_SHARDING = {
    "num_shards": "shards",
    "shard_bytes": "shard_size",
    "num_readers": "readers",
}


# Fields that `fixed_fields` leaves out if they have their default value.
_DEFAULTS = JobSpec(source="csv", name="data").model_dump(
    mode="json", exclude={"source", "name", "max_rejects", "source_options"}
)


def option_changes(
    old_fields: Mapping[str, Any],
    new_fields: Mapping[str, Any],
    free: Sequence[str] = (),
) -> Iterator[str]:
    """Yields the options that differ between two jobs, with both values.

    `old_fields` and `new_fields` are the `fixed_fields` of the jobs. Options in `free`
    may differ.
    """
    old, new = _options_of(old_fields), _options_of(new_fields)
    for option in sorted({*old, *new}.difference(free)):
        if old.get(option) == new.get(option):
            continue
        if option == "declared":
            yield "the declared schema"
        elif option == "map":
            yield f"{_function_text(old.get(option))}, now {_function_text(new.get(option))}"
        elif option == "source":
            yield f"the input format {old.get(option)}, now {new.get(option)}"
        elif option == "sharding":  # a dataset has one of three options
            yield f"{old.get(option)}, now {new.get(option)}"
        else:
            yield f"{_option_text(option, old)}, now {_option_text(option, new)}"


def _options_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a stored job, by the names that users type."""
    options = {**_DEFAULTS, **fields}
    options |= options.pop("source_options", {})
    for name, value in options.pop("sharding", {}).items():
        if value is not None:
            options["sharding"] = f"`{_SHARDING.get(name, name)}={value}`"
    splits = options.pop("splits", [])
    options["splits"] = ",".join(f"{s['name']}={s['fraction']}" for s in splits)
    return {name: value for name, value in options.items() if value is not None}


def _function_text(map_fields: Mapping[str, str] | None) -> str:
    """Returns a text that identifies a `map` function by name and checksum."""
    if map_fields is None:
        return "no `map`"
    return f"the `map` function {map_fields['function']} (checksum {map_fields['checksum'][:8]})"


def _option_text(name: str, options: Mapping[str, Any]) -> str:
    if name not in options:
        return f"no `{name}`"
    option_value = options[name]
    text = option_value if isinstance(option_value, str) else json.dumps(option_value)
    if not text or any(c.isspace() or c == "`" or not c.isprintable() for c in text):
        return f"`{name}` {json.dumps(text)}"  # front ends could not spell it
    return f"`{name}={text}`"


# If size and version (modification time or etag) are the same, so is the file. A copy and
# a touched file have another version: these are read, and the checksum of their content
# decides.

PART_BYTES = 8 << 20  # bytes that each thread reads in one request
_THREADS = 8
_AHEAD = 2 * _THREADS  # parts


class FilePairs(NamedTuple):
    """Files of a dataset and the input files with the same paths, row by row."""

    converted_files: ConvertedFiles
    files: Inventory

    def compare_versions(self) -> pa.ChunkedArray:
        """Returns a mask of the files that are the same; null if reading must decide."""
        converted_table, current_table = self.converted_files.table, self.files.table
        broken, content = converted_table["is_unreadable"], converted_table["content"]
        is_whole = pc.and_(
            pc.equal(converted_table["size"], current_table["size"]),
            pc.equal(broken, current_table["problem"].is_valid()),
        )
        times = pc.fill_null(
            pc.equal(converted_table["version"], current_table["version"]), False
        )
        unread = pc.or_(pc.equal(converted_table["size"], 0), pc.equal(content, ""))
        may_differ = pc.if_else(unread, True, pa.scalar(None, pa.bool_()))
        without_times = pc.if_else(content.is_null(), False, may_differ)
        is_same = pc.if_else(pc.or_(broken, times), True, without_times)
        return pc.if_else(is_whole, is_same, False)


def read_contents(
    files: Sequence[tuple[InputFile, int]], storage: StorageOptions
) -> Iterator[str]:
    """Yields the content text of each file, in order; a few parts are read ahead.

    `files` are files and the number of bytes to read of each, at least one.
    """

    def read(part: tuple[InputFile, int, int]) -> FileChecksum:
        file, start, stop = part
        part_bytes = read_range(file.uri, start, stop, storage, file.stat)
        if len(part_bytes) < stop - start:
            raise InputError(
                f"{file.uri}: ends at byte {start + len(part_bytes)}, but had {file.size} "
                "bytes when it was listed; did it change in the meantime?"
            )
        return FileChecksum(file.path, start, stop, crc32c(part_bytes))

    sizes = {file.path: file.size for file, _ in files}
    parts = (
        (file, start, min(start + PART_BYTES, size))
        for file, size in files
        for start in range(0, size, PART_BYTES)
    )
    checksums = map_ahead(parts, read, _THREADS, most=_AHEAD)
    for path, file_checksums in groupby(checksums, lambda checksum: checksum.path):
        yield combine_checksums(path, file_checksums, sizes[path])


@dataclass
class ContentComparison:
    """A comparison of input files with a dataset's; each file is read once at most."""

    storage: StorageOptions = NO_OPTIONS  # of the inputs
    notify: Callable[[str], None] = lambda _: None  # called before files are read
    _contents: dict[InputFile, str] = field(default_factory=dict, repr=False)

    def changed_files(self, pairs: FilePairs) -> Iterator[InputFile]:
        """Yields the files that changed; the caller may stop early.

        No file is read if size or version alone show that some file changed.
        """
        same = pairs.compare_versions()
        if changed_files := pairs.files.filter(pc.equal(same, False)):
            yield from changed_files
            return
        files = list(pairs.files.filter(same.is_null()))
        converted_contents = (
            pairs.converted_files.table["content"].filter(same.is_null()).to_pylist()
        )
        unread = [
            (file, bytes_of_content(content, file.size) or 0)
            for file, content in zip(files, converted_contents, strict=True)
            if file not in self._contents
        ]
        if unread:
            have = (
                "has a different modification time"
                if len(unread) == 1
                else ("have different modification times")
            )
            size = format_bytes(sum(size for _, size in unread))
            self.notify(
                f"{format_count(len(unread), 'input file')} of the same name and size {have}: "
                f"reading {size} to compare"
            )
        current_contents = read_contents(unread, self.storage)
        for file, content in zip(files, converted_contents, strict=True):
            if file not in self._contents:
                self._contents[file] = next(current_contents)
            if self._contents[file] != content:
                yield file

    def versions_read(self) -> dict[str, str]:
        """Returns the versions of the files that were read, by path."""
        return {file.path: file.version for file in self._contents}

    def compare_known(self, pairs: FilePairs) -> pa.ChunkedArray:
        """Returns a mask of the files that are the same; reads no file."""
        same = pairs.compare_versions()
        converted_contents = (
            pairs.converted_files.table["content"].filter(same.is_null()).to_pylist()
        )
        files = pairs.files.filter(same.is_null())
        read = [
            self._contents.get(f) == c
            for f, c in zip(files, converted_contents, strict=True)
        ]
        if not read:
            return same
        return pc.replace_with_mask(
            same.combine_chunks(), same.is_null().combine_chunks(), pa.array(read)
        )


_MAX_SHOWN_FILES = 3  # files in an error message


def read_part(store: Store, manifest: Manifest, part: int) -> PartInputs:
    """Reads the inputs of one part: their content, and their versions if known."""
    name = inputs_file_name(part)
    part_inputs = parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    if not part_inputs.by_content:
        return part_inputs
    listed = read_inventory(store, manifest, part)
    if listed is None or listed.fingerprint != part_inputs.fingerprint:
        return part_inputs
    versions = listed.files.look_up_column(
        "version", pa.string(), part_inputs.files.paths
    )
    files = part_inputs.files.with_column("version", versions)
    return replace(part_inputs, files=files, run_key=listed.run_key)


def _read_parts(store: Store, manifest: Manifest) -> list[PartInputs]:
    return [read_part(store, manifest, part) for part in range(manifest.appended + 1)]


def read_inventory(store: Store, manifest: Manifest, part: int) -> PartInputs | None:
    """Reads the inventory of a part's run; None if it is missing or damaged."""
    name = inventory_file_name(part)
    try:
        return parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    except OutputError:
        return None  # no loss: the inputs can be read to compare them


def run_key_of(store: Store, manifest: Manifest) -> str:
    """Returns the key of the run that wrote a dataset, or its last part.

    If the key is unknown, the fingerprint is returned.
    """
    listed = read_inventory(store, manifest, manifest.appended)
    if listed is None or listed.fingerprint != manifest.fingerprint:
        return manifest.fingerprint
    return listed.run_key or manifest.fingerprint


def is_of_run(store: Store, manifest: Manifest, run_key: str) -> bool:
    """Checks whether a run with this key wrote a dataset, or its last part."""
    return run_key in (manifest.fingerprint, run_key_of(store, manifest))


def is_same_dataset(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    sidecar_files: Inventory,
    reading: str,
    check: ContentComparison,
) -> bool:
    """Checks whether a job would write exactly this dataset; reads inputs if necessary.

    A dataset with appended parts is never the output of one run. `reading` is the text
    of `registry.describe_inputs` about the inputs.
    """
    run_key = fingerprint_of(job, files, sidecar_files, reading=reading)
    if is_of_run(store, manifest, run_key):
        return True
    if manifest.appended:
        return False
    try:
        part_inputs = read_part(store, manifest, 0)
    except OutputError:
        return False
    files = files.unique_paths()
    all_files = files + sidecar_files.without_paths(files.paths)
    positions = part_inputs.files.find_paths(all_files.paths)
    same_names = len(all_files) == len(part_inputs.files) and not positions.null_count
    if not (part_inputs.by_content and same_names):
        return False
    pairs = FilePairs(part_inputs.files.take(positions), all_files)
    by_content = all_files.with_column(
        "version", pairs.converted_files.table["content"]
    )
    parts = by_content[: len(files)], by_content[len(files) :]
    if fingerprint_of(job, *parts, reading=reading) != manifest.fingerprint:
        return False
    return next(check.changed_files(pairs), None) is None


def renew_inventories(
    store: Store, manifest: Manifest, versions: Mapping[str, str], run_key: str
) -> None:
    """Stores the new versions of inputs that turned out to be the same.

    The next run need not read them again. The caller holds the lease. `run_key` is the
    key of the run that compared the inputs.
    """
    for part in range(manifest.appended + 1):
        inventory_bytes = store.read_if_exists(inventory_file_name(part))
        if find_manifest(store) != manifest:
            return  # another run was faster
        part_inputs = read_part(store, manifest, part)
        paths = pa.array(list(versions), pa.string())
        version_indices = pc.index_in(part_inputs.files.paths, value_set=paths)
        if not part_inputs.by_content or version_indices.null_count == len(
            version_indices
        ):
            continue
        times = pa.chunked_array([pa.array(versions.values(), pa.string())])
        times = pc.coalesce(
            times.take(version_indices), part_inputs.files.table["version"]
        )
        files = part_inputs.files.with_column("version", times)
        key = part_inputs.run_key if manifest.appended else run_key
        renewed = replace(part_inputs, files=files, run_key=key, by_content=False)
        store.swap(
            dump_part_inputs(renewed),
            inventory_file_name(part),
            expected_content=inventory_bytes,
        )


def read_inputs(store: Store, manifest: Manifest, job: JobSpec) -> ConvertedFiles:
    """Reads the list of all files that a dataset was made from, for an append.

    Raises:
      OutputError: the lists of inputs are missing, damaged, or of another job.
    """
    uri = store.uri_of(inputs_file_name(manifest.appended))
    try:
        parts = _read_parts(store, manifest)
    except MissingFileError as error:
        raise OutputRefusedError(
            f"{error}; without this inventory of the converted inputs, nothing can be "
            f"appended; {CONVERT_ALL}"
        ) from error
    last_part = parts[-1]
    if last_part.fingerprint != manifest.fingerprint:
        raise OutputRefusedError(
            f"{uri}: belongs to another dataset (fingerprint {last_part.fingerprint}, the "
            f"manifest records {manifest.fingerprint}); {CONVERT_ALL}"
        )
    if last_part.format_version != FORMAT_VERSION:
        raise OutputRefusedError(
            f"{store.uri}: was written by another version of recordmill in another "
            f"format ({last_part.format_version}, now {FORMAT_VERSION}); {CONVERT_ALL}"
        )
    # Additional columns in new files do not affect the records of the dataset.
    free = ["columns", "extra_columns"]
    if _reads_no_folders(job, manifest, parts):
        free.append("partitions")
    if changes := list(option_changes(last_part.job, fixed_fields(job), free)):
        raise OutputRefusedError(
            f"{store.uri}: was created by another job. Changed: {'; '.join(changes)}. "
            f"Append with the options of the first run, or {CONVERT_ALL}"
        )
    return _join_files(parts)


_ARRAYS = (
    "arrays next to images, which the dataset stores unchanged and which recordmill "
    "now transforms with the pixels"
)


def require_arrays_moved(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    check: ContentComparison,
) -> None:
    """Checks that the dataset's arrays moved with their images, as new ones will.

    Raises:
      OutputRefusedError: an earlier version wrote the dataset and left them unmoved.
    """
    first_part = read_part(store, manifest, 0)
    if _has_unmoved_arrays(first_part, job, files, check):
        raise OutputRefusedError(f"{store.uri}: differs in {_ARRAYS}; {CONVERT_ALL}")


def _has_unmoved_arrays(
    part_inputs: PartInputs, job: JobSpec, files: Inventory, check: ContentComparison
) -> bool:
    """Checks whether a version that did not move arrays with images wrote a dataset."""
    common_files = files.filter(
        pc.is_in(files.paths, value_set=part_inputs.files.paths.combine_chunks())
    )
    reading = describe_inputs(job, common_files, check.storage) if common_files else ""
    if ARRAYS_TRANSFORMED not in reading:
        return False
    by = "content" if part_inputs.by_content else "version"
    as_hashed = part_inputs.files.with_column("version", part_inputs.files.table[by])
    reading_before = reading.replace(ARRAYS_TRANSFORMED, "")
    return (
        fingerprint_of(job, as_hashed, reading=reading_before)
        == part_inputs.fingerprint
    )


def _reads_no_folders(
    job: JobSpec, manifest: Manifest, parts: Sequence[PartInputs]
) -> bool:
    """Checks that neither a job nor its dataset uses folders as columns.

    The dataset was written before folders became columns, or from other folders.
    """
    if getattr(job.source_options, "partitions", "") != "none" or job.map is not None:
        return False
    # A local import: no other run needs it.
    from recordmill.transforms.sources.partitions import parse_key_folders

    declared, names = job.declared, {feature.name for feature in manifest.features}
    if declared is not None:
        names |= {declared.column_of(name) for name in declared.features}
    folders = parent_folders(_join_files(parts).paths).dictionary.to_pylist()
    return not any(names & parse_key_folders(f"{folder}/").keys() for folder in folders)


def _join_files(parts: Sequence[PartInputs]) -> ConvertedFiles:
    """Returns the files of all parts; for a repeated path, the row of the last part."""
    return ConvertedFiles(
        pa.concat_tables([part.files.table for part in parts])
    ).unique_paths()


def new_files(
    converted_files: ConvertedFiles,
    files: Inventory,
    sidecar_files: Inventory,
    uri: str,
    check: ContentComparison,
    *,
    left_out: frozenset[str] = frozenset(),
) -> tuple[Inventory, Inventory]:
    """Returns the new files among the inputs and among the sidecar files.

    Args:
      converted_files: the files that the dataset was made from.
      files: the inputs of the run.
      side_files: the sidecar files of the run.
      uri: the dataset.
      check: compares files with the converted ones.
      left_out: paths of input files that `exclude` leaves out.

    Raises:
      InputError: a converted file is missing, left out, or has changed.
    """
    is_sidecar = converted_files.table["is_sidecar"].combine_chunks()
    ones, sides = files.unique_paths(), sidecar_files.unique_paths()
    positions, of_sidecars = (
        ones.find_paths(converted_files.paths),
        sides.find_paths(converted_files.paths),
    )
    of_sidecars = pc.if_else(is_sidecar, pc.add(of_sidecars, len(ones)), None)
    positions = pc.coalesce(positions, of_sidecars)
    missing = converted_files.paths.filter(positions.is_null()).to_pylist()
    current_files = (ones + sides).take(positions.drop_null())
    file_pairs = FilePairs(converted_files.filter(positions.is_valid()), current_files)
    if missing:
        changed = current_files.filter(
            pc.equal(file_pairs.compare_versions(), False)
        ).paths.to_pylist()
    else:
        changed = [file.path for file in check.changed_files(file_pairs)]
    if missing or changed:
        excluded_paths = [path for path in missing if path in left_out]
        lost_paths = [path for path in missing if path not in left_out]
        raise InputError(
            _describe_changes(
                uri, len(converted_files), lost_paths, excluded_paths, changed, files
            )
        )
    new_inputs = files.without_paths(
        converted_files.paths.filter(pc.invert(is_sidecar))
    )
    new_sides = sidecar_files.without_paths(converted_files.paths).without_paths(
        new_inputs.paths
    )
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
        f"{len(paths):,} {state} ({format_names(paths, _MAX_SHOWN_FILES)})"
        for paths, state in (
            (missing, "are missing" if len(missing) > 1 else "is missing"),
            (left_out, "left out by `exclude`"),
            (changed, "changed"),
        )
        if paths
    ]
    changes_text = " and ".join(filter(None, (", ".join(changes[:-1]), changes[-1])))
    ways_out = ["restore these files"] if missing or changed else []
    if left_out:
        ways_out.append("name fewer files in `exclude`, so that they are inputs again")
    hint = ""
    if len(missing) == total and files:
        root = files[0].uri.removesuffix(files[0].path)
        hint = (
            f". Paths are relative to the folder that all inputs share, now {root}: "
            "was it a different folder before?"
        )
    return (
        f"{uri}: of its {format_count(total, 'file')}, {changes_text}. An append keeps their records: "
        f"{', '.join(ways_out)}, or {CONVERT_ALL}{hint}"
    )


def dataset_changes(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Inventory,
    sidecar_files: Inventory = NO_FILES,
    check: ContentComparison | None = None,
) -> list[str]:
    """Returns the differences between a dataset and a run, one line per kind of change.

    The list is empty if the dataset has no readable list of inputs.
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
    current_files = files + sidecar_files.without_paths(files.paths)
    check = check or ContentComparison()
    file_changes = _file_changes(_join_files(parts), current_files, check)
    if file_changes:
        changes.append(f"input files: {', '.join(file_changes)}")
    if manifest.appended and not changes:
        changes.append(f"rows that {format_count(manifest.appended, 'append')} added")
    if not changes and folder_keys(job, files):
        changes.append(
            "which folders are read as columns: to keep the records unchanged, append "
            "with `partitions=none`"
        )
    if not changes and _has_unmoved_arrays(parts[0], job, files, check):
        changes.append(_ARRAYS)
    if not changes and describe_inputs(job, files, check.storage):
        changes.append("which folders are read as splits and as classes")
    return changes


def _file_changes(
    converted_files: ConvertedFiles, current_files: Inventory, check: ContentComparison
) -> list[str]:
    """Returns the numbers of new, missing and changed files, with the first names."""
    current_files = current_files.unique_paths()
    positions = converted_files.find_paths(current_files.paths)
    common_files = current_files.filter(positions.is_valid())
    pairs = FilePairs(converted_files.take(positions.drop_null()), common_files)
    has_size = pc.equal(pairs.converted_files.table["size"], common_files.table["size"])
    differs = pc.and_(has_size, pc.invert(check.compare_known(pairs)))
    kinds = (
        (current_files.without_paths(converted_files.paths), "new"),
        (converted_files.without_paths(current_files.paths), "gone"),
        (common_files.filter(pc.invert(has_size)), "changed"),
        (common_files.filter(differs), "written again with the same size"),
    )
    return [
        f"{len(files):,} {state} ({format_names(files.paths.to_pylist(), _MAX_SHOWN_FILES)})"
        for files, state in kinds
        if len(files)
    ]
