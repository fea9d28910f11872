"""Finds which inputs are new to the dataset in the output, and what it then is.

A dataset keeps the inventory of its inputs (transforms/commit/inputs.py). Those that
are new become a part of their own, as the same job would have made of them beside the
others; no file of an earlier part is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import MAX_APPENDS
from recordmill.transforms.commit.inputs import new_files, read_inputs
from recordmill.transforms.dataset.expected import schema_of_dataset
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.sources.registry import describe_inputs
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.fingerprint import appended_fingerprint


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What is appended to which dataset.

    Attributes:
      base: the manifest of the dataset that is there.
      schema: its features.
      kept: the files that were converted before.
      inputs: those that are new; without any, there is nothing to do.
      reading: how the new ones are read (see `registry.describe_inputs`).
    """

    base: Manifest
    schema: Schema
    kept: list[InputFile]
    inputs: Inputs
    reading: str = ""

    @property
    def part(self) -> int:
        """Returns the number of the part that is added."""
        return self.base.appended + 1

    @property
    def run_key(self) -> str:
        """Returns the key of the run that appends; the base's without new inputs."""
        if not self.inputs.files:
            return self.base.fingerprint
        return appended_fingerprint(
            self.base.fingerprint,
            self.inputs.files,
            self.inputs.side_files,
            reading=self.reading,
        )


def plan_append(job: JobSpec, store: Store, inputs: Inputs) -> AppendPlan | None:
    """Compares the inputs with those of the dataset that is there, if there is one.

    Args:
      job: what is converted and how.
      store: of the output.
      inputs: all inputs that there are now.

    Returns:
      What is appended to it, or None if there is no dataset yet.

    Raises:
      OutputError: nothing can be appended to the dataset that is there.
      InputError: files that it was made from are gone or have changed.
    """
    base = find_manifest(store)
    if base is None:
        return None
    known = read_inputs(store, base, job)
    new, side = new_files(
        known,
        inputs.files,
        inputs.side_files,
        store.uri,
        inputs.check,
        left_out=inputs.left_out,
    )
    if new and base.appended >= MAX_APPENDS:
        raise OutputRefusedError(
            f"{store.uri}: was appended to {base.appended:,} times, which is the most; "
            "convert all inputs again with `overwrite=true`"
        )
    fresh = {file.path for file in new}
    return AppendPlan(
        base=base,
        schema=schema_of_dataset(store, base),
        kept=[file for file in inputs.files if file.path not in fresh],
        inputs=replace(inputs, files=new, side_files=side),
        reading=describe_inputs(job, new) if new else "",
    )
