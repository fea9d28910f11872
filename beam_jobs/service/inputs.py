"""Lists the inputs of a run: what is converted, and what cells of it may name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recordmill.beam_jobs.service.outside_output import files_outside, inputs_outside
from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import InputFile, member_of
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.cast.side_files import FILES_ROOT
from recordmill.transforms.commit.inputs import ContentCheck, is_same_dataset
from recordmill.transforms.sources.exclude_files import exclude_files
from recordmill.transforms.sources.listing import list_inputs, unreadable_error
from recordmill.transforms.sources.named_files import list_with_named
from recordmill.transforms.sources.registry import describe_inputs, make_source
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.read_member import unpack_into
from recordmill.transforms.storage.reading import full_uri, is_local
from recordmill.transforms.tasks.fingerprint import fingerprint_of

_SHOWN_LINKS = 5


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inventory of a run.

    Attributes:
      files: what is converted.
      side_files: what cells of it may name, if the job pulls any in.
      check: compares them with those of a dataset.
      warnings: of what was passed over.
      facts: what `exclude` left out.
      apart: files that are inputs because options name them.
      left_out: paths of input files that `exclude` leaves out.
      listed_at: the time before they were listed, in Unix seconds.
    """

    files: list[InputFile]
    side_files: list[InputFile]
    check: ContentCheck = field(default_factory=ContentCheck, compare=False)
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    listed_at: float = field(default=0.0, compare=False)
    apart: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()

    @property
    def all_files(self) -> list[InputFile]:
        """Returns both kinds of files."""
        return [*self.files, *self.side_files]

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of all files."""
        return sum(file.size for file in self.all_files)

    def run_key(self, job: JobSpec) -> str:
        """Returns a hash of all that fixes the dataset's bytes, as it was listed."""
        reading = describe_inputs(job, self.files)
        return fingerprint_of(job, self.files, self.side_files, reading=reading)

    def give(self, store: Store, manifest: Manifest, job: JobSpec) -> bool:
        """Tells whether a job makes just this dataset of them; may read them for it."""
        reading = describe_inputs(job, self.files)
        return is_same_dataset(
            store, manifest, job, self.files, self.side_files, reading, self.check
        )


def list_all_inputs(
    job: JobSpec, options: RunOptions, tell: Callable[[str], None] = lambda _: None
) -> Inputs:
    """Lists all input files, and those that cells may name: all below the input root.

    Args:
      job: what is converted.
      options: how it is run.
      tell: is told of the work before files are read to compare them.

    Raises:
      InputError: an input that is not there or cannot be listed.
      UsageError: an input that is named lies in the output folder, or all do.
    """
    listed_at = time.time()
    storage, output = options.storage.input, options.output
    links: list[str] = []
    source = make_source(job, storage)
    # Where an archive has to be unpacked: on the disk of the other temporary files.
    if options.scratch or is_local(output):
        unpack_into(options.scratch or full_uri(output))
    apart, root, found = list_with_named(
        inputs_outside(options.inputs, output),
        source.named_files,
        storage,
        keep_unreadable=True,
        note=links.append,
        open_archives=not source.reads_archives,
    )
    files = files_outside(found, output)
    warnings = _told(links)
    if passed_over := len(found) - len(files):
        left = f"{count(passed_over, 'file')} in the output folder {full_uri(output)}"
        if not files:
            raise InputError(
                f"{', '.join(options.inputs)}: no files but {left}, which are never inputs"
            )
        warnings += (f"passed over: {left}, as it lies inside the input",)
    kept = exclude_files(files, options.exclude, source.named_files)
    files, warnings = kept.files, (*warnings, *kept.warnings)
    unreadable = [file for file in files if file.problem]
    if unreadable and not source.handles_unreadable:
        raise unreadable_error(unreadable[0])
    check = ContentCheck(storage, tell)
    inputs = Inputs(
        files, [], check, warnings, kept.facts, listed_at, apart, kept.left_out
    )
    declared = job.declared.features.values() if job.declared else ()
    if not any(feature.bytes_from for feature in declared):
        if source.files_root:
            raise UsageError(
                "`files_root`: no feature of `schema` has bytes_from: path. Declare one, "
                "or leave out `files_root`"
            )
        return inputs
    if not source.files_root and any(member_of(file.version) for file in files):
        raise UsageError(
            "tables in an archive cannot name files beside them (bytes_from: path): "
            "unpack the archive and give its folder as the input, or name the folder of "
            "the files by `files_root`"
        )
    if source.files_root:
        below = _list_files_root(source.files_root, storage)
    else:
        _, below = list_inputs([root], storage, keep_unreadable=True)
    side_files = [file for file in files_outside(below, output) if not file.problem]
    return replace(inputs, side_files=side_files)


def _told(links: Sequence[str]) -> tuple[str, ...]:
    """Returns what is told of links that were passed over: the first ones."""
    rest = len(links) - _SHOWN_LINKS
    more = [f"{count(rest, 'other link')} passed over"] if rest > 0 else []
    return (*links[:_SHOWN_LINKS], *more)


def _list_files_root(root: str, storage: StorageOptions) -> list[InputFile]:
    """Lists what cells may name below a root that a person gave.

    Raises:
      InputError: it is not a folder, or cannot be listed.
    """
    try:
        found, files = list_inputs([root], storage, keep_unreadable=True)
    except InputError as error:
        raise InputError(f"`files_root`: {error}") from error
    if full_uri(found) != root:
        raise InputError(f"`files_root`: {root} is not a folder; expected one")
    # Apart from inputs of the same path, as both stand in one inventory.
    return [file._replace(path=f"{FILES_ROOT}{file.path}") for file in files]
