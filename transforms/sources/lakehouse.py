"""Finds the files of a Delta or Iceberg table that hold its current rows.

Such a table is a folder of Parquet files and metadata. The folder also has files whose
rows were deleted or rewritten; only the metadata identify them. The packages deltalake
and pyiceberg read the metadata. The files are then read like any Parquet files.

    sales/_delta_log/00000000000000000002.json     Delta (delta-io/delta, PROTOCOL.md)
    sales/metadata/00002-7d3a.metadata.json        Iceberg (its spec, "Table Metadata")
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import InputError, RecordmillError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.input_text import describe_failure
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.iceberg_files import open_table
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.storage.reading import is_local, local_path, read_range

_LOG = "_delta_log"
_ICEBERG_GLOB = "metadata/*.metadata.json"  # the metadata files of Iceberg
_MAX_FOLDERS = 200  # that are checked, with two requests each
_ICEBERG_PATH = re.compile(r"(?:.*/)?metadata/[^/]*\.metadata\.json")
_PARTITION = re.compile(r"[^=/]+=[^/]*")
_UNSUPPORTED_FEATURES = {  # of Delta, that a list of files cannot represent; and the remedy
    "deletionVectors": "REORG TABLE name APPLY (PURGE)",
    "columnMapping": "a copy of the table without column mapping",
}


class Snapshot(NamedTuple):
    """The current version of a table."""

    version: str
    # file path below the table's folder -> values of the columns that it may lack
    paths: Mapping[str, Mapping[str, pa.Scalar]]


def select_current_files(
    files: Inventory, storage: StorageOptions, left_out: frozenset[str] = frozenset()
) -> tuple[Inventory, InputReport, dict[str, Mapping[str, pa.Scalar]]]:
    """Returns the inventory without the outdated and metadata files of tables.

    Args:
      files: the inventory of the inputs.
      storage: options of their storage.
      left_out: paths that the user excluded; they may be missing from the inventory.

    Returns:
      The remaining files, the input report, and by path the values of the columns that
        Iceberg files may lack.

    Raises:
      InputError: a table cannot be read as a list of files, or its files are inputs
        without its metadata.
    """
    _require_whole_tables(files, storage)
    facts, constants = [], dict[str, Mapping[str, pa.Scalar]]()
    for folder, is_delta in _find_tables(files).items():
        folder_files = [file for file in files if file.path.startswith(folder)]
        uri = folder_files[0].uri.removesuffix(folder_files[0].path) + folder
        snapshot = (
            _delta_snapshot(uri, folder, folder_files, storage)
            if is_delta
            else _iceberg_snapshot(uri, folder, folder_files, storage)
        )
        table_format = "Delta" if is_delta else "Iceberg"
        existing_paths = {file.path.removeprefix(folder) for file in folder_files}
        current_names = {
            path for path in snapshot.paths if folder + path not in left_out
        }
        if missing_paths := sorted(current_names - existing_paths):
            raise InputError(
                f"{uri}: version {snapshot.version} of this {table_format} table has "
                f"{format_count(len(missing_paths), 'file')} that cannot be found, such as {missing_paths[0]}. If "
                "a job is writing the table, run again; if files were removed, restore "
                "them or read another copy"
            )
        kept_paths = {folder + path for path in current_names}
        if not is_delta:
            constants |= {folder + path: snapshot.paths[path] for path in current_names}
        other_paths = [
            file.path for file in folder_files if file.path not in kept_paths
        ]
        files = files.without_paths(other_paths)
        log = f"{folder}{_LOG}/"  # the log also has Parquet files
        num_outdated = sum(
            path.endswith(".parquet") and log not in path for path in other_paths
        )
        version_text = (
            f"version {snapshot.version}, {format_count(len(kept_paths), 'file')}"
        )
        version_text += (
            f"; {format_count(num_outdated, 'file')} of other versions left out"
            if num_outdated
            else ""
        )
        facts.append(
            (f"{table_format} table {folder.rstrip('/') or uri}", version_text)
        )
        if not kept_paths:
            raise InputError(
                f"{uri}: version {snapshot.version} of this table has no rows"
            )
    return files, InputReport(tuple(facts)), constants


def _find_tables(files: Iterable[InputFile]) -> dict[str, bool]:
    """Returns the folder of each table below the input root -> True if it is Delta."""
    tables = {}
    for file in files:
        parts = PurePosixPath(file.path).parts
        if _LOG in parts[:-1] and file.path.endswith(".json"):
            log_index = parts.index(_LOG)
            tables["".join(f"{part}/" for part in parts[:log_index])] = True
        elif _ICEBERG_PATH.fullmatch(file.path):
            tables["".join(f"{part}/" for part in parts[:-2])] = False
    return tables


def _require_whole_tables(files: Sequence[InputFile], storage: StorageOptions) -> None:
    """Raises InputError if inputs are in the folder of a table but its metadata are not.

    A glob can match files in very many folders, so only the first folders are checked.
    """
    table_folders = _find_tables(files)
    file_by_folder: dict[str, InputFile] = {}
    for file in files:
        root = file.uri.removesuffix(file.path)
        if any(file.path.startswith(folder) for folder in table_folders):
            continue
        for path in (
            (root + file.given_folder).rstrip("/"),
            file.uri.rpartition("/")[0],
        ):
            while _PARTITION.fullmatch(path.rpartition("/")[2]):
                path, _, _ = path.rpartition("/")
            file_by_folder.setdefault(path.removesuffix("/data"), file)
            file_by_folder.setdefault(path, file)
    for table, file in islice(file_by_folder.items(), _MAX_FOLDERS):
        for table_format, metadata in (
            ("Delta", f"{_LOG}/*.json"),
            ("Iceberg", _ICEBERG_GLOB),
        ):
            if _has_match(f"{table}/{metadata}", storage):
                raise InputError(
                    f"{file.uri}: is a file of the {table_format} table {table}, which may have "
                    f"deleted its rows. Name the table in place of its files: {table}"
                )


def _has_match(pattern: str, storage: StorageOptions) -> bool:
    """Returns True if a file matches; only the last part of the pattern has wildcards."""
    folder, _, names = pattern.rpartition("/")
    if is_local(folder):
        return next(Path(local_path(folder)).glob(names), None) is not None
    system, path = filesystem_of(folder, storage)
    return bool(system.isdir(path) and system.glob(f"{path}/{names}"))


def _load(module: str, uri: str) -> Any:
    """Imports a module; raises InputError if its package is not installed."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{uri}: is a table that {package} reads. Its folder also contains files "
            f"of deleted rows, and {package}, which is not installed, distinguishes "
            f"them: pip install {package}"
        ) from error


def _delta_snapshot(
    uri: str, folder: str, folder_files: Sequence[InputFile], storage: StorageOptions
) -> Snapshot:
    """Reads the log of a Delta table from a local copy, whatever its storage is."""
    deltalake = _load("deltalake", uri)
    log = [file for file in folder_files if file.path.startswith(f"{folder}{_LOG}/")]
    with tempfile.TemporaryDirectory(prefix="recordmill-delta-") as copy_folder:
        for file in log:
            target = Path(copy_folder, file.path.removeprefix(folder))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_range(file.uri, 0, file.size, storage, file.stat))
        try:
            table = deltalake.DeltaTable(copy_folder)
            features = {*(table.protocol().reader_features or ())}
            mode = table.metadata().configuration.get("delta.columnMapping.mode")
            features |= {"columnMapping"} if mode not in (None, "none") else set()
            if "deletionVectors" in features and not _has_deleted_rows(table):
                features.remove("deletionVectors")
            paths = [
                file_uri.removeprefix(f"{copy_folder}/")
                for file_uri in table.file_uris()
            ]
            version = str(table.version())
        except Exception as error:  # from deltalake, Arrow or Rust
            raise InputError(
                f"{uri}: the log of this Delta table cannot be read: "
                f"{describe_failure(error)}"
            ) from error
    if refused := sorted(features & _UNSUPPORTED_FEATURES.keys()):
        raise InputError(
            f"{uri}: this Delta table uses {refused[0]}, so its rows differ from the "
            f"rows in its files. Rewrite it in Spark ({_UNSUPPORTED_FEATURES[refused[0]]}), or "
            "write its rows to Parquet files and convert these"
        )
    return Snapshot(version, {path: {} for path in paths})


def _has_deleted_rows(table: Any) -> bool:
    """Returns True if a Delta table with deletion vectors marks any row as deleted."""
    try:
        return any(batch.num_rows for batch in table.deletion_vectors())
    except Exception:  # the vectors are in files not copied, or deltalake is too old
        return True


def _iceberg_snapshot(
    uri: str, folder: str, folder_files: Sequence[InputFile], storage: StorageOptions
) -> Snapshot:
    """Reads the newest metadata file of an Iceberg table."""
    load = partial(_load, uri=uri)
    pyarrow = load("pyiceberg.io.pyarrow")
    metadata_files = [
        file for file in folder_files if _ICEBERG_PATH.fullmatch(file.path)
    ]
    # 00002-<uuid>.metadata.json, or v2.metadata.json in tables without a catalog.
    newest = max(
        metadata_files, key=lambda file: (_parse_metadata_version(file.path), file.path)
    )
    try:
        files = {file.path.removeprefix(folder): file for file in folder_files}
        table, table_files = open_table(newest, uri, files, storage, load)
        tasks = list(table.scan().plan_files())
        snapshot = table.current_snapshot()
        names = {field.field_id: field.name for field in table.schema().fields}
        types = pyarrow.schema_to_pyarrow(table.schema())
        paths = {
            table_files.relative_path(task.file.file_path): {
                names[field.source_id]: pa.scalar(
                    partition_value, types.field(names[field.source_id]).type
                )
                # Hive stores these values only in the names of folders.
                for field, partition_value in zip(
                    table.specs()[task.file.spec_id].fields,
                    task.file.partition,
                    strict=True,
                )
                if str(field.transform) == "identity" and field.source_id in names
            }
            for task in tasks
        }
        old_names = {
            field.field_id: field.name
            for schema in table.metadata.schemas
            for field in schema.fields
            if names.get(field.field_id) != field.name
        }
    except RecordmillError:
        raise
    except Exception as error:  # from pyiceberg, if the metadata are damaged
        raise InputError(
            f"{newest.uri}: the metadata of this Iceberg table cannot be read: "
            f"{describe_failure(error)}"
        ) from error
    if old_names:
        raise InputError(
            f"{uri}: columns of this Iceberg table were renamed or removed "
            f"({format_names(sorted(old_names.values()))}), and its files have them under "
            "their old names. Write its rows to Parquet files by pyiceberg "
            "(table.scan().to_arrow()), and convert these"
        )
    if any(task.delete_files for task in tasks):
        raise InputError(
            f"{uri}: deleted rows of this Iceberg table are still in its files. Rewrite "
            "them in Spark (CALL system.rewrite_data_files), or write its rows to Parquet "
            "files and convert these"
        )
    return Snapshot(str(snapshot.snapshot_id if snapshot else "none"), paths)


def _parse_metadata_version(path: str) -> int:
    """Returns the version number in the name of a metadata file; -1 without one."""
    number_match = re.match(r"v?(\d+)", path.rpartition("/")[2])
    return int(number_match[1]) if number_match else -1
