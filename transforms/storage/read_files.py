"""Reads whole files in order; of those in a store, several are requested at once.

A request takes 20 to 100 ms and most of it is waiting, so one after the other would read
some ten pictures a second. More files wait for a request than there are requests, so that
these go on while the caller works on what it has. Files of this machine are read when they
are asked for, some at once: threads would only wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.transforms.storage.read_together import FileToRead, read_together
from recordmill.transforms.storage.reading import is_local, read_file

REQUESTS = 32  # at once, by each worker
FILES_AHEAD = 4 * REQUESTS  # that are read or wait for it before they are needed
BYTES_AHEAD = 8 << 20  # of these together, or one file


def read_files(
    files: Iterable[FileToRead], options: StorageOptions
) -> Generator[bytes, None, None]:
    """Yields the bytes of each file, in order.

    Args:
      files: local ones, or those of one store.
      options: for their storage.

    Raises:
      ChangedInputError: a file is another one by now.
      InputError: a file cannot be read.
    """
    ahead: deque[tuple[Future[bytes], int]] = deque()
    num_bytes = 0
    threads: ThreadPoolExecutor | None = None
    try:
        coming = iter(files)
        for uri, seen in coming:
            if is_local(uri):
                yield from read_together(chain([(uri, seen)], coming), options)
                return
            while ahead and (
                len(ahead) >= FILES_AHEAD or num_bytes + seen.size > BYTES_AHEAD
            ):
                first, size = ahead.popleft()
                num_bytes -= size
                yield first.result()
            threads = threads or ThreadPoolExecutor(REQUESTS, "read-files")
            ahead.append((threads.submit(read_file, uri, options, seen), seen.size))
            num_bytes += seen.size
        while ahead:
            yield ahead.popleft()[0].result()
    finally:
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
