"""Lists all files below the inputs: local folders and globs, or those of a store.

An option may name a file, such as a table of labels, by its path below the input folder,
a pattern of such paths, or a path or URL as inputs are. One that is nowhere among the
inputs is an input, too: what it holds fixes bytes of the dataset.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby, islice, takewhile
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import (
    MEMBER_MARK,
    MEMBER_VERSION,
    InputFile,
    is_archive_name,
    member_of,
)
from recordmill.schemas.input_summary import NOTHING, InputSummary, InputWarning
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_secretless_url,
    require_whole_scheme,
)
from recordmill.schemas.text import count, escaped, first_names, is_utf8
from recordmill.transforms.inventory import BATCH_FILES, Inventory
from recordmill.transforms.join import are_sorted, by_folders
from recordmill.transforms.parallel import ahead
from recordmill.transforms.sources.file_splits import likely_splits
from recordmill.transforms.sources.globs import (
    has_magic,
    literal_root,
    matches_path,
    matching,
    nothing_matches,
    search,
)
from recordmill.transforms.sources.readme import SplitPattern, read_configurations
from recordmill.transforms.storage.archives import list_archive
from recordmill.transforms.storage.clouds import (
    NO_FILE,
    Info,
    RemoteFile,
    cloud_of,
    remote_file,
    version_of,
)
from recordmill.transforms.storage.errors import input_error, safe_cause, with_retries
from recordmill.transforms.storage.left_out import LEFT_OUT, is_left_out
from recordmill.transforms.storage.reading import (
    file_status,
    full_uri,
    is_local,
    local_path,
    read_head,
    read_range,
)
from recordmill.transforms.temporary import SPILL_BYTES, gather, take_batches


def walk_folders(
    folders: Sequence[str], notes: list[str], *, hidden: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields each file below some absolute paths, and in which of them it is.

    A folder is read under its own name, if it is below those that are walked; else under
    the first link to it by name. A link back to a folder above it would never end;
    `notes` gets the links that are skipped.
    """
    read: dict[str, str] = {}  # real path -> path of a folder
    # Found, but not followed yet: path, folder of the walk, and the real paths of the
    # folders from which links led there.
    links: list[tuple[str, str, tuple[str, ...]]] = []

    def files(
        folder: str, real: str, top: str, above: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yields the files below a folder, but not those behind links to folders."""
        if real in read:
            return
        read[real] = folder
        with os.scandir(folder) as entries:
            # What comes in order need not be sorted with all the other files.
            some = sorted(islice(entries, BATCH_FILES), key=attrgetter("name"))
            for entry in chain(some, entries):
                if is_left_out(entry.name) and not hidden:
                    continue
                if not _is_folder(entry):
                    yield entry.path, top
                elif entry.is_symlink():
                    links.append((entry.path, top, (*above, real)))
                else:
                    inside = f"{real.rstrip('/')}/{entry.name}"
                    yield from files(entry.path, inside, top, above)

    for folder in folders:
        # One that is a link comes after those that have the name; alone it is walked.
        if len(folders) > 1 and os.path.islink(folder):  # noqa: PTH114
            parent = os.path.realpath(os.path.dirname(folder))  # noqa: PTH120
            links.append((folder, folder, (parent,)))
        else:
            yield from files(folder, os.path.realpath(folder), folder, ())
    while links:
        links.sort()
        path, top, above = links.pop(0)
        real = os.path.realpath(path)
        start = real.rstrip("/") + "/"
        if any(f"{folder}/".startswith(start) for folder in above):
            notes.append(
                f"{path}: a link back to {real}, a folder above it, not followed"
            )
        elif real in read:
            notes.append(
                f"{path}: a link to {real}, skipped: it is read as {read[real]}"
            )
        else:
            yield from files(path, real, top, above)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Tells whether an entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle
            return False
        raise


def has_files(folder: str) -> bool:
    """Tells whether a file that is not left out lies anywhere below a local folder."""
    return next(walk_folders([folder], []), None) is not None


# What a listing gives: the uri as bytes, as it may not be UTF-8; no path yet; and `given`
# by the folder that it was found below, or by the folder of one that is named.
_FOUND = pa.schema(
    {
        "uri": pa.binary(),
        "size": pa.int64(),
        "version": pa.string(),
        "given": pa.string(),
        "problem": pa.string(),
    }
)
_SURROGATES = "surrogatepass"  # what Python makes of bytes that are not UTF-8


def _list_local(
    name: str, notes: list[str], open_archives: bool
) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Returns the folder below which all files of an input are, and these, in any order."""

    def batches() -> Iterator[pa.RecordBatch]:
        with _listing_locally(name):
            while part := dict(islice(files, BATCH_FILES)):
                paths, given = list(part), [*part.values()]
                sizes, times, _ = file_status(paths)
                if sizes.min() >= 0 and all(given):
                    columns = (*(sizes, pa.array(times).cast(pa.string())), given)
                    yield _found(root, paths, *columns, [None] * len(paths))
                    continue
                facts = zip(part.items(), sizes.tolist(), times.tolist(), strict=True)
                odd = (
                    InputFile("", path, size, str(modified), folder)
                    if size >= 0
                    else _odd_file(path, folder)
                    for (path, folder), size, modified in facts
                )
                yield from _found_files(root, odd, NO_OPTIONS, open_archives)

    with _listing_locally(name):
        root, files = _search_folders(name, notes)
    return root, batches()


@contextmanager
def _listing_locally(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise input_error(error, name, "listed") from error


def _found(root: str, uris: Iterable[str], *columns: Any) -> pa.RecordBatch:
    """Returns a batch of files; a folder that is "" becomes the root."""
    known = cache(lambda folder: escaped(folder or root))
    names = [uri.encode(errors=_SURROGATES) for uri in uris]
    sizes, versions, given, problems = columns
    columns = (names, sizes, versions, [*map(known, given)], problems)
    arrays = [*map(pa.array, columns, _FOUND.types)]
    return pa.RecordBatch.from_arrays(arrays, schema=_FOUND)


def _found_files(
    root: str, files: Iterable[InputFile], options: StorageOptions, open_archives: bool
) -> Iterator[pa.RecordBatch]:
    """Yields batches of files, or of the members of archives among them."""
    if open_archives:
        files = chain.from_iterable(_opened(file, options) for file in files)
    files = iter(files)
    while part := list(islice(files, BATCH_FILES)):
        _, uris, sizes, versions, given, problems = zip(*part, strict=True)
        told = [escaped(problem) or None for problem in problems]
        yield _found(root, uris, sizes, versions, given, told)


def _search_folders(
    name: str, notes: list[str]
) -> tuple[str, Iterator[tuple[str, str]]]:
    """Returns the root, and the folder that each file was found below; "" if it is named."""
    path = os.path.abspath(local_path(name))  # noqa: PTH100 (keeps links)
    root = os.path.dirname(path)  # noqa: PTH120
    if os.path.isdir(path):  # noqa: PTH112
        walk = walk_folders([path], notes)
        if first := next(walk, None):
            return path, chain([first], walk)
        raise InputError(f"{name}: the folder holds no files")
    if os.path.exists(path):  # noqa: PTH110
        if kind := _special_kind(os.stat(path).st_mode):  # noqa: PTH116
            raise InputError(
                f"{name}: is {kind}, expected a file or a folder; write what it gives "
                "into a file first"
            )
        return root, iter([(path, "")])
    tree = _LocalTree(notes)
    if has_magic(path):
        root = literal_root(path) or "/"
        files = search(tree, root, path)
    else:
        files = {path: ""} if os.path.islink(path) else {}  # noqa: PTH114
    if files:
        return root, iter(files.items())
    there = root
    while not os.path.isdir(there):  # noqa: PTH112
        there = os.path.dirname(there)  # noqa: PTH120
    raise InputError(nothing_matches(name, there, tree.entries(there)))


@dataclass(frozen=True, slots=True)
class _LocalTree:
    """The local folders, for globs."""

    notes: list[str]

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                return [(entry.name, _is_folder(entry)) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        there = [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112
        return walk_folders(there, self.notes, hidden=hidden)


def _special_kind(mode: int) -> str:
    """Returns what a mode that is not of a regular file is of, in words; else ""."""
    # Such files are never opened: who opens a pipe waits until somebody writes to it.
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _odd_file(path: str, folder: str) -> InputFile:
    """Returns a file that `file_status` tells nothing of."""
    size, version, problem = 0, "", ""
    try:
        status = os.stat(path)  # noqa: PTH116 (says what is wrong)
        if kind := _special_kind(status.st_mode):
            problem = f"{kind} (not a regular file: move it out of the input)"
        else:
            size, version = status.st_size, str(status.st_mtime_ns)
    except OSError as error:
        link = Path(path)
        if not link.is_symlink():
            raise
        problem = f"a link to nothing ({link.readlink()} is missing)"
        if error.errno == errno.ELOOP:
            problem = f"a link in a circle (by way of {link.readlink()})"
    return InputFile("", path, size, version, folder, problem)


def _list_remote(
    url: str, options: StorageOptions, open_archives: bool
) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Returns what `_list_local` does, for a url."""
    with _listing(url):
        root, found = with_retries(lambda: _search_store(url, options))

    def batches() -> Iterator[pa.RecordBatch]:
        with _listing(url):
            if isinstance(found, list):
                yield from _found_files(root, found, options, open_archives)
            else:
                yield from found

    return root, batches()


@contextmanager
def _listing(url: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise input_error(error, url, "listed") from safe_cause(error)


def _search_store(
    url: str, options: StorageOptions
) -> tuple[str, list[InputFile] | Iterator[pa.RecordBatch]]:
    protocol = url.split("://", 1)[0]
    top = remote_file(url, options)
    system, root = top.system, top.path
    system.invalidate_cache()
    tree = _StoreTree(system)

    def uri_of(name: str) -> str:
        return name if "://" in name else f"{protocol}://{name.strip('/')}"

    given: dict[str, str] = {}
    if has_magic(root) and not system.exists(root):
        root = literal_root(root)
        given = search(tree, root, top.path)
    else:
        # A file with an ending has no folder of its name, but among objects it may.
        is_named = "." in root.rpartition("/")[2] and not top.objects
        info = top.info() if is_named else None
        if info is None:
            batches = _list_folder(top, uri_of(root))
            if first := next((each for each in batches if each.num_rows), None):
                return uri_of(root), chain([first], batches)
            info = None if is_named else top.info()
        if info is not None:
            tree.infos[root] = info
            root, given = root.rpartition("/")[0], {root: ""}
    files = []
    for name, folder in given.items():
        info, uri = tree.infos[name], uri_of(name)
        # Object stores may show a folder as an empty file.
        if info["type"] != "file" or name.endswith("/"):
            continue
        if info["size"] is None:
            raise _unknown_size(uri)
        version, below = version_of(info), folder and uri_of(folder)
        files.append(InputFile("", uri, int(info["size"]), version, below))
    if files:
        return uri_of(root), files
    names: list[tuple[str, bool]] = []
    with suppress(ValueError):  # the hub (hf://) refuses what is above a repository
        while root.strip("/") and not (names := tree.entries(root)):
            root = root.rpartition("/")[0]  # the longest part that holds anything
    hidden = "" if names else cloud_of(url).hidden
    raise InputError(
        nothing_matches(url, uri_of(root) if names else "", names) + hidden
    )


def _unknown_size(uri: str) -> InputError:
    return InputError(
        f"{uri}: the store does not tell its size; copy the file to a local folder or to "
        "an object store"
    )


# A store lists a thousand names in a request, one request after the other. So the folders
# of a large input are listed side by side, and passed on in their order: only those that
# are at work are in memory.

_THREADS = 16
_LEVELS = 4  # of folders that are listed to find enough for all threads
_AT_ONCE = BATCH_FILES // _THREADS  # descriptions that are Python objects in a thread

# The descriptions of files that lie side by side, or a folder with all below it.
_Branch = list[Info] | str


def _list_folder(top: RemoteFile, root: str) -> Iterator[pa.RecordBatch]:
    """Yields the files below a folder of a store, in order."""
    listed = partial(_list_branch, top, root)
    tables = ahead(_branches(top), listed, _THREADS, most=2 * _THREADS)
    return chain.from_iterable(table.to_batches() for table in tables)


def _branches(top: RemoteFile) -> list[_Branch]:
    """Returns what lies below a folder, in order; large folders are not listed yet."""
    branches: list[_Branch] = [top.path]
    if most := top.flat_names:  # a small input takes few answers, and no threads
        found = list[Info]()
        with suppress(FileNotFoundError):
            found = list(islice(top.entries(deep=True), most + 1))
        if len(found) <= most:
            return [found]
    for _ in range(_LEVELS):
        folders = [each for each in branches if isinstance(each, str)]
        if not 0 < len(folders) < _THREADS:
            break
        levels = iter([*ahead(folders, partial(_level, top), _THREADS)])
        branches = [
            branch
            for each in branches
            for branch in (next(levels) if isinstance(each, str) else [each])
        ]
    return branches


def _level(top: RemoteFile, folder: str) -> list[_Branch]:
    """Returns the files and folders in a folder; itself, if there is no use in these."""

    def list_names() -> list[Info]:
        entries = iter(type(top)(top.system, folder).entries(deep=False))
        first = list(islice(entries, BATCH_FILES))
        # The other pages of very many files are read once only, in time.
        is_flat = all(info["type"] == "file" for info in first)
        is_long = is_flat and next(entries, None) is not None
        return [] if is_long else [*first, *entries]

    try:
        listed = with_retries(list_names)
    except NO_FILE:
        return []
    if not listed:
        return [folder]
    own = folder.strip("/")
    found: list[tuple[str, bool, Info]] = []
    for info in listed:
        name = info["name"].strip("/")
        is_folder = info["type"] != "file"
        if name == own and not is_folder:
            continue  # what a store shows in place of the folder
        last = name.removeprefix(f"{own}/")
        if name == own or "/" in last or info["name"].endswith("//"):
            return [folder]  # a folder without a name in it
        if not is_left_out(last):
            found.append((last, is_folder, info))
    found.sort(key=itemgetter(0, 1))
    branches: list[_Branch] = []
    for is_folder, group in groupby(found, key=itemgetter(1)):
        infos = [info for _, _, info in group]
        branches += (
            [each["name"].rstrip("/") for each in infos] if is_folder else [infos]
        )
    return branches


def _list_branch(top: RemoteFile, root: str, branch: _Branch) -> pa.Table:
    """Returns the files of a branch, in order."""

    def batches() -> Iterator[pa.RecordBatch]:
        entries: Iterable[Info] = () if isinstance(branch, str) else branch
        if isinstance(branch, str):
            entries = type(top)(top.system, branch).entries(deep=True)
        left = iter(entries)
        with suppress(FileNotFoundError):
            while part := list(islice(left, _AT_ONCE)):
                yield _found_in_store(root, part)

    most_bytes = SPILL_BYTES // _THREADS
    return _by_folders(
        with_retries(lambda: gather(batches(), _FOUND, most_bytes=most_bytes))
    )


def _found_in_store(root: str, infos: Iterable[Info]) -> pa.RecordBatch:
    """Returns a batch of the files that a store lists below a folder."""
    # Object stores may show a folder as an empty file.
    files = [
        each for each in infos if each["type"] == "file" and each["name"][-1:] != "/"
    ]
    store = root.partition("://")[0]
    names = [each["name"] for each in files]
    uris = [name if "://" in name else f"{store}://{name.strip('/')}" for name in names]
    sizes = [each["size"] for each in files]
    if None in sizes:
        raise _unknown_size(uris[sizes.index(None)])
    nothing = [None] * len(files)
    versions = [*map(version_of, files)]
    batch = _found(root, uris, sizes, versions, [""] * len(files), nothing)
    length = len(root.encode(errors=_SURROGATES))
    below = pc.binary_slice(batch["uri"], length, 1 << 30)  # it fails without an end
    is_input = pc.invert(pc.match_substring_regex(below, LEFT_OUT, ignore_case=True))
    # A store may find a file of the folder's own name, too.
    return batch.filter(pc.and_(is_input, pc.starts_with(below, "/")))


@dataclass(slots=True)
class _StoreTree:
    """The folders of a store, for globs."""

    system: Any
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)  # of files, by name

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        try:
            listing = self.system.ls(folder, detail=True)
        except NO_FILE:
            return []
        found = []
        for info in listing:
            name = info["name"].rstrip("/")
            if name.strip("/") == folder.strip("/"):
                continue  # the folder itself, or a file
            is_file = info["type"] == "file" and not info["name"].endswith("/")
            last = name.rpartition("/")[2]
            if is_file:  # its path as a glob joins it
                self.infos[f"{folder.rstrip('/')}/{last}" if folder else name] = info
            found.append((last, not is_file))
        return found

    def below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        for folder in folders:
            for name in self.find(folder):
                below = name.removeprefix(folder).lstrip("/")
                # A store finds a file of the folder's own name, too.
                if name.strip("/") != folder.strip("/") and (
                    hidden or not is_left_out(below)
                ):
                    yield name, folder

    def find(self, folder: str) -> dict[str, Any]:
        """Returns all files below a folder, or the file of this name."""
        try:
            found: dict[str, Any] = self.system.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        if isinstance(found, list):  # adlfs: the name of a file
            found = {name: self.system.info(name) for name in found}
        self.infos |= found
        return found


def _opened(file: InputFile, options: StorageOptions) -> Sequence[InputFile]:
    """Returns the members of an archive that an input names; any other file as it is."""
    if file.given or file.problem or not is_archive_name(file.uri):
        return (file,)
    members = list_archive(file.uri, file.seen, options)
    top = _only_folder([member.name for member, _, _ in members])
    given = f"{file.uri}{MEMBER_MARK}{top and f'/{top}'}"
    return [
        InputFile("", uri, member.size, version, given, member.problem)
        for member, uri, version in members
    ]


def describe_archives(files: Inventory) -> InputSummary:
    """Returns which archives were taken for folders, for people."""
    archives: Counter[str] = Counter()
    for file in files.where(pc.starts_with(files.table["version"], MEMBER_VERSION)):
        if member := member_of(file.version):
            archives[member.archive_uri(file.path)] += 1
    if not archives:
        return NOTHING
    told = [f"{path} ({count(number, 'file')})" for path, number in archives.items()]
    return InputSummary((("archives", first_names(told)),))


def _only_folder(names: list[str]) -> str:
    """Returns the folder that an archive packs, where it packs one with folders in it.

    >>> _only_folder(["pets/cat/1.jpg", "pets/dog/1.jpg"])
    'pets'
    >>> _only_folder(["cat/1.jpg", "cat/2.jpg"]), _only_folder(["train/cat/1.jpg"])
    ('', '')
    """
    tops = {name.partition("/")[0] for name in names}
    has_folders = any(name.count("/") > 1 for name in names)
    if len(tops) > 1 or not has_folders:
        return ""
    top = tops.pop()
    return "" if likely_splits([top]) else top


def list_inputs(
    inputs: Sequence[str],
    options: StorageOptions = NO_OPTIONS,
    *,
    keep_unreadable: bool = False,
    notes: list[str] | None = None,
    open_archives: bool = True,
) -> tuple[str, Inventory]:
    """Lists every file below the inputs: files, folders with all below them, or globs.

    Files keep the order of the inputs, within one input that of their names, folder
    by folder; a file named twice counts once. Left out, unless they are named: hidden
    files and folders, and those that operating systems leave (Thumbs.db). Links are
    followed, but each folder below an input is read once.

    Args:
      inputs: local paths or urls, as a user wrote them.
      options: of their storage.
      keep_unreadable: whether to return files that cannot be read, too, with a
        `problem`: broken links, pipes, and names that are not UTF-8.
      notes: gets the links that are skipped.
      open_archives: whether an archive that is named, or matched by a glob, stands for
        its members, as a folder does.

    Returns:
      The input root, and the files with paths relative to it.

    Raises:
      InputError: an input matches nothing or cannot be listed, or a file be read.
      UsageError: an input's url carries a secret.
    """
    found: list[tuple[str, Iterator[pa.RecordBatch]]] = []
    notes = [] if notes is None else notes
    for name in inputs:
        if name == "-":
            raise InputError(
                "-: standard input can be read only by `recordmill convert` and "
                "`recordmill run`. Write it to a file first; a file of this name is ./-"
            )
        require_secretless_url(name)
        require_whole_scheme(name)
        if is_local(name):
            found.append(_list_local(name, notes, open_archives))
        else:
            found.append(_list_remote(name, options, open_archives))
        if not is_utf8(root := found[-1][0]):
            raise InputError(
                f"{escaped(root)}: the name of this input folder is not UTF-8, as names in "
                "datasets must be; rename it"
            )
    root = _common_folder([each for each, _ in found])
    parts = [_by_folders(gather(batches, _FOUND)) for _, batches in found]
    listing = _below_root(root, parts)
    if not keep_unreadable and (odd := listing.unreadable):
        raise unreadable_error(odd[0])
    return root, listing


def _below_root(root: str, parts: Sequence[pa.Table]) -> Inventory:
    """Returns the inventory of what was found below a root, each file once."""
    found = pa.concat_tables(parts)
    if len(parts) > 1:
        codes = found["uri"].dictionary_encode().combine_chunks()
        _, first = np.unique(codes.indices, return_index=True)
        if len(first) < found.num_rows:
            found = found.take(np.sort(first))
    start = f"{root.rstrip('/')}/" if root else ""
    return Inventory.gathered(
        (_named_below(root, start, batch) for batch in found.to_batches(BATCH_FILES)),
        start,
    )


def _named_below(root: str, start: str, found: pa.RecordBatch) -> pa.RecordBatch:
    """Returns files with their paths below a root, as an inventory has them."""
    problems = found["problem"]
    try:
        uris = found["uri"].cast(pa.string())
    except pa.ArrowInvalid:
        names = [each.decode(errors=_SURROGATES) for each in found["uri"].to_pylist()]
        odd = pa.array([not is_utf8(name) for name in names])
        problem = "the file's name is not UTF-8, as names in records must be; rename it"
        problems = pc.if_else(odd, problem, problems)
        uris = pa.array(map(escaped, names), pa.string())
    below = pc.utf8_slice_codeunits(uris, len(root))  # as all begin with it
    paths = pc.ascii_ltrim(below, characters="/")
    own = pc.if_else(
        pc.equal(pc.binary_join_element_wise(start, paths, ""), uris), None, uris
    )
    given = pc.ascii_ltrim(
        pc.utf8_slice_codeunits(found["given"], len(root)), characters="/"
    )
    columns = [paths, own, found["size"], found["version"], given, problems]
    return pa.RecordBatch.from_arrays(columns, list(InputFile._fields))


def unreadable_error(file: InputFile) -> InputError:
    """Returns the error of a file that cannot be read, and is needed."""
    return InputError(f"{file.uri}: {file.problem}")


def input_root(files: Sequence[InputFile]) -> str:
    """Returns the folder below which all files lie; "" if there are none."""
    return files[0].uri.removesuffix(files[0].path) if files else ""


def input_roots(files: Sequence[InputFile], most: int) -> tuple[str, ...]:
    """Returns the folders that were given; if they are more, the one above them all."""
    given = Inventory.of(files).table["given"].unique().to_pylist()
    below = given if len(given) <= most else [""]
    return tuple(input_root(files) + folder for folder in below)


def _by_folders(found: pa.Table) -> pa.Table:
    """Returns files in the order of their names, folder by folder."""
    batches = found.to_batches(BATCH_FILES)
    # Keys of stores may hold a zero.
    if any(pc.any(pc.match_substring(b["uri"], b"\0")).as_py() for b in batches):
        names = [name.split(b"/") for name in found["uri"].to_pylist()]
        return found.take(sorted(range(len(names)), key=names.__getitem__))
    if are_sorted(batch["uri"] for batch in batches):
        return found
    keys = gather(
        (pa.RecordBatch.from_arrays([by_folders(b["uri"])], ["key"]) for b in batches),
        pa.schema({"key": pa.binary()}),
    )
    order = pc.sort_indices(keys["key"])
    del keys
    return gather(take_batches(found, order), found.schema)


def _common_folder(roots: Sequence[str]) -> str:
    """Returns the deepest folder that holds all of these."""
    stores = {root.rpartition("://")[0] for root in roots}
    if len(stores) > 1:
        raise InputError(
            f"inputs of one run must lie in one store, got {', '.join(sorted(roots))}"
        )
    parts = [root.rpartition("://")[2].split("/") for root in roots]
    levels = zip(*parts, strict=False)
    common = [names[0] for names in takewhile(lambda each: len({*each}) == 1, levels)]
    store = next(iter(stores), "")
    return f"{store}://{'/'.join(common)}" if store else "/".join(common) or "/"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """What an option says of a file."""

    option: str
    name: str  # of the file, or a pattern


def find_named(name: str, files: Inventory) -> Inventory:
    """Returns the files of the inventory that a name stands for, if there are any.

    These are all files below a folder, as an input's folder may be named.
    """
    if not is_utf8(name):
        return files[:0]  # of no file in the inventory
    below = name.removeprefix("./")
    full = full_uri(name)
    if has_magic(name):
        for texts, pattern in ((files.paths, below), (files.uris, full)):
            found = [matches_path(text, pattern) for text in texts.to_pylist()]
            if any(found):
                return files.where(pa.array(found))
        return files[:0]
    given = pc.binary_join_element_wise(files.table["given"], below, "/")
    wanted = pc.if_else(pc.equal(files.table["given"], ""), below, given)
    is_named = pc.or_(pc.equal(files.paths, below), pc.equal(files.paths, wanted))
    named = files.where(is_named) or files.where(pc.equal(files.uris, full))
    folder, inside = f"{full.rstrip('/')}/", f"{below.rstrip('/')}/"
    is_below = pc.or_(
        pc.starts_with(files.paths, inside), pc.starts_with(files.uris, folder)
    )
    return named or files.where(is_below)


def list_with_named(
    inputs: Sequence[str],
    named: Sequence[NamedFile],
    storage: StorageOptions = NO_OPTIONS,
    *,
    notes: list[str] | None = None,
    open_archives: bool = True,
) -> tuple[tuple[str, ...], str, Inventory]:
    """Lists inputs, and the files that options name where inputs do not hold them.

    Returns the names of such files, the folder that all inputs share, and all files, also
    those that cannot be read. For arguments and errors see `list_inputs`.
    """
    listed = partial(
        list_inputs, options=storage, keep_unreadable=True, open_archives=open_archives
    )
    links: list[str] = []
    root, files = listed(inputs, notes=links)
    names: dict[str, None] = {}
    for each in named:
        if find_named(each.name, files):
            continue
        try:
            list_inputs([each.name], storage)
        except InputError as error:
            raise InputError(
                f"`{each.option}`: {error}; expected the path of a file below the input "
                f"folder {root}, or one like those of inputs"
            ) from error
        names[each.name] = None
    if names:
        links.clear()
        root, files = listed([*inputs, *names], notes=links)
    if notes is not None:
        notes += links
    return tuple(names), root, files


# What people put beside tables, and no format of tables has.
_DOCUMENT = re.compile(
    r"(?:.*/)?(?:[^/]*\.md|(?:readme|licen[cs]e|notice|changelog|citation)"
    r"(?:\.(?:txt|rst|html|pdf|cff))?)",
    re.IGNORECASE,
)
# Rows again that the package `datasets` has changed by map or filter.
_CACHE = re.compile(r"cache-[0-9a-f]{16}\w*\.arrow$")
_JSON_LINES = re.compile(r"\.(jsonl|ndjson)(\.\w+)?$", re.IGNORECASE)
_HEAD_BYTES = 4096
_README_BYTES = 1 << 20


def without_documents(
    files: Inventory, source: str, storage: StorageOptions = NO_OPTIONS
) -> tuple[Inventory, InputSummary, dict[str, str]]:
    """Returns the tables, without README.md, LICENSE and .json files beside them.

    The last value has, by path, the splits that README.md puts tables into.

    Where nothing else is there, or neither tables nor whole texts are read, all files stay. Of JSON
    Lines, a .json file is left out beside .jsonl ones, if its first line is no object. Of
    Arrow, so are the files that a state.json beside them does not list, and caches.

    A README.md or state.json that cannot be read is not used, and a warning names it.

    Raises:
      InputError: README.md says that the tables are of several datasets.
    """
    if source not in ("csv", "parquet", "arrow", "jsonl", "text"):
        return files, NOTHING, {}
    may_be_lines = source == "jsonl"
    beside_lines = any(_JSON_LINES.search(file.path) for file in files)
    unused = list[str]()
    listed = _listed_tables(files, storage, unused) if source == "arrow" else {}

    def is_table(file: InputFile) -> bool:
        folder, _, name = file.path.rpartition("/")
        if name not in listed.get(folder, (name,)) or _CACHE.match(name):
            return False
        if not file.path.lower().endswith(".json"):
            return not _DOCUMENT.fullmatch(file.path)
        return may_be_lines and (not beside_lines or _has_objects(file, storage))

    tables = pa.array([is_table(file) for file in files], pa.bool_())
    kept = files.where(tables)
    if not kept.num_bytes:
        return files, NOTHING, {}
    splits = dict[str, str]()
    for readme in files.where(pc.equal(files.paths, "README.md")):
        head = read_head(readme, _README_BYTES, storage)
        try:
            configurations = read_configurations(head, readme.uri)
        except InputError as error:
            unused.append(f"{error}: is not used")
            continue
        splits = _documented_splits(readme, configurations, kept)
    aside = files.where(pc.invert(tables)).paths.to_pylist()
    noun = "texts" if source == "text" else "tables"
    told = ((f"left out, no {noun}", first_names(aside)),) if aside else ()
    warnings = (InputWarning("unused-metadata", text) for text in unused)
    return kept, InputSummary(told, tuple(warnings)), splits


def _documented_splits(
    readme: InputFile,
    configurations: Mapping[str, Sequence[SplitPattern]],
    tables: Inventory,
) -> dict[str, str]:
    """Returns the splits of tables by README.md; refuses tables of several datasets."""
    names = tables.paths.to_pylist()
    there = {
        name: pairs
        for name, pairs in configurations.items()
        if any(matches_path(each, pattern) for _, pattern in pairs for each in names)
    }
    if len(there) > 1:
        shown = [
            f"{name} ({', '.join(pattern for _, pattern in pairs)})"
            for name, pairs in there.items()
        ]
        raise InputError(
            f"{readme.uri}: these are the files of {len(there)} configurations: "
            f"{first_names(shown)}; expected those of one. Name its files or its folder "
            "as the inputs; to read all as one input, use `exclude=README.md`"
        )
    pairs = next(iter(there.values()), [])
    told = {n: next((s for s, p in pairs if matches_path(n, p)), "") for n in names}
    return {name: split for name, split in told.items() if split}


def _listed_tables(
    files: Sequence[InputFile], storage: StorageOptions, unused: list[str]
) -> dict[str, set[str]]:
    """Returns, by folder, the names of the tables that state.json lists.

    The package `datasets` (`save_to_disk`) writes it. Other files there, such as
    cache-*.arrow, hold rows again. `unused` gets why a state.json cannot be used.

    Raises:
      InputError: the rows of the tables are chosen by an index.
    """
    listed = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if name != "state.json" or file.problem:
            continue
        text = read_range(file.uri, 0, file.size, storage, file.seen)
        try:
            state = parse_json(text, file.uri)
            with as_input_error(file.uri, "_data_files, a list with filename of each"):
                listed[folder] = {
                    str(table["filename"]) for table in state["_data_files"]
                }
        except InputError as error:
            unused.append(f"{error}: is not used, and all tables are read")
            continue
        if state.get("_indices_data_files"):
            raise InputError(
                f"{file.uri}: an index file chooses the rows, as datasets 1 wrote "
                "it. Load the dataset by datasets and save it again, after "
                "flatten_indices()"
            )
    return listed


def _has_objects(file: InputFile, storage: StorageOptions) -> bool:
    """Tells whether the first line of a file may be an object of JSON Lines."""
    head = read_head(file, _HEAD_BYTES, storage).lstrip()
    line = head.partition(b"\n")[0].rstrip()
    is_cut = line == head and file.size > _HEAD_BYTES
    return line.startswith(b"{") and (line.endswith(b"}") or is_cut)


def exclude_files(
    files: Inventory, patterns: Sequence[str], named: Sequence[NamedFile] = ()
) -> tuple[Inventory, frozenset[str], InputSummary]:
    """Returns the files that no pattern names, and the paths of the others.

    Patterns are globs of names at any depth, or of paths below the input root; files that
    options name stay. The summary warns of patterns that name nothing.

    Raises:
      InputError: no file is left.
    """
    needed = {file.path for each in named for file in find_named(each.name, files)}
    paths = [p for p in files.paths.to_pylist() if p not in needed] if patterns else []
    left_out = set[str]()
    warnings = []
    for pattern in patterns:
        found = matching(paths, pattern)
        left_out |= found
        if not found:
            what = (
                f"`exclude` {pattern}: no input file has such a name, or lies in such a "
                f"folder; paths below the input folder are like {files[0].path}"
            )
            warnings.append(InputWarning("unused-exclude", what))
    kept = files.without(left_out)
    text = ", ".join(patterns)
    if patterns and not kept:
        raise InputError(
            f"`exclude` {text}: leaves out all input files "
            f"({count(len(files), 'file')}, such as {files[0].path}). Name fewer files"
        )
    told = f"{count(len(left_out), 'file')}, by exclude: {text}"
    facts = (("left out", told),) if left_out else ()
    return kept, frozenset(left_out), InputSummary(facts, tuple(warnings))
