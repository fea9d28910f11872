"""Lists the inputs of a run: what is converted, and what cells of it may name."""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.job.run_options import RunOptions
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.sources.listing import list_inputs, unreadable_error
from recordmill.transforms.sources.registry import describe_inputs, make_source
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.tasks.context import fingerprint_of


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inventory of a run.

    Attributes:
      files: what is converted.
      side_files: what cells of it may name, if the job pulls any in.
    """

    files: list[InputFile]
    side_files: list[InputFile]

    @property
    def all_files(self) -> list[InputFile]:
        """Returns both kinds of files."""
        return [*self.files, *self.side_files]

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of all files."""
        return sum(file.size for file in self.all_files)

    def fingerprint(self, job: JobSpec) -> str:
        """Returns a digest of all that fixes the dataset's bytes."""
        reading = describe_inputs(job, self.files)
        return fingerprint_of(job, self.files, self.side_files, reading=reading)


def list_all_inputs(job: JobSpec, options: RunOptions) -> Inputs:
    """Lists all input files, and those that cells may name: all below the input root.

    Raises:
      InputError: an input that is not there or cannot be listed.
      UsageError: one of the files lies in the output folder.
    """
    storage = options.storage.input
    root, files = list_inputs(options.inputs, storage, keep_unreadable=True)
    unreadable = [file for file in files if file.problem]
    if unreadable and not make_source(job, storage).handles_unreadable:
        raise unreadable_error(unreadable[0])
    output = _full_uri(options.output)
    inside = [file.uri for file in files if _is_below(file.uri, output)]
    if inside:
        raise UsageError(
            f"{inside[0]} is an input, but lies inside the output folder {output}; "
            "choose another output or narrower inputs"
        )
    declared = job.declared.features.values() if job.declared else ()
    if not any(feature.bytes_from for feature in declared):
        return Inputs(files, [])
    _, below = list_inputs([root], storage, keep_unreadable=True)
    side_files = [
        file for file in below if not file.problem and not _is_below(file.uri, output)
    ]
    return Inputs(files, side_files)


def _full_uri(uri: str) -> str:
    return str(local_path(uri).absolute()) if is_local(uri) else uri.rstrip("/")


def _is_below(uri: str, folder: str) -> bool:
    return uri.startswith(f"{folder}/")
