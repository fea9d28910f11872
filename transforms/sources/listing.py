"""Lists all files below the inputs: local folders and globs, or those of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile, is_archive_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import escaped
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.sources.list_local import list_local
from recordmill.transforms.sources.list_remote import list_remote
from recordmill.transforms.sources.open_archive import open_archive
from recordmill.transforms.sources.walk_folders import Note, no_notes
from recordmill.transforms.storage.reading import is_local


def list_inputs(
    inputs: Sequence[str],
    options: StorageOptions = NO_OPTIONS,
    *,
    keep_unreadable: bool = False,
    note: Note = no_notes,
    open_archives: bool = True,
) -> tuple[str, list[InputFile]]:
    """Lists every file below the inputs: files, folders with all below them, or globs.

    Files keep the order of the inputs, within one input that of their names, folder
    by folder; a file named twice counts once. Left out, unless they are named: hidden
    files and folders, and those that operating systems leave (Thumbs.db). Links are
    followed, but each folder below an input is read once.

    Args:
      inputs: local paths or urls, as a person wrote them.
      options: of their storage.
      keep_unreadable: whether to return files that cannot be read, too, with a
        `problem`: broken links, pipes, and names that are not UTF-8.
      note: is told of links that are passed over.
      open_archives: whether an archive that is named, or matched by a glob, stands for
        its members, as a folder does.

    Returns:
      The input root, below which all files are, and the files with paths relative
      to it.

    Raises:
      InputError: an input that does not exist, matches nothing or cannot be listed; or
        a file that cannot be read.
      UsageError: an input's url carries a secret.
    """
    found: dict[str, FoundFile] = {}
    roots = []
    for name in inputs:
        if name == "-":
            raise InputError(
                "-: standard input can be read only by `recordmill convert` and "
                "`recordmill run`. Write it to a file first; a file of this name is ./-"
            )
        if is_local(name):
            root, files = list_local(name, note)
        else:
            root, files = list_remote(name, options)
        shown, is_utf8 = _readable_path(root)
        if not is_utf8:
            raise InputError(
                f"{shown}: the name of this input folder is not UTF-8, as names in "
                "datasets must be; rename it"
            )
        roots.append(root)
        if open_archives:
            files = list(_opened(files, options))
        for file in _by_folders(files):
            found.setdefault(file.uri, file)
    root = _common_folder(roots)
    # A million files share the text of the few folders that were given.
    given = {file.given: "" for file in found.values()}
    given = {folder: _readable_path(_below(root, folder))[0] for folder in given}
    below = f"{root.rstrip('/')}/"
    start = len(below)
    names = "\n".join(found)
    is_plain = all(uri.startswith(below) for uri in found) and f"{below}/" not in names
    if is_plain and _readable_path(names)[1]:
        listing = [
            InputFile(uri[start:], uri, size, version, given[folder], problem)
            for uri, size, version, folder, problem, _ in found.values()
        ]
    else:
        listing = [_escaped(root, file, given[file.given]) for file in found.values()]
    for each in listing:
        if each.problem and not keep_unreadable:
            raise unreadable_error(each)
    return root, listing


def _opened(files: Iterable[FoundFile], options: StorageOptions) -> Iterator[FoundFile]:
    """Yields the files, and the members of archives in their place."""
    for file in files:
        if file.is_named and is_archive_name(file.uri) and not file.problem:
            yield from open_archive(file, options)
        else:
            yield file


def unreadable_error(file: InputFile) -> InputError:
    """Returns the error of a file that cannot be read, and is needed."""
    return InputError(f"{file.uri}: {file.problem}")


def input_root(files: Sequence[InputFile]) -> str:
    """Returns the folder below which all files lie; "" if there are none."""
    return files[0].uri.removesuffix(files[0].path) if files else ""


def _by_folders(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Returns files in the order of their names, folder by folder."""
    if any("\0" in file.uri for file in files):  # keys of stores may hold it
        return sorted(files, key=lambda file: file.uri.split("/"))
    # The same order in half the time: no character is before a zero.
    return sorted(files, key=lambda file: file.uri.replace("/", "\0"))


def _escaped(root: str, file: FoundFile, given: str) -> InputFile:
    """Returns an entry for a file; a name that is not UTF-8 is its problem."""
    path, is_utf8 = _readable_path(_below(root, file.uri))
    if is_utf8:
        uri, problem = file.uri, file.problem
    else:
        uri = _readable_path(file.uri)[0]
        problem = "the file's name is not UTF-8, as names in records must be; rename it"
    return InputFile(path, uri, file.size, file.version, given, problem)


def _readable_path(path: str) -> tuple[str, bool]:
    r"""Returns a path, bytes that are not UTF-8 written as \xe9, and whether it is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return escaped(path), False
    return path, True


def _common_folder(roots: Sequence[str]) -> str:
    """Returns the deepest folder that holds all of these."""
    stores = {root.rpartition("://")[0] for root in roots}
    if len(stores) > 1:
        raise InputError(
            f"inputs of one run must lie in one store, got {', '.join(sorted(roots))}"
        )
    common = []
    parts = [root.rpartition("://")[2].split("/") for root in roots]
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    store = next(iter(stores), "")
    return f"{store}://{'/'.join(common)}" if store else "/".join(common) or "/"


def _below(root: str, uri: str) -> str:
    return uri.removeprefix(root).lstrip("/")
