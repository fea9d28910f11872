"""Lists all files below the inputs: files, folders and globs, local or in a store.

An option may name a file, such as a table of labels, by its path below the input folder,
by a glob of such paths, or by a path or URL like an input. A named file that is not
among the inputs becomes an additional input, because its content affects the dataset.
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
    parse_member,
)
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport, InputWarning
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_url_without_secret,
    require_whole_scheme,
)
from recordmill.schemas.text import (
    escape_surrogates,
    format_count,
    format_names,
    is_utf8,
)
from recordmill.transforms.inventory import BATCH_FILES, Inventory
from recordmill.transforms.join import are_sorted, by_folders
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.file_splits import likely_splits
from recordmill.transforms.sources.globs import (
    find_matches,
    format_no_match,
    is_glob,
    literal_root,
    matches_path,
    select_paths,
)
from recordmill.transforms.sources.readme import SplitPattern, read_configurations
from recordmill.transforms.storage.archives import list_archive
from recordmill.transforms.storage.clouds import (
    NO_FILE,
    FileDescription,
    RemoteFile,
    cloud_of,
    remote_file,
    version_of,
)
from recordmill.transforms.storage.errors import input_error, safe_cause, with_retries
from recordmill.transforms.storage.left_out import SKIPPED_PATH_PATTERN, is_skipped
from recordmill.transforms.storage.reading import (
    file_status,
    full_uri,
    is_local,
    local_path,
    read_head,
    read_range,
)
from recordmill.transforms.temporary import SPILL_BYTES, gather_batches, take_batches


def walk_folders(
    folders: Sequence[str], notes: list[str], *, hidden: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields pairs (file, folder) for the files below absolute paths of folders.

    A folder below `folders` is read under its own name. Any other folder is read under
    the first link to it, by name. Links back to a folder above them would never end, so
    they are skipped. `notes` collects a message about each skipped link.
    """
    read: dict[str, str] = {}  # real path -> path under which the folder is read
    # Links that are not followed yet: path, folder of the walk, and the real paths of
    # the folder with the link and of the folders whose links led to that folder.
    links: list[tuple[str, str, tuple[str, ...]]] = []

    def files(
        folder: str, real: str, top: str, folders_above: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yields the files below a folder, except files behind links to folders."""
        if real in read:
            return
        read[real] = folder
        with os.scandir(folder) as dir_entries:
            # Sorting small folders here often makes a later sort unnecessary.
            first_entries = sorted(
                islice(dir_entries, BATCH_FILES), key=attrgetter("name")
            )
            for dir_entry in chain(first_entries, dir_entries):
                if is_skipped(dir_entry.name) and not hidden:
                    continue
                if not _is_folder(dir_entry):
                    yield dir_entry.path, top
                elif dir_entry.is_symlink():
                    links.append((dir_entry.path, top, (*folders_above, real)))
                else:
                    inner_real = f"{real.rstrip('/')}/{dir_entry.name}"
                    yield from files(dir_entry.path, inner_real, top, folders_above)

    for folder in folders:
        # A link is followed after the real folders, unless it is the only folder.
        if len(folders) > 1 and os.path.islink(folder):  # noqa: PTH114
            parent = os.path.realpath(os.path.dirname(folder))  # noqa: PTH120
            links.append((folder, folder, (parent,)))
        else:
            yield from files(folder, os.path.realpath(folder), folder, ())
    while links:
        links.sort()
        path, top, folders_above = links.pop(0)
        real = os.path.realpath(path)
        start = real.rstrip("/") + "/"
        if any(f"{folder}/".startswith(start) for folder in folders_above):
            notes.append(
                f"{path}: a link back to {real}, a folder above it, not followed"
            )
        elif real in read:
            notes.append(
                f"{path}: a link to {real}, skipped: it is read as {read[real]}"
            )
        else:
            yield from files(path, real, top, folders_above)


def _is_folder(dir_entry: os.DirEntry[str]) -> bool:
    """Returns True if a directory entry is a folder or a link to a folder."""
    try:
        return dir_entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle
            return False
        raise


def has_files(folder: str) -> bool:
    """Returns True if a local folder has a file at any depth that is not skipped."""
    return next(walk_folders([folder], []), None) is not None


# The columns of a listing. The uri is bytes, because it may not be UTF-8. There is no
# path yet. `given` is the folder below which the file was listed, or the folder of a file
# that the user named.
_LISTING_SCHEMA = pa.schema(
    {
        "uri": pa.binary(),
        "size": pa.int64(),
        "version": pa.string(),
        "given_folder": pa.string(),
        "problem": pa.string(),
    }
)
# Python represents bytes that are not UTF-8 as surrogates
_SURROGATES = "surrogatepass"


def _list_local(
    name: str, notes: list[str], open_archives: bool
) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Returns the root folder of a local input, and batches of its files in any order."""

    def batches() -> Iterator[pa.RecordBatch]:
        with _local_errors(name):
            while part := dict(islice(files, BATCH_FILES)):
                paths, given_folders = list(part), [*part.values()]
                sizes, times, _ = file_status(paths)
                if sizes.min() >= 0 and all(given_folders):
                    columns = (
                        *(sizes, pa.array(times).cast(pa.string())),
                        given_folders,
                    )
                    yield _listing_batch(root, paths, *columns, [None] * len(paths))
                    continue
                file_stats = zip(
                    part.items(), sizes.tolist(), times.tolist(), strict=True
                )
                odd_files = (
                    InputFile("", path, size, str(modified), folder)
                    if size >= 0
                    else _unreadable_file(path, folder)
                    for (path, folder), size, modified in file_stats
                )
                yield from _listing_batches(root, odd_files, NO_OPTIONS, open_archives)

    with _local_errors(name):
        root, files = _search_folders(name, notes)
    return root, batches()


@contextmanager
def _local_errors(name: str) -> Iterator[None]:
    """Converts exceptions while a local input is listed to InputError."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise input_error(error, name, "listed") from error


def _listing_batch(root: str, uris: Iterable[str], *columns: Any) -> pa.RecordBatch:
    """Returns a batch of files.

    Args:
      root: the root folder; it replaces a given folder that is "".
      uris: the files.
      columns: the columns size, version, given folder and problem.
    """
    escape_folder = cache(lambda folder: escape_surrogates(folder or root))
    names = [uri.encode(errors=_SURROGATES) for uri in uris]
    sizes, versions, given_folders, problems = columns
    columns = (names, sizes, versions, [*map(escape_folder, given_folders)], problems)
    arrays = [*map(pa.array, columns, _LISTING_SCHEMA.types)]
    return pa.RecordBatch.from_arrays(arrays, schema=_LISTING_SCHEMA)


def _listing_batches(
    root: str, files: Iterable[InputFile], options: StorageOptions, open_archives: bool
) -> Iterator[pa.RecordBatch]:
    """Yields batches of files, or of the members of archives among them."""
    if open_archives:
        files = chain.from_iterable(_archive_members(file, options) for file in files)
    files = iter(files)
    while part := list(islice(files, BATCH_FILES)):
        _, uris, sizes, versions, given_folders, problems = zip(*part, strict=True)
        escaped_problems = [escape_surrogates(problem) or None for problem in problems]
        yield _listing_batch(
            root, uris, sizes, versions, given_folders, escaped_problems
        )


def _search_folders(
    name: str, notes: list[str]
) -> tuple[str, Iterator[tuple[str, str]]]:
    """Returns the root of a local input, and pairs (file, folder below which it is).

    The folder is "" for a file that the user named.
    """
    path = os.path.abspath(local_path(name))  # noqa: PTH100 (keeps links)
    root = os.path.dirname(path)  # noqa: PTH120
    if os.path.isdir(path):  # noqa: PTH112
        walk = walk_folders([path], notes)
        if first := next(walk, None):
            return path, chain([first], walk)
        raise InputError(f"{name}: the folder contains no files")
    if os.path.exists(path):  # noqa: PTH110
        if kind := _special_kind(os.stat(path).st_mode):  # noqa: PTH116
            raise InputError(
                f"{name}: is {kind}, expected a file or a folder; write its content to "
                "a file first"
            )
        return root, iter([(path, "")])
    tree = _LocalTree(notes)
    if is_glob(path):
        root = literal_root(path) or "/"
        files = find_matches(tree, root, path)
    else:
        files = {path: ""} if os.path.islink(path) else {}  # noqa: PTH114
    if files:
        return root, iter(files.items())
    existing_folder = root
    while not os.path.isdir(existing_folder):  # noqa: PTH112
        existing_folder = os.path.dirname(existing_folder)  # noqa: PTH120
    raise InputError(
        format_no_match(name, existing_folder, tree.list_folder(existing_folder))
    )


@dataclass(frozen=True, slots=True)
class _LocalTree:
    """The tree of local folders, for `globs.search`."""

    notes: list[str]

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as dir_entries:
                return [
                    (dir_entry.name, _is_folder(dir_entry)) for dir_entry in dir_entries
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files_below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        existing_folders = [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112
        return walk_folders(existing_folders, self.notes, hidden=hidden)


def _special_kind(mode: int) -> str:
    """Returns the kind of a special file, such as "a pipe"; "" for a regular file."""
    # Such files are never opened: opening a pipe blocks until something writes to it.
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _unreadable_file(path: str, folder: str) -> InputFile:
    """Returns a file for which `file_status` has no size, usually with its problem."""
    size, version, problem = 0, "", ""
    try:
        status = os.stat(path)  # noqa: PTH116 (raises the exact error)
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
    """Returns the root folder of an input in a store, and batches of its files."""
    with _store_errors(url):
        root, listing = with_retries(lambda: _search_store(url, options))

    def batches() -> Iterator[pa.RecordBatch]:
        with _store_errors(url):
            if isinstance(listing, list):
                yield from _listing_batches(root, listing, options, open_archives)
            else:
                yield from listing

    return root, batches()


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    """Converts exceptions while an input in a store is listed to InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise input_error(error, url, "listed") from safe_cause(error)


def _search_store(
    url: str, options: StorageOptions
) -> tuple[str, list[InputFile] | Iterator[pa.RecordBatch]]:
    """Returns the root of an input in a store, and its files.

    The files are a list if the input is a file or a glob; otherwise they are batches.
    """
    protocol = url.split("://", 1)[0]
    top = remote_file(url, options)
    system, root = top.system, top.path
    system.invalidate_cache()
    tree = _StoreTree(system)

    def uri_of(name: str) -> str:
        return name if "://" in name else f"{protocol}://{name.strip('/')}"

    folder_by_name: dict[str, str] = {}
    if is_glob(root) and not system.exists(root):
        root = literal_root(root)
        folder_by_name = find_matches(tree, root, top.path)
    else:
        # A name with an ending is looked up as a file first. Object stores can also have
        # a folder of that name.
        is_named = "." in root.rpartition("/")[2] and not top.puts_in_one_step
        description = top.describe() if is_named else None
        if description is None:
            batches = _list_folder(top, uri_of(root))
            if first := next((batch for batch in batches if batch.num_rows), None):
                return uri_of(root), chain([first], batches)
            description = None if is_named else top.describe()
        if description is not None:
            tree.descriptions[root] = description
            root, folder_by_name = root.rpartition("/")[0], {root: ""}
    files = []
    for name, folder in folder_by_name.items():
        description, uri = tree.descriptions[name], uri_of(name)
        # Object stores may list a folder as an empty file.
        if description["type"] != "file" or name.endswith("/"):
            continue
        if description["size"] is None:
            raise _unknown_size_error(uri)
        version, folder_uri = version_of(description), folder and uri_of(folder)
        files.append(InputFile("", uri, int(description["size"]), version, folder_uri))
    if files:
        return uri_of(root), files
    names: list[tuple[str, bool]] = []
    with suppress(ValueError):  # hf:// rejects paths above a repository
        while root.strip("/") and not (names := tree.list_folder(root)):
            root = root.rpartition("/")[0]  # ends at the deepest folder that exists
    hidden = "" if names else cloud_of(url).missing_file_note
    raise InputError(
        format_no_match(url, uri_of(root) if names else "", names) + hidden
    )


def _unknown_size_error(uri: str) -> InputError:
    """Returns the error for a file whose size the store does not report."""
    return InputError(
        f"{uri}: the store does not report its size; copy the file to a local folder "
        "or to an object store"
    )


# A store lists a thousand names per request, and requests for one folder are sequential.
# The folders of a large input are therefore listed in parallel and yielded in order. Only
# the listings in progress are in memory.

_THREADS = 16
_MAX_LEVELS = 4  # maximum depth of folders that are listed to find work for all threads
_INFOS_PER_BATCH = (
    BATCH_FILES // _THREADS
)  # file infos that a thread holds as Python objects

# The infos of files in the same folder, or the path of a folder, for all files below it.
_Branch = list[FileDescription] | str


def _list_folder(top: RemoteFile, root: str) -> Iterator[pa.RecordBatch]:
    """Yields the files below a folder of a store, in order."""
    listed = partial(_list_branch, top, root)
    tables = map_ahead(_list_branches(top), listed, _THREADS, most=2 * _THREADS)
    return chain.from_iterable(table.to_batches() for table in tables)


def _list_branches(top: RemoteFile) -> list[_Branch]:
    """Returns the files and folders below a folder, in order; most are not listed yet."""
    branches: list[_Branch] = [top.path]
    if max_names := top.flat_names:  # a small input needs few requests and no threads
        descriptions = list[FileDescription]()
        with suppress(FileNotFoundError):
            descriptions = list(islice(top.list_files(deep=True), max_names + 1))
        if len(descriptions) <= max_names:
            return [descriptions]
    for _ in range(_MAX_LEVELS):
        folders = [branch for branch in branches if isinstance(branch, str)]
        if not 0 < len(folders) < _THREADS:
            break
        levels = iter([*map_ahead(folders, partial(_list_level, top), _THREADS)])
        branches = [
            branch
            for upper_branch in branches
            for branch in (
                next(levels) if isinstance(upper_branch, str) else [upper_branch]
            )
        ]
    return branches


def _list_level(top: RemoteFile, folder: str) -> list[_Branch]:
    """Returns the files and folders in a folder; the folder if it cannot be divided."""

    def list_names() -> list[FileDescription]:
        descriptions = iter(type(top)(top.system, folder).list_files(deep=False))
        first_descriptions = list(islice(descriptions, BATCH_FILES))
        # A long list of files is not read further here, so that it is read only once.
        is_flat = all(
            description["type"] == "file" for description in first_descriptions
        )
        is_long = is_flat and next(descriptions, None) is not None
        return [] if is_long else [*first_descriptions, *descriptions]

    try:
        listed = with_retries(list_names)
    except NO_FILE:
        return []
    if not listed:
        return [folder]
    folder_name = folder.strip("/")
    children: list[tuple[str, bool, FileDescription]] = []
    for description in listed:
        name = description["name"].strip("/")
        is_folder = description["type"] != "file"
        if name == folder_name and not is_folder:
            continue  # the marker file by which a store represents the folder
        base_name = name.removeprefix(f"{folder_name}/")
        if (
            name == folder_name
            or "/" in base_name
            or description["name"].endswith("//")
        ):
            return [folder]  # a name in the folder is empty, as in a//b
        if not is_skipped(base_name):
            children.append((base_name, is_folder, description))
    children.sort(key=itemgetter(0, 1))
    branches: list[_Branch] = []
    for is_folder, group in groupby(children, key=itemgetter(1)):
        descriptions = [description for _, _, description in group]
        branches += (
            [
                folder_description["name"].rstrip("/")
                for folder_description in descriptions
            ]
            if is_folder
            else [descriptions]
        )
    return branches


def _list_branch(top: RemoteFile, root: str, branch: _Branch) -> pa.Table:
    """Returns the files of a branch, in order."""

    def batches() -> Iterator[pa.RecordBatch]:
        descriptions: Iterable[FileDescription] = (
            () if isinstance(branch, str) else branch
        )
        if isinstance(branch, str):
            descriptions = type(top)(top.system, branch).list_files(deep=True)
        remaining_descriptions = iter(descriptions)
        with suppress(FileNotFoundError):
            while part := list(islice(remaining_descriptions, _INFOS_PER_BATCH)):
                yield _store_batch(root, part)

    most_bytes = SPILL_BYTES // _THREADS
    return _sort_by_folder(
        with_retries(
            lambda: gather_batches(batches(), _LISTING_SCHEMA, most_bytes=most_bytes)
        )
    )


def _store_batch(root: str, descriptions: Iterable[FileDescription]) -> pa.RecordBatch:
    """Returns a batch of the files that a store lists below a folder."""
    # Object stores may list a folder as an empty file.
    files = [
        description
        for description in descriptions
        if description["type"] == "file" and description["name"][-1:] != "/"
    ]
    store = root.partition("://")[0]
    names = [description["name"] for description in files]
    uris = [name if "://" in name else f"{store}://{name.strip('/')}" for name in names]
    sizes = [description["size"] for description in files]
    if None in sizes:
        raise _unknown_size_error(uris[sizes.index(None)])
    nothing = [None] * len(files)
    versions = [*map(version_of, files)]
    batch = _listing_batch(root, uris, sizes, versions, [""] * len(files), nothing)
    length = len(root.encode(errors=_SURROGATES))
    path_below = pc.binary_slice(batch["uri"], length, 1 << 30)  # fails without a stop
    is_input = pc.invert(
        pc.match_substring_regex(path_below, SKIPPED_PATH_PATTERN, ignore_case=True)
    )
    # A store may also list a file whose name is that of the folder.
    return batch.filter(pc.and_(is_input, pc.starts_with(path_below, "/")))


@dataclass(slots=True)
class _StoreTree:
    """The tree of folders in a store, for `globs.search`."""

    system: Any
    descriptions: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # of files, by path

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        try:
            listing = self.system.ls(folder, detail=True)
        except NO_FILE:
            return []
        children = []
        for description in listing:
            name = description["name"].rstrip("/")
            if name.strip("/") == folder.strip("/"):
                continue  # the folder itself, or a file
            is_file = description["type"] == "file" and not description[
                "name"
            ].endswith("/")
            base_name = name.rpartition("/")[2]
            if is_file:  # the key is the path as `globs.search` joins it
                self.descriptions[
                    f"{folder.rstrip('/')}/{base_name}" if folder else name
                ] = description
            children.append((base_name, not is_file))
        return children

    def files_below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        for folder in folders:
            for name in self.find_files(folder):
                path_below = name.removeprefix(folder).lstrip("/")
                # A store may also list a file whose name is that of the folder.
                if name.strip("/") != folder.strip("/") and (
                    hidden or not is_skipped(path_below)
                ):
                    yield name, folder

    def find_files(self, folder: str) -> dict[str, Any]:
        """Returns the infos of all files below a folder, or of the file of this name."""
        try:
            descriptions: dict[str, Any] = self.system.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        if isinstance(descriptions, list):  # adlfs returns a list of names for a file
            descriptions = {name: self.system.info(name) for name in descriptions}
        self.descriptions |= descriptions
        return descriptions


def _archive_members(file: InputFile, options: StorageOptions) -> Sequence[InputFile]:
    """Returns the members of an archive that is an input; any other file unchanged."""
    if file.given_folder or file.problem or not is_archive_name(file.uri):
        return (file,)
    members = list_archive(file.uri, file.stat, options)
    top = _only_folder([member.name for member, _, _ in members])
    archive_folder = f"{file.uri}{MEMBER_MARK}{top and f'/{top}'}"
    return [
        InputFile("", uri, member.size, version, archive_folder, member.problem)
        for member, uri, version in members
    ]


def report_archives(files: Inventory) -> InputReport:
    """Returns the lines of the input report about archives listed as folders."""
    archives: Counter[str] = Counter()
    for file in files.filter(pc.starts_with(files.table["version"], MEMBER_VERSION)):
        if member := parse_member(file.version):
            archives[member.archive_uri(file.path)] += 1
    if not archives:
        return EMPTY_REPORT
    descriptions = [
        f"{path} ({format_count(number, 'file')})" for path, number in archives.items()
    ]
    return InputReport((("archives", format_names(descriptions)),))


def _only_folder(names: list[str]) -> str:
    """Returns the single top-level folder of an archive, if it has subfolders; else "".

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
    """Lists every file below the inputs, which are files, folders or globs.

    The files have the order of the inputs; within one input they are sorted by name,
    folder by folder. A file below several inputs is listed once. Unless the user names
    them, hidden files and folders and files of operating systems (Thumbs.db) are skipped.
    Links are followed, but each folder below an input is read once.

    Args:
      inputs: local paths or URLs, as the user wrote them.
      options: options of their storage.
      keep_unreadable: whether to include files that cannot be read, with a `problem`:
        broken links, pipes, and names that are not UTF-8.
      notes: collects a message about each skipped link.
      open_archives: whether an archive that is an input, or that a glob matches, is
        listed as a folder of its members.

    Returns:
      The input root, and the files with paths relative to it.

    Raises:
      InputError: an input matches nothing or cannot be listed, or a file cannot be read.
      UsageError: the URL of an input contains a secret.
    """
    input_listings: list[tuple[str, Iterator[pa.RecordBatch]]] = []
    notes = [] if notes is None else notes
    for name in inputs:
        if name == "-":
            raise InputError(
                "-: standard input can be read only by `recordmill convert` and "
                "`recordmill run`. Write it to a file first; a file of this name is ./-"
            )
        require_url_without_secret(name)
        require_whole_scheme(name)
        if is_local(name):
            input_listings.append(_list_local(name, notes, open_archives))
        else:
            input_listings.append(_list_remote(name, options, open_archives))
        if not is_utf8(root := input_listings[-1][0]):
            raise InputError(
                f"{escape_surrogates(root)}: the name of this input folder is not UTF-8, as names in "
                "datasets must be; rename it"
            )
    root = _common_folder([folder for folder, _ in input_listings])
    tables = [
        _sort_by_folder(gather_batches(batches, _LISTING_SCHEMA))
        for _, batches in input_listings
    ]
    listing = _build_inventory(root, tables)
    if not keep_unreadable and (unreadable_files := listing.unreadable):
        raise unreadable_error(unreadable_files[0])
    return root, listing


def _build_inventory(root: str, tables: Sequence[pa.Table]) -> Inventory:
    """Returns the inventory of the listed files below a root, each file once."""
    file_table = pa.concat_tables(tables)
    if len(tables) > 1:
        codes = file_table["uri"].dictionary_encode().combine_chunks()
        _, first_rows = np.unique(codes.indices, return_index=True)
        if len(first_rows) < file_table.num_rows:
            file_table = file_table.take(np.sort(first_rows))
    start = f"{root.rstrip('/')}/" if root else ""
    return Inventory.from_batches(
        (
            _inventory_batch(root, start, batch)
            for batch in file_table.to_batches(BATCH_FILES)
        ),
        start,
    )


def _inventory_batch(root: str, start: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of an inventory for a batch of listed files.

    Args:
      root: the input root.
      start: the root with a slash at its end, or "".
      batch: the files.
    """
    problems = batch["problem"]
    try:
        uris = batch["uri"].cast(pa.string())
    except pa.ArrowInvalid:
        names = [uri.decode(errors=_SURROGATES) for uri in batch["uri"].to_pylist()]
        has_odd_name = pa.array([not is_utf8(name) for name in names])
        problem = "the file's name is not UTF-8, as names in records must be; rename it"
        problems = pc.if_else(has_odd_name, problem, problems)
        uris = pa.array(map(escape_surrogates, names), pa.string())
    # Every uri begins with the root.
    path_below = pc.utf8_slice_codeunits(uris, len(root))
    paths = pc.ascii_ltrim(path_below, characters="/")
    explicit_uris = pc.if_else(
        pc.equal(pc.binary_join_element_wise(start, paths, ""), uris), None, uris
    )
    given_folders = pc.ascii_ltrim(
        pc.utf8_slice_codeunits(batch["given_folder"], len(root)), characters="/"
    )
    columns = [
        paths,
        explicit_uris,
        batch["size"],
        batch["version"],
        given_folders,
        problems,
    ]
    return pa.RecordBatch.from_arrays(columns, list(InputFile._fields))


def unreadable_error(file: InputFile) -> InputError:
    """Returns the error for a required file that cannot be read."""
    return InputError(f"{file.uri}: {file.problem}")


def input_root(files: Sequence[InputFile]) -> str:
    """Returns the input root of these files; "" if there are no files."""
    return files[0].uri.removesuffix(files[0].path) if files else ""


def input_roots(files: Sequence[InputFile], max_folders: int) -> tuple[str, ...]:
    """Returns the input folders, or the input root if there are more than `most`."""
    given_folders = (
        Inventory.from_files(files).table["given_folder"].unique().to_pylist()
    )
    folders = given_folders if len(given_folders) <= max_folders else [""]
    return tuple(input_root(files) + folder for folder in folders)


def _sort_by_folder(file_table: pa.Table) -> pa.Table:
    """Returns files sorted by name, folder by folder."""
    batches = file_table.to_batches(BATCH_FILES)
    # Keys of object stores may contain a zero byte.
    if any(
        pc.any(pc.match_substring(batch["uri"], b"\0")).as_py() for batch in batches
    ):
        names = [name.split(b"/") for name in file_table["uri"].to_pylist()]
        return file_table.take(sorted(range(len(names)), key=names.__getitem__))
    if are_sorted(batch["uri"] for batch in batches):
        return file_table
    keys = gather_batches(
        (
            pa.RecordBatch.from_arrays([by_folders(batch["uri"])], ["key"])
            for batch in batches
        ),
        pa.schema({"key": pa.binary()}),
    )
    order = pc.sort_indices(keys["key"])
    del keys
    return gather_batches(take_batches(file_table, order), file_table.schema)


def _common_folder(roots: Sequence[str]) -> str:
    """Returns the deepest folder that contains all of these folders."""
    stores = {root.rpartition("://")[0] for root in roots}
    if len(stores) > 1:
        raise InputError(
            f"inputs of one run must be in one store, got {', '.join(sorted(roots))}"
        )
    folder_parts = [root.rpartition("://")[2].split("/") for root in roots]
    levels = zip(*folder_parts, strict=False)
    common = [
        names[0]
        for names in takewhile(lambda level_names: len({*level_names}) == 1, levels)
    ]
    store = next(iter(stores), "")
    return f"{store}://{'/'.join(common)}" if store else "/".join(common) or "/"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that an option names."""

    option: str
    name: str  # path or URL of the file, or a glob


def find_named(name: str, files: Inventory) -> Inventory:
    """Returns the files of the inventory that a name refers to, if any.

    If the name is a folder, these are all files below it.
    """
    if not is_utf8(name):
        return files[:0]  # names in an inventory are UTF-8
    path_below = name.removeprefix("./")
    full_name = full_uri(name)
    if is_glob(name):
        for texts, pattern in ((files.paths, path_below), (files.uris, full_name)):
            is_matched = [matches_path(path, pattern) for path in texts.to_pylist()]
            if any(is_matched):
                return files.filter(pa.array(is_matched))
        return files[:0]
    given_paths = pc.binary_join_element_wise(
        files.table["given_folder"], path_below, "/"
    )
    expected_paths = pc.if_else(
        pc.equal(files.table["given_folder"], ""), path_below, given_paths
    )
    is_named = pc.or_(
        pc.equal(files.paths, path_below), pc.equal(files.paths, expected_paths)
    )
    named_files = files.filter(is_named) or files.filter(
        pc.equal(files.uris, full_name)
    )
    folder_uri, folder_path = f"{full_name.rstrip('/')}/", f"{path_below.rstrip('/')}/"
    is_below = pc.or_(
        pc.starts_with(files.paths, folder_path), pc.starts_with(files.uris, folder_uri)
    )
    return named_files or files.filter(is_below)


def list_inputs_and_named_files(
    inputs: Sequence[str],
    named_files: Sequence[NamedFile],
    storage: StorageOptions = NO_OPTIONS,
    *,
    notes: list[str] | None = None,
    open_archives: bool = True,
) -> tuple[tuple[str, ...], str, Inventory]:
    """Lists the inputs and the files that options name outside the inputs.

    For other arguments and errors see `list_inputs`.

    Args:
      inputs: local paths or URLs, as the user wrote them.
      named_files: the files that options name.
      storage: options of the storage of all files.
      notes: collects a message about each skipped link.
      open_archives: whether archives are listed as folders.

    Returns:
      The names of the files outside the inputs, the input root, and all files,
        including files that cannot be read.
    """
    listed = partial(
        list_inputs, options=storage, keep_unreadable=True, open_archives=open_archives
    )
    links: list[str] = []
    root, files = listed(inputs, notes=links)
    names: dict[str, None] = {}
    for named_file in named_files:
        if find_named(named_file.name, files):
            continue
        try:
            list_inputs([named_file.name], storage)
        except InputError as error:
            raise InputError(
                f"`{named_file.option}`: {error}; expected the path of a file below the "
                f"input folder {root}, or a path like the inputs"
            ) from error
        names[named_file.name] = None
    if names:
        links.clear()
        root, files = listed([*inputs, *names], notes=links)
    if notes is not None:
        notes += links
    return tuple(names), root, files


# Names of documents that often accompany tables.
_DOCUMENT_NAME = re.compile(
    r"(?:.*/)?(?:[^/]*\.md|(?:readme|licen[cs]e|notice|changelog|citation)"
    r"(?:\.(?:txt|rst|html|pdf|cff))?)",
    re.IGNORECASE,
)
# Caches of the package `datasets`, with the rows of a table after map or filter.
_CACHE_NAME = re.compile(r"cache-[0-9a-f]{16}\w*\.arrow$")
_JSON_LINES = re.compile(r"\.(jsonl|ndjson)(\.\w+)?$", re.IGNORECASE)
_HEAD_BYTES = 4096
_README_BYTES = 1 << 20


def remove_documents(
    files: Inventory, source: str, storage: StorageOptions = NO_OPTIONS
) -> tuple[Inventory, InputReport, dict[str, str]]:
    """Returns the tables without the documents that accompany them.

    Documents are files such as README.md, LICENSE and .json files. In JSON Lines inputs,
    a .json file next to .jsonl files is a document if its first line is not an object. In
    Arrow inputs, caches and files that the state.json of their folder does not list are
    left out. All files are kept if they are all documents, or if the format reads neither
    tables nor text. A README.md or state.json that cannot be read is not used, and a
    warning names it.

    Args:
      files: the inventory of the inputs.
      source: the name of the format.
      storage: options of their storage.

    Returns:
      The tables, the lines of the input report, and by path the splits that README.md
        assigns to tables.

    Raises:
      InputError: according to README.md, the tables belong to several datasets.
    """
    if source not in ("csv", "parquet", "arrow", "jsonl", "text"):
        return files, EMPTY_REPORT, {}
    may_be_lines = source == "jsonl"
    beside_lines = any(_JSON_LINES.search(file.path) for file in files)
    unused = list[str]()
    listed = _listed_tables(files, storage, unused) if source == "arrow" else {}

    def is_table(file: InputFile) -> bool:
        folder, _, name = file.path.rpartition("/")
        if name not in listed.get(folder, (name,)) or _CACHE_NAME.match(name):
            return False
        if not file.path.lower().endswith(".json"):
            return not _DOCUMENT_NAME.fullmatch(file.path)
        return may_be_lines and (not beside_lines or _has_objects(file, storage))

    tables = pa.array([is_table(file) for file in files], pa.bool_())
    table_files = files.filter(tables)
    if not table_files.num_bytes:
        return files, EMPTY_REPORT, {}
    splits = dict[str, str]()
    for readme in files.filter(pc.equal(files.paths, "README.md")):
        head = read_head(readme, _README_BYTES, storage)
        try:
            configurations = read_configurations(head, readme.uri)
        except InputError as error:
            unused.append(f"{error}: is not used")
            continue
        splits = _documented_splits(readme, configurations, table_files)
    document_paths = files.filter(pc.invert(tables)).paths.to_pylist()
    noun = "texts" if source == "text" else "tables"
    facts = (
        ((f"left out, no {noun}", format_names(document_paths)),)
        if document_paths
        else ()
    )
    warnings = (InputWarning("unused-metadata", message) for message in unused)
    return table_files, InputReport(facts, tuple(warnings)), splits


def _documented_splits(
    readme: InputFile,
    configurations: Mapping[str, Sequence[SplitPattern]],
    tables: Inventory,
) -> dict[str, str]:
    """Returns the splits of tables by README.md, by path.

    Raises:
      InputError: the tables belong to several configurations.
    """
    names = tables.paths.to_pylist()
    matched_configurations = {
        name: pairs
        for name, pairs in configurations.items()
        if any(
            matches_path(table_name, pattern)
            for _, pattern in pairs
            for table_name in names
        )
    }
    if len(matched_configurations) > 1:
        descriptions = [
            f"{name} ({', '.join(pattern for _, pattern in pairs)})"
            for name, pairs in matched_configurations.items()
        ]
        raise InputError(
            f"{readme.uri}: the files belong to {len(matched_configurations)} configurations: "
            f"{format_names(descriptions)}; expected one. Use its files or its folder as the "
            "input; to read all as one input, use `exclude=README.md`"
        )
    pairs = next(iter(matched_configurations.values()), [])
    split_by_name = {
        name: next(
            (split for split, pattern in pairs if matches_path(name, pattern)), ""
        )
        for name in names
    }
    return {name: split for name, split in split_by_name.items() if split}


def _listed_tables(
    files: Sequence[InputFile], storage: StorageOptions, unused: list[str]
) -> dict[str, set[str]]:
    """Returns the names of the tables that each state.json lists, by folder.

    The package `datasets` (`save_to_disk`) writes state.json. Other files in the folder,
    such as cache-*.arrow, contain copies of rows. `unused` collects the reason why a
    state.json cannot be used.

    Raises:
      InputError: an index file selects rows of the tables.
    """
    listed = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if name != "state.json" or file.problem:
            continue
        state_json = read_range(file.uri, 0, file.size, storage, file.stat)
        try:
            state = parse_json(state_json, file.uri)
            with as_input_error(file.uri, "_data_files, a list with filename of each"):
                listed[folder] = {
                    str(table["filename"]) for table in state["_data_files"]
                }
        except InputError as error:
            unused.append(f"{error}: is not used; all tables are read")
            continue
        if state.get("_indices_data_files"):
            raise InputError(
                f"{file.uri}: an index file chooses the rows, as datasets 1 wrote "
                "it. Load the dataset by datasets and save it again, after "
                "flatten_indices()"
            )
    return listed


def _has_objects(file: InputFile, storage: StorageOptions) -> bool:
    """Returns True if the first line of a file may be an object of JSON Lines."""
    head = read_head(file, _HEAD_BYTES, storage).lstrip()
    line = head.partition(b"\n")[0].rstrip()
    is_cut = line == head and file.size > _HEAD_BYTES
    return line.startswith(b"{") and (line.endswith(b"}") or is_cut)


def exclude_files(
    files: Inventory, patterns: Sequence[str], named_files: Sequence[NamedFile] = ()
) -> tuple[Inventory, frozenset[str], InputReport]:
    """Removes the files that match a pattern from an inventory.

    Args:
      files: the inventory.
      patterns: globs of names at any depth, or of paths below the input root.
      named_files: files that options name; they are never removed.

    Returns:
      The remaining files, the paths of the removed files, and the lines of the input
        report, with a warning for each pattern that matches nothing.

    Raises:
      InputError: no file remains.
    """
    needed = {
        file.path
        for named_file in named_files
        for file in find_named(named_file.name, files)
    }
    paths = (
        [path for path in files.paths.to_pylist() if path not in needed]
        if patterns
        else []
    )
    left_out = set[str]()
    warnings = []
    for pattern in patterns:
        matched_paths = select_paths(paths, pattern)
        left_out |= matched_paths
        if not matched_paths:
            problem = (
                f"`exclude` {pattern}: no input file or folder has such a name; paths "
                f"below the input folder are like {files[0].path}"
            )
            warnings.append(InputWarning("unused-exclude", problem))
    kept_files = files.without_paths(left_out)
    pattern_text = ", ".join(patterns)
    if patterns and not kept_files:
        raise InputError(
            f"`exclude` {pattern_text}: leaves out all input files "
            f"({format_count(len(files), 'file')}, such as {files[0].path}). Name fewer files"
        )
    left_out_text = f"{format_count(len(left_out), 'file')}, by exclude: {pattern_text}"
    facts = (("left out", left_out_text),) if left_out else ()
    return kept_files, frozenset(left_out), InputReport(facts, tuple(warnings))
