"""Resolves a job and its options into one run, for `run`, `plan` and versions.

This module only reads: it creates and changes no files.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from recordmill.beam_jobs.service.inputs import Inputs, list_all_inputs
from recordmill.schemas.errors import OutputRefusedError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.job import ABOUT, Description, JobSpec, RunOptions
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.names import MAX_APPENDS
from recordmill.transforms.commit.build_manifest import check_reject_limit
from recordmill.transforms.commit.check_output import check_names, check_output
from recordmill.transforms.commit.commit import require_stored
from recordmill.transforms.commit.inputs import (
    dataset_changes,
    is_of_run,
    new_files,
    read_inputs,
    require_arrays_moved,
)
from recordmill.transforms.commit.versions import (
    list_versions,
    next_version,
    stale_versions,
)
from recordmill.transforms.dataset.files import (
    class_names,
    find_manifest,
    load_expected,
    read_manifest,
    require_schema,
    schema_of_dataset,
)
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.sources.listing import input_root, input_roots
from recordmill.transforms.sources.registry import ARRAYS_TRANSFORMED, describe_inputs
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.storage.shard_file import require_container
from recordmill.transforms.tasks.fingerprint import appended_fingerprint
from recordmill.transforms.tasks.rejects import (
    UNKNOWN_INPUT,
    RejectLocator,
    published_rejects,
)
from recordmill.transforms.tasks.workspace import Workspace


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """The dataset that a run appends to, and the files that it already holds."""

    base: Manifest  # manifest of the existing dataset
    schema: Schema  # features of the existing dataset
    existing_inventory: Inventory  # input files that were converted before

    @property
    def part(self) -> int:
        """Returns the number of the part that this run appends."""
        return self.base.appended + 1


# The version is part of a job, and therefore of its fingerprint. To compare a job with
# the newest version, recordmill computes the dataset that the job would create with
# that version. If it is the newest version, there is nothing to do. Otherwise the job
# runs as the next version, in a folder that nobody reads before latest.json names it.


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The existing versions of a dataset, for a run that publishes a version."""

    store: Store  # the folder that holds all versions and latest.json
    is_complete_by_version: dict[
        str, bool
    ]  # by version, oldest first: whether it is complete
    stale_versions: list[
        str
    ]  # unfinished versions of other jobs or inputs, to be removed
    unchanged_manifest: (
        Manifest | None
    )  # of the newest version, if this job would recreate it


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """A job with its inputs, its output, and everything derived from both."""

    job: JobSpec  # the conversion, with the version that is published
    options: RunOptions  # options of the run; `output` is the folder of the version
    store: Store  # the output folder
    inputs: Inputs  # files to convert; only new files if inputs are appended
    run_key: str  # hash of the job and the listed inputs
    expected_schema: Schema | None  # the schema that the dataset must have
    append_plan: AppendPlan | None = None  # None if the run does not append
    version_plan: VersionPlan | None = None  # None without `version=auto`

    @property
    def workspace(self) -> Workspace:
        """Returns the workspace of the run."""
        return self.workspace_of(self.run_key)

    def workspace_of(self, run_key: str) -> Workspace:
        """Returns the workspace of a run with another key and the same options."""
        options = self.options
        return Workspace.for_run(
            self.store, run_key, options.scratch, remote=not options.is_embedded
        )

    @property
    def base(self) -> Manifest | None:
        """Returns the manifest of the dataset that the run appends to, or None."""
        return self.append_plan.base if self.append_plan else None

    @property
    def base_fingerprint(self) -> str:
        """Returns the fingerprint of the dataset that the run appends to, or ""."""
        return self.base.fingerprint if self.base else ""

    def merge_description(self, manifest: Manifest | None) -> Description:
        """Returns the description of the dataset after the run.

        Fields that the job does not set are kept from the published dataset, unless the
        job overwrites it.
        """
        about, card = self.options.description
        if manifest and not self.options.overwrite:
            merged_about = {**manifest.about, **about}
            about = {key: merged_about[key] for key in ABOUT if key in merged_about}
            card = card or manifest.description.has_card
        return Description(about, card)

    @property
    def locator(self) -> RejectLocator:
        """Returns the locator, which finds the lines of rejects in the inputs."""
        if not self.inputs.files:
            return UNKNOWN_INPUT
        root = input_root(self.inputs.files)
        storage = self.options.storage.input
        return RejectLocator(root, self.job.source, storage, follows_links=True)

    @property
    def input_roots(self) -> tuple[str, ...]:
        """Returns the input folders to report to lineage: at most one for each input."""
        return input_roots(self.inputs.files, min(16, len(self.options.inputs)))

    @property
    def num_kept_files(self) -> int:
        """Returns the number of input files that the dataset already holds."""
        return len(self.append_plan.existing_inventory) if self.append_plan else 0


def resolve_run(
    job: JobSpec,
    options: RunOptions,
    inputs: Inputs | None = None,
    report_progress: Callable[[str], None] = lambda _: None,
) -> ResolvedRun:
    """Resolves the inputs, the version, the output and the key of a run.

    `inputs` is the inventory, if the inputs are already listed. `report_progress` is
    called before inputs are read to compare them.

    Raises:
      RecordmillError: the options, the inputs or the output do not fit together.
    """
    _require_detachable(options)
    if not is_local(options.scratch):
        raise UsageError(f"`scratch` {options.scratch}: expected a local folder")
    store = open_store(options.output, options.storage.output)
    check_names(job, store, auto_version=options.auto_version)
    require_container(job.container)
    version_plan = append_plan = expected = None
    if options.expect_schema:
        expected = load_expected(options.expect_schema, options.storage.output)
        are_columns_features = (
            job.map is None and job.declared is None
        )  # columns that become features
        if (
            are_columns_features
            and getattr(job.source_options, "extra_columns", "") == "ignore"
        ):
            names = tuple(feature.name for feature in expected.features)
            job = job.model_copy(update={"columns": names})
    if inputs is None:
        inputs = list_all_inputs(job, options, report_progress)
    if options.auto_version:
        job, version_plan = _choose_version(job, store, inputs)
        store = store.subfolder_store(job.version)
        options = replace(
            options, output=store.uri, auto_version=False, overwrite=False
        )
    in_store = not all(map(is_local, (*options.inputs, options.output)))
    # With an object store, workers wait for responses part of the time.
    workers = options.workers or usable_cores() * (2 if in_store else 1)
    options = replace(options, workers=workers)
    appended = _plan_append(job, store, inputs) if options.append else None
    if appended is not None:
        append_plan, inputs, run_key = appended
    else:
        run_key = inputs.run_key(job)
    return ResolvedRun(
        *(job, options, store, inputs, run_key, expected, append_plan, version_plan)
    )


def _plan_append(
    job: JobSpec, store: Store, inputs: Inputs
) -> tuple[AppendPlan, Inputs, str] | None:
    """Returns the append plan, the new inputs and the run key; None without a dataset."""
    # A store that does not answer is reported within seconds, not minutes.
    store = store.with_short_retries()
    base = find_manifest(store)
    if base is None:
        return None
    recorded_inputs = read_inputs(store, base, job)
    new_inventory, sidecar_inventory = new_files(
        recorded_inputs,
        inputs.files,
        inputs.sidecar_files,
        store.uri,
        inputs.content_check,
        left_out=inputs.excluded_paths,
    )
    if new_inventory and base.appended >= MAX_APPENDS:
        raise OutputRefusedError(
            f"{store.uri}: was appended to {base.appended:,} times, the maximum; "
            "convert all inputs again with `overwrite=true`"
        )
    run_key = base.fingerprint  # without new inputs there is nothing to do
    if new_inventory:
        reading = describe_inputs(job, new_inventory, inputs.content_check.storage)
        if ARRAYS_TRANSFORMED in reading:
            require_arrays_moved(store, base, job, inputs.files, inputs.content_check)
        run_key = appended_fingerprint(
            run_key, new_inventory, sidecar_inventory, reading=reading
        )
    existing_inventory = inputs.files.without_paths(new_inventory.paths)
    plan = AppendPlan(base, schema_of_dataset(store, base), existing_inventory)
    return (
        plan,
        replace(inputs, files=new_inventory, sidecar_files=sidecar_inventory),
        run_key,
    )


def _choose_version(
    job: JobSpec, store: Store, inputs: Inputs
) -> tuple[JobSpec, VersionPlan]:
    """Returns the job with its existing or its next version; changes no files."""
    # A store that does not answer is reported within seconds, not minutes.
    short_retry_store = store.with_short_retries()
    versions = list_versions(short_retry_store)
    whole = [version for version, is_whole in versions.items() if is_whole]
    newest = None
    if whole:
        folder = short_retry_store.subfolder_store(whole[-1])
        manifest = read_manifest(folder)
        same = job.model_copy(update={"version": whole[-1]})
        newest = manifest if inputs.matches_dataset(folder, manifest, same) else None
    version = newest.version if newest else next_version(whole[-1] if whole else None)
    job = job.model_copy(update={"version": version})
    stale = stale_versions(short_retry_store, versions, version, inputs.run_key(job))
    return job, VersionPlan(store, versions, stale, newest)


def find_published(run: ResolvedRun, store: Store) -> Manifest | None:
    """Returns the manifest of the run's dataset if it is already published, or None.

    `store` is the store of the output, with short or long retries.

    Raises:
      OutputError: the output holds another or an incomplete dataset, or foreign files.
      RejectLimitError, SchemaError: the dataset violates the limit or schema of the job.
    """
    job, inputs = run.job, run.inputs

    def is_same(published_manifest: Manifest) -> bool:
        if run.append_plan is not None:
            return is_of_run(store, published_manifest, run.run_key)
        return inputs.matches_dataset(store, published_manifest, job)

    manifest = check_output(
        store,
        run.run_key,
        overwrite=run.options.overwrite,
        # The number of an incomplete version is reused: no reader has seen it.
        take_over=run.version_plan is not None,
        base=run.base_fingerprint,
        is_same=is_same,
        changes_since=lambda other: dataset_changes(
            store, other, job, inputs.files, inputs.sidecar_files, inputs.content_check
        ),
    )
    if manifest is None:
        return None
    require_stored(store, manifest)
    check_reject_limit(
        job.max_rejects,
        manifest.rows_read,
        manifest.rows_rejected,
        f"recordmill rejects {shlex.quote(store.uri)}",
        published_rejects(store),
        run.locator,
    )
    schema = schema_of(manifest, class_names(store, manifest))
    require_schema(run.expected_schema, schema, job)
    return manifest


def _require_detachable(options: RunOptions) -> None:
    """Refuses options that cannot work after the launcher has exited."""
    if not options.detach:
        return
    if options.is_embedded:
        raise UsageError(
            "`detach` needs a separate runner, but the embedded runner ends with this "
            "process: set another runner after --, or leave out `detach`"
        )
    if options.auto_version:
        raise UsageError(
            "`detach` and `version=auto` cannot be combined: the launcher updates "
            "latest.json after the job ends. Set the version explicitly"
        )
