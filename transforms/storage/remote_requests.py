"""Makes requests for the files below a URL, with retries and errors that say where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from recordmill.schemas.errors import MissingFileError
from recordmill.schemas.file_names import check_file_name
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.fsspec_files import NO_FILE, file_info
from recordmill.transforms.storage.retry import RetryPolicy, with_retries
from recordmill.transforms.storage.storage_errors import output_error, safe_cause

_Result = TypeVar("_Result")
_PARALLEL = 16  # requests at once, each for another file


@dataclass(frozen=True, slots=True)
class RemoteRequests:
    """The requests for files below a URL.

    Attributes:
      url: the root, like s3://bucket/folder.
      options: for the file system; without secrets.
      retry_policy: how often and how long transient errors are retried.
    """

    url: str
    options: StorageOptions
    retry_policy: RetryPolicy

    def uri_of(self, name: str) -> str:
        """Returns the URL of a file or folder.

        Raises:
          UnsafeNameError: it would lie elsewhere.
        """
        return f"{self.url.rstrip('/')}/{check_file_name(name, self.url)}"

    def path_of(self, name: str) -> str:
        """Returns what the file system calls a file."""
        return filesystem_of(self.uri_of(name), self.options)[1]

    def do(
        self, done: str, name: str, action: Callable[[Any, str], _Result]
    ) -> _Result:
        """Calls action(system, path) for a file, with retries.

        Args:
          done: what was to be done, for the error: "read", "written", "removed".
          name: of the file.
          action: is called again after a transient error.

        Raises:
          OutputError: it failed.
        """
        return self._with_retries(done, self.uri_of(name), action)

    def read(self, name: str, action: Callable[[Any, str], bytes]) -> bytes:
        """Calls action(system, path) for a file that must be there, as `do` does.

        Raises:
          MissingFileError: it is not.
        """

        def read(system: Any, path: str) -> bytes:
            try:
                return action(system, path)
            except NO_FILE as error:
                missing = MissingFileError(f"{self.uri_of(name)}: is missing")
                raise missing from safe_cause(error)

        return self.do("read", name, read)

    def info(self, name: str) -> dict[str, Any] | None:
        """Returns what the file system tells of a file; None if there is none."""
        return self.do("read", name, file_info)

    def list(
        self, folder: str, list_below: Callable[[Any, str, str], _Result]
    ) -> _Result:
        """Calls list_below(system, path of the folder, path of the root)."""

        def list_once(system: Any, path: str) -> _Result:
            _, root = filesystem_of(self.url, self.options)
            return list_below(system, path, root)

        uri = self.uri_of(folder) if folder else self.url
        return self._with_retries("listed", uri, list_once)

    def _with_retries(
        self, done: str, uri: str, action: Callable[[Any, str], _Result]
    ) -> _Result:
        try:
            return with_retries(
                lambda: action(*filesystem_of(uri, self.options)), self.retry_policy
            )
        except Exception as error:
            raise output_error(error, uri, done) from safe_cause(error)


def for_each(action: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Calls a function for each item, for several at once."""
    items = list(items)
    if len(items) == 1:
        action(items[0])
    elif items:
        with ThreadPoolExecutor(min(_PARALLEL, len(items)), "store") as pool:
            for _ in pool.map(action, items):
                pass
