"""Lists the inputs of a run: the files to convert, and the files that cells may name."""

from __future__ import annotations

import fcntl
import os
import posixpath
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import parse_member
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport, InputWarning
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import format_count
from recordmill.transforms.cast.side_files import root_prefixes
from recordmill.transforms.commit.inputs import ContentComparison, is_same_dataset
from recordmill.transforms.inventory import NO_FILES, Inventory, parent_folders
from recordmill.transforms.sources.file_splits import NONE
from recordmill.transforms.sources.listing import (
    exclude_files,
    list_inputs,
    list_inputs_and_named_files,
    remove_documents,
    unreadable_error,
)
from recordmill.transforms.sources.registry import (
    SourceRequest,
    describe_inputs,
    make_source,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.local import write_windows
from recordmill.transforms.storage.reading import full_uri, is_local, real_uri
from recordmill.transforms.tasks.fingerprint import fingerprint_of
from recordmill.transforms.temporary import TEMPORARY

# The second run of `recordmill convert images data data/out` finds the shards of the
# first run below its input, and skips them. An input file in the output folder is
# refused if the user names it.

_OUTPUT_HINT = "choose another output or other inputs"


def _inputs_outside_output(inputs: Sequence[str], output: str) -> list[str]:
    """Returns the inputs without the output folder, which `data/*` may match."""
    if not output:
        return list(inputs)
    folder = real_uri(output)
    for name in inputs:
        if real_uri(name).startswith(f"{folder}/"):
            raise UsageError(
                f"{name} is an input, but is inside the output folder "
                f"{full_uri(output)}; {_OUTPUT_HINT}. In folders and quoted patterns, "
                "recordmill skips files there"
            )
    outside = [name for name in inputs if real_uri(name) != folder]
    if not outside:
        raise UsageError(
            f"{full_uri(output)} is both the input and the output folder; "
            f"{_OUTPUT_HINT}"
        )
    return outside


def _files_outside_output(files: Inventory, output: str) -> Inventory:
    """Returns the files outside the output folder, after resolving links."""
    if not output:
        return files
    folder = real_uri(output)

    @lru_cache
    def is_outside(parent: str) -> bool:  # cached, because it accesses the disk
        parent = posixpath.dirname(f"{parent}/")
        return not f"{real_uri(parent)}/".startswith(f"{folder}/")

    def are_outside(part: Inventory) -> pa.ChunkedArray:
        parents = parent_folders(part.uris)
        outside = [is_outside(parent) for parent in parents.dictionary.to_pylist()]
        return pa.chunked_array([pa.array(outside, pa.bool_()).take(parents.indices)])

    return files.filter(files.map_parts(are_outside))


_MAX_SHOWN_LINKS = 5


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inventory of a run."""

    files: Inventory  # files to convert
    # files that cells may name, if the job reads sidecar files
    sidecar_files: Inventory
    # compares the files with the files of a dataset
    content_check: ContentComparison = field(
        default_factory=ContentComparison, compare=False
    )
    input_report: InputReport = EMPTY_REPORT  # report on skipped and excluded files
    # Unix time before the listing
    listed_at: float = field(default=0.0, compare=False)
    option_files: tuple[
        str, ...
    ] = ()  # files that are inputs because options name them
    # paths of the input files that `exclude` excludes
    excluded_paths: frozenset[str] = frozenset()
    # by path, values of columns that files of a table may lack
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # by path, the splits that a README.md assigns to tables
    documented_splits: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_files(self) -> int:
        """Returns the number of all files."""
        return len(self.files) + len(self.sidecar_files)

    @property
    def num_bytes(self) -> int:
        """Returns the size of all files, in bytes."""
        return self.files.num_bytes + self.sidecar_files.num_bytes

    def run_key(self, job: JobSpec) -> str:
        """Returns a hash of the job and the listed files, which determine the dataset."""
        reading = describe_inputs(job, self.files, self.content_check.storage)
        return fingerprint_of(job, self.files, self.sidecar_files, reading=reading)

    def require_documented_splits(self, job: JobSpec) -> None:
        """Refuses files for which a README.md and the job name different splits."""
        split_from = getattr(job.source_options, "split_from", NONE)
        rule = SourceRequest(job=job).file_splits(split_from)
        rule.require_documented(self.files, self.documented_splits)

    def matches_dataset(self, store: Store, manifest: Manifest, job: JobSpec) -> bool:
        """Tests whether a job would create the same dataset; may read the files."""
        reading = describe_inputs(job, self.files, self.content_check.storage)
        return is_same_dataset(
            store,
            manifest,
            job,
            self.files,
            self.sidecar_files,
            reading,
            self.content_check,
        )


def list_all_inputs(
    job: JobSpec,
    options: RunOptions,
    report_progress: Callable[[str], None] = lambda _: None,
) -> Inputs:
    """Lists all input files, and the sidecar files that cells may name.

    Sidecar files are all files below `files_root`, or below the input root by default.
    Without an output, as in `schema infer`, no output folder is compared with the inputs.
    `report_progress` is called before files are read to compare them.
    """
    listed_at = time.time()
    storage, output = options.storage.input, options.output
    links: list[str] = []
    source = make_source(job, storage)
    # Unpacked archives and a long file list use the disk of the other temporary files.
    if options.scratch or (output and is_local(output)):
        TEMPORARY.choose_folder(options.scratch or full_uri(output))
    option_files, root, listed_files = list_inputs_and_named_files(
        _inputs_outside_output(options.inputs, output),
        source.named_files,
        storage,
        notes=links,
        open_archives=not source.reads_archives,
    )
    files = _files_outside_output(listed_files, output)
    shown_links = links[:_MAX_SHOWN_LINKS]
    if (num_hidden_links := len(links) - _MAX_SHOWN_LINKS) > 0:
        shown_links.append(f"{format_count(num_hidden_links, 'other link')} skipped")
    warnings = [InputWarning("skipped-link", link) for link in shown_links]
    if passed_over := len(listed_files) - len(files):
        skipped_text = f"{format_count(passed_over, 'file')} in the output folder {full_uri(output)}"
        if not files:
            raise InputError(
                f"{', '.join(options.inputs)}: no files except {skipped_text}, which are never inputs"
            )
        message = f"skipped: {skipped_text}, because it is inside the input"
        warnings.append(InputWarning("output-in-input", message))
    files, left_out, summary = exclude_files(files, options.exclude, source.named_files)
    current, constants = EMPTY_REPORT, dict[str, Mapping[str, Any]]()
    if job.source == "parquet":
        from recordmill.transforms.sources.lakehouse import select_current_files

        files, current, constants = select_current_files(files, storage, left_out)
    # In text inputs, the lines of a README.md are rows like all others.
    of_lines = job.source == "text" and not getattr(
        job.source_options, "whole_files", False
    )
    files, documents_report, documented = remove_documents(
        files, "" if of_lines else job.source, storage
    )
    if not source.handles_unreadable and (unreadable := files.unreadable):
        raise unreadable_error(unreadable[0])
    check = ContentComparison(storage, report_progress)
    input_report = InputReport(warnings=tuple(warnings)).merged_with(summary)
    input_report = input_report.merged_with(current).merged_with(documents_report)
    inputs = Inputs(
        *(files, NO_FILES, check, input_report, listed_at, option_files, left_out),
        *(constants, documented),
    )
    if not job.reads_files:
        if source.files_roots:
            raise UsageError(
                "`files_root`: no feature of `schema` has bytes_from: path. Declare "
                "such a feature, or leave out `files_root`"
            )
        return inputs
    if not source.files_roots and any(parse_member(file.version) for file in files):
        raise UsageError(
            "tables in an archive cannot name files next to them (bytes_from: path): "
            "unpack the archive and use its folder as the input, or set `files_root` "
            "to the folder of the files"
        )
    roots = source.files_roots
    sidecar_files = NO_FILES
    for files_root, mark in zip(roots, root_prefixes(roots), strict=True):
        try:
            top, listed_files = list_inputs([files_root], storage, keep_unreadable=True)
        except InputError as error:
            raise InputError(f"`files_root`: {error}") from error
        if full_uri(top) != files_root:
            raise InputError(f"`files_root`: {files_root}: expected a folder")
        # The mark keeps the path distinct from an equal input path in the same inventory.
        sidecar_files += Inventory.from_files(
            file._replace(path=f"{mark}{file.path}") for file in listed_files
        )
    if not roots:
        _, sidecar_files = list_inputs([root], storage, keep_unreadable=True)
    sidecar_files_outside = _files_outside_output(sidecar_files, output)
    readable_sidecar_files = sidecar_files_outside.filter(
        sidecar_files_outside.table["problem"].is_null()
    )
    return replace(inputs, sidecar_files=readable_sidecar_files)


# Standard input is written to a file, which is deleted at the end. The name and the
# mtime of the file depend on its content only, so the same bytes are the same input. A
# killed run therefore resumes, and a repeated run has nothing to do.

STANDARD_INPUT = "-"
_STDIN_FOLDER_PREFIX = ".recordmill-stdin-"  # mkdtemp appends a random suffix
_EMPTY_SECONDS = 60.0  # maximum age of an empty folder that is still in use
_BLOCK_BYTES = 4 << 20


@contextmanager
def with_standard_input(options: RunOptions) -> Iterator[RunOptions]:
    """Yields the options of a run, with a file in place of standard input."""
    if STANDARD_INPUT not in options.inputs:
        yield options
        return
    if options.inputs != (STANDARD_INPUT,):
        raise UsageError(
            "-: standard input must be the only input; a file of this name is ./-"
        )
    if options.append:
        raise UsageError(
            "-: an append compares inputs with earlier inputs, and standard input is "
            "not kept: write each to a file in one folder, and use the folder as the "
            "input"
        )
    if options.detach or not options.is_embedded:
        raise UsageError(
            "-: standard input is read on this machine, but the workers are on other "
            "machines: write it to a file that they can read, and use the file as the "
            "input"
        )
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "-: standard input is a terminal: use a file as the input, or pipe the "
            "output of a program"
        )
    root = _choose_stdin_folder(options)
    _remove_stale_folders(root)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_STDIN_FOLDER_PREFIX, dir=root))
    except OSError as error:
        raise _no_space_error(root, error) from error
    try:
        with (folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = _write_standard_input(sys.stdin.buffer, folder)
            yield replace(options, inputs=(str(path),))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _choose_stdin_folder(options: RunOptions) -> Path:
    """Returns the local folder in which standard input is written to a file."""
    output = options.scratch or (full_uri(options.output) if options.output else "")
    if not output or not is_local(output):
        return Path(tempfile.gettempdir())
    # Never in the output itself, because files in the output are never inputs.
    path = Path(output).absolute()
    candidates = (path, *path.parents) if options.scratch else path.parents
    folder = next(
        (candidate for candidate in candidates if candidate.is_dir()), Path("/")
    )
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def _write_standard_input(stream: IO[bytes], folder: Path) -> Path:
    path = folder / "stdin"
    try:
        size, crc = write_windows(path, iter(partial(stream.read, _BLOCK_BYTES), b""))
    except OSError as error:
        raise _no_space_error(folder.parent, error) from error
    if not size:
        raise InputError(
            "-: standard input is empty: check that the program before it in the pipe "
            "succeeded"
        )
    stdin_file = path.rename(folder / f"stdin-{crc:08x}")
    os.utime(stdin_file, ns=(crc, crc))
    return stdin_file


def _remove_stale_folders(root: Path) -> None:
    """Removes the folders of killed processes."""
    for folder in root.glob(f"{_STDIN_FOLDER_PREFIX}*"):
        with suppress(OSError):  # a folder in use is not empty
            if time.time() - folder.stat().st_mtime > _EMPTY_SECONDS:
                folder.rmdir()
        with suppress(OSError), (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _no_space_error(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"-: standard input cannot be written to {folder}: {error.strerror}. Free "
        "some space, or set `scratch` to another folder"
    )
