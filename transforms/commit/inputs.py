"""Compares the inputs of a run with those that a dataset was made from."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from recordmill.schemas.errors import (
    InputError,
    MissingFileError,
    OutputError,
    OutputRefusedError,
)
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import inputs_name, inventory_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import NOT_VALID, count, first_names, human_bytes
from recordmill.transforms.dataset.files import find_manifest, read_fixed
from recordmill.transforms.file_content import bytes_of_content, contents
from recordmill.transforms.parallel import ahead
from recordmill.transforms.sources.registry import describe_inputs
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.storage.shard_file import gzip_packer
from recordmill.transforms.tasks.fingerprint import (
    FORMAT_VERSION,
    fingerprint_of,
    fixed_fields,
)
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

CONVERT_ALL = (
    "convert all inputs again with `overwrite=true`, or as a new version "
    "(`version=auto`), without `append`"
)


class KeptFile(NamedTuple):
    """A file as it was when it was converted; a tuple, as there are millions of them."""

    size: int
    version: str | None  # modification time or etag, if it is known
    is_side: bool  # whether it is no input, but a file that cells may name
    is_unreadable: bool = False  # whether it was listed, but could not be read
    content: str | None = (
        None  # of what was read of it (see transforms/file_content.py)
    )


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """The inputs and the job of one part."""

    format_version: int  # of the records' bytes: FORMAT_VERSION of that run
    fingerprint: str  # of the dataset that includes this part
    job: dict[str, Any]  # its fields, as `fixed_fields` returns them
    files: dict[str, KeptFile]  # by path
    by_content: bool = False  # whether files have their content, not their version
    run_key: str = ""  # of the run that made the part


def dump_inputs(
    fingerprint: str,
    job: JobSpec,
    files: Sequence[InputFile],
    side_files: Iterable[InputFile] = (),
    *,
    run_key: str = "",
) -> bytes:
    """Serializes what a run listed; equal values give equal bytes.

    Of the files that cells may name, those that are inputs, too, are left out.
    """
    entries: dict[str, KeptFile] = {}
    for is_side, group in ((False, files), (True, side_files)):
        for path, _, size, version, _, problem in group:
            if not (is_side and path in entries):
                entries[path] = KeptFile(size, version, is_side, bool(problem))
    fields = fixed_fields(job)
    return dump_kept(
        KeptInputs(FORMAT_VERSION, fingerprint, fields, entries, run_key=run_key)
    )


def dump_kept(inputs: KeptInputs, contents: Mapping[str, str] | None = None) -> bytes:
    """Serializes a list of inputs as `parse_inputs` reads it.

    `contents` are those of the files that were read, by path, in place of their versions.
    """
    head = {
        "recordmill": inputs.format_version,
        "fingerprint": inputs.fingerprint,
        "job": inputs.job,
        **({"by": "content"} if contents is not None else {}),
        **({"run": inputs.run_key} if inputs.run_key else {}),
    }
    lines = [_json_line(head)]
    told = (file.version for file in inputs.files.values())
    if contents is not None:
        told = (contents.get(path) for path in inputs.files)
    lines += map(_file_line, inputs.files, inputs.files.values(), told)
    # Python's gzip module writes the operating system and, by default, the time.
    packer = gzip_packer(_LEVEL)
    packed: bytes = packer.compress("".join(lines).encode()) + packer.flush()
    return packed


def _json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _file_line(path: str, file: KeptFile, told: str | None) -> str:
    """Returns what `_json_line` makes of a list of these, in a tenth of its time."""
    text = f"[{encode_basestring(path)},{file.size},{encode_basestring(told or '')}"
    if not (file.is_side or file.is_unreadable):
        return f"{text}]\n"
    kind = [_UNREADABLE] * file.is_unreadable + [_SIDE] * file.is_side
    return f"{text}{''.join([f',{encode_basestring(each)}' for each in kind])}]\n"


def parse_inputs(data: bytes, uri: str) -> KeptInputs:
    """Parses an inventory; raises OutputError if it is not a valid one."""
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
    except (*NOT_VALID, OSError, EOFError, zlib.error) as error:
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
        except NOT_VALID:
            pass
        return f"line {number}: expected [path, size, version], found {line[:80]}"
    return f"line 1: expected recordmill, fingerprint and job, found {lines[0][:80]}"


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

Pair = tuple[KeptFile, InputFile]


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
        yield contents(own, {path: sizes[path]}).get(path, "")


@dataclass
class ContentCheck:
    """A comparison of files with those of a dataset; reads each file once at most."""

    storage: StorageOptions = NO_OPTIONS  # of the inputs
    tell: Callable[[str], None] = lambda _: None  # called before files are read
    _known: dict[InputFile, str] = field(default_factory=dict, repr=False)

    def changed(self, pairs: Sequence[Pair]) -> Iterator[InputFile]:
        """Yields the files that are not the same any more; stop when you know enough.

        Nothing is read if any file is surely another one.
        """
        same = [same_unread(*pair) for pair in pairs]
        if False in same:
            yield from (pairs[i][1] for i, each in enumerate(same) if each is False)
            return
        unsure = [pair for pair, each in zip(pairs, same, strict=True) if each is None]
        unread = [
            (file, _bytes_to_read(kept))
            for kept, file in unsure
            if file not in self._known
        ]
        if unread:
            files = count(len(unread), "input file")
            have = "has another time" if len(unread) == 1 else "have other times"
            size = human_bytes(sum(size for _, size in unread))
            self.tell(
                f"{files} of the same name and size {have}: reading {size} to compare"
            )
        found = read_contents(unread, self.storage)
        for kept, file in unsure:
            if file not in self._known:
                self._known[file] = next(found)
            if self._known[file] != kept.content:
                yield file

    def versions_read(self) -> dict[str, str]:
        """Returns the versions of the files that were read, by path."""
        return {file.path: file.version for file in self._known}

    def is_known_as_same(self, kept: KeptFile, file: InputFile) -> bool:
        """Tells whether a file is the same, as far as that is known without reading."""
        same = same_unread(kept, file)
        return self._known.get(file) == kept.content if same is None else same


def same_unread(kept: KeptFile, file: InputFile) -> bool | None:
    """Tells whether a file is the same; None if it has to be read for that."""
    if (kept.size, kept.is_unreadable) != (file.size, bool(file.problem)):
        return False
    if kept.is_unreadable or kept.version == file.version:
        return True
    if kept.content is None:
        return False
    return None if _bytes_to_read(kept) else True


def _bytes_to_read(kept: KeptFile) -> int:
    return bytes_of_content(kept.content or "", kept.size) or 0


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
    nothing = KeptFile(0, None, is_side=False)
    files = {
        path: file._replace(version=listed.files.get(path, nothing).version)
        for path, file in kept.files.items()
    }
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
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
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
    sides = without_inputs(files, side_files)
    now = {file.path: file for file in (*files, *sides)}
    same_names = now.keys() == kept.files.keys()
    if not (kept.by_content and same_names):
        return False
    by_content = [
        [file._replace(version=kept.files[file.path].content or "") for file in part]
        for part in (files, sides)
    ]
    if fingerprint_of(job, *by_content, reading=reading) != manifest.fingerprint:
        return False
    pairs = [(kept.files[path], file) for path, file in now.items()]
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
        if not kept.by_content or versions.keys().isdisjoint(kept.files):
            continue
        files = {
            path: file._replace(version=versions.get(path, file.version))
            for path, file in kept.files.items()
        }
        key = kept.run_key if manifest.appended else run_key
        renewed = replace(kept, files=files, run_key=key)
        store.swap(dump_kept(renewed), inventory_name(part), seen=seen)


def without_inputs(
    files: Sequence[InputFile], side_files: Sequence[InputFile]
) -> list[InputFile]:
    """Returns the files that cells may name and that are not inputs themselves."""
    inputs = {file.path for file in files}
    return [file for file in side_files if file.path not in inputs]


def read_inputs(store: Store, manifest: Manifest, job: JobSpec) -> dict[str, KeptFile]:
    """Reads all files that a dataset was made from, by path, for a job that appends.

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
    free = ("columns", "extra_columns")
    if changes := list(option_changes(kept.job, fixed_fields(job), free)):
        raise OutputRefusedError(
            f"{store.uri}: was made by another job. Changed: {'; '.join(changes)}. Append "
            f"with the options of the first run, or {CONVERT_ALL}"
        )
    return {path: file for part in parts for path, file in part.files.items()}


def new_files(
    kept: Mapping[str, KeptFile],
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    uri: str,
    check: ContentCheck,
    *,
    left_out: frozenset[str] = frozenset(),
) -> tuple[list[InputFile], list[InputFile]]:
    """Returns the new files among the inputs and among the files that cells may name.

    `kept` are the files that the dataset at `uri` was made from, by path, `left_out` the
    paths of input files that `exclude` leaves out.

    Raises:
      InputError: a file that it was made from is missing, left out, or has changed.
    """
    inputs = {file.path: file for file in files}
    sides = {file.path: file for file in side_files}
    missing: list[str] = []
    both: list[Pair] = []
    for path, before in kept.items():
        found = inputs.get(path) or (sides.get(path) if before.is_side else None)
        if found is not None:
            both.append((before, found))
        else:
            missing.append(path)
    if missing:
        changed = [pair[1].path for pair in both if same_unread(*pair) is False]
    else:
        changed = [file.path for file in check.changed(both)]
    if missing or changed:
        own = [path for path in missing if path in left_out]
        gone = [path for path in missing if path not in left_out]
        raise InputError(_describe_changes(uri, len(kept), gone, own, changed, files))
    new_inputs = [f for f in files if f.path not in kept or kept[f.path].is_side]
    known = {*kept, *(file.path for file in new_inputs)}
    return new_inputs, [file for file in side_files if file.path not in known]


def _describe_changes(
    uri: str,
    total: int,
    missing: Sequence[str],
    left_out: Sequence[str],
    changed: Sequence[str],
    files: Sequence[InputFile],
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
    files: Sequence[InputFile],
    side_files: Sequence[InputFile] = (),
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
    kept = {path: file for part in parts for path, file in part.files.items()}
    changes = list(option_changes(last.job, fixed_fields(job)))
    if last.format_version != FORMAT_VERSION:
        changes.append(
            f"the format of the records: {last.format_version}, now {FORMAT_VERSION}"
        )
    told = _file_changes(kept, [*files, *side_files], check or ContentCheck())
    if told:
        changes.append(f"input files: {', '.join(told)}")
    if manifest.appended and not changes:
        changes.append(f"rows that {count(manifest.appended, 'append')} added")
    if not changes and describe_inputs(job, files):
        changes.append("which folders are read as splits and as classes")
    return changes


def _file_changes(
    kept: Mapping[str, KeptFile], files: Sequence[InputFile], check: ContentCheck
) -> list[str]:
    """Returns how many files are new, gone or changed, with the first names."""
    now = {file.path: file for file in files}
    both = [(path, kept[path], now[path]) for path in now if path in kept]
    kinds = (
        ([path for path in now if path not in kept], "new"),
        ([path for path in kept if path not in now], "gone"),
        ([path for path, old, new in both if old.size != new.size], "changed"),
        (
            [
                path
                for path, old, new in both
                if old.size == new.size and not check.is_known_as_same(old, new)
            ],
            "written again with the same size",
        ),
    )
    return [
        f"{len(paths):,} {what} ({first_names(paths, _SHOWN)})"
        for paths, what in kinds
        if paths
    ]
