"""Reads the files beside the records: manifests, TFDS's files, class names."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.sources.tfrecord.data_files import folder_of
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_MOST_BYTES = 64 << 20  # of a file beside the records


class BesideFiles:
    """The files beside the records, read when they are asked for.

    Attributes:
      checksums: of those that were read, by path.
    """

    def __init__(self, files: Sequence[InputFile], storage: StorageOptions) -> None:
        self._files = {file.path: file for file in files if not file.problem}
        self._storage = storage
        self.checksums: dict[str, FileChecksum] = {}

    def read(self, path: str) -> bytes | None:
        """Returns the bytes of a file, or None if it is not among the inputs."""
        file = self._files.get(path)
        if file is None or file.size > _MOST_BYTES:
            return None
        data = read_range(file.uri, 0, file.size, self._storage, file.seen)
        self.checksums[path] = FileChecksum(path, 0, file.size, crc32c(data))
        return data

    def named(self, name: str) -> dict[str, bytes]:
        """Returns the files of a name, by folder."""
        found = {}
        for path in self._files:
            if path.rpartition("/")[2] == name and (data := self.read(path)):
                found[folder_of(path)] = data
        return found

    def manifests(self) -> dict[str, Manifest]:
        """Returns the manifests of recordmill, by folder."""
        found = {}
        for folder, data in self.named(MANIFEST_NAME).items():
            try:
                found[folder] = Manifest.from_bytes(data, folder)
            except OutputRefusedError:
                continue  # another program's file of that name
        return found

    def in_folder(self, folder: str, name: str) -> bytes | None:
        """Returns the bytes of a file in a folder, or None."""
        return self.read(f"{folder}/{name}" if folder else name)
