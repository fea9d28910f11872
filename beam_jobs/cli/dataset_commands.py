"""Defines the commands on finished datasets, from `inspect` to `clean`.

Heavy modules are imported inside the functions that need them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recordmill.beam_jobs.cli.options import (
    JSON_OPTION,
    STORAGE_OPTION,
    HelpCommand,
    HelpGroup,
    command,
)
from recordmill.beam_jobs.report.streams import FinishedWork
from recordmill.beam_jobs.report.terminal import echo, write_json
from recordmill.schemas.errors import MissingDatasetError, OutputError, UsageError
from recordmill.schemas.text import format_bytes, format_count

if TYPE_CHECKING:
    from recordmill.schemas.manifest import Manifest
    from recordmill.schemas.ranges import Reject
    from recordmill.schemas.storage_options import StorageOptionsPair
    from recordmill.transforms.storage import Store

_EXIT_FAILED = 1  # the dataset is damaged, or the datasets differ
_FOLDER_TYPE = click.Path(file_okay=False)


def _dataset_command(
    name: str,
    *examples: tuple[str, str],
    short_help: str | None = None,
    folders: Sequence[str] = ("output",),
) -> Callable[[Callable[..., object]], HelpCommand]:
    """Returns a decorator that creates a command on the datasets in its arguments."""
    arguments = [click.Argument([folder], type=_FOLDER_TYPE) for folder in folders]
    params = [*arguments, JSON_OPTION, STORAGE_OPTION]
    return command(name, *examples, params=params, short_help=short_help)


def _integer_option(
    *names: str, **keywords: Any
) -> Callable[[Callable[..., None]], Any]:
    return click.option(*names, type=click.IntRange(0), show_default=True, **keywords)


def _open_dataset(output: str, storage: StorageOptionsPair) -> tuple[Store, Manifest]:
    """Opens a dataset, or the latest version in a folder of versions."""
    from recordmill.transforms.commit.versions import follow_latest
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.storage import open_store

    store = follow_latest(open_store(output, storage.output))
    return store, read_manifest(store)


def _show_result(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    write_json(facts) if as_json else echo(text)


def _show_progress(
    stage: str, as_json: bool, doing: str = "", unit: str = "bytes"
) -> AbstractContextManager[Callable[[float, float | None], None]]:
    """Shows the progress of a command on stderr, except with --json."""
    from recordmill.beam_jobs.report.progress import show_progress

    return show_progress(sys.stderr, stage, doing, unit=unit, is_shown=not as_json)


def _check_input_root(
    _context: click.Context, _parameter: click.Parameter, root: str
) -> str:
    """Returns the absolute path or URL below which inputs may be read, or ""."""
    if not root:
        return ""
    from recordmill.schemas.storage_options import (
        require_url_without_secret,
        require_whole_scheme,
    )
    from recordmill.transforms.storage.reading import full_uri, is_local

    require_whole_scheme(root)
    if not is_local(root):
        require_url_without_secret(root)
    return full_uri(root)


_input_root_option = click.option(
    "--input-root",
    default="",
    metavar="FOLDER_OR_URL",
    callback=_check_input_root,
    help="Show line numbers by reading the inputs below this folder or URL. No other "
    "file is read.",
)


@_dataset_command(
    "inspect",
    ("show a dataset", "recordmill inspect out/table"),
    (
        "two rows of a class",
        "recordmill inspect out/table --where species=setosa --head 2",
    ),
    (
        "save the image of a row",
        "recordmill inspect out/photos --index 5 --image images",
    ),
    (
        "create a program that loads the dataset",
        "recordmill inspect out/table --tf > load.py",
    ),
)
@_integer_option("--examples", "--head", default=3, help="Number of examples to show.")
@click.option("--split", default="", help="Show examples of this split only.")
@_integer_option(
    "--index",
    help="Show the example with this index, from 0, in the split or among all.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="FEATURE=VALUE",
    help="Show examples with this value or class name; repeat for more conditions.",
)
@click.option(
    "--image",
    "images",
    default="",
    metavar="DIR",
    help="Write the images of these examples to this folder, as PNG files.",
)
@click.option(
    "--counts",
    is_flag=True,
    help="Count rows per class by reading every record (automatic up to 64 MiB).",
)
@click.option(
    "--tf",
    is_flag=True,
    help="Print a Python program that loads the dataset with TensorFlow.",
)
def inspect_command(
    output: str,
    examples: int,
    split: str,
    index: int | None,
    where: tuple[str, ...],
    storage: StorageOptionsPair,
    **display_options: Any,
) -> None:
    """Shows features, splits, shards, classes, and some examples."""
    if index is not None and where:
        raise click.UsageError("--index and --where cannot be combined")
    from recordmill.beam_jobs.report.dataset_report import show_dataset
    from recordmill.transforms.commit.versions import dataset_folder
    from recordmill.transforms.dataset.examples import Selection

    limit = examples if index is None else 1
    show_dataset(
        dataset_folder(output, storage.output),
        selection=Selection(limit, split, index or 0),
        storage=storage.output,
        **display_options,
        condition_texts=where,
    )


@_dataset_command(
    "verify",
    ("check the checksums of every record", "recordmill verify out/table"),
    ("also check every value against the schema", "recordmill verify out/table --deep"),
)
@click.option(
    "--quick",
    is_flag=True,
    help="Check sizes, counts and stored checksums; read no records.",
)
@click.option(
    "--deep", is_flag=True, help="Decode every record and check it against the schema."
)
@click.option(
    "--duplicates",
    is_flag=True,
    help="Find records with the same content in different splits.",
)
def verify_command(
    output: str,
    quick: bool,
    deep: bool,
    duplicates: bool,
    as_json: bool,
    storage: StorageOptionsPair,
) -> None:
    """Verifies every checksum, count and size against the manifest."""
    if quick and deep:
        raise click.UsageError("--quick and --deep cannot be combined")
    from recordmill.beam_jobs.report.tables import show_verify
    from recordmill.transforms.commit.cleanup import with_leftovers
    from recordmill.transforms.commit.versions import dataset_folder
    from recordmill.transforms.dataset.verify import verify_dataset
    from recordmill.transforms.storage import open_store

    dataset = dataset_folder(output, storage.output)
    with _show_progress(
        "verify", as_json, "read only the manifest and the sizes"
    ) as on_progress:
        read = 0

        def add(num_bytes: int) -> None:
            nonlocal read
            read += num_bytes
            on_progress(read, None)

        result = verify_dataset(
            dataset,
            full=not quick,
            deep=deep,
            duplicates=duplicates,
            storage=storage.output,
            on_progress=add,
        )
        result = with_leftovers(open_store(dataset, storage.output), result)
    show_verify(result, as_json=as_json)
    if result.problems:
        sys.exit(_EXIT_FAILED)


@_dataset_command(
    "clean",
    ("list the files", "recordmill clean out/table --dry-run"),
    ("remove them", "recordmill clean out/table"),
    short_help="Removes files left by interrupted runs.",
)
@click.option("--dry-run", is_flag=True, help="List the files; remove nothing.")
@click.option(
    "--detached",
    is_flag=True,
    help="Also end detached jobs and WriteDataset pipelines, even active ones; they publish nothing.",
)
def clean_command(
    output: str,
    dry_run: bool,
    detached: bool,
    as_json: bool,
    storage: StorageOptionsPair,
) -> FinishedWork | None:
    """Removes files left by interrupted runs in OUTPUT: scratch, staging.

    Removes only files that recordmill created, and none in subfolders of OUTPUT.
    Detached jobs and pipelines keep their files until a day after their last heartbeat.
    """
    from recordmill.transforms.commit.cleanup import clean
    from recordmill.transforms.storage import LocalStore, open_store

    store = open_store(output, storage.output)
    if isinstance(store, LocalStore) and not Path(store.root).exists():
        raise MissingDatasetError(
            f"{store.uri}: no such folder; expected the output folder of "
            "`recordmill convert`"
        )
    cleaned = clean(store, dry_run=dry_run, detached=detached)
    num_bytes = sum(cleaned.files.values())
    files = format_count(len(cleaned.files), "file")
    work = None if dry_run else FinishedWork(f"{output}: {files} removed")
    if as_json:
        facts: dict[str, object] = {"files": len(cleaned.files), "bytes": num_bytes}
        if cleaned.active_launches:
            facts["at_work"] = [launch.describe() for launch in cleaned.active_launches]
        if dry_run:
            facts |= {"dry_run": True, "names": list(cleaned.files)}
        write_json(facts)
        return work
    if dry_run:
        for name, size in cleaned.files.items():
            echo(f"{name}  {format_bytes(size)}")
    done = "would be removed" if dry_run else "removed"
    echo(f"{output}: {files} {done}, {format_bytes(num_bytes)}", err=True)
    for launch in cleaned.active_launches:
        echo(
            f"{output}: a {launch.noun} is running and keeps its files: "
            f"{launch.describe()}. They are kept until a day after its last heartbeat. "
            "If it was cancelled, `recordmill clean --detached` removes them now",
            err=True,
        )
    return work


@_dataset_command(
    "diff",
    ("compare the rows of two datasets", "recordmill diff out/table out/typed"),
    folders=("one", "other"),
)
@_integer_option(
    *("--rows", "num_rows"),
    default=3,
    help="Number of differing rows to list per dataset.",
)
def diff_command(
    one: str, other: str, num_rows: int, as_json: bool, storage: StorageOptionsPair
) -> None:
    """Compares two datasets: schema, classes, splits, and every row.

    Ignores shards and order. The exit status is 0 if both have the same rows in the
    same splits, 1 if they differ, 2 if there is
    no dataset.
    """
    from recordmill.beam_jobs.report.tables import show_diff
    from recordmill.transforms.dataset.diff import compare_datasets

    try:
        both = [_open_dataset(output, storage) for output in (one, other)]
    except OutputError as error:  # its exit status would mean that the datasets differ
        raise UsageError(str(error)) from error
    stores, manifests = zip(*both, strict=True)
    with _show_progress("diff", as_json) as on_progress:
        compared = compare_datasets(stores, manifests, num_rows, on_progress)
    show_diff((one, other), compared, as_json=as_json)
    if not compared.is_same:
        sys.exit(_EXIT_FAILED)


@click.group(cls=HelpGroup, short_help="Exports a dataset for another tool.")
def export() -> None:
    """Exports a dataset to the file format of another tool."""


def _export_dataset(
    write: Callable[..., list[str]],
    reader: str,
    *,
    output: str,
    folder: str,
    as_json: bool,
    storage: StorageOptionsPair,
) -> FinishedWork:
    """Exports a dataset with a function, and shows the intended reader."""
    from recordmill.transforms.storage import open_store

    store, manifest = _open_dataset(output, storage)
    target = open_store(folder, storage.output)
    with _show_progress("export", as_json) as on_progress:
        names = write(store, manifest, target, on_progress)
    text = f"{folder}: {format_count(manifest.num_shards, 'shard')} for {reader}"
    _show_result({"files": names}, text, as_json=as_json)
    return FinishedWork(f"The export is complete: {text}")


@_dataset_command(
    "tfds",
    (
        "create a folder for tfds.builder_from_directory",
        "recordmill export tfds out/table tfds",
    ),
    short_help="Creates a TFDS folder; supports gzip shards and appended datasets.",
    folders=("output", "folder"),
)
def tfds_command(**arguments: Any) -> FinishedWork:
    """Exports the dataset in OUTPUT to FOLDER, for tfds.builder_from_directory.

    A dataset without appended parts and without gzip needs no export. Local shards are
    linked, so FOLDER takes no space if it is on the same disk.
    """
    from recordmill.transforms.dataset.export import export_tfds

    return _export_dataset(export_tfds, "tfds.builder_from_directory", **arguments)


@_dataset_command(
    "parquet",
    ("one Parquet file per shard", "recordmill export parquet out/table parquet"),
    short_help="Creates Parquet files, also for Hugging Face datasets.",
    folders=("output", "folder"),
)
def parquet_command(**arguments: Any) -> FinishedWork:
    """Exports the dataset in OUTPUT to FOLDER as Parquet files.

    Hugging Face datasets recognizes images and class labels. _SUCCESS is written last.
    """
    from recordmill.transforms.rows.export_parquet import export_parquet

    return _export_dataset(export_parquet, "readers of Parquet", **arguments)


@_dataset_command(
    "webdataset",
    ("one tar shard per shard", "recordmill export webdataset out/photos tars"),
    short_help="Creates tar shards for WebDataset.",
    folders=("output", "folder"),
)
def webdataset_command(**arguments: Any) -> FinishedWork:
    """Exports the dataset in OUTPUT to FOLDER as tar shards for WebDataset.

    Images, arrays and a single class label become separate files, other features JSON.
    The last file is _SUCCESS.
    """
    from recordmill.transforms.rows.export_webdataset import export_webdataset

    return _export_dataset(export_webdataset, "WebDataset", **arguments)


for _format in (tfds_command, parquet_command, webdataset_command):
    export.add_command(_format)


@_dataset_command(
    "index",
    ("one index file per shard", "recordmill index out/table"),
    short_help="Writes index files that let readers find single records.",
)
@click.option("--split", multiple=True, help="Index only this split; repeat for more.")
def index_command(
    output: str, split: tuple[str, ...], as_json: bool, storage: StorageOptionsPair
) -> FinishedWork:
    """Writes SHARD.idx next to each shard of OUTPUT, and verifies every record.

    With these files, DALI, the Python package tfrecord and recordmill.open_dataset find
    a record without reading earlier records. They are removed with their shards when
    another dataset replaces this one.
    """
    from recordmill.transforms.dataset.reader import write_indexes

    store, manifest = _open_dataset(output, storage)
    with _show_progress("index", as_json) as on_progress:
        names = write_indexes(store, manifest, split or None, on_progress)
    example_note = f"such as {names[0]}" if names else "because there are no shards"
    text = (
        f"{store.uri}: {format_count(len(names), 'index file')} written, {example_note}"
    )
    _show_result({"files": names}, text, as_json=as_json)
    return FinishedWork(text)


@_dataset_command(
    "rejects",
    ("show the reasons and the first rows", "recordmill rejects out/table"),
    ("also show line numbers", "recordmill rejects out/table --input-root data"),
    ("as JSON for a program", "recordmill rejects out/table --rows 1000 --json"),
    short_help="Shows rejected rows and the reasons.",
)
@_integer_option("--rows", "num_rows", default=10, help="Number of rows to show.")
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Show only reasons that contain this text.",
)
@click.option("--unpublished", is_flag=True, help="Show rejects from unpublished runs.")
@click.option(
    "--scratch",
    default="",
    metavar="DIR",
    help="Scratch folder of the unpublished runs.",
)
@_input_root_option
def rejects_command(
    output: str,
    num_rows: int,
    reason: str,
    unpublished: bool,
    scratch: str,
    input_root: str,
    as_json: bool,
    storage: StorageOptionsPair,
) -> None:
    """Shows the number of rejected rows per reason, and the first rows.

    If OUTPUT has no dataset, shows the rejects of the unfinished run. Positions are byte
    offsets in the input file, and the raw bytes are those that the dataset stores. With
    --input-root, the inputs below it are read for the line numbers.
    """
    from recordmill.beam_jobs.report.tables import show_rejects
    from recordmill.schemas.manifest import MANIFEST_NAME
    from recordmill.transforms.commit.versions import follow_latest
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.storage import open_store
    from recordmill.transforms.tasks.rejects import (
        count_kinds,
        published_locator,
        published_rejects,
        unpublished_locator,
        unpublished_rejects,
    )

    store = open_store(output, storage.output)
    if not unpublished:
        store = follow_latest(store)
    published = not unpublished and store.size(MANIFEST_NAME) is not None
    if published:
        read_rejects = partial(published_rejects, store)
        locator = published_locator(store, input_root, storage.input)
    else:
        read_rejects = partial(unpublished_rejects, store, scratch)
        locator = unpublished_locator(store, scratch, input_root, storage.input)

    def iterate_rejects() -> Iterator[Reject]:
        return (reject for reject in read_rejects() if reason in reject.reason)

    kinds = count_kinds(iterate_rejects())
    if not kinds and not published:
        raise MissingDatasetError(
            f"{store.uri}: no dataset and no rejects (expected the output folder of "
            "`recordmill convert`)"
        )
    rows = list(islice(iterate_rejects(), num_rows))
    show_rejects(kinds, rows, locator, published=published, as_json=as_json)
    if published and not reason:
        expected = read_manifest(store).rows_rejected
        lost = expected - sum(kind.num_rows for kind in kinds)
        if lost > 0:
            echo(
                f"{lost:,} of the {format_count(expected, 'reject')} of this dataset are "
                "missing. Convert again with --overwrite to get them back",
                err=True,
            )


@_dataset_command(
    "report",
    ("create report.html for a browser", "recordmill report out/table"),
    ("choose the file name", "recordmill report out/photos -o photos.html"),
    short_help="Writes an HTML report about a dataset.",
)
@click.option(
    "-o",
    "--output",
    "page_file",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    help="File to write; replaces an earlier report.",
)
@_input_root_option
def report_command(
    output: str,
    page_file: str,
    input_root: str,
    as_json: bool,
    storage: StorageOptionsPair,
) -> None:
    """Writes an HTML report about a dataset: classes, images, values, shards, rejects.

    Reads and verifies every row once. The page is a single file that needs no
    network. An existing file is replaced only if it is such a report.
    """
    from recordmill.beam_jobs.report.page import (
        build_page,
        check_page_target,
        write_page,
    )
    from recordmill.beam_jobs.service.outcome import load_input_report
    from recordmill.transforms.commit.versions import dataset_folder
    from recordmill.transforms.statistics.dataset_statistics import gather_statistics
    from recordmill.transforms.tasks.rejects import published_locator

    target = Path(page_file)
    check_page_target(target)
    folder = dataset_folder(output, storage.output)
    store, manifest = _open_dataset(folder, storage)
    with _show_progress("report", as_json, unit="row") as on_progress:
        statistics = gather_statistics(store, manifest, on_progress)
    locator = published_locator(store, input_root, storage.input)
    input_report = load_input_report(store, manifest)
    page = build_page(manifest, statistics, folder, locator, input_report)
    num_bytes = write_page(page, target)
    text = f"{target}: {format_bytes(num_bytes)}; open it in a browser"
    _show_result({"file": str(target), "bytes": num_bytes}, text, as_json=as_json)
