"""Puts the members of an archive in its place in a listing, as if it were a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recordmill.schemas.input_files import MEMBER_MARK, InputFile, Seen, member_of
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.sources.split_names import is_split_name
from recordmill.transforms.storage.archives import list_archive


def open_archive(file: FoundFile, options: StorageOptions) -> list[FoundFile]:
    """Returns the members of an archive as files below it.

    Args:
      file: the archive.
      options: of its storage.

    Raises:
      InputError: it cannot be read, or not be taken for a folder.
    """
    members = list_archive(file.uri, Seen(file.size, file.version), options)
    top = _only_folder([member.name for member, _, _ in members])
    given = f"{file.uri}{MEMBER_MARK}{top and f'/{top}'}"
    return [
        FoundFile(uri, member.size, version, given, member.problem)
        for member, uri, version in members
    ]


def describe_archives(files: Iterable[InputFile]) -> Understood:
    """Returns which archives were taken for folders, for people."""
    archives: Counter[str] = Counter()
    for file in files:
        if member := member_of(file.version):
            archives[member.archive_uri(file.path)] += 1
    if not archives:
        return NOTHING
    told = [f"{path} ({count(number, 'file')})" for path, number in archives.items()]
    return Understood((("archives", first_names(told)),))


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
    return "" if is_split_name(top) else top
